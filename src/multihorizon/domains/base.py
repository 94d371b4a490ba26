"""A domain: an MDP, the reward its experts share, how far they look ahead, and random variants of the task.

How well a learned reward serves in other tasks (the paper's Eq. 27).

For each task variant n the optimal policy π* of the true reward and the optimal policy π̂ of the learned one are both followed
under the true reward, and the loss is compared with what the optimum is worth from the initial distribution ρ:

    Δ_n = (ρᵀV_{π*} − ρᵀV_{π̂}) / ρᵀV_{π*}.

The denominator can be negative (big-small and cliff charge for every step), and then the paper's ratio counts a loss as a
gain. `values` are the paper's signed ratios, `absolute` divides by |ρᵀV_{π*}| instead; `mean` and `std` are of the signed ones.
Where rewards are drawn from an estimate, the losses of the draws give intervals.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from multihorizon.checks import (
    ROUNDING,
    Bools,
    Floats,
    Ints,
    Seed,
    as_count,
    as_floats,
    as_level,
    as_seed,
    as_shape,
    read_only,
    renamed,
)
from multihorizon.estimate import NoUncertaintyError, interval_ends
from multihorizon.mdp import MDP
from multihorizon.planning.plan import evaluate, plan, soft_plan
from multihorizon.problem import one_task
from multihorizon.result import Result
from multihorizon.solution import Solution
from multihorizon.words import significant

Ending = Literal["terminal", "absorbing"]


@dataclass(frozen=True)
class Task:
    """A variant of a domain: other transitions, another discount, the same reward."""

    mdp: MDP
    discount: float


@renamed(lp_discounts="hard_discounts", mce_discounts="soft_discounts")
@dataclass(frozen=True)
class Domain:
    """A named problem with a known answer.

    `hard_discounts` are those of experts who take the best action, `soft_discounts` those of experts who follow an
    entropy-regularised policy; `randomize` draws the transitions of a task variant.
    """

    name: str
    mdp: MDP
    reward: Floats
    hard_discounts: tuple[float, ...]
    soft_discounts: tuple[float, ...]
    randomize: Callable[[np.random.Generator], MDP]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reward", read_only(self.reward))

    def __getattr__(self, name: str) -> Any:
        """Return what had this name in the last release, with a warning."""
        renamed_fields = {
            "lp_discounts": "hard_discounts",
            "lp_experts": "hard_experts",
            "lp_action_sets": "hard_action_sets",
            "mce_discounts": "soft_discounts",
            "mce_experts": "soft_experts",
        }
        if name not in renamed_fields:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} of Domain is now {renamed_fields[name]}", DeprecationWarning, stacklevel=2)
        return getattr(self, renamed_fields[name])

    def hard_experts(self) -> list[Ints]:
        """Return one action per state `(S,)` for each of `hard_discounts`: the first optimal one in the order of the actions."""
        return [sets.argmax(axis=1) for sets in self.hard_action_sets()]

    def hard_action_sets(self) -> list[Bools]:
        """Return all optimal actions, bool `(S,A)`, for each of `hard_discounts`."""
        return [plan(self.mdp, self.reward, gamma).optimal_actions for gamma in self.hard_discounts]

    def soft_experts(self, temperature: float = 1.0) -> list[Floats]:
        """Return entropy-regularised policies `(S,A)` for each of `soft_discounts`."""
        return [soft_plan(self.mdp, self.reward, gamma, temperature).policy for gamma in self.soft_discounts]

    def tasks(self, count: int = 100, seed: Seed = 0) -> list[Task]:
        """Draw `count` random variants: transitions from `randomize`, discounts uniform on [0,1]."""
        seed = as_seed(seed)
        rng = np.random.default_rng(seed)
        return [Task(self.randomize(rng), float(rng.uniform())) for _ in range(as_count(count, "count"))]


def check_ending(ending: object) -> bool:
    """Return True for "terminal", False for "absorbing"; raise on anything else."""
    if ending not in ("terminal", "absorbing"):
        raise ValueError(f'ending must be "terminal" or "absorbing", got {ending!r}')
    return bool(ending == "terminal")


@dataclass(frozen=True, eq=False)
class GeneralizationError(Result):
    """The ratios of all tasks, `(N,)`: `values` signed as in the paper, `absolute` divided by `|V*|` instead of `V*`.

    Where the reward is an estimate with an error, `low` and `high` `(N,)` are the ends of intervals of `absolute` at this
    `level`, and `mean_interval` and `absolute_interval` those of the means over tasks. Otherwise they are None, and `remark` may
    say why.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("task", "absolute", "low", "high")

    values: Floats
    absolute: Floats
    low: Floats | None = None
    high: Floats | None = None
    mean_interval: tuple[float, float] | None = None
    absolute_interval: tuple[float, float] | None = None
    level: float | None = None
    remark: str = ""

    def sentences(self) -> str:
        """Return mean and standard deviation of the losses, and the intervals of the means."""

        def summary(values: Floats, interval: tuple[float, float] | None) -> str:
            between = (
                ""
                if interval is None
                else f", between {significant(interval[0])} and {significant(interval[1])} at level {self.level:g}"
            )
            return f"{significant(values.mean())} ± {significant(values.std())}{between}"

        paper, absolute = summary(self.values, self.mean_interval), summary(self.absolute, self.absolute_interval)
        head = f"Loss over {self.values.size} tasks, as a share of the optimum: {absolute} (signed as in the paper: {paper})."
        return f"{head} {self.remark}".strip()

    def _facts(self) -> dict[str, Any]:
        return {
            "tasks": self.values.size,
            "mean loss": self.absolute.mean(),
            **({} if self.level is None else {"level": self.level}),
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per task."""
        columns = {"task": np.arange(self.values.size), "signed": self.values, "absolute": self.absolute}
        if self.low is not None and self.high is not None:
            columns |= {"low": self.low, "high": self.high}
        return pd.DataFrame(columns)

    @property
    def mean(self) -> float:
        """Return mean of the signed ratios."""
        return float(self.values.mean())

    @property
    def std(self) -> float:
        """Return standard deviation of the signed ratios."""
        return float(self.values.std())


def read_tasks(domain: Domain, tasks: int | Sequence[Task], seed: int) -> list[Task]:
    """Return the given tasks, or draw that many random variants."""
    variants = domain.tasks(tasks, seed) if isinstance(tasks, int) else list(tasks)
    if not variants:
        raise ValueError("tasks must hold at least one task, got none")
    return variants


def losses(domain: Domain, rewards: Floats, tasks: Sequence[Task]) -> tuple[Floats, Floats]:
    """Return the losses `(n,N)` of planning with rewards `(n,S)`, signed as in the paper and absolute."""
    best = np.empty(len(tasks))
    earned = np.empty((len(rewards), len(tasks)))
    for i, task in enumerate(tasks):
        best[i] = task.mdp.initial @ plan(task.mdp, domain.reward, task.discount).values
        worth: dict[bytes, float] = {}  # many rewards have one best policy
        for j, reward in enumerate(rewards):
            policy = plan(task.mdp, reward, task.discount).policy
            key = policy.tobytes()
            if key not in worth:
                worth[key] = float(task.mdp.initial @ evaluate(task.mdp, policy, domain.reward, task.discount).values)
            earned[j, i] = worth[key]
    loss = best - earned
    loss = np.where(np.abs(loss) <= ROUNDING * np.abs(best).max(initial=0.0), 0.0, loss)
    # Nothing is lost where the loss is 0, whatever the optimum is worth.
    sizes = (np.broadcast_to(size, loss.shape) for size in (best, np.abs(best)))
    with np.errstate(divide="ignore"):
        signed, absolute = (np.divide(loss, size, out=np.zeros_like(loss), where=loss != 0) for size in sizes)
    return signed, absolute


def generalization_error(
    domain: Domain,
    reward: ArrayLike | Solution,
    tasks: int | Sequence[Task] = 100,
    *,
    level: float = 0.95,
    draws: int = 200,
    seed: Seed = 0,
) -> GeneralizationError:
    """Return the loss of planning with a learned reward instead of the domain's own, over random task variants (the paper's Eq.
    27).

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
        raise ValueError(f"domain must be a Domain such as mh.domains.cliff(), got {type(domain).__name__}")
    variants = read_tasks(domain, tasks, seed)
    if not isinstance(reward, Solution):
        learned = as_floats(reward, "reward")
        as_shape(learned, (domain.mdp.n_states,), "reward")
        return GeneralizationError(*(each[0] for each in losses(domain, learned[None], variants)))
    task = one_task(reward.require_answer())
    estimate = reward.estimate
    arrival = task.arrival_features
    if arrival is None or task.known_reward is not None or arrival.shape[0] != domain.mdp.n_states:
        raise ValueError("the reward of the solution must be paid on arrival in the states of the domain, got another")
    signed, absolute = (each[0] for each in losses(domain, (arrival @ reward.reward)[None], variants))
    try:
        drawn = estimate.draw(as_count(draws, "draws", least=20), np.random.default_rng(seed)).reward
    except NoUncertaintyError as error:
        return GeneralizationError(signed, absolute, remark=f"There are no intervals: {error}.")
    if estimate.pairs() is not None or estimate.lost.any():
        why = "The decisions do not show the whole reward, so that nothing bounds the loss."
        return GeneralizationError(signed, absolute, remark=why)
    rewards = arrival @ (drawn if drawn.ndim == 2 else drawn[:, None])
    lost = losses(domain, rewards.T, variants)
    any_loss = (-np.inf, np.inf)
    low, high = interval_ends(lost[1], level, 0, any_loss)
    means = [interval_ends(each.mean(axis=1), level, 0, any_loss) for each in lost]
    both = [(float(least), float(largest)) for least, largest in means]
    return GeneralizationError(signed, absolute, low, high, both[0], both[1], level)
