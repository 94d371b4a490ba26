"""What benchmarks share: tasks to plan on, how fast something grows, and how a row of figures is printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

import multihorizon as mh

#: The rewards of a slip grid: a goal in one corner with a cost for each step, full of ties, or a random one.
KINDS = ("goal", "random")
#: Tasks by how states are linked: without any order, to their neighbours, or all with all.
TASKS = ("random", "grid", "dense")


def slip_grid(side: int, kind: str) -> tuple[mh.MDP, np.ndarray]:
    """A grid whose moves slip, and a reward of one of the kinds."""
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
    if kind == "goal":
        return mdp, np.where(np.arange(mdp.n_states) == side - 1, 10.0, -0.1)
    return mdp, np.random.default_rng(0).normal(size=mdp.n_states)


def task(kind: str, states: int) -> mh.MDP:
    """A task of one of the kinds with about so many states."""
    if kind == "grid":
        side = round(states**0.5)
        return mh.domains.gridworld(side, side, slip=0.1, terminal=[(side // 2, side // 2)])
    return mh.domains.random_mdp(states, 3, 4 if kind == "random" else None, seed=0)


def exponents(rows: list[dict[str, Any]], size: str, seconds: str) -> list[dict[str, Any]]:
    """The rows with the exponent of growth from the row before, in a column that they have."""
    for before, row in pairwise(rows):
        row["exponent"] = float(np.log(row[seconds] / before[seconds]) / np.log(row[size] / before[size]))
    return rows


def print_cases(cases: Callable[[bool], Iterable[Mapping[str, object]]], description: str | None) -> None:
    """The program of a comparison: print its rows, with `--full` those of large grids too."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="the largest sizes as well")
    for row in cases(parser.parse_args().full):
        print(shown(row), flush=True)


def shown(row: Mapping[str, object]) -> str:
    """A row of figures on one line."""
    return ", ".join(f"{name} {f'{value:.3g}' if isinstance(value, float) else value}" for name, value in row.items())
