"""Do the experts plan equally far? Likelihood-ratio tests that discounts are shared.

Under the hypothesis that some experts have one discount, the likelihood is maximised again with that one; twice the loss of
log-likelihood is χ² with as many degrees of freedom as the Fisher information loses in rank: one for a pair where everything is
identified, and possibly more where it is not, because experts with one discount must then act alike. Where no rank is lost there
is no test and the p-value is NaN. Where a shared discount lies on a bound the true distribution is smaller than χ², and the test
is conservative.

Pairwise p-values come with Holm's correction for testing all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import chi2

from multihorizon.ascent import Climb, climb
from multihorizon.checks import Floats
from multihorizon.likelihood import Likelihood, Point
from multihorizon.progress import Progress, silent
from multihorizon.solution import Solution
from multihorizon.starts import choice_probability_start
from multihorizon.uncertainty import Precision, precision, resume

#: A loss of log-likelihood beyond which the hypothesis is rejected whatever further steps would gain (p < 1e-20).
HOPELESS = 100.0


@dataclass(frozen=True)
class SharedDiscountTest:
    """A test that these experts have one discount: `statistic` is χ² with `degrees`; `adjusted` is Holm's p-value."""

    experts: tuple[str, ...]
    discount: float
    statistic: float
    degrees: int
    p_value: float
    adjusted: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not identified."""
        values = {**vars(self), "experts": list(self.experts)}
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in values.items()}


def shared_discount_test(solution: Solution) -> SharedDiscountTest:
    """Test that all experts of a maximum-likelihood solution have one discount."""
    point = resume(solution)
    return _test(point, precision(point), tuple(range(solution.discounts.size)))


def pairwise_tests(solution: Solution, progress: Progress = silent) -> list[SharedDiscountTest]:
    """Test for each pair of experts that they have one discount, with Holm's correction."""
    point = resume(solution)
    found = precision(point)
    pairs = list(combinations(range(solution.discounts.size), 2))
    tests = []
    for number, pair in enumerate(pairs):
        tests.append(_test(point, found, pair))
        progress((number + 1) / len(pairs), f"comparing {' and '.join(tests[-1].experts)}")
    adjusted = holm(np.array([test.p_value for test in tests]))
    return [SharedDiscountTest(**{**vars(t), "adjusted": float(p)}) for t, p in zip(tests, adjusted, strict=True)]


def holm(p_values: Floats) -> Floats:
    """Holm's step-down correction; NaN stays NaN and is not counted.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
        [0.03, 0.06, 0.06]
    """
    adjusted = np.full(p_values.size, np.nan)
    order = [i for i in np.argsort(p_values) if not np.isnan(p_values[i])]
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, (len(order) - rank) * float(p_values[i]))
        adjusted[i] = min(largest, 1.0)
    return adjusted


def _test(point: Point, found: Precision, members: tuple[int, ...]) -> SharedDiscountTest:
    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    end = _restricted(point, members)
    degrees = found.rank - precision(end.point).rank
    shared = float(end.point.likelihood.discounts(end.point.x)[members[0]])
    statistic = max(0.0, 2 * (point.objective - end.point.objective))
    p_value = float(chi2.sf(statistic, degrees)) if degrees > 0 else np.nan
    return SharedDiscountTest(names, shared, statistic, degrees, p_value, p_value)


def _restricted(point: Point, members: tuple[int, ...]) -> Climb:
    """The maximum with one discount for the members, from the answer's reward and from fits to the frequencies."""
    model = point.likelihood
    first = members[0]
    merged = [first if k in members else k for k in range(model.problem.n_experts)]
    numbers = {old: new for new, old in enumerate(dict.fromkeys(merged))}
    groups = tuple(numbers[k] for k in merged)
    restricted = Likelihood(model.problem, model.per_expert_temperature, model.ridge, groups)
    discounts = model.discounts(point.x)
    shared = float(discounts[list(members)].mean())
    values = np.array([shared if old == first else discounts[old] for old in numbers])
    starts = [
        restricted.at(restricted.pack(model.reward(point.x), values, model.temperatures(point.x))),
        choice_probability_start(restricted, values),
    ]
    ends = [climb(start, max_steps=25) for start in starts if start is not None]
    best = max(ends, key=lambda end: end.point.objective)
    hopeless = point.objective - best.point.objective > HOPELESS
    return best if best.finished or hopeless else climb(best.point)
