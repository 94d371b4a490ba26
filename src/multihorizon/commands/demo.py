"""`multihorizon demo`: a first look, on the cliff domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from multihorizon.commands.console import make_directory, out, plain_errors, progress_bar
from multihorizon.domains import Domain, cliff, toy
from multihorizon.intervals import DiscountInterval, discount_intervals
from multihorizon.report.plots import plot_intervals, plot_reward, plot_values_by_discount, save
from multihorizon.solution import package_version


def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write the pictures and the JSON.")] = Path("multihorizon-demo"),
) -> None:
    """Show how the best way across a cliff depends on how far ahead one looks."""
    with plain_errors():
        domain = cliff()
        directory = make_directory(out_dir)
        with progress_bar("demo") as progress:
            progress(0.1, "finding the discount intervals")
            intervals = discount_intervals(domain.mdp, domain.reward)
            progress(0.3, "drawing")
            files = _draw(directory, domain, intervals)
        _write(directory / "intervals.json", domain, intervals)
        out.print(_table(domain, intervals))
        out.print(f"One reward, {len(intervals)} ways to act on it. Written to {directory}: {', '.join(files)}, intervals.json")


def _draw(directory: Path, domain: Domain, intervals: list[DiscountInterval]) -> list[str]:
    save(plot_intervals(domain.mdp, domain.reward, intervals), directory / "policies.png")
    save(plot_reward(domain.mdp, domain.reward, title="Cliff: the reward the experts share"), directory / "reward.png")
    small = toy()
    title = "Toy domain: which action is best in s0 depends on the discount"
    labels = [f"always {name}" for name in ("a0", "a1", "a2")]
    save(plot_values_by_discount(small.mdp, small.reward, labels=labels, title=title), directory / "values.png")
    return ["policies.png", "reward.png", "values.png"]


def _write(path: Path, domain: Domain, intervals: list[DiscountInterval]) -> None:
    rows = [{"low": i.low, "high": i.high, "optimal_actions": i.optimal_actions.tolist()} for i in intervals]
    content = {"domain": domain.name, "intervals": rows, "version": package_version()}
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _table(domain: Domain, intervals: list[DiscountInterval]) -> Table:
    table = Table(title="Cliff domain: the optimal actions by discount", show_lines=True)
    for header in ("discount γ from", "to", "horizon 1/(1−γ) up to"):
        table.add_column(header, justify="right")
    table.add_column("optimal actions (· ends)")
    for interval in intervals:
        horizon = "∞" if interval.high == 1 else f"{1 / (1 - interval.high):.2f} steps"
        table.add_row(f"{interval.low:.6f}", f"{interval.high:.6f}", horizon, _arrows(domain, interval))
    return table


def _arrows(domain: Domain, interval: DiscountInterval) -> str:
    """Rows of the grid with the optimal arrows of each cell."""
    assert domain.mdp.grid_shape is not None
    signs = "→↓←↑"
    cells = [
        "·" if end else "".join(sign for sign, chosen in zip(signs, row, strict=True) if chosen)
        for row, end in zip(interval.optimal_actions, domain.mdp.terminal, strict=True)
    ]
    width, room = domain.mdp.grid_shape[1], max(len(cell) for cell in cells)
    return "\n".join(" ".join(cell.ljust(room) for cell in cells[i : i + width]) for i in range(0, len(cells), width))
