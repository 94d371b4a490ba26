"""What changes, what is known of the experts before, and their plans before and after.

Bonuses, bans, other transitions, first states and discounts are read into one value, with every refusal. What is known comes from
a solution and its estimate, or from policies and what they identify.

*A bonus and a ban need no reward.* An expert with discount γ and temperature λ follows π. Since `λ log π = R + γTV − V`, the
rows `R̃ = λ log π` are a reward, too, under which π is the plan, with values 0. R̃ differs from R by the shaping term
`V − γTV`, and shaping changes no plan: neither when Δ(s,a) is paid, nor when some actions can no longer be taken. So with the
actions K(s) that are left,

    D(s) = λ log Σ_{a∈K(s)} π(a|s) exp{(Δ + γTD)(s,a)/λ},      π'(a|s) ∝ π(a|s) exp{(Δ + γTD)(s,a)/λ},

whatever the reward is. It may be unknown, and one expert is enough. What is never done stays undone: no bonus brings back a
choice of probability 0. *Other transitions and another discount* need the reward itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_count,
    as_discount,
    as_floats,
    as_frame,
    first_few,
    is_frame,
    numbers_of,
    place_of,
)
from multihorizon.choice.plans import SOFT, Choosing, Own, engine_for
from multihorizon.choice.settings import names_pairs
from multihorizon.estimate import Estimate
from multihorizon.exact.bounds import discount_members
from multihorizon.exact.equations import PolicyTemperature
from multihorizon.exact.identify import Identification, identify
from multihorizon.likelihood.estimates import choosing_of
from multihorizon.mdp import MDP, refuse_durations
from multihorizon.planning.linear import SingularError
from multihorizon.planning.plan import log_policies, plan
from multihorizon.problem import Expert, Problem, one_task, refuse_beliefs
from multihorizon.solution import Solution
from multihorizon.words import in_words, significant


@dataclass(frozen=True, eq=False)
class Change:
    """What is different after the change, in the task after it, which has S' states.

    Attributes:
        mdp: the task after, with its first states; actions that are forbidden are still in it.
        arrival: what is paid on arrival, for each state `(S',)`.
        direct: what is paid for decisions `(S',A)`.
        forbid: the actions that can no longer be taken `(S',A)`.
        initial: the probabilities of the first state `(S',)`.
        discounts: new discounts `(K,)`, NaN where they stay as they are.
        moved: whether transitions change.
        elsewhere: whether other first states are given.
        features: F `(A·S',d)` in the task after; None where transitions do not change.
        arrival_features: what reward parameters pay on arrival there `(S',d)`; None where they pay for decisions.
        rounds: how many decisions outcomes are about; None stands for whole episodes.
        pay: what both add to the expected immediate reward `(S',A)`.
        needs_reward: whether the policies alone do not say what follows.
        task: the task after, without the actions that are forbidden.
    """

    mdp: MDP
    arrival: Floats
    direct: Floats
    forbid: Bools
    initial: Floats
    discounts: Floats
    moved: bool
    elsewhere: bool = False
    features: Sparse | None = None
    arrival_features: Sparse | None = None
    rounds: int | None = None
    pay: Floats = field(init=False)
    needs_reward: bool = field(init=False)
    task: MDP = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pay", self.mdp.expect(self.arrival) + self.direct)
        object.__setattr__(self, "needs_reward", self.moved or bool(np.isfinite(self.discounts).any()))
        object.__setattr__(self, "task", self.mdp.without(self.forbid))

    def at(self, discount: float) -> Change:
        """Return the same change in the task as it is seen at a discount: what is paid on arrival follows its transitions."""
        seen = self.mdp.at(discount)
        return self if seen is self.mdp else self.in_task(seen)

    def in_task(self, mdp: MDP) -> Change:
        """Return the same change where the same moves have other probabilities."""
        features = self.features
        if self.moved and self.arrival_features is not None:
            features = sp.csr_array(mdp.stacked @ self.arrival_features)
        return replace(self, mdp=mdp, features=features)


def read_change(
    mdp: MDP,
    names: Sequence[str],
    *,
    pay: Any = None,
    forbid: Any = None,
    transitions: MDP | None = None,
    initial: ArrayLike | Mapping[str, float] | None = None,
    discount: Any = None,
    features: ArrayLike | Sparse | None = None,
    expert: Expert | None = None,
    parameter_names: Sequence[str] = (),
    rounds: int | None = None,
) -> Change:
    """Read a change of a task; all refusals are made here.

    Args:
        mdp: the task before.
        names: those of the experts `(K,)`.
        pay, forbid, transitions, initial, discount, features: as in `predict`.
        expert: anyone of the task before, for the features of the reward; None where it has none.
        parameter_names: of the reward; by default the states.
        rounds: how many decisions outcomes are about, as in `predict`.

    Raises:
        ValueError: naming the place, what was expected and what it got.
    """
    after, matrix, arrival_features = mdp, None, None
    if transitions is not None:
        after = _task_after(mdp, transitions)
        matrix, arrival_features = _features_after(mdp, after, features, expert, parameter_names or mdp.state_names)
    elif features is not None:
        raise ValueError("features must come with transitions, whose states they describe, got features alone")
    if initial is not None:
        after = after.starting(by_state(after, initial, "initial"))
    arrival, direct = _read_pay(after, pay)
    banned = _read_forbid(after, forbid)
    stuck = np.flatnonzero(~(after.available & ~banned).any(axis=1) & ~after.terminal)
    if stuck.size:
        raise ValueError(f"forbid must leave an action in every state, got none in state {after.state_names[stuck[0]]}")
    return Change(
        mdp=after,
        arrival=arrival,
        direct=direct,
        forbid=banned,
        initial=after.initial,
        discounts=read_discounts(names, discount),
        moved=transitions is not None,
        elsewhere=initial is not None and (transitions is not None or not np.allclose(after.initial, mdp.initial)),
        features=matrix,
        arrival_features=arrival_features,
        rounds=None if rounds is None else as_count(rounds, "rounds"),
    )


def _task_after(mdp: MDP, transitions: Any) -> MDP:
    """Return the new task, checked to have the same actions."""
    if not isinstance(transitions, MDP):
        raise ValueError(f"transitions must be an MDP, got {type(transitions).__name__}")
    if transitions.action_names != mdp.action_names:
        raise ValueError(
            f"transitions must have the actions {first_few(mdp.action_names)}, in this order, "
            f"got {first_few(transitions.action_names)}"
        )
    return transitions


def _features_after(
    mdp: MDP, after: MDP, features: Any, expert: Expert | None, parameter_names: Sequence[str]
) -> tuple[Sparse, Sparse | None]:
    """Return F `(A·S',d)` of the new task, and what the parameters pay on arrival there."""
    tabular = expert is None or expert.features is None
    states = after.n_states
    rows = after.n_states * after.n_actions
    d = len(parameter_names)
    if features is not None:
        if tabular:
            raise ValueError("features of the new states must come with a problem that has features, got one without any")
        matrix = sp.csr_array(features) if sp.issparse(features) else sp.csr_array(as_floats(features, "features"))
        if matrix.shape == (states, d):
            return sp.csr_array(after.stacked @ matrix), matrix
        if matrix.shape != (rows, d):
            raise ValueError(
                f"features of the new task must have shape ({rows}, {d}), or ({states}, {d}) on arrival, got {matrix.shape}"
            )
        return sp.csr_array(sp.diags_array(after.live.T.ravel() / 1.0) @ matrix), None
    place = {name: i for i, name in enumerate(parameter_names if tabular else mdp.state_names)}
    unknown = [name for name, entered in zip(after.state_names, after.entered, strict=True) if entered and name not in place]
    if not tabular and expert is not None and expert.arrival is None:
        unknown = [name for name, ends in zip(after.state_names, after.terminal, strict=True) if not ends and name not in place]
    if unknown:
        why = "give features= for the states of the new task" if not tabular else "what they pay is not known"
        raise ValueError(f"transitions must have the states {first_few(mdp.state_names)}, got the new state {unknown[0]}: {why}")
    old = np.array([place.get(name, -1) for name in after.state_names])
    kept = np.flatnonzero(old >= 0)
    if tabular or (expert is not None and expert.arrival is not None):
        source = sp.eye_array(d, format="csr") if tabular else sp.csr_array(expert.arrival)  # type: ignore[union-attr]
        pick = sp.csr_array((np.ones(kept.size), (kept, old[kept])), shape=(states, source.shape[0]))
        arrival = sp.csr_array(pick @ source)
        return sp.csr_array(after.stacked @ arrival), arrival
    assert expert is not None
    picked = [kept + states * a for a in range(after.n_actions)], [old[kept] + mdp.n_states * a for a in range(mdp.n_actions)]
    to, source_rows = (np.concatenate(part) for part in picked)
    pick = sp.csr_array((np.ones(to.size), (to, source_rows)), shape=(rows, expert.feature_matrix.shape[0]))
    return sp.csr_array(sp.diags_array(after.live.T.ravel() / 1.0) @ (pick @ expert.feature_matrix)), None


def by_state(mdp: MDP, given: Any, what: str) -> Any:
    """Return numbers `(S,)` from a mapping of states to numbers; anything else as it is."""
    if not isinstance(given, Mapping):
        return given
    return np.nan_to_num(numbers_of(given, mdp.state_names, what, "state"))


def _columns(frame: pd.DataFrame, needed: Sequence[str], what: str) -> list[list[Any]]:
    lacking = [name for name in needed if name not in frame]
    if lacking:
        raise ValueError(f"{what} must have the columns {', '.join(needed)}, got a table without {lacking[0]}")
    return [frame[name].tolist() for name in needed]


def _read_pay(mdp: MDP, pay: Any) -> tuple[Floats, Floats]:
    """Return what is paid on arrival `(S,)` and for decisions `(S,A)`."""
    arrival, direct = np.zeros(mdp.n_states), np.zeros((mdp.n_states, mdp.n_actions))
    if pay is None:
        return arrival, direct
    if is_frame(pay):
        pay = as_frame(pay, "pay")
        columns = ["state", "action", "amount"] if "action" in pay else ["state", "amount"]
        *places, amounts = _columns(pay, columns, "pay")
        whole = len(places) == 1 or pay["action"].isna()
        keys = [
            state if len(places) == 1 or free else (state, places[1][i])
            for i, (state, free) in enumerate(zip(places[0], np.broadcast_to(whole, len(pay)), strict=True))
        ]
        entries = list(zip(keys, amounts, strict=True))
    elif isinstance(pay, Mapping):
        entries = list(pay.items())
    else:
        array = as_floats(pay, "pay")
        if array.shape == arrival.shape:
            return array.copy(), direct
        if array.shape != direct.shape:
            raise ValueError(
                f"pay must be a mapping of states to amounts, or have shape ({mdp.n_states},) or "
                f"({mdp.n_states}, {mdp.n_actions}), got shape {array.shape}"
            )
        entries = []
        direct = array.copy()
    for key, amount in entries:
        number = float(as_floats(amount, f"pay for {key}"))
        if isinstance(key, tuple):
            if len(key) != 2:
                raise ValueError(f"pay must be for a state or a pair of state and action, got {key!r}")
            row = place_of(key[0], mdp.state_names, "pay", "state")
            direct[row, place_of(key[1], mdp.action_names, "pay", "action")] += number
        else:
            arrival[place_of(key, mdp.state_names, "pay", "state")] += number
    idle = np.argwhere((direct != 0) & ~mdp.live)
    if idle.size:
        state, action = idle[0]
        raise ValueError(
            f"pay must be for actions that can be taken, got {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )
    return arrival, direct


def _read_forbid(mdp: MDP, forbid: Any) -> Bools:
    """Return the mask `(S,A)` of forbidden actions."""
    banned = np.zeros((mdp.n_states, mdp.n_actions), dtype=np.bool_)
    if forbid is None:
        return banned
    if isinstance(forbid, np.ndarray) and forbid.dtype == np.bool_:
        if forbid.shape != banned.shape:
            raise ValueError(f"forbid as a mask must have shape {banned.shape}, got {forbid.shape}")
        return forbid.copy()
    pairs: list[tuple[object, object]] = []
    if is_frame(forbid):
        states, actions = _columns(as_frame(forbid, "forbid"), ["state", "action"], "forbid")
        pairs = list(zip(states, actions, strict=True))
    elif isinstance(forbid, Mapping):
        for state, given in forbid.items():
            several = isinstance(given, Iterable) and not isinstance(given, str)
            pairs += [(state, action) for action in (given if several else [given])]
    else:
        for pair in forbid if isinstance(forbid, Iterable) and not isinstance(forbid, str) else [forbid]:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise ValueError(f"forbid must list pairs of state and action, got {pair!r}")
            pairs.append((pair[0], pair[1]))
    for state, action in pairs:
        place = place_of(state, mdp.state_names, "forbid", "state"), place_of(action, mdp.action_names, "forbid", "action")
        if not mdp.live[place]:
            raise ValueError(f"forbid must be for actions that can be taken, got {action} in state {state}")
        banned[place] = True
    return banned


def read_discounts(names: Sequence[str], discount: Any) -> Floats:
    """Return new discounts `(K,)`, NaN where none is given."""
    if discount is None:
        return np.full(len(names), np.nan)
    if not isinstance(discount, Mapping):
        return np.full(len(names), as_discount(discount))
    return numbers_of(discount, names, "discount", "expert", as_discount)


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
        choosing: how they choose; those of policies with soft values.
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
    choosing: Choosing = SOFT

    @property
    def problem(self) -> Problem:
        """Return the problem of the policies."""
        assert self.given is not None
        return self.given

    @property
    def thetas(self) -> Floats:
        """Return the reward parameters of all `(d,)`, or of each expert `(d,K)` where they deviate."""
        assert self.theta is not None
        return self.theta if self.own is None else self.own


def read_source(source: Any, discount: Any, persons: str) -> Known:
    """Return what a source, the discounts that are given for policies, and a choice of people say of the experts.

    Raises:
        ValueError: where they say too little.
    """
    if persons not in ("each", "groups"):
        raise ValueError(f'persons must be "each" or "groups", got {persons!r}')
    if isinstance(source, Solution):
        return _of_solution(source, persons == "groups")
    if persons == "groups":
        raise ValueError("groups are those of a Population, and this fit has none: fit with a formula, or ask for each person")
    if isinstance(source, Identification):
        if source.problem is None:
            raise ValueError("this identification was read from a file and has lost its problem: identify the problem again")
        return _of_policies(source.problem, source, None)
    if are_policies(source):
        return _of_policies(source, None, discount)
    raise ValueError(f"this needs a Solution, an Identification or a Problem, got {type(source).__name__}")


def are_policies(source: Any) -> TypeGuard[Problem]:
    """Return whether a source is a problem of policies, whose discounts may be given."""
    return isinstance(source, Problem)


def _of_solution(solution: Solution, groups: bool) -> Known:
    """Return what a solution says of its experts, or of a typical and a new person of each group."""
    problem = solution.require_answer()
    choosing = choosing_of(solution)
    if choosing.habits is not None and choosing.habits.stickiness:
        raise ValueError("what follows a change needs a fit without stickiness, because the last action is not planned with")
    deviates = not groups and solution.evidence.get("deviations") is not None
    rewards = solution.personal_rewards.T if deviates else None
    estimate = solution.estimate.of_groups() if groups else solution.estimate
    answer = estimate.answer
    task = one_task(problem)
    given = solution.options.get("known_reward")
    arrival = None
    if task.known_reward is not None and given is not None and not (isinstance(given, Mapping) and names_pairs(given)):
        arrival = np.asarray(by_state(task.mdp, given, "known_reward"), dtype=np.float64)
        arrival = arrival if arrival.shape == (task.mdp.n_states,) else None
    people = Known(
        names=answer.experts,
        parameter_names=problem.parameter_names,
        task=task,
        discounts=answer.discounts,
        temperature=answer.temperatures,
        unit="",
        theta=solution.reward,
        own=rewards,
        arrival=arrival,
        source=solution,
        estimate=estimate,
        choosing=choosing,
    )
    return replace(people, unit=_unit(people, solution))


def _unit(people: Known, solution: Solution) -> str:
    """Return what a bonus of 1 means for the experts of a solution."""
    theta = solution.reward
    order = np.argsort(-np.abs(theta), kind="stable")[:3]
    paid = in_words([f"{people.parameter_names[i]} {significant(theta[i], 3)}" for i in order])
    what = "a state" if people.task.features is None else "a unit of a feature"
    beside = f" For comparison, what {what} pays: {paid}." if theta.size else ""
    if people.temperature is None:
        return f"A bonus of 1 is one unit of the reward, whose scale is set by the bound on rewards alone.{beside}"
    paid_known = people.task.known_reward is not None or solution.options.get("known_reward") is not None
    if paid_known:
        return f"A bonus of 1 is one unit of the known reward.{beside}"
    if np.ptp(people.temperature) <= 1e-9 * people.temperature.max():
        size = significant(people.temperature[0], 3)
        return f"A bonus of 1 is one unit of the reward, in which the temperature of all experts is {size}.{beside}"
    return (
        "A bonus of 1 is one mean temperature of the experts. Nothing else sets the scale of the reward: compare experts only as "
        f"far as they share it.{beside}"
    )


def _of_policies(problem: Problem, source: Identification | None, discount: Any) -> Known:
    """Read what the policies of a problem say, and their discounts: given, or identified."""
    task = one_task(problem)
    refuse_durations([task.mdp], "what follows a change from policies alone")
    refuse_beliefs([task], "what follows a change from policies alone")
    for expert in problem.experts:
        if expert.kind != "policy" or expert.sets is not None:
            received = "one action for each state" if expert.sets is not None else expert.kind
            what = "demonstrations" if expert.kind == "demonstrations" else received
            advice = "solve the problem and hand in its solution" if expert.sets is None else "hand in the solution of a solver"
            raise ValueError(f"this needs policies of probabilities, got {what} of expert {expert.name}: {advice}")
    policies = np.stack([expert.require_policy() for expert in problem.experts])
    alone = len(problem.names) == 1
    unit = f"A bonus of 1 is worth one temperature{' of the expert' if alone else ', which all experts share'}."
    unit_of_each = (
        "A bonus of 1 is worth one temperature of each expert. Nothing sets a common scale: compare no experts by their response."
    )
    people = Known(problem.names, problem.parameter_names, task, np.zeros(0), None, unit, policies=policies, given=problem)
    if source is None:
        given = read_discounts(problem.names, discount)
        if np.isfinite(given).all():
            ones = np.ones(given.size)
            return replace(
                people,
                discounts=given,
                temperature=ones,
                identified=ones > 0,
                unit=unit if alone else unit_of_each,
                comparable=alone,
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
        people,
        unit=unit,
        discounts=np.minimum(source.discounts, largest),
        temperature=source.temperature,
        ranges=np.minimum(source.intervals, largest),
        identified=source.discounts_identified,
        source=source,
    )


class InfiniteValueError(ValueError):
    """There is no plan: what is expected has no finite value."""


def planned(task: MDP, reward: Floats, gamma: Floats, lam: Floats | None, choosing: Choosing = SOFT) -> Floats:
    """Return the policies `(n,S,A)` of discounts and temperatures `(n,)` under rewards `(A·S,)`, or `(A·S,n)` of each, with
    lapses."""
    a, s = task.n_actions, task.n_states
    if lam is None:
        columns = reward.reshape(a * s, -1)
        return np.stack(
            [plan(task, columns[:, min(i, columns.shape[1] - 1)].reshape(a, s).T, float(g)).policy for i, g in enumerate(gamma)]
        )
    engine = engine_for(task, choosing.value)
    if isinstance(engine, Own):
        log = engine.log_policies(reward, gamma, lam)
    else:
        values = engine.values(reward, gamma, lam, None)
        if values is None:
            raise InfiniteValueError(
                "the soft value after the change is infinite or could not be reached: going on forever pays more than ending; "
                "lower the discount, the temperature or the bonus"
            )
        closed = np.where(task.available.T, 0.0, -np.inf)[:, :, None]
        log = log_policies(reward.reshape(a, s, -1) + gamma * (task.stacked @ values).reshape(a, s, -1) + closed, lam)[0]
    result: Floats = np.exp(log).transpose(2, 1, 0)
    if choosing.habits is not None:
        lapse = choosing.habits.lapse
        result = (1 - lapse) * result + lapse * task.available / task.available.sum(axis=1, keepdims=True)
    return result


def is_timed(people: Known, change: Change) -> bool:
    """Return whether moves take time, before or after: then what is expected depends on the discount, and plans are made one by
    one."""
    return people.task.mdp.durations is not None or change.mdp.durations is not None


def seen(people: Known, change: Change, discount: float) -> tuple[Known, Change]:
    """Return the tasks before and after as they are seen at a discount, for those who have it."""
    if not is_timed(people, change):
        return people, change
    return replace(people, task=people.task.at(discount)), change.at(discount)


def one_of(people: Known, change: Change, k: int) -> tuple[Known, Change]:
    """Return one of the experts alone."""
    lam = people.temperature
    rewards = None if people.own is None else people.own[:, k : k + 1]
    alone = replace(
        people,
        names=people.names[k : k + 1],
        discounts=people.discounts[k : k + 1],
        temperature=None if lam is None else lam[k : k + 1],
        own=rewards,
    )
    return alone, replace(change, discounts=change.discounts[k : k + 1])


def expected_rewards(people: Known, change: Change, theta: Floats) -> tuple[Floats, Floats]:
    """Return the expected immediate reward `(A·S,…)` before and after, of θ `(d,…)`, without what is paid besides."""
    task = people.task
    extra = np.zeros(task.feature_matrix.shape[0]) if task.known_reward is None else task.known_reward
    before = task.feature_matrix @ theta
    before = before + (extra if theta.ndim == 1 else extra[:, None])
    if not change.moved:
        return before, before
    assert change.features is not None
    after = change.features @ theta
    later = _known_after(people, change)
    return before, after + (later if theta.ndim == 1 else later[:, None])


def _known_after(people: Known, change: Change) -> Floats:
    """Return the known part of the reward `(A·S',)` in the new task: what is paid on arrival follows the transitions."""
    task, after = people.task, change.mdp
    rows = after.n_states * after.n_actions
    if task.known_reward is None or not task.known_reward.any():
        return np.zeros(rows)
    place = {name: i for i, name in enumerate(task.mdp.state_names)}
    old = np.array([place.get(name, -1) for name in after.state_names])
    new = np.flatnonzero((old < 0) & (after.entered if people.arrival is not None else ~after.terminal))
    if new.size:
        raise ValueError(f"a part of the reward is known, but not in the new state {after.state_names[new[0]]}")
    if people.arrival is not None:
        result: Floats = after.stacked @ np.where(old >= 0, people.arrival[old], 0.0)
        return result
    table = task.known_reward.reshape(task.mdp.n_actions, -1)[:, old]
    return np.where(after.live.T, table, 0.0).ravel()


def explaining(people: Known, limits: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Return discounts and temperatures `(M,K)` to try: first the answer, then what else explains the policies."""
    assert people.temperature is not None
    assert people.identified is not None
    tried, lams = people.discounts[None], people.temperature[None]
    if not people.identified.all() and (limits is not None or np.ptp(people.temperature) > 0):
        members = members_of(people, limits)
        middle = len(members[0]) // 2
        tried, lams = (np.concatenate([each[middle : middle + 1], each]) for each in members)
    elif people.ranges is not None:
        tried = np.concatenate([tried, np.linspace(people.ranges[:, 0], people.ranges[:, 1], 41)])
        lams = np.repeat(lams, len(tried), axis=0)
    if people.task.mdp.never_ends().any():
        tried = np.minimum(tried, ENDLESS_DISCOUNT)  # members of the set may have a discount of 1
    return tried, lams


def members_of(people: Known, limits: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Return discounts and temperatures `(M,K)` that explain the policies: the identified ones, or members of the set."""
    assert people.temperature is not None
    assert people.identified is not None
    if people.identified.all() or not isinstance(people.source, Identification):
        return people.discounts[None], people.temperature[None]
    identified = people.source
    assert identified.problem is not None
    free = np.ptp(identified.temperature) > 0
    # what was known has an interval of no width
    named = zip(identified.experts, identified.intervals.tolist(), strict=True)
    given = {name: float(low) for name, (low, high) in named if low == high}
    temperature: PolicyTemperature = "per_expert" if free else float(identified.temperature[0])
    return discount_members(identified.problem, temperature, given or None, limits, identified.tolerance)


def reweighted(mdp: MDP, policy: Floats, change: Change, gamma: Floats, lam: Floats) -> Floats:
    """Return the policies `(n,S,A)` after a bonus and a ban, of an expert seen to follow `policy` `(S,A)`.

    By the identity at the top: no reward is needed, only the discounts and temperatures `(n,)` to try.
    """
    task, reward = as_reward(change.task, mdp, policy, lam)
    pay = np.where(task.live, change.pay, 0.0)
    return planned(task, reward + pay.T.ravel()[:, None], gamma, lam)


def as_reward(after: MDP, mdp: MDP, policy: Floats, lam: Floats) -> tuple[MDP, Floats]:
    """Return the task `after` without what `policy` never does, and the rewards `λ log π` `(A·S,n)` of temperatures `(n,)` in
    it."""
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


def planned_or_nan(task: MDP, reward: Floats, gamma: Floats, lam: Floats, choosing: Choosing = SOFT) -> Floats:
    """Return the policies `(n,S,A)`, NaN where a value is infinite."""

    def ask(columns: Ints) -> Floats:
        paid = reward if reward.ndim == 1 else reward[:, columns]
        return planned(task, paid, gamma[columns], lam[columns], choosing).transpose(1, 2, 0)

    return each_or_nan(ask, np.arange(gamma.size), (task.n_states, task.n_actions)).transpose(2, 0, 1)


def each_or_nan(ask: Callable[[Ints], Floats], columns: Ints, shape: tuple[int, ...]) -> Floats:
    """Return what `ask` says `(*shape,n)` of plans, in halves where it fails; NaN of those that have no finite value or never
    end."""
    try:
        return ask(columns)
    except (InfiniteValueError, SingularError, np.linalg.LinAlgError):
        if columns.size == 1:
            return np.full((*shape, 1), np.nan)
    return np.concatenate([each_or_nan(ask, half, shape) for half in np.array_split(columns, 2)], axis=-1)
