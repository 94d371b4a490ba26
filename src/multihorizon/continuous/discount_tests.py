"""Do the experts plan equally far? Tests that discounts are shared, for sampled states.

As in `likelihood.horizon_tests`: the likelihood is maximised again with one discount for the members, and twice the loss is
compared with χ², with two more degrees for each direction that is open under the hypothesis only. The learned dynamics make the
loss larger than χ² by the factor by which they widen the variance of the members' differences, and it is divided by this
factor.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats, Ints
from multihorizon.continuous.answer import resume_sieve
from multihorizon.continuous.errors import sieve_precision
from multihorizon.continuous.sieve_likelihood import SieveModel, SievePoint
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.horizon_tests import SharedDiscountTest, merged_groups, with_holm
from multihorizon.progress import Progress, silent
from multihorizon.solution import Solution

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
        tests.append(_test(point, full[0].covariance, full[1], full[0].nullity, some))
    return tests[0], with_holm(tests[1:] if size > 2 else tests)


def _test(point: SievePoint, own: Floats | None, full: Floats, nullity: int, members: tuple[int, ...]) -> SharedDiscountTest:
    model = point.likelihood
    names = tuple(model.problem.names[i] for i in members)
    unknown = SharedDiscountTest(names, np.nan, np.nan, 0, np.nan, np.nan)
    groups = np.unique(model.groups[list(members)])
    if groups.size < 2 or model.fixed[model.n_reward + groups].any():
        return unknown
    restricted = _restricted(point, members)
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


def _restricted(point: SievePoint, members: tuple[int, ...]) -> SievePoint | None:
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
