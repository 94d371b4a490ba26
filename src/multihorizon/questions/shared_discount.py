"""Do the experts plan equally far? Likelihood-ratio tests that discounts are shared.

Under the hypothesis that some experts have one discount, the likelihood is maximised again with that one, and twice the loss of
log-likelihood is compared with χ². Where the temperatures have an estimated spread, the likelihood is that of the decisions given
the spread, with temperatures integrated out (`log_likelihood_given`). Where the hypothesis leaves the reward and the discount as
determined as they are without it, the degrees of freedom are the contrasts given up: one for a pair.

Often it does not: two experts with one discount act alike, and one behaviour alone does not separate a discount from a reward.
Then m directions are open under the hypothesis only, and the alternative may choose, along them, *how* the two experts would
differ as well as by how much. The loss is then a maximum over directions and larger than χ² with one degree of freedom. Each open
direction is therefore counted twice. These `contrasts + 2m` degrees kept the test's level in simulations
(`benchmarks/pairwise_level.py`), at some cost in power. m is a difference of ranks of the Fisher information, with one discount
and with the same experts' discounts set apart. Where no rank is lost there is no test and the p-value is NaN. It is NaN too where
the climb under the hypothesis did not end, unless it is so far behind that further steps could not save the hypothesis. Where a
shared discount lies on a bound the true distribution is smaller than χ², and the test is conservative.

*Clusters.* Where a solution takes episodes as independent, and not decisions, the loss of log-likelihood is no χ². Then the
scores of the members' discounts at the maximum under the hypothesis are compared with those of drawn signs
(`likelihood.clusters`). Directions that are open do no harm there.

Pairwise p-values come with Holm's correction for testing all pairs.

*Sampled states.* For a solution of `SieveLikelihood` the learned dynamics make the loss larger than χ², by the factor by which
they widen the variance of the members' differences. It is divided by this factor. Directions are counted at the two answers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.choice.model import ChoiceModel
from multihorizon.choice.tabular import Point
from multihorizon.files import for_json
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.clusters import sign_flip_test
from multihorizon.likelihood.estimates import FunctionEstimate
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.likelihood.intervals import Precision, holm
from multihorizon.likelihood.maximum_likelihood import choice_probability_start, log_likelihood_given, resume
from multihorizon.likelihood.one_discount import HOPELESS, contrasts_of, degrees_of, merged_groups, with_one_discount
from multihorizon.numerics.distributions import chi2_sf
from multihorizon.numerics.newton import Ascent
from multihorizon.parallel import Progress, in_parallel, silent
from multihorizon.result import Result
from multihorizon.solution import Solution
from multihorizon.words import decimals, significant

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
        """The finding in a sentence."""
        names = ", ".join(self.experts)
        if np.isnan(self.p_value):
            why = f": {self.reason}" if self.reason else ""
            return f"Whether {names} have one discount was not tested{why}."
        found = "The decisions contradict one discount" if self.adjusted < 0.05 else "Nothing speaks against one discount"
        return (
            f"{found} for {names}: χ² = {decimals(self.statistic, 2)} with {self.degrees} degrees of freedom, p "
            f"= {significant(self.adjusted, 2)}."
        )

    def to_frame(self) -> pd.DataFrame:
        """One row: the experts, their common discount, and the figures of the test."""
        return pd.DataFrame([vars(self) | {"experts": ", ".join(self.experts)}])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not identified."""
        return cast("dict[str, Any]", for_json(vars(self)))


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
        """How many pairs differ."""
        differ = sum(test.adjusted < 0.05 for test in self.tests)
        return f"{differ} of {len(self.tests)} pairs have different discounts, with Holm's correction."

    def to_frame(self) -> pd.DataFrame:
        """One row per pair."""
        frames = [test.to_frame() for test in self.tests]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"experts": [], "adjusted": []})


def shared_discount_test(solution: Solution) -> SharedDiscountTest:
    """Test that all experts of a solution of `MaximumLikelihood` or `SieveLikelihood` have one discount.

    Args:
        solution: of `MaximumLikelihood` or `SieveLikelihood`.

    Returns:
        The statistic, its degrees of freedom and the p-value (`multihorizon.questions.shared_discount.SharedDiscountTest`).

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
    """Test for each pair of experts that they have one discount, with Holm's correction; `jobs` processes share the work.

    Args:
        solution: of `MaximumLikelihood` or `SieveLikelihood`.
        jobs: processes; −1 for all cores.
        progress: called as tests finish.

    Returns:
        One test for each pair of experts (`multihorizon.questions.shared_discount.PairwiseTests`).

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
    return with_holm(list(each_pair(solution, jobs=jobs, progress=progress)))


def each_pair(solution: Solution, *, jobs: int = 1, progress: Progress = silent) -> Iterator[SharedDiscountTest]:
    """The test of each pair that has something to test, as soon as it is done, not yet corrected."""
    model, spread_test = _tests_of(solution)
    pairs = [pair for pair in combinations(range(solution.discounts.size), 2) if contrasts_of(model, pair)]
    for number, test in enumerate(in_parallel(spread_test, pairs, jobs), start=1):
        progress(number / len(pairs), f"pair {number} of {len(pairs)}")
        yield test


def with_holm(tests: Sequence[SharedDiscountTest]) -> PairwiseTests:
    """The same tests with Holm's correction for their number."""
    adjusted = holm(np.array([test.p_value for test in tests]))
    return PairwiseTests(tuple(replace(test, adjusted=float(p)) for test, p in zip(tests, adjusted, strict=True)))


def _tests_of(solution: Solution) -> tuple[ChoiceModel, Callable[[tuple[int, ...]], SharedDiscountTest]]:
    """The model of a solution, and the test of some of its experts."""
    estimate = solution.estimate
    if isinstance(estimate, FunctionEstimate):
        return estimate.model, partial(_sampled_test, cast("SievePoint", estimate.place), estimate.widened, estimate.matrix)
    # The spread of log-temperatures is 0 where they are equal, known or untied.
    point, spread = resume(solution), float(LikelihoodEvidence.of(solution).temperature_spread or 0.0)
    return point.likelihood, partial(_test, point, spread)


def _test(point: Point, spread: float, members: tuple[int, ...]) -> SharedDiscountTest:
    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    contrasts = contrasts_of(model, members)
    if not contrasts:
        return SharedDiscountTest(names, np.nan, np.nan, 0, np.nan, np.nan, "their discounts were given")
    end = with_one_discount(point, members, choice_probability_start)
    if model.clusters is not None:
        return _test_by_clusters(point, end, members, contrasts)
    degrees = degrees_of(point, end.point, members, contrasts)
    shared = float(end.point.likelihood.discounts(end.point.x)[members[0]])
    statistic = max(0.0, 2 * (log_likelihood_given(point, spread) - log_likelihood_given(end.point, spread)))
    known = degrees > 0 and (end.finished or statistic > 2 * HOPELESS)
    p_value = float(chi2_sf(statistic, degrees)) if known else np.nan
    why = "the fit with one discount did not end" if degrees else "one discount determines as much as several"
    return SharedDiscountTest(names, shared, statistic, degrees, p_value, p_value, "" if known else why)


def _test_by_clusters(point: Point, end: Ascent[Point], members: tuple[int, ...], contrasts: int) -> SharedDiscountTest:
    """The test where clusters are independent, at the maximum under the hypothesis."""
    model, x = point.likelihood, end.point.x
    shared = end.point.likelihood.discounts(x)
    grouped = np.array([shared[model.groups == g][0] for g in range(model.n_discounts)])
    temperatures, moved = (x[part] for part in (end.point.likelihood.temperature_slice, end.point.likelihood.transition_slice))
    there = model.at(model.pack(end.point.likelihood.reward(x), grouped, np.exp(temperatures), moved))
    groups = np.unique(model.groups[list(members)])
    free = groups[~model.fixed[model.discount_slice][groups]]
    among = np.zeros((model.size, free.size))
    among[model.n_reward + free, np.arange(free.size)] = 1.0
    if contrasts < free.size:  # no discount among them is known
        among = among[:, 1:] - among[:, :1]
    found = (np.nan, np.nan) if there is None or not end.finished else sign_flip_test(there, among)
    names = tuple(model.problem.names[i] for i in members)
    return SharedDiscountTest(names, float(shared[members[0]]), found[0], contrasts, found[1], found[1])


def _sampled_test(point: SievePoint, precise: Precision, full: Floats, members: tuple[int, ...]) -> SharedDiscountTest:
    """The test in sampled states; `precise` is the answer's precision, and `full` `(p,p)` its covariance with the first stage."""
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
    """`shared_discount_test` and `pairwise_tests`, which now take solutions of `SieveLikelihood` too; None for one expert."""
    warnings.warn("use shared_discount_test and pairwise_tests, which take this solution too", DeprecationWarning, stacklevel=2)
    together = shared_discount_test(solution) if len(solution.experts) > 1 else None
    return together, pairwise_tests(solution, progress=progress)
