"""Do answers depend on the unit of the points? People with a known reward and temperatures of their own, in three units.

    python benchmarks/units.py [--tasks chain keys machine] [--persons 125] [--episodes 4] [--seed 0]

Decisions are drawn in tasks from outside (`foreign.py`). Each person has a discount factor (logit normal) and a temperature (log
normal, wide: some hardly ever err, others nearly choose by lot). The same decisions are fitted person by person with the points
times 0.01, 1 and 100. Printed are how many persons have a discount, why the others have none, how many 95% intervals are whole
and hold the truth, and the largest difference of any discount to that with the points as they are.
"""

from __future__ import annotations

import argparse
import time
import warnings

import foreign
import numpy as np
from foreign_predictions import as_mdp

import multihorizon as mh


def study(task: foreign.Task, persons: int, episodes: int, rng: np.random.Generator) -> tuple[mh.Problem, np.ndarray]:
    """Decisions of persons, and their discount factors."""
    discounts = 1 / (1 + np.exp(-rng.normal(1.2, 1.2, persons)))
    temperatures = np.exp(rng.normal(-0.5, 1.2, persons))
    policies = {f"p{i:03d}": foreign.policy(task, float(discounts[i]), float(temperatures[i])) for i in range(persons)}
    table = foreign.sample(task, policies, episodes, rng)
    read = mh.Demonstrations.from_frame(table, cut_off=True)
    return mh.Problem(as_mdp(task), read), discounts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["chain", "keys", "machine"])
    parser.add_argument("--persons", type=int, default=125)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.tasks:
        task = foreign.FAMILIES[name]()
        problem, truth = study(task, options.persons, options.episodes, np.random.default_rng(options.seed))
        usual = None
        for factor in (1.0, 0.01, 100.0):
            begun = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=factor * task.reward()))
            given = np.isfinite(found.standard_errors)
            ends = found.confidence_intervals()
            whole = np.isfinite(ends).all(axis=1)
            inside = whole & (ends[:, 0] <= truth) & (truth <= ends[:, 1])
            usual = found.discounts if usual is None else usual
            both = given & np.isfinite(usual)
            print(
                f"{name:9} x {factor:<6g} {found.status!s:15} discounts {given.sum():3} of {given.size}, whole intervals "
                f"{whole.sum():3}, hold the truth {inside.sum() / max(whole.sum(), 1):.3f}, differ by at most "
                f"{np.abs(found.discounts - usual)[both].max(initial=0.0):.1e}, {time.process_time() - begun:.1f} s\n"
                f"    {found.message[:600]}"
            )


if __name__ == "__main__":
    main()
