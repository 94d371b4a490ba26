"""A fit of decisions with the results of its analyses so far, and whether it may be believed: does the model fit, do the experts
share a goal, does their reward depend on states alone, and what must a reader know before any number?

*Explained.* `1 − L/L₀` (McFadden's pseudo-R²), with L the log-likelihood of an expert's decisions under the fitted policy and L₀
under chance, that is, with all available actions equally likely.

*Chance.* An expert whose decisions are no likelier than under chance, by the likelihood-ratio test with two degrees of freedom (a
discount and a temperature), gets no discount. That test takes the reward as known from the others. So the same is asked of all
experts together first, with a degree for every parameter that was estimated: where all choose at random, nobody gets a discount.

*Worse than a baseline.* Where two halves of the decisions predict each other, p needless parameters lose about p units of
log-likelihood in total, give or take `√(2p)`. A model that loses more than `p + 3√(2p)` against a simpler one predicts
worse than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import Bools, Floats, Ints, first_few
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.exact.identify import Identification
from multihorizon.horizon import Horizon, Lookahead
from multihorizon.likelihood.action_rewards import StateRewardTest
from multihorizon.likelihood.clusters import TakenAsIndependent, WithinEpisodes
from multihorizon.likelihood.estimates import LikelihoodEvidence, SieveEvidence, about_planner, unpredicted
from multihorizon.likelihood.intervals import Contrasts, ProfileIntervals
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.separate import ProfilesApart, Reason
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.parallel import Run
from multihorizon.population.findings import PopulationEvidence
from multihorizon.population.solver import Population
from multihorizon.population.types import open_words
from multihorizon.problem import Problem, SampledProblem
from multihorizon.questions.goal_comparison import GoalCheck, GoalComparison, compare_goals, policies_apart
from multihorizon.questions.goals import group_experts
from multihorizon.questions.lookahead_comparison import LookaheadComparison
from multihorizon.questions.model_checks import (
    MODELS,
    WORST,
    Compared,
    Misfit,
    ModelChecks,
    check_model,
    compared_choices,
    extent,
    extent_words,
    fit_answer,
    misfits,
    overall_words,
)
from multihorizon.questions.people import (
    ALONE,
    GroupPrediction,
    People,
    check_population,
    expected_choices,
    predicted_by_group,
)
from multihorizon.questions.robustness import Robustness
from multihorizon.questions.sharing import SharedDiscountTest, SharedGoalTest, state_reward_test
from multihorizon.questions.study import Recovery
from multihorizon.solution import Deviations, Solution, Status
from multihorizon.words import FORM_ALONE, LEVEL, VAGUE_WIDTH, Finding, Kind, count, decimals, in_words, p_text, percent

if TYPE_CHECKING:
    from multihorizon.likelihood.sieve import RewardFunctions

#: How the future is valued, in words.
VALUES = {"max": "by the best action", "mean": "by the mean of choices"}
#: What was fitted.
FitKind = Literal["experts", "vectors", "people"]
#: Up to this many experts are named one by one.
NAMED_EXPERTS = 5
#: Why an expert has no number, beside the reasons of the solver.
UNPREDICTED = "predicts worse than chance"
UNENDED = "the fit did not end"
IDLE = "no better than chance"
OPEN = "not identified"


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """The numbers of a fit, and the results of the analyses that were made of it.

    Attributes:
        solution: with its problem.
        intervals: of the discounts `(K,2)`, NaN where there is none.
        episodes, decisions: of each expert `(K,)`.
        chance: log-likelihood per decision of each expert `(K,)` if all available actions were equally likely.
        fitted: the same under the fitted policy.
        known: whether each discount was known beforehand, and so was not estimated.
        horizon: how far ahead discounts look in the task: `horizon(0.9)`.
        largest_discount: the largest discount the fit tries: 1, or less in a task that may never end.
        estimated_rewards: how many reward parameters were estimated.
        determined_rewards: how many directions of the reward the decisions can determine, at most.
        contrasts: the reward as differences; not known where states are vectors.
        withheld: why intervals and tests are withheld; empty where they are given.
        shared: the test that all experts have one discount; None for one expert or where withheld.
        pairs: the same for every pair.
        goals: the test that all experts share one reward; None where there was nothing to test.
        remarks: how the result was made.
        quick: whether some of the work was left out to save time.
        finished: whether all that was asked for was computed.

    Attributes of tasks with a list of states, None where states are vectors:
        policies: the fitted policy `(S,A)` of each of the problem's experts.
        checks: held-out predictions; None where they could not be made.
        identification: what exact policies would identify; None where it is not known.
        penalty: what a ridge the user asked for moved.
        lookahead: families of look-ahead on the same decisions, where they were asked for.
        population: the solution of `Population`; None where there was no table of people, or its comparison is withheld.
        recovery: simulated studies of this design, where some were handed in.
        robustness: the answer under rival models of choice, where they were asked.
        state_reward: the test that the reward depends on the state reached alone; None where that is not assumed. Where a reward
            that depends on the action as well predicts clearly better, nothing is said of groups.

    Attribute of continuous states, None elsewhere:
        functions: reward, values and policies as functions of the state.

    Attribute of a population in which nobody is fitted alone, None elsewhere:
        people: everybody in the tables. Then `solution` is that of the population, and nothing is known of single experts.

    Attributes that follow from these:
        kind: what was fitted: experts in a task with a list of states, experts whose states are vectors, or people together.
        likelihood: the evidence of experts in a task with a list of states, None elsewhere.
        sieve: the evidence where states are vectors, None elsewhere.
        reward_given: whether the whole reward was given and none of it estimated.
        goals_differ: whether the experts were found to have different goals.
        deviations: those from one reward that the fit allows for; None where it has one reward for all.
        independence: what was taken to be independent, as in `LikelihoodEvidence`; None where states are vectors.
        reported_population: the population, where there is one with an answer: then it is the model that is reported and checked.
        unequal_temperatures: whether the decisions contradict one temperature for all experts.

    Of each expert; empty of people together:
        identified: whether the decisions identify the discount.
        unpredicted: of experts who share nothing, whether the halves of the decisions predict each other worse than chance;
            nobody where these are more than half, which is a failure of the model.
        reasons: why no discount is given; empty where one is.
        given: whether a discount is given.
        ranged: whether the discount is known to a range and not to a number: choices are too regular for a temperature.
        sure: whether the discount is narrow: it was known, or both ends of its interval were found and are not far apart.
        order: the experts from the shortest horizon to the longest; those without a number come last, by name.
        temperatures: NaN where the decisions do not determine it `(K,)`.
        without_temperature: whose choices do not follow the known reward.
        explained: pseudo-R² `(K,)`, the share of chance's log-likelihood that the fit saves; NaN where there was no choice.
        standard_errors: of the discounts `(K,)`; NaN where no discount is given or errors are withheld.
        limits: "largest" or "smallest" where the discount is no estimate but a limit of what was tried, else None.
        widened: whose intervals `(K,)` are much wider than with one reward for all, so that it is not decisions that are lacking.
    """

    solution: Solution
    intervals: Floats
    episodes: Ints
    decisions: Floats
    chance: Floats
    fitted: Floats
    known: list[bool]
    horizon: Horizon
    largest_discount: float
    estimated_rewards: int
    determined_rewards: int
    contrasts: Contrasts
    withheld: str
    shared: SharedDiscountTest | None = None
    pairs: Sequence[SharedDiscountTest] = ()
    goals: GoalCheck | None = None
    remarks: list[str] = field(default_factory=list)
    quick: bool = False
    finished: bool = False
    policies: list[Floats] = field(default_factory=list)
    checks: ModelChecks | None = None
    identification: Identification | None = None
    penalty: Penalty | None = None
    lookahead: LookaheadComparison | None = None
    population: Solution | None = None
    recovery: Recovery | None = None
    robustness: Robustness | None = None
    state_reward: StateRewardTest | None = None
    functions: RewardFunctions | None = None
    people: People | None = None

    kind: FitKind = field(init=False)
    likelihood: LikelihoodEvidence | None = field(init=False, default=None)
    sieve: SieveEvidence | None = field(init=False, default=None)
    reward_given: bool = field(init=False)
    goals_differ: bool = field(init=False)
    deviations: Deviations | None = field(init=False, default=None)
    independence: TakenAsIndependent | None = field(init=False, default=None)
    reported_population: Solution | None = field(init=False, default=None)
    unequal_temperatures: bool = field(init=False, default=False)
    identified: list[bool] = field(init=False, default_factory=list)
    unpredicted: list[bool] = field(init=False, default_factory=list)
    reasons: list[str] = field(init=False, default_factory=list)
    given: list[bool] = field(init=False, default_factory=list)
    ranged: list[bool] = field(init=False, default_factory=list)
    sure: list[bool] = field(init=False, default_factory=list)
    order: list[int] = field(init=False, default_factory=list)
    temperatures: Floats = field(init=False, default_factory=lambda: np.zeros(0))
    without_temperature: list[int] = field(init=False, default_factory=list)
    explained: Floats = field(init=False)
    standard_errors: Floats = field(init=False, default_factory=lambda: np.zeros(0))
    limits: list[str | None] = field(init=False, default_factory=list)
    widened: Bools = field(init=False, default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def __post_init__(self) -> None:
        """Derive what follows from the numbers."""
        kind = "people" if self.people is not None else "experts" if self.functions is None else "vectors"
        answered = self.population is not None and self.population.status == Status.CONVERGED
        object.__setattr__(self, "reported_population", self.population if answered else None)
        derived: dict[str, Any] = {
            "kind": kind,
            "reward_given": not self.estimated_rewards,
            "goals_differ": self.goals is not None and self.goals.rejected,
            "explained": 1 - self.fitted / np.where(self.chance < 0, self.chance, np.nan),
        }
        if kind != "people":
            derived |= self._of_experts()
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _of_experts(self) -> dict[str, Any]:
        """Return what follows where experts were fitted."""
        likelihood = LikelihoodEvidence.of(self.solution) if self.functions is None else None
        sieve = None if self.functions is None else SieveEvidence.of(self.solution)
        evidence, discounts = self.evidence, self.solution.discounts
        whys = [""] * len(evidence.identified) if likelihood is None else list(likelihood.reasons or [""] * len(discounts))
        unpredicted = self._unpredicted()
        reasons = self._reasons(list(evidence.identified), whys, unpredicted)
        given = [not reason for reason in reasons]
        ranged = [reason in (Reason.SEPARATED, Reason.COLDEST) for reason in reasons]
        widths = self.intervals[:, 1] - self.intervals[:, 0]
        order = self._order(given)
        lost = likelihood is not None and likelihood.lost_temperatures
        temperatures = np.where(lost, np.nan, np.asarray(self.solution.temperature, dtype=np.float64))
        errors = self.solution.standard_errors
        deviations = None if likelihood is None else likelihood.deviations
        deviations = deviations if deviations is not None and deviations.spread > 0 else None
        p_value = evidence.equal_temperatures_p
        return {
            "likelihood": likelihood,
            "sieve": sieve,
            "deviations": deviations,
            "independence": None if likelihood is None else likelihood.independence,
            "unequal_temperatures": p_value is not None and p_value < 1 - LEVEL,
            "identified": list(evidence.identified),
            "unpredicted": unpredicted,
            "reasons": reasons,
            "given": given,
            "ranged": ranged,
            "sure": [g and (fixed or bool(w <= VAGUE_WIDTH)) for g, fixed, w in zip(given, self.known, widths, strict=True)],
            "order": order,
            "temperatures": temperatures,
            "without_temperature": [
                k for k in order if np.isnan(temperatures[k]) and not ranged[k] and whys[k] != Reason.UNFINISHED
            ],
            "standard_errors": np.where(given, np.nan if errors is None or self.withheld else errors, np.nan),
            "limits": [self._limit(k) if given[k] and not self.known[k] else None for k in range(len(given))],
            "widened": self._widened(widths, deviations),
        }

    def _unpredicted(self) -> list[bool]:
        """Return whose halves of the decisions predict each other worse than chance, where experts share nothing."""
        alone = isinstance(self.solution.interval_source, ProfilesApart)
        if self.checks is None or not alone or self.reported_population is not None:
            return [False] * len(self.known)
        lost = (self.chance - self.checks.held_out["this model"]) * self.checks.decisions
        failed = lost > 2 + 3 * np.sqrt(2 * 2)  # a discount and a temperature
        return [bool(one) and 2 * int(failed.sum()) <= failed.size for one in failed]

    def _reasons(self, identified: list[bool], whys: list[str], unpredicted: list[bool]) -> list[str]:
        """Return why no discount is given for each expert; `whys` are the reasons that the solver has."""
        gain = 2 * self.decisions * (self.fitted - self.chance)
        nobody = gain.sum() < chi2_ppf(LEVEL, self.determined_rewards + 2 * gain.size)
        if self.solution.status == Status.NOT_CONVERGED:  # where all choose at random, the likelihood is too flat to be climbed
            return [IDLE if nobody else UNENDED] * gain.size
        idle = ((gain < chi2_ppf(LEVEL, 2)) | nobody) & ~np.array(self.known)
        texts = {
            Reason.UNFINISHED: UNENDED,
            Reason.SEPARATED: Reason.SEPARATED,
            Reason.COLDEST: Reason.COLDEST,
            Reason.RANDOM: IDLE,
        }
        reasons = []
        for determined, why, no_better, failed in zip(identified, whys, idle, unpredicted, strict=True):
            if not determined:
                reasons.append(texts.get(why, OPEN))
            else:
                reasons.append(IDLE if no_better else UNPREDICTED if failed else "")
        return reasons

    def _order(self, given: list[bool]) -> list[int]:
        """Return the experts from the shortest horizon to the longest; those without a number come last, by name."""
        named = zip(given, self.solution.discounts.tolist(), self.solution.experts, strict=True)
        keys = [(not shown, discount if shown else 0.0, name) for shown, discount, name in named]
        return sorted(range(len(keys)), key=keys.__getitem__)

    def _limit(self, k: int) -> str | None:
        """Return the limit of what was tried that the discount of expert k is."""
        discount = float(self.solution.discounts[k])
        return "largest" if discount >= self.largest_discount else "smallest" if discount <= 0 else None

    def _widened(self, widths: Floats, deviations: Deviations | None) -> Bools:
        """Return whose intervals are much wider than with one reward for all."""
        if deviations is None:
            return np.zeros(widths.size, dtype=np.bool_)
        wider: Bools = widths > 1.5 * 2 * ndtri(0.5 + LEVEL / 2) * deviations.if_shared["standard_errors"]
        return wider

    @property
    def problem(self) -> Problem:
        """Return the problem that was fitted."""
        return self.solution.require_problem()

    @cached_property
    def evidence(self) -> LikelihoodEvidence | SieveEvidence:
        """Return what the solver says about its answer; that of a population is `people.evidence`."""
        return (LikelihoodEvidence if self.functions is None else SieveEvidence).of(self.solution)

    @property
    def one_discount_is_open(self) -> bool:
        """Return whether nothing contradicts one discount for all, which is then not identified: all discounts are possible."""
        source = self.solution.interval_source
        return isinstance(source, ProfileIntervals) and source.one_discount_is_open(LEVEL)

    @cached_property
    def compared(self) -> Compared | None:
        """Return choices beside those that the reported model expects; None where it has no predictions of single choices."""
        population = self.reported_population if self.people is None else self.solution
        if ((self.solution if population is None else population).evidence.get("planner") or {}).get("stickiness"):
            return None  # choices follow the last action, too
        return compared_choices(self.problem, self.policies) if population is None else expected_choices(population)

    @property
    def sticky(self) -> bool:
        """Return whether choices depend on the last action."""
        return bool((self.solution.evidence.get("planner") or {}).get("stickiness"))

    @cached_property
    def choosing(self) -> str:
        """Return how people are taken to choose, and what is found of lapses and stickiness; empty for soft values alone."""
        planner = (self.population or self.solution).evidence.get("planner")
        if planner is None:
            return ""
        values = VALUES.get(planner["value"], f"by {planner['value']}")
        said = [] if planner["value"] == "soft" else [f"The future is valued {values}."]
        said += about_planner(planner)
        return " ".join(said)

    @cached_property
    def rests_on(self) -> str:
        """Return whether the answer survives other models of choice, or that it was not asked; empty where it cannot be."""
        if self.robustness is not None:
            return self.robustness.verdict()
        if self.withheld or self.kind == "vectors" or (self.people is not None and self.people.population.types is not None):
            return ""
        assumed = "" if self.choosing else ", soft values without lapses"
        return f"This answer rests on one model of choice{assumed}. Rivals of it were not asked."

    @cached_property
    def misfits(self) -> list[Misfit]:
        """Return every state with enough decisions to be compared with the model, from the worst fit to the best."""
        return [] if self.compared is None else misfits(self.compared)

    @cached_property
    def predicted(self) -> list[GroupPrediction]:
        """Return what the population predicts of each group, beside what was taken; nothing without a population that may be
        used."""
        if self.population is None or (self.people is not None and self.withheld):
            return []
        return predicted_by_group(self.population)


F = TypeVar("F", bound=Fitted)


def named(fitted: Fitted, names: list[str]) -> str:
    """Return the experts by name, or their number where there are many."""
    return in_words(names) if len(fitted.given) <= NAMED_EXPERTS else count(len(names), "expert")


def nobody_better_than_chance(fitted: Fitted) -> bool:
    """Return whether every expert's decisions are no likelier than by chance."""
    return all(reason == IDLE for reason in fitted.reasons)


@dataclass(frozen=True, eq=False, kw_only=True)
class Asked:
    """What `analyse` was asked for, once it is read.

    Attributes:
        problem: what is fitted.
        tables: the decisions, one table for each task; none where states are vectors.
        likelihood: the solver of the fit, where there is a list of states.
        population: what is asked about people; None where nothing is.
        lookahead, pairs, rivals, quick: as in `analyse`.
        remarks: what was assumed of the tables.
    """

    problem: Problem | SampledProblem
    tables: Sequence[Demonstrations] = ()
    likelihood: MaximumLikelihood = field(default_factory=MaximumLikelihood)
    population: Population | None = None
    lookahead: Sequence[Lookahead] = ()
    pairs: bool = False
    rivals: bool = False
    quick: bool
    remarks: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Penalty:
    """A penalty the user asked for, beside the fit without it.

    The penalty decides a discount, and the decisions do not, where it moves the discount by more than 1.96 of its standard errors
    without it, or where there is no such error because the decisions alone do not identify the discount. The interval with the
    penalty would not show that: the stronger the penalty, the narrower it is.
    """

    ridge: float
    without: Solution

    def decides(self, solution: Solution) -> str:
        """Return whose discounts in the solution the penalty decides, in words; empty where the decisions do."""
        errors = self.without.standard_errors
        if errors is None or self.without.status == Status.NOT_CONVERGED:
            return ""
        moved = np.abs(solution.discounts - self.without.discounts)
        here = LikelihoodEvidence.of(solution).identified & ~(moved <= ndtri(0.5 + LEVEL / 2) * errors) & (moved > 0)
        names = first_few([name for name, decided in zip(solution.experts, here, strict=True) if decided])
        return names and (
            f"The penalty on large rewards (ridge {self.ridge:g}), and not the decisions, sets the discounts of these "
            f"experts: {names}. Choose a smaller penalty, or none."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what a file holds."""
        return {
            "ridge": self.ridge,
            "discounts_without": self.without.discounts,
            "log_likelihood_without": self.without.objective,
            "status_without": str(self.without.status),
        }


def held_rewards(reason: str) -> str:
    """Return what must be said where a penalty holds the rewards, for this reason; nothing without one."""
    return reason and (
        f"These decisions alone do not settle all rewards: {reason}. So rewards far from zero were made a "
        "little less likely, which keeps them finite. Rewards that few decisions touch are pulled towards zero by it."
    )


def penalty_words(solution: Solution, penalty: Penalty) -> str:
    """Return what a penalty the user asked for moved."""
    text = f"A penalty on large rewards (ridge {penalty.ridge:g}) was asked for."
    free = penalty.without
    if free.status == Status.NOT_CONVERGED:
        return f"{text} Without it the fit does not converge, so what it moved is not known."
    pairs = zip(solution.experts, free.discounts, solution.discounts, strict=True)
    moved = [
        f"{name} from {decimals(before, 3)} to {decimals(after, 3)}"
        for name, before, after in pairs
        if abs(before - after) >= 0.0005
    ]
    lost = free.objective - solution.objective
    who = in_words(moved) if moved else "no discount by 0.001 or more"
    text += f" It costs {decimals(lost, 2)} in log-likelihood and moves {who}."
    if (np.argsort(free.discounts) != np.argsort(solution.discounts)).any() and moved:
        text += " It changes the order of the discounts, so do not rely on the order."
    return text


QUESTION = "Does the model fit?"
#: What is said of a fit that gave no answer.
FIT_FAILED = Finding(QUESTION, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")


def model_fit(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding:
    """Say whether the model fits."""
    return replace(_model_fit(fitted), content=checks_content(fitted))


def _model_fit(fitted: Fitted) -> Finding:
    """Say it of people together, of continuous states, or of a list of states."""
    if fitted.people is not None:
        return _of_people(fitted, fitted.people)
    if fitted.sieve is not None:
        return _of_vectors(fitted, fitted.sieve)
    compared = fitted.compared
    if compared is None and fitted.sticky:
        return Finding(
            QUESTION, "Not tested", "Choices depend on the last action, and are not compared state by state.", "caution"
        )
    if compared is None:
        reasons = (
            "People have rewards of their own in this population, or conditions that are not known: there is no check of it."
        )
        return Finding(QUESTION, "Not tested", reasons, "caution")
    if not fitted.chance.any():
        return Finding(QUESTION, "Not tested", "There was nothing to choose: each state has a single action.", "caution")
    if fitted.checks is None:
        return Finding(QUESTION, "Not checked", "Whether the model predicts new decisions was not checked.", "caution")
    return _of_lists(fitted, _reported(fitted, fitted.checks), compared.repeat)


def _of_lists(fitted: Fitted, checks: ModelChecks, repeat: bool) -> Finding:
    """Say whether the model predicts new decisions, better than simpler models and as well as the experts' own habits."""
    judged = np.where(fitted.unpredicted, 0.0, checks.decisions)
    total = {name: float(values @ judged) for name, values in checks.held_out.items()}
    number = float(judged.sum())

    def per_decision(value: float) -> str:  # three decimals, and more where these would show nothing
        each = value / number
        if abs(each) >= 0.01:
            return decimals(each, 3)
        return np.format_float_positional(each, precision=2, fractional=False, trim="-")

    gain = total["this model"] - float(fitted.chance @ judged)
    worse = _worse(fitted, checks)
    if gain <= 0:
        worse = worse or "The model predicts held-out decisions no better than chance."
    surely, perhaps, together = _within_episodes(checks.within)
    if surely:
        return Finding(QUESTION, "No", f"The model does not fit: {together} {worse}".strip(), "bad", checks)
    if worse:
        return Finding(QUESTION, "No", worse, "bad", checks)
    if fitted.withheld:
        return FIT_FAILED
    lost = total["own frequencies"] - total["this model"]
    if repeat and lost > 3 * np.sqrt(2 * (fitted.estimated_rewards + len(checks.experts))):
        reasons = (
            "The model does not fit: each expert's own habits predict held-out decisions better, by "
            f"{per_decision(lost)} in log-likelihood per decision. {_not_explained(fitted)}"
        )
        return Finding(QUESTION, "No", reasons, "bad", checks)
    better = f"it predicts held-out decisions better than chance, by {per_decision(gain)} in log-likelihood per decision"
    how = extent(fitted.misfits)
    answer = fit_answer(how, checks.overall)
    if how.odd:
        where = "does not fit" if how.answer == "No" else f"fits {how.answer[0].lower()}{how.answer[1:]}"
        reasons = f"The model {where}: {better}. {extent_words(fitted.misfits)}"
        reasons += "" if answer == how.answer else f" {overall_words(checks.overall)}"
        reasons += f" Besides, {together}" if perhaps else together
        return Finding(QUESTION, answer, reasons, "bad" if how.answer == "No" else "caution", checks)
    alone = "no state stands out" if how.compared else "no state repeats often enough to be compared alone"
    if perhaps:
        reasons = f"State by state the model fits: {better}, and {alone}. But {together}"
        return Finding(QUESTION, "Perhaps not", reasons, "caution", checks)
    if answer != "No misfit detected":
        overall = overall_words(checks.overall, begin=False)
        reasons = f"State by state the model fits: {better}, and {alone}. But {overall}{together}"
        return Finding(QUESTION, answer, reasons, "caution", checks)
    reasons = f"No misfit was detected: {better}, and {alone}. {overall_words(checks.overall)}{together}"
    return Finding(QUESTION, answer, reasons, "good", checks)


def _within_episodes(within: WithinEpisodes) -> tuple[bool, bool, str]:
    """Return whether choices of one episode surely, or perhaps, go together, and what that means."""
    surely, perhaps = within.p_value <= 0.001, within.p_value <= 1 - LEVEL
    if within.reason:
        return (
            surely,
            perhaps,
            f" Whether something outside the state column changes between episodes was not tested: {within.reason}.",
        )
    if not perhaps:
        return surely, perhaps, ""
    return (
        surely,
        perhaps,
        f"choices of one episode go together more than their states explain (p {'≤' if surely else '='} "
        f"{decimals(within.p_value, 3)}). So something outside the state column, such as the goal, "
        f"{'changes' if surely else 'may change'} between episodes; if it was recorded, make it part of the state.",
    )


def _not_explained(fitted: Fitted) -> str:
    """Say why own habits may predict better."""
    if fitted.goals_differ:
        return "They do not share one goal."
    if fitted.deviations is not None:
        return "The experts do something that a nearly shared reward and one discount each cannot explain."
    return "The experts do something that one shared reward and one discount each cannot explain."


def _of_vectors(fitted: Fitted, evidence: SieveEvidence) -> Finding:
    """Say whether the model explains what the choices' own logits explain, and next states are predicted at all."""
    if nobody_better_than_chance(fitted):
        return Finding(QUESTION, "No", "The model explains the decisions no better than chance.", "bad")
    if fitted.withheld:
        return FIT_FAILED
    share = evidence.explained_share
    weak = unpredicted(evidence.next_state_r2)
    reasons = (
        f"One reward and {count(len(fitted.solution.experts), 'discount')} explain {decimals(100 * share, 0)}% of what the same "
        "functions explain of the choices without any plan. Whether something outside the state changes between episodes was "
        "not tested."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= 0.95 and not weak
    return Finding(QUESTION, "Yes" if good else "In part", reasons, "good" if good else "caution")


def _of_people(fitted: Fitted, people: People) -> Finding:
    """Compare the decisions with choices at random; more is known of fewer people."""
    number = people.evidence.decisions
    of_types = people.population.types is not None and people.solution.status == Status.NOT_IDENTIFIED
    if people.solution.status != Status.CONVERGED and not of_types:
        return FIT_FAILED
    ours, chance = people.evidence.log_likelihood / number, people.compared_chance / number
    reasons = f"A decision has a log-likelihood of {decimals(ours, 3)} on average, and {decimals(chance, 3)} by chance"
    if fitted.withheld and not of_types:
        return Finding(QUESTION, "No", f"{reasons}, which is no difference.", "bad")
    reasons += f": the model explains {percent(1 - ours / chance)} of it."
    if of_types or fitted.compared is None:
        return Finding(QUESTION, "Better than chance", f"{reasons} {people.not_done} {people.of_states}".strip(), "caution")
    how = extent(fitted.misfits)
    answer = fit_answer(how, people.overall)
    alone = "No state stands out." if how.compared else "No state was met often enough to be compared alone."
    states = extent_words(fitted.misfits) if how.odd else alone
    reasons = f"{reasons} {states} {overall_words(people.overall)} {people.not_done} {people.of_states}".strip()
    kind: Kind = "bad" if answer == "No" else "caution"
    return Finding(QUESTION, answer if how.compared else "Better than chance", reasons, kind, people.overall)


def _worse(fitted: Fitted, checks: ModelChecks) -> str:
    """Return the simpler model that predicts held-out decisions clearly better than the model that is reported, in words."""
    return predicts_worse(checks, fitted.chance, fitted.estimated_rewards, failed=fitted.unpredicted)


def _reported(fitted: Fitted, checks: ModelChecks) -> ModelChecks:
    """Return the checks of the model that is reported.

    Where one discount for all is open, no discount is given, and those of the experts are noise that costs more than their number
    says. What is reported is then the best of the models with a discount for each, with one for all, and with 0.
    """
    if fitted.reported_population is not None or not fitted.one_discount_is_open:
        return checks
    best = max(MODELS[:3], key=lambda name: float(checks.held_out[name] @ checks.decisions))
    return replace(checks, held_out={**checks.held_out, MODELS[0]: checks.held_out[best]})


def predicts_worse(
    checks: ModelChecks, chance: Floats, parameters: int, model: str = MODELS[0], failed: Sequence[bool] = ()
) -> str:
    """Return the simpler model that predicts held-out decisions clearly better than `model`, in words; empty if there is none.

    Those who `failed` alone have no answer, and are not judged with the others.
    """
    judged = np.where(failed, 0.0, checks.decisions) if failed else checks.decisions
    K = int((judged > 0).sum())
    ours = float(checks.held_out[model] @ judged)
    rivals = {
        "chance": (float(chance @ judged), K + parameters),
        "a model in which nobody looks ahead": (float(checks.held_out["discount 0"] @ judged), K),
        "a model with one discount for all": (float(checks.held_out["one shared discount"] @ judged), K - 1),
    }
    who = "The model predicts" if model == MODELS[0] else "Fitted one by one, experts predict"
    for name, (value, extra) in rivals.items():
        if extra and value - ours > extra + 3 * np.sqrt(2 * extra):
            return (
                f"{who} held-out decisions worse than {name}: their log-likelihood is lower by {decimals(value - ours, 1)} "
                f"in all ({decimals(judged.sum(), 0)} decisions)."
            )
    return ""


def checks_content(fitted: Fitted) -> dict[str, Any]:
    """Return held-out predictions and the states that fit worst; own frequencies only where choices repeat."""
    if fitted.functions is not None:
        return {"model_checks": None}
    worst = {"worst_states": [misfit._asdict() for misfit in fitted.misfits[:WORST]]}
    if fitted.people is not None:
        return {"model_checks": worst | {"overall": None if fitted.withheld else fitted.people.overall._asdict()}}
    if fitted.checks is None:
        return {"model_checks": worst}
    checks = fitted.checks.to_dict()
    checks["held_out"]["chance"] = fitted.chance.tolist()
    if fitted.compared is None or not fitted.compared.repeat:
        del checks["held_out"]["own frequencies"]
    return {"model_checks": checks}


def check_fit(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
    """Add predictions of held-out episodes; a model that predicts worse than a simpler one is not to be used."""
    solution, reported = fitted.solution, fitted.reported_population
    try:
        if asked.population is None or reported is None:
            checks = check_model(solution, seed=run.seed, progress=run.progress)
        else:
            checks = check_population(asked.population, reported, solution, run=run)
    except ValueError as error:
        remark = f"The model was not checked on held-out episodes: {error}."
        yield replace(fitted, remarks=[*fitted.remarks, remark])
        return
    fitted = replace(fitted, checks=checks)
    yield replace(fitted, withheld=fitted.withheld or _worse(fitted, _reported(fitted, checks)))


def checked_goals(fitted: Fitted, test: SharedGoalTest) -> GoalCheck:
    """Return the test of one reward; where it rejects, how widely the model fits if each expert has a reward of their own."""
    solution = fitted.solution
    deviations = LikelihoodEvidence.of(solution).deviations
    apart = None
    if test.rejected:
        apart = extent(misfits(compared_choices(solution.require_problem(), policies_apart(solution))))
    nothing = GoalComparison(solution.experts, test, deviations, np.zeros(0, dtype=np.int64), {})
    idle = nobody_better_than_chance(fitted)
    at_random = "Choices that are no likelier than by chance say nothing of goals." if idle else ""
    return GoalCheck(test, apart=apart, comparison=nothing, withheld=at_random)


def find_goals(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
    """Add one goal, nearly one and several on held-out episodes; and where goals differ, who shares one with whom."""
    goals = fitted.goals
    if goals is None:
        return
    # With more experts or rewards, it takes long to look for groups.
    few = fitted.problem.n_experts <= 12 and fitted.problem.n_parameters <= 60
    few = few and not any(fitted.known) and asked.likelihood.known_reward is None
    first, last = run.parts(3, 2)
    allowed = goals.comparison is not None and goals.comparison.deviations is not None
    if fitted.checks is not None and not fitted.withheld and (goals.test.rejected or allowed):
        comparison = compare_goals(fitted.solution, several=few, test=goals.test, seed=run.seed, progress=first.progress)
        goals = replace(goals, comparison=comparison)
        yield replace(fitted, goals=goals)
    if goals.rejected and few:
        groups = group_experts(fitted.solution, goals.test, asked.likelihood.temperature, last)
        yield replace(fitted, goals=replace(goals, groups=groups))


def not_to_be_used(solution: Solution, contrasts: Contrasts | None = None) -> str:
    """Return why a fit is no finding; empty where it is one. `contrasts` are rewards of states or features, which may run
    away."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit did not finish, so these numbers are only where the search stood when it was stopped."
    if contrasts is None:
        return ""
    # A difference of 100 temperatures makes the odds of a choice e^100: if its error is as large, no decision holds it back.
    most = 100.0 * (1.0 if solution.temperature is None else float(np.max(solution.temperature)))
    problem = solution.require_problem()
    sizes = problem.reward_sizes  # the largest value of each feature, whose reward it is that matters
    values, errors = sizes * np.abs(contrasts.values), sizes * contrasts.standard_errors
    if ((values > most) & (errors > most)).any():
        size = float(np.nanmax(values))
        return f"A reward diverges: it reaches {decimals(size, 0)}, and no decision in the table holds it back."
    return ""


def check_state_reward(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
    """Add the test that the reward depends on the state reached alone, and take away what does not hold without that.

    Where the same people decided under conditions, only the population knows of these, so its test counts.
    """
    compared = None if fitted.population is None else PopulationEvidence.of(fitted.population).population
    of_persons = None if compared is None or compared.state_reward is None else StateRewardTest.read(compared.state_reward)
    test = of_persons
    if fitted.penalty is not None and fitted.withheld:
        test = StateRewardTest.untested("the penalty on large rewards sets the answer")
    elif compared is None or not compared.conditions:
        goals = None if fitted.goals is None else fitted.goals.test
        of_fit = state_reward_test(fitted.solution, goals, run)
        test = of_fit if of_persons is None or not of_persons.clear else of_persons
    fitted = replace(fitted, state_reward=test)
    if test is not None and test.clear:
        checked = None if fitted.goals is None else replace(fitted.goals, withheld=test.why)
        fitted = replace(fitted, withheld=test.why, goals=checked, population=None)
    yield fitted


def warnings_of(fitted: Fitted, answers: Mapping[str, Finding]) -> Iterator[str]:
    """Yield that no number may be used, or that an assumption is rejected; an empty text where there is nothing to say."""
    if fitted.withheld:
        yield _unusable(fitted)
    elif answers["fit"].answer == "No" and not fitted.goals_differ:
        yield "The model does not fit these decisions, so discounts and reward may be wrong, whatever the intervals say."
    if fitted.people is not None:
        return
    if fitted.goals is not None and fitted.goals_differ:
        yield f"The experts do not share one goal. {fitted.goals.verdict.reasons}"
    if not fitted.finished:
        yield "Stopped before the end: intervals, tests and model checks that are missing were not computed."
    if _one_temperature(fitted) and fitted.unequal_temperatures:
        yield (
            f"One temperature for all experts is rejected (p {p_text(fitted.evidence.equal_temperatures_p or 0.0)}): some of "
            "them choose more at random than others, and a shared temperature turns that into a difference of horizons. Let each "
            "expert have a temperature."
        )
    yield _lost_temperatures(fitted)
    if fitted.sieve is not None and fitted.sieve.basis_too_poor:
        yield "The basis is too poor: richer functions predict choices better, and the discounts may be far off."


def notes_of(fitted: Fitted) -> Iterator[str]:
    """Yield what leaves the numbers as they are, such as penalties; an empty text where there is nothing to say."""
    if fitted.people is not None:
        yield from _notes_of_people(fitted, fitted.people)
        return
    if fitted.goals is not None and fitted.goals.test.reason:
        yield fitted.goals.test.sentences()
    if fitted.functions is None and fitted.problem.by_form_alone and fitted.given[0] and not fitted.known[0]:
        yield "" if fitted.reward_given else FORM_ALONE
    if fitted.checks is not None and ALONE in fitted.checks.held_out:
        alone = predicts_worse(fitted.checks, fitted.chance, fitted.estimated_rewards, ALONE)
        yield alone and f"{alone} So do not use the discounts of single experts that were fitted alone, but the shrunken ones."
    yield "" if fitted.penalty is None else penalty_words(fitted.solution, fitted.penalty)
    yield "" if fitted.likelihood is None else held_rewards(fitted.likelihood.ridge_reason)


def _unusable(fitted: Fitted) -> str:
    """Say that no number may be used, and what usually helps."""
    text = f"Do not use these numbers. {fitted.withheld}"
    of_reward = fitted.state_reward is not None and fitted.withheld == fitted.state_reward.why
    if of_reward or fitted.people is not None:
        return text
    fewer = "fewer reward parameters (features)" if fitted.functions is None else "fewer basis functions"
    each = ", or a temperature for each expert," if _one_temperature(fitted) and len(fitted.given) > 1 else ","
    return f"{text} Intervals and tests are withheld. More decisions, or {fewer}{each} usually help."


def _one_temperature(fitted: Fitted) -> bool:
    """Return whether all experts have the same temperature."""
    return bool(np.ptp(np.asarray(fitted.solution.temperature)) == 0)


def _notes_of_people(fitted: Fitted, people: People) -> Iterator[str]:
    """Yield which types have no discount, and what holds the rewards."""
    types = people.population.types
    if types is not None and not all(types["identified"]) and not fitted.withheld:
        yield open_words(types)
    ridge = 0.0 if people.reward_given else people.solution.options.get("ridge")
    if ridge:
        yield f"A penalty on large rewards (ridge {ridge:g}) was asked for. What it moves is not known."
    yield held_rewards(people.evidence.ridge_reason)


def _lost_temperatures(fitted: Fitted) -> str:
    """Return what must be said where a known reward does not show how random the choices are."""
    regular = [fitted.solution.experts[k] for k in fitted.order if fitted.ranged[k]]
    lost = [fitted.solution.experts[k] for k in fitted.without_temperature]
    text = []
    if regular:
        text.append(
            f"{named(fitted, regular)} chose so regularly that no temperature is too low for them: their discounts are known to "
            "ranges at most, and not to numbers."
        )
    if lost:
        text.append(
            f"The temperature of {named(fitted, lost)} cannot be estimated, and neither can the discount: they chose without "
            "regard to the known reward, or it says nothing about their choices."
        )
    return " ".join(text)
