"""`compare` on studies from outside: is a trait called a trait, and a state a state?

    python benchmarks/carried.py [--families machine] [--kinds …] [--studies 40] [--people 24] [--estimated] [--out runs.jsonl]

People decide in a task of `foreign.py` under two conditions, with logit discounts `1 + shift·b + u_i + w_ij`, b = 1 under the
second condition, and log temperatures `log 0.5 + N(0, 0.3)` of the person. The rules are given, and the reward too unless it is
to be `--estimated`. Kinds:

* `trait`: u of standard deviation 0.8, shift −0.7: people differ, and all change alike;
* `stable`: the same without a shift;
* `state`: w of 0.8 in place of u: under each condition other people look far ahead;
* `both`: u and w of 0.8;
* `neither`: everybody has one discount under both conditions;
* `shift`: the same with a shift of −0.7.

For each kind: how often each answer is given; how often a correlation above 0, changes that differ between persons and a common
shift are clear (at 5%; the correlation on one side at 2.5%); how often the interval of the shift holds the truth; what own
horizons gain where they are carried; and the processor seconds of a study. With `--out`, each study is written as a line, and a
later call goes on with those that are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np
import pandas as pd
from foreign_predictions import as_mdp

import multihorizon as mh

#: Standard deviations of u and w, and the shift.
KINDS = {
    "trait": (0.8, 0.0, -0.7),
    "stable": (0.8, 0.0, 0.0),
    "state": (0.0, 0.8, 0.0),
    "both": (0.8, 0.8, 0.0),
    "neither": (0.0, 0.0, 0.0),
    "shift": (0.0, 0.0, -0.7),
}


def one(family: str, kind: str, seed: int, people: int, decisions: int, estimated: bool) -> dict:
    """What is answered of one study."""
    warnings.simplefilter("ignore")
    rng, task = np.random.default_rng(seed), foreign.FAMILIES[family]()
    person, within, shift = KINDS[kind]
    own, frames = person * rng.normal(size=people), []
    heat = 0.5 * np.exp(0.3 * rng.normal(size=people))
    for number, level in enumerate(("first", "second")):
        gamma = 1 / (1 + np.exp(-(1 + shift * number + own + within * rng.normal(size=people))))
        policies = {f"p{k:02}": foreign.policy(task, g, t) for k, (g, t) in enumerate(zip(gamma, heat, strict=True))}
        rows = foreign.sample(task, policies, max(4, decisions // 8), rng)
        # whole episodes until there are enough decisions
        before = rows.groupby("expert").cumcount() - rows["step"]
        rows = rows[before < decisions]
        frames.append(rows.assign(episode=level + rows["episode"].astype(str), condition=level))
    table = mh.Demonstrations.from_frame(pd.concat(frames), conditions=["condition"], cut_off=True)
    points = None if estimated else task.reward() if task.arrival is None else task.arrival @ task.weights
    start = time.process_time()
    found = mh.carry_over(mh.Problem(as_mdp(task), table), table, "condition", known_reward=points)
    (both,) = found.together
    parts = {
        "correlation": [both.correlation, both.p_person < 0.025],
        "apart": [both.apart, both.p_apart < 0.05],
        "shift": [both.shift, both.p_shift < 0.05, both.shift_low, both.shift_high],
    }
    parts["kept"] = [found.kept.estimate, found.kept.clear]
    said = {"family": family, "kind": kind, "seed": seed, "answer": found.answer.answer, "parts": parts}
    return said | {"seconds": time.process_time() - start}


def report(family: str, kind: str, rows: list[dict]) -> None:
    """The figures of one family and kind."""
    n, shift = len(rows), KINDS[kind][2]
    answers = ", ".join(f"{number} × {answer}" for answer, number in Counter(row["answer"] for row in rows).most_common())
    print(f"{family}, {kind}: {answers}; {np.median([row['seconds'] for row in rows]):.1f} s each", flush=True)
    for name in rows[0]["parts"]:
        estimate, clear = np.array([row["parts"][name][:2] for row in rows], dtype=float).T
        words = f"  {name:11} mean {estimate.mean():7.4f}, clear in {clear.sum():3.0f} of {n}"
        if name == "shift":
            low, high = np.array([row["parts"][name][2:] for row in rows]).T
            inside = ((low <= shift) & (shift <= high)).mean()
            words += f", interval holds {shift} in {inside:.3f} ± {np.sqrt(inside * (1 - inside) / n):.3f}"
        print(words, flush=True)


def main() -> None:
    """Run the studies that are missing, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="machine")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--studies", type=int, default=40)
    parser.add_argument("--people", type=int, default=24)
    parser.add_argument("--decisions", type=int, default=120, help="of each person under each condition, at least")
    parser.add_argument("--estimated", action="store_true", help="the reward of each state")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    done: list[dict] = []
    if options.out is not None and options.out.exists():
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    for family in options.families.split(","):
        for kind in options.kinds.split(","):
            rows = [row for row in done if (row["family"], row["kind"]) == (family, kind) and row["seed"] < options.studies]
            there = {row["seed"] for row in rows}
            for seed in range(options.studies):
                if seed in there:
                    continue
                rows.append(one(family, kind, seed, options.people, options.decisions, options.estimated))
                if options.out is not None:
                    with options.out.open("a") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
            report(family, kind, rows)


if __name__ == "__main__":
    main()
