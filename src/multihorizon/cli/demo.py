"""`multihorizon demo`: three walkers who want the same things, where each of them goes, and what their walks give away."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table as RichTable

from multihorizon.analysis import Analysis, analyse
from multihorizon.cli.console import checked, out, progress_bar
from multihorizon.cli.options import DemoOptions
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.domains.base import Domain
from multihorizon.domains.grids import meadow, toy
from multihorizon.exact.identify import identify
from multihorizon.files import write_all
from multihorizon.horizon import Horizon
from multihorizon.parallel import Progress, part_of
from multihorizon.problem import Problem, require_counts
from multihorizon.questions.horizons import own_steps_text, steps_text
from multihorizon.report.files import write_fit
from multihorizon.report.plots import best_walk, plot_walks, save
from multihorizon.words import Role, Table, decimals

WALKERS = ("Ann", "Ben", "Cleo")
#: Walks that each walker makes, from places all over the meadow.
WALKS = 300
#: What a step onto a cell brings, with its name and its sign on the map.
GROUND = {6.0: ("snack", "s"), 40.0: ("feast", "F"), -3.0: ("mud", "~"), -0.5: ("grass", "·")}
FITTED = ("result.json", "result.npz", "people.csv", "reward.csv", "solution.json", "task.npz", "report.html")
FILES = ("walks.png", "decisions.csv", "meadow.npz", *FITTED)


def demo(options: DemoOptions) -> None:
    """Take the tour: three walkers with one goal, and what a table of their walks gives away."""
    with checked(options, FILES):
        domain, directory = meadow(), options.out_dir
        start = domain.mdp.state_names.index("B3")
        walks = [best_walk(domain.mdp, domain.reward, discount, start) for discount in domain.hard_discounts]
        _open(domain, walks)
        with progress_bar("demo") as progress:
            analysis = _recover(directory, domain, walks, progress)
        _show(domain, analysis)
        _close(directory)


def _open(domain: Domain, walks: list[list[int]]) -> None:
    """The three maps side by side."""
    out.print("Three walkers want the same things: a snack (s, 6 points), a feast (F, 40),")
    out.print("and dry feet (~ is mud: each step in it costs 3, other steps half a point).")
    out.print("They start at the same place, @. This is where each of them goes:\n")
    maps = RichTable(box=None, padding=(0, 2), show_header=False)
    maps.add_row(*WALKERS, style="bold")
    maps.add_row(*(f"looks {decimals(Horizon()(discount), 0)} steps ahead" for discount in domain.hard_discounts))
    maps.add_row(*(_map(domain, walk) for walk in walks))
    out.print(maps)


def _map(domain: Domain, walk: list[int]) -> str:
    """The meadow with one walk drawn as arrows."""
    assert domain.mdp.grid_shape is not None
    width = domain.mdp.grid_shape[1]
    arrows = {1: "→", width: "↓", -1: "←", -width: "↑"}
    signs = [GROUND[reward][1] for reward in domain.reward.tolist()]
    for here, following in pairwise(walk):
        signs[here] = arrows[following - here]
    signs[walk[0]] = "@"
    return "\n".join(" ".join(signs[i : i + width]) for i in range(0, len(signs), width))


def _recover(directory: Path, domain: Domain, walks: list[list[int]], progress: Progress) -> Analysis:
    """Log walks from all over the meadow, fit them, and write everything."""
    progress(0.0, "walking")
    table = Demonstrations.simulate(domain.mdp, domain.soft_experts(), WALKS, names=WALKERS)
    analysis = analyse([table], [domain.mdp], progress=part_of(progress, 0.1, 0.9))
    assert isinstance(analysis, Analysis)
    progress(0.9, "drawing")
    titles = [
        f"{name} looks {decimals(Horizon()(g), 0)} steps ahead" for name, g in zip(WALKERS, domain.hard_discounts, strict=True)
    ]

    def write(draft: Path) -> None:
        table.to_csv(draft / "decisions.csv")
        domain.mdp.to_npz(draft / "meadow.npz")
        save(plot_walks(domain.mdp, domain.reward, walks, titles, "One reward, three horizons"), draft / "walks.png")
        write_fit(draft, analysis, {"demonstrations": ["decisions.csv"], "transitions": ["meadow.npz"]})

    write_all(directory, FILES, write)
    return analysis


def _show(domain: Domain, analysis: Analysis) -> None:
    """True and found side by side, and a case in which nothing can be found."""
    decisions = int(analysis.decisions.sum())
    out.print(f"\nDoes what they do give that away? From {WALKS} walks of each, {decisions:,} decisions:\n")
    out.print(_horizons(domain, analysis))
    out.print(_wishes(domain, analysis), soft_wrap=True)
    small = toy()
    verdict = identify(Problem(small.mdp, small.soft_experts(), names=["near", "middle", "far"]))
    out.print("Some behaviour cannot show how far ahead people look, however much of it is seen. Then the answer says so.")
    out.print("Three experts of the paper's toy domain, known exactly:")
    out.print("\n".join(verdict.sentences().splitlines()[:4]), soft_wrap=True)


def _horizons(domain: Domain, analysis: Analysis) -> RichTable:
    rows = []
    for k, name in enumerate(analysis.solution.experts):
        true = domain.soft_discounts[WALKERS.index(name)]
        low, high = (steps_text(analysis, float(end)) for end in analysis.intervals[k])
        rows.append((name, analysis.horizon.number(true), own_steps_text(analysis, k), f"{low} to {high}"))
    frame = pd.DataFrame(rows, columns=["walker", "true", "found", "95 % interval"])
    roles: dict[str, Role] = dict.fromkeys(frame.columns[1:], "horizon")
    return Table(frame, "How many steps they look ahead", roles=roles).rich()


def _wishes(domain: Domain, analysis: Analysis) -> str:
    """The rewards as the report has them, as differences from the average logged step, beside the true ones."""
    experts = analysis.problem.experts
    arrivals = sum(expert.feature_matrix.T @ require_counts(expert).T.ravel() for expert in experts)
    average = float(arrivals @ domain.reward / np.sum(arrivals))
    found = {value: float(analysis.contrasts.values[domain.reward == value].mean()) for value in GROUND}
    wishes = [f"{name} {decimals(found[value], 2)} (true {decimals(value - average, 2)})" for value, (name, _) in GROUND.items()]
    return f"What they want, as points above those of their average step: {', '.join(wishes)}.\n"


def _close(directory: Path) -> None:
    """Where the files are, and what to type next."""
    out.print(f"\nWritten to {directory}: {', '.join(FILES)}", soft_wrap=True)
    out.print("\nWhat to do next:", style="bold")
    out.print(f"  Open {directory / 'report.html'} in a browser. It is what you get for a table of your own.", soft_wrap=True)
    out.print(f"  It was made from {directory / 'decisions.csv'}, one row per decision, by this command:", soft_wrap=True)
    source, moves = (_typed(directory / name) for name in ("decisions.csv", "meadow.npz"))
    out.print(f"      multihorizon fit {source} --transitions {moves} --out result", soft_wrap=True)
    out.print("  Walks begin anywhere. How much more must the feast, at I3, offer, so that four of five walks of Ann lead there?")
    out.print(f"      multihorizon predict {_typed(directory)} --nudge I3 --chance 0.8", soft_wrap=True)
    out.print("  With a table of your own, type")
    out.print("      multihorizon fit YOUR-TABLE.csv --out result")


def _typed(path: Path) -> str:
    """A path as it is typed on a command line."""
    return f'"{path}"' if " " in str(path) else str(path)
