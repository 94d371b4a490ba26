"""What a solver found: the answer, its status, and the evidence for both.

A solution is a value: it can be printed, saved as JSON and handed on. Everything that is an array with a meaning of its own
has a field; what only one solver has to say (an Ω set, a Farkas ray, singular values) goes into `evidence`, which holds plain
numbers, strings, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, as_shape, read_only
from multihorizon.files import read_json, read_numbers, write_json
from multihorizon.lookahead import step_discounts_of
from multihorizon.mdp import MDP
from multihorizon.planning.plan import plan, steps_left, weighted_plan
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Expert, Problem
from multihorizon.result import package_version


class Status(StrEnum):
    """How a solve ended; `Solution.message` says it in a sentence with the figures."""

    OPTIMAL = "optimal"
    CONVERGED = "converged"
    NOT_CONVERGED = "not converged"
    INDISTINGUISHABLE = "indistinguishable"
    INFEASIBLE = "infeasible"
    NOT_IDENTIFIED = "not identified"


@dataclass(frozen=True, eq=False)
class Trace:
    """Evaluations of an outer search in order: discounts `(n,K)`, objective values `(n,)`, seconds since the start `(n,)`.

    A value is −inf where the discounts are infeasible, and NaN where it could not be computed.
    """

    discounts: Floats
    values: Floats
    seconds: Floats

    def __post_init__(self) -> None:
        if self.discounts.ndim != 2 or not len(self.discounts) == len(self.values) == len(self.seconds):
            shapes = ", ".join(str(array.shape) for array in (self.discounts, self.values, self.seconds))
            raise ValueError(f"a trace must have arrays (n,K), (n,) and (n,), received {shapes}")

    @property
    def best(self) -> Floats:
        """The best value after each evaluation."""
        best: Floats = np.fmax.accumulate(self.values)
        return best

    @property
    def best_discounts(self) -> Floats:
        """The discounts `(K,)` with the best value."""
        found: Floats = self.discounts[int(np.argmax(np.where(np.isnan(self.values), -np.inf, self.values)))]
        return found

    def __len__(self) -> int:
        return self.values.size


class IntervalSource(Protocol):
    """What a solver leaves with its solution so that intervals `(K,2)` of the discounts can be asked for later, at any level."""

    @property
    def computed(self) -> Mapping[float, Floats]:
        """The intervals computed so far, by level; these are saved with the solution."""
        ...

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level."""
        ...


@dataclass(frozen=True, eq=False)
class SavedIntervals:
    """The intervals that came with a solution read from a file."""

    computed: Mapping[float, Floats]

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at a level they were saved with."""
        if level not in self.computed:
            saved = ", ".join(map(str, self.computed)) or "none"
            raise ValueError(
                f"this solution was read from a file: level must be one it was saved with ({saved}), received {level}"
            )
        return self.computed[level].copy()


@dataclass(frozen=True, eq=False)
class Solution:
    """The shared reward and each expert's discount.

    `reward` is `(S,)` paid on arrival, or `(d,)` weights of the problem's features. `temperature` is None for experts who
    choose the best action, else the entropy weight `(K,)`. `residual` is recomputed from the answer; each solver's docstring
    says of which equation. The arrays cannot be written to. `problem` is kept in memory and not saved; of `interval_source`,
    what it has computed is saved.
    """

    solver: str
    status: Status
    message: str
    experts: tuple[str, ...]
    discounts: Floats
    reward: Floats
    objective: float
    residual: float
    temperature: Floats | None = None
    trace: Trace | None = None
    standard_errors: Floats | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float = 0.0
    problem: Problem | None = None
    interval_source: IntervalSource | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in self.experts):
            raise ValueError(f"experts of the solution must be names, received {self.experts}")
        limits = {"discounts": 1.0, "temperature": np.inf, "standard_errors": np.inf}
        for name, high in limits.items():
            values = getattr(self, name)
            if values is not None or name == "discounts":
                as_shape(np.asarray(values), (len(self.experts),), f"{name} of the solution")
                _check_range(values, 0.0, high, name)
        if np.ndim(self.reward) != 1:
            raise ValueError(f"reward of the solution must have one axis, received shape {np.shape(self.reward)}")
        if self.problem is not None and self.problem.names != self.experts:
            raise ValueError(
                f"problem must be that of the experts {', '.join(self.experts)}, received {', '.join(self.problem.names)}"
            )
        for name in ("discounts", "reward", "temperature", "standard_errors"):
            array = getattr(self, name)
            object.__setattr__(self, name, None if array is None else read_only(array))

    def policies(self) -> list[Floats]:
        """The policy `(S,A)` of each of the problem's experts under the answer: optimal, or soft-optimal at a temperature."""
        problem = self.require_problem()
        if not (np.isfinite(self.discounts).all() or self._weights) or not np.isfinite(self.reward).all():
            raise ValueError(f"this solution has no answer to plan with: its status is {self.status}")
        return [self._policy(expert, owner) for expert, owner in zip(problem.experts, problem.owner, strict=True)]

    def _policy(self, expert: Expert, owner: int) -> Floats:
        reward, discount = expert.expected_reward(self.reward), float(self.discounts[owner])
        if self._weights and self.temperature is not None:
            return _weighted_policy(expert.mdp, reward, self._weights[owner], float(self.temperature[owner]))
        if self.temperature is None:
            return plan(expert.mdp, reward, discount).policy
        return soft_plan(expert.mdp, reward, discount, float(self.temperature[owner])).policy

    @property
    def _weights(self) -> list[list[float]]:
        """The look-ahead weights of each expert where they are not those of a discount."""
        weights: list[list[float]] = self.evidence.get("lookahead", {}).get("weights", [])
        return weights

    @property
    def _parameters(self) -> dict[str, Floats]:
        """The parameters `(K,)` of a look-ahead that is not exponential, by name; none for discounts."""
        found = self.evidence["lookahead"]["parameters"] if self._weights else {}
        return {name: read_numbers(values) for name, values in found.items()}

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Profile-likelihood intervals `(K,2)` of the discounts of a maximum-likelihood solution.

        An interval ends at 0 or 1 where the data do not contradict it; a discount that is not identified has NaN.

        Raises:
            ValueError: for other solvers, or for a level that a solution read from a file was not saved with.
        """
        if self.interval_source is None:
            raise ValueError(f"confidence intervals need a solution of MaximumLikelihood, received one of {self.solver}")
        return self.interval_source.at(level)

    def to_frame(self, level: float | None = None) -> pd.DataFrame:
        """One row per expert: the discount and the horizon 1/(1−γ), the temperature and the standard error where there are any,
        the parameters of another look-ahead, and with a level the ends of the confidence interval. What is not known is NaN.
        """
        columns: dict[str, Any] = {"expert": self.experts, "discount": self.discounts}
        with np.errstate(divide="ignore"):
            columns["horizon"] = 1 / (1 - self.discounts)
        columns |= {"standard_error": self.standard_errors, "temperature": self.temperature, **self._parameters}
        if level is not None:
            columns["discount_low"], columns["discount_high"] = self.confidence_intervals(level).T
        return pd.DataFrame({name: values for name, values in columns.items() if values is not None})

    def reward_frame(self) -> pd.DataFrame:
        """One row per state, or per feature where rewards are tied: its name and its reward."""
        return pd.DataFrame({"parameter": self.require_problem().parameter_names, "reward": self.reward})

    def require_problem(self) -> Problem:
        """The problem this solves; a solution read from a file needs it handed back."""
        if self.problem is None:
            raise ValueError("this solution was read from a file: hand its problem to Solution.from_json(path, problem=…)")
        return self.problem

    def to_json(self, path: str | Path) -> None:
        """Write everything but the problem, with version, seed and options; what is not known is null."""
        apart = ("problem", "trace", "interval_source")
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        content["trace"] = None if self.trace is None else vars(self.trace)
        content["confidence_intervals"] = None if self.interval_source is None else dict(self.interval_source.computed)
        content["version"] = package_version()
        write_json(path, content)

    @classmethod
    def from_json(cls, path: str | Path, problem: Problem | None = None) -> Solution:
        """Read what `to_json` wrote; hand the problem in to use `policies()`."""
        content = read_json(path, "a saved solution")
        missing = {f.name for f in fields(cls)} - {"problem", "interval_source"} - set(content)
        if missing:
            raise ValueError(f"{path} is not a saved solution: it lacks {', '.join(sorted(missing))}")
        try:
            found = _fields_from(content)
            fitted = found["evidence"].get("transitions")
            if problem is not None and fitted:
                problem = problem.with_transitions([read_numbers(data) for data in fitted])
            return cls(**found, problem=problem)
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is not a saved solution: {error}") from error

    def __str__(self) -> str:
        columns = self._parameters or {"discount": self.discounts}
        rows = [
            f"  {name}: {', '.join(f'{what} {values[k]:.4f}' for what, values in columns.items())}"
            for k, name in enumerate(self.experts)
        ]
        return "\n".join([f"{self.solver}: {self.status}. {self.message}", *rows])


def _weighted_policy(mdp: MDP, reward: Floats, weights: list[float], temperature: float) -> Floats:
    """The policy `(S,A)` with these look-ahead weights; NaN in states from which a plan needs weights that are not known."""
    steps, left = step_discounts_of(weights)[:, None], steps_left(mdp)
    log = weighted_plan(mdp, reward.T.ravel(), steps, np.array([temperature]))[1][0, :, :, 0]
    known = np.zeros(mdp.n_states, dtype=np.bool_) if left is None else left <= len(weights)
    return np.where(known[:, None], np.exp(log.T), np.nan)


def _fields_from(content: dict[str, Any]) -> dict[str, Any]:
    """The fields of a solution from what a file holds."""
    known = {key: value for key, value in content.items() if key not in ("version", "confidence_intervals")}
    for name in ("discounts", "reward", "temperature", "standard_errors"):
        known[name] = None if known[name] is None else read_numbers(known[name])
    for name in ("objective", "residual", "seconds"):
        known[name] = float(read_numbers(known[name]))
    if known["trace"] is not None:
        known["trace"] = Trace(**{name: read_numbers(column) for name, column in known["trace"].items()})
    saved = content.get("confidence_intervals")
    intervals = None if saved is None else SavedIntervals({float(k): read_numbers(v) for k, v in saved.items()})
    return known | {"interval_source": intervals, "status": Status(known["status"]), "experts": tuple(known["experts"])}


def _check_range(values: Floats, low: float, high: float, name: str) -> None:
    """Raise if a value is outside; NaN stands for what is not known."""
    outside = (values < low) | (values > high)
    if outside.any():
        expected = f"from {low:g} to {high:g}" if np.isfinite(high) else f"at least {low:g}"
        raise ValueError(f"{name} of the solution must be {expected}, received {values[outside][0]:g}")
