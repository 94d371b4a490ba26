"""Two tasks of people, with simulated participants: the Space Adventure Task, and a walk among continuous states.

*Space Adventure.* People travel between planets, two or three times, and look more or less far ahead. Six planets lie on a ring,
each worth −20, −10, 0, 10 or 20 points. *Move* goes to the next planet for 2 points of fuel. *Jump* costs 5 points and follows a
fixed pattern; it lands on its target with probability 0.9 (0.5 among asteroids) and otherwise on one of the two planets beside
it. A mini-block shows the planets and allows two or three travels; a person plays 100 mini-blocks. The rules are those of the
task published with the software `pybefit`.

A state is planets, noise, travels left and position: `555212 low 2 p3`, where planets worth −20, …, 20 are written 1, …, 5. After
the last travel an episode ends in `end +20`, which names the value landed on. Travels run out, so no state comes back.
Mini-blocks are drawn at random, and kept where looking ahead matters: the first travel that earns most at once differs from
the first travel that earns most in the end.

*Navigation.* A state is a point of the unit square. Four actions aim at a point one step to the right, up, left or down. Normal
noise is added to both coordinates, and a walk that would leave the square is reflected at its wall. Arriving near the small goal
pays a little, near the large goal more, and a pit between them costs. Nobody can stay anywhere for long, and episodes are cut
after a fixed number of steps.

Its truth is a dense-grid solution. The noise of the two coordinates is independent and each action moves along one of them,
so the expectation over next states is a product of one-dimensional integrals: `E[f(s')|s,a] = T_x f T_yᵀ` with matrices that
hold Gauss–Hermite quadrature of cubic splines through the grid. The soft Bellman equation is iterated until it changes by less
than 1e-9. Between grid points everything is a cubic spline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.interpolate import RectBivariateSpline, make_interp_spline
from scipy.special import log_softmax, logsumexp

from multihorizon.checks import (
    Floats,
    Ints,
    Seed,
    Sparse,
    as_count,
    as_discount,
    as_floats,
    as_names,
    as_positive,
    as_seed,
    as_shape,
    read_only,
)
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.steps import Steps
from multihorizon.mdp import MDP
from multihorizon.numerics.distributions import normal_nodes
from multihorizon.planning.plan import soft_plan

#: What the actions of the adventure cost.
FUEL = {"move": 2.0, "jump": 5.0}
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

    @property
    def ending(self) -> str:
        """Return the name of the terminal state where the last travel ended here."""
        value = VALUES[self.planets[self.position]]
        return f"end {value:+d}" if value else "end 0"

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

        return [sum(p * worth(at) for at, p in self.landings(a).items()) - fuel for a, fuel in enumerate(FUEL.values())]


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

    Returns:
        The task, its features and points, and `persons` to simulate.

    Example:
        >>> task = space_adventure(mini_blocks=12)
        >>> task.mdp.action_names, task.starts.size
        (('move', 'jump'), 12)
    """
    seed = as_seed(seed)
    if not len(travels):
        raise ValueError("travels must hold at least one number, got none")
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
    return adventure_from(starts)


def adventure_from(starts: Sequence[Place]) -> SpaceAdventure:
    """Return the task whose mini-blocks begin in these states."""
    # All states in which there is something to decide, those with most travels left first.
    places = list(dict.fromkeys(sorted(starts, key=lambda place: -place.left)))
    for left in range(places[0].left, 1, -1):
        before = [place for place in places if place.left == left]
        landed = (place.after(at) for place in before for a in range(len(FUEL)) for at in place.landings(a))
        places = list(dict.fromkeys([*places, *landed]))
    index = {place: s for s, place in enumerate(places)}
    n = len(places) + len(VALUES)
    live = len(places)
    rows, targets, values, chances = [], [], [], []
    for place, s in index.items():
        for a in range(len(FUEL)):
            for at, chance in place.landings(a).items():
                rows.append(a * n + s)
                targets.append(index[place.after(at)] if place.left > 1 else live + place.planets[at])
                values.append(place.planets[at])
                chances.append(chance)
    stacked = sp.csr_array((chances, (rows, targets)), shape=(len(FUEL) * n, n))
    lands = sp.csr_array((chances, (rows, values)), shape=(len(FUEL) * n, len(VALUES))).toarray()
    first = np.array([index[place] for place in starts])
    mdp = MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(FUEL))],
        np.bincount(first, minlength=n) / first.size,
        np.arange(live, n),
        state_names=[*map(str, places), *(f"end {value:+d}" if value else "end 0" for value in VALUES)],
        action_names=tuple(FUEL),
    )
    jumps = np.concatenate([np.zeros(n), ~mdp.terminal])
    features = sp.csr_array(np.column_stack([lands[:, [0, 1, 3, 4]], jumps]))
    paid = (lands @ np.array(VALUES)).reshape(len(FUEL), n) - np.outer([*FUEL.values()], ~mdp.terminal)
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


#: Where the actions of the walk aim.
MOVES = {"right": (1, 0), "up": (0, 1), "left": (-1, 0), "down": (0, -1)}


@dataclass(frozen=True)
class Navigation:
    """The task, its reward, and its soft-optimal experts.

    Attributes:
        discounts: the true discount of each expert, by name.
        temperature: how random their choices are.
        step: how far an action aims.
        noise: standard deviation of the noise in each coordinate.
        grid: points of the dense grid along each coordinate.
    """

    discounts: dict[str, float]
    temperature: float = 1.0
    step: float = 0.08
    noise: float = 0.04
    grid: int = 41

    def reward(self, states: ArrayLike) -> Floats:
        """Return the reward `(n,)` of arriving in these states `(n,2)`."""
        points = as_floats(states, "states")
        paid = np.zeros(points.shape[:-1])
        for centre, width, height in (((0.25, 0.3), 0.12, 2.0), ((0.8, 0.75), 0.15, 4.0), ((0.55, 0.5), 0.1, -3.0)):
            paid += height * np.exp(-((points - centre) ** 2).sum(axis=-1) / (2 * width**2))
        return paid

    def values(self, expert: str, states: ArrayLike) -> Floats:
        """Return the expert's soft values `(n,)` in these states `(n,2)`."""
        return self._spline(self._solved[expert][0], as_floats(states, "states"))

    def policy(self, expert: str, states: ArrayLike) -> Floats:
        """Return the expert's probability of each action `(n,4)` in these states `(n,2)`."""
        points = as_floats(states, "states")
        q = np.stack([self._spline(grid, points) for grid in self._solved[expert][1]], axis=1)
        chosen: Floats = np.exp(log_softmax(q / self.temperature, axis=1))
        return chosen

    def simulate(self, decisions: int = 20_000, length: int = 50, noise_coordinates: int = 0, seed: Seed = 0) -> Steps:
        """Let each expert make this many decisions, in episodes of `length` that begin anywhere.

        `noise_coordinates` are added to the state: standard normal numbers, new at every step, that mean nothing. The walk is the
        same with and without them.
        """
        seed = as_seed(seed)
        as_count(decisions, "decisions", least=2)
        as_count(length, "length", least=2)
        as_count(noise_coordinates, "noise_coordinates", least=0)
        streams = np.random.SeedSequence(seed).spawn(len(self.discounts))
        runs = [self._run(name, decisions, length, noise_coordinates, s) for name, s in zip(self.discounts, streams, strict=True)]
        sizes = [run[0].size for run in runs]
        episode, step, states, action, after = (np.concatenate([run[i] for run in runs]) for i in range(5))
        return Steps(
            expert=np.repeat(np.arange(len(runs)), sizes),
            episode=episode,
            step=step,
            action=action,
            states=states,
            next_states=after,
            terminated=np.zeros(step.size, dtype=np.bool_),
            experts=tuple(self.discounts),
            episodes=tuple(str(i) for i in range(int(episode.max()) + 1)),
            actions=tuple(MOVES),
            coordinates=("x", "y", *(f"noise {i + 1}" for i in range(noise_coordinates))),
            sources=tuple(range(2 + noise_coordinates)),
        )

    def _run(
        self, name: str, decisions: int, length: int, extra: int, stream: np.random.SeedSequence
    ) -> tuple[Ints, Ints, Floats, Ints, Floats]:
        """Draw episode, step, state, action and next state of one expert's decisions."""
        rng = np.random.default_rng(stream)
        meaningless = np.random.default_rng(stream.spawn(1)[0])
        episodes = -(-decisions // length)
        states = np.empty((length + 1, episodes, 2 + extra))
        actions = np.empty((length, episodes), dtype=np.int64)
        states[0, :, :2] = rng.uniform(size=(episodes, 2))
        states[0, :, 2:] = meaningless.standard_normal((episodes, extra))
        for t in range(length):
            ladder = self.policy(name, states[t, :, :2]).cumsum(axis=1)
            actions[t] = (rng.uniform(size=(episodes, 1)) > ladder[:, :-1]).sum(axis=1)
            aim = states[t, :, :2] + self.step * np.array([*MOVES.values()])[actions[t]]
            states[t + 1, :, :2] = _reflected(aim + self.noise * rng.standard_normal(aim.shape))
            states[t + 1, :, 2:] = meaningless.standard_normal((episodes, extra))
        step, episode = rows = tuple(grid.T.ravel()[:decisions] for grid in np.indices((length, episodes)))
        return episode, step, states[:-1][rows], actions[rows], states[1:][rows]

    @cached_property
    def _solved(self) -> dict[str, tuple[Floats, Floats]]:
        """Solve for values `(n,n)` and `Q` `(4,n,n)` of each expert on the grid."""
        return {name: self._solve(gamma) for name, gamma in self.discounts.items()}

    def _solve(self, gamma: float) -> tuple[Floats, Floats]:
        axis = self._axis
        paid = self.reward(np.stack(np.meshgrid(self._axis, self._axis, indexing="ij"), axis=-1))
        # The matrices `(n,n)` that give a function's expectation after a move from each grid point, from its values on the grid.
        nodes, weights = normal_nodes(21)
        spline = make_interp_spline(axis, np.eye(axis.size), k=3)
        along = {}
        for move in (-1, 0, 1):
            reached = _reflected(axis[:, None] + move * self.step + self.noise * nodes[:, 0])
            along[move] = np.einsum("q,iqj->ij", weights, spline(reached))
        values = np.zeros_like(paid)
        while True:
            q = np.stack([along[x] @ (paid + gamma * values) @ along[y].T for x, y in MOVES.values()])
            new = self.temperature * logsumexp(q / self.temperature, axis=0)
            if np.abs(new - values).max() < 1e-9:
                return new, q
            values = new

    @property
    def _axis(self) -> Floats:
        return np.linspace(0.0, 1.0, self.grid)

    def _spline(self, values: Floats, points: Floats) -> Floats:
        values_there: Floats = RectBivariateSpline(self._axis, self._axis, values).ev(points[:, 0], points[:, 1])
        return values_there


def navigation(discounts: Sequence[float] | dict[str, float] | None = None, temperature: float = 1.0) -> Navigation:
    """Return the walk in the unit square.

    Args:
        discounts: each expert's discount, below 1, by name or in a row; by default three experts, at 0.5, 0.8 and 0.95.
        temperature: how random the experts' choices are.

    Returns:
        The task, its reward, and its experts' policies.

    Example:
        >>> task = navigation()
        >>> [*MOVES][task.policy("far", [[0.5, 0.9]]).argmax()]
        'right'
    """
    given = {"near": 0.5, "middle": 0.8, "far": 0.95} if discounts is None else discounts
    named = given if isinstance(given, dict) else dict(zip(as_names(None, len(given), "names"), given, strict=True))
    checked = {str(name): as_discount(gamma, f"discount of {name}") for name, gamma in named.items()}
    for name, gamma in checked.items():
        if gamma == 1:
            raise ValueError(f"discount of {name} must be below 1, because the walk never ends, got 1")
    return Navigation(checked, as_positive(temperature, "temperature"))


def _reflected(points: Floats) -> Floats:
    folded: Floats = 1 - np.abs(1 - np.abs(points))
    return folded
