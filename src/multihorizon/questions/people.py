"""Persons who were compared and not fitted alone: their distribution, their groups, and what is known of each.

`Population` says how discounts differ between groups and between persons, and shrinks each person's towards those of similar
ones. All that is said here follows from its solution and from the counts of decisions.

*Distribution.* Shrunken discounts lie closer together than persons do: the less their decisions say, the closer. What is said of
all persons is therefore taken from their posteriors put together: with m_i and e_i the mean and the standard error of the logit
of person i's discount, the mixture of all N(m_i, e_i²), with a few equally likely values in place of each.

*Fit.* With persons averaged out, the log-likelihood L of the decisions is that of persons who were not seen before. L₀ is that
of choices among all available actions with equal probabilities. `1 − L/L₀` is the share of L₀ that the model explains. Where
2 (L − L₀) is no larger than by chance (χ² with a degree of freedom for each parameter of population and reward), the decisions
say nothing, and no number is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, ndtri

from multihorizon.checks import Floats, Ints
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.likelihood.state_reward import StateRewardTest
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.population.evidence import CELL_NUMBERS, PopulationEvidence, PopulationFindings
from multihorizon.population.solver import absent_words
from multihorizon.population.types import open_words
from multihorizon.problem import Problem
from multihorizon.questions.differences import artefact
from multihorizon.questions.model_checks import OverallTest, overall_test
from multihorizon.questions.population_choices import all_choices
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL

#: The file with a row for each person, which stands in `result.json` in place of every list of persons.
PEOPLE = "people.parquet"
#: The same for persons and conditions.
CONDITIONS = "conditions.parquet"
#: With more persons than this a population is all that is fitted: each person's own fit, intervals and tests would take hours,
#: and nobody reads a list of thousands.
MOST_ALONE = 2000


def is_crowd(tables: Sequence[Demonstrations]) -> bool:
    """Return whether the tables have too many persons for each to be fitted alone."""
    return len({name for table in tables for name in table.experts}) > MOST_ALONE


@dataclass(frozen=True, eq=False)
class GroupSummary:
    """What is known of the persons of one group, or under one combination of conditions.

    Attributes:
        name: of the group: its covariates and conditions, numbers at their mean.
        persons, decisions: how many there are.
        typical, typical_interval, new_person_interval: the discount of a typical person, its interval, and where 95 % of new
            persons are expected.
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
    """Return what tables of persons say of each besides the discount: how reliable it is, or the shares of types and the
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
        """Return the persons of a solution of `Population`; some of `everybody` may be left out of it."""
        decisions, chance = _by_chance(everybody)
        if solution.problem is not None:  # of those who are compared, decisions under unknown conditions are not
            compared = pd.Index(everybody.names).get_indexer(pd.Index(solution.experts))
            chance[compared] = _by_chance(solution.require_problem())[1]
        return cls(solution=solution, names=everybody.names, decisions=decisions, chance=chance)

    @property
    def evidence(self) -> PopulationEvidence:
        """What the solver says about its answer."""
        return PopulationEvidence.of(self.solution)

    @property
    def population(self) -> PopulationFindings:
        """What was found of groups and persons."""
        return self.evidence.population

    @property
    def reward_given(self) -> bool:
        """Whether the whole reward was given and none of it estimated."""
        return all(error == 0 for error in self.evidence.reward_standard_errors)

    @cached_property
    def places(self) -> Ints:
        """Where the persons of the solution stand among all `names`."""
        return pd.Index(self.names).get_indexer(pd.Index(self.solution.experts))

    @property
    def compared_chance(self) -> float:
        """L₀: the log-likelihood of the decisions of all who are compared, by chance."""
        return float(self.chance[self.places].sum())

    @cached_property
    def withheld(self) -> str:
        """Why no number may be used; empty where they may."""
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
        """Who is left out of the comparison, as a sentence; nothing where nobody is."""
        return absent_words(self.population.left_out, self.population.persons)

    @property
    def not_done(self) -> str:
        """What is done only for fewer persons, or without types."""
        why, instead = f"With more than {MOST_ALONE:,} persons", f"fit a sample of at most {MOST_ALONE:,} persons"
        if self.population.types is not None:
            why, instead = "Where types are asked for,", "fit persons with names and without types"
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
        """The quartiles of the discounts of all who are compared, from their posteriors put together."""
        standard = ndtri((np.arange(9) + 0.5) / 9)
        standard /= standard.std()
        each = self.population.individuals
        values = np.add.outer(standard, np.zeros(1)) * each["logit_discount_error"] + each["logit_discount"]
        low, middle, high = self.population.largest_discount * expit(np.quantile(values, [0.25, 0.5, 0.75]))
        return float(low), float(middle), float(high)

    @cached_property
    def overall(self) -> OverallTest:
        """Whether all choices together differ from the population's."""
        if self.population.types is not None:
            return OverallTest.untested("there is no such test of types yet")
        return overall_test(all_choices(self.solution), self.solution.seed or 0)

    @cached_property
    def units(self) -> pd.DataFrame:
        """One row for each person who is compared, or for each person and condition: who, the group, the discount with its
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
        """What is known of each group; nothing where no number may be used, or there are types in place of groups."""
        if self.withheld or self.population.types is not None:
            return []
        predictions = self.population.predictions
        frame = self.units.groupby(pd.CategoricalIndex(self.units["group"], list(predictions)), observed=False)
        mean, size = frame["discount_reliability"].mean(), frame["expert"].nunique()
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


def _by_chance(problem: Problem) -> tuple[Floats, Floats]:
    """Return how many decisions each person made `(n,)`, and their log-likelihood if all available actions were equally
    likely."""
    decisions, chance = np.zeros(problem.n_experts), np.zeros(problem.n_experts)
    for task in problem.by_person().tasks:
        choices = np.log(np.maximum(task.mdp.available.sum(axis=1), 1))
        decisions += np.asarray(task.counts.sum(axis=1)).ravel()
        chance -= task.counts @ np.tile(choices, task.mdp.n_actions)
    return decisions, chance
