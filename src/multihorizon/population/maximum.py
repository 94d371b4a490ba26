"""The maximum of the marginal likelihood of many people, and what is known there.

*Search.* Nodes start where the population is, and follow the mean and covariance that the quadrature itself gives. By Louis
(1982) the information about ψ is that of complete data less what is lost because v is not seen:

    J = E[−∂² log p(decisions, v)] − Var(∂ log p(decisions, v)),     both given the decisions.

By N both terms are moments of v. By R the first has the second derivatives of the tables. In θ it is the Fisher information, and
the second term comes from the scores at the nodes. A step solves `J δ = g` in the directions that J determines, is shortened
until nodes that were placed for the last ψ still hold, and halved until the objective rises. Then the nodes are placed anew. A
round with few nodes comes first, and where people are very many, a round with some of them. The search ends when `√(gᵀJ⁻¹g)`,
the distance to the maximum in standard errors, is below `tol`. Where a finer rule would move the answer by more than 0.02
standard errors, the search goes on with that. All of it is sums over people, who are taken in blocks: the same blocks whoever
computes them.

*Spread that was estimated.* With few people or few decisions the spread `S = (log L₁₁, L₂₁, log L₂₂, …)` is hardly known.
Taking its most likely value for the truth makes intervals of people too narrow. So the shares P_iq of the nodes are averaged
over S:

    P̄_iq = Σ_k v_k P_iq(ψ_k) / Σ_k v_k,    ψ_k = ψ̂ + M z_k,    v_k = w_k exp(l(ψ_k) − l(ψ̂) + ½|z_k|²) f(S_k)/f(Ŝ),

with Gauss–Hermite places z_k and weights w_k in three dimensions, scattered ones in more, and l the objective, which is
restricted to the spread already. `M = C_·S C_S^{-1/2}`, C the covariance of all but the reward, moves the effects along with the
spread. Reward and nodes stay where they are, so nothing is planned anew; where R moves cells along, what decisions say there is
expanded to the second order. `f = σ_γ (1 − ρ²)` makes the density of S flat in both standard deviations and in the correlation,
but for the weak priors that are part of l; with more rows, f is a product over them, by which their lengths and directions have a
flat density. Where nodes are too coarse for a small spread, l may come out above its maximum; such places do not count.

*What is known.* Given the decisions, each η has the mean and the covariance of the quadrature with these shares. The errors of
reward and effects add `D_i C' D_iᵀ`, D_i the derivative of that mean in ψ and C' what is left of C at a given spread. With the
reward, η has the covariance `D_i C_·θ`. Estimated transitions are drawn anew around their estimates, with their sample sizes. A
draw that moves the gradient by δg moves ψ by `C δg`; the mean of the squares is added to C.

*Rewards that are nearly shared.* Person i acts for the reward `θ + δ_i`, `δ_i ~ N(0, τ²W)`, W diagonal with 1/f², f the largest
value of each feature. `marginal` has the likelihood l(ψ; τ) with people and deviations averaged out. τ is judged by

    C(τ) = max_ψ l(ψ; τ) − ½ log det(J_θ + Λ),

J_θ the information about θ where effects are not known, and Λ the precision of a wide prior, of 20 temperatures: the most likely
τ is too small, because θ was fitted to the same people, and this corrects for it as l does for effects. The search, the test of
τ = 0 (half χ²₀, half χ²₁) and the interval are those of `likelihood.random_effects`. On the way nodes are few, as many for τ = 0
as for all others. Where τ is kept, the maximum is found anew with as many nodes as it takes.

With the shares P_q of the nodes, a person's deviation has the mean `Σ P_q δ̂_q`, and the variance `Σ P_q (A_q + δ̂_q²)`
less the square of that.

*Does the reward depend on the state reached alone?* The tests are those of `likelihood.action_rewards`. The marginal likelihood
is that of the model that is reported, with covariates, conditions and people averaged out. A wider reward adds features whose
weights are 0 at the maximum. Its gradient there is exact. Its information is that of decisions at each cell's mean η: with F the
Fisher information of a cell in (θ, c, η) and `η = X (b, c) + Z u`, it is the sum over people of what is left once u, of
precision `Σ⁻¹`, is eliminated. It is never negative, as what Louis's formula gives may be where the model is wrong. Estimated
transitions are drawn anew, as for the covariance of ψ: what that moves the gradient by lengthens the tails.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, ndtr

from multihorizon.checks import Floats, Ints
from multihorizon.choice.deviations import states_visited
from multihorizon.choice.plans import persons_by_task, redrawn
from multihorizon.likelihood.action_rewards import DRAWS, StateRewardTest, wider_rewards
from multihorizon.likelihood.random_effects import LEAST, MOST, crossing, highest
from multihorizon.numerics.distributions import chi2_ppf, chi2_sf, normal_nodes, scattered_nodes
from multihorizon.numerics.spectrum import ScoreTest, Spectrum, positive_part, score_test, spectrum
from multihorizon.parallel import Run
from multihorizon.population.marginal import (
    Around,
    Marginal,
    PersonBlock,
    PersonMoments,
    PsiLayout,
    PsiParts,
    Question,
    Start,
    Value,
    about_means,
    asked,
    covariance_over,
    mean_over,
    modes,
    normal_scores,
    root_entries,
    shares_of_nodes,
)
from multihorizon.problem import Problem
from multihorizon.solution import Deviations, Status
from multihorizon.words import LEVEL, decimals, significant


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the search ended: ψ, the value and the nodes there, the distance to the maximum, and the number of steps."""

    psi: Floats
    value: Value
    marginal: Marginal
    persons: PersonMoments
    distance: float
    steps: int

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to gain: below this share of a standard error the answer counts as the maximum."""
        return self.distance <= 2e-3

    def persons_at(self, psi: Floats) -> PersonMoments:
        """Return roughly where each person is at another ψ: what the decisions say is taken as normal, with precision Λ."""
        layout, persons = self.marginal.layout, self.persons
        here, there = (layout.unpack(each) for each in (self.psi, psi))
        # (Λ + Σ⁻¹)⁻¹ = L (I + LᵀΛL)⁻¹ Lᵀ, which also a narrow Σ leaves positive
        root = there.root
        left = root @ np.linalg.inv(np.eye(layout.deep) + root.T @ persons.precision @ root)
        covariance = left @ root.T
        away, before = (layout.means(parts.effects) - persons.mean for parts in (there, here))
        drawn = left @ np.linalg.solve(root, away.T).T[:, :, None]
        drawn -= covariance @ np.linalg.solve(here.covariance, before.T).T[:, :, None]
        return replace(persons, mean=persons.mean + drawn[:, :, 0], covariance=(covariance + covariance.transpose(0, 2, 1)) / 2)


def spectrum_of(matrix: Floats, absolute: bool = False) -> Spectrum:
    """Return J or a block of it, scaled to a unit diagonal; eigenvalues below 1e-7 of the largest are taken for none."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    return spectrum((matrix + matrix.T) / 2, np.where(scale > 0, scale, 1.0), tol=1e-7, absolute=absolute)


def maximise(layout: PsiLayout, start: Start, nodes: int | None, run: Run, tol: float = 1e-6, max_iter: int = 60) -> Maximum:
    """Climb from a start, first with few nodes, and where people are very many, first with some of them.

    Unless it is said how many `nodes` there are in the end, they are 15, and more where these are too few.
    """
    whole = start.layout is layout
    first = run.part(0.0, 0.5 if whole else 0.1)
    few = min(nodes or 7, 7) if whole else 7
    near = climb(start.layout, start.psi, start.persons, few, first, max(tol, 0.1), min(max_iter, 15))
    psi, persons = near.psi, near.persons
    if not whole:
        psi = finish(start.layout, psi, persons, 7, run.part(0.1, 0.2), 0.1, max_iter).psi
        persons = modes(layout, psi)
        value = Marginal(layout, persons, 7).at(psi, full=False)
        assert value is not None
        persons = _moved(persons, layout.unpack(psi).covariance, value)
    return finish(layout, psi, persons, nodes, run.part(0.5, 1.0), tol, max_iter)


@dataclass(frozen=True, eq=False)
class HabitSearch:
    """The most likely share of lapses, or stickiness: the maxima at the values that were tried, and the one of all.

    `unit` is a temperature, in which stickiness is measured; None for lapses.
    """

    maxima: dict[float, Maximum]
    value: float
    unit: float | None

    @property
    def maximum(self) -> Maximum:
        """Return the maximum of all."""
        return self.maxima[self.value]

    @property
    def p_value(self) -> float:
        """Return the p-value of none. For lapses none is an edge, where twice the gain is half χ²₀, half χ²₁."""
        gain = self.maximum.value.objective - self.maxima[0.0].value.objective
        share = 1.0 if self.unit is not None or gain <= 0 else 0.5
        return share * float(chi2_sf(2 * max(gain, 0.0), 1))

    @cached_property
    def nearest(self) -> list[float]:
        """Return the values tried that are nearest to the most likely one, itself among them."""
        return sorted(self.maxima, key=lambda value: abs(value - self.value))[:3]

    @property
    def error(self) -> float:
        """Return the standard error: that of the parabola through the three nearest maxima; NaN where it has no top."""
        objectives = [self.maxima[value].value.objective for value in self.nearest]
        square = float(np.polyfit(self.nearest, objectives, 2)[0])
        return float(np.sqrt(-0.5 / square)) if square < 0 else np.nan

    @property
    def slope(self) -> Floats:
        """Return how ψ at the maximum moves with the value."""
        other = self.nearest[1]
        slope: Floats = (self.maxima[other].psi - self.maximum.psi) / (other - self.value)
        return slope


def most_likely_habit(first: Maximum, at: Callable[[float, Maximum], Maximum], unit: float | None, run: Run) -> HabitSearch:
    """Return the search for the most likely share of lapses, or stickiness where there is a unit, by parabolas.

    It begins at the maximum with none. `at` returns the maximum at a value, begun at another one.
    """
    done = {0.0: first}
    step, least, most = (0.02, 0.0, 0.64) if unit is None else (0.1 * unit, -20 * unit, 20 * unit)
    same = step / 10

    def tried(value: float) -> float:
        if value not in done:
            done[value] = at(value, done[min(done, key=lambda other: abs(other - value))])
            run.progress(min(len(done) / 12, 1.0), f"{significant(value)}: {decimals(done[value].value.objective, 2)}")
        return done[value].value.objective

    if unit is not None and tried(-step) > tried(step):
        step = -step
    last, reach = 0.0, step
    while tried(reach) > tried(last) and least < 2 * reach < 2 * most:  # until it falls again
        last, reach = reach, float(np.clip(2 * reach, least, most))
        if last == reach:
            break
    while unit is None and last == 0 and reach > 1e-3:  # the top may be very near to none
        reach /= 3
        last = reach if tried(reach) > tried(0.0) else 0.0
    for _ in range(6):
        values = sorted(done)
        top = max(range(len(values)), key=lambda i: done[values[i]].value.objective)
        if top in (0, len(values) - 1):
            break
        near = values[top - 1 : top + 2]
        square, linear, _ = np.polyfit(near, [done[value].value.objective for value in near], 2)
        inside = near[0] + 0.1 * (near[1] - near[0]), near[2] - 0.1 * (near[2] - near[1])
        value = float(np.clip(-linear / (2 * square), *inside)) if square < 0 else near[1]
        if min(abs(value - other) for other in values) < same:
            break
        tried(value)
    run.progress(1.0, "")
    return HabitSearch(done, max(done, key=lambda value: done[value].value.objective), unit)


def finish(
    layout: PsiLayout,
    psi: Floats,
    persons: PersonMoments,
    nodes: int | None,
    run: Run,
    tol: float = 1e-6,
    max_iter: int = 60,
) -> Maximum:
    """Climb from ψ near the maximum with as many nodes as it takes, or as are wanted."""
    maximum = climb(layout, psi, persons, nodes or 15, run.part(0.0, 0.6), tol, max_iter)
    for finer in (25, 41) if nodes is None else ():
        if not maximum.finished or _off(maximum, finer) < 0.02:
            break
        maximum = climb(layout, maximum.psi, maximum.persons, finer, run.part(0.6, 1.0), tol, max_iter)
    return maximum


def climb(
    layout: PsiLayout,
    psi: Floats,
    persons: PersonMoments,
    nodes: int,
    run: Run,
    tol: float,
    max_iter: int = 60,
    held: Sequence[int] = (),
) -> Maximum:
    """Return Newton's method from ψ, with the first nodes around `persons`; the entries of ψ that are held stay where they
    are.
    """
    precision = persons.precision
    free = ~np.isin(np.arange(layout.size), held)
    marginal = Marginal(layout, persons, nodes)
    steps = 0
    last = np.inf
    placed = psi
    # Very many people determine ψ so well that steps of ten standard errors are sure, and hardly move the nodes.
    at_hand, still = (10.0, 0.15) if layout.persons > layout.many else (0.0, 0.0)
    if layout.mixed and not at_hand:
        # Cells move over the edges of patches, where tables jump a little: near the maximum a step that comes nearer is enough.
        at_hand = 0.1
    if layout.deviation.size:  # a climb begins near the maximum, and each value is dear
        at_hand = max(at_hand, 1.0)
    while True:
        value = marginal.at(psi)
        if value is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        persons = _moved(persons, layout.unpack(psi).covariance, value)
        step = np.zeros(layout.size)
        step[free] = spectrum_of(value.information[np.ix_(free, free)], absolute=True).solve(value.gradient[free])
        distance = float(np.sqrt(np.maximum(value.gradient @ step, 0.0)))
        run.progress(min(0.95, steps / 20), f"marginal log-likelihood {decimals(value.persons.sum(), 2)}")
        stays = distance <= tol or steps >= max_iter
        if distance <= at_hand and distance < 0.5 * last and not stays:  # the maximum is at hand, and each step comes nearer
            psi = psi + step
            last = distance
        else:
            reached = None if stays else _advance(marginal, psi, value, step)
            if reached is None:
                return Maximum(psi, value, marginal, persons, distance, steps)
            psi = reached[0]
            persons = _moved(persons, layout.unpack(psi).covariance, reached[1])
        steps += 1
        if held:
            persons = replace(persons, precision=precision)
        # Late and small moves of the nodes would change the integrals more than the step does.
        if _size(layout, placed, psi - placed) > (still if steps <= 15 else 0.3):
            if steps > 3:  # nodes that go halfway do not swing from one set of places to another and back
                mean, covariance = marginal.persons.mean + persons.mean, marginal.persons.covariance + persons.covariance
                persons = replace(persons, mean=mean / 2, covariance=covariance / 2)
            marginal = Marginal(layout, persons, nodes)
            placed = psi


def _moved(before: PersonMoments, prior: Floats, value: Value) -> PersonMoments:
    """Return where the nodes should be: at the moments of the quadrature. Few nodes may miss a part, so no spread shrinks at
    once."""
    cells = value.cells if value.cells.size else before.cells
    moments = PersonMoments.under(prior, value.mean, value.covariance + 1e-9 * before.covariance, cells)
    return replace(moments, covariance=value.covariance + 0.05 * before.covariance)


def _size(layout: PsiLayout, psi: Floats, step: Floats) -> float:
    """Return how far a step moves anyone's mean, in standard deviations between people, or the logarithms of these, in 0.7."""
    parts = layout.unpack(psi)
    effects = layout.effects(step)
    deviations = np.sqrt(np.diag(parts.covariance))
    means = np.abs(layout.means(effects)).max(axis=0) / deviations
    rest = np.abs(layout.rest @ effects).max(axis=0) / deviations[:2]
    rows, _, diagonal = root_entries(layout.deep)
    logs = np.abs(step[layout.spread] / np.where(diagonal, 1.0, np.diag(parts.root)[rows])).max() / 0.7
    return float(max(means.max(), rest.max(), logs))


def _advance(marginal: Marginal, psi: Floats, value: Value, step: Floats) -> tuple[Floats, Value] | None:
    """Return a share of the step that raises the objective, with the value there; None if there is none.

    Means move by at most one standard deviation between people, and the logarithms of these by at most 0.7.
    """
    share = min(1.0, 1.0 / max(_size(marginal.layout, psi, step), 1e-300))
    promised = float(value.gradient @ step)
    for _ in range(12):
        reached = marginal.at(psi + share * step, full=False)
        if reached is not None and reached.objective - value.objective > 1e-4 * share * promised:
            return psi + share * step, reached
        share /= 2
    return None


def _off(maximum: Maximum, finer: int) -> float:
    """Return how far the maximum is, in standard errors, from that with so many nodes; of very many people, some are asked.

    Standard errors are those of at most 20,000 persons: with a million, a hundredth of one is of no interest any more.
    """
    layout, persons = maximum.marginal.layout, maximum.persons
    n = layout.persons
    if n > layout.many:
        who = np.linspace(0, n - 1, layout.many // 3).astype(np.int64)
        layout, persons = layout.some(who), persons.of(who, layout.cells_of(who))
    with_more, with_these = (Marginal(layout, persons, count).at(maximum.psi) for count in (finer, maximum.marginal.count))
    assert with_more is not None
    assert with_these is not None
    apart = (with_more.gradient - with_these.gradient) * n / layout.persons
    along = float(apart @ spectrum_of(maximum.value.information, absolute=True).solve(apart))
    return float(np.sqrt(max(along, 0.0) * min(1.0, 20_000 / n)))


def maximum_at(start: Maximum, j: int, value: float, along: Floats) -> Maximum:
    """Return the maximum where ψ_j has this value, from one near by; `along` `(size,)` is how the others move with ψ_j.

    Nodes are few. They move as far as the prior moves each person's mean, and what decisions say of a person (Λ) is kept.
    """
    layout, persons = start.marginal.layout, start.persons
    move = (value - start.psi[j]) * along
    move[j] = value - start.psi[j]
    share = persons.covariance @ np.linalg.inv(layout.unpack(start.psi).covariance)
    mean = persons.mean + (share @ layout.means(layout.effects(move))[:, :, None])[:, :, 0]
    moved = replace(persons, mean=mean, precision=start.marginal.persons.precision)
    return climb(layout, start.psi + move, moved, 7, Run(), 2e-3, held=[j])


def prepared(marginal: Marginal, psi: Floats) -> Question:
    """Return what is asked of blocks at ψ, with tables that are prepared.

    A trial of another θ may have been the last. And tables share their patches with those of other θ and of transitions that
    were drawn anew, which may have cut them since.
    """
    question = marginal.question(marginal.layout.unpack(psi).theta)
    effects = marginal.layout.effects(psi)
    unread = [block for block in marginal.blocks() if block.log is None]
    if any(question.tables.lacking(block.at_cells(question.nodes(block)[0], effects)).size for block in unread):
        marginal.at(psi, full=False)
    return question


def node_shares(maximum: Maximum) -> Iterator[tuple[Floats, Around]]:
    """Yield for each block of people the shares of the nodes `(n,Q)`, and what decisions say there."""
    marginal = maximum.marginal
    parts = marginal.layout.unpack(maximum.psi)
    question = prepared(marginal, maximum.psi)
    for block in marginal.blocks():
        near = question.at_nodes(maximum.psi, block, slopes=marginal.layout.mixed)
        assert isinstance(near, Around)
        yield near.shares(parts)[0], near


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known of η at rows of X and Z, each of one person.

    Attributes:
        mean, covariance: of η `(k,2)` and `(k,2,2)`, with the errors of spread, reward and effects in the covariance.
        within: the covariance `(k,2,2)` where ψ is the maximum.
        discounts, errors: the mean of γ and its standard deviation `(k,)`.
        with_reward: the covariance `(k,2,d)` of η with the parameters of the reward that are estimated.
    """

    mean: Floats
    covariance: Floats
    within: Floats
    discounts: Floats
    errors: Floats
    with_reward: Floats


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known at the maximum.

    Attributes:
        status: whether the effects can be used.
        covariance: C, of ψ.
        open_reward: directions `(d,k)` of the reward of which the decisions say nothing.
        persons: what is known of each person at their typical row.
        cells: what is known of each cell; the same as `persons` where every person has one cell.
    """

    status: Status
    covariance: Floats
    open_reward: Floats
    persons: Answers
    cells: Answers


def posterior(maximum: Maximum, anybody: bool = True, typical: tuple[Floats, Floats] | None = None) -> Posterior:
    """Return what is known of ψ, of each cell and of each person; `anybody`: whether decisions identify anybody's discount.

    `typical` are the rows of X `(n,p)` and of Z `(n,q)` at which people are described; None where they are their cells.
    """
    marginal = maximum.marginal
    decided = spectrum_of(maximum.value.information)
    layout = maximum.marginal.layout
    covariance = decided.inverse + _transition_covariance(maximum, decided.inverse)
    identified = anybody and decided.identified()[layout.discount].all()
    status = Status.CONVERGED if identified else Status.NOT_IDENTIFIED
    if anybody and not maximum.finished:  # where nobody's discount is identified, the maximum decides nothing
        status = Status.NOT_CONVERGED
    spreads = [(1.0, maximum.psi)]
    left = covariance
    if status == Status.CONVERGED:
        spreads = likely_spreads(maximum)
        left = covariance_at_spread(maximum, covariance)
    question = prepared(marginal, maximum.psi)
    blocks = []
    low = 0
    for block in marginal.blocks():
        rest, random, owner = block.rest, block.random, block.owner
        if typical is not None:
            who = slice(low, low + len(block.along))
            x, z = typical[0][who], typical[1][who]
            rest = np.concatenate([rest, x - (z[:, None, :] @ block.along)[:, 0]])
            random, owner = np.concatenate([random, z]), np.concatenate([owner, np.arange(len(x))])
        blocks.append((block, random, rest, owner))
        low += len(block.along)
    ask = partial(row_answers, question, maximum.psi, spreads, left)
    parts = asked(ask, blocks, layout.jobs)
    cells, persons = [], []
    for (block, *_), answers in zip(blocks, parts, strict=True):
        cells.append([each[: len(block.owner)] for each in answers])
        persons.append([each[len(block.owner) :] for each in answers])
    of_cells, of_persons = (Answers(*(np.concatenate(each) for each in zip(*rows, strict=True))) for rows in (cells, persons))
    open_reward = decided.null_space[layout.reward]
    return Posterior(status, covariance, open_reward, of_cells if typical is None else of_persons, of_cells)


def row_answers(
    question: Question,
    psi: Floats,
    spreads: Sequence[tuple[float, Floats]],
    left: Floats,
    asked: tuple[PersonBlock, Floats, Floats, Ints],
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """Return what `Answers` holds of some rows, with shares averaged over spreads.

    `left` is the covariance of ψ where the spread is given.
    A row is `η = Z v + R β` of one of the block's people: Z `(k,q)`, R `(k,p)` and whose it is `(k,)` come with the block.
    """
    layout = question.layout
    (block, random, rest, owner) = asked
    near = question.at_nodes(psi, block, slopes=layout.mixed)
    assert isinstance(near, Around)
    k = len(rest)
    mean, square, discounts, second = (np.zeros((k, *shape)) for shape in ((2,), (2, 2), (), ()))
    still = replace(block, random=random, rest=np.zeros_like(rest), owner=owner).at_cells(near.places, layout.effects(psi))
    for weight, each in spreads:
        there = still + (rest @ layout.effects(each))[:, None]
        shares = near.shares(layout.unpack(each))[0][owner]
        gammas = layout.largest * expit(there[:, :, 0])
        mean += weight * mean_over(shares, there)
        square += weight * covariance_over(shares, there)
        discounts += weight * (shares * gammas).sum(axis=1)
        second += weight * (shares * gammas**2).sum(axis=1)
    averaged = square - mean[:, :, None] * mean[:, None, :]
    # the derivative (k,2,size) of each row's mean in ψ: Cov(η, score of ψ) given the decisions, and what moves rows directly
    parts = layout.unpack(psi)
    likely, _, away = near.shares(parts)
    there = still + (rest @ layout.effects(psi))[:, None]
    by_row = likely[owner]
    gaps = there - mean_over(by_row, there)[:, None]
    within = covariance_over(by_row, gaps)
    rows = layout.linear(block.along)
    slopes = covariance_over(by_row, gaps, normal_scores(away, parts.root)[owner]) @ rows[owner]
    slopes[:, 0, layout.discount] += rest
    slopes[:, 1, layout.temperature] += rest @ layout.temperature_basis
    if near.surface is not None and (layout.free.size or layout.mixed):
        by_cell = likely if len(likely) == len(block.owner) else likely[block.owner]
        where, more, _, _ = question.of_decisions(block, near.eta, near.surface, by_cell, near.own_reward)
        slopes[:, :, where] += covariance_over(by_row, gaps, more[owner])
    wide = averaged + slopes @ left @ slopes.transpose(0, 2, 1)
    discounts = np.minimum(discounts, layout.largest)
    variances = np.maximum(second - discounts**2, 0.0)
    errors = np.sqrt(variances * wide[:, 0, 0] / averaged[:, 0, 0])
    return mean, wide, within, discounts, errors, slopes @ left[:, layout.reward]


def _transition_covariance(maximum: Maximum, covariance: Floats) -> Floats:
    """Return what the error of estimated transitions adds to the covariance of ψ."""
    layout = maximum.marginal.layout
    if not layout.estimated:
        return np.zeros_like(covariance)
    rng = np.random.default_rng(0)
    here = Marginal(layout, maximum.persons, 5).at(maximum.psi)
    moves = []
    for _ in range(40):
        drawn = layout.problem.in_tasks(partial(redrawn, rng=rng))
        again = copy.copy(layout)
        again.tables = layout.tables_of(drawn, layout.tables.theta)
        again.tables.patches = layout.tables.patches
        there = Marginal(again, maximum.persons, 5).at(maximum.psi)
        if here is not None and there is not None:
            moves.append(covariance @ (there.gradient - here.gradient))
    added: Floats = np.mean([np.outer(move, move) for move in moves], axis=0)
    return added


def likely_spreads(maximum: Maximum) -> list[tuple[float, Floats]]:
    """Return the ψ_k with their weights, which sum to 1: only ψ̂ where the spread is known so well that others change nothing."""
    moves = spread_moves(maximum)
    layout = maximum.marginal.layout
    rows, _, diagonal = root_entries(layout.deep)
    sizes = np.where(diagonal, 1.0, np.diag(layout.unpack(maximum.psi).root)[rows])
    deviations = np.linalg.norm(moves[layout.spread], axis=1) / sizes
    if deviations.max() < 0.05:
        return [(1.0, maximum.psi)]

    def log_flat(psi: Floats) -> float:
        """Return log f, `1 − ρ²` being the squared share of L₂₂ in the deviation of log λ."""
        root = layout.unpack(psi).root
        lengths = np.linalg.norm(root, axis=1)
        powers = np.maximum(np.arange(len(root)) - 1, 0)
        return float(np.log(root[0, 0]) + (2 * np.log(np.diag(root) / lengths) - powers * np.log(lengths))[1:].sum())

    if layout.deep == 2:
        # log L₁₁ is known least; what is known well needs few places
        z, weights = normal_nodes(*((7, 5, 5) if deviations.max() > 0.2 else (3, 3, 3)))
    else:
        z, weights = scattered_nodes(128, rows.size)
    psis = [maximum.psi + moves @ each for each in z]
    values = objectives(maximum.marginal, maximum.psi, psis)
    here = maximum.value.objective + log_flat(maximum.psi)
    flat = np.array([log_flat(psi) for psi in psis])
    density = weights * np.exp(np.minimum(values + flat - here + 0.5 * (z**2).sum(axis=1), 700.0))
    density = np.where(values <= maximum.value.objective, density, 0.0)
    return [(float(d), psi) for d, psi in zip(density / density.sum(), psis, strict=True) if d > 0]


def objectives(marginal: Marginal, psi: Floats, psis: Sequence[Floats]) -> Floats:
    """Return the objective at several ψ of one θ near one of them."""
    layout = marginal.layout
    every = [layout.unpack(each) for each in psis]
    ask = partial(_several, prepared(marginal, psi), psi, every)
    values, means = zip(*asked(ask, marginal.blocks(), layout.jobs), strict=True)
    held = [layout.weak_priors(parts)[0] - 0.5 * float(layout.ridge @ parts.theta**2) for parts in every]
    objectives: Floats = sum(values) - 0.5 * np.linalg.slogdet(sum(means))[1] + held
    return objectives


def _several(question: Question, psi: Floats, every: Sequence[PsiParts], block: PersonBlock) -> tuple[Floats, Floats]:
    """Return Σ log p_i at several ψ of one θ near one of them `(k,)`, and what the block adds to M there `(k,m,m)`."""
    near = question.at_nodes(psi, block, slopes=question.layout.mixed)
    assert isinstance(near, Around)
    means = [about_means(question.layout, block, parts.root) for parts in every]
    return np.array([near.shares(parts)[1].sum() for parts in every]), np.stack(means)


def spread_moves(maximum: Maximum) -> Floats:
    """Return M `(size,s)`: how ψ moves with the s entries of the spread, in their standard errors, where the reward stays."""
    layout = maximum.marginal.layout
    rest = slice(layout.free.size, layout.size)
    entries = layout.spread.stop - layout.spread.start
    along = spectrum_of(maximum.value.information[rest, rest]).inverse[:, -entries:]
    variances, vectors = np.linalg.eigh(along[-entries:])
    kept = variances > 1e-12 * variances.max()
    moves = np.zeros((layout.size, entries))
    moves[rest] = along @ (vectors[:, kept] / np.sqrt(variances[kept])) @ vectors[:, kept].T
    return moves


def covariance_at_spread(maximum: Maximum, covariance: Floats) -> Floats:
    """Return what is left of the covariance of ψ where the spread is given: `C − M Mᵀ`, never negative."""
    moves = spread_moves(maximum)
    return positive_part(covariance - moves @ moves.T)


def alike(maximum: Maximum) -> Floats:
    """Return the p-values `(p,2)` of "this effect is the same for everybody", on logit γ and on log λ; NaN where none is within
    people.

    With r the column of R that an effect has, a person with an effect of their own, of variance τ, adds to the derivative of log
    p_i in τ at 0

        S_i = ½ E[(Σ_j r_ij ∂ℓ_ij)² + Σ_j r_ij² ∂²ℓ_ij],    given the decisions.

    Where effects differ, `Σ S_i` is positive. Its variance is the sum of squares of what is left of S_i once the scores of ψ are
    taken out, since ψ was fitted to the same people, and the test is that of a normal distribution. S_i are squares, so that
    with few people it rejects less often than it says.
    """
    marginal, layout = maximum.marginal, maximum.marginal.layout
    if not layout.mixed:
        return np.full((layout.rest.shape[1], 2), np.nan)
    ask = partial(_changes, prepared(marginal, maximum.psi), maximum.psi)
    changes, scores = (np.concatenate(each) for each in zip(*asked(ask, marginal.blocks(), layout.jobs), strict=True))
    left = changes - scores @ np.linalg.lstsq(scores, changes)[0]
    errors = np.sqrt((left**2).sum(axis=0))
    p: Floats = ndtr(-np.divide(changes.sum(axis=0), errors, out=np.full_like(errors, np.nan), where=errors > 0))
    return p.reshape(-1, 2)


def _changes(question: Question, psi: Floats, block: PersonBlock) -> tuple[Floats, Floats]:
    """Return S_i `(n,2p)`, of each effect on logit γ and on log λ, and each person's score in ψ `(n,size)`."""
    layout = question.layout
    parts = question.layout.unpack(psi)
    places, log_weights, inner = question.nodes(block)
    eta = block.at_cells(places, parts.effects)
    surface = question.tables.surface(block.counts, eta, inner, slopes=True)
    shares, _, away = shares_of_nodes(
        block.by_person(surface.log_likelihoods), places, log_weights, block.means(parts.effects), parts.root
    )
    scores = (mean_over(shares, normal_scores(away, parts.root))[:, None] @ layout.linear(block.along))[:, 0]
    where, more, _, _ = question.of_decisions(block, eta, surface, shares[block.owner])
    scores[:, where] += mean_over(shares, more)
    changes = np.zeros((len(shares), 2 * block.rest.shape[1]))
    for k, (column, kind) in enumerate(product(block.rest.T, range(2))):
        slope = block.by_person(column[:, None] * surface.slopes[:, :, kind])
        bend = block.by_person(column[:, None] ** 2 * surface.bends[:, :, kind, kind])
        changes[:, k] = 0.5 * (shares * (slope**2 + bend)).sum(axis=1)
    return changes, scores


@dataclass(frozen=True, eq=False)
class PopulationSpread:
    """What was found of τ.

    Attributes:
        shared: the maximum where all have one reward.
        maximum: that of the answer, which may be the same.
        spread: τ of the answer.
        estimated, interval, p_shared, given: as in `Deviations`.
        complete: whether the climbs at all spreads that were tried ended.
    """

    shared: Maximum
    maximum: Maximum
    spread: float
    estimated: float
    interval: tuple[float, float]
    p_shared: float
    given: bool
    complete: bool

    def described(self, discounts: Floats, standard_errors: Floats) -> Deviations:
        """Describe it in words that a reader can use; under τ = 0 people have these discounts, with these standard errors."""
        layout = self.maximum.marginal.layout
        sizes, reward = layout.problem.reward_sizes, layout.unpack(self.maximum.psi).theta
        span = float(np.ptp(reward * sizes)) if reward.size > 1 else float(np.abs(reward * sizes).max(initial=0.0))
        values = errors = np.zeros((layout.persons, reward.size))
        if self.spread:
            values, errors = deviations_of_persons(self.maximum)
        spreads = np.array([self.estimated, *self.interval])
        return Deviations(
            spread=self.spread,
            estimated=self.estimated,
            interval=np.array(self.interval),
            p_shared=self.p_shared,
            share_of_range=spreads / span if span else np.full(3, np.nan),
            choices_moved=np.minimum(np.where(np.isfinite(spreads), spreads, np.nan) * choices_moved(self.maximum), 100.0),
            values=values,
            errors=errors,
            if_shared={
                "discounts": discounts,
                "standard_errors": standard_errors,
                "log_likelihood": float(self.shared.value.persons.sum()),
            },
            given=self.given,
        )

    def words(self) -> list[str]:
        """Return what is to be said of it."""
        if self.given:
            return [
                f"Each person's reward deviates from the common one with a standard deviation of "
                f"{significant(self.spread)}, as given."
            ]
        p = f"= {significant(self.p_shared, 2)}" if self.p_shared < 0.5 else "≥ 0.5"
        lines = [f"One reward for all is not rejected (p {p})."] if self.complete else []
        if self.spread:
            low, high = self.interval
            lines = [
                f"Goals are only nearly shared: one reward for all is rejected (p = "
                f"{significant(self.p_shared, 2)}), and each person's "
                f"deviates from the common one with a standard deviation of {significant(self.spread)} (95% CI"
                f" {significant(low)} to "
                f"{significant(high)})."
            ]
        if not self.complete:
            lines.append("Climbs at some sizes of deviations did not end: the test of one reward for all is not reliable.")
        return lines


def restricted(maximum: Maximum) -> float:
    """Return C: the objective less half the logarithm of the determinant of the information about θ, with a wide prior."""
    layout = maximum.marginal.layout
    theta = layout.reward
    effects = slice(layout.reward.stop, layout.spread.start)
    information = maximum.value.information
    across = information[effects, theta]
    left = information[theta, theta] - across.T @ np.linalg.lstsq(information[effects, effects], across)[0]
    wide = (layout.problem.reward_sizes / (20 * typical_temperature(maximum))) ** 2
    return maximum.value.objective - 0.5 * float(np.linalg.slogdet((left + left.T) / 2 + np.diag(wide[layout.free]))[1])


def typical_temperature(maximum: Maximum) -> float:
    """Return the geometric mean of temperatures."""
    layout = maximum.marginal.layout
    return float(np.exp((layout.design @ layout.unpack(maximum.psi).effects)[:, 1].mean()))


class _SpreadProfile:
    """Maxima with different spreads, each begun at the nearest one that is done."""

    def __init__(self, shared: Maximum) -> None:
        self.layout = shared.marginal.layout
        self.start = self.climbed(self.layout, shared)
        self.reference, self.complete = restricted(self.start), self.start.finished
        self.ends: dict[float, Maximum] = {}
        self.gains: dict[float, float] = {}

    @staticmethod
    def climbed(layout: PsiLayout, begin: Maximum) -> Maximum:
        """Climb with few nodes, to a five-hundredth of a standard error."""
        return climb(layout, begin.psi, begin.persons, 7, Run(), 2e-3)

    def gain(self, spread: float) -> float:
        """Return `C(τ) − C(0)`; minus infinity where the climb did not end."""
        if spread not in self.gains:
            near = min(self.ends, key=lambda done: abs(np.log(done / spread)), default=None)
            begin = self.start if near is None else self.ends[near]
            maximum = self.climbed(self.layout.deviating(spread), begin)
            if maximum.finished:
                self.ends[spread] = maximum
            else:
                self.complete = False
            self.gains[spread] = restricted(maximum) - self.reference if maximum.finished else -np.inf
        return self.gains[spread]


def nearly_shared(
    shared: Maximum,
    wanted: float | Literal["estimated"],
    nodes: int | None,
    tol: float,
    max_iter: int,
    run: Run,
) -> PopulationSpread:
    """Return the maximum with deviations of a wanted spread, or of the most likely one where the decisions reject 0 at the 5%
    level."""
    layout = shared.marginal.layout
    if wanted != "estimated":
        near = climb(layout.deviating(wanted), shared.psi, shared.persons, 7, run.part(0.0, 0.5), 0.1, max_iter)
        maximum = finish(near.marginal.layout, near.psi, near.persons, nodes, run.part(0.5, 1.0), tol, max_iter)
        return PopulationSpread(shared, maximum, wanted, wanted, (wanted, wanted), np.nan, True, True)
    search = _SpreadProfile(shared)
    unit = typical_temperature(shared)
    low, high = LEAST * unit, MOST * unit
    best = highest(search.gain, low, high, [0.3 * unit, 0.1 * unit, unit])
    run.progress(0.5, f"deviations of {significant(best)}")
    gained = search.gains[best]
    if not np.isfinite(gained):
        return PopulationSpread(shared, shared, 0.0, np.nan, (np.nan, np.nan), np.nan, False, False)
    target = 0.5 * float(chi2_ppf(0.95, 1))
    top = max(gained, 0.0)
    lower = 0.0 if top <= target else crossing(search.gain, best, low, top - target)
    interval = lower, crossing(search.gain, best, high, top - target)
    run.progress(0.8, f"deviations of {significant(best)}")
    p = 0.5 * float(chi2_sf(2 * gained, 1)) if gained > 0 else 1.0
    if p > 0.05:
        return PopulationSpread(shared, shared, 0.0, best if gained > 0 else 0.0, interval, p, False, search.complete)
    near = search.ends[best]
    maximum = finish(near.marginal.layout, near.psi, near.persons, nodes, run.part(0.8, 1.0), tol, max_iter)
    return PopulationSpread(shared, maximum, best, best, interval, p, False, search.complete)


def deviations_of_persons(maximum: Maximum) -> tuple[Floats, Floats]:
    """Return mean and standard deviation `(n,d)` of each person's deviation, given the decisions."""
    means, errors = [], []
    for shares, near in node_shares(maximum):
        rewards = near.own_reward
        assert rewards is not None
        mean = (shares[:, :, None] * rewards.mode).sum(axis=1)
        squares = np.diagonal(rewards.covariance, axis1=2, axis2=3) + rewards.mode**2
        means.append(mean)
        errors.append(np.sqrt((shares[:, :, None] * squares).sum(axis=1) - mean**2))
    return np.concatenate(means), np.concatenate(errors)


def choices_moved(maximum: Maximum) -> float:
    """Return how many choices in a hundred deviations with τ = 1 move, to first order, where people are at their means."""
    layout = maximum.marginal.layout
    tables = layout.tables.at(layout.unpack(maximum.psi).theta)
    eta = maximum.persons.mean[:, None]
    if not tables.prepare(tables.patches.of(eta)):
        return np.nan
    visited = states_visited(tables, layout.counts)
    n, s, a = visited.shape
    log, slopes = tables.lines(visited.reshape(n, -1), eta, tables.surface(layout.counts, eta))
    made = np.take_along_axis(np.pad(layout.counts.toarray(), ((0, 0), (0, 1))), visited.reshape(n, -1), axis=1).reshape(n, s, a)
    moved = np.sqrt(((slopes / layout.problem.reward_sizes) ** 2).sum(axis=3)).reshape(n, s, a)
    chances = np.exp(log.reshape(n, s, a)) * made.sum(axis=2, keepdims=True)
    return 100 * 0.5 * float(np.sqrt(2 / np.pi) * (chances * moved).sum() / made.sum())


def population_state_reward(maximum: Maximum) -> StateRewardTest | None:
    """Return the test at the maximum; None where the reward was given or is made of features by state and action."""
    layout = maximum.marginal.layout
    arrivals = [task.pooled.arrival_features for task in layout.problem.tasks]
    paid = [each for each in arrivals if each is not None]
    if layout.known is not None or len(paid) < len(arrivals):
        return None
    if not maximum.finished:
        return StateRewardTest.untested("the fit did not end")
    if any(task.mdp.durations is not None for task in layout.problem.tasks):
        return StateRewardTest.untested("moves take time, and what an action costs may depend on how long it takes")
    mdps = [task.mdp for task in layout.problem.tasks]
    rivals = [(rival, rival.beyond(mdps, paid)) for rival in wider_rewards(mdps, paid)]
    if not rivals:
        return StateRewardTest.untested("there is one action alone")
    tests = [(rival, _tested(maximum, more)) for rival, more in rivals]
    return StateRewardTest.of([(rival, test) for rival, test in tests if test is not None])


def _tested(maximum: Maximum, more: list[Floats]) -> ScoreTest | None:
    """Return the score test of a reward with more columns `(A·S,q)` in each task; None where there are none, or soft values are
    infinite."""
    layout = maximum.marginal.layout
    d = layout.n_reward
    q = more[0].shape[1]
    if not q:
        return None
    ridge = np.concatenate([layout.ridge, np.zeros(q)])
    psi = np.insert(maximum.psi, d, np.zeros(q))
    widened = _widened(layout.problem, more)
    shared = layout.owner, layout.random, layout.largest, layout.jobs, layout.choosing
    wide = PsiLayout(widened, layout.design, None, ridge, *shared)
    wide.tables.patches = layout.tables.patches
    value = Marginal(wide, maximum.persons, maximum.marginal.count).at(psi)
    if value is None:
        return None
    new = (np.arange(psi.size) >= d) & (np.arange(psi.size) < d + q)
    free = ~new & (np.arange(psi.size) < wide.spread.start)
    information = _information(maximum, wide, psi, more)
    priors = np.zeros((psi.size, psi.size))
    priors[wide.reward, wide.reward] = np.diag(ridge)
    test = score_test(value.gradient, information, priors, free, new)
    if test.degrees and test.p_value <= 1 - LEVEL and layout.estimated:
        return test.calibrated(_gradients(maximum, wide, more, psi, information))
    return test


def _information(maximum: Maximum, wide: PsiLayout, psi: Floats, more: list[Floats]) -> Floats:
    """Return the information of the decisions in ψ, of at most 300 people, scaled up where they are more."""
    layout = maximum.marginal.layout
    parts = wide.unpack(psi)
    who = np.unique(np.linspace(0, layout.persons - 1, min(300, layout.persons)).astype(np.int64))
    cells = layout.cells_of(who)
    problem = _of_cells(layout.problem, cells)
    number = np.array([int(name) for name in problem.names])
    random, rest, owner = layout.random[number], layout.rest[number], layout.owner[number]
    v = maximum.value.mean[owner].reshape(number.size, -1, 2)
    eta = np.einsum("kq,kqi->ki", random, v) + rest @ parts.effects
    gamma = layout.largest * expit(eta[:, 0])
    lam = np.exp(eta[:, 1])
    slope = gamma * (1 - gamma / layout.largest)
    d, k = layout.n_reward, wide.spread.start
    tasks = {id(task.mdp): columns for task, columns in zip(layout.problem.tasks, more, strict=True)}
    total = np.zeros((psi.size, psi.size))
    of_person = dict[int, Floats]()
    for batch in persons_by_task(problem, True, {}):
        plan = batch.plan(parts.theta[:d], gamma, lam, None)
        if plan is None:
            continue
        rows = batch.visited_rows
        scores = plan.score_rows()
        more_scores = plan.along_columns(tasks[id(batch.mdp)])
        weights = (batch.visits * plan.policy).reshape(-1, plan.lam.size)[rows]
        for i, cell in enumerate(batch.owners.tolist()):
            by_parameter = np.zeros((rows.size, k + layout.deep))
            by_parameter[:, batch.features.used] = scores[:, i, :-2]
            by_parameter[:, d : wide.discount.start] = more_scores[:, i]
            near = scores[:, i, [-2]] * slope[cell]
            far = scores[:, i, [-1]]
            design = layout.design[number[cell]]
            by_parameter[:, wide.discount] = near * design
            by_parameter[:, wide.temperature] = far * (design @ layout.temperature_basis)
            by_parameter[:, k::2], by_parameter[:, k + 1 :: 2] = near * random[cell], far * random[cell]
            block = (by_parameter * weights[:, [i]]).T @ by_parameter
            person = int(owner[cell])
            of_person[person] = of_person.get(person, 0.0) + block
    precision = np.linalg.inv(parts.covariance)
    for block in of_person.values():
        total[:k, :k] += block[:k, :k] - block[:k, k:] @ np.linalg.solve(block[k:, k:] + precision, block[k:, :k])
    return total * layout.persons / who.size


def _of_cells(problem: Problem, cells: Ints) -> Problem:
    """Return some cells as experts, whose names are their numbers."""
    tasks = (replace(task, counts=task.counts[cells]) for task in problem.tasks)
    return Problem.of_tasks(tuple(map(str, cells.tolist())), problem.parameter_names, tasks)


def _widened(problem: Problem, more: list[Floats]) -> Problem:
    """Return the same people with the wider reward."""
    tasks = []
    for task, columns in zip(problem.tasks, more, strict=True):
        matrix = sp.csr_array(sp.hstack([task.pooled.feature_matrix, columns]))
        tasks.append(replace(task, features=matrix, arrival=None))
    names = (*problem.parameter_names, *(f"wider reward {number}" for number in range(1, more[0].shape[1] + 1)))
    return Problem.of_tasks(problem.names, names, tasks, problem.cells.owner, problem.conditions)


def _gradients(maximum: Maximum, wide: PsiLayout, more: list[Floats], psi: Floats, information: Floats) -> Floats:
    """Return gradients `(m,p)` of simulated decisions, with transitions drawn anew."""
    rng = np.random.default_rng(0)
    moves = []
    here = Marginal(wide, maximum.persons, 5).at(psi)
    for _ in range(12):
        drawn = _widened(maximum.marginal.layout.problem.in_tasks(partial(redrawn, rng=rng)), more)
        again = copy.copy(wide)
        again.tables = wide.tables_of(drawn, wide.tables.theta)
        again.tables.patches = wide.tables.patches
        there = Marginal(again, maximum.persons, 5).at(psi)
        if here is not None and there is not None:
            moves.append(there.gradient - here.gradient)
    values, vectors = np.linalg.eigh(positive_part(information + np.mean([np.outer(move, move) for move in moves], axis=0)))
    gradients: Floats = (rng.normal(size=(DRAWS, values.size)) * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return gradients
