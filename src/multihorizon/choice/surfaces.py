"""Many people, one table of policies: log-likelihoods over how far a person looks ahead and how much at random they choose.

People of one task who share a reward θ differ only in `η = (x, log λ)`, where `γ = Γ/(1+exp(−x))` and Γ is the largest discount,
and their decisions enter the likelihood only through counts:

    ℓ_i(η) = Σ_sa N_i(s,a) log π_η(a|s).

So policies are planned at places that all people share, and people cost no planning at all. The plane of η is cut into
*patches*. In each, `λ log π` is planned at Chebyshev's places, m on each side, and between these it is the polynomial through
them. Interpolation is linear. With P the table `(rows,m²)` of a patch, and c(η) the weights of its places at η,

    ℓ_i(η) ≈ N_i P c(η) / λ,      ∂ℓ_i/∂θ ≈ N_i (∂P/∂θ) c(η) / λ:

one row of a sparse product for each person, whatever the number of η at which it is asked for. Derivatives in η are those of the
polynomials: with D the matrix that differentiates a polynomial on Chebyshev's places, `∂c/∂x = c D`.

*The error is measured.* Each patch is also planned at places between those of the table. Where table and plan disagree by more
than a person's likelihood allows, the patch is cut in two, across the direction in which the error is larger. Policies switch
within a small range of γ where temperatures are low; patches become small there, and only there.

Weights of the future that are not those of a discount, but have one parameter (`lookahead`), are planned in the same way. Then γ
is the family's coordinate.

Where x is beyond ±12 it counts as ±12, and log λ beyond ±20 as ±20: there policies do not change any more.

Where people have rewards of their own (`deviations`), log π and `ψ = ∂ log π/∂θ` are read row by row, and ψ moves with θ by the
second derivatives of values: `λ ∂ψ_j/∂θ_l = γ T V_jl − V_jl`, `V_jl = (I − γP)^{-1} λ Σ_a π ψ_j ψ_l`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.choice.plans import SOFT, Choosing, Features, Large, Persons, Plans, engine_for
from multihorizon.choice.weighted import WeightedPlans, steps_ahead, weighted_plans
from multihorizon.horizon import Depth, Lookahead
from multihorizon.parallel import require_memory
from multihorizon.problem import CountedTask

#: m, the places on each side of a patch.
SIDE = 10
#: Patches are made of cells of this size, the smallest of one cell and the first of so many along x and log λ.
CELL = 1 / 32
FIRST = (128, 64)
#: The plane that patches cover: |x| and |log λ| up to this.
REACH = np.array([12.0, 20.0])
#: Chebyshev's places on [−1,1] and the weights of the barycentric formula.
_PLACES = np.cos((2 * np.arange(SIDE) + 1) * np.pi / (2 * SIDE))
_WEIGHTS = (-1.0) ** np.arange(SIDE) * np.sin((2 * np.arange(SIDE) + 1) * np.pi / (2 * SIDE))
#: Where tables are compared with plans: three places off the table along x alone, three along log λ alone, three along both.
_OFF = np.cos(np.array([0, 3, 7]) * np.pi / SIDE)
_TESTS = np.array(
    [
        *zip(_OFF, _PLACES[[1, 5, 8]], strict=True),
        *zip(_PLACES[[5, 8, 1]], _OFF, strict=True),
        *zip(_OFF, _OFF[[2, 0, 1]], strict=True),
    ]
)
#: The places of a table in [−1,1]², x before log λ.
_GRID = np.array([(a, b) for a in _PLACES for b in _PLACES])


@cache
def _differentiation() -> Floats:
    """Return D `(m,m)`: from a polynomial's values at Chebyshev's places to those of its derivative."""
    gaps = _PLACES[:, None] - _PLACES + np.eye(SIDE)
    matrix: Floats = _WEIGHTS / _WEIGHTS[:, None] / gaps
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


def interpolation(t: Floats) -> Floats:
    """Return the weights `(K,m)` of Chebyshev's places at places t in [−1,1]."""
    gaps = t[:, None] - _PLACES
    gaps[gaps == 0] = 1e-300
    weights = _WEIGHTS / gaps
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


@dataclass(frozen=True, eq=False)
class PatchTable:
    """A patch at one θ, in columns `(rows,m²+3T)`: λ log π at its places, and at each test how much the table is off, log π, and
    the mean square of how much it is off in the row's state, where choices are drawn from π.
    """

    columns: Floats

    @property
    def worth(self) -> Floats:
        """Return λ log π `(rows,m²)`."""
        return self.columns[:, : SIDE**2]


@dataclass(frozen=True, eq=False)
class Piece:
    """The part of a question that one patch answers.

    Attributes:
        patch: its number.
        flat: which of the `(n,Q)` places of η, raveled.
        who, inverse: the distinct people, and which of them each place belongs to.
        starts, number: the first of places that share x `(J,)`, and which of these each place `(K,)` belongs to.
        by_x, by_y: the weights `(J,m)` and `(K,m)` of the table's places.
    """

    patch: int
    flat: Ints
    who: Ints
    inverse: Ints
    starts: Ints
    number: Ints
    by_x: Floats
    by_y: Floats

    def by_person(self) -> Iterator[tuple[int, slice, Floats]]:
        """Yield each person, where their places stand among those of the piece, and the weights `(k,m²)` of the table's
        places.
        """
        ends = np.searchsorted(self.inverse, np.arange(self.who.size + 1))
        for person, low, high in zip(self.who.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            along = self.by_x[self.number[low:high]]
            each = along[:, :, None] * self.by_y[low:high, None, :]
            yield person, slice(low, high), each.reshape(high - low, -1)

    def pooled(self, weights: Floats) -> Floats:
        """Return weights `(K,)` of the places as weights `(persons,m²)` of the table's places."""
        # first over places that share x, then over those of one person: both stand one after the other
        along = np.add.reduceat(weights[:, None] * self.by_y, self.starts)
        each = (self.by_x[:, :, None] * along[:, None, :]).reshape(-1, SIDE**2)
        first = np.searchsorted(self.inverse[self.starts], np.arange(self.who.size))
        total: Floats = np.add.reduceat(each, first)
        return total


@dataclass(frozen=True, eq=False)
class Surface:
    """What is known of people at places: ℓ `(n,Q)`, its measured error, and the pieces of the plane from which it comes.

    The error has a sign for the side that is cut where it is too large: x if positive, log λ if negative. Where they were asked
    for, `slopes` are ∂ℓ/∂η `(n,Q,2)` and `bends` ∂²ℓ/∂η² `(n,Q,2,2)`.
    """

    log_likelihoods: Floats
    errors: Floats
    patches: Ints
    pieces: tuple[Piece, ...]
    slopes: Floats
    bends: Floats

    def cuts(self, off: Floats, tolerance: float) -> dict[int, int]:
        """Return the patches in which some places are off by too much, and along which side; `off` `(n,Q)` are errors
        that count.
        """
        wrong = np.flatnonzero(off.ravel() > 0.2 * tolerance)
        order = wrong[np.argsort(off.ravel()[wrong])]  # the largest comes last, and decides the side
        sides = np.where(self.errors.ravel()[order] > 0, 0, 1)
        return dict(zip(self.patches.ravel()[order].tolist(), sides.tolist(), strict=True))


class Patches:
    """How the plane is cut: the corner and the size of each patch `(4,)`, and which of them covers each cell."""

    def __init__(self) -> None:
        self.corners: list[tuple[float, float, float, float]] = []
        self.cover = np.full((2 * REACH / CELL).astype(int), -1, dtype=np.int32)

    def of(self, eta: Floats, add: bool = True) -> Ints:
        """Return the numbers of the patches `(…,)` in which η `(…,2)` lie; where there is none, one is added, or the number is
        −1.
        """
        i, j = self.cells(eta)
        numbers = self.cover[i, j]
        if add and (numbers < 0).any():
            corners = i[numbers < 0] // FIRST[0] * FIRST[0], j[numbers < 0] // FIRST[1] * FIRST[1]
            for a, b in sorted({*zip(*(corner.tolist() for corner in corners), strict=True)}):
                self._add(a, b, *FIRST)
            numbers = self.cover[i, j]
        return numbers

    def inside(self, patch: int, eta: Floats) -> Floats:
        """Return η `(K,2)` as places in [−1,1]² of a patch."""
        x, y, width, height = self.corners[patch]
        held = np.clip(eta, -REACH, REACH)
        inside: Floats = np.clip(2 * (held - [x, y]) / [width, height] - 1, -1.0, 1.0)
        return inside

    def places(self, patch: int, inside: Floats) -> Floats:
        """Return the η of places in [−1,1]² of a patch."""
        x, y, width, height = self.corners[patch]
        places: Floats = np.array([x, y]) + (inside + 1) / 2 * [width, height]
        return places

    def cut(self, patch: int, side: int) -> bool:
        """Cut a patch in two along one side; whether it was large enough for that."""
        i, j = np.nonzero(self.cover == patch)
        sizes = [int(i.max() - i.min()) + 1, int(j.max() - j.min()) + 1] if i.size else [0, 0]
        if sizes[side] < 2:
            return False
        sizes[side] //= 2
        for part in (0, 1):
            move = [part * size if axis == side else 0 for axis, size in enumerate(sizes)]
            self._add(int(i.min()) + move[0], int(j.min()) + move[1], *sizes)
        return True

    def _add(self, i: int, j: int, width: int, height: int) -> None:
        self.cover[i : i + width, j : j + height] = len(self.corners)
        x, y = np.array([i, j]) * CELL - REACH
        self.corners.append((float(x), float(y), width * CELL, height * CELL))

    def cells(self, eta: Floats) -> tuple[Ints, Ints]:
        """Return the cells in which η lie."""
        held = np.clip(eta, -REACH, REACH - 1e-9)
        cells = ((held + REACH) / CELL).astype(np.int64)
        return cells[..., 0], cells[..., 1]


class Tables:
    """The tables of all patches at one θ, for many people.

    Args:
        tasks: those of the problem; of their counts only where anyone decided matters.
        largest: Γ.
        theta: θ `(d,)`.
        free: the parameters `(f,)` in which derivatives are taken.
        family: the shape of look-ahead, with one parameter that is not a whole number; None for a discount.
        choosing: how choices are made.

    Attributes:
        rows: how many rows the tables have: available actions in states where anyone decided, task after task.
    """

    def __init__(
        self,
        tasks: Sequence[CountedTask],
        largest: float,
        theta: Floats,
        free: Ints,
        family: Lookahead | None = None,
        choosing: Choosing = SOFT,
    ) -> None:
        self.largest, self.theta, self.free, self.family, self.choosing = largest, theta, free, family, choosing
        self.patches = Patches()
        self.planners = [_planner(task, bool(free.size), choosing) for task in tasks]
        self.sizes = [planner.visited_rows.size for planner in self.planners]
        self.rows = sum(self.sizes)
        if family is not None:
            self.steps = max(int(steps_ahead(p.mdp)[p.visits[:, 0] > 0].max()) for p in self.planners)
            if isinstance(family, Depth) or len(family.parameters(self.steps)) != 1:
                raise ValueError(f"tables need a look-ahead with one parameter that varies smoothly, got {family.name}")
        self._tables: dict[int, PatchTable] = {}
        self._kept: dict[int, Floats] = {}
        #: Soft values (S,m²) of each task at the places of patches, from which plans near by begin; this θ's, or the last one's.
        self._values: dict[int, list[Floats]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to another process: values only where derivatives are asked for, which begin at them."""
        return self.__dict__ if self.free.size else self.__dict__ | {"_values": {}}

    def counts(self, tasks: Sequence[CountedTask]) -> Sparse:
        """Return the decisions of people `(n,rows)`."""
        parts = [task.counts[:, planner.visited_rows] for task, planner in zip(tasks, self.planners, strict=True)]
        return sp.csr_array(sp.hstack(parts, format="csr") if len(parts) > 1 else parts[0])

    def at(self, theta: Floats) -> Tables:
        """Return the tables of another θ on the same patches; plans begin at those of this one."""
        if np.array_equal(theta, self.theta):
            return self
        moved = copy.copy(self)
        moved.theta = theta
        moved._tables = {}
        moved._kept = {}
        moved._values = dict(self._values)
        return moved

    @cached_property
    def same_state(self) -> Sparse:
        """Return whether two rows are of one state, or one last action and state, `(rows,rows)`."""
        states = []
        first = 0
        for planner in self.planners:
            contexts = len(planner.visits)
            states.append(first + planner.visited_rows % contexts)
            first += contexts
        state = np.concatenate(states)
        member = sp.csr_array((np.ones(state.size), (np.arange(state.size), state)), shape=(state.size, first))
        return sp.csr_array(member @ member.T)

    def lacking(self, eta: Floats) -> Floats:
        """Return some η `(K,2)` for all patches that are not prepared among those in which η `(…,2)` lie."""
        numbers = self.patches.of(eta, add=False)
        prepared = np.zeros(len(self.patches.corners) + 1, dtype=bool)
        prepared[list(self._tables)] = True
        missing = ~prepared[numbers]  # −1, where there is no patch, is the last and not prepared
        if not missing.any():
            return np.zeros((0, 2))
        cells = self.patches.cells(eta[missing])
        new = -1 - (cells[0] // FIRST[0] * self.patches.cover.shape[1] + cells[1] // FIRST[1])
        keys = np.where(numbers[missing] >= 0, numbers[missing], new)
        first: Floats = eta[missing][np.unique(keys, return_index=True)[1]]
        return first

    def cut(self, cuts: Mapping[int, int]) -> bool | None:
        """Cut patches along these sides, and prepare their halves: whether any was cut; None where a soft value is infinite."""
        most = 200 if any(isinstance(planner.engine, Large) for planner in self.planners) else 2000
        before = len(self.patches.corners)
        for patch, side in sorted(cuts.items()):
            first = len(self.patches.corners)
            if first < most and not self.patches.cut(patch, side):
                self.patches.cut(patch, 1 - side)
            for half in range(first, len(self.patches.corners)):
                if patch in self._values:
                    inside = self.patches.inside(patch, self.patches.places(half, _GRID))
                    weights = _tensor(inside)
                    self._values[half] = [values @ weights.T for values in self._values[patch]]
        made = np.arange(before, len(self.patches.corners))
        return None if not self.prepare(made) else bool(made.size)

    def prepare(self, numbers: Ints) -> bool:
        """Make the tables of these patches; False where a soft value is infinite."""
        one = 8 * self.rows * (SIDE**2 + 3 * len(_TESTS))  # bytes
        for number in (int(number) for number in np.unique(numbers) if int(number) not in self._tables):
            if one > 10_000_000:  # each is looked at, as nobody knows how many there will be
                require_memory(
                    5 * one,
                    f"policies of {self.rows:,} pairs of state and action at {len(self._tables) + 1:,} times {SIDE**2} places",
                    "merge states that are alike, or leave out those that few decisions reach",
                )
            eta, tests = self.patches.places(number, _GRID), self.patches.places(number, _TESTS)
            log, values = self._planned(eta, self._values.get(number))
            if log is None:
                return False
            if sum(part.size for part in values) * (len(self._values) + 1) <= 50_000_000:
                self._values[number] = values
            tested = self._planned(tests, [part @ _tensor(_TESTS).T for part in values])[0]
            if tested is None:
                return False
            worth = log * np.exp(eta[:, 1])
            table = (worth @ _tensor(_TESTS).T) / np.exp(tests[:, 1])
            missed = table - tested
            expected = self.same_state @ (np.exp(tested) * missed**2)
            self._tables[number] = PatchTable(np.concatenate([worth, missed, tested, expected], axis=1))
        return True

    def exact(self, eta: Floats) -> Floats:
        """Return `log π` `(rows,K)` at places η `(K,2)`, planned there; −inf where a soft value is infinite."""
        planned = self._planned(eta, None)[0]
        if planned is None and len(eta) > 1:
            planned = np.concatenate([self.exact(half) for half in np.array_split(eta, 2)], axis=1)
        return np.full((self.rows, 1), -np.inf) if planned is None else planned

    def surface(self, counts: Sparse, eta: Floats, inner: int = 1, slopes: bool = False) -> Surface:
        """Return ℓ of people with these counts `(n,rows)` at places η `(n,Q,2)`, with derivatives if wanted; tables must be
        prepared.

        `inner` is how many places one after the other have the same x.
        """
        n, q = eta.shape[:2]
        first, second = np.zeros((n * q * slopes, 2)), np.zeros((n * q * slopes, 2, 2))
        numbers = self.patches.of(eta, add=False)
        log, errors = np.empty(n * q), np.empty(n * q)
        flat_eta = eta.reshape(-1, 2)
        pieces = []
        for piece in self._pieces(numbers, flat_eta, q, inner):
            piece_counts = counts if piece.who.size == n else counts[piece.who]
            columns = piece_counts @ self._tables[piece.patch].columns
            worth, missed, tested, expected = np.split(columns, SIDE**2 + len(_TESTS) * np.arange(3), axis=1)
            temperatures = np.exp(flat_eta[piece.flat, 1].clip(-REACH[1], REACH[1]))
            value = _evaluated(worth, piece) / temperatures
            log[piece.flat] = value
            if slopes:
                first[piece.flat], second[piece.flat] = self._derivatives(worth, piece, temperatures)
            top = np.full(piece.who.size, -np.inf)
            np.maximum.at(top, piece.inverse, value)
            # what is off for the person's own choices counts as far as the person may be there; elsewhere, what chance would do
            missed = np.maximum(np.abs(missed) * np.exp(np.minimum(tested - top[:, None], 0.0)), 2 * np.sqrt(expected))
            along = missed[:, :3].max(axis=1), missed[:, 3:6].max(axis=1)
            errors[piece.flat] = np.where(along[0] >= along[1], 1.0, -1.0)[piece.inverse] * missed.max(axis=1)[piece.inverse]
            pieces.append(piece)
        if slopes:  # where η counts as the edge, nothing changes
            beyond = np.abs(flat_eta) > REACH
            first[beyond] = second[beyond] = 0.0
            second.transpose(0, 2, 1)[beyond] = 0.0
        derivatives = first.reshape(n, -1, 2), second.reshape(n, -1, 2, 2)
        return Surface(log.reshape(n, q), errors.reshape(n, q), numbers, tuple(pieces), *derivatives)

    def averaged(self, counts: Sparse, eta: Floats, shares: Floats, inner: int = 1) -> Floats:
        """Return how likely the decisions of people with these counts `(n,rows)` are, where each may be at places η `(n,Q,2)`
        with shares `(n,Q)`: `Σ_sa N(s,a) log Σ_q P_q π_q(a|s)` `(n,)`; NaN where a soft value is infinite.

        Each decision is predicted by itself, and none of them says where the person is. `inner` is as in `surface`.
        """
        total = np.zeros(counts.shape[0])
        decided = sp.coo_array(counts)
        size = max(1, 1_000_000 // shares.shape[1])
        for low in range(0, decided.nnz, size):
            who, row, weight = (each[low : low + size] for each in (decided.row, decided.col, decided.data))
            one = sp.csr_array((np.ones(who.size), (np.arange(who.size), row)), shape=(who.size, self.rows))
            while True:
                if not self.prepare(self.patches.of(eta[who])):
                    return np.full(total.size, np.nan)
                surface = self.surface(one, eta[who], inner)
                off = shares[who] * np.abs(surface.errors)
                # of a hundred decisions, a person's log-likelihood is off by a hundredth at most
                cuts = surface.cuts(off, 1e-4) if off.sum(axis=1).max() > 1e-4 else {}
                if not cuts or not self.cut(cuts):
                    break
            # where nobody can be, tables may be coarse, and make a probability of more than 1
            log = np.minimum(surface.log_likelihoods, 0.0)
            likely = shares[who]
            top = np.where(likely > 0, log, -np.inf).max(axis=1, keepdims=True)
            mean = (likely * np.exp(np.minimum(log - top, 0.0))).sum(axis=1)
            np.add.at(total, who, weight * (top[:, 0] + np.log(mean)))
        return total

    def _derivatives(self, worth: Floats, piece: Piece, temperatures: Floats) -> tuple[Floats, Floats]:
        """Return ∂ℓ/∂η `(K,2)` and ∂²ℓ/∂η² `(K,2,2)` at the places of a piece; `worth` `(persons,m²)` are the polynomials
        of λℓ.
        """
        polynomials = worth.reshape(-1, SIDE, SIDE)
        x, y = (2 / size for size in self.patches.corners[piece.patch][2:])
        in_x, in_y = x * (_differentiation() @ polynomials), y * (polynomials @ _differentiation().T)
        tables = (
            polynomials,
            in_x,
            in_y,
            x * (_differentiation() @ in_x),
            x * (_differentiation() @ in_y),
            y * (in_y @ _differentiation().T),
        )
        w, wx, wy, wxx, wxy, wyy = (_evaluated(table, piece) / temperatures for table in tables)
        second = np.stack([wxx, wxy - wx, wxy - wx, wyy - 2 * wy + w], axis=1)
        return np.stack([wx, wy - w], axis=1), second.reshape(-1, 2, 2)

    def scores(self, counts: Sparse, eta: Floats, surface: Surface, shares: Floats) -> tuple[Floats, Floats, Floats]:
        """Return ∂ℓ/∂θ `(n,Q,f)` in the free parameters, and where places have shares `(n,Q)`, their Fisher information `(f,f)`
        and the means of `∂²ℓ/∂θ∂η` `(n,f,2)`.
        """
        n, q = shares.shape
        scores, information = np.zeros((n * q, self.free.size)), np.zeros((self.free.size, self.free.size))
        across = np.zeros((n, self.free.size, 2))
        temperatures = np.exp(eta.reshape(-1, 2)[:, 1].clip(-REACH[1], REACH[1]))
        for piece in surface.pieces:
            piece_counts = counts[piece.who]
            slopes = self._slopes(piece.patch)
            worth = (piece_counts @ slopes.reshape(self.rows, -1)).reshape(piece.who.size, SIDE**2, self.free.size)
            for j in range(self.free.size):
                scores[piece.flat, j] = _evaluated(worth[:, :, j], piece) / temperatures[piece.flat]
            there = piece.pooled(shares.ravel()[piece.flat] / temperatures[piece.flat]).reshape(-1, SIDE, SIDE)
            x, y = (2 / size for size in self.patches.corners[piece.patch][2:])
            for i, along in enumerate((x * (_differentiation().T @ there), y * (there @ _differentiation()) - there)):
                across[piece.who, :, i] += (along.reshape(-1, 1, SIDE**2) @ worth)[:, 0]
            # the Fisher information at the table's places, with the decisions that are pooled there
            decided = piece_counts.T @ piece.pooled(shares.ravel()[piece.flat])
            lam = np.exp(self.patches.places(piece.patch, _GRID)[:, 1])
            weights = (self.same_state @ decided) * np.exp(self._tables[piece.patch].worth / lam)
            moved = slopes / lam[:, None]
            information += np.einsum("rg,rgd,rge->de", weights, moved, moved, optimize=True)
        return scores.reshape(n, q, -1), information, across

    def lines(self, rows: Ints, eta: Floats, surface: Surface) -> tuple[Floats, Floats]:
        """Return `log π` `(n,Q,R)` and `∂ log π/∂θ` `(n,Q,R,f)` at places η `(n,Q,2)`, for rows `(n,R)` of each person.

        A row that is one more than the tables have is that of an action which is never taken.
        """
        n, q, r, f = *eta.shape[:2], rows.shape[1], self.free.size
        log = np.full((n * q, r), -1e30)
        slopes = np.zeros((n * q, r, f))
        temperatures = np.exp(eta.reshape(-1, 2)[:, 1].clip(-REACH[1], REACH[1]))
        for piece in surface.pieces:
            worth = self._tables[piece.patch].worth
            moves = self._slopes(piece.patch)
            for person, places, weights in piece.by_person():
                real = np.flatnonzero(rows[person] < self.rows)
                person_rows, flat = rows[person, real], piece.flat[places]
                weights = weights / temperatures[flat, None]
                log[np.ix_(flat, real)] = weights @ worth[person_rows].T
                slopes[np.ix_(flat, real)] = np.tensordot(weights, moves[person_rows], (1, 1))
        return log.reshape(n, q, r), slopes.reshape(n, q, r, f)

    def along_lines(self, rows: Ints, eta: Floats, surface: Surface, by_log: Floats, by_slopes: Floats) -> Floats:
        """Return how `Σ by_log log π + Σ by_slopes ∂ log π/∂θ` moves with θ `(f,)`, for weights of what `lines` says."""
        f = self.free.size
        total = np.zeros(self.free.size)
        temperatures = np.exp(eta.reshape(-1, 2)[:, 1].clip(-REACH[1], REACH[1]))
        both = np.concatenate([by_log[:, :, :, None], by_slopes], axis=3).reshape(temperatures.size, -1, f + 1)
        for piece in surface.pieces:
            pooled = np.zeros((self.rows, SIDE**2, f + 1))
            for person, places, weights in piece.by_person():
                real = np.flatnonzero(rows[person] < self.rows)
                flat = piece.flat[places]
                pooled[rows[person, real]] += np.tensordot(
                    both[np.ix_(flat, real)], weights / temperatures[flat, None], (0, 0)
                ).swapaxes(1, 2)
            total += np.einsum("rg,rgl->l", pooled[:, :, 0], self._slopes(piece.patch))
            total += self._along_bends(piece.patch, pooled[:, :, 1:])
        return total

    def _along_bends(self, patch: int, weights: Floats) -> Floats:
        """Return `Σ_j w_j λ ∂ψ_j/∂θ` `(f,)` of a patch, for weights `(rows,m²,f)`."""
        eta = self.patches.places(patch, _GRID)
        total = np.zeros(self.free.size)
        first = 0
        for task, size in enumerate(self.sizes):
            planner = self.planners[task]
            mdp = self.planners[task].mdp
            columns = np.searchsorted(self.free, planner.features.used)
            rows = planner.visited_rows
            every = np.flatnonzero(mdp.available.T.ravel())
            in_state = sp.eye_array(mdp.n_states).tocsr()[:, every % mdp.n_states]
            for part, plans in self._plans(task, eta, self._values[patch][task] if patch in self._values else None):
                assert isinstance(plans, Plans)
                scores = plans.scores(every)[0][:, :, :-2]
                likely = np.exp(plans.log.reshape(-1, plans.lam.size)[every]) * plans.lam
                part_weights = weights[first : first + size, part]
                for i, j in enumerate(columns):
                    products = (likely * scores[:, :, i])[:, :, None] * scores
                    spread = (in_state @ products.reshape(every.size, -1)).reshape(-1, *products.shape[1:])
                    values = plans.resolvents.solve(spread)
                    values[mdp.terminal] = 0.0
                    later = (mdp.stacked[rows] @ values.reshape(mdp.n_states, -1)).reshape(size, *values.shape[1:])
                    bends = plans.gamma[:, None] * later - values[rows % mdp.n_states]
                    total[columns] += np.einsum("rg,rgl->l", part_weights[:, :, j], bends)
            first += size
        return total

    def _pieces(self, numbers: Ints, eta: Floats, q: int, inner: int) -> Iterator[Piece]:
        order = np.argsort(numbers.ravel(), kind="stable")
        ordered = numbers.ravel()[order]
        for flat in np.split(order, np.flatnonzero(np.diff(ordered)) + 1):
            patch = int(numbers.ravel()[flat[0]])
            inside = self.patches.inside(patch, eta[flat])
            person, key = flat // q, flat // inner
            fresh = np.concatenate([[True], np.diff(person) != 0])
            starts = np.flatnonzero(np.concatenate([[True], np.diff(key) != 0]))
            number = np.repeat(np.arange(starts.size), np.diff(np.append(starts, key.size)))
            weights = interpolation(inside[starts, 0]), interpolation(inside[:, 1])
            yield Piece(patch, flat, person[fresh], np.cumsum(fresh) - 1, starts, number, *weights)

    def _plans(self, task: int, eta: Floats, start: Floats | None) -> Iterator[tuple[slice, Plans | WeightedPlans | None]]:
        """Yield plans in one task, as many places at a time as memory likes; `start` `(S,K)` are values to begin at."""
        planner = self.planners[task]
        size = max(1, 1_000_000 // (planner.mdp.n_actions * planner.mdp.n_states * (planner.features.used.size + 2)))
        ends = np.append(np.arange(0, len(eta), size), len(eta))
        if planner.mdp.durations is not None:  # those of one discount are planned together
            ends = np.union1d(ends, np.flatnonzero(eta[1:, 0] != eta[:-1, 0]) + 1)
        for low, high in pairwise(ends.tolist()):
            part = slice(low, high)
            gamma = np.maximum(self.largest * expit(eta[part, 0]), planner.mdp.least_discount)
            lam = np.exp(eta[part, 1])
            placed = replace(planner, owners=np.arange(part.stop - low)).at(float(gamma[0]))
            if self.family is not None:
                weights = self.family.step_discounts(gamma[:, None], self.steps)
                yield part, weighted_plans(placed, self.theta, lam, *weights)
                continue
            near = None if start is None else Plans(placed, start[:, part], start[:, part], gamma, lam)
            yield part, placed.plan(self.theta, gamma, lam, near, self.choosing.habits)

    def _planned(self, eta: Floats, start: list[Floats] | None) -> tuple[Floats | None, list[Floats]]:
        """Return `log π` `(rows,K)` at places η, None where a soft value is infinite, and the values `(S,K)` of each task."""
        log = np.empty((self.rows, len(eta)))
        every = []
        first = 0
        for task, (planner, size) in enumerate(zip(self.planners, self.sizes, strict=True)):
            values = np.empty((planner.mdp.n_states, len(eta)))
            for part, plans in self._plans(task, eta, None if start is None else start[task]):
                if plans is None:
                    return None, []
                values[:, part] = plans.values if isinstance(plans, Plans) else plans.values[0]
                log[first : first + size, part] = plans.log.reshape(-1, part.stop - part.start)[planner.visited_rows]
            first += size
            every.append(values)
        return log, every

    def _slopes(self, patch: int) -> Floats:
        """Return λ ∂ log π/∂θ `(rows,m²,f)` of a patch; kept as long as there is room."""
        if patch in self._kept:
            return self._kept[patch]
        eta = self.patches.places(patch, _GRID)
        slopes = np.zeros((self.rows, len(eta), self.free.size))
        first = 0
        for task, size in enumerate(self.sizes):
            used = self.planners[task].features.used
            column = np.searchsorted(self.free, used)
            kept = np.isin(used, self.free)
            for part, plans in self._plans(task, eta, self._values[patch][task] if patch in self._values else None):
                assert plans is not None
                scores = plans.score_rows()[:, :, :-2] * plans.lam[:, None]
                slopes[first : first + size, part, column[kept]] = scores[:, :, kept]
            first += size
        if slopes.size * (len(self._kept) + 1) <= 50_000_000:
            self._kept[patch] = slopes
        return slopes


def _tensor(inside: Floats) -> Floats:
    """Return the weights `(K,m²)` of a table's places at places in [−1,1]²."""
    weights: Floats = interpolation(inside[:, 0])[:, :, None] * interpolation(inside[:, 1])[:, None, :]
    return weights.reshape(len(inside), -1)


def _evaluated(tables: Floats, piece: Piece) -> Floats:
    """Return polynomials `(persons,m²)` at the places of a piece `(K,)`: first along x, once for places that share it."""
    polynomials = tables.reshape(-1, SIDE, SIDE)[piece.inverse[piece.starts]]
    along = np.einsum("ja,jab->jb", piece.by_x, polynomials)
    values: Floats = np.einsum("kb,kb->k", along[piece.number], piece.by_y)
    return values


def _planner(task: CountedTask, free: bool, choosing: Choosing) -> Persons:
    """Return a task as what plans in it, with the states in which anyone decided."""
    mdp, everybody = task.mdp, task.pooled
    counts = np.asarray(task.counts.sum(axis=0)).reshape(mdp.n_actions, -1)
    counts = np.where(np.tile(mdp.terminal, counts.shape[1] // mdp.n_states), 0.0, counts)
    return Persons(
        mdp=mdp,
        engine=engine_for(mdp, choosing.value),
        features=Features(everybody.feature_matrix, mdp, free),
        known_reward=np.zeros(mdp.n_actions * mdp.n_states) if task.known_reward is None else task.known_reward,
        known_arrival=task.known_arrival,
        arrival=everybody.arrival_features,
        counts=counts[:, :, None],
        visits=counts.sum(axis=0)[:, None],
        by_last=task.by_last,
        positions=np.zeros(1, dtype=np.int64),
        owners=np.zeros(1, dtype=np.int64),
        task=0,
    )
