"""A fit to states that are vectors, with everything a reader needs to judge it: what `multihorizon fit --state` runs.

The steps are public functions of their own: the fit, tests of shared discounts, and the reward as a function. Three verdicts
say how far the experts look ahead, whether the data can tell, and whether the model fits. The first two, and the test against
chance, are those of every fit (`findings.py`, `words.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.continuous.discount_tests import sampled_discount_tests
from multihorizon.continuous.functions import Functions, functions
from multihorizon.continuous.limits import dynamics_unknown, unpredicted
from multihorizon.continuous.sampled import SampledProblem
from multihorizon.continuous.sieve_likelihood import LARGEST_DISCOUNT
from multihorizon.continuous.solver import SieveLikelihood
from multihorizon.driver import solve
from multihorizon.progress import Progress, part_of, silent
from multihorizon.report.findings import LEVEL, Judged, not_to_be_used
from multihorizon.report.formats import count, in_words
from multihorizon.report.goal_check import QUESTION
from multihorizon.report.people import people_frame
from multihorizon.report.words import (
    Verdict,
    identifiability_verdict,
    look_ahead_verdict,
    nobody_better_than_chance,
    told_only_if_it_fits,
)
from multihorizon.solution import Status
from multihorizon.tables.steps import Steps

#: The model fits well where it explains this share of what the choices' own logits explain, and next states are predicted at all.
WELL_EXPLAINED = 0.95
#: What is said of one reward for all experts.
NOT_TESTED = "This was not tested: there is no test of it yet for states that are vectors."


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledAnalysis(Judged):
    """What `analyse_steps` found, in numbers and in words. `quick` leaves out the tests."""

    steps: Steps
    functions: Functions

    @property
    def known(self) -> list[bool]:
        """Whether each discount was known beforehand, and so was not estimated."""
        told = self.solution.options.get("discounts")
        return [name in told if isinstance(told, dict) else told is not None for name in self.solution.experts]

    @property
    def longest(self) -> float:
        """Infinite: logged steps alone do not show that a task must end."""
        return np.inf

    @property
    def largest_discount(self) -> float:
        """The largest discount the fit tries."""
        return LARGEST_DISCOUNT

    @property
    def rewards_told(self) -> int:
        """The basis functions of the reward, less the directions that stay open."""
        evidence = self.solution.evidence
        return max(0, int(evidence["functions"]) - int(evidence["unidentified_directions"]))

    @cached_property
    def decisions(self) -> Floats:
        """Decisions of each expert `(K,)`."""
        return np.array([float(batch.visits.sum()) for batch in self.functions.point.likelihood.design.decisions])

    @cached_property
    def chance(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` if all available actions were equally likely."""
        batches = self.functions.point.likelihood.design.decisions
        return np.array([batch.chance for batch in batches]) / self.decisions

    @cached_property
    def fitted(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` under the fitted policy."""
        point = self.functions.point
        pairs = zip(point.likelihood.design.decisions, point.plans, strict=True)
        return np.array([float((batch.counts * plan.finite_log).sum()) for batch, plan in pairs]) / self.decisions

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """How far do they look ahead? Can the data tell? Does the model fit?"""
        fit = _fits(self)
        return look_ahead_verdict(self), told_only_if_it_fits(_can_tell(self), fit), fit

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        found = [f"Do not use these numbers. {self.withheld}"] if self.withheld else []
        if self.solution.evidence["basis_too_poor"]:
            found.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
        return found

    @property
    def headline(self) -> str:
        """The opening paragraph."""
        look, tell, fit = self.verdicts
        goals = [] if len(self.solution.experts) == 1 else [f"{QUESTION} {NOT_TESTED}"]
        return " ".join([*self.warnings, *goals, *([] if self.withheld else [look.reasons]), tell.reasons, fit.reasons])

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        return people_frame(self)


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
    found = SampledAnalysis(
        solution=solution,
        intervals=solution.confidence_intervals(LEVEL),
        episodes=np.array([np.unique(steps.episode_numbers[steps.expert == k]).size for k in range(len(steps.experts))]),
        shared=shared,
        pairs=pairs,
        withheld=not_to_be_used(solution),
        quick=quick,
        steps=steps,
        functions=functions(solution),
    )
    return replace(found, intervals=np.where(np.array(found.given)[:, None], found.intervals, np.nan))


def _can_tell(found: SampledAnalysis) -> Verdict:
    """The verdict of every fit, and what learned dynamics and a basis add to it."""
    told, evidence = identifiability_verdict(found), found.solution.evidence
    if told.kind == "bad" or all(found.known):
        return told
    if dynamics_unknown(evidence["next_state_r2"]):
        reasons = "State and action do not predict next states, so plans are not known."
        return Verdict(told.question, "Hardly", reasons, "caution")
    if evidence["basis_too_poor"]:
        reasons = "Richer functions of the state predict choices better."
        return Verdict(told.question, "Not with this basis", reasons, "caution")
    return replace(told, reasons=f"{told.reasons} The intervals include the error of the learned dynamics.")


def _fits(found: SampledAnalysis) -> Verdict:
    question, evidence = "Does the model fit?", found.solution.evidence
    if nobody_better_than_chance(found):
        return Verdict(question, "No", "The model explains the decisions no better than chance.", "bad")
    if found.withheld:
        return Verdict(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    share = float(evidence["explained_share"])
    weak = unpredicted(evidence["next_state_r2"])
    reasons = (
        f"One reward and {count(len(found.solution.experts), 'discount')} explain {100 * share:.0f} % of what the same functions "
        "explain of the choices without any plan. Whether something outside the state changes between episodes was not tested."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= WELL_EXPLAINED and not weak
    return Verdict(question, "Yes" if good else "In part", reasons, "good" if good else "caution")
