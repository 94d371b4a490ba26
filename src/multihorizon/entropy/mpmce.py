"""Multi-planning-horizon MCE-IRL (the paper's Algorithm 2): search over Γ, maximum causal entropy inside.

At each Γ the dual of `mce` is minimised, giving θ. What the search then maximises depends on `gap`:

* "summed", the rule the paper prints: with `l = θᵀ Σ_k (f_k − f*_k)`, the entropy `Σ_k H_k` if `l ≤ ε`, else `−|l|`. At the
  dual's optimum the sum of the mismatches is zero, so `l = 0` for every Γ: the rule accepts every Γ, and the entropy drives Γ
  upward.
* "threshold", the rule the paper's discussion describes: the entropy of the Γ at which no entry of any expert's mismatch
  `f_k − f*_k` is larger than the threshold; elsewhere minus the largest entry in units of the threshold.
* "per_expert": with the relative mismatch `m = sqrt(mean_k ‖f_k − f*_k‖² / ‖f*_k‖²)`, the entropy if `m ≤ ε`, else `−√m`. Each
  expert's counts must be matched, which singles out the discounts that explain all of them. The root opens the valley
  around the answer, which is narrow in m, for a Gaussian process; it was the most reliable of −m, −√m and −log m.

A Γ at which the dual could not be minimised is never an answer: its value is NaN.

**The default** asks for "per_expert" and climbs to the least mismatch, by SciPy's `least_squares` with the derivatives below. It
begins where the experts agree best when each is explained alone. With `θ_k(γ)` the reward of least commitment of expert k alone,

    θ_k(γ) = θ_k(γ₁) + (γ − γ₁) (θ_k(γ₂) − θ_k(γ₁)) / (γ₂ − γ₁) + N_k z_k

is exact for a soft-optimal expert, N_k the directions that change nothing for that expert at γ₁ or γ₂. So Γ is that of

    min_{Γ, z}  Σ_k ‖ θ_k(γ_k) − mean_j θ_j(γ_j) ‖²_W,      0 ≤ Γ ≤ 1,

linear least squares with bounds, W the sum of all Hessians of these duals, each divided by its trace. For experts who are
soft-optimal for one reward it is the answer, however many they are; for others it is a start. Scattered starts follow until some
discounts match, or until two of them end at the same least mismatch.

**How the mismatch moves with Γ.** At the dual's minimiser θ(Γ), with `m_i = f_i − f*_i` the mismatch of expert i and `B_i` its
part of the Hessian,

    ∂m_i/∂γ_j = B_i ∂θ/∂γ_j + [i = j] (∂f_i/∂γ − ∂f*_i/∂γ)|_θ,      (Σ_i B_i) ∂θ/∂γ_j = −(∂f_j/∂γ − ∂f*_j/∂γ)|_θ.

At fixed θ the soft values move by `∂V/∂γ = R P_π V`, the policy by `∂π = π (∂Q − ∂V) / λ`, and the visits by
`∂μ = Rᵀ (P_πᵀ μ + γ Σ_a T_aᵀ (μ ∂π_a))`, with `R = (I − γP_π)^{-1}`. The expert's own policy stays: `∂μ* = R*ᵀ P_π*ᵀ μ*`. The
mismatches sum to zero at θ(Γ), so the dual's value is λ times the summed entropy, and the entropy's gradient in Γ is that of the
dual: minus the gradient of the discounted likelihood.

**The climb** of the rule "threshold" solves

    max_Γ Σ_k H_k(Γ)      subject to      −ε ≤ f_k(Γ) − f*_k ≤ ε  in every entry, for every expert k.

At ε = 0 only discounts that explain every expert pass. As ε grows, the entropy, which rises with the discounts, pulls them up.
The set that passes can have several parts, so the climb begins at several points. From each it goes to the least squared mismatch
nearby (SciPy's `least_squares`), and from there, with ε opened step by step, it climbs by linear programs in a trust region
(`numerics/lp.py`) with the exact derivatives above. The answer is mostly a corner, where as many constraints are tight as there
are discounts; there such steps converge as fast as Newton's. SciPy's SLSQP took 500 evaluations where these take 20. Every point
tried is recorded, and the best that passes is the answer. What a further step of NEARBY in each discount still promises there is
the evidence that it is one (`entropy_within_reach`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.optimize import least_squares, linprog, lsq_linear

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats, Ints, as_count, as_positive, first_few
from multihorizon.driver import Bayesian, EvaluationLog, Search, check_search
from multihorizon.entropy.mce import (
    FLAT,
    Dual,
    DualPoint,
    DualSolution,
    Response,
    about_errors,
    count_errors,
    discount_gradient,
    entropy_evidence,
    error_factors,
    expert_order,
    minimise_dual,
)
from multihorizon.estimate import StandardErrors
from multihorizon.numerics.distributions import halton
from multihorizon.numerics.lp import Advance, maximise
from multihorizon.parallel import Progress, Run, silent
from multihorizon.planning.linear import Resolvent
from multihorizon.problem import Problem
from multihorizon.solution import Solution, Status, Trace
from multihorizon.words import decimals, power_of_ten, significant

#: How far around the answer of a climb it is checked that no discounts are better.
NEARBY = 1e-3
#: The penalty, in entropy, of a mismatch of twice the threshold: more than a wider threshold could add.
PENALTY = 10.0
#: The climb aims at this share of ε, so that what it finds still passes when the inner problem is solved afresh.
AIM = 0.999


@dataclass(frozen=True, eq=False)
class Matching:
    """The dual's minimum at Γ, and each expert's mismatch `(n,d)` with its derivative `(n,d,K)` in the discounts."""

    discounts: Floats
    point: DualPoint
    mismatch: Floats
    derivative: Floats
    entropy_gradient: Floats
    relative_mismatch: float

    @property
    def free_directions(self) -> int:
        """Return in how many directions the discounts move without a change of the mismatch, to first order."""
        strengths = np.linalg.svd(self.derivative.reshape(-1, self.discounts.size), compute_uv=False)
        return int(self.discounts.size - (strengths > 1e-9 * strengths.max(initial=0.0)).sum())


def match(dual: Dual, point: DualPoint) -> Matching:
    """Differentiate what the dual's minimum leaves unmatched."""
    responses = point.responses
    direct = np.array([_direct(response, policy) for response, policy in zip(responses, dual.policies, strict=True)])
    owner = np.array(dual.problem.owner)
    pulls = np.stack([direct[owner == k].sum(axis=0) for k in range(dual.problem.n_experts)], axis=1)
    hessians = [response.hessian() for response in responses]
    moved = -np.linalg.pinv(np.sum(hessians, axis=0), rcond=FLAT, hermitian=True) @ pulls
    derivative = np.stack([hessian @ moved for hessian in hessians])
    derivative[np.arange(len(responses)), :, owner] += direct
    mismatch = np.array([response.mismatch for response in responses])
    gradient = -discount_gradient(dual, point)
    return Matching(dual.discounts, point, mismatch, derivative, gradient, relative_mismatch(point, dual))


def standard_errors(here: Matching, factors: Iterable[Floats]) -> Floats:
    """Return the standard errors `(K,)` of the discounts of least mismatch, from factors of the covariances of the feature
    counts.

    Errors e_j of the counts move θ by `H⁺ Σ_j e_j`, with `H = Σ_i B_i`, and the mismatches by `B_i H⁺ Σ_j e_j − e_i`. With D the
    derivative of all mismatches in Γ, the discounts of least mismatch therefore move by `Σ_j (D⁺_j − Σ_i D⁺_i B_i H⁺) e_j`.
    """
    count, size, width = here.derivative.shape
    inverse = np.linalg.pinv(here.derivative.reshape(-1, width)).reshape(width, count, size)
    hessians = [response.hessian() for response in here.point.responses]
    common = np.einsum("kid,ide->ke", inverse, hessians) @ np.linalg.pinv(np.sum(hessians, axis=0), rcond=FLAT, hermitian=True)
    variances = [((factor @ (inverse[:, i] - common).T) ** 2).sum(axis=0) for i, factor in enumerate(factors)]
    errors: Floats = np.sqrt(np.sum(variances, axis=0))
    return errors


def _direct(response: Response, policy: Floats) -> Floats:
    """Return `∂(f − f*)/∂γ` `(d,)` of one expert at fixed θ."""
    mdp = response.expert.mdp
    P = mdp.under(response.policy)
    values = response.resolvent.solve(P @ response.values)
    q = mdp.expect(response.values + response.discount * values)
    moved = response.policy * (q - values[:, None]) / response.temperature
    inflow = P.T @ response.visits + response.discount * (mdp.stacked.T @ (response.visits[:, None] * moved).T.ravel())
    visits = response.resolvent.solve(inflow, transpose=True)
    counts = visits[:, None] * response.policy + response.visits[:, None] * moved
    pi = np.where(mdp.terminal[:, None], 0.0, policy)
    P = mdp.under(pi)
    resolvent = Resolvent(P, response.discount)
    occupancy = np.where(mdp.terminal, 0.0, resolvent.solve(mdp.initial, transpose=True))
    counts -= resolvent.solve(P.T @ occupancy, transpose=True)[:, None] * pi
    change: Floats = response.expert.feature_matrix.T @ counts.T.ravel()
    return change


class UnmatchedError(Exception):
    """The inner problem could not be solved at some Γ, so the climb through it ends."""


class MatchedError(Exception):
    """Some Γ matches well enough, so the way to it ends."""


@dataclass(eq=False)
class Climb:
    """Climbs over Γ and all the points they tried."""

    evaluate: Callable[[Floats, Floats | None], Matching | None]
    value: Callable[[Matching], float]
    threshold: float
    max_steps: int
    log: EvaluationLog = field(default_factory=EvaluationLog)
    _last: Matching | None = None

    def run(self, starts: Floats, wanted: int, run: Run) -> Trace:
        """From the least mismatch near each start, climb in entropy: once as ε opens step by step, and once with all of ε.

        The first `wanted` starts are used, and more until some discounts pass.
        """
        seen: list[Floats] = []
        for number, start in enumerate(starts):
            if number >= wanted and seen:
                break
            # Where the inner problem cannot be solved, the next start goes on.
            with suppress(UnmatchedError):
                here = self.at(self.nearest(start))
                if here.point.largest_mismatch <= self.threshold and self.opened(here, seen):
                    self.rise(here, self.threshold)
            run.progress(min(1.0, (number + 1) / wanted), f"MPMCE: best {significant(self.log.best, 6)}")
        return self.log.trace()

    def match_all(self, starts: Iterable[Floats], enough: float, run: Run) -> Trace:
        """Go to the least relative mismatch from one start after the other, until it is small or two agree on the least."""
        least: list[float] = []
        for number, start in enumerate(starts, start=1):
            with suppress(UnmatchedError):
                # Rounding is left alone: least squares would follow it.
                there = self.at(self.nearest(start, 1e-6 * enough))
                if there.relative_mismatch <= enough:
                    break
                least.append(there.relative_mismatch)
                if sum(mismatch <= 1.001 * min(least) for mismatch in least) > 1:
                    break
            run.progress(min(0.99, number / 9), f"MPMCE: least mismatch {significant(-self.log.best)}")
        return self.log.trace()

    def at(self, discounts: Floats) -> Matching:
        """Match at Γ, starting from the reward of the point before; the same Γ twice in a row costs nothing."""
        if self._last is not None and np.array_equal(discounts, self.log.discounts[-1]):
            return self._last
        matching = self.evaluate(discounts, None if self._last is None else self._last.point.theta)
        self.log.add(np.array(discounts), np.nan if matching is None else self.value(matching))
        self._last = matching
        if matching is None:
            raise UnmatchedError
        return matching

    def nearest(self, start: Floats, enough: float = 0.0) -> Floats:
        """Return the discounts near `start` at which the squared mismatch is least, or some whose relative mismatch is small
        enough.
        """

        def mismatch(x: Floats) -> Floats:
            here = self.at(x)
            if here.relative_mismatch <= enough:
                raise MatchedError
            return here.mismatch.ravel()

        tolerance = 1e-12 if enough else 1e-8
        with suppress(MatchedError):
            reached = least_squares(
                mismatch,
                start,
                lambda x: self.at(x).derivative.reshape(-1, start.size),
                bounds=(0.0, ENDLESS_DISCOUNT),
                ftol=tolerance,
                xtol=tolerance,
                gtol=tolerance,
                max_nfev=30,
            )
            return np.asarray(reached.x, dtype=np.float64)
        return self.log.discounts[-1]

    def opened(self, here: Matching, seen: list[Floats]) -> bool:
        """Climb with ε opened step by step; stop where an earlier climb has been, and say whether this one went its own way."""
        for share in (0.03, 0.06, 0.125, 0.25, 0.5, 1.0):
            here = self.rise(here, share * self.threshold)
            if any(np.abs(here.discounts - other).max() <= 1e-5 for other in seen):
                return False
            seen.append(here.discounts)
        return True

    def rise(self, here: Matching, threshold: float) -> Matching:
        """Return the discounts of largest entropy near some that pass, within a threshold, by linear programs in a trust
        region.
        """
        hill = _Entropy(self, AIM * threshold)

        def next_radius(radius: float, length: float, ratio: float) -> float:
            return min(2 * radius, 0.1) if ratio > 0.75 else radius if ratio > 0.25 else radius / 3

        return maximise(hill, here, 0.1, 1e-7, self.max_steps, next_radius)[0]


@dataclass(frozen=True, eq=False)
class _Entropy:
    """The entropy, less a penalty of what goes beyond the threshold, as a hill."""

    climb: Climb
    threshold: float

    def ended(self, here: Matching) -> bool:
        return False

    def least_gain(self, here: Matching) -> float:
        return 1e-8

    def step(self, here: Matching, radius: float) -> Advance | None:
        step, promised = _linear_step(here, here.mismatch, self.threshold, radius)
        return Advance(here.discounts + step, float(np.abs(step).max()), promised, radius)

    def move(self, here: Matching, step: Advance) -> tuple[Matching, float]:
        """Try a step; one whose linear constraints were far off is corrected once, by the mismatch found at its end."""
        there, rise = self._tried(here, step.target)
        if there is not None and rise < 0.5 * step.gain:
            bent = there.mismatch - here.derivative @ (there.discounts - here.discounts)
            corrected, higher = self._tried(here, here.discounts + _linear_step(here, bent, self.threshold, step.detail)[0])
            if higher > rise:
                there, rise = corrected, higher
        return there or here, rise

    def _tried(self, here: Matching, discounts: Floats) -> tuple[Matching | None, float]:
        """Return the matching within the bounds if it could be solved, and the rise to there."""
        try:
            there = self.climb.at(np.clip(discounts, 0.0, ENDLESS_DISCOUNT))
        except UnmatchedError:
            return None, -np.inf
        return there, _merit(there, self.threshold) - _merit(here, self.threshold)


def score(point: DualPoint, threshold: float) -> float:
    """Return the entropy of discounts that pass; minus the mismatch in units of the threshold where they do not."""
    return point.entropy if point.largest_mismatch <= threshold else -point.largest_mismatch / threshold


def _merit(matching: Matching, threshold: float) -> float:
    return matching.point.entropy - PENALTY * max(0.0, matching.point.largest_mismatch / threshold - 1)


def _linear_step(here: Matching, base: Floats, threshold: float, radius: float) -> tuple[Floats, float]:
    """Return the step that raises the linearised merit most within the radius, and by how much; `base` is the mismatch of no
    step.
    """
    width = here.discounts.size
    mismatch, change = base.ravel() / threshold, here.derivative.reshape(-1, width) / threshold
    beyond = -np.ones((mismatch.size, 1))
    low = np.maximum(-radius, -here.discounts)
    high = np.minimum(radius, ENDLESS_DISCOUNT - here.discounts)
    program = linprog(
        np.append(-here.entropy_gradient, PENALTY),
        A_ub=np.block([[change, beyond], [-change, beyond]]),
        b_ub=np.concatenate([1 - mismatch, 1 + mismatch]),
        bounds=[*zip(low, high, strict=True), (0.0, None)],
        method="highs",
    )
    if program.x is None:
        return np.zeros(width), 0.0
    promised = -program.fun + PENALTY * max(0.0, here.point.largest_mismatch / threshold - 1)
    return np.asarray(program.x[:-1], dtype=np.float64), float(promised)


def entropy_within_reach(here: Matching, threshold: float) -> float:
    """Return how much more entropy discounts nearby promise to first order; 0 at the answer."""
    return _linear_step(here, here.mismatch, max(AIM * threshold, here.point.largest_mismatch), NEARBY)[1]


@dataclass(frozen=True)
class MPMCE:
    """Discount factors and reward that match every expert's feature counts, found by a search.

    The solution's `objective` is the value of the best Γ under the rule above, NaN where the dual could not be minimised. Its
    `residual` is the largest entry of any expert's mismatch for `gap="threshold"`, otherwise the relative mismatch m. Both are
    recomputed at the answer. It is converged if the residual is at most `threshold` or `tolerance`, and "not identified" where
    other discounts match as well. `ClosedForm` solves the same equations, faster.

    Demonstrations count with their frequencies (`Problem.observed_policies`). Nothing matches these exactly, so under
    "per_expert" the answer is the least mismatch, and one of at most twice the standard error of the feature counts counts as a
    match. Other discounts match within that error as well: `message`, `standard_errors` and `confidence_intervals` say which, to
    first order. The status is "not identified" where a 95% CI is longer than 0.5, or reaches 0 or 1: then all of [0, 1] is
    the interval of everybody. `MaximumLikelihood` uses decisions better.

    This is multi-planning-horizon maximum-causal-entropy IRL, the paper's Eq. 10, 12 and Algorithm 2.

    Args:
        temperature: the entropy weight λ that all experts share.
        gap: "per_expert", "threshold", or "summed" for the rule the paper prints.
        tolerance: ε of "per_expert" and "summed", below which the gap or mismatch counts as zero.
        search: the outer search over Γ. By default "per_expert" goes to the least mismatch and "threshold" ascends, both with
            exact derivatives; "summed", which has no slope of its own, takes `Bayesian(50)`, the paper's search.
        inner_tolerance: the largest entry of the dual's gradient at which the inner iteration stops.
        threshold: the largest entry of an expert's mismatch that `gap="threshold"` lets pass.
        starts: number of starts of the ascent. For "threshold" up to five times as many are tried while no discounts pass.
        max_steps: steps after which an ascent is given up.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> problem = mh.Problem(d.mdp, d.soft_experts())
        >>> mh.solve(problem, MPMCE()).discounts.round(3).tolist()
        [0.0, 0.2, 0.52]
    """

    temperature: float = 1.0
    gap: Literal["per_expert", "summed", "threshold"] = "per_expert"
    tolerance: float = 1e-4
    search: Search | None = None
    inner_tolerance: float = 1e-7
    threshold: float = 1e-3
    starts: int = 8
    max_steps: int = 150

    def __post_init__(self) -> None:
        as_positive(self.temperature, "temperature")
        if self.search is not None:
            check_search(self.search)
        for name in ("tolerance", "inner_tolerance", "threshold"):
            as_positive(getattr(self, name), name)
        as_count(self.starts, "starts")
        as_count(self.max_steps, "max_steps")
        if self.gap not in ("per_expert", "summed", "threshold"):
            raise ValueError(f"gap must be one of per_expert, summed, threshold, got {self.gap!r}")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search, then solve once more at the best Γ."""
        logged = problem
        run = Run(seed, progress=progress)
        problem = problem.observed_policies()
        places = np.argsort(expert_order(problem))
        inner = _Inner(self, problem, places)
        climbs = self.gap != "summed" and self.search is None
        # The experts stand in an order of their own, so that the answer does not depend on how they are listed.
        if climbs:
            starts = ENDLESS_DISCOUNT * halton(places.size, 5 * self.starts, np.random.default_rng(run.seed))[:, places]
            climb = Climb(inner.match, inner.height, self.threshold, self.max_steps)
            if self.gap == "threshold":
                trace = climb.run(starts, self.starts, run)
            else:
                alone = agreement(problem, float(self.temperature), self.inner_tolerance)
                begins = ([] if alone is None else [alone]) + list(starts[: self.starts])
                trace = climb.match_all(begins, self.tolerance, run)
        else:
            trace = (self.search or Bayesian(50)).run(inner, places.size, seed, progress).trace
            trace = replace(trace, discounts=trace.discounts[:, places])
        best = trace.best_discounts
        minimum, dual = inner.solve(best)
        what, residual, allowed = (
            ("largest", minimum.point.largest_mismatch, self.threshold)
            if self.gap == "threshold"
            else ("relative", relative_mismatch(minimum.point, dual), self._allowed(logged, dual))
        )
        errors = count_errors(dual, logged)
        least = self.gap == "per_expert"
        matching = inner.match(best, minimum.point.theta) if climbs or (least and errors is not None) else None
        free = 0 if matching is None or not (climbs and least) else matching.free_directions
        reach = None
        if self.gap == "threshold" and climbs:
            reach = np.nan if matching is None else entropy_within_reach(matching, self.threshold)
        problems = list(_problems(minimum, residual, allowed, reach))
        status = Status.NOT_CONVERGED if problems else Status.CONVERGED
        spread: Floats | None = None
        if free and not problems:
            status = Status.NOT_IDENTIFIED
            problems = [f"other discounts match as well: {free} direction{'s' * (free > 1)} of the discounts change nothing"]
        elif matching is not None and least and errors is not None and not problems:
            spread = standard_errors(matching, error_factors(dual, logged))
            ranges = StandardErrors(best, spread).at(0.95)
            edge = [name for name, (low, high) in zip(problem.names, ranges, strict=True) if low <= 0 or high >= 1]
            each = [
                f"{name} {decimals(low, 2)} to {decimals(high, 2)}"
                for name, (low, high) in zip(problem.names, ranges, strict=True)
            ]
            problems = [f"discounts that match within the error of the counts (95% CIs): {first_few(each)}"]
            if edge:  # the discounts could not move as the errors to first order say, so these mean nothing, for nobody
                problems = [f"no interval is known, because the first-order errors of {first_few(edge)} reach the end of [0, 1]"]
                spread = np.full(best.size, np.inf)
            if edge or np.ptp(ranges, axis=1).max() > 0.5:  # half of what is possible
                status = Status.NOT_IDENTIFIED
        message = (
            f"best of {len(trace)} discounts: {what} mismatch {power_of_ten(residual)}, summed gap "
            f"{power_of_ten(minimum.point.gap)}"
        )
        return Solution(
            solver="MPMCE",
            status=status,
            message="; ".join([message, *problems]) + about_errors(minimum, errors),
            problem=problem,
            experts=problem.names,
            discounts=best,
            reward=minimum.point.theta,
            objective=inner.value(minimum, dual),
            residual=residual,
            temperature=np.full(problem.n_experts, float(self.temperature)),
            trace=trace,
            standard_errors=spread,
            evidence=entropy_evidence(minimum, errors, reach),
        )

    def _allowed(self, logged: Problem, dual: Dual) -> float:
        """Return the relative mismatch that counts as none: the tolerance, or twice the error of the counts of demonstrations."""
        errors = None if self.gap == "summed" else count_errors(dual, logged)
        return self.tolerance if errors is None else max(self.tolerance, 2 * relative_length(errors, dual))


def relative_mismatch(point: DualPoint, dual: Dual) -> float:
    """Return `sqrt(mean_k ‖f_k − f*_k‖² / ‖f*_k‖²)` at a point of the dual."""
    return relative_length([float(np.linalg.norm(response.mismatch)) for response in point.responses], dual)


def relative_length(lengths: Sequence[float], dual: Dual) -> float:
    """Return the root mean square of lengths `(n,)` relative to those of the experts' feature counts."""
    shares = [length / max(float(np.linalg.norm(target)), TINY) for length, target in zip(lengths, dual.targets, strict=True)]
    return float(np.sqrt(np.mean(np.square(shares))))


def agreement(problem: Problem, temperature: float, tolerance: float) -> Floats | None:
    """Return the discounts `(K,)` at which the rewards that explain each expert alone agree best; None where they are not to be
    had.
    """
    if problem.n_parameters > 1800:
        return None
    near, far = 0.3, 0.9
    bases = []
    slopes = []
    idle = []
    metric = np.zeros((problem.n_parameters, problem.n_parameters))
    for name in problem.names:
        part = problem.with_experts(expert for expert in problem.experts if expert.name == name)
        rewards, flat = [], []
        for gamma in (near, far):
            try:
                alone = minimise_dual(Dual(part, np.array([gamma]), np.array([temperature])), tolerance=tolerance)
            except (ValueError, np.linalg.LinAlgError):
                return None
            hessian = alone.point.hessian()
            curvatures, axes = np.linalg.eigh(hessian)
            metric += hessian / max(float(np.trace(hessian)), TINY)
            rewards.append(alone.point.theta)
            flat.append(axes[:, curvatures <= 10 * FLAT * curvatures[-1]])
        slopes.append((rewards[1] - rewards[0]) / (far - near))
        bases.append(rewards[0] - near * slopes[-1])
        idle.append(np.hstack(flat))
    curvatures, axes = np.linalg.eigh(metric)
    root = (axes * np.sqrt(np.maximum(curvatures, 0.0))).T
    from_mean = np.eye(problem.n_experts) - 1 / problem.n_experts

    def columns(of: list[Floats]) -> Floats:
        """Return columns that belong to each expert, as deviations of all experts from their mean, in the metric."""
        return np.hstack([np.kron(from_mean[:, [k]], root @ each) for k, each in enumerate(of)])

    left = columns([slope[:, None] for slope in slopes])
    right = -columns([base[:, None] for base in bases]).sum(axis=1)
    span, strengths, _ = np.linalg.svd(columns(idle), full_matrices=False)
    span = span[:, strengths > 1e-9 * strengths.max(initial=TINY)]
    left, right = left - span @ (span.T @ left), right - span @ (span.T @ right)
    return np.asarray(lsq_linear(left, right, (0.0, ENDLESS_DISCOUNT)).x, dtype=np.float64)


def _problems(minimum: DualSolution, residual: float, allowed: float, reach: float | None) -> Iterator[str]:
    """Yield why an answer is none, in words."""
    if not minimum.converged:
        yield f"the dual stopped at a gradient of {power_of_ten(minimum.gradient_norm)}, so the reward is not reliable"
    if residual > allowed:
        yield f"no discounts tried match every expert within {significant(allowed)}"
    elif reach is not None and np.isnan(reach):
        yield "whether the optimiser converged could not be checked"
    elif reach is not None and reach > 1e-4:  # a free step brings ten times as much
        yield f"the optimiser did not converge: discounts within {NEARBY:g} promise {power_of_ten(reach)} more entropy"


@dataclass(frozen=True)
class _Inner:
    """The problem at fixed Γ, and the value its rule gives that Γ, with the experts at their `places`."""

    options: MPMCE
    problem: Problem
    places: Ints

    def solve(self, discounts: Floats, start: Floats | None = None, share: float = 1.0) -> tuple[DualSolution, Dual]:
        """Return the dual and its minimum, to a share of the tolerance."""
        dual = self.dual(discounts)
        return minimise_dual(dual, start, share * self.options.inner_tolerance), dual

    def dual(self, discounts: Floats) -> Dual:
        """Return the dual at Γ."""
        return Dual(self.problem, discounts, np.full(self.problem.n_experts, float(self.options.temperature)))

    def match(self, discounts: Floats, start: Floats | None) -> Matching | None:
        """Return the matching at Γ, or None where the dual has no minimum that was reached."""
        try:
            # The climb asks for more, because it compares mismatches that are nearly equal.
            minimum, dual = self.solve(discounts, start, 1e-3)
            return match(dual, minimum.point) if minimum.gradient_norm <= self.options.inner_tolerance else None
        except (ValueError, np.linalg.LinAlgError):
            return None

    def height(self, here: Matching) -> float:
        """Return what a climb wants more of."""
        if self.options.gap == "threshold":
            # Corners of the climb's own problem compete, and what it tried beyond them does not.
            return score(here.point, (AIM + 1e-5) * self.options.threshold)
        return -here.relative_mismatch

    def __call__(self, discounts: Floats) -> float:
        try:
            return self.value(*self.solve(discounts[self.places]))
        except ValueError:
            return np.nan

    def value(self, matching: DualSolution, dual: Dual) -> float:
        """Return what the rule gives Γ; NaN where the dual was not minimised."""
        if not matching.converged:
            return np.nan
        if self.options.gap == "threshold":
            return score(matching.point, self.options.threshold)
        if self.options.gap == "summed":
            return matching.point.entropy if matching.point.gap <= self.options.tolerance else -abs(matching.point.gap)
        mismatch = relative_mismatch(matching.point, dual)
        return matching.point.entropy if mismatch <= self.options.tolerance else -float(np.sqrt(mismatch))
