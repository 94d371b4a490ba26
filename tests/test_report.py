"""What a report tells: nothing that is not so, in one order, and in words that a reader can act on."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import escape
from itertools import pairwise
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon import analysis
from multihorizon.analysis import Analysis
from multihorizon.cli import app
from multihorizon.horizon import Horizon
from multihorizon.likelihood.intervals import reward_contrasts
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.questions import fitted
from multihorizon.questions.fitted import not_to_be_used, predicts_worse
from multihorizon.questions.horizons import discount_text, interval_text, steps_text
from multihorizon.questions.model_checks import FEWEST_DECISIONS, Extent
from multihorizon.report.charts import (
    Axis,
    Badge,
    Bar,
    Chart,
    Listing,
    Mark,
    Page,
    Panel,
    Section,
    ShadedPlane,
    TableBlock,
    asset,
    figure,
)
from multihorizon.report.files import result_of, write_fit
from multihorizon.report.fit_page import fit_page
from multihorizon.report.plots import new_axes
from multihorizon.words import Table

CLIFF = mh.domains.cliff()
LONG = "annabelle.featherstonehaugh-cholmondeley@example.org"


@pytest.fixture(scope="module")
def found() -> Analysis:
    names = [LONG, "王小明 🙂", "Cy"]
    return mh.analyse([mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 1000, names=names)], [CLIFF.mdp])


@pytest.fixture(scope="module")
def unfinished(found) -> Analysis:
    """The same fit, as if its climb had been broken off."""
    solution = replace(found.solution, status=mh.Status.NOT_CONVERGED)
    nothing = np.full_like(found.intervals, np.nan)
    return replace(
        found,
        solution=solution,
        withheld=not_to_be_used(solution, found.contrasts),
        intervals=nothing,
        shared=None,
        pairs=[],
    )


@pytest.mark.slow
def test_an_unfinished_fit_is_not_told_as_a_finding(unfinished):
    assert unfinished.headline.startswith("Do not use these numbers. The fit did not finish")
    assert [verdict.kind for verdict in unfinished.verdicts[:3]] == ["bad", "bad", "bad"]
    page = fit_page(unfinished, {}).render()
    assert page.index("Do not use these numbers") < page.index("How far do they look ahead?")
    content = result_of(unfinished, {})
    assert np.isnan(content["intervals"]).all()
    assert content["shared_discount_test"] is None
    assert content["pairwise_tests"] is None
    assert content["standard_errors"] is None
    assert np.isnan(list(content["reward"].values())).all()


@pytest.mark.slow
def test_analyse_gives_no_intervals_and_no_tests_where_the_fit_did_not_converge():
    class BrokenOff(mh.MaximumLikelihood):
        """A solver that never ends."""

        def solve(self, problem, seed=0, progress=None):
            return replace(super().solve(problem, seed), status=mh.Status.NOT_CONVERGED)

    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 300)
    found = mh.analyse([table], [CLIFF.mdp], solver=BrokenOff("pooled"))
    assert found.withheld
    assert np.isnan(found.intervals).all()
    assert found.shared is None
    assert not found.pairs


def test_a_reward_that_runs_away_is_no_finding(found):
    assert not_to_be_used(found.solution, found.contrasts) == ""
    errors = found.contrasts.standard_errors.copy()
    values = found.contrasts.values.copy()
    values[3], errors[3] = -2758.0, 1e4
    away = not_to_be_used(found.solution, replace(found.contrasts, values=values, standard_errors=errors))
    assert away.startswith("A reward diverges: it reaches 2,758")


def test_a_model_worse_than_a_simpler_one_is_told_from_one_that_loses_by_noise(found, golden):
    checks, K = found.checks, 3
    assert predicts_worse(checks, found.chance, 12) == ""
    ours, number = checks.held_out["this model"], checks.decisions.sum()
    little = replace(checks, held_out=checks.held_out | {"one shared discount": ours + (K - 1) / number})
    assert predicts_worse(little, found.chance, 12) == ""
    much = replace(checks, held_out=checks.held_out | {"this model": ours - 95})
    golden(predicts_worse(much, found.chance, 12))
    barely = replace(checks, held_out=checks.held_out | {"one shared discount": ours + 14 / number})
    golden(predicts_worse(barely, found.chance, 12))


def test_the_opening_says_who_looks_how_far_whether_the_data_can_tell_and_whether_the_model_fits(found, golden):
    golden(found.headline)
    page = fit_page(found, {}).render()
    assert all(f"<h2>{v.question}</h2><strong>{v.answer}</strong>" in page for v in found.verdicts)
    golden(page)


def test_each_expert_has_a_clause_of_the_answer(found):
    """Name, horizon, discount and interval stand together, not in three lists."""
    first, *others = found.order
    said = found.findings["horizons"].reasons
    names = found.solution.experts
    assert said.startswith(
        f"{names[first]} looks {steps_text(found, float(found.solution.discounts[first]))} steps ahead (discount "
    )
    for k in others:
        assert f"{names[k]} {steps_text(found, float(found.solution.discounts[k]))} (" in said
        assert f", {interval_text(found, k)})" in said


def test_a_discount_without_a_whole_interval_is_not_known(found, golden):
    """NaN is no narrow width: an end that was not found leaves open how sure a discount is."""
    half = found.intervals.copy()
    half[1] = 0.0, np.nan
    told = replace(found, intervals=half)
    name = found.solution.experts[1]
    assert (told.verdicts[1].answer, told.verdicts[1].kind) == ("For 2 of 3", "caution")
    golden(told.verdicts[1].reasons, told.headline, *told.advice)
    assert told.to_frame().set_index("expert").loc[name, "flags"] == "no whole interval"
    nothing = replace(found, intervals=np.full_like(half, np.nan))
    assert (nothing.verdicts[1].answer, nothing.verdicts[1].kind) == ("Not known", "caution")


def test_a_rejected_shared_temperature_is_in_the_headline(found):
    evidence = {**found.solution.evidence, "equal_temperatures_p": 2e-57}
    rejected = replace(found, solution=replace(found.solution, evidence=evidence))
    assert rejected.headline.startswith("One temperature for all experts is rejected (p < 0.001)")
    assert result_of(rejected, {})["equal_temperatures_p"] == 2e-57


def test_experts_stand_in_one_order_throughout(found):
    page = fit_page(found, {}).render()
    listing_all = 0
    for part in (rest.split("</table>")[0] for rest in page.split("<table")[1:]):
        if "p (Bonferroni)" in part:  # the worst states come first there
            continue
        places = [part.find(name) for name in (LONG, "王小明 🙂", "Cy")]
        listing_all += -1 not in places
        present = [place for place in places if place >= 0]
        assert present == sorted(present)
    assert listing_all >= 4


@pytest.mark.slow
def test_a_penalty_is_told_with_what_it_moved(tmp_path, golden):
    mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 200, names=["a", "b", "c"]).to_csv(tmp_path / "d.csv")
    CLIFF.mdp.to_npz(tmp_path / "m.npz")
    arguments = ["fit", str(tmp_path / "d.csv"), "--transitions", str(tmp_path / "m.npz"), "--deviations", "0", "--ridge", "1"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    golden(result.stdout)
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    free = mh.solve(mh.Problem(CLIFF.mdp, mh.Demonstrations.from_csv(tmp_path / "d.csv")), mh.MaximumLikelihood(ridge=0.0))
    assert content["penalty"]["discounts_without"] == pytest.approx(free.discounts.tolist(), abs=1e-6)
    assert content["penalty"]["log_likelihood_without"] >= content["one_maximum"]["log_likelihood"]
    huge = CliRunner().invoke(app, [*arguments[:-1], "1000", "--quick", "--out", str(tmp_path / "out")])
    golden(huge.stdout)
    assert np.isnan(np.array(json.loads((tmp_path / "out" / "result.json").read_text())["intervals"], dtype=float)).all()


@pytest.mark.slow
def test_rewards_that_are_not_identified_are_null():
    d = mh.domains.toy()
    policies = [mh.soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.3, 0.8)]
    found = mh.analyse([mh.Demonstrations.simulate(d.mdp, policies, 2000, names=["near", "far"])], [d.mdp], deviations=0.0)
    assert found.solution.status == mh.Status.NOT_IDENTIFIED
    content = result_of(found, {})
    assert np.isnan(list(content["reward"].values())).all()
    assert "none is given" in fit_page(found, {}).render()


def test_a_common_shift_does_not_widen_contrasts():
    """In an endless task a constant is open: no reward has an error, every difference has."""
    d = mh.domains.cliff(ending="absorbing")
    experts = [mh.soft_plan(d.mdp, d.reward / 5, gamma).policy for gamma in (0.2, 0.7)]
    problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, experts, 300, max_steps=20))
    solution = mh.solve(problem, mh.MaximumLikelihood(starts=2))
    assert solution.evidence["reward_standard_errors"] == [None] * 12
    contrasts = reward_contrasts(resume(solution))
    assert np.isfinite(contrasts.standard_errors).all()
    truth = d.reward / 5 - (d.reward / 5)[np.isfinite(contrasts.values)].mean()
    shifted = contrasts.values - contrasts.values.mean()
    assert (np.abs(shifted - truth) < 5 * contrasts.standard_errors + 0.5).all()


def test_contrast_errors_are_those_of_the_difference(found):
    """Between two states, the variance of a difference is what the information gives for that direction."""
    contrasts = reward_contrasts(resume(found.solution))
    levels = np.array(found.solution.evidence["reward_standard_errors"])
    assert (contrasts.standard_errors[np.argsort(levels)[:4]] < levels.min()).any()
    assert np.diff(contrasts.values) == pytest.approx(np.diff(found.solution.reward))


def test_horizons_never_exceed_the_task(found):
    chain = np.zeros((1, 4, 4))
    chain[0, [0, 1, 2], [1, 2, 3]] = 1
    mdp = mh.MDP(chain, initial=[1, 0, 0, 0], terminal=[3])
    assert mh.Problem(mdp, [np.ones((4, 1))]).horizon.longest == 3
    assert found.horizon.longest == np.inf
    found = replace(found, horizon=Horizon(3))
    assert found.horizon(1.0) == 3
    assert found.horizon(0.9999) < 3
    assert found.horizon(0.5) == pytest.approx(1.75)
    assert found.horizon(0.0) == 1


def test_a_cap_is_shown_as_a_cap_and_infinity_differs_from_unknown():
    d = mh.domains.cliff(ending="absorbing")
    far = mh.soft_plan(d.mdp, d.reward / 5, 0.5).policy
    found = mh.analyse(mh.Demonstrations.simulate(d.mdp, [far, far], 30, max_steps=20), [d.mdp], quick=True, deviations=0.0)
    assert found.largest_discount == 0.9999
    assert discount_text(found, 0.9999) == "≥ 0.9999"
    assert steps_text(found, 0.9999) == "≥ 10,000"
    assert [Horizon().number(gamma) for gamma in (1 - 2e-6, 1 - 1e-9, 1.0)] == ["500,000", "over a million", "unlimited"]
    capped = replace(found, intervals=np.array([[0.697, 0.9999], [np.nan, 0.5]]))
    assert interval_text(capped, 0) == "0.697 to ≥ 0.9999"
    assert interval_text(capped, 1) == "not found to 0.500"
    solution = replace(found.solution, discounts=np.array([1.0, 0.5]), evidence=known(found, [True, False]))
    ending = replace(found, solution=solution)
    assert result_of(ending, {})["effective_horizons"] == [np.inf, None]
    assert result_of(ending, {})["at_limit"] == ["largest", None]


def known(found: Analysis, identified: list[bool]) -> dict:
    return {**found.solution.evidence, "identified": identified}


def test_text_in_figures_stays_text():
    ax = new_axes()
    ax.set_title("王小明 🙂")

    picture = figure(ax, "A figure").content
    assert "王小明 🙂" in base64.b64decode(picture).decode()


def test_headings_headers_and_figures_can_be_read_aloud(found):
    """No level is skipped, each header belongs to its column, and a figure says the numbers that it draws."""
    page = fit_page(found, {}).render()
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(re.findall(r"<th\b", page)) == page.count('scope="col"') > 10
    first = re.search(r'<svg class="chart" role="img" aria-label="([^"]*)"', page)
    assert first is not None
    assert "Cy. γ " in first[1]
    assert page.count('text-anchor="end">Cy</text>') == 2  # by discount and by horizon
    assert "decisions" in first[1]
    many = Chart("Dots.", [Panel(Axis("x"), Axis("y"), [Mark(0.1, 0.1, f"dot {i}") for i in range(30)])])
    assert many.label == "Dots. 30 marks, from dot 0 to dot 29."
    style = asset("page.css")
    assert "transition" not in style  # nothing moves, so nothing must be kept from moving
    assert "animation" not in style


def test_a_map_names_its_cells_and_a_model_stands_in_one_column(found):
    page = fit_page(found, {}).render()
    for name in CLIFF.mdp.state_names:
        assert re.search(f'class="soft corner" x="[0-9]+" y="[0-9]+">{name}</text>', page)
    assert "one shared discount, as with discount 0</th>" in page  # one discount for all is not identified
    assert ">discount 0</th>" not in page
    held_out = found.checks.held_out
    other = found.checks.held_out | {"discount 0": held_out["discount 0"] - 0.01}
    page = fit_page(replace(found, checks=replace(found.checks, held_out=other)), {}).render()
    assert ">one shared discount</th>" in page
    assert ">discount 0</th>" in page


def test_a_surface_is_drawn_in_shades_of_the_pages_colours():
    """Each cell belongs to one shade: blue above the middle, orange below, grey where nothing is known."""
    values = np.array([[1.0, -1.0, 0.0], [1.0, np.nan, 0.25]])
    drawn = ShadedPlane(np.arange(3.0), np.arange(4.0), values, 0.0, 1.0)
    chart = Chart("Reward.", [Panel(Axis("x", high=2.0), Axis("y", high=3.0), [], surface=drawn)])
    shades = {(colour, round(opacity, 2)): path.count("M") for colour, opacity, path in chart.shades(chart.panels[0])}
    assert shades == {("plus", 0.8): 1, ("less", 0.8): 1, ("plus", 0.0): 1, ("unknown", 0.35): 1, ("plus", 0.4): 1}
    assert chart.shades(chart.panels[0])[-2][2].startswith("M48 296H406V")  # two cells beside each other are one
    assert '<path class="less" fill-opacity="0.80" d="M48 ' in chart.__html__()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_stand_out_from_the_paper(theme):
    """Dots, lines and bars in each of the five colours have a contrast of 3 to 1 (WCAG 1.4.11), however thin they are."""
    style = asset("page.css")
    at = 1 if theme == "light" else 2

    def colour(pattern: str) -> np.ndarray:
        found = re.search(pattern + r"light-dark\((#\w{6}), (#\w{6})\)", style)
        assert found is not None
        return np.array([int(found[at][i : i + 2], 16) for i in (1, 3, 5)]) / 255

    def luminance(rgb: np.ndarray) -> float:
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    paper = colour("--paper: ")
    kinds = dict(re.findall(r"\.(dot|stroke|part|person) \{[^}]*?(?:fill|stroke)-opacity: ([0-9.]+)", style))
    assert set(kinds) == {"dot", "stroke", "part", "person"}
    for mark in map(colour, ["--mark: ", *(rf"\.c{i} {{ --mark: " for i in range(1, 5))]):
        for opacity in map(float, kinds.values()):
            light, dark = sorted((luminance(opacity * mark + (1 - opacity) * paper), luminance(paper)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 3


def test_a_card_holds_its_reasons(found):
    page = fit_page(found, {}).render()
    cards = page[page.index('class="cards"') :].split('<div class="card ')
    told = {finding.question: finding for finding in found.verdicts}
    assert len(cards) == len(told) + 1
    for card, finding in zip(cards[1:], told.values(), strict=True):
        assert f"<h2>{finding.question}</h2>" in card
        inside = f"<p>{escape(finding.reasons)}</p>" in card.split("</div>")[0]
        assert inside == (finding.reasons not in found.answer)


def test_every_figure_can_be_saved_as_svg_and_png(found, tmp_path, tab):
    """Whatever the page's colours are, a file is black on white, without what the page hides, and needs no style sheet."""
    fit_page(found, {}).write(tmp_path / "page.html")
    tab.media("dark")
    tab.open(tmp_path / "page.html")
    assert tab.run("all('figure svg.chart').length === all('figure .copy').length")
    tab.run("window.saved = []; HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); }")
    tab.click("figure .copy button")
    name, address = tab.run("saved[0]")
    assert name.startswith("each-expert-s-discount")
    assert name.endswith(".svg")
    drawn = ElementTree.fromstring(unquote(address.split(",", 1)[1]))
    assert (drawn[0].text or "").startswith("Each expert's discount with its 95")
    assert drawn[1].get("fill") == "#ffffff"
    inks = {text.get("fill") for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert inks <= {"rgb(28, 36, 48)", "rgb(86, 97, 112)", None}
    assert not any("class" in part.attrib for part in drawn.iter())
    assert sum(part.tag.endswith("}g") for part in drawn) == 1  # the panel in horizons is hidden
    tab.run("savePng(document.querySelector('figure svg.chart'))")
    name, address = tab.run("saved[1]")
    assert name.endswith(".png")
    assert base64.b64decode(address.split(",", 1)[1]).startswith(b"\x89PNG")
    assert tab.run("root.dataset.theme === undefined")
    assert tab.errors == []


def test_long_tables_are_folded_and_short_ones_are_not():
    rows = [[f"name {i}", i / 7, Bar(0.1, 0.2, 0.3, (0.0, 1.0))] for i in range(21)]
    assert (
        TableBlock(Table.of(["a", "b", "c"], rows, "People"))
        .__html__()
        .startswith("<details><summary>People (21 rows)</summary>")
    )
    assert "<details" not in TableBlock(Table.of(["a", "b", "c"], rows[:20], "People")).__html__()


@pytest.mark.slow
def test_a_person_at_chance_gets_no_discount_but_a_reason():
    d = mh.domains.big_small()
    policies = [mh.soft_plan(d.mdp, d.reward, 0.6).policy, np.full((18, 4), 0.25), mh.soft_plan(d.mdp, d.reward, 0.3).policy]
    table_ = mh.Demonstrations.simulate(d.mdp, policies, 60, names=["far", "coin", "near"], max_steps=30)
    kinds = np.stack([d.reward == value for value in (20, 2)], axis=1) / 1.0
    tied = (d.mdp.stacked @ kinds, ["big", "small"])
    found = mh.analyse([table_], [d.mdp], lambda mdp: tied, temperature="per_expert")
    assert not found.withheld
    coin = found.solution.experts.index("coin")
    assert found.reasons[coin] == "no better than chance"
    content = result_of(found, {})
    assert content["discounts"][coin] is None
    assert np.isnan(content["intervals"][coin]).all()
    assert content["reasons"] == {"coin": "no better than chance"}
    people = found.to_frame().set_index("expert")
    assert people.index.tolist() == ["near", "far", "coin"]
    assert people.loc["coin", "flags"] == "no better than chance"
    assert np.isnan(people.loc["coin", "discount"])
    assert abs(people.loc["coin", "pseudo_r2"]) < 0.02 < people.loc["near", "pseudo_r2"]
    assert "For 2 of 3" in fit_page(found, {}).render()


def test_states_are_compared_with_the_model_only_where_decisions_repeat(found):
    assert found.compared.repeat
    assert all(misfit.decisions >= FEWEST_DECISIONS for misfit in found.misfits)
    assert len(found.misfits) == sum(int((e.counts.sum(axis=1) >= FEWEST_DECISIONS).sum()) for e in found.problem.experts)
    assert min(misfit.p_value for misfit in found.misfits) > 1e-3


def test_a_state_where_an_expert_does_something_else_is_named(found, golden):
    """The model is made to predict the reverse of what one expert does in one state."""
    policies = [policy.copy() for policy in found.policies]
    policies[1][8] = policies[1][8][::-1]
    odd = replace(found, policies=policies)
    worst = odd.misfits[0]
    assert (worst.expert, worst.state) == (found.problem.experts[1].name, "8")
    assert worst.p_value < 1e-6
    assert odd.verdicts[2].kind == "caution"
    golden(odd.headline)


@pytest.mark.slow
def test_where_states_rarely_repeat_the_decisions_of_all_are_compared():
    mdp = mh.domains.random_mdp(40, 2, seed=0)
    kinds = np.random.default_rng(0).normal(size=(40, 2))
    reward = kinds @ [4.0, -4.0]
    features = lambda mdp: (mdp.stacked @ kinds, ["one", "two"])  # noqa: E731
    policies = [mh.soft_plan(mdp, reward, 0.5).policy] * 8
    crowd = mh.analyse([mh.Demonstrations.simulate(mdp, policies, 10, max_steps=10)], [mdp], features)
    assert not crowd.compared.repeat
    assert {misfit.expert for misfit in crowd.misfits} == {"all"}
    content = result_of(crowd, {})
    assert "own frequencies" not in content["model_checks"]["held_out"]
    assert content["pairwise_tests"] is None
    page = fit_page(crowd, {}).render()
    assert "own frequencies" not in page
    assert "discount with its 95% CI" in page


@pytest.mark.slow
def test_pairs_of_many_are_compared_on_request():
    mdp, kinds = mh.domains.random_mdp(6, 2, seed=0), np.random.default_rng(0).normal(size=(6, 2))
    policies = [mh.soft_plan(mdp, kinds @ [4.0, -4.0], 0.1 * k).policy for k in range(1, 8)]
    table_ = mh.Demonstrations.simulate(mdp, policies, 40, max_steps=10)
    found = mh.analyse(table_, [mdp], lambda mdp: (mdp.stacked @ kinds, ["one", "two"]), pairs=True)
    assert len(found.pairs) == 21


def test_pages_escape_all_text():
    page = Page(
        "<t>", "<l>", [Section("<h>", ["<p>", Badge("<b>"), Listing("<c>"), TableBlock(Table.of(["<d>"], [["<e>"]]))])], "<f>"
    )
    body = page.render()
    for letter in "tlhpbcdef":
        assert f"&lt;{letter}&gt;" in body


def test_a_newcomer_reads_no_jargon_about_rewards(found, golden):
    evidence = {**found.solution.evidence, "ridge_reason": "the larger some of them are made, the better they fit"}
    held = replace(found, solution=replace(found.solution, evidence=evidence))
    golden(held.warnings[0], held.headline)


@pytest.mark.slow
def test_experts_who_do_not_plan_as_the_model_says_are_not_given_different_goals(golden):
    """Two experts with one reward who take the best action or, one time in ten, any: the model fails, not the shared goal."""
    policies = [0.9 * mh.plan(CLIFF.mdp, CLIFF.reward, gamma).policy + 0.1 / 4 for gamma in (0.3, 0.95)]
    table_ = mh.Demonstrations.simulate(CLIFF.mdp, policies, 120, max_steps=30, names=["near", "far"])
    greedy = mh.analyse([table_], [CLIFF.mdp])
    assert greedy.goals.test.rejected
    golden(greedy.headline, greedy.goals.answer)
    assert not greedy.goals.rejected
    assert result_of(greedy, {})["goals"]["found"] is None


def test_intervals_of_a_model_that_does_not_fit_are_not_shown_in_green(found, golden):
    ours = found.checks.held_out["this model"]
    failing = replace(found, checks=replace(found.checks, held_out=found.checks.held_out | {"own frequencies": ours + 0.1}))
    assert found.verdicts[1].kind == "good"
    assert [verdict.answer for verdict in failing.verdicts[1:3]] == ["Only if the model were right", "No"]
    assert [verdict.kind for verdict in failing.verdicts[:3]] == ["caution", "caution", "bad"]
    golden(failing.warnings[0], failing.advice[0])


@pytest.mark.parametrize(
    ("odd", "compared", "missed", "answer"),
    [
        (0, 40, 0.0, "Yes"),
        (12, 383, 0.01, "In nearly all states"),
        (213, 1041, 0.005, "In nearly all states"),
        (40, 383, 0.02, "In most states"),
        (213, 1041, 0.06, "In part"),
        (12, 383, 0.08, "In part"),
        (30, 40, 0.06, "No"),
        (3, 40, 0.3, "No"),
    ],
)
def test_how_widely_a_model_fits_is_graded_by_share_and_by_size(odd, compared, missed, answer):
    assert Extent(compared, odd, 0.2, missed).answer == answer


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": "shared"}, "temperature must be left out"),
        ({"temperature": 1.0, "ridge": 2.0}, "temperature and ridge must be left out"),
    ],
)
def test_options_that_a_solver_has_are_not_given_twice(options, said):
    table_ = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 2)
    with pytest.raises(ValueError, match=said):
        mh.analyse([table_], [CLIFF.mdp], solver=mh.MaximumLikelihood(), **options)


def test_the_worst_states_of_a_result_are_those_of_the_check(found):
    """One rule names them, in Python, in the page and in `result.json`."""
    listed = [misfit._asdict() for misfit in found.misfits[:10]]
    assert result_of(found, {})["model_checks"]["worst_states"] == found.checks.worst
    assert [(row["expert"], row["state"], row["decisions"]) for row in found.checks.worst] == [
        (row["expert"], row["state"], row["decisions"]) for row in listed
    ]


def test_what_was_found_is_computed_once_for_all_that_is_written(found, tmp_path, monkeypatch):
    """The page, the JSON and the tables read one analysis."""
    calls = dict.fromkeys(("misfits", *analysis.QUESTIONS), 0)

    def counted(name, real):
        def call(*arguments):
            calls[name] += 1
            return real(*arguments)

        return call

    monkeypatch.setattr(fitted, "misfits", counted("misfits", fitted.misfits))
    for name, question in analysis.QUESTIONS.items():
        monkeypatch.setitem(analysis.QUESTIONS, name, counted(name, question))
    write_fit(tmp_path, replace(found), {})
    assert calls == dict.fromkeys(calls, 1)


def test_an_analysis_is_a_result(found, tmp_path):
    found.to_json(tmp_path / "found.json")
    written = json.loads((tmp_path / "found.json").read_text())
    assert (written["kind"], written["schema"]) == ("Analysis", 2)
    assert written["experts"] == list(found.solution.experts)
    assert found.sentences() == found.headline
    assert "王小明" in found._repr_html_()
    assert len(found.plot().get_yticklabels()) == 3
