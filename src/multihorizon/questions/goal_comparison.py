"""One goal, nearly one, or several? Three models of the same decisions, compared on episodes that they have not seen.

* *One goal*: all experts share the reward θ.
* *Nearly one goal*: expert k acts on `θ + δ_k` with `δ_k ~ N(0, τ²W)` (`choice.deviations`), τ as the solution has it.
* *Several goals*: groups of experts who share a reward, merged as in `goals` from single experts as long as the score rises.

Each expert's episodes are dealt into folds, and those of a fold are predicted by models fitted to the others, groups included.
With d_e the difference between two models in the log-likelihood of episode e, and n_e its decisions, the difference per decision
is `m = Σ d_e / Σ n_e`, with the standard error `√(Σ (d_e − n_e m)²) / Σ n_e`: episodes are independent, decisions need not be.

*The test* of one goal is that of τ = 0. With few decisions Laplace's method rejects too often. So where it rejects, the simulated
test of `sharing` must reject, too, and the larger p-value counts. Where no deviations were fitted, it is the only test.

*The answer.* If the test does not reject, nothing speaks against one goal. If it does, goals are nearly one or several. They are
several where groups predict better than deviations by more than two standard errors, and where deviations are above a tenth of
the reward's range or move more than a fifth of all choices: whoever would choose otherwise so often has another goal. Else they
are nearly one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pandas as pd

from multihorizon.checks import TINY, Bools, Floats, Ints, Seed, as_count, as_seed
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings, Temperature
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.exact.equations import in_order_of_content
from multihorizon.likelihood.clusters import dispersion
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.search import climb
from multihorizon.parallel import Progress, Run, silent
from multihorizon.problem import Problem
from multihorizon.questions.goals import Goals, Scores, best_fit, merged
from multihorizon.questions.model_checks import Extent, fold_of_episodes, of_part
from multihorizon.questions.schedule import tables_of
from multihorizon.questions.sharing import SharedGoalTest, bound_words, one_goal_test, one_reward
from multihorizon.result import Result
from multihorizon.solution import Deviations, Solution
from multihorizon.words import Finding, significant

Support = Literal["one goal", "nearly one goal", "several goals"]
QUESTION = "Do they share a goal?"
ONE: Final = "one goal"
NEARLY: Final = "nearly one goal"
SEVERAL: Final = "several goals"


@dataclass(frozen=True, eq=False)
class GoalComparison(Result):
    """What `compare_goals` found.

    Attributes:
        experts: their names.
        test: that all share one reward.
        deviations: what the solution says of deviations from it; None where none were asked for.
        lengths: the decisions of each held-out episode `(E,)`.
        held_out: for each model the log-likelihood of each held-out episode `(E,)`.
        groups: the groups of experts found without each fold; empty where none were looked for.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("model", "log_likelihood")

    experts: tuple[str, ...]
    test: SharedGoalTest
    deviations: Deviations | None
    lengths: Ints
    held_out: dict[str, Floats]
    groups: tuple[tuple[tuple[str, ...], ...], ...] = ()

    @property
    def decisions(self) -> float:
        """Return how many decisions were held out."""
        return float(self.lengths.sum())

    def per_decision(self, model: str) -> float:
        """Return the mean held-out log-likelihood of a decision."""
        return float(self.held_out[model].sum()) / self.decisions

    def difference(self, model: str, other: str) -> tuple[float, float]:
        """Return by how much a model predicts a held-out decision better than another, and the standard error of that."""
        d = self.held_out[model] - self.held_out[other]
        mean = float(d.sum()) / self.decisions
        return mean, float(np.sqrt(((d - self.lengths * mean) ** 2).sum())) / self.decisions

    @property
    def support(self) -> Support | None:
        """Return what the decisions support; None where that was not tested."""
        if self.test.reason:
            return None
        if not self.test.rejected:
            return ONE
        if self.deviations is None or not small(self.deviations):
            return SEVERAL
        if NEARLY in self.held_out and SEVERAL in self.held_out:
            gain, error = self.difference(SEVERAL, NEARLY)
            return SEVERAL if gain > 2 * error else NEARLY
        return NEARLY

    def sentences(self) -> str:
        """Return the finding in a sentence or two."""
        support = self.support
        if support is None:
            return self.test.sentences()
        if support == ONE:
            bound = "" if self.deviations is None else bound_words(self.deviations)
            return f"The decisions support one goal: one reward for all is not rejected ({self.test.words}). {bound}".strip()
        rejected = f"The decisions support {support}: one reward for all is rejected ({self.test.words})."
        return f"{rejected} {self.prediction}".strip()

    @property
    def prediction(self) -> str:
        """Return how well the model that is supported predicts held-out decisions, beside the others; empty where that is not
        known."""
        support = self.support
        rivals = [model for model in self.held_out if model != support] if support in self.held_out else []
        parts = []
        for model in rivals:
            gain, error = self.difference(str(support), model)
            how = "better than" if gain > 2 * error else "worse than" if gain < -2 * error else "about as well as"
            parts.append(f"{how} {model} ({gain:+.2g} ± {significant(error, 1)} per decision)")
        return f"{str(support).capitalize()} predicts held-out decisions {' and '.join(parts)}." if parts else ""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per model: held-out log-likelihood per decision, its difference from one goal with the standard
        error."""
        rows = []
        for model in self.held_out:
            gain, error = self.difference(model, ONE)
            rows.append((model, self.per_decision(model), gain, error, model == self.support))
        return pd.DataFrame(rows, columns=["model", "log_likelihood", "difference", "standard_error", "supported"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "support": self.support,
            "summary": self.sentences(),
            "decisions": self.decisions,
            "p_value": self.test.p_value,
            "models": self.to_frame().to_dict("records"),
            "groups": [[list(group) for group in groups] for groups in self.groups],
        }

    def _content(self) -> dict[str, Any]:
        return {"experts": self.experts, **self.to_dict()}


@dataclass(frozen=True, eq=False)
class GoalCheck:
    """The test that all experts share one reward, and their groups where it is rejected and they were looked for.

    `apart` says how widely the model fits if each expert has a reward of their own; None where that was not asked. `comparison`
    has deviations from one reward and held-out predictions, as far as there are any. `withheld` says why no more
    is said.

    Attributes that follow from these:
        model_fails: whether the model does not fit even with a reward for each expert, so that goals need not be the cause.
        nearly: whether the experts nearly share one goal: one reward for all is rejected, and small deviations from one are not.
        rejected: whether the experts have different goals: one reward for all is rejected, and so is nearly one; one for each
            fits, and no grouping speaks for one.
        verdict: the answer and its reasons, with their part of `result.json`.
        answer: the same in a sentence or two.
    """

    test: SharedGoalTest
    groups: Goals[Solution] | None = None
    apart: Extent | None = None
    comparison: GoalComparison | None = None
    withheld: str = ""
    model_fails: bool = field(init=False)
    nearly: bool = field(init=False)
    rejected: bool = field(init=False)
    verdict: Finding = field(init=False)
    answer: str = field(init=False)

    def __post_init__(self) -> None:
        """Judge."""
        fails = self.apart is not None and not self.apart.nearly_everywhere
        nearly = self.comparison is not None and self.comparison.support == NEARLY and not fails
        differ = self.groups is None or self.groups.verdict == "differ"
        object.__setattr__(self, "model_fails", fails)
        object.__setattr__(self, "nearly", nearly)
        object.__setattr__(self, "rejected", self.test.rejected and differ and not (fails or nearly or self.withheld))
        verdict = self._judged()
        answer = f"{verdict.answer}. {verdict.reasons}"
        goals = {
            "p_value": None if self.test.reason else self.test.p_value,
            "answer": answer,
            "found": None if self.groups is None else self.groups.to_dict(),
            "compared": None if self.comparison is None else self.comparison.to_dict(),
        }
        object.__setattr__(self, "verdict", replace(verdict, content={"goals": goals}))
        object.__setattr__(self, "answer", answer)

    def _judged(self) -> Finding:
        """Return the answer, and its reasons."""
        p = self.test.words
        if self.withheld:
            return Finding(QUESTION, "Inconclusive", self.withheld, "caution", self.test)
        if self.test.reason:
            return Finding(
                QUESTION, "This was not tested", f"{self.test.reason[0].upper()}{self.test.reason[1:]}.", "caution", self.test
            )
        if not self.test.rejected:
            allowed = None if self.comparison is None else self.comparison.deviations
            bound = "" if allowed is None else bound_words(allowed)
            reasons = f"One reward for all is not rejected ({p}). {bound}".strip()
            if allowed is not None and allowed.share_of_range[2] >= 1:
                return Finding(QUESTION, "Inconclusive", reasons, "caution", self.test)
            return Finding(QUESTION, "Not rejected", reasons, "good", self.test)
        if self.apart is not None and self.model_fails:
            reasons = (
                f"One reward for all is rejected ({p}), but with a reward for each expert the model does not fit either: "
                f"choices differ from it in {self.apart.odd:,} of {self.apart.compared:,} cases. So different goals need not be "
                "the cause."
            )
            return Finding(QUESTION, "It is not known", reasons, "caution", self.test)
        if self.comparison is not None and self.comparison.deviations is not None and self.nearly:
            words = deviation_words(self.comparison.deviations)
            reasons = f"One reward for all is rejected ({p}), but deviations are small: {words}. {self.comparison.prediction}"
            return Finding(QUESTION, "Nearly", reasons.strip(), "good", self.test)
        if not self.rejected:
            reasons = f"One reward for all is rejected ({p}), but nobody's goal can be distinguished from the others'."
            return Finding(QUESTION, "It is not known", reasons, "caution", self.test)
        who = "" if self.groups is not None else " Who shares one with whom was not looked for: `goals` does that."
        predicted = "" if self.comparison is None else f" {self.comparison.prediction}".rstrip()
        reasons = f"One reward for all is rejected ({p}), so the estimates for all together must not be believed.{predicted}{who}"
        return Finding(QUESTION, "No", reasons, "bad", self.test)


def small(deviations: Deviations) -> bool:
    """Return whether deviations are at most a tenth of the reward's range, and move at most a fifth of all choices."""
    return bool(deviations.share_of_range[0] <= 0.1 and deviations.choices_moved[0] <= 20)


def compare_goals(
    solution: Solution,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    folds: int = 2,
    several: bool = True,
    test: SharedGoalTest | None = None,
    *,
    seed: Seed = 0,
    progress: Progress = silent,
) -> GoalComparison:
    """Compare one goal, nearly one goal and several goals on held-out episodes.

    Args:
        solution: of `MaximumLikelihood`, with its problem; nearly one goal is compared where it has `deviations`.
        demonstrations: the table it was fitted to, or one for each task; by default the problem's own.
        folds: how many parts the episodes are dealt into; every expert needs at least as many episodes.
        several: whether to look for groups as well, which takes long for many experts.
        test: that of one reward, where it was made already.
        seed: deals the episodes.
        progress: called after each fit.

    Returns:
        Held-out likelihood of one reward for all, of groups and of a reward for each
        (`multihorizon.questions.goal_comparison.GoalComparison`).

    Raises:
        ValueError: for solutions of other solvers, other tables than the problem's, and too few episodes.

    Example:
        >>> from multihorizon import Demonstrations, MaximumLikelihood, Problem, domains, solve
        >>> d = domains.big_small()
        >>> table = Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=2)
        >>> solution = solve(Problem(d.mdp, table), MaximumLikelihood(deviations="estimated"))
        >>> compare_goals(solution).support
        'one goal'
    """
    run = Run(as_seed(seed), progress=progress)
    solution.require_soft("a comparison of goals")
    point = resume(solution)
    evidence = LikelihoodEvidence.of(solution)
    model, problem, deviations = point.likelihood, point.likelihood.problem, evidence.deviations
    tables = tables_of(problem, demonstrations)
    rng = np.random.default_rng(run.seed)
    dealt = [fold_of_episodes(table, as_count(folds, "folds", least=2), rng) for table in tables]
    test = test or one_goal_test(solution, run=Run(run.seed))
    one = one_reward(model)
    models: dict[str, Likelihood] = {ONE: one}
    if deviations is not None and max(deviations.spread, deviations.estimated) > 0:
        models[NEARLY] = NearlyShared.of(one, deviations.spread or deviations.estimated)
    several = several and test.rejected and model.settings.reward is None and model.settings.discounts is None
    names = [*models, *([SEVERAL] if several else [])]
    times = dispersion(point) if several else 1.0
    totals = {name: [np.zeros(fold.size) for fold in dealt] for name in names}
    groupings = []
    for number, part in run.over(range(folds)):
        held = [fold == number for fold in dealt]
        train = _counts_without(problem, tables, held)
        policies = {name: _fitted(fitted, train, point.x, name) for name, fitted in models.items()}
        part.progress(0.5, f"fold {number + 1}: {' and '.join(models)}")
        if several:
            groups, policies[SEVERAL] = _groups(model.with_counts(train).problem, solution.options["temperature"], times, part)
            groupings.append(groups)
        for name in names:
            for total, predicted in zip(totals[name], _predicted(problem, tables, held, policies[name]), strict=True):
                total += predicted
    lengths = np.concatenate([table.by_episode.length for table in tables])
    held_out = {name: np.concatenate(values) for name, values in totals.items()}
    return GoalComparison(solution.experts, test, deviations, lengths, held_out, tuple(groupings))


def deviation_words(deviations: Deviations) -> str:
    """Return how far rewards deviate from the shared one, in a clause."""

    def ends(values: Floats, unit: str = "") -> str:
        low, high = (
            "not found" if np.isnan(end) else "any number" if np.isinf(end) else significant(end, 2) for end in values[1:]
        )
        return "" if deviations.given else f" ({low} to {high}{unit})"

    share = 100 * deviations.share_of_range
    moved = deviations.choices_moved
    return (
        f"the standard deviation of rewards from the shared one is {significant(share[0], 2)}% of its "
        f"range{ends(share, '%')}, which moves {significant(moved[0], 2)} of a hundred choices{ends(moved)}"
    )


def _fitted(model: Likelihood, counts: Sequence[Floats], x: Floats, name: str) -> list[Floats]:
    """Return the policies of a model fitted to these counts, begun at x."""
    part = of_part(model, counts)
    start = part.at(x[: part.size])
    if start is None:
        raise ValueError(f"the model of {name} has no finite soft values at the fitted reward")
    return climb(start, max_steps=60, gain=1e-3).point.policies()  # it need not be exact to be compared


def _counts_without(problem: Problem, tables: Sequence[Demonstrations], held: Sequence[Bools]) -> list[Floats]:
    """Return the counts of each of the problem's experts without the held-out episodes of each table."""
    counts: list[Floats] = []
    for table, out in zip(tables, held, strict=True):
        counts += list(table.counts_of_episodes(problem.experts[len(counts)].mdp, ~out))
    return counts


def _predicted(
    problem: Problem, tables: Sequence[Demonstrations], held: Sequence[Bools], policies: Sequence[Floats]
) -> list[Floats]:
    """Return the log-likelihood `(E,)` of each table's held-out episodes under policies of the problem's experts, 0 of the
    others."""
    result = []
    first = 0
    for table, out in zip(tables, held, strict=True):
        owner = table.by_episode.expert
        choices = table.choices_by(problem.experts[first].mdp, np.where(out, np.arange(out.size), -1), out.size)
        total = np.zeros(out.size)
        for k, policy in enumerate(policies[first : first + len(table.experts)]):
            of_expert = out & (owner == k)
            total[of_expert] = choices[of_expert] @ np.log(np.maximum(policy, TINY)).T.ravel()
        result.append(total)
        first += len(table.experts)
    return result


def _groups(
    problem: Problem, temperature: Temperature, times: float, run: Run
) -> tuple[tuple[tuple[str, ...], ...], list[Floats]]:
    """Return the groups of experts by goal, and the policies of all the problem's experts with the rewards of their groups."""
    scores = Scores(in_order_of_content(problem), temperature, times)
    names = scores.problem.names
    policies = dict[tuple[str, int], Floats]()
    groups = merged(scores, run)
    for group in groups:
        members = [e for e, owner in zip(scores.problem.experts, scores.problem.owner, strict=True) if owner in group]
        for expert, policy in zip(members, scores(group).point.policies(), strict=True):
            policies[expert.name, id(expert.mdp)] = policy
    listed = sorted((sorted((names[k] for k in group), key=problem.names.index) for group in groups), key=lambda g: g[0])
    return tuple(map(tuple, listed)), [policies[expert.name, id(expert.mdp)] for expert in problem.experts]


def policies_apart(solution: Solution) -> list[Floats]:
    """Return the policy `(S,A)` of each of the problem's experts, each person fitted alone, with a weak penalty on rewards."""
    point = resume(solution)
    model, problem = point.likelihood, point.likelihood.problem
    alone = []
    for k in range(problem.n_experts):
        members = problem.with_experts(e for e, owner in zip(problem.experts, problem.owner, strict=True) if owner == k)
        temperature = model.temperatures(point.x)[[k]]
        ridge = (model.feature_sizes / (10 * temperature)) ** 2
        discounts = None if model.settings.discounts is None else model.settings.discounts[[k]]
        fit = best_fit(Likelihood(members, Settings(discounts=discounts, temperatures=temperature)).holding(None, ridge), -np.inf)
        alone.append(iter(fit.point.policies()))
    return [next(alone[k]) for k in problem.owner]
