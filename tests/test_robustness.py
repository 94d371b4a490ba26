"""The same question under rival models of choice."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from test_planners import best_action, decisions, lapsing, players, problem_of, savings

import multihorizon as mh
from multihorizon.questions.robustness import Robustness

RIVALS = ["values by the best action", "lapses", "stickiness"]


@cache
def of_lapsing() -> Robustness:
    return mh.robustness(lapsing(), mh.MaximumLikelihood(starts=2), ["lapses", "values by the best action"])


def test_intervals_under_all_models_that_predict_as_well_hold_what_the_fit_alone_does_not() -> None:
    found = of_lapsing()
    truth, alone = np.array([0.3, 0.7, 0.92]), found.rivals[0].intervals
    assert not ((alone[:, 0] <= truth) & (truth <= alone[:, 1])).any()
    assert ((found.intervals[:, 0] <= truth) & (truth <= found.intervals[:, 1])).all()
    lapses = next(rival for rival in found.rivals if rival.name == "lapses")
    assert lapses.predicts
    assert lapses.held_out == max(rival.held_out for rival in found.rivals)
    assert lapses.weight > 0.5
    assert "more than twice as wide as the fit alone" in found.sentences()


def test_held_out_predictions_are_those_of_fits_to_the_other_episodes() -> None:
    problem = problem_of(decisions("soft", 0.0, 0.0, 4, each=300))
    found = mh.robustness(problem, mh.MaximumLikelihood(starts=1), ["values by the best action"], folds=2)
    inside = max(rival.log_likelihood for rival in found.rivals) / 900
    assert all(inside - 0.1 < rival.held_out < inside for rival in found.rivals)
    assert found.unit == "episode"
    assert sum(rival.weight for rival in found.rivals) == pytest.approx(1)


def test_quick_rivals_say_nearly_what_searched_ones_say() -> None:
    solution = mh.solve(lapsing(), mh.MaximumLikelihood(starts=2))
    quick = mh.robustness(solution, rivals=["lapses", "values by the best action"], quick=True)
    assert quick.rivals[0].discounts.tolist() == solution.discounts.tolist()
    for rival, searched in zip(quick.rivals, of_lapsing().rivals, strict=True):
        assert rival.log_likelihood > searched.log_likelihood - 0.5
        assert rival.held_out == pytest.approx(searched.held_out, abs=2e-3)
    assert quick.rivals[1].conclusion == of_lapsing().rivals[1].conclusion


def test_what_robustness_found_is_written(tmp_path) -> None:
    found = of_lapsing()
    found.to_json(tmp_path / "r.json")
    assert set(found.to_dict()) == {"the fit", "lapses", "values by the best action"}
    assert set(found.to_dict()["lapses"]) >= {"discounts", "held_out", "conclusion"}
    assert len(found.to_frame()) == 9
    assert found.verdict() in " ".join(found.summary().split())
    assert "<table" in found._repr_html_()


def test_people_who_look_a_few_steps_ahead_are_told_from_people_with_small_discounts() -> None:
    mdp, paid, features = savings()
    policies = []
    for discount in (0.5, 0.75, 0.92):
        worth = paid
        for _ in range(2):  # three steps ahead
            worth = paid + discount * mdp.expect(0.25 * np.log(np.exp(worth / 0.25).sum(axis=1)))
        policies.append(np.exp(worth / 0.25) / np.exp(worth / 0.25).sum(axis=1, keepdims=True))
    table = mh.Demonstrations.simulate(mdp, policies, episodes=50, seed=0, max_steps=30)
    found = mh.robustness(mh.Problem(mdp, table, features=features), mh.MaximumLikelihood(starts=2), ["a limited depth"])
    alone, limited = found.rivals
    assert limited.held_out > alone.held_out
    assert limited.log_likelihood > alone.log_likelihood + 2
    assert limited.predicts
    assert (limited.weights_ahead[:, 1:] == [[0.0]]).all()  # nothing that comes three steps later counts
    assert ((limited.intervals[:, 0] <= [0.5, 0.75, 0.92]) & (limited.intervals[:, 1] >= [0.5, 0.75, 0.92])).all()


def test_a_population_is_asked_about_its_groups() -> None:
    problem = players(0.15)
    young = {"expert": list(problem.names), "group": ["young", "old"] * 10}
    paid = mh.domains.space_adventure().reward
    solver = mh.Population("~ group", young, known_reward=paid, nodes=5)
    found = mh.robustness(problem, solver, {"lapses of 15%": {"lapse": 0.15}, "own planner": {"planner": best_action}}, folds=2)
    assert found.contrasts == ("group: young less old",)
    assert found.unit == "person"
    lapses, own = found.rivals[1:]
    assert lapses.held_out > own.held_out
    assert found.rivals[0].conclusion == "as fitted"


def test_rivals_that_are_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="rivals must be among"):
        mh.robustness(lapsing(), rivals=["wishes"])
    with pytest.raises(ValueError, match="hyperbolic is no rival here"):
        mh.robustness(lapsing(), mh.MaximumLikelihood(value="max"), rivals=["hyperbolic"])
    with pytest.raises(ValueError, match="robustness is asked of"):
        mh.robustness(lapsing(), mh.ClosedForm())


def test_a_planner_of_ones_own_and_people_fitted_one_by_one_have_no_look_ahead_as_a_rival() -> None:
    paid = mh.domains.space_adventure().reward
    own = mh.robustness(players(0.0), mh.MaximumLikelihood(known_reward=paid, planner=best_action))
    assert [rival.name for rival in own.rivals] == ["the fit"]
    assert own.verdict() == "The conclusion holds under the 1 model that predicts best by its likelihood."
    mdp, points, _ = savings()
    frame = decisions("soft", 0.0, 0.0, 4, each=300)
    crowd = pd.concat([frame.assign(expert=frame.expert + f"-{i}") for i in range(20)])
    many = mh.Problem(mdp, mh.Demonstrations.from_frame(crowd, cut_off=True))
    found = mh.robustness(many, mh.MaximumLikelihood(known_reward=points, temperature="per_expert"), rivals=["hyperbolic"])
    assert found.rivals[1].conclusion == "no answer"
    assert "these were fitted one by one" in found.sentences()


def test_a_rival_that_is_the_fit_again_is_named() -> None:
    mdp, paid, _ = savings()
    frame = decisions("soft", 0.0, 0.0, 4, each=300)
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True))
    found = mh.robustness(
        problem, mh.MaximumLikelihood(known_reward=paid, temperature="per_expert"), rivals={"same": {"lapse": 0}}
    )
    assert found.again == ("same",)
    assert "The fit again: same" in found.sentences()


@pytest.mark.parametrize("rivals", [{"typo": {"lapz": 0.1}}, {"word": "lapses"}])
def test_rivals_of_ones_own_change_options(rivals) -> None:
    with pytest.raises(ValueError, match="must map options of the solver to values"):
        mh.robustness(lapsing(), rivals=rivals)


def test_each_of_a_few_people_is_held_out() -> None:
    mdp, paid, _ = savings()
    frame = decisions("soft", 0.0, 0.0, 4, each=90)
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True))
    found = mh.robustness(problem, mh.Population(known_reward=paid, nodes=5), {"no lapses": {"lapse": 0.05}})
    assert found.unit == "person"
    assert all(np.isfinite(rival.held_out) for rival in found.rivals)


def test_a_saved_answer_says_how_to_have_intervals(tmp_path) -> None:
    mdp, paid, _ = savings()
    frame = decisions("soft", 0.1, 0.1, 4, each=300)
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True))
    solver = mh.MaximumLikelihood(
        known_reward=paid, temperature="per_expert", value="max", lapse="estimated", stickiness="estimated"
    )
    solution = mh.solve(problem, solver)
    solution.to_json(tmp_path / "s.json")
    read = mh.Solution.from_json(tmp_path / "s.json", problem)
    with pytest.raises(ValueError, match=r"solution.estimate.at\(0.95\) computes any other"):
        read.confidence_intervals()
    np.testing.assert_allclose(read.estimate.at(0.95), solution.confidence_intervals(), atol=1e-6)
