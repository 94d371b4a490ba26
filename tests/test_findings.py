"""One list of analyses for every kind of fit: each says whether it applies, and one rule withholds what rests on a bad fit."""

from dataclasses import replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon import analysis
from multihorizon.analysis import QUESTIONS, READING_ORDER

CLIFF = mh.domains.cliff()
POLICIES = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).policy for gamma in (0.3, 0.7)]
WALKS = mh.Demonstrations.simulate(CLIFF.mdp, POLICIES, episodes=40, seed=0)


@pytest.fixture(scope="module")
def found():
    return mh.analyse(WALKS, [CLIFF.mdp], quick=True, deviations=0.0)


def test_a_question_that_does_not_arise_has_no_answer(found) -> None:
    assert set(READING_ORDER) == set(QUESTIONS)
    assert list(found.findings) == ["horizons", "identified", "fit", "goals", "state reward"]
    types = mh.Population(distribution="types", types=2)
    people = mh.analyse(WALKS, [CLIFF.mdp], population=types, known_reward=lambda mdp: CLIFF.reward)
    assert list(people.findings) == ["differences", "horizons", "identified", "fit"]


def test_answers_bring_each_part_of_the_result_once(found) -> None:
    parts = [set(finding.content) for finding in found.findings.values()]
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert {"experts", "discounts", "intervals"} <= found.findings["horizons"].content.keys()


def test_what_rests_on_a_fit_that_is_not_to_be_used_is_withheld(monkeypatch) -> None:
    """Whatever made the fit unusable, the later analyses that rest on it are left out, and the others are not."""
    carried_out = []

    def unusable(fitted, asked, progress):
        yield replace(fitted, withheld="It is not to be used.")

    def step(name, rests_on_fit):
        def carry_out(fitted, asked, progress):
            carried_out.append(name)
            yield fitted

        return analysis.Step(carry_out, 1, rests_on_fit=rests_on_fit)

    steps = (step("before", True), analysis.Step(unusable, 1), step("rests on it", True), step("does not", False))
    monkeypatch.setattr(analysis, "STEPS", steps)
    found = mh.analyse(WALKS, [CLIFF.mdp], quick=True, deviations=0.0)
    assert carried_out == ["before", "does not"]
    assert found.finished
    assert found.answer == found.warnings[0]
    assert found.warnings[0].startswith("Do not use these numbers. It is not to be used.")


def test_a_fit_in_a_hurry_that_is_not_to_be_used_has_no_intervals_either(found) -> None:
    assert np.isfinite(found.intervals).all()
    decided = mh.analyse(WALKS, [CLIFF.mdp], quick=True, ridge=100.0)
    assert decided.withheld.startswith("The penalty on large rewards")
    assert np.isnan(decided.intervals).all()
