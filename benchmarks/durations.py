"""Moves that take time: equality with waiting, what they cost, exact recovery, and the coverage of intervals.

    python benchmarks/durations.py [--replications 200] [--episodes 300] [--only waiting,cost,recovery,coverage]

*waiting*: the largest difference of plans from those of the task with states of waiting put in. *cost*: processor time beside the
same task without durations, and beside the one with waiting. *recovery*: `identify` with durations, and with durations ignored.
*coverage*: how often 95% intervals of discounts contain the truth, where durations are given, where transitions and durations
are taken from the time stamps of the same decisions, and, in a quarter of the replications, where durations are ignored. All
of it takes about ten minutes of one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

import multihorizon as mh

DISCOUNTS = np.array([0.4, 0.7, 0.9])


def random_task(
    seed: int, states: int, actions: int, ends: bool = True
) -> tuple[list[sp.csr_array], np.ndarray, list[sp.csr_array]]:
    """Transitions with three successors, terminal states, and durations of moves from one to four units."""
    rng, moves, times = np.random.default_rng(seed), [], []
    for _ in range(actions):
        rows = np.repeat(np.arange(states - ends), 3)
        columns = np.concatenate([rng.choice(states, 3, replace=False) for _ in range(states - ends)])
        chances = rng.dirichlet(np.ones(3), states - ends).ravel()
        moves.append(sp.csr_array((chances, (rows, columns)), shape=(states, states)))
        times.append(sp.csr_array((rng.integers(1, 5, rows.size) / 1.0, (rows, columns)), shape=(states, states)))
    return moves, np.array([states - 1] if ends else [], dtype=np.int64), times


def grid_task(side: int) -> tuple[list[sp.csr_array], np.ndarray, list[sp.csr_array]]:
    """Four directions on a grid; every cell takes a time of its own to cross, from one to four units, and the corner ends it."""
    n, moves, times = side * side, [], []
    y, x = np.divmod(np.arange(n), side)
    crossing = np.random.default_rng(0).integers(1, 5, n) / 1.0
    live = np.arange(n) < n - 1
    for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        there = np.clip(y + dy, 0, side - 1) * side + np.clip(x + dx, 0, side - 1)
        entries = np.flatnonzero(live), there[live]
        moves.append(sp.csr_array((np.ones(n - 1), entries), shape=(n, n)))
        times.append(sp.csr_array((crossing[live], entries), shape=(n, n)))
    return moves, np.array([n - 1]), times


def with_waiting(moves: list[sp.csr_array], terminal: np.ndarray, times: list[sp.csr_array]) -> mh.MDP:
    """The same task where a move of τ units goes through τ − 1 states in which there is nothing to choose."""
    n, size, parts = moves[0].shape[0], moves[0].shape[0], []
    waits: list[np.ndarray] = []
    for move, lasting in zip(moves, times, strict=True):
        move = move.tocoo()
        more = np.asarray(lasting[move.coords[0], move.coords[1]]).astype(np.int64) - 1
        first = size + np.cumsum(more) - more
        size += int(more.sum())
        entered = np.where(more > 0, first, move.coords[1])
        parts.append((move.coords[0], entered, move.data))
        places = np.repeat(first, more) + np.arange(more.sum()) - np.repeat(np.cumsum(more) - more, more)
        last = places == np.repeat(first + more - 1, more)
        waits.append(np.stack([places, np.where(last, np.repeat(move.coords[1], more), places + 1)]))
    waiting = np.concatenate(waits, axis=1)
    built = [sp.csr_array((data, (rows, columns)), shape=(size, size)) for rows, columns, data in parts]
    built[0] = built[0] + sp.csr_array((np.ones(waiting.shape[1]), tuple(waiting)), shape=(size, size))
    available = np.ones((size, len(moves)), dtype=np.bool_)
    available[n:, 1:] = False
    return mh.MDP(built, terminal=terminal, available=available)


def seconds(work: Callable[[], object], least: float = 0.3) -> float:
    """Processor seconds of one call, the fastest of several."""
    best, spent = np.inf, 0.0
    while spent < least:
        start = time.process_time()
        work()
        taken = time.process_time() - start
        best, spent = min(best, taken), spent + taken
    return best


TASKS = {
    "random, 8 states": lambda: random_task(0, 8, 3),
    "random, endless, 50 states": lambda: random_task(1, 50, 2, ends=False),
    "random, 300 states": lambda: random_task(2, 300, 4),
    "grid, 400 states": lambda: grid_task(20),
    "grid, 2500 states": lambda: grid_task(50),
}


def waiting() -> None:
    print("waiting: largest difference of values and of soft policies from the task with states of waiting")
    for name, make in TASKS.items():
        moves, terminal, times = make()
        mdp, long = mh.MDP(moves, terminal=terminal, durations=times), with_waiting(moves, terminal, times)
        reward = np.random.default_rng(3).normal(size=mdp.n_states)
        paid, n, worst = np.append(reward, np.zeros(long.n_states - reward.size)), reward.size, np.zeros(3)
        for gamma in (0.1, 0.5, 0.9, 0.98):
            soft, slow = mh.soft_plan(mdp, reward, gamma), mh.soft_plan(long, paid, gamma)
            gaps = (
                mh.plan(mdp, reward, gamma).values - mh.plan(long, paid, gamma).values[:n],
                soft.values - slow.values[:n],
                soft.policy - slow.policy[:n],
            )
            worst = np.maximum(worst, [np.abs(gap).max() for gap in gaps])
        print(f"  {name:28} {n:5} → {long.n_states:5} states   plan {worst[0]:.0e}   soft {worst[1]:.0e}   policy {worst[2]:.0e}")


def cost() -> None:
    print("cost: processor time of soft_plan and plan at 0.9, beside the task without durations")
    for name, make in TASKS.items():
        moves, terminal, times = make()
        reward = np.random.default_rng(3).normal(size=moves[0].shape[0])
        plain, long = mh.MDP(moves, terminal=terminal), with_waiting(moves, terminal, times)
        unit = mh.MDP(moves, terminal=terminal, durations=1)
        timed = mh.MDP(moves, terminal=terminal, durations=times)
        paid = np.append(reward, np.zeros(long.n_states - reward.size))
        for planner in (mh.soft_plan, mh.plan):
            base = seconds(lambda: planner(plain, reward, 0.9))  # noqa: B023
            others = [(unit, reward), (timed, reward), (long, paid)]
            ratios = [seconds(lambda: planner(task, own, 0.9)) / base for task, own in others]  # noqa: B023
            print(
                f"  {name:28} {planner.__name__:9}  of one unit {ratios[0]:.2f}   mixed {ratios[1]:.2f}   waiting {ratios[2]:.1f}"
            )
    moves, terminal, times = random_task(7, 12, 3)
    mdps = {
        "no durations": mh.MDP(moves, terminal=terminal),
        "of one unit": mh.MDP(moves, terminal=terminal, durations=1),
        "mixed": mh.MDP(moves, terminal=terminal, durations=times),
    }
    reward = np.random.default_rng(3).normal(size=12)
    print("cost: a fit of three experts, 12 states, beside one of decisions in the task without durations")
    base = 0.0
    for name, mdp in mdps.items():
        policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS]
        problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 300, seed=0))
        taken = seconds(lambda: mh.solve(problem, mh.MaximumLikelihood()), 3.0)  # noqa: B023
        base = base or taken
        print(f"  {name:28} {taken / base:.2f}")


def recovery() -> None:
    print("recovery: identify from policies of three experts")
    for states, actions, ends in ((6, 2, False), (12, 3, True), (30, 3, False), (100, 3, True), (300, 3, True)):
        moves, terminal, times = random_task(states, states, actions, ends)
        mdp = mh.MDP(moves, terminal=terminal, durations=times)
        reward = np.random.default_rng(3).normal(size=states)
        policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS]
        start = time.process_time()
        found = mh.identify(mh.Problem(mdp, policies))
        taken = time.process_time() - start
        ignored = mh.identify(mh.Problem(mh.MDP(moves, terminal=terminal), policies))
        error = np.abs(found.discounts - DISCOUNTS).max()
        print(
            f"  {states:4} states: {found.status}, discounts off by {error:.0e}, residual {found.residual:.0e}, {taken:.1f} s; "
            f"durations ignored: {ignored.status}, {ignored.misfit:.0e} times worse than rounding, leaves {ignored.residual:.2f}"
        )


def coverage(replications: int, episodes: int) -> None:
    moves, terminal, times = random_task(5, 10, 3)
    rng = np.random.default_rng(5)
    shares = [sp.csr_array((rng.uniform(0.3, 0.7, m.nnz), m.indices, m.indptr), shape=m.shape) for m in moves]
    # each move takes its time, or two units more
    layers: dict[int, list[sp.csr_array]] = {}
    for lasts in range(1, 7):
        parts = []
        for move, share, own in zip(moves, shares, times, strict=True):
            chances = move.data * (share.data * (own.data == lasts) + (1 - share.data) * (own.data == lasts - 2))
            parts.append(sp.csr_array((chances, move.indices, move.indptr), shape=move.shape))
        layers[lasts] = parts
    reward = 1.5 * rng.normal(size=10)
    fixed, random = (mh.MDP(moves, terminal=terminal, durations=durations) for durations in (times, layers))
    plain = mh.MDP(moves, terminal=terminal)
    found: dict[str, list[np.ndarray]] = {}
    start = time.process_time()
    for seed in range(replications):
        for true, names in ((fixed, ("given, fixed", "ignored")), (random, ("given, random", "from time stamps"))):
            policies = [mh.soft_plan(true, reward, gamma).policy for gamma in DISCOUNTS]
            table = mh.Demonstrations.simulate(true, policies, episodes, seed=seed, max_steps=40)
            for name in names:
                if name == "ignored" and seed % 4:
                    continue
                task = {"ignored": plain, "from time stamps": None}.get(name, true)
                solution = mh.solve(mh.Problem(mh.estimate_mdp(table) if task is None else task, table), mh.MaximumLikelihood())
                found.setdefault(name, []).append(np.column_stack([solution.discounts, solution.confidence_intervals(0.95)]))
        if (seed + 1) % 50 == 0 or seed + 1 == replications:
            taken = time.process_time() - start
            print(f"coverage of 95% intervals in {seed + 1} replications, truth {DISCOUNTS}, {taken:.0f} s", flush=True)
            for name, runs in found.items():
                every = np.array(runs)
                known = ~np.isnan(every).any(axis=2)
                inside = (every[:, :, 1] <= DISCOUNTS) & (every[:, :, 2] >= DISCOUNTS) & known
                share, error = inside.sum(axis=0) / known.sum(axis=0), np.abs(every[:, :, 0] - DISCOUNTS).mean(axis=0)
                print(f"  {name:18} {share.round(3)}   mean |error| {error.round(3)}   known {known.sum(axis=0)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--only", default="waiting,cost,recovery,coverage")
    arguments = parser.parse_args()
    parts = {"waiting": waiting, "cost": cost, "recovery": recovery}
    for name in arguments.only.split(","):
        if name == "coverage":
            coverage(arguments.replications, arguments.episodes)
        else:
            parts[name]()


if __name__ == "__main__":
    main()
