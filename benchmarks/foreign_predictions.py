"""Predictions and minimum bonuses on tasks from outside: how often do 95% intervals contain the truth?

    python benchmarks/foreign_predictions.py [--families machine,savings,chain] [--kinds …] [--tables 60] [--out runs.jsonl]

Data and truths come from `foreign.py`, which shares no code with the library. The rules are known. Kinds of fits:

* `experts`: three experts, 400 decisions each, `MaximumLikelihood`; weights of features, discounts and one temperature estimated;
* `apart`: the same with the reward known, and a temperature for each;
* `persons`: sixteen people in two groups, 80 decisions each, `Population("~ group")`, with weights estimated;
* `known`: the same with the reward known.

Of each fit: choices after a bonus for an action, after a ban of an action in three states, with another discount for all, and
with other transitions (`predict`); the same of a typical person of each group (`typical …`, `persons="groups"`); and the smallest
bonus with which an action is chosen with probability 0.8 (`nudge`). A choice counts where there is more than one in the state.
Shares are means over tables, with their standard errors. With `--out`, each table is written as a line, and a later call goes on
with those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np
import pandas as pd

import multihorizon as mh

TEMPERATURE, NEW_DISCOUNT, ASKED = 0.5, 0.6, 0.8
#: logit γ of people: intercept, effect of the group, spread; and the spread of log temperatures.
PEOPLE = (0.6, 1.0, 0.5, 0.25)


def as_problem(task: foreign.Task, table: pd.DataFrame, known: bool) -> mh.Problem:
    """The library's problem: rules known, weights of features to be estimated or not."""
    read = mh.Demonstrations.from_frame(table, cut_off=True)
    if known:
        return mh.Problem(as_mdp(task), read)
    return mh.Problem(as_mdp(task), read, **features_of(task))


def features_of(task: foreign.Task) -> dict:
    """The features as a problem takes them."""
    if task.arrival is not None:
        return {"arrival_features": task.arrival, "feature_names": task.feature_names}
    rows = task.features.transpose(1, 0, 2).reshape(-1, task.weights.size)
    return {"features": rows, "feature_names": task.feature_names}


def as_mdp(task: foreign.Task) -> mh.MDP:
    """The rules in the library's words."""
    names = {"state_names": task.states, "action_names": task.actions}
    return mh.MDP(task.transitions, initial=task.initial, terminal=task.terminal, available=task.available, **names)


def spot_of(task: foreign.Task) -> tuple[int, int]:
    """A state in the middle of the task, and the action that people of a middling discount choose least there."""
    state = len(task.states) // 2
    odds = foreign.policy(task, 0.75, TEMPERATURE)[state]
    return state, int(np.argmin(np.where(task.available[state], odds, 2.0)))


def paying(task: foreign.Task, amount: float) -> foreign.Task:
    """The task in which that action pays so much besides."""
    extra = np.zeros((*task.available.shape, 1))
    extra[(*spot_of(task), 0)] = 1.0
    return replace(
        task, features=np.concatenate([task.features, extra], axis=2), weights=np.append(task.weights, amount), arrival=None
    )


def changed(task: foreign.Task) -> dict[str, tuple[foreign.Task, dict]]:
    """By name: the task after a change, and how `predict` is told, with amounts in units of the true reward."""
    state, action = spot_of(task)
    best = np.argmax(foreign.policy(task, 0.75, TEMPERATURE), axis=1)
    places = [s for s in range(state - 1, state + 2) if task.available[s].sum() > 1]
    allowed = task.available.copy()
    allowed[places, best[places]] = False
    ban = {task.states[s]: [task.actions[best[s]]] for s in places}
    # with probability .3 a move goes where the next action would lead
    mixed = 0.7 * task.transitions + 0.3 * np.roll(task.transitions, 1, axis=0)
    moved = replace(task, transitions=mixed)
    if task.arrival is not None:
        moved = replace(moved, features=np.einsum("ast,td->sad", mixed, task.arrival))
    return {
        "bonus": (paying(task, TEMPERATURE), {"pay": {(task.states[state], task.actions[action]): TEMPERATURE}}),
        "ban": (replace(task, available=allowed), {"forbid": ban}),
        "discount": (task, {"discount": NEW_DISCOUNT}),
        "transitions": (moved, {"transitions": as_mdp(moved)}),
    }


def needed(task: foreign.Task, gamma: float, lam: float) -> float:
    """The smallest bonus by bisection; the chance of an action rises with the bonus for it."""
    spot = spot_of(task)

    def chance(amount: float) -> float:
        return float(foreign.policy(paying(task, amount), gamma, lam)[spot])

    if chance(0.0) >= ASKED:
        return 0.0
    low, high = 0.0, 1.0
    while chance(high) < ASKED:
        low, high = high, 2 * high
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) < ASKED else (low, middle)
    return (low + high) / 2


def one(family: str, kind: str, seed: int) -> dict:
    """Of one table: for each question the shares of intervals that hold the truth, that are open, and the median width."""
    warnings.simplefilter("ignore")
    rng, task, start = np.random.default_rng(seed), foreign.FAMILIES[family](), time.process_time()
    experts = kind in ("experts", "apart")
    known = kind in ("apart", "known")
    group = np.arange(16) % 2
    if experts:
        gamma, lam = np.array([0.5, 0.75, 0.92]), np.full(3, TEMPERATURE)
    else:
        logit = PEOPLE[0] + PEOPLE[1] * group + PEOPLE[2] * rng.normal(size=group.size)
        gamma, lam = 1 / (1 + np.exp(-logit)), TEMPERATURE * np.exp(PEOPLE[3] * rng.normal(size=group.size))
    policies = {f"p{k:02}": foreign.policy(task, g, t) for k, (g, t) in enumerate(zip(gamma, lam, strict=True))}
    drawn = foreign.sample(task, policies, 400 // 8, rng)
    wanted = 400 if experts else 80
    drawn = drawn[drawn.groupby("expert").cumcount() < wanted]
    problem = as_problem(task, drawn, known)
    points = task.reward() if task.arrival is None else task.arrival @ task.weights
    reward = {"known_reward": points} if known else {}
    if experts:
        solver = mh.MaximumLikelihood("per_expert" if known else "shared", **reward)
    else:
        frame = pd.DataFrame({"expert": list(policies), "group": np.array(["a", "b"])[group]})
        solver = mh.Population("~ group", frame, **reward)
    solution = mh.solve(problem, solver)
    found = {"family": family, "kind": kind, "seed": seed, "status": str(solution.status), "seconds": 0.0}
    if str(solution.status) != "converged":
        return found
    unit = 1.0 if known else 1 / TEMPERATURE  # estimated rewards are in units of the (mean) temperature
    people = {"": (gamma, lam)}
    if not experts:
        typical = 1 / (1 + np.exp(-(PEOPLE[0] + PEOPLE[1] * np.arange(2))))
        people["typical "] = typical, np.full(2, TEMPERATURE)
    for prefix, (g, t) in people.items():
        how = {"persons": "groups"} if prefix else {}
        for name, (after, told) in changed(task).items():
            own = {"pay": {key: unit * amount for key, amount in told["pay"].items()}} if "pay" in told else told
            said = mh.predict(solution, **own, **how)
            rows = slice(0, None, 2) if prefix else slice(None)
            used = np.full_like(g, NEW_DISCOUNT) if name == "discount" else g
            truth = np.array([foreign.policy(after, float(x), float(y)) for x, y in zip(used, t, strict=True)])
            counted = (after.available & (after.available.sum(axis=1, keepdims=True) > 1)).copy()
            counted[task.terminal] = False
            found[prefix + name] = held(truth[:, counted], said.low[rows][:, counted], said.high[rows][:, counted])
        state, action = spot_of(task)
        asked = {"state": task.states[state], "action": task.actions[action], "chance": ASKED}
        said = mh.nudge(solution, **asked, **how)
        truth = unit * np.array([needed(task, float(x), float(y)) for x, y in zip(g, t, strict=True)])
        rows = slice(0, None, 2) if prefix else slice(None)
        found[f"{prefix}minimum bonus"] = held(truth, said.low[rows], said.high[rows])
    return found | {"seconds": time.process_time() - start}


def held(truth: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[float]:
    """The shares of truths within their intervals and of intervals that are open, and the median width of the others."""
    inside = ~(low > truth + 1e-9) & ~(high < truth - 1e-9)
    closed = np.isfinite(low) & np.isfinite(high)
    return [float(inside.mean()), float(1 - closed.mean()), float(np.median((high - low)[closed])) if closed.any() else np.nan]


def report(family: str, kind: str, rows: list[dict]) -> None:
    """The figures of one family and kind."""
    usable = [row for row in rows if row["status"] == "converged"]
    seconds = np.median([row["seconds"] for row in usable]) if usable else np.nan
    print(f"{family}, {kind}: {len(usable)} of {len(rows)} tables converged, {seconds:.1f} s each", flush=True)
    for name in [key for key in (usable[0] if usable else {}) if key not in ("family", "kind", "seed", "status", "seconds")]:
        numbers = np.array([row[name] for row in usable], dtype=float)
        error = numbers[:, 0].std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else np.nan
        print(
            f"  {name:24} coverage {numbers[:, 0].mean():.3f} ± {error:.3f}, open {numbers[:, 1].mean():.3f}, "
            f"median width {np.nanmedian(numbers[:, 2]):.3f}",
            flush=True,
        )


def main() -> None:
    """Run the tables that are missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="machine,savings,chain")
    parser.add_argument("--kinds", default="experts,apart,persons,known")
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: list[dict] = []
    if options.out is not None and options.out.exists():
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    for family in options.families.split(","):
        for kind in options.kinds.split(","):
            rows = [row for row in done if (row["family"], row["kind"]) == (family, kind) and row["seed"] < options.tables]
            there = {row["seed"] for row in rows}
            for seed in range(options.tables):
                if seed in there:
                    continue
                rows.append(one(family, kind, seed))
                if options.out is not None:
                    with options.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
            report(family, kind, rows)


if __name__ == "__main__":
    main()
