"""Part "convergence": Bayesian optimisation against the best known optimum, that of sequential linear programming."""

from __future__ import annotations

from typing import Any

import multihorizon as mh
from multihorizon.study.learned import ALGORITHMS, describe
from multihorizon.study.settings import REWARD_BOUND, Progress, Settings, study_domains

MPLP_CASE = ALGORITHMS[0]


def compute(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
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
