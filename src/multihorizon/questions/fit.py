"""May a fit be believed? Whether the model fits, the experts share a goal, their reward depends on states alone, and what a
reader must know before any number.

*Worse than a baseline.* Where two halves of the decisions predict each other, p needless parameters lose about p units of
log-likelihood in total, give or take `√(2p)`. A model that loses more than `p + 3√(2p)` against a simpler one predicts
worse than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.choice.model import DENSE_REWARDS
from multihorizon.likelihood.clusters import WithinEpisodes
from multihorizon.likelihood.evidence import LikelihoodEvidence, SieveEvidence, unpredicted
from multihorizon.likelihood.intervals import Contrasts
from multihorizon.likelihood.state_reward import StateRewardTest
from multihorizon.parallel import Progress
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.population.types import open_words
from multihorizon.questions.fitted import Asked, F, Fitted, held_rewards, named, nobody_better_than_chance, penalty_words
from multihorizon.questions.goal_comparison import GoalCheck, GoalComparison, compare_goals, policies_apart
from multihorizon.questions.goals import group_experts
from multihorizon.questions.model_checks import (
    MODELS,
    WORST,
    Extent,
    ModelChecks,
    check_model,
    compared_choices,
    extent,
    extent_words,
    fit_answer,
    misfits,
    overall_words,
)
from multihorizon.questions.people import ALONE, People, check_population
from multihorizon.questions.shared_goal import SharedGoalTest, state_reward_test
from multihorizon.solution import Solution, Status
from multihorizon.words import FORM_ALONE, LEVEL, Finding, Kind, count, in_words, p_text, percent

QUESTION = "Does the model fit?"
#: What a reader must know where the model does not fit.
NO_FIT = "The model does not fit these decisions, so discounts and reward may be wrong, whatever the intervals say."
#: What is said of a fit that gave no answer.
OPEN = Finding(QUESTION, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")


def model_fit(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding:
    """Say whether the model fits."""
    return replace(_model_fit(fitted), content=content(fitted))


def _model_fit(fitted: Fitted) -> Finding:
    """Say it of people together, of states that are vectors, or of a list of states."""
    if fitted.people is not None:
        return _of_people(fitted, fitted.people)
    if fitted.sieve is not None:
        return _of_vectors(fitted, fitted.sieve)
    how, compared = extent(fitted.misfits), fitted.compared
    if compared is None:
        reasons = (
            "Persons have rewards of their own in this population, or conditions that are not known: there is no check of it."
        )
        return Finding(QUESTION, "Not tested", reasons, "caution")
    if not fitted.chance.any():
        return Finding(QUESTION, "Not tested", "There was nothing to choose: each state has a single action.", "caution")
    if fitted.checks is None:
        return Finding(QUESTION, "Not checked", "Whether the model predicts new decisions was not checked.", "caution")
    return _of_lists(fitted, _reported(fitted, fitted.checks), how, compared.repeat)


def _of_lists(fitted: Fitted, checks: ModelChecks, how: Extent, repeat: bool) -> Finding:
    """Say whether the model predicts new decisions, better than simpler models and as well as the experts' own habits."""
    judged = np.where(fitted.unpredicted, 0.0, checks.decisions)
    total = {name: float(values @ judged) for name, values in checks.held_out.items()}
    number = float(judged.sum())

    def per_decision(value: float) -> str:  # three decimals, and more where these would show nothing
        each = value / number
        return f"{each:.3f}" if abs(each) >= 0.01 else np.format_float_positional(each, precision=2, fractional=False, trim="-")

    gain = total["this model"] - float(fitted.chance @ judged)
    worse = _worse(fitted, checks)
    if gain <= 0:
        worse = worse or "The model predicts held-out decisions no better than chance."
    surely, perhaps, together = _within_episodes(checks.within)
    if surely:
        return Finding(QUESTION, "No", f"The model does not fit: {together} {worse}".strip(), "bad", checks)
    if worse:
        return Finding(QUESTION, "No", worse, "bad", checks)
    if fitted.withheld:
        return OPEN
    lost = total["own frequencies"] - total["this model"]
    if repeat and lost > 3 * np.sqrt(2 * (fitted.estimated_rewards + len(checks.experts))):
        reasons = (
            "The model does not fit: each expert's own habits predict held-out decisions better, by "
            f"{per_decision(lost)} in log-likelihood per decision. {_not_explained(fitted)}"
        )
        return Finding(QUESTION, "No", reasons, "bad", checks)
    better = f"it predicts held-out decisions better than chance, by {per_decision(gain)} in log-likelihood per decision"
    answer = fit_answer(how, checks.overall)
    if how.odd:
        where = "does not fit" if how.answer == "No" else f"fits {how.answer[0].lower()}{how.answer[1:]}"
        reasons = f"The model {where}: {better}. {extent_words(fitted.misfits)}"
        reasons += "" if answer == how.answer else f" {overall_words(checks.overall)}"
        reasons += f" Besides, {together}" if perhaps else together
        return Finding(QUESTION, answer, reasons, "bad" if how.answer == "No" else "caution", checks)
    alone = "no state stands out" if how.compared else "no state repeats often enough to be compared alone"
    if perhaps:
        reasons = f"State by state the model fits: {better}, and {alone}. But {together}"
        return Finding(QUESTION, "Perhaps not", reasons, "caution", checks)
    if answer != "No misfit detected":
        overall = overall_words(checks.overall, begin=False)
        reasons = f"State by state the model fits: {better}, and {alone}. But {overall}{together}"
        return Finding(QUESTION, answer, reasons, "caution", checks)
    reasons = f"No misfit was detected: {better}, and {alone}. {overall_words(checks.overall)}{together}"
    return Finding(QUESTION, answer, reasons, "good", checks)


def _within_episodes(within: WithinEpisodes) -> tuple[bool, bool, str]:
    """Return whether choices of one episode surely, or perhaps, go together, and what that means."""
    surely, perhaps = within.p_value <= 0.001, within.p_value <= 1 - LEVEL
    if within.reason:
        return (
            surely,
            perhaps,
            f" Whether something outside the state column changes between episodes was not tested: {within.reason}.",
        )
    if not perhaps:
        return surely, perhaps, ""
    return (
        surely,
        perhaps,
        f"choices of one episode go together more than their states explain (p {'≤' if surely else '='} "
        f"{within.p_value:.3f}). So something outside the state column, such as the goal, "
        f"{'changes' if surely else 'may change'} between episodes; if it was recorded, make it part of the state.",
    )


def _not_explained(fitted: Fitted) -> str:
    """Say why own habits may predict better."""
    if fitted.goals_differ:
        return "They do not share one goal."
    if fitted.deviations is not None:
        return "The experts do something that a nearly shared reward and one discount each cannot explain."
    return "The experts do something that one shared reward and one discount each cannot explain."


def _of_vectors(fitted: Fitted, evidence: SieveEvidence) -> Finding:
    """Say whether the model explains what the choices' own logits explain, and next states are predicted at all."""
    if nobody_better_than_chance(fitted):
        return Finding(QUESTION, "No", "The model explains the decisions no better than chance.", "bad")
    if fitted.withheld:
        return OPEN
    share, weak = evidence.explained_share, unpredicted(evidence.next_state_r2)
    reasons = (
        f"One reward and {count(len(fitted.solution.experts), 'discount')} explain {100 * share:.0f} % of what the same "
        "functions explain of the choices without any plan. Whether something outside the state changes between episodes was "
        "not tested."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= 0.95 and not weak
    return Finding(QUESTION, "Yes" if good else "In part", reasons, "good" if good else "caution")


def _of_people(fitted: Fitted, people: People) -> Finding:
    """Compare the decisions with choices at random; more is known of fewer persons."""
    number = people.evidence.decisions
    of_types = people.population.types is not None and people.solution.status == Status.NOT_IDENTIFIED
    if people.solution.status != Status.CONVERGED and not of_types:
        return OPEN
    ours, chance = people.evidence.log_likelihood / number, people.compared_chance / number
    reasons = f"A decision has a log-likelihood of {ours:.3f} on average, and {chance:.3f} by chance"
    if fitted.withheld and not of_types:
        return Finding(QUESTION, "No", f"{reasons}, which is no difference.", "bad")
    reasons += f": the model explains {percent(1 - ours / chance)} of it."
    if of_types or fitted.compared is None:
        return Finding(QUESTION, "Better than chance", f"{reasons} {people.not_done} {people.of_states}".strip(), "caution")
    how = extent(fitted.misfits)
    answer = fit_answer(how, people.overall)
    alone = "No state stands out." if how.compared else "No state was met often enough to be compared alone."
    states = extent_words(fitted.misfits) if how.odd else alone
    reasons = f"{reasons} {states} {overall_words(people.overall)} {people.not_done} {people.of_states}".strip()
    kind: Kind = "bad" if answer == "No" else "caution"
    return Finding(QUESTION, answer if how.compared else "Better than chance", reasons, kind, people.overall)


def _worse(fitted: Fitted, checks: ModelChecks) -> str:
    """Return the simpler model that predicts held-out decisions clearly better than the model that is reported, in words."""
    return predicts_worse(checks, fitted.chance, fitted.estimated_rewards, failed=fitted.unpredicted)


def _reported(fitted: Fitted, checks: ModelChecks) -> ModelChecks:
    """Return the checks of the model that is reported.

    Where one discount for all is open, no discount is given, and those of the experts are noise that costs more than their number
    says. What is reported is then the best of the models with a discount for each, with one for all, and with 0.
    """
    if fitted.reported_population is not None or not fitted.one_discount_is_open:
        return checks
    best = max(MODELS[:3], key=lambda name: float(checks.held_out[name] @ checks.decisions))
    return replace(checks, held_out={**checks.held_out, MODELS[0]: checks.held_out[best]})


def predicts_worse(
    checks: ModelChecks, chance: Floats, parameters: int, model: str = MODELS[0], failed: Sequence[bool] = ()
) -> str:
    """Return the simpler model that predicts held-out decisions clearly better than `model`, in words; empty if there is none.

    Those who `failed` alone have no answer, and are not judged with the others.
    """
    judged = np.where(failed, 0.0, checks.decisions) if failed else checks.decisions
    K = int((judged > 0).sum())
    ours = float(checks.held_out[model] @ judged)
    rivals = {
        "chance": (float(chance @ judged), K + parameters),
        "a model in which nobody looks ahead": (float(checks.held_out["discount 0"] @ judged), K),
        "a model with one discount for all": (float(checks.held_out["one shared discount"] @ judged), K - 1),
    }
    who = "The model predicts" if model == MODELS[0] else "Fitted one by one, experts predict"
    for name, (value, extra) in rivals.items():
        if extra and value - ours > extra + 3 * np.sqrt(2 * extra):
            return (
                f"{who} held-out decisions worse than {name}: their log-likelihood is lower by {value - ours:,.1f} in all "
                f"({judged.sum():,.0f} decisions)."
            )
    return ""


def content(fitted: Fitted) -> dict[str, Any]:
    """Return held-out predictions and the states that fit worst; own frequencies only where choices repeat."""
    if fitted.functions is not None:
        return {"model_checks": None}
    worst = {"worst_states": [misfit._asdict() for misfit in fitted.misfits[:WORST]]}
    if fitted.people is not None:
        return {"model_checks": worst | {"overall": None if fitted.withheld else fitted.people.overall._asdict()}}
    if fitted.checks is None:
        return {"model_checks": worst}
    checks = fitted.checks.to_dict()
    checks["held_out"]["chance"] = fitted.chance.tolist()
    if fitted.compared is None or not fitted.compared.repeat:
        del checks["held_out"]["own frequencies"]
    return {"model_checks": checks}


def check_fit(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add predictions of held-out episodes; a model that predicts worse than a simpler one is not to be used."""
    solution, reported = fitted.solution, fitted.reported_population
    try:
        if asked.population is None or reported is None:
            checks = check_model(solution, seed=asked.seed, progress=progress)
        else:
            checks = check_population(asked.population, reported, solution, seed=asked.seed, progress=progress)
    except ValueError as error:
        remark = f"The model was not checked on held-out episodes: {error}."
        yield replace(fitted, remarks=[*fitted.remarks, remark])
        return
    fitted = replace(fitted, checks=checks)
    yield replace(fitted, withheld=fitted.withheld or _worse(fitted, _reported(fitted, checks)))


NO_CHOICE = "Choices that are no likelier than by chance say nothing of goals."


def checked_goals(fitted: Fitted, test: SharedGoalTest) -> GoalCheck:
    """Return the test of one reward; where it rejects, how widely the model fits if each expert has a reward of their own."""
    solution = fitted.solution
    deviations = LikelihoodEvidence.of(solution).deviations
    apart = None
    if test.rejected:
        apart = extent(misfits(compared_choices(solution.require_problem(), policies_apart(solution))))
    nothing = GoalComparison(solution.experts, test, deviations, np.zeros(0, dtype=np.int64), {})
    at_random = NO_CHOICE if nobody_better_than_chance(fitted) else ""
    return GoalCheck(test, apart=apart, comparison=nothing, withheld=at_random)


def find_goals(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add one goal, nearly one and several on held-out episodes."""
    goals = fitted.goals
    if goals is None or fitted.checks is None:
        return
    if goals.test.rejected or (goals.comparison is not None and goals.comparison.deviations is not None):
        several = _few(fitted, asked)
        comparison = compare_goals(fitted.solution, several=several, test=goals.test, seed=asked.seed, progress=progress)
        yield replace(fitted, goals=replace(goals, comparison=comparison))


def find_groups(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add who shares a goal with whom, where goals differ."""
    goals = fitted.goals
    if goals is not None and goals.rejected and _few(fitted, asked):
        temperature = asked.likelihood.temperature
        together = group_experts(fitted.solution, goals.test, temperature, seed=asked.seed, progress=progress)
        yield replace(fitted, goals=replace(goals, groups=together))


def _few(fitted: Fitted, asked: Asked) -> bool:
    """Return whether groups of goals are looked for: with more experts or rewards, that takes long."""
    few = fitted.problem.n_experts <= 12 and fitted.problem.n_parameters <= 60
    return few and not any(fitted.known) and asked.likelihood.known_reward is None


def shared_goal(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding | None:
    """Say whether they share a goal; nothing where there was nothing to test."""
    goals = fitted.goals
    return None if goals is None else replace(goals.verdict, content={"goals": goals.to_dict()})


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


def reward_content(fitted: Fitted) -> dict[str, Any]:
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
        fitted = replace(fitted, withheld=test.why, goals=checked, population=None)
    yield fitted


def depends_on_states(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding | None:
    """Say whether the reward depends on the state reached alone; nothing where that is not assumed."""
    test = fitted.state_reward
    return None if test is None else replace(test.verdict, content={"state_reward": test.to_dict()})


def warnings_of(fitted: Fitted, answers: Mapping[str, Finding]) -> Iterator[str]:
    """Yield that no number may be used, or that an assumption is rejected; an empty text where there is nothing to say."""
    if fitted.withheld:
        yield _unusable(fitted)
    elif answers["fit"].answer == "No" and not fitted.goals_differ:
        yield NO_FIT
    if fitted.people is not None:
        return
    if fitted.goals is not None and fitted.goals_differ:
        yield f"The experts do not share one goal. {fitted.goals.verdict.reasons}"
    if not fitted.finished:
        yield "Stopped before the end: intervals, tests and model checks that are missing were not computed."
    if _one_temperature(fitted) and fitted.unequal_temperatures:
        yield (
            f"One temperature for all experts is rejected (p {p_text(fitted.evidence.equal_temperatures_p or 0.0)}): some of "
            "them choose more at random than others, and a shared temperature turns that into a difference of horizons. Let each "
            "expert have a temperature."
        )
    yield _lost_temperatures(fitted)
    if fitted.sieve is not None and fitted.sieve.basis_too_poor:
        yield "The basis is too poor: richer functions predict choices better, and the discounts may be far off."


def notes_of(fitted: Fitted) -> Iterator[str]:
    """Yield what leaves the numbers as they are, such as penalties; an empty text where there is nothing to say."""
    if fitted.people is not None:
        yield from _notes_of_people(fitted, fitted.people)
        return
    if fitted.goals is not None and fitted.goals.test.reason:
        yield f"Whether the experts share one reward was not tested: {fitted.goals.test.reason}."
    if fitted.functions is None and fitted.problem.by_form_alone and fitted.given[0] and not fitted.known[0]:
        yield "" if fitted.reward_given else FORM_ALONE
    if fitted.checks is not None and ALONE in fitted.checks.held_out:
        alone = predicts_worse(fitted.checks, fitted.chance, fitted.estimated_rewards, ALONE)
        yield alone and f"{alone} So do not use the discounts of single experts that were fitted alone, but the shrunken ones."
    yield "" if fitted.penalty is None else penalty_words(fitted.solution, fitted.penalty)
    yield "" if fitted.likelihood is None else held_rewards(fitted.likelihood.ridge_reason)


def _unusable(fitted: Fitted) -> str:
    """Say that no number may be used, and what usually helps."""
    text = f"Do not use these numbers. {fitted.withheld}"
    of_reward = fitted.state_reward is not None and fitted.withheld == fitted.state_reward.why
    if of_reward or fitted.people is not None:
        return text
    fewer = "fewer reward parameters (features)" if fitted.functions is None else "fewer basis functions"
    each = ", or a temperature for each expert," if _one_temperature(fitted) and len(fitted.given) > 1 else ","
    return f"{text} Intervals and tests are withheld. More decisions, or {fewer}{each} usually help."


def _one_temperature(fitted: Fitted) -> bool:
    """Return whether all experts have the same temperature."""
    return bool(np.ptp(np.asarray(fitted.solution.temperature)) == 0)


def _notes_of_people(fitted: Fitted, people: People) -> Iterator[str]:
    """Yield which types have no discount, and what holds the rewards."""
    types = people.population.types
    if types is not None and not all(types["identified"]) and not fitted.withheld:
        yield open_words(types)
    ridge = 0.0 if people.reward_given else people.solution.options.get("ridge")
    if ridge:
        yield f"A penalty on large rewards (ridge {ridge:g}) was asked for. What it moves is not known."
    yield held_rewards(people.evidence.ridge_reason)


def _lost_temperatures(fitted: Fitted) -> str:
    """Return what must be said where a known reward does not show how random the choices are."""
    regular = [fitted.solution.experts[k] for k in fitted.order if fitted.ranged[k]]
    lost = [fitted.solution.experts[k] for k in fitted.without_temperature]
    text = []
    if regular:
        text.append(
            f"{named(fitted, regular)} chose so regularly that no temperature is too low for them: their discounts are known to "
            "ranges at most, and not to numbers."
        )
    if lost:
        text.append(
            f"The temperature of {named(fitted, lost)} cannot be estimated, and neither can the discount: they chose without "
            "regard to the known reward, or it says nothing about their choices."
        )
    return " ".join(text)
