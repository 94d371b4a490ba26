"""Which decisions are independent of which: each expert's decisions, kept apart by cluster.

A cluster is an episode, or an expert with all episodes. Decisions of different clusters are independent of each other; those of
one cluster need not be. What is asked of clusters are sums over their decisions, `Σ_(s,a) N_e(s,a) y(s,a)`, so their counts N_e
are all that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Ints, Sparse
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.problem import Problem, require_counts

#: What is independent of each other; "auto" lets a test of the decisions choose between decisions and episodes.
Unit = Literal["decision", "episode", "expert"]
Choice = Literal["auto", "decision", "episode", "expert"]
CHOICES = ("auto", "decision", "episode", "expert")
NO_EPISODES = "the problem does not hold the episodes of its decisions"


def check_cluster(value: object) -> None:
    """Raise unless this says what is independent of each other."""
    if value not in CHOICES:
        raise ValueError(f"cluster must be one of {', '.join(CHOICES)}, received {value!r}")


@dataclass(frozen=True, eq=False)
class Clusters:
    """The decisions of a problem's experts by cluster.

    Attributes:
        unit: what a cluster is.
        counts: for each of the problem's experts how often each cluster took each decision `(n,A·S)`, in rows a·S + s of the MDP.
        numbers: for each of them the number of each cluster `(n,)` among all.
    """

    unit: Unit
    counts: tuple[Sparse, ...]
    numbers: tuple[Ints, ...]

    @classmethod
    def of(cls, problem: Problem, unit: Unit, tables: Sequence[Demonstrations] | None = None) -> Clusters | str:
        """The clusters of a problem; or why they are not known.

        Args:
            problem: whose experts have decisions.
            unit: "episode" or "expert".
            tables: where the decisions come from, one for each task in order; by default those the problem was made of.
        """
        if unit == "expert":
            counts = tuple(sp.csr_array(require_counts(expert).T.ravel()[None]) for expert in problem.experts)
            return cls(unit, counts, tuple(np.array([owner]) for owner in problem.owner))
        listed = sources(problem, tables)
        if isinstance(listed, str):
            return listed
        split: dict[int, tuple[int, Ints, Sparse]] = {}
        found, numbers, size = [], [], 0
        for expert, (table, k) in zip(problem.experts, listed, strict=True):
            if id(table) not in split:
                owner = table.by_episode.expert
                split[id(table)] = size, owner, table.choices_by(expert.mdp, np.arange(owner.size), owner.size)
                size += owner.size
            first, owner, made = split[id(table)]
            episodes = np.flatnonzero(owner == k)
            counts = made[episodes]
            if not np.array_equal(counts.sum(axis=0), require_counts(expert).T.ravel()):
                return NO_EPISODES
            found.append(counts)
            numbers.append(first + episodes)
        return cls(unit, tuple(found), tuple(numbers))


def sources(problem: Problem, tables: Sequence[Demonstrations] | None = None) -> list[tuple[Demonstrations, int]] | str:
    """The table of each of the problem's experts, and their number in it; or why it is not known.

    The tables are those given, one for each task in order, or by default those the problem was made of.
    """
    if tables is not None:
        listed = [(table, k) for table in tables for k in range(len(table.experts))]
        return listed if len(listed) == len(problem.experts) else NO_EPISODES
    listed = []
    for expert in problem.experts:
        if expert.table is None or expert.name not in expert.table.experts:
            return NO_EPISODES
        listed.append((expert.table, expert.table.experts.index(expert.name)))
    return listed
