"""A million people on the Space Adventure Task: their decisions in Parquet files, and what it takes to read and fit them.

    python benchmarks/crowd.py simulate DIR [--persons 1000000] [--mini-blocks 20] [--group 0.5] [--seed 0] [--block 10000]

`simulate` writes `DIR/decisions/` (one Parquet file for each block of persons), `DIR/persons.parquet` (expert, group),
`DIR/transitions.npz` and `DIR/points.csv`, and prints the command that fits them. A person makes 2.5 decisions per mini-block.
Logit discounts are normal around 1.8 (group "control") or 1.8 + the effect of the group (every other person, "training") with
standard deviation 0.8; log temperatures in points are normal around log 6 with standard deviation 0.3. A block depends on the
seed and its own number alone.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from rows import shown

import multihorizon as mh
from multihorizon.choice.tabular import engine_for
from multihorizon.domains.space_adventure import SpaceAdventure

GROUPS = ("control", "training")


@dataclass(frozen=True)
class Block:
    """Persons from `first` on: their discounts, temperatures and decisions, which are sorted by person, episode and step."""

    first: int
    discounts: np.ndarray
    temperatures: np.ndarray
    person: np.ndarray
    episode: np.ndarray
    step: np.ndarray
    state: np.ndarray
    action: np.ndarray
    next_state: np.ndarray


def simulate_block(task: SpaceAdventure, first: int, size: int, group: float, seed: int) -> Block:
    """Persons `first`, …, who play every mini-block once; all of them plan together and travel together."""
    rng, mdp = np.random.default_rng([seed, first]), task.mdp
    logits = rng.normal(1.8, 0.8, size) + group * ((first + np.arange(size)) % 2)
    gammas, lambdas = 1 / (1 + np.exp(-logits)), np.exp(rng.normal(np.log(6.0), 0.3, size))
    reward, n = task.reward.T.ravel(), mdp.n_states
    values = engine_for(mdp).values(reward, gammas, lambdas, None)
    assert values is not None
    later = gammas * (mdp.stacked @ values) + reward[:, None]  # of the two actions, one after the other
    jumps = 1 / (1 + np.exp((later[:n] - later[n:]) / lambdas))
    ends, starts = np.cumsum(mdp.stacked.data), mdp.stacked.indptr
    person, episode = (index.ravel() for index in np.indices((size, task.starts.size)))
    state, steps = np.tile(task.starts, size), []
    for step in range(mdp.n_states):
        action = (rng.random(person.size) < jumps[state, person]).astype(np.int64)
        row = action * n + state
        low = np.where(starts[row] > 0, ends[starts[row] - 1], 0.0)
        target = low + rng.random(row.size) * (ends[starts[row + 1] - 1] - low)
        entry = np.clip(np.searchsorted(ends, target, side="right"), starts[row], starts[row + 1] - 1)
        after = mdp.stacked.indices[entry].astype(np.int64)
        steps.append((person, episode, np.full(person.size, step), state, action, after))
        going = ~mdp.terminal[after]
        person, episode, state = person[going], episode[going], after[going]
        if not person.size:
            break
    columns = [np.concatenate(parts) for parts in zip(*steps, strict=True)]
    order = np.lexsort(columns[2::-1])
    return Block(first, gammas, lambdas, *(column[order] for column in columns))


def write_block(task: SpaceAdventure, block: Block, path: Path) -> None:
    """The decisions of a block as a Parquet file with the labels of the task."""
    frame = pd.DataFrame(
        {
            "expert": block.first + block.person + 1,
            "episode": block.episode.astype(np.int16),
            "step": block.step.astype(np.int8),
            "state": pd.Categorical.from_codes(block.state, task.mdp.state_names),
            "action": pd.Categorical.from_codes(block.action, task.mdp.action_names),
            "next_state": pd.Categorical.from_codes(block.next_state, task.mdp.state_names),
        }
    )
    write_parquet(frame, path)


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """A data frame as a Parquet file; categories become text."""
    texts = [name for name in frame.columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
    columns = ", ".join(f'"{name}"{"::VARCHAR" if name in texts else ""} AS "{name}"' for name in frame.columns)
    with duckdb.connect() as database:
        database.register("given", frame)
        database.execute(f"COPY (SELECT {columns} FROM given) TO '{path}' (FORMAT PARQUET)")


def simulate(args: argparse.Namespace) -> None:
    """Write the folder."""
    begun, folder = time.perf_counter(), Path(args.dir)
    (folder / "decisions").mkdir(parents=True)
    task, rows = mh.domains.space_adventure(args.mini_blocks), 0
    for number, first in enumerate(range(0, args.persons, args.block)):
        block = simulate_block(task, first, min(args.block, args.persons - first), args.group, args.seed)
        write_block(task, block, folder / "decisions" / f"part-{number:05d}.parquet")
        rows += block.state.size
    everyone = np.arange(args.persons)
    groups = pd.Categorical.from_codes(everyone % 2, list(GROUPS))
    write_parquet(pd.DataFrame({"expert": everyone + 1, "group": groups}), folder / "persons.parquet")
    mdp = task.mdp
    mdp.to_npz(folder / "transitions.npz")
    state, action = np.nonzero(mdp.live)
    points = {"state": np.array(mdp.state_names)[state], "action": np.array(mdp.action_names)[action]}
    pd.DataFrame({**points, "points": task.reward[state, action]}).to_csv(folder / "points.csv", index=False)
    row = {"persons": args.persons, "decisions": rows, "states": mdp.n_states, "seconds": time.perf_counter() - begun}
    print(shown(row))
    print(
        f"multihorizon fit {folder}/decisions --transitions {folder}/transitions.npz --known-reward {folder}/points.csv "
        f'--persons {folder}/persons.parquet --formula "~ group"'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    writing = commands.add_parser("simulate", help="write the tables of simulated persons")
    writing.set_defaults(run=simulate)
    writing.add_argument("dir", metavar="DIR", help="a folder for them")
    writing.add_argument("--persons", type=int, default=1_000_000)
    writing.add_argument("--mini-blocks", type=int, default=20)
    writing.add_argument("--group", type=float, default=0.5, help="the effect of the group on the logit of the discount")
    writing.add_argument("--seed", type=int, default=0)
    writing.add_argument("--block", type=int, default=10_000, help="persons in one file")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
