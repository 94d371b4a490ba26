"""Does the conclusion survive? Decisions of people who do not choose as the fit supposes, and what `mh.robustness` says of them.

    python benchmarks/rivals.py [--rows null,lapses,…] [--tasks chain,savings,…] [--tables 30] [--out runs.jsonl] [--quick]
    python benchmarks/rivals.py --coverage [--tables 60] [--out runs.jsonl]

Three experts with discounts 0.5, 0.75 and 0.92 and 1,500 decisions each, drawn from `foreign.py` and from the planners below,
which share no code with the library. Rules and features are known, rewards and temperatures are not. The tasks take turns.

* null: values with entropy, as the fit supposes;
* lapses: a quarter of all choices are made at random;
* max, mean: values by the best action, and by the mean of choices;
* hyperbolic: a naive planner to whom what comes t steps later counts `1/(1 + κt)`; `1/(1 + κ)` is the discount above;
* beliefs: people believe that a quarter of all moves are those of an action drawn at random;
* depth: people look four decisions ahead, with their discount, and no further;
* weighting: probabilities count as Prelec's `exp(−(−log p)^0.6)`, scaled to sum to 1;
* aversion: values of what comes next count by their certainty equivalent `−log E exp(−V)`.

A table is *confident and wrong* if the interval of some discount is narrower than 0.3, lies away from the truth, and its estimate
is off by more than 0.1. It is *still confident* if all discounts whose intervals are so narrow under the fit alone are so under
all models that predict as well; their estimate is the middle. Hyperbolic people have no discount: shares of the intervals of the
weights 1, 3 and 10 steps ahead that hold the truth are shown. Shares have standard errors over tables; a run that was stopped is
reported with `--report`.

*Coverage.* `MaximumLikelihood` with the value of the data: 95% intervals that hold the discount. The size of the test of lapses
is the share of tables without lapses whose p-value is below 5%.

With `--out`, each table is written as a line, and a later call goes on with those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np

import multihorizon as mh

TASKS = ("chain", "savings", "keys", "treatment", "inventory")
DISCOUNTS, TEMPERATURE, DECISIONS = np.array([0.5, 0.75, 0.92]), 0.5, 1500
NARROW, OFF, AHEAD = 0.3, 0.1, np.array([1, 3, 10])
COVERAGE = {"tasks": ("savings", "treatment", "chain"), "rows": ("null", "max", "mean", "lapses at 0")}
VALUES = {"null": "soft", "max": "max", "mean": "mean", "lapses at 0": "soft"}
#: The rival that is right about the people of a row.
RIGHT = {"null": "the fit", "max": "values by the best action", "mean": "values by the mean of choices", "lapses": "lapses"}
RIGHT |= {"depth": "a limited depth", "hyperbolic": "hyperbolic"}


def believed(task: foreign.Task) -> np.ndarray:
    """The transitions of people who believe that a quarter of all moves go astray."""
    return 0.75 * task.transitions + 0.25 * task.transitions.mean(axis=0)


def weighted(task: foreign.Task) -> np.ndarray:
    """The transitions as probability weighting has them."""
    P = task.transitions
    bent = np.where(P > 0, np.exp(-((-np.log(np.where(P > 0, np.minimum(P, 1.0), 1.0))) ** 0.6)), 0.0)
    total = bent.sum(axis=2, keepdims=True)
    return np.divide(bent, total, out=np.zeros_like(bent), where=total > 0)


def averse(task: foreign.Task, discount: float) -> np.ndarray:
    """The policy of people to whom a gamble is worth its certainty equivalent, by value iteration."""
    V, live = np.zeros(len(task.states)), task.transitions.sum(axis=(0, 2)) > 0
    for _ in range(20_000):
        least = V.min()
        worth = least - np.log(np.maximum(np.einsum("ast,t->sa", task.transitions, np.exp(least - V)), 1e-300))
        Q = (task.reward() + discount * np.where(live[:, None], worth, 0.0)) / TEMPERATURE
        top = Q.max(axis=1, keepdims=True)
        shares = np.exp(Q - top)
        new = np.where(live, TEMPERATURE * (top[:, 0] + np.log(shares.sum(axis=1))), 0.0)
        change, V = np.abs(new - V).max(), new
        if change < 1e-11:
            break
    return shares / shares.sum(axis=1, keepdims=True)


ROWS: dict[str, Callable[[foreign.Task, float], np.ndarray]] = {
    "null": lambda task, g: foreign.policy(task, g, TEMPERATURE),
    "lapses": lambda task, g: foreign.policy(task, g, TEMPERATURE, lapse=0.25),
    "max": lambda task, g: foreign.policy(task, g, TEMPERATURE, "max"),
    "mean": lambda task, g: foreign.policy(task, g, TEMPERATURE, "mean"),
    "depth": lambda task, g: foreign.naive(task, lambda t: g ** (t - 1) if t <= 4 else 0.0, TEMPERATURE, far=4),
    "beliefs": lambda task, g: foreign.policy(task, g, TEMPERATURE, beliefs=believed(task)),
    "weighting": lambda task, g: foreign.policy(task, g, TEMPERATURE, beliefs=weighted(task)),
    "aversion": averse,
    "hyperbolic": lambda task, g: foreign.hyperbolic(task, 1 / g - 1, TEMPERATURE),
}


def drawn(task: foreign.Task, row: str, seed: int, decisions: int) -> mh.Problem:
    """The decisions of three experts as a problem."""
    policies = {f"e{k}": ROWS[row](task, float(g)) for k, g in enumerate(DISCOUNTS)}
    table = foreign.sample(task, policies, decisions, np.random.default_rng(seed))
    table = table[table.groupby("expert").cumcount() < decisions]
    mdp = mh.MDP(
        task.transitions, task.initial, task.terminal, task.available, state_names=task.states, action_names=task.actions
    )
    features = task.features.transpose(1, 0, 2).reshape(-1, len(task.feature_names))
    return mh.Problem(mdp, mh.Demonstrations.from_frame(table, cut_off=True), features=features, feature_names=task.feature_names)


def one(row: str, name: str, seed: int, decisions: int) -> dict[str, Any]:
    """What the fit alone says of one table, and what all models that predict as well say."""
    begun = time.process_time()
    problem = drawn(foreign.FAMILIES[name](), row, seed, decisions)
    found = mh.robustness(problem, mh.MaximumLikelihood(starts=2), seed=seed)
    models = {
        rival.name: {
            "discounts": rival.discounts.tolist(),
            "intervals": rival.intervals.tolist(),
            "ahead": rival.weights_ahead.tolist(),
            "log_likelihood": rival.log_likelihood,
            "parameters": rival.parameters,
            "behind": rival.behind,
            "error": rival.behind_error,
            "predicts": rival.predicts,
            "why": rival.why,
        }
        for rival in found.rivals
    }
    envelopes = {"intervals": found.intervals.tolist(), "ahead": found.weights_ahead().tolist(), "holds": found.holds}
    envelopes["ahead alone"] = found.rivals[0].weights_ahead[..., 1:].tolist()
    return {"models": models, **envelopes, "seconds": time.process_time() - begun}


def covered(row: str, name: str, seed: int, decisions: int) -> dict[str, Any]:
    """Intervals of a fit with the model that made the decisions; of a fit with lapses, the p-value of none."""
    begun = time.process_time()
    problem = drawn(foreign.FAMILIES[name](), "null" if row == "lapses at 0" else row, seed, decisions)
    lapse = "estimated" if row == "lapses at 0" else 0.0
    solution = mh.solve(problem, mh.MaximumLikelihood(starts=2, value=VALUES[row], lapse=lapse), seed=seed)
    ends = np.full((3, 2), np.nan) if lapse else solution.confidence_intervals()
    p = solution.evidence["planner"]["lapse"]["p"] if lapse else None
    return {"discounts": solution.discounts.tolist(), "intervals": ends.tolist(), "p": p, "seconds": time.process_time() - begun}


def share(each: list[float]) -> str:
    """A share over tables and its standard error."""
    values = np.array(each, dtype=float)
    if not values.size:
        return "–"
    return f"{values.mean():.2f} ± {np.sqrt(values.var() / values.size):.2f}"


def wrong(ends: np.ndarray, estimates: np.ndarray) -> bool:
    """Whether some discount is confident and wrong."""
    return bool((~inside(ends, DISCOUNTS) & (np.ptp(ends, axis=1) < NARROW) & (np.abs(estimates - DISCOUNTS) > OFF)).any())


def inside(ends: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Where intervals hold the truth."""
    return (ends[..., 0] <= truth + 1e-9) & (truth <= ends[..., 1] + 1e-9)


def report(row: str, tables: list[dict[str, Any]]) -> None:
    """One line of the table."""
    ends = np.array([one["intervals"] for one in tables])
    alone = np.array([one["models"]["the fit"]["intervals"] for one in tables])
    seconds = np.median([one["seconds"] for one in tables])
    if row == "hyperbolic":
        print("\n| weights 1, 3 and 10 steps ahead | tables | the fit alone | all as good | processor |\n|---|---|---|---|---|")
        print(f"| {row} | {len(tables)} |", end=" ")
        truth = 1 / (1 + (1 / DISCOUNTS - 1)[:, None] * AHEAD)
        for kind in ("ahead alone", "ahead"):
            held = inside(np.array([one[kind] for one in tables]), truth).mean(axis=1)
            print(", ".join(share(column.tolist()) for column in held.T), end=" | ")
        print(f"{seconds:.0f} s |", flush=True)
        return
    print(f"| {row} | {len(tables)} |", end=" ")
    estimates = [np.array(one["models"]["the fit"]["discounts"]) for one in tables]
    narrow, narrow_all = np.ptp(alone, axis=2) < NARROW, np.ptp(ends, axis=2) < NARROW
    still = [bool(b[a].all()) for a, b in zip(narrow, narrow_all, strict=True) if a.any()]
    right = [one["models"].get(RIGHT.get(row, ""), {}) for one in tables]
    told = [share([one.get("predicts", False) for one in right]) if row in RIGHT else "–"]
    print(share([wrong(a, b) for a, b in zip(alone, estimates, strict=True)]), end=" | ")
    print(share([wrong(a, a.mean(axis=1)) for a in ends]), end=" | ")
    print(*told, share(still), share(narrow_all[narrow].tolist()), f"{seconds:.0f} s |", sep=" | ", flush=True)


def report_coverage(row: str, name: str, tables: list[dict[str, Any]]) -> None:
    """The share of intervals that hold the truth, or the size of the test of lapses."""
    if row == "lapses at 0":
        known = [one["p"] < 0.05 for one in tables if one["p"] is not None and np.isfinite(one["p"])]
        print(f"| size of the test of lapses | {name} | {len(known)} | {share(known)} |", flush=True)
        return
    ends = np.array([one["intervals"] for one in tables], dtype=float)
    answered = np.isfinite(ends).all(axis=(1, 2))
    held, none = inside(ends[answered], DISCOUNTS), f", no answer in {(~answered).sum()}" if not answered.all() else ""
    each = ", ".join(f"{value:.2f}" for value in held.mean(axis=0))
    print(
        f"| coverage, {VALUES[row]} | {name} | {len(tables)}{none} | {share(held.mean(axis=1).tolist())} ({each}) |", flush=True
    )


def main() -> None:
    """Run the tables that are missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows")
    parser.add_argument("--tasks")
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", action="store_true", help="report the tables of --out, and run none")
    parser.add_argument("--quick", action="store_true", help="one table of each row with 300 decisions")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tasks = options.tasks.split(",") if options.tasks else COVERAGE["tasks"] if options.coverage else TASKS
    rows = options.rows.split(",") if options.rows else COVERAGE["rows"] if options.coverage else list(ROWS)
    count, decisions = (1, 300) if options.quick else (options.tables, DECISIONS)
    done: dict[tuple[str, str, int], dict[str, Any]] = {}
    if options.out is not None and options.out.exists():
        for line in options.out.read_text().splitlines():
            read = json.loads(line)
            done[read["row"], read["task"], read["seed"]] = read
    measure = partial(covered if options.coverage else one, decisions=decisions)

    def table(row: str, name: str, seed: int) -> None:
        if (row, name, seed) not in done and not options.report:
            done[row, name, seed] = {"row": row, "task": name, "seed": seed, **measure(row, name, seed)}
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(done[row, name, seed]) + "\n")

    if options.coverage:
        print("| what | task | tables | share (by discount) |\n|---|---|---|---|")
        for seed in range(count):
            for row in rows:
                for name in tasks:
                    table(row, name, seed)
        for row in rows:
            for name in tasks:
                report_coverage(row, name, [one for (r, n, _), one in done.items() if (r, n) == (row, name)])
        return
    for seed in range(count):
        for row in rows:
            table(row, tasks[seed % len(tasks)], seed)
    print("| row | tables | fit alone: confident and wrong | all as good: confident and wrong | the right rival is among them "
          "| still confident: tables | discounts | processor |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        report(row, [one for (r, n, _), one in done.items() if r == row and n in tasks])


if __name__ == "__main__":
    main()
