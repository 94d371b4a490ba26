"""What model checks see: false alarms where the model is right, and confident wrong answers where it is not.

    python benchmarks/model_checks.py misfits [--families savings,treatment,inventory] [--tables 10] [--full]
    python benchmarks/model_checks.py conditions [--studies 30] [--people 60]

`misfits`: three experts with discounts 0.4, 0.75 and 0.93 (hyperbolic planners: κ of 0.1, 0.5 and 2; a depth of 1, 3 and 8),
about 4,500 decisions, from tasks of `foreign.py`, which shares no code with the library. Rules and features are given, the
reward's weights are estimated. For each way in which choices depart from the model: how often the overall test rejects,
how often some state stands out, the smallest share of lapses that tables of this kind would show, and how often the answer is
*confident and wrong*: all discounts identified, no misfit detected (or in nearly all states), and a 95% interval that misses by
an estimate off by more than 0.1. Hyperbolic planners and those of a depth have no true discount, so nothing is counted as wrong.
`max` are planners by hard maxima who choose softly: the coverage of intervals and the ratio of temperatures are shown for them.
With `--full`, the report of `analyse` decides what is detected, with held-out predictions and dependence within episodes besides.

`conditions`: a game of fishing under two modes, as people play it (60 people, three seasons of 20 rounds under each mode, with
logit γ = 1.2 + 0.8 training − 0.7 pressure + N(0, 0.7), λ = 0.6 exp N(0, 0.3); rules and points are given). Data are drawn from
exactly the model that is fitted, `~ mode + group`: the share of studies that are said not to fit, and of those that the overall
test rejects.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np
import pandas as pd

import multihorizon as mh
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.parallel import Run
from multihorizon.questions.model_checks import AllChoices, compared_choices, extent, fit_answer, misfits, overall_test

DISCOUNTS, TEMPERATURE = np.array([0.4, 0.75, 0.93]), 0.5
EPISODES = {"savings": 38, "treatment": 120, "inventory": 50, "machine": 50, "queue": 50, "chain": 60, "keys": 40}
DEPARTURES = ("none", "lapses", "hyperbolic", "beliefs", "depth", "risk", "max")


def policies_of(task: foreign.Task, departure: str) -> list[np.ndarray]:
    """The experts' policies."""
    if departure == "hyperbolic":
        return [foreign.hyperbolic(task, kappa, TEMPERATURE) for kappa in (2.0, 0.5, 0.1)]
    if departure == "depth":
        return [foreign.depth(task, ahead, TEMPERATURE) for ahead in (1, 3, 8)]
    options: dict = {}
    if departure == "lapses":
        options["lapse"] = 0.25
    if departure == "max":
        options["value"] = "max"
    if departure == "risk":
        options["utility"] = lambda reward: np.sign(reward) * np.abs(reward) ** 0.6
    if departure == "beliefs":  # half of the weight on moves that are equally likely wherever an action can lead
        possible = task.transitions > 0
        flat = possible / np.maximum(possible.sum(axis=2, keepdims=True), 1)
        options["beliefs"] = 0.5 * task.transitions + 0.5 * flat
    return [foreign.policy(task, float(discount), TEMPERATURE, **options) for discount in DISCOUNTS]


def mdp_of(task: foreign.Task) -> mh.MDP:
    """The rules, as the library takes them."""
    return mh.MDP(
        task.transitions, initial=task.initial, terminal=task.terminal, state_names=task.states, action_names=task.actions
    )


def one_table(family: str, departure: str, seed: int, full: bool) -> dict:
    """What is found in one table."""
    task = foreign.FAMILIES[family]()
    names = [f"expert {k}" for k in range(3)]
    policies = dict(zip(names, policies_of(task, departure), strict=True))
    frame = foreign.sample(task, policies, EPISODES[family], np.random.default_rng(seed))
    read, mdp = mh.Demonstrations.from_frame(frame, cut_off=True), mdp_of(task)
    rows = task.features.transpose(1, 0, 2).reshape(-1, task.features.shape[2])
    features = {"arrival_features": task.arrival} if task.arrival is not None else {"features": rows}
    if full:
        matrix = task.arrival if task.arrival is not None else rows
        found = mh.analyse(read, [mdp], features=lambda _: (matrix, task.feature_names), deviations=0.0, seed=seed)
        solution, ends, overall = found.solution, found.intervals, found.checks.overall
        odd, sure = extent(found.misfits).odd, all(found.sure) and not found.withheld
        fits = found.fit.answer in ("No misfit detected", "In nearly all states")
    else:
        solution = mh.solve(mh.Problem(mdp, read, feature_names=task.feature_names, **features), mh.MaximumLikelihood())
        point, ends = resume(solution), solution.confidence_intervals(0.95)
        overall, how = (
            overall_test(AllChoices.of(point), Run(seed)),
            extent(misfits(compared_choices(point.problem, point.policies()))),
        )
        odd, sure = how.odd, bool((np.diff(ends, axis=1) <= 0.5).all())
        fits = fit_answer(how, overall) in ("No misfit detected", "In nearly all states")
    inside = ~(ends[:, 0] > DISCOUNTS + 1e-9) & ~(ends[:, 1] < DISCOUNTS - 1e-9)
    wrong = bool((~inside & (np.abs(solution.discounts - DISCOUNTS) > 0.1)).any())
    return {
        "rejected": overall.p_value <= 0.05,
        "odd": odd > 0,
        "lapses": overall.lapses,
        "confident": sure and fits,
        "confident and wrong": sure and fits and wrong,
        "coverage": inside.mean(),
        "temperature": float(np.mean(solution.temperature)),
        "decisions": len(read),
    }


def misfit_table(families: list[str], departures: list[str], tables: int, full: bool) -> None:
    """One row for each family and departure."""
    for family in families:
        scale = 1.0
        for departure in departures:
            start, rows = time.process_time(), [one_table(family, departure, seed, full) for seed in range(tables)]
            frame = pd.DataFrame(rows)
            finite = frame["lapses"].replace(np.inf, np.nan)
            if departure == "none":
                scale = frame["temperature"].median()
            wrong = "–" if departure in ("hyperbolic", "depth") else f"{frame['confident and wrong'].mean():.2f}"
            print(
                f"{family:>10} {departure:>10}: {tables} tables of {frame['decisions'].mean():,.0f}, overall test rejects "
                f"{frame['rejected'].mean():.2f}, a state stands out {frame['odd'].mean():.2f}, confident "
                f"{frame['confident'].mean():.2f}, confident and wrong {wrong}, would show lapses of {finite.median():.2f}, "
                f"coverage {frame['coverage'].mean():.2f}, temperature × {frame['temperature'].median() / scale:.2f}, "
                f"{(time.process_time() - start) / tables:.1f} s each",
                flush=True,
            )


def fishing_study(seed: int, people: int) -> tuple[foreign.Task, pd.DataFrame, pd.DataFrame]:
    """Decisions of people under two modes, and their groups."""
    rng, task = np.random.default_rng(seed), foreign.fishing()
    temperature, own, group = 0.6 * np.exp(0.3 * rng.normal(size=people)), 0.7 * rng.normal(size=people), np.arange(people) % 2
    frames = []
    for mode, effect in (("calm", 0.0), ("pressure", -0.7)):
        logits = 1.2 + 0.8 * group + effect + own
        discounts = 1 / (1 + np.exp(-logits))
        chosen = {f"p{i:02}": foreign.policy(task, discounts[i], temperature[i]) for i in range(people)}
        frame = foreign.sample(task, chosen, 3, rng)
        frames.append(frame.assign(mode=mode, episode=mode + frame["episode"].astype(str)))
    persons = pd.DataFrame({"expert": [f"p{i:02}" for i in range(people)], "group": np.array(["control", "training"])[group]})
    return task, pd.concat(frames), persons


def conditions(studies: int, people: int) -> None:
    """False alarms in studies with conditions that work."""
    rows = []
    for seed in range(studies):
        task, frame, persons = fishing_study(seed, people)
        read = mh.Demonstrations.from_frame(frame, conditions=["mode"], cut_off=True)
        reward = task.reward()
        found = mh.analyse(
            read, [mdp_of(task)], known_reward=lambda _, reward=reward: reward, temperature="per_expert",
            population=mh.Population("~ mode + group", persons), seed=seed,
        )  # fmt: skip
        checks = found.checks
        rows.append(
            {
                "answer": found.fit.answer,
                "overall p": checks.overall.p_value,
                "within p": checks.within.p_value,
                "warned": any("does not fit" in text for text in found.warnings) or bool(found.withheld),
                "effect p": found.population.evidence["population"].discount["mode[T.pressure]"]["p"],
            }
        )
        print(seed, rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(
        f"{studies} studies of {people} people: does not fit {(table['answer'] == 'No').mean():.3f}, warned "
        f"{table['warned'].mean():.3f}, anything but no misfit {(table['answer'] != 'No misfit detected').mean():.3f}, overall "
        f"test at 5% {(table['overall p'] <= 0.05).mean():.3f}, within episodes at 5% "
        f"{(table['within p'] <= 0.05).mean():.3f}, effect of the mode found {(table['effect p'] < 0.05).mean():.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("misfits", "conditions"))
    parser.add_argument("--families", default="savings,treatment,inventory")
    parser.add_argument("--departures", default=",".join(DEPARTURES))
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--studies", type=int, default=30)
    parser.add_argument("--people", type=int, default=60)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "misfits":
        misfit_table(options.families.split(","), options.departures.split(","), options.tables, options.full)
    else:
        conditions(options.studies, options.people)


if __name__ == "__main__":
    main()
