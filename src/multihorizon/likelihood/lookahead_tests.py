"""Tests between families of look-ahead.

*Nested.* Every family lies within free weights: twice the gain of log-likelihood is tested against χ² with as many degrees of
freedom as weights are given up. Two tests are on the safe side. A depth gives up all weights, which then sit on bounds; and β ≤ 1
is a bound, so a quasi-hyperbolic person is counted as if β were given up.

*Not nested.* Vuong's test (1989) compares a family with the one of the lowest AIC. With `m = log π_f − log π_g` of each decision,
`(Σ m − c) / √(Σ (m − m̄)²)` is standard normal where both are equally far from the truth. Parameters that are not needed raise
the log-likelihood by ½ each, and by less where bounds hold them, so c lies between 0 and `(p_f − p_g)/2`; the nearest to Σ m is
taken.

Where a climb did not end, nothing is tested: statistic and p-value are NaN.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, norm

from multihorizon.likelihood.lookahead_fit import LookaheadFit
from multihorizon.likelihood.lookahead_solution import lookahead_counts
from multihorizon.lookahead import Exponential, FreeWeights, Lookahead, QuasiHyperbolic

#: AICs that differ by no more than this are equal: climbs end within it.
SAME_AIC = 1e-6


def same_family(fit: LookaheadFit, other: LookaheadFit) -> bool:
    """Whether two families are one in this task: with at most two steps all but depths are free to choose the only weight."""
    return fit.model.steps <= 2 and fit.depth_profile is None and other.depth_profile is None


def nested_test(fit: LookaheadFit, wider: LookaheadFit) -> tuple[float, int, float]:
    """The likelihood-ratio test of a family within a wider one: statistic, degrees of freedom, p-value; NaN for the same."""
    if fit is wider or not _ended(fit, wider):
        return np.nan, 0, np.nan
    most = {"depth": 0, "quasi-hyperbolic": 1}.get(fit.model.family.name, fit.model.n_coordinates)
    degrees = sum(wide - min(most, own) for wide, own in zip(*map(lookahead_counts, (wider.model, fit.model)), strict=True))
    statistic = max(0.0, 2 * (wider.point.objective - fit.point.objective))
    return statistic, degrees, float(chi2.sf(statistic, degrees)) if degrees else 1.0


def best_test(fit: LookaheadFit, best: LookaheadFit, more: int) -> float:
    """The p-value of "as good as the best", by the likelihood ratio where one family contains the other, else by Vuong's test."""
    if fit is best or same_family(fit, best):
        return 1.0
    if not _ended(fit, best):
        return np.nan
    for narrow, wide in ((fit, best), (best, fit)):
        if _contains(wide.model.family, narrow.model.family):
            return nested_test(narrow, wide)[2]
    gained, spread = log_ratio(fit, best)
    low, high = min(0.0, more / 2), max(0.0, more / 2)
    beyond = gained - min(max(gained, low), high)
    return float(2 * norm.sf(abs(beyond) / spread)) if spread > 0 else 1.0


def _ended(*fits: LookaheadFit) -> bool:
    return all(fit.ascent.finished for fit in fits)


def _contains(wide: Lookahead, narrow: Lookahead) -> bool:
    return isinstance(wide, FreeWeights) or (isinstance(wide, QuasiHyperbolic) and isinstance(narrow, Exponential))


def log_ratio(fit: LookaheadFit, other: LookaheadFit) -> tuple[float, float]:
    """The sum of `log π_f − log π_g` over all decisions, and the standard deviation of that sum."""
    total = squares = 0.0
    for batch, one, two in zip(fit.model.batches, fit.point.plans, other.point.plans, strict=True):
        ratio = one.finite_log - two.finite_log
        total += float((batch.counts * ratio).sum())
        squares += float((batch.counts * ratio**2).sum())
    return total, float(np.sqrt(max(0.0, squares - total**2 / fit.model.decisions)))
