"""Does the conclusion survive? The same question asked under rival models of choice, and how well each predicts.

A horizon is only as good as the model of choice behind it: values with entropy, softmax choices, discounts, no lapses. Each rival
changes one of these. It is fitted to the same decisions, with the same rewards, groups and formula.

*Prediction.* Episodes are dealt into folds, evenly for each expert; of a population, people are. Each rival is fitted to all
folds but one, begun at its fit to everything, and predicts the one left out. `held_out` is the log-likelihood per decision. With
m the differences from the best rival by episode (person), a rival predicts as well where `Σ m ≥ −log 20`, the bound of a split
likelihood-ratio test at 5% (Wasserman, Ramdas and Balakrishnan 2020), or where it is within a standard error,
`Σ m ≥ −√(Σ (m − m̄)²)`. Single episodes may decide what is held out: a rival predicts as well, too, where the log-likelihood of
all decisions less the number of parameters is as near to the largest. Without episodes to hold out that alone counts.

*Stacking.* Weights w of the rivals maximise `Σ_e log Σ_r w_r exp(ℓ_er)`, ℓ_er the held-out log-likelihood of an episode.

*The question* is what the first fit says: of experts each discount, and who clearly looks further ahead than whom; of a
population each contrast of groups or conditions. Under a rival the conclusion is "the same" where no order is turned round and no
discount of either lies outside of the other's 95% CI; of a population where each contrast has the same sign and is as
clear.

*One currency.* A look-ahead that is no discount is compared by the weight of a reward 1, 3 and 10 steps from now: `γ^t` for a
discount.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, product
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import pandas as pd
from scipy.special import logsumexp, ndtri

from multihorizon.checks import Bools, Floats, Ints, Seed, as_count, as_jobs, as_seed
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import Likelihood, Point
from multihorizon.choice.settings import Clusters
from multihorizon.choice.weighted import person_steps
from multihorizon.horizon import Exponential, Hyperbolic, Lookahead, QuasiHyperbolic
from multihorizon.likelihood.estimates import JointEstimate
from multihorizon.likelihood.intervals import Precision, precision
from multihorizon.likelihood.look_ahead import fit_lookahead, lookahead_counts, search
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.search import climb
from multihorizon.parallel import Progress, Run, silent
from multihorizon.population.findings import PopulationEvidence
from multihorizon.population.marginal import Marginal, Start, modes
from multihorizon.population.maximum import Maximum, maximise
from multihorizon.population.solver import Population
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.model_checks import of_part
from multihorizon.result import Result
from multihorizon.solution import Solution, Status
from multihorizon.words import Table, decimals, in_words, significant

#: So much log-likelihood a model may be behind the best one and predict as well.
BEHIND = float(np.log(20))
#: Depths that are tried: how many steps ahead people look, with a discount, and no further.
DEPTHS = (2, 3, 4, 6, 8, 12)
#: How many steps ahead rewards are whose weights are compared.
AHEAD = (1, 3, 10)

#: What each rival changes of `MaximumLikelihood` or `Population`.
CHANGES: dict[str, dict[str, Any]] = {
    "values by the best action": {"value": "max"},
    "values by the mean of choices": {"value": "mean"},
    "lapses": {"lapse": "estimated"},
    "stickiness": {"stickiness": "estimated"},
    "a temperature each": {"temperature": "per_expert"},
    "one temperature": {"temperature": "shared"},
    "hyperbolic": {"lookahead": Hyperbolic()},
    "quasi-hyperbolic": {"lookahead": QuasiHyperbolic()},
    "a limited depth": {"lookahead": Exponential()},
}
Solver = MaximumLikelihood | Population


@dataclass(frozen=True, eq=False)
class Rival:
    """One model of choice.

    Attributes:
        name: what it changes; the first is the fit that is asked about.
        discounts, intervals: of each expert `(K,)`, `(K,2)`, NaN where there are none.
        weights_ahead: the weight of a reward 1, 3 and 10 steps from now and its 95% CI `(K,3,3)`.
        contrasts: of a population, for each contrast the difference in logit γ, its 95% CI and p-value `(m,4)`.
        log_likelihood, parameters: of the fit to all decisions.
        held_out: the log-likelihood of held-out decisions, per decision; NaN where nothing could be held out.
        error: its standard error, over episodes or people.
        behind: how much worse than the best rival all held-out decisions are predicted, and `behind_error`, its standard error.
        predicts: whether it predicts as well as the best.
        weight: its weight in a stack of all.
        conclusion: "as fitted" for the first, else "the same", "changes", "predicts worse" or "no answer".
        why: what changes, or why there is no answer.
    """

    name: str
    discounts: Floats
    intervals: Floats
    weights_ahead: Floats
    contrasts: Floats
    log_likelihood: float
    parameters: int
    held_out: float
    error: float
    behind: float
    behind_error: float
    predicts: bool
    weight: float
    conclusion: str
    why: str


@dataclass(frozen=True, eq=False)
class Robustness(Result):
    """What the conclusion does under rival models of choice, the fit that is asked about first.

    Attributes:
        experts: their names.
        contrasts: what is compared in a population: the names of the contrasts; empty for experts who are fitted each.
        rivals: one for each model.
        unit: what was held out, "episode" or "person"; empty where nothing could be.
        again: models that turned out to be the fit again, such as lapses whose most likely share is 0.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("model", "estimate", "low", "high")

    experts: tuple[str, ...]
    contrasts: tuple[str, ...]
    rivals: tuple[Rival, ...]
    unit: str
    again: tuple[str, ...] = ()

    @property
    def as_good(self) -> tuple[Rival, ...]:
        """Return the rivals that predict as well as the best, with an answer."""
        return tuple(rival for rival in self.rivals if rival.predicts and rival.conclusion != "no answer")

    @property
    def holds(self) -> bool:
        """Return whether the conclusion is the same under all models that predict as well as the best, the fit among them."""
        good = self.as_good
        return bool(good) and self.rivals[0] in good and all(rival.conclusion != "changes" for rival in good)

    @property
    def intervals(self) -> Floats:
        """Return from the lowest to the highest end of the intervals of the discounts `(K,2)` under all models as good."""
        ends = np.stack([rival.intervals for rival in self.as_good if np.isfinite(rival.intervals).any()] or [self._nothing()])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a discount that no model identifies
            return np.stack([np.nanmin(ends[:, :, 0], axis=0), np.nanmax(ends[:, :, 1], axis=0)], axis=1)

    def weights_ahead(self) -> Floats:
        """Return from the lowest to the highest end of the weights of a reward 1, 3 and 10 steps from now `(K,3,2)`."""
        ends = np.stack([rival.weights_ahead for rival in self.as_good] or [self.rivals[0].weights_ahead])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return np.stack([np.nanmin(ends[..., 1], axis=0), np.nanmax(ends[..., 2], axis=0)], axis=2)

    def _nothing(self) -> Floats:
        return np.full((len(self.experts), 2), np.nan)

    def sentences(self) -> str:
        """Return the verdict, what each expert's discount can be, and which rivals predict better or change the answer."""
        good, first = self.as_good, self.rivals[0]
        said = [self.verdict()]
        if not first.predicts:
            best = min(good, key=lambda rival: rival.behind)
            said.append(f"The fit itself predicts worse than {best.name}, {self._behind(first)}: ask again with that model.")
        if not self.contrasts and len(good) > 1:
            ends = self.intervals
            shown = [f"{name} {decimals(a, 2)} to {decimals(b, 2)}" for name, (a, b) in zip(self.experts, ends, strict=True)]
            said.append(f"Discounts under these models: {'; '.join(shown[:6])}{' …' if len(shown) > 6 else ''}.")
            wide = np.ptp(ends, axis=1) > 2 * np.ptp(first.intervals, axis=1)
            if wide.any():
                names = in_words([name for name, wider in zip(self.experts, wide.tolist(), strict=True) if wider])
                said.append(f"That is more than twice as wide as the fit alone says for {names}.")
        said += [f"Under {rival.name}: {rival.why}." for rival in good if rival.conclusion == "changes"]
        none = [rival for rival in self.rivals if rival.conclusion == "no answer"]
        said += [f"No answer under {rival.name}: {rival.why}." for rival in none]
        said += [f"The fit again: {in_words([*self.again])}, because nothing of it is found."] if self.again else []
        return "\n".join(said)

    def _behind(self, rival: Rival) -> str:
        """Return by how much a rival predicts worse than the best."""
        size = significant(rival.behind)
        if not self.unit:
            return f"by {size} in log-likelihood less the number of parameters"
        return f"by {size} ± {significant(rival.behind_error)} in the log-likelihood of held-out decisions"

    def verdict(self) -> str:
        """Return in one sentence whether the conclusion holds."""
        good = self.as_good
        same = sum(rival.conclusion in ("as fitted", "the same") for rival in good)
        models = "the 1 model that predicts" if len(good) == 1 else f"{len(good)} models that predict"
        against = "best" if len(good) == 1 else "as well as the best"
        if not self.unit:
            against = "best by its likelihood" if len(good) == 1 else "as well by their likelihood"
        if not good:
            return "No model gives an answer."
        if self.holds:
            return (
                f"The conclusion holds under {models if len(good) == 1 else f'{same} of {models}'} {against}{self._size(good)}."
            )
        changed = [rival.name for rival in good if rival.conclusion == "changes"]
        if not changed:
            return f"The conclusion is the same under {models} {against}, but the fit itself predicts worse."
        one = f"it is the same under {same} of {models} {against}"
        return f"The conclusion depends on the model: {one}, and not under {in_words(changed)}."

    def _size(self, good: Sequence[Rival]) -> str:
        """Return between what the first contrast lies."""
        if not self.contrasts:
            return ""
        sizes = [rival.contrasts[0, 0] for rival in good if np.isfinite(rival.contrasts[0, 0])]
        if not sizes:
            return ""
        unit = "" if np.isnan(good[0].contrasts[0, 3]) else " in the logit of the discount"
        return f" ({self.contrasts[0]}: {decimals(min(sizes), 2)} to {decimals(max(sizes), 2)}{unit})"

    def _tables(self, compute: bool) -> list[Table]:
        """Return the estimates under models that predict as well as the best, and what is found of each model."""
        frame = self.to_frame()
        good = frame[frame["rival"].isin([rival.name for rival in self.as_good])]
        named = "contrast" if self.contrasts else "expert"
        models = frame.drop_duplicates("rival")[["rival", "held_out", "error", "weight", "predicts", "conclusion"]]
        return [
            Table(good[["model", named, "estimate", "low", "high"]], drawn=("estimate", "low", "high")),
            Table(models.rename(columns={"rival": "model", "predicts": "predicts as well"}), "models"),
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each model and expert, or each model and contrast."""
        names = self.contrasts or self.experts
        rows = []
        for rival in self.rivals:
            for i, name in enumerate(names):
                estimate, low, high = rival.contrasts[i, :3] if self.contrasts else (rival.discounts[i], *rival.intervals[i])
                label = f"{name}, {rival.name}" if len(names) > 1 else rival.name
                row: dict[str, Any] = {"model": label, "rival": rival.name, "contrast" if self.contrasts else "expert": name}
                row |= {"estimate": estimate, "low": low, "high": high, "held_out": rival.held_out, "error": rival.error}
                rows.append({**row, "weight": rival.weight, "predicts": rival.predicts, "conclusion": rival.conclusion})
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return for each rival its discounts, its held-out log-likelihood per decision and the conclusion, by name."""
        return {
            rival.name: {
                "discounts": dict(zip(self.experts, rival.discounts.tolist(), strict=True)),
                "intervals": dict(zip(self.experts, rival.intervals.tolist(), strict=True)),
                "contrasts": dict(zip(self.contrasts, rival.contrasts.tolist(), strict=True)),
                "held_out": rival.held_out,
                "error": rival.error,
                "weight": rival.weight,
                "predicts_as_well": rival.predicts,
                "conclusion": rival.conclusion,
                "why": rival.why,
            }
            for rival in self.rivals
        }

    def _content(self) -> dict[str, Any]:
        return {"verdict": self.verdict(), "holds": self.holds, "held_out": self.unit, "robustness": self.to_dict()}


class _Answer(NamedTuple):
    """A rival fitted to everything: what it says, and the log-likelihood of each episode or person when it was held out.

    `held_out` is empty where nothing could be held out.
    """

    discounts: Floats
    intervals: Floats
    weights_ahead: Floats
    contrasts: Floats
    log_likelihood: float
    decisions: float
    parameters: int
    held_out: Floats


def robustness(
    subject: Problem | Solution | Any,
    solver: Solver | None = None,
    rivals: Iterable[str] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    folds: int = 5,
    quick: bool = False,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Robustness:
    """Ask the same question again under rival models of choice, and say whether the conclusion holds.

    Args:
        subject: a problem of decisions, a solution of `MaximumLikelihood` or `Population`, or what `analyse` returned.
        solver: the fit that is asked about; by default that of the solution, or `MaximumLikelihood()`.
        rivals: names among `multihorizon.questions.robustness.CHANGES`, or options of the solver that each rival of your own
            changes, by name: `{"twice as many lapses": {"lapse": 0.1}}`. By default all that the task and the solver allow.
        folds: into how many parts episodes, or people, are dealt.
        quick: whether rivals of experts are begun at the fit alone and have intervals by standard errors, which takes about as
            long as the fit; else each is searched for and has intervals by its profile likelihood.
        seed: scatters the starts and deals the episodes.
        jobs: processes that share the people of a population.
        progress: called after each rival.

    Returns:
        The conclusion under each rival, with discounts, intervals and held-out predictions.

    Raises:
        ValueError: for a solution without decisions, and for rivals that are not known.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.big_small()
        >>> problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=200, seed=0))
        >>> found = mh.robustness(problem, rivals=["values by the best action"])
        >>> [rival.name for rival in found.rivals]
        ['the fit', 'values by the best action']
    """
    folds, run = as_count(folds, "folds", least=2), Run(as_seed(seed), as_jobs(jobs), progress)
    problem, base, solved = _asked_about(subject, solver)
    changes: dict[str, Mapping[str, Any]] = {"the fit": {}, **_changes(base, problem, rivals)}
    fitted: dict[str, _Answer | str] = {}
    dealt: Dealt | None = None
    first: Point | None = None
    for (name, change), part in run.over(list(changes.items())):
        try:
            if "lookahead" in change:
                if first is None:
                    raise ValueError("it is fitted to all experts together, and these were fitted one by one")
                fitted[name] = _fit_weights(first, change["lookahead"], dealt)
            elif isinstance(base, Population):
                fitted[name], dealt = _fit_population(problem, replace(base, **change), dealt, folds, part)
            else:
                kind = replace(base, **change)
                near = first if quick and set(change) <= {"value", "lapse", "stickiness"} else None
                reused = solved if name == "the fit" else None
                fitted[name], point, dealt = _fit_experts(problem, kind, near, reused, dealt, folds, part)
                first = first or point
        except ValueError as error:
            if name == "the fit":
                raise
            fitted[name] = str(error)
    return _compared(problem.names, _contrast_names(base, problem), fitted, dealt)


def _asked_about(subject: Any, solver: Solver | None) -> tuple[Problem, Solver, Solution | None]:
    """Return the problem and the solver of the fit that is asked about, and its solution if there is one."""
    solution = getattr(subject, "population", None) or getattr(subject, "solution", subject)
    solved = None
    if isinstance(solution, Solution):
        problem = require_finite(solution.require_problem())
        used = solver or solution.solver_used(MaximumLikelihood, Population)
        solved = solution if solver is None and isinstance(solution.interval_source, JointEstimate) else None
        if used.deviations and not getattr(solution.evidence.get("deviations"), "spread", 0.0):
            used = replace(used, deviations=0.0)  # they were looked for, and none were found
    else:
        problem, used = require_finite(solution), solver or MaximumLikelihood()
    if not isinstance(used, MaximumLikelihood | Population):
        raise ValueError(f"robustness is asked of MaximumLikelihood or Population, got {type(used).__name__}")
    if isinstance(used, Population) and used.distribution == "types":
        raise ValueError("robustness is asked of a normal population, got types")
    return problem, used, solved


def _changes(base: Solver, problem: Problem, rivals: Any) -> dict[str, Mapping[str, Any]]:
    """Return what each rival changes, without those that change nothing or that this solver and these tasks have not."""
    if isinstance(rivals, Mapping):
        options = [each.name for each in fields(base)]
        for name, change in rivals.items():
            if not isinstance(change, Mapping) or not set(change) <= set(options):
                raise ValueError(
                    f"the rival {name!r} must map options of the solver to values, got {change!r}: {', '.join(options)}"
                )
        return dict(rivals)
    asked = list(CHANGES) if rivals is None else [rivals] if isinstance(rivals, str) else list(rivals)
    unknown = [name for name in asked if name not in CHANGES]
    if unknown:
        raise ValueError(f"rivals must be among {', '.join(CHANGES)}, got {unknown[0]!r}")
    kept: dict[str, Mapping[str, Any]] = {}
    for name in asked:
        change = CHANGES[name]
        has = all(hasattr(base, option) for option in change)
        same = has and "lookahead" not in change and all(getattr(base, option) == value for option, value in change.items())
        if isinstance(base, MaximumLikelihood) and "lookahead" in change:
            has = base.discounts is None and base.value == "soft" and base.lapse == 0 == base.stickiness and base.planner is None
        if "temperature" in change and (problem.n_experts < 2 or isinstance(base, Population)):
            has = False
        if "stickiness" in change and not (problem.tables and all(problem.tables)):
            has = False
        if base.planner is not None:  # it says how the future is valued; its experts are fitted one by one
            has = has and isinstance(base, Population) and "stickiness" in change
        if not has and rivals is not None:
            raise ValueError(f"{name} is no rival here: the solver or the task does not allow it")
        if has and not same:
            kept[name] = change
    return kept


def _rank(precise: Precision) -> int:
    """Return how many directions of the parameters the decisions determine."""
    return int(precise.spectrum.size - precise.null_space.shape[1])


class Dealt(NamedTuple):
    """The fold of each episode or person, how many folds there are, and what was dealt; the episodes of each expert and task."""

    fold: Ints
    folds: int
    unit: str
    clusters: Clusters | None = None


def _deal(values: Floats, owners: Iterable[Ints], folds: int) -> Ints:
    """Return folds with about the same log-likelihoods: units of each owner in turn, in the order of their values."""
    fold = np.zeros(values.size, dtype=np.int64)
    for number, units in enumerate(owners):
        fold[units[np.argsort(np.round(values[units], 6), kind="stable")]] = (number + np.arange(units.size)) % folds
    return fold


def _ahead_of_discounts(discounts: Floats, intervals: Floats) -> Floats:
    """Return the weights of a reward 1, 3 and 10 steps from now with their intervals `(K,3,3)`."""
    weights: Floats = np.column_stack([discounts, intervals])[:, None, :] ** np.array(AHEAD)[:, None]
    return weights


def _fit_experts(
    problem: Problem,
    solver: MaximumLikelihood,
    near: Point | None,
    solved: Solution | None,
    dealt: Dealt | None,
    folds: int,
    run: Run,
) -> tuple[_Answer, Point | None, Dealt | None]:
    """Return a rival fitted to experts, the model at its answer, and how episodes are dealt.

    It is begun `near` another fit and climbed once, or it is `solved` already; else it is searched for.
    """
    if near is not None:
        point = _climbed_from(near, solver)
        precise, part = precision(point), point.likelihood.discount_slice
        half = float(ndtri(0.975)) * np.where(precise.identified[part], precise.standard_errors[part], np.inf)
        groups, bounds = point.likelihood.groups, (point.likelihood.lower[part], point.likelihood.upper[part])
        intervals = np.stack([np.clip(point.x[part] + sign * half, *bounds) for sign in (-1, 1)], axis=1)[groups]
        return _answer_at(point, intervals, dealt), point, dealt
    solution = solved or solver.solve(problem, run.seed, run.progress)
    if solution.status == Status.NOT_CONVERGED:
        raise ValueError("the search did not end")
    if type(solver.lookahead) is not Exponential:
        raise ValueError("robustness is asked of a fit with discounts: families of look-ahead are among the rivals")
    intervals = solution.confidence_intervals()
    intervals = np.where(np.isnan(intervals), [0.0, 1.0], intervals)  # a discount that is not identified may be anything
    evidence = solution.evidence
    if not isinstance(solution.interval_source, JointEstimate):  # people who were fitted one by one
        free = 2 * problem.n_experts
        numbers = solution.discounts, intervals, _ahead_of_discounts(solution.discounts, intervals), np.zeros((0, 4))
        return _Answer(*numbers, float(evidence["log_likelihood"]), float(evidence["decisions"]), free, np.zeros(0)), None, dealt
    point = solution.interval_source.point
    dealt = dealt or _dealt_episodes(point, folds)
    return _answer_at(point, intervals, dealt), point, dealt


def _answer_at(point: Point, intervals: Floats, dealt: Dealt | None) -> _Answer:
    """Return what a fit of experts says and predicts."""
    model = point.likelihood
    discounts = model.discounts(point.x)
    held_out = np.zeros(0) if dealt is None else _held_out_episodes(point, dealt)
    return _Answer(
        discounts=discounts,
        intervals=intervals,
        weights_ahead=_ahead_of_discounts(discounts, intervals),
        contrasts=np.zeros((0, 4)),
        log_likelihood=point.value,
        decisions=model.decisions,
        parameters=_rank(precision(point)) - model.n_transitions,
        held_out=held_out,
    )


def _climbed_from(near: Point, solver: MaximumLikelihood) -> Point:
    """Return the maximum of a rival that a climb from another fit reaches."""
    base = near.likelihood
    if isinstance(near, NearPoint):
        raise ValueError("experts deviate from the shared reward, and that needs soft values")
    model = Likelihood(base.problem, solver.choosing(base.settings), ridge=base.ridge)
    if base.penalty is not None:
        model = model.holding(base.penalty.without(base.habit_slice, model.n_habits), base.ridge)
    beside = model.pack(base.reward(near.x), near.x[base.discount_slice])[model.beside_slice]
    beside[model.n_habits :] = near.x[base.transition_slice]
    start = model.at(model.pack(base.reward(near.x), near.x[base.discount_slice], np.exp(near.x[base.temperature_slice]), beside))
    end = None if start is None else climb(start, max_steps=100, gain=1e-3)
    if end is None or not end.finished:
        raise ValueError("the climb from the fit did not end")
    return end.point


def _dealt_episodes(point: Point, folds: int) -> Dealt | None:
    """Return the folds of episodes, each expert's dealt evenly; None where somebody has a single one, or they are not known."""
    clusters = Clusters.of(point.likelihood.problem, "episode")
    if isinstance(clusters, str) or min(counts.shape[0] for counts in clusters.counts) < 2:
        return None
    owners = clusters.numbers
    values = np.zeros(1 + max(int(each.max()) for each in owners))
    for plan in point.plans:
        log = plan.persons.by_state(np.exp(plan.log)) if plan.persons.by_last else plan.finite_log
        for i, position in enumerate(plan.persons.positions.tolist()):
            values[owners[position]] += clusters.counts[position] @ log[:, :, i].ravel()
    return Dealt(_deal(values, owners, folds), folds, "episode", clusters)


def _held_out_episodes(point: Any, dealt: Dealt, further: Callable[[Any], Any] | None = None) -> Floats:
    """Return the log-likelihood of each episode under fits to the other folds, begun at the fit to all; NaN where one failed.

    `further` climbs from a start; by default as far as a thousandth of log-likelihood.
    """
    model = point.likelihood
    clusters = dealt.clusters
    if any(batch.by_last for batch in model.batches):
        clusters = cast(Clusters, Clusters.of(model.problem, "episode", by_last=True))
    assert clusters is not None
    actions = [expert.mdp.n_actions for expert in model.problem.experts]
    held_out = np.zeros(dealt.fold.size)
    for number in range(dealt.folds):
        out = dealt.fold == number
        kept = [counts[~out[numbers]].sum(axis=0) for counts, numbers in zip(clusters.counts, clusters.numbers, strict=True)]
        part = of_part(model, [np.asarray(each).reshape(a, -1).T for each, a in zip(kept, actions, strict=True)])
        start = part.at(point.x[: part.size])
        if start is None:
            return np.full(held_out.size, np.nan)
        end = climb(start, max_steps=60, gain=1e-3).point if further is None else further(start)
        for plan in end.plans:
            for i, position in enumerate(plan.persons.positions.tolist()):
                numbers = clusters.numbers[position]
                likely = clusters.counts[position] @ plan.finite_log[:, :, i].ravel()
                held_out[numbers[out[numbers]]] += likely[out[numbers]]
    return held_out


def _fit_weights(base: Point, family: Lookahead, dealt: Dealt | None) -> _Answer:
    """Return a family of look-ahead weights fitted from the first fit; discounts are weighed as far as the likeliest depth."""
    limited = isinstance(family, Exponential)
    most = int(person_steps(base.likelihood.problem).max())
    depths = [depth for depth in DEPTHS if depth < most] if limited else [None]
    fits = [fit for fit in (fit_lookahead(base, family, steps=depth) for depth in depths) if fit.ascent.finished]
    if not fits:
        raise ValueError("the search did not end" if depths else "the task has too few steps")
    fit = max(fits, key=lambda fit: fit.point.objective)
    point, model = fit.point, fit.model
    precise = precision(point)
    part = model.discount_slice
    errors = np.where(precise.identified[part], precise.standard_errors[part], np.inf)
    here = point.x[part].reshape(model.n_groups, -1)
    half = float(ndtri(0.975)) * errors.reshape(here.shape)
    corners = [here, *(np.clip(here + np.array(signs) * half, 0.0, 1.0) for signs in product((-1, 1), repeat=here.shape[1]))]
    weights = np.stack([_weights(family, corner, model.steps) for corner in corners])[:, :, model.groups]
    ahead = np.stack([weights[0], weights.min(axis=0), weights.max(axis=0)], axis=2).swapaxes(0, 1)
    discounts, intervals = model.discounts(point.x), np.full((model.n_experts, 2), np.nan)
    if limited:
        intervals = np.stack([corner[:, 0] for corner in corners[1:]], axis=1)[model.groups]
    held_out = np.zeros(0)
    if dealt is not None:
        held_out = _held_out_episodes(point, dealt, lambda start: search(start).point)
    parameters = (
        _rank(precision(base))
        - base.likelihood.n_transitions
        - base.likelihood.n_discounts
        + sum(lookahead_counts(model))
        + limited
    )
    return _Answer(discounts, intervals, ahead, np.zeros((0, 4)), point.value, model.decisions, parameters, held_out)


def _weights(family: Lookahead, coordinates: Floats, steps: int) -> Floats:
    """Return the weights `(3,n)` of a reward 1, 3 and 10 steps from now; 0 beyond the end of the task."""
    rates = family.step_discounts(coordinates, steps)[0]
    along = np.concatenate([np.cumprod(rates, axis=0), np.zeros((max(AHEAD), len(coordinates)))])
    weights: Floats = along[np.array(AHEAD) - 1]
    return weights


def _fit_population(problem: Problem, solver: Population, dealt: Dealt | None, folds: int, run: Run) -> tuple[_Answer, Dealt]:
    """Return a rival fitted to a population, and how people are dealt."""
    first, second = run.parts(1, 1)
    found = solver.search(problem, first)
    solution = solver.answer(found, first)
    if solution.status == Status.NOT_CONVERGED:
        raise ValueError("the search did not end")
    people = PopulationEvidence.of(solution).population
    rows = [(row["estimate"], *row["interval"], row["p"]) for row in people.contrasts["discount"]]
    if not rows:
        intercept = people.discount["Intercept"]
        rows = [(intercept["estimate"], *intercept["interval"], np.nan)]
    half = float(ndtri(0.975)) * solution.standard_errors if solution.standard_errors is not None else np.nan
    intervals = np.clip(solution.discounts[:, None] + np.array([-1.0, 1.0]) * np.reshape(half, (-1, 1)), 0.0, 1.0)
    maximum = found.maximum
    layout = maximum.marginal.layout
    if dealt is None:
        folds = min(folds, layout.persons)
        dealt = Dealt(_deal(maximum.value.persons, [np.arange(layout.persons)], folds), folds, "person")
    parameters = layout.size + (found.habit is not None)
    numbers = solution.discounts, intervals, _ahead_of_discounts(solution.discounts, intervals), np.array(rows, dtype=np.float64)
    held_out = _held_out_persons(maximum, dealt, second)
    return _Answer(*numbers, float(maximum.value.persons.sum()), float(layout.counts.sum()), parameters, held_out), dealt


def _held_out_persons(maximum: Maximum, dealt: Dealt, run: Run) -> Floats:
    """Return the log-likelihood of each person under the population of the other folds, begun at that of all."""
    layout = maximum.marginal.layout
    held_out = np.zeros(layout.persons)
    for number, part in run.over(list(range(dealt.folds))):
        out = np.flatnonzero(dealt.fold == number)
        others = layout.some(np.flatnonzero(dealt.fold != number))
        psi = maximise(others, Start.at(others, maximum.psi), 7, part, 1e-2).psi
        left_out = layout.some(out)
        value = Marginal(left_out, modes(left_out, psi), 15).at(psi, full=False)
        held_out[out] = np.nan if value is None else value.persons
    return held_out


def _contrast_names(base: Solver, problem: Problem) -> tuple[str, ...]:
    """Return what is compared in a population."""
    if not isinstance(base, Population):
        return ()
    comparisons = base.covariates(problem).comparisons
    names = [
        f"{comparison.column}: {comparison.levels[j]} less {comparison.levels[i]}"
        for comparison in comparisons
        for i, j in combinations(range(len(comparison.levels)), 2)
    ]
    return tuple(names) or ("typical logit of the discount",)


def _compared(
    experts: tuple[str, ...], contrasts: tuple[str, ...], fitted: Mapping[str, _Answer | str], dealt: Dealt | None
) -> Robustness:
    """Return the rivals beside each other."""
    answers = {name: fit for name, fit in fitted.items() if not isinstance(fit, str)}
    first = answers["the fit"]
    twins = [name for name, fit in answers.items() if fit is not first and _is_same(fit, first)]
    answers = {name: fit for name, fit in answers.items() if name not in twins}
    fitted = {name: fit for name, fit in fitted.items() if name not in twins}
    of_units = dealt is not None and all(np.isfinite(fit.held_out).all() and fit.held_out.size for fit in answers.values())
    names = list(answers)
    scores = np.array([answers[name].log_likelihood - answers[name].parameters for name in names])
    behind, error, own_error = scores.max() - scores, np.zeros(len(names)), np.full(len(names), np.nan)
    held_out, good, weights = own_error, behind <= BEHIND, np.exp(scores - logsumexp(scores))
    if of_units:
        table = np.stack([answers[name].held_out for name in names], axis=1)
        best = int(table.sum(axis=0).argmax())
        apart = table[:, [best]] - table
        behind = apart.sum(axis=0)
        error = np.sqrt(len(table) * apart.var(axis=0))
        own_error = np.sqrt(len(table) * table.var(axis=0)) / first.decisions
        held_out, weights = table.sum(axis=0) / first.decisions, _stacked(table)
        good |= behind <= np.maximum(error, BEHIND)
    rivals = []
    for name, fit in fitted.items():
        if isinstance(fit, str):
            k, none = len(experts), np.nan
            nothing = (
                np.full(k, none),
                np.full((k, 2), none),
                np.full((k, len(AHEAD), 3), none),
                np.full((len(contrasts), 4), none),
            )
            rivals.append(Rival(name, *nothing, none, 0, none, none, none, none, False, 0.0, "no answer", fit))
            continue
        i = names.index(name)
        why = _what_changes(experts, contrasts, first, fit)
        conclusion = "as fitted" if fit is first else "predicts worse" if not good[i] else "changes" if why else "the same"
        rivals.append(
            Rival(
                name=name,
                discounts=fit.discounts,
                intervals=fit.intervals,
                weights_ahead=fit.weights_ahead,
                contrasts=fit.contrasts,
                log_likelihood=fit.log_likelihood,
                parameters=fit.parameters,
                held_out=float(held_out[i]),
                error=float(own_error[i]),
                behind=float(behind[i]),
                behind_error=float(error[i]),
                predicts=bool(good[i]),
                weight=float(weights[i]),
                conclusion=conclusion,
                why=why,
            )
        )
    return Robustness(experts, contrasts, tuple(rivals), dealt.unit if of_units and dealt is not None else "", tuple(twins))


def _is_same(fit: _Answer, first: _Answer) -> bool:
    """Return whether a rival is the first fit again, as where temperatures of each turn out to be equal."""
    same_values = np.allclose(fit.discounts, first.discounts, rtol=0, atol=1e-7)
    return same_values and abs(fit.log_likelihood - first.log_likelihood) < 1e-7


def _stacked(table: Floats, rounds: int = 500) -> Floats:
    """Return weights of the columns of log-likelihoods `(E,R)` that predict best together."""
    weights = np.full(table.shape[1], 1 / table.shape[1])
    likely = np.exp(table - table.max(axis=1, keepdims=True))
    for _ in range(rounds):
        shares = likely * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights


def _apart(one: Floats, two: Floats) -> Bools:
    """Return where neither of two estimates lies in the interval of the other, for estimates and ends `(…,3)`."""
    outside: Bools = (one[..., 0] < two[..., 1] - 1e-9) | (one[..., 0] > two[..., 2] + 1e-9)
    return outside & ((two[..., 0] < one[..., 1] - 1e-9) | (two[..., 0] > one[..., 2] + 1e-9))


def _what_changes(experts: Sequence[str], contrasts: Sequence[str], first: _Answer, fit: _Answer) -> str:
    """Return what a rival says otherwise than the first fit; empty where that is nothing."""
    if contrasts:
        said = []
        for name, own, rival in zip(contrasts, first.contrasts.tolist(), fit.contrasts.tolist(), strict=True):
            (here, *_, p), (there, low, high, other) = own, rival
            clearly = (p <= 0.05) != (other <= 0.05) or (p <= 0.05 and here * there < 0)
            if (not low <= here <= high) if np.isnan(p) else clearly:
                said.append(f"{name} is {decimals(there, 2)} ({decimals(low, 2)} to {decimals(high, 2)})")
        return in_words(said) if said else ""
    if np.isnan(fit.discounts).all():  # weights of the future that are no discount
        off = np.flatnonzero(_apart(first.weights_ahead[:, :2], fit.weights_ahead[:, :2]).any(axis=1))
        names = [experts[k] for k in off.tolist()]
        return f"rewards a few steps ahead have other weights for {in_words(names)}" if names else ""
    changed = _apart(first.weights_ahead[:, :1], fit.weights_ahead[:, :1])[:, 0].tolist()  # one step ahead it is the discount
    said = [
        f"the discount of {name} is {decimals(there, 2)} ({decimals(low, 2)} to {decimals(high, 2)})"
        for name, there, (low, high), turned in zip(experts, fit.discounts, fit.intervals, changed, strict=True)
        if turned
    ]
    for one, two in combinations(range(len(experts)), 2):
        clear = first.intervals[one, 1] < first.intervals[two, 0] or first.intervals[two, 1] < first.intervals[one, 0]
        if clear and (first.discounts[one] - first.discounts[two]) * (fit.discounts[one] - fit.discounts[two]) < 0:
            said.append(f"{experts[one]} and {experts[two]} change places")
    more = [f"{len(said) - 3} more"] if len(said) > 3 else []
    return in_words([*said[:3], *more]) if said else ""
