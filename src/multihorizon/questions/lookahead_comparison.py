"""Tests between families of look-ahead.

*Nested.* Every family lies within free weights: twice the gain of log-likelihood is tested against χ² with as many degrees of
freedom as weights are given up. Two tests are on the safe side. A depth gives up all weights, which then sit on bounds; and β ≤ 1
is a bound, so a quasi-hyperbolic person is counted as if β were given up.

*Not nested.* Vuong's test (1989) compares a family with the one of the lowest AIC. With `m = log π_f − log π_g` of each decision,
`(Σ m − c) / √(Σ (m − m̄)²)` is standard normal where both are equally far from the truth. Parameters that are not needed raise
the log-likelihood by ½ each, and by less where bounds hold them, so c lies between 0 and `(p_f − p_g)/2`; the nearest to Σ m is
taken.

Where a climb did not end, nothing is tested: statistic and p-value are NaN.

In what shape do they look ahead? Families of look-ahead weights fitted to the same decisions, in one table.

All families share the reward, the temperatures and their penalties, so that they differ in nothing but the weights. Beside the
log-likelihood L with p parameters stand `AIC = 2p − 2L`, `BIC = p log N − 2L` of N decisions and, where the table of decisions is
given, the log-likelihood of held-out episodes: each half is predicted by a fit to the other.

Each is tested within free weights, and against the family of the lowest AIC (`lookahead_tests.py`). Families *cannot be told
apart* where they are one, as in tasks of two steps, or where the test does not reject at the 5 % level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

from multihorizon.checks import Floats
from multihorizon.choice.tabular import Point, require_counts
from multihorizon.choice.weighted import require_lookahead
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.estimate.look_ahead import LookaheadFit, fit_lookahead, lookahead_counts, lookahead_evidence, search
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood
from multihorizon.lookahead import FAMILIES, Exponential, FreeWeights, Lookahead, QuasiHyperbolic
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.bootstrap import tables_of
from multihorizon.questions.model_checks import PART_RIDGE, deal

#: AICs that differ by no more than this are equal: climbs end within it.
SAME_AIC = 1e-6


def same_family(fit: LookaheadFit, other: LookaheadFit) -> bool:
    """Whether two families are one in this task: with at most two steps all but depths are free to choose the only weight."""
    return fit.model.steps <= 2 and fit.depth_profile is None and other.depth_profile is None


def nested_test(fit: LookaheadFit, wider: LookaheadFit) -> tuple[float, int, float]:
    """The likelihood-ratio test of a family within a wider one: statistic, degrees of freedom, p-value; NaN for the same."""
    if fit is wider or not _ended(fit, wider):
        return np.nan, 0, np.nan
    most = {"depth": 0, "quasi-hyperbolic": 1}.get(fit.model.family.name, fit.model.n_coordinates)
    degrees = sum(wide - min(most, own) for wide, own in zip(*map(lookahead_counts, (wider.model, fit.model)), strict=True))
    statistic = max(0.0, 2 * (wider.point.objective - fit.point.objective))
    return statistic, degrees, float(chi2.sf(statistic, degrees)) if degrees else 1.0


def best_test(fit: LookaheadFit, best: LookaheadFit, more: int) -> float:
    """The p-value of "as good as the best", by the likelihood ratio where one family contains the other, else by Vuong's test."""
    if fit is best or same_family(fit, best):
        return 1.0
    if not _ended(fit, best):
        return np.nan
    for narrow, wide in ((fit, best), (best, fit)):
        if _contains(wide.model.family, narrow.model.family):
            return nested_test(narrow, wide)[2]
    gained, spread = log_ratio(fit, best)
    low, high = min(0.0, more / 2), max(0.0, more / 2)
    beyond = gained - min(max(gained, low), high)
    return float(2 * norm.sf(abs(beyond) / spread)) if spread > 0 else 1.0


def _ended(*fits: LookaheadFit) -> bool:
    return all(fit.ascent.finished for fit in fits)


def _contains(wide: Lookahead, narrow: Lookahead) -> bool:
    return isinstance(wide, FreeWeights) or (isinstance(wide, QuasiHyperbolic) and isinstance(narrow, Exponential))


def log_ratio(fit: LookaheadFit, other: LookaheadFit) -> tuple[float, float]:
    """The sum of `log π_f − log π_g` over all decisions, and the standard deviation of that sum."""
    total = squares = 0.0
    for batch, one, two in zip(fit.model.batches, fit.point.plans, other.point.plans, strict=True):
        ratio = one.finite_log - two.finite_log
        total += float((batch.counts * ratio).sum())
        squares += float((batch.counts * ratio**2).sum())
    return total, float(np.sqrt(max(0.0, squares - total**2 / fit.model.decisions)))


#: The level of the tests at which families count as told apart.
TEST_LEVEL = 0.05


@dataclass(frozen=True)
class FamilyRow:
    """One family in the comparison.

    Attributes:
        family: its name.
        log_likelihood, parameters, aic, bic: how well it fits, and with how many parameters.
        held_out: the log-likelihood of held-out episodes; NaN where no table was given.
        free_statistic, free_degrees, free_p: the likelihood-ratio test against free weights; NaN for free weights themselves, and
            where a climb did not end.
        best_p: the p-value of "as good as the family with the lowest AIC"; 1 for that family, NaN where a climb did not end.
        verdict: "best"; or "same as …", "cannot be told from …" or "differs from …", with the name of the best family; or "not
            known: its climb did not end".
        finished: whether its climb ended.
        details: each expert's parameters, as in `Solution.evidence["lookahead"]`.
    """

    family: str
    log_likelihood: float
    parameters: int
    aic: float
    bic: float
    held_out: float
    free_statistic: float
    free_degrees: int
    free_p: float
    best_p: float
    verdict: str
    finished: bool
    details: dict[str, Any]


@dataclass(frozen=True)
class LookaheadComparison:
    """Families of look-ahead by AIC, the best first; `experts` are the names in the order of each row's parameters.

    The best is one whose climb ended, if there is any.
    """

    experts: tuple[str, ...]
    decisions: float
    steps: int
    rows: tuple[FamilyRow, ...]

    @property
    def best(self) -> str:
        """The family with the lowest AIC."""
        return self.rows[0].family

    @property
    def candidates(self) -> tuple[str, ...]:
        """The families that the decisions do not tell from the best, which is the first of them."""
        return tuple(row.family for row in self.rows if not row.verdict.startswith("differs"))

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        first = f"By AIC the decisions are described best by {self.best} look-ahead."
        by_bic = min(self.rows, key=lambda row: row.bic).family
        held = max(self.rows, key=lambda row: np.nan_to_num(row.held_out, nan=-np.inf)).family
        if by_bic != self.best:
            first += f" BIC prefers {by_bic}."
        if held != self.best and np.isfinite(self.rows[0].held_out):
            first += f" Held-out episodes are predicted best by {held}."
        same = [row.family for row in self.rows if row.verdict.startswith("same")]
        if same:
            length = "one step" if self.steps == 1 else f"{self.steps} steps"
            first += f" In this task of {length} it is the same as {_listed(same)}."
        near = [row.family for row in self.rows if row.verdict.startswith("cannot")]
        if near:
            first += f" They do not tell it from {_listed(near)}."
        unfinished = [row.family for row in self.rows if not row.finished]
        if unfinished:
            first += f" The search did not end for {_listed(unfinished)}: do not use these rows."
        return first

    def to_frame(self) -> pd.DataFrame:
        """One row per family, without the parameters of each expert."""
        return pd.DataFrame([{k: v for k, v in asdict(row).items() if k != "details"} for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts; what is not known is NaN."""
        return {
            "best": self.best,
            "cannot_be_told_apart": list(self.candidates),
            "summary": self.summary,
            "steps": self.steps,
            "decisions": self.decisions,
            "experts": list(self.experts),
            "families": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        columns = ["family", "log_likelihood", "parameters", "aic", "bic", "held_out", "free_p", "best_p", "verdict"]
        return f"{self.to_frame()[columns].round(3).to_string(index=False)}\n{self.summary}"


def compare_lookahead(
    problem: Problem,
    families: Sequence[Lookahead] = FAMILIES,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    solver: MaximumLikelihood | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> LookaheadComparison:
    """Fit several families of look-ahead to the same decisions.

    Args:
        problem: decisions in tasks with a limited number of steps.
        families: the families; free weights are always fitted, because the others are tested against them.
        demonstrations: the table the problem was made of, or one for each task, to hold out half of each expert's episodes; where
            an expert has only one, nothing is held out.
        solver: what is known of rewards and temperatures; by default `MaximumLikelihood()`.
        seed: scatters the starts and deals the episodes.
        progress: called after each family.

    Raises:
        ValueError: for a task in which a state can come again, or one with very many rewards.
    """
    solver = solver or MaximumLikelihood()
    check_comparable(require_finite(problem), solver)
    found = solver.search(problem, seed, lambda share, message: progress(0.4 * share, message))[1]
    return compare_from(found.best.point, families, demonstrations, seed, lambda s, message: progress(0.4 + 0.6 * s, message))


def check_comparable(problem: Problem, solver: MaximumLikelihood) -> None:
    """Raise unless families of look-ahead can be compared in these tasks with these options."""
    require_lookahead(problem)
    if solver.discounts is not None:
        raise ValueError("families of look-ahead can only be compared where discounts are estimated, received known ones")


def compare_from(
    base: Point,
    families: Sequence[Lookahead] = FAMILIES,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> LookaheadComparison:
    """The comparison begun at an answer with discounts; arguments as in `compare_lookahead`."""
    wanted = [family for family in FAMILIES if family in families or isinstance(family, FreeWeights)]
    fits: list[LookaheadFit] = []
    for number, family in enumerate(wanted):
        contained = [fit.point for fit in fits] if isinstance(family, FreeWeights) else []
        fits.append(fit_lookahead(base, family, contained))
        progress(0.5 * (number + 1) / len(wanted), f"{family.name}: log-likelihood {fits[-1].point.value:.2f}")
    held = _held_out(base, fits, demonstrations, seed, lambda share, message: progress(0.5 + 0.5 * share, message))
    rows = _rows(base, fits, held)
    return LookaheadComparison(base.likelihood.problem.names, base.likelihood.decisions, fits[-1].model.steps, rows)


def _rows(base: Point, fits: list[LookaheadFit], held: list[float]) -> tuple[FamilyRow, ...]:
    details = [lookahead_evidence(fit, base) for fit in fits]
    counts = [int(detail["parameter_count"]) for detail in details]
    aic = [2 * p - 2 * fit.point.value for p, fit in zip(counts, fits, strict=True)]
    best = min(range(len(fits)), key=lambda i: (not fits[i].ascent.finished, round(aic[i] / SAME_AIC), i))
    rows = [
        _row(fits[i], fits[best], fits[-1], details[i], details[best]["parameter_count"], held[i], base.likelihood.decisions)
        for i in range(len(fits))
    ]
    order = sorted(range(len(fits)), key=lambda i: (i != best, aic[i]))
    return tuple(rows[i] for i in order)


def _row(
    fit: LookaheadFit,
    best: LookaheadFit,
    free: LookaheadFit,
    details: dict[str, Any],
    best_count: int,
    held_out: float,
    decisions: float,
) -> FamilyRow:
    value, count = fit.point.value, int(details["parameter_count"])
    statistic, degrees, free_p = nested_test(fit, free)
    p = best_test(fit, best, count - best_count)
    return FamilyRow(
        family=fit.model.family.name,
        log_likelihood=value,
        parameters=count,
        aic=2 * count - 2 * value,
        bic=count * float(np.log(decisions)) - 2 * value,
        held_out=held_out,
        free_statistic=statistic,
        free_degrees=degrees,
        free_p=free_p,
        best_p=p,
        verdict=_verdict(fit, best, p),
        finished=fit.ascent.finished,
        details=details,
    )


def _verdict(fit: LookaheadFit, best: LookaheadFit, p: float) -> str:
    name = best.model.family.name
    if fit is best:
        return "best"
    if same_family(fit, best):
        return f"same as {name}"
    if np.isnan(p):
        return "not known: its climb did not end"
    return f"cannot be told from {name}" if p >= TEST_LEVEL else f"differs from {name}"


def _held_out(
    base: Point,
    fits: list[LookaheadFit],
    demonstrations: Demonstrations | Sequence[Demonstrations] | None,
    seed: int,
    progress: Progress,
) -> list[float]:
    """The log-likelihood of each half of the episodes under the fit to the other half, summed, for each family."""
    tables = [] if demonstrations is None else tables_of(base.likelihood.problem, demonstrations)
    if not tables or any(min(table.episode_counts) < 2 for table in tables):
        return [np.nan] * len(fits)
    parts = deal(base, tables, 2, np.random.default_rng(seed))
    total = np.zeros(len(fits))
    for number, test in enumerate(parts):
        train = [require_counts(expert) - part for expert, part in zip(base.likelihood.problem.experts, test, strict=True)]
        for i, fit in enumerate(fits):
            total[i] += _predicted(fit, train, test)
        progress((number + 1) / len(parts), f"held-out half {number + 1}")
    return [float(value) for value in total]


def _predicted(fit: LookaheadFit, train: list[Floats], test: list[Floats]) -> float:
    """The log-likelihood of some decisions under the family's fit to others."""
    model = fit.model.with_counts(train)
    start = model.holding(model.penalty, np.maximum(model.ridge, PART_RIDGE)).at(fit.point.x)
    assert start is not None
    end = search(start)
    reached = end.model.with_counts(test).at(end.point.x)
    assert reached is not None
    return reached.value


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
