"""The same people under several conditions, made by hand, for tests of what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

import multihorizon as mh


def under_conditions(solution: mh.Solution, persons: int = 0, slopes: bool = True, seed: int = 0) -> mh.Solution:
    """A solution of `Population` as if everyone had decided with noise low and high in blocks 1 to 6, the last with low alone.

    With `persons`, there are that many instead of those of the solution.
    """
    rng, found = np.random.default_rng(seed), solution.evidence["population"]
    names = solution.experts if not persons else tuple(f"p{i}" for i in range(persons))
    n, largest = len(names), found.largest_discount
    who, noise, block = (each.ravel() for each in np.meshgrid(np.arange(n), [0, 1], np.arange(1, 7), indexing="ij"))
    seen = (who < n - 1) | (noise == 0)
    who, noise, block = who[seen], noise[seen], block[seen]
    own, slope = 1.2 * rng.normal(size=n), 0.5 * slopes * rng.normal(size=n)
    logits = 2.4 + own[who] - (0.9 + slope[who]) * noise - 0.1 * block
    error = 0.3 + 0.2 * rng.random(who.size)
    cells: dict[str, Any] = {
        "expert": np.array(names, dtype=object)[who],
        "pattern": np.array(["noise = low, block = 3.5", "noise = high, block = 3.5"], dtype=object)[noise],
        "noise": np.array(["low", "high"], dtype=object)[noise],
        "block": block,
        "decisions": np.full(who.size, 20.0),
        "discount": largest * expit(logits),
        "low": largest * expit(logits - 1.96 * error),
        "high": largest * expit(logits + 1.96 * error),
        "logit_discount": logits,
        "logit_discount_error": error,
        "log_temperature": np.full(who.size, 0.5),
        "log_temperature_error": np.full(who.size, 0.1),
        "discount_reliability": 0.5 + 0.3 * rng.random(who.size),
    }

    def effect(estimate: float, error: float) -> dict[str, Any]:
        ends = [estimate - 2 * error, estimate + 2 * error]
        return {"estimate": estimate, "standard_error": error, "interval": ends, "p": 0.0004, "method": "standard error"}

    def pair(column: str, number: bool, levels: list[str], logits: list[float], estimate: float) -> dict[str, Any]:
        typical = (largest * expit(np.array(logits))).tolist()
        said = {"column": column, "number": number, "levels": levels, "typical": typical, "adjusted": 0.0004}
        return {**said, **effect(estimate, 0.2)}

    terms = {"Intercept": effect(2.4, 0.3), "noise[T.high]": effect(-0.9, 0.2), "block": effect(-0.1, 0.02)}
    compared = [pair("noise", False, ["low", "high"], [2.0, 1.1], -0.9), pair("block", True, ["2", "5"], [1.8, 1.5], -0.3)]
    prediction = found.predictions[next(iter(found.predictions))]
    predictions = {
        f"noise = {level}, block = 3.5": {
            **prediction,
            "typical_discount": float(largest * expit(centre)),
            "typical_interval": (largest * expit([centre - 0.4, centre + 0.4])).tolist(),
            "new_person_interval": (largest * expit([centre - 2.4, centre + 2.4])).tolist(),
        }
        for level, centre in (("low", 2.0), ("high", 1.1))
    }
    parts = {"person": 0.62, "covariates": 0.0, "condition": 0.25, "person_by_condition": 0.13 * slopes, "total": 2.1}
    parts |= {"between_low": 0.45, "between_high": 0.79}
    pick = np.arange(n) % len(solution.experts)
    population = replace(
        found,
        persons=n,
        discount=terms,
        temperature=terms,
        discount_covariance=0.04 * np.eye(3),
        temperature_covariance=0.04 * np.eye(3),
        factors={"discount": {}, "temperature": {}},
        contrasts={"discount": compared, "temperature": compared},
        columns_of={"Intercept": [], "noise[T.high]": ["noise"], "noise": ["noise"], "block": ["block"]},
        predictions=predictions,
        groups=np.array(["everyone"] * n, dtype=object),
        covariates={},
        individuals={name: np.asarray(values)[pick] for name, values in found.individuals.items()},
        cells=cells,
        references={"noise": "low"},
        variance={"discount": parts, "temperature": parts},
        slopes={
            "noise[T.high]": {
                "discount": {"estimate": 0.5, "interval": [0.3, 0.8]},
                "temperature": {"estimate": 0.1, "interval": [0.02, 0.4]},
            }
        }
        if slopes
        else None,
    )
    assert np.isfinite(logit(cells["discount"] / largest)).all()
    return replace(solution, evidence=replace(solution.evidence, population=population))
