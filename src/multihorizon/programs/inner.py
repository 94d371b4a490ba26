"""Linear programs of IRL at fixed discounts: margins, Ω of Theorem 1 and the optimum g*(Γ).

*Margins* are sparse linear functions of the reward and of values. Expert k follows `π_k` with discount `γ_k`. With reward
parameters θ (one number per state for the arrival reward), the feature matrix F and the *continuation* `x_k = γ_k V_k`,

    V_k = F_{π_k} θ + P_{π_k} x_k,        x_k = γ_k V_k,
    margin(s, a, k) = Q_k(s, π_k(s)) − Q_k(s, a) = (F_{π_k}(s) − F_a(s)) θ + (P_{π_k}(s) − T_a(s)) x_k.

Eliminating `x_k` gives the paper's rows `w_{s,a,k}(γ) = (T_{π_k}(s) − T_a(s)) (I − γ T_{π_k})^{-1}`, which are dense. Kept as
variables, `(θ, x)` make every row as sparse as T, and the discount enters in one place only: the equation `x_k = γ_k V_k`.

An expert with several chosen actions in a state follows the first of them; the others give equations `margin = 0` (ties).
Terminal states and unavailable actions carry no rows, nor do actions that lead where the chosen one leads with the same
reward: their margin is zero whatever the reward. An expert who acts in several tasks has values in each, and one discount.

*The programs* at fixed discounts:

    Ω(Γ)  = rows that some reward makes positive while none is negative: the support of z in
            max Σ z   s.t.   margin_i ≥ z_i,  0 ≤ z ≤ 1,  θ free                                       (Eq. 6, z → 1 − z)
    g*(Γ) = max_θ  min_{i ∈ Ω} margin_i − λ‖θ‖₁   s.t.   margin_i ≥ 0,  |θ| ≤ r_max                     (Eq. 5)

If (θ₁, z₁) and (θ₂, z₂) are supports, so is their sum, and a large multiple of it has z = 1 on both: the optimum of the first
program is 0/1 and unique. In numbers θ is bounded by 1/`POSITIVE_MARGIN`, so a margin below `POSITIVE_MARGIN` times the largest
reward counts as zero. Where every row can be positive at once, g* with Ω = all rows shows it and Eq. 6 need not be solved.

For a pair of experts (i, j) who differ, Theorem 1 asks for a row of i against an action of j in Ω; where there is none, no reward
distinguishes them under Γ, g* is −∞ and the pair is named. Where HiGHS gives no answer, g* is not known: it is NaN.

All these programs, and those in which the discounts may move a little, have one form. In the variables `(θ, x)` of the margins,
the worst margins t and steps ν of the discounts:

    max   Σ_g t_g − λ ‖θ‖₁
    s.t.  x_k − γ_k V_k(θ, x) − V̄_k ν_k = 0            the continuation, linearised at V̄ if the discounts may move
          margin_i(θ, x) − [i ∈ Ω] t_{g(i)} ≥ 0         strict rows
          margin_e(θ, x) = 0                             ties
          |θ| ≤ r_max,  t ≥ 0,  |ν_k| ≤ Δ
          γ_j + ν_j > γ_i + ν_i                         where γ_j > γ_i and i, j differ, if their order is to be kept

`t` is one number for MPLP (the worst margin over Ω), one for each row in Eq. 6, and one for each expert and state in the sum of
Ng and Russell. The structure of the matrix is laid out once; a new Γ rewrites its numbers, and HiGHS starts from a near basis.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import ENDLESS_DISCOUNT, ROUNDING, Bools, Floats, Ints
from multihorizon.numerics.lp import INFINITY, LinearProgram, LPResult, short_solve, solve_lp
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.plan import one_hot
from multihorizon.problem import Expert, Problem


@dataclass(frozen=True, eq=False)
class ExpertTask:
    """Expert number `k` in one task: the actions chosen `(S,A)`, the policy followed `(S,)`, the states that are not terminal.

    `places` are those of its values among the values of all experts and tasks.
    """

    k: int
    expert: Expert
    chosen: Bools
    policy: Ints
    live: Ints
    places: Ints

    def q_rows(self, action: Ints, state: Ints, size: int) -> Any:
        """Return Q of pairs of action and state as rows `[F_a(s) | T_a(s) at the places]` on `(θ, x)`, where x has that size."""
        index = action * self.expert.mdp.n_states + state
        features = sp.csr_array(self.expert.feature_matrix[index])
        successors = sp.csr_array(self.expert.mdp.stacked[index][:, self.live])
        before = sp.csr_array((index.size, self.places[0]))
        after = sp.csr_array((index.size, size - before.shape[1] - successors.shape[1]))
        return sp.hstack([features, before, successors, after], format="csr")


@dataclass(frozen=True, eq=False)
class MarginRows:
    """Some margins: `matrix` `(m, d+N)` on `(θ, x)`, and which task, expert, state and action each row is about."""

    matrix: Any
    task: Ints
    expert: Ints
    state: Ints
    action: Ints

    def __len__(self) -> int:
        return self.expert.size


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins of K experts.

    `values` `(N, d+N)` gives the values V in all tasks from `(θ, x)`, and `owner` `(N,)` says whose discount each falls under.
    `strict` are the margins against actions not chosen, `ties` those that must vanish. `indifferent` are the (task, state) in
    which an action that is not chosen leads where the chosen one does.
    """

    names: tuple[str, ...]
    tasks: tuple[ExpertTask, ...]
    values: Any
    owner: Ints
    strict: MarginRows
    ties: MarginRows
    indifferent: frozenset[tuple[int, int]]

    @property
    def n_parameters(self) -> int:
        """Return d, the length of θ."""
        return int(self.values.shape[1] - self.values.shape[0])

    @property
    def n_experts(self) -> int:
        """Return K."""
        return len(self.names)

    @cached_property
    def limits(self) -> Floats:
        """Return the largest discount `(K,)` that a search may try: below 1 where the policy never ends from some state."""
        limits = np.ones(self.n_experts)
        for task in self.tasks:
            mdp = task.expert.mdp
            if mdp.never_ends(one_hot(task.policy, mdp.n_actions)).any():
                limits[task.k] = ENDLESS_DISCOUNT
        return limits

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Ints]:
        """Return for each ordered pair (i, j) who differ in a task they share, the strict rows of i against actions that j
        chooses.
        """
        telling_rows: dict[tuple[int, int], list[Ints]] = {}
        for number, mine in enumerate(self.tasks):
            for other in self.tasks:
                if mine.k == other.k or (mine.expert.whole or mine.expert.mdp) is not (other.expert.whole or other.expert.mdp):
                    continue
                rows = np.flatnonzero(self.strict.task == number)
                both = np.intersect1d(mine.live, other.live)  # where both experts were observed
                rows = rows[np.isin(self.strict.state[rows], both)]
                rows = rows[other.chosen[self.strict.state[rows], self.strict.action[rows]]]
                if rows.size or (other.chosen & ~mine.chosen)[both].any():
                    telling_rows.setdefault((mine.k, other.k), []).append(rows)
        return {pair: np.concatenate(rows) for pair, rows in telling_rows.items()}

    @cached_property
    def telling(self) -> Ints:
        """Return the strict rows that distinguish some pair of experts."""
        return np.unique(np.concatenate([*self.pairs.values(), np.empty(0, dtype=np.int64)]))

    @cached_property
    def alike(self) -> list[tuple[int, int]]:
        """Return pairs of experts with the same tasks who choose the same actions everywhere: nothing distinguishes them."""
        tasks = [{id(task.expert.mdp) for task in self.tasks if task.k == k} for k in range(self.n_experts)]
        return [
            (i, j)
            for j in range(self.n_experts)
            for i in range(j)
            if tasks[i] == tasks[j] and (i, j) not in self.pairs and (j, i) not in self.pairs
        ]

    def of(self, experts: Sequence[int]) -> Margins:
        """Return the margins of some of the experts, numbered in the order given."""
        numbered = [(new, task.expert) for new, k in enumerate(experts) for task in self.tasks if task.k == k]
        return _assemble(tuple(self.names[k] for k in experts), numbered)

    def continuation(self, parameters: Floats, discounts: Floats) -> Floats:
        """Return `(θ, x)`, with each `x_k` solved from its equation."""
        point = np.concatenate([parameters, np.zeros(self.owner.size)])
        immediate = self.values @ point
        for task in self.tasks:
            gamma = float(discounts[task.k])
            columns = self.n_parameters + task.places
            transitions = self.values[task.places][:, columns]
            point[columns] = gamma * Resolvent(transitions, gamma).solve(immediate[task.places])
        return point


def build_margins(problem: Problem) -> Margins:
    """Build the margins of a problem; raise for experts who are not given as actions or action sets."""
    return _assemble(problem.names, list(zip(problem.owner, problem.experts, strict=True)))


def _assemble(names: tuple[str, ...], experts: list[tuple[int, Expert]]) -> Margins:
    """Assemble the margins of experts in their tasks, each with the number of the expert."""
    tasks, values, indifferent = [], [], []
    rows: dict[str, list[tuple[Any, Ints, Ints, Ints, Ints]]] = {"strict": [], "ties": []}
    size = sum(int((~expert.mdp.terminal).sum()) for _, expert in experts)
    filled = 0
    for number, (k, expert) in enumerate(experts):
        mdp = expert.mdp
        chosen = expert.require_sets()
        live = np.flatnonzero(~mdp.terminal)
        policy = chosen.argmax(axis=1)
        task = ExpertTask(k, expert, chosen, policy, live, filled + np.arange(live.size))
        filled += live.size
        followed = task.q_rows(policy[live], live, size)
        others = np.argwhere(mdp.available[live] & (np.arange(mdp.n_actions) != policy[live, None]))
        state = live[others[:, 0]]
        action = others[:, 1]
        margins = sp.csr_array(followed[others[:, 0]] - task.q_rows(action, state, size))
        margins.data[np.abs(margins.data) <= ROUNDING] = 0.0
        margins.eliminate_zeros()
        differs = np.diff(margins.indptr) > 0
        tied = chosen[state, action]
        for kind, of_kind in (("strict", ~tied), ("ties", tied)):
            these = np.flatnonzero(differs & of_kind)
            numbers = (np.full(these.size, number), np.full(these.size, k))
            rows[kind].append((margins[these], *numbers, state[these], action[these]))
        tasks.append(task)
        values.append(followed)
        indifferent += [(number, int(s)) for s in state[~differs & ~tied]]

    def joined(kind: str) -> MarginRows:
        matrices, *columns = zip(*rows[kind], strict=True)
        return MarginRows(sp.csr_array(sp.vstack(matrices, format="csr")), *(np.concatenate(column) for column in columns))

    owner = np.concatenate([np.full(task.places.size, task.k) for task in tasks])
    whole = sp.vstack(values, format="csr")
    return Margins(names, tuple(tasks), whole, owner, joined("strict"), joined("ties"), frozenset(indifferent))


Objective = Literal["worst", "sum", "each"]
#: Margins below this share of the largest reward count as zero: three digits above what HiGHS' tolerance can blur.
POSITIVE_MARGIN = 1e-6


class Columns(NamedTuple):
    """The slices of the variables: θ⁺, θ⁻, the continuation x, the worst margins t, the steps ν."""

    positive: slice
    negative: slice
    continuation: slice
    worst: slice
    steps: slice


class RowBlocks(NamedTuple):
    """The slices of the rows.

    `floor` bounds the objective from below (used to pick the least ‖θ‖₁ among optima), `mean` fixes the mean margin (used
    where no reward satisfies all rows), `order` has `ν_j − ν_i` of every pair i < j. All three are free unless used.
    """

    continuation: slice
    strict: slice
    ties: slice
    floor: slice
    mean: slice
    order: slice


@dataclass(frozen=True, eq=False)
class ProgramLayout:
    """The structure of one objective's program on some margins, and where things are in it.

    The matrix at Γ has the entries `constant − slopes · γ[owners]` on the structure of `pattern`. Strict row i bounds the worst
    margin number `group[i]`, or none if that is `n_groups`. `worst_entries` and `step_entries` are the entries that Ω and V̄ set.
    """

    margins: Margins
    group: Ints
    n_groups: int
    columns: Columns
    rows: RowBlocks
    pattern: Any
    slopes: Floats
    owners: Ints
    worst_entries: Ints
    step_entries: Ints


def lay_out(margins: Margins, objective: Objective, l1: float) -> ProgramLayout:
    """Lay out the program of one objective."""
    strict, ties, d, k, size = margins.strict, margins.ties, margins.n_parameters, margins.n_experts, margins.owner.size
    m = len(strict)
    first, second = np.triu_indices(k, 1)
    group = np.zeros(m, dtype=np.int64) if objective == "worst" else np.arange(m)
    n_groups = 1 if objective == "worst" else m
    if objective == "sum":
        # Rows of a state with an indifferent action bound no t: there it is 0.
        places = list(zip(strict.task.tolist(), strict.state.tolist(), strict=True))
        number = {place: i for i, place in enumerate(dict.fromkeys(p for p in places if p not in margins.indifferent))}
        n_groups = len(number)
        group = np.array([number.get(place, n_groups) for place in places], dtype=np.int64)
    columns = Columns(*slices(d, d, size, n_groups, k))
    rows = RowBlocks(*slices(size, m, len(ties), 1, 1, first.size))

    def in_reward(linear: Any) -> list[Any]:
        """Return rows that are linear in (θ, x), with θ = θ⁺ − θ⁻."""
        matrix = sp.csr_array(linear)
        return [matrix[:, :d], -matrix[:, :d], matrix[:, d:]]

    cost = sp.csr_array(np.full((1, d), -l1))
    bounded = sp.csr_array((np.full(m, -1.0), (np.arange(m), group)), shape=(m, n_groups + 1))[:, :n_groups]
    moved = sp.csr_array((np.ones(size), (np.arange(size), margins.owner)), shape=(size, k))
    constant = sp.block_array(
        [
            [None, None, sp.eye_array(size), None, moved],
            [*in_reward(strict.matrix), bounded, None],
            [*in_reward(ties.matrix), None, None],
            [cost, cost, None, sp.csr_array(np.ones((1, n_groups))), None],
            [*in_reward(strict.matrix.sum(axis=0)[None, :] / max(m, 1)), None, None],
            [None, None, None, None, sp.csr_array(np.eye(k)[second] - np.eye(k)[first])],
        ],
        format="csr",
    )
    values = sp.hstack(in_reward(margins.values), format="csr")
    values.resize(constant.shape)
    # Both matrices on the union of their structures.
    union = sp.csr_array(abs(constant) + abs(values))
    union.sort_indices()
    row_of = np.repeat(np.arange(union.shape[0]), np.diff(union.indptr))
    data, slopes = (np.asarray(matrix[row_of, union.indices]).ravel() for matrix in (constant, values))
    in_worst = (union.indices >= columns.worst.start) & (union.indices < columns.worst.stop)
    return ProgramLayout(
        margins=margins,
        group=group,
        n_groups=n_groups,
        columns=columns,
        rows=rows,
        pattern=sp.csr_array((data, union.indices, union.indptr), shape=union.shape),
        slopes=slopes,
        owners=margins.owner[np.minimum(row_of, size - 1)],
        worst_entries=np.flatnonzero(in_worst & (row_of >= rows.strict.start) & (row_of < rows.strict.stop)),
        step_entries=np.flatnonzero((union.indices >= columns.steps.start) & (row_of < rows.continuation.stop)),
    )


def slices(*sizes: int) -> list[slice]:
    """Return slices of these sizes, one after the other."""
    ends = np.cumsum([0, *sizes])
    return [slice(int(begin), int(end)) for begin, end in itertools.pairwise(ends)]


def program(
    layout: ProgramLayout,
    discounts: Floats,
    omega: Bools,
    *,
    l1: float,
    bound: float,
    values: Floats | None = None,
    steps: tuple[Floats, Floats] | None = None,
    keep_order: bool = False,
    mean: bool = False,
    ceiling: float = INFINITY,
) -> LinearProgram:
    """Build the program at Γ = `discounts` with the strict rows `omega` in Ω.

    With `values` V̄ and `steps` (lower, upper) the discounts may move and the program is the linearised one; `keep_order` lets
    none overtake another. With `mean` the mean margin is held at 1 and t may be negative: how far the rows are from being
    satisfiable together. `ceiling` bounds t.
    """
    columns, rows = layout.columns, layout.rows
    data = layout.pattern.data - layout.slopes * discounts[layout.owners]
    data[layout.worst_entries] = -1.0 * omega[layout.group < layout.n_groups]
    data[layout.step_entries] = 0.0 if values is None else -values
    matrix = sp.csr_array((data, layout.pattern.indices, layout.pattern.indptr), shape=layout.pattern.shape)
    lower = np.zeros(matrix.shape[1])
    upper = np.full(matrix.shape[1], INFINITY)
    # Without an l1 cost θ need not be split into two parts: θ⁺ alone takes both signs.
    lower[columns.positive] = 0.0 if l1 > 0 else -bound
    upper[columns.positive] = bound
    upper[columns.negative] = bound if l1 > 0 else 0.0
    lower[columns.continuation] = -INFINITY
    lower[columns.worst] = -INFINITY if mean else 0.0
    upper[columns.worst] = ceiling
    lower[columns.steps], upper[columns.steps] = (0.0, 0.0) if steps is None else steps
    costs = np.zeros(matrix.shape[1])
    costs[columns.worst] = 1.0
    costs[columns.positive] = costs[columns.negative] = -l1
    row_lower, row_upper = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0])
    row_upper[rows.strict] = INFINITY
    row_lower[rows.floor.start :] = -INFINITY
    row_upper[rows.floor.start :] = INFINITY
    if mean:
        row_lower[rows.mean] = row_upper[rows.mean] = 1.0
    if keep_order:
        first, second = np.triu_indices(discounts.size, 1)
        gap = discounts[second] - discounts[first]
        # Experts who act alike may overtake each other.
        gap[[(int(i), int(j)) in layout.margins.alike for i, j in zip(first, second, strict=True)]] = 0.0
        # One step closes at most nine tenths of the distance between two discounts: where they meet, g* does not exist.
        row_lower[rows.order] = np.where(gap > 0, -0.9 * gap, -INFINITY)
        row_upper[rows.order] = np.where(gap < 0, -0.9 * gap, INFINITY)
    return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper)


class Bases:
    """Warm starts: the last 100 optimal bases of the programs of each name, with the Γ at which they were optimal.

    Programs at neighbouring Γ share most of their optimal basis, as long as no two experts have changed their order: at
    γ_i = γ_j no reward distinguishes experts who differ, and beyond that point other rows are active. So a program starts from
    the basis at the nearest Γ with the same order, or with as few pairs in another order as possible. After a step that is not
    taken this is the basis of the point where the step began, not the one of the point that was tried.
    """

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[Floats, Any]]] = {}

    def keep(self, name: str, discounts: Floats, basis: Any) -> None:
        """Remember an optimal basis."""
        self._kept.setdefault(name, deque(maxlen=100)).append((discounts, basis))

    def nearest(self, name: str, discounts: Floats, like: str = "") -> Any:
        """Return the basis at the nearest Γ of a program of that name, or of one it is `like`; None if there is none.

        Among equally near ones the latest counts. At the same Γ, a basis of another name counts as far away as a long step.
        """
        kept = [(gamma, basis, 0.0) for gamma, basis in reversed(self._kept.get(name, ()))]
        kept += [(gamma, basis, 0.25) for gamma, basis in reversed(self._kept.get(like, ()))]
        if not kept:
            return None
        others = np.array([gamma for gamma, _, _ in kept])
        bases = [b for _, b, _ in kept]
        further = [f for _, _, f in kept]
        first, second = np.triu_indices(discounts.size, 1)
        here = discounts[first] - discounts[second]
        there = others[:, first] - others[:, second]
        swapped = (np.sign(here) != np.sign(there)).sum(axis=1)
        return bases[int(np.argmin(swapped + np.abs(others - discounts).max(axis=1) + further))]


class ProgramError(RuntimeError):
    """HiGHS gave no answer to a program that has one."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """The results at one Γ: g* (−inf if no reward distinguishes some pair), θ, V, Ω, and the reasons.

    `unseparated` are the pairs of Theorem 1 without a row in Ω; `singular` the experts whose values do not exist at
    their discount. Where a program `failed`, g* is NaN and HiGHS' word for it is kept.
    """

    discounts: Floats
    objective: float
    parameters: Floats
    values: Floats
    omega: Bools
    unseparated: tuple[tuple[int, int], ...] = ()
    singular: tuple[int, ...] = ()
    failed: str = ""

    @property
    def has_reward(self) -> bool:
        """Return whether some reward explains the experts at these discounts."""
        return self.objective > -INFINITY


@dataclass(eq=False)
class Inner:
    """g*(Γ) of one problem, with the bases of its programs kept for warm starts."""

    margins: Margins
    objective: Objective
    l1: float
    bound: float
    _bases: Bases = field(default_factory=Bases)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the bases, which do not travel between processes: a copy starts afresh."""
        return {**self.__dict__, "_bases": Bases()}

    @cached_property
    def layout(self) -> ProgramLayout:
        """Return the program of the objective."""
        return lay_out(self.margins, self.objective, self.l1)

    @cached_property
    def support(self) -> ProgramLayout:
        """Return the program of Eq. 6."""
        return lay_out(self.margins, "each", 0.0)

    @cached_property
    def worst(self) -> ProgramLayout:
        """Return the program of the worst margin over all rows, whatever the objective."""
        return self.layout if self.objective == "worst" else lay_out(self.margins, "worst", 0.0)

    @property
    def every(self) -> Bools:
        """Return Ω with all strict rows."""
        return np.ones(len(self.margins.strict), dtype=np.bool_)

    def __call__(self, discounts: Floats) -> float:
        """Return g*(Γ)."""
        return self.at(discounts).objective

    def at(self, discounts: Floats, over_all: bool = False) -> Optimum:
        """Solve at Γ; `over_all` takes all rows for Ω without asking whether all of them can be positive."""
        gamma = np.asarray(discounts, dtype=np.float64)
        nothing = np.zeros(self.margins.n_parameters), np.zeros(self.margins.owner.size)
        # The values of a policy that never ends do not exist at discount 1.
        singular = tuple(np.flatnonzero((gamma >= 1) & (self.margins.limits < 1)).tolist())
        if singular:
            return Optimum(gamma, -INFINITY, *nothing, ~self.every, singular=singular)
        try:
            omega = self.every
            result = self.run(gamma, self.every)
            least = result.values[self.layout.columns.worst].min() if result.optimal else 0.0
            if not (over_all or self.objective == "sum" or least > POSITIVE_MARGIN * self.bound):
                omega = self.omega(gamma)
                missing = self.unseparated(omega)
                if missing or not omega.any():
                    return Optimum(gamma, -INFINITY, *nothing, omega, unseparated=missing)
                result = self.run(gamma, omega)
            return Optimum(gamma, _answered(result).objective, *self.read(self.layout, result), omega)
        except ProgramError as failure:
            return Optimum(gamma, np.nan, *nothing, ~self.every, failed=str(failure))

    def run(self, gamma: Floats, omega: Bools) -> LPResult:
        """Solve the program of the objective at Γ with a given Ω."""
        return self.solve("objective", program(self.layout, gamma, omega, l1=self.l1, bound=self.bound), gamma)

    def omega(self, gamma: Floats) -> Bools:
        """Return Ω(Γ) by Eq. 6, as a mask of the strict rows."""
        lp = program(self.support, gamma, self.every, l1=0.0, bound=1 / POSITIVE_MARGIN, ceiling=1.0)
        # Its rewards are so large that the interior point hardly ever ends at an optimum of many rows.
        result = _answered(self.solve("support", lp, gamma, interior=False))
        return result.values[self.support.columns.worst] > 0.5

    def unseparated(self, omega: Bools) -> tuple[tuple[int, int], ...]:
        """Return the pairs of differing experts without a row in Ω."""
        return tuple(pair for pair, rows in self.margins.pairs.items() if not omega[rows].any())

    def ceiling(self, gamma: Floats, strict: Ints) -> float:
        """Bound the objective over all rows from above: by its optimum over some of them, infinite if that takes many steps."""
        whole = program(self.layout, gamma, self.every, l1=self.l1, bound=self.bound)
        rows = self.layout.rows.strict
        kept = np.r_[0 : rows.start, rows.start + strict, rows.stop : whole.matrix.shape[0]].astype(np.int64)
        some = replace(whole, matrix=whole.matrix[kept], row_lower=whole.row_lower[kept], row_upper=whole.row_upper[kept])
        result = short_solve(some)
        return result.objective if result.optimal else INFINITY

    def solve(self, name: str, lp: LinearProgram, gamma: Floats, like: str = "", interior: bool = True) -> LPResult:
        """Solve from the basis at the nearest Γ of a program of that name, or of one it is `like`."""
        result = solve_lp(lp, self._bases.nearest(name, gamma, like), ray=False, interior=interior)
        if result.optimal:
            self._bases.keep(name, gamma, result.basis)
        return result

    def read(self, layout: ProgramLayout, result: LPResult) -> tuple[Floats, Floats]:
        """Return θ `(d,)` and V `(N,)` at the optimum of a program."""
        columns = layout.columns
        theta: Floats = result.values[columns.positive] - result.values[columns.negative]
        values: Floats = self.margins.values @ np.concatenate([theta, result.values[columns.continuation]])
        return theta, values

    def least(self, point: Optimum) -> Optimum:
        """Return the optimum with the least ‖θ‖₁ among those at the point's Γ: the objective becomes a row, the norm the cost."""
        columns = self.layout.columns
        # Any positive weight splits θ into its two parts; the costs are set below.
        lp = program(self.layout, point.discounts, point.omega, l1=1.0, bound=self.bound)
        # The share of the optimum that is given up leaves room for HiGHS' tolerance.
        lp.row_lower[self.layout.rows.floor] = point.objective - 1e-9 * max(abs(point.objective), POSITIVE_MARGIN * self.bound)
        lp.costs[:] = 0.0
        lp.costs[columns.positive] = lp.costs[columns.negative] = -1.0
        result = solve_lp(lp)
        if not result.optimal:
            return point
        parameters, values = self.read(self.layout, result)
        return replace(point, parameters=parameters, values=values)


def _answered(result: LPResult) -> LPResult:
    if not result.optimal:
        raise ProgramError(result.detail)
    return result
