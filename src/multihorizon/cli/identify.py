"""`multihorizon identify`: can these tables show the experts' discounts at all?"""

from __future__ import annotations

import numpy as np

from multihorizon.cli.console import (
    checked,
    out,
    progress_bar,
    read_options,
    read_study,
    show_remarks,
    temperature_of,
    write_answer,
)
from multihorizon.cli.options import IdentifyOptions
from multihorizon.data.side_tables import read_known_reward
from multihorizon.driver import solve
from multihorizon.exact.identify import Identification
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.questions.horizons import identify_fitted
from multihorizon.report.pages import identify_page, these_decisions
from multihorizon.solution import Solution, Status
from multihorizon.words import decimals

FILES = ("identify.json", "identify.html")


def identify(options: IdentifyOptions) -> None:
    """Say whether these decisions, and any number of others like them, identify the discounts."""
    with checked(options, FILES):
        if options.known_reward is not None and options.within is not None:
            raise ValueError("--within must come without --known-reward: a reward that is known may not differ, received both")
        study = read_study(options)
        known = None if options.known_reward is None else read_known_reward(options.known_reward, study.problem.mdp)
        solver = MaximumLikelihood(temperature_of(options.temperature), known_reward=known)
        with progress_bar("identify") as progress:
            solution = solve(study.problem, solver, seed=options.seed, progress=progress)
            exact = identify_fitted(solution, options.within)
        _show(solution, exact)
        show_remarks(study.remarks)
        if options.out_dir is not None:
            unfinished = solution.status == Status.NOT_CONVERGED
            content = {
                "experts": list(solution.experts),
                "status": None if exact is None else exact.status,
                "fit_status": str(solution.status),
                "identified": [None if unfinished else known for known in LikelihoodEvidence.of(solution).identified],
                "identification": None if exact is None else exact.to_dict(),
                "message": solution.message,
                "remarks": study.remarks,
                "seed": solution.seed,
                "options": {
                    **read_options(options),
                    "known_reward": options.known_reward.name if options.known_reward else None,
                    "within": options.within,
                },
            }
            write_answer(options.out_dir, FILES, content, identify_page(solution, exact, study.remarks))


def _show(solution: Solution, exact: Identification | None) -> None:
    out.print(f"{these_decisions(solution)} {solution.message}", soft_wrap=True)
    if solution.status == Status.NOT_CONVERGED:
        out.print("So what follows is about policies that need not be the experts'.", soft_wrap=True)
    if LikelihoodEvidence.of(solution).known["reward"]:
        out.print("With this reward, discounts with 95 % intervals:")
        for name, discount, ends in zip(solution.experts, solution.discounts, solution.confidence_intervals(), strict=True):
            told = np.isfinite(ends).all()
            out.print(
                f"  {name}: "
                + (f"{decimals(discount, 3)} ({decimals(ends[0], 3)} to {decimals(ends[1], 3)})" if told else "not identified"),
                soft_wrap=True,
            )
    elif exact is None:
        out.print("Whether exact policies would identify the discounts cannot be said for this problem.", soft_wrap=True)
    else:
        out.print("If the fitted policies were known exactly:")
        out.print(exact.sentences(), soft_wrap=True)
