"""An explanation checked against the experts and written into the report.

Everything said about an explanation is computed again from its discounts, reward and temperatures alone: the residual of the
Bellman equations, the policies planned from it, and the likelihood of the decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Bools, Floats
from multihorizon.experts import Expert
from multihorizon.mdp import MDP
from multihorizon.planning.linear import SingularError, matrix_resolvent
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Problem
from multihorizon.recovery.feature_equations import FeatureEquations
from multihorizon.recovery.identification import Identification, Member
from multihorizon.recovery.joint_equations import JointEquations, KnownDiscounts, StateEquations
from multihorizon.recovery.linear_system import MISFIT, Answer
from multihorizon.recovery.one_expert import PolicyEquations, read_equations
from multihorizon.recovery.solution_set import Candidate
from multihorizon.tolerances import LARGEST_SOLVABLE_DISCOUNT, TINY

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
        moves = [self.joint.read(point.discounts, point.x + v)[0] - reward for v in point.columns.null_moves().T]
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
