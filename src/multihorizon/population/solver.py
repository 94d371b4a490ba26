"""A population of people: differences between groups and conditions, how much people differ, and what is known of each.

Person i under condition j, a *cell*, has `(logit γ_ij, log λ_ij) = (X_ij b, X_ij c) + Z_ij u_i`, `u_i ~ N(0, Σ)`, with X and Z
from a table of people, the conditions of episodes and a formula (`covariates.py`), and all share one reward. Without conditions
a person has one cell, and Z is 1. The likelihood with people averaged out is maximised in `marginal.py`. γ at 0 or 1, people
who choose at random and people with few decisions need no special treatment, because what their decisions leave open the
population fills in.

What follows from the maximum. The search has the covariates in units of its own, X T and Z V, so that effects are b = T β and
c = T κ with β and κ those that it finds, and Σ is `(V ⊗ I) S (V ⊗ I)ᵀ` with S what it finds. Below, `Σ(z)` is the covariance
`(2,2)` of logit γ and log λ between people where the row of Z is z. With C the covariance of ψ, n people and p terms:

* *Effects* b on logit γ and c on log λ have 95% CIs and tests by Student's t with n − p degrees of freedom, at least 1.
  For what is compared between people that is as in a table of n means. What is compared within people is known from more than
  n numbers, so its intervals are a little too wide, and never too narrow.
* *Effects on logit γ that weak priors hold* have them by the profile likelihood. Where all people of a group may as well plan
  for ever, the likelihood of their mean rises towards a limit and stays there. An interval that is symmetric around the estimate
  is then wrong at both ends, and the further the estimate runs away, the less it seems to differ from 0 (Hauck and Donner,
  1977). With l(v) the maximum over all other parameters where the effect is v, and l the maximum over all,
  `r(v) = √(2 (l − l(v)))` is compared with Student's t. The end of an interval is where r(v) is its quantile, found by the secant
  method. Where the decisions do not bound an effect, the weak prior does.
* *A factor* with several columns, such as a group of three levels, has one test for all of them: that its part of `X_i b` is the
  same for everyone. With q independent differences d of covariance D it is `d'D⁻¹d/q`, by Fisher's F with q and n − p degrees
  of freedom. It does not depend on the level that others are compared with.
* *Contrasts* are differences between typical people who differ in one column alone: every pair of its groups, or the quartiles
  of its numbers. With k the difference of their rows of X they are `k'b`, by Student's t; p-values of pairs of more than two
  groups are corrected for their number by Holm's method.
* *Weak priors* move the answer by about `C g`. Where that is much, the solution's message says so.
* *Reliability* of η is the share of the variance between people that the decisions explain, `1 − K/Σ(z)`, K the covariance of η
  given the decisions at the most likely Σ; of a cell, or of a person on the average of conditions.
* *A new person* with rows x and z has a logit γ with mean `x'b` and variance `Σ₁₁(z) + x' Cov(b) x`.
* *The variance between cells* of logit γ has four parts. With z̄ the mean of Z over cells and `x̄_i` the row of person i on the
  average of conditions they are `Σ₁₁(z̄)`, that of the person; the mean of `Σ₁₁(z − z̄)`, by which changes differ between
  people; the variance of `x̄_i b`, that of covariates; and the variance of `(X_ij − x̄_i) b`, that of conditions. An estimate of
  b makes the last two too large by what Cov(b) adds, which is taken off. The share of people, covariates among it, has an
  interval by the delta method, with the second order in b, as the first vanishes where there is no effect. What covariates and
  conditions share, because some people were seen more under some conditions, is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, fdtrc, ndtri

from multihorizon.checks import (
    RANK_TOLERANCE,
    TINY,
    Floats,
    Frame,
    as_count,
    as_floats,
    as_frame,
    as_jobs,
    as_non_negative,
    as_positive,
    first_few,
    renamed,
)
from multihorizon.choice.plans import Choosing, Habits, Planner, value_name
from multihorizon.choice.settings import Habit, read_choosing, read_settings, with_known_reward
from multihorizon.estimate import Estimate, ExpertValues, gradient_of
from multihorizon.likelihood.action_rewards import StateRewardTest
from multihorizon.likelihood.estimates import ChoicePlanner, HabitFigures, about_planner, known_planner
from multihorizon.likelihood.intervals import holm, precision
from multihorizon.likelihood.maximum_likelihood import fit
from multihorizon.numerics.distributions import t_ppf, t_sf
from multihorizon.numerics.newton import profile_end
from multihorizon.parallel import Progress, Run, silent
from multihorizon.planning.plan import Value
from multihorizon.population.covariates import Covariates, Missing, left_out_words, read_covariates, read_formula
from multihorizon.population.findings import (
    CELL_NUMBERS,
    PopulationEstimate,
    PopulationEvidence,
    PopulationFindings,
    TypesEstimate,
)
from multihorizon.population.free import describe_free, distribution_words
from multihorizon.population.marginal import WIDEST, PsiLayout, Start, likely_person
from multihorizon.population.maximum import (
    HabitSearch,
    Maximum,
    Posterior,
    alike,
    maximise,
    maximum_at,
    most_likely_habit,
    nearly_shared,
    population_state_reward,
    posterior,
)
from multihorizon.population.types import fit_types, types_solution
from multihorizon.problem import Problem
from multihorizon.solution import Deviations, Solution, Status
from multihorizon.words import decimals, in_words, p_text, significant


@renamed(tol="tolerance", max_iter="max_steps")
@dataclass(frozen=True, eq=False)
class Population:
    """Discounts and temperatures of many people, drawn from a population that covariates describe.

    The solution's `discounts` and `temperature` are shrunken towards the population, its `objective` is the marginal
    log-likelihood, its `residual` the distance to the maximum in standard errors. `evidence["population"]` holds the effects of
    covariates on logit γ ("discount") and log λ ("temperature"), one test for each factor of several levels ("factors"), all
    pairs of groups and the quartiles of numbers with what is typical of both ("contrasts"), the spread between people,
    reliabilities, and predictions. Weak priors hold what the decisions leave open, and `message` says where they matter.

    Args:
        formula: the covariates and conditions, as in R: "~ group + age". "~ 1" has none. It is made of columns, numbers,
            operators, and functions such as C, center, scale, log, poly and bs; nothing else in it is run. Columns are those of
            `persons`, or conditions of the problem's episodes. "~ noise + (noise | expert)" says that people differ in how
            noise changes them; "(1 | expert)", that they differ alike under all conditions, is meant where nothing is said.
        persons: a data frame of pandas, polars, pyarrow or DuckDB, or columns by name, with the column `expert` and one row per
            expert; needed for its columns only.
        known_reward: the known part of the reward, as in `MaximumLikelihood`.
        ridge: weight of a penalty on the reward, as in `MaximumLikelihood`.
        nodes: nodes of the quadrature for logit γ; log λ has about half as many. By default there are 15, and 25 or 41 where
            that moves the effects by more than 0.02 of their standard errors (those of 20,000 people, where they are more).
        missing: what to do with people who lack a row or a covariate, or are alone in their group, and with decisions under an
            unknown condition: "drop" leaves them out, says so in the message, and names people in
            `evidence["population"]["left_out"]`; "fail" raises.
        reference: for columns of groups, the one that the others are compared with: `{"group": "control"}`. By default it is
            the first in the order of the alphabet.
        distribution: "normal", or "free": then `evidence["population"]["distribution"]` says besides, for everyone or for each
            group, how horizons are distributed where no shape is assumed, how many clear types of people there are, and which
            share of them look further ahead than the task can show. The reward is the known one, or that of the normal
            population. The formula must have columns of groups only, with at most six combinations.
            "types": people, or episodes without a name (`Demonstrations.unnamed`), are each of one of a few types; then
            `evidence["population"]["types"]` has their shares and discount factors, `evidence["population"]["individuals"]` the
            posterior share of each type in each unit, and the formula is "~ 1". With a known reward each type has a temperature
            of its own, otherwise all types share one.
        types: how many types there are; by default as many as tests find, with simulated studies.
        deviations: how far each person's reward may be from the common one: the standard deviation of personal deviations, in
            units of reward, of each feature in units in which it is at most 1. 0: one reward for all. "estimated": 0 unless the
            decisions reject that at the 5% level, and then the most likely one. `evidence["deviations"]` says what was found,
            with each person's deviation. Discounts, effects and intervals then allow for deviations. The reward must have
            parameters that are estimated: free rewards or features, beside a known reward if there is one.
        value, lapse, stickiness, planner: how people choose, as in `MaximumLikelihood`; lapses and stickiness are the same for
            all people, and one of them can be estimated. `evidence["planner"]` says what was found.
        tolerance: the distance to the maximum, in standard errors, at which the search ends.
        max_steps: the steps after which it is given up.
        jobs: processes that share the people; -1 is all cores. The digits do not depend on it.

    Raises:
        ValueError: for a formula that is made of anything else; when solving, where people and decisions do not belong
            together or the formula cannot be used.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains, soft_plan, solve
        >>> d = domains.cliff()
        >>> policies = [soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.3, 0.4, 0.5, 0.6, 0.7)]
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, policies, episodes=50))
        >>> solution = solve(problem, Population("~ 1", known_reward=d.reward))
        >>> str(solution.status), sorted(solution.evidence["population"]["discount"])
        ('converged', ['Intercept'])
    """

    formula: str = "~ 1"
    persons: Any = None
    known_reward: Any = None
    ridge: float | None = None
    nodes: int | None = None
    missing: Missing = "drop"
    reference: Mapping[str, str] | None = None
    distribution: Literal["normal", "free", "types"] = "normal"
    types: int | None = None
    deviations: float | Literal["estimated"] = 0.0
    tolerance: float = 1e-6
    max_steps: int = 60
    jobs: int = 1
    value: Value = "soft"
    lapse: Habit = 0.0
    stickiness: Habit = 0.0
    planner: Planner | None = None

    takes_durations: ClassVar = True
    not_apart: ClassVar = "the discounts of its people come from one distribution, and only MaximumLikelihood leaves each free"

    def __post_init__(self) -> None:
        if not isinstance(self.formula, str):
            raise ValueError(f"formula must be a text such as '~ group', got {self.formula!r}")
        read_formula(self.formula)
        if self.persons is not None:
            given = pd.DataFrame(self.persons) if isinstance(self.persons, Mapping) else self.persons
            object.__setattr__(self, "persons", as_frame(given, "persons"))
        if self.ridge is not None and float(as_floats(self.ridge, "ridge")) < 0:
            raise ValueError(f"ridge must be at least 0, got {self.ridge}")
        if self.missing not in ("drop", "fail"):
            raise ValueError(f"missing must be drop or fail, got {self.missing!r}")
        if self.reference is not None and not isinstance(self.reference, Mapping):
            raise ValueError(f"reference must map columns to groups, got {self.reference!r}")
        if self.distribution not in ("normal", "free", "types"):
            raise ValueError(f"distribution must be normal, free or types, got {self.distribution!r}")
        if self.types is not None:
            as_count(self.types, "types")
            if self.distribution != "types":
                raise ValueError(f"types must come with distribution='types', got {self.distribution!r}")
        if self.distribution == "types" and self.formula.replace(" ", "") not in ("~1", "1"):
            raise ValueError(
                f"types must come with the formula '~ 1', got {self.formula!r}: types are found, and not explained by "
                "columns; to compare groups or conditions, use distribution='normal'"
            )
        if isinstance(self.deviations, str) and self.deviations != "estimated":
            raise ValueError(f'deviations must be a number that is at least 0, or "estimated", got {self.deviations!r}')
        if self.deviations != "estimated":
            as_non_negative(self.deviations, "deviations")
        if self.deviations and self.distribution != "normal":
            raise ValueError(f"personal deviations need distribution='normal', got {self.distribution!r}")
        if not self.is_soft and (self.distribution == "types" or self.deviations):
            raise ValueError('types and personal deviations need value="soft" and neither lapses nor stickiness, got others')
        if self.lapse == self.stickiness == "estimated":
            raise ValueError("of lapses and stickiness a population can have one estimated, got both: give one as a number")
        if self.nodes is not None:
            as_count(self.nodes, "nodes", least=3)
        as_positive(self.tolerance, "tolerance")
        as_count(self.max_steps, "max_steps")
        as_jobs(self.jobs)

    @property
    def is_soft(self) -> bool:
        """Return whether choices are those of soft values alone: without other values, lapses or stickiness."""
        return read_choosing(self.value, self.lapse, self.stickiness, self.planner) == ("soft", 0.0, 0.0)

    def covariates(self, problem: Problem) -> Covariates:
        """Return the design of the study; raises where it cannot be used."""
        covariates = read_covariates(self.formula, self.persons, problem, self.missing, self.reference)
        taken = sorted({"expert", "pattern", *CELL_NUMBERS} & set(covariates.conditions))
        if taken:
            raise ValueError(f"a condition must not be called {taken[0]}, as a result is: rename this column")
        if self.distribution == "free" and (reason := _not_free(covariates)):
            raise ValueError(f"the nonparametric distribution (free) must have {reason}")
        return covariates

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Maximise the likelihood with people averaged out; `seed` scatters the starts of the first fit of a reward.

        Where the number of types is to be found, it is that of the simulated studies.
        """
        run = Run(seed, self.jobs, progress)
        if self.distribution == "types":
            units, reward = with_known_reward(problem.by_person(), self.known_reward)
            return types_solution(units, fit_types(units, reward, self.types, self.ridge, run))
        if self.deviations:
            self._require_deviations(problem)
        return self.answer(self.search(problem, run.part(0.0, 0.3) if self.deviations else run), run)

    def answer(self, found: Searched, run: Run) -> Solution:
        """Return what follows from where the search ended."""
        covariates, maximum, identified, ridge_reason, habit = found
        typical = None
        if covariates.conditions:
            typical = covariates.typical @ covariates.units, covariates.typical_random @ covariates.random_units
        estimated = posterior(maximum, identified, typical)
        if habit is not None and np.isfinite(habit.error):  # what the effects move with lapses or stickiness
            more = habit.error**2 * np.outer(habit.slope, habit.slope)
            estimated = replace(estimated, covariance=estimated.covariance + more)
        state_reward = population_state_reward(maximum)
        inference = Inference(covariates, maximum, estimated, state_reward)
        if self.deviations and inference.converged:
            shared = estimated.persons
            nearly = nearly_shared(maximum, self.deviations, self.nodes, self.tolerance, self.max_steps, run.part(0.3, 1.0))
            if nearly.spread:
                maximum = nearly.maximum
                inference = Inference(covariates, maximum, posterior(maximum, identified), state_reward)
            inference.deviations = nearly.described(shared.discounts, shared.errors)
            inference.deviation_words = nearly.words()
        elif self.deviations:
            inference.deviation_words = [
                "Personal deviations were not looked for, because this fit with one reward for all is no answer."
            ]
        wide = inference.is_wide and not _not_free(covariates) and not self.deviations
        if (self.distribution == "free" or wide) and inference.converged:
            inference.distribution = _free_by_group(covariates, maximum, run.part(0.6, 1.0))
        inference.habit = habit
        return inference.solution(ridge_reason, maximum.marginal.layout.problem)

    def search(self, whole: Problem, run: Run) -> Searched:
        """Return the covariates, the maximum, whether the decisions identify anybody's discount factor, and why a penalty holds
        the rewards."""
        whole = whole.by_last_action() if self.stickiness != 0 else whole
        covariates = self.covariates(whole)
        problem, reward = with_known_reward(covariates.gathered(whole), self.known_reward)
        identified = True
        ridge_reason = ""
        ridge = np.zeros(problem.n_parameters)
        value, *asked = read_choosing(self.value, self.lapse, self.stickiness, self.planner)
        known = np.nan_to_num(asked)  # what is estimated begins at none
        choosing = Choosing(value, Habits(*known.tolist()) if np.any(asked) else None)
        if reward is None and self.planner is not None:
            raise ValueError("a planner of your own needs a known reward: it says policies, and no derivatives")
        if reward is None:  # the most likely reward where each of some people has a discount and all have one temperature
            n = problem.n_experts
            sample = problem.by_person().some(np.unique(np.linspace(0, n - 1, min(200, n)).astype(np.int64)))
            settings = replace(read_settings(sample, "shared", None, None, None), value=value, lapse=float(known[0]))
            first = fit(sample, settings, False, self.ridge, 2, run.part(0.0, 0.3))
            x, alone, ridge_reason = first.best.point.x, first.best.point.likelihood, first.ridge_reason
            ridge = alone.ridge
            identified = bool(precision(first.best.point).identified[alone.discount_slice].any())
        owner, random = None, None
        if covariates.conditions:
            owner = covariates.owner
            random = covariates.random @ covariates.random_units
        given = problem, covariates.matrix @ covariates.units, reward, ridge, owner, random, None, self.jobs
        layout = PsiLayout(*given, choosing)
        if reward is None:
            start = Start.of(layout, alone.reward(x), alone.discounts(x), float(alone.temperatures(x)[0]))
        else:
            start = Start.of(layout, reward, *likely_person(layout))
        part = run.part(0.3, 0.6 if self.distribution == "free" else 1.0)
        if not np.isnan(asked).any():
            maximum = maximise(layout, start, self.nodes, part, self.tolerance, self.max_steps)
            return Searched(covariates, maximum, identified, ridge_reason)

        def at(tried: float, other: Maximum) -> Maximum:
            habits = np.where(np.isnan(asked), tried, known).tolist()
            habitual = PsiLayout(*given, Choosing(value, Habits(*habits)))
            begun = Start.at(habitual, other.psi)
            return maximise(habitual, begun, self.nodes, Run(run.seed, self.jobs), self.tolerance, self.max_steps)

        whole_run, habits = part.parts(1, 3)
        without = maximise(layout, start, self.nodes, whole_run, self.tolerance, self.max_steps)
        unit = float(np.exp((layout.design @ layout.unpack(without.psi).effects[:, 1]).mean()))
        found = most_likely_habit(without, at, unit if self.lapse != "estimated" else None, habits)
        return Searched(covariates, found.maximum, identified, ridge_reason, found)

    @classmethod
    def estimate_of(cls, solution: Solution) -> Estimate:
        """Return the estimate of a solution of this solver."""
        evidence = PopulationEvidence.of(solution)
        converged = solution.status == Status.CONVERGED
        if evidence.population.types is not None:
            return TypesEstimate.of(solution.answer, evidence)
        return PopulationEstimate.of(solution.answer, evidence, converged)

    def _require_deviations(self, problem: Problem) -> None:
        """Raise where personal deviations cannot be had."""
        covariates = self.covariates(problem)
        if covariates.conditions:
            raise ValueError(
                f"personal deviations need people without conditions, got {first_few(covariates.conditions)}: leave them "
                "out of the formula, or set deviations to 0"
            )
        paid, reward = with_known_reward(problem, self.known_reward)
        if reward is not None:
            raise ValueError(
                "personal deviations in a population need rewards that are estimated, got a reward that is known in full: "
                "give the problem features, which are added to the known reward, or set deviations to 0"
            )
        most = 60  # beyond, what decisions say of each person's reward takes too much memory at all nodes
        if paid.n_parameters > most:
            raise ValueError(
                f"personal deviations in a population need at most {most} rewards, got {paid.n_parameters:,}: tie the "
                "rewards of similar states together with features, or set deviations to 0"
            )
        if len(covariates.names) < 2:
            raise ValueError("personal deviations from a common reward need at least two people, got one")

    def predict(self, solution: Solution, persons: Frame) -> pd.DataFrame:
        """Return discount factors to expect of people who were not in the study.

        Args:
            solution: of this solver.
            persons: a data frame with their covariates, and the conditions to predict them under; one row per person.

        Returns:
            One row per person: the discount of a typical person with these covariates and its 95% CI (`low`, `high`), and
            where 95% of such people are expected (`person_low`, `person_high`).

        Raises:
            ValueError: for a solution that did not converge, a missing covariate, or a group that did not occur in the study.
        """
        if solution.estimate.population is None or solution.status != Status.CONVERGED:
            raise ValueError(f"a prediction needs a converged Population, got {solution.solver}: {solution.status}")
        if self.distribution == "types":
            raise ValueError("a prediction needs covariates, and types have none: evidence['population']['types'] has shares")
        population = PopulationEvidence.of(solution).population
        new = as_frame(persons, "persons")
        rows, random = remembered(solution, self.formula, self.persons, self.reference).rows_of(new)
        between = covariance_at(random, population.between)[:, 0, 0]
        errors = population.effect_covariances[0]
        largest = population.largest_discount
        values = _predicted(rows, population.effects[:, 0], errors, between, largest, population.degrees)
        return pd.DataFrame(values, columns=["discount", "low", "high", "person_low", "person_high"], index=new.index)


class Searched(NamedTuple):
    """Where a search ended: the covariates, the maximum, whether the decisions identify anybody's discount, why a penalty holds
    the rewards, and the search for lapses or stickiness, if there was one.
    """

    covariates: Covariates
    maximum: Maximum
    identified: bool
    ridge_reason: str
    habit: HabitSearch | None = None


def covariance_at(random: Floats, covariance: Floats) -> Floats:
    """Return Σ(z) `(k,2,2)` of rows z `(k,q)` of Z, where Σ is `(2q,2q)`."""
    q = random.shape[1]
    covariances: Floats = np.einsum("ka,aibj,kb->kij", random, covariance.reshape(q, 2, q, 2), random, optimize=True)
    return covariances


def remembered(
    solution: Solution, formula: str, persons: pd.DataFrame | None = None, reference: Mapping[str, str] | None = None
) -> Covariates:
    """Return the design of a study from what its solution keeps of people and conditions, where `persons` does not say it."""
    population = PopulationEvidence.of(solution).population
    given = () if persons is None else tuple(persons.columns)
    kept = pd.DataFrame({column: values for column, values in population.covariates.items() if column not in given})
    owner = np.arange(len(solution.experts))
    if population.cells is not None:
        owner = pd.Index(solution.experts).get_indexer(pd.Index(population.cells["expert"]))
        kept = kept.iloc[owner if len(kept.columns) else []].reset_index(drop=True)
        kept = kept.assign(**{column: population.cells[column] for column in population.conditions})
    people = Problem.of_tasks(solution.experts, (), ())
    if len(kept.columns):
        people = Problem.of_tasks(solution.experts, (), (), owner, kept)
    return read_covariates(formula, persons, people, "drop", reference)


def _not_free(covariates: Covariates) -> str:
    """Return what the nonparametric distribution (NPMLE) needs and this study lacks; empty where it can be estimated."""
    if covariates.conditions:
        return f"no conditions, got {first_few(covariates.conditions)}: leave them out, or use a normal distribution"
    numbers = [comparison.column for comparison in covariates.comparisons if comparison.is_number]
    if numbers:
        return f"columns of groups only, got the numbers of {first_few(numbers)}: leave them out, or make groups of them"
    if len(covariates.patterns) > 6:  # nobody would compare more pictures
        return f"at most 6 combinations of groups, got {len(covariates.patterns)}: use fewer columns, or join groups"
    return ""


def _free_by_group(covariates: Covariates, maximum: Maximum, run: Run) -> dict[str, dict[str, Any]]:
    """Return the nonparametric distribution of each combination of groups, with the reward of the normal population."""
    layout = maximum.marginal.layout
    parts = maximum.marginal.layout.unpack(maximum.psi)
    tables = layout.tables.at(parts.theta)
    groups = np.asarray(covariates.groups)
    number = len(covariates.patterns)
    centres = covariates.pattern_rows @ covariates.units @ parts.effects
    distributions = {}
    for (i, name), part in run.over(list(enumerate(covariates.patterns))):
        who = np.flatnonzero(groups == i)
        normal = float(maximum.value.persons[who].sum())
        counts = layout.counts if number == 1 else layout.counts[who]
        exact, same = tables.exact, tables.same_state
        distributions[name] = describe_free(counts, exact, same, layout.largest, centres[i], normal, part)
    return distributions


class Inference:
    """What follows from the maximum for the covariates. Where a kind is asked for, 0 is logit γ and 1 is log λ.

    `distribution` is the free one of each group, `deviations` and `deviation_words` what was found of deviations from the reward,
    where these were asked for, and `state_reward` the test that the reward depends on the state reached alone.
    """

    distribution: dict[str, dict[str, Any]] | None = None
    habit: HabitSearch | None = None
    deviations: Deviations | None = None
    deviation_words: Sequence[str] = ()

    def __init__(
        self, covariates: Covariates, maximum: Maximum, estimated: Posterior, state_reward: StateRewardTest | None
    ) -> None:
        self.state_reward = state_reward
        self.covariates = covariates
        self.maximum = maximum
        self.layout = maximum.marginal.layout
        self.known = estimated
        self.parts = self.layout.unpack(maximum.psi)
        self.converged = estimated.status == Status.CONVERGED
        self.degrees = max(1, len(covariates.names) - len(covariates.terms))
        # the covariances (p,p) of β and κ, the effects in units of the search, and of b and c
        discount, temperature, basis = self.layout.discount, self.layout.temperature, self.layout.temperature_basis
        covariances = estimated.covariance[discount, discount], basis @ estimated.covariance[temperature, temperature] @ basis.T
        self.own_covariance: tuple[Floats, Floats] = covariances
        self.effect_covariance: list[Floats] = [covariates.units @ each @ covariates.units.T for each in covariances]
        self.average: Floats = covariates.typical_random.mean(axis=0)  # z on the average of conditions

    def person_covariance(self, psi: Floats) -> Floats:
        """Return Σ `(2q,2q)` in the units of Z."""
        turn = np.kron(self.covariates.random_units, np.eye(2))
        return turn @ self.layout.unpack(psi).covariance @ turn.T

    def root_at(self, psi: Floats) -> Floats:
        """Return L `(2,2)` of the covariance between people on the average of conditions."""
        turn = np.kron(self.average @ self.covariates.random_units, np.eye(2))
        root: Floats = np.linalg.qr((turn @ self.layout.unpack(psi).root).T).R.T
        return root * np.sign(np.diag(root))

    def slope_sizes(self, psi: Floats) -> Floats:
        """Return the standard deviations `(q,2)` between people of what each term of Z does to logit γ and log λ."""
        return np.sqrt(np.diag(self.person_covariance(psi))).reshape(-1, 2)

    @cached_property
    def moved_by_priors(self) -> dict[str, dict[str, float]]:
        """Return what weak priors move: effects on logit γ by how many standard errors, the spreads by which share, the
        correlation, and by which share how much effects on logit γ differ between people."""
        pull = self.layout.weak_priors(self.parts)[1]
        moved = self.covariates.units @ (self.known.covariance @ pull["means"])[self.layout.discount]
        effects = moved / np.sqrt(np.diag(self.effect_covariance[0]))
        loose, free = (self.maximum.psi - self.known.covariance @ pull[name] for name in ("spread", "correlation"))
        here, before, uncorrelated = (self.root_at(psi) for psi in (self.maximum.psi, loose, free))
        shares = np.linalg.norm(here, axis=1) / np.linalg.norm(before, axis=1) - 1
        apart = _correlation(here) - _correlation(uncorrelated)
        slopes = (self.slope_sizes(self.maximum.psi) / self.slope_sizes(loose) - 1)[:, 0]
        by_term = zip(self.covariates.random_terms, slopes.tolist(), strict=True)
        return {
            "effects": dict(zip(self.covariates.terms, effects.tolist(), strict=True)),
            "spread": dict(zip(("discount", "temperature"), shares.tolist(), strict=True)),
            "correlation": {"moved": apart},
            "slopes": {term: share for term, share in by_term if term != "Intercept"},
        }

    @cached_property
    def hardly_bound(self) -> dict[str, float]:
        """Return the effects on logit γ that weak priors move by more than 0.1 standard errors, and by how many."""
        moved = self.moved_by_priors["effects"] if self.converged else {}
        return {term: abs(errors) for term, errors in moved.items() if abs(errors) > 0.1}

    def tested(self, estimate: float, error: float) -> dict[str, Any]:
        """Return interval and p-value by Student's t; NaN where there are none."""
        half = float(t_ppf(0.975, self.degrees)) * error if self.converged else np.nan
        p = 2 * t_sf(abs(estimate) / error, self.degrees) if self.converged and error > 0 else np.nan
        return {"interval": [float(estimate - half), float(estimate + half)], "p": float(p), "method": "standard error"}

    def effects(self, kind: int) -> dict[str, dict[str, Any]]:
        """Return estimate, interval and p-value of each term. What only sets the scale of the reward has no interval."""
        errors = np.sqrt(np.diag(self.effect_covariance[kind]))
        effects = self.covariates.units @ self.parts.effects[:, kind]
        table = {}
        for term, estimate, error in zip(self.covariates.terms, effects.tolist(), errors.tolist(), strict=True):
            has_scale = not (kind == 1 and term == "Intercept" and self.layout.scale_is_free)
            error = error if has_scale else np.nan
            table[term] = {"estimate": estimate, "standard_error": error, **self.tested(estimate, error)}
        if kind == 0:
            for term in [term for term in self.hardly_bound if term != "Intercept"]:
                place = self.covariates.terms.index(term)
                j = self.layout.discount.start + place
                low, high, p = effect_profile(self.maximum, j, self.known.covariance, self.degrees, 0.95)
                if np.isfinite([low, high, p]).all():
                    unit = float(self.covariates.units[place, place])
                    table[term] |= {"interval": [unit * low, unit * high], "p": p, "method": "profile likelihood"}
        return table

    def factors(self, kind: int) -> dict[str, dict[str, Any]]:
        """Return the test of each factor with several columns: F, its degrees of freedom, p, and the terms of its columns."""
        table = {}
        for name, places in self.covariates.factors.items():
            columns = self.layout.design[:, places]
            _, sizes, rows = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
            varied = rows[sizes > RANK_TOLERANCE * len(columns) * sizes.max(initial=0.0)]
            apart = varied @ self.parts.effects[list(places), kind]
            covariance = varied @ self.own_covariance[kind][np.ix_(places, places)] @ varied.T
            testable = self.converged and len(varied) > 0
            statistic = float(apart @ np.linalg.solve(covariance, apart)) / len(varied) if testable else np.nan
            p = float(fdtrc(len(varied), self.degrees, statistic)) if testable else np.nan
            terms = [self.covariates.terms[place] for place in places]
            table[name] = {"F": statistic, "degrees": [len(varied), self.degrees], "p": p, "terms": terms}
        return table

    def contrasts(self, kind: int, effects: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Return all pairs of groups, and the quartiles of numbers: how much higher logit γ or log λ is in the second level."""
        covariance = self.own_covariance[kind]
        table = []
        for comparison in self.covariates.comparisons:
            rows = comparison.rows @ self.covariates.units
            means = rows @ self.parts.effects[:, kind]
            typical = (self.layout.largest * expit(means) if kind == 0 else np.exp(means)).tolist()
            pairs: list[dict[str, Any]] = []
            for i, j in combinations(range(len(rows)), 2):
                apart, contrast = comparison.rows[j] - comparison.rows[i], rows[j] - rows[i]
                estimate, error = float(contrast @ self.parts.effects[:, kind]), float(np.sqrt(contrast @ covariance @ contrast))
                said = self.tested(estimate, error)
                used = np.flatnonzero(np.abs(apart) > RANK_TOLERANCE * np.abs(apart).max(initial=0.0))
                if used.size == 1:  # one term says it all, and may be known by its profile
                    term = effects[self.covariates.terms[used[0]]]
                    size = float(apart[used[0]])
                    said = {"interval": sorted(size * end for end in term["interval"]), "p": term["p"], "method": term["method"]}
                pairs.append(
                    {
                        "column": comparison.column,
                        "number": comparison.is_number,
                        "levels": [comparison.levels[i], comparison.levels[j]],
                        "typical": [typical[i], typical[j]],
                        "estimate": estimate,
                        "standard_error": error,
                        **said,
                    }
                )
            adjusted = holm(np.array([row["p"] for row in pairs]))
            table += [{**row, "adjusted": float(p)} for row, p in zip(pairs, adjusted, strict=True)]
        return table

    def gradient(self, value: Callable[[Floats], float]) -> Floats:
        """Return the derivative in ψ of a number that the effects and the spread determine."""
        return gradient_of(value, self.maximum.psi, self.layout.discount.start)

    def delta(self, value: Callable[[Floats], float], back: Callable[[float], float]) -> dict[str, Any]:
        """Return a number that ψ determines and its interval by the delta method; `value` is on a scale from which `back`
        leads."""
        slope = self.gradient(value)
        at = value(self.maximum.psi)
        half = float(ndtri(0.975)) * np.sqrt(max(float(slope @ self.known.covariance @ slope), 0.0)) if self.converged else np.nan
        centre, low, high = (float(back(at + move)) for move in (0.0, -half, half))
        return {"estimate": centre, "interval": [low, high]}

    def spread(self) -> dict[str, dict[str, Any]]:
        """Return standard deviations between people and the correlation, on the average of conditions."""
        return {
            "discount": self.delta(lambda psi: float(np.log(self.root_at(psi)[0, 0])), np.exp),
            "temperature": self.delta(lambda psi: float(np.log(np.linalg.norm(self.root_at(psi)[1]))), np.exp),
            "correlation": self.delta(lambda psi: float(np.arcsinh(_tilt(self.root_at(psi)))), np.tanh),
        }

    def slopes(self) -> dict[str, dict[str, Any]]:
        """Return how much the effect of each term of Z but the intercept differs between people."""
        return {
            term: {
                kind: self.delta(partial(self._log_slope, place, k), np.exp) for k, kind in enumerate(("discount", "temperature"))
            }
            for place, term in enumerate(self.covariates.random_terms)
            if term != "Intercept"
        }

    def _log_slope(self, place: int, kind: int, psi: Floats) -> float:
        return float(np.log(self.slope_sizes(psi)[place, kind]))

    def variance(self, kind: int) -> dict[str, float]:
        """Return the parts of the variance between cells, as shares, and all of it."""
        covariates, layout = self.covariates, self.layout
        usual = covariates.typical[covariates.owner] @ covariates.units
        mixes = [np.cov(rows, rowvar=False, ddof=0).reshape(2 * (rows.shape[1],)) for rows in (usual, layout.design - usual)]
        products = [mix @ self.own_covariance[kind] for mix in mixes]
        centre = covariates.random.mean(axis=0)
        apart = np.cov(covariates.random, rowvar=False, ddof=0).reshape(2 * centre.shape)

        def parts(psi: Floats) -> Floats:
            of_kind, effects = self.person_covariance(psi)[kind::2, kind::2], layout.unpack(psi).effects[:, kind]
            fixed = [effects @ mix @ effects - np.trace(product) for mix, product in zip(mixes, products, strict=True)]
            return np.array([centre @ of_kind @ centre, *fixed, np.sum(of_kind * apart)])

        def between(psi: Floats) -> float:
            variances = parts(psi)
            return float(variances[:2].sum() / variances.sum())

        variances = parts(self.maximum.psi)
        variances[variances < 1e-12 * variances.sum()] = 0.0
        shares = variances / variances.sum()
        slope = self.gradient(between)
        # of squares of effects near 0 the first order says nothing, and the second is that of normal b
        seconds = 2 * np.array([float(np.trace(product @ product)) for product in products]) / variances.sum() ** 2
        share = float(shares[:2].sum())
        error = slope @ self.known.covariance @ slope + (1 - share) ** 2 * seconds[0] + share**2 * seconds[1]
        half = float(ndtri(0.975)) * np.sqrt(max(error, 0.0)) if self.converged else np.nan
        low, high = np.clip([share - half, share + half], 0.0, 1.0).tolist()
        names = ("person", "covariates", "condition", "person_by_condition")
        return {
            **dict(zip(names, shares.tolist(), strict=True)),
            "total": float(variances.sum()),
            "between_low": low,
            "between_high": high,
        }

    def cells(self) -> dict[str, Any]:
        """Return what is known of each person under each condition."""
        covariates, cells = self.covariates, self.known.cells
        errors = np.sqrt(np.diagonal(cells.covariance, axis1=1, axis2=2))
        half = float(ndtri(0.975)) * errors[:, 0] if self.converged else np.full(len(errors), np.nan)
        low, high = (self.layout.largest * expit(cells.mean[:, 0] + move) for move in (-half, half))
        between = covariance_at(covariates.random, self.person_covariance(self.maximum.psi))[:, 0, 0]
        return {
            "expert": np.array(covariates.names, dtype=object)[covariates.owner],
            "pattern": np.array(covariates.patterns, dtype=object)[covariates.groups],
            **{column: covariates.frame[column].to_numpy() for column in covariates.conditions},
            "decisions": np.asarray(self.layout.counts.sum(axis=1)).ravel(),
            "discount": cells.discounts,
            "low": low,
            "high": high,
            "logit_discount": cells.mean[:, 0],
            "logit_discount_error": errors[:, 0],
            "log_temperature": cells.mean[:, 1],
            "log_temperature_error": errors[:, 1],
            "correlation": np.clip(cells.covariance[:, 0, 1] / np.maximum(errors.prod(axis=1), TINY), -1.0, 1.0),
            "discount_reliability": np.clip(1 - cells.within[:, 0, 0] / between, 0.0, 1.0),
        }

    def predictions(self) -> dict[str, dict[str, Any]]:
        """Return for each pattern of covariates the discount of a typical person, and where a new person's may lie."""
        rows = self.covariates.pattern_rows @ self.covariates.units
        covariance = self.own_covariance[0] if self.converged else np.nan * self.own_covariance[0]
        between = covariance_at(self.covariates.pattern_random, self.person_covariance(self.maximum.psi))[:, 0, 0]
        ends = _predicted(rows, self.parts.effects[:, 0], covariance, between, self.layout.largest, self.degrees)
        temperatures = np.exp(rows @ self.parts.effects[:, 1])
        layout, basis = self.layout, self.layout.temperature_basis
        # how logit γ and log λ of a typical person move with ψ (m,2,size)
        along = np.zeros((len(rows), 2, layout.size))
        along[:, 0, layout.discount], along[:, 1, layout.temperature] = rows, rows @ basis
        errors = along @ self.known.covariance
        between = covariance_at(self.covariates.pattern_random, self.person_covariance(self.maximum.psi))
        return {
            name: {
                "typical_discount": float(ends[i, 0]),
                "typical_interval": ends[i, 1:3].tolist(),
                "new_person_interval": ends[i, 3:].tolist(),
                "typical_temperature": float(temperatures[i]),
                "covariance": (errors[i] @ along[i].T).tolist(),
                "between": between[i].tolist(),
                "reward_covariance": errors[i][:, layout.reward].tolist(),
            }
            for i, name in enumerate(self.covariates.patterns)
        }

    def findings(self) -> PopulationFindings:
        """Return what `evidence["population"]` says."""
        discount, temperature = self.effects(0), self.effects(1)
        persons = self.known.persons
        between = covariance_at(self.covariates.typical_random, self.person_covariance(self.maximum.psi))
        within, between = (np.diagonal(each, axis1=1, axis2=2) for each in (persons.within, between))
        reliability = np.clip(1 - within / between, 0.0, 1.0)
        errors = np.sqrt(np.diagonal(persons.covariance, axis1=1, axis2=2))
        covariates = self.covariates
        return PopulationFindings(
            persons=len(covariates.names),
            left_out=covariates.left_out,
            degrees=self.degrees,
            discount=discount,
            temperature=temperature,
            factors={"discount": self.factors(0), "temperature": self.factors(1)},
            columns_of=covariates.columns_of,
            references=covariates.references,
            discount_covariance=self.effect_covariance[0].tolist(),
            temperature_covariance=self.effect_covariance[1].tolist(),
            weak_priors=self.moved_by_priors,
            spread=self.spread(),
            predictions=self.predictions(),
            groups=covariates.person_groups,
            covariates={str(column): values.to_numpy() for column, values in covariates.persons.items()},
            individuals={
                "logit_discount": persons.mean[:, 0],
                "logit_discount_error": errors[:, 0],
                "log_temperature": persons.mean[:, 1],
                "log_temperature_error": errors[:, 1],
                "correlation": np.clip(persons.covariance[:, 0, 1] / np.maximum(errors.prod(axis=1), TINY), -1.0, 1.0),
                "discount_reliability": reliability[:, 0],
                "temperature_reliability": reliability[:, 1],
                "log_likelihood": self.maximum.value.persons,
            },
            largest_discount=self.layout.largest,
            steps=self.maximum.steps,
            cautions=self.cautions(),
            distribution=self.distribution,
            **(self.by_condition() if covariates.conditions else {}),
            **(self.of_reward() if self.layout.free.size else {}),
            contrasts={"discount": self.contrasts(0, discount), "temperature": self.contrasts(1, temperature)},
            state_reward=None if self.state_reward is None else self.state_reward.to_dict(),
        )

    def of_reward(self) -> dict[str, Any]:
        """Return how well the shared reward is known, and how its error goes with what is known of people, where that is at most
        a million numbers: files that hold more take long to write and to read."""
        place, with_persons = self.layout.reward, self.known.persons.with_reward
        return {
            "reward_covariance": self.known.covariance[place, place],
            "open_reward": self.known.open_reward,
            "person_reward_covariance": with_persons if with_persons.size <= 1_000_000 else None,
        }

    def by_condition(self) -> dict[str, Any]:
        """Return what is said where the formula has conditions."""
        return {
            "cells": self.cells(),
            "variance": {kind: self.variance(k) for k, kind in enumerate(("discount", "temperature"))},
            "slopes": self.slopes(),
            "alike": self.alike,
            "person_terms": list(self.covariates.random_terms),
            "person_covariance": self.person_covariance(self.maximum.psi).tolist(),
        }

    @cached_property
    def alike(self) -> dict[str, dict[str, float]] | None:
        """Return the p-values of "this effect is the same for everybody", for the terms of which the formula says so."""
        if not (self.covariates.conditions and self.converged and self.layout.mixed):
            return None
        p_values = dict(zip(self.covariates.terms, alike(self.maximum).tolist(), strict=True))
        kinds = ("discount", "temperature")
        return {term: dict(zip(kinds, each, strict=True)) for term, each in p_values.items() if np.isfinite(each).all()}

    @property
    def is_wide(self) -> bool:
        """Return whether a normal distribution of logits has most people near a discount of 0 or 1."""
        # with this standard deviation, half of the people around a logit of 0 are below a discount of 0.12 or above 0.88
        return self.converged and float(np.linalg.norm(self.root_at(self.maximum.psi)[0])) > 3.0

    def about_width(self) -> str:
        """Return what a typical person means where people differ that much."""
        spread = float(np.linalg.norm(self.root_at(self.maximum.psi)[0]))
        groups = self.distribution or {}
        of_persons = np.quantile(self.known.persons.discounts, [0.25, 0.5, 0.75]).tolist()
        quartiles = {name: group["quartiles"] for name, group in groups.items()} or {"": of_persons}
        said = [
            in_words([decimals(value, 2) for value in values]) + (f" ({name})" if len(quartiles) > 1 else "")
            for name, values in quartiles.items()
        ]
        shape = "without any assumption on the shape, the quartiles of their discounts are"
        if not groups:
            shape = "the quartiles of the people's own estimates are"
        advice = (
            ""
            if groups
            else " To see how they are distributed, ask for the nonparametric distribution (free), with columns of groups only."
        )
        return (
            f"People differ so much (a standard deviation of {decimals(spread, 2)} in the logit of the discount) that a normal "
            "distribution has most of them near a discount of 0 or 1, and its typical person may be nobody: "
            f"{shape} {in_words(said)}.{advice}"
        )

    def cautions(self) -> list[str]:
        """Return where weak priors matter, and by how much, in sentences; nothing where there is no answer."""
        if not self.converged:
            return []
        words = [*([self.about_width()] if self.is_wide else []), *self.covariates.cautions] + [
            f"The decisions hardly bound the effect of {term} on the discount: a weak prior, for logits within {WIDEST:g} of 0, "
            f"moves it by {decimals(errors, 1)} standard errors, and the far end of its interval is that of the prior."
            for term, errors in self.hardly_bound.items()
        ]
        tested = self.alike or {}
        apart = {term: p for term, each in tested.items() if (p := min(each.values())) < 0.025 / len(tested)}  # of all, at 5%
        if apart:
            conditions = dict.fromkeys(column for term in apart for column in self.covariates.columns_of[term])
            words.append(
                f"People do not all change alike with {' and '.join(conditions)} (p {p_text(min(apart.values()))}), as this "
                f"formula supposes, so the intervals of the change are too narrow: write ({' + '.join(conditions)} | expert)."
            )
        for kind, share in self.moved_by_priors["spread"].items():
            if abs(share) > 0.25:
                size = f"{decimals(100 * abs(share), 0)}% {'larger' if share > 0 else 'smaller'}"
                words.append(f"The spread of {kind}s between people is hardly determined: a weak prior makes it about {size}.")
        for term, share in self.moved_by_priors["slopes"].items():
            if abs(share) > 0.25:
                size = (
                    f"{decimals(100 * abs(share), 0)}% {'larger' if share > 0 else 'smaller'}"
                    if share < 1
                    else "more than twice as large"
                )
                words.append(
                    f"How much the effect of {term} differs between people is hardly determined: a weak prior makes it {size}."
                )
        drawn = abs(self.moved_by_priors["correlation"]["moved"])
        if drawn > 0.15:
            words.append(
                "The correlation of discounts and temperatures between people is hardly determined: "
                f"a weak prior moves it by about {decimals(drawn, 1)} towards 0."
            )
        return words

    def planner(self) -> ChoicePlanner | None:
        """Return how people choose; None where values are soft and there are no lapses."""
        planner, habit = known_planner(self.layout.choosing), self.habit
        if habit is None:
            return planner
        numbers = self.layout.choosing.habits or Habits(0.0, 0.0)
        lapse, stickiness = (HabitFigures(estimate=x, interval=[x, x], p=None) if x else None for x in numbers)
        bounds = (0.0, 1.0) if habit.unit is None else (-np.inf, np.inf)
        ends = np.clip(habit.value + np.array([-1, 1]) * float(ndtri(0.975)) * habit.error, *bounds)
        interval = [float(end) if np.isfinite(end) else None for end in ends]
        figures = HabitFigures(estimate=habit.value, interval=interval, p=habit.p_value)
        lapse, stickiness = (figures, stickiness) if habit.unit is None else (lapse, figures)
        value = value_name(self.layout.choosing.value)
        return ChoicePlanner(value=value, lapse=lapse, stickiness=stickiness, other_fixed_points=False)

    def solution(self, ridge_reason: str, problem: Problem) -> Solution:
        """Return all of it, with the shrunken discounts; `ridge_reason` says why a penalty holds the rewards."""
        maximum, layout, converged = self.maximum, self.layout, self.converged
        decisions = float(layout.counts.sum())
        n = problem.n_experts
        errors = np.zeros(layout.n_reward)
        errors[layout.free] = np.sqrt(np.diag(self.known.covariance)[layout.reward])
        reward_errors = [float(error) if converged else None for error in errors]
        likelihood = float(maximum.value.persons.sum())
        size = f"{decimals(decisions, 0)} decisions of {n} people"
        words = [f"Marginal log-likelihood {decimals(likelihood, 2)} of {size}.", *absent_words(self.covariates.left_out, n)]
        planner = self.planner()
        of_planner = about_planner(planner)
        evidence = PopulationEvidence(
            population=self.findings(),
            log_likelihood=likelihood,
            decisions=decisions,
            reward_standard_errors=reward_errors,
            ridge=float(np.max(layout.ridge, initial=0.0)),
            ridge_reason=ridge_reason,
            deviations=self.deviations,
            planner=planner,
        )
        people = self.known.persons
        answer = ExpertValues(
            problem.names, self.parts.theta, people.discounts, np.exp(people.mean[:, 1]), problem.parameter_names
        )
        estimate = PopulationEstimate.of(answer, evidence, converged)
        if self.known.status == Status.NOT_IDENTIFIED:
            words.append("The effects on the discount are not identified: the likelihood is flat in their direction.")
        if maximum.value.error > 5e-3:
            words.append(
                f"Tables of policies are too coarse by up to {significant(maximum.value.error, 2)} in a person's log-likelihood."
            )
        if not maximum.finished:
            words.append(
                f"The search ended {significant(maximum.distance, 2)} standard errors from the maximum: do not use this answer."
            )
        if self.state_reward is not None and self.state_reward.clear:
            words.append(self.state_reward.why)
        words += [*of_planner, *self.deviation_words, *evidence.population.cautions]
        words += distribution_words(self.distribution) if self.distribution else []
        if ridge_reason:
            words.append(f"A penalty of weight {significant(layout.ridge.max())} holds the rewards: {ridge_reason}.")
        return Solution.of(
            "Population",
            problem,
            estimate,
            self.known.status,
            words,
            objective=likelihood,
            residual=maximum.distance,
            evidence=evidence,
            standard_errors=np.where(converged, people.errors, np.nan),
        )


def _tilt(root: Floats) -> float:
    """Return `ρ/√(1 − ρ²)` of a covariance L Lᵀ."""
    return float(root[1, 0] / root[1, 1])


def _correlation(root: Floats) -> float:
    """Return ρ of a covariance L Lᵀ."""
    return float(root[1, 0] / np.hypot(*root[1]))


def _predicted(rows: Floats, effects: Floats, covariance: Floats, between: Floats, largest: float, degrees: int) -> Floats:
    """Return for rows of X `(m,p)` the discount of a typical person, its interval, and the interval of a new person `(m,5)`."""
    centre = rows @ effects
    error = np.einsum("mp,pq,mq->m", rows, covariance, rows)
    halves = [float(t_ppf(0.975, degrees)) * np.sqrt(variance) for variance in (error, error + between)]
    ends = [centre, *(centre + sign * half for half in halves for sign in (-1, 1))]
    predictions: Floats = largest * expit(np.stack(ends, axis=1))
    return predictions


def effect_profile(maximum: Maximum, j: int, covariance: Floats, degrees: int, level: float) -> tuple[float, float, float]:
    """Return both ends of the interval of ψ_j by its profile, and the p-value of 0; NaN where a maximum on the way did not
    finish.

    `covariance` is that of ψ at this maximum. Each maximum starts from the last.
    """
    along, longest = covariance[:, j] / covariance[j, j], 1.5  # how the others move with ψ_j, and the longest step outwards
    centre = float(maximum.psi[j])
    top = maximum_at(maximum, j, centre, along)  # with as many nodes as the maxima that it is compared with

    def root(at: Maximum) -> float:
        gap = top.value.objective - at.value.objective
        return float(np.sqrt(2 * max(gap, 0.0))) if at.finished and top.finished else np.nan

    def profile(value: float, nearest: tuple[Maximum, float]) -> tuple[float, tuple[Maximum, float]] | None:
        there = maximum_at(nearest[0], j, value, along)
        return (root(there), (there, root(there))) if root(there) > nearest[1] else None

    target = float(t_ppf(0.5 + level / 2, degrees))
    step = min(float(np.sqrt(covariance[j, j])), longest)
    rule: dict[str, Any] = {"tol": 0.02, "share": (0.0, 1.0), "growth": np.inf, "longest": longest, "same": 0.0, "part": np.inf}
    low, high = (profile_end(profile, (top, 0.0), centre, sign * step, target, sign * np.inf, **rule)[0] for sign in (-1.0, 1.0))
    at = top
    for share in np.linspace(1, 0, 2 + int(abs(centre) / longest))[1:]:
        at = maximum_at(at, j, share * centre, along)
    return low, high, float(2 * t_sf(root(at), degrees))


def absent_words(left_out: Mapping[str, str], compared: int, most: int = 5) -> list[str]:
    """Return who is left out besides so many people who are compared, as a sentence; nothing where nobody is."""
    are = "is" if len(left_out) == 1 else "are"
    number = f"{len(left_out)} of {len(left_out) + compared} people {are} left out of the comparison"
    return [f"{number}: {left_out_words(left_out, most)}."] if left_out else []
