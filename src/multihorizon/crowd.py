"""Findings about very many persons: what `analyse` gives where a population is asked for and nobody can be fitted alone.

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
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from scipy.special import expit, ndtri

from multihorizon.checks import Floats, Ints
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.horizon import Horizon
from multihorizon.likelihood.state_reward import StateRewardTest
from multihorizon.numerics.chance import chi2_ppf
from multihorizon.population.evidence import CELL_NUMBERS, PopulationEvidence, PopulationFindings
from multihorizon.population.solver import absent_words
from multihorizon.population.types import number_words, open_words
from multihorizon.problem import Problem
from multihorizon.questions.differences import artefact, difference_words, population_answer, population_words, typical_unknown
from multihorizon.questions.model_checks import WORST, Compared, Misfit, extent, extent_words, fit_answer, misfits
from multihorizon.questions.overall_fit import OverallTest, overall_test, overall_words
from multihorizon.questions.population_choices import GroupPrediction, all_choices, expected_choices, predicted_by_group
from multihorizon.questions.study import Recovery
from multihorizon.result import Result, draw_rows, package_version
from multihorizon.solution import Solution, Status
from multihorizon.tables import Table, without_empty
from multihorizon.words import LEVEL, VAGUE_WIDTH, Answer, count, in_words, percent

#: With more persons than this a population is all that is fitted: each person's own fit, intervals and tests would take hours,
#: and nobody reads a list of thousands.
MOST_ALONE = 2000
#: The file with a row for each person, which stands in `result.json` in place of every list of persons.
PEOPLE = "people.parquet"
#: The same for persons and conditions.
CONDITIONS = "conditions.parquet"


#: What a reader must know where the model does not fit.
NO_FIT = "The model does not fit these decisions, so discounts and reward may be wrong, whatever the intervals say."


def is_crowd(tables: Sequence[Demonstrations]) -> bool:
    """Whether the tables have too many persons for each to be fitted alone."""
    return len({name for table in tables for name in table.experts}) > MOST_ALONE


def held_rewards(reason: str) -> str:
    """What must be said where a penalty holds the rewards, for this reason; nothing without one."""
    return reason and (
        f"These decisions alone do not settle all rewards: {reason}. So rewards far from zero were made a "
        "little less likely, which keeps them finite. Rewards that few decisions touch are pulled towards zero by it."
    )


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
    """What tables of persons say of each besides the discount: how reliable it is, or the shares of types and the likeliest.

    Numbers that may not be used are `hidden`, which is NaN then.
    """
    if population.types is None:
        return {"reliability": hidden * population.individuals["discount_reliability"]}
    posterior = hidden * population.individuals["posterior"]
    shares = {f"share_of_type_{k + 1}": posterior[:, k] for k in range(population.types["number"])}
    return {"type": 1 + population.individuals["posterior"].argmax(axis=1) * hidden, **shares}


@dataclass(frozen=True, eq=False, kw_only=True)
class CrowdAnalysis(Result):
    """What `analyse` found about very many persons, in numbers and in words.

    Attributes:
        solution: of `Population`, with the persons who are compared.
        persons: everybody in the tables.
        episodes: how many there are.
        decisions: of each of `persons` `(n,)`.
        chance: the log-likelihood of each of `persons`' decisions `(n,)` if all available actions were equally likely.
        horizon: how far ahead discounts look in the task.
        remarks: how the result was made.
        recovery: simulated studies of this design, where some were handed in.
    """

    solution: Solution
    persons: tuple[str, ...]
    episodes: int
    decisions: Floats
    chance: Floats
    horizon: Horizon
    remarks: list[str] = field(default_factory=list)
    recovery: Recovery | None = None

    #: There is one step: a crowd is known in full or not at all.
    finished: ClassVar[bool] = True
    _drawn: ClassVar[tuple[str, ...]] = ("expert", "shrunken_discount", "shrunken_low", "shrunken_high")

    @property
    def longest(self) -> float:
        """The most steps or the most time that an episode of the task can take; infinite where states can recur."""
        return self.horizon.longest

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
    def compared(self) -> Ints:
        """Where the persons of the solution stand among all `persons`."""
        return pd.Index(self.persons).get_indexer(pd.Index(self.solution.experts))

    @property
    def compared_chance(self) -> float:
        """L₀: the log-likelihood of the decisions of all who are compared, by chance."""
        return float(self.chance[self.compared].sum())

    @cached_property
    def withheld(self) -> str:
        """Why no number may be used; empty where they may."""
        found, types = self.solution, self.population.types
        if types is not None and found.status == Status.NOT_IDENTIFIED and not any(types["identified"]):
            return open_words(types)
        if found.status == Status.NOT_CONVERGED or (types is None and found.status != Status.CONVERGED):
            return f"The population could not be estimated. {found.message}"
        if why := artefact(self.population):
            return why
        deep = 2 * len(self.population.person_terms or ["Intercept"])  # what a person has of their own, and its covariance
        own = 2 * len(self.population.discount) + deep * (deep + 1) // 2 if types is None else 3 * types["number"] - 1
        parameters = own + (0 if self.reward_given else found.reward.size)
        if 2 * (self.evidence.log_likelihood - self.compared_chance) < chi2_ppf(LEVEL, parameters):
            return "These decisions are no likelier than by chance, so they say nothing about discounts."
        return ""

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        types, ridge = self.population.types, 0.0 if self.reward_given else self.solution.options.get("ridge")
        texts = (
            self.withheld and f"Do not use these numbers. {self.withheld}",
            open_words(types) if types is not None and not all(types["identified"]) and not self.withheld else "",
            f"A penalty on large rewards (ridge {ridge:g}) was asked for. What it moves is not known." if ridge else "",
            held_rewards(self.evidence.ridge_reason),
            "" if self.withheld or self._fit().answer != "No" else NO_FIT,
        )
        return [text for text in texts if text]

    @property
    def notes(self) -> list[str]:
        """Of the warnings those that leave the numbers as they are."""
        return [text for text in (self.warnings[1:] if self.withheld else self.warnings) if text != NO_FIT]

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
        known = self.solution.problem is not None
        by_action = known and any(one.arrival_features is None for one in self.solution.require_problem().exemplars)
        if self.reward_given or by_action or self.population.types is None:
            return ""
        return StateRewardTest.untested("there is no such test of types yet").verdict.reasons

    @cached_property
    def quartiles(self) -> tuple[float, float, float]:
        """The quartiles of the discounts of all who are compared, from their posteriors put together."""
        standard = ndtri((np.arange(9) + 0.5) / 9)
        standard /= standard.std()
        known = self.population.individuals
        values = np.add.outer(standard, np.zeros(1)) * known["logit_discount_error"] + known["logit_discount"]
        low, middle, high = self.population.largest_discount * expit(np.quantile(values, [0.25, 0.5, 0.75]))
        return float(low), float(middle), float(high)

    @cached_property
    def verdicts(self) -> tuple[Answer, ...]:
        """Do discounts differ with the covariates, if there are any, or how many types are there? How far do they look ahead? Can
        the data tell? Does the model fit?"""
        asked = population_answer(self.solution, self.horizon) if self.population.types is None else self._number_of_types()
        return (*([] if asked is None else [asked]), self._look_ahead(), self._identifiability(), self._fit())

    def _number_of_types(self) -> Answer | None:
        """Nothing where the search did not end."""
        types = self.population.types
        if types is None or self.solution.status == Status.NOT_CONVERGED:
            return None
        kind: Literal["good", "caution"] = "good" if types["chosen"] and types["tests"][-1]["p"] > 1 - LEVEL else "caution"
        return Answer("How many types are there?", count(types["number"], "type"), number_words(types), kind)

    def _look_ahead(self) -> Answer:
        question = "How far do they look ahead?"
        if self.withheld:
            return Answer(question, "No usable answer", self.withheld, "bad")
        if self.population.types is not None:
            return self._types_look_ahead(self.population.types)
        if typical_unknown(self.population):
            reasons = "The 95 % interval of a typical person's discount holds half of the range of discounts, or more."
            return Answer(question, "Unknown", reasons, "caution")
        low, middle, high = (self.horizon.number(discount) for discount in self.quartiles)
        number = count(len(self.solution.experts), "person")
        reasons = (
            f"Of the {number} a quarter look less than {low} {self.horizon.many} ahead, half "
            f"less than {middle}, and a quarter more than {high} (discounts "
            f"{in_words([f'{discount:.3f}' for discount in self.quartiles])})."
        )
        return Answer(question, f"Half of them less than {middle} {self.horizon.many}, half more", reasons, "good")

    def _types_look_ahead(self, types: dict[str, Any]) -> Answer:
        """The horizons of the types whose discounts are identified, in intervals that are narrow enough to say."""
        question, widths = "How far do they look ahead?", np.ptp(types["intervals"], axis=1)
        clear = np.flatnonzero(np.array(types["identified"]) & (widths <= VAGUE_WIDTH)).tolist()
        rest = types["number"] - len(clear)
        if not clear:
            return Answer(question, "Unknown", "No type's discount is known well enough to say.", "caution")
        reach = in_words([self.horizon.number(types["discounts"][k]) for k in clear])
        who = f"{count(len(clear), 'type')} look{'' if len(clear) > 1 else 's'} {reach} {self.horizon.many} ahead"
        more = "one more" if rest == 1 else f"{rest} more"
        others = f"; of {more} the discount is not known well enough to say" if rest else ""
        return Answer(question, f"{reach} {self.horizon.many}", f"{who}{others}.", "caution" if rest else "good")

    def _identifiability(self) -> Answer:
        """How narrow the intervals of persons are; those of groups stand beside their effects."""
        question, types = "Can the data tell?", self.population.types
        if types is not None and self.solution.status == Status.NOT_IDENTIFIED and self.withheld:
            return Answer(question, "No", self.withheld, "bad")
        if self.withheld:
            return Answer(question, "Not with this fit", "Whether the data identify the discounts is open.", "bad")
        if types is not None:
            widest, sure = float(np.nanmax(np.ptp(types["intervals"], axis=1))), percent(types["certainty"])
            reasons = (
                f"The widest 95 % interval of a type's discount spans {widest:.3f}. The likeliest type of a person or an episode "
                f"has a probability of {sure} on average."
            )
            narrow, known = widest <= VAGUE_WIDTH, sum(types["identified"])
            if known < types["number"]:
                answer = f"For {known} of {count(types['number'], 'type')}"
                return Answer(question, answer, f"{reasons} {open_words(types)}", "caution")
            return Answer(question, "Yes" if narrow else "Barely", reasons, "good" if narrow else "caution")
        widths = np.diff(self.solution.confidence_intervals(LEVEL), axis=1)[:, 0]
        number, vague = widths.size, int((widths > VAGUE_WIDTH).sum())
        are = "is" if vague == 1 else "are"
        reasons = f"{count(vague, 'interval')} {are} wider than {VAGUE_WIDTH:g}. " if vague else ""
        reasons += (
            f"Half of the 95 % intervals of persons span less than {np.median(widths):.3f}. More decisions of each person narrow "
            "these, and more persons narrow those of groups."
        )
        answer = f"For {number - vague:,} of {number:,}" if vague else "Yes"
        return Answer(question, answer, reasons, "caution" if 2 * vague > number else "good")

    def _fit(self) -> Answer:
        """The decisions against choices at random; more is known of fewer persons."""
        question, number = "Does the model fit?", self.evidence.decisions
        of_types = self.population.types is not None and self.solution.status == Status.NOT_IDENTIFIED
        if self.solution.status != Status.CONVERGED and not of_types:
            return Answer(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
        ours, chance = self.evidence.log_likelihood / number, self.compared_chance / number
        reasons = f"A decision has a log-likelihood of {ours:.3f} on average, and {chance:.3f} by chance"
        if self.withheld and not of_types:
            return Answer(question, "No", f"{reasons}, which is no difference.", "bad")
        reasons += f": the model explains {percent(1 - ours / chance)} of it."
        if of_types or self.compared_choices is None:
            return Answer(question, "Better than chance", f"{reasons} {self.not_done} {self.of_states}".strip(), "caution")
        how = extent(self.misfits)
        answer = fit_answer(how, self.overall)
        kind: Literal["caution", "bad"] = "bad" if answer == "No" else "caution"
        alone = "No state stands out." if how.compared else "No state was met often enough to be compared alone."
        states = extent_words(self.misfits) if how.odd else alone
        answer = answer if how.compared else "Better than chance"
        reasons = f"{reasons} {states} {overall_words(self.overall)} {self.not_done} {self.of_states}".strip()
        return Answer(question, answer, reasons, kind)

    @cached_property
    def compared_choices(self) -> Compared | None:
        """Choices beside those that the population expects; None where that is not known."""
        return expected_choices(self.solution)

    @cached_property
    def misfits(self) -> list[Misfit]:
        """Every state with enough decisions to be compared with the population, from the worst fit to the best."""
        return [] if self.compared_choices is None else misfits(self.compared_choices)

    @cached_property
    def overall(self) -> OverallTest:
        """Whether all choices together differ from the population's."""
        if self.population.types is not None:
            return OverallTest.untested("there is no such test of types yet")
        return overall_test(all_choices(self.solution), self.solution.seed or 0)

    @cached_property
    def predicted(self) -> list[GroupPrediction]:
        """What the population predicts of each group, beside what was taken."""
        return [] if self.withheld else predicted_by_group(self.solution)

    @cached_property
    def answer(self) -> str:
        """The answer to what was asked, as `Analysis.answer` has it."""
        return self.warnings[0] if self.withheld else " ".join(difference_words(self.solution, self.horizon))

    @cached_property
    def headline(self) -> str:
        """The opening paragraph: whether groups differ, who looks how far, whether the data can tell, whether the model fits."""
        if self.withheld:
            known = self._number_of_types()
            return " ".join([*([] if known is None else [known.reasons]), *self.warnings, *self.absent])
        groups = [] if len(self.verdicts) > 3 else [self.answer, *population_words(self.solution, self.horizon)]
        return " ".join([*self.warnings, *self.absent, *groups, *(verdict.reasons for verdict in self.verdicts)])

    def sentences(self) -> str:
        """The opening paragraph."""
        return self.headline

    def _facts(self) -> dict[str, Any]:
        found = {"solver": self.solution.solver, "status": str(self.solution.status), "persons": len(self.persons)}
        found |= {"persons compared": len(self.solution.experts), "episodes": self.episodes}
        return found | {"decisions": self.evidence.decisions, "log-likelihood": self.evidence.log_likelihood}

    def _tables(self, compute: bool) -> list[Table]:
        """The groups, not the persons; these, without numbers, where none may be used."""
        known = [] if self.withheld else self.solution.evidence.expert_tables(self.solution)
        return known or [Table(without_empty(self.to_frame(), self._drawn), "persons", self._drawn[1:])]

    def _height(self) -> float:
        return super()._height() if self.withheld else self.solution._height()

    def _draw(self, ax: Any) -> None:
        if self.withheld:
            draw_rows(ax, self.to_frame(), *self._drawn)
        else:
            self.solution._draw(ax)

    @cached_property
    def units(self) -> pd.DataFrame:
        """One row for each person who is compared, or for each person and condition: who, the group, the discount with its
        interval, its logit, the logarithm of the temperature, the reliability, the decisions, and their log-likelihoods by chance
        and as fitted, which are not known by condition."""
        found, lost = self.population, np.nan
        assert found.types is None  # types have no groups
        if found.cells is not None:
            cells = {name: values for name, values in found.cells.items() if name in CELL_NUMBERS}
            return pd.DataFrame(
                {"expert": found.cells["expert"], "group": found.cells["pattern"], **cells, "chance": lost, "fitted": lost}
            )
        ends, own = self.solution.confidence_intervals(LEVEL), found.individuals
        known = {"discount": self.solution.discounts, "low": ends[:, 0], "high": ends[:, 1]}
        known |= {name: own[name] for name in ("logit_discount", "log_temperature", "discount_reliability")}
        known |= {"decisions": self.decisions[self.compared], "chance": self.chance[self.compared]}
        return pd.DataFrame(
            {"expert": self.solution.experts, "group": found.groups, **known, "fitted": own.get("log_likelihood", lost)}
        )

    @cached_property
    def groups(self) -> list[GroupSummary]:
        """What is known of each group; nothing where no number may be used, or there are types in place of groups."""
        if self.withheld or self.population.types is not None:
            return []
        found = self.population
        frame = self.units.groupby(pd.CategoricalIndex(self.units["group"], list(found.predictions)), observed=False)
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
            for name, group in found.predictions.items()
        ]

    def to_frame(self) -> pd.DataFrame:
        """One row for each person in the tables: the columns of `people.parquet`. Values of those left out are missing."""
        found, population = self.solution, self.population
        ends, hidden = found.confidence_intervals(LEVEL), np.nan if self.withheld else 1.0
        known = {
            "shrunken_discount": hidden * found.discounts,
            "shrunken_low": hidden * ends[:, 0],
            "shrunken_high": hidden * ends[:, 1],
            "shrunken_temperature": hidden * np.asarray(found.temperature),
            **unit_columns(population, hidden),
            **{f"covariate_{name}": values for name, values in population.covariates.items() if name != "expert"},
        }
        frame = pd.DataFrame(known, index=self.compared).reindex(range(len(self.persons)))
        frame.insert(0, "expert", list(self.persons))
        frame.insert(1, "decisions", self.decisions.astype(np.int64))
        frame["left_out"] = frame["expert"].map(population.left_out).fillna("") if population.left_out else ""
        return frame

    def conditions_frame(self) -> pd.DataFrame | None:
        """One row for each person and condition: the columns of `conditions.parquet`. None where the formula has no conditions,
        or no number may be used."""
        return None if self.withheld else self.population.conditions_frame()

    def reward_frame(self) -> pd.DataFrame:
        """One row per parameter of the reward, by name, with its standard error; NaN where no number may be used."""
        errors = np.array(self.evidence.reward_standard_errors, dtype=np.float64)
        frame = self.solution.reward_frame().set_index("parameter").assign(standard_error=errors)
        return frame * (np.nan if self.withheld else 1.0)

    def _content(self) -> dict[str, Any]:
        """What `result.json` holds: the same names as for fewer persons, with `PEOPLE` in place of every list of persons."""
        solution, evidence, found, reward = self.solution, self.evidence, self.population, self.reward_frame()
        pairs = [
            {**pair, "steps": [self.horizon(discount) for discount in pair["typical"]]} for pair in found.contrasts["discount"]
        ]
        reasons = pd.Series(found.left_out, dtype=object).value_counts()
        values = "discounts", "intervals", "temperatures"
        lists = dict.fromkeys(("experts", "groups", "covariates", "individuals", *values), PEOPLE)
        return {
            "schema": 2,
            **dict.fromkeys(("experts", "decisions_by_expert", *values), PEOPLE),
            "persons": len(self.persons),
            "warnings": self.warnings,
            "answer": self.answer,
            "headline": self.headline,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "withheld": self.withheld or None,
            "finished": True,
            "quick": False,
            "not_done": self.not_done,
            "level": LEVEL,
            "largest_discount": found.largest_discount,
            "longest_episode": self.longest,
            "time_unit": self.horizon.unit,
            "episodes": self.episodes,
            "decisions": evidence.decisions,
            "chance": self.compared_chance,
            "reward": reward["reward"].to_dict(),
            "reward_standard_errors": None if self.reward_given else reward["standard_error"].to_dict(),
            "status": str(solution.status),
            "message": solution.message,
            "residual": solution.residual,
            "ridge": evidence.ridge,
            "model_checks": {
                "worst_states": [misfit._asdict() for misfit in self.misfits[:WORST]],
                "overall": None if self.withheld else self.overall._asdict(),
            },
            "quartiles": None if self.withheld or found.types is not None else self.quartiles,
            "by_group": {group.name: {k: v for k, v in asdict(group).items() if k != "name"} for group in self.groups},
            "population": {
                "status": str(solution.status),
                "message": solution.message,
                **found,
                **lists,
                **({} if found.cells is None else {"cells": CONDITIONS}),
                "left_out": {str(reason): int(number) for reason, number in reasons.items()},
                "contrasts": {**found.contrasts, "discount": pairs},
                "log_likelihood": evidence.log_likelihood,
                "predicted_by_group": [asdict(group) for group in self.predicted],
            },
            "recovery": None if self.recovery is None else self.recovery.to_dict(),
            "remarks": self.remarks,
            "seconds": solution.seconds,
            "seed": solution.seed,
            "version": package_version(),
        }


def crowd_analysis(solution: Solution, everybody: Problem, episodes: int, remarks: list[str]) -> CrowdAnalysis:
    """What is known of a crowd once its population is solved; some of `everybody` may be left out of the solution."""
    decisions, chance = _by_chance(everybody)
    if solution.problem is not None:  # of those who are compared, decisions under unknown conditions are not
        compared = pd.Index(everybody.names).get_indexer(pd.Index(solution.experts))
        chance[compared] = _by_chance(solution.require_problem())[1]
    return CrowdAnalysis(
        solution=solution,
        persons=everybody.names,
        episodes=episodes,
        decisions=decisions,
        chance=chance,
        horizon=everybody.horizon,
        remarks=remarks,
    )


def _by_chance(problem: Problem) -> tuple[Floats, Floats]:
    """How many decisions each person made `(n,)`, and their log-likelihood if all available actions were equally likely."""
    decisions, chance = np.zeros(problem.n_experts), np.zeros(problem.n_experts)
    for task in problem.by_person().tasks:
        choices = np.log(np.maximum(task.mdp.available.sum(axis=1), 1))
        decisions += np.asarray(task.counts.sum(axis=1)).ravel()
        chance -= task.counts @ np.tile(choices, task.mdp.n_actions)
    return decisions, chance
