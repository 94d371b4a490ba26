"""What benchmarks share: slip grids to plan on, and how a row of figures is printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping

import numpy as np

import multihorizon as mh

#: The rewards of a slip grid: a goal in one corner with a cost for each step, full of ties, or a random one.
KINDS = ("goal", "random")


def slip_grid(side: int, kind: str) -> tuple[mh.MDP, np.ndarray]:
    """A grid whose moves slip, and a reward of one of the kinds."""
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
    if kind == "goal":
        return mdp, np.where(np.arange(mdp.n_states) == side - 1, 10.0, -0.1)
    return mdp, np.random.default_rng(0).normal(size=mdp.n_states)


def print_cases(cases: Callable[[bool], Iterable[Mapping[str, object]]], description: str | None) -> None:
    """The program of a comparison: print its rows, with `--full` those of large grids too."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="300 × 300 cells as well")
    for row in cases(parser.parse_args().full):
        print(shown(row), flush=True)


def shown(row: Mapping[str, object]) -> str:
    """A row of figures on one line."""
    return ", ".join(f"{name} {f'{value:.3g}' if isinstance(value, float) else value}" for name, value in row.items())
