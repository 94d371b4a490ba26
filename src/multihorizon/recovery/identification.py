"""The report on identifiability, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.recovery.linear_system import MISFIT


@dataclass(frozen=True, eq=False)
class Member:
    """One explanation of the experts; `error` is `max |π − π*|`, with the policies planned again from it."""

    discounts: Floats
    reward: Floats
    temperature: Floats
    error: float


@dataclass(frozen=True, eq=False)
class Identification:
    """Whether the experts identify their discounts.

    Attributes:
        status: "unique", "set" or "infeasible".
        dimension: of the set of discounts; 0 for a single point (or several isolated ones).
        discounts: `(K,)`, the answer, a member of the set, or the closest explanation.
        intervals: `(K,2)`, each discount's range over the set, widened by what errors of size `tolerance` can do.
        reward: reward parameters that go with `discounts`; its mean is 0 where a constant is free.
        residual: `max |(Q − V)/λ − log π*|`, recomputed from discounts and reward.
        singular_values: of the equations in the discounts; their rank is the number of discounts less `dimension`.
        temperature: `(K,)`.
        members: two explanations that are far apart, where there is a set.
        misfit: how much worse the equations hold than errors of size `tolerance` would explain; above 5 is infeasible.
        reward_dimension: directions in which the reward is open even at these discounts.
        unknown_parameters: states that no transition enters, about whose reward nothing can be said.
    """

    status: str
    dimension: int
    discounts: Floats
    intervals: Floats
    reward: Floats
    residual: float
    singular_values: Floats
    temperature: Floats
    members: tuple[Member, ...]
    tolerance: float
    misfit: float
    experts: tuple[str, ...]
    reward_dimension: int
    unknown_parameters: tuple[str, ...]

    def summary(self) -> str:
        """The finding in plain words, with what to do next."""
        return "\n".join([self._headline(), *self._ranges(), *self._proof(), *self._reward(), *self._advice()])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON and `Solution.evidence` take them."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            plain[name] = value.tolist() if isinstance(value, np.ndarray) else value
        plain["members"] = [
            {"discounts": m.discounts.tolist(), "reward": m.reward.tolist(), "error": m.error} for m in self.members
        ]
        plain["unknown_parameters"] = list(self.unknown_parameters)
        plain["experts"] = list(self.experts)
        return plain

    def _headline(self) -> str:
        if self.status == "unique":
            return f"The experts identify their discounts, up to errors of {self.tolerance:.3g} in log π."
        if self.status == "infeasible":
            return (
                f"No discounts and shared reward explain the experts up to errors of {self.tolerance:.3g} in log π: "
                f"the equations hold {self.misfit:.3g} times worse than that. The closest explanation leaves {self.residual:.3g}."
            )
        if self.dimension == 0:
            return "Several separate explanations fit the experts equally well."
        if max((m.error for m in self.members), default=0.0) > 1e-6:
            return f"Errors as large as those of the policies leave {self.dimension} combination(s) of the discounts open."
        shape = {1: "a curve", 2: "a surface"}.get(self.dimension, f"a set of dimension {self.dimension}")
        return f"The experts do not identify their discounts: {shape} of them explains the same behaviour."

    def _ranges(self) -> list[str]:
        rows = zip(self.experts, self.discounts, self.intervals, strict=True)
        return [f"  {name}: discount {gamma:.4f}, possible {low:.4f} to {high:.4f}" for name, gamma, (low, high) in rows]

    def _proof(self) -> list[str]:
        rounded = [(m.discounts.round(4).tolist(), m.error) for m in self.members]
        return [f"  {discounts} with its own reward reproduces every policy to {error:.1e}" for discounts, error in rounded]

    def _reward(self) -> list[str]:
        lines = []
        if self.reward_dimension:
            lines.append(f"At given discounts the reward is known up to {self.reward_dimension} constant(s).")
        if self.unknown_parameters:
            some = ", ".join(self.unknown_parameters[:5])
            lines.append(f"Nothing can be said of the reward of states that are never entered: {some}.")
        return lines

    def _advice(self) -> list[str]:
        if self.status == "set":
            return [
                "To narrow it down: the same experts in a variant of the task with other transitions (Problem.join), "
                "another expert, fewer reward parameters (features), or one discount fixed from other knowledge."
            ]
        if self.status == "infeasible":
            size = self.tolerance * self.misfit / MISFIT
            return [
                f"If the policies are estimates, set tolerance to the size of their errors, which would be {size:.2g} at least; "
                "for demonstrations use MaximumLikelihood; else try another temperature or temperatures per expert."
            ]
        return []
