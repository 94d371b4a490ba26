"""Plans before and after a change.

*A bonus and a ban need no reward.* An expert with discount γ and temperature λ follows π. Since `λ log π = R + γTV − V`, the
rows `R̃ = λ log π` are a reward, too, under which π is the plan, with values 0. R̃ differs from R by the shaping term
`V − γTV`, and shaping changes no plan: neither when Δ(s,a) is paid, nor when some actions can no longer be taken. So with the
actions K(s) that are left,

    D(s) = λ log Σ_{a∈K(s)} π(a|s) exp{(Δ + γTD)(s,a)/λ},      π'(a|s) ∝ π(a|s) exp{(Δ + γTD)(s,a)/λ},

whatever the reward is. It may be unknown, and one expert is enough. What is never done stays undone: no bonus brings back a
choice of probability 0. *Other transitions and another discount* need the reward itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    Floats,
    Ints,
)
from multihorizon.choice.tabular import engine_for
from multihorizon.exact.bounds import discount_members
from multihorizon.exact.identify import Identification
from multihorizon.mdp import MDP
from multihorizon.planning.linear import SingularError
from multihorizon.planning.plan import log_policies, plan
from multihorizon.questions.whatif.change import Change
from multihorizon.questions.whatif.sources import Known


class InfiniteValueError(ValueError):
    """There is no plan: what is expected has no finite value."""


def planned(task: MDP, reward: Floats, gamma: Floats, lam: Floats | None) -> Floats:
    """The policies `(n,S,A)` of discounts and temperatures `(n,)` under rewards `(A·S,)`, or `(A·S,n)` of each."""
    a, s = task.n_actions, task.n_states
    if lam is None:
        columns = reward.reshape(a * s, -1)
        return np.stack(
            [plan(task, columns[:, min(i, columns.shape[1] - 1)].reshape(a, s).T, float(g)).policy for i, g in enumerate(gamma)]
        )
    values = engine_for(task).values(reward, gamma, lam, None)
    if values is None:
        raise InfiniteValueError(
            "the soft value after the change is infinite or could not be reached: going on forever pays more than ending; "
            "lower the discount, the temperature or the bonus"
        )
    closed = np.where(task.available.T, 0.0, -np.inf)[:, :, None]
    q = reward.reshape(a, s, -1) + gamma * (task.stacked @ values).reshape(a, s, -1) + closed
    found: Floats = np.exp(log_policies(q, lam)[0]).transpose(2, 1, 0)
    return found


def is_timed(known: Known, change: Change) -> bool:
    """Whether moves take time, before or after: then what is expected depends on the discount, and plans are made one by one."""
    return known.task.mdp.durations is not None or change.mdp.durations is not None


def seen(known: Known, change: Change, discount: float) -> tuple[Known, Change]:
    """The tasks before and after as they are seen at a discount, for those who have it."""
    if not is_timed(known, change):
        return known, change
    return replace(known, task=known.task.at(discount)), change.at(discount)


def one_of(known: Known, change: Change, k: int) -> tuple[Known, Change]:
    """One of the experts alone."""
    lam, own = known.temperature, None if known.own is None else known.own[:, k : k + 1]
    alone = replace(
        known,
        names=known.names[k : k + 1],
        discounts=known.discounts[k : k + 1],
        temperature=None if lam is None else lam[k : k + 1],
        own=own,
    )
    return alone, replace(change, discounts=change.discounts[k : k + 1])


def expected_rewards(known: Known, change: Change, theta: Floats) -> tuple[Floats, Floats]:
    """The expected immediate reward `(A·S,…)` before and after, of θ `(d,…)`, without what is paid besides."""
    task = known.task
    extra = np.zeros(task.feature_matrix.shape[0]) if task.known_reward is None else task.known_reward
    before = task.feature_matrix @ theta
    before = before + (extra if theta.ndim == 1 else extra[:, None])
    if not change.moved:
        return before, before
    assert change.features is not None
    after, later = change.features @ theta, _known_after(known, change)
    return before, after + (later if theta.ndim == 1 else later[:, None])


def _known_after(known: Known, change: Change) -> Floats:
    """The known part of the reward `(A·S',)` in the new task: what is paid on arrival follows the transitions."""
    task, after = known.task, change.mdp
    rows = after.n_states * after.n_actions
    if task.known_reward is None or not task.known_reward.any():
        return np.zeros(rows)
    place = {name: i for i, name in enumerate(task.mdp.state_names)}
    old = np.array([place.get(name, -1) for name in after.state_names])
    new = np.flatnonzero((old < 0) & (after.entered if known.arrival is not None else ~after.terminal))
    if new.size:
        raise ValueError(f"a part of the reward is known, but not in the new state {after.state_names[new[0]]}")
    if known.arrival is not None:
        found: Floats = after.stacked @ np.where(old >= 0, known.arrival[old], 0.0)
        return found
    table = task.known_reward.reshape(task.mdp.n_actions, -1)[:, old]
    return np.where(after.live.T, table, 0.0).ravel()


def explaining(known: Known, limits: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Discounts and temperatures `(M,K)` to try: first the answer, then what else explains the policies."""
    assert known.temperature is not None
    assert known.identified is not None
    tried, lams = known.discounts[None], known.temperature[None]
    if not known.identified.all() and (limits is not None or np.ptp(known.temperature) > 0):
        members = members_of(known, limits)
        middle = len(members[0]) // 2
        tried, lams = (np.concatenate([each[middle : middle + 1], each]) for each in members)
    elif known.ranges is not None:
        tried = np.concatenate([tried, np.linspace(known.ranges[:, 0], known.ranges[:, 1], 41)])
        lams = np.repeat(lams, len(tried), axis=0)
    if known.task.mdp.never_ends().any():
        tried = np.minimum(tried, ENDLESS_DISCOUNT)  # members of the set may have a discount of 1
    return tried, lams


def members_of(known: Known, limits: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Discounts and temperatures `(M,K)` that explain the policies: the identified ones, or members of the set."""
    assert known.temperature is not None
    assert known.identified is not None
    if known.identified.all() or not isinstance(known.source, Identification):
        return known.discounts[None], known.temperature[None]
    found = known.source
    assert found.problem is not None
    free = np.ptp(found.temperature) > 0
    # what was known has an interval of no width
    given = {name: float(low) for name, (low, high) in zip(found.experts, found.intervals.tolist(), strict=True) if low == high}
    return discount_members(
        found.problem, "per_expert" if free else float(found.temperature[0]), given or None, limits, found.tolerance
    )


def reweighted(mdp: MDP, policy: Floats, change: Change, gamma: Floats, lam: Floats) -> Floats:
    """The policies `(n,S,A)` after a bonus and a ban, of an expert seen to follow `policy` `(S,A)`.

    By the identity at the top: no reward is needed, only the discounts and temperatures `(n,)` to try.
    """
    task, reward = as_reward(change.task, mdp, policy, lam)
    pay = np.where(task.live, change.pay, 0.0)
    return planned(task, reward + pay.T.ravel()[:, None], gamma, lam)


def as_reward(after: MDP, mdp: MDP, policy: Floats, lam: Floats) -> tuple[MDP, Floats]:
    """The task `after` without what `policy` never does, and the rewards `λ log π` `(A·S,n)` of temperatures `(n,)` in it."""
    never = (policy == 0) & mdp.live
    stuck = np.flatnonzero(~(after.live & ~never).any(axis=1) & ~mdp.terminal)
    if stuck.size:
        raise ValueError(
            f"what is left in state {mdp.state_names[stuck[0]]} an expert has never been seen to do, so the policy does not say "
            "what will be done there: forbid less, or hand in a Solution"
        )
    task = after.without(never)
    with np.errstate(divide="ignore"):
        log = np.where(task.live, np.log(policy), 0.0)
    return task, np.outer(log.T.ravel(), lam)


def plans_at_once(task: MDP) -> int:
    """As many as a dense matrix for each allows."""
    return max(1, 20_000_000 // (task.n_states * (min(task.n_states, 128) + 8 * task.n_actions)))


def planned_or_nan(task: MDP, reward: Floats, gamma: Floats, lam: Floats) -> Floats:
    """The policies `(n,S,A)`, NaN where a value is infinite."""

    def ask(own: Ints) -> Floats:
        return planned(task, reward if reward.ndim == 1 else reward[:, own], gamma[own], lam[own]).transpose(1, 2, 0)

    return each_or_nan(ask, np.arange(gamma.size), (task.n_states, task.n_actions)).transpose(2, 0, 1)


def each_or_nan(ask: Callable[[Ints], Floats], columns: Ints, shape: tuple[int, ...]) -> Floats:
    """What `ask` says `(*shape,n)` of plans, in halves where it fails; NaN of those that have no finite value or never end."""
    try:
        return ask(columns)
    except (InfiniteValueError, SingularError, np.linalg.LinAlgError):
        if columns.size == 1:
            return np.full((*shape, 1), np.nan)
    return np.concatenate([each_or_nan(ask, half, shape) for half in np.array_split(columns, 2)], axis=-1)
