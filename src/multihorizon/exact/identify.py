"""The report on identifiability, in numbers and in plain words.

An explanation checked against the experts and written into the report.

Everything said about an explanation is computed again from its discounts, reward and temperatures alone: the residual of the
Bellman equations, the policies planned from it, and the likelihood of the decisions.

What the experts' behaviour can and cannot say about their discounts and reward.

`identify` solves the experts' equations exactly where they are linear (`linear_system`) and by variable projection where they are
not, and then asks how many directions of the discounts stay open when the policies may be wrong by `tolerance`:

* `unique`: one answer, up to the spread that errors of that size cause, which is at most LIMIT;
* `set`: a curve, surface, … of answers; each discount's range over it and two members that reproduce the experts as proof;
* `infeasible`: no discounts and reward explain the experts up to the tolerance; the closest explanation and its residual.

Where the set is affine its ranges are linear programs, exact up to rounding; else they come from walks along the set
(`solution_set`): every value in them is attained, and pieces of the set that no start reaches are missed. Counts of decisions
are too inexact to bound a discount that their equations leave open (ranges made from their errors held the truth in 44 to 100 %
of simulated tables): it may be anything.

The answer does not depend on the order of experts, states and actions: the experts are first sorted by what they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import chi2, qmc

from multihorizon.checks import LARGEST_SOLVABLE_DISCOUNT, RANK_TOLERANCE, TINY, Bools, Floats, as_discount, as_positive
from multihorizon.exact.equations import (
    FeatureEquations,
    JointEquations,
    KnownDiscounts,
    PolicyEquations,
    RewardFamily,
    SharedReward,
    StateEquations,
    in_order_of_content,
    read_equations,
    reward_families,
    state_columns,
)
from multihorizon.exact.least_squares import columns_of
from multihorizon.exact.sets import (
    LIMIT,
    MISFIT,
    NO_EFFECT,
    Answer,
    Candidate,
    LinearSystem,
    build_system,
    explore,
    hull,
    judge_solution,
    minimise,
    minimise_from,
    project,
    solve_system,
)
from multihorizon.mdp import MDP
from multihorizon.planning.linear import SingularError, matrix_resolvent
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Expert, Problem, require_finite

#: Ranges narrower than this are printed as one number, and ends this close to 0 or 1 as the limit that they are.
PRINTED = 5e-5


@dataclass(frozen=True, eq=False)
class Member:
    """One explanation of the experts, with the evidence for it.

    `error` is `max |π − π*|`, with the policies planned again from it; `log_likelihood` is that of the decisions, NaN where
    policies were given.
    """

    discounts: Floats
    reward: Floats
    temperature: Floats
    error: float
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class Identification:
    """Whether the experts identify their discounts.

    Attributes:
        status: "unique", "set" or "infeasible".
        dimension: of the set of discounts that the equations leave open; 0 for a single point (or several isolated ones).
        discounts: `(K,)`, the answer, one member of the set, or the closest explanation.
        intervals: `(K,2)`, each discount's range over the set, widened by what errors of size `tolerance` can do; NaN where
            nothing explains the experts.
        reward: reward parameters that go with `discounts`; its mean is 0 where a constant is free.
        reward_identified: `(d,)`, which of them are the same in all explanations (apart from a constant added to all).
        residual: `max |(Q − V)/λ − log π*|`, recomputed from discounts and reward.
        singular_values: of the equations in the discounts; their rank is the number of discounts less `dimension`.
        temperature: `(K,)`.
        members: two explanations that are far apart, where there is a set and both are confirmed.
        misfit: how much worse the equations hold than errors of size `tolerance` would explain; above 5 is infeasible.
        surplus: how many more equations than unknowns the experts have in common; with none, any experts would fit.
        coincidence: a rough chance that experts with unrelated rewards would fit as well.
        from_counts: whether frequencies of decisions stand in for policies.
        reward_dimension: directions in which the reward is open even at these discounts.
        free_constant: whether one of them is a constant added to the whole reward.
        unknown_parameters: states that no transition enters, about whose reward nothing can be said.
    """

    status: str
    dimension: int
    discounts: Floats
    intervals: Floats
    reward: Floats
    reward_identified: Bools
    residual: float
    singular_values: Floats
    temperature: Floats
    members: tuple[Member, ...]
    tolerance: float
    misfit: float
    surplus: int
    coincidence: float
    from_counts: bool
    experts: tuple[str, ...]
    reward_dimension: int
    free_constant: bool
    unknown_parameters: tuple[str, ...]

    @property
    def discounts_identified(self) -> Bools:
        """Which discounts `(K,)` are the same in all explanations, up to what the errors can do."""
        narrow: Bools = np.diff(self.intervals, axis=1)[:, 0] <= LIMIT
        return narrow

    def listed_as(self, names: tuple[str, ...], free_temperatures: bool) -> Identification:
        """The same finding with the experts in the order of `names`; free temperatures are relative to the first of them."""
        place = [self.experts.index(name) for name in names]
        first = float(self.temperature[place[0]])
        scale = first if free_temperatures and first > 0 else 1.0
        members = [
            replace(m, discounts=m.discounts[place], reward=m.reward / scale, temperature=m.temperature[place] / scale)
            for m in self.members
        ]
        return replace(
            self,
            experts=names,
            discounts=self.discounts[place],
            intervals=self.intervals[place],
            reward=self.reward / scale,
            temperature=self.temperature[place] / scale,
            members=tuple(members),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per expert: the discount, NaN where it is not identified, and its range over all explanations."""
        low, high = self.intervals.T
        discount = np.where(self.discounts_identified, self.discounts, np.nan)
        return pd.DataFrame({"expert": self.experts, "discount": discount, "discount_low": low, "discount_high": high})

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON and `Solution.evidence` take them; None where nothing is known."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            plain[name] = value.tolist() if isinstance(value, np.ndarray) else value
        closest = self.status == "infeasible"
        plain["discounts"] = _known(self.discounts, self.discounts_identified | closest)
        plain["reward"] = _known(self.reward, self.reward_identified | closest)
        plain["intervals"] = [[None if np.isnan(end) else float(end) for end in pair] for pair in self.intervals]
        plain["members"] = [_plain_member(m) for m in self.members]
        plain["unknown_parameters"] = list(self.unknown_parameters)
        plain["experts"] = list(self.experts)
        return plain

    def summary(self) -> str:
        """The finding in plain words, with what to do next."""
        return "\n".join([self.headline(), *self._ranges(), *self._proof(), *self._reward(), *self._advice()])

    def headline(self) -> str:
        """The finding in one sentence."""
        if self.status == "unique":
            return f"The experts identify their discounts, up to {self._errors()}."
        if self.status == "infeasible":
            return (
                f"No discounts and shared reward explain the experts up to {self._errors()}: "
                f"the equations hold {self.misfit:.3g} times worse than that. The closest explanation leaves {self.residual:.3g}."
            )
        return self._set_headline()

    def _errors(self) -> str:
        return "the errors of their counts" if self.from_counts else f"errors of {self.tolerance:.3g} in log π"

    def _set_headline(self) -> str:
        shape = {1: "a curve", 2: "a surface"}.get(self.dimension, f"a set of dimension {self.dimension}")
        open_ = counted(self.dimension, "combination")
        if self.dimension == 0:
            return "Several separate explanations fit the experts equally well."
        if self.from_counts:
            return f"These decisions do not identify the discounts: the errors of their counts leave {open_} of them open."
        if self.discounts_identified.all():
            return (
                f"The experts do not identify their discounts by themselves: {shape} of them explains the same behaviour, "
                "and only the limits 0 and 1 single out one point of it."
            )
        if not self.members or max(m.error for m in self.members) > 1e-6:
            return f"Errors as large as those of the policies leave {open_} of the discounts open."
        return f"The experts do not identify their discounts: {shape} of them explains the same behaviour."

    def _ranges(self) -> list[str]:
        rows = zip(self.experts, self.discounts, self.intervals, strict=True)
        return [f"  {name}: {self._range(float(gamma), float(low), float(high))}" for name, gamma, (low, high) in rows]

    def _range(self, gamma: float, low: float, high: float) -> str:
        if self.status == "infeasible":
            return f"closest discount {gamma:.4f}"
        if high - low <= 2 * PRINTED:
            return f"discount {gamma:.4f}"
        if low <= PRINTED and high >= 1 - PRINTED:
            return "any discount from 0 to 1"
        if low <= PRINTED:
            return f"discount at most {high:.4f}"
        if high >= 1 - PRINTED:
            return f"discount at least {low:.4f}"
        return f"discount from {low:.4f} to {high:.4f}"

    def _proof(self) -> list[str]:
        lines = []
        for m in self.members:
            discounts = ", ".join(f"{gamma:.4f}" for gamma in m.discounts)
            evidence = (
                f"makes the decisions as likely as any found (log-likelihood {m.log_likelihood:.1f})"
                if self.from_counts
                else f"reproduces every policy to {m.error:.1e}"
            )
            lines.append(f"  For example {discounts} with a reward of its own {evidence}.")
        return lines

    def _reward(self) -> list[str]:
        lines = []
        if self.free_constant:
            lines.append("A constant may be added to the whole reward; its mean is set to 0.")
        if others := self.reward_dimension - self.free_constant:
            lines.append(f"Even at given discounts the reward is open in {counted(others, 'further direction')}.")
        if self.unknown_parameters:
            some = ", ".join(self.unknown_parameters[:5]) + (", …" if len(self.unknown_parameters) > 5 else "")
            lines.append(f"Nothing can be said about the reward of states that are never entered: {some}.")
        return lines

    def _advice(self) -> list[str]:
        if self.status == "unique":
            return []
        if self.from_counts:
            return ["This check treats frequencies as policies with errors. MaximumLikelihood uses the decisions in full."]
        if self.status == "set":
            return [
                "To narrow it down: the same experts in a variant of the task with other transitions (Problem.join), "
                "another expert, fewer reward parameters (features), or one discount fixed from other knowledge."
            ]
        size = self.tolerance * self.misfit / MISFIT
        return [
            f"If the policies are estimates, set tolerance to the size of their errors: {size:.2g} or more would be needed. "
            "Otherwise try another temperature, temperatures per expert, or ask whether all experts share one reward."
        ]


def counted(number: int, noun: str) -> str:
    """ "1 direction", "2 directions"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _known(values: Floats, known: Bools) -> list[float | None]:
    return [float(value) if ok else None for value, ok in zip(values, known, strict=True)]


def _plain_member(member: Member) -> dict[str, Any]:
    likelihood = None if np.isnan(member.log_likelihood) else member.log_likelihood
    return {
        "discounts": member.discounts.tolist(),
        "reward": member.reward.tolist(),
        "temperature": member.temperature.tolist(),
        "error": member.error,
        "log_likelihood": likelihood,
    }


#: Rewards of two explanations count as different if they differ by more than this share of the largest.
SAME_REWARD = 1e-6
#: An explanation that reproduces log π worse than this, and far worse than the tolerance, was not solved for.
UNRESOLVED = 1e-5
#: Two members of a set are shown as its proof if their discounts are at least this far apart.
FAR_APART = 0.01


@dataclass(frozen=True, eq=False)
class Verdict:
    """What was found: a status, the explanation `found`, the ranges `(K,2)`, and other explanations where there is a set."""

    status: str
    found: Candidate
    answer: Answer
    ranges: Floats
    others: Sequence[Candidate] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """What stays the same during the analysis of one problem.

    `outside` is the misfit of log π in units of its assumed error, `known` the discounts `(K,)` that are known, NaN elsewhere.
    """

    problem: Problem
    equations: Sequence[PolicyEquations]
    tolerance: float
    base: StateEquations | FeatureEquations
    outside: float
    known: Floats

    @cached_property
    def with_known(self) -> KnownDiscounts:
        """The equations in the unknown discounts."""
        return KnownDiscounts(self.base, self.known)

    @property
    def joint(self) -> JointEquations:
        """The equations to solve."""
        return self.base if np.isnan(self.known).all() else self.with_known

    @property
    def from_counts(self) -> bool:
        """Whether frequencies of decisions stand in for policies."""
        return any(expert.counts is not None for expert in self.problem.experts)

    def report(self, verdict: Verdict) -> Identification:
        """The verdict with everything that is recomputed from it."""
        status, found, answer = verdict.status, verdict.found, verdict.answer
        reward, identified = self.reward(found)
        temperature = self.joint.read(found.discounts, found.x)[1]
        discounts = self.with_known.expand(found.discounts)
        if status == "set":
            identified &= bool(verdict.others)
            for other in verdict.others:
                identified &= np.abs(self.reward(other)[0] - reward) <= SAME_REWARD * max(1.0, float(np.abs(reward).max()))
        ranges = verdict.ranges if status != "infeasible" else np.full(verdict.ranges.shape, np.nan)
        residual = self.residual(found)
        if status != "infeasible" and residual > self.unresolved:
            raise ValueError(
                f"the equations of these experts are too weak in some directions to be solved: the answer found gives log π "
                f"only up to {residual:.1g}; join states that the actions hardly tell apart"
            )
        return Identification(
            status=status,
            dimension=answer.free.shape[0],
            discounts=discounts,
            intervals=self.with_known.expand(ranges),
            reward=reward,
            reward_identified=identified & (status != "infeasible"),
            residual=residual,
            singular_values=answer.singular_values,
            temperature=temperature,
            members=tuple(_far_apart(self, verdict.others)),
            tolerance=self.tolerance,
            misfit=self.misfit(answer),
            surplus=self.surplus(verdict),
            coincidence=float(10.0 ** self.log_coincidence(verdict)),
            from_counts=self.from_counts,
            experts=self.problem.names,
            reward_dimension=found.columns.nullity,
            free_constant=self.free_constant and found.columns.nullity > 0,
            unknown_parameters=tuple(n for n, k in zip(self.problem.parameter_names, self.entered, strict=True) if not k),
        )

    def residual(self, point: Candidate) -> float:
        """How far log π, computed again from a point, is from what the experts do."""
        reward, temperature = self.reward(point)[0], self.joint.read(point.discounts, point.x)[1]
        discounts = self.with_known.expand(point.discounts)
        return bellman_residual(self.problem, self.equations, discounts, reward, temperature, self.values(point))

    @property
    def unresolved(self) -> float:
        """A solution with a larger residual was not solved for; from counts any residual may be noise."""
        return np.inf if self.from_counts else max(UNRESOLVED, 1000 * self.tolerance)

    def misfit(self, answer: Answer) -> float:
        """How much worse the equations hold than the assumed errors explain."""
        return max(self.outside, answer.gap / answer.expected)

    def surplus(self, verdict: Verdict) -> int:
        """How many more equations than unknowns the experts have in common: what could have contradicted a shared reward."""
        found = verdict.found
        slopes = np.linalg.svd(found.jacobian, compute_uv=False)
        unknowns = found.columns.rank + int((slopes > found.no_effect).sum())
        common = self.base.common_equations(self.with_known.expand(found.discounts), found.x)
        return int(max(0, common - unknowns))

    def log_coincidence(self, verdict: Verdict) -> float:
        """The decimal logarithm of a rough chance that experts with unrelated rewards would fit by coincidence.

        The residual of unrelated rewards has as many free directions as there are surplus equations, and in each it is about as
        large as the reward varies. The chance is the volume of the ball of residuals that count as a fit, relative to the volume
        of residuals of that size.
        """
        surplus = self.surplus(verdict)
        scale = self.base.reward_scale(self.with_known.expand(verdict.found.discounts), verdict.found.x)
        share = MISFIT * verdict.answer.expected / max(scale * np.sqrt(surplus), TINY)
        return surplus * float(np.log10(min(1.0, share)))

    def feasible(self, answer: Answer) -> bool:
        """Whether the equations, and each expert's own, hold up to the errors."""
        return answer.feasible and self.outside <= MISFIT

    @property
    def entered(self) -> Bools:
        """The reward parameters `(d,)` that some equation holds."""
        everything = np.ones(self.problem.n_parameters, dtype=np.bool_)
        return self.base.shared.entered if isinstance(self.base, StateEquations) else everything

    @property
    def free_constant(self) -> bool:
        """Whether a constant added to the reward of every state changes nothing: no move ends an episode."""
        return isinstance(self.base, StateEquations) and not any(e.mdp.entered_ends.any() for e in self.problem.experts)

    def reward(self, point: Candidate) -> tuple[Floats, Bools]:
        """The reward at a point, with mean 0 where a constant is free, and which entries the equations fix at these discounts."""
        reward = self.joint.read(point.discounts, point.x)[0]
        moves = [self.joint.read(point.discounts, point.x + v)[0] - reward for v in point.columns.null.T]
        if self.free_constant:
            reward, *moves = (np.where(self.entered, r - r[self.entered].mean(), 0.0) for r in (reward, *moves))
        fixed = self.entered.copy()
        for move in moves:
            fixed &= np.abs(move) <= SAME_REWARD
        return reward, fixed

    def values(self, point: Candidate) -> Sequence[Floats | None]:
        """Each expert's value function `(S,)` as the equations have it, where they do; 0 at states that nobody enters."""
        if isinstance(self.base, FeatureEquations):
            return [None] * len(self.problem.experts)
        known = self.base.values(point.x)
        return [_on_states(e.mdp, v) for e, v in zip(self.problem.experts, known, strict=True)]

    def member(self, point: Candidate) -> Member | None:
        """The point as a member with its evidence, or None where its policies do not exist (discount 1, λ ≤ 0)."""
        temperature = self.joint.read(point.discounts, point.x)[1]
        reward, discounts = self.reward(point)[0], self.with_known.expand(point.discounts)
        if (temperature <= 0).any():
            return None
        try:
            error = reproduction_error(self.problem, self.equations, discounts, reward, temperature)
        except ValueError:
            return None
        likelihood = log_likelihood(self.problem, discounts, reward, temperature) if self.from_counts else np.nan
        return Member(discounts, reward, temperature, error, likelihood)


def _far_apart(case: Case, points: Sequence[Candidate]) -> list[Member]:
    """Two confirmed members of the set that are far apart: the pair with the largest distance; none where all are close."""
    members = _confirmed(case, [m for m in (case.member(p) for p in points[:: max(1, len(points) // 40)]) if m is not None])
    pairs = [
        (float(np.linalg.norm(a.discounts - b.discounts)), i, j) for i, a in enumerate(members) for j, b in enumerate(members[:i])
    ]
    distance, i, j = max(pairs, default=(0.0, 0, 0))
    return [members[j], members[i]] if distance > FAR_APART else []


def _confirmed(case: Case, members: list[Member]) -> list[Member]:
    """The members that reproduce the policies within the tolerance, or make the decisions as likely as the best of them does."""
    if case.from_counts:
        most = max((m.log_likelihood for m in members), default=0.0)
        return [m for m in members if 2 * (most - m.log_likelihood) <= chi2.ppf(0.95, case.problem.n_experts)]
    best = min((m.error for m in members), default=0.0)
    return [m for m in members if m.error <= min(max(100 * best, 1e-11), MISFIT * case.tolerance)]


def _on_states(mdp: MDP, entered: Floats) -> Floats:
    """Numbers of the states that some move enters, with 0 for the others."""
    values = np.zeros(mdp.n_states)
    values[mdp.entered] = entered
    return values


def bellman_residual(
    problem: Problem,
    equations: Sequence[PolicyEquations],
    discounts: Floats,
    reward: Floats,
    temperature: Floats,
    guesses: Sequence[Floats | None],
) -> float:
    """`max |(Q − V)/λ − log π*|` with V and Q the values of the experts' own policies under the answer.

    It is 0 exactly if every expert is soft-optimal. Its unit is that of log π. V is solved for from the answer; a guess `(S,)`
    only makes that quicker. Where a policy never ends, or not before rounding hides it, a discount of 1 is read as a little less.
    """
    cases = zip(problem.experts, equations, problem.owner, guesses, strict=True)
    return max(_one_residual(expert, e, reward, float(discounts[k]), float(temperature[k]), v) for expert, e, k, v in cases)


def _one_residual(
    expert: Expert, equations: PolicyEquations, reward: Floats, gamma: float, lam: float, guess: Floats | None
) -> float:
    mdp = expert.mdp
    if gamma > LARGEST_SOLVABLE_DISCOUNT and mdp.never_ends(equations.policy).any():
        gamma = LARGEST_SOLVABLE_DISCOUNT
    immediate = expert.expected_reward(reward)
    earned = np.where(mdp.terminal, 0.0, np.vecdot(equations.policy, immediate)) + lam * equations.entropy
    under = equations.under()
    # One backup gives the states that nobody enters their values too.
    known = None if guess is None else earned + gamma * (under @ guess)
    try:
        values = matrix_resolvent(mdp, under, gamma).solve(earned, guess=known)
    except SingularError:
        if gamma <= LARGEST_SOLVABLE_DISCOUNT:
            raise
        return _one_residual(expert, equations, reward, LARGEST_SOLVABLE_DISCOUNT, lam, guess)
    gap = (immediate + gamma * mdp.expect(values) - values[:, None]) / lam - equations.log_policy
    return float(np.abs(gap).max(where=mdp.live, initial=0.0))


def reproduction_error(
    problem: Problem, equations: Sequence[PolicyEquations], discounts: Floats, reward: Floats, temperature: Floats
) -> float:
    """`max |π − π*|` over experts, states and actions, with π planned again from the answer."""
    worst = 0.0
    for expert, e, owner in zip(problem.experts, equations, problem.owner, strict=True):
        planned = soft_plan(expert.mdp, expert.expected_reward(reward), float(discounts[owner]), float(temperature[owner]))
        worst = max(worst, float(np.abs(planned.policy - e.policy)[~expert.mdp.terminal].max(initial=0.0)))
    return worst


def log_likelihood(problem: Problem, discounts: Floats, reward: Floats, temperature: Floats) -> float:
    """`Σ N(s,a) log π(a|s)`; experts given as policies count with weight 1 in every state; −inf where no plan exists."""
    total = 0.0
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        counts = expert.counts if expert.counts is not None else read_equations(expert).policy
        live = ~expert.mdp.terminal[:, None] & (counts > 0)
        try:
            planned = soft_plan(expert.mdp, expert.expected_reward(reward), float(discounts[owner]), float(temperature[owner]))
        except ValueError:
            return -np.inf
        total += float((counts * np.where(live, planned.log_policy, 0.0))[live].sum())
    return total


Temperature = float | Literal["per_expert"]
#: Above this many rows the linear system's answer is not polished: it has twelve digits already, and a step takes long.
POLISHED_ROWS = 50_000
#: Random vectors that leave a span by more than this are not in it.
SAME_SPAN = 1e-9
#: Starting points where the equations are not linear.
STARTS = 12
#: Above this many entries of M only a few starts are made.
WIDE = 20_000


def identify(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    starts: int = STARTS,
    known: Mapping[str, float] | None = None,
    smoothing: float = 0.5,
) -> Identification:
    """Say whether the experts' policies identify their discounts, and give the answer, the set of answers, or the closest one.

    Args:
        problem: experts given as policies without zero entries, or as demonstrations (whose frequencies are smoothed, and whose
            errors are those of the counts).
        temperature: the entropy weight λ that all experts share, or "per_expert": each has their own, the first has 1.
        tolerance: how large the errors in the policies may be, as the standard deviation of log π, which is the relative error
            of a probability. The answer is called unique only if such errors move no discount by more than 0.1.
        starts: number of starting points where the equations are not linear.
        known: discounts that are known from elsewhere, by the expert's name.
        smoothing: added to each available action's count of demonstrations.

    Raises:
        ValueError: on malformed options, zero probabilities, or experts given as best actions, and where the equations are too
            weak to be solved.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> found = identify(Problem(d.mdp, d.mce_experts()))
        >>> found.status, found.discounts.round(6).tolist()
        ('unique', [0.0, 0.2, 0.52])
    """
    lam = read_temperature(temperature)
    as_positive(tolerance, "tolerance")
    as_positive(smoothing, "smoothing")
    ordered = in_order_of_content(require_finite(problem), smoothing)
    equations = [read_equations(expert, smoothing) for expert in ordered.experts]
    families = None if has_features(ordered) else reward_families(ordered, equations, tolerance)
    case = make_case(ordered, equations, families, lam, tolerance, _known_identify(ordered, known))
    return case.report(judge(case, starts)).listed_as(problem.names, free_temperatures=lam is None)


def has_features(problem: Problem) -> bool:
    """Whether the reward is made of features other than one number per state."""
    return any(state_columns(problem, expert) is None for expert in problem.experts)


def make_case(
    problem: Problem,
    equations: Sequence[PolicyEquations],
    families: Sequence[RewardFamily] | None,
    lam: float | None,
    tolerance: float,
    known: Floats,
) -> Case:
    """The system of all experts, from what each of them says; `families` is None where the reward is made of features."""
    if families is None:
        return Case(problem, equations, tolerance, FeatureEquations(problem, equations, lam, tolerance), 0.0, known)
    shared = SharedReward(families, problem.n_parameters)
    return Case(problem, equations, tolerance, StateEquations(shared, problem.n_experts, lam), shared.misfit, known)


def judge(case: Case, starts: int = STARTS, extent: bool = True) -> Verdict:
    """Solve the system of all experts, and say what its solutions are; `extent` is whether a set is to be walked along."""
    if isinstance(case.base, FeatureEquations) or not np.isnan(case.known).all():
        return _nonlinear(case, [], starts, extent)
    system = build_system(case.base.shared.compact, case.problem.n_experts, case.base.temperature)
    answer = solve_system(system)
    if not answer.free.size:
        return _single(case, system, answer)
    if _affine(case.base.shared.compact):
        return _affine_set(case, system, answer)
    relaxed = [answer.y, *system.discount_ranges(answer)[1]]
    return _nonlinear(case, [system.read(y)[0] for y in relaxed], starts, extent)


def _known_identify(problem: Problem, known: Mapping[str, float] | None) -> Floats:
    """The known discounts `(K,)`, NaN where unknown."""
    values = np.full(problem.n_experts, np.nan)
    for name, discount in (known or {}).items():
        if name not in problem.names:
            raise ValueError(f"known must name experts among {', '.join(problem.names)}, received {name!r}")
        values[problem.names.index(name)] = as_discount(discount, f"known discount of expert {name}")
    if not np.isnan(values).any():
        raise ValueError("known must leave at least one discount open, received all of them: use MCE at known discounts")
    return values


def read_temperature(temperature: Temperature) -> float | None:
    """The shared temperature, or None for one per expert."""
    if isinstance(temperature, str):
        if temperature != "per_expert":
            raise ValueError(f'temperature must be a positive number or "per_expert", received {temperature!r}')
        return None
    return as_positive(temperature, "temperature")


def _affine(shared: SharedReward) -> bool:
    """Whether `P_π N` stays in the span of N for every expert, so that the linear system loses nothing."""
    for family in shared.families:
        span = columns_of(family.basis, RANK_TOLERANCE, family.coefficients)
        drawn = np.random.default_rng(0).standard_normal((family.u.size, 4))
        if np.abs(span.outside(family.pushed @ span.solve(drawn))).max(initial=0.0) > SAME_SPAN:
            return False
    return True


def _single(case: Case, system: LinearSystem, answer: Answer) -> Verdict:
    """One answer of the linear system, polished with the equations the relaxation dropped."""
    discounts = np.clip(system.read(answer.y)[0], 0.0, 1.0)
    point = minimise(case.joint, discounts) if system.shared.size <= POLISHED_ROWS else project(case.joint, discounts)
    feasible = case.feasible(answer) and point.gap <= MISFIT * answer.expected
    return Verdict("unique" if feasible else "infeasible", point, answer, _widened(hull([point]), answer))


def _affine_set(case: Case, system: LinearSystem, answer: Answer) -> Verdict:
    intervals, extremes = system.discount_ranges(answer)
    if not case.feasible(answer) or not extremes:
        point = project(case.joint, np.clip(system.read(answer.y)[0], 0.0, 1.0))
        return Verdict("infeasible", point, answer, intervals)
    centre = np.mean(extremes, axis=0)
    inner = [0.98 * y + 0.02 * centre for y in extremes]
    points = [project(case.joint, np.clip(system.read(y)[0], 0.0, 1.0)) for y in inner]
    middle = project(case.joint, np.clip(system.read(centre)[0], 0.0, 1.0))
    return Verdict("set", middle, answer, _widened(intervals, answer), points)


def _nonlinear(case: Case, guesses: list[Floats], starts: int, extent: bool) -> Verdict:
    """Local minimisers from several starts; the rank of the Jacobian at the best; walks along the set.

    The best is the first solution that gives the policies back when they are computed again from it. Solutions at discounts near
    1 need not: there the values of a policy that never ends do not exist, and the point is only a limit of explanations.
    """
    middle = np.full(case.joint.n_experts, 0.5)
    wide = case.joint.at(middle)[0].size > WIDE
    spread_out = qmc.Halton(case.joint.n_experts, seed=0).random(min(starts, 4) if wide else starts)
    minima = minimise_from(case.joint, [middle, *spread_out, *np.clip(guesses[:1] if wide else guesses, 0.0, 1.0)])
    good = [p for p in minima if (case.joint.read(p.discounts, p.x)[1] > 0).all()] or minima
    best = next((p for p in good if p.gap <= p.rounding and case.residual(p) <= case.unresolved), good[0])
    answer = judge_solution(case.joint, best, case.outside)
    if not case.feasible(answer):
        return Verdict("infeasible", best, answer, hull([best]))
    largest = MISFIT * answer.expected
    alike = [p for p in good if p.gap <= largest]
    if not answer.free.size and all(_same(best, p, largest) for p in alike):
        return Verdict("unique", best, answer, _widened(hull([best]), answer))
    null = int((answer.singular_values <= best.no_effect).sum())
    ranges, points = hull(alike), alike
    if case.from_counts:
        ranges[np.abs(answer.free).max(axis=0, initial=0.0) > NO_EFFECT] = 0.0, 1.0
    elif null and extent:
        ranges, points = explore(case.joint, alike, null, largest)
    points = points + _steps_aside(case, best, answer, largest)
    return Verdict("set", best, answer, _widened(ranges, answer), points)


def _same(first: Candidate, second: Candidate, largest: float) -> bool:
    """Whether two solutions are one up to the noise: to first order the step between them changes no equation beyond it."""
    return float(np.linalg.norm(first.jacobian @ (second.discounts - first.discounts))) <= 2 * largest


def _widened(ranges: Floats, answer: Answer) -> Floats:
    """Ranges `(K,2)` and what the noise adds on both sides."""
    wider: Floats = (ranges + np.outer(answer.spread, [-1.0, 1.0])).clip(0.0, 1.0)
    return wider


def _steps_aside(case: Case, best: Candidate, answer: Answer, largest: float) -> list[Candidate]:
    """Points to both sides of the best along directions that only the noise leaves open, as far as the noise explains them."""
    found = []
    for direction in [sign * v for v in answer.free for sign in (1.0, -1.0)]:
        for length in (0.5, 0.2, 0.1, 0.05):
            point = project(case.joint, np.clip(best.discounts + length * direction, 0.0, 1.0))
            if point.gap <= largest:
                found.append(point)
                break
    return found
