"""Continuous states: basis functions, the first stage (what each action leads to), and the sieve model of choice.

*The basis* φ. Rewards and values are written as `r(s) = φ(s)ᵀθ`. By default φ are splines. A coordinate has `size` cubic
B-splines, whose knots lie half-way between equal distances and equal shares of the data; one with few distinct values has an
indicator for each of them. Products of these functions over all coordinates are the basis where there are at most 256; beyond,
the products over each pair of coordinates. The functions are local, so rows of φ are sparse, and constants are among their
combinations. Any other scikit-learn transformer will do.

*The penalty on the reward.* Decisions say little about fine ripples of the reward, because the noise of a step averages over
them. The penalty `½ κ θᵀ(R + 0.01 I)θ` holds them: `θᵀRθ` is the mean square, over value points and coordinates, of the second
difference `r(z + h) − 2 r(z) + r(z − h)`, in a unit in which R has a mean diagonal of 1. It leaves slopes and levels alone, so
it moves discounts far less than a penalty on the size of θ would.

*The first stage* `M(s,a) = E[φ(s')|s,a]` is by default penalised least squares on functions ψ(s): `M(s,a) = ψ(s)ᵀ C_a`. What
follows a state is often finer than φ can say: a fast car is soon far away, so φ(s') changes quickly with s although φ is
smooth. So ψ are finer splines than φ where these predict better. Where steps end the episode for good, the part that goes on,
`E[φ(s') 1(s' not terminal)|s,a] = ψ(s)ᵀ E_a`, is regressed as well: rewards are paid on arrival, values only where there is a
future. Actions share what they have in common. With `C̄` the mean of the coefficients over the actions, the C_a minimise

    Σ_a Σ_i |y_i − ψ(s_i)ᵀC_a|² + common·A·C̄ᵀRC̄ + Σ_a (C_a − C̄)ᵀ(own·R + pooling·I)(C_a − C̄),

with `CᵀRC` the squared second differences of neighbouring coefficients of splines along each coordinate. `common` smooths what
all actions lead to, `own` what sets an action apart, and `pooling` draws rare actions towards the others. With
`T = own·R + pooling·I`, `U = T − common·R`, `B_a = Σ ψψᵀ + T` and `Y_a = Σ ψ yᵀ`, the minimum is `C_a = B_a^{-1}(Y_a + U C̄)`,
and its mean gives one system for C̄: `(I − (1/A) Σ_a B_a^{-1} U) C̄ = (1/A) Σ_a B_a^{-1} Y_a`. ψ and the weights are those that
best predict every third episode from the others. With indicators, and with functions other than splines, ψ is φ and all weights
are 0.

*Where an outcome is unknown.* With `G_a = Σ φ(s_i) φ(s_i)ᵀ` over the steps with action a, the leverage `φ(s)ᵀ G_a^{-1} φ(s)` is
the variance of a prediction by least squares in units of the variance of one step. Above 1 the data say less about action a at
s than one step there would, and the action counts as not available there. With indicators these are exactly the actions that
nobody took in a state.

Any scikit-learn regressor that predicts several numbers may take the place of least squares. It sees the state and an indicator
of each action, and no action is ruled out anywhere.

*The model* is of choices in sampled states, whose rewards and values are combinations of the basis functions:

    L = Σ_k Σ_i log π_k(a_i|s_i),   λ_k log π_k(a|s) = Q_k(s,a) − V_k(s),   Q_k(s,a) = X_a(s) (C_a θ + γ_k E_a v_k),

with C and E the first stage's coefficients of what is paid and what goes on, and X_a its rows The coefficients
v_k of expert k's values are the least-squares fit of `V_k(z) = λ log Σ_a exp(Q_k(z,a)/λ)` to the basis over the *value points*
z: distinct next states of the log, at most 4000 of them, chosen evenly by their distance from the centre, so that no order of
rows or columns matters.

*A plan* solves `v = H V`, H the projection on the basis, by Newton's method. The derivative of the right-hand side is
`γ H Σ_a π_a E_a`, so a step is one dense solve of the size of the basis. It ends when the equation holds to 1e-11 of the
values; it is given up after 60 steps, and where a value is not finite.

*Derivatives* are exact, through the projected values. x = (θ, γ, log λ). Backwards: with `G = (N − π)/λ` the weights on the
coefficients of action a are `X_aᵀ G_a`; they go to θ and γ directly, and to v and from there through one adjoint solve per
expert. Forwards: where the coefficients of Q have derivatives D `(A,p,q)`, the information is `Dᵀ W D` with
`W_ab = Σ_i X_a(s_i)ᵀ [π_a δ_ab − π_a π_b] X_b(s_i)`. Where all actions have the same sparse rows, the products of each row's
entries are laid out once, as one sparse matrix `(p²,n)`, and W is a product of it with the weights of the A(A+1)/2 pairs of
actions. Local functions make this many times faster than dense products. Elsewhere, and where W has more entries than there are
decisions to fill them, the rows of `X_a D_a` are formed and multiplied, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement
from typing import Any, Self, final

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.interpolate import BSpline
from sklearn.base import BaseEstimator, TransformerMixin, clone

from multihorizon.checks import Bools, Floats, Ints, Sparse, as_count
from multihorizon.choice.model import ChoiceModel, ChoicePoint, Quadratic
from multihorizon.choice.plans import Choices
from multihorizon.choice.settings import Settings
from multihorizon.data.steps import Steps
from multihorizon.planning.plan import log_policies
from multihorizon.problem import SampledProblem
from multihorizon.words import significant


class Splines(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Products of B-splines, as a scikit-learn transformer with sparse output.

    Args:
        size: functions per coordinate, at least 4.
        sources: for each column, which quantity it belongs to; columns that share one are the indicators of a category. By
            default each column is a quantity of its own.

    Example:
        >>> rows = Splines(5).fit_transform(np.random.default_rng(0).uniform(size=(100, 2)))
        >>> rows.shape, bool(np.allclose(rows.sum(axis=1), 1))
        ((100, 25), True)
    """

    def __init__(self, size: int = 8, sources: Sequence[int] | None = None) -> None:
        self.size = size
        self.sources = sources

    def fit(self, X: Any, y: Any = None) -> Splines:
        """Place the knots."""
        as_count(self.size, "size of a spline basis", least=4)
        points = np.asarray(X, dtype=np.float64)
        given = range(points.shape[1]) if self.sources is None else self.sources
        self.columns_ = [[i for i, source in enumerate(given) if source == wanted] for wanted in dict.fromkeys(given)]
        self.axes_ = [_axis(points[:, columns], self.size) for columns in self.columns_]
        sizes = [axis.size for axis in self.axes_]
        whole = np.prod([float(size) for size in sizes]) <= 256 or len(sizes) < 3
        self.products_ = [tuple(range(len(sizes)))] if whole else list(combinations(range(len(sizes)), 2))
        self.n_features_in_ = points.shape[1]
        return self

    def transform(self, X: Any) -> Sparse:
        """Return the functions at these states, `(n,p)`."""
        points = np.asarray(X, dtype=np.float64)
        local = [axis.local(points[:, columns]) for axis, columns in zip(self.axes_, self.columns_, strict=True)]
        blocks = []
        for first, *others in self.products_:
            (index, value) = local[first]
            size = self.axes_[first].size
            for i in others:
                other_index, other_value = local[i]
                index = (index[:, :, None] * self.axes_[i].size + other_index[:, None, :]).reshape(len(index), -1)
                value = (value[:, :, None] * other_value[:, None, :]).reshape(len(value), -1)
                size *= self.axes_[i].size
            starts = np.arange(0, index.size + 1, index.shape[1])
            blocks.append(sp.csr_array((value.ravel(), index.ravel(), starts), shape=(len(index), size)))
        return sp.csr_array(sp.hstack(blocks, format="csr"))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> list[str]:
        """Return where each function has its peak, as `x=0.25, y=0.5`."""
        names = input_features if input_features is not None else [f"x{i + 1}" for i in range(self.n_features_in_)]
        labels = [
            [names[c] for c in columns] if len(columns) > 1 else [f"{names[columns[0]]}={peak}" for peak in axis.peaks]
            for axis, columns in zip(self.axes_, self.columns_, strict=True)
        ]
        return [
            ", ".join(labels[i][j] for i, j in zip(places, position, strict=True))
            for places in self.products_
            for position in np.ndindex(*(self.axes_[i].size for i in places))
        ]

    def second_differences(self) -> Floats:
        """Return the matrix R `(p,p)` of the sum of squared second differences of neighbouring coefficients along each
        coordinate.

        It is zero where no coordinate has splines.
        """
        blocks = []
        for places in self.products_:
            sizes = [self.axes_[i].size for i in places]
            total = np.zeros((int(np.prod(sizes)),) * 2)
            for j, i in enumerate(places):
                if self.axes_[i].smooth:
                    second = np.diff(np.eye(sizes[j]), 2, axis=0)
                    before, after = np.eye(int(np.prod(sizes[:j]))), np.eye(int(np.prod(sizes[j + 1 :])))
                    total += np.kron(np.kron(before, second.T @ second), after)
            blocks.append(total)
        matrix: Floats = la.block_diag(*blocks)
        return matrix


@dataclass(frozen=True, eq=False)
class _Axis:
    """The functions of one quantity: cubic B-splines with these knots, or indicators that change at them."""

    knots: Floats
    peaks: tuple[str, ...]
    smooth: bool

    @property
    def size(self) -> int:
        return len(self.peaks)

    def local(self, columns: Floats) -> tuple[Ints, Floats]:
        """Return which functions are not zero at these values `(n,4)` or `(n,1)`, and what they are there; constant beyond the
        ends.
        """
        values = columns[:, 0] if columns.shape[1] == 1 else columns.argmax(axis=1)
        if not self.smooth:
            return np.searchsorted(self.knots, values)[:, None].astype(np.int64), np.ones((len(values), 1))
        matrix = BSpline.design_matrix(np.clip(values, self.knots[3], self.knots[-4]), self.knots, 3)
        return matrix.indices.reshape(-1, 4).astype(np.int64), matrix.data.reshape(-1, 4)


def _axis(values: Floats, size: int) -> _Axis:
    if values.shape[1] > 1:
        return _Axis(np.arange(values.shape[1] - 1) + 0.5, ("",) * values.shape[1], smooth=False)
    distinct = np.unique(values)
    if distinct.size <= size:  # a value in between counts as the nearest of them
        return _Axis((distinct[1:] + distinct[:-1]) / 2, tuple(significant(value, 6) for value in distinct), smooth=False)
    low, high = np.quantile(values, [0.002, 0.998])  # single states far out do not move the ends
    if low == high:
        low, high = distinct[0], distinct[-1]
    shares = np.quantile(np.clip(values, low, high), np.linspace(0, 1, size - 2))
    inner = (np.linspace(low, high, size - 2) + shares) / 2
    knots = np.concatenate([[inner[0]] * 3, inner, [inner[-1]] * 3])
    return _Axis(knots, tuple(significant(knots[i + 1 : i + 4].mean(), 4) for i in range(size)), smooth=True)


@dataclass(frozen=True, eq=False)
class FittedBasis:
    """A transformer fitted to standardised states, with a constant where it has none.

    `constant` `(p,)` are the coefficients with which the functions add up to 1 everywhere.
    """

    transformer: Any
    centre: Floats
    scale: Floats
    adds_constant: bool
    constant: Floats
    names: tuple[str, ...]

    def __call__(self, states: Floats) -> Sparse:
        """Return φ `(n,p)` at states `(n,d)`."""
        rows = sp.csr_array(self.transformer.transform((states - self.centre) / self.scale), dtype=np.float64)
        if not self.adds_constant:
            return rows
        return sp.csr_array(sp.hstack([np.ones((rows.shape[0], 1)), rows], format="csr"))


def fit_basis(transformer: Any, states: Floats, coordinates: Sequence[str]) -> FittedBasis:
    """Fit a transformer to states `(n,d)`. Splines and indicators take coordinates as they are, others standardised ones."""
    as_they_are = isinstance(transformer, Splines) or type(transformer).__name__ == "OneHotEncoder"
    centre = np.zeros(states.shape[1]) if as_they_are else states.mean(axis=0)
    spread = states.std(axis=0)
    scale = np.ones(states.shape[1]) if as_they_are else np.where(spread > 0, spread, 1.0)
    fitted = clone(transformer).fit((states - centre) / scale)
    rows = sp.csr_array(fitted.transform((states[:1000] - centre) / scale), dtype=np.float64)
    total = np.asarray(rows.sum(axis=1)).ravel()
    adds_constant = bool(np.ptp(total) > 1e-9 * np.abs(total).max(initial=1.0))
    try:
        names = [str(name) for name in fitted.get_feature_names_out(list(coordinates))]
    except (AttributeError, ValueError):
        names = []
    if len(set(names)) != rows.shape[1]:
        names = [f"function {i + 1}" for i in range(rows.shape[1])]
    names = ["constant", *names] if adds_constant else names
    constant = np.eye(1, len(names)).ravel() if adds_constant else np.full(len(names), 1 / total.mean())
    return FittedBasis(fitted, centre, scale, adds_constant, constant, tuple(names))


def roughness(basis: FittedBasis, steps: Steps, points: Floats) -> Floats:
    """Return the matrix `R + 0.01 I` `(f,f)` at up to 1000 of these points `(m,d)`.

    Coordinates with few distinct values have no second differences; where there are no others, R is the identity.
    """
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), 1000)).round().astype(np.int64)]
    size = len(basis.names)
    total = np.zeros((size, size))
    for j in range(points.shape[1]):
        if steps.sources.count(steps.sources[j]) > 1 or np.unique(points[:, j]).size <= 20:
            continue
        shift = np.zeros(points.shape[1])
        shift[j] = 0.03 * np.ptp(np.quantile(points[:, j], [0.005, 0.995]))
        second = basis(chosen + shift) - 2 * basis(chosen) + basis(chosen - shift)
        total += (second.T @ second).toarray()
    scale = float(np.trace(total)) / size
    return total / scale + 0.01 * np.eye(size) if scale > 0 else np.eye(size)


def held_out_rows(steps: Steps) -> Bools:
    """Return the rows `(N,)` of every third episode of each expert; of an expert with fewer episodes, the last third of
    the rows.
    """
    mask = np.zeros(len(steps), dtype=np.bool_)
    for k in range(len(steps.experts)):
        rows = np.flatnonzero(steps.expert == k)
        rank = np.unique(steps.episode_numbers[rows], return_inverse=True)[1]
        mask[rows] = rank % 3 == 2 if rank.max(initial=0) >= 2 else np.arange(rows.size) >= 2 * rows.size / 3
    return mask


@dataclass(frozen=True, eq=False)
class Smoothing:
    """The functions ψ of the state, their roughness `(q,q)`, and the three weights."""

    inputs: FittedBasis
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

    def error(self, coefficients: Floats) -> float:
        """Return `Σ |y − ψᵀC_a|²` over the steps."""
        explained = np.einsum("apf,apf->", coefficients, 2 * self.loads - self.grams @ coefficients, optimize=True)
        return self.square - float(explained)


def step_sums(features: Sparse, action: Ints, targets: Sparse, n_actions: int) -> Sums:
    """Return the sums over steps with features ψ `(n,q)`, actions `(n,)` and targets y `(n,f)`."""
    grams, loads = [], []
    for a in range(n_actions):
        taken = np.flatnonzero(action == a)
        rows = features[taken]
        grams.append((rows.T @ rows).toarray())
        loads.append((rows.T @ targets[taken]).toarray())
    return Sums(np.array(grams), np.array(loads), float((targets.data**2).sum()))


class SmoothedSystem:
    """The factors of every B_a, and of the equation for C̄ where actions share anything."""

    def __init__(self, grams: Floats, smoothing: Smoothing) -> None:
        eye = np.eye(grams.shape[1])
        apart = smoothing.own * smoothing.rough + smoothing.pooling * eye
        self.shared = apart - smoothing.common * smoothing.rough
        self.factors = [factorised(gram, apart) for gram in grams]
        self.middle = None
        if self.shared.any():
            inner = sum((la.cho_solve(f, self.shared, check_finite=False) for f in self.factors), np.zeros_like(eye))
            self.middle = la.lu_factor(eye - inner / len(self.factors), check_finite=False)

    def solve(self, loads: Floats) -> Floats:
        """Return the coefficients `(A,q,f)` for loads `(A,q,f)`. This is a symmetric linear map of the loads."""
        alone: Floats = np.stack([la.cho_solve(f, y, check_finite=False) for f, y in zip(self.factors, loads, strict=True)])
        if self.middle is None:
            return alone
        mean = la.lu_solve(self.middle, alone.mean(axis=0), check_finite=False)
        drawn: Floats = np.stack([la.cho_solve(f, self.shared @ mean, check_finite=False) for f in self.factors])
        return alone + drawn


def factorised(gram: Floats, penalty: Floats | float = 0.0) -> Any:
    """Return Cholesky's factor of a matrix and a penalty; what is added to the diagonal is felt only in directions without
    data.
    """
    shift = 1e-9 * max(float(np.trace(gram)) / len(gram), 1e-12)
    for _ in range(10):
        try:
            return la.cho_factor(gram + penalty + shift * np.eye(len(gram)), lower=True)
        except la.LinAlgError:
            shift *= 10
    raise ValueError("the basis functions must be finite and not all alike, got ones that cannot be distinguished")


def determined(factor: Any, features: Sparse) -> Bools:
    """Return whether the leverage of each row `(n,)` is at most 1, in the Gram matrix with this factor."""
    settled = np.empty(features.shape[0], dtype=np.bool_)
    for start in range(0, settled.size, 8192):  # blocks keep arrays small
        half = la.solve_triangular(factor[0], features[start : start + 8192].toarray().T, lower=True, check_finite=False)
        settled[start : start + 8192] = (half * half).sum(axis=0) <= 1.000001  # room for rounding
    return settled


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The default first stage: coefficients `(A,q,f)` of rewards and values in ψ, their equations, and the factors of G_a."""

    paid: Floats
    going_on: Floats
    smoothing: Smoothing
    equations: SmoothedSystem
    near: list[Any]

    def rows(self, states: Floats) -> list[Sparse]:
        """Return the matrices X_a whose products with the coefficients predict φ(s'): here ψ(s) for every action."""
        return [self.smoothing.inputs(states)] * len(self.paid)

    def available(self, features: Sparse) -> Bools:
        """Return whether each action's outcome is known in each of these states, `(A,n)`."""
        return np.stack([determined(factor, features) for factor in self.near])


@dataclass(frozen=True, eq=False)
class Regressed:
    """A first stage by another regressor, which predicts both φ(s') and its part that goes on."""

    regressor: Any
    paid: Floats
    going_on: Floats
    smoothing: None = None

    def rows(self, states: Floats) -> list[Sparse]:
        """Return the predictions for each action, as sparse matrices."""
        codes = (np.tile(code, (len(states), 1)) for code in np.eye(len(self.paid)))
        by_action = [self.regressor.predict(np.hstack([states, code])) for code in codes]
        return [sp.csr_array(np.asarray(predicted, dtype=np.float64)) for predicted in by_action]

    def available(self, features: Sparse) -> Bools:
        """Return every action, everywhere."""
        return np.ones((len(self.paid), features.shape[0]), dtype=np.bool_)


def fit_outcomes(
    steps: Steps, basis: FittedBasis, regressor: Any = None, smoothing: Smoothing | None = None
) -> LeastSquares | Regressed:
    """Regress φ(s') on state and action, over the steps whose next state is known; smoothing is chosen unless it is given."""
    seen = steps.select(steps.known_next)
    after = basis(seen.next_states)
    n_actions = len(seen.actions)
    f = after.shape[1]
    ends = bool(seen.terminated.any())
    on = sp.csr_array(sp.diags_array(1.0 * ~seen.terminated) @ after) if ends else after
    both = sp.csr_array(sp.hstack([after, on], format="csr")) if ends else after
    if regressor is not None:
        fitted = clone(regressor).fit(_coded(seen), both.toarray())
        eye = np.tile(np.eye(both.shape[1]), (n_actions, 1, 1))
        paid = eye[:, :, :f]
        return Regressed(fitted, paid, eye[:, :, f:] if ends else paid)
    chosen = smoothing or choose_smoothing(seen, basis, both, held_out_rows(seen))
    features = basis(seen.states)
    near = [factorised(gram) for gram in step_sums(features, seen.action, after, n_actions).grams]
    sums = step_sums(chosen.inputs(seen.states), seen.action, both, n_actions)
    equations = SmoothedSystem(sums.grams, chosen)
    solved = equations.solve(sums.loads)
    paid = solved[:, :, :f]
    return LeastSquares(paid, solved[:, :, f:] if ends else paid, chosen, equations, near)


def _coded(steps: Steps) -> Floats:
    """Return states and indicators of the actions taken, as a regressor sees them."""
    return np.hstack([steps.states, np.eye(len(steps.actions))[steps.action]])


def unsmoothed(basis: FittedBasis) -> Smoothing:
    """Return least squares in the basis itself, for each action alone."""
    return Smoothing(basis, np.zeros((len(basis.names), len(basis.names))))


def choose_smoothing(steps: Steps, basis: FittedBasis, targets: Sparse, held: Bools) -> Smoothing:
    """Return what best predicts the held-out steps: ψ with one weight for `common` and `own`, then a larger `own`, then
    `pooling`.
    """
    smooth = isinstance(basis.transformer, Splines) and basis.transformer.second_differences().any()
    if not smooth or held.all() or not held.any():
        return unsmoothed(basis)
    sizes = {1: (24, 40), 2: (16, 24)}.get(len(set(steps.sources)), (6, 8))
    states = np.vstack([steps.states, steps.next_states])
    splines = [Splines(size, steps.sources) for size in sizes if size > basis.transformer.size]
    finer = [fit_basis(candidate, states, steps.coordinates) for candidate in splines]
    # With more than 4000 coefficients for each function of φ, finer splines cost too much.
    tried = [basis, *(inputs for inputs in finer if len(inputs.names) * len(steps.actions) <= 4000)]
    return min((_best_weights(steps, inputs, targets, held) for inputs in tried), key=lambda pair: pair[0])[1]


def _best_weights(steps: Steps, inputs: FittedBasis, targets: Sparse, held: Bools) -> tuple[float, Smoothing]:
    """Return the least held-out error with these functions, and the weights that reach it."""
    features = inputs(steps.states)
    rough = inputs.transformer.second_differences()
    test, train = (
        step_sums(features[rows], steps.action[rows], targets[rows], len(steps.actions))
        for rows in (np.flatnonzero(held), np.flatnonzero(~held))
    )

    def tried(options: list[Smoothing]) -> list[tuple[float, Smoothing]]:
        return [(test.error(SmoothedSystem(train.grams, option).solve(train.loads)), option) for option in options]

    weights = (0.0, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    best = min(tried([Smoothing(inputs, rough, weight, weight) for weight in weights]), key=lambda pair: pair[0])
    apart = [replace(best[1], own=factor * best[1].common) for factor in (10.0, 100.0) if best[1].common > 0]
    best = min([best, *tried(apart)], key=lambda pair: pair[0])
    pooled = [replace(best[1], pooling=weight) for weight in (0.1, 1.0, 10.0, 100.0)]
    return min([best, *tried(pooled)], key=lambda pair: pair[0])


def next_state_r2(steps: Steps, held_out: Bools, smoothing: Smoothing | None = None, regressor: Any = None) -> dict[str, float]:
    """Return how much of the change of each coordinate the first stage's functions predict on held-out steps: 1 −
    error/variance.
    """
    train, test = (steps.select(steps.known_next & rows) for rows in (~held_out, held_out))
    change, actual = train.next_states - train.states, test.next_states - test.states
    if smoothing is None:
        guess = clone(regressor).fit(_coded(train), change).predict(_coded(test))
        predicted = np.asarray(guess, dtype=np.float64).reshape(len(test), -1)
    else:
        sums = step_sums(smoothing.inputs(train.states), train.action, sp.csr_array(change), len(steps.actions))
        solved = SmoothedSystem(sums.grams, smoothing).solve(sums.loads)
        features = smoothing.inputs(test.states)
        predicted = np.zeros(test.states.shape)
        for action, coefficients in enumerate(solved):
            rows = np.flatnonzero(test.action == action)
            predicted[rows] = features[rows] @ coefficients
    spread = ((actual - change.mean(axis=0)) ** 2).sum(axis=0)
    error = ((actual - predicted) ** 2).sum(axis=0)
    shares = 1 - error / np.where(spread > 0, spread, np.nan)
    return dict(zip(steps.coordinates, shares.tolist(), strict=True))


#: The largest discount that is tried: logged steps alone do not show that a task must end.
LARGEST_DISCOUNT = 0.999


@dataclass(frozen=True, eq=False)
class LoggedDecisions:
    """One expert's decisions: X_a at each (A matrices `(n,p)`), the action taken `(n,)`, and what is available `(A,n)`.

    `foreseen` `(n,)` says whether the first stage knows what the action taken leads to.
    """

    rows: list[Sparse]
    action: Ints
    available: Bools
    foreseen: Bools

    @cached_property
    def counts(self) -> Floats:
        """Return 1 for the action taken at each decision, 0 for others, `(A,n)`."""
        return np.asarray(self.action == np.arange(len(self.rows))[:, None], dtype=np.float64)

    @property
    def visits(self) -> Floats:
        """Return 1 for each decision, `(n,)`."""
        return np.ones(self.action.size)

    @cached_property
    def chance(self) -> float:
        """Return the log-likelihood of the decisions if all available actions were equally likely."""
        return -float(np.log(self.available.sum(axis=0)).sum())

    def choices(self, coefficients: Floats, lam: float) -> Floats:
        """Return `log π` `(A,n)` from the coefficients `(A,p)` of Q."""
        q = np.stack([row @ c for row, c in zip(self.rows, coefficients, strict=True)])
        return soft_values(q, self.available, lam)[1]

    def predicted(self, coefficients: Floats, lam: float) -> Floats:
        """Return the log-probability `(n,)` of decisions that the first stage has not seen, from the coefficients `(A,p)` of Q.

        Where it is not known what an action leads to, nothing is predicted of it, and its probability is that of pure chance. The
        other actions share the rest. Otherwise a basis would seem to predict the better, the more actions it rules out.
        """
        log = self.choices(coefficients, lam)
        taken = log[self.action, np.arange(self.action.size)]
        rest = self.available.sum(axis=0) / len(log)
        scores: Floats = np.where(self.foreseen, taken + np.log(rest), -np.log(len(log)))
        return scores

    def summed(self, weights: Floats) -> Floats:
        """Return `Σ_i X_a(s_i)ᵀ y_a` `(A,p)` for weights y `(A,n)`."""
        return np.stack([row.T @ y for row, y in zip(self.rows, weights, strict=True)])

    def informed(self, policy: Floats, slopes: Floats) -> Floats:
        """Return `W D` `(A,p,q)` for derivatives D `(A,p,q)` and choices π `(A,n)`."""
        n_actions, p, width = slopes.shape
        if n_actions * p * p > self.action.size * width or self._products is None:
            total = np.zeros(slopes.shape)
            for start in range(0, self.action.size, 8192):  # blocks keep arrays small
                part = slice(start, start + 8192)
                raw = [row[part] @ slope for row, slope in zip(self.rows, slopes, strict=True)]
                mean = sum(p[:, None] * r for p, r in zip(policy[:, part], raw, strict=True))
                for a, (share, r) in enumerate(zip(policy[:, part], raw, strict=True)):
                    total[a] += self.rows[a][part].T @ (share[:, None] * (r - mean))
            return total
        pairs = list(combinations_with_replacement(range(n_actions), 2))
        weights = np.stack([policy[a] * ((a == b) - policy[b]) for a, b in pairs], axis=1)
        matrix = np.empty((n_actions, p, n_actions, p))
        for (a, b), upper in zip(pairs, (self._products @ weights).T.reshape(-1, p, p), strict=True):
            matrix[a, :, b] = matrix[b, :, a] = upper + upper.T - np.diag(np.diag(upper))
        flat: Floats = matrix.reshape(n_actions * p, -1) @ slopes.reshape(-1, width)
        return flat.reshape(slopes.shape)

    @cached_property
    def _products(self) -> Sparse | None:
        """Return the products of each row's entries, `(p²,n)`; None where actions have rows of their own, or rows are too
        full.
        """
        first = self.rows[0]
        widths = np.unique(np.diff(first.indptr))
        n, p = first.shape
        if any(row is not first for row in self.rows) or widths.size != 1:
            return None
        width = int(widths[0])
        i, j = np.triu_indices(width)
        # A sparse product costs about 2.5 dense ones; matrices of more than 5000 coefficients would not fit into memory well.
        if 2.5 * i.size * (len(self.rows) + 1) >= p * p or len(self.rows) * p > 5000:
            return None
        index = first.indices.reshape(n, width).astype(np.int64)
        value = first.data.reshape(n, width)
        order = np.argsort(index, axis=1)
        index, value = np.take_along_axis(index, order, 1), np.take_along_axis(value, order, 1)
        starts = np.arange(0, n * i.size + 1, i.size)
        cells = (index[:, i] * p + index[:, j]).ravel()
        return sp.csr_array(sp.csr_array(((value[:, i] * value[:, j]).ravel(), cells, starts), shape=(n, p * p)).T)


def soft_values(q: Floats, available: Bools, lam: float) -> tuple[Floats, Floats]:
    """Return V `(m,)` and log π `(A,m)` of action values `(A,m)`."""
    log, values = log_policies(np.where(available, q, -np.inf), np.asarray(lam))
    return values, log


@dataclass(frozen=True, eq=False)
class SieveData:
    """Everything that the likelihood needs of the data: the basis, the first stage, decisions, and the value points.

    Attributes:
        expected_paid: `E[φ(s')|z,a]` at the value points, `(A,m,f)`.
        expected_on: the part of it that goes on, `(A,m,f)`.
        projection: H `(f,m)` gives coefficients from values at the points.
        points_available: whether each action is available at each point, `(A,m)`.
        point_rows: X_a at the points.
        roughness: the matrix `(f,f)` of the penalty on the reward.
    """

    basis: FittedBasis
    stage: LeastSquares | Regressed
    decisions: tuple[LoggedDecisions, ...]
    expected_paid: Floats
    expected_on: Floats
    projection: Floats
    points_available: Bools
    point_rows: list[Sparse]
    roughness: Floats

    @classmethod
    def of(cls, steps: Steps, transformer: Any, regressor: Any = None, smoothing: Smoothing | None = None) -> SieveData:
        """Fit basis and first stage to the steps, and lay out their decisions; smoothing is chosen if it is not given."""
        basis = fit_basis(transformer, np.vstack([steps.states, steps.next_states[steps.known_next]]), steps.coordinates)
        stage = fit_outcomes(steps, basis, regressor, smoothing)
        points = value_points(steps)
        features = basis(points)
        available = stage.available(basis(points))
        live = np.flatnonzero(available.any(axis=0))
        rows = [row[live] for row in stage.rows(points)]
        features = features[live]
        paid = np.stack([row @ c for row, c in zip(rows, stage.paid, strict=True)])
        on = paid if stage.going_on is stage.paid else np.stack([row @ c for row, c in zip(rows, stage.going_on, strict=True)])
        projection = la.cho_solve(factorised((features.T @ features).toarray()), features.T.toarray())
        rough = roughness(basis, steps, points)
        bare = cls(basis, stage, (), paid, on, projection, available[:, live], rows, rough)
        return replace(bare, decisions=bare.decisions_of(steps))

    def decisions_of(self, steps: Steps) -> tuple[LoggedDecisions, ...]:
        """Return each expert's decisions among steps, which may be others than those that the first stage was fitted to."""
        parts = []
        for k in range(len(steps.experts)):
            theirs = steps.select(steps.expert == k)
            available = self.stage.available(self.basis(theirs.states))
            taken = theirs.action == np.arange(len(theirs.actions))[:, None]
            foreseen = available[theirs.action, np.arange(len(theirs))]
            parts.append(LoggedDecisions(self.stage.rows(theirs.states), theirs.action, available | taken, foreseen))
        return tuple(parts)

    @property
    def functions(self) -> int:
        """Return how many basis functions there are."""
        return int(self.expected_paid.shape[2])

    @property
    def ends(self) -> bool:
        """Return whether some steps end an episode for good."""
        return self.expected_on is not self.expected_paid

    @cached_property
    def level(self) -> Floats | None:
        """Return the direction `(f,)` of θ in which a constant is added to the reward, where that changes no choice; None
        elsewhere.

        It changes none where no step ends an episode for good, and what is expected of the functions adds up to a constant too.
        """
        constant = self.basis.constant
        if self.ends or np.abs(self.expected_paid @ constant - 1).max() > 1e-5:
            return None
        return constant / np.linalg.norm(constant)


def value_points(steps: Steps, most: int = 4000) -> Floats:
    """Return distinct states `(m,d)` from which the logged steps go on, evenly chosen where there are many.

    4000 are enough that their choice moves a discount by far less than its standard error.
    """
    arrived = steps.next_states[steps.known_next & ~steps.terminated]
    distinct = np.unique(arrived if len(arrived) else steps.states, axis=0)
    if len(distinct) <= most:
        return distinct
    spread = distinct.std(axis=0)
    far = (((distinct - distinct.mean(axis=0)) / np.where(spread > 0, spread, 1.0)) ** 2).sum(axis=1)
    return distinct[np.argsort(far, kind="stable")[np.linspace(0, len(distinct) - 1, most).round().astype(np.int64)]]


@dataclass(frozen=True, eq=False)
class SampledPlan(Choices):
    """One expert's plan: coefficients v of the values, choices at the points and at the decisions, and the resolvent.

    `coefficients` `(A,p)` are those of Q in X_a; `point_policy` `(A,m)` and `point_entropy` `(m,)` are of the choices at the
    points; `log` `(A,n)` are log-probabilities at the decisions, `-inf` where an action is not available; `resolvent` is the
    factorised `I − γ H Σ_a π_a E_a`.
    """

    values: Floats
    gamma: float
    lam: float
    coefficients: Floats
    point_policy: Floats
    point_entropy: Floats
    log: Floats
    resolvent: Any

    @cached_property
    def surprise(self) -> Floats:
        """Return `π_a` times the direct derivative of `log π_a` by log λ, `−(log π_a + entropy)`, at each decision, `(A,n)`."""
        return -self.policy * (self.finite_log + self.entropy)

    def at_points(self, on_values: Floats, data: SieveData) -> Floats:
        """Return what weights `(f,…)` on v amount to on V at the value points, `(m,…)`."""
        adjoint: Floats = data.projection.T @ la.lu_solve(self.resolvent, on_values, trans=1, check_finite=False)
        return adjoint

    def slopes(self, data: SieveData) -> Floats:
        """Return the derivatives `(A,p,f+2)` of the coefficients of Q by θ, γ and log λ."""
        paid = _average(self.point_policy, data.expected_paid)
        on = _average(self.point_policy, data.expected_on) if data.ends else paid
        loads = np.column_stack([paid, on @ self.values, self.lam * self.point_entropy])
        values = la.lu_solve(self.resolvent, data.projection @ loads, check_finite=False)
        slopes: Floats = self.gamma * (data.stage.going_on @ values)
        slopes[:, :, : data.functions] += data.stage.paid
        slopes[:, :, data.functions] += data.stage.going_on @ self.values
        return slopes


def plan_sampled(
    data: SieveData, decisions: LoggedDecisions, theta: Floats, gamma: float, lam: float, start: Floats | None
) -> SampledPlan | None:
    """Return the plan for a reward θ, a discount and a temperature; None where no finite values solve the equation."""
    v = np.zeros(data.functions) if start is None else start
    earned = data.expected_paid @ theta
    for _ in range(60):
        total, log = soft_values(earned + gamma * (data.expected_on @ v), data.points_available, lam)
        policy = np.exp(log)
        target = data.projection @ total
        average = _average(policy, data.expected_on)
        resolvent = la.lu_factor(np.eye(v.size) - gamma * (data.projection @ average), check_finite=False)
        change = float(np.abs(target - v).max())
        if not np.isfinite(change):
            return None
        if change <= 1e-11 * (1 + np.abs(v).max()):
            coefficients = data.stage.paid @ theta + gamma * (data.stage.going_on @ v)
            entropy = -(policy * np.where(np.isfinite(log), log, 0.0)).sum(axis=0)
            return SampledPlan(v, gamma, lam, coefficients, policy, entropy, decisions.choices(coefficients, lam), resolvent)
        v = v + la.lu_solve(resolvent, target - v, check_finite=False)
    return None


def _average(policy: Floats, expected: Floats) -> Floats:
    """Return `Σ_a π_a(z) E[…|z,a]` `(m,f)`."""
    total: Floats = policy[0][:, None] * expected[0]
    for p, e in zip(policy[1:], expected[1:], strict=True):
        total += p[:, None] * e
    return total


@final
class SieveModel(ChoiceModel):
    """The log-likelihood of sampled decisions of `x = (θ, γ, log λ)`; its ridge is `strength` times the roughness."""

    def __init__(
        self,
        problem: SampledProblem,
        data: SieveData,
        settings: Settings,
        strength: float = 0.0,
        penalty: Quadratic | None = None,
    ) -> None:
        self.problem, self.data, self.strength = problem, data, strength
        self.batches = data.decisions
        self.feature_sizes = np.ones(problem.n_parameters)
        bounds = (0.0, LARGEST_DISCOUNT)
        ridge = strength * data.roughness
        super().__init__(problem.n_experts, problem.n_parameters, settings, bounds, penalty, ridge)

    def of_strength(self, strength: float) -> Self:
        """Return the same likelihood with another weight of the penalty on roughness."""
        changed = self.holding(self.penalty, strength * self.data.roughness)
        changed.strength = strength
        return changed

    def at(self, x: Floats, near: ChoicePoint | None = None) -> SievePoint | None:
        """Return the model at x, its plans started from those of a `near` point; None where values are not finite."""
        plans = []
        theta = x[: self.n_reward]
        gamma = self.discounts(x)
        lam = self.temperatures(x)
        for k, decisions in enumerate(self.data.decisions):
            starts = [near.plans[k].values, None] if isinstance(near, SievePoint) else [None]
            tried = (plan_sampled(self.data, decisions, theta, float(gamma[k]), float(lam[k]), start) for start in starts)
            plan = next((plan for plan in tried if plan is not None), None)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.data.decisions, plans, strict=True))
        return SievePoint(self, x, tuple(plans), value, value + self.beside(x))

    def person_values(self, point: Any) -> Floats:
        """Return the log-likelihood `(K,)` of each expert's decisions at a point."""
        return np.array([(b.counts * p.finite_log).sum() for b, p in zip(self.data.decisions, point.plans, strict=True)])

    def places(self, expert: int) -> Ints:
        """Return the positions in x on which an expert's choices depend: θ, their discount, and their log-temperature."""
        temperature = self.temperature_slice.start + self.temperature_groups[expert]
        return np.array([*range(self.n_reward), self.n_reward + self.groups[expert], temperature])


@final
@dataclass(frozen=True, eq=False)
class SievePoint(ChoicePoint):
    """The model at one x, with derivatives through the projected values."""

    likelihood: SieveModel
    plans: tuple[SampledPlan, ...]

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """Return `Σ y d log π(a|s)` `(p,)` for weights y `(A,n)` of each expert's decisions."""
        model, data = self.likelihood, self.likelihood.data
        total = np.zeros(model.size)
        for k, (batch, plan, y) in enumerate(zip(data.decisions, self.plans, weights, strict=True)):
            loads = batch.summed((y - y.sum(axis=0) * plan.policy) / plan.lam)
            on_values = np.einsum("ap,apf->f", loads, data.stage.going_on, optimize=True)
            points = plan.at_points(plan.gamma * on_values, data)
            paid = np.einsum("am,amf->f", plan.point_policy * points, data.expected_paid, optimize=True)
            on = np.einsum("am,amf->f", plan.point_policy * points, data.expected_on, optimize=True) if data.ends else paid
            theta = paid + np.einsum("ap,apf->f", loads, data.stage.paid, optimize=True)
            direct = float((y * plan.finite_log).sum() + y.sum(axis=0) @ plan.entropy)
            temperature = float(plan.lam * (points @ plan.point_entropy)) - direct
            total[model.places(k)] += np.array([*theta, float((on + on_values) @ plan.values), temperature])
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Yield for each expert the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        for k, plan in enumerate(self.plans):
            slopes = plan.slopes(self.likelihood.data) / plan.lam
            block = np.einsum("apq,apr->qr", slopes, self.loads(k, slopes), optimize=True)
            summed = self.likelihood.data.decisions[k].summed(plan.surprise)
            block[-1] += np.einsum("apq,ap->q", slopes, summed, optimize=True)
            block[-1, -1] += float((plan.surprise * -(plan.finite_log + plan.entropy)).sum())
            if (level := self.likelihood.data.level) is not None:
                # A discount near 1 makes rounding a million times larger. What it says of a constant must not count.
                inside = slice(0, level.size)
                block[inside] -= np.outer(level, level @ block[inside])
                block[:, inside] -= np.outer(block[:, inside] @ level, level)
            yield self.likelihood.places(k), block

    def loads(self, expert: int, slopes: Floats) -> Floats:
        """Return `λ Σ_i Σ_b π_b (d log π_b/dc_a) (d log π_b/dx)` `(A,p,q)` for derivatives `(A,p,q)` of the coefficients c of
        Q/λ.
        """
        plan, batch = self.plans[expert], self.likelihood.data.decisions[expert]
        informed = batch.informed(plan.policy, slopes)
        informed[:, :, -1] += batch.summed(plan.surprise)
        return informed
