"""The system of all experts at given discounts: linear in everything else.

All experts act for the same reward. For fixed discounts Γ that is a linear system `M(Γ) x = h(Γ)`. With one reward per state,
expert i allows the rewards `λ_k (û − γ_k V̂) + (N − γ_k P_π N) z` (`one_expert`), and their differences from the common mean
must be 0: x holds the z of every expert and, where temperatures are free, λ_2 … λ_K. `feature_equations` has the system for other
features.

Only lengths of the rows' combinations and angles between them matter in what follows. So where there are many states and few
columns, all columns are first written in one orthonormal basis of what they span (`SharedReward.compact`), and no later step
depends on the number of states.

`linear_system` makes the system linear in Γ as well; `solution_set` solves it for Γ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.recovery.column_space import DENSE_ROUNDING, Coefficients, side_by_side, unbound
from multihorizon.recovery.one_expert import RewardFamily

#: Equations are made compact where they have at least this many rows for each column, and this many rows are read at once.
LEAST_ROWS, ROWS_AT_ONCE = 4, 4096


@dataclass(frozen=True, eq=False)
class ErrorEffect:
    """What errors in one expert's log π do, as columns: to the residual `M x − h`, and to its slope in the owner's discount."""

    owner: int
    residual: Floats
    slope: Floats


class JointEquations(Protocol):
    """The equations of all experts at given discounts `(K,)`."""

    n_experts: int

    @property
    def coefficients(self) -> Coefficients | None:
        """What x may be where M is sparse."""
        ...

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """M and h."""
        ...

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`∂(M x − h)/∂γ_k` as columns `(rows, K)`."""
        ...

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Reward parameters and temperatures `(K,)` of a solution."""
        ...

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """What errors in the policies do at a solution, expert by expert."""
        ...


class SharedReward:
    """The stacked rows of all families, and the projection that removes the reward they share."""

    def __init__(self, families: Sequence[RewardFamily], n_parameters: int) -> None:
        self.families = families
        ends = np.cumsum([0, *(family.u.size for family in families)])
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.size = int(ends[-1])
        self.parameters: Ints = np.concatenate([family.parameters for family in families])
        self.root = np.sqrt(np.concatenate([family.weights for family in families]))
        total = np.bincount(self.parameters, self.root**2, minlength=n_parameters)
        self.entered: Bools = total > 0
        self.average = sp.csr_array(
            (self.root / total[self.parameters], (self.parameters, np.arange(self.size))), shape=(n_parameters, self.size)
        )

    @cached_property
    def compact(self) -> SharedReward:
        """The same equations with few rows, where there are few columns: all columns in one orthonormal basis of what they span.

        Lengths and angles stay the same, and nothing else is asked of the rows. It needs rows that all count alike and belong to
        the same states for every family; otherwise it is this very object.
        """
        first = self.families[0].parameters
        alike = all(np.array_equal(family.parameters, first) for family in self.families) and bool((self.root == 1).all())
        pieces = {id(piece): piece for family in self.families for piece in _pieces(family)}
        if not alike or any(sp.issparse(piece) for piece in pieces.values()):
            return self
        columns = {key: piece.reshape(first.size, -1) for key, piece in pieces.items()}
        if LEAST_ROWS * sum(column.shape[1] for column in columns.values()) > first.size:
            return self
        found = dict(zip(columns, _coordinates(list(columns.values())), strict=True))
        return SharedReward([_moved(family, found) for family in self.families], len(next(iter(found.values()))))

    @property
    def misfit(self) -> float:
        """The largest part of any expert's log π that no reward and discount can explain, in units of its assumed error."""
        return max(family.misfit / max(family.error, DENSE_ROUNDING) for family in self.families)

    def place(self, pieces: dict[int, Floats]) -> Floats:
        """Stack pieces by the number of their family (zeros elsewhere), weighted, and remove the shared reward."""
        width = next(iter(pieces.values())).shape[1:] if pieces else ()
        stacked = np.zeros((self.size, *width))
        for number, piece in pieces.items():
            part = self.slices[number]
            stacked[part] = (piece.T * self.root[part]).T
        removed: Floats = stacked - (self.root * (self.average @ stacked)[self.parameters].T).T
        return removed

    def place_owned(self, owner: int, pieces: Sequence[Floats]) -> Floats:
        """Place the pieces of one owner's families; the other families get zeros."""
        return self.place({i: p for i, (f, p) in enumerate(zip(self.families, pieces, strict=True)) if f.owner == owner})

    def blocks(self, pieces: Sequence[Floats | Sparse]) -> Floats | Sparse:
        """Block-diagonal columns with the shared reward removed, sparse if a piece is."""
        if all(isinstance(piece, np.ndarray) for piece in pieces):
            return np.hstack([self.place({number: np.asarray(piece)}) for number, piece in enumerate(pieces)])
        weighted = sp.csr_array(sp.diags_array(self.root) @ sp.block_diag(pieces, format="csr"))
        rows = np.arange(self.size)
        spread = sp.csr_array((self.root, (rows, self.parameters)), shape=self.average.T.shape)
        return sp.csr_array(weighted - spread @ (self.average @ weighted))

    def coefficients(self) -> list[Coefficients] | None:
        """What the z of each family may be where the blocks are sparse."""
        if all(family.coefficients is None for family in self.families):
            return None
        return [f.coefficients or unbound(sp.csr_array(f.basis.T @ f.basis)) for f in self.families]

    def mean(self, pieces: Sequence[Floats]) -> Floats:
        """The reward `(n_parameters,)`: the weighted mean of what the families say about each entry, 0 where none does."""
        reward: Floats = self.average @ (self.root * np.concatenate(pieces))
        return reward


def _pieces(family: RewardFamily) -> tuple[Floats, ...]:
    """All columns of a family."""
    return family.u, family.v, family.basis, family.pushed, family.error_u, family.error_v


def _moved(family: RewardFamily, found: dict[int, Floats]) -> RewardFamily:
    """The family with other rows: `found` has what takes the place of each of its arrays."""
    u, v, basis, pushed, error_u, error_v = (found[id(piece)] for piece in _pieces(family))
    rows: Ints = np.arange(len(u))
    family = replace(family, parameters=rows, weights=np.ones(rows.size), u=u[:, 0], v=v[:, 0])
    return replace(family, basis=basis, pushed=pushed, error_u=error_u, error_v=error_v)


def _coordinates(blocks: Sequence[Floats]) -> list[Floats]:
    """The columns of all blocks in one orthonormal basis: R of their QR decomposition, a few rows at a time."""
    corner: Any = np.zeros((0, sum(block.shape[1] for block in blocks)))
    for start in range(0, len(blocks[0]), ROWS_AT_ONCE):
        rows = np.hstack([block[start : start + ROWS_AT_ONCE] for block in blocks])
        corner = np.linalg.qr(np.vstack([corner, rows]), mode="r")
    return np.split(corner, np.cumsum([block.shape[1] for block in blocks])[:-1], axis=1)


def beside(matrix: Floats | Sparse, columns: Sequence[Floats]) -> Floats | Sparse:
    """The matrix with dense columns put beside it."""
    if isinstance(matrix, np.ndarray):
        return np.column_stack([matrix, *columns])
    return sp.csr_array(sp.hstack([matrix, *(sp.csr_array(column[:, None]) for column in columns)]))


class StateEquations:
    """M and h for one reward per state; x = (z of every family, then λ_2 … λ_K where temperatures are free)."""

    def __init__(self, shared: SharedReward, n_experts: int, temperature: float | None) -> None:
        self.shared, self.n_experts, self.temperature = shared, n_experts, temperature
        rows, families = shared.compact, shared.compact.families
        self._ends = np.cumsum([0, *(family.basis.shape[1] for family in families)])
        self._basis = rows.blocks([family.basis for family in families])
        self._pushed = rows.blocks([family.pushed for family in families])
        self._owners: Ints = np.repeat([family.owner for family in families], np.diff(self._ends))
        self._u = [rows.place_owned(k, [family.u for family in families]) for k in range(n_experts)]
        self._v = [rows.place_owned(k, [family.v for family in families]) for k in range(n_experts)]

    @cached_property
    def coefficients(self) -> Coefficients | None:
        """What z may be; temperatures are free."""
        parts = self.shared.coefficients()
        if parts is None:
            return None
        more = [] if self.temperature is not None else [unbound(sp.csr_array(sp.eye_array(self.n_experts - 1)))]
        return side_by_side([*parts, *more])

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """Columns for z and free temperatures, and minus the part with a known temperature."""
        rewards = [u - gamma * v for u, v, gamma in zip(self._u, self._v, discounts, strict=True)]
        matrix = self._basis - self._pushed * discounts[self._owners]
        if self.temperature is not None:
            return matrix, -self.temperature * np.sum(rewards, axis=0)
        return beside(matrix, rewards[1:]), -rewards[0]

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`−(λ V̂ + P_π N z)` on the rows of each owner: minus the value function."""
        temperature = self._temperatures(x)
        z = x[: self._ends[-1]]
        columns = [
            -temperature[k] * self._v[k] - self._pushed @ np.where(self._owners == k, z, 0.0) for k in range(self.n_experts)
        ]
        return np.stack(columns, axis=1)

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """The reward is the mean of what the families say."""
        temperature = self._temperatures(x)
        pieces = []
        for family, (a, b) in zip(self.shared.families, pairwise(self._ends), strict=True):
            gamma, lam = discounts[family.owner], temperature[family.owner]
            pieces.append(lam * (family.u - gamma * family.v) + (family.basis - gamma * family.pushed) @ x[a:b])
        return self.shared.mean(pieces), temperature

    def values(self, x: Floats) -> list[Floats]:
        """Each family's value function `λ V̂ + P_π N z` on its entered states."""
        temperature = self._temperatures(x)
        parts = zip(self.shared.families, pairwise(self._ends), strict=True)
        return [temperature[family.owner] * family.v + family.pushed @ x[a:b] for family, (a, b) in parts]

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """`λ (δû − γ δV̂)` and its slope `−λ δV̂`."""
        effects = []
        rows = self.shared.compact
        for number, family in enumerate(rows.families):
            lam, gamma = float(self._temperatures(x)[family.owner]), float(discounts[family.owner])
            slope = rows.place({number: -lam * family.error_v})
            effects.append(ErrorEffect(family.owner, rows.place({number: lam * family.error_u}) + gamma * slope, slope))
        return effects

    def common_equations(self, discounts: Floats, x: Floats) -> int:
        """How many rows say something about whether the reward is shared: all but those that fix the reward itself."""
        return self.shared.size - int(self.shared.entered.sum())

    def reward_scale(self, discounts: Floats, x: Floats) -> float:
        """How much the reward varies from row to row, in the units of the residual."""
        reward = self.read(discounts, x)[0]
        varying = self.shared.root * (reward - reward[self.shared.entered].mean())[self.shared.parameters]
        return float(np.sqrt((varying**2).mean()))

    def _temperatures(self, x: Floats) -> Floats:
        if self.temperature is not None:
            return np.full(self.n_experts, self.temperature)
        return np.concatenate([[1.0], x[self._ends[-1] :]])


class KnownDiscounts:
    """Equations in which some discounts are known: the others are the unknowns, in the same order."""

    def __init__(self, inner: JointEquations, values: Floats) -> None:
        """`values` `(K,)` holds the known discounts and NaN elsewhere."""
        self.inner, self._values = inner, values
        self._free = np.isnan(values)
        self.n_experts = int(self._free.sum())

    def expand(self, discounts: Floats) -> Floats:
        """All K discounts (or rows of them) from the unknown ones, with the known ones in their places."""
        known = self._values.reshape(-1, *[1] * (discounts.ndim - 1))
        full = np.array(np.broadcast_to(known, (self._values.size, *discounts.shape[1:])))
        full[self._free] = discounts
        return full

    @property
    def coefficients(self) -> Coefficients | None:
        """Those of all experts."""
        return self.inner.coefficients

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """M and h."""
        return self.inner.at(self.expand(discounts))

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """The columns of the unknown discounts."""
        return self.inner.slopes(self.expand(discounts), x)[:, self._free]

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Reward and temperatures."""
        return self.inner.read(self.expand(discounts), x)

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """The effects, with a slope only in unknown discounts."""
        number = np.cumsum(self._free) - 1
        effects = self.inner.errors(self.expand(discounts), x)
        return [
            replace(e, owner=int(number[e.owner])) if self._free[e.owner] else replace(e, owner=0, slope=0.0 * e.slope)
            for e in effects
        ]
