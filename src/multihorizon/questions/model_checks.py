"""Does the model fit? Held-out likelihood against simpler and richer models, calibration, and the states where it fits worst.

*Held out.* Each expert's episodes are dealt into folds; the decisions of a fold are predicted by a model fitted to the others.
Beside the fitted model stand three baselines: all experts share one discount, nobody plans (discount 0), and each expert's own
smoothed frequencies, which know nothing of states without data but can express any behaviour. A model that is right beats all
three once there are enough decisions; frequencies that win say that the experts do something the model cannot.

*Calibration.* Held-out action probabilities in ten bins, against how often those actions were taken.

*Worst states.* One expert's choices in a state can be compared with the model where they repeat. In many tasks of people they do
not: hundreds of states, each met once or twice by each person. There the decisions of all experts in a state are summed, and so
are the choices the model expects of them. `G² = 2 Σ_a N log(N/E)` is compared with χ² with one degree of freedom fewer than
available actions. Experts who differ make the sums vary less than χ² says, so the test is conservative. p-values are multiplied
by the number of cases looked at (Bonferroni). How widely the model fails is graded by the share of cases in which it does, and by
its size: the share of decisions that would have to be others, `½ Σ|N − E|` in those cases. Of many decisions, tiny differences
are more than chance.

*Within episodes.* Under the model a choice depends on nothing but the state. Whether the choices of one episode go together more
than that is tested in `likelihood.clusters`.

*All choices at once.* Tests of single states see what is wrong in one place. What is a little wrong everywhere, they miss. Here N
are the choices taken, E those expected, each `(R,)`, one row for each expert, state and action, and four numbers look at their
differences:

* *each expert's choices*: Pearson's `Σ (N − E)² / max(E, 1)` over all rows;
* *choices of all together*: the same of the sums over experts, which is larger where all depart in the same direction;
* *lapses*: the score `Σ u (N − E)` of choices at random. With a share ε of lapses, choices have the probabilities
  `(1 − ε) π + ε/A`, and `u = (1/A − π) / ((1 − ε) π + ε/A)`, here at ε = 0.05, is the slope of their logarithm in ε. Against
  lapses no test has more power;
* *present bias*: the size of the score of a factor β, the same for all, by which everything but the immediate reward counts less
  or more than γ says. There u is the discounted value after the choice, over the temperature, less its mean in the state.
  Hyperbolic planners have β below 1, to first order.

*Level.* Parameters were fitted to the same choices, so these numbers have no standard distribution. With J `(R,p)` the slopes of
log π in the parameters, P what is known of these besides (logged moves, penalties, how people vary in a population), and
`H = Jᵀ diag(E) J + P`, draws e of choices less E move the parameters by `H⁻¹ (Jᵀ e + m)`, m drawn from `N(0, P)`. What is left,

    r = e − diag(E) J H⁻¹ (Jᵀ e + m),

is what N − E is like if the model is right, to first order. Choices are drawn in the states in which they were made. Each number
is taken in its standard deviations from its mean over the draws. The statistic is the largest of them, and its p-value the share
of draws with a larger one.

*Power.* Where a share ε of choices are lapses, the choices are `n ((1 − ε) π + ε/A)` on average in a state with n decisions. The
model is fitted to these, with log π linear in its parameters, and what is left of them, summed with the weights u, is by how much
the score moves. With c the standard deviations that the score exceeds where the statistic does so in 5% of draws, ε is detected
with a probability of 80% or more where that is `c + 0.84` of the score's standard deviations there. The smallest such ε is
reported; for present bias it is `|1 − β|`, with choices in proportion to `π exp(−ε u)`. What one reward, discount and temperature
can imitate, no such test can see. Then hardly anything is left, and ε is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import ndtri

from multihorizon.checks import TINY, Bools, Floats, Ints, Seed, Sparse, as_count, as_seed
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import ListedModel, Point
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.likelihood.clusters import WithinEpisodes, within_episodes
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.search import climb, smoothed_policy
from multihorizon.mdp import MDP
from multihorizon.numerics.distributions import chi2_sf
from multihorizon.parallel import Progress, Run, limits, silent
from multihorizon.problem import Problem, cells_of_episodes, require_counts
from multihorizon.questions.schedule import tables_of
from multihorizon.result import COLOURS, Result
from multihorizon.solution import Solution
from multihorizon.words import LEVEL, Table, count, decimals, in_words, p_text, percent, significant

MODELS = ("this model", "one shared discount", "discount 0", "own frequencies")
#: Shares of fewer decisions say too little to be compared with the model.
FEWEST_DECISIONS = 10
#: A case in which choices differ from the model counts if its p-value is below this; so many of the worst are named.
ODD, WORST = 0.05, 10

Model = TypeVar("Model", bound=ListedModel)


@dataclass(frozen=True, eq=False)
class ModelChecks(Result):
    """What `check_model` found.

    Attributes:
        experts: their names.
        decisions: held-out decisions of each expert `(K,)`.
        held_out: for each of `MODELS` the mean held-out log-likelihood of a decision, `(K,)`.
        calibration: one row per bin: the mean predicted probability, the share taken, and how many decisions were predicted.
        worst: the first of `misfits`, as dicts.
        within: whether choices of one episode go together.
        overall: whether all choices together differ from the model, and what such a table would have shown.
    """

    experts: tuple[str, ...]
    decisions: Floats
    held_out: dict[str, Floats]
    calibration: Floats
    worst: list[dict[str, Any]]
    within: WithinEpisodes
    overall: OverallTest

    def sentences(self) -> str:
        """Return how well each model predicts, how many of the worst states are odd, and whether choices of an episode go
        together."""
        total = self.decisions.sum()
        means = ", ".join(f"{name} {decimals(values @ self.decisions / total, 4)}" for name, values in self.held_out.items())
        odd = sum(case["p_value"] < ODD for case in self.worst)
        states = f"{'at least ' * (odd == WORST)}{odd}" if odd else "no"
        lines = [f"Mean log-likelihood of {decimals(total, 0)} held-out decisions, nearer to zero is better: {means}."]
        lines.append(f"Choices differ from the model by more than chance in {states} case{'s' * (odd != 1)}.")
        within = f"was not tested: {self.within.reason}" if self.within.reason else f"has p = {significant(self.within.p_value)}"
        lines.append(f"That choices of one episode do not go together {within}.")
        return "\n".join([*lines, overall_words(self.overall)])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert: how many decisions were held out, and their mean log-likelihood under each model."""
        return pd.DataFrame({"expert": self.experts, "decisions": self.decisions, **self.held_out})

    def _facts(self) -> dict[str, Any]:
        odd = sum(case["p_value"] < ODD for case in self.worst)
        together = "not tested" if self.within.reason else p_text(self.within.p_value, "")
        overall = "not tested" if self.overall.reason else p_text(self.overall.p_value, "")
        facts = {"held-out decisions": self.decisions.sum(), "odd cases": odd, "all choices, p": overall}
        return facts | {"choices of an episode, p": together}

    def _tables(self, compute: bool) -> list[Table]:
        worst = pd.DataFrame(self.worst, columns=list(Misfit._fields))
        held_out = Table(self.to_frame(), "mean log-likelihood of held-out decisions")
        return [held_out, Table(worst, "cases that fit worst")]

    def _height(self) -> float:
        return 3.3

    def _draw(self, ax: Any) -> None:
        """How often actions were taken that were predicted with such a probability; larger dots stand for more decisions."""
        predicted, taken, number = self.calibration.T
        ax.plot([0, 1], [0, 1], color="0.6")
        ax.scatter(predicted, taken, s=10 + 90 * number / max(number.max(initial=0.0), 1.0), color=COLOURS[0], alpha=0.7)
        ax.set(xlabel="predicted probability", ylabel="share taken")

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dicts."""
        return {
            "held_out": {name: values.tolist() for name, values in self.held_out.items()},
            "held_out_decisions": self.decisions.tolist(),
            "calibration": self.calibration.tolist(),
            "worst_states": self.worst,
            "within_episodes": self.within._asdict(),
            "overall": self.overall._asdict(),
        }

    def _content(self) -> dict[str, Any]:
        return {"experts": self.experts, **self.to_dict()}


def check_model(
    solution: Solution,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    folds: int = 2,
    *,
    conditions: Sequence[str] = (),
    seed: Seed = 0,
    progress: Progress = silent,
) -> ModelChecks:
    """Check a maximum-likelihood solution on the table it was fitted to.

    Args:
        solution: of `MaximumLikelihood`, with its problem.
        demonstrations: the table, or one for each task in the order they were joined; by default the problem's own.
        folds: how many parts the episodes are dealt into; every expert needs at least as many episodes.
        conditions: those of the table under which each expert may choose otherwise; episodes under each are dealt evenly, and
            only choices under the same conditions are compared within episodes.
        seed: deals the episodes.
        progress: called after each fit.

    Returns:
        Held-out likelihood, calibration and misfit by state (`multihorizon.questions.model_checks.ModelChecks`).

    Raises:
        ValueError: for solutions of other solvers, other tables than the problem's, and too few episodes.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0)
        >>> problem = mh.Problem(d.mdp, table)
        >>> solution = mh.solve(problem, mh.MaximumLikelihood(1.0))
        >>> type(mh.check_model(solution, table)).__name__
        'ModelChecks'
    """
    run = Run(as_seed(seed), progress=progress)
    point = resume(solution)
    if point.likelihood.settings.stickiness:
        raise ValueError(
            "held-out checks need choices that do not depend on the last action: robustness holds episodes out instead"
        )
    problem = point.likelihood.problem
    tables = tables_of(problem, demonstrations)
    parts = deal(problem, tables, as_count(folds, "folds", least=2), np.random.default_rng(run.seed), conditions)
    owner = np.array(problem.owner)
    totals = {name: np.zeros(len(solution.experts)) for name in MODELS}
    decisions = np.zeros(len(solution.experts))
    pairs: list[tuple[Floats, Floats, Floats]] = []
    for fold, held in enumerate(parts):
        train = [require_counts(expert) - test for expert, test in zip(problem.experts, held, strict=True)]
        for number, name in enumerate(MODELS):
            policies = _predict(point, train, name)
            for i, (expert, test, policy) in enumerate(zip(problem.experts, held, policies, strict=True)):
                totals[name][owner[i]] += float((test * np.log(np.where(test > 0, np.maximum(policy, 1e-300), 1.0))).sum())
                if name == MODELS[0]:  # predicted probability, times taken and times possible, where there are decisions
                    visits = np.broadcast_to(test.sum(axis=1, keepdims=True), test.shape)
                    seen = (visits > 0) & expert.mdp.available
                    pairs.append((policy[seen], test[seen], visits[seen]))
            run.progress((fold * len(MODELS) + number + 1) / (len(parts) * len(MODELS)), f"fold {fold + 1}: {name}")
        np.add.at(decisions, owner, [float(test.sum()) for test in held])
    held_out = {name: total / np.maximum(decisions, 1.0) for name, total in totals.items()}
    worst = [misfit._asdict() for misfit in misfits(compared_choices(problem, point.policies()))[:WORST]]
    within = within_episodes(point, tables, run.seed, conditions=conditions)
    overall = overall_test(AllChoices.of(point), run)
    return ModelChecks(solution.experts, decisions, held_out, calibration_bins(pairs), worst, within, overall)


# Held out.


def deal(
    problem: Problem, tables: Sequence[Demonstrations], folds: int, rng: np.random.Generator, conditions: Sequence[str] = ()
) -> list[list[Floats]]:
    """Return counts of each expert and task in each fold, into which each expert's episodes are dealt."""
    parts: list[list[Floats]] = [[] for _ in range(folds)]
    for table in tables:
        fold = fold_of_episodes(table, folds, rng, conditions)
        mdp = problem.experts[len(parts[0])].mdp
        for number, part in enumerate(parts):
            part += list(table.counts_of_episodes(mdp, fold == number))
    return parts


def fold_of_episodes(table: Demonstrations, folds: int, rng: np.random.Generator, conditions: Sequence[str] = ()) -> Ints:
    """Return the fold `(E,)` into which each episode is dealt, those of each expert, and of each expert's conditions, evenly."""
    owners = table.by_episode.expert
    cell = cells_of_episodes(table, conditions)
    fold = np.zeros(owners.size, dtype=np.int64)
    for expert, name in enumerate(table.experts):
        episodes = rng.permutation(np.flatnonzero(owners == expert))
        if episodes.size < folds:
            raise ValueError(f"expert {name} must have at least {folds} episodes to hold some out, got {episodes.size}")
        first = int(rng.integers(folds)) if conditions else 0  # else episodes under one condition would all be in one fold
        fold[episodes[np.argsort(cell[episodes], kind="stable")]] = (first + np.arange(episodes.size)) % folds
    return fold


def of_part(model: Model, counts: Sequence[Floats]) -> Model:
    """Return the model of some of the episodes, in which transitions stay as all moves of the table have them, with a ridge.

    Rows that stand on few moves would follow the decisions that are there, and predict those that are held out worse for it.
    Without a ridge a reward may run away that the whole table holds. It has the weight of rewards with a standard deviation of
    some 30 temperatures, for the largest value of each feature.
    """
    held = model.held()
    weight = 1e-3 * (model.feature_sizes / model.known_temperature) ** 2
    return held.with_counts(counts).holding(held.penalty, np.maximum(model.ridge, weight))


def _predict(point: Point, train: list[Floats], name: str) -> list[Floats]:
    """Return the policies `(S,A)` of one of `MODELS` fitted to the training counts."""
    model = point.likelihood
    if name == "own frequencies":
        experts = model.problem.experts
        return [
            smoothed_policy(expert.mdp, counts.T[:, :, None])[:, :, 0].T for expert, counts in zip(experts, train, strict=True)
        ]
    fitted = of_part(model, train)
    if name == "one shared discount":
        fitted = fitted.sharing((0,) * model.problem.n_experts)
    fixed = np.zeros(fitted.size, dtype=np.bool_)
    discounts = model.discounts(point.x)
    grouped = np.array([discounts[fitted.groups == g].mean() for g in range(fitted.n_discounts)])
    if name == "discount 0":
        grouped = np.full_like(grouped, max(batch.mdp.least_discount for batch in fitted.batches))
        fixed[fitted.discount_slice] = True
    reward = model.reward(point.x)
    temperatures = np.exp(point.x[model.temperature_slice])
    backs = (0.0, 1e-3, 1e-2, 1e-1, 0.3)  # discounts are drawn back from 1 where the soft values there are infinite
    habits = point.x[model.habit_slice]
    tried = (fitted.at(fitted.pack(reward, np.minimum(grouped, 1 - back), temperatures, habits)) for back in backs)
    start = next((there for there in tried if there is not None), None)
    if start is None:
        raise ValueError(f"the baseline {name} has no finite soft values at the fitted reward")
    # It starts from the answer and need not be exact to be compared.
    return climb(start, fixed, 60, gain=1e-3).point.policies()


def calibration_bins(pairs: list[tuple[Floats, Floats, Floats]]) -> Floats:
    """Return mean prediction, share taken and weight of each occupied bin, `(n,3)`."""
    bins = 10
    predicted, taken, visits = (np.concatenate([pair[i] for pair in pairs]) for i in range(3))
    place = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    weight, mean, share = (np.bincount(place, total, minlength=bins) for total in (visits, visits * predicted, taken))
    kept = weight > 0
    return np.stack([mean[kept] / weight[kept], share[kept] / weight[kept], weight[kept]], axis=1)


# Worst states.


class Misfit(NamedTuple):
    """A case, that is, a state and who decided in it, with the action most out of line.

    `taken` and `predicted` are shares of that action, `missed` the share of decisions that would have to be others.
    """

    expert: str
    state: str
    decisions: int
    action: str
    taken: float
    predicted: float
    missed: float
    deviance: float
    p_value: float


class Extent(NamedTuple):
    """How widely a model fits: cases that were compared, those with choices that differ from it by more than chance, the share of
    decisions that would have to be others in these cases, and the same as a share of all decisions compared."""

    compared: int
    odd: int
    missed: float
    missed_of_all: float

    @property
    def answer(self) -> str:
        """In which states the model fits: "Yes", "In nearly all states", "In most states", "In part" or "No"."""
        if not self.odd:
            return "Yes"
        share = self.odd / self.compared
        if self.missed_of_all <= 0.01:  # where so few decisions would have to be others, the share of cases does not matter
            share = 0.0
        graded = (("In nearly all states", 0.05, 0.02), ("In most states", 0.15, 0.05), ("In part", 0.5, 0.15))
        return next((words for words, cases, size in graded if share <= cases and self.missed_of_all <= size), "No")

    @property
    def nearly_everywhere(self) -> bool:
        """Return whether the model fits in all states or nearly all."""
        return self.answer in ("Yes", "In nearly all states")


def fit_answer(how: Extent, overall: OverallTest) -> str:
    """Return whether the model fits, from single states and from all choices together, which may differ where no state stands
    out."""
    if how.nearly_everywhere and overall.p_value <= ODD:
        return "In part" if overall.p_value <= 0.001 else "Perhaps not"
    return how.answer if how.odd else "No misfit detected"


def extent_words(worst_first: Sequence[Misfit]) -> str:
    """In how many of the cases the model does not fit, where most, and by how much; there must be one."""
    how = extent(worst_first)
    worst = in_words(list(dict.fromkeys(misfit.state for misfit in worst_first[: how.odd]))[:3])
    cases = f"{how.odd:,} of the {count(how.compared, 'case')} with enough decisions ({percent(how.odd / how.compared)})"
    return (
        f"Choices differ from it by more than chance in {cases}, most in {worst}. In these cases {percent(how.missed)} of the "
        f"decisions would have to be others, which is {percent(how.missed_of_all)} of all."
    )


@dataclass(frozen=True, eq=False)
class ComparedChoices:
    """Decisions `(S,A)` of one expert, or of all in a task, beside those the model expects of them."""

    expert: str
    mdp: MDP
    taken: Floats
    expected: Floats

    @property
    def visits(self) -> Floats:
        """Return decisions in each state `(S,)`."""
        total: Floats = self.taken.sum(axis=1)
        return total

    @property
    def cases(self) -> Bools:
        """Return the states `(S,)` with a choice, and with enough decisions to be compared."""
        mask: Bools = (self.visits >= FEWEST_DECISIONS) & (self.mdp.available.sum(axis=1) > 1)
        return mask


class Compared(NamedTuple):
    """Choices beside those that are expected: of each expert where choices `repeat`, else of all experts of a task together."""

    choices: list[ComparedChoices]
    repeat: bool


def misfits(compared: Compared) -> list[Misfit]:
    """Return every case with enough decisions to be compared with what is expected, the worst first."""
    number = sum(int(choices.cases.sum()) for choices in compared.choices)
    rows = []
    for choices in compared.choices:
        taken, expected, mdp = choices.taken, choices.expected, choices.mdp
        ratio = np.where(taken > 0, taken / np.maximum(expected, TINY), 1.0)
        deviance = np.maximum(2 * (taken * np.log(ratio)).sum(axis=1), 0.0)
        p_values = np.minimum(1.0, number * chi2_sf(deviance, np.maximum(mdp.available.sum(axis=1) - 1, 1)))
        for s in np.flatnonzero(choices.cases):
            gap = np.abs(taken[s] - expected[s])
            visits = float(taken[s].sum())
            a = int(gap.argmax())
            shares = float(taken[s, a]) / visits, float(expected[s, a]) / visits, float(gap.sum()) / 2 / visits
            names = mdp.state_names[s], int(visits), mdp.action_names[a]
            rows.append(Misfit(choices.expert, *names, *shares, float(deviance[s]), float(p_values[s])))
    return sorted(rows, key=lambda m: (m.p_value, -m.deviance, m.expert, m.state))


def extent(worst_first: Sequence[Misfit]) -> Extent:
    """Return how widely the model fits, from all its `misfits`."""
    odd = [misfit for misfit in worst_first if misfit.p_value < ODD]
    missed = sum(m.missed * m.decisions for m in odd)
    there, everywhere = (max(sum(m.decisions for m in cases), 1) for cases in (odd, worst_first))
    return Extent(len(worst_first), len(odd), missed / there, missed / everywhere)


def compared_choices(problem: Problem, policies: Sequence[Floats]) -> Compared:
    """Return the choices of the problem's experts beside those that policies `(S,A)` make them expect.

    Choices repeat where most decisions were made in states that the same expert met often enough to be compared with the model.
    """
    visits = [require_counts(expert).sum(axis=1) for expert in problem.experts]
    often = sum(float(v[v >= FEWEST_DECISIONS].sum()) for v in visits)
    repeat = often > 0.5 * sum(float(v.sum()) for v in visits)
    each = []
    for expert, policy in zip(problem.experts, policies, strict=True):
        counts = require_counts(expert)
        each.append(ComparedChoices(expert.name, expert.mdp, counts, counts.sum(axis=1, keepdims=True) * policy))
    if repeat:
        return Compared(each, True)
    together: dict[int, ComparedChoices] = {}
    for one in each:
        before = together.get(id(one.mdp))
        taken, expected = (0.0, 0.0) if before is None else (before.taken, before.expected)
        together[id(one.mdp)] = ComparedChoices("all", one.mdp, taken + one.taken, expected + one.expected)
    return Compared(list(together.values()), False)


#: Of more choices in states, of all experts, draws take too long.
MOST_ROWS = 200_000


class OverallTest(NamedTuple):
    """Whether all choices together differ from the model.

    `statistic` is by how many standard deviations they do, where they do so most, which is in `where`; the smallest `p_value`
    that can be is 0.001. `lapses` is the smallest share of choices at random that would be detected with a probability of 80%,
    and `present_bias` the smallest distance of β from 1. Both are infinite where none would be. All are NaN where there is a
    `reason` why it was not tested.
    """

    statistic: float
    p_value: float
    where: str
    lapses: float
    present_bias: float
    reason: str = ""

    @classmethod
    def untested(cls, reason: str) -> OverallTest:
        """No test, and why."""
        return cls(np.nan, np.nan, "", np.nan, np.nan, reason)


@dataclass(frozen=True, eq=False)
class AllChoices:
    """All choices of a fit in states with more than one action, one row for each expert, state and action.

    Attributes:
        taken, expected: N and E `(R,)`.
        case: the number of the expert and state `(R,)`; rows of a case follow each other.
        together: the number of the state and action `(R,)`, whoever it was.
        slopes: J `(R,p)`.
        known: P `(p,p)`.
        resting: the parameters `(p,)` that rest on a bound, and so did not follow the choices taken.
        later: the discounted value after each choice, over the temperature `(R,)`; None where it is not known.
    """

    taken: Floats
    expected: Floats
    case: Ints
    together: Ints
    slopes: Sparse
    known: Sparse
    resting: Bools
    later: Floats | None = None

    @classmethod
    def of(cls, point: Point) -> AllChoices | None:
        """Return those of a fit; None where there are too many parameters or choices."""
        model = point.likelihood
        k, d = model.n_experts, model.n_reward
        deviations = point.likelihood.precision if isinstance(point, NearPoint) else np.zeros(0)
        near = deviations.size > 0
        if model.is_large or model.size + near * k * d > limits().dense_parameters:
            return None
        parts = []
        cases = cells = 0
        first: dict[int, int] = {}
        for b, plan in enumerate(point.plans):
            batch = plan.persons
            rows, columns, slopes = point.scores(b)
            state = rows % batch.mdp.n_states
            many = batch.mdp.available.sum(axis=1)[state] > 1
            begin = first.setdefault(batch.task, cells)
            cells = max(cells, begin + batch.mdp.n_actions * batch.mdp.n_states)
            worth = plan.gamma * (batch.mdp.stacked @ plan.values) / plan.lam
            policy, counts = (each.reshape(-1, batch.owners.size) for each in (plan.policy, batch.counts))
            for i, (owner, parameters) in enumerate(zip(batch.owners.tolist(), columns, strict=True)):
                here = np.flatnonzero(many & (batch.visits[state, i] > 0))
                here = here[np.argsort(state[here], kind="stable")]
                place = rows[here]
                visits = batch.visits[state[here], i]
                theta = parameters[parameters < d]
                places = np.concatenate([parameters, model.size + owner * d + theta]) if near else parameters
                values = slopes[here, i]
                values = np.concatenate([values, values[:, : theta.size]], axis=1) if near else values
                width = model.size + near * k * d
                full = sp.csr_array(
                    (values.ravel(), np.tile(places, here.size), np.arange(0, values.size + 1, places.size)), (here.size, width)
                )
                case = cases + np.unique(state[here], return_inverse=True)[1]
                cases = int(case.max(initial=cases - 1)) + 1
                parts.append((counts[place, i], visits * policy[place, i], case, begin + place, worth[place, i], full))
        if not parts or sum(part[0].size for part in parts) > MOST_ROWS:
            return None
        taken, expected, case, together, later = (np.concatenate([part[j] for part in parts]) for j in range(5))
        stacked = sp.csr_array(sp.vstack([part[5] for part in parts]))
        prior = np.zeros((model.size, model.size))
        prior[:d, :d] += np.diag(np.broadcast_to(model.ridge, d))
        prior[model.transition_slice, model.transition_slice] += np.diag(model.move_counts)
        if model.penalty is not None:
            prior += model.penalty.matrix
        free = ~model.fixed
        resting = (point.x <= model.lower) | (point.x >= model.upper)
        precision = sp.csr_array(prior)
        if near:
            precision = sp.csr_array(sp.block_diag([prior, *[np.diag(deviations)] * k]))
            free = np.concatenate([free, np.tile(free[:d], k)])
            resting = np.append(resting, np.zeros(k * d, dtype=np.bool_))
        kept = np.flatnonzero(free)
        return cls(taken, expected, case, together, stacked[:, kept], precision[kept][:, kept], resting[kept], later)


def overall_words(test: OverallTest, begin: bool = True) -> str:
    """Return the test in a sentence, which may go on from another, and what it would have detected in four studies of five."""
    first = "All" if begin else "all"
    if test.reason:
        return f"Whether all choices together differ from the model was not tested: {test.reason}."
    differ = test.p_value <= 1 - LEVEL
    most = f", most in {test.where}" if differ else ""
    how = f"{'more' if differ else 'no more'} than chance (p {p_text(test.p_value)}{most})"
    more = f"{first} choices together differ from the model by {how}."
    if differ:
        return more
    lapses = f"if {percent(test.lapses)} or more were made at random" if np.isfinite(test.lapses) else ""
    bias = f"if all that is later counted {percent(test.present_bias)} less than a discount says" if test.present_bias < 1 else ""
    seen = " or ".join(text for text in (lapses, bias) if text)
    power = f"see it four times in five {seen}" if seen else "not even see many choices at random"
    more += f" With these decisions the test would {power}."
    return f"{more} It may miss planners of another kind, such as hyperbolic ones, and wrong beliefs."


def overall_test(choices: AllChoices | None, run: Run = Run()) -> OverallTest:
    """Test that all choices together are like the model's; None is what is too large."""
    if choices is None:
        return OverallTest.untested("there are too many states or parameters for one test of all choices")
    starts = np.flatnonzero(np.diff(choices.case, prepend=-1))
    if not starts.size:
        return OverallTest.untested("there was nothing to choose")
    sizes = np.diff(starts, append=choices.case.size)
    visits = np.add.reduceat(choices.taken, starts)
    n, chance = np.repeat(visits, sizes), np.repeat(1 / sizes, sizes)
    E, J = choices.expected, choices.slopes
    policy = E / n
    back = sp.csr_array(J.T)
    rows = sp.csr_array(sp.diags_array(E) @ J)
    prior = choices.known.toarray()
    curvature = (back @ rows).toarray() + prior
    inverse = _inverse(curvature, ~choices.resting)
    spread, axes = np.linalg.eigh(prior)
    root = axes * np.sqrt(np.maximum(spread, 0.0))

    slip = 0.05
    lapse = (chance - policy) / ((1 - slip) * policy + slip * chance)
    pool = sp.csr_array((np.ones(E.size), (np.unique(choices.together, return_inverse=True)[1], np.arange(E.size))))
    expected_together = pool @ E

    biased = None
    if choices.later is not None:
        biased = choices.later - np.repeat(np.add.reduceat(policy * choices.later, starts), sizes)

    def numbers(r: Floats) -> Floats:
        """Return the numbers `(k,4)` of differences `(R,k)`, or `(k,3)` without present bias."""
        apart = (r**2 / np.maximum(E, 1.0)[:, None]).sum(axis=0)
        together = ((pool @ r) ** 2 / np.maximum(expected_together, 1.0)[:, None]).sum(axis=0)
        return np.stack([apart, together, lapse @ r, *([] if biased is None else [np.abs(biased @ r)])], axis=1)

    def left(e: Floats, m: Floats) -> Floats:
        return np.asarray(e - rows @ (inverse @ (back @ e + m)))

    rng = np.random.default_rng(run.seed)
    drawn_numbers = [numbers((choices.taken - E)[:, None])]
    for total in (199, 999):  # more draws only where the first make the model doubtful
        while (done := sum(map(len, drawn_numbers)) - 1) < total:
            times = min(total - done, max(1, 20_000_000 // (10 * E.size)))
            e = _drawn(policy, visits, starts, sizes, rng, times) - E[:, None]
            drawn_numbers.append(numbers(left(e, root @ rng.normal(size=(len(root), times)))))
        drawn = np.concatenate(drawn_numbers)
        centre = drawn[1:].mean(axis=0)
        deviation = np.maximum(drawn[1:].std(axis=0), TINY)
        scaled = (drawn - centre) / deviation
        largest = scaled.max(axis=1)
        p_value = (1 + int((largest[1:] >= largest[0] - 1e-9).sum())) / (1 + total)
        if p_value > 0.1:
            break
    beyond = float(np.quantile(largest[1:], 0.95))
    fit = _Imitation(policy, n, starts, sizes, J, prior)

    def detected(alternative: Callable[[float], Floats], weights: Callable[[Floats], Floats], critical: float) -> float:
        """Return the smallest departure that is detected with a probability of 80%."""

        def seen(size: float) -> bool:
            other = alternative(size)
            imitated, left = fit.to(other)
            u = weights(imitated)
            return float(u @ (n * (other - imitated))) >= (critical + float(ndtri(0.8))) * left(u)

        low, high = 0.0, 0.01  # of very many lapses the model makes choices at random, and then sees nothing
        while not seen(high):
            low = high
            high = 1.5 * high
            if high >= 1:
                return np.inf
        while high - low > 0.02 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if seen(middle) else (middle, high)
        return high

    def slipping(chances: Floats) -> Floats:
        return (chance - chances) / ((1 - slip) * chances + slip * chance)

    lapses = detected(lambda share: (1 - share) * policy + share * chance, slipping, beyond)
    bias = np.nan
    if biased is not None:
        # The size of a normal number has the mean √(2/π) and the standard deviation √(1 − 2/π) of it.
        critical = np.sqrt(2 / np.pi) + beyond * np.sqrt(1 - 2 / np.pi)
        later = -biased
        bias = detected(lambda size: fit.tilted(size * later), lambda _: later, critical)
    looks = ("each expert's choices", "choices of all together", "lapses", "present bias")
    return OverallTest(float(largest[0]), p_value, looks[int(scaled[0].argmax())], lapses, bias)


class _Imitation:
    """The model as it imitates other choices: log π moves linearly with the parameters, from the fit."""

    def __init__(self, policy: Floats, n: Floats, starts: Ints, sizes: Ints, slopes: Sparse, prior: Floats) -> None:
        self.policy, self.n, self.starts, self.sizes, self.prior = policy, n, starts, sizes, prior
        self.slopes = slopes
        self.back = sp.csr_array(slopes.T)
        self.cases = sp.csr_array((np.ones(n.size), np.arange(n.size), np.append(starts, n.size)), (starts.size, n.size))

    def tilted(self, logs: Floats) -> Floats:
        """Return the probabilities `(R,)` with these numbers added to their logarithms."""
        odds = self.policy * np.exp(logs - np.repeat(np.maximum.reduceat(logs, self.starts), self.sizes))
        shares: Floats = odds / np.repeat(np.add.reduceat(odds, self.starts), self.sizes)
        return shares

    def information(self, policy: Floats) -> Floats:
        """Of choices with these probabilities, about the parameters, with what is known of them besides."""
        weighted = sp.csr_array(sp.diags_array(self.n * policy) @ self.slopes)
        sums = sp.csr_array(self.cases @ weighted)
        between = sp.csr_array(sums.T) @ sp.diags_array(1 / self.n[self.starts]) @ sums
        result: Floats = (self.back @ weighted - between).toarray() + self.prior
        return result

    def to(self, other: Floats) -> tuple[Floats, Callable[[Floats], float]]:
        """Return the model's probabilities when it is fitted to others, and what gives the standard deviation of a score
        there."""
        x = np.zeros(self.slopes.shape[1])
        everything = np.ones(x.size, dtype=np.bool_)
        for _ in range(8):
            policy = self.tilted(self.slopes @ x)
            inverse = _inverse(self.information(policy), everything)
            step = inverse @ (self.back @ (self.n * (other - policy)) - self.prior @ x)
            moved = float(np.abs(self.slopes @ step).max(initial=0.0))
            x = x + step / max(1.0, moved / 2)
            if moved < 1e-3:
                break
        policy = self.tilted(self.slopes @ x)
        E = self.n * policy

        def left(u: Floats) -> float:
            centred = E * (u - np.repeat(np.add.reduceat(policy * u, self.starts), self.sizes))
            along = self.back @ centred
            return float(np.sqrt(max(float(u @ centred) - float(along @ inverse @ along), TINY)))

        return policy, left


def _inverse(curvature: Floats, free: Bools) -> Floats:
    """Return the inverse in the directions that are determined, of the parameters that are free; 0 elsewhere."""
    result = np.zeros_like(curvature)
    here = np.ix_(free, free)
    size = np.sqrt(np.maximum(np.diag(curvature[here]), TINY))
    values, vectors = np.linalg.eigh(curvature[here] / np.outer(size, size))
    kept = values > 1e-10 * max(float(values.max(initial=0.0)), TINY)
    result[here] = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / np.outer(size, size)
    return result


def _drawn(policy: Floats, visits: Floats, starts: Ints, sizes: Ints, rng: np.random.Generator, times: int) -> Floats:
    """Return choices `(R,times)` of each case, drawn so many times."""
    result = np.zeros((policy.size, times))
    for size in np.unique(sizes).tolist():
        cases = np.flatnonzero(sizes == size)
        rows = starts[cases][:, None] + np.arange(size)
        chances = policy[rows] / policy[rows].sum(axis=1, keepdims=True)
        drawn = rng.multinomial(np.round(visits[cases]).astype(np.int64), chances, size=(times, cases.size))
        result[rows] = drawn.transpose(1, 2, 0)
    return result
