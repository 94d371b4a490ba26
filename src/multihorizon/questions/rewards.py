"""The reward that experts share, one row per parameter, whether it depends on states alone, and whether a fit may be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.choice.model import DENSE_REWARDS
from multihorizon.finding import Finding
from multihorizon.likelihood.intervals import Contrasts
from multihorizon.likelihood.state_reward import StateRewardTest
from multihorizon.parallel import Progress
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.questions.fitted import Asked, F, Fitted
from multihorizon.questions.state_reward import state_reward_test
from multihorizon.solution import Solution, Status


def reward_frame(fitted: Fitted) -> pd.DataFrame:
    """Return one row per parameter of the reward, by name, with its standard error.

    Where experts were fitted, also its difference (from the average logged step; of features from zero). NaN where the decisions
    do not determine them or they are withheld.
    """
    frame = fitted.solution.reward_frame().set_index("parameter").assign(standard_error=np.nan)
    hidden = np.nan if fitted.withheld else 1.0
    if fitted.people is not None:
        return frame.assign(standard_error=np.array(fitted.people.evidence.reward_standard_errors, dtype=np.float64)) * hidden
    if fitted.likelihood is not None:
        errors = np.array(fitted.likelihood.reward_standard_errors, dtype=np.float64)
        determined = np.isfinite(errors) | (errors.size > DENSE_REWARDS)  # of so many, errors are not computed
        determined &= fitted.solution.status != Status.NOT_IDENTIFIED
        frame = frame.assign(reward=frame["reward"].where(determined), standard_error=np.where(determined, errors, np.nan))
    frame["difference"], frame["difference_standard_error"] = fitted.contrasts.values, fitted.contrasts.standard_errors
    return frame * hidden


def content(fitted: Fitted) -> dict[str, Any]:
    """Return the reward, its standard errors and its differences, by name."""
    frame = reward_frame(fitted)
    one_by_one = fitted.functions is None and not fitted.reward_given
    errors = frame["standard_error"].to_dict() if one_by_one else None
    part = {"reward": frame["reward"].to_dict(), "reward_standard_errors": errors}
    if fitted.people is not None:
        return part
    names = {"difference": "estimate", "difference_standard_error": "standard_error"}
    differences = frame[[*names]].rename(columns=names).to_dict("index") if one_by_one else None
    coordinates = None if fitted.sieve is None else fitted.sieve.coordinates
    return {**part, "reward_contrasts": differences, "coordinates": coordinates}


def not_to_be_used(solution: Solution, contrasts: Contrasts | None = None) -> str:
    """Return why a fit is no finding; empty where it is one. `contrasts` are rewards of states or features, which may run
    away."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit did not finish, so these numbers are only where the search stood when it was stopped."
    if contrasts is None:
        return ""
    # A difference of 100 temperatures makes the odds of a choice e^100: if its error is as large, no decision holds it back.
    most = 100.0 * (1.0 if solution.temperature is None else float(np.max(solution.temperature)))
    problem = solution.require_problem()
    sizes = problem.reward_sizes  # the largest value of each feature, whose reward it is that matters
    values, errors = sizes * np.abs(contrasts.values), sizes * contrasts.standard_errors
    if ((values > most) & (errors > most)).any():
        size = float(np.nanmax(values))
        return f"A reward runs away: it reaches {size:,.0f}, and no decision in the table holds it back."
    return ""


def check_state_reward(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add the test that the reward depends on the state reached alone, and take away what does not hold without that.

    Where the same persons decided under conditions, only the population knows of these, so its test counts.
    """
    compared = None if fitted.population is None else PopulationEvidence.of(fitted.population).population
    of_persons = None if compared is None or compared.state_reward is None else StateRewardTest.read(compared.state_reward)
    test = of_persons
    if fitted.penalty is not None and fitted.withheld:
        test = StateRewardTest.untested("the penalty on large rewards sets the answer")
    elif compared is None or not compared.conditions:
        goals = None if fitted.goals is None else fitted.goals.test
        of_fit = state_reward_test(fitted.solution, goals, seed=asked.seed, jobs=asked.jobs, progress=progress)
        test = of_fit if of_persons is None or not of_persons.clear else of_persons
    fitted = replace(fitted, state_reward=test)
    if test is not None and test.clear:
        checked = None if fitted.goals is None else replace(fitted.goals, withheld=test.why)
        fitted = replace(fitted, withheld=fitted.withheld or test.why, goals=checked, population=None)
    yield fitted


def depends_on_states(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding | None:
    """Say whether the reward depends on the state reached alone; nothing where that is not assumed."""
    test = fitted.state_reward
    return None if test is None else replace(test.verdict, content={"state_reward": test.to_dict()})
