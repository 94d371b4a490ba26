"""Model checks of the model that is reported: populations with conditions, and types."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import multihorizon as mh
from multihorizon.questions.model_checks import misfits
from multihorizon.questions.people import expected_choices
from multihorizon.report.files import read_fit, write_fit


def orchard() -> tuple[mh.MDP, np.ndarray]:
    """Fruit of 0–4: wait for more, or take all of it and begin again; points are fruit taken."""
    P, points = np.zeros((2, 5, 5)), np.zeros((5, 2))
    for fruit in range(5):
        P[0, fruit, min(fruit + 1, 4)] += 0.8
        P[0, fruit, fruit] += 0.2
        P[1, fruit, 0] = 1.0
        points[fruit, 1] = fruit
    return mh.MDP(P, initial=np.full(5, 0.2), action_names=["wait", "take"]), points


def study(pressure: float, people: int = 16, episodes: int = 4, odd: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Each person under two modes, which move logit γ; of the choices in state 3 a share `odd` is always to wait."""
    mdp, points = orchard()
    rng, frames = np.random.default_rng(seed), []
    own = 0.6 * rng.normal(size=people)
    for mode, effect in (("calm", 0.0), ("pressure", pressure)):
        policies = []
        for x in own:
            policy = mh.soft_plan(mdp, points, float(expit(1.0 + effect + x)), 0.5).policy.copy()
            policy[3] = (1 - odd) * policy[3] + odd * np.array([1.0, 0.0])
            policies.append(policy)
        names = [f"p{i:02}" for i in range(people)]
        table = mh.Demonstrations.simulate(mdp, policies, episodes, seed=1000 * seed + len(frames), names=names, max_steps=20)
        frame = table.to_frame()
        frames.append(frame.assign(mode=mode, episode=mode + frame["episode"].astype(str)))
    return pd.concat(frames)


@cache
def analysed(pressure: float, episodes: int = 4, odd: float = 0.0) -> mh.analysis.Analysis:
    """A study with known points, analysed with its condition."""
    mdp, points = orchard()
    table = mh.Demonstrations.from_frame(study(pressure, episodes=episodes, odd=odd), conditions=["mode"])
    population = mh.Population("~ mode")
    return mh.analyse(table, [mdp], known_reward=lambda _: points, population=population, temperature="per_expert")


@pytest.mark.slow
def test_a_condition_that_works_is_no_misfit() -> None:
    """The model with the condition is the one that is reported, so it is the one that is checked."""
    found = analysed(-1.5)
    assert found.population.evidence["population"].discount["mode[T.pressure]"]["p"] < 0.001
    assert found.fit.answer not in ("No", "Not checked", "Not tested")
    assert not found.withheld
    assert not any("does not fit" in text for text in found.warnings)
    assert found.checks.within.p_value > 0.05
    means = {name: float(values @ found.checks.decisions) for name, values in found.checks.held_out.items()}
    assert means["this model"] > means["each person alone"]
    assert {"mode = calm", "mode = pressure"} == {misfit.expert.split(", ")[1] for misfit in found.misfits}


@pytest.mark.slow
def test_what_the_conditions_do_not_explain_is_a_misfit() -> None:
    found = analysed(-1.5, odd=0.8)
    assert found.fit.answer != "No misfit detected"


@pytest.mark.slow
def test_a_saved_fit_with_conditions_predicts_and_no_misfit_spreads(tmp_path) -> None:
    """What goes on from the folder repeats the warnings of the fit, so no false one may be among them."""
    write_fit(tmp_path, analysed(-1.5), {})
    solution, content = read_fit(tmp_path)
    assert not any("does not fit" in text for text in content["warnings"])
    assert "does not fit" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    mdp, _ = orchard()
    assert mh.predict(solution, pay={(mdp.state_names[2], "take"): 1.0}, persons="groups", draws=20).experts


def test_expected_choices_of_a_population_are_those_of_its_conditions() -> None:
    """In each mode they add up to the decisions made, and their mean over people is close to the choices themselves."""
    mdp, points = orchard()
    table = mh.Demonstrations.from_frame(study(-1.5, people=10, episodes=3), conditions=["mode"])
    solution = mh.solve(mh.Problem(mdp, table), mh.Population("~ mode", known_reward=points))
    compared = expected_choices(solution)
    assert compared is not None
    taken, expected = (sum(getattr(c, name) for c in compared.choices) for name in ("taken", "expected"))
    np.testing.assert_allclose(expected.sum(axis=1), taken.sum(axis=1))
    assert taken.sum() == len(table)
    apart = np.abs(taken - expected) / np.sqrt(np.maximum(expected, 1.0))
    assert apart.max() < 4
    assert misfits(compared)[0].p_value > 0.01
