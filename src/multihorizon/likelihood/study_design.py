"""A study as it was designed, and studies that might be run in its place: the same tasks, the same starts, other persons.

A person of the study is a pattern that can be used again: where their episodes began and how long they could be or, without the
table, in which states they decided how often. A simulated study draws persons from the patterns, lets each act by a policy, and
counts their decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.bootstrap import tables_of
from multihorizon.likelihood.known import with_known_reward
from multihorizon.likelihood.likelihood import Likelihood
from multihorizon.likelihood.parameters import Settings
from multihorizon.likelihood.persons import require_counts
from multihorizon.problem import Problem
from multihorizon.tables.demonstrations import Demonstrations
from multihorizon.tables.simulation import simulate_policy


@dataclass(frozen=True, eq=False)
class Design:
    """Where each of the problem's experts decides.

    Attributes:
        problem: persons and tasks, with their decisions.
        starts: for each of the problem's experts the states in which episodes began; None where only visited states are known.
        lengths: the most decisions of one of their episodes.
    """

    problem: Problem
    starts: tuple[Ints, ...] | None
    lengths: tuple[int, ...]

    @property
    def decisions(self) -> float:
        """The mean number of decisions of a person."""
        return float(sum(require_counts(expert).sum() for expert in self.problem.experts)) / self.problem.n_experts

    def draw_people(self, people: int, rng: np.random.Generator) -> Ints:
        """Which person of the study each of so many is made after: everyone equally often, the rest drawn."""
        k = self.problem.n_experts
        rest = np.sort(rng.permutation(k)[: people % k])
        return np.concatenate([np.tile(np.arange(k), people // k), rest]).astype(np.int64)

    def of_people(self, members: Ints) -> tuple[Problem, Ints]:
        """The problem of these persons with the decisions of their patterns, and the pattern of each of its experts."""
        names = names_of(self.problem, members)
        pairs = [(place, name) for k, name in zip(members, names, strict=True) for place in self._places(int(k))]
        experts = (replace(self.problem.experts[place], name=name) for place, name in pairs)
        return self.problem.with_experts(experts), np.array([place for place, _ in pairs], dtype=np.int64)

    def simulate(self, problem: Problem, patterns: Ints, policies: Sequence[Floats], share: float, seed: int) -> Problem:
        """The problem with new decisions by these policies, `share` times as many as the patterns have."""
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        experts = (
            replace(expert, counts=self._decide(int(place), policy, share, stream))
            for expert, place, policy, stream in zip(problem.experts, patterns, policies, streams, strict=True)
        )
        return problem.with_experts(experts)

    def _places(self, person: int) -> list[int]:
        return [place for place, owner in enumerate(self.problem.owner) if owner == person]

    def _decide(self, place: int, policy: Floats, share: float, stream: np.random.SeedSequence) -> Floats:
        """Counts `(S,A)` of new decisions after one pattern."""
        first, second = stream.spawn(2)
        rng, expert = np.random.default_rng(first), self.problem.experts[place]
        if self.starts is None:
            visits = _scaled_visits(require_counts(expert).sum(axis=1), share, rng)
            return rng.multinomial(visits, policy / policy.sum(axis=1, keepdims=True)).astype(np.float64)
        starts = _scaled_starts(self.starts[place], share, rng)
        columns = simulate_policy(expert.mdp, policy, starts.size, self.lengths[place], second, starts)
        shape = (expert.mdp.n_states, expert.mdp.n_actions)
        flat = np.ravel_multi_index((columns[2], columns[3]), shape)
        return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def read_design(problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None) -> Design:
    """The design of a study, with the starts of its episodes where the tables are given, one for each task in order.

    The tables may hold further experts, whom the problem leaves out.
    """
    if demonstrations is None:
        return Design(problem, None, (0,) * len(problem.experts))
    starts: list[Ints] = []
    lengths: list[int] = []
    for table in tables_of(problem, demonstrations, all_experts=False):
        members = [expert for expert, name in enumerate(table.experts) if name in problem.names]
        if members:
            episodes = table.by_episode
            states = table.match(problem.experts[len(starts)].mdp)[0][episodes.first_state]
            for expert in members:
                own = episodes.expert == expert
                starts.append(states[own])
                lengths.append(int(episodes.length[own].max()))
    return Design(problem, tuple(starts), tuple(lengths))


def names_of(problem: Problem, members: Ints) -> list[str]:
    """A name for each person made after a pattern: the pattern's own for the first, and with a number for each further one."""
    seen: dict[int, int] = {}
    names = []
    for k in members.tolist():
        seen[k] = seen.get(k, 0) + 1
        names.append(problem.names[k] if seen[k] == 1 else f"{problem.names[k]} #{seen[k]}")
    return names


def policies_of(problem: Problem, known: Any, reward: Floats, discounts: Floats, temperatures: Floats) -> list[Floats]:
    """The policy `(S,A)` of each of the problem's experts and tasks under one reward and each person's parameters.

    `known` is the known part of the reward, as in `MaximumLikelihood`, `reward` the parameters of the rest.
    """
    paid = with_known_reward(problem, known)[0]
    model = Likelihood(paid, Settings(temperatures=np.full(problem.n_experts, np.nan)))
    point = model.at(np.concatenate([reward, discounts, np.log(temperatures)]))
    if point is None:
        raise ValueError("the values of the task must be finite under the parameters to be recovered, received infinite ones")
    return point.policies()


def _scaled_starts(starts: Ints, share: float, rng: np.random.Generator) -> Ints:
    """`share` times as many starts: all equally often, the rest drawn."""
    wanted = max(1, round(share * starts.size))
    return np.concatenate([np.tile(starts, wanted // starts.size), rng.permutation(starts)[: wanted % starts.size]])


def _scaled_visits(visits: Floats, share: float, rng: np.random.Generator) -> Ints:
    """`share` times as many visits, in states drawn in proportion to those of the study."""
    if share == 1.0:
        return visits.astype(np.int64)
    return rng.multinomial(max(1, round(share * visits.sum())), visits / visits.sum()).astype(np.int64)
