"""Maximum likelihood: reward, discounts and temperatures from logged decisions, with standard errors.

Maximises the undiscounted choice likelihood `Σ_k Σ N_k(s,a) log π_{θ,γ_k,λ_k}(a|s)` of `choice.model` over θ, 0 ≤ γ ≤ 1 and the
temperatures that are free. The maximum is looked for in `likelihood.search`; how far temperatures, and rewards, vary between
experts is estimated in `likelihood.random_effects`.

*Deviations.* Goals may be shared only nearly. Then each expert's reward is the common one and a personal deviation
(`choice.deviations`), whose spread is estimated and tested (`likelihood.random_effects`). Where one reward for all is rejected at
the 5% level, deviations are part of the answer: its likelihood, standard errors and intervals allow for them. Temperatures that
are pooled are judged anew then, because deviations look like unequal temperatures to a model without them.

*Clusters.* Unless every decision is to be independent of every other, the unit is chosen at the fit with equal temperatures, and
standard errors, intervals and tests take clusters as independent (`likelihood.clusters`). The estimate is the same, but for what
tests decide: whether temperatures are equal.

*Separation.* Where some action is never taken, or all experts look equally far ahead, the likelihood may rise forever as rewards
grow, and has no maximum. Signs of it are a climb that does not end, and a reward or a `log π(a|s)` of a visited state with a very
large standard error. Then, unless a ridge is given, the reward is held by the penalty `½ Σ (θ_j f_j / WEAK_PRIOR)²`, f_j the
largest value of feature j: a normal prior, so wide that it moves rewards which the decisions determine by a small part of their
standard error. The solution announces it.

*The answer.* Convergence is the projected gradient per decision, recomputed at the answer. Where two ends are equally likely with
other discounts, or where the Fisher information is singular in the direction of a discount, the answer is NOT_IDENTIFIED. Where
the climb did not end, it is NOT_CONVERGED, whatever else is found, and there are no intervals.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np

from multihorizon.checks import Bools, Floats, as_count, as_non_negative, first_few
from multihorizon.choice.deviations import NearlyShared, NearPoint
from multihorizon.choice.model import Likelihood, Point, temperature_penalty
from multihorizon.choice.plans import Planner, Plans, value_name
from multihorizon.choice.settings import (
    Choice,
    Habit,
    Settings,
    Temperature,
    check_cluster,
    check_discounts,
    check_temperature,
    read_choosing,
    read_settings,
    with_known_reward,
)
from multihorizon.choice.weighted import require_lookahead
from multihorizon.estimate import Estimate
from multihorizon.horizon import FAMILIES, Exponential, Lookahead
from multihorizon.likelihood.clusters import Independence, independence, independence_figures, independence_words
from multihorizon.likelihood.estimates import (
    ChoicePlanner,
    FamilyParameters,
    HabitFigures,
    JointEstimate,
    LikelihoodEvidence,
    about_planner,
    habits_of,
    numbers_or_none,
)
from multihorizon.likelihood.intervals import Precision, habit_precision, precision, transition_widening
from multihorizon.likelihood.look_ahead import fit_lookahead, lookahead_solution
from multihorizon.likelihood.random_effects import (
    Nearly,
    TemperatureSpread,
    choices_moved,
    degrees_of_freedom,
    estimate_deviations,
    estimate_spread,
    fit_with,
    given_deviations,
    within_reach,
)
from multihorizon.likelihood.search import (
    CONVERGED_GRADIENT,
    WITHIN,
    _closed_form,
    _is_hard,
    about_rivals,
    at_maximum,
    climb,
    compared_with_profile,
    elsewhere,
    maximize,
    polished,
)
from multihorizon.likelihood.separate import (
    ApartEstimate,
    OtherPlaces,
    PersonsApart,
    Reason,
    at_places,
    left_open,
    persons_solution,
)
from multihorizon.numerics.newton import Ascent
from multihorizon.parallel import Progress, Run, free_bytes, limits, require_memory, silent
from multihorizon.planning.plan import Value, other_mean_values
from multihorizon.problem import Problem
from multihorizon.solution import Deviations, Solution, Status
from multihorizon.words import decimals, power_of_ten, significant

#: Standard deviation, in temperatures, of the prior that holds rewards which run away.
WEAK_PRIOR = 20.0


@dataclass(frozen=True)
class MaximumLikelihood:
    """The most likely reward, discount factors and temperatures of demonstrations.

    Maximises `Σ_k Σ N_k(s,a) log π_{θ,γ_k,λ_k}(a|s)` less the penalties below. The solution's `objective` is the log-likelihood,
    its `residual` the largest entry of the projected gradient per decision.

    Args:
        temperature: how random the experts' choices are.
            "pooled": equal ones, unless the decisions reject that at the 5% level. Then each has a temperature, and their
            logarithms vary around a common value with a spread that is estimated.
            "per_expert": each has a temperature of their own, with nothing in common.
            "shared": all have the same; it is 1 unless a known reward sets the scale.
            A number is known and the same for all; a mapping of names to numbers is known for these experts.
            Where nothing sets the scale of the reward, temperatures have a geometric mean of 1.
        discounts: known discounts: one number for all, or a mapping of names to numbers. All others are estimated.
        known_reward: the known part of the reward: `(S,)` paid on arrival, `(S,A)` or `(A·S,)` in rows a·S + s for decisions, or
            a mapping of state names to what they pay on arrival, or of pairs (state, action) to what is paid for the action. The
            problem's features are added to it. In a problem without features the reward is then known, and only discounts and
            temperatures are estimated.
        groups: experts who share one discount, as a mapping of names to labels; all others have their own.
        ridge: weight of the penalty `ridge/2 ‖θ‖²`. None uses none, with two exceptions that the solution's message announces:
            rewards that no logged decision could have earned, and rewards that diverge.
        starts: how many ascents go into the second round. The first round has half as many again, of four times as many
            points. In large tasks half as many ascents are made as `starts` says, from the best of fewer points.
        deviations: how far each expert's reward may be from the common one: the standard deviation of personal deviations, in
            units of reward, of each feature in units in which it is at most 1. 0: one reward for all. "estimated": 0 unless the
            decisions reject that at the 5% level, and then the most likely one. `evidence["deviations"]` says what was found.
        lookahead: the shape in which the future loses weight. With one that is not exponential the task must end after so many
            steps. Then `discounts` are NaN, and each expert's parameters are in `evidence["lookahead"]`. A family of your own
            has the methods of `mh.Lookahead`.
        cluster: what standard errors, intervals and tests take to be independent.
            "decision": every decision of every other.
            "episode": episodes; decisions of one may go together, because of a goal or a habit that the state does not show.
            "expert": experts with all their episodes, where `groups` of them share discounts.
            "auto": episodes if a test finds that choices of one episode go together, else decisions. Experts who are fitted one
            by one, because they are many and share nothing, are not tested.
            `evidence["independence"]` says what was taken. Episodes are those of the `Demonstrations` the problem was made of.
        value: how experts value the future: "soft" `V = λ log Σ exp(Q/λ)`, with entropy; "max" `V = max Q`, the best action;
            "mean" `V = Σ π Q`, the choices they will make. Choices are softmax in all three.
        lapse: the share ε of choices that are any of the available actions alike, `(1 − ε) π + ε/|A|`: a number that is known,
            or "estimated", one for all experts.
        stickiness: how much more the last action is worth, in units of reward, `π ∝ exp((Q + κ [a = last])/λ)`, which nobody
            foresees: a number that is known, or "estimated", one for all experts. It needs the order of the decisions.
            `evidence["planner"]` says what was found, with intervals and tests of none.
        planner: a planner of your own: a function of a task, its expected immediate reward `(S,A)`, a discount and a temperature
            that returns a policy `(S,A)`. The reward and the transitions must be known; each expert has a temperature.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains, solve
        >>> d = domains.big_small()
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=1000))
        >>> solution = solve(problem, MaximumLikelihood(starts=2))
        >>> str(solution.status), bool(abs(solution.discounts - d.soft_discounts).max() < 0.1)
        ('converged', True)
    """

    takes_durations: ClassVar[bool] = True
    temperature: Temperature = "pooled"
    discounts: float | Mapping[str, float] | None = None
    known_reward: Any = None
    groups: Mapping[str, Any] | None = None
    ridge: float | None = None
    starts: int = 4
    deviations: float | Literal["estimated"] = 0.0
    lookahead: Lookahead = field(default_factory=Exponential)
    cluster: Choice = "decision"
    value: Value = "soft"
    lapse: Habit = 0.0
    stickiness: Habit = 0.0
    planner: Planner | None = None

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_discounts(self.discounts)
        check_cluster(self.cluster)
        if self.ridge is not None:
            as_non_negative(self.ridge, "ridge")
        as_count(self.starts, "starts")
        if isinstance(self.deviations, str) and self.deviations != "estimated":
            raise ValueError(f'deviations must be a number that is at least 0, or "estimated", got {self.deviations!r}')
        if self.deviations != "estimated":
            as_non_negative(self.deviations, "deviations")
        if isinstance(self.lookahead, type) or not isinstance(self.lookahead, Lookahead):
            families = ", ".join(f"{type(family).__name__}()" for family in FAMILIES)
            raise ValueError(f"lookahead must be one of {families}, or a Lookahead of your own, got {self.lookahead!r}")
        if self.discounts is not None and type(self.lookahead) is not Exponential:
            raise ValueError(f"known discounts need an exponential look-ahead, got a {self.lookahead.name} one")
        if not self.is_soft and type(self.lookahead) is not Exponential:
            raise ValueError(
                f'a {self.lookahead.name} look-ahead needs value="soft" and neither lapses nor stickiness, got others'
            )
        if not self.is_soft and self.deviations:
            raise ValueError('personal deviations need value="soft" and neither lapses nor stickiness, got others')

    @property
    def is_soft(self) -> bool:
        """Return whether choices are those of soft values alone: without other values, lapses or stickiness."""
        return self.choosing(Settings()).plain

    def choosing(self, settings: Settings) -> Settings:
        """Return the same settings with how the future is valued, and the habits."""
        value, lapse, stickiness = read_choosing(self.value, self.lapse, self.stickiness, self.planner)
        return replace(settings, value=value, lapse=lapse, stickiness=stickiness)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Maximise from several starts; `seed` scatters the discount factors they begin with.

        Many people who share no parameter are fitted one by one.
        """
        alone = self._alone(problem)
        if alone is not None:
            return persons_solution(alone[0], alone[1], alone[1].fit(progress))
        if type(self.lookahead) is not Exponential:
            require_lookahead(problem, self.known_reward)
        if self.deviations:
            self._require_deviations(problem)
        paid, likeliest = self.search(problem, Run(seed, progress=progress))
        if type(self.lookahead) is Exponential:
            return _solution(paid, likeliest)
        base = likeliest.best.point
        return lookahead_solution(paid, fit_lookahead(base, self.lookahead), base, likeliest.ridge_reason)

    def _alone(self, problem: Problem) -> tuple[Problem, PersonsApart] | None:
        """Return the problem with its known reward and its people one by one, if they are many and share no parameter; else
        None.
        """
        temperature = "per_expert" if self.planner is not None and self.temperature == "pooled" else self.temperature
        together = temperature in ("pooled", "shared") or self.groups is not None or bool(self.ridge)
        together = together or bool(self.deviations) or self.cluster in ("episode", "expert")
        together = together or self.lapse == "estimated" or bool(self.stickiness) or type(self.lookahead) is not Exponential
        if self.planner is None and (together or problem.n_experts < limits().joint):
            return None
        paid, reward = with_known_reward(problem, self.known_reward)
        if reward is None or together or any(mdp.is_estimated for mdp in paid.mdps):
            if self.planner is None:
                return None
            raise ValueError(
                "a planner of your own needs a known reward, known transitions, known lapses and experts who share no parameter: "
                "it says policies, and no derivatives"
            )
        return paid, PersonsApart(paid, self.choosing(read_settings(paid, temperature, self.discounts, None, reward)))

    @classmethod
    def estimate_of(cls, solution: Solution) -> Estimate:
        """Return the estimate of a solution that was read from a file, or that has another problem now."""
        solver = solution.solver_used()
        if solution.evidence.lookahead_weights():
            raise ValueError(f"this needs a solution with discounts: {solution.evidence['no_discount']}")
        alone = solver._alone(solution.require_problem())
        if alone is None or solution.temperature is None or solution.standard_errors is None:
            joint_estimate: JointEstimate = solver.estimate_together(solution)
            return joint_estimate
        model = alone[1]
        places = np.stack([solution.discounts, np.log(solution.temperature)], axis=1)
        here = at_places(model.tables, model.counts, places)
        errors = solution.standard_errors
        others = OtherPlaces(np.arange(len(places)), places, here.value)
        parts = model.tables, model.counts, model.lower, model.upper, places, here, errors, np.isfinite(errors), others
        return ApartEstimate(*parts, solution.experts, solution.reward)

    def estimate_together(self, solution: Solution) -> JointEstimate:
        """Return the estimate of all experts at the answer of a solution."""
        evidence = LikelihoodEvidence.of(solution)
        paid, reward = with_known_reward(solution.require_problem(), self.known_reward)
        temperature = "per_expert" if evidence.temperature_spread else self.temperature
        settings = replace(read_settings(paid, temperature, self.discounts, self.groups, reward), moves=True)
        model = Likelihood(paid, self.choosing(settings))
        model = model.holding(temperature_penalty(model, evidence.temperature_spread or np.inf), np.array(evidence.ridge_weights))
        if evidence.deviations is not None and evidence.deviations.spread:
            model = NearlyShared.of(model, evidence.deviations.spread)
        temperatures = np.ones(paid.n_experts) if solution.temperature is None else solution.temperature
        discounts = np.array([solution.discounts[model.groups == g][0] for g in range(model.n_discounts)])
        fitted = {id(counted): mdp for counted, mdp in zip(model.problem.mdps, paid.mdps, strict=True)}
        changes = np.concatenate([np.zeros(0), *(moves.numbers(fitted[id(moves.mdp)]) for moves in model.moves)])
        beside = np.concatenate([habits_of(evidence.planner)[: model.habit_slice.stop - model.habit_slice.start], changes])
        x = model.pack(solution.reward, discounts, model.of_temperature_groups(temperatures), beside)
        if model.at(x) is None:
            raise ValueError("the solution's soft values must be finite, got a problem that does not fit it")
        identified = np.array(evidence.identified, dtype=np.bool_) & (solution.status != Status.NOT_CONVERGED)
        return JointEstimate(model, x, identified, solution.require_problem(), evidence=evidence)

    def search(self, problem: Problem, run: Run) -> tuple[Problem, Fit]:
        """Return the problem with what is known of the reward, and the most likely answer with discount factors."""
        paid, reward = with_known_reward(problem, self.known_reward)
        settings = replace(read_settings(paid, self.temperature, self.discounts, self.groups, reward), moves=True)
        settings = self.choosing(settings)
        first, second = run.parts(1, 1) if self.deviations else (run, run)
        likeliest = fit(paid, settings, self.temperature == "pooled", self.ridge, self.starts, first, self.cluster)
        return paid, with_deviations(likeliest, self.deviations, second) if self.deviations else likeliest

    def _require_deviations(self, problem: Problem) -> None:
        """Raise where personal deviations cannot be had."""
        if type(self.lookahead) is not Exponential:
            raise ValueError(f"personal deviations need an exponential look-ahead, got a {self.lookahead.name} one")
        if problem.n_experts < 2 and self.known_reward is None:
            raise ValueError("personal deviations from a common reward need at least two experts, got one")
        if not problem.n_parameters or (
            self.known_reward is not None and not with_known_reward(problem, self.known_reward)[0].n_parameters
        ):
            raise ValueError("personal deviations need rewards of states or features to deviate in, got a reward of pairs")
        if problem.n_parameters > limits().dense_rewards:
            raise ValueError(
                f"personal deviations need at most {limits().dense_rewards} rewards, got {problem.n_parameters:,}: "
                "tie the rewards of similar states together with features, or set deviations to 0"
            )


@dataclass(frozen=True, eq=False)
class Fit:
    """The best end, the ends of all climbs carried on, the spreads of temperatures and deviations, and why there is a ridge.

    `independence` says what is taken to be independent.
    """

    best: Ascent[Point]
    ends: list[Ascent[Point]]
    spread: TemperatureSpread[Point] | None
    ridge_reason: str
    nearly: Nearly | None = None
    independence: Independence = field(default_factory=Independence)


def fit(
    problem: Problem,
    settings: Settings,
    pooled: bool,
    ridge: float | None,
    starts: int,
    run: Run,
    cluster: Choice = "decision",
) -> Fit:
    """Fit without a penalty where there is a maximum, and with a weak one where rewards run away."""
    if problem.n_parameters > 20_000:
        raise ValueError(
            f"a reward for each of {problem.n_parameters:,} states is more than can be estimated (at most 20,000): "
            "tie the rewards of similar states together with features"
        )
    _require_room(problem)
    first, second = run.parts(1, 1)
    model = Likelihood(problem, settings)
    model = model.holding(temperature_penalty(model), 0.0 if ridge is None else ridge)
    if foreseen := _long_work(model):
        warnings.warn(foreseen, stacklevel=2)
    extra = _closed_form(model)

    def attempt(model: Likelihood, reason: str, run: Run, give_up: bool = False) -> Fit:
        """Return the most likely answer with the penalties of this model, temperatures pooled if asked for."""
        best, ends = maximize(model, starts, run.part(0.0, 0.6), extra, give_up)
        if give_up and not _holds(best):
            return Fit(best, ends, None, reason)
        best, ends = compared_with_profile(best, ends, run.part(0.6, 0.7))
        if ridge is None and not give_up and settings.reward is None:
            weaker = _weakly_held(best)
            if weaker is not best:
                best, ends = compared_with_profile(weaker, [weaker])
        spread = None
        independent = independence(best.point, cluster, run.seed)
        clustered = independent.clusters
        best = replace(best, point=replace(best.point, likelihood=best.point.likelihood.clustered(clustered)))
        if pooled and problem.n_experts > 1 and best.finished:
            each = replace(settings, temperatures=np.full(problem.n_experts, np.nan), temperature_groups=None)
            free = Likelihood(model.problem, each, ridge=best.point.likelihood.ridge)
            spread = estimate_spread(best, free.clustered(clustered))
            best = spread.ascent
        run.progress(1.0, f"log-likelihood {decimals(best.point.value, 2)}")
        return Fit(polished(best), ends, spread, reason, independence=independent)

    if ridge is not None:
        return attempt(model, "", run)
    reason = ""
    if settings.reward is None and never_earned(problem).any():
        reason = "no logged decision could have earned some of the rewards"
        model = model.holding(model.penalty, 1e-4 * (model.feature_sizes / model.known_temperature) ** 2)
    unheld = attempt(model, reason, first, give_up=settings.reward is None)
    if settings.reward is not None or (_holds(unheld.best) and (unheld.spread is None or unheld.spread.complete)):
        return unheld
    deviation = WEAK_PRIOR * model.known_temperature / model.feature_sizes
    held = model.holding(model.penalty, np.maximum(model.ridge, deviation**-2))
    return attempt(held, "the larger some of them are made, the better they fit", second)


def _require_room(problem: Problem) -> None:
    """Raise where the plans of all experts, of each start and on the way, do not fit into memory."""
    tables = 30  # so many tables of actions and states each expert takes, as measured
    largest = max(problem.mdps, key=lambda mdp: mdp.n_actions * mdp.n_states)
    size = 0
    for members in problem.by_task():
        mdp = problem.experts[members[0]].mdp
        size += 8 * tables * len(members) * mdp.n_actions * mdp.n_states
    free = free_bytes()
    most = int(free / (8 * tables * largest.n_actions * largest.n_states)) if np.isfinite(free) else problem.n_experts
    require_memory(
        size,
        f"{problem.n_experts:,} experts who are fitted together in {largest.n_states:,} states with {largest.n_actions} actions",
        f"fit a sample of at most {most:,} of them, merge states that are alike, or let Population share plans between them; "
        'where the reward is known and each has a temperature of their own ("per_expert"), experts are fitted one by one',
    )


def with_deviations(shared_fit: Fit, wanted: float | Literal["estimated"], run: Run) -> Fit:
    """Return the fit with personal deviations of a wanted spread, or of the most likely one where the decisions reject 0."""
    shared = shared_fit.best.point
    others = [end.point for end in shared_fit.ends[1:]]
    if not shared_fit.best.finished:
        return shared_fit
    if wanted == "estimated":
        nearly = estimate_deviations(shared, others, run=run.part(0.0, 0.6))
    else:
        nearly = given_deviations(shared, float(wanted), others)
    if nearly.ascent is None or nearly.p_shared > 0.05:
        return replace(shared_fit, nearly=nearly)
    best = cast(Ascent[Point], nearly.ascent)
    spread = shared_fit.spread
    if spread is not None and spread.value:
        # Are temperatures still unequal beside these deviations?
        free = NearlyShared.of(within_reach(shared).holding(None, shared.likelihood.ridge), nearly.estimated)
        equal = shared_fit.ends[0].point
        alike = fit_with(NearlyShared.of(within_reach(equal), nearly.estimated), equal)
        if alike is not None:
            spread = estimate_spread(cast(Ascent[Point], alike), free)
            best = spread.ascent
        if not spread.value and wanted == "estimated":
            again = estimate_deviations(equal, guess=nearly.estimated, run=run.part(0.6, 1.0))
            if again.ascent is not None:
                best = cast(Ascent[Point], again.ascent)
                nearly = replace(again, shared=shared, p_shared=nearly.p_shared)
    run.progress(1.0, f"log-likelihood {decimals(best.point.value, 2)}")
    return Fit(polished(climb(best.point)), shared_fit.ends, spread, shared_fit.ridge_reason, nearly, shared_fit.independence)


def never_earned(problem: Problem) -> Bools:
    """Return mask `(d,)` of the reward parameters that no logged decision could have earned."""
    earned = np.zeros(problem.n_parameters)
    for expert in problem.experts:
        if expert.counts is not None:
            earned += abs(expert.feature_matrix).T @ expert.counts.T.ravel()
    mask: Bools = earned == 0
    return mask


def _holds(end: Ascent[Point]) -> bool:
    """Return whether the decisions alone hold the rewards: the climb ended, and no reward and no choice in a visited state is
    vague.

    A reward is vague where its standard error is above 100 temperatures, a choice where that of `log π(a|s)` is above 10: odds
    that may be anything up to e^20 and more. Rewards of which the decisions say nothing do not count.
    """
    point = end.point
    model = point.likelihood
    if not end.finished or model.is_large:
        return end.finished
    precise = precision(point)
    assert precise.covariance is not None
    determined = precise.identified[: model.n_reward]
    errors = np.sqrt(np.diag(precise.covariance))[: model.n_reward][determined] * model.feature_sizes[determined]
    if errors.max(initial=0.0) > 100:
        return False
    for number, plan in enumerate(point.plans):
        batch = plan.persons
        (rows, columns, scores) = point.scores(number)
        visited = batch.visits[rows % len(batch.visits)] > 0
        for i, places in enumerate(columns):
            seen = scores[visited[:, i], i]
            variances = ((seen @ precise.covariance[np.ix_(places, places)]) * seen).sum(axis=1)
            if variances.max(initial=0.0) > 10**2:
                return False
    return True


def _weakly_held(held: Ascent[Point]) -> Ascent[Point]:
    """Return the fit with a prior so wide that it costs hardly any log-likelihood, where the one it has costs more.

    Beside a discount near 1, rewards that hardly matter for short may be very large. So the prior is made ten times wider, up to
    three times, where it costs more log-likelihood than 1.
    """
    for _ in range(3):
        model, point = held.point.likelihood, held.point
        bare = model.holding(model.penalty).at(point.x, point)
        if not held.finished or bare is None:
            break
        if climb(bare, max_steps=30, gain=0.1).point.value <= point.value + 1:
            break
        wider = model.holding(model.penalty, model.ridge / 100).at(point.x, point)
        end = None if wider is None else climb(wider)
        if end is None or not end.finished:
            break
        held = end
    return held


def _long_work(likelihood: Likelihood) -> str:
    """Return a sentence on how long the climbs will take where that is minutes, and what to do; else nothing.

    Climbs by products in a hard task take about a hundred thousand products with the curvature; climbs of many experts, with the
    tests that follow, about ten thousand steps. One of these is timed.
    """
    hard = likelihood.by_products and _is_hard(likelihood)
    many = not likelihood.by_products and likelihood.n_experts >= limits().joint
    if not (hard or many) or likelihood.settings.reward is not None:
        return ""
    point = likelihood.at(likelihood.pack(np.zeros(likelihood.n_reward), np.full(likelihood.n_discounts, 0.9)))
    if point is None:
        return ""
    point.gradient  # noqa: B018  what every product shares is made before one is timed
    begun = time.process_time()
    if many:
        point.metric()
        minutes = 1e4 * (time.process_time() - begun) / 60
        if minutes < limits().minutes:
            return ""
        return (
            f"{likelihood.n_experts:,} experts with {likelihood.size:,} numbers to estimate may take "
            f"{decimals(minutes, 0)} minutes or "
            "more to fit and to test: a sample of the experts takes less, and so do given transitions, a known reward, or fewer "
            "features."
        )
    point.information_product(np.ones(likelihood.size))
    minutes = 1e5 * (time.process_time() - begun) / 60
    if minutes < 2:
        return ""
    return (
        f"A reward for each of {likelihood.n_reward:,} states of this task may take {decimals(minutes, 0)} minutes "
        f"or more to fit: "
        "states are linked without any order, or many have a single action. Rewards tied together with features take seconds, "
        "and so do fewer states: merge those that are alike, or leave out those that few decisions reach."
    )


def _solution(problem: Problem, likeliest: Fit) -> Solution:
    best, point, model = likeliest.best, likeliest.best.point, likeliest.best.point.likelihood
    problem = point.problem if model.moves else problem
    rivals = rival_maxima(likeliest)
    # Ends that are as likely as the best with other discounts.
    others = [end for end in rivals if end.point.objective >= point.objective - 1e-3]
    starts, equally_likely, other_maxima = ([_end(end) for end in ends] for ends in (likeliest.ends, others, rivals))
    residual = point.projected_gradient()
    transitions = model.transitions_at(point.x)
    precise = precision(point)
    errors = precise.standard_errors
    nullity = 0 if model.settings.reward is not None else precise.nullity
    widening = transition_widening(point, precise)
    discounts = model.discounts(point.x)
    ahead = model.discount_slice
    part = model.temperature_slice
    # Temperatures that ran to the end of what is tried, or in which the likelihood is flat, although the scale is known.
    coldest, hottest = point.x[part] <= model.lower[part], point.x[part] >= model.upper[part]
    ends = ~model.fixed[part] & (not model.scale_is_free)
    coldest, hottest, flat = (ends & [coldest, hottest, ~precise.identified[part]])[:, model.temperature_groups]
    lost = coldest | hottest | flat
    fixed = model.fixed[ahead][model.groups]
    # With deviations that may be large, a discount can be anything: its standard error is larger than all discounts there are.
    open_ = (errors[ahead][model.groups] > 1) & isinstance(model, NearlyShared)
    identified = precise.identified[ahead][model.groups] & (not others) & (~lost | fixed) & ~open_
    reasons = np.where(identified, "", Reason.ANOTHER if others else Reason.FLAT).astype(object)
    reasons[~identified & coldest] = Reason.COLDEST
    reasons[~identified & hottest] = Reason.RANDOM
    converged = best.finished and at_maximum(point, residual)
    beside = about_rivals([(float(point.objective - end.point.objective), model.discounts(end.point.x)) for end in rivals])
    near = likeliest.nearly is not None and isinstance(point, NearPoint)
    freedom = degrees_of_freedom(cast(Nearly, likeliest.nearly), cast(NearPoint, point)) if near and converged else None
    status = Status.CONVERGED if identified.all() and not lost.any() else Status.NOT_IDENTIFIED
    paid = any(one.known_reward is not None for one in model.problem.exemplars)
    temperatures = model.fixed[part][model.temperature_groups] & (model.settings.temperatures is not None)
    planner = None if model.settings.plain else _choice_planner(point, precise, converged)
    figures = independence_figures(likeliest.independence, point, precise.covariance, precise.of_model)
    unit = independence_words(figures)
    of_planner = about_planner(planner)
    evidence = LikelihoodEvidence(
        log_likelihood=point.value,
        decisions=model.decisions,
        identified=identified.tolist(),
        known={
            "discounts": fixed.tolist(),
            "temperatures": temperatures.tolist(),
            "reward": "all" if model.settings.reward is not None else "in part" if paid else None,
        },
        unidentified_directions=nullity,
        information_spectrum=precise.spectrum.tolist(),
        reward_standard_errors=numbers_or_none(errors[: model.n_reward]),
        ridge=float(np.max(model.ridge, initial=0.0)),
        ridge_weights=model.ridge.tolist(),
        ridge_reason=likeliest.ridge_reason,
        temperature_spread=None if likeliest.spread is None else likeliest.spread.value,
        equal_temperatures_p=None if likeliest.spread is None else likeliest.spread.p_equal,
        lost_temperatures=lost.tolist(),
        log_temperature_errors=numbers_or_none(errors[part][model.temperature_groups]),
        transition_widening=widening[ahead][model.groups].tolist(),
        transitions=[entries.tolist() for entries in transitions.values()],
        lookahead=FamilyParameters(family="exponential", parameters={"discount": discounts.tolist()}),
        steps=best.steps,
        starts=starts,
        equally_likely=equally_likely,
        other_maxima=other_maxima or None,
        deviations=None if likeliest.nearly is None else _deviations(likeliest.nearly, point),
        reasons=reasons.tolist(),
        independence=figures,
        planner=planner,
    )
    likely = tuple(end.point for end in rivals)
    estimate = JointEstimate(model, point.x, identified & converged, problem, freedom, likely, evidence=evidence)
    return Solution.of(
        "MaximumLikelihood",
        problem,
        estimate,
        status if converged else Status.NOT_CONVERGED,
        _message(problem, likeliest, precise, left_open(problem.names, reasons.tolist()), beside, residual, unit) + of_planner,
        objective=point.value,
        residual=residual,
        evidence=evidence,
        standard_errors=np.where(identified & converged, errors[ahead][model.groups], np.nan),
    )


def _choice_planner(point: Point, precise: Precision, converged: bool) -> ChoicePlanner:
    """Return how experts choose at an answer, with intervals and tests where the climb ended."""
    model = point.likelihood
    figures: list[HabitFigures | None] = []
    for place in range(model.size)[model.habit_slice]:
        here = float(point.x[place])
        interval: list[float | None] = [None, None]
        p_value: float | None = None
        if model.fixed[place]:
            interval = [here, here]
        elif converged:
            ends, p = habit_precision(point, precise, place)
            # The upper edge only ends the search: beyond it a share may be 1, and stickiness anything.
            beyond = 1.0 if place == model.habit_slice.start else None
            interval = [end if abs(end) < model.upper[place] else beyond for end in ends]
            p_value = None if np.isnan(p) else p
        none = model.fixed[place] and here == 0
        figures.append(None if none else HabitFigures(estimate=here, interval=interval, p=p_value))
    lapse, stickiness = figures or (None, None)
    return ChoicePlanner(
        value=value_name(model.settings.value),
        lapse=lapse,
        stickiness=stickiness,
        other_fixed_points=model.settings.value == "mean" and any(_has_other_values(plan, point.rewards) for plan in point.plans),
    )


def _has_other_values(plan: Plans, theta: Floats) -> bool:
    """Return whether the values of some person have another fixed point."""
    mdp = plan.persons.mdp
    reward = plan.persons.reward(theta).reshape(mdp.n_actions, mdp.n_states).T
    return any(
        other_mean_values(mdp, reward, float(gamma), float(lam), plan.values[:, i]) is not None
        for i, (gamma, lam) in enumerate(zip(plan.gamma, plan.lam, strict=True))
    )


def rival_maxima(likeliest: Fit) -> list[Ascent[Point]]:
    """Return other maxima of the answer's likelihood that an interval may reach."""
    best, model = likeliest.best.point, likeliest.best.point.likelihood
    reached = []
    for end in likeliest.ends[1:]:
        there, old = end.point, end.point.likelihood
        if there.objective < likeliest.ends[0].point.objective - WITHIN:
            continue
        if old is not model:
            temperatures = model.of_temperature_groups(old.temperatures(there.x))
            x = model.pack(old.reward(there.x), there.x[old.discount_slice], temperatures, there.x[old.beside_slice])
            start = model.at(x)
            if start is None:
                continue
            end = climb(start, max_steps=100, gain=1e-4, worth=best.objective - WITHIN)
        if end.finished and best.objective - WITHIN < end.point.objective:
            reached.append(replace(end, point=end.point.without_derivatives()))
    return elsewhere(reached, best)


def _deviations(nearly: Nearly, point: Point) -> Deviations:
    """Return what was found of deviations, in words that a reader can use."""
    shared, model = nearly.shared, nearly.shared.likelihood
    reward = model.reward(shared.x)
    taken = isinstance(point, NearPoint)
    values = errors = np.zeros((model.n_experts, model.n_reward))
    measured: Point = shared
    if isinstance(point, NearPoint):
        measured = point
        values = point.deviations
        errors = np.sqrt(np.diagonal(np.linalg.inv(point.curvatures), axis1=1, axis2=2))
        reward = point.likelihood.reward(point.x)
    spreads = (nearly.estimated, *nearly.interval)
    sizes = NearlyShared.of(model, 1.0).sizes
    span = float(np.ptp(reward * sizes)) if reward.size > 1 else float(np.abs(reward * sizes).max(initial=0.0))
    precise = precision(shared)
    return Deviations(
        spread=nearly.estimated if taken else 0.0,
        estimated=nearly.estimated,
        interval=np.array(nearly.interval),
        p_shared=nearly.p_shared,
        share_of_range=np.array([spread / span if span else np.nan for spread in spreads]),
        choices_moved=np.array([choices_moved(measured, spread) for spread in spreads]),
        values=values,
        errors=errors,
        if_shared={
            "discounts": model.discounts(shared.x),
            "standard_errors": precise.standard_errors[model.discount_slice][model.groups],
            "log_likelihood": shared.value,
        },
        given=nearly.given,
    )


def _message(
    problem: Problem,
    likeliest: Fit,
    precise: Precision,
    open_: Sequence[str],
    beside: Sequence[str],
    residual: float,
    unit: Sequence[str],
) -> list[str]:
    best, model = likeliest.best, likeliest.best.point.likelihood
    parts = [*open_]
    if not open_ and precise.nullity:
        directions = "one direction" if precise.nullity == 1 else f"{precise.nullity} directions"
        parts.append(f"The discounts are identified; the decisions do not show {directions} of the reward.")
    if not best.finished:
        largest = np.abs(model.reward(best.point.x)).max(initial=0.0)
        parts.append(
            f"The optimiser stopped before converging, at a largest reward of {significant(largest)}: do not use this answer."
        )
    elif not at_maximum(best.point, residual):
        parts.append(f"The gradient is above {CONVERGED_GRADIENT:g} per decision: do not use this answer.")
    if not open_:
        parts += beside
    parts += _about_deviations(likeliest)
    parts += unit
    if likeliest.spread is not None and not likeliest.spread.complete:
        parts.append("Some fits with different temperatures did not converge: the test of equal temperatures is not reliable.")
    weight = float(np.max(model.ridge, initial=0.0))
    if weight:
        reason = f": {likeliest.ridge_reason}." if likeliest.ridge_reason else "."
        parts.append(f"A penalty of weight {significant(weight)} holds the rewards{reason}")
        if names := [n for n, never in zip(problem.parameter_names, never_earned(problem), strict=True) if never]:
            parts.append(f"No logged decision could have earned the reward of {first_few(names)}.")
    decisions = f"Log-likelihood {decimals(best.point.value, 2)} of {decimals(model.decisions, 0)} decisions"
    return [f"{decisions}, gradient {power_of_ten(residual)} per decision.", *parts]


def _about_deviations(likeliest: Fit) -> list[str]:
    """Return what is to be said of personal deviations."""
    nearly, point = likeliest.nearly, likeliest.best.point
    if nearly is None:
        return []
    if not isinstance(point, NearPoint):
        lines = (
            [
                f"One reward for all is not rejected (p {'≥' if nearly.p_shared >= 0.5 else '='} "
                f"{significant(nearly.p_shared, 2)})."
            ]
            if nearly.complete
            else []
        )
    elif nearly.given:
        lines = [
            f"Each expert's reward deviates from the common one with a standard deviation of "
            f"{significant(nearly.estimated)}, as given."
        ]
    else:
        lines = [
            f"Goals are only nearly shared: one reward for all is rejected (p = "
            f"{significant(nearly.p_shared, 2)}), and each expert's "
            f"deviates from the common one with a standard deviation of {significant(nearly.estimated)}."
        ]
    if not nearly.complete:
        lines.append("Some fits with reward deviations did not converge: the test of one reward for all is not reliable.")
    return lines


def _end(end: Ascent[Point]) -> dict[str, Any]:
    discounts = end.point.likelihood.discounts(end.point.x).tolist()
    return {"log_likelihood": end.point.value, "discounts": discounts, "steps": end.steps, "finished": end.finished}


def joint(solution: Solution) -> JointEstimate:
    """Return the estimate of all experts in one model, of a maximum-likelihood solution that may have been read from a file."""
    left = solution.interval_source
    if isinstance(left, JointEstimate) and left.belongs_to(solution.problem):
        return left
    used: MaximumLikelihood = solution.solver_used(MaximumLikelihood)
    if solution.evidence.lookahead_weights():
        raise ValueError(f"this needs a solution with discounts: {solution.evidence['no_discount']}")
    return used.estimate_together(solution)


def resume(solution: Solution) -> Point:
    """Return the model at the answer of a maximum-likelihood solution, which may have been read from a file."""
    return joint(solution).point
