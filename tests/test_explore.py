"""The report in a real browser: controls do what they say, labels are inert, and every reader can read it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from browser import Tab

import multihorizon as mh
from multihorizon.analysis import Analysis
from multihorizon.questions.horizons import identify_fitted
from multihorizon.report.charts import Page, Section, TableBlock
from multihorizon.report.fit_page import fit_page
from multihorizon.report.pages import goals_page, identify_page, recover_page
from multihorizon.words import Table

pytestmark = pytest.mark.slow  # needs a browser

#: Labels that try to be markup, script, an address, another direction of writing, and a picture.
HOSTILE = ['</script><script>window.stolen="yes"</script>', '"><img src=x onerror=window.stolen=1>', "javascript:alert(1)//🙂"]
HOSTILE += ["\u202eabc\u2028&lt;b&gt;", "' onmouseover='window.stolen=1", "Zoë 王小明"]
DISCOUNTS = [0.05, 0.2, 0.4, 0.6, 0.8, 0.9]
CLIFF = mh.domains.cliff()
SLIDER = ".explorer input[type=range]"


@pytest.fixture(scope="module")
def found() -> Analysis:
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward / 4, gamma).policy for gamma in DISCOUNTS]
    return mh.analyse(
        [mh.Demonstrations.simulate(CLIFF.mdp, policies, 150, names=HOSTILE, max_steps=40)], [CLIFF.mdp], quick=True
    )


@pytest.fixture(scope="module")
def page(found, tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    fit_page(found, {}).write(path)
    return path


def texts(tab: Tab, selector: str) -> list[str]:
    """The text of every element that matches and is shown."""
    shown = "filter((e) => e.checkVisibility() && e.getClientRects().length).map((e) => e.innerText ?? e.textContent)"
    found: list[str] = tab.run(f"[...document.querySelectorAll({selector!r})].{shown}")
    return found


def column(tab: Tab, number: int) -> list[str]:
    """The shown cells of a column of the table of experts."""
    return texts(tab, f"#part-1 tbody tr td:nth-child({number})")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_errors_no_sideways_scroll_and_nothing_of_a_label_is_obeyed(tab, page, width, scheme) -> None:
    tab.media(scheme)
    tab.open(page, width)
    assert tab.errors == []
    assert tab.run("innerWidth") == width
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("window.stolen") is None
    assert tab.run("document.querySelectorAll('img, a[href^=java]').length") == 0
    assert sorted(column(tab, 1)) == sorted([*HOSTILE[:3], "\\u202eabc\u2028&lt;b&gt;", *HOSTILE[4:]])
    luminance = sum(map(int, re.findall(r"\d+", tab.run("getComputedStyle(document.body).backgroundColor"))))
    assert (luminance > 700) == (scheme == "light")


def test_a_foreign_script_does_not_run(tab, page, tmp_path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text(encoding="utf-8").replace("</main>", "<script>window.stolen = 1</script></main>"), "utf-8")
    tab.open(changed)
    assert tab.run("window.stolen") is None
    assert any("Content Security Policy" in error for error in tab.errors)


def test_colours_can_be_switched(tab, page) -> None:
    tab.open(page)
    colours = []
    for theme in ("light", "dark", ""):
        tab.run(change("select.theme", theme))
        colours.append(tab.run("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(20, 24, 29)", "rgb(255, 255, 255)"]


def change(selector: str, value: object, event: str = "change") -> str:
    """The script that gives a control a value and tells it so."""
    told = f"control.value = {str(value)!r}; control.dispatchEvent(new Event({event!r}))"
    return f"(() => {{ const control = document.querySelector({selector!r}); {told}; }})()"


def test_steps_and_discounts_change_places(tab, page, found) -> None:
    tab.open(page)
    order = found.order
    assert column(tab, 2) == [f"{found.solution.discounts[k]:.3f}" for k in order]
    assert "discount γ" in texts(tab, "main > .beside svg text")
    tab.click("input.unit[value=steps]")
    assert column(tab, 2) == [f"{found.horizon(float(found.solution.discounts[k])):.1f}" for k in order]
    assert "discount γ" not in texts(tab, "main > .beside svg text")
    assert any("steps" in said for said in texts(tab, ".explorer output"))


def test_experts_can_be_chosen(tab, page) -> None:
    tab.open(page)
    dots = len(texts(tab, "main > .beside svg .mark"))
    tab.click(".chooser summary")
    tab.click(".chooser li:nth-child(2) input")
    assert texts(tab, ".chooser output") == ["5 of 6"]
    assert len(column(tab, 1)) == 5
    assert len(texts(tab, "main > .beside svg .mark")) == dots - 1
    tab.write(".chooser input.find", "zoë")
    assert len(texts(tab, ".chooser li")) == 1
    tab.click(".chooser button.none")
    assert "Zoë 王小明" not in column(tab, 1)
    assert len(column(tab, 1)) == 4


def test_tables_sort_both_ways_and_say_so(tab, page, found) -> None:
    tab.open(page)
    tab.run("document.querySelector('#part-1 th:nth-child(6) button').focus()")
    for key, way in (("Enter", "ascending"), (" ", "descending")):
        tab.press(key)
        assert tab.run("document.querySelector('#part-1 th:nth-child(6)').getAttribute('aria-sort')") == way
        numbers = [int(cell.replace(",", "")) for cell in column(tab, 6)]
        assert numbers == sorted(found.decisions.astype(int).tolist(), reverse=way == "descending")


def test_tables_can_be_filtered(tab, page) -> None:
    tab.open(page)
    selector = "#part-4 .filter"
    tab.write(f"{selector} input", "not identified")
    rows = texts(tab, "#part-4 tbody tr")
    assert all("not identified" in row for row in rows)
    said = texts(tab, f"{selector} output")[0]
    assert said == f"{len(rows)} of 12 rows"


def test_marks_tell_their_numbers_to_mouse_and_keyboard(tab, page, found) -> None:
    tab.open(page)
    tab.hover("main > .beside svg .in-discount .mark")
    first = found.order[0]
    told = texts(tab, ".tip")[0]
    assert f"γ {found.solution.discounts[first]:.3f}" in told
    tab.run("document.querySelector('main > .beside svg.chart').focus()")
    tab.press("End")
    assert f"γ {found.solution.discounts[found.order[-1]]:.3f}" in texts(tab, ".tip")[0]
    tab.press("ArrowLeft")
    assert f"γ {found.solution.discounts[found.order[-2]]:.3f}" in texts(tab, ".tip")[0]
    tab.press("Escape")
    assert texts(tab, ".tip") == []


def arrows_shown(tab: Tab) -> int:
    shown = "filter((e) => getComputedStyle(e).visibility === 'visible').length"
    return int(tab.run(f"[...document.querySelectorAll('.explorer svg .choice')].{shown}"))


@pytest.mark.parametrize("unit", ["discount", "steps"])
def test_the_slider_shows_the_best_actions_of_the_learned_reward(tab, page, found, unit) -> None:
    tab.open(page)
    tab.click(f"input.unit[value={unit}]")
    reward = found.problem.experts[0].expected_reward(found.solution.reward)
    open_states = ~CLIFF.mdp.terminal
    farthest = tab.run("JSON.parse(document.querySelector('.explorer script').textContent).farthest")
    seen = set()
    for position in (0, 150, 450, 750, 995):
        tab.run(change(SLIDER, position, "input"))
        gamma = position / 1000 if unit == "discount" else 1 - farthest ** (-position / 1000)
        best = mh.plan(CLIFF.mdp, reward, max(gamma, 0.001)).optimal_actions & open_states[:, None]
        names = [", ".join(np.array(CLIFF.mdp.action_names)[row]) for row in best[open_states]]
        assert texts(tab, ".explorer tbody td:nth-child(2)") == names
        assert arrows_shown(tab) == best.sum()
        said = texts(tab, ".explorer output")[0]
        assert said.startswith(f"Shown at γ = {gamma:.4f}." if unit == "discount" else f"Shown at {1 / (1 - gamma):.1f} steps.")
        seen.add(said)
    assert len(seen) == 5


def test_buttons_go_from_change_to_change_and_experts_to_their_discount(tab, page, found) -> None:
    tab.open(page)
    tab.run(change(SLIDER, 0, "input"))
    intervals = mh.discount_intervals(CLIFF.mdp, found.problem.experts[0].expected_reward(found.solution.reward))
    for number in (2, 3):
        tab.click(".explorer button.after")
        assert f"interval {number} of {len(intervals)}" in texts(tab, ".explorer output")[0]
        before, now = (interval.optimal_actions[~CLIFF.mdp.terminal] for interval in intervals[number - 2 : number])
        assert tab.run("document.querySelectorAll('.explorer svg .new').length") == (now & ~before).sum() > 0
    tab.click(".explorer button.before")
    assert f"interval 2 of {len(intervals)}" in texts(tab, ".explorer output")[0]
    last = found.order[-1]
    tab.run(change(".explorer select", f"{found.solution.discounts[last]:.6g}"))
    assert f"γ = {found.solution.discounts[last]:.4f}" in texts(tab, ".explorer output")[0]


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(tab, page) -> None:
    tab.open(page)
    reached = set()
    for _ in range(200):
        tab.press("Tab")
        name, outline = tab.run("[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]")
        if name == "BODY":
            break
        assert outline != "none", name
        reached.add(tab.run("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    wanted = "a[href], button, select, summary, input:not([name=unit]), svg.chart[tabindex]"
    seen = "filter((e) => e.checkVisibility() && e.getClientRects().length)"
    numbers = "map((e) => [...document.querySelectorAll('*')].indexOf(e))"
    assert set(tab.run(f"[...document.querySelectorAll({wanted!r})].{seen}.{numbers}")) <= reached


def test_controls_have_names_and_pictures_have_texts(tab, page) -> None:
    tab.open(page)
    nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    kinds = {"button", "checkbox", "radio", "combobox", "slider", "searchbox", "link", "image", "DisclosureTriangle"}
    named = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    found = [(kind, name) for kind, name in named if kind in kinds]
    assert {"button", "radio", "slider", "searchbox", "link", "image"} <= {kind for kind, _ in found}
    assert [kind for kind, name in found if not name.strip()] == []


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c !== "rgba(0, 0, 0, 0)") return c; } return "rgb(255, 255, 255)"; };
  return [...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() && e.getClientRects().length
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
      const style = getComputedStyle(e), ink = e instanceof SVGElement ? style.fill : style.color;
      const [x, y] = [light(rgb(ink)), light(rgb(behind(e)))].sort((a, b) => b - a);
      return [(x + 0.05) / (y + 0.05), e.tagName + " " + e.textContent.slice(0, 30)]; }).filter(([ratio]) => ratio < 4.5); })()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(tab, page, scheme) -> None:
    tab.media(scheme)
    tab.open(page)
    assert tab.run(CONTRAST) == []


def test_without_scripts_every_number_is_there(tab, page, found) -> None:
    tab.open(page, scripts=False)
    try:
        shown = tab.send("Runtime.evaluate", expression="document.body.innerText", returnByValue=True)["result"]["value"]
    finally:
        tab.send("Emulation.setScriptExecutionDisabled", value=False)
    for k in found.order:
        assert f"{found.solution.discounts[k]:.3f} · {found.horizon(float(found.solution.discounts[k])):.1f}" in shown
    intervals = mh.discount_intervals(CLIFF.mdp, found.problem.experts[0].expected_reward(found.solution.reward))
    assert all(f"up to {interval.high:.4f}" in shown for interval in intervals[:-1])
    assert "Colours" not in shown
    assert "Previous change" not in shown


def test_folded_tables_are_printed(tab, tmp_path) -> None:
    rows = [[f"name {i}", i] for i in range(30)]
    Page("Long", "", [Section("Table", [TableBlock(Table.of(["a", "b"], rows, "Names"))])]).write(tmp_path / "long.html")
    tab.open(tmp_path / "long.html")
    counts = []
    for kind in ("screen", "print"):
        tab.media("light", kind)
        counts.append(tab.run("document.body.innerText").count("name "))
    assert counts == [0, 30]


def test_print_hides_controls_and_opens_what_is_folded(tab, page, found, tmp_path) -> None:
    tab.media("dark", "print")
    tab.open(page)
    assert texts(tab, ".controls, .filter, nav") == []
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


@pytest.fixture(scope="module")
def other_pages(tmp_path_factory) -> list[Path]:
    """The reports of goals, recover and identify, for two experts of the cliff whose reward is tied."""
    kinds = np.stack([CLIFF.reward == value for value in (-10, 20)], axis=1) / 1.0
    walks = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts()[1:], 20, names=HOSTILE[:2])
    problem = mh.Problem(CLIFF.mdp, walks, features=CLIFF.mdp.stacked @ kinds, feature_names=["cliff", "goal"])
    solution = mh.solve(problem, mh.MaximumLikelihood())
    pages = {
        "goals": goals_page(mh.goals(problem, draws=19), [], 0),
        "recover": recover_page(mh.simulate_study(problem, studies=2, decisions=[200]), {}),
        "identify": identify_page(solution, identify_fitted(solution), []),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, page in pages.items():
        page.write(folder / f"{name}.html")
    return [folder / f"{name}.html" for name in pages]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_the_other_reports_open_without_errors_and_without_sideways_scroll(tab, other_pages, width) -> None:
    for page in other_pages:
        tab.open(page, width)
        assert tab.errors == [], page.name
        assert tab.run("document.documentElement.scrollWidth") <= width, page.name
        assert tab.run("window.stolen") is None
        assert tab.run(CONTRAST) == []
        marks = int(tab.run("document.querySelectorAll('svg .mark').length"))
        assert (marks > 0) == (page.stem != "identify")
