"""The same people under several conditions on the page, in the files and in the terminal."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from conditions import under_conditions
from scipy.special import expit
from tiny import tiny_solutions
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import Analysis, of_people
from multihorizon.cli import app
from multihorizon.cli.fit import _show_population
from multihorizon.horizon import Horizon
from multihorizon.report.files import write_fit
from multihorizon.report.fit_page import fit_page
from multihorizon.report.people import compared_with, condition_figures, condition_rows, conditions_section
from multihorizon.report.plots import ByCondition, by_condition, plot_conditions


@pytest.fixture(scope="module")
def solution() -> mh.Solution:
    return under_conditions(tiny_solutions()["population"].solution)


@pytest.fixture(scope="module")
def found(solution) -> mh.analysis.Analysis:
    """An analysis of the same decisions, with that population."""
    alone = mh.analyse([tiny_solutions()["lists"].table], [solution.require_problem().mdp], quick=True)
    return replace(alone, population=solution)


def crowd_of(solution: mh.Solution) -> Analysis:
    found = of_people(solution, solution.require_problem(), 3, [])
    assert not found.withheld
    return found


def test_persons_are_joined_from_level_to_level(solution) -> None:
    population = solution.evidence["population"]
    by = by_condition(population, "noise")
    assert by.levels == ["low", "high"]  # as they are compared, not as in the alphabet
    cells = pd.DataFrame(population.cells)
    mean = cells.groupby(["expert", "noise"])["logit_discount"].mean().unstack()[by.levels].loc[by.persons]
    np.testing.assert_allclose(by.logits, mean)
    assert np.isnan(by.logits[-1]).tolist() == [False, True]
    pair = population.contrasts["discount"][0]
    np.testing.assert_allclose(population.largest_discount * expit(by.typical), pair["typical"])
    block = by_condition(population, "block")
    assert block.is_number
    np.testing.assert_allclose(block.places, np.arange(1, 7))
    np.testing.assert_allclose(block.typical, np.nanmean(block.logits, axis=0))


def test_numbers_with_many_values_are_cut_and_an_order_of_rows_does_not_matter(solution) -> None:
    population, rng = solution.evidence["population"], np.random.default_rng(0)
    size = population.cells["expert"].size
    cells = {**population.cells, "block": rng.random(size)}
    by = by_condition(replace(population, cells=cells), "block")
    assert len(by.levels) <= 30
    assert (np.diff(by.places) > 0).all()
    np.testing.assert_allclose(np.bincount(by.level, cells["block"]) / np.bincount(by.level), by.places)
    order = rng.permutation(size)
    again = by_condition(replace(population, cells={name: values[order] for name, values in cells.items()}), "block")
    np.testing.assert_allclose(again.places, by.places)
    np.testing.assert_allclose(again.logits[np.argsort(again.persons)], by.logits[np.argsort(by.persons)])


def test_a_table_has_a_row_for_each_condition(solution) -> None:
    population = solution.evidence["population"]
    low, high = condition_rows(population)
    assert (low.name, low.persons) == ("noise = low", 3)
    assert (high.name, high.decisions) == ("noise = high", 2 * 6 * 20)
    assert high.typical == population.predictions[f"{high.name}, block = 3.5"]["typical_discount"]
    turned = replace(population, references={"noise": "high"})
    assert [row.name for row in condition_rows(turned)] == ["noise = high", "noise = low"]
    here = population.cells["noise"] == "high"
    assert high.reliability == pytest.approx(population.cells["discount_reliability"][here].mean())


def test_the_page_shows_persons_conditions_and_whose_a_horizon_is(found, golden) -> None:
    page = fit_page(found, {}).render()
    assert page.index("Groups and people") < page.index("The same people under each condition") < page.index("Planning horizons")
    golden(page)
    drawn = ("62%: the person, whatever the condition", "25%: the situation, which changes everyone alike")
    drawn += ("the effect of noise[T.high]", "the band holds 80% of all people at each block.")
    assert all(said in page for said in drawn)
    assert page.count('class="mark person" data-experts="0"') == 2 * 2  # two conditions, in discounts and in steps


def test_two_levels_are_set_against_each_other_and_colours_are_those_of_groups(solution) -> None:
    population = solution.evidence["population"]
    figures = condition_figures(population, Horizon(), {})
    against = [figure for figure in figures if figure.caption.startswith("Each person's shrunken discount under two levels")]
    by = by_condition(population, "noise")
    (panel, _) = against[0].panels
    both = np.isfinite(by.logits).all(axis=1)
    np.testing.assert_allclose(sorted(mark.x for mark in panel.marks), sorted(by.logits[both, 0]))
    assert panel.x.label.startswith(f"noise = {by.levels[0]}")
    areas = figures[0].panels[0]
    assert len(areas.y.ticks) == len(population.predictions)  # each condition is named on the axis
    assert len({line.colour for line in areas.lines if line.kind == "area"}) == len(set(population.groups))


def test_files_have_a_row_for_each_person_and_condition(found, tmp_path) -> None:
    files = write_fit(tmp_path / "few", found, {})
    assert files == (
        "result.json",
        "result.npz",
        "people.csv",
        "conditions.csv",
        "reward.csv",
        "solution.json",
        "task.npz",
        "report.html",
    )
    rows = pd.read_csv(tmp_path / "few" / "conditions.csv", dtype={"expert": str})
    pd.testing.assert_frame_equal(rows, found.conditions_frame(), check_dtype=False)
    cells = found.population.evidence["population"].cells
    assert rows["condition_noise"].tolist() == cells["noise"].tolist()
    np.testing.assert_allclose(rows["shrunken_discount"], cells["discount"])
    content = json.loads((tmp_path / "few" / "result.json").read_text())["population"]
    assert content["cells"]["noise"] == cells["noise"].tolist()
    assert content["variance"]["discount"]["condition"] == 0.25
    without = replace(found, population=tiny_solutions()["population"].solution)
    assert "conditions.csv" not in write_fit(tmp_path / "few", without, {})
    assert not (tmp_path / "few" / "conditions.csv").exists()
    assert without.conditions_frame() is None


def test_files_of_a_crowd_hold_the_same(solution, tmp_path) -> None:
    found = crowd_of(solution)
    assert "conditions.parquet" in write_fit(tmp_path, found, {})
    rows = pd.read_parquet(tmp_path / "conditions.parquet")
    pd.testing.assert_frame_equal(rows, found.conditions_frame(), check_dtype=False)
    assert json.loads((tmp_path / "result.json").read_text())["population"]["cells"] == "conditions.parquet"


def test_a_saved_solution_keeps_its_conditions_and_an_old_one_has_none(solution, tmp_path) -> None:
    solution.to_json(tmp_path / "new.json")
    again = mh.Solution.from_json(tmp_path / "new.json").evidence["population"]
    pd.testing.assert_frame_equal(again.conditions_frame(), solution.evidence["population"].conditions_frame())
    tiny_solutions()["population"].solution.to_json(tmp_path / "old.json")
    content = json.loads((tmp_path / "old.json").read_text())
    assert "cells" not in content["evidence"]["population"]
    old = mh.Solution.from_json(tmp_path / "old.json").evidence["population"]
    assert old.cells is None
    assert old.conditions == ()
    assert conditions_section(old, Horizon(3), "conditions.csv") == []
    assert condition_figures(old, Horizon(3), {}) == []


def test_of_very_many_persons_a_sample_is_drawn_and_the_page_stays_small() -> None:
    population = under_conditions(tiny_solutions()["population"].solution, persons=20_000).evidence["population"]
    (section,) = conditions_section(population, Horizon(3), "conditions.parquet")
    blocks = [*condition_figures(population, Horizon(3), {}), *section.blocks]
    text = "".join(block if isinstance(block, str) else block.__html__() for block in blocks)
    assert len(text) < 500_000
    assert text.count('class="person"') <= 2 * 2 * ByCondition.sample
    assert f"Drawn are {ByCondition.sample} of 20,000 people, evenly from the shortest horizon to the longest." in text


def test_a_figure_joins_the_values_of_each_person(solution) -> None:
    axes = plot_conditions(solution)
    assert axes.get_xlabel() == "noise"
    assert len(axes.lines) == 3 + 1
    assert [label.get_text() for label in axes.get_xticklabels()] == ["low", "high"]
    assert len(plot_conditions(solution, "block").lines) == 3 + 1
    with pytest.raises(ValueError, match="condition must be one of noise, block, got group"):
        plot_conditions(solution, "group")
    with pytest.raises(ValueError, match="with a condition in its formula, got one without"):
        plot_conditions(tiny_solutions()["population"].solution)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_a_reader_finds_persons_by_their_lines(tab, found, tmp_path, width) -> None:
    population = found.population.evidence["population"]
    hostile = {"low": "<img src=x onerror=window.stolen=1>", "high": "$\\alpha$ \u202eabc"}
    cells = {**population.cells, "noise": np.array([hostile[name] for name in population.cells["noise"]], dtype=object)}
    solution = replace(found.population, evidence=replace(found.population.evidence, population=replace(population, cells=cells)))
    fit_page(replace(found, population=solution), {}).write(tmp_path / "report.html")
    tab.open(tmp_path / "report.html", width)
    assert tab.errors == []
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("window.stolen") is None
    tab.run("document.querySelector('.in-discount .mark.person').closest('svg').focus({preventScroll: true})")
    tab.press("Home")
    told = tab.run("document.querySelector('.tip').textContent")
    assert "noise = <img src=x onerror=window.stolen=1>: γ 0." in told
    assert "steps" in told
    lines = "[...document.querySelectorAll('.in-discount .mark.person')].filter((e) => e.checkVisibility()).length"
    before = tab.run(lines)
    tab.click(".chooser summary")
    tab.click(".chooser li:nth-child(1) input")
    assert tab.run(lines) < before


def test_the_terminal_has_a_table_of_conditions(solution, capsys, golden) -> None:
    _show_population(solution, Horizon(3))
    said = capsys.readouterr().out
    golden(said)


@pytest.mark.slow
def test_a_fit_from_the_command_line_shows_conditions(tmp_path, golden) -> None:
    task = mh.domains.space_adventure(mini_blocks=24)
    parts = []
    for seed, (noise, discount) in enumerate({"low": 0.9, "high": 0.5}.items()):
        rows = task.persons(8, seed=seed, discounts=np.full(8, discount), temperatures=2.0).demonstrations.to_frame()
        parts.append(rows.assign(noise=noise, episode=rows["episode"] + noise))
    pd.concat(parts).query("expert != '1' or noise == 'low'").to_csv(tmp_path / "decisions.csv", index=False)
    task.mdp.to_npz(tmp_path / "task.npz")
    points = pd.DataFrame(task.reward, index=task.mdp.state_names, columns=task.mdp.action_names).rename_axis("state")
    points.reset_index().melt("state", var_name="action", value_name="points").to_csv(tmp_path / "points.csv", index=False)
    given = [tmp_path / "decisions.csv", "--transitions", tmp_path / "task.npz", "--known-reward", tmp_path / "points.csv"]
    asked = ["--formula", "~ noise", "--reference", "noise=low", "--quick", "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, ["fit", *map(str, [*given, *asked])])
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    golden(said)
    rows = pd.read_csv(tmp_path / "out" / "conditions.csv", dtype={"expert": str}).set_index(["expert", "condition_noise"])
    assert len(rows) == 15
    by_noise = rows["shrunken_discount"].groupby("condition_noise").mean()
    assert by_noise["low"] > 0.8 > 0.65 > by_noise["high"]
    assert ((rows["shrunken_low"] < rows["shrunken_discount"]) & (rows["shrunken_discount"] < rows["shrunken_high"])).all()
    found = json.loads((tmp_path / "out" / "result.json").read_text())["population"]
    assert sum(found["cells"]["decisions"]) == rows["decisions"].sum()
    page = (tmp_path / "out" / "report.html").read_text()
    golden(page)


def test_words_name_the_group_that_others_are_compared_with(solution) -> None:
    population = solution.evidence["population"]
    assert compared_with(population) == "compared with noise = low"
    assert (
        compared_with(replace(population, references={"noise": "low", "group": "a"})) == "compared with noise = low and group = a"
    )
    assert compared_with(replace(population, references=None)) == ""
