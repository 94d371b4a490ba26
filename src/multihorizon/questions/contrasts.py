"""Rewards as differences: what decisions determine even where they leave a constant added to all rewards open.

Two rewards whose components in every undetermined direction of the information are equal have a known difference. Such states
form a group. The largest group is compared with the reward of its average logged step: the mean over the states that the
decisions led to. The variance is `c' I⁺ c` for the contrast c, so an uncertainty that all rewards share does not appear in it.
Weights of features are measured from zero, "without this feature", and are contrasts already.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import TINY, Floats, Ints
from multihorizon.estimate.intervals import precision
from multihorizon.estimate.maximum_likelihood import resume
from multihorizon.problem import Problem
from multihorizon.solution import Solution


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences `(d,)` from the average logged step (features: from zero) and their standard errors; NaN if not known."""

    values: Floats
    standard_errors: Floats


def reward_contrasts(solution: Solution) -> Contrasts:
    """The contrasts of a maximum-likelihood solution; all NaN where there are too many rewards for a dense information matrix."""
    point, reward = resume(solution), solution.reward
    unknown = np.full(reward.size, np.nan)
    if point.likelihood.is_large:
        return Contrasts(unknown, unknown)
    found = precision(point)
    assert found.covariance is not None
    null = found.null_space[: reward.size] / (np.abs(found.null_space[: reward.size]).max(initial=0.0) or 1.0)
    matrix = np.eye(reward.size, found.covariance.shape[0])
    if point.likelihood.problem.tabular:
        arrivals = _arrivals(point.likelihood.problem)
        members = _largest_group(null, arrivals)
        steps = np.where(np.isin(np.arange(reward.size), members), arrivals, 0.0)
        matrix[:, : reward.size] -= steps / max(steps.sum(), TINY)
    else:
        members = np.flatnonzero(np.linalg.norm(null, axis=1) <= 1e-3)
    covariances = matrix @ found.covariance
    variances = (covariances * matrix).sum(axis=1)
    known = np.isin(np.arange(reward.size), members)
    values, errors = matrix[:, : reward.size] @ reward, np.sqrt(np.maximum(variances, 0.0))
    return Contrasts(np.where(known, values, np.nan), np.where(known, errors, np.nan))


def _arrivals(problem: Problem) -> Floats:
    """How often the logged decisions are expected to arrive in each state `(S,)`."""
    total = np.zeros(problem.n_parameters)
    for expert in problem.experts:
        if expert.counts is not None:
            total += expert.feature_matrix.T @ expert.counts.T.ravel()
    return total


def _largest_group(null: Floats, arrivals: Floats) -> Ints:
    """The most rows that are equal in the undetermined directions, at least two; else none.

    Of groups of one size it is the one that the decisions led to most often.
    """
    groups = [np.flatnonzero(np.linalg.norm(null - row, axis=1) <= 1e-3) for row in null]
    largest = max(groups, key=lambda group: (group.size, float(arrivals[group].sum())))
    return largest if largest.size > 1 else np.zeros(0, dtype=np.int64)
