"""What policies say about the discounts where the experts' rewards are only nearly the same.

Expert k is soft-optimal at a known temperature λ_k for a reward of their own, `θ_k = θ + δ_k`, and no entry of δ_k is larger than
ε, where an entry of a feature's weight counts in units of one over the feature's largest value. Which discounts can explain the
experts then? Their set has no closed form. This module gives three things about it:

* the **smallest ε** at which it is not empty;
* **attained** ends: each discount's smallest and largest value among explanations that a search found;
* **proved** ends: outside of these no explanation exists. The true ends lie between the two.

*What is linear.* In the symbols of `equations`, expert i, whose discount is γ_k, allows the rewards

    θ_k = λ_k (û − γ_k V̂) + N z − γ_k P_π N z.

Only the products `ω = γ_k z` are not linear in the unknowns (θ, δ, Γ, z). Directions of N that P_π keeps within their span need
none: there `(N − γ P_π N) z` is again any combination of them, for every γ < 1, and takes an unknown of its own. Constants in a
task that never ends are such directions. Where there are no others, the whole problem is a linear program.

*Features.* With `W = γ V` as an unknown of its own, expert i's equations `F θ_k + T W − V = λ log π` are linear, and so are all
their solutions: `(θ_k, V, W) = p + B y`. What remains is `W = γ V`, in which the products are those of γ with the coordinates z
of y that V depends on. In a task that never ends a constant may be added to V, which adds any constant to `W − γ V`.

*Proof.* On a box `l ≤ γ ≤ h`, `a ≤ z ≤ b` each product is replaced by its convex hull (McCormick):

    ω ≥ l z + a γ − l a,    ω ≥ h z + b γ − h b,    ω ≤ h z + a γ − h a,    ω ≤ l z + b γ − l b.

The end of a discount over what is left is a linear program, and a bound of the true one. Rows with an infinite a or b are left
out; on z ≥ 0 the others still say that ω/z lies in [l, h], so discounts are bounded even where z is not. First, programs shrink
the ranges of all γ and z, and bound the differences of the z of different experts, which are often bounded where z is not. Then
boxes are halved, that with the farthest bound first, until what is proved is within 0.001 of what is attained, or there have been
500 of them: then the bound is what it is, and `settled` says so. Where z runs to infinity the bounds are those of the closure of
the set: discounts that come close to each other with rewards that grow beyond all limits.

*Search.* With z fixed everything is linear: a program gives the best discounts. So from a point of the set, a program on a small
box around it proposes another z, and the program at this z returns to the set. Boxes whose own optimum is nearly a member start
it again. So do the explanations with one shared reward that `identify` found, if there are any.

*Rounding.* Policies may be wrong by `tolerance`, as everywhere in `identify`: rows may be violated by five times what such errors
explain. The tolerances of the linear programs are below that, so an explanation is not lost to rounding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Sparse, as_non_negative
from multihorizon.exact.equations import (
    MISFIT,
    PolicyEquations,
    has_features,
    in_order_of_content,
    read_equations,
    reward_families,
)
from multihorizon.mdp import refuse_durations
from multihorizon.numerics.lp import INFINITY, LinearProgram, LPResult, LPStatus, branch_and_bound, solve_lp
from multihorizon.problem import Expert, Problem
from multihorizon.words import decimals, significant

#: Ends of ranges are settled when what is proved is this near to what is attained.
GAP = 1e-3


def _too_large(what: str) -> ValueError:
    return ValueError(f"within is computed for problems with few open directions, got {what}: give features, or join states")


@dataclass(frozen=True, eq=False)
class OwnEquations:
    """One expert's equations in one task: `constant + slope γ + free c + z_columns z + product_columns ω = reward (θ + δ)`.

    They hold up to `slack`, and `ω = γ z`.
    """

    owner: int
    constant: Floats
    slope: Floats
    free: Floats
    z_columns: Floats
    product_columns: Floats
    reward: Sparse
    slack: Floats
    misfit: float

    @property
    def n_products(self) -> int:
        """Return the number of entries of z."""
        return len(self.z_columns.T)


def state_pieces(
    problem: Problem, policies: Sequence[PolicyEquations], temperatures: Floats, tolerance: float
) -> list[OwnEquations]:
    """Build the equations of a reward of one number per state."""
    pieces = []
    refuse_durations(problem.mdps, "equations that are linear in the discounts")
    for family in reward_families(problem, policies, tolerance):
        lam = float(temperatures[family.owner])
        if family.coefficients is not None or sp.issparse(family.basis):
            raise _too_large(f"{family.basis.shape[1]:,} open directions for each expert")
        basis, pushed = np.asarray(family.basis), np.asarray(family.pushed)
        free, z_columns, product_columns = split_directions(basis, pushed)
        rows = np.arange(family.u.size)
        sizes = (np.sqrt((errors**2).mean(axis=1)) for errors in (family.error_u, family.error_v))
        pieces.append(
            OwnEquations(
                owner=family.owner,
                constant=lam * family.u,
                slope=-lam * family.v,
                free=free,
                z_columns=z_columns,
                product_columns=product_columns,
                reward=sp.csr_array((np.ones(rows.size), (rows, family.parameters)), (rows.size, problem.n_parameters)),
                slack=_slack(lam * sum(sizes), lam * np.abs(np.append(family.u, family.v)).max()),
                misfit=family.misfit / max(family.error, 1e-12),
            )
        )
    return pieces


def _slack(errors: Floats, size: float) -> Floats:
    """Return how far rows may be violated: by errors of the policies, and by more than the tolerance of a linear program."""
    return MISFIT * errors + 1e-8 * max(1.0, float(size)) / 10


def split_directions(basis: Floats, pushed: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the columns of c, of z and of ω in `N z − γ P N z`, with as few products as possible.

    Directions that P keeps within their span come first: with `P N = N B + R` and R outside of the span of N, they are the null
    space of `R, R B, R B², …`. Of the others only those need products that P does not send to 0, or into the span of the first.
    """
    n = basis.shape[1]
    moved = np.linalg.lstsq(basis, pushed, rcond=None)[0]
    seen = [pushed - basis @ moved]
    for _ in range(n - 1):
        seen.append(seen[-1] @ moved)
    kept, others = _null_and_rest(np.vstack(seen))
    free = basis @ kept
    span = np.linalg.qr(free)[0]
    product = pushed @ others
    product -= span @ (span.T @ product)
    without, with_ = _null_and_rest(product)
    return np.hstack([free, basis @ others @ without]), basis @ others @ with_, -product @ with_


def _null_and_rest(matrix: Floats) -> tuple[Floats, Floats]:
    """Return orthonormal columns that span the null space of a matrix, and the rest of its domain."""
    _, values, right = np.linalg.svd(matrix, full_matrices=True)
    rank = int((values > 1e-9).sum())
    # Coordinates stay as they are where all remain, so that experts of one task have the same.
    return right[rank:].T, right[:rank].T if rank < right.shape[0] else np.eye(rank)


def feature_pieces(
    problem: Problem, policies: Sequence[PolicyEquations], temperatures: Floats, tolerance: float
) -> list[OwnEquations]:
    """Build the equations of a reward made of features."""
    pieces = []
    for expert, policy, owner in zip(problem.experts, policies, problem.owner, strict=True):
        pieces.append(_feature_piece(expert, policy, owner, float(temperatures[owner]), tolerance))
    return pieces


def _feature_piece(expert: Expert, policy: PolicyEquations, owner: int, lam: float, tolerance: float) -> OwnEquations:
    mdp = expert.mdp
    actions, states = np.nonzero(mdp.live.T)
    chosen = actions * mdp.n_states + states
    goes_on = np.flatnonzero(~mdp.terminal)
    entered = np.flatnonzero(~mdp.terminal & mdp.entered)
    features = sp.csr_array(expert.feature_matrix)[chosen].toarray()
    d = features.shape[1]
    rows = np.arange(states.size)
    width = d + entered.size + goes_on.size
    if width > 2000:
        raise _too_large(f"{width:,} unknowns for each expert")
    here = np.zeros((rows.size, goes_on.size))
    here[rows, np.searchsorted(goes_on, states)] = 1.0
    following = mdp.stacked[chosen][:, entered].toarray()
    matrix = np.hstack([features, following, -here])
    left, values, right = np.linalg.svd(matrix, full_matrices=True)
    rank = int((values > 1e-10 * values.max(initial=1e-300)).sum())
    inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    logs = lam * policy.log_policy[states, actions]
    solution = inverse @ logs
    null = right[rank:].T
    misfit = float(np.linalg.norm(matrix @ solution - logs)) / np.sqrt(max(rows.size, 1)) / (lam * max(tolerance, 1e-12))
    shift = np.concatenate([np.zeros(d), np.ones(entered.size + goes_on.size)])
    constant = np.abs(matrix @ shift).max(initial=0.0) <= 1e-12  # no move ends an episode
    if constant:
        shift /= np.linalg.norm(shift)
        left, values, _ = np.linalg.svd(null - np.outer(shift, shift @ null), full_matrices=False)
        null = left[:, values > 0.5]
    now = d + entered.size + np.searchsorted(goes_on, entered)
    ahead = slice(d, d + entered.size)
    _, values, turned = np.linalg.svd(null[now], full_matrices=True)
    rank = int((values > 1e-10).sum())
    z = null @ turned[:rank].T
    others = null @ turned[rank:].T
    sizes = lam * tolerance * np.linalg.norm(inverse, axis=1)
    free = np.vstack([others[:d], others[ahead]])
    if constant:
        free = np.column_stack([free, np.concatenate([np.zeros(d), np.ones(entered.size)])])
    return OwnEquations(
        owner=owner,
        constant=np.concatenate([solution[:d], solution[ahead]]),
        slope=np.concatenate([np.zeros(d), -solution[now]]),
        free=free,
        z_columns=np.vstack([z[:d], z[ahead]]),
        product_columns=np.vstack([np.zeros((d, rank)), -z[now]]),
        reward=sp.csr_array(sp.vstack([sp.eye_array(d), sp.csr_array((entered.size, d))])),
        slack=_slack(np.concatenate([sizes[:d], sizes[ahead] + sizes[now]]), float(np.abs(solution).max(initial=0.0))),
        misfit=misfit,
    )


class Region(NamedTuple):
    """Ranges of the discounts `(K,)` and of all z `(m,)`, one after the other."""

    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A solution of a relaxed program: the `distance` ε, the discounts, all z, and how far each product is from `γ z`."""

    value: float
    distance: float
    where: Floats
    error: Floats


@dataclass(eq=False)
class RegionPrograms:
    """The linear programs on boxes.

    Their unknowns are `ε | Γ | z | ω | c | θ | f δ_1 … f δ_K`, f the sizes of the features; branched on are Γ and z.
    """

    pieces: Sequence[OwnEquations]
    sizes: Floats
    n_experts: int
    largest: float = INFINITY
    _basis: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        K, d = self.n_experts, self.sizes.size
        products = np.cumsum([0, *(piece.n_products for piece in self.pieces)])
        frees = np.cumsum([0, *(piece.free.shape[1] for piece in self.pieces)])
        self.m = m = int(products[-1])
        self.owners = np.repeat([piece.owner for piece in self.pieces], np.diff(products)).astype(int)
        first_c = 1 + K + 2 * m
        first_theta = first_c + int(frees[-1])
        self.width = first_theta + (1 + K) * d
        rows, right, slack = [], [], []
        for number, piece in enumerate(self.pieces):
            block = sp.lil_array((piece.constant.size, self.width))
            block[:, 1 + piece.owner] = piece.slope[:, None]
            block[:, 1 + K + products[number] : 1 + K + products[number + 1]] = piece.z_columns
            block[:, 1 + K + m + products[number] : 1 + K + m + products[number + 1]] = piece.product_columns
            block[:, first_c + frees[number] : first_c + frees[number + 1]] = piece.free
            block[:, first_theta : first_theta + d] = -piece.reward
            deviation = first_theta + (1 + piece.owner) * d
            block[:, deviation : deviation + d] = -(piece.reward @ sp.diags_array(1 / self.sizes))
            rows.append(sp.csr_array(block))
            right.append(-piece.constant)
            slack.append(piece.slack)
        # |f δ| ≤ ε
        deviations = np.arange(first_theta + d, self.width)
        each = np.arange(deviations.size)
        for sign in (1.0, -1.0):
            limit = sp.coo_array(
                (
                    np.concatenate([np.full(each.size, sign), np.full(each.size, -1.0)]),
                    (np.concatenate([each, each]), np.concatenate([deviations, np.zeros(each.size, dtype=int)])),
                ),
                (each.size, self.width),
            )
            rows.append(sp.csr_array(limit))
        # Four rows for each product, in γ, z and ω; their numbers depend on the box.
        each = np.arange(m)
        columns = np.stack([1 + self.owners, 1 + K + each, 1 + K + m + each], axis=1)
        places = np.repeat(np.arange(4 * m), 3), np.tile(columns.ravel(), 4)
        rows.append(sp.csr_array((np.ones(12 * m), places), (4 * m, self.width)))
        self._matrix = sp.csr_array(sp.vstack(rows, format="csr"))
        centre = np.concatenate(right)
        spread = np.concatenate(slack)
        limits = np.zeros(2 * deviations.size)
        self._row_lower = np.concatenate([centre - spread, limits - INFINITY, np.full(4 * m, -INFINITY)])
        self._row_upper = np.concatenate([centre + spread, limits, np.full(4 * m, INFINITY)])
        # Where z counts as large: the projective coordinate z/(scale + |z|) measures ranges that may be infinite.
        self.scale = max(1.0, *(float(np.abs(piece.constant).max(initial=0.0)) for piece in self.pieces))

    def solve(self, costs: Mapping[int, float], box: Region) -> Relaxed | None:
        """Minimise `costs · (ε, Γ, z)` on a box with relaxed products; None if nothing is in it."""
        K, m = self.n_experts, self.m
        gamma_low, gamma_high = box.low[self.owners], box.high[self.owners]
        a, b = box.low[K:], box.high[K:]
        matrix = self._matrix.copy()
        lower = self._row_lower.copy()
        sides = ((gamma_low, a, 1.0), (gamma_high, b, 1.0), (gamma_high, a, -1.0), (gamma_low, b, -1.0))
        for number, (gamma, z, sign) in enumerate(sides):  # sign (ω − gamma z − γ z_end) ≥ −sign gamma z_end
            # At one discount the rows are ω = γ z, whatever a and b are.
            finite = np.where(np.isfinite(z), z, 0.0)
            holds = np.isfinite(z) | (gamma_low == gamma_high)
            first = matrix.data.size - 3 * m * (4 - number)
            matrix.data[first : first + 3 * m] = sign * np.stack([-finite, -gamma, np.ones(m)], axis=1).ravel()
            lower[lower.size - m * (4 - number) :][:m] = np.where(holds, -sign * gamma * finite, -INFINITY)
        low = np.full(self.width, -INFINITY)
        high = np.full(self.width, INFINITY)
        low[0] = 0.0
        high[0] = self.largest
        low[1 : 1 + K + m], high[1 : 1 + K + m] = box
        goal = np.zeros(self.width)
        for column, cost in costs.items():
            goal[column] = -cost
        program = LinearProgram(goal, matrix, lower, self._row_upper, low, high)
        return self._read(solve_lp(program, self._basis, ray=False, max_steps=1000 + 5 * lower.size))

    def _read(self, result: LPResult) -> Relaxed | None:
        K, m = self.n_experts, self.m
        if result.status == LPStatus.INFEASIBLE:
            return None
        if not result.optimal:  # nothing is known of the box
            return Relaxed(-INFINITY, np.nan, np.full(K + m, np.nan), np.full(m, INFINITY))
        self._basis = result.basis
        x = result.values
        where = x[1 : 1 + K + m]
        error = x[1 + K + m : 1 + K + 2 * m] - where[self.owners] * where[K:]
        return Relaxed(-result.objective, float(x[0]), where, error)


@dataclass(frozen=True, eq=False)
class WithinDistance:
    """The discounts that explain the experts if their rewards differ from a shared one by at most a given distance.

    Attributes:
        distance: ε, in the units of reward in which the temperatures are the known ones.
        status: "explained", "infeasible" (proved), or "not settled" (no explanation was found, and none was excluded).
        smallest: two numbers between which the smallest distance lies that explains the experts: proved and attained. Infinite
            where no distance does, because a policy is not soft-optimal for any reward.
        closest: `(K,)`, discounts at the attained of them; NaN where there are none.
        attained: `(K,2)`, the smallest and the largest discount among the explanations found; NaN where there are none.
        proved: `(K,2)`, no explanation has a discount outside of this; NaN where nothing explains the experts.
        settled: `(K,2)`, whether attained and proved end are within 0.001 of each other.
        boxes: how many boxes were looked at.
    """

    distance: float
    status: str
    smallest: tuple[float, float]
    closest: Floats
    attained: Floats
    proved: Floats
    settled: Bools
    boxes: int

    @property
    def open(self) -> Bools:
        """Return the mask `(K,)` of discounts that may be anything from 0 to 1: explanations at both ends were found."""
        return np.asarray((self.attained[:, 0] <= GAP) & (self.attained[:, 1] >= 1 - GAP))

    def lines(self, names: Sequence[str]) -> list[str]:
        """Return the finding in plain words."""
        least, attained = self.smallest
        shown = significant(self.distance, 4)
        if least == INFINITY:
            return ["No distance between the experts' rewards explains them: a policy is not soft-optimal for any reward."]
        if attained <= least + max(1e-3 * attained, 1e-5):
            start = f"The smallest distance that explains the experts is {significant(attained, 4)}." if attained > 1e-5 else ""
        elif attained < INFINITY:
            between = f"{significant(least, 4)} and {significant(attained, 4)}"
            start = f"The smallest distance that explains the experts is between {between}."
        else:
            start = (
                f"The smallest distance that explains the experts is {significant(least, 4)} or more; no explanation was found."
            )
        if self.status == "infeasible":
            return [f"Rewards that differ by at most {shown} from a shared one do not explain the experts (proved).", start]
        head = f"If each expert's reward may differ by up to {shown} from a shared one:"
        lines = [head, *(f"  {name}: {self._range(k)}" for k, name in enumerate(names))]
        if not self.settled.all():
            lines.append("Where two ranges are given, the true end lies between them: the search ended before it was settled.")
        return [*lines, *([start] if start else [])]

    def _range(self, k: int) -> str:
        (low, high) = self.attained[k].tolist()
        (least, most) = self.proved[k].tolist()
        if self.open[k]:
            return "any discount from 0 to 1 (open)"
        outer = f"from {decimals(least, 3)} to {decimals(most, 3)}"
        if np.isnan(low):
            return f"none found, none possible outside {outer.removeprefix('from ')}"
        if self.settled[k].all():
            return (
                f"discount {outer} (proved)" if most - least > 2 * GAP else f"discount {decimals((low + high) / 2, 3)} (proved)"
            )
        return (
            f"discounts from {decimals(low, 3)} to {decimals(high, 3)} found, none possible outside {outer.removeprefix('from ')}"
        )


def discounts_within(
    problem: Problem,
    distance: float,
    temperatures: Floats,
    *,
    known: Floats | None = None,
    tolerance: float = 1e-8,
    starts: Sequence[Floats] = (),
    most_boxes: int = 500,
    as_features: bool = False,
) -> WithinDistance:
    """Find the discounts that explain the experts within a distance.

    Args:
        problem: experts given as policies without zero entries.
        distance: ε, the largest difference of an entry of a reward from the shared one.
        temperatures: `(K,)`, known.
        known: `(K,)`, discounts that are known, NaN elsewhere.
        tolerance: how large errors in the policies may be, as the standard deviation of log π.
        starts: discounts `(K,)` from which the search may begin.
        most_boxes: how many boxes each search may solve.
        as_features: treat the rewards of states as those of features, which is slower.

    Raises:
        ValueError: for demonstrations, and for problems that leave too many directions open.
    """
    as_non_negative(distance, "within")
    if any(expert.counts is not None for expert in problem.experts):
        raise ValueError(
            "within must be asked of experts given as policies, got demonstrations: "
            "use MaximumLikelihood(deviations=...) for decisions"
        )
    # The answer does not depend on the order of the experts: they are first sorted by what they do.
    ordered = in_order_of_content(problem)
    there = [problem.names.index(name) for name in ordered.names]
    held = np.full(problem.n_experts, np.nan) if known is None else known
    begin = [start[there] for start in starts]
    answer = _within(ordered, distance, temperatures[there], held[there], tolerance, begin, most_boxes, as_features)
    back = [ordered.names.index(name) for name in problem.names]
    rows = {name: getattr(answer, name)[back] for name in ("closest", "attained", "proved", "settled")}
    return replace(answer, **rows)


def _within(
    problem: Problem,
    distance: float,
    temperatures: Floats,
    held: Floats,
    tolerance: float,
    starts: Sequence[Floats],
    most_boxes: int,
    as_features: bool,
) -> WithinDistance:
    """Find the discounts within a distance for experts who are sorted by what they do."""
    refuse_durations(problem.mdps, "a set of discounts within a distance")
    K = problem.n_experts
    policies = [read_equations(expert) for expert in problem.experts]
    if as_features or has_features(problem):
        pieces = feature_pieces(problem, policies, temperatures, tolerance)
        sizes = problem.feature_sizes
    else:
        pieces = state_pieces(problem, policies, temperatures, tolerance)
        sizes = np.ones(problem.n_parameters)
    nothing = np.full((K, 2), np.nan)
    if max(piece.misfit for piece in pieces) > MISFIT:
        impossible = (INFINITY, INFINITY)
        return WithinDistance(distance, "infeasible", impossible, nothing[:, 0], nothing, nothing, np.ones((K, 2), np.bool_), 0)
    relaxation = RegionPrograms(pieces, sizes, K)
    infinite = np.full(relaxation.m, INFINITY)
    low, high = (np.where(np.isnan(held), end, held) for end in (0.0, 1.0))
    search = RangeSearch(relaxation, Region(np.concatenate([low, -infinite]), np.concatenate([high, infinite])), most_boxes)
    search.link()
    members = [point for point in map(search.at, starts) if point is not None]
    first = min(members, key=lambda point: point.distance, default=None)
    rounding = 1e-6 * relaxation.scale
    least = search.best(0, 1.0, first, lambda value: max(GAP * value, rounding))
    smallest = max(least.proved, 0.0) + 0.0, max(least.attained, 0.0) + 0.0
    closest = nothing[:, 0] if least.point is None else least.point.where[:K]
    members += [] if least.point is None else [least.point]
    # What rounding alone keeps apart is not apart.
    relaxation.largest = distance if not distance < least.attained <= distance + rounding else least.attained * (1 + 1e-6) + 1e-9
    members = [point for point in members if point.distance <= relaxation.largest]
    root = search.shrink(search.root, 5)
    infeasible = WithinDistance(
        distance, "infeasible", smallest, closest, nothing, nothing, np.ones((K, 2), np.bool_), least.boxes
    )
    if (root is None and not members) or smallest[0] > relaxation.largest:
        return infeasible
    search.root = root or search.root  # where a member is known, a box without any is rounding
    search.link()
    attained = nothing
    proved = nothing.copy()
    settled = np.ones((K, 2), np.bool_)
    boxes = least.boxes
    for k in range(K):
        for side, sign in enumerate((1.0, -1.0)):
            start = min(members, key=lambda point: sign * point.where[k], default=None)
            end = search.best(1 + k, sign, start, lambda _: GAP)
            if end.proved == INFINITY:
                return infeasible
            members += [] if end.point is None else [end.point]
            # Moved outwards by more than the rounding of a linear program.
            proved[k, side] = np.clip(sign * (end.proved - 1e-7), 0.0, 1.0) + 0.0 if np.isnan(held[k]) else held[k]
            settled[k, side] = end.settled
            boxes = boxes + end.boxes
    if members:
        discounts = np.clip([point.where[:K] for point in members], 0.0, 1.0) + 0.0
        attained = np.stack([discounts.min(axis=0), discounts.max(axis=0)], axis=1)
    status = "explained" if members else "not settled"
    return WithinDistance(distance, status, smallest, closest, attained, proved, settled, boxes)


class End(NamedTuple):
    """The smallest value of something: `proved` is at most it, `attained` at least it (infinite if no value was attained)."""

    proved: float
    attained: float
    point: Relaxed | None
    settled: bool
    boxes: int


class RangeSearch:
    """Branch and bound with one relaxation; `root` is the box that holds everything."""

    #: The largest projective coordinate of z that is still a number: z is 10,000 times as large as the equations' own numbers.
    _farthest = 1 - 1e-4

    def __init__(self, relaxation: RegionPrograms, root: Region, most_boxes: int) -> None:
        self.relaxation, self.root, self.most_boxes = relaxation, root, most_boxes
        self.links: list[tuple[int, int, float, float]] = []

    def shrink(self, box: Region, rounds: int = 1) -> Region | None:
        """Shrink a box by two programs for each unknown, a few times; None if it is empty."""
        relaxation = self.relaxation
        box = Region(box.low.copy(), box.high.copy())
        for _ in range(rounds if relaxation.m else 1):
            before = self._widths(box)
            for column in range(box.low.size):
                for sign, end in ((1.0, box.low), (-1.0, box.high)):
                    solution = relaxation.solve({1 + column: sign}, box)
                    if solution is None:
                        return None
                    value = sign * solution.value
                    slack = 1e-7 * max(1.0, abs(value)) if np.isfinite(value) else 0.0
                    end[column] = max(end[column], value - slack) if sign > 0 else min(end[column], value + slack)
            if (self._widths(box) > 0.9 * before).all():
                break
        return box

    def link(self) -> None:
        """Bound the differences of the z of different experts: they may be bounded even where z itself is not."""
        K = self.relaxation.n_experts
        counts = [piece.n_products for piece in self.relaxation.pieces]
        firsts = np.cumsum([0, *counts])[:-1] + K
        self.links = []
        for (a, n), (b, other) in itertools.pairwise(zip(firsts, counts, strict=True)):
            for i in range(n if n == other else 0):
                ends = []
                for sign in (1.0, -1.0):
                    solution = self.relaxation.solve({1 + b + i: sign, 1 + a + i: -sign}, self.root)
                    ends.append(-sign * INFINITY if solution is None else sign * solution.value)
                slack = 1e-7 * (1 + np.abs(ends[0]) + np.abs(ends[1]))
                if np.isfinite(ends).all():
                    self.links.append((a + i, b + i, ends[0] - slack, ends[1] + slack))

    def _linked(self, box: Region) -> Region:
        """Shrink a box to what the bounds on differences leave of it."""
        low, high = box
        for links in (self.links, self.links[::-1]):
            for i, j, least, most in links:
                low[j], high[j] = max(low[j], low[i] + least), min(high[j], high[i] + most)
                low[i], high[i] = max(low[i], low[j] - most), min(high[i], high[j] - least)
        return box

    def _widths(self, box: Region) -> Floats:
        """Return the width of a box in each unknown; z in projective coordinates."""
        K = self.relaxation.n_experts
        width = box.high - box.low
        width[K:] = self._shown(box.high[K:]) - self._shown(box.low[K:])
        return width

    def _shown(self, z: Any) -> Any:
        """Return projective coordinates in [−1, 1]."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(z), np.sign(z), z / (self.relaxation.scale + np.abs(z)))

    def _back(self, shown: Any) -> Any:
        """Return z of projective coordinates; infinite where it is larger than programs can hold beside ordinary numbers."""
        with np.errstate(divide="ignore"):
            z = self.relaxation.scale * shown / (1 - np.abs(shown))
        return np.where(np.abs(shown) < self._farthest, z, np.copysign(INFINITY, shown))

    def at(self, discounts: Floats) -> Relaxed | None:
        """Return the point with these discounts that needs the smallest distance; None where no rewards explain the experts."""
        K = self.relaxation.n_experts
        low = self.root.low.copy()
        high = self.root.high.copy()
        low[:K] = high[:K] = np.clip(discounts, low[:K], high[:K])
        return _solved(self.relaxation.solve({0: 1.0}, Region(low, high)))

    def best(self, column: int, sign: float, start: Relaxed | None, gap: Callable[[float], float]) -> End:
        """Minimise `sign` times an unknown (0 is ε, 1 + k is γ_k) over the root, from a member if one is known.

        `gap` returns the gap that is small enough at a value.
        """
        relaxation = self.relaxation
        costs = {column: sign}
        root = relaxation.solve(costs, self.root)
        if root is None and start is None:
            return End(INFINITY, INFINITY, None, True, 1)
        if root is None:  # a member is known, so this is rounding, and nothing is proved
            return End(-INFINITY, INFINITY, None, False, 1)
        best = self._better(costs, root, None if start is None else self._improve(costs, start))

        def attained() -> float:
            return INFINITY if best is None else best.value

        def halves(box: tuple[float, Region, Relaxed]) -> Iterator[tuple[float, Region, Relaxed] | None]:
            nonlocal best
            value, region, point = box
            limit = attained()
            for half in self._halves(region, point):
                if column and sign > 0:
                    half.high[column - 1] = min(half.high[column - 1], limit)
                elif column:
                    half.low[column - 1] = max(half.low[column - 1], -limit)
                relaxed = None if (half.low > half.high).any() else relaxation.solve(costs, self._linked(half))
                if relaxed is not None:
                    best = self._better(costs, relaxed, best)
                yield None if relaxed is None else (max(relaxed.value, value), half, relaxed)

        def enough() -> float:
            return gap(attained()) - attained()

        most = self.most_boxes - 1 if relaxation.m else 0
        left, made = branch_and_bound([(root.value, self.root, root)], lambda box: -box[0], halves, enough, most)
        proved = min([attained(), *(value for value, _, _ in left[:1])])
        return End(proved, attained(), best, bool(proved >= attained() - gap(attained())), 1 + made)

    def _better(self, costs: Mapping[int, float], relaxed: Relaxed, best: Relaxed | None) -> Relaxed | None:
        """Return the best member known, after trying to make one of a relaxed solution."""
        if _solved(relaxed) is None or (best is not None and relaxed.value >= best.value - 1e-6):
            return best
        if np.abs(relaxed.error).max(initial=0.0) <= 1e-9:
            return relaxed
        member = self._member(costs, relaxed.where)
        if member is not None and (best is None or member.value < best.value - 1e-6):
            return self._improve(costs, member) or member
        return best

    def _member(self, costs: Mapping[int, float], where: Floats) -> Relaxed | None:
        """Return the best point of the set with these z, or else with these discounts."""
        K = self.relaxation.n_experts
        for held in (slice(K, None), slice(K)):
            if np.abs(self._shown(where[K:])).max(initial=0.0) > self._farthest:
                continue
            low = self.root.low.copy()
            high = self.root.high.copy()
            low[held] = high[held] = np.clip(where[held], low[held], high[held])
            if (member := _solved(self.relaxation.solve(costs, Region(low, high)))) is not None:
                return member
        return None

    def _improve(self, costs: Mapping[int, float], start: Relaxed) -> Relaxed | None:
        """Return the best point of the set near a point of it, by programs on small boxes."""
        K = self.relaxation.n_experts
        here = self._member(costs, start.where)
        radius = 0.25
        for _ in range(40 if self.relaxation.m else 0):
            if here is None or radius < 1e-4:
                break
            shown = self._shown(here.where[K:])
            low = np.concatenate([here.where[:K] - radius, self._back(np.clip(shown - radius, -1, 1))])
            high = np.concatenate([here.where[:K] + radius, self._back(np.clip(shown + radius, -1, 1))])
            box = Region(np.clip(low, self.root.low, self.root.high), np.clip(high, self.root.low, self.root.high))
            proposed = _solved(self.relaxation.solve(costs, box))
            gain = 0.0 if proposed is None else here.value - proposed.value
            there = self._member(costs, proposed.where) if proposed is not None and gain > 1e-6 else None
            if there is not None and here.value - there.value > 0.1 * gain:
                here = there
            else:
                radius /= 4
        return here

    def _halves(self, box: Region, point: Relaxed) -> Iterator[Region]:
        """Yield two halves, cut along the unknown that is widest among those of the product farthest from exact."""
        K = self.relaxation.n_experts
        widths = self._widths(box)
        share = widths / np.maximum(self._widths(self.root), 1e-12)
        error = np.abs(point.error)
        if np.isfinite(error).all():
            worst = int(np.argmax(error / (self.relaxation.scale + np.abs(point.where[K:]))))
        else:
            worst = int(np.argmax(widths[K:]))
        gamma = int(self.relaxation.owners[worst])
        z = K + worst
        cut = INFINITY
        for column in (z, gamma) if share[z] > share[gamma] else (gamma,):
            ends = np.array([box.low[column], box.high[column]])
            at = point.where[column]
            if column == z:
                ends, at = self._shown(ends), self._shown(at)
            # Near the relaxed solution, which both halves then exclude, but away from the ends.
            margin = 0.2 * (ends[1] - ends[0])
            cut = float(np.clip(at if np.isfinite(at) else ends.mean(), ends[0] + margin, ends[1] - margin))
            cut = float(self._back(np.array(cut))) if column == z else cut
            if np.isfinite(cut):
                break
        for side in range(2):
            low = box.low.copy()
            high = box.high.copy()
            (high if side == 0 else low)[column] = cut
            yield Region(low, high)


def _solved(point: Relaxed | None) -> Relaxed | None:
    """Return a point if its program was solved, else None."""
    return point if point is not None and np.isfinite(point.value) else None
