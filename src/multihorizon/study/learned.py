"""Part "learned": what each algorithm learns on each domain.

Deterministic experts are one action per state (the first optimal one), or for "MPLP, action sets" all optimal actions; the
entropy-regularised ones are exact policies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.domains import Domain
from multihorizon.study.settings import EPSILON, L1, REWARD_BOUND, TEMPERATURE, THRESHOLD, Progress, Settings, study_domains

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
