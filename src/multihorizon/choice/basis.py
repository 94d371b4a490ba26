"""Which decisions are held out where something is chosen or checked by how well it predicts.

Functions of the state in which rewards and values are written: `r(s) = φ(s)ᵀθ`.

`Splines` is the default. A coordinate has `size` cubic B-splines, whose knots lie half-way between equal distances and equal
shares of the data; one with few distinct values has an indicator for each of them. Products of these functions over all
coordinates are the basis where there are at most `MOST_PRODUCTS`; beyond, the products over each pair of coordinates. The
functions are local, so rows of φ are sparse, and constants are among their combinations.

Any other scikit-learn transformer will do: `Fitted` standardises the coordinates before it and adds a constant where the
transformer has none.

Penalised least squares for all actions at once: the coefficients `C_a` of predictions `ψ(s)ᵀ C_a` of what follows.

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

The penalty on the reward: how rough it is along each coordinate.

Decisions say little about fine ripples of the reward, because the noise of a step averages over them. The penalty `½ κ θᵀ(R +
RIDGE·I)θ` holds them: `θᵀRθ` is the mean square, over value points and coordinates, of the second difference `r(z + h) − 2 r(z)
+ r(z − h)`, in a unit in which R has a mean diagonal of 1. It leaves slopes and levels alone, so it moves discounts far less
than a penalty on the size of θ would. Coordinates with few distinct values have no second differences; where there are no
others, R is the identity.

The first stage: what each action is expected to lead to, `M(s,a) = E[φ(s')|s,a]`.

*By default* φ(s') is regressed on functions ψ(s): `M(s,a) = ψ(s)ᵀ C_a`. What follows a state is often finer than φ can say: a
fast car is soon far away, so φ(s') changes quickly with s although φ is smooth. So ψ are finer splines than φ where these predict
better, with a penalty on roughness, and actions share what they have in common (`smoothing.py`). With indicators ψ is φ, and
`C_a` is least squares for each action alone. Where steps end the episode for good, the part that goes on, `E[φ(s') 1(s' not
terminal)|s,a] = ψ(s)ᵀ E_a`, is regressed as well: rewards are paid on arrival, values only where there is a future.

*Where an outcome is unknown.* With `G_a = Σ φ(s_i) φ(s_i)ᵀ` over the steps with action a, the leverage `h_a(s) = φ(s)ᵀ G_a^{-1}
φ(s)` is the variance of a prediction by least squares in units of the variance of one step. Beyond `MOST_LEVERAGE` the data say
less about action a at s than one step there would, and the action counts as not available there. With indicator functions these
are exactly the actions that nobody took in a state.

*Any scikit-learn regressor* that predicts several numbers may take the place of least squares. It sees the state and an
indicator of each action, and no action is ruled out anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.interpolate import BSpline
from sklearn.base import BaseEstimator, TransformerMixin, clone

from multihorizon.checks import Bools, Floats, Ints, Sparse, as_count
from multihorizon.data.steps import Steps


def held_out_rows(steps: Steps) -> Bools:
    """The rows `(N,)` of every third episode of each expert; of an expert with fewer episodes, the last third of the rows."""
    mask = np.zeros(len(steps), dtype=np.bool_)
    for k in range(len(steps.experts)):
        rows = np.flatnonzero(steps.expert == k)
        numbers = steps.episode_numbers[rows]
        rank = np.unique(numbers, return_inverse=True)[1]
        mask[rows] = rank % 3 == 2 if rank.max(initial=0) >= 2 else np.arange(rows.size) >= 2 * rows.size / 3
    return mask


DEGREE = 3
#: With more products than this, a basis is made of pairs of coordinates.
MOST_PRODUCTS = 256
#: Shares of the data beyond which a coordinate counts as lying on the edge of its range.
EDGE = 0.002


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
        as_count(self.size, "size of a spline basis", least=DEGREE + 1)
        points = np.asarray(X, dtype=np.float64)
        self.columns_ = _columns(points.shape[1], self.sources)
        self.axes_ = [_axis(points[:, columns], self.size) for columns in self.columns_]
        sizes = [axis.size for axis in self.axes_]
        whole = np.prod([float(size) for size in sizes]) <= MOST_PRODUCTS or len(sizes) < 3
        self.products_ = [tuple(range(len(sizes)))] if whole else list(combinations(range(len(sizes)), 2))
        self.n_features_in_ = points.shape[1]
        return self

    def transform(self, X: Any) -> Sparse:
        """The functions at these states, `(n,p)`."""
        points = np.asarray(X, dtype=np.float64)
        local = [axis.local(points[:, columns]) for axis, columns in zip(self.axes_, self.columns_, strict=True)]
        return sp.csr_array(sp.hstack([self._product(local, places) for places in self.products_], format="csr"))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> list[str]:
        """Where each function has its peak, as `x=0.25, y=0.5`."""
        names = input_features if input_features is not None else [f"x{i + 1}" for i in range(self.n_features_in_)]
        labels = [axis.labels([names[c] for c in columns]) for axis, columns in zip(self.axes_, self.columns_, strict=True)]
        return [
            ", ".join(labels[i][j] for i, j in zip(places, position, strict=True))
            for places in self.products_
            for position in np.ndindex(*(self.axes_[i].size for i in places))
        ]

    def second_differences(self) -> Floats:
        """The matrix R `(p,p)` of the sum of squared second differences of neighbouring coefficients along each coordinate.

        It is zero where no coordinate has splines.
        """
        found: Floats = la.block_diag(*(self._rough(places) for places in self.products_))
        return found

    def _rough(self, places: tuple[int, ...]) -> Floats:
        sizes = [self.axes_[i].size for i in places]
        total = np.zeros((int(np.prod(sizes)),) * 2)
        for j, i in enumerate(places):
            if isinstance(self.axes_[i], _Knots):
                second = np.diff(np.eye(sizes[j]), 2, axis=0)
                before, after = np.eye(int(np.prod(sizes[:j]))), np.eye(int(np.prod(sizes[j + 1 :])))
                total += np.kron(np.kron(before, second.T @ second), after)
        return total

    def _product(self, local: list[tuple[Ints, Floats]], places: tuple[int, ...]) -> Sparse:
        index, value = local[places[0]]
        size = self.axes_[places[0]].size
        for i in places[1:]:
            other_index, other_value = local[i]
            index = (index[:, :, None] * self.axes_[i].size + other_index[:, None, :]).reshape(len(index), -1)
            value = (value[:, :, None] * other_value[:, None, :]).reshape(len(value), -1)
            size *= self.axes_[i].size
        starts = np.arange(0, index.size + 1, index.shape[1])
        return sp.csr_array((value.ravel(), index.ravel(), starts), shape=(len(index), size))


@dataclass(frozen=True, eq=False)
class _Knots:
    """B-splines of one coordinate."""

    knots: Floats

    @property
    def size(self) -> int:
        return self.knots.size - DEGREE - 1

    def labels(self, names: Sequence[str]) -> list[str]:
        """Where each function has its peak."""
        return [f"{names[0]}={self.knots[i + 1 : i + 1 + DEGREE].mean():.4g}" for i in range(self.size)]

    def local(self, values: Floats) -> tuple[Ints, Floats]:
        """Which functions are not zero at these values, `(n,4)`, and what they are there; constant beyond the edges."""
        inside = np.clip(values[:, 0], self.knots[DEGREE], self.knots[-DEGREE - 1])
        matrix = BSpline.design_matrix(inside, self.knots, DEGREE)
        width = DEGREE + 1
        return matrix.indices.reshape(-1, width).astype(np.int64), matrix.data.reshape(-1, width)


@dataclass(frozen=True, eq=False)
class _Values:
    """Indicators of the distinct values of one coordinate; other values count as the nearest of them."""

    distinct: Floats

    @property
    def size(self) -> int:
        return self.distinct.size

    def labels(self, names: Sequence[str]) -> list[str]:
        """The value of each indicator."""
        return [f"{names[0]}={value:.6g}" for value in self.distinct]

    def local(self, values: Floats) -> tuple[Ints, Floats]:
        """Which indicator is 1 at these values, `(n,1)`."""
        middle = (self.distinct[1:] + self.distinct[:-1]) / 2
        return np.searchsorted(middle, values[:, 0])[:, None].astype(np.int64), np.ones((len(values), 1))


@dataclass(frozen=True, eq=False)
class _Category:
    """The indicators of a category, which are columns already."""

    size: int

    def labels(self, names: Sequence[str]) -> list[str]:
        """The columns' own names."""
        return list(names)

    def local(self, values: Floats) -> tuple[Ints, Floats]:
        """Which indicator is 1, `(n,1)`."""
        return values.argmax(axis=1)[:, None].astype(np.int64), np.ones((len(values), 1))


def _columns(width: int, sources: Sequence[int] | None) -> list[list[int]]:
    """The columns of each quantity."""
    given = range(width) if sources is None else sources
    return [[i for i, source in enumerate(given) if source == wanted] for wanted in dict.fromkeys(given)]


def _axis(values: Floats, size: int) -> _Knots | _Values | _Category:
    if values.shape[1] > 1:
        return _Category(values.shape[1])
    distinct = np.unique(values)
    if distinct.size <= size:
        return _Values(distinct)
    inner = size - DEGREE + 1
    low, high = np.quantile(values, [EDGE, 1 - EDGE])
    if low == high:
        low, high = distinct[0], distinct[-1]
    shares = np.quantile(np.clip(values, low, high), np.linspace(0, 1, inner))
    knots = (np.linspace(low, high, inner) + shares) / 2
    return _Knots(np.concatenate([[knots[0]] * DEGREE, knots, [knots[-1]] * DEGREE]))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A transformer fitted to standardised states, with a constant where it has none."""

    transformer: Any
    centre: Floats
    scale: Floats
    adds_constant: bool
    names: tuple[str, ...]

    def __call__(self, states: Floats) -> Sparse:
        """φ `(n,p)` at states `(n,d)`."""
        rows = sp.csr_array(self.transformer.transform((states - self.centre) / self.scale), dtype=np.float64)
        if not self.adds_constant:
            return rows
        return sp.csr_array(sp.hstack([np.ones((rows.shape[0], 1)), rows], format="csr"))


def fit_basis(transformer: Any, states: Floats, coordinates: Sequence[str]) -> Fitted:
    """Fit a transformer to states `(n,d)`. Splines and indicators take coordinates as they are, others standardised ones."""
    plain = isinstance(transformer, Splines) or type(transformer).__name__ == "OneHotEncoder"
    centre = np.zeros(states.shape[1]) if plain else states.mean(axis=0)
    spread = states.std(axis=0)
    scale = np.ones(states.shape[1]) if plain else np.where(spread > 0, spread, 1.0)
    fitted = clone(transformer).fit((states - centre) / scale)
    rows = sp.csr_array(fitted.transform((states[:1000] - centre) / scale), dtype=np.float64)
    total = np.asarray(rows.sum(axis=1)).ravel()
    constant = bool(np.ptp(total) > 1e-9 * np.abs(total).max(initial=1.0))
    names = _names(fitted, coordinates, rows.shape[1])
    return Fitted(fitted, centre, scale, constant, ("constant", *names) if constant else names)


def _names(fitted: Any, coordinates: Sequence[str], size: int) -> tuple[str, ...]:
    """The transformer's own names of its functions, where it has any that are distinct."""
    try:
        names = tuple(str(name) for name in fitted.get_feature_names_out(list(coordinates)))
    except (AttributeError, ValueError):
        names = ()
    return names if len(set(names)) == size else tuple(f"function {i + 1}" for i in range(size))


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


#: The weight of the size of θ beside its roughness.
RIDGE = 0.01
#: h, as a share of a coordinate's range, and the number of points at which second differences are taken.
STEP, POINTS = 0.03, 1000
#: A coordinate with at most this many distinct values has none.
FEW_VALUES = 20


def roughness(basis: Fitted, steps: Steps, points: Floats) -> Floats:
    """The matrix `R + RIDGE·I` `(f,f)` at some of these points `(m,d)`."""
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), POINTS)).round().astype(np.int64)]
    size = basis(chosen[:1]).shape[1]
    total = np.zeros((size, size))
    for j in range(points.shape[1]):
        if steps.sources.count(steps.sources[j]) > 1 or np.unique(points[:, j]).size <= FEW_VALUES:
            continue
        shift = np.zeros(points.shape[1])
        shift[j] = STEP * np.ptp(np.quantile(points[:, j], [0.005, 0.995]))
        second = basis(chosen + shift) - 2 * basis(chosen) + basis(chosen - shift)
        total += (second.T @ second).toarray()
    scale = float(np.trace(total)) / size
    return total / scale + RIDGE * np.eye(size) if scale > 0 else np.eye(size)


#: Leverage beyond which an action counts as unavailable; the room above 1 is for rounding.
MOST_LEVERAGE = 1.000001
#: Rows that are looked at together, to keep arrays small.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The default first stage: coefficients `(A,q,f)` of rewards and values in ψ, their equations, and the factors of G_a."""

    paid: Floats
    going_on: Floats
    smoothing: Smoothing
    equations: System
    near: System

    def rows(self, features: Sparse, states: Floats) -> list[Sparse]:
        """The matrices X_a whose products with the coefficients predict φ(s'): here ψ(s) for every action."""
        return [self.smoothing.inputs(states)] * len(self.paid)

    def available(self, features: Sparse) -> Bools:
        """Whether each action's outcome is known in each of these states, `(A,n)`."""
        found = np.empty((len(self.paid), features.shape[0]), dtype=np.bool_)
        for start in range(0, features.shape[0], BLOCK):
            block = features[start : start + BLOCK].toarray()
            for a, (matrix, _) in enumerate(self.near.factors):
                half = la.solve_triangular(matrix, block.T, lower=True, check_finite=False)
                found[a, start : start + BLOCK] = (half * half).sum(axis=0) <= MOST_LEVERAGE
        return found


@dataclass(frozen=True, eq=False)
class Regressed:
    """A first stage by another regressor, which predicts both φ(s') and its part that goes on."""

    regressor: Any
    n_actions: int
    functions: int
    paid: Floats
    going_on: Floats
    smoothing: None = None

    def rows(self, features: Sparse, states: Floats) -> list[Sparse]:
        """The predictions for each action, as sparse matrices."""
        found = []
        for action in range(self.n_actions):
            code = np.tile(np.eye(self.n_actions)[action], (len(states), 1))
            predicted = np.asarray(self.regressor.predict(np.hstack([states, code])), dtype=np.float64)
            found.append(sp.csr_array(predicted))
        return found

    def available(self, features: Sparse) -> Bools:
        """Every action, everywhere."""
        return np.ones((self.n_actions, features.shape[0]), dtype=np.bool_)


FirstStage = LeastSquares | Regressed


def fit_outcomes(steps: Steps, basis: Fitted, regressor: Any = None, smoothing: Smoothing | None = None) -> FirstStage:
    """Regress φ(s') on state and action, over the steps whose next state is known."""
    seen = steps.select(steps.known_next)
    after = basis(seen.next_states)
    on = sp.csr_array(sp.diags_array(1.0 * ~seen.terminated) @ after) if seen.terminated.any() else after
    if regressor is not None:
        return _regressed(regressor, seen, after, on)
    both = after if on is after else sp.csr_array(sp.hstack([after, on], format="csr"))
    chosen = smoothing or choose_smoothing(seen, basis, both, held_out_rows(seen))
    features, n_actions = basis(seen.states), len(seen.actions)
    near = system(step_sums(features, seen.action, after, n_actions).grams, plain(basis))
    own = step_sums(chosen.inputs(seen.states), seen.action, both, n_actions)
    equations = system(own.grams, chosen)
    solved = equations.solve(own.loads)
    paid = solved[:, :, : after.shape[1]]
    return LeastSquares(paid, paid if on is after else solved[:, :, after.shape[1] :], chosen, equations, near)


def _regressed(regressor: Any, seen: Steps, after: Sparse, on: Sparse) -> Regressed:
    f, n_actions = after.shape[1], len(seen.actions)
    inputs = np.hstack([seen.states, np.eye(n_actions)[seen.action]])
    both = after.toarray() if on is after else np.hstack([after.toarray(), on.toarray()])
    fitted = clone(regressor).fit(inputs, both)
    eye, zero = np.eye(f), np.zeros((f, f))
    paid = eye if on is after else np.vstack([eye, zero])
    going_on = eye if on is after else np.vstack([zero, eye])
    return Regressed(fitted, n_actions, f, np.array([paid] * n_actions), np.array([going_on] * n_actions))


def next_state_r2(steps: Steps, held_out: Bools, smoothing: Smoothing | None = None, regressor: Any = None) -> dict[str, float]:
    """How much of the change of each coordinate the first stage's functions predict on held-out steps: 1 − error/variance."""
    known = steps.known_next
    train, test = steps.select(known & ~held_out), steps.select(known & held_out)
    found = {}
    change = train.next_states - train.states
    predicted = _predicted_changes(train, change, test, smoothing, regressor)
    actual = test.next_states - test.states
    for j, name in enumerate(steps.coordinates):
        spread = float(((actual[:, j] - change[:, j].mean()) ** 2).sum())
        error = float(((actual[:, j] - predicted[:, j]) ** 2).sum())
        found[name] = 1 - error / spread if spread > 0 else np.nan
    return found


def _predicted_changes(train: Steps, change: Floats, test: Steps, smoothing: Smoothing | None, regressor: Any) -> Floats:
    n_actions = len(train.actions)
    if smoothing is None:
        inputs = [np.hstack([part.states, np.eye(n_actions)[part.action]]) for part in (train, test)]
        guess = clone(regressor).fit(inputs[0], change).predict(inputs[1])
        return np.asarray(guess, dtype=np.float64).reshape(len(test), -1)
    sums = step_sums(smoothing.inputs(train.states), train.action, sp.csr_array(change), n_actions)
    solved, features = system(sums.grams, smoothing).solve(sums.loads), smoothing.inputs(test.states)
    predicted = np.zeros(test.states.shape)
    for action in range(n_actions):
        rows = np.flatnonzero(test.action == action)
        predicted[rows] = features[rows] @ solved[action]
    return predicted
