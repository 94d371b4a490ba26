"""What can this design show? Studies are simulated as designed and fitted again, and what comes out is set beside what went in.

*Design.* A person of the study is a pattern that can be used again: where their episodes began and how long they could be or,
without the table, in which states they decided how often. A simulated study draws persons from the patterns, lets each act by a
policy in the same tasks, and counts their decisions. In place of a study that was run there can be one that is planned: a
`Schedule` says how often each person is given each of some *candidates*, and everybody is given the same. A candidate is what a
person can be given to do: one episode, or a block of episodes, each with the state in which it begins and the most decisions it
may have. `design` finds the best schedule.

*Truth.* After a `Population` persons are drawn anew for each study from the fitted population, with a chosen effect of one
covariate if wanted. After `MaximumLikelihood` each person has the fitted discount and temperature, or a chosen discount. The
reward is the fitted one.

*Sizes.* Besides the study as designed there are studies with other numbers of decisions per person, of people, and with other
effects, one of these changed at a time. All sizes use the same random numbers, so that they differ by little else than size.

*What is reported* of each size: bias and root mean square error of the discounts, their correlation with the truth within a
study, how often 95 % intervals contain the truth; and of the effect its bias, its coverage, and its power, the share of studies
with p < 0.05.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import expit

from multihorizon.checks import Floats, Ints, Seed, as_count, as_floats, as_seed, first_few, label, read_only
from multihorizon.choice.model import Settings, check_discounts, with_known_reward
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.reading import Table, read_table
from multihorizon.data.simulation import simulate_policy
from multihorizon.driver import solve
from multihorizon.files import read_json
from multihorizon.frames import Frame, as_frame
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.mdp import MDP
from multihorizon.names import numbers_of, positions
from multihorizon.parallel import Progress, as_jobs, in_parallel, silent
from multihorizon.population.covariates import Covariates, least_persons
from multihorizon.population.evidence import PopulationEvidence, PopulationFindings
from multihorizon.population.solver import Population
from multihorizon.problem import Expert, Problem, require_counts, require_finite
from multihorizon.questions.bootstrap import tables_of
from multihorizon.result import COLOURS, Result, package_version
from multihorizon.solution import Solution, Status

#: The most decisions of an episode and the most episodes of a block that are planned for.
LONGEST = 10_000
#: The most decisions of an episode where nothing is said of it.
LENGTH = 200
#: Nobody is given anything more often, or asked for more episodes or decisions, than this.
MOST_TIMES = 1_000_000


def simulate_study(
    study: Problem | Solution,
    solver: MaximumLikelihood | Population | None = None,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    *,
    schedule: Schedule | None = None,
    effects: Sequence[float] | None = None,
    term: str | None = None,
    discounts: Mapping[str, float] | None = None,
    decisions: Sequence[int] | None = None,
    people: Sequence[int] | None = None,
    studies: int = 100,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Recovery:
    """Simulate a study as designed many times, fit each again, and compare with the truth.

    Args:
        study: the problem, or a solution of `MaximumLikelihood` or `Population` to take as the truth.
        solver: how studies are fitted, `MaximumLikelihood` or `Population`; by default that of the solution, else
            `MaximumLikelihood()`.
        demonstrations: the table the problem was made of, or one for each task. Then simulated episodes begin where those of the
            study did; without it, persons decide again in the states in which they decided.
        schedule: in place of a study that was run, one that is planned, as `design` proposes it. Persons are those of the
            solution, and `people` is one number: as many persons take part, each made after one of the solution's.
        effects: sizes of the effect of one covariate on logit γ, for `Population`. The last one is that of studies of other
            sizes. By default no effect and the fitted one.
        term: the covariate's term in the formula; not needed where there is one besides the intercept.
        discounts: chosen discounts by name, for `MaximumLikelihood`; others are those of the solution.
        decisions: numbers of decisions per person to try besides the study's own; by default half and twice as many.
        people: numbers of people to try, for `Population`; by default half and twice as many.
        studies: how many studies of each size; at least 2, as a single study has no spread.
        seed: same seed, same answer.
        jobs: processes; −1 is all cores. The digits do not depend on it.
        progress: called after each study.

    Returns:
        For each size of study, errors, coverage and power (`multihorizon.questions.study.Recovery`).

    Raises:
        ValueError: for an expert without decisions, an unknown term or name, or a fit that has no answer to start from.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains
        >>> d = domains.cliff()
        >>> table = Demonstrations.simulate(d.mdp, d.mce_experts(), episodes=100)
        >>> found = simulate_study(Problem(d.mdp, table), demonstrations=table, decisions=[], studies=3)
        >>> found.sizes[0].people, found.sizes[0].studies
        (3, 3)
    """
    as_count(studies, "studies", least=2)
    seed = as_seed(seed)
    as_jobs(jobs)
    used = solver or (study.solver_used(MaximumLikelihood, Population) if isinstance(study, Solution) else MaximumLikelihood())
    problem = study.require_problem() if isinstance(study, Solution) else require_finite(study)
    covariates = used.covariates(problem) if isinstance(used, Population) else None
    if covariates is not None and covariates.conditions:
        raise ValueError(
            "a simulated study must have a formula without conditions, as persons are drawn and not their episodes, received "
            f"{first_few(covariates.conditions)}: leave them out"
        )
    problem = problem if covariates is None else covariates.compared(problem)
    if schedule is not None and demonstrations is not None:
        raise ValueError("a study must have demonstrations or a schedule, received both")
    varied = _check_request(covariates, term, effects, discounts, decisions, None if schedule is not None else people)
    chosen = numbers_of(discounts or {}, problem.names, "discounts", "expert")
    fitted = study if isinstance(study, Solution) else solve(problem, used, seed=seed)
    if fitted.status == Status.NOT_CONVERGED or not np.isfinite(fitted.discounts).all() or fitted.temperature is None:
        raise ValueError(f"the study itself must have discounts to recover, received a fit that is {fitted.status}")
    known = np.where(np.isnan(chosen), fitted.discounts, chosen)
    population = None if covariates is None else PopulationEvidence.of(fitted).population
    truth = Truth(fitted.personal_rewards, known, fitted.temperature, varied, covariates, population)
    if schedule is None:
        design = read_design(problem, demonstrations)
        sizes = _sizes(design, truth, effects, decisions, people)
    else:
        design = schedule.study(problem, used.known_reward, fitted.personal_rewards, known, fitted.temperature)
        if people and len(people) > 1:
            raise ValueError(f"a schedule is for one number of people, received {' and '.join(map(str, people))}")
        number = people[0] if people else problem.n_experts
        as_count(number, "people", least=1 if covariates is None else least_persons(len(covariates.terms)))
        sizes = [replace(size, people=number) for size in _sizes(design, truth, effects, decisions or [], [])]
    items = [(size, number) for size in sizes for number in range(studies)]
    outcomes: list[Outcome] = []
    for outcome in in_parallel(_Study(design, truth, used, seed), items, jobs):
        outcomes.append(outcome)
        progress(len(outcomes) / len(items), f"simulated study {len(outcomes)} of {len(items)}")
    if all(outcome.problem for outcome in outcomes):
        raise ValueError(f"no simulated study has an answer: {outcomes[0].problem}")
    results = [SizeResult.of(size, outcomes[i * studies : (i + 1) * studies]) for i, size in enumerate(sizes)]
    return Recovery(type(used).__name__, varied, tuple(results), seed)


def _check_request(
    covariates: Covariates | None,
    term: str | None,
    effects: Sequence[float] | None,
    discounts: Mapping[str, float] | None,
    decisions: Sequence[int] | None,
    people: Sequence[int] | None,
) -> str | None:
    """The term whose effect is varied; raises, before any work, for what cannot be and for what the solver cannot vary."""
    as_floats(effects or (), "effects")
    check_discounts(discounts)
    for name, numbers in (("decisions", decisions), ("people", people)):
        for number in numbers or ():
            as_count(number, name)
    others = [] if covariates is None else [name for name in covariates.terms if name != "Intercept"]
    if covariates is None and term is not None:
        raise ValueError("a term needs a Population, received MaximumLikelihood")
    if term is None and len(others) > 1:
        raise ValueError(f"term must say which effect is to be recovered, one of {', '.join(others)}; received none")
    if term is not None and term not in others:
        raise ValueError(f"term must be one of {', '.join(others) or 'none'}, received {term}")
    if effects and not others:
        raise ValueError("effects need a Population with a covariate, received none")
    if covariates is None:
        if people is not None:
            raise ValueError("other numbers of people need a Population to draw them from, received MaximumLikelihood")
        return None
    if discounts is not None:
        raise ValueError("chosen discounts need MaximumLikelihood: persons of a Population are drawn, received a Population")
    terms = len(covariates.terms)
    if people and min(people) < least_persons(terms):
        least = least_persons(terms)
        raise ValueError(f"people must be at least {least}, as the formula has {terms} terms, received {min(people)}")
    return term or (others[0] if others else None)


@dataclass(frozen=True, eq=False)
class StudyDesign:
    """Where each of the problem's experts decides.

    Attributes:
        problem: persons and tasks, with their decisions.
        starts: for each of the problem's experts the states in which episodes begin; None where only visited states are known.
        lengths: the most decisions of each of these episodes.
        decisions: the mean number of decisions of a person.
    """

    problem: Problem
    starts: tuple[Ints, ...] | None
    lengths: tuple[Ints, ...]
    decisions: float

    def draw_people(self, people: int, rng: np.random.Generator) -> Ints:
        """Which person of the study each of so many is made after: everyone equally often, the rest drawn."""
        k = self.problem.n_experts
        rest = np.sort(rng.permutation(k)[: people % k])
        return np.concatenate([np.tile(np.arange(k), people // k), rest]).astype(np.int64)

    def names_of(self, members: Ints) -> list[str]:
        """A name for each person made after a pattern: the first has the pattern's own, each further one a number too."""
        before = [int((members[:i] == k).sum()) for i, k in enumerate(members)]
        names = [self.problem.names[k] for k in members]
        return [f"{name} #{number + 1}" if number else name for name, number in zip(names, before, strict=True)]

    def of_people(self, members: Ints) -> tuple[Problem, list[int]]:
        """The problem of these persons with the decisions of their patterns, and the pattern of each of its experts."""
        owners = list(enumerate(self.problem.owner))
        pairs = zip(members, self.names_of(members), strict=True)
        made = [(place, name) for k, name in pairs for place, owner in owners if owner == k]
        experts = [replace(self.problem.experts[place], name=name) for place, name in made]
        return self.problem.with_experts(experts), [place for place, _ in made]

    def simulate(self, problem: Problem, patterns: Sequence[int], policies: Sequence[Floats], share: float, seed: int) -> Problem:
        """The problem with new decisions by these policies, `share` times as many as the patterns have."""
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        experts = [
            replace(expert, counts=self._decide(place, policy, share, stream), conditions=None)
            for expert, place, policy, stream in zip(problem.experts, patterns, policies, streams, strict=True)
        ]
        return problem.with_experts(experts)

    def _decide(self, place: int, policy: Floats, share: float, stream: np.random.SeedSequence) -> Floats:
        """Counts `(S,A)` of new decisions after one pattern."""
        first, second = stream.spawn(2)
        rng, expert = np.random.default_rng(first), self.problem.experts[place]
        if self.starts is None:
            visits = require_counts(expert).sum(axis=1)
            if share != 1.0:  # in states drawn in proportion to those of the study
                visits = rng.multinomial(max(1, round(share * visits.sum())), visits / visits.sum())
            return rng.multinomial(visits.astype(np.int64), policy / policy.sum(axis=1, keepdims=True)).astype(np.float64)
        own = self.starts[place]
        counts = np.zeros((expert.mdp.n_states, expert.mdp.n_actions))
        if not own.size:
            return counts
        wanted = max(1, round(share * own.size))  # all starts equally often, the rest drawn
        chosen = np.concatenate(
            [np.tile(np.arange(own.size), wanted // own.size), rng.permutation(own.size)[: wanted % own.size]]
        )
        columns = simulate_policy(expert.mdp, policy, chosen.size, self.lengths[place][chosen], second, own[chosen])
        np.add.at(counts, (columns[2], columns[3]), 1.0)
        return counts


def read_design(problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None) -> StudyDesign:
    """The design of a study, with the starts of its episodes where the tables are given, one for each task in order.

    The tables may hold further experts, whom the problem leaves out.
    """
    decisions = float(sum(require_counts(expert).sum() for expert in problem.experts)) / problem.n_experts
    if demonstrations is None:
        return StudyDesign(problem, None, (np.zeros(0, dtype=np.int64),) * len(problem.experts), decisions)
    starts: list[Ints] = []
    lengths: list[Ints] = []
    everybody = set(problem.names)
    for table in tables_of(problem, demonstrations, all_experts=False):
        members = [expert for expert, name in enumerate(table.experts) if name in everybody]
        if members:
            episodes = table.by_episode
            states = table.match(problem.experts[len(starts)].mdp)[0][episodes.first_state]
            for expert in members:
                own = episodes.expert == expert
                starts.append(states[own])
                lengths.append(np.full(starts[-1].size, int(episodes.length[own].max())))
    return StudyDesign(problem, tuple(starts), tuple(lengths), decisions)


@dataclass(frozen=True)
class Candidate:
    """What a person can be given to do: the episodes of a block, or one episode.

    Attributes:
        name: of the candidate.
        task: the place of its task among those of the study.
        starts: the states in which its episodes begin.
        lengths: the most decisions of each of these episodes.
        most: how often one person may be given it.
        cost: what it costs once; None where nothing was said.
    """

    name: str
    task: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    most: float = np.inf
    cost: float | None = None


@dataclass(frozen=True, eq=False)
class Schedule:
    """A planned study.

    Attributes:
        tasks: in which persons decide.
        candidates: what they can be given.
        times: how often each person is given each candidate `(J,)`.
        features: of tasks that a pilot's reward does not describe, `(A·S,d)` each; None where it does.
        unused: columns of the table it was read from that mean nothing here.
    """

    tasks: tuple[MDP, ...]
    candidates: tuple[Candidate, ...]
    times: Ints
    features: tuple[Any, ...] | None = None
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tasks or not self.candidates:
            raise ValueError("a study must have at least one task and one candidate, received none")
        if self.features is not None and len(self.features) != len(self.tasks):
            raise ValueError(f"features must be given for each of {len(self.tasks)} tasks, received {len(self.features)}")
        # Each task is an object of its own, also where the same one is given twice: decisions are counted by task.
        apart = [copy.copy(mdp) if any(mdp is other for other in self.tasks[:i]) else mdp for i, mdp in enumerate(self.tasks)]
        object.__setattr__(self, "tasks", tuple(apart))
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ValueError(f"candidates must have names of their own, received {twice} twice")
        for candidate in self.candidates:
            counted = candidate.most == np.inf or (candidate.most >= 1 and candidate.most % 1 == 0)
            paid = candidate.cost is None or 0 < candidate.cost < np.inf
            if not counted or not paid:
                what = f"cost {candidate.cost}" if counted else f"most {candidate.most}"
                raise ValueError(f"candidate {candidate.name} must have a positive cost and a whole limit, received {what}")
            wrong = next((length for length in candidate.lengths if length % 1 or not 1 <= length <= LONGEST), None)
            if wrong is not None:
                raise ValueError(
                    f"candidate {candidate.name} must have episodes of 1 to {LONGEST:,} decisions, received a length of {wrong}"
                )
            if not 0 <= candidate.task < len(self.tasks):
                raise ValueError(
                    f"the task of candidate {candidate.name} must be one of {len(self.tasks)}, received {candidate.task}"
                )
            ends = self.tasks[candidate.task].terminal
            wrong = next((s for s in candidate.starts if not 0 <= s < ends.size or ends[s]), None)
            if wrong is not None or len(candidate.starts) != len(candidate.lengths) or not candidate.starts:
                what = (
                    f"state {wrong}" if wrong is not None else f"{len(candidate.starts)} starts, {len(candidate.lengths)} lengths"
                )
                raise ValueError(
                    f"candidate {candidate.name} must begin in states that do not end, with a length each, received {what}"
                )

    @classmethod
    def read(cls, table: str | Path | Frame, tasks: MDP | Sequence[MDP], lengths: Sequence[int] | None = None) -> Schedule:
        """Read candidates from a table with one row per episode, a file or a data frame.

        The column `state` says where the episode begins. Others may be left out. Rows of the same `candidate` are one block.
        `task` is the number of the task, counted from 1; `length` the most decisions of the episode, by default that of its task
        in `lengths`, or 200;
        `episodes` how many like this the block has. `most` says how often a person may be given the candidate, `cost` what it
        costs, and `times` how often each person is given it: these are the same in all rows of a candidate.

        Raises:
            ValueError: for an unknown or terminal state, an unknown task, or numbers that cannot be.
        """
        mdps = (tasks,) if isinstance(tasks, MDP) else tuple(tasks)
        if isinstance(table, str | Path):
            rows = read_table(table, "candidates", ("candidate", "state", "task"))
        else:
            rows = Table(as_frame(table, "candidates"), "the table of candidates")
        rows.require("state")
        has, n = set(map(str, rows.frame.columns)), len(rows.frame)

        def numbers(column: str, default: float, least: float, whole: bool = True) -> Floats:
            if column not in has:
                return np.full(n, default)
            found = rows.whole_numbers(column).astype(np.float64) if whole else rows.numbers(column)
            wrong = found < least if whole else found <= least
            if wrong.any():
                row, bound = int(np.argmax(wrong)), f"at least {least:g}" if whole else f"above {least:g}"
                raise ValueError(f"{rows.at(row)}: column {column} must be {bound}, received {found[row]:g}")
            return found

        task = numbers("task", 1, 1).astype(np.int64) - 1
        if (task >= len(mdps)).any():
            row = int(np.argmax(task >= len(mdps)))
            raise ValueError(f"{rows.at(row)}: column task must be from 1 to {len(mdps)}, received {task[row] + 1}")
        length = numbers("length", 0, 1).astype(np.int64) if "length" in has else np.array(lengths or [LENGTH] * len(mdps))[task]
        episodes = numbers("episodes", 1, 1).astype(np.int64)
        for name, given in (("length", length), ("episodes", episodes)):
            if (given > LONGEST).any():
                row = int(np.argmax(given > LONGEST))
                raise ValueError(f"{rows.at(row)}: column {name} must be at most {LONGEST:,}, received {given[row]:,}")
        own = {
            "most": numbers("most", np.inf, 1),
            "cost": numbers("cost", 1.0, 0, whole=False),
            "times": numbers("times", 0, 0),
        }
        codes, labels = rows.labels("state")
        column = "candidate" if "candidate" in has else "state"
        names = [rows.labels(column)[1][code] for code in rows.labels(column)[0]]
        members: dict[tuple[str, int], list[int]] = {}
        for row, name in enumerate(names):
            members.setdefault((name, int(task[row])), []).append(row)
        several = {name for name, _ in members if sum(name == other for other, _ in members) > 1}
        candidates, times = [], []
        for (name, place), block in members.items():
            mdp = mdps[place]
            if column == "state" and len(block) > 1:
                raise ValueError(
                    f"{rows.at(block[1])}: without a column candidate a state must stand in one row for each task, received "
                    f"{name} twice: give candidates names, or say in a column episodes how many episodes a block has"
                )
            wanted = [labels[codes[row]] for row in block]
            states = positions(wanted, mdp.state_names, "state", lambda i, block=block: rows.at(block[i]))  # type: ignore[misc]
            if mdp.terminal[states].any():
                row = int(np.argmax(mdp.terminal[states]))
                raise ValueError(f"{rows.at(block[row])}: an episode must not begin where it ends, received {wanted[row]}")
            for kind, values in own.items():
                if len({*values[block].tolist()}) > 1:
                    raise ValueError(f"{rows.at(block[-1])}: column {kind} must be the same in all rows of {name}")
            repeated = np.repeat(block, episodes[block])
            starts = np.repeat(states, episodes[block])
            shown = f"{name} in task {place + 1}" if name in several else name
            candidates.append(
                Candidate(
                    shown,
                    place,
                    tuple(starts.tolist()),
                    tuple(length[repeated].tolist()),
                    float(own["most"][block[0]]),
                    float(own["cost"][block[0]]) if "cost" in has else None,
                )
            )
            times.append(int(own["times"][block[0]]))
        used = {"candidate", "state", "task", "length", "episodes", "most", "cost", "times"}
        return cls(mdps, tuple(candidates), np.array(times, dtype=np.int64), unused=tuple(sorted(has - used)))

    @classmethod
    def of_starts(cls, tasks: Sequence[MDP], lengths: Sequence[int] | None = None) -> Schedule:
        """One episode from each state in which episodes may begin, or from each that has a choice, where they begin in one; with
        the most decisions of an episode of each task."""
        candidates = []
        for place, mdp in enumerate(tasks):
            starts = np.flatnonzero((mdp.initial > 0) & ~mdp.terminal)
            if starts.size < 2:
                starts = np.flatnonzero(~mdp.terminal & (mdp.available.sum(axis=1) > 1))
            for state in starts.tolist():
                name = mdp.state_names[state] if len(tasks) == 1 else f"{mdp.state_names[state]} in task {place + 1}"
                candidates.append(Candidate(name, place, (state,), ((lengths or [LENGTH] * len(tasks))[place],)))
        return cls(tuple(tasks), tuple(candidates), np.zeros(len(candidates), dtype=np.int64))

    def to_frame(self) -> pd.DataFrame:
        """One row per kind of episode: what `read` reads."""
        rows, unlimited = [], all(np.isinf(candidate.most) for candidate in self.candidates)
        for candidate, times in zip(self.candidates, self.times.tolist(), strict=True):
            names = self.tasks[candidate.task].state_names
            kinds: dict[tuple[int, int], int] = {}
            for kind in zip(candidate.starts, candidate.lengths, strict=True):
                kinds[kind] = kinds.get(kind, 0) + 1
            for (state, length), episodes in kinds.items():
                row: dict[str, Any] = {"candidate": candidate.name, "task": candidate.task + 1, "state": names[state]}
                row |= {"length": length, "episodes": episodes, "times": times}
                row |= {} if unlimited else {"most": int(min(candidate.most, MOST_TIMES))}
                row |= {} if candidate.cost is None else {"cost": candidate.cost}
                rows.append(row)
        return pd.DataFrame(rows)

    def visits(self, task: int, policy: Floats) -> Floats:
        """How often a person with this policy `(S,A)` is expected to decide in each state of a task if given each candidate once.

        `(J,S)`; 0 for candidates of other tasks.
        """
        mdp, found = self.tasks[task], np.zeros((len(self.candidates), self.tasks[task].n_states))
        under = sp.csr_array(mdp.under(policy).T)
        begun: dict[int, Floats] = {}
        for j, candidate in enumerate(self.candidates):
            if candidate.task == task:
                for state, length in zip(candidate.starts, candidate.lengths, strict=True):
                    begun.setdefault(length, np.zeros(found.shape))[j, state] += 1
        for length, here in begun.items():
            for _ in range(length):
                found += here
                here = np.where(mdp.terminal, 0.0, (under @ here.T).T)
                if here.sum() < 1e-12:
                    break
        return found

    def study(self, problem: Problem, known: Any, rewards: Floats, discounts: Floats, temperatures: Floats) -> StudyDesign:
        """The planned study of a problem's persons, who have these parameters, each given the candidates as often as it says.

        `known` and `rewards` are as in `policies_of`.
        """
        everywhere = in_tasks(problem, self.tasks, self.features, known)
        starts, lengths = [], []
        for task in range(len(self.tasks)):
            times = [(c, n) for c, n in zip(self.candidates, self.times.tolist(), strict=True) if c.task == task]
            starts.append(np.array([s for c, n in times for s in c.starts * n], dtype=np.int64))
            lengths.append(np.array([length for c, n in times for length in c.lengths * n], dtype=np.int64))
        if not sum(own.size for own in starts):
            raise ValueError("a schedule must have at least one candidate that is given once, received none")
        policies = policies_of(everywhere, known, rewards, discounts, temperatures)
        number = {id(mdp): task for task, mdp in enumerate(self.tasks)}
        places = [number[id(expert.mdp)] for expert in everywhere.experts]
        decided = [float(self.times @ self.visits(t, policy).sum(axis=1)) for t, policy in zip(places, policies, strict=True)]
        own = [tuple(array[place] for place in places) for array in (starts, lengths)]
        return StudyDesign(everywhere, own[0], own[1], sum(decided) / problem.n_experts)


def in_tasks(problem: Problem, tasks: Sequence[MDP], features: Sequence[Any] | None = None, known: Any = None) -> Problem:
    """The problem's persons in each of these tasks, with one decision of every kind: what planned studies begin with.

    A reward of states goes by their names. Features are those of the problem's task with the same states and actions, unless
    they are given, `(A·S,d)`, or `(S,d)` on arrival, for each task. A `known` reward goes by the order of states and actions.

    Raises:
        ValueError: where the reward says nothing of a task.
    """
    experts, own = [], list({id(expert.mdp): expert for expert in problem.experts}.values())
    for place, mdp in enumerate(tasks):
        alike = [e for e in own if e.mdp.state_names == mdp.state_names and e.mdp.action_names == mdp.action_names]
        same = [e for e in alike if e.mdp.stacked is mdp.stacked] or alike
        if len(same) > 1:  # tasks of the problem that differ in features go by their order
            same = own[place : place + 1] if len(own) == len(tasks) and own[place] in same else same[:1]
        like = same[0] if same else None
        if known is not None and like is None and (problem.tabular or not isinstance(known, Mapping)):
            raise ValueError(
                f"task {place + 1} must list states and actions as the guess does, whose reward is known by their order"
            )
        arrival = matrix = None
        if features is not None:
            matrix = sp.csr_array(features[place])
            if matrix.shape == (mdp.n_states, problem.n_parameters):
                arrival, matrix = matrix, sp.csr_array(mdp.stacked @ matrix)
            if matrix.shape != (mdp.stacked.shape[0], problem.n_parameters):
                rows, d = mdp.stacked.shape[0], problem.n_parameters
                raise ValueError(
                    f"features of task {place + 1} must have shape ({rows}, {d}), or ({mdp.n_states}, {d}) on arrival, "
                    f"received {matrix.shape}"
                )
        elif problem.tabular and problem.parameter_names != mdp.state_names:
            column = {name: i for i, name in enumerate(problem.parameter_names)}
            unknown = next((name for name in mdp.state_names if name not in column), None)
            if unknown is not None:
                raise ValueError(
                    f"the guess must have a reward for every state of task {place + 1}, received none for {unknown!r}: "
                    "give features, or a task with the states of the guess"
                )
            where = [column[name] for name in mdp.state_names]
            arrival = sp.csr_array((np.ones(len(where)), (np.arange(len(where)), where)), (len(where), len(column)))
            matrix = sp.csr_array(mdp.stacked @ arrival)
        elif not problem.tabular and like is None:
            raise ValueError(
                f"task {place + 1} must have the states and actions of the guess's own, or features must be given for it, "
                "received neither"
            )
        elif like is not None and not problem.tabular:
            arrival = like.arrival
            matrix = like.features if arrival is None else sp.csr_array(mdp.stacked @ arrival)
        counts = read_only(np.where(mdp.live, 1.0, 0.0))
        experts += [
            Expert(name, mdp, "demonstrations", counts=counts, features=matrix, arrival=arrival) for name in problem.names
        ]
    if len({expert.features is None for expert in experts}) > 1:  # some tasks have the guess's states in another order
        experts = [
            replace(expert, features=expert.mdp.stacked, arrival=sp.eye_array(expert.mdp.n_states, format="csr"))
            if expert.features is None
            else expert
            for expert in experts
        ]
    return problem.with_experts(experts)


@dataclass(frozen=True, eq=False)
class Truth:
    """Who is simulated: persons with given discounts and temperatures `(K,)` or, with covariates, new persons of a population.

    Everybody's rewards `(K,d)` are those of the study: the shared one, and deviations from it where there are any.
    """

    rewards: Floats
    discounts: Floats
    temperatures: Floats
    term: str | None = None
    covariates: Covariates | None = None
    population: PopulationFindings | None = None

    @property
    def effect(self) -> float:
        """The fitted effect of the term on logit γ."""
        return np.nan if self.population is None or self.term is None else self.population.discount[self.term]["estimate"]

    def draw(self, members: Ints, effect: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Discounts and temperatures of persons made after these, with this effect of the term."""
        if self.covariates is None or self.population is None:
            return self.discounts[members], self.temperatures[members]
        effects, spread = self.population.effects, self.population.spread
        if self.term is not None:
            effects[self.covariates.terms.index(self.term), 0] = effect
        rho = spread["correlation"]["estimate"]
        widths = np.array([spread[kind]["estimate"] for kind in ("discount", "temperature")])
        root = widths[:, None] * np.array([[1.0, 0.0], [rho, np.sqrt(max(0.0, 1 - rho**2))]])
        eta = self.covariates.matrix[members] @ effects + rng.normal(size=(members.size, 2)) @ root.T
        return self.population.largest_discount * expit(eta[:, 0]), np.exp(eta[:, 1])


@dataclass(frozen=True)
class Size:
    """The size of a study: how many people, mean decisions of each, and the effect on logit γ, NaN where there is none."""

    people: int
    decisions: float
    effect: float


def _sizes(
    design: StudyDesign,
    truth: Truth,
    effects: Sequence[float] | None,
    decisions: Sequence[int] | None,
    people: Sequence[int] | None,
) -> list[Size]:
    """The study as designed first, then one change at a time."""
    k, own = design.problem.n_experts, design.decisions
    tried = effects or ([np.nan] if truth.term is None else [0.0, truth.effect])
    if decisions is None:
        decisions = [round(0.5 * own), round(2.0 * own)]
    if people is None:
        people = [] if truth.covariates is None else [round(0.5 * k), 2 * k]
    main = Size(k, own, float(tried[-1]))
    found = [main, *(replace(main, effect=float(effect)) for effect in tried[:-1])]
    found += [replace(main, decisions=float(number)) for number in decisions]
    found += [replace(main, people=int(number)) for number in people]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One simulated study.

    Attributes:
        truth, estimates: true and estimated discounts `(n,)`.
        intervals: of the discounts `(n,2)`.
        effect: the estimate of the effect, both ends of its interval, and its p-value.
        problem: why there is no answer; empty where there is one.
    """

    truth: Floats
    estimates: Floats
    intervals: Floats
    effect: Sequence[float] = (np.nan, np.nan, np.nan, np.nan)
    problem: str = ""

    @classmethod
    def of(cls, found: Solution, truth: Floats, term: str | None) -> Outcome:
        """What a fitted study says."""
        if found.status == Status.NOT_CONVERGED:
            return cls.without_answer(truth, "the fit did not converge")
        identified = found.evidence.get("identified", found.status != Status.NOT_IDENTIFIED)
        outcome = cls(truth, np.where(identified, found.discounts, np.nan), found.confidence_intervals(0.95))
        if term is None:
            return outcome
        effect = PopulationEvidence.of(found).population.discount[term]
        return replace(outcome, effect=[effect["estimate"], *effect["interval"], effect["p"]])

    @classmethod
    def without_answer(cls, truth: Floats, problem: str) -> Outcome:
        """A study whose fit has no answer."""
        return cls(truth, np.full(truth.size, np.nan), np.full((truth.size, 2), np.nan), problem=problem)


@dataclass(frozen=True, eq=False)
class _Study:
    """One simulated study after another: an item is a size and the study's number."""

    design: StudyDesign
    truth: Truth
    solver: MaximumLikelihood | Population
    seed: int

    def __call__(self, item: tuple[Size, int]) -> Outcome:
        size, number = item
        seeds = np.random.SeedSequence([self.seed, number]).generate_state(3)
        members = self.design.draw_people(size.people, np.random.default_rng(seeds[0]))
        problem, patterns = self.design.of_people(members)
        discounts, temperatures = self.truth.draw(members, size.effect, np.random.default_rng(seeds[1]))
        policies = policies_of(problem, self.solver.known_reward, self.truth.rewards[members], discounts, temperatures)
        share = size.decisions / self.design.decisions
        simulated = self.design.simulate(problem, patterns, policies, share, int(seeds[2]))
        try:
            found = solve(simulated, self._solver(members), seed=number)
        except ValueError as error:
            return Outcome.without_answer(discounts, str(error))
        return Outcome.of(found, discounts, self.truth.term)

    def _solver(self, members: Ints) -> MaximumLikelihood | Population:
        """The solver, with covariates for the persons of this study."""
        if not isinstance(self.solver, Population) or self.solver.persons is None:
            return self.solver
        labels = [label(value, "column expert of persons") for value in self.solver.persons["expert"]]
        rows = self.solver.persons.set_axis(labels, axis=0).loc[[self.design.problem.names[k] for k in members]]
        frame = rows.assign(expert=self.design.names_of(members)).reset_index(drop=True)
        return replace(self.solver, persons=frame, missing="fail")


def policies_of(problem: Problem, known: Any, rewards: Floats, discounts: Floats, temperatures: Floats) -> list[Floats]:
    """The policy `(S,A)` of each of the problem's experts and tasks under each person's reward and parameters.

    `known` is the known part of the reward, as in `MaximumLikelihood`, `rewards` `(K,d)` the parameters of the rest.
    """
    paid = with_known_reward(problem, known)[0]
    model = Likelihood(paid, Settings(temperatures=np.full(problem.n_experts, np.nan)))
    x = np.concatenate([rewards[0], discounts, np.log(temperatures)])
    plans = model.plans(model.in_tasks(x), x, rewards if np.ptp(rewards, axis=0).any() else rewards[0], None)
    if plans is None:
        raise ValueError("the values of the task must be finite under the parameters to be recovered, received infinite ones")
    return Point(model, x, plans, np.nan, np.nan).policies()


@dataclass(frozen=True, eq=False)
class SizeResult:
    """What studies of one size showed.

    Attributes:
        people, decisions, effect: the size.
        studies: how many were simulated.
        unanswered: how many of them have no answer, and the first reason.
        truth, estimates: discounts `(studies,n)`; estimates are NaN where a discount is not identified, and in a study without an
            answer.
        bias, error: mean and root mean square of the estimates' errors.
        correlation: of truth and estimate within a study, on average; NaN where persons do not differ.
        coverage, coverage_error: how often a 95 % interval contains the true discount, and the standard error of that share
            from its spread between studies.
        without_interval: the share of discounts for which there was no interval.
        effect_bias, effect_error: mean and standard deviation of the effect's estimates, less the truth.
        effect_coverage: how often its 95 % interval contains the true effect.
        power: the share of studies with p < 0.05; without an effect, the size of the test.
    """

    people: int
    decisions: float
    effect: float
    studies: int
    unanswered: int
    reason: str
    truth: Floats
    estimates: Floats
    bias: float
    error: float
    correlation: float
    coverage: float
    coverage_error: float
    without_interval: float
    effect_bias: float
    effect_error: float
    effect_coverage: float
    power: float

    @classmethod
    def of(cls, size: Size, outcomes: Sequence[Outcome]) -> SizeResult:
        """The summary of some studies of one size."""
        truth, found = np.array([o.truth for o in outcomes]), np.array([o.estimates for o in outcomes])
        ends = np.array([o.intervals for o in outcomes])
        known = np.isfinite(ends).all(axis=2)
        inside = np.where(known, (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1]), np.nan)
        shares = _finite(np.array([_mean(study) for study in inside]))
        effects, low, high, p = np.array([o.effect for o in outcomes]).T
        held = np.where(np.isfinite(low + high), (low <= size.effect) & (size.effect <= high), np.nan)
        reasons = [o.problem for o in outcomes if o.problem]
        return cls(
            **asdict(size),
            studies=len(outcomes),
            unanswered=len(reasons),
            reason=reasons[0] if reasons else "",
            truth=truth,
            estimates=found,
            bias=_mean(found - truth),
            error=float(np.sqrt(_mean((found - truth) ** 2))),
            correlation=_mean(np.array([_correlation(a, b) for a, b in zip(truth, found, strict=True)])),
            coverage=_mean(inside),
            coverage_error=float(shares.std(ddof=1) / np.sqrt(shares.size)) if shares.size > 1 else np.nan,
            without_interval=float(1 - known.mean()),
            effect_bias=_mean(effects - size.effect),
            effect_error=float(np.std(_finite(effects))) if _finite(effects).size else np.nan,
            effect_coverage=_mean(held),
            power=_mean(np.where(np.isfinite(p), p < 0.05, np.nan)),
        )

    def share_error(self, share: float) -> float:
        """The standard error of a share of studies, with one more on either side: it is not 0 where all studies agree."""
        answered = self.studies - self.unanswered
        likely = (share * answered + 1) / (answered + 2)
        return float(np.sqrt(likely * (1 - likely) / (answered + 2)))

    def numbers(self) -> dict[str, Any]:
        """The summary without the estimates of each study."""
        return {name: value for name, value in asdict(self).items() if name not in ("truth", "estimates")}


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _mean(values: Floats) -> float:
    known = _finite(values)
    return float(known.mean()) if known.size else np.nan


def _correlation(truth: Floats, found: Floats) -> float:
    known = np.isfinite(found)
    if known.sum() < 3 or not truth[known].std() > 0 or not found[known].std() > 0:
        return np.nan
    return float(np.corrcoef(truth[known], found[known])[0, 1])


@dataclass(frozen=True, eq=False)
class Recovery(Result):
    """What simulated studies showed; `sizes[0]` is the study as designed."""

    solver: str
    term: str | None
    sizes: tuple[SizeResult, ...]
    seed: int

    def sentences(self) -> str:
        """The result in a few sentences."""
        first = self.sizes[0]
        people = "1 person" if first.people == 1 else f"{first.people} people"
        size = f"{first.studies} studies of {people} with {first.decisions:.0f} decisions each"
        if np.isnan(first.error):
            return f"{size} were simulated, and none of them identified a discount."
        words = [
            f"{size} were simulated: discounts are recovered to ±{first.error:.2f} (root mean square), "
            f"and 95 % intervals contain the truth in {100 * first.coverage:.0f} % of cases."
        ]
        if first.without_interval:
            words.append(f"For {100 * first.without_interval:.0f} % of the discounts there is no interval.")
        if np.isfinite(first.correlation):
            words.append(f"Within a study true and estimated discounts correlate by {first.correlation:.2f} on average.")
        if self.term is not None and first.effect:
            power = f"{100 * first.power:.0f} ± {100 * first.share_error(first.power):.0f} %"
            words.append(
                f"An effect of {first.effect:.2f} of {self.term} on the logit of the discount is seen in {power} of studies."
            )
        unanswered = sum(size.unanswered for size in self.sizes)
        if unanswered:
            reason = next(size.reason for size in self.sizes if size.unanswered)
            words.append(f"{unanswered} studies have no answer; the first because {reason}.")
        return " ".join(words)

    def to_frame(self) -> pd.DataFrame:
        """One row per size, the study as designed first."""
        return pd.DataFrame([size.numbers() for size in self.sizes])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts; what is not known is NaN."""
        sizes = [{**size.numbers(), "truth": size.truth.tolist(), "estimates": size.estimates.tolist()} for size in self.sizes]
        said = {"summary": self.sentences(), "solver": self.solver, "term": self.term, "level": 0.95, "seed": self.seed}
        return {**said, "sizes": sizes, "version": package_version()}

    _content = to_dict

    @classmethod
    def from_json(cls, path: str | Path) -> Recovery:
        """Read what `to_json` or `multihorizon recover` has written.

        Raises:
            ValueError: for a file that is something else.
        """
        content = read_json(path, "a recover.json of multihorizon recover")
        try:
            sizes = []
            for size in content["sizes"]:
                numbers: dict[str, Any] = {f.name: np.nan if size[f.name] is None else size[f.name] for f in fields(SizeResult)}
                arrays = {name: np.array(numbers[name], dtype=np.float64) for name in ("truth", "estimates")}
                sizes.append(SizeResult(**{**numbers, **arrays}))
            return cls(content["solver"], content["term"], tuple(sizes), content["seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a recover.json of multihorizon recover: it holds something else") from error

    def _facts(self) -> dict[str, Any]:
        return {"solver": self.solver, **({} if self.term is None else {"effect of": self.term})}

    def _height(self) -> float:
        return 3.3

    def _draw(self, ax: Any) -> None:
        """Estimated against true discounts of the study as designed."""
        ax.plot([0, 1], [0, 1], color="0.6")
        ax.plot(self.sizes[0].truth.ravel(), self.sizes[0].estimates.ravel(), "o", color=COLOURS[0], alpha=0.5)
        ax.set(xlabel="true discount", ylabel="estimated discount")
