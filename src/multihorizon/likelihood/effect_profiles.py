"""Intervals and tests of effects that the decisions hardly bound, by the profile likelihood.

Where all persons of a group may as well plan for ever, the likelihood of their mean rises towards a limit and stays there. An
interval that is symmetric around the estimate is then wrong at both ends, and the further the estimate runs away, the less it
seems to differ from 0 (Hauck and Donner, 1977). The profile likelihood has neither fault: with l(v) the maximum over all other
parameters where the effect is v, and l the maximum over all,

    r(v) = √(2 (l − l(v)))

is compared with Student's t, as the estimate over its standard error is elsewhere. The end of an interval is where r(v) is its
quantile. It is found by the secant method, and each maximum starts from the last. Where the decisions do not bound an effect, the
weak prior does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import t

from multihorizon.checks import Floats
from multihorizon.likelihood.marginal_ascent import Maximum, maximum_at

#: How near r must come to the quantile, and the most maxima on the way to an end.
NEAR, MAX_POINTS = 0.02, 30
#: The longest step outwards.
LONGEST_STEP = 1.5


@dataclass(frozen=True, eq=False)
class EffectProfile:
    """The profile of ψ_j around the maximum `found`, whose parameters have this covariance."""

    found: Maximum
    j: int
    covariance: Floats
    degrees: int

    @cached_property
    def top(self) -> Maximum:
        """The maximum, with as many nodes as the maxima that it is compared with."""
        return self._at(self.found, float(self.found.psi[self.j]))

    def interval(self, level: float) -> tuple[float, float]:
        """Both ends; NaN where a maximum on the way did not finish."""
        quantile = float(t.ppf(0.5 + level / 2, self.degrees))
        return self._end(-1.0, quantile), self._end(1.0, quantile)

    def p_value(self) -> float:
        """Of the test that the effect is 0."""
        at, centre = self.top, float(self.top.psi[self.j])
        for share in np.linspace(1, 0, 2 + int(abs(centre) / LONGEST_STEP))[1:]:
            at = self._at(at, share * centre)
        return float(2 * t.sf(self._root(at), self.degrees))

    @property
    def _error(self) -> float:
        return float(np.sqrt(self.covariance[self.j, self.j]))

    def _at(self, start: Maximum, value: float) -> Maximum:
        return maximum_at(start, self.j, value, self.covariance[:, self.j] / self.covariance[self.j, self.j])

    def _root(self, at: Maximum) -> float:
        """r; NaN where the maximum did not finish."""
        gap = self.top.value.objective - at.value.objective
        return float(np.sqrt(2 * max(gap, 0.0))) if at.finished and self.top.finished else np.nan

    def _end(self, sign: float, quantile: float) -> float:
        inside, reached = self.top, 0.0
        step = min(self._error, LONGEST_STEP)
        for _ in range(MAX_POINTS):
            at = self._at(inside, float(inside.psi[self.j]) + sign * step)
            root = self._root(at)
            if not root > reached or abs(root - quantile) <= NEAR:
                return float(at.psi[self.j]) if root > reached else np.nan
            missing = step * (quantile - reached) / (root - reached)
            if root > quantile:
                step = missing
            else:
                inside, reached, step = at, root, min(missing - step, LONGEST_STEP)
        return np.nan
