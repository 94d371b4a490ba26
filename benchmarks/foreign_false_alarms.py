"""False alarms: what a full fit says of decisions that were drawn from exactly the model that it fits.

    python benchmarks/foreign_false_alarms.py [--families inventory,machine,…] [--tables 5] [--out runs.jsonl]

Three experts with one goal, one temperature and discounts 0.5, 0.75 and 0.92, 500 decisions each, from `foreign.py`, which shares
no code with the library. Features come from a file as with `fit --features`, and rules are estimated from the table. A false
alarm is a claim that the truth contradicts:

* goals: the experts do not share a goal;
* model: the model does not fit, or not in some states;
* temperatures: the fit gives them different ones;
* interval: a 95% interval does not contain the discount (of three);
* withheld: there is no usable answer.

Of each family: how many tables raise each alarm, and their seeds. With `--out`, each table is written as a line, and a later call
goes on with those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np
from foreign_coverage import features_of

import multihorizon as mh

DISCOUNTS, TEMPERATURE, DECISIONS = (0.5, 0.75, 0.92), 0.5, 500
#: The question of the report that says so, by alarm.
QUESTIONS = {"goals": "Do they share a goal?", "model": "Does the model fit?"}


def one(family: str, seed: int) -> dict:
    """The answers to one table, and the alarms among them."""
    warnings.simplefilter("ignore")
    task, start = foreign.FAMILIES[family](), time.process_time()
    policies = {f"gamma {gamma}": foreign.policy(task, gamma, TEMPERATURE) for gamma in DISCOUNTS}
    table = foreign.sample(task, policies, DECISIONS // 4, np.random.default_rng(seed))
    table = table[table.groupby("expert").cumcount() < DECISIONS]
    read = mh.Demonstrations.from_frame(table, cut_off=True)
    with tempfile.TemporaryDirectory() as folder:
        found = mh.analyse([read], features=features_of(task, folder), seed=seed)
    answers = {answer.question: answer for answer in found.verdicts}
    wrong = [name for name, question in QUESTIONS.items() if question in answers and answers[question].kind != "good"]
    wrong += ["temperatures"] if np.ptp(found.temperatures) > 1e-9 else []
    wrong += ["withheld"] if found.withheld else []
    low, high = found.intervals[[found.solution.experts.index(name) for name in policies]].T
    missed = int(sum(a > g + 1e-9 or b < g - 1e-9 for a, b, g in zip(low, high, DISCOUNTS, strict=True)))
    said = {name: f"{answers[q].answer}: {answers[q].reasons}" for name, q in QUESTIONS.items() if q in answers}
    seconds = time.process_time() - start
    return {"family": family, "seed": seed, "alarms": wrong, "missed": missed, "said": said, "seconds": seconds}


def report(family: str, rows: list[dict]) -> None:
    """The figures of one family."""
    seconds = np.median([row["seconds"] for row in rows])
    missed = sum(row["missed"] for row in rows)
    print(f"{family}: {len(rows)} tables, {seconds:.1f} s each; {missed} of {3 * len(rows)} intervals miss", flush=True)
    for row in rows:
        for name in row["alarms"]:
            print(f"  seed {row['seed']}, {name}: {row['said'].get(name, '')}", flush=True)


def main() -> None:
    """Run the tables that are missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="inventory,machine,queue,savings,treatment,chain,keys")
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: list[dict] = []
    if options.out is not None and options.out.exists():
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    every: list[dict] = []
    for family in options.families.split(","):
        rows = [row for row in done if row["family"] == family and row["seed"] < options.tables]
        for seed in sorted(set(range(options.tables)) - {row["seed"] for row in rows}):
            rows.append(one(family, seed))
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
        report(family, rows)
        every += rows
    for name in (*QUESTIONS, "temperatures", "withheld"):
        share = np.mean([name in row["alarms"] for row in every])
        error = np.sqrt(share * (1 - share) / len(every))
        print(f"{name}: {share:.3f} ± {error:.3f} of {len(every)} tables", flush=True)


if __name__ == "__main__":
    main()
