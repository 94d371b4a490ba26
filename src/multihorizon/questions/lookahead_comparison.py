"""In what shape do they look ahead? Families of look-ahead weights fitted to the same decisions, in one table.

All families share the reward, the temperatures and their penalties, so that they differ in nothing but the weights. Beside the
log-likelihood L with p parameters stand `AIC = 2p − 2L`, `BIC = p log N − 2L` of N decisions and, where the table of decisions is
given, the log-likelihood of held-out episodes: each half is predicted by a fit to the other. Each family is tested within free
weights, and against the family of the lowest AIC. Two families are not distinguished where they are one, as in tasks of two
steps, or where the test does not reject at the 5% level.

*Nested.* Every family lies within free weights: twice the gain of log-likelihood is tested against χ² with as many degrees of
freedom as weights are given up. Two tests are on the safe side. A depth gives up all weights, which then sit on bounds; and β ≤ 1
is a bound, so a quasi-hyperbolic person is counted as if β were given up.

*Not nested.* Vuong's test (1989) compares a family with the one of the lowest AIC. With `m = log π_f − log π_g` of each decision,
`(Σ m − c) / √(Σ (m − m̄)²)` is standard normal where both are equally far from the truth. Parameters that are not needed raise
the log-likelihood by ½ each, and by less where bounds hold them, so c lies between 0 and `(p_f − p_g)/2`; the nearest to Σ m is
taken.

Where a climb did not end, nothing is tested: statistic and p-value are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtr

from multihorizon.checks import Floats, Seed, as_seed
from multihorizon.choice.model import Point
from multihorizon.choice.weighted import require_lookahead
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.horizon import FAMILIES, Exponential, FreeWeights, Lookahead, QuasiHyperbolic
from multihorizon.likelihood.look_ahead import LookaheadFit, fit_lookahead, lookahead_counts, lookahead_evidence, search
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.mdp import steps_left
from multihorizon.numerics.distributions import chi2_sf
from multihorizon.parallel import Progress, Run, silent
from multihorizon.problem import Problem, require_counts, require_finite
from multihorizon.questions.model_checks import deal, of_part
from multihorizon.questions.schedule import tables_of
from multihorizon.result import Result
from multihorizon.solution import SOFT_ALONE
from multihorizon.words import decimals


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
        verdict: "best"; or "same as …", "not distinguished from …" or "differs from …", with the name of the best family; or
            "not known: its fit did not converge".
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
class LookaheadComparison(Result):
    """Families of look-ahead by AIC, the best first; `experts` are the names in the order of each row's parameters.

    The best is one whose climb ended, if there is any.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("family", "aic")
    _shown: ClassVar[tuple[str, ...]] = (
        *("family", "log_likelihood", "parameters", "aic", "bic", "held_out", "free_p", "best_p", "verdict"),
    )

    experts: tuple[str, ...]
    decisions: float
    steps: int
    rows: tuple[FamilyRow, ...]

    @property
    def best(self) -> str:
        """Return the family with the lowest AIC."""
        return self.rows[0].family

    @property
    def candidates(self) -> tuple[str, ...]:
        """Return the families that the decisions do not distinguish from the best, which is the first of them."""
        return tuple(row.family for row in self.rows if not row.verdict.startswith("differs"))

    def sentences(self) -> str:
        """Return the result in a few sentences."""

        def listed(beginning: str) -> str:
            """Return the families with such a verdict."""
            names = [row.family for row in self.rows if row.verdict.startswith(beginning)]
            return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)

        first = f"By AIC the decisions are described best by {self.best} look-ahead."
        by_bic = min(self.rows, key=lambda row: row.bic).family
        held = max(self.rows, key=lambda row: np.nan_to_num(row.held_out, nan=-np.inf)).family
        if by_bic != self.best:
            first += f" BIC prefers {by_bic}."
        if held != self.best and np.isfinite(self.rows[0].held_out):
            first += f" Held-out episodes are predicted best by {held}."
        if same := listed("same"):
            length = "one step" if self.steps == 1 else f"{self.steps} steps"
            first += f" In this task of {length} it is the same as {same}."
        if near := listed("not distinguished"):
            first += f" They do not distinguish it from {near}."
        unfinished = [row.family for row in self.rows if not row.finished]
        if unfinished:
            first += f" The search did not end for {', '.join(unfinished)}: do not use these rows."
        return first

    def to_frame(self) -> pd.DataFrame:
        """Return one row per family, without the parameters of each expert."""
        return pd.DataFrame([{k: v for k, v in asdict(row).items() if k != "details"} for row in self.rows])

    def _facts(self) -> dict[str, Any]:
        return {"experts": len(self.experts), "decisions": self.decisions, "best by AIC": self.best, "steps": self.steps}

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dicts; what is not known is NaN."""
        return {
            "best": self.best,
            "cannot_be_told_apart": list(self.candidates),
            "summary": self.sentences(),
            "steps": self.steps,
            "decisions": self.decisions,
            "experts": list(self.experts),
            "families": [asdict(row) for row in self.rows],
        }

    def _content(self) -> dict[str, Any]:
        return self.to_dict()


def compare_lookahead(
    problem: Problem,
    families: Sequence[Lookahead] = FAMILIES,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    solver: MaximumLikelihood | None = None,
    *,
    seed: Seed = 0,
    progress: Progress = silent,
) -> LookaheadComparison:
    """Fit several families of look-ahead to the same decisions.

    Args:
        problem: decisions. Where a state can come again, nobody looks more than 40 steps ahead.
        families: the families, of which some may be your own (`mh.Lookahead`). In tasks with a limited number of steps free
            weights are always fitted, because the others are tested against them; in others there are too many of them.
        demonstrations: the table the problem was made of, or one for each task, to hold out half of each expert's episodes; where
            an expert has only one, nothing is held out.
        solver: what is known of rewards and temperatures; by default `MaximumLikelihood()`.
        seed: scatters the starts and deals the episodes.
        progress: called after each family.

    Returns:
        The fit of each family, and held-out likelihood where `demonstrations` are given
        (`multihorizon.questions.lookahead_comparison.LookaheadComparison`).

    Raises:
        ValueError: for a very long task, or one with very many rewards.

    Example:
        >>> import multihorizon as mh
        >>> task = mh.domains.space_adventure(8)
        >>> problem = mh.Problem(task.mdp, task.persons(2).demonstrations, features=task.features)
        >>> len(mh.compare_lookahead(problem, (mh.Exponential(), mh.Depth())).to_frame())
        3
    """
    run = Run(as_seed(seed), progress=progress)
    solver = solver or MaximumLikelihood()
    check_comparable(require_finite(problem), solver)
    exponential = replace(solver, deviations=0.0).search(problem, run.part(0.0, 0.4))[1]
    return compare_from(exponential.best.point, families, demonstrations, run=run.part(0.4, 1.0))


def check_comparable(problem: Problem, solver: MaximumLikelihood) -> None:
    """Raise unless families of look-ahead can be compared in these tasks with these options."""
    require_lookahead(problem, solver.known_reward)
    if not solver.is_soft:
        raise ValueError(f"families of look-ahead need {SOFT_ALONE}, got others")
    if solver.discounts is not None:
        raise ValueError("families of look-ahead can only be compared where discounts are estimated, got known ones")
    if solver.deviations not in (0, "estimated"):
        raise ValueError(f"families of look-ahead are compared with one reward for all, got deviations {solver.deviations:g}")


def compare_from(
    base: Point,
    families: Sequence[Lookahead] = FAMILIES,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    *,
    run: Run,
) -> LookaheadComparison:
    """Return the comparison begun at an answer with discounts; arguments as in `compare_lookahead`."""
    likelihood = base.likelihood
    # Free weights come last: they begin where the others ended, and the others are tested against them.
    wanted = [*dict.fromkeys(family for family in FAMILIES if family in families), *(f for f in families if f not in FAMILIES)]
    free = [FreeWeights()] if all(steps_left(mdp) is not None for mdp in likelihood.problem.mdps) else []
    wanted = [*(family for family in wanted if not isinstance(family, FreeWeights)), *free]
    fits: list[LookaheadFit] = []
    for number, family in enumerate(wanted):
        contained = [fit.point for fit in fits] if isinstance(family, FreeWeights) else []
        fits.append(fit_lookahead(base, family, contained))
        run.progress(0.5 * (number + 1) / len(wanted), f"{family.name}: log-likelihood {decimals(fits[-1].point.value, 2)}")
    held_out = np.full(len(fits), np.nan)
    tables = [] if demonstrations is None else tables_of(likelihood.problem, demonstrations)
    if tables and all(min(table.episode_counts) > 1 for table in tables):
        held_out = _held_out(base, fits, tables, run.part(0.5, 1.0))
    details = [lookahead_evidence(fit, base) for fit in fits]
    counts = [int(detail["parameter_count"]) for detail in details]
    aic = [2 * p - 2 * fit.point.value for p, fit in zip(counts, fits, strict=True)]
    # AICs are equal up to what climbs leave, 1e-6.
    best = min(range(len(fits)), key=lambda i: (not fits[i].ascent.finished, round(aic[i] / 1e-6), i))
    rows = []
    for i in sorted(range(len(fits)), key=lambda i: (i != best, aic[i])):
        fit = fits[i]
        value = fits[i].point.value
        statistic, degrees, free_p = _nested_test(fit, fits[-1] if free else fit)
        best_p, verdict = _against_best(fit, fits[best], counts[i] - counts[best])
        bic = counts[i] * float(np.log(likelihood.decisions)) - 2 * value
        figures = value, counts[i], aic[i], bic, float(held_out[i]), statistic, degrees, free_p, best_p
        rows.append(FamilyRow(fit.model.family.name, *figures, verdict, fit.ascent.finished, details[i]))
    return LookaheadComparison(likelihood.problem.names, likelihood.decisions, fits[-1].model.steps, tuple(rows))


def _nested_test(fit: LookaheadFit, wider: LookaheadFit) -> tuple[float, int, float]:
    """Return the likelihood-ratio test of a family within a wider one: statistic, degrees of freedom, p-value; NaN for the
    same."""
    if fit is wider or not (fit.ascent.finished and wider.ascent.finished):
        return np.nan, 0, np.nan
    most = {"depth": 0, "quasi-hyperbolic": 1}.get(fit.model.family.name, fit.model.n_coordinates)
    degrees = sum(wide - min(most, fitted) for wide, fitted in zip(*map(lookahead_counts, (wider.model, fit.model)), strict=True))
    statistic = max(0.0, 2 * (wider.point.objective - fit.point.objective))
    return statistic, degrees, float(chi2_sf(statistic, degrees)) if degrees else 1.0


def _against_best(fit: LookaheadFit, best: LookaheadFit, more: int) -> tuple[float, str]:
    """Return the p-value of "as good as the best", and the verdict.

    The test is the likelihood ratio where one family contains the other, else Vuong's; `more` is p_f − p_g.
    """
    name = best.model.family.name
    if fit is best:
        return 1.0, "best"
    if fit.model.steps <= 2 and fit.depth_profile is None and best.depth_profile is None:
        return 1.0, f"same as {name}"  # with at most two steps, all but depths are free to choose the only weight
    if not (fit.ascent.finished and best.ascent.finished):
        return np.nan, "not known: its fit did not converge"
    if _contains(best, fit):
        p = _nested_test(fit, best)[2]
    elif _contains(fit, best):
        p = _nested_test(best, fit)[2]
    else:
        total = squares = 0.0
        for batch, one, two in zip(fit.model.batches, fit.point.plans, best.point.plans, strict=True):
            ratio = one.finite_log - two.finite_log
            total += float((batch.counts * ratio).sum())
            squares += float((batch.counts * ratio**2).sum())
        spread = float(np.sqrt(max(0.0, squares - total**2 / fit.model.decisions)))
        beyond = total - min(max(total, min(0.0, more / 2)), max(0.0, more / 2))
        p = float(2 * ndtr(-abs(beyond) / spread)) if spread > 0 else 1.0
    return p, f"{'not distinguished' if p >= 0.05 else 'differs'} from {name}"


def _contains(wide: LookaheadFit, narrow: LookaheadFit) -> bool:
    family, other = wide.model.family, narrow.model.family
    return isinstance(family, FreeWeights) or (isinstance(family, QuasiHyperbolic) and isinstance(other, Exponential))


def _held_out(base: Point, fits: Sequence[LookaheadFit], tables: Sequence[Demonstrations], run: Run) -> Floats:
    """Return the log-likelihood `(F,)` of each half of the episodes under each family's fit to the other half, summed."""
    experts = base.likelihood.problem.experts
    parts = deal(base.likelihood.problem, tables, 2, np.random.default_rng(run.seed))
    total = np.zeros(len(fits))
    for number, test in enumerate(parts, start=1):
        train = [require_counts(expert) - part for expert, part in zip(experts, test, strict=True)]
        for i, fit in enumerate(fits):
            start = of_part(fit.model, train).at(fit.point.x)
            assert start is not None
            end = search(start)
            reached = end.model.with_counts(test).at(end.point.x)
            assert reached is not None
            total[i] += reached.value
        run.progress(number / len(parts), f"held-out half {number}")
    return total
