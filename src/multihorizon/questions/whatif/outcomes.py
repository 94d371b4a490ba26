"""What comes of policies. With ρ the first state and `P = Σ_a π' T`:

* *visits* `(I − Pᵀ)⁻¹ ρ`, per episode; where some episode may never end, and in very large tasks, `(I − γPᵀ)⁻¹ ρ`, discounted by
  the expert's own γ;
* *chance to reach* j: h with `h(j) = 1` and `h = Ph` elsewhere, over the states from which j can be reached, averaged over ρ;
* *steps to reach* j, where it is reached: `Σρg / Σρh`, `g = h + Pg`, `g(j) = 0`;
* *reward*, plain and discounted by the expert's own γ, what is paid besides included; *bonus*, what is paid besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import (
    Bools,
    Floats,
    Ints,
)
from multihorizon.choice.tabular import Resolvents, engine_for
from multihorizon.mdp import MDP, steps_into
from multihorizon.names import place_of
from multihorizon.questions.whatif.change import Change
from multihorizon.questions.whatif.plans import each_or_nan, expected_rewards, is_timed, one_of, seen
from multihorizon.questions.whatif.sources import Known

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
        """The answer about one of the experts."""
        own = slice(k, k + 1)
        ends = None if self.outcome_ends is None else (self.outcome_ends[0][own], self.outcome_ends[1][own])
        open_ = None if self.outcome_open is None else self.outcome_open[own]
        known = None if self.outcomes is None else self.outcomes[own]
        policies = self.before[own], self.after[own], self.low[own], self.high[own]
        return Answered(*policies, self.status[own], self.proved[own], self.remarks, ends, open_, known)


def targets_of(change: Change, states: Any) -> list[int]:
    """The states of which it is asked whether and when they are reached."""
    if states is not None:
        given = list(states) if isinstance(states, Iterable) and not isinstance(states, str) else [states]
        return [place_of(state, change.mdp.state_names, "states", "state") for state in given]
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


def outcome_frame(known: Known, change: Change, answer: Answered, targets: list[int]) -> pd.DataFrame:
    """One row per expert, quantity and state."""
    if is_timed(known, change) and len(known.names) > 1:
        parts = [outcome_frame(*one_of(known, change, k), answer.one(k), targets) for k in range(len(known.names))]
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


def possible_values(quantity: str) -> tuple[float, float]:
    """The least and the largest value that an outcome can have."""
    if quantity == "chance to reach":
        return 0.0, 1.0
    return 0.0 if quantity in ("visits", "steps to reach") else -np.inf, np.inf
