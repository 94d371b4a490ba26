"""The Space Adventure Task: people travel between planets, two or three times, and look more or less far ahead.

Six planets lie on a ring, each worth −20, −10, 0, 10 or 20 points. *Move* goes to the next planet for 2 points of fuel. *Jump*
costs 5 points and follows a fixed pattern; it lands on its target with probability 0.9 (0.5 among asteroids) and otherwise on one
of the two planets beside it. A mini-block shows the planets and allows two or three travels; a person plays 100 mini-blocks. The
rules are those of the task published with the software `pybefit`.

A state is planets, noise, travels left and position: `555212 low 2 p3`, where planets worth −20, …, 20 are written 1, …, 5. After
the last travel an episode ends in `end +20`, which names the value landed on. Travels run out, so no state comes back.

Mini-blocks are drawn at random, and kept where looking ahead matters: the first travel that earns most at once differs from
the first travel that earns most in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import Floats, Ints, Seed, Sparse, as_count, as_floats, as_seed, as_shape, read_only
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.mdp import MDP
from multihorizon.planning.plan import soft_plan

ACTIONS = ("move", "jump")
FUEL = (2.0, 5.0)
VALUES = (-20, -10, 0, 10, 20)
LANDS = {"low": 0.9, "high": 0.5}


class Place(NamedTuple):
    """A state of the task: the planets' values (positions in `VALUES`), the noise, travels left, and where one is."""

    planets: tuple[int, ...]
    noise: str
    left: int
    position: int

    def __str__(self) -> str:
        planets = "".join(str(value + 1) for value in self.planets)
        return f"{planets} {self.noise} {self.left} p{self.position + 1}"

    def landings(self, action: int) -> dict[int, float]:
        """Return the planets where an action lands, with their probabilities."""
        if action == 0:
            return {(self.position + 1) % 6: 1.0}
        # Where a jump from each planet is aimed, counted from 0.
        jumps = (4, 3, 4, 5, 1, 1)
        target, chance = jumps[self.position], LANDS[self.noise]
        return {(target + shift) % 6: chance if shift == 0 else (1 - chance) / 2 for shift in (-1, 0, 1)}

    def after(self, position: int) -> Place:
        """Return the state after a travel that landed there."""
        return self._replace(left=self.left - 1, position=position)

    def points(self, discount: float) -> list[float]:
        """Return the points each action earns, with all later travels at their best and discounted."""

        def worth(at: int) -> float:
            rest = max(self.after(at).points(discount)) if self.left > 1 and discount > 0 else 0.0
            return VALUES[self.planets[at]] + discount * rest

        return [sum(p * worth(at) for at, p in self.landings(a).items()) - FUEL[a] for a in range(len(ACTIONS))]


@dataclass(frozen=True)
class SimulatedPersons:
    """Simulated participants whose horizons are known.

    Attributes:
        demonstrations: their decisions.
        discounts, temperatures: `(n,)`, in the order of `demonstrations.experts`; temperatures are in points.
        frame: one row per participant: `expert`, `group`, `age`.
    """

    demonstrations: Demonstrations
    discounts: Floats
    temperatures: Floats
    frame: pd.DataFrame


@dataclass(frozen=True)
class SpaceAdventure:
    """The task, its points, and simulated participants.

    Attributes:
        reward: expected points of each decision `(S,A)`, fuel included: what participants know.
        features: `(A·S,5)`: the probabilities of landing on −20, −10, +10 and +20, and being a jump.
        feature_names: their names.
        starts: the state in which each mini-block begins.
    """

    name: str
    mdp: MDP
    reward: Floats
    features: Sparse
    feature_names: tuple[str, ...]
    starts: Ints

    def simulate(self, policies: Sequence[ArrayLike], seed: Seed = 0, names: Sequence[object] | None = None) -> Demonstrations:
        """Let each policy `(S,A)` play every mini-block once."""
        return Demonstrations.simulate(self.mdp, policies, self.starts.size, seed, names=names, starts=self.starts)

    def persons(
        self,
        count: int = 44,
        seed: Seed = 0,
        group_difference: float = 0.6,
        age_slope: float = 0.0,
        discounts: ArrayLike | None = None,
        temperatures: ArrayLike | None = None,
    ) -> SimulatedPersons:
        """Simulate participants of two groups and several ages, who play every mini-block once.

        Logit discounts and log temperatures (in points) are normal.

        Args:
            count: how many; every other one is in the group "training".
            seed: fixes all randomness.
            group_difference: how much higher the logit of the discount is in "training" than in "control".
            age_slope: how much it rises with ten years of age.
            discounts, temperatures: `(count,)` or one number for all; by default drawn.

        Example:
            >>> persons = space_adventure(mini_blocks=8).persons(3, discounts=[0.2, 0.6, 0.9])
            >>> persons.demonstrations.experts, persons.frame["group"].tolist()
            (('1', '2', '3'), ['control', 'training', 'control'])
        """
        seed = as_seed(seed)
        n = as_count(count, "count")
        rng = np.random.default_rng(seed)
        groups = np.resize(["control", "training"], n)
        ages = rng.integers(20, 70, n)
        frame = pd.DataFrame({"expert": [str(i + 1) for i in range(n)], "group": groups, "age": ages})
        centre = group_difference * (groups == "training") + age_slope * (ages - 45) / 10
        logits = rng.normal(1.8, 0.8, n) + centre
        drawn = 1 / (1 + np.exp(-logits)), np.exp(rng.normal(np.log(6.0), 0.3, n))
        gammas, lambdas = _given(discounts, drawn[0], "discounts"), _given(temperatures, drawn[1], "temperatures")
        policies = [soft_plan(self.mdp, self.reward, *pair).policy for pair in zip(gammas, lambdas, strict=True)]
        return SimulatedPersons(self.simulate(policies, seed, frame["expert"].tolist()), gammas, lambdas, frame)


def space_adventure(mini_blocks: int = 100, travels: Sequence[int] = (2, 3), seed: Seed = 0) -> SpaceAdventure:
    """Return the task with freshly drawn mini-blocks: equally many per number of travels, half of them among asteroids.

    Args:
        mini_blocks: how many a person plays.
        travels: the numbers of travels that a mini-block may allow.
        seed: draws the mini-blocks.

    Example:
        >>> task = space_adventure(mini_blocks=12)
        >>> task.mdp.action_names, task.starts.size
        (('move', 'jump'), 12)
    """
    seed = as_seed(seed)
    if not len(travels):
        raise ValueError("travels must hold at least one number, received none")
    kinds = [(noise, as_count(left, "travels")) for left in travels for noise in LANDS]
    rng = np.random.default_rng(seed)
    starts: list[Place] = []
    while len(starts) < as_count(mini_blocks, "mini_blocks"):
        noise, left = kinds[len(starts) % len(kinds)]
        place = Place(tuple(rng.integers(len(VALUES), size=6).tolist()), noise, left, int(rng.integers(6)))
        near, far = place.points(0.0), place.points(1.0)
        # Kept if looking ahead matters.
        if (left == 1 or (near[0] - near[1]) * (far[0] - far[1]) < 0) and place not in starts:
            starts.append(place)
    # All states in which there is something to decide, those with most travels left first.
    places = list(dict.fromkeys(sorted(starts, key=lambda place: -place.left)))
    for left in range(places[0].left, 1, -1):
        before = [place for place in places if place.left == left]
        landed = (place.after(at) for place in before for a in range(len(ACTIONS)) for at in place.landings(a))
        places = list(dict.fromkeys([*places, *landed]))
    index = {place: s for s, place in enumerate(places)}
    n = len(places) + len(VALUES)
    live = len(places)
    rows, targets, values, chances = [], [], [], []
    for place, s in index.items():
        for a in range(len(ACTIONS)):
            for at, chance in place.landings(a).items():
                rows.append(a * n + s)
                targets.append(index[place.after(at)] if place.left > 1 else live + place.planets[at])
                values.append(place.planets[at])
                chances.append(chance)
    stacked = sp.csr_array((chances, (rows, targets)), shape=(len(ACTIONS) * n, n))
    lands = sp.csr_array((chances, (rows, values)), shape=(len(ACTIONS) * n, len(VALUES))).toarray()
    first = np.array([index[place] for place in starts])
    mdp = MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(ACTIONS))],
        np.bincount(first, minlength=n) / first.size,
        np.arange(live, n),
        state_names=[*map(str, places), *(f"end {value:+d}" if value else "end 0" for value in VALUES)],
        action_names=ACTIONS,
    )
    jumps = np.concatenate([np.zeros(n), ~mdp.terminal])
    features = sp.csr_array(np.column_stack([lands[:, [0, 1, 3, 4]], jumps]))
    paid = (lands @ np.array(VALUES)).reshape(len(ACTIONS), n) - np.outer(FUEL, ~mdp.terminal)
    names = ("planet -20", "planet -10", "planet +10", "planet +20", "is jump")
    return SpaceAdventure("space adventure", mdp, read_only(paid.T), features, names, read_only(first))


def _given(values: ArrayLike | None, drawn: Floats, name: str) -> Floats:
    """Return the user's values for each participant, or those that were drawn."""
    if values is None:
        return drawn
    given = as_floats(values, name)
    given = np.full(drawn.size, float(given)) if given.ndim == 0 else given
    as_shape(given, drawn.shape, name)
    return given
