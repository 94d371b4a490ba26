import sys

import numpy as np
import pytest

import multihorizon as mh

PEAK = np.array([0.3, 0.7])


def hill(discounts: np.ndarray) -> float:
    return -float(((discounts - PEAK) ** 2).sum())


def holes(discounts: np.ndarray) -> float:
    return -np.inf if discounts[0] > 0.5 else hill(discounts)


def test_grid_covers_the_box_and_finds_the_best_point() -> None:
    trace = mh.Grid(step=0.1, jobs=1).run(hill, 2).trace
    assert len(trace) == 121
    assert trace.discounts.min() == 0
    assert trace.discounts.max() == 1
    assert trace.best_discounts == pytest.approx(PEAK)
    assert (np.diff(trace.best) >= 0).all()


def test_grid_in_parallel_gives_the_same_and_reports_progress() -> None:
    seen: list[float] = []
    trace = mh.Grid(step=0.05, jobs=2).run(hill, 2, progress=lambda share, _: seen.append(share)).trace
    np.testing.assert_array_equal(trace.values, mh.Grid(step=0.05, jobs=1).run(hill, 2).trace.values)
    assert seen[-1] == 1
    assert seen == sorted(seen)


@pytest.mark.slow
def test_bayesian_is_seeded_and_beats_its_uniform_start() -> None:
    search = mh.Bayesian(max_evaluations=20, initial=5)
    trace, again, other = (search.run(hill, 2, seed=seed).trace for seed in (1, 1, 2))
    np.testing.assert_array_equal(trace.discounts, again.discounts)
    assert not np.array_equal(trace.discounts, other.discounts)
    assert trace.best[-1] > trace.best[4]
    assert trace.best_discounts == pytest.approx(PEAK, abs=0.05)
    assert (np.diff(trace.seconds) >= 0).all()


def test_without_its_library_a_bayesian_search_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "bayes_opt", None)
    domain = mh.domains.cliff()
    for solver in (mh.MPLP(search=mh.Bayesian()), mh.MPMCE(gap="summed")):
        experts = domain.soft_experts() if isinstance(solver, mh.MPMCE) else domain.hard_experts()
        with pytest.raises(ValueError, match="needs the package bayesian-optimization"):
            mh.solve(mh.Problem(domain.mdp, experts), solver)


@pytest.mark.slow
def test_infeasible_points_do_not_stop_a_search() -> None:
    trace = mh.Bayesian(max_evaluations=25, initial=8).run(holes, 2).trace
    assert np.isneginf(trace.values).any()
    assert trace.best[-1] > trace.best[7] > -np.inf


@pytest.mark.slow
def test_a_search_does_not_depend_on_where_the_values_lie() -> None:
    """Infeasible points before the first feasible one must not count as 0: far below 0 that would be the best value."""
    search = mh.Bayesian(max_evaluations=25, initial=8)
    seed = next(s for s in range(99) if np.isneginf(holes(np.random.default_rng(s).uniform(size=(8, 2))[0])))
    low, high = (search.run(lambda discounts, by=by: holes(discounts) + by, 2, seed=seed).trace for by in (-10.0, 10.0))
    np.testing.assert_allclose(low.discounts, high.discounts, atol=1e-5)  # a Gaussian process amplifies rounding
    assert np.isneginf(low.values[8:]).sum() < 5


def test_a_search_in_which_nothing_is_feasible_ends() -> None:
    trace = mh.Bayesian(max_evaluations=12, initial=4).run(lambda _: -np.inf, 2).trace
    assert np.isneginf(trace.values).all()
    assert len(np.unique(trace.discounts, axis=0)) == 12


class Learning:
    """An objective whose digits depend on what it has evaluated before."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, discounts: np.ndarray) -> float:
        self.count += 1
        return hill(discounts) + 1e-9 * self.count


def test_grid_gives_the_same_digits_on_any_number_of_processes() -> None:
    one, two = (mh.Grid(step=0.05, jobs=jobs).run(Learning(), 2).trace.values for jobs in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("step", [0.3, 0.7, 1.5, 0.015])
def test_grid_refuses_a_step_that_does_not_divide_one(step: float) -> None:
    with pytest.raises(ValueError, match="step must divide 1"):
        mh.Grid(step)


@pytest.mark.parametrize("step", [1.0, 0.5, 1 / 3, 0.04, 0.01, 1 / 7])
def test_grid_has_the_spacing_asked_for(step: float) -> None:
    np.testing.assert_allclose(np.diff(mh.Grid(step).axis()), step)


def test_grid_refuses_what_does_not_fit_in_memory_and_jobs_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match="step must be larger for 5 experts"):
        mh.Grid(0.01).run(hill, 5)
    with pytest.raises(ValueError, match="jobs must be"):
        mh.Grid(0.1, jobs=0)
