"""The first stage: what each action is expected to lead to, `M(s,a) = E[φ(s')|s,a]`.

*By default* φ(s') is regressed on φ(s), for each action alone, by least squares: `M(s,a) = φ(s)ᵀ C_a` with `C_a = G_a^{-1} Σ
φ(s_i) φ(s'_i)ᵀ`, `G_a = Σ φ(s_i) φ(s_i)ᵀ` over the steps with action a. Where steps end the episode for good, the part that
goes on, `E[φ(s') 1(s' not terminal)|s,a] = φ(s)ᵀ E_a`, is regressed as well: rewards are paid on arrival, values only where
there is a future.

*Where an outcome is unknown.* The leverage `h_a(s) = φ(s)ᵀ G_a^{-1} φ(s)` is the variance of the prediction in units of the
variance of one step. Beyond `MOST_LEVERAGE` the data say less about action a at s than one step there would, and the action
counts as not available there. With indicator functions these are exactly the actions that nobody took in a state.

*Any scikit-learn regressor* that predicts several numbers may take the place of least squares. It sees the state and an
indicator of each action, and no action is ruled out anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from sklearn.base import clone

from multihorizon.checks import Bools, Floats, Sparse
from multihorizon.continuous.basis import Fitted
from multihorizon.tables.steps import Steps

#: Leverage beyond which an action counts as unavailable; the room above 1 is for rounding.
MOST_LEVERAGE = 1.000001
#: Added to the diagonal of G_a, relative to its mean: only directions without data feel it.
STABILITY = 1e-9
#: Rows that are looked at together, to keep arrays small.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The default first stage: coefficients `(A,p,f)` of rewards and values, and the factors of G_a."""

    paid: Floats
    going_on: Floats
    factors: tuple[Any, ...]

    def rows(self, features: Sparse, states: Floats) -> list[Sparse]:
        """The matrices X_a whose products with the coefficients predict φ(s'): here φ(s) for every action."""
        return [features] * len(self.factors)

    def available(self, features: Sparse) -> Bools:
        """Whether each action's outcome is known in each of these states, `(A,n)`."""
        found = np.empty((len(self.factors), features.shape[0]), dtype=np.bool_)
        for start in range(0, features.shape[0], BLOCK):
            block = features[start : start + BLOCK].toarray()
            for a, (matrix, _) in enumerate(self.factors):
                half = la.solve_triangular(matrix, block.T, lower=True, check_finite=False)
                found[a, start : start + BLOCK] = (half * half).sum(axis=0) <= MOST_LEVERAGE
        return found

    def predictor(self, action: int, loads: Floats) -> Floats:
        """`G_a^{-1}` times these columns `(p,q)`."""
        solved: Floats = la.cho_solve(self.factors[action], loads, check_finite=False)
        return solved


@dataclass(frozen=True, eq=False)
class Regressed:
    """A first stage by another regressor, which predicts both φ(s') and its part that goes on."""

    regressor: Any
    n_actions: int
    functions: int
    paid: Floats
    going_on: Floats

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


def fit_outcomes(steps: Steps, basis: Fitted, regressor: Any = None) -> FirstStage:
    """Regress φ(s') on state and action, over the steps whose next state is known."""
    seen = steps.select(steps.known_next)
    after = basis(seen.next_states)
    on = sp.csr_array(sp.diags_array(1.0 * ~seen.terminated) @ after) if seen.terminated.any() else after
    if regressor is not None:
        return _regressed(regressor, seen, after, on)
    features, paid, going_on, factors = basis(seen.states), [], [], []
    for action in range(len(seen.actions)):
        taken = np.flatnonzero(seen.action == action)
        rows = features[taken]
        factor = _factor((rows.T @ rows).toarray())
        factors.append(factor)
        paid.append(la.cho_solve(factor, (rows.T @ after[taken]).toarray()))
        going_on.append(paid[-1] if on is after else la.cho_solve(factor, (rows.T @ on[taken]).toarray()))
    expected = np.array(paid)
    return LeastSquares(expected, expected if on is after else np.array(going_on), tuple(factors))


def _factor(gram: Floats) -> Any:
    shift = STABILITY * max(float(np.trace(gram)) / len(gram), 1e-12)
    for _ in range(10):
        try:
            return la.cho_factor(gram + shift * np.eye(len(gram)), lower=True)
        except la.LinAlgError:
            shift *= 10
    raise ValueError("the basis functions must be finite and not all alike, received ones that cannot be told apart")


def _regressed(regressor: Any, seen: Steps, after: Sparse, on: Sparse) -> Regressed:
    f, n_actions = after.shape[1], len(seen.actions)
    inputs = np.hstack([seen.states, np.eye(n_actions)[seen.action]])
    both = after.toarray() if on is after else np.hstack([after.toarray(), on.toarray()])
    fitted = clone(regressor).fit(inputs, both)
    eye, zero = np.eye(f), np.zeros((f, f))
    paid = eye if on is after else np.vstack([eye, zero])
    going_on = eye if on is after else np.vstack([zero, eye])
    return Regressed(fitted, n_actions, f, np.array([paid] * n_actions), np.array([going_on] * n_actions))


def next_state_r2(steps: Steps, held_out: Bools, basis: Fitted, regressor: Any = None) -> dict[str, float]:
    """How much of the change of each coordinate the first stage's functions predict on held-out steps: 1 − error/variance."""
    known = steps.known_next
    train, test = steps.select(known & ~held_out), steps.select(known & held_out)
    found = {}
    change = train.next_states - train.states
    predicted = _predicted_changes(train, change, test, basis, regressor)
    actual = test.next_states - test.states
    for j, name in enumerate(steps.coordinates):
        spread = float(((actual[:, j] - change[:, j].mean()) ** 2).sum())
        error = float(((actual[:, j] - predicted[:, j]) ** 2).sum())
        found[name] = 1 - error / spread if spread > 0 else np.nan
    return found


def _predicted_changes(train: Steps, change: Floats, test: Steps, basis: Fitted, regressor: Any) -> Floats:
    n_actions = len(train.actions)
    if regressor is not None:
        inputs = [np.hstack([part.states, np.eye(n_actions)[part.action]]) for part in (train, test)]
        guess = clone(regressor).fit(inputs[0], change).predict(inputs[1])
        return np.asarray(guess, dtype=np.float64).reshape(len(test), -1)
    features, predicted = (basis(train.states), basis(test.states)), np.zeros(test.states.shape)
    for action in range(n_actions):
        rows = features[0][np.flatnonzero(train.action == action)]
        solved = la.cho_solve(_factor((rows.T @ rows).toarray()), rows.T @ change[train.action == action])
        predicted[test.action == action] = features[1][np.flatnonzero(test.action == action)] @ solved
    return predicted
