"""How far ahead people look: what a discount factor weighs and how that is written, and weights of other shapes.

*Definition.* A discount factor γ weighs what happens t from now by `γ^t`. The effective planning horizon is the sum of these
weights over the longest episode of the task, which lasts H (infinite where states can recur):

    in steps                  h = 1 + γ + … + γ^(H−1) = (1 − γ^H) / (1 − γ),      without an end 1/(1−γ);
    in time (semi-Markov)     h = ∫₀ᴴ γ^t dt          = (1 − γ^H) / (−ln γ),      without an end −1/ln γ, the time constant.

It is a rule of thumb, not a cut-off: what comes later counts less, and is never left out. In time it does not depend on the unit:
per minute γ is the 60th root of γ per hour, and h is 60 times as large. The half-life `ln 2 / (−ln γ)` is the delay after which
something counts half.

*Look-ahead.* The weights of what happens t steps from now have one of five shapes. They begin with d(1) = 1 and never grow. Plans
(`planning.weighted_plan`) need only the step discounts `ρ_t = d(t+1)/d(t)`:

| family | d(t) | ρ_t | parameters |
|---|---|---|---|
| `Exponential` | γ^(t−1) | γ | discount γ |
| `Depth` | 1 for t ≤ n, else 0 | 1 for t < n, else 0 | depth n = 1, …, H |
| `Hyperbolic` | 1/(1 + κ(t−1)) | (1 + κ(t−1))/(1 + κt) | kappa κ ≥ 0 |
| `QuasiHyperbolic` | 1, then β δ^(t−1) | βδ, then δ | beta β and delta δ |
| `FreeWeights` | any | any in [0,1] | the weights d(2), …, d(H) |

H is the number of steps that a person can look ahead: with H = 1 nothing of this matters, and with H = 2 all families but `Depth`
are one. Where a step has weight 0, nothing after it counts.

A family searches *coordinates* in [0,1] (n for `Depth`) and reports *parameters*. They differ for `Hyperbolic`, whose coordinate
is d(2) = 1/(1+κ), and for `FreeWeights`, whose coordinates are ρ_1, …, ρ_(H−1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import expm1, inf, isinf, isnan, log, nan
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from multihorizon.checks import Floats
from multihorizon.mdp import MDP, steps_left, time_left
from multihorizon.words import horizon_text


@dataclass(frozen=True)
class Horizon:
    """The conversion of one task's discount factors into horizons, as numbers and in words.

    Attributes:
        longest: H, the most steps or the most time that an episode can take; infinite where states can recur.
        unit: of time, in the singular, "" where it has no name; None where horizons are in steps.

    Attributes that follow from these:
        timed: whether horizons are in units of time and not in steps.
        one, many: the unit that horizons are counted in, in the singular and in the plural.
        formula: of horizons in γ, for captions and pages.
        meaning: the definition of a horizon, in a sentence or two.

    Example:
        >>> Horizon()(0.75), round(Horizon(3)(0.9), 2), Horizon(3)(1.0)
        (4.0, 2.71, 3)
        >>> Horizon(unit="hour").text(0.9), Horizon(unit="minute").text(0.9 ** (1 / 60))
        ('9.5 hours', '569.5 minutes')
    """

    longest: float = inf
    unit: str | None = None
    timed: bool = field(init=False, repr=False, compare=False)
    one: str = field(init=False, repr=False, compare=False)
    many: str = field(init=False, repr=False, compare=False)
    formula: str = field(init=False, repr=False, compare=False)
    meaning: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Word the unit, the formula and the definition."""
        timed = self.unit is not None
        one = "step" if self.unit is None else self.unit or "unit of time"
        many = "units of time" if self.unit == "" else f"{one}s"
        formula, end = "−1/ln γ" if timed else "1/(1−γ)", ""
        if not isinf(self.longest):
            formula = f"(1 − γ^{self.longest:g})/({'−ln γ' if timed else '1 − γ'})"
            end = f", because no episode takes more than {self.longest:,.4g} {many}"
        meaning = f"The effective planning horizon is {formula} {many}{end}: the sum of the weights of all that is to come."
        if timed:
            meaning += " The half-life, ln 2/(−ln γ), is the delay after which a reward counts half. Neither depends on the unit."
        for name, value in (("timed", timed), ("one", one), ("many", many), ("formula", formula), ("meaning", meaning)):
            object.__setattr__(self, name, value)

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

    def number(self, discount: float) -> str:
        """Write a horizon with one decimal, and two significant digits where it is short; beyond a million no number is given."""
        return horizon_text(self(discount))

    def text(self, discount: float) -> str:
        """Write a horizon with its unit."""
        return f"{self.number(discount)} {self.many}"

    def interval(self, low: float, high: float) -> str:
        """Write both ends of an interval of discount factors as horizons."""
        return f"{self.number(low)} to {self.number(high)}"


#: Values of a coordinate that are tried before the search.
TRIED = (0.05, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0)


@runtime_checkable
class Lookahead(Protocol):
    """A family of look-ahead weights, as `MaximumLikelihood(lookahead=…)` and `compare_lookahead` take it.

    Arrays of coordinates are `(n,m)`: one row per expert. Coordinates are searched in [0,1].

    Example:
        >>> import multihorizon as mh
        >>> isinstance(mh.Hyperbolic(), Lookahead)
        True
    """

    name: ClassVar[str]

    def parameters(self, steps: int) -> tuple[str, ...]:
        """Name the m parameters of a person who can look `steps` steps ahead."""
        ...

    def step_discounts(self, coordinates: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return ρ `(H−1,n)`, and its derivatives `(H−1,n,m)` by the coordinates."""
        ...

    def report(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return the parameters `(n,m)`, and their derivatives `(n,m,m)` by the coordinates."""
        ...

    def tried(self, steps: int) -> Floats:
        """Return coordinates `(c,m)` to begin a search with, scattered over the family."""
        ...


@dataclass(frozen=True)
class Exponential:
    """Weights γ^(t−1): each step counts γ times as much as the one before. The one family that is consistent over time.

    Example:
        >>> Exponential().parameters(3)
        ('discount',)
    """

    name: ClassVar[str] = "exponential"

    def parameters(self, steps: int) -> tuple[str, ...]:
        """Name the discount factor."""
        return ("discount",)

    def step_discounts(self, coordinates: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return γ at every step."""
        shape = (steps - 1, len(coordinates))
        return np.broadcast_to(coordinates[:, 0], shape).copy(), np.ones((*shape, 1))

    def report(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return the discount factor, which is its own coordinate."""
        return coordinates, _identity(coordinates)

    def tried(self, steps: int) -> Floats:
        """Return discount factors from 0.05 to 1."""
        return np.array(TRIED)[:, None]


@dataclass(frozen=True)
class Depth:
    """Weight 1 for the next n steps and 0 for all after them.

    Example:
        >>> Depth().parameters(3)
        ('depth',)
    """

    name: ClassVar[str] = "depth"

    def parameters(self, steps: int) -> tuple[str, ...]:
        """Name the depth."""
        return ("depth",)

    def step_discounts(self, coordinates: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return 1 up to the depth, then 0. A depth is a whole number, so it has no derivative."""
        t = np.arange(1, steps)[:, None]
        return (t < coordinates[:, 0]).astype(np.float64), np.zeros((steps - 1, len(coordinates), 1))

    def report(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return the depth, which is its own coordinate."""
        return coordinates, _identity(coordinates)

    def tried(self, steps: int) -> Floats:
        """Return all depths."""
        return np.arange(1.0, steps + 1)[:, None]


@dataclass(frozen=True)
class Hyperbolic:
    """Weights 1/(1+κ(t−1)): the near future loses weight fast, the far future slowly.

    Example:
        >>> Hyperbolic().parameters(3)
        ('kappa',)
    """

    name: ClassVar[str] = "hyperbolic"

    def parameters(self, steps: int) -> tuple[str, ...]:
        """Name κ, which is infinite for a person who weighs only the next step."""
        return ("kappa",)

    def step_discounts(self, coordinates: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return `ρ_t = (h + (1−h)(t−1))/(h + (1−h)t)` with h = d(2)."""
        h = coordinates[:, 0]
        t = np.arange(1, steps)[:, None]
        below = h + (1 - h) * t
        return 1 - (1 - h) / below, (1 / below**2)[:, :, None]

    def report(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return κ = 1/h − 1."""
        with np.errstate(divide="ignore"):
            kappa = 1 / coordinates - 1
            slope = -1 / coordinates**2
        return kappa, slope[:, :, None]

    def tried(self, steps: int) -> Floats:
        """Return weights of the second step from 0.05 to 1."""
        return np.array(TRIED)[:, None]


@dataclass(frozen=True)
class QuasiHyperbolic:
    """Weights 1, then β δ^(t−1): everything but the next step loses weight at once (β ≤ 1), and then at a constant rate.

    Example:
        >>> QuasiHyperbolic().parameters(3)
        ('beta', 'delta')
    """

    name: ClassVar[str] = "quasi-hyperbolic"

    def parameters(self, steps: int) -> tuple[str, ...]:
        """Name β and δ."""
        return ("beta", "delta")

    def step_discounts(self, coordinates: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return βδ for the first step, δ for the others."""
        beta, delta = coordinates.T
        first = np.arange(1, steps)[:, None] == 1
        slopes = np.stack([np.where(first, delta, 0.0), np.where(first, beta, 1.0)], axis=2)
        return np.where(first, beta * delta, delta), slopes

    def report(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return both parameters, which are their own coordinates."""
        return coordinates, _identity(coordinates)

    def tried(self, steps: int) -> Floats:
        """Return all pairs of values from 0.05 to 1."""
        return np.array([(beta, delta) for beta in TRIED for delta in TRIED])


@dataclass(frozen=True)
class FreeWeights:
    """Any weights that never grow. All other families are among them, so each of those can be tested against this one.

    Example:
        >>> FreeWeights().parameters(3)
        ('d(2)', 'd(3)')
    """

    name: ClassVar[str] = "free weights"

    def parameters(self, steps: int) -> tuple[str, ...]:
        """Name the weights of the second and later steps."""
        return tuple(f"d({t})" for t in range(2, steps + 1))

    def step_discounts(self, coordinates: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return the coordinates, which are the step discount factors."""
        return coordinates.T.copy(), np.broadcast_to(np.eye(steps - 1)[:, None, :], (steps - 1, *coordinates.shape)).copy()

    def report(self, coordinates: Floats) -> tuple[Floats, Floats]:
        """Return `d(t+1) = ρ_1 ⋯ ρ_t`."""
        n, m = coordinates.shape
        slopes = np.zeros((n, m, m))
        for j in range(m):
            others = coordinates.copy()
            others[:, j] = 1.0
            slopes[:, j:, j] = others.cumprod(axis=1)[:, j:]
        return coordinates.cumprod(axis=1), slopes

    def tried(self, steps: int) -> Floats:
        """Return the weights that the other families try."""
        return np.concatenate([family.step_discounts(family.tried(steps), steps)[0].T for family in FAMILIES[:-1]])


#: All families; the last contains the others.
FAMILIES: tuple[Lookahead, ...] = (Exponential(), Depth(), Hyperbolic(), QuasiHyperbolic(), FreeWeights())


def family_named(name: str, option: str = "lookahead", *others: str) -> Lookahead:
    """Return the family of this name, words joined by hyphens or spaces; a message names the option and its `others` values."""
    for family in FAMILIES:
        if family.name.replace(" ", "-") == name.strip().lower().replace(" ", "-"):
            return family
    names = ", ".join([*(family.name.replace(" ", "-") for family in FAMILIES), *others])
    raise ValueError(f"{option} must be one of {names}, got {name}")


def weights_of(step_discounts: Floats) -> Floats:
    """Return the weights d(1), …, d(H) `(n,H)` of step discounts `(H−1,n)`."""
    first = np.ones((1, step_discounts.shape[1]))
    return np.concatenate([first, step_discounts]).cumprod(axis=0).T


def step_discounts_of(weights: Sequence[float] | Floats) -> Floats:
    """Return ρ `(H−1,)` of one person's weights `(H,)`; 0 after a weight of 0."""
    d = np.asarray(weights, dtype=np.float64)
    return np.where(d[:-1] > 0, d[1:] / np.where(d[:-1] > 0, d[:-1], 1.0), 0.0)


def _identity(coordinates: Floats) -> Floats:
    n, m = coordinates.shape
    return np.broadcast_to(np.eye(m), (n, m, m)).copy()
