"""What the data cannot tell: one expert, regions that nobody shares, a basis that is too poor, and steps that nobody can predict.

*One expert.* Any discount explains one expert with some reward.

*Overlap.* Rewards and discounts are told apart where several experts act in the same region. A state of expert k is shared
where the other experts' decisions determine the basis functions there: leverage at most 1 in `Σ φ(s)φ(s)ᵀ` over their
decisions. An expert with hardly any shared state is not compared with anyone.

*Poor basis.* A logit with more functions is fitted to two thirds of the episodes. If it predicts the held-out choices better
than the logit of the chosen basis by a good part of what can be predicted at all, the basis is too poor, and discounts can be
wrong by more than their standard errors say.

*Unpredicted steps.* A coordinate whose change state and action do not predict on held-out steps says nothing about what actions
lead to. Where that holds for half of the coordinates or more, there is no plan to rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Bools, Floats
from multihorizon.continuous.basis import Splines
from multihorizon.continuous.design import Design, make_design
from multihorizon.continuous.held_out import held_out_rows
from multihorizon.continuous.outcomes import BLOCK, MOST_LEVERAGE
from multihorizon.continuous.two_stage import coefficients_of, fit_logits
from multihorizon.continuous.values import predicted_scores
from multihorizon.tables.steps import Steps

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
