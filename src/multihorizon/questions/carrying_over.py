"""Does a horizon belong to the person or to the situation? What was fitted under one condition predicts another.

The same persons decide under several conditions. For each ordered pair of them, all is fitted to the decisions under the first,
`from`. Of the second, `to`, only what other persons decided there is used before a person's decisions are predicted.

*A shift that all have in common* says nothing of whose the horizons are, and is taken out before they are carried. With `η =
(logit γ, log λ)`, a person who may be at η under `from` may be at η + δ under `to`, where δ is the difference of the means of
all *other* persons (`two_conditions`). One discount for everybody becomes that of `to`, to which a person adds one of m
shares: what own horizons are compared with is rather too good.

*Averages.* What was decided under `from` leaves open where a person is. The probability of a decision under `to` is the average
over what is likely for this person,

    p(a | s) = ∫ π_{η+δ}(a|s) p(η | decisions under from) dη,

each decision by itself. The probability of all of them at once, `∫ Π_t π_η(a_t|s_t) p(η | …) dη`, would not do: it is the product
of what is predicted of each decision from those under `to` that came before it as well. Two models predict in this way, and what
one gains over the other is due to the horizon alone:

* *own*: η of each person is drawn from a normal distribution, the most likely one (`Population` without covariates);
* *one discount*: the same, but with one discount for everybody. Temperatures differ between persons as before.

Others predict with one value for each person, as if it were known. They lose something for being too sure, whosever it is:

* *own, one value*: the shrunken discount and temperature of `Population`;
* *own, alone*: those by maximum likelihood, from the person's decisions alone;
* *one discount, one value*: one discount for everybody, with temperatures that vary around a common one where decisions say so;
* *one for all*: one discount and one temperature for everybody;
* *chance*: all available actions are equally likely.

Where the reward is not known, each model has the one that it finds under `from`. Transitions are not choices: those that were
estimated stay as they are.

*Within a condition* the same is done with two halves of each person's episodes: each half is predicted from the other. That is
how well a horizon predicts where the situation stays the same. It has half as many decisions to learn from, so it is no higher
than it ought to be.

*Gains.* With n_i decisions of person i under `to`, and d_i the difference of their log-likelihoods under two models, the gain per
decision is the ratio `D = Σ d_i / Σ n_i`. Persons are the sample: its standard error is `√(m/(m−1) Σ (d_i − D n_i)²) / Σ n_i`
of m persons, and its interval is Student's with m − 1 degrees of freedom. The fits are taken as they are.

What own horizons that are carried gain over one discount for everybody is *kept*, and by how much more they gain within the
condition that is predicted is *lost*.

*The verdict* rests on likelihood ratios (`two_conditions`), which see much sooner what belongs to whom than predictions do: do
the horizons of persons under two conditions correlate, do they change alike, and does everybody change? Of several pairs of
conditions p-values are multiplied by the number of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from multihorizon.checks import Floats, as_discount, as_seed, first_few
from multihorizon.choice.apart import FromPlans
from multihorizon.choice.model import with_known_reward
from multihorizon.choice.surfaces import Tables
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.driver import Solver, solve
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood, never_earned
from multihorizon.estimate.population.covariates import least_persons
from multihorizon.estimate.population.marginal import Maximum, likely_places, posterior, with_one_discount
from multihorizon.estimate.population.solver import Population
from multihorizon.mdp import MDP
from multihorizon.numerics.chance import t_ppf
from multihorizon.parallel import Progress, in_parallel, silent
from multihorizon.problem import Crowd, Problem, require_finite
from multihorizon.questions.bootstrap import tables_of
from multihorizon.questions.two_conditions import Spread, Together, together
from multihorizon.result import COLOURS, Result, literal
from multihorizon.solution import Status
from multihorizon.words import LEVEL, Answer, count, in_words, p_text

#: The models by their names in tables, and in words.
MODELS = {
    "own": "own horizon",
    "own_value": "own horizon, one value",
    "own_alone": "own horizon, each alone",
    "one_discount": "one discount for everybody",
    "one_discount_value": "one discount, temperatures of one value",
    "one_for_all": "one discount and temperature for everybody",
    "chance": "chance",
}
#: Models in the picture beside the own horizon: where they stand in their row, and how they are drawn.
OTHERS = (("own_value", 0.15, "D", COLOURS[5]), ("own_alone", 0.15, "o", COLOURS[1]), ("one_for_all", 0.15, "s", "0.6"))
QUESTION = "Does a horizon belong to the person or to the situation?"


class Gain(NamedTuple):
    """By how much the log-likelihood of a decision is higher, with its standard error and the ends of its 95 % interval."""

    estimate: float
    error: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether it is above 0 by more than chance."""
        return self.low > 0


@dataclass(frozen=True, eq=False)
class Carried:
    """Decisions under one condition, predicted from those under another; from the other half of them where both are the same.

    Attributes:
        origin, target: the conditions `from` and `to`.
        experts: the persons who were seen under both, or who have two episodes or more where both are the same.
        decisions: how many of each were predicted `(m,)`.
        log_likelihoods: for each of `MODELS` the mean log-likelihood of a decision of each person `(m,)`; NaN where a search did
            not end.
        common_discount: the one discount for everybody, that of `to`; the mean of that of both halves where both are the same.
        left_out: the other persons who were seen under either.
    """

    origin: str
    target: str
    experts: tuple[str, ...]
    decisions: Floats
    log_likelihoods: dict[str, Floats]
    common_discount: float
    left_out: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether halves of one condition predict each other."""
        return self.origin == self.target

    @property
    def label(self) -> str:
        """From where to where."""
        return f"within {self.target}" if self.within else f"{self.origin} → {self.target}"

    def mean(self, model: str) -> float:
        """The mean log-likelihood of a decision under one of `MODELS`."""
        return float(self.log_likelihoods[model] @ self.decisions / self.decisions.sum())

    def by_person(self, model: str = "own", over: str = "one_discount") -> pd.DataFrame:
        """For each person what one model gains over another in all their decisions (`gain`), and how many these are."""
        means = self.log_likelihoods[model] - self.log_likelihoods[over]
        return pd.DataFrame({"gain": means * self.decisions, "decisions": self.decisions}, index=list(self.experts))

    def gain(self, model: str = "own", over: str = "one_discount") -> Gain:
        """What one model gains per decision over another."""
        return _gain(self.by_person(model, over))


def _gain(persons: pd.DataFrame) -> Gain:
    """The gain per decision from those of persons, who may have several rows; NaN of fewer than two persons."""
    d, n = persons.groupby(level=0)[["gain", "decisions"]].sum(min_count=1).to_numpy().T
    if d.size < 2:
        return Gain(np.nan, np.nan, np.nan, np.nan)
    estimate = float(d.sum() / n.sum())
    error = float(np.sqrt(d.size / (d.size - 1) * ((d - estimate * n) ** 2).sum()) / n.sum())
    reach = float(t_ppf((1 + LEVEL) / 2, d.size - 1)) * error
    return Gain(estimate, error, estimate - reach, estimate + reach)


class Parts(NamedTuple):
    """How much of what a horizon is worth is kept and lost, over all pairs of conditions; NaN where it is not known."""

    kept: Gain
    lost: Gain


@dataclass(frozen=True, eq=False)
class CarryingOver(Result):
    """What `carry_over` found.

    Attributes:
        condition: the name of the condition.
        levels: its values, in the order of the alphabet.
        pairs: first every ordered pair of two values, then the halves within each.
        together: of each two values, how the horizons under them hang together.
        remarks: who and what is left out, and what the decisions under one condition cannot tell.
    """

    condition: str
    levels: tuple[str, ...]
    pairs: tuple[Carried, ...]
    together: tuple[Together, ...]
    remarks: tuple[str, ...]

    _drawn: ClassVar[tuple[str, ...]] = ("from", "gain", "gain_low", "gain_high")
    _shown: ClassVar[tuple[str, ...]] = (
        *("from", "to", "persons", "decisions", "own", "one_discount", "chance"),
        *("gain", "gain_low", "gain_high", "lost"),
    )

    def lost(self, pair: Carried) -> Gain:
        """What own horizons gain over one discount for everybody within the condition that is predicted, less what they gain
        where they are carried there; NaN where that is not known."""
        return _gain(self._lost_by_person(pair))

    def _lost_by_person(self, pair: Carried) -> pd.DataFrame:
        here, within = pair.by_person(), self._within(pair.target)
        if within is None:
            return here[:0]
        there = within.by_person().reindex(here.index)
        return here.assign(gain=there["gain"] / there["decisions"] * here["decisions"] - here["gain"]).dropna()

    def _within(self, level: str) -> Carried | None:
        return next((pair for pair in self.pairs if pair.within and pair.target == level), None)

    @cached_property
    def parts(self) -> Parts:
        """What own horizons gain where they are carried, and what they lose by that."""
        carried = [pair for pair in self.pairs if not pair.within and not np.isnan(pair.gain().estimate)]
        none = pd.DataFrame(columns=["gain", "decisions"], dtype=np.float64)

        def together(ask: Callable[[Carried], pd.DataFrame]) -> Gain:
            return _gain(pd.concat([ask(pair) for pair in carried] or [none]))

        return Parts(together(Carried.by_person), together(self._lost_by_person))

    @cached_property
    def answer(self) -> Answer:
        """Whether a horizon belongs to the person or to the situation, as far as these decisions tell."""
        usable = [each for each in self.together if np.isfinite(each.p_person)]
        if not usable:
            why = "How horizons under two conditions hang together is not known"
            return Answer(QUESTION, "No usable answer", f"{why}: a search did not end, or no discount is identified.", "bad")
        least = (1 - LEVEL) / len(usable)
        person = any(each.p_person < least / 2 for each in usable)  # on one side
        apart, shift = (any(p < least for p in ps) for ps in zip(*((each.p_apart, each.p_shift) for each in usable), strict=True))
        if person:
            said = "To both" if apart else "At least in part to the person"
            said += ", after a shift that all have in common" if shift else ""
        else:
            said = "At least in part to the situation" if apart or shift else "These decisions do not tell"
        reasons = " ".join(map(_hanging, usable))
        kept, lost = self.parts
        if np.isfinite(kept.estimate):
            carried = "Carried to another condition, a person's own horizon gains"
            reasons += f" {carried} {_figures(kept)} over one discount for everybody."
        if np.isfinite(lost.estimate):
            reasons += f" Within a condition it gains {_figures(lost)} more than that."
        return Answer(QUESTION, said, reasons, "good" if person or apart or shift else "caution")

    def sentences(self) -> str:
        """The answer, one sentence for each pair, and remarks."""
        answer = self.answer
        lines = [f"{QUESTION} {answer.answer}. {answer.reasons}", *(_sentence(pair) for pair in self.pairs)]
        return "\n".join([*lines, *self.remarks])

    def to_frame(self) -> pd.DataFrame:
        """One row per pair: the mean log-likelihood of a decision under each model, the one discount for everybody, what the own
        horizon gains over it, and what is lost by carrying."""
        return pd.DataFrame(
            {
                "from": pair.origin,
                "to": pair.target,
                "persons": len(pair.experts),
                "decisions": int(pair.decisions.sum()),
                **{model: pair.mean(model) for model in MODELS},
                "common_discount": pair.common_discount,
                **{f"gain{end}": value for end, value in zip(("", "_error", "_low", "_high"), pair.gain(), strict=True)},
            }
            | {"lost": np.nan if pair.within else self.lost(pair).estimate}
            for pair in self.pairs
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts; what is not known is NaN."""
        return {
            "condition": self.condition,
            "levels": list(self.levels),
            "answer": asdict(self.answer),
            **{name: gain._asdict() for name, gain in self.parts._asdict().items()},
            "together": [each._asdict() for each in self.together],
            "summary": self.sentences(),
            "pairs": [
                {
                    "from": pair.origin,
                    "to": pair.target,
                    "log_likelihood": {model: pair.mean(model) for model in MODELS},
                    "common_discount": pair.common_discount,
                    "gain": pair.gain()._asdict(),
                    "lost": None if pair.within else self.lost(pair)._asdict(),
                    "left_out": list(pair.left_out),
                    "experts": list(pair.experts),
                    "decisions": pair.decisions.tolist(),
                    "by_expert": {model: values.tolist() for model, values in pair.log_likelihoods.items()},
                }
                for pair in self.pairs
            ],
            "remarks": list(self.remarks),
        }

    def _height(self) -> float:
        return 1.7 + 0.35 * len(self.pairs)

    def _draw(self, ax: Any) -> None:
        """What other models gain per decision over one discount for everybody; that of the own horizon has its interval."""
        rows, gains = np.arange(len(self.pairs)), [pair.gain() for pair in self.pairs]
        ends = np.array([[gain.low, gain.high] for gain in gains])
        shown = np.append(ends[np.isfinite(ends)], 0.0)
        # what each person's decisions alone say may be far off, and stands at the edge then
        room = 0.6 * (shown.max() - shown.min()) or 0.1
        low, high = shown.min() - room, shown.max() + 0.3 * room
        ax.axvline(0.0, color="0.3", linewidth=0.8)
        for model, at, marker, colour in OTHERS:
            values = np.array([pair.gain(model).estimate for pair in self.pairs])
            inside = values >= low
            ax.plot(values[inside], rows[inside] + at, marker, color=colour, label=MODELS[model], markersize=5)
            ax.plot(np.full((~inside).sum(), low), rows[~inside] + at, "<", color=colour, markersize=5)
        ax.hlines(rows - 0.1, ends[:, 0], ends[:, 1], color=COLOURS[0], linewidth=2)
        ax.plot([gain.estimate for gain in gains], rows - 0.1, "o", color=COLOURS[0], label=MODELS["own"])
        ax.set_xlim(low - 0.1 * room, high)
        ax.set_yticks(rows, [literal(pair.label) for pair in self.pairs])
        ax.set_ylim(len(self.pairs) - 0.5, -0.5)
        ax.set_xlabel("log-likelihood of a decision above\nthat of one discount for everybody")
        ax.locator_params(axis="x", nbins=4)
        ax.figure.legend(frameon=False, fontsize=8, loc="outside lower center")

    def _content(self) -> dict[str, Any]:
        return self.to_dict()


def _figures(gain: Gain) -> str:
    """A gain with its interval, in words."""
    return f"{gain.estimate:.4f} per decision (95 % interval {gain.low:.4f} to {gain.high:.4f})"


def _hanging(each: Together) -> str:
    """How horizons under two conditions hang together, in words."""
    return (
        f"Logit discounts of persons under {each.origin} and {each.target} correlate by {each.correlation:.2f} (95 % interval "
        f"{each.correlation_low:.2f} to {each.correlation_high:.2f}). From {each.origin} to {each.target} everybody's changes by "
        f"{each.shift:.2f} ({each.shift_low:.2f} to {each.shift_high:.2f}); changes differ between persons by a standard "
        f"deviation of {each.apart:.2f} (all alike: p {p_text(each.p_apart)})."
    )


def _sentence(pair: Carried) -> str:
    """How well own horizons predict beside one discount for everybody, in words."""
    what = f"A horizon from one half of the episodes under {pair.target} predicts the other half"
    what = what if pair.within else f"A horizon carried from {pair.origin} to {pair.target} predicts"
    gain = pair.gain()
    if np.isnan(gain.estimate):
        return f"How well {what[0].lower()}{what[1:]} is not known: a search did not end."
    how = "better than" if gain.low > 0 else "worse than" if gain.high < 0 else "neither clearly better nor clearly worse than"
    figures = f"{pair.mean('own'):.3f} against {pair.mean('one_discount'):.3f} per decision, a difference of {gain.estimate:.4f}"
    return f"{what} {how} one discount for everybody ({figures}, 95 % interval {gain.low:.4f} to {gain.high:.4f})."


def carry_over(
    problem: Problem,
    demonstrations: Demonstrations | Sequence[Demonstrations],
    condition: str,
    *,
    known_reward: Any = None,
    common_discount: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> CarryingOver:
    """Predict each person's decisions under one condition from those under another, and from the other half of the same.

    Args:
        problem: made of the demonstrations.
        demonstrations: the table, or one for each task in the order they were joined, with the condition of each episode.
        condition: the name of the condition; its values are groups.
        known_reward: as in `MaximumLikelihood`; without it the reward is estimated under the condition that predicts.
        common_discount: the one discount for everybody that own horizons are compared with; by default it is estimated under
            the condition that predicts.
        seed: deals episodes into halves, and scatters the starts of searches.
        jobs: processes that share the fits; -1 is all cores. The answer does not depend on it.
        progress: called after each fit.

    Raises:
        ValueError: for a condition that is not in the tables, has one value only or is made of numbers, and where fewer than
            three persons were seen under two of its values.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains, soft_plan
        >>> d = domains.cliff()
        >>> policies = [soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)]
        >>> table = Demonstrations.simulate(d.mdp, policies, episodes=100).to_frame()
        >>> table["day"] = ["monday" if episode % 2 else "friday" for episode in table["episode"].astype(int)]
        >>> table = Demonstrations.from_frame(table, conditions=["day"])
        >>> found = carry_over(Problem(d.mdp, table), table, "day", known_reward=d.reward)
        >>> found.answer.answer
        'At least in part to the person'
    """
    tables = tables_of(require_finite(problem), demonstrations)
    if common_discount is not None:
        as_discount(common_discount, "common_discount")
    levels, parts, remarks = _dealt(problem, tables, condition, as_seed(seed))
    problem = problem.in_tasks(MDP.as_known)
    asked: list[_Asked] = []
    for origin, target in [*permutations(levels, 2), *zip(levels, levels, strict=True)]:
        pair, told = _ask(problem, parts, origin, target)
        remarks += told
        asked += [] if pair is None else [pair]
    if not any(pair.origin != pair.target for pair in asked):
        raise ValueError(f"at least three persons must be seen under two values of {condition}, received fewer")
    if with_known_reward(problem, known_reward)[1] is None:
        remarks += [sentence for pair in asked for sentence in _unearned(pair)]
    task = partial(_fit, known_reward, common_discount, seed)
    problems = {way.key: way.known for pair in asked for way in pair.ways}
    kinds = [model for model in MODELS if model not in ("chance", "own_value", "one_discount")]
    work = [_Work(key, model) for key in problems for model in kinds]
    found: dict[tuple[_Key, str], _Fitted] = {}
    fits = in_parallel(task, [(problems[item.key], item) for item in work], jobs)
    for done, (item, fitted) in enumerate(zip(work, fits, strict=True), 1):
        found.update({(item.key, model): each for model, each in fitted.items()})
        progress(done / len(work), f"fit {done} of {len(work)}: {MODELS[item.model]}")
    for (key, model), one in found.items():
        if not one.finished:
            remarks.append(f"The search for {MODELS[model]} under {key.level} did not end: what it predicts is not known.")
    between: list[Together] = []
    shifts: dict[tuple[str, str], Floats] = {}
    for pair in asked:
        if pair.origin < pair.target:
            a, b = pair.origin, pair.target
            spreads = (found[_Key(level, None, pair.experts), "own"].spread_of(pair.experts) for level in (a, b))
            said, others = together(a, b, *spreads)
            between.append(said)
            if others is not None:
                shifts |= {(a, b): others, (b, a): -others}
    pairs = tuple(_predict(pair, found, known_reward, shifts.get((pair.origin, pair.target))) for pair in asked)
    return CarryingOver(condition, levels, pairs, tuple(between), tuple(dict.fromkeys(remarks)))


#: The decisions `(S,A)` of each of a problem's experts.
Decided = list[Floats]


def _dealt(
    problem: Problem, tables: Sequence[Demonstrations], condition: str, seed: int
) -> tuple[tuple[str, ...], dict[tuple[str, int], Decided], list[str]]:
    """The values of a condition, the decisions in each half of the episodes under each, and what is left out, in words."""
    values = []
    for table in tables:
        if table.conditions is None or condition not in table.conditions:
            known = [] if table.conditions is None else [str(name) for name in table.conditions]
            raise ValueError(f"condition {condition} must be known of the episodes of {table.name}, received {in_words(known)}")
        values.append(table.conditions[condition])
    column = pd.concat(values, ignore_index=True)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        raise ValueError(f"condition {condition} must have groups as values, received numbers: make groups of them")
    texts = column.map(str).where(column.notna())
    levels = tuple(sorted(texts.dropna().unique()))
    most = 12  # nobody would read a table of more than 144 rows
    if not 2 <= len(levels) <= most:
        raise ValueError(f"condition {condition} must have from 2 to {most} values, received {len(levels)}: {first_few(levels)}")
    place = {name: i for i, name in enumerate(problem.names)}
    whose = np.concatenate([np.array([place[name] for name in table.experts])[table.by_episode.expert] for table in tables])
    half = np.zeros(whose.size, dtype=np.int64)
    for own in pd.DataFrame({"whose": whose, "value": texts}).groupby(["whose", "value"]).indices.values():
        # all who have as many episodes are dealt alike, so that neither names nor the order of persons matter
        half[own] = np.random.default_rng(seed).permutation(len(own)) % 2
    ends, parts = np.cumsum([0, *map(len, values)]), {}
    for level in levels:
        for side in (0, 1):
            kept = (texts == level).to_numpy() & (half == side)
            decided: Decided = []
            for table, low, high in zip(tables, ends[:-1], ends[1:], strict=True):
                decided += list(table.counts_of_episodes(problem.experts[len(decided)].mdp, kept[low:high]))
            parts[level, side] = decided
    lacking = int(texts.isna().sum())
    return levels, parts, [f"{condition} is not known of {count(lacking, 'episode')}, left out here."] if lacking else []


class _Key(NamedTuple):
    """What is fitted: decisions under a condition, all of them (None) or those of a half, of some persons."""

    level: str
    half: int | None
    persons: tuple[str, ...]


class _Way(NamedTuple):
    """Decisions that predict, by the name under which they are fitted, and those that are predicted."""

    key: _Key
    known: Problem
    predicted: Problem


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is asked of a pair: who is predicted, by which decisions, and who is left out."""

    origin: str
    target: str
    experts: tuple[str, ...]
    ways: list[_Way]
    left_out: tuple[str, ...]


def _ask(problem: Problem, parts: dict[tuple[str, int], Decided], origin: str, target: str) -> tuple[_Asked | None, list[str]]:
    """What to ask of a pair, nothing where there are too few persons for a population; and who is left out, in words."""
    within = origin == target
    halves = (0, 1) if within else (None, None)
    decided = [
        parts[level, half] if half is not None else [a + b for a, b in zip(parts[level, 0], parts[level, 1], strict=True)]
        for level, half in zip((origin, target), halves, strict=True)
    ]
    seen = [{e.name for e, own in zip(problem.experts, part, strict=True) if own.any()} for part in decided]
    experts = tuple(name for name in problem.names if name in seen[0] and name in seen[1])
    left_out = tuple(name for name in problem.names if (name in seen[0]) != (name in seen[1]))
    who = f"{count(len(left_out), 'person')} ({in_words(list(left_out))})"
    told = []
    if left_out and within:
        told.append(f"Within {target}, {who} with one episode only cannot be predicted from the other half of their episodes.")
    elif left_out and origin < target:
        told.append(f"Between {origin} and {target}, {who} seen under one of them only cannot be predicted from the other.")
    if len(experts) < least_persons(1):
        return None, [*told, f"Fewer than three persons are left {'within' if within else f'from {origin} to'} {target}."]

    def some(part: Decided) -> Problem:
        """The decisions of those who are predicted as a problem."""
        pairs = zip(problem.experts, part, strict=True)
        return problem.with_experts(
            replace(expert, counts=own, conditions=None) for expert, own in pairs if own.any() and expert.name in set(experts)
        )

    first, second = map(some, decided)
    ways = [_Way(_Key(origin, halves[0], experts), first, second)]
    ways += [_Way(_Key(target, halves[1], experts), second, first)] if within else []
    return _Asked(origin, target, experts, ways, left_out), told


def _unearned(pair: _Asked) -> list[str]:
    """Of which rewards of what is predicted nothing is known from what predicts, in words; raises where that is all of them."""
    told = []
    for way in pair.ways:
        wanted = ~never_earned(way.predicted)
        lacking = wanted & never_earned(way.known)
        if wanted.any() and lacking.sum() == wanted.sum():
            raise ValueError(
                f"decisions under {pair.origin} must be made for some of the rewards of those under {pair.target}, received none "
                "in common: give a known reward, or features"
            )
        if lacking.any():
            names = [name for name, lacks in zip(way.known.parameter_names, lacking, strict=True) if lacks]
            those = f"{'one half of the decisions' if pair.origin == pair.target else 'those'} under {pair.origin}"
            told.append(
                f"Decisions under {pair.target} can earn {in_words(names)}, of which {those} say nothing: there it counts as "
                "nothing. A known reward or features would help."
            )
    return told


class _Work(NamedTuple):
    """What is to be fitted: decisions by their name, and a model."""

    key: _Key
    model: str


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A model that was fitted.

    Attributes:
        experts: the persons.
        places, shares: where each may be, η `(m,Q,2)`, and with which share `(m,Q)`; one place where it counts as known.
        inner: how many places in a row have the same logit γ.
        discount: the mean of all discounts, which is the one for everybody where there is one.
        reward: θ.
        finished: whether the search ended.
        spread: of a population whose discounts are identified, what is known of it and of each person.
    """

    experts: tuple[str, ...]
    places: Floats
    shares: Floats
    inner: int
    discount: float
    reward: Floats
    finished: bool
    spread: Spread | None = None

    @classmethod
    def known(cls, crowd: Crowd, discounts: Floats, log_temperatures: Floats, reward: Floats, finished: bool) -> _Fitted:
        """Where discounts and log-temperatures `(m,)` count as known."""
        with np.errstate(divide="ignore"):
            places = np.stack([logit(discounts / crowd.largest_discount), log_temperatures], axis=1)[:, None]
        return cls(crowd.names, places, np.ones(places.shape[:2]), 1, float(discounts.mean()), reward, finished)

    @classmethod
    def averaged(cls, found: Maximum, identified: bool) -> _Fitted:
        """Where each person is likely to be; where no discount is identified, the maximum decides nothing."""
        layout = found.marginal.layout
        places, shares, inner = likely_places(found)
        layout = found.marginal.layout
        parts = layout.unpack(found.psi)
        discount = layout.largest * float(expit(parts.effects[0, 0]))
        spread, finished = None, found.finished or not identified
        if identified and finished:
            means = np.einsum("nq,nqi->ni", shares, places)
            away = places - means[:, None]
            spread = Spread(parts.effects[0], parts.covariance, means, np.einsum("nq,nqi,nqj->nij", shares, away, away))
        return cls(layout.crowd.names, places, shares, inner, discount, parts.theta, finished, spread)

    def spread_of(self, experts: Sequence[str]) -> Spread | None:
        """The spread with the persons in this order."""
        if self.spread is None:
            return None
        order = [self.experts.index(name) for name in experts]
        return replace(self.spread, means=self.spread.means[order], covariances=self.spread.covariances[order])


def _fit(known_reward: Any, discount: float | None, seed: int, item: tuple[Problem, _Work]) -> dict[str, _Fitted]:
    """Models that are fitted to all decisions of a problem: with the own horizon come its values, and one discount."""
    problem, work = item
    crowd = Crowd.of(problem)
    if work.model == "own":
        _, found, identified, _ = Population("~ 1", known_reward=known_reward).search(crowd, seed)
        known = posterior(found, identified)
        reward, finished = found.marginal.layout.unpack(found.psi).theta, known.status != Status.NOT_CONVERGED
        return {
            "own": _Fitted.averaged(found, identified),
            "own_value": _Fitted.known(crowd, known.persons.discounts, known.persons.mean[:, 1], reward, finished),
            "one_discount": _Fitted.averaged(with_one_discount(found, discount), identified),
        }
    together = dict.fromkeys(problem.names, "everybody") if discount is None else None
    solvers: dict[str, Solver] = {
        "own_alone": MaximumLikelihood("per_expert", known_reward=known_reward),
        "one_discount_value": MaximumLikelihood("pooled", discount, known_reward, together),
        "one_for_all": MaximumLikelihood("shared", discount, known_reward, together),
    }
    told = solve(problem, solvers[work.model], seed=seed)
    temperatures = np.broadcast_to(np.asarray(told.temperature, dtype=np.float64), told.discounts.shape)
    finished = told.status in (Status.CONVERGED, Status.NOT_IDENTIFIED)
    assert told.experts == crowd.names
    return {work.model: _Fitted.known(crowd, told.discounts, np.log(temperatures), told.reward, finished)}


def _predict(pair: _Asked, fits: dict[tuple[_Key, str], _Fitted], known_reward: Any, shift: Floats | None) -> Carried:
    """How likely each model makes the decisions that are predicted, where η of each person is moved by a shift `(m,2)`."""
    size = len(pair.experts)
    models = [model for model in MODELS if model != "chance"]
    decisions, totals = np.zeros(size), {model: np.zeros(size) for model in MODELS}
    for way in pair.ways:
        crowd = Crowd.of(with_known_reward(way.predicted, known_reward)[0])
        own = np.array([pair.experts.index(name) for name in crowd.names])
        for task in crowd.tasks:
            choices = np.log(np.maximum(task.mdp.available.sum(axis=1), 1))
            decisions[own] += np.asarray(task.counts.sum(axis=1)).ravel()
            totals["chance"][own] -= task.counts @ np.tile(choices, task.mdp.n_actions)
        tables: Tables | None = None
        for model in models:
            fitted, there = fits[way.key, model], fits[way.key._replace(level=pair.target), model]
            if not (fitted.finished and there.finished):
                totals[model][:] = np.nan
                continue
            if tables is None:
                tables = Tables(crowd.tasks, crowd.largest_discount, fitted.reward, np.zeros(0, dtype=np.int64))
            tables = tables.at(fitted.reward)
            counts, who = tables.counts(crowd.tasks), [fitted.experts.index(name) for name in crowd.names]
            places, shares = fitted.places[who], fitted.shares[who]
            if shift is not None:
                places = places + shift[own][:, None]
            if not model.startswith("own"):
                places = places.copy()
                with np.errstate(divide="ignore"):
                    places[:, :, 0] = logit(there.discount / crowd.largest_discount)
            if shares.shape[1] == 1:
                gammas = crowd.largest_discount * expit(places[:, 0, 0])
                likely = FromPlans(tables, counts)(np.arange(size), np.stack([gammas, places[:, 0, 1]], axis=1)).value
            else:
                likely = tables.averaged(counts, places, shares, fitted.inner)
            totals[model][own] += np.where(np.isfinite(likely), likely, np.nan)
    means = {model: total / decisions for model, total in totals.items()}
    common = float(np.mean([fits[way.key._replace(level=pair.target), "one_discount"].discount for way in pair.ways]))
    return Carried(pair.origin, pair.target, pair.experts, decisions, means, common, pair.left_out)
