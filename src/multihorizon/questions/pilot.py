"""What a pilot says about the persons of a study to come: what they may be like, and which parameters each of them has.

*Kinds of persons.* After `MaximumLikelihood` each person of the pilot is a kind, and a study of P persons has P/K of each. After
`Population` the kinds are the nodes of a Gauss–Hermite rule around what the formula predicts for each pattern of covariates.

*Parameters.* z has the targets first. After `MaximumLikelihood` these are the K discounts. Then come rewards, temperatures,
deviations from the shared reward, and all that further persons of each kind have of their own. After `Population` the target is
an effect on logit γ. Then come rewards, the other effects, and each kind's own logit γ and log λ. M₀ is what is known beforehand.

*Draws.* A fit leaves parameters open. Draws around it are normal in rewards, logit γ and log λ (or in the effects), with the
covariance of the fit and a weak prior: rewards of the size of those found, logits within about 1, log-temperatures within about a
half. They come in pairs of opposite sign along the principal directions of the covariance, each turned so that the cubes of its
entries have a positive sum. So they do not depend on how experts and states are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit

from multihorizon.checks import Floats, Ints, as_count, first_few
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import with_known_reward
from multihorizon.choice.tabular import Point
from multihorizon.estimate import Draws, NoUncertaintyError
from multihorizon.likelihood.estimates import paired_normal, principal_root
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.likelihood.maximum_likelihood import joint
from multihorizon.mdp import MDP
from multihorizon.numerics.distributions import normal_nodes
from multihorizon.numerics.spectrum import spectrum
from multihorizon.population.covariates import Covariates, least_persons
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.population.solver import Population
from multihorizon.problem import Problem
from multihorizon.questions.study import MOST_TIMES
from multihorizon.solution import Solution, Status
from multihorizon.words import in_words


@dataclass(frozen=True, eq=False)
class Parameters:
    """One draw of what persons may be like: rewards `(n,d)`, discounts and temperatures `(n,)` of the n kinds of persons."""

    rewards: Floats
    discounts: Floats
    temperatures: Floats


@dataclass(frozen=True, eq=False)
class Layout:
    """Which of the parameters z each person has.

    Attributes:
        kind: of each person or group of persons `(E,)`.
        weight: how many persons of the study it stands for `(E,)`.
        maps: how z moves the person's rewards, discount and log-temperature `(E,q,z)`.
        prior: M₀ `(z,z)`.
        targets: how many targets stand first in z.
    """

    kind: Ints
    weight: Floats
    maps: Floats
    prior: Floats
    targets: int


@dataclass(frozen=True, eq=False)
class Pilot:
    """Who will take part, and what is known of them.

    Attributes:
        problem: one expert for each kind of person, in the tasks of the pilot.
        known_reward: the known part of the reward, as solvers take it.
        draws: of the parameters, the pilot's own answer first.
        layout: which parameters are whose, at a draw.
        targets: what is to be told, by name.
        told_of: for each target the first kind of person whose discount it is.
        of_population: whether the target is an effect on the logit of the discount, and not discounts.
        persons: how many take part.
        decisions: how many one person of the pilot made on average.
        tasks: of the pilot.
        remarks: what was assumed.
        fitted: where further episodes are asked for, the covariance of the discounts as they are known now.
        differing: for a population, the pilot's answer with another effect of the target, that of the difference to be seen.
        degrees: for a population, the degrees of freedom of the test of that effect.
    """

    problem: Problem
    known_reward: Any
    draws: list[Parameters]
    layout: Callable[[Parameters], Layout]
    targets: tuple[str, ...]
    told_of: Ints
    of_population: bool
    persons: int
    decisions: float
    tasks: list[MDP]
    remarks: list[str] = field(default_factory=list)
    fitted: Floats | None = None
    differing: Parameters | None = None
    degrees: int = 0


def read_pilot(
    guesses: Sequence[Solution],
    persons: int | None,
    term: str | None,
    further: bool,
    draws: int,
    seed: int = 0,
    difference: float | None = None,
) -> Pilot:
    """What one solution, or several equally likely ones, say; `further` takes the decisions of the fit into account.

    Raises:
        ValueError: for a solution that a study cannot be planned with.
    """
    if not guesses or not all(isinstance(one, Solution) for one in guesses):
        raise ValueError("the guess must be a solution, or several of them, received something else")
    first = guesses[0]
    if len({(one.solver, one.experts) for one in guesses}) > 1:
        raise ValueError("several guesses must be of one solver and the same experts, received others")
    if first.problem is None or not first.problem.mdps:
        raise ValueError("the guess must come with its problem and a list of states, received one without")
    for one in guesses:
        if one.status in (Status.NOT_CONVERGED, Status.INFEASIBLE) or not np.isfinite(one.reward).all():
            raise ValueError(f"the guess must have an answer to plan a study with, received one that is {one.status}")
    if persons is not None:
        as_count(persons, "persons")
        if persons > MOST_TIMES:
            raise ValueError(f"persons must be at most {MOST_TIMES:,}, received {persons:,}")
    if first.estimate.population is None:
        if term is not None:
            raise ValueError(f"a term needs a guess of Population, received one of {first.solver}")
        return _individuals(guesses, persons, further, draws, seed)
    if further:
        raise ValueError(
            "a width needs a guess of MaximumLikelihood, whose persons have intervals of their own, received a Population: "
            "say how many persons and decisions there may be instead"
        )
    return _population(guesses, persons, term, draws, seed, difference)


# Persons one by one.


@dataclass(frozen=True, eq=False)
class Tied:
    """How parameters of K persons are tied.

    Attributes:
        discount_of, temperature_of: which discount and temperature are whose `(K,)`; −1 where they are known.
        n_discounts, n_temperatures: how many are estimated.
        spread: of the log-temperatures; infinite where they have nothing in common.
        mean_is_held: whether their mean is held, because nothing else sets the scale of the reward.
        ridge: the penalty on rewards `(d,)`.
        deviations: the precision `(d,)` of personal deviations from the reward; empty where all share it.
    """

    discount_of: Ints
    temperature_of: Ints
    n_discounts: int
    n_temperatures: int
    spread: float
    mean_is_held: bool
    ridge: Floats
    deviations: Floats


def _individuals(guesses: Sequence[Solution], persons: int | None, further: bool, draws: int, seed: int) -> Pilot:
    """Persons with the discounts, rewards and temperatures of the guess; each discount is a target."""
    first = guesses[0]
    problem = first.require_problem()
    k = problem.n_experts
    if k > 200:
        raise ValueError(f"a guess with a discount for each must have at most 200 persons, received {k}: fit a Population")
    for one in guesses:
        open_ = [name for name, gamma in zip(one.experts, one.discounts, strict=True) if not np.isfinite(gamma)]
        if open_ or one.temperature is None:
            what = f"no discount for {first_few(open_)}" if open_ else "one without temperatures"
            raise ValueError(f"the guess must have a discount and a temperature for each person, received {what}")
    number = k if persons is None else persons
    if number < k or (further and number != k):
        raise ValueError(
            f"persons must be {'the' if further else 'at least the'} {k} of the guess, received {number}: "
            'fit a Population (--formula "~ 1") to plan for other numbers of persons'
        )
    known = first.options.get("known_reward")
    paid, reward = with_known_reward(problem, known)
    d = 0 if reward is not None else paid.n_parameters
    drawn = [Parameters(one.personal_rewards, one.discounts, np.asarray(one.temperature)) for one in guesses]
    remarks, fitted = [], None
    if first.estimate.has_likelihood:
        fitted_together = joint(first)
        point = fitted_together.point
        if point.likelihood.is_large:
            raise ValueError(
                f"a study can be designed for at most 700 rewards, received {point.likelihood.n_reward:,}: "
                "tie the rewards of similar states together with features"
            )
        tied = _tied(first, point, d)
        layout = _layout_of_individuals(tied, number / k - 1)
        if draws > 1 and len(guesses) == 1:
            drawn += _drawn(fitted_together.guesses(draws - 1, seed), first)
        if further:
            layout, fitted = _with_decisions(layout, point, tied)
        if first.options.get("temperature") == "pooled" and np.isfinite(tied.spread):
            remarks.append(
                "The fit will also test whether temperatures differ; the expected errors do not include what this adds."
            )
    else:
        if further:
            raise ValueError(f"a width needs a guess of MaximumLikelihood, which has intervals, received one of {first.solver}")
        if draws > 1 and len(guesses) == 1:
            try:
                drawn += _drawn(first.estimate.draw(draws - 1, np.random.default_rng(seed)), first)
            except NoUncertaintyError as error:
                remarks.append(f"The guess is taken as it is: {error}.")
        own, nothing = np.arange(k), np.full(k, -1)
        tied = Tied(own, nothing, k, 0, np.inf, False, np.zeros(d), np.zeros(0))
        layout = _layout_of_individuals(tied, number / k - 1)
    counted = [expert.counts for expert in problem.experts if expert.counts is not None]
    members = [[n for n, g in zip(problem.names, tied.discount_of, strict=True) if g == i] for i in range(tied.n_discounts)]
    return Pilot(
        problem=problem,
        known_reward=known,
        draws=drawn,
        layout=lambda _: layout,
        targets=tuple(map(in_words, members)),
        told_of=np.array([tied.discount_of.tolist().index(i) for i in range(tied.n_discounts)]),
        of_population=False,
        persons=number,
        decisions=sum(float(counts.sum()) for counts in counted) / k,
        tasks=list(problem.mdps),
        remarks=remarks,
        fitted=fitted,
    )


def _drawn(draws: Draws, solution: Solution) -> list[Parameters]:
    """Return each draw with the deviations from the shared reward as they were found."""
    deviations = solution.personal_rewards - solution.reward
    shared = replace(draws, deviations=None)
    return [
        Parameters(shared.rewards_in(i) + deviations, gamma, lam)
        for i, (gamma, lam) in enumerate(zip(draws.discounts.T, draws.temperatures.T, strict=True))
    ]


def _tied(solution: Solution, point: Point, d: int) -> Tied:
    """How `MaximumLikelihood` ties parameters together."""
    model, numbers = point.likelihood, []
    for groups, at in ((model.groups, model.discount_slice), (model.temperature_groups, model.temperature_slice)):
        free = dict.fromkeys(g for g in groups.tolist() if not model.fixed[at.start + g])
        place = {g: i for i, g in enumerate(free)}
        numbers.append(np.array([place.get(g, -1) for g in groups.tolist()]))
    sizes = [int(own.max(initial=-1)) + 1 for own in numbers]
    if not sizes[0]:
        raise ValueError("the guess must have discounts that were estimated, received known ones only")
    evidence = LikelihoodEvidence.of(solution)
    deviations = model.precision if isinstance(model, NearlyShared) else np.zeros(0)
    spread = evidence.temperature_spread or np.inf
    # A penalty that the pilot needed because it had few decisions is not one of the study to come.
    ridge = np.full(d, float(solution.options.get("ridge") or 0.0))
    return Tied(numbers[0], numbers[1], sizes[0], sizes[1], spread, model.scale_is_free, ridge, deviations)


def _layout_of_individuals(tied: Tied, more: float) -> Layout:
    """The layout of one person of each kind, and of `more` further ones of each, who have parameters of their own."""
    k, d, own, t, n = tied.discount_of.size, tied.ridge.size, tied.deviations.size, tied.n_discounts, tied.n_temperatures
    temperatures, size = t + d, t + d + n
    apart = n == k and k > 1  # each has a temperature
    prior = {(t + i, t + i): float(weight) for i, weight in enumerate(tied.ridge)}
    if np.isfinite(tied.spread) or tied.mean_is_held:
        block = (np.eye(n) - 1 / max(n, 1)) / tied.spread**2 + (1e6 / n if tied.mean_is_held else 0.0)
        prior |= {(temperatures + i, temperatures + j): float(block[i, j]) for i in range(n) for j in range(n)}
    kind, weight, entries = [], [], []
    for like in (False, True) if more > 0 else (False,):
        for person in range(k):
            stands = more if like else 1.0
            columns = [(i, t + i) for i in range(d)]
            columns += [(i, size + i) for i in range(own)]
            prior |= {(size + i, size + i): stands * float(p) for i, p in enumerate(tied.deviations)}
            size += own
            if tied.discount_of[person] >= 0:
                columns.append((d, size if like else int(tied.discount_of[person])))
                size += like
            if tied.temperature_of[person] >= 0:
                new = like and apart
                columns.append((d + 1, size if new else temperatures + int(tied.temperature_of[person])))
                prior |= {(size, size): stands / min(tied.spread, 10.0) ** 2} if new else {}
                size += new
            kind.append(person)
            weight.append(stands)
            entries.append(columns)
    maps, matrix = np.zeros((len(kind), d + 2, size)), np.zeros((size, size))
    for e, columns in enumerate(entries):
        for row, column in columns:
            maps[e, row, column] = 1.0
    for place, value in prior.items():
        matrix[place] = value
    return Layout(np.array(kind), np.array(weight), maps, matrix, t)


def _with_decisions(layout: Layout, point: Point, tied: Tied) -> tuple[Layout, Floats]:
    """The layout with the information of the fitted decisions in M₀, and the covariance of the discounts after the fit."""
    model, free = point.likelihood, np.flatnonzero(~point.likelihood.fixed)
    ahead = [model.discount_slice.start + int(model.groups[tied.discount_of.tolist().index(g)]) for g in range(tied.n_discounts)]
    random = [
        model.temperature_slice.start + int(model.temperature_groups[tied.temperature_of.tolist().index(g)])
        for g in range(tied.n_temperatures)
    ]
    order = np.array([*ahead, *free[free < model.n_reward], *random], dtype=np.int64)
    curvature, rest = point.curvature(ridge=False), np.setdiff1d(free, order)
    block = curvature[np.ix_(order, order)]
    rewards = np.arange(layout.targets, layout.targets + tied.ridge.size)
    block[rewards, rewards] += tied.ridge
    if rest.size:  # estimated transitions gave way
        cross = curvature[np.ix_(order, rest)]
        block = block - cross @ spectrum(curvature[np.ix_(rest, rest)]).inverse @ cross.T
    prior = layout.prior.copy()  # what stands after the common parameters are deviations
    prior[: order.size, : order.size] = block
    return replace(layout, prior=prior), spectrum(block).inverse[: layout.targets, : layout.targets]


# Persons of a population.


def _population(
    guesses: Sequence[Solution], persons: int | None, term: str | None, draws: int, seed: int, difference: float | None
) -> Pilot:
    """Nodes of a quadrature for each pattern of covariates; the effect of a term is the target."""
    first, used = guesses[0], guesses[0].solver_used()
    problem, found = first.require_problem(), [PopulationEvidence.of(one).population for one in guesses]
    assert isinstance(used, Population)
    if used.distribution != "normal":
        raise ValueError("a study can be designed for a normal population, received one with types or a free distribution")
    if found[0].conditions:  # a saved fit does not hold under which of them each decision was made
        raise ValueError(
            f"a study can be designed for covariates of persons, received the conditions {first_few(found[0].conditions)}: "
            "fit the pilot without them"
        )
    covariates = used.covariates(problem)
    wanted, terms = _wanted(covariates, term), covariates.terms
    effects = [one.effects for one in found]
    if len(found) == 1 and draws > 1:
        roots = [principal_root(covariance) for covariance in found[0].effect_covariances]
        for z in paired_normal(draws - 1, 2 * len(terms), seed):
            effects.append(effects[0] + np.column_stack([root @ part for root, part in zip(roots, np.split(z, 2), strict=True)]))
    rows, shares = _patterns(covariates, effects[0])
    # Many patterns need few nodes each.
    nodes, weights = normal_nodes(*((5, 3) if len(rows) <= 8 else (3, 1)))
    number = len(covariates.names) if persons is None else persons
    if number < least_persons(len(terms)):
        raise ValueError(
            f"persons must be at least {least_persons(len(terms))}, as the formula has {len(terms)} terms, received {number}"
        )
    weight = number * np.outer(shares, weights).ravel()
    spread = found[0].between[:2, :2] + 1e-4 * np.eye(2)
    matrix, noise = np.repeat(rows, len(nodes), axis=0), np.tile(nodes @ np.linalg.cholesky(spread).T, (len(rows), 1))
    every = [task.pooled for task in problem.tasks]
    paid = problem.with_experts(every)
    reward = with_known_reward(paid, used.known_reward)[1]
    d, largest = 0 if reward is not None else paid.n_parameters, found[0].largest_discount

    def persons_with(effect: Floats) -> Parameters:
        eta = matrix @ effect + noise
        rewards = np.broadcast_to(first.reward, (len(eta), first.reward.size))
        return Parameters(rewards, largest * expit(eta[:, 0]), np.exp(np.clip(eta[:, 1], -5.0, 5.0)))

    other = effects[0].copy()
    other[terms.index(wanted), 0] = difference or 0.0
    return Pilot(
        problem=paid.with_experts([replace(expert, name=f"kind {i}") for expert in every for i in range(len(matrix))]),
        known_reward=used.known_reward,
        draws=[persons_with(effect) for effect in effects],
        layout=partial(_layout_of_population, matrix, weight, np.linalg.inv(spread), terms.index(wanted), d, largest),
        targets=(wanted,),
        told_of=np.zeros(1, dtype=np.int64),
        of_population=True,
        persons=number,
        decisions=sum(float(task.counts.sum()) for task in problem.tasks) / problem.n_experts,
        tasks=[expert.mdp for expert in every],
        remarks=["Draws leave the pilot's rewards as they are."] if d and len(effects) > 1 else [],
        differing=None if difference is None else persons_with(other),
        degrees=number - len(terms),
    )


def _wanted(covariates: Covariates, term: str | None) -> str:
    """The term that is the target."""
    others = [name for name in covariates.terms if name != "Intercept"]
    if term is None and len(others) > 1:
        raise ValueError(f"term must say which effect the study is for, one of {', '.join(others)}; received none")
    if term is not None and term not in covariates.terms:
        raise ValueError(f"term must be one of {', '.join(covariates.terms)}, received {term}")
    return term or (others[0] if others else "Intercept")


def _patterns(covariates: Covariates, effects: Floats) -> tuple[Floats, Floats]:
    """Distinct rows of X and the shares of persons who have them; of very many, 60 evenly spread over what they predict."""
    rows, times = np.unique(covariates.matrix, axis=0, return_counts=True)
    if len(rows) > 60:
        parts = np.array_split(np.argsort(rows @ effects[:, 0], kind="stable"), 60)
        rows, times = rows[[part[part.size // 2] for part in parts]], np.array([times[part].sum() for part in parts])
    return rows, times / times.sum()


def _layout_of_population(
    matrix: Floats, weight: Floats, precision: Any, place: int, d: int, largest: float, at: Parameters
) -> Layout:
    """The effect first; then rewards, the other effects on logit γ, those on log λ, and two numbers of each kind's own."""
    n, p = matrix.shape
    others = [i for i in range(p) if i != place]
    size = d + 2 * p + 2 * n
    maps, prior = np.zeros((n, d + 2, size)), np.zeros((size, size))
    slope = at.discounts * (1 - at.discounts / largest)  # of γ in its logit
    maps[:, np.arange(d), 1 + np.arange(d)] = 1.0
    maps[:, d, 0] = slope * matrix[:, place]
    maps[:, d, 1 + d : d + p] = slope[:, None] * matrix[:, others]
    maps[:, d + 1, d + p : d + 2 * p] = matrix
    for e in range(n):
        own = d + 2 * p + 2 * e
        maps[e, d, own], maps[e, d + 1, own + 1] = slope[e], 1.0
        prior[own : own + 2, own : own + 2] = weight[e] * precision
    return Layout(np.arange(n), weight, maps, prior, 1)
