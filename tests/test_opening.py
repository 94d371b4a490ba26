"""What terminal, report and JSON open with: the answer to what was asked, for every shape of question."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import MISSING, browser
from conditions import under_conditions
from scipy.special import expit, logit
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.horizon import Horizon
from multihorizon.numerics.distributions import t_ppf
from multihorizon.population.findings import PopulationEvidence
from multihorizon.questions.differences import difference_words, named_group, population_words, round_unit
from multihorizon.questions.fitted import not_to_be_used
from multihorizon.questions.people import predicted_by_group
from multihorizon.report.files import result_of, write_fit
from multihorizon.report.fit_page import fit_page
from multihorizon.report.people import _line_of_group, _typical

TASK = mh.domains.space_adventure(mini_blocks=24)
PEOPLE = TASK.persons(16, seed=1, temperatures=2.0, discounts=np.where(np.arange(16) % 2, 0.9, 0.5))
EVIL = '<script>alert(1)</script> & "young" $x$'


@pytest.fixture(scope="module")
def solution() -> mh.Solution:
    frame = PEOPLE.frame.assign(cohort=np.where(np.arange(16) % 2, "young", "old"))
    return mh.solve(mh.Problem(TASK.mdp, PEOPLE.demonstrations), mh.Population("~ cohort", frame, known_reward=TASK.reward))


@pytest.fixture(scope="module")
def found(solution) -> Any:
    analysed = mh.analyse(PEOPLE.demonstrations, [TASK.mdp], known_reward=lambda mdp: TASK.reward, quick=True)
    return replace(analysed, population=solution)


def pair(column: str, levels: list[str], typical: list[float], p: float, number: bool = False) -> dict[str, Any]:
    """A contrast between two levels, as `Population` writes it: its interval ends at 0 where p is .05."""
    estimate = float(np.diff(logit(typical) if max(typical) < 1 else np.log(typical))[0])  # discounts, or temperatures
    error = abs(estimate) / max(-np.log10(p) * 1.5, 1e-9)
    ends = [estimate - 1.96 * error, estimate + 1.96 * error]
    said = {"column": column, "number": number, "levels": levels, "typical": typical, "estimate": estimate}
    return {**said, "standard_error": error, "interval": ends, "p": p, "adjusted": p, "method": "standard error"}


def told(
    solution: mh.Solution, discount: list[dict[str, Any]], temperature: list[dict[str, Any]] | None = None, p: float = 0.001
):
    """The sentences of a solution as if these were its contrasts; `p` is of all terms of a column of several groups."""
    terms = {row["column"]: {"estimate": row["estimate"], "interval": row["interval"], "p": row["p"]} for row in discount}
    several = {row["column"] for row in discount if sum(r["column"] == row["column"] for r in discount) > 1}
    factors = {name: {"F": 5.0, "degrees": [2, 20], "p": p, "terms": []} for name in several}
    temperature = [] if temperature is None else temperature
    population = replace(
        solution.evidence["population"],
        discount=terms,
        temperature={row["column"]: terms.get(row["column"], {"p": row["p"]}) | {"p": row["p"]} for row in temperature},
        factors={"discount": factors, "temperature": {}},
        contrasts={"discount": discount, "temperature": temperature},
        columns_of={row["column"]: [row["column"]] for row in [*discount, *temperature]},
    )
    return difference_words(replace(solution, evidence=replace(solution.evidence, population=population)), Horizon())


def test_two_groups_are_named_and_their_difference_has_an_interval(solution, golden) -> None:
    (said,) = told(
        solution, [pair("group", ["old", "young"], [0.58, 0.85], 0.008)], [pair("group", ["old", "young"], [3.0, 2.0], 0.01)]
    )
    golden(said)
    # the same people the other way round
    (turned,) = told(solution, [pair("group", ["young", "old"], [0.85, 0.58], 0.008)])
    assert turned.startswith(said.split("; it also")[0])


def test_the_interval_of_a_difference_holds_zero_where_the_test_finds_nothing(solution, golden) -> None:
    (said,) = told(solution, [pair("group", ["old", "young"], [0.62, 0.66], 0.4)])
    golden(said)
    one = pair("group", ["old", "young"], [0.62, 0.66], 0.4)
    d, m = one["interval"][1], float(np.mean(logit([0.62, 0.66])))
    largest = solution.evidence["population"].largest_discount
    assert largest == 1
    assert f"up to {expit(m + d / 2) - expit(m - d / 2):.2f} would" in said


def test_several_groups_are_compared_by_holm(solution, golden) -> None:
    far, near = 0.001, 0.6
    rows = [
        pair("site", ["Basel", "Oslo"], [0.5, 0.85], far),
        pair("site", ["Basel", "Turin"], [0.5, 0.88], far),
        pair("site", ["Oslo", "Turin"], [0.85, 0.88], near),
    ]
    assert told(solution, rows) == [
        "The Turin and Oslo groups look further ahead than the Basel group: typical discounts 0.88, 0.85 and 0.50, "
        "p = 0.001 by Holm."
    ]
    rows[1]["adjusted"] = 0.2
    assert told(solution, rows) == [
        "Discounts differ with site (p = 0.001): typical discounts are 0.88 for Turin, 0.85 for Oslo and 0.50 for Basel; after "
        "Holm's correction Oslo and Basel (p = 0.001) differ."
    ]
    rows[0]["adjusted"] = 0.3
    golden(told(solution, rows)[0])
    (said,) = told(solution, rows, p=0.3)
    golden(said)


def test_a_number_has_a_readable_unit(solution, golden) -> None:
    (said,) = told(solution, [pair("age", ["30", "65"], [0.85, 0.62], 0.0001, number=True)])
    change = np.diff(logit([0.85, 0.62]))[0] * 10 / 35
    middle = np.mean(logit([0.85, 0.62]))
    fall = expit(middle - change / 2) - expit(middle + change / 2)
    assert said == (
        f"With higher age people look less far ahead: for each 10 of age the typical discount falls by about {fall:.2f}; it is "
        "0.85 at 30 and 0.62 at 65, or 6.7 and 2.6 steps, p < 0.001."
    )
    (said,) = told(solution, [pair("age", ["30", "65"], [0.62, 0.85], 0.0001, number=True)])
    golden(said)
    (said,) = told(solution, [pair("age", ["30", "65"], [0.7, 0.66], 0.4, number=True)])
    golden(said)
    for distance in (0.0021, 0.3, 1.0, 8.0, 35.0, 12_345.0):
        unit = round_unit(distance)
        assert 2 <= distance / unit <= 10
        assert f"{unit:e}"[0] in "15"


def test_conditions_are_those_of_the_same_people_and_clear_answers_come_first(solution, golden) -> None:
    said = difference_words(under_conditions(solution), Horizon(3))
    golden(*said)
    rows = [pair("sex", ["f", "m"], [0.62, 0.66], 0.4), pair("group", ["old", "young"], [0.58, 0.85], 0.008)]
    said = told(solution, rows, [pair("sex", ["f", "m"], [2.0, 3.0], 0.01)])
    golden(*said)


def test_groups_without_a_name_of_their_own_are_named_with_their_column() -> None:
    assert named_group("cohort", "young") == "the young group"
    assert named_group("arm", "control group") == "the control group"
    assert named_group("ill", "yes") == "the group with ill = yes"
    assert named_group("site", "1", "2") == "the groups with site = 1 and 2"
    assert len(named_group("site", "x" * 500)) < 80


def test_without_covariates_it_is_the_typical_person(solution, golden) -> None:
    population = solution.evidence["population"]
    one = {"everyone": population.predictions["cohort = old"]}
    alone = replace(
        population, predictions=one, contrasts={"discount": [], "temperature": []}, columns_of={}, discount={}, temperature={}
    )
    (said,) = difference_words(replace(solution, evidence=replace(solution.evidence, population=alone)), Horizon(3))
    gamma = one["everyone"]["typical_discount"]
    assert f"A typical person looks {1 + gamma + gamma**2:.1f} steps ahead: a discount of {gamma:.2f} (" in said
    golden(said)


def test_a_caution_about_intervals_stands_with_the_answer(solution) -> None:
    cautions = [
        "The spread of discounts is hardly determined.",
        "People do not all change alike, so the intervals are too narrow.",
    ]
    population = replace(solution.evidence["population"], cautions=cautions)
    doubted = replace(solution, evidence=replace(solution.evidence, population=population))
    assert difference_words(doubted, Horizon(3)) == [*difference_words(solution, Horizon(3)), cautions[1]]
    assert cautions[0] in population_words(doubted, Horizon(3))
    assert cautions[1] not in population_words(doubted, Horizon(3))


def test_a_population_that_was_not_estimated_gives_no_answer(solution) -> None:
    broken = replace(solution, status=mh.Status.NOT_CONVERGED, message="The search ended early.")
    assert difference_words(broken, Horizon(3)) == ["The population could not be estimated. The search ended early."]


def test_one_sentence_stands_on_the_page_and_in_the_json(found, tmp_path, golden) -> None:
    said = found.answer
    golden(said)
    page = fit_page(found, {}).render()
    assert page.index(f'<p class="answer">{said.replace("<", "&lt;")}</p>') < page.index("<figure") < page.index('class="cards"')
    assert page.index("<figure") < page.index("<table")
    assert result_of(found, {})["answer"] == said
    assert said in found.headline
    write_fit(tmp_path, found, {})
    assert json.loads((tmp_path / "result.json").read_text())["answer"] == said
    size = (tmp_path / "report.html").stat().st_size
    assert size < 2_000_000


def test_what_forbids_to_use_the_numbers_comes_first(found, golden) -> None:
    solution = replace(found.solution, status=mh.Status.NOT_CONVERGED)
    broken = replace(found, solution=solution, withheld=not_to_be_used(solution), population=None)
    page = fit_page(broken, {}).render()
    golden(broken.answer, page)
    assert '<p class="answer">' not in page
    assert page.count("Do not use these numbers.") == 1
    assert page.index("Do not use these numbers.") < page.index('<p class="lead">')
    both = replace(broken, population=found.population)
    golden(both.answer)


def test_experts_are_named_with_discounts_and_steps(found, golden) -> None:
    few = mh.analyse(
        mh.Demonstrations.simulate(mh.domains.cliff().mdp, mh.domains.cliff().soft_experts(), 300, names=["Ann", "Bo", EVIL]),
        [mh.domains.cliff().mdp],
        quick=True,
    )
    golden(few.answer, *(verdict.answer for verdict in few.verdicts))
    page = fit_page(few, {}).render()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    many = replace(found, population=None)
    golden(many.answer)


def test_labels_of_groups_are_text_on_the_page(found) -> None:
    population = found.population.evidence["population"]
    rows = [
        {**row, "levels": [EVIL if level == "young" else level for level in row["levels"]]}
        for row in population.contrasts["discount"]
    ]
    groups = np.array([name.replace("young", EVIL) for name in population.groups], dtype=object)
    named = replace(
        population,
        contrasts={**population.contrasts, "discount": rows},
        groups=groups,
        predictions={name.replace("young", EVIL): value for name, value in population.predictions.items()},
    )
    evil = replace(found, population=replace(found.population, evidence=replace(found.population.evidence, population=named)))
    page = fit_page(evil, {}).render()
    assert "<script>alert" not in page
    assert "The &lt;script&gt;alert(1)&lt;/script&gt; &amp; &#34;young&#34; $x$ group looks further ahead" in page


def test_what_is_predicted_of_groups_holds_what_was_taken(solution, found) -> None:
    groups = predicted_by_group(solution)
    assert [group.name for group in groups] == ["cohort = old", "cohort = young"]
    for group in groups:
        assert group.persons == 8
        assert all(row.low <= row.predicted <= row.high for row in group.rows)
        inside = [row.low <= row.taken <= row.high for row in group.rows]
        assert np.mean(inside) >= 0.8
        decisions = sum(row.choices for row in group.rows) / 2  # two actions in each state
        assert decisions == pytest.approx(8 * found.decisions[0], abs=20)
        assert sum(row.taken * row.choices for row in group.rows) == pytest.approx(decisions, abs=20)
    assert result_of(found, {})["population"]["predicted_by_group"][0]["name"] == "cohort = old"


def test_what_to_write_names_the_formula_and_the_software(found, golden) -> None:
    page = fit_page(found, {}).render()
    golden(page)
    cited = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    for field in ("title", "year", "doi", "journal"):  # the paper's come last
        value = re.findall(rf"^\s*-?\s*{field}: \"?([^\"\n]*)", cited, re.M)[-1]
        assert f"{{{value}}}" in page


@pytest.mark.slow
def test_the_demo_shows_rewards_as_the_report_does(tmp_path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    contrasts = json.loads((tmp_path / "demo" / "result.json").read_text())["reward_contrasts"]
    assert f"snack {contrasts['A5']['estimate']:.2f} (true " in " ".join(result.output.split())


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is a browser")
def test_a_page_opens_without_errors_and_its_tables_can_be_copied(found, tmp_path) -> None:
    fit_page(found, {}).write(tmp_path / "page.html")
    with browser() as tab:
        tab.open(tmp_path / "page.html")
        assert tab.errors == []
        table = "all('table').find((t) => t.textContent.includes('cohort[T.young]'))"
        rows = tab.run(f"asCsv(shownCells({table}))").splitlines()
        assert rows[0] == "term,estimate,95% CI or test,p"
        assert rows[1].startswith("Intercept,")
        latex = tab.run(f"asLatex({table}, shownCells({table}))")
        assert r"\begin{tabular}{lrrr}" in latex
        assert r"95\% CI or test" in latex
        assert r"\toprule" in latex
        assert tab.run("asCsv([['1,234', 'a,\"b\"', '−0.5', '–']])") == '1234,"a,""b""",-0.5,\n'
        safe = "asLatex(all('table')[0], [['h'], ['a_b & 50 % <$x$> \\\\\\\\ ^~#{}']])"
        assert r"a\_b \& 50 \% $<$\$x\$$>$ \textbackslash{}" in tab.run(safe)
        tab.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        tab.click(".scroll + .copy button")
        assert "," in tab.run("window.copied")
        for width, scheme in ((1280, "light"), (400, "dark")):
            tab.media(scheme)
            tab.open(tmp_path / "page.html", width)
            assert tab.run("document.documentElement.scrollWidth") <= width


def test_the_mean_of_a_group_and_the_line_over_a_number_have_an_interval(solution) -> None:
    """A band over a number is that of the design's rows; a formula whose rows are not plain has no line."""
    population = PopulationEvidence.of(solution).population
    drawn = _typical(population, "cohort = young", "discount", 0.0, 0.6)
    group = population.predictions["cohort = young"]
    assert [x for x, _ in drawn[1].points] == pytest.approx(
        logit(np.array(group["typical_interval"]) / population.largest_discount)
    )
    assert f"typical γ {group['typical_discount']:.3f}, 95% CI" in drawn[0].tip
    assert [line.kind for line in _typical(population, "cohort = young", "temperature", 0.0, 0.6)] == ["typical", "typical"]
    ages = np.linspace(20, 60, 16)
    made = replace(
        population,
        discount={"Intercept": {"estimate": -1.0}, "cohort[T.young]": {"estimate": 0.5}, "age": {"estimate": 0.02}},
        discount_covariance=np.diag([0.04, 0.01, 0.0001]).tolist(),
        covariates={"age": ages},
        predictions={
            f"cohort = {name}, age = 40": {"typical_discount": population.largest_discount * float(expit(mean))}
            for name, mean in (("old", -0.2), ("young", 0.3))
        },
    )
    band, line = _line_of_group(made, "age", "cohort = young, age = 40", np.array([20.0, 60.0]), 1)
    assert line.points == [pytest.approx((20.0, -0.1)), pytest.approx((60.0, 0.7))]
    half = t_ppf(0.975, made.degrees) * np.sqrt(0.04 + 0.01 + 0.0001 * 400)
    assert band.points[0] == pytest.approx((20.0, -0.1 + half))
    odd = replace(
        made, discount={**made.discount, "age:cohort[T.young]": {"estimate": 3.0}}, discount_covariance=np.eye(4).tolist()
    )
    assert len(_line_of_group(odd, "age", "cohort = old, age = 40", ages, 0)) == 2
    other = {"cohort = old, age = 40": {"typical_discount": 0.9}}
    assert _line_of_group(replace(odd, predictions=other), "age", "cohort = old, age = 40", ages, 0) == []
