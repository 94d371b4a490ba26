"""Intervals and tests of effects that the decisions hardly bound, by the profile likelihood.

Where all persons of a group may as well plan for ever, the likelihood of their mean rises towards a limit and stays there. An
interval that is symmetric around the estimate is then wrong at both ends, and the further the estimate runs away, the less it
seems to differ from 0 (Hauck and Donner, 1977). The profile likelihood has neither fault: with l(v) the maximum over all other
parameters where the effect is v, and l the maximum over all,

    r(v) = √(2 (l − l(v)))

is compared with Student's t, as the estimate over its standard error is elsewhere. The end of an interval is where r(v) is its
quantile. It is found by the secant method, and each maximum starts from the last. Where the decisions do not bound an effect, the
weak prior does.

What follows from the most likely population: effects of covariates, the spread between persons, persons, and predictions.

The search has the covariates in units of its own, X T (`covariates.py`), so that effects are b = T β and c = T κ with β and κ
those that it finds. With C the covariance of ψ (`marginal_ascent.py`), n persons and p terms:

* *Effects* b on logit γ and c on log λ have intervals and tests by Student's t with n − p degrees of freedom. Effects on logit γ
  that weak priors hold have them by the profile likelihood (`effect_profiles.py`).
* *A factor* with several columns, such as a group of three levels, has one test for all of them: that its part of `X_i b` is the
  same for everyone. With q independent differences d of covariance D it is `d'D⁻¹d/q`, by Fisher's F with q and n − p degrees
  of freedom. It does not depend on the level that others are compared with.
* *Contrasts* are differences between typical persons who differ in one column alone: every pair of its groups, or the quartiles
  of its numbers. With k the difference of their rows of X they are `k'b`, by Student's t; p-values of pairs of more than two
  groups are corrected for their number by Holm's method.
* *Weak priors* (`weak_priors.py`) move the answer by about `C g`. Where that is more than `MOVED_EFFECT` standard errors of an
  effect, changes a spread by more than the share `MOVED_SPREAD`, or the correlation by more than `MOVED_CORRELATION`, the
  solution's message says so.
* *Persons.* Given the decisions, η_i has the mean and the covariance of the quadrature, averaged over the spreads that are likely
  (`spread_average.py`). The errors of reward and effects add `D_i C' D_iᵀ`, D_i the derivative of that mean in ψ and C' what is
  left of C at a given spread. The *reliability* of η_i is the share of the variance between persons that the decisions explain,
  `1 − K_i/Σ`, K_i the covariance at the most likely Σ.
* *Estimated transitions* are drawn anew around their estimates, with their sample sizes. A draw that moves the gradient by δg
  moves ψ by `C δg`; the mean of the squares is added to C.
* *A new person* with covariates x has a logit γ with mean `x'b` and variance `Σ₁₁ + x' Cov(b) x`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import f, norm, t

from multihorizon.checks import RANK_TOLERANCE, Floats
from multihorizon.choice.tabular import Likelihood, redrawn
from multihorizon.estimate.intervals import holm
from multihorizon.estimate.population.covariates import Covariates
from multihorizon.estimate.population.marginal import (
    Layout,
    Marginal,
    Maximum,
    Parameters,
    Persons,
    adapted_nodes,
    averaged_shares,
    correlation,
    covariance_at_spread,
    covariance_of,
    maximum_at,
)
from multihorizon.solution import Status

#: How near r must come to the quantile, and the most maxima on the way to an end.
NEAR, MAX_POINTS = 0.02, 30
#: The longest step outwards.
LONGEST_STEP = 1.5


@dataclass(frozen=True, eq=False)
class EffectProfile:
    """The profile of ψ_j around the maximum `found`, whose parameters have this covariance."""

    found: Maximum
    j: int
    covariance: Floats
    degrees: int

    @cached_property
    def top(self) -> Maximum:
        """The maximum, with as many nodes as the maxima that it is compared with."""
        return self._at(self.found, float(self.found.psi[self.j]))

    def interval(self, level: float) -> tuple[float, float]:
        """Both ends; NaN where a maximum on the way did not finish."""
        quantile = float(t.ppf(0.5 + level / 2, self.degrees))
        return self._end(-1.0, quantile), self._end(1.0, quantile)

    def p_value(self) -> float:
        """Of the test that the effect is 0."""
        at, centre = self.top, float(self.top.psi[self.j])
        for share in np.linspace(1, 0, 2 + int(abs(centre) / LONGEST_STEP))[1:]:
            at = self._at(at, share * centre)
        return float(2 * t.sf(self._root(at), self.degrees))

    @property
    def _error(self) -> float:
        return float(np.sqrt(self.covariance[self.j, self.j]))

    def _at(self, start: Maximum, value: float) -> Maximum:
        return maximum_at(start, self.j, value, self.covariance[:, self.j] / self.covariance[self.j, self.j])

    def _root(self, at: Maximum) -> float:
        """r; NaN where the maximum did not finish."""
        gap = self.top.value.objective - at.value.objective
        return float(np.sqrt(2 * max(gap, 0.0))) if at.finished and self.top.finished else np.nan

    def _end(self, sign: float, quantile: float) -> float:
        inside, reached = self.top, 0.0
        step = min(self._error, LONGEST_STEP)
        for _ in range(MAX_POINTS):
            at = self._at(inside, float(inside.psi[self.j]) + sign * step)
            root = self._root(at)
            if not root > reached or abs(root - quantile) <= NEAR:
                return float(at.psi[self.j]) if root > reached else np.nan
            missing = step * (quantile - reached) / (root - reached)
            if root > quantile:
                step = missing
            else:
                inside, reached, step = at, root, min(missing - step, LONGEST_STEP)
        return np.nan


LEVEL = 0.95
#: An effect with a larger component in directions of which the decisions say nothing is not identified.
NULL_COMPONENT = 1e-3
#: Weak priors are announced where they move an effect by more standard errors, a standard deviation by a larger share, or the
#: correlation by more.
MOVED_EFFECT, MOVED_SPREAD, MOVED_CORRELATION = 0.1, 0.25, 0.15
#: Nodes of the quadrature with drawn transitions.
DRAW_NODES = 5


@dataclass(frozen=True, eq=False)
class Inference:
    """The maximum and what follows from it; `known` says whether the decisions identify anybody's discount."""

    covariates: Covariates
    found: Maximum
    known: bool = True
    parts: Parameters = field(init=False)
    covariance: Floats = field(init=False)
    identified: bool = field(init=False)

    def __post_init__(self) -> None:
        layout = self.found.marginal.layout
        covariance, lost = covariance_of(self.found.information)
        kept = self.known and bool((lost[layout.discount] <= NULL_COMPONENT).all())
        object.__setattr__(self, "parts", layout.unpack(self.found.psi))
        object.__setattr__(self, "covariance", covariance + _transition_covariance(self.found, covariance))
        object.__setattr__(self, "identified", kept)

    @property
    def status(self) -> Status:
        """Whether the effects can be used. Where nobody's discount is identified, the maximum decides nothing."""
        if self.known and not self.found.finished:
            return Status.NOT_CONVERGED
        return Status.CONVERGED if self.identified else Status.NOT_IDENTIFIED

    @property
    def degrees(self) -> int:
        """n − p."""
        n, p = self.covariates.matrix.shape
        return int(n - p)

    @property
    def quantile(self) -> float:
        """Of Student's t for intervals; NaN where there are none."""
        return float(t.ppf(0.5 + LEVEL / 2, self.degrees)) if self.status == Status.CONVERGED else np.nan

    def own_covariance(self, kind: int) -> Floats:
        """The covariance `(p,p)` of β (0) or κ (1), the effects in units of the search."""
        layout = self.found.marginal.layout
        if kind == 0:
            return self.covariance[layout.discount, layout.discount]
        return layout.heat_basis @ self.covariance[layout.heat, layout.heat] @ layout.heat_basis.T

    def effect_covariance(self, kind: int) -> Floats:
        """The covariance `(p,p)` of the effects on logit γ (0) or log λ (1)."""
        covariance: Floats = self.covariates.units @ self.own_covariance(kind) @ self.covariates.units.T
        return covariance

    def effects(self, kind: int) -> dict[str, dict[str, Any]]:
        """Estimate, interval and p-value of each term. What only sets the scale of the reward has no interval."""
        scale_open = kind == 1 and self.found.marginal.layout.model.scale_is_free
        errors = np.sqrt(np.diag(self.effect_covariance(kind)))
        table = {}
        profiles = self.profiles if kind == 0 else {}
        effects = self.covariates.units @ self.parts.effects[:, kind]
        for term, estimate, error in zip(self.covariates.terms, effects, errors, strict=True):
            known = np.nan if scale_open and term == "Intercept" else 1.0
            half = known * self.quantile * error
            p = known * 2 * t.sf(abs(estimate) / error, self.degrees) if self.status == Status.CONVERGED and error > 0 else np.nan
            table[term] = {
                "estimate": float(estimate),
                "standard_error": float(known * error),
                "interval": [float(estimate - half), float(estimate + half)],
                "p": float(p),
                "method": "standard error",
                **profiles.get(term, {}),
            }
        return table

    @cached_property
    def profiles(self) -> dict[str, dict[str, Any]]:
        """Interval and p-value of effects of covariates on logit γ that the decisions hardly bound, if they can be had."""
        table: dict[str, dict[str, Any]] = {}
        first = self.found.marginal.layout.discount.start
        moved = self.moved_by_priors()["effects"] if self.status == Status.CONVERGED else {}
        for place, (term, errors) in enumerate(moved.items()):
            if abs(errors) > MOVED_EFFECT and term != "Intercept":
                profile = EffectProfile(self.found, first + place, self.covariance, self.degrees)
                low, high, p = *profile.interval(LEVEL), profile.p_value()
                if np.isfinite([low, high, p]).all():
                    unit = float(self.covariates.units[place, place])
                    table[term] = {"interval": [unit * low, unit * high], "p": p, "method": "profile likelihood"}
        return table

    def factors(self, kind: int) -> dict[str, dict[str, Any]]:
        """The test of each factor with several columns: F, its degrees of freedom, p, and the terms of its columns."""
        table = {}
        for name, places in self.covariates.factors.items():
            columns = self.found.marginal.layout.design[:, places]
            _, sizes, rows = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
            varied = rows[sizes > RANK_TOLERANCE * len(columns) * sizes.max(initial=0.0)]
            apart = varied @ self.parts.effects[list(places), kind]
            covariance = varied @ self.own_covariance(kind)[np.ix_(places, places)] @ varied.T
            known = self.status == Status.CONVERGED and len(varied) > 0
            statistic = float(apart @ np.linalg.solve(covariance, apart)) / len(varied) if known else np.nan
            p = float(f.sf(statistic, len(varied), self.degrees)) if known else np.nan
            terms = [self.covariates.terms[place] for place in places]
            table[name] = {"F": statistic, "degrees": [len(varied), self.degrees], "p": p, "terms": terms}
        return table

    def contrasts(self, kind: int) -> list[dict[str, Any]]:
        """All pairs of groups, and the quartiles of numbers: how much higher logit γ or log λ is in the second level."""
        known = self.status == Status.CONVERGED
        units, covariance, beta = self.covariates.units, self.own_covariance(kind), self.parts.effects[:, kind]
        effects, back = self.effects(kind), self._typical(kind)
        table: list[dict[str, Any]] = []
        for comparison in self.covariates.comparisons:
            rows = comparison.rows @ units
            found: list[dict[str, Any]] = []
            for i, j in combinations(range(len(rows)), 2):
                apart = comparison.rows[j] - comparison.rows[i]
                estimate = float((rows[j] - rows[i]) @ beta)
                error = float(np.sqrt((rows[j] - rows[i]) @ covariance @ (rows[j] - rows[i])))
                half = self.quantile * error
                p = float(2 * t.sf(abs(estimate) / error, self.degrees)) if known and error > 0 else np.nan
                said = {"interval": [estimate - half, estimate + half], "p": p, "method": "standard error"}
                used = np.flatnonzero(np.abs(apart) > RANK_TOLERANCE * np.abs(apart).max(initial=0.0))
                if used.size == 1:  # one term says it all, and may be known by its profile
                    term, size = effects[self.covariates.terms[used[0]]], float(apart[used[0]])
                    said = {"interval": sorted(size * end for end in term["interval"]), "p": term["p"], "method": term["method"]}
                found.append(
                    {
                        "column": comparison.column,
                        "number": comparison.is_number,
                        "levels": [comparison.levels[i], comparison.levels[j]],
                        "typical": [float(back(rows[i] @ beta)), float(back(rows[j] @ beta))],
                        "estimate": estimate,
                        "standard_error": error,
                        **said,
                    }
                )
            for row, adjusted in zip(found, holm(np.array([row["p"] for row in found])), strict=True):
                row["adjusted"] = float(adjusted)
            table += found
        return table

    def _typical(self, kind: int) -> Callable[[float], float]:
        """From a mean of logit γ or log λ to a typical discount or temperature."""
        return (lambda mean: self.found.marginal.largest * expit(mean)) if kind == 0 else np.exp

    def moved_by_priors(self) -> dict[str, dict[str, float]]:
        """What weak priors move: effects on logit γ by how many standard errors, the spreads by which share, the correlation."""
        layout = self.found.marginal.layout
        pull = layout.weak_priors(self.parts)[1]
        moved = self.covariates.units @ (self.covariance @ pull["means"])[layout.discount]
        effects = moved / np.sqrt(np.diag(self.effect_covariance(0)))
        shift = self.covariance @ pull["spread"]
        before = layout.unpack(self.found.psi - shift).covariance
        shares = np.sqrt(np.diag(self.parts.covariance) / np.diag(before)) - 1
        loose = layout.unpack(self.found.psi - self.covariance @ pull["correlation"])
        return {
            "effects": dict(zip(self.covariates.terms, effects.tolist(), strict=True)),
            "spread": dict(zip(("discount", "temperature"), shares.tolist(), strict=True)),
            "correlation": {"moved": correlation(self.parts.root) - correlation(loose.root)},
        }

    def spread(self) -> dict[str, dict[str, Any]]:
        """Standard deviations between persons and the correlation, with intervals by the delta method."""
        layout, psi = self.found.marginal.layout, self.found.psi
        errors = self.covariance[layout.spread, layout.spread]
        z = float(norm.ppf(0.5 + LEVEL / 2)) * (1.0 if self.status == Status.CONVERGED else np.nan)
        return {
            name: _with_interval(transform, back, psi[layout.spread], errors, z)
            for name, transform, back in (
                ("discount", lambda v: v[0], np.exp),
                ("temperature", lambda v: 0.5 * np.log(v[1] ** 2 + np.exp(2 * v[2])), np.exp),
                ("correlation", lambda v: np.arcsinh(v[1] / np.exp(v[2])), np.tanh),
            )
        }

    @cached_property
    def shares(self) -> Floats:
        """The shares `(n,Q)` of nodes given the decisions, averaged over the spread if there is an answer."""
        return averaged_shares(self.found) if self.status == Status.CONVERGED else self.found.value.shares

    def persons(self) -> Persons:
        """Each person's η given the decisions, with the errors of spread, reward and effects in the covariance."""
        marginal = self.found.marginal
        mean, within = marginal.moments(self.shares)
        moved = marginal.mean_slopes(self.found.psi, self.found.value.shares)
        left = covariance_at_spread(self.found, self.covariance)
        return Persons(mean, within + moved @ left @ moved.transpose(0, 2, 1), marginal.nodes.precisions)

    def predictions(self) -> dict[str, dict[str, Any]]:
        """For each pattern of covariates the discount of a typical person, and where a new person's may lie."""
        rows = self.covariates.pattern_rows @ self.covariates.units
        known = np.nan if self.status != Status.CONVERGED else 1.0
        variances = known * self.own_covariance(0), float(self.parts.covariance[0, 0])
        ends = predicted(rows, self.parts.effects[:, 0], *variances, self.found.marginal.largest, self.degrees)
        heat = np.exp(rows @ self.parts.effects[:, 1])
        return {
            name: {
                "typical_discount": float(ends[i, 0]),
                "typical_interval": ends[i, 1:3].tolist(),
                "new_person_interval": ends[i, 3:].tolist(),
                "typical_temperature": float(heat[i]),
            }
            for i, name in enumerate(self.covariates.patterns)
        }

    def reliability(self) -> Floats:
        """`1 − Var(η | decisions)/Σ` `(n,2)`."""
        within = self.found.marginal.moments(self.found.value.shares)[1]
        share: Floats = 1 - np.diagonal(within, axis1=1, axis2=2) / np.diag(self.parts.covariance)
        return np.clip(share, 0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """The content of `evidence["population"]`."""
        reliability, persons = self.reliability(), self.persons()
        return {
            "persons": len(self.covariates.matrix),
            "left_out": self.covariates.left_out,
            "degrees": self.degrees,
            "discount": self.effects(0),
            "temperature": self.effects(1),
            "factors": {"discount": self.factors(0), "temperature": self.factors(1)},
            "contrasts": {"discount": self.contrasts(0), "temperature": self.contrasts(1)},
            "columns_of": self.covariates.columns_of,
            "discount_covariance": self.effect_covariance(0).tolist(),
            "weak_priors": self.moved_by_priors(),
            "spread": self.spread(),
            "predictions": self.predictions(),
            "groups": [self.covariates.patterns[g] for g in self.covariates.groups],
            "covariates": {str(c): self.covariates.frame[c].tolist() for c in self.covariates.frame.columns},
            "individuals": {
                "logit_discount": persons.mean[:, 0].tolist(),
                "logit_discount_error": np.sqrt(persons.covariance[:, 0, 0]).tolist(),
                "log_temperature": persons.mean[:, 1].tolist(),
                "log_temperature_error": np.sqrt(persons.covariance[:, 1, 1]).tolist(),
                "discount_reliability": reliability[:, 0].tolist(),
                "temperature_reliability": reliability[:, 1].tolist(),
            },
            "largest_discount": self.found.marginal.largest,
            "steps": self.found.steps,
        }


def predicted(rows: Floats, effects: Floats, covariance: Floats, between: float, largest: float, degrees: int) -> Floats:
    """For rows of X `(m,p)` the discount of a typical person, its interval, and the interval of a new person `(m,5)`."""
    centre = rows @ effects
    error = np.einsum("mp,pq,mq->m", rows, covariance, rows)
    halves = [float(t.ppf(0.5 + LEVEL / 2, degrees)) * np.sqrt(variance) for variance in (error, error + between)]
    ends = [centre, *(centre + sign * half for half in halves for sign in (-1, 1))]
    found: Floats = largest * expit(np.stack(ends, axis=1))
    return found


def _transition_covariance(found: Maximum, covariance: Floats) -> Floats:
    """What the error of estimated transitions adds to the covariance of ψ."""
    marginal, layout = found.marginal, found.marginal.layout
    model, nodes = layout.model, adapted_nodes(found.persons, DRAW_NODES)
    if all(batch.mdp.sample_sizes is None for batch in model.batches):
        return np.zeros_like(covariance)
    rng, here = np.random.default_rng(0), Marginal(layout, nodes, marginal.largest).at(found.psi)
    moves = []
    for _ in range(40):
        drawn = Layout(Likelihood(redrawn(model.problem, rng), model.settings, ridge=model.ridge), layout.design)
        there = Marginal(drawn, nodes, marginal.largest).at(found.psi)
        if here is not None and there is not None:
            moves.append(covariance @ (there.gradient - here.gradient))
    added: Floats = np.mean([np.outer(move, move) for move in moves], axis=0)
    return added


def _with_interval(transform: Any, back: Any, at: Floats, covariance: Floats, z: float) -> dict[str, Any]:
    """A function of parameters with an interval that is symmetric on a scale of its own."""
    slope = np.array([(transform(at + h) - transform(at - h)) / 2e-5 for h in 1e-5 * np.eye(at.size)])
    centre, half = transform(at), z * np.sqrt(max(slope @ covariance @ slope, 0.0))
    return {"estimate": float(back(centre)), "interval": [float(back(centre - half)), float(back(centre + half))]}


@dataclass(frozen=True, eq=False)
class ShrunkenIntervals:
    """Where each person's discount lies given the decisions and the population; normal on the logit scale."""

    mean: Floats
    error: Floats
    largest: float
    known: bool
    computed: dict[float, Floats] = field(default_factory=dict)

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, received {level}")
        half = norm.ppf(0.5 + level / 2) * self.error * (1.0 if self.known else np.nan)
        ends: Floats = self.largest * expit(np.stack([self.mean - half, self.mean + half], axis=1))
        self.computed[level] = ends
        return ends.copy()
