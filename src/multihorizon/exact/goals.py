"""Who shares a goal with whom: experts grouped by their reward, where both rewards and discounts may differ.

Two experts share a reward exactly if the system of the pair has a solution (`joint_equations`). A pair of policies usually has
more equations than unknowns, so that experts with different rewards contradict each other. Every pair gets one of three verdicts:

* `share`: the pair identifies both discounts, and experts with unrelated rewards would hardly fit as well (`coincidence`);
* `differ`: no reward and discounts explain both, up to the tolerance;
* `cannot tell`: some reward explains both, but that says little: the pair is not identified, or has too few equations.

Pairs that share a reward are linked, the surest first, and links make groups. Two groups become one only if their joint system
has a solution. Several experts can show what pairs cannot, so groups that nothing sets apart are also tried together: they become
one if all of them together are identified. What each expert says is computed once, so a pair costs only a system in two unknowns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import Floats, as_positive
from multihorizon.exact.equations import (
    JointEquations,
    has_features,
    in_order_of_content,
    joint_equations,
    read_equations,
    reward_families,
)
from multihorizon.exact.identify import Answer, Identification, Temperature, judge, read_temperature
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem

#: A fit counts as a shared goal if the chance that unrelated rewards would fit as well is at most this.
LARGEST_COINCIDENCE = 1e-6
SHARE, DIFFER, CANNOT_TELL = "share", "differ", "cannot tell"


@dataclass(frozen=True)
class Pair:
    """What two experts say about sharing a reward.

    Attributes:
        experts: their names.
        verdict: "share", "differ" or "cannot tell".
        status: that of `identify` for the pair.
        misfit: how much worse the equations hold than errors of the tolerance explain; above 5 is "differ".
        coincidence: a rough chance that experts with unrelated rewards would fit as well.
    """

    experts: tuple[str, str]
    verdict: str
    status: str
    misfit: float
    coincidence: float


@dataclass(frozen=True, eq=False)
class Goals:
    """The experts in groups that share a reward.

    Attributes:
        experts: all names, in the order of the problem.
        groups: tuples of names; an expert without a link is a group of one.
        solutions: what `identify` says of each group; an expert alone has no discount.
        pairs: every pair of experts with its verdict.
    """

    experts: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    solutions: tuple[Identification, ...]
    pairs: tuple[Pair, ...]

    @property
    def discounts(self) -> Floats:
        """The discount of each expert `(K,)`; NaN where it is not identified."""
        found = {
            name: gamma if known else np.nan
            for solution in self.solutions
            for name, gamma, known in zip(solution.experts, solution.discounts, solution.discounts_identified, strict=True)
        }
        return np.array([found[name] for name in self.experts])

    @property
    def misfits(self) -> Floats:
        """How badly each pair fails `(K,K)`, in units of the tolerated errors; NaN on the diagonal."""
        matrix = np.full((len(self.experts), len(self.experts)), np.nan)
        for pair in self.pairs:
            i, j = (self.experts.index(name) for name in pair.experts)
            matrix[i, j] = matrix[j, i] = pair.misfit
        return matrix

    @property
    def undecided(self) -> tuple[tuple[int, int], ...]:
        """Pairs of groups, by number, of which it cannot be told whether they share a reward: no two of their members differ."""
        number = {name: g for g, group in enumerate(self.groups) for name in group}
        apart = {frozenset(number[name] for name in pair.experts) for pair in self.pairs if pair.verdict == DIFFER}
        return tuple((g, h) for g, h in combinations(range(len(self.groups)), 2) if {g, h} not in apart)

    def summary(self) -> str:
        """The finding in plain words."""
        lines = [self._headline()]
        for number, (group, solution) in enumerate(zip(self.groups, self.solutions, strict=True), start=1):
            lines.append(f"Goal {number}: {', '.join(group)}. {_describe(solution)}")
        for g, h in self.undecided:
            lines.append(f"It cannot be told whether goals {g + 1} and {h + 1} are the same: their policies agree with both.")
        return "\n".join(lines)

    def to_frame(self) -> pd.DataFrame:
        """One row per expert: the number of the goal, from 1, and the discount, NaN where it is not identified."""
        return goals_frame(self.experts, self.groups, self.discounts)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON takes them; None where nothing is known."""
        return {
            "experts": list(self.experts),
            "groups": [list(group) for group in self.groups],
            "discounts": [None if np.isnan(gamma) else float(gamma) for gamma in self.discounts],
            "solutions": [solution.to_dict() for solution in self.solutions],
            "pairs": [{**vars(pair), "experts": list(pair.experts)} for pair in self.pairs],
            "undecided": [list(pair) for pair in self.undecided],
        }

    def _headline(self) -> str:
        if len(self.experts) == 1:
            return "One expert alone shares a goal with nobody, and their discount cannot be told."
        if len(self.groups) == 1:
            return "All experts share one reward."
        if self.undecided:
            return f"The links between the experts make {len(self.groups)} groups, but some of these may share a reward."
        return f"The experts have {len(self.groups)} different goals."


def goals_frame(experts: Sequence[str], groups: Sequence[Sequence[str]], discounts: Floats) -> pd.DataFrame:
    """One row per expert with the number of the group, from 1, and the discount."""
    number = {name: g for g, group in enumerate(groups, start=1) for name in group}
    return pd.DataFrame({"expert": experts, "goal": [number[name] for name in experts], "discount": discounts})


def _describe(solution: Identification) -> str:
    if solution.status == "infeasible":
        return "No reward and discount explain this expert." if len(solution.experts) == 1 else solution.headline()
    if len(solution.experts) == 1:
        return "Alone, so the discount cannot be told."
    known = solution.discounts_identified
    discounts = [f"{g:.4f}" if ok else "not identified" for g, ok in zip(solution.discounts, known, strict=True)]
    return f"Discounts {', '.join(discounts)}."


def goals(problem: Problem, temperature: Temperature = 1.0, tolerance: float = 1e-8, progress: Progress = silent) -> Goals:
    """Group experts, given as policies, by the reward they share.

    Args:
        problem: experts given as policies without zero entries; one task or several, with or without features.
        temperature: the entropy weight λ that all experts share, or "per_expert": each has their own, and experts share a goal if
            their rewards are the same up to a factor.
        tolerance: how large the errors in the policies may be, as in `identify`. With large errors fewer pairs can be decided.
        progress: called as pairs are done.

    Returns:
        The groups, what `identify` says of each, and the verdict on every pair.

    Raises:
        ValueError: on malformed options, zero probabilities, best actions, and demonstrations.

    Example:
        >>> import numpy as np
        >>> from multihorizon import domains, soft_plan
        >>> mdp = domains.random_mdp(8, 3, seed=0)
        >>> first, second = np.random.default_rng(0).normal(size=(2, 8))
        >>> experts = [soft_plan(mdp, r, gamma).policy for r, gamma in ((first, 0.3), (second, 0.5), (first, 0.9))]
        >>> goals(Problem(mdp, experts, names=["ann", "ben", "cem"])).groups
        (('ann', 'cem'), ('ben',))
    """
    lam = read_temperature(temperature)
    as_positive(tolerance, "tolerance")
    for expert in problem.experts:
        if expert.counts is not None:
            raise ValueError(f"expert {expert.name} must be given as a policy to tell goals apart, received demonstrations")
    everyone = _Everyone(problem, lam, tolerance)
    pairs = _judge_pairs(everyone, progress)
    groups = _try_together(everyone, _link(everyone, pairs), pairs)
    ordered = sorted((tuple(sorted(group, key=problem.names.index)) for group in groups), key=lambda g: problem.names.index(g[0]))
    solutions = tuple(everyone.identify(group).listed_as(group, free_temperatures=lam is None) for group in ordered)
    return Goals(problem.names, tuple(ordered), solutions, tuple(_listed(pair, problem.names) for pair in pairs))


Group = frozenset[str]


class _Everyone:
    """What each expert says, computed once, and the system of any of them together."""

    def __init__(self, problem: Problem, lam: float | None, tolerance: float) -> None:
        self.problem, self._lam, self._tolerance = in_order_of_content(problem), lam, tolerance
        self.names = self.problem.names
        policies = [read_equations(expert) for expert in self.problem.experts]
        self._families = None if has_features(problem) else reward_families(self.problem, policies, tolerance)

    def equations(self, names: Sequence[str] | Group) -> JointEquations:
        """The system of some experts."""
        chosen = [i for i, expert in enumerate(self.problem.experts) if expert.name in names]
        problem = self.problem.with_experts([self.problem.experts[i] for i in chosen])
        families = None
        if self._families is not None:
            families = [replace(self._families[i], owner=k) for i, k in zip(chosen, problem.owner, strict=True)]
        return joint_equations(problem, self._lam, self._tolerance, families=families)

    def identify(self, names: Sequence[str]) -> Identification:
        """What `identify` says of some experts."""
        return judge(self.equations(names)).report()

    def judged(self, names: Group) -> tuple[Answer, float]:
        """What is found of some experts, without the extent of a set, and the logarithm of a coincidence's chance."""
        found = judge(self.equations(names), extent=False)
        return found, found.surplus()[1]

    def share(self, groups: Sequence[Group]) -> bool:
        """Whether some groups are identified together, and not by coincidence; only the equations between groups count."""
        found, together = self.judged(frozenset().union(*groups))
        if found.status != "unique":
            return False
        return bool(together - sum(self.judged(group)[1] for group in groups) <= np.log10(LARGEST_COINCIDENCE))


def _judge_pairs(everyone: _Everyone, progress: Progress) -> list[Pair]:
    pairs = []
    both = list(combinations(everyone.names, 2))
    for number, (first, second) in enumerate(both, start=1):
        found, logarithm = everyone.judged(frozenset((first, second)))
        word = CANNOT_TELL
        if found.status == "infeasible":
            word = DIFFER
        elif found.status == "unique" and logarithm <= np.log10(LARGEST_COINCIDENCE):
            word = SHARE
        pairs.append(Pair((first, second), word, found.status, found.misfit, float(10.0**logarithm)))
        progress(number / len(both), f"pair {number} of {len(both)}")
    return pairs


def _link(everyone: _Everyone, pairs: Sequence[Pair]) -> list[Group]:
    """Join experts who share a reward, the surest pair first, wherever the joint system of their groups has a solution."""
    group_of: dict[str, Group] = {name: frozenset((name,)) for name in everyone.names}
    for pair in sorted((p for p in pairs if p.verdict == SHARE), key=lambda p: p.coincidence):
        first, second = (group_of[name] for name in pair.experts)
        together = first | second
        if first == second or _apart(first, second, pairs):
            continue
        if len(together) == 2 or everyone.judged(together)[0].status != "infeasible":
            group_of.update(dict.fromkeys(together, together))
    return list(dict.fromkeys(group_of.values()))


def _try_together(everyone: _Everyone, groups: list[Group], pairs: Sequence[Pair]) -> list[Group]:
    """Join groups that nothing sets apart where they are identified together: two at a time, then all that are connected."""
    for first, second in combinations(groups, 2):
        if len(first | second) > 2 and not _apart(first, second, pairs) and everyone.share([first, second]):
            rest = [group for group in groups if group not in (first, second)]
            return _try_together(everyone, [first | second, *rest], pairs)
    close = np.array([[not _apart(first, second, pairs) for second in groups] for first in groups])
    n_parts, part_of = connected_components(close, directed=False)
    joined: list[Group] = []
    for part in range(n_parts):
        members = [group for group, p in zip(groups, part_of, strict=True) if p == part]
        joined += [frozenset().union(*members)] if len(members) > 2 and everyone.share(members) else members
    return joined


def _apart(first: Group, second: Group, pairs: Sequence[Pair]) -> bool:
    """Whether some expert of one group differs from some expert of the other."""
    return any(
        pair.verdict == DIFFER and len(first & set(pair.experts)) == 1 and len(second & set(pair.experts)) == 1 for pair in pairs
    )


def _listed(pair: Pair, names: tuple[str, ...]) -> Pair:
    """The pair with its experts in the order of `names`."""
    first, second = sorted(pair.experts, key=names.index)
    return replace(pair, experts=(first, second))
