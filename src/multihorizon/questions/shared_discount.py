"""Do the experts plan equally far? Likelihood-ratio tests that discounts are shared.

Under the hypothesis that some experts have one discount, the likelihood is maximised again with that one, and twice the loss of
log-likelihood is compared with χ². Where the temperatures have an estimated spread, the likelihood is that of the decisions given
the spread, with temperatures integrated out (`temperatures.py`). Where the hypothesis leaves the reward and the discount as
determined as they are without it, the degrees of freedom are the contrasts given up: one for a pair.

Often it does not: two experts with one discount act alike, and one behaviour alone cannot tell a discount from a reward. Then m
directions are open under the hypothesis only, and the alternative may choose, along them, *how* the two experts would differ as
well as by how much. The loss is then a maximum over directions and larger than χ² with one degree of freedom. Each open direction
is therefore counted twice. These `contrasts + 2m` degrees kept the test's level in simulations (`benchmarks/pairwise_level.py`),
at some cost in power. m is a difference of ranks of the Fisher information, with one discount and with the same experts'
discounts set apart. Where no rank is lost there is no test and the p-value is NaN. It is NaN too where the climb under the
hypothesis did not end, unless it is so far behind that further steps could not save the hypothesis. Where a shared discount lies
on a bound the true distribution is smaller than χ², and the test is conservative.

Pairwise p-values come with Holm's correction for testing all pairs.

Do the experts plan equally far? Tests that discounts are shared, for sampled states.

As in `likelihood.horizon_tests`: the likelihood is maximised again with one discount for the members, and twice the loss is
compared with χ², with two more degrees for each direction that is open under the hypothesis only. The learned dynamics make the
loss larger than χ² by the factor by which they widen the variance of the members' differences, and it is divided by this
factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats, Ints
from multihorizon.choice.sieve import SieveModel, SievePoint
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.estimate.ascent import Ascent, climb
from multihorizon.estimate.intervals import holm
from multihorizon.estimate.maximum_likelihood import resume
from multihorizon.estimate.precision import precision
from multihorizon.estimate.search import choice_probability_start, log_likelihood_given
from multihorizon.estimate.sieve import resume_sieve, sieve_precision
from multihorizon.parallel import Progress, in_parallel, silent
from multihorizon.solution import Solution

#: A loss of log-likelihood beyond which the hypothesis is rejected whatever further steps would gain (p < 1e-20).
HOPELESS = 100.0
#: How far apart the members' discounts are set to see the rank of the information where they differ.
APART = 0.2


@dataclass(frozen=True)
class SharedDiscountTest:
    """A test that these experts have one discount: `statistic` is χ² with `degrees`; `adjusted` is Holm's p-value.

    The p-values are NaN where there is nothing to test, and where the fit with one discount did not end.
    """

    experts: tuple[str, ...]
    discount: float
    statistic: float
    degrees: int
    p_value: float
    adjusted: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not identified."""
        values = {**vars(self), "experts": list(self.experts)}
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in values.items()}


def shared_discount_test(solution: Solution) -> SharedDiscountTest:
    """Test that all experts of a maximum-likelihood solution have one discount."""
    return _test(resume(solution), _spread(solution), tuple(range(solution.discounts.size)))


def pairwise_tests(solution: Solution, progress: Progress = silent, jobs: int = 1) -> list[SharedDiscountTest]:
    """Test for each pair of experts that they have one discount, with Holm's correction; `jobs` processes share the work."""
    return with_holm(list(each_pair(solution, progress, jobs)))


def each_pair(solution: Solution, progress: Progress = silent, jobs: int = 1) -> Iterator[SharedDiscountTest]:
    """The test of each pair that has something to test, as soon as it is done, not yet corrected."""
    point = resume(solution)
    pairs = [pair for pair in combinations(range(solution.discounts.size), 2) if _contrasts(point.likelihood, pair)]
    for number, test in enumerate(in_parallel(partial(_test, point, _spread(solution)), pairs, jobs), start=1):
        progress(number / len(pairs), f"pair {number} of {len(pairs)}")
        yield test


def with_holm(tests: Sequence[SharedDiscountTest]) -> list[SharedDiscountTest]:
    """The same tests with Holm's correction for their number."""
    adjusted = holm(np.array([test.p_value for test in tests]))
    return [replace(test, adjusted=float(p)) for test, p in zip(tests, adjusted, strict=True)]


def _spread(solution: Solution) -> float:
    """The estimated spread of log-temperatures; 0 where they are equal, known or untied."""
    return float(solution.evidence["temperature_spread"] or 0.0)


def _test(point: Point, spread: float, members: tuple[int, ...]) -> SharedDiscountTest:
    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    contrasts = _contrasts(model, members)
    if not contrasts:
        return SharedDiscountTest(names, np.nan, np.nan, 0, np.nan, np.nan)
    end = _restricted(point, members)
    degrees = _degrees(point, end.point, members, contrasts)
    shared = float(end.point.likelihood.discounts(end.point.x)[members[0]])
    statistic = max(0.0, 2 * (log_likelihood_given(point, spread) - log_likelihood_given(end.point, spread)))
    known = degrees > 0 and (end.finished or statistic > 2 * HOPELESS)
    p_value = float(chi2.sf(statistic, degrees)) if known else np.nan
    return SharedDiscountTest(names, shared, statistic, degrees, p_value, p_value)


def _contrasts(model: Likelihood, members: tuple[int, ...]) -> int:
    """How many free discounts one shared discount replaces; 0 where nothing can be tested: known ones that differ, say."""
    groups = np.unique(model.groups[list(members)])
    known = model.known[model.discount_slice][groups]
    distinct = np.unique(known[~np.isnan(known)]).size
    return int(np.isnan(known).sum()) - (1 - distinct) if distinct <= 1 else 0


def _degrees(point: Point, shared: Point, members: tuple[int, ...], contrasts: int) -> int:
    """Contrasts given up and twice the directions that are open under the hypothesis only; 0 where no rank is lost."""
    model = point.likelihood
    discounts = shared.likelihood.discounts(shared.x)
    offsets = APART * (np.arange(len(members)) - (len(members) - 1) / 2)
    discounts[list(members)] = np.clip(discounts[list(members)], 0.2, 0.8) + offsets / len(members)
    grouped = np.array([discounts[model.groups == g][0] for g in range(model.n_discounts)])
    heats = np.exp(shared.x[shared.likelihood.temperature_slice])
    moved = shared.x[shared.likelihood.transition_slice]
    apart = model.at(model.pack(shared.likelihood.reward(shared.x), grouped, heats, moved))
    full, restricted = precision(point if apart is None else apart), precision(shared)
    return contrasts + 2 * max(restricted.nullity - full.nullity, 0) if full.rank > restricted.rank else 0


def _restricted(point: Point, members: tuple[int, ...]) -> Ascent:
    """The maximum with one discount for the members, from the answer's reward and from fits to the frequencies."""
    model = point.likelihood
    restricted = model.sharing(merged_groups(model.groups, members))
    values = np.array([model.discounts(point.x)[restricted.groups == g].mean() for g in range(restricted.n_discounts)])
    heats = np.exp(point.x[model.temperature_slice])
    starts = [
        restricted.at(restricted.pack(model.reward(point.x), values, heats, point.x[model.transition_slice])),
        choice_probability_start(restricted, values, heats),
    ]
    ends = [climb(start, max_steps=25) for start in starts if start is not None]
    highest = max(end.point.objective for end in ends)
    # Of equally likely ends, take the one with the smaller rewards: where rewards run away, ranks cannot be computed.
    best = min(
        (end for end in ends if end.point.objective >= highest - 1e-3),
        key=lambda end: float(np.linalg.norm(restricted.reward(end.point.x))),
    )
    hopeless = point.objective - best.point.objective > HOPELESS
    return best if best.finished or hopeless else climb(best.point)


def merged_groups(groups: Ints, members: tuple[int, ...]) -> tuple[int, ...]:
    """The groups of discounts with those of the members joined into one, numbered from 0."""
    joined = {int(groups[k]) for k in members}
    first = min(joined)
    merged = [first if g in joined else g for g in groups.tolist()]
    number = {g: i for i, g in enumerate(dict.fromkeys(merged))}
    return tuple(number[g] for g in merged)


#: The climb under the hypothesis may leave this much log-likelihood, and is broken off after this many steps.
TEST_GAIN, TEST_STEPS = 1e-3, 40


def sampled_discount_tests(
    solution: Solution, progress: Progress = silent
) -> tuple[SharedDiscountTest | None, list[SharedDiscountTest]]:
    """The test that all experts have one discount, and those of all pairs with Holm's correction; None for one expert."""
    point = resume_sieve(solution)
    size = len(solution.experts)
    if size < 2:
        return None, []
    members = [tuple(range(size)), *(combinations(range(size), 2) if size > 2 else ())]
    full = sieve_precision(point)
    tests = []
    for number, some in enumerate(members):
        progress(number / len(members), f"test {number + 1} of {len(members)}")
        tests.append(_sampled_test(point, full[0].covariance, full[1], full[0].nullity, some))
    return tests[0], with_holm(tests[1:] if size > 2 else tests)


def _sampled_test(
    point: SievePoint, own: Floats | None, full: Floats, nullity: int, members: tuple[int, ...]
) -> SharedDiscountTest:
    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    unknown = SharedDiscountTest(names, np.nan, np.nan, 0, np.nan, np.nan)
    groups = np.unique(model.groups[list(members)])
    if groups.size < 2 or model.fixed[model.n_reward + groups].any():
        return unknown
    restricted = _sampled_restricted(point, members)
    if restricted is None:
        return unknown
    open_only = max(sieve_precision(restricted)[0].nullity - nullity, 0)
    degrees = groups.size - 1 + 2 * open_only
    assert own is not None
    loss = max(0.0, 2 * (point.objective - restricted.objective))
    statistic = loss / _inflation(own, full, model.n_reward + groups)
    shared = float(restricted.likelihood.discounts(restricted.x)[members[0]])
    p_value = float(chi2.sf(statistic, degrees))
    return SharedDiscountTest(names, shared, statistic, degrees, p_value, p_value)


def _sampled_restricted(point: SievePoint, members: tuple[int, ...]) -> SievePoint | None:
    """The maximum with one discount for the members; None where no climb to it ended."""
    model = point.likelihood
    shared = model.sharing(merged_groups(model.groups, members))
    assert isinstance(shared, SieveModel)
    values = np.array([model.discounts(point.x)[shared.groups == g].mean() for g in range(shared.n_discounts)])
    start = shared.at(shared.pack(model.reward(point.x), values, np.exp(point.x[model.temperature_slice])))
    end = None if start is None else climb(start, max_steps=TEST_STEPS, gain=TEST_GAIN)
    return end.point if end is not None and isinstance(end.point, SievePoint) else None


def _inflation(own: Floats, full: Floats, places: Ints) -> float:
    """The factor by which the first stage widens the variance of differences of discounts, on average over them."""
    contrasts = np.eye(places.size)[1:] - np.eye(places.size)[:1]
    narrow, wide = (contrasts @ matrix[np.ix_(places, places)] @ contrasts.T for matrix in (own, full))
    return max(1.0, float(np.trace(np.linalg.lstsq(narrow, wide, rcond=1e-12)[0])) / len(contrasts))
