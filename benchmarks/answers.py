"""The answers before and after a change of the code: every number of the main fits, written once and compared later.

    python benchmarks/answers.py record FILE [--people FOLDER] [--buses FOLDER] [--only CASE …]
    python benchmarks/answers.py compare FILE [--people FOLDER] [--buses FOLDER] [--only CASE …] [--show 5]

`record` runs the cases and writes `{"case/quantity": number, list or string}`. `compare` runs them again and prints for each case
the largest relative difference, `|a − b| / max(1, |a|)`, with the quantities that differ most. It ends with exit code 1 where a
difference is above 1e-8, where a word such as a status changed, or where a quantity is gone. A quantity that is new is mentioned.

Only public names and the program itself are used, so the same script runs on old and new code: set PYTHONPATH to the `src` of
either. All cases take about two minutes of one processor; set OMP_NUM_THREADS=1, since threads change the last digits. Sentences,
seconds and counts of iterations are no answers and are left out.

The people are those of `recorded_people.py`; the buses are Rust's (1987), a folder whose `decisions.csv` has the odometer in bins
of 5,000 miles as state. Without a folder its case is left out, in `compare` too.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import multihorizon as mh

Answers = Iterator[tuple[str, Any]]

#: What a difference may be.
TOLERANCE = 1e-8
#: Words that are answers; all others are sentences, which may be put better.
WORDS = {"status", "statuses", "experts", "groups", "name", "at_limit", "undecided"}
#: What is not an answer.
LEFT_OUT = {"seconds", "version", "options", "iterations", "evaluations", "steps", "starts", "jobs", "seed", "nodes"}


# What is written.


def leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers in a value under flat names: arrays as lists, mappings by their keys, and words where they are answers."""
    last = name.rsplit("/", 1)[-1]
    if last in LEFT_OUT or value is None:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(f"{name}/{key}", item)
    elif isinstance(value, str | Enum):
        if last in WORDS:
            yield name, str(value.value if isinstance(value, Enum) else value)
    elif isinstance(value, bool | int | float | np.generic) and not isinstance(value, np.str_):
        yield name, plain(float(value))
    elif isinstance(value, pd.DataFrame):
        for column in value:
            yield from leaves(f"{name}/{column}", value[column].to_numpy())
    elif isinstance(value, Iterable):
        items = list(value)
        if numeric(items):
            yield name, [plain(float(number)) for number in np.asarray(items, dtype=float).ravel()]
        elif last in WORDS:
            yield name, json.dumps(items, default=list)
        else:
            for place, item in enumerate(items):
                yield from leaves(f"{name}/{place}", item)
    elif hasattr(value, "to_dict"):
        yield from leaves(name, value.to_dict())


def numeric(items: list[Any]) -> bool:
    """Whether a list holds numbers only, in rows of equal length."""
    try:
        return np.asarray(items).dtype.kind in "bifu"
    except ValueError:
        return False


def plain(number: float) -> float | str:
    """A number as JSON has it; what JSON does not have, as a word."""
    return number if math.isfinite(number) else str(number)


# What is asked of each result.


def of_solution(name: str, found: mh.Solution, intervals: bool = False) -> Answers:
    """The parts of a solution, with 95% intervals where they are asked for."""
    for part in ("status", "experts", "discounts", "reward", "temperature", "objective", "standard_errors", "evidence"):
        yield f"{name}/{part}", getattr(found, part, None)
    if intervals:
        yield f"{name}/intervals", found.confidence_intervals(0.95)


def of_identification(name: str, found: mh.Identification) -> Answers:
    """The parts of an identification."""
    for part in ("status", "dimension", "discounts", "intervals", "reward", "residual", "singular_values", "temperature"):
        yield f"{name}/{part}", getattr(found, part)
    yield f"{name}/reward_identified", found.reward_identified


def of_test(name: str, found: Any) -> Answers:
    """The parts of a test of one discount for several experts."""
    for part in ("experts", "discount", "statistic", "degrees", "p_value", "adjusted"):
        yield f"{name}/{part}", getattr(found, part)


def of_goals(name: str, found: mh.Goals) -> Answers:
    """Who shares a goal with whom, and the answer of each group."""
    yield f"{name}/groups", found.groups
    yield f"{name}/discounts", found.discounts
    for place, group in enumerate(found.solutions):
        if isinstance(group, mh.Solution):
            yield from of_solution(f"{name}/{place}", group)
        else:
            yield from of_identification(f"{name}/{place}", group)
    if getattr(found, "test", None) is not None:
        yield f"{name}/test", [found.test.statistic, found.test.p_value]
        yield f"{name}/memberships", found.memberships
        yield f"{name}/sharing", found.sharing


def of_program(name: str, *arguments: object) -> Answers:
    """The `result.json` that the program writes."""
    with tempfile.TemporaryDirectory() as folder:
        program("fit", *arguments, "--out", folder)
        yield name, json.loads((Path(folder) / "result.json").read_text())


def program(*arguments: object) -> None:
    """Run the program, and say what it said where it fails."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "multihorizon", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")


def simulated(domain: mh.domains.Domain, episodes: int, seed: int = 0) -> mh.Demonstrations:
    """Decisions of the experts of a domain."""
    return mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes, seed=seed, names=["near", "middle", "far"])


# The cases.


def demo(_: argparse.Namespace) -> Answers:
    """The decisions of `multihorizon demo`, through the program: known transitions, estimated ones, and few options more."""
    with tempfile.TemporaryDirectory() as folder:
        program("demo", "--out", folder)
        table, task = Path(folder) / "decisions.csv", Path(folder) / "meadow.npz"
        yield "written", json.loads((Path(folder) / "result.json").read_text())
        yield from of_program("known", table, "--transitions", task)
        yield from of_program("estimated", table)
        yield from of_program("per_expert", table, "--transitions", task, "--temperature", "per-expert", "--quick")
        yield from of_program("cut_off", table, "--cut-off", "--quick")
        yield from of_program("given", table, "--transitions", task, "--discount", "Ann=0.5", "--ridge", "0.1", "--quick")
        mdp, decisions = mh.MDP.from_npz(task), mh.Demonstrations.from_csv(table)
        yield from of_solution("solved", mh.solve(mh.Problem(mdp, decisions), mh.MaximumLikelihood()), intervals=True)


def people(given: argparse.Namespace) -> Answers:
    """The recorded people with the points that they were told: each alone, as a population, and with other look-ahead."""
    mdp = task_of(pd.read_csv(given.people / "transitions.csv"))
    points = pd.read_csv(given.people / "features_points.csv").set_index(["action", "state"])["points"]
    cells = pd.MultiIndex.from_product([mdp.action_names, mdp.state_names])
    known = points.reindex(cells, fill_value=0.0).to_numpy()
    table = mh.Demonstrations.from_csv(given.people / "decisions.csv")
    problem = mh.Problem(mdp, table)
    alone = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=known))
    yield from of_solution("alone", alone, intervals=True)
    yield from of_test("shared", mh.shared_discount_test(alone))
    persons = pd.read_csv(given.people / "persons.csv", dtype={"expert": str})
    yield from of_solution("population", mh.solve(problem, mh.Population("~ gender + age", persons, known_reward=known)))
    tied = mh.Problem(mdp, table, features=known[:, None], feature_names=["points"])
    for family in (mh.Hyperbolic(), mh.Depth()):
        yield from of_solution(type(family).__name__, mh.solve(tied, mh.MaximumLikelihood("shared", lookahead=family)))


def task_of(rows: pd.DataFrame) -> mh.MDP:
    """The task of a table `state, action, next_state, probability`; a state without a row of its own ends an episode."""
    states, actions = sorted({*rows["state"], *rows["next_state"]}), sorted(set(rows["action"]))
    at, by = {name: place for place, name in enumerate(states)}, {name: place for place, name in enumerate(actions)}
    moves = np.zeros((len(actions), len(states), len(states)))
    np.add.at(moves, (rows["action"].map(by), rows["state"].map(at), rows["next_state"].map(at)), rows["probability"])
    ends = [at[name] for name in states if name not in set(rows["state"])]
    moves[:, ends, ends] = 1.0
    return mh.MDP(moves, terminal=ends, state_names=states, action_names=actions)


def buses(given: argparse.Namespace) -> Answers:
    """The buses of group 4 and those of groups 3 and 4 with the published moves, at known discounts and with free ones."""
    frame = pd.read_csv(given.buses / "decisions.csv", dtype={"state": str, "episode": str})
    states, mileage = 90, np.arange(90)
    moves = np.zeros((2, states, states))
    for more, probability in enumerate((0.3919, 0.5953, 0.0128)):
        np.add.at(moves[0], (mileage, np.minimum(mileage + more, states - 1)), probability)
        moves[1, :, more] += probability
    mdp = mh.MDP(moves, initial=np.eye(states)[0], state_names=list(map(str, mileage)), action_names=["keep", "replace"])
    costs = np.zeros((2 * states, 2))
    costs[:states, 0], costs[states:, 1] = -0.001 * mileage, -1.0
    for name, groups in (("group 4", ["group 4"]), ("groups 3 and 4", ["group 3", "group 4"])):
        table = mh.Demonstrations.from_frame(frame[frame["expert"].isin(groups)], cut_off=True)
        problem = mh.Problem(mdp, table, features=costs, feature_names=["wear", "replacement"])
        for discount in (0.9999, 0.0):
            solver = mh.MaximumLikelihood(1.0, discounts=discount)
            yield from of_solution(f"{name}/{discount}", mh.solve(problem, solver), intervals=True)
        yield from of_solution(f"{name}/free", mh.solve(problem, mh.MaximumLikelihood(1.0)), intervals=True)


def exact(domain: mh.domains.Domain) -> Answers:
    """What exact policies and best actions of a domain say: identification, closed form, entropy and linear programs."""
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    yield from of_identification("identify", mh.identify(problem))
    yield from of_identification("identify per expert", mh.identify(problem, temperature="per_expert"))
    yield from of_identification("identify two", mh.identify(mh.Problem(domain.mdp, domain.soft_experts()[:2])))
    yield from of_solution("ClosedForm", mh.solve(problem, mh.ClosedForm()))
    yield from of_solution("MPMCE", mh.solve(problem, mh.MPMCE()))
    yield from of_solution("MPML", mh.solve(problem, mh.MPML()))
    yield from of_solution("MCE", mh.solve(mh.Problem(domain.mdp, domain.soft_experts()[:1]), mh.MCE(domain.soft_discounts[0])))
    yield from of_goals("goals", mh.goals(problem))
    best = mh.Problem(domain.mdp, domain.hard_experts())
    yield from of_solution("MPLP", mh.solve(best, mh.MPLP(reward_bound=20.0)))
    yield from of_solution("MPLP with a penalty", mh.solve(best, mh.MPLP(l1=0.1, reward_bound=20.0)))
    yield from of_solution("MPLP Bayesian", mh.solve(best, mh.MPLP(reward_bound=20.0, search=mh.Bayesian(12, 6))))
    yield from of_solution("NaiveLP", mh.solve(best, mh.NaiveLP(reward_bound=20.0, search=mh.Grid(0.25, jobs=1))))
    one = mh.Problem(domain.mdp, domain.hard_experts()[:1])
    yield from of_solution("LPIRL", mh.solve(one, mh.LPIRL(domain.hard_discounts[0], reward_bound=20.0)))
    for place, (low, high, actions) in enumerate(mh.discount_intervals(domain.mdp, domain.reward)):
        yield f"discount_intervals/{place}", [low, high, *np.asarray(actions, dtype=float).ravel()]
    for name, planned in (("plan", mh.plan), ("soft_plan", mh.soft_plan)):
        found = planned(domain.mdp, domain.reward, 0.9)
        yield name, {"policy": found.policy, "values": found.values, "q": found.q}
    error = mh.generalization_error(domain, domain.reward + np.sin(np.arange(domain.mdp.n_states)), tasks=5)
    yield "generalization_error", [error.mean, error.std, *error.values]


def toy(_: argparse.Namespace) -> Answers:
    """The toy domain, exactly known and as simulated decisions."""
    yield from exact(mh.domains.toy())
    domain = mh.domains.toy()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 500, seed=1)
    yield from of_solution("decisions", mh.solve(mh.Problem(domain.mdp, table), mh.MaximumLikelihood()), intervals=True)
    rank = mh.theory.rank_test(mh.Problem(domain.mdp, domain.soft_experts()), domain.soft_discounts)
    yield "rank_test", {part: getattr(rank, part, None) for part in ("rank", "residual", "feasible")}


def cliff(_: argparse.Namespace) -> Answers:
    """The cliff, exactly known."""
    yield from exact(mh.domains.cliff())


def big_small(_: argparse.Namespace) -> Answers:
    """Big-small, exactly known."""
    yield from exact(mh.domains.big_small())


def decisions(_: argparse.Namespace) -> Answers:
    """Simulated decisions on the cliff: the fit in many ways, and every question that is asked of it."""
    domain = mh.domains.cliff()
    table = simulated(domain, 200)
    problem = mh.Problem(domain.mdp, table)
    found = mh.solve(problem, mh.MaximumLikelihood())
    yield from of_solution("fit", found, intervals=True)
    yield from of_test("shared", mh.shared_discount_test(found))
    for place, test in enumerate(mh.pairwise_tests(found)):
        yield from of_test(f"pairs/{place}", test)
    for kind in ("parametric", "episodes"):
        drawn = mh.bootstrap(found, draws=4, kind=kind, demonstrations=table, jobs=1)
        yield f"bootstrap/{kind}", {"discounts": drawn.discounts, "rewards": drawn.rewards, "failed": drawn.failed}
    yield "check_model", mh.check_model(found, table).to_dict()
    solvers = {
        "per expert": mh.MaximumLikelihood("per_expert"),
        "shared temperature": mh.MaximumLikelihood("shared"),
        "one group": mh.MaximumLikelihood(groups={"near": "a", "middle": "b", "far": "b"}),
        "one known": mh.MaximumLikelihood(discounts={"near": 0.3}),
        "ridge": mh.MaximumLikelihood(ridge=0.5),
        "known reward": mh.MaximumLikelihood("per_expert", known_reward=domain.reward),
    }
    for name, solver in solvers.items():
        yield from of_solution(name, mh.solve(problem, solver), intervals=True)
    features = np.stack([np.arange(domain.mdp.n_states) % width == 0 for width in (2, 3, 5)], axis=1).astype(float)
    tied = mh.Problem(domain.mdp, table, features=domain.mdp.stacked @ features, feature_names=["a", "b", "c"])
    yield from of_solution("features", mh.solve(tied, mh.MaximumLikelihood()), intervals=True)
    estimated = mh.estimate_mdp(table)
    yield "estimated/transitions", estimated.to_array()
    yield from of_solution("estimated", mh.solve(mh.Problem(estimated, table), mh.MaximumLikelihood()), intervals=True)
    other = mh.domains.cliff(slip=0.2)
    joined = mh.Problem.join(problem, mh.Problem(other.mdp, simulated(other, 100, seed=1)))
    yield from of_solution("joined", mh.solve(joined, mh.MaximumLikelihood()), intervals=True)
    yield from of_identification("identified", mh.identify(problem))


def wants(_: argparse.Namespace) -> Answers:
    """Four experts, two of whom want another thing: goals of exact policies and of decisions."""
    domain = mh.domains.big_small()
    rewards = (domain.reward, domain.reward, domain.reward[::-1], domain.reward[::-1])
    discounts = (0.4, 0.8, 0.5, 0.9)
    policies = [mh.soft_plan(domain.mdp, r, g).policy for r, g in zip(rewards, discounts, strict=True)]
    names = ["a", "b", "c", "d"]
    yield from of_goals("policies", mh.goals(mh.Problem(domain.mdp, policies, names=names)))
    table = mh.Demonstrations.simulate(domain.mdp, policies, 200, names=names)
    yield from of_goals("decisions", mh.goals(mh.Problem(domain.mdp, table), draws=99))


def space(_: argparse.Namespace) -> Answers:
    """A dozen simulated persons in the Space Adventure Task: population, families of look-ahead, and a study of recovery."""
    task = mh.domains.space_adventure(mini_blocks=40, seed=0)
    drawn = task.persons(12, seed=0)
    problem = mh.Problem(task.mdp, drawn.demonstrations)
    yield "persons", {"discounts": drawn.discounts, "temperatures": drawn.temperatures}
    alone = mh.MaximumLikelihood("per_expert", known_reward=task.reward)
    yield "families", mh.compare_lookahead(problem, demonstrations=drawn.demonstrations, solver=alone).to_dict()
    group = mh.Population("~ group", drawn.frame, known_reward=task.reward)
    yield from of_solution("population", mh.solve(problem, group))
    features = mh.Problem(task.mdp, drawn.demonstrations, features=task.features, feature_names=task.feature_names)
    yield from of_solution("population with features", mh.solve(features, mh.Population()))
    simulate = getattr(mh, "simulate_study", None) or mh.recover  # its name before
    yield "recover", simulate(problem, alone, drawn.demonstrations, decisions=[60], studies=2).to_dict()
    study = simulate(problem, group, drawn.demonstrations, effects=[0.0, 1.0], people=[8], studies=2)
    yield "recover population", study.to_dict()


def navigation(_: argparse.Namespace) -> Answers:
    """States that are vectors: a given basis, one that is chosen, and the functions of the answer."""
    steps = mh.domains.navigation().simulate(2000, seed=3)
    problem = mh.SampledProblem(steps)
    found = mh.solve(problem, mh.SieveLikelihood(basis=mh.Splines(5), penalty=0.1))
    yield from of_solution("given", found, intervals=True)
    shown, points = mh.functions(found), steps.next_states[::400]
    yield "functions", {"reward": shown.reward(points), "errors": shown.reward_errors(points)}
    for name in found.experts:
        yield f"functions/{name}", {"values": shown.values(name, points), "policy": shown.policy(name, points)}
    together, pairs = mh.sampled_discount_tests(found)
    yield from of_test("shared", together)
    for place, test in enumerate(pairs):
        yield from of_test(f"pairs/{place}", test)
    yield from of_solution("chosen", mh.solve(problem, mh.SieveLikelihood()), intervals=True)


CASES: dict[str, Callable[[argparse.Namespace], Answers]] = {
    case.__name__: case for case in (demo, people, buses, toy, cliff, big_small, decisions, wants, space, navigation)
}


# Recording and comparing.


def answers(given: argparse.Namespace) -> dict[str, Any]:
    """Run the cases that are asked for and whose data are there."""
    written: dict[str, Any] = {}
    for name in given.only or CASES:
        if name in ("people", "buses") and getattr(given, name) is None:
            print(f"{name}: left out, no folder is given", flush=True)
            continue
        start, before = time.process_time(), len(written)
        for quantity, value in CASES[name](given):
            for key, leaf in leaves(f"{name}/{quantity}", value):
                assert key not in written, key
                written[key] = leaf
        print(f"{name}: {len(written) - before} quantities, {time.process_time() - start:.1f} s", flush=True)
    return written


def difference(old: Any, new: Any) -> float:
    """The largest relative difference of two entries; infinite where they are not alike in kind, length or word."""
    if isinstance(old, list) and isinstance(new, list):
        return max(map(difference, old, new), default=0.0) if len(old) == len(new) else math.inf
    if isinstance(old, str | list) or isinstance(new, str | list):
        return 0.0 if old == new else math.inf
    return abs(old - new) / max(1.0, abs(old))


def compare(old: Mapping[str, Any], new: Mapping[str, Any], show: int) -> bool:
    """Print what differs, by case, and say whether all is as it was."""
    same = True
    for case in dict.fromkeys(name.split("/", 1)[0] for name in new):
        names = [name for name in old if name.startswith(f"{case}/")]
        found = {name: difference(old[name], new[name]) for name in names if name in new}
        gone = [name for name in names if name not in new]
        added = [name for name in new if name.startswith(f"{case}/") and name not in old]
        largest = max(found.values(), default=0.0)
        print(f"{case:12} largest difference {largest:.2g} in {len(found)} quantities, {len(gone)} gone, {len(added)} new")
        worst = sorted((name for name in found if found[name] > TOLERANCE), key=lambda name: -found[name])
        for name in worst[:show]:
            print(f"    {found[name]:.2g}  {name}: {str(old[name])[:80]} → {str(new[name])[:80]}")
        for words, those in (("gone", gone), ("new", added)):
            if those:
                print(f"    {words}: {', '.join(those[:show])}{' …' if len(those) > show else ''}")
        same = same and not worst and not gone and bool(names)
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--people", type=Path, help="the folder of recorded_people.py")
    parser.add_argument("--buses", type=Path, help="a folder with decisions.csv of Rust's buses")
    parser.add_argument("--only", action="append", choices=list(CASES), help="run this case; may be repeated")
    parser.add_argument("--show", type=int, default=5, help="how many quantities of a case to name")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    written = answers(given)
    if given.what == "record":
        given.file.write_text(json.dumps(written, indent=0))
    elif not compare(json.loads(given.file.read_text()), written, given.show):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
