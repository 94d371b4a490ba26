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
largest eigenvalue where they differ in one, such as which of two goals pays. For p-values the sign of each r_t is drawn anew:
given what came before, its mean is 0 whatever its sign (a martingale), and only products of different choices change. Both
numbers are measured in their standard deviations over the draws, and the larger counts.

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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from multihorizon.checks import TINY, Bools, Floats, Ints
from multihorizon.choice.clusters import sources
from multihorizon.choice.model import DENSE_REWARDS
from multihorizon.choice.tabular import Point
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.problem import cells_of_episodes

#: A p-value below this counts as dependence.
DEPENDENT = 0.05


class WithinEpisodes(NamedTuple):
    """Whether choices of one episode go together more than the states explain.

    `statistic` is by how many standard deviations they do; the smallest `p_value` that can be is 0.001. Both are NaN where there
    is a `reason` why it was not tested.
    """

    statistic: float
    p_value: float
    reason: str = ""


# Within episodes.


def within_episodes(
    point: Point,
    tables: Sequence[Demonstrations] | None = None,
    seed: int = 0,
    max_decisions: int = 20_000,
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
        return WithinEpisodes(np.nan, np.nan, f"that needs at most {DENSE_REWARDS} rewards, and there are {model.n_reward:,}")
    parts = _centred_scores(point, listed, seed, max_decisions, conditions)
    if not any((scores**2).sum() for scores, starts in parts if len(starts) < len(scores)):
        under = " under the same conditions" if conditions else ""
        return WithinEpisodes(np.nan, np.nan, f"no two choices of one episode can be compared{under}")
    # Experts draw in the order of their scores, so that it does not matter how they are listed.
    order = np.argsort([np.round((scores**2).sum(), 6) for scores, _ in parts], kind="stable")
    streams = np.random.SeedSequence(seed).spawn(len(parts))
    draws = [np.random.default_rng(streams[rank]) for rank in np.argsort(order)]
    found = [_together(parts)]
    for number in (199, 999):  # more draws only where the first make the model doubtful
        while len(found) <= number:
            pairs = zip(draws, parts, strict=True)
            found.append(_together([(x * rng.choice([-1.0, 1.0], len(x))[:, None], starts) for rng, (x, starts) in pairs]))
        drawn = np.array(found[1:])
        largest = ((np.array(found) - drawn.mean(axis=0)) / np.maximum(drawn.std(axis=0), TINY)).max(axis=1)
        p_value = (1 + int((largest[1:] >= largest[0] - 1e-9).sum())) / (1 + number)
        if p_value > DEPENDENT:
            break
    return WithinEpisodes(float(largest[0]), p_value)


def _together(parts: Sequence[tuple[Floats, Ints]]) -> tuple[float, float]:
    """Trace and largest eigenvalue of C, from the scores `(N,m)` of each expert and the rows that begin an episode."""
    total = np.zeros((parts[0][0].shape[1],) * 2)
    for scores, starts in parts:
        sums = np.add.reduceat(scores, starts)
        total += sums.T @ sums - scores.T @ scores
    return float(np.trace(total)), float(np.linalg.eigvalsh(total)[-1])


def _centred_scores(
    point: Point, listed: Sequence[tuple[Demonstrations, int]], seed: int, max_decisions: int, conditions: Sequence[str]
) -> list[tuple[Floats, Ints]]:
    """The scores `(N,m)` of each expert's choices, weighted and centred in each state, and the rows that begin an episode.

    They are taken in the 20 directions of the reward of which the choices say most.
    """
    model = point.likelihood
    share = min(1.0, max_decisions / model.decisions)
    choices: list[tuple[Demonstrations, Ints, Ints, Ints, Ints]] = []
    read: dict[int, tuple[Ints, Ints, Ints, Ints, Bools, Ints]] = {}
    episodes = 0
    for table, k in listed:
        if id(table) not in read:
            expert, length = table.by_episode.expert, table.by_episode.length
            kept = np.concatenate([np.random.default_rng(seed).random(int(n)) < share for n in table.episode_counts])
            cell = np.repeat(cells_of_episodes(table, conditions)[kept], length[kept])
            read[id(table)] = *table.choices_of(kept), expert, length, kept, cell
        state, action, expert, length, kept, cell = read[id(table)]
        own = np.repeat(expert[kept], length[kept]) == k
        choices.append((table, state[own], action[own], cell[own], length[kept & (expert == k)]))
        episodes += int((expert == k).sum())
    # The reward, or where it is known the discounts and temperatures.
    places, last = np.arange(model.size), model.transition_slice.start
    free = places < model.n_reward if model.settings.reward is None else (places >= model.n_reward) & (places < last)
    unit = np.where(free, 1.0, 0.0)
    unit[: model.n_reward] *= model.known_temperature / model.feature_sizes
    unit[model.discount_slice] *= point.x[model.discount_slice] * (1 - point.x[model.discount_slice])
    values, vectors = np.linalg.eigh((point.information * unit[:, None] * unit)[np.ix_(free, free)] / episodes)
    directions = np.zeros((model.size, min(20, values.size)))
    directions[free] = (vectors / np.sqrt(np.maximum(values, 0.0) + 10.0**-2))[:, -20:]  # the spread τ is 10 temperatures
    directions *= unit[:, None]
    found = []
    for b, batch in enumerate(model.batches):
        rows, columns, slopes = point.scores(b)
        place = np.zeros(batch.mdp.n_actions * batch.mdp.n_states, dtype=np.int64)
        place[rows] = np.arange(rows.size)
        for i, (position, own) in enumerate(zip(batch.positions, columns, strict=True)):
            table, state, action, cell, lengths = choices[position]
            states, actions = table.match(batch.mdp)
            state, action = states[state], actions[action]
            scores = (slopes[:, i] @ directions[own])[place[action * batch.mdp.n_states + state]]
            here = np.unique(cell * batch.mdp.n_states + state, return_inverse=True)[1]
            visits = np.maximum(np.bincount(here), 1)
            means = np.stack([np.bincount(here, column) for column in scores.T], axis=1) / visits[:, None]
            centred = (scores - means[here]) * np.sqrt(visits / np.maximum(visits - 1, 1))[here, None]
            if state.size:
                found.append((centred, np.cumsum(lengths) - lengths))
    return found
