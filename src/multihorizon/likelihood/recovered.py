"""What simulated studies of each size showed: truth against recovery, coverage, and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.files.saved import read_json, write_json
from multihorizon.solution import Solution, Status, package_version

COVERAGE = 0.95
#: A study sees an effect where its p-value is below this.
SEEN = 0.05


@dataclass(frozen=True)
class Size:
    """The size of a study: how many people, mean decisions of each, and the effect on logit γ, NaN where there is none."""

    people: int
    decisions: float
    effect: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """One simulated study: true and estimated discounts `(n,)` with intervals `(n,2)`, and the effect's estimate, interval and p.

    `problem` says why there is no answer; it is empty where there is one.
    """

    truth: Floats
    estimates: Floats
    intervals: Floats
    effect: float
    effect_estimate: float
    effect_interval: tuple[float, float]
    effect_p: float
    problem: str = ""

    @classmethod
    def of(cls, found: Solution, truth: Floats, effect: float, term: str | None) -> Outcome:
        """What a fitted study says."""
        if found.status == Status.NOT_CONVERGED:
            return cls.without_answer(truth, effect, "the fit did not converge")
        intervals = found.confidence_intervals(COVERAGE)
        told = found.evidence.get("identified", found.status != Status.NOT_IDENTIFIED)
        estimates = np.where(told, found.discounts, np.nan)
        if term is None:
            return cls(truth, estimates, intervals, effect, np.nan, (np.nan, np.nan), np.nan)
        seen = found.evidence["population"]["discount"][term]
        low, high = seen["interval"]
        return cls(truth, estimates, intervals, effect, seen["estimate"], (low, high), seen["p"])

    @classmethod
    def without_answer(cls, truth: Floats, effect: float, problem: str) -> Outcome:
        """A study whose fit has no answer."""
        nothing = np.full(truth.size, np.nan)
        return cls(truth, nothing, np.full((truth.size, 2), np.nan), effect, np.nan, (np.nan, np.nan), np.nan, problem)


@dataclass(frozen=True, eq=False)
class SizeResult:
    """What studies of one size showed.

    Attributes:
        people, decisions, effect: the size.
        studies: how many were simulated.
        unanswered: how many of them have no answer, and the first reason.
        truth, estimates: discounts `(studies,n)`; estimates are NaN where a discount is not identified, and in a study without an
            answer.
        bias, error: mean and root mean square of the estimates' errors.
        correlation: of truth and estimate within a study, on average; NaN where persons do not differ.
        coverage, coverage_error: how often a 95 % interval contains the true discount, and the standard error of that share
            from its spread between studies.
        without_interval: the share of discounts for which there was no interval.
        effect_bias, effect_error: mean and standard deviation of the effect's estimates, less the truth.
        effect_coverage: how often its 95 % interval contains the true effect.
        power: the share of studies with p < 0.05; without an effect, the size of the test.
    """

    people: int
    decisions: float
    effect: float
    studies: int
    unanswered: int
    reason: str
    truth: Floats
    estimates: Floats
    bias: float
    error: float
    correlation: float
    coverage: float
    coverage_error: float
    without_interval: float
    effect_bias: float
    effect_error: float
    effect_coverage: float
    power: float

    @classmethod
    def of(cls, size: Size, outcomes: Sequence[Outcome]) -> SizeResult:
        """The summary of some studies of one size."""
        truth, found = np.array([o.truth for o in outcomes]), np.array([o.estimates for o in outcomes])
        ends = np.array([o.intervals for o in outcomes])
        inside = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
        known = np.isfinite(ends).all(axis=2)
        effects = np.array([o.effect_estimate for o in outcomes])
        seen = np.array([o.effect_interval for o in outcomes])
        held = (seen[:, 0] <= size.effect) & (size.effect <= seen[:, 1])
        p = np.array([o.effect_p for o in outcomes])
        reasons = [o.problem for o in outcomes if o.problem]
        return cls(
            size.people,
            size.decisions,
            size.effect,
            len(outcomes),
            len(reasons),
            reasons[0] if reasons else "",
            truth,
            found,
            bias=_mean(found - truth),
            error=float(np.sqrt(_mean((found - truth) ** 2))),
            correlation=_mean(np.array([_correlation(a, b) for a, b in zip(truth, found, strict=True)])),
            coverage=_mean(np.where(known, inside, np.nan)),
            coverage_error=_error_of_mean(np.array([_mean(row) for row in np.where(known, inside, np.nan)])),
            without_interval=float(1 - known.mean()),
            effect_bias=_mean(effects - size.effect),
            effect_error=float(np.std(effects[np.isfinite(effects)])) if np.isfinite(effects).any() else np.nan,
            effect_coverage=_mean(np.where(np.isfinite(seen).all(axis=1), held, np.nan)),
            power=_mean(np.where(np.isfinite(p), p < SEEN, np.nan)),
        )

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SizeResult:
        """What `Recovery.to_json` has written of one size."""
        numbers = {field.name: content[field.name] for field in fields(cls)}
        unknown = {name: np.nan for name, value in numbers.items() if value is None}
        arrays = {name: np.array(numbers[name], dtype=np.float64) for name in ("truth", "estimates")}
        return cls(**{**numbers, **unknown, **arrays})

    def share_error(self, share: float) -> float:
        """The standard error of a share of studies, with one more on either side: it is not 0 where all studies agree."""
        answered = self.studies - self.unanswered
        likely = (share * answered + 1) / (answered + 2)
        return float(np.sqrt(likely * (1 - likely) / (answered + 2)))

    def numbers(self) -> dict[str, Any]:
        """The summary without the estimates of each study."""
        return {name: value for name, value in asdict(self).items() if name not in ("truth", "estimates")}


@dataclass(frozen=True, eq=False)
class Recovery:
    """What simulated studies showed; `sizes[0]` is the study as designed."""

    solver: str
    term: str | None
    sizes: tuple[SizeResult, ...]
    seed: int

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        first = self.sizes[0]
        size = f"{first.studies} studies of {_count(first.people, 'person', 'people')} with {first.decisions:.0f} decisions each"
        if np.isnan(first.error):
            return f"{size} were simulated, and none of them identified a discount."
        said = [
            f"{size} were simulated: discounts are recovered to ±{first.error:.2f} (root mean square), "
            f"and 95 % intervals contain the truth in {100 * first.coverage:.0f} % of cases."
        ]
        if first.without_interval:
            said.append(f"For {100 * first.without_interval:.0f} % of the discounts there is no interval.")
        if np.isfinite(first.correlation):
            said.append(f"Within a study true and estimated discounts correlate by {first.correlation:.2f} on average.")
        if self.term is not None and first.effect:
            power = f"{100 * first.power:.0f} ± {100 * first.share_error(first.power):.0f} %"
            said.append(
                f"An effect of {first.effect:.2f} of {self.term} on the logit of the discount is seen in {power} of studies."
            )
        if any(size.unanswered for size in self.sizes):
            lost = next(size for size in self.sizes if size.unanswered)
            said.append(f"{sum(size.unanswered for size in self.sizes)} studies have no answer; the first because {lost.reason}.")
        return " ".join(said)

    def to_frame(self) -> pd.DataFrame:
        """One row per size, the study as designed first."""
        return pd.DataFrame([size.numbers() for size in self.sizes])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts; what is not known is NaN."""
        return {
            "summary": self.summary,
            "solver": self.solver,
            "term": self.term,
            "level": COVERAGE,
            "seed": self.seed,
            "sizes": [
                {**size.numbers(), "truth": size.truth.tolist(), "estimates": size.estimates.tolist()} for size in self.sizes
            ],
            "version": package_version(),
        }

    def to_json(self, path: str | Path) -> None:
        """Write everything; what is not known is null."""
        write_json(path, self.to_dict())

    @classmethod
    def from_json(cls, path: str | Path) -> Recovery:
        """Read what `to_json` has written.

        Raises:
            ValueError: for a file that is something else.
        """
        content = read_json(path, "a recover.json of multihorizon recover")
        try:
            sizes = tuple(SizeResult.from_dict(size) for size in content["sizes"])
            return cls(content["solver"], content["term"], sizes, content["seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a recover.json of multihorizon recover: it holds something else") from error

    def __str__(self) -> str:
        columns = ["people", "decisions", "effect", "bias", "error", "correlation", "coverage", "effect_coverage", "power"]
        return f"{self.to_frame()[columns].round(3).to_string(index=False)}\n{self.summary}"


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else np.nan


def _error_of_mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else np.nan


def _correlation(truth: Floats, found: Floats) -> float:
    known = np.isfinite(found)
    if known.sum() < 3 or not truth[known].std() > 0 or not found[known].std() > 0:
        return np.nan
    return float(np.corrcoef(truth[known], found[known])[0, 1])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
