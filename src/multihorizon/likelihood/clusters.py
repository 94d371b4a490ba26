"""Decisions that go together: standard errors and tests where not every decision is independent of every other.

Under the model a choice depends on nothing but the state. If something else changes from episode to episode, such as a goal
that the state column does not show, the choices of one episode lean the same way, and there is less information than decisions:
that of episodes. With `u_e = Σ_(s,a) N_e(s,a) ∇ log π(a|s)` the score of cluster e (an episode, or an expert with all
episodes), what follows needs no more than that clusters are independent.

*Within episodes.* The test that choices of one episode do not go together. `r_t` is the score of a choice, the slope of log
π(a|s) in the reward, less the mean of the same expert's scores in the same state. So states that the model gets wrong say
nothing here, nor do transitions that are known roughly. Where experts may choose otherwise under other conditions, the mean is
that of scores under the same ones. `C = Σ_episodes Σ_{t≠u} r_t r_uᵀ` has mean 0 if choices do not go
together. It is measured by `(I + τ⁻²)^{-1/2} C (I + τ⁻²)^{-1/2}`, with I the mean information of an episode and τ a spread of
rewards of ten temperatures, for the largest value of each feature. Its trace is large where episodes differ in many ways, its
largest eigenvalue where they differ in one, such as which of two goals pays. A third number is the same sum of `cᵀr_t cᵀr_u`, c
the column of J⁻¹ of the expert's discount in units of its standard error: it is large where episodes differ in how far ahead
choices look. For p-values the sign of each r_t is drawn anew: given what came before, its mean is 0 whatever its sign (a
martingale), and only products of different choices change. The numbers are measured in their standard deviations over the
draws, and the largest counts. Sums over long episodes are drawn from the normal distribution that they nearly have.

*Standard errors* are those of the sandwich `J⁻¹ B J⁻¹` (Huber 1967; Liang and Zeger 1986), with J the curvature of the
objective and `B = Σ_k E_k/(E_k−1) Σ_(e of k) (u_e − ū_k)(u_e − ū_k)ᵀ`, for the E_k episodes of expert k in a task, in place of
their Fisher information A_k. Scores less their mean are what is left where a parameter rests on a bound or a penalty holds it,
and the factor makes up for the mean. Where δ_k deviates from the common reward, with the information H_k, the score of x is
`R_k u_e` with `R_k = 1 − A_{·θ} H_k⁻¹` in the columns of θ (`choice.deviations`), so that in general

    B = I + Σ_k R_k (B_k − A_k) R_kᵀ,

I the information of the model. Logged moves are taken to be independent of each other. An expert with one episode keeps A_k.
Where experts are the clusters, `B = K/(K−1) Σ_k u_k u_kᵀ`.

*Few clusters.* With c the column of J⁻¹ of a discount, `Var = Σ (cᵀu_e)²` is compared with Student's t, with Satterthwaite's
degrees of freedom under the model (Bell and McCaffrey 2002): `(Σ_k v_k)² / Σ_k v_k²/(m_k − 1)`, where `v_k = Σ_e cᵀI_e c`, I_e
the information of episode e, and `m_k = v_k² / Σ_e (cᵀI_e c)²`, the episodes of expert k that count.

*Profile intervals* keep their shape: the signed root of the deviance is compared with the quantile times the ratio of the
robust to the model's standard error (the vertical adjustment of Chandler and Bate 2007).

*Tests* of a hypothesis flip the signs of scores (Hemerik, Goeman and Finos 2020). At the fit under the hypothesis, `h_e = Fᵀ
u_e` are the scores of what the hypothesis fixes, less what all other parameters explain of them. A quadratic form of `Σ_e h_e`
is compared with those of `Σ_e ±h_e`: under the hypothesis h_e has the mean 0, whatever its variance, so that each sign is as
likely. Of more than 2,000 clusters sums are drawn from the normal distribution that they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import TINY, Bools, Floats, Ints, Sparse
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import Point
from multihorizon.choice.settings import Choice, Clusters, Unit, sources
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.numerics.spectrum import spectrum
from multihorizon.parallel import limits
from multihorizon.problem import cells_of_episodes
from multihorizon.words import LEVEL, decimals, significant


@dataclass(frozen=True, eq=False)
class Independence:
    """What is taken to be independent in a fit.

    Attributes:
        unit: the unit that was used.
        clusters: its decisions; None where every decision is independent.
        within: the test that choices of one episode do not go together, where it decided.
        reason: why the unit is not the one that the test asked for; empty where it is.
    """

    unit: Unit = "decision"
    clusters: Clusters | None = None
    within: WithinEpisodes | None = None
    reason: str = ""


def independence(point: Point, asked: Choice, seed: int = 0) -> Independence:
    """Return what to take as independent at a fit; "auto" takes episodes where choices of one episode go together."""
    model = point.likelihood
    within = None
    if asked == "decision":
        return Independence()
    if asked == "auto":
        tables = [expert.table for expert in model.problem.experts]
        named = [set() if table is None or table.conditions is None else {*table.conditions} for table in tables]
        within = within_episodes(point, seed=seed, conditions=sorted(set.intersection(*named)))
        if within.reason or within.p_value > 1 - LEVEL:
            return Independence(within=within)
    unit: Unit = "episode" if asked == "auto" else asked
    reason = f"that needs at most {limits().dense_rewards} rewards, and there are {model.n_reward:,}" if model.is_large else ""
    clusters = reason or Clusters.of(model.problem, unit, by_last=any(batch.by_last for batch in model.batches))
    if isinstance(clusters, Clusters):
        free = ~model.fixed[model.discount_slice]
        if unit == "expert" and (np.bincount(model.groups)[free] < 2).any():
            clusters = "a discount of one expert alone has no other expert to compare with: give groups of experts who share one"
    if isinstance(clusters, Clusters):
        if unit == "episode" and max(map(len, clusters.numbers)) < 2:
            return Independence(within=within, reason="every expert has a single episode")
        return Independence(unit, clusters, within)
    if asked != "auto":
        raise ValueError(f'cluster="{asked}" cannot be had: {clusters}')
    return Independence(within=within, reason=clusters)


# Scores by cluster.


@dataclass(frozen=True, eq=False)
class _Own:
    """What one expert did in one task, by cluster.

    Attributes:
        owner: the number of the expert.
        places: the positions in x `(q,)` on which choices depend.
        numbers: of the clusters `(n,)`.
        made: how often each cluster took each of some decisions `(n,m)`, and `visits`, how often it had that choice.
        slopes: `d log π(a|s)` of these decisions `(m,q)`.
        chances: their probabilities `(m,)`.
    """

    owner: int
    places: Ints
    numbers: Ints
    made: Sparse
    visits: Sparse
    slopes: Floats
    chances: Floats

    @property
    def scores(self) -> Floats:
        """Return u_e of each cluster `(n,q)`."""
        scores: Floats = self.made @ self.slopes
        return scores

    @property
    def information(self) -> Floats:
        """Return A_k `(q,q)`."""
        weighted = self.slopes * np.sqrt(np.asarray(self.visits.sum(axis=0)).ravel() * self.chances)[:, None]
        information: Floats = weighted.T @ weighted
        return information

    def expected(self, along: Floats) -> Floats:
        """Return `cᵀI_e c` `(n,)` for a direction c `(q,)`."""
        expected: Floats = self.visits @ (self.chances * (self.slopes @ along) ** 2)
        return expected


def _by_expert(point: Point) -> Iterator[_Own]:
    """Yield each of the problem's experts, in each task."""
    clusters = point.likelihood.clusters
    assert clusters is not None
    for i, plan in enumerate(point.plans):
        batch = plan.persons
        (rows, columns, slopes) = point.scores(i)
        size = batch.mdp.n_states * batch.last_actions
        contexts = rows % size
        alike = sp.csr_array((np.ones(rows.size), (np.arange(rows.size), contexts)), shape=(rows.size, size))
        chances = plan.policy.reshape(-1, plan.lam.size)[rows]
        for k, (position, owner, places) in enumerate(zip(batch.positions, batch.owners, columns, strict=True)):
            made = sp.csr_array(clusters.counts[position][:, rows])
            visits = sp.csr_array(made @ alike)[:, contexts]
            yield _Own(int(owner), places, clusters.numbers[position], made, visits, slopes[:, k], chances[:, k])


def _carried(point: Point) -> dict[int, tuple[Ints, Floats]]:
    """Return for each expert who deviates from the common reward the places in x and R_k `(q,q)` there; nothing with one
    reward.
    """
    if not isinstance(point, NearPoint):
        return {}
    carried = {}
    for k, places, information in point.arrows:
        theta = places[places < point.likelihood.n_reward]
        carry = np.eye(places.size)
        curvature = point.curvatures[k][np.ix_(theta, theta)]
        carry[:, : theta.size] -= np.linalg.solve(curvature, information[: theta.size]).T
        carried[k] = places, carry
    return carried


def middle(point: Point) -> Floats:
    """Return B `(p,p)`, the variance of the scores where clusters are independent, and the decisions of one need not be."""
    model = point.likelihood
    carried = _carried(point)
    if model.clusters is not None and model.clusters.unit == "expert":
        scores = np.zeros((model.n_experts, model.size))
        for expert in _by_expert(point):
            scores[expert.owner, expert.places] += expert.scores.sum(axis=0)
        for k, (places, carry) in carried.items():
            scores[k, places] = carry @ scores[k, places]
        total: Floats = model.n_experts / max(model.n_experts - 1, 1) * scores.T @ scores
        moves = np.arange(model.size)[model.transition_slice]
        total[moves, moves] += model.move_counts
        return total
    total = point.information.copy()
    for expert in _by_expert(point):
        size = len(expert.numbers)
        if size < 2:
            continue
        scores = expert.scores
        scores = scores - scores.mean(axis=0)
        excess = size / (size - 1) * scores.T @ scores - expert.information
        places = expert.places
        if expert.owner in carried:
            places, carry = carried[expert.owner]
            carry = carry[:, np.searchsorted(places, expert.places)]
            excess = carry @ excess @ carry.T
        total[np.ix_(places, places)] += excess
    return total


def dispersion(point: Point) -> float:
    """Return how many times as large the variance of the scores is as that of independent decisions, on average; at least 1.

    A log-likelihood divided by it can be compared between models as one of independent decisions (quasi-likelihood).
    """
    if point.likelihood.clusters is None:
        return 1.0
    free = np.ix_(~point.likelihood.fixed, ~point.likelihood.fixed)
    directions = spectrum(point.information[free])
    return max(1.0, float((directions.inverse * middle(point)[free]).sum()) / max(directions.rank, 1))


def clusters_that_count(point: Point, along: Floats) -> float:
    """Return Satterthwaite's degrees of freedom of the robust variance of `cᵀ(scores)`, for a direction c `(p,)`; at least 1."""
    model = point.likelihood
    if model.clusters is not None and model.clusters.unit == "expert":
        each = np.zeros(model.n_experts)
        for expert in _by_expert(point):
            each[expert.owner] += float(expert.expected(along[expert.places]).sum())
        return max(1.0, float(each.sum()) ** 2 / max(float((each**2).sum()), TINY) - 1)
    total = squares = 0.0
    for expert in _by_expert(point):
        each = expert.expected(along[expert.places])
        variance, counted = float(each.sum()), float((each**2).sum())
        total += variance
        if len(each) > 1 and counted > 0:
            squares += variance**2 / max(variance**2 / counted - 1, 1e-3)
    return max(1.0, total**2 / squares) if squares else np.inf


def independence_figures(taken: Independence, point: Point, robust: Floats | None, of_model: Floats | None) -> TakenAsIndependent:
    """Return what was taken to be independent, how much wider that makes standard errors of discounts, and of how many
    clusters.
    """
    model, within = point.likelihood, taken.within
    p_value = None if within is None or within.reason else within.p_value
    said: TakenAsIndependent = {"unit": taken.unit, "p_value": p_value, "reason": taken.reason}
    if taken.clusters is None or robust is None or of_model is None:
        return said
    columns = np.arange(model.size)[model.discount_slice]
    by_owner: list[set[int]] = [set() for _ in range(model.n_experts)]
    for owner, numbers in zip(model.problem.owner, taken.clusters.numbers, strict=True):
        by_owner[owner].update(numbers.tolist())
    variances = [np.diag(matrix)[columns] for matrix in (robust, of_model)]
    wider = np.sqrt(np.where(variances[1] > 0, variances[0] / np.maximum(variances[1], TINY), 1.0))
    counted = [np.inf if model.fixed[c] else clusters_that_count(point, of_model[:, c]) for c in columns.tolist()]
    return {
        **said,
        "clusters": [len(numbers) for numbers in by_owner],
        "widening": wider[model.groups].tolist(),
        "freedom": [None if np.isinf(n) else n for n in np.array(counted)[model.groups].tolist()],
    }


def independence_words(said: TakenAsIndependent | None) -> list[str]:
    """Return what was taken to be independent, in a sentence or two; nothing where it is every decision, as usual."""
    if said is None or (said["unit"] == "decision" and not said["reason"]):
        return []
    why = ""
    p = said["p_value"]
    if p is not None:
        why = f"Choices of one episode go together (p {'≤' if p <= 0.001 else '='} {decimals(p, 3)}), "
    if said["reason"]:
        narrow = "every decision counts as independent, so intervals are too narrow and p-values too small"
        return [f"{why}but {said['reason']}: {narrow}."]
    wider = float(np.median(said["widening"]))
    unit = "the episode" if said["unit"] == "episode" else "the expert"
    first = f"{why}so {unit}" if why else f"{unit[0].upper()}{unit[1:]}"
    words = [
        f"{first}, and not the decision, is the unit of standard errors, intervals and tests: standard errors of discounts are "
        f"{significant(wider, 2)} times those of independent decisions."
    ]
    few = sum(n is not None and n < 5 for n in said["freedom"])
    if few:
        whose = f"For {few} of {len(said['freedom'])} experts" if few < len(said["freedom"]) else "For all experts"
        words.append(f"{whose} fewer than 5 independent {said['unit']}s count, so their intervals are wide and rough.")
    return words


# Tests by flipping signs.


def flipped(scores: Floats, times: int, rng: np.random.Generator) -> Floats:
    """Return sums `(times,q)` of scores `(n,q)` with signs drawn anew."""
    if len(scores) > 2000:
        root = np.linalg.qr(scores, mode="r")
        sums: Floats = rng.standard_normal((times, len(root))) @ root
    else:
        sums = rng.choice([-1.0, 1.0], (times, len(scores))) @ scores
    return sums


def sign_flip_test(point: Point, contrasts: Floats) -> tuple[float, float]:
    """Test that the contrasts `(p,r)` of x have the values that they have at a fit with these values.

    Returns:
        The statistic, in units in which its mean is r, and the p-value; NaN where the decisions do not determine the contrasts.
    """
    model = point.likelihood
    free = np.flatnonzero(~point.likelihood.fixed)
    directions = spectrum(point.curvature()[np.ix_(free, free)])
    null = directions.null_space / (np.abs(directions.null_space).max(initial=0.0) or 1.0)
    if np.abs(null.T @ contrasts[free]).max(initial=0.0) > 1e-3:
        return np.nan, np.nan
    follow = np.zeros_like(contrasts)
    follow[free] = directions.inverse @ contrasts[free]
    follow = follow @ np.linalg.pinv(contrasts.T @ follow, hermitian=True)
    metric = np.linalg.pinv(follow.T @ point.information @ follow, hermitian=True)
    carried = _carried(point)
    parts: dict[int, list[Floats]] = {}
    values = np.round(model.person_values(point), 6)
    for expert in _by_expert(point):
        turned = follow[expert.places]
        if expert.owner in carried:
            places, carry = carried[expert.owner]
            turned = carry[:, np.searchsorted(places, expert.places)].T @ follow[places]
        parts.setdefault(expert.owner, []).append(expert.scores @ turned)
    if model.clusters is not None and model.clusters.unit == "expert":
        parts = {k: [np.sum([part.sum(axis=0) for part in pieces], axis=0)[None]] for k, pieces in parts.items()}
    # Experts draw in the order of their likelihoods, so that it does not matter how they are listed.
    order = sorted(parts, key=lambda k: float(values[k]))
    made = np.sum([part.sum(axis=0) for pieces in parts.values() for part in pieces], axis=0)
    statistic = float(made @ metric @ made)
    drawn = np.zeros(0)
    for times in (999, 9000):  # more draws only where the first make the hypothesis doubtful
        rng = np.random.default_rng((0, times))
        sums = np.sum([flipped(part, times, rng) for k in order for part in parts[k]], axis=0)
        drawn = np.append(drawn, ((sums @ metric) * sums).sum(axis=1))
        p_value = (1 + int((drawn >= statistic * (1 - 1e-9)).sum())) / (1 + drawn.size)
        if p_value > 0.01:
            break
    return contrasts.shape[1] * statistic / max(float(drawn.mean()), TINY), p_value


# Do choices of one episode go together?


class WithinEpisodes(NamedTuple):
    """Whether choices of one episode go together more than the states explain.

    `statistic` is by how many standard deviations they do; the smallest `p_value` that can be is 0.001. Both are NaN where there
    is a `reason` why it was not tested.
    """

    statistic: float
    p_value: float
    reason: str = ""


def within_episodes(
    point: Point,
    tables: Sequence[Demonstrations] | None = None,
    seed: int = 0,
    max_decisions: int = 200_000,
    conditions: Sequence[str] = (),
) -> WithinEpisodes:
    """Test that choices of one episode do not go together; of more decisions, in episodes drawn at random.

    The tables are those of the decisions, one for each task in order; by default those the problem was made of. Under other
    `conditions` experts may choose otherwise.
    """
    model = point.likelihood
    listed = sources(model.problem, tables)
    if isinstance(listed, str):
        return WithinEpisodes(np.nan, np.nan, listed)
    if model.is_large:
        why = f"that needs at most {limits().dense_rewards} rewards, and there are {model.n_reward:,}"
        return WithinEpisodes(np.nan, np.nan, why)
    parts = _centred_scores(point, listed, seed, max_decisions, conditions)
    if not any((scores**2).sum() for scores, starts in parts if len(starts) < len(scores)):
        under = " under the same conditions" if conditions else ""
        return WithinEpisodes(np.nan, np.nan, f"no two choices of one episode can be compared{under}")
    # Experts draw in the order of their scores, so that it does not matter how they are listed.
    order = np.argsort([np.round((scores**2).sum(), 6) for scores, _ in parts], kind="stable")
    streams = np.random.SeedSequence(seed).spawn(len(parts))
    draws = [np.random.default_rng(streams[rank]) for rank in np.argsort(order)]
    single = np.sum([scores.T @ scores for scores, _ in parts], axis=0)
    statistics = [_together([np.add.reduceat(scores, starts) for scores, starts in parts], single)]
    short = [_in_short(scores, starts) for scores, starts in parts]
    for number in (199, 999):  # more draws only where the first make the model doubtful
        while len(statistics) <= number:
            statistics.append(_together([part.sums(rng) for rng, part in zip(draws, short, strict=True)], single))
        drawn = np.array(statistics[1:])
        largest = ((np.array(statistics) - drawn.mean(axis=0)) / np.maximum(drawn.std(axis=0), TINY)).max(axis=1)
        p_value = (1 + int((largest[1:] >= largest[0] - 1e-9).sum())) / (1 + number)
        if p_value > 1 - LEVEL:
            break
    return WithinEpisodes(float(largest[0]), p_value)


def _together(sums: Sequence[Floats], single: Floats) -> tuple[float, float, float]:
    """Return trace and largest eigenvalue of C, and the same sum along discounts, which is the last column.

    `sums` are those of the scores over each episode `(E,m)`, by expert, and `single` `(m,m)` is the sum of all `r_t r_tᵀ`.
    """
    total = np.sum([each.T @ each for each in sums], axis=0) - single
    return float(np.trace(total[:-1, :-1])), float(np.linalg.eigvalsh(total[:-1, :-1])[-1]), float(total[-1, -1])


@dataclass(frozen=True, eq=False)
class _Short:
    """Scores `(n,m)` to which signs are drawn, and the rows that begin an episode; where it is `long` `(n,)`, normal numbers."""

    scores: Floats
    starts: Ints
    long: Bools

    def sums(self, rng: np.random.Generator) -> Floats:
        """Return the sums over each episode `(E,m)` with signs drawn anew."""
        signs = rng.choice([-1.0, 1.0], self.long.size)
        signs[self.long] = rng.standard_normal(int(self.long.sum()))
        sums: Floats = np.add.reduceat(self.scores * signs[:, None], self.starts)
        return sums


def _in_short(scores: Floats, starts: Ints) -> _Short:
    """Return scores of one expert, in which a root of their squares stands for a long episode: its sums are nearly normal."""
    parts = np.split(scores, starts[1:])
    long = [len(part) > 3 * scores.shape[1] for part in parts]
    kept = [_root(part.T @ part) if many else part for part, many in zip(parts, long, strict=True)]
    lengths = np.array([len(part) for part in kept])
    return _Short(np.concatenate(kept), np.cumsum(lengths) - lengths, np.repeat(long, lengths))


def _root(matrix: Floats) -> Floats:
    """Return the symmetric root, which unlike other roots does not jump where the matrix changes by rounding."""
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def _centred_scores(
    point: Point, listed: Sequence[tuple[Demonstrations, int]], seed: int, max_decisions: int, conditions: Sequence[str]
) -> list[tuple[Floats, Ints]]:
    """Return the scores `(N,m)` of each expert's choices, weighted and centred in each state, and the rows that begin an episode.

    They are taken in the 20 directions of the reward of which the choices say most, and in that of the expert's discount.
    """
    model = point.likelihood
    share = min(1.0, max_decisions / model.decisions)
    choices: list[tuple[Demonstrations, Ints, Ints, Ints, Ints, Ints]] = []
    read: dict[int, tuple[Ints, Ints, Ints, Ints, Ints, Bools, Ints]] = {}
    episodes = 0
    for table, k in listed:
        if id(table) not in read:
            expert, length = table.by_episode.expert, table.by_episode.length
            kept = np.concatenate([np.random.default_rng(seed).random(int(n)) < share for n in table.episode_counts])
            cell = np.repeat(cells_of_episodes(table, conditions)[kept], length[kept])
            read[id(table)] = *table.choices_of(kept), expert, length, kept, cell
        state, action, last, expert, length, kept, cell = read[id(table)]
        theirs = np.repeat(expert[kept], length[kept]) == k
        choices.append((table, state[theirs], action[theirs], last[theirs], cell[theirs], length[kept & (expert == k)]))
        episodes += int((expert == k).sum())
    # The reward, or where it is known the discounts and temperatures.
    places = np.arange(model.size)
    last = model.transition_slice.start
    free = places < model.n_reward if model.settings.reward is None else (places >= model.n_reward) & (places < last)
    unit = np.where(free, 1.0, 0.0)
    unit[: model.n_reward] *= model.known_temperature / model.feature_sizes
    unit[model.discount_slice] *= point.x[model.discount_slice] * (1 - point.x[model.discount_slice])
    values, vectors = np.linalg.eigh((point.information * unit[:, None] * unit)[np.ix_(free, free)] / episodes)
    # Draws depend on the signs of directions, which rounding must not decide.
    vectors = vectors * np.sign(np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None], axis=0))
    directions = np.zeros((model.size, min(20, values.size)))
    directions[free] = (vectors / np.sqrt(np.maximum(values, 0.0) + 10.0**-2))[:, -20:]  # the spread τ is 10 temperatures
    directions *= unit[:, None]
    estimated = np.flatnonzero(~model.fixed)
    covariance = np.zeros((model.size, model.size))
    covariance[np.ix_(estimated, estimated)] = spectrum(point.curvature()[np.ix_(estimated, estimated)]).inverse
    along = covariance[:, model.discount_slice][:, model.groups]
    along = along / np.sqrt(np.maximum(covariance.diagonal()[model.discount_slice][model.groups], TINY))
    parts = []
    for b, batch in enumerate(model.batches):
        rows, columns, slopes = point.scores(b)
        contexts = batch.mdp.n_states * batch.last_actions
        place = np.zeros(batch.mdp.n_actions * contexts, dtype=np.int64)
        place[rows] = np.arange(rows.size)
        for i, (position, in_x) in enumerate(zip(batch.positions, columns, strict=True)):
            table, state, action, last, cell, lengths = choices[position]
            states, actions = table.match(batch.mdp)
            state, action = states[state], actions[action]
            if batch.by_last:
                state = np.append(actions, batch.mdp.n_actions)[last] * batch.mdp.n_states + state
            turned = np.column_stack([directions[in_x], along[in_x, batch.owners[i]]])
            scores = (slopes[:, i] @ turned)[place[action * contexts + state]]
            here = np.unique(cell * contexts + state, return_inverse=True)[1]
            visits = np.maximum(np.bincount(here), 1)
            means = np.stack([np.bincount(here, column) for column in scores.T], axis=1) / visits[:, None]
            centred = (scores - means[here]) * np.sqrt(visits / np.maximum(visits - 1, 1))[here, None]
            if state.size:
                parts.append((centred, np.cumsum(lengths) - lengths))
    return parts


class TakenAsIndependent(TypedDict):
    """What a fit took to be independent of each other.

    `unit` is "decision", "episode" or "expert"; `p_value` is that of the test that chose it, None where there was none, and
    `reason` says why it is not the unit that the test asked for. By expert, where it is no decision: how many `clusters` there
    are, how much wider they make the standard error of the discount (`widening`), and the degrees of freedom of its interval,
    None for very many.
    """

    unit: Literal["decision", "episode", "expert"]
    p_value: float | None
    reason: str
    clusters: NotRequired[list[int]]
    widening: NotRequired[list[float]]
    freedom: NotRequired[list[float | None]]
