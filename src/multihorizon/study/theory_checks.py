"""Part "theory": Theorem 2, Proposition 1 and the duality gap in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.study.settings import TEMPERATURE, Progress, Settings, study_domains
from multihorizon.theory import duality_chain, gap_and_mismatch, likelihood_slopes

#: Discounts among which the dual's inner maximum and the likelihood's maximum are sought, beside the true ones.
AXIS = (0.0, 0.25, 0.5, 0.75, 0.9)


def compute(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
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
