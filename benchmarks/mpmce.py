"""MPMCE by each of its rules, beside the truth and `ClosedForm`: discounts, evaluations of the inner problem, processor seconds.

    python benchmarks/mpmce.py [--taxi] [--slow-rules]        # tasks from gymnasium and random ones of 30 states
    python benchmarks/mpmce.py --domains [--seeds 5]          # the paper's domains by Bayesian search, beside the paper's table

Experts are soft-optimal; in the rows called "1% lapses" each of their choices is at random with probability .01, so that nothing
matches exactly. `--slow-rules` adds the rule "threshold" and Bayesian search.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import gymnasium
import numpy as np

import multihorizon as mh

PAPER = {"toy": (0.53, 0.82, 0.98), "big-small": (0.30, 0.62, 0.98), "cliff": (0.0, 0.31, 0.55)}


def tasks(taxi: bool) -> Iterator[tuple[str, mh.MDP, np.ndarray, tuple[float, ...]]]:
    rng = np.random.default_rng(5)
    for name, options in (("FrozenLake-v1", {"map_name": "4x4"}), ("FrozenLake-v1", {"map_name": "8x8"})):
        env = gymnasium.make(name, **options)
        yield f"FrozenLake {options['map_name']}", mh.MDP.from_gymnasium(env), mh.gymnasium_reward(env), (0.5, 0.8, 0.95)
    for name in ("CliffWalking-v1", "Taxi-v4")[: 2 if taxi else 1]:  # their own rewards depend on the action
        mdp = mh.MDP.from_gymnasium(gymnasium.make(name))
        yield name.split("-")[0], mdp, rng.normal(size=mdp.n_states), (0.6, 0.85, 0.97)
    for number in range(4):
        n, m = 30, 4
        moves = rng.dirichlet(np.full(n, 0.3), size=(m, n))
        if number >= 2:
            moves = np.zeros((m, n, n))
            for a, s in np.ndindex(m, n):
                moves[a, s, rng.choice(n, 3, replace=False)] = rng.dirichlet(np.ones(3))
        mdp = mh.MDP(moves, initial=np.full(n, 1 / n))
        yield f"random, {'dense' if number < 2 else 'sparse'} {number % 2}", mdp, rng.normal(size=n), (0.3, 0.7, 0.9)


def by_rule(taxi: bool, slow: bool) -> None:
    rules: dict[str, mh.MPMCE | mh.ClosedForm] = {"default": mh.MPMCE(), "ClosedForm": mh.ClosedForm()}
    if slow:
        rules |= {"threshold": mh.MPMCE(gap="threshold"), "Bayesian(50)": mh.MPMCE(search=mh.Bayesian(50))}
    for name, mdp, reward, truth in tasks(taxi):
        exact = [mh.soft_plan(mdp, reward, gamma).policy for gamma in truth]
        uniform = mdp.available / mdp.available.sum(axis=1, keepdims=True)
        for experts, label in ((exact, ""), ([0.99 * policy + 0.01 * uniform for policy in exact], ", 1% lapses")):
            problem = mh.Problem(mdp, experts)
            print(f"{name}{label}: {mdp.n_states} states, truth {truth}")
            for rule, solver in rules.items():
                begun = time.process_time()
                answer = mh.solve(problem, solver)
                seconds = time.process_time() - begun
                evaluations = "" if answer.trace is None else f", {len(answer.trace)} evaluations"
                print(f"  {rule}: {answer.status}, {answer.discounts.round(3)}{evaluations}, {seconds:.2f} s", flush=True)


def on_domains(seeds: int, evaluations: int) -> None:
    for gap in ("per_expert", "summed"):
        for domain in (mh.domains.big_small(), mh.domains.cliff(), mh.domains.toy()):
            problem = mh.Problem(domain.mdp, domain.soft_experts())
            print(f"\n{domain.name}, gap={gap}: truth {domain.soft_discounts}, the paper's MPMCE {PAPER[domain.name]}")
            within = 0
            for seed in range(seeds):
                start = time.process_time()
                answer = mh.solve(problem, mh.MPMCE(gap=gap, search=mh.Bayesian(evaluations)), seed=seed)
                error = float(np.abs(answer.discounts - domain.soft_discounts).max())
                within += error <= 0.1
                print(
                    f"  seed {seed}: {answer.discounts.round(3).tolist()}  error {error:.3f}  mismatch {answer.residual:.1e}  "
                    f"summed gap {answer.evidence['summed_gap']:.1e}  {time.process_time() - start:.1f} s",
                    flush=True,
                )
            print(f"  within 0.1 of the truth: {within} of {seeds}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--taxi", action="store_true")
    parser.add_argument("--slow-rules", action="store_true")
    parser.add_argument("--domains", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=50)
    options = parser.parse_args()
    if options.domains:
        on_domains(options.seeds, options.evaluations)
    else:
        by_rule(options.taxi, options.slow_rules)


if __name__ == "__main__":
    main()
