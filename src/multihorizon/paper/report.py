"""Writing the study up, from the parts' JSON alone: figures as SVG and PNG, tables of plain text, a self-contained HTML report,
and the docs page "The paper and us", which prints the same tables. And the same questions asked of a domain that a reader brings.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import multihorizon as mh
from multihorizon.domains import Domain
from multihorizon.domains.base import losses
from multihorizon.paper.claims import IN_PART, NOT, NOT_TESTED, REPRODUCED, Claim, distance, graded, numbers, printed_error
from multihorizon.paper.study import CHOSEN, PAPER_NAMES, PRINTED, Data, StudySettings, study_domains
from multihorizon.parallel import Progress
from multihorizon.report.charts import Badge, Block, Notice, Page, Picture, Section, TableBlock, figure
from multihorizon.report.plots import plot_policy, plot_reward, save
from multihorizon.result import COLOURS
from multihorizon.words import Table, decimals, plus_minus, power_of_ten, significant


def _sheet(rows: int, columns: int, width: float, height: float, framed: bool = False) -> tuple[Figure, Any]:
    with rc_context({"axes.spines.top": framed, "axes.spines.right": framed}):
        figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def _by_algorithm(axes: Any, part: Data, printed: Mapping[str, Any]) -> Iterator[tuple[Any, int, Data, Any]]:
    """Yield axes, height, row and the paper's figures of each algorithm on each domain; the names stand left of the first
    axes.
    """
    for ax, (domain, rows) in zip(axes, part.items(), strict=True):
        for y, (name, row) in enumerate(rows.items()):
            yield ax, y, row, _printed(printed, domain, name)
        ax.set(title=domain)
        ax.set_yticks(range(len(rows)), rows if ax is axes[0] else [])
        ax.invert_yaxis()


def generalization(data: Data, timings: Data) -> Figure:
    """Return mean generalization error of each algorithm, with the paper's figure beside ours."""
    figure, axes = _sheet(1, 3, 4.2, 3.4)
    for ax, y, row, printed in _by_algorithm(axes[0], data["generalization"], PRINTED.generalization):
        ax.barh(y, row["absolute mean"], color=COLOURS[0], height=0.6)
        ax.plot(printed[:1], [y] * len(printed[:1]), "D", color=COLOURS[4], ms=7)
        ax.set(xlabel="mean |loss| / |optimum|")
        ax.set_xscale("symlog", linthresh=0.01)
    handles = [
        Line2D([], [], color=COLOURS[0], lw=7, label="ours"),
        Line2D([], [], color=COLOURS[4], marker="D", ls="", label="paper"),
    ]
    axes[0, -1].legend(handles=handles, frameon=False)
    return figure


def discounts(data: Data, timings: Data) -> Figure:
    """Return learned discounts of each algorithm beside the true ones and the paper's."""
    figure, axes = _sheet(1, 3, 4.4, 3.6)
    for ax, y, row, printed in _by_algorithm(axes[0], data["learned"], PRINTED.discounts):
        for k, (true, ours) in enumerate(zip(row["true"], row["discounts"], strict=True)):
            ax.plot(true, y - 0.22, "|", color=COLOURS[k], ms=12, mew=2)
            ax.plot(ours, y, "o", color=COLOURS[k], ms=7)
        for k, theirs in enumerate(printed):
            ax.plot(theirs, y + 0.22, "D", color=COLOURS[k], ms=5, mfc="none")
        ax.set(xlabel="discount γ", xlim=(-0.04, 1.04))
        ax.grid(axis="x", color="0.9")
        ax.spines["left"].set_visible(False)
    shapes = (("|", "true", COLOURS[6]), ("o", "ours", COLOURS[6]), ("D", "paper", "none"))
    handles = [Line2D([], [], marker=m, ls="", color=COLOURS[6], mfc=fill, label=text) for m, text, fill in shapes]
    figure.legend(handles=handles, frameon=False, ncols=3, loc="outside lower center")
    return figure


def thresholds(data: Data, timings: Data) -> Figure:
    """Draw the discounts that MPMCE learns against the threshold, with the printed and the true ones."""
    figure, axes = _sheet(1, 3, 4.4, 3.6)
    for ax, (domain, rows) in zip(axes[0], data["thresholds"].items(), strict=True):
        x = [row["threshold"] for row in rows]
        for k, (true, printed) in enumerate(zip(rows[0]["true"], PRINTED.discounts["MPMCE"][domain], strict=True)):
            ax.axhline(printed, color=COLOURS[k], ls="--", lw=1)
            ax.axhline(true, color=COLOURS[k], ls=":", lw=1)
            ax.plot(x, [row["discounts"][k] for row in rows], "-", color=COLOURS[k], lw=1.5)
            for row in rows:
                fill = COLOURS[k] if row["ordered"] and row["status"] == "converged" else "white"
                ax.plot(row["threshold"], row["discounts"][k], "o", color=COLOURS[k], mfc=fill, ms=5)
        ax.axvline(CHOSEN.threshold, color="0.7", lw=1)
        ax.set(title=domain, xscale="log", xlabel="threshold", ylabel="learned discount γ", ylim=(-0.04, 1.04))
    kinds = (
        ("-", "o", COLOURS[6], "learned"),
        ("-", "o", "white", "order wrong or no maximum"),
        ("--", "", "", "paper"),
        (":", "", "", "true"),
    )
    handles = [Line2D([], [], color=COLOURS[6], ls=ls, marker=m, mfc=fill or None, label=text) for ls, m, fill, text in kinds]
    figure.legend(handles=handles, frameon=False, ncols=4, loc="outside lower center")
    return figure


def toy_values(data: Data, timings: Data) -> Figure:
    """Return value of s0 under "always a0, a1, a2" for the true, the MPLP and the naive reward; learned discounts dashed."""
    part = data["toy"]
    figure, axes = _sheet(1, 3, 4.4, 3.6)
    titles = {"true": "true reward", "MPLP": "reward learned by MPLP", "NaiveLP": "reward of the naive extension"}
    for ax, (name, curves) in zip(axes[0], part["curves"].items(), strict=True):
        for k, curve in enumerate(curves):
            ax.plot(part["axis"], curve, color=COLOURS[k], lw=2, label=f"always a{k}")
        marks = part["breakpoints"] if name == "true" else data["learned"]["toy"][name]["discounts"]
        for k, mark in enumerate(marks):
            ax.axvline(mark, color="0.6" if name == "true" else COLOURS[k], ls=":" if name == "true" else "--", lw=1.6)
        ax.set(title=titles[name], xlabel="discount γ", ylabel="value of s0")
    axes[0, 0].legend(frameon=False)
    return figure


def rewards(data: Data, timings: Data) -> Figure:
    """True and learned rewards of the three domains, each divided by its largest value: one colour scale for all."""
    names = ["MPLP", "MPLP, action sets", "MPMCE, threshold", "ClosedForm"]
    figure, axes = _sheet(5, 3, 4.4, 2.9, framed=True)  # as wide as the page, so that the numbers can be read
    for row, (key, domain) in zip(axes.T, study_domains().items(), strict=True):
        shown = [domain.reward, *(np.array(data["learned"][key][name]["reward"]) for name in names)]
        for ax, reward, name in zip(row, shown, [f"{key}: true reward", *names], strict=True):
            plot_reward(domain.mdp, reward / (np.abs(reward).max() or 1.0), ax, name, limit=1.0)
            if domain.mdp.grid_shape is None:
                ax.set_ylim(-1.05, 1.05)
        for ax in row:
            ax.title.set_fontsize(11)
            for text in ax.texts:
                text.set_fontsize(12)
    return figure


def policies(data: Data, timings: Data) -> Figure:
    """Draw the deterministic experts' optimal actions on the two grids."""
    figure, axes = _sheet(2, 3, 4.2, 2.4, framed=True)
    grids = [domain for domain in study_domains().values() if domain.mdp.grid_shape]
    for row, domain in zip(axes, grids, strict=True):
        for ax, sets, gamma in zip(row, domain.hard_action_sets(), domain.hard_discounts, strict=True):
            plot_policy(domain.mdp, sets, ax, f"{domain.name}: expert with γ = {gamma}")
    return figure


def convergence(data: Data, timings: Data) -> Figure:
    """Draw the best value after each evaluation of Bayesian optimisation, the best known optimum and the other searches."""
    figure, axes = _sheet(2, 3, 4.6, 3.2)
    for (upper, lower), domain in zip(axes.T, data["convergence"], strict=True):
        part = data["convergence"][domain]
        _curve(upper, part["Bayesian"]["trace"]["best"], COLOURS[0], "Bayesian")
        upper.axhline(part["SequentialLP"]["objective"], color=COLOURS[4], ls="--", label="best known optimum (SequentialLP)")
        upper.axhline(part["Grid"]["objective"], color=COLOURS[3], ls=":", label="grid search")
        upper.set(title=f"MPLP on {domain}", xlabel="iteration", ylabel="best objective g*")
        part = data["learned"][domain]
        for colour, name in ((COLOURS[2], "MPMCE, per expert"), (COLOURS[1], "MPMCE, summed gap")):
            _curve(lower, _scaled(part[name]["trace"]["best"]), colour, f"{name} (Bayesian)")
        lower.set(title=f"MPMCE on {domain}", xlabel="iteration", ylabel="best objective, scaled to [0, 1]")
    handles = [handle for row in axes for handle in row[0].get_legend_handles_labels()[0]]
    figure.legend(handles=handles, frameon=False, ncols=3, loc="outside lower center")
    return figure


def _scaled(best: list[float]) -> Any:
    """Return the best values from 0, the first that was found, to 1; not a number before it."""
    values = _found(best)
    first = float(np.nanmin(values)) if np.isfinite(values).any() else np.nan
    span = values[-1] - first
    return (values - first) / span if span > 0 else np.where(np.isnan(values), np.nan, 1.0)


def _found(best: Any) -> Any:
    """Return the best values after each evaluation; not a number where all so far were infeasible."""
    values = np.array(best, dtype=np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _curve(ax: Any, best: Any, colour: str, label: str) -> None:
    """The best value after each evaluation."""
    best = _found(best)
    ax.plot(np.arange(1, len(best) + 1), best, color=colour, drawstyle="steps-post", label=label)


def identifiability(data: Data, timings: Data) -> Figure:
    """Return distance of the experts' rewards from each other over the grid: a plane through the truth, and a histogram of all
    points."""
    grids = data["identifiability"]["grids"]
    figure, axes = _sheet(2, len(grids), 3.9, 3.3, framed=True)
    for column, (name, grid) in enumerate(grids.items()):
        image = axes[0, column].imshow(
            np.array(grid["plane"]["log10 residual"]).T, origin="lower", extent=(0, 1, 0, 1), cmap="viridis", vmin=-6, vmax=1
        )
        axes[0, column].plot(*grid["true"][:2], "*", color="red", ms=12)
        axes[0, column].set(title=f"{name}, γ₃ = {decimals(grid['plane']['discount'], 2)}", xlabel="γ₁", ylabel="γ₂")
        edges, counts = np.array(grid["histogram"]["edges"]), np.array(grid["histogram"]["counts"])
        seen = counts > 0
        axes[1, column].bar(edges[:-1][seen], counts[seen], width=0.45, align="edge", color=COLOURS[0])
        axes[1, column].set(yscale="log", ylim=(0.5, None), xlim=(-16, 2), xlabel="log10 residual", ylabel="grid points")
        axes[1, column].set_title(f"{len(grid['feasible'])} of {grid['points']:,} feasible")
    figure.colorbar(image, ax=axes[0], label="log10 residual", shrink=0.8)
    return figure


def two_experts(data: Data, timings: Data) -> Figure:
    """Return generalization error of the rewards that explain two toy experts, over all pairs of discounts, and its
    percentiles.
    """
    pairs = data["identifiability"]["two experts"]
    figure, axes = _sheet(1, 3, 4.4, 3.6, framed=True)
    for ax, (ending, grid) in zip(axes[0], pairs.items(), strict=False):
        errors = np.array([[np.nan if x is None else x for x in row] for row in grid["error"]])
        image = ax.imshow(errors.T, origin="lower", extent=(0, 1, 0, 1), cmap="Blues", vmin=0, vmax=1)
        ax.plot(*grid["true"], "*", color="red", ms=13)
        ax.set(title=f"{ending} ending", xlabel="γ₁", ylabel="γ₂")
        figure.colorbar(image, ax=ax, shrink=0.8)
        axes[0, 2].plot(grid["percentiles"], label=f"{ending}: {grid['share above 0.5']:.0%} above 0.5", lw=2)
    axes[0, 2].axhline(0.5, color="0.6", lw=0.8)
    axes[0, 2].set(xlabel="percentile", ylabel="generalization error", title="percentiles")
    axes[0, 2].legend(frameon=False)
    axes[0, 2].spines[["top", "right"]].set_visible(False)
    return figure


def toy_sets(data: Data, timings: Data) -> Figure:
    """Draw all discounts that explain three toy experts: a curve where episodes end, a surface where they do not."""
    sets = data["identifiability"]["sets"]
    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    for number, (ending, answers) in enumerate(sets.items(), start=1):
        ax = figure.add_subplot(1, 2, number, projection="3d")
        points = np.array(answers["points"]).reshape(-1, 3)
        ax.scatter(*points.T, s=4, c=points[:, 2], cmap="viridis", depthshade=False)
        ax.plot(*[[g] for g in (0.3, 0.5, 0.95)], "*", color="red", ms=13)
        ax.set(xlabel="γ₁", ylabel="γ₂", zlabel="γ₃", xlim=(0, 1), ylim=(0, 1), zlim=(0, 1))
        ax.set_box_aspect(None, zoom=0.85)
        ax.set_title(f"{ending} ending: {'a curve' if answers['dimension'] == 1 else 'a surface'} of answers")
    return figure


FIGURES: dict[str, Callable[[Data, Data], Figure]] = {
    "generalization": generalization,
    "discounts": discounts,
    "thresholds": thresholds,
    "toy_values": toy_values,
    "rewards": rewards,
    "policies": policies,
    "convergence": convergence,
    "identifiability": identifiability,
    "two_experts": two_experts,
    "toy_sets": toy_sets,
}


def _printed(table: Mapping[str, Any], domain: str, algorithm: str) -> Any:
    """Return what the paper prints of an algorithm on a domain; nothing where it does not."""
    return table.get(PAPER_NAMES.get(algorithm, ""), {}).get(domain, ())


def generalization_tables(data: Data) -> Table:
    """Return mean ± standard deviation of the generalization error; signed as in Eq. 27, absolute, the median, and the
    paper's.
    """
    headers = ("domain", "algorithm", "signed ratio", "absolute ratio", "median", "paper")
    rows = []
    for domain, algorithms in data["generalization"].items():
        for name, row in algorithms.items():
            ours = [plus_minus(row[f"{kind}mean"], row[f"{kind}std"], 3) for kind in ("", "absolute ")]
            paper = PAPER_NAMES.get(name, "")
            theirs = printed_error(paper, domain) if _printed(PRINTED.generalization, domain, name) else ""
            rows.append((domain, name, *ours, decimals(row["median"], 3), theirs))
    return Table.of(headers, rows, "Generalization error")


def discounts_tables(data: Data) -> Table:
    """True, learned and printed discounts."""
    rows = []
    for domain, algorithms in data["learned"].items():
        intervals = ", ".join(f"[{low:g}, {high:g}]" for low, high in PRINTED.intervals[domain])
        for name, row in algorithms.items():
            true = intervals if "LP" in name else numbers(row["true"])
            rows.append((domain, name, true, numbers(row["discounts"], 4), numbers(_printed(PRINTED.discounts, domain, name))))
    return Table.of(("domain", "algorithm", "true", "ours", "paper"), rows, "Learned discounts")


def conventions_table(data: Data) -> Table:
    """Return the cliff's errors by every reading of Eq. 27 that was tried."""
    rows = [
        (name, *(plus_minus(row["mean"], row["std"], 3) for row in each.values())) for name, each in data["conventions"].items()
    ]
    return Table.of(("convention", "MPLP", "MPMCE, threshold"), rows, "Readings of the cliff's error")


def thresholds_tables(data: Data) -> Table:
    """Return what MPMCE learns as the threshold grows, how far that is from the printed discounts, and how it generalises."""
    rows = [
        (
            domain,
            f"{row['threshold']:g}",
            numbers(row["discounts"], 3),
            "yes" if row["ordered"] else "no",
            decimals(distance(row, domain), 2),
            decimals(row["error"]["absolute mean"], 3),
            row["status"],
        )
        for domain, steps in data["thresholds"].items()
        for row in steps
    ]
    headers = ("domain", "threshold", "discounts", "true order", "distance to the paper", "generalization error", "status")
    return Table.of(headers, rows, "MPMCE within a threshold")


def theory(data: Data) -> list[Table]:
    """Return theorem 2, Proposition 1 and the duality gap, by domain."""
    part = data["theory"]
    columns = ("dual", "primal", "likelihood", "dual_bound", "entropy")
    chain = [(d, *(decimals(row[k], 4) for k in columns)) for d, row in part["chain"].items()]
    slopes = [
        (d, numbers(row["discounts"]), *(numbers(row[k], 4) for k in ("discounted", "plain")))
        for d, row in part["slopes"].items()
    ]
    gaps = [
        (d, numbers(row["discounts"]), power_of_ten(row["gap"]), ", ".join(power_of_ten(m) for m in row["mismatch"]))
        for d, rows in part["gap"].items()
        for row in rows[:4]
    ]
    slope = ("domain", "γ", "discounted likelihood", "plain likelihood")
    return [
        Table.of(
            ("domain", "G*", "H*", "−L*", "G* is at least", "H* at any discounts"),
            chain,
            "Theorem 2: the dual, the entropy, the likelihood",
        ),
        Table.of(slope, slopes, "Proposition 1: slope in logit γ at the experts"),
        Table.of(("domain", "Γ", "summed gap", "mismatch of each expert"), gaps, "The duality gap at the optimum of the dual"),
    ]


def choices(data: Data) -> list[Table]:
    """Return one table per choice."""

    def cell(value: Any) -> str:
        if isinstance(value, list):
            ends = f"{significant(np.min(value))} to {significant(np.max(value))}"
            return numbers(value) if len(value) <= 6 else f"{len(value)} values from {ends}"
        return significant(value, 4) if isinstance(value, float) else str(value)

    return [
        Table.of(tuple(rows[0]), [[cell(value) for value in row.values()] for row in rows], f"Sensitivity: {name}")
        for name, rows in data["choices"].items()
    ]


def used(settings: StudySettings) -> Table:
    """Return the choices of this run with the evidence for each."""
    bounds, weights = (
        ", ".join(f"{name} {value:g}" for name, value in each.items()) for each in (CHOSEN.reward_bound, CHOSEN.l1)
    )
    height = "not fixed by the printed intervals; see the table for how near each comes to the paper"
    shown = "on the toy the weight that gives the reward the paper shows; elsewhere the optimum is reached without"
    ties = "the first optimal action in the order right, down, left, up"
    rows = (
        ("bound on the reward", bounds, "the largest true reward; with l1 = 0 it only scales the answer"),
        ("l1 weight", weights, shown),
        ("temperature", f"{CHOSEN.temperature:g}", "not stated; ClosedForm recovers the discounts at every temperature tried"),
        ("ties", ties, "not stated; all optimal actions as a second row"),
        ("height of big-small", "3", height),
        ("gap ε of the printed rule", f"{CHOSEN.epsilon:g}", "not stated; see the table for others"),
        ("threshold of MPMCE", f"{CHOSEN.threshold:g}", "not stated; see the table for others"),
        (
            "policy in Eq. 27",
            "optimal without entropy, first optimal action",
            "reproduces the toy's printed errors for its printed rewards",
        ),
        ("value in Eq. 27", "from the initial distribution", "the domain's own"),
        ("seed, tasks", f"{settings.seed}, {settings.tasks}", "100 tasks in the full run, as in the paper"),
    )
    return Table.of(("choice", "value", "evidence"), rows, "Choices the paper does not state")


#: The rule of all verdicts.
RULE = (
    "One rule gives all verdicts. A printed figure that was measured on random tasks or found by a search is the same as ours if "
    "it lies among the middle 95% of ours, over drawings or seeds; one that was read off a grid, if ours lies within half of "
    "the grid's step; any other, if ours has its printed digits. Where a claim has several figures, all of them make "
    '"reproduced" and some "in part", and the distance of the others is said.'
)
#: What stands at the top of a quick run.
QUICK = "This was a quick run, with fewer tasks, evaluations and grid points than the paper's: its numbers are rough."


def captions(data: Data) -> dict[str, str]:
    """Return the caption of each figure; what they say of the numbers comes from the numbers."""
    naive = sorted(data["learned"]["toy"]["NaiveLP"]["discounts"])
    tied = " Under the naive reward two experts share the discount 1." if naive[1] > 1 - 1e-6 else ""
    grid = data["identifiability"]["grids"]["toy"]
    feasible = len(grid["feasible"])
    return {
        "generalization": "Generalization error of every algorithm. Bars: ours, absolute ratio; diamonds: the paper's.",
        "discounts": "Discounts: true (bar), learned by us (dot), printed in the paper (diamond). One colour per expert.",
        "thresholds": "Discounts that MPMCE learns when every expert is matched within a threshold. One colour per expert; "
        "dashed: printed in the paper, dotted: true; the vertical line marks the threshold of the tables.",
        "toy_values": "Toy domain: the value of s0 when one action is always taken, against the discount. Dotted: breakpoints; "
        f"dashed: learned discounts.{tied}",
        "rewards": "Rewards of the three domains, true and learned, on one colour scale: each is divided by its largest absolute "
        "value.",
        "policies": "What the deterministic experts do on the two grids; several arrows where several actions are optimal.",
        "convergence": "The best objective after each iteration of Bayesian optimisation. The MPMCE objectives are scaled to "
        "[0, 1] because the two rules have different units.",
        "identifiability": "How far the experts' rewards stay apart over the grid of discounts. Top: the plane through the last "
        "expert's discount, star at the truth. Bottom: all points of the grid; residuals near 1e-15 are exact explanations.",
        "two_experts": "Two toy experts: generalization error of the reward that explains both, for every pair of discounts, and "
        "its percentiles.",
        "toy_sets": "Each of these points explains the three toy experts exactly (star: the true one). A grid of step "
        f"{grid['step']} meets {feasible} of them.",
    }


def draw_figures(data: Data, timings: Data, progress: Progress) -> dict[str, Figure]:
    """Return every figure by name, drawn from the data."""
    drawings = {}
    for number, (name, draw) in enumerate(FIGURES.items()):
        progress(number / len(FIGURES), name)
        drawings[name] = draw(data, timings)
    return drawings


def write_figures(directory: Path, drawings: Mapping[str, Figure]) -> None:
    """Every figure as `NAME.svg` and `NAME.png`."""
    for name, drawing in drawings.items():
        for ending in ("svg", "png"):
            save(drawing, directory / f"{name}.{ending}")


def write_report(
    directory: Path, data: Data, drawings: Mapping[str, Figure], claims: list[Claim], settings: StudySettings
) -> None:
    """`report.html`: verdicts first, then every table and figure, then the choices."""
    texts = captions(data)
    verdicts = [claim.verdict for claim in claims]

    def drawn(*names: str) -> list[Picture]:
        return [figure(drawings[name], texts[name]) for name in names]

    counts = {verdict: verdicts.count(verdict) for verdict in (REPRODUCED, IN_PART, NOT, NOT_TESTED)}
    blocks: list[str | Block] = ["; ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count) + "."]
    kinds = {REPRODUCED: "good", NOT: "bad"}
    blocks += [RULE, TableBlock(verdicts_table(claims), folded=len(claims))]
    # Then one block per claim: a table with these long cells could not be read on a telephone.
    for claim in claims:
        blocks.append(Badge(f"{claim.topic}: {claim.verdict}", kinds.get(claim.verdict, "")))
        blocks += [f"Paper: {claim.claim}", f"Ours: {claim.ours}", claim.reason]
    sections = [
        Section("What was claimed, what we get", blocks),
        Section(
            "Generalization error",
            [TableBlock(generalization_tables(data)), *drawn("generalization"), TableBlock(conventions_table(data))],
        ),
        Section("Learned discounts", [TableBlock(discounts_tables(data)), *drawn("discounts")]),
        Section("MPMCE within a threshold", [*drawn("thresholds"), TableBlock(thresholds_tables(data))]),
        Section("The toy domain", drawn("toy_values")),
        Section("Rewards and policies", drawn("rewards", "policies")),
        Section("Convergence", drawn("convergence")),
        Section("Identifiability", drawn("identifiability", "two_experts", "toy_sets")),
        Section("Theorems in numbers", [TableBlock(table) for table in theory(data)]),
        Section("Choices", [TableBlock(used(settings)), *(TableBlock(table) for table in choices(data))]),
    ]
    Page(
        "Multiple planning horizons: the paper and us",
        "Every table and figure of the study, ours beside the paper's.",
        sections,
        f"multihorizon {mh.__version__}, seed {settings.seed}, {'quick' if settings.quick else 'full'} run.",
        [Notice(QUICK)] if settings.quick else [],
    ).write(directory / "report.html")


def write_page(directory: Path, data: Data, claims: list[Claim], settings: StudySettings) -> None:
    """`paper.md`, the page `docs/paper/results.md`: each claim, our number, the verdict and the reason."""
    run = f"`multihorizon reproduce --out DIR --seed {settings.seed}{' --quick' if settings.quick else ''}`"
    tables = (
        generalization_tables(data),
        conventions_table(data),
        discounts_tables(data),
        thresholds_tables(data),
        *theory(data),
    )
    parts = [
        "# Our numbers beside the paper's",
        *([f"**{QUICK}**"] if settings.quick else []),
        f"Generated by {run}, multihorizon {mh.__version__}; do not edit. It drew {settings.tasks} tasks "
        f"{settings.seeds} times, ran Bayesian optimisation for {settings.lp_evaluations} (MPLP) and {settings.mce_evaluations} "
        f"(MPMCE) iterations, the former from {settings.search_seeds} seeds, and used a grid of step {settings.grid_step:g}.",
        RULE,
        "## Verdicts",
        "| claim | verdict |\n| --- | --- |\n" + "\n".join(f"| {c.topic} | {c.verdict} |" for c in claims),
        "## Each claim",
        *(f"### {c.topic}: {c.verdict}\n\n* Paper: {c.claim}\n* Ours: {c.ours}\n* Why: {c.reason}" for c in claims),
        "## Tables",
        *(_markdown(table) for table in tables),
        "## What the paper leaves open",
        *(_markdown(t) for t in (used(settings), *choices(data))),
    ]
    (directory / "paper.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def verdicts_table(claims: Sequence[Claim]) -> Table:
    """Return the verdict on each claim."""
    return Table.of(("claim", "verdict"), [(claim.topic, claim.verdict) for claim in claims], "Verdicts")


def _markdown(table: Table) -> str:
    return f"### {table.caption}\n\n{table.markdown().rstrip()}"


def load_domain(name: str) -> Domain:
    """Return the domain `MODULE:NAME`, a `Domain` or a function that makes one; modules in the working folder count.

    Raises:
        ValueError: where there is no such module or name, and where it is no domain.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"the domain must be given as MODULE:NAME, such as my_module:weaning, got {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"the domain {name} cannot be loaded: {error}") from error
    finally:
        sys.path.pop(0)
    domain = loaded() if callable(loaded) and not isinstance(loaded, Domain) else loaded
    if not isinstance(domain, Domain):
        raise ValueError(f"{name} must be a Domain or a function that makes one, got {type(domain).__name__}")
    return domain


def study_domain(domain: Domain, settings: StudySettings, progress: Progress) -> tuple[list[Claim], Table]:
    """Return the verdicts on one domain, and the table of what each algorithm learns."""
    bound = float(np.abs(domain.reward).max())
    hard, soft = mh.Problem(domain.mdp, domain.hard_experts()), mh.Problem(domain.mdp, domain.soft_experts(CHOSEN.temperature))
    cases: dict[str, tuple[mh.Problem, Any, tuple[float, ...]]] = {
        "MPLP": (hard, mh.MPLP(reward_bound=bound), domain.hard_discounts),
        "NaiveLP": (hard, mh.NaiveLP(reward_bound=bound), domain.hard_discounts),
        "MPMCE": (soft, mh.MPMCE(CHOSEN.temperature), domain.soft_discounts),
        "ClosedForm": (soft, mh.ClosedForm(CHOSEN.temperature), domain.soft_discounts),
    }
    variants = domain.tasks(settings.tasks, settings.seed)
    rows = []
    claims = []
    for number, (name, (problem, solver, true)) in enumerate(cases.items()):
        progress(number / len(cases), name)
        solution = mh.solve(problem, solver, seed=settings.seed)
        learned = np.isfinite(solution.discounts).all() and np.isfinite(solution.reward).all()
        error = float(losses(domain, solution.reward[None], variants)[1].mean()) if learned else np.nan
        seconds = decimals(solution.seconds, 2)
        rows.append((name, numbers(true), numbers(solution.discounts, 3), str(solution.status), decimals(error, 3), seconds))
        if name != "NaiveLP":
            ordered = bool((np.diff(solution.discounts[np.argsort(true)]) > 0).all())
            claim = "The learned discounts have the order of the true ones."
            claims.append(
                Claim(f"Order of discounts, {name}", claim, numbers(solution.discounts, 3), graded([ordered]), solution.message)
            )
    report = mh.identify(soft, CHOSEN.temperature)
    claims.append(
        Claim(
            "Identifiability",
            "Only the true discounts have a reward that explains the experts.",
            report.status,
            graded([report.status == "unique"]),
            report.headline(),
        )
    )
    headers = ("algorithm", "true", "learned", "status", "generalization error (absolute)", "seconds")
    return claims, Table.of(headers, rows, f"What each algorithm learns on {domain.name}")


def write_domain(directory: Path, domain: Domain, claims: list[Claim], table: Table, settings: StudySettings) -> None:
    """`report.html` and `paper.md`: the verdicts as one table, what was learned, and each claim."""
    verdicts = verdicts_table(claims)
    each: list[str | Block] = []
    for claim in claims:
        each += [Badge(f"{claim.topic}: {claim.verdict}"), f"Paper: {claim.claim}", f"Here: {claim.ours}", claim.reason]
    title = f"Multiple planning horizons on {domain.name}"
    sections = [
        Section("Verdicts", [TableBlock(verdicts)]),
        Section("What is learned", [TableBlock(table)]),
        Section("Each claim", each),
    ]
    opening = [Notice("A quick run: few task variants.")] if settings.quick else []
    footer = f"multihorizon {mh.__version__}, seed {settings.seed}, {settings.tasks} task variants."
    Page(title, f"{domain.mdp.n_states} states, {domain.mdp.n_actions} actions.", sections, footer, opening).write(
        directory / "report.html"
    )
    parts = [f"# {title}", verdicts.markdown().rstrip(), table.markdown().rstrip()]
    parts += [f"## {c.topic}: {c.verdict}\n\n* Paper: {c.claim}\n* Here: {c.ours}\n* Why: {c.reason}" for c in claims]
    (directory / "paper.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
