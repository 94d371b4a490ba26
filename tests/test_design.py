"""Which study to run: information, its derivatives, the proof of the best shares, and what a user gets of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings
from multihorizon.cli import app
from multihorizon.estimate import SavedIntervals
from multihorizon.likelihood.intervals import precision
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.numerics.allocation import Worth, allocate, evenly, filled, whole
from multihorizon.parallel import Run
from multihorizon.questions.design import _information, _mean_local
from multihorizon.questions.schedule import Candidate, Schedule, in_tasks, read_pilot
from multihorizon.report.charts import Lead
from multihorizon.report.pages import FILES, design_page

DISCOUNTS = (0.3, 0.5, 0.8)
FIT = mh.MaximumLikelihood(1.0, starts=1)


def table_of(domain, episodes=200, names=("ann", "bo", "cy"), seed=1):
    policies = [mh.soft_plan(domain.mdp, domain.reward, g, 1.0).policy for g in DISCOUNTS]
    return mh.Demonstrations.simulate(domain.mdp, policies, episodes, seed=seed, names=list(names))


@pytest.fixture(scope="module")
def cliff():
    domain = mh.domains.cliff()
    return domain, mh.solve(mh.Problem(domain.mdp, table_of(domain)), FIT)


@pytest.fixture(scope="module")
def space():
    task = mh.domains.space_adventure(mini_blocks=24)
    persons = task.persons(16, seed=2)
    blocks = pd.DataFrame({"state": [task.mdp.state_names[s] for s in task.starts], "most": 1})
    return task, persons, mh.Problem(task.mdp, persons.demonstrations), blocks


def informations(pilot, offered, draws=3, **options):
    read = read_pilot([pilot], options.get("persons"), None, options.get("further", False), draws)
    return list(_information(read, offered, Run()))


# The allocation.


def quadratic(centre, weights):
    """A concave function, rising in every share, with a known maximum among shares."""

    def f(w):
        return Worth(5.0 * w.sum() - 0.5 * float(weights @ (w - centre) ** 2), 5.0 - weights * (w - centre), np.diag(weights))

    return f


def test_the_best_shares_of_a_known_function_are_found_with_a_proof() -> None:
    centre, weights = np.array([0.5, 0.3, 0.2, 0.0]), np.array([1.0, 2.0, 3.0, 4.0])
    found = allocate(quadratic(centre, weights), np.full(4, np.inf), 1e-6)
    assert found.finished
    assert found.weights == pytest.approx(centre, abs=2e-3)
    assert found.gap <= 1e-6
    assert found.weights.sum() == pytest.approx(1.0)


def test_no_candidate_gets_more_than_it_may() -> None:
    found = allocate(quadratic(np.array([1.0, 0.0, 0.0]), np.ones(3)), np.array([0.4, 0.4, 0.4]), 1e-6)
    assert found.weights == pytest.approx([0.4, 0.3, 0.3], abs=1e-3)
    only = allocate(quadratic(np.array([1.0, 0.0]), np.ones(2)), np.array([0.25, 0.75]), 1e-6)
    assert only.weights == pytest.approx([0.25, 0.75])


def test_the_gap_bounds_what_any_other_way_of_sharing_gains() -> None:
    rng = np.random.default_rng(0)
    f = quadratic(rng.random(6), rng.random(6) + 0.1)
    most = np.full(6, 0.5)
    rough = allocate(f, most, 0.05)
    best = allocate(f, most, 1e-9)
    assert best.value <= rough.value + rough.gap * 6 + 1e-12
    for _ in range(200):
        w = rng.dirichlet(np.ones(6))
        if w.max() <= 0.5:
            assert f(w).value <= best.value + 6 * best.gap + 1e-12
            assert f((1 - rough.gap) * w).value <= rough.value + 1e-12


def test_filling_and_sharing_evenly_keep_to_budget_and_limits() -> None:
    gains, most = np.array([3.0, 1.0, 2.0]), np.array([0.4, 1.0, 0.4])
    assert filled(gains, most).tolist() == pytest.approx([0.4, 0.2, 0.4])
    assert evenly(np.array([1.0, 5.0, 5.0]), 9.0).tolist() == pytest.approx([1.0, 4.0, 4.0])
    cost = np.array([1.0, 2.0])
    assert float(cost @ evenly(np.full(2, np.inf), 9.0, cost)) == pytest.approx(9.0)
    assert evenly(np.full(2, np.inf), 9.0, cost).tolist() == pytest.approx([3.0, 3.0])


def test_whole_numbers_keep_to_the_budget() -> None:
    f = quadratic(np.array([5.4, 2.7, 1.9]), np.ones(3))
    times = whole(f, np.array([5.4, 2.7, 1.9]), np.ones(3), np.array([5.0, 9.0, 9.0]), 10.0)
    assert times.sum() == 10
    assert times.tolist() == [5, 3, 2]


# Information.


def test_visits_are_what_simulated_episodes_show(cliff) -> None:
    domain, pilot = cliff
    policy = mh.soft_plan(domain.mdp, domain.reward, 0.5, 1.0).policy
    block = Candidate("block", 0, (8, 8, 5), (3, 50, 200))
    offered = Schedule((domain.mdp,), (block,), np.array([400]))
    expected = offered.visits(0, policy)[0]
    study = offered.study(pilot.problem, None, pilot.personal_rewards, np.full(3, 0.5), np.ones(3))
    simulated = study.simulate(study.problem, [0, 1, 2], [policy] * 3, 1.0, 0)
    seen = sum(expert.counts.sum(axis=1) for expert in simulated.experts) / 1200
    error = np.sqrt(np.maximum(expected, 1e-3) / 1200)
    assert (np.abs(seen - expected) < 6 * error + 0.05 * expected).all()
    # An episode of three decisions ends after three.
    short = Schedule((domain.mdp,), (Candidate("short", 0, (8,), (3,)),), np.array([1]))
    assert short.visits(0, policy).sum() <= 3 + 1e-12


def test_information_of_candidates_is_that_of_the_likelihood(cliff) -> None:
    domain, pilot = cliff
    offered = Schedule.of_starts([domain.mdp])
    (here, *_) = informations(pilot, offered)
    numbers = np.linspace(10, 80, len(offered.candidates))
    policies = pilot.policies()
    counts = [
        (numbers @ offered.visits(0, policy))[:, None] * np.where(domain.mdp.terminal[:, None], 0.0, policy)
        for policy in policies
    ]
    model = Likelihood(in_tasks(pilot.problem, [domain.mdp])).with_counts(counts)
    point = model.at(model.pack(pilot.reward, pilot.discounts))
    errors = precision(point).standard_errors[model.discount_slice]
    assert np.sqrt(np.diag(here.covariance(numbers))) == pytest.approx(errors, rel=1e-5)


@pytest.mark.parametrize("criterion", ["all", "widest"])
def test_derivatives_are_differences(cliff, criterion) -> None:
    domain, pilot = cliff
    offered = Schedule.of_starts([domain.mdp])
    drawn = informations(pilot, offered, further=criterion == "widest")
    numbers, step = np.linspace(1, 3, len(offered.candidates)), 1e-5

    def at(n):
        return _mean_local(drawn, criterion, True, n)

    here = at(numbers)
    moves = step * np.eye(numbers.size)
    slopes = np.array([(at(numbers + m).value - at(numbers - m).value) / (2 * step) for m in moves])
    bends = np.array([(at(numbers + m).gradient - at(numbers - m).gradient) / (2 * step) for m in moves])
    assert here.gradient == pytest.approx(slopes, rel=1e-5, abs=1e-7)
    assert np.abs(bends + here.curvature).max() <= 1e-5 * np.abs(bends).max()
    assert _mean_local(drawn, criterion, False, numbers).gradient == pytest.approx(here.gradient, rel=1e-9)


def test_more_of_anything_never_hurts(cliff) -> None:
    domain, pilot = cliff
    offered = Schedule.of_starts([domain.mdp])
    (here, *_) = informations(pilot, offered)
    numbers = np.ones(len(offered.candidates))
    for j in range(numbers.size):
        more = here.covariance(numbers + np.eye(numbers.size)[j])
        assert np.linalg.eigvalsh(here.covariance(numbers) - more).min() >= -1e-9


def test_further_persons_say_more_of_the_reward_but_have_discounts_of_their_own(cliff) -> None:
    domain, pilot = cliff
    offered = Schedule.of_starts([domain.mdp])
    numbers = np.full(len(offered.candidates), 20.0)
    errors = [np.diag(informations(pilot, offered, persons=p)[0].covariance(numbers)) for p in (3, 6, 300)]
    model = Likelihood(in_tasks(pilot.problem, [domain.mdp]))
    counts = [
        (numbers @ offered.visits(0, p))[:, None] * np.where(domain.mdp.terminal[:, None], 0.0, p) for p in pilot.policies()
    ]
    twice = mh.Problem(domain.mdp, table_of(domain, 2, names=["a", "b", "c"]))
    experts = [*pilot.problem.experts, *twice.experts]
    model = Likelihood(in_tasks(pilot.problem.with_experts(experts), [domain.mdp])).with_counts([*counts, *counts])
    point = model.at(model.pack(pilot.reward, np.tile(pilot.discounts, 2)))
    both = precision(point).standard_errors[model.discount_slice][:3] ** 2
    assert errors[1] == pytest.approx(both, rel=1e-4)
    # With very many the reward is known, and a person's own decisions are all that is left.
    point = model.of_experts([0, 1, 2]).with_counts(counts).at(resume(pilot).x)
    own = np.diag(point.information)[resume(pilot).likelihood.discount_slice]
    assert (errors[0] > errors[1]).all()
    assert (errors[1] > errors[2]).all()
    assert (errors[2] >= 1 / own * (1 - 1e-9)).all()


# Designs.


def test_no_mixture_that_is_tried_is_better(cliff) -> None:
    domain, pilot = cliff
    found = mh.design(domain.mdp, pilot, episodes=500, draws=4)
    drawn = informations(pilot, Schedule.of_starts([domain.mdp]), 4)
    rng = np.random.default_rng(0)
    best = _mean_local(drawn, "all", False, 500 * found.weights).value
    tried = [*rng.dirichlet(np.full(8, 0.3), size=200), *(0.999 * np.eye(8) + 0.001 / 8)]
    gained = max(_mean_local(drawn, "all", False, 500 * w).value for w in tried) - best
    assert gained <= 3 * found.gap + 1e-9
    assert found.gap < 0.01
    assert found.status == mh.Status.OPTIMAL
    assert found.times.sum() == 500
    assert found.weights.sum() == pytest.approx(1.0)
    assert (found.expected_standard_errors < found.uniform_standard_errors).all()
    assert found.saving > 1.2


def test_the_answer_does_not_depend_on_names_and_orders(cliff) -> None:
    domain, pilot = cliff
    found = mh.design(domain.mdp, pilot, episodes=500)
    mdp, order = domain.mdp, np.random.default_rng(3).permutation(domain.mdp.n_states)
    array = np.stack([mdp.transition(a).toarray()[np.ix_(order, order)] for a in (2, 0, 3, 1)])
    other = mh.MDP(
        array,
        mdp.initial[order],
        np.flatnonzero(mdp.terminal[order]),
        available=mdp.available[order][:, [2, 0, 3, 1]],
        state_names=[f"s{mdp.state_names[s]}" for s in order],
        action_names=[mdp.action_names[a] for a in (2, 0, 3, 1)],
    )
    experts = [pilot.problem.experts[k].counts[order][:, [2, 0, 3, 1]] for k in (1, 2, 0)]
    told = mh.Problem(
        other,
        [mh.Expert(name, other, "demonstrations", counts=c) for name, c in zip(["x", "y", "z"], experts, strict=True)],
    )
    again = mh.design(other, mh.solve(told, FIT), episodes=500)
    place = {name: i for i, name in enumerate(again.candidates)}
    moved = again.weights[[place[f"s{name}"] for name in found.candidates]]
    assert moved == pytest.approx(found.weights, abs=2e-2)
    assert again.expected_standard_errors == pytest.approx(found.expected_standard_errors[[1, 2, 0]], rel=1e-2)
    assert again.saving == pytest.approx(found.saving, rel=1e-2)


def test_a_design_for_a_population_uses_each_block_once(space) -> None:
    task, persons, problem, blocks = space
    pilot = mh.solve(problem, mh.Population("~ group", persons.frame, known_reward=task.reward))
    half, full = (mh.design(task.mdp, pilot, blocks, episodes=n, persons=60, difference=0.8) for n in (12, 24))
    assert half.targets == ("group[T.training]",)
    assert set(half.times.tolist()) == {0, 1}
    assert full.times.tolist() == [1] * 24
    assert half.times.sum() == 12
    assert full.expected_standard_errors[0] <= half.expected_standard_errors[0] <= half.uniform_standard_errors[0]
    assert half.power < full.power
    assert half.persons == 60
    # Twice as many people halve the variance; twice as many decisions do not, because people differ.
    rows = half.sizes.set_index(["persons", half.sizes["decisions"].round()])["largest_standard_error"]
    fewer, decisions = sorted(half.sizes["decisions"].round().unique())  # nobody can be given a block twice
    assert decisions == round(half.decisions)
    assert rows[120, decisions] == pytest.approx(rows[60, decisions] / np.sqrt(2), rel=1e-9)
    assert rows[60, decisions] > rows[60, fewer] / np.sqrt(2)


def test_the_effects_error_is_that_of_a_mixed_model(space) -> None:
    """With the reward known, the information about the effect is Σ Xᵀ(J^{-1} + Σ)^{-1}X, J the information of a person."""
    task, persons, problem, blocks = space
    pilot = mh.solve(problem, mh.Population("~ group", persons.frame, known_reward=task.reward))
    read = read_pilot([pilot], 16, None, False, 1)
    offered = Schedule.read(blocks, task.mdp)
    (here,) = _information(read, offered, Run())
    layout, draw = read.layout(read.draws[0]), read.draws[0]
    spread = pilot.evidence["population"].spread
    rho, sizes = spread["correlation"]["estimate"], [spread[kind]["estimate"] for kind in ("discount", "temperature")]
    between = np.outer(sizes, sizes) * np.array([[1, rho], [rho, 1]]) + 1e-4 * np.eye(2)
    pieces = here.pieces.sum(axis=0)
    slope = draw.discounts * (1 - draw.discounts / pilot.evidence["population"].largest_discount)
    total = np.zeros((4, 4))
    for e, weight in enumerate(layout.weight):
        scale = np.diag([slope[e], 1.0])
        own = np.linalg.inv(scale @ pieces[e] @ scale)
        group = layout.maps[e, 0, 0] / slope[e]
        x = np.zeros((2, 4))
        x[0, :2] = x[1, 2:] = (group, 1.0)
        total += weight * x.T @ np.linalg.inv(own + between) @ x
    assert here.covariance(np.ones(24))[0, 0] == pytest.approx(np.linalg.inv(total)[0, 0], rel=1e-6)


def test_further_episodes_bring_the_widest_interval_below_the_width(cliff) -> None:
    pilot = cliff[1]
    found = mh.design(None, pilot, width=0.2, draws=2)
    assert found.widths.max() <= 0.2
    now = pilot.standard_errors * 2 * 1.959964
    assert found.before == pytest.approx(now, rel=0.2)
    fewer = found.times.copy()
    fewer[np.argmax(fewer)] = int(0.9 * fewer.max())
    (here, *_) = informations(pilot, found.schedule, 2, further=True)
    assert 2 * 1.96 * np.sqrt(np.diag(here.covariance(fewer.astype(float))).max()) > 0.2
    with pytest.raises(ValueError, match="no further episodes are needed"):
        mh.design(None, pilot, width=5.0)


def test_a_budget_of_decisions_and_one_of_costs_are_kept(cliff) -> None:
    domain, pilot = cliff
    found = mh.design(domain.mdp, pilot, decisions=800, draws=2)
    assert 700 <= found.decisions <= 800
    table = pd.DataFrame({"state": ["4", "8", "11"], "cost": [1.0, 3.0, 0.5], "most": [10, 10, 10]})
    priced = mh.design(domain.mdp, pilot, table, budget=20, draws=2)
    assert float(priced.times @ table["cost"]) <= 20
    assert (priced.times <= 10).all()


def test_several_guesses_and_guesses_without_errors_are_taken(cliff, golden) -> None:
    domain, pilot = cliff
    exact = mh.solve(
        mh.Problem(domain.mdp, [mh.soft_plan(domain.mdp, domain.reward, g, 1.0).policy for g in DISCOUNTS]), mh.ClosedForm()
    )
    found = mh.design(domain.mdp, exact, episodes=100)
    assert found.draws == 1
    golden(found.sentences())
    assert mh.design(domain.mdp, [pilot, pilot], episodes=100).draws == 2


def test_tasks_with_the_same_states_are_weighed_against_each_other(cliff) -> None:
    domain, pilot = cliff
    steep = mh.domains.cliff(slip=0.4)
    found = mh.design([domain.mdp, steep.mdp], pilot, episodes=300, draws=2)
    one = mh.design(domain.mdp, pilot, episodes=300, draws=2)
    assert len(found.candidates) == 16
    assert "in task 2" in found.candidates[-1]
    assert (found.expected_standard_errors**2).prod() <= (one.expected_standard_errors**2).prod() * 1.02
    study = found.schedule.study(pilot.problem, None, pilot.personal_rewards, pilot.discounts, pilot.temperature)
    assert sum(starts.size for starts in study.starts) == 3 * 300


@pytest.mark.slow
def test_simulated_studies_have_the_expected_errors(cliff) -> None:
    domain, pilot = cliff
    found = mh.design(domain.mdp, pilot, episodes=1000)
    size = mh.simulate_study(pilot, FIT, schedule=found.schedule, studies=40, seed=3).sizes[0]
    spread = size.estimates.std(axis=0, ddof=1)
    assert size.decisions == pytest.approx(found.decisions)
    assert (np.abs(spread / found.expected_standard_errors - 1) < 0.3).all()


# Bad input, files and the command line.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": 10, "decisions": 10}, "given once"),
        ({"episodes": 0}, "positive number"),
        ({"persons": 2}, "at least the 3"),
        ({"term": "group"}, "needs a guess of Population"),
        ({"candidates": pd.DataFrame({"state": ["nowhere"]})}, "must be one of the 12 states"),
        ({"candidates": pd.DataFrame({"state": ["0"]})}, "must not begin where it ends"),
        ({"candidates": pd.DataFrame({"state": ["4"], "task": [2]})}, "task must be from 1 to 1"),
        ({"candidates": pd.DataFrame({"state": ["4"], "length": [0]})}, "length must be at least 1"),
        ({"candidates": pd.DataFrame({"state": ["4", "5"], "most": [1, 1]}), "episodes": 10}, "at most 2"),
        ({"budget": 10}, "needs the cost of every candidate"),
        ({"episodes": 1e20}, "at most 1,000,000"),
        ({"candidates": pd.DataFrame({"state": ["4", "4"]})}, "got 4 twice"),
        ({"candidates": pd.DataFrame({"state": ["4"], "length": [20_000]})}, "length must be at most 10,000"),
        ({"candidates": pd.DataFrame({"state": ["4"], "cost": [5.0]}), "budget": 2}, "the smallest candidate costs 5"),
        ({"seed": -1, "episodes": 10}, "seed must be"),
        ({"draws": 0, "episodes": 10}, "draws must be"),
        ({"candidates": pd.DataFrame({"state": ["4", "5"], "candidate": ["b", "b"], "most": [1, 2]})}, "the same in all rows"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(cliff, options, message) -> None:
    domain, pilot = cliff
    candidates = options.get("candidates")
    rest = {name: value for name, value in options.items() if name != "candidates"}
    with pytest.raises(ValueError, match=message):
        mh.design(domain.mdp, pilot, candidates, **{"draws": 1, **rest})


@pytest.mark.parametrize(("tasks", "guess"), [("x", None), ([None], None), (None, 3), (None, [3])])
def test_what_is_no_task_and_no_solution_is_refused(cliff, tasks, guess) -> None:
    with pytest.raises(ValueError, match="got"):
        mh.design(tasks, cliff[1] if guess is None else guess, episodes=10, draws=1)


def test_a_task_that_is_given_twice_counts_once(cliff) -> None:
    domain, pilot = cliff
    once, twice = (mh.design(tasks, pilot, episodes=100, draws=1) for tasks in (domain.mdp, [domain.mdp, domain.mdp]))
    assert twice.decisions == pytest.approx(once.decisions, rel=0.1)
    assert twice.expected_standard_errors == pytest.approx(once.expected_standard_errors, rel=0.02)


def test_a_small_budget_goes_to_what_says_most(cliff) -> None:
    """Where few candidates fit, all ways to use them are tried: none may be much better."""
    domain, pilot = cliff
    cost = np.array([5.0, 2.0, 3.0, 1.5])
    offered = pd.DataFrame({"state": ["5", "6", "9", "11"], "cost": cost})
    found = mh.design(domain.mdp, pilot, offered, budget=9.9, draws=1)
    (here,) = informations(pilot, found.schedule, draws=1)
    numbers = [n for n in np.ndindex(2, 5, 4, 7) if cost @ n <= 9.9 and sum(n)]
    values = [-np.inf if (local := here.local(np.array(n, float), "all", False)) is None else local.value for n in numbers]
    own = here.local(found.times.astype(float), "all", False)
    assert own is not None
    assert own.value >= max(values) - 3 * np.log(1.25)  # within a quarter of the episodes
    assert 0 <= found.rounding_loss < 1


def test_what_is_larger_than_the_whole_study_is_left_out(cliff, golden) -> None:
    domain, pilot = cliff
    offered = pd.DataFrame({"state": ["4", "5", "8"], "episodes": [1, 1, 500]})
    found = mh.design(domain.mdp, pilot, offered, episodes=100, draws=1)
    alone = mh.design(domain.mdp, pilot, offered[:2], episodes=100, draws=1)
    assert found.candidates == ("4", "5")
    golden(found.sentences())
    assert found.times.tolist() == alone.times.tolist()
    assert found.uniform_standard_errors == pytest.approx(alone.uniform_standard_errors)


def test_power_is_that_of_students_t_where_the_effect_is_the_difference(space) -> None:
    task, persons, problem, blocks = space
    pilot = mh.solve(problem, mh.Population("~ group", persons.frame, known_reward=task.reward))
    at = pilot.evidence["population"].discount["group[T.training]"]["estimate"]
    assert at > 0  # so that the effect of the pilot can be the difference
    found = mh.design(task.mdp, pilot, blocks, episodes=24, persons=10, difference=at, draws=1)
    draws = np.random.default_rng(0).standard_normal((400_000, 9))
    statistic = (at / found.expected_standard_errors[0] + draws[:, 0]) / np.sqrt((draws[:, 1:] ** 2).mean(axis=1))
    assert found.power == pytest.approx(float((np.abs(statistic) > 2.306).mean()), abs=0.005)
    larger = mh.design(task.mdp, pilot, blocks, episodes=24, persons=10, difference=6 * at, draws=1)
    normal = float(ndtr(6 * at / found.expected_standard_errors[0] - 1.959964))
    assert larger.power < normal  # who looks that far ahead is hard to tell apart in a short task
    with pytest.raises(ValueError, match="persons must be at least 4"):
        mh.design(task.mdp, pilot, blocks, episodes=24, persons=3)
    with pytest.raises(ValueError, match="at least 4"):
        mh.simulate_study(pilot, schedule=found.schedule, people=[3], studies=2)


def test_candidates_that_tell_nothing_are_refused() -> None:
    toy = mh.domains.toy()
    table = mh.Demonstrations.simulate(toy.mdp, toy.soft_experts(), 200, seed=0)
    pilot = mh.solve(mh.Problem(toy.mdp, table), FIT)
    guess = pilot if np.isfinite(pilot.discounts).all() else None
    assert guess is not None
    with pytest.raises(ValueError, match="stays open"):
        mh.design(toy.mdp, guess, episodes=100, draws=1)


def test_a_schedule_is_read_back_as_it_was_written(cliff, tmp_path) -> None:
    domain, pilot = cliff
    table = pd.DataFrame(
        {"candidate": ["a", "a", "b"], "state": ["4", "8", "11"], "length": [5, 9, 7], "episodes": [2, 1, 1], "most": [9, 9, 9]}
    )
    found = mh.design(domain.mdp, pilot, table, episodes=30, draws=2)
    assert found.candidates == ("a", "b")
    path = tmp_path / "schedule.csv"
    found.schedule.to_frame().to_csv(path, index=False)
    again = Schedule.read(path, domain.mdp)
    assert again.candidates == found.schedule.candidates
    assert again.times.tolist() == found.times.tolist()
    assert again.candidates[0].starts == (4, 4, 8)
    assert again.candidates[0].lengths == (5, 5, 9)


@pytest.mark.slow
def test_the_command_writes_a_design_that_recover_takes(tmp_path, monkeypatch, golden) -> None:
    monkeypatch.chdir(tmp_path)
    domain, runner = mh.domains.cliff(), CliRunner()
    table_of(domain, 60).to_frame().to_csv("decisions.csv", index=False)
    domain.mdp.to_npz("task.npz")
    fit = ["fit", "decisions.csv", "--transitions", "task.npz", "--deviations", "0", "--quick", "--out", "result"]
    assert runner.invoke(app, fit).exit_code == 0
    asked = [
        "design",
        "--pilot",
        "result",
        "--transitions",
        "task.npz",
        "--persons",
        "6",
        "--decisions",
        "400",
        "--difference",
        "1",
    ]
    done = runner.invoke(app, [*asked, "--draws", "3", "--out", "design"])
    assert done.exit_code == 0, done.output
    golden(done.output)
    assert {path.name for path in (tmp_path / "design").iterdir()} == set(FILES["design"])
    content = json.loads((tmp_path / "design" / "design.json").read_text())
    assert {"candidates", "weights", "expected_standard_errors", "uniform_standard_errors", "gap"} <= set(content)
    assert content["gap"] < 0.01
    assert len(content["weights"]) == len(content["candidates"]) == 8
    assert '<svg class="chart"' in (tmp_path / "design" / "design.html").read_text()
    checked = ["recover", "--pilot", "result", "--schedule", "design/schedule.csv", "--transitions", "task.npz", "--people", "6"]
    simulated = runner.invoke(app, [*checked, "--studies", "2", "--out", "check"])
    assert simulated.exit_code == 0, simulated.output
    size = json.loads((tmp_path / "check" / "recover.json").read_text())["sizes"][0]
    assert size["people"] == 6
    assert size["decisions"] == pytest.approx(content["decisions"], rel=1e-6)
    for wrong, message in (
        (["design", "--pilot", "nowhere"], "which does not exist"),
        (["design", "--pilot", "result", "--episodes", "0"], "--episodes"),
        (["design", "--pilot", "result", "--width", "0.1", "--episodes", "5"], "given once"),
        (["recover", "--pilot", "result"], "must come together"),
        (["recover"], "got none"),
        (["recover", "decisions.csv", "--pilot", "result", "--schedule", "design/schedule.csv"], "must come without"),
    ):
        refused = runner.invoke(app, wrong)
        assert refused.exit_code == 2, wrong
        assert message in " ".join(refused.output.split()), refused.output


# What a reviewer found.


def test_power_is_that_of_the_persons_whose_discounts_are_open() -> None:
    domain = mh.domains.cliff()
    problem = mh.Problem(domain.mdp, table_of(domain))
    known = mh.solve(problem, mh.MaximumLikelihood(1.0, discounts={"ann": 0.3}, starts=1))
    found = mh.design(None, known, episodes=100, difference=1.0, draws=1)
    (here,) = informations(known, found.schedule, 1)
    covariance, gamma = here.covariance(found.times.astype(float)), known.discounts[1:]
    slope = gamma * (1 - gamma)
    logits = covariance / np.outer(slope, slope)
    z = 1.0 / np.sqrt(logits[0, 0] + logits[1, 1] - 2 * logits[0, 1])
    assert found.targets == ("bo", "cy")
    assert found.power == pytest.approx(float(ndtr(z - 1.959964)), abs=1e-3)


def test_a_design_without_anything_else_to_estimate(cliff) -> None:
    domain, _ = cliff
    known = mh.solve(mh.Problem(domain.mdp, table_of(domain)), mh.MaximumLikelihood(1.0, known_reward=domain.reward, starts=1))
    found = mh.design(None, known, episodes=50, draws=2)
    assert found.gap < 0.01
    (here, *_) = informations(known, found.schedule, 2)
    assert np.isfinite(here.covariance(found.times.astype(float))).all()
    order = np.arange(12)[::-1]
    array = np.stack([domain.mdp.transition(a).toarray()[np.ix_(order, order)] for a in range(4)])
    names = [domain.mdp.state_names[s] for s in order]
    other = mh.MDP(array, domain.mdp.initial[order], np.flatnonzero(domain.mdp.terminal[order]), state_names=names)
    with pytest.raises(ValueError, match="list states and actions as the guess does"):
        mh.design(other, known, episodes=50, draws=1)


def test_the_saving_is_a_size_of_the_uniform_study(cliff) -> None:
    domain, pilot = cliff
    names = [domain.mdp.state_names[s] for s in np.flatnonzero(~domain.mdp.terminal)]
    table = pd.DataFrame({"state": names, "cost": [1.0] * 4 + [10.0] * 4})
    found = mh.design(None, pilot, table, budget=200, draws=1)
    (here,) = informations(pilot, found.schedule, 1)
    larger = _mean_local([here], "all", False, found.saving * found.uniform_times).value
    assert larger == pytest.approx(_mean_local([here], "all", False, found.times.astype(float)).value, abs=0.01)
    assert float(table["cost"] @ found.uniform_times) == pytest.approx(200)


def test_expected_decisions_of_a_population_are_those_of_its_persons(space, golden) -> None:
    task, _, problem, blocks = space
    pilot = mh.solve(problem, mh.Population(known_reward=task.reward))
    found = mh.design(None, pilot, blocks, episodes=12)
    simulated = mh.simulate_study(pilot, schedule=found.schedule, people=[16], studies=2, seed=0)
    assert found.targets == ("Intercept",)
    golden(found.sentences())
    assert found.decisions == pytest.approx(simulated.sizes[0].decisions, rel=0.1)
    with pytest.raises(ValueError, match="effect of a covariate"):
        mh.design(None, pilot, blocks, episodes=12, difference=0.5)


def test_a_width_that_is_nearly_reached_takes_one_episode(cliff) -> None:
    _, pilot = cliff
    now = mh.design(None, pilot, width=0.2, draws=1).before.max()
    found = mh.design(None, pilot, width=0.995 * now, draws=1)
    assert 1 <= found.times.sum() <= 10
    assert found.widths.max() <= 0.995 * now


def test_features_of_two_tasks_stay_apart(cliff) -> None:
    domain, _ = cliff
    rng, tables = np.random.default_rng(0), table_of(domain)
    other = mh.domains.cliff(slip=0.3).mdp
    features = [rng.normal(size=(12, 3)) for _ in range(2)]
    parts = [
        mh.Problem(mdp, tables, arrival_features=matrix, feature_names=list("abc"))
        for mdp, matrix in zip((domain.mdp, other), features, strict=True)
    ]
    joined = parts[0].with_experts([*parts[0].experts, *parts[1].experts])
    placed = in_tasks(joined, [domain.mdp.as_known(), other.as_known()])
    for expert, matrix in zip(placed.experts[::3], features, strict=True):
        assert expert.arrival.toarray() == pytest.approx(matrix)


def test_a_pilot_that_leaves_discounts_open_is_not_planned_with_in_silence(cliff) -> None:
    domain, pilot = cliff
    ends = np.tile([0.0, 1.0], (len(pilot.experts), 1))
    open_ = replace(pilot, interval_source=SavedIntervals({0.95: ends}))
    assert any("leaves the discount" in text for text in mh.design(domain.mdp, open_, episodes=20, draws=2).remarks)
    sure = replace(pilot, interval_source=SavedIntervals({0.95: ends / 4}))
    assert not any("leaves the discount" in text for text in mh.design(domain.mdp, sure, episodes=20, draws=2).remarks)


def test_schedules_are_checked(cliff, golden) -> None:
    domain, pilot = cliff
    for wrong in (Candidate("x", 0, (99,), (5,)), Candidate("x", 1, (4,), (5,)), Candidate("x", 0, (4,), ())):
        with pytest.raises(ValueError, match=r"candidate x"):
            Schedule((domain.mdp,), (wrong,), np.array([1]))
    good = Candidate("x", 0, (4,), (5,))
    for changed in ({"most": 0}, {"most": 0.5}, {"most": np.nan}, {"cost": 0.0}, {"cost": np.inf}, {"lengths": (1.5,)}):
        with pytest.raises(ValueError, match="candidate x must have"):
            Schedule((domain.mdp,), (replace(good, **changed),), np.array([1]))
    with pytest.raises(ValueError, match="got x twice"):
        Schedule((domain.mdp,), (good, good), np.array([1, 1]))
    some = Schedule((domain.mdp,), (good, Candidate("y", 0, (5,), (5,), most=3)), np.array([1, 1]))
    assert Schedule.read(some.to_frame(), domain.mdp).candidates[1].most == 3
    noted = mh.design(None, pilot, pd.DataFrame({"state": ["4", "8"], "lenght": [3, 3]}), episodes=20, draws=1)
    golden(noted.sentences())
    with pytest.raises(ValueError, match="people"):
        mh.simulate_study(pilot, FIT, schedule=noted.schedule, people=[-3], studies=2)
    with pytest.raises(ValueError, match="one number of people"):
        mh.simulate_study(pilot, FIT, schedule=noted.schedule, people=[3, 6], studies=2)


def test_a_design_where_moves_take_time_is_that_of_waiting() -> None:
    """A move of two units goes through a state of waiting, where there is nothing to decide."""
    rng = np.random.default_rng(0)
    moves = rng.dirichlet(np.ones(4), size=(2, 4))
    hours = np.array([[1, 2], [2, 1], [1, 1], [2, 2]])
    waiting = np.zeros((2, 12, 12))
    for s in range(4):
        for a in range(2):
            if hours[s, a] == 1:
                waiting[a, s, :4] = moves[a, s]
            else:
                waiting[a, s, 4 + 2 * s + a] = 1.0
                waiting[:, 4 + 2 * s + a, :4] = moves[a, s]
        for a in range(2):
            waiting[:, 4 + 2 * s + a] = waiting[:, 4 + 2 * s + a] if hours[s, a] == 2 else np.eye(12)[0]
    available = np.ones((12, 2), dtype=bool)
    available[4:, 1] = False  # nothing to decide, and no entropy
    waiting[1, 4:] = 0.0
    timed, slow = mh.MDP(moves, durations=hours), mh.MDP(waiting, available=available)
    reward = np.concatenate([rng.normal(size=4), np.zeros(8)])
    experts = [mh.soft_plan(timed, reward[:4], g).policy for g in (0.4, 0.8)]
    table = mh.Demonstrations.simulate(timed, experts, 60, max_steps=20)
    fitted = mh.solve(mh.Problem(timed, table), mh.MaximumLikelihood(1.0, known_reward=reward[:4], starts=1))
    offered = pd.DataFrame({"state": list("0123"), "length": 40})
    found = mh.design(timed, fitted, offered, episodes=50, draws=1)
    policies = [mh.soft_plan(timed, reward[:4], float(g)).policy for g in fitted.discounts]
    whole = [mh.soft_plan(slow, reward, float(g)).policy for g in fitted.discounts]
    for policy, other in zip(policies, whole, strict=True):
        assert other[:4] == pytest.approx(policy, abs=1e-9)
    counts = [(found.times @ found.schedule.visits(0, policy))[:, None] * policy for policy in policies]
    padded = [np.vstack([c, np.zeros((8, 2))]) for c in counts]
    problem = mh.Problem(slow, [mh.Expert(n, slow, "demonstrations", counts=c) for n, c in zip("ab", padded, strict=True)])
    model = Likelihood(problem, Settings(reward=reward))
    point = model.at(model.pack(reward, fitted.discounts))
    errors = precision(point).standard_errors[model.discount_slice]
    assert found.expected_standard_errors == pytest.approx(errors, rel=1e-6)


# A study that people can be given.


def endless(gain: float) -> mh.MDP:
    """A stock of 0 to 4 that grows by itself, without an end: take all of it, or wait."""
    transitions = np.zeros((2, 5, 5))
    for stock in range(5):
        transitions[0, stock, min(stock + 1, 4)] = gain
        transitions[0, stock, stock] += 1 - gain
        transitions[1, stock, 0] = 1.0
    names = {"state_names": [f"stock {i}" for i in range(5)], "action_names": ["wait", "take"]}
    return mh.MDP(transitions, initial=np.full(5, 0.2), **names)


@pytest.fixture(scope="module")
def stocks() -> mh.Solution:
    mdp, points = endless(0.8), np.outer(np.arange(5), [0.0, 1.0])
    policies = [mh.soft_plan(mdp, points, g, 0.7).policy for g in (0.3, 0.5, 0.7, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 10, max_steps=12, seed=0)
    return mh.solve(mh.Problem(mdp, table), mh.Population("~ 1", known_reward=points))


def test_episodes_of_an_endless_task_are_as_long_as_those_of_the_pilot(stocks) -> None:
    found = mh.design(None, stocks, persons=20, draws=1)
    assert {candidate.lengths for candidate in found.schedule.candidates} == {(12,)}
    again = mh.design(None, stocks, persons=20, draws=1, length=30)
    assert {candidate.lengths for candidate in again.schedule.candidates} == {(30,)}


def test_a_design_without_gain_is_said_to_be_that_and_a_start_again_and_again_is_warned_of(stocks, golden) -> None:
    found = mh.design(None, stocks, persons=20, draws=1)
    largest, episodes = found.most_alike
    assert found.hardly_matters == (0.95 <= found.saving < 1.05)
    assert found.hardly_matters == ("The design hardly matters" in found.sentences())
    assert found.one_sided == (2 * largest > episodes)
    assert found.one_sided
    golden(found.sentences())
    page = design_page(found, {}, "")
    assert page.answer == [Lead(found.headline())]
    assert found.headline() in " ".join(found.sentences().splitlines())
    strong = replace(found, difference=1.0, power=0.5, uniform_power=0.4, sizes=found.sizes.assign(power=[0.3, 0.5, 0.9] * 3))
    assert strong.headline().startswith("20 participants with about ")
    assert " give 50% power to detect a difference of 1 in logit discounts (40% with all candidates" in strong.headline()
    assert strong.headline().endswith(" decisions each give 90%.")
    html = design_page(strong, {}, "").render()
    assert "<img" not in html  # all figures are drawn in the page's colours
    assert re.search(r'aria-label="How likely studies of other sizes are to see the difference[^"]*power 90%', html)
    assert html.count('class="mark part"') == int((found.times > 0).sum())
    badge = page.sections[0].blocks[0]
    assert badge.kind == ""
    assert badge.content.startswith(("The design hardly matters", "Most episodes are of one kind"))
    # the spread-out study keeps to the budget, and gives at least a third of it to what the best study leaves out
    assert found.spread_times.sum() <= episodes
    assert found.spread_times.max() < largest
    assert found.spread_standard_errors[0] >= found.expected_standard_errors[0] * (1 - 1e-9)
