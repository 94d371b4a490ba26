"""The most likely mixture of given densities, with a bound on how far it is from the maximum.

Row i has the log-likelihood `ℓ_iq` under component q. The weights w ≥ 0, `Σ w_q = 1`, maximise

    F(w) = Σ_i log f_i,   f_i = Σ_q w_q exp ℓ_iq,   with the gradient   D_q = Σ_i exp(ℓ_iq)/f_i,   Σ_q w_q D_q = n.

F is concave, and Jensen's inequality bounds what is left to gain: for any other weights v, `F(v) − F(w) = Σ log(f_i(v)/f_i) ≤
n log(Σ_q v_q D_q / n)`. So

    F(best) − F(w) ≤ gap = n log(max_q D_q / n),

which is recomputed over all rows and all components at the weights that are returned. It is 0 at the maximum and nowhere else
(Lindsay, 1983). Maxima have few components with a positive weight, however many there are to choose from.

*Newton's method on few components.* Without the constraint that weights sum to 1, `−F(w)/n + Σ w_q` has the same minimum. Its
quadratic model over w ≥ 0, with the Hessian `Σ_i R_iq R_ir / n`, `R_iq = exp(ℓ_iq)/f_i`, is solved by an active-set method, and a
line search leads to the next model (sequential quadratic programming; Kim, Carbonetto, Stephens and Anitescu, 2020).

*Which components.* The search goes in rounds. The maximum over the components at hand is found to a tenth of the tolerance. Then
one pass over all rows in blocks gives D for all components. Of those with `D_q > n` the next round takes the ones that the
quadratic model of all components asks for, and the peaks of D among components that are alike. In this model the gradient is
exact and the Hessian that of a sample of rows: it only decides where to look. A round raises F, and there are finitely many sets
of components.

Rows that share no component of weight, components that are copies of others, and likelihoods of exp(−10⁴) are no special cases:
rows are scaled by their largest likelihood, and a little curvature is added to the model. What is kept in memory is `(n,k)` for
the k components at hand. Blocks do not depend on the number of processes, and their sums are taken in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from multihorizon.checks import Floats, Ints, as_positive
from multihorizon.parallel import Run, in_parallel
from multihorizon.words import decimals, significant

#: The log-likelihoods `(rows,columns)` of some rows under some components.
LogLikelihoods = Callable[[Ints, Ints], Floats]


@dataclass(frozen=True, eq=False)
class Mixture:
    """The most likely weights, and how far they can be from the maximum.

    Attributes:
        weights: `(G,)`, at least 0, of sum 1.
        log_likelihood: F.
        gap: no weights have a log-likelihood above `log_likelihood + gap`.
        excess: `D_q/n − 1` `(G,)`: 0 where a weight is positive, at most 0 elsewhere, at the maximum.
        rows: `log f_i` `(n,)`.
        converged: whether the gap is within the tolerance.
        rounds: how many rounds it took.
    """

    weights: Floats
    log_likelihood: float
    gap: float
    excess: Floats
    rows: Floats
    converged: bool
    rounds: int


def fit_mixture(
    log_likelihoods: Floats | LogLikelihoods,
    shape: tuple[int, int] | None = None,
    tol: float = 1e-6,
    start: Floats | None = None,
    max_rounds: int = 60,
    run: Run = Run(),
) -> Mixture:
    """Maximise the likelihood of a mixture over its weights.

    Args:
        log_likelihoods: ℓ `(n,G)`, or a function of row numbers and component numbers that returns this part of ℓ. −inf stands
            for a likelihood of 0.
        shape: n and G, for a function.
        tol: the gap for each row at which the search ends.
        start: weights near the maximum `(G,)`, if some are known.
        max_rounds: the most passes over all rows; the gap shows what is left.
        run: its processes share the passes, and its progress is called after each round.

    Raises:
        ValueError: for NaN or +inf in ℓ, a row whose likelihood is 0 everywhere, or weights to start from that are none.

    Example:
        >>> import numpy as np
        >>> data, centres = np.array([-2.1, -1.9, -2.0, 3.1, 2.9]), np.linspace(-4, 4, 17)
        >>> mixture = fit_mixture(-0.5 * ((data[:, None] - centres) / 0.1) ** 2)
        >>> [(float(centre), round(float(weight), 3)) for centre, weight in zip(centres, mixture.weights) if weight > 0]
        [(-2.0, 0.6), (3.0, 0.4)]
    """
    as_positive(tol, "tol")
    if callable(log_likelihoods):
        if shape is None:
            raise ValueError("shape must be given with a function, got none")
        given: LogLikelihoods = log_likelihoods
    else:
        whole = np.asarray(log_likelihoods, dtype=np.float64)
        shape = (whole.shape[0], whole.shape[1])
        given = partial(_part_of, whole)
    n, size = shape
    if not n or not size:
        raise ValueError(f"log-likelihoods must have rows and components, got {n} and {size}")
    sample = np.unique(np.linspace(0, n - 1, min(n, 1000)).astype(np.int64))
    sampled = _likelihoods(given(sample, np.arange(size)))
    weights = np.full(size, 1.0 / size) if start is None else np.asarray(start, dtype=np.float64)
    if weights.shape != (size,) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ValueError(f"start must be {size} weights of at least 0, got {weights}")
    if start is None:
        weights = _first(sampled)
    kept = _Kept(given, n, size)
    best: Mixture | None = None
    for number in range(1, max_rounds + 1):
        kept.take(np.flatnonzero(weights))
        share = weights[kept.columns] / weights.sum() + 1e-4 / kept.columns.size
        share = _newton(kept.likelihoods, share / share.sum(), 0.1 * tol)
        weights = np.zeros(size)
        weights[kept.columns] = share
        total = kept.likelihoods @ share
        rows: Floats = kept.scale + np.log(total)
        excess = _excess(given, rows, size, run)
        mixture = Mixture(weights, float(rows.sum()), n * float(np.log1p(excess.max())), excess, rows, False, number)
        best = mixture if best is None or mixture.gap < best.gap else best
        run.progress(
            number / max_rounds,
            f"log-likelihood {decimals(mixture.log_likelihood, 2)}, at most {significant(mixture.gap, 2)} more",
        )
        if best.gap <= tol * n:
            break
        weights = weights.copy()
        weights[_wanted(sampled, weights, excess)] += 1e-9  # these columns are at hand in the next round
    assert best is not None
    return Mixture(best.weights, best.log_likelihood, best.gap, best.excess, best.rows, best.gap <= tol * n, number)


def _part_of(whole: Floats, rows: Ints, columns: Ints) -> Floats:
    part: Floats = whole[np.ix_(rows, columns)]
    return part


def _likelihoods(log: Floats) -> Floats:
    """Return exp ℓ with the largest of each row scaled to 1."""
    log = _checked(log, every=True)
    scaled: Floats = np.exp(log - log.max(axis=1, keepdims=True))
    return scaled


class _Kept:
    """The likelihoods `(n,k)` of the components at hand, each row scaled to a maximum of 1, and log scales `(n,)`."""

    def __init__(self, given: LogLikelihoods, n: int, size: int) -> None:
        self.given = given
        self.size = size
        self.columns = np.zeros(0, dtype=np.int64)
        self.likelihoods = np.zeros((n, 0))
        self.scale = np.full(n, -np.inf)

    def take(self, columns: Ints) -> None:
        """Keep these components at hand and no others, except where a row's likelihood is 0 under all: its best one is added."""
        old = np.isin(self.columns, columns)
        new = columns[~np.isin(columns, self.columns)]
        held = int(old.sum())
        n = self.scale.size
        likelihoods = np.empty((n, held + new.size))
        scale = np.empty(n)
        lost: list[Ints] = []
        for block in _blocks(n, held + new.size):
            log = _checked(self.given(block, new))
            before = self.scale[block]
            top = np.maximum(before, log.max(axis=1, initial=-np.inf))
            safe = np.where(np.isfinite(top), top, 0.0)
            part = np.concatenate(
                [self.likelihoods[block][:, old] * np.exp(before - safe)[:, None], np.exp(log - safe[:, None])], 1
            )
            most = part.max(axis=1)
            empty = ~(most > 0)
            if empty.any():
                lost.append(np.argmax(_checked(self.given(block[empty], np.arange(self.size)), every=True), axis=1))
            most[empty] = 1.0
            likelihoods[block] = part / most[:, None]
            scale[block] = np.where(empty, -np.inf, safe + np.log(most))
        self.likelihoods = likelihoods
        self.scale = scale
        self.columns = np.concatenate([self.columns[old], new])
        if lost:
            self.take(np.union1d(self.columns, np.concatenate(lost)))


def _blocks(n: int, width: int) -> list[Ints]:
    """Return the numbers of the rows, in blocks of about four million entries."""
    step = max(256, 4_000_000 // max(width, 1))
    return [np.arange(low, min(low + step, n)) for low in range(0, n, step)]


def _checked(log: Floats, every: bool = False) -> Floats:
    """Check the log-likelihoods of some rows; with `every`, of every component, of which one must be possible."""
    if not (log < np.inf).all():
        raise ValueError("log-likelihoods must be numbers below infinity, got a NaN or infinity")
    if every and (log.max(axis=1) == -np.inf).any():
        raise ValueError("every row must be possible under some component, got one whose likelihood is 0 under all")
    return log


def _excess(given: LogLikelihoods, rows: Floats, size: int, run: Run) -> Floats:
    """Return `D_q/n − 1` `(G,)` where the mixture's log-likelihoods are `rows`, by one pass over all of them."""
    blocks = [(block, rows[block]) for block in _blocks(rows.size, size)]
    total = np.zeros(size)
    for part in in_parallel(partial(_excess_in_block, given, size), blocks, run.jobs):
        total += part
    return total / rows.size


def _excess_in_block(given: LogLikelihoods, size: int, block: tuple[Ints, Floats]) -> Floats:
    ratio = _checked(given(block[0], np.arange(size))) - block[1][:, None]
    with np.errstate(over="ignore"):  # a row that the components at hand leave out has an infinite gradient
        excess: Floats = np.exp(ratio, out=ratio).sum(axis=0) - len(ratio)
    return excess


def _first(sampled: Floats) -> Floats:
    """Return weights near the maximum for a sample of rows: some steps by expectation and maximisation, then Newton's.

    The matrix of a quadratic model is dense, so that it has at most a thousand components.
    """
    weights = np.full(sampled.shape[1], 1.0 / sampled.shape[1])
    for _ in range(20):
        weights = weights * (sampled.T @ (1.0 / (sampled @ weights))) / len(sampled)
    some = np.sort(np.argsort(-weights, kind="stable")[:1000])
    start = np.zeros(weights.size)
    start[some] = _newton(sampled[:, some], weights[some] / weights[some].sum(), 1e-4)
    return start


def _wanted(sampled: Floats, weights: Floats, excess: Floats) -> Ints:
    """Return the components that the quadratic model of all asks for, and the peaks of the gradient."""
    asked = (weights > 0) | (excess > 0)
    places = np.sort(np.argsort(np.where(asked, -excess - 1e9 * (weights > 0), np.inf), kind="stable")[:1000])
    places = places[asked[places]]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(sampled[:, places] / (sampled @ weights)[:, None], nan=1.0, posinf=1e6).clip(max=1e6)
    hessian = ratio.T @ ratio / len(ratio)
    linear = hessian @ weights[places] + excess[places].clip(max=1e6)
    taken = _quadratic(hessian, linear, weights[places] > 0) > 0
    # and, among components that are alike, the one with the largest gradient: there the sample's Hessian decides nothing
    size = np.sqrt(np.diag(hessian))
    alike = hessian > 0.9 * np.outer(size, size)
    left = excess[places] > 0
    peaks = []
    while left.any():
        peaks.append(int(np.argmax(np.where(left, excess[places], -np.inf))))
        left &= ~alike[peaks[-1]]
    return np.union1d(places[taken], places[peaks])


def _newton(likelihoods: Floats, weights: Floats, tol: float) -> Floats:
    """Apply Newton's method from positive weights, until the gap over these components is at most `tol` for each row."""
    n, size = likelihoods.shape
    for _ in range(200):
        total = likelihoods @ weights
        hessian = np.zeros((size, size))
        gradient = np.zeros(size)
        for block in _blocks(n, size):
            ratio = likelihoods[block[0] : block[-1] + 1] / total[block[0] : block[-1] + 1, None]
            hessian += ratio.T @ ratio
            gradient += ratio.sum(axis=0)
        hessian, gradient = hessian / n, gradient / n
        if np.log(gradient.max()) <= tol:
            break
        step = _quadratic(hessian, hessian @ weights + gradient - 1.0, weights > 0) - weights
        promised = float(gradient @ step - step.sum())
        moved = likelihoods @ step
        share = 1.0
        here = float(np.log(total).mean() - weights.sum())
        rounded = 1e-15 * max(1.0, abs(here))  # near the maximum a gain is too small to be seen, and the step is right
        while share > 1e-12:
            reached = total + share * moved
            if reached.min() > 0:
                gain = float(np.log(reached).mean() - (weights + share * step).sum()) - here
                if gain >= 0.01 * share * promised - rounded:
                    break
            share /= 2
        else:
            break
        weights = np.maximum(weights + share * step, 0.0)
        weights = weights / weights.sum()
    return weights


def _quadratic(hessian: Floats, linear: Floats, free: Any) -> Floats:
    """Minimise `½ x'Hx − b'x` over x ≥ 0, from these free entries (Lawson and Hanson, 1974; Bro and de Jong, 1997)."""
    size = linear.size
    # Components that are copies of others leave H singular.
    curved = hessian + 1e-10 * max(float(np.trace(hessian)) / size, 1e-300) * np.eye(size)
    free = free.copy()
    x = np.zeros(size)
    last = -1
    for _ in range(10 * size + 100):
        # to the minimum over the free entries; those that reach 0 on the way are held there
        while free.any():
            places = np.flatnonzero(free)
            wanted = cho_solve(cho_factor(curved[np.ix_(places, places)]), linear[places])
            if (wanted > 0).all():
                x = np.zeros(size)
                x[places] = wanted
                break
            falls = wanted <= 0
            reach = x[places][falls] / np.maximum(x[places][falls] - wanted[falls], 1e-300)
            share = float(reach.min())
            moved = x[places] + share * (wanted - x[places])
            moved[np.flatnonzero(falls)[reach <= share]] = 0.0
            x = np.zeros(size)
            x[places] = np.maximum(moved, 0.0)
            free[places[x[places] <= 0]] = False
        pull = np.where(free, 0.0, linear - curved @ x)
        if pull.max(initial=0.0) <= 1e-12 * max(float(np.abs(linear).max()), 1.0):
            break
        if pull[added := int(np.argmax(pull))] and added == last:  # rounding decides from here on
            break
        free[added] = True
        last = added
    return x
