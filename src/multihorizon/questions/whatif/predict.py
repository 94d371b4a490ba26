"""Predict what people will do when something changes, how sure that is, and what comes of it.

*What is planned.* A `Solution` has a reward θ, discounts and temperatures; the policies before and after are planned with them. A
`Problem` of policies, or an `Identification` of them, has the policies themselves, and bonus and ban follow as in `plans`. Where
the discount is one of a set, every discount of its range is tried: the ends of what comes out are attained, not proved.

*How sure.* Answers are drawn from the estimate of the solution (`multihorizon.estimate`), and each is planned with. Intervals are
the quantiles of what comes out, such that one more draw lies between them with the level as its probability: of n draws in order,
the ends are no. `(n + 1)(1 ∓ level)/2`. Quantiles at `1 + (n − 1)(1 ∓ level)/2`, NumPy's own, are too narrow: of 200 draws they
hold one percent less. A draw under which an episode never ends has no visits, steps or undiscounted rewards that are finite: it
counts as the least possible value for the lower end and as the largest for the upper one, so that intervals cover it. *What the
decisions do not show*: along a direction n of which they say nothing, `log π'` is planned at x̂ ± εn. Where it does not move, it
is identified, though the reward is not; where it moves, nothing bounds it.

*What comes of policies.* With ρ the first state and `P = Σ_a π' T`:

* *visits* `(I − Pᵀ)⁻¹ ρ`, per episode; where some episode may never end, and in very large tasks, `(I − γPᵀ)⁻¹ ρ`, discounted by
  the expert's own γ;
* *chance to reach* j: h with `h(j) = 1` and `h = Ph` elsewhere, over the states from which j can be reached, averaged over ρ;
* *steps to reach* j, where it is reached: `Σρg / Σρh`, `g = h + Pg`, `g(j) = 0`;
* *reward*, plain and discounted by the expert's own γ, what is paid besides included; *bonus*, what is paid besides.

*Over N rounds*, which are decisions, `x₀ = ρ` and `x_{t+1} = Pᵀ xₜ` give visits `Σ xₜ` for t < N. Divided by the decisions made,
these are shares of the rounds; the mean reward, the mean bonus and, where states are numbers, the mean state are means by these
shares. Chances and steps to reach j are those of the first N moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    Bools,
    Floats,
    Ints,
    Seed,
    Sparse,
    as_count,
    as_jobs,
    as_level,
    as_seed,
    first_few,
    place_of,
)
from multihorizon.choice.plans import Resolvents, engine_for, redrawn
from multihorizon.estimate import Draws, NoUncertaintyError, Pairs, interval_ends
from multihorizon.exact.bounds import predicted_bounds
from multihorizon.exact.identify import Identification
from multihorizon.exact.rewards import read_restrictions
from multihorizon.mdp import MDP, episodic_levels, steps_into
from multihorizon.parallel import Progress, Run, in_parallel, silent
from multihorizon.problem import Problem, refuse_beliefs
from multihorizon.questions.whatif.change import (
    Change,
    Known,
    are_policies,
    each_or_nan,
    expected_rewards,
    explaining,
    is_timed,
    members_of,
    one_of,
    planned,
    planned_or_nan,
    plans_at_once,
    read_change,
    read_source,
    reweighted,
    seen,
)
from multihorizon.result import COLOURS, Result, literal
from multihorizon.solution import Solution, Status
from multihorizon.words import VAGUE_WIDTH, Role, Table, count, from_to, in_words, percent, shortened

#: The words for what is known of a prediction.
IDENTIFIED, BOUNDED, NOT_BOUNDED = "identified", "bounded", "not bounded"
#: In a task of more states a plan takes a second, and undiscounted visits take several: there are no draws and no such visits.
LARGE = 20_000
#: Each step of an episode adds a rounding error; of one that lasts longer, these hide whether it ends.
MOST_STEPS = 1e-9 / np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class Answered:
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

    def one(self, k: int) -> Answered:
        """Return the answer about one of the experts."""
        one = slice(k, k + 1)
        ends = None if self.outcome_ends is None else (self.outcome_ends[0][one], self.outcome_ends[1][one])
        open_ = None if self.outcome_open is None else self.outcome_open[one]
        outcomes = None if self.outcomes is None else self.outcomes[one]
        policies = self.before[one], self.after[one], self.low[one], self.high[one]
        return Answered(*policies, self.status[one], self.proved[one], self.remarks, ends, open_, outcomes)


def targets_of(change: Change, states: Any) -> list[int]:
    """Return the states of which it is asked whether and when they are reached."""
    if states is not None:
        given = list(states) if isinstance(states, Iterable) and not isinstance(states, str) else [states]
        return [place_of(state, change.mdp.state_names, "states", "state") for state in given]
    if change.mdp.n_states > LARGE:
        return []
    touched = (change.arrival != 0) | (np.abs(change.direct) > 1e-12).any(axis=1) | (change.forbid & change.mdp.live).any(axis=1)
    return [int(i) for i in np.flatnonzero(touched)[:20]]


class Outcomes:
    """What comes of policies in one task: visits, chances and times to reach states, and rewards.

    `labels` are the pairs of quantity and state that `of` gives numbers for. With `rounds`, so many decisions count.
    """

    def __init__(self, task: MDP, targets: Sequence[int], reward: bool, paid: bool, rounds: int | None = None) -> None:
        self.task = task
        self.targets = list(targets)
        self.reward = reward
        self.paid = paid
        self.rounds = rounds
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
        #: The numbers that states are, where all in which somebody decides are numbers.
        self.values = _as_values(names, self.reached & ~task.terminal) if rounds is not None else None
        if self.values is not None:
            self.labels.append(("mean state", ""))
        for wanted, name in ((reward, "reward"), (paid, "bonus")):
            if wanted and rounds is not None:
                self.labels.append((f"mean {name}", ""))
            elif wanted:
                self.labels += ([(name, "")] if self.ends else []) + [(f"discounted {name}", "")]

    def of(
        self,
        policies: Floats,
        gamma: Floats,
        reward: Floats | None,
        pay: Floats,
        plain: tuple[Floats | None, Floats] | None = None,
    ) -> Floats:
        """Return the numbers `(Q,n)` of policies `(n,S,A)`, their discounts `(n,)`, a reward `(A·S,…)` and what is paid `(S,A)`.

        Where moves take time, discounts are all one, and `plain` are the reward and what is paid without any discount.
        """
        n, task = gamma.size, self.task
        policy = np.where(self.reached[None, :, None], policies, 0.0).transpose(2, 1, 0)
        if self.rounds is not None:
            return self._in_rounds(policy, *((reward, pay) if plain is None else plain))
        start = np.repeat(task.initial[:, None], n, axis=1)[:, :, None]
        ahead = self.engine if task.durations is None else self.engine.of(task.at(float(gamma[0])))
        discounted = ahead.resolvents(policy, gamma).solve_transposed(start)[:, :, 0]
        visits = discounted
        if self.ends:

            def visited(columns: Ints) -> Floats:
                solves = self.engine.resolvents(policy[:, :, columns], np.ones(columns.size))
                return solves.solve_transposed(start[:, columns])[:, :, 0]

            visits = each_or_nan(visited, np.arange(n), (task.n_states,))
            visits[:, ~(np.abs(visits).sum(axis=0) < MOST_STEPS)] = np.nan
        rows = [visits[self.reached]]
        for j, toward in zip(self.targets, self.toward, strict=True):

            def reached(columns: Ints, j: int = j, toward: Bools = toward) -> Floats:
                chance, among, solves = self.reach(policy[:, :, columns], j, toward)
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

    def _in_rounds(self, policy: Floats, reward: Floats | None, pay: Floats) -> Floats:
        """Return the numbers `(Q,n)` of the first rounds, of policies `(A,S,n)`, a reward `(A·S,…)` and what is paid `(S,A)`."""
        task, n, rounds = self.task, policy.shape[2], self.rounds or 0
        policy = np.where(task.live.T[:, :, None], policy, 0.0)

        def visited(target: int | None = None) -> tuple[Floats, Floats, Floats]:
            """Return the visits `(S,n)`, and the chance and the mean number of moves until a target is reached `(n,)`."""
            here = np.repeat(task.initial[:, None], n, axis=1)
            visits = np.zeros(here.shape)
            chance, steps = np.zeros(n), np.zeros(n)
            for step in range(rounds + (target is not None)):
                if target is not None:
                    chance, steps = chance + here[target], steps + step * here[target]
                    here[target] = 0.0
                visits += here
                here = task.stacked.T @ (policy * here).reshape(-1, n)
            with np.errstate(divide="ignore", invalid="ignore"):
                return visits, chance, steps / chance

        visits = visited()[0]
        shares = visits / visits[~task.terminal].sum(axis=0)
        rows = [visits[self.reached], *(row[None] for j in self.targets for row in visited(j)[1:])]
        if self.values is not None:
            rows.append((shares * self.values[:, None]).sum(axis=0)[None])
        for wanted, amount in ((self.reward, reward), (self.paid, pay.T.ravel())):
            if wanted and amount is not None:
                earned = (policy * amount.reshape(task.n_actions, task.n_states, -1)).sum(axis=0)
                rows.append((shares * earned).sum(axis=0)[None])
        return np.concatenate(rows)

    def endless(self, numbers: Floats) -> Bools:
        """Under which of the policies, of which these are the numbers `(Q,n)`, episodes never end, though they could."""
        visits = numbers[: self.reached.sum()] if self.ends else numbers[:0]
        result: Bools = np.isnan(visits.sum(axis=0))
        return result

    def reach(self, policy: Floats, j: int, toward: Bools) -> tuple[Floats, Bools, Resolvents]:
        """Return the chances `(S,n)` to reach j later under policies `(A,S,n)`, the states they go through, and solves among
        these.

        Chances are NaN where it takes millions of steps until j or an end is reached: then rounding would decide them.
        """
        task = self.task
        among = toward & self.reached
        among[j] = False
        among_policy = np.where(among[None, :, None], policy, 0.0)
        column = task.stacked[:, [j]].toarray().reshape(task.n_actions, task.n_states, 1)
        solves = self.engine.resolvents(among_policy, np.ones(policy.shape[2]))
        chance = solves.solve((among_policy * column).sum(axis=0)[:, :, None])[:, :, 0]
        chance[j] = 0.0
        lasts = task.initial @ solves.solve(np.repeat(among[:, None] / 1.0, policy.shape[2], axis=1)[:, :, None])[:, :, 0]
        chance[:, ~(np.abs(lasts) < MOST_STEPS)] = np.nan
        return chance, among, solves


def _as_values(names: tuple[str, ...], decided: Bools) -> Floats | None:
    """Return the numbers that states are named by, 0 where nothing is decided; None where a name is no number."""
    values = np.zeros(len(names))
    for s in np.flatnonzero(decided).tolist():
        try:
            values[s] = float(names[s])
        except ValueError:
            return None
    return values if np.isfinite(values).all() else None


def _earned(people: Known, change: Change) -> tuple[Floats | None, Floats | None]:
    """Return the expected immediate reward before, and that after with what is paid besides; None where no reward is known."""
    if people.theta is None:
        return None, None
    before, after = expected_rewards(people, change, people.thetas)
    return before, (after.T + change.pay.T.ravel()).T


def outcome_frame(people: Known, change: Change, answer: Answered, targets: list[int]) -> pd.DataFrame:
    """Return one row per expert, quantity and state."""
    if is_timed(people, change) and len(people.names) > 1:
        parts = [outcome_frame(*one_of(people, change, k), answer.one(k), targets) for k in range(len(people.names))]
        return pd.concat(parts, ignore_index=True)
    gamma = np.where(np.isnan(change.discounts), people.discounts, change.discounts)
    paid = bool(change.pay.any())
    after = Outcomes(change.task, targets, people.theta is not None, paid, change.rounds)
    timed = is_timed(people, change)
    plain = _earned(people, change)
    earlier = plain[0]
    later = (plain[1], change.pay)
    if timed:
        there = seen(people, change, float(gamma[0]))
        earlier = _earned(*seen(people, change, float(people.discounts[0])))[0]
        later = _earned(*there)[1], there[1].pay
    if answer.outcomes is None:
        numbers = after.of(answer.after, gamma, *later, (plain[1], change.pay) if timed else None)
    else:
        numbers = answer.outcomes.T
    old = people.task.mdp
    places = [old.state_names.index(change.mdp.state_names[j]) for j in targets if change.mdp.state_names[j] in old.state_names]
    first = Outcomes(old, places, people.theta is not None, False, change.rounds)
    nothing = np.zeros((old.n_states, old.n_actions))
    numbers_before = first.of(answer.before, people.discounts, earlier, nothing, (plain[0], nothing) if timed else None)
    place = {key: i for i, key in enumerate(first.labels)}
    where = np.array([place.get(key, -1) for key in after.labels])
    before = np.where((where >= 0)[:, None], numbers_before[where], np.nan)
    before[[i for i, (quantity, _) in enumerate(after.labels) if quantity.endswith("bonus")]] = 0.0
    experts, size = len(people.names), len(after.labels)
    ends = answer.outcome_ends
    status = np.repeat(np.array(answer.status, dtype=object)[:, None], size, axis=1)
    if ends is None:
        ends = np.full((experts, size), np.nan), np.full((experts, size), np.nan)
    if answer.outcome_open is not None:
        status = np.where(answer.outcome_open, NOT_BOUNDED, IDENTIFIED)
    status = np.where((status == BOUNDED) & np.isnan(ends[0]), NOT_BOUNDED, status)  # some member of the set never ends
    status = np.where(np.isnan(numbers.T) & (answer.outcomes is None), NOT_BOUNDED, status)
    return pd.DataFrame(
        {
            "expert": np.repeat(np.array(people.names, dtype=object), size),
            "quantity": [quantity for quantity, _ in after.labels] * experts,
            "state": [state for _, state in after.labels] * experts,
            "before": before.T.ravel(),
            "after": numbers.T.ravel(),
            "low": ends[0].ravel(),
            "high": ends[1].ravel(),
            "status": status.ravel(),
        }
    )


def possible_values(quantity: str) -> tuple[float, float]:
    """Return the least and the largest value that an outcome can have."""
    if quantity == "chance to reach":
        return 0.0, 1.0
    return 0.0 if quantity in ("visits", "steps to reach") else -np.inf, np.inf


#: Of discounts that are one of a set.
TRIED = "Discounts that explain the policies were tried one by one: the bounds are attained, and at least so wide."


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
        return "\n".join([self.headline(), head, *lines, self.unit, *self.remarks])

    def headline(self) -> str:
        """Return what changes: how often experts reach the state for which that changes most, or else what they choose.

        Of a new person of a group nothing is said beside the typical one, and of more than six experts there are means.
        """
        shown = [k for k, name in enumerate(self.experts) if name.split(" of ")[0] != "new person"]
        if all(self.status[k] == NOT_BOUNDED for k in shown):
            return "These data do not say what happens after the change."
        reached = self.outcomes[self.outcomes["quantity"] == "chance to reach"]
        reached = reached[reached["expert"].isin([self.experts[k] for k in shown])]
        change = (reached["after"] - reached["before"]).abs().fillna(0.0)
        if not (change >= 0.005).any():
            return self._choice_in_words(shown)
        state = str(reached.assign(change=change).groupby("state", sort=False)["change"].sum().idxmax())
        rows = reached[reached["state"] == state]
        rounds = self.change.rounds
        episodes = "episodes" if rounds is None else f"episodes of {count(rounds, 'decision')}"
        if len(shown) > 6:
            known = rows[rows["after"].notna()]
            before, after = percent(known["before"].mean()), percent(known["after"].mean())
            return f"On average, {len(known):,} people reach {state} in {after} of {episodes} instead of {before}."
        parts = list[str]()
        for name, status, *numbers in rows[["expert", "status", "before", "after", "low", "high"]].to_numpy().tolist():
            who = f"the {name}" if name.split(" of ")[0] == "typical person" else name
            does = f"{who} {'' if parts else f'reaches {state} '}in"
            before, after, low, high = numbers
            old, new, *ends = map(percent, (before, after, low, high))
            if status == NOT_BOUNDED:
                parts.append(f"{does} an unknown share")
                continue
            if high - low > VAGUE_WIDTH:
                new = from_to(ends)
            elif ends[0] != ends[1]:
                new += f" ({from_to(ends)})"
            instead = ", as before" if percent(after) == old else "" if np.isnan(before) else f" instead of {old}"
            parts.append(f"{does} {new}{'' if parts else f' of {episodes}'}{instead}")
        said = "; ".join(parts)
        return f"{said[0].upper() if said.startswith('the typical') else said[0]}{said[1:]}."

    def _choice_in_words(self, shown: Sequence[int]) -> str:
        """Return the choice that changes most, of each of these experts or on average over them."""
        before = self._before_there()
        if len(shown) <= 6:
            changes = {self.experts[k]: self._largest(k, self.after[k] - before[k]) for k in shown}
            parts = [f"{name} {change}" for name, change in changes.items() if change != "nothing changes"]
            return f"{'; '.join(parts)}." if parts else "No choice changes."
        size = np.where(self.change.mdp.live, np.nan_to_num(np.abs(self.after - before)[shown]).mean(axis=0), -1.0)
        s, a = (int(i) for i in np.unravel_index(int(size.argmax()), size.shape))
        if size[s, a] < 5e-4:
            return "No choice changes by more than 0.05% on average."
        old, new = (percent(float(np.nanmean(values[shown, s, a]))) for values in (before, self.after))
        return f"On average, {len(shown):,} people choose {self.actions[a]} in {self.states[s]} with {new} instead of {old}."

    def _largest(self, k: int, change: Floats) -> str:
        """Return the choice that changes most, in words."""
        live = np.where(self.change.mdp.live & np.isfinite(change), np.abs(change), -1.0)
        state, action = (int(i) for i in np.unravel_index(int(np.argmax(live)), live.shape))
        if live[state, action] < 0:
            return "decides in new states only, where there is nothing to compare with"
        if live[state, action] < 5e-7:
            return "nothing changes"
        ends = percent(float(self.after[k, state, action] - change[state, action])), percent(float(self.after[k, state, action]))
        low, high = self.low[k, state, action], self.high[k, state, action]
        between = "" if np.isnan(low + high) else from_to([percent(float(low)), percent(float(high))])
        between = f", from {between}" if " to " in between else ""
        return f"chooses {self.actions[action]} in {self.states[state]} with {ends[1]} instead of {ends[0]}{between}"

    def _before_there(self) -> Floats:
        """Return the policies before `(K,S',A)` in the states after; NaN in states that are new."""
        if self.states == self.states_before:
            return self.before
        place = {name: i for i, name in enumerate(self.states_before)}
        rows = np.array([place.get(name, -1) for name in self.states])
        result: Floats = np.where((rows >= 0)[None, :, None], self.before[:, rows], np.nan)
        return result

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert, state and action that can be taken after: before, after, change, low, high and status."""
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
        """Return the choices that change most first, and what comes of them."""
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
    rounds: int | None = None,
    persons: Literal["each", "groups"] = "each",
    level: float = 0.95,
    draws: int = 200,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Prediction:
    """Return what each expert will do when something changes, how sure that is, and what comes of it.

    Changes combine. A bonus and a ban follow from what experts do, their discount factors and temperatures alone; other
    transitions and another discount need the reward.

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
        rounds: count outcomes over so many decisions from the first state on, in place of a whole episode: visits, whether and
            when states are reached, the mean reward and bonus of a decision and, where states are numbers, the mean state.
        persons: of a `Population`, "each" of its people, or for each of its "groups" a typical person, whose interval is the
            error of the estimate, and a new one, whose interval also holds how much people differ.
        level: of the intervals.
        draws: from the estimate, of which intervals are quantiles.
        seed: of the draws.
        jobs: processes for the draws.
        progress: called with the share that is done.

    Returns:
        `before`, `after`, `low` and `high` `(K,S,A)` with a status (`multihorizon.questions.whatif.predict.Prediction`).

    Raises:
        ValueError: where the change cannot be made or the source cannot answer it, in one sentence.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> problem = Problem(d.mdp, d.soft_experts(), names=["near", "middle", "far"])
        >>> found = predict(problem, pay={d.mdp.state_names[-1]: 2.0})
        >>> found.status
        ('identified', 'identified', 'identified')
    """
    as_level(level)
    as_count(draws, "draws", least=20)
    run = Run(as_seed(seed), as_jobs(jobs), progress)
    if isinstance(source, Solution) and restrictions is not None:
        raise ValueError(
            "restrictions are for rewards that are one of a set: hand in an Identification, or a Problem of policies"
        )
    people = read_source(source, discount, persons)
    if are_policies(source):
        discount = None
    read = partial(
        read_change,
        names=people.names,
        pay=pay,
        forbid=forbid,
        transitions=transitions,
        initial=initial,
        discount=discount,
        features=features,
        parameter_names=people.parameter_names,
        rounds=rounds,
    )
    change = read(people.task.mdp, expert=people.task)
    moving = people, change  # who plans with beliefs moves in the world
    if people.task.world is not None:
        if transitions is not None:
            refuse_beliefs([people.task], "a prediction of other transitions")
        there = replace(people.task.in_task(people.task.world), world=None)
        moving = replace(people, task=there), read(there.mdp, expert=there)
    targets = targets_of(moving[1], states)
    if people.theta is None:
        answer = _without_reward(people, change, targets, restrictions, run)
    else:
        answer = _sure(people, change, _point(people, change), targets, level, draws, run, moving)
    outcomes = outcome_frame(*moving, answer, targets)
    remarks = answer.remarks
    lasting = outcomes[(outcomes["quantity"] == "visits") & outcomes["after"].isna()]["expert"].unique().tolist()
    if lasting:
        remarks = (
            *remarks,
            f"After the change, episodes of {in_words(lasting)} never end, or last for millions of steps: visits, steps and "
            "undiscounted rewards have no finite value.",
        )
    if people.choosing.habits is not None:
        share = percent(people.choosing.habits.lapse)
        remarks = (*remarks, f"Lapses stay as they were fitted: {share} of the choices, any of the actions that are left.")
    if rounds is not None:
        early = ", or fewer where the episode ends earlier" if change.mdp.terminal.any() else ""
        remarks = (
            *remarks,
            f"Outcomes are those of the first {count(rounds, 'decision')}{early}; means are those of a decision.",
        )
    elif "reward" not in set(outcomes["quantity"]) and not Outcomes(moving[1].task, [], False, False).ends:
        why = "the task is so large" if change.mdp.n_states > LARGE else "episodes need not end"
        remarks = (*remarks, f"Visits are discounted by each expert's own discount, because {why}.")
    if change.mdp.durations is not None and "steps to reach" in set(outcomes["quantity"]):
        remarks = (*remarks, "Steps to reach a state are decisions, whatever time they take.")
    if rounds is None and "steps to reach" in set(outcomes["quantity"]) and not change.mdp.terminal.any():
        remarks = (
            *remarks,
            "The task has no end: chances and steps to reach a state are those of somebody who goes on and on, however few "
            "decisions a recorded episode has.",
        )
    idle = np.argwhere((np.abs(change.direct) > 1e-12) & change.forbid)
    if idle.size:
        named = [f"{change.mdp.action_names[a]} in {change.mdp.state_names[s]}" for s, a in idle]
        remarks = (*remarks, f"What is paid for {first_few(named)} counts for nothing, because it is forbidden.")
    if people.estimate is not None and (left_out := people.estimate.left_out):
        words = f"{count(len(left_out), 'person')} left out of the population ({first_few(list(left_out))})"
        remarks = (*remarks, f"Nothing is predicted of {words}.")
    run.progress(1.0, "planned")
    return Prediction(
        experts=people.names,
        states=change.mdp.state_names,
        actions=change.mdp.action_names,
        states_before=people.task.mdp.state_names,
        before=answer.before,
        after=answer.after,
        low=answer.low,
        high=answer.high,
        status=answer.status,
        proved=answer.proved,
        outcomes=outcomes,
        unit=people.unit,
        level=level,
        remarks=remarks,
        change=change,
    )


def _point(people: Known, change: Change) -> Answered:
    """Return the policies of the estimate."""
    if is_timed(people, change) and len(people.names) > 1:
        parts = [_point(*one_of(people, change, k)) for k in range(len(people.names))]
        before, after = (np.concatenate([getattr(part, name) for part in parts]) for name in ("before", "after"))
        nothing = np.full(after.shape, np.nan)
        return Answered(before, after, nothing, nothing, (IDENTIFIED,) * len(parts), np.zeros(len(parts), dtype=np.bool_))
    gamma = np.where(np.isnan(change.discounts), people.discounts, change.discounts)
    first, later = seen(people, change, float(people.discounts[0])), seen(people, change, float(gamma[0]))
    before_reward, after_reward = expected_rewards(*first, people.thetas)[0], expected_rewards(*later, people.thetas)[1]
    before = planned(first[0].task.mdp, before_reward, people.discounts, people.temperature, people.choosing)
    after = planned(later[1].task, (after_reward.T + later[1].pay.T.ravel()).T, gamma, people.temperature, people.choosing)
    nothing = np.full(after.shape, np.nan)
    return Answered(
        before, after, nothing, nothing, (IDENTIFIED,) * len(people.names), np.zeros(len(people.names), dtype=np.bool_)
    )


def _without_reward(people: Known, change: Change, targets: list[int], restrictions: Any, run: Run) -> Answered:
    """Return bonus and ban by the identity; where the reward is needed, bounds over the identified set."""
    limits = None if restrictions is None else read_restrictions(people.parameter_names, restrictions)
    if change.needs_reward:
        return _over_the_set(people, change, targets, limits, run)
    assert people.policies is not None
    assert people.temperature is not None
    assert people.identified is not None
    status = tuple(IDENTIFIED if one else BOUNDED for one in people.identified)
    remarks = []
    if limits is not None and people.identified.all():
        remarks.append("A bonus and a ban follow from the policies alone: the restrictions on the reward change nothing.")
    tried, lams = explaining(people, limits)
    if not people.identified.all():
        remarks.append(TRIED)
    outcomes = Outcomes(change.task, targets, False, bool(change.pay.any()), change.rounds)
    after, low, high = (np.empty(change.pay.shape, dtype=np.float64)[None].repeat(len(status), axis=0) for _ in range(3))
    points, *ends = np.empty((3, len(status), len(outcomes.labels)))
    for k, policy in enumerate(people.policies):
        swept = reweighted(people.task.mdp, policy, change, tried[:, k], lams[:, k])
        numbers = outcomes.of(swept, tried[:, k], None, change.pay)
        after[k], low[k], high[k] = swept[0], swept.min(axis=0), swept.max(axis=0)
        points[k] = numbers[:, 0]
        ends[0][k], ends[1][k] = numbers.min(axis=1), numbers.max(axis=1)
    nothing = np.zeros(len(status), dtype=np.bool_)
    return Answered(people.policies, after, low, high, status, nothing, tuple(remarks), (ends[0], ends[1]), outcomes=points)


def _over_the_set(people: Known, change: Change, targets: list[int], limits: tuple[Floats, Floats] | None, run: Run) -> Answered:
    """Return bounds over all rewards and discounts that explain the policies and keep to the restrictions.

    The ends of outcomes are those of the members of the set that attain an end of some choice.
    """
    assert people.policies is not None
    discounts, temperatures = members_of(people, limits)
    if people.task.mdp.never_ends().any() or change.task.never_ends().any():
        finite = (discounts <= ENDLESS_DISCOUNT).all(axis=1)  # with a discount of 1 there are no values
        if finite.any():
            discounts, temperatures = discounts[finite], temperatures[finite]
    bounds = predicted_bounds(
        people.problem,
        discounts,
        temperatures,
        mdp=change.mdp,
        features=change.features if change.moved else people.task.features,
        pay=change.pay,
        forbid=change.forbid,
        new_discounts=change.discounts,
        restrictions=limits,
        progress=run.progress,
    )
    remarks = bounds.remarks
    if BOUNDED in bounds.status:
        remarks = (*remarks, "Ranges of outcomes are what members of the set attain: the true ones are at least this wide.")
    outcomes = Outcomes(change.task, targets, False, bool(change.pay.any()), change.rounds)
    low, high = np.full((2, len(bounds.status), len(outcomes.labels)), np.nan)
    for k, (policies, gamma) in enumerate(zip(bounds.members, bounds.member_discounts, strict=True)):
        if bounds.status[k] != NOT_BOUNDED:
            numbers = outcomes.of(policies, gamma, None, change.pay)
            low[k], high[k] = numbers.min(axis=1), numbers.max(axis=1)
    answer = people.policies, bounds.point, bounds.low, bounds.high, bounds.status, bounds.proved
    return Answered(*answer, remarks, (low, high))


def _sure(
    people: Known,
    change: Change,
    point: Answered,
    targets: list[int],
    level: float,
    draws: int,
    run: Run,
    moving: tuple[Known, Change],
) -> Answered:
    """Return the point with intervals, where the solution has an error, and with what is identified.

    `moving` are the same people and the same change in the task in which they move, which may be another one than they plan in.
    """
    sample, closed, why = sample_of(people, change, draws, run)
    if sample is None:
        status = IDENTIFIED if closed else NOT_BOUNDED
        return replace(point, status=(status,) * len(people.names), remarks=(why,))
    work = _PlansAfter(people, change, targets, np.random.default_rng(run.seed), moving)
    experts = np.arange(len(people.names))
    open_policies = np.zeros(point.after.shape, dtype=np.bool_)
    open_outcomes = np.zeros((experts.size, len(work.outcomes.labels)), dtype=np.bool_)
    if sample.pairs is not None:
        for k, (policies, numbers) in zip(experts, work.each(sample.pairs.draws, Run()), strict=True):
            moved = np.abs(policies[1::2] - policies[::2]).max(axis=0) / (2 * sample.pairs.step)
            open_policies[k] = ~(moved <= 1e-5)
            moved = np.abs(numbers[:, 1::2] - numbers[:, ::2]).max(axis=1) / (2 * sample.pairs.step)
            open_outcomes[k] = ~(moved <= 1e-5 * np.maximum(1.0, np.abs(numbers).max(axis=1)))
    open_policies[sample.lost], open_outcomes[sample.lost] = True, True
    low, high = np.empty(point.after.shape), np.empty(point.after.shape)
    ends = np.empty(open_outcomes.shape), np.empty(open_outcomes.shape)
    failed, endless = 0, 0
    for k, (policies, numbers) in zip(experts, work.each(sample.draws, run), strict=True):
        low[k], high[k] = interval_ends(policies, level, 0, (0.0, 1.0))
        for i, (quantity, _) in enumerate(work.outcomes.labels):
            ends[0][k, i], ends[1][k, i] = interval_ends(numbers[i], level, 0, possible_values(quantity))
        unplanned = np.isnan(policies[:, 0, 0])
        failed = max(failed, int(unplanned.sum()))
        endless = max(endless, int((work.outcomes.endless(numbers) & ~unplanned).sum()))
        run.progress((k + 1) / experts.size, f"{k + 1:,} of {experts.size:,} experts")
    # draws without a value may leave nothing but what is possible at all
    open_policies |= (low == 0) & (high == 1)
    possible = np.array([possible_values(quantity) for quantity, _ in work.outcomes.labels]).T
    open_outcomes |= (ends[0] == possible[0]) & (ends[1] == possible[1])
    live = change.mdp.live & work.outcomes.reached[:, None]
    shown = [not (undecided & live).any() for undecided in open_policies]
    remarks = list(sample.remarks)
    tail = percent((1 - level) / 2)
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
        names = in_words([name for name, one in zip(people.names, shown, strict=True) if not one])
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


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws from an estimate, pairs of answers along what is open, of whom something else is not identified, and remarks."""

    draws: Draws
    pairs: Pairs | None
    lost: Bools
    remarks: tuple[str, ...]


def sample_of(people: Known, change: Change, draws: int, run: Run) -> tuple[Sample | None, bool, str]:
    """Return draws from the estimate, or None; then whether what follows is identified, and why there are none."""
    solution, estimate = people.source, people.estimate
    assert isinstance(solution, Solution)
    assert estimate is not None
    reason = estimate.ambiguity(change.needs_reward)
    if reason:
        return None, False, reason
    if not estimate.is_exact and max(change.mdp.n_states, people.task.mdp.n_states) > LARGE:
        return None, True, f"There are no intervals: {LARGE:,} states are the most in which draws are planned."
    try:
        drawn = estimate.draw(draws, np.random.default_rng(run.seed))
    except NoUncertaintyError as error:
        return None, estimate.is_exact or solution.status != Status.NOT_IDENTIFIED, f"There are no intervals: {error}."
    if episodic_levels(change.task) is None:
        # going round in a circle without discounting may be worth infinitely much: draws stay as far below 1 as in endless tasks
        gamma = drawn.discounts
        gamma = np.where(np.ptp(gamma, axis=1, keepdims=True) > 0, np.minimum(gamma, ENDLESS_DISCOUNT), gamma)
        drawn = replace(drawn, discounts=gamma)
    return Sample(drawn, lost=estimate.lost, remarks=estimate.remarks, pairs=estimate.pairs()), True, ""


class _PlansAfter:
    """Plans after the change for drawn parameters, and what comes of them where people move."""

    def __init__(
        self, people: Known, change: Change, targets: list[int], rng: np.random.Generator, moving: tuple[Known, Change]
    ) -> None:
        self.known, self.change, self.targets, self.moving = people, change, targets, moving
        self.outcomes = Outcomes(moving[1].task, targets, True, bool(change.pay.any()), change.rounds)
        self.rng = rng

    def each(self, drawn: Draws, run: Run) -> Iterator[tuple[Floats, Floats]]:
        """Of each expert the policies `(n,S',A)` and the outcomes `(Q,n)`."""
        experts, n = drawn.discounts.shape
        again = self.change.moved and self.change.mdp.is_estimated
        if (drawn.tasks is None or self.change.moved) and not again:
            yield from in_parallel(partial(self.expert, drawn), range(experts), run.jobs)
            return
        parts = []
        for i in range(n):
            change = self._in_task(drawn, i)
            people = replace(self.known, task=replace(self.known.task, mdp=change.mdp)) if not change.moved else self.known
            work = _PlansAfter(people, change, self.targets, self.rng, (people, change))
            parts.append(
                work.planned(drawn.rewards_in(i), drawn.discounts[:, i], drawn.temperatures[:, i], self.change.discounts)
            )
        for k in range(experts):
            yield np.stack([policies[k] for policies, _ in parts]), np.stack([numbers[:, k] for _, numbers in parts], axis=1)

    def expert(self, drawn: Draws, k: int) -> tuple[Floats, Floats]:
        """Return the same of one expert."""
        new = np.full(drawn.discounts.shape[1], self.change.discounts[k])
        return self.planned(drawn.reward_of(k), drawn.discounts[k], drawn.temperatures[k], new)

    def planned(self, theta: Floats, gamma: Floats, lam: Floats, new: Floats) -> tuple[Floats, Floats]:
        """Return policies and outcomes of n plans; NaN where a value is infinite."""
        gamma = np.where(np.isnan(new), gamma, new)
        if is_timed(self.known, self.change) and gamma.size > 1:
            columns = [theta if theta.ndim == 1 else theta[:, [i]] for i in range(gamma.size)]
            each = [self.planned(paid, gamma[[i]], lam[[i]], gamma[[i]]) for i, paid in enumerate(columns)]
            return np.concatenate([one for one, _ in each]), np.concatenate([one for _, one in each], axis=1)
        people, change = seen(self.known, self.change, float(gamma[0]))
        reward = (expected_rewards(people, change, theta)[1].T + change.pay.T.ravel()).T
        task, earned, given = change.task, reward, change.pay
        if self.known.task.world is not None:
            given = self.moving[1].pay
            earned = (expected_rewards(*self.moving, theta)[1].T + given.T.ravel()).T
        plain = None
        if change is not self.change:
            whole = (expected_rewards(self.known, self.change, theta)[1].T + self.change.pay.T.ravel()).T
            plain = whole, self.change.pay
        size = plans_at_once(task)
        policies, numbers = [], []
        for low in range(0, gamma.size, size):
            part = slice(low, low + size)
            paid = reward if reward.ndim == 1 else reward[:, part]
            policies.append(planned_or_nan(task, paid, gamma[part], lam[part], people.choosing))
            paid = earned if earned.ndim == 1 else earned[:, part]
            numbers.append(self.outcomes.of(policies[-1], gamma[part], paid, given, plain))
        return np.concatenate(policies), np.concatenate(numbers, axis=1)

    def _in_task(self, drawn: Draws, i: int) -> Change:
        """Return the change in drawn transitions."""
        change = self.change
        if change.moved:
            mdp = redrawn(change.mdp, self.rng)
        else:
            assert drawn.tasks is not None
            mdp = drawn.tasks[i].starting(change.initial)
        return change.in_task(mdp)
