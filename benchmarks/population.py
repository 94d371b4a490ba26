"""Populations on the Space Adventure Task with simulated persons: coverage, size, shrinkage, intervals of persons,
accuracy, speed, the same persons under two conditions and predicted from one to the other, distributions without a shape, and one
person as decisions arrive.

    python benchmarks/population.py coverage [--studies 200] [--free]   # 40 persons, 250 decisions each
    python benchmarks/population.py size [--studies 200] [--free]       # the same without any effect
    python benchmarks/population.py shrinkage [--studies 20]            # 100 decisions each, against maximum likelihood
    python benchmarks/population.py persons [--mini-blocks 60]          # how often intervals of persons cover the truth
    python benchmarks/population.py accuracy [--studies 5]              # 7, 11 and 15 against 41 nodes
    python benchmarks/population.py speed [--free]                      # 285 persons, 420 decisions each
    python benchmarks/population.py conditions [--studies 200]          # 40 persons, 60 decisions under each of two conditions
    python benchmarks/population.py slopes [--studies 200]              # the same where the condition changes persons differently
    python benchmarks/population.py carrying [--studies 40]             # is a horizon the person's? 24 persons, 2 conditions
    python benchmarks/population.py many [--people 20000]               # maximum likelihood of persons one by one
    python benchmarks/population.py free [--people 20000]               # a free distribution, 2.5 decisions per mini-block
    python benchmarks/population.py types [--people 44]                 # how many types are found in 30 studies of each kind
    python benchmarks/population.py unnamed [--types 2] [--where cliff] # types of 2,000 episodes without a name, and how many
    python benchmarks/population.py track [--studies 20]                # a new person, 100 decisions one by one
    python benchmarks/population.py deviations [--spread 0.5]           # rewards that are only nearly shared

Each study has its own persons, ages and mini-blocks. With `--free` the reward is estimated from five features; otherwise the
points are known. `unnamed` has one to three types on the cliff, on a random task (`--where random`), on the cliff with its reward
(`known`), and as persons of about 30 decisions with temperatures of their own and a known reward (`persons` on the cliff,
`adventure` on the Space Adventure Task); `--wide` sets three types further apart, `--given` tells their number. `--first 200`
begins with study number 200, so that a long run can be made in parts. A person makes 2.5 decisions per mini-block.

*Conditions.* Logit discounts differ between persons by a standard deviation of 1.2, log temperatures by 0.4, as those of recorded
people do. The condition adds its effect to every logit discount; in `slopes` it adds besides a number drawn for each person, with
standard deviation 1. The same decisions are analysed as those of the same 40 persons, and as those of 80 different persons.

*Deviations.* Persons of two groups on a random task of 20 states, with a reward of `--features` features of their own around the
common one: 20 persons with 60 decisions each, or `--people` with `--decisions`. A spread of 0 gives the size of the test. The
same decisions are analysed with one reward for all.

*Carrying over.* Each of 24 persons has about 100 decisions under each condition. The horizon is the same in both, or drawn anew,
or that of everybody, or changes by one logit for everybody, or stays while all temperatures are half as high again.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from crowd import simulate_block
from scipy.special import expit, logit

import multihorizon as mh
from multihorizon.domains.people import SimulatedPersons
from multihorizon.parallel import limited
from multihorizon.problem import CountedTask

GROUP, AGE = 0.6, 0.2


def study(
    seed: int, persons: int, blocks: int, group: float, age: float, free: bool
) -> tuple[SimulatedPersons, mh.Problem, np.ndarray | None]:
    """The persons of a study, the problem, and the points where they are known."""
    task = mh.domains.space_adventure(blocks, seed=seed)
    people = task.persons(persons, seed=10_000 + seed, group_difference=group, age_slope=age)
    if free:
        return people, mh.Problem(task.mdp, people.demonstrations, features=task.features), None
    return people, mh.Problem(task.mdp, people.demonstrations), task.reward.T.ravel()


def seeds(args: argparse.Namespace) -> range:
    return range(args.first, args.first + args.studies)


def effects(args: argparse.Namespace, group: float, age: float) -> None:
    """How often intervals cover the truth, and how often tests reject."""
    truth = {"group[T.training]": group, "age": age / 10}
    covered, rejected, ends = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0), Counter[str]()
    errors: dict[str, list[float]] = {term: [] for term in truth}
    for seed in seeds(args):
        people, problem, points = study(seed, 40, 100, group, age, args.free)
        found = mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points))
        ends[str(found.status)] += 1
        for term, value in truth.items():
            effect = found.evidence["population"]["discount"][term]
            covered[term] += effect["interval"][0] <= value <= effect["interval"][1]
            rejected[term] += effect["p"] < 0.05
            errors[term].append((effect["estimate"] - value) / effect["standard_error"])
        done = seed - args.first + 1
        if done % 20 == 0 or done == args.studies:
            print(f"studies {args.first} to {seed}: covered {covered}, rejected {rejected}, {dict(ends)}", flush=True)
    for term, values in errors.items():
        mean, deviation = np.mean(values), np.std(values)
        print(f"{term}: error in standard errors has mean {mean:.3f} and standard deviation {deviation:.3f}")


def shrinkage(args: argparse.Namespace) -> None:
    """The root mean squared error of γ_i, shrunken and by maximum likelihood with own and with pooled temperatures."""
    errors, decisions = [], 0.0
    for seed in seeds(args):
        people, problem, points = study(seed, 40, 40, GROUP, AGE, False)
        alone = mh.solve(problem, mh.MaximumLikelihood(temperature="per_expert", known_reward=points))
        pooled = mh.solve(problem, mh.MaximumLikelihood(known_reward=points))
        shrunken = mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points))
        errors.append([np.mean((s.discounts - people.discounts) ** 2) for s in (alone, pooled, shrunken)])
        decisions = shrunken.evidence["decisions"] / 40
    root, each = np.sqrt(np.mean(errors, axis=0)), np.sqrt(errors)
    print(
        f"{len(errors)} studies, {decisions:.0f} decisions each: own temperatures {root[0]:.4f}, pooled {root[1]:.4f},", end=" "
    )
    print(
        f"population {root[2]:.4f}: {100 * (1 - root[2] / root[0]):.1f} and {100 * (1 - root[2] / root[1]):.1f}% below;", end=" "
    )
    print(f"single studies {np.round(100 * (1 - each[:, 2] / each[:, :2].min(axis=1))).astype(int).tolist()}")


def persons(args: argparse.Namespace) -> None:
    """How often 95% intervals of persons cover the truth, and the root mean squared error of γ_i."""
    covered, errors = [], []
    for seed in seeds(args):
        people, problem, points = study(seed, 40, args.mini_blocks, GROUP, AGE, args.free)
        found = mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points))
        low, high = found.confidence_intervals(0.95).T
        covered.append(np.mean((low <= people.discounts) & (people.discounts <= high)))
        errors.append(np.mean((found.discounts - people.discounts) ** 2))
    share, noise = 100 * np.mean(covered), 100 * np.std(covered) / np.sqrt(len(covered))
    print(f"{len(covered)} studies, {2.5 * args.mini_blocks:.0f} decisions each: intervals of persons cover", end=" ")
    print(f"{share:.1f} ± {noise:.1f}%, error {np.sqrt(np.mean(errors)):.4f}")


def accuracy(args: argparse.Namespace) -> None:
    """By how much of a standard error effects differ from those with 41 nodes."""
    for seed in seeds(args):
        people, problem, points = study(seed, 40, 100, GROUP, AGE, args.free)
        found = [
            mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points, nodes=n)).evidence["population"]
            for n in (7, 11, 15, 41)
        ]
        fine = found[-1]["discount"]
        moved = [
            max(abs(f["discount"][t]["estimate"] - fine[t]["estimate"]) / fine[t]["standard_error"] for t in fine) for f in found
        ]
        print(f"study {seed}: {moved[0]:.4f} with 7 nodes, {moved[1]:.4f} with 11, {moved[2]:.4f} with 15", flush=True)


def speed(args: argparse.Namespace) -> None:
    people, problem, points = study(args.first, 285, 168, GROUP, 0.0, args.free)
    begin = time.process_time()
    found = mh.solve(problem, mh.Population("~ group", people.frame, known_reward=points))
    seconds, decisions = time.process_time() - begin, found.evidence["decisions"] / 285
    print(f"{decisions:.0f} decisions each: {seconds:.0f} processor seconds, {found.status}")


def two_conditions(family: str, seed: int, effect: float, slope: float) -> tuple[mh.Problem, np.ndarray]:
    """Forty persons with 60 decisions under each of the conditions a and b, and the reward."""
    rng, starts = np.random.default_rng([seed, 24]), None
    eta = np.repeat(rng.normal(size=(40, 2)) * [1.2, 0.4], 2, axis=0)
    eta[1::2, 0] += effect + slope * rng.normal(size=40)
    if family == "space adventure":
        task = mh.domains.space_adventure(24, seed=seed)
        mdp, reward, starts, known = task.mdp, task.reward, task.starts, task.reward.T.ravel()
        eta += [1.8, np.log(6)]
    else:
        grid = mh.domains.big_small()
        mdp, reward, known = grid.mdp, grid.reward, grid.reward
        eta += [0.5, 0.0]
    policies = [mh.soft_plan(mdp, reward, float(expit(x)), float(np.exp(y))).policy for x, y in eta]
    episodes = 60 if starts is None else starts.size
    table = mh.Demonstrations.simulate(mdp, policies, episodes, seed, starts=starts)
    if starts is None:
        table = mh.Demonstrations.from_frame(table.to_frame().groupby("expert", sort=False).head(60))
    crowd = mh.Problem(mdp, table)
    frame = pd.DataFrame({"condition": np.tile(["a", "b"], 40)})
    return replace(crowd, names=tuple(map(str, range(40))), owner=np.arange(80) // 2, conditions=frame), known


def conditions(args: argparse.Namespace, slope: float) -> None:
    """How often the test of a condition rejects and its interval covers the truth, for the same and for different persons."""
    alike, apart, own = "~ condition + (1 | expert)", "different persons", "~ condition + (condition | expert)"
    sizes = {("space adventure", 0.0): [alike], ("space adventure", -0.8): [alike], ("space adventure", -0.6): [alike, apart]}
    sizes |= {("big-small", 0.0): [alike], ("big-small", -0.5): [alike, apart]}
    if slope:
        sizes = {(family, 0.0): [alike, own] for family in ("space adventure", "big-small")}
    for (family, effect), ways in sizes.items():
        found: dict[str, list[list[float]]] = {way: [] for way in ways}
        ends, begin = Counter[str](), time.process_time()
        for seed in seeds(args):
            crowd, known = two_conditions(family, seed, effect, slope)
            names = tuple(map(str, range(80)))
            persons = pd.DataFrame({"expert": names, "condition": crowd.conditions["condition"]})
            strangers = replace(crowd, names=names, owner=None, conditions=None)
            for way in ways:
                if way == apart:
                    solution = mh.solve(strangers, mh.Population("~ condition", persons, known_reward=known))
                else:
                    solution = mh.solve(crowd, mh.Population(way, known_reward=known))
                ends[str(solution.status)] += 1
                told = solution.evidence["population"]["discount"]["condition[T.b]"]
                low, high = told["interval"]
                error = (told["estimate"] - effect) / told["standard_error"]
                tested = solution.evidence["population"]["alike"] or {}
                differ = bool(tested) and tested["condition[T.b]"]["discount"] < 0.05
                found[way].append([told["p"] < 0.05, low <= effect <= high, error, told["standard_error"], differ])
        seconds = (time.process_time() - begin) / args.studies
        print(f"{family}, effect {effect}: {seconds:.1f} processor seconds per study, {dict(ends)}")
        for way, rows in found.items():
            rejected, covered, error, width, differ = np.mean(rows, axis=0)
            off = np.std(rows, axis=0)[2]
            print(
                f"    {way:36} rejects {100 * rejected:4.1f}%, covers {100 * covered:4.1f}%, standard error {width:.3f},",
                f"error in standard errors {error:.2f} ± {off:.2f}, says that changes differ {100 * differ:4.1f}%",
                flush=True,
            )


def carrying(args: argparse.Namespace) -> None:
    """How often what is kept and lost is clear, and which verdicts are given."""
    kinds = ("the same in both", "drawn anew", "nobody differs", "changed by one logit", "higher temperature")
    for kind in kinds:
        answers, rows, begin = Counter[str](), [], time.process_time()
        for seed in seeds(args):
            task, rng = mh.domains.space_adventure(20, seed=seed), np.random.default_rng([seed, 5])
            x, other = 2.2 + 1.3 * rng.normal(size=(2, 24))
            y = 1.7 + 0.25 * rng.normal(size=24)
            logits = {
                "drawn anew": (x, other),
                "nobody differs": np.full((2, 24), 2.2),
                "changed by one logit": (x + 0.5, x - 0.5),
            }
            frames = []
            for number, own in enumerate(logits.get(kind, (x, x))):
                hotter = np.log(1.5) * number * (kind == "higher temperature")
                pairs = zip(expit(own), np.exp(y + hotter), strict=True)
                policies = [mh.soft_plan(task.mdp, task.reward, float(g), float(t)).policy for g, t in pairs]
                drawn = mh.Demonstrations.simulate(task.mdp, policies, 40, seed=2 * seed + number).to_frame()
                names = "ab"[number] + drawn["episode"].astype(str)
                frames.append(drawn.assign(episode=names, condition="ab"[number]))
            table = mh.Demonstrations.from_frame(pd.concat(frames), conditions=["condition"])
            found = mh.carry_over(mh.Problem(task.mdp, table), table, "condition", known_reward=task.reward)
            answers[found.answer.answer] += 1
            rows.append([found.kept.estimate, found.kept.low > 0, found.kept.high < 0])
        seconds = (time.process_time() - begin) / args.studies
        print(f"{kind}: {len(table) / 48:.0f} decisions each, {seconds:.1f} processor seconds per study, {dict(answers)}")
        mean, above, below = np.mean(rows, axis=0)
        print(f"    kept {mean:7.4f}, above 0 in {100 * above:3.0f}%, below in {100 * below:3.0f}%", flush=True)


def free(args: argparse.Namespace) -> None:
    """Processor seconds of the free distribution beside those of the normal one, its gap, and the memory."""
    task = mh.domains.space_adventure(args.mini_blocks)
    size, parts = task.mdp.n_actions * task.mdp.n_states, []
    for first in range(0, args.people, 10_000):
        block = simulate_block(task, first, min(10_000, args.people - first), 0.0, args.first)
        cells = block.action * task.mdp.n_states + block.state
        parts.append(sp.csr_array((np.ones(cells.size), (block.person, cells)), shape=(block.discounts.size, size)))
    names = tuple(map(str, range(args.people)))
    crowd = mh.Problem.of_tasks(
        names, task.mdp.state_names, (CountedTask(task.mdp, sp.csr_array(sp.vstack(parts, format="csr"))),)
    )
    seconds, points = [], task.reward.T.ravel()
    for distribution in ("normal", "free"):
        begin = time.process_time()
        found = mh.solve(crowd, mh.Population(known_reward=points, distribution=distribution))
        seconds.append(time.process_time() - begin)
    told = found.evidence["population"]["distribution"]["everyone"]
    gain = told["log_likelihood"] - told["normal_log_likelihood"]
    print(
        f"{args.people} persons, {found.evidence['decisions'] / args.people:.0f} decisions each: {seconds[0]:.1f} processor",
        end=" ",
    )
    print(f"seconds, {seconds[1]:.1f} with a free distribution; {len(told['weights'])} points of {told['nodes']} nodes,", end=" ")
    print(
        f"gap {told['gap']:.2g}, last refinement {told['refinement']['gain']:.2g} ({told['refinement']['persons']} persons),",
        end=" ",
    )
    print(f"{gain:.1f} above the normal one, types: {len(told['types'])},", end=" ")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB at most")


def types(args: argparse.Namespace) -> None:
    """How many clear types are found in populations that are normal, leaning, or of two types."""
    kinds = {
        "normal, standard deviation 0.8": lambda rng, n: rng.normal(1.0, 0.8, n),
        "normal, standard deviation 1.5": lambda rng, n: rng.normal(1.0, 1.5, n),
        "leaning to the right": lambda rng, n: rng.exponential(1.2, n) - 1,
        "two types, 0.2 and 0.8": lambda rng, n: logit(rng.choice([0.2, 0.8], n)),
        "two types that vary by 0.4": lambda rng, n: logit(rng.choice([0.2, 0.8], n)) + rng.normal(0.0, 0.4, n),
    }
    for kind, draw in kinds.items():
        counted = Counter[int]()
        for seed in range(args.first, args.first + args.studies):
            rng, task = np.random.default_rng(seed), mh.domains.space_adventure(args.mini_blocks, seed=seed)
            people = task.persons(
                args.people,
                seed,
                discounts=expit(draw(rng, args.people)),
                temperatures=3 * np.exp(0.3 * rng.normal(size=args.people)),
            )
            problem = mh.Problem(task.mdp, people.demonstrations)
            found = mh.solve(problem, mh.Population(known_reward=task.reward.T.ravel(), distribution="free"))
            counted[len(found.evidence["population"]["distribution"]["everyone"]["types"])] += 1
        print(f"{args.people} persons, {kind}: types found {dict(sorted(counted.items()))}", flush=True)


def unnamed(args: argparse.Namespace) -> None:
    """How many types are found, and how far their discounts are from the truth where it is as many as there are."""
    middle = (0.1, 0.5, 0.9) if args.wide else (0.2, 0.5, 0.8)
    discounts = np.array({1: (0.5,), 2: (0.2, 0.8), 3: middle}[args.types])
    counted, close, covered, seconds = Counter[int](), 0, [], []
    for seed in seeds(args):
        cliff, options = mh.domains.cliff(), {}
        mdp, reward, lam, units = cliff.mdp, cliff.reward, np.ones(args.types), 2000
        if args.where == "random":
            mdp = mh.domains.random_mdp(12, 3, branching=3, n_terminal=2, seed=seed)
            reward = np.random.default_rng(seed).normal(0.0, 5.0, 12)
        elif args.where == "adventure":
            task = mh.domains.space_adventure(12, seed=seed)
            mdp, reward, lam, units = task.mdp, task.reward, 3 * np.ones(args.types), 120
        elif args.where == "persons":
            lam, units = np.geomspace(1.0, 3.0, args.types), 120
        share = np.bincount(np.arange(units) % args.types)
        policies = [mh.soft_plan(mdp, reward, g, t).policy for g, t in zip(discounts, lam, strict=True)]
        if args.where in ("persons", "adventure"):
            each = np.repeat(np.arange(args.types), share)
            number = 12 if args.where == "adventure" else 3
            table = mh.Demonstrations.simulate(mdp, [policies[k] for k in each], number, seed=seed)
        else:
            drawn = [
                mh.Demonstrations.simulate(mdp, [policy], int(size), seed=100 * seed + k, names=[str(k)]).to_frame()
                for k, (policy, size) in enumerate(zip(policies, share, strict=True))
            ]
            table = mh.Demonstrations.from_frame(pd.concat(drawn)).unnamed()
        if args.where in ("known", "persons", "adventure"):
            options["known_reward"] = reward.T.ravel() if reward.ndim == 2 else reward
        begin = time.process_time()
        options["types"] = args.types if args.given else None
        found = mh.solve(mh.Problem(mdp, table), mh.Population(distribution="types", **options), seed=seed)
        seconds.append(time.process_time() - begin)
        types = found.evidence["population"]["types"]
        counted[types["number"]] += 1
        error = np.full(args.types, np.nan)
        if types["number"] == args.types and all(types["identified"]):
            error = np.array(types["discounts"]) - discounts
            low, high = np.array(types["intervals"]).T
            covered += list((low <= discounts) & (discounts <= high))
        close += bool(np.abs(error).max() <= 0.08)
        tests = [(round(row["statistic"], 1), round(row["p"], 3), row["simulations"]) for row in types["tests"] if row["p"]]
        print(f"study {seed}: {types['number']} types, errors {np.round(error, 3)}, {found.status}, tests {tests}", end=", ")
        print(f"{len(table) / units:.1f} decisions each, {seconds[-1]:.0f} s", flush=True)
    print(f"{args.where}, discounts {discounts.tolist()}: numbers of types {dict(sorted(counted.items()))},", end=" ")
    print(
        f"all errors at most .08 in {close} of {args.studies}, intervals cover {100 * np.mean(covered or [np.nan]):.0f}%,",
        end=" ",
    )
    print(f"{np.mean(seconds):.0f} processor seconds")


def many(args: argparse.Namespace) -> None:
    """Processor seconds of maximum likelihood and of profile intervals, 100 decisions each: one by one, and all together."""
    times: dict[tuple[str, int], float] = {}
    for road, sizes in (("all together", (200, 400, 800)), ("one by one", (200, 400, 800, 5000, args.people))):
        for people in sizes:
            _, problem, points = study(0, people, 40, GROUP, AGE, False)
            joint = 0 if road == "one by one" else people + 1
            begin = time.process_time()
            with limited(joint=joint):
                found = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=points))
            middle = time.process_time()
            found.confidence_intervals(0.95)
            times[road, people] = time.process_time() - begin
            print(
                f"{people:,} persons, {road}: {middle - begin:.2f} s, intervals {times[road, people] - middle + begin:.2f} s, "
                f"log-likelihood {found.objective:.6f}, {found.status}",
                flush=True,
            )
    ratio = times["all together", 800] / times["one by one", 800]
    each = times["all together", 800] / 800 / (times["one by one", args.people] / args.people)
    print(f"at 800 persons {ratio:.0f} times as fast; per person at {args.people:,} persons {each:.0f} times")


def track(args: argparse.Namespace) -> None:
    """Processor time of an update, and how far the posterior is from the one of all decisions at once in another order."""
    people, problem, points = study(args.first, 60, 40, GROUP, 0.0, args.free)
    found = mh.solve(problem, mh.Population("~ group", people.frame, known_reward=points))
    begin = time.process_time()
    somebody = mh.track(found, {"group": "control"})
    print(f"first table {time.process_time() - begin:.2f} s", end=", ")
    task, seconds, placed, apart = mh.domains.space_adventure(40, seed=args.first), [], [], []
    for seed in seeds(args):
        policy = mh.soft_plan(task.mdp, task.reward, 0.9, 5.0).policy
        table = mh.Demonstrations.simulate(task.mdp, [policy], 40, seed=seed).to_frame()
        seen = list(table[["state", "action"]].itertuples(index=False))[:100]
        alone, at_once = somebody.another({"group": "control"}), somebody.another({"group": "control"})
        for state, action in seen:
            begin = time.process_time()
            now = alone.update(state, action)
            (placed if now.placed else seconds).append(time.process_time() - begin)
        whole = at_once.update_many(reversed(seen))
        if alone._window is at_once._window:  # the same nodes
            apart += [abs(now.logit_discount - whole.logit_discount), abs(now.log_temperature - whole.log_temperature)]
    low, middle, high = 1e6 * np.quantile(seconds, [0.05, 0.5, 0.99])
    print(f"an update {middle:.0f} microseconds (5% below {low:.0f}, 1% above {high:.0f})", end=", ")
    print(f"{len(placed)} of {len(placed) + len(seconds)} updates placed nodes anew in {np.mean(placed or [0]):.2f} s,", end=" ")
    print(f"largest difference to all at once {max(apart):.1e} ({len(apart) // 2} persons on the same nodes)")


def deviating(seed: int, people: int, decisions: int, features: int, spread: float) -> dict[str, Any]:
    """Persons of two groups, each with a reward of their own: the problem, who is in which group, and the truth."""
    rng, states, actions = np.random.default_rng([seed, 26]), 20, 4
    mdp = mh.domains.random_mdp(states, actions, branching=4, n_terminal=1, seed=7)
    of_state = np.random.default_rng(7).uniform(-1, 1, size=(states, features))
    matrix = mdp.stacked @ of_state
    sizes = np.abs(matrix).max(axis=0)
    common = np.array([2.0, -1.6, 1.2, -1.0, 1.8])[:features] / sizes
    own = common + spread * rng.normal(size=(people, features)) / sizes
    eta = rng.normal(size=(people, 2)) * [1.0, 0.3] + [0.8, 0.0]
    eta[1::2, 0] += GROUP
    pairs = zip(own, expit(eta[:, 0]), np.exp(eta[:, 1]), strict=True)
    policies = [mh.soft_plan(mdp, (matrix @ r).reshape(actions, states).T, float(g), float(t)).policy for r, g, t in pairs]
    drawn = mh.Demonstrations.simulate(mdp, policies, decisions, seed).to_frame()
    table = mh.Demonstrations.from_frame(drawn.groupby("expert", sort=False).head(decisions))
    problem = mh.Problem(mdp, table, features=matrix)
    order = [int(name) for name in problem.names]
    frame = pd.DataFrame({"expert": problem.names, "group": [("a", "b")[i % 2] for i in order]})
    truth = {"discounts": expit(eta[order, 0]), "deviations": (own - common)[order]}
    return {"problem": problem, "frame": frame, **truth}


def deviations(args: argparse.Namespace) -> None:
    """How often τ = 0 is rejected, what τ is found, and how often intervals cover the truth, with deviations and without."""
    people, rows, begin = args.people if args.people < 20_000 else 20, [], time.process_time()
    for seed in seeds(args):
        drawn = deviating(seed, people, args.decisions, args.features, args.spread)
        wanted = mh.Population("~ group", drawn["frame"], deviations="estimated")
        found = mh.solve(drawn["problem"], wanted)
        told, kept = found.evidence["deviations"], found
        if told is None:
            print(f"study {seed}: {found.status}")
            continue
        if not told.spread and args.spread:  # what deviations would have said
            kept = mh.solve(drawn["problem"], replace(wanted, deviations=max(told.estimated, 1e-3)))
        shared = mh.solve(drawn["problem"], replace(wanted, deviations=0.0)) if told.spread else found
        row = [told.p_shared < 0.05, told.estimated, told.interval[0] <= args.spread <= told.interval[1]]
        for answer in (found, shared):
            low, high = answer.confidence_intervals(0.95).T
            effect = answer.evidence["population"]["discount"]["group[T.b]"]["interval"]
            row += [np.mean((low <= drawn["discounts"]) & (drawn["discounts"] <= high)), effect[0] <= GROUP <= effect[1]]
        own = kept.evidence["deviations"]
        errors = np.abs(own.values - drawn["deviations"]) <= 1.96 * own.errors
        rows.append([*row, errors.mean() if args.spread else np.nan])
        if len(rows) % 5 == 0 or seed == seeds(args)[-1]:
            mean, seconds = np.mean(rows, axis=0), (time.process_time() - begin) / len(rows)
            print(
                f"{len(rows)} studies, {seconds:.1f} processor seconds each: rejected {100 * mean[0]:.0f}%,",
                f"spread {mean[1]:.3f} ± {np.std(rows, axis=0)[1]:.3f}, its interval covers {100 * mean[2]:.0f}%;",
                f"covered with deviations: persons {100 * mean[3]:.1f}%, group {100 * mean[4]:.0f}%; with one reward: persons",
                f"{100 * mean[5]:.1f}%, group {100 * mean[6]:.0f}%; persons' deviations {100 * mean[7]:.1f}%",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", type=int, choices=[1, 2, 3], default=2)
    parser.add_argument("--where", choices=["cliff", "random", "known", "persons", "adventure"], default="cliff")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--given", action="store_true")
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mini-blocks", type=int, default=60)
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--decisions", type=int, default=60)
    parser.add_argument("--features", type=int, choices=[1, 2, 3, 4, 5], default=2)
    parser.add_argument("--spread", type=float, default=0.0)
    runs = {"coverage": lambda a: effects(a, GROUP, AGE), "size": lambda a: effects(a, 0.0, 0.0)}
    runs |= {
        "shrinkage": shrinkage,
        "deviations": deviations,
        "persons": persons,
        "accuracy": accuracy,
        "speed": speed,
        "conditions": lambda a: conditions(a, 0.0),
        "slopes": lambda a: conditions(a, 1.0),
        "carrying": carrying,
        "many": many,
        "free": free,
        "types": types,
        "unnamed": unnamed,
        "track": track,
    }
    parser.add_argument("what", choices=list(runs))
    given = parser.parse_args()
    runs[given.what](given)
