"""The study: how large it is, the choices the paper leaves open, what the paper prints, its parts, and how they are run.

Each part is a function of the settings and of the parts before it.

* "learned": what each algorithm learns on each domain. Deterministic experts are one action per state (the first optimal one),
  or for "MPLP, action sets" all optimal actions; the entropy-regularised ones are exact policies.
* "generalization": the loss of each learned reward on random task variants (the paper's table).
* "conventions": the cliff's errors by other readings of Eq. 27, because the paper prints 0.0 ± 0.0.
* "seeds": what Bayesian MPLP learns from other seeds, to see where the printed discounts lie.
* "thresholds": how the discounts that MPMCE learns move with the threshold within which experts are matched. The paper's
  discussion says that features are matched "within some threshold", and does not print it.
* "toy": values against the discount under the true and the learned rewards, and where Assumption 1 fails.
* "convergence": Bayesian optimisation against the best known optimum, that of sequential linear programming.
* "identifiability": which discounts let some reward explain the experts: the paper's grid over three experts' discounts, on each
  domain; two toy experts, whom nearly every pair of discounts explains, and how badly those rewards generalise; and the set of
  discounts that explains the toy's three experts, nearly all of which the grid misses.
* "theory": Theorem 2, Proposition 1 and the duality gap in numbers.
* "choices": how much the answers depend on what the paper leaves open. The value the study uses stands in `CHOSEN`.

Each part's numbers go to `data/NAME.json`, and a run that was killed goes on with the next part. The same seed gives the same
JSON. How long things took is not a function of the seed, so it goes to `timings/NAME.json`.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize

import multihorizon as mh
from multihorizon.checks import Floats
from multihorizon.domains import Domain, big_small, cliff, toy
from multihorizon.domains.base import Task, losses
from multihorizon.files import write_json
from multihorizon.paper.theory import (
    duality_chain,
    feasibility_at,
    feasibility_grid,
    gap_and_mismatch,
    likelihood_slopes,
    rewards_at,
)
from multihorizon.parallel import Progress, silent
from multihorizon.planning.plan import causal_entropy
from multihorizon.programs.inner import Inner, build_margins

ByDomain = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class StudySettings:
    """Seed, number of processes, and how much is computed; by default what the paper computes.

    Attributes:
        quick: whether this is the quick version, with less of everything.
        tasks: random task variants for the generalization error.
        seeds: so many times are the tasks drawn anew, to see where a printed error lies among ours.
        search_seeds: so many times is Bayesian MPLP run anew, to see where a printed discount lies among ours.
        lp_evaluations, mce_evaluations: of Bayesian optimisation, for MPLP and for MPMCE.
        starts: of the climb of MPMCE within a threshold.
        thresholds: at which MPMCE is run, to see how the learned discounts move.
        grid_step: of the identifiability grids.
        search_step: of the grid search that Bayesian optimisation is compared with.
        curve_points, surface_side: of the sets of discounts that explain the toy's experts.
        random_discounts: at how many random Γ the duality gap is measured.
    """

    seed: int = 0
    quick: bool = False
    jobs: int = -1
    tasks: int = 100
    seeds: int = 60
    search_seeds: int = 20
    lp_evaluations: int = 100
    mce_evaluations: int = 50
    starts: int = 8
    thresholds: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 2e-2)
    grid_step: float = 0.01
    search_step: float = 0.05
    curve_points: int = 30
    surface_side: int = 50
    random_discounts: int = 20

    @classmethod
    def quickly(cls, seed: int = 0, jobs: int = -1) -> StudySettings:
        """Return the quick version."""
        return cls(seed, True, jobs, 20, 12, 3, 25, 15, 2, (1e-3, 5e-3), 0.05, 0.25, 15, 15, 3)


@dataclass(frozen=True)
class OpenChoices:
    """What the paper does not state, and this study uses.

    Attributes:
        reward_bound: bound on the absolute reward: the largest true reward of the domain (the paper's toy rewards reach 10).
        l1: weight of the l1 norm; on the toy the one that gives the reward the paper shows.
        temperature: entropy weight of the experts of the second study.
        epsilon: the duality gap up to which the rule printed in the paper calls discounts feasible.
        threshold: the largest entry of an expert's mismatch that the rule of the paper's discussion lets pass, for all domains.
        feasible: the residual, in units of the reward, up to which a point of the grid counts as feasible.
    """

    reward_bound: dict[str, float] = field(default_factory=lambda: {"toy": 10.0, "big-small": 20.0, "cliff": 20.0})
    l1: dict[str, float] = field(default_factory=lambda: {"toy": 0.03, "big-small": 0.0, "cliff": 0.0})
    temperature: float = 1.0
    epsilon: float = 1e-3
    threshold: float = 1e-3
    feasible: float = 1e-8


@dataclass(frozen=True)
class Printed:
    """What the paper prints: the figures that ours stand beside.

    Attributes:
        generalization: generalization error, mean and standard deviation over 100 tasks (table of the generalization error; the
            naive extension: appendix).
        error_digits: with how many decimals each of these is printed.
        discounts: learned discounts (appendix, table of true and learned discount factors; the naive extension: appendix).
        intervals: true discounts of the deterministic experts (same table).
        toy_rewards: rewards of the toy domain in the appendix's graphs, states s0 to s3.
        toy_breakpoints: of the toy's optimal policy (appendix).
        grid_step: of the grid of discounts on which feasibility was tested (Section 6.2).
        two_expert_share: of the two-expert toy grid with a generalization error above 0.5 (Section 6.2 and appendix).
        converged_after: evaluations after which Bayesian optimisation is said to have converged for MPLP (Section 6.3).
        mpmce_converged_after: the same for MPMCE.
        text_discounts, table_discounts: the true discounts of big-small in the text and in the table.
    """

    generalization: dict[str, ByDomain]
    error_digits: dict[str, dict[str, int]]
    discounts: dict[str, ByDomain]
    intervals: dict[str, tuple[tuple[float, float], ...]]
    toy_rewards: ByDomain
    toy_breakpoints: tuple[float, ...] = (0.432, 0.876)
    grid_step: float = 0.01
    two_expert_share: float = 0.40
    converged_after: int = 100
    mpmce_converged_after: int = 50
    text_discounts: tuple[float, ...] = (0.1, 0.45, 0.9)
    table_discounts: tuple[float, ...] = (0.0, 0.45, 0.9)


CHOSEN = OpenChoices()
PRINTED = Printed(
    generalization={
        "MPLP": {"toy": (0.009, 0.040), "big-small": (0.039, 0.117), "cliff": (0.0, 0.0)},
        "MPMCE": {"toy": (0.21, 0.25), "big-small": (0.040, 0.065), "cliff": (0.0, 0.0)},
        "NaiveLP": {"toy": (0.213, 0.218)},
    },
    error_digits={
        "MPLP": {"toy": 3, "big-small": 3, "cliff": 1},
        "MPMCE": {"toy": 2, "big-small": 3, "cliff": 1},
        "NaiveLP": {"toy": 3},
    },
    discounts={
        "MPLP": {"toy": (0.0, 0.35, 1.0), "big-small": (0.38, 0.74, 1.0), "cliff": (0.04, 0.44, 0.84)},
        "MPMCE": {"toy": (0.53, 0.82, 0.98), "big-small": (0.30, 0.62, 0.98), "cliff": (0.0, 0.31, 0.55)},
        "NaiveLP": {"toy": (0.0, 1.0, 1.0)},
    },
    intervals={
        "toy": ((0.0, 0.43), (0.43, 0.87), (0.87, 1.0)),
        "big-small": ((0.0, 0.2), (0.2, 0.68), (0.87, 1.0)),
        "cliff": ((0.06, 0.28), (0.28, 0.52), (0.52, 0.95)),
    },
    toy_rewards={"MPLP": (0, 8.83, 10, 10), "MPMCE": (3.4, 4.2, 3.1, 9.7), "NaiveLP": (0, 0, 0, 10)},
)


def study_domains() -> dict[str, mh.domains.Domain]:
    """Return the three domains by name."""
    return {domain.name: domain for domain in (mh.domains.toy(), mh.domains.big_small(), mh.domains.cliff())}


Data = dict[str, Any]

#: The algorithms that are in the paper's tables, with their names there.
PAPER_NAMES = {"MPLP": "MPLP", "NaiveLP": "NaiveLP", "MPMCE, threshold": "MPMCE"}


def _soft_problem(domain: Domain, count: int = 3) -> mh.Problem:
    return mh.Problem(domain.mdp, domain.soft_experts(CHOSEN.temperature)[:count])


def _bayesian(evaluations: int) -> mh.Bayesian:
    return mh.Bayesian(evaluations, min(10, evaluations))


@dataclass(frozen=True)
class Underway:
    """A study under way: how large it is, what the parts before have computed, and where to say how far it is."""

    settings: StudySettings
    done: Data
    progress: Progress = silent


def _threshold_solver(threshold: float, settings: StudySettings) -> mh.MPMCE:
    return mh.MPMCE(CHOSEN.temperature, gap="threshold", threshold=threshold, starts=settings.starts)


def compute_learned(study: Underway) -> Data:
    """Return `data[domain][algorithm]`: discounts, reward, status, objective, and the trace of the search."""
    bayesian = _bayesian(study.settings.mce_evaluations)
    soft: dict[str, Any] = {
        "MPMCE, threshold": _threshold_solver(CHOSEN.threshold, study.settings),
        "MPMCE, summed gap": mh.MPMCE(CHOSEN.temperature, gap="summed", tolerance=CHOSEN.epsilon, search=bayesian),
        "MPMCE, per expert": mh.MPMCE(CHOSEN.temperature, gap="per_expert", search=bayesian),
        "ClosedForm": mh.ClosedForm(CHOSEN.temperature),
    }
    data: Data = {}
    for number, (key, domain) in enumerate(study_domains().items()):
        l1, bound = CHOSEN.l1[key], CHOSEN.reward_bound[key]
        best, sets = (mh.Problem(domain.mdp, experts) for experts in (domain.hard_experts(), domain.hard_action_sets()))
        cases: dict[str, tuple[mh.Problem, Any, tuple[float, ...]]] = {
            "MPLP": (best, mh.MPLP(l1, bound), domain.hard_discounts),
            "MPLP, action sets": (sets, mh.MPLP(l1, bound), domain.hard_discounts),
            "NaiveLP": (best, mh.NaiveLP(l1, bound), domain.hard_discounts),
            **{name: (_soft_problem(domain), solver, domain.soft_discounts) for name, solver in soft.items()},
        }
        data[key] = {}
        for place, (name, (problem, solver, true)) in enumerate(cases.items()):
            study.progress((number + place / len(cases)) / 3, f"{name} on {key}")
            data[key][name] = describe(mh.solve(problem, solver, seed=study.settings.seed), true)
    return data


def describe(solution: mh.Solution, true: tuple[float, ...]) -> Data:
    """Return a solution as plain numbers; seconds are kept apart under a key that the runner moves to the timings."""
    trace = solution.trace
    return {
        "status": str(solution.status),
        "message": solution.message,
        "discounts": solution.discounts,
        "true": list(true),
        "ordered": bool((np.diff(solution.discounts[np.argsort(true)]) > 0).all()),
        "reward": solution.reward,
        "objective": solution.objective,
        "residual": solution.residual,
        "options": _without_jobs(solution.options),
        "trace": None if trace is None else {"best": trace.best, "discounts": trace.best_discounts},
        "seconds": {"total": solution.seconds, "trace": None if trace is None else trace.seconds},
    }


def _without_jobs(options: Mapping[str, Any]) -> Data:
    """Return the options that can change the answer: not the number of processes."""
    return {k: _without_jobs(v) if isinstance(v, Mapping) else v for k, v in options.items() if k != "jobs"}


def compute_generalization(study: Underway) -> Data:
    """Return `data[domain][algorithm]`: mean and standard deviation of the signed and of the absolute ratio."""
    data: Data = {}
    for number, (name, domain) in enumerate(study_domains().items()):
        study.progress(number / 3, name)
        learned = study.done["learned"][name]
        data[name] = {key: error_of(domain, np.array(row["reward"]), study.settings) for key, row in learned.items()}
        for key, drawn in over_seeds(domain, {key: learned[key]["reward"] for key in PAPER_NAMES}, study.settings).items():
            data[name][key]["over seeds"] = drawn
    return data


def over_seeds(domain: Domain, rewards: Mapping[str, Any], settings: StudySettings) -> dict[str, dict[str, list[float]]]:
    """Return mean and standard deviation of each reward's signed errors, for each of `settings.seeds` drawings of the tasks."""
    stacked = np.array([*rewards.values()], dtype=np.float64)
    drawn = [losses(domain, stacked, domain.tasks(settings.tasks, settings.seed + 1 + n))[0] for n in range(settings.seeds)]
    means, stds = np.mean(drawn, axis=2).T, np.std(drawn, axis=2).T
    return {name: {"mean": means[i].tolist(), "std": stds[i].tolist()} for i, name in enumerate(rewards)}


def compute_conventions(study: Underway) -> Data:
    """Return `data[convention][algorithm]`: mean and standard deviation of the cliff's errors, read in several ways."""
    domain = cliff()
    learned = study.done["learned"]["cliff"]
    names = ("MPLP", "MPMCE, threshold")
    rewards = [np.array(learned[name]["reward"]) for name in names]
    variants = domain.tasks(study.settings.tasks, study.settings.seed)
    same = [Task(domain.mdp, task.discount) for task in variants]

    def worth(task: Task, policy: Any) -> Floats:
        """Return the value of each state under the true reward."""
        return mh.evaluate(task.mdp, policy, domain.reward, task.discount).values

    def policy(task: Task, reward: Floats, soft: bool) -> Any:
        if not soft:
            return mh.plan(task.mdp, reward, task.discount).policy
        return mh.soft_plan(task.mdp, reward, task.discount, CHOSEN.temperature).policy

    def pairs(tasks: list[Task], reward: Floats, soft: bool = False) -> tuple[Floats, Floats, Floats]:
        """For each task the values `(N,S)` of the optimum and of the learned reward's policy, and the initial distributions."""
        rows = [(worth(t, policy(t, domain.reward, soft)), worth(t, policy(t, reward, soft)), t.mdp.initial) for t in tasks]
        best, earned, start = (np.array(column) for column in zip(*rows, strict=True))
        return best, earned, start

    def ratio(loss: Floats, best: Floats) -> Data:
        values = np.divide(loss, best, out=np.zeros_like(loss), where=np.abs(loss) > 1e-9)
        return {"mean": float(values.mean()), "std": float(values.std())}

    data: Data = {}
    for number, (name, reward) in enumerate(zip(names, rewards, strict=True)):
        study.progress(number / 2, name)
        by_kind = {
            kind: pairs(*case)  # type: ignore[arg-type]
            for kind, case in {
                "hard": (variants, reward),
                "soft": (variants, reward, True),
                "same": (same, reward),
            }.items()
        }
        at_start = {kind: ((b * s).sum(axis=1), (e * s).sum(axis=1)) for kind, (b, e, s) in by_kind.items()}
        best, earned = at_start["hard"]
        positive = best > 0
        everywhere = by_kind["hard"][0][:, domain.mdp.initial > 0], by_kind["hard"][1][:, domain.mdp.initial > 0]
        conventions = {
            "Eq. 27 as printed": ratio(best - earned, best),
            "divided by the absolute optimum": ratio(best - earned, np.abs(best)),
            "tasks with a positive optimum alone": ratio((best - earned)[positive], best[positive]),
            "all losses divided by all optima": ratio(np.array([(best - earned).sum()]), np.array([best.sum()])),
            "the ratio of each starting state": ratio(everywhere[0] - everywhere[1], everywhere[0]),
            "policies with entropy": ratio(at_start["soft"][0] - at_start["soft"][1], at_start["soft"][0]),
            "the cliff's own transitions": ratio(at_start["same"][0] - at_start["same"][1], at_start["same"][0]),
        }
        for convention, row in conventions.items():
            data.setdefault(convention, {})[name] = row
    return data


def compute_seeds(study: Underway) -> Data:
    """Return `data[domain]`: the discounts and objectives of Bayesian MPLP from other seeds, and the best of the paper's grid
    around the optimum. MPMCE within a threshold climbs to the same answer from every seed, so it is not here."""
    data: Data = {}
    for number, (name, domain) in enumerate(study_domains().items()):
        problem = mh.Problem(domain.mdp, domain.hard_experts())
        l1, bound = CHOSEN.l1[name], CHOSEN.reward_bound[name]
        solver = mh.MPLP(l1, bound, search=_bayesian(study.settings.lp_evaluations))
        rows = []
        for seed in range(study.settings.search_seeds):
            study.progress((number + seed / study.settings.search_seeds) / 3, f"MPLP on {name}, seed {seed}")
            solution = mh.solve(problem, solver, seed=study.settings.seed + 1 + seed)
            rows.append({"discounts": solution.discounts, "objective": solution.objective})
        optimum = study.done["learned"][name]["MPLP"]["discounts"]
        data[name] = {"MPLP": rows, "paper's grid": _best_nearby(problem, optimum, l1, bound)}
    return data


def _best_nearby(problem: mh.Problem, optimum: Any, l1: float, bound: float) -> float:
    """Return the best objective of MPLP among the points of the paper's grid that surround the optimum."""
    inner = Inner(build_margins(problem.observed_actions()), "worst", l1, bound)
    step = PRINTED.grid_step
    ends = [sorted({np.floor(gamma / step) * step, min(np.ceil(gamma / step) * step, 1.0)}) for gamma in optimum]
    return max(inner(np.array(point)) for point in itertools.product(*ends))


def error_of(domain: Domain, reward: Any, settings: StudySettings) -> dict[str, float]:
    """Return signed and absolute generalization error of one reward."""
    error = mh.generalization_error(domain, reward, settings.tasks, seed=settings.seed)
    return {
        "mean": error.mean,
        "std": error.std,
        "median": float(np.median(error.values)),
        "absolute mean": float(error.absolute.mean()),
        "absolute std": float(error.absolute.std()),
        "tasks": settings.tasks,
    }


def compute_thresholds(study: Underway) -> Data:
    """Return `data[domain]`: one row per threshold, from the smallest to the largest."""
    cases = [(name, domain, threshold) for name, domain in study_domains().items() for threshold in study.settings.thresholds]
    data: Data = {}
    for number, (name, domain, threshold) in enumerate(cases):
        study.progress(number / len(cases), f"threshold {threshold:g} on {name}")
        learned = study.done["learned"][name]["MPMCE, threshold"]
        if threshold != CHOSEN.threshold:
            solution = mh.solve(_soft_problem(domain), _threshold_solver(threshold, study.settings), seed=study.settings.seed)
            learned = describe(solution, domain.soft_discounts)
        kept = {key: learned[key] for key in ("status", "discounts", "true", "ordered", "objective", "residual")}
        row = {"threshold": threshold, **kept, "error": error_of(domain, np.array(learned["reward"]), study.settings)}
        data.setdefault(name, []).append(row)
    return data


def compute_toy_study(study: Underway) -> Data:
    """Return value curves of "always a0, a1, a2" under three rewards, breakpoints, and pairwise crossings under the true
    reward.
    """
    domain = toy()
    axis = np.linspace(0, 1, 101)

    def value(reward: Floats, action: int, discount: float) -> float:
        """Return the value of s0 when the same action is always taken."""
        return float(mh.evaluate(domain.mdp, np.eye(3)[[action] * 4], reward, discount).values[0])

    def crossing(first: int, second: int) -> float:
        """Return the discount at which two of the policies are worth the same in s0 under the true reward."""
        return float(brentq(lambda g: value(domain.reward, first, g) - value(domain.reward, second, g), 0, 1, xtol=1e-14))

    learned = {name: np.array(study.done["learned"]["toy"][name]["reward"]) for name in ("MPLP", "NaiveLP")}
    rewards = {"true": domain.reward, **learned}
    return {
        "axis": axis,
        "curves": {name: [[value(reward, a, g) for g in axis] for a in range(3)] for name, reward in rewards.items()},
        "breakpoints": [interval.high for interval in mh.discount_intervals(domain.mdp, domain.reward)[:-1]],
        "printed rewards": over_seeds(domain, PRINTED.toy_rewards, study.settings),
        "printed answer": _printed_answer(domain),
        "crossings": {f"a{i} and a{j}": crossing(i, j) for i, j in ((0, 1), (0, 2), (1, 2))},
    }


def _printed_answer(domain: Domain) -> Data:
    """Return what the toy's experts do in s0, and what the printed reward and discounts of MPMCE make them do there.

    "rounding" is how far the probabilities can move at most within half of the last printed digits, at the corners of that box.
    """
    reward = np.array(PRINTED.toy_rewards["MPMCE"])
    gammas = PRINTED.discounts["MPMCE"]["toy"]

    def at_start(reward: Floats, gamma: float) -> Floats:
        policy: Floats = mh.soft_plan(domain.mdp, reward, gamma, CHOSEN.temperature).policy[0]
        return policy

    planned = [at_start(reward, gamma) for gamma in gammas]
    corners = [np.array(corner) for corner in itertools.product((-0.05, 0.05), repeat=reward.size)]
    rounding = [
        max(
            float(np.abs(at_start(reward + corner, gamma + shift) - policy).max())
            for corner in corners
            for shift in (-0.005, 0.005)
        )
        for gamma, policy in zip(gammas, planned, strict=True)
    ]
    experts = [policy[0] for policy in domain.soft_experts(CHOSEN.temperature)]
    return {"experts": experts, "planned": planned, "rounding": rounding}


def compute_convergence(study: Underway) -> Data:
    """Return `data[domain]`: MPLP by three searches on the same problem, with the l1 weight of the tables."""
    searches: dict[str, mh.SequentialLP | mh.Bayesian | mh.Grid] = {
        "SequentialLP": mh.SequentialLP(),
        "Bayesian": _bayesian(study.settings.lp_evaluations),
        "Grid": mh.Grid(study.settings.search_step, study.settings.jobs),
    }
    data: Data = {}
    for number, (name, domain) in enumerate(study_domains().items()):
        problem = mh.Problem(domain.mdp, domain.hard_experts())
        policies = zip(domain.soft_experts(CHOSEN.temperature), domain.soft_discounts, strict=True)
        data[name] = {"true entropy": sum(causal_entropy(domain.mdp, policy, gamma) for policy, gamma in policies)}
        for step, (label, search) in enumerate(searches.items()):
            study.progress((number + step / 3) / 3, f"{label} on {name}")
            solver = mh.MPLP(CHOSEN.l1[name], CHOSEN.reward_bound[name], search=search)
            data[name][label] = describe(mh.solve(problem, solver, seed=study.settings.seed), domain.hard_discounts)
    return data


def compute_identifiability(study: Underway) -> Data:
    """Return the three studies."""
    cases = {**study_domains(), "toy, absorbing": toy(ending="absorbing")}
    grids = {}
    for number, (name, domain) in enumerate(cases.items()):
        study.progress(number / 6, f"grid on {name}")
        grids[name] = _grid(domain, study.settings)
    study.progress(4 / 6, "two experts on the toy")
    pairs = {ending: _two_experts(toy(ending=ending), study.settings) for ending in ("terminal", "absorbing")}
    study.progress(5 / 6, "the set behind the toy")
    sets: Data = {}
    for ending in ("terminal", "absorbing"):
        report = mh.identify(_soft_problem(toy(ending=ending)), CHOSEN.temperature)
        sets[ending] = {
            "status": report.status,
            "dimension": report.dimension,
            "intervals": report.intervals,
            "singular values": report.singular_values,
            "members": [{"discounts": m.discounts, "reward": m.reward, "error": m.error} for m in report.members],
        }
    sets["terminal"]["points"] = _curve(toy(), np.array([m["discounts"] for m in sets["terminal"]["members"]]), study.settings)
    sets["absorbing"]["points"] = _surface(toy(ending="absorbing"), study.settings)
    return {"grids": grids, "two experts": pairs, "sets": sets}


def _grid(domain: Domain, settings: StudySettings) -> Data:
    """Return feasible points of the three-expert grid, and the residuals on the plane through the true last discount."""
    grid = feasibility_grid(
        _soft_problem(domain), mh.Grid(settings.grid_step, settings.jobs), CHOSEN.temperature, CHOSEN.feasible
    )
    plane = int(np.argmin(np.abs(grid.axis - domain.soft_discounts[2])))
    levels = np.log10(np.maximum(grid.residuals.ravel(), 1e-16))
    counts, edges = np.histogram(levels, bins=np.arange(-16, 2.5, 0.5))
    return {
        "points": int(grid.residuals.size),
        "feasible": grid.points,
        "true": list(domain.soft_discounts),
        "second smallest residual": float(np.partition(grid.residuals.ravel(), 1)[1]),
        "histogram": {"edges": edges, "counts": counts},
        "step": settings.grid_step,
        "axis": grid.axis,
        "plane": {"discount": float(grid.axis[plane]), "log10 residual": _short(np.log10(grid.residuals[:, :, plane] + 1e-16))},
    }


def _two_experts(domain: Domain, settings: StudySettings) -> Data:
    """For each pair of discounts the reward that explains the first two experts, and its generalization error."""
    problem = _soft_problem(domain, 2)
    grid = feasibility_grid(problem, mh.Grid(settings.grid_step, 1), CHOSEN.temperature, CHOSEN.feasible)
    points = np.stack(np.meshgrid(grid.axis, grid.axis, indexing="ij"), axis=-1).reshape(-1, 2)
    rewards = rewards_at(problem, points, CHOSEN.temperature)
    off = ~np.eye(grid.axis.size, dtype=np.bool_)

    def errors_of(seed: int) -> Floats:
        """Return the mean error of each pair's reward.

        In s1, s2 and s3 all actions are alike, so only the action in s0 matters, and the value of "always a" is linear in the
        reward: its feature counts.
        """
        losses = np.zeros(len(points))
        for task in domain.tasks(settings.tasks, seed):
            visits = [mh.occupancy(task.mdp, np.eye(3)[[a] * 4], task.discount).counts.T.ravel() for a in range(3)]
            counts = np.stack([task.mdp.stacked.T @ visit for visit in visits])
            true = counts @ domain.reward
            losses += (true.max() - true[(rewards @ counts.T).argmax(axis=1)]) / true.max()
        return (losses / settings.tasks).reshape(grid.residuals.shape)

    def share(errors: Floats) -> float:
        return float((errors[off & grid.feasible] > 0.5).mean())

    errors = errors_of(settings.seed)
    return {
        "axis": grid.axis,
        "feasible share off the diagonal": float(grid.feasible[off].mean()),
        "error": _short(np.where(off, errors, np.nan)),
        "percentiles": np.percentile(errors[off & grid.feasible], np.arange(0, 101)),
        "share above 0.5": share(errors),
        "shares over seeds": [share(errors_of(settings.seed + 1 + number)) for number in range(settings.seeds)],
        "true": list(domain.soft_discounts[:2]),
    }


def _curve(domain: Domain, ends: Floats, settings: StudySettings) -> Floats:
    """Return points of the curve of discounts between two of its members: γ_1 is fixed, the others go to the nearest zero
    residual.
    """
    problem = _soft_problem(domain)

    def residual(rest: Floats, first: float) -> float:
        return float(feasibility_at(problem, np.array([[first, *rest]]), CHOSEN.temperature)[0])

    points = []
    for share in np.linspace(0.01, 0.99, settings.curve_points):
        start = ends[0] + share * (ends[-1] - ends[0])
        options = {"xatol": 1e-12, "fatol": 1e-13, "maxiter": 2000, "maxfev": 4000}
        end = minimize(residual, start[1:], (start[0],), method="Nelder-Mead", options=options)
        if end.fun <= CHOSEN.feasible and (end.x >= 0).all() and (end.x <= 1).all():
            points.append([start[0], *end.x])
    return np.array(points).reshape(-1, 3)


def _surface(domain: Domain, settings: StudySettings) -> Floats:
    """Return the discounts that explain three toy experts without an end: for each (γ_1, γ_2) the γ_3 with residual 0, if any.

    The residual is the absolute value of one smooth function of Γ there, so its zeros are the bottoms of V-shaped valleys:
    each local minimum on a line is narrowed by grid refinement and kept if it goes down to rounding.
    """
    problem = _soft_problem(domain)
    side = np.linspace(0, 0.98, settings.surface_side)
    line = np.linspace(0, 0.99, 100)
    pairs = np.array([(a, b) for a in side for b in side if abs(a - b) > 1e-9])
    points = np.concatenate([np.repeat(pairs, line.size, axis=0), np.tile(line, len(pairs))[:, None]], axis=1)
    residuals = feasibility_at(problem, points, CHOSEN.temperature, jobs=settings.jobs).reshape(len(pairs), line.size)
    inner = residuals[:, 1:-1]
    rows, columns = np.nonzero((inner <= residuals[:, :-2]) & (inner <= residuals[:, 2:]))
    best = np.concatenate([pairs[rows], line[columns + 1][:, None]], axis=1)
    # The last discount of each moves to the bottom of its valley, by grids of 21 points around the best so far.
    offsets = np.linspace(-1, 1, 21)
    width = line[1] - line[0]
    for _ in range(10):
        trial = np.repeat(best, offsets.size, axis=0)
        trial[:, -1] = np.clip(trial[:, -1] + np.tile(offsets * width, len(best)), 0, 1)
        residuals = feasibility_at(problem, trial, CHOSEN.temperature).reshape(len(best), -1)
        best = trial.reshape(len(best), -1, best.shape[1])[np.arange(len(best)), residuals.argmin(axis=1)]
        width /= 8
    points_kept: Floats = best[residuals.min(axis=1) <= CHOSEN.feasible]
    return points_kept


def _short(array: Floats) -> list[list[float | None]]:
    """Return rounded to four digits, None for NaN, so that the JSON of a heat map stays small."""
    return [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in array]


def compute_theory_checks(study: Underway) -> Data:
    """Return `data["chain"]`, `data["slopes"]`, `data["gap"]`, each by domain."""
    data: Data = {"chain": {}, "slopes": {}, "gap": {}}
    rng = np.random.default_rng(study.settings.seed)
    for number, (name, domain) in enumerate(study_domains().items()):
        study.progress(number / 3, name)
        problem = _soft_problem(domain)
        true = domain.soft_discounts
        # The dual's inner maximum and the likelihood's maximum are sought among these discounts, beside the true ones.
        data["chain"][name] = vars(duality_chain(problem, true, (0.0, 0.25, 0.5, 0.75, 0.9), CHOSEN.temperature))
        inner = [gamma for gamma in true if gamma > 0]
        slopes = likelihood_slopes(domain.mdp, domain.reward, inner, CHOSEN.temperature)
        data["slopes"][name] = {"discounts": inner, **vars(slopes)}
        data["gap"][name] = [
            {"discounts": list(gammas), **vars(gap_and_mismatch(problem, gammas, CHOSEN.temperature))}
            for gammas in (true, true[::-1], *rng.uniform(0, 0.95, (study.settings.random_discounts, 3)))
        ]
    return data


def compute_choices(study: Underway) -> Data:
    """Return one list of rows for each choice."""
    small = big_small()
    bound = CHOSEN.reward_bound
    sets = big_small().hard_action_sets()
    last = [s.shape[1] - 1 - s[:, ::-1].argmax(axis=1) for s in sets]
    ties = {"first optimal action": small.hard_experts(), "last optimal action": last, "all optimal actions": sets}
    shown = PRINTED.toy_rewards["MPLP"]

    def mplp(domain: Domain, experts: Any, l1: float, bound: float, **printed: Any) -> list[Data]:
        """Return what MPLP learns, with its distance to what is printed of it."""
        solution = mh.solve(mh.Problem(domain.mdp, experts), mh.MPLP(l1=l1, reward_bound=bound), seed=study.settings.seed)
        answer: Data = {"discounts": solution.discounts, "reward": solution.reward, "objective": solution.objective}
        answer["error"] = error_of(domain, solution.reward, study.settings)["mean"]
        distances = {what: float(np.abs(answer[what] - np.array(values)).max()) for what, values in printed.items()}
        return [answer | {f"distance to the paper's {what}": apart for what, apart in distances.items()}]

    def of_height(height: int) -> list[Data]:
        printed = PRINTED.discounts["MPLP"]["big-small"]
        return mplp(big_small(height), big_small(height).hard_experts(), 0.0, bound["big-small"], discounts=printed)

    def of_temperature(temperature: float) -> list[Data]:
        rows = []
        for name, domain in study_domains().items():
            problem = mh.Problem(domain.mdp, domain.soft_experts(temperature))
            solution = mh.solve(problem, mh.ClosedForm(temperature), seed=study.settings.seed)
            distance = float(np.abs(solution.discounts - domain.soft_discounts).max())
            rows.append({"domain": name, "status": str(solution.status), "largest error of a discount": distance})
        return rows

    def printed_rule(epsilon: float, inner: float) -> list[Data]:
        """Return what Algorithm 2 as printed finds on the toy; `inner` is the gradient at which the inner solver stops."""
        search = _bayesian(study.settings.mce_evaluations)
        solver = mh.MPMCE(CHOSEN.temperature, gap="summed", tolerance=epsilon, search=search, inner_tolerance=inner)
        solution = mh.solve(_soft_problem(toy()), solver, seed=study.settings.seed)
        return [{"discounts": solution.discounts, "objective": solution.objective, "mismatch": solution.residual}]

    def some(*values: float) -> tuple[float, ...]:
        """Return all values, or the first and the last in the quick run."""
        return (values[0], values[-1]) if study.settings.quick else values

    studies: dict[str, tuple[Callable[[Any], list[Data]], tuple[Any, ...]]] = {
        "l1 weight (toy)": (
            lambda l1: mplp(toy(), toy().hard_experts(), l1, bound["toy"], reward=shown),
            (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.1),
        ),
        "reward bound (toy)": (lambda largest: mplp(toy(), toy().hard_experts(), 0.0, largest), (1.0, 10.0, 100.0)),
        "height of big-small": (of_height, some(2, 3, 4, 5)),
        "ties of big-small": (lambda kind: mplp(small, ties[kind], 0.0, bound["big-small"]), tuple(ties)),
        "temperature": (of_temperature, some(0.5, 1.0, 2.0, 5.0)),
        "gap ε of the printed rule (toy)": (lambda e: printed_rule(e, 1e-7), some(1e-1, 1e-2, CHOSEN.epsilon, 1e-4)),
        "how early the inner solver stops, printed rule (toy)": (
            lambda inner: printed_rule(CHOSEN.epsilon, inner),
            some(1.0, 1e-1, 1e-2, 1e-7),
        ),
    }
    data: Data = {}
    for number, (name, (measure, values)) in enumerate(studies.items()):
        study.progress(number / len(studies), name)
        data[name] = [{"value": value, **row} for value in values for row in measure(value)]
    return data


@dataclass(frozen=True)
class StudyPart:
    """A part of the study: its name, what it is in a few words, and the function that computes it."""

    name: str
    title: str
    compute: Callable[[Underway], Data]


PARTS = (
    StudyPart("learned", "learning discounts and rewards", compute_learned),
    StudyPart("generalization", "generalization error", compute_generalization),
    StudyPart("conventions", "readings of the cliff's error", compute_conventions),
    StudyPart("thresholds", "thresholds of MPMCE", compute_thresholds),
    StudyPart("toy", "value functions of the toy", compute_toy_study),
    StudyPart("convergence", "convergence of the searches", compute_convergence),
    StudyPart("seeds", "spread of the searches over seeds", compute_seeds),
    StudyPart("identifiability", "identifiability", compute_identifiability),
    StudyPart("theory", "theorems in numbers", compute_theory_checks),
    StudyPart("choices", "sensitivity to what the paper leaves open", compute_choices),
)


def run_part(part: StudyPart, directory: Path, settings: StudySettings, done: dict[str, Any], progress: Progress) -> bool:
    """Compute a part, or read it where it was computed before with the same settings and version; True if computed now."""
    path = directory / "data" / f"{part.name}.json"
    header = {"part": part.name, "version": mh.__version__, "seed": settings.seed, "quick": settings.quick}
    stored = _read(path)
    if stored is not None and all(stored.get(key) == value for key, value in header.items()):
        done[part.name] = stored["data"]
        return False
    start = time.perf_counter()
    data, timings = split_timings(part.compute(Underway(settings, done, progress)))
    write(directory / "timings" / f"{part.name}.json", {"part": part.name, "total": time.perf_counter() - start, "data": timings})
    write(path, {**header, "data": data})
    done[part.name] = _read(path)["data"]  # type: ignore[index]
    return True


def read_timings(directory: Path) -> dict[str, Any]:
    """Return all timings that were written, by part."""
    return {part.name: _read(directory / "timings" / f"{part.name}.json") or {"total": None, "data": {}} for part in PARTS}


def split_timings(data: Any) -> tuple[Any, Any]:
    """Return the data without the keys "seconds", and a tree of the same shape with only those."""
    if not isinstance(data, dict):
        return data, None
    kept: dict[str, Any] = {}
    times: dict[str, Any] = {}
    for key, value in data.items():
        if key == "seconds":
            times[key] = value
            continue
        kept[key], inner = split_timings(value)
        if inner:
            times[key] = inner
    return kept, times


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that a killed run leaves the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    write_json(partial, content)
    os.replace(partial, path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return _with_infinities(content) if isinstance(content, dict) else None


def _with_infinities(value: Any) -> Any:
    """Return the same content with the infinite numbers that JSON has only as words."""
    if isinstance(value, dict):
        return {key: _with_infinities(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_infinities(entry) for entry in value]
    return float(value) if value in ("infinity", "-infinity") else value
