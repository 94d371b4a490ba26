"""`ClosedForm`: discounts and reward by linear algebra, and a start for maximum likelihood made from it.

The solver returns what `identify` finds as a solution. The start is for demonstrations. Frequencies make the equations noisy, so
they are weighted by the counts (the Fisher information of a state's logits). Of a few candidates the one with the largest
`Σ N(s,a) log π(a|s)` is returned. Candidates are the solution of the linear system, the minimisers of variable projection from a
few discounts, and each of these with its reward shrunk, because noise inflates rewards. The result is finite and its discounts
are inside (0,1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from multihorizon.checks import Floats, as_positive
from multihorizon.exact.equations import PolicyTemperature, StateEquations, in_order_of_content, joint_equations, read_temperature
from multihorizon.exact.identify import identify, log_likelihood, minimise, planned
from multihorizon.exact.linear_systems import LinearSystem
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem
from multihorizon.solution import Evidence, Solution, Status
from multihorizon.words import decimals, power_of_ten


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosedFormEvidence(Evidence, solvers=("ClosedForm",)):
    """What `ClosedForm` says: the report of `identify`, with None where nothing is known."""

    status: str
    dimension: int
    discounts: list[float | None]
    intervals: list[list[float | None]]
    reward: list[float | None]
    reward_identified: list[bool]
    residual: float
    singular_values: list[float]
    temperature: list[float]
    members: list[dict[str, Any]]
    tolerance: float
    misfit: float
    surplus: int
    coincidence: float
    from_counts: bool
    experts: list[str]
    reward_dimension: int
    free_constant: bool
    unknown_parameters: list[str]
    gaps: list[list[list[float]]] | None = None
    caution: str | None = None

    def ambiguity(self, solver: str, needs_reward: bool) -> str:
        """Say that the answer is one of many, unless it is unique."""
        unique = self.status == "unique" and (not needs_reward or not self.reward_dimension)
        return "" if unique else "Other discounts and rewards explain the policies as well: hand in what identify(problem) finds."


@dataclass(frozen=True)
class ClosedForm:
    """Discount factors and reward of soft-optimal experts, exactly and without a search.

    Solves `λ_k log π_k(a|s) = Σ_s' T(s'|s,a) [r(s') + γ_k V_k(s')] − V_k(s)` for Γ, r and V: a linear system in Γ in the
    usual case, variable projection where the actions leave more than a constant open or the reward is made of features.
    The solution's `residual` is `max |(Q − V)/λ − log π|`, recomputed from its discounts and reward; `objective` is minus that.
    Its evidence is the report of `identify`. Where the policies do not identify the discounts the answer is one of many.

    From demonstrations the frequencies are smoothed; that is a start for `MaximumLikelihood`, not an efficient estimate. The
    status is then CONVERGED only where the errors of the counts leave every discount within 0.1.

    It decides what the paper's Proposition 2 asks: whether one reward explains all experts, and at which Γ.

    Args:
        temperature: the entropy weight λ all experts share, or "per_expert": one for each expert, where the first is 1.
        tolerance: the size of the errors in log π that are allowed for; see `identify`.
        smoothing: added to each available action's count of demonstrations.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> problem = mh.Problem(d.mdp, d.soft_experts())
        >>> mh.solve(problem, ClosedForm()).discounts.round(3).tolist()
        [0.0, 0.2, 0.52]
    """

    takes_durations: ClassVar[bool] = True
    temperature: PolicyTemperature = 1.0
    tolerance: float = 1e-8
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        read_temperature(self.temperature)
        as_positive(self.tolerance, "tolerance")
        as_positive(self.smoothing, "smoothing")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Solve the experts' equations; nothing in it is random."""
        progress(0.0, "closed form: solving the experts' equations")
        answer = identify(problem, self.temperature, self.tolerance, smoothing=self.smoothing)
        status = {"unique": Status.OPTIMAL, "set": Status.NOT_IDENTIFIED, "infeasible": Status.INFEASIBLE}[answer.status]
        message = [answer.headline(), f"The equations hold to {power_of_ten(answer.residual)} in log π."]
        if answer.status == "set":
            widest = float(np.diff(answer.intervals, axis=1).max())
            message.append(
                f"The discounts and the reward given are one explanation of many; the widest range is {decimals(widest, 2)}."
            )
        if answer.from_counts:
            message.append(
                f"Frequencies with {self.smoothing:g} added to each count stand in for policies: "
                "this is a start for MaximumLikelihood, not an efficient estimate."
            )
        return Solution(
            solver="ClosedForm",
            status=Status.CONVERGED if answer.status == "unique" and answer.from_counts else status,
            message=" ".join(message),
            experts=problem.names,
            discounts=answer.discounts,
            reward=answer.reward,
            objective=-answer.residual,
            residual=answer.residual,
            temperature=answer.temperature,
            evidence=ClosedFormEvidence(**answer.to_dict()),
        )


@dataclass(frozen=True, eq=False)
class ClosedFormStart:
    """Discounts `(K,)`, reward parameters, temperatures `(K,)`, and the log-likelihood of the decisions under them."""

    discounts: Floats
    reward: Floats
    temperature: Floats
    log_likelihood: float


def closed_form_start(problem: Problem, smoothing: float = 0.5, temperature: PolicyTemperature = 1.0) -> ClosedFormStart:
    """Return a finite start for maximum likelihood from demonstrations (policies count as one decision per state).

    Args:
        problem: experts given as demonstrations or policies.
        smoothing: added to each available action's count.
        temperature: shared λ, or "per_expert" with the first expert's fixed to 1.
    """
    lam = read_temperature(temperature)
    ordered = in_order_of_content(problem, smoothing)
    k = ordered.n_experts
    equations = joint_equations(ordered, lam, tolerance=1.0, smoothing=smoothing)
    guesses: list[Floats] = []
    if isinstance(equations, StateEquations):
        system = LinearSystem(equations)
        guesses = [system.read(system.y)[0]]
    best: tuple[float, Floats, Floats, Floats] | None = None
    for guess in (*guesses, np.full(k, 0.5), np.full(k, 0.9), np.linspace(0.2, 0.8, k)):
        for point in (equations.project(guess), minimise(equations, guess)):
            temperatures = np.clip(np.nan_to_num(point.temperature, nan=1.0), 0.1, 10.0)
            discounts = np.clip(point.discounts, 0.01, 0.99)  # inside the limits, so that an optimiser can move them both ways
            reward = np.nan_to_num(equations.reward(point.discounts, point.x))
            for shrunk in (reward, 0.5 * reward, 0.2 * reward):
                try:
                    likelihood = log_likelihood(ordered, planned(ordered, discounts, shrunk, temperatures))
                except ValueError:  # no such plan exists
                    likelihood = -np.inf
                if best is None or likelihood > best[0]:
                    best = likelihood, discounts, shrunk, temperatures
    assert best is not None
    likelihood, discounts, reward, temperatures = best
    place = list(map(ordered.names.index, problem.names))
    scale = float(temperatures[place[0]]) if lam is None else 1.0
    return ClosedFormStart(discounts[place], reward / scale, temperatures[place] / scale, likelihood)
