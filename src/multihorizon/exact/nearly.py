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
none: there `(N − γ P_π N) z` is again any combination of them, for every γ < 1, and takes an unknown of its own. Constants in a task
that never ends are such directions. Where they are the only ones, the whole problem is a linear program, and its answer is exact.

*Features.* With `W = γ V` as an unknown of its own, expert i's equations `F θ_k + T W − V = λ log π` are linear, and so are all
their solutions: `(θ_k, V, W) = p + B y`. What remains is `W = γ V`, in which the products are those of γ with the coordinates z of
y that V depends on. In a task that never ends a constant may be added to V, which adds any constant to `W − γ V`.

*Proof.* On a box `l ≤ γ ≤ h`, `a ≤ z ≤ b` each product is replaced by its convex hull (McCormick):

    ω ≥ l z + a γ − l a,    ω ≥ h z + b γ − h b,    ω ≤ h z + a γ − h a,    ω ≤ l z + b γ − l b.

The end of a discount over what is left is a linear program, and a bound of the true one. Rows with an infinite a or b say nothing and
are left out; on z ≥ 0 the others still say that ω/z lies in [l, h], so discounts are bounded even where z is not. First the programs
shrink the ranges of all γ and z. Then boxes are halved, that with the farthest bound first, until what is proved is within
0.001 of what is attained, or there have been too many of them: then the bound is what it is, and `settled` says so. Where z runs to
infinity the bounds are those of the closure of the set.

*Search.* With z fixed everything is linear: a program gives the best discounts. So from a point of the set, a program on a small box
around it proposes another z, and the program at this z returns to the set. Boxes whose own optimum is nearly a member start it
again.

*Rounding.* Policies may be wrong by `tolerance`, as everywhere in `identify`: rows may be violated by five times what such errors
explain. The tolerances of the linear programs are below that, so an explanation is not lost to rounding.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Sparse
from multihorizon.exact.equations import PolicyEquations, has_features, read_equations, reward_families
from multihorizon.numerics.lp import INFINITY, LinearProgram, LPResult, solve_lp
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Expert, Problem

#: Rows may be violated by this many times what the assumed errors explain.
MISFIT = 5.0
#: Ends of ranges are settled when what is proved is this near to what is attained.
GAP = 1e-3


@dataclass(frozen=True, eq=False)
class Piece:
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
        """How many entries z has."""
        return self.z_columns.shape[1]


def state_pieces(problem: Problem, policies: Sequence[PolicyEquations], temperatures: Floats, tolerance: float) -> list[Piece]:
    """The equations of a reward of one number per state."""
    pieces = []
    for family in reward_families(problem, policies, tolerance):
        lam = float(temperatures[family.owner])
        if family.coefficients is not None or sp.issparse(family.basis):
            raise ValueError(_TOO_LARGE.format(f"{family.basis.shape[1]:,} open directions for each expert"))
        basis, pushed = np.asarray(family.basis), np.asarray(family.pushed)
        free, z_columns, product_columns = split_directions(basis, pushed)
        rows = np.arange(family.u.size)
        sizes = (np.sqrt((errors**2).mean(axis=1)) for errors in (family.error_u, family.error_v))
        pieces.append(
            Piece(
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


_TOO_LARGE = "within is computed for problems with few open directions, received {}: give features, or join states"


def _slack(errors: Floats, size: float) -> Floats:
    """How far rows may be violated: what errors of the policies do, and more than the tolerance of a linear program."""
    return MISFIT * errors + 1e-8 * max(1.0, float(size)) / 10


def split_directions(basis: Floats, pushed: Floats) -> tuple[Floats, Floats, Floats]:
    """The columns of c, of z and of ω in `N z − γ P N z`, with as few products as possible.

    Directions that P keeps within their span come first: with `P N = N B + R` and R outside of the span of N, they are the null space of
    `R, R B, R B², …`. Of the others only those need products that P does not send to 0, or into the span of the first.
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
    """Orthonormal columns that span the null space of a matrix, and the rest of its domain."""
    _, values, right = np.linalg.svd(matrix, full_matrices=True)
    rank = int((values > 1e-9).sum())
    return right[rank:].T, right[:rank].T


def feature_pieces(problem: Problem, policies: Sequence[PolicyEquations], temperatures: Floats, tolerance: float) -> list[Piece]:
    """The equations of a reward made of features."""
    pieces = []
    for expert, policy, owner in zip(problem.experts, policies, problem.owner, strict=True):
        pieces.append(_feature_piece(expert, policy, owner, float(temperatures[owner]), tolerance))
    return pieces


def _feature_piece(expert: Expert, policy: PolicyEquations, owner: int, lam: float, tolerance: float) -> Piece:
    mdp = expert.mdp
    actions, states = np.nonzero(mdp.live.T)
    chosen = actions * mdp.n_states + states
    goes_on, entered = np.flatnonzero(~mdp.terminal), np.flatnonzero(~mdp.terminal & mdp.entered)
    features = sp.csr_array(expert.feature_matrix)[chosen].toarray()
    d, rows = features.shape[1], np.arange(states.size)
    width = d + entered.size + goes_on.size
    if width > 2000:
        raise ValueError(_TOO_LARGE.format(f"{width:,} unknowns for each expert"))
    own = np.zeros((rows.size, goes_on.size))
    own[rows, np.searchsorted(goes_on, states)] = 1.0
    following = mdp.stacked[chosen][:, entered].toarray()
    matrix = np.hstack([features, following, -own])
    left, values, right = np.linalg.svd(matrix, full_matrices=True)
    rank = int((values > 1e-10 * values.max(initial=1e-300)).sum())
    inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    logs = lam * policy.log_policy[states, actions]
    solution, null = inverse @ logs, right[rank:].T
    misfit = float(np.linalg.norm(matrix @ solution - logs)) / np.sqrt(max(rows.size, 1)) / (lam * max(tolerance, 1e-12))
    shift = np.concatenate([np.zeros(d), np.ones(entered.size + goes_on.size)])
    constant = np.abs(matrix @ shift).max(initial=0.0) <= 1e-12  # no move ends an episode
    if constant:
        shift /= np.linalg.norm(shift)
        left, values, _ = np.linalg.svd(null - np.outer(shift, shift @ null), full_matrices=False)
        null = left[:, values > 0.5]
    now, ahead = d + entered.size + np.searchsorted(goes_on, entered), slice(d, d + entered.size)
    _, values, turned = np.linalg.svd(null[now], full_matrices=True)
    rank = int((values > 1e-10).sum())
    z, others = null @ turned[:rank].T, null @ turned[rank:].T
    sizes = lam * tolerance * np.linalg.norm(inverse, axis=1)
    free = np.vstack([others[:d], others[ahead]])
    if constant:
        free = np.column_stack([free, np.concatenate([np.zeros(d), np.ones(entered.size)])])
    return Piece(
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


class Box(NamedTuple):
    """Ranges of the discounts `(K,)` and of all z `(m,)`, one after the other."""

    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Point:
    """A solution of a relaxed program: the `distance` ε, the discounts, all z, and how far each product is from `γ z`."""

    value: float
    distance: float
    where: Floats
    error: Floats
    basis: Any = None


@dataclass(eq=False)
class Relaxation:
    """The linear programs on boxes.

    Their unknowns are `ε | Γ | z | ω | c | θ | f δ_1 … f δ_K`, f the sizes of the features; branched on are Γ and z.
    """

    pieces: Sequence[Piece]
    sizes: Floats
    n_experts: int
    largest: float = INFINITY
    _basis: Any = field(default=None, init=False)
    solved: int = field(default=0, init=False)

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
            own = first_theta + (1 + piece.owner) * d
            block[:, own : own + d] = -(piece.reward @ sp.diags_array(1 / self.sizes))
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
        self._matrix = sp.csr_array(sp.vstack(rows, format="csr"))
        beyond = np.full(2 * deviations.size, INFINITY)
        centre, spread = np.concatenate(right), np.concatenate(slack)
        self._row_lower = np.concatenate([centre - spread, -beyond])
        self._row_upper = np.concatenate([centre + spread, 0 * each, 0 * each])
        # Where z counts as large: the projective coordinate z/(scale + |z|) measures ranges that may be infinite.
        self.scale = max(1.0, max((float(np.abs(piece.constant).max(initial=0.0)) for piece in self.pieces), default=1.0))

    def solve(self, costs: dict[int, float], box: Box) -> Point | None:
        """The smallest `costs · (ε, Γ, z)` on a box with relaxed products; None if nothing is in it."""
        K, m = self.n_experts, self.m
        gamma_low, gamma_high = box.low[self.owners], box.high[self.owners]
        a, b = box.low[K:], box.high[K:]
        each = np.arange(m)
        rows, lower, upper = [self._matrix], [self._row_lower], [self._row_upper]
        for end, other_z, sign in ((gamma_low, a, 1.0), (gamma_high, b, 1.0), (gamma_high, a, -1.0), (gamma_low, b, -1.0)):
            # sign (ω − end z − other γ) ≥ −sign end other
            said = np.isfinite(other_z) | (gamma_low == gamma_high)  # at one discount the rows say ω = γ z, whatever a and b are
            finite = np.where(np.isfinite(other_z), other_z, 0.0)
            values = sign * np.concatenate([said * 1.0, -end * said, -finite])
            columns = np.concatenate([1 + K + m + each, 1 + K + each, 1 + self.owners])
            rows.append(sp.csr_array((values, (np.tile(each, 3), columns)), (m, self.width)))
            lower.append(np.where(said, -sign * end * finite, -INFINITY))
            upper.append(np.full(m, INFINITY))
        low, high = np.full(self.width, -INFINITY), np.full(self.width, INFINITY)
        low[0], high[0] = 0.0, self.largest
        low[1 : 1 + K + m], high[1 : 1 + K + m] = box.low, box.high
        goal = np.zeros(self.width)
        for column, cost in costs.items():
            goal[column] = -cost
        matrix = sp.csr_array(sp.vstack(rows, format="csr"))
        program = LinearProgram(goal, matrix, np.concatenate(lower), np.concatenate(upper), low, high)
        result = solve_lp(program, self._basis, ray=False)
        self.solved += 1
        return self._read(result)

    def _read(self, result: LPResult) -> Point | None:
        K, m = self.n_experts, self.m
        if not result.optimal:
            if str(result.status) == "infeasible":
                return None
            return Point(-INFINITY, np.nan, np.full(K + m, np.nan), np.full(m, INFINITY))
        self._basis = result.basis
        x = result.values
        where = x[1 : 1 + K + m]
        error = x[1 + K + m : 1 + K + 2 * m] - where[self.owners] * where[K:]
        return Point(-result.objective, float(x[0]), where, error)


class End(NamedTuple):
    """The smallest value of something: `proved` is at most it, `attained` at least it (infinite if nothing was found)."""

    proved: float
    attained: float
    point: Point | None
    settled: bool
    boxes: int


class Search:
    """Branch and bound with one relaxation; `root` is the box that holds everything."""

    def __init__(self, relaxation: Relaxation, root: Box) -> None:
        self.relaxation, self.root = relaxation, root

    def shrink(self, rounds: int) -> bool:
        """Shrink the root by two programs for each unknown, a few times; False if it is empty."""
        relaxation = self.relaxation
        for _ in range(rounds if relaxation.m else 1):
            before = self._widths(self.root)
            for column in range(self.root.low.size):
                for sign, end in ((1.0, self.root.low), (-1.0, self.root.high)):
                    found = relaxation.solve({1 + column: sign}, self.root)
                    if found is None:
                        return False
                    value = sign * found.value
                    slack = 1e-7 * max(1.0, abs(value)) if np.isfinite(value) else 0.0
                    end[column] = max(end[column], value - slack) if sign > 0 else min(end[column], value + slack)
            if (self._widths(self.root) > 0.9 * before).all():
                break
        return True

    def _widths(self, box: Box) -> Floats:
        """How wide a box is in each unknown; z in projective coordinates."""
        K = self.relaxation.n_experts
        width = box.high - box.low
        width[K:] = self._shown(box.high[K:]) - self._shown(box.low[K:])
        return width

    def _shown(self, z: Floats) -> Floats:
        """Projective coordinates in [−1, 1]."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(z), np.sign(z), z / (self.relaxation.scale + np.abs(z)))

    def _back(self, shown: Floats) -> Floats:
        """z of projective coordinates."""
        with np.errstate(divide="ignore"):
            return self.relaxation.scale * shown / (1 - np.abs(shown))

    def best(self, costs: dict[int, float], start: Floats | None, gap: Any, most_boxes: int, enough: float = -INFINITY) -> End:
        """The smallest costs over the root, from a member `start` if one is known.

        `gap` gives the gap that is small enough at a value.
        """
        relaxation, number = self.relaxation, itertools.count()
        root = relaxation.solve(costs, self.root)
        if root is None:
            return End(INFINITY, INFINITY, None, True, 1)
        best: Point | None = None
        if start is not None:
            best = self._climb(costs, start)
        best = self._better(costs, root, best)
        heap = [(root.value, next(number), self.root, root)]
        done, boxes = INFINITY, 1
        while heap:
            attained = INFINITY if best is None else best.value
            value = heap[0][0]
            if value >= attained - gap(attained) or attained <= enough or boxes >= most_boxes:
                break
            _, _, box, point = heapq.heappop(heap)
            for half in self._halves(box, point):
                found = relaxation.solve(costs, half)
                boxes += 1
                if found is None:
                    continue
                value = max(found.value, point.value)
                best = self._better(costs, found, best)
                if best is not None and value >= best.value - gap(best.value):
                    done = min(done, value)
                else:
                    heapq.heappush(heap, (value, next(number), half, found))
        attained = INFINITY if best is None else best.value
        proved = min([done, attained, *(item[0] for item in heap[:1])])
        settled = proved >= attained - gap(attained) if attained < INFINITY else proved == INFINITY
        return End(proved, attained, best, bool(settled), boxes)

    def _better(self, costs: dict[int, float], found: Point, best: Point | None) -> Point | None:
        """The best member known, after trying to make one of a relaxed solution."""
        if not np.isfinite(found.where).all() or (best is not None and found.value >= best.value - 1e-6):
            return best
        if np.abs(found.error).max(initial=0.0) <= 1e-9:
            return found
        member = self._member(costs, found.where)
        if member is not None and (best is None or member.value < best.value - 1e-6):
            return self._climb(costs, member.where)
        return best

    def _member(self, costs: dict[int, float], where: Floats) -> Point | None:
        """The best point of the set with these z; else that with these discounts."""
        K = self.relaxation.n_experts
        low, high = self.root.low.copy(), self.root.high.copy()
        low[K:] = high[K:] = np.clip(where[K:], low[K:], high[K:])
        found = self.relaxation.solve(costs, Box(low, high))
        if found is None or not np.isfinite(found.value):
            low, high = self.root.low.copy(), self.root.high.copy()
            low[:K] = high[:K] = np.clip(where[:K], low[:K], high[:K])
            found = self.relaxation.solve(costs, Box(low, high))
        return found if found is not None and np.isfinite(found.value) else None

    def _climb(self, costs: dict[int, float], start: Floats) -> Point | None:
        """The best point of the set near a point of it, by programs on small boxes."""
        K, here = self.relaxation.n_experts, self._member(costs, start)
        radius = 0.25
        while here is not None and self.relaxation.m and radius > 1e-4:
            shown = self._shown(here.where[K:])
            low = np.concatenate([here.where[:K] - radius, self._back(np.clip(shown - radius, -1, 1))])
            high = np.concatenate([here.where[:K] + radius, self._back(np.clip(shown + radius, -1, 1))])
            box = Box(np.maximum(low, self.root.low), np.minimum(high, self.root.high))
            box = Box(np.minimum(box.low, box.high), box.high)
            proposed = self.relaxation.solve(costs, box)
            there = None
            if proposed is not None and np.isfinite(proposed.where).all() and proposed.value < here.value - 1e-6:
                there = self._member(costs, proposed.where)
            if there is not None and there.value < here.value - 1e-6:
                here = there
            else:
                radius /= 4
        return here

    def _halves(self, box: Box, point: Point) -> Iterator[Box]:
        """Two halves, along the unknown that is widest among those of the product farthest from exact."""
        K, widths = self.relaxation.n_experts, self._widths(box)
        share = widths / np.maximum(self._widths(self.root), 1e-12)
        error = np.abs(point.error)
        if np.isfinite(error).all():
            worst = int(np.argmax(error / (self.relaxation.scale + np.abs(point.where[K:]))))
        else:
            worst = int(np.argmax(widths[K:]))
        gamma, z = int(self.relaxation.owners[worst]), K + worst
        column = gamma if share[gamma] >= share[z] else z
        ends = np.array([box.low[column], box.high[column]])
        at = point.where[column]
        if column >= K:
            ends, at = self._shown(ends), float(self._shown(np.array(at)))
        # Near the relaxed solution, which both halves then exclude, but away from the ends.
        margin = 0.2 * (ends[1] - ends[0])
        cut = np.clip(at if np.isfinite(at) else ends.mean(), ends[0] + margin, ends[1] - margin)
        cut = float(self._back(np.array(cut))) if column >= K else float(cut)
        for side in range(2):
            low, high = box.low.copy(), box.high.copy()
            (high if side == 0 else low)[column] = cut
            yield Box(low, high)
