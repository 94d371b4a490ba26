"""Weak priors of a population: they hold what decisions leave open, and the solution says where they matter.

*Means.* Where every person of a group may as well have γ = 1, no maximum exists: logit γ beyond ±5 all choose alike. So the term
`−½ Σ_i (X_i b)²/(n s²)`, s = `WIDEST`, is added: it weighs as much as one person at logit 0 whose logit is known to ±s, and
moves effects that the decisions determine by a hundredth of their standard errors.

*Spread.* `½ log det Σ − ½ log det(Σ + t² I) − p log det(I + Σ/s²)` is added, t = `NARROWEST`, p the number of terms. The first
two parts keep Σ from collapsing to a singular matrix that the decisions cannot tell from a regular one; they say nothing of
deviations well above t (Chung and others, 2013, without the second part). The last part keeps Σ from running away for the same
reason as above; it says nothing of deviations well below s.

*Correlation.* `log(1 − ρ²)` is added, ρ the correlation of logit γ and log λ (Lewandowski and others, 2009, with shape 2). It
weighs as much as two persons who are known exactly and show no correlation. Without it a correlation that the decisions hardly
determine ends near ±1, and then each person's temperature seems to tell their discount.

*What they move.* With C the covariance of ψ and g the gradient of a prior, the maximum without that prior is about `C g` away.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats

#: s, the size of a logit, and of a standard deviation between persons, that weak priors allow for, and t, the least deviation.
WIDEST, NARROWEST = 5.0, 0.1


def mean_precision(design: Floats) -> Floats:
    """The precision `(p,p)` of the prior of the effects on logit γ."""
    precision: Floats = design.T @ design / (len(design) * WIDEST**2)
    return precision


def mean_prior(effects: Floats, precision: Floats) -> tuple[float, Floats]:
    """The logarithm of the prior of the effects `(p,)` on logit γ, and its gradient."""
    pull = -precision @ effects
    return 0.5 * float(effects @ pull), pull


def correlation(root: Floats) -> float:
    """ρ of a root `(2,2)` of Σ."""
    return float(root[1, 0] / np.hypot(*root[1]))


def correlation_prior(root: Floats) -> tuple[float, Floats]:
    """The logarithm of the prior of the correlation, and its gradient in log L₁₁, L₂₁ and log L₂₂."""
    rho, deviation = correlation(root), np.hypot(*root[1])
    return 2 * float(np.log(root[1, 1] / deviation)), 2 * rho * np.array([0.0, -1 / deviation, rho])


def spread_prior(root: Floats, terms: int) -> tuple[float, Floats]:
    """The logarithm of the prior of the spread, and its gradient in log L₁₁, L₂₁ and log L₂₂."""
    covariance = root @ root.T
    narrow, wide = (size**2 * np.eye(2) + covariance for size in (NARROWEST, WIDEST))
    logs = [float(np.linalg.slogdet(matrix)[1]) for matrix in (narrow, wide / WIDEST**2)]
    value = float(np.log(np.diag(root)).sum()) - 0.5 * logs[0] - terms * logs[1]
    pull = -(np.linalg.inv(narrow) + 2 * terms * np.linalg.inv(wide)) @ root
    return value, np.array([pull[0, 0] * root[0, 0] + 1, pull[1, 0], pull[1, 1] * root[1, 1] + 1])
