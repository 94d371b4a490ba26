"""Which coordinates matter, how many functions a basis has, and how strong the penalty is.

*Coordinates.* With more than `FEW` of them, each expert's choices are fitted by a logit whose log-odds are sums of splines, one
for each coordinate. A coordinate whose splines have no effect on anyone's choices (Wald test over all experts, level `LEVEL`)
is left out: nobody acts on it, so it enters neither the reward nor the future that anyone plans for.

*Size and penalty.* Every third episode of each expert is held out. Sizes are tried upwards, each fitted by the joint likelihood
on the other episodes, until the held-out likelihood no longer grows. Then penalties: the smallest one is taken whose held-out
likelihood is within a standard error of the best, because a penalty on the reward moves the discounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.stats import chi2

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.continuous.basis import Splines
from multihorizon.continuous.design import make_design
from multihorizon.continuous.held_out import held_out_rows
from multihorizon.continuous.sampled import SampledProblem
from multihorizon.continuous.sieve_likelihood import SieveModel, SievePoint
from multihorizon.continuous.two_stage import fit_logits, starts
from multihorizon.continuous.values import predicted_scores
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.parameters import Settings
from multihorizon.progress import Progress
from multihorizon.tables.steps import Steps

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
    model = SieveModel(SampledProblem(train).with_basis(design.basis.names), design, settings, penalty)
    begin = starts(model, fit_logits(design))
    return None if not begin else _climbed(begin[0], steps.select(held), penalty)


def _climbed(start: SievePoint, held_out: Steps, penalty: float) -> _Trial:
    end = climb(start, max_steps=ROUGH_STEPS, gain=ROUGH_GAIN).point
    assert isinstance(end, SievePoint)
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
