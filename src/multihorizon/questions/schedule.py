"""A study as it was run or is planned, and what a pilot says about the people of a study to come.

*A study as it was run* is read from its tables (`tables_of`), and a person of it is a pattern that can be used again
(`StudyDesign`). *A planned one* is a `Schedule`: how often each person is given each of some *candidates*, and everybody is given
the same. A candidate is what a person can be given to do: one episode, or a block of episodes, each with the state in which it
begins and the most decisions it may have.

*Kinds of people.* After `MaximumLikelihood` each person of the pilot is a kind, and a study of P people has P/K of each. After
`Population` the kinds are the nodes of a Gauss–Hermite rule around what the formula predicts for each pattern of covariates.

*Parameters.* z has the targets first. After `MaximumLikelihood` these are the K discounts. Then come rewards, temperatures,
deviations from the shared reward, and all that further people of each kind have of their own. After `Population` the target is
an effect on logit γ. Then come rewards, the other effects, and each kind's own logit γ and log λ. M₀ is what is known beforehand.

*Draws.* A fit leaves parameters open. Draws around it are normal in rewards, logit γ and log λ (or in the effects), with the
covariance of the fit and a weak prior: rewards of the size of those found, logits within about 1, log-temperatures within about a
half. They come in pairs of opposite sign along the principal directions of the covariance, each turned so that the cubes of its
entries have a positive sum. So they do not depend on how experts and states are listed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import expit

from multihorizon.checks import Floats, Frame, Ints, as_count, as_frame, first_few, positions, read_only
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import Likelihood, Point
from multihorizon.choice.plans import SOFT, Choosing
from multihorizon.choice.settings import Settings, with_known_reward
from multihorizon.data.demonstrations import Demonstrations, simulate_policy
from multihorizon.data.reading import InputTable, read_table
from multihorizon.estimate import Draws, NoUncertaintyError
from multihorizon.likelihood.estimates import LikelihoodEvidence, paired_normal, principal_root
from multihorizon.likelihood.maximum_likelihood import joint
from multihorizon.mdp import MDP
from multihorizon.numerics.distributions import normal_nodes
from multihorizon.numerics.spectrum import spectrum
from multihorizon.parallel import Run
from multihorizon.population.covariates import Covariates, least_persons
from multihorizon.population.findings import PopulationEvidence
from multihorizon.population.solver import Population, remembered
from multihorizon.problem import Expert, Problem, cells_of_episodes, require_counts
from multihorizon.solution import Solution, Status
from multihorizon.words import in_words

#: What is said of a study of conditions.
WITHIN = "Each person is given the candidates under every condition of the pilot, evenly, and is compared with themselves."
#: Nobody is given anything more often, or asked for more episodes or decisions, than this.
MOST_TIMES = 1_000_000


def tables_of(
    problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None = None, all_experts: bool = True
) -> list[Demonstrations]:
    """List the tables that a problem was made of, one for each task in the order they were joined.

    By default they are those that the problem remembers. `all_experts` says that the problem must have all experts of the
    tables, and not only some.

    Raises:
        ValueError: for tables with other experts or other decisions than the problem's, and where none are remembered.
    """
    if demonstrations is None and not problem.tables:
        raise ValueError("this needs the tables the problem was made of, and it remembers none: give them as demonstrations")
    given = problem.tables if demonstrations is None else demonstrations
    tables = [given] if isinstance(given, Demonstrations) else list(given)
    everybody = set(problem.names)
    kept = [np.array([all_experts or name in everybody for name in table.experts]) for table in tables]
    counts: list[Floats] = []
    for table, own_experts in zip(tables, kept, strict=True):
        if len(counts) < len(problem.experts) and own_experts.any():
            counts += list(table.counts(problem.experts[len(counts)].mdp)[own_experts])
    required = [require_counts(expert) for expert in problem.experts]
    if sum(map(np.sum, kept)) != len(required) or not all(map(np.array_equal, counts, required)):
        raise ValueError("demonstrations must be the tables the problem was made of, one for each task in order")
    return tables


@dataclass(frozen=True, eq=False)
class StudyDesign:
    """Where each of the problem's experts decides.

    Attributes:
        problem: people and tasks, with their decisions.
        starts: for each of the problem's experts the states in which episodes begin; None where only visited states are known.
        lengths: the most decisions of each of these episodes.
        decisions: the mean number of decisions of a person.
        persons: their names.
        owner: whose each of the problem's experts is, where these are cells: people under one combination of conditions.
        conditions: of each cell; None where people are the cells.
    """

    problem: Problem
    starts: tuple[Ints, ...] | None
    lengths: tuple[Ints, ...]
    decisions: float
    persons: tuple[str, ...]
    owner: Ints
    conditions: pd.DataFrame | None = None

    def draw_people(self, people: int, rng: np.random.Generator) -> Ints:
        """Return which person of the study each of so many is made after: everyone equally often, the rest drawn."""
        k = len(self.persons)
        rest = np.sort(rng.permutation(k)[: people % k])
        return np.concatenate([np.tile(np.arange(k), people // k), rest]).astype(np.int64)

    def names_of(self, members: Ints) -> list[str]:
        """Return a name for each person made after a pattern: the first has the pattern's own, each further one a number too."""
        return _numbered(self.persons, members)

    def cells_of(self, members: Ints) -> tuple[Ints, Ints]:
        """Return the cells of these people, one person after the other, and the place of the person whose each is."""
        if self.conditions is None:
            return members, np.arange(members.size)
        cells = [np.flatnonzero(self.owner == k) for k in members]
        return np.concatenate(cells), np.repeat(np.arange(members.size), [one.size for one in cells])

    def of_cells(self, cells: Ints) -> tuple[Problem, list[int]]:
        """Return the problem of these cells with the decisions of their patterns, and the pattern of each of its experts."""
        owners = list(enumerate(self.problem.owner))
        pairs = zip(cells, _numbered(self.problem.names, cells), strict=True)
        made = [(place, name) for k, name in pairs for place, owner in owners if owner == k]
        experts = [replace(self.problem.experts[place], name=name) for place, name in made]
        return self.problem.with_experts(experts), [place for place, _ in made]

    def together(self, problem: Problem, members: Ints, cells: Ints, whose: Ints) -> Problem:
        """Return the problem of these people, of whose cells this is the problem."""
        if self.conditions is None:
            return problem
        conditions = self.conditions.iloc[cells].reset_index(drop=True)
        tasks = problem.cells.tasks
        return Problem.of_tasks(tuple(self.names_of(members)), problem.parameter_names, tasks, whose, conditions)

    def simulate(self, problem: Problem, patterns: Sequence[int], policies: Sequence[Floats], share: float, seed: int) -> Problem:
        """Return the problem with new decisions by these policies, `share` times as many as the patterns have."""
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        experts = [
            replace(expert, counts=self._decide(place, policy, share, stream), conditions=None)
            for expert, place, policy, stream in zip(problem.experts, patterns, policies, streams, strict=True)
        ]
        return problem.with_experts(experts)

    def _decide(self, place: int, policy: Floats, share: float, stream: np.random.SeedSequence) -> Floats:
        """Return counts `(S,A)` of new decisions after one pattern."""
        first, second = stream.spawn(2)
        rng = np.random.default_rng(first)
        expert = self.problem.experts[place]
        if self.starts is None:
            visits = require_counts(expert).sum(axis=1)
            if share != 1.0:  # in states drawn in proportion to those of the study
                visits = rng.multinomial(max(1, round(share * visits.sum())), visits / visits.sum())
            return rng.multinomial(visits.astype(np.int64), policy / policy.sum(axis=1, keepdims=True)).astype(np.float64)
        starts = self.starts[place]
        counts = np.zeros((expert.mdp.n_states, expert.mdp.n_actions))
        if not starts.size:
            return counts
        wanted = max(1, round(share * starts.size))  # all starts equally often, the rest drawn
        chosen = np.concatenate(
            [np.tile(np.arange(starts.size), wanted // starts.size), rng.permutation(starts.size)[: wanted % starts.size]]
        )
        columns = simulate_policy(
            expert.world or expert.mdp, policy, chosen.size, self.lengths[place][chosen], second, starts[chosen]
        )
        np.add.at(counts, (columns[2], columns[3]), 1.0)
        return counts


def _numbered(names: Sequence[str], members: Ints) -> list[str]:
    """Return the names of members; of one that occurs again, with a number."""
    before = [int((members[:i] == k).sum()) for i, k in enumerate(members)]
    return [f"{names[k]} #{number + 1}" if number else names[k] for k, number in zip(members, before, strict=True)]


def design_under(
    problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None, covariates: Covariates
) -> StudyDesign:
    """Return the design of a study whose people were seen under conditions: each person under each combination is a cell.

    Episodes begin where they did where there is one table of decisions; else decisions are drawn in the states of each cell.
    """
    gathered = covariates.gathered(problem)
    cells = gathered.cells
    assert cells.owner is not None
    assert cells.conditions is not None
    names = tuple(f"{i}" for i in range(len(cells.owner)))
    apart = Problem.of_tasks(names, gathered.parameter_names, cells.tasks)
    decisions = float(sum(task.counts.sum() for task in cells.tasks)) / gathered.n_experts
    starts, lengths = None, (np.zeros(0, dtype=np.int64),) * len(apart.experts)
    tables = [demonstrations] if isinstance(demonstrations, Demonstrations) else list(demonstrations or ())
    if len(tables) == 1 and tables[0].conditions is not None and len(apart.experts) == len(names):
        episodes = tables[0].by_episode
        cell = covariates.cell[cells_of_episodes(tables[0], [*map(str, tables[0].conditions)])]
        states = tables[0].match(apart.experts[0].mdp)[0][episodes.first_state]
        starts = tuple(states[cell == i] for i in range(len(names)))
        longest = [episodes.length[cell == i].max(initial=1) for i in range(len(names))]
        lengths = tuple(np.full(one.size, int(most)) for one, most in zip(starts, longest, strict=True))
    return StudyDesign(apart, starts, lengths, decisions, gathered.names, cells.owner, cells.conditions)


def read_design(problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None) -> StudyDesign:
    """Return the design of a study, with the starts of its episodes where the tables are given, one for each task in order.

    The tables may hold further experts, whom the problem leaves out.
    """
    decisions = float(sum(require_counts(expert).sum() for expert in problem.experts)) / problem.n_experts
    if demonstrations is None:
        nothing = (np.zeros(0, dtype=np.int64),) * len(problem.experts)
        return StudyDesign(problem, None, nothing, decisions, problem.names, np.arange(problem.n_experts))
    starts: list[Ints] = []
    lengths: list[Ints] = []
    everybody = set(problem.names)
    for table in tables_of(problem, demonstrations, all_experts=False):
        members = [expert for expert, name in enumerate(table.experts) if name in everybody]
        if members:
            episodes = table.by_episode
            states = table.match(problem.experts[len(starts)].mdp)[0][episodes.first_state]
            for expert in members:
                of_expert = episodes.expert == expert
                starts.append(states[of_expert])
                lengths.append(np.full(starts[-1].size, int(episodes.length[of_expert].max())))
    return StudyDesign(problem, tuple(starts), tuple(lengths), decisions, problem.names, np.arange(problem.n_experts))


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
        tasks: in which people decide.
        candidates: what they can be given.
        times: how often each person is given each candidate `(J,)`.
        features: of tasks that a pilot's reward does not describe, `(A·S,d)` each; None where it does.
        unused: columns of the table it was read from that mean nothing here.
    """

    #: The most decisions of an episode and the most episodes of a block, and the most decisions where nothing is said of them.
    longest: ClassVar = 10_000
    usual_length: ClassVar = 200

    tasks: tuple[MDP, ...]
    candidates: tuple[Candidate, ...]
    times: Ints
    features: tuple[Any, ...] | None = None
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.tasks or not self.candidates:
            raise ValueError("a study must have at least one task and one candidate, got none")
        if self.features is not None and len(self.features) != len(self.tasks):
            raise ValueError(f"features must be given for each of {len(self.tasks)} tasks, got {len(self.features)}")
        # Each task is an object of its own, also where the same one is given twice: decisions are counted by task.
        apart = [copy.copy(mdp) if any(mdp is other for other in self.tasks[:i]) else mdp for i, mdp in enumerate(self.tasks)]
        object.__setattr__(self, "tasks", tuple(apart))
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ValueError(f"candidates must have names of their own, got {twice} twice")
        for candidate in self.candidates:
            counted = candidate.most == np.inf or (candidate.most >= 1 and candidate.most % 1 == 0)
            paid = candidate.cost is None or 0 < candidate.cost < np.inf
            if not counted or not paid:
                what = f"cost {candidate.cost}" if counted else f"most {candidate.most}"
                raise ValueError(f"candidate {candidate.name} must have a positive cost and a whole limit, got {what}")
            wrong = next((length for length in candidate.lengths if length % 1 or not 1 <= length <= self.longest), None)
            if wrong is not None:
                must = f"must have episodes of 1 to {self.longest:,} decisions"
                raise ValueError(f"candidate {candidate.name} {must}, got a length of {wrong}")
            if not 0 <= candidate.task < len(self.tasks):
                raise ValueError(f"the task of candidate {candidate.name} must be one of {len(self.tasks)}, got {candidate.task}")
            ends = self.tasks[candidate.task].terminal
            wrong = next((s for s in candidate.starts if not 0 <= s < ends.size or ends[s]), None)
            if wrong is not None or len(candidate.starts) != len(candidate.lengths) or not candidate.starts:
                what = (
                    f"state {wrong}" if wrong is not None else f"{len(candidate.starts)} starts, {len(candidate.lengths)} lengths"
                )
                raise ValueError(
                    f"candidate {candidate.name} must begin in states that do not end, with a length each, got {what}"
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
            rows = InputTable(as_frame(table, "candidates"), "the table of candidates")
        rows.require("state")
        has = set(map(str, rows.frame.columns))
        n = len(rows.frame)

        def numbers(column: str, default: float, least: float, whole: bool = True) -> Floats:
            if column not in has:
                return np.full(n, default)
            values = rows.whole_numbers(column).astype(np.float64) if whole else rows.numbers(column)
            wrong = values < least if whole else values <= least
            if wrong.any():
                row = int(np.argmax(wrong))
                bound = f"at least {least:g}" if whole else f"above {least:g}"
                raise ValueError(f"{rows.at(row)}: column {column} must be {bound}, got {values[row]:g}")
            return values

        task = numbers("task", 1, 1).astype(np.int64) - 1
        if (task >= len(mdps)).any():
            row = int(np.argmax(task >= len(mdps)))
            raise ValueError(f"{rows.at(row)}: column task must be from 1 to {len(mdps)}, got {task[row] + 1}")
        length = (
            numbers("length", 0, 1).astype(np.int64)
            if "length" in has
            else np.array(lengths or [cls.usual_length] * len(mdps))[task]
        )
        episodes = numbers("episodes", 1, 1).astype(np.int64)
        for name, given in (("length", length), ("episodes", episodes)):
            if (given > cls.longest).any():
                row = int(np.argmax(given > cls.longest))
                raise ValueError(f"{rows.at(row)}: column {name} must be at most {cls.longest:,}, got {given[row]:,}")
        per_candidate = {
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
                    f"{rows.at(block[1])}: without a column candidate a state must stand in one row for each task, got "
                    f"{name} twice: give candidates names, or say in a column episodes how many episodes a block has"
                )
            wanted = [labels[codes[row]] for row in block]
            states = positions(wanted, mdp.state_names, "state", lambda i, block=block: rows.at(block[i]))  # type: ignore[misc]
            if mdp.terminal[states].any():
                row = int(np.argmax(mdp.terminal[states]))
                raise ValueError(f"{rows.at(block[row])}: an episode must not begin where it ends, got {wanted[row]}")
            for kind, values in per_candidate.items():
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
                    float(per_candidate["most"][block[0]]),
                    float(per_candidate["cost"][block[0]]) if "cost" in has else None,
                )
            )
            times.append(int(per_candidate["times"][block[0]]))
        used = {"candidate", "state", "task", "length", "episodes", "most", "cost", "times"}
        return cls(mdps, tuple(candidates), np.array(times, dtype=np.int64), unused=tuple(sorted(has - used)))

    @classmethod
    def of_starts(cls, tasks: Sequence[MDP], lengths: Sequence[int] | None = None) -> Schedule:
        """Return one episode from each state in which episodes may begin, or from each that has a choice, where they begin in
        one; with the most decisions of an episode of each task."""
        candidates = []
        for place, mdp in enumerate(tasks):
            starts = np.flatnonzero((mdp.initial > 0) & ~mdp.terminal)
            if starts.size < 2:
                starts = np.flatnonzero(~mdp.terminal & (mdp.available.sum(axis=1) > 1))
            for state in starts.tolist():
                name = mdp.state_names[state] if len(tasks) == 1 else f"{mdp.state_names[state]} in task {place + 1}"
                candidates.append(Candidate(name, place, (state,), ((lengths or [cls.usual_length] * len(tasks))[place],)))
        return cls(tuple(tasks), tuple(candidates), np.zeros(len(candidates), dtype=np.int64))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per kind of episode: what `read` reads."""
        rows = []
        unlimited = all(np.isinf(candidate.most) for candidate in self.candidates)
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
        """Return how often a person with this policy `(S,A)` is expected to decide in each state of a task if given each
        candidate once.

        `(J,S)`; 0 for candidates of other tasks.
        """
        mdp = self.tasks[task]
        visits = np.zeros((len(self.candidates), self.tasks[task].n_states))
        under = sp.csr_array(mdp.under(policy).T)
        begun: dict[int, Floats] = {}
        for j, candidate in enumerate(self.candidates):
            if candidate.task == task:
                for state, length in zip(candidate.starts, candidate.lengths, strict=True):
                    begun.setdefault(length, np.zeros(visits.shape))[j, state] += 1
        for length, here in begun.items():
            for _ in range(length):
                visits += here
                here = np.where(mdp.terminal, 0.0, (under @ here.T).T)
                if here.sum() < 1e-12:
                    break
        return visits

    def study(
        self,
        problem: Problem,
        known: Any,
        rewards: Floats,
        discounts: Floats,
        temperatures: Floats,
        cells: tuple[Ints, pd.DataFrame] | None = None,
        choosing: Choosing = SOFT,
    ) -> StudyDesign:
        """Return the planned study of a problem's people, who have these parameters, each given the candidates as often as it
        says.

        `known` and `rewards` are as in `policies_of`. With the owner `(m,)` and the conditions of `cells`, parameters are theirs,
        and the candidates of a person are shared out among the person's cells.
        """
        everywhere = in_tasks(problem, self.tasks, self.features, known)
        persons = everywhere.names
        owner, conditions = (np.arange(len(persons)), None) if cells is None else cells
        if cells is not None:
            every = zip(everywhere.experts, everywhere.owner, strict=True)
            everywhere = everywhere.with_experts(
                [replace(expert, name=f"{cell}") for expert, k in every for cell in np.flatnonzero(owner == k).tolist()]
            )
        if not self.times.any():
            raise ValueError("a schedule must have at least one candidate that is given once, got none")
        among = np.bincount(owner)[owner][:, None]
        place = np.arange(owner.size) - np.searchsorted(owner, owner)
        turn = (place[:, None] + np.arange(self.times.size)) % among
        given = self.times // among + (turn < self.times % among)  # how often each cell is given each candidate
        policies = policies_of(everywhere, known, rewards, discounts, temperatures, choosing)
        number = {id(mdp): task for task, mdp in enumerate(self.tasks)}
        starts, lengths, decided = [], [], 0.0
        for expert, cell, policy in zip(everywhere.experts, everywhere.owner, policies, strict=True):
            task = number[id(expert.mdp)]
            times = [(c, n) for c, n in zip(self.candidates, given[cell].tolist(), strict=True) if c.task == task]
            starts.append(np.array([s for c, n in times for s in c.starts * n], dtype=np.int64))
            lengths.append(np.array([length for c, n in times for length in c.lengths * n], dtype=np.int64))
            decided += float(given[cell] @ self.visits(task, policy).sum(axis=1))
        return StudyDesign(everywhere, tuple(starts), tuple(lengths), decided / len(persons), persons, owner, conditions)


def in_tasks(problem: Problem, tasks: Sequence[MDP], features: Sequence[Any] | None = None, known_reward: Any = None) -> Problem:
    """Return the problem's people in each of these tasks, with one decision of every kind: what planned studies begin with.

    A reward of states goes by their names. Features are those of the problem's task with the same states and actions, unless
    they are given, `(A·S,d)`, or `(S,d)` on arrival, for each task. A `known_reward` goes by the order of states and actions.

    Raises:
        ValueError: where the reward says nothing of a task.
    """
    experts = []
    by_task = list({id(expert.mdp): expert for expert in problem.experts}.values())
    for place, mdp in enumerate(tasks):
        alike = [e for e in by_task if e.mdp.state_names == mdp.state_names and e.mdp.action_names == mdp.action_names]
        same = [e for e in alike if e.mdp.stacked is mdp.stacked] or alike
        if len(same) > 1:  # tasks of the problem that differ in features go by their order
            same = by_task[place : place + 1] if len(by_task) == len(tasks) and by_task[place] in same else same[:1]
        like = same[0] if same else None
        if known_reward is not None and like is None and (problem.tabular or not isinstance(known_reward, Mapping)):
            raise ValueError(
                f"task {place + 1} must list states and actions as the guess does, whose reward is known by their order"
            )
        arrival = matrix = None
        if features is not None:
            matrix = sp.csr_array(features[place])
            if matrix.shape == (mdp.n_states, problem.n_parameters):
                arrival = matrix
                matrix = sp.csr_array(mdp.stacked @ matrix)
            if matrix.shape != (mdp.stacked.shape[0], problem.n_parameters):
                rows = mdp.stacked.shape[0]
                d = problem.n_parameters
                raise ValueError(
                    f"features of task {place + 1} must have shape ({rows}, {d}), or ({mdp.n_states}, {d}) on arrival, "
                    f"got {matrix.shape}"
                )
        elif problem.tabular and problem.parameter_names != mdp.state_names:
            column = {name: i for i, name in enumerate(problem.parameter_names)}
            unknown = next((name for name in mdp.state_names if name not in column), None)
            if unknown is not None:
                raise ValueError(
                    f"the guess must have a reward for every state of task {place + 1}, got none for {unknown!r}: "
                    "give features, or a task with the states of the guess"
                )
            where = [column[name] for name in mdp.state_names]
            arrival = sp.csr_array((np.ones(len(where)), (np.arange(len(where)), where)), (len(where), len(column)))
            matrix = sp.csr_array(mdp.stacked @ arrival)
        elif not problem.tabular and like is None:
            raise ValueError(
                f"task {place + 1} must have the states and actions of the guess's own, or features must be given for it, "
                "got neither"
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


def policies_of(
    problem: Problem,
    known_reward: Any,
    rewards: Floats,
    discounts: Floats,
    temperatures: Floats,
    choosing: Choosing = SOFT,
) -> list[Floats]:
    """Return the policy `(S,A)` of each of the problem's experts and tasks under each person's reward and parameters.

    `known_reward` is the known part of the reward, as in `MaximumLikelihood`, `rewards` `(K,d)` the parameters of the rest.
    """
    paid = with_known_reward(problem, known_reward)[0]
    habits = np.array(choosing.habits or ())
    lapse = choosing.habits.lapse if choosing.habits is not None else 0.0
    model = Likelihood(paid, Settings(temperatures=np.full(problem.n_experts, np.nan), value=choosing.value, lapse=lapse))
    x = np.concatenate([rewards[0], discounts, np.log(temperatures), habits])
    plans = model.plans(model.in_tasks(x), x, rewards if np.ptp(rewards, axis=0).any() else rewards[0], None)
    if plans is None:
        raise ValueError("the values of the task must be finite under the parameters to be recovered, got infinite ones")
    return Point(model, x, plans, np.nan, np.nan).policies()


@dataclass(frozen=True, eq=False)
class Parameters:
    """One draw of what people may be like: rewards `(n,d)`, discounts and temperatures `(n,)` of the n kinds of people."""

    rewards: Floats
    discounts: Floats
    temperatures: Floats


@dataclass(frozen=True, eq=False)
class Layout:
    """Which of the parameters z each person has.

    Attributes:
        kind: of each person or group of people `(E,)`.
        weight: how many people of the study it stands for `(E,)`.
        maps: how z moves the person's rewards, discount and log-temperature `(E,q,z)`.
        prior: M₀ `(z,z)`.
        targets: how many targets stand first in z.
    """

    kind: Ints
    weight: Floats
    maps: Floats
    prior: Floats
    targets: int


@dataclass(frozen=True, eq=False)
class Pilot:
    """Who will take part, and what is known of them.

    Attributes:
        problem: one expert for each kind of person, in the tasks of the pilot.
        known_reward: the known part of the reward, as solvers take it.
        draws: of the parameters, the pilot's own answer first.
        layout: which parameters are whose, at a draw.
        targets: what is to be told, by name.
        told_of: for each target the first kind of person whose discount it is.
        of_population: whether the target is an effect on the logit of the discount, and not discounts.
        persons: how many take part.
        decisions: how many one person of the pilot made on average.
        tasks: of the pilot.
        remarks: what was assumed.
        fitted: where further episodes are asked for, the covariance of the discounts as they are known now.
        differing: for a population, the pilot's answer with another effect of the target, that of the difference to be seen.
        degrees: for a population, the degrees of freedom of the test of that effect.
    """

    problem: Problem
    known_reward: Any
    draws: list[Parameters]
    layout: Callable[[Parameters], Layout]
    targets: tuple[str, ...]
    told_of: Ints
    of_population: bool
    persons: int
    decisions: float
    tasks: list[MDP]
    remarks: list[str] = field(default_factory=list)
    fitted: Floats | None = None
    differing: Parameters | None = None
    degrees: int = 0


def read_pilot(
    guesses: Sequence[Solution],
    persons: int | None,
    term: str | None,
    further: bool,
    draws: int,
    run: Run = Run(),
    difference: float | None = None,
) -> Pilot:
    """Return what one solution, or several equally likely ones, say; `further` takes the decisions of the fit into account.

    Raises:
        ValueError: for a solution that a study cannot be planned with.
    """
    if not guesses or not all(isinstance(one, Solution) for one in guesses):
        raise ValueError("the guess must be a solution, or several of them, got something else")
    first = guesses[0]
    if len({(one.solver, one.experts) for one in guesses}) > 1:
        raise ValueError("several guesses must be of one solver and the same experts, got others")
    if first.problem is None or not first.problem.mdps:
        raise ValueError("the guess must come with its problem and a list of states, got one without")
    for one in guesses:
        if one.status in (Status.NOT_CONVERGED, Status.INFEASIBLE) or not np.isfinite(one.reward).all():
            raise ValueError(f"the guess must have an answer to plan a study with, got one that is {one.status}")
        one.require_soft("a design")
    if persons is not None:
        as_count(persons, "persons")
        if persons > MOST_TIMES:
            raise ValueError(f"persons must be at most {MOST_TIMES:,}, got {persons:,}")
    if first.estimate.population is None:
        if term is not None:
            raise ValueError(f"a term needs a guess of Population, got one of {first.solver}")
        return _individuals(guesses, persons, further, draws, run)
    if further:
        raise ValueError(
            "a width needs a guess of MaximumLikelihood, whose people have intervals of their own, got a Population: "
            "say how many people and decisions there may be instead"
        )
    return _population(guesses, persons, term, draws, run, difference)


# People one by one.


@dataclass(frozen=True, eq=False)
class Tied:
    """How parameters of K people are tied.

    Attributes:
        discount_of, temperature_of: which discount and temperature are whose `(K,)`; −1 where they are known.
        n_discounts, n_temperatures: how many are estimated.
        spread: of the log-temperatures; infinite where they have nothing in common.
        mean_is_held: whether their mean is held, because nothing else sets the scale of the reward.
        ridge: the penalty on rewards `(d,)`.
        deviations: the precision `(d,)` of personal deviations from the reward; empty where all share it.
    """

    discount_of: Ints
    temperature_of: Ints
    n_discounts: int
    n_temperatures: int
    spread: float
    mean_is_held: bool
    ridge: Floats
    deviations: Floats


def _individuals(guesses: Sequence[Solution], persons: int | None, further: bool, draws: int, run: Run) -> Pilot:
    """Return people with the discounts, rewards and temperatures of the guess; each discount is a target."""
    first = guesses[0]
    problem = first.require_problem()
    k = problem.n_experts
    if k > 200:
        raise ValueError(f"a guess with a discount for each must have at most 200 people, got {k}: fit a Population")
    for one in guesses:
        open_ = [name for name, gamma in zip(one.experts, one.discounts, strict=True) if not np.isfinite(gamma)]
        if open_ or one.temperature is None:
            what = f"no discount for {first_few(open_)}" if open_ else "one without temperatures"
            raise ValueError(f"the guess must have a discount and a temperature for each person, got {what}")
    number = k if persons is None else persons
    if number < k or (further and number != k):
        raise ValueError(
            f"persons must be {'the' if further else 'at least the'} {k} of the guess, got {number}: "
            'fit Population("~ 1") to plan for other numbers of people'
        )
    known_reward = first.options.get("known_reward")
    paid, reward = with_known_reward(problem, known_reward)
    d = 0 if reward is not None else paid.n_parameters
    drawn = [Parameters(one.personal_rewards, one.discounts, np.asarray(one.temperature)) for one in guesses]
    remarks = []
    fitted = None
    if first.estimate.has_likelihood:
        fitted_together = joint(first)
        point = fitted_together.point
        if point.likelihood.is_large:
            raise ValueError(
                f"a study can be designed for at most 700 rewards, got {point.likelihood.n_reward:,}: "
                "tie the rewards of similar states together with features"
            )
        tied = _tied(first, point, d)
        layout = _layout_of_individuals(tied, number / k - 1)
        if draws > 1 and len(guesses) == 1:
            drawn += _drawn(fitted_together.guesses(draws - 1, run.seed), first)
        if further:
            layout, fitted = _with_decisions(layout, point, tied)
        if first.options.get("temperature") == "pooled" and np.isfinite(tied.spread):
            remarks.append(
                "The fit will also test whether temperatures differ; the expected errors do not include what this adds."
            )
    else:
        if further:
            raise ValueError(f"a width needs a guess of MaximumLikelihood, which has intervals, got one of {first.solver}")
        if draws > 1 and len(guesses) == 1:
            try:
                drawn += _drawn(first.estimate.draw(draws - 1, np.random.default_rng(run.seed)), first)
            except NoUncertaintyError as error:
                remarks.append(f"The guess is taken as it is: {error}.")
        places = np.arange(k)
        nothing = np.full(k, -1)
        tied = Tied(places, nothing, k, 0, np.inf, False, np.zeros(d), np.zeros(0))
        layout = _layout_of_individuals(tied, number / k - 1)
    counted = [expert.counts for expert in problem.experts if expert.counts is not None]
    members = [[n for n, g in zip(problem.names, tied.discount_of, strict=True) if g == i] for i in range(tied.n_discounts)]
    return Pilot(
        problem=problem,
        known_reward=known_reward,
        draws=drawn,
        layout=lambda _: layout,
        targets=tuple(map(in_words, members)),
        told_of=np.array([tied.discount_of.tolist().index(i) for i in range(tied.n_discounts)]),
        of_population=False,
        persons=number,
        decisions=sum(float(counts.sum()) for counts in counted) / k,
        tasks=list(problem.mdps),
        remarks=remarks,
        fitted=fitted,
    )


def _drawn(draws: Draws, solution: Solution) -> list[Parameters]:
    """Return each draw with the deviations from the shared reward as they were found."""
    deviations = solution.personal_rewards - solution.reward
    shared = replace(draws, deviations=None)
    return [
        Parameters(shared.rewards_in(i) + deviations, gamma, lam)
        for i, (gamma, lam) in enumerate(zip(draws.discounts.T, draws.temperatures.T, strict=True))
    ]


def _tied(solution: Solution, point: Point, d: int) -> Tied:
    """Return how `MaximumLikelihood` ties parameters together."""
    model = point.likelihood
    numbers = []
    for groups, at in ((model.groups, model.discount_slice), (model.temperature_groups, model.temperature_slice)):
        free = dict.fromkeys(g for g in groups.tolist() if not model.fixed[at.start + g])
        place = {g: i for i, g in enumerate(free)}
        numbers.append(np.array([place.get(g, -1) for g in groups.tolist()]))
    sizes = [int(numbers_of.max(initial=-1)) + 1 for numbers_of in numbers]
    if not sizes[0]:
        raise ValueError("the guess must have discounts that were estimated, got known ones only")
    evidence = LikelihoodEvidence.of(solution)
    deviations = model.precision if isinstance(model, NearlyShared) else np.zeros(0)
    spread = evidence.temperature_spread or np.inf
    # A penalty that the pilot needed because it had few decisions is not one of the study to come.
    ridge = np.full(d, float(solution.options.get("ridge") or 0.0))
    return Tied(numbers[0], numbers[1], sizes[0], sizes[1], spread, model.scale_is_free, ridge, deviations)


def _layout_of_individuals(tied: Tied, more: float) -> Layout:
    """Return the layout of one person of each kind, and of `more` further ones of each, who have parameters of their own."""
    k, d, deviations, t, n = tied.discount_of.size, tied.ridge.size, tied.deviations.size, tied.n_discounts, tied.n_temperatures
    temperatures, size = t + d, t + d + n
    apart = n == k and k > 1  # each has a temperature
    prior = {(t + i, t + i): float(weight) for i, weight in enumerate(tied.ridge)}
    if np.isfinite(tied.spread) or tied.mean_is_held:
        block = (np.eye(n) - 1 / max(n, 1)) / tied.spread**2 + (1e6 / n if tied.mean_is_held else 0.0)
        prior |= {(temperatures + i, temperatures + j): float(block[i, j]) for i in range(n) for j in range(n)}
    kind, weight, entries = [], [], []
    for like in (False, True) if more > 0 else (False,):
        for person in range(k):
            stands = more if like else 1.0
            columns = [(i, t + i) for i in range(d)]
            columns += [(i, size + i) for i in range(deviations)]
            prior |= {(size + i, size + i): stands * float(p) for i, p in enumerate(tied.deviations)}
            size += deviations
            if tied.discount_of[person] >= 0:
                columns.append((d, size if like else int(tied.discount_of[person])))
                size += like
            if tied.temperature_of[person] >= 0:
                new = like and apart
                columns.append((d + 1, size if new else temperatures + int(tied.temperature_of[person])))
                prior |= {(size, size): stands / min(tied.spread, 10.0) ** 2} if new else {}
                size += new
            kind.append(person)
            weight.append(stands)
            entries.append(columns)
    maps, matrix = np.zeros((len(kind), d + 2, size)), np.zeros((size, size))
    for e, columns in enumerate(entries):
        for row, column in columns:
            maps[e, row, column] = 1.0
    for place, value in prior.items():
        matrix[place] = value
    return Layout(np.array(kind), np.array(weight), maps, matrix, t)


def _with_decisions(layout: Layout, point: Point, tied: Tied) -> tuple[Layout, Floats]:
    """Return the layout with the information of the fitted decisions in M₀, and the covariance of the discounts after the fit."""
    model = point.likelihood
    free = np.flatnonzero(~point.likelihood.fixed)
    ahead = [model.discount_slice.start + int(model.groups[tied.discount_of.tolist().index(g)]) for g in range(tied.n_discounts)]
    random = [
        model.temperature_slice.start + int(model.temperature_groups[tied.temperature_of.tolist().index(g)])
        for g in range(tied.n_temperatures)
    ]
    order = np.array([*ahead, *free[free < model.n_reward], *random], dtype=np.int64)
    curvature = point.curvature(ridge=False)
    rest = np.setdiff1d(free, order)
    block = curvature[np.ix_(order, order)]
    rewards = np.arange(layout.targets, layout.targets + tied.ridge.size)
    block[rewards, rewards] += tied.ridge
    if rest.size:  # estimated transitions gave way
        cross = curvature[np.ix_(order, rest)]
        block = block - cross @ spectrum(curvature[np.ix_(rest, rest)]).inverse @ cross.T
    prior = layout.prior.copy()  # what stands after the common parameters are deviations
    prior[: order.size, : order.size] = block
    return replace(layout, prior=prior), spectrum(block).inverse[: layout.targets, : layout.targets]


# People of a population.


def _population(
    guesses: Sequence[Solution], persons: int | None, term: str | None, draws: int, run: Run, difference: float | None
) -> Pilot:
    """Return nodes of a quadrature for each pattern of covariates; the effect of a term is the target."""
    first = guesses[0]
    used = guesses[0].solver_used()
    problem = first.require_problem()
    populations = [PopulationEvidence.of(one).population for one in guesses]
    assert isinstance(used, Population)
    if used.distribution != "normal":
        raise ValueError("a study can be designed for a normal population, got one with types or a nonparametric distribution")
    if populations[0].conditions:  # a saved fit does not hold under which of them each decision was made
        covariates = remembered(first, used.formula, used.persons, used.reference)
    else:
        covariates = used.covariates(problem)
    wanted = _wanted(covariates, term)
    terms = covariates.terms
    effects = [one.effects for one in populations]
    if len(populations) == 1 and draws > 1:
        roots = [principal_root(covariance) for covariance in populations[0].effect_covariances]
        for z in paired_normal(draws - 1, 2 * len(terms), run.seed):
            effects.append(effects[0] + np.column_stack([root @ part for root, part in zip(roots, np.split(z, 2), strict=True)]))
    patterns, shares = _patterns(covariates, effects[0])
    # Many patterns need few nodes each.
    nodes, weights = normal_nodes(*((5, 3) if sum(map(len, patterns)) <= 8 else (3, 1)))
    number = len(covariates.names) if persons is None else persons
    if number < least_persons(len(terms)):
        raise ValueError(
            f"persons must be at least {least_persons(len(terms))}, as the formula has {len(terms)} terms, got {number}"
        )
    spread = populations[0].between + 1e-4 * np.eye(len(populations[0].between))
    own = nodes @ np.linalg.cholesky(spread[:2, :2]).T  # where effects differ between people, a kind has the typical one
    kinds = [
        (rows, node, share * part)
        for rows, share in zip(patterns, shares, strict=True)
        for node, part in zip(own, weights, strict=True)
    ]
    person = np.repeat(np.arange(len(kinds)), [len(rows) for rows, _, _ in kinds])
    cells = np.concatenate([rows for rows, _, _ in kinds])
    matrix, random = np.split(cells, [len(terms)], axis=1)
    weight = number * np.concatenate([np.full(len(rows), share / len(rows)) for rows, _, share in kinds])
    noise = random[:, :1] * np.array([node for _, node, _ in kinds])[person]
    every = [task.pooled for task in problem.tasks]
    paid = problem.with_experts(every)
    reward = with_known_reward(paid, used.known_reward)[1]
    d = 0 if reward is not None else paid.n_parameters
    largest = populations[0].largest_discount

    def persons_with(effect: Floats) -> Parameters:
        eta = matrix @ effect + noise
        rewards = np.broadcast_to(first.reward, (len(eta), first.reward.size))
        return Parameters(rewards, largest * expit(eta[:, 0]), np.exp(np.clip(eta[:, 1], -5.0, 5.0)))

    other = effects[0].copy()
    other[terms.index(wanted), 0] = difference or 0.0
    return Pilot(
        problem=paid.with_experts([replace(expert, name=f"kind {i}") for expert in every for i in range(len(matrix))]),
        known_reward=used.known_reward,
        draws=[persons_with(effect) for effect in effects],
        layout=partial(
            _layout_of_population, matrix, random, person, weight, np.linalg.inv(spread), terms.index(wanted), d, largest
        ),
        targets=(wanted,),
        told_of=np.zeros(1, dtype=np.int64),
        of_population=True,
        persons=number,
        decisions=sum(float(task.counts.sum()) for task in problem.tasks) / problem.n_experts,
        tasks=[expert.mdp for expert in every],
        remarks=[
            *(["Draws leave the pilot's rewards as they are."] if d and len(effects) > 1 else []),
            *([WITHIN] if covariates.conditions else []),
        ],
        differing=None if difference is None else persons_with(other),
        degrees=number - len(terms),
    )


def _wanted(covariates: Covariates, term: str | None) -> str:
    """Return the term that is the target."""
    others = [name for name in covariates.terms if name != "Intercept"]
    if term is None and len(others) > 1:
        raise ValueError(f"term must say which effect the study is for, one of {', '.join(others)}; got none")
    if term is not None and term not in covariates.terms:
        raise ValueError(f"term must be one of {', '.join(covariates.terms)}, got {term}")
    return term or (others[0] if others else "Intercept")


def _patterns(covariates: Covariates, effects: Floats) -> tuple[list[Floats], Floats]:
    """Return distinct patterns of people and the shares of people who have them: the rows of X and Z of each of their cells; of
    very many patterns, 60 evenly spread over what they predict.
    """
    cells = np.concatenate([covariates.matrix, covariates.random], axis=1)
    groups = np.split(cells, np.searchsorted(covariates.owner, np.arange(1, len(covariates.names))))
    size = max(map(len, groups))
    rows = np.stack([np.pad(rows, ((0, size - len(rows)), (0, 0)), constant_values=np.nan).ravel() for rows in groups])
    distinct, times = np.unique(rows, axis=0, return_counts=True, equal_nan=True)
    patterns = [one[~np.isnan(one).all(axis=1)] for one in distinct.reshape(len(distinct), size, -1)]
    if len(patterns) > 60:
        ahead = np.array([float((one[:, : len(effects)] @ effects[:, 0]).mean()) for one in patterns])
        parts = np.array_split(np.argsort(ahead, kind="stable"), 60)
        patterns = [patterns[part[part.size // 2]] for part in parts]
        times = np.array([times[part].sum() for part in parts])
    return patterns, times / times.sum()


def _layout_of_population(
    matrix: Floats,
    random: Floats,
    person: Ints,
    weight: Floats,
    precision: Any,
    place: int,
    d: int,
    largest: float,
    at: Parameters,
) -> Layout:
    """Return the effect first; then rewards, the other effects on logit γ, those on log λ, and the numbers of each kind's own.

    A kind of person is `person` of its cells, which share what is its own.
    """
    n, p = matrix.shape
    others = [i for i in range(p) if i != place]
    start, own = d + 2 * p, len(precision)
    size = start + own * (int(person.max()) + 1)
    maps, prior = np.zeros((n, d + 2, size)), np.zeros((size, size))
    slope = at.discounts * (1 - at.discounts / largest)  # of γ in its logit
    maps[:, np.arange(d), 1 + np.arange(d)] = 1.0
    maps[:, d, 0] = slope * matrix[:, place]
    maps[:, d, 1 + d : d + p] = slope[:, None] * matrix[:, others]
    maps[:, d + 1, d + p : d + 2 * p] = matrix
    for e in range(n):
        first = start + own * person[e]
        last = first + own
        maps[e, d, first:last:2], maps[e, d + 1, first + 1 : last : 2] = slope[e] * random[e], random[e]
        prior[first:last, first:last] += weight[e] * precision
    return Layout(np.arange(n), weight, maps, prior, 1)
