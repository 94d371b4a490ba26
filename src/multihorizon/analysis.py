"""From tables to findings, for every kind of state: what `mh.analyse` and `multihorizon fit` run.

`analyse` takes its steps in this order: transitions (given, or estimated from the tables), the fit, the test that all share one
reward, groups of persons, families of look-ahead, what exact policies would identify, predictions of held-out episodes, profile
intervals, and tests of shared discounts. Intervals and tests come last: a fit that did not converge, or predicts worse than a
simpler model, gets none. Where states are vectors, the fit is `SieveLikelihood`, and some steps do not exist. Every number of an
`Analysis` is computed once. Its words follow from the numbers: warnings, verdicts, advice. A report only reads both.

*Explained.* `1 − L/L₀` (McFadden's pseudo-R²), with L the log-likelihood of an expert's decisions under the fitted policy and L₀
under chance, that is, with all available actions equally likely.

*Chance.* An expert whose decisions are no likelier than under chance, by the likelihood-ratio test with two degrees of freedom (a
discount and a temperature), gets no discount. That test takes the reward as known from the others. So the same is asked of all
experts together first, with a degree for every parameter that was estimated: where all choose at random, nobody gets a discount.

*Worse than a baseline.* Where two halves of the decisions predict each other, p needless parameters lose about p units of
log-likelihood in total, give or take `√(2p)`. A model that loses more than `p + 3√(2p)` against a simpler one predicts
worse than it.

*Goals.* Real persons rarely share a reward to the last digit. So unless it is asked for one reward, personal deviations from it
are estimated, and kept where the decisions reject that there are none. Whether the goal is one, nearly one, or several is judged
on held-out decisions (`goal_comparison`). Experts who do not plan as the model says, or who act on something that it leaves out,
look as if they had different goals, too. So where one reward is rejected, the choices are compared with the model once more, each
expert with a reward of their own. Only if that fits are different goals the finding.

*Identifiability* has two sides that must agree: the Fisher information at the answer (do *these* decisions determine the
discounts?) and `identify` on the fitted policies (could any number of decisions in this task?).

*Verdicts* answer what a reader asks in turn: how far do they look ahead, can the data tell, does the model fit, do they share a
goal? Where a result must not be used, that comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtri

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Bools, Floats, Ints, first_few
from multihorizon.choice.clusters import Choice
from multihorizon.choice.model import DENSE_REWARDS, Settings, Temperature
from multihorizon.choice.tabular import Likelihood
from multihorizon.crowd import NO_FIT, CrowdAnalysis, crowd_analysis, held_rewards, is_crowd
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.dynamics import (
    counted_in_one_unit,
    describe_belief,
    describe_durations,
    describe_estimate,
    estimate_mdp,
    in_one_unit,
    observed_durations,
    require_agreement,
    require_ends,
    untaken_actions,
)
from multihorizon.data.steps import Steps
from multihorizon.driver import solve
from multihorizon.evidence import Deviations, Evidence
from multihorizon.exact.identify import Identification, identify
from multihorizon.exact.nearly import discounts_within
from multihorizon.frames import Frame, is_frame
from multihorizon.horizon import Horizon
from multihorizon.likelihood.clusters import independence_words
from multihorizon.likelihood.evidence import LikelihoodEvidence, SieveEvidence, TakenAsIndependent, dynamics_unknown, unpredicted
from multihorizon.likelihood.intervals import Contrasts, ProfileIntervals, ProfilesApart, reward_contrasts
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.likelihood.persons import COLDEST, RANDOM, SEPARATED, UNFINISHED
from multihorizon.likelihood.state_reward import REMEDY, StateRewardTest
from multihorizon.lookahead import Lookahead
from multihorizon.mdp import MDP
from multihorizon.names import look_alikes
from multihorizon.numerics.chance import chi2_ppf, t_ppf
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.population.solver import Population
from multihorizon.problem import Problem, SampledProblem
from multihorizon.questions.differences import difference_words
from multihorizon.questions.goal_comparison import GoalComparison, compare_goals, deviation_words
from multihorizon.questions.goals import Goals, best_fit, group_experts
from multihorizon.questions.lookahead_comparison import LookaheadComparison, check_comparable, compare_from
from multihorizon.questions.model_checks import (
    MODELS,
    WORST,
    Compared,
    Extent,
    Misfit,
    ModelChecks,
    check_model,
    compared_choices,
    extent,
    extent_words,
    fit_answer,
    misfits,
)
from multihorizon.questions.overall_fit import overall_words
from multihorizon.questions.population_choices import (
    ALONE,
    GroupPrediction,
    check_population,
    expected_choices,
    predicted_by_group,
)
from multihorizon.questions.shared_discount import SharedDiscountTest, each_pair, shared_discount_test, with_holm
from multihorizon.questions.shared_goal import SharedGoalTest, bound_words, fit_and_test
from multihorizon.questions.state_reward import state_reward_test, with_one_reward
from multihorizon.questions.study import Recovery
from multihorizon.result import Result, draw_rows, package_version
from multihorizon.solution import Solution, Status
from multihorizon.tables import Table, without_empty
from multihorizon.words import (
    FORM_ALONE,
    LEVEL,
    VAGUE_WIDTH,
    Answer,
    count,
    decimals,
    in_words,
    p_text,
    percent,
)

if TYPE_CHECKING:
    from multihorizon.likelihood.sieve import RewardFunctions, SieveLikelihood

#: Up to this many experts are named one by one.
NAMED_EXPERTS = 5
QUESTION = "Do they share a goal?"
NO_CHOICE = "Choices that are no likelier than by chance say nothing of goals."
UNPREDICTED = "predicts worse than chance"
ONE_DISCOUNT = (
    "They do not contradict one discount for all, and one discount cannot be separated from the reward: another one explains the "
    "same choices with another reward."
)


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
        """Whose discounts in the solution the penalty decides, in words; empty where the decisions do."""
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


@dataclass(frozen=True, eq=False)
class GoalCheck:
    """The test that all experts share one reward, and their groups where it is rejected and they were looked for.

    `apart` says how widely the model fits if each expert has a reward of their own; None where that was not asked. `comparison`
    has deviations from one reward and held-out predictions, as far as there are any. `withheld` says why no more
    is said.
    """

    test: SharedGoalTest
    groups: Goals[Solution] | None = None
    apart: Extent | None = None
    comparison: GoalComparison | None = None
    withheld: str = ""

    @property
    def model_fails(self) -> bool:
        """Whether the model does not fit even with a reward for each expert, so that goals need not be the cause."""
        return self.apart is not None and not self.apart.nearly_everywhere

    @property
    def rejected(self) -> bool:
        """Whether the experts have different goals: one reward for all is rejected, and so is nearly one; one for each fits, and
        no grouping speaks for one."""
        differ = self.groups is None or self.groups.verdict == "differ"
        return self.test.rejected and not self.model_fails and not self.nearly and differ and not self.withheld

    @property
    def nearly(self) -> bool:
        """Whether the experts nearly share one goal: one reward for all is rejected, and small deviations from one are not."""
        return self.comparison is not None and self.comparison.support == "nearly one goal" and not self.model_fails

    @cached_property
    def verdict(self) -> Answer:
        """The answer, and its reasons."""
        p = self.test.words
        if self.withheld:
            return Answer(QUESTION, "Inconclusive", self.withheld, "caution")
        if self.test.reason:
            return Answer(QUESTION, "This was not tested", f"{self.test.reason[0].upper()}{self.test.reason[1:]}.", "caution")
        if not self.test.rejected:
            allowed = None if self.comparison is None else self.comparison.deviations
            bound = "" if allowed is None else bound_words(allowed)
            reasons = f"One reward for all is not rejected ({p}). {bound}".strip()
            if allowed is not None and allowed.share_of_range[2] >= 1:
                return Answer(QUESTION, "Inconclusive", reasons, "caution")
            return Answer(QUESTION, "Nothing speaks against it", reasons, "good")
        if self.apart is not None and self.model_fails:
            reasons = (
                f"One reward for all is rejected ({p}), but with a reward for each expert the model does not fit either: "
                f"choices differ from it in {self.apart.odd:,} of {self.apart.compared:,} cases. So different goals need not be "
                "the cause."
            )
            return Answer(QUESTION, "It is not known", reasons, "caution")
        if self.comparison is not None and self.comparison.deviations is not None and self.nearly:
            words = deviation_words(self.comparison.deviations)
            reasons = f"One reward for all is rejected ({p}), but deviations are small: {words}. {self.comparison.prediction}"
            return Answer(QUESTION, "Nearly", reasons.strip(), "good")
        if not self.rejected:
            reasons = f"One reward for all is rejected ({p}), but nobody's goal can be distinguished from the others'."
            return Answer(QUESTION, "It is not known", reasons, "caution")
        who = "" if self.groups is not None else " Who shares one with whom was not looked for: ask multihorizon goals."
        predicted = "" if self.comparison is None else f" {self.comparison.prediction}".rstrip()
        reasons = f"One reward for all is rejected ({p}), so the estimates for all together must not be believed.{predicted}{who}"
        return Answer(QUESTION, "No", reasons, "bad")

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        return f"{self.verdict.answer}. {self.verdict.reasons}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not known."""
        p_value = None if self.test.reason else self.test.p_value
        groups = None if self.groups is None else self.groups.to_dict()
        compared = None if self.comparison is None else self.comparison.to_dict()
        return {"p_value": p_value, "answer": self.answer, "found": groups, "compared": compared}


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis(Result):
    """What `analyse` found, in numbers and in words.

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

    _drawn: ClassVar[tuple[str, ...]] = ("expert", "discount", "discount_low", "discount_high")

    @property
    def problem(self) -> Problem:
        """The problem that was fitted."""
        return self.solution.require_problem()

    @cached_property
    def evidence(self) -> LikelihoodEvidence | SieveEvidence:
        """What the solver says about its answer."""
        return (LikelihoodEvidence if self.functions is None else SieveEvidence).of(self.solution)

    @property
    def goals_differ(self) -> bool:
        """Whether the experts were found to have different goals."""
        return self.goals is not None and self.goals.rejected

    @property
    def deviations(self) -> Deviations | None:
        """The deviations from one reward that the fit allows for; None where it has one reward for all."""
        found = self.evidence.deviations if isinstance(self.evidence, LikelihoodEvidence) else None
        return found if found is not None and found.spread > 0 else None

    @property
    def independence(self) -> TakenAsIndependent | None:
        """What was taken to be independent, as in `LikelihoodEvidence`; None where states are vectors."""
        return self.evidence.independence if isinstance(self.evidence, LikelihoodEvidence) else None

    @cached_property
    def about_deviations(self) -> str:
        """What the reader must know of the model beside the numbers; empty where there is one reward for all."""
        if self.deviations is None:
            return ""
        words = deviation_words(self.deviations)
        if self.deviations.given:
            return f"Goals are taken to be shared nearly, as was asked for: {words}."
        nearly = self.goals is not None and self.goals.nearly
        first = "The experts nearly share one goal" if nearly else "The experts do not share one reward"
        one = f"one reward for all is rejected (p {p_text(self.deviations.p_shared)})"
        return f"{first}: {one}, and {words}. Discounts and intervals allow for that; ask for one reward with deviations 0."

    @property
    def identified(self) -> list[bool]:
        """Whether each discount is identified by the decisions."""
        return list(self.evidence.identified)

    @property
    def reward_given(self) -> bool:
        """Whether the whole reward was given and none of it estimated."""
        return not self.estimated_rewards

    @cached_property
    def reasons(self) -> list[str]:
        """Why no discount is given for each expert; empty where one is."""
        gain = 2 * self.decisions * (self.fitted - self.chance)
        nobody = gain.sum() < chi2_ppf(LEVEL, self.determined_rewards + 2 * gain.size)
        if self.solution.status == Status.NOT_CONVERGED:  # where all choose at random, the likelihood is too flat to be climbed
            return ["no better than chance" if nobody else "the fit did not end"] * gain.size
        idle = ((gain < chi2_ppf(LEVEL, 2)) | nobody) & ~np.array(self.known)
        said = {UNFINISHED: "the fit did not end", SEPARATED: SEPARATED, COLDEST: COLDEST, RANDOM: "no better than chance"}
        cases = zip(self.identified, self._open, idle, strict=True)
        reasons = [
            said.get(why, "not identified") if not known else "no better than chance" if lost else ""
            for known, why, lost in cases
        ]
        return [reason or UNPREDICTED * failed for reason, failed in zip(reasons, self.unpredicted, strict=True)]

    @property
    def one_discount_is_open(self) -> bool:
        """Whether nothing contradicts one discount for all, which is then not identified: all discounts are possible."""
        source = self.solution.interval_source
        return isinstance(source, ProfileIntervals) and source.one_discount_is_open(LEVEL)

    @cached_property
    def unpredicted(self) -> list[bool]:
        """Of experts who share nothing, of whom the halves of the decisions predict each other worse than chance.

        Nobody where these are more than half, which is a failure of the model.
        """
        alone = isinstance(self.solution.interval_source, ProfilesApart) and self.checks is not None
        if self.checks is None or not alone or self.reported_population is not None:
            return [False] * len(self.known)
        lost = (self.chance - self.checks.held_out["this model"]) * self.checks.decisions
        failed = lost > 2 + 3 * np.sqrt(2 * 2)  # a discount and a temperature
        return [bool(one) and 2 * int(failed.sum()) <= failed.size for one in failed]

    @cached_property
    def _open(self) -> list[str]:
        """Why each discount has no number, as the solver has it."""
        said = self.evidence.reasons if isinstance(self.evidence, LikelihoodEvidence) else None
        return list(said or [""] * len(self.identified))

    @cached_property
    def ranged(self) -> list[bool]:
        """Whether each discount is known to a range and not to a number: those who choose too regularly for a temperature."""
        return [reason in (SEPARATED, COLDEST) for reason in self.reasons]

    @cached_property
    def given(self) -> list[bool]:
        """Whether a discount is given for each expert."""
        return [not reason for reason in self.reasons]

    @cached_property
    def sure(self) -> list[bool]:
        """Whether each discount is narrow: it was known, or both ends of its interval were found and are not far apart."""
        widths = self.intervals[:, 1] - self.intervals[:, 0]
        return [g and (known or bool(w <= VAGUE_WIDTH)) for g, known, w in zip(self.given, self.known, widths, strict=True)]

    @cached_property
    def order(self) -> list[int]:
        """The experts from the shortest horizon to the longest; those without a number come last, by name."""
        named = zip(self.given, self.solution.discounts.tolist(), self.solution.experts, strict=True)
        keys = [(not given, g if given else 0.0, name) for given, g, name in named]
        return sorted(range(len(keys)), key=keys.__getitem__)

    @property
    def temperatures(self) -> Floats:
        """Each expert's temperature `(K,)`; NaN where the decisions do not determine it."""
        lost = isinstance(self.evidence, LikelihoodEvidence) and self.evidence.lost_temperatures
        return np.where(lost, np.nan, np.asarray(self.solution.temperature, dtype=np.float64))

    @property
    def explained(self) -> Floats:
        """Pseudo-R² `(K,)`: the share of chance's log-likelihood that the fit saves; NaN where there was nothing to choose."""
        return 1 - self.fitted / np.where(self.chance < 0, self.chance, np.nan)

    @property
    def longest(self) -> float:
        """H, the most steps or the most time that an episode of the task can take; infinite where states can recur."""
        return self.horizon.longest

    @property
    def ahead(self) -> str:
        """What a horizon is counted in: steps, or units of time where moves take time."""
        return self.horizon.many

    def limit(self, k: int) -> str | None:
        """ "largest" or "smallest" where the discount of expert k is no estimate but a limit of what was tried."""
        if not self.given[k] or self.known[k]:
            return None
        gamma = float(self.solution.discounts[k])
        return "largest" if gamma >= self.largest_discount else "smallest" if gamma <= 0 else None

    @property
    def reported_population(self) -> Solution | None:
        """The population, where there is one with an answer: then it is the model that is reported, and that is checked."""
        return self.population if self.population is not None and self.population.status == Status.CONVERGED else None

    @cached_property
    def compared(self) -> Compared | None:
        """Choices beside those that the reported model expects; None where it has no predictions of single choices."""
        population = self.reported_population
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
        """What the population predicts of each group, beside what was taken; nothing without a population."""
        return [] if self.population is None else predicted_by_group(self.population)

    @cached_property
    def fit(self) -> Answer:
        """Does the model fit?"""
        return _fit_of_vectors(self, self.evidence) if isinstance(self.evidence, SieveEvidence) else _fit_of_lists(self)

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        return [text for text in _warnings(self) if text] + self.notes

    @cached_property
    def notes(self) -> list[str]:
        """Of the warnings those that leave the numbers as they are: what was not tested, and penalties."""
        return [text for text in _notes(self) if text]

    @cached_property
    def verdicts(self) -> tuple[Answer, ...]:
        """How far do they look ahead? Can the data tell? Does the model fit? And, of several experts, do they share a goal? Of
        rewards of states, do they depend on the action as well?"""
        others = [] if self.goals is None else [self.goals.verdict]
        others += [] if self.state_reward is None else [self.state_reward.verdict]
        return _look_ahead(self), _identifiability(self), self.fit, *others

    @cached_property
    def answer(self) -> str:
        """The answer to what was asked, in a sentence or two: what terminal, report and `result.json` open with.

        Of a population it is whether discounts differ with its covariates, else who looks how far ahead. Where numbers must not
        be used, that comes first.
        """
        look, asked = self.verdicts[0].reasons, self.population
        shape = [] if self.lookahead is None else [self.lookahead.sentences()]
        nearly = [self.about_deviations] if self.about_deviations else []
        if asked is None:
            return self.warnings[0] if self.withheld else " ".join([*shape, look, *nearly])
        said = difference_words(asked, self.horizon)
        if self.withheld:
            return " ".join([self.warnings[0], "The comparison of persons is a fit of its own:", *said])
        return " ".join([*said, *shape, *nearly])

    @cached_property
    def headline(self) -> str:
        """The opening paragraph: the answer to what was asked, who looks how far, whether the data can tell, whether the model
        fits."""
        look, identified, fit = self.verdicts[:3]
        if self.withheld:
            return " ".join([self.answer, *self.warnings[1:], identified.reasons, fit.reasons])
        told = [] if self.population is None else [look.reasons]
        return " ".join([*self.warnings, self.answer, *told, identified.reasons, fit.reasons])

    @cached_property
    def advice(self) -> list[str]:
        """What to collect next."""
        return _advice(self)

    def sentences(self) -> str:
        """The opening paragraph."""
        return self.headline

    def _facts(self) -> dict[str, Any]:
        found = {"solver": self.solution.solver, "status": str(self.solution.status), "experts": len(self.solution.experts)}
        found |= {"episodes": int(self.episodes.sum()), "decisions": int(self.decisions.sum())}
        return found | {"log-likelihood": self.evidence.log_likelihood}

    def _tables(self, compute: bool) -> list[Table]:
        """Groups first where there are any; then the experts, the tests and the reward."""
        frame = self.to_frame()
        columns = [
            "expert",
            "discount",
            "discount_low",
            "discount_high",
            "standard_error",
            "horizon",
            "half_life",
            "temperature",
            "decisions",
        ]
        shown = without_empty(frame[[name for name in (*columns, "flags") if name in frame]], self._drawn)
        tables = [] if self.population is None else self.population.evidence.expert_tables(self.population)
        tables.append(Table(shown, f"experts, with {percent(LEVEL)} intervals", self._drawn[1:]))
        tests = [test for test in (self.shared, *self.pairs) if test is not None]
        rows = [
            {"hypothesis": f"one discount for {in_words([*test.experts])}", "statistic": test.statistic}
            | {"degrees": test.degrees, "p_value": test.p_value, "adjusted": test.adjusted}
            for test in tests
        ]
        if self.goals is not None and not self.goals.test.reason:
            goals = self.goals.test
            rows.append({"hypothesis": "one reward for all", "statistic": goals.statistic, "p_value": goals.p_value})
        tables += [Table(pd.DataFrame(rows), "tests")] if rows else []
        if self.reward_given:
            return tables
        reward = without_empty(self.reward_frame().reset_index(), ("difference",))
        return [*tables, Table(reward, "reward", ("difference",))]

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        solution, known = self.solution, np.array(self.given)
        discounts = np.where(known, solution.discounts, np.nan)
        frame = pd.DataFrame(
            {
                "expert": solution.experts,
                "discount": discounts,
                "discount_low": self.intervals[:, 0],
                "discount_high": self.intervals[:, 1],
                "standard_error": self.standard_errors,
                "horizon": [self.horizon(g) for g in discounts.tolist()],
                **({"half_life": [self.horizon.half_life(g) for g in discounts.tolist()]} if self.horizon.timed else {}),
                "temperature": self.temperatures,
                "episodes": self.episodes,
                "decisions": self.decisions.astype(np.int64),
                "pseudo_r2": self.explained,
                "flags": ["; ".join(self._flags(k)) for k in range(known.size)],
            }
        )
        if self.population is not None:
            frame = pd.concat([frame, population_columns(self)], axis=1)
        return frame.iloc[self.order]

    def _draw(self, ax: Any) -> None:
        draw_rows(ax, self.to_frame(), *self._drawn)
        ax.set_xlim(-0.02, 1.02)

    def conditions_frame(self) -> pd.DataFrame | None:
        """One row per person and condition: the columns of `conditions.csv`. None where the formula has no conditions, or the
        population could not be estimated."""
        found = self.population
        known = found is not None and found.status == Status.CONVERGED
        return PopulationEvidence.of(found).population.conditions_frame() if found is not None and known else None

    @property
    def standard_errors(self) -> Floats:
        """Of the discounts `(K,)`; NaN where no discount is given or errors are withheld."""
        errors = self.solution.standard_errors
        return np.where(self.given, np.nan if errors is None or self.withheld else errors, np.nan)

    def _flags(self, k: int) -> list[str]:
        limit, width = self.limit(k), float(np.diff(self.intervals[k])[0])
        cases = {
            self.reasons[k]: bool(self.reasons[k]),
            "known discount": self.known[k],
            f"at the {limit} discount": limit is not None,
            "wide interval": width > VAGUE_WIDTH,
            "no whole interval": self.given[k] and not self.known[k] and bool(np.isnan(width)),
            "result not to be used": bool(self.withheld),
            "left out of the comparison": self.population is not None and self.solution.experts[k] not in self.population.experts,
        }
        return [flag for flag, holds in cases.items() if holds]

    def reward_frame(self) -> pd.DataFrame:
        """One row per parameter of the reward, by name: the reward and its difference (from the average logged step; of features
        from zero), each with its standard error. NaN where the decisions do not determine them or they are withheld.
        """
        frame = self.solution.reward_frame().set_index("parameter").assign(standard_error=np.nan)
        if isinstance(self.evidence, LikelihoodEvidence):
            errors = np.array(self.evidence.reward_standard_errors, dtype=np.float64)
            known = np.isfinite(errors) | (errors.size > DENSE_REWARDS)  # of so many, errors are not computed
            known &= self.solution.status != Status.NOT_IDENTIFIED
            frame = frame.assign(reward=frame["reward"].where(known), standard_error=np.where(known, errors, np.nan))
        frame["difference"], frame["difference_standard_error"] = self.contrasts.values, self.contrasts.standard_errors
        return frame * (np.nan if self.withheld else 1.0)

    def _content(self) -> dict[str, Any]:
        """What `result.json` holds for every kind of state; what one kind does not have is null."""
        solution, evidence, lists = self.solution, self.evidence, self.functions is None
        given, one_by_one = self.given, lists and not self.reward_given
        mdps = self.problem.mdps if lists else ()
        known = evidence.known if isinstance(evidence, LikelihoodEvidence) else {"reward": None, "discounts": self.known}
        reward = self.reward_frame()
        differences = reward[["difference", "difference_standard_error"]].set_axis(["estimate", "standard_error"], axis=1)

        def as_dict(part: Any) -> dict[str, Any] | None:
            return None if part is None else part.to_dict()

        return {
            "schema": 2,
            "experts": list(solution.experts),
            "warnings": self.warnings,
            "answer": self.answer,
            "headline": self.headline,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "withheld": self.withheld or None,
            "finished": self.finished,
            "quick": self.quick,
            "discounts": [float(g) if k else None for g, k in zip(solution.discounts, given, strict=True)],
            "intervals": self.intervals,
            "level": LEVEL,
            "known": known,
            "groups": solution.options.get("groups"),
            "at_limit": [self.limit(k) for k in range(len(given))],
            "largest_discount": self.largest_discount,
            "standard_errors": None if self.withheld else self.standard_errors,
            "effective_horizons": [self.horizon(g) if k else None for g, k in zip(solution.discounts, given, strict=True)],
            "half_lives": [self.horizon.half_life(g) if k else None for g, k in zip(solution.discounts, given, strict=True)],
            "longest_episode": self.longest,
            "time_unit": self.horizon.unit,
            "episodes": self.episodes,
            "decisions_by_expert": self.decisions,
            "pseudo_r2": self.explained,
            "temperatures": self.temperatures,
            "reward": reward["reward"].to_dict(),
            "reward_standard_errors": reward["standard_error"].to_dict() if one_by_one else None,
            "reward_contrasts": differences.to_dict("index") if one_by_one else None,
            "coordinates": evidence.coordinates if isinstance(evidence, SieveEvidence) else None,
            "status": str(solution.status),
            "message": solution.message,
            "identified": [bool(known and not self.withheld) for known in given],
            "reasons": {name: reason for name, reason in zip(solution.experts, self.reasons, strict=True) if reason},
            "verdict": self.verdicts[1].reasons,
            "collect_next": self.advice,
            "identification": as_dict(self.identification),
            "shared_discount_test": as_dict(self.shared),
            "pairwise_tests": [test.to_dict() for test in self.pairs] or None,
            "equal_temperatures_p": evidence.equal_temperatures_p,
            "goals": as_dict(self.goals),
            "state_reward": as_dict(self.state_reward),
            "deviations": evidence.deviations if isinstance(evidence, LikelihoodEvidence) else None,
            "independence": self.independence,
            "lookahead": as_dict(self.lookahead),
            "model_checks": self._checks() if lists else None,
            "one_maximum": {"discounts": solution.discounts, "log_likelihood": solution.objective},
            "decisions": evidence.decisions,
            "residual": solution.residual,
            "ridge": evidence.ridge if isinstance(evidence, LikelihoodEvidence) else None,
            "untaken_actions": [untaken_actions(mdp) for mdp in mdps if mdp.sample_sizes is not None],
            "penalty": self.penalty
            and {
                "ridge": self.penalty.ridge,
                "discounts_without": self.penalty.without.discounts,
                "log_likelihood_without": self.penalty.without.objective,
                "status_without": str(self.penalty.without.status),
            },
            "population": None if self.population is None else self._groups_and_persons(self.population),
            "recovery": as_dict(self.recovery),
            "evidence": None if lists else evidence,
            "remarks": self.remarks,
            "seconds": solution.seconds,
            "seed": solution.seed,
            "version": package_version(),
        }

    def _checks(self) -> dict[str, Any]:
        """Held-out predictions and the states that fit worst; own frequencies only where choices repeat."""
        if self.checks is None:
            return {"worst_states": [misfit._asdict() for misfit in self.misfits[:WORST]]}
        found = self.checks.to_dict()
        found["held_out"]["chance"] = self.chance.tolist()
        if not self.choices_repeat:
            del found["held_out"]["own frequencies"]
        return found

    def _groups_and_persons(self, found: Solution) -> dict[str, Any]:
        """Effects of covariates, the spread between persons, and shrunken persons."""
        evidence = PopulationEvidence.of(found).population
        pairs = [
            {**pair, "steps": [self.horizon(discount) for discount in pair["typical"]]} for pair in evidence.contrasts["discount"]
        ]
        return {
            "status": str(found.status),
            "message": found.message,
            "experts": found.experts,
            **evidence,
            "contrasts": {**evidence.contrasts, "discount": pairs},
            "discounts": found.discounts,
            "intervals": found.confidence_intervals(LEVEL),
            "temperatures": found.temperature,
            "predicted_by_group": [asdict(group) for group in self.predicted],
        }


def population_columns(found: Analysis) -> pd.DataFrame:
    """Shrunken values and covariates for `people.csv`, one row per expert in the problem's order; NaN for those left out."""
    solution = found.population
    assert solution is not None
    population = PopulationEvidence.of(solution).population
    ends = solution.confidence_intervals(LEVEL)
    covariates = {name: values for name, values in population.covariates.items() if name != "expert"}
    columns = {
        "shrunken_discount": solution.discounts,
        "shrunken_low": ends[:, 0],
        "shrunken_high": ends[:, 1],
        "shrunken_temperature": solution.temperature,
        "reliability": population.individuals["discount_reliability"],
    }
    frame = pd.DataFrame({**columns, **{f"covariate_{name}": values for name, values in covariates.items()}}, solution.experts)
    return frame.reindex(found.solution.experts).reset_index(drop=True)


def analyse(
    tables: Demonstrations | Frame | Sequence[Demonstrations | Frame] | Steps,
    mdps: MDP | Sequence[MDP] | None = None,
    features: Any = None,
    *,
    temperature: Temperature | None = None,
    smoothing: float | None = None,
    ridge: float | None = None,
    estimate_rest: bool = False,
    believed: bool = False,
    pairs: bool = False,
    quick: bool = False,
    keep: Callable[[Analysis], None] = lambda found: None,
    solver: MaximumLikelihood | SieveLikelihood | None = None,
    known_reward: Callable[[MDP], Floats] | None = None,
    deviations: float | Literal["estimated"] | None = None,
    cluster: Choice | None = None,
    lookahead: Sequence[Lookahead] = (),
    population: Population | None = None,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Analysis | CrowdAnalysis:
    """Fit tables of decisions and judge the fit.

    With a population of more than 2,000 persons, or of types, nobody is fitted alone: the population is all that is estimated,
    and what is found is a `CrowdAnalysis`.

    Args:
        tables: the decisions: a table or a data frame, one for each task, or `Steps` where states are vectors. With `Steps`, only
            `temperature`, `solver`, `quick`, `keep`, `seed`, `jobs` and `progress` may be given.
        mdps, features, smoothing, estimate_rest, believed: as in `build_problem`.
        temperature, ridge: as in `MaximumLikelihood`; temperatures are "pooled" unless it is said otherwise.
        pairs: whether to test every pair of more than six experts for a shared discount; of few it is always done.
        quick: leave out tests and model checks, and take intervals from standard errors.
        keep: called with what is known so far, again and again while the work goes on.
        solver: all options of the fit, in place of `temperature` and `ridge`, which must then be left out.
        known_reward: None, or a function of the MDP that gives the known part of the reward, as in `MaximumLikelihood`.
        deviations: how far each expert's reward may be from the shared one, as in `MaximumLikelihood`. By default it is
            "estimated", and that of the solver where one is given. Where it cannot be had, one reward is fitted, and a remark
            says so. From a reward that is known in full nobody deviates unless a number is given.
        cluster: what standard errors, intervals and tests take to be independent, as in `MaximumLikelihood`. By default it is
            "auto", and that of the solver where one is given that does not take decisions. Of a population the persons are.
        lookahead: families of look-ahead to compare on the same decisions.
        population: what to ask about groups, persons and the conditions of the tables, if anything; the known reward is handed on
            to it.
        seed: fixes all randomness.
        jobs: processes that share simulations, intervals and tests of pairs; -1 is all cores. The digits do not depend on it.
        progress: called with the share of the work that is done and where it stands.

    Raises:
        ValueError: on tables that do not fit the task, and where a solver comes with options that are its own.
    """
    doubled = {"temperature": temperature, "ridge": ridge, "known_reward": known_reward and getattr(solver, "known_reward", None)}
    doubled["deviations"] = None if deviations is None else getattr(solver, "deviations", 0.0) or None
    twice = [name for name, value in doubled.items() if value is not None]
    if solver is not None and twice:
        raise ValueError(f"{' and '.join(twice)} must be left out where a solver is given: it has its own, received both")
    temperature = "pooled" if temperature is None else temperature
    if isinstance(tables, Steps):
        from multihorizon.likelihood.sieve import SieveLikelihood  # noqa: PLC0415  states are vectors: only now is scikit-learn needed

        of_lists = {"mdps": mdps, "features": features, "smoothing": smoothing, "ridge": ridge, "known_reward": known_reward}
        of_lists |= {
            "deviations": deviations or None,
            "cluster": None if cluster == "auto" else cluster,
            "population": population,
            "pairs": pairs or None,
            "lookahead": lookahead or None,
            "estimate_rest": estimate_rest or None,
            "believed": believed or None,
        }
        wrong = [name for name, value in of_lists.items() if value is not None]
        if wrong or not isinstance(solver, SieveLikelihood | None):
            what = " and ".join(wrong) or type(solver).__name__
            raise ValueError(f"Steps must come without what belongs to tasks with a list of states, received {what}")
        solver = solver or SieveLikelihood(temperature=temperature)
        solution = solve(SampledProblem(tables), solver, seed=seed, progress=part_of(progress, 0.0, 0.8))
        found = replace(_fit_to_vectors(solution, tables), quick=quick)
        keep(found)
        tested = not quick and solution.status is Status.CONVERGED
        found = _with_tests(found, True, jobs, part_of(progress, 0.8, 1.0), keep) if tested else found
        return replace(found, finished=True)
    if not isinstance(solver, MaximumLikelihood | None):
        what = type(solver).__name__
        if getattr(solver, "takes", None) is SampledProblem:
            raise ValueError(f"{what} is for states that are vectors: hand in Steps, received tables with a list of states")
        raise ValueError(f"solver must be MaximumLikelihood(…), received {what}: use solve(problem, {what}()) with other solvers")
    tables, mdps = _as_tables(tables), _as_mdps(mdps)
    if deviations is None:
        deviations = "estimated" if solver is None else solver.deviations
    if cluster is None:
        cluster = "auto" if solver is None or solver.cluster == "decision" else solver.cluster
    solver = replace(solver or MaximumLikelihood(temperature, ridge=ridge), deviations=deviations, cluster=cluster)
    if population is not None and (is_crowd(tables) or population.distribution == "types"):
        refused = [name for name, asked in {"pairs": pairs, "lookahead": bool(lookahead)}.items() if asked]
        if refused:
            why = "where types are asked for, as nobody is fitted alone"
            why = "with so many persons: fit a sample of them to ask for it" if is_crowd(tables) else why
            raise ValueError(f"{' and '.join(refused)} must be left out {why}")
        problem, remarks = build_problem(tables, mdps, features, smoothing, estimate_rest, believed)
        known = solver.known_reward if known_reward is None else known_reward(problem.mdp)
        asked = replace(population, known_reward=known, jobs=jobs)
        solution = solve(problem, asked, seed=seed, progress=progress)
        episodes = sum(int(table.episode_counts.sum()) for table in tables)
        return crowd_analysis(solution, problem, episodes, remarks)
    solver = replace(solver, discounts=counted_in_one_unit(solver.discounts, tables))
    problem, remarks = build_problem(tables, mdps, features, smoothing, estimate_rest, believed)
    if known_reward is not None:
        solver = replace(solver, known_reward=known_reward(problem.mdp))
    if lookahead:
        check_comparable(problem, solver)
    if population is not None:
        population.covariates(problem)  # what cannot be used is refused before any work
    solver, solution, goal_test, refused = fit_and_test(
        problem, solver, seed=seed, jobs=jobs, progress=part_of(progress, 0.0, 0.2)
    )
    remarks = [*remarks, *refused]
    if solver.temperature == "shared" and problem.n_experts > 1:  # do the decisions reject what the user asks for?
        freer = solve(problem, replace(solver, temperature="pooled"), seed=seed)
        p_value = LikelihoodEvidence.of(freer).equal_temperatures_p
        solution = replace(solution, evidence=replace(LikelihoodEvidence.of(solution), equal_temperatures_p=p_value))
    found = replace(_fit_to_lists(solution, tables), remarks=remarks, quick=quick)
    if goal_test is not None:
        allowed = LikelihoodEvidence.of(solution).deviations
        own = compared_choices(problem, _own_policies(solution)) if goal_test.rejected else None
        apart = None if own is None else extent(misfits(own))
        nothing = GoalComparison(problem.names, goal_test, allowed, np.zeros(0, dtype=np.int64), {})
        at_random = NO_CHOICE if _nobody_better_than_chance(found) else ""
        found = replace(found, goals=GoalCheck(goal_test, apart=apart, comparison=nothing, withheld=at_random))
    keep(found)
    if population is not None:
        asked = replace(population, known_reward=solver.known_reward, jobs=jobs)
        found = replace(found, population=solve(problem, asked, seed=seed, progress=part_of(progress, 0.2, 0.28)))
    found = _with_state_reward(found, seed, jobs, part_of(progress, 0.28, 0.3))
    keep(found)
    if lookahead:
        base = with_one_reward(resume(solution))
        compared = compare_from(base, lookahead, tables, seed=seed, progress=part_of(progress, 0.3, 0.35))
        also = [] if found.deviations is None else ["Families of look-ahead were compared with one reward for all."]
        found = replace(found, lookahead=compared, remarks=[*found.remarks, *also])
    if solver.ridge:
        penalty = Penalty(solver.ridge, solve(problem, replace(solver, ridge=None), seed=seed))
        found = replace(found, penalty=penalty, withheld=found.withheld or penalty.decides(solution))
    found = replace(found, identification=identification(solution))
    if quick and not _needs_profiles(solution):
        said = found.independence
        freedom = np.array(np.inf if said is None else said.get("freedom", np.inf), dtype=np.float64)
        half = t_ppf(0.5 + LEVEL / 2, np.where(np.isnan(freedom), np.inf, freedom)) * found.standard_errors
        ends = np.clip(solution.discounts[:, None] + half[:, None] * [-1, 1], 0.0, found.largest_discount)
        return replace(found, intervals=ends, finished=True)
    if quick:
        return replace(_with_intervals(found, jobs, part_of(progress, 0.35, 1.0), keep), finished=True)
    try:
        part, reported = part_of(progress, 0.35, 0.5), found.reported_population
        if population is None or reported is None:
            checks = check_model(solution, seed=seed, progress=part)
        else:
            checks = check_population(asked, reported, solution, seed=seed, progress=part)
        found = replace(found, checks=checks)
        found = replace(found, withheld=found.withheld or _predicts_worse(found))
    except ValueError as error:
        found = replace(found, remarks=[*found.remarks, f"The model was not checked on held-out episodes: {error}."])
    keep(found)
    few = problem.n_experts <= 12 and problem.n_parameters <= 60  # with more, grouping takes long
    few &= not any(found.known) and solver.known_reward is None
    if found.goals is not None and found.checks is not None and not found.withheld:
        test, part = found.goals.test, part_of(progress, 0.5, 0.53)
        if test.rejected or (found.goals.comparison is not None and found.goals.comparison.deviations is not None):
            comparison = compare_goals(solution, several=few, test=test, seed=seed, progress=part)
            found = replace(found, goals=replace(found.goals, comparison=comparison))
            keep(found)
    if found.goals is not None and found.goals.rejected and few:
        groups = group_experts(solution, found.goals.test, solver.temperature, seed=seed, progress=part_of(progress, 0.53, 0.55))
        found = replace(found, goals=replace(found.goals, groups=groups))
        keep(found)
    if found.withheld:
        return replace(found, finished=True)
    found = _with_intervals(found, jobs, part_of(progress, 0.55, 0.8), keep)
    found = _with_tests(found, pairs or problem.n_experts <= 6, jobs, part_of(progress, 0.8, 1.0), keep)
    return replace(found, finished=True)


def _with_state_reward(found: Analysis, seed: int, jobs: int, progress: Progress) -> Analysis:
    """The same with the test that the reward depends on the state reached alone, and without what it takes away.

    Where the same persons decided under conditions, only the population knows of these, so its test counts.
    """
    compared = None if found.population is None else PopulationEvidence.of(found.population).population
    of_persons = None if compared is None or compared.state_reward is None else StateRewardTest.read(compared.state_reward)
    test = of_persons
    if compared is None or not compared.conditions:
        goals = None if found.goals is None else found.goals.test
        own = state_reward_test(found.solution, goals, seed=seed, jobs=jobs, progress=progress)
        test = own if of_persons is None or not of_persons.clear else of_persons
    if test is None or not test.clear:
        return replace(found, state_reward=test)
    goals_check = None if found.goals is None else replace(found.goals, withheld=test.why)
    return replace(found, state_reward=test, withheld=test.why, goals=goals_check, population=None)


def _as_tables(tables: Any) -> list[Demonstrations]:
    """The tables of decisions: one or several, of which each may be a data frame."""
    found = []
    for table in tables if isinstance(tables, list | tuple) else [tables]:
        if not isinstance(table, Demonstrations) and not is_frame(table):
            raise ValueError(
                "tables must be a data frame or Demonstrations, or a list with one of these for each task, received "
                f"{type(table).__name__}: Demonstrations.from_files reads files"
            )
        found.append(table if isinstance(table, Demonstrations) else Demonstrations.from_frame(table))
    if not found:
        raise ValueError("tables must hold at least one table, received none")
    return found


def _as_mdps(mdps: Any) -> list[MDP] | None:
    """The transitions of the tables, if they are given."""
    given = list(mdps) if isinstance(mdps, list | tuple) else None if mdps is None else [mdps]
    if not all(isinstance(mdp, MDP) for mdp in given or ()):
        raise ValueError(f"mdps must be an MDP, or a list with one for each table, received {type(mdps).__name__}")
    return given


def build_problem(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any = None,
    smoothing: float | None = None,
    estimate_rest: bool = False,
    believed: bool = False,
) -> tuple[Problem, list[str]]:
    """One problem from one or several tables with their transitions, and remarks on what was assumed.

    Args:
        tables: one for each task.
        mdps: their transitions in the same order, checked against the tables; None estimates them.
        features: None, or a function of an MDP that gives a matrix of features and their names: `(S,d)` earned on arrival, or
            `(A·S,d)` in rows a·S + s for decisions.
        smoothing: of estimated transitions.
        estimate_rest: whether `mdps` hold only some actions of some states, and the others are estimated.
        believed: whether `mdps` are what people believe, which is what they plan with: where moves led may contradict them.
    """
    tasks, remarks = _tasks(tables, mdps, features, smoothing, estimate_rest, believed)
    problems = [
        Problem(mdp, table, feature_names=names, **{_of_features(mdp, matrix): matrix}) for table, mdp, matrix, names in tasks
    ]
    return (problems[0] if len(problems) == 1 else Problem.join(*problems)), remarks


def _of_features(mdp: MDP, matrix: Any) -> str:
    """Whether a matrix of features has a row for each state, and is earned on arrival, or for each action and state."""
    return "arrival_features" if matrix is not None and matrix.shape[0] == mdp.n_states else "features"


def _tasks(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any,
    smoothing: float | None,
    estimate_rest: bool,
    believed: bool,
) -> tuple[list[tuple[Demonstrations, MDP, Any, Any]], list[str]]:
    """Each table with its MDP, the matrix of features and their names, and remarks on what was assumed."""
    tables = in_one_unit(tables)
    labels = [pair for t in tables for pair in (("expert", t.experts), ("state", t.states), ("action", t.actions))]
    remarks = [remark for what, names in labels if (remark := look_alikes(names, what))]
    if mdps is not None and len(mdps) != len(tables):
        raise ValueError(f"there must be one file of transitions for each table, received {len(mdps)} for {len(tables)}")
    if features is not None and not callable(features):
        raise ValueError(
            f"features must be a function that gives a matrix and names for an MDP, received {type(features).__name__}"
        )
    if mdps is None and estimate_rest:
        raise ValueError("estimate_rest must come with mdps to start from, received none: leave it out")
    if believed and mdps is None:
        raise ValueError("believed must come with the transitions that people believe in, received none")
    estimated = mdps is None or estimate_rest
    if mdps is None or estimate_rest:
        known: Sequence[MDP | None] = mdps or [None] * len(tables)
        mdps = [estimate_mdp(table, smoothing, rows) for table, rows in zip(tables, known, strict=True)]
        for table, mdp in zip(tables, mdps, strict=True):
            require_ends(table, mdp)
            remarks += describe_estimate(mdp, smoothing, table)
    tasks = []
    for table, given in zip(tables, mdps, strict=True):
        mdp = given
        if table.times is not None and not estimated:
            if mdp.durations is not None:
                raise ValueError(
                    "how long moves take must be said by the transitions or by time stamps, received both: leave out --time"
                )
            mdp = mdp.lasting(observed_durations(table, mdp, smoothing))
        remarks += describe_belief(table, mdp) if believed else require_agreement(table, mdp)
        remarks += describe_durations(table, mdp)
        tasks.append((table, mdp, *((None, None) if features is None else features(mdp))))
    return tasks, remarks


def _fit_to_lists(solution: Solution, tables: Sequence[Demonstrations]) -> Analysis:
    """What is known once the fit is done."""
    problem, evidence = solution.require_problem(), LikelihoodEvidence.of(solution)
    policies, contrasts = solution.policies(), reward_contrasts(resume(solution))
    withheld, mdps = not_to_be_used(solution, contrasts), problem.mdps
    never_ends = np.any([mdp.never_ends().any() for mdp in mdps])
    episodes = dict.fromkeys(problem.names, 0)
    for table in tables:
        for name, number in zip(table.experts, table.episode_counts, strict=True):
            episodes[name] += int(number)
    rows = []  # persons, decisions, and their log-likelihoods by chance and in the fit; choices that decisions could show
    for expert, owner, policy in zip(problem.experts, problem.owner, policies, strict=True):
        counts, actions = np.asarray(expert.counts), expert.mdp.available.sum(axis=1)
        chance = -float(counts.sum(axis=1) @ np.log(np.maximum(actions, 1)))
        fitted, shown = float((counts * np.log(np.maximum(policy, TINY))).sum()), (actions - 1)[counts.sum(axis=1) > 0].sum()
        rows.append((owner, float(counts.sum()), chance, fitted, int(shown)))
    persons = pd.DataFrame(rows, columns=["person", "decisions", "chance", "fitted", "shown"]).groupby("person").sum()
    decisions = persons["decisions"].to_numpy()
    estimated = 0 if evidence.known["reward"] == "all" else problem.n_parameters
    return Analysis(
        solution=solution,
        intervals=np.full((problem.n_experts, 2), np.nan),
        episodes=np.array(list(episodes.values())),
        decisions=decisions,
        chance=persons["chance"].to_numpy() / decisions,
        fitted=persons["fitted"].to_numpy() / decisions,
        known=list(evidence.known["discounts"]),
        horizon=problem.horizon,
        largest_discount=ENDLESS_DISCOUNT if never_ends else 1.0,
        estimated_rewards=estimated,
        determined_rewards=max(0, min(estimated - evidence.unidentified_directions, int(persons["shown"].sum()))),
        withheld=withheld,
        policies=policies,
        contrasts=contrasts,
    )


def _fit_to_vectors(solution: Solution, steps: Steps) -> Analysis:
    """The same for states that are vectors."""
    from multihorizon.choice.sieve import LARGEST_DISCOUNT  # noqa: PLC0415  states are vectors: only now is scikit-learn needed
    from multihorizon.likelihood.sieve import reward_functions  # noqa: PLC0415

    evidence, fixed, made = SieveEvidence.of(solution), solution.options.get("discounts"), reward_functions(solution)
    batches, plans, size = made.point.likelihood.data.decisions, made.point.plans, len(steps.experts)
    decisions = np.array([float(batch.visits.sum()) for batch in batches])
    totals = [float((batch.counts * plan.finite_log).sum()) for batch, plan in zip(batches, plans, strict=True)]
    no_test = SharedGoalTest(np.nan, np.nan, 0, "there is no test of it yet for states that are vectors")
    unknown = np.full(solution.reward.size, np.nan)
    found = Analysis(
        solution=solution,
        intervals=solution.confidence_intervals(LEVEL),
        episodes=np.array([np.unique(steps.episode_numbers[steps.expert == k]).size for k in range(size)]),
        decisions=decisions,
        chance=np.array([batch.chance for batch in batches]) / decisions,
        fitted=np.array(totals) / decisions,
        known=[name in fixed if isinstance(fixed, dict) else fixed is not None for name in solution.experts],
        horizon=solution.horizon,
        largest_discount=LARGEST_DISCOUNT,
        estimated_rewards=evidence.functions,
        determined_rewards=max(0, evidence.functions - evidence.unidentified_directions),
        contrasts=Contrasts(unknown, unknown),
        withheld=not_to_be_used(solution),
        goals=GoalCheck(no_test) if size > 1 else None,
        functions=made,
    )
    return replace(found, intervals=np.where(np.array(found.given)[:, None], found.intervals, np.nan))


def not_to_be_used(solution: Solution, contrasts: Contrasts | None = None) -> str:
    """Why a fit is no finding; empty where it is one. `contrasts` are rewards of states or features, which may run away."""
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
        return f"A reward runs away: it reaches {size:,.0f}, and no decision in the table holds it back."
    return ""


def _own_policies(solution: Solution) -> list[Floats]:
    """The policy `(S,A)` of each of the problem's experts, each person fitted alone, with a weak penalty on rewards."""
    point = resume(solution)
    model, problem = point.likelihood, point.likelihood.problem
    alone = []
    for k in range(problem.n_experts):
        members = problem.with_experts(e for e, owner in zip(problem.experts, problem.owner, strict=True) if owner == k)
        temperature = model.temperatures(point.x)[[k]]
        ridge = (model.feature_sizes / (10 * temperature)) ** 2
        known = None if model.settings.discounts is None else model.settings.discounts[[k]]
        fit = best_fit(Likelihood(members, Settings(discounts=known, temperatures=temperature)).holding(None, ridge), -np.inf)
        alone.append(iter(fit.point.policies()))
    return [next(alone[k]) for k in problem.owner]


def identification(solution: Solution) -> Identification | None:
    """What exact policies would identify where nothing is known; for large problems only where it matters most."""
    problem, known = solution.require_problem(), LikelihoodEvidence.of(solution).known
    if known["reward"] or any(known["discounts"]):
        return None
    # The time of `identify` grows with the square of the states, and it searches where the equations are not linear.
    linear = problem.tabular and all(mdp.durations is None for mdp in problem.mdps)
    small = sum(expert.mdp.n_states for expert in problem.experts) <= (3000 if linear else 200)
    return identify_fitted(solution) if small or solution.status == Status.NOT_IDENTIFIED else None


def identify_fitted(solution: Solution, within: float | None = None) -> Identification | None:
    """Whether the fitted policies, if known exactly, would identify the discounts; None where that cannot be computed, and where
    the reward is known, as it is computed of rewards that are not.

    With `within`, also which discounts explain them at the fitted temperatures if rewards may differ by that much from a shared
    one.
    """
    if LikelihoodEvidence.of(solution).known["reward"]:
        return None
    problem, lam = solution.require_problem(), np.asarray(solution.temperature)
    shared = replace(solution, evidence=Evidence())  # without deviations, which no two exact policies would have in common
    exact = problem.with_experts(
        replace(expert, kind="policy", policy=policy, counts=None, conditions=None)
        for expert, policy in zip(problem.experts, shared.policies(), strict=True)
    )
    try:
        found = identify(exact, temperature="per_expert" if np.ptp(lam) > 0 else float(lam[0]))
    except ValueError:
        return None
    if within is None:
        return found
    starts = [np.asarray(solution.discounts), found.discounts, *(member.discounts for member in found.members)]
    return replace(found, within=discounts_within(exact, within, lam, starts=starts))


def predicts_worse(
    checks: ModelChecks, chance: Floats, parameters: int, model: str = MODELS[0], failed: Sequence[bool] = ()
) -> str:
    """The simpler model that predicts held-out decisions clearly better than `model`, in words; empty if there is none.

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
                f"{who} held-out decisions worse than {name}: their log-likelihood is lower by {value - ours:,.1f} in all "
                f"({judged.sum():,.0f} decisions)."
            )
    return ""


def _predicts_worse(found: Analysis) -> str:
    """The simpler model that predicts held-out decisions clearly better than the model that is reported, in words."""
    return predicts_worse(_reported_checks(found), found.chance, found.estimated_rewards, failed=found.unpredicted)


def _reported_checks(found: Analysis) -> ModelChecks:
    """The checks of the model that is reported.

    Where one discount for all is open, no discount is given, and those of the experts are noise that costs more than their number
    says. What is reported is then the best of the models with a discount for each, with one for all, and with 0.
    """
    assert found.checks is not None
    checks, models = found.checks, MODELS[:3]
    if found.reported_population is not None or not found.one_discount_is_open:
        return checks
    best = max(models, key=lambda name: float(checks.held_out[name] @ checks.decisions))
    return replace(checks, held_out={**checks.held_out, MODELS[0]: checks.held_out[best]})


def _needs_profiles(solution: Solution) -> bool:
    """Whether an interval reaches other maxima or an open direction, of which no standard error speaks."""
    evidence = solution.evidence
    if not isinstance(evidence, LikelihoodEvidence):
        return False
    lower = [evidence.log_likelihood - end["log_likelihood"] for end in evidence.other_maxima or []]
    source = solution.interval_source
    if any(2 * missing <= chi2_ppf(LEVEL, 1) for missing in lower):
        return True
    return isinstance(source, ProfileIntervals) and source.one_discount_is_open(LEVEL)


def _with_intervals(found: Analysis, jobs: int, progress: Progress, keep: Callable[[Analysis], None]) -> Analysis:
    """The same with the solution's profile intervals, as they come."""
    source = found.solution.interval_source
    assert isinstance(source, ProfileIntervals | ProfilesApart)
    given = (np.array(found.given) | found.ranged)[:, None]
    for intervals in source.by_blocks(LEVEL, jobs):
        found = replace(found, intervals=np.where(given, intervals, np.nan))
        done = int((given & ~np.isnan(intervals)).any(axis=1).sum())
        progress(done / max(int(given.sum()), 1), f"intervals: {done} of {int(given.sum())} discounts")
        keep(found)
    return found


def _with_tests(found: Analysis, pairs: bool, jobs: int, progress: Progress, keep: Callable[[Analysis], None]) -> Analysis:
    """The same with the test that all experts have one discount, and with those of all pairs if they are wanted."""
    if len(found.known) == 1 or all(found.known):
        return found
    progress(0.0, "test of one discount for all")
    shared = shared_discount_test(found.solution)
    found = replace(found, shared=shared, pairs=[shared] if len(found.known) == 2 and not np.isnan(shared.statistic) else [])
    keep(found)
    if not pairs or len(found.known) == 2:
        return found
    tests: list[SharedDiscountTest] = []
    for pair in each_pair(found.solution, jobs=jobs, progress=part_of(progress, 0.25, 1.0)):
        tests.append(replace(pair, adjusted=np.nan))  # corrected for their number when all are there
        found = replace(found, pairs=list(tests))
        keep(found)
    return replace(found, pairs=with_holm(tests).tests)


def analyse_steps(
    steps: Steps, solver: SieveLikelihood | None = None, seed: int = 0, quick: bool = False, progress: Progress = silent
) -> Analysis:
    """The old name of `analyse` for states that are vectors."""
    found = analyse(steps, solver=solver, quick=quick, seed=seed, progress=progress)
    assert isinstance(found, Analysis)
    return found


def discount_text(found: Analysis, discount: float) -> str:
    """A discount with three decimals; the largest one tried is shown as a limit."""
    return f"≥ {found.largest_discount:g}" if discount >= found.largest_discount < 1 else f"{discount:.3f}"


def steps_text(found: Analysis, discount: float) -> str:
    """The horizon of a discount, without its unit; a limit is shown as a limit."""
    text = found.horizon.number(discount)
    return f"≥ {text}" if found.largest_discount <= discount < 1 else text


def own_discount_text(found: Analysis, k: int) -> str:
    """The discount of expert k; one that was known beforehand is shown as it was given."""
    gamma = float(found.solution.discounts[k])
    return f"{gamma:g}" if found.known[k] else discount_text(found, gamma)


def own_steps_text(found: Analysis, k: int) -> str:
    """The horizon of expert k; that of a known discount is no limit."""
    text = steps_text(found, float(found.solution.discounts[k]))
    return text.removeprefix("≥ ") if found.known[k] else text


def half_life_text(found: Analysis, k: int) -> str:
    """The delay after which something counts half for expert k."""
    return f"{found.horizon.half_life(float(found.solution.discounts[k])):,.3g}" if found.given[k] else "–"


def interval_text(found: Analysis, k: int, write: Callable[[Analysis, float], str] = discount_text) -> str:
    """The interval of expert k; an end may not have been found, and the largest discount tried is a limit."""
    ends = found.intervals[k]
    if found.known[k] or np.isnan(ends).all():
        return "known" if found.known[k] else "–"
    low, high = ("not found" if np.isnan(end) else write(found, float(end)) for end in ends)
    return f"{low} to {high}"


def person_cells(found: Analysis, k: int) -> tuple[str, str, str, str]:
    """Discount, interval, steps and temperature of expert k as they are shown; the reason where there is no discount."""
    temperature = decimals(found.temperatures[k], 2) or "–"
    if not found.given[k]:
        ends = interval_text(found, k)
        return "–", found.reasons[k] if ends == "–" else f"{ends}: {found.reasons[k]}", "–", temperature
    return own_discount_text(found, k), interval_text(found, k), own_steps_text(found, k), temperature


def sizes(found: Analysis | CrowdAnalysis) -> str:
    """How many experts, episodes and decisions there are, and of how many numbers a state is made that is a vector."""
    numbers = {"expert": found.decisions.size, "episode": int(np.sum(found.episodes)), "decision": int(found.decisions.sum())}
    if isinstance(found, CrowdAnalysis) and found.population.types is not None and numbers["expert"] == numbers["episode"]:
        del numbers["expert"]  # episodes without a name
    text = ", ".join(count(number, noun) for noun, number in numbers.items())
    if isinstance(found.evidence, SieveEvidence):
        text += f", in states of {count(len(found.evidence.coordinates) + len(found.evidence.left_out), 'number')}"
    return f"{text}."


def _named(found: Analysis, names: list[str]) -> str:
    """The experts by name, or their number in a crowd."""
    return in_words(names) if len(found.given) <= NAMED_EXPERTS else count(len(names), "expert")


def _warnings(found: Analysis) -> Iterable[str]:
    """That no number may be used, or a rejected assumption; empty where there is nothing to say."""
    evidence, shared = found.evidence, np.ptp(np.asarray(found.solution.temperature)) == 0
    if found.withheld and found.state_reward is not None and found.withheld == found.state_reward.why:
        yield f"Do not use these numbers. {found.withheld}"
    elif found.withheld:
        fewer = "fewer reward parameters (features)" if found.functions is None else "fewer basis functions"
        own = ", or a temperature for each expert," if shared and len(found.given) > 1 else ","
        yield (
            f"Do not use these numbers. {found.withheld} Intervals and tests are withheld. More decisions, or {fewer}{own} "
            "usually help."
        )
    elif found.fit.answer == "No" and not found.goals_differ:
        yield NO_FIT
    if found.goals is not None and found.goals_differ:
        yield f"The experts do not share one goal. {found.goals.verdict.reasons}"
    if not found.finished:
        yield "Stopped before the end: intervals, tests and model checks that are missing were not computed."
    if shared and _unequal_temperatures(found):
        yield (
            f"One temperature for all experts is rejected (p {p_text(evidence.equal_temperatures_p or 0.0)}): some of "
            "them choose more at random than others, and a shared temperature turns that into a difference of horizons. Let each "
            "expert have a temperature."
        )
    yield _lost_temperatures(found)
    if isinstance(evidence, SieveEvidence) and evidence.basis_too_poor:
        yield "The basis is too poor: richer functions predict choices better, and the discounts may be far off."


def _notes(found: Analysis) -> Iterable[str]:
    """That one reward was not tested, a penalty and what it moved; empty where there is nothing to say."""
    evidence = found.evidence
    if found.goals is not None and found.goals.test.reason:
        yield f"Whether the experts share one reward was not tested: {found.goals.test.reason}."
    if found.functions is None and found.problem.by_form_alone and found.given[0] and not found.known[0]:
        yield FORM_ALONE if not found.reward_given else ""
    if found.checks is not None and ALONE in found.checks.held_out:
        alone = predicts_worse(found.checks, found.chance, found.estimated_rewards, ALONE)
        yield alone and f"{alone} So do not use the discounts of single experts that were fitted alone, but the shrunken ones."
    yield "" if found.penalty is None else _penalty(found, found.penalty)
    yield held_rewards(evidence.ridge_reason) if isinstance(evidence, LikelihoodEvidence) else ""


def _unequal_temperatures(found: Analysis) -> bool:
    """Whether the decisions contradict one temperature for all experts."""
    p_value = found.evidence.equal_temperatures_p
    return p_value is not None and p_value < 1 - LEVEL


def _lost_temperatures(found: Analysis) -> str:
    """What must be said where a known reward does not show how random the choices are."""
    regular = [found.solution.experts[k] for k in found.order if found.ranged[k]]
    lost = [found.solution.experts[k] for k in _without_temperature(found)]
    text = []
    if regular:
        text.append(
            f"{_named(found, regular)} chose so regularly that no temperature is too low for them: their discounts are known to "
            "ranges at most, and not to numbers."
        )
    if lost:
        text.append(
            f"The temperature of {_named(found, lost)} cannot be estimated, and neither can the discount: they chose without "
            "regard to the known reward, or it says nothing about their choices."
        )
    return " ".join(text)


def _without_temperature(found: Analysis) -> list[int]:
    """Whose choices do not follow the known reward."""
    return [k for k in found.order if np.isnan(found.temperatures[k]) and not found.ranged[k] and found._open[k] != UNFINISHED]


def _penalty(found: Analysis, penalty: Penalty) -> str:
    """What a penalty the user asked for moved."""
    text = f"A penalty on large rewards (ridge {penalty.ridge:g}) was asked for."
    free, own = penalty.without, found.solution
    if free.status == Status.NOT_CONVERGED:
        return f"{text} Without it the fit does not converge, so what it moved is not known."
    pairs = zip(own.experts, free.discounts, own.discounts, strict=True)
    moved = [f"{name} from {before:.3f} to {after:.3f}" for name, before, after in pairs if abs(before - after) >= 0.0005]
    lost = free.objective - own.objective
    text += f" It costs {lost:.2f} in log-likelihood and moves {in_words(moved) if moved else 'no discount by 0.001 or more'}."
    if (np.argsort(free.discounts) != np.argsort(own.discounts)).any() and moved:
        text += " It changes the order of the discounts, so do not rely on the order."
    return text


def _advice(found: Analysis) -> list[str]:
    """What to collect next."""
    fewer = "Fewer reward parameters: tie the rewards of similar states together with features."
    if found.functions is not None:
        fewer = "A smaller basis: fewer functions of the state."
    separating = [
        "The same experts in a variant of the task: other transitions, the same rewards; hand in both tables together.",
        "Another expert with a clearly different horizon in the same task.",
        fewer,
    ]
    if found.goals_differ:
        return ["First fit each group that shares a goal by itself: keep the rows of its experts. Then see what is missing."]
    if found.state_reward is not None and found.state_reward.clear:
        return [REMEDY]
    if 2 * len(_without_temperature(found)) > len(found.given):
        return ["Nothing yet: first see whether the known reward is what these experts act for."]
    if found.solution.status == Status.NOT_IDENTIFIED and found.reward_given and not any(found.given):
        return ["More decisions of the same experts, above all in states where near and far rewards lie in different directions."]
    if found.solution.status == Status.NOT_IDENTIFIED and not found.reward_given:
        return separating
    if found.withheld:
        fewer = "reward parameters (features)" if found.functions is None else "basis functions"
        return [f"More decisions of every expert, above all in states where few were made, or fewer {fewer}."]
    if found.fit.answer == "No":
        return [
            "More decisions do not mend a model that does not fit. See in the report where it fails: something that the experts "
            "act on may be missing from the states, or from the features."
        ]
    if not any(found.given):
        return [
            "First see whether these choices depend on where actions lead: they are no likelier than by chance. If they do not, "
            "more decisions say no more."
        ]
    wanted_width = 0.1  # this narrow, an interval distinguishes most horizons
    widths = found.intervals[:, 1] - found.intervals[:, 0]
    wide = widths > wanted_width
    if found.one_discount_is_open and (widths > VAGUE_WIDTH).any():
        return separating
    if (np.isnan(widths) & found.given & ~np.array(found.known)).any():
        return ["What to collect depends on the intervals, and not all of these are known."]
    if not wide.any():
        return [f"Nothing more is needed: no interval is wider than {wanted_width:g}."]
    if _widened(found)[wide].any():
        return [
            "More decisions of the same experts would narrow intervals little, because goals differ between them. More experts "
            "would, or the same ones in further tasks, or features that tie the rewards of similar states together."
        ]
    vague = [found.solution.experts[k] for k in np.flatnonzero(widths > VAGUE_WIDTH)]
    unclear = (
        f"How many more decisions it would take cannot be foreseen for {_named(found, vague)}: these leave half of the range of "
        "discounts open, or more. See first whether these choices depend on where actions lead. If they do, the same experts in "
        "a task where longer and shorter horizons choose otherwise say most."
    )
    wide &= widths <= VAGUE_WIDTH  # only near the estimate do intervals narrow with the root of the number of decisions
    if not wide.any():
        return [unclear]
    rest = [unclear] if vague else []
    more = found.episodes[wide] * ((widths[wide] / wanted_width) ** 2 - 1)

    def rounded(number: float) -> str:  # two significant digits: it is an estimate
        whole = int(np.ceil(number))
        return f"{round(whole, -max(0, len(str(whole)) - 2)):,}"

    if len(found.given) > NAMED_EXPERTS:
        wanted = rounded(float(np.median(more)))
        return [
            f"About {wanted} more episodes like these, of each, would narrow half of the wider intervals to {wanted_width:g}.",
            *rest,
        ]
    wanted = rounded(float(more.max()))
    whom = "every expert" if wide[found.given].all() else _named(found, [found.solution.experts[k] for k in np.flatnonzero(wide)])
    return [f"About {wanted} more episodes like these, of {whom}, would narrow their intervals to {wanted_width:g}.", *rest]


def _widened(found: Analysis) -> Bools:
    """Whose intervals `(K,)` are much wider than with one reward for all, so that it is not decisions that are lacking."""
    if found.deviations is None:
        return np.zeros(len(found.given), dtype=np.bool_)
    errors = found.deviations.if_shared["standard_errors"]
    wider: Bools = np.diff(found.intervals, axis=1)[:, 0] > 1.5 * 2 * ndtri(0.5 + LEVEL / 2) * errors
    return wider


def _look_ahead(found: Analysis) -> Answer:
    """Who looks how far ahead."""
    question = "How far do they look ahead?"
    if found.withheld:
        return Answer(question, "No usable answer", found.withheld, "bad")
    order, experts = [k for k in found.order if found.given[k]], found.solution.experts
    if not order:
        why = set(found.reasons)
        reasons = "These decisions determine no expert's discount."
        if why == {"no better than chance"}:
            reasons = "These decisions do not show how far ahead anybody looks: they are no likelier than by chance."
        if why == {"not identified"}:
            reasons = "These decisions do not show how far ahead anybody looks: other discounts explain them as well."
        return Answer(question, "Unknown", reasons, "bad")
    clear, vague = ([k for k in order if found.sure[k] == sure] for sure in (True, False))
    if not clear:
        return Answer(question, "Unknown", _not_shown(found, vague), "caution")
    gammas, reach = [own_discount_text(found, k) for k in clear], [own_steps_text(found, k) for k in clear]
    if len(clear) <= NAMED_EXPERTS:
        answer = f"{in_words(reach)} {found.ahead} (discount{'s' if len(clear) > 1 else ''} {in_words(gammas)})"
        ends = [f"{gamma} ({interval_text(found, k)})" for gamma, k in zip(gammas, clear, strict=True)]
        each = f"{'discounts' if len(clear) > 1 else 'a discount of'} {in_words(ends)}, 95 % intervals in brackets"
        who = f"{in_words([experts[k] for k in clear])} look{'' if len(clear) > 1 else 's'}"
        reasons = f"{who} {in_words(reach)} {found.ahead} ahead: {each}"
    else:
        quartiles = np.quantile(found.solution.discounts[clear], [0.25, 0.5, 0.75]).tolist()
        low, middle, high = (steps_text(found, gamma) for gamma in quartiles)
        answer = f"Half of them less than {middle} {found.ahead}, half more"
        known = sum(found.known)
        were = f"; {count(known, 'discount')} of these {'was' if known == 1 else 'were'} known" if known else ""
        whose = f"Of the {len(clear)} experts" + (" whose intervals are narrow enough to say" if vague else "")
        reasons = (
            f"{whose} a quarter look less than {low} {found.ahead} ahead, half less than {middle}, and a quarter more than "
            f"{high} (discounts {in_words([f'{gamma:.3f}' for gamma in quartiles])}){were}"
        )
    if all(found.known):
        return Answer(question, f"{answer}, as known", "All discounts were known; none was estimated.", "good")
    if found.shared is not None and not np.isnan(found.shared.p_value):
        differ = found.shared.p_value < 1 - LEVEL
        reasons += "; they do not all look equally far" if differ else "; the decisions do not show that they differ"
        reasons += f", p {p_text(found.shared.p_value)}"
    reasons += "."
    if vague:
        answer += f"; unknown for {_named(found, [experts[k] for k in vague])}"
        reasons += f" {_not_shown(found, vague)}"
    if np.ptp(np.asarray(found.solution.temperature)) > 0 and _unequal_temperatures(found):
        reasons += " They also differ in how much they choose at random: their temperatures stand beside the discounts."
    return Answer(question, answer, reasons, "caution" if found.warnings or vague else "good")


def _not_shown(found: Analysis, vague: list[int]) -> str:
    """Of experts whose intervals are wide, or not known: that there is no number for them, and why."""
    names, wide = found.solution.experts, [k for k in vague if not np.isnan(found.intervals[k]).any()]
    lost, parts = [names[k] for k in vague if k not in wide], []
    if wide and len(found.given) <= NAMED_EXPERTS:
        ranges = in_words([f"{names[k]} from {interval_text(found, k)}" for k in wide])
        parts.append(
            f"How far ahead {_named(found, [names[k] for k in wide])} look{'s' * (len(wide) == 1)} is not known: the "
            f"95 % intervals leave discounts of {ranges}."
        )
    elif wide:
        parts.append(
            f"How far ahead {count(len(wide), 'expert')} look{'s' * (len(wide) == 1)} is not known: half of the range of "
            "discounts, or more, lies in their 95 % intervals."
        )
    if lost:
        why = "their intervals were not computed" if not found.finished else "no whole interval was found for them"
        parts.append(f"How far ahead {_named(found, lost)} look{'s' * (len(lost) == 1)} is not known: {why}.")
    return " ".join(parts)


def _identifiability(found: Analysis) -> Answer:
    """Whether the decisions identify the discounts, and how narrowly; intervals of a model that does not fit promise nothing."""
    question, evidence = "Can the data tell?", found.evidence
    if all(found.known) and not found.withheld:
        return Answer(question, "Not asked", " ".join(["No discount was estimated.", *_open_directions(found)]), "good")
    apart = ("the fit did not end", "no better than chance")
    unknown = [found.solution.experts[k] for k in found.order if not found.identified[k] and found.reasons[k] not in apart]
    converged = found.solution.status != Status.NOT_CONVERGED
    if len(unknown) == len(found.given) and converged:
        return Answer(question, "No", _unknown(found, unknown), "bad")
    if found.withheld and not _nobody_better_than_chance(found):
        text = "Whether the data identify the discounts is open until a fit succeeds."
        return Answer(question, "Not with this fit", text, "bad")
    found_so = _how_narrowly(found, unknown if converged else [])
    if found_so.kind == "bad":
        return found_so
    if isinstance(evidence, SieveEvidence) and not all(found.known):  # what learned dynamics and a basis add
        if dynamics_unknown(evidence.next_state_r2):
            reasons = "State and action do not predict next states, so plans are not known."
            found_so = Answer(question, "Hardly", reasons, "caution")
        elif evidence.basis_too_poor:
            found_so = Answer(question, "Not with this basis", "Richer functions of the state predict choices better.", "caution")
        else:
            found_so = replace(found_so, reasons=f"{found_so.reasons} The intervals include the error of the learned dynamics.")
    if found.fit.answer != "No":
        return found_so
    answer = "Only if the model were right" if found_so.kind == "good" else found_so.answer
    return Answer(
        question, answer, f"{found_so.reasons} But all this holds only if the model is right, and it does not fit.", "caution"
    )


def _how_narrowly(found: Analysis, unknown: list[str]) -> Answer:
    """Whose discounts have narrow intervals, wide ones, or none; those of `unknown` experts are not identified."""
    names, number = found.solution.experts, len(found.given)
    useful = [k for k in found.order if found.sure[k]]
    rest = [k for k in found.order if found.given[k] and not found.sure[k]]
    vague, missing = ([k for k in rest if np.isnan(found.intervals[k]).any() == lost] for lost in (False, True))
    idle = [names[k] for k in found.order if found.reasons[k] == "no better than chance"]
    broken = [names[k] for k in found.order if found.reasons[k] == "the fit did not end"]
    parts = [_unknown(found, unknown)] if unknown else []
    if failed := [names[k] for k in found.order if found.reasons[k] == UNPREDICTED]:
        parts.append(
            f"Of {_named(found, failed)}, half of the decisions predict the other half worse than chance, so no number is given."
        )
    if broken:
        parts.append(f"The search for the discount of {_named(found, broken)} did not end, so no number is given.")
    if idle:
        parts.append(f"The decisions of {_named(found, idle)} are no likelier than by chance, so no discount is given.")
    if vague and number > NAMED_EXPERTS:
        are = "is" if len(vague) == 1 else "are"
        why = ": goals differ too much to say more" if _widened(found)[vague].any() else ""
        parts.append(f"{count(len(vague), 'interval')} {are} wider than {VAGUE_WIDTH:g}{why}.")
    elif vague:
        whose = "The decisions" if len(vague) == number else "Some experts' decisions"
        ranges = [f"{names[k]} from {interval_text(found, k)}" for k in vague]
        if _widened(found)[vague].any():
            parts.append(f"Goals differ too much between experts to say more: they leave {in_words(ranges)}.")
        else:
            parts.append(f"{whose} say little: they leave {in_words(ranges)}.")
    parts += [ONE_DISCOUNT] if vague and found.one_discount_is_open else []
    if missing and not found.finished:
        parts.append(f"The work was stopped before there were intervals for {_named(found, [names[k] for k in missing])}.")
    elif missing:
        listed = [names[k] if number > NAMED_EXPERTS else f"{names[k]} ({interval_text(found, k)})" for k in missing]
        how_sure = "this discount is" if len(missing) == 1 else "these discounts are"
        parts.append(f"No whole interval was found for {_named(found, listed)}, so it is not known how sure {how_sure}.")
    parts += [_widths(found, useful)] if useful else []
    parts += independence_words(found.independence)
    reasons = " ".join([*parts, *_open_directions(found)])
    question = "Can the data tell?"
    if len(useful) == number:
        return Answer(question, "Yes", reasons, "good") if found.finished else Answer(question, "So far, yes", reasons, "caution")
    if useful or rest:
        answer = f"For {len(useful)} of {number}" if useful else "Barely" if vague else "Not known"
        return Answer(question, answer, reasons, "caution")
    return Answer(question, "No", reasons, "bad")


def _nobody_better_than_chance(found: Analysis) -> bool:
    return all(reason == "no better than chance" for reason in found.reasons)


def _unknown(found: Analysis, unknown: list[str]) -> str:
    """What to say of experts whose discounts are not identified."""
    if found.reward_given:
        ranged = [found.solution.experts[k] for k in found.order if found.ranged[k]]
        rest, said = [name for name in unknown if name not in ranged], []
        if rest:
            said.append(f"Other discounts make the decisions of {_named(found, rest)} as likely, so no number is given.")
        if ranged:
            said.append(f"The decisions of {_named(found, ranged)} fit a range of discounts equally well, so no number is given.")
        return " ".join(said)
    exact = found.identification
    how = "as likely, as far as can be computed" if exact is not None and exact.status == "unique" else "exactly as likely"
    text = f"Other discounts, with another reward, make the decisions of {_named(found, unknown)} {how}. So no number is given."
    if exact is not None and exact.status == "set":
        pairs = zip(exact.experts, exact.intervals, strict=True)
        ranges = [f"{name} from {low:.3f} to {high:.3f}" for name, (low, high) in pairs if name in unknown]
        text += f" More decisions of the same kind would not help: even exact policies leave {in_words(ranges)}."
    return text


def _open_directions(found: Analysis) -> list[str]:
    free = found.evidence.unidentified_directions
    stays = "stays" if free == 1 else "stay"
    directions = count(free, "direction").capitalize()
    return [f"{directions} of the reward {stays} open, such as a constant added to all of it."] if free else []


def _widths(found: Analysis, useful: list[int]) -> str:
    """How narrow the intervals are of the discounts that were estimated."""
    known = found.known
    estimated = [k for k in useful if not known[k]]
    if not estimated:
        return "The other discounts were known."
    widths = found.intervals[estimated, 1] - found.intervals[estimated, 0]
    whom = "every discount that was not known" if any(known) else "every discount"
    if len(useful) < len(known):
        names = [found.solution.experts[k] for k in estimated]
        whom = f"the {'discount' if len(names) == 1 else 'discounts'} of {_named(found, names)}"
    if len(estimated) == 1:
        return f"The decisions identify {whom}; its 95 % interval spans {widths[0]:.3f}."
    if len(known) <= NAMED_EXPERTS:
        return f"The decisions identify {whom}; the widest 95 % interval spans {widths.max():.3f}."
    return f"The decisions identify {whom}; half of the 95 % intervals span less than {np.median(widths):.3f}."


def _fit_of_lists(found: Analysis) -> Answer:
    """Whether the model predicts decisions it has not seen, better than simpler models and as well as the experts' own habits."""
    question = "Does the model fit?"
    if found.compared is None:
        reasons = (
            "Persons have rewards of their own in this population, or conditions that are not known: there is no check of it."
        )
        return Answer(question, "Not tested", reasons, "caution")
    if not found.chance.any():
        return Answer(question, "Not tested", "There was nothing to choose: each state has a single action.", "caution")
    if found.checks is None:
        return Answer(question, "Not checked", "Whether the model predicts new decisions was not checked.", "caution")
    checks = _reported_checks(found)
    judged = np.where(found.unpredicted, 0.0, checks.decisions)
    total = {name: float(values @ judged) for name, values in checks.held_out.items()}
    number = float(judged.sum())

    def per_decision(value: float) -> str:  # three decimals, and more where these would show nothing
        each = value / number
        return f"{each:.3f}" if abs(each) >= 0.01 else np.format_float_positional(each, precision=2, fractional=False, trim="-")

    gain = total["this model"] - float(found.chance @ judged)
    worse = _predicts_worse(found)
    if gain <= 0:
        worse = worse or "The model predicts held-out decisions no better than chance."
    within = checks.within
    surely, perhaps = within.p_value <= 0.001, within.p_value <= 1 - LEVEL
    together = ""
    if within.reason:
        together = f" Whether something outside the state column changes between episodes was not tested: {within.reason}."
    elif perhaps:
        together = (
            f"choices of one episode go together more than their states explain (p {'≤' if surely else '='} "
            f"{within.p_value:.3f}). So something outside the state column, such as the goal, "
            f"{'changes' if surely else 'may change'} between episodes; if it was recorded, make it part of the state."
        )
    if surely:
        return Answer(question, "No", f"The model does not fit: {together} {worse}".strip(), "bad")
    if worse:
        return Answer(question, "No", worse, "bad")
    if found.withheld:
        return Answer(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    lost = total["own frequencies"] - total["this model"]
    if found.choices_repeat and lost > 3 * np.sqrt(2 * (found.estimated_rewards + len(checks.experts))):
        why = "The experts do something that one shared reward and one discount each cannot explain."
        if found.goals_differ:
            why = "They do not share one goal."
        elif found.deviations is not None:
            why = "The experts do something that a nearly shared reward and one discount each cannot explain."
        reasons = (
            "The model does not fit: each expert's own habits predict held-out decisions better, by "
            f"{per_decision(lost)} in log-likelihood per decision. {why}"
        )
        return Answer(question, "No", reasons, "bad")
    better = f"it predicts held-out decisions better than chance, by {per_decision(gain)} in log-likelihood per decision"
    how = extent(found.misfits)
    answer = fit_answer(how, checks.overall)
    if not how.odd:
        alone = "no state stands out" if how.compared else "no state repeats often enough to be compared alone"
        if perhaps:
            reasons = f"State by state the model fits: {better}, and {alone}. But {together}"
            return Answer(question, "Perhaps not", reasons, "caution")
        reasons, overall = f"{better}, and {alone}", checks.overall
        if answer != "No misfit detected":
            reasons = f"State by state the model fits: {reasons}. But {overall_words(overall, begin=False)}{together}"
            return Answer(question, answer, reasons, "caution")
        return Answer(question, answer, f"No misfit was detected: {reasons}. {overall_words(overall)}{together}", "good")
    where = "does not fit" if how.answer == "No" else f"fits {how.answer[0].lower()}{how.answer[1:]}"
    reasons = f"The model {where}: {better}. {extent_words(found.misfits)}"
    reasons += "" if answer == how.answer else f" {overall_words(checks.overall)}"
    reasons += f" Besides, {together}" if perhaps else together
    return Answer(question, answer, reasons, "bad" if how.answer == "No" else "caution")


def _fit_of_vectors(found: Analysis, evidence: SieveEvidence) -> Answer:
    """Whether the model explains what the choices' own logits explain, and next states are predicted at all."""
    question = "Does the model fit?"
    if _nobody_better_than_chance(found):
        return Answer(question, "No", "The model explains the decisions no better than chance.", "bad")
    if found.withheld:
        return Answer(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    share, weak = evidence.explained_share, unpredicted(evidence.next_state_r2)
    reasons = (
        f"One reward and {count(len(found.solution.experts), 'discount')} explain {100 * share:.0f} % of what the same functions "
        "explain of the choices without any plan. Whether something outside the state changes between episodes was not tested."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= 0.95 and not weak
    return Answer(question, "Yes" if good else "In part", reasons, "good" if good else "caution")
