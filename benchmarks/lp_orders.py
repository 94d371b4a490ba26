"""Is MPLP's default answer the best one, and does its order of horizons hold? Tasks from outside, with their own planner.

    python benchmarks/lp_orders.py [--tasks 200] [--seconds 30]     # random tasks of three families, each against a long proof
    python benchmarks/lp_orders.py --first 40 --tasks 20            # tasks 40 to 59 alone; counts of such pieces add up
    python benchmarks/lp_orders.py --weaning                        # one task, by every search
    python benchmarks/lp_orders.py --order [--tasks 160]            # how often the proved optimum reverses two experts

Families: dense Dirichlet transitions, three successors at most, chains of steps with slips. Experts act best for one reward at
discounts spread over the intervals in which the best policy stays the same.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

import numpy as np

import multihorizon as mh


def best_policy(transitions: np.ndarray, reward: np.ndarray, gamma: float) -> np.ndarray:
    """The first best action of each state, by policy iteration; rewards are paid on arrival."""
    n = reward.size
    policy, values = np.zeros(n, dtype=int), np.zeros(n)
    for _ in range(1000):
        chosen = transitions[policy, np.arange(n)]
        values = np.linalg.solve(np.eye(n) - gamma * chosen, chosen @ reward)
        q = transitions @ (reward + gamma * values)
        better = np.where(q.max(axis=0) > q[policy, np.arange(n)] + 1e-10, q.argmax(axis=0), policy)
        if (better == policy).all():
            return policy
        policy = better
    raise RuntimeError("policy iteration did not end")


def weaning() -> tuple[np.ndarray, np.ndarray, list[int], list[np.ndarray]]:
    """A patient on a ventilator: support 0 to 3, stamina 0 to 2; keep, reduce or extubate, which ends well or badly."""
    transitions = np.zeros((3, 14, 14))
    for support in range(4):
        for stamina in range(3):
            here, share = 3 * support + stamina, 0.5 + 0.25 * stamina
            transitions[0, here, 3 * support + min(stamina + 1, 2)] += 0.5
            transitions[0, here, here] += 0.5
            lower, works = 3 * max(support - 1, 0), 0.75 * share
            transitions[1, here, lower + max(stamina - 1, 0)] += works / 4
            transitions[1, here, lower + stamina] += works * 3 / 4
            transitions[1, here, here] += 1 - works
            transitions[2, here, 12:] = (0.95, 0.7, 0.4, 0.15)[support] * share * np.array([1, -1]) + np.array([0, 1])
    reward = np.append(np.repeat([-0.2, -0.5, -0.8, -1.2], 3), [8.0, -6.0])
    return transitions, reward, [12, 13], [best_policy(transitions, reward, gamma) for gamma in (0.3, 0.7, 0.98)]


def random_task(seed: int, small: bool = False) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Transitions, reward, and the policies of two to four experts from the shortest horizon to the longest."""
    rng = np.random.default_rng(seed)
    while True:
        n, m, experts = (8, 3, 3) if small else (int(rng.integers(8, 31)), int(rng.integers(2, 6)), int(rng.integers(2, 5)))
        reward = rng.normal(size=n)
        transitions = np.zeros((m, n, n))
        if seed % 3 == 0:
            transitions = rng.dirichlet(np.full(n, 0.3), size=(m, n))
        for a, s in np.ndindex(m, n):
            if seed % 3 == 1:
                size = rng.integers(1, 4)
                transitions[a, s, rng.choice(n, size, replace=False)] = rng.dirichlet(np.ones(size))
            elif seed % 3 == 2:
                transitions[a, s, np.clip(s + (-1, 1, 2, -2, 0)[a], 0, n - 1)] += 0.8
                transitions[a, s, rng.integers(n)] += 0.2
        if seed % 3 == 2:
            reward = 0.2 * reward
            reward[rng.choice(n, 3, replace=False)] += [1, 3, 10]
        each = [best_policy(transitions, reward, gamma) for gamma in np.linspace(0, 0.99, 100)]
        distinct = [each[0]] + [late for early, late in pairwise(each) if (early != late).any()]
        if len(distinct) >= 2:
            picked = np.unique(np.linspace(0, len(distinct) - 1, experts).round().astype(int))
            return transitions, reward, [distinct[i] for i in picked]


def compare(first: int, tasks: int, seconds: float) -> None:
    """The default against a proof to 0.1% that may take long."""
    rows = []
    for seed in range(first, first + tasks):
        transitions, _, experts = random_task(seed)
        problem = mh.Problem(mh.MDP(transitions, initial=np.full(transitions.shape[1], 1 / transitions.shape[1])), experts)
        begun = time.process_time()
        default = mh.solve(problem, mh.MPLP())
        took = time.process_time() - begun
        proved, best = default.status == "optimal", default.objective
        if not proved:
            longer = mh.solve(problem, mh.MPLP(certify=0.001, certify_seconds=seconds))
            proved, best = longer.status == "optimal", max(best, longer.objective)
        short = 1 - default.objective / best
        ordered = bool((np.diff(default.discounts) >= 0).all())
        rows.append((str(default.status), proved, short, ordered, took))
        if short > 1e-3 or default.status not in ("optimal", "converged"):
            print(f"seed {seed}: {default.status}, {short:.2%} short of {best:.6g}, proved {proved}", flush=True)
    status, proved, short, ordered, took = map(np.array, zip(*rows, strict=True))
    print(
        f"tasks {first} to {first + tasks - 1}: {tasks}, {np.sum(proved)} with a proved optimum, "
        f"{np.sum(proved & (short <= 1e-3))} of these within 0.1%, "
        f"{np.sum(short > 1e-3)} short by more, {np.sum(~np.isin(status, ['optimal', 'converged']))} whose status says it may be"
    )
    for name in np.unique(status):
        some = status == name
        text = f"{name}: {some.sum()} of {tasks}, {np.sum(short[some] > 1e-3)} short by more than 0.1%, "
        print(text + f"{np.sum(proved[some])} proved by now, {np.sum(~ordered[some])} in another order than the truth")
    print(f"processor seconds of the default: median {np.median(took):.2f}, mean {took.mean():.2f}, largest {took.max():.1f}")


def by_every_search() -> None:
    """The weaning task by every search."""
    transitions, _, ends, experts = weaning()
    problem = mh.Problem(mh.MDP(transitions, initial=np.append(np.full(12, 1 / 12), [0, 0]), terminal=ends), experts)
    for name, options in {
        "default": {},
        "no proof": {"certify": None},
        "certify=0.01": {"certify": 0.01},
        "Grid(0.1)": {"search": mh.Grid(0.1), "certify": None},
        "Bayesian(100)": {"search": mh.Bayesian(100), "certify": None},
        "the reversed order": {"search": mh.SequentialLP(order=["2", "1", "0"])},
    }.items():
        begun = time.process_time()
        answer = mh.solve(problem, mh.MPLP(reward_bound=8, **options))
        text = f"{name}: {answer.status}, {answer.discounts.round(3)}, {answer.objective:.4f}"
        print(f"{text}, {time.process_time() - begun:.2f} s", flush=True)


def reversed_orders(tasks: int, seconds: float) -> None:
    """How often the optimum puts experts in another order than the one that planned them."""
    proved, wrong = 0, []
    for seed in range(tasks):
        transitions, _, experts = random_task(seed, small=True)
        problem = mh.Problem(mh.MDP(transitions, initial=np.full(8, 1 / 8)), experts)
        answer = mh.solve(problem, mh.MPLP(certify=0.001, certify_seconds=seconds))
        proved += answer.status == "optimal"
        if (np.diff(answer.discounts) < 0).any():
            wrong.append((seed, str(answer.status), answer.discounts.round(3).tolist()))
    print(f"{tasks} tasks of 8 states and 3 actions: {proved} optima proved, {len(wrong)} in another order than the truth")
    for row in wrong:
        print("  seed {}: {}, discounts {}".format(*row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--weaning", action="store_true")
    parser.add_argument("--order", action="store_true")
    options = parser.parse_args()
    if options.weaning:
        by_every_search()
    elif options.order:
        reversed_orders(options.tasks, options.seconds)
    else:
        compare(options.first, options.tasks, options.seconds)


if __name__ == "__main__":
    main()
