"""What is known and what is tied among the parameters of a likelihood, and the quadratic terms of its objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints, Sparse


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The term `−½ (x−c)ᵀA(x−c) + bᵀ(x−c)` of the objective: centre c, slope b, and a matrix A, dense or sparse."""

    centre: Floats
    slope: Floats
    matrix: Floats | Sparse

    def __call__(self, x: Floats) -> float:
        """Its value at x."""
        return float((self.slope - 0.5 * self.matrix @ (x - self.centre)) @ (x - self.centre))

    def gradient(self, x: Floats) -> Floats:
        """Its gradient at x."""
        return self.slope - self.matrix @ (x - self.centre)

    def without(self, positions: slice, put: int) -> Quadratic:
        """The same term without the parameters at `positions`, and with `put` new ones there, of which it says nothing."""
        size = self.centre.size - (positions.stop - positions.start) + put
        keep = np.r_[: positions.start, positions.stop : self.centre.size]
        room = np.r_[: positions.start, positions.start + put : size]
        centre, slope = np.zeros(size), np.zeros(size)
        centre[room], slope[room] = self.centre[keep], self.slope[keep]
        return Quadratic(centre, slope, placed(sp.csr_array(self.matrix)[keep][:, keep], room, size))


def placed(block: Floats | Sparse, room: Ints, size: int) -> Sparse:
    """A matrix `(size,size)` that is 0 outside the given rows and columns."""
    entries = sp.coo_array(block)
    return sp.csr_array((entries.data, (room[entries.row], room[entries.col])), shape=(size, size))


@dataclass(frozen=True)
class Settings:
    """What is known besides the problem, and which experts share a parameter.

    Attributes:
        groups: for each of the K experts which discount is theirs; by default 0, …, K−1. Equal numbers share a discount.
        discounts: known discounts `(K,)`, NaN where they are free; None where all are.
        temperature_groups: for each expert which temperature is theirs, as in `groups`.
        temperatures: known temperatures `(K,)`, NaN where they are free; None stands for 1 everywhere.
        reward: known reward parameters `(d,)`; None where they are free.
        moves: whether estimated transitions give way within their own error (`logged_moves.py`).
    """

    groups: tuple[int, ...] | None = None
    discounts: Floats | None = None
    temperature_groups: tuple[int, ...] | None = None
    temperatures: Floats | None = None
    reward: Floats | None = None
    moves: bool = False


def group_numbers(groups: tuple[int, ...] | None, size: int) -> Ints:
    """The group of each expert; without groups, each has their own."""
    return np.arange(size) if groups is None else np.array(groups, dtype=np.int64)


def known_of_groups(values: Floats, groups: Ints) -> Floats:
    """The known value of each group; NaN where none is known, or where its members have different ones."""
    found = np.full(int(groups.max()) + 1, np.nan)
    for group in range(found.size):
        distinct = np.unique(values[(groups == group) & ~np.isnan(values)])
        if distinct.size == 1:
            found[group] = distinct[0]
    return found


def renumbered(groups: Ints) -> tuple[int, ...]:
    """The same groups with the numbers 0, 1, … in order of appearance."""
    number = {g: i for i, g in enumerate(dict.fromkeys(groups.tolist()))}
    return tuple(number[g] for g in groups.tolist())
