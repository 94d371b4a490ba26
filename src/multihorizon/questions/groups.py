"""What a population says of groups and persons, as columns of `people.csv` and as part of `result.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from multihorizon.driver import solve
from multihorizon.finding import Finding
from multihorizon.parallel import Progress
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.questions.differences import population_answer
from multihorizon.questions.fitted import Asked, F, Fitted
from multihorizon.questions.people import CONDITIONS, PEOPLE, unit_columns
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL


def differences(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding | None:
    """Say whether discounts differ with what was asked about, or how many types there are."""
    return None if fitted.population is None else population_answer(fitted.population, fitted.horizon)


def population_columns(fitted: Fitted, solution: Solution) -> pd.DataFrame:
    """Return shrunken values and covariates, one row per expert in the problem's order; NaN for those left out."""
    population = PopulationEvidence.of(solution).population
    ends = solution.confidence_intervals(LEVEL)
    columns = {
        "shrunken_discount": solution.discounts,
        "shrunken_low": ends[:, 0],
        "shrunken_high": ends[:, 1],
        "shrunken_temperature": solution.temperature,
        **unit_columns(population),
        **{f"covariate_{name}": values for name, values in population.covariates.items() if name != "expert"},
    }
    return pd.DataFrame(columns, solution.experts).reindex(fitted.solution.experts).reset_index(drop=True)


def conditions_frame(fitted: Fitted) -> pd.DataFrame | None:
    """Return one row per person and condition. None where the formula has none, or the population has no usable answer."""
    solution = fitted.population
    if solution is None or solution.status != Status.CONVERGED or (fitted.people is not None and fitted.withheld):
        return None
    return PopulationEvidence.of(solution).population.conditions_frame()


def content(fitted: Fitted) -> dict[str, Any]:
    """Return effects of covariates, the spread between persons, and shrunken persons; of very many, their file."""
    solution = fitted.population
    if solution is None:
        return {"population": None}
    evidence = PopulationEvidence.of(solution)
    population = evidence.population
    pairs = [
        {**pair, "steps": [fitted.horizon(discount) for discount in pair["typical"]]} for pair in population.contrasts["discount"]
    ]
    part = {
        "status": str(solution.status),
        "message": solution.message,
        "experts": solution.experts,
        **population,
        "contrasts": {**population.contrasts, "discount": pairs},
        "predicted_by_group": [asdict(group) for group in fitted.predicted],
    }
    if fitted.people is None:
        part |= {"discounts": solution.discounts, "intervals": solution.confidence_intervals(LEVEL)}
        return {"population": part | {"temperatures": solution.temperature}}
    lists = "experts", "groups", "covariates", "individuals", "discounts", "intervals", "temperatures"
    reasons = pd.Series(population.left_out, dtype=object).value_counts()
    part |= dict.fromkeys(lists, PEOPLE) | ({} if population.cells is None else {"cells": CONDITIONS})
    part |= {"left_out": {str(reason): int(number) for reason, number in reasons.items()}}
    return {"population": part | {"log_likelihood": evidence.log_likelihood}}


def compare_persons(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add the population, in which groups and persons are compared."""
    assert asked.population is not None
    yield replace(fitted, population=solve(fitted.problem, asked.population, seed=asked.seed, progress=progress))
