"""Penalised least squares for all actions at once: the coefficients `C_a` of predictions `ψ(s)ᵀ C_a` of what follows.

Actions share what they have in common. With `C̄` the mean of the coefficients over the actions, the C_a minimise

    Σ_a Σ_i |y_i − ψ(s_i)ᵀC_a|² + common·A·C̄ᵀRC̄ + Σ_a (C_a − C̄)ᵀ(own·R + pooling·I)(C_a − C̄),

with `CᵀRC` the squared second differences of neighbouring coefficients of splines along each coordinate. `common` smooths what
all actions lead to, `own` what sets an action apart, and `pooling` draws rare actions towards the others. With `T = own·R +
pooling·I`, `U = T − common·R`, `B_a = Σ ψψᵀ + T` and `Y_a = Σ ψ yᵀ`, the minimum is `C_a = B_a^{-1}(Y_a + U C̄)`, and its mean
gives one system for C̄:

    (I − (1/A) Σ_a B_a^{-1} U) C̄ = (1/A) Σ_a B_a^{-1} Y_a.

With all three weights at 0 this is least squares for each action alone.

*The choice.* The finer functions ψ and the weights are those that best predict every third episode from the others. First ψ and
one weight for `common` and `own`, then a larger `own`, then `pooling`. With indicators, and with functions other than splines,
nothing is smoothed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.continuous.basis import Fitted, Splines, fit_basis
from multihorizon.tables.steps import Steps

#: Added to the diagonal of B_a, relative to the mean of that of Σ ψψᵀ: only directions without data feel it.
STABILITY = 1e-9
#: Sizes of the finer splines ψ that are tried, by the number of quantities.
FINER, FINER_PAIRS = {1: (24, 40), 2: (16, 24)}, (6, 8)
#: Finer splines are not tried where all actions together would have more coefficients than this for each function of φ.
MOST_COEFFICIENTS = 4000
#: Weights that are tried: of roughness, of the roughness of what sets an action apart relative to it, and of pooling.
ROUGH, APART, POOLING = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0), (10.0, 100.0), (0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False)
class Smoothing:
    """The functions ψ of the state, their roughness `(q,q)`, and the three weights."""

    inputs: Fitted
    rough: Floats
    common: float = 0.0
    own: float = 0.0
    pooling: float = 0.0


@dataclass(frozen=True, eq=False)
class Sums:
    """`Σ ψψᵀ` `(A,q,q)` and `Σ ψ yᵀ` `(A,q,f)` over the steps with each action, and `Σ |y|²` over all."""

    grams: Floats
    loads: Floats
    square: float

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.grams - other.grams, self.loads - other.loads, self.square - other.square)

    def error(self, coefficients: Floats) -> float:
        """`Σ |y − ψᵀC_a|²` over the steps."""
        explained = np.einsum("apf,apf->", coefficients, 2 * self.loads - self.grams @ coefficients, optimize=True)
        return self.square - float(explained)


@dataclass(frozen=True, eq=False)
class System:
    """The factors of every B_a, U, and the factor of the equation for C̄; None where the actions do not share anything."""

    factors: tuple[Any, ...]
    shared: Floats
    middle: Any

    def solve(self, loads: Floats) -> Floats:
        """The coefficients `(A,q,f)` for loads `(A,q,f)`. This is a symmetric linear map of the loads."""
        alone: Floats = np.stack([la.cho_solve(f, y, check_finite=False) for f, y in zip(self.factors, loads, strict=True)])
        if self.middle is None:
            return alone
        mean = la.lu_solve(self.middle, alone.mean(axis=0), check_finite=False)
        drawn: Floats = np.stack([la.cho_solve(f, self.shared @ mean, check_finite=False) for f in self.factors])
        return alone + drawn


def step_sums(features: Sparse, action: Ints, targets: Sparse, n_actions: int) -> Sums:
    """The sums over steps with features ψ `(n,q)`, actions `(n,)` and targets y `(n,f)`."""
    grams, loads = [], []
    for a in range(n_actions):
        taken = np.flatnonzero(action == a)
        rows = features[taken]
        grams.append((rows.T @ rows).toarray())
        loads.append((rows.T @ targets[taken]).toarray())
    return Sums(np.array(grams), np.array(loads), float((targets.data**2).sum()))


def system(grams: Floats, smoothing: Smoothing) -> System:
    """Factorise the equations."""
    eye = np.eye(grams.shape[1])
    apart = smoothing.own * smoothing.rough + smoothing.pooling * eye
    shared = apart - smoothing.common * smoothing.rough
    factors = tuple(_factor(gram, apart) for gram in grams)
    if not shared.any():
        return System(factors, shared, None)
    inner = sum((la.cho_solve(f, shared, check_finite=False) for f in factors), np.zeros_like(eye))
    return System(factors, shared, la.lu_factor(eye - inner / len(factors), check_finite=False))


def _factor(gram: Floats, penalty: Floats) -> Any:
    shift = STABILITY * max(float(np.trace(gram)) / len(gram), 1e-12)
    for _ in range(10):
        try:
            return la.cho_factor(gram + penalty + shift * np.eye(len(gram)), lower=True)
        except la.LinAlgError:
            shift *= 10
    raise ValueError("the basis functions must be finite and not all alike, received ones that cannot be told apart")


def plain(basis: Fitted) -> Smoothing:
    """Least squares in the basis itself, for each action alone."""
    return Smoothing(basis, np.zeros((len(basis.names), len(basis.names))))


def choose_smoothing(steps: Steps, basis: Fitted, targets: Sparse, held: Bools) -> Smoothing:
    """What best predicts the held-out steps; least squares in the basis itself, where it is not made of splines."""
    smooth = isinstance(basis.transformer, Splines) and basis.transformer.second_differences().any()
    if not smooth or held.all() or not held.any():
        return plain(basis)
    found = [_best_of(steps, inputs, targets, held) for inputs in _candidates(steps, basis)]
    return min(found, key=lambda pair: pair[0])[1]


def _candidates(steps: Steps, basis: Fitted) -> list[Fitted]:
    """The basis itself, and finer splines."""
    sizes = FINER.get(len(set(steps.sources)), FINER_PAIRS)
    states = np.vstack([steps.states, steps.next_states])
    splines = [Splines(size, steps.sources) for size in sizes if size > basis.transformer.size]
    finer = [fit_basis(candidate, states, steps.coordinates) for candidate in splines]
    return [basis, *(inputs for inputs in finer if len(inputs.names) * len(steps.actions) <= MOST_COEFFICIENTS)]


def _best_of(steps: Steps, inputs: Fitted, targets: Sparse, held: Bools) -> tuple[float, Smoothing]:
    """The least held-out error with these functions, and the weights that reach it."""
    features, rough = inputs(steps.states), inputs.transformer.second_differences()
    test = step_sums(features[np.flatnonzero(held)], steps.action[held], targets[np.flatnonzero(held)], len(steps.actions))
    train = step_sums(features, steps.action, targets, len(steps.actions)) - test

    def tried(options: Sequence[Smoothing]) -> list[tuple[float, Smoothing]]:
        return [(test.error(system(train.grams, option).solve(train.loads)), option) for option in options]

    best = min(tried([Smoothing(inputs, rough, w, w) for w in (0.0, *ROUGH)]), key=lambda pair: pair[0])
    apart = [replace(best[1], own=factor * best[1].common) for factor in APART if best[1].common > 0]
    best = min([best, *tried(apart)], key=lambda pair: pair[0])
    return min([best, *tried([replace(best[1], pooling=weight) for weight in POOLING])], key=lambda pair: pair[0])
