"""Where choices differ from the fitted model: fitted against observed choices, and the states that fit worst.

One expert's choices in a state can be compared with the model where they repeat. In many tasks of people they do not: hundreds of
states, each met once or twice by each person. There the decisions of all experts in a state are summed, and so are the choices
the model expects of them. `G² = 2 Σ_a N log(N/E)` is compared with χ² with one degree of freedom fewer than available actions.
Experts who differ make the sums vary less than χ² says, so the test is conservative. p-values are multiplied by the number of
states looked at (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats
from multihorizon.mdp import MDP
from multihorizon.report.findings import Findings
from multihorizon.tolerances import TINY

#: Shares of fewer decisions say too little to be compared with the model.
FEWEST_DECISIONS = 10


@dataclass(frozen=True, eq=False)
class Choices:
    """Decisions `(S,A)` of one expert, or of all in a task, beside those the model expects of them."""

    expert: str
    mdp: MDP
    taken: Floats
    expected: Floats

    @property
    def visits(self) -> Floats:
        """Decisions in each state `(S,)`."""
        total: Floats = self.taken.sum(axis=1)
        return total


class Misfit(NamedTuple):
    """A state where choices differ from the model, with the action most out of line."""

    expert: str
    state: str
    decisions: int
    action: str
    taken: float
    predicted: float
    p_value: float


def choices_repeat(findings: Findings) -> bool:
    """Whether most decisions were made in states that the same expert met often enough to be compared with the model."""
    visits = [c.visits for c in _each(findings)]
    often = sum(float(v[v >= FEWEST_DECISIONS].sum()) for v in visits)
    return often > 0.5 * float(findings.decisions.sum())


def compared_choices(findings: Findings) -> list[Choices]:
    """The choices of each expert where they repeat, else of all experts of a task together."""
    return list(_each(findings)) if choices_repeat(findings) else _together(findings)


def misfits(findings: Findings) -> list[Misfit]:
    """Every state with enough decisions to be compared with the model, from the worst fit to the best."""
    compared = compared_choices(findings)
    looked_at = sum(int(_testable(c).sum()) for c in compared)
    found = [misfit for choices in compared for misfit in _misfits(choices, looked_at)]
    return sorted(found, key=lambda m: (m.p_value, m.expert, m.state))


def _testable(choices: Choices) -> Floats:
    mask: Floats = (choices.visits >= FEWEST_DECISIONS) & (choices.mdp.available.sum(axis=1) > 1)
    return mask


def _misfits(choices: Choices, looked_at: int) -> Iterator[Misfit]:
    taken, expected, mdp = choices.taken, choices.expected, choices.mdp
    ratio = np.where(taken > 0, taken / np.maximum(expected, TINY), 1.0)
    deviance = np.maximum(2 * (taken * np.log(ratio)).sum(axis=1), 0.0)
    p_values = np.minimum(1.0, looked_at * chi2.sf(deviance, np.maximum(mdp.available.sum(axis=1) - 1, 1)))
    for s in np.flatnonzero(_testable(choices)):
        a, visits = int(np.abs(taken[s] - expected[s]).argmax()), float(taken[s].sum())
        shares = float(taken[s, a]) / visits, float(expected[s, a]) / visits
        yield Misfit(choices.expert, mdp.state_names[s], int(visits), mdp.action_names[a], *shares, float(p_values[s]))


def _each(findings: Findings) -> Iterator[Choices]:
    for expert, policy in zip(findings.problem.experts, findings.policies, strict=True):
        assert expert.counts is not None
        yield Choices(expert.name, expert.mdp, expert.counts, expert.counts.sum(axis=1, keepdims=True) * policy)


def _together(findings: Findings) -> list[Choices]:
    found: dict[int, Choices] = {}
    for one in _each(findings):
        all_before = found.get(id(one.mdp))
        if all_before is not None:
            one = Choices("", one.mdp, all_before.taken + one.taken, all_before.expected + one.expected)
        found[id(one.mdp)] = Choices("all", one.mdp, one.taken, one.expected)
    return list(found.values())
