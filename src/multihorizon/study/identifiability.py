"""Part "identifiability": which discounts let some reward explain the experts.

* the paper's grid over three experts' discounts, on each domain;
* the two-expert toy: nearly every pair of discounts has a reward that explains both, and how badly those rewards generalise;
* the set of discounts that explains the toy's three experts, nearly all of which the grid misses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

import multihorizon as mh
from multihorizon.domains import Domain, toy
from multihorizon.study.settings import TEMPERATURE, Floats, Progress, Settings, study_domains
from multihorizon.theory import feasibility_at, feasibility_grid, rewards_at

#: Residual, in units of the reward, up to which a point of the grid counts as feasible.
TOLERANCE = 1e-8


def compute(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The three studies."""
    cases = {**study_domains(), "toy, absorbing": toy(ending="absorbing")}
    grids = {}
    for number, (name, domain) in enumerate(cases.items()):
        progress(number / 6, f"grid on {name}")
        grids[name] = _grid(domain, settings)
    progress(4 / 6, "two experts on the toy")
    pairs = {ending: _two_experts(toy(ending=ending), settings) for ending in ("terminal", "absorbing")}
    progress(5 / 6, "the set behind the toy")
    sets = {ending: _set(toy(ending=ending)) for ending in ("terminal", "absorbing")}
    sets["terminal"]["points"] = _curve(toy(), np.array([m["discounts"] for m in sets["terminal"]["members"]]))
    sets["absorbing"]["points"] = _surface(toy(ending="absorbing"), settings)
    return {"grids": grids, "two experts": pairs, "sets": sets}


def _problem(domain: Domain, count: int = 3) -> mh.Problem:
    return mh.Problem(domain.mdp, domain.mce_experts(TEMPERATURE)[:count])


def _grid(domain: Domain, settings: Settings) -> dict[str, Any]:
    """Feasible points of the three-expert grid, and the residuals on the plane through the true last discount."""
    found = feasibility_grid(_problem(domain), mh.Grid(settings.grid_step, settings.jobs), TEMPERATURE, TOLERANCE)
    plane = int(np.argmin(np.abs(found.axis - domain.mce_discounts[2])))
    levels = np.log10(np.maximum(found.residuals.ravel(), 1e-16))
    counts, edges = np.histogram(levels, bins=np.arange(-16, 2.5, 0.5))
    return {
        "points": int(found.residuals.size),
        "feasible": found.points,
        "true": list(domain.mce_discounts),
        "second smallest residual": float(np.partition(found.residuals.ravel(), 1)[1]),
        "histogram": {"edges": edges, "counts": counts},
        "step": settings.grid_step,
        "axis": found.axis,
        "plane": {"discount": float(found.axis[plane]), "log10 residual": _short(np.log10(found.residuals[:, :, plane] + 1e-16))},
    }


def _two_experts(domain: Domain, settings: Settings) -> dict[str, Any]:
    """For each pair of discounts the reward that explains the first two experts, and its generalization error."""
    problem = _problem(domain, 2)
    grid = mh.Grid(settings.grid_step, 1)
    found = feasibility_grid(problem, grid, TEMPERATURE, TOLERANCE)
    points = np.stack(np.meshgrid(found.axis, found.axis, indexing="ij"), axis=-1).reshape(-1, 2)
    errors = _toy_errors(domain, rewards_at(problem, points, TEMPERATURE), settings).reshape(found.residuals.shape)
    off = ~np.eye(found.axis.size, dtype=np.bool_)
    usable = errors[off & found.feasible]
    return {
        "axis": found.axis,
        "feasible share off the diagonal": float(found.feasible[off].mean()),
        "error": _short(np.where(off, errors, np.nan)),
        "percentiles": np.percentile(usable, np.arange(0, 101)),
        "share above 0.5": float((usable > 0.5).mean()),
        "true": list(domain.mce_discounts[:2]),
    }


def _toy_errors(domain: Domain, rewards: Floats, settings: Settings) -> Floats:
    """Generalization error of many toy rewards `(n,4)` at once.

    In s1, s2 and s3 all actions are alike, so only the action in s0 matters, and the value of "always a" is linear in the
    reward: its feature counts.
    """
    losses = []
    for task in domain.tasks(settings.tasks, settings.seed):
        counts = np.stack([mh.feature_counts(task.mdp, np.eye(3)[[a] * 4], task.discount) for a in range(3)])
        true = counts @ domain.reward
        chosen = (rewards @ counts.T).argmax(axis=1)
        losses.append((true.max() - true[chosen]) / true.max())
    mean: Floats = np.mean(losses, axis=0)
    return mean


def _set(domain: Domain) -> dict[str, Any]:
    """What `identify` says about three toy experts, with two answers that both reproduce them."""
    report = mh.identify(_problem(domain), TEMPERATURE)
    return {
        "status": report.status,
        "dimension": report.dimension,
        "intervals": report.intervals,
        "singular values": report.singular_values,
        "members": [{"discounts": m.discounts, "reward": m.reward, "error": m.error} for m in report.members],
    }


def _curve(domain: Domain, ends: Floats) -> Floats:
    """Points of the curve of discounts between two of its members: γ_1 is fixed, the others go to the nearest zero residual."""
    problem = _problem(domain)

    def residual(rest: Floats, first: float) -> float:
        return float(feasibility_at(problem, np.array([[first, *rest]]), TEMPERATURE)[0])

    points = []
    for share in np.linspace(0.01, 0.99, 30):
        start = ends[0] + share * (ends[-1] - ends[0])
        options = {"xatol": 1e-12, "fatol": 1e-13, "maxiter": 2000, "maxfev": 4000}
        found = minimize(residual, start[1:], (start[0],), method="Nelder-Mead", options=options)
        if found.fun <= TOLERANCE and (found.x >= 0).all() and (found.x <= 1).all():
            points.append([start[0], *found.x])
    return np.array(points).reshape(-1, 3)


def _surface(domain: Domain, settings: Settings) -> Floats:
    """The discounts that explain three toy experts without an end: for each (γ_1, γ_2) the γ_3 with residual 0, if any.

    The residual is the absolute value of one smooth function of Γ there, so its zeros are the bottoms of V-shaped valleys:
    each local minimum on a line is narrowed by grid refinement and kept if it goes down to rounding.
    """
    problem = _problem(domain)
    side = np.linspace(0, 0.98, 15 if settings.quick else 50)
    line = np.linspace(0, 0.99, 100)
    pairs = np.array([(a, b) for a in side for b in side if abs(a - b) > 1e-9])
    points = np.concatenate([np.repeat(pairs, line.size, axis=0), np.tile(line, len(pairs))[:, None]], axis=1)
    residuals = feasibility_at(problem, points, TEMPERATURE, settings.jobs).reshape(len(pairs), line.size)
    inner = residuals[:, 1:-1]
    rows, columns = np.nonzero((inner <= residuals[:, :-2]) & (inner <= residuals[:, 2:]))
    starts = np.concatenate([pairs[rows], line[columns + 1][:, None]], axis=1)
    return _narrow(problem, starts, line[1] - line[0])


def _narrow(problem: mh.Problem, starts: Floats, width: float) -> Floats:
    """Move the last discount of each start to the bottom of its valley, by grids of 21 points around the best so far."""
    offsets = np.linspace(-1, 1, 21)
    best = starts.copy()
    for _ in range(10):
        trial = np.repeat(best, offsets.size, axis=0)
        trial[:, -1] = np.clip(trial[:, -1] + np.tile(offsets * width, len(best)), 0, 1)
        residuals = feasibility_at(problem, trial, TEMPERATURE).reshape(len(best), -1)
        best = trial.reshape(len(best), -1, best.shape[1])[np.arange(len(best)), residuals.argmin(axis=1)]
        width /= 8
    found: Floats = best[residuals.min(axis=1) <= TOLERANCE]
    return found


def _short(array: Floats) -> list[list[float | None]]:
    """Rounded to four digits, None for NaN, so that the JSON of a heat map stays small."""
    return [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in array]
