"""What if: what people will do when something changes.

*A bonus and a ban need no reward.* An expert with discount γ and temperature λ follows π. Since `λ log π = R + γTV − V`, the
rows `R̃ = λ log π` are a reward, too, under which π is the plan, with values 0. R̃ differs from R by the shaping term
`V − γTV`, and shaping changes no plan: neither when Δ(s,a) is paid besides, nor when some actions can no longer be taken. So with
the actions K(s) that are left,

    D(s) = λ log Σ_{a∈K(s)} π(a|s) exp{(Δ + γTD)(s,a)/λ},      π'(a|s) ∝ π(a|s) exp{(Δ + γTD)(s,a)/λ},

whatever the reward is. It may be unknown, and one expert is enough. What is never done stays undone: no bonus brings back a
choice of probability 0. *Other transitions and another discount* need the reward itself.

*What is planned.* A `Solution` has a reward θ, discounts and temperatures; the policies before and after are planned with them. A
`Problem` of policies, or an `Identification` of them, has the policies themselves, and bonus and ban follow as above. Where the
discount is one of a set, every discount of its range is tried: the ends of what comes out are attained, not proved.

*How sure.* The estimate x = (θ, γ, log λ, t) of a fit to decisions has the covariance C of `likelihood.intervals`, estimated
transitions included. So many x are drawn from N(x̂, C), within their bounds, and each is planned with. Intervals are the
quantiles of what comes out, such that one more draw lies between them with the level as its chance: of n draws in order, the
ends are no. `(n + 1)(1 ∓ level)/2`. Quantiles at `1 + (n − 1)(1 ∓ level)/2`, NumPy's own, are too narrow: of 200 draws they
hold one percent less. A draw under which an episode never ends has no visits, steps or undiscounted rewards that are finite: it
counts as the least possible value for the lower end and as the largest for the upper one, so that intervals cover it. The
shared reward of a `Population` is drawn together with what its decisions say of each person. *What the decisions do not show*:
along a direction n of which they say nothing, `log π'` is planned at x̂ ± εn. Where it does not move, it is identified, though
the reward is not; where it moves, nothing bounds it.

*What comes of it.* With ρ the first state and `P = Σ_a π' T`:

* *visits* `(I − Pᵀ)⁻¹ ρ`, per episode; where some episode may never end, and in very large tasks, `(I − γPᵀ)⁻¹ ρ`, discounted by
  the expert's own γ;
* *chance to reach* j: h with `h(j) = 1` and `h = Ph` elsewhere, over the states from which j can be reached, averaged over ρ;
* *steps to reach* j, where it is reached: `Σρg / Σρh`, `g = h + Pg`, `g(j) = 0`;
* *reward*, plain and discounted by the expert's own γ, what is paid besides included; *bonus*, what is paid besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    TINY,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_count,
    as_discount,
    as_floats,
    as_level,
    as_seed,
    as_shape,
    first_few,
    label,
)
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import ChoiceModel
from multihorizon.choice.tabular import Point, Resolvents, engine_for, redrawn
from multihorizon.data.reading import closest
from multihorizon.domains.base import Domain, GeneralizationError, Task, losses, read_tasks
from multihorizon.exact.bounds import discount_members, predicted_bounds, read_restrictions
from multihorizon.exact.identify import Identification, identify
from multihorizon.frames import as_frame, is_frame
from multihorizon.likelihood.intervals import ProfilesApart, precision, precision_apart
from multihorizon.likelihood.maximum_likelihood import resume, resume_apart
from multihorizon.mdp import MDP, episodic_levels, refuse_durations, steps_into
from multihorizon.numerics.spectrum import positive_part
from multihorizon.parallel import Progress, as_jobs, in_parallel, silent
from multihorizon.planning.linear import SingularError
from multihorizon.planning.plan import log_policies, plan
from multihorizon.problem import Expert, Problem, require_finite
from multihorizon.result import COLOURS, Result, literal
from multihorizon.solution import (
    ClosedFormEvidence,
    LikelihoodEvidence,
    LookaheadEvidence,
    PopulationEvidence,
    Solution,
    Status,
)
from multihorizon.tables import Role, Table
from multihorizon.words import count, in_words, percent, shortened

#: The words for what is known of a prediction.
IDENTIFIED, BOUNDED, NOT_BOUNDED = "identified", "bounded", "not bounded"
#: Of discounts that are one of a set.
TRIED = "Discounts that explain the policies were tried one by one: the bounds are attained, and at least so wide."
#: In a task of more states a plan takes a second, and undiscounted visits take several: there are no draws and no such visits.
LARGE = 20_000
#: Each step of an episode adds a rounding error; of one that lasts longer, these hide whether it ends.
MOST_STEPS = 1e-9 / np.finfo(np.float64).eps


# What changes.


@dataclass(frozen=True, eq=False)
class Change:
    """What is different after the change, in the task after it, which has S' states.

    Attributes:
        mdp: the task after, with its first states; actions that are forbidden are still in it.
        pay: what is added to the expected immediate reward `(S',A)`.
        arrival: the part of `pay` that is paid on arrival, for each state `(S',)`.
        forbid: the actions that can no longer be taken `(S',A)`.
        initial: the probabilities of the first state `(S',)`.
        discounts: new discounts `(K,)`, NaN where they stay as they are.
        moved: whether transitions change.
        elsewhere: whether other first states are given.
        features: F `(A·S',d)` in the task after; None where transitions do not change.
        arrival_features: what reward parameters pay on arrival there `(S',d)`; None where they pay for decisions.
    """

    mdp: MDP
    pay: Floats
    arrival: Floats
    forbid: Bools
    initial: Floats
    discounts: Floats
    moved: bool
    elsewhere: bool = False
    features: Sparse | None = None
    arrival_features: Sparse | None = None

    @property
    def needs_reward(self) -> bool:
        """Whether the policies alone do not say what follows."""
        return self.moved or bool(np.isfinite(self.discounts).any())

    @property
    def task(self) -> MDP:
        """The task after, without the actions that are forbidden."""
        return self.mdp.without(self.forbid)

    def at(self, discount: float) -> Change:
        """The same change in the task as it is seen at a discount: what is paid on arrival follows its transitions."""
        seen = self.mdp.at(discount)
        return self if seen is self.mdp else self.in_task(seen)

    def in_task(self, mdp: MDP) -> Change:
        """The same change where the same moves have other probabilities."""
        features, direct = self.features, self.pay - self.mdp.expect(self.arrival)
        if self.moved and self.arrival_features is not None:
            features = sp.csr_array(mdp.stacked @ self.arrival_features)
        return replace(self, mdp=mdp, pay=mdp.expect(self.arrival) + direct, features=features)


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
) -> Change:
    """Read a change of a task; all refusals are made here.

    Args:
        mdp: the task before.
        names: those of the experts `(K,)`.
        pay, forbid, transitions, initial, discount, features: as in `predict`.
        expert: anyone of the task before, for the features of the reward; None where it has none.
        parameter_names: of the reward; by default the states.

    Raises:
        ValueError: naming the place, the expected and the received.
    """
    after, matrix, arrival_features = mdp, None, None
    if transitions is not None:
        after = _task_after(mdp, transitions)
        matrix, arrival_features = _features_after(mdp, after, features, expert, parameter_names or mdp.state_names)
    elif features is not None:
        raise ValueError("features must come with transitions, whose states they describe, received features alone")
    if initial is not None:
        after = after.starting(_by_state(after, initial, "initial"))
    arrival, direct = _read_pay(after, pay)
    banned = _read_forbid(after, forbid)
    stuck = np.flatnonzero(~(after.available & ~banned).any(axis=1) & ~after.terminal)
    if stuck.size:
        raise ValueError(f"forbid must leave an action in every state, received none in state {after.state_names[stuck[0]]}")
    return Change(
        mdp=after,
        pay=after.expect(arrival) + direct,
        arrival=arrival,
        forbid=banned,
        initial=after.initial,
        discounts=_read_discounts(names, discount),
        moved=transitions is not None,
        elsewhere=initial is not None and (transitions is not None or not np.allclose(after.initial, mdp.initial)),
        features=matrix,
        arrival_features=arrival_features,
    )


def _task_after(mdp: MDP, transitions: Any) -> MDP:
    """The new task, checked to have the same actions."""
    if not isinstance(transitions, MDP):
        raise ValueError(f"transitions must be an MDP, received {type(transitions).__name__}")
    if transitions.action_names != mdp.action_names:
        raise ValueError(
            f"transitions must have the actions {first_few(mdp.action_names)}, in this order, "
            f"received {first_few(transitions.action_names)}"
        )
    return transitions


def _features_after(
    mdp: MDP, after: MDP, features: Any, expert: Expert | None, parameter_names: Sequence[str]
) -> tuple[Sparse, Sparse | None]:
    """F `(A·S',d)` of the new task, and what the parameters pay on arrival there."""
    tabular = expert is None or expert.features is None
    states, rows, d = after.n_states, after.n_states * after.n_actions, len(parameter_names)
    if features is not None:
        if tabular:
            raise ValueError("features of the new states must come with a problem that has features, received one without any")
        matrix = sp.csr_array(features) if sp.issparse(features) else sp.csr_array(as_floats(features, "features"))
        if matrix.shape == (states, d):
            return sp.csr_array(after.stacked @ matrix), matrix
        if matrix.shape != (rows, d):
            raise ValueError(
                f"features of the new task must have shape ({rows}, {d}), or ({states}, {d}) on arrival, received {matrix.shape}"
            )
        return sp.csr_array(sp.diags_array(after.live.T.ravel() / 1.0) @ matrix), None
    place = {name: i for i, name in enumerate(parameter_names if tabular else mdp.state_names)}
    unknown = [name for name, entered in zip(after.state_names, after.entered, strict=True) if entered and name not in place]
    if not tabular and expert is not None and expert.arrival is None:
        unknown = [name for name, ends in zip(after.state_names, after.terminal, strict=True) if not ends and name not in place]
    if unknown:
        why = "give features= for the states of the new task" if not tabular else "what they pay is not known"
        raise ValueError(
            f"transitions must have the states {first_few(mdp.state_names)}, received the new state {unknown[0]}: {why}"
        )
    old = np.array([place.get(name, -1) for name in after.state_names])
    known = np.flatnonzero(old >= 0)
    if tabular or (expert is not None and expert.arrival is not None):
        source = sp.eye_array(d, format="csr") if tabular else sp.csr_array(expert.arrival)  # type: ignore[union-attr]
        pick = sp.csr_array((np.ones(known.size), (known, old[known])), shape=(states, source.shape[0]))
        arrival = sp.csr_array(pick @ source)
        return sp.csr_array(after.stacked @ arrival), arrival
    assert expert is not None
    picked = [known + states * a for a in range(after.n_actions)], [old[known] + mdp.n_states * a for a in range(mdp.n_actions)]
    to, source_rows = (np.concatenate(part) for part in picked)
    pick = sp.csr_array((np.ones(to.size), (to, source_rows)), shape=(rows, expert.feature_matrix.shape[0]))
    return sp.csr_array(sp.diags_array(after.live.T.ravel() / 1.0) @ (pick @ expert.feature_matrix)), None


def _misspelt(name: str, known: Sequence[str]) -> str:
    """A name that is none, and the one that was perhaps meant."""
    close = closest(name, list(known))
    return repr(name) if close is None else f"{name!r}. Did you mean {close!r}?"


def state_place(mdp: MDP, given: object, what: str) -> int:
    """The number of a state by its name."""
    name = label(given, f"each of {what}")
    if name not in mdp.state_names:
        known = mdp.state_names
        raise ValueError(f"{what} must name states among {first_few(known)}, received {_misspelt(name, known)}")
    return mdp.state_names.index(name)


def action_place(mdp: MDP, given: object, what: str) -> int:
    """The number of an action by its name."""
    name = label(given, f"an action of {what}")
    if name not in mdp.action_names:
        known = mdp.action_names
        raise ValueError(f"{what} must name actions among {first_few(known)}, received {_misspelt(name, known)}")
    return mdp.action_names.index(name)


def _by_state(mdp: MDP, given: Any, what: str) -> Any:
    """Numbers `(S,)` from a mapping of states to numbers; anything else as it is."""
    if not isinstance(given, Mapping):
        return given
    found = np.zeros(mdp.n_states)
    for state, number in given.items():
        found[state_place(mdp, state, what)] = float(as_floats(number, f"{what} of state {state}"))
    return found


def _columns(frame: pd.DataFrame, needed: Sequence[str], what: str) -> list[list[Any]]:
    lacking = [name for name in needed if name not in frame]
    if lacking:
        raise ValueError(f"{what} must have the columns {', '.join(needed)}, received a table without {lacking[0]}")
    return [frame[name].tolist() for name in needed]


def _read_pay(mdp: MDP, pay: Any) -> tuple[Floats, Floats]:
    """What is paid on arrival `(S,)` and for decisions `(S,A)`."""
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
                f"({mdp.n_states}, {mdp.n_actions}), received shape {array.shape}"
            )
        entries, direct = [], array.copy()
    for key, amount in entries:
        number = float(as_floats(amount, f"pay for {key}"))
        if isinstance(key, tuple):
            if len(key) != 2:
                raise ValueError(f"pay must be for a state or a pair of state and action, received {key!r}")
            direct[state_place(mdp, key[0], "pay"), action_place(mdp, key[1], "pay")] += number
        else:
            arrival[state_place(mdp, key, "pay")] += number
    idle = np.argwhere((direct != 0) & ~mdp.live)
    if idle.size:
        state, action = idle[0]
        raise ValueError(
            f"pay must be for actions that can be taken, received {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )
    return arrival, direct


def _read_forbid(mdp: MDP, forbid: Any) -> Bools:
    """The mask `(S,A)` of forbidden actions."""
    banned = np.zeros((mdp.n_states, mdp.n_actions), dtype=np.bool_)
    if forbid is None:
        return banned
    if isinstance(forbid, np.ndarray) and forbid.dtype == np.bool_:
        if forbid.shape != banned.shape:
            raise ValueError(f"forbid as a mask must have shape {banned.shape}, received {forbid.shape}")
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
                raise ValueError(f"forbid must list pairs of state and action, received {pair!r}")
            pairs.append((pair[0], pair[1]))
    for state, action in pairs:
        place = state_place(mdp, state, "forbid"), action_place(mdp, action, "forbid")
        if not mdp.live[place]:
            raise ValueError(f"forbid must be for actions that can be taken, received {action} in state {state}")
        banned[place] = True
    return banned


def _read_discounts(names: Sequence[str], discount: Any) -> Floats:
    """New discounts `(K,)`, NaN where none is given."""
    if discount is None:
        return np.full(len(names), np.nan)
    if not isinstance(discount, Mapping):
        return np.full(len(names), as_discount(discount))
    found, place = np.full(len(names), np.nan), {name: i for i, name in enumerate(names)}
    for key, value in discount.items():
        name = label(key, "the name of an expert with a new discount")
        if name not in place:
            raise ValueError(f"discount must name experts among {first_few(list(names))}, received {_misspelt(name, names)}")
        found[place[name]] = as_discount(value, f"discount of {name}")
    return found


# What follows.


@dataclass(frozen=True, eq=False)
class Prediction(Result):
    """What experts do before and after a change.

    Attributes:
        experts: their names `(K,)`.
        states, actions: labels of the task after.
        states_before: labels of the task before.
        before: the policies `(K,S,A)` in the task before.
        after, low, high: the policies `(K,S',A)` after, and the ends of their intervals or bounds; NaN where nothing bounds them.
        status: of each expert "identified": the estimate, with an interval if it has an error; "bounded": one of a set of
            answers, between the bounds; or "not bounded".
        proved: of each expert who is "bounded", whether the bounds are proved to hold all answers; otherwise they are attained,
            and the answers lie at least this far apart.
        outcomes: one row per expert, quantity and state: before, after, low, high, status.
        unit: what a bonus of 1 means.
        level: of the intervals.
        remarks: what else there is to know.
        change: what changed, kept in memory and not saved.
    """

    experts: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    states_before: tuple[str, ...]
    before: Floats
    after: Floats
    low: Floats
    high: Floats
    status: tuple[str, ...]
    proved: Bools
    outcomes: pd.DataFrame
    unit: str
    level: float
    remarks: tuple[str, ...]
    change: Change

    def sentences(self) -> str:
        """Of each expert the choice that changes most, and what is known of it."""
        lines = []
        change = self.after - self._before_there()
        for k, name in enumerate(self.experts[: 5 if len(self.experts) > 60 else None]):
            lines.append(f"  {name}: {self._largest(k, change[k])} ({self.status[k]})")
        if len(self.experts) > 60:
            lines.append(f"  and {len(self.experts) - 5:,} more")
        kinds = [f"{sum(one == kind for one in self.status)} {kind}" for kind in dict.fromkeys(self.status)]
        who = "one expert does" if len(self.experts) == 1 else f"{len(self.experts):,} experts do"
        head = f"What {who} after the change: {in_words(kinds)}."
        return "\n".join([head, *lines, self.unit, *self.remarks])

    def _largest(self, k: int, change: Floats) -> str:
        """The choice that changes most, in words."""
        live = np.where(self.change.mdp.live & np.isfinite(change), np.abs(change), -1.0)
        state, action = (int(i) for i in np.unravel_index(int(np.argmax(live)), live.shape))
        if live[state, action] < 0:
            return "decides in new states only, where there is nothing to compare with"
        if live[state, action] < 5e-7:
            return "nothing changes"
        ends = percent(float(self.after[k, state, action] - change[state, action])), percent(float(self.after[k, state, action]))
        low, high = self.low[k, state, action], self.high[k, state, action]
        between = (
            f", from {percent(float(low))} to {percent(float(high))}" if np.isfinite([low, high]).all() and high > low else ""
        )
        return f"chooses {self.actions[action]} in {self.states[state]} with {ends[1]} instead of {ends[0]}{between}"

    def _before_there(self) -> Floats:
        """The policies before `(K,S',A)` in the states after; NaN in states that are new."""
        if self.states == self.states_before:
            return self.before
        place = {name: i for i, name in enumerate(self.states_before)}
        rows = np.array([place.get(name, -1) for name in self.states])
        found: Floats = np.where((rows >= 0)[None, :, None], self.before[:, rows], np.nan)
        return found

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, state and action that can be taken after: before, after, change, low, high and status."""
        expert, state, action = np.nonzero(np.broadcast_to(self.change.mdp.live, self.after.shape))
        before, after = self._before_there()[expert, state, action], self.after[expert, state, action]
        return pd.DataFrame(
            {
                "expert": np.array(self.experts, dtype=object)[expert],
                "state": np.array(self.states, dtype=object)[state],
                "action": np.array(self.actions, dtype=object)[action],
                "before": before,
                "after": after,
                "change": after - before,
                "low": self.low[expert, state, action],
                "high": self.high[expert, state, action],
                "status": np.array(self.status, dtype=object)[expert],
            }
        )

    def _tables(self, compute: bool) -> list[Table]:
        """The choices that change most first, and what comes of them."""
        frame = self.to_frame()
        frame = frame.iloc[np.argsort(-frame["change"].abs().fillna(0.0).to_numpy(), kind="stable")]
        roles: dict[str, Role] = {"before": "chance", "after": "chance", "change": "chance"}
        drawn = "after", "low", "high"
        choices = Table(frame, "choices, those that change most first", drawn, roles=roles)
        return [choices, Table(self.outcomes, "outcomes", drawn, bars=False, roles=roles)]

    def _height(self) -> float:
        return 0.9 + 0.2 * min(len(self.to_frame()), 20)

    def _draw(self, ax: Any) -> None:
        """The choices that change most, at most twenty: before, after and the interval."""
        frame = self._tables(compute=True)[0].frame.iloc[:20]
        rows = np.arange(len(frame))
        ax.hlines(rows, frame["low"].to_numpy(float), frame["high"].to_numpy(float), color=COLOURS[5], linewidth=3)
        ax.plot(frame["before"].to_numpy(float), rows, "o", color=COLOURS[4], fillstyle="none", label="before")
        ax.plot(frame["after"].to_numpy(float), rows, "o", color=COLOURS[0], label="after")
        labels = frame["expert"] + ": " + frame["action"] + " in " + frame["state"]
        ax.set_yticks(rows, [literal(shortened(text, 32)) for text in labels])
        ax.set(xlabel="probability", xlim=(-0.03, 1.03), ylim=(len(frame) - 0.5, -0.5))
        ax.figure.legend(loc="outside upper right", ncols=2)

    def _content(self) -> dict[str, Any]:
        def named(policies: Floats, states: Sequence[str]) -> dict[str, Any]:
            return {
                expert: {
                    state: dict(zip(self.actions, row, strict=True)) for state, row in zip(states, policy.tolist(), strict=True)
                }
                for expert, policy in zip(self.experts, policies, strict=True)
            }

        bounds = {
            expert: {"status": self.status[k], "proved": bool(self.proved[k]), "low": low, "high": high}
            for k, (expert, low, high) in enumerate(
                zip(self.experts, named(self.low, self.states).values(), named(self.high, self.states).values(), strict=True)
            )
        }
        return {
            "experts": list(self.experts),
            "states": list(self.states),
            "actions": list(self.actions),
            "before": named(self.before, self.states_before),
            "after": named(self.after, self.states),
            "bounds": bounds,
            "outcomes": self.outcomes.to_dict("records"),
            "unit": self.unit,
            "level": self.level,
            "remarks": list(self.remarks),
        }


def predict(
    source: Solution | Identification | Problem,
    *,
    pay: Any = None,
    forbid: Any = None,
    transitions: MDP | None = None,
    initial: ArrayLike | Mapping[str, float] | None = None,
    discount: float | Mapping[str, float] | None = None,
    features: ArrayLike | Sparse | None = None,
    restrictions: Any = None,
    states: Sequence[object] | None = None,
    persons: Literal["each", "groups"] = "each",
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Prediction:
    """What each expert will do when something changes, how sure that is, and what comes of it.

    Changes combine. A bonus and a ban follow from what experts do, their discounts and temperatures alone; other transitions and
    another discount need the reward.

    Args:
        source: a `Solution` with a reward and discounts; an `Identification`; or a `Problem` of policies, which is identified
            first unless `discount` gives the discounts of all experts.
        pay: what is paid besides, in units of the reward: `{state: amount}` or `(S,)` on arrival, `{(state, action): amount}` or
            `(S,A)` for decisions, or a data frame with the columns state, amount and perhaps action.
        forbid: actions that can no longer be taken: `{state: actions}`, pairs of state and action, a data frame with the columns
            state and action, or a mask `(S,A)`.
        transitions: another task with the same actions. Its states are among the old ones, or `features` describes them.
        initial: other probabilities of the first state.
        discount: another discount for all, or for some by name. For a `Problem` of policies it is the discount that they have.
        features: of the states of the new task, as in `Problem`: `(A·S',d)`, or `(S',d)` where they are paid on arrival.
        restrictions: what is known of the reward, where it is one of a set: `{"rising": labels}`, each at most the next;
            `{"lower": …, "upper": …}`, a number for all or numbers by label; a pair `(A, b)` that stands for `A r ≤ b`; a data
            frame with the columns smaller and larger, or state, lower and upper; or a list of these.
        states: whether and when these are reached is among the outcomes; by default the states of bonuses and bans.
        persons: of a `Population`, "each" of its persons, or for each of its "groups" a typical person, whose interval is the
            error of the estimate, and a new one, whose interval also holds how much persons differ.
        level: of the intervals.
        draws: from the estimate, of which intervals are quantiles.
        seed: of the draws.
        jobs: processes for the draws.
        progress: called with the share that is done.

    Raises:
        ValueError: where the change cannot be made or the source cannot answer it, in one sentence.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> problem = Problem(d.mdp, d.mce_experts(), names=["near", "middle", "far"])
        >>> found = predict(problem, pay={d.mdp.state_names[-1]: 2.0})
        >>> found.status
        ('identified', 'identified', 'identified')
    """
    as_level(level)
    as_count(draws, "draws", least=20)
    seed = as_seed(seed)
    as_jobs(jobs)
    if isinstance(source, Solution) and restrictions is not None:
        raise ValueError(
            "restrictions are for rewards that are one of a set: hand in an Identification, or a Problem of policies"
        )
    known = read_source(source, discount, persons)
    if isinstance(source, Problem):
        discount = None
    change = read_change(
        known.task.mdp,
        known.names,
        pay=pay,
        forbid=forbid,
        transitions=transitions,
        initial=initial,
        discount=discount,
        features=features,
        expert=known.task,
        parameter_names=known.parameter_names,
    )
    targets = _targets(change, states)
    if known.theta is None:
        answer = _without_reward(known, change, targets, restrictions, progress)
    else:
        answer = _sure(known, change, _point(known, change), targets, level, draws, seed, jobs, progress)
    outcomes = _outcome_frame(known, change, answer, targets)
    remarks = answer.remarks
    lasting = outcomes[(outcomes["quantity"] == "visits") & outcomes["after"].isna()]["expert"].unique().tolist()
    if lasting:
        remarks = (
            *remarks,
            f"After the change, episodes of {in_words(lasting)} never end, or last for millions of steps: visits, steps and "
            "undiscounted rewards have no finite value.",
        )
    if "reward" not in set(outcomes["quantity"]) and not Outcomes(change.task, [], False, False).ends:
        why = "the task is so large" if change.mdp.n_states > LARGE else "episodes need not end"
        remarks = (*remarks, f"Visits are discounted by each expert's own discount, because {why}.")
    if change.mdp.durations is not None and "steps to reach" in set(outcomes["quantity"]):
        remarks = (*remarks, "Steps to reach a state are decisions, whatever time they take.")
    if "steps to reach" in set(outcomes["quantity"]) and not change.mdp.terminal.any():
        remarks = (
            *remarks,
            "The task has no end: chances and steps to reach a state are those of somebody who goes on and on, however few "
            "decisions a recorded episode has.",
        )
    idle = np.argwhere((np.abs(change.pay - change.mdp.expect(change.arrival)) > 1e-12) & change.forbid)
    if idle.size:
        named = [f"{change.mdp.action_names[a]} in {change.mdp.state_names[s]}" for s, a in idle]
        remarks = (*remarks, f"What is paid for {first_few(named)} counts for nothing, because it is forbidden.")
    left_out = {}
    if isinstance(source, Solution) and known.persons is not None:
        left_out = PopulationEvidence.of(source).population.left_out
    if left_out:
        words = f"{count(len(left_out), 'person')} left out of the population ({first_few(list(left_out))})"
        remarks = (*remarks, f"Nothing is predicted of {words}.")
    progress(1.0, "planned")
    return Prediction(
        experts=known.names,
        states=change.mdp.state_names,
        actions=change.mdp.action_names,
        states_before=known.task.mdp.state_names,
        before=answer.before,
        after=answer.after,
        low=answer.low,
        high=answer.high,
        status=answer.status,
        proved=answer.proved,
        outcomes=outcomes,
        unit=known.unit,
        level=level,
        remarks=remarks,
        change=change,
    )


@dataclass(frozen=True, eq=False)
class KnownPersons:
    """What is known of persons of a population: η = (logit γ, log λ) and its errors.

    Attributes:
        mean, covariance: of η `(K,2)` and `(K,2,2)`.
        with_reward: its covariance `(K,2,d)` with the parameters of the reward that are estimated.
        degrees: of Student's t; infinite for a normal distribution.
    """

    mean: Floats
    covariance: Floats
    with_reward: Floats
    degrees: float = np.inf


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
        persons: what is known of persons of a population.
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
    persons: KnownPersons | None = None
    given: Problem | None = None
    comparable: bool = True
    source: Solution | Identification | None = None

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


@dataclass(frozen=True, eq=False)
class _Answer:
    """Policies `(K,S,A)` before and after, the ends of the latter, and what is known of them.

    Of outcomes `(K,Q)` there are the lower and upper ends, whether they move with what the decisions do not show, and, where they
    are known already, the numbers themselves.
    """

    before: Floats
    after: Floats
    low: Floats
    high: Floats
    status: tuple[str, ...]
    proved: Bools
    remarks: tuple[str, ...] = ()
    outcome_ends: tuple[Floats, Floats] | None = None
    outcome_open: Bools | None = None
    outcomes: Floats | None = None

    def one(self, k: int) -> _Answer:
        """The answer about one of the experts."""
        own = slice(k, k + 1)
        ends = None if self.outcome_ends is None else (self.outcome_ends[0][own], self.outcome_ends[1][own])
        open_ = None if self.outcome_open is None else self.outcome_open[own]
        known = None if self.outcomes is None else self.outcomes[own]
        policies = self.before[own], self.after[own], self.low[own], self.high[own]
        return _Answer(*policies, self.status[own], self.proved[own], self.remarks, ends, open_, known)


def read_source(source: Any, discount: Any, persons: str) -> Known:
    """What a source, the discounts that are given for policies, and a choice of persons say of the experts.

    Raises:
        ValueError: where they say too little.
    """
    if persons not in ("each", "groups"):
        raise ValueError(f'persons must be "each" or "groups", received {persons!r}')
    if persons == "groups" and not (isinstance(source, Solution) and source.solver == "Population"):
        raise ValueError("groups are those of a Population, and this fit has none: fit with a formula, or ask for each person")
    if isinstance(source, Solution):
        return _of_solution(source, persons)
    if isinstance(source, Identification | Problem):
        return _of_policies(source, discount)
    raise ValueError(f"this needs a Solution, an Identification or a Problem, received {type(source).__name__}")


def _one_task(problem: Any) -> Expert:
    """Anyone in the one task of a problem."""
    exemplars = require_finite(problem).exemplars
    if len(exemplars) > 1:
        raise ValueError(f"this needs a problem with one task, received one that joins {len(exemplars)}")
    return exemplars[0]


def _of_solution(solution: Solution, persons: str) -> Known:
    """What a solution says of its experts."""
    if isinstance(solution.evidence, LookaheadEvidence):
        raise ValueError(f"this needs a solution with discounts: {solution.evidence.no_discount}")
    if solution.problem is None:
        solution.require_problem()
    task = _one_task(solution.problem)
    if solution.status in (Status.NOT_CONVERGED, Status.INFEASIBLE):
        raise ValueError(f"this needs a solution that can be used, received one that is {solution.status}")
    if not np.isfinite(solution.reward).all() or not np.isfinite(solution.discounts).all():
        raise ValueError("this needs a solution with a reward and a discount for every expert, received one without")
    assert solution.problem is not None
    given, arrival = solution.options.get("known_reward"), None
    if task.known_reward is not None and given is not None:
        arrival = np.asarray(_by_state(task.mdp, given, "known_reward"), dtype=np.float64)
        arrival = arrival if arrival.shape == (task.mdp.n_states,) else None
    known = Known(
        names=solution.experts,
        parameter_names=solution.problem.parameter_names,
        task=task,
        discounts=solution.discounts,
        temperature=solution.temperature,
        unit="",
        theta=solution.reward,
        own=solution.personal_rewards.T if solution.evidence.get("deviations") is not None else None,
        arrival=arrival,
        source=solution,
    )
    known = replace(known, unit=_unit(known))
    return known if solution.solver != "Population" else _of_population(known, solution, persons == "groups")


def _unit(known: Known) -> str:
    """What a bonus of 1 means for the experts of a solution."""
    solution, theta = known.source, known.theta
    assert isinstance(solution, Solution)
    assert theta is not None
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


def _of_population(known: Known, solution: Solution, groups: bool) -> Known:
    """The persons of a population, or a typical and a new person of each of its groups."""
    population = PopulationEvidence.of(solution).population
    own = population.individuals
    if "logit_discount" not in own:
        if groups:
            raise ValueError("types have no groups: ask for each unit")
        return known
    free = 0 if population.reward_covariance is None else len(population.reward_covariance)
    if not groups:
        errors = np.stack([own["logit_discount_error"], own["log_temperature_error"]], axis=1)
        covariance = errors[:, :, None] * errors[:, None, :]
        covariance[:, [0, 1], [1, 0]] *= own.get("correlation", np.zeros(len(known.names)))[:, None]
        mean = np.stack([own["logit_discount"], own["log_temperature"]], axis=1)
        together = population.person_reward_covariance
        if together is None:
            together = np.zeros((len(known.names), 2, free))
        return replace(known, persons=KnownPersons(mean, covariance, together))
    labels, discounts, temperatures, covariances, with_reward = [], [], [], [], []
    for name, found in population.predictions.items():
        if "covariance" not in found:
            raise ValueError("this fit was saved by an earlier version, which kept too little of groups: fit the table again")
        typical, between = np.array(found["covariance"]), np.array(found["between"])
        for who, covariance in (("typical", typical), ("new", typical + between)):
            labels.append(f"{who} person" if name == "everyone" else f"{who} person of {name}")
            discounts.append(found["typical_discount"])
            temperatures.append(found["typical_temperature"])
            covariances.append(covariance)
            with_reward.append(np.array(found["reward_covariance"]).reshape(2, free))
    gamma, lam = np.array(discounts), np.array(temperatures)
    mean = np.stack([logit(np.clip(gamma / population.largest_discount, 1e-9, 1 - 1e-9)), np.log(lam)], axis=1)
    persons = KnownPersons(mean, np.array(covariances), np.array(with_reward), population.degrees)
    return replace(known, names=tuple(labels), discounts=gamma, temperature=lam, persons=persons, own=None)


def _of_policies(source: Identification | Problem, discount: Any) -> Known:
    """What the policies of a problem say, and their discounts: given, or identified."""
    problem = source if isinstance(source, Problem) else source.problem
    if problem is None:
        raise ValueError("this identification was read from a file and has lost its problem: identify the problem again")
    task = _one_task(problem)
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
        given = _read_discounts(problem.names, discount)
        if np.isfinite(given).all():
            ones = np.ones(given.size)
            return replace(
                known, discounts=given, temperature=ones, identified=ones > 0, unit=unit if alone else own, comparable=alone
            )
        named = {name: float(g) for name, g in zip(problem.names, given, strict=True) if np.isfinite(g)}
        source = identify(problem, known=named or None)
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


# Plans.


class InfiniteValueError(ValueError):
    """There is no plan: what is expected has no finite value."""


def _planned(task: MDP, reward: Floats, gamma: Floats, lam: Floats | None) -> Floats:
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


def _point(known: Known, change: Change) -> _Answer:
    """The policies of the estimate."""
    if is_timed(known, change) and len(known.names) > 1:
        parts = [_point(*one_of(known, change, k)) for k in range(len(known.names))]
        before, after = (np.concatenate([getattr(part, name) for part in parts]) for name in ("before", "after"))
        nothing = np.full(after.shape, np.nan)
        return _Answer(before, after, nothing, nothing, (IDENTIFIED,) * len(parts), np.zeros(len(parts), dtype=np.bool_))
    gamma = np.where(np.isnan(change.discounts), known.discounts, change.discounts)
    first, later = seen(known, change, float(known.discounts[0])), seen(known, change, float(gamma[0]))
    before_reward, after_reward = expected_rewards(*first, known.thetas)[0], expected_rewards(*later, known.thetas)[1]
    before = _planned(first[0].task.mdp, before_reward, known.discounts, known.temperature)
    after = _planned(later[1].task, (after_reward.T + later[1].pay.T.ravel()).T, gamma, known.temperature)
    nothing = np.full(after.shape, np.nan)
    return _Answer(before, after, nothing, nothing, (IDENTIFIED,) * len(known.names), np.zeros(len(known.names), dtype=np.bool_))


def _without_reward(known: Known, change: Change, targets: list[int], restrictions: Any, progress: Progress) -> _Answer:
    """Bonus and ban by the identity; where the reward is needed, bounds over the identified set."""
    limits = None if restrictions is None else read_restrictions(known.parameter_names, restrictions)
    if change.needs_reward:
        return _over_the_set(known, change, targets, limits, progress)
    assert known.policies is not None
    assert known.temperature is not None
    assert known.identified is not None
    status = tuple(IDENTIFIED if one else BOUNDED for one in known.identified)
    remarks = []
    if limits is not None and known.identified.all():
        remarks.append("A bonus and a ban follow from the policies alone: the restrictions on the reward change nothing.")
    tried, lams = explaining(known, limits)
    if not known.identified.all():
        remarks.append(TRIED)
    outcomes = Outcomes(change.task, targets, False, bool(change.pay.any()))
    after, low, high = (np.empty(change.pay.shape, dtype=np.float64)[None].repeat(len(status), axis=0) for _ in range(3))
    points, *ends = np.empty((3, len(status), len(outcomes.labels)))
    for k, policy in enumerate(known.policies):
        swept = reweighted(known.task.mdp, policy, change, tried[:, k], lams[:, k])
        numbers = outcomes.of(swept, tried[:, k], None, change.pay)
        after[k], low[k], high[k] = swept[0], swept.min(axis=0), swept.max(axis=0)
        points[k] = numbers[:, 0]
        ends[0][k], ends[1][k] = numbers.min(axis=1), numbers.max(axis=1)
    nothing = np.zeros(len(status), dtype=np.bool_)
    return _Answer(known.policies, after, low, high, status, nothing, tuple(remarks), (ends[0], ends[1]), outcomes=points)


def explaining(known: Known, limits: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Discounts and temperatures `(M,K)` to try: first the answer, then what else explains the policies."""
    assert known.temperature is not None
    assert known.identified is not None
    tried, lams = known.discounts[None], known.temperature[None]
    if not known.identified.all() and (limits is not None or np.ptp(known.temperature) > 0):
        members = _members(known, limits)
        middle = len(members[0]) // 2
        tried, lams = (np.concatenate([each[middle : middle + 1], each]) for each in members)
    elif known.ranges is not None:
        tried = np.concatenate([tried, np.linspace(known.ranges[:, 0], known.ranges[:, 1], 41)])
        lams = np.repeat(lams, len(tried), axis=0)
    if known.task.mdp.never_ends().any():
        tried = np.minimum(tried, ENDLESS_DISCOUNT)  # members of the set may have a discount of 1
    return tried, lams


def reweighted(mdp: MDP, policy: Floats, change: Change, gamma: Floats, lam: Floats) -> Floats:
    """The policies `(n,S,A)` after a bonus and a ban, of an expert seen to follow `policy` `(S,A)`.

    By the identity at the top: no reward is needed, only the discounts and temperatures `(n,)` to try.
    """
    task, reward = as_reward(change.task, mdp, policy, lam)
    pay = np.where(task.live, change.pay, 0.0)
    return _planned(task, reward + pay.T.ravel()[:, None], gamma, lam)


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


def _members(known: Known, limits: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
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


def _over_the_set(
    known: Known, change: Change, targets: list[int], limits: tuple[Floats, Floats] | None, progress: Progress
) -> _Answer:
    """Bounds over all rewards and discounts that explain the policies and keep to the restrictions.

    The ends of outcomes are those of the members of the set that attain an end of some choice.
    """
    assert known.policies is not None
    discounts, temperatures = _members(known, limits)
    if known.task.mdp.never_ends().any() or change.task.never_ends().any():
        finite = (discounts <= ENDLESS_DISCOUNT).all(axis=1)  # with a discount of 1 there are no values
        if finite.any():
            discounts, temperatures = discounts[finite], temperatures[finite]
    bounds = predicted_bounds(
        known.problem,
        discounts,
        temperatures,
        mdp=change.mdp,
        features=change.features if change.moved else known.task.features,
        pay=change.pay,
        forbid=change.forbid,
        new_discounts=change.discounts,
        restrictions=limits,
        progress=progress,
    )
    remarks = bounds.remarks
    if BOUNDED in bounds.status:
        remarks = (*remarks, "Ranges of outcomes are what members of the set attain: the true ones are at least this wide.")
    outcomes = Outcomes(change.task, targets, False, bool(change.pay.any()))
    low, high = np.full((2, len(bounds.status), len(outcomes.labels)), np.nan)
    for k, (policies, gamma) in enumerate(zip(bounds.members, bounds.member_discounts, strict=True)):
        if bounds.status[k] != NOT_BOUNDED:
            numbers = outcomes.of(policies, gamma, None, change.pay)
            low[k], high[k] = numbers.min(axis=1), numbers.max(axis=1)
    answer = known.policies, bounds.point, bounds.low, bounds.high, bounds.status, bounds.proved
    return _Answer(*answer, remarks, (low, high))


# How sure.


@dataclass(frozen=True, eq=False)
class Drawn:
    """Parameters of n plans of each expert: rewards θ `(d,)` of all or `(d,n)`, discounts and temperatures `(K,n)`.

    `own` are the deviations of each expert `(K,d,n)` from that reward, None where there are none.
    `tasks` are the tasks before the change in which they live, where transitions are estimated, too; None where they are known.
    """

    theta: Floats
    gamma: Floats
    lam: Floats
    tasks: tuple[MDP, ...] | None = None
    own: Floats | None = None

    def reward_of(self, k: int) -> Floats:
        """The reward parameters of expert k, `(d,)` or `(d,n)`."""
        return self.theta if self.own is None else (self.theta.T + self.own[k].T).T

    def rewards_in(self, i: int) -> Floats:
        """The reward parameters of the i-th plan, `(d,)` of all or `(d,K)` of each expert."""
        theta = self.theta if self.theta.ndim == 1 else self.theta[:, i]
        return theta if self.own is None else theta[:, None] + self.own[:, :, i].T


@dataclass(frozen=True, eq=False)
class Estimate:
    """Draws from the estimate, and pairs of points `(d,2m)`, … on both sides of it along what the decisions do not show.

    `step` is how far each of the pair is from the estimate. `lost` `(K,)` are experts of whom something else is not identified.
    """

    drawn: Drawn
    open_: Drawn | None
    step: float
    lost: Bools
    remarks: tuple[str, ...] = ()


def _sure(
    known: Known,
    change: Change,
    point: _Answer,
    targets: list[int],
    level: float,
    draws: int,
    seed: int,
    jobs: int,
    progress: Progress,
) -> _Answer:
    """The point with intervals, where the solution has an error, and with what is identified."""
    estimate, closed, why = estimate_of(known, change, draws, seed)
    if estimate is None:
        status = IDENTIFIED if closed else NOT_BOUNDED
        return replace(point, status=(status,) * len(known.names), remarks=(why,))
    work = _PlansAfter(known, change, targets, seed)
    experts = np.arange(len(known.names))
    open_policies = np.zeros(point.after.shape, dtype=np.bool_)
    open_outcomes = np.zeros((experts.size, len(work.outcomes.labels)), dtype=np.bool_)
    if estimate.open_ is not None:
        for k, (policies, numbers) in zip(experts, work.each(estimate.open_, 1), strict=True):
            moved = np.abs(policies[1::2] - policies[::2]).max(axis=0) / (2 * estimate.step)
            open_policies[k] = ~(moved <= 1e-5)
            moved = np.abs(numbers[:, 1::2] - numbers[:, ::2]).max(axis=1) / (2 * estimate.step)
            open_outcomes[k] = ~(moved <= 1e-5 * np.maximum(1.0, np.abs(numbers).max(axis=1)))
    open_policies[estimate.lost], open_outcomes[estimate.lost] = True, True
    low, high = np.empty(point.after.shape), np.empty(point.after.shape)
    ends = np.empty(open_outcomes.shape), np.empty(open_outcomes.shape)
    failed, endless = 0, 0
    for k, (policies, numbers) in zip(experts, work.each(estimate.drawn, jobs), strict=True):
        low[k], high[k] = interval_ends(policies, level, 0, (0.0, 1.0))
        for i, (quantity, _) in enumerate(work.outcomes.labels):
            ends[0][k, i], ends[1][k, i] = interval_ends(numbers[i], level, 0, possible_values(quantity))
        unplanned = np.isnan(policies[:, 0, 0])
        failed = max(failed, int(unplanned.sum()))
        endless = max(endless, int((work.outcomes.endless(numbers) & ~unplanned).sum()))
        progress((k + 1) / experts.size, f"{k + 1:,} of {experts.size:,} experts")
    # draws without a value may leave nothing but what is possible at all
    open_policies |= (low == 0) & (high == 1)
    possible = np.array([possible_values(quantity) for quantity, _ in work.outcomes.labels]).T
    open_outcomes |= (ends[0] == possible[0]) & (ends[1] == possible[1])
    live = change.mdp.live & work.outcomes.reached[:, None]
    shown = [not (own & live).any() for own in open_policies]
    remarks, tail = list(estimate.remarks), percent((1 - level) / 2)
    if failed:
        remarks.append(
            f"For up to {failed} of {draws} draws from the estimate there is no plan, because values are infinite. Intervals "
            f"cover whatever happens in these draws; where they are more than {tail}, nothing is bounded."
        )
    if endless:
        remarks.append(
            f"In up to {endless} of {draws} draws from the estimate episodes never end, or last for millions of steps. Visits, "
            "steps and undiscounted rewards have no finite value there. Intervals cover these draws; where they are more than "
            f"{tail}, such an outcome is not bounded."
        )
    if not all(shown):
        names = in_words([name for name, one in zip(known.names, shown, strict=True) if not one])
        remarks.append(f"The decisions do not show what {names} will do in some states: the intervals there are empty.")
    low[open_policies] = high[open_policies] = np.nan
    ends[0][open_outcomes] = ends[1][open_outcomes] = np.nan
    return replace(
        point,
        low=low,
        high=high,
        status=tuple(IDENTIFIED if one else NOT_BOUNDED for one in shown),
        remarks=tuple(remarks),
        outcome_ends=ends,
        outcome_open=open_outcomes,
    )


def interval_ends(drawn: Floats, level: float, axis: int, possible: tuple[float, float]) -> tuple[Floats, Floats]:
    """The lower and the upper end of what was drawn: one more draw lies between them with `level` as its probability.

    A draw without a value (NaN) may have any `possible` one: it counts as the least for the lower end and as the largest for the
    upper one. So both ends cover it, and where such draws are many, the interval is all that is possible.
    """
    found = []
    for share, other in zip(((1 - level) / 2, (1 + level) / 2), possible, strict=True):
        ordered = np.sort(np.where(np.isnan(drawn), other, drawn), axis=axis)
        n = ordered.shape[axis]
        place = min(max((n + 1) * share - 1, 0.0), n - 1.0)
        below = int(place)
        end: Floats = ordered.take(below, axis=axis)
        if place > below:
            end = (1 - place + below) * end + (place - below) * ordered.take(below + 1, axis=axis)
        found.append(end)
    return found[0], found[1]


def possible_values(quantity: str) -> tuple[float, float]:
    """The least and the largest value that an outcome can have."""
    if quantity == "chance to reach":
        return 0.0, 1.0
    return 0.0 if quantity in ("visits", "steps to reach") else -np.inf, np.inf


def estimate_of(known: Known, change: Change, draws: int, seed: int) -> tuple[Estimate | None, bool, str]:
    """Draws from the estimate of a solution, or None; then whether what follows is identified, and why there are none."""
    solution = known.source
    assert isinstance(solution, Solution)
    reason = _one_of_many(solution, change)
    if reason:
        return None, False, reason
    if solution.solver not in ("MaximumLikelihood", "Population"):
        return None, True, f"There are no intervals: {solution.solver} has no standard errors."
    if max(change.mdp.n_states, known.task.mdp.n_states) > LARGE:
        return None, True, f"There are no intervals: {LARGE:,} states are the most in which draws are planned."
    estimate = _estimate(known, draws, seed)
    if isinstance(estimate, str):
        return None, solution.status != Status.NOT_IDENTIFIED, f"There are no intervals: {estimate}."
    if episodic_levels(change.task) is None:
        # going round in a circle without discounting may be worth infinitely much: draws stay as far below 1 as in endless tasks
        gamma = estimate.drawn.gamma
        gamma = np.where(np.ptp(gamma, axis=1, keepdims=True) > 0, np.minimum(gamma, ENDLESS_DISCOUNT), gamma)
        estimate = replace(estimate, drawn=replace(estimate.drawn, gamma=gamma))
    return estimate, True, ""


def _one_of_many(solution: Solution, change: Change) -> str:
    """Why the reward of a solution is one of many that explain the experts as well; empty where it is not, or does not matter."""
    if solution.solver in ("LPIRL", "NaiveLP", "MPLP"):
        return "Many rewards make the same actions best, and they need not agree on what is best after the change."
    if isinstance(solution.evidence, ClosedFormEvidence):
        unique = solution.evidence.status == "unique" and (not change.needs_reward or not solution.evidence.reward_dimension)
        return "" if unique else "Other discounts and rewards explain the policies as well: hand in what identify(problem) finds."
    if solution.solver in ("MCE", "MPML", "MPMCE") and change.needs_reward:
        return (
            f"The reward of {solution.solver} may be one of many that explain the policies: hand in what identify(problem) finds."
        )
    return ""


def _estimate(known: Known, draws: int, seed: int) -> Estimate | str:
    """Draws from what a solution knows of its parameters, or why there are none."""
    solution, rng = known.source, np.random.default_rng(seed)
    assert isinstance(solution, Solution)
    if solution.solver == "Population":
        return _persons_drawn(known, solution, rng, draws)
    apart = resume_apart(solution)
    if apart is not None:
        return _apart_drawn(solution, apart, rng, draws)
    point = resume(solution)
    model, found = point.likelihood, precision(point)
    if found.covariance is None:
        return "there are too many reward parameters for their covariance"
    size = np.ones(model.size)
    size[: model.n_reward] = 1 / model.feature_sizes
    open_ = np.linalg.qr(found.null_space)[0] if found.nullity else np.zeros((model.size, 0))
    values, vectors = np.linalg.eigh(found.covariance)
    # The symmetric root, and numbers in the order of the estimates: the draws do not depend on the order of experts and states.
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    root -= open_ @ (open_.T @ root)  # nothing is drawn along what the decisions do not show
    first, rest = point.x[: model.transition_slice.start], model.n_transitions
    errors = np.sqrt(np.maximum(np.diag(found.covariance)[: first.size], 0.0))
    z = np.concatenate([_normal(rng, draws, first, errors), rng.standard_normal((draws, rest))], axis=1)
    x = _within(point.x + z @ root.T, root @ root.T, model)
    noise = None
    if isinstance(point, NearPoint):
        noise = _normal(rng, draws, point.deviations.ravel(), np.diagonal(point.curvatures, axis1=1, axis2=2).ravel())
    lost = np.zeros(len(known.names), dtype=np.bool_)
    remarks = []
    evidence = solution.evidence
    if isinstance(evidence, LikelihoodEvidence):
        lost |= np.array(evidence.lost_temperatures, dtype=np.bool_)
        if evidence.equally_likely:
            lost[:] = True
            remarks.append("Other discounts are as likely, so that nothing bounds what follows.")
        unit = (evidence.independence or {"unit": "decision"})["unit"]
        if unit != "decision" and model.clusters is None:
            remarks.append(
                f"The unit of the fit is the {unit}, but a saved fit does not hold its {unit}s: these intervals take every "
                "decision as independent of every other, and are too narrow."
            )
    pairs, step = None, 1e-3
    if found.nullity:
        # what moves along any open direction moves along one in general position
        ways = found.null_space @ np.random.default_rng(0).standard_normal((found.nullity, 2))
        ways /= np.maximum(np.abs(ways / size[:, None]).max(axis=0), 1e-300)
        beside = np.concatenate([point.x + sign * step * way for way in ways.T for sign in (-1, 1)]).reshape(-1, model.size)
        pairs = _drawn_from(point, known, np.clip(beside, model.lower, model.upper))
    return Estimate(_drawn_from(point, known, x, noise), pairs, step, lost, tuple(remarks))


def _normal(rng: np.random.Generator, draws: int, estimate: Floats, error: Floats) -> Floats:
    """Standard normal numbers `(draws,n)`, dealt out in the order of estimates `(n,)` and, where equal, of their errors."""
    found = np.empty((draws, estimate.size))
    found[:, np.lexsort((np.round(error, 7), np.round(estimate, 7)))] = rng.standard_normal((draws, estimate.size))
    return found


def _within(x: Floats, covariance: Floats, model: ChoiceModel) -> Floats:
    """Draws `(n,p)` moved into their bounds: where a discount or a temperature is put on a bound, the rest follows it."""
    among = np.arange(model.discount_slice.start, model.temperature_slice.stop)
    among = among[~model.fixed[among] & (np.diag(covariance)[among] > 1e-12)]
    held = np.zeros(x.shape, dtype=np.bool_)
    for _ in range(3):
        outside = np.zeros(x.shape, dtype=np.bool_)
        outside[:, among] = ((x < model.lower) | (x > model.upper))[:, among]
        if not (outside & ~held).any():
            break
        held |= outside
        for row in np.flatnonzero(outside.any(axis=1)):
            own = np.flatnonzero(held[row])
            gap = np.clip(x[row, own], model.lower[own], model.upper[own]) - x[row, own]
            x[row] += covariance[:, own] @ np.linalg.lstsq(covariance[np.ix_(own, own)], gap, rcond=None)[0]
    return np.clip(x, model.lower, model.upper)


def _drawn_from(point: Point, known: Known, x: Floats, noise: Floats | None = None) -> Drawn:
    """Parameters from places x `(n,p)` of the model; `noise` `(n,K·d)` is that of deviations, which follow x besides."""
    model = point.likelihood
    tasks = None
    if model.moves and model.moves[0].size:
        entries = [model.transitions_at(each)[0] for each in x]
        tasks = tuple(known.task.mdp.with_probabilities(data) for data in entries)
    gamma = np.stack([model.discounts(each) for each in x], axis=1)
    own = _deviations_at(point, x, noise) if isinstance(point, NearPoint) else None
    theta = np.stack([model.reward(each) for each in x], axis=1)
    return Drawn(theta, gamma, np.stack([model.temperatures(each) for each in x], axis=1), tasks, own)


def _deviations_at(point: NearPoint, x: Floats, noise: Floats | None) -> Floats:
    """Deviations `(K,d,n)` at places x `(n,p)`: the most likely ones there, and around them the normal ones of Laplace's method.

    NaN where the most likely ones are not found, so that there is no plan.
    """
    found = np.full((*point.deviations.shape, len(x)), np.nan)
    for i, each in enumerate(x):
        there = point.likelihood.at(each, point)
        if there is not None:
            found[:, :, i] = there.deviations
            if noise is not None:
                values, vectors = np.linalg.eigh(there.curvatures)
                root = (vectors / np.sqrt(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
                found[:, :, i] += (root @ noise[i].reshape(*point.deviations.shape, 1))[:, :, 0]
    return found


def _apart_drawn(solution: Solution, source: ProfilesApart, rng: np.random.Generator, draws: int) -> Estimate:
    """Draws of persons who share nothing but a known reward."""
    fixed, curvature = source.lower == source.upper, source.here.curvature.copy()
    precise = precision_apart(curvature, fixed)
    one_known = fixed.any(axis=1)
    curvature[one_known, 0, 1] = curvature[one_known, 1, 0] = 0.0
    values, vectors = np.linalg.eigh(curvature)
    root = (
        vectors * np.where(values > 1e-12 * values.max(), 1 / np.sqrt(np.maximum(values, TINY)), 0.0)[:, None, :]
    ) @ vectors.transpose(0, 2, 1)
    z = np.stack([_normal(rng, draws, source.places[:, 0], source.places[:, 1]) for _ in range(2)])
    steps = np.where(fixed[:, :, None], 0.0, np.einsum("kij,jbk->kib", root, z))
    places = np.clip(source.places[:, :, None] + steps, source.lower[:, :, None], source.upper[:, :, None])
    lost = ~precise.identified.all(axis=1) | ~source.known
    return Estimate(Drawn(solution.reward, places[:, 0], np.exp(places[:, 1])), None, 1.0, lost)


def _persons_drawn(known: Known, solution: Solution, rng: np.random.Generator, draws: int) -> Estimate | str:
    """Draws of the shared reward and of persons of a population, which are about normal together.

    With the reward θ̂ + A z, A Aᵀ its covariance, η follows by `B z`, B its covariance with the reward times `A⁻ᵀ`; what is left
    of its covariance, less `B Bᵀ`, is drawn besides.
    """
    population, persons = PopulationEvidence.of(solution).population, known.persons
    if persons is None:
        return "units of a type have none of their own"
    if solution.status != Status.CONVERGED:
        return "the population is not identified"
    covariance, ways = population.reward_covariance, population.open_reward
    if covariance is None and any(error != 0 for error in PopulationEvidence.of(solution).reward_standard_errors):
        return "the fit was saved by an earlier version, without the covariance of the reward: fit the table again"
    z = np.stack([_normal(rng, draws, *persons.mean.T).T for _ in range(2)])
    scale = np.ones(draws)
    if np.isfinite(persons.degrees):
        scale = np.sqrt(persons.degrees / rng.chisquare(persons.degrees, draws))
    theta, left, moved, remarks = solution.reward, persons.covariance, np.zeros((len(known.names), 2, draws)), list[str]()
    if covariance is not None:
        values, vectors = np.linalg.eigh(covariance)
        kept = values > 1e-12 * values.max(initial=0.0)
        root, inverse = ((vectors[:, kept] * values[kept] ** power) @ vectors[:, kept].T for power in (0.5, -0.5))
        noise = _normal(rng, draws, theta, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
        along = persons.with_reward @ inverse
        theta, moved = (theta + scale[:, None] * (noise @ root)).T, along @ noise.T
        left = positive_part(left - along @ along.transpose(0, 2, 1))
        if population.person_reward_covariance is None and np.isinf(persons.degrees):
            remarks.append("Persons are so many that the shared reward is drawn apart from them.")
    first = np.sqrt(left[:, 0, 0])
    second = left[:, 1, 0] / np.where(first > 0, first, 1.0)
    rest = np.sqrt(np.maximum(left[:, 1, 1] - second**2, 0.0))
    moved[:, 0] += first[:, None] * z[0]
    moved[:, 1] += second[:, None] * z[0] + rest[:, None] * z[1]
    eta = persons.mean[:, :, None] + scale * moved
    own = None
    if known.own is not None:
        deviations = solution.evidence["deviations"]
        errors = np.asarray(deviations.errors, dtype=np.float64)
        noise = _normal(rng, draws, np.asarray(deviations.values, dtype=np.float64).ravel(), errors.ravel())
        own = (known.own.T - solution.reward)[:, :, None] + errors[:, :, None] * noise.T.reshape(*errors.shape, draws)
        remarks.append("Deviations from the shared reward are drawn apart from it.")
    elif solution.evidence.get("deviations") is not None:
        remarks.append("Typical and new persons are taken to have the shared reward, without a deviation of their own.")
    if population.conditions and known.names == tuple(solution.experts):
        remarks.append("Persons are described on the average of conditions.")
    drawn = Drawn(theta, population.largest_discount * expit(eta[:, 0]), np.exp(eta[:, 1]), own=own)
    pairs, step = None, 1e-3
    if ways is not None and ways.size:
        ways = ways @ np.random.default_rng(0).standard_normal((ways.shape[1], 2))
        ways /= np.abs(ways).max(axis=0)
        sides = np.stack([solution.reward + sign * step * way for way in ways.T for sign in (-1, 1)], axis=1)
        one = np.ones(sides.shape[1])
        assert known.temperature is not None
        beside = None if known.own is None else np.multiply.outer(known.own.T - solution.reward, one)
        pairs = Drawn(sides, np.outer(known.discounts, one), np.outer(known.temperature, one), own=beside)
    return Estimate(drawn, pairs, step, np.zeros(len(known.names), dtype=np.bool_), tuple(remarks))


class _PlansAfter:
    """Plans after the change for drawn parameters, and what comes of them."""

    def __init__(self, known: Known, change: Change, targets: list[int], seed: int) -> None:
        self.known, self.change, self.targets = known, change, targets
        self.outcomes = Outcomes(change.task, targets, True, bool(change.pay.any()))
        self.rng = np.random.default_rng(seed)

    def each(self, drawn: Drawn, jobs: int) -> Iterator[tuple[Floats, Floats]]:
        """Of each expert the policies `(n,S',A)` and the outcomes `(Q,n)`."""
        experts, n = drawn.gamma.shape
        again = self.change.moved and self.change.mdp.is_estimated
        if (drawn.tasks is None or self.change.moved) and not again:
            yield from in_parallel(partial(self.expert, drawn), list(range(experts)), jobs)
            return
        parts = []
        for i in range(n):
            change = self._in_task(drawn, i)
            known = replace(self.known, task=replace(self.known.task, mdp=change.mdp)) if not change.moved else self.known
            work = _PlansAfter(known, change, self.targets, 0)
            parts.append(work.planned(drawn.rewards_in(i), drawn.gamma[:, i], drawn.lam[:, i], self.change.discounts))
        for k in range(experts):
            yield np.stack([policies[k] for policies, _ in parts]), np.stack([numbers[:, k] for _, numbers in parts], axis=1)

    def expert(self, drawn: Drawn, k: int) -> tuple[Floats, Floats]:
        """The same of one expert."""
        new = np.full(drawn.gamma.shape[1], self.change.discounts[k])
        return self.planned(drawn.reward_of(k), drawn.gamma[k], drawn.lam[k], new)

    def planned(self, theta: Floats, gamma: Floats, lam: Floats, new: Floats) -> tuple[Floats, Floats]:
        """Policies and outcomes of n plans; NaN where a value is infinite."""
        gamma = np.where(np.isnan(new), gamma, new)
        if is_timed(self.known, self.change) and gamma.size > 1:
            columns = [theta if theta.ndim == 1 else theta[:, [i]] for i in range(gamma.size)]
            each = [self.planned(own, gamma[[i]], lam[[i]], gamma[[i]]) for i, own in enumerate(columns)]
            return np.concatenate([one for one, _ in each]), np.concatenate([one for _, one in each], axis=1)
        known, change = seen(self.known, self.change, float(gamma[0]))
        reward = (expected_rewards(known, change, theta)[1].T + change.pay.T.ravel()).T
        task, plain = change.task, None
        if change is not self.change:
            whole = (expected_rewards(self.known, self.change, theta)[1].T + self.change.pay.T.ravel()).T
            plain = whole, self.change.pay
        size = plans_at_once(task)
        policies, numbers = [], []
        for low in range(0, gamma.size, size):
            part = slice(low, low + size)
            own = reward if reward.ndim == 1 else reward[:, part]
            policies.append(planned_or_nan(task, own, gamma[part], lam[part]))
            numbers.append(self.outcomes.of(policies[-1], gamma[part], own, change.pay, plain))
        return np.concatenate(policies), np.concatenate(numbers, axis=1)

    def _in_task(self, drawn: Drawn, i: int) -> Change:
        """The change in drawn transitions."""
        change = self.change
        if change.moved:
            mdp = redrawn(change.mdp, self.rng)
        else:
            assert drawn.tasks is not None
            mdp = drawn.tasks[i].starting(change.initial)
        return change.in_task(mdp)


def plans_at_once(task: MDP) -> int:
    """As many as a dense matrix for each allows."""
    return max(1, 20_000_000 // (task.n_states * (min(task.n_states, 128) + 8 * task.n_actions)))


def planned_or_nan(task: MDP, reward: Floats, gamma: Floats, lam: Floats) -> Floats:
    """The policies `(n,S,A)`, NaN where a value is infinite."""

    def ask(own: Ints) -> Floats:
        return _planned(task, reward if reward.ndim == 1 else reward[:, own], gamma[own], lam[own]).transpose(1, 2, 0)

    return each_or_nan(ask, np.arange(gamma.size), (task.n_states, task.n_actions)).transpose(2, 0, 1)


def each_or_nan(ask: Callable[[Ints], Floats], columns: Ints, shape: tuple[int, ...]) -> Floats:
    """What `ask` says `(*shape,n)` of plans, in halves where it fails; NaN of those that have no finite value or never end."""
    try:
        return ask(columns)
    except (InfiniteValueError, SingularError, np.linalg.LinAlgError):
        if columns.size == 1:
            return np.full((*shape, 1), np.nan)
    return np.concatenate([each_or_nan(ask, half, shape) for half in np.array_split(columns, 2)], axis=-1)


# Outcomes.


def _targets(change: Change, states: Any) -> list[int]:
    """The states of which it is asked whether and when they are reached."""
    if states is not None:
        given = list(states) if isinstance(states, Iterable) and not isinstance(states, str) else [states]
        return [state_place(change.mdp, state, "states") for state in given]
    direct = change.pay - change.mdp.expect(change.arrival)
    if change.mdp.n_states > LARGE:
        return []
    touched = (change.arrival != 0) | (np.abs(direct) > 1e-12).any(axis=1) | (change.forbid & change.mdp.live).any(axis=1)
    return [int(i) for i in np.flatnonzero(touched)[:20]]


class Outcomes:
    """What comes of policies in one task: visits, chances and times to reach states, and rewards.

    `labels` are the pairs of quantity and state that `of` gives numbers for.
    """

    def __init__(self, task: MDP, targets: Sequence[int], reward: bool, paid: bool) -> None:
        self.task, self.targets, self.reward, self.paid = task, list(targets), reward, paid
        self.engine = engine_for(task)
        moves = task.under(task.available / 1.0)
        start = task.initial > 0
        #: The states that can be visited, and whether each of them can end.
        self.reached: Bools = steps_into(sp.csr_array(moves.T), start) >= 0
        self.ends = task.n_states <= LARGE and not task.never_ends()[self.reached].any()
        self.toward = [steps_into(moves, np.arange(task.n_states) == j) >= 0 for j in self.targets]
        names = task.state_names
        self.labels: list[tuple[str, str]] = [("visits", names[int(s)]) for s in np.flatnonzero(self.reached)]
        for j in self.targets:
            self.labels += [("chance to reach", names[j]), ("steps to reach", names[j])]
        for wanted, name in ((reward, "reward"), (paid, "bonus")):
            if wanted:
                self.labels += ([(name, "")] if self.ends else []) + [(f"discounted {name}", "")]

    def of(
        self,
        policies: Floats,
        gamma: Floats,
        reward: Floats | None,
        pay: Floats,
        plain: tuple[Floats | None, Floats] | None = None,
    ) -> Floats:
        """The numbers `(Q,n)` of policies `(n,S,A)`, their discounts `(n,)`, a reward `(A·S,…)` and what is paid `(S,A)`.

        Where moves take time, discounts are all one, and `plain` are the reward and what is paid without any discount.
        """
        n, task = gamma.size, self.task
        policy = np.where(self.reached[None, :, None], policies, 0.0).transpose(2, 1, 0)
        start = np.repeat(task.initial[:, None], n, axis=1)[:, :, None]
        ahead = self.engine if task.durations is None else self.engine.of(task.at(float(gamma[0])))
        discounted = ahead.resolvents(policy, gamma).solve_transposed(start)[:, :, 0]
        visits = discounted
        if self.ends:

            def visited(own: Ints) -> Floats:
                solves = self.engine.resolvents(policy[:, :, own], np.ones(own.size))
                return solves.solve_transposed(start[:, own])[:, :, 0]

            visits = each_or_nan(visited, np.arange(n), (task.n_states,))
            visits[:, ~(np.abs(visits).sum(axis=0) < MOST_STEPS)] = np.nan
        rows = [visits[self.reached]]
        for j, toward in zip(self.targets, self.toward, strict=True):

            def reached(own: Ints, j: int = j, toward: Bools = toward) -> Floats:
                chance, among, solves = self.reach(policy[:, :, own], j, toward)
                later = solves.solve(np.where(among[:, None], chance, 0.0)[:, :, None])[:, :, 0]
                later[j] = 0.0
                in_all = task.initial @ chance + task.initial[j]
                with np.errstate(divide="ignore", invalid="ignore"):
                    return np.stack([in_all, task.initial @ later / in_all])

            rows.append(each_or_nan(reached, np.arange(n), (2,)))
        whole, given = (reward, pay) if plain is None else plain
        for wanted, amount, undiscounted in ((self.reward, reward, whole), (self.paid, pay.T.ravel(), given.T.ravel())):
            if wanted and amount is not None and undiscounted is not None:
                shape = task.n_actions, task.n_states, -1
                earned = (policy * amount.reshape(shape)).sum(axis=0)
                if self.ends:
                    in_all = earned if plain is None else (policy * undiscounted.reshape(shape)).sum(axis=0)
                    rows.append((visits * in_all).sum(axis=0)[None])
                rows.append((discounted * earned).sum(axis=0)[None])
        return np.concatenate(rows)

    def endless(self, numbers: Floats) -> Bools:
        """Under which of the policies, of which these are the numbers `(Q,n)`, episodes never end, though they could."""
        visits = numbers[: self.reached.sum()] if self.ends else numbers[:0]
        found: Bools = np.isnan(visits.sum(axis=0))
        return found

    def reach(self, policy: Floats, j: int, toward: Bools) -> tuple[Floats, Bools, Resolvents]:
        """The chances `(S,n)` to reach j later under policies `(A,S,n)`, the states they go through, and solves among these.

        Chances are NaN where it takes millions of steps until j or an end is reached: then rounding would decide them.
        """
        task, among = self.task, toward & self.reached
        among[j] = False
        own = np.where(among[None, :, None], policy, 0.0)
        column = task.stacked[:, [j]].toarray().reshape(task.n_actions, task.n_states, 1)
        solves = self.engine.resolvents(own, np.ones(policy.shape[2]))
        chance = solves.solve((own * column).sum(axis=0)[:, :, None])[:, :, 0]
        chance[j] = 0.0
        lasts = task.initial @ solves.solve(np.repeat(among[:, None] / 1.0, policy.shape[2], axis=1)[:, :, None])[:, :, 0]
        chance[:, ~(np.abs(lasts) < MOST_STEPS)] = np.nan
        return chance, among, solves


def _earned(known: Known, change: Change) -> tuple[Floats | None, Floats | None]:
    """The expected immediate reward before, and that after with what is paid besides; None where no reward is known."""
    if known.theta is None:
        return None, None
    before, after = expected_rewards(known, change, known.thetas)
    return before, (after.T + change.pay.T.ravel()).T


def _outcome_frame(known: Known, change: Change, answer: _Answer, targets: list[int]) -> pd.DataFrame:
    """One row per expert, quantity and state."""
    if is_timed(known, change) and len(known.names) > 1:
        parts = [_outcome_frame(*one_of(known, change, k), answer.one(k), targets) for k in range(len(known.names))]
        return pd.concat(parts, ignore_index=True)
    gamma = np.where(np.isnan(change.discounts), known.discounts, change.discounts)
    paid = bool(change.pay.any())
    after = Outcomes(change.task, targets, known.theta is not None, paid)
    timed, plain = is_timed(known, change), _earned(known, change)
    earlier, later = plain[0], (plain[1], change.pay)
    if timed:
        there = seen(known, change, float(gamma[0]))
        earlier = _earned(*seen(known, change, float(known.discounts[0])))[0]
        later = _earned(*there)[1], there[1].pay
    if answer.outcomes is None:
        numbers = after.of(answer.after, gamma, *later, (plain[1], change.pay) if timed else None)
    else:
        numbers = answer.outcomes.T
    old = known.task.mdp
    places = [old.state_names.index(change.mdp.state_names[j]) for j in targets if change.mdp.state_names[j] in old.state_names]
    first = Outcomes(old, places, known.theta is not None, False)
    nothing = np.zeros((old.n_states, old.n_actions))
    found = first.of(answer.before, known.discounts, earlier, nothing, (plain[0], nothing) if timed else None)
    place = {key: i for i, key in enumerate(first.labels)}
    where = np.array([place.get(key, -1) for key in after.labels])
    before = np.where((where >= 0)[:, None], found[where], np.nan)
    before[[i for i, (quantity, _) in enumerate(after.labels) if quantity.endswith("bonus")]] = 0.0
    experts, size = len(known.names), len(after.labels)
    ends, status = answer.outcome_ends, np.repeat(np.array(answer.status, dtype=object)[:, None], size, axis=1)
    if ends is None:
        ends = np.full((experts, size), np.nan), np.full((experts, size), np.nan)
    if answer.outcome_open is not None:
        status = np.where(answer.outcome_open, NOT_BOUNDED, IDENTIFIED)
    status = np.where((status == BOUNDED) & np.isnan(ends[0]), NOT_BOUNDED, status)  # some member of the set never ends
    status = np.where(np.isnan(numbers.T) & (answer.outcomes is None), NOT_BOUNDED, status)
    return pd.DataFrame(
        {
            "expert": np.repeat(np.array(known.names, dtype=object), size),
            "quantity": [quantity for quantity, _ in after.labels] * experts,
            "state": [state for _, state in after.labels] * experts,
            "before": before.T.ravel(),
            "after": numbers.T.ravel(),
            "low": ends[0].ravel(),
            "high": ends[1].ravel(),
            "status": status.ravel(),
        }
    )


# The paper's new tasks.


def generalization_error(
    domain: Domain,
    reward: ArrayLike | Solution,
    tasks: int | Sequence[Task] = 100,
    *,
    level: float = 0.95,
    draws: int = 200,
    seed: int = 0,
) -> GeneralizationError:
    """The loss of planning with a learned reward instead of the domain's own, over random task variants (the paper's Eq. 27).

    Args:
        domain: gives the true reward and the variants.
        reward: the learned reward `(S,)`; or the solution that learned it, whose error then gives intervals.
        tasks: how many variants to draw, or the variants themselves.
        level: of the intervals.
        draws: from the estimate of a solution, of which intervals are quantiles.
        seed: of the variants and of the draws.

    Example:
        >>> from multihorizon.domains import cliff
        >>> generalization_error(cliff(), 2 * cliff().reward, tasks=5).mean
        0.0
    """
    as_level(level)
    if not isinstance(domain, Domain):
        raise ValueError(f"domain must be a Domain such as mh.domains.cliff(), received {type(domain).__name__}")
    variants = read_tasks(domain, tasks, seed)
    if not isinstance(reward, Solution):
        learned = as_floats(reward, "reward")
        as_shape(learned, (domain.mdp.n_states,), "reward")
        return GeneralizationError(*(each[0] for each in losses(domain, learned[None], variants)))
    known = _of_solution(reward, "each")
    arrival = known.task.arrival_features
    if arrival is None or known.task.known_reward is not None or arrival.shape[0] != domain.mdp.n_states:
        raise ValueError("the reward of the solution must be paid on arrival in the states of the domain, received another")
    assert known.theta is not None
    signed, absolute = (each[0] for each in losses(domain, (arrival @ known.theta)[None], variants))
    if reward.solver != "MaximumLikelihood":
        why = f"There are no intervals: {reward.solver} has no standard errors of the reward."
        return GeneralizationError(signed, absolute, remark=why)
    estimate = _estimate(known, as_count(draws, "draws", least=20), seed)
    if isinstance(estimate, str):
        return GeneralizationError(signed, absolute, remark=f"There are no intervals: {estimate}.")
    if estimate.open_ is not None or estimate.lost.any():
        why = "The decisions do not show the whole reward, so that nothing bounds the loss."
        return GeneralizationError(signed, absolute, remark=why)
    theta = estimate.drawn.theta if estimate.drawn.theta.ndim == 2 else estimate.drawn.theta[:, None]
    drawn, any_loss = losses(domain, (arrival @ theta).T, variants), (-np.inf, np.inf)
    low, high = interval_ends(drawn[1], level, 0, any_loss)
    both = [interval_ends(each.mean(axis=1), level, 0, any_loss) for each in drawn]
    means = [(float(one), float(other)) for one, other in both]
    return GeneralizationError(signed, absolute, low, high, means[0], means[1], level)
