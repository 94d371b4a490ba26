"""One definition of a horizon, and one way to write it, wherever it is asked for; in time it does not depend on the unit."""

from __future__ import annotations

import json
from functools import cache
from math import inf
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.data.dynamics import in_one_unit
from multihorizon.horizon import Horizon

DISCOUNTS = {"ann": 1.0, "ben": 0.85, "cy": 0.73}


def ladder() -> tuple[mh.MDP, np.ndarray]:
    """Three decisions: take a little and go on, or invest; what is paid comes at the end of each branch."""
    n = 8  # day 0; day 1 with 0 or 1 invested; day 2 with 0, 1 or 2; then the end, poor or rich
    moves = np.zeros((2, n, n))
    for day, states in enumerate(([0], [1, 2], [3, 4, 5])):
        for k, state in enumerate(states):
            for action in (0, 1):
                richer = k + action
                moves[action, state, {0: 1, 1: 3}.get(day, 6) + (min(richer, 1) if day == 2 else richer)] = 1.0
    reward = np.array([0.0, 1.0, -0.5, 1.5, 0.3, -1.0, 0.5, 3.0])
    return mh.MDP(moves, terminal=[6, 7], initial=np.eye(n)[0]), reward


@cache
def short() -> tuple[mh.Solution, mh.Demonstrations, mh.MDP]:
    task, reward = ladder()
    policies = [mh.soft_plan(task, reward, gamma).policy for gamma in DISCOUNTS.values()]
    table = mh.Demonstrations.simulate(task, policies, 400, names=list(DISCOUNTS), seed=1)
    return mh.solve(mh.Problem(task, table), mh.MaximumLikelihood(known_reward=reward)), table, task


def test_a_task_of_three_steps_has_no_horizon_beyond_three_on_any_road(tmp_path: Path) -> None:
    solution, table, task = short()
    wanted = [Horizon(3)(gamma) for gamma in solution.discounts]
    assert solution.horizon == Horizon(3)
    assert solution.to_frame()["horizon"].tolist() == wanted
    found = mh.analyse(table, [task], solver=mh.MaximumLikelihood(known_reward=ladder()[1]), quick=True)
    assert [found.to_frame().set_index("expert").loc[name, "horizon"] for name in solution.experts] == pytest.approx(wanted)
    found.to_json(tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text())["effective_horizons"] == pytest.approx(wanted, rel=1e-6)
    solution.to_json(tmp_path / "solution.json")
    assert mh.Solution.from_json(tmp_path / "solution.json").to_frame()["horizon"].tolist() == wanted
    followed = mh.track(mh.solve(mh.Problem(task, table), mh.Population("~ 1", known_reward=ladder()[1]))).now
    assert followed.horizon == Horizon(3)(followed.discount)
    assert followed.horizon_interval[1] <= 3


@given(st.floats(0.01, 0.999), st.sampled_from([60.0, 1440.0, 1 / 7]), st.sampled_from([inf, 5.0, 0.2]))
def test_in_time_a_horizon_does_not_depend_on_the_unit(gamma: float, factor: float, longest: float) -> None:
    coarse, fine = Horizon(longest, "hour"), Horizon(longest * factor, "minute")
    assert fine(gamma ** (1 / factor)) == pytest.approx(factor * coarse(gamma), rel=1e-6)
    assert fine.half_life(gamma ** (1 / factor)) == pytest.approx(factor * coarse.half_life(gamma), rel=1e-6)


@given(st.floats(0, 1), st.integers(1, 40))
def test_a_horizon_is_the_sum_of_its_weights(gamma: float, longest: int) -> None:
    assert Horizon(longest)(gamma) == pytest.approx(sum(gamma**t for t in range(longest)))
    times = np.linspace(0, longest, 20_001)
    if gamma > 0.01:
        assert Horizon(longest, "day")(gamma) == pytest.approx(np.trapezoid(gamma**times, times), rel=1e-4)


def test_what_is_written() -> None:
    assert Horizon().text(0.9) == "10.0 steps"
    assert Horizon(unit="hour").text(0.02) == "0.26 hours"  # less than one unit
    assert Horizon(unit="").text(0.5) == "1.4 units of time"
    assert Horizon(4).interval(0.0, 1.0) == "1.0 to 4.0"
    assert (Horizon().number(1.0), Horizon()(float("nan")) != Horizon()(float("nan"))) == ("unlimited", True)
    assert "1/(1−γ) steps" in Horizon().meaning
    assert "half-life" in Horizon(unit="day").meaning


@cache
def errands() -> pd.DataFrame:
    """Rounds of five shops with dates: to wait takes one hour, to walk three, to ride two; drawn by a sampler of its own."""
    rng, places, rows = np.random.default_rng(3), np.arange(5), []
    moves = np.zeros((3, 5, 5))
    moves[0, places, places] = moves[1, places, (places + 1) % 5] = 1.0
    moves[2, places, (places + 2) % 5], moves[2, places, places] = 0.7, 0.3
    hours = np.array([1.0, 3.0, 2.0])
    task = mh.MDP(moves, durations=hours * np.ones((5, 1)))
    for name, gamma in (("ann", 0.5), ("ben", 0.8)):
        policy = mh.soft_plan(task, np.array([0.0, 1.8, 0.6, 2.7, -1.5]), gamma).policy
        for episode in range(30):
            state, now = int(rng.integers(5)), pd.Timestamp("2024-01-01") + pd.Timedelta(days=episode)
            for step in range(12):
                action = int(rng.choice(3, p=policy[state]))
                after, later = int(rng.choice(5, p=moves[action, state])), now + pd.Timedelta(hours=hours[action])
                labels = f"shop {state}", ("wait", "walk", "ride")[action], f"shop {after}"
                rows.append((name, episode, step, *labels, now, later))
                state, now = after, later
    return pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state", "when", "next_when"])


@cache
def timed(unit: str) -> mh.Analysis:
    table = mh.Demonstrations.from_frame(errands(), time="when", time_unit=unit, cut_off=True)
    return mh.analyse(table, quick=True, deviations=0.0)


@pytest.mark.parametrize("unit", ["minute", "day"])
def test_the_unit_of_time_changes_no_answer(unit: str) -> None:
    one, other = timed("hour"), timed(unit)
    assert one.horizon.unit == other.horizon.unit == "hour"
    assert other.answer == one.answer
    for column in ("horizon", "half_life", "discount", "discount_low", "discount_high"):
        np.testing.assert_allclose(other.to_frame()[column], one.to_frame()[column], rtol=1e-5)
    frame = one.to_frame()
    np.testing.assert_allclose(frame["horizon"], -1 / np.log(frame["discount"]))
    np.testing.assert_allclose(frame["half_life"], np.log(2) * frame["horizon"])


def test_a_known_discount_is_per_unit_that_was_asked_for() -> None:
    table = mh.Demonstrations.from_frame(errands(), time="when", time_unit="minute", cut_off=True)
    for known in ({"ann": 0.5 ** (1 / 60)}, 0.5 ** (1 / 60)):
        found = mh.analyse(table, quick=True, solver=mh.MaximumLikelihood(discounts=known, deviations=0.0))
        assert found.horizon.unit == "hour"
        assert found.solution.discounts[0] == pytest.approx(0.5)


def test_tables_of_one_problem_are_counted_in_one_unit() -> None:
    frame = errands()
    slow = mh.Demonstrations.from_frame(frame, time="when", time_unit="minute", cut_off=True)
    quicker = frame.assign(when=frame["when"].min() + (frame["when"] - frame["when"].min()) / 40)
    quick = mh.Demonstrations.from_frame(quicker.drop(columns="next_when"), time="when", time_unit="day", cut_off=True)
    first, second = in_one_unit([slow, quick])
    assert first.times is not None
    assert second.times is not None
    assert first.times.unit == second.times.unit
    np.testing.assert_allclose(np.unique((first.times.over - first.times.begun).round(6)), [1.0, 2.0, 3.0])
    numbers = mh.Demonstrations.from_frame(frame.drop(columns=["when", "next_when"]), cut_off=True)
    with pytest.raises(ValueError, match="must all be dates"):
        in_one_unit([slow, numbers])


@pytest.mark.slow
def test_a_page_counts_in_hours_where_moves_take_hours(tmp_path: Path) -> None:
    errands().to_csv(tmp_path / "log.csv", index=False)
    words = ["fit", str(tmp_path / "log.csv"), "--time", "when", "--time-unit", "day", "--quick", "--cut-off"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "steps" not in result.output
    assert "half-life" in result.output
    page = (tmp_path / "out" / "report.html").read_text()
    body = page[page.index("<body>") : page.rindex("<script>")]
    for said in ("horizon, hours", "horizon in hours", "−1/ln γ hours"):
        assert said in body
    for said in (" steps ahead", "horizon, steps", "horizon in steps", " steps<", "steps,"):
        assert said not in body, said
