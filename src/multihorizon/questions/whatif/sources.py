"""What is known of the experts before a change: by a solution and its estimate, or by policies and what they identify."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    Bools,
    Floats,
)
from multihorizon.estimate import Estimate
from multihorizon.exact.identify import Identification, identify
from multihorizon.mdp import refuse_durations
from multihorizon.problem import Expert, Problem, one_task
from multihorizon.questions.whatif.change import by_state, read_discounts
from multihorizon.solution import Solution
from multihorizon.words import in_words


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the experts of one task.

    Attributes:
        task: anyone of them: the task, and how reward parameters become rewards.
        theta: the reward parameters `(d,)`; None where the policies are all that is known.
        own: the reward parameters of each expert `(d,K)` where they deviate from the shared ones; None where they do not.
        temperature: None for experts who choose the best action.
        policies: as they were seen `(K,S,A)`; None where they are planned.
        ranges: of the discounts `(K,2)` where they are one of a set.
        arrival: the part of the known reward that is paid on arrival `(S,)`, if it is.
        identified: by expert, whether the discount is known.
        given: the problem of the policies.
        comparable: whether something sets a scale of rewards that the experts share.
        source: where the discounts come from; None where they were given.
        estimate: that of a solution.
    """

    names: tuple[str, ...]
    parameter_names: tuple[str, ...]
    task: Expert
    discounts: Floats
    temperature: Floats | None
    unit: str
    theta: Floats | None = None
    own: Floats | None = None
    policies: Floats | None = None
    ranges: Floats | None = None
    arrival: Floats | None = None
    identified: Bools | None = None
    given: Problem | None = None
    comparable: bool = True
    source: Solution | Identification | None = None
    estimate: Estimate | None = None

    @property
    def problem(self) -> Problem:
        """The problem of the policies."""
        assert isinstance(self.given, Problem)
        return self.given

    @property
    def thetas(self) -> Floats:
        """The reward parameters of all `(d,)`, or of each expert `(d,K)` where they deviate."""
        assert self.theta is not None
        return self.theta if self.own is None else self.own


def read_source(source: Any, discount: Any, persons: str) -> Known:
    """What a source, the discounts that are given for policies, and a choice of persons say of the experts.

    Raises:
        ValueError: where they say too little.
    """
    if persons not in ("each", "groups"):
        raise ValueError(f'persons must be "each" or "groups", received {persons!r}')
    if isinstance(source, Solution):
        return _of_solution(source, persons == "groups")
    if persons == "groups":
        raise ValueError("groups are those of a Population, and this fit has none: fit with a formula, or ask for each person")
    if isinstance(source, Identification | Problem):
        return _of_policies(source, discount)
    raise ValueError(f"this needs a Solution, an Identification or a Problem, received {type(source).__name__}")


def _of_solution(solution: Solution, groups: bool) -> Known:
    """What a solution says of its experts, or of a typical and a new person of each group."""
    problem = solution.require_answer()
    task, given, arrival = one_task(problem), solution.options.get("known_reward"), None
    if task.known_reward is not None and given is not None:
        arrival = np.asarray(by_state(task.mdp, given, "known_reward"), dtype=np.float64)
        arrival = arrival if arrival.shape == (task.mdp.n_states,) else None
    estimate = solution.estimate.of_groups() if groups else solution.estimate
    answer, deviates = estimate.answer, not groups and solution.evidence.get("deviations") is not None
    known = Known(
        names=answer.experts,
        parameter_names=problem.parameter_names,
        task=task,
        discounts=answer.discounts,
        temperature=answer.temperatures,
        unit="",
        theta=solution.reward,
        own=solution.personal_rewards.T if deviates else None,
        arrival=arrival,
        source=solution,
        estimate=estimate,
    )
    return replace(known, unit=_unit(known, solution))


def _unit(known: Known, solution: Solution) -> str:
    """What a bonus of 1 means for the experts of a solution."""
    theta = solution.reward
    order = np.argsort(-np.abs(theta), kind="stable")[:3]
    paid = in_words([f"{known.parameter_names[i]} {theta[i]:.3g}" for i in order])
    what = "a state" if known.task.features is None else "a unit of a feature"
    beside = f" For comparison, what {what} pays: {paid}." if theta.size else ""
    if known.temperature is None:
        return f"A bonus of 1 is one unit of the reward, whose scale is set by the bound on rewards alone.{beside}"
    paid_known = known.task.known_reward is not None or solution.options.get("known_reward") is not None
    if paid_known:
        return f"A bonus of 1 is one unit of the known reward.{beside}"
    if np.ptp(known.temperature) <= 1e-9 * known.temperature.max():
        size = f"{known.temperature[0]:.3g}"
        return f"A bonus of 1 is one unit of the reward, in which the temperature of all experts is {size}.{beside}"
    return (
        "A bonus of 1 is one mean temperature of the experts. Nothing else sets the scale of the reward: compare experts only as "
        f"far as they share it.{beside}"
    )


def _of_policies(source: Identification | Problem, discount: Any) -> Known:
    """What the policies of a problem say, and their discounts: given, or identified."""
    problem = source if isinstance(source, Problem) else source.problem
    if problem is None:
        raise ValueError("this identification was read from a file and has lost its problem: identify the problem again")
    task = one_task(problem)
    refuse_durations([task.mdp], "what follows a change from policies alone")
    for expert in problem.experts:
        if expert.kind != "policy" or expert.sets is not None:
            received = "one action for each state" if expert.sets is not None else expert.kind
            what = "demonstrations" if expert.kind == "demonstrations" else received
            advice = "solve the problem and hand in its solution" if expert.sets is None else "hand in the solution of a solver"
            raise ValueError(f"this needs policies of probabilities, received {what} of expert {expert.name}: {advice}")
    policies = np.stack([expert.require_policy() for expert in problem.experts])
    alone = len(problem.names) == 1
    unit = f"A bonus of 1 is worth one temperature{' of the expert' if alone else ', which all experts share'}."
    own = (
        "A bonus of 1 is worth one temperature of each expert. Nothing sets a common scale: compare no experts by their response."
    )
    known = Known(problem.names, problem.parameter_names, task, np.zeros(0), None, unit, policies=policies, given=problem)
    if isinstance(source, Problem):
        given = read_discounts(problem.names, discount)
        if np.isfinite(given).all():
            ones = np.ones(given.size)
            return replace(
                known, discounts=given, temperature=ones, identified=ones > 0, unit=unit if alone else own, comparable=alone
            )
        named = {name: float(g) for name, g in zip(problem.names, given, strict=True) if np.isfinite(g)}
        source = identify(problem, discounts=named or None)
    if source.status == "infeasible":
        raise ValueError(
            "no discounts and shared reward explain these experts, so their discounts are not known: "
            "hand in the problem with discount= for each expert"
        )
    if np.ptp(source.temperature) > 0:
        unit = f"A bonus of 1 is worth one temperature of {problem.names[0]}."
    # with a discount of 1, what goes on forever has no value
    largest = ENDLESS_DISCOUNT if task.mdp.never_ends().any() else 1.0
    return replace(
        known,
        unit=unit,
        discounts=np.minimum(source.discounts, largest),
        temperature=source.temperature,
        ranges=np.minimum(source.intervals, largest),
        identified=source.discounts_identified,
        source=source,
    )
