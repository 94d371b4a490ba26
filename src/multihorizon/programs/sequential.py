"""The default search of the LP solvers: climbs from several starts, in the order of horizons that promises most.

The first start is the best of rough climbs in the orders that `orders.py` ranks, as long as they can still catch up with the
best. The others are a scrambled Sobol sequence, put in the order that won; they keep it. With an l1 weight the climbs are made
without it first: θ = 0 is optimal on whole regions of Γ if the weight is large, and a climb that starts there sees no slope.

It is a local search. That all starts agree says that they found the same hill of one order, not that there is no higher one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Floats, as_count, as_positive
from multihorizon.programs.bases import Bases
from multihorizon.programs.climb import Ascent, Climber, EvaluationLog
from multihorizon.programs.inner import Evaluation, Inner
from multihorizon.programs.orders import ROUGH_STEPS, ROUGH_TOLERANCE, in_order, starts_by_order
from multihorizon.progress import Progress, silent
from multihorizon.search import Objective, SearchResult
from multihorizon.solution import Trace


@dataclass(frozen=True)
class SequentialLP:
    """Trust-region sequential linear programming from `starts` points; the default search of the LP solvers."""

    starts: int = 8
    tolerance: float = 1e-9
    max_steps: int = 200

    def __post_init__(self) -> None:
        as_count(self.starts, "starts")
        as_count(self.max_steps, "max_steps")
        as_positive(self.tolerance, "tolerance")

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> SearchResult:
        """Climb from every start; the trace holds all evaluations in order, the evidence what each start reached.

        Experts are sorted by what they choose, so that the same programs are solved however they are listed.
        """
        if not isinstance(objective, Inner):
            raise ValueError("SequentialLP needs the linear programs of MPLP or NaiveLP, received another objective")
        experts = objective.margins.by_choices
        sorted_inner = replace(objective, margins=objective.margins.of(experts), _bases=Bases())
        log, ascents, evaluations = self._climbs(sorted_inner, seed, progress)
        places = np.argsort(experts)
        trace = Trace(np.array(log.discounts)[:, places], np.array(log.values), np.array(log.seconds))
        starts = [
            {
                "objective": ascent.top.objective,
                "discounts": ascent.top.discounts[places].tolist(),
                "evaluations": count,
                "converged": ascent.converged,
            }
            for ascent, count in zip(ascents, evaluations, strict=True)
        ]
        best = int(np.argmax([-np.inf if ascent.top.failed else ascent.top.objective for ascent in ascents]))
        return SearchResult(trace, {"starts": starts}, ascents[best].converged, log.failures)

    def _climbs(self, inner: Inner, seed: int, progress: Progress) -> tuple[EvaluationLog, list[Ascent], list[int]]:
        """All climbs, with the log of evaluations and how many of them each start took."""
        log = EvaluationLog()
        plain, apart = (inner, log) if inner.l1 == 0 else (replace(inner, l1=0.0, _bases=Bases()), EvaluationLog())
        climber = Climber(self.tolerance, self.max_steps)
        first = self._survey(plain, apart)
        tops: list[Ascent] = []
        ascents: list[Ascent] = []
        counts = [0]
        for number, start in enumerate([first.discounts, *self._other_starts(first, inner.margins.limits, seed)], start=1):
            tops.append(climber.ascend(plain, apart, first if number == 1 else apart.evaluate(plain, start), known=tops))
            ascents.append(tops[-1])
            if plain is not inner:
                begin = log.evaluate(inner, tops[-1].top.discounts)
                ascents[-1] = climber.ascend(inner, log, begin, known=ascents[:-1])
            counts.append(len(log.values))
            best = np.fmax.reduce(log.values)
            progress(number / self.starts, f"sequential LP: start {number} of {self.starts}, best {best:.6g}")
        log.failures += 0 if apart is log else apart.n_failed
        return log, ascents, np.diff(counts).tolist()

    def _survey(self, plain: Inner, log: EvaluationLog) -> Evaluation:
        """The best of rough climbs in every order worth one, each as long as it can catch up with the best so far."""
        climber = Climber(max(ROUGH_TOLERANCE, self.tolerance), min(ROUGH_STEPS, self.max_steps), keep_order=False)
        first, *others = starts_by_order(plain, log)
        best = climber.ascend(plain, log, log.evaluate(plain, first)).top
        for gamma in others:
            top = climber.ascend(plain, log, log.evaluate(plain, gamma), rival=best.objective).top
            best = top if best.failed or top.objective > best.objective else best
        return best

    def _other_starts(self, first: Evaluation, limits: Floats, seed: int) -> list[Floats]:
        """Points of a Sobol sequence in the order of the first start."""
        order = np.argsort(first.discounts, kind="stable")
        points = qmc.Sobol(limits.size, seed=seed).random_base2(int(np.ceil(np.log2(self.starts))))
        return [in_order(point, order, limits) for point in points[: self.starts - 1]]
