"""Climbing g* from one Γ by sequential linear programming in a trust region.

g*(Γ) is a linear program for fixed Γ, and Γ enters it through the bilinear `x_k = γ_k V_k` alone. At a point (θ̄, V̄, Γ̄) that
product is replaced by its linearisation

    x_k = γ̄_k V_k + V̄_k ν_k,        |ν_k| ≤ Δ,        0 ≤ γ̄_k + ν_k ≤ 1,

one linear program in (θ, x, ν) whose optimum predicts g*(Γ̄ + ν). The step is taken if the true g*, from the program at the
new Γ, is larger; Δ grows where the prediction was good and shrinks where it was not. A climb has converged when the best step in
the trust region promises less than `tolerance` of the objective, or when Δ falls below `tolerance`. A step whose program HiGHS
does not solve is tried again in a smaller region; a climb that ends because of such steps has not converged.

Most long steps lead nowhere, and that is seen cheaply: g* over all rows is at most its optimum over some of them. The rows that
have a price in the step's program and those that tell experts apart, a few in a hundred, give nearly the same optimum. A step
that they rule out is not evaluated. A climb that has all rows in Ω keeps them: it does not ask for Ω at Γ where some of them
cannot be positive, since g* over fewer rows is not comparable.

Where no reward satisfies all rows, θ = 0 is the optimum and every slope is zero. There the same steps are taken on another
program first: the worst margin (now negative) of a reward whose mean margin is 1.

The trust region is our own because its step is a linear program: g* has kinks, and SciPy's trust regions take smooth functions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.programs.highs import INFINITY, LPStatus
from multihorizon.programs.inner import Evaluation, Inner
from multihorizon.programs.model import program

#: The first trust region: half the range, so that a climb can leave the basin its start happens to lie in.
FIRST_RADIUS = 0.5
#: A climb is given up if this many steps, each with the gain that the next one promises, would not reach the rival.
STEPS_TO_RIVAL = 4.0
#: A climb this close to a higher top is on the same hill: only many short steps along the ridge are left.
SAME_HILL = 0.03
#: Dual prices below this are rounding.
PRICED = 1e-9
#: Steps shorter than this are not checked by a small program first: from a basis this near the whole costs no more.
SHORT_STEP = 0.02
#: Bound on the reward where the mean margin is held at 1; only there to keep HiGHS' numbers finite.
MEAN_BOUND = 1e5
#: Gains of the relative worst margin below this are rounding: its reward is larger than 1 by orders of magnitude.
RELATIVE_GAIN = 1e-7


@dataclass(eq=False)
class EvaluationLog:
    """All evaluations of a search in order, seconds since its start, and how many other programs HiGHS did not solve."""

    discounts: list[Floats] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    _begun: float = field(default_factory=time.perf_counter)

    @property
    def n_failed(self) -> int:
        """How many programs HiGHS did not solve."""
        return self.failures + int(np.isnan(self.values).sum())

    def evaluate(self, inner: Inner, gamma: Floats, over_all: bool = False) -> Evaluation:
        """Solve at Γ, over all rows where that is wanted, and write it down."""
        point = inner.at(gamma, over_all)
        self.discounts.append(gamma)
        self.values.append(point.objective)
        self.seconds.append(time.perf_counter() - self._begun)
        return point


@dataclass(frozen=True, eq=False)
class Ascent:
    """The top of one climb, and whether it stopped because no step promised more."""

    top: Evaluation
    converged: bool


class Step(NamedTuple):
    """Where a step leads, the g* that it promises there, and the strict rows that have a price in its program."""

    discounts: Floats
    predicted: float
    priced: Ints


@dataclass(frozen=True)
class Climber:
    """How climbs are made: to which accuracy, with how many steps, and whether the discounts keep their order."""

    tolerance: float
    max_steps: int
    keep_order: bool = True

    def ascend(
        self,
        inner: Inner,
        log: EvaluationLog,
        point: Evaluation,
        rival: float = -INFINITY,
        known: Sequence[Ascent] = (),
    ) -> Ascent:
        """Steps from one point until none promises more, or until it cannot catch up with the `rival`.

        A climb also ends when it comes close to a higher top that is `known`.
        """
        if not point.objective > 0:
            point = self._restore(inner, log, point)
        radius, hindered = FIRST_RADIUS, False
        for _ in range(self.max_steps):
            if not point.has_reward:
                break
            for other in known:
                if other.top.objective >= point.objective and _distance(other.top, point) <= SAME_HILL:
                    return other
            step = self._step(inner, point, radius)
            if step is None:
                log.failures += 1
                radius, hindered = radius / 4, True
                if radius <= self.tolerance:
                    break
                continue
            gain = step.predicted - point.objective
            if gain <= self.tolerance * abs(point.objective) or radius <= self.tolerance:
                return Ascent(point, not hindered)
            if point.objective + STEPS_TO_RIVAL * gain < rival:
                break
            length = float(np.abs(step.discounts - point.discounts).max())
            if length > SHORT_STEP and _ruled_out(inner, point, step):
                radius = _next_radius(radius, length, -INFINITY)
                continue
            there = log.evaluate(inner, step.discounts, over_all=bool(point.omega.all()))
            ratio = -INFINITY if there.failed else (there.objective - point.objective) / gain
            radius = _next_radius(radius, length, ratio)
            hindered = bool(there.failed) or (hindered and not ratio > 0)
            point = there if ratio > 0 else point
        return Ascent(point, converged=False)

    def _step(self, inner: Inner, point: Evaluation, radius: float) -> Step | None:
        """The best step of the linearised program within the trust region; None without an answer."""
        lp = program(
            inner.layout,
            point.discounts,
            point.omega,
            l1=inner.l1,
            bound=inner.bound,
            values=point.values,
            steps=_step_bounds(inner, point.discounts, radius),
            # Sums of margins do not need the experts to be told apart: for them no order is a hill of its own.
            keep_order=self.keep_order and inner.objective == "worst",
        )
        result = inner.solve("step", lp, point.discounts, like="objective")
        if not result.optimal:
            return None
        target = _moved(inner, point.discounts, result.values[inner.layout.columns.steps])
        return Step(target, result.objective, np.flatnonzero(np.abs(result.duals[inner.layout.rows.strict]) > PRICED))

    def _restore(self, inner: Inner, log: EvaluationLog, point: Evaluation) -> Evaluation:
        """Steps on the worst margin relative to the mean one, until g* is positive or no step promises more."""
        gamma, radius = point.discounts, FIRST_RADIUS
        worst, values = relative_margin(inner, gamma, log)
        for _ in range(self.max_steps):
            if not worst > -INFINITY or radius <= self.tolerance:
                break
            target, predicted = self._relative_step(inner, gamma, values, radius, log)
            gain = predicted - worst
            if gain <= RELATIVE_GAIN * max(1.0, abs(worst)):
                break
            reached, there = relative_margin(inner, target, log)
            ratio = (reached - worst) / gain
            radius = _next_radius(radius, float(np.abs(target - gamma).max()), ratio)
            if ratio > 0:
                gamma, worst, values = target, reached, there
                point = log.evaluate(inner, gamma)
                if point.objective > 0:
                    break
        return point

    def _relative_step(
        self, inner: Inner, gamma: Floats, values: Floats, radius: float, log: EvaluationLog
    ) -> tuple[Floats, float]:
        bounds = _step_bounds(inner, gamma, radius)
        lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=MEAN_BOUND, values=values, steps=bounds, mean=True)
        result = inner.solve("relative step", lp, gamma, like="relative")
        if not result.optimal:
            log.failures += result.status == LPStatus.FAILED
            return gamma, -INFINITY
        return _moved(inner, gamma, result.values[inner.worst.columns.steps]), result.objective


def _ruled_out(inner: Inner, point: Evaluation, step: Step) -> bool:
    """Whether a small program shows that a step leads no higher.

    The rows that tell experts apart and those with a price in the step's program bound g* from above, and nearly decide it.
    """
    if inner.objective != "worst" or not point.omega.all():
        return False
    rows = np.union1d(step.priced, inner.margins.telling)
    return inner.few(rows) and inner.ceiling(step.discounts, rows) <= point.objective


def _distance(one: Evaluation, other: Evaluation) -> float:
    return float(np.abs(one.discounts - other.discounts).max())


def relative_margin(inner: Inner, gamma: Floats, log: EvaluationLog) -> tuple[float, Floats]:
    """The largest worst margin of a reward with mean margin 1, and its values; −inf where no reward has one."""
    lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=MEAN_BOUND, mean=True)
    result = inner.solve("relative", lp, gamma)
    if not result.optimal:
        log.failures += result.status == LPStatus.FAILED
        return -INFINITY, np.zeros(inner.margins.owner.size)
    return result.objective, inner.values(inner.worst, result)


def _step_bounds(inner: Inner, gamma: Floats, radius: float) -> tuple[Floats, Floats]:
    return np.maximum(-radius, -gamma), np.minimum(radius, inner.margins.limits - gamma)


def _moved(inner: Inner, gamma: Floats, step: Floats) -> Floats:
    moved: Floats = np.clip(gamma + step, 0.0, inner.margins.limits)
    return moved


def _next_radius(radius: float, length: float, ratio: float) -> float:
    """A quarter of the step that failed; twice the region if the step was good and filled it."""
    if ratio < 0.1:
        return min(radius, length) / 4
    if ratio > 0.5 and length > 0.9 * radius:
        return min(1.0, 2 * radius)
    return radius
