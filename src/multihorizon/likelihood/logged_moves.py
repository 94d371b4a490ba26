"""Transitions that come from the table itself give way within their own error.

A table tells of a row `T(·|s,a)` through `m(s')` counted moves; p̂ is the estimate, and `m = size · p̂`. To hold T at p̂
while everything else is fitted would take the error of p̂ for a finding about experts: other temperatures, another discount, a
model that does not fit. So T is fitted too: what is maximised is the likelihood of decisions and moves, `L(x,T) + Σ m log T`.

Each move has a number t, and `T ∝ p̂ exp(t)` within its row. The common level of a row's numbers does not change T. It is held
by counting moves as they would come in a time in which one expects the size of the row (Poisson):

    ℓ(t) = Σ m (t − exp(t) + 1),

whose maximum over the level is `Σ m log(T/p̂)`. Its gradient is `m (1 − exp(t))`, and its curvature is diagonal, `m exp(t)`. At a
maximum the decisions pull as hard the other way, and because T is curved in t this adds `m (1 − exp(t))`: m in all.
Rows with one possible next state have nothing to give way, and rows that are known exactly have no numbers.

A row's change moves expert k's immediate reward: `dR_k(s,a) = Σ_s' dT(s'|s,a) u_k(s')` with `u_k = ρ + γ_k V_k`, ρ the reward
paid on arrival. So `dR_k/dt(s') = T(s') (u_k(s') − Σ T u_k)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.mdp import MDP
from multihorizon.problem import Problem


@dataclass(frozen=True, eq=False)
class LoggedMoves:
    """The moves of one task that may give way: places in `mdp.stacked.data`, rows a·S + s, p̂, and counts m, all `(E,)`.

    `number` numbers their rows from 0. `task` is the number of the MDP among those of the problem, which holds the estimate.
    """

    task: int
    mdp: MDP
    entries: Ints
    rows: Ints
    number: Ints
    estimate: Floats
    counts: Floats

    @property
    def size(self) -> int:
        """How many moves there are."""
        return self.entries.size

    def held(self) -> LoggedMoves:
        """The same task where no move gives way."""
        none = np.zeros(0, dtype=np.int64)
        return replace(self, entries=none, rows=none, number=none, estimate=self.estimate[none], counts=self.counts[none])

    def probabilities(self, t: Floats) -> Floats:
        """All entries of T, in the order of `mdp.stacked.data`, where the moves give way by t `(E,)`."""
        data: Floats = self.mdp.stacked.data.copy()
        weights: Floats = self.estimate * np.exp(t)
        data[self.entries] = weights / np.bincount(self.number, weights)[self.number]
        return data

    def numbers(self, mdp: MDP) -> Floats:
        """The t `(E,)` with which the moves have the probabilities of an MDP."""
        found: Floats = np.log(mdp.stacked.data[self.entries] / self.estimate)
        return found

    def value(self, t: Floats) -> float:
        """The log-likelihood of the counted moves, less that of the estimate."""
        return float(self.counts @ (t - np.expm1(t)))

    def gradient(self, t: Floats) -> Floats:
        """Its gradient `(E,)`."""
        slope: Floats = -self.counts * np.expm1(t)
        return slope

    def worth(self, mdp: MDP, reached: Floats) -> Floats:
        """How immediate rewards `(E,n)` move with t where states are worth `reached` `(S,n)` to those who arrive."""
        mean = (mdp.stacked @ reached)[self.rows]
        found: Floats = mdp.stacked.data[self.entries, None] * (reached[mdp.stacked.indices[self.entries]] - mean)
        return found


def logged_moves(problem: Problem) -> tuple[LoggedMoves, ...]:
    """The moves that may give way, of each task that has such; the problem's transitions are those that were counted."""
    found = []
    for task, mdp in enumerate({id(expert.mdp): expert.mdp for expert in problem.experts}.values()):
        if mdp.sample_sizes is None:
            continue
        widths = np.diff(mdp.stacked.indptr)
        rows = np.repeat(np.arange(widths.size), widths)
        entries = np.flatnonzero(np.isfinite(mdp.sample_sizes[rows]) & (widths[rows] > 1) & (mdp.stacked.data > 0))
        rows, estimate = rows[entries], mdp.stacked.data[entries]
        number = np.unique(rows, return_inverse=True)[1]
        found.append(LoggedMoves(task, mdp, entries, rows, number, estimate, mdp.sample_sizes[rows] * estimate))
    return tuple(found)


def redrawn(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with estimated rows drawn anew around their estimates, with their sample sizes."""
    return problem.in_tasks(lambda mdp: mdp if mdp.sample_sizes is None else _drawn(mdp, rng))


def _drawn(mdp: MDP, rng: np.random.Generator) -> MDP:
    assert mdp.sample_sizes is not None
    data, ends = mdp.stacked.data.copy(), mdp.stacked.indptr
    for row, size in enumerate(mdp.sample_sizes):
        part = slice(ends[row], ends[row + 1])
        if np.isfinite(size) and data[part].size:
            draws = max(1, round(float(size)))
            data[part] = rng.multinomial(draws, data[part] / data[part].sum()) / draws
    return mdp.with_probabilities(data)
