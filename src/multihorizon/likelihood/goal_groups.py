"""Experts in groups: the likely partitions, how probably two experts share a goal, and what stays open.

A partition of the experts into groups has the sum of its groups' scores (`goal_scores.py`), and a probability in proportion to
the exponential of that sum (Akaike's weights). The search begins with single experts and merges the two groups whose merging
gains most, as long as any does. From there the best partition is taken again and again, and its neighbours are tried: one expert
in another group or alone, or two groups merged. The search ends when no partition within `NEAR` of the best is left, or more than
`MOST_FITS` groups were fitted after the merging. The probability that two experts share a goal is the weight of the partitions
found in which they do.

Experts are put into one group if they are linked by probabilities of at least `SURE`. So a group holds experts who share its goal
beyond reasonable doubt. Whoever is alone may still share a goal with somebody: that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from multihorizon.checks import Floats
from multihorizon.likelihood.goal_scores import Group, Scores
from multihorizon.progress import Progress, silent

#: The probability from which something counts as sure.
SURE = 0.95
#: Partitions whose score is further below the best are not looked around: less than a thousandth of its weight.
NEAR = 7.0
#: Partitions are no longer looked around once more groups than this were fitted after the merging. The neighbours of the merged
#: partition are always tried: without them its probability would be 1, however many experts there are.
MOST_FITS = 400
#: A fit that was broken off says that experts differ only where it is behind by more than this.
HOPELESS = 100.0

Partition = frozenset[Group]


def weigh_partitions(scores: Scores, progress: Progress = silent) -> dict[Partition, float]:
    """The likely partitions of the experts with their probabilities."""
    best = _merged(scores, progress)
    found = {best: _score(scores, best)}
    looked_around: set[Partition] = set()
    most = scores.n_fits + MOST_FITS
    while found[best] >= max(found.values()) - NEAR and scores.n_fits <= most:
        looked_around.add(best)
        found |= {near: _score(scores, near) for near in _neighbours(best) if near not in found}
        rest = [partition for partition in found if partition not in looked_around]
        if not rest:
            break
        best = max(rest, key=found.__getitem__)
    return dict(zip(found, softmax(np.array(list(found.values()))).tolist(), strict=True))


def sharing(weights: dict[Partition, float], n_experts: int) -> Floats:
    """The probability `(K,K)` that two experts share a goal; on the diagonal that of a goal nobody shares."""
    shared = np.zeros((n_experts, n_experts))
    for partition, weight in weights.items():
        for group in partition:
            members = sorted(group)
            if len(members) == 1:
                shared[members[0], members[0]] += weight
            for i, j in combinations(members, 2):
                shared[i, j] += weight
                shared[j, i] += weight
    return shared


def sure_groups(shared: Floats) -> list[Group]:
    """Experts who are linked by sure probabilities."""
    number, label = connected_components((shared >= SURE) & ~np.eye(len(shared), dtype=np.bool_), directed=False)
    return [frozenset(np.flatnonzero(label == g).tolist()) for g in range(number)]


def memberships(shared: Floats, groups: Sequence[Group]) -> Floats:
    """The probability `(K,G)` that each expert shares the goal of each group: the mean over its other members.

    For an expert who is a group of one, it is the probability that nobody shares their goal.
    """
    found = np.zeros((len(shared), len(groups)))
    for k in range(len(shared)):
        for g, group in enumerate(groups):
            found[k, g] = shared[k, sorted(group - {k}) or [k]].mean()
    return found


def undecided(scores: Scores, shared: Floats, groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Pairs of groups, by number, for which it is not sure that their goals differ."""
    return [(g, h) for g, h in combinations(range(len(groups)), 2) if not _apart(scores, shared, groups[g], groups[h])]


def _apart(scores: Scores, shared: Floats, first: Group, second: Group) -> bool:
    sure = bool((shared[np.ix_(sorted(first), sorted(second))] <= 1 - SURE).all())
    return sure and (scores(first | second).finished or scores.gain(first, second) < -HOPELESS)


def _merged(scores: Scores, progress: Progress) -> Partition:
    """Merge the two groups that gain most, until no two gain."""
    groups: list[Group] = [frozenset((k,)) for k in range(scores.problem.n_experts)]
    first = len(groups)
    while len(groups) > 1:
        gains = {pair: scores.gain(*pair) for pair in combinations(groups, 2)}
        one, other = max(gains, key=gains.__getitem__)
        if gains[one, other] <= 0:
            break
        groups = [group for group in groups if group not in (one, other)] + [one | other]
        progress(1 - len(groups) / first, f"{len(groups)} groups")
    return frozenset(groups)


def _score(scores: Scores, partition: Partition) -> float:
    return sum(scores.score(group) for group in sorted(partition, key=sorted))


def _neighbours(partition: Partition) -> Iterator[Partition]:
    for first, second in combinations(sorted(partition, key=sorted), 2):
        yield partition - {first, second} | {first | second}
    for group in partition:
        for expert in group:
            rest = group - {expert}
            kept = partition - {group} | ({rest} if rest else set())
            if rest:
                yield kept | {frozenset((expert,))}
            for other in kept - {rest}:
                yield kept - {other} | {other | {expert}}
