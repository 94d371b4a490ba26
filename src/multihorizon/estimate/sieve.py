"""Starting points from concave problems: a logit for each expert, then one linear system for reward and discounts.

*First*, for each expert alone, the choices are a multinomial logit, `Q = M(s,a)ᵀ u`, concave in u, in which no discount occurs.
*Second*, `u_k = θ + γ_k v_k` with `v_k` the projection of `log Σ_a exp Q_k` is linear in (θ, Γ) with one θ for all: generalised
least squares, weighted by the information about u_k. Where steps end episodes for good, the arrivals that end them have
coefficients of their own, which are θ alone. The answer is biased, because v_k holds the error of u_k, but near.

The logits are also what the joint model is compared with: they fit anything that the basis can say about choices, so the joint
model's loss of likelihood against them tests one reward and one discount for each expert.

Which coordinates matter, how many functions a basis has, and how strong the penalty is.

*Coordinates.* With more than `FEW` of them, each expert's choices are fitted by a logit whose log-odds are sums of splines, one
for each coordinate. A coordinate whose splines have no effect on anyone's choices (Wald test over all experts, level `LEVEL`)
is left out: nobody acts on it, so it enters neither the reward nor the future that anyone plans for.

*Size and penalty.* Every third episode of each expert is held out. Sizes are tried upwards, each fitted by the joint likelihood
on the other episodes, until the held-out likelihood no longer grows. Then penalties: the smallest one is taken whose held-out
likelihood is within a standard error of the best, because a penalty on the reward moves the discounts.

Standard errors that carry the first stage.

Expert k's plan rests on predictions of `y_k(s') = φ(s')ᵀθ + γ_k φ(s')ᵀv_k 1(s' goes on)`. A logged step i with action a misses
its prediction by `e_ki = y_k(s'_i) − ψ(s_i) (C_a θ + γ_k E_a v_k)`, and so moves the coefficients of Q by `L_a ψ(s_i)ᵀ e_ki`, L
the linear map of `smoothing.System`, and v_k with them. With `B_k` the derivative of the score of x by those coefficients, in
its expected form and with the plan's response,

    x̂ − x ≈ C [ Σ decisions score − Σ_i h_i ],   h_i = Σ_k B_k L_a ψ(s_i)ᵀ e_ki,

C the inverse information. So the covariance is `C + C (Σ_episodes h hᵀ) C`, h summed over the steps of an episode: steps of one
episode may depend on each other. The first term is the second stage's own, the second what learning the dynamics adds.

Resampled episodes: standard errors that ask nothing of the first stage.

Each expert's episodes are drawn with replacement, first stage and answer are fitted again with the same basis and penalty, from
the answer, and the spread of the discounts is their standard error. Draw i uses the i-th child of the seed.

What the data cannot tell: one expert, regions that nobody shares, a basis that is too poor, and steps that nobody can predict.

*One expert.* Any discount explains one expert with some reward.

*Overlap.* Rewards and discounts are told apart where several experts act in the same region. A state of expert k is shared
where the other experts' decisions determine the basis functions there: leverage at most 1 in `Σ φ(s)φ(s)ᵀ` over their
decisions. An expert with hardly any shared state is not compared with anyone.

*Poor basis.* A logit with more functions is fitted to two thirds of the episodes. If it predicts the held-out choices better
than the logit of the chosen basis by a good part of what can be predicted at all, the basis is too poor, and discounts can be
wrong by more than their standard errors say.

*Unpredicted steps.* A coordinate whose change state and action do not predict on held-out steps says nothing about what actions
lead to. Where that holds for half of the coordinates or more, there is no plan to rely on.

The answer of a fit as a `Solution`: what is identified, how sure it is, and the evidence for both.

The answer as functions of the state: reward, values and policies, which can be evaluated anywhere and plotted.

Where no step ends an episode for good, a constant added to the reward changes nothing, and rewards are measured from their
average over the logged arrivals. Standard errors are those of what is returned, and carry the first stage.

Reward, discounts and temperatures from decisions in states that are vectors, with dynamics learned from the same log.

The steps: coordinates that nobody acts on are left out, basis and penalty are chosen by held-out likelihood (`selection.py`),
the first stage is fitted (`outcomes.py`), climbs begin at the two-stage answer (`two_stage.py`) and end at a maximum of the
joint likelihood (`sieve_likelihood.py`), temperatures are set free where the decisions reject equal ones, and standard errors
carry the first stage (`errors.py`). Where the data cannot tell (`limits.py`, or an information matrix that is singular in the
direction of a discount), the answer is NOT_IDENTIFIED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.linalg as la
import scipy.sparse as sp
from scipy.ndimage import maximum_filter
from scipy.stats import chi2, qmc

from multihorizon.checks import Bools, Floats, Ints, as_count, as_floats, first_few
from multihorizon.choice.basis import BLOCK, MOST_LEVERAGE, LeastSquares, Regressed, Splines, held_out_rows, next_state_r2
from multihorizon.choice.parameters import Settings, Temperature, check_discounts, check_temperature
from multihorizon.choice.sieve import (
    LARGEST_DISCOUNT,
    Decisions,
    Design,
    SampledPlan,
    SieveModel,
    SievePoint,
    coefficient_slopes,
    decision_values,
    make_design,
    predicted_scores,
    project,
    soft_values,
    value_points,
)
from multihorizon.data.steps import Steps
from multihorizon.estimate.ascent import climb, polished, projected_gradient
from multihorizon.estimate.intervals import NormalIntervals, Precision, precision
from multihorizon.estimate.maximum_likelihood import CONVERGED_GRADIENT
from multihorizon.estimate.search import estimate_spread, temperature_penalty
from multihorizon.numerics.newton import Ascent
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.problem import SampledProblem
from multihorizon.result import Result, literal, plain
from multihorizon.solution import SieveEvidence, Solution, Status

#: The logits' own penalty, and the gain below which their Newton steps end.
LOGIT_RIDGE, LOGIT_GAIN, LOGIT_STEPS = 0.03, 1e-3, 30
#: Discounts of a start stay inside these bounds. Other starts have all discounts at one of the levels, or are scattered.
START_BOUNDS, LEVELS, SCATTERED = (0.02, 0.97), (0.1, 0.5, 0.9), 8


@dataclass(frozen=True, eq=False)
class Logit:
    """One expert's choices without a plan: coefficients u, their information, the log-likelihood, and projected values."""

    coefficients: Floats
    information: Floats
    value: float
    values: Floats


def fit_logits(design: Design) -> list[Logit]:
    """The logit of each expert."""
    return [_fit(design, decisions) for decisions in design.decisions]


def coefficients_of(design: Design, logit: Logit) -> Floats:
    """The coefficients of Q `(A,p)` that a logit amounts to."""
    found: Floats = _loads(design) @ logit.coefficients
    return found


def starts(model: SieveModel, logits: list[Logit]) -> list[SievePoint]:
    """Points to climb from: first the solution of the linear system, then others by likelihood, at a few levels and scattered."""
    levels = [np.full(model.n_discounts, level) for level in LEVELS]
    scattered = START_BOUNDS[1] * qmc.Halton(model.n_discounts, rng=np.random.default_rng(0)).random(SCATTERED)
    solved = [_second_stage(model, logits, gammas) for gammas in (None, *levels, *scattered)]
    points = [model.at(model.pack(theta, gammas)) for theta, gammas in solved]
    others = sorted((point for point in points[1:] if point is not None), key=lambda point: -point.objective)
    found = others if points[0] is None else [points[0], *others]
    if not found:
        found = [
            point for point in (model.at(model.pack(np.zeros(model.n_reward), level)) for level in levels) if point is not None
        ]
    return found


def _fit(design: Design, decisions: Decisions) -> Logit:
    loads = _loads(design)
    u = np.zeros(loads.shape[2])
    value, gradient, information = _logit(decisions, loads, u)
    for _ in range(LOGIT_STEPS):
        curvature = information + LOGIT_RIDGE * np.eye(u.size)
        slope = gradient - LOGIT_RIDGE * u
        step = la.solve(curvature, slope, assume_a="pos")
        promised, scale = float(slope @ step), 1.0
        if promised < LOGIT_GAIN:
            break
        while True:
            trial = u + scale * step
            found = _logit(decisions, loads, trial)
            gain = found[0] - value - 0.5 * LOGIT_RIDGE * float(trial @ trial - u @ u)
            if gain > 0.1 * scale * promised or scale < 1e-6:
                break
            scale /= 2
        u, (value, gradient, information) = trial, found
    live = u[: design.functions]
    ended = u[design.functions :] if design.ends else live
    q = design.expected_on @ live + (design.expected_paid - design.expected_on) @ ended
    return Logit(u, information, value, design.projection @ soft_values(q, design.points_available, 1.0)[0])


def _loads(design: Design) -> Floats:
    """What u is multiplied with, `(A,p,q)`: arrivals that go on and, where there are any, arrivals that end the episode."""
    on, paid = design.stage.going_on, design.stage.paid
    return np.concatenate([on, paid - on], axis=2) if design.ends else on


def _logit(decisions: Decisions, loads: Floats, u: Floats) -> tuple[float, Floats, Floats]:
    """Log-likelihood, gradient and information of a logit at u."""
    log = soft_values(decision_values(decisions, loads @ u), decisions.available, 1.0)[1]
    policy = np.exp(log)
    value = float(log[decisions.action, np.arange(decisions.action.size)].sum())
    missed = [row.T @ y for row, y in zip(decisions.rows, decisions.counts - policy, strict=True)]
    gradient = np.einsum("apq,ap->q", loads, np.stack(missed), optimize=True)
    information = np.einsum("apq,apr->qr", loads, project(decisions, policy, loads), optimize=True)
    return value, gradient, information


def _second_stage(model: SieveModel, logits: list[Logit], gammas: Floats | None) -> tuple[Floats, Floats]:
    """θ and the discounts of each group by generalised least squares; θ alone where the discounts are given."""
    f, groups = model.n_reward, model.n_discounts
    size = f if gammas is not None else f + groups
    matrix, target = np.zeros((size, size)), np.zeros(size)
    for k, logit in enumerate(logits):
        q = logit.coefficients.size
        rows = np.zeros((q, size))
        rows[:, :f] = np.vstack([np.eye(f)] * (q // f))
        wanted = logit.coefficients.copy()
        if gammas is None:
            rows[:f, f + model.groups[k]] = logit.values
        else:
            wanted[:f] -= gammas[model.groups[k]] * logit.values
        matrix += rows.T @ logit.information @ rows
        target += rows.T @ logit.information @ wanted
    matrix[:f, :f] += model.ridge + LOGIT_RIDGE * np.eye(f)
    matrix[np.diag_indices_from(matrix)] += 1e-10 * np.diag(matrix).max()
    solved = la.solve(matrix, target, assume_a="sym")
    return solved[:f], np.clip(solved[f:], *START_BOUNDS) if gammas is None else gammas


FEW, LEVEL, SCREEN_SIZE = 2, 1e-3, 6
#: Sizes that are tried, by the number of quantities; beyond three, products are of pairs.
SIZES = {1: (6, 10, 16), 2: (6, 9, 12), 3: (4, 5, 6)}
PAIR_SIZES = (4, 5)
#: Penalties that are tried. Held-out choices hardly see the penalty, but discounts do: a weight of 1 moved a discount of 0.5 on
#: the walk by 0.02, a weight of 0.1 by 0.002. So larger ones are not offered.
PENALTIES, FIRST_PENALTY = (0.1, 0.3), 0.1
#: A larger basis must be better by this share of a standard error.
WORTHWHILE = 0.5
#: Steps and gain of climbs that only compare bases.
ROUGH_STEPS, ROUGH_GAIN = 10, 0.1


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the held-out log-likelihood per decision of everything that was tried."""

    transformer: Any
    penalty: float
    tried: list[dict[str, float | str]]


def relevant_coordinates(steps: Steps) -> tuple[list[int], dict[str, float]]:
    """The coordinates on which choices depend, and the p-value of each source; all, where there are few or none stands out."""
    sources = list(dict.fromkeys(steps.sources))
    every = list(range(len(steps.sources)))
    if len(sources) <= FEW:
        return every, {}
    p_values = _screen(steps, sources)
    kept = [i for i in every if p_values[sources.index(steps.sources[i])] < LEVEL]
    names = [steps.coordinates[steps.sources.index(source)].partition("=")[0] for source in sources]
    return kept or every, dict(zip(names, p_values.tolist(), strict=True))


def _screen(steps: Steps, sources: Sequence[int]) -> Floats:
    """The p-value of each source: that no choice depends on it."""
    blocks, places = [sp.csr_array(np.ones((len(steps), 1)))], [np.zeros(0, dtype=np.int64)]
    for source in sources:
        columns = [i for i, s in enumerate(steps.sources) if s == source]
        rows = Splines(SCREEN_SIZE, [0] * len(columns)).fit_transform(steps.states[:, columns])[:, 1:]
        first = sum(block.shape[1] for block in blocks)
        blocks.append(rows)
        places.append(np.arange(first, first + rows.shape[1]))
    features = sp.csr_array(sp.hstack(blocks, format="csr"))
    statistic, degrees = np.zeros(len(sources)), np.zeros(len(sources))
    for k in range(len(steps.experts)):
        own = np.flatnonzero(steps.expert == k)
        coefficients, covariance = _additive_logit(features[own].toarray(), steps.action[own], len(steps.actions))
        for j, place in enumerate(places[1:]):
            index = (place[:, None] + features.shape[1] * np.arange(len(steps.actions) - 1)).ravel()
            b, c = coefficients[index], covariance[np.ix_(index, index)]
            statistic[j] += float(b @ la.lstsq(c, b, cond=1e-10)[0])
            degrees[j] += index.size
    p_values: Floats = chi2.sf(statistic, degrees)
    return p_values


def _additive_logit(x: Floats, action: Ints, n_actions: int) -> tuple[Floats, Floats]:
    """A multinomial logit against the last action: coefficients `((A−1)p,)`, one action after another, and their covariance."""
    p, m = x.shape[1], n_actions - 1
    b, taken = np.zeros((m, p)), (action == np.arange(m)[:, None]).astype(np.float64)
    matrix = np.eye(m * p)
    for _ in range(12):
        log = np.vstack([b @ x.T, np.zeros(len(x))])
        policy = np.exp(log - log.max(axis=0))
        policy = (policy / policy.sum(axis=0))[:m]
        gradient = ((taken - policy) @ x).ravel() - 1e-3 * b.ravel()
        matrix = np.empty((m, p, m, p))
        for i in range(m):
            for j in range(i, m):
                weight = policy[i] * ((i == j) - policy[j])
                matrix[i, :, j] = x.T @ (weight[:, None] * x)
                matrix[j, :, i] = matrix[i, :, j].T
        matrix = matrix.reshape(m * p, m * p) + 1e-3 * np.eye(m * p)
        step = la.solve(matrix, gradient, assume_a="pos")
        b = b + step.reshape(m, p)
        if float(gradient @ step) < 1e-3:
            break
    return b.ravel(), np.asarray(la.inv(matrix), dtype=np.float64)


def sizes_for(steps: Steps) -> tuple[int, ...]:
    """The sizes to try with these coordinates."""
    return SIZES.get(len(set(steps.sources)), PAIR_SIZES)


def choose(steps: Steps, basis: Any, penalty: float | None, regressor: Any, settings: Settings, progress: Progress) -> Choice:
    """The basis and the penalty by held-out likelihood; what is given is not chosen."""
    candidates = [basis] if basis is not None else [Splines(size, steps.sources) for size in sizes_for(steps)]
    if len(candidates) == 1 and penalty is not None:
        return Choice(candidates[0], penalty, [])
    held = held_out_rows(steps)
    if not (held & steps.known_next).any():
        raise ValueError(
            f"a table of steps must hold more decisions whose next state is known, received {len(steps)} decisions: a third of "
            "each expert's is kept aside to choose the model, and none of these has a next state; add longer episodes, or more"
        )
    tried: list[dict[str, float | str]] = []
    best: tuple[Any, _Trial] | None = None
    for number, candidate in enumerate(candidates):
        progress(0.6 * number / len(candidates), f"basis {number + 1} of {len(candidates)}")
        trial = _trial(steps, held, candidate, FIRST_PENALTY if penalty is None else penalty, regressor, settings)
        if trial is None:
            continue
        tried.append(_record(candidate, trial))
        if best is not None and not trial.beats(best[1]):
            break
        best = candidate, trial
    if best is None:
        raise ValueError("no basis gave finite values on two thirds of the episodes: there are too few decisions")
    if penalty is not None:
        return Choice(best[0], penalty, tried)
    return _choose_penalty(best[0], best[1], tried, progress)


@dataclass(frozen=True, eq=False)
class _Trial:
    """A fit to two thirds of the episodes, and its log-likelihood of each held-out decision."""

    point: SievePoint
    held_out: Steps
    scores: Floats
    penalty: float

    def beats(self, other: _Trial) -> bool:
        """Whether it predicts better, by more than chance would often give."""
        difference = self.scores - other.scores
        return float(difference.sum()) > WORTHWHILE * float(difference.std() * np.sqrt(difference.size))


def _trial(steps: Steps, held: Bools, candidate: Any, penalty: float, regressor: Any, settings: Settings) -> _Trial | None:
    train = steps.select(~held)
    design = make_design(train, candidate, regressor)
    model = SieveModel(SampledProblem(train, design.basis.names), design, settings, penalty)
    begin = starts(model, fit_logits(design))
    return None if not begin else _climbed(begin[0], steps.select(held), penalty)


def _climbed(start: SievePoint, held_out: Steps, penalty: float) -> _Trial:
    end = climb(start, max_steps=ROUGH_STEPS, gain=ROUGH_GAIN).point
    return _Trial(end, held_out, predicted(end, held_out), penalty)


def predicted(point: SievePoint, steps: Steps) -> Floats:
    """The log-probability `(n,)` of each decision in steps the model has not seen, experts one after another."""
    found = []
    for plan, decisions in zip(point.plans, point.likelihood.design.decisions_of(steps), strict=True):
        found.append(predicted_scores(decisions, plan.coefficients, plan.lam))
    return np.concatenate(found)


def _choose_penalty(candidate: Any, first: _Trial, tried: list[dict[str, float | str]], progress: Progress) -> Choice:
    trials = [first]
    for number, penalty in enumerate(PENALTIES):
        if penalty == first.penalty:
            continue
        progress(0.6 + 0.4 * number / len(PENALTIES), f"penalty {penalty:g}")
        start = first.point.likelihood.of_strength(penalty).at(first.point.x, first.point)
        assert start is not None
        trials.append(_climbed(start, first.held_out, penalty))
        tried.append(_record(candidate, trials[-1]))
    best = max(trials, key=lambda trial: float(trial.scores.sum()))
    near = [t for t in trials if best.scores.sum() - t.scores.sum() <= (best.scores - t.scores).std() * np.sqrt(t.scores.size)]
    return Choice(candidate, min(trial.penalty for trial in near), tried)


def _record(candidate: Any, trial: _Trial) -> dict[str, float | str]:
    return {
        "basis": basis_name(candidate),
        "functions": float(trial.point.likelihood.design.functions),
        "penalty": trial.penalty,
        "held_out": float(trial.scores.mean()),
    }


def basis_name(transformer: Any) -> str:
    """A transformer in words."""
    return f"Splines({transformer.size})" if isinstance(transformer, Splines) else str(transformer)


def sieve_precision(point: SievePoint) -> tuple[Precision, Floats]:
    """What is identified, with standard errors, and the full covariance `(p,p)`; NaN errors where the first stage has none."""
    found, added = precision(point), first_stage_scores(point)
    own = found.covariance
    assert own is not None
    full = own if added is None else own + (own @ added) @ (own @ added).T
    ratio = np.sqrt(np.diag(full) / np.where(found.variance > 0, found.variance, np.inf))
    widening = np.full(ratio.size, np.nan) if added is None else np.where(found.variance > 0, ratio, 1.0)
    return replace(found, widening=widening), full


def first_stage_scores(point: SievePoint) -> Floats | None:
    """How each episode's errors of prediction move the score of x, `(p,episodes)`; None where another regressor was used."""
    model, design = point.likelihood, point.likelihood.design
    stage = design.stage
    if not isinstance(stage, LeastSquares):
        return None
    steps = model.problem.steps.select(model.problem.steps.known_next)
    features, after = stage.smoothing.inputs(steps.states), design.basis(steps.next_states)
    total = np.zeros((len(steps), model.size))
    for k, plan in enumerate(point.plans):
        future = plan.gamma * (after @ plan.values) * ~steps.terminated
        missed = after @ model.reward(point.x) + future
        moved = stage.equations.solve(_score_by_coefficients(point, k))
        for action in range(len(steps.actions)):
            rows = np.flatnonzero(steps.action == action)
            own = features[rows]
            error = missed[rows] - own @ plan.coefficients[action]
            total[np.ix_(rows, model.places(k))] += error[:, None] * (own @ moved[action])
    episode = steps.episode_numbers
    sums = sp.csr_array((np.ones(episode.size), (episode, np.arange(episode.size))))
    found: Floats = (sums @ total).T
    return found


def _score_by_coefficients(point: SievePoint, k: int) -> Floats:
    """`Σ π dlogπ/dx dlogπ/dc` `(A,p,q)`: how the score of x moves with the coefficients of Q, the values following them."""
    model, design = point.likelihood, point.likelihood.design
    plan = point.plans[k]
    moved = point.loads(k, coefficient_slopes(design, plan) / plan.lam) / plan.lam
    on_values = plan.gamma * np.einsum("apq,apf->fq", moved, design.stage.going_on, optimize=True)
    return moved + _through_values(model, plan, on_values)


def _through_values(model: SieveModel, plan: SampledPlan, on_values: Floats) -> Floats:
    """What weights `(f,q)` on v amount to on the coefficients of Q at the value points, `(A,p,q)`."""
    design = model.design
    points = design.projection.T @ la.lu_solve(plan.resolvent, on_values, trans=1, check_finite=False)
    return np.stack([row.T @ (p[:, None] * points) for row, p in zip(design.point_rows, plan.point_policy, strict=True)])


def resampled(point: Any, choice: Choice, regressor: Any, count: int, seed: int, progress: Progress) -> Floats:
    """Discounts `(n,K)` of fits to resampled episodes of each expert, with the same basis; fits that did not end are left out."""
    model: SieveModel = point.likelihood
    steps, found = model.problem.steps, []
    for number, stream in enumerate(np.random.SeedSequence(seed).spawn(count)):
        progress(number / count, f"resampled episodes {number + 1} of {count}")
        drawn = _drawn(steps, np.random.default_rng(stream))
        design = make_design(drawn, choice.transformer, regressor, model.design.stage.smoothing)
        fresh = SieveModel(model.problem, design, model.settings, model.strength, model.penalty)
        start = fresh.at(point.x, None)
        end = None if start is None else climb(start, gain=1e-3, max_steps=40)
        if end is not None and end.finished:
            found.append(fresh.discounts(end.point.x))
    if len(found) < 2:
        raise ValueError(f"fewer than two of {count} fits to resampled episodes ended: there are too few decisions")
    return np.array(found)


def _drawn(steps: Steps, rng: np.random.Generator) -> Steps:
    """Steps of each expert's episodes, drawn with replacement."""
    numbers = steps.episode_numbers
    first = np.flatnonzero(np.concatenate([[True], np.diff(numbers) != 0]))
    last = np.append(first[1:], numbers.size)
    rows = []
    for k in range(len(steps.experts)):
        own = np.flatnonzero(steps.expert[first] == k)
        rows += [np.arange(first[e], last[e]) for e in rng.choice(own, own.size)]
    return steps.select(np.concatenate(rows))


#: An expert with a smaller share of shared states is not compared with anyone.
LEAST_OVERLAP = 0.05
#: The basis is too poor where a richer one gains this share of what the choices have to say, and this many standard errors.
POOR_SHARE, POOR_ERRORS = 0.05, 4.0
#: A coordinate is predicted where this share of the variance of its change is, on held-out steps.
PREDICTED = 0.02
#: The richer basis has at least so many functions per coordinate, by the number of quantities, and more than the splines given.
RICH, RICH_PAIRS, MORE = {1: 16, 2: 10, 3: 6}, 5, 3


def overlap(design: Design, steps: Steps) -> Floats:
    """The share of each expert's decisions `(K,)` that were made where other experts decided as well."""
    features = [design.basis(steps.states[steps.expert == k]) for k in range(len(steps.experts))]
    grams = [(rows.T @ rows).toarray() for rows in features]
    shares = np.zeros(len(features))
    for k, rows in enumerate(features):
        others = sum((gram for i, gram in enumerate(grams) if i != k), np.zeros_like(grams[0]))
        shift = 1e-9 * max(float(np.trace(others)) / len(others), 1e-6)
        root = la.cholesky(others + shift * np.eye(len(others)), lower=True)
        shared = 0
        for start in range(0, rows.shape[0], BLOCK):
            half = la.solve_triangular(root, rows[start : start + BLOCK].toarray().T, lower=True)
            shared += int(((half * half).sum(axis=0) <= MOST_LEVERAGE).sum())
        shares[k] = shared / rows.shape[0]
    return shares


def comparable(shares: Floats) -> Bools:
    """Which experts `(K,)` can be compared with others: nobody, where there is one expert."""
    found: Bools = (shares >= LEAST_OVERLAP) & (shares.size > 1)
    return found


def unpredicted(next_state_r2: Mapping[str, float]) -> list[str]:
    """The coordinates whose change state and action do not predict; one that never changes is predicted."""
    return [name for name, share in next_state_r2.items() if share <= PREDICTED]


def dynamics_unknown(next_state_r2: Mapping[str, float]) -> bool:
    """Whether half of the coordinates or more are not predicted."""
    return 2 * len(unpredicted(next_state_r2)) >= len(next_state_r2)


def richer_gain(steps: Steps, transformer: Any) -> tuple[float, float]:
    """What a richer basis gains on held-out choices: as a share of what is predicted at all, and in standard errors."""
    held = held_out_rows(steps)
    own = transformer.size if isinstance(transformer, Splines) else 0
    rich = Splines(max(RICH.get(len(set(steps.sources)), RICH_PAIRS), own + MORE), steps.sources)
    scores = [_held_out(steps, held, candidate) for candidate in (transformer, rich)]
    gain, chance = scores[1] - scores[0], -np.log(len(steps.actions))
    predicted, error = float((scores[1] - chance).sum()), float(gain.std() * np.sqrt(gain.size))
    if gain.sum() <= 0 or predicted <= 0:
        return 0.0, 0.0
    return float(gain.sum()) / predicted, float(gain.sum()) / max(error, 1e-12)


def _held_out(steps: Steps, held: Bools, transformer: Any) -> Floats:
    design = make_design(steps.select(~held), transformer)
    logits = fit_logits(design)
    pairs = zip(logits, design.decisions_of(steps.select(held)), strict=True)
    return np.concatenate([predicted_scores(own, coefficients_of(design, logit), 1.0) for logit, own in pairs])


@dataclass(frozen=True, eq=False)
class Found:
    """The answer of one fit, the ends of all its climbs, and what the logits of the same basis reach."""

    end: Ascent[SievePoint]
    ends: list[Ascent[SievePoint]]
    logits: list[Logit]
    p_equal: float | None
    spread: float | None


def resume_sieve(solution: Solution) -> SievePoint:
    """The model at the answer of a solution as `solve` returned it."""
    source = solution.interval_source
    if not isinstance(source, NormalIntervals) or not isinstance(source.point, SievePoint):
        raise ValueError(
            "this needs a solution of SieveLikelihood as solve returned it, received another one; a file holds its numbers, "
            "but not its functions: solve again"
        )
    return source.point


def make_solution(
    problem: SampledProblem,
    found: Found,
    choice: Choice,
    relevance: dict[str, float],
    drawn: Floats | None,
    basis_given: bool,
    regressor: Any,
) -> Solution:
    """The solution of a fit. `drawn` are discounts of resampled episodes, None where standard errors are analytic."""
    point = found.end.point
    model, steps = point.likelihood, point.likelihood.problem.steps
    precise = sieve_precision(point)[0]
    shares = overlap(model.design, steps)
    known = model.fixed[model.discount_slice][model.groups]
    apart = comparable(shares) | known.any()
    identified = (precise.identified[model.discount_slice][model.groups] & apart) | known
    residual = projected_gradient(point)
    converged = found.end.finished and residual <= CONVERGED_GRADIENT
    errors = _errors(model, precise.standard_errors, drawn)
    errors = np.where(known, 0.0, np.where(identified & converged, errors, np.nan))
    poor = _poor(steps, choice, basis_given, regressor)
    status = Status.NOT_CONVERGED if not converged else Status.CONVERGED if identified.all() else Status.NOT_IDENTIFIED
    evidence = SieveEvidence(
        **_evidence(point, found, choice, precise, drawn),
        identified=identified.tolist(),
        overlap=shares.tolist(),
        coordinates=list(steps.coordinates),
        left_out=[name for name in problem.steps.coordinates if name not in steps.coordinates],
        relevance_p=relevance,
        next_state_r2=next_state_r2(steps, held_out_rows(steps), model.design.stage.smoothing, regressor),
        richer_basis={"gain_share": poor[0], "standard_errors": poor[1]},
        basis_too_poor=bool(poor[0] > POOR_SHARE and poor[1] > POOR_ERRORS),
    )
    return Solution(
        solver="SieveLikelihood",
        status=status,
        message=_message(problem, point, residual, identified, apart, converged, evidence),
        experts=problem.names,
        discounts=model.discounts(point.x),
        reward=model.reward(point.x).copy(),
        objective=point.value,
        residual=residual,
        temperature=model.temperatures(point.x),
        standard_errors=errors,
        problem=replace(problem, parameter_names=model.design.basis.names),
        interval_source=NormalIntervals(model.discounts(point.x), errors, LARGEST_DISCOUNT, point=point),
        evidence=evidence,
    )


def _errors(model: SieveModel, analytic: Floats, drawn: Floats | None) -> Floats:
    errors: Floats = analytic[model.discount_slice][model.groups] if drawn is None else drawn.std(axis=0, ddof=1)
    return errors


def _poor(steps: Steps, choice: Choice, basis_given: bool, regressor: Any) -> tuple[float, float]:
    """How much better a richer basis predicts; only asked where the basis was given, or is the largest that is tried."""
    largest = isinstance(choice.transformer, Splines) and choice.transformer.size >= max(sizes_for(steps))
    if not basis_given and not largest:
        return 0.0, 0.0
    return richer_gain(steps, choice.transformer)


def _evidence(point: SievePoint, found: Found, choice: Choice, precise: Any, drawn: Floats | None) -> dict[str, Any]:
    model = point.likelihood
    chance = sum(batch.chance for batch in model.design.decisions)
    unrestricted = sum(logit.value for logit in found.logits)
    return {
        "log_likelihood": point.value,
        "decisions": model.decisions,
        "chance": chance,
        "unrestricted_logits": unrestricted,
        "explained_share": (point.value - chance) / max(unrestricted - chance, 1e-12),
        "basis": basis_name(choice.transformer),
        "functions": model.design.functions,
        "penalty": choice.penalty,
        "tried": choice.tried,
        "first_stage": "regressor" if isinstance(model.design.stage, Regressed) else "least squares",
        "first_stage_smoothing": _smoothing(model),
        "first_stage_widening": precise.widening[model.discount_slice][model.groups].tolist() if drawn is None else None,
        "resamples": 0 if drawn is None else len(drawn),
        "unidentified_directions": precise.nullity,
        "equal_temperatures_p": found.p_equal,
        "temperature_spread": found.spread,
        "steps": found.end.steps,
        "starts": [
            {"log_likelihood": end.point.value, "discounts": end.point.likelihood.discounts(end.point.x).tolist()}
            for end in found.ends
        ],
    }


def _smoothing(model: SieveModel) -> dict[str, float | str] | None:
    """The functions of the state that predict next states, and the weights of the first stage; None with a regressor."""
    found = model.design.stage.smoothing
    if found is None:
        return None
    weights = {"common": found.common, "own": found.own, "pooling": found.pooling}
    return {"functions": basis_name(found.inputs.transformer), **weights}


def _message(
    problem: SampledProblem,
    point: SievePoint,
    residual: float,
    identified: Bools,
    apart: Bools,
    converged: bool,
    evidence: SieveEvidence,
) -> str:
    model = point.likelihood
    parts = [
        f"Log-likelihood {point.value:.2f} of {model.decisions:.0f} decisions, gradient {residual:.1e} per decision, "
        f"{model.design.functions} basis functions of {', '.join(evidence.coordinates)}."
    ]
    if not identified.all():
        names = ", ".join(name for name, known in zip(problem.names, identified, strict=True) if not known)
        why = "the likelihood is flat in their direction" if apart[~identified].all() else "they act where no other expert acts"
        if problem.n_experts == 1:
            why = "any discount explains one expert with some reward"
        parts.append(f"The discounts of {names} are not identified: {why}.")
    if evidence.basis_too_poor:
        parts.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
    if dynamics_unknown(evidence.next_state_r2):
        names = ", ".join(unpredicted(evidence.next_state_r2))
        parts.append(
            f"State and action do not predict how {names} will change, so what actions lead to is not known: do not rely on the "
            "discounts."
        )
    if not converged:
        parts.append("The climb was broken off unconverged: do not use this answer.")
    return " ".join(parts)


@dataclass(frozen=True, eq=False)
class RewardFunctions(Result):
    """Reward, values and policies of an answer. States are `(n,d)`, or a frame with the columns in `coordinates`."""

    point: SievePoint
    coordinates: tuple[str, ...]
    origin: Floats
    covariance: Floats

    def reward(self, states: Any) -> Floats:
        """The reward of arriving in these states, `(n,)`."""
        found: Floats = self._contrast(states) @ self.point.likelihood.reward(self.point.x)
        return found

    def reward_errors(self, states: Any) -> Floats:
        """Standard errors of `reward`, `(n,)`."""
        rows = self._contrast(states)
        errors: Floats = np.sqrt(np.maximum(((rows @ self.covariance) * rows).sum(axis=1), 0.0))
        return errors

    def values(self, expert: str, states: Any) -> Floats:
        """The expert's soft values in these states, `(n,)`."""
        return self._plan(expert, states)[0]

    def policy(self, expert: str, states: Any) -> Floats:
        """The expert's probability of each action, `(n,A)`; 0 where it is not known what the action leads to."""
        chosen: Floats = np.exp(self._plan(expert, states)[1].T)
        return chosen

    def summary(self) -> str:
        """Where arriving pays most and least, among states spread over the log."""
        frame = self.to_frame().sort_values("reward", ascending=False)
        most, least = (
            f"{row['reward']:.3g} at {', '.join(f'{name} = {row[name]:.4g}' for name in self.coordinates)}"
            for row in (frame.iloc[0], frame.iloc[-1])
        )
        return f"Of {len(frame)} states spread over the log, arriving pays most, {most}, and least, {least}."

    def to_frame(self) -> pd.DataFrame:
        """The reward and its standard error at up to 500 states spread over the log, one row per state."""
        points = value_points(self.point.likelihood.problem.steps)
        chosen = points[np.linspace(0, len(points) - 1, min(len(points), 500)).round().astype(np.int64)]
        frame = pd.DataFrame(chosen, columns=list(self.coordinates))
        return frame.assign(reward=self.reward(chosen), standard_error=self.reward_errors(chosen))

    def plot(self, axes: Any = None, over: Sequence[int] = (0, 1)) -> Any:
        """Draw the reward over one or two coordinates, given by their places, with the others at their medians.

        Over one it is a curve with 95 % intervals. Over two, blue pays more and red less, and nobody was near where it is grey.
        """
        if axes is None:
            import matplotlib.pyplot as plt  # noqa: PLC0415  a picture is asked for: only now is matplotlib needed

            axes = plt.subplots(layout="constrained")[1]
        steps = self.point.likelihood.problem.steps
        arrived, places = steps.next_states[steps.known_next], list(over)[: len(self.coordinates)]
        if len(places) == 1:
            points = np.tile(np.median(arrived, axis=0), (200, 1))
            x = points[:, places[0]] = np.linspace(arrived[:, places[0]].min(), arrived[:, places[0]].max(), 200)
            reward, half = self.reward(points), 1.96 * self.reward_errors(points)
            axes.fill_between(x, reward - half, reward + half, alpha=0.3)
            axes.plot(x, reward)
        else:
            x, y, shown = self._surface(arrived, places)
            limit = float(np.nanmax(np.abs(shown)))
            axes.set_facecolor("0.85")
            drawn = axes.pcolormesh(x, y, shown.T, cmap="RdBu", vmin=-limit, vmax=limit, shading="nearest")
            axes.figure.colorbar(drawn, ax=axes, label="reward")
        labels = [*(literal(self.coordinates[i]) for i in places), "reward"]
        axes.set(xlabel=labels[0], ylabel=labels[1])
        return axes

    def _surface(self, arrived: Floats, pair: list[int]) -> tuple[Floats, Floats, Floats]:
        """Axes of a pair of coordinates, and the reward over them: NaN where nobody arrived within a sixteenth of the range."""
        size = 40
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
            raise ValueError(f"expert must be one of {', '.join(model.problem.names)}, received {expert!r}")
        plan, points = self.point.plans[model.problem.names.index(expert)], self._points(states)
        features, stage = model.design.basis(points), model.design.stage
        q = np.stack([row @ c for row, c in zip(stage.rows(features, points), plan.coefficients, strict=True)])
        available = stage.available(features)
        known = available.any(axis=0)
        value, log = soft_values(q, available | ~known, plan.lam)
        return np.where(known, value, np.nan), np.where(known, log, np.nan)

    def _contrast(self, states: Any) -> Floats:
        rows: Floats = self.point.likelihood.design.basis(self._points(states)).toarray() - self.origin
        return rows

    def _points(self, states: Any) -> Floats:
        if isinstance(states, pd.DataFrame):
            missing = [name for name in self.coordinates if name not in states.columns]
            if missing:
                raise ValueError(f"states must have the columns {', '.join(self.coordinates)}, received none named {missing[0]}")
            states = states[list(self.coordinates)]
        points = as_floats(states, "states")
        if points.ndim != 2 or points.shape[1] != len(self.coordinates):
            raise ValueError(f"states must have shape (n, {len(self.coordinates)}), received {points.shape}")
        return points


def reward_functions(solution: Solution) -> RewardFunctions:
    """Reward, values and policies as functions of the state, from a solution of `SieveLikelihood`, as `solve` returned it.

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
    arrived = model.design.basis(steps.next_states[steps.known_next])
    origin = np.zeros(model.n_reward) if model.design.ends else np.asarray(arrived.mean(axis=0)).ravel()
    covariance = sieve_precision(point)[1][: model.n_reward, : model.n_reward]
    return RewardFunctions(point, steps.coordinates, origin, covariance)


#: The climb to the answer stops when less log-likelihood than this is promised. A few more steps give the last digits.
GAIN, POLISHED_GAIN, POLISHING_STEPS = 1e-6, 1e-11, 4
#: Starts of the first round, its steps, and the gain below which a climb in it stops; the best is climbed to the end. Where
#: decisions times functions are no more than `SMALL`, climbs cost little, and all starts are climbed.
FIRST_ROUND, FIRST_STEPS, FIRST_GAIN, SMALL = 3, 8, 0.1, 3e5
#: Equal temperatures are given up where their p-value is below this. It is small because free temperatures cost precision, and
#: because the error of a basis looks like a small difference of temperatures.
REJECTED = 0.001
#: Resampled tables where a regressor of the user's leaves no other way to standard errors.
RESAMPLES = 30


@dataclass(frozen=True)
class SieveLikelihood:
    """The most likely reward, discounts and temperatures of decisions in sampled states.

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
        resamples: how many times to fit resampled episodes for standard errors. 0 takes them from the information matrix and the
            first stage's errors of prediction, which is right where least squares is the first stage.

    Example:
        >>> from multihorizon import SampledProblem, solve
        >>> from multihorizon.domains import navigation
        >>> problem = SampledProblem(navigation().simulate(decisions=1200))
        >>> solution = solve(problem, SieveLikelihood(basis=Splines(4), penalty=0.1))
        >>> str(solution.status), bool((np.diff(solution.discounts) > 0).all())
        ('converged', True)
    """

    takes: ClassVar = SampledProblem

    basis: Any = None
    regressor: Any = None
    penalty: float | None = None
    temperature: Temperature = "pooled"
    discounts: float | Mapping[str, float] | None = None
    resamples: int = 0

    def __post_init__(self) -> None:
        for name, method in (("basis", "transform"), ("regressor", "predict")):
            given = getattr(self, name)
            if given is not None and (isinstance(given, type) or not all(hasattr(given, m) for m in ("fit", method))):
                raise ValueError(f"{name} must have the methods fit and {method} of scikit-learn, received {given!r}")
        if self.penalty is not None and not float(as_floats(self.penalty, "penalty")) > 0:
            raise ValueError(f"penalty must be above 0, received {self.penalty}")
        check_temperature(self.temperature)
        check_discounts(self.discounts)
        as_count(self.resamples, "resamples", least=0)

    def solve(self, problem: SampledProblem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Fit; `seed` draws resampled episodes."""
        settings = _settings(problem, self.temperature, self.discounts)
        kept, relevance = relevant_coordinates(problem.steps) if self.basis is None else (None, {})
        steps = problem.steps if kept is None else problem.steps.keeping(kept)
        basis = _with_sources(self.basis, steps)
        choice = choose(steps, basis, self.penalty, self.regressor, settings, part_of(progress, 0.0, 0.5))
        progress(0.5, "fit")
        found = _fit_solver(steps, choice, self, settings)
        progress(0.8, "standard errors")
        count = self.resamples or (RESAMPLES if self.regressor is not None else 0)
        drawn = resampled(found.end.point, choice, self.regressor, count, seed, part_of(progress, 0.8, 1.0)) if count else None
        return make_solution(problem, found, choice, relevance, drawn, self.basis is not None, self.regressor)


def _settings(problem: SampledProblem, temperature: Temperature, discounts: Any) -> Settings:
    """What is known, in the problem's order; temperatures that are to be pooled begin as equal ones."""
    k = problem.n_experts
    heat = np.full(k, np.nan if temperature == "per_expert" and k > 1 else 1.0)
    if isinstance(temperature, Mapping):
        heat = _by_name(problem, temperature, "temperature")
    elif not isinstance(temperature, str):
        heat = np.full(k, float(temperature))
    known = None
    if discounts is not None:
        known = _by_name(problem, discounts, "discount") if isinstance(discounts, Mapping) else np.full(k, float(discounts))
        if (known > LARGEST_DISCOUNT).any():
            raise ValueError(
                f"a known discount must be at most {LARGEST_DISCOUNT}, because steps alone show no end, received more"
            )
    return Settings(discounts=known, temperatures=heat)


def _by_name(problem: SampledProblem, values: Mapping[str, float], what: str) -> Floats:
    found = np.full(problem.n_experts, np.nan)
    for name, value in values.items():
        if str(name) not in problem.names:
            known = first_few(problem.names)
            raise ValueError(f"the {what} of {name} is given, but there is no expert of that name: the experts are {known}")
        found[problem.names.index(str(name))] = float(value)
    return found


def _with_sources(basis: Any, steps: Steps) -> Any:
    """A spline basis that knows which columns are the indicators of one category."""
    return Splines(basis.size, steps.sources) if isinstance(basis, Splines) and basis.sources is None else basis


def _model(steps: Steps, design: Design, settings: Settings, penalty: float) -> SieveModel:
    bare = SieveModel(SampledProblem(steps, design.basis.names), design, settings, penalty)
    return bare.holding(temperature_penalty(bare), bare.ridge)


def _fit_solver(steps: Steps, choice: Choice, solver: SieveLikelihood, settings: Settings) -> Found:
    """Climb from the best starts, and set temperatures free where the decisions ask for it."""
    design = make_design(steps, choice.transformer, solver.regressor)
    logits = fit_logits(design)
    model = _model(steps, design, settings, choice.penalty)
    begin = starts(model, logits)
    if not begin:
        raise ValueError("no starting point has finite values: the steps do not determine what actions lead to")
    small = len(steps) * design.functions <= SMALL
    count, most = (len(begin), 5 * FIRST_STEPS) if small else (FIRST_ROUND, FIRST_STEPS)
    ends = [climb(start, max_steps=most, gain=FIRST_GAIN) for start in begin[:count]]
    ends.sort(key=lambda end: -end.point.objective)
    best = polished(climb(ends[0].point, gain=GAIN), POLISHING_STEPS, POLISHED_GAIN)
    p_equal, spread = None, None
    if solver.temperature == "pooled" and len(steps.experts) > 1 and best.finished:
        free = _model(steps, design, replace(settings, temperatures=np.full(len(steps.experts), np.nan)), choice.penalty)
        p_equal = _equal_temperatures(best, free)
        if p_equal < REJECTED:
            found = estimate_spread(best, free)
            best, spread = found.ascent, found.value
    return Found(best, ends, logits, p_equal, spread)


def _equal_temperatures(equal: Ascent[SievePoint], free: SieveModel) -> float:
    """The p-value of equal temperatures by a score test whose variance carries the first stage."""
    point = free.at(free.pack(equal.point.likelihood.reward(equal.point.x), equal.point.x[equal.point.likelihood.discount_slice]))
    if point is None:
        return 1.0
    heats = np.arange(free.temperature_slice.start, free.size)
    rest = np.flatnonzero(~free.fixed[: heats[0]])
    information = point.information
    inner = information.copy()
    inner[: free.n_reward, : free.n_reward] += free.ridge
    inner = inner[np.ix_(rest, rest)]
    weights = np.zeros((heats.size, free.size))
    weights[:, heats] = np.eye(heats.size)
    weights[:, rest] = -np.linalg.lstsq(inner, information[np.ix_(rest, heats)], rcond=1e-12)[0].T
    contrasts = (np.eye(heats.size)[1:] - np.eye(heats.size)[:1]) @ weights
    added = first_stage_scores(point)
    meat = information if added is None else information + added @ added.T
    score = contrasts @ point.gradient
    statistic = float(score @ np.linalg.lstsq(contrasts @ meat @ contrasts.T, score, rcond=1e-12)[0])
    return float(chi2.sf(statistic, heats.size - 1))
