"""A fit to states that are vectors, with everything a reader needs to judge it: what `multihorizon fit --state` runs.

The steps are public functions of their own: the fit, tests of shared discounts, and the reward as a function. Three verdicts
say how far the experts look ahead, whether the data can tell, and whether the model fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.continuous.discount_tests import sampled_discount_tests
from multihorizon.continuous.functions import Functions, functions
from multihorizon.continuous.limits import dynamics_unknown, unpredicted
from multihorizon.continuous.sampled import SampledProblem
from multihorizon.continuous.sieve_likelihood import LARGEST_DISCOUNT
from multihorizon.continuous.solver import SieveLikelihood
from multihorizon.driver import solve
from multihorizon.likelihood.horizon_tests import SharedDiscountTest
from multihorizon.progress import Progress, part_of, silent
from multihorizon.report.findings import LEVEL, VAGUE_WIDTH
from multihorizon.report.formats import count, from_to, in_words, p_text
from multihorizon.report.words import Verdict
from multihorizon.solution import Solution, Status
from multihorizon.tables.steps import Steps

#: The model fits well where it explains this share of what the choices' own logits explain, and next states are predicted at all.
WELL_EXPLAINED = 0.95
SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class SampledAnalysis:
    """What `analyse_steps` found, in numbers and in words. `quick` leaves out the tests."""

    steps: Steps
    solution: Solution
    functions: Functions
    shared: SharedDiscountTest | None
    pairs: list[SharedDiscountTest]
    quick: bool

    @property
    def withheld(self) -> bool:
        """Whether the answer must not be used: no maximum was found."""
        return self.solution.status is Status.NOT_CONVERGED

    @property
    def given(self) -> Bools:
        """Whether each expert `(K,)` gets a discount."""
        found: Bools = np.array(self.solution.evidence["identified"], dtype=np.bool_) & (not self.withheld)
        return found

    @property
    def known(self) -> Bools:
        """Whether each discount `(K,)` was known beforehand, and so was not estimated."""
        told = self.solution.options.get("discounts")
        named = [name in told if isinstance(told, dict) else told is not None for name in self.solution.experts]
        return np.array(named, dtype=np.bool_)

    @property
    def intervals(self) -> Floats:
        """The intervals `(K,2)`; NaN where there is no discount."""
        return np.where(self.given[:, None], self.solution.confidence_intervals(LEVEL), np.nan)

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """How far do they look ahead? Can the data tell? Does the model fit?"""
        return _look_ahead(self), _can_tell(self), _fits(self)

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        found = ["No maximum of the likelihood was found: do not use this result."] if self.withheld else []
        if self.solution.evidence["basis_too_poor"]:
            found.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
        return found

    @property
    def headline(self) -> str:
        """The opening paragraph."""
        return " ".join([*self.warnings, *(verdict.reasons for verdict in self.verdicts)])


def analyse_steps(
    steps: Steps, solver: SieveLikelihood | None = None, seed: int = 0, quick: bool = False, progress: Progress = silent
) -> SampledAnalysis:
    """Fit logged steps and judge the fit.

    Args:
        steps: the decisions.
        solver: the options of the fit.
        seed: fixes all randomness.
        quick: leave out tests of shared discounts.
        progress: called with the share of the work that is done and where it stands.
    """
    solution = solve(SampledProblem(steps), solver or SieveLikelihood(), seed, part_of(progress, 0.0, 0.7))
    tested = not quick and solution.status is Status.CONVERGED
    shared, pairs = sampled_discount_tests(solution, part_of(progress, 0.7, 1.0)) if tested else (None, [])
    return SampledAnalysis(steps, solution, functions(solution), shared, pairs, quick)


def horizon(discount: float) -> str:
    """The effective horizon `1/(1−γ)` of a discount in steps; the largest discount tried is a limit."""
    if discount >= LARGEST_DISCOUNT:
        return f"≥ {1 / (1 - LARGEST_DISCOUNT):,.0f}"
    return f"{1 / (1 - discount):.1f}"


def discount_cell(discount: float) -> str:
    """A discount with three decimals; the largest one tried is a limit."""
    return f"≥ {LARGEST_DISCOUNT:g}" if discount >= LARGEST_DISCOUNT else f"{discount:.3f}"


def person_cells(found: SampledAnalysis, k: int) -> tuple[str, str, str, str]:
    """Horizon, discount, interval and temperature of expert k as they are shown."""
    gamma, ends, heat = float(found.solution.discounts[k]), found.intervals[k], found.solution.temperature
    warmth = "–" if heat is None else f"{heat[k]:.2f}"
    if not found.given[k]:
        return "–", "–", "not known", warmth
    if found.known[k]:
        return "unlimited" if gamma >= 1 else f"{1 / (1 - gamma):,.1f}", f"{gamma:g}", "known", warmth
    interval = "–" if np.isnan(ends).any() else " to ".join(discount_cell(float(end)) for end in ends)
    return horizon(gamma), discount_cell(gamma), interval, warmth


def _look_ahead(found: SampledAnalysis) -> Verdict:
    question = "How far do they look ahead?"
    order = [k for k in np.argsort(found.solution.discounts) if found.given[k]]
    if not order:
        return Verdict(question, "Not known", "No expert's planning horizon can be told.", "bad")
    names, gammas = found.solution.experts, found.solution.discounts
    each = [f"{names[k]} {horizon(float(gammas[k]))}" for k in order]
    answer = from_to([horizon(float(gammas[k])) for k in (order[0], order[-1])]) + " steps"
    reasons = f"Effective horizons in steps: {in_words(each)}.{_difference(found.shared)}"
    return Verdict(question, answer, reasons, "caution" if found.warnings else "good")


def _difference(test: SharedDiscountTest | None) -> str:
    if test is None or np.isnan(test.p_value):
        return ""
    if test.p_value < SIGNIFICANT:
        return f" They do not all look equally far: p {p_text(test.p_value)}."
    return f" The decisions do not show that they differ: p {p_text(test.p_value)}."


def _can_tell(found: SampledAnalysis) -> Verdict:
    question, evidence = "Can the data tell?", found.solution.evidence
    if found.withheld:
        return Verdict(question, "Not with this fit", "Whether the data can tell is open until a fit succeeds.", "bad")
    if found.known.all():
        return Verdict(question, "Not asked", "No discount was estimated.", "good")
    unknown = [name for name, known in zip(found.solution.experts, evidence["identified"], strict=True) if not known]
    if unknown:
        return Verdict(question, "No" if not found.given.any() else "Not for all", found.solution.message, "bad")
    widths = np.ptp(found.intervals, axis=1)
    vague = [name for name, width in zip(found.solution.experts, widths, strict=True) if not width <= VAGUE_WIDTH]
    learned = "The intervals include the error of the learned dynamics."
    if vague:
        return Verdict(question, "Hardly", f"The intervals of {in_words(vague)} are too wide to say much. {learned}", "caution")
    if dynamics_unknown(evidence["next_state_r2"]):
        return Verdict(question, "Hardly", "State and action do not predict next states, so plans are not known.", "caution")
    if evidence["basis_too_poor"]:
        return Verdict(question, "Not with this basis", "Richer functions of the state predict choices better.", "caution")
    return Verdict(question, "Yes", f"The widest 95 % interval spans {widths[~found.known].max():.2f}. {learned}", "good")


def _fits(found: SampledAnalysis) -> Verdict:
    question, evidence = "Does the model fit?", found.solution.evidence
    if found.withheld:
        return Verdict(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    share = float(evidence["explained_share"])
    weak = unpredicted(evidence["next_state_r2"])
    reasons = (
        f"One reward and {count(len(found.solution.experts), 'discount')} explain {100 * share:.0f} % of what the same functions "
        "explain of the choices without any plan."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= WELL_EXPLAINED and not weak
    return Verdict(question, "Yes" if good else "In part", reasons, "good" if good else "caution")
