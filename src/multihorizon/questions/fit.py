"""Does the model fit? The answer in words, from checks on held-out decisions, single states and all choices together.

*Worse than a baseline.* Where two halves of the decisions predict each other, p needless parameters lose about p units of
log-likelihood in total, give or take `√(2p)`. A model that loses more than `p + 3√(2p)` against a simpler one predicts
worse than it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.finding import Finding, Kind
from multihorizon.likelihood.clusters import WithinEpisodes
from multihorizon.likelihood.evidence import SieveEvidence, unpredicted
from multihorizon.parallel import Progress
from multihorizon.questions.fitted import Asked, F, Fitted, nobody_better_than_chance
from multihorizon.questions.model_checks import MODELS, WORST, Extent, ModelChecks, check_model, extent, extent_words, fit_answer
from multihorizon.questions.overall_fit import overall_words
from multihorizon.questions.people import People
from multihorizon.questions.population_choices import check_population
from multihorizon.solution import Status
from multihorizon.words import LEVEL, count, in_words, percent

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
