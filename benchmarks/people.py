"""What a study of many people costs: processor seconds, memory, and the size of the report.

    python benchmarks/people.py [--persons 44 285] [--repeat 70 140 280]

Simulated persons play the built-in task. Each study runs in a process of its own: the fit with five features of the reward, the
intervals, tests and model checks of `analyse`, and the files of `write_fit`. The growth with the number of persons is the slope
of log seconds against log persons over `--repeat`. Last comes the fit of 100 experts on the cliff of 12 states.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.report.files import write_fit

#: Mini-blocks that give a person 250 and 420 decisions.
MINI_BLOCKS = {250: 100, 420: 168}


def study(persons: int, decisions: int) -> dict[str, Any]:
    """Processor seconds of each stage of one study."""
    task = mh.domains.space_adventure(MINI_BLOCKS[decisions])
    made = task.persons(persons)
    start = [time.process_time()]
    problem = mh.Problem(task.mdp, made.demonstrations, features=task.features, feature_names=task.feature_names)
    solution = mh.solve(problem, mh.MaximumLikelihood())
    start.append(time.process_time())
    solution.confidence_intervals(0.95)
    start.append(time.process_time())
    found = mh.analyse([made.demonstrations], [task.mdp], lambda mdp: (task.features, task.feature_names))
    start.append(time.process_time())
    with tempfile.TemporaryDirectory() as folder:
        write_fit(Path(folder), found, {})
        size = (Path(folder) / "report.html").stat().st_size
    start.append(time.process_time())
    seconds = dict(zip(("fit", "intervals", "analyse", "write"), np.diff(start).round(2).tolist(), strict=True))
    inside = (found.intervals[:, 0] <= made.discounts) & (made.discounts <= found.intervals[:, 1])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "persons": persons,
        "decisions": decisions,
        "status": str(solution.status),
        "seconds": seconds,
        "whole fit": round(seconds["analyse"] + seconds["write"], 2),
        "peak MB": round(memory),
        "report MB": round(size / 1e6, 2),
        "intervals that hold the truth": f"{int(inside.sum())} of {sum(found.given)}",
    }


def cliff(experts: int = 100) -> dict[str, Any]:
    """Processor seconds of the fit of many experts on the cliff."""
    domain = mh.domains.cliff()
    discounts = np.random.default_rng(0).uniform(0, 0.6, experts)
    policies = [mh.soft_plan(domain.mdp, domain.reward, gamma).policy for gamma in discounts]
    problem = mh.Problem(domain.mdp, mh.Demonstrations.simulate(domain.mdp, policies, 100))
    start = time.process_time()
    solution = mh.solve(problem, mh.MaximumLikelihood())
    seconds = time.process_time() - start
    error = float(np.sqrt(np.mean((solution.discounts - discounts) ** 2)))
    return {"cliff, experts": experts, "fit seconds": round(seconds, 2), "status": str(solution.status), "error": round(error, 3)}


def alone(task: Any, *arguments: int) -> Any:
    """Run in a fresh process, so that peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(task, arguments)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--persons", type=int, nargs="*", default=[44, 285])
    parser.add_argument("--repeat", type=int, nargs="*", default=[70, 140, 280])
    options = parser.parse_args()
    for persons in options.persons:
        print(json.dumps(alone(study, persons, 250 if persons < 100 else 420)), flush=True)
    if len(options.repeat) > 1:
        whole = [alone(study, persons, 250)["whole fit"] for persons in options.repeat]
        slope = np.polyfit(np.log(options.repeat), np.log(whole), 1)[0]
        print(json.dumps({"persons": options.repeat, "whole fit": whole, "growth exponent": round(float(slope), 2)}), flush=True)
    print(json.dumps(alone(cliff)))


if __name__ == "__main__":
    main()
