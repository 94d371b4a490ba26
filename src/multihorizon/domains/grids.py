"""The toy domain, grids, and random MDPs.

**The toy domain**: from s0 three actions reach s3, s1 or s2 with probabilities 0.95, 0.9 and 0.6, and stay otherwise; s1 and s2
lead to s3. Rewards on arrival 0, 6, 7, 10. The better pay of s1 and s2 comes before the 10 that ends the episode, so
farther-sighted experts take the detour: the optimal action in s0 switches at discounts near 0.432 and 0.876.

**Grids**: states are cells in row-major order, actions are right, down, left, up; a move into a wall or off the grid stays. With
slip p the intended direction is taken with probability 1 − p and each of the other three with p/3.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import Bools, Floats, Seed, as_count, as_floats, as_mask, as_seed, as_shape
from multihorizon.domains.base import Domain, Ending, check_ending
from multihorizon.mdp import MDP


def toy(chances: tuple[float, float, float] = (0.95, 0.9, 0.6), ending: Ending = "terminal") -> Domain:
    """Return the paper's toy domain; `chances` are the probabilities that an action in s0 moves the agent.

    Returns:
        A `Domain` of four states.

    Example:
        >>> toy().mdp.n_states
        4
    """
    ends = check_ending(ending)
    probabilities = as_floats(chances, "chances")
    as_shape(probabilities, (3,), "chances")
    if ((probabilities < 0) | (probabilities > 1)).any():
        raise ValueError(f"chances must be in [0, 1], got {tuple(chances)}")
    return Domain(
        name="toy",
        mdp=_toy_mdp(probabilities, ends),
        reward=np.array([0.0, 6.0, 7.0, 10.0]),
        hard_discounts=(0.3, 0.5, 0.95),
        soft_discounts=(0.3, 0.5, 0.95),
        randomize=lambda rng: _toy_mdp(rng.uniform(size=3), ends),
    )


def _toy_mdp(chances: Floats, ends: bool) -> MDP:
    transitions = np.zeros((3, 4, 4))
    for action, (target, chance) in enumerate(zip((3, 1, 2), chances, strict=True)):
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


def gridworld(
    height: int,
    width: int,
    slip: float = 0.0,
    terminal: ArrayLike = (),
    walls: ArrayLike = (),
    absorbing: ArrayLike = (),
    initial: ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> MDP:
    """Build a grid MDP, without a loop over cells.

    Args:
        height, width: size of the grid.
        slip: probability in [0,1] that the move goes in one of the three other directions.
        terminal, walls, absorbing: cells, as a bool mask `(height, width)`, as `(row, column)` pairs, or as state indices.
            A wall stays a state index but is never entered; an absorbing cell keeps whoever enters it.
        initial: `(S,)` probabilities of the first state; by default uniform over the cells that are not in any of these sets.
        names: the cells' names, row by row; by default their numbers.

    Returns:
        An `MDP` with a state for each cell and the actions right, down, left, up.

    Example:
        >>> gridworld(2, 3, slip=0.1, terminal=[(0, 2)]).n_states
        6
    """
    shape = (as_count(height, "height"), as_count(width, "width"))
    if not 0 <= slip <= 1:
        raise ValueError(f"slip must be in [0, 1], got {slip}")
    ends, blocked, kept = (_cells(c, shape, n) for c, n in ((terminal, "terminal"), (walls, "walls"), (absorbing, "absorbing")))
    here = np.arange(ends.size)
    live = np.flatnonzero(~(ends | blocked))
    rows, columns = np.divmod(here, shape[1])
    targets = []
    for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        target = np.clip(rows + down, 0, shape[0] - 1) * shape[1] + np.clip(columns + right, 0, shape[1] - 1)
        targets.append(np.where(blocked[target] | kept, here, target))
    if initial is None and live.size:
        free = ~(ends | blocked | kept)
        initial = free / free.sum() if free.any() else None
    actions = []
    for action in range(4):
        chances = [1 - slip if direction == action else slip / 3 for direction in range(4)]
        taken = [d for d in range(4) if chances[d] > 0]
        data = np.repeat([chances[d] for d in taken], live.size)
        entries = [targets[d][live] for d in taken]
        places = (np.tile(live, len(taken)), np.concatenate(entries))
        actions.append(sp.csr_array((data, places), shape=(here.size, here.size)))
    return MDP(
        actions,
        initial,
        ends | blocked,
        state_names=names,
        action_names=("right", "down", "left", "up"),
        grid_shape=shape,
    )


def big_small(height: int = 3, width: int = 6, slip: float = 0.0, ending: Ending = "terminal") -> Domain:
    """Return the big-small domain: +2 in the bottom-left cell, +20 in the bottom-right, −2 elsewhere; both goals end the episode.

    Returns:
        A `Domain` with one state for each cell.

    Example:
        >>> big_small().reward.reshape(3, 6)[2].tolist()
        [2.0, -2.0, -2.0, -2.0, -2.0, 20.0]
    """
    as_count(width, "width", least=2)
    goals = [(as_count(height, "height") - 1, 0), (height - 1, width - 1)]
    reward = np.full((height, width), -2.0)
    reward[goals[0]], reward[goals[1]] = 2.0, 20.0
    return _grid_domain("big-small", reward, goals, slip, ending, (0.1, 0.45, 0.9), (0.1, 0.45, 0.9))


def cliff(height: int = 3, width: int = 4, slip: float = 0.1, ending: Ending = "terminal") -> Domain:
    """Return the cliff domain: the top row is cliff (−10), its right-most cell the goal (+20), and both end the episode.

    The row under the cliff costs 2 per step, the rows below it 1.

    Returns:
        A `Domain` with one state for each cell.

    Example:
        >>> cliff().reward.reshape(3, 4)[0].tolist()
        [-10.0, -10.0, -10.0, 20.0]
    """
    as_count(height, "height", least=2)
    reward = np.full((height, as_count(width, "width", least=2)), -1.0)
    reward[0], reward[1] = -10.0, -2.0
    reward[0, -1] = 20.0
    top = [(0, column) for column in range(width)]
    return _grid_domain("cliff", reward, top, slip, ending, (0.17, 0.4, 0.75), (0.0, 0.2, 0.52))


def meadow(slip: float = 0.0, ending: Ending = "terminal") -> Domain:
    """Return the meadow of the demo, 5×9 cells: a snack (+6) near the start, a feast (+40) at the far end, and mud between.

    Snack and feast end the episode. Mud (−3 per step) lies on the straight way to the feast; every other step costs 0.5.

    From cell B3 the first expert takes the snack, the second wades through the mud, and the third walks around it. Cells have
    names as in a spreadsheet: A1 is the upper left one.

    Returns:
        A `Domain` of 45 states.

    Example:
        >>> [cell for cell, reward in zip(meadow().mdp.state_names, meadow().reward) if reward > 0]
        ['I3', 'A5']
    """
    reward = np.full((5, 9), -0.5)
    reward[1:4, 3:6] = -3.0
    reward[4, 0], reward[2, 8] = 6.0, 40.0
    names = [f"{column}{row}" for row in range(1, 6) for column in "ABCDEFGHI"]
    return _grid_domain("meadow", reward, [(4, 0), (2, 8)], slip, ending, (0.5, 0.8, 0.97), (0.5, 0.8, 0.97), names)


def _grid_domain(
    name: str,
    reward: Floats,
    goals: list[tuple[int, int]],
    slip: float,
    ending: Ending,
    lp: tuple[float, ...],
    mce: tuple[float, ...],
    names: Sequence[str] | None = None,
) -> Domain:
    height, width = reward.shape
    kind = "terminal" if check_ending(ending) else "absorbing"

    def build(slip: float) -> MDP:
        return gridworld(height, width, slip, **{kind: goals}, names=names)

    return Domain(name, build(slip), reward.ravel(), lp, mce, lambda rng: build(1 - rng.uniform()))


def _cells(cells: ArrayLike, shape: tuple[int, int], name: str) -> Bools:
    array = np.asarray(cells)
    if array.dtype == np.bool_ and array.shape == shape:
        return array.ravel()
    if array.ndim == 2 and array.shape[1] == 2 and np.issubdtype(array.dtype, np.integer):
        outside = ((array < 0) | (array >= shape)).any(axis=1)
        if outside.any():
            raise ValueError(f"{name} must hold cells of a {shape[0]}×{shape[1]} grid, got {tuple(array[outside][0].tolist())}")
        array = array[:, 0] * shape[1] + array[:, 1]
    return as_mask(array, shape[0] * shape[1], name)


def random_mdp(n_states: int, n_actions: int, branching: int | None = None, n_terminal: int = 0, seed: Seed = 0) -> MDP:
    """Draw an MDP whose rows are flat Dirichlet over `branching` random successors (by default all states).

    The last `n_terminal` states are terminal.

    Returns:
        An `MDP` with transitions only.

    Example:
        >>> random_mdp(5, 2, branching=3).stacked.nnz
        30
    """
    seed = as_seed(seed)
    n_states, n_actions = as_count(n_states, "n_states"), as_count(n_actions, "n_actions")
    branching = n_states if branching is None else as_count(branching, "branching")
    if branching > n_states:
        raise ValueError(f"branching must be at most the {n_states} states, got {branching}")
    if as_count(n_terminal, "n_terminal", least=0) >= n_states:
        raise ValueError(f"n_terminal must be below the {n_states} states, got {n_terminal}")
    rng = np.random.default_rng(seed)
    live = n_states - n_terminal
    rows = np.repeat(np.arange(live), branching)
    actions = []
    for _ in range(n_actions):
        successors = rng.random((live, n_states)).argpartition(branching - 1, axis=1)[:, :branching]
        chances = rng.dirichlet(np.ones(branching), size=live)
        actions.append(sp.csr_array((chances.ravel(), (rows, successors.ravel())), shape=(n_states, n_states)))
    return MDP(actions, terminal=np.arange(live, n_states))
