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

* *chance*: all available actions are equally likely.

Where the reward is not known, each model has the one that it finds under `from`. Transitions are not choices: those that were
estimated stay as they are.

*Gains.* With n_i decisions of person i under `to`, and d_i the difference of their log-likelihoods under two models, the gain per
decision is the ratio `D = Σ d_i / Σ n_i`. Persons are the sample: its standard error is `√(m/(m−1) Σ (d_i − D n_i)²) / Σ n_i`
of m persons, and its interval is Student's with m − 1 degrees of freedom. The fits are taken as they are.

*The verdict* rests on likelihood ratios (`two_conditions`), which see much sooner what belongs to whom than predictions do:
do the horizons of persons under two conditions correlate, do they change alike, and does everybody change? One population under
each condition is all that is fitted. Of several pairs of conditions p-values are multiplied by the number of pairs, and a pair of
which nothing is known is left out. Where a reward that depends on the action as well predicts clearly better under one of the
conditions, nothing is said of horizons (`population.state_reward`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from multihorizon.checks import Floats, Seed, as_discount, as_seed, first_few
from multihorizon.choice.model import with_known_reward
from multihorizon.choice.surfaces import Tables
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.finding import Finding
from multihorizon.likelihood.maximum_likelihood import never_earned
from multihorizon.likelihood.state_reward import StateRewardTest
from multihorizon.mdp import MDP
from multihorizon.numerics.distributions import t_ppf
from multihorizon.parallel import Progress, in_parallel, silent
from multihorizon.population.covariates import least_persons
from multihorizon.population.marginal import Maximum, likely_places, spectrum_of, with_one_discount
from multihorizon.population.solver import Population
from multihorizon.population.state_reward import population_state_reward
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.bootstrap import tables_of
from multihorizon.questions.two_conditions import Spread, Together, together
from multihorizon.result import COLOURS, Result, literal
from multihorizon.words import LEVEL, count, in_words, p_text

#: The models by their names in tables, and in words.
MODELS = {"own": "own horizon", "one_discount": "one discount for everybody", "chance": "chance"}
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
    """Decisions under one condition, predicted from those under another.

    Attributes:
        origin, target: the conditions `from` and `to`.
        experts: the persons who were seen under both.
        decisions: how many of each were predicted `(m,)`.
        log_likelihoods: for each of `MODELS` the mean log-likelihood of a decision of each person `(m,)`; NaN where a search did
            not end.
        common_discount: the one discount for everybody, that of `to`.
        left_out: the other persons who were seen under either.
        reason: which search did not end; empty where all did.
    """

    origin: str
    target: str
    experts: tuple[str, ...]
    decisions: Floats
    log_likelihoods: dict[str, Floats]
    common_discount: float
    left_out: tuple[str, ...]
    reason: str = ""

    @property
    def label(self) -> str:
        """From where to where."""
        return f"{self.origin} → {self.target}"

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


@dataclass(frozen=True, eq=False)
class CarryingOver(Result):
    """What `carry_over` found.

    Attributes:
        condition: the name of the condition.
        levels: its values, in the order of the alphabet.
        pairs: every ordered pair of two values.
        together: of each two values, how the horizons under them hang together.
        remarks: who and what is left out, and what the decisions under one condition cannot tell.
        state_reward: the test that the reward depends on the state reached alone, under the condition that contradicts it most;
            None where that is not assumed.
    """

    condition: str
    levels: tuple[str, ...]
    pairs: tuple[Carried, ...]
    together: tuple[Together, ...]
    remarks: tuple[str, ...]
    state_reward: StateRewardTest | None = None

    _drawn: ClassVar[tuple[str, ...]] = ("from", "gain", "gain_low", "gain_high")
    _shown: ClassVar[tuple[str, ...]] = (
        *("from", "to", "persons", "decisions", "own", "one_discount", "chance"),
        *("gain", "gain_low", "gain_high"),
    )

    @cached_property
    def kept(self) -> Gain:
        """What own horizons gain where they are carried, over all pairs of conditions; NaN where it is not known."""
        carried = [pair.by_person() for pair in self.pairs if not np.isnan(pair.gain().estimate)]
        return _gain(pd.concat(carried or [pd.DataFrame(columns=["gain", "decisions"], dtype=np.float64)]))

    @cached_property
    def answer(self) -> Finding:
        """Whether a horizon belongs to the person or to the situation, as far as these decisions tell."""
        if self.state_reward is not None and self.state_reward.clear:
            return Finding(QUESTION, "No usable answer", self.state_reward.why, "bad")
        usable = [each for each in self.together if np.isfinite(each.p_person)]
        if not usable:
            return Finding(QUESTION, "No usable answer", " ".join(map(_hanging, self.together)), "bad")
        least = (1 - LEVEL) / len(usable)
        person = any(each.p_person < least / 2 for each in usable)  # on one side
        apart, shift = (any(p < least for p in ps) for ps in zip(*((each.p_apart, each.p_shift) for each in usable), strict=True))
        if person:
            said = "To both" if apart else "At least in part to the person"
            said += ", after a shift that all have in common" if shift else ""
        else:
            said = "At least in part to the situation" if apart else "These decisions do not tell"
            said += ", but for a change that all have in common" if shift and not apart else ""
        reasons = " ".join(map(_hanging, self.together))
        if np.isfinite(self.kept.estimate):
            carried = "Carried to another condition, a person's own horizon gains"
            reasons += f" {carried} {_figures(self.kept)} over one discount for everybody."
        return Finding(QUESTION, said, reasons, "good" if person or apart else "caution")

    def sentences(self) -> str:
        """The answer, one sentence for each pair, and remarks."""
        answer = self.answer
        lines = [f"{QUESTION} {answer.answer}. {answer.reasons}", *(_sentence(pair) for pair in self.pairs)]
        if self.state_reward is not None and not self.state_reward.clear:
            lines.append(self.state_reward.verdict.reasons)
        return "\n".join([*lines, *self.remarks])

    def to_frame(self) -> pd.DataFrame:
        """One row per pair: the mean log-likelihood of a decision under each model, the one discount for everybody, what the own
        horizon gains over it."""
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
            for pair in self.pairs
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts; what is not known is NaN."""
        return {
            "condition": self.condition,
            "levels": list(self.levels),
            "answer": self.answer.to_dict(),
            "kept": self.kept._asdict(),
            "together": [each._asdict() for each in self.together],
            "summary": self.sentences(),
            "pairs": [
                {
                    "from": pair.origin,
                    "to": pair.target,
                    "log_likelihood": {model: pair.mean(model) for model in MODELS},
                    "common_discount": pair.common_discount,
                    "gain": pair.gain()._asdict(),
                    "reason": pair.reason,
                    "left_out": list(pair.left_out),
                    "experts": list(pair.experts),
                    "decisions": pair.decisions.tolist(),
                    "by_expert": {model: values.tolist() for model, values in pair.log_likelihoods.items()},
                }
                for pair in self.pairs
            ],
            "remarks": list(self.remarks),
            "state_reward": None if self.state_reward is None else self.state_reward.to_dict(),
        }

    def _height(self) -> float:
        return 1.7 + 0.35 * len(self.pairs)

    def _draw(self, ax: Any) -> None:
        """What the own horizon gains per decision over one discount for everybody, with its interval."""
        rows, gains = np.arange(len(self.pairs)), [pair.gain() for pair in self.pairs]
        ends = np.array([[gain.low, gain.high] for gain in gains])
        shown = np.append(ends[np.isfinite(ends)], 0.0)
        room = 0.6 * (shown.max() - shown.min()) or 0.1
        ax.axvline(0.0, color="0.3", linewidth=0.8)
        ax.hlines(rows - 0.1, ends[:, 0], ends[:, 1], color=COLOURS[0], linewidth=2)
        ax.plot([gain.estimate for gain in gains], rows - 0.1, "o", color=COLOURS[0])
        ax.set_xlim(shown.min() - 0.3 * room, shown.max() + 0.3 * room)
        ax.set_yticks(rows, [literal(pair.label) for pair in self.pairs])
        ax.set_ylim(len(self.pairs) - 0.5, -0.5)
        ax.set_xlabel("log-likelihood of a decision with the own horizon,\nabove that with one discount for everybody")
        ax.locator_params(axis="x", nbins=4)

    def _content(self) -> dict[str, Any]:
        return self.to_dict()


def _figures(gain: Gain) -> str:
    """A gain with its interval, in words."""
    return f"{gain.estimate:.4f} per decision (95 % interval {gain.low:.4f} to {gain.high:.4f})"


def _hanging(each: Together) -> str:
    """How horizons under two conditions hang together, in words."""
    if each.reason:
        return f"How horizons under {each.origin} and {each.target} hang together is not known: {each.reason}."
    return (
        f"Logit discounts of persons under {each.origin} and {each.target} correlate by {each.correlation:.2f} (95 % interval "
        f"{each.correlation_low:.2f} to {each.correlation_high:.2f}). From {each.origin} to {each.target} everybody's changes by "
        f"{each.shift:.2f} ({each.shift_low:.2f} to {each.shift_high:.2f}); changes differ between persons by a standard "
        f"deviation of {each.apart:.2f} (all alike: p {p_text(each.p_apart)})."
    )


def _sentence(pair: Carried) -> str:
    """How well own horizons predict beside one discount for everybody, in words."""
    what = f"A horizon carried from {pair.origin} to {pair.target} predicts"
    gain = pair.gain()
    if np.isnan(gain.estimate):
        return f"How well {what[0].lower()}{what[1:]} is not known: {pair.reason}."
    how = "better than" if gain.low > 0 else "worse than" if gain.high < 0 else "neither clearly better nor clearly worse than"
    figures = f"{pair.mean('own'):.3f} against {pair.mean('one_discount'):.3f} per decision, a difference of {gain.estimate:.4f}"
    return f"{what} {how} one discount for everybody ({figures}, 95 % interval {gain.low:.4f} to {gain.high:.4f})."


def carry_over(
    problem: Problem,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    condition: str = "",
    *,
    known_reward: Any = None,
    common_discount: float | None = None,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> CarryingOver:
    """Predict each person's decisions under one condition from those under another.

    Args:
        problem: made of tables with the condition of each episode.
        demonstrations: the table, or one for each task in the order they were joined; by default the problem's own.
        condition: the name of the condition; its values are groups.
        known_reward: as in `MaximumLikelihood`; without it the reward is estimated under the condition that predicts.
        common_discount: the one discount for everybody that own horizons are compared with; by default it is estimated under
            the condition that predicts.
        seed: scatters the starts of searches.
        jobs: processes that share the fits; -1 is all cores. The answer does not depend on it.
        progress: called after each fit.

    Returns:
        For each pair of conditions how horizons go together and how well one predicts the other
        (`multihorizon.questions.carrying_over.CarryingOver`).

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
        >>> found = carry_over(Problem(d.mdp, table), condition="day", known_reward=d.reward)
        >>> found.answer.answer
        'At least in part to the person'
    """
    tables = tables_of(require_finite(problem), demonstrations)
    if common_discount is not None:
        as_discount(common_discount, "common_discount")
    levels, parts, remarks = _dealt(problem, tables, condition)
    problem = problem.in_tasks(MDP.as_known)
    asked: list[_Asked] = []
    for origin, target in permutations(levels, 2):
        pair, told = _ask(problem, parts, origin, target)
        remarks += told
        asked += [] if pair is None else [pair]
    if not asked:
        raise ValueError(f"at least three persons must be seen under two values of {condition}, received fewer")
    if with_known_reward(problem, known_reward)[1] is None:
        remarks += [sentence for pair in asked for sentence in _unearned(pair)]
    problems = {pair.key: pair.known for pair in asked}
    task = partial(_fit, known_reward, common_discount, as_seed(seed))
    found: dict[_Key, _Fits] = {}
    for done, (key, fits) in enumerate(zip(problems, in_parallel(task, list(problems.values()), jobs), strict=True), 1):
        found[key] = fits
        progress(done / len(problems), f"fit {done} of {len(problems)}: {key.level}")
    between: list[Together] = []
    shifts: dict[tuple[str, str], Floats] = {}
    for pair in asked:
        if pair.origin < pair.target:
            a, b = pair.origin, pair.target
            there = [found[_Key(level, pair.experts)].own for level in (a, b)]
            said, others = together(a, b, *(each.spread_of(pair.experts) for each in there))
            reasons = [each.why(level) for level, each in zip((a, b), there, strict=True) if each.spread is None]
            said = said._replace(reason=" and ".join(reasons))
            between.append(said)
            if others is not None:
                shifts |= {(a, b): others, (b, a): -others}
    pairs = tuple(_predict(pair, found, known_reward, shifts.get((pair.origin, pair.target))) for pair in asked)
    tests = [fits.state_reward for fits in found.values() if fits.state_reward is not None]
    made = [replace(test, p_value=min(1.0, len(tests) * test.p_value)) for test in tests if not test.reason] or tests
    of_states = min(made, key=lambda test: test.p_value, default=None)
    return CarryingOver(condition, levels, pairs, tuple(between), tuple(dict.fromkeys(remarks)), of_states)


#: The decisions `(S,A)` of each of a problem's experts.
Decided = list[Floats]


def _dealt(
    problem: Problem, tables: Sequence[Demonstrations], condition: str
) -> tuple[tuple[str, ...], dict[str, Decided], list[str]]:
    """The values of a condition, the decisions under each, and what is left out, in words."""
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
    ends, parts = np.cumsum([0, *map(len, values)]), {}
    for level in levels:
        kept, decided = (texts == level).to_numpy(), Decided()
        for table, low, high in zip(tables, ends[:-1], ends[1:], strict=True):
            decided += list(table.counts_of_episodes(problem.experts[len(decided)].mdp, kept[low:high]))
        parts[level] = decided
    lacking = int(texts.isna().sum())
    return levels, parts, [f"{condition} is not known of {count(lacking, 'episode')}, left out here."] if lacking else []


class _Key(NamedTuple):
    """What is fitted: decisions of some persons under a condition."""

    level: str
    persons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Asked:
    """What is asked of a pair: who is predicted, the decisions that predict and those that are predicted, and who is left out."""

    origin: str
    target: str
    experts: tuple[str, ...]
    known: Problem
    predicted: Problem
    left_out: tuple[str, ...]

    @property
    def key(self) -> _Key:
        """Under which name the decisions that predict are fitted."""
        return _Key(self.origin, self.experts)


def _ask(problem: Problem, parts: dict[str, Decided], origin: str, target: str) -> tuple[_Asked | None, list[str]]:
    """What to ask of a pair, nothing where there are too few persons for a population; and who is left out, in words."""
    decided = [parts[level] for level in (origin, target)]
    seen = [{e.name for e, own in zip(problem.experts, part, strict=True) if own.any()} for part in decided]
    experts = tuple(name for name in problem.names if name in seen[0] and name in seen[1])
    left_out = tuple(name for name in problem.names if (name in seen[0]) != (name in seen[1]))
    who = f"{count(len(left_out), 'person')} ({in_words(list(left_out))})"
    told = []
    if left_out and origin < target:
        told.append(f"Between {origin} and {target}, {who} seen under one of them only cannot be predicted from the other.")
    if len(experts) < least_persons(1):
        return None, [*told, f"Fewer than three persons are left from {origin} to {target}."]

    def some(part: Decided) -> Problem:
        """The decisions of those who are predicted as a problem."""
        pairs = zip(problem.experts, part, strict=True)
        return problem.with_experts(
            replace(expert, counts=own, conditions=None) for expert, own in pairs if own.any() and expert.name in set(experts)
        )

    return _Asked(origin, target, experts, some(decided[0]), some(decided[1]), left_out), told


def _unearned(pair: _Asked) -> list[str]:
    """Of which rewards of what is predicted nothing is known from what predicts, in words; raises where that is all of them."""
    wanted = ~never_earned(pair.predicted)
    lacking = wanted & never_earned(pair.known)
    if wanted.any() and lacking.sum() == wanted.sum():
        raise ValueError(
            f"decisions under {pair.origin} must be made for some of the rewards of those under {pair.target}, received none "
            "in common: give a known reward, or features"
        )
    if not lacking.any():
        return []
    names = [name for name, lacks in zip(pair.known.parameter_names, lacking, strict=True) if lacks]
    return [
        f"Decisions under {pair.target} can earn {in_words(names)}, of which those under {pair.origin} say nothing: there it "
        "counts as nothing. A known reward or features would help."
    ]


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A model that was fitted.

    Attributes:
        experts: the persons.
        places, shares: where each may be, η `(m,Q,2)`, and with which share `(m,Q)`.
        inner: how many places in a row have the same logit γ.
        discount: that of the mean of logit discounts, which is the one for everybody where there is one.
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
    def averaged(cls, found: Maximum, identified: bool) -> _Fitted:
        """Where each person is likely to be; where no discount is identified, the maximum decides nothing."""
        places, shares, inner = likely_places(found)
        layout = found.marginal.layout
        parts = layout.unpack(found.psi)
        discount = layout.largest * float(expit(parts.effects[0, 0]))
        identified = identified and bool(spectrum_of(found.value.information).identified()[layout.discount].all())
        spread, finished = None, found.finished or not identified
        if identified and finished:
            means = np.einsum("nq,nqi->ni", shares, places)
            away = places - means[:, None]
            spread = Spread(parts.effects[0], parts.covariance, means, np.einsum("nq,nqi,nqj->nij", shares, away, away))
        return cls(layout.problem.names, places, shares, inner, discount, parts.theta, finished, spread)

    def spread_of(self, experts: Sequence[str]) -> Spread | None:
        """The spread with the persons in this order."""
        if self.spread is None:
            return None
        order = [self.experts.index(name) for name in experts]
        return replace(self.spread, means=self.spread.means[order], covariances=self.spread.covariances[order])

    def why(self, level: str) -> str:
        """Why there is no spread, in words."""
        return f"no discount under {level} is identified" if self.finished else f"the search under {level} did not end"


class _Fits(NamedTuple):
    """Models that are fitted to the decisions under a condition: each with an own horizon, and one discount for everybody.

    `state_reward` is the test that the first one's reward depends on the state reached alone.
    """

    own: _Fitted
    one_discount: _Fitted
    state_reward: StateRewardTest | None = None

    @property
    def models(self) -> dict[str, _Fitted]:
        """The models by name."""
        return {"own": self.own, "one_discount": self.one_discount}


def _fit(known_reward: Any, discount: float | None, seed: int, problem: Problem) -> _Fits:
    """The models that are fitted to all decisions of a problem."""
    _, found, identified, _ = Population("~ 1", known_reward=known_reward).search(problem, seed)
    one = with_one_discount(found, discount)
    return _Fits(_Fitted.averaged(found, identified), _Fitted.averaged(one, identified), population_state_reward(found))


def _predict(pair: _Asked, found: dict[_Key, _Fits], known_reward: Any, shift: Floats | None) -> Carried:
    """How likely each model makes the decisions that are predicted, where η of each person is moved by a shift `(m,2)`."""
    fits, common = found[pair.key], found[_Key(pair.target, pair.experts)].one_discount
    paid = with_known_reward(pair.predicted, known_reward)[0]
    to = np.array([pair.experts.index(name) for name in paid.names])
    decisions, chance = np.zeros(len(to)), np.zeros(len(to))
    for task in paid.tasks:
        choices = np.log(np.maximum(task.mdp.available.sum(axis=1), 1))
        decisions[to] += np.asarray(task.counts.sum(axis=1)).ravel()
        chance[to] -= task.counts @ np.tile(choices, task.mdp.n_actions)
    tables = Tables(paid.tasks, paid.largest_discount, fits.own.reward, np.zeros(0, dtype=np.int64))
    totals = {"chance": chance}
    for model, fitted in fits.models.items():
        totals[model] = np.full(len(to), np.nan)
        if not fitted.finished or (model == "one_discount" and not common.finished):
            continue
        who = [fitted.experts.index(name) for name in paid.names]
        places = fitted.places[who] if shift is None else fitted.places[who] + shift[to][:, None]
        if model == "one_discount":
            places = places.copy()
            with np.errstate(divide="ignore"):
                places[:, :, 0] = logit(common.discount / paid.largest_discount)
        tables = tables.at(fitted.reward)
        totals[model][to] = tables.averaged(tables.counts(paid.tasks), places, fitted.shares[who], fitted.inner)
    unfinished = [
        f"the search for {MODELS[model]} under {level} did not end"
        for level, model, each in (
            *((pair.origin, model, each) for model, each in fits.models.items()),
            (pair.target, "one_discount", common),
        )
        if not each.finished
    ]
    means = {model: totals[model] / decisions for model in MODELS}
    reason = " and ".join(unfinished)
    return Carried(pair.origin, pair.target, pair.experts, decisions, means, common.discount, pair.left_out, reason)
