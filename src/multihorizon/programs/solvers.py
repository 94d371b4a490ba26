"""The LP solvers: `LPIRL` (one known discount), `NaiveLP` (the paper's failing baseline) and `MPLP` (the paper's method).

    LPIRL     max_θ        Σ_s   min_{a ∉ π(s)}   margin(s, a)    − λ‖θ‖₁         Ng and Russell; the paper's Eq. 3
    NaiveLP   max_Γ max_θ  Σ_k Σ_s min_{a ∉ π_k(s)} margin(s, a, k) − λ‖θ‖₁       Eq. 4
    MPLP      max_Γ max_θ  min_{(s,a) ∈ Ω_k(Γ), k} margin(s, a, k)  − λ‖θ‖₁       Eq. 5–6, Theorem 1, Algorithm 1

all subject to `margin ≥ 0` and `|θ| ≤ r_max`; `inner.py` solves them for a fixed Γ. Among the optima the reward with the least
‖θ‖₁ is returned.

**The evidence for an answer** is recomputed from it by policy evaluation. For each expert: is its policy reproduced (no action
better than the chosen ones, chosen ones equally good), and over which interval of discounts around its own does it stay optimal
under the learned reward? The interval is found with the Taylor expansions of `planning/breakpoints.py` in both directions from
the expert's discount, so no crossing is overlooked. An expert of several tasks must be reproduced in all, and has the interval
that its tasks share.

**Where there is none**, a Farkas certificate says why no reward distinguishes a pair (i, j) under Γ. Let P be the rows of i
against actions of j. If every reward with `W θ ≥ 0` has zero margin on all of P, then `{θ : W θ ≥ 0, Σ_P w θ ≥ 1}` is empty, and
by Farkas' lemma there are weights y ≥ 0 with

    Σ_P w  +  Σ_i y_i w_i  =  0            (ties have weights of either sign):

the margins of P and the weighted others sum to zero for every reward, so none of them can be positive. The weights are checked by
multiplying them out; what is left over is the certificate's residual.

**Demonstrations** count with the most frequent action of each state; a state without one counts as not observed. How many
decisions were for other actions, and where the most frequent action is not clearly ahead, is reported with the answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.special import bdtr

from multihorizon.checks import ENDLESS_DISCOUNT, Floats, as_discount, as_jobs, as_positive, first_few
from multihorizon.driver import Search, SearchResult, check_search
from multihorizon.numerics.lp import INFINITY, LinearProgram, solve_lp
from multihorizon.parallel import Progress, Run, silent
from multihorizon.planning.breakpoints import first_departure
from multihorizon.planning.plan import evaluate, one_hot
from multihorizon.problem import Problem, require_counts
from multihorizon.programs.inner import Inner, Margins, Objective, Optimum, build_margins
from multihorizon.programs.search import SequentialLP, bound_optimum, cheap_boxes
from multihorizon.solution import Evidence, Solution, Status
from multihorizon.words import percent, significant

#: Added to a message where some program has no answer, so that the others prove nothing.
UNSOLVED = ", but HiGHS did not solve all programs: there may be one"
#: Added to a message about an answer that neither a second ascent nor a proof confirms.
ALONE = "; only one ascent reached it, so there may be a higher optimum: use more starts, or certify=0.01"
UNCONFIRMED = "; it is the best that was tried, and nothing shows that it is the optimum: use SequentialLP(), or certify=0.01"


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramEvidence(Evidence, solvers=("LPIRL", "NaiveLP", "MPLP")):
    """What `LPIRL`, `NaiveLP` and `MPLP` say.

    Attributes:
        starts: what each start of the search reached.
        agreeing: how many restarts, from other points, reached the best value.
        intervals: by expert, the discounts at which its policy is optimal under the reward found.
        order: the experts from the shortest horizon to the longest; those with one discount share a place.
        reproduced: by expert, whether its policy is optimal under the answer.
        omega_sizes, rows: by expert, how many of its margins are in Ω, and how many there are.
        worst_margin: the least margin in Ω.
        violation: by how much the worst row is violated.
        indistinguishable: pairs of experts that no reward distinguishes at these discounts.
        contradiction: where no reward was found, margins that cannot all be positive, with their weights.
        certificate: the proof of how far the answer is from the optimum, where one was tried.
        other_decisions: of demonstrations, by expert, the share of decisions for another action than the most frequent one.
        doubtful_states: of demonstrations, by expert, the states in which the most frequent action is not clearly ahead of the
            second (sign test at 5%).
    """

    starts: list[dict[str, Any]] | None = None
    agreeing: int | None = None
    intervals: dict[str, list[float]] | None = None
    order: list[list[str]] | None = None
    reproduced: dict[str, bool] | None = None
    omega_sizes: dict[str, int] | None = None
    rows: dict[str, int] | None = None
    worst_margin: float | None = None
    violation: float | None = None
    indistinguishable: list[list[str]] | None = None
    contradiction: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    other_decisions: dict[str, float] | None = None
    doubtful_states: dict[str, list[str]] | None = None

    def ambiguity(self, solver: str, needs_reward: bool) -> str:
        """Say that the best actions do not determine the reward."""
        return "Many rewards make the same actions best, and they need not agree on what is best after the change."


@dataclass(frozen=True)
class LPIRL:
    """The reward that maximises the sum over states of the margin of the expert's action, at a known `discount`.

    `l1` is the weight λ of ‖θ‖₁, `reward_bound` the bound r_max. Several experts are taken to share the discount factor.
    `Solution.residual` is the larger of the worst violated row and the difference between the program's objective and the one
    recomputed by policy evaluation.

    This is the paper's Eq. 3.

    Args:
        discount: in [0,1]; it has no default.
        l1: weight λ of ‖θ‖₁.
        reward_bound: bound r_max on every reward.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.hard_experts()[:1]), LPIRL(discount=0.3, reward_bound=10))
        >>> s.status.value, s.evidence["reproduced"]
        ('optimal', {'0': True})
    """

    discount: float
    l1: float = 0.0
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        as_discount(self.discount)
        _check_sizes(self.l1, self.reward_bound)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Solve one linear program and a second one for the least norm; nothing is random."""
        inner, point, _ = _solve(self, problem, "sum", Run(seed, progress=progress))
        progress(1.0, f"LP-IRL: {significant(point.objective, 6)}")
        return _with_decisions(answer("LPIRL", inner, point, None, Status.OPTIMAL), problem)


@dataclass(frozen=True)
class NaiveLP:
    """The sum of margins over experts and states, with discount factors found by `search`; options as in `MPLP`.

    A baseline that fails: nothing in it requires the experts to differ under the answer. On the toy domain two of them end at
    discount 1, where no reward distinguishes them, and the reward is on the goal alone. The status says so and names the pair.

    This is the paper's Eq. 4.

    Args:
        l1: weight λ of ‖θ‖₁.
        reward_bound: bound r_max on every reward.
        search: over Γ; `SequentialLP()`, `Grid(step)` or `Bayesian()`.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.hard_experts()), NaiveLP(reward_bound=10))
        >>> s.status.value, s.discounts.round(3).tolist()
        ('indistinguishable', [0.0, 1.0, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)

    def __post_init__(self) -> None:
        _check_sizes(self.l1, self.reward_bound)
        check_search(self.search)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discount factors; `seed` fixes the search's starts."""
        inner, point, search = _solve(self, problem, "sum", Run(seed, progress=progress))
        return _with_decisions(answer("NaiveLP", inner, point, search, Status.CONVERGED), problem)


@dataclass(frozen=True)
class MPLP:
    """The reward and discount factors that maximise the worst margin over Ω.

    Ω(Γ) are the margins that can be positive at all. A Γ under which no reward distinguishes some pair of experts is infeasible.
    g*(Γ) is continuous where Ω does not change; where rows leave Ω the minimum is over fewer rows, and g* may jump up on a thin
    set of Γ, without a slope that leads there. The search ascends where g* is continuous.

    This is the paper's Eq. 5 to 7 and Algorithm 1.

    Args:
        l1: weight λ of ‖θ‖₁; above some weight the best reward is zero, which the status reports.
        reward_bound: bound r_max on every reward; without l1 the answer scales with it.
        search: over Γ; `SequentialLP()`, `Grid(step)` or `Bayesian()`.
        certify: prove by branch and bound that the optimum exceeds the answer by at most this share of it. "cheap" proves 0.001
            where that takes about as long as the search, and None proves nothing.
        certify_seconds: when to stop the proof of a share and report the bound reached.
        jobs: processes of the proof (−1: all cores).

    The status is "optimal" where the optimum is proved, "converged" where a second ascent from another point reached it as
    well, and otherwise "not converged": there may be a higher optimum.

    `Solution.residual` is the larger of the worst violated row and the difference between the program's objective and the one
    recomputed by policy evaluation. `Solution.evidence` holds, by expert, the interval of discounts in which the policy is
    optimal under the learned reward, whether it is reproduced and the size of Ω; the order of horizons; the starts of the search.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.hard_experts()), MPLP(reward_bound=10))
        >>> round(s.objective, 4), s.discounts.round(4).tolist()
        (1.5791, [0.0, 0.3294, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)
    certify: float | Literal["cheap"] | None = "cheap"
    certify_seconds: float = 120.0
    jobs: int = 1

    def __post_init__(self) -> None:
        _check_sizes(self.l1, self.reward_bound)
        check_search(self.search)
        if self.certify not in (None, "cheap"):
            as_positive(self.certify, "certify")
            if getattr(self.search, "order", None) is not None:
                raise ValueError("certify must be left out where the search has an order: the proof is about every order")
        as_positive(self.certify_seconds, "certify_seconds")
        as_jobs(self.jobs)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discount factors, then prove the gap if asked to."""
        run = Run(seed, self.jobs, progress)
        inner, point, search = _solve(self, problem, "worst", run)
        solution = answer("MPLP", inner, point, search, Status.CONVERGED)
        cheap = self.certify == "cheap"
        # Another search is what its user asked for, and so is an order. A few boxes bound nothing.
        boxes = cheap_boxes(inner) if cheap and isinstance(self.search, SequentialLP) and self.search.order is None else 0
        if self.certify is None or (cheap and boxes < 8):
            return _with_decisions(solution, problem)
        share, seconds, most = (0.001, np.inf, float(boxes)) if cheap else (float(self.certify), self.certify_seconds, INFINITY)
        proof, better = bound_optimum(inner, point, share, seconds, run, most)
        if better is not None:
            missed = f"; the proof came upon it, the search had ended at {significant(point.objective, 6)}"
            search = (
                None
                if search is None
                else replace(search, converged=better.converged, evidence=search.evidence | {"agreeing": 0})
            )
            solution = answer("MPLP", inner, inner.least(better.point), search, Status.CONVERGED)
            solution = replace(solution, message=f"{solution.message}{missed}")
        status = solution.status
        if proof.proved and point.has_reward and status in (Status.CONVERGED, Status.NOT_CONVERGED):
            status = Status.OPTIMAL
            solution = replace(solution, message=solution.message.replace(ALONE, "").replace(UNCONFIRMED, ""))
        if proof.proved and not point.has_reward:  # whatever HiGHS left open
            status = Status.INFEASIBLE
            solution = replace(solution, message=solution.message.removesuffix(UNSOLVED))
        evidence = replace(ProgramEvidence.of(solution), certificate=asdict(proof))
        solution = replace(solution, status=status, message=f"{solution.message}; {proof.message}", evidence=evidence)
        return _with_decisions(solution, problem)


def _solve(
    solver: LPIRL | NaiveLP | MPLP, problem: Problem, objective: Objective, run: Run
) -> tuple[Inner, Optimum, SearchResult | None]:
    """Return the best point of the solver's search, or the one at its known discount, with the least reward of all optima."""
    inner = Inner(build_margins(problem.observed_actions()), objective, float(solver.l1), float(solver.reward_bound))
    if isinstance(solver, LPIRL):
        search = None
        best = np.full(problem.n_experts, float(solver.discount))
    else:
        search = solver.search.run(inner, inner.margins.n_experts, run.seed, run.progress)
        best = search.best
    point = inner.at(best)
    return inner, inner.least(point) if point.has_reward else point, search


def _with_decisions(solution: Solution, problem: Problem) -> Solution:
    """Add to a solution what the decisions in its problem's demonstrations, if any, leave open about the best actions."""
    logged = [expert for expert in problem.experts if expert.counts is not None]
    solution = replace(solution, problem=problem.observed_actions())
    if not logged:
        return solution
    shares: dict[str, list[float]] = {}
    doubtful: dict[str, list[str]] = {}
    for expert in logged:
        counts = np.sort(require_counts(expert), axis=1)
        first = counts[:, -1]
        second = counts[:, -2] if counts.shape[1] > 1 else 0 * counts[:, -1]
        shares.setdefault(expert.name, []).append(float(1 - first.sum() / counts.sum()))
        unclear = (
            (first > 0) & (2 * bdtr(second, (first + second).astype(np.int64), 0.5) > 0.05) & (expert.mdp.live.sum(axis=1) > 1)
        )
        doubtful.setdefault(expert.name, []).extend(expert.mdp.state_names[s] for s in np.flatnonzero(unclear))
    other = {name: float(np.mean(each)) for name, each in shares.items()}
    said_of = [f"{name} {percent(share)} in {len(doubtful[name])} doubtful states" for name, share in other.items()]
    said = f"; decisions for another action than the most frequent of its state: {first_few(said_of)}"
    evidence = replace(ProgramEvidence.of(solution), other_decisions=other, doubtful_states=doubtful)
    return replace(solution, message=solution.message + said, evidence=evidence)


def answer(solver: str, inner: Inner, point: Optimum, search: SearchResult | None, status: Status) -> Solution:
    """Build the solution at a point; `status` is its status unless a check fails.

    `search` is the search that led to the point, None where the discounts were known.
    """
    margins, names = inner.margins, inner.margins.names
    said = dict(search.evidence) if search else {}
    if point.has_reward:
        discounts, reward = point.discounts, point.parameters
        unseparated = inner.unseparated(inner.omega(point.discounts)) if inner.objective == "sum" else ()
        said |= _explained(inner, point)
        said["indistinguishable"] = [[names[i], names[j]] for i, j in (*margins.alike, *unseparated)]
        residual = max(said["violation"], abs(_recomputed(inner, point) - point.objective))
        status, message = _judged(inner, point, status, said)
        if search is not None:
            resting = (margins.limits < 1) & (point.discounts >= margins.limits - 1e-9)
            if resting.any():
                who = ", ".join(name for name, rests in zip(names, resting, strict=True) if rests)
                message += f"; {who} rest on the limit {ENDLESS_DISCOUNT} of endless policies, which may decide the order"
            if not search.converged and status == Status.CONVERGED:
                status = Status.NOT_CONVERGED
                message = f"{message}; the best start stopped before it settled"
            elif not said.get("agreeing") and status == Status.CONVERGED:
                status = Status.NOT_CONVERGED
                message = message + (ALONE if "agreeing" in said else UNCONFIRMED)
    else:
        discounts = np.full(margins.n_experts, np.nan)
        reward = np.full(margins.n_parameters, np.nan)
        residual = INFINITY
        message = (
            f"no reward {'that explains the experts was found' if point.failed else 'makes any chosen action strictly better'}"
        )
        if point.singular:
            who = ", ".join(names[k] for k in point.singular)
            message = f"values do not exist at discount 1 for experts whose policy never ends: {who}"
        elif point.unseparated:
            said["indistinguishable"] = [[names[i], names[j]] for i, j in point.unseparated]
            said["contradiction"] = contradiction(margins, point.discounts, point.unseparated[0])
            message = f"no reward distinguishes experts {' and '.join(said['indistinguishable'][0])}"
        status = Status.INFEASIBLE
        message += f" at any of the {len(search.trace)} discount vectors searched" if search else " at these discounts"
        if point.failed or (search is not None and search.n_failed):
            status = Status.NOT_CONVERGED
            message = f"{message}{UNSOLVED}"
    return Solution(
        solver=solver,
        status=status,
        message=message,
        experts=names,
        discounts=discounts,
        reward=reward,
        objective=point.objective,
        residual=residual,
        trace=search.trace if search else None,
        evidence=ProgramEvidence.read(said),
    )


def _explained(inner: Inner, point: Optimum) -> dict[str, Any]:
    """Recompute the evidence of the reward about the experts."""
    margins, names = inner.margins, inner.margins.names
    strict, ties = np.zeros(len(margins.strict)), np.zeros(len(margins.ties))
    intervals = {name: [0.0, 1.0] for name in names}
    reproduced = dict.fromkeys(names, True)
    for number, task in enumerate(margins.tasks):
        mdp = task.expert.mdp
        reward = task.expert.expected_reward(point.parameters)
        gamma = float(point.discounts[task.k])
        q = evaluate(mdp, one_hot(task.policy, mdp.n_actions), reward, gamma).q
        # By how much the followed action is better than each action, and how much of that may be rounding of the program.
        gaps = q[np.arange(len(q)), task.policy][:, None] - q
        noise = 1e-7 * float(np.abs(q).max(initial=0.0))
        for rows, values in ((margins.strict, strict), (margins.ties, ties)):
            here = rows.task == number
            values[here] = gaps[rows.state[here], rows.action[here]]
        wrong = mdp.available & ((gaps < -noise) | (task.chosen & (np.abs(gaps) > noise)))
        low = high = gamma
        if wrong.any():
            reproduced[names[task.k]] = False
        else:
            low, high = (first_departure(mdp, reward, task.policy, task.chosen, gamma, side, noise) for side in (-1, 1))
        before = intervals[names[task.k]]
        intervals[names[task.k]] = [max(before[0], low), min(before[1], high)]
    order: list[list[str]] = []
    last = -1.0
    for k in np.argsort(point.discounts, kind="stable"):
        if order and point.discounts[k] - last <= 1e-9:
            order[-1].append(names[k])
        else:
            order.append([names[k]])
        last = float(point.discounts[k])
    return {
        "intervals": intervals,
        "order": order,
        "reproduced": reproduced,
        "omega_sizes": {name: int(point.omega[margins.strict.expert == k].sum()) for k, name in enumerate(names)},
        "rows": {name: int((margins.strict.expert == k).sum()) for k, name in enumerate(names)},
        "worst_margin": float(strict[point.omega].min()) if point.omega.any() else 0.0,
        "violation": max(0.0, -float(strict.min(initial=0.0)), float(np.abs(ties).max(initial=0.0))),
    }


def _recomputed(inner: Inner, point: Optimum) -> float:
    """Return the objective of the answer from the exact values of the policies rather than from the program's variables."""
    margins = inner.margins.strict.matrix @ inner.margins.continuation(point.parameters, point.discounts)
    penalty = inner.l1 * float(np.abs(point.parameters).sum())
    if inner.objective == "worst":
        return float(margins[point.omega].min(initial=INFINITY)) - penalty
    worst = np.full(inner.layout.n_groups + 1, INFINITY)
    np.minimum.at(worst, inner.layout.group, margins)
    return float(worst[: inner.layout.n_groups].sum()) - penalty


def _judged(inner: Inner, point: Optimum, status: Status, said: dict[str, Any]) -> tuple[Status, str]:
    if np.abs(point.parameters).max(initial=0.0) <= 1e-9 * inner.bound:
        cause = f"the l1 weight {inner.l1:g} outweighs every margin" if inner.l1 > 0 else "no action can be made strictly better"
        return Status.NOT_IDENTIFIED, f"the best reward is zero and explains nothing: {cause}"
    if said["indistinguishable"]:
        alike = [(inner.margins.names[i], inner.margins.names[j]) for i, j in inner.margins.alike]
        pairs = ", ".join(f"{a} and {b}" for a, b in alike or said["indistinguishable"])
        why = (
            "that have the same policy, so that nothing distinguishes them"
            if alike
            else "that no reward distinguishes at these discounts"
        )
        return Status.INDISTINGUISHABLE, f"experts {why}: {pairs}"
    order = " < ".join(" = ".join(place) for place in said["order"])
    return (
        status,
        f"objective {significant(point.objective, 6)}, worst margin {significant(said['worst_margin'], 6)}, horizons {order}",
    )


def contradiction(margins: Margins, discounts: Floats, pair: tuple[int, int]) -> dict[str, Any]:
    """Return the weights of the rows that contradict each other, largest first, and the residual of the certificate.

    `rows` holds (expert, state, action, weight), without weights below a millionth of the largest. It is empty where the two
    experts differ only in actions that lead to the same place, and `residual` is infinite if HiGHS gave no certificate.
    """
    names = margins.names
    strict = margins.strict
    size = margins.owner.size
    m = len(margins.strict)
    certificate: dict[str, Any] = {"pair": [names[k] for k in pair], "discounts": discounts.tolist(), "rows": []}
    target = margins.pairs[pair]
    if not target.size:
        return {**certificate, "residual": 0.0}
    # Is there a reward with no negative margin and a total of at least 1 on the target rows?
    identity = sp.hstack([sp.csr_array((size, margins.n_parameters)), sp.eye_array(size, format="csr")])
    continuation = identity - sp.diags_array(discounts[margins.owner]) @ margins.values
    total = sp.csr_array(strict.matrix[target].sum(axis=0)[None, :])
    matrix = sp.csr_array(sp.vstack([continuation, strict.matrix, margins.ties.matrix, total], format="csr"))
    lower, upper = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0])
    upper[size : size + m] = INFINITY
    lower[-1] = 1.0
    upper[-1] = INFINITY
    free = np.full(matrix.shape[1], INFINITY)
    ray = solve_lp(LinearProgram(np.zeros(matrix.shape[1]), matrix, lower, upper, -free, free)).ray
    if ray is None or not ray[-1] > 0:
        return {**certificate, "residual": INFINITY}
    weights = ray / ray[-1]
    multipliers = weights[size : size + m].copy()
    residual = max(float(np.abs(matrix.T @ weights).max()), -float(multipliers.min(initial=0.0)))
    multipliers[target] += 1.0
    for row in np.argsort(-multipliers, kind="stable"):
        if multipliers[row] > 1e-6 * multipliers.max():
            mdp = margins.tasks[strict.task[row]].expert.mdp
            state = strict.state[row]
            action = strict.action[row]
            labels = names[strict.expert[row]], mdp.state_names[state], mdp.action_names[action]
            certificate["rows"].append([*labels, float(multipliers[row])])
    return {**certificate, "residual": residual}


def _check_sizes(l1: Any, reward_bound: Any) -> None:
    """Check the l1 weight and the bound: it only scales the answer, and far from 1 the programs' tolerances mean nothing."""
    if isinstance(l1, bool) or not isinstance(l1, int | float | np.number) or not 0 <= float(l1) < np.inf:
        raise ValueError(f"l1 must be a number of at least 0, got {l1!r}")
    bound = as_positive(reward_bound, "reward_bound")
    if not 1e-4 <= bound <= 1e6:
        raise ValueError(f"reward_bound must be from 1e-4 to 1e6, got {bound:g}: solve at 1 and scale the reward")
