"""The rewards that explain experts at given discounts and meet restrictions: an affine set, cut to a polyhedron.

Restrictions `A θ ≤ b` are read from frames, mappings and pairs of arrays. Where no reward meets all of them, the fewest that
contradict each other are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints, Sparse, as_floats, as_frame, as_shape, first_few, is_frame
from multihorizon.exact.equations import (
    FeatureEquations,
    JointEquations,
    StateEquations,
    has_features,
    read_equations,
    reward_families,
)
from multihorizon.mdp import refuse_durations
from multihorizon.numerics.lp import INFINITY, LinearProgram, LPResult, solve_lp
from multihorizon.numerics.newton import Local, maximize_many
from multihorizon.problem import Problem
from multihorizon.words import significant


class ContradictionError(ValueError):
    """No reward that explains the experts meets the restrictions."""


# Declared restrictions.


def read_restrictions(names: Sequence[str], given: Any) -> tuple[Floats, Floats]:
    """Return a `(m,d)` and b `(m,)` of the restrictions `A r ≤ b` on the reward parameters called `names`.

    Args:
        names: the labels of the reward parameters: states or features.
        given: None; a pair `(A, b)`; a data frame with columns `smaller`, `larger` (one parameter is at most another) or `state`
            (or `feature`), `lower`, `upper`, or all of them with blanks; a mapping with any of `rising` (labels, each at most the
            next), `lower` and `upper` (a number for all, or numbers by label); or a list of such.

    Example:
        >>> A, b = read_restrictions(["home", "town"], {"rising": ["home", "town"], "lower": 0})
        >>> A.tolist(), b.tolist()
        ([[1.0, -1.0], [-1.0, 0.0], [0.0, -1.0]], [0.0, 0.0, 0.0])
    """
    parts = list(_parts(tuple(names), given))
    rows = [row for part, _ in parts for row in part]
    limits = [limit for _, part in parts for limit in part]
    # Adding 0 makes a plain 0 of the negative one that a sign leaves.
    matrix, bounds = np.array(rows, dtype=np.float64).reshape(-1, len(names)) + 0.0, np.array(limits, dtype=np.float64) + 0.0
    single = np.flatnonzero((matrix != 0).sum(axis=1) == 1)
    for place in range(len(names)):
        held = single[matrix[single, place] != 0]
        above, below = held[matrix[held, place] > 0], held[matrix[held, place] < 0]
        if above.size and below.size:
            values = bounds / np.where(matrix[:, place] == 0, 1.0, matrix[:, place])
            upper, lower = above[np.argmin(values[above])], below[np.argmax(values[below])]
            if values[lower] > values[upper]:
                said = " and ".join(_said(matrix[i], float(bounds[i]), names) for i in (lower, upper))
                raise ContradictionError(f"the restrictions contradict each other: no reward has {said}")
    return matrix, bounds


def _parts(names: tuple[str, ...], given: Any) -> Iterator[tuple[Floats, Floats]]:
    if given is None:
        return
    if is_frame(given):
        yield _from_frame(names, as_frame(given, "restrictions"))
    elif isinstance(given, Mapping):
        yield _from_mapping(names, given)
    elif isinstance(given, tuple) and len(given) == 2 and not (isinstance(given[0], Mapping | tuple) or is_frame(given[0])):
        limits = np.atleast_1d(as_floats(given[1], "b of restrictions A r ≤ b"))
        rows = np.atleast_2d(as_floats(given[0], "A of restrictions A r ≤ b"))
        as_shape(rows, (limits.size, len(names)), "A of restrictions A r ≤ b")
        yield rows, limits
    elif isinstance(given, Sequence) and not isinstance(given, str):
        for part in given:
            yield from _parts(names, part)
    else:
        raise ValueError(
            "restrictions must be a pair (A, b), a data frame with columns smaller and larger or state, lower and upper, "
            f"a mapping with rising, lower or upper, or a list of these, got {type(given).__name__}"
        )


def _unit(names: tuple[str, ...], label: object) -> Floats:
    text = str(int(label)) if isinstance(label, float | np.floating) and float(label).is_integer() else str(label)
    text = text if text in names else str(label)
    if text not in names:
        raise ValueError(f"restrictions must name reward parameters among {first_few(names)}, got {str(label)!r}")
    row = np.zeros(len(names))
    row[names.index(text)] = 1.0
    return row


def _from_frame(names: tuple[str, ...], frame: pd.DataFrame) -> tuple[Floats, Floats]:
    frame = frame.rename(columns={"feature": "state"})
    order, within = {"smaller", "larger"}, {"lower", "upper"}
    allowed = order | within | {"state"}
    columns = set(frame.columns)
    paired = order <= columns or not order & columns
    limited = ("state" in columns) == bool(within & columns)
    if not columns <= allowed or not columns or not paired or not limited:
        raise ValueError(
            "a table of restrictions must have the columns smaller and larger, or state with lower or upper, "
            f"got {', '.join(map(str, frame.columns))}"
        )
    rows: list[Floats] = []
    limits: list[float] = []
    for number, entry in enumerate(frame.to_dict("records")):
        entry = {name: value for name, value in entry.items() if not pd.isna(value) and value != ""}
        if "smaller" in entry and "larger" in entry:
            rows.append(_unit(names, entry["smaller"]) - _unit(names, entry["larger"]))
            limits.append(0.0)
        elif "smaller" in entry or "larger" in entry or ("state" in entry) != bool(within & set(entry)):
            raise ValueError(f"row {number + 1} of the restrictions must be filled in whole, got {entry}")
        for side, sign in (("lower", -1.0), ("upper", 1.0)):
            if side in entry:
                rows.append(sign * _unit(names, entry["state"]))
                limits.append(sign * float(as_floats(entry[side], f"{side} in row {number + 1} of the restrictions")))
    return np.array(rows).reshape(-1, len(names)), np.array(limits)


def _from_mapping(names: tuple[str, ...], given: Mapping[Any, Any]) -> tuple[Floats, Floats]:
    others = set(given) - {"rising", "lower", "upper"}
    if others:
        raise ValueError(f"restrictions must be called rising, lower or upper, got {', '.join(sorted(map(str, others)))}")
    rising = [_unit(names, label) for label in given.get("rising", ())]
    rows = [a - b for a, b in pairwise(rising)]
    limits = [0.0] * len(rows)
    for side, sign in (("lower", -1.0), ("upper", 1.0)):
        stated = given.get(side, {})
        for label, limit in (stated if isinstance(stated, Mapping) else dict.fromkeys(names, stated)).items():
            rows.append(sign * _unit(names, label))
            limits.append(sign * float(as_floats(limit, f"{side} of the restriction on {label}")))
    return np.array(rows).reshape(-1, len(names)), np.array(limits)


def _said(row: Floats, limit: float, names: Sequence[str]) -> str:
    """Return one restriction `row·r ≤ limit` in symbols."""
    places = [int(i) for i in np.flatnonzero(row)]
    if len(places) == 1:
        value = limit / row[places[0]]
        return f"{names[places[0]]} {'≤' if row[places[0]] > 0 else '≥'} {significant(value + 0.0, 6)}"
    if len(places) == 2 and limit == 0 and row[places].sum() == 0:
        small, large = places if row[places[0]] > 0 else places[::-1]
        return f"{names[small]} ≤ {names[large]}"
    terms = " ".join(f"{'-' if row[i] < 0 else '+'} {significant(abs(row[i]), 6)}·{names[i]}" for i in places).removeprefix("+ ")
    return f"{terms or '0'} ≤ {significant(limit, 6)}"


# The set of rewards.


@dataclass(frozen=True, eq=False)
class RewardSet:
    """`θ = origin + basis z` with `rows z ≤ limits`; the basis `(d,n)` is orthonormal, and z = `centre` is a member."""

    origin: Floats
    basis: Floats
    rows: Sparse
    limits: Floats
    centre: Floats

    @staticmethod
    def of(
        problem: Problem, discounts: Floats, temperatures: Floats, restrictions: tuple[Floats, Floats] | None
    ) -> RewardSet | None:
        """Return all rewards that explain the experts at these discounts and temperatures and meet the restrictions; None if none
        do.
        """
        origin, basis = explaining_rewards(problem, discounts, temperatures)
        rows, limits = _restricted(origin, basis, restrictions)
        centre = np.zeros(basis.shape[1])
        if limits.size:
            inner = _inner_point(rows, limits)
            if inner is None:
                return None
            centre = _central(rows, limits, inner)
        return RewardSet(origin, basis, sp.csr_array(rows), limits, centre)

    def largest(self, costs: Floats, within: tuple[Floats, Floats, Floats] | None = None) -> LPResult:
        """Return the largest `costs·z`; with `within = (C, low, high)`, among z with `low ≤ C z ≤ high`."""
        m, n = self.rows.shape
        rows = self.rows
        below = np.full(m, -INFINITY)
        above = self.limits
        if within is not None:
            rows = sp.csr_array(sp.vstack([rows, sp.csr_array(within[0])]))
            below, above = np.concatenate([below, within[1]]), np.concatenate([above, within[2]])
        free = np.full(n, INFINITY)
        return solve_lp(LinearProgram(costs, rows, below, above, -free, free), ray=False)


def explaining_rewards(problem: Problem, discounts: Floats, temperatures: Floats) -> tuple[Floats, Floats]:
    """Return the rewards that explain exact policies at given discounts and temperatures `(K,)`: θ_0 `(d,)` and N `(d,n)`.

    θ_0 has the least norm, and the columns of N are orthonormal.
    """
    lam = float(temperatures[0])
    tolerance = 1e-8
    # Temperatures of others are put into their log π, of which the equations hold multiples only.
    policies = []
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        policy = read_equations(expert)
        policies.append(replace(policy, log_policy=policy.log_policy * (temperatures[owner] / lam)))
    equations: JointEquations
    if has_features(problem):
        equations = FeatureEquations(problem, policies, lam, tolerance, discounts)
    else:
        refuse_durations(problem.mdps, "equations that are linear in the discounts")
        families = reward_families(problem, policies, tolerance)
        equations = StateEquations(problem, policies, lam, tolerance, discounts, families)
    point = equations.project(discounts)
    size = max(1.0, float(np.abs(np.concatenate([lam * p.log_policy.ravel() for p in policies])).max(initial=0.0)))
    gap = point.gap / np.sqrt(max(point.residual.size, 1)) / size
    if gap > 1e-5 or equations.outside > 1e5:
        raise ValueError(
            "bounds over a set of rewards need policies that one reward explains at the given discounts and temperatures, "
            f"got policies that leave a relative error of {significant(gap, 2)}"
        )
    hidden = np.flatnonzero(~equations.entered)  # parameters that no equation holds
    if (point.columns.nullity + hidden.size) * problem.n_parameters > 2e7:
        raise ValueError(
            f"bounds over a set of rewards are computed for few open directions, got {point.columns.nullity:,} "
            f"of {problem.n_parameters:,} reward parameters: give features or more experts"
        )
    unseen = np.zeros((problem.n_parameters, hidden.size))
    unseen[hidden, np.arange(hidden.size)] = 1.0
    draws = getattr(point.columns, "null_draws", None)
    null = point.columns.null if draws is None else draws(point.columns.nullity)
    theta = equations.reward(discounts, point.x)
    moves = [equations.reward(discounts, point.x + move) - theta for move in null.T]
    columns = np.column_stack([*moves, unseen])
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    basis = left[:, values > 1e-9 * max(float(values.max(initial=0.0)), 1e-9)]
    return theta - basis @ (basis.T @ theta), basis


def _restricted(origin: Floats, basis: Floats, restrictions: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Return the restrictions on z."""
    if restrictions is None or not len(restrictions[0]):
        return np.zeros((0, basis.shape[1])), np.zeros(0)
    matrix, limits = restrictions
    rows = matrix @ basis
    rows[np.abs(rows) <= 1e-10 * np.abs(matrix).max(axis=1, keepdims=True)] = 0.0
    # A restriction that holds with equality must not fail by the rounding of the equations.
    slack = 1e-8 * (1.0 + np.abs(limits) + np.abs(matrix) @ np.abs(origin))
    return rows, limits - matrix @ origin + slack


def _inner_point(rows: Floats, limits: Floats) -> Floats | None:
    """Return a z with `rows z ≤ limits`, as far from the limits as up to 1; None if there is none."""
    n = rows.shape[1]
    norms = np.linalg.norm(rows, axis=1)
    if (limits[norms == 0] < 0).any():
        return None
    matrix = sp.csr_array(np.column_stack([rows, norms]))
    bounds = np.append(np.full(n, -INFINITY), 0.0), np.append(np.full(n, INFINITY), 1.0)
    program = LinearProgram(np.eye(n + 1)[n], matrix, np.full(limits.size, -INFINITY), limits, *bounds)
    result = solve_lp(program, ray=False)
    return result.values[:n] if result.optimal else None


def _central(rows: Floats, limits: Floats, z: Floats) -> Floats:
    """Return the z that minimises `|z|²/200 − Σ log(limits − rows z)`, from one within the limits, by Newton's method.

    It is one point whatever the basis of z is, and away from the limits; where nothing limits a direction, |z| does.
    """
    keep = np.any(rows != 0, axis=1)
    rows, slack = rows[keep], (limits - rows @ z)[keep]
    if not (slack > 0).all():
        return z
    # In units in which the first curvature is 1, it keeps its digits where some limits are much nearer than others.
    units = np.linalg.inv(np.linalg.qr(np.vstack([rows / slack[:, None], np.eye(z.size) / 10]), mode="r"))
    rows = rows @ units

    def at(_: Ints, places: Floats) -> Local:
        there = z + units @ places[0]
        left = slack - rows @ places[0]
        if not (left > 0).all():
            return Local(np.full(1, -np.inf), np.zeros((1, z.size)), np.zeros((1, z.size, z.size)))
        scaled = rows / left[:, None]
        value = np.log(left).sum() - there @ there / 200
        gradient = -scaled.sum(axis=0) - units.T @ there / 100
        return Local(np.array([value]), gradient[None], (scaled.T @ scaled + units.T @ units / 100)[None])

    ends = maximize_many(at, np.zeros((1, z.size)), gain=5e-21, max_steps=100, halving=True, secant=False)
    moved: Floats = z + units @ ends.places[0]
    return moved


def contradiction(problem: Problem, discounts: Floats, temperatures: Floats, restrictions: tuple[Floats, Floats]) -> str:
    """Return the sentence that names what contradicts: the restrictions among themselves, or some of them and the policies."""
    (matrix, limits), alone = restrictions, True
    involved = _least_contradiction(matrix, limits)
    if not involved:
        alone, involved = (
            False,
            _least_contradiction(*_restricted(*explaining_rewards(problem, discounts, temperatures), restrictions)),
        )
    said = " and ".join(_said(matrix[i], float(limits[i]), problem.parameter_names) for i in involved[:6])
    said += f" and {len(involved) - 6} more" if len(involved) > 6 else ""
    if alone:
        return f"the restrictions contradict each other: no reward has {said}"
    return f"the restrictions contradict the policies: no reward that explains the experts has {said}"


def _least_contradiction(rows: Floats, limits: Floats) -> list[int]:
    """Return restrictions that no z meets together, none of which can be spared; empty if all can be met."""

    def fails(kept: list[int]) -> bool:
        return _inner_point(rows[kept], limits[kept]) is None

    kept = list(range(len(limits)))
    if not fails(kept):
        return []
    size = max(1, len(kept) // 2)
    while True:  # leave out ever smaller runs of restrictions as long as the others still contradict
        start = 0
        while start < len(kept):
            others = kept[:start] + kept[start + size :]
            if fails(others):
                kept = others
            else:
                start += size
        if size == 1:
            return kept
        size = max(1, size // 2)
