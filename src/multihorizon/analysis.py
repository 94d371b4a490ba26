"""From tables to findings, for every kind of state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2, norm

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats, Ints, first_few
from multihorizon.choice.parameters import Settings, Temperature
from multihorizon.choice.sieve import LARGEST_DISCOUNT
from multihorizon.choice.tabular import Likelihood
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.dynamics import describe_estimate, estimate_mdp, require_agreement, require_ends
from multihorizon.data.steps import Steps
from multihorizon.driver import solve
from multihorizon.estimate.intervals import ProfileIntervals
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.estimate.population.solver import Population
from multihorizon.estimate.sieve import RewardFunctions, SieveLikelihood, dynamics_unknown, reward_functions, unpredicted
from multihorizon.exact.goals import DIFFER
from multihorizon.exact.identify import Identification, identify
from multihorizon.files import look_alikes
from multihorizon.lookahead import Lookahead
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.problem import Problem, SampledProblem
from multihorizon.questions.contrasts import Contrasts, reward_contrasts
from multihorizon.questions.goals import GoalEstimates, SharedGoalTest, best_fit, group_experts, shared_goal_test
from multihorizon.questions.lookahead_comparison import LookaheadComparison, check_comparable, compare_from
from multihorizon.questions.model_checks import (
    Extent,
    Misfit,
    ModelChecks,
    WithinEpisodes,
    check_model,
    choices_repeat,
    extent,
    misfits,
)
from multihorizon.questions.shared_discount import (
    SharedDiscountTest,
    each_pair,
    pairwise_tests,
    shared_discount_test,
    with_holm,
)
from multihorizon.questions.study import Recovery
from multihorizon.solution import LikelihoodEvidence, Solution, Status
from multihorizon.text import (
    count,
    decimals,
    effective_horizon,
    from_to,
    horizon_text,
    in_words,
    p_text,
    per_decision,
    percent,
    rounded,
)

#: Experts are grouped by themselves where there are up to this many of them and of rewards; with more it takes long.
MOST_EXPERTS, MOST_REWARDS = 12, 60
QUESTION = "Do they share a goal?"


@dataclass(frozen=True, eq=False)
class GoalCheck:
    """The test that all experts share one reward, and their groups where it is rejected and they were looked for.

    `apart` says how widely the model fits if each expert has a reward of their own; None where that was not asked.
    """

    test: SharedGoalTest
    groups: GoalEstimates | None = None
    apart: Extent | None = None

    def with_groups(self, solution: Solution, temperature: Temperature, seed: int, progress: Progress) -> GoalCheck:
        """The same with the experts in groups, where one reward is rejected and there are few of them and of rewards."""
        problem = solution.require_problem()
        many = problem.n_experts > MOST_EXPERTS or problem.n_parameters > MOST_REWARDS
        if not self.test.rejected or self.model_fails or many:
            return self
        return replace(self, groups=group_experts(solution, self.test, temperature, seed, progress))

    def with_own_rewards(self, solution: Solution) -> GoalCheck:
        """The same with how widely the model fits if each expert has a reward of their own, where one for all is rejected."""
        if not self.test.rejected:
            return self
        return replace(self, apart=extent(misfits(solution.require_problem(), _own_policies(solution))))

    @property
    def model_fails(self) -> bool:
        """Whether the model does not fit even with a reward for each expert, so that goals need not be the cause."""
        return self.apart is not None and not self.apart.nearly_everywhere

    @property
    def rejected(self) -> bool:
        """Whether the experts have different goals: one reward for all is rejected, one for each fits, and no grouping speaks
        for one."""
        return self.test.rejected and not self.model_fails and (self.groups is None or self.groups.verdict == DIFFER)

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        if self.test.reason:
            return f"This was not tested: {self.test.reason}."
        p = self.test.words
        if not self.test.rejected:
            return f"Nothing speaks against one reward for all ({p})."
        if self.apart is not None and self.model_fails:
            return (
                f"It cannot be told. One reward for all is rejected ({p}), but with a reward for each expert the model does not "
                f"fit either: choices differ from it in {self.apart.odd:,} of {self.apart.compared:,} cases. So different goals "
                "need not be the cause."
            )
        if not self.rejected:
            return f"It cannot be told: one reward for all is rejected ({p}), but no experts can be told apart."
        who = "" if self.groups is not None else " Who shares one with whom was not looked for: ask multihorizon goals."
        return f"No. One reward for all is rejected ({p}), so the estimates for all together must not be believed.{who}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not known."""
        p_value = None if self.test.reason else self.test.p_value
        groups = None if self.groups is None else self.groups.to_dict()
        return {"p_value": p_value, "answer": self.answer, "found": groups}


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


LEVEL = 0.95
#: An interval wider than this says little about a discount.
VAGUE_WIDTH = 0.5
#: A reward difference of so many temperatures makes the odds of a single choice e^100: if its error is as large as this, no
#: decision holds it back and it has run away.
RUNAWAY_REWARD = 100.0


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
        here = solution.evidence["identified"] & ~(moved <= norm.ppf(0.5 + LEVEL / 2) * errors) & (moved > 0)
        names = first_few([name for name, decided in zip(solution.experts, here, strict=True) if decided])
        return names and (
            f"The penalty on large rewards (ridge {self.ridge:g}), and not the decisions, sets the discounts of these "
            f"experts: {names}. Choose a smaller penalty, or none."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged(ABC):
    """A fitted solution with what is needed to judge each expert's discount, whatever the states are.

    Attributes:
        solution: with its problem.
        intervals: of the discounts `(K,2)`, NaN where there is none.
        episodes: `(K,)`.
        shared: the test that all experts have one discount; None for one expert or where withheld.
        pairs: the same for every pair.
        withheld: why intervals and tests are withheld; empty where they are given.
        quick: whether some of the work was left out to save time.
        finished: whether all that was asked for was computed.
    """

    solution: Solution
    intervals: Floats
    episodes: Ints
    shared: SharedDiscountTest | None
    pairs: list[SharedDiscountTest]
    withheld: str
    quick: bool = False
    finished: bool = True

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""

    @property
    @abstractmethod
    def known(self) -> list[bool]:
        """Whether each discount was known beforehand, and so was not estimated."""

    @property
    @abstractmethod
    def longest(self) -> float:
        """H, the most decisions an episode of the task can have; infinite where that is not known."""

    @property
    @abstractmethod
    def largest_discount(self) -> float:
        """The largest discount the fit tries."""

    @property
    @abstractmethod
    def rewards_told(self) -> int:
        """How many directions of the reward the decisions can determine, at most."""

    @property
    @abstractmethod
    def decisions(self) -> Floats:
        """Decisions of each expert `(K,)`."""

    @property
    @abstractmethod
    def chance(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` if all available actions were equally likely."""

    @property
    @abstractmethod
    def fitted(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` under the fitted policy."""

    @property
    def identified(self) -> list[bool]:
        """Whether each discount is identified by the decisions."""
        return list(self.solution.evidence["identified"])

    @cached_property
    def reasons(self) -> list[str]:
        """Why no discount is given for each expert; empty where one is."""
        gain = 2 * self.decisions * (self.fitted - self.chance)
        nobody = gain.sum() < chi2.ppf(LEVEL, self.rewards_told + 2 * gain.size)
        if self.solution.status == Status.NOT_CONVERGED:  # where all choose at random, the likelihood is too flat to be climbed
            return ["no better than chance" if nobody else "the fit did not end"] * gain.size
        idle = ((gain < chi2.ppf(LEVEL, 2)) | nobody) & ~np.array(self.known)
        cases = zip(self.identified, idle, strict=True)
        return ["not identified" if not told else "no better than chance" if lost else "" for told, lost in cases]

    @property
    def given(self) -> list[bool]:
        """Whether a discount is given for each expert."""
        return [not reason for reason in self.reasons]

    @property
    def temperatures(self) -> Floats:
        """Each expert's temperature `(K,)`; NaN where the decisions do not tell it."""
        found, lost = self.solution.temperature, self.solution.evidence.get("lost_temperatures", False)
        return np.full(len(self.solution.experts), np.nan) if found is None else np.where(lost, np.nan, found)

    @property
    def sure(self) -> list[bool]:
        """Whether each discount is told narrowly: it was known, or both ends of its interval were found and are not far apart."""
        widths = self.intervals[:, 1] - self.intervals[:, 0]
        return [told and (known or bool(w <= VAGUE_WIDTH)) for told, known, w in zip(self.given, self.known, widths, strict=True)]

    @property
    def order(self) -> list[int]:
        """The experts from the shortest horizon to the longest; those without a number come last, by name."""
        known, named = self.given, zip(self.solution.discounts.tolist(), self.solution.experts, strict=True)
        keys = [(not known[k], g if known[k] else 0.0, name) for k, (g, name) in enumerate(named)]
        return sorted(range(len(keys)), key=keys.__getitem__)

    def horizon(self, discount: float) -> float:
        """The effective horizon of a discount in steps; never beyond the task's length."""
        return effective_horizon(discount, self.longest)

    @property
    def explained(self) -> Floats:
        """Pseudo-R² `(K,)`: the share of chance's log-likelihood that the fit saves; NaN where there was nothing to choose."""
        return 1 - self.fitted / np.where(self.chance < 0, self.chance, np.nan)


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings(Judged):
    """A fitted solution of a task with a list of states, with what is needed to judge it.

    Attributes, besides those of `Judged`:
        contrasts: the reward as differences.
        checks: held-out predictions; None where they could not be made.
        identification: what exact policies would identify; None where it cannot be told.
        penalty: what a ridge the user asked for moved.
        remarks: how the result was made.
        population: the solution of `Population`; None where there was no table of persons.
        lookahead: families of look-ahead on the same decisions, where they were asked for.
        goals: the test that all experts share one reward; None where it was not made.
        recovery: simulated studies of this design, where some were handed in.
    """

    contrasts: Contrasts
    checks: ModelChecks | None
    identification: Identification | None
    penalty: Penalty | None
    remarks: list[str]
    lookahead: LookaheadComparison | None = None
    population: Solution | None = None
    goals: GoalCheck | None = None
    recovery: Recovery | None = None

    @property
    def problem(self) -> Problem:
        """The problem that was fitted."""
        return self.solution.require_problem()

    @property
    def reward_given(self) -> bool:
        """Whether the whole reward was given and none of it estimated."""
        return self._known.get("reward") == "all"

    @property
    def free_rewards(self) -> int:
        """How many reward parameters were estimated."""
        return 0 if self.reward_given else self.problem.n_parameters

    @property
    def known(self) -> list[bool]:
        """Whether each discount was known beforehand, and so was not estimated."""
        return list(self._known.get("discounts", [False] * len(self.solution.experts)))

    @property
    def _known(self) -> dict[str, Any]:
        return self.solution.evidence.get("known") or {}

    @cached_property
    def rewards_told(self) -> int:
        """The rewards that were estimated, less those that stay open; no more than choices could be told apart."""
        told = self.free_rewards - int(self.solution.evidence["unidentified_directions"])
        pairs = zip(self.problem.experts, self._counts, strict=True)
        choices = sum(int((e.mdp.available.sum(axis=1) - 1)[counts.sum(axis=1) > 0].sum()) for e, counts in pairs)
        return max(0, min(told, choices))

    @cached_property
    def steps(self) -> float:
        """H, the most decisions an episode of the task can have; infinite where states can recur."""
        return most_steps(self.problem)

    @property
    def longest(self) -> float:
        """The same as `steps`, under the name that all kinds of states share."""
        return self.steps

    @cached_property
    def largest_discount(self) -> float:
        """The largest discount the fit tries: 1, or a little less in a task that may never end."""
        return ENDLESS_DISCOUNT if any(e.mdp.never_ends().any() for e in self.problem.experts) else 1.0

    @cached_property
    def decisions(self) -> Floats:
        """Decisions of each expert `(K,)`."""
        return self._by_expert([float(counts.sum()) for counts in self._counts])

    @cached_property
    def chance(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` if all available actions were equally likely."""
        choices = [np.maximum(e.mdp.available.sum(axis=1), 1) for e in self.problem.experts]
        totals = [-float(c.sum(axis=1) @ np.log(n)) for c, n in zip(self._counts, choices, strict=True)]
        return self._by_expert(totals) / self.decisions

    @cached_property
    def fitted(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` under the fitted policy."""
        totals = [float((c * np.log(np.maximum(p, TINY))).sum()) for c, p in zip(self._counts, self.policies, strict=True)]
        return self._by_expert(totals) / self.decisions

    @cached_property
    def policies(self) -> list[Floats]:
        """The fitted policy of each of the problem's experts."""
        return self.solution.policies()

    @cached_property
    def misfits(self) -> list[Misfit]:
        """Every state with enough decisions to be compared with the model, from the worst fit to the best."""
        return misfits(self.problem, self.policies)

    @cached_property
    def choices_repeat(self) -> bool:
        """Whether most decisions can be compared with the model for each expert alone."""
        return choices_repeat(self.problem)

    @property
    def _counts(self) -> list[Floats]:
        return [e.counts for e in self.problem.experts if e.counts is not None]

    def _by_expert(self, values: list[float]) -> Floats:
        """Values of the problem's experts summed over the tasks of each of the K persons."""
        total = np.zeros(self.problem.n_experts)
        np.add.at(total, list(self.problem.owner), values)
        return total


def most_steps(problem: Problem) -> float:
    """The most decisions an episode of any of the tasks can have."""
    return max(longest_episode(mdp) for mdp in {id(e.mdp): e.mdp for e in problem.experts}.values())


def longest_episode(mdp: MDP) -> float:
    """The most decisions an episode can have: the longest path to a terminal state, infinite where a state can recur.

    Example:
        >>> import numpy as np
        >>> chain = np.array([[[0, 1, 0], [0, 0, 1], [0, 0, 1]]], dtype=float)
        >>> longest_episode(MDP(chain, initial=[1, 0, 0], terminal=[2]))
        2
    """
    n = mdp.n_states
    moves = sp.coo_array(mdp.stacked)
    source, target = moves.coords[0] % n, moves.coords[1]
    inner = (moves.data > 0) & ~mdp.terminal[source] & ~mdp.terminal[target]
    graph = sp.csr_array((np.ones(int(inner.sum())), (source[inner], target[inner])), shape=(n, n))
    if (graph.diagonal() > 0).any() or connected_components(graph, connection="strong")[0] < n:
        return np.inf
    source, target = graph.tocoo().coords
    depth = np.where(mdp.terminal, 0, 1)
    while True:
        deeper = depth.copy()
        np.maximum.at(deeper, source, depth[target] + 1)
        if (deeper == depth).all():
            return int(depth.max())
        depth = deeper


def not_to_be_used(solution: Solution, contrasts: Contrasts | None = None) -> str:
    """Why a fit is no finding; empty where it is one. `contrasts` are rewards of states or features, which may run away."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit did not finish, so these numbers are only where the search stood when it was stopped."
    if contrasts is None:
        return ""
    scale = 1.0 if solution.temperature is None else float(np.max(solution.temperature))
    large = np.abs(contrasts.values) > RUNAWAY_REWARD * scale
    if (large & (contrasts.standard_errors > RUNAWAY_REWARD * scale)).any():
        size = float(np.nanmax(np.abs(contrasts.values)))
        return f"A reward runs away: it reaches {size:,.0f}, and no decision in the table holds it back."
    return ""


def predicts_worse(checks: ModelChecks, chance: Floats, parameters: int) -> str:
    """The simpler model that predicts held-out decisions clearly better than the fitted one, in words; empty if there is none."""
    K = len(checks.experts)
    ours = float(checks.held_out["this model"] @ checks.decisions)
    rivals = {
        "chance": (float(chance @ checks.decisions), K + parameters),
        "a model in which nobody looks ahead": (float(checks.held_out["discount 0"] @ checks.decisions), K),
        "a model with one discount for all": (float(checks.held_out["one shared discount"] @ checks.decisions), K - 1),
    }
    for name, (value, extra) in rivals.items():
        if extra and value - ours > extra + 3 * np.sqrt(2 * extra):
            return (
                f"The model predicts held-out decisions worse than {name}: their log-likelihood is lower by {value - ours:,.1f} "
                f"in all ({checks.decisions.sum():,.0f} decisions)."
            )
    return ""


#: Up to this many states of all tasks the exact equations are also searched where they are not linear.
SEARCHED_STATES = 200
#: Up to this many states of all experts together, the fitted policies go through `identify`: its time grows with the square.
IDENTIFIED_STATES = 3000


def identification(solution: Solution) -> Identification | None:
    """What exact policies would identify where nothing is known; for large problems only where it matters most."""
    problem, known = solution.require_problem(), solution.evidence["known"]
    if known["reward"] or any(known["discounts"]):
        return None
    states = sum(expert.mdp.n_states for expert in problem.experts)
    small = states <= (IDENTIFIED_STATES if problem.tabular else SEARCHED_STATES)
    return identify_fitted(solution) if small or solution.status == Status.NOT_IDENTIFIED else None


def identify_fitted(solution: Solution) -> Identification | None:
    """Whether the fitted policies, if known exactly, would identify the discounts; None where it cannot be told."""
    per_expert = solution.temperature is not None and bool(np.ptp(solution.temperature) > 0)
    lam = 1.0 if solution.temperature is None else float(solution.temperature[0])
    try:
        return identify(fitted_problem(solution), temperature="per_expert" if per_expert else lam)
    except ValueError:
        return None


def fitted_problem(solution: Solution) -> Problem:
    """The solution's problem with each expert's decisions replaced by the fitted policy."""
    problem = solution.require_problem()
    return problem.with_experts(
        replace(expert, kind="policy", policy=policy, counts=None)
        for expert, policy in zip(problem.experts, solution.policies(), strict=True)
    )


def discount_text(findings: Judged, discount: float) -> str:
    """A discount with three decimals; the largest one tried is shown as a limit."""
    if discount >= findings.largest_discount < 1:
        return f"≥ {findings.largest_discount:g}"
    return f"{discount:.3f}"


def own_discount_text(findings: Judged, k: int) -> str:
    """The discount of expert k; one that was known beforehand is shown as it was given."""
    gamma = float(findings.solution.discounts[k])
    return f"{gamma:g}" if findings.known[k] else discount_text(findings, gamma)


def own_steps_text(findings: Judged, k: int) -> str:
    """The horizon of expert k; that of a known discount is no limit."""
    text = steps_text(findings, float(findings.solution.discounts[k]))
    return text.removeprefix("≥ ") if findings.known[k] else text


def interval_text(findings: Judged, k: int) -> str:
    """The interval of expert k; an end may not have been found, and the largest discount tried is a limit."""
    if findings.known[k]:
        return "known"
    ends = findings.intervals[k]
    if np.isnan(ends).all():
        return "–"
    low, high = ("not found" if np.isnan(end) else discount_text(findings, float(end)) for end in ends)
    return f"{low} to {high}"


def interval_steps_text(findings: Judged, k: int) -> str:
    """The interval of expert k in steps."""
    ends = findings.intervals[k]
    if findings.known[k] or np.isnan(ends).all():
        return interval_text(findings, k)
    low, high = ("not found" if np.isnan(end) else steps_text(findings, float(end)) for end in ends)
    return f"{low} to {high}"


def person_cells(findings: Judged, k: int) -> tuple[str, str, str, str]:
    """Horizon, discount, interval and temperature of expert k as they are shown; the reason where there is no discount."""
    temperature = decimals(findings.temperatures[k], 2) or "–"
    if not findings.given[k]:
        return "–", "–", findings.reasons[k], temperature
    return own_steps_text(findings, k), own_discount_text(findings, k), interval_text(findings, k), temperature


def steps_text(findings: Judged, discount: float) -> str:
    """The horizon of a discount with one decimal; a limit is shown as a limit."""
    text = horizon_text(discount, findings.longest)
    return f"≥ {text}" if findings.largest_discount <= discount < 1 else text


def sizes(findings: Findings) -> str:
    """How many experts, episodes and decisions there are."""
    numbers = {"expert": len(findings.given), "episode": int(findings.episodes.sum()), "decision": int(findings.decisions.sum())}
    return ", ".join(count(number, noun) for noun, number in numbers.items()) + "."


#: An interval this narrow tells most horizons apart; advice on how much more to collect aims at it.
WANTED_WIDTH = 0.1
#: Up to this many experts are named one by one.
NAMED_EXPERTS = 5
#: A test with a smaller p-value counts as a finding.
SIGNIFICANT = 0.05


def warnings(findings: Findings, fits: bool) -> list[str]:
    """What a reader must know before any number: that none may be used, a rejected assumption, a penalty and what it moved.

    `fits` says whether the model fits, as far as that is known.
    """
    texts = (
        _unusable(findings),
        _misfit(findings, fits),
        _goals(findings),
        _unfinished(findings),
        _temperatures(findings),
        _lost_temperatures(findings),
        _penalty(findings),
        _held_rewards(findings),
    )
    return [text for text in texts if text]


def _goals(findings: Findings) -> str:
    """That the experts do not share the reward that the fit gives them, or that nobody knows."""
    goals = findings.goals
    if goals is not None and goals.test.reason:
        return f"Whether the experts share one reward was not tested: {goals.test.reason}."
    if goals is None or not goals.rejected:
        return ""
    return f"The experts do not share one goal. {goals.answer.removeprefix('No. ')}"


def _misfit(findings: Findings, fits: bool) -> str:
    """That the model fails, where different goals are not the reason."""
    if fits or findings.withheld or different_goals(findings):
        return ""
    return "The model does not fit these decisions, so its discounts and its reward may be wrong, whatever their intervals say."


def different_goals(findings: Findings) -> bool:
    """Whether the experts were found to have different goals."""
    return findings.goals is not None and findings.goals.rejected


def _unfinished(findings: Findings) -> str:
    return (
        ""
        if findings.finished
        else "Stopped before the end: intervals, tests and model checks that are missing were not computed."
    )


def _unusable(findings: Findings) -> str:
    if not findings.withheld:
        return ""
    heat = findings.solution.temperature
    own = ", or a temperature for each expert," if heat is not None and heat.size > 1 and np.ptp(heat) == 0 else ","
    return (
        f"Do not use these numbers. {findings.withheld} Intervals and tests are withheld. More decisions, or fewer reward "
        f"parameters (features){own} usually help."
    )


def _held_rewards(findings: Findings) -> str:
    """A penalty that was chosen because the likelihood alone has no answer."""
    reason = findings.solution.evidence.get("ridge_reason")
    if not reason:
        return ""
    return (
        f"These decisions alone do not settle all rewards: {reason}. So rewards far from zero were made a little less likely, "
        "which keeps them finite. Rewards that few decisions touch are pulled towards zero by it."
    )


def _temperatures(findings: Findings) -> str:
    """What must be said where experts who choose more or less at random were given one temperature."""
    heat = findings.solution.temperature
    if heat is None or np.ptp(heat) > 0 or not unequal_temperatures(findings):
        return ""
    return (
        f"One temperature for all experts is rejected (p {p_text(findings.solution.evidence['equal_temperatures_p'])}): some of "
        "them choose more at random than others, and a shared temperature turns that into a difference of horizons. Let each "
        "expert have a temperature."
    )


def _lost_temperatures(findings: Findings) -> str:
    """What must be said where a known reward does not tell how random the choices are."""
    lost = [k for k in findings.order if np.isnan(findings.temperatures[k]) and findings.solution.temperature is not None]
    if not lost:
        return ""
    heat = np.asarray(findings.solution.temperature)[lost]
    names = [findings.solution.experts[k] for k in lost]
    whose = in_words(names) if len(names) <= NAMED_EXPERTS else count(len(names), "expert")
    small = bool((heat < 1).all())
    unit = "small: multiply them by 100" if small else "large: divide them by 100"
    return (
        f"The temperature of {whose} cannot be told with this reward, and discounts cannot be told without it. Either the known "
        f"reward says nothing about these choices, or its numbers are too {unit}, and fit again."
    )


def unequal_temperatures(findings: Judged) -> bool:
    """Whether the decisions contradict one temperature for all experts."""
    p_value = findings.solution.evidence.get("equal_temperatures_p")
    return p_value is not None and p_value < SIGNIFICANT


def _penalty(findings: Findings) -> str:
    """What a penalty the user asked for moved."""
    penalty = findings.penalty
    if penalty is None:
        return ""
    text = f"A penalty on large rewards (ridge {penalty.ridge:g}) was asked for."
    free = penalty.without
    if free.status == Status.NOT_CONVERGED:
        return f"{text} Without it the fit does not converge, so what it moved cannot be told."
    pairs = zip(findings.solution.experts, free.discounts, findings.solution.discounts, strict=True)
    moved = [f"{name} from {before:.3f} to {after:.3f}" for name, before, after in pairs if abs(before - after) >= 0.0005]
    lost = free.objective - findings.solution.objective
    text += f" It costs {lost:.2f} in log-likelihood and moves {in_words(moved) if moved else 'no discount by 0.001 or more'}."
    if (np.argsort(free.discounts) != np.argsort(findings.solution.discounts)).any() and moved:
        text += " It changes the order of the discounts, so do not rely on the order."
    return text


def advice(findings: Findings, fits: bool) -> list[str]:
    """What to collect next; `fits` says whether the model fits, as far as that is known."""
    if different_goals(findings):
        return ["First fit each group that shares a goal by itself: keep the rows of its experts. Then see what is missing."]
    if _lost_temperatures(findings):
        return ["Nothing yet: first see whether the known reward is right, and in a unit that suits the choices."]
    if findings.solution.status == Status.NOT_IDENTIFIED:
        return [
            "The same experts in a variant of the task: other transitions, the same rewards; hand in both tables together.",
            "Another expert with a clearly different horizon in the same task.",
            "Fewer reward parameters: tie the rewards of similar states together with features.",
        ]
    if not fits and not findings.withheld:
        return [
            "More decisions do not mend a model that does not fit. See in the report where it fails: something that the experts "
            "act on may be missing from the states, or from the features."
        ]
    if findings.withheld:
        return ["More decisions of every expert, above all in states where few were made, or fewer reward parameters (features)."]
    if not any(findings.given):
        return ["More decisions of every expert: these are no likelier than by chance."]
    widths = findings.intervals[:, 1] - findings.intervals[:, 0]
    wide = widths > WANTED_WIDTH
    if (np.isnan(widths) & findings.given & ~np.array(findings.known)).any():
        return ["What to collect depends on the intervals, and not all of these are known."]
    if not wide.any():
        return [f"Nothing more is needed: no interval is wider than {WANTED_WIDTH:g}."]
    more = findings.episodes[wide] * ((widths[wide] / WANTED_WIDTH) ** 2 - 1)
    if len(findings.given) > NAMED_EXPERTS:
        wanted = rounded(int(np.ceil(np.median(more))))
        return [f"About {wanted} more episodes of each expert would narrow half of the wider intervals to {WANTED_WIDTH:g}."]
    wanted = from_to([rounded(int(np.ceil(number))) for number in (more.min(), more.max())])
    whom = "every expert" if wide[findings.given].all() else f"the {count(int(wide.sum()), 'expert')} with wider intervals"
    return [f"About {wanted} more episodes of {whom} would narrow every interval to {WANTED_WIDTH:g}."]


def interval_meaning(findings: Findings) -> str:
    """What an interval means here."""
    ends = f"0 or {findings.largest_discount:g}"
    limit = ""
    if findings.largest_discount < 1:
        limit = f" In a task that may never end, {findings.largest_discount:g} is the largest discount tried, and ≥ marks it."
    if findings.quick:
        return f"To save time, a 95 % interval is the estimate and 1.96 standard errors either way, cut at {ends}.{limit}"
    return (
        "A 95 % interval holds every discount that the decisions do not contradict, with all other unknowns free to follow. If "
        "the model is right, 19 of 20 such intervals hold the true discount. An interval that ends at "
        f"{ends} means that the decisions do not exclude even that.{limit}"
    )


Kind = Literal["good", "caution", "bad"]
#: Choices of one episode that go together with no larger p-value mean that the model does not fit; up to 0.05 it is in doubt.
HIDDEN_CONTEXT = 0.001


@dataclass(frozen=True)
class Verdict:
    """The answer to one question: a word or two, and the reasons in a sentence or two."""

    question: str
    answer: str
    reasons: str
    kind: Kind


def verdicts(findings: Findings) -> tuple[Verdict, Verdict, Verdict]:
    """How far do they look ahead? Can the data tell? Does the model fit?"""
    fit = fit_verdict(findings)
    return look_ahead_verdict(findings), told_only_if_it_fits(identifiability_verdict(findings), fit), fit


def fits(findings: Findings) -> bool:
    """Whether nothing says that the model does not fit."""
    return fit_verdict(findings).answer != "No"


def told_only_if_it_fits(tell: Verdict, fit: Verdict) -> Verdict:
    """What the data can tell beside the verdict on the fit: intervals of a model that does not fit promise nothing."""
    if fit.answer != "No" or tell.kind == "bad" or tell.answer == "Not asked":
        return tell
    reasons = f"{tell.reasons} But all this holds only if the model is right, and it does not fit."
    return Verdict(tell.question, "Only if the model were right" if tell.kind == "good" else tell.answer, reasons, "caution")


def headline(findings: Findings) -> str:
    """The opening paragraph."""
    look, tell, fit = verdicts(findings)
    return " ".join([*findings.warnings, *([] if findings.withheld else [look.reasons]), tell.reasons, fit.reasons])


def look_ahead_verdict(findings: Judged) -> Verdict:
    """Who looks how far ahead."""
    question = "How far do they look ahead?"
    if findings.withheld:
        return Verdict(question, "No usable answer", findings.withheld, "bad")
    order = [k for k in findings.order if findings.given[k]]
    if not order:
        return Verdict(question, "Unknown", "No expert's discount can be told from these decisions.", "bad")
    answer = from_to([own_steps_text(findings, k) for k in (order[0], order[-1])]) + " steps"
    if all(findings.known):
        return Verdict(question, f"{answer}, as known", "All discounts were known; none was estimated.", "good")
    reasons = _each(findings, order) if len(order) <= NAMED_EXPERTS else _crowd(findings, order)
    return Verdict(question, answer, f"{reasons}{_difference(findings)}", "caution" if findings.warnings else "good")


def identifiability_verdict(findings: Judged) -> Verdict:
    """Whether the decisions identify the discounts, and how narrowly."""
    question, number = "Can the data tell?", len(findings.given)
    if all(findings.known) and not findings.withheld:
        return Verdict(question, "Not asked", " ".join(["No discount was estimated.", *_open_directions(findings)]), "good")
    converged = findings.solution.status != Status.NOT_CONVERGED
    unknown = [findings.solution.experts[k] for k in findings.order if not findings.identified[k]]
    if len(unknown) == number and converged:
        return Verdict(question, "No", _unknown(findings, unknown), "bad")
    if findings.withheld and not nobody_better_than_chance(findings):
        text = "Whether the data can tell the discounts is open until a fit succeeds."
        return Verdict(question, "Not with this fit", text, "bad")
    names, given, sure = findings.solution.experts, findings.given, findings.sure
    useful, told = [k for k in findings.order if sure[k]], [k for k in findings.order if given[k] and not sure[k]]
    vague, missing = ([k for k in told if np.isnan(findings.intervals[k]).any() == lost] for lost in (False, True))
    idle = [names[k] for k in findings.order if findings.reasons[k] == "no better than chance"]
    parts = [_unknown(findings, unknown)] if unknown and converged else []
    if idle:
        parts.append(f"The decisions of {_named(findings, idle)} are no likelier than by chance, so no discount is given.")
    parts += [_too_few(findings, vague)] if vague else []
    parts += [_no_interval(findings, missing)] if missing else []
    parts += [_widths(findings, useful)] if useful else []
    parts += _open_directions(findings)
    if len(useful) == number:
        answer, kind = ("Yes", "good") if findings.finished else ("So far, yes", "caution")
    elif useful or told:
        answer, kind = f"For {len(useful)} of {number}" if useful else "Barely" if vague else "Not known", "caution"
    else:
        answer, kind = "No", "bad"
    return Verdict(question, answer, " ".join(parts), cast(Kind, kind))


def nobody_better_than_chance(findings: Judged) -> bool:
    """Whether the decisions of all experts are no likelier than by chance."""
    return all(reason == "no better than chance" for reason in findings.reasons)


def _too_few(findings: Judged, vague: list[int]) -> str:
    if len(findings.given) > NAMED_EXPERTS:
        are = "is" if len(vague) == 1 else "are"
        return f"{count(len(vague), 'interval')} {are} wider than {VAGUE_WIDTH:g}: too few decisions to say much."
    whose = "The decisions" if len(vague) == len(findings.given) else "Some experts' decisions"
    ranges = [f"{findings.solution.experts[k]} from {interval_text(findings, k)}" for k in vague]
    return f"{whose} are too few to say much: they leave {in_words(ranges)}."


def _no_interval(findings: Judged, missing: list[int]) -> str:
    """What to say of discounts without a whole interval: the work was stopped, or an end was not found."""
    names = [findings.solution.experts[k] for k in missing]
    if not findings.finished:
        return f"The work was stopped before there were intervals for {_named(findings, names)}."
    if len(findings.given) <= NAMED_EXPERTS:
        names = [f"{name} ({interval_text(findings, k)})" for name, k in zip(names, missing, strict=True)]
    how_sure = "this discount is" if len(names) == 1 else "these discounts are"
    return f"No whole interval was found for {_named(findings, names)}, so it is not known how sure {how_sure}."


def _named(findings: Judged, names: list[str]) -> str:
    """The experts by name, or their number in a crowd."""
    return in_words(names) if len(findings.given) <= NAMED_EXPERTS else count(len(names), "expert")


def _widths(findings: Judged, useful: list[int]) -> str:
    """How narrowly the discounts are told that were estimated and have an interval."""
    known = findings.known
    estimated = [k for k in useful if not known[k]]
    if not estimated:
        return "The other discounts were known."
    widths = findings.intervals[estimated, 1] - findings.intervals[estimated, 0]
    whom = "every discount that was not known" if any(known) else "every discount"
    if len(useful) < len(known):
        names = [findings.solution.experts[k] for k in estimated]
        whom = f"the {'discount' if len(names) == 1 else 'discounts'} of {_named(findings, names)}"
    if len(estimated) == 1:
        return f"The decisions identify {whom}; its 95 % interval spans {widths[0]:.3f}."
    if len(known) <= NAMED_EXPERTS:
        return f"The decisions identify {whom}; the widest 95 % interval spans {widths.max():.3f}."
    return f"The decisions identify {whom}; half of the 95 % intervals span less than {np.median(widths):.3f}."


def fit_verdict(findings: Findings) -> Verdict:
    """Whether the model predicts decisions it has not seen, better than simpler models and as well as the experts' own habits."""
    question, checks = "Does the model fit?", findings.checks
    if checks is None:
        return Verdict(question, "Not checked", "Whether the model predicts new decisions was not checked.", "caution")
    total = {name: float(values @ checks.decisions) for name, values in checks.held_out.items()}
    number = float(checks.decisions.sum())
    gain = total["this model"] - float(findings.chance @ checks.decisions)
    worse = predicts_worse(checks, findings.chance, findings.free_rewards)
    if gain <= 0:
        worse = worse or "The model predicts held-out decisions no better than chance."
    together = _together(checks.within)
    if checks.within.p_value <= HIDDEN_CONTEXT:
        return Verdict(question, "No", f"The model does not fit: {together} {worse}".strip(), "bad")
    if worse:
        return Verdict(question, "No", worse, "bad")
    if findings.withheld:
        return Verdict(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    better = f"it predicts held-out decisions better than chance, by {per_decision(gain, number)} in log-likelihood per decision"
    lost = total["own frequencies"] - total["this model"]
    if findings.choices_repeat and lost > 3 * np.sqrt(2 * (findings.free_rewards + len(checks.experts))):
        return Verdict(question, "No", _habits(findings, per_decision(lost, number)), "bad")
    how = extent(findings.misfits)
    if not how.odd:
        alone = "no state stands out" if how.compared else "no state repeats often enough to be compared alone"
        if checks.within.p_value <= SIGNIFICANT:
            reasons = f"State by state the model fits: {better}, and {alone}. But {together}"
            return Verdict(question, "Perhaps not", reasons, "caution")
        return Verdict(question, "Yes", f"The model fits: {better}, and {alone}.{together}", "good")
    where = "does not fit" if how.answer == "No" else f"fits {how.answer[0].lower()}{how.answer[1:]}"
    reasons = f"The model {where}: {better}. {_odd_states(findings, how)}"
    reasons += f" Besides, {together}" if checks.within.p_value <= SIGNIFICANT else together
    return Verdict(question, how.answer, reasons, "bad" if how.answer == "No" else "caution")


def _together(within: WithinEpisodes) -> str:
    """What it says that choices of one episode go together, or why that was not tested; empty where they do not."""
    if within.reason:
        return f" Whether something outside the state column changes between episodes was not tested: {within.reason}."
    if within.p_value > SIGNIFICANT:
        return ""
    clear = within.p_value <= HIDDEN_CONTEXT
    return (
        f"choices of one episode go together more than their states explain (p {'≤' if clear else '='} {within.p_value:.3f}). So "
        f"something outside the state column, such as the goal, {'changes' if clear else 'may change'} between episodes; "
        "if it was recorded, make it part of the state."
    )


def _odd_states(findings: Findings, how: Extent) -> str:
    """The states in which choices differ from the model by more than chance, in words."""
    worst = in_words(list(dict.fromkeys(misfit.state for misfit in findings.misfits[: how.odd]))[:3])
    cases = f"{how.odd:,} of the {count(how.compared, 'case')} with enough decisions ({percent(how.odd / how.compared)})"
    return (
        f"Choices differ from it by more than chance in {cases}, most in {worst}. In these cases {percent(how.missed)} of the "
        f"decisions would have to be others, which is {percent(how.missed_of_all)} of all."
    )


def _habits(findings: Findings, lost: str) -> str:
    why = "The experts do something that one shared reward and one discount each cannot explain."
    if different_goals(findings):
        why = "They do not share one goal."
    return (
        f"The model does not fit: each expert's own habits predict held-out decisions better, by {lost} in log-likelihood per "
        f"decision. {why}"
    )


def _each(findings: Judged, order: list[int]) -> str:
    parts = []
    for k in order:
        interval = f"discount {own_discount_text(findings, k)}, {interval_text(findings, k)}"
        parts.append(f"{findings.solution.experts[k]} {own_steps_text(findings, k)} ({interval})")
    return f"Steps that each expert looks ahead, with 95 % intervals: {'; '.join(parts)}."


def _crowd(findings: Judged, order: list[int]) -> str:
    known = findings.solution.discounts[order]
    low, middle, high = (float(g) for g in np.quantile(known, [0.25, 0.5, 0.75]))
    return (
        f"Half of the {len(order)} experts look between {steps_text(findings, low)} and {steps_text(findings, high)} steps ahead "
        f"(discounts {low:.3f} to {high:.3f}, median {middle:.3f}){_of_these(findings)}."
    )


def _of_these(findings: Judged) -> str:
    number = sum(findings.known)
    return f"; {count(number, 'discount')} of these {'was' if number == 1 else 'were'} known" if number else ""


def _difference(findings: Judged) -> str:
    """Whether the experts differ in their horizons, and in how decided they are."""
    heat = findings.solution.temperature
    also = ""
    if heat is not None and np.ptp(heat) > 0 and unequal_temperatures(findings):
        also = " They also differ in how much they choose at random: their temperatures stand beside the discounts."
    return _horizons_differ(findings) + also


def _horizons_differ(findings: Judged) -> str:
    test = findings.shared
    if test is None or np.isnan(test.p_value):
        return ""
    if test.p_value < SIGNIFICANT:
        return f" They do not all look equally far: p {p_text(test.p_value)}."
    return f" The decisions do not show that they differ: p {p_text(test.p_value)}."


def _unknown(findings: Judged, unknown: list[str]) -> str:
    exact = findings.identification if isinstance(findings, Findings) else None
    how = "as likely, as far as can be computed" if exact is not None and exact.status == "unique" else "exactly as likely"
    text = (
        f"Other discounts, with another reward, make the decisions of {_named(findings, unknown)} {how}. So no number is given."
    )
    if exact is not None and exact.status == "set":
        pairs = zip(exact.experts, exact.intervals, strict=True)
        ranges = [f"{name} from {low:.3f} to {high:.3f}" for name, (low, high) in pairs if name in unknown]
        text += f" More decisions of the same kind would not help: even exact policies leave {in_words(ranges)}."
    return text


def _open_directions(findings: Judged) -> list[str]:
    free = findings.solution.evidence["unidentified_directions"]
    if not free:
        return []
    stays = "stays" if free == 1 else "stay"
    return [f"{count(free, 'direction').capitalize()} of the reward {stays} open, such as a constant added to all of it."]


def population_columns(findings: Findings) -> pd.DataFrame:
    """Shrunken values and covariates for `people.csv`, one row per expert in the problem's order; NaN for those left out."""
    found = findings.population
    assert found is not None
    population = found.evidence["population"]
    ends = found.confidence_intervals(LEVEL)
    covariates = {name: values for name, values in population["covariates"].items() if name != "expert"}
    columns = {
        "shrunken_discount": found.discounts,
        "shrunken_low": ends[:, 0],
        "shrunken_high": ends[:, 1],
        "shrunken_temperature": found.temperature,
        "reliability": population["individuals"]["discount_reliability"],
    }
    frame = pd.DataFrame({**columns, **{f"covariate_{name}": values for name, values in covariates.items()}}, found.experts)
    return frame.reindex(findings.solution.experts).reset_index(drop=True)


def people_frame(findings: Judged) -> pd.DataFrame:
    """One row per expert: discount, interval, error, horizon, temperature, decisions, pseudo-R², and what to know of them."""
    solution, known = findings.solution, np.array(findings.given)
    discounts = np.where(known, solution.discounts, np.nan)
    frame = pd.DataFrame(
        {
            "expert": solution.experts,
            "discount": discounts,
            "discount_low": findings.intervals[:, 0],
            "discount_high": findings.intervals[:, 1],
            "standard_error": np.nan if findings.withheld else np.where(known, _errors(solution), np.nan),
            "horizon": [findings.horizon(g) if k else np.nan for g, k in zip(discounts, known, strict=True)],
            "temperature": findings.temperatures,
            "episodes": findings.episodes,
            "decisions": findings.decisions.astype(np.int64),
            "pseudo_r2": findings.explained,
            "flags": ["; ".join(_flags(findings, k)) for k in range(known.size)],
        }
    )
    if isinstance(findings, Findings) and findings.population is not None:
        frame = pd.concat([frame, population_columns(findings)], axis=1)
    return frame.iloc[findings.order]


def _errors(solution: Solution) -> Floats:
    return np.full(len(solution.experts), np.nan) if solution.standard_errors is None else solution.standard_errors


def _flags(findings: Judged, k: int) -> list[str]:
    limit, population = limit_of(findings, k), findings.population if isinstance(findings, Findings) else None
    width = float(np.diff(findings.intervals[k])[0])
    cases = {
        findings.reasons[k]: bool(findings.reasons[k]),
        "known discount": findings.known[k],
        f"at the {limit} discount": limit is not None,
        "wide interval": width > VAGUE_WIDTH,
        "no whole interval": findings.given[k] and not findings.known[k] and bool(np.isnan(width)),
        "result not to be used": bool(findings.withheld),
        "left out of the comparison": population is not None and findings.solution.experts[k] not in population.experts,
    }
    return [flag for flag, holds in cases.items() if holds]


def limit_of(findings: Judged, k: int) -> str | None:
    """Whether a discount is no estimate but a limit of what was tried."""
    if not findings.given[k] or findings.known[k]:
        return None
    gamma = float(findings.solution.discounts[k])
    return "largest" if gamma >= findings.largest_discount else "smallest" if gamma <= 0 else None


#: Up to this many experts every pair is tested; with more only on request, because their number grows with the square.
FEW_EXPERTS = 6


class Analysis(Findings):
    """What `analyse` found, in numbers and in words."""

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        return warnings(self, fits(self))

    @property
    def headline(self) -> str:
        """The opening paragraph: who looks how far, whether the data can tell, whether the model fits."""
        return headline(self)

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """The same as three answers with their reasons."""
        return verdicts(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        return people_frame(self)

    @property
    def advice(self) -> list[str]:
        """What to collect next."""
        return advice(self, fits(self))


def build_problem(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any = None,
    smoothing: float | None = None,
    estimate_rest: bool = False,
) -> tuple[Problem, list[str]]:
    """One problem from one or several tables with their transitions, and remarks on what was assumed.

    Args:
        tables: one for each task.
        mdps: their transitions in the same order, checked against the tables; None estimates them.
        features: None, or a function of an MDP that gives the matrix F and the features' names.
        smoothing: of estimated transitions.
        estimate_rest: whether `mdps` hold only some actions of some states, and the others are estimated.
    """
    remarks = [remark for table in tables for remark in _look_alikes(table)]
    if mdps is not None and len(mdps) != len(tables):
        raise ValueError(f"there must be one file of transitions for each table, received {len(mdps)} for {len(tables)}")
    if mdps is None and estimate_rest:
        raise ValueError("--estimate-rest must come with --transitions to start from, received none: leave it out")
    if mdps is None or estimate_rest:
        known: Sequence[MDP | None] = mdps or [None] * len(tables)
        mdps = [estimate_mdp(table, smoothing, rows) for table, rows in zip(tables, known, strict=True)]
        for table, mdp in zip(tables, mdps, strict=True):
            require_ends(table, mdp)
            remarks += describe_estimate(mdp, smoothing, table)
    problems = []
    for table, mdp in zip(tables, mdps, strict=True):
        remarks += require_agreement(table, mdp)
        matrix, names = (None, None) if features is None else features(mdp)
        problems.append(Problem(mdp, table, features=matrix, feature_names=names))
    return (problems[0] if len(problems) == 1 else Problem.join(*problems)), remarks


def _look_alikes(table: Demonstrations) -> list[str]:
    """What to say of labels that may be one label, spelt in two ways."""
    labels = {"expert": table.experts, "state": table.states, "action": table.actions}
    return [remark for what, names in labels.items() if (remark := look_alikes(names, what))]


def analyse(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None = None,
    features: Any = None,
    temperature: Temperature | None = None,
    smoothing: float | None = None,
    ridge: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
    estimate_rest: bool = False,
    pairs: bool = False,
    quick: bool = False,
    jobs: int = 1,
    keep: Callable[[Analysis], None] | None = None,
    solver: MaximumLikelihood | None = None,
    known_reward: Callable[[MDP], Floats] | None = None,
    lookahead: Sequence[Lookahead] = (),
    population: Population | None = None,
) -> Analysis:
    """Fit tables of decisions and judge the fit.

    Args:
        tables, mdps, features, smoothing, estimate_rest: as in `build_problem`.
        temperature, ridge: as in `MaximumLikelihood`; temperatures are "pooled" unless it is said otherwise.
        seed: fixes all randomness.
        progress: called with the share of the work that is done and where it stands.
        pairs: whether to test every pair of more than `FEW_EXPERTS` experts for a shared discount; of few it is always done.
        quick: leave out tests and model checks, and take intervals from standard errors.
        jobs: processes that share simulations, intervals and tests of pairs; -1 is all cores. The digits do not depend on it.
        keep: called with what is known so far, again and again while the work goes on.
        solver: all options of the fit, in place of `temperature` and `ridge`, which must then be left out.
        known_reward: None, or a function of the MDP that gives the known part of the reward, as in `MaximumLikelihood`.
        lookahead: families of look-ahead to compare on the same decisions.
        population: what to ask about groups and persons, if anything; it is told the known reward.

    Raises:
        ValueError: on tables that do not fit the task, and where a solver comes with options that are its own.
    """
    doubled = {"temperature": temperature, "ridge": ridge, "known_reward": known_reward and solver and solver.known_reward}
    twice = [name for name, value in doubled.items() if value is not None]
    if solver is not None and twice:
        raise ValueError(f"{' and '.join(twice)} must be left out where a solver is given: it has its own, received both")
    solver = solver or MaximumLikelihood("pooled" if temperature is None else temperature, ridge=ridge)
    keep = keep or (lambda found: None)
    problem, remarks = build_problem(tables, mdps, features, smoothing, estimate_rest)
    if known_reward is not None:
        solver = replace(solver, known_reward=known_reward(problem.mdp))
    if lookahead:
        check_comparable(problem, solver)
    if population is not None:
        population.covariates(problem)  # what cannot be used is refused before any work
    solution = _with_temperature_test(solve(problem, solver, seed, part_of(progress, 0.0, 0.15)), problem, solver, seed)
    found = _estimates(solution, tables, remarks, quick)
    if problem.n_experts > 1 and not found.reward_given:
        test = shared_goal_test(solution, seed=seed, progress=part_of(progress, 0.15, 0.2), jobs=jobs)
        found = replace(found, goals=GoalCheck(test).with_own_rewards(solution))
    keep(found)
    if population is not None:
        asked = replace(population, known_reward=solver.known_reward)
        found = replace(found, population=solve(problem, asked, seed, part_of(progress, 0.2, 0.3)))
        keep(found)
    if lookahead:
        found = replace(found, lookahead=compare_from(resume(solution), lookahead, tables, seed, part_of(progress, 0.3, 0.35)))
    penalty = Penalty(solver.ridge, solve(problem, replace(solver, ridge=None), seed)) if solver.ridge else None
    if penalty is not None:
        found = replace(found, withheld=found.withheld or penalty.decides(solution))
    found = replace(found, penalty=penalty, identification=identification(solution))
    if quick:
        return replace(found, intervals=_rough_intervals(found), finished=True)
    found = _with_checks(found, tables, seed, part_of(progress, 0.35, 0.5))
    keep(found)
    if found.goals is not None and not any(found.known) and solver.known_reward is None:
        found = replace(found, goals=found.goals.with_groups(solution, solver.temperature, seed, part_of(progress, 0.5, 0.55)))
        keep(found)
    if found.withheld:
        return replace(found, finished=True)
    found = _with_intervals(found, jobs, part_of(progress, 0.55, 0.8), keep)
    if problem.n_experts > 1 and not all(found.known):
        progress(0.8, "test of one discount for all")
        found = replace(found, shared=shared_discount_test(solution))
        keep(found)
    if not all(found.known) and (pairs or problem.n_experts <= FEW_EXPERTS):
        found = _with_pairs(found, jobs, part_of(progress, 0.85, 1.0), keep)
    return replace(found, finished=True)


def _estimates(solution: Solution, tables: Sequence[Demonstrations], remarks: list[str], quick: bool) -> Analysis:
    """What is known once the fit is done."""
    problem, contrasts = solution.require_problem(), reward_contrasts(solution)
    return Analysis(
        solution=solution,
        intervals=np.full((problem.n_experts, 2), np.nan),
        episodes=_episodes(problem, tables),
        contrasts=contrasts,
        shared=None,
        pairs=[],
        checks=None,
        identification=None,
        penalty=None,
        withheld=not_to_be_used(solution, contrasts),
        remarks=remarks,
        quick=quick,
        finished=False,
    )


def _with_temperature_test(solution: Solution, problem: Problem, solver: MaximumLikelihood, seed: int) -> Solution:
    """Where the user asks for one temperature, the evidence also says whether the decisions reject it."""
    if solver.temperature != "shared" or problem.n_experts == 1:
        return solution
    freer = solve(problem, replace(solver, temperature="pooled"), seed)
    tested = LikelihoodEvidence.of(freer).equal_temperatures_p
    return replace(solution, evidence=replace(LikelihoodEvidence.of(solution), equal_temperatures_p=tested))


def _with_checks(found: Analysis, tables: Sequence[Demonstrations], seed: int, progress: Progress) -> Analysis:
    """The same with predictions of held-out episodes, withheld where they are worse than a simpler model's."""
    try:
        checks = check_model(found.solution, tables, seed=seed, progress=progress)
    except ValueError as error:
        return replace(found, remarks=[*found.remarks, f"The model was not checked on held-out episodes: {error}."])
    worse = found.withheld or predicts_worse(checks, found.chance, found.free_rewards)
    return replace(found, checks=checks, withheld=worse)


def _with_intervals(found: Analysis, jobs: int, progress: Progress, keep: Callable[[Analysis], None]) -> Analysis:
    """The same with the solution's profile intervals, as they come."""
    source = found.solution.interval_source
    assert isinstance(source, ProfileIntervals)
    given = np.array(found.given)[:, None]
    for intervals in source.by_blocks(LEVEL, jobs):
        found = replace(found, intervals=np.where(given, intervals, np.nan))
        done = int((given & ~np.isnan(intervals)).any(axis=1).sum())
        progress(done / max(int(given.sum()), 1), f"intervals: {done} of {int(given.sum())} discounts")
        keep(found)
    return found


def _rough_intervals(found: Analysis) -> Floats:
    """Intervals from standard errors, cut at the discounts that can be tried."""
    errors = found.solution.standard_errors
    if errors is None or found.withheld:
        return found.intervals
    half = norm.ppf(0.5 + LEVEL / 2) * np.where(found.given, errors, np.nan)
    ends = found.solution.discounts[:, None] + half[:, None] * [-1, 1]
    cut: Floats = np.clip(ends, 0.0, found.largest_discount)
    return cut


def _with_pairs(found: Analysis, jobs: int, progress: Progress, keep: Callable[[Analysis], None]) -> Analysis:
    """The same with tests of every pair, as they come; they are corrected for their number when all are there."""
    tests: list[SharedDiscountTest] = []
    for test in each_pair(found.solution, progress, jobs):
        tests.append(replace(test, adjusted=np.nan))
        found = replace(found, pairs=list(tests))
        keep(found)
    return replace(found, pairs=with_holm(tests))


def _episodes(problem: Problem, tables: Sequence[Demonstrations]) -> Ints:
    total = np.zeros(problem.n_experts, dtype=np.int64)
    for table in tables:
        for name, episodes in zip(table.experts, table.episode_counts, strict=True):
            total[problem.names.index(name)] += episodes
    return total


#: The model fits well where it explains this share of what the choices' own logits explain, and next states are predicted at all.
WELL_EXPLAINED = 0.95
#: What is said of one reward for all experts.
NOT_TESTED = "This was not tested: there is no test of it yet for states that are vectors."


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledAnalysis(Judged):
    """What `analyse_steps` found, in numbers and in words. `quick` leaves out the tests."""

    steps: Steps
    functions: RewardFunctions

    @property
    def known(self) -> list[bool]:
        """Whether each discount was known beforehand, and so was not estimated."""
        told = self.solution.options.get("discounts")
        return [name in told if isinstance(told, dict) else told is not None for name in self.solution.experts]

    @property
    def longest(self) -> float:
        """Infinite: logged steps alone do not show that a task must end."""
        return np.inf

    @property
    def largest_discount(self) -> float:
        """The largest discount the fit tries."""
        return LARGEST_DISCOUNT

    @property
    def rewards_told(self) -> int:
        """The basis functions of the reward, less the directions that stay open."""
        evidence = self.solution.evidence
        return max(0, int(evidence["functions"]) - int(evidence["unidentified_directions"]))

    @cached_property
    def decisions(self) -> Floats:
        """Decisions of each expert `(K,)`."""
        return np.array([float(batch.visits.sum()) for batch in self.functions.point.likelihood.design.decisions])

    @cached_property
    def chance(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` if all available actions were equally likely."""
        batches = self.functions.point.likelihood.design.decisions
        return np.array([batch.chance for batch in batches]) / self.decisions

    @cached_property
    def fitted(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` under the fitted policy."""
        point = self.functions.point
        pairs = zip(point.likelihood.design.decisions, point.plans, strict=True)
        return np.array([float((batch.counts * plan.finite_log).sum()) for batch, plan in pairs]) / self.decisions

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """How far do they look ahead? Can the data tell? Does the model fit?"""
        fit = _fits(self)
        return look_ahead_verdict(self), told_only_if_it_fits(_can_tell(self), fit), fit

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        found = [f"Do not use these numbers. {self.withheld}"] if self.withheld else []
        if self.solution.evidence["basis_too_poor"]:
            found.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
        return found

    @property
    def headline(self) -> str:
        """The opening paragraph."""
        look, tell, fit = self.verdicts
        goals = [] if len(self.solution.experts) == 1 else [f"{QUESTION} {NOT_TESTED}"]
        return " ".join([*self.warnings, *goals, *([] if self.withheld else [look.reasons]), tell.reasons, fit.reasons])

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        return people_frame(self)


def analyse_steps(
    steps: Steps, solver: SieveLikelihood | None = None, seed: int = 0, quick: bool = False, progress: Progress = silent
) -> SampledAnalysis:
    """Fit logged steps and judge the fit.

    Args:
        steps: the decisions.
        solver: the options of the fit.
        seed: fixes all randomness.
        quick: leave out tests of shared discounts.
        progress: called with the share of the work that is done and where it stands.
    """
    solution = solve(SampledProblem(steps), solver or SieveLikelihood(), seed, part_of(progress, 0.0, 0.7))
    tested = not quick and solution.status is Status.CONVERGED and len(solution.experts) > 1
    shared = shared_discount_test(solution) if tested else None
    pairs = [] if shared is None else [shared]
    if len(solution.experts) > 2:
        pairs = pairwise_tests(solution, part_of(progress, 0.8, 1.0)) if tested else []
    found = SampledAnalysis(
        solution=solution,
        intervals=solution.confidence_intervals(LEVEL),
        episodes=np.array([np.unique(steps.episode_numbers[steps.expert == k]).size for k in range(len(steps.experts))]),
        shared=shared,
        pairs=pairs,
        withheld=not_to_be_used(solution),
        quick=quick,
        steps=steps,
        functions=reward_functions(solution),
    )
    return replace(found, intervals=np.where(np.array(found.given)[:, None], found.intervals, np.nan))


def _can_tell(found: SampledAnalysis) -> Verdict:
    """The verdict of every fit, and what learned dynamics and a basis add to it."""
    told, evidence = identifiability_verdict(found), found.solution.evidence
    if told.kind == "bad" or all(found.known):
        return told
    if dynamics_unknown(evidence["next_state_r2"]):
        reasons = "State and action do not predict next states, so plans are not known."
        return Verdict(told.question, "Hardly", reasons, "caution")
    if evidence["basis_too_poor"]:
        reasons = "Richer functions of the state predict choices better."
        return Verdict(told.question, "Not with this basis", reasons, "caution")
    return replace(told, reasons=f"{told.reasons} The intervals include the error of the learned dynamics.")


def _fits(found: SampledAnalysis) -> Verdict:
    question, evidence = "Does the model fit?", found.solution.evidence
    if nobody_better_than_chance(found):
        return Verdict(question, "No", "The model explains the decisions no better than chance.", "bad")
    if found.withheld:
        return Verdict(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    share = float(evidence["explained_share"])
    weak = unpredicted(evidence["next_state_r2"])
    reasons = (
        f"One reward and {count(len(found.solution.experts), 'discount')} explain {100 * share:.0f} % of what the same functions "
        "explain of the choices without any plan. Whether something outside the state changes between episodes was not tested."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= WELL_EXPLAINED and not weak
    return Verdict(question, "Yes" if good else "In part", reasons, "good" if good else "caution")
