"""A million people on the Space Adventure Task: their decisions in Parquet files, and what it takes to read and fit them.

    python benchmarks/crowd.py simulate DIR [--persons 1000000] [--mini-blocks 20] [--group 0.5] [--seed 0] [--block 10000]
    python benchmarks/crowd.py read DIR               # tables checked and counted, and the table of persons
    python benchmarks/crowd.py command DIR [--jobs 2] # the whole of multihorizon fit, from files to files
    python benchmarks/crowd.py fit [--persons 20000] [--mini-blocks 40] [--free]      # in Python, from counts
    python benchmarks/crowd.py continuing [--persons 5000] [--side 20] [--free]       # an endless grid, 50 decisions each

`simulate` writes `DIR/decisions/` (one Parquet file for each block of persons), `DIR/persons.parquet` (expert, group),
`DIR/transitions.npz` and `DIR/points.csv`, and prints the command that fits them. A person makes 2.5 decisions per mini-block.
Logit discounts are normal around 1.8 (group "control") or 1.8 + the effect of the group (every other person, "training") with
standard deviation 0.8; log temperatures in points are normal around log 6 with standard deviation 0.3. A block depends on the
seed and its own number alone.

Of `command`, processor seconds are those of all processes together, and megabytes what all of them hold at most, shared pages
counted once (Linux alone says that).

`fit` and `continuing` print the processor time of the population with `~ group`. With `--free` the reward is estimated from five
features (four in the grid); otherwise it is known. In the grid steps succeed in nine of ten cases, some states attract and some
repel, and the effect of the group is 0.5.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import scipy.sparse as sp
from rows import shown

import multihorizon as mh
from multihorizon.choice.plans import engine_for
from multihorizon.data.side_tables import read_persons
from multihorizon.domains.people import SpaceAdventure
from multihorizon.driver import build_problem
from multihorizon.problem import CountedTask

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
    print(" ".join(("multihorizon", *arguments(folder)[:-1], '"~ group"')))


def arguments(folder: Path) -> list[str]:
    """Those of `multihorizon` that fit the folder."""
    files = {"transitions": "transitions.npz", "known-reward": "points.csv", "persons": "persons.parquet"}
    named = [part for option, file in files.items() for part in (f"--{option}", str(folder / file))]
    return ["fit", str(folder / "decisions"), *named, "--formula", "~ group"]


def read(args: argparse.Namespace) -> None:
    """What it takes until a population can be fitted."""
    folder, begun, spent = Path(args.dir), time.perf_counter(), time.process_time()
    table = mh.Demonstrations.from_files(folder / "decisions")
    found, _ = build_problem([table], [mh.MDP.from_npz(folder / "transitions.npz")])
    persons = mh.Population("~ group", read_persons(folder / "persons.parquet")).covariates(found)
    row = {"persons": found.n_experts, "compared": len(persons.names), "decisions": len(table)}
    row |= {"seconds": time.perf_counter() - begun, "processor seconds": time.process_time() - spent}
    print(shown({**row, "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def command(args: argparse.Namespace) -> None:
    """What the whole command takes."""
    folder, begun, most = Path(args.dir), time.perf_counter(), 0.0
    asked = [*arguments(folder), "--jobs", str(args.jobs), "--out", str(folder / "result")]
    run = subprocess.Popen([sys.executable, "-m", "multihorizon", *asked], env={**os.environ, "OMP_NUM_THREADS": "1"})
    while run.poll() is None:
        most = max(most, sum(map(held, family(run.pid))))
        time.sleep(1.0)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = {"jobs": args.jobs, "ended with": run.returncode, "seconds": time.perf_counter() - begun}
    print(shown({**row, "processor seconds": spent.ru_utime + spent.ru_stime, "megabytes": most}))


def family(process: int) -> list[int]:
    """A process and all that it started."""
    try:
        lists = [file.read_text().split() for file in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it has just ended
        return []
    return [process, *(one for ids in lists for child in ids for one in family(int(child)))]


def held(process: int) -> float:
    """The megabytes that a process holds; of pages that it shares with others its share."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


def fit(args: argparse.Namespace) -> None:
    """The population of persons in the task with mini-blocks."""
    task = mh.domains.space_adventure(args.mini_blocks)
    block, mdp = simulate_block(task, 0, args.persons, 0.5, 0), task.mdp
    places = block.person, block.action * mdp.n_states + block.state
    counts = sp.csr_array((np.ones(block.state.size), places), shape=(args.persons, mdp.n_actions * mdp.n_states))
    features = sp.csr_array(task.features) if args.free else None
    report(mdp, counts, features, None if args.free else task.reward.T.ravel())


def continuing(args: argparse.Namespace) -> None:
    """The population of persons in a grid without an end. Persons whose η are rounded to the same values plan together."""
    side, n, rng = args.side, args.persons, np.random.default_rng(0)
    size = side * side
    row, column = np.divmod(np.arange(size), side)
    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))
    after = np.stack([np.clip(row + a, 0, side - 1) * side + np.clip(column + b, 0, side - 1) for a, b in moves])
    stay, success = np.arange(size), np.repeat([0.9, 0.1], size)
    parts = [sp.csr_array((success, (np.tile(stay, 2), np.concatenate([to, stay]))), shape=(size, size)) for to in after]
    mdp = mh.MDP(parts, np.full(size, 1 / size))
    features = np.zeros((size, 4))
    features[rng.choice(size, size // 13, replace=False), 0] = 1
    features[rng.choice(size, size // 20, replace=False), 1] = 1
    features[:, 2], features[-1, 3] = (row + column) / side, 1
    reward, group = features @ np.array([2.0, -3.0, 1.0, 6.0]), np.arange(n) % 2
    eta = np.stack([1.5 + 0.5 * group + 0.7 * rng.normal(size=n), 0.3 * rng.normal(size=n)], axis=1)
    kinds, kind = np.unique(np.round(eta / [0.25, 0.15]) * [0.25, 0.15], axis=0, return_inverse=True)
    cells = []
    for number, (x, log_temperature) in enumerate(kinds):
        policy = mh.soft_plan(mdp, reward, float(0.9999 / (1 + np.exp(-x))), float(np.exp(log_temperature))).policy
        who, ends = np.flatnonzero(kind == number), policy.cumsum(axis=1)
        state = rng.integers(size, size=who.size)
        for _ in range(50):
            action = np.minimum((rng.random(who.size)[:, None] > ends[state]).sum(axis=1), 3)
            cells.append((who, action * size + state))
            state = np.where(rng.random(who.size) < 0.9, after[action, state], state)
    places = tuple(np.concatenate(each) for each in zip(*cells, strict=True))
    counts = sp.csr_array((np.ones(places[0].size), places), shape=(n, 4 * size))
    report(mdp, counts, sp.csr_array(mdp.stacked @ features) if args.free else None, None if args.free else reward)


def report(mdp: mh.MDP, counts: sp.csr_array, features: sp.csr_array | None, known: np.ndarray | None) -> None:
    """Fit, and print what it took."""
    counts.sum_duplicates()
    names = mdp.state_names if features is None else tuple(f"feature {i}" for i in range(features.shape[1]))
    crowd = mh.Problem.of_tasks(tuple(map(str, range(counts.shape[0]))), names, (CountedTask(mdp, counts, features),))
    frame = pd.DataFrame({"expert": crowd.names, "group": np.array(GROUPS)[np.arange(crowd.n_experts) % 2]})
    begun = time.process_time()
    found = mh.solve(crowd, mh.Population("~ group", frame, known_reward=known))
    seconds, effect = time.process_time() - begun, found.evidence["population"]["discount"]["group[T.training]"]
    row = {"persons": crowd.n_experts, "states": mdp.n_states, "processor seconds": seconds, "status": str(found.status)}
    print(shown({**row, "effect of 0.5": effect["estimate"], "standard error": effect["standard_error"]}))


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
    fitting = commands.add_parser("fit", help="fit simulated persons in Python")
    fitting.set_defaults(run=fit)
    fitting.add_argument("--persons", type=int, default=20_000)
    fitting.add_argument("--mini-blocks", type=int, default=40)
    endless = commands.add_parser("continuing", help="fit simulated persons in a grid without an end")
    endless.set_defaults(run=continuing)
    endless.add_argument("--persons", type=int, default=5_000)
    endless.add_argument("--side", type=int, default=20)
    for modelled in (fitting, endless):
        modelled.add_argument("--free", action="store_true", help="estimate the reward from features")
    reading = commands.add_parser("read", help="measure reading")
    reading.set_defaults(run=read)
    whole = commands.add_parser("command", help="measure the whole command")
    whole.set_defaults(run=command)
    whole.add_argument("--jobs", type=int, default=2)
    for measured in (reading, whole):
        measured.add_argument("dir", metavar="DIR", help="what simulate wrote")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
