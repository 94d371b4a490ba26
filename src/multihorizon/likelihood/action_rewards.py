"""Test whether the reward depends on the action as well as on the state reached: score tests at a fit, without another one.

Where rewards are paid on arrival, `R = T Φ θ`, nothing is paid or charged for an action itself. Two wider rewards let it be:

* *one cost for each action*, less their mean;
* *by action*: a weight of each feature for each action; where each state has a reward of its own, one for each state and action.

What Φ can say already is part of both. Of an action the name counts: it is one action in all tasks that have it.

The fit takes the reward to be paid for the state that is reached. Each wider reward adds parameters c
that are 0 in the fit, and Rao's test (`numerics.spectrum`) asks whether the decisions would move them. The p-value is the
smallest of the wider rewards', times their number. At 0.001 or below the wider reward predicts clearly better. Then differences
between people may be artefacts of the reward, and nothing is said of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import Point, decide
from multihorizon.mdp import MDP
from multihorizon.numerics.newton import resting
from multihorizon.numerics.spectrum import ScoreTest, score_test
from multihorizon.result import Result
from multihorizon.words import LEVEL, Finding, decimals, p_text


@dataclass(frozen=True)
class WiderReward:
    """A wider reward: its name, the actions of all tasks, and whether features count by action.

    `free` says that each state has a reward of its own.
    """

    name: str
    actions: tuple[str, ...]
    by_action: bool
    free: bool

    def columns(self, mdp: MDP, arrival: Sparse) -> Floats:
        """Return the columns `(A·S,q)` in a task where features `(S,d)` are paid on arrival."""
        rows = np.tile(np.arange(mdp.n_states), mdp.n_actions)
        parts = []
        paid = np.zeros((rows.size, 0))
        if self.by_action:
            paid = sp.csr_array(arrival)[rows].toarray() if self.free else (mdp.stacked @ arrival).toarray()
        for action in self.actions:
            taken = np.repeat([float(name == action) for name in mdp.action_names], mdp.n_states)[:, None]
            parts += [taken - 1 / len(self.actions), taken * paid]
        return np.concatenate(parts, axis=1) * mdp.live.T.reshape(-1, 1)

    def beyond(self, mdps: Sequence[MDP], arrivals: Sequence[Sparse]) -> list[Floats]:
        """Return for each task an orthonormal basis of the columns `(A·S,r)`, the same in all, of what features do not say."""
        features = [(mdp.stacked @ arrival).toarray() for mdp, arrival in zip(mdps, arrivals, strict=True)]
        columns = [self.columns(mdp, arrival) for mdp, arrival in zip(mdps, arrivals, strict=True)]
        whole, left = np.concatenate(features), np.concatenate(columns)
        left = left - whole @ np.linalg.lstsq(whole, left)[0]
        basis, sizes, _ = np.linalg.svd(left, full_matrices=False)
        ends = np.cumsum([len(each) for each in features])[:-1]
        return np.split(basis[:, sizes > 1e-9 * max(1.0, sizes.max(initial=0.0))], ends)


def wider_rewards(mdps: Sequence[MDP], arrival: Sequence[Sparse]) -> list[WiderReward]:
    """Return the wider rewards to try in tasks with these features; none where there is one action alone."""
    actions = tuple(dict.fromkeys(name for mdp in mdps for name in mdp.action_names))
    if len(actions) < 2:
        return []
    free = all(np.bincount(sp.csr_array(each).indices).max(initial=0) <= 1 for each in arrival)
    wider = [WiderReward("one cost for each action", actions, by_action=False, free=free)]
    if len(actions) * arrival[0].shape[1] <= 100:  # with more there would be little left to see it by
        name = "a reward for each state and action" if free else "features that count differently with each action"
        wider.append(WiderReward(name, actions, by_action=True, free=free))
    return wider


#: So many simulated tables show the tails of a statistic.
DRAWS = 400
REMEDY = "Give features by state and action (in a table, those with a column `action`), or the reward if it is known."


@dataclass(frozen=True)
class StateRewardTest(Result):
    """A test that the reward depends on the state reached alone.

    Attributes:
        wider: the wider reward that the decisions speak for most.
        statistic, degrees: of its score test.
        p_value: times the number of wider rewards; NaN where nothing was tested.
        reason: why nothing was tested; empty where something was.
        gain: by how much the wider reward raises the log-likelihood; NaN where it was not fitted.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("hypothesis", "p_value")

    wider: str
    statistic: float
    degrees: int
    p_value: float
    reason: str = ""
    gain: float = np.nan

    @classmethod
    def untested(cls, reason: str) -> StateRewardTest:
        """Return a test that was not made, for this reason."""
        return cls("", np.nan, 0, np.nan, reason)

    @classmethod
    def of(cls, tests: Sequence[tuple[WiderReward, ScoreTest]]) -> StateRewardTest:
        """Return the test of the wider reward that the decisions speak for most."""
        return cls.strongest([cls(wider.name, test.statistic, test.degrees, test.p_value) for wider, test in tests])

    @classmethod
    def strongest(cls, tests: Sequence[StateRewardTest]) -> StateRewardTest:
        """Return the test of the smallest p-value, times the number of tests that were made."""
        made = [test for test in tests if test.degrees]
        if not made:
            return cls.untested("in this task rewards of states can stand in for rewards of actions")
        test = min(made, key=lambda each: each.p_value)
        return replace(test, p_value=min(1.0, len(made) * test.p_value))

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> StateRewardTest:
        """Return the test from what `to_dict` gave, which a file may have held."""
        names = ("statistic", "p_value", "gain")
        kept = {f.name: content[f.name] for f in fields(cls) if f.name in content}
        return cls(**kept | {name: np.nan if kept[name] is None else float(kept[name]) for name in names})

    @property
    def clear(self) -> bool:
        """Return whether a reward that depends on the action as well predicts clearly better."""
        return self.p_value <= 0.001

    @property
    def why(self) -> str:
        """Return why nothing is said of groups; empty where something is."""
        if not self.clear:
            return ""
        words = (
            f"A reward that depends on the action as well ({self.wider}) predicts these decisions clearly better than one of the "
            f"state reached alone (score test, χ² = {decimals(self.statistic, 1)} with {self.degrees} degrees of freedom, "
            f"p {p_text(self.p_value)})."
        )
        return f"{words} So differences between experts or groups may be artefacts of the reward, and are withheld. {REMEDY}"

    @property
    def verdict(self) -> Finding:
        """Return the answer, its reasons, and its part of `result.json`."""
        values = {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in asdict(self).items()}
        finding = self._judged()
        return replace(finding, content={"state_reward": {**values, "summary": finding.reasons}})

    def _judged(self) -> Finding:
        question = "Does the reward depend on the state reached alone?"
        if self.reason:
            taken = "The reward is taken to depend on the state reached, not on the action."
            return Finding(question, "Not tested", f"{taken} Not tested: {self.reason}.", "caution")
        if self.clear:
            return Finding(question, "No", self.why, "bad")
        p = f"score test, χ² = {decimals(self.statistic, 1)} with {self.degrees} degrees of freedom, p {p_text(self.p_value)}"
        if self.p_value <= 1 - LEVEL:
            reasons = (
                f"The reward is taken to depend on the state reached, not on the action, and a reward that depends on the action "
                f"as well ({self.wider}) may predict better ({p}). {REMEDY}"
            )
            return Finding(question, "Inconclusive", reasons, "caution")
        reasons = (
            f"The reward is taken to depend on the state reached, not on the action: a reward that depends on the action as well "
            f"does not predict clearly better ({p})."
        )
        return Finding(question, "Not rejected", reasons, "good")

    def sentences(self) -> str:
        """Return the finding in words."""
        return self.verdict.reasons

    def to_frame(self) -> pd.DataFrame:
        """Return one row: the hypothesis and the figures of its test."""
        return pd.DataFrame([{"hypothesis": "the reward depends on the state reached alone", **asdict(self)}])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; None for what is not known."""
        content: dict[str, Any] = self.verdict.content["state_reward"]
        return content

    def _content(self) -> dict[str, Any]:
        return self.to_dict()


def tested_at(point: Point, wider: WiderReward) -> ScoreTest:
    """Return the score test of a wider reward at a fit; where rewards deviate from the shared one, the costs are those of all."""
    model, p, d = point.likelihood, point.likelihood.size, point.likelihood.n_reward
    every = [wider.columns(plan.persons.mdp, arrival) for plan in point.plans if (arrival := plan.persons.arrival) is not None]
    q = every[0].shape[1]
    gradient, information = np.zeros(p + q), np.zeros((p + q, p + q))
    gradient[:p] = model.beside_gradient(point.x)
    by_owner = dict[int, Floats]()
    slopes = list[tuple[Ints, Floats]]()
    for i, (plan, columns) in enumerate(zip(point.plans, every, strict=True)):
        batch, n = plan.persons, plan.lam.size
        rows, places, scores = point.scores(i)
        scores = np.concatenate([scores, plan.along_columns(columns)], axis=2)
        expected = point.weights[i].reshape(-1, n)[rows]
        beyond = batch.counts.reshape(-1, n)[rows] - expected
        for person, owner in enumerate(batch.owners.tolist()):
            where = np.concatenate([places[person], p + np.arange(q)])
            slope = scores[:, person]
            gradient[where] += beyond[:, person] @ slope
            total = by_owner.setdefault(owner, np.zeros((p + q, p + q))) if isinstance(point, NearPoint) else information
            total[np.ix_(where, where)] += (slope * expected[:, [person]]).T @ slope
            slopes.append((where, slope))
    for block in by_owner.values():  # with the expert's own deviation eliminated
        held = block[:d, :d] + np.diag(point.likelihood.precision) if isinstance(point, NearPoint) else block[:d, :d]
        information += block - block[:, :d] @ np.linalg.solve(held, block[:d])
    for moves in model.moves:
        at = model.place_of(moves.mdp)
        information[at, at] += moves.counts
    priors = np.zeros_like(information)
    priors[:d, :d] = np.diag(model.ridge) if model.ridge.ndim == 1 else model.ridge
    if model.penalty is not None:
        priors[:p, :p] += model.penalty.matrix
    new = np.arange(p + q) >= p
    free = ~new
    free[:p] &= ~model.fixed & ~resting(point)
    test = score_test(gradient, information, priors, free, new)
    return test.calibrated(_simulated(point, slopes, p + q)) if test.degrees and test.p_value <= 0.1 else test


def _simulated(point: Point, slopes: Sequence[tuple[Ints, Floats]], size: int) -> Floats:
    """Return the gradients `(m,size)` of decisions drawn from the fit, where log π of each person in each task moves so: places
    in x and the derivatives `(rows,k)`. People are drawn in the order of their likelihoods.
    """
    rng = np.random.default_rng(0)
    gradients = np.zeros((DRAWS, size))
    people = [(plan, i) for plan in point.plans for i in range(plan.lam.size)]
    fits = [float((plan.persons.counts * plan.finite_log)[:, :, i].sum()) for plan, i in people]
    for number in np.argsort(np.round(fits, 6), kind="stable").tolist():
        (plan, i), (places, slope) = people[number], slopes[number]
        policy = plan.policy[:, :, i].T
        visits = plan.persons.visits[:, i]
        rows = plan.persons.visited_rows
        drawn = decide(visits, policy, plan.values[:, i], rng, DRAWS) - visits[:, None] * policy
        gradients[:, places] += drawn.transpose(0, 2, 1).reshape(DRAWS, -1)[:, rows] @ slope
    for moves in point.likelihood.moves:
        gradients[:, point.likelihood.place_of(moves.mdp)] += rng.normal(size=(DRAWS, moves.size)) * np.sqrt(moves.counts)
    return gradients
