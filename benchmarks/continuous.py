"""States that are vectors: errors, coverage, noise coordinates, time, and noisy embeddings of a finite task.

    python benchmarks/continuous.py navigation --seeds 0 10 --decisions 20000 --out errors.jsonl
    python benchmarks/continuous.py core       --seeds 0 100 --out coverage.jsonl
    python benchmarks/continuous.py screen     --seeds 0 10 --extra 6
    python benchmarks/continuous.py noise      --seeds 0 5 --extra 6 --out noise.jsonl
    python benchmarks/continuous.py speed      --out speed.jsonl
    python benchmarks/continuous.py icu        --seeds 0 3 --dimensions 3 --out icu.jsonl
    python benchmarks/continuous.py table errors.jsonl noise.jsonl

Each run adds one line per fit to its file, so that work can be done in parts and added up; `table` reads the lines. Times are
processor seconds. `navigation` runs the whole solver; `core` the estimator alone, with a given basis, for the coverage of 95%
intervals.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import multihorizon as mh
from multihorizon.choice.settings import Settings
from multihorizon.choice.sieve_model import SieveData, SieveModel
from multihorizon.likelihood.search import climb
from multihorizon.likelihood.sieve import fit_logits, relevant_coordinates, sieve_precision, starts

TRUE = np.array([0.5, 0.8, 0.95])


def fit(steps: mh.Steps, **options: Any) -> tuple[mh.Solution, float]:
    start = time.process_time()
    solution = mh.solve(mh.SampledProblem(steps), mh.SieveLikelihood(**options))
    solution.confidence_intervals()
    return solution, time.process_time() - start


def navigation(seed: int, decisions: int, extra: int, size: int | None) -> dict[str, Any]:
    task = mh.domains.navigation()
    steps = task.simulate(decisions, noise_coordinates=extra, seed=seed)
    options = {} if size is None else {"basis": mh.Splines(size), "penalty": 0.1}
    solution, seconds = fit(steps, **options)
    places = [steps.coordinates.index(name) for name in solution.evidence["coordinates"]]
    arrived = steps.next_states[::5]
    found = mh.reward_functions(solution).reward(arrived[:, places])
    return {
        "kind": "noise" if extra else "navigation",
        "seed": seed,
        "decisions": decisions,
        "extra": extra,
        "size": size,
        "discounts": solution.discounts.tolist(),
        "errors": solution.standard_errors.tolist(),
        "intervals": solution.confidence_intervals().tolist(),
        "widening": solution.evidence["first_stage_widening"],
        "correlation": float(np.corrcoef(found, task.reward(arrived[:, :2]))[0, 1]),
        "basis": solution.evidence["basis"],
        "left_out": len(solution.evidence["left_out"]),
        "status": str(solution.status),
        "seconds": seconds,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def screen(seed: int, decisions: int, extra: int) -> dict[str, Any]:
    """Which coordinates are kept of a walk with coordinates of noise; the walk itself is the same as without them."""
    steps = mh.domains.navigation().simulate(decisions, noise_coordinates=extra, seed=seed)
    kept, p_values = relevant_coordinates(steps)
    return {"kind": "screen", "seed": seed, "decisions": decisions, "extra": extra, "kept": kept, "p_values": p_values}


def core(seed: int, decisions: int, size: int) -> dict[str, Any]:
    """The estimator alone, with a given basis and equal temperatures: many replications for coverage."""
    begun = time.process_time()
    task = mh.domains.navigation()
    steps = task.simulate(decisions, seed=seed)
    data = SieveData.of(steps, mh.Splines(size))
    problem = mh.SampledProblem(steps, data.basis.names)
    model = SieveModel(problem, data, Settings(temperatures=np.ones(3)), 0.1)
    end = climb(starts(model, fit_logits(data))[0], gain=1e-4)
    precise = sieve_precision(end.point)[0]
    found, errors = model.discounts(end.point.x), precise.standard_errors[model.discount_slice]
    arrived = steps.next_states[::5]
    return {
        "kind": "core",
        "seed": seed,
        "decisions": decisions,
        "extra": 0,
        "size": size,
        "discounts": found.tolist(),
        "errors": errors.tolist(),
        "intervals": np.column_stack([found - 1.96 * errors, found + 1.96 * errors]).clip(0, 0.999).tolist(),
        "widening": precise.widening[model.discount_slice].tolist(),
        "correlation": float(np.corrcoef(data.basis(arrived) @ model.reward(end.point.x), task.reward(arrived))[0, 1]),
        "basis": f"Splines({size})",
        "seconds": time.process_time() - begun,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def speed(seed: int) -> dict[str, Any]:
    """60,000 decisions and 81 basis functions: the whole fit with standard errors and intervals."""
    return {**navigation(seed, 20_000, 0, 9), "kind": "speed"}


def icu(seed: int, dimensions: int, patients: int, size: int | None) -> dict[str, Any]:
    """ICU-Sepsis: simulated logs, in which each state is replaced by a noisy point in a few dimensions."""
    sepsis = example("icu_sepsis_experts")
    mdp, earned = sepsis.load()
    policies = [mh.soft_plan(mdp, earned @ sepsis.WEIGHTS, gamma).policy for gamma in sepsis.DISCOUNTS]
    table = mh.Demonstrations.simulate(mdp, policies, patients, seed=seed, names=sepsis.NAMES)
    problem = mh.Problem(mdp, table, features=mdp.stacked @ sp.csr_array(earned), feature_names=sepsis.FEATURES)
    tabular = mh.solve(problem, mh.MaximumLikelihood(starts=1))
    steps = embedded(mdp, table, embedding(mdp, earned[:, 2], dimensions), seed)
    options = {} if size is None else {"basis": mh.Splines(size), "penalty": 0.1, "temperature": "shared"}
    solution, seconds = fit(steps, **options)
    true = list(sepsis.DISCOUNTS)
    return {
        "kind": "icu",
        "seed": seed,
        "dimensions": dimensions,
        "decisions": len(steps),
        "true": true,
        "tabular": tabular.discounts.tolist(),
        "discounts": solution.discounts.tolist(),
        "errors": solution.standard_errors.tolist(),
        "basis": solution.evidence["basis"],
        "coordinates": solution.evidence["coordinates"],
        "status": str(solution.status),
        "seconds": seconds,
    }


def example(name: str) -> Any:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.parent / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def embedding(mdp: mh.MDP, score: np.ndarray, dimensions: int) -> np.ndarray:
    """Points `(S,d)` of the states: what happens under random treatment, and where it leads.

    In order: the chance of death, the score of organ failure, the expected number of steps left, and the leading directions in
    which the expected next states vary. Each is standardised.
    """
    shares = mdp.available / mdp.available.sum(axis=1, keepdims=True)
    stacked = mdp.stacked.toarray().reshape(mdp.n_actions, mdp.n_states, mdp.n_states)
    average = np.einsum("sa,ast->st", shares, stacked)
    live = ~mdp.terminal
    resolvent = np.linalg.inv(np.eye(live.sum()) - average[np.ix_(live, live)])
    death = np.zeros(mdp.n_states)
    death[mdp.state_names.index("death")] = 1.0
    left = np.zeros(mdp.n_states)
    left[live], chance = resolvent.sum(axis=1), death.copy()
    chance[live] = resolvent @ (average[live] @ death)
    leading = np.linalg.svd(average - average.mean(axis=0))[0][:, :2]
    columns = np.column_stack([chance, score, left, leading])[:, :dimensions]
    return (columns - columns[live].mean(axis=0)) / columns[live].std(axis=0)


def embedded(mdp: mh.MDP, table: mh.Demonstrations, points: np.ndarray, seed: int) -> mh.Steps:
    """The table with each state replaced by its point and noise of a tenth of a standard deviation."""
    rng = np.random.default_rng(seed)
    states = points[table.state] + 0.1 * rng.standard_normal((len(table), points.shape[1]))
    after = points[table.next_state] + 0.1 * rng.standard_normal(states.shape)
    follows = np.flatnonzero((np.diff(table.expert) == 0) & (np.diff(table.episode) == 0))
    after[follows] = states[follows + 1]
    return mh.Steps(
        expert=table.expert,
        episode=table.episode,
        step=table.step,
        action=table.action,
        states=states,
        next_states=after,
        terminated=mdp.terminal[table.next_state],
        experts=table.experts,
        episodes=table.episodes,
        actions=table.actions,
        coordinates=tuple(f"z{i + 1}" for i in range(points.shape[1])),
        sources=tuple(range(points.shape[1])),
    )


def table(files: list[Path]) -> None:
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["kind"] not in ("icu", "screen"):
                rows[row["kind"], row["decisions"], row["extra"], row["size"]].append(row)
            else:
                print(json.dumps(row))
    for key, found in sorted(rows.items(), key=str):
        print(f"\n{key}: {len(found)} fits")
        print(pd.DataFrame(_summary(found)).to_string(index=False))
        print(_whole(found))


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    estimates = np.array([row["discounts"] for row in found])
    errors = np.array([row["errors"] for row in found], dtype=np.float64)
    ends = np.array([row["intervals"] for row in found], dtype=np.float64)
    inside = (ends[:, :, 0] <= TRUE) & (ends[:, :, 1] >= TRUE)
    return {
        "true": TRUE,
        "mean estimate": estimates.mean(axis=0).round(4),
        "mean absolute error": np.abs(estimates - TRUE).mean(axis=0).round(4),
        "spread": estimates.std(axis=0).round(4),
        "mean standard error": errors.mean(axis=0).round(4),
        "coverage": inside.mean(axis=0).round(3),
    }


def _whole(found: list[dict[str, Any]]) -> str:
    ordered = sum(bool((np.diff(row["discounts"]) > 0).all()) for row in found)
    correlation = [row["correlation"] for row in found]
    seconds = [row["seconds"] for row in found]
    return (
        f"order right {ordered}/{len(found)}; reward correlation mean {np.mean(correlation):.3f} least {min(correlation):.3f}; "
        f"processor seconds mean {np.mean(seconds):.1f} most {max(seconds):.1f}; "
        f"memory {max(row['gigabytes'] for row in found):.2f} GB; bases {sorted({row['basis'] for row in found})}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["navigation", "core", "screen", "noise", "speed", "icu", "table"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seeds", nargs=2, type=int, default=[0, 1])
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--extra", type=int, default=0)
    parser.add_argument(
        "--size", type=int, default=None, help="functions per coordinate; chosen by held-out likelihood if not given"
    )
    parser.add_argument("--dimensions", type=int, default=3)
    parser.add_argument("--patients", type=int, default=3000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.what == "table":
        table(asked.files)
        return
    for seed in range(*asked.seeds):
        if asked.what == "icu":
            row = icu(seed, asked.dimensions, asked.patients, asked.size)
        elif asked.what == "screen":
            row = screen(seed, asked.decisions, asked.extra)
        elif asked.what == "core":
            row = core(seed, asked.decisions, asked.size or 9)
        else:
            row = speed(seed) if asked.what == "speed" else navigation(seed, asked.decisions, asked.extra, asked.size)
        print(json.dumps(row), flush=True)
        if asked.out is not None:
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
