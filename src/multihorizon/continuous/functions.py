"""The answer as functions of the state: reward, values and policies, which can be evaluated anywhere and plotted.

Where no step ends an episode for good, a constant added to the reward changes nothing, and rewards are measured from their
average over the logged arrivals. Standard errors are those of what is returned, and carry the first stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, as_floats
from multihorizon.continuous.answer import resume_sieve
from multihorizon.continuous.errors import sieve_precision
from multihorizon.continuous.sieve_likelihood import SievePoint
from multihorizon.continuous.values import soft_values
from multihorizon.solution import Solution


@dataclass(frozen=True, eq=False)
class Functions:
    """Reward, values and policies of an answer. States are `(n,d)`, or a frame with the columns in `coordinates`."""

    point: SievePoint
    coordinates: tuple[str, ...]
    origin: Floats
    covariance: Floats

    def reward(self, states: Any) -> Floats:
        """The reward of arriving in these states, `(n,)`."""
        found: Floats = self._contrast(states) @ self.point.likelihood.reward(self.point.x)
        return found

    def reward_errors(self, states: Any) -> Floats:
        """Standard errors of `reward`, `(n,)`."""
        rows = self._contrast(states)
        errors: Floats = np.sqrt(np.maximum(((rows @ self.covariance) * rows).sum(axis=1), 0.0))
        return errors

    def values(self, expert: str, states: Any) -> Floats:
        """The expert's soft values in these states, `(n,)`."""
        return self._plan(expert, states)[0]

    def policy(self, expert: str, states: Any) -> Floats:
        """The expert's probability of each action, `(n,A)`; 0 where it is not known what the action leads to."""
        chosen: Floats = np.exp(self._plan(expert, states)[1].T)
        return chosen

    def _plan(self, expert: str, states: Any) -> tuple[Floats, Floats]:
        model = self.point.likelihood
        if expert not in model.problem.names:
            raise ValueError(f"expert must be one of {', '.join(model.problem.names)}, received {expert!r}")
        plan, points = self.point.plans[model.problem.names.index(expert)], self._points(states)
        features, stage = model.design.basis(points), model.design.stage
        q = np.stack([row @ c for row, c in zip(stage.rows(features, points), plan.coefficients, strict=True)])
        available = stage.available(features)
        known = available.any(axis=0)
        value, log = soft_values(q, available | ~known, plan.lam)
        return np.where(known, value, np.nan), np.where(known, log, np.nan)

    def _contrast(self, states: Any) -> Floats:
        rows: Floats = self.point.likelihood.design.basis(self._points(states)).toarray() - self.origin
        return rows

    def _points(self, states: Any) -> Floats:
        if isinstance(states, pd.DataFrame):
            missing = [name for name in self.coordinates if name not in states.columns]
            if missing:
                raise ValueError(f"states must have the columns {', '.join(self.coordinates)}, received none named {missing[0]}")
            states = states[list(self.coordinates)]
        points = as_floats(states, "states")
        if points.ndim != 2 or points.shape[1] != len(self.coordinates):
            raise ValueError(f"states must have shape (n, {len(self.coordinates)}), received {points.shape}")
        return points


def functions(solution: Solution) -> Functions:
    """The functions of a solution of `SieveLikelihood`, as `solve` returned it.

    Example:
        >>> import multihorizon as mh
        >>> problem = mh.SampledProblem(mh.domains.navigation().simulate(decisions=1200))
        >>> found = functions(mh.solve(problem, mh.SieveLikelihood(basis=mh.Splines(5), penalty=0.1)))
        >>> pit, goal = found.reward([[0.55, 0.5], [0.8, 0.75]])
        >>> bool(pit < goal)
        True
    """
    point = resume_sieve(solution)
    model, steps = point.likelihood, point.likelihood.problem.steps
    arrived = model.design.basis(steps.next_states[steps.known_next])
    origin = np.zeros(model.n_reward) if model.design.ends else np.asarray(arrived.mean(axis=0)).ravel()
    covariance = sieve_precision(point)[1][: model.n_reward, : model.n_reward]
    return Functions(point, steps.coordinates, origin, covariance)


def grid(found: Functions, pair: Sequence[int], size: int = 40) -> tuple[Floats, Floats, Floats, Floats]:
    """Axes `(n,)` and `(n,)` of a pair of coordinates, the reward `(n,n)` over them with the others at their medians, and whether
    anyone arrived near each point: NaN in the last array, `(n,n)`, where nobody did."""
    steps = found.point.likelihood.problem.steps
    arrived = steps.next_states[steps.known_next]
    ends = np.quantile(arrived[:, list(pair)], [0.005, 0.995], axis=0)
    axes = [np.linspace(low, high, size) for low, high in ends.T.tolist()]
    points = np.tile(np.median(arrived, axis=0), (size * size, 1))
    points[:, list(pair)] = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    edges = [np.concatenate([[-np.inf], (axis[1:] + axis[:-1]) / 2, [np.inf]]) for axis in axes]
    counts = np.histogram2d(arrived[:, pair[0]], arrived[:, pair[1]], bins=edges)[0]
    near = _spread(counts, max(1, size // 16))
    return axes[0], axes[1], found.reward(points).reshape(size, size), np.where(near > 0, near, np.nan)


def _spread(counts: Floats, reach: int) -> Floats:
    """Counts within so many cells."""
    padded = np.pad(counts, reach)
    width = 2 * reach + 1
    return sum(
        (padded[i : i + counts.shape[0], j : j + counts.shape[1]] for i in range(width) for j in range(width)),
        np.zeros_like(counts),
    )
