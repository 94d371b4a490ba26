"""Part "learned": what each algorithm learns on each domain.

Deterministic experts are one action per state (the first optimal one), or for "MPLP, action sets" all optimal actions; the
entropy-regularised ones are exact policies.

Part "choices": how much the answers depend on what the paper leaves open.

Each entry lists the values tried; the one the study uses stands in `settings`.

Part "convergence": Bayesian optimisation against the best known optimum, that of sequential linear programming.

Part "identifiability": which discounts let some reward explain the experts.

* the paper's grid over three experts' discounts, on each domain;
* the two-expert toy: nearly every pair of discounts has a reward that explains both, and how badly those rewards generalise;
* the set of discounts that explains the toy's three experts, nearly all of which the grid misses.

Part "theory": Theorem 2, Proposition 1 and the duality gap in numbers.

Part "thresholds": how the discounts that MPMCE learns move with the threshold within which experts are matched.

The paper's discussion says that features are matched "within some threshold", and does not print it.

Part "toy": values against the discount under the true and the learned rewards, and where Assumption 1 fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize

import multihorizon as mh
from multihorizon.domains.base import Domain
from multihorizon.domains.grids import big_small, toy
from multihorizon.paper.settings import (
    DISCOUNTS,
    EPSILON,
    L1,
    REWARD_BOUND,
    TEMPERATURE,
    THRESHOLD,
    TOY_REWARDS,
    Floats,
    Progress,
    Settings,
    error_of,
    study_domains,
)
from multihorizon.paper.theory import (
    duality_chain,
    feasibility_at,
    feasibility_grid,
    gap_and_mismatch,
    likelihood_slopes,
    rewards_at,
)
from multihorizon.planning.evaluation import feature_counts

Solver = mh.MPLP | mh.NaiveLP | mh.MPMCE | mh.ClosedForm


@dataclass(frozen=True)
class Algorithm:
    """A solver with the kind of experts it is given; `paper` is its name in the paper's tables, if it is there."""

    name: str
    experts: str
    solver: Callable[[Domain, Settings], Solver]
    paper: str | None = None

    def problem(self, domain: Domain) -> mh.Problem:
        """The domain with this algorithm's kind of experts."""
        kinds: dict[str, Callable[[], list[Any]]] = {
            "actions": domain.lp_experts,
            "action sets": domain.lp_action_sets,
            "policies": lambda: domain.mce_experts(TEMPERATURE),
        }
        return mh.Problem(domain.mdp, kinds[self.experts]())

    def true_discounts(self, domain: Domain) -> tuple[float, ...]:
        """The discounts that made this algorithm's experts."""
        return domain.mce_discounts if self.experts == "policies" else domain.lp_discounts


def _mplp(domain: Domain, settings: Settings) -> Solver:
    return mh.MPLP(l1=L1[domain.name], reward_bound=REWARD_BOUND[domain.name])


def _naive(domain: Domain, settings: Settings) -> Solver:
    return mh.NaiveLP(l1=L1[domain.name], reward_bound=REWARD_BOUND[domain.name])


def _summed(domain: Domain, settings: Settings) -> Solver:
    return mh.MPMCE(TEMPERATURE, gap="summed", tolerance=EPSILON, search=mh.Bayesian(settings.mce_evaluations))


def _threshold(domain: Domain, settings: Settings) -> Solver:
    return mh.MPMCE(TEMPERATURE, gap="threshold", threshold=THRESHOLD)


def _per_expert(domain: Domain, settings: Settings) -> Solver:
    return mh.MPMCE(TEMPERATURE, gap="per_expert", search=mh.Bayesian(settings.mce_evaluations))


ALGORITHMS = (
    Algorithm("MPLP", "actions", _mplp, "MPLP"),
    Algorithm("MPLP, action sets", "action sets", _mplp),
    Algorithm("NaiveLP", "actions", _naive, "NaiveLP"),
    Algorithm("MPMCE, threshold", "policies", _threshold, "MPMCE"),
    Algorithm("MPMCE, summed gap", "policies", _summed),
    Algorithm("MPMCE, per expert", "policies", _per_expert),
    Algorithm("ClosedForm", "policies", lambda domain, settings: mh.ClosedForm(TEMPERATURE)),
)

#: The algorithms that are in the paper's tables, with their names there.
PAPER_NAMES = {algorithm.name: algorithm.paper for algorithm in ALGORITHMS if algorithm.paper}


def compute_learned(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data[domain][algorithm]`: discounts, reward, status, objective, and the trace of the search."""
    cases = [(d, a) for d in study_domains().values() for a in ALGORITHMS]
    data: dict[str, Any] = {}
    for number, (domain, algorithm) in enumerate(cases):
        progress(number / len(cases), f"{algorithm.name} on {domain.name}")
        solution = mh.solve(algorithm.problem(domain), algorithm.solver(domain, settings), settings.seed)
        data.setdefault(domain.name, {})[algorithm.name] = describe(solution, algorithm.true_discounts(domain))
    return data


def describe(solution: mh.Solution, true: tuple[float, ...]) -> dict[str, Any]:
    """A solution as plain numbers; seconds are kept apart under a key that the runner moves to the timings."""
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


def _without_jobs(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that can change the answer: not the number of processes."""
    return {k: _without_jobs(v) if isinstance(v, Mapping) else v for k, v in options.items() if k != "jobs"}


def compute(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """One list of rows for each choice."""
    studies = {
        "l1 weight (toy)": _l1,
        "reward bound (toy)": _bound,
        "height of big-small": _height,
        "ties of big-small": _ties,
        "temperature": _temperature,
        "gap ε of the printed rule (toy)": _epsilon,
        "how early the inner solver stops, printed rule (toy)": _inner,
    }
    data = {}
    for number, (name, study) in enumerate(studies.items()):
        progress(number / len(studies), name)
        data[name] = study(settings)
    return data


def _mplp_choices(domain: Domain, experts: Any, settings: Settings, l1: float, bound: float) -> dict[str, Any]:
    solution = mh.solve(mh.Problem(domain.mdp, experts), mh.MPLP(l1=l1, reward_bound=bound), settings.seed)
    return {
        "discounts": solution.discounts,
        "reward": solution.reward,
        "objective": solution.objective,
        "error": error_of(domain, solution.reward, settings)["mean"],
    }


def _l1(settings: Settings) -> list[dict[str, Any]]:
    domain = toy()
    printed = np.array(TOY_REWARDS["MPLP"])
    rows = []
    for l1 in (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.1):
        row = _mplp_choices(domain, domain.lp_experts(), settings, l1, REWARD_BOUND["toy"])
        rows.append({"value": l1, **row, "distance to the paper's reward": float(np.abs(row["reward"] - printed).max())})
    return rows


def _bound(settings: Settings) -> list[dict[str, Any]]:
    domain = toy()
    return [{"value": bound, **_mplp_choices(domain, domain.lp_experts(), settings, 0.0, bound)} for bound in (1.0, 10.0, 100.0)]


def _height(settings: Settings) -> list[dict[str, Any]]:
    printed = np.array(DISCOUNTS["MPLP"]["big-small"])
    rows = []
    for height in (2, 3, 4, 5):
        domain = big_small(height)
        row = _mplp_choices(domain, domain.lp_experts(), settings, 0.0, REWARD_BOUND["big-small"])
        rows.append(
            {"value": height, **row, "distance to the paper's discounts": float(np.abs(row["discounts"] - printed).max())}
        )
    return rows


def _ties(settings: Settings) -> list[dict[str, Any]]:
    domain = big_small()
    sets = domain.lp_action_sets()
    last = [s.shape[1] - 1 - s[:, ::-1].argmax(axis=1) for s in sets]
    experts = {"first optimal action": domain.lp_experts(), "last optimal action": last, "all optimal actions": sets}
    bound = REWARD_BOUND["big-small"]
    return [{"value": name, **_mplp_choices(domain, chosen, settings, 0.0, bound)} for name, chosen in experts.items()]


def _temperature(settings: Settings) -> list[dict[str, Any]]:
    rows = []
    for temperature in (0.5, 1.0, 2.0, 5.0):
        for name, domain in study_domains().items():
            problem = mh.Problem(domain.mdp, domain.mce_experts(temperature))
            solution = mh.solve(problem, mh.ClosedForm(temperature), settings.seed)
            distance = float(np.abs(solution.discounts - domain.mce_discounts).max())
            rows.append(
                {"value": temperature, "domain": name, "status": str(solution.status), "largest error of a discount": distance}
            )
    return rows


def _epsilon(settings: Settings) -> list[dict[str, Any]]:
    tried = _some(settings, 1e-1, 1e-2, EPSILON, 1e-4)
    return [{"value": epsilon, **_printed_rule(settings, epsilon, 1e-7)} for epsilon in tried]


def _inner(settings: Settings) -> list[dict[str, Any]]:
    return [{"value": inner, **_printed_rule(settings, EPSILON, inner)} for inner in _some(settings, 1.0, 1e-1, 1e-2, 1e-7)]


def _some(settings: Settings, *values: float) -> tuple[float, ...]:
    """All values, or the first and the last in the quick run."""
    return (values[0], values[-1]) if settings.quick else values


def _printed_rule(settings: Settings, epsilon: float, inner: float) -> dict[str, Any]:
    """What Algorithm 2 as printed finds on the toy; `inner` is the gradient at which the inner solver stops."""
    domain = toy()
    search = mh.Bayesian(settings.mce_evaluations)
    solver = mh.MPMCE(TEMPERATURE, gap="summed", tolerance=epsilon, search=search, inner_tolerance=inner)
    solution = mh.solve(mh.Problem(domain.mdp, domain.mce_experts(TEMPERATURE)), solver, settings.seed)
    return {"discounts": solution.discounts, "objective": solution.objective, "mismatch": solution.residual}


MPLP_CASE = ALGORITHMS[0]


def compute_convergence(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data[domain]`: MPLP (l1 = 0) by three searches on the same problem."""
    searches: dict[str, mh.SequentialLP | mh.Bayesian | mh.Grid] = {
        "SequentialLP": mh.SequentialLP(),
        "Bayesian": mh.Bayesian(settings.lp_evaluations),
        "Grid": mh.Grid(settings.search_step, settings.jobs),
    }
    domains = study_domains()
    data: dict[str, Any] = {}
    for number, (name, domain) in enumerate(domains.items()):
        problem = MPLP_CASE.problem(domain)
        data[name] = {}
        for step, (label, search) in enumerate(searches.items()):
            progress((number + step / 3) / 3, f"{label} on {name}")
            solver = mh.MPLP(l1=0.0, reward_bound=REWARD_BOUND[name], search=search)
            data[name][label] = describe(mh.solve(problem, solver, settings.seed), domain.lp_discounts)
    return data


#: Residual, in units of the reward, up to which a point of the grid counts as feasible.
TOLERANCE = 1e-8


def compute_identifiability(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
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
        counts = np.stack([feature_counts(task.mdp, np.eye(3)[[a] * 4], task.discount) for a in range(3)])
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


#: Discounts among which the dual's inner maximum and the likelihood's maximum are sought, beside the true ones.
AXIS = (0.0, 0.25, 0.5, 0.75, 0.9)


def compute_theory_checks(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data["chain"]`, `data["slopes"]`, `data["gap"]`, each by domain."""
    data: dict[str, Any] = {"chain": {}, "slopes": {}, "gap": {}}
    rng = np.random.default_rng(settings.seed)
    for number, (name, domain) in enumerate(study_domains().items()):
        progress(number / 3, name)
        problem = mh.Problem(domain.mdp, domain.mce_experts(TEMPERATURE))
        data["chain"][name] = vars(duality_chain(problem, domain.mce_discounts, AXIS, TEMPERATURE))
        inner = [gamma for gamma in domain.mce_discounts if gamma > 0]
        data["slopes"][name] = {"discounts": inner, **vars(likelihood_slopes(domain.mdp, domain.reward, inner, TEMPERATURE))}
        tried = [domain.mce_discounts, domain.mce_discounts[::-1], *rng.uniform(0, 0.95, (3 if settings.quick else 20, 3))]
        data["gap"][name] = [
            {"discounts": list(gammas), **vars(gap_and_mismatch(problem, gammas, TEMPERATURE))} for gammas in tried
        ]
    return data


def compute_thresholds(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data[domain]`: one row per threshold, from the smallest to the largest."""
    cases = [(name, domain, threshold) for name, domain in study_domains().items() for threshold in settings.thresholds]
    data: dict[str, Any] = {}
    for number, (name, domain, threshold) in enumerate(cases):
        progress(number / len(cases), f"threshold {threshold:g} on {name}")
        known = done["learned"][name]["MPMCE, threshold"] if threshold == THRESHOLD else None
        data.setdefault(name, []).append(_row(domain, threshold, known or _solve(domain, threshold, settings), settings))
    return data


def _solve(domain: Domain, threshold: float, settings: Settings) -> dict[str, Any]:
    problem = mh.Problem(domain.mdp, domain.mce_experts(TEMPERATURE))
    solver = mh.MPMCE(TEMPERATURE, gap="threshold", threshold=threshold)
    return describe(mh.solve(problem, solver, settings.seed), domain.mce_discounts)


def _row(domain: Domain, threshold: float, found: dict[str, Any], settings: Settings) -> dict[str, Any]:
    kept = ("status", "discounts", "true", "ordered", "objective", "residual")
    error = error_of(domain, np.array(found["reward"]), settings)
    return {"threshold": threshold, **{key: found[key] for key in kept}, "error": error}


PAIRS = ((0, 1), (0, 2), (1, 2))


def compute_toy_study(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Value curves of "always a0, a1, a2" under three rewards, breakpoints, and pairwise crossings under the true reward."""
    domain = mh.domains.toy()
    axis = np.linspace(0, 1, 101)
    learned = {name: np.array(done["learned"]["toy"][name]["reward"]) for name in ("MPLP", "NaiveLP")}
    rewards = {"true": domain.reward, **learned}
    curves = {name: [[value(domain, reward, a, g) for g in axis] for a in range(3)] for name, reward in rewards.items()}
    return {
        "axis": axis,
        "curves": curves,
        "breakpoints": [interval.high for interval in mh.discount_intervals(domain.mdp, domain.reward)[:-1]],
        "crossings": {f"a{i} and a{j}": crossing(domain, i, j) for i, j in PAIRS},
    }


def value(domain: Domain, reward: Floats, action: int, discount: float) -> float:
    """The value of s0 when the same action is always taken."""
    policy = np.eye(3)[[action] * 4]
    return float(mh.evaluate(domain.mdp, policy, reward, discount).values[0])


def crossing(domain: Domain, first: int, second: int) -> float:
    """The discount at which two of the policies are worth the same in s0 under the true reward."""

    def difference(gamma: float) -> float:
        return value(domain, domain.reward, first, gamma) - value(domain, domain.reward, second, gamma)

    return float(brentq(difference, 0, 1, xtol=1e-14))
