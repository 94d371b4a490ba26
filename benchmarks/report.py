"""How large a report is, and how long it takes to open in a real browser.

    python benchmarks/report.py [--experts 50] [--task cliff big_small space] [--full] [--crowd 20000 1000000] [--keep DIR]

Simulated experts with discounts between 0.1 and 0.95 act in a built-in task. Their decisions are fitted, by default without tests
and model checks; `--full` adds them. The report is opened five times in headless Chromium, at 1280 and at 400 pixels, and at 400
pixels on a processor that is slowed down four times, as a telephone's. Opening ends with the load event, when the page's script
has run; the first time the browser is cold. A change of all experts and of the unit is timed too, up to the next frame.

With `--crowd`, the report of very many persons is measured instead: processor time and memory of finding words, writing the files
and showing the solution, and the size of each file. The persons are those of a study of 60, drawn again with some noise.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import multihorizon as mh
from multihorizon.analysis import Analysis, of_people
from multihorizon.population.findings import PopulationEvidence
from multihorizon.report.files import write_fit
from multihorizon.report.fit_page import fit_page

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from browser import MISSING, Tab, browser

REPEATS = 5
FRAME = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def decisions(task: str, experts: int) -> tuple[mh.Demonstrations, mh.MDP, Any]:
    """A table of decisions, its transitions, and the features of the reward."""
    if task == "space":
        adventure = mh.domains.space_adventure(100)
        tied = lambda mdp: (adventure.features, adventure.feature_names)  # noqa: E731
        return adventure.persons(experts).demonstrations, adventure.mdp, tied
    domain = mh.domains.cliff() if task == "cliff" else mh.domains.big_small()
    discounts = np.random.default_rng(0).uniform(0.1, 0.95, experts)
    policies = [mh.soft_plan(domain.mdp, domain.reward / 4, gamma).policy for gamma in discounts]
    names = [f"person {number:02d}" for number in range(experts)]
    return mh.Demonstrations.simulate(domain.mdp, policies, 60, max_steps=30, names=names), domain.mdp, None


def opening(tab: Tab, page: Path, width: int) -> list[float]:
    """Milliseconds from the start of the navigation to the end of the load event."""
    times = []
    for _ in range(REPEATS):
        tab.open(page, width)
        times.append(float(tab.run(f"new Promise((done) => setTimeout(() => done({LOADED}), 50))")))
    return times


def acting(tab: Tab, action: str) -> float:
    """Milliseconds from an action to the second frame after it, when its result is on the screen."""
    timed = f"const start = performance.now(); {action}; {FRAME}; return performance.now() - start;"
    return float(tab.run(f"(async () => {{ {timed} }})()"))


def crowd_of(small: mh.Solution, persons: int) -> Analysis:
    """So many persons with the findings of a small study."""
    rng, evidence, problem = np.random.default_rng(0), PopulationEvidence.of(small), small.require_problem()
    pick, found = rng.integers(len(small.experts), size=persons), evidence.population
    known = {name: values[pick] for name, values in found.individuals.items()}
    known["logit_discount"] = known["logit_discount"] + rng.normal(0, 0.2, persons)
    covariates = {name: values[pick] for name, values in found.covariates.items()}
    everybody = mh.Problem.of_tasks(
        tuple(f"person {i}" for i in range(persons)),
        problem.parameter_names,
        tuple(replace(task, counts=task.counts[pick]) for task in problem.tasks),
    )
    population = replace(found, persons=persons, groups=found.groups[pick], covariates=covariates, individuals=known)
    solution = replace(
        small,
        experts=everybody.names,
        discounts=found.largest_discount * expit(known["logit_discount"]),
        temperature=np.asarray(small.temperature)[pick],
        standard_errors=np.asarray(small.standard_errors)[pick],
        problem=everybody,
        interval_source=None,
        evidence=replace(
            evidence,
            population=population,
            log_likelihood=evidence.log_likelihood * persons / len(small.experts),
            decisions=sum(float(task.counts.sum()) for task in everybody.tasks),
        ),
    )
    return of_people(solution, everybody, 24 * persons, [])


def crowds(sizes: list[int], folder: Path) -> None:
    """The report of so many persons each time."""
    task = mh.domains.space_adventure(mini_blocks=24)
    people = task.persons(60, seed=1, temperatures=2.0)
    solver = mh.Population("~ group + age", people.frame, known_reward=task.reward)
    small = mh.solve(mh.Problem(task.mdp, people.demonstrations), solver)
    for persons in sizes:
        found, out = crowd_of(small, persons), folder / f"crowd-{persons}"
        steps: dict[str, Callable[[], Any]] = {
            "words": found.summary,
            "files": lambda: write_fit(out, found, {}),  # noqa: B023  called in this turn
            "notebook": found._repr_html_,
            "notebook, solution": found.solution._repr_html_,
            "picture, solution": found.solution.plot,
        }
        print(f"{persons:,} persons")
        for name, step in steps.items():
            start = time.process_time()
            step()
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(f"  {name}: {time.process_time() - start:.2f} s, {memory:.1f} GB at most so far")
        print("  " + ", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in sorted(out.iterdir())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experts", type=int, default=50)
    parser.add_argument("--task", nargs="+", choices=["cliff", "big_small", "space"], default=["cliff", "big_small", "space"])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--crowd", type=int, nargs="+")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    if options.crowd:
        with tempfile.TemporaryDirectory() as scratch:
            crowds(options.crowd, options.keep or Path(scratch))
        return
    if MISSING:
        sys.exit(MISSING)
    with tempfile.TemporaryDirectory() as scratch, browser() as tab:
        for task in options.task:
            table, mdp, features = decisions(task, options.experts)
            found = mh.analyse([table], [mdp], features, quick=not options.full)
            page = (options.keep or Path(scratch)) / f"{task}-{options.experts}.html"
            fit_page(found, {}).write(page)
            print(f"{task}, {options.experts} experts, {mdp.n_states} states: {page.stat().st_size / 1e6:.2f} MB")
            for width, slower in ((1280, 1), (400, 1), (400, 4)):
                tab.send("Emulation.setCPUThrottlingRate", rate=slower)
                shown = ", ".join(f"{time:.0f}" for time in opening(tab, page, width))
                how = f"opened at {width} pixels{f', {slower} times slower' if slower > 1 else ''}"
                print(f"  {how}, milliseconds: {shown}; errors: {len(tab.errors)}")
            none = acting(tab, "document.querySelector('.chooser button.none').click()")
            steps = acting(tab, "document.querySelector('input.unit[value=steps]').click()")
            print(f"  all experts off: {none:.0f} milliseconds; steps: {steps:.0f} milliseconds")


if __name__ == "__main__":
    main()
