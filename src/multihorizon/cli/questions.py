"""What is asked beside a fit: `identify`, `goals` and `compare` of decisions, `predict` of a fit, `design` and `recover` of a
study."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from multihorizon.cli import (
    CompareOptions,
    DesignOptions,
    GoalsOptions,
    IdentifyOptions,
    PredictOptions,
    RecoverOptions,
    RobustnessOptions,
)
from multihorizon.cli.console import (
    LISTED,
    at_the_ends,
    by_name,
    checked,
    cluster_of,
    discounts_of,
    features_in,
    known_reward_of,
    out,
    population_of,
    progress_bar,
    read_decisions,
    read_mdps,
    read_options,
    read_study,
    show_files,
    show_remarks,
    show_robustness,
    temperature_of,
    write_answer,
)
from multihorizon.data.side_tables import (
    read_first_states,
    read_forbidden,
    read_groups,
    read_pay,
    read_restricted,
    read_transitions,
)
from multihorizon.driver import solve
from multihorizon.exact.identify import Identification
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.mdp import MDP
from multihorizon.parallel import Run
from multihorizon.population.solver import Population
from multihorizon.problem import Problem
from multihorizon.questions.carrying_over import CarryingOver, carry_over
from multihorizon.questions.design import Design
from multihorizon.questions.design import design as designed
from multihorizon.questions.goals import goals_of_decisions
from multihorizon.questions.horizons import identify_fitted
from multihorizon.questions.robustness import robustness as asked_rivals
from multihorizon.questions.schedule import Schedule
from multihorizon.questions.study import Recovery, simulate_study
from multihorizon.questions.whatif.nudge import Nudge, nudge
from multihorizon.questions.whatif.predict import NOT_BOUNDED, Prediction
from multihorizon.questions.whatif.predict import predict as predicted
from multihorizon.report.files import read_fit
from multihorizon.report.pages import (
    FEW,
    FILES,
    bonuses,
    carried_table,
    changes_in_words,
    choices_of_many,
    enough_table,
    goals_page,
    identify_page,
    largest_changes,
    outcomes_of_many,
    outcomes_table,
    sizes_table,
    these_decisions,
    verdict,
    write_comparison,
    write_design,
    write_recovery,
    write_robustness,
    write_whatif,
)
from multihorizon.solution import Solution, Status
from multihorizon.words import decimals


def identify(options: IdentifyOptions) -> None:
    """Test whether these decisions, and any number of others like them, identify the discount factors."""
    files = ("identify.json", "identify.html")
    with checked(options, files):
        if options.known_reward is not None and options.within is not None:
            raise ValueError("--within must come without --known-reward: a reward that is known may not differ, got both")
        study = read_study(options)
        known_reward = known_reward_of(options, study)
        solver = MaximumLikelihood(temperature_of(options.temperature), known_reward=known_reward)
        with progress_bar("identify") as progress:
            solution = solve(study.problem, solver, seed=options.seed, progress=progress)
            exact = identify_fitted(solution, options.within)
        _show_identified(solution, exact)
        show_remarks(study.remarks)
        if options.out_dir is not None:
            unfinished = solution.status == Status.NOT_CONVERGED
            content = {
                "experts": list(solution.experts),
                "status": None if exact is None else exact.status,
                "fit_status": str(solution.status),
                "identified": [None if unfinished else identified for identified in LikelihoodEvidence.of(solution).identified],
                "identification": None if exact is None else exact.to_dict(),
                "message": solution.message,
                "remarks": study.remarks,
                "seed": solution.seed,
                "options": {**read_options(options), **by_name(options, "known_reward", "within")},
            }
            write_answer(options.out_dir, files, content, identify_page(solution, exact, study.remarks))
        show_files(options.out_dir, files)


def _show_identified(solution: Solution, exact: Identification | None) -> None:
    out.print(f"{these_decisions(solution)} {solution.message}", soft_wrap=True)
    if solution.status == Status.NOT_CONVERGED:
        out.print("So what follows is about policies that need not be the experts'.", soft_wrap=True)
    if LikelihoodEvidence.of(solution).known["reward"]:
        out.print("With this reward, discounts with 95% CIs:")
        intervals = solution.confidence_intervals()
        bounded = [bool(np.isfinite(ends).all()) for ends in intervals]
        order = np.argsort(solution.discounts, kind="stable") if len(bounded) > LISTED else np.arange(len(bounded))
        shown = at_the_ends(order.tolist(), [k for k in order.tolist() if bounded[k]])
        for k in shown:
            gamma, low, high = (decimals(number, 3) for number in (solution.discounts[k], *intervals[k]))
            out.print(
                f"  {solution.experts[k]}: {f'{gamma} ({low} to {high})' if bounded[k] else 'not identified'}", soft_wrap=True
            )
        if len(shown) < len(bounded):
            out.print(f"  and {len(bounded) - len(shown)} more: these are the shortest and the longest horizons.")
    elif exact is None:
        out.print("Whether exact policies would identify the discounts cannot be said for this problem.", soft_wrap=True)
    else:
        out.print("If the fitted policies were known exactly:")
        out.print(exact.sentences(), soft_wrap=True)


def goals(options: GoalsOptions) -> None:
    """Cluster experts by goal, where rewards and horizons may both differ."""
    files = ("goals.json", "goals.html")
    with checked(options, files):
        study = read_study(options)
        with progress_bar("goals") as progress:
            groups = goals_of_decisions(
                study.problem,
                temperature_of(options.temperature),
                options.simulations,
                cluster_of(options.cluster_by),
                Run(options.seed, options.jobs, progress),
            )
        out.print(groups.sentences(), soft_wrap=True)
        show_remarks(study.remarks)
        if options.out_dir is not None:
            recorded = {**read_options(options), "simulations": options.simulations, "cluster": options.cluster_by}
            content = {**groups.to_dict(), "summary": groups.sentences(), "remarks": study.remarks, "seed": options.seed}
            page = goals_page(groups, study.remarks, options.seed)
            write_answer(options.out_dir, files, {**content, "options": recorded}, page)
        show_files(options.out_dir, files)


def compare(options: CompareOptions) -> None:
    """Test whether horizons transfer across conditions: fit under one condition, predict the other.

    What is fitted under each condition predicts the same people's decisions under the others: their own horizons, one discount
    for everybody, and chance.
    """
    with checked(options, FILES["compare"]):
        tables, remarks = read_decisions(options, None)
        study = read_study(options, tables)
        known_reward = known_reward_of(options, study)
        with progress_bar("compare") as progress:
            compared = carry_over(
                study.problem,
                condition=str(options.condition),
                known_reward=known_reward,
                common_discount=options.common_discount,
                seed=options.seed,
                jobs=options.jobs,
                progress=progress,
            )
        _show_compared(compared)
        show_remarks([*study.remarks, *remarks])
        if options.out_dir is not None:
            asked = by_name(options, "condition", "episodes", "known_reward", "common_discount", "seed")
            recorded = {**read_options(options), **asked}
            write_comparison(options.out_dir, compared, recorded, [*study.remarks, *remarks])
        show_files(options.out_dir, FILES["compare"])


def _show_compared(compared: CarryingOver) -> None:
    out.print(compared.headline(), style="bold", soft_wrap=True)
    # The columns that fit on a terminal; the page has all.
    shown = carried_table(compared).select("from", "to", "own", "one_discount", "chance", "gain", "gain_low", "gain_high")
    out.print(shown.rich())
    out.print(compared.sentences(), soft_wrap=True)


def predict(options: PredictOptions) -> None:
    """Predict behaviour after an intervention: a bonus, a removed action, another task, another discount factor.

    Changes combine. Each answer is identified, bounded or not bounded by the decisions that were fitted.
    """
    with checked(options, FILES["whatif"] if options.nudge is None else FILES["nudge"]):
        given = {name: getattr(options, name) for name in ("pay", "forbid", "transitions", "initial", "discount")}
        if options.nudge is None and not any(given.values()) and options.rounds is None:
            raise ValueError(f"something must change: give --{', --'.join(given)} or --nudge, got none")
        if options.nudge is None and options.chance is not None:
            raise ValueError("--chance must come with --nudge, which names the state or action, got none")
        if options.nudge is None and options.groups is not None:
            raise ValueError("--groups must come with --nudge, which says which bonus is enough in each group, got none")
        if options.features is not None and options.transitions is None:
            raise ValueError("--features must come with --transitions, whose states they describe, got none")
        others = ("pay", "forbid", "transitions", "discount", "restrict", "reach", "rounds")
        wrong = next((name for name in others if getattr(options, name)), None) if options.nudge is not None else None
        if wrong is not None:
            raise ValueError(f"--nudge must come without --{wrong}: it asks for a bonus in the task as it is, got both")
        solution, fitted = read_fit(options.result)
        problem = solution.require_problem()
        task = problem.mdp
        remarks = [f"The report of the fit warns: {text}" for text in fitted.get("warnings") or ()]
        source = _source(solution, options, remarks)
        changes = _changes(task, problem.parameter_names, options)
        persons: Literal["each", "groups"] = "groups" if options.typical else "each"
        with progress_bar("predict") as progress:
            how: dict[str, Any] = {"persons": persons, "seed": options.seed, "jobs": options.jobs, "progress": progress}
            answer: Prediction | Nudge
            if options.nudge is None:
                answer = predicted(source, **changes, states=options.reach, rounds=options.rounds, **how)
            else:
                state, action = state_and_action(task.state_names, options.nudge)
                chance = 0.5 if options.chance is None else options.chance
                how["groups"] = None if options.groups is None else read_groups(options.groups)
                answer = nudge(source, state=state, action=action, chance=chance, initial=changes["initial"], **how)
        if isinstance(answer, Prediction):
            if answer.change.needs_reward and NOT_BOUNDED in answer.status and options.restrict is None:
                remarks.append("If you know something of the reward, say it with --restrict: it may bound what follows.")
            _show_prediction(answer)
        else:
            _show_nudge(answer)
        show_remarks(remarks)
        files: tuple[str, ...] = ()
        if options.out_dir is not None:
            files = write_whatif(options.out_dir, answer, _recorded_prediction(options), remarks)
        show_files(options.out_dir, files)


def _source(solution: Solution, options: PredictOptions, remarks: list[str]) -> Solution | Identification:
    """Return what answers: the fit, or with restrictions all rewards that explain the policies it found."""
    if options.restrict is None:
        return solution
    if options.typical:
        raise ValueError("--restrict must come without --typical, got both")
    if solution.estimate.population is not None:
        raise ValueError("--restrict must come with a fit without --formula, got one with it: fit the same table without")
    identification = identify_fitted(solution)
    if identification is None:
        raise ValueError("--restrict needs to know which rewards explain the fitted policies, and this cannot be computed here")
    remarks.append(
        "With restrictions, the fitted policies are taken as exact: the answer is the range over all rewards that explain them "
        "and keep to the restrictions. The error of the fit is not in it."
    )
    return identification


def robustness(options: RobustnessOptions) -> None:
    """Test whether the conclusion of a fit survives rival models of choice."""
    with checked(options, FILES["robustness"]):
        solution, fitted = read_fit(options.result)
        remarks = [f"The report of the fit warns: {text}" for text in fitted.get("warnings") or ()]
        if solution.estimate.population is None:
            remarks.append(
                "A folder holds no episodes, so nothing is held out and stickiness is not asked: fit --rivals does both."
            )
        with progress_bar("robustness") as progress:
            how: dict[str, Any] = {"seed": options.seed, "jobs": options.jobs, "progress": progress}
            found = asked_rivals(solution, folds=options.folds, quick=options.quick, **how)
        show_robustness(found)
        show_remarks(remarks)
        if options.out_dir is not None:
            recorded = {"result": options.result.resolve().name, **by_name(options, "folds", "quick", "seed")}
            write_robustness(options.out_dir, found, recorded, remarks)
        show_files(options.out_dir, FILES["robustness"])


def state_and_action(states: Sequence[str], text: str) -> tuple[str, str | None]:
    """Return a state, or a state and an action in it, from `state` or `state:action`; a state may have a colon in its name."""
    state, colon, action = text.rpartition(":")
    if text in states or not colon:
        return text, None
    if not (state.strip() and action.strip()):
        raise ValueError(f"what a bonus is for must be a state, or a state and an action as in home:walk, got {text!r}")
    return state, action


def _changes(task: MDP, parameters: Sequence[str], options: PredictOptions) -> dict[str, Any]:
    """Return what changes, from the files that the options name, with the names of the task checked."""
    after = None if options.transitions is None else read_transitions(options.transitions)
    task = task if after is None else after
    return {
        "pay": None if options.pay is None else read_pay(options.pay, task),
        "forbid": None if options.forbid is None else read_forbidden(options.forbid, task),
        "transitions": after,
        "features": None if options.features is None else features_in(options.features, task, parameters),
        "initial": None if options.initial is None else read_first_states(options.initial, task),
        "discount": discounts_of(options.discount),
        "restrictions": None if options.restrict is None else read_restricted(options.restrict, parameters),
    }


def _recorded_prediction(options: PredictOptions) -> dict[str, Any]:
    """Return what the files say about how they were made."""
    files = by_name(options, "pay", "forbid", "transitions", "features", "initial", "restrict")
    asked = by_name(options, "discount", "reach", "rounds", "nudge", "chance", "groups")
    return {"result": options.result.resolve().name, **files, **asked, "typical": options.typical or None, "seed": options.seed}


def _show_prediction(prediction: Prediction) -> None:
    listed = 12  # rows of each table that the terminal shows; `whatif.csv` has all
    answer = verdict(prediction)
    changed = changes_in_words(prediction)
    for line in changed:
        out.print(line, soft_wrap=True)
    if changed != ["Nothing changes."]:
        out.print(prediction.headline(), style="bold", soft_wrap=True)
    out.print(f"{answer.question} {answer.answer}. {answer.reasons}", soft_wrap=True)
    if len(prediction.experts) <= FEW:
        changes = largest_changes(prediction, listed).select(
            "expert", "state", "action", "before", "after", "low", "high", "status"
        )
        every = outcomes_table(prediction)
        plain = every.frame[~every.frame["outcome"].str.startswith("discounted")]
        outcomes = replace(every, frame=plain).head(2 * listed, "What comes of it")
    else:
        changes = choices_of_many(prediction, listed)
        outcomes = outcomes_of_many(prediction, listed)
    out.print(changes.rich() if len(changes.frame) else "No choice changes.")
    if len(outcomes.frame):
        out.print(outcomes.rich())
    out.print(prediction.unit, soft_wrap=True)
    show_remarks(prediction.remarks)


def _show_nudge(answer: Nudge) -> None:
    notes = answer.notes()
    out.print(answer.headline(), soft_wrap=True)
    if len(answer.experts) > FEW and len(answer.enough):
        out.print(enough_table(answer).rich())
        out.print(f"Each of the {len(answer.experts):,} people has a row in nudge.csv, which --out writes.")
    else:
        out.print(bonuses(answer, 60).rich())
    for line in notes:
        out.print(line, soft_wrap=True)


def design(options: DesignOptions) -> None:
    """Find the optimal design of a study: which episodes, how often, and the expected power.

    The candidates are used so that the decisions say most about how far people look ahead.
    """
    with checked(options, FILES["design"]):
        pilot, fitted = read_fit(options.pilot)
        remarks = [f"The report of the pilot warns: {text}" for text in fitted.get("warnings") or ()]
        tasks = read_mdps(options)
        if options.features is not None and (tasks is None or len(options.features) != len(tasks)):
            given = 0 if tasks is None else len(tasks)
            raise ValueError(f"--features must be given once for each of --transitions, got {len(options.features)} for {given}")
        features = None
        if options.features is not None and tasks is not None:
            names = pilot.problem.parameter_names  # type: ignore[union-attr]
            features = [features_in(path, mdp, names) for path, mdp in zip(options.features, tasks, strict=True)]
        with progress_bar("design") as progress:
            planned = designed(
                tasks,
                pilot,
                options.candidates,
                persons=options.persons,
                episodes=options.most_episodes,
                decisions=options.decisions,
                budget=options.budget,
                width=options.width,
                difference=options.difference,
                term=options.term,
                features=features,
                length=_mean_length(fitted),
                draws=options.draws,
                seed=options.seed,
                progress=progress,
            )
        _show_design(planned)
        show_remarks(remarks)
        if options.out_dir is not None:
            write_design(
                options.out_dir, planned, _recorded_design(options), _recovery_command(options, planned, named=True), remarks
            )
            out.print(f"Check it by simulation: {_recovery_command(options, planned)}", soft_wrap=True)
        show_files(options.out_dir, FILES["design"])


def _mean_length(fitted: dict[str, Any]) -> int | None:
    """Return how many decisions an episode of the pilot had on average, rounded up; None where its result does not say it."""
    episodes, decisions = (np.sum(fitted.get(name) or 0) for name in ("episodes", "decisions"))
    return int(np.ceil(decisions / episodes)) if episodes > 0 and decisions > 0 else None


def _recovery_command(options: DesignOptions, planned: Design, named: bool = False) -> str:
    """Return the command that simulates the study as designed; with files by their names alone, where it is kept."""

    def shown(path: Path) -> str:
        return path.resolve().name if named else str(path)

    assert options.out_dir is not None
    words = ["multihorizon", "recover", "--pilot", shown(options.pilot), "--schedule", shown(options.out_dir) + "/schedule.csv"]
    for path in options.transitions or ():
        words += ["--transitions", shown(path)]
    for path in options.features or ():
        words += ["--features", shown(path)]
    words += ["--people", str(planned.persons)]
    if planned.scale == "logit" and planned.targets[0] != "Intercept":
        words += ["--term", planned.targets[0]]
        words += ["--effect", f"{planned.difference:g}"] if planned.difference == planned.difference else []
    return shlex.join(words)


def _recorded_design(options: DesignOptions) -> dict[str, Any]:
    """Return what the files say about how they were made."""
    files = by_name(options, "transitions", "candidates", "features", "persons", "decisions")
    asked = by_name(options, "budget", "width", "difference", "term", "draws", "seed")
    return {"pilot": options.pilot.resolve().name, **files, "episodes": options.most_episodes, **asked}


def _show_design(planned: Design) -> None:
    given, errors, _ = planned._tables(compute=True)
    listed = 15  # candidates that the terminal shows; `design.csv` has all
    out.print(planned.headline(), style="bold", soft_wrap=True)
    out.print(given.rich(listed))
    if len(given.frame) > listed:
        out.print(f"… and {len(given.frame) - listed} more, which --out writes to design.csv.")
    out.print(errors.rich(listed))
    out.print(planned.sentences(), soft_wrap=True)


def recover(options: RecoverOptions) -> None:
    """Parameter recovery and power by simulation."""
    with checked(options, FILES["recover"]):
        if options.pilot is not None or options.schedule is not None:
            _recover_planned(options)
            return
        if not options.demos:
            raise ValueError("the decisions of a study must be given, or --pilot and --schedule of one that is planned, got none")
        if options.temperature and options.formula:
            raise ValueError("--temperature must come without --formula: in a population each person has a temperature")
        plain = MaximumLikelihood(temperature_of(options.temperature), ridge=options.ridge)
        population = population_of(options, plain)
        for option, value in {"--people": options.people, "--effect": options.effect, "--term": options.term}.items():
            if population is None and value:
                raise ValueError(f"{option} must come with --formula, which describes the people to draw, got none")
        tables, left_out = read_decisions(options, population)
        study = read_study(options, tables)
        known_reward = known_reward_of(options, study)
        solver: MaximumLikelihood | Population = replace(population or plain, known_reward=known_reward)
        read = read_options(options)
        recorded = {
            **read,
            "temperature": None if options.formula else read["temperature"],  # a population has one for each person
            "formula": options.formula,
            "missing": options.missing if options.formula else None,
            "reference": options.reference,
        }
        _simulate(options, study.problem, solver, recorded, [*study.remarks, *left_out], demonstrations=study.tables)


def _recover_planned(options: RecoverOptions) -> None:
    """Simulate a study that was planned after a pilot."""
    if options.pilot is None or options.schedule is None:
        lacking = "--schedule" if options.schedule is None else "--pilot"
        raise ValueError(f"--pilot and --schedule must come together, got none for {lacking}")
    others = ("smoothing", "temperature", "known_reward", "persons", "episodes", "formula", "reference", "ridge", "time")
    wrong = "demos" if options.demos else next((name for name in others if getattr(options, name)), None)
    if wrong is not None:
        what = "tables of decisions" if wrong == "demos" else f"--{wrong.replace('_', '-')}"
        raise ValueError(f"--pilot must come without {what}: the study is fitted as the pilot was, got both")
    pilot = read_fit(options.pilot)[0]
    problem = pilot.require_problem()
    tasks = read_mdps(options) or list(problem.mdps)
    schedule = Schedule.read(options.schedule, [mdp.as_known() for mdp in tasks])
    if options.features is not None:
        if len(tasks) > 1:
            raise ValueError("--features must come with one of --transitions, got several")
        schedule = replace(schedule, features=(features_in(options.features, tasks[0], problem.parameter_names),))
    solver = pilot.solver_used(MaximumLikelihood, Population)
    if isinstance(solver, MaximumLikelihood) and not getattr(pilot.evidence.get("deviations"), "spread", 0.0):
        solver = replace(solver, deviations=0.0)  # all share one reward, and so do the simulated ones
    recorded = {"pilot": options.pilot.resolve().name, "schedule": options.schedule.name, "people": options.people}
    _simulate(options, pilot, solver, recorded, [], schedule=schedule)


def _simulate(
    options: RecoverOptions,
    study: Problem | Solution,
    solver: MaximumLikelihood | Population,
    recorded: dict[str, Any],
    remarks: Sequence[str],
    **design: Any,
) -> None:
    """Simulate a study with this design, show what came out, and write it if asked to."""
    with progress_bar("recover") as progress:
        recovery = simulate_study(
            study,
            solver,
            **design,
            effects=options.effect,
            term=options.term,
            decisions=options.decisions,
            people=options.people,
            studies=options.studies,
            jobs=options.jobs,
            seed=options.seed,
            progress=progress,
        )
    _show_recovery(recovery)
    show_remarks(remarks)
    if options.out_dir is not None:
        made = {**recorded, "effect": options.effect, "studies": options.studies}
        write_recovery(options.out_dir, recovery, made, remarks)
    show_files(options.out_dir, FILES["recover"])


def _show_recovery(recovery: Recovery) -> None:
    # The columns that fit on a terminal; the report has all.
    out.print(recovery.headline(), style="bold", soft_wrap=True)
    shown = sizes_table(recovery).select("people", "decisions", "effect", "error", "correlation", "coverage", "power")
    out.print(shown.rich())
    out.print(recovery.sentences(), soft_wrap=True)
