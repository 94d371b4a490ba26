"""What a fit leaves behind: `result.json`, `result.npz`, `people.csv`, `reward.csv` and `report.html`, all or none.

A number that the data do not determine is null in the JSON, NaN in the arrays and empty in the CSV.

What a fit to states that are vectors leaves behind: `result.json`, `people.csv`, `reward.csv` and `report.html`, all or none.

`reward.csv` holds the reward and its standard error at states spread over the log; `reward_functions` evaluates it anywhere.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.analysis import LEVEL, Analysis, SampledAnalysis, limit_of
from multihorizon.checks import Floats
from multihorizon.choice.sieve import LARGEST_DISCOUNT
from multihorizon.choice.tabular import DENSE_REWARDS
from multihorizon.data.dynamics import untaken_actions
from multihorizon.files import for_json, write_all, write_csv, write_json
from multihorizon.mdp import MDP
from multihorizon.questions.model_checks import WORST
from multihorizon.report.fit_page import fit_page
from multihorizon.result import package_version
from multihorizon.solution import Status

FILES = ("result.json", "result.npz", "people.csv", "reward.csv", "report.html")


def write_fit(directory: Path, analysis: Analysis, options: dict[str, Any]) -> None:
    """Write all files of a fit."""

    def write(draft: Path) -> None:
        _write_numbers(draft, analysis, options)
        _write_arrays(draft / "result.npz", analysis, options)
        write_csv(_reward_frame(analysis), draft / "reward.csv")
        fit_page(analysis, options).write(draft / "report.html")

    write_all(directory, FILES, write)


def write_so_far(directory: Path, analysis: Analysis, options: dict[str, Any]) -> None:
    """Write what is known while the work goes on: `result.json` and `people.csv`. Other files of an older fit are removed."""
    write_all(directory, FILES, lambda draft: _write_numbers(draft, analysis, options))


def _write_numbers(draft: Path, analysis: Analysis, options: dict[str, Any]) -> None:
    write_json(draft / "result.json", result_of(analysis, options))
    write_csv(analysis.to_frame(), draft / "people.csv")


def result_of(analysis: Analysis, options: dict[str, Any]) -> dict[str, Any]:
    """The content of `result.json`."""
    solution, known, names = analysis.solution, analysis.given, analysis.problem.parameter_names
    reward, errors = _determined_reward(analysis)
    return {
        "experts": list(solution.experts),
        "warnings": analysis.warnings,
        "headline": analysis.headline,
        "verdicts": [asdict(verdict) for verdict in analysis.verdicts],
        "withheld": analysis.withheld or None,
        "finished": analysis.finished,
        "quick": analysis.quick,
        "discounts": [float(g) if k else None for g, k in zip(solution.discounts, known, strict=True)],
        "intervals": analysis.intervals.tolist(),
        "level": LEVEL,
        "known": solution.evidence.get("known"),
        "groups": solution.options.get("groups"),
        "at_limit": [limit_of(analysis, k) for k in range(len(known))],
        "largest_discount": analysis.largest_discount,
        "standard_errors": None if analysis.withheld else solution.standard_errors,
        "effective_horizons": [_horizon(analysis, k) for k in range(len(known))],
        "longest_episode": _finite(analysis.steps),
        "episodes": analysis.episodes.tolist(),
        "decisions_by_expert": analysis.decisions.tolist(),
        "pseudo_r2": analysis.explained.tolist(),
        "temperatures": analysis.temperatures,
        "reward": dict(zip(names, reward.tolist(), strict=True)),
        "reward_standard_errors": None if analysis.reward_given else dict(zip(names, errors.tolist(), strict=True)),
        "reward_contrasts": None if analysis.reward_given else _contrasts_by_name(analysis),
        "status": str(solution.status),
        "message": solution.message,
        "identified": analysis.identified,
        "reasons": {name: reason for name, reason in zip(solution.experts, analysis.reasons, strict=True) if reason},
        "verdict": analysis.verdicts[1].reasons,
        "collect_next": analysis.advice,
        "identification": None if analysis.identification is None else analysis.identification.to_dict(),
        "shared_discount_test": None if analysis.shared is None else analysis.shared.to_dict(),
        "pairwise_tests": [test.to_dict() for test in analysis.pairs] or None,
        "equal_temperatures_p": solution.evidence.get("equal_temperatures_p"),
        "goals": None if analysis.goals is None else analysis.goals.to_dict(),
        "lookahead": None if analysis.lookahead is None else analysis.lookahead.to_dict(),
        "model_checks": _checks(analysis),
        "one_maximum": {"discounts": solution.discounts.tolist(), "log_likelihood": solution.objective},
        "decisions": solution.evidence["decisions"],
        "residual": solution.residual,
        "ridge": solution.evidence["ridge"],
        "untaken_actions": [untaken_actions(mdp) for mdp in _mdps(analysis) if mdp.sample_sizes is not None],
        "penalty": _penalty(analysis),
        "population": _population(analysis),
        "recovery": None if analysis.recovery is None else analysis.recovery.to_dict(),
        "remarks": analysis.remarks,
        "seconds": solution.seconds,
        "seed": solution.seed,
        "options": options,
        "version": package_version(),
    }


def _mdps(analysis: Analysis) -> list[MDP]:
    """The task of each table, once."""
    return list(dict.fromkeys(expert.mdp for expert in analysis.problem.experts))


def _checks(analysis: Analysis) -> dict[str, Any]:
    """Held-out predictions and the states that fit worst; own frequencies only where choices repeat."""
    if analysis.checks is None:
        return {"worst_states": [misfit._asdict() for misfit in analysis.misfits[:WORST]]}
    found = analysis.checks.to_dict()
    found["held_out"]["chance"] = analysis.chance.tolist()
    if not analysis.choices_repeat:
        del found["held_out"]["own frequencies"]
    return found


def _determined_reward(analysis: Analysis) -> tuple[Floats, Floats]:
    """The reward and its standard errors `(d,)`, NaN where the decisions do not determine them or they are withheld."""
    errors = np.array(analysis.solution.evidence["reward_standard_errors"], dtype=np.float64)
    known = np.isfinite(errors) | (errors.size > DENSE_REWARDS)  # of so many, errors are not computed
    if analysis.withheld or analysis.solution.status == Status.NOT_IDENTIFIED:
        known = np.zeros(errors.size, dtype=np.bool_)
    return np.where(known, analysis.solution.reward, np.nan), np.where(known, errors, np.nan)


def _contrasts(analysis: Analysis) -> tuple[list[float], list[float]]:
    gone = np.nan if analysis.withheld else 1.0
    return (gone * analysis.contrasts.values).tolist(), (gone * analysis.contrasts.standard_errors).tolist()


def _contrasts_by_name(analysis: Analysis) -> dict[str, dict[str, float]]:
    rows = zip(analysis.problem.parameter_names, *_contrasts(analysis), strict=True)
    return {name: {"estimate": value, "standard_error": error} for name, value, error in rows}


def _horizon(analysis: Analysis, k: int) -> float | str | None:
    return _finite(analysis.horizon(float(analysis.solution.discounts[k]))) if analysis.given[k] else None


def _finite(value: float) -> float | str:
    """JSON has no infinity; null stands for what is not known."""
    return "infinity" if np.isinf(value) else float(value)


def _population(analysis: Analysis) -> dict[str, Any] | None:
    """Effects of covariates, the spread between persons, and shrunken persons."""
    found = analysis.population
    if found is None:
        return None
    shrunken = {"discounts": found.discounts, "intervals": found.confidence_intervals(LEVEL), "temperatures": found.temperature}
    head = {"status": str(found.status), "message": found.message, "experts": found.experts}
    evidence = found.evidence["population"]
    pairs = [
        {**pair, "steps": [_finite(analysis.horizon(discount)) for discount in pair["typical"]]}
        for pair in evidence["contrasts"]["discount"]
    ]
    return {**head, **evidence, "contrasts": {**evidence["contrasts"], "discount": pairs}, **shrunken}


def _penalty(analysis: Analysis) -> dict[str, Any] | None:
    """What a penalty that was asked for moved."""
    if analysis.penalty is None:
        return None
    free = analysis.penalty.without
    return {
        "ridge": analysis.penalty.ridge,
        "discounts_without": free.discounts.tolist(),
        "log_likelihood_without": free.objective,
        "status_without": str(free.status),
    }


def _write_arrays(path: Path, analysis: Analysis, options: dict[str, Any]) -> None:
    solution = analysis.solution
    known = np.array(analysis.given)
    policies = {f"policy_{i}": policy for i, policy in enumerate(solution.policies())}
    np.savez_compressed(
        path,
        experts=np.array(solution.experts),
        discounts=np.where(known, solution.discounts, np.nan),
        intervals=analysis.intervals,
        reward=_determined_reward(analysis)[0],
        reward_names=np.array(analysis.problem.parameter_names),
        version=np.array(package_version()),
        seed=np.array(solution.seed),
        options=np.array(json.dumps(for_json(options))),
        **policies,  # type: ignore[arg-type]
    )


def _reward_frame(analysis: Analysis) -> pd.DataFrame:
    names, (reward, errors) = analysis.problem.parameter_names, _determined_reward(analysis)
    kind = "state" if names == analysis.problem.experts[0].mdp.state_names else "parameter"
    difference, difference_error = _contrasts(analysis)
    columns = {kind: names, "reward": reward, "standard_error": errors}
    return pd.DataFrame({**columns, "difference": difference, "difference_standard_error": difference_error})


STEP_FILES = ("result.json", "people.csv", "reward.csv", "report.html")


def write_sampled(directory: Path, found: SampledAnalysis, options: dict[str, Any]) -> None:
    """Write all files of a fit."""

    def write(draft: Path) -> None:
        write_json(draft / "result.json", result_of_sampled_report(found, options))
        write_csv(found.to_frame(), draft / "people.csv")
        write_csv(_rewards(found), draft / "reward.csv")
        fit_page(found, options).write(draft / "report.html")

    write_all(directory, STEP_FILES, write)


def result_of_sampled_report(found: SampledAnalysis, options: dict[str, Any]) -> dict[str, Any]:
    """The content of `result.json`."""
    solution, given, people = found.solution, found.given, found.to_frame().sort_index()
    reward = np.where(bool(found.withheld), np.nan, solution.reward)
    discounts = [float(g) if k else None for g, k in zip(solution.discounts, given, strict=True)]
    return {
        "experts": list(solution.experts),
        "warnings": found.warnings,
        "headline": found.headline,
        "verdicts": [asdict(verdict) for verdict in found.verdicts],
        "withheld": found.withheld or None,
        "finished": found.finished,
        "quick": found.quick,
        "discounts": discounts,
        "intervals": found.intervals.tolist(),
        "level": LEVEL,
        "known": {"discounts": found.known},
        "largest_discount": LARGEST_DISCOUNT,
        "standard_errors": people["standard_error"].tolist(),
        "effective_horizons": [None if g is None else 1 / (1 - g) for g in discounts],
        "temperatures": found.temperatures,
        "reward": dict(zip(solution.reward_frame()["parameter"], reward.tolist(), strict=True)),
        "coordinates": solution.evidence["coordinates"],
        "status": str(solution.status),
        "message": solution.message,
        "shared_discount_test": None if found.shared is None else found.shared.to_dict(),
        "pairwise_tests": [test.to_dict() for test in found.pairs] or None,
        "evidence": solution.evidence,
        "identified": found.identified,
        "reasons": {name: reason for name, reason in zip(solution.experts, found.reasons, strict=True) if reason},
        "at_limit": [limit_of(found, k) for k in range(len(given))],
        "episodes": found.episodes.tolist(),
        "pseudo_r2": found.explained.tolist(),
        "decisions_by_expert": found.decisions.tolist(),
        "residual": solution.residual,
        "seconds": solution.seconds,
        "seed": solution.seed,
        "options": options,
        "version": package_version(),
    }


def _rewards(found: SampledAnalysis) -> pd.DataFrame:
    frame = found.functions.to_frame()
    return frame.assign(reward=np.nan, standard_error=np.nan) if found.withheld else frame
