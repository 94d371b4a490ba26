"""What a design can show: simulated studies are those of the design, and what they show is what the mathematics says."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from tiny import PAYS, three_steps
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.questions.schedule import WITHIN, Schedule, design_under, policies_of, read_design
from multihorizon.questions.study import Outcome, Recovery, Truth
from multihorizon.report.files import write_fit
from multihorizon.report.pages import FILES

KNOWN = mh.MaximumLikelihood(1.0, known_reward=mh.domains.cliff().reward, starts=1)


@pytest.fixture(scope="module")
def cliff():
    domain = mh.domains.cliff()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 60, seed=1, names=["ann", "bo", "cy"])
    return domain, table, mh.Problem(domain.mdp, table)


@pytest.fixture(scope="module")
def space():
    task = mh.domains.space_adventure(mini_blocks=40)
    persons = task.persons(12, seed=2)
    return task, persons, mh.Problem(task.mdp, persons.demonstrations)


def test_simulated_episodes_begin_where_those_of_the_study_did(space) -> None:
    task, persons, problem = space
    design = read_design(problem, persons.demonstrations)
    first = task.mdp.n_states - 5  # all others lead on
    policies = policies_of(problem, task.reward, np.zeros((len(persons.discounts), 0)), persons.discounts, persons.temperatures)
    simulated = design.simulate(problem, np.arange(12), policies, 1.0, 3)
    again = design.simulate(problem, np.arange(12), policies, 1.0, 3)
    starts = np.bincount(task.starts, minlength=task.mdp.n_states)
    for before, after, twin in zip(problem.experts, simulated.experts, again.experts, strict=True):
        assert after.counts.sum() == before.counts.sum()
        assert (after.counts.sum(axis=1) >= starts)[:first].all()
        assert (after.counts == twin.counts).all()
    assert any((a.counts != b.counts).any() for a, b in zip(problem.experts, simulated.experts, strict=True))
    twice = design.simulate(problem, np.arange(12), policies, 2.0, 3)
    assert sum(e.counts.sum() for e in twice.experts) == 2 * sum(e.counts.sum() for e in problem.experts)


def test_without_the_table_persons_decide_where_they_decided(cliff) -> None:
    domain, _, problem = cliff
    design = read_design(problem, None)
    policies = domain.soft_experts()
    simulated = design.simulate(problem, np.arange(3), policies, 1.0, 0)
    for before, after in zip(problem.experts, simulated.experts, strict=True):
        assert (after.counts.sum(axis=1) == before.counts.sum(axis=1)).all()
    many = design.simulate(problem, np.arange(3), policies, 400.0, 0)
    for expert, policy in zip(many.experts, policies, strict=True):
        seen = expert.counts.sum(axis=1) > 2000
        assert seen.any()
        frequencies = expert.counts[seen] / expert.counts[seen].sum(axis=1, keepdims=True)
        assert frequencies == pytest.approx(policy[seen], abs=0.05)


def test_people_are_those_of_the_study_again_and_again(cliff) -> None:
    _, table, problem = cliff
    design = read_design(problem, table)
    members = design.draw_people(7, np.random.default_rng(0))
    more, patterns = design.of_cells(members)
    assert len(set(more.names)) == 7
    assert set(more.names[:3]) == {"ann", "bo", "cy"}
    assert np.bincount(members, minlength=3).min() >= 2
    assert patterns == members.tolist()


@pytest.fixture(scope="module")
def recovered(cliff):
    _, table, problem = cliff
    return mh.simulate_study(problem, KNOWN, table, decisions=[8000], studies=6, seed=4)


def test_more_decisions_recover_more(recovered, golden) -> None:
    own, more = recovered.sizes
    assert (own.people, own.studies, more.decisions) == (3, 6, 8000)
    assert more.error < 0.5 * own.error
    assert own.truth.shape == own.estimates.shape == (6, 3)
    assert (own.truth == own.truth[0]).all()
    assert more.coverage > 0.7
    assert np.isnan(own.power)
    golden(recovered.sentences())


@pytest.mark.slow
def test_processes_do_not_change_the_answer_and_seeds_do(cliff, recovered) -> None:
    _, table, problem = cliff
    twin = mh.simulate_study(problem, KNOWN, table, decisions=[], studies=2, seed=4, jobs=2)
    other = mh.simulate_study(problem, KNOWN, table, decisions=[], studies=2, seed=5)
    for size, same, different in zip(recovered.sizes[:1], twin.sizes, other.sizes, strict=True):
        assert (same.estimates == size.estimates[:2]).all()
        assert (different.estimates != size.estimates[:2]).any()


def test_the_first_sentence_is_the_power_or_the_error(recovered) -> None:
    first = recovered.sizes[0]
    assert recovered.headline().startswith(
        f"3 participants with {first.decisions:,.0f} decisions each give discounts to within ±"
    )
    few = replace(first, effect=0.5, power=0.4, people=20)
    many = replace(first, effect=0.5, power=0.85, people=60)
    told = replace(recovered, term="age", sizes=(few, many)).headline()
    assert re.search(r"give 40 ± \d+% power to detect an effect of 0.50 of age; 60 participants .* give 85 ± \d+%\.$", told)
    assert replace(recovered, sizes=(replace(first, error=np.nan),)).headline() == "No simulated study identified a discount."


def test_what_was_found_is_written(recovered, tmp_path) -> None:
    recovered.to_json(tmp_path / "recover.json")
    content = json.loads((tmp_path / "recover.json").read_text())
    assert content["sizes"][0]["coverage"] == pytest.approx(recovered.sizes[0].coverage)
    assert content["sizes"][0]["power"] is None
    assert np.array(content["sizes"][1]["estimates"]) == pytest.approx(recovered.sizes[1].estimates)
    assert len(recovered.to_frame()) == 2


def test_what_was_written_is_read_again(recovered, tmp_path) -> None:
    recovered.to_json(tmp_path / "recover.json")
    again = Recovery.from_json(tmp_path / "recover.json")
    assert again.sentences() == recovered.sentences()
    pd.testing.assert_frame_equal(again.to_frame(), recovered.to_frame())
    assert (again.sizes[0].estimates == recovered.sizes[0].estimates).all()
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"is not a saved Recovery"):
        Recovery.from_json(tmp_path / "other.json")


def test_discounts_that_are_not_identified_are_no_estimates(cliff) -> None:
    solution = mh.solve(cliff[2], KNOWN)
    evidence = {**solution.evidence, "identified": [True, False, True]}
    found = Outcome.of(replace(solution, status=mh.Status.NOT_IDENTIFIED, evidence=evidence), np.full(3, 0.5), None)
    assert np.isnan(found.estimates).tolist() == [False, True, False]


def test_chosen_discounts_are_the_truth(cliff) -> None:
    _, table, problem = cliff
    solution = mh.solve(problem, KNOWN)
    found = mh.simulate_study(solution, demonstrations=table, discounts={"bo": 0.8}, decisions=[], studies=2)
    assert found.sizes[0].truth[0] == pytest.approx([solution.discounts[0], 0.8, solution.discounts[2]])


@pytest.mark.slow
def test_effects_of_groups_are_recovered(space) -> None:
    task, persons, problem = space
    solution = mh.solve(problem, mh.Population("~ group", persons.frame, known_reward=task.reward, nodes=5))
    found = mh.simulate_study(solution, None, persons.demonstrations, effects=[0.0, 1.0], decisions=[], people=[], studies=2)
    assert found.term == "group[T.training]"
    assert [(size.people, size.effect) for size in found.sizes] == [(12, 1.0), (12, 0.0)]
    with_effect, without = (size.truth for size in found.sizes)
    assert (with_effect[:, ::2] == without[:, ::2]).all()
    assert (with_effect[:, 1::2] > without[:, 1::2]).all()
    assert all(np.isfinite([size.effect_coverage, size.power]).all() for size in found.sizes)


@pytest.mark.slow
def test_persons_may_be_numbered_with_decimals(space) -> None:
    task, persons, problem = space
    numbered = persons.frame.assign(expert=np.arange(1.0, 13.0))
    renamed = problem.with_experts(replace(expert, name=str(k + 1)) for k, expert in enumerate(problem.experts))
    solution = mh.solve(renamed, mh.Population("~ group", numbered, known_reward=task.reward, nodes=5))
    found = mh.simulate_study(solution, effects=[0.5], decisions=[], people=[], studies=2)
    assert found.sizes[0].unanswered == 0


def test_bad_requests_are_refused(cliff, space) -> None:
    _, table, problem = cliff
    task, persons, people = space
    solution = mh.solve(problem, KNOWN)
    cases = [
        (lambda: mh.simulate_study(solution, discounts={"dan": 0.5}), "must name experts among"),
        (lambda: mh.simulate_study(solution, discounts={"bo": 1.7}), r"discount of bo must be in \[0, 1\], got 1\.7"),
        (lambda: mh.simulate_study(solution, effects=[np.nan]), "effects must be finite"),
        (lambda: mh.simulate_study(solution, effects=[0.5]), "effects need a Population"),
        (
            lambda: mh.simulate_study(problem, KNOWN, decisions=[100, 0]),
            "decisions must be a whole number of at least 1, got 0",
        ),
        (lambda: mh.simulate_study(solution, people=[10]), "numbers of people need a Population"),
        (lambda: mh.simulate_study(solution, studies=1), "studies must be a whole number of at least 2"),
        (lambda: mh.simulate_study(solution, demonstrations=[table, table]), "tables the problem was made of"),
    ]
    for ask, said in cases:
        with pytest.raises(ValueError, match=said):
            ask()
    two = mh.Population("~ group + age", persons.frame, known_reward=task.reward)
    with pytest.raises(ValueError, match="term must say which effect"):
        mh.simulate_study(people, two)
    with pytest.raises(ValueError, match="people must be at least 5, as the formula has 3 terms, got 4"):
        mh.simulate_study(people, two, term="age", people=[12, 4])


def run(folder, *more: object):
    arguments = [folder / "decisions.csv", "--transitions", folder / "mdp.npz", "--known-reward", folder / "reward.csv", *more]
    return CliRunner().invoke(app, ["recover", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cliff):
    folder = tmp_path_factory.mktemp("recover")
    domain, table, _ = cliff
    table.to_csv(folder / "decisions.csv")
    domain.mdp.to_npz(folder / "mdp.npz")
    pd.DataFrame({"state": domain.mdp.state_names, "reward": domain.reward}).to_csv(folder / "reward.csv", index=False)
    return folder


@pytest.mark.slow
def test_the_command_writes_numbers_and_a_page(folder, tmp_path, golden) -> None:
    result = run(folder, "--temperature", 1, "--decisions", 2000, "--studies", 2, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES["recover"])
    content = json.loads((tmp_path / "out" / "recover.json").read_text())
    assert [size["studies"] for size in content["sizes"]] == [2, 2]
    assert content["options"]["temperature"] == "1"
    page = (tmp_path / "out" / "recover.html").read_text()
    assert content["summary"] in page
    golden(page)
    assert content["summary"].split(":")[0] in result.output.replace("\n", " ")


def test_a_fit_shows_the_recovery_it_is_given(folder, recovered, tmp_path) -> None:
    recovered.to_json(tmp_path / "recover.json")
    files = [folder / "decisions.csv", "--transitions", folder / "mdp.npz", "--known-reward", folder / "reward.csv", "--quick"]
    arguments = ["fit", *files, "--recovered", tmp_path / "recover.json", "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert recovered.sentences() in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["recovery"]["summary"] == recovered.sentences()
    assert recovered.sentences() in " ".join(result.output.split())


@pytest.mark.slow
def test_a_study_of_more_than_two_thousand_people_has_a_solver_and_a_design() -> None:
    mdp, names = three_steps(), [f"p{i}" for i in range(2100)]
    policies = [mh.soft_plan(mdp, 3 * PAYS, gamma).policy for gamma in (0.2, 0.9)]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies * (len(names) // 2), 2, names=names))
    people = pd.DataFrame({"expert": names, "group": ["a", "a", "b", "b"] * (len(names) // 4)})
    solution = mh.solve(problem, mh.Population("~ group", people, known_reward=3 * PAYS, nodes=5))
    assert len(solution.solver_used().persons) == len(names)
    assert mh.design(None, solution, draws=1).persons == len(names)


def test_the_command_refuses_bad_requests_in_one_sentence(folder, tmp_path) -> None:
    for options, said in (
        (["--effect", 0.5], "--effect must come with --formula"),
        (["--people", 9], "--people must come with --formula"),
        (["--studies", 1], "studies must be a whole number"),
        (["--formula", "~ 1", "--temperature", 1], "--temperature must come without --formula"),
    ):
        result = run(folder, *options, "--out", tmp_path / "out")
        assert result.exit_code == 2
        assert said in result.stderr
        assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def twice():
    """Eight people who play without noise and with noise, which lowers everybody's logit by 2; and how it is fitted."""
    task = mh.domains.space_adventure(mini_blocks=24)
    people = task.persons(8, seed=1)
    noisy = task.persons(8, seed=2, discounts=expit(logit(people.discounts) - 2.0), temperatures=people.temperatures)
    frames = {"low": people.demonstrations.to_frame(), "high": noisy.demonstrations.to_frame()}
    both = pd.concat([frame.assign(noise=noise) for noise, frame in frames.items()])
    both["episode"] = both["episode"] + " " + both["noise"]
    table = mh.Demonstrations.from_frame(both, conditions=["noise"])
    return task, table, mh.Population("~ noise", known_reward=task.reward, reference={"noise": "low"})


def test_a_study_within_persons_is_simulated_cell_by_cell(twice) -> None:
    """Everybody decides under every condition, as often as in the study and from where its episodes began."""
    task, table, solver = twice
    problem = mh.Problem(task.mdp, table)
    covariates = solver.covariates(problem)
    design = design_under(problem, table, covariates)
    assert design.persons == problem.names
    assert design.conditions["noise"].tolist() == ["low", "high"] * 8
    assert design.decisions == pytest.approx(len(table) / 8)
    members = design.draw_people(11, np.random.default_rng(0))
    cells, whose = design.cells_of(members)
    apart, patterns = design.of_cells(cells)
    policies = policies_of(apart, task.reward, np.zeros((cells.size, 0)), np.full(cells.size, 0.8), np.full(cells.size, 2.0))
    study = design.together(design.simulate(apart, patterns, policies, 1.0, 3), members, cells, whose)
    assert study.n_experts == 11
    assert [str(name) for name in study.conditions["noise"]] == ["low", "high"] * 11
    decided = np.concatenate([expert.conditions.counts.sum(axis=1) for expert in study.experts])
    assert (decided == len(table) / 16).all()
    assert solver.covariates(study).conditions == ("noise",)


def test_persons_drawn_for_a_study_within_persons_vary_as_the_population_does(twice) -> None:
    """An effect that is asked for is the difference between the conditions of each person."""
    task, table, solver = twice
    problem = mh.Problem(task.mdp, table)
    population = mh.solve(problem, solver).evidence["population"]
    truth = Truth(np.zeros((8, 0)), np.zeros(8), np.zeros(8), "noise[T.high]", solver.covariates(problem), population)
    members = np.tile(np.arange(8), 500)
    design = design_under(problem, None, solver.covariates(problem))
    cells, whose = design.cells_of(members)
    under, _, mean = truth.draw(members, -0.5, np.random.default_rng(0), cells, whose)
    low, high = logit(under / population.largest_discount).reshape(-1, 2).T
    np.testing.assert_allclose(high - low, -0.5, atol=1e-9)
    np.testing.assert_allclose(logit(mean / population.largest_discount), (high + low) / 2, atol=1e-9)
    assert low.std() == pytest.approx(population.spread["discount"]["estimate"], rel=0.05)
    assert low.mean() == pytest.approx(population.discount["Intercept"]["estimate"], abs=0.05)


def test_power_within_persons(twice, tmp_path, monkeypatch) -> None:
    """In Python and on the command line; a large effect is seen, and a schedule cannot be simulated under conditions."""
    task, table, solver = twice
    found = mh.simulate_study(mh.Problem(task.mdp, table), solver, effects=[-3.0], people=[], decisions=[], studies=2)
    assert found.term == "noise[T.high]"
    assert found.sizes[0].effect_bias == pytest.approx(0.0, abs=1.5)
    assert "effect of -3.00 of noise[T.high]" in found.headline()
    monkeypatch.chdir(tmp_path)
    table.to_csv("both.csv")
    task.mdp.to_npz("task.npz")
    states = np.repeat(task.mdp.state_names, task.mdp.n_actions)
    points = {"state": states, "action": np.tile(task.mdp.action_names, task.mdp.n_states), "points": task.reward.ravel()}
    pd.DataFrame(points).to_csv("points.csv", index=False)
    typed = ["recover", "both.csv", "--transitions", "task.npz", "--known-reward", "points.csv", "--formula", "~ noise"]
    typed += ["--reference", "noise=low", "--effect", "-3", "--people", "8", "--decisions", "120", "--studies", "2"]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 0, result.output
    assert found.headline() in " ".join(result.stdout.split())


def test_a_study_within_persons_is_planned_and_simulated(twice, tmp_path, monkeypatch) -> None:
    """The best starts for the effect of a condition, from memory and from a saved pilot; its schedule is simulated."""
    task, table, solver = twice
    problem = mh.Problem(task.mdp, table)
    pilot = mh.solve(problem, solver)
    plan = mh.design(None, pilot, difference=1.0, draws=1, persons=20)
    larger = mh.design(None, pilot, difference=1.0, draws=1, persons=80)
    assert plan.targets == ("noise[T.high]",)
    assert WITHIN in plan.remarks
    assert larger.expected_standard_errors == pytest.approx(plan.expected_standard_errors / 2)
    assert plan.expected_standard_errors[0] < plan.uniform_standard_errors[0]
    effect = pilot.evidence["population"].discount["noise[T.high]"]
    own = mh.design(None, pilot, draws=1)  # the uniform study is the pilot again
    assert own.uniform_standard_errors[0] == pytest.approx(effect["standard_error"], rel=0.5)
    monkeypatch.chdir(tmp_path)
    found = mh.analyse(table, task.mdp, known_reward=task.reward, population=solver, quick=True)
    write_fit(tmp_path / "pilot", found, {})
    again = mh.design(None, mh.load(tmp_path / "pilot"), difference=1.0, draws=1, persons=20)
    assert again.times.tolist() == plan.times.tolist()
    assert again.expected_standard_errors == pytest.approx(plan.expected_standard_errors, rel=1e-3)
    planned = ["design", "--pilot", "pilot", "--persons", "12", "--draws", "1", "--out", "study"]
    said = CliRunner().invoke(app, planned)
    assert said.exit_code == 0, said.output
    command = next(line for line in said.stdout.splitlines() if line.startswith("Check it by simulation: "))
    result = CliRunner().invoke(app, [*shlex.split(command)[5:], "--studies", "2", "--effect", "2"])
    assert result.exit_code == 0, result.output
    assert "12 participants with 120 decisions each" in " ".join(result.stdout.split())


def test_candidates_of_a_person_are_shared_out_among_the_conditions(twice) -> None:
    task, table, solver = twice
    problem = mh.Problem(task.mdp, table)
    covariates = solver.covariates(problem)
    states = task.mdp.state_names
    schedule = Schedule.read(pd.DataFrame({"state": states[:2], "length": 1, "times": [3, 4]}), task.mdp)
    parameters = np.zeros((16, 0)), np.full(16, 0.5), np.ones(16)
    cells = covariates.owner, covariates.frame[["noise"]]
    study = schedule.study(covariates.compared(problem), task.reward, *parameters, cells)
    assert [np.bincount(starts).tolist() for starts in study.starts[:2]] == [[2, 2], [1, 2]]
    assert study.decisions == pytest.approx(7.0)
