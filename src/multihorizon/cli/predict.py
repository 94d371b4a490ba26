"""`multihorizon predict`: from the folder of a fit to what its people will do when something changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from multihorizon.cli.console import checked, discounts_of, features_in, out, progress_bar, show_remarks
from multihorizon.cli.options import PredictOptions
from multihorizon.data.side_tables import (
    read_first_states,
    read_forbidden,
    read_pay,
    read_restricted,
    read_transitions,
)
from multihorizon.exact.identify import Identification
from multihorizon.questions.horizons import identify_fitted
from multihorizon.questions.whatif.nudge import Nudge, nudge, state_and_action
from multihorizon.questions.whatif.predict import NOT_BOUNDED, Prediction
from multihorizon.questions.whatif.predict import predict as predicted
from multihorizon.report.files import read_fit
from multihorizon.report.pages import (
    FEW,
    NUDGE,
    WHATIF,
    bonuses,
    changes_in_words,
    choices_of_many,
    largest_changes,
    outcomes_of_many,
    outcomes_table,
    verdict,
    write_whatif,
)
from multihorizon.solution import Solution

#: As many experts have rows of their own.
LISTED_EXPERTS = 60
#: How many rows of each table the terminal shows; `whatif.csv` has all.
SHOWN = 12


def predict(options: PredictOptions) -> None:
    """Say what people will do when something changes: a bonus, a ban, another task, another discount.

    Changes combine. Each answer is identified, bounded or not bounded by the decisions that were fitted.
    """
    with checked(options, WHATIF if options.nudge is None else NUDGE):
        given = {name: getattr(options, name) for name in ("pay", "forbid", "transitions", "initial", "discount")}
        if options.nudge is None and not any(given.values()):
            raise ValueError(f"something must change: give --{', --'.join(given)} or --nudge, received none")
        if options.nudge is None and options.chance is not None:
            raise ValueError("--chance must come with --nudge, which says what it is the chance of, received none")
        if options.features is not None and options.transitions is None:
            raise ValueError("--features must come with --transitions, whose states they describe, received none")
        others = ("pay", "forbid", "transitions", "discount", "restrict", "reach")
        wrong = next((name for name in others if getattr(options, name)), None) if options.nudge is not None else None
        if wrong is not None:
            raise ValueError(f"--nudge must come without --{wrong}: it asks for a bonus in the task as it is, received both")
        solution, fitted = read_fit(options.result)
        remarks = [f"The report of the fit warns: {text}" for text in fitted.get("warnings") or ()]
        changes, source = _changes(solution, options), _source(solution, options, remarks)
        persons: Literal["each", "groups"] = "groups" if options.typical else "each"
        with progress_bar("predict") as progress:
            how: dict[str, Any] = {"persons": persons, "seed": options.seed, "jobs": options.jobs, "progress": progress}
            found: Prediction | Nudge
            if options.nudge is None:
                found = predicted(source, **changes, states=options.reach, **how)
            else:
                state, action = state_and_action(solution.problem.mdp, options.nudge)  # type: ignore[union-attr]
                chance = 0.5 if options.chance is None else options.chance
                found = nudge(source, state=state, action=action, chance=chance, initial=changes["initial"], **how)
        if isinstance(found, Prediction):
            if found.change.needs_reward and NOT_BOUNDED in found.status and options.restrict is None:
                remarks.append("If you know something of the reward, say it with --restrict: it may bound what follows.")
            _show(found)
        else:
            _show_nudge(found)
        show_remarks(remarks)
        if options.out_dir is not None:
            files = write_whatif(options.out_dir, found, _recorded(options), remarks)
            out.print(f"Written to {options.out_dir}: {', '.join(files)}", soft_wrap=True)
            out.print(f"Open {options.out_dir / files[-1]} in a browser.", soft_wrap=True)


def _source(solution: Solution, options: PredictOptions, remarks: list[str]) -> Solution | Identification:
    """What answers: the fit, or with restrictions all rewards that explain the policies it found."""
    if options.restrict is None:
        return solution
    if options.typical:
        raise ValueError("--restrict must come without --typical, received both")
    if solution.estimate.population is not None:
        raise ValueError("--restrict must come with a fit without --formula, received one with it: fit the same table without")
    found = identify_fitted(solution)
    if found is None:
        raise ValueError("--restrict needs to know which rewards explain the fitted policies, and this cannot be computed here")
    remarks.append(
        "With restrictions, the fitted policies are taken as exact: the answer is the range over all rewards that explain them "
        "and keep to the restrictions. The error of the fit is not in it."
    )
    return found


def _changes(solution: Solution, options: PredictOptions) -> dict[str, Any]:
    """What changes, from the files that the options name, with the names of the task checked."""
    assert solution.problem is not None
    after = None if options.transitions is None else read_transitions(options.transitions)
    task = solution.problem.mdp if after is None else after  # type: ignore[attr-defined]
    return {
        "pay": None if options.pay is None else read_pay(options.pay, task),
        "forbid": None if options.forbid is None else read_forbidden(options.forbid, task),
        "transitions": after,
        "features": None if options.features is None else features_in(options.features, task, solution.problem.parameter_names),
        "initial": None if options.initial is None else read_first_states(options.initial, task),
        "discount": discounts_of(options.discount),
        "restrictions": None if options.restrict is None else read_restricted(options.restrict, solution.problem.parameter_names),
    }


def _recorded(options: PredictOptions) -> dict[str, Any]:
    """What the files say about how they were made: names of files, never where they lie."""
    files = ("pay", "forbid", "transitions", "features", "initial", "restrict")
    named = {name: getattr(options, name) for name in files}
    return {
        "result": options.result.resolve().name,
        **{name: None if path is None else path.name for name, path in named.items()},
        "discount": options.discount,
        "reach": options.reach,
        "nudge": options.nudge,
        "chance": options.chance,
        "typical": options.typical or None,
        "seed": options.seed,
    }


def _show(found: Prediction) -> None:
    answer = verdict(found)
    for line in changes_in_words(found):
        out.print(line, soft_wrap=True)
    out.print(f"{answer.question} {answer.answer}. {answer.reasons}", soft_wrap=True)
    if len(found.experts) <= FEW:
        changes = largest_changes(found, SHOWN).select("expert", "state", "action", "before", "after", "low", "high", "status")
        every = outcomes_table(found)
        plain = every.frame[~every.frame["outcome"].str.startswith("discounted")]
        outcomes = replace(every, frame=plain).head(2 * SHOWN, "What comes of it")
    else:
        changes, outcomes = choices_of_many(found, SHOWN), outcomes_of_many(found, SHOWN)
    out.print(changes.rich() if len(changes.frame) else "No choice changes.")
    if len(outcomes.frame):
        out.print(outcomes.rich())
    out.print(found.unit, soft_wrap=True)
    show_remarks(found.remarks)


def _show_nudge(found: Nudge) -> None:
    question, *told = found.sentences().splitlines()
    out.print(question, soft_wrap=True)
    out.print(bonuses(found, LISTED_EXPERTS).rich())
    for line in told:
        if not line.startswith("  "):
            out.print(line, soft_wrap=True)
