"""`multihorizon demo`: a tour on built-in data: experts with one reward and different horizons, and how both are recovered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from multihorizon.commands.console import make_directory, out, plain_errors, progress_bar
from multihorizon.domains import Domain, cliff, toy
from multihorizon.driver import solve
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.planning.breakpoints import DiscountInterval, discount_intervals
from multihorizon.problem import Problem
from multihorizon.programs.solvers import MPLP
from multihorizon.progress import Progress
from multihorizon.recovery.closed_form import ClosedForm
from multihorizon.recovery.identify import identify
from multihorizon.report.plots import plot_intervals, plot_reward, plot_values_by_discount, save
from multihorizon.solution import Solution, for_json, package_version
from multihorizon.tables.demonstrations import Demonstrations

EPISODES = 500
FILES = ("policies.png", "reward.png", "learned.png", "values.png", "demo.json")


def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="Where to write the pictures and the JSON.")] = Path("multihorizon-demo"),
) -> None:
    """Take the tour: experts on a cliff, their horizons recovered from policies and from logged episodes."""
    with plain_errors():
        domain = cliff()
        directory = make_directory(out_dir)
        with progress_bar("demo") as progress:
            progress(0.05, "finding the discount intervals")
            intervals = discount_intervals(domain.mdp, domain.reward)
            answers = _infer(domain, progress)
            progress(0.8, "asking what the toy's experts identify")
            small = toy()
            verdict = identify(Problem(small.mdp, small.mce_experts(), names=["near", "middle", "far"]))
            progress(0.9, "drawing")
            _draw(directory, domain, intervals, answers)
        _write(directory / "demo.json", domain, intervals, answers)
        out.print(_interval_table(domain, intervals))
        out.print(_answer_table(domain, answers))
        out.print("Not every problem has one answer. Three experts of the toy domain, known exactly:")
        out.print(verdict.summary(), soft_wrap=True)
        out.print(f"Written to {directory}: {', '.join(FILES)}", soft_wrap=True)


def _infer(domain: Domain, progress: Progress) -> dict[str, Solution]:
    """The same cliff in three ways: from best actions, action probabilities and logged episodes."""
    soft = domain.mce_experts()
    progress(0.2, "MPLP on the experts' best actions")
    best = solve(Problem(domain.mdp, domain.lp_experts()), MPLP(reward_bound=20.0))
    progress(0.3, "ClosedForm on their action probabilities")
    exact = solve(Problem(domain.mdp, soft), ClosedForm())
    progress(0.4, f"MaximumLikelihood on {EPISODES} episodes each")
    logged = solve(Problem(domain.mdp, Demonstrations.simulate(domain.mdp, soft, EPISODES, seed=0)), MaximumLikelihood())
    return {"best actions": best, "action probabilities": exact, f"{EPISODES} episodes each": logged}


def _draw(directory: Path, domain: Domain, intervals: list[DiscountInterval], answers: dict[str, Solution]) -> None:
    save(plot_intervals(domain.mdp, domain.reward, intervals), directory / "policies.png")
    learned = answers[f"{EPISODES} episodes each"].reward
    limit = float(np.abs([domain.reward, learned]).max())
    for reward, title, file in (
        (domain.reward, "Cliff: the reward the experts share", "reward.png"),
        (learned, f"The reward learned from {EPISODES} episodes each", "learned.png"),
    ):
        save(plot_reward(domain.mdp, reward, title=title, limit=limit), directory / file)
    small = toy()
    title = "Toy domain: which action is best in s0 depends on the discount"
    labels = [f"always {name}" for name in ("a0", "a1", "a2")]
    save(plot_values_by_discount(small.mdp, small.reward, labels=labels, title=title), directory / "values.png")


def _write(path: Path, domain: Domain, intervals: list[DiscountInterval], answers: dict[str, Solution]) -> None:
    content = {
        "domain": domain.name,
        "intervals": [{"low": i.low, "high": i.high, "optimal_actions": i.optimal_actions} for i in intervals],
        "answers": {
            name: {"solver": s.solver, "status": str(s.status), "discounts": s.discounts, "reward": s.reward}
            for name, s in answers.items()
        },
        "version": package_version(),
    }
    path.write_text(json.dumps(for_json(content), indent=1, allow_nan=False), encoding="utf-8")


def _answer_table(domain: Domain, answers: dict[str, Solution]) -> Table:
    table = Table(title="The discounts recovered from what the experts do", show_lines=True)
    for header in ("from", "solver", "true γ", "found (95 % interval)"):
        table.add_column(header)
    for name, solution in answers.items():
        true = domain.lp_discounts if solution.temperature is None else domain.mce_discounts
        table.add_row(name, solution.solver, "\n".join(f"{gamma:g}" for gamma in true), "\n".join(_found(solution)))
    return table


def _found(solution: Solution) -> list[str]:
    """Each discount; with its 95 % interval where it is an estimate."""
    if solution.standard_errors is None:
        return [f"{gamma:.6f}" for gamma in solution.discounts]
    cells = zip(solution.discounts, solution.confidence_intervals(0.95), strict=True)
    return [f"{gamma:.3f} ({low:.3f} to {high:.3f})" for gamma, (low, high) in cells]


def _interval_table(domain: Domain, intervals: list[DiscountInterval]) -> Table:
    table = Table(title="Cliff domain: one reward, and the best way to act on it by discount", show_lines=True)
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
