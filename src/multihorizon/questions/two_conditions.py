"""How the horizons of the same persons under two conditions hang together: correlation, common shift, and changes that differ.

*What each condition says.* A population was fitted under each condition j by itself, `η_ij ~ N(μ_j, Σ_j)`, η = (logit γ, log
λ). With m and C the mean and covariance of η_ij given the decisions, these say about as much as

    exp(−½ ηᵀ P η + hᵀ η),      P = C^{-1} − Σ_j^{-1},    h = C^{-1} m − Σ_j^{-1} μ_j,

no more than nothing where P would be negative.

*Both together.* The four numbers v = (logit γ_A, logit γ_B, log λ_A, log λ_B) of a person are drawn from N(μ, Σ). What was seen
of all has the restricted log-likelihood

    Σ_i [−½ log det(I + P_i Σ) + ½ (h_i − P_i μ)ᵀ S_i (h_i − P_i μ) + h_iᵀ μ − ½ μᵀ P_i μ] − ½ log det Σ_i G_i,

with `S_i = (Σ^{-1} + P_i)^{-1}` and `G_i = P_i − P_i S_i P_i`, at `μ = (Σ_i G_i)^{-1} Σ_i (h_i − P_i S_i h_i)`. `Σ = L Lᵀ`,
where the second row of L is `s (ρ, √(1 − ρ²))`: ρ is the correlation of logit discounts. The derivative in Σ is `½ Σ_i [r_i
r_iᵀ − G_i + G_i (Σ_j G_j)^{-1} G_i]` with `r_i = (I − P_i S_i)(h_i − P_i μ)`.

*Three questions*, by likelihood ratios:

* of the person: is ρ above 0? One parameter, on one side.
* of the situation: are differences of logit discounts the same for everybody, `L₂ = (L₁₁, 0)`? A difference of one's own has a
  variance, which is at its edge then, and three covariances with the rest of v: half of the mass of χ² with three degrees of
  freedom, and half with four (Stram and Lee, 1994).
* of all alike: is the difference of the means 0? Student's t with one degree of freedom less than there are persons.

The interval of ρ is where its profile is less than 1.92 below the maximum. Nothing is said of temperatures, which may correlate
or change as they like.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import chdtrc, chdtri, stdtr

from multihorizon.checks import Floats
from multihorizon.numerics.distributions import t_ppf
from multihorizon.words import LEVEL

#: The places of both logit discounts and log temperatures of the first condition, and of the second, in v.
FIRST, SECOND = np.array([0, 2]), np.array([1, 3])
#: Values of the correlation at which its profile is taken: closer to each other near the ends.
RHOS = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 41))


@dataclass(frozen=True, eq=False)
class Spread:
    """What was found of persons under one condition.

    Attributes:
        mean, covariance: of the population, `(2,)` and `(2,2)`.
        means, covariances: of η of each person given their decisions, `(n,2)` and `(n,2,2)`.
    """

    mean: Floats
    covariance: Floats
    means: Floats
    covariances: Floats

    def said(self) -> tuple[Floats, Floats]:
        """P `(n,2,2)` and h `(n,2)`, with η counted from the population's mean."""
        root = np.linalg.cholesky(self.covariance)
        inverse = np.linalg.inv(root)
        variances, vectors = np.linalg.eigh(inverse @ self.covariances @ inverse.T)
        precise = 1 / np.maximum(variances, 1e-12)
        along = vectors.transpose(0, 2, 1) @ inverse
        away = (along @ (self.means - self.mean)[:, :, None])[:, :, 0]
        gained = np.maximum(precise - 1.0, 0.0)
        weight = np.where(gained > 0, precise * away, 0.0)
        return along.transpose(0, 2, 1) @ (gained[:, :, None] * along), (along.transpose(0, 2, 1) @ weight[:, :, None])[:, :, 0]


class Together(NamedTuple):
    """How logit discounts under one condition and another hang together; NaN where it is not known.

    Attributes:
        origin, target: the conditions.
        correlation, correlation_low, correlation_high: with a 95 % interval.
        p_person: of "horizons under one say nothing of those under the other".
        shift, shift_error, shift_low, shift_high, p_shift: by how much the logit discounts of all change, and "by nothing".
        apart: the standard deviation of changes between persons.
        p_apart: of "everybody changes alike".
        reason: why it is not known; empty where it is.
    """

    origin: str
    target: str
    correlation: float = np.nan
    correlation_low: float = np.nan
    correlation_high: float = np.nan
    p_person: float = np.nan
    shift: float = np.nan
    shift_error: float = np.nan
    shift_low: float = np.nan
    shift_high: float = np.nan
    p_shift: float = np.nan
    apart: float = np.nan
    p_apart: float = np.nan
    reason: str = ""


def together(origin: str, target: str, first: Spread | None, second: Spread | None) -> tuple[Together, Floats | None]:
    """How the horizons of the same persons under two conditions hang together, and by how much η of all but one of them changes,
    for each `(n,2)`; nothing is known where one condition is None."""
    if first is None or second is None:
        return Together(origin, target), None
    n = len(first.means)
    P, h = np.zeros((n, 4, 4)), np.zeros((n, 4))
    for places, spread in ((FIRST, first), (SECOND, second)):
        P[:, places[:, None], places], h[:, places] = spread.said()
    roots = [np.linalg.cholesky(spread.covariance) for spread in (first, second)]
    entries = np.array([roots[0][0, 0], roots[1][0, 0], *(0.1 * roots[0][1, 1] * np.ones(5)), roots[0][1, 1], roots[1][1, 1]])
    starts = entries[[0, 1, 2, 3, 7, 4, 5, 6, 8]]
    ask = partial(_best, P, h)
    # the profile of ρ from the middle to either end, each from the last
    values, found = np.empty(RHOS.size), [starts] * RHOS.size
    middle = RHOS.size // 2
    for order in (range(middle, RHOS.size), range(middle, -1, -1)):
        at = starts
        for k in order:
            values[k], at = ask(at, rho=RHOS[k])
            found[k] = at
    top = int(np.argmax(values))
    best = values[top]
    rho, root = RHOS[top], _root(found[top], RHOS[top])
    alike = ask(np.delete(found[-1], 1), rho=None)[0]
    best = max(best, alike)
    inside = np.flatnonzero(values > best - 0.5 * chdtri(1, 1 - LEVEL))
    gain = 2 * (best - values[middle])
    p_person = 0.5 * float(chdtrc(1, gain)) if rho > 0 else 1 - 0.5 * float(chdtrc(1, gain))
    loss = max(2 * (best - alike), 0.0)
    G, kept = _kept(P, root)
    precision, weighted = G.sum(axis=0), (kept @ h[:, :, None])[:, :, 0]

    def moved(without: Floats, of: Floats) -> Floats:
        """The difference of the means, with these sums of G and of (I − P S) h."""
        mu = np.linalg.pinv(without, hermitian=True) @ of
        change: Floats = second.mean - first.mean + mu[SECOND] - mu[FIRST]
        return change

    shift = float(moved(precision, weighted.sum(axis=0))[0])
    others = np.array([moved(precision - own, weighted.sum(axis=0) - each) for own, each in zip(G, weighted, strict=True)])
    apart = np.array([-1.0, 1.0, 0.0, 0.0])
    error = float(np.sqrt(apart @ np.linalg.pinv(precision) @ apart))
    reach = float(t_ppf((1 + LEVEL) / 2, n - 1)) * error
    said = Together(
        origin,
        target,
        float(rho),
        float(RHOS[inside[0]]) if inside.size else float(rho),
        float(RHOS[inside[-1]]) if inside.size else float(rho),
        p_person,
        shift,
        error,
        shift - reach,
        shift + reach,
        2 * float(stdtr(n - 1, -abs(shift) / error)),
        float(np.linalg.norm(root[1] - root[0])),
        float(0.5 * chdtrc(3, loss) + 0.5 * chdtrc(4, loss)),
    )
    return said, others


def _root(z: Floats, rho: float | None) -> Floats:
    """L from its entries: those of the first row, of the second (none where everybody changes alike), and of the others."""
    root = np.zeros((4, 4))
    root[0, 0] = z[0]
    rest = z[1:]
    if rho is None:
        root[1, 0] = z[0]
    else:
        root[1, :2] = z[1] * np.array([rho, np.sqrt(1 - rho**2)])
        rest = z[2:]
    root[2, :3], root[3] = rest[:3], rest[3:]
    return root


def _kept(P: Floats, root: Floats) -> tuple[Floats, Floats]:
    """G_i `(n,4,4)` and `I − P_i S_i`; Σ may be singular."""
    kept = np.linalg.inv(np.eye(4) + P @ root @ root.T).astype(np.float64)
    G: Floats = kept @ P
    return G, kept


def _best(P: Floats, h: Floats, start: Floats, rho: float | None) -> tuple[float, Floats]:
    """The largest restricted log-likelihood at a correlation, or where everybody changes alike, and where it is."""

    def loss(z: Floats) -> tuple[float, Floats]:
        root = _root(z, rho)
        G, kept = _kept(P, root)
        precision = G.sum(axis=0) + 1e-9 * np.eye(4)
        inverse = np.linalg.inv(precision)
        mu = inverse @ (kept @ h[:, :, None]).sum(axis=0)[:, 0]
        rest = h - P @ mu
        r = (kept @ rest[:, :, None])[:, :, 0]
        S = root @ root.T @ kept
        logs = np.linalg.slogdet(kept)[1]
        value = 0.5 * logs.sum() + 0.5 * np.einsum("ni,nij,nj->", rest, S, rest) + (h @ mu).sum()
        value -= 0.5 * np.einsum("i,nij,j->", mu, P, mu) + 0.5 * np.linalg.slogdet(precision)[1]
        slope = r.T @ r - G.sum(axis=0) + np.einsum("nij,jk,nkl->il", G, inverse, G)
        entries = slope @ root
        if rho is None:
            moved = np.concatenate([[entries[0, 0] + entries[1, 0]], entries[2, :3], entries[3]])
        else:
            second = entries[1, 0] * rho + entries[1, 1] * np.sqrt(1 - rho**2)
            moved = np.concatenate([[entries[0, 0], second], entries[2, :3], entries[3]])
        return -float(value), -moved

    sizes = 1 if rho is None else 2  # standard deviations of logit discounts: a sign would be that of ρ
    bounds = [(0.0, None)] * sizes + [(None, None)] * (len(start) - sizes)
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8}
    )
    return -float(found.fun), found.x
