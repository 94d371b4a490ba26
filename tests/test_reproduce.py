"""The study in a tiny version, from the numbers to the page in a browser."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from fitting import small_files
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.cli.reproduce import _write_up
from multihorizon.paper.claims import _larger_set, all_claims, usual
from multihorizon.paper.report import FIGURES, _scaled, captions, draw_figures, write_figures, write_page, write_report
from multihorizon.paper.study import PARTS, StudyPart, StudySettings, Underway, read_timings, run_part, split_timings, write
from multihorizon.parallel import silent

pytestmark = pytest.mark.slow  # runs the paper's study

#: Less of everything than the quick run.
TINY = StudySettings(
    quick=True,
    jobs=1,
    tasks=4,
    seeds=3,
    search_seeds=1,
    lp_evaluations=10,
    mce_evaluations=4,
    starts=1,
    thresholds=(1e-3,),
    grid_step=0.25,
    search_step=0.5,
    curve_points=12,
    surface_side=10,
    random_discounts=1,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    directory = tmp_path_factory.mktemp("study")
    settings = TINY
    data: dict = {}
    for part in PARTS:
        run_part(part, directory, settings, data, silent)
    timings = read_timings(directory)
    claims = all_claims(data)
    (directory / "figures").mkdir()
    drawings = draw_figures(data, timings, silent)
    write_figures(directory / "figures", drawings)
    write_report(directory, data, drawings, claims, settings)
    write_page(directory, data, claims, settings)
    return directory, data, claims


@pytest.mark.slow
def test_every_part_leaves_its_numbers(study) -> None:
    directory, data, _ = study
    for part in PARTS:
        text = (directory / "data" / f"{part.name}.json").read_text()
        content = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert content["data"].keys() == data[part.name].keys()
        assert {"version", "seed", "quick"} <= set(content)


def test_infinite_numbers_are_written_as_json_has_them_and_read_again(tmp_path) -> None:
    found: dict = {}
    part = StudyPart("learned", "", lambda *_: {"best": np.array([-np.inf, 1.0])})
    assert run_part(part, tmp_path, StudySettings(), found, silent)
    assert found["learned"]["best"] == [-np.inf, 1.0]
    assert not run_part(part, tmp_path, StudySettings(), found, silent)
    assert found["learned"]["best"] == [-np.inf, 1.0]
    assert '"-infinity"' in (tmp_path / "data" / "learned.json").read_text()


def test_a_curve_begins_where_something_feasible_was_found() -> None:
    assert _scaled([-np.inf, 2.0, 3.0, 4.0])[1:].tolist() == [0.0, 0.5, 1.0]
    assert np.isnan(_scaled([-np.inf, 2.0])[0])
    assert np.isnan(_scaled([-np.inf, -np.inf])).all()


def test_what_does_not_depend_on_the_size_of_the_study(study) -> None:
    _, data, claims = study
    learned = data["learned"]
    assert learned["big-small"]["ClosedForm"]["discounts"] == pytest.approx([0.1, 0.45, 0.9], abs=1e-9)
    assert learned["cliff"]["ClosedForm"]["discounts"] == pytest.approx([0, 0.2, 0.52], abs=1e-9)
    assert data["generalization"]["cliff"]["ClosedForm"]["absolute mean"] == 0
    assert all(learned[domain]["MPLP"]["ordered"] for domain in learned)
    assert learned["toy"]["NaiveLP"]["discounts"] == pytest.approx([0, 1, 1], abs=1e-6)
    assert np.abs(learned["toy"]["NaiveLP"]["reward"][:3]).max() < 1e-6
    assert data["toy"]["crossings"]["a0 and a2"] == pytest.approx(0.562559, abs=1e-6)
    assert data["identifiability"]["sets"]["absorbing"]["dimension"] == 2
    verdicts = {claim.topic: claim.verdict for claim in claims}
    assert verdicts["Toy domain"] == "reproduced"
    assert verdicts["Theorem 2"] == "reproduced"
    assert verdicts["Duality gap of Algorithm 2"] == "not reproduced"


def test_what_a_quick_run_did_not_measure_is_not_judged(study, golden) -> None:
    _, data, claims = study
    verdicts = {claim.topic: claim for claim in claims}
    assert verdicts["Identifiability"].verdict == "not tested"
    golden(verdicts["Identifiability"].ours, captions(data)["toy_sets"])
    assert any(data["convergence"][d]["Bayesian"]["objective"] < rows["paper's grid"] for d, rows in data["seeds"].items())
    assert verdicts["Convergence"].verdict == "not tested"
    golden(verdicts["Convergence"].reason)


def test_quick_stands_at_the_top(study) -> None:
    directory, _, _ = study
    page, text = (directory / "report.html").read_text(), (directory / "paper.md").read_text()
    assert page.index("This was a quick run") < page.index("<h2>")
    before = page[: page.index(">Duality gap of Algorithm 2</td>")]  # the last verdict of the table, which is open
    assert before.count("<details") == before.count("</details")
    assert text.splitlines()[2].startswith("**This was a quick run")


def test_sentences_follow_the_numbers(study, golden) -> None:
    _, data, _ = study
    changed = json.loads(json.dumps(data))
    changed["identifiability"]["sets"]["terminal"]["members"][0]["discounts"] = [0.85, 0.79, 0.0]
    changed["learned"]["toy"]["NaiveLP"]["discounts"] = [0.0, 0.5, 1.0]
    reasons = {claim.topic: claim.reason for claim in all_claims(changed)}
    golden(reasons["Identifiability"], reasons["Naive extension"], captions(changed)["toy_values"])


def test_the_threshold_rule_carries_the_verdicts_on_mpmce(study, golden) -> None:
    _, data, claims = study
    found = {claim.topic: claim for claim in claims}
    assert found["Order of discounts, MPMCE, threshold"].verdict == "reproduced"
    assert found["Learned discounts, MPMCE, threshold"].verdict == "not tested"  # one threshold says nothing
    changed = json.loads(json.dumps(data))
    for rows in changed["thresholds"].values():
        rows.append({**rows[0], "threshold": 0.01})
    changed["thresholds"]["cliff"][-1]["discounts"] = [0.0, 0.31, 0.55]
    verdicts = {claim.topic: claim.verdict for claim in all_claims(changed)}
    assert verdicts["Learned discounts, MPMCE, threshold"] == "in part"
    golden(found["Learned discounts, MPMCE, threshold"].reason)
    assert not any("summed" in topic for topic in found)
    for rows in data["thresholds"].values():
        assert all(row["residual"] <= row["threshold"] for row in rows)


def test_rewards_that_are_compared_have_one_colour_scale(study) -> None:
    _, data, _ = study
    drawing = FIGURES["rewards"](data, {})
    limits = {image.get_clim() for ax in drawing.axes for image in ax.get_images()}
    assert limits == {(-1.0, 1.0)}
    assert len({ax.get_ylim() for ax in drawing.axes[::3]}) == 1


@pytest.mark.slow
def test_the_number_of_processes_changes_no_digit(study) -> None:
    _, data, _ = study
    (part,) = (part for part in PARTS if part.name == "convergence")
    again, _ = split_timings(part.compute(Underway(replace(TINY, jobs=2), data)))
    assert json.loads(json.dumps(again, default=lambda value: value.tolist())) == data["convergence"]


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch) -> None:
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("multihorizon.cli.reproduce.run_part", stopped)
    done = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path / "study"), "--quick"])
    assert done.exit_code == 130
    assert "give the same command again" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_report_that_cannot_be_finished_leaves_the_old_one(study, tmp_path) -> None:
    directory, data, _ = study
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "report.html").read_bytes()
    with small_files(), pytest.raises(OSError, match="File too large"):
        _write_up(tmp_path, data, TINY)
    assert (tmp_path / "report.html").read_bytes() == before
    assert not [path for path in tmp_path.rglob("*") if "unfinished" in path.name or "partial" in path.name]


def test_points_of_the_toy_set_reproduce_the_experts(study) -> None:
    _, data, _ = study
    for ending in ("terminal", "absorbing"):
        domain = mh.domains.toy(ending=ending)
        problem = mh.Problem(domain.mdp, domain.soft_experts())
        points = np.array(data["identifiability"]["sets"][ending]["points"])
        assert len(points) > 10
        assert np.abs(points - domain.soft_discounts).max() > 0.1
        assert mh.theory.feasibility_at(problem, points).max() < 1e-7


def test_a_verdict_follows_the_numbers(study) -> None:
    _, data, _ = study
    changed = json.loads(json.dumps(data))
    changed["toy"]["breakpoints"] = [0.4, 0.9]
    changed["learned"]["toy"]["MPLP"]["ordered"] = False
    verdicts = {claim.topic: claim.verdict for claim in all_claims(changed)}
    assert verdicts["Toy domain"] == "not reproduced"
    assert verdicts["Order of discounts, MPLP"] == "in part"


def test_every_figure_is_written_and_in_the_report(study) -> None:
    directory, _, claims = study
    page = (directory / "report.html").read_text()
    assert page.count("<img") == len(FIGURES)
    for name in FIGURES:
        for ending in ("svg", "png"):
            assert (directory / "figures" / f"{name}.{ending}").stat().st_size > 3000
    assert not re.search(r"(?:src|href)=\"https?:", page)
    markdown = (directory / "paper.md").read_text()
    for claim in claims:
        assert claim.topic in markdown


def test_a_stopped_run_goes_on_and_the_same_seed_gives_the_same_json(tmp_path) -> None:
    calls: list[str] = []

    def part(name: str) -> StudyPart:
        def compute(study):
            calls.append(name)
            return {"x": np.random.default_rng(study.settings.seed).random(3), "before": len(study.done), "seconds": 1.0}

        return StudyPart(name, name, compute)

    settings, data = StudySettings(seed=5), {}
    run_part(part("learned"), tmp_path, settings, data, silent)
    first = (tmp_path / "data" / "learned.json").read_bytes()
    again: dict = {}
    assert not run_part(part("learned"), tmp_path, settings, again, silent)
    assert run_part(part("toy"), tmp_path, settings, again, silent)
    assert calls == ["learned", "toy"]
    assert again["toy"]["before"] == 1
    assert run_part(part("learned"), tmp_path, StudySettings(seed=6), {}, silent)
    assert run_part(part("learned"), tmp_path, settings, {}, silent)
    assert (tmp_path / "data" / "learned.json").read_bytes() == first
    assert b"seconds" not in first


def test_half_a_file_is_not_taken_for_a_part(tmp_path) -> None:
    write(tmp_path / "data" / "toy.json", {"a": 1})
    (tmp_path / "data" / "learned.json").write_text('{"part": "lear')
    data: dict = {}
    assert run_part(StudyPart("learned", "", lambda *_: {"a": 2}), tmp_path, StudySettings(), data, silent)
    assert data["learned"] == {"a": 2}
    assert not list(tmp_path.rglob("*.partial"))


def test_timings_are_kept_apart() -> None:
    data, times = split_timings({"a": {"b": 1, "seconds": {"total": 2}}, "c": [1]})
    assert data == {"a": {"b": 1}, "c": [1]}
    assert times == {"a": {"seconds": {"total": 2}}}


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_in_a_browser(study, width: int, tab) -> None:
    directory, _, _ = study
    tab.open(directory / "report.html", width)
    assert tab.run("innerWidth") == width
    assert tab.run("document.documentElement.scrollWidth") <= width
    wide = "[...document.images].filter((i) => i.naturalWidth > 0 && i.getBoundingClientRect().width > 100).length"
    assert tab.run(wide) == len(FIGURES)
    assert tab.errors == []


def test_a_search_that_ended_early_is_no_evidence_for_or_against_a_larger_set():
    def row(threshold: float, status: str, objective: float):
        return {"threshold": threshold, "status": status, "objective": objective, "discounts": [0.1, 0.5]}

    rows = [row(0.001, "converged", 1.0), row(0.01, "converged", 2.0), row(0.02, "not converged", -1.0)]
    claim = _larger_set({"thresholds": {"toy": rows}})
    assert claim.verdict == "reproduced"
    assert "0.02" not in claim.ours
    assert _larger_set({"thresholds": {"toy": rows[:1] + rows[2:]}}).verdict != "reproduced"


def test_a_printed_figure_lies_among_ours_or_not():
    ours = list(np.linspace(0.1, 0.2, 60))
    assert usual(0.15, ours, 0.0005)
    assert not usual(0.05, ours, 0.0005)
    assert not usual(0.25, ours, 0.0005)
    # One that differs from the printed 0.3 by less than half of its last digit has its digits.
    assert usual(0.3, [0.304], 0.005)
    assert not usual(0.3, [0.306], 0.005)


def test_two_experts_are_judged_for_both_endings(study) -> None:
    _, data, _ = study
    changed = json.loads(json.dumps(data))
    pairs = changed["identifiability"]["two experts"]
    pairs["terminal"]["shares over seeds"] = [0.38, 0.39, 0.41, 0.42]
    pairs["absorbing"]["shares over seeds"] = [0.0, 0.01, 0.02, 0.03]
    claim = {claim.topic: claim for claim in all_claims(changed)}["Two toy experts"]
    assert claim.verdict == "in part"
    assert "absorbing: 1.00" in claim.reason
    pairs["absorbing"]["shares over seeds"] = pairs["terminal"]["shares over seeds"]
    assert {claim.topic: claim.verdict for claim in all_claims(changed)}["Two toy experts"] == "reproduced"


def test_the_cliff_s_errors_are_measured_by_every_convention(study) -> None:
    directory, data, claims = study
    (claim,) = (claim for claim in claims if claim.topic == "The cliff's errors")
    assert claim.verdict == "not reproduced"
    assert all(convention in claim.ours for convention in data["conventions"])
    printed = data["conventions"]["Eq. 27 as printed"]["MPLP"]
    assert printed["mean"] == pytest.approx(data["generalization"]["cliff"]["MPLP"]["mean"])
    changed = json.loads(json.dumps(data))
    changed["conventions"]["the cliff's own transitions"] = {name: {"mean": 0.01, "std": 0.04} for name in ("MPLP", "MPMCE")}
    assert {c.topic: c.verdict for c in all_claims(changed)}["The cliff's errors"] == "reproduced"
    assert "Readings of the cliff's error" in (directory / "paper.md").read_text()


def test_convergence_is_drawn_against_iterations(study) -> None:
    _, data, _ = study
    axes = FIGURES["convergence"](data, {}).axes
    assert {ax.get_xlabel() for ax in axes} == {"iteration"}
    assert axes[0].lines[0].get_xdata()[-1] == TINY.lp_evaluations
