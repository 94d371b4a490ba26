"""Linear programs by HiGHS, ascent by a sequence of them, and branch and bound. No other module imports `highspy`.

A program is sparse and a maximisation,

    max  cᵀx    subject to    L ≤ A x ≤ U,   l ≤ x ≤ u,

and so is its answer: values, row duals y and reduced costs d with the signs of a maximisation, `c = Aᵀy + d`, where `y_i > 0`
only at an active upper side and `y_i < 0` only at an active lower one. The dual objective is then `Σ y⁺U + y⁻L + d⁺u + d⁻l`,
equal to the primal one at an optimum. An infeasible program comes with a Farkas ray y: `yᵀA x` must be at least
`Σ y⁺L + y⁻U` wherever the rows hold, and is below that for every x within its bounds.

The dual objective of **any** y whose signs fit bounds the optimum from above, with `d = c − Aᵀy` computed anew. So `dual_bound`
holds whatever the tolerances of HiGHS, up to the rounding of one product (Neumaier and Shcherbina 2004).

*Sequential linear programming* (`maximise`) is for functions with kinks, as SciPy's trust regions are not. At a point the
function is replaced by a linear program that is exact nearby. Its best step within the radius promises a gain. The step is
tried, and taken if the function rises. The radius then follows the ratio of the rise to the promise.

An ascent has converged when the best step promises no more than `least_gain`, or when the radius is no larger than `smallest`.
A program without an answer is tried again in a quarter of the radius. An ascent that ends because of such programs has not
converged.

*Branch and bound.* A box stands for a part of what is searched, and its bound says how good an answer in it may be at most. The
box with the largest bound is cut into smaller ones until no bound is above what is enough, or until the work allowed is done.
Together the boxes that are left cover everything, so the largest of their bounds holds whenever the work stops (Land and Doig
1960).
"""

from __future__ import annotations

import copyreg
import heapq
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

import highspy
import numpy as np

from multihorizon.checks import Floats

INFINITY = float("inf")
#: Programs with more rows are solved by the interior point (with crossover to a vertex) unless they start from a basis.
MOST_SIMPLEX_ROWS = 2000


class LPStatus(StrEnum):
    """The end of a run of HiGHS."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"


_STATUSES = {
    highspy.HighsModelStatus.kOptimal: LPStatus.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: LPStatus.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: LPStatus.UNBOUNDED,
}


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """`max costs·x` subject to `row_lower ≤ matrix x ≤ row_upper` and `lower ≤ x ≤ upper`; `matrix` is CSR."""

    costs: Floats
    matrix: Any
    row_lower: Floats
    row_upper: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False)
class LPResult:
    """Status, optimum, values `(n,)`, row duals `(m,)`, reduced costs `(n,)`; a Farkas `ray` `(m,)` if infeasible.

    `basis` warm-starts a neighbouring program of the same shape; `detail` is HiGHS' own word for the status.
    """

    status: LPStatus
    objective: float
    values: Floats
    duals: Floats
    reduced_costs: Floats
    ray: Floats | None
    basis: Any
    detail: str

    @property
    def optimal(self) -> bool:
        """Return whether the values are an optimum."""
        return self.status == LPStatus.OPTIMAL


def solve_lp(
    program: LinearProgram,
    basis: Any = None,
    *,
    ray: bool = True,
    interior: bool = True,
    max_warm_steps: int = 1000,
    max_steps: int | None = None,
    most_simplex_rows: int = MOST_SIMPLEX_ROWS,
) -> LPResult:
    """Solve a program, from `basis` if one is given: by the simplex method, or by the interior point if large and cold.

    A program is large with more than `most_simplex_rows`; with `interior=False` the simplex method comes first at any size. No
    run takes more than `max_steps` steps of the simplex method: with numbers of very different sizes it may go round in a circle.

    A solve that HiGHS leaves open (a basis far away, presolve that cannot tell infeasible from unbounded, numbers of very
    different sizes) is repeated from scratch in other ways. The first retry is without presolve, which also yields the Farkas
    ray of an infeasible program; with `ray=False` infeasible is enough.
    """
    # The interior point, with crossover to a vertex and the primal simplex method for what is left: at that vertex rows hold and
    # some dual prices do not, and with many optimal vertices the dual simplex method needs many steps to repair them.
    large = interior and program.matrix.shape[0] > most_simplex_rows
    cold: dict[str, Any] = {"solver": "ipm", "simplex_strategy": 4} if large else {"solver": "simplex"}
    # A basis that needs more steps is too far away to help. Devex prices: the weights of the steepest edge cost more than the few
    # steps of a warm start. Nor are costs perturbed: from a near basis, undoing that takes more steps than it saves.
    warm: dict[str, Any] = {
        "solver": "simplex",
        "simplex_iteration_limit": max_warm_steps,
        "simplex_dual_edge_weight_strategy": 1,
    }
    warm["dual_simplex_cost_perturbation_multiplier"] = 0.0
    # Tried in turn, from scratch, where the first run leaves a program open; the last gives up two digits.
    retries: tuple[dict[str, Any], ...] = (
        {"presolve": "off", "solver": "simplex"},
        {"presolve": "off", "solver": "simplex", "simplex_scale_strategy": 0},
        *(() if large else ({"solver": "ipm"},)),
        {"solver": "simplex", "primal_feasibility_tolerance": 1e-7, "dual_feasibility_tolerance": 1e-7},
    )
    limit = {} if max_steps is None else {"simplex_iteration_limit": max_steps}
    solver = _run(program, cold | limit) if basis is None else _run(program, warm, basis)
    if basis is not None and solver.getModelStatus() not in _STATUSES:
        solver = _run(program, cold | limit)
    done = {highspy.HighsModelStatus.kOptimal} if ray else set(_STATUSES)
    for options in retries:
        if solver.getModelStatus() in done:
            break
        solver = _run(program, options | limit)
        done = set(_STATUSES)
    return _read(solver, ray)


def short_solve(program: LinearProgram) -> LPResult:
    """Solve a small program by the simplex method, in at most as many steps as it has rows; else it is left open."""
    return _read(_run(program, {"solver": "simplex", "simplex_iteration_limit": program.matrix.shape[0]}), ray=False)


def solve_for_duals(program: LinearProgram, basis: Any = None) -> LPResult:
    """Solve for duals that give a `dual_bound`: from `basis` if the program is small, else by the interior point and crossover.

    A large program may be left a little short of its optimum: the bound holds all the same.
    """
    if program.matrix.shape[0] <= 2 * MOST_SIMPLEX_ROWS:
        return solve_lp(program, basis, ray=False)
    return _read(_run(program, {"solver": "ipm", "presolve": "off", "simplex_iteration_limit": 1000}), ray=False)


def dual_bound(program: LinearProgram, duals: Floats) -> float:
    """Return an upper bound on the optimum from any duals, with those of the wrong sign as zero; variables need finite bounds."""
    y = np.where(np.isfinite(np.where(duals > 0, program.row_upper, program.row_lower)), duals, 0.0)
    sides = np.where(y > 0, program.row_upper, np.where(y < 0, program.row_lower, 0.0))
    left = program.costs - program.matrix.T @ y
    return float(y @ sides + np.maximum(left * program.lower, left * program.upper).sum())


def _run(program: LinearProgram, options: dict[str, Any], basis: Any = None) -> Any:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    # One thread: programs are solved side by side by processes, and HiGHS' simplex is serial by default. Rows and dual prices may
    # be violated by 1e-9: HiGHS allows 1e-10, and one digit is left for badly scaled programs.
    always = {"output_flag": False, "threads": 1, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
    # The simplex method may go round in a circle for ever. Many times the steps that a program takes are enough to tell.
    always |= {"simplex_iteration_limit": 5000 + 50 * sum(program.matrix.shape), "ipm_iteration_limit": 1000}
    for name, value in (always | options).items():
        solver.setOptionValue(name, value)
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = program.matrix.shape
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.costs, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = program.matrix.indptr
    lp.a_matrix_.index_ = program.matrix.indices
    lp.a_matrix_.value_ = program.matrix.data
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        raise RuntimeError(f"HiGHS refused a program of {lp.num_row_} rows and {lp.num_col_} columns; please report this problem")
    if basis is not None:
        solver.setBasis(basis)
    solver.run()
    return solver


def _read(solver: Any, ray: bool) -> LPResult:
    status = solver.getModelStatus()
    solution = solver.getSolution()
    proof = None
    if ray and status == highspy.HighsModelStatus.kInfeasible:  # HiGHS may have to solve once more for it
        _, exists, direction = solver.getDualRay()
        proof = np.array(direction, dtype=np.float64) if exists else None
    return LPResult(
        status=_STATUSES.get(status, LPStatus.FAILED),
        objective=float(solver.getInfo().objective_function_value),
        values=np.array(solution.col_value, dtype=np.float64),
        duals=np.array(solution.row_dual, dtype=np.float64),
        reduced_costs=np.array(solution.col_dual, dtype=np.float64),
        ray=proof,
        basis=solver.getBasis(),
        detail=str(solver.modelStatusToString(status)),
    )


def _packed(basis: Any) -> tuple[Callable[..., Any], tuple[bytes, bytes]]:
    """Return a basis as bytes: HiGHS' own cannot go to another process."""
    return _unpacked, (bytes(map(int, basis.col_status)), bytes(map(int, basis.row_status)))


def _unpacked(columns: bytes, rows: bytes) -> Any:
    basis = highspy.HighsBasis()
    basis.col_status, basis.row_status = ([highspy.HighsBasisStatus(status) for status in part] for part in (columns, rows))
    basis.valid, basis.alien = True, False
    return basis


copyreg.pickle(highspy.HighsBasis, _packed)


# Ascent by linear programs.


Place = TypeVar("Place")


class Advance(NamedTuple):
    """The end of a step, its largest entry, the gain that its program promises, and further details for `Maximand.move`."""

    target: Floats
    length: float
    gain: float
    detail: Any = None


class Maximand(Protocol[Place]):
    """A function to maximise; a place is all that is known at one point of it."""

    def ended(self, place: Place) -> bool:
        """Say whether there is no reason to go on from here."""
        ...

    def step(self, place: Place, radius: float) -> Advance | None:
        """Return the best step of the linear program, or None where it has no answer."""
        ...

    def least_gain(self, place: Place) -> float:
        """Return the gain up to which a step is not worth taking."""
        ...

    def move(self, place: Place, step: Advance) -> tuple[Place, float]:
        """Return the place a step leads to and the rise to there; NaN where that could not be computed."""
        ...


def next_radius(radius: float, length: float, ratio: float) -> float:
    """Return a quarter of a step that failed; twice the radius, up to 1, if the step was good and filled the region."""
    if ratio < 0.1:
        return min(radius, length) / 4
    return min(1.0, 2 * radius) if ratio > 0.5 and length > 0.9 * radius else radius


def maximise(
    function: Maximand[Place],
    place: Place,
    radius: float,
    smallest: float,
    max_steps: int,
    next_radius: Callable[[float, float, float], float] = next_radius,
) -> tuple[Place, bool]:
    """Maximise from a place; return the last place, and whether the ascent converged there.

    Args:
        function: the function.
        place: where to begin.
        radius: the first radius.
        smallest: an ascent whose radius is no larger has converged.
        max_steps: the largest number of steps.
        next_radius: returns the next radius from the radius, the length of the step, and the ratio of the rise to the promise.
    """
    hindered = False
    for _ in range(max_steps):
        if function.ended(place):
            break
        if radius <= smallest:
            return place, not hindered
        step = function.step(place, radius)
        if step is None:
            radius = radius / 4
            hindered = True
            continue
        if step.gain <= function.least_gain(place):
            return place, not hindered
        there, rise = function.move(place, step)
        ratio = -np.inf if np.isnan(rise) else rise / step.gain
        hindered = bool(np.isnan(rise)) or (hindered and not ratio > 0)
        radius = next_radius(radius, step.length, ratio)
        place = there if ratio > 0 else place
    return place, False


Box = TypeVar("Box")


def branch_and_bound(
    boxes: Iterable[Box],
    bound: Callable[[Box], float],
    cut: Callable[[Box], Iterable[Box | None]],
    enough: Callable[[], float],
    most: float = inf,
    seconds: float = inf,
) -> tuple[list[Box], int]:
    """Cut boxes until all bounds are at most `enough()`; return the boxes that are left, the largest bound first.

    The second value returned is the number of boxes that were made.

    Args:
        boxes: what is open at the start.
        bound: the bound of a box; it may fall while others are cut.
        cut: the boxes that take the place of one; None for each that needs no further look.
        enough: a bound that is good enough; it may rise while boxes are cut.
        most: how many boxes may be made.
        seconds: how long it may take.
    """
    numbers = itertools.count()
    deadline = time.perf_counter() + seconds
    made = 0
    heap = [(-bound(box), next(numbers), box) for box in boxes]
    heapq.heapify(heap)
    while heap and made < most and time.perf_counter() < deadline:
        _, number, box = heapq.heappop(heap)
        now = bound(box)
        if heap and -now > heap[0][0]:  # the bound has fallen, and another box comes first
            heapq.heappush(heap, (-now, number, box))
            continue
        if now <= enough():
            heapq.heappush(heap, (-now, number, box))
            break
        for part in cut(box):
            made += 1
            if part is not None:
                heapq.heappush(heap, (-bound(part), next(numbers), part))
    return [item[2] for item in sorted(heap, key=lambda item: item[:2])], made
