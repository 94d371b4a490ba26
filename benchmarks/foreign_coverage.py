"""Rules that are estimated: do 95% intervals hold where features are paid on arrival, people are many, or time stamps vary?

    python benchmarks/foreign_coverage.py [--studies arrival,absorbing,durations,population] [--tables 60] [--out runs.jsonl]

Data come from `foreign.py`, which shares no code with the library, and each table goes the way of a user, without transitions:

* `arrival`, `absorbing`: the treatment task of 17 states, whose death and cure are terminal or go on for ever; features of states
  are paid on arrival, and come from a file as with `fit --features`;
* `durations`: the patches, where probing takes 1 or 3 units of time and travel 2, 4 or 8, known from time stamps alone
  (`fit --time time`); `fixed`: the same with durations that do not vary;
* `savings`, `queue`, `machine`: three experts whose rewards and transitions are estimated, profile by profile;
* `population`: sixteen people who save, 120 decisions each, in two groups (`fit --persons --formula "~ group"`); the reward is
  estimated too.

Of each study: the share of intervals that contain the truth, its standard error, ends that were not found (they count as open),
bias, and seconds. With `--out`, each table is written as a line, and a later call goes on with those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np
import pandas as pd

import multihorizon as mh
from multihorizon.data.side_tables import read_features

DISCOUNTS = {"arrival": (0.3, 0.6, 0.85), "absorbing": (0.3, 0.6, 0.85), "durations": (0.6, 0.8, 0.95), "fixed": (0.6, 0.8, 0.95)}
#: logit γ of the population: intercept, effect of the group, spread.
POPULATION = (0.4, 1.0, 0.5)


def features_of(task: foreign.Task, folder: str) -> partial:
    """The features of a task as `fit --features` reads them."""
    path = Path(folder) / "features.csv"
    task.features_table().to_csv(path, index=False)
    return partial(read_features, path)


def one(study: str, seed: int) -> dict:
    """Truths, estimates and intervals of one table."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        truth, estimates, ends = (people if study == "population" else experts)(study, rng, folder)
    values = {"truth": truth, "estimate": estimates, "low": ends[:, 0], "high": ends[:, 1]}
    found = {name: [None if np.isnan(v) else float(v) for v in value] for name, value in values.items()}
    return {"study": study, "seed": seed, **found, "seconds": time.process_time() - start}


def experts(study: str, rng: np.random.Generator, folder: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three experts of one task."""
    timed = study in ("durations", "fixed")
    if study in foreign.FAMILIES:
        task = foreign.FAMILIES[study]()
    else:
        task = foreign.patches(study == "durations") if timed else foreign.treatment(study == "absorbing")
    truth = np.array(DISCOUNTS.get(study, (0.5, 0.8, 0.95)))
    policies = {f"gamma {gamma}": foreign.policy(task, gamma, 0.5) for gamma in truth}
    table = foreign.sample(task, policies, 40 if timed else 150, rng, times=timed)
    read = mh.Demonstrations.from_frame(table, time="time" if timed else None)
    found = mh.analyse([read], features=features_of(task, folder), deviations=0.0, quick=True)
    return truth, found.solution.discounts, found.solution.confidence_intervals(0.95)


def people(study: str, rng: np.random.Generator, folder: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sixteen people in two groups: the group's effect and the mean of the others, on the logit scale."""
    task, persons = foreign.savings(rounds=40), 16
    group = np.arange(persons) % 2
    logit = POPULATION[0] + POPULATION[1] * group + POPULATION[2] * rng.normal(size=persons)
    policies = {f"p{i:02}": foreign.policy(task, float(1 / (1 + np.exp(-x))), 0.5) for i, x in enumerate(logit)}
    table = mh.Demonstrations.from_frame(foreign.sample(task, policies, 3, rng))
    frame = pd.DataFrame({"expert": list(policies), "group": np.array(["a", "b"])[group]})
    mdp = mh.estimate_mdp(table)
    matrix, names = features_of(task, folder)(mdp)
    solution = mh.solve(mh.Problem(mdp, table, features=matrix, feature_names=names), mh.Population("~ group", frame))
    terms = solution.evidence["population"].discount
    rows = [terms["Intercept"], terms["group[T.b]"]]
    return (
        np.array(POPULATION[:2]),
        np.array([row["estimate"] for row in rows], dtype=float),
        np.array([row["interval"] for row in rows], dtype=float),
    )


def report(study: str, rows: list[dict]) -> None:
    """The figures of a study."""
    columns = ("truth", "estimate", "low", "high")
    truth, estimate, low, high = (np.array([row[name] for row in rows], dtype=float) for name in columns)
    open_ends = int(np.isnan(low).sum() + np.isnan(high).sum())
    inside = ~(low > truth + 1e-9) & ~(high < truth - 1e-9)
    by_table = inside.mean(axis=1)
    error = by_table.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
    each = ", ".join(f"{share:.3f}" for share in inside.mean(axis=0))
    print(
        f"{study:>10}: {len(rows)} tables, coverage {inside.mean():.3f} ± {error:.3f} (each: {each}), {open_ends} ends not "
        f"found, bias {np.round(np.nanmean(estimate - truth, axis=0), 3).tolist()}, median width "
        f"{np.round(np.nanmedian(high - low, axis=0), 3).tolist()}, {np.median([row['seconds'] for row in rows]):.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", default="arrival,absorbing,durations,fixed,population")
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: dict[tuple[str, int], dict] = {}
    if options.out is not None and options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            done[row["study"], row["seed"]] = row
    for study in options.studies.split(","):
        for seed in range(options.tables):
            if (study, seed) in done:
                continue
            done[study, seed] = one(study, seed)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(done[study, seed]) + "\n")
        report(study, [done[study, seed] for seed in range(options.tables)])


if __name__ == "__main__":
    main()
