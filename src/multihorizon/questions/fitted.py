"""A fit of decisions with what has been found of it so far: the numbers that analyses read and their words follow from.

*Explained.* `1 − L/L₀` (McFadden's pseudo-R²), with L the log-likelihood of an expert's decisions under the fitted policy and L₀
under chance, that is, with all available actions equally likely.

*Chance.* An expert whose decisions are no likelier than under chance, by the likelihood-ratio test with two degrees of freedom (a
discount and a temperature), gets no discount. That test takes the reward as known from the others. So the same is asked of all
experts together first, with a degree for every parameter that was estimated: where all choose at random, nobody gets a discount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import Bools, Floats, Ints, first_few
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.steps import Steps
from multihorizon.exact.identify import Identification
from multihorizon.horizon import Horizon, Lookahead
from multihorizon.likelihood.evidence import LikelihoodEvidence, SieveEvidence, TakenAsIndependent
from multihorizon.likelihood.intervals import Contrasts, ProfileIntervals, ProfilesApart
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.persons import COLDEST, RANDOM, SEPARATED, UNFINISHED
from multihorizon.likelihood.state_reward import StateRewardTest
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.population.solver import Population
from multihorizon.problem import Problem, SampledProblem
from multihorizon.questions.goal_comparison import GoalCheck
from multihorizon.questions.lookahead_comparison import LookaheadComparison
from multihorizon.questions.model_checks import Compared, Misfit, ModelChecks, compared_choices, misfits
from multihorizon.questions.people import GroupPrediction, People, expected_choices, predicted_by_group
from multihorizon.questions.shared_discount import SharedDiscountTest
from multihorizon.questions.study import Recovery
from multihorizon.solution import Deviations, Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, count, in_words

if TYPE_CHECKING:
    from multihorizon.likelihood.sieve import RewardFunctions, SieveLikelihood


#: What was fitted.
Kind = Literal["experts", "vectors", "people"]
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
        population: the solution of `Population`; None where there was no table of persons, or its comparison is withheld.
        recovery: simulated studies of this design, where some were handed in.
        state_reward: the test that the reward depends on the state reached alone; None where that is not assumed. Where a reward
            that depends on the action as well predicts clearly better, nothing is said of groups.

    Attribute of states that are vectors, None elsewhere:
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
    state_reward: StateRewardTest | None = None
    functions: RewardFunctions | None = None
    people: People | None = None

    kind: Kind = field(init=False)
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
        ranged = [reason in (SEPARATED, COLDEST) for reason in reasons]
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
            "without_temperature": [k for k in order if np.isnan(temperatures[k]) and not ranged[k] and whys[k] != UNFINISHED],
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
        texts = {UNFINISHED: UNENDED, SEPARATED: SEPARATED, COLDEST: COLDEST, RANDOM: IDLE}
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
        """The problem that was fitted."""
        return self.solution.require_problem()

    @cached_property
    def evidence(self) -> LikelihoodEvidence | SieveEvidence:
        """What the solver says about its answer; that of a population is `people.evidence`."""
        return (LikelihoodEvidence if self.functions is None else SieveEvidence).of(self.solution)

    @property
    def longest(self) -> float:
        """H, the most steps or the most time that an episode of the task can take; infinite where states can recur."""
        return self.horizon.longest

    @property
    def ahead(self) -> str:
        """What a horizon is counted in: steps, or units of time where moves take time."""
        return self.horizon.many

    @property
    def one_discount_is_open(self) -> bool:
        """Whether nothing contradicts one discount for all, which is then not identified: all discounts are possible."""
        source = self.solution.interval_source
        return isinstance(source, ProfileIntervals) and source.one_discount_is_open(LEVEL)

    @cached_property
    def compared(self) -> Compared | None:
        """Choices beside those that the reported model expects; None where it has no predictions of single choices."""
        population = self.reported_population if self.people is None else self.solution
        return compared_choices(self.problem, self.policies) if population is None else expected_choices(population)

    @cached_property
    def misfits(self) -> list[Misfit]:
        """Every state with enough decisions to be compared with the model, from the worst fit to the best."""
        return [] if self.compared is None else misfits(self.compared)

    @property
    def choices_repeat(self) -> bool:
        """Whether most decisions can be compared with the model for each expert alone."""
        return self.compared is not None and self.compared.repeat

    @cached_property
    def predicted(self) -> list[GroupPrediction]:
        """What the population predicts of each group, beside what was taken; nothing without a population that may be used."""
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
        steps: the decisions where states are vectors.
        solver: of the fit.
        population: what is asked about persons; None where nothing is.
        lookahead, pairs, quick, seed, jobs: as in `analyse`.
        remarks: what was assumed of the tables.
    """

    problem: Problem | SampledProblem
    tables: Sequence[Demonstrations] = ()
    steps: Steps | None = None
    solver: MaximumLikelihood | SieveLikelihood
    population: Population | None = None
    lookahead: Sequence[Lookahead] = ()
    pairs: bool = False
    quick: bool
    seed: int
    jobs: int
    remarks: Sequence[str] = ()

    @property
    def likelihood(self) -> MaximumLikelihood:
        """The solver of a task with a list of states."""
        assert isinstance(self.solver, MaximumLikelihood)
        return self.solver


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
    moved = [f"{name} from {before:.3f} to {after:.3f}" for name, before, after in pairs if abs(before - after) >= 0.0005]
    lost = free.objective - solution.objective
    text += f" It costs {lost:.2f} in log-likelihood and moves {in_words(moved) if moved else 'no discount by 0.001 or more'}."
    if (np.argsort(free.discounts) != np.argsort(solution.discounts)).any() and moved:
        text += " It changes the order of the discounts, so do not rely on the order."
    return text
