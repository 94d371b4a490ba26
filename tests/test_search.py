import numpy as np
import pytest

import multihorizon as mh

PEAK = np.array([0.3, 0.7])


def hill(discounts: np.ndarray) -> float:
    return -float(((discounts - PEAK) ** 2).sum())


def holes(discounts: np.ndarray) -> float:
    return -np.inf if discounts[0] > 0.5 else hill(discounts)


def test_grid_covers_the_box_and_finds_the_best_point() -> None:
    trace = mh.Grid(step=0.1, jobs=1).run(hill, 2)
    assert len(trace) == 121
    assert trace.discounts.min() == 0
    assert trace.discounts.max() == 1
    assert trace.best_discounts == pytest.approx(PEAK)
    assert (np.diff(trace.best) >= 0).all()


def test_grid_in_parallel_gives_the_same_and_reports_progress() -> None:
    seen: list[float] = []
    trace = mh.Grid(step=0.05, jobs=2).run(hill, 2, progress=lambda share, _: seen.append(share))
    np.testing.assert_array_equal(trace.values, mh.Grid(step=0.05, jobs=1).run(hill, 2).values)
    assert seen[-1] == 1
    assert seen == sorted(seen)


def test_bayesian_is_seeded_and_beats_its_uniform_start() -> None:
    search = mh.Bayesian(max_evaluations=20, initial=5)
    trace, again, other = search.run(hill, 2, seed=1), search.run(hill, 2, seed=1), search.run(hill, 2, seed=2)
    np.testing.assert_array_equal(trace.discounts, again.discounts)
    assert not np.array_equal(trace.discounts, other.discounts)
    assert trace.best[-1] > trace.best[4]
    assert trace.best_discounts == pytest.approx(PEAK, abs=0.05)
    assert (np.diff(trace.seconds) >= 0).all()


def test_infeasible_points_do_not_stop_a_search() -> None:
    trace = mh.Bayesian(max_evaluations=25, initial=8).run(holes, 2)
    assert np.isneginf(trace.values).any()
    assert trace.best[-1] > trace.best[7] > -np.inf
