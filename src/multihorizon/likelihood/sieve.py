"""Reward, discounts and temperatures from decisions in states that are vectors, with dynamics learned from the same log.

A fit goes through these steps, in the order of this module.

*Starting points.* For each expert alone, the choices are a multinomial logit, `Q = M(s,a)ᵀ u`, concave in u, in which no
discount occurs. Then `u_k = θ + γ_k v_k` with `v_k` the projection of `log Σ_a exp Q_k` is linear in (θ, Γ) with one θ for all:
generalised least squares, weighted by the information about u_k. Where steps end episodes for good, the arrivals that end them
have coefficients of their own, which are θ alone. The answer is biased, because v_k holds the error of u_k, but near. The
logits fit anything that the basis can say about choices, so the joint model's loss of likelihood against them tests one reward
and one discount for each expert.

*Selection.* With more than two coordinates, each expert's choices are fitted by a logit whose log-odds are sums of splines, one
for each coordinate. A coordinate whose splines have no effect on anyone's choices (Wald test over all experts, p ≥ 0.001) is
left out: nobody acts on it, so it enters neither the reward nor the future that anyone plans for. Then every third episode of
each expert is held out. Sizes of the basis are tried upwards, each fitted by the joint likelihood on the other episodes, until
the held-out likelihood no longer grows. Then penalties: the smallest one is taken whose held-out likelihood is within a
standard error of the best, because a penalty on the reward moves the discounts.

*Standard errors* carry the first stage. Expert k's plan rests on predictions of
`y_k(s') = φ(s')ᵀθ + γ_k φ(s')ᵀv_k 1(s' goes on)`. A logged step i with action a misses its prediction by
`e_ki = y_k(s'_i) − ψ(s_i) (C_a θ + γ_k E_a v_k)`, and so moves the coefficients of Q by `L_a ψ(s_i)ᵀ e_ki`, L the linear map of
`basis.SmoothedSystem`, and v_k with them. With `B_k` the derivative of the score of x by those coefficients, in its expected
form and with the plan's response,

    x̂ − x ≈ C [ Σ decisions score − Σ_i h_i ],   h_i = Σ_k B_k L_a ψ(s_i)ᵀ e_ki,

C the inverse information. So the covariance is `C + C (Σ_episodes h hᵀ) C`, h summed over the steps of an episode: steps of one
episode may depend on each other. The first term is the second stage's own, the second what learning the dynamics adds. With a
regressor of the user's, episodes are drawn with replacement instead, and all is fitted again with the same basis and penalty.

*What the data cannot show.* Any discount explains one expert with some reward. Rewards and discounts are distinguished where
several experts act in the same region: a state of expert k is shared where the other experts' decisions determine the basis
functions there (leverage at most 1 in `Σ φ(s)φ(s)ᵀ`), and an expert with hardly any shared state is not compared with anyone.
The basis is too poor where a logit with more functions predicts held-out choices better by a good part of what can be predicted
at all: then discounts can be wrong by more than their standard errors say. A coordinate whose change state and action do not
predict on held-out steps says nothing about what actions lead to; where that holds for half of the coordinates or more, there
is no plan to rely on.

*The answer* is a `Solution`, NOT_IDENTIFIED where the data cannot show a discount, or where the information is singular in its
direction. `reward_functions` gives reward, values and policies as functions of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.linalg as la
import scipy.sparse as sp
from scipy.ndimage import maximum_filter

from multihorizon.checks import Floats, as_count, as_floats, as_frame, as_positive, is_frame, numbers_of, renamed
from multihorizon.choice.model import temperature_penalty
from multihorizon.choice.settings import Settings, Temperature, check_discounts, check_temperature
from multihorizon.choice.sieve_model import (
    LARGEST_DISCOUNT,
    LeastSquares,
    LoggedDecisions,
    Regressed,
    SieveData,
    SieveModel,
    SievePoint,
    Splines,
    determined,
    factorised,
    held_out_rows,
    next_state_r2,
    soft_values,
    value_points,
)
from multihorizon.data.steps import Steps
from multihorizon.likelihood.estimates import FunctionEstimate, SieveEvidence, dynamics_unknown, unpredicted
from multihorizon.likelihood.intervals import Precision, precision
from multihorizon.likelihood.random_effects import estimate_spread
from multihorizon.likelihood.search import CONVERGED_GRADIENT, WITHIN, about_rivals, candidates, climb, elsewhere, polished
from multihorizon.numerics.distributions import chi2_sf, halton
from multihorizon.numerics.newton import Ascent
from multihorizon.parallel import Progress, Run, silent
from multihorizon.problem import SampledProblem
from multihorizon.result import COLOURS, Result, literal, pictured, plain
from multihorizon.solution import Solution, Status
from multihorizon.words import Table, decimals, power_of_ten, significant

#: What is said where the functions of the state are gone.
NOT_AS_SOLVED = (
    "this needs a solution of SieveLikelihood as solve returned it, got another one; a file holds its numbers, but not its "
    "functions: solve again"
)


@dataclass(frozen=True, eq=False)
class Logit:
    """One expert's choices without a plan: u `(q,)`, its information, the log-likelihood, the coefficients `(A,p)` of Q, and the
    projected values `(f,)`."""

    u: Floats
    information: Floats
    value: float
    coefficients: Floats
    values: Floats


def fit_logits(data: SieveData) -> list[Logit]:
    """Return the logit of each expert; u is for arrivals that go on and, where there are any, arrivals that end the episode."""
    on, paid, f = data.stage.going_on, data.stage.paid, data.functions
    loads = np.concatenate([on, paid - on], axis=2) if data.ends else on
    logits = []
    for decisions in data.decisions:
        u, value, information = _fit_logit(decisions, loads, ridge=0.03)
        ended = u[f:] if data.ends else u
        q = data.expected_on @ u[:f] + (data.expected_paid - data.expected_on) @ ended
        values = data.projection @ soft_values(q, data.points_available, 1.0)[0]
        logits.append(Logit(u, information, value, loads @ u, values))
    return logits


def _fit_logit(decisions: LoggedDecisions, loads: Floats, ridge: float) -> tuple[Floats, float, Floats]:
    """Return u `(q,)` with `Q = X_a loads_a u` by Newton's method, the log-likelihood, and its information `(q,q)`."""

    def at(u: Floats) -> tuple[float, Floats, Floats]:
        log = decisions.choices(loads @ u, 1.0)
        policy = np.exp(log)
        value = float(log[decisions.action, np.arange(decisions.action.size)].sum())
        gradient = np.einsum("apq,ap->q", loads, decisions.summed(decisions.counts - policy), optimize=True)
        return value, gradient, np.einsum("apq,apr->qr", loads, decisions.informed(policy, loads), optimize=True)

    u = np.zeros(loads.shape[2])
    value, gradient, information = at(u)
    for _ in range(30):
        slope = gradient - ridge * u
        step = la.solve(information + ridge * np.eye(u.size), slope, assume_a="pos")
        promised = float(slope @ step)
        scale = 1.0
        if promised < 1e-3:
            break
        while True:
            trial = u + scale * step
            there = at(trial)
            gain = there[0] - value - 0.5 * ridge * float(trial @ trial - u @ u)
            if gain > 0.1 * scale * promised or scale < 1e-6:
                break
            scale /= 2
        u, (value, gradient, information) = trial, there
    return u, value, information


def starts(model: SieveModel, logits: list[Logit]) -> list[SievePoint]:
    """Return points to climb from: first the solution of the linear system, then others by likelihood, at a few levels and
    scattered.
    """
    levels = [np.full(model.n_discounts, level) for level in (0.1, 0.5, 0.9)]
    scattered = 0.97 * halton(model.n_discounts, 8, np.random.default_rng(0).spawn(1)[0])
    solved = [_second_stage(model, logits, gammas) for gammas in (None, *levels, *scattered)]
    first, *others = [model.at(model.pack(theta, gammas)) for theta, gammas in solved]
    likely = sorted((point for point in others if point is not None), key=lambda point: -point.objective)
    likely = likely if first is None else [first, *likely]
    if not likely:
        flat = (model.at(model.pack(np.zeros(model.n_reward), level)) for level in levels)
        likely = [point for point in flat if point is not None]
    return likely


def _second_stage(model: SieveModel, logits: list[Logit], gammas: Floats | None) -> tuple[Floats, Floats]:
    """Return θ and the discounts of each group by generalised least squares; θ alone where the discounts are given."""
    f, groups = model.n_reward, model.n_discounts
    size = f if gammas is not None else f + groups
    matrix, target = np.zeros((size, size)), np.zeros(size)
    for k, logit in enumerate(logits):
        rows = np.zeros((logit.u.size, size))
        wanted = logit.u.copy()
        rows[:, :f] = np.vstack([np.eye(f)] * (logit.u.size // f))
        if gammas is None:
            rows[:f, f + model.groups[k]] = logit.values
        else:
            wanted[:f] -= gammas[model.groups[k]] * logit.values
        matrix += rows.T @ logit.information @ rows
        target += rows.T @ logit.information @ wanted
    matrix[:f, :f] += model.ridge + 0.03 * np.eye(f)
    matrix[np.diag_indices_from(matrix)] += 1e-10 * np.diag(matrix).max()
    solved = la.solve(matrix, target, assume_a="sym")
    return solved[:f], np.clip(solved[f:], 0.02, 0.97) if gammas is None else gammas


def relevant_coordinates(steps: Steps) -> tuple[list[int], dict[str, float]]:
    """Return the coordinates on which choices depend, and the p-value of each source; all, where there are few or none stands
    out.
    """
    sources, every = list(dict.fromkeys(steps.sources)), list(range(len(steps.sources)))
    if len(sources) <= 2:
        return every, {}
    blocks, places = [sp.csr_array(np.ones((len(steps), 1)))], []
    for source in sources:
        columns = [i for i in every if steps.sources[i] == source]
        first = sum(block.shape[1] for block in blocks)
        blocks.append(Splines(6, [0] * len(columns)).fit_transform(steps.states[:, columns])[:, 1:])
        places.append(np.arange(first, first + blocks[-1].shape[1]))
    features = sp.csr_array(sp.hstack(blocks, format="csr"))
    others = len(steps.actions) - 1
    # One action after another has coefficients of its own, and the last has none.
    loads = np.vstack([np.eye(others * features.shape[1]), np.zeros((features.shape[1], others * features.shape[1]))])
    loads = loads.reshape(others + 1, features.shape[1], -1)
    statistic, degrees = np.zeros(len(sources)), np.zeros(len(sources))
    for k in range(len(steps.experts)):
        theirs = np.flatnonzero(steps.expert == k)
        all_known = np.ones((others + 1, theirs.size), dtype=np.bool_)
        decisions = LoggedDecisions([features[theirs]] * (others + 1), steps.action[theirs], all_known, all_known[0])
        coefficients, _, information = _fit_logit(decisions, loads, ridge=1e-3)
        covariance = la.inv(information + 1e-3 * np.eye(coefficients.size))
        for j, place in enumerate(places):
            index = (place[:, None] + features.shape[1] * np.arange(others)).ravel()
            b, c = coefficients[index], covariance[np.ix_(index, index)]
            statistic[j] += float(b @ la.lstsq(c, b, cond=1e-10)[0])
            degrees[j] += index.size
    p_values = dict(zip(sources, chi2_sf(statistic, degrees).tolist(), strict=True))
    names = {source: steps.coordinates[steps.sources.index(source)].partition("=")[0] for source in sources}
    kept = [i for i in every if p_values[steps.sources[i]] < 1e-3]
    return kept or every, {names[source]: p for source, p in p_values.items()}


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the held-out log-likelihood per decision of everything that was tried."""

    transformer: Any
    penalty: float
    tried: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class _Trial:
    """A fit to two thirds of the episodes, and its log-likelihood of each held-out decision."""

    transformer: Any
    penalty: float
    point: SievePoint
    scores: Floats

    @classmethod
    def of(cls, transformer: Any, penalty: float, start: SievePoint, held_out: Steps) -> _Trial:
        """Climb as far as it takes to compare bases and penalties."""
        end = climb(start, max_steps=10, gain=0.1).point
        pairs = zip(end.plans, end.likelihood.data.decisions_of(held_out), strict=True)
        scores = [decisions.predicted(plan.coefficients, plan.lam) for plan, decisions in pairs]
        return cls(transformer, penalty, end, np.concatenate(scores))

    def lead(self, other: _Trial) -> tuple[float, float]:
        """Return by how much it predicts better, and the standard error of this."""
        difference = self.scores - other.scores
        return float(difference.sum()), float(difference.std() * np.sqrt(difference.size))

    def record(self) -> dict[str, Any]:
        return {
            "basis": basis_name(self.transformer),
            "functions": float(self.point.likelihood.data.functions),
            "penalty": self.penalty,
            "held_out": float(self.scores.mean()),
        }


def choose(steps: Steps, basis: Any, penalty: float | None, regressor: Any, settings: Settings, run: Run) -> Choice:
    """Return the basis and the penalty by held-out likelihood; what is given is not chosen."""
    candidates = [basis] if basis is not None else [Splines(size, steps.sources) for size in _sizes(steps)]
    if len(candidates) == 1 and penalty is not None:
        return Choice(candidates[0], penalty, [])
    # Held-out choices hardly see the penalty, but discounts do: a weight of 1 moved a discount of 0.5 on the walk by 0.02, one of
    # 0.1 by 0.002. So larger ones are not offered.
    penalties = (0.1, 0.3) if penalty is None else (penalty,)
    held = held_out_rows(steps)
    if not (held & steps.known_next).any():
        raise ValueError(
            f"a table of steps must hold more decisions whose next state is known, got {len(steps)} decisions: a third of "
            "each expert's is kept aside to choose the model, and none of these has a next state; add longer episodes, or more"
        )
    train, held_out = steps.select(~held), steps.select(held)
    tried: list[_Trial] = []
    best: _Trial | None = None
    for number, candidate in enumerate(candidates):
        run.progress(0.6 * number / len(candidates), f"basis {number + 1} of {len(candidates)}")
        data = SieveData.of(train, candidate, regressor)
        begin = starts(SieveModel(SampledProblem(train, data.basis.names), data, settings, penalties[0]), fit_logits(data))
        if not begin:
            continue
        tried.append(_Trial.of(candidate, penalties[0], begin[0], held_out))
        if best is not None:
            lead, error = tried[-1].lead(best)
            if lead <= 0.5 * error:  # a larger basis must be better by half a standard error
                break
        best = tried[-1]
    if best is None:
        raise ValueError("no basis gave finite values on two thirds of the episodes: there are too few decisions")
    trials = [best]
    for number, weight in enumerate(penalties[1:], start=1):
        run.progress(0.6 + 0.4 * number / len(penalties), f"penalty {weight:g}")
        start = best.point.likelihood.of_strength(weight).at(best.point.x, best.point)
        assert start is not None
        trials.append(_Trial.of(best.transformer, weight, start, held_out))
    highest = max(trials, key=lambda trial: float(trial.scores.sum()))
    near = [trial for trial in trials if np.subtract(*highest.lead(trial)) <= 0]
    records = [trial.record() for trial in (*tried, *trials[1:])]
    return Choice(best.transformer, min(trial.penalty for trial in near), records)


def _sizes(steps: Steps) -> tuple[int, ...]:
    """Return the sizes to try with these coordinates, by the number of quantities; beyond three, products are of pairs."""
    return {1: (6, 10, 16), 2: (6, 9, 12), 3: (4, 5, 6)}.get(len(set(steps.sources)), (4, 5))


def basis_name(transformer: Any) -> str:
    """Return a transformer in words."""
    return f"Splines({transformer.size})" if isinstance(transformer, Splines) else str(transformer)


@dataclass(frozen=True, eq=False)
class Found:
    """The answer of one fit, the ends of all its climbs, and what the logits of the same basis reach.

    `p_equal` is the p-value of equal temperatures, and `spread` that of their logarithms; None where these were not asked for.
    """

    end: Ascent[SievePoint]
    ends: list[Ascent[SievePoint]]
    logits: list[Logit]
    p_equal: float | None
    spread: float | None


def fit_sieve(steps: Steps, choice: Choice, regressor: Any, settings: Settings, pooled: bool, tol: float, max_iter: int) -> Found:
    """Climb from the best starts, and set temperatures free where they are to be pooled and the decisions reject equal ones."""
    data = SieveData.of(steps, choice.transformer, regressor)
    logits = fit_logits(data)

    def model_of(settings: Settings) -> SieveModel:
        bare = SieveModel(SampledProblem(steps, data.basis.names), data, settings, choice.penalty)
        return bare.holding(temperature_penalty(bare), bare.ridge)

    begin = starts(model_of(settings), logits)
    if not begin:
        raise ValueError("no starting point has finite values: the steps do not determine what actions lead to")
    # Where there are few decisions and functions, climbs cost little, and all starts are climbed.
    count, most = (len(begin), 40) if len(steps) * data.functions <= 3e5 else (3, 8)
    ends = [climb(start, max_steps=min(most, max_iter), gain=0.1) for start in begin[:count]]
    ends.sort(key=lambda end: -end.point.objective)
    best = climb(ends[0].point, max_steps=max_iter, gain=tol)

    def begin_at(discounts: Floats) -> SievePoint | None:
        model = best.point.likelihood
        return model.at(model.pack(_second_stage(model, logits, discounts)[0], discounts))

    for place in candidates(best.point, begin_at):
        end = climb(place, max_steps=max_iter, gain=tol, worth=best.point.objective - WITHIN)
        ends = [*ends, end]
        best = max(best, end, key=lambda one: one.point.objective)
    ends = [best, *elsewhere(ends, best.point)]
    best = polished(best, max_steps=4, gain=1e-11)
    p_equal, spread = None, None
    if pooled and len(steps.experts) > 1 and best.finished:
        free = model_of(replace(settings, temperatures=np.full(len(steps.experts), np.nan)))
        p_equal = _equal_temperatures(best.point, free)
        # Free temperatures cost precision, and the error of a basis looks like a small difference of temperatures.
        if p_equal < 0.001:
            spreading = estimate_spread(best, free)
            best, spread = spreading.ascent, spreading.value
    return Found(best, ends, logits, p_equal, spread)


def _equal_temperatures(equal: SievePoint, free: SieveModel) -> float:
    """Return the p-value of equal temperatures by a score test whose variance carries the first stage."""
    point = free.at(free.pack(equal.likelihood.reward(equal.x), equal.x[equal.likelihood.discount_slice]))
    if point is None:
        return 1.0
    places = np.arange(free.size)[free.temperature_slice]
    rest = np.flatnonzero(~free.fixed[: places[0]])
    information = point.information
    inner = information.copy()
    inner[: free.n_reward, : free.n_reward] += free.ridge
    weights = np.zeros((places.size, free.size))
    weights[:, places] = np.eye(places.size)
    weights[:, rest] = -np.linalg.lstsq(inner[np.ix_(rest, rest)], information[np.ix_(rest, places)], rcond=1e-12)[0].T
    contrasts = (np.eye(places.size)[1:] - np.eye(places.size)[:1]) @ weights
    added = first_stage_scores(point)
    meat = information if added is None else information + added @ added.T
    score = contrasts @ point.gradient
    statistic = float(score @ np.linalg.lstsq(contrasts @ meat @ contrasts.T, score, rcond=1e-12)[0])
    return float(chi2_sf(statistic, places.size - 1))


def sieve_precision(point: SievePoint) -> tuple[Precision, Floats]:
    """Return what is identified, with standard errors, and the full covariance `(p,p)`; NaN errors where the first stage has
    none.
    """
    precise = precision(point)
    added = first_stage_scores(point)
    covariance = precise.covariance
    assert covariance is not None
    if added is None:
        return replace(precise, widening=np.full(point.x.size, np.nan)), covariance
    full = covariance + (covariance @ added) @ (covariance @ added).T
    ratio = np.sqrt(np.diag(full) / np.where(precise.variance > 0, precise.variance, np.inf))
    return replace(precise, widening=np.where(precise.variance > 0, ratio, 1.0)), full


def first_stage_scores(point: SievePoint) -> Floats | None:
    """Return how each episode's errors of prediction move the score of x, `(p,episodes)`; None where another regressor
    was used.
    """
    model, data = point.likelihood, point.likelihood.data
    stage = data.stage
    if not isinstance(stage, LeastSquares):
        return None
    steps = model.problem.steps.select(model.problem.steps.known_next)
    features = stage.smoothing.inputs(steps.states)
    after = data.basis(steps.next_states)
    total = np.zeros((len(steps), model.size))
    for k, plan in enumerate(point.plans):
        # How the score of x moves with the coefficients of Q, the values following them: `Σ π dlogπ/dx dlogπ/dc` `(A,p,q)`.
        moved = point.loads(k, plan.slopes(data) / plan.lam) / plan.lam
        on_values = plan.gamma * np.einsum("apq,apf->fq", moved, stage.going_on, optimize=True)
        at_points = plan.at_points(on_values, data)
        pairs = zip(data.point_rows, plan.point_policy, strict=True)
        by_step = stage.equations.solve(moved + np.stack([row.T @ (p[:, None] * at_points) for row, p in pairs]))
        reached = after @ model.reward(point.x) + plan.gamma * (after @ plan.values) * ~steps.terminated
        for action in range(len(steps.actions)):
            rows = np.flatnonzero(steps.action == action)
            error = reached[rows] - features[rows] @ plan.coefficients[action]
            total[np.ix_(rows, model.places(k))] += error[:, None] * (features[rows] @ by_step[action])
    episode = steps.episode_numbers
    sums = sp.csr_array((np.ones(episode.size), (episode, np.arange(episode.size))))
    scores: Floats = (sums @ total).T
    return scores


def resampled(point: SievePoint, choice: Choice, regressor: Any, count: int, run: Run) -> Floats:
    """Return discounts `(n,K)` of fits to resampled episodes of each expert, with the same basis; fits that did not end are left
    out.

    Each fit begins at the answer. Draw i uses the i-th child of the seed.
    """
    model, steps = point.likelihood, point.likelihood.problem.steps
    numbers = steps.episode_numbers
    first = np.flatnonzero(np.concatenate([[True], np.diff(numbers) != 0]))
    last = np.append(first[1:], numbers.size)
    estimates = []
    for number, stream in enumerate(np.random.SeedSequence(run.seed).spawn(count)):
        run.progress(number / count, f"resampled episodes {number + 1} of {count}")
        rng = np.random.default_rng(stream)
        rows = []
        for k in range(len(steps.experts)):
            episodes = np.flatnonzero(steps.expert[first] == k)
            rows += [np.arange(first[e], last[e]) for e in rng.choice(episodes, episodes.size)]
        data = SieveData.of(steps.select(np.concatenate(rows)), choice.transformer, regressor, model.data.stage.smoothing)
        start = SieveModel(model.problem, data, model.settings, model.strength, model.penalty).at(point.x)
        end = None if start is None else climb(start, gain=1e-3, max_steps=40)
        if end is not None and end.finished:
            estimates.append(model.discounts(end.point.x))
    if len(estimates) < 2:
        raise ValueError(f"fewer than two of {count} fits to resampled episodes ended: there are too few decisions")
    return np.array(estimates)


def overlap(data: SieveData, steps: Steps) -> Floats:
    """Return the share of each expert's decisions `(K,)` that were made where other experts decided as well."""
    features = [data.basis(steps.states[steps.expert == k]) for k in range(len(steps.experts))]
    grams = np.array([(rows.T @ rows).toarray() for rows in features])
    return np.array([determined(factorised(np.delete(grams, k, axis=0).sum(axis=0)), f).mean() for k, f in enumerate(features)])


def richer_gain(steps: Steps, transformer: Any) -> tuple[float, float]:
    """Return what a richer basis gains on held-out choices: as a share of what is predicted at all, and in standard errors."""
    held = held_out_rows(steps)
    size = {1: 16, 2: 10, 3: 6}.get(len(set(steps.sources)), 5)
    rich = Splines(max(size, transformer.size + 3) if isinstance(transformer, Splines) else size, steps.sources)
    scores = []
    for candidate in (transformer, rich):
        data = SieveData.of(steps.select(~held), candidate)
        pairs = zip(data.decisions_of(steps.select(held)), fit_logits(data), strict=True)
        scores.append(np.concatenate([decisions.predicted(logit.coefficients, 1.0) for decisions, logit in pairs]))
    gain = scores[1] - scores[0]
    total, predicted = float(gain.sum()), float((scores[1] + np.log(len(steps.actions))).sum())
    if total <= 0 or predicted <= 0:
        return 0.0, 0.0
    return total / predicted, total / max(float(gain.std() * np.sqrt(gain.size)), 1e-12)


def resume_sieve(solution: Solution) -> SievePoint:
    """Return the model at the answer of a solution as `solve` returned it."""
    estimate = solution.estimate
    if not isinstance(estimate, FunctionEstimate) or not isinstance(estimate.place, SievePoint):
        raise ValueError(NOT_AS_SOLVED)
    return estimate.place


@dataclass(frozen=True, eq=False)
class RewardFunctions(Result):
    """Reward, values and policies of an answer. States are `(n,d)`, or a frame with the columns in `coordinates`."""

    point: SievePoint
    coordinates: tuple[str, ...]
    origin: Floats
    covariance: Floats

    def reward(self, states: Any) -> Floats:
        """Return the reward of arriving in these states, `(n,)`."""
        return self._contrast(states) @ self.point.likelihood.reward(self.point.x)

    def reward_errors(self, states: Any) -> Floats:
        """Return standard errors of `reward`, `(n,)`, which carry the first stage."""
        rows = self._contrast(states)
        errors: Floats = np.sqrt(np.maximum(((rows @ self.covariance) * rows).sum(axis=1), 0.0))
        return errors

    def values(self, expert: str, states: Any) -> Floats:
        """Return the expert's soft values in these states, `(n,)`."""
        return self._plan(expert, states)[0]

    def policy(self, expert: str, states: Any) -> Floats:
        """Return the expert's probability of each action, `(n,A)`; 0 where it is not known what the action leads to."""
        return np.exp(self._plan(expert, states)[1].T)

    def sentences(self) -> str:
        """Return where arriving pays most and least, among states spread over the log."""
        frame = self.to_frame().sort_values("reward", ascending=False)
        most, least = (
            f"{significant(row['reward'])} at {', '.join(f'{name} = {significant(row[name], 4)}' for name in self.coordinates)}"
            for row in (frame.iloc[0], frame.iloc[-1])
        )
        return f"Of {len(frame)} states spread over the log, arriving pays most, {most}, and least, {least}."

    def to_frame(self) -> pd.DataFrame:
        """Return the reward and its standard error at up to 500 states spread over the log, one row per state."""
        points = value_points(self.point.likelihood.problem.steps)
        chosen = points[np.linspace(0, len(points) - 1, min(len(points), 500)).round().astype(np.int64)]
        frame = pd.DataFrame(chosen, columns=list(self.coordinates))
        return frame.assign(reward=self.reward(chosen), standard_error=self.reward_errors(chosen))

    def plot(self, ax: Any = None, over: Sequence[int] = (0, 1)) -> Any:
        """Draw the reward over one or two coordinates, given by their places, with the others at their medians; returns
        matplotlib's axes.

        Over one it is a curve with 95% CIs. Over two, blue pays more and red less, and nobody was near where it is grey.
        """
        return pictured(ax, 2.6, partial(self._draw, over=over))

    def _draw(self, ax: Any, over: Sequence[int] = (0, 1)) -> None:
        places = list(over)[: len(self.coordinates)]
        if len(places) == 1:
            x, reward, half = self.curve(places[0])
            ax.fill_between(x, reward - half, reward + half, color=COLOURS[0], alpha=0.3, linewidth=0)
            ax.plot(x, reward, color=COLOURS[0])
        else:
            x, y, shown = self.surface(places)
            limit = float(np.nanmax(np.abs(shown)))
            ax.set_facecolor("0.85")
            drawn = ax.pcolormesh(x, y, shown.T, cmap="RdBu", vmin=-limit, vmax=limit, shading="nearest")
            ax.figure.colorbar(drawn, ax=ax, label="reward")
        names = [literal(self.coordinates[place]) for place in places]
        ax.set(xlabel=names[0], ylabel="reward" if len(places) == 1 else names[1])

    def _tables(self, compute: bool) -> list[Table]:
        return [Table(self.to_frame(), drawn=("reward",), labels=self.coordinates)]

    @property
    def _arrived(self) -> Floats:
        steps = self.point.likelihood.problem.steps
        return steps.next_states[steps.known_next]

    def curve(self, place: int) -> tuple[Floats, Floats, Floats]:
        """Return values of a coordinate, the reward there with the others at their medians, and half its 95% CI."""
        arrived = self._arrived
        points = np.tile(np.median(arrived, axis=0), (200, 1))
        x = points[:, place] = np.linspace(arrived[:, place].min(), arrived[:, place].max(), 200)
        return x, self.reward(points), 1.96 * self.reward_errors(points)

    def surface(self, pair: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Return axes of a pair of coordinates, and the reward over them: NaN where nobody arrived within a sixteenth of the
        range.
        """
        size, arrived, pair = 40, self._arrived, list(pair)
        ends = np.quantile(arrived[:, pair], [0.005, 0.995], axis=0)
        x, y = (np.linspace(low, high, size) for low, high in ends.T.tolist())
        points = np.tile(np.median(arrived, axis=0), (size * size, 1))
        points[:, pair] = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
        edges = [np.concatenate([[-np.inf], (axis[1:] + axis[:-1]) / 2, [np.inf]]) for axis in (x, y)]
        counts = np.histogram2d(arrived[:, pair[0]], arrived[:, pair[1]], bins=edges)[0]
        near = maximum_filter(counts, 2 * (size // 16) + 1, mode="constant") > 0
        return x, y, np.where(near, self.reward(points).reshape(size, size), np.nan)

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = plain(self.to_frame())
        return content

    def _plan(self, expert: str, states: Any) -> tuple[Floats, Floats]:
        model = self.point.likelihood
        if expert not in model.problem.names:
            raise ValueError(f"expert must be one of {', '.join(model.problem.names)}, got {expert!r}")
        plan = self.point.plans[model.problem.names.index(expert)]
        points = self._points(states)
        stage = model.data.stage
        q = np.stack([row @ c for row, c in zip(stage.rows(points), plan.coefficients, strict=True)])
        available = stage.available(model.data.basis(points))
        offered = available.any(axis=0)
        value, log = soft_values(q, available | ~offered, plan.lam)
        return np.where(offered, value, np.nan), np.where(offered, log, np.nan)

    def _contrast(self, states: Any) -> Floats:
        rows: Floats = self.point.likelihood.data.basis(self._points(states)).toarray() - self.origin
        return rows

    def _points(self, states: Any) -> Floats:
        if is_frame(states):
            states = as_frame(states, "states")
            missing = [name for name in self.coordinates if name not in states.columns]
            if missing:
                raise ValueError(f"states must have the columns {', '.join(self.coordinates)}, got none named {missing[0]}")
            states = states[list(self.coordinates)]
        points = as_floats(states, "states")
        if points.ndim != 2 or points.shape[1] != len(self.coordinates):
            raise ValueError(f"states must have shape (n, {len(self.coordinates)}), got {points.shape}")
        return points


def reward_functions(solution: Solution) -> RewardFunctions:
    """Return reward, values and policies as functions of the state, from a solution of `SieveLikelihood` as `solve` returned it.

    Where no step ends an episode for good, a constant added to the reward changes nothing, and rewards are measured from their
    average over the logged arrivals.

    Args:
        solution: of `SieveLikelihood`.

    Returns:
        Functions of states `(n,p)`: reward, values and policies, with standard errors
        (`multihorizon.likelihood.sieve.RewardFunctions`).

    Raises:
        ValueError: for solutions of other solvers.

    Example:
        >>> import multihorizon as mh
        >>> problem = mh.SampledProblem(mh.domains.navigation().simulate(decisions=1200))
        >>> found = reward_functions(mh.solve(problem, mh.SieveLikelihood(basis=mh.Splines(5), penalty=0.1)))
        >>> pit, goal = found.reward([[0.55, 0.5], [0.8, 0.75]])
        >>> bool(pit < goal)
        True
    """
    point = resume_sieve(solution)
    model, steps = point.likelihood, point.likelihood.problem.steps
    arrived = model.data.basis(steps.next_states[steps.known_next])
    origin = np.zeros(model.n_reward) if model.data.ends else np.asarray(arrived.mean(axis=0)).ravel()
    covariance = solution.estimate.covariance()[: model.n_reward, : model.n_reward]
    return RewardFunctions(point, steps.coordinates, origin, covariance)


@renamed(resamples="draws", tol="tolerance", max_iter="max_steps")
@dataclass(frozen=True)
class SieveLikelihood:
    """The most likely reward, discount factors and temperatures of decisions in sampled states.

    Maximises `Σ_k Σ_i log π_k(a_i|s_i) − penalty/2 θᵀRθ` with `r(s) = φ(s)ᵀθ`, R its roughness, and values solved inside.
    The solution's `reward` holds θ; `reward_functions(solution)` evaluates rewards, values and policies anywhere.

    Args:
        basis: a scikit-learn transformer of states, such as `Splines(9)`, `RBFSampler()` or `OneHotEncoder()`. None chooses
            the size of a spline basis by held-out likelihood, and leaves out coordinates on which nobody acts.
        regressor: a scikit-learn regressor of φ(s') on state and action; None is least squares on φ(s) for each action. With a
            regressor, standard errors come from resampled episodes.
        penalty: weight of the penalty on the reward's roughness; None chooses it by held-out likelihood.
        temperature: "pooled", "shared", "per_expert", a number or a mapping, as in `MaximumLikelihood`.
        discounts: known discounts: one number for all, or a mapping of names to numbers.
        draws: how many times to fit resampled episodes for standard errors. 0 takes them from the information matrix and the
            first stage's errors of prediction, which is right where least squares is the first stage.
        tolerance: an ascent ends where a step promises less log-likelihood than this.
        max_steps: steps after which an ascent is stopped.

    Example:
        >>> from multihorizon import SampledProblem, solve
        >>> from multihorizon.domains import navigation
        >>> problem = SampledProblem(navigation().simulate(decisions=1200))
        >>> solution = solve(problem, SieveLikelihood(basis=Splines(4), penalty=0.1))
        >>> str(solution.status), bool((np.diff(solution.discounts) > 0).all())
        ('converged', True)
    """

    takes: ClassVar = SampledProblem
    not_apart: ClassVar = "its states are vectors, and this needs states in a list"

    basis: Any = None
    regressor: Any = None
    penalty: float | None = None
    temperature: Temperature = "pooled"
    discounts: float | Mapping[str, float] | None = None
    draws: int = 0
    tolerance: float = 1e-6
    max_steps: int = 300

    def __post_init__(self) -> None:
        for name, method in (("basis", "transform"), ("regressor", "predict")):
            given = getattr(self, name)
            if given is not None and (isinstance(given, type) or not all(hasattr(given, m) for m in ("fit", method))):
                raise ValueError(f"{name} must have the methods fit and {method} of scikit-learn, got {given!r}")
        if self.penalty is not None and not float(as_floats(self.penalty, "penalty")) > 0:
            raise ValueError(f"penalty must be above 0, got {self.penalty}")
        check_temperature(self.temperature)
        check_discounts(self.discounts)
        as_count(self.draws, "draws", least=0)
        as_positive(self.tolerance, "tolerance")
        as_count(self.max_steps, "max_steps", least=1)

    def solve(self, problem: SampledProblem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Fit; `seed` draws resampled episodes."""
        run = Run(seed, progress=progress)
        settings = self._settings(problem)
        steps, basis = problem.steps, self.basis
        relevance: dict[str, float] = {}
        if basis is None:
            kept, relevance = relevant_coordinates(steps)
            steps = steps.keeping(kept)
        elif (
            isinstance(basis, Splines) and basis.sources is None
        ):  # columns that are the indicators of one category belong together
            basis = Splines(basis.size, steps.sources)
        choice = choose(steps, basis, self.penalty, self.regressor, settings, run.part(0.0, 0.5))
        run.progress(0.5, "fit")
        fitted = fit_sieve(steps, choice, self.regressor, settings, self.temperature == "pooled", self.tolerance, self.max_steps)
        run.progress(0.8, "standard errors")
        count = self.draws or (30 if self.regressor is not None else 0)
        drawn = None
        if count:
            drawn = resampled(fitted.end.point, choice, self.regressor, count, run.part(0.8, 1.0))
        return self._solution(problem, fitted, choice, relevance, drawn)

    @classmethod
    def estimate_of(cls, solution: Solution) -> FunctionEstimate:
        """Raise: a file holds numbers, but not the functions of the state."""
        raise ValueError(NOT_AS_SOLVED)

    def _settings(self, problem: SampledProblem) -> Settings:
        """Return what is known, in the problem's order; temperatures that are to be pooled begin as equal ones."""
        k, temperature, discounts = problem.n_experts, self.temperature, self.discounts
        temperatures = np.full(k, np.nan if temperature == "per_expert" and k > 1 else 1.0)
        if isinstance(temperature, Mapping):
            temperatures = numbers_of(temperature, problem.names, "temperature", "expert")
        elif not isinstance(temperature, str):
            temperatures = np.full(k, float(temperature))
        if discounts is None:
            return Settings(temperatures=temperatures)
        if isinstance(discounts, Mapping):
            given = numbers_of(discounts, problem.names, "discounts", "expert")
        else:
            given = np.full(k, float(discounts))
        if (given > LARGEST_DISCOUNT).any():
            raise ValueError(f"a known discount must be at most {LARGEST_DISCOUNT}, because steps alone show no end, got more")
        return Settings(discounts=given, temperatures=temperatures)

    def _solution(
        self, problem: SampledProblem, fitted: Found, choice: Choice, relevance: dict[str, float], drawn: Floats | None
    ) -> Solution:
        """Return the solution of a fit. `drawn` are discounts of resampled episodes, None where standard errors are analytic."""
        point = fitted.end.point
        model, data, steps = point.likelihood, point.likelihood.data, point.likelihood.problem.steps
        (precise, matrix) = sieve_precision(point)
        shares = overlap(data, steps)
        of_experts = np.arange(model.size)[model.discount_slice][model.groups]
        fixed = model.fixed[of_experts]
        # An expert with less than 5% of shared states is not compared with anyone; one expert alone has nobody to compare with.
        comparable = ((shares >= 0.05) & (shares.size > 1)) | fixed.any()
        identified = (precise.identified[of_experts] & comparable) | fixed
        residual = point.projected_gradient()
        converged = fitted.end.finished and residual <= CONVERGED_GRADIENT
        errors = precise.standard_errors[of_experts] if drawn is None else drawn.std(axis=0, ddof=1)
        errors = np.where(fixed, 0.0, np.where(identified & converged, errors, np.nan))
        # Whether the basis is too poor is only asked where it was given, or is the largest that is tried.
        largest = isinstance(choice.transformer, Splines) and choice.transformer.size >= max(_sizes(steps))
        share, gain = richer_gain(steps, choice.transformer) if self.basis is not None or largest else (0.0, 0.0)
        chance, unrestricted = sum(batch.chance for batch in data.decisions), sum(logit.value for logit in fitted.logits)
        smoothing = data.stage.smoothing
        evidence = SieveEvidence(
            log_likelihood=point.value,
            decisions=model.decisions,
            chance=chance,
            unrestricted_logits=unrestricted,
            explained_share=(point.value - chance) / max(unrestricted - chance, 1e-12),
            basis=basis_name(choice.transformer),
            functions=data.functions,
            penalty=choice.penalty,
            tried=choice.tried,
            first_stage="regressor" if isinstance(data.stage, Regressed) else "least squares",
            first_stage_smoothing=None
            if smoothing is None
            else {
                "functions": basis_name(smoothing.inputs.transformer),
                "common": smoothing.common,
                "own": smoothing.own,
                "pooling": smoothing.pooling,
            },
            first_stage_widening=np.asarray(precise.widening)[of_experts].tolist() if drawn is None else None,
            resamples=0 if drawn is None else len(drawn),
            unidentified_directions=precise.nullity,
            equal_temperatures_p=fitted.p_equal,
            temperature_spread=fitted.spread,
            steps=fitted.end.steps,
            starts=[
                {"log_likelihood": end.point.value, "discounts": end.point.likelihood.discounts(end.point.x).tolist()}
                for end in fitted.ends
            ],
            identified=identified.tolist(),
            overlap=shares.tolist(),
            coordinates=list(steps.coordinates),
            left_out=[name for name in problem.steps.coordinates if name not in steps.coordinates],
            relevance_p=relevance,
            next_state_r2=next_state_r2(steps, held_out_rows(steps), smoothing, self.regressor),
            richer_basis={"gain_share": share, "standard_errors": gain},
            basis_too_poor=bool(share > 0.05 and gain > 4.0),
        )
        message = [
            f"Log-likelihood {decimals(point.value, 2)} of {decimals(model.decisions, 0)} decisions, gradient "
            f"{power_of_ten(residual)} per decision, "
            f"{data.functions} basis functions of {', '.join(steps.coordinates)}."
        ]
        if not identified.all():
            names = ", ".join(name for name, shown in zip(problem.names, identified, strict=True) if not shown)
            flat = comparable[~identified].all()
            why = "the likelihood is flat in their direction" if flat else "they act where no other expert acts"
            if problem.n_experts == 1:
                why = "any discount explains one expert with some reward"
            message.append(f"The discounts of {names} are not identified: {why}.")
        rivals = [
            (point.objective - end.point.objective, end.point.likelihood.discounts(end.point.x))
            for end in fitted.ends[1:]
            if end.finished and not fitted.spread
        ]
        message += about_rivals(rivals)
        if evidence.basis_too_poor:
            message.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
        if dynamics_unknown(evidence.next_state_r2):
            names = ", ".join(unpredicted(evidence.next_state_r2))
            message.append(
                f"State and action do not predict how {names} will change, so what actions lead to is not known: do not rely on "
                "the discounts."
            )
        if not converged:
            message.append("The optimiser stopped before converging: do not use this answer.")
        return Solution.of(
            "SieveLikelihood",
            replace(problem, parameter_names=data.basis.names),
            FunctionEstimate(point, errors, precise, matrix, LARGEST_DISCOUNT, tuple(rivals)),
            Status.NOT_CONVERGED if not converged else Status.CONVERGED if identified.all() else Status.NOT_IDENTIFIED,
            message,
            objective=point.value,
            residual=residual,
            evidence=evidence,
            standard_errors=errors,
        )
