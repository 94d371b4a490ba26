"""How far ahead a discount factor looks: the one definition of a horizon, and how it is written.

*Definition.* A discount factor γ weighs what happens t from now by `γ^t`. The effective planning horizon is the sum of these
weights over the longest episode of the task, which lasts H (infinite where states can recur):

    in steps                  h = 1 + γ + … + γ^(H−1) = (1 − γ^H) / (1 − γ),      without an end 1/(1−γ);
    in time (semi-Markov)     h = ∫₀ᴴ γ^t dt          = (1 − γ^H) / (−ln γ),      without an end −1/ln γ, the time constant.

It is a rule of thumb, not a cut-off: what comes later counts less, and is never left out. In time it does not depend on the unit:
per minute γ is the 60th root of γ per hour, and h is 60 times as large. The half-life `ln 2 / (−ln γ)` is the delay after which
something counts half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import expm1, inf, isinf, isnan, log, nan

from multihorizon.mdp import MDP, steps_left, time_left
from multihorizon.words import horizon_text


@dataclass(frozen=True)
class Horizon:
    """The conversion of one task's discount factors into horizons, as numbers and in words.

    Attributes:
        longest: H, the most steps or the most time that an episode can take; infinite where states can recur.
        unit: of time, in the singular, "" where it has no name; None where horizons are in steps.

    Example:
        >>> Horizon()(0.75), round(Horizon(3)(0.9), 2), Horizon(3)(1.0)
        (4.0, 2.71, 3)
        >>> Horizon(unit="hour").text(0.9), Horizon(unit="minute").text(0.9 ** (1 / 60))
        ('9.5 hours', '569.5 minutes')
    """

    longest: float = inf
    unit: str | None = None

    @classmethod
    def of(cls, mdps: Iterable[MDP]) -> Horizon:
        """Return the horizon of tasks that are analysed together: the longest of their episodes counts."""
        longest = 0.0
        units = set[str | None]()
        for mdp in dict.fromkeys(mdps):
            left = steps_left(mdp) if mdp.durations is None else time_left(mdp)
            longest = max(longest, inf if left is None else float(left.max()))
            units.add(None if mdp.durations is None else mdp.durations.unit)
        return cls(longest, units.pop() if len(units) == 1 else "")

    def __call__(self, discount: float) -> float:
        """Return the effective planning horizon of a discount factor; NaN for NaN."""
        if isnan(discount):
            return nan
        if discount <= 0:
            return 0.0 if self.timed else min(1.0, self.longest)
        if discount >= 1:
            return self.longest
        weight = 1.0 if isinf(self.longest) else -expm1(self.longest * log(discount))
        return weight / (-log(discount) if self.timed else 1 - discount)

    def half_life(self, discount: float) -> float:
        """Return the delay after which something counts half; infinite for a discount factor of 1."""
        if isnan(discount):
            return nan
        return 0.0 if discount <= 0 else inf if discount >= 1 else log(2) / -log(discount)

    @property
    def timed(self) -> bool:
        """Whether horizons are in units of time and not in steps."""
        return self.unit is not None

    @property
    def one(self) -> str:
        """The unit that horizons are counted in, in the singular."""
        return "step" if self.unit is None else self.unit or "unit of time"

    @property
    def many(self) -> str:
        """The unit that horizons are counted in, in the plural."""
        return "units of time" if self.unit == "" else f"{self.one}s"

    def number(self, discount: float) -> str:
        """Write a horizon with one decimal, and two significant digits where it is short; beyond a million no number is given."""
        return horizon_text(self(discount))

    def text(self, discount: float) -> str:
        """Write a horizon with its unit."""
        return f"{self.number(discount)} {self.many}"

    def interval(self, low: float, high: float) -> str:
        """Write both ends of an interval of discount factors as horizons."""
        return f"{self.number(low)} to {self.number(high)}"

    @property
    def formula(self) -> str:
        """The formula of horizons in γ, for captions and pages."""
        if isinf(self.longest):
            return "−1/ln γ" if self.timed else "1/(1−γ)"
        return f"(1 − γ^{self.longest:g})/({'−ln γ' if self.timed else '1 − γ'})"

    @property
    def meaning(self) -> str:
        """The definition of a horizon, in a sentence or two."""
        end = "" if isinf(self.longest) else f", because no episode takes more than {self.longest:,.4g} {self.many}"
        words = (
            f"The effective planning horizon is {self.formula} {self.many}{end}: the sum of the weights of all that is to come."
        )
        if self.timed:
            words += " The half-life, ln 2/(−ln γ), is the delay after which a reward counts half. Neither depends on the unit."
        return words
