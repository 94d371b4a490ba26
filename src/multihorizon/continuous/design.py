"""Everything that the likelihood needs of the data, computed once: rows at the decisions and at the points of value.

At a decision in s the value of action a is `Q(s,a) = X_a(s) (C_a θ + γ E_a v)` with v the coefficients of the expert's values.
Those are the least-squares fit of `V(z) = λ log Σ_a exp(Q(z,a)/λ)` to the basis over the *value points* z: distinct next states
of the log, at most `POINTS` of them, chosen evenly by their distance from the centre, so that no order of rows or columns
matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.continuous.basis import Fitted, fit_basis
from multihorizon.continuous.outcomes import FirstStage, fit_outcomes
from multihorizon.continuous.roughness import roughness
from multihorizon.continuous.smoothing import Smoothing
from multihorizon.tables.steps import Steps

#: Value points: enough that their choice moves a discount by far less than its standard error.
POINTS = 4000
#: A sparse product costs this many dense ones, for each pair of actions.
SPARSE_COST = 2.5
#: Coefficients of all actions beyond which their information matrix would not fit into memory well.
MOST_DENSE = 5000
#: Added to the diagonal of the projection, relative to its mean.
STABILITY = 1e-9


@dataclass(frozen=True, eq=False)
class Decisions:
    """One expert's decisions: X_a at each (A matrices `(n,p)`), the action taken, what is available, and weights of 1.

    `counts` `(A,n)` marks the action taken; `visits` `(n,)` says that each decision was made once; `foreseen` `(n,)` says whether
    the first stage knows what the action taken leads to.
    """

    rows: list[Sparse]
    action: Ints
    available: Bools
    counts: Floats
    visits: Floats
    foreseen: Bools

    @cached_property
    def chance(self) -> float:
        """The log-likelihood of the decisions if all available actions were equally likely."""
        return -float(np.log(self.available.sum(axis=0)).sum())

    @cached_property
    def products(self) -> Sparse | None:
        """The products of each row's entries, `(p²,n)`; None where actions have rows of their own, or rows are too full."""
        first = self.rows[0]
        widths = np.unique(np.diff(first.indptr))
        n, p = first.shape
        if any(row is not first for row in self.rows) or widths.size != 1:
            return None
        width = int(widths[0])
        i, j = np.triu_indices(width)
        if SPARSE_COST * i.size * (len(self.rows) + 1) >= p * p or len(self.rows) * p > MOST_DENSE:
            return None
        index, value = first.indices.reshape(n, width).astype(np.int64), first.data.reshape(n, width)
        order = np.argsort(index, axis=1)
        index, value = np.take_along_axis(index, order, 1), np.take_along_axis(value, order, 1)
        starts = np.arange(0, n * i.size + 1, i.size)
        cells = (index[:, i] * p + index[:, j]).ravel()
        return sp.csr_array(sp.csr_array(((value[:, i] * value[:, j]).ravel(), cells, starts), shape=(n, p * p)).T)


@dataclass(frozen=True, eq=False)
class Design:
    """The basis, the first stage, the experts' decisions, and the value points.

    Attributes:
        expected_paid: `E[φ(s')|z,a]` at the value points, `(A,m,f)`.
        expected_on: the part of it that goes on, `(A,m,f)`.
        projection: `(f,m)` gives coefficients from values at the points.
        points_available: whether each action is available at each point, `(A,m)`.
        point_rows: X_a at the points.
        roughness: the matrix `(f,f)` of the penalty on the reward.
    """

    basis: Fitted
    stage: FirstStage
    decisions: tuple[Decisions, ...]
    expected_paid: Floats
    expected_on: Floats
    projection: Floats
    points_available: Bools
    point_rows: list[Sparse]
    roughness: Floats

    @property
    def functions(self) -> int:
        """How many basis functions there are."""
        return int(self.expected_paid.shape[2])

    @property
    def ends(self) -> bool:
        """Whether some steps end an episode for good."""
        return self.expected_on is not self.expected_paid

    def decisions_of(self, steps: Steps) -> tuple[Decisions, ...]:
        """The decisions of other steps in the same basis, with the same first stage."""
        return tuple(_decisions(steps.select(steps.expert == k), self.basis, self.stage) for k in range(len(steps.experts)))


def make_design(steps: Steps, transformer: Any, regressor: Any = None, smoothing: Smoothing | None = None) -> Design:
    """Fit basis and first stage to the steps, and lay out their decisions; a first stage's smoothing is chosen if not given."""
    seen = steps.known_next
    basis = fit_basis(transformer, np.vstack([steps.states, steps.next_states[seen]]), steps.coordinates)
    stage = fit_outcomes(steps, basis, regressor, smoothing)
    points = value_points(steps)
    features = basis(points)
    rows = stage.rows(features, points)
    available = stage.available(features)
    live = available.any(axis=0)
    rows, available = [row[np.flatnonzero(live)] for row in rows], available[:, live]
    paid = np.stack([row @ c for row, c in zip(rows, stage.paid, strict=True)])
    on = paid if stage.going_on is stage.paid else np.stack([row @ c for row, c in zip(rows, stage.going_on, strict=True)])
    rough = roughness(basis, steps, points)
    bare = Design(basis, stage, (), paid, on, _projection(features[np.flatnonzero(live)]), available, rows, rough)
    return Design(**{**vars(bare), "decisions": bare.decisions_of(steps)})


def value_points(steps: Steps) -> Floats:
    """Distinct states `(m,d)` from which the logged steps go on, evenly chosen where there are many."""
    arrived = steps.next_states[steps.known_next & ~steps.terminated]
    distinct = np.unique(arrived if len(arrived) else steps.states, axis=0)
    if len(distinct) <= POINTS:
        return distinct
    spread = distinct.std(axis=0)
    far = (((distinct - distinct.mean(axis=0)) / np.where(spread > 0, spread, 1.0)) ** 2).sum(axis=1)
    return distinct[np.argsort(far, kind="stable")[np.linspace(0, len(distinct) - 1, POINTS).round().astype(np.int64)]]


def _decisions(steps: Steps, basis: Fitted, stage: FirstStage) -> Decisions:
    features, n = basis(steps.states), len(steps)
    taken = steps.action == np.arange(len(steps.actions))[:, None]
    known = stage.available(features)
    foreseen = known[steps.action, np.arange(n)]
    return Decisions(stage.rows(features, steps.states), steps.action, known | taken, taken / 1.0, np.ones(n), foreseen)


def _projection(features: Sparse) -> Floats:
    gram = (features.T @ features).toarray()
    gram[np.diag_indices_from(gram)] += STABILITY * np.trace(gram) / len(gram)
    solved: Floats = la.solve(gram, features.T.toarray(), assume_a="pos")
    return solved
