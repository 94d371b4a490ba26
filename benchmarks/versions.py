"""Populations by two versions of the library: whether effects agree, and what a person costs.

    python benchmarks/versions.py record FILE [--people FOLDER]      # with the older version on the path
    python benchmarks/versions.py compare FILE [--people FOLDER]     # with the newer one

Studies: 400 simulated persons on the Space Adventure Task (100 decisions each) with known points and with five unknown features,
and, with `--people`, the recorded people of FOLDER (see `recorded_people.py`) with known points and with features. `compare` says
by how many standard errors effects differ at most, and how many times as much processor time the older version takes for each of
800 persons as the newer one for each of 20,000. It uses the public interface alone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pandas as pd

import multihorizon as mh


def effects(problem: mh.Problem, formula: str, persons: pd.DataFrame, points: Any) -> dict[str, Any]:
    """Estimates and standard errors of all terms, and the processor time."""
    begin = time.process_time()
    found = mh.solve(problem, mh.Population(formula, persons, known_reward=points))
    seconds, said = time.process_time() - begin, found.evidence["population"]
    terms = {
        f"{kind} {term}": [effect["estimate"], effect["standard_error"]]
        for kind in ("discount", "temperature")
        for term, effect in said[kind].items()
    }
    return {"status": str(found.status), "seconds": seconds, "persons": problem.n_experts, "terms": terms}


def simulated(persons: int, free: bool) -> dict[str, Any]:
    """A study of so many persons."""
    task = mh.domains.space_adventure(40, seed=0)
    people = task.persons(persons, seed=1, group_difference=0.5)
    if free:
        return effects(mh.Problem(task.mdp, people.demonstrations, features=task.features), "~ group", people.frame, None)
    return effects(mh.Problem(task.mdp, people.demonstrations), "~ group", people.frame, task.reward.T.ravel())


def recorded(folder: Path, free: bool) -> dict[str, Any]:
    """The recorded people."""
    from multihorizon.data.side_tables import read_features, read_known_reward, read_transitions  # noqa: PLC0415

    mdp, table = read_transitions(folder / "transitions.csv"), mh.Demonstrations.from_csv(folder / "decisions.csv")
    persons = pd.read_csv(folder / "persons.csv", dtype={"expert": str})
    if free:
        matrix, names = read_features(folder / "features.csv", mdp)
        return effects(mh.Problem(mdp, table, features=matrix, feature_names=names), "~ order + age", persons, None)
    points = read_known_reward(folder / "features_points.csv", mdp)
    return effects(mh.Problem(mdp, table), "~ order + age", persons, points)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--people", type=Path)
    given = parser.parse_args()
    studies = {f"400 simulated, {'features' if free else 'points'}": simulated(400, free) for free in (False, True)}
    if given.people is not None:
        studies |= {f"recorded, {'features' if free else 'points'}": recorded(given.people, free) for free in (False, True)}
    if given.what == "record":
        studies["800 simulated"] = simulated(800, False)
        given.file.write_text(json.dumps(studies))
    else:
        before = json.loads(given.file.read_text())
        for name, now in studies.items():
            old = before[name]["terms"]
            apart = max(abs(now["terms"][t][0] - e) / s for t, (e, s) in old.items() if s == s)
            wider = max(abs(now["terms"][t][1] / s - 1) for t, (_, s) in old.items() if s == s)
            print(f"{name}: effects {apart:.4f} standard errors apart, errors by {100 * wider:.2f}%, {now['status']}", end=", ")
            print(f"{before[name]['seconds']:.1f} s before, {now['seconds']:.1f} s now", flush=True)
        many, few = simulated(20_000, False), before["800 simulated"]
        ratio = few["seconds"] / 800 / (many["seconds"] / 20_000)
        print(f"800 persons before: {few['seconds']:.1f} s; 20,000 now: {many['seconds']:.1f} s", end="; ")
        print(f"{ratio:.0f} times faster for each person")
