"""Every question is asked of every kind of solution, on tiny tasks: it has an answer, or one sentence says why not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from tiny import PAYS, Asked, tiny_solutions

import multihorizon as mh
from multihorizon.questions.sharing import shared_goal_test
from multihorizon.result import Result

OF_SOLUTIONS: dict[str, Callable[[Asked], Any]] = {
    "intervals": lambda of: of.solution.confidence_intervals(0.95),
    "shared discount": lambda of: mh.shared_discount_test(of.solution),
    "pairs": lambda of: mh.pairwise_tests(of.solution),
    "shared goal": lambda of: shared_goal_test(of.solution, 19),
    "goals compared": lambda of: mh.compare_goals(of.solution, of.table),
    "bootstrap": lambda of: mh.bootstrap(of.solution, 2),
    "model": lambda of: mh.check_model(of.solution, of.table),
    "study": lambda of: mh.simulate_study(
        of.solution, demonstrations=of.table, decisions=[], people=[] if of.solution.solver == "Population" else None, studies=2
    ),
    "functions": lambda of: mh.reward_functions(of.solution),
    "what if": lambda of: mh.predict(of.solution, initial=None),
    "nudge": lambda of: mh.nudge(of.solution, state="1"),
    "posterior": lambda of: mh.posterior(of.solution, draws=4, tune=4, chains=1),
}


def carry_over(of: Asked) -> Any:
    """The question on decisions of which every other episode was made on a Monday."""
    if of.solution.solver == "SieveLikelihood":
        return mh.carry_over(of.solution.problem, of.table, "day")
    rows = of.table.to_frame()
    rows["day"] = np.where(rows["episode"].astype(int) % 2, "Monday", "Friday")
    under, problem = mh.Demonstrations.from_frame(rows, conditions=["day"]), of.solution.require_problem()
    return mh.carry_over(mh.Problem(problem.mdp, under, arrival_features=PAYS[:, None]), under, "day")


OF_PROBLEMS: dict[str, Callable[[Asked], Any]] = {
    "goals": lambda of: mh.goals(of.solution.problem, draws=19),
    "families": lambda of: mh.compare_lookahead(of.solution.problem, [mh.Exponential()]),
    "identified": lambda of: mh.identify(of.solution.problem),
    "carrying over": carry_over,
}
QUESTIONS = OF_SOLUTIONS | OF_PROBLEMS
KINDS = ("lists", "deviations", "look-ahead", "population", "vectors")
#: What is said where a question has no answer for a kind of solution.
NO_DISCOUNT = {"look-ahead": "hyperbolic look-ahead has no single discount", "population": "come from one distribution"}
REFUSED = {
    "shared discount": NO_DISCOUNT,
    "pairs": NO_DISCOUNT,
    "shared goal": NO_DISCOUNT | {"vectors": "needs states in a list"},
    "goals compared": NO_DISCOUNT | {"vectors": "needs states in a list"},
    "bootstrap": NO_DISCOUNT | {"vectors": "needs states in a list"},
    "model": NO_DISCOUNT | {"vectors": "needs states in a list"},
    "study": {
        "look-ahead": "must have discounts to recover",
        "vectors": "this needs a solution of MaximumLikelihood or Population",
    },
    "functions": dict.fromkeys(KINDS[:4], "needs a solution of SieveLikelihood"),
    "what if": {"look-ahead": NO_DISCOUNT["look-ahead"], "vectors": "needs a problem with a finite task"},
    "nudge": {"look-ahead": NO_DISCOUNT["look-ahead"], "vectors": "needs a problem with a finite task"},
    "posterior": {"vectors": "its states are vectors", "deviations": "needs one reward for all"},
    "goals": {"vectors": "needs a problem with a finite task"},
    "families": {"vectors": "needs a problem with a finite task"},
    "identified": {"vectors": "needs a problem with a finite task"},
    "carrying over": {"vectors": "needs a problem with a finite task"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "kind"),
    [*product(OF_SOLUTIONS, KINDS), *product(OF_PROBLEMS, ("lists", "vectors"))],
)
def test_every_question_has_an_answer_or_a_reason(question: str, kind: str) -> None:
    of = tiny_solutions()[kind]
    reason = REFUSED.get(question, {}).get(kind)
    if question == "posterior":
        pytest.importorskip("nutpie", reason="nutpie is not installed", exc_type=ImportError)
    if reason is None:
        found = QUESTIONS[question](of)
        if question == "posterior":  # draws come as ArviZ keeps them
            assert set(found["posterior"].sizes) >= {"chain", "draw", "expert"}
            return
        assert found.shape == (len(of.solution.experts), 2) if question == "intervals" else isinstance(found, Result)
        return
    with pytest.raises(ValueError, match=reason) as refusal:
        QUESTIONS[question](of)
    assert "\n" not in str(refusal.value)
