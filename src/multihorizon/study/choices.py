"""Part "choices": how much the answers depend on what the paper leaves open.

Each entry lists the values tried; the one the study uses stands in `settings`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.domains import Domain, big_small, toy
from multihorizon.study.generalize import error_of
from multihorizon.study.paper import DISCOUNTS, TOY_REWARDS
from multihorizon.study.settings import EPSILON, REWARD_BOUND, TEMPERATURE, Progress, Settings, study_domains


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


def _mplp(domain: Domain, experts: Any, settings: Settings, l1: float, bound: float) -> dict[str, Any]:
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
        row = _mplp(domain, domain.lp_experts(), settings, l1, REWARD_BOUND["toy"])
        rows.append({"value": l1, **row, "distance to the paper's reward": float(np.abs(row["reward"] - printed).max())})
    return rows


def _bound(settings: Settings) -> list[dict[str, Any]]:
    domain = toy()
    return [{"value": bound, **_mplp(domain, domain.lp_experts(), settings, 0.0, bound)} for bound in (1.0, 10.0, 100.0)]


def _height(settings: Settings) -> list[dict[str, Any]]:
    printed = np.array(DISCOUNTS["MPLP"]["big-small"])
    rows = []
    for height in (2, 3, 4, 5):
        domain = big_small(height)
        row = _mplp(domain, domain.lp_experts(), settings, 0.0, REWARD_BOUND["big-small"])
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
    return [{"value": name, **_mplp(domain, chosen, settings, 0.0, bound)} for name, chosen in experts.items()]


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
