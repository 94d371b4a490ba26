"""`ClosedForm`: discounts and reward by linear algebra, and a start for maximum likelihood made from it.

The solver returns what `identify` finds as a solution. The start is for demonstrations. Frequencies make the equations noisy, so
they are weighted by the counts (the Fisher information of a state's logits). Of a few candidates the one with the largest
`Σ N(s,a) log π(a|s)` is returned. Candidates are the solution of the linear system, the minimisers of variable projection from a
few discounts, and each of these with its reward shrunk, because noise inflates rewards. The result is finite and its discounts
are inside (0,1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Floats, as_positive
from multihorizon.exact.equations import (
    FeatureEquations,
    JointEquations,
    SharedReward,
    StateEquations,
    in_order_of_content,
    read_equations,
    reward_families,
    state_columns,
)
from multihorizon.exact.identify import Identification, Temperature, identify, log_likelihood, read_temperature
from multihorizon.exact.sets import build_system, minimise, project, solve_system
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem
from multihorizon.solution import ClosedFormEvidence, Solution, Status

#: Discounts of a start stay this far inside [0,1], so that an optimiser can move them both ways.
MARGIN = 0.01
SHRINKS = (1.0, 0.5, 0.2)
_STATUS = {"unique": Status.OPTIMAL, "set": Status.NOT_IDENTIFIED, "infeasible": Status.INFEASIBLE}


@dataclass(frozen=True)
class ClosedForm:
    """Discounts and reward of soft-optimal experts, exactly and without a search over discounts.

    Solves `λ_k log π_k(a|s) = Σ_s' T(s'|s,a) [r(s') + γ_k V_k(s')] − V_k(s)` for Γ, r and V: a linear system in Γ in the
    usual case, variable projection where the actions leave more than a constant open or the reward is made of features.
    The solution's `residual` is `max |(Q − V)/λ − log π|`, recomputed from its discounts and reward; `objective` is minus that.
    Its evidence is the report of `identify`. Where the policies do not identify the discounts the answer is one of many.

    From demonstrations the frequencies are smoothed; that is a start for `MaximumLikelihood`, not an efficient estimate. The
    status is then CONVERGED only where the errors of the counts leave every discount within 0.1.

    Args:
        temperature: the entropy weight λ all experts share, or "per_expert": one for each expert, where the first is 1.
        tolerance: the size of the errors in log π that are allowed for; see `identify`.
        smoothing: added to each available action's count of demonstrations.
    """

    temperature: Temperature = 1.0
    tolerance: float = 1e-8
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        read_temperature(self.temperature)
        as_positive(self.tolerance, "tolerance")
        as_positive(self.smoothing, "smoothing")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Solve the experts' equations; nothing in it is random."""
        progress(0.0, "closed form: solving the experts' equations")
        found = identify(problem, self.temperature, self.tolerance, smoothing=self.smoothing)
        exact = found.status != "unique" or not found.from_counts
        return Solution(
            solver="ClosedForm",
            status=_STATUS[found.status] if exact else Status.CONVERGED,
            message=self._message(found),
            experts=problem.names,
            discounts=found.discounts,
            reward=found.reward,
            objective=-found.residual,
            residual=found.residual,
            temperature=found.temperature,
            evidence=ClosedFormEvidence(**found.to_dict()),
        )

    def _message(self, found: Identification) -> str:
        parts = [found.headline(), f"The equations hold to {found.residual:.1e} in log π."]
        if found.status == "set":
            widest = float(np.diff(found.intervals, axis=1).max())
            parts.append(f"The discounts and the reward given are one explanation of many; the widest range is {widest:.2f}.")
        if found.from_counts:
            parts.append(
                f"Frequencies with {self.smoothing:g} added to each count stand in for policies: "
                "this is a start for MaximumLikelihood, not an efficient estimate."
            )
        return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Start:
    """Discounts `(K,)`, reward parameters, temperatures `(K,)`, and the log-likelihood of the decisions under them."""

    discounts: Floats
    reward: Floats
    temperature: Floats
    log_likelihood: float


def closed_form_start(problem: Problem, smoothing: float = 0.5, temperature: Temperature = 1.0) -> Start:
    """A finite start for maximum likelihood from demonstrations (policies count as one decision per state).

    Args:
        problem: experts given as demonstrations or policies.
        smoothing: added to each available action's count.
        temperature: shared λ, or "per_expert" with the first expert's fixed to 1.
    """
    lam = read_temperature(temperature)
    ordered = in_order_of_content(problem, smoothing)
    start = _most_likely(ordered, lam, smoothing)
    place = [ordered.names.index(name) for name in problem.names]
    scale = float(start.temperature[place[0]]) if lam is None else 1.0
    return Start(start.discounts[place], start.reward / scale, start.temperature[place] / scale, start.log_likelihood)


def _most_likely(problem: Problem, lam: float | None, smoothing: float) -> Start:
    joint, guesses = _equations(problem, lam, smoothing)
    k = problem.n_experts
    guesses += [np.full(k, 0.5), np.full(k, 0.9), np.linspace(0.2, 0.8, k)]
    candidates: list[tuple[Floats, Floats, Floats]] = []
    for guess in guesses:
        for found in (project(joint, guess), minimise(joint, guess)):
            reward, lams = joint.read(found.discounts, found.x)
            lams = np.clip(np.nan_to_num(lams, nan=1.0), 0.1, 10.0)
            candidates += [(np.clip(found.discounts, MARGIN, 1 - MARGIN), np.nan_to_num(reward) * s, lams) for s in SHRINKS]
    scored = [Start(*candidate, log_likelihood(problem, *candidate)) for candidate in candidates]
    return max(scored, key=lambda start: start.log_likelihood)


def _equations(problem: Problem, lam: float | None, smoothing: float) -> tuple[JointEquations, list[Floats]]:
    """The equations with weights, and the linear system's answer where there is one."""
    equations = [read_equations(expert, smoothing) for expert in problem.experts]
    if any(state_columns(problem, expert) is None for expert in problem.experts):
        return FeatureEquations(problem, equations, lam), []
    shared = SharedReward(reward_families(problem, equations, 1.0), problem.n_parameters)
    system = build_system(shared.compact, problem.n_experts, lam)
    guess = np.clip(system.read(solve_system(system).y)[0], 0.0, 1.0)
    return StateEquations(shared, problem.n_experts, lam), [guess]
