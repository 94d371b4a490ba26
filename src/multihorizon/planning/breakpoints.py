"""Optimal actions as a function of the discount, with exact breakpoints.

For a fixed policy π the values are analytic in the discount: with `M = (I − cP)^{-1} P`,

    V(c + h) = Σ_n hⁿ Mⁿ V(c),      |tail after N| ≤ Σ_{n>N} (|h| ‖M‖)ⁿ ‖V(c)‖,      ‖M‖ = max_s (M 1)(s)   (M ≥ 0)

so the advantages `Q_π(s,a) − V_π(s)` are polynomials in h up to a remainder that is known. The sweep holds the policy that
is optimal just right of c, expands its advantages over a radius ½/‖M‖, and looks for the first point where one becomes
positive by bisecting boxes that a Taylor bound cannot clear, so no crossing between grid points is overlooked. At a crossing
the policy is improved in the order "first non-vanishing Taylor coefficient", which makes it optimal just right of the
crossing. Advantages that vanish to all orders are ties that hold throughout an interval.

Where some policy never ends, ‖M‖ → ∞ as c → 1. The sweep then stops at the largest solvable discount, 1 − 1e-7, and the last
interval holds up to there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import LARGEST_SOLVABLE_DISCOUNT, ROUNDING, TINY, Bools, Floats, Ints
from multihorizon.mdp import MDP, refuse_durations
from multihorizon.planning.linear import policy_resolvent
from multihorizon.planning.plan import one_hot

#: Taylor terms: at half the radius of convergence the remainder is below 2⁻⁴⁴ of the values.
ORDER = 44


class DiscountInterval(NamedTuple):
    """The optimal actions, bool `(S,A)`, between the discounts `low` and `high`."""

    low: float
    high: float
    optimal_actions: Bools


@dataclass(frozen=True)
class _Segment:
    """The advantages of one policy on [center, center + radius] as polynomials in (γ − center)/radius, row s·A + a.

    `noise`, one number per row, is the size of its rounding. It grows with the policy's values and with the row's own size.
    """

    center: float
    radius: float
    coefficients: Floats
    noise: Floats
    shape: tuple[int, int]

    @property
    def signs(self) -> Ints:
        """Sign of each advantage just right of the center, `(S,A)`: that of the first coefficient above the noise."""
        big = np.abs(self.coefficients) > self.noise[:, None]
        first = big.argmax(axis=1)
        signs: Ints = np.sign(self.coefficients[np.arange(first.size), first]).astype(np.int64) * big.any(axis=1)
        return signs.reshape(self.shape)


def discount_intervals(mdp: MDP, reward: ArrayLike) -> list[DiscountInterval]:
    """Return all optimal actions of `mdp` as a function of the discount factor over [0,1].

    The paper's Assumption 1 asks that experts lie in different intervals.

    Args:
        mdp: the decision process.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.

    Returns:
        Intervals `(low, high, optimal_actions)` in order, the first from 0 and the last to 1. At a breakpoint itself the
        actions of both neighbours are optimal. Breakpoints are exact to about 1e-12, and to 1e-9 in ill-conditioned cases.

    Example:
        >>> from multihorizon.domains import toy
        >>> [round(i.high, 3) for i in discount_intervals(toy().mdp, toy().reward)]
        [0.432, 0.876, 1.0]
    """
    refuse_durations([mdp], "discount_intervals")
    expected = np.where(mdp.available, mdp.expected_reward(reward), -np.inf)
    intervals: list[DiscountInterval] = []
    low = center = 0.0
    ties = None
    actions = expected.argmax(axis=1)
    while True:
        actions, segment = _improve(mdp, expected, actions, center)
        optimal = segment.signs == 0
        if ties is not None and (optimal != ties).any():
            intervals.append(DiscountInterval(low, center, ties))
            low = center
        ties = optimal
        crossing = _first_crossing(segment)
        if crossing is not None:
            center = _polish(mdp, expected, actions, segment, crossing)
        elif center + segment.radius >= 1 or center >= LARGEST_SOLVABLE_DISCOUNT:
            return [*intervals, DiscountInterval(low, 1.0, ties)]
        else:
            center += segment.radius


def first_departure(
    mdp: MDP, reward: ArrayLike, actions: Ints, sets: Bools, discount: float, direction: int, tolerance: float
) -> float:
    """Return the discount up to which a policy stays optimal, upward (`direction` 1) or downward (−1) from `discount`.

    The policy takes `actions` `(S,)`. The answer is the first discount beyond which an action is better than the chosen one by
    more than `tolerance`, or one of the other chosen actions `sets` `(S,A)` is not as good; 0 or 1 if there is none.
    """
    expected = np.where(mdp.available, mdp.expected_reward(reward), -np.inf)
    center = discount
    while True:
        segment = _expand(mdp, expected, actions, center, direction, tolerance, sets)
        if (segment.signs > 0).any():
            return center
        crossing = _first_crossing(segment)
        if crossing is not None:
            return center + direction * segment.radius * crossing[1]
        edge = center + direction * segment.radius
        if edge <= 0 or (direction > 0 and edge >= LARGEST_SOLVABLE_DISCOUNT):
            return 0.0 if direction < 0 else 1.0
        center = edge


def _improve(mdp: MDP, expected: Floats, actions: Ints, center: float) -> tuple[Ints, _Segment]:
    """Improve a policy in the order of discounts just right of `center`, until it is optimal there."""
    for _ in range(1000):  # a few are enough; so many would mean that rounding drives it in a circle
        segment = _expand(mdp, expected, actions, center)
        better = segment.signs > 0
        states = better.any(axis=1)
        if not states.any():
            return actions, segment
        nearby = segment.coefficients @ (1e-3 ** np.arange(ORDER + 1))
        gains = np.where(better, nearby.reshape(segment.shape), -np.inf)
        actions = np.where(states, gains.argmax(axis=1), actions)
    raise RuntimeError(f"policy iteration just above discount {center} did not settle; please report this MDP")


def _expand(
    mdp: MDP,
    expected: Floats,
    actions: Ints,
    center: float,
    direction: int = 1,
    tolerance: float = 0.0,
    sets: Bools | None = None,
) -> _Segment:
    """Expand the advantages of the policy `actions` in Taylor series, upward from the center or downward (`direction` −1).

    With `sets`, the negatives of the advantages of those actions follow as further rows: they must not become negative either.
    """
    resolvent = policy_resolvent(mdp, one_hot(actions, mdp.n_actions), center)
    matrix = resolvent.matrix
    norm = float(np.abs(resolvent.solve(matrix @ np.ones(mdp.n_states))).max())
    radius = min(0.5 / max(norm, TINY), 1.0 - center if direction > 0 else center)
    term = resolvent.solve(expected[np.arange(mdp.n_states), actions])
    ahead = mdp.expect(term)
    scale = float(np.abs(term).max())
    immediate = np.where(mdp.available, expected, 0.0)
    columns = [immediate + center * ahead - term[:, None]]
    for _ in range(ORDER):
        term = direction * radius * resolvent.solve(matrix @ term)
        behind = direction * radius * ahead
        ahead = mdp.expect(term)
        columns.append(center * ahead + behind - term[:, None])
    coefficients = np.stack(columns, axis=-1)
    coefficients[~mdp.available | mdp.terminal[:, None]] = 0.0
    coefficients[~mdp.available, 0] = -np.inf
    coefficients[np.arange(mdp.n_states), actions] = 0.0
    if sets is not None:
        mirrored = np.where((sets & mdp.available)[..., None], -coefficients, 0.0)
        coefficients = np.concatenate([coefficients, mirrored])
    rows = coefficients.reshape(-1, ORDER + 1)
    sizes = np.abs(np.where(np.isfinite(rows), rows, 0.0)).max(axis=1)
    noise = np.maximum(tolerance, ROUNDING * np.maximum(scale, sizes))
    return _Segment(center, radius, rows, noise, coefficients.shape[:2])


def _first_crossing(segment: _Segment) -> tuple[int, float, float] | None:
    """Find the first narrow box (row, start, end), relative to the segment, in which an advantage becomes positive."""
    live = np.flatnonzero((segment.signs.ravel() < 0) & np.isfinite(segment.coefficients[:, 0]))
    polynomials, noise = segment.coefficients[live], segment.noise[live]
    boxes = [(0.0, 1.0, np.arange(live.size))]
    degrees = np.arange(ORDER + 1)
    binomials = np.array([[comb(j, n) for n in degrees] for j in degrees], dtype=np.float64)
    powers = np.maximum(degrees[:, None] - degrees[None, :], 0)
    while boxes:
        low, high, rows = boxes.pop()
        middle = (low + high) / 2
        half = (high - low) / 2
        shifted = polynomials[rows] @ (binomials * np.where(binomials > 0, middle**powers, 0.0))
        bound = shifted[:, 0] + np.abs(shifted[:, 1:]) @ (half ** np.arange(1, ORDER + 1))
        open_rows = rows[bound > noise[rows]]
        if not open_rows.size:
            continue
        if high - low > 1e-9:
            boxes += [(middle, high, open_rows), (low, middle, open_rows)]
            continue
        ends = polynomials[open_rows] @ (high ** np.arange(ORDER + 1))
        over = ends - noise[open_rows]
        if (over > 0).any():
            return int(live[open_rows[over.argmax()]]), low, high
    return None


def _polish(mdp: MDP, expected: Floats, actions: Ints, segment: _Segment, crossing: tuple[int, float, float]) -> float:
    """Find the root of one advantage in a narrow box, on the exact function rather than its expansion."""
    from scipy.optimize import brentq  # noqa: PLC0415  it takes longer to import than a small fit takes

    row, low, high = crossing
    state, action = divmod(row, mdp.n_actions)
    policy = one_hot(actions, mdp.n_actions)
    immediate = expected[np.arange(mdp.n_states), actions]
    successors = mdp.stacked[[action * mdp.n_states + state]]

    def advantage(gamma: float) -> float:
        values = policy_resolvent(mdp, policy, gamma).solve(immediate)
        return float(expected[state, action] + gamma * (successors @ values)[0] - values[state])

    start = segment.center
    right = segment.center + segment.radius * high
    reach = segment.radius * (high - low)
    # The box starts where the advantage exceeds the noise, a little right of its root: reach back until it is negative.
    while advantage(left := max(right - reach, start)) >= 0:
        if left == start:
            return right
        reach *= 2
    return float(brentq(advantage, left, right, xtol=1e-15, rtol=1e-14)) if advantage(right) > 0 else right
