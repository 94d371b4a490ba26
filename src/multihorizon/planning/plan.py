"""Planning: what a policy is worth and where it goes, the best policy, and the best policy whose entropy is rewarded.

**One policy.** For a policy π with `P_π(s,s') = Σ_a π(a|s) T(s'|s,a)` and discount γ, on arrival rewards:

* values       `V = (I − γ P_π)^{-1} Σ_a π(a|·) R(·,a)`, with `λ H(π(·|s))` added to the reward when a temperature λ is given;
* occupancies  `μ(s,a) = μ(s) π(a|s)`, `μ = (I − γ P_πᵀ)^{-1} ρ`, summing to 1/(1−γ) where no state is terminal;
* features     `f = Fᵀ μ`, for the arrival reward `F = T_A`: how often, discounted, each state is entered;
* entropy      `Σ μ(s,a) (−log π(a|s))`, the causal entropy.

A terminal state takes no decision: its value, occupancy and entropy are 0. Where moves take time, T stands for the transitions
as they are seen at the discount (`MDP.at`).

**The best policy** (`plan`) is found by policy iteration, started from sweeps. Each step solves `(I − γ P_π) V = R_π` and then
changes the action of a state only where the best action gains more than rounding. A state whose action is as good as the best
keeps it. Every exact step therefore raises the values, and the loop ends when no state can gain. Always taking the first best
action would not do: on grids with ties it can cycle among equally good policies. At discount 1 the iteration starts from a policy
that heads for a terminal state, and each policy on the way must end.

On more than a few states the first policy comes from modified policy iteration (Puterman and Shin, 1978). A round takes the best
action of every state and then 16 sweeps `V ← R_π + γ P_π V` with these actions, 32 after a round that left much to do. A sweep
costs one product with `P_π`, far less than a sweep over all actions. Two bounds of MacQueen (1966, 1967) save most of the rest:

* where no state ends and a sweep changes all values by nearly the same d, the sweeps to come add `d γ/(1 − γ)`, which is added
  at once. What is left shrinks as quickly as the task mixes, whatever the discount;
* since `Q` was last known, no action has gained more than γ times the largest rise of a value. With many actions, most of them
  need no product to be ruled out.

The rounds end when no state can gain more than rounding, or when sweeps no longer help. Where the last sweeps settle quickly,
they go on until they change nothing but rounding, and these values are exact. Otherwise exact policy iteration takes over, so
that nothing about the answer depends on where the rounds end. While states still gain, values are solved for only to a part of
what they gain. The last solve is to rounding, and nothing may gain after it.

**The best policy whose entropy is rewarded** (`soft_plan`) is found by Newton's method. The soft Bellman operator is `(BV)(s) = λ
log Σ_a exp(Q_V(s,a)/λ)`, `Q_V = R + γ T V`, over the actions available in s, and its derivative is `γ P_π` with π the softmax
policy of `Q_V`. Newton's step `V ← V + (I − γ P_π)^{-1} (BV − V)` is soft policy iteration: from the second iterate on V rises
monotonically to the solution, and the last steps converge quadratically, so a handful of them do the work of hundreds of sweeps.
The residual may rise on the way, the error cannot: the step is a contraction toward the solution. It stops when the residual is
rounding, or is near it and no longer falls.

On more than a few states a few sweeps `V ← BV` come first, which cost less than a step and bring it near. `P_π` is kept from step
to step while each leaves less than 3% of the residual, and a step is solved to a few digits only: all steps together then
take hardly more products than one exact solve. `benchmarks/soft_planning.py` compares with sweeps alone.

**Other values of the future.** All of this is for `value="soft"`. Choices may be softmax, `π ∝ exp(Q/λ)`, while the future is
valued otherwise: by the best action, `V = max_a Q` ("max"), or by the choices that will be made, `V = Σ_a π Q` ("mean"). With
"max", values are those of `plan`, whatever λ is. With "mean" they are exact by one backward pass where no state comes twice.
Elsewhere the backup is no contraction and may have several fixed points (Asadi and Littman, 2017). Then Newton's method starts
from the soft values, with steps that are halved until the residual falls, and searches from lower and from higher values tell
whether there is another. The derivatives of V in Q and in log λ, with `log π = (Q − c)/λ` and H the entropy of π, are

    soft: π,  λH        max: 1/n at each of n best actions,  0        mean: π (1 + log π + H),  −λ Σ_a π (log π + H)².

**Other weights of the future.** A person weighs what happens t steps from now by d(t), d(1) = 1, and plans today for today's
weights: tomorrow's self may want another plan, and a *naive* person does not expect that. They maximise
`E Σ_t d(t) [R_t + λ H_t]`, R the expected immediate reward `(A·S,)`, λ the temperature and H the entropy of the choice. With the
step discounts `ρ_t = d(t+1)/d(t)` and V_t the value of a state t steps from now, in units of that step's weight,

    Q_t = R + ρ_{t+1} T V_{t+1},    V_t(s) = λ log Σ_a exp(Q_t(s,a)/λ),    log π(a|s) = (Q_0(s,a) − V_0(s))/λ.

After H steps, the most that the task allows, nothing is left and V_H = 0. With ρ_t = γ for all t, V_t is the soft value at
discount γ in every state from which the task ends in H − t steps, and π is the policy of `soft_plan`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, NoReturn, get_args

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import (
    ROUNDING,
    ROW_TOLERANCE,
    TINY,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_discount,
    as_floats,
    as_non_negative,
    as_positive,
    as_shape,
    first_few,
)
from multihorizon.mdp import MDP, episodic_levels, steps_into
from multihorizon.planning.linear import DENSE_STATES, DIRECT_STATES, Resolvent, SingularError, matrix_resolvent, policy_resolvent
from multihorizon.words import significant

#: Newton's method takes about ten steps on every problem we know.
MAX_NEWTON_STEPS = 100
#: The residual, relative to the largest value, below which nothing but rounding is left.
ROUNDED_RESIDUAL = 4 * np.finfo(np.float64).eps
#: The residual, relative to the largest value, below which a step that does not reduce it ends the iteration.
STALLED_RESIDUAL = 1e-9
#: Values above this many temperatures are infinite, or have lost the digits that choices depend on: never ending pays.
INFINITE = 1e12

#: How the future is valued: `λ log Σ exp(Q/λ)`, `max Q`, or `Σ π Q`.
Value = Literal["soft", "max", "mean"]


def check_value(value: object) -> None:
    """Raise unless this is a way to value the future."""
    if value not in get_args(Value):
        raise ValueError(f"value must be one of {', '.join(get_args(Value))}, got {value!r}")


@dataclass(frozen=True)
class Evaluation:
    """Values `(S,)` and action values `(S,A)` of a policy, and the residual of its Bellman equation."""

    values: Floats
    q: Floats
    residual: float


@dataclass(frozen=True)
class Occupancy:
    """Discounted decision counts `(S,A)`, their sums `(S,)`, and the residual of the flow equation."""

    counts: Floats
    residual: float

    @property
    def states(self) -> Floats:
        """Return `μ(s) = Σ_a μ(s,a)`."""
        sums: Floats = self.counts.sum(axis=1)
        return sums


def check_policy(mdp: MDP, policy: ArrayLike, name: str = "policy") -> Floats:
    """Read a policy `(S,A)`: rows sum to 1 and avoid unavailable actions; rows of terminal states are set uniform."""
    array = as_floats(policy, name).copy()
    as_shape(array, (mdp.n_states, mdp.n_actions), name)
    array[mdp.terminal] = 1 / mdp.n_actions
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, got {significant(array.min(), 6)} {_place(mdp, array < 0)}")
    barred = (array > 0) & ~mdp.available
    if barred.any():
        raise ValueError(f"{name} must not use unavailable actions, got {significant(array[barred][0], 6)} {_place(mdp, barred)}")
    sums = array.sum(axis=1)
    off = np.abs(sums - 1) > ROW_TOLERANCE
    if off.any():
        state = int(np.flatnonzero(off)[0])
        raise ValueError(
            f"{name} must sum to 1 in every state, got a sum of {significant(sums[state], 6)} in state {mdp.state_names[state]}"
        )
    rescaled: Floats = array / sums[:, None]
    return rescaled


def require_ending(mdp: MDP, policy: Floats | None, discount: float) -> None:
    """At discount 1, raise unless `policy` (None: any policy) can reach a terminal state from everywhere."""
    if discount < 1:
        return
    endless = mdp.never_ends(policy)
    if endless.any():
        states = first_few([mdp.state_names[i] for i in np.flatnonzero(endless)])
        raise ValueError(f"discount 1 needs a policy that ends from every state, got one that never ends from {states}")


def policy_entropy(policy: Floats) -> Floats:
    """Return the entropy `(S,)` of each row of a policy."""
    safe = np.where(policy > 0, policy, 1.0)
    entropy: Floats = -(policy * np.log(safe)).sum(axis=1)
    return entropy


def evaluate(mdp: MDP, policy: ArrayLike, reward: ArrayLike, discount: float, temperature: float = 0.0) -> Evaluation:
    """Return the values of one policy; with a temperature its entropy is rewarded, as in `soft_plan`.

    Args:
        mdp: the decision process.
        policy: `(S,A)`.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.
        discount: in [0,1].
        temperature: the weight of entropy; 0 leaves it out.

    Returns:
        `values` `(S,)`, `q` `(S,A)` and the `residual` of the Bellman equation.

    Raises:
        ValueError: on malformed input, or at discount 1 where the policy never ends.

    Example:
        >>> mdp = MDP([[[0, 1], [0, 0]]], terminal=[1])
        >>> evaluate(mdp, [[1.0], [1.0]], [0, 10], 0.9).values.tolist()
        [10.0, 0.0]
    """
    pi = check_policy(mdp, policy)
    gamma = as_discount(discount)
    require_ending(mdp, pi, gamma)
    mdp = mdp.at(gamma)
    expected = mdp.expected_reward(reward)
    bonus = np.where(mdp.terminal, 0.0, as_non_negative(temperature, "temperature") * policy_entropy(pi))
    immediate = (pi * expected).sum(axis=1) + bonus
    values = policy_resolvent(mdp, pi, gamma).solve(immediate)
    q = expected + gamma * mdp.expect(values)
    residual = float(np.abs((pi * q).sum(axis=1) + bonus - values).max())
    return Evaluation(values, q, residual)


def occupancy(mdp: MDP, policy: ArrayLike, discount: float) -> Occupancy:
    """Return discounted state-action visitation counts of a policy from the initial distribution, the paper's μ(s,a).

    Args:
        mdp: the decision process.
        policy: `(S,A)`.
        discount: in [0,1].

    Returns:
        `counts` `(S,A)`, and their `residual`.

    Raises:
        ValueError: on malformed input, or at discount 1 where the policy never ends.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> float(mh.occupancy(d.mdp, d.soft_experts()[0], 0.0).counts.sum().round(6))
        1.0
    """
    pi = check_policy(mdp, policy)
    gamma = as_discount(discount)
    require_ending(mdp, pi, gamma)
    resolvent = policy_resolvent(mdp, pi, gamma)
    visits = resolvent.solve(mdp.initial, transpose=True)
    residual = float(np.abs(mdp.initial + gamma * (resolvent.matrix.T @ visits) - visits).max())
    return Occupancy(np.where(mdp.terminal, 0.0, visits)[:, None] * pi, residual)


def feature_counts(mdp: MDP, policy: ArrayLike, discount: float, features: Floats | Sparse | None = None) -> Floats:
    """Return discounted feature counts `Fᵀ μ` of a policy; without `features` `(A·S,d)`, entries into each state `(S,)`."""
    matrix = mdp.at(discount).stacked if features is None else features
    return matrix.T @ occupancy(mdp, policy, discount).counts.T.ravel()


def causal_entropy(mdp: MDP, policy: ArrayLike, discount: float) -> float:
    """Return the discounted causal entropy `Σ μ(s,a) (−log π(a|s))` of a policy from the initial distribution."""
    return float(occupancy(mdp, policy, discount).states @ policy_entropy(check_policy(mdp, policy)))


def _place(mdp: MDP, mask: Bools) -> str:
    state, action = (int(i) for i in np.argwhere(mask)[0])
    return f"in state {mdp.state_names[state]} on action {mdp.action_names[action]}"


class Actions:
    """The transitions of an MDP, stacked, with their immediate rewards `(A,S)`, read off for one action per state."""

    def __init__(self, mdp: MDP, reward: ArrayLike) -> None:
        self.mdp = mdp
        expected = mdp.expected_reward(reward).T
        self.expected = np.ascontiguousarray(expected if mdp.available.all() else np.where(mdp.available.T, expected, -np.inf))
        self.states = np.arange(mdp.n_states)

    def q(self, values: Floats, gamma: float) -> Floats:
        """Return `R + γ T V` `(A,S)`."""
        q: Floats = (self.mdp.moves @ values).reshape(self.expected.shape)
        q *= gamma
        q += self.expected
        return q

    def of(self, table: Floats, actions: Ints) -> Floats:
        """Return the entries `(S,)` of a table `(A,S)` at one action per state."""
        entries: Floats = table.ravel()[actions * self.states.size + self.states]
        return entries

    def under(self, actions: Ints) -> Sparse | Floats:
        """Return `P_π` of one action per state, a new array."""
        return self.mdp.moves[actions * self.states.size + self.states]


def first_best(q: Floats, best: Floats) -> Ints:
    """Return the first best action of each state: `argmax` along the first axis, quicker for many states."""
    if best.size < 1000:
        return np.asarray(q.argmax(axis=0), dtype=np.int64)
    actions = np.zeros(best.size, dtype=np.int64)
    behind = np.ones(best.size, dtype=np.bool_)
    for row in q:
        behind &= row < best
        actions += behind
    return actions


def rounding(values: Floats, best: Floats) -> float:
    """Return the size up to which gains are rounding."""
    return ROUNDING * max(TINY, float(np.abs(values).max(initial=0.0)), float(np.abs(best).max(initial=0.0)))


def sweep_start(table: Actions, gamma: float) -> tuple[Ints, Floats, Floats, bool]:
    """Return actions to start exact planning from, at a discount below 1, their values, `q`, and whether the values are exact."""
    q = table.expected
    before = np.zeros(q.shape[1])
    values = q.max(axis=0)
    actions = first_best(q, values)
    horizon = 0.0 if table.mdp.terminal.any() or table.mdp.origin is not None else gamma / (1 - gamma)
    left = 0.0
    slow = 0
    for _ in range(600):
        matrix = table.under(actions)
        immediate = table.of(table.expected, actions)
        scaled = matrix if isinstance(matrix, np.ndarray) else matrix.data
        scaled *= gamma
        longer = left > 0.5
        values, left, rounded = _sweep(matrix, immediate, values, horizon, 4 if longer else 2, 0.03)
        exact = rounded and left < 0.1
        some = _open_q(table, gamma, q, before, values, actions)
        if some is not None:
            best = some.max(axis=0)
            improved = best - table.of(some, actions) > rounding(values, values)
            if improved.any():
                actions = np.where(improved, first_best(some, best), actions)
                continue
            if not exact:
                values, left, exact = _settle(matrix, immediate, values, horizon, left)
        before = values
        q = table.q(values, gamma)
        best = q.max(axis=0)
        gaining = int((best - table.of(q, actions) > rounding(values, best)).sum())
        if not gaining and not exact and left < 0.1:
            values, left, exact = _settle(matrix, immediate, values, horizon, left)
            q = table.q(values, gamma)
        # Sweeps that leave much no longer help where few states gain, or where values have had time to spread through the task.
        stuck = longer and left > 0.6
        slow += stuck
        if not gaining or (stuck and (gaining < 0.01 * values.size or slow > 10 + np.sqrt(values.size) / 8)):
            break
        actions = first_best(q, best)
        values = best
    return actions, values, q, exact


def _settle(
    matrix: Sparse | Floats, immediate: Floats, values: Floats, horizon: float, left: float
) -> tuple[Floats, float, bool]:
    """Sweep on as long as each round leaves little, until the values are exact; that is quicker than a solve."""
    exact = False
    while not exact and left < 0.1:
        values, left, exact = _sweep(matrix, immediate, values, horizon, 2, 0.0)
    return values, left, exact


def _open_q(table: Actions, gamma: float, q: Floats, before: Floats, values: Floats, actions: Ints) -> Floats | None:
    """Return `q` at new values where an action can still beat the chosen one, −inf elsewhere; None if that is in many places.

    No action has gained more since `q` than γ times the largest rise of a value since `before`, to the power of the shortest time
    that a move takes; where moves take time, a fall counts as none, because it comes late.
    """
    if len(q) < 8:
        return None
    rise = float((values - before).max())
    gained = gamma * rise if table.mdp.origin is None else gamma**table.mdp.shortest * max(rise, 0.0)
    candidates = q + gained > values + rounding(values, values)
    candidates[actions, table.states] = True
    rows = np.flatnonzero(candidates)
    if rows.size > q.size / 8:
        return None
    bounded = np.full(q.shape, -np.inf)
    bounded.ravel()[rows] = table.expected.ravel()[rows] + gamma * (table.mdp.moves[rows] @ values)
    return bounded


def _sweep(
    matrix: Sparse | Floats, immediate: Floats, values: Floats, horizon: float, parts: int, enough: float
) -> tuple[Floats, float, bool]:
    """Sweep; return the values, the share of the first change that is left, and whether no more than rounding is.

    Where no state ends and all values change nearly alike, they will in all sweeps to come. The sum of these changes, `horizon`
    times their mean, is added at once. There the remaining change is the spread of the changes, not their size.
    """
    first = 0.0
    for _ in range(parts):
        for _ in range(8):
            last = values
            values = matrix @ values
            values += immediate
            first = first or float(np.ptp(values - last) if horizon else np.abs(values - last).max())
        changes = values - last
        least, largest = float(changes.min()), float(changes.max())
        change = max(largest, -least)
        apart = largest - least if horizon else change
        rounded = bool(change <= 8 * np.finfo(np.float64).eps * float(np.abs(values).max()))
        if horizon and (rounded or apart < 0.5 * change):
            values += horizon * float(changes.mean())
        if rounded or apart <= enough * first:
            break
    return values, apart / max(first, TINY), rounded


@dataclass(frozen=True)
class Plan:
    """An optimal plan: one-hot `policy` (S,A) on the first optimal action, `values` (S,), `q` (S,A), all `optimal_actions`.

    At discount 1 the policy is one that ends. `q` is −inf where an action is not available. `residual` is
    `max |max_a Q(s,a) − V(s)|`, recomputed from the answer.
    """

    policy: Floats
    values: Floats
    q: Floats
    optimal_actions: Bools
    residual: float
    iterations: int


def plan(mdp: MDP, reward: ArrayLike, discount: float, tie_tolerance: float = 1e-10) -> Plan:
    """Return the optimal values and all optimal actions of `mdp` under one reward and discount: the paper's Eq. 1.

    Args:
        mdp: the decision process.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.
        discount: in [0,1]; 1 is legal where every policy met on the way ends.
        tie_tolerance: an action counts as optimal if it is worse than the best by at most this share of the range of optimal
            values. Whatever it is, differences below 1e-12 of the largest value are rounding and decide nothing: at discount
            factors very near 1, or where one part of a task pays a trillion times more than another, they may be real.

    Returns:
        `policy` `(S,A)`, `values` `(S,)`, `q` `(S,A)` and `optimal_actions`, bool `(S,A)`.

    Raises:
        ValueError: on malformed input, or at discount 1 where a policy never ends, naming the states.

    Example:
        >>> mdp = MDP([[[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0], [0, 0, 0]]], terminal=[2])
        >>> plan(mdp, [0, 0, 10], 0.5).values.tolist()
        [5.0, 10.0, 0.0]
    """
    gamma = as_discount(discount)
    as_non_negative(tie_tolerance, "tie_tolerance")
    mdp = mdp.at(gamma)
    table = Actions(mdp, reward)
    if gamma < 1 and mdp.n_states > DENSE_STATES:
        actions, values, q, exact = sweep_start(table, gamma)
    else:
        actions = toward_end(mdp) if gamma == 1 else first_best(table.expected, table.expected.max(axis=0))
        values = _policy_values(table, actions, gamma, None, 0.0)
        exact = True
        q = table.q(values, gamma)
    total = -np.inf
    iterations = 1
    while True:
        best = q.max(axis=0)
        gains = best - table.of(q, actions)
        improved = gains > rounding(values, best)
        if exact and not (improved.any() and values.sum() > total):
            break
        if exact:
            total = float(values.sum())
        exact = iterations > 100 or not improved.any() or mdp.n_states <= DIRECT_STATES
        actions = np.where(improved, first_best(q, best), actions)
        values = _policy_values(table, actions, gamma, values, 0.0 if exact else 0.1 * float(gains.max()))
        q = table.q(values, gamma)
        iterations += 1
    # A share of the range of the optimal values: the values of bad actions do not matter.
    tied = tie_tolerance * float(np.ptp(best)) + ROUNDING * float(np.abs(best).max())
    optimal: Bools = best[:, None] - q.T <= tied
    policy = one_hot(optimal.argmax(axis=1), mdp.n_actions)
    if gamma == 1 and mdp.never_ends(policy).any():
        policy = one_hot(actions, mdp.n_actions)
    return Plan(policy, values, q.T, optimal, float(np.abs(best - values).max()), iterations)


def one_hot(actions: Ints, n_actions: int) -> Floats:
    """Return the deterministic policy `(S,A)` of one action per state `(S,)`."""
    return np.eye(n_actions)[actions]


def _policy_values(table: Actions, actions: Ints, gamma: float, guess: Floats | None, residual: float) -> Floats:
    """Return the values of one action per state, up to this residual."""
    mdp = table.mdp
    immediate = table.of(table.expected, actions)
    if gamma == 1:
        require_ending(mdp, one_hot(actions, mdp.n_actions), gamma)
    if mdp.n_states <= DENSE_STATES:
        return Resolvent(mdp.dense[actions, table.states], gamma).solve(immediate)
    tolerance = residual / max(float(np.abs(immediate).max()), TINY)
    return matrix_resolvent(mdp, table.under(actions), gamma).solve(immediate, tolerance=tolerance, guess=guess)


def toward_end(mdp: MDP) -> Ints:
    """Return one action per state that takes a shortest path to a terminal state with positive probability."""
    require_ending(mdp, None, 1.0)
    n = mdp.n_states
    targets = steps_into(mdp.under(mdp.available / 1.0), mdp.terminal)
    chances = np.stack([mdp.transition(a)[np.arange(n), targets] for a in range(mdp.n_actions)], axis=1)
    chosen: Ints = np.where(mdp.available, chances, -1.0).argmax(axis=1)
    return chosen


@dataclass(frozen=True)
class SoftPlan:
    """The softmax `policy` (S,A) of `q` (S,A), with `values` (S,); `residual` is `max |BV − V|` recomputed from the answer.

    `other_values` `(S,)` are those of another fixed point, where `value="mean"` has several; None where none was found.
    """

    policy: Floats
    values: Floats
    q: Floats
    residual: float
    iterations: int
    temperature: float
    other_values: Floats | None = None

    @property
    def log_policy(self) -> Floats:
        """Return `log π(a|s)` without the underflow of taking the logarithm of a tiny probability; −inf where unavailable."""
        return log_policies(self.q.T, self.temperature)[0].T


def soft_plan(
    mdp: MDP,
    reward: ArrayLike,
    discount: float,
    temperature: float = 1.0,
    value: Value = "soft",
    *,
    start: Floats | None = None,
    resolvent: Resolvent | None = None,
) -> SoftPlan:
    """Return the policy of `mdp` whose choices are softmax, `π ∝ exp(Q/λ)`, with `Q = R + γ T V`.

    With `value="soft"` it is optimal when entropy is rewarded with weight `temperature`: the paper's Eq. 2, 22 and 23.

    Args:
        mdp: the decision process.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.
        discount: in [0,1]; 1 is legal where a terminal state can be reached from everywhere and the values are finite.
        temperature: λ > 0.
        value: how the future is valued: "soft" `V = λ log Σ exp(Q/λ)`, "max" `V = max Q`, "mean" `V = Σ π Q`.
        start: soft values `(S,)` to start from, such as those of a neighbouring problem.
        resolvent: solves with `I − γP` of that neighbour's policy, for the first step; by default they are made.

    Returns:
        `policy` `(S,A)`, `values` `(S,)` and `q` `(S,A)`; with "soft", entropy is part of the value.

    Raises:
        ValueError: on malformed input, where a value is infinite (at discount 1), or where it could not be reached.

    References:
        K. Asadi and M. L. Littman (2017). An alternative softmax operator for reinforcement learning. ICML.

    Example:
        >>> mdp = MDP([[[0, 1], [0, 0]], [[0, 1], [0, 0]]], terminal=[1])
        >>> soft_plan(mdp, [0, 10], 0.9).policy[0].tolist()
        [0.5, 0.5]
    """
    check_value(value)
    if value == "max":
        lam = as_positive(temperature, "temperature")
        best = plan(mdp, reward, discount)
        return SoftPlan(np.exp(log_policies(best.q.T, lam)[0]).T, best.values, best.q, best.residual, best.iterations, lam)
    soft = _soft_plan(mdp, reward, discount, temperature, start, resolvent)
    if value == "soft":
        return soft
    gamma, lam = as_discount(discount), soft.temperature
    table = Actions(mdp.at(gamma), reward)
    reached = _mean_plan(table, gamma, lam, soft.values)
    other = _other_fixed_point(table, gamma, lam, reached.values)
    if other is not None:
        warnings.warn(
            "the mean value of choices has several fixed points in this task: the plan is the one reached from the soft values",
            stacklevel=2,
        )
    return replace(reached, other_values=other)


def _soft_plan(
    mdp: MDP, reward: ArrayLike, discount: float, temperature: float, start: Floats | None, resolvent: Resolvent | None
) -> SoftPlan:
    """Plan by Newton's method on the soft Bellman equation."""
    gamma = as_discount(discount)
    lam = as_positive(temperature, "temperature")
    mdp = mdp.at(gamma)
    table = Actions(mdp, reward)
    require_ending(mdp, None, gamma)
    values = np.zeros(mdp.n_states) if start is None else np.where(mdp.terminal, 0.0, start)
    for _ in range(25 if start is None and gamma < 1 and mdp.n_states > DENSE_STATES else 0):
        before = values
        values = _backup(table, values, gamma, lam).values
        # The sweeps to come would change values by at most γ/(1 − γ) of what this one did: by 3% of them.
        if gamma * float(np.abs(values - before).max()) <= 0.03 * (1 - gamma) * float(np.abs(values).max()):
            break
    here = _backup(table, values, gamma, lam)
    residual = float(np.abs(here.values - values).max())
    for iterations in range(MAX_NEWTON_STEPS):  # noqa: B007
        if residual <= ROUNDED_RESIDUAL * max(lam, float(np.abs(values).max())):
            break
        resolvent = resolvent or policy_resolvent(mdp, here.policy, gamma)
        # Solved no more exactly than the next step can use: to two or three digits.
        accuracy = min(1e-2, max(1e-3, residual / max(lam, float(np.abs(values).max()))))
        try:
            moved = values + resolvent.solve(here.values - values, tolerance=accuracy)
        except SingularError:
            _refuse(gamma)
        if not np.abs(moved).max() < (INFINITE * lam if gamma == 1 else np.inf):
            _refuse(gamma)
        there = _backup(table, moved, gamma, lam)
        reached = float(np.abs(there.values - moved).max())
        if not reached < residual and residual <= STALLED_RESIDUAL * max(lam, float(np.abs(values).max())):
            break
        resolvent = resolvent if reached < 0.03 * residual else None
        values, here, residual = moved, there, reached
    else:
        _refuse(gamma)
    return SoftPlan(here.policy, values, here.q.T, residual, iterations, lam)


def mean_values(mdp: MDP, reward: Floats, discount: float, temperature: float) -> Floats:
    """Return the values `(S,)` of `soft_plan` with `value="mean"`, without a search for other fixed points."""
    soft = _soft_plan(mdp, reward, discount, temperature, None, None)
    return _mean_plan(Actions(mdp.at(discount), reward), discount, temperature, soft.values).values


def _mean_plan(table: Actions, gamma: float, lam: float, begin: Floats) -> SoftPlan:
    """Find values with `V = Σ π Q` `(S,)`: by a backward pass, or by Newton's method from `begin`."""
    mdp = table.mdp
    values = np.zeros(mdp.n_states)
    levels = episodic_levels(mdp)
    for level in levels or ():
        q = table.expected[:, level] + gamma * (mdp.moves[_rows_of(mdp, level)] @ values).reshape(-1, level.size)
        values[level] = backed_up(q, lam, "mean")
    if levels is None:
        values = np.where(mdp.terminal, 0.0, begin)

    def at(v: Floats) -> tuple[Floats, Floats, float]:
        q = table.q(v, gamma)
        defect = np.where(mdp.terminal, 0.0, backed_up(q, lam, "mean")) - v
        return q, defect, float(np.abs(defect).max())

    q, defect, residual = at(values)
    for steps in range(MAX_NEWTON_STEPS):  # noqa: B007
        if residual <= ROUNDED_RESIDUAL * max(lam, float(np.abs(values).max())):
            break
        log = log_policies(q, lam)[0]
        weights = backup_derivative(log[:, :, None], values[:, None], np.array([lam]), "mean")[0][:, :, 0]
        try:
            step = policy_resolvent(mdp, weights.T, gamma).solve(defect)
        except SingularError:
            step = defect
        # a step that does not lower the residual is halved; where no part of it does, one backup is taken
        tried = [*(0.5**k * step for k in range(6)), defect]
        moved = next((v for v in (values + part for part in tried) if at(v)[2] < residual), None)
        if moved is None:
            if residual <= STALLED_RESIDUAL * max(lam, float(np.abs(values).max())):
                break
            moved = values + defect
        values = moved
        q, defect, residual = at(values)
    if not residual <= STALLED_RESIDUAL * max(lam, float(np.abs(values).max())):
        raise ValueError(
            f"the mean value of choices was not reached in {MAX_NEWTON_STEPS} steps at discount {gamma} and temperature "
            f'{significant(lam)}: there may be no stable one; use value="soft" or "max"'
        )
    return SoftPlan(np.exp(log_policies(q, lam)[0]).T, values, q.T, residual, steps, lam)


def other_mean_values(mdp: MDP, reward: Floats, discount: float, temperature: float, values: Floats) -> Floats | None:
    """Return another fixed point than `mean_values` `(S,)`; None where none is found."""
    return _other_fixed_point(Actions(mdp, reward), discount, temperature, values)


def _rows_of(mdp: MDP, states: Ints) -> Ints:
    """Return the rows a·S + s of all actions in some states."""
    rows: Ints = (np.arange(mdp.n_actions)[:, None] * mdp.n_states + states).ravel()
    return rows


def _other_fixed_point(table: Actions, gamma: float, lam: float, values: Floats) -> Floats | None:
    """Return another fixed point of `V = Σ π Q`, searched for from values far above and far below; None where none is found."""
    if gamma == 1 or episodic_levels(table.mdp) is not None:
        return None
    paid = table.expected[np.isfinite(table.expected)]
    scale = max(lam, float(np.abs(values).max()))
    for bound in (float(paid.max(initial=0.0)), float(paid.min(initial=0.0))):
        far = np.where(table.mdp.terminal, 0.0, bound / (1 - gamma))
        for _ in range(200):  # sweeps go to the fixed point that is nearest from this side
            far = np.where(table.mdp.terminal, 0.0, backed_up(table.q(far, gamma), lam, "mean"))
        try:
            other = _mean_plan(table, gamma, lam, far).values
        except ValueError:
            continue
        if float(np.abs(other - values).max()) > 1e-6 * scale:
            return other
    return None


def backed_up(q: Floats, temperatures: Floats | float, value: Value) -> Floats:
    """Return V `(S,…)` of action values `(A,S,…)`, −inf where an action is unavailable."""
    if value == "max":
        best: Floats = q.max(axis=0)
        return best
    log, soft = log_policies(q, temperatures)
    if value == "soft":
        return soft
    mean: Floats = (np.exp(log) * np.where(np.isfinite(q), q, 0.0)).sum(axis=0)
    return mean


def backup_derivative(log: Floats, values: Floats, temperatures: Floats, value: Value) -> tuple[Floats, Floats]:
    """Return how V `(S,n)` moves with Q `(A,S,n)` and with log λ `(S,n)`, for the log policies `(A,S,n)` of Q."""
    finite = np.where(np.isfinite(log), log, 0.0)
    policy = np.exp(log)
    if value == "max":
        # Actions as good as the best share its weight, so that the order of actions does not matter.
        rounded = ROUNDING * np.abs(values).max(axis=0, initial=0.0) / temperatures
        best = (log >= log.max(axis=0) - rounded) / 1.0
        return best / best.sum(axis=0), np.zeros(values.shape)
    entropy = -(policy * finite).sum(axis=0)
    if value == "soft":
        return policy, temperatures * entropy
    apart = finite + entropy
    return policy * (1 + apart), -temperatures * (policy * apart**2).sum(axis=0)


class _Backup(NamedTuple):
    """`BV` `(S,)`, the action values and their exponentials `(A,S)`, and the sums `(S,)` of these over the actions."""

    values: Floats
    q: Floats
    weights: Floats
    mass: Floats

    @property
    def policy(self) -> Floats:
        """Return the softmax policy `(S,A)`; uniform at terminal states."""
        return (self.weights / self.mass).T


def _backup(table: Actions, values: Floats, gamma: float, lam: float) -> _Backup:
    """Apply B once. Unlike `log_policies` it needs no logarithms of the policy, and saves a pass over the actions."""
    q = table.q(values, gamma)
    peak = q.max(axis=0)
    weights = q - peak
    if lam != 1:
        weights /= lam
    np.exp(weights, out=weights)
    mass = weights.sum(axis=0)
    backed = peak + lam * np.log(mass)
    backed[table.mdp.terminal] = 0.0
    return _Backup(backed, q, weights, mass)


def _refuse(gamma: float) -> NoReturn:
    reason = (
        "going on forever pays more than ending; lower the discount or the temperature"
        if gamma == 1
        else "check the sizes of rewards and temperature"
    )
    raise ValueError(
        f"the soft value at discount {gamma} is infinite or could not be reached in {MAX_NEWTON_STEPS} Newton steps: {reason}"
    )


def weighted_plan(mdp: MDP, reward: Floats, step_discounts: Floats, temperatures: Floats) -> tuple[Floats, Floats]:
    """Return values `(H+1,S,n)` of states 0, …, H steps from now, and log policies `(H,A,S,n)` planned for them.

    Args:
        mdp: a task of at most H steps.
        reward: the expected immediate reward `(A·S,)` of rows a·S + s.
        step_discounts: ρ `(H−1,n)`.
        temperatures: λ `(n,)`.
    """
    a, s, n = mdp.n_actions, mdp.n_states, temperatures.size
    steps = len(step_discounts) + 1
    now = np.where(mdp.available.T.ravel(), reward, -np.inf).reshape(a, s, 1)
    values = np.zeros((steps + 1, s, n))
    log = np.empty((steps, a, s, n))
    for t in reversed(range(steps)):
        q = now if t == steps - 1 else now + step_discounts[t] * (mdp.moves @ values[t + 1]).reshape(a, s, n)
        log[t], soft = log_policies(q, temperatures)
        values[t] = np.where(mdp.terminal[:, None], 0.0, soft)
    return values, log


@dataclass(frozen=True)
class PresentBias:
    """A planner with present bias: everything but now has weight β, and loses weight at the discount factor δ after that.

    Naive people expect to choose without present bias later: `Q = R + βδ T V`, V the soft values at δ. Sophisticated ones expect
    the choices that they will make, and value them at δ: `V = Σ_a π (R + δ T V − λ log π)`, `π ∝ exp((R + βδ T V)/λ)`.

    It is a planner for `MaximumLikelihood` and `Population`, whose discount is δ. Where states come again, a sophisticated person
    may have several such policies: it is the one that their own values lead to, begun at the soft values.

    Args:
        beta: β in (0,1].
        sophisticated: whether people foresee their choices.

    References:
        D. Laibson (1997). Golden eggs and hyperbolic discounting. Quarterly Journal of Economics 112, 443-478.

    Example:
        >>> mdp = MDP([[[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 0, 1], [0, 0, 1], [0, 0, 0]]], terminal=[2])
        >>> PresentBias(0.5)(mdp, [[0, 1], [4, 4], [0, 0]], 0.9, 1.0)[0].round(2).tolist()
        [0.75, 0.25]
    """

    beta: float
    sophisticated: bool = False

    def __post_init__(self) -> None:
        if not 0 < as_positive(self.beta, "beta") <= 1:
            raise ValueError(f"beta must be at most 1, got {self.beta}")

    def __call__(self, task: MDP, reward: ArrayLike, discount: float, temperature: float) -> Floats:
        """Return the policy `(S,A)`."""
        seen = task.at(discount)
        table = Actions(seen, reward)
        values = soft_plan(task, reward, discount, temperature).values
        log = self._choices(table, values, discount, temperature)
        levels = episodic_levels(task) if self.sophisticated else []
        # One sweep settles a level; elsewhere sweeps are halved once they no longer come nearer.
        share, before = 1.0, np.inf
        for _ in range(len(levels) + 1 if levels is not None else 2000):
            if not self.sophisticated:
                break
            policy = np.exp(log)
            later = table.q(values, discount)
            worth = (policy * np.where(policy > 0, later - temperature * log, 0.0)).sum(axis=0)
            step = np.where(seen.terminal, 0.0, worth) - values
            left = float(np.abs(step).max())
            if left <= 1e-12 * max(temperature, float(np.abs(values).max())):
                break
            share, before = (share if levels is not None or left < before else max(share / 2, 0.05)), left
            values = values + share * step
            log = self._choices(table, values, discount, temperature)
        else:
            if left > 1e-8 * max(temperature, float(np.abs(values).max())) and levels is None:
                raise ValueError("the choices that a sophisticated person foresees were not found: they may go round in circles")
        return np.exp(log).T

    def _choices(self, table: Actions, values: Floats, discount: float, temperature: float) -> Floats:
        """Return log π `(A,S)` of choices with present bias."""
        return log_policies(table.q(values, self.beta * discount), temperature)[0]


def log_policies(q: Floats, temperatures: Floats | float) -> tuple[Floats, Floats]:
    """Return `log π` of action values `(A,S)` or `(A,S,n)`, −inf where an action is unavailable, and `λ log Σ_a exp(Q/λ)`."""
    scaled = q / temperatures
    peak = scaled.max(axis=0)
    shifted = scaled - peak
    total = np.log(np.exp(shifted).sum(axis=0))
    return shifted - total, temperatures * (peak + total)
