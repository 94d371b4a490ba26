"""Goals on a page: who belongs where, the groups' rewards side by side, and what to do where goals differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multihorizon.likelihood.contrasts import reward_contrasts
from multihorizon.likelihood.goals import GoalEstimates
from multihorizon.recovery.goals import DIFFER
from multihorizon.report.findings import Findings, most_steps
from multihorizon.report.formats import decimals
from multihorizon.report.goal_check import QUESTION
from multihorizon.report.html import Cell, Either, Page, Section, listing, paragraph, table
from multihorizon.report.rulers import look_ahead
from multihorizon.solution import Solution, Status, package_version

ADVICE = (
    "Fit each group by itself: keep the rows of its experts, and run multihorizon fit on them. Experts of whom it cannot be "
    "told need more decisions, above all in states that the others visit."
)
UNIT = (
    "The unit of a reward: one that is larger by 1 makes the choice that leads to it at once 2.7 times as likely, for an expert "
    "with temperature 1."
)


def goals_sections(found: Findings) -> list[Section]:
    """The section of a fit's report, where the test was made."""
    if found.goals is None:
        return []
    blocks = [paragraph(found.goals.answer)]
    if found.goals.groups is not None and not found.goals.model_fails:
        blocks += [listing(found.goals.groups.summary()), *_blocks(found.goals.groups, found.solution.experts)]
    return [Section(QUESTION, blocks)]


def goals_page(found: GoalEstimates, remarks: list[str], seed: int) -> Page:
    """The report of `multihorizon goals`."""
    method = [
        paragraph(
            "Groups are compared by how likely one reward makes their decisions, less a price for each parameter. The test of "
            "one reward for all asks whether rewards of their own explain the experts' decisions better, by more than they "
            "explain decisions drawn from the fit with one reward."
        ),
        *(paragraph(remark) for remark in remarks),
    ]
    names = found.experts
    sections = [Section(QUESTION, [listing(found.summary()), *_blocks(found, names)]), Section("How this was made", method)]
    footer = f"multihorizon {package_version()}, seed {seed}"
    return Page("Who shares a goal with whom", found.headline(), sections, footer, experts=list(enumerate(names)))


def _blocks(found: GoalEstimates, names: Sequence[str]) -> list[str]:
    """What was found of each expert and each group; `names` numbers the experts of the page."""
    advice = [paragraph(ADVICE)] if found.verdict == DIFFER or found.ungrouped else []
    return [*advice, _members(found, names), _rewards(found)]


def _members(found: GoalEstimates, names: Sequence[str]) -> str:
    place = {name: [k] for k, name in enumerate(names)}
    steps = max(most_steps(solution.require_problem()) for solution in found.solutions)
    number = {name: g for g, group in enumerate(found.groups) for name in group}
    rows: list[list[Cell]] = [
        [name, f"goal {number[name] + 1}", look_ahead(float(gamma), steps), *(decimals(float(p), 2) for p in chances)]
        for name, gamma, chances in zip(found.experts, found.discounts, found.memberships, strict=True)
    ]
    look = Either("discount γ", "horizon, steps")
    headers: list[str | Either] = ["expert", "group", look, *(f"shares goal {g + 1}" for g in range(len(found.groups)))]
    caption = "Who belongs where, with the probability of sharing each goal (alone in a group: with nobody)"
    return table(headers, rows, caption, [place[name] for name in found.experts])


def _rewards(found: GoalEstimates) -> str:
    """One column for each group of two or more."""
    columns = {g: _reward_cells(s) for g, s in enumerate(found.solutions) if len(s.experts) > 1}
    if not columns:
        return paragraph("No two experts surely share a goal, so no reward is given.")
    problem = found.solutions[0].require_problem()
    rows: list[list[Cell]] = [[name, *(cells[i] for cells in columns.values())] for i, name in enumerate(problem.parameter_names)]
    kind = "state" if problem.tabular else "feature"
    average = "; those of states are differences from the average logged step" if problem.tabular else ""
    listed = table([kind, *(f"goal {g + 1}" for g in columns)], rows, f"Rewards of each goal, ± one standard error{average}")
    return f"{paragraph(UNIT)}{listed}"


def _reward_cells(solution: Solution) -> list[str | None]:
    if solution.status == Status.NOT_CONVERGED:
        return [None] * solution.reward.size
    found = reward_contrasts(solution)
    pairs = zip(found.values, found.standard_errors, strict=True)
    return [None if np.isnan(value) else f"{value:.2f} ± {error:.2f}" for value, error in pairs]
