"""Why no reward tells a pair of experts apart under Γ: a Farkas certificate.

For the pair (i, j) let P be the rows of i against actions of j. If every reward with `W θ ≥ 0` has zero margin on all of P, then
`{θ : W θ ≥ 0, Σ_P w θ ≥ 1}` is empty, and by Farkas' lemma there are weights y ≥ 0 with

    Σ_P w  +  Σ_i y_i w_i  =  0            (ties have weights of either sign):

the margins of P and the weighted others sum to zero for every reward, so none of them can be positive. The weights are checked by
multiplying them out; what is left over is the certificate's residual.

From the best discounts of a search to a solution: what the reward explains, status, message, evidence.

Everything is recomputed from the answer by policy evaluation. For each expert: is its policy reproduced (no action better than
the chosen ones, chosen ones equally good), and over which interval of discounts around its own does it stay optimal under the
learned reward? The interval is found with the Taylor expansions of `planning/breakpoints.py` in both directions from the
expert's discount, so no crossing is overlooked. An expert of several tasks must be reproduced in all, and has the interval
that its tasks share.

The LP solvers: `LPIRL` (one known discount), `NaiveLP` (the paper's failing baseline) and `MPLP` (the paper's method).

    LPIRL     max_θ        Σ_s   min_{a ∉ π(s)}   margin(s, a)    − λ‖θ‖₁         Ng and Russell; the paper's Eq. 3
    NaiveLP   max_Γ max_θ  Σ_k Σ_s min_{a ∉ π_k(s)} margin(s, a, k) − λ‖θ‖₁       Eq. 4
    MPLP      max_Γ max_θ  min_{(s,a) ∈ Ω_k(Γ), k} margin(s, a, k)  − λ‖θ‖₁       Eq. 5–6, Theorem 1, Algorithm 1

all subject to `margin ≥ 0` and `|θ| ≤ r_max`; `inner.py` solves them for a fixed Γ. Among the optima the reward with the least
‖θ‖₁ is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import ENDLESS_DISCOUNT, Floats, as_discount, as_positive
from multihorizon.driver import Search, SearchResult, check_search
from multihorizon.numerics.lp import INFINITY, LinearProgram, solve_lp
from multihorizon.parallel import Progress, as_jobs, silent
from multihorizon.planning.breakpoints import first_departure
from multihorizon.planning.evaluation import evaluate
from multihorizon.planning.plan import one_hot
from multihorizon.problem import Problem
from multihorizon.programs.certificate import Certificate, bound_optimum
from multihorizon.programs.inner import Evaluation, Inner, Objective
from multihorizon.programs.margins import MarginRows, Margins, Part, build_margins
from multihorizon.programs.search import SequentialLP
from multihorizon.solution import ProgramEvidence, Solution, Status

#: Weights below this share of the largest are not named.
NAMED_WEIGHT = 1e-6


def contradiction(margins: Margins, discounts: Floats, pair: tuple[int, int]) -> dict[str, Any]:
    """The weights of the rows that contradict each other, largest first, and the residual of the certificate.

    `rows` holds (expert, state, action, weight); it is empty where the two experts differ only in actions that lead to the
    same place, and `residual` is infinite if HiGHS gave no certificate.
    """
    names = margins.names
    answer: dict[str, Any] = {"pair": [names[pair[0]], names[pair[1]]], "discounts": discounts.tolist(), "rows": []}
    target = margins.pairs[pair]
    if not target.size:
        return {**answer, "residual": 0.0}
    lp = _separation(margins, discounts, target)
    ray = solve_lp(lp).ray
    if ray is None or not ray[-1] > 0:
        return {**answer, "residual": INFINITY}
    weights = ray / ray[-1]
    size, strict = margins.owner.size, margins.strict
    multipliers = weights[size : size + len(strict)].copy()
    multipliers[target] += 1.0
    residual = max(float(np.abs(lp.matrix.T @ weights).max()), -float(weights[size : size + len(strict)].min(initial=0.0)))
    heavy = np.argsort(-multipliers, kind="stable")
    heavy = heavy[multipliers[heavy] > NAMED_WEIGHT * multipliers.max()]
    rows = [[*_labels(margins, int(i)), float(multipliers[i])] for i in heavy]
    return {**answer, "rows": rows, "residual": residual}


def _labels(margins: Margins, row: int) -> tuple[str, str, str]:
    """The names of the expert, state and action of a strict row."""
    strict = margins.strict
    mdp = margins.parts[strict.part[row]].expert.mdp
    return margins.names[strict.expert[row]], mdp.state_names[strict.state[row]], mdp.action_names[strict.action[row]]


def _separation(margins: Margins, discounts: Floats, target: Any) -> LinearProgram:
    """Is there a reward with no negative margin and a total of at least 1 on the target rows?"""
    size, m = margins.owner.size, len(margins.strict)
    identity = sp.hstack([sp.csr_array((size, margins.n_parameters)), sp.eye_array(size, format="csr")])
    total = sp.csr_array(margins.strict.matrix[target].sum(axis=0)[None, :])
    continuation = identity - sp.diags_array(discounts[margins.owner]) @ margins.values
    matrix = sp.vstack([continuation, margins.strict.matrix, margins.ties.matrix, total], format="csr")
    lower, upper = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0])
    upper[size : size + m] = upper[-1] = INFINITY
    lower[-1] = 1.0
    free = np.full(matrix.shape[1], INFINITY)
    return LinearProgram(np.zeros(matrix.shape[1]), sp.csr_array(matrix), lower, upper, -free, free)


#: Gaps below this share of the largest action value are rounding of the linear program.
REPRODUCED = 1e-7
#: Discounts closer than this share a place in the order of horizons, or rest on a limit.
SAME_DISCOUNT = 1e-9
#: A reward below this share of its bound is zero.
ZERO_REWARD = 1e-9


def answer(solver: str, inner: Inner, point: Evaluation, search: SearchResult | None, status: Status) -> Solution:
    """The solution at a point; `status` is its status unless a check fails.

    `search` is what led to the point, None where the discounts were known.
    """
    if not point.has_reward:
        return _without_reward(solver, inner, point, search)
    margins, names = inner.margins, inner.margins.names
    unseparated = inner.unseparated(inner.omega(point.discounts)) if inner.objective == "sum" else ()
    alike = [[names[i], names[j]] for i, j in (*margins.alike, *unseparated)]
    found = {**(search.evidence if search else {}), **_explained(inner, point), "indistinguishable": alike}
    residual = max(found["violation"], abs(_recomputed(inner, point) - point.objective))
    status, message = _judge(inner, point, status, found)
    if search is not None:
        message += _resting(margins, point.discounts)
        if not search.converged and status == Status.CONVERGED:
            status, message = Status.NOT_CONVERGED, f"{message}; the best start stopped before it settled"
    trace = search.trace if search else None
    return Solution(
        solver=solver,
        status=status,
        message=message,
        experts=names,
        discounts=point.discounts,
        reward=point.parameters,
        objective=point.objective,
        residual=residual,
        trace=trace,
        evidence=ProgramEvidence.read(found),
    )


def _explained(inner: Inner, point: Evaluation) -> dict[str, Any]:
    """What the reward says about the experts."""
    margins, names, omega = inner.margins, inner.margins.names, point.omega
    gaps = [_gaps(part, point) for part in margins.parts]
    reproduced = [_holds(part, gap, noise) for part, (gap, noise) in zip(margins.parts, gaps, strict=True)]
    strict, ties = (_at_rows(rows, [gap for gap, _ in gaps]) for rows in (margins.strict, margins.ties))
    intervals = {name: [0.0, 1.0] for name in names}
    for part, kept, (_, noise) in zip(margins.parts, reproduced, gaps, strict=True):
        low, high = _interval(part, point, noise) if kept else 2 * (float(point.discounts[part.k]),)
        intervals[names[part.k]] = [max(intervals[names[part.k]][0], low), min(intervals[names[part.k]][1], high)]
    whole = dict.fromkeys(names, True)
    for part, kept in zip(margins.parts, reproduced, strict=True):
        whole[names[part.k]] &= kept
    return {
        "intervals": intervals,
        "order": order_of_horizons(names, point.discounts),
        "reproduced": whole,
        "omega_sizes": {name: int(omega[margins.strict.expert == k].sum()) for k, name in enumerate(names)},
        "rows": {name: int((margins.strict.expert == k).sum()) for k, name in enumerate(names)},
        "worst_margin": float(strict[omega].min()) if omega.any() else 0.0,
        "violation": max(0.0, -float(strict.min(initial=0.0)), float(np.abs(ties).max(initial=0.0))),
    }


def _gaps(part: Part, point: Evaluation) -> tuple[Floats, float]:
    """By how much the followed action is better than each action `(S,A)`, and how much of that may be rounding."""
    mdp, reward = part.expert.mdp, part.expert.expected_reward(point.parameters)
    q = evaluate(mdp, one_hot(part.policy, mdp.n_actions), reward, float(point.discounts[part.k])).q
    return q[np.arange(len(q)), part.policy][:, None] - q, REPRODUCED * float(np.abs(q).max(initial=0.0))


def _holds(part: Part, gaps: Floats, noise: float) -> bool:
    available = part.expert.mdp.available
    better = available & (gaps < -noise)
    unequal = part.chosen & available & (np.abs(gaps) > noise)
    return not (better.any() or unequal.any())


def _interval(part: Part, point: Evaluation, noise: float) -> tuple[float, float]:
    mdp, reward, gamma = part.expert.mdp, part.expert.expected_reward(point.parameters), float(point.discounts[part.k])
    low, high = (first_departure(mdp, reward, part.policy, part.chosen, gamma, direction, noise) for direction in (-1, 1))
    return low, high


def _at_rows(rows: MarginRows, gaps: list[Floats]) -> Floats:
    """The gaps of some rows, in their order."""
    found = np.zeros(len(rows))
    for number, gap in enumerate(gaps):
        own = rows.part == number
        found[own] = gap[rows.state[own], rows.action[own]]
    return found


def order_of_horizons(names: tuple[str, ...], discounts: Floats) -> list[list[str]]:
    """The experts from the shortest horizon to the longest; those with one discount share a place."""
    order: list[list[str]] = []
    last = -1.0
    for k in np.argsort(discounts, kind="stable"):
        if order and discounts[k] - last <= SAME_DISCOUNT:
            order[-1].append(names[k])
        else:
            order.append([names[k]])
        last = float(discounts[k])
    return order


def _recomputed(inner: Inner, point: Evaluation) -> float:
    """The objective of the answer from the exact values of the policies rather than from the program's variables."""
    margins = inner.margins.strict.matrix @ inner.margins.continuation(point.parameters, point.discounts)
    penalty = inner.l1 * float(np.abs(point.parameters).sum())
    if inner.objective == "worst":
        return float(margins[point.omega].min(initial=INFINITY)) - penalty
    worst = np.full(inner.layout.n_groups + 1, INFINITY)
    np.minimum.at(worst, inner.layout.group, margins)
    return float(worst[: inner.layout.n_groups].sum()) - penalty


def _judge(inner: Inner, point: Evaluation, status: Status, found: dict[str, Any]) -> tuple[Status, str]:
    if np.abs(point.parameters).max(initial=0.0) <= ZERO_REWARD * inner.bound:
        cause = f"the l1 weight {inner.l1:g} outweighs every margin" if inner.l1 > 0 else "no action can be made strictly better"
        return Status.NOT_IDENTIFIED, f"the best reward is zero and explains nothing: {cause}"
    if found["indistinguishable"]:
        pairs = ", ".join(f"{a} and {b}" for a, b in found["indistinguishable"])
        return Status.INDISTINGUISHABLE, f"experts that cannot be told apart at these discounts: {pairs}"
    order = " < ".join(" = ".join(place) for place in found["order"])
    return status, f"objective {point.objective:.6g}, worst margin {found['worst_margin']:.6g}, horizons {order}"


def _resting(margins: Margins, discounts: Floats) -> str:
    """Which searched discounts rest on the limit of policies that never end, as the end of a message."""
    resting = (margins.limits < 1) & (discounts >= margins.limits - SAME_DISCOUNT)
    names = ", ".join(name for name, rests in zip(margins.names, resting, strict=True) if rests)
    return f"; {names} rest on the limit {ENDLESS_DISCOUNT} of endless policies, which may decide the order" if names else ""


def _without_reward(solver: str, inner: Inner, point: Evaluation, search: SearchResult | None) -> Solution:
    """No reward was found: name the pair and the rows that contradict each other, and give no numbers as an answer."""
    margins, names = inner.margins, inner.margins.names
    found = dict(search.evidence) if search else {}
    failed = bool(point.failed) or (search is not None and bool(np.isnan(search.trace.values).any()))
    status, message = Status.INFEASIBLE, _why_not(names, point)
    message += f" at any of the {len(search.trace)} discount vectors searched" if search else " at these discounts"
    if point.unseparated:
        found["indistinguishable"] = [[names[i], names[j]] for i, j in point.unseparated]
        found["contradiction"] = contradiction(margins, point.discounts, point.unseparated[0])
    if failed:
        status, message = Status.NOT_CONVERGED, f"{message}, but HiGHS did not solve all programs: there may be one"
    nothing = np.full(margins.n_experts, np.nan), np.full(margins.n_parameters, np.nan)
    trace = search.trace if search else None
    evidence = ProgramEvidence.read(found)
    return Solution(solver, status, message, names, *nothing, point.objective, INFINITY, trace=trace, evidence=evidence)


def _why_not(names: tuple[str, ...], point: Evaluation) -> str:
    if point.singular:
        who = ", ".join(names[k] for k in point.singular)
        return f"values do not exist at discount 1 for experts whose policy never ends: {who}"
    if point.unseparated:
        first, second = point.unseparated[0]
        return f"no reward tells experts {names[first]} and {names[second]} apart"
    return (
        "no reward that explains the experts was found" if point.failed else "no reward makes any chosen action strictly better"
    )


@dataclass(frozen=True)
class LPIRL:
    """The reward that maximises the sum over states of the margin of the expert's action, at a known `discount`.

    `l1` is the weight λ of ‖θ‖₁, `reward_bound` the bound r_max. Several experts are taken to share the discount.
    `Solution.residual` is the larger of the worst violated row and the difference between the program's objective and the one
    recomputed by policy evaluation.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()[:1]), LPIRL(discount=0.3, reward_bound=10))
        >>> s.status.value, s.evidence["reproduced"]
        ('optimal', {'0': True})
    """

    discount: float
    l1: float = 0.0
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        as_discount(self.discount)
        _check_l1(self.l1)
        _check_bound(self.reward_bound)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """One linear program and a second one for the least norm; nothing is random."""
        inner = _inner(self, problem, "sum")
        point = _least(inner, inner.at(np.full(problem.n_experts, float(self.discount))))
        progress(1.0, f"LP-IRL: {point.objective:.6g}")
        return answer("LPIRL", inner, point, None, Status.OPTIMAL)


@dataclass(frozen=True)
class NaiveLP:
    """The sum of margins over experts and states, with discounts found by `search`; options as in `MPLP`.

    A baseline that fails: nothing in it requires the experts to differ under the answer. On the toy domain two of them end at
    discount 1, where no reward tells them apart, and the reward is on the goal alone. The status says so and names the pair.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()), NaiveLP(reward_bound=10))
        >>> s.status.value, s.discounts.round(3).tolist()
        ('indistinguishable', [0.0, 1.0, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)

    def __post_init__(self) -> None:
        _check_l1(self.l1)
        _check_bound(self.reward_bound)
        check_search(self.search)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discounts; `seed` fixes the search's starts."""
        inner = _inner(self, problem, "sum")
        point, found = _search(inner, self.search, seed, progress)
        return answer("NaiveLP", inner, point, found, Status.CONVERGED)


@dataclass(frozen=True)
class MPLP:
    """The reward and discounts that maximise the worst margin over Ω.

    Ω(Γ) are the margins that can be positive at all. A Γ under which some pair of experts cannot be told apart is infeasible.
    g*(Γ) is continuous where Ω does not change; where rows leave Ω the minimum is over fewer rows, and g* may jump up on a thin
    set of Γ, without a slope that leads there. The search climbs where g* is continuous.

    Args:
        l1: weight λ of ‖θ‖₁; above some weight the best reward is zero, which the status reports.
        reward_bound: bound r_max on every reward; without l1 the answer scales with it.
        search: over Γ; `SequentialLP()`, `Grid(step)` or `Bayesian()`.
        certify: if given, prove by branch and bound that the optimum exceeds the answer by at most this share of it.
        certify_seconds: when to stop the proof and report the bound reached.
        jobs: processes of the proof (−1: all cores).

    `Solution.residual` is the larger of the worst violated row and the difference between the program's objective and the one
    recomputed by policy evaluation. `Solution.evidence` holds, by expert, the interval of discounts in which the policy is
    optimal under the learned reward, whether it is reproduced and the size of Ω; the order of horizons; the starts of the search.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()), MPLP(reward_bound=10))
        >>> round(s.objective, 4), s.discounts.round(4).tolist()
        (1.5791, [0.0, 0.3294, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)
    certify: float | None = None
    certify_seconds: float = 120.0
    jobs: int = -1

    def __post_init__(self) -> None:
        _check_l1(self.l1)
        _check_bound(self.reward_bound)
        check_search(self.search)
        if self.certify is not None:
            as_positive(self.certify, "certify")
        as_positive(self.certify_seconds, "certify_seconds")
        as_jobs(self.jobs)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discounts, then prove the gap if asked to."""
        inner = _inner(self, problem, "worst")
        point, found = _search(inner, self.search, seed, progress)
        solution = answer("MPLP", inner, point, found, Status.CONVERGED)
        if self.certify is None:
            return solution
        proof = bound_optimum(inner, point, self.certify, self.certify_seconds, self.jobs, progress)
        return _certified(solution, proof)


def _inner(solver: LPIRL | NaiveLP | MPLP, problem: Problem, objective: Objective) -> Inner:
    return Inner(build_margins(problem), objective, float(solver.l1), float(solver.reward_bound))


def _search(inner: Inner, search: Search, seed: int, progress: Progress) -> tuple[Evaluation, SearchResult]:
    """The best point of a search, with the least reward among its optima."""
    found = search.run(inner, inner.margins.n_experts, seed, progress)
    return _least(inner, inner.at(found.best)), found


def _least(inner: Inner, point: Evaluation) -> Evaluation:
    return inner.least(point) if point.has_reward else point


def _certified(solution: Solution, proof: Certificate) -> Solution:
    status = Status.OPTIMAL if proof.proved and solution.status == Status.CONVERGED else solution.status
    evidence = replace(ProgramEvidence.of(solution), certificate=proof.as_evidence())
    return replace(solution, status=status, message=f"{solution.message}; {proof.message}", evidence=evidence)


def _check_l1(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= float(value) < np.inf:
        raise ValueError(f"l1 must be a number of at least 0, received {value!r}")


def _check_bound(value: Any) -> None:
    """The bound only scales the answer, and far from 1 the tolerances of the programs lose their meaning."""
    bound = as_positive(value, "reward_bound")
    if not 1e-4 <= bound <= 1e6:
        raise ValueError(f"reward_bound must be from 1e-4 to 1e6, received {bound:g}: solve at 1 and scale the reward")
