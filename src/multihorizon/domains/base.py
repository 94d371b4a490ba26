"""A domain: an MDP, the reward its experts share, how far they look ahead, and random variants of the task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from multihorizon.checks import Bools, Floats, Ints, as_count, read_only
from multihorizon.mdp import MDP
from multihorizon.planning.plan import plan
from multihorizon.planning.soft_plan import soft_plan

Ending = Literal["terminal", "absorbing"]


@dataclass(frozen=True)
class Task:
    """A variant of a domain: other transitions, another discount, the same reward."""

    mdp: MDP
    discount: float


@dataclass(frozen=True)
class Domain:
    """A named problem with a known answer.

    `lp_discounts` and `mce_discounts` are the experts' discounts for the deterministic and the entropy-regularised study;
    `randomize` draws the transitions of a task variant.
    """

    name: str
    mdp: MDP
    reward: Floats
    lp_discounts: tuple[float, ...]
    mce_discounts: tuple[float, ...]
    randomize: Callable[[np.random.Generator], MDP]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", read_only(self.reward))

    def lp_experts(self) -> list[Ints]:
        """One action per state `(S,)` for each of `lp_discounts`: the first optimal one in the order of the actions."""
        return [sets.argmax(axis=1) for sets in self.lp_action_sets()]

    def lp_action_sets(self) -> list[Bools]:
        """All optimal actions, bool `(S,A)`, for each of `lp_discounts`."""
        return [plan(self.mdp, self.reward, gamma).optimal_actions for gamma in self.lp_discounts]

    def mce_experts(self, temperature: float = 1.0) -> list[Floats]:
        """Entropy-regularised policies `(S,A)` for each of `mce_discounts`."""
        return [soft_plan(self.mdp, self.reward, gamma, temperature).policy for gamma in self.mce_discounts]

    def tasks(self, count: int = 100, seed: int = 0) -> list[Task]:
        """`count` random variants: transitions from `randomize`, discounts uniform on [0,1]."""
        rng = np.random.default_rng(seed)
        return [Task(self.randomize(rng), float(rng.uniform())) for _ in range(as_count(count, "count"))]


def check_ending(ending: object) -> bool:
    """True for "terminal", False for "absorbing"; raises on anything else."""
    if ending not in ("terminal", "absorbing"):
        raise ValueError(f'ending must be "terminal" or "absorbing", received {ending!r}')
    return bool(ending == "terminal")
