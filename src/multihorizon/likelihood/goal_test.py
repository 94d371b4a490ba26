"""Do all experts share one reward? A Monte Carlo test.

With L₁ the log-likelihood of the fit with one reward and L_K that of the fits with a reward for each
expert, both under the prior of `goal_scores.py`, the statistic is the loss `L_K − L₁`. New decisions are drawn from the fit
with one reward, in the states in which the experts decided, and all is fitted again. The p-value is that of a Monte Carlo test,
`(1 + exceedances)/(1 + simulations)`. A χ² is not relied on: rewards of states that are rarely visited and discounts on a bound
would spoil it. Simulation stops when the exceedances are `ENOUGH` of the plan (Besag and Clifford, 1991). It is left out where
the loss is so large that even half of the usual χ² statistic `2 (L_K − L₁)` has a p-value below `CERTAIN`, with a degree for
each reward that is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.bootstrap import draw_decisions
from multihorizon.likelihood.goal_groups import HOPELESS
from multihorizon.likelihood.goal_scores import CLIMB_GAIN, GroupFit, Scores, finish
from multihorizon.parallel import in_parallel
from multihorizon.progress import Progress, silent

#: Simulation stops when this share of the planned statistics is as large as the one that was found.
ENOUGH = 0.1
#: A p-value of half the statistic below which no simulation is needed.
CERTAIN = 1e-10


@dataclass(frozen=True)
class SharedGoalTest:
    """A test that all experts share one reward: `statistic` is the loss of log-likelihood, NaN where it is not known.

    The p-value is NaN where the fit with one reward, or that of an expert alone, did not end and the loss leaves doubt.
    `simulations` says how many tables were drawn; 0 where the loss leaves no doubt, and where nothing could be tested.
    """

    statistic: float
    p_value: float
    simulations: int

    @property
    def words(self) -> str:
        """The p-value as it stands in a sentence."""
        return "p below 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.2g}"


def shared_goal_test(scores: Scores, simulations: int, seed: int, progress: Progress = silent, jobs: int = 1) -> SharedGoalTest:
    """Test that all experts share one reward; `jobs` processes share the simulations."""
    everyone = frozenset(range(scores.problem.n_experts))
    if len(everyone) == 1:
        return SharedGoalTest(np.nan, np.nan, 0)
    together, singles = scores(everyone), [scores(frozenset((k,))) for k in sorted(everyone)]
    statistic = _loss(together, singles)
    bound = float(chi2.sf(statistic, (len(everyone) - 1) * scores.problem.n_parameters))
    if bound < CERTAIN and (together.finished or statistic > HOPELESS):
        return SharedGoalTest(statistic, bound, 0)
    if not all(fit.finished for fit in (together, *singles)):
        return SharedGoalTest(statistic, np.nan, 0)
    exceeded, enough = 0, int(ENOUGH * (simulations + 1))
    losses = in_parallel(partial(_simulated_loss, together, singles), np.random.SeedSequence(seed).spawn(simulations), jobs)
    for number, loss in enumerate(losses, start=1):
        exceeded += loss >= statistic
        progress(number / simulations, f"simulation {number} of {simulations}")
        if exceeded == enough:
            return SharedGoalTest(statistic, enough / number, number)
    return SharedGoalTest(statistic, (1 + exceeded) / (1 + simulations), simulations)


def _loss(together: GroupFit, singles: Sequence[GroupFit]) -> float:
    """The log-likelihood that one reward loses against one for each."""
    return sum(single.point.value for single in singles) - together.point.value


def _simulated_loss(together: GroupFit, singles: Sequence[GroupFit], seed: np.random.SeedSequence) -> float:
    """The same for decisions drawn from the fit with one reward, climbed from that fit and from the experts' own."""
    counts = draw_decisions(together.point, np.random.default_rng(seed))
    owner = together.point.likelihood.problem.owner
    own = [_refit(single, [c for c, k in zip(counts, owner, strict=True) if k == i]) for i, single in enumerate(singles)]
    return _loss(_refit(together, counts), own)


def _refit(fit: GroupFit, counts: Sequence[Floats]) -> GroupFit:
    start = fit.point.likelihood.with_counts(counts).at(fit.point.x, fit.point)
    assert start is not None
    return finish(climb(start, gain=CLIMB_GAIN))
