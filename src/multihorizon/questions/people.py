"""People who were compared and not fitted alone: their distribution, their groups, and what is known of each.

`Population` says how discounts differ between groups and between people, and shrinks each person's towards those of similar
ones. All that is said here follows from its solution and from the counts of decisions.

*Distribution.* Shrunken discounts lie closer together than people do: the less their decisions say, the closer. What is said of
all people is therefore taken from their posteriors put together: with m_i and e_i the mean and the standard error of the logit
of person i's discount, the mixture of all N(m_i, e_i²), with a few equally likely values in place of each.

*Fit.* With people averaged out, the log-likelihood L of the decisions is that of people who were not seen before. L₀ is that
of choices among all available actions with equal probabilities. `1 − L/L₀` is the share of L₀ that the model explains. Where
2 (L − L₀) is no larger than by chance (χ² with a degree of freedom for each parameter of population and reward), the decisions
say nothing, and no number is given.

*Choices*: what a population expects its people to choose, beside what they chose: in each state, in new episodes, and group by
group.

*Expected choices.* A *cell* is a person, or a person under one combination of conditions. What is known of a cell is a normal
distribution of η = (logit γ, log λ), here nine nodes, three in each direction (Gauss and Hermite's), with weights w_q. Of n(s)
decisions in state s those expected are `E(s,·) = n(s) Σ_q w_q π(·|s, η_q)`. Their mean over people is that of the choices N
themselves, which `π(·|s, η̂)` at the mean η̂ would miss where the policy bends. The same decisions have told what is known of the
cell, so N differs from E by less than by chance, and χ² is conservative. Of types, w_q are the posterior shares of the types.

*New episodes.* The population is fitted anew to each part of the episodes, and predicts the rest from what it then knows of each
cell.

*Predicted by group.* A population predicts each decision of a cell from the cell's other decisions. To first order, what is
expected of π(·|s) without the decision a is `E π(·|s) − Cov(π(·|s), log π(a|s))`. To divide weights by π(a|s) would be exact, but
the tails of a normal distribution are not those of the person. Actions are put in ten bins of these, and in each bin the share
that was taken is set beside their mean. Strokes are those of independent decisions. Errors of prediction partly cancel, because
people are fitted, so strokes are rather too wide than too narrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from multihorizon.checks import TINY, Floats, Ints, Sparse
from multihorizon.choice.plans import SOFT, Choosing
from multihorizon.choice.surfaces import Tables
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.likelihood.action_rewards import StateRewardTest
from multihorizon.likelihood.estimates import choosing_of
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.parallel import Run, limits
from multihorizon.population.findings import CELL_NUMBERS, PopulationEvidence, PopulationFindings
from multihorizon.population.solver import Population, absent_words
from multihorizon.population.types import open_words
from multihorizon.problem import CountedTask, Problem
from multihorizon.questions.model_checks import (
    FEWEST_DECISIONS,
    MODELS,
    MOST_ROWS,
    WORST,
    AllChoices,
    Compared,
    ComparedChoices,
    ModelChecks,
    OverallTest,
    calibration_bins,
    check_model,
    fold_of_episodes,
    misfits,
    overall_test,
)
from multihorizon.questions.schedule import tables_of
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL

#: The file with a row for each person, which stands in `result.json` in place of every list of people.
PEOPLE = "people.parquet"
#: The same for people and conditions.
CONDITIONS = "conditions.parquet"


def is_crowd(tables: Sequence[Demonstrations]) -> bool:
    """Return whether the tables have too many people for each to be fitted alone."""
    return len({name for table in tables for name in table.experts}) > limits().alone


@dataclass(frozen=True, eq=False)
class GroupSummary:
    """What is known of the people of one group, or under one combination of conditions.

    Attributes:
        name: of the group: its covariates and conditions, numbers at their mean.
        persons, decisions: how many there are.
        typical, typical_interval, new_person_interval: the discount of a typical person, its interval, and where 95% of new
            people are expected.
        middle: the quartiles of the shrunken discounts.
        reliability: of a person's discount, on average.
        explained: the share of chance's log-likelihood that the model explains; NaN where it is not known by group.
    """

    name: str
    persons: int
    decisions: int
    typical: float
    typical_interval: tuple[float, float]
    new_person_interval: tuple[float, float]
    middle: tuple[float, float, float]
    reliability: float
    explained: float


def unit_columns(population: PopulationFindings, hidden: float = 1.0) -> dict[str, Any]:
    """Return what tables of people say of each besides the discount: how reliable it is, or the shares of types and the
    likeliest.

    Numbers that may not be used are `hidden`, which is NaN then.
    """
    if population.types is None:
        return {"reliability": hidden * population.individuals["discount_reliability"]}
    posterior = hidden * population.individuals["posterior"]
    shares = {f"share_of_type_{k + 1}": posterior[:, k] for k in range(population.types["number"])}
    return {"type": 1 + population.individuals["posterior"].argmax(axis=1) * hidden, **shares}


@dataclass(frozen=True, eq=False, kw_only=True)
class People:
    """Everybody in the tables, and a population in which some or all of them are compared.

    Attributes:
        solution: of `Population`.
        names: everybody in the tables.
        decisions: of each of them `(n,)`.
        chance: the log-likelihood of each person's decisions `(n,)` if all available actions were equally likely.
    """

    solution: Solution
    names: tuple[str, ...]
    decisions: Floats
    chance: Floats

    @classmethod
    def of(cls, solution: Solution, everybody: Problem) -> People:
        """Return the people of a solution of `Population`; some of `everybody` may be left out of it."""
        decisions, chance = _by_chance(everybody)
        if solution.problem is not None:  # of those who are compared, decisions under unknown conditions are not
            compared = pd.Index(everybody.names).get_indexer(pd.Index(solution.experts))
            chance[compared] = _by_chance(solution.require_problem())[1]
        return cls(solution=solution, names=everybody.names, decisions=decisions, chance=chance)

    @property
    def evidence(self) -> PopulationEvidence:
        """Return what the solver says about its answer."""
        return PopulationEvidence.of(self.solution)

    @property
    def population(self) -> PopulationFindings:
        """Return what was found of groups and people."""
        return self.evidence.population

    @property
    def reward_given(self) -> bool:
        """Return whether the whole reward was given and none of it estimated."""
        return all(error == 0 for error in self.evidence.reward_standard_errors)

    @cached_property
    def places(self) -> Ints:
        """Return where the people of the solution stand among all `names`."""
        return pd.Index(self.names).get_indexer(pd.Index(self.solution.experts))

    @property
    def compared_chance(self) -> float:
        """Return L₀: the log-likelihood of the decisions of all who are compared, by chance."""
        return float(self.chance[self.places].sum())

    @cached_property
    def withheld(self) -> str:
        """Return why no number may be used; empty where they may."""
        population = self.population
        types = population.types
        status = self.solution.status
        if types is not None and status == Status.NOT_IDENTIFIED and not any(types["identified"]):
            return open_words(types)
        if status == Status.NOT_CONVERGED or (types is None and status != Status.CONVERGED):
            return f"The population could not be estimated. {self.solution.message}"
        if why := artefact(population):
            return why
        deep = 2 * len(population.person_terms or ["Intercept"])  # what a person has of their own, and its covariance
        parameters = 2 * len(population.discount) + deep * (deep + 1) // 2 if types is None else 3 * types["number"] - 1
        parameters += 0 if self.reward_given else self.solution.reward.size
        if 2 * (self.evidence.log_likelihood - self.compared_chance) < chi2_ppf(LEVEL, parameters):
            return "These decisions are no likelier than by chance, so they say nothing about discounts."
        return ""

    @property
    def absent(self) -> list[str]:
        """Return who is left out of the comparison, as a sentence; nothing where nobody is."""
        return absent_words(self.population.left_out, self.population.persons)

    @property
    def not_done(self) -> str:
        """Return what is done only for fewer people, or without types."""
        why, instead = f"With more than {limits().alone:,} people", f"fit a sample of at most {limits().alone:,} people"
        if self.population.types is not None:
            why, instead = "Where types are asked for,", "fit people with names and without types"
        return (
            f"{why} nobody is fitted alone. So there are no discounts from a person's decisions alone, no tests of pairs or of a "
            f"shared goal, and no predictions of held-out episodes. To have these, {instead}."
        )

    @property
    def of_states(self) -> str:
        """That the reward is taken to depend on the state reached, and whether that was tested; empty where it is not taken."""
        tested = self.population.state_reward
        if tested is not None:
            return StateRewardTest.read(tested).verdict.reasons
        asked = () if self.solution.problem is None else self.solution.require_problem().exemplars
        by_action = any(expert.arrival_features is None for expert in asked)
        if self.reward_given or by_action or self.population.types is None:
            return ""
        return StateRewardTest.untested("there is no such test of types yet").verdict.reasons

    @cached_property
    def quartiles(self) -> tuple[float, float, float]:
        """Return the quartiles of the discounts of all who are compared, from their posteriors put together."""
        standard = ndtri((np.arange(9) + 0.5) / 9)
        standard /= standard.std()
        each = self.population.individuals
        values = np.add.outer(standard, np.zeros(1)) * each["logit_discount_error"] + each["logit_discount"]
        low, middle, high = self.population.largest_discount * expit(np.quantile(values, [0.25, 0.5, 0.75]))
        return float(low), float(middle), float(high)

    @cached_property
    def overall(self) -> OverallTest:
        """Return whether all choices together differ from the population's."""
        if self.population.types is not None:
            return OverallTest.untested("there is no such test of types yet")
        return overall_test(all_choices(self.solution), Run(self.solution.seed or 0))

    @cached_property
    def units(self) -> pd.DataFrame:
        """Return one row for each person who is compared, or for each person and condition: who, the group, the discount with its
        interval, its logit, the logarithm of the temperature, the reliability, the decisions, and their log-likelihoods by chance
        and as fitted, which are not known by condition."""
        population = self.population
        unknown = np.nan
        assert population.types is None  # types have no groups
        if population.cells is not None:
            cells = population.cells
            numbers = {name: values for name, values in cells.items() if name in CELL_NUMBERS}
            columns: dict[str, Any] = {"expert": cells["expert"], "group": cells["pattern"], **numbers}
            return pd.DataFrame({**columns, "chance": unknown, "fitted": unknown})
        ends = self.solution.confidence_intervals(LEVEL)
        each = population.individuals
        columns = {"expert": self.solution.experts, "group": population.groups}
        columns |= {"discount": self.solution.discounts, "low": ends[:, 0], "high": ends[:, 1]}
        columns |= {name: each[name] for name in ("logit_discount", "log_temperature", "discount_reliability")}
        columns |= {"decisions": self.decisions[self.places], "chance": self.chance[self.places]}
        return pd.DataFrame({**columns, "fitted": each.get("log_likelihood", unknown)})

    @cached_property
    def groups(self) -> list[GroupSummary]:
        """Return what is known of each group; nothing where no number may be used, or there are types in place of groups."""
        if self.withheld or self.population.types is not None:
            return []
        predictions = self.population.predictions
        frame = self.units.groupby(pd.CategoricalIndex(self.units["group"], list(predictions)), observed=False)
        mean = frame["discount_reliability"].mean()
        size = frame["expert"].nunique()
        total = frame[["decisions", "chance", "fitted"]].sum(min_count=1)
        quartiles = frame["discount"].quantile(np.array([0.25, 0.5, 0.75])).unstack()
        return [
            GroupSummary(
                name,
                persons=int(size[name]),
                decisions=int(total.loc[name, "decisions"]),
                typical=group["typical_discount"],
                typical_interval=tuple(group["typical_interval"]),
                new_person_interval=tuple(group["new_person_interval"]),
                middle=tuple(quartiles.loc[name]),
                reliability=float(mean[name]),
                explained=float(1 - total.loc[name, "fitted"] / total.loc[name, "chance"]),
            )
            for name, group in predictions.items()
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each person in the tables: the columns of `people.parquet`. Values of those left out are missing."""
        solution, population = self.solution, self.population
        ends = solution.confidence_intervals(LEVEL)
        hidden = np.nan if self.withheld else 1.0
        columns = {
            "shrunken_discount": hidden * solution.discounts,
            "shrunken_low": hidden * ends[:, 0],
            "shrunken_high": hidden * ends[:, 1],
            "shrunken_temperature": hidden * np.asarray(solution.temperature),
            **unit_columns(population, hidden),
            **{f"covariate_{name}": values for name, values in population.covariates.items() if name != "expert"},
        }
        frame = pd.DataFrame(columns, index=self.places).reindex(range(len(self.names)))
        frame.insert(0, "expert", list(self.names))
        frame.insert(1, "decisions", self.decisions.astype(np.int64))
        frame["left_out"] = frame["expert"].map(population.left_out).fillna("") if population.left_out else ""
        return frame


def artefact(population: PopulationFindings) -> str:
    """Return why differences may be artefacts of the reward, so that nothing is said of them; empty where they need not be."""
    return "" if population.state_reward is None else StateRewardTest.read(population.state_reward).why


def _by_chance(problem: Problem) -> tuple[Floats, Floats]:
    """Return how many decisions each person made `(n,)`, and their log-likelihood if all available actions were equally
    likely."""
    decisions, chance = np.zeros(problem.n_experts), np.zeros(problem.n_experts)
    for task in problem.by_person().tasks:
        choices = np.log(np.maximum(task.mdp.available.sum(axis=1), 1))
        decisions += np.asarray(task.counts.sum(axis=1)).ravel()
        chance -= task.counts @ np.tile(choices, task.mdp.n_actions)
    return decisions, chance


#: The name of the model in which each person is fitted alone, beside a population.
ALONE = "each person alone"


@dataclass(frozen=True, eq=False)
class KnownCells:
    """What a population knows of m cells, and what they decided.

    Attributes:
        persons: whose each cell is `(m,)`.
        names: of the cells: the person, and the conditions where there are any.
        groups: the group of each cell `(m,)`, or its combination of conditions.
        tasks: with a row of counts for each cell.
        theta: the reward.
        largest: the largest discount that is tried.
        eta: the nodes `(m,Q,2)`, or `(1,Q,2)` where they are those of all.
        weights: of the nodes `(m,Q)`.
        choosing: how people choose.
    """

    persons: tuple[str, ...]
    names: tuple[str, ...]
    groups: NDArray[Any]
    tasks: tuple[CountedTask, ...]
    theta: Floats
    largest: float
    eta: Floats
    weights: Floats
    choosing: Choosing = SOFT

    @classmethod
    def of(cls, solution: Solution, decided: Problem | None = None) -> KnownCells | None:
        """Return the cells of a solution of `Population`, with its own decisions or those of another problem with the same tasks.

        None where the population did not converge, where choices follow the last action, where people have rewards of their own,
        and where the conditions of decisions are not known, as of a solution that was read from a file.
        """
        evidence = PopulationEvidence.of(solution)
        problem, choosing = solution.problem, choosing_of(solution)
        population, apart = evidence.population, evidence.deviations
        if problem is None or solution.status != Status.CONVERGED or (apart and apart.spread):
            return None
        if choosing.habits is not None and choosing.habits.stickiness:
            return None
        fitted = solution.require_problem()
        people = fitted if decided is None else decided
        if population.cells is None:
            people = people.by_person()
            moments = population.individuals
            groups = population.groups
            persons = names = solution.experts
            keys, own_keys = _keys(people.names, []), _keys(persons, [])
        elif people.cells.owner is None or people.conditions is None:
            return None
        else:
            moments = population.cells
            groups = population.cells["pattern"]
            persons = tuple(map(str, moments["expert"]))
            columns = [np.asarray(moments[name]) for name in population.conditions]
            own_keys = _keys(persons, columns)
            said = zip(*columns, strict=True)
            names = tuple(
                f"{name}, {', '.join(f'{c} = {v}' for c, v in zip(population.conditions, values, strict=True))}"
                for name, values in zip(persons, said, strict=True)
            )
            own_values = [people.conditions[name] for name in population.conditions]
            keys = _keys(np.array(people.names, dtype=object)[people.cells.owner], own_values)
        place = {key: i for i, key in enumerate(own_keys)}
        cell = np.array([place.get(key, -1) for key in keys], dtype=np.int64)
        counts = [task.counts for task in people.gathered(cell, len(names), None, None).tasks]
        tasks = tuple(replace(task, counts=own_counts) for task, own_counts in zip(fitted.tasks, counts, strict=True))
        if population.types is None:
            eta, weights = _nodes(moments)
        else:
            kinds = population.types
            with np.errstate(divide="ignore"):  # a discount of 0 or the largest one
                logits = logit(np.array(kinds["discounts"]) / population.largest_discount)
            eta = np.stack([logits, np.log(kinds["temperatures"])], axis=1)[None]
            weights = np.asarray(moments["posterior"])
        known = solution.reward, population.largest_discount, eta, weights, choosing
        return cls(persons, names, np.asarray(groups), tasks, *known)

    def some(self, cells: Ints) -> KnownCells:
        """Return those of some of the cells `(k,)`."""
        return replace(
            self,
            persons=tuple(self.persons[i] for i in cells),
            names=tuple(self.names[i] for i in cells),
            groups=self.groups[cells],
            tasks=tuple(replace(task, counts=task.counts[cells]) for task in self.tasks),
            eta=self.eta if len(self.eta) == 1 else self.eta[cells],
            weights=self.weights[cells],
        )

    @property
    def affordable(self) -> KnownCells:
        """Return all cells, or as many of them, evenly over all, as can be planned for at their nodes in a few seconds."""
        most = int(1e7 / (self.eta.shape[1] * max(sum(task.mdp.stacked.nnz for task in self.tasks), 1)))
        if len(self.eta) == 1 or len(self.names) <= max(most, 1):
            return self
        return self.some(np.linspace(0, len(self.names) - 1, max(most, 1)).astype(np.int64))

    @cached_property
    def tables(self) -> Tables:
        """Return what plans in the tasks."""
        return Tables(self.tasks, self.largest, self.theta, np.zeros(0, dtype=np.int64), choosing=self.choosing)

    @cached_property
    def counts(self) -> Sparse:
        """Return decisions `(m,R)` in the rows of the tables: available actions in states where anyone decided, task after
        task.
        """
        return self.tables.counts(self.tasks)

    def at_nodes(self) -> Iterator[tuple[slice, Floats]]:
        """Yield `log π` `(R,k,Q)` of some cells after the other at their nodes."""
        m, q = self.weights.shape
        if len(self.eta) == 1:
            yield slice(0, m), np.broadcast_to(self.tables.exact(self.eta[0])[:, None, :], (self.tables.rows, m, q))
            return
        size = max(1, 4_000_000 // (q * max(self.tables.rows, 1)))
        for low in range(0, m, size):
            eta = self.eta[low : low + size]
            yield slice(low, low + len(eta)), self.tables.exact(eta.reshape(-1, 2)).reshape(-1, len(eta), q)

    def policies(self) -> Floats:
        """Return the probabilities `(m,R)` of actions that are expected of each cell."""
        parts = [np.einsum("rkq,kq->kr", np.exp(log), self.weights[cells]) for cells, log in self.at_nodes()]
        return np.concatenate(parts)


def _keys(persons: Iterable[Any], columns: Sequence[Iterable[Any]]) -> list[tuple[str, ...]]:
    """Return a person and the conditions, as one key."""
    return [tuple(map(str, key)) for key in zip(persons, *columns, strict=True)]


def _nodes(moments: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """Return η `(m,9,2)` at nine nodes of what is known of each cell, and their weights `(m,9)`."""
    names = "logit_discount", "log_temperature", "logit_discount_error", "log_temperature_error"
    x, y, a, b = (np.asarray(moments[name], dtype=np.float64)[:, None] for name in names)
    rho = np.asarray(moments["correlation"])[:, None] if "correlation" in moments else np.zeros_like(x)
    z, one = np.sqrt(3) * np.array([-1.0, 0.0, 1.0]), np.array([1.0, 4.0, 1.0]) / 6
    u, v = (each.ravel() for each in np.meshgrid(z, z, indexing="ij"))
    eta = np.stack([x + a * u, y + b * (rho * u + np.sqrt(1 - rho**2) * v)], axis=2)
    return eta, np.broadcast_to(np.outer(one, one).ravel(), eta.shape[:2])


# Expected choices.


def expected_choices(solution: Solution) -> Compared | None:
    """Return the choices of cells beside those that a solution of `Population` expects; of very many, some are looked at.

    None where that is not known: see `KnownCells.of`.
    """
    every = KnownCells.of(solution)
    if every is None:
        return None
    affordable = every.affordable
    policies = affordable.policies()
    parts = []
    first = 0
    often = total = entries = 0.0
    for task, planner in zip(affordable.tasks, affordable.tables.planners, strict=True):
        rows, mdp = planner.visited_rows, task.mdp
        state, action = rows % mdp.n_states, rows // mdp.n_states
        counts = task.counts[:, rows].toarray()
        visits = counts @ (state[:, None] == np.arange(mdp.n_states))
        parts.append((mdp, state, action, counts, visits, visits[:, state] * policies[:, first : first + rows.size]))
        often, total = often + float(visits[visits >= FEWEST_DECISIONS].sum()), total + float(visits.sum())
        first, entries = first + rows.size, entries + visits.size * mdp.n_actions
    repeat = often > 0.5 * total and entries < 2e7
    made = []
    for mdp, state, action, counts, visits, expected in parts:
        cells = (
            [([i], affordable.names[i]) for i in np.flatnonzero(visits.any(axis=1)).tolist()]
            if repeat
            else [(slice(None), "all")]
        )
        for which, name in cells:
            tables = np.zeros((2, mdp.n_states, mdp.n_actions))
            tables[:, state, action] = counts[which].sum(axis=0), expected[which].sum(axis=0)
            made.append(ComparedChoices(name, mdp, *tables))
    return Compared(made, repeat)


def all_choices(solution: Solution) -> AllChoices | None:
    """Return what the overall test asks of a population: all choices of its cells, or of some of very many; None where it has no
    test.

    A cell's η varies around its mean as is known of it, C. So `H = C⁻¹`, and P is what the population adds to the choices.
    """
    every = KnownCells.of(solution)
    if every is None or len(every.eta) == 1:
        return None
    shown = every.affordable
    m = len(shown.names)
    most = 400
    shown = shown.some(np.linspace(0, m - 1, most).astype(np.int64)) if m > most else shown
    eta, weights = shown.eta, shown.weights
    mean = np.einsum("mq,mqk->mk", weights, eta)
    covariance = np.einsum("mq,mqj,mqk->mjk", weights, eta - mean[:, None], eta - mean[:, None])
    step = 1e-3 * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    near = replace(shown, eta=mean[:, None] + step, weights=np.full((len(mean), 4), 0.25))
    log = np.concatenate([part.swapaxes(0, 1) for _, part in near.at_nodes()])
    slopes = np.stack([log[:, :, 0] - log[:, :, 1], log[:, :, 2] - log[:, :, 3]], axis=2) / 2e-3
    states = []
    first = 0
    for planner in shown.tables.planners:
        states.append(first + planner.visited_rows % planner.mdp.n_states)
        first += planner.mdp.n_states
    state = np.concatenate(states)
    order = np.argsort(state, kind="stable")
    state, number = state[order], np.bincount(state)[state[order]]
    policies, counts = shown.policies()[:, order], shown.counts.toarray()[:, order]
    visits = counts @ (state[:, None] == np.unique(state)).astype(np.float64)
    visits = visits[:, np.searchsorted(np.unique(state), state)]
    cell, row = np.nonzero((visits > 0) & (number > 1))
    if not cell.size or cell.size > MOST_ROWS:
        return None
    J, expected = slopes[:, order][cell, row], (visits * policies)[cell, row]
    informations = np.zeros((len(mean), 2, 2))
    np.add.at(informations, cell, expected[:, None, None] * J[:, :, None] * J[:, None, :])
    values, axes = np.linalg.eigh(np.linalg.inv(covariance) - informations)
    prior = np.einsum("mij,mj,mkj->mik", axes, np.maximum(values, 0.0), axes)
    size = 2 * len(mean)
    places = (2 * cell[:, None] + np.arange(2)).ravel()
    return AllChoices(
        counts[cell, row],
        expected,
        np.unique(cell * (int(state.max()) + 1) + state[row], return_inverse=True)[1],
        row,
        sp.csr_array((J.ravel(), places, np.arange(0, places.size + 1, 2)), (cell.size, size)),
        sp.csr_array(sp.block_diag(list(prior))),
        np.zeros(size, dtype=np.bool_),
    )


# New episodes.


class HeldOut(NamedTuple):
    """Of each person, decisions of new episodes and their log-likelihood `(n,)`, and triples for `calibration_bins`."""

    decisions: Floats
    log_likelihood: Floats
    pairs: list[tuple[Floats, Floats, Floats]]


def held_out_choices(
    asked: Population,
    problem: Problem,
    tables: Sequence[Demonstrations],
    names: Sequence[str],
    parts: Sequence[Ints],
    run: Run,
) -> HeldOut:
    """Return the decisions of each part of the episodes, as a population predicts them that was fitted to the others.

    Args:
        asked: what was asked of the population.
        problem: the problem that was fitted.
        tables: one for each of its tasks.
        names: of the people that are wanted.
        parts: the part `(E,)` of each table's episodes, as `fold_of_episodes` deals them.
        run: that of the fits.

    Raises:
        ValueError: where a population cannot be fitted to a part.
    """
    place = {name: i for i, name in enumerate(names)}
    folds = range(max(int(part.max(initial=0)) for part in parts) + 1)
    decisions = np.zeros(len(names))
    total = np.zeros(len(names))
    pairs = []
    for fold, part_of_work in run.over(folds):
        part_of_work.progress(0.0, f"fold {fold + 1}: the population")
        train = asked.solve(problem.of_episodes(tables, [part != fold for part in parts]), seed=run.seed)
        held_out = KnownCells.of(train, problem.of_episodes(tables, [part == fold for part in parts]))
        if held_out is None:
            raise ValueError("the population cannot be estimated from a part of the episodes")
        policies = held_out.policies()
        counts = held_out.counts.toarray()
        visits = counts @ held_out.tables.same_state.toarray()
        seen = visits > 0
        pairs.append((policies[seen], counts[seen], visits[seen]))
        whose = np.array([place[name] for name in held_out.persons])
        np.add.at(decisions, whose, counts.sum(axis=1))
        np.add.at(total, whose, (counts * np.log(np.maximum(policies, TINY))).sum(axis=1))
    return HeldOut(decisions, total, pairs)


def check_population(
    asked: Population,
    population: Solution,
    alone: Solution,
    *,
    run: Run,
) -> ModelChecks:
    """Check a population on the tables it was fitted to; what simpler models predict is taken from fits of each person alone.

    Args:
        asked: what was asked of the population.
        population: its solution.
        alone: the maximum-likelihood solution of the same people one by one.
        run: that of the checks.

    Raises:
        ValueError: as in `check_model`, and where a population cannot be fitted to a part of the episodes.
    """
    conditions = PopulationEvidence.of(population).population.conditions
    expected = expected_choices(population)
    if expected is None:
        raise ValueError("there is no check of this population yet")
    problem = alone.require_problem()
    rng = np.random.default_rng(run.seed)
    first, second = run.parts(1, 1)
    simpler = check_model(alone, conditions=conditions, seed=run.seed, progress=first.progress)
    tables = tables_of(problem)
    parts = [fold_of_episodes(table, 2, rng, conditions) for table in tables]
    new = held_out_choices(asked, problem, tables, alone.experts, parts, second)
    person_alone = simpler.held_out[MODELS[0]]
    ours = np.where(new.decisions > 0, new.log_likelihood / np.maximum(new.decisions, 1.0), person_alone)
    return replace(
        simpler,
        held_out={MODELS[0]: ours, ALONE: person_alone, **{name: simpler.held_out[name] for name in MODELS[1:]}},
        calibration=calibration_bins(new.pairs),
        worst=[misfit._asdict() for misfit in misfits(expected)[:WORST]],
        overall=overall_test(all_choices(population), run),
    )


# Predicted by group.


class PredictedShare(NamedTuple):
    """A bin of action probabilities: their mean, the ends of where at least 95% of shares lie, the share taken, of how many."""

    predicted: float
    low: float
    high: float
    taken: float
    choices: float


@dataclass(frozen=True)
class GroupPrediction:
    """What a population predicts of a group, beside what was taken; `persons` of the group were looked at."""

    name: str
    persons: int
    rows: list[PredictedShare]


def predicted_by_group(solution: Solution) -> list[GroupPrediction]:
    """Return, for each of the four largest groups of a solution of `Population`, shares of choices as predicted and as taken.

    Under conditions, a group is one combination of them. Of many people some are looked at, evenly over the group. Nothing where
    even a few of them would take long, or for types.
    """
    population = PopulationEvidence.of(solution).population
    every = KnownCells.of(solution)
    if every is None or population.types is not None:
        return []
    size = pd.Series(every.groups).value_counts()
    largest_groups = 4
    # Nine plans of each person: a second or two in all.
    each = int(3e6 / (9 * largest_groups * max(sum(task.mdp.stacked.nnz for task in every.tasks), 1)))
    if each < min(10, int(size.max())):
        return []
    predictions = []
    for name in [name for name in population.predictions if name in set(size.index[:largest_groups])]:
        members = np.flatnonzero(every.groups == name)
        shown = every.some(members[np.linspace(0, members.size - 1, min(members.size, each, 100)).astype(np.int64)])
        total, expected, taken, variance = np.zeros((4, 10))
        same_state = shown.tables.same_state
        decided = shown.counts.toarray()
        for cells, logs in shown.at_nodes():
            for log, weights, counts in zip(logs.swapaxes(0, 1), shown.weights[cells], decided[cells], strict=True):
                rows = np.flatnonzero(counts)
                policies = np.exp(log)
                number, score = counts[rows], log[rows]
                moved = weights * (score - (score @ weights)[:, None])
                share = np.clip(policies @ weights - moved @ policies.T, 0.0, 1.0)
                bins = np.where(same_state[rows].toarray() > 0, np.minimum((10 * share).astype(np.int64), 9), -1)
                taken_bins = bins[np.arange(rows.size), rows]
                for k in np.unique(bins[bins >= 0]).tolist():
                    inside = (share * (bins == k)).sum(axis=1)
                    total[k] += float((bins == k).sum(axis=1) @ number)
                    expected[k] += float(inside @ number)
                    variance[k] += float((inside * (1 - inside)) @ number)
                    taken[k] += float((taken_bins == k) @ number)
        half = ndtri(0.975) * np.sqrt(variance)
        all_choices = np.maximum(total, 1.0)
        low = np.maximum(expected - half, 0.0)
        high = np.minimum(expected + half, total)
        shares = np.stack([expected, low, high, taken, total * all_choices]) / all_choices
        listed = [PredictedShare._make(shares[:, k].tolist()) for k in np.flatnonzero(total >= FEWEST_DECISIONS)]
        predictions.append(GroupPrediction(name, len(shown.names), listed))
    return predictions
