"""Shapes of look-ahead: the naive person's rule, its derivatives, and what tells the families apart."""

from __future__ import annotations

import itertools
import json
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings
from multihorizon.choice.weighted import WeightedLikelihood
from multihorizon.cli import app
from multihorizon.horizon import (
    FAMILIES,
    Depth,
    Exponential,
    FreeWeights,
    Hyperbolic,
    QuasiHyperbolic,
    step_discounts_of,
    weights_of,
)
from multihorizon.likelihood import look_ahead
from multihorizon.parallel import limited
from multihorizon.planning.plan import weighted_plan

STEP = 1e-6
THETA = np.array([1.5, -1.0])


def steps_task(steps: int = 3, places: int = 4, actions: int = 2, seed: int = 0) -> mh.MDP:
    """A task of so many steps between random places; a state says the place and the steps left."""
    rng = np.random.default_rng(seed)
    size = (steps + 1) * places
    transitions = np.zeros((actions, size, size))
    for left in range(1, steps + 1):
        for action, place in itertools.product(range(actions), range(places)):
            transitions[action, left * places + place, (left - 1) * places :][:places] = rng.dirichlet(np.full(places, 0.05))
    initial = np.zeros(size)
    initial[steps * places :] = 1 / places
    return mh.MDP(transitions, initial=initial, terminal=range(places))


def features_of(mdp: mh.MDP) -> np.ndarray:
    """Two numbers that each place pays on arrival, whatever the steps left."""
    places = int(mdp.terminal.sum())
    own = np.random.default_rng(5).normal(size=(places, 2))
    return np.tile(own, (mdp.n_states // places, 1))


def simulated(mdp: mh.MDP, weights: list[list[float]], episodes: int = 60, seed: int = 0, heat=None) -> mh.Problem:
    arrival = features_of(mdp)
    reward = mdp.stacked @ (arrival @ THETA)
    rho = np.array([step_discounts_of(row) for row in weights]).T
    lam = np.ones(len(weights)) if heat is None else np.array(heat)
    log = weighted_plan(mdp, reward, rho, lam)[1][0]
    table = mh.Demonstrations.simulate(mdp, list(np.exp(log).transpose(2, 1, 0)), episodes, seed=seed)
    return mh.Problem(mdp, table, arrival_features=arrival)


def with_known_reward(problem: mh.Problem) -> tuple[mh.Problem, np.ndarray]:
    """The same decisions in a problem without features, and the reward of each state."""
    counts = [expert.counts for expert in problem.experts]
    experts = [mh.Expert(f"{i}", problem.mdp, "demonstrations", counts=c) for i, c in enumerate(counts)]
    return mh.Problem(problem.mdp, experts), features_of(problem.mdp) @ THETA


@pytest.fixture(scope="module")
def problem() -> mh.Problem:
    return simulated(steps_task(), [[1.0, 0.5, 0.25], [1.0, 0.9, 0.8]], heat=[0.8, 1.3])


FREE_HEAT = Settings(temperatures=np.full(2, np.nan))
INSIDE = {
    "exponential": [[0.4], [0.8]],
    "depth": [[1.0], [2.0]],
    "hyperbolic": [[0.4], [0.8]],
    "quasi-hyperbolic": [[0.6, 0.7], [0.9, 0.8]],
    "free weights": [[0.5, 0.7], [0.8, 0.3]],
}


def test_the_rule_is_the_maximum_of_the_weighted_sum() -> None:
    """Brute force: the plan maximises `Σ d(t) [R + λ H]` over plans for each later step and place."""
    mdp, weights, lam = steps_task(), np.array([1.0, 0.6, 0.5]), 0.7
    reward = np.random.default_rng(3).normal(size=mdp.stacked.shape[0])
    found = np.exp(weighted_plan(mdp, reward, step_discounts_of(weights)[:, None], np.array([lam]))[1][:, :, :, 0])

    def worth(plans: np.ndarray) -> float:
        at, total = mdp.initial, 0.0
        for d, plan in zip(weights, plans, strict=True):
            entropy = -(plan * np.log(plan)).sum(axis=0)
            total += d * float(at @ ((plan * reward.reshape(plan.shape)).sum(axis=0) + lam * entropy * ~mdp.terminal))
            at = sum((at * plan[a]) @ mdp.transition(a) for a in range(mdp.n_actions))
        return total

    rng = np.random.default_rng(0)
    for size in (0.3, 0.01, 1e-3):
        for _ in range(20):
            other = found * np.exp(size * rng.normal(size=found.shape))
            assert worth(other / other.sum(axis=1, keepdims=True)) <= worth(found) + 1e-12


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_gradient_and_information_are_finite_differences(problem, family) -> None:
    model = WeightedLikelihood(problem, family, FREE_HEAT, ridge=0.3)
    point = model.at(np.concatenate([[1.2, -0.7], np.ravel(INSIDE[family.name]), [0.2, -0.3]]))
    free = [i for i in range(model.size) if family.name != "depth" or i not in range(2, 4)]
    gradient, scores = [], []
    for i in free:
        ahead, behind = (model.at(point.x + sign * STEP * np.eye(model.size)[i]) for sign in (1, -1))
        gradient.append((ahead.objective - behind.objective) / (2 * STEP))
        scores.append((ahead.plans[0].log - behind.plans[0].log) / (2 * STEP))
    assert point.gradient[free] == pytest.approx(np.array(gradient), abs=1e-5)
    weights = model.batches[0].visits * point.plans[0].policy
    total = np.einsum("asn,iasn,jasn->ij", weights, np.array(scores), np.array(scores))
    assert point.information[np.ix_(free, free)] == pytest.approx(total, abs=1e-5)


def test_exponential_weights_are_the_discounted_model(problem) -> None:
    """Both ways of planning give one likelihood, one gradient and one information."""
    x = np.array([1.2, -0.7, 0.4, 0.8, 0.2, -0.3])
    old, new = Likelihood(problem, FREE_HEAT).at(x), WeightedLikelihood(problem, Exponential(), FREE_HEAT).at(x)
    assert new.value == pytest.approx(old.value, abs=1e-8)
    assert new.gradient == pytest.approx(old.gradient, abs=1e-8)
    assert new.information == pytest.approx(old.information, abs=1e-8)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_slopes_of_a_family_are_finite_differences(family) -> None:
    coordinates = np.array(INSIDE[family.name])
    rho, slopes = family.step_discounts(coordinates, 3)
    told, jacobian = family.report(coordinates)
    for j in range(coordinates.shape[1] if family.name != "depth" else 0):
        move = STEP * np.eye(coordinates.shape[1])[j]
        (up, told_up), (down, told_down) = (
            (family.step_discounts(moved, 3)[0], family.report(moved)[0]) for moved in (coordinates + move, coordinates - move)
        )
        assert slopes[:, :, j] == pytest.approx((up - down) / (2 * STEP), abs=1e-7)
        assert jacobian[:, :, j] == pytest.approx((told_up - told_down) / (2 * STEP), rel=1e-6)
    assert rho.shape == (2, 2)
    assert told.shape == coordinates.shape


def test_weights_are_those_of_the_definitions() -> None:
    t = np.arange(1, 5)
    cases = [
        (Exponential(), [[0.7]], 0.7 ** (t - 1)),
        (Depth(), [[2.0]], t <= 2),
        (Hyperbolic(), [[1 / (1 + 0.8)]], 1 / (1 + 0.8 * (t - 1))),
        (QuasiHyperbolic(), [[0.6, 0.9]], np.where(t == 1, 1, 0.6 * 0.9 ** (t - 1))),
        (FreeWeights(), [[0.8, 0.5, 0.25]], [1, 0.8, 0.4, 0.1]),
    ]
    for family, coordinates, expected in cases:
        weights = weights_of(family.step_discounts(np.array(coordinates), 4)[0])[0]
        assert weights == pytest.approx(np.asarray(expected, dtype=float))
        assert step_discounts_of(weights)[: int((weights > 0).sum())] == pytest.approx(
            family.step_discounts(np.array(coordinates), 4)[0][: int((weights > 0).sum()), 0]
        )
    assert Hyperbolic().report(np.array([[1 / 1.8]]))[0] == pytest.approx(0.8)
    assert FreeWeights().report(np.array([[0.8, 0.5, 0.25]]))[0][0] == pytest.approx([0.8, 0.4, 0.1])


SHAPES = {
    "depth": [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]],
    "hyperbolic": [[1.0, 1 / 1.5, 1 / 2.0], [1.0, 1 / 3, 1 / 5], [1.0, 1 / 1.2, 1 / 1.4]],
    "quasi-hyperbolic": [[1.0, 0.48, 0.36], [1.0, 0.72, 0.7], [1.0, 0.3, 0.28]],
    "free weights": [[1.0, 0.9, 0.2], [1.0, 0.5, 0.45], [1.0, 0.8, 0.5]],
}
TRUTH = {
    "depth": {"depth": [1, 2, 3]},
    "hyperbolic": {"kappa": [0.5, 2.0, 0.2]},
    "free weights": {"d(2)": [0.9, 0.5, 0.8], "d(3)": [0.2, 0.45, 0.5]},
}


@pytest.mark.parametrize("name", TRUTH)
def test_a_family_is_recovered_from_many_decisions(name, tmp_path) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    problem, known = with_known_reward(simulated(steps_task(), SHAPES[name], episodes=5000))
    solution = mh.solve(problem, mh.MaximumLikelihood(1.0, known_reward=known, lookahead=family))
    told = solution.evidence["lookahead"]
    assert solution.status == mh.Status.CONVERGED
    assert np.isnan(solution.discounts).all()
    assert name in solution.evidence["no_discount"]
    for parameter, values in TRUTH[name].items():
        found, errors = np.array(told["parameters"][parameter]), np.array(told["standard_errors"][parameter])
        if name == "depth":
            assert found.tolist() == values
            assert np.isnan(errors).all()
            assert re.search(r"^0 +1 +– ", str(solution), re.MULTILINE)  # expert, depth, and its error
        else:
            assert (np.abs(found - values) < 4 * errors).all()
            assert (errors < 0.35).all()
    assert np.isnan(solution.confidence_intervals()).all()
    solution.to_json(tmp_path / "solution.json")
    again = mh.Solution.from_json(tmp_path / "solution.json", problem)
    seen = [expert.counts.sum(axis=1) > 0 for expert in problem.experts]
    for policy, other, expert, rows in zip(solution.policies(), again.policies(), problem.experts, seen, strict=True):
        assert policy == pytest.approx(other)
        value = (expert.counts * np.log(policy))[rows].sum()
        assert np.isfinite(value)
    values = [(e.counts[r] * np.log(p[r])).sum() for e, p, r in zip(problem.experts, solution.policies(), seen, strict=True)]
    assert sum(values) == pytest.approx(solution.objective, abs=1e-6)


def test_where_a_state_can_come_again_people_look_so_many_steps_ahead() -> None:
    """Wealth that goes up and down for ever: people of different depths, planned here by backward induction over look-ahead."""
    rng, moves, paid = np.random.default_rng(0), np.zeros((2, 5, 5)), np.zeros((5, 2))
    for level in range(5):
        moves[0, level, max(level - 1, 0)] = moves[1, level, min(level + 1, 4)] = 1.0
    paid[:, 0] = 0, 1, 1, 1, 4
    mdp, rows = mh.MDP(moves, initial=np.full(5, 0.2)), []
    for expert, depth in (("short", 2), ("far", 5)):
        values = np.zeros(5)
        for _ in range(depth):
            q = paid + (moves @ values).T
            values = 0.5 * np.log(np.exp(q / 0.5).sum(axis=1))
        chances = np.exp((q - values[:, None]) / 0.5)
        for episode in range(40):
            state = int(rng.integers(5))
            for step in range(20):
                action = int(rng.random() > chances[state, 0])
                after = int(moves[action, state].argmax())
                rows.append((expert, episode, step, state, action, after))
                state = after
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True))
    solver = mh.MaximumLikelihood(0.5, known_reward=paid, lookahead=mh.Depth(), starts=1)
    found = mh.solve(problem, solver)
    assert dict(zip(found.experts, found.evidence["lookahead"]["parameters"]["depth"], strict=True)) == {"far": 5.0, "short": 2.0}
    assert np.isfinite(found.policies()).all()
    compared = mh.compare_lookahead(problem, [mh.Depth(), mh.Hyperbolic()], solver=mh.MaximumLikelihood(0.5, known_reward=paid))
    assert compared.best == "depth"
    assert {row.family for row in compared.rows} == {"depth", "hyperbolic"}


def test_more_rewards_than_can_be_held_are_refused_before_the_work() -> None:
    problem, known = with_known_reward(simulated(steps_task(steps=3), [[1.0, 0.3, 0.1], [1.0, 0.5, 0.2]], episodes=5))
    for ask in (lambda: mh.solve(problem, mh.MaximumLikelihood(lookahead=mh.Depth())), lambda: mh.compare_lookahead(problem)):
        with limited(dense_rewards=3), pytest.raises(ValueError, match="needs at most 3 rewards, got"):
            ask()
    paid = (problem.mdp.stacked @ known).reshape(problem.mdp.n_actions, -1).T  # known for states and actions: none is estimated
    with limited(dense_rewards=3):
        found = mh.solve(problem, mh.MaximumLikelihood(1.0, known_reward=paid, lookahead=mh.Depth(), starts=1))
    assert found.status != mh.Status.NOT_CONVERGED


def test_what_did_not_end_is_neither_tested_nor_best(monkeypatch, golden) -> None:
    problem, known = with_known_reward(simulated(steps_task(steps=3), [[1.0, 0.5, 0.25], [1.0, 0.8, 0.64]], episodes=300))
    monkeypatch.setattr(look_ahead, "search", partial(look_ahead.search, max_rounds=0))
    compared = mh.compare_lookahead(problem, [mh.Exponential()], solver=mh.MaximumLikelihood(1.0, known_reward=known, starts=1))
    assert not any(row.finished for row in compared.rows)
    assert np.isnan([row.free_p for row in compared.rows]).all()
    assert [row.verdict for row in compared.rows][1] == "not known: its fit did not converge"
    golden(compared.sentences())


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="lookahead must be one of Exponential"):
        mh.MaximumLikelihood(lookahead="hyperbolic")
    with pytest.raises(ValueError, match="known discounts need an exponential look-ahead"):
        mh.MaximumLikelihood(discounts=0.9, lookahead=mh.Hyperbolic())


def test_in_two_steps_all_weights_are_one_family(golden) -> None:
    problem, known = with_known_reward(simulated(steps_task(steps=2), [[1.0, 0.3], [1.0, 0.5], [1.0, 0.7]], episodes=2000))
    comparison = mh.compare_lookahead(problem, solver=mh.MaximumLikelihood(1.0, known_reward=known))
    verdicts = {row.family: row.verdict for row in comparison.rows}
    assert verdicts.pop("depth") == "differs from exponential"
    assert verdicts.pop("exponential") == "best"
    assert set(verdicts.values()) == {"same as exponential"}
    golden(comparison.sentences())
    assert {row.parameters for row in comparison.rows} == {3}


def test_free_weights_contain_all_and_tests_have_their_degrees() -> None:
    problem = simulated(steps_task(), [[1.0, 0.5, 0.25], [1.0, 0.9, 0.8]], episodes=200)
    rows = {row.family: row for row in mh.compare_lookahead(problem, solver=mh.MaximumLikelihood(temperature=1.0)).rows}
    assert max(row.log_likelihood for row in rows.values()) == pytest.approx(rows["free weights"].log_likelihood, abs=1e-6)
    assert {name: row.free_degrees for name, row in rows.items()} == {
        "exponential": 2, "depth": 4, "hyperbolic": 2, "quasi-hyperbolic": 2, "free weights": 0,
    }  # fmt: skip
    exponential = mh.solve(problem, mh.MaximumLikelihood(temperature=1.0))
    assert rows["exponential"].log_likelihood == pytest.approx(exponential.objective, abs=1e-8)
    assert rows["exponential"].details["parameters"]["discount"] == pytest.approx(exponential.discounts, abs=1e-6)


@pytest.mark.slow
def test_the_comparison_does_not_depend_on_order_and_names() -> None:
    problem = simulated(steps_task(), [[1.0, 0.5, 0.45], [1.0, 0.9, 0.3], [1.0, 0.7, 0.7]], episodes=100)
    swapped = problem.with_experts(problem.experts[::-1])
    one, two = (mh.compare_lookahead(p, solver=mh.MaximumLikelihood("per_expert")) for p in (problem, swapped))
    assert [row.family for row in one.rows] == [row.family for row in two.rows]
    for a, b in zip(one.rows, two.rows, strict=True):
        assert a.log_likelihood == pytest.approx(b.log_likelihood, abs=1e-6)
        for name, values in a.details["parameters"].items():
            assert np.array(values) == pytest.approx(np.array(b.details["parameters"][name])[::-1], abs=1e-4, nan_ok=True)


def test_held_out_halves_are_predicted_where_the_table_is_given() -> None:
    mdp = steps_task()
    weights = [[1.0, 0.2, 0.05], [1.0, 0.9, 0.8]]
    arrival = features_of(mdp)
    log = weighted_plan(mdp, mdp.stacked @ (arrival @ THETA), np.array([step_discounts_of(w) for w in weights]).T, np.ones(2))[1]
    table = mh.Demonstrations.simulate(mdp, list(np.exp(log[0]).transpose(2, 1, 0)), 200)
    problem = mh.Problem(mdp, table, arrival_features=arrival)
    comparison = mh.compare_lookahead(problem, [mh.Exponential()], table, mh.MaximumLikelihood(temperature=1.0))
    assert [row.family for row in comparison.rows if row.family != "free weights"] == ["exponential"]
    for row in comparison.rows:
        assert row.log_likelihood - 15 < row.held_out < row.log_likelihood + 1
    assert comparison.to_frame().shape[0] == 2


@pytest.fixture(scope="module")
def study(tmp_path_factory, problem):
    """The files of a study in three steps."""
    folder = tmp_path_factory.mktemp("study")
    mdp = problem.mdp
    mdp.to_npz(folder / "mdp.npz")
    arrival = features_of(mdp)
    rho = np.array([step_discounts_of(row) for row in ([1.0, 0.2, 0.05], [1.0, 0.9, 0.8], [1.0, 0.6, 0.4])]).T
    log = weighted_plan(mdp, mdp.stacked @ (arrival @ THETA), rho, np.ones(3))[1][0]
    mh.Demonstrations.simulate(mdp, list(np.exp(log).transpose(2, 1, 0)), 80).to_csv(folder / "decisions.csv")
    frame = pd.DataFrame(arrival, columns=["x", "y"])
    frame.insert(0, "state", mdp.state_names)
    frame.to_csv(folder / "features.csv", index=False)
    return folder


def fit(study, *more: object):
    arguments = [
        "fit",
        study / "decisions.csv",
        "--transitions",
        study / "mdp.npz",
        "--features",
        study / "features.csv",
        "--quick",
    ]
    return CliRunner().invoke(app, [str(a) for a in (*arguments, *more)])


@pytest.mark.slow
def test_fit_compares_families_in_the_table_the_json_and_the_page(study, tmp_path, golden) -> None:
    result = fit(study, "--lookahead", "all", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    golden(result.output)
    told = json.loads((tmp_path / "result.json").read_text())["lookahead"]
    assert {row["family"] for row in told["families"]} == {family.name for family in FAMILIES}
    assert told["best"] == told["families"][0]["family"]
    assert told["cannot_be_told_apart"][0] == told["best"]
    assert all(np.isfinite(row["held_out"]) for row in told["families"])
    assert all(len(row["details"]["weights"]) == 3 for row in told["families"])
    assert told["summary"] in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "result.json").read_text())["options"]["lookahead"] == "all"


@pytest.mark.slow
def test_fit_without_families_has_no_comparison(study, tmp_path) -> None:
    assert fit(study, "--out", tmp_path).exit_code == 0
    assert json.loads((tmp_path / "result.json").read_text())["lookahead"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lookahead", "hyprebolic"], "--lookahead must be one of exponential, depth, hyperbolic"),
        (["--lookahead", "all", "--discount", "0.9"], "can only be compared where discounts are estimated"),
    ],
)
def test_bad_requests_get_one_sentence_and_nothing_is_written(study, tmp_path, options, said) -> None:
    result = fit(study, *options, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_needless_parameters_alone_do_not_tell_families_apart() -> None:
    """Decisions of hyperbolic people: two parameters each do not gain, and that is no evidence against them."""
    weights = [[1.0, 1 / (1 + kappa), 1 / (1 + 2 * kappa)] for kappa in (0.2, 0.5, 1.0, 2.0)]
    problem, known = with_known_reward(simulated(steps_task(), weights, episodes=150))
    comparison = mh.compare_lookahead(problem, solver=mh.MaximumLikelihood(1.0, known_reward=known))
    assert {"hyperbolic", "quasi-hyperbolic", "exponential"} <= set(comparison.candidates)


def test_free_weights_are_told_from_narrower_families() -> None:
    problem, known = with_known_reward(simulated(steps_task(), SHAPES["free weights"], episodes=5000))
    comparison = mh.compare_lookahead(problem, solver=mh.MaximumLikelihood(1.0, known_reward=known))
    assert comparison.candidates == ("free weights",)
    assert all(row.free_p < 0.05 for row in comparison.rows[1:])


def test_families_that_meet_at_a_bound_are_not_called_the_same() -> None:
    """People who weigh all steps alike are at the end of every family, but the families are not one."""
    problem, known = with_known_reward(simulated(steps_task(), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], episodes=100, seed=3))
    comparison = mh.compare_lookahead(problem, solver=mh.MaximumLikelihood(1.0, known_reward=known))
    assert len(comparison.candidates) == 5
    assert not any(row.verdict.startswith("same") for row in comparison.rows)
