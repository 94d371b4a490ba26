"""Do these people share a goal? What `fit` asks before its answer is believed.

The fit assumes one reward for all experts. That is tested at every fit (`likelihood/goal_test.py`): the test costs about as
much as the fit. Where it rejects, and there are few experts and rewards, the experts are grouped by the goals they share.

Experts who do not plan as the model says, or who act on something that it leaves out, look as if they had different goals. So
where one reward is rejected, the choices are compared with the model once more, each expert with a reward of their own. Only if
that fits are different goals the finding.

What a fit found, in numbers: the answer, its uncertainty, how well it predicts, and what of it must not be used.

*Horizon.* A discount γ weighs what happens t steps from now by `γ^t`. In a task of at most H steps the weights sum to
`1 + γ + … + γ^(H−1)`, the effective horizon; in a task without such a limit to `1/(1−γ)`.

*Explained.* `1 − L/L₀` (McFadden's pseudo-R²), with L the log-likelihood of an expert's decisions under the fitted policy and L₀
under chance, that is, with all available actions equally likely.

*Chance.* An expert whose decisions are no likelier than under chance, by the likelihood-ratio test with two degrees of freedom (a
discount and a temperature), gets no discount. That test takes the reward as told by the others. So the same is asked of all
experts together first, with a degree for every parameter that was estimated: where all choose at random, nobody gets a discount.

*Worse than a baseline.* Where two halves of the decisions predict each other, p needless parameters lose about p units of
log-likelihood in total, give or take `√(2p)`. A model that loses more than `p + 3√(2p)` against a simpler one predicts
worse than it.

What the fitted policies would identify if they were known exactly: could any number of decisions in this task tell?
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2, norm

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats, Ints, first_few
from multihorizon.choice.parameters import Settings, Temperature
from multihorizon.choice.tabular import Likelihood
from multihorizon.estimate.maximum_likelihood import resume
from multihorizon.exact.goals import DIFFER
from multihorizon.exact.identify import Identification, identify
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress
from multihorizon.problem import Problem
from multihorizon.questions.contrasts import Contrasts
from multihorizon.questions.goals import GoalEstimates, SharedGoalTest, best_fit, group_experts
from multihorizon.questions.lookahead_comparison import LookaheadComparison
from multihorizon.questions.model_checks import Extent, Misfit, ModelChecks, choices_repeat, extent, misfits
from multihorizon.questions.shared_discount import SharedDiscountTest
from multihorizon.questions.study import Recovery
from multihorizon.solution import Solution, Status

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


def effective_horizon(discount: float, steps: float) -> float:
    """The sum of the weights `1 + γ + γ² + …` of a discount over so many steps, which may be infinitely many."""
    return steps if discount >= 1 else float((1 - discount**steps) / (1 - discount))


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
