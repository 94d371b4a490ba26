"""Do all experts share one discount, do they share one reward, and does it depend on the state reached alone?

*One discount.* Under the hypothesis that some experts have one discount, the likelihood is maximised again with that one, and
twice the loss of log-likelihood is compared with χ². Where the temperatures have an estimated spread, the likelihood is that of
the decisions given the spread, with temperatures integrated out (`log_likelihood_given`). Where the hypothesis leaves the reward
and the discount as determined as they are without it, the degrees of freedom are the contrasts given up: one for a pair.

Often it does not: two experts with one discount act alike, and one behaviour alone does not separate a discount from a reward.
Then m directions are open under the hypothesis only, and the alternative may choose, along them, *how* the two experts would
differ as well as by how much. The loss is then a maximum over directions and larger than χ² with one degree of freedom. Each open
direction is therefore counted twice. These `contrasts + 2m` degrees kept the test's level in simulations
(`benchmarks/pairwise_level.py`), at some cost in power. m is a difference of ranks of the Fisher information, with one discount
and with the same experts' discounts set apart. Where no rank is lost there is no test and the p-value is NaN. It is NaN too where
the climb under the hypothesis did not end, unless it is so far behind that further steps could not save the hypothesis. Where a
shared discount lies on a bound the true distribution is smaller than χ², and the test is conservative. Pairwise p-values come
with Holm's correction for testing all pairs.

Where a solution takes episodes as independent, and not decisions, the loss of log-likelihood is no χ². Then the scores of the
members' discounts at the maximum under the hypothesis are compared with those of drawn signs (`likelihood.clusters`). Directions
that are open do no harm there. For a solution of `SieveLikelihood` the learned dynamics make the loss larger than χ², by the
factor by which they widen the variance of the members' differences. It is divided by this factor. Directions are counted at the
two answers.

*One reward.* Let the reward of expert k be `θ + a_k` with `a_k ~ N(0, τ²)`, in temperatures for the largest value of each
feature. The hypothesis is `a_k = 0` for all. The statistic is twice the log-likelihood that own rewards gain, less their cost,

    D = 2 Σ_k max_(a,γ,λ) [L_k(θ + a, γ, λ) − |a|²/(2τ²)] − 2 Σ_k max_(γ,λ) L_k(θ, γ, λ),

at the θ of the fit with one reward. It takes one short climb for each expert, so its cost is near that of the fit.

Its distribution: decisions are drawn from the fit, in the states in which the experts decided. As far as the likelihood is
quadratic, D follows from scores, and no draw need be fitted: with g_k the score of expert k's decisions in `(θ, γ_k, log λ_k)`
and B_k their information, one step `δ = (Σ B)⁻ Σ g` fits all again, `r_k = g_k − B_k δ` is left, and

    S = Σ_k u_kᵀ (J_k + τ⁻²)⁻¹ u_k,

where u_k and J_k are the parts of r_k and B_k in a_k that an own discount and temperature cannot explain. A discount that rests
on a bound explains nothing. The likelihood is not quadratic where decisions are few. So for some draws of each expert the climbs
are made, and D − S of one of them, at random, is added to that expert's part of every S. A χ² would be spoiled by states that
are rarely visited. The p-value is that of a Monte Carlo test, `(1 + exceedances)/(1 + simulations)`.

Where the solution takes episodes as independent, and not decisions, S stands for D, and the scores that are compared with those
of the decisions are sums over episodes with signs drawn anew (`likelihood.clusters`). Then a goal, or a habit, that changes from
episode to episode is no difference between experts. Pooled temperatures are free here, with `log λ ~ N(0, 1)`, and rewards are
held by the weak prior of the fit. With more than 100 rewards climbs take long, and S stands for D everywhere.

Whoever asks gets the answer of `fit_and_test`: where deviations from one reward can be estimated, the test of τ = 0, which the
simulated test must confirm where it rejects; else the simulated test alone.

*Rewards of states or of actions.* The tests of `likelihood.action_rewards` are made at a fit, and here is what follows where
goals seem to differ. Experts who share a reward of actions look as if they had different goals, to a model that knows rewards of
states alone. And experts with different goals look as if actions had costs, to a model with one reward. So the tests are made at
the fit with one reward. Where a wider reward predicts clearly better there, and one reward of states is not rejected, it is
fitted.

Where one reward of states is rejected, a reward for each state and action says little: one such reward explains any two experts
exactly. For if `u_k = r_k + γ_k V_k`, then with any two discounts γ'_1 ≠ γ'_2 and

    (γ'_1 − γ'_2) d = u_1 − u_2 − γ'_1 V_1 + γ'_2 V_2,      V'_k = V_k + d,      R = V'_k + λ log π_k − γ'_k T V'_k

is the same for both. So one cost for each action must predict clearly better, too. If it does, each wider reward that predicts
clearly better is fitted, and one reward is tested once more beside it:

* one wider reward for all is not rejected: it explains what looked like different goals;
* all are rejected, too, or costs of actions do not predict clearly better: goals differ, and these costs are tested anew beside
  each expert's deviations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import ndtri

from multihorizon.checks import TINY, Bools, Floats, Ints
from multihorizon.choice.deviations import NearlyShared, NearPoint
from multihorizon.choice.model import ChoiceModel, Likelihood, Point, Quadratic, decide
from multihorizon.choice.settings import with_known_reward
from multihorizon.driver import solve
from multihorizon.likelihood.action_rewards import StateRewardTest, WiderReward, tested_at, wider_rewards
from multihorizon.likelihood.clusters import flipped, sign_flip_test
from multihorizon.likelihood.estimates import FunctionEstimate, LikelihoodEvidence
from multihorizon.likelihood.intervals import (
    HOPELESS,
    Precision,
    contrasts_of,
    degrees_of,
    holm,
    merged_groups,
    with_one_discount,
)
from multihorizon.likelihood.maximum_likelihood import WEAK_PRIOR, MaximumLikelihood, resume
from multihorizon.likelihood.random_effects import log_likelihood_given
from multihorizon.likelihood.search import climb
from multihorizon.numerics.distributions import chi2_sf
from multihorizon.numerics.newton import Ascent, resting
from multihorizon.numerics.spectrum import spectrum
from multihorizon.parallel import Progress, Run, in_parallel, limits, silent
from multihorizon.problem import Problem
from multihorizon.result import Result
from multihorizon.solution import SOFT_ALONE, Deviations, Solution, Status
from multihorizon.words import decimals, p_text, significant

if TYPE_CHECKING:
    from multihorizon.choice.sieve_model import SievePoint


@dataclass(frozen=True)
class SharedDiscountTest(Result):
    """A test that these experts have one discount: `statistic` is χ² with `degrees`; `adjusted` is Holm's p-value.

    The p-values are NaN where there is nothing to test, and where the fit with one discount did not end; `reason` says which.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("experts", "p_value")

    experts: tuple[str, ...]
    discount: float
    statistic: float
    degrees: int
    p_value: float
    adjusted: float
    reason: str = ""

    def sentences(self) -> str:
        """Return the finding in a sentence."""
        names = ", ".join(self.experts)
        if np.isnan(self.p_value):
            why = f": {self.reason}" if self.reason else ""
            return f"Whether {names} have one discount factor was not tested{why}."
        finding = (
            "The decisions reject one discount factor"
            if self.adjusted < 0.05
            else "The decisions do not reject one discount factor"
        )
        return (
            f"{finding} for {names}: χ² = {decimals(self.statistic, 2)} with {self.degrees} degrees of freedom, p "
            f"= {significant(self.adjusted, 2)}."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row: the experts, their common discount, and the figures of the test."""
        return pd.DataFrame([vars(self) | {"experts": ", ".join(self.experts)}])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, None for what is not identified."""
        values = vars(self) | {"experts": list(self.experts)}
        return {name: None if value != value else value for name, value in values.items()}


@dataclass(frozen=True, eq=False)
class PairwiseTests(Result, Sequence[SharedDiscountTest]):
    """The tests of all pairs of experts, with Holm's correction for their number; a sequence of its `tests`."""

    _drawn: ClassVar[tuple[str, ...]] = ("experts", "adjusted")

    tests: tuple[SharedDiscountTest, ...]

    def __getitem__(self, place: Any) -> Any:
        return self.tests[place]

    def __len__(self) -> int:
        return len(self.tests)

    def sentences(self) -> str:
        """Return how many pairs differ."""
        differ = sum(test.adjusted < 0.05 for test in self.tests)
        return f"{differ} of {len(self.tests)} pairs have different discounts, with Holm's correction."

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair."""
        frames = [test.to_frame() for test in self.tests]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"experts": [], "adjusted": []})


def shared_discount_test(solution: Solution) -> SharedDiscountTest:
    """Test that all experts of a solution of `MaximumLikelihood` or `SieveLikelihood` have one discount factor.

    Args:
        solution: of `MaximumLikelihood` or `SieveLikelihood`.

    Returns:
        The statistic, its degrees of freedom and the p-value (`multihorizon.questions.sharing.SharedDiscountTest`).

    Raises:
        ValueError: for solutions of other solvers.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0)
        >>> problem = mh.Problem(d.mdp, table)
        >>> solution = mh.solve(problem, mh.MaximumLikelihood(1.0))
        >>> mh.shared_discount_test(solution).p_value < 0.001
        True
    """
    return _tests_of(solution)[1](tuple(range(solution.discounts.size)))


def pairwise_tests(solution: Solution, *, jobs: int = 1, progress: Progress = silent) -> PairwiseTests:
    """Test for each pair of experts that they have one discount factor, with Holm's correction; `jobs` processes share the work.

    Args:
        solution: of `MaximumLikelihood` or `SieveLikelihood`.
        jobs: processes; −1 for all cores.
        progress: called as tests finish.

    Returns:
        One test for each pair of experts (`multihorizon.questions.sharing.PairwiseTests`).

    Raises:
        ValueError: for solutions of other solvers.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0)
        >>> problem = mh.Problem(d.mdp, table)
        >>> solution = mh.solve(problem, mh.MaximumLikelihood(1.0))
        >>> len(mh.pairwise_tests(solution).to_frame())
        3
    """
    return with_holm(list(each_pair(solution, Run(0, jobs, progress))))


def each_pair(solution: Solution, run: Run = Run()) -> Iterator[SharedDiscountTest]:
    """Yield the test of each pair that has something to test, as soon as it is done, not yet corrected."""
    model, spread_test = _tests_of(solution)
    pairs = [pair for pair in combinations(range(solution.discounts.size), 2) if contrasts_of(model, pair)]
    for number, test in enumerate(in_parallel(spread_test, pairs, run.jobs), start=1):
        run.progress(number / len(pairs), f"pair {number} of {len(pairs)}")
        yield test


def with_holm(tests: Sequence[SharedDiscountTest]) -> PairwiseTests:
    """Return the same tests with Holm's correction for their number."""
    corrected = []
    for test, p_value in zip(tests, holm(np.array([test.p_value for test in tests])).tolist(), strict=True):
        corrected.append(replace(test, adjusted=p_value))
    return PairwiseTests(tuple(corrected))


def _tests_of(solution: Solution) -> tuple[ChoiceModel, Callable[[tuple[int, ...]], SharedDiscountTest]]:
    """Return the model of a solution, and the test of some of its experts."""
    estimate = solution.interval_source
    if isinstance(estimate, FunctionEstimate):
        return estimate.model, partial(_sampled_test, cast("SievePoint", estimate.place), estimate.widened, estimate.matrix)
    # The spread of log-temperatures is 0 where they are equal, known or untied.
    point = resume(solution)
    spread = float(LikelihoodEvidence.of(solution).temperature_spread or 0.0)
    return point.likelihood, partial(_test, point, spread)


def _test(point: Point, spread: float, members: tuple[int, ...]) -> SharedDiscountTest:
    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    contrasts = contrasts_of(model, members)
    if not contrasts:
        return SharedDiscountTest(names, np.nan, np.nan, 0, np.nan, np.nan, "their discounts were given")
    end = with_one_discount(point, members)
    if model.clusters is not None:
        return _test_by_clusters(point, end, members, contrasts)
    degrees = degrees_of(point, end.point, members, contrasts)
    shared = float(end.point.likelihood.discounts(end.point.x)[members[0]])
    statistic = max(0.0, 2 * (log_likelihood_given(point, spread) - log_likelihood_given(end.point, spread)))
    testable = degrees > 0 and (end.finished or statistic > 2 * HOPELESS)
    p_value = float(chi2_sf(statistic, degrees)) if testable else np.nan
    why = "the fit with one discount did not end" if degrees else "one discount determines as much as several"
    return SharedDiscountTest(names, shared, statistic, degrees, p_value, p_value, "" if testable else why)


def _test_by_clusters(point: Point, end: Ascent[Point], members: tuple[int, ...], contrasts: int) -> SharedDiscountTest:
    """Return the test where clusters are independent, at the maximum under the hypothesis."""
    model, x = point.likelihood, end.point.x
    shared = end.point.likelihood.discounts(x)
    grouped = np.array([shared[model.groups == g][0] for g in range(model.n_discounts)])
    temperatures, moved = (x[part] for part in (end.point.likelihood.temperature_slice, end.point.likelihood.beside_slice))
    there = model.at(model.pack(end.point.likelihood.reward(x), grouped, np.exp(temperatures), moved))
    groups = np.unique(model.groups[list(members)])
    free = groups[~model.fixed[model.discount_slice][groups]]
    among = np.zeros((model.size, free.size))
    among[model.n_reward + free, np.arange(free.size)] = 1.0
    if contrasts < free.size:  # no discount among them is known
        among = among[:, 1:] - among[:, :1]
    flipped_test = (np.nan, np.nan) if there is None or not end.finished else sign_flip_test(there, among)
    names = tuple(model.problem.names[i] for i in members)
    return SharedDiscountTest(names, float(shared[members[0]]), flipped_test[0], contrasts, flipped_test[1], flipped_test[1])


def _sampled_test(point: SievePoint, precise: Precision, full: Floats, members: tuple[int, ...]) -> SharedDiscountTest:
    """Return the test in sampled states; `precise` is the answer's precision, and `full` `(p,p)` its covariance with the first
    stage."""
    from multihorizon.choice.sieve_model import SievePoint  # noqa: PLC0415  states are vectors: only now is scikit-learn needed
    from multihorizon.likelihood.sieve import sieve_precision  # noqa: PLC0415

    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    contrasts = contrasts_of(model, members)
    shared = model.sharing(merged_groups(model, members))
    values = np.array([model.discounts(point.x)[shared.groups == g].mean() for g in range(shared.n_discounts)])
    start = shared.at(shared.pack(model.reward(point.x), values, np.exp(point.x[model.temperature_slice]))) if contrasts else None
    if start is None:
        return SharedDiscountTest(names, np.nan, np.nan, 0, np.nan, np.nan)
    end = climb(start, max_steps=40, gain=1e-3).point
    assert isinstance(end, SievePoint)
    degrees = contrasts + 2 * max(sieve_precision(end)[0].nullity - precise.nullity, 0)
    # The first stage widens the variance of the members' differences by this factor, on average over them.
    assert precise.covariance is not None
    places = model.n_reward + np.unique(model.groups[list(members)])
    apart = np.eye(places.size)[1:] - np.eye(places.size)[:1]
    narrow, wide = (apart @ matrix[np.ix_(places, places)] @ apart.T for matrix in (precise.covariance, full))
    widening = max(1.0, float(np.trace(np.linalg.lstsq(narrow, wide, rcond=1e-12)[0])) / contrasts)
    statistic = max(0.0, 2 * (point.objective - end.objective)) / widening
    p_value = float(chi2_sf(statistic, degrees))
    return SharedDiscountTest(names, float(shared.discounts(end.x)[members[0]]), statistic, degrees, p_value, p_value)


def sampled_discount_tests(solution: Solution, progress: Progress = silent) -> tuple[SharedDiscountTest | None, PairwiseTests]:
    """Return `shared_discount_test` and `pairwise_tests`, which now take solutions of `SieveLikelihood` too; None for one
    expert.
    """
    warnings.warn("use shared_discount_test and pairwise_tests, which take this solution too", DeprecationWarning, stacklevel=2)
    together = shared_discount_test(solution) if len(solution.experts) > 1 else None
    return together, pairwise_tests(solution, progress=progress)


@dataclass(frozen=True)
class SharedGoalTest(Result):
    """A test that all experts share one reward.

    Attributes:
        statistic: by how many standard deviations own rewards gain more than they would if there were one reward.
        p_value: of the Monte Carlo test; NaN where it was not made.
        simulations: how many tables were drawn; 0 where the p-value is that of τ = 0 in `MaximumLikelihood(deviations=…)`.
        reason: why the test was not made; empty where it was.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("hypothesis", "p_value")

    statistic: float
    p_value: float
    simulations: int
    reason: str = ""

    @property
    def rejected(self) -> bool:
        """Return whether the decisions contradict one reward for all, at the 5% level."""
        return self.p_value <= 0.05

    @property
    def words(self) -> str:
        """Return the p-value as it stands in a sentence: the smallest that so many simulations can give is only a bound."""
        if not self.simulations and self.p_value >= 0.5:  # the likelihood is highest without deviations
            return "p ≥ 0.5"
        if not self.simulations:
            return f"p {p_text(self.p_value)}"
        least = self.p_value * (self.simulations + 1) < 1.5
        return f"p {'≤' if least else '='} {significant(self.p_value, 2)}"

    def sentences(self) -> str:
        """Return the finding in a sentence."""
        if self.reason:
            return f"Whether the experts share one reward was not tested: {self.reason}."
        if self.rejected:
            return f"The decisions reject one reward for all experts ({self.words})."
        return f"The decisions do not reject one reward for all experts ({self.words})."

    def to_frame(self) -> pd.DataFrame:
        """Return one row: the hypothesis and the figures of its test."""
        return pd.DataFrame([{"hypothesis": "one reward for all", **asdict(self)}])


def shared_goal_test(solution: Solution, simulations: int = 999, run: Run = Run()) -> SharedGoalTest:
    """Test that all experts of a solution of `MaximumLikelihood` share one reward, by simulation."""
    point, experts, quadratic = _scored(solution, simulations, run)
    if isinstance(point, str):
        return SharedGoalTest(np.nan, np.nan, 0, point)
    free = ~point.likelihood.fixed & ~resting(point)
    total = np.sum(quadratic, axis=0)
    if point.likelihood.n_reward <= 100 and point.likelihood.clusters is None:
        total = np.zeros(1 + simulations)
        climbed = in_parallel(partial(_climbed_gains, point.likelihood, point.x), experts, run.jobs)
        for number, (expert, parts, gains) in enumerate(zip(experts, quadratic, climbed, strict=True), start=1):
            beyond = gains[1:] - expert.gains(expert.scores, free)[1 : gains.size]
            total += np.concatenate([gains[:1], parts[1:] + beyond[expert.chosen]])
            run.progress(number / len(experts), f"rewards of their own: {number} of {len(experts)} experts")
    deviation = (total[0] - total[1:].mean()) / max(float(total[1:].std()), 1e-12)
    exceeded = int((total[1:] >= total[0] - 1e-9 * abs(total[0])).sum())
    return SharedGoalTest(float(deviation), (1 + exceeded) / (1 + simulations), simulations)


def _scored(solution: Solution, simulations: int, run: Run) -> tuple[Point | str, list[_Drawn], list[Floats]]:
    """Return the fit with one reward, or why one reward cannot be tested; the experts' drawn scores, and S of each expert."""
    point = _fit_with_one_reward(solution)
    if isinstance(point, str):
        return point, [], []
    experts = _drawn(point, simulations, run)
    free = ~point.likelihood.fixed & ~resting(point)
    step = _common_step(experts, free)
    quadratic = [expert.gains(expert.scores - step[:, expert.places] @ expert.information, free) for expert in experts]
    if np.mean(quadratic) < 1e-6:  # degrees of freedom, apart from rounding
        return "no two experts made decisions that one reward would have to explain together", [], []
    return point, experts, quadratic


def one_goal_test(solution: Solution, simulations: int = 999, run: Run = Run()) -> SharedGoalTest:
    """Test that all share one reward: that of τ = 0, and the simulated one where that rejects or was not made."""
    deviations = LikelihoodEvidence.of(solution).deviations
    if deviations is None or np.isnan(deviations.p_shared):
        return shared_goal_test(solution, simulations, run)
    direct = SharedGoalTest(float(-ndtri(max(deviations.p_shared, TINY))), deviations.p_shared, 0)
    untested = _scored(solution, 9, run)[0]
    if isinstance(untested, str):
        return SharedGoalTest(np.nan, np.nan, 0, untested)
    if not direct.rejected:
        return direct
    simulated = shared_goal_test(solution, simulations, run)
    return direct if simulated.p_value < direct.p_value else simulated  # where it could not be tested, neither is that


def fit_and_test(
    problem: Problem,
    solver: MaximumLikelihood,
    simulations: int = 999,
    *,
    run: Run,
    most_deviations: int = 100,
) -> tuple[MaximumLikelihood, Solution, SharedGoalTest | None, list[str]]:
    """Fit, and test that all share one reward.

    Returns the solver that was used, its solution, the test where there is something to test, and remarks.
    Where deviations are to be estimated, they are kept only if the test rejects that there are none. With more rewards than
    `most_deviations`, they are estimated only where they are asked for by number.
    """
    one = replace(solver, deviations=0.0)
    why = ""
    kept = None
    shared = problem.n_experts > 1 and (solver.known_reward is None or with_known_reward(problem, solver.known_reward)[1] is None)
    first, last = run.parts(7, 3)
    if solver.deviations == "estimated" and shared and problem.n_parameters <= most_deviations:
        try:
            solution = solve(problem, solver, seed=run.seed, progress=first.progress)
            allowed = LikelihoodEvidence.of(solution).deviations
            if allowed is None or not allowed.spread or solution.status != Status.NOT_CONVERGED:
                test = one_goal_test(solution, simulations, last)
                if allowed is None or not allowed.spread or test.rejected:
                    return solver, solution, test, []
                kept = replace(allowed, spread=0.0, p_shared=test.p_value, values=0 * allowed.values, errors=0 * allowed.errors)
            else:
                why = "the fit with them did not end"
        except np.linalg.LinAlgError:
            why = "the fit with them broke off"
    elif solver.deviations == "estimated" and shared:
        why = f"there are more than {most_deviations} rewards, which would take long; a number is still taken"
    used = one if solver.deviations == "estimated" else solver
    solution = solve(problem, used, seed=run.seed, progress=first.progress)
    remarks = [f"Personal deviations from one reward were not estimated: {why}. All experts have one reward."] if why else []
    if kept is not None:
        return used, replace(solution, evidence=replace(LikelihoodEvidence.of(solution), deviations=kept)), test, remarks
    return used, solution, one_goal_test(solution, simulations, last) if shared else None, remarks


def bound_words(deviations: Deviations) -> str:
    """Return how far rewards may deviate from the shared one at most, in a sentence; nothing where that is not known."""
    share = 100 * deviations.share_of_range[2]
    moved = deviations.choices_moved[2]
    if not np.isfinite(share + moved):
        return ""
    if share >= 100:
        return "But their standard deviation from it may be as large as its range, or larger: the decisions say little of goals."
    return (
        f"Their standard deviation from it is at most {significant(share, 2)}% of its range, which moves "
        f"{significant(moved, 2)} of a hundred choices "
        "(upper ends of 95% CIs)."
    )


def one_reward(model: Likelihood) -> Likelihood:
    """Return the model in which all share the reward, with the same knowledge and penalties."""
    return Likelihood(model.problem, model.settings, model.penalty, model.ridge) if isinstance(model, NearlyShared) else model


def _fit_with_one_reward(solution: Solution) -> Point | str:
    """Return the best point under the hypothesis, with the penalties of the test; or why there is nothing to test, or no way
    to."""
    if len(solution.experts) == 1:
        return "there is one expert alone"
    if solution.status == Status.NOT_CONVERGED:
        return "the fit did not end"
    if not solution.is_soft:
        return f"the test needs {SOFT_ALONE}"
    point = resume(solution)
    model = point.likelihood
    if model.settings.reward is not None:
        return "the reward was given"
    if model.clusters is not None and model.clusters.unit == "expert":
        return "each expert is one cluster, so that what differs between experts has nothing to be compared with"
    if model.is_large:
        return f"that needs at most {limits().dense_rewards} rewards, and there are {model.n_reward:,}"
    settings = replace(model.settings, moves=False)  # estimated transitions stay as they were fitted under the hypothesis
    if solution.options.get("temperature") == "pooled":
        settings = replace(settings, temperatures=np.full(model.problem.n_experts, np.nan), temperature_groups=None)
    tested = Likelihood(point.problem, settings).clustered(model.clusters)
    tested = tested.holding(temperature_prior(tested), (WEAK_PRIOR * tested.known_temperature / tested.feature_sizes) ** -2.0)
    temperatures = [model.temperatures(point.x)[tested.temperature_groups == g][0] for g in range(tested.n_temperatures)]
    start = tested.at(tested.pack(model.reward(point.x), point.x[model.discount_slice], np.array(temperatures)), point)
    end = None if start is None else climb(start, gain=1e-3)
    return end.point if end is not None and end.finished else "the fit with one reward did not end"


def temperature_prior(model: Likelihood) -> Quadratic | None:
    """Return the term of the objective that says `log λ ~ N(0, 1)` of free temperatures; None where there are none."""
    free, zeros = np.zeros(model.size), np.zeros(model.size)
    free[model.temperature_slice] = ~model.fixed[model.temperature_slice]
    return Quadratic(zeros, zeros, np.diag(free)) if free.any() else None


def _own_precisions(model: Likelihood) -> Floats:
    """Return the precision `(d,)` of a_k, whose standard deviation τ is 3 temperatures."""
    return (model.feature_sizes / (3.0 * model.known_temperature)) ** 2


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The decisions of one expert, those that were made and those drawn.

    Attributes:
        number: of the expert.
        places: the positions in x on which the choices depend.
        information: `(q,q)`, with the precision of what is known of the temperature.
        scores: `(1+simulations,q)`, of the decisions that were made first.
        own: the precision `(q,)` of a_k; 0 for what is no reward.
        tables: the first few draws, for each of the expert's tasks `(m,S,A)`.
        chosen: which of them stands for each simulation.
    """

    number: int
    places: Ints
    information: Floats
    scores: Floats
    own: Floats
    tables: list[Floats]
    chosen: Ints

    def gains(self, scores: Floats, free: Bools) -> Floats:
        """Return what a_k gains `(1+simulations,)` as far as the likelihood is quadratic, from scores `(1+simulations,q)`."""
        reward = self.own > 0
        other = (self.own == 0) & free[self.places]
        across, within = self.information[np.ix_(reward, other)], self.information[np.ix_(other, other)]
        explained = across @ np.linalg.pinv(within, hermitian=True)
        unit = self.own[reward] ** -0.5
        left = self.information[np.ix_(reward, reward)] - explained @ across.T
        values, vectors = np.linalg.eigh(left * unit[:, None] * unit)
        squares = (((scores[:, reward] - scores[:, other] @ explained.T) * unit) @ vectors) ** 2
        result: Floats = squares @ (1 / (1 + np.maximum(values, 0.0)))
        return result


def _drawn(point: Point, simulations: int, run: Run) -> list[_Drawn]:
    """Return the experts, drawn in the order of their likelihoods, whatever their names and places are."""
    model = point.likelihood
    batches = list(zip(model.batches, point.plans, strict=True))
    number = model.problem.n_experts
    order = np.argsort(np.argsort(np.round(model.person_values(point), 6), kind="stable"))
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(run.seed).spawn(number)]
    climbed = min(max(2, 100 // number), simulations)  # climbs are made in about 100 draws of all experts together
    if model.clusters is not None:
        climbed = 0
    parts: dict[int, list[tuple[Ints, Floats, Floats]]] = {k: [] for k in range(number)}
    tables: dict[int, list[tuple[int, Floats]]] = {k: [] for k in range(number)}
    for b, (batch, plan) in enumerate(batches):
        rows, columns, slopes = point.scores(b)
        state, action = rows % batch.mdp.n_states, rows // batch.mdp.n_states
        for i, (k, places) in enumerate(zip(batch.owners.tolist(), columns, strict=True)):
            seen = np.flatnonzero(batch.visits[:, i] > 0)
            visits = batch.visits[seen, i]
            policy = plan.policy[:, seen, i].T
            made = batch.counts[:, seen, i].T
            at_seen = np.isin(state, seen)
            cells = np.searchsorted(seen, state[at_seen]), action[at_seen]
            expected = visits[:, None] * policy
            slope = slopes[at_seen, i]
            information = (slope * expected[cells][:, None]).T @ slope
            if model.clusters is not None:
                each = model.clusters.counts[batch.positions[i]][:, rows[at_seen]] @ slope
                flips = flipped(each, simulations, streams[order[k]])
                parts[k].append((places, information, np.concatenate([each.sum(axis=0)[None], flips])))
                continue
            counts = np.concatenate([made[None], decide(visits, policy, plan.values[seen, i], streams[order[k]], simulations)])
            scores = (counts - expected)[:, *cells] @ slope
            parts[k].append((places, information, scores))
            whole = np.zeros((climbed, *batch.counts.shape[1::-1]))
            whole[:, seen] = counts[1 : 1 + climbed]
            tables[k].append((int(batch.positions[i]), whole))
    precisions = np.zeros(model.size)
    precisions[: model.n_reward] = _own_precisions(model)
    result = []
    for k in range(number):
        places = np.unique(np.concatenate([part[0] for part in parts[k]]))
        information, scores = np.zeros((places.size, places.size)), np.zeros((1 + simulations, places.size))
        for own_places, block, own_scores in parts[k]:
            at = np.searchsorted(places, own_places)
            information[np.ix_(at, at)] += block
            scores[:, at] += own_scores
        if model.penalty is not None:
            information += np.diag(model.penalty.matrix.diagonal()[places])
        ordered = [table for _, table in sorted(tables[k], key=lambda entry: entry[0])]
        chosen = streams[order[k]].integers(max(climbed, 1), size=simulations)
        result.append(_Drawn(k, places, information, scores, precisions[places], ordered, chosen))
    return result


def _common_step(experts: list[_Drawn], free: Bools) -> Floats:
    """Return δ `(1+simulations,p)`, the step of all free parameters under the hypothesis, from the scores of each table."""
    information, scores = np.zeros((free.size, free.size)), np.zeros((len(experts[0].scores), free.size))
    for expert in experts:
        information[np.ix_(expert.places, expert.places)] += expert.information
        scores[:, expert.places] += expert.scores
    step = np.zeros_like(scores)
    step[:, free] = spectrum(information[np.ix_(free, free)]).solve(scores[:, free].T).T
    return step


def _climbed_gains(model: Likelihood, together: Floats, expert: _Drawn) -> Floats:
    """Return what a_k gains over the point x of all experts, by climbs, in the decisions that were made and in the first
    draws."""
    k, d = expert.number, model.n_reward
    alone = model.of_experts([k])
    x = np.concatenate([together[:d], model.discounts(together)[[k]], np.log(model.temperatures(together)[[k]])])
    precisions = np.concatenate([_own_precisions(model), np.zeros(2)])
    precisions += 0.0 if (prior := temperature_prior(alone)) is None else prior.matrix.diagonal()
    centre = np.append(x[:-1], 0.0)
    rewards = np.arange(x.size) < d
    gains = []
    for counts in (None, *zip(*expert.tables, strict=True)):
        drawn = alone if counts is None else alone.with_counts(counts)
        # A drawn expert has the temperature of the fit, so that is what is known of it.
        held = drawn.holding(Quadratic(centre if counts is None else x, np.zeros(x.size), np.diag(precisions)))
        start = held.at(x)
        assert start is not None
        shared = climb(start, rewards, gain=1e-3).point
        gains.append(2 * (climb(shared, max_steps=50, gain=1e-2).point.objective - shared.objective))
    return np.array(gains)


def state_reward_test(solution: Solution, goals: SharedGoalTest | None = None, run: Run = Run()) -> StateRewardTest | None:
    """Test that the reward depends on the state reached alone.

    Args:
        solution: of `MaximumLikelihood`.
        goals: the test that all share one reward, where it was made.
        run: whose seed scatters the starts of the fit with a wider reward.

    Returns:
        The test; None where nothing is assumed, because the reward was given or is made of features by state and action.
    """
    point = resume(solution)
    model = point.likelihood
    if model.settings.reward is not None or any(batch.arrival is None for batch in model.batches):
        return None
    if solution.status == Status.NOT_CONVERGED:
        return StateRewardTest.untested("the fit did not end")
    if model.settings.stickiness:
        return StateRewardTest.untested("the test needs choices that do not depend on the last action")
    if model.is_large:
        return StateRewardTest.untested(f"that needs at most {limits().dense_rewards} rewards, and there are {model.n_reward:,}")
    shared = with_one_reward(point)
    rivals = wider_rewards(
        [batch.mdp for batch in model.batches], [a for batch in model.batches if (a := batch.arrival) is not None]
    )
    if not rivals:
        return StateRewardTest.untested("there is one action alone")
    tests = [StateRewardTest.of([(rival, tested_at(shared, rival))]) for rival in rivals]
    result = StateRewardTest.strongest(tests)
    run.progress(0.1, "rewards of actions")
    if not result.clear:
        return result
    differ = goals is not None and goals.rejected
    if differ and not tests[0].clear:
        return _beside_deviations(point, rivals)
    if any(batch.mdp.durations is not None for batch in model.batches):
        return result
    clear = [(test, rival) for test, rival in zip(tests, rivals, strict=True) if test.clear]
    if not differ:
        clear = [(test, rival) for test, rival in clear if rival.name == result.wider]
    for (test, rival), each in run.part(0.1, 1.0).over(clear):
        first, last = each.parts(6, 4)
        other = _fit_with_wider_reward(point, solution, rival, first)
        if other.status == Status.NOT_CONVERGED:
            return result
        gain = other.objective - shared.value
        if not differ:
            return replace(result, gain=gain)
        again = shared_goal_test(other, run=last)
        if not again.rejected:
            return replace(result if test.wider == result.wider else test, gain=gain)
    return _beside_deviations(point, rivals)


def _beside_deviations(point: Point, rivals: list[WiderReward]) -> StateRewardTest:
    """Return the test of costs of actions beside each expert's deviations."""
    return StateRewardTest.of([(rival, tested_at(point, rival)) for rival in rivals[:1]])


def with_one_reward(point: Point) -> Point:
    """Return the fit in which all share the reward, beside one with deviations from it."""
    if not isinstance(point, NearPoint):
        return point
    start = one_reward(point.likelihood).at(point.x)
    assert start is not None
    return climb(start).point


def _fit_with_wider_reward(point: Point, solution: Solution, wider: WiderReward, run: Run) -> Solution:
    """Return the fit with the wider reward, where transitions stay as they were fitted."""
    tasks = {id(expert.mdp): expert for expert in point.problem.experts}
    mdps = {key: expert.mdp.as_known() for key, expert in tasks.items()}
    arrivals = [(mdps[key], arrival) for key, expert in tasks.items() if (arrival := expert.arrival_features) is not None]
    features = [(mdp.stacked @ arrival).toarray() for mdp, arrival in arrivals]
    more = wider.beyond(*zip(*arrivals, strict=True))
    both = {key: sp.csr_array(np.concatenate(parts, axis=1)) for key, *parts in zip(tasks, features, more, strict=True)}
    experts = [replace(e, mdp=mdps[id(e.mdp)], features=both[id(e.mdp)], arrival=None, table=None) for e in point.problem.experts]
    names = [f"{wider.name} {number}" for number in range(1, more[0].shape[1] + 1)]
    problem = point.problem.with_experts(experts, (*point.problem.parameter_names, *names))
    options = {
        name: solution.options[name] for name in ("temperature", "discounts", "groups", "ridge", "starts", "value", "lapse")
    }
    return solve(problem, MaximumLikelihood(**options), seed=run.seed, progress=run.progress)
