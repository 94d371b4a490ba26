"""What if: how true predictions are.

* `bounds`: planted problems whose rewards are a set, with restrictions that are true of the reward. Bounds of the choices after
  other transitions, another discount, or both: how often the truth lies inside, and how often one of 10,000 random members of the
  set leaves bounds that are called proved. The members come from a linear system of their own, and are planned with here, so
  that nothing but the policies is shared with what is tested. Widths that are proved and attained, and seconds.
* `curve`: the toy, whose discounts are a curve: median widths over 20 new tasks without and with restrictions, and the widths
  for another discount.
* `identity`: a bonus and a ban from the policies alone against planning with the true reward, on random problems of two experts
  and of one. In two of three, all actions do the same in some states, so that rewards are open.
* `coverage`: tables of the paper's experts on the cliff and on big-small. How often 95% intervals of predicted choices hold
  the truth after a bonus of 2 in the best state, after a ban of what the farthest expert would choose first, and in the first of
  the paper's new tasks. Choices that are the only ones left are not counted. `--levels` asks for other
  intervals of the same draws.
* `people`: 285 simulated people on the Space Adventure Task, one change at a time: processor seconds.
* `large`: a grid of 10⁵ states: processor seconds of a prediction against those of the plans in it.
* `generalization`: the paper's error over 100 new tasks with an interval, in one call.

Run: python benchmarks/whatif.py bounds [--problems 100] [--members 10000] [--first 0]
     python benchmarks/whatif.py curve [--tasks 20] [--seed 0]
     python benchmarks/whatif.py identity [--problems 200] [--first 0]
     python benchmarks/whatif.py coverage [--replications 200] [--episodes 1000] [--draws 200] [--levels 0.95] [--first 0]
     python benchmarks/whatif.py people [--persons 285]
     python benchmarks/whatif.py large [--side 317]
     python benchmarks/whatif.py generalization [--episodes 1000] [--first 0]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.domains.base import Domain
from multihorizon.domains.grids import big_small, cliff, toy
from multihorizon.exact.bounds import Bounds, discount_members, predicted_bounds
from multihorizon.exact.rewards import read_restrictions
from multihorizon.questions.whatif.change import Change, read_change

# Bounds over sets of rewards.


@dataclass(frozen=True)
class Planted:
    """A task before and after, the true reward, and what is known of the experts."""

    kind: str
    mdp: mh.MDP
    after: mh.MDP
    reward: np.ndarray
    discounts: np.ndarray
    new_discounts: np.ndarray
    temperatures: np.ndarray
    problem: mh.Problem
    restrictions: tuple[np.ndarray, np.ndarray]

    def bounds(self) -> Bounds:
        """What is tested."""
        return predicted_bounds(
            self.problem,
            self.discounts,
            self.temperatures,
            mdp=self.after,
            new_discounts=self.new_discounts,
            restrictions=self.restrictions,
        )

    def planned(self, rewards: np.ndarray, k: int) -> np.ndarray:
        """The choices `(n,S,A)` of one expert after the change for many rewards `(n,S)`, by Newton's method on all at once."""
        gamma = self.discounts[k] if np.isnan(self.new_discounts[k]) else self.new_discounts[k]
        lam, moves, live = self.temperatures[k], self.after.to_array(), ~self.after.terminal
        values = np.zeros(rewards.shape)
        for _ in range(200):
            q = np.einsum("ast,nt->nsa", moves, rewards + gamma * values) / lam
            top = q.max(axis=2)
            policy = np.exp(q - top[:, :, None])
            sums = policy.sum(axis=2)
            policy /= sums[:, :, None]
            gap = np.where(live, lam * (top + np.log(sums)) - values, 0.0)
            if np.abs(gap).max() <= 1e-12 * max(1.0, float(np.abs(values).max())):
                return policy
            step = np.linalg.solve(np.eye(len(live)) - gamma * np.einsum("nsa,ast->nst", policy, moves), gap[:, :, None])
            values += step[:, :, 0]
        if np.abs(gap).max() > 1e-9 * max(1.0, float(np.abs(values).max())):
            raise RuntimeError(f"planning left {np.abs(gap).max():.1e}")
        return policy


def partly_forced(rng: np.random.Generator, states: int, actions: int, forced: int, ends: bool) -> mh.MDP:
    """A random task in which all actions do the same in some states, so that rewards are open."""
    moves = rng.dirichlet(np.full(states, 0.5), size=(actions, states))
    moves[:, :forced] = moves[0, :forced]
    if ends:
        moves[:, -1] = 0.0
    return mh.MDP(moves, terminal=[states - 1] if ends else ())


def planted(seed: int) -> Planted:
    """A problem of the toy, of the cliff, or of a random task; one or two experts; limits of the reward, and its order."""
    rng = np.random.default_rng(seed)
    kind = ("toy", "cliff", "random", "random")[seed % 4]
    experts = 1
    if kind == "random":
        states, actions, ends = int(rng.integers(3, 9)), int(rng.integers(2, 4)), bool(rng.random() < 0.3)
        experts = int(rng.integers(1, 3))
        forced = int(rng.integers(1, states))
        mdp, after = (partly_forced(rng, states, actions, n, ends) for n in (forced, 0))
        reward = 2 * rng.normal(size=states)
    else:
        domain = (toy if kind == "toy" else cliff)(ending="absorbing" if rng.random() < 0.5 else "terminal")
        mdp, after = domain.mdp, domain.randomize(rng)
        reward = domain.reward + rng.normal(size=mdp.n_states)
    discounts, temperatures = rng.uniform(0, 0.97, experts), rng.uniform(0.5, 2.0, experts)
    new = np.where(rng.random(experts) < 0.3, rng.uniform(0, 0.97, experts), np.nan)
    if rng.random() < 0.2:
        after, new = mdp, rng.uniform(0, 0.97, experts)
    policies = [mh.soft_plan(mdp, reward, g, lam).policy for g, lam in zip(discounts, temperatures, strict=True)]
    problem = mh.Problem(mdp, policies)
    names, width, given = problem.parameter_names, 10 ** rng.uniform(-1, 1), []
    if rng.random() < 0.8:
        low, high = reward - rng.uniform(0, width, reward.size), reward + rng.uniform(0, width, reward.size)
        sides = (("lower", low), ("upper", high))
        given.append({side: dict(zip(names, limit.tolist(), strict=True)) for side, limit in sides})
    if rng.random() < 0.4:
        given.append({"rising": [names[i] for i in np.argsort(reward)]})
    return Planted(kind, mdp, after, reward, discounts, new, temperatures, problem, read_restrictions(names, given))


def directions(case: Planted) -> np.ndarray:
    """The directions `(S,n)` in which the reward is open: those of `T r + γ_k T V_k − V_k = 0` for all k, in r."""
    moves, live = case.mdp.to_array(), ~case.mdp.terminal
    states, experts = live.size, case.discounts.size
    rows = []
    for k, gamma in enumerate(case.discounts):
        for action in moves:
            row = np.zeros((states, states * (1 + experts)))
            row[:, :states] = action
            row[:, states * (1 + k) : states * (2 + k)] = (gamma * action - np.eye(states)) * live
            rows.append(row[live])
    values = [np.eye(states * (1 + experts))[states * (1 + k) : states * (2 + k)][~live] for k in range(experts)]
    _, sizes, right = np.linalg.svd(np.vstack([*rows, *values]))
    null = right[int((sizes > 1e-9 * sizes[0]).sum()) :, :states].T
    left, sizes, _ = np.linalg.svd(null, full_matrices=False)
    found: np.ndarray = left[:, sizes > 1e-9]
    return found


def members(case: Planted, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random rewards `(n,S)` of the set: a hundred walks side by side from the truth along random lines, and ends of lines.

    Where nothing ends a line, it is followed to lengths from 0.1 to 1,000.
    """
    basis, (matrix, limits), chains = directions(case), case.restrictions, 100
    here, found = np.tile(case.reward, (chains, 1)), []
    for number in range(-(-count // chains)):
        line = rng.normal(size=(chains, basis.shape[1])) @ basis.T
        line /= np.linalg.norm(line, axis=1, keepdims=True)
        rate, slack = line @ matrix.T, np.maximum(limits - here @ matrix.T, 0.0)
        far = 10 ** rng.uniform(-1, 3, size=(chains, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(np.abs(rate) > 1e-12, slack / np.abs(rate), np.inf)
        up = np.min(np.hstack([np.where(rate > 0, steps, np.inf), far]), axis=1)
        down = np.min(np.hstack([np.where(rate < 0, steps, np.inf), far]), axis=1)
        share = rng.random(chains) if number % 2 else rng.integers(0, 2, chains) / 1.0
        found.append(here + (share * (up + down) - down)[:, None] * line)
        inside = rng.uniform(0.01, 0.99, chains)
        here = here + (inside * (up + down) - down)[:, None] * line
        if number % 20 == 19 and not matrix.size:
            here = np.tile(case.reward, (chains, 1))
    return np.concatenate(found)[:count]


def bounds(problems: int, count: int, first: int) -> None:
    """Truth inside, members outside, widths, and seconds, over the first so many problems in which a direction matters."""
    inside = proved = outside = checked = experts = 0
    words: dict[str, int] = {}
    widths, seconds, many = [], 0.0, []
    seed, done = first, 0
    while done < problems:
        case = planted(seed)
        seed += 1
        start = time.process_time()
        found = case.bounds()
        spent = time.process_time() - start
        if not any(found.directions):
            continue
        done, seconds = done + 1, seconds + spent
        rng = np.random.default_rng(seed)
        rewards = members(case, count, rng)
        gaps = [
            np.abs(mh.soft_plan(case.mdp, r, g, lam).policy - expert.policy)[~case.mdp.terminal].max()
            for r in rewards[:: max(1, count // 5)]
            for g, lam, expert in zip(case.discounts, case.temperatures, case.problem.experts, strict=True)
        ]
        if max(gaps) > 1e-7:
            raise RuntimeError(f"problem {seed - 1}: a member does not explain the policies, by {max(gaps):.1e}")
        truths = []
        for k, (low, high) in enumerate(zip(found.low, found.high, strict=True)):
            truth = case.planned(case.reward[None], k)[0]
            truths.append(((truth >= low - 1e-9) & (truth <= high + 1e-9))[~case.after.terminal].all())
            words[found.status[k]] = words.get(found.status[k], 0) + 1
            experts += 1
            if found.proved[k]:
                proved += 1
                choices = case.planned(rewards, k)[:, ~case.after.terminal]
                wrong = (choices < low[~case.after.terminal] - 1e-9) | (choices > high[~case.after.terminal] + 1e-9)
                outside += int(wrong.any(axis=(1, 2)).sum())
                checked += len(rewards)
                if found.status[k] == "bounded":
                    attained = np.max(found.attained_high[k] - found.attained_low[k])
                    swept = np.max(np.ptp(choices, axis=0))
                    widths.append((np.max(high - low), attained, swept))
                    many.append(found.directions[k])
        inside += all(truths)
    print(f"bounds, {problems} problems from seed {first}, {experts} experts: {words}", flush=True)
    print(f"  truth inside in {inside} of {problems}; proved for {proved} experts: {outside} of {checked:,} members outside")
    if widths:
        widths_by, whose = np.array(widths).T, ("proved", "attained", "by random members")
        few = np.array(many) <= 3
        for name, which in (("up to 3 directions", few), ("more directions", ~few)):
            if which.any():
                medians = ", ".join(f"{np.median(w[which]):.3f} {by}" for w, by in zip(widths_by, whose, strict=True))
                excess = (widths_by[0] - widths_by[1])[which]
                print(f"  {name} ({which.sum()} experts): median of the widest range {medians};")
                print(f"    proved less attained: median {np.median(excess):.4f}, largest {excess.max():.3f}")
    print(f"  {seconds / problems:.2f} s CPU each")


def curve(tasks: int, seed: int) -> None:
    """The toy's curve of discounts."""
    domain = toy()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    names = problem.parameter_names
    for label, given in (("none", None), ("0 ≤ r ≤ 12", {"lower": 0, "upper": 12}), ("r rises", {"rising": names})):
        restrictions = read_restrictions(names, given)
        tried = discount_members(problem, restrictions=restrictions)
        widths = []
        for task in domain.tasks(tasks, seed):
            found = predicted_bounds(problem, *tried, mdp=task.mdp, restrictions=restrictions)
            widths.append((found.high - found.low).max(axis=(1, 2)))
        print(f"curve, {tasks} new tasks, restrictions {label}, {len(tried[0])} members: median width {np.median(widths):.2f}")
    tried = discount_members(problem)
    for gamma in (0.3, 0.95):
        found = predicted_bounds(problem, *tried, mdp=domain.mdp, new_discounts=np.full(3, gamma))
        width = (found.high - found.low)[:, 0]
        print(f"curve, discount {gamma} for everybody: widths {width.min():.4f} to {width.max():.2f}")


# Bonus and ban.


def planned_after(change: Change, reward: np.ndarray, discounts: Any) -> np.ndarray:
    """The choices `(K,S,A)` after a change, planned with the true reward."""
    expected = change.task.expected_reward(reward) + change.pay
    return np.array([mh.soft_plan(change.task, expected, float(gamma)).policy for gamma in discounts])


def identity(problems: int, first: int) -> None:
    """The largest difference of choices, by the number of experts and what `identify` says of the problem."""
    worst: dict[tuple[int, str], float] = {}
    counts, outside = Counter[tuple[int, str]](), []
    for seed in range(first, first + problems):
        rng = np.random.default_rng([seed, 25])
        states, actions, ends = int(rng.integers(3, 9)), int(rng.integers(2, 5)), bool(rng.random() < 0.5)
        mdp = partly_forced(rng, states, actions, int(rng.integers(1, states)) if seed % 3 else 0, ends)
        reward, experts = 2 * rng.normal(size=states), 1 + seed % 2
        discounts = rng.uniform(0, 0.97, experts)
        problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in discounts])
        pay = 2 * rng.normal(size=(states, actions)) * mdp.live
        banned = (rng.random(mdp.live.shape) < 0.3) & mdp.live
        banned[np.arange(states), rng.integers(0, actions, states)] = False
        found = mh.predict(problem, pay=pay, forbid=banned, discount=dict(zip(problem.names, discounts.tolist(), strict=True)))
        truth = planned_after(found.change, reward, discounts)
        said = mh.identify(problem)
        key = experts, said.status
        counts[key] += 1
        worst[key] = max(worst.get(key, 0.0), float(np.abs(found.after - truth).max()))
        if said.status == "set":
            swept = mh.predict(said, pay=pay, forbid=banned)
            outside.append(float(np.maximum(swept.low - truth, truth - swept.high).max()))
    print(f"identity, {problems} problems from seed {first}: largest difference of choices {max(worst.values()):.1e}")
    for (experts, status), count in sorted(counts.items()):
        who = "one expert" if experts == 1 else "two experts"
        print(f"  {who}, identify says {status}: {count} problems, {worst[experts, status]:.1e}")
    if outside:
        near = sum(gap <= 1e-4 for gap in outside)
        print(
            f"  discounts unknown, of a set: truth inside to 1e-4 in {near} of {len(outside)}, at most {max(outside):.1e} outside"
        )


# From tables.


def questions(domain: Domain) -> dict[str, dict[str, Any]]:
    """A bonus, a ban, and new transitions."""
    mdp, names = domain.mdp, domain.mdp.state_names
    best = names[int(np.argmax(np.where(mdp.entered, domain.reward, -np.inf)))]
    start = int(np.flatnonzero(~mdp.terminal)[0])
    first = mdp.action_names[int(np.argmax(domain.soft_experts()[-1][start]))]
    return {
        "bonus": {"pay": {best: 2.0}},
        "ban": {"forbid": {names[start]: first}},
        "new transitions": {"transitions": domain.tasks(1, 0)[0].mdp},
    }


def coverage(replications: int, episodes: int, draws: int, levels: list[float], first: int) -> None:
    """The share of choices whose interval holds the truth, by question and expert."""
    for name, domain in (("cliff", cliff()), ("big-small", big_small())):
        asked, experts = questions(domain), domain.soft_experts()
        labels = tuple(str(k) for k in range(len(experts)))
        changes = {question: read_change(domain.mdp, labels, **given) for question, given in asked.items()}
        truths = {question: planned_after(change, domain.reward, domain.soft_discounts) for question, change in changes.items()}
        shares: dict[tuple[float, str, int], list[float]] = {}
        known, start = Counter[str](), time.process_time()
        for seed in range(first, first + replications):
            table = mh.Demonstrations.simulate(domain.mdp, experts, episodes, seed=seed)
            solution = mh.solve(mh.Problem(domain.mdp, table), mh.MaximumLikelihood(1.0, starts=2))
            if solution.status != mh.Status.CONVERGED:
                known[str(solution.status)] += 1
                continue
            for (question, given), level in ((asking, level) for asking in asked.items() for level in levels):
                found = mh.predict(solution, **given, level=level, draws=draws, seed=seed)
                live = changes[question].task.live
                live = live & (live.sum(axis=1, keepdims=True) > 1)
                truth = truths[question]
                inside = (found.low - 1e-9 <= truth) & (truth <= found.high + 1e-9)
                for k, status in enumerate(found.status):
                    known[status] += 1
                    if status == "identified":
                        shares.setdefault((level, question, k), []).append(float(inside[k, live].mean()))
        seconds = (time.process_time() - start) / replications
        print(
            f"coverage, {name}, {replications} tables from seed {first}, {episodes} episodes, {draws} draws: {dict(known)},",
            end=" ",
        )
        print(f"{seconds:.2f} s CPU each; discounts {domain.soft_discounts}")
        for level in levels:
            every = [np.mean(shares[level, question, k], axis=0) for question in asked for k in range(len(experts))]
            print(f"  level {level:.4f}: {100 * np.mean(every):.1f}%, from {100 * min(every):.1f} to {100 * max(every):.1f}%")
            for question in asked:
                own = [np.array(shares[level, question, k]) for k in range(len(experts))]
                said = ", ".join(f"{100 * one.mean():.1f} ± {100 * one.std() / np.sqrt(one.size):.1f}" for one in own)
                print(f"    {question}: {said}%; all {100 * np.mean(own):.1f}%", flush=True)


# Speed, and the paper's error.


def people(persons: int) -> None:
    """Processor seconds of a prediction for each of many people."""
    task = mh.domains.space_adventure()
    simulated = task.persons(persons)
    start = time.process_time()
    problem = mh.Problem(task.mdp, simulated.demonstrations)
    solution = mh.solve(problem, mh.Population("~ group", persons=simulated.frame, known_reward=task.reward))
    print(f"people, {persons} persons, {task.mdp.n_states} states: fit {time.process_time() - start:.1f} s CPU")
    state = task.mdp.state_names[int(task.starts[0])]
    first, last = task.mdp.action_names[0], task.mdp.action_names[-1]
    changes: dict[str, dict[str, Any]] = {
        "bonus": {"pay": {(state, last): 5.0}},
        "ban": {"forbid": {state: first}},
        "discount .9": {"discount": 0.9},
    }
    for name, given in changes.items():
        start = time.process_time()
        found = mh.predict(solution, **given)
        spent = time.process_time() - start
        print(f"  {name}: {spent:.1f} s CPU, {dict(Counter(found.status))}", flush=True)


def large(side: int) -> None:
    """Processor seconds of a prediction against those of the plans in it, before and after, for each of two experts."""
    n, rng = side * side, np.random.default_rng(0)
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(side - 1, side - 1)])
    features = np.zeros((n, 2))
    features[-1, 0] = 1
    features[rng.integers(0, n, n // 30), 1] = 1
    theta, discounts = np.array([20.0, -1.0]), np.array([0.9, 0.98])
    given: dict[str, Any] = {"pay": {mdp.state_names[5 * side + 5]: 5.0}, "forbid": {mdp.state_names[1000]: "up"}}
    change, reward = read_change(mdp, ("0", "1"), **given), features @ theta
    start = time.process_time()
    before = [mh.soft_plan(mdp, reward, gamma).policy for gamma in discounts]
    first = time.process_time() - start
    start = time.process_time()
    truth = planned_after(change, reward, discounts)
    then = time.process_time() - start
    problem = mh.Problem(mdp, before, arrival_features=features)
    solved = mh.Solution(
        "MCE", mh.Status.CONVERGED, "", problem.names, discounts, theta, 0.0, 0.0, temperature=np.ones(2), problem=problem
    )
    print(f"large, {n:,} states: plans before {first:.1f} s CPU, after {then:.1f} s CPU")
    known = dict(zip(problem.names, discounts.tolist(), strict=True))
    sources: tuple[tuple[str, Any, dict[str, Any], float], ...] = (
        ("a solution", solved, {}, first + then),
        ("policies and discounts", problem, {"discount": known}, then),
    )
    for name, source, more, plans in sources:
        start = time.process_time()
        found = mh.predict(source, **given, **more)
        spent = time.process_time() - start
        gap = np.abs(found.after - truth).max()
        print(f"  of {name}: {spent:.1f} s CPU, {spent / plans:.2f} × its plans, choices differ by {gap:.1e}", flush=True)


def generalization(episodes: int, first: int) -> None:
    """The error of one fit on each domain."""
    for name, domain in (("cliff", cliff()), ("big-small", big_small())):
        table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes, seed=first)
        solution = mh.solve(mh.Problem(domain.mdp, table), mh.MaximumLikelihood(1.0, starts=2))
        start = time.process_time()
        found = mh.generalization_error(domain, solution)
        spent = time.process_time() - start
        print(f"generalization, {name}, {episodes} episodes, seed {first}: {found}, {spent:.1f} s CPU")


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    part = commands.add_parser("bounds")
    part.add_argument("--problems", type=int, default=100)
    part.add_argument("--members", dest="count", type=int, default=10_000)
    part.add_argument("--first", type=int, default=0, help="The seed of the first problem.")
    part = commands.add_parser("curve")
    part.add_argument("--tasks", type=int, default=20)
    part.add_argument("--seed", type=int, default=0)
    part = commands.add_parser("identity")
    part.add_argument("--problems", type=int, default=200)
    part.add_argument("--first", type=int, default=0, help="The seed of the first problem.")
    part = commands.add_parser("coverage")
    part.add_argument("--replications", type=int, default=200)
    part.add_argument("--episodes", type=int, default=1000)
    part.add_argument("--draws", type=int, default=200)
    part.add_argument("--levels", type=float, nargs="+", default=[0.95])
    part.add_argument("--first", type=int, default=0, help="The seed of the first table.")
    part = commands.add_parser("people")
    part.add_argument("--persons", type=int, default=285)
    part = commands.add_parser("large")
    part.add_argument("--side", type=int, default=317)
    part = commands.add_parser("generalization")
    part.add_argument("--episodes", type=int, default=1000)
    part.add_argument("--first", type=int, default=0, help="The seed of the table.")
    options = vars(parser.parse_args())
    run = {
        "bounds": bounds,
        "curve": curve,
        "identity": identity,
        "coverage": coverage,
        "people": people,
        "large": large,
        "generalization": generalization,
    }[options.pop("command")]
    run(**options)


if __name__ == "__main__":
    main()
