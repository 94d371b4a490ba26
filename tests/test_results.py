"""What every result can do: say, list, save, show, print and draw what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from conditions import under_conditions
from markdown_it import MarkdownIt
from tiny import PAYS, three_steps, tiny_solutions

import multihorizon as mh
from multihorizon.analysis import of_people
from multihorizon.data.check import TableCheck, check_table
from multihorizon.questions.sharing import shared_goal_test, state_reward_test
from multihorizon.result import Result
from multihorizon.words import Table

mpl.use("Agg")


def of(kind: str = "lists") -> mh.Solution:
    """A small solution of this kind."""
    return tiny_solutions()[kind].solution


def table() -> mh.Demonstrations:
    """The decisions of the small task."""
    return tiny_solutions()["lists"].table


def checked() -> TableCheck:
    """A look at the same decisions in a file, with one of them twice."""
    rows = table().to_frame()
    with TemporaryDirectory() as folder:
        pd.concat([rows, rows.iloc[:1]]).to_csv(Path(folder) / "log.csv", index=False)
        return check_table(Path(folder) / "log.csv")


def carried() -> Result:
    """The same decisions, every other episode of which was made on a Monday."""
    rows = table().to_frame()
    rows["day"] = np.where(rows["episode"].astype(int) % 2, "Monday", "Friday")
    under = mh.Demonstrations.from_frame(rows, conditions=["day"])
    return mh.carry_over(mh.Problem(of().require_problem().mdp, under), under, "day", known_reward=PAYS)


RESULTS: dict[str, Callable[[], Result]] = {
    "Solution": of,
    "Solution with deviations": lambda: of("deviations"),
    "Solution of look-ahead": lambda: of("look-ahead"),
    "Solution of a population": lambda: of("population"),
    "Solution under conditions": lambda: under_conditions(of("population"), persons=6),
    "Solution of types": lambda: mh.solve(of().require_problem(), mh.Population(distribution="types", types=1)),
    "Solution of vectors": lambda: of("vectors"),
    "Identification": lambda: mh.identify(of().require_problem()),
    "RewardFunctions": lambda: mh.reward_functions(of("vectors")),
    "SharedGoalTest": lambda: shared_goal_test(of(), 19),
    "StateRewardTest": lambda: state_reward_test(of()),
    "Goals": lambda: mh.goals(of().require_problem(), draws=19),
    "Goals of policies": lambda: mh.goals(mh.Problem(of().require_problem().mdp, of().policies())),
    "GoalComparison": lambda: mh.compare_goals(of("deviations"), table()),
    "Bootstrap": lambda: mh.bootstrap(of(), 3),
    "ModelChecks": lambda: mh.check_model(of(), table()),
    "Robustness": lambda: mh.robustness(of(), rivals=["values by the best action"]),
    "LookaheadComparison": lambda: mh.compare_lookahead(of().require_problem(), [mh.Exponential()]),
    "CarryingOver": carried,
    "SharedDiscountTest": lambda: mh.shared_discount_test(of()),
    "PairwiseTests": lambda: mh.pairwise_tests(of()),
    "Recovery": lambda: mh.simulate_study(of(), demonstrations=table(), decisions=[], studies=2),
    "Design": lambda: mh.design(None, of(), episodes=50, draws=2),
    "GeneralizationError": lambda: mh.generalization_error(mh.domains.toy(), mh.domains.toy().reward, tasks=2),
    "TrackedPerson": lambda: mh.track(of("population")).update("6", "0"),
    "Prediction": lambda: mh.predict(of(), pay={"1": 1.0}),
    "Nudge": lambda: mh.nudge(of(), state="1", chance=0.8),
    "TableCheck": checked,
    "Analysis": lambda: mh.analyse([table()], [of().require_problem().mdp], quick=True),
    "Analysis of people": lambda: of_people(of("population"), of("population").require_problem(), 3, []),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_says_lists_saves_shows_and_draws_what_was_found(name: str, tmp_path: Path) -> None:
    found = RESULTS[name]()
    assert type(found).__name__ == name.split()[0]
    assert found.sentences().strip()
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) > 0
    for table in (found.to_polars(), found.to_arrow()):
        assert table.shape == frame.shape
    found.to_json(tmp_path / "result.json")
    content = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["version"] == mh.__version__
    check_all_ways(found, ())
    axes = found.plot()
    assert axes.figure.get_size_inches()[0] == 3.5
    mpl.pyplot.close(axes.figure)
    own = mpl.figure.Figure(figsize=(7, 4)).subplots()
    assert found.plot(own) is own


class Cells(HTMLParser):
    """The tables of a piece of HTML as lists of rows of cells, all its text, and the names of its elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.text, self.tags, self.open = "", set[str](), list[str]()
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert all(
            name in ("class", "viewbox", "aria-hidden", "d", "style") or tag in ("svg", "path", "circle") for name, _ in attrs
        )
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


#: What LaTeX prints for what `to_latex` writes.
PRINTED = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textquotedbl{}": '"',
    r"\textasciigrave{}": "`",
    r"\ldots{}": "…",
    r"$\infty$": "∞",
    "$-$": "-",
    "$<$": "<",
    "--": "–",
    **{rf"\{c}": c for c in "&%$#_{}"},
    **{f"{{{c}}}": c for c in "[]*-"},
}


def printed(latex: str) -> list[list[str]]:
    """The cells of a table as LaTeX prints them; a sign that means something to LaTeX and is not written out is an error."""
    body = latex.split("\\toprule\n")[1].split("\\bottomrule")[0].replace("\\midrule\n", "")
    rows: list[list[str]] = []
    for line in body.splitlines():
        assert line.endswith(r" \\")
        rest, cells = line.removesuffix(r" \\"), [""]
        while rest:
            if rest.startswith(" & "):
                cells.append("")
                rest = rest[3:]
                continue
            token = next((known for known in PRINTED if rest.startswith(known)), rest[0])
            assert token in PRINTED or token not in "\\&%$#_{}~^", f"{token} in {line}"
            cells[-1] += PRINTED.get(token, token)
            rest = rest[len(token) :]
        rows.append(cells)
    return rows


def check_all_ways(found: Result, labels: tuple[str, ...]) -> None:
    """HTML, LaTeX, Markdown and text are sound, have the same cells in the same digits, and show these labels as they are."""
    summary = found.summary()
    html = Cells(found._repr_html_())
    inside = {"table", "caption", "thead", "tbody", "tr", "th", "td", "span", "svg", "path", "circle"}
    assert html.tags <= {"div", "style", "p", "b", *inside}
    for line in found.sentences().splitlines():
        assert " ".join(line.split()) in " ".join(summary.split())
        assert line in html.text
    markdown = Cells(MarkdownIt("commonmark").enable("table").render(found.to_markdown()))
    assert markdown.tags == {"table", "thead", "tbody", "tr", "th", "td"}
    latex = printed(found.to_latex())
    cells = markdown.tables[0]
    assert latex == cells
    # A notebook and a terminal show the first rows, and a notebook a small picture beside them.
    shown = cells[:21]
    assert any([row[: len(cells[0])] for row in table] == shown for table in html.tables)
    for row in shown:
        assert " ".join(" ".join(row).split()) in " ".join(summary.split()), row
    for label in labels:
        assert label in {cell for row in cells for cell in row}
        assert label in html.text
        assert label in summary


HOSTILE = ("<script>alert(1)</script>", r"50% & \textbf{_x_} #1 ~^", '$a|b$ `c` *d* [e](f) -- "g"')


@pytest.mark.slow
def test_labels_can_neither_break_a_table_nor_run() -> None:
    mdp = three_steps()
    names = [f"{HOSTILE[i % 3]} {i}" for i in range(8)]
    task = mh.MDP(
        np.stack([mdp.transition(a).toarray() for a in range(2)]),
        initial=mdp.initial,
        terminal=mdp.terminal,
        state_names=names,
        action_names=["[stay]", "*go*|"],
    )
    policies = [mh.soft_plan(task, PAYS, discount).policy for discount in (0.2, 0.5, 0.9)]
    walks = mh.Demonstrations.simulate(task, policies, 40, names=HOSTILE, seed=0)
    problem = mh.Problem(task, walks, arrival_features=PAYS[:, None])
    solution = mh.solve(problem, mh.MaximumLikelihood(1.0, starts=1))
    found: list[Result] = [
        solution,
        mh.identify(problem),
        mh.check_model(solution, walks),
        mh.nudge(solution, state=names[1], chance=0.8),
        mh.goals(mh.Problem(task, policies, names=HOSTILE)),
    ]
    for result in found:
        check_all_ways(result, HOSTILE)
        mpl.pyplot.close(result.plot().figure)
    check_all_ways(mh.predict(solution, pay={names[1]: 1.0}), (*HOSTILE, "[stay]", "*go*|"))
    check_all_ways(mh.pairwise_tests(solution), (f"{HOSTILE[0]}, {HOSTILE[1]}",))
    many = mh.Demonstrations.simulate(task, [*policies, *policies], 40, names=[*HOSTILE, "x", "y", "z"], seed=0)
    persons = pd.DataFrame({"expert": many.experts, "a_b": ["\\", "$&_"] * 3})
    groups = mh.solve(mh.Problem(task, many, arrival_features=PAYS[:, None]), mh.Population("~ a_b", persons, nodes=5))
    check_all_ways(groups, ("Intercept", "a_b[T.\\]"))
    mpl.pyplot.close(groups.plot().figure)


def test_headings_are_shown_as_users_wrote_them() -> None:
    table = Table(pd.DataFrame({"x_1|$": [1.5], "standard_error": [0.25]}), labels=["x_1|$"])
    assert table.text()[0].split("  ") == ["x_1|$", "standard error"]
    assert table.markdown().startswith(r"| x\_1\|\$ | standard error |")
    assert printed(table.latex())[0] == ["x_1|$", "standard error"]


@pytest.mark.parametrize("label", ["a\nb", "tab\tbed", "\u202eturned", "王小明", ""])
def test_a_label_stays_in_its_cell_and_beneath_its_heading(label: str) -> None:
    table = Table(pd.DataFrame({"expert": [label, "Bo"], "discount": [0.5, 0.25]}), drawn=("discount",))
    assert "\u202e" not in table.html() + table.latex() + table.markdown() + "".join(table.text())
    assert len(table.text()) == 4
    assert len(table.markdown().splitlines()) == 4
    assert len(printed(table.latex())) == 3
    assert table.text()[3].startswith("Bo ")


def test_what_is_shown_without_being_asked_for_computes_no_intervals(tmp_path: Path) -> None:
    fitted = mh.solve(of().require_problem(), mh.MaximumLikelihood(1.0, starts=1))
    source = fitted.interval_source
    assert source is not None
    assert " low " not in str(fitted)
    assert '<th class="mh-number">low</th>' not in fitted._repr_html_()
    assert not source.computed
    fitted.to_json(tmp_path / "without.json")
    assert mh.Solution.from_json(tmp_path / "without.json").summary() == str(mh.Solution.from_json(tmp_path / "without.json"))
    assert "discounts, with 95% CIs" in fitted.summary()
    assert list(source.computed) == [0.95]
    assert fitted.summary() == str(fitted)
    assert '<th class="mh-number">low</th>' in fitted._repr_html_()


def test_a_table_is_asked_for_by_its_caption() -> None:
    assert of().to_markdown("discounts") == of().to_markdown()
    assert of().to_latex("reward").splitlines()[2] == r"parameter & reward & standard error \\"
    with pytest.raises(ValueError, match=r"^table must be one of 'discounts', 'reward', got 'rewards'$"):
        of().to_latex("rewards")


def test_every_result_of_the_package_is_asked() -> None:
    for module in walk_packages(mh.__path__, "multihorizon."):
        if not module.name.endswith("__main__"):
            import_module(module.name)

    def kinds(base: type) -> Iterator[type]:
        for kind in base.__subclasses__():
            yield kind
            yield from kinds(kind)

    assert {kind.__name__ for kind in kinds(Result)} == {name.split()[0] for name in RESULTS}


def test_tests_of_pairs_are_a_sequence() -> None:
    pairs = mh.pairwise_tests(of())
    assert [test.experts for test in pairs] == [("0", "1"), ("0", "2"), ("1", "2")]
    assert pairs[0] is next(iter(pairs))
    assert len(pairs[1:]) == len(pairs) - 1
