"""The first stage: what each action is expected to lead to, `M(s,a) = E[φ(s')|s,a]`.

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

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from sklearn.base import clone

from multihorizon.checks import Bools, Floats, Sparse
from multihorizon.continuous.basis import Fitted
from multihorizon.continuous.held_out import held_out_rows
from multihorizon.continuous.smoothing import Smoothing, System, choose_smoothing, plain, step_sums, system
from multihorizon.tables.steps import Steps

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
