"""Does the model fit? Held-out likelihood against simpler and richer models, calibration, and the states where it fits worst.

*Held out.* Each expert's episodes are dealt into folds; the decisions of a fold are predicted by a model fitted to the others.
Beside the fitted model stand three baselines: all experts share one discount, nobody plans (discount 0), and each expert's own
smoothed frequencies, which know nothing of states without data but can express any behaviour. A model that is right beats all
three once there are enough decisions; frequencies that win say that the experts do something the model cannot.

*Calibration.* Held-out action probabilities in ten bins, against how often those actions were taken.

*Worst states.* With the model fitted to everything, `G² = 2 Σ_a N log(N / nπ)` in each state, against χ² with one degree of
freedom fewer than available actions; p-values are multiplied by the number of states looked at (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats, Ints, as_count
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.bootstrap import tables_of
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.persons import require_counts
from multihorizon.likelihood.starts import smoothed_policy
from multihorizon.progress import Progress, silent
from multihorizon.solution import Solution
from multihorizon.tables.demonstrations import Demonstrations

MODELS = ("this model", "one shared discount", "discount 0", "own frequencies")
#: Bins of the calibration, and how many of the worst states are named.
BINS, WORST = 10, 10
#: Steps of a baseline's climb: it starts from the answer and need not be exact to be compared.
BASELINE_STEPS = 60
#: Ridge of a fit to some of the episodes: without it a reward may run away that the whole table holds.
PART_RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class ModelChecks:
    """What `check_model` found.

    Attributes:
        experts: their names.
        decisions: held-out decisions of each expert `(K,)`.
        held_out: for each of `MODELS` the mean held-out log-likelihood of a decision, `(K,)`.
        calibration: one row per bin: the mean predicted probability, the share taken, and how many decisions were predicted.
        worst: states by how badly they fit, with expert, state, decisions, G², p-value, and the action most out of line.
    """

    experts: tuple[str, ...]
    decisions: Floats
    held_out: dict[str, Floats]
    calibration: Floats
    worst: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts."""
        return {
            "held_out": {name: values.tolist() for name, values in self.held_out.items()},
            "held_out_decisions": self.decisions.tolist(),
            "calibration": self.calibration.tolist(),
            "worst_states": self.worst,
        }


def check_model(
    solution: Solution,
    demonstrations: Demonstrations | Sequence[Demonstrations],
    folds: int = 2,
    seed: int = 0,
    progress: Progress = silent,
) -> ModelChecks:
    """Check a maximum-likelihood solution on the table it was fitted to.

    Args:
        solution: of `MaximumLikelihood`, with its problem.
        demonstrations: the table, or one for each task in the order they were joined.
        folds: how many parts the episodes are dealt into; every expert needs at least as many episodes.
        seed: deals the episodes.
        progress: called after each fit.
    """
    point = resume(solution)
    tables = tables_of(point.likelihood.problem, demonstrations)
    parts = deal(point, tables, as_count(folds, "folds", least=2), np.random.default_rng(seed))
    owner = np.array(point.likelihood.problem.owner)
    totals = {name: np.zeros(len(solution.experts)) for name in MODELS}
    decisions = np.zeros(len(solution.experts))
    pairs: list[tuple[Floats, Floats, Floats]] = []
    for fold, held in enumerate(parts):
        train = [require_counts(expert) - test for expert, test in zip(point.likelihood.problem.experts, held, strict=True)]
        for number, name in enumerate(MODELS):
            policies = _predict(point, train, name)
            for i, (test, policy) in enumerate(zip(held, policies, strict=True)):
                totals[name][owner[i]] += float((test * np.log(np.where(test > 0, np.maximum(policy, 1e-300), 1.0))).sum())
            if name == MODELS[0]:
                pairs += _predictions(point, held, policies)
            progress((fold * len(MODELS) + number + 1) / (len(parts) * len(MODELS)), f"fold {fold + 1}: {name}")
        np.add.at(decisions, owner, [float(test.sum()) for test in held])
    held_out = {name: total / np.maximum(decisions, 1.0) for name, total in totals.items()}
    return ModelChecks(solution.experts, decisions, held_out, calibration_bins(pairs), worst_states(point))


def deal(point: Point, tables: list[Demonstrations], folds: int, rng: np.random.Generator) -> list[list[Floats]]:
    """Counts of each expert and task in each fold."""
    parts: list[list[Floats]] = [[] for _ in range(folds)]
    position = 0
    for table in tables:
        fold = _fold_of_episodes(table, folds, rng)
        mdp = point.likelihood.problem.experts[position].mdp
        for number, part in enumerate(parts):
            part += list(table.counts_of_episodes(mdp, fold == number))
        position += len(table.experts)
    return parts


def _fold_of_episodes(table: Demonstrations, folds: int, rng: np.random.Generator) -> Ints:
    owners = table.by_episode.expert
    fold = np.zeros(owners.size, dtype=np.int64)
    for expert, name in enumerate(table.experts):
        own = rng.permutation(np.flatnonzero(owners == expert))
        if own.size < folds:
            raise ValueError(f"expert {name} must have at least {folds} episodes to hold some out, received {own.size}")
        fold[own] = np.arange(own.size) % folds
    return fold


def _predict(point: Point, train: list[Floats], name: str) -> list[Floats]:
    """The policies `(S,A)` of one of `MODELS` fitted to the training counts."""
    model = point.likelihood
    if name == "own frequencies":
        experts = model.problem.experts
        return [smoothed_policy(expert.mdp, counts) for expert, counts in zip(experts, train, strict=True)]
    fitted = model.with_counts(train).holding(model.penalty, np.maximum(model.ridge, PART_RIDGE))
    if name == "one shared discount":
        fitted = fitted.sharing((0,) * model.problem.n_experts)
    fixed = np.zeros(fitted.size, dtype=np.bool_)
    discounts = model.discounts(point.x)
    grouped = np.array([discounts[fitted.groups == g].mean() for g in range(fitted.n_discounts)])
    if name == "discount 0":
        grouped = np.zeros_like(grouped)
        fixed[fitted.discount_slice] = True
    start = fitted.at(fitted.pack(model.reward(point.x), grouped, np.exp(point.x[model.temperature_slice])))
    if start is None:
        raise ValueError(f"the baseline {name} has no finite soft values at the fitted reward")
    return climb(start, fixed, BASELINE_STEPS, gain=1e-3).point.policies()


def _predictions(point: Point, held: list[Floats], policies: list[Floats]) -> list[tuple[Floats, Floats, Floats]]:
    """Predicted probability, times taken and times possible of each state and available action with held-out decisions."""
    found = []
    for expert, test, policy in zip(point.likelihood.problem.experts, held, policies, strict=True):
        visits = np.broadcast_to(test.sum(axis=1, keepdims=True), test.shape)
        seen = (visits > 0) & expert.mdp.available
        found.append((policy[seen], test[seen], visits[seen]))
    return found


def calibration_bins(pairs: list[tuple[Floats, Floats, Floats]]) -> Floats:
    """Mean prediction, share taken and weight of each occupied bin, `(n,3)`."""
    predicted, taken, visits = (np.concatenate([pair[i] for pair in pairs]) for i in range(3))
    place = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    weight, mean, share = (np.bincount(place, total, minlength=BINS) for total in (visits, visits * predicted, taken))
    kept = weight > 0
    rows: Floats = np.stack([mean[kept] / weight[kept], share[kept] / weight[kept], weight[kept]], axis=1)
    return rows


def worst_states(point: Point) -> list[dict[str, Any]]:
    """The states that fit worst, by p-value."""
    rows: list[dict[str, Any]] = []
    experts = point.likelihood.problem.experts
    looked_at = sum(int((require_counts(expert).sum(axis=1) > 0).sum()) for expert in experts)
    for expert, policy in zip(experts, point.policies(), strict=True):
        mdp, counts = expert.mdp, require_counts(expert)
        visits = counts.sum(axis=1)
        expected = visits[:, None] * policy
        ratio = np.where(counts > 0, counts, 1.0) / np.where(counts > 0, np.maximum(expected, 1e-300), 1.0)
        deviance = 2 * (counts * np.log(ratio)).sum(axis=1)
        degrees = np.maximum(mdp.available.sum(axis=1) - 1, 1)
        p_values = np.where(visits > 0, chi2.sf(np.maximum(deviance, 0.0), degrees), 1.0)
        for state in np.argsort(-(deviance / degrees))[:WORST]:
            if visits[state] > 0:
                rows.append(_worst_row(expert.name, mdp, int(state), counts, expected))
                rows[-1] |= {"deviance": float(deviance[state]), "p_value": min(1.0, looked_at * float(p_values[state]))}
    return sorted(rows, key=lambda row: (row["p_value"], -row["deviance"]))[:WORST]


def _worst_row(expert: str, mdp: Any, state: int, counts: Floats, expected: Floats) -> dict[str, Any]:
    visits = float(counts[state].sum())
    action = int(np.abs(counts[state] - expected[state]).argmax())
    return {
        "expert": expert,
        "state": mdp.state_names[state],
        "decisions": visits,
        "action": mdp.action_names[action],
        "taken": float(counts[state, action]) / visits,
        "predicted": float(expected[state, action]) / visits,
    }
