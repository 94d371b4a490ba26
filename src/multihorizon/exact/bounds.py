"""What can be said of behaviour after a change that needs the reward, where policies identify only a set of rewards.

*The set.* At given discounts γ and temperatures λ the rewards that explain exact policies are an affine set, `θ = θ_0 + N z`: the
solutions of the experts' `equations`. Declared restrictions `A θ ≤ b` cut a polyhedron out of it.

*After the change* the transitions are T', an expert's discount is γ', the expected immediate reward of θ is `F'θ + Δ`, and some
actions may be gone. The soft values and choices are

    V'(s) = λ log Σ_a exp{Q'(s,a)/λ},    Q' = F'θ + Δ + γ' T' V',    π'(a|s) = exp{(Q'(s,a) − V'(s))/λ}.

V' is the largest value of any policy, and the value of one policy is affine in z. Hence **V' is convex in z**, and the tangent at
any member z_c lies below it everywhere. With `J = ∂V'/∂z` at z_c, found by one solve with `I − γ'P_π`, write

    V'(z) = V'(z_c) + J (z − z_c) + E(z),        E ≥ 0 and convex,
    Q'(s,a) − V'(s) = λ log π_c(a|s) + δ(s,a)·(z − z_c) + γ' T'E − E,        δ = F'N + γ' T'J − J.

*The linear test.* Along a direction n of the set nothing changes exactly when `F'n = φ − γ'T'φ` for some φ(s) and every action:
then φ = J n and δ n = 0. So the rank of δ says how many directions matter to an expert. If it is 0, the answer is *identified*.

*Proved bounds.* Linear programs over the polyhedron bound every `δ(s,a)·(z − z_c)` and every difference of two actions. E solves
`E = λ log Σ_a π_c exp{(δ·(z − z_c) + γ'T'E)/λ}` and grows with the rows: it is at most the soft value of a task whose rows are
`λ log π_c` and the upper bounds. Since `Σ_a π_c δ = 0`, not all rows are large at once: with the exponential below its chord, one
more program for each state bounds its sum, and E is at most the value of the best plan for these bounds. An unbounded program
makes E unbounded in all states from which its row can be reached. Bounds of all log-odds, and so of π', follow.

Where few directions matter and they are bounded, the set is cut into boxes in these directions. On a box E is at most what it is
at a corner, because it is convex: the error of a box falls with the square of its size. Boxes are halved until what is proved is
near what is attained. Everything is moved outwards by a little more than rounding.

*Attained bounds.* Members of the set are found on which a probability is small or large: corners of the polyhedron, and from the
best of them steps of sequential linear programming in a region that grows while steps succeed. What a search attains is at least
possible. The true range lies between what is attained and what is proved, which is asserted.

*Discounts that are a set themselves* are followed member by member (`discount_members`). What lies between members is not seen,
so nothing is proved.

Economists have studied which counterfactuals are identified: Aguirregabiria; Norets and Tang; Kalouptsidi, Scott and
Souza-Rodrigues; and sharp sets for others, with Kitamura and Lima.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse, as_shape
from multihorizon.exact.equations import (
    Explanation,
    PolicyTemperature,
    in_order_of_content,
    joint_equations,
    read_temperature,
)
from multihorizon.exact.identify import judge, minimise
from multihorizon.exact.rewards import ContradictionError, RewardSet, contradiction
from multihorizon.mdp import MDP, refuse_durations
from multihorizon.numerics.lp import INFINITY, LPStatus, branch_and_bound
from multihorizon.parallel import Progress, Run, silent
from multihorizon.planning.linear import policy_resolvent
from multihorizon.planning.plan import plan, soft_plan
from multihorizon.problem import Problem

#: Probabilities within this of 0 or 1 are not told from 0 or 1, and ranges up to this width are one number.
ROUNDED = 1e-6


@dataclass(frozen=True, eq=False)
class Bounds:
    """Choice probabilities after a change, over all rewards that explain the experts.

    Attributes:
        low, high: `(K,S',A)`, proved outer bounds where `proved`, else what a search attained.
        attained_low, attained_high: `(K,S',A)`, what members of the set attain: the range is at least this wide.
        status: `(K,)` of "identified", "bounded" and "not bounded" (nothing is known of any choice of this expert).
        proved: `(K,)`, whether `low` and `high` are certain to hold every member.
        point: `(K,S',A)`, the choices of one member.
        members: for each expert the choices `(m,S',A)` of members that attain some end, for what else follows from choices.
        member_discounts: the discounts `(m,)` of these members after the change.
        reward: `(d,)`, that member's reward parameters.
        directions: `(K,)`, how many directions of the set matter to each expert.
        remarks: what else must be said, in sentences.
    """

    low: Floats
    high: Floats
    attained_low: Floats
    attained_high: Floats
    status: tuple[str, ...]
    proved: Bools
    point: Floats
    members: tuple[Floats, ...]
    member_discounts: tuple[Floats, ...]
    reward: Floats
    directions: tuple[int, ...]
    remarks: tuple[str, ...]


def predicted_bounds(
    problem: Problem,
    discounts: Floats,
    temperatures: Floats,
    *,
    mdp: MDP,
    features: Floats | Sparse | None = None,
    pay: Floats | None = None,
    forbid: Bools | None = None,
    new_discounts: Floats | None = None,
    restrictions: tuple[Floats, Floats] | None = None,
    progress: Progress = silent,
) -> Bounds:
    """Return bounds of every expert's choices after a change, over all rewards that explain the experts.

    Args:
        problem: experts given as policies, soft-optimal for one reward.
        discounts, temperatures: `(K,)` each, known or identified; or `(M,K)`, members of a set of them (`discount_members`).
        mdp: the decision process after the change.
        features: `(A·S',d)`, what turns reward parameters into the expected immediate reward after the change; by default the
            stacked transitions of `mdp`, for a reward of one number per state.
        pay: `(S',A)`, added to the expected immediate reward.
        forbid: `(S',A)`, actions that are taken away.
        new_discounts: `(K,)`, NaN where a discount stays as it is.
        restrictions: A and b of `A r ≤ b` on the reward parameters, as `read_restrictions` gives them.
        progress: called with the share of work done and a message.

    Raises:
        ContradictionError: where no reward that explains the experts meets the restrictions, naming those that contradict.
        ValueError: where the policies are not soft-optimal for one reward at these discounts and temperatures.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> found = predicted_bounds(Problem(d.mdp, d.soft_experts()), np.array(d.soft_discounts), np.ones(3), mdp=d.mdp)
        >>> found.status
        ('identified', 'identified', 'identified')
    """
    refuse_durations((mdp, *problem.mdps), "bounds over all rewards that explain the experts")
    members, warmths = np.atleast_2d(discounts), np.atleast_2d(temperatures)
    task = _TaskAfter.read(mdp, features, pay, forbid, problem.n_parameters)
    new = np.full(problem.n_experts, np.nan) if new_discounts is None else new_discounts
    bounds: list[Bounds] = []
    for (gammas, lams), run in Run(progress=progress).over(list(zip(members, warmths, strict=True))):
        rewards = RewardSet.of(problem, gammas, lams, restrictions)
        if rewards is not None:
            after = np.where(np.isnan(new), gammas, new)
            bounds.append(_at_given_discounts(rewards, task, after, lams, run))
    if not bounds:
        assert restrictions is not None
        raise ContradictionError(contradiction(problem, members[0], warmths[0], restrictions))
    return bounds[0] if len(members) == 1 else _joined(bounds, len(members))


def _joined(parts: Sequence[Bounds], count: int) -> Bounds:
    """Return what members of a set of discounts attain together."""
    low = np.min([b.attained_low for b in parts], axis=0)
    high = np.max([b.attained_high for b in parts], axis=0)
    remarks = [
        f"The discounts are a set themselves: {count} members of it were tried, so the true ranges are at least this wide, "
        "and nothing is proved."
    ]
    if len(parts) < count:
        remarks.append(f"{count - len(parts)} of these members contradict the restrictions and were left out.")
    middle = parts[len(parts) // 2]
    nothing = np.zeros(len(middle.status), dtype=np.bool_)
    # Members that agree do not prove that all do.
    words = [_status(lo, hi, 1e-3) for lo, hi in zip(low, high, strict=True)]
    status = tuple("bounded" if word == "identified" else word for word in words)
    directions = tuple(np.max([b.directions for b in parts], axis=0).tolist())
    seen = tuple(np.concatenate([b.members[k] for b in parts]) for k in range(len(status)))
    at = tuple(np.concatenate([b.member_discounts[k] for b in parts]) for k in range(len(status)))
    return Bounds(low, high, low, high, status, nothing, middle.point, seen, at, middle.reward, directions, tuple(remarks))


def _status(low: Floats, high: Floats, near: float = ROUNDED) -> str:
    """Return the word for the bounds `(S',A)` of one expert, where a probability that comes `near` to 0 or 1 may be 0 or 1."""
    open_ = high - low > ROUNDED
    if not open_.any():
        return "identified"
    vacuous = (low <= near) & (high >= 1 - near)
    return "not bounded" if vacuous[open_].all() else "bounded"


# The task after the change.


@dataclass(frozen=True, eq=False)
class _TaskAfter:
    """What is decided after the change: `mdp` without the forbidden actions, F' `(A·S',d)`, and what is paid besides `(S',A)`."""

    mdp: MDP
    features: Any
    pay: Floats

    @staticmethod
    def read(mdp: MDP, features: Any, pay: Floats | None, forbid: Bools | None, n_parameters: int) -> _TaskAfter:
        """Return the task, with its shapes checked."""
        mdp = mdp if forbid is None else mdp.without(forbid)
        matrix = mdp.stacked if features is None else features
        as_shape(matrix, (mdp.n_actions * mdp.n_states, n_parameters), "features after the change")
        return _TaskAfter(mdp, matrix, np.zeros((mdp.n_states, mdp.n_actions)) if pay is None else pay)

    def table(self, values: Floats) -> Floats:
        """Return `(S',A,…)` of values `(A·S',…)`, 0 where nothing is decided."""
        shaped = np.swapaxes(values.reshape(self.mdp.n_actions, self.mdp.n_states, *values.shape[1:]), 0, 1)
        return np.where(self.mdp.live.reshape(*self.mdp.live.shape, *(1 for _ in values.shape[1:])), shaped, 0.0)


@dataclass(frozen=True, eq=False)
class _Planned:
    """The choices of one member: log π' `(S',A)`, −inf where nothing can be chosen, and V' `(S',)`."""

    log_policy: Floats
    policy: Floats
    values: Floats


class _OneExpert:
    """Everything about one expert after the change: the tangent at the centre, and bounds.

    Attributes:
        slopes: δ in the directions that matter, `(S',A,n)`.
        axes: these directions `(n,dim z)`, orthonormal; `y = axes z`, measured from the centre.
    """

    def __init__(self, rewards: RewardSet, task: _TaskAfter, discount: float, temperature: float) -> None:
        self.rewards, self.task, self.gamma, self.lam = rewards, task, discount, temperature
        self._constant = task.table(task.features @ (rewards.origin + rewards.basis @ rewards.centre)) + task.pay
        all_rows = task.table(np.asarray(task.features @ rewards.basis))
        self.live = task.mdp.live
        self.chosen = self.live & (self.live.sum(axis=1) > 1)[:, None]
        first = soft_plan(task.mdp, self._constant, discount, temperature)
        _, slopes = self._slopes(first.policy, all_rows)
        flat = slopes[self.live]
        _, values, right = np.linalg.svd(flat, full_matrices=False)
        # Structural zeros come out near 1e-15 of the rows they are made of.
        size = max(float(np.abs(all_rows).max(initial=0.0)), 1e-300) * np.sqrt(max(flat.shape[0], 1))
        self.axes = right[values > 1e-9 * size]
        self.n = len(self.axes)
        self._corners: dict[tuple[float, ...], _Planned] = {}  # boxes share theirs with their neighbours
        self._offset: Floats = self.axes @ rewards.centre
        self._rows = all_rows @ self.axes.T
        self.centre = self.member(np.zeros(self.n))
        self.slopes = self._slopes(self.centre.policy, self._rows)[1]
        self._ends = [self.farthest(sign) for sign in (np.ones(1), -np.ones(1))] if self.n == 1 else []
        # Where action b enters states more often than action a does.
        self._surplus: dict[tuple[int, int], Any] = {}
        if self.n and discount > 0:
            moves = [task.mdp.transition(a) for a in range(task.mdp.n_actions)]
            for a, b in permutations(range(task.mdp.n_actions), 2):
                self._surplus[a, b] = sp.csr_array((moves[b] - moves[a]).maximum(0.0))
                self._surplus[a, b].data[self._surplus[a, b].data < 1e-14] = 0.0

    def _slopes(self, policy: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """Return J `(S',n)` and δ `(S',A,n)` at a policy."""
        task = self.task
        n = rows.shape[2]
        earned = np.einsum("sa,san->sn", np.where(self.live, policy, 0.0), rows)
        moved = policy_resolvent(task.mdp, policy, self.gamma).solve(earned) if n else earned
        ahead = task.table(np.asarray(task.mdp.stacked @ moved))
        return moved, np.where(self.live[:, :, None], rows + self.gamma * ahead - moved[:, None, :], 0.0)

    def member(self, y: Floats, start: Floats | None = None) -> _Planned:
        """Return the choices at y; other directions of the set do not matter."""
        plan = soft_plan(self.task.mdp, self._constant + self._rows @ y, self.gamma, self.lam, start=start)
        logs = np.where(self.live, plan.log_policy, -np.inf)
        return _Planned(logs, np.where(self.live, np.exp(logs), plan.policy), plan.values)

    def extreme(self, direction: Floats) -> tuple[float, Floats | None]:
        """Return the largest `direction·y` over the set, and the y that attains it; with one direction two programs are
        enough.
        """
        if np.abs(direction).max() <= 1e-10 * np.abs(self.slopes).max():  # rounding: nothing moves, however far y goes
            return 0.0, None
        if self.n > 1:
            return self.farthest(direction)
        value, y = self._ends[int(direction[0] < 0)]
        return abs(float(direction[0])) * value, y

    def farthest(self, direction: Floats) -> tuple[float, Floats | None]:
        """Return the same by a program."""
        if not self.rewards.limits.size:
            return INFINITY, None
        result = self.rewards.largest(self.axes.T @ direction)
        if not result.optimal:  # unbounded, or left open by the solver: then nothing is claimed either
            return INFINITY, None
        y = self.axes @ result.values - self._offset
        # Programs are solved to nine digits.
        return float(direction @ y) + 1e-8 * float(np.linalg.norm(direction)) * (1.0 + float(np.linalg.norm(y))), y

    # Proved bounds.

    def over_all(self, extremes: list[Floats]) -> tuple[Floats, Floats]:
        """Return proved bounds `(S',A)` from linear programs over the whole set; the y that attain their optima go to
        `extremes`.
        """
        lower, upper = np.zeros((2, *self.live.shape))
        for s, a in np.argwhere(self.live):
            for sign, side in ((-1.0, lower), (1.0, upper)):
                value, y = self.extreme(sign * self.slopes[s, a])
                side[s, a] = sign * value
                extremes.extend(() if y is None else (y,))
        gain = self._largest_gain(lower, upper)
        n_actions = self.live.shape[1]
        apart = np.full((*self.live.shape, n_actions), -np.inf)  # the largest log-odds of b against a, at [s, a, b]
        for s, a in np.argwhere(self.chosen):
            for b in np.flatnonzero(self.live[s]):
                top, y = (0.0, None) if a == b else self.extreme(self.slopes[s, b] - self.slopes[s, a])
                extremes.extend(() if y is None else (y,))
                apart[s, a, b] = top
        return self._from_log_odds(self.centre, apart, gain)

    def _largest_gain(self, lower: Floats, upper: Floats) -> Floats:
        """Return the largest E `(S',)` where rows of δ·y lie in `lower` to `upper` `(S',A)`; inf where one without end is
        reached.
        """
        mdp = self.task.mdp
        endless: Bools = np.any(~np.isfinite(upper) & self.live, axis=1)
        if self.gamma > 0:
            while True:
                reaches: Bools = endless | np.any((mdp.expect(endless.astype(np.float64)) > 0) & self.live, axis=1)
                if (reaches == endless).all():
                    break
                endless = reaches
        rows = np.where(self.live & ~endless[:, None], self.lam * np.where(self.live, self.centre.log_policy, 0.0) + upper, 0.0)
        gain = np.where(endless, np.inf, 0.0)
        with suppress(ValueError):  # at discount 1 the upper bounds together may be worth infinitely much
            gain = np.maximum(gain, soft_plan(mdp, rows, self.gamma, self.lam).values)
            states = np.flatnonzero(~endless & self.chosen.any(axis=1) & (upper.max(axis=1) < 500 * self.lam))
            if not states.size:
                return gain
            start = np.where(endless | (self.live.sum(axis=1) == 1), 0.0, gain)  # without an alternative nothing is gained
            start[states] = self._one_step_gains(states, lower, upper, np.zeros(mdp.n_states))
            steady = plan(mdp, np.repeat(start[:, None], mdp.n_actions, axis=1), self.gamma).values
            gain = np.where(endless, np.inf, np.minimum(gain, np.maximum(steady, 0.0)))
            for _ in range(3 if self.gamma > 0 else 0):
                gain[states] = np.minimum(gain[states], self._one_step_gains(states, lower, upper, gain))
            return gain
        return np.full(mdp.n_states, np.inf)

    def _one_step_gains(self, states: Ints, lower: Floats, upper: Floats, ahead: Floats) -> Floats:
        """At most `λ log Σ_a π_c exp{(δ·y + γ T'E)/λ}` in some states, where E is at most `ahead`, over all y of the set.

        On the range of each row the exponential lies below its chord, which is linear in y: one program for each state.
        """
        lam = self.lam
        gains = np.zeros(states.size)
        later = self.gamma * self.task.mdp.expect(np.where(np.isfinite(ahead), ahead, 0.0))
        for number, s in enumerate(states):
            actions = np.flatnonzero(self.live[s])
            weights = self.centre.policy[s, actions] * np.exp(np.minimum(later[s, actions] / lam, 600.0))
            first, last = lower[s, actions] / lam, upper[s, actions] / lam
            bottom = np.exp(first)
            top = np.exp(last)
            length = last - first
            chord = np.where(np.isfinite(length) & (length > 1e-9), (top - bottom) / np.maximum(length, 1e-9), 0.0)
            flat = np.where(chord > 0, top - chord * last, top)
            with np.errstate(over="ignore", invalid="ignore"):
                direction = (weights * chord) @ self.slopes[s, actions] / lam
                constant = float(weights @ flat)
            finite = np.isfinite(direction).all() and np.isfinite(constant) and (later[s, actions] < 600 * lam).all()
            most = constant + self.extreme(direction)[0] if finite else np.inf
            gains[number] = lam * np.log(max(most, 1.0)) if np.isfinite(most) else np.inf
        return gains

    def _from_log_odds(self, at: _Planned, apart: Floats, gain: Floats) -> tuple[Floats, Floats]:
        """Return bounds `(S',A)` from the largest linear change `apart[s,a,b]` of log-odds of b against a, and E in [0, gain]."""
        lam = self.lam
        more = np.zeros(apart.shape)
        finite = np.where(np.isfinite(gain), gain, 0.0)
        endless = (~np.isfinite(gain)) / 1.0
        for (a, b), entered_more in self._surplus.items():  # what b gains over a is at most γ Σ (T_b − T_a)⁺ E
            more[:, a, b] = self.gamma * (entered_more @ finite)
            more[entered_more @ endless > 0, a, b] = np.inf
        low, high = np.where(self.chosen, 0.0, at.policy), np.where(self.chosen, 1.0, at.policy)
        base = np.where(self.live, at.log_policy, 0.0)
        for s in np.flatnonzero(self.chosen.any(axis=1)):
            places = np.flatnonzero(self.live[s])
            odds = base[s, places][None, :] - base[s, places][:, None]  # of b against a, at [a, b]
            top = odds + (apart[s][np.ix_(places, places)] + more[s][np.ix_(places, places)]) / lam
            np.fill_diagonal(top, 0.0)
            with np.errstate(over="ignore"):
                low[s, places] = 1 / np.exp(top).sum(axis=1)
                high[s, places] = 1 / np.exp(-top.T).sum(axis=1)
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)

    def over_box(self, low: Floats, high: Floats) -> tuple[Floats, Floats, dict[tuple[float, ...], _Planned]]:
        """Return proved bounds `(S',A)` for `low ≤ y ≤ high`, and the choices at its middle and corners, by y."""
        middle = (low + high) / 2
        seen: dict[tuple[float, ...], _Planned] = {}
        try:
            centre = seen[tuple(middle.tolist())] = self.member(middle, self.centre.values)
            rise, slopes = self._slopes(centre.policy, self._rows)
            gain = np.zeros(self.live.shape[0])
            for corner in product(*zip(low.tolist(), high.tolist(), strict=True)):
                tangent = centre.values + rise @ (np.array(corner) - middle)
                if corner not in self._corners:
                    self._corners[corner] = self.member(np.array(corner), tangent)
                seen[corner] = self._corners[corner]
                gain = np.maximum(gain, seen[corner].values - tangent)
        except ValueError:  # at discount 1 values outside of the set may not exist
            return np.where(self.chosen, 0.0, self.centre.policy), np.where(self.chosen, 1.0, self.centre.policy), seen
        # Values have all but four of their digits.
        gain += 1e-12 * max(1.0, float(np.abs(centre.values).max(initial=0.0)))
        reach = np.abs(slopes[:, None, :, :] - slopes[:, :, None, :]) @ ((high - low) / 2)
        return *self._from_log_odds(centre, reach, gain), seen

    def over_boxes(self, low: Floats, high: Floats, attained: _Attained) -> tuple[Floats, Floats]:
        """Return proved bounds `(S',A)` over the set, which lies in `low ≤ y ≤ high`: boxes are halved where they leave most
        open.

        It ends when what is proved is within 0.001 of what is attained (0.005 in several directions), or after 200 boxes, fewer
        where there are many states: the bounds hold anyway.
        """
        effect = np.abs(self.slopes).max(axis=(0, 1))

        def leaf(first: Floats, last: Floats) -> _Leaf | None:
            if self.n > 1:
                within = self.axes, first + self._offset, last + self._offset
                if self.rewards.largest(np.zeros(self.axes.shape[1]), within).status == LPStatus.INFEASIBLE:
                    return None
            lowest, highest, seen = self.over_box(first, last)
            if self.n == 1:  # everything between the ends is a member
                for y, planned in seen.items():
                    attained.see(np.array(y), planned)
            return _Leaf(first, last, lowest, highest)

        def excess(box: _Leaf) -> float:
            return float(max((attained.low - box.lowest).max(), (box.highest - attained.high).max()))

        def halves(box: _Leaf) -> Iterator[_Leaf | None]:
            axis = int(np.argmax(effect * (box.last - box.first)))
            left = box.last.copy()
            right = box.first.copy()
            left[axis] = right[axis] = (box.first[axis] + box.last[axis]) / 2
            yield from [leaf(box.first, left), leaf(right, box.last)]

        whole = leaf(low, high)
        most = max(20, min(200, 60_000 // self.live.shape[0])) - 1
        close = 1e-3 if self.n == 1 else 5e-3
        leaves, _ = branch_and_bound([] if whole is None else [whole], excess, halves, lambda: close, most)
        return np.min([box.lowest for box in leaves], axis=0), np.max([box.highest for box in leaves], axis=0)

    # Attained bounds.

    def attained(self, starts: Sequence[Floats], proved: tuple[Floats, Floats]) -> _Attained:
        """Return the smallest and largest probabilities found among members: corners of the set, and steps from the best
        of them.
        """
        attained = _Attained(self.centre, self.n)
        members = {tuple(np.round(y, 9).tolist()): y for y in starts}
        for y in list(members.values())[:400]:
            attained.see(y, self.member(y, self.centre.values))
        unit = self.lam / max(float(np.abs(self.slopes).max(initial=0.0)), 1e-300)  # it changes log-odds by about 1
        shape = (2, *self.live.shape)
        radius = np.full(shape, unit)
        active = np.broadcast_to(self.chosen, shape).copy()
        slopes: dict[bytes, Floats] = {}
        for _ in range(40):
            if attained.seen > max(100, min(3000, 300_000 // self.live.shape[0])) or not active.any():
                break
            for side, s, a in np.argwhere(active):
                value, limit, log_value = attained.ends[side][s, a], proved[side][s, a], attained.log_high[s, a]
                if abs(value - limit) <= 1e-3 or radius[side, s, a] < 1e-3 * unit:
                    active[side, s, a] = False
                    continue
                y = attained.places[side, s, a]
                if y.tobytes() not in slopes:
                    slopes[y.tobytes()] = self._slopes(self.member(y, self.centre.values).policy, self._rows)[1]
                moved = self._step((1.0 if side else -1.0) * slopes[y.tobytes()][s, a], y, float(radius[side, s, a]))
                if moved is not None:
                    with suppress(ValueError):  # at discount 1 the values of this member may not exist
                        attained.see(moved, self.member(moved, self.centre.values))
                # A small probability rises for long before it shows, so that its logarithm is looked at.
                gained = value - attained.low[s, a] if side == 0 else attained.log_high[s, a] - log_value
                grown = 4.0 if gained > 1e-5 else 0.2
                radius[side, s, a] = min(radius[side, s, a] * grown, 1e5 * unit)
        return attained

    def _step(self, direction: Floats, y: Floats, radius: float) -> Floats | None:
        """Return the member that is farthest along a direction, at most `radius` away in each coordinate of y."""
        if not self.rewards.limits.size:
            return y + radius * np.sign(np.where(np.abs(direction) > 1e-9 * np.abs(direction).max(initial=0.0), direction, 0.0))
        here = y + self._offset
        result = self.rewards.largest(self.axes.T @ direction, (self.axes, here - radius, here + radius))
        return self.axes @ result.values - self._offset if result.optimal else None


class _Leaf(NamedTuple):
    """A box of y and the bounds `(S',A)` proved over it."""

    first: Floats
    last: Floats
    lowest: Floats
    highest: Floats


class _Attained:
    """The smallest and the largest probabilities `(S',A)` seen, and the y `(2,S',A,n)` at which they were."""

    def __init__(self, centre: _Planned, n: int) -> None:
        self.ends = [centre.policy.copy(), centre.policy.copy()]
        self.log_high = centre.log_policy.copy()
        self.places = np.zeros((2, *centre.policy.shape, n))
        self.seen = 0
        self._policies = [centre.policy]
        self._holder = np.zeros((2, *centre.policy.shape), dtype=np.int64)  # the number of the member that holds each end

    @property
    def low(self) -> Floats:
        """Return the smallest."""
        return self.ends[0]

    @property
    def high(self) -> Floats:
        """Return the largest."""
        return self.ends[1]

    def see(self, y: Floats, planned: _Planned) -> None:
        """Take a member into account."""
        self.seen += 1
        higher = planned.log_policy > self.log_high
        self.log_high[higher] = planned.log_policy[higher]
        for side, better in enumerate((planned.policy < self.low, higher)):
            if better.any():
                self.ends[side][better] = planned.policy[better]
                self.places[side][better] = y
                self._holder[side][better] = len(self._policies)
                self._policies.append(planned.policy)

    def members(self) -> Floats:
        """Return the choices `(m,S',A)` of the members that hold an end, and of the first."""
        return np.array([self._policies[i] for i in np.unique(np.append(self._holder, 0))])


def _at_given_discounts(rewards: RewardSet, task: _TaskAfter, discounts: Floats, temperatures: Floats, run: Run) -> Bounds:
    """Return the bounds of every expert at one point of discounts."""
    outer, inner, points, members, directions = [], [], [], [], []
    for number, (gamma, lam) in enumerate(zip(discounts, temperatures, strict=True)):
        run.progress(number / len(discounts), f"bounds: expert {number + 1} of {len(discounts)}")
        one = _OneExpert(rewards, task, float(gamma), float(lam))
        proved, attained = _one_expert(one)
        outer.append(proved)
        inner.append((attained.low, attained.high))
        members.append(attained.members())
        points.append(one.centre.policy)
        directions.append(one.n)
    low, high = (np.array([pair[side] for pair in outer]) for side in (0, 1))
    attained_low, attained_high = (np.array([pair[side] for pair in inner]) for side in (0, 1))
    # A bound that a member of the set leaves by more than rounding is no bound.
    if (attained_low < low - 1e-6).any() or (attained_high > high + 1e-6).any():
        raise AssertionError("a member of the set lies outside of its proved bounds; please report this problem")
    low = np.minimum(low, attained_low)
    high = np.maximum(high, attained_high)
    status = []
    certain = np.ones(len(discounts), dtype=np.bool_)
    for k in range(len(discounts)):
        word = _status(low[k], high[k])
        if word == "not bounded" and _status(attained_low[k], attained_high[k], 1e-3) != word:
            # Nothing is proved, but the search did not find everything possible either.
            word, certain[k], low[k], high[k] = "bounded", False, attained_low[k], attained_high[k]
        status.append(word)
    remarks = []
    open_ = low + ROUNDED < high
    vacuous = int(((low <= ROUNDED) & (high >= 1 - ROUNDED)).sum())
    if vacuous and "bounded" in status:
        remarks.append(f"Of {int(open_.sum())} probabilities that the set leaves open, {vacuous} are not bounded.")
    reward = rewards.origin + rewards.basis @ rewards.centre
    return Bounds(
        low,
        high,
        attained_low,
        attained_high,
        tuple(status),
        certain,
        np.array(points),
        tuple(members),
        tuple(np.full(len(policies), gamma) for policies, gamma in zip(members, discounts, strict=True)),
        reward,
        tuple(directions),
        tuple(remarks),
    )


def _one_expert(one: _OneExpert) -> tuple[tuple[Floats, Floats], _Attained]:
    """Return what is proved and what is attained of one expert's choices."""
    centre = one.centre.policy
    if not one.n:
        return (centre, centre), _Attained(one.centre, 0)
    starts: list[Floats] = []
    low, high = one.over_all(starts)
    attained = one.attained(starts, (low, high))
    if one.n <= 3:
        sides = [one.farthest(sign * axis)[0] for axis in np.eye(one.n) for sign in (-1.0, 1.0)]
        box = np.array(sides).reshape(one.n, 2) * [-1.0, 1.0]
        if np.isfinite(box).all():
            pad = 1e-8 * (1.0 + np.abs(box).max(axis=1))
            first, last = one.over_boxes(box[:, 0] - pad, box[:, 1] + pad, attained)
            low = np.maximum(low, first)
            high = np.minimum(high, last)
    # Plans have nine digits or more.
    pad = np.where(one.chosen, 1e-8, 0.0)
    return ((low - pad).clip(0.0, 1.0), (high + pad).clip(0.0, 1.0)), attained


# Discounts that are a set.


def discount_members(
    problem: Problem,
    temperature: PolicyTemperature = 1.0,
    known: Mapping[str, float] | None = None,
    restrictions: tuple[Floats, Floats] | None = None,
    tolerance: float = 1e-8,
) -> tuple[Floats, Floats]:
    """Return discounts and temperatures `(M,K)` that explain the experts equally well, spread over the set that `identify` calls
    "set".

    Every member solves the experts' equations, and some reward of it meets the restrictions. Neighbours along the discount that
    varies most are taken, and the widest gap between them is halved, until about 41 of them are spread evenly, and the ends
    of what meets the restrictions are found. Where `identify` says "unique" there is one.

    Raises:
        ContradictionError: where no member that was found meets the restrictions.
    """
    count = 41
    lam = read_temperature(temperature)
    ordered = in_order_of_content(problem)
    values = np.array([(known or {}).get(name, np.nan) for name in ordered.names], dtype=np.float64)
    equations = joint_equations(ordered, lam, tolerance, values)
    conclusion = judge(equations)
    points = [_SetMember.of(p, restrictions) for p in (conclusion.point, *conclusion.others)]
    members = [p for p in points if p is not None]
    for tried in range(10 * count):
        axis = int(np.argmax(np.ptp([p.point.discounts for p in members], axis=0))) if members else 0
        members.sort(key=lambda p: float(p.point.discounts[axis]))
        inside = [p.point.discounts for p in members if p.meets]
        spacing = float(np.ptp(inside, axis=0).max()) / (count - 1) if len(inside) > 1 else 0.0
        gaps = []
        for a, b in pairwise(members):
            gap = float(np.abs(b.point.discounts - a.point.discounts).max())
            if a.meets != b.meets:  # the end of what meets the restrictions is found to six digits
                gaps.append(1.0 + gap if gap > 1e-6 else 0.0)
            else:
                gaps.append(gap if gap > max(spacing, 1e-6) and (a.meets or not inside) else 0.0)
        if not any(gaps) or len(inside) >= 2 * count or (not inside and tried >= count):
            break
        widest = int(np.argmax(gaps))
        ends = members[widest].point.discounts, members[widest + 1].point.discounts
        between = _SetMember.of(minimise(equations, (ends[0] + ends[1]) / 2), restrictions)
        apart = float(np.abs(ends[1] - ends[0]).max())
        if between is None or min(float(np.abs(between.point.discounts - end).max()) for end in ends) < 0.1 * apart:
            break
        members.append(between)
    place = [ordered.names.index(name) for name in problem.names]
    kept = [p.point for p in members if p.meets]
    if not kept:
        if restrictions is None or not members:
            raise ValueError("no discounts explain these experts exactly, so there is no set of them to follow")
        said = contradiction(ordered, members[0].point.discounts, members[0].point.temperature, restrictions)
        raise ContradictionError(f"{said} (nor has any of {len(members)} other discounts that explain them such a reward)")
    discounts = np.array([p.discounts[place] for p in kept])
    temperatures = np.array([p.temperature[place] for p in kept])
    return discounts, temperatures / temperatures[:, :1] if lam is None else temperatures


@dataclass(frozen=True, eq=False)
class _SetMember:
    """A point of the set of discounts, and whether a reward at it meets the restrictions."""

    point: Explanation
    meets: bool

    @staticmethod
    def of(point: Explanation, restrictions: tuple[Floats, Floats] | None) -> _SetMember | None:
        """Return the member; None for a point that does not solve the equations."""
        if point.gap > max(point.rounding, 1e-9 * point.size) or not (point.temperature > 0).all():
            return None
        reached = True
        if restrictions is not None and len(restrictions[0]):
            reached = RewardSet.of(point.equations.problem, point.discounts, point.temperature, restrictions) is not None
        return _SetMember(point, reached)
