"""What is known of each person where the spread between persons is itself only estimated.

With few persons or few decisions the spread `S = (log L₁₁, L₂₁, log L₂₂)` is hardly known. Taking its most likely value for the
truth makes intervals of persons too narrow. So the shares P_iq of the nodes (`marginal.py`) are averaged over S:

    P̄_iq = Σ_k v_k P_iq(ψ_k) / Σ_k v_k,    ψ_k = ψ̂ + M z_k,    v_k = w_k exp(l(ψ_k) − l(ψ̂) + ½|z_k|²) f(S_k)/f(Ŝ),

with Gauss–Hermite places z_k and weights w_k in three dimensions, and l the objective, which is restricted to the spread already.
`M = C_·S C_S^{-1/2}`, C the covariance of all but the reward, moves the effects along with the spread. Reward and nodes stay
where they are, so nothing is planned anew. `f = σ_γ (1 − ρ²)` makes the density of S flat in both standard deviations and in the
correlation, but for the weak priors that are part of l. Where nodes are too coarse for a small spread, l may come out above its
maximum; such places do not count.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.marginal_ascent import Maximum, covariance_of

#: Places for log L₁₁, which is known least, L₂₁ and log L₂₂.
PLACES = (7, 5, 5)
#: Directions of the spread with a variance below this share of the largest are not moved along.
LEAST_VARIANCE = 1e-12


def averaged_shares(found: Maximum) -> Floats:
    """P̄ `(n,Q)`."""
    moves, layout = spread_moves(found), found.marginal.layout
    total, weight = np.zeros_like(found.value.shares), 0.0
    here = found.value.objective + _log_flat(layout.unpack(found.psi).root)
    for z, share in _places():
        psi = found.psi + moves @ z
        value = found.marginal.at(psi)
        if value is not None and value.objective <= found.value.objective:
            density = share * float(np.exp(value.objective + _log_flat(layout.unpack(psi).root) - here + 0.5 * z @ z))
            total, weight = total + density * value.shares, weight + density
    shares: Floats = total / weight
    return shares


def spread_moves(found: Maximum) -> Floats:
    """M `(size,3)`: how ψ moves with the spread, in its standard errors, where the reward stays."""
    layout = found.marginal.layout
    rest = slice(layout.free.size, layout.size)
    along = covariance_of(found.information[rest, rest])[0][:, -3:]
    variances, vectors = np.linalg.eigh(along[-3:])
    kept = variances > LEAST_VARIANCE * variances.max()
    moves = np.zeros((layout.size, 3))
    moves[rest] = along @ (vectors[:, kept] / np.sqrt(variances[kept])) @ vectors[:, kept].T
    return moves


def covariance_at_spread(found: Maximum, covariance: Floats) -> Floats:
    """What is left of the covariance of ψ where the spread is given: `C − M Mᵀ`, never negative."""
    moves = spread_moves(found)
    values, vectors = np.linalg.eigh(covariance - moves @ moves.T)
    left: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return left


def _places() -> list[tuple[Floats, float]]:
    """z `(3,)` and w of each place."""
    rules = [np.polynomial.hermite_e.hermegauss(count) for count in PLACES]
    places = product(*(zip(*rule, strict=True) for rule in rules))
    return [(np.array([z for z, _ in place]), float(np.prod([w for _, w in place]))) for place in places]


def _log_flat(root: Floats) -> float:
    """log f, `1 − ρ²` being the squared share of L₂₂ in the deviation of log λ."""
    return float(np.log(root[0, 0]) + 2 * np.log(root[1, 1] / np.hypot(*root[1])))
