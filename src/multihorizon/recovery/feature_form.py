"""The experts' equations at given discounts when the reward is made of features, for `variable_projection`.

Expert i's policy is soft-optimal for the reward parameters θ if `V = (I − γP_π)^{-1} (F_π θ + λ H(π))`, the value of the policy
itself, satisfies the Bellman equation of every action:

    F θ + γ T V − V = λ log π,      so      M = F + (γT − 1) R F_π,      h = λ (log π − (γT − 1) R H),      R = (I − γP_π)^{-1}.

Derivatives in γ follow from `∂V/∂γ = R P_π V`. M is dense, A·S rows for each expert and one column a feature: this is for
problems with a few hundred features. At discount 1 a policy that never ends has no value, so the discount is kept just below.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats
from multihorizon.experts import Expert
from multihorizon.planning.evaluation import policy_entropy
from multihorizon.planning.linear import Resolvent
from multihorizon.problem import Problem
from multihorizon.recovery.closed_form import Equations, log_errors, read_equations

#: The largest discount of a policy that never ends.
LAST = 1 - 1e-7


class FeatureForm:
    """M and h for any features; x = (θ, then λ_2 … λ_K where temperatures are free)."""

    def __init__(self, problem: Problem, temperature: float | None, equations: list[Equations] | None = None) -> None:
        self.problem, self.temperature = problem, temperature
        self.n_experts, self.n_features = problem.n_experts, problem.n_parameters
        self.equations = equations or [read_equations(expert) for expert in problem.experts]
        self._tasks = [_Task(expert, e) for expert, e in zip(problem.experts, self.equations, strict=True)]
        self._ends = np.cumsum([0, *(task.n_rows for task in self._tasks)])

    def shifted(self, draw: int, error: float) -> FeatureForm:
        """The form with errors of size `error` (for demonstrations: of their own size) added to log π."""
        moved = []
        for number, (expert, e) in enumerate(zip(self.problem.experts, self.equations, strict=True)):
            noise = log_errors(expert, e, (draw, number), 1)[:, :, 0] * (error if expert.counts is None else 1.0)
            policy = e.policy * np.exp(noise)
            policy /= policy.sum(axis=1, keepdims=True)
            moved.append(Equations(np.log(np.where(e.weights > 0, policy, 1.0)), e.weights, policy))
        return FeatureForm(self.problem, self.temperature, moved)

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """M and h of all experts."""
        matrix = np.zeros((int(self._ends[-1]), self._width))
        right = np.zeros(matrix.shape[0])
        for task, owner, a, b in self._each():
            values, entropy_values = task.values(discounts[owner])
            matrix[a:b, : self.n_features] = task.bellman(task.features, values, discounts[owner])
            side = task.bellman(-task.logs, entropy_values, discounts[owner])
            if self.temperature is not None or owner == 0:
                right[a:b] = -(self.temperature or 1.0) * side
            else:
                matrix[a:b, self.n_features + owner - 1] = side
        return matrix, right

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`T V + (γT − 1) R P_π V` on the rows of each owner."""
        columns = np.zeros((int(self._ends[-1]), self.n_experts))
        _, temperature = self.read(discounts, x)
        for task, owner, a, b in self._each():
            values, entropy_values = task.values(discounts[owner])
            v = values @ x[: self.n_features] + temperature[owner] * entropy_values
            columns[a:b, owner] = task.slope(v, discounts[owner])
        return columns

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """θ and the temperatures."""
        theta = x[: self.n_features]
        if self.temperature is not None:
            return theta, np.full(self.n_experts, self.temperature)
        return theta, np.concatenate([[1.0], x[self.n_features :]])

    @property
    def _width(self) -> int:
        return self.n_features + (0 if self.temperature is not None else self.n_experts - 1)

    def _each(self) -> Any:
        return zip(self._tasks, self.problem.owner, self._ends[:-1], self._ends[1:], strict=True)


class _Task:
    """One expert's rows: the available actions of the states that are not terminal."""

    def __init__(self, expert: Expert, equations: Equations) -> None:
        mdp = expert.mdp
        live = equations.weights > 0
        self._actions, self._states = np.nonzero(live.T)
        self.n_rows = self._states.size
        chosen = self._actions * mdp.n_states + self._states
        self._root = np.sqrt(equations.weights[self._states, self._actions])
        self._next = mdp.stacked[chosen]
        self.features = sp.csr_array(expert.feature_matrix)[chosen].toarray()
        self.logs = equations.log_policy[self._states, self._actions]
        policy = np.where(live, equations.policy, 0.0)
        self._mixed = mdp.under(policy)
        mix = sp.csr_array(
            (policy[self._states, self._actions], (self._states, np.arange(self.n_rows))), (mdp.n_states, self.n_rows)
        )
        self._immediate = np.column_stack([mix @ self.features, np.where(mdp.terminal, 0.0, policy_entropy(equations.policy))])
        self._last = LAST if mdp.never_ends(equations.policy).any() else 1.0

    def values(self, discount: float) -> tuple[Floats, Floats]:
        """`R F_π` and `R H`."""
        solved = Resolvent(self._mixed, self._clip(discount)).solve(self._immediate)
        return solved[:, :-1], solved[:, -1]

    def bellman(self, immediate: Floats, values: Floats, discount: float) -> Floats:
        """`immediate + γ T V − V` on the rows, times the root of their weights."""
        rows: Floats = immediate + self._clip(discount) * (self._next @ values) - values[self._states]
        return (rows.T * self._root).T

    def slope(self, values: Floats, discount: float) -> Floats:
        """The derivative of `γ T V − V` in γ."""
        gamma = self._clip(discount)
        change = Resolvent(self._mixed, gamma).solve(self._mixed @ values)
        rows: Floats = self._next @ values + gamma * (self._next @ change) - change[self._states]
        return rows * self._root

    def _clip(self, discount: float) -> float:
        return min(float(discount), self._last)
