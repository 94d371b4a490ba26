"""What a page that can be explored is made of: stretches of discounts, maps and graphs, rulers, and blocks that stay inert."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.horizon import Horizon
from multihorizon.report.charts import (
    Axis,
    Block,
    Chart,
    Either,
    Mark,
    Page,
    Panel,
    Ruler,
    Section,
    TableBlock,
    asset,
    script,
    templates,
)
from multihorizon.report.maps import DARKEST, Person, Stretches, best_actions, explorer, graph_map, grid_map
from multihorizon.words import Table

CLIFF, TOY = mh.domains.cliff(), mh.domains.toy()
NASTY = "</script><b>\u2028&'\"\u202e"


def expected(domain: mh.domains.Domain) -> np.ndarray:
    return domain.mdp.expected_reward(domain.reward)


def explored(domain: mh.domains.Domain, people: list[Person], **limits: int) -> list[str | Block]:
    n = domain.mdp.n_states
    shown = {"values": np.zeros(n), "tips": ["tip"] * n, "weights": np.ones(n), "horizon": Horizon()}
    return explorer(domain.mdp, expected(domain), people, **shown, **limits)


def arrows(found: Stretches, discount: float) -> list[tuple[int, int, bool]]:
    """Every action that is best somewhere, and whether it is best at a discount."""
    best = found.best_at(discount)
    return [(state, action, i in best) for i, (state, action) in enumerate(found.pairs)]


@pytest.mark.parametrize("domain", [CLIFF, TOY, mh.domains.big_small()], ids=lambda d: d.name)
def test_stretches_are_the_exact_intervals(domain) -> None:
    found = best_actions(domain.mdp, expected(domain))
    intervals = mh.discount_intervals(domain.mdp, domain.reward)
    assert not found.tried
    for interval in intervals:
        middle = (interval.low + interval.high) / 2
        best = np.zeros_like(interval.optimal_actions)
        for position in found.best_at(middle):
            best[found.pairs[position]] = True
        assert (best == (interval.optimal_actions & domain.mdp.available & ~domain.mdp.terminal[:, None])).all()
    assert found.changes == pytest.approx([interval.low for interval in intervals], abs=1e-9)


def test_changes_of_a_state_are_those_of_the_whole() -> None:
    found = best_actions(TOY.mdp, expected(TOY))
    first = [(round(change, 3), actions) for change, actions in found.by_state()[0]]
    assert first == [(0.0, [0]), (0.432, [1]), (0.876, [2])]


def test_a_large_task_is_planned_at_many_discounts() -> None:
    exact = best_actions(CLIFF.mdp, expected(CLIFF))
    rough = best_actions(CLIFF.mdp, expected(CLIFF), exact_states=3)
    assert len(rough.tried) > 100
    for gamma in (0.0, 0.5, 0.9):
        one, two = ({found.pairs[i] for i in found.best_at(gamma)} for found in (exact, rough))
        assert one == two


def test_of_many_states_those_with_the_most_decisions_are_kept() -> None:
    weights = np.zeros(CLIFF.mdp.n_states)
    weights[[5, 8]] = 10
    found = best_actions(CLIFF.mdp, expected(CLIFF), weights, most_states=2)
    assert found.states == (5, 8)
    assert {state for state, _ in found.pairs} == {5, 8}


def test_names_of_states_are_drawn_whole_where_they_fit_on_two_lines() -> None:
    chance = np.eye(3)[[1, 2, 2]][None]
    mdp = mh.MDP(chance, terminal=[2], state_names=["very severe", "recovered", "discharged"])
    drawn = graph_map(mdp, ["tip"] * 3, "Graph", arrows(best_actions(mdp, np.ones((3, 1))), 0.5)).__html__()
    for line in ("very", "severe", "recovered", "discharg…"):
        assert f">{line}</text>" in drawn


def test_every_arrow_that_is_best_somewhere_is_drawn_once() -> None:
    found = best_actions(CLIFF.mdp, expected(CLIFF))
    drawn = grid_map(CLIFF.mdp, CLIFF.reward, ["tip"] * 12, "Map", arrows(found, 0.5)).__html__()
    assert drawn.count('class="choice arrow') == len(found.pairs)
    assert drawn.count('class="choice arrow on') == len(found.best_at(0.5))
    assert drawn.count("<title>") == 12


def test_a_small_task_without_a_grid_is_a_graph_and_a_large_one_a_table() -> None:
    found = best_actions(TOY.mdp, expected(TOY))
    drawn = graph_map(TOY.mdp, ["tip"] * 4, "Graph", arrows(found, 0.5)).__html__()
    assert drawn.count("<circle") == 4
    assert drawn.count('<g class="choice') == len(found.pairs) + 1
    many = mh.domains.random_mdp(40, 2, seed=0)
    reward = np.random.default_rng(0).normal(size=(40, 2))
    assert graph_map(many, ["tip"] * 40, "Graph", arrows(best_actions(many, reward), 0.5)) is None


def test_layers_of_a_graph_follow_its_moves() -> None:
    """A chain stands in a row, whatever the order of its states, and one that recurs can be drawn too."""
    order = [2, 0, 3, 1]
    chain = np.zeros((1, 4, 4))
    for here, following in ((0, 1), (1, 2), (2, 3)):
        chain[0, order[here], order[following]] = 1
    mdp = mh.MDP(chain, initial=np.eye(4)[order[0]], terminal=[order[3]])
    drawn = graph_map(mdp, ["tip"] * 4, "Chain", arrows(best_actions(mdp, np.ones((4, 1))), 0.5)).__html__()
    places = [float(x) for x in re.findall(r'<circle [^>]*cx="([\d.]+)"', drawn)]
    assert [places[s] for s in order] == sorted(places)
    loop = np.array([[[0, 1.0], [1.0, 0]]])
    endless = mh.MDP(loop, initial=[1, 0])
    assert graph_map(endless, ["a", "b"], "Loop", arrows(best_actions(endless, np.ones((2, 1))), 0.5)) is not None


def test_the_slider_stores_numbers_only_and_starts_at_the_median() -> None:
    people = [Person(0, NASTY, 0.2), Person(1, "b", 0.6), Person(2, "c", 0.95)]
    drawn = explored(TOY, people)[0].__html__()
    data = json.loads(re.search(r"<script[^>]*>(.*?)</script>", drawn).group(1))
    assert data["start"] == 0.6
    assert data["steps"] is None
    assert data["farthest"] == 100
    assert data["changes"] == pytest.approx([0, 0.4322, 0.8764], abs=1e-4)
    assert "</script><b>" not in drawn
    assert "a0 up to 0.4322, a1 up to 0.8764, then a2" in drawn
    assert "a0 up to 1.8, a1 up to 8.1, then a2" in drawn


def test_a_task_that_is_too_large_says_so() -> None:
    assert "The task has 4 states" in explored(TOY, [], planned_states=3)[0]


def test_what_is_left_out_is_said() -> None:
    said = " ".join(explored(TOY, [], most_rows=2, exact_states=3)[1:])
    assert "the 2 states with the most decisions, of 3" in said
    assert "computed at" in said


def test_rulers_agree_on_order_and_ends() -> None:
    ruler = Ruler.over([0.1, 0.9, 0.995], Horizon())
    assert ruler.farthest == 1000
    places = [ruler.place(gamma, "steps") for gamma in (0.0, 0.3, 0.9, 0.99, 1.0)]
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == 1
    assert ruler.place(0.9, "steps") == pytest.approx(1 / 3)
    assert np.isnan(ruler.place(np.nan, "steps"))
    short = Ruler.over([0.5, 1.0], Horizon(3))
    assert short.farthest == 3
    assert short.place(1.0, "steps") == 1
    assert Ruler.over([], Horizon(1)).farthest == 2


def test_data_cannot_end_their_block() -> None:
    block = explored(TOY, [])[0]
    drawn = replace(block, data=block.data | {"label": NASTY, "number": 1.5}).__html__()
    inner = re.search(r'<script type="application/json">(.*?)</script>', drawn).group(1)
    assert not set("<>&\u2028\u2029") & set(inner)
    assert json.loads(inner) | {"label": NASTY, "number": 1.5} == json.loads(inner)
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(block, data=block.data | {"number": float("nan")}).__html__()


def test_labels_are_text_wherever_they_stand() -> None:
    mark = Mark(0.5, 0.5, NASTY, [0])
    page = Page(
        NASTY,
        NASTY,
        [
            Section(NASTY, [TableBlock(Table.of([NASTY], [[NASTY], [Either(NASTY, "1")]], NASTY), [[0], []])]),
            Section("b", [Chart(NASTY, [Panel(Axis(NASTY), Axis(NASTY), [mark])])]),
        ],
        NASTY,
        experts=[(0, NASTY), (1, "b")],
    ).render()
    assert "<b>" not in page
    assert "\u202e" not in page
    assert page.count("<script") == 1
    assert page.count("&lt;/script&gt;&lt;b&gt;") == page.count("&lt;/script&gt;")


def test_the_script_writes_no_markup_and_loads_nothing() -> None:
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "fetch(",
        "XMLHttp",
        "import(",
        "://",
    ):
        assert forbidden not in script()


def test_templates_escape_everything() -> None:
    sources = [templates().loader.get_source(templates(), name)[0] for name in templates().list_templates()]
    assert len(sources) > 3
    assert templates().autoescape is True
    assert not [source for source in sources if "safe" in source or "autoescape" in source]


def test_rows_columns_and_marks_say_whose_they_are() -> None:
    drawn = TableBlock(Table.of(["a", "b"], [[1, 2], [3, 4]]), [[7], [7, 8]], [[], [5]]).__html__()
    assert '<tr data-experts="7">' in drawn
    assert '<tr data-experts="7 8">' in drawn
    assert drawn.count('data-experts="5"') == 3
    marks = [Mark(0.1, 0.2, "t", [3]), Mark(0.1, 0.2, "t", [4], across=(0.0, 0.3))]
    both = Chart("c", [Panel(Axis("x"), Axis("y"), marks)]).__html__()
    assert 'data-experts="3"' in both
    assert 'data-experts="4"' in both


def test_a_page_does_not_depend_on_the_order_of_experts() -> None:
    """The same experts in another order have the same table and slider, apart from their numbers."""
    people = [Person(0, "a", 0.2), Person(1, "b", 0.6)]
    swapped = [Person(1, "a", 0.2), Person(0, "b", 0.6)]
    one, two = (re.sub(r' data-experts="\d"', "", explored(CLIFF, who)[0].__html__()) for who in (people, swapped))
    assert one == two


def luminance(colour: tuple[float, ...]) -> float:
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("kind", ["mark", "minus"])
def test_numbers_can_be_read_on_the_darkest_cell(theme, kind) -> None:
    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w{6}, #\w{6})\)", asset("page.css").split("}")[0]))
    ink, paper, fill = (
        tuple(int(pairs[name].split(", ")[theme][i : i + 2], 16) for i in (1, 3, 5)) for name in ("ink", "paper", kind)
    )
    cell = tuple(DARKEST * f + (1 - DARKEST) * p for f, p in zip(fill, paper, strict=True))
    low, high = sorted([luminance(ink), luminance(cell)])
    assert (high + 0.05) / (low + 0.05) >= 4.5
