"""How much a learned reward loses in new tasks: the paper's test of generalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import Seed, as_count, as_floats, as_level, as_seed, as_shape
from multihorizon.domains.base import Domain, GeneralizationError, Task, losses, read_tasks
from multihorizon.estimate import NoUncertaintyError, interval_ends
from multihorizon.problem import one_task
from multihorizon.solution import Solution


def generalization_error(
    domain: Domain,
    reward: ArrayLike | Solution,
    tasks: int | Sequence[Task] = 100,
    *,
    level: float = 0.95,
    draws: int = 200,
    seed: Seed = 0,
) -> GeneralizationError:
    """The loss of planning with a learned reward instead of the domain's own, over random task variants (the paper's Eq. 27).

    This is the paper's Eq. 27, and its absolute form.

    Args:
        domain: gives the true reward and the variants.
        reward: the learned reward `(S,)`; or the solution that learned it, whose error then gives intervals.
        tasks: how many variants to draw, or the variants themselves.
        level: of the intervals.
        draws: from the estimate of a solution, of which intervals are quantiles.
        seed: of the variants and of the draws.

    Returns:
        The loss in each task `(N,)`, signed and absolute, with means and intervals
        (`multihorizon.domains.base.GeneralizationError`).

    Example:
        >>> from multihorizon.domains import cliff
        >>> generalization_error(cliff(), 2 * cliff().reward, tasks=5).mean
        0.0
    """
    seed = as_seed(seed)
    as_level(level)
    if not isinstance(domain, Domain):
        raise ValueError(f"domain must be a Domain such as mh.domains.cliff(), received {type(domain).__name__}")
    variants = read_tasks(domain, tasks, seed)
    if not isinstance(reward, Solution):
        learned = as_floats(reward, "reward")
        as_shape(learned, (domain.mdp.n_states,), "reward")
        return GeneralizationError(*(each[0] for each in losses(domain, learned[None], variants)))
    task, estimate = one_task(reward.require_answer()), reward.estimate
    arrival = task.arrival_features
    if arrival is None or task.known_reward is not None or arrival.shape[0] != domain.mdp.n_states:
        raise ValueError("the reward of the solution must be paid on arrival in the states of the domain, received another")
    signed, absolute = (each[0] for each in losses(domain, (arrival @ reward.reward)[None], variants))
    try:
        drawn = estimate.draw(as_count(draws, "draws", least=20), np.random.default_rng(seed)).reward
    except NoUncertaintyError as error:
        return GeneralizationError(signed, absolute, remark=f"There are no intervals: {error}.")
    if estimate.pairs() is not None or estimate.lost.any():
        why = "The decisions do not show the whole reward, so that nothing bounds the loss."
        return GeneralizationError(signed, absolute, remark=why)
    rewards = arrival @ (drawn if drawn.ndim == 2 else drawn[:, None])
    lost, any_loss = losses(domain, rewards.T, variants), (-np.inf, np.inf)
    low, high = interval_ends(lost[1], level, 0, any_loss)
    means = [interval_ends(each.mean(axis=1), level, 0, any_loss) for each in lost]
    both = [(float(least), float(largest)) for least, largest in means]
    return GeneralizationError(signed, absolute, low, high, both[0], both[1], level)
