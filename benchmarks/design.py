"""Designs of studies: the certified gap, and what simulated studies say of the expected standard errors.

    python benchmarks/design.py gaps
    python benchmarks/design.py cliff [--studies 200]
    python benchmarks/design.py space [--studies 100]
    python benchmarks/design.py pilots [--seeds 50]

gaps     the proved gap and the seconds of a design on the cliff, big-small, FrozenLake 8×8 and the Space Adventure Task.
cliff    1,000 episodes of each expert, as designed and uniform: expected and simulated standard errors of the discounts.
space    70 of 140 mini-blocks, chosen for each person's discount and for a group difference, beside all 140.
pilots   what a design from a pilot of 20 episodes loses, at the true parameters, against the design from the truth.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import multihorizon as mh
from multihorizon.numerics.allocation import evenly
from multihorizon.parallel import Run
from multihorizon.questions.design import Design, _information, _mean_local
from multihorizon.questions.schedule import Schedule, read_pilot

#: The reward and the discounts of the cliff as experts have them.
KNOWN = mh.MaximumLikelihood(1.0, starts=2)


def truth(mdp: mh.MDP, reward: Any, discounts: Any, temperature: float = 1.0) -> mh.Solution:
    """A guess that is exactly right."""
    policies = [mh.soft_plan(mdp, reward, float(g), temperature).policy for g in discounts]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 50, seed=0))
    fitted = mh.solve(problem, mh.MaximumLikelihood(1.0, starts=1))  # its answer is replaced
    return replace(
        fitted, reward=np.asarray(reward) / temperature, discounts=np.asarray(discounts, dtype=float), interval_source=None
    )


def pilot(domain: Any, episodes: int, seed: int) -> mh.Solution:
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes, seed=seed)
    return mh.solve(mh.Problem(domain.mdp, table), KNOWN, seed=seed)


def frozen_lake() -> tuple[mh.MDP, mh.Solution]:
    import gymnasium  # noqa: PLC0415

    mdp = mh.MDP.from_gymnasium(gymnasium.make("FrozenLake-v1", map_name="8x8"))
    reward = np.zeros(mdp.n_states)
    reward[-1] = 1.0
    policies = [mh.soft_plan(mdp, reward, g, 0.1).policy for g in (0.7, 0.9, 0.98)]
    return mdp, mh.solve(mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 400, seed=0)), KNOWN)


def blocks(task: Any) -> pd.DataFrame:
    return pd.DataFrame({"state": [task.mdp.state_names[s] for s in task.starts], "most": 1})


def gaps(_: Any = None) -> Iterator[dict[str, Any]]:
    lake, guess = frozen_lake()
    task = mh.domains.space_adventure(mini_blocks=140)
    people = task.persons(44, seed=0)
    problem = mh.Problem(task.mdp, people.demonstrations)
    each = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=task.reward))
    group = mh.solve(problem, mh.Population("~ group", people.frame, known_reward=task.reward))
    cases = [
        ("cliff", mh.domains.cliff().mdp, pilot(mh.domains.cliff(), 300, 1), None, 1000),
        ("big-small", mh.domains.big_small().mdp, pilot(mh.domains.big_small(), 300, 1), None, 1000),
        ("FrozenLake 8×8", lake, guess, None, 400),
        ("space adventure, 44 persons", task.mdp, each, blocks(task), 70),
        ("space adventure, group difference", task.mdp, group, blocks(task), 70),
    ]
    for name, mdp, solution, candidates, episodes in cases:
        begin = time.process_time()
        found = mh.design(mdp, solution, candidates, episodes=episodes)
        yield {
            "task": name,
            "candidates": len(found.candidates),
            "gap": found.gap,
            "rounding": found.rounding_loss,
            "saving": found.saving,
            "seconds": time.process_time() - begin,
        }


def uniform(found: Design) -> Schedule:
    """The uniform study of the same number of episodes."""
    wanted = evenly(np.full(len(found.candidates), 2.0)) * found.times.sum()
    times = np.floor(wanted).astype(int)
    times[: int(found.times.sum() - times.sum())] += 1
    return replace(found.schedule, times=times)


def simulated(guess: mh.Solution, solver: Any, schedule: Schedule, studies: int, **options: Any) -> Any:
    return mh.simulate_study(guess, solver, schedule=schedule, studies=studies, seed=1, **options).sizes[0]


def cliff(studies: int = 200) -> Iterator[dict[str, Any]]:
    domain = mh.domains.cliff()
    for discounts in (domain.soft_discounts, (0.3, 0.5, 0.8)):
        guess = truth(domain.mdp, domain.reward, discounts)
        found = mh.design(domain.mdp, guess, episodes=1000)
        spreads = {}
        for name, schedule, errors in (
            ("designed", found.schedule, found.expected_standard_errors),
            ("uniform", uniform(found), found.uniform_standard_errors),
        ):
            size = simulated(guess, KNOWN, schedule, studies)
            spreads[name] = np.nanstd(size.estimates, axis=0, ddof=1)
            for k, gamma in enumerate(discounts):
                yield {
                    "discounts": discounts,
                    "study": name,
                    "discount": gamma,
                    "expected": errors[k],
                    "simulated": spreads[name][k],
                    "ratio": spreads[name][k] / errors[k],
                    "coverage": size.coverage,
                }
        ratio = (spreads["uniform"] / spreads["designed"]) ** 2
        yield {"discounts": discounts, "study": "variance, uniform / designed", "each": ratio.round(2), "mean": ratio.mean()}


def space(studies: int = 100) -> Iterator[dict[str, Any]]:
    task = mh.domains.space_adventure(mini_blocks=140)
    people = task.persons(44, seed=0)
    problem = mh.Problem(task.mdp, people.demonstrations)
    each = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=task.reward))
    group = mh.solve(problem, mh.Population("~ group", people.frame, known_reward=task.reward))
    for name, guess in (("44 persons", each), ("group difference", group)):
        half, full = (mh.design(task.mdp, guess, blocks(task), episodes=n, difference=0.8) for n in (70, 140))
        ratio = half.expected_standard_errors / full.expected_standard_errors
        yield {"target": name, "expected, 70 of 140 / all": f"median {np.median(ratio):.3f}, largest {ratio.max():.3f}"}
        spread = {}
        for kind, found in (("70", half), ("140", full)):
            size = simulated(guess, None, found.schedule, studies)
            errors = found.expected_standard_errors
            if name == "44 persons":
                spread[kind] = np.nanstd(size.estimates, axis=0, ddof=1)
                inside = (each.discounts > 0.3) & (each.discounts < 0.95)
                ratio = (spread[kind] / errors)[inside]
            else:
                spread[kind] = np.array([size.effect_error])
                ratio = spread[kind] / errors
            yield {"target": name, "blocks": kind, "simulated / expected": f"median {np.median(ratio):.3f}", "power": size.power}
        ratio = spread["70"] / spread["140"]
        yield {"target": name, "simulated, 70 of 140 / all": f"median {np.median(ratio):.3f}, largest {ratio.max():.3f}"}


def pilots(seeds: int = 50) -> Iterator[dict[str, Any]]:
    """The loss is the share of episodes that the design from a pilot needs more, at the true parameters."""
    for domain, discounts in ((mh.domains.cliff(), (0.3, 0.5, 0.8)), (mh.domains.big_small(), (0.1, 0.45, 0.9))):
        guess = truth(domain.mdp, domain.reward, discounts)
        best = mh.design(domain.mdp, guess, episodes=1000, draws=1)
        (here,) = _information(read_pilot([guess], None, None, False, 1), best.schedule, Run())

        def worth(weights: Any, here: Any = here) -> float:
            local = _mean_local([here], "all", False, 1000 * weights)
            return -np.inf if local is None else local.value

        policies = [mh.soft_plan(domain.mdp, domain.reward, g, 1.0).policy for g in discounts]
        losses: dict[str, list[float]] = {"draws": [], "guess alone": [], "uniform": []}
        for seed in range(seeds):
            table = mh.Demonstrations.simulate(domain.mdp, policies, 20, seed=seed)
            fitted = mh.solve(mh.Problem(domain.mdp, table), KNOWN, seed=seed)
            for name, draws in (("draws", 16), ("guess alone", 1)):
                try:
                    weights = mh.design(domain.mdp, fitted, episodes=1000, draws=draws).weights
                except ValueError as error:
                    print(f"seed {seed}, {name}: {error}")
                    weights = evenly(np.full(len(best.candidates), 2.0))
                losses[name].append(1 - np.exp((worth(weights) - worth(best.weights)) / len(discounts)))
        losses["uniform"].append(
            1 - np.exp((worth(evenly(np.full(len(best.candidates), 2.0))) - worth(best.weights)) / len(discounts))
        )
        for name, values in losses.items():
            yield {
                "domain": domain.name,
                "design": name,
                "mean loss": np.mean(values),
                "median": np.median(values),
                "largest": np.max(values),
                "below .2": np.mean(np.array(values) < 0.2),
            }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["gaps", "cliff", "space", "pilots"])
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=50)
    given = parser.parse_args()
    chosen = {"gaps": gaps, "cliff": cliff, "space": space, "pilots": pilots}[given.part]
    for row in chosen(given.seeds if given.part == "pilots" else given.studies):
        print("; ".join(f"{k}: {v:.4g}" if isinstance(v, float) else f"{k}: {v}" for k, v in row.items()), flush=True)
