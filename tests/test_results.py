"""What every result can do: say, list, save, show and draw what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from tiny import PAYS, tiny_solutions

import multihorizon as mh
from multihorizon.crowd import crowd_analysis
from multihorizon.data.check import TableCheck, check_table
from multihorizon.problem import Crowd
from multihorizon.questions.shared_goal import shared_goal_test
from multihorizon.result import Result

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
    "Solution of vectors": lambda: of("vectors"),
    "Identification": lambda: mh.identify(of().require_problem()),
    "RewardFunctions": lambda: mh.reward_functions(of("vectors")),
    "SharedGoalTest": lambda: shared_goal_test(of(), 19),
    "Goals": lambda: mh.goals(of().require_problem(), simulations=19),
    "Goals of policies": lambda: mh.goals(mh.Problem(of().require_problem().mdp, of().policies())),
    "GoalComparison": lambda: mh.compare_goals(of("deviations"), table()),
    "Bootstrap": lambda: mh.bootstrap(of(), 3),
    "ModelChecks": lambda: mh.check_model(of(), table()),
    "LookaheadComparison": lambda: mh.compare_lookahead(of().require_problem(), [mh.Exponential()]),
    "CarryingOver": carried,
    "SharedDiscountTest": lambda: mh.shared_discount_test(of()),
    "PairwiseTests": lambda: mh.pairwise_tests(of()),
    "Recovery": lambda: mh.simulate_study(of(), demonstrations=table(), decisions=[], studies=2),
    "GeneralizationError": lambda: mh.generalization_error(mh.domains.toy(), mh.domains.toy().reward, tasks=2),
    "TrackedPerson": lambda: mh.track(of("population")).update("6", "0"),
    "Prediction": lambda: mh.predict(of(), pay={"1": 1.0}),
    "Nudge": lambda: mh.nudge(of(), state="1", chance=0.8),
    "TableCheck": checked,
    "Analysis": lambda: mh.analyse([table()], [of().require_problem().mdp], quick=True),
    "CrowdAnalysis": lambda: crowd_analysis(of("population"), Crowd.of(of("population").require_problem()), 3, np.inf, []),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_says_lists_saves_shows_and_draws_what_was_found(name: str, tmp_path: Path) -> None:
    found = RESULTS[name]()
    assert type(found).__name__ == name.split()[0]
    assert found.summary().strip()
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) > 0
    found.to_json(tmp_path / "result.json")
    content = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["version"] == mh.__version__
    shown = found._repr_html_()
    assert "<table" in shown
    assert shown.count("<div") == shown.count("</div>")
    axes = found.plot()
    assert axes.figure is not None
    mpl.pyplot.close(axes.figure)


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
