"""Nothing may differ: the episodes of one expert are dealt by lot to ten names, and every test is asked whether the ten differ.

    python benchmarks/by_lot.py [--studies clean,hidden,sequence,power] [--deals 200] [--labyrinth DIR] [--out F]

Of each study: how often one reward, one discount and one temperature for all are rejected at the 5% level, how often the 95%
intervals contain the discount of all names together, and how wide they are. The unit of tests and intervals is the decision, and
then the one that `cluster="auto"` chooses, of which is said how often it is the episode.

* `clean`: a machine that wears; every choice depends on the state alone;
* `hidden`: an inventory of 21 levels, where each episode has one of two prices of ordering that the state does not show;
* `sequence`: the machine, whose operator plans with another discount in half of the episodes;
* `power`: the clean machine, where three of the ten names have another price of service and another discount, which ought to be
  rejected: the unit is the decision, and then the episode, whatever the test of dependence says;
* `--labyrinth FOLDER`: bouts of mice in a labyrinth, with decisions.csv.gz (episode, step, state, action), moves.csv and
  places.csv (features); with `--rewards` a reward for each place instead.

Data come from `foreign.py`, which shares no code with the library. With `--out`, each deal is written as a line, and a later call
goes on with those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np
import pandas as pd

import multihorizon as mh
from multihorizon.data.side_tables import read_features, read_transitions
from multihorizon.parallel import Run
from multihorizon.questions.sharing import shared_goal_test

NAMES, EPISODES = 10, 24
COLUMNS = ("goal", "discount", "temperature")


def mixed(task: foreign.Task, policies: list[np.ndarray], rng: np.random.Generator) -> pd.DataFrame:
    """Episodes of which each follows one of the policies, drawn by lot."""
    size = NAMES * EPISODES
    mode = rng.integers(len(policies), size=size)
    tables = []
    for k, policy in enumerate(policies):
        own = np.flatnonzero(mode == k)
        if own.size:
            table = foreign.sample(task, {"one": policy}, own.size, rng)
            tables.append(table.assign(episode=own[table["episode"]]))
    return pd.concat(tables, ignore_index=True)


def simulated(study: str, rng: np.random.Generator) -> tuple[foreign.Task, pd.DataFrame]:
    """A task and the episodes of one expert; in `power` three of ten names are other experts."""
    if study == "hidden":
        task = foreign.inventory(60)
        dear = task.weights + np.array([0.0, 0.0, -1.2, 0.0])
        return task, mixed(task, [foreign.policy(task, 0.7, 0.25, weights=weights) for weights in (task.weights, dear)], rng)
    task = foreign.machine(60)
    if study == "sequence":
        return task, mixed(task, [foreign.policy(task, gamma, 0.4) for gamma in (0.3, 0.9)], rng)
    table = mixed(task, [foreign.policy(task, 0.8, 0.4)], rng)
    if study == "power":
        other = mixed(task, [foreign.policy(task, 0.72, 0.4, weights=task.weights + np.array([0.0, -0.1, 0.0]))], rng)
        table = pd.concat([table[table["episode"] >= 3 * EPISODES], other[other["episode"] < 3 * EPISODES]], ignore_index=True)
    return task, table


def dealt(table: pd.DataFrame, study: str, rng: np.random.Generator) -> mh.Demonstrations:
    """The episodes dealt by lot to ten names; in `power` as they were made."""
    episodes = np.sort(table["episode"].unique())
    place = np.arange(episodes.size) if study == "power" else rng.permutation(episodes.size)
    name = place // EPISODES if study == "power" else place % NAMES
    owner = pd.Series([f"name {k}" for k in name], index=episodes)
    return mh.Demonstrations.from_frame(table.assign(expert=owner[table["episode"]].to_numpy()))


def problem(study: str, seed: int, labyrinth: Path | None, rewards: bool) -> mh.Problem:
    rng = np.random.default_rng(seed)
    if study == "labyrinth":
        assert labyrinth is not None
        table, mdp = pd.read_csv(labyrinth / "decisions.csv.gz"), read_transitions(labyrinth / "moves.csv")
        if rewards:
            return mh.Problem(mdp, dealt(table, study, rng))
        matrix, names = read_features(labyrinth / "places.csv", mdp)
        return mh.Problem(mdp, dealt(table, study, rng), arrival_features=matrix, feature_names=names)
    task, table = simulated(study, rng)
    mdp = mh.MDP(list(task.transitions), state_names=task.states, action_names=task.actions)
    matrix = task.features.transpose(1, 0, 2).reshape(-1, len(task.feature_names))
    return mh.Problem(mdp, dealt(table, study, rng), features=matrix, feature_names=task.feature_names)


def one(study: str, seed: int, labyrinth: Path | None, rewards: bool, decision: bool, intervals: bool) -> dict:
    """What one deal gives, by unit."""
    warnings.simplefilter("ignore")
    posed, begun = problem(study, seed, labyrinth, rewards), time.process_time()
    shared = mh.MaximumLikelihood(groups=dict.fromkeys(posed.names, "all"), temperature="shared")
    reference = mh.solve(posed, shared).discounts if intervals else np.full(NAMES, np.nan)
    found = {"study": study, "seed": seed}
    for cluster in [*(["decision"] if decision else []), "episode" if study == "power" else "auto"]:
        solution = mh.solve(posed, mh.MaximumLikelihood(cluster=cluster))
        ends = solution.confidence_intervals() if intervals else np.full((NAMES, 2), np.nan)
        inside = ~(ends[:, 0] > reference) & ~(ends[:, 1] < reference)
        found[cluster] = {
            "goal": shared_goal_test(solution, run=Run(seed)).p_value,
            "discount": mh.shared_discount_test(solution).p_value,
            "temperature": solution.evidence["equal_temperatures_p"],
            "inside": float(inside.mean()) if intervals else None,
            "width": float(np.nanmedian(ends[:, 1] - ends[:, 0])) if intervals else None,
            "episode": solution.evidence["independence"]["unit"] == "episode",
        }
    return found | {"seconds": time.process_time() - begun}


def report(study: str, rows: list[dict]) -> None:
    """How often each hypothesis is rejected, and the coverage of intervals."""
    print(f"{study}: {len(rows)} deals, {np.median([row['seconds'] for row in rows]):.1f} s each")
    for cluster in ("decision", "auto", "episode"):
        found = [row[cluster] for row in rows if cluster in row]
        if not found:
            continue
        shares = []
        for name in COLUMNS:
            p_values = np.array([np.nan if one[name] is None else one[name] for one in found], dtype=float)
            shares.append(f"one {name} rejected {100 * np.mean(p_values <= 0.05):.1f}% ({np.isnan(p_values).sum()} not tested)")
        inside, width = (np.array([one[name] for one in found if one[name] is not None]) for name in ("inside", "width"))
        error = inside.std(ddof=1) / np.sqrt(inside.size) if inside.size > 1 else np.nan
        print(
            f"  {cluster:>8}: {', '.join(shares)}; coverage {inside.mean():.3f} ± {error:.3f} in {inside.size}, "
            f"median width {np.median(width):.3f}; the unit is the episode in {sum(one['episode'] for one in found)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", default="clean,hidden,sequence,power")
    parser.add_argument("--deals", type=int, default=200)
    parser.add_argument("--decision", type=int, default=200, help="in how many of the deals the unit is the decision, too")
    parser.add_argument("--intervals", type=int, default=200, help="in how many of the deals intervals are computed")
    parser.add_argument("--labyrinth", type=Path)
    parser.add_argument("--rewards", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: dict[tuple[str, int], dict] = {}
    if options.out is not None and options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            done[row["study"], row["seed"]] = row
    for study in ["labyrinth"] if options.labyrinth else options.studies.split(","):
        for seed in range(options.deals):
            if (study, seed) not in done:
                done[study, seed] = one(
                    study, seed, options.labyrinth, options.rewards, seed < options.decision, seed < options.intervals
                )
                if options.out is not None:
                    with options.out.open("a") as file:
                        file.write(json.dumps(done[study, seed]) + "\n")
        report(study, [done[study, seed] for seed in range(options.deals)])


if __name__ == "__main__":
    main()
