"""A walk in the unit square: a continuous task with a known answer.

A state is a point of the square. Four actions aim at a point one step to the right, up, left or down. Normal noise is added to
both coordinates, and a walk that would leave the square is reflected at its wall. Arriving near the small goal pays a little,
near the large goal more, and a pit between them costs. Nobody can stay anywhere for long, and episodes are cut after a fixed
number of steps.

*The truth* is a dense-grid solution. The noise of the two coordinates is independent and each action moves along one of them,
so the expectation over next states is a product of one-dimensional integrals: `E[f(s')|s,a] = T_x f T_yᵀ` with matrices that
hold Gauss–Hermite quadrature of cubic splines through the grid. The soft Bellman equation is iterated until it changes by less
than 1e-9. Between grid points everything is a cubic spline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import RectBivariateSpline, make_interp_spline
from scipy.special import log_softmax, logsumexp

from multihorizon.checks import Floats, Ints, Seed, as_count, as_discount, as_floats, as_names, as_positive, as_seed
from multihorizon.data.steps import Steps
from multihorizon.numerics.distributions import normal_nodes

ACTIONS = ("right", "up", "left", "down")
MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))


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
            actions=ACTIONS,
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
            aim = states[t, :, :2] + self.step * np.array(MOVES)[actions[t]]
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
            q = np.stack([along[x] @ (paid + gamma * values) @ along[y].T for x, y in MOVES])
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

    Example:
        >>> task = navigation()
        >>> ACTIONS[task.policy("far", [[0.5, 0.9]]).argmax()]
        'right'
    """
    given = {"near": 0.5, "middle": 0.8, "far": 0.95} if discounts is None else discounts
    named = given if isinstance(given, dict) else dict(zip(as_names(None, len(given), "names"), given, strict=True))
    checked = {str(name): as_discount(gamma, f"discount of {name}") for name, gamma in named.items()}
    for name, gamma in checked.items():
        if gamma == 1:
            raise ValueError(f"discount of {name} must be below 1, because the walk never ends, received 1")
    return Navigation(checked, as_positive(temperature, "temperature"))


def _reflected(points: Floats) -> Floats:
    folded: Floats = 1 - np.abs(1 - np.abs(points))
    return folded
