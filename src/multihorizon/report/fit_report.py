"""What a fit leaves behind: `result.json`, `result.npz`, `reward.csv` and `report.html`, all or none.

A number that the data do not determine is null in the JSON, NaN in the arrays and empty in the CSV.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.likelihood.model_checks import MODELS
from multihorizon.mdp import MDP
from multihorizon.report.analysis import LEVEL, Analysis, advice, verdict
from multihorizon.report.fit_figures import plot_calibration, plot_discounts, plot_fitted_reward, plot_held_out
from multihorizon.report.html import Page, Section, badge, figure, listing, paragraph, table
from multihorizon.solution import Status, package_version, without_nan
from multihorizon.tables.dynamics import untaken_actions

FILES = ("result.json", "result.npz", "reward.csv", "report.html")


def horizon(discount: float) -> float:
    """The effective horizon 1/(1−γ) in steps; infinite at 1."""
    return np.inf if discount >= 1 else 1 / (1 - discount)


def write_all(directory: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary directory beside `directory`, and move its files only when all are complete."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out must be a directory, received the file {directory}")
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        write(draft)
        directory.mkdir(exist_ok=True)
        for file in draft.iterdir():
            os.replace(file, directory / file.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_fit(directory: Path, analysis: Analysis, options: dict[str, Any]) -> None:
    """Write all files of a fit."""

    def write(draft: Path) -> None:
        text = json.dumps(without_nan(result_of(analysis, options)), indent=1, ensure_ascii=False, allow_nan=False)
        (draft / "result.json").write_text(text, encoding="utf-8")
        _write_arrays(draft / "result.npz", analysis, options)
        _reward_frame(analysis).to_csv(draft / "reward.csv", index=False)
        fit_page(analysis, options).write(draft / "report.html")

    write_all(directory, write)


def result_of(analysis: Analysis, options: dict[str, Any]) -> dict[str, Any]:
    """The content of `result.json`."""
    solution, known = analysis.solution, analysis.identified
    errors = solution.standard_errors if solution.standard_errors is not None else np.full(len(known), np.nan)
    return {
        "experts": list(solution.experts),
        "discounts": [float(g) if k else None for g, k in zip(solution.discounts, known, strict=True)],
        "intervals": analysis.intervals.tolist(),
        "level": LEVEL,
        "standard_errors": errors.tolist(),
        "effective_horizons": [horizon(float(g)) if k else None for g, k in zip(solution.discounts, known, strict=True)],
        "episodes": analysis.episodes.tolist(),
        "temperature": None if solution.temperature is None else solution.temperature.tolist(),
        "reward": dict(zip(analysis.problem.parameter_names, solution.reward.tolist(), strict=True)),
        "reward_standard_errors": dict(
            zip(analysis.problem.parameter_names, solution.evidence["reward_standard_errors"], strict=True)
        ),
        "status": str(solution.status),
        "message": solution.message,
        "identified": known,
        "verdict": verdict(analysis),
        "collect_next": advice(analysis),
        "identification": None if analysis.identification is None else analysis.identification.to_dict(),
        "shared_discount_test": None if analysis.shared is None else analysis.shared.to_dict(),
        "pairwise_tests": [test.to_dict() for test in analysis.pairs],
        "model_checks": None if analysis.checks is None else analysis.checks.to_dict(),
        "one_maximum": {"discounts": solution.discounts.tolist(), "log_likelihood": solution.objective},
        "decisions": solution.evidence["decisions"],
        "residual": solution.residual,
        "ridge": solution.evidence["ridge"],
        "untaken_actions": [untaken_actions(mdp) for mdp in _mdps(analysis) if mdp.sample_sizes is not None],
        "remarks": analysis.remarks,
        "seconds": solution.seconds,
        "seed": solution.seed,
        "options": options,
        "version": package_version(),
    }


def _mdps(analysis: Analysis) -> list[MDP]:
    """The task of each table, once."""
    return list(dict.fromkeys(expert.mdp for expert in analysis.problem.experts))


def _write_arrays(path: Path, analysis: Analysis, options: dict[str, Any]) -> None:
    solution = analysis.solution
    known = np.array(analysis.identified)
    policies = {f"policy_{i}": policy for i, policy in enumerate(solution.policies())}
    np.savez_compressed(
        path,
        experts=np.array(solution.experts),
        discounts=np.where(known, solution.discounts, np.nan),
        intervals=analysis.intervals,
        reward=solution.reward,
        reward_names=np.array(analysis.problem.parameter_names),
        version=np.array(package_version()),
        seed=np.array(solution.seed),
        options=np.array(json.dumps(without_nan(options))),
        **policies,  # type: ignore[arg-type]
    )


def _reward_frame(analysis: Analysis) -> pd.DataFrame:
    errors = analysis.solution.evidence["reward_standard_errors"]
    names = analysis.problem.parameter_names
    kind = "state" if names == analysis.problem.experts[0].mdp.state_names else "parameter"
    return pd.DataFrame({kind: names, "reward": analysis.solution.reward, "standard_error": errors})


def fit_page(analysis: Analysis, options: dict[str, Any]) -> Page:
    """The report."""
    sections = [_horizons(analysis), _identifiability(analysis), _reward(analysis), _fit(analysis), _method(analysis, options)]
    lead = f"{len(analysis.solution.experts)} experts, {int(analysis.episodes.sum()):,} episodes, "
    lead += f"{int(analysis.solution.evidence['decisions']):,} decisions."
    return Page(
        "How far ahead each expert plans", lead, sections, f"multihorizon {package_version()}, seed {analysis.solution.seed}"
    )


def _horizons(analysis: Analysis) -> Section:
    solution = analysis.solution
    rows = []
    for k, name in enumerate(solution.experts):
        known = analysis.identified[k]
        low, high = (float(end) for end in analysis.intervals[k])
        gamma = float(solution.discounts[k])
        interval = f"{low:.3f} to {high:.3f}" if known else "not identified"
        reach = f"{horizon(gamma):.2f} ({horizon(low):.2f} to {horizon(high):.2f})" if known else "–"
        rows.append([name, int(analysis.episodes[k]), round(gamma, 4) if known else None, interval, reach])
    headers = ["expert", "episodes", "discount γ", "95 % interval", "horizon 1/(1−γ), steps"]
    blocks = [
        badge(*_badge(solution.status)),
        figure(plot_discounts(analysis), "Each expert's discount with its 95 % interval, from short-sighted to far-sighted."),
        table(headers, rows),
    ]
    return Section("Planning horizons", [*blocks, *_tests(analysis)])


def _badge(status: Status) -> tuple[str, str]:
    words = {Status.CONVERGED: ("identified and converged", "good"), Status.NOT_IDENTIFIED: ("not identified", "bad")}
    return words.get(status, (str(status), "bad"))


def _tests(analysis: Analysis) -> list[str]:
    if analysis.shared is None:
        return []
    test = analysis.shared
    if np.isnan(test.p_value):
        said = "Whether all experts share one discount cannot be tested with these data."
    else:
        said = f"Likelihood-ratio test that all experts share one discount: p {_p(test.p_value)}."
    rows = [[" and ".join(t.experts), t.statistic, t.degrees, _p(t.p_value), _p(t.adjusted)] for t in analysis.pairs]
    headers = ["same discount?", "χ²", "degrees", "p", "p, all pairs (Holm)"]
    return [paragraph(said), table(headers, rows) if len(rows) > 1 else ""]


def _p(value: float) -> str:
    return "–" if np.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _identifiability(analysis: Analysis) -> Section:
    blocks = [paragraph(verdict(analysis)), paragraph("What to collect next:")]
    blocks.append("<ul>" + "".join(f"<li>{paragraph(line)}</li>" for line in advice(analysis)) + "</ul>")
    if analysis.identification is not None and analysis.solution.status == Status.NOT_IDENTIFIED:
        blocks += [paragraph("If the fitted policies were known exactly:"), listing(analysis.identification.summary())]
    return Section("Can the data tell?", blocks)


def _reward(analysis: Analysis) -> Section:
    frame = _reward_frame(analysis)
    many = len(frame) > 40
    caption = "The reward all experts share, at temperature 1" + (": the 40 values farthest from the median." if many else ".")
    blocks = [figure(plot_fitted_reward(analysis), caption)]
    if analysis.solution.status == Status.NOT_IDENTIFIED:
        blocks.insert(
            0, paragraph("This is one of many rewards that explain the decisions equally well; do not read numbers off it.")
        )
    shown = frame.reindex(frame["reward"].abs().sort_values(ascending=False).index).head(40)
    rows = [[str(row[0]), float(row[1]), None if pd.isna(row[2]) else float(row[2])] for row in shown.itertuples(index=False)]
    blocks.append(
        table([frame.columns[0], "reward", "standard error"], rows, "The largest rewards; reward.csv has all." if many else "")
    )
    return Section("The reward they share", blocks)


def _fit(analysis: Analysis) -> Section:
    checks = analysis.checks
    if checks is None:
        return Section("Does the model fit?", [paragraph("Not checked; see the remarks below.")])
    rows = [[name, *(float(checks.held_out[model][k]) for model in MODELS)] for k, name in enumerate(checks.experts)]
    worst = [
        [row["state"], row["expert"], int(row["decisions"]), row["action"], row["taken"], row["predicted"], _p(row["p_value"])]
        for row in checks.worst
    ]
    headers = ["state", "expert", "decisions", "action", "share taken", "predicted", "p (Bonferroni)"]
    return Section(
        "Does the model fit?",
        [
            paragraph("Each half of the episodes was predicted by a model fitted to the other half. Higher is better:"),
            table(["expert", *MODELS], rows, "Mean held-out log-likelihood of a decision"),
            figure(plot_held_out(checks), "How far each model falls short of the best one for that expert."),
            figure(plot_calibration(checks), "Held-out calibration: points on the line mean that predicted probabilities hold."),
            table(headers, worst, "The states where the model fits worst, with the action most out of line"),
        ],
    )


def _method(analysis: Analysis, options: dict[str, Any]) -> Section:
    said = [paragraph(remark) for remark in analysis.remarks]
    told = "; ".join(f"{k}: {', '.join(v) if isinstance(v, list) else v}" for k, v in options.items() if v is not None)
    return Section("How this was made", [paragraph(analysis.solution.message), *said, paragraph(f"Options: {told}.")])
