"""The section of a report on what the learned reward makes best, as the look-ahead grows."""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats
from multihorizon.experts import Expert
from multihorizon.report.explorer import Person, Task, explorer
from multihorizon.report.findings import Findings
from multihorizon.report.fit_figures import state_tips, state_values
from multihorizon.report.formats import count
from multihorizon.report.html import Section, paragraph
from multihorizon.report.shell import text
from multihorizon.solution import Status

#: The most tasks with a slider; of several tasks the first ones are shown.
MOST_TASKS = 4
HEADING = "What is best, by look-ahead"


def policy_sections(found: Findings) -> list[Section]:
    """The section, where there is a reward that can be planned with."""
    if found.withheld or found.solution.status == Status.NOT_IDENTIFIED:
        return [Section(HEADING, [paragraph("No reward is known well enough to say what it makes best.")])]
    tasks: dict[int, list[Expert]] = {}
    for expert in found.problem.experts:
        tasks.setdefault(id(expert.mdp), []).append(expert)
    blocks = [paragraph(line) for line in _opening(found)]
    for number, experts in enumerate(list(tasks.values())[:MOST_TASKS], 1):
        blocks += [f"<h3>{text(f'Task {number} of {len(tasks)}')}</h3>"] if len(tasks) > 1 else []
        blocks += explorer(_task(found, experts), _people(found), number)
    if len(tasks) > MOST_TASKS:
        blocks.append(paragraph(f"Shown are {MOST_TASKS} of {count(len(tasks), 'task')}."))
    return [Section(HEADING, blocks)]


def _opening(found: Findings) -> list[str]:
    whose = "given" if found.reward_given else "learned"
    lines = [
        "The same reward makes other actions best for those who look farther ahead. The slider goes through the discounts and "
        f"shows the best actions of the {whose} reward at each. Experts choose these more often than others, but not always."
    ]
    unknown = 0 if found.reward_given else int(np.isnan(found.contrasts.values).sum())
    if unknown:
        what = count(unknown, "state" if found.problem.tabular else "feature")
        lines.append(f"The decisions do not determine the reward of {what}, so best actions that depend on it are not known.")
    if found.goals is not None and found.goals.rejected:
        lines.append("One reward for all experts is rejected, so what it makes best must not be believed either.")
    if not found.reward_given:
        lines.append("The reward is an estimate: where it is changed a little, the best actions change at other discounts.")
    return lines


def _people(found: Findings) -> list[Person]:
    order = [k for k in found.order if found.given[k]]
    return [Person(k, found.solution.experts[k], float(found.solution.discounts[k])) for k in order]


def _task(found: Findings, experts: list[Expert]) -> Task:
    mdp = experts[0].mdp
    reward = experts[0].expected_reward(found.solution.reward)
    decisions: Floats = np.sum([expert.counts.sum(axis=1) for expert in experts if expert.counts is not None], axis=0)
    names = mdp.state_names
    return Task(mdp, reward, state_values(found, names), state_tips(found, names, mdp.terminal), decisions, found.steps)
