"""Who shares a goal with whom: how often `goals` finds the right groups, and how long it takes.

* random problems of 4 to 60 states with 4 to 12 experts, 2 to 4 rewards and random discounts, exact policies: wrong partitions,
  links between experts of different rewards, and the largest error in the discounts and rewards of groups of two or more;
* the same problems with relative errors in the policies: links between experts of different rewards (there must be none), and how
  the pairs that share a reward are told;
* 12 experts on square grids: processor time;
* growth (`--growth`, and what `run.py` collects): 4 to 32 experts with three rewards as policies, and 2 to 12 experts with two
  rewards and 300 decisions each, on random, grid and dense tasks; how many groups were fitted and pairs left out;
* the test of one reward by itself, for 3, 14 and 50 experts: how often it rejects where all want the same (the level), where half
  want another thing (the power), and the cost beside that of the fit;
* decisions of six experts with 1,000 episodes each, on the cliff and on big-small: how often the groups are right where three
  want one thing and three another, and how often goals are wrongly said to differ where all want the same.

Run: python benchmarks/goals.py [--growth]
     python benchmarks/goals.py [--problems 200] [--noise 1e-3] [--sides 10 20 40] [--tests 200] [--replications 100] [--first 0]
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from rows import TASKS, exponents, shown, task

import multihorizon as mh
from multihorizon.parallel import Run
from multihorizon.questions.goals import Goals
from multihorizon.questions.sharing import shared_goal_test


def random_problem(seed: int) -> tuple[mh.Problem, list[int], np.ndarray, np.ndarray]:
    """A problem, the goal of each expert, the rewards of the goals, and the discounts."""
    rng = np.random.default_rng(seed)
    states, actions, experts = int(rng.integers(4, 61)), int(rng.integers(2, 5)), int(rng.integers(4, 13))
    branching = int(rng.integers(3, 7)) if states > 8 else None
    mdp = mh.domains.random_mdp(states, actions, branching, n_terminal=int(states > 5 and rng.random() < 0.5), seed=seed)
    rewards = rng.normal(size=(int(rng.integers(2, 5)), states)) * rng.uniform(0.5, 3.0)
    goals = [int(g) for g in rng.integers(len(rewards), size=experts)]
    discounts = rng.uniform(0, 0.99, size=experts)
    policies = [mh.soft_plan(mdp, rewards[g], gamma).policy for g, gamma in zip(goals, discounts, strict=True)]
    return mh.Problem(mdp, policies), goals, rewards, discounts


def partition(goals: list[int]) -> set[frozenset[str]]:
    return {frozenset(str(k) for k, goal in enumerate(goals) if goal == g) for g in set(goals)}


def errors(found: Goals, goals: list[int], rewards: np.ndarray, discounts: np.ndarray) -> tuple[float, float]:
    """The largest errors in a discount and in a reward over the groups of two or more; NaN discounts count as errors of 1."""
    worst_discount = worst_reward = 0.0
    for group, solution in zip(found.groups, found.solutions, strict=True):
        if len(group) > 1:
            gamma = found.discounts[[int(name) for name in group]] - discounts[[int(name) for name in group]]
            worst_discount = max(worst_discount, float(np.nan_to_num(np.abs(gamma), nan=1.0).max()))
            gap = (solution.reward - rewards[goals[int(group[0])]])[solution.reward_identified]
            gap = gap - gap.mean() if solution.free_constant and gap.size else gap
            worst_reward = max(worst_reward, float(np.abs(gap).max(initial=0.0)))
    return worst_discount, worst_reward


def exact(problems: int) -> None:
    wrong, merged, undecided, worst = [], 0, 0, np.zeros(2)
    start = time.process_time()
    for seed in range(problems):
        problem, goals, rewards, discounts = random_problem(seed)
        found = mh.goals(problem)
        if set(map(frozenset, found.groups)) != partition(goals):
            wrong.append(seed)
        merged += wrong_links(found, goals)
        undecided += len(found.undecided)
        worst = np.maximum(worst, errors(found, goals, rewards, discounts))
    seconds = time.process_time() - start
    print(f"exact policies, {problems} problems: {len(wrong)} wrong partitions {wrong[:10]}, {merged} wrong merges,")
    print(f"  {undecided} pairs of groups undecided, error in Γ {worst[0]:.1e}, in rewards {worst[1]:.1e}, CPU {seconds:.1f} s")


def wrong_links(found: Goals, goals: list[int]) -> int:
    """Pairs of experts with different rewards in one group."""
    return sum(goals[int(a)] != goals[int(b)] for group in found.groups for a, b in combinations(group, 2))


def noisy(problems: int, size: float) -> None:
    merged = 0
    told: Counter[tuple[str, str, str]] = Counter()
    for seed in range(problems):
        problem, goals, _, _ = random_problem(seed)
        rng = np.random.default_rng(seed)
        moved = [e.policy * np.exp(size * rng.standard_normal(e.policy.shape)) for e in problem.experts]
        found = mh.goals(mh.Problem(problem.mdp, [p / p.sum(axis=1, keepdims=True) for p in moved]), tolerance=size)
        merged += wrong_links(found, goals)
        number = {name: g for g, group in enumerate(found.groups) for name in group}
        for pair in found.pairs:
            a, b = pair.experts
            same = goals[int(a)] == goals[int(b)]
            told["same goal" if same else "other goal", pair.verdict, "one group" if number[a] == number[b] else "apart"] += 1
    print(f"relative errors of {size:g}, {problems} problems: {merged} wrong merges")
    for key, count in sorted(told.items()):
        print(f"  {', '.join(key)}: {count}")


def scale(sides: list[int]) -> None:
    for side in sides:
        mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(side // 2, side // 2)])
        rng = np.random.default_rng(0)
        rewards = rng.normal(size=(3, mdp.n_states))
        goals = [k % 3 for k in range(12)]
        discounts = rng.uniform(0.1, 0.95, size=12)
        policies = [mh.soft_plan(mdp, rewards[g], gamma).policy for g, gamma in zip(goals, discounts, strict=True)]
        problem = mh.Problem(mdp, policies)
        begin, cpu = time.perf_counter(), time.process_time()
        found = mh.goals(problem)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        right = set(map(frozenset, found.groups)) == partition(goals)
        print(f"12 experts on {side}×{side}: {seconds:.2f} s ({cpu:.2f} s CPU), right: {right}", flush=True)


def grown(kind: str, states: int, experts: int, decisions: int) -> dict[str, object]:
    """The time of `goals` for experts with one of three rewards, or of two where decisions are given; 0 stands for policies."""
    mdp, rng = task(kind, states), np.random.default_rng(0)
    rewards = rng.normal(size=(2 if decisions else 3, mdp.n_states))
    goals, discounts = [k % len(rewards) for k in range(experts)], rng.uniform(0.2, 0.9, experts)
    policies = [mh.soft_plan(mdp, rewards[g], gamma).policy for g, gamma in zip(goals, discounts, strict=True)]
    if decisions:
        problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, decisions // 20, max_steps=20, seed=0))
    else:
        problem = mh.Problem(mdp, policies)
    seconds = []
    for _ in range(1 if decisions else 3):
        begun = time.process_time()
        found = mh.goals(problem)
        seconds.append(time.process_time() - begun)
    return {
        "task": kind,
        "states": mdp.n_states,
        "decisions each": decisions or "policies",
        "experts": experts,
        "goals, s": min(seconds),
        "exponent": None,
        "groups": len(found.groups),
        "wrong links": wrong_links(found, goals),
        "pairs": len(found.pairs),
        "of these left out": sum(bool(getattr(pair, "left_out", "")) for pair in found.pairs),
    }


def growth(full: bool) -> Iterator[dict[str, object]]:
    for decisions in (0, 300):
        grown("random", 12, 3, decisions)  # loads what is imported on first use
        for kind in TASKS:
            states = 100 if not decisions or full else 36
            experts = (4, 8, 16, 32) if not decisions else (2, 4, 8, 12) if full else (2, 4, 8)
            yield from exponents([grown(kind, states, k, decisions) for k in experts], "experts", "goals, s")


def tested(name: str, experts: int, episodes: int, replications: int, swapped: bool, estimated: bool) -> None:
    """Level or power of the test that all share one reward, with temperatures pooled as in `fit`."""
    if name == "random":
        mdp, reward = mh.domains.random_mdp(8, 3, seed=3), 2 * np.random.default_rng(3).normal(size=8)
        rewards = (reward, reward[::-1])
    else:
        domain = mh.domains.cliff() if name == "cliff" else mh.domains.big_small()
        mdp, other, ends = domain.mdp, domain.reward.copy(), np.flatnonzero(domain.mdp.terminal)
        other[ends] = np.roll(other[ends], len(ends) // 2)
        rewards = (domain.reward, other)
    p_values, costs = [], np.zeros(2)
    for seed in range(replications):
        discounts = np.random.default_rng(seed).uniform(0.2, 0.97, experts)
        policies = [mh.soft_plan(mdp, rewards[k % 2 if swapped else 0], g).policy for k, g in enumerate(discounts)]
        table = mh.Demonstrations.simulate(mdp, policies, episodes, max_steps=200, seed=seed)
        problem = mh.Problem(mh.estimate_mdp(table) if estimated else mdp, table)
        begin = time.process_time()
        solution = mh.solve(problem, mh.MaximumLikelihood())
        fitted = time.process_time()
        p_values.append(shared_goal_test(solution, 499, run=Run(seed)).p_value)
        costs += (fitted - begin, time.process_time() - fitted)
    goals, moves = "two goals" if swapped else "one goal", "estimated" if estimated else "known"
    print(f"one reward tested, {name}, {experts} experts, {episodes} episodes, {goals}, {moves} transitions:", end=" ")
    print(f"p ≤ 0.05 in {np.mean(np.array(p_values) <= 0.05):.3f} of {replications},", end=" ")
    print(f"CPU of the fit {costs[0] / replications:.2f} s, of the test {costs[1] / replications:.2f} s", flush=True)


def decided(name: str, goals: list[int], episodes: int, seed: int) -> mh.Problem:
    """Six experts of a domain; those of the second goal want another terminal state."""
    domain = mh.domains.cliff() if name == "cliff" else mh.domains.big_small()
    other, ends = domain.reward.copy(), np.flatnonzero(domain.mdp.terminal)
    other[ends] = np.roll(other[ends], len(ends) // 2)
    rewards, discounts = (domain.reward, other), domain.soft_discounts
    policies = [mh.soft_plan(domain.mdp, rewards[g], discounts[k % 3]).policy for k, g in enumerate(goals)]
    return mh.Problem(domain.mdp, mh.Demonstrations.simulate(domain.mdp, policies, episodes, seed=seed))


def decisions(name: str, goals: list[int], replications: int, first: int) -> None:
    right, verdicts, rejected = 0, Counter[str](), 0
    start = time.process_time()
    for seed in range(first, first + replications):
        found = mh.goals(decided(name, goals, 1000, seed))
        assert found.test is not None
        right += set(map(frozenset, found.groups)) == partition(goals)
        rejected += found.test.p_value <= 0.05
        verdicts[found.verdict] += 1
    seconds = (time.process_time() - start) / max(replications, 1)
    print(f"decisions, {name}, goals {goals}: {right} of {replications} partitions right, verdicts {dict(verdicts)},")
    print(f"  p ≤ 0.05 in {rejected}, {seconds:.1f} s CPU each", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--noise", type=float, default=1e-3)
    parser.add_argument("--sides", type=int, nargs="*", default=[10, 20, 40])
    parser.add_argument("--tests", type=int, default=200, help="Tables for each level and power of the test of one reward.")
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="The seed of the first replication.")
    parser.add_argument("--growth", action="store_true", help="Only how the time grows with the number of experts.")
    options = parser.parse_args()
    if options.growth:
        for row in growth(full=True):
            print(shown(row), flush=True)
        return
    if options.problems:
        exact(options.problems)
        noisy(options.problems, options.noise)
    scale(options.sides)
    for name, experts, episodes in (
        ("cliff", 3, 100),
        ("big-small", 3, 100),
        ("random", 3, 2),
        ("cliff", 14, 50),
        ("random", 14, 1),
        ("random", 50, 1),
    ):
        for swapped, estimated in ((False, False), (True, False), (False, True)):
            if options.tests:
                tested(name, experts, episodes, options.tests, swapped, estimated)
    if options.replications:
        for name in ("cliff", "big-small"):
            decisions(name, [0, 0, 0, 1, 1, 1], options.replications, options.first)
            decisions(name, [0, 0, 0, 0, 0, 0], options.replications, options.first)


if __name__ == "__main__":
    main()
