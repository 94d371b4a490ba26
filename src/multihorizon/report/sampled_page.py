"""The page of a fit to states that are vectors: who looks how far, the reward over pairs of coordinates, and how it was found."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from multihorizon.continuous.functions import grid
from multihorizon.report.findings import LEVEL
from multihorizon.report.formats import count, p_cell, person_cells
from multihorizon.report.html import Bar, Cell, Page, Section, cards, figure, listing, paragraph, table, warning
from multihorizon.report.plots import literal
from multihorizon.report.sampled_analysis import SampledAnalysis
from multihorizon.solution import package_version

#: At most so many coordinates have their pairs drawn.
MOST_DRAWN = 4


def sampled_page(found: SampledAnalysis, options: dict[str, Any]) -> Page:
    """The whole page."""
    solution = found.solution
    return Page(
        title="How far ahead do they plan?",
        lead=f"{count(len(solution.experts), 'expert')}, {count(len(found.steps), 'decision')}, in states of "
        f"{count(len(found.steps.coordinates), 'number')}.",
        opening=[
            *(warning(text) for text in found.warnings),
            cards([(verdict.question, verdict.answer, verdict.kind) for verdict in found.verdicts]),
            paragraph(" ".join(verdict.reasons for verdict in found.verdicts)),
        ],
        sections=[_horizons(found), _reward(found), _dynamics(found), _method(found, options)],
        footer=f"multihorizon {package_version()}, seed {solution.seed}",
    )


def _horizons(found: SampledAnalysis) -> Section:
    rows: list[list[Cell]] = []
    for k, name in enumerate(found.solution.experts):
        low, high = found.intervals[k].tolist()
        bar = Bar(low, float(found.solution.discounts[k]) if found.given[k] else np.nan, high, (0.0, 1.0))
        *look, heat = person_cells(found, k)
        rows.append([name, *look, bar, heat, int(found.decisions[k])])
    headers = ["expert", "horizon in steps", "discount", f"{100 * LEVEL:.0f} % interval", "", "temperature", "decisions"]
    blocks = [table(headers, rows, "Effective horizons are 1/(1 − discount).")]
    if found.pairs:
        tests: list[list[Cell]] = [
            [" and ".join(test.experts), float(test.discount), float(test.statistic), test.degrees, p_cell(test.adjusted)]
            for test in found.pairs
        ]
        blocks.append(
            table(["pair", "one discount", "χ²", "degrees", "p (Holm)"], tests, "Do two experts look equally far ahead?")
        )
    return Section("Who looks how far ahead", blocks)


def _reward(found: SampledAnalysis) -> Section:
    """The reward over each pair of the coordinates it depends on; over one, as a curve."""
    names = found.functions.coordinates
    whole = [i for i in range(len(names)) if "=" not in names[i]][:MOST_DRAWN]
    if found.withheld:
        return Section("What they are after", [paragraph("No reward is given, because no maximum of the likelihood was found.")])
    text = "What arriving somewhere pays, measured from the average logged arrival."
    blocks = [paragraph(f"{text} Blue pays more and red less. Grey: nobody was near.")]
    for pair in combinations(whole, 2):
        blocks.append(figure(_surface(found, pair), f"Reward over {names[pair[0]]} and {names[pair[1]]}."))
    if len(whole) == 1:
        blocks.append(figure(_curve(found, whole[0]), f"Reward over {names[whole[0]]}, with 95 % intervals."))
    if found.solution.evidence["left_out"]:
        left = ", ".join(found.solution.evidence["left_out"])
        blocks.append(paragraph(f"Left out, because nobody acts on them: {left}."))
    return Section("What they are after", blocks)


def _surface(found: SampledAnalysis, pair: tuple[int, int]) -> Axes:
    names = found.functions.coordinates
    x, y, reward, near = grid(found.functions, pair)
    shown = np.where(np.isnan(near), np.nan, reward)
    limit = float(np.nanmax(np.abs(shown)))
    axes = Figure(figsize=(5.0, 4.0), layout="constrained").subplots()
    axes.set_facecolor("0.85")
    drawn = axes.pcolormesh(x, y, shown.T, cmap="RdBu", vmin=-limit, vmax=limit, shading="nearest")
    axes.figure.colorbar(drawn, ax=axes, label="reward")
    axes.set_xlabel(literal(names)[pair[0]])
    axes.set_ylabel(literal(names)[pair[1]])
    return axes


def _curve(found: SampledAnalysis, place: int) -> Axes:
    steps = found.functions.point.likelihood.problem.steps
    arrived = steps.next_states[steps.known_next]
    points = np.tile(np.median(arrived, axis=0), (200, 1))
    points[:, place] = np.linspace(arrived[:, place].min(), arrived[:, place].max(), 200)
    reward, error = found.functions.reward(points), found.functions.reward_errors(points)
    axes = Figure(figsize=(5.0, 3.0), layout="constrained").subplots()
    axes.fill_between(points[:, place], reward - 1.96 * error, reward + 1.96 * error, alpha=0.3)
    axes.plot(points[:, place], reward)
    axes.set_xlabel(literal(found.functions.coordinates)[place])
    axes.set_ylabel("reward")
    return axes


def _dynamics(found: SampledAnalysis) -> Section:
    evidence = found.solution.evidence
    rows: list[list[Cell]] = [[name, float(r2)] for name, r2 in evidence["next_state_r2"].items()]
    overlap: list[list[Cell]] = [
        [name, f"{100 * share:.0f} %"] for name, share in zip(found.solution.experts, evidence["overlap"], strict=True)
    ]
    return Section(
        "What the log says about the task",
        [
            paragraph("Where actions lead was learned from the same steps, and tested on every third episode."),
            table(["coordinate", "share of its change that is predicted"], rows),
            table(["expert", "decisions made where others decided too"], overlap),
        ],
    )


def _method(found: SampledAnalysis, options: dict[str, Any]) -> Section:
    evidence = found.solution.evidence
    tried: list[list[Cell]] = [
        [str(row["basis"]), int(row["functions"]), float(row["penalty"]), f"{row['held_out']:.5f}"] for row in evidence["tried"]
    ]
    blocks = [
        paragraph(
            f"{found.solution.message} The first stage is {evidence['first_stage']}; the penalty on roughness is "
            f"{evidence['penalty']:g}. Status: {found.solution.status}."
        )
    ]
    if tried:
        blocks.append(table(["basis", "functions", "penalty", "held-out log-likelihood per decision"], tried))
    blocks.append(listing("\n".join(f"{name}: {value}" for name, value in options.items() if value is not None)))
    return Section("How it was found", blocks)
