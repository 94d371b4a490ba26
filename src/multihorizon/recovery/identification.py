"""The report on identifiability, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Bools, Floats
from multihorizon.recovery.linear_system import LIMIT, MISFIT

#: Ranges narrower than this are printed as one number, and ends this close to 0 or 1 as the limit that they are.
PRINTED = 5e-5


@dataclass(frozen=True, eq=False)
class Member:
    """One explanation of the experts, with the evidence for it.

    `error` is `max |π − π*|`, with the policies planned again from it; `log_likelihood` is that of the decisions, NaN where
    policies were given.
    """

    discounts: Floats
    reward: Floats
    temperature: Floats
    error: float
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class Identification:
    """Whether the experts identify their discounts.

    Attributes:
        status: "unique", "set" or "infeasible".
        dimension: of the set of discounts that the equations leave open; 0 for a single point (or several isolated ones).
        discounts: `(K,)`, the answer, one member of the set, or the closest explanation.
        intervals: `(K,2)`, each discount's range over the set, widened by what errors of size `tolerance` can do; NaN where
            nothing explains the experts.
        reward: reward parameters that go with `discounts`; its mean is 0 where a constant is free.
        reward_identified: `(d,)`, which of them are the same in all explanations (apart from a constant added to all).
        residual: `max |(Q − V)/λ − log π*|`, recomputed from discounts and reward.
        singular_values: of the equations in the discounts; their rank is the number of discounts less `dimension`.
        temperature: `(K,)`.
        members: two explanations that are far apart, where there is a set and both are confirmed.
        misfit: how much worse the equations hold than errors of size `tolerance` would explain; above 5 is infeasible.
        surplus: how many more equations than unknowns the experts have in common; with none, any experts would fit.
        coincidence: a rough chance that experts with unrelated rewards would fit as well.
        from_counts: whether frequencies of decisions stand in for policies.
        reward_dimension: directions in which the reward is open even at these discounts.
        free_constant: whether one of them is a constant added to the whole reward.
        unknown_parameters: states that no transition enters, about whose reward nothing can be said.
    """

    status: str
    dimension: int
    discounts: Floats
    intervals: Floats
    reward: Floats
    reward_identified: Bools
    residual: float
    singular_values: Floats
    temperature: Floats
    members: tuple[Member, ...]
    tolerance: float
    misfit: float
    surplus: int
    coincidence: float
    from_counts: bool
    experts: tuple[str, ...]
    reward_dimension: int
    free_constant: bool
    unknown_parameters: tuple[str, ...]

    @property
    def discounts_identified(self) -> Bools:
        """Which discounts `(K,)` are the same in all explanations, up to what the errors can do."""
        narrow: Bools = np.diff(self.intervals, axis=1)[:, 0] <= LIMIT
        return narrow

    def listed_as(self, names: tuple[str, ...], free_temperatures: bool) -> Identification:
        """The same finding with the experts in the order of `names`; free temperatures are relative to the first of them."""
        place = [self.experts.index(name) for name in names]
        first = float(self.temperature[place[0]])
        scale = first if free_temperatures and first > 0 else 1.0
        members = [
            replace(m, discounts=m.discounts[place], reward=m.reward / scale, temperature=m.temperature[place] / scale)
            for m in self.members
        ]
        return replace(
            self,
            experts=names,
            discounts=self.discounts[place],
            intervals=self.intervals[place],
            reward=self.reward / scale,
            temperature=self.temperature[place] / scale,
            members=tuple(members),
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per expert: the discount, NaN where it is not identified, and its range over all explanations."""
        low, high = self.intervals.T
        discount = np.where(self.discounts_identified, self.discounts, np.nan)
        return pd.DataFrame({"expert": self.experts, "discount": discount, "discount_low": low, "discount_high": high})

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON and `Solution.evidence` take them; None where nothing is known."""
        plain: dict[str, Any] = {}
        for name, value in vars(self).items():
            plain[name] = value.tolist() if isinstance(value, np.ndarray) else value
        closest = self.status == "infeasible"
        plain["discounts"] = _known(self.discounts, self.discounts_identified | closest)
        plain["reward"] = _known(self.reward, self.reward_identified | closest)
        plain["intervals"] = [[None if np.isnan(end) else float(end) for end in pair] for pair in self.intervals]
        plain["members"] = [_plain_member(m) for m in self.members]
        plain["unknown_parameters"] = list(self.unknown_parameters)
        plain["experts"] = list(self.experts)
        return plain

    def summary(self) -> str:
        """The finding in plain words, with what to do next."""
        return "\n".join([self.headline(), *self._ranges(), *self._proof(), *self._reward(), *self._advice()])

    def headline(self) -> str:
        """The finding in one sentence."""
        if self.status == "unique":
            return f"The experts identify their discounts, up to {self._errors()}."
        if self.status == "infeasible":
            return (
                f"No discounts and shared reward explain the experts up to {self._errors()}: "
                f"the equations hold {self.misfit:.3g} times worse than that. The closest explanation leaves {self.residual:.3g}."
            )
        return self._set_headline()

    def _errors(self) -> str:
        return "the errors of their counts" if self.from_counts else f"errors of {self.tolerance:.3g} in log π"

    def _set_headline(self) -> str:
        shape = {1: "a curve", 2: "a surface"}.get(self.dimension, f"a set of dimension {self.dimension}")
        open_ = counted(self.dimension, "combination")
        if self.dimension == 0:
            return "Several separate explanations fit the experts equally well."
        if self.from_counts:
            return f"These decisions do not identify the discounts: the errors of their counts leave {open_} of them open."
        if self.discounts_identified.all():
            return (
                f"The experts do not identify their discounts by themselves: {shape} of them explains the same behaviour, "
                "and only the limits 0 and 1 single out one point of it."
            )
        if not self.members or max(m.error for m in self.members) > 1e-6:
            return f"Errors as large as those of the policies leave {open_} of the discounts open."
        return f"The experts do not identify their discounts: {shape} of them explains the same behaviour."

    def _ranges(self) -> list[str]:
        rows = zip(self.experts, self.discounts, self.intervals, strict=True)
        return [f"  {name}: {self._range(float(gamma), float(low), float(high))}" for name, gamma, (low, high) in rows]

    def _range(self, gamma: float, low: float, high: float) -> str:
        if self.status == "infeasible":
            return f"closest discount {gamma:.4f}"
        if high - low <= 2 * PRINTED:
            return f"discount {gamma:.4f}"
        if low <= PRINTED and high >= 1 - PRINTED:
            return "any discount from 0 to 1"
        if low <= PRINTED:
            return f"discount at most {high:.4f}"
        if high >= 1 - PRINTED:
            return f"discount at least {low:.4f}"
        return f"discount from {low:.4f} to {high:.4f}"

    def _proof(self) -> list[str]:
        lines = []
        for m in self.members:
            discounts = ", ".join(f"{gamma:.4f}" for gamma in m.discounts)
            evidence = (
                f"makes the decisions as likely as any found (log-likelihood {m.log_likelihood:.1f})"
                if self.from_counts
                else f"reproduces every policy to {m.error:.1e}"
            )
            lines.append(f"  For example {discounts} with a reward of its own {evidence}.")
        return lines

    def _reward(self) -> list[str]:
        lines = []
        if self.free_constant:
            lines.append("A constant may be added to the whole reward; its mean is set to 0.")
        if others := self.reward_dimension - self.free_constant:
            lines.append(f"Even at given discounts the reward is open in {counted(others, 'further direction')}.")
        if self.unknown_parameters:
            some = ", ".join(self.unknown_parameters[:5]) + (", …" if len(self.unknown_parameters) > 5 else "")
            lines.append(f"Nothing can be said about the reward of states that are never entered: {some}.")
        return lines

    def _advice(self) -> list[str]:
        if self.status == "unique":
            return []
        if self.from_counts:
            return ["This check treats frequencies as policies with errors. MaximumLikelihood uses the decisions in full."]
        if self.status == "set":
            return [
                "To narrow it down: the same experts in a variant of the task with other transitions (Problem.join), "
                "another expert, fewer reward parameters (features), or one discount fixed from other knowledge."
            ]
        size = self.tolerance * self.misfit / MISFIT
        return [
            f"If the policies are estimates, set tolerance to the size of their errors: {size:.2g} or more would be needed. "
            "Otherwise try another temperature, temperatures per expert, or ask whether all experts share one reward."
        ]


def counted(number: int, noun: str) -> str:
    """ "1 direction", "2 directions"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _known(values: Floats, known: Bools) -> list[float | None]:
    return [float(value) if ok else None for value, ok in zip(values, known, strict=True)]


def _plain_member(member: Member) -> dict[str, Any]:
    likelihood = None if np.isnan(member.log_likelihood) else member.log_likelihood
    return {
        "discounts": member.discounts.tolist(),
        "reward": member.reward.tolist(),
        "temperature": member.temperature.tolist(),
        "error": member.error,
        "log_likelihood": likelihood,
    }
