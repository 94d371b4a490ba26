"""The toy domain: from s0 three actions reach s3, s1 or s2 with probabilities 0.95, 0.9 and 0.6, and stay otherwise; s1 and
s2 lead to s3. Rewards on arrival 0, 6, 7, 10. The better pay of s1 and s2 comes before the 10 that ends the episode, so
farther-sighted experts take the detour: the optimal action in s0 switches at discounts near 0.432 and 0.876."""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats, as_floats, as_shape
from multihorizon.domains.base import Domain, Ending, check_ending
from multihorizon.mdp import MDP

CHANCES = (0.95, 0.9, 0.6)
TARGETS = (3, 1, 2)


def toy(chances: tuple[float, float, float] = CHANCES, ending: Ending = "terminal") -> Domain:
    """The paper's toy domain; `chances` are the probabilities that an action in s0 moves the agent.

    Example:
        >>> toy().mdp.n_states
        4
    """
    ends = check_ending(ending)
    probabilities = as_floats(chances, "chances")
    as_shape(probabilities, (3,), "chances")
    if ((probabilities < 0) | (probabilities > 1)).any():
        raise ValueError(f"chances must be in [0, 1], received {tuple(chances)}")
    return Domain(
        name="toy",
        mdp=_toy_mdp(probabilities, ends),
        reward=np.array([0.0, 6.0, 7.0, 10.0]),
        lp_discounts=(0.3, 0.5, 0.95),
        mce_discounts=(0.3, 0.5, 0.95),
        randomize=lambda rng: _toy_mdp(rng.uniform(size=3), ends),
    )


def _toy_mdp(chances: Floats, ends: bool) -> MDP:
    transitions = np.zeros((3, 4, 4))
    for action, (target, chance) in enumerate(zip(TARGETS, chances, strict=True)):
        transitions[action, 0, target] = chance
        transitions[action, 0, 0] = 1 - chance
    transitions[:, 1:, 3] = 1.0
    return MDP(
        transitions,
        initial=[1, 0, 0, 0],
        terminal=[3] if ends else (),
        state_names=["s0", "s1", "s2", "s3"],
        action_names=["a0", "a1", "a2"],
    )
