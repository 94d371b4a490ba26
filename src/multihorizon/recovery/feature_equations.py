"""The system of all experts at given discounts when the reward is made of features.

Expert i's policy is soft-optimal for the reward parameters θ if the value of the policy itself,
`V = (I − γP_π)^{-1} (F_π θ + λ H(π))`, satisfies the Bellman equation of every action:

    F θ + γ T V − V = λ log π,      so      M = F + (γT − 1) R F_π,      h = λ (log π − (γT − 1) R H),      R = (I − γP_π)^{-1}.

Derivatives in γ follow from `∂V/∂γ = R P_π V`. M is dense, A·S rows for each expert and one column per feature: this is for
problems with a few hundred features. At discount 1 a policy that never ends has no value, so the discount is kept just below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats
from multihorizon.experts import Expert
from multihorizon.planning.linear import DENSE_STATES, Resolvent
from multihorizon.problem import Problem
from multihorizon.recovery.joint_equations import ErrorEffect
from multihorizon.recovery.one_expert import PolicyEquations, drawn_errors
from multihorizon.tolerances import LARGEST_SOLVABLE_DISCOUNT

#: Draws of the errors of log π; each costs an evaluation of the policy.
FEATURE_DRAWS = 8


class FeatureEquations:
    """M and h for any features; x = (θ, then λ_2 … λ_K where temperatures are free)."""

    coefficients = None

    def __init__(
        self, problem: Problem, equations: Sequence[PolicyEquations], temperature: float | None, error: float = 0.0
    ) -> None:
        """`error` is the size of the errors in log π that are assumed; demonstrations bring their own."""
        self.problem, self.temperature = problem, temperature
        self.n_experts, self.n_features = problem.n_experts, problem.n_parameters
        self._equations, self._error = equations, error
        self._tasks = [_Task(expert, e) for expert, e in zip(problem.experts, equations, strict=True)]
        self._ends = np.cumsum([0, *(task.n_rows for task in self._tasks)])

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """M and h of all experts."""
        matrix = np.zeros((int(self._ends[-1]), self.n_features + (0 if self.temperature is not None else self.n_experts - 1)))
        right = np.zeros(matrix.shape[0])
        for task, owner, rows in self._each():
            features, logs = task.bellman(discounts[owner])
            matrix[rows, : self.n_features] = features
            if self.temperature is not None or owner == 0:
                right[rows] = -(self.temperature or 1.0) * logs
            else:
                matrix[rows, self.n_features + owner - 1] = logs
        return matrix, right

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`T V + (γT − 1) R P_π V` on the rows of each owner."""
        columns = np.zeros((int(self._ends[-1]), self.n_experts))
        theta, temperature = self.read(discounts, x)
        for task, owner, rows in self._each():
            columns[rows, owner] = task.slope(discounts[owner], theta, temperature[owner])
        return columns

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """θ and the temperatures."""
        theta = x[: self.n_features]
        if self.temperature is not None:
            return theta, np.full(self.n_experts, self.temperature)
        return theta, np.concatenate([[1.0], x[self.n_features :]])

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """Differences of the equations of policies with errors from those without."""
        theta, temperature = self.read(discounts, x)
        effects = []
        for number, (task, owner, rows) in enumerate(self._each()):
            expert, e = self.problem.experts[number], self._equations[number]
            gamma, lam = discounts[owner], temperature[owner]
            drawn = drawn_errors(expert.mdp, e, number, FEATURE_DRAWS) * (self._error if expert.counts is None else 1.0)
            moved = [_Task(expert, _shifted(e, drawn[:, :, m])) for m in range(FEATURE_DRAWS)]
            residual, slope = np.zeros((2, int(self._ends[-1]), FEATURE_DRAWS))
            residual[rows] = np.stack([t.residual(gamma, theta, lam) - task.residual(gamma, theta, lam) for t in moved], axis=1)
            slope[rows] = np.stack([t.slope(gamma, theta, lam) - task.slope(gamma, theta, lam) for t in moved], axis=1)
            effects.append(ErrorEffect(owner, residual, slope))
        return effects

    def common_equations(self, discounts: Floats, x: Floats) -> int:
        """How many rows say something about whether the reward is shared: all but those that one expert alone leaves over."""
        matrix, slopes = self.at(discounts)[0], self.slopes(discounts, x)
        return sum(
            int(np.linalg.matrix_rank(np.column_stack([matrix[rows], slopes[rows, owner]]))) for _, owner, rows in self._each()
        )

    def reward_scale(self, discounts: Floats, x: Floats) -> float:
        """How much the expected immediate reward varies from row to row, in the units of the residual."""
        rewards = np.concatenate([task.rewards(x[: self.n_features]) for task in self._tasks])
        return float(rewards.std())

    def _each(self) -> Iterator[tuple[_Task, int, slice]]:
        rows = [slice(int(a), int(b)) for a, b in pairwise(self._ends)]
        return zip(self._tasks, self.problem.owner, rows, strict=True)


def _shifted(equations: PolicyEquations, errors: Floats) -> PolicyEquations:
    """The equations of the policy with errors `(S,A)` added to log π."""
    policy = equations.policy * np.exp(errors)
    policy /= policy.sum(axis=1, keepdims=True)
    return replace(equations, log_policy=np.log(np.where(equations.mdp.live, policy, 1.0)), policy=policy)


class _Task:
    """One expert's Bellman equations: the available actions of the states that are not terminal."""

    def __init__(self, expert: Expert, equations: PolicyEquations) -> None:
        mdp = expert.mdp
        live = mdp.live
        actions, self._states = np.nonzero(live.T)
        self.n_rows = self._states.size
        chosen = actions * mdp.n_states + self._states
        self._root = np.sqrt(equations.weights[self._states, actions])
        self._next = mdp.stacked[chosen]
        self._features = sp.csr_array(expert.feature_matrix)[chosen].toarray()
        self._logs = equations.log_policy[self._states, actions]
        policy = np.where(live, equations.policy, 0.0)
        under = equations.under()
        self._under = under.toarray() if mdp.n_states <= DENSE_STATES else under
        mix = sp.csr_array((policy[self._states, actions], (self._states, np.arange(self.n_rows))), (mdp.n_states, self.n_rows))
        self._immediate = np.column_stack([mix @ self._features, equations.entropy])
        self._largest = LARGEST_SOLVABLE_DISCOUNT if mdp.never_ends(equations.policy).any() else 1.0

    def rewards(self, theta: Floats) -> Floats:
        """The expected immediate reward of each row, times the root of its weight."""
        found: Floats = self._root * (self._features @ theta)
        return found

    def bellman(self, discount: float) -> tuple[Floats, Floats]:
        """The rows of M that belong to θ, and the column that belongs to the temperature."""
        gamma = min(float(discount), self._largest)
        values = Resolvent(self._under, gamma).solve(self._immediate)
        rows = np.column_stack([self._features, -self._logs]) + gamma * (self._next @ values) - values[self._states]
        weighted = (rows.T * self._root).T
        return weighted[:, :-1], weighted[:, -1]

    def residual(self, discount: float, theta: Floats, temperature: float) -> Floats:
        """`F θ + γ T V − V − λ log π` on the rows, times the root of their weights."""
        features, logs = self.bellman(discount)
        found: Floats = features @ theta + temperature * logs
        return found

    def slope(self, discount: float, theta: Floats, temperature: float) -> Floats:
        """The derivative of the residual in γ."""
        gamma = min(float(discount), self._largest)
        resolvent = Resolvent(self._under, gamma)
        values = resolvent.solve(self._immediate @ np.append(theta, temperature))
        change = resolvent.solve(self._under @ values)
        rows: Floats = self._next @ values + gamma * (self._next @ change) - change[self._states]
        return rows * self._root
