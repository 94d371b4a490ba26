"""Does a horizon belong to the person or to the situation? What was fitted under one condition predicts another.

The same people decide under several conditions. For each ordered pair of them, all is fitted to the decisions under the first,
`from`. Of the second, `to`, only what other people decided there is used before a person's decisions are predicted.

*A shift that all have in common* says nothing of whose the horizons are, and is taken out before they are carried. With `η =
(logit γ, log λ)`, a person who may be at η under `from` may be at η + δ under `to`, where δ is the difference of the means of
all *other* people (*Both together*). One discount for everybody becomes that of `to`, to which a person adds one of m
shares: what own horizons are compared with is rather too good.

*Averages.* What was decided under `from` leaves open where a person is. The probability of a decision under `to` is the average
over what is likely for this person,

    p(a | s) = ∫ π_{η+δ}(a|s) p(η | decisions under from) dη,

each decision by itself. The probability of all of them at once, `∫ Π_t π_η(a_t|s_t) p(η | …) dη`, would not do: it is the product
of what is predicted of each decision from those under `to` that came before it as well. Two models predict in this way, and what
one gains over the other is due to the horizon alone:

* *own*: η of each person is drawn from a normal distribution, the most likely one (`Population` without covariates);
* *one discount*: the same, but with one discount for everybody. Temperatures differ between people as before.

* *chance*: all available actions are equally likely.

Where the reward is not known, each model has the one that it finds under `from`. Transitions are not choices: those that were
estimated stay as they are.

*Gains.* With n_i decisions of person i under `to`, and d_i the difference of their log-likelihoods under two models, the gain per
decision is the ratio `D = Σ d_i / Σ n_i`. People are the sample: its standard error is `√(m/(m−1) Σ (d_i − D n_i)²) / Σ n_i`
of m people, and its interval is Student's with m − 1 degrees of freedom. The fits are taken as they are.

*The verdict* rests on likelihood ratios (*Tests*), which see much sooner what belongs to whom than predictions do:
do the horizons of people under two conditions correlate, do they change alike, and does everybody change? One population under
each condition is all that is fitted. Of several pairs of conditions p-values are multiplied by the number of pairs, and a pair of
which nothing is known is left out. Where a reward that depends on the action as well predicts clearly better under one of the
conditions, nothing is said of horizons (`population.maximum`).

*Two conditions*: how the horizons of the same people under two conditions hang together: correlation, common shift, and changes
that differ.

*What each condition says.* A population was fitted under each condition j by itself, `η_ij ~ N(μ_j, Σ_j)`, η = (logit γ, log
λ). With m and C the mean and covariance of η_ij given the decisions, these say about as much as

    exp(−½ ηᵀ P η + hᵀ η),      P = C^{-1} − Σ_j^{-1},    h = C^{-1} m − Σ_j^{-1} μ_j,

no more than nothing where P would be negative.

*Both together.* The four numbers v = (logit γ_A, logit γ_B, log λ_A, log λ_B) of a person are drawn from N(μ, Σ). What was seen
of all has the restricted log-likelihood

    Σ_i [−½ log det(I + P_i Σ) + ½ (h_i − P_i μ)ᵀ S_i (h_i − P_i μ) + h_iᵀ μ − ½ μᵀ P_i μ] − ½ log det Σ_i G_i,

with `S_i = (Σ^{-1} + P_i)^{-1}` and `G_i = P_i − P_i S_i P_i`, at `μ = (Σ_i G_i)^{-1} Σ_i (h_i − P_i S_i h_i)`. `Σ = L Lᵀ`,
where the second row of L is `s (ρ, √(1 − ρ²))`: ρ is the correlation of logit discounts. The derivative in Σ is `½ Σ_i [r_i
r_iᵀ − G_i + G_i (Σ_j G_j)^{-1} G_i]` with `r_i = (I − P_i S_i)(h_i − P_i μ)`.

*Three questions*, by likelihood ratios:

* of the person: is ρ above 0? One parameter, on one side.
* of the situation: are differences of logit discounts the same for everybody, `L₂ = (L₁₁, 0)`? A difference of one's own has a
  variance, which is at its edge then, and three covariances with the rest of v: half of the mass of χ² with three degrees of
  freedom, and half with four (Stram and Lee, 1994).
* of all alike: is the difference of the means 0? Student's t with one degree of freedom less than there are people.

The interval of ρ is where its profile is less than 1.92 below the maximum. Nothing is said of temperatures, which may correlate
or change as they like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import chdtrc, chdtri, expit, logit, stdtr

from multihorizon.checks import Floats, Seed, as_discount, as_seed, first_few
from multihorizon.choice.settings import with_known_reward
from multihorizon.choice.surfaces import Tables
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.likelihood.action_rewards import StateRewardTest
from multihorizon.likelihood.maximum_likelihood import never_earned
from multihorizon.mdp import MDP
from multihorizon.numerics.distributions import t_ppf
from multihorizon.parallel import Progress, Run, in_parallel, silent
from multihorizon.population.covariates import least_persons
from multihorizon.population.marginal import modes
from multihorizon.population.maximum import Maximum, climb, node_shares, population_state_reward, spectrum_of
from multihorizon.population.solver import Population
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.schedule import tables_of
from multihorizon.result import COLOURS, Result, literal
from multihorizon.words import LEVEL, Finding, count, decimals, in_words, p_text

#: The models by their names in tables, and in words.
MODELS = {"own": "own horizon", "one_discount": "one discount for everybody", "chance": "chance"}
QUESTION = "Does a horizon belong to the person or to the situation?"


class Gain(NamedTuple):
    """By how much the log-likelihood of a decision is higher, with its standard error and the ends of its 95% CI."""

    estimate: float
    error: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Return whether it is above 0 by more than chance."""
        return self.low > 0


@dataclass(frozen=True, eq=False)
class Carried:
    """Decisions under one condition, predicted from those under another.

    Attributes:
        origin, target: the conditions `from` and `to`.
        experts: the people who were seen under both.
        decisions: how many of each were predicted `(m,)`.
        log_likelihoods: for each of `MODELS` the mean log-likelihood of a decision of each person `(m,)`; NaN where a search did
            not end.
        common_discount: the one discount for everybody, that of `to`.
        left_out: the other people who were seen under either.
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
        """Return the mean log-likelihood of a decision under one of `MODELS`."""
        return float(self.log_likelihoods[model] @ self.decisions / self.decisions.sum())

    def by_person(self, model: str = "own", over: str = "one_discount") -> pd.DataFrame:
        """Return for each person what one model gains over another in all their decisions (`gain`), and how many these are."""
        means = self.log_likelihoods[model] - self.log_likelihoods[over]
        return pd.DataFrame({"gain": means * self.decisions, "decisions": self.decisions}, index=list(self.experts))

    def gain(self, model: str = "own", over: str = "one_discount") -> Gain:
        """Return what one model gains per decision over another."""
        return _gain(self.by_person(model, over))


def _gain(persons: pd.DataFrame) -> Gain:
    """Return the gain per decision from those of people, who may have several rows; NaN of fewer than two people."""
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
        """Return what own horizons gain where they are carried, over all pairs of conditions; NaN where it is not known."""
        carried = [pair.by_person() for pair in self.pairs if not np.isnan(pair.gain().estimate)]
        return _gain(pd.concat(carried or [pd.DataFrame(columns=["gain", "decisions"], dtype=np.float64)]))

    @cached_property
    def answer(self) -> Finding:
        """Return whether a horizon belongs to the person or to the situation, as far as these decisions tell."""
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

    def headline(self) -> str:
        """Return the answer, and how the horizons under the first two conditions hang together."""
        told = _hanging(self.together[0]) if self.together and self.answer.kind != "bad" else self.answer.reasons
        return f"{self.answer.answer}. {told}"

    def sentences(self) -> str:
        """Return the answer, one sentence for each pair, and remarks."""
        answer = self.answer
        lines = [f"{QUESTION} {answer.answer}. {answer.reasons}", *(_sentence(pair) for pair in self.pairs)]
        if self.state_reward is not None and not self.state_reward.clear:
            lines.append(self.state_reward.verdict.reasons)
        return "\n".join([*lines, *self.remarks])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair: the mean log-likelihood of a decision under each model, the one discount for everybody, what
        the own horizon gains over it."""
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
        """Return plain lists and dicts; what is not known is NaN."""
        return {
            "condition": self.condition,
            "levels": list(self.levels),
            "answer": {name: getattr(self.answer, name) for name in Finding.said},
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
        """Draw what the own horizon gains per decision over one discount for everybody, with its interval."""
        rows = np.arange(len(self.pairs))
        gains = [pair.gain() for pair in self.pairs]
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
    """Return a gain with its interval, in words."""
    return f"{decimals(gain.estimate, 4)} per decision (95% CI {decimals(gain.low, 4)} to {decimals(gain.high, 4)})"


def _hanging(each: Together) -> str:
    """Return how horizons under two conditions hang together, in words."""
    if each.reason:
        return f"How horizons under {each.origin} and {each.target} hang together is not known: {each.reason}."
    ends = f"{decimals(each.correlation_low, 2)} to {decimals(each.correlation_high, 2)}"
    correlation = f"{decimals(each.correlation, 2)} (95% CI {ends})"
    if each.correlation_high - each.correlation_low > 1:  # the estimate alone would say little
        correlation = f"{ends} (95% CI)"
    shift = f"{decimals(each.shift, 2)} ({decimals(each.shift_low, 2)} to {decimals(each.shift_high, 2)})"
    return (
        f"Logit discounts of people under {each.origin} and {each.target} correlate by {correlation}. "
        f"From {each.origin} to {each.target} everybody's changes by {shift}; changes differ "
        f"between people by a standard deviation of {decimals(each.apart, 2)} (all alike: p {p_text(each.p_apart)})."
    )


def _sentence(pair: Carried) -> str:
    """Return how well own horizons predict beside one discount for everybody, in words."""
    what = f"A horizon carried from {pair.origin} to {pair.target} predicts"
    gain = pair.gain()
    if np.isnan(gain.estimate):
        return f"How well {what[0].lower()}{what[1:]} is not known: {pair.reason}."
    how = "better than" if gain.low > 0 else "worse than" if gain.high < 0 else "neither clearly better nor clearly worse than"
    figures = f"{decimals(pair.mean('own'), 3)} against {decimals(pair.mean('one_discount'), 3)} per decision"
    interval = f"95% CI {decimals(gain.low, 4)} to {decimals(gain.high, 4)}"
    return f"{what} {how} one discount for everybody ({figures}, a difference of {decimals(gain.estimate, 4)}, {interval})."


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
        common_discount: the one discount factor for everybody that own horizons are compared with; by default it is estimated
            under the condition that predicts.
        seed: scatters the starts of searches.
        jobs: processes that share the fits; -1 is all cores. The answer does not depend on it.
        progress: called after each fit.

    Returns:
        For each pair of conditions how horizons go together and how well one predicts the other
        (`multihorizon.questions.carrying_over.CarryingOver`).

    Raises:
        ValueError: for a condition that is not in the tables, has one value only or is made of numbers, and where fewer than
            three people were seen under two of its values.

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
        pair, said_of_pair = _ask(problem, parts, origin, target)
        remarks += said_of_pair
        asked += [] if pair is None else [pair]
    if not asked:
        raise ValueError(f"at least three people must be seen under two values of {condition}, got fewer")
    if with_known_reward(problem, known_reward)[1] is None:
        remarks += [sentence for pair in asked for sentence in _unearned(pair)]
    problems = {pair.key: pair.known for pair in asked}
    run = Run(as_seed(seed), jobs, progress)
    task = partial(_fit, known_reward, common_discount, Run(run.seed))
    fitted: dict[_Key, _Fits] = {}
    for done, (key, fits) in enumerate(zip(problems, in_parallel(task, list(problems.values()), run.jobs), strict=True), 1):
        fitted[key] = fits
        progress(done / len(problems), f"fit {done} of {len(problems)}: {key.level}")
    between: list[Together] = []
    shifts: dict[tuple[str, str], Floats] = {}
    for pair in asked:
        if pair.origin < pair.target:
            a, b = pair.origin, pair.target
            there = [fitted[_Key(level, pair.experts)].own for level in (a, b)]
            said, others = together(a, b, *(each.spread_of(pair.experts) for each in there))
            reasons = [each.why(level) for level, each in zip((a, b), there, strict=True) if each.spread is None]
            said = said._replace(reason=" and ".join(reasons))
            between.append(said)
            if others is not None:
                shifts |= {(a, b): others, (b, a): -others}
    pairs = tuple(_predict(pair, fitted, known_reward, shifts.get((pair.origin, pair.target))) for pair in asked)
    tests = [fits.state_reward for fits in fitted.values() if fits.state_reward is not None]
    made = [replace(test, p_value=min(1.0, len(tests) * test.p_value)) for test in tests if not test.reason] or tests
    of_states = min(made, key=lambda test: test.p_value, default=None)
    return CarryingOver(condition, levels, pairs, tuple(between), tuple(dict.fromkeys(remarks)), of_states)


#: The decisions `(S,A)` of each of a problem's experts.
Decided = list[Floats]


def _dealt(
    problem: Problem, tables: Sequence[Demonstrations], condition: str
) -> tuple[tuple[str, ...], dict[str, Decided], list[str]]:
    """Return the values of a condition, the decisions under each, and what is left out, in words."""
    values = []
    for table in tables:
        if table.conditions is None or condition not in table.conditions:
            listed = [] if table.conditions is None else [str(name) for name in table.conditions]
            raise ValueError(f"condition {condition} must be known of the episodes of {table.name}, got {in_words(listed)}")
        values.append(table.conditions[condition])
    column = pd.concat(values, ignore_index=True)
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        raise ValueError(f"condition {condition} must have groups as values, got numbers: make groups of them")
    texts = column.map(str).where(column.notna())
    levels = tuple(sorted(texts.dropna().unique()))
    most = 12  # nobody would read a table of more than 144 rows
    if not 2 <= len(levels) <= most:
        raise ValueError(f"condition {condition} must have from 2 to {most} values, got {len(levels)}: {first_few(levels)}")
    ends = np.cumsum([0, *map(len, values)])
    parts = {}
    for level in levels:
        kept = (texts == level).to_numpy()
        decided = Decided()
        for table, low, high in zip(tables, ends[:-1], ends[1:], strict=True):
            decided += list(table.counts_of_episodes(problem.experts[len(decided)].mdp, kept[low:high]))
        parts[level] = decided
    lacking = int(texts.isna().sum())
    return levels, parts, [f"{condition} is not known of {count(lacking, 'episode')}, left out here."] if lacking else []


class _Key(NamedTuple):
    """What is fitted: decisions of some people under a condition."""

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
    """Return what to ask of a pair, nothing where there are too few people for a population; and who is left out, in words."""
    decided = [parts[level] for level in (origin, target)]
    seen = [{e.name for e, counts in zip(problem.experts, part, strict=True) if counts.any()} for part in decided]
    experts = tuple(name for name in problem.names if name in seen[0] and name in seen[1])
    left_out = tuple(name for name in problem.names if (name in seen[0]) != (name in seen[1]))
    who = f"{count(len(left_out), 'person')} ({in_words(list(left_out))})"
    left_words = []
    if left_out and origin < target:
        left_words.append(f"Between {origin} and {target}, {who} seen under one of them only cannot be predicted from the other.")
    if len(experts) < least_persons(1):
        return None, [*left_words, f"Fewer than three people are left from {origin} to {target}."]

    def some(part: Decided) -> Problem:
        """Return the decisions of those who are predicted as a problem."""
        pairs = zip(problem.experts, part, strict=True)
        return problem.with_experts(
            replace(expert, counts=counts, conditions=None)
            for expert, counts in pairs
            if counts.any() and expert.name in set(experts)
        )

    return _Asked(origin, target, experts, some(decided[0]), some(decided[1]), left_out), left_words


def _unearned(pair: _Asked) -> list[str]:
    """Return of which rewards of what is predicted nothing is known from what predicts, in words; raises where that is all of
    them."""
    wanted = ~never_earned(pair.predicted)
    lacking = wanted & never_earned(pair.known)
    if wanted.any() and lacking.sum() == wanted.sum():
        raise ValueError(
            f"decisions under {pair.origin} must be made for some of the rewards of those under {pair.target}, got none "
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
        experts: the people.
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
    def averaged(cls, maximum: Maximum, identified: bool) -> _Fitted:
        """Return where each person is likely to be; where no discount is identified, the maximum decides nothing."""
        every = list(node_shares(maximum))
        shares = np.concatenate([shares for shares, _ in every])
        places = np.concatenate([near.places for _, near in every])
        layout = maximum.marginal.layout
        parts = layout.unpack(maximum.psi)
        discount = layout.largest * float(expit(parts.effects[0, 0]))
        identified = identified and bool(spectrum_of(maximum.value.information).identified()[layout.discount].all())
        spread = None
        finished = maximum.finished or not identified
        if identified and finished:
            means = np.einsum("nq,nqi->ni", shares, places)
            away = places - means[:, None]
            spread = Spread(parts.effects[0], parts.covariance, means, np.einsum("nq,nqi,nqj->nij", shares, away, away))
        return cls(layout.problem.names, places, shares, every[0][1].inner, discount, parts.theta, finished, spread)

    def spread_of(self, experts: Sequence[str]) -> Spread | None:
        """Return the spread with the people in this order."""
        if self.spread is None:
            return None
        order = [self.experts.index(name) for name in experts]
        return replace(self.spread, means=self.spread.means[order], covariances=self.spread.covariances[order])

    def why(self, level: str) -> str:
        """Return why there is no spread, in words."""
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
        """Return the models by name."""
        return {"own": self.own, "one_discount": self.one_discount}


def with_one_discount(maximum: Maximum, discount: float | None = None) -> Maximum:
    """Return the maximum where everybody has one discount, from that where people differ; the discount is this one, if it is
    given.

    The spread of logit γ is held at 0.01, which changes no choice, and its correlation with log λ at 0. What decisions say of a
    person (Λ) is kept. There must be no covariates.
    """
    layout = maximum.marginal.layout
    psi = maximum.psi.copy()
    first = maximum.marginal.layout.spread.start
    if layout.deep != 2 or layout.design.shape[1] != 1:
        raise ValueError("one discount for everybody must be asked of people without covariates")
    psi[first + 1 : first + 3] = 0.0, np.log(np.linalg.norm(layout.unpack(psi).root[1]))
    held = [first, first + 1]
    if discount is not None:
        edge = expit(-12.0)  # beyond, tables are as there
        psi[layout.discount] = logit(np.clip(discount / layout.largest, edge, 1 - edge)) / layout.design[0]
        held.append(layout.discount.start)
    # a step is at most as long as the spread: it goes most of the way with a larger one
    for size, nodes, tol in ((0.3, 7, 0.1), (0.1, 7, 0.02), (0.01, 15, 1e-3)):
        psi[first] = np.log(size)
        persons = replace(modes(layout, psi), precision=maximum.persons.precision)
        there = climb(layout, psi, persons, nodes, Run(), tol, held=held)
        psi = there.psi.copy()
    return there


def _fit(known_reward: Any, discount: float | None, run: Run, problem: Problem) -> _Fits:
    """Return the models that are fitted to all decisions of a problem."""
    _, maximum, identified, *_ = Population("~ 1", known_reward=known_reward).search(problem, run)
    one = with_one_discount(maximum, discount)
    return _Fits(_Fitted.averaged(maximum, identified), _Fitted.averaged(one, identified), population_state_reward(maximum))


def _predict(pair: _Asked, every_fit: dict[_Key, _Fits], known_reward: Any, shift: Floats | None) -> Carried:
    """Return how likely each model makes the decisions that are predicted, where η of each person is moved by a shift `(m,2)`."""
    fits = every_fit[pair.key]
    common = every_fit[_Key(pair.target, pair.experts)].one_discount
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


@dataclass(frozen=True, eq=False)
class Spread:
    """What was found of people under one condition.

    Attributes:
        mean, covariance: of the population, `(2,)` and `(2,2)`.
        means, covariances: of η of each person given their decisions, `(n,2)` and `(n,2,2)`.
    """

    mean: Floats
    covariance: Floats
    means: Floats
    covariances: Floats

    def said(self) -> tuple[Floats, Floats]:
        """Return P `(n,2,2)` and h `(n,2)`, with η counted from the population's mean."""
        root = np.linalg.cholesky(self.covariance)
        inverse = np.linalg.inv(root)
        variances, vectors = np.linalg.eigh(inverse @ self.covariances @ inverse.T)
        precise = 1 / np.maximum(variances, 1e-12)
        along = vectors.transpose(0, 2, 1) @ inverse
        away = (along @ (self.means - self.mean)[:, :, None])[:, :, 0]
        gained = np.maximum(precise - 1.0, 0.0)
        weight = np.where(gained > 0, precise * away, 0.0)
        return along.transpose(0, 2, 1) @ (gained[:, :, None] * along), (along.transpose(0, 2, 1) @ weight[:, :, None])[:, :, 0]


class Together(NamedTuple):
    """How logit discounts under one condition and another hang together; NaN where it is not known.

    Attributes:
        origin, target: the conditions.
        correlation, correlation_low, correlation_high: with a 95% CI.
        p_person: of "horizons under one say nothing of those under the other".
        shift, shift_error, shift_low, shift_high, p_shift: by how much the logit discounts of all change, and "by nothing".
        apart: the standard deviation of changes between people.
        p_apart: of "everybody changes alike".
        reason: why it is not known; empty where it is.
    """

    origin: str
    target: str
    correlation: float = np.nan
    correlation_low: float = np.nan
    correlation_high: float = np.nan
    p_person: float = np.nan
    shift: float = np.nan
    shift_error: float = np.nan
    shift_low: float = np.nan
    shift_high: float = np.nan
    p_shift: float = np.nan
    apart: float = np.nan
    p_apart: float = np.nan
    reason: str = ""


def together(origin: str, target: str, first: Spread | None, second: Spread | None) -> tuple[Together, Floats | None]:
    """Return how the horizons of the same people under two conditions hang together, and by how much η of all but one of them
    changes, for each `(n,2)`; nothing is known where one condition is None."""
    if first is None or second is None:
        return Together(origin, target), None
    n = len(first.means)
    # the places in v of logit discount and log temperature under the first condition, and under the second
    before, after = np.array([0, 2]), np.array([1, 3])
    # correlations at which the profile is taken: closer to each other near the ends
    rhos = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 41))
    P, h = np.zeros((n, 4, 4)), np.zeros((n, 4))
    for places, spread in ((before, first), (after, second)):
        P[:, places[:, None], places], h[:, places] = spread.said()
    roots = [np.linalg.cholesky(spread.covariance) for spread in (first, second)]
    entries = np.array([roots[0][0, 0], roots[1][0, 0], *(0.1 * roots[0][1, 1] * np.ones(5)), roots[0][1, 1], roots[1][1, 1]])
    starts = entries[[0, 1, 2, 3, 7, 4, 5, 6, 8]]
    ask = partial(_best, P, h)
    # the profile of ρ from the middle to either end, each from the last
    values = np.empty(rhos.size)
    ends = [starts] * rhos.size
    middle = rhos.size // 2
    for order in (range(middle, rhos.size), range(middle, -1, -1)):
        at = starts
        for k in order:
            values[k], at = ask(at, rho=rhos[k])
            ends[k] = at
    top = int(np.argmax(values))
    best = values[top]
    rho = rhos[top]
    root = _root(ends[top], rhos[top])
    alike = ask(np.delete(ends[-1], 1), rho=None)[0]
    best = max(best, alike)
    inside = np.flatnonzero(values > best - 0.5 * chdtri(1, 1 - LEVEL))
    gain = 2 * (best - values[middle])
    p_person = 0.5 * float(chdtrc(1, gain)) if rho > 0 else 1 - 0.5 * float(chdtrc(1, gain))
    loss = max(2 * (best - alike), 0.0)
    G, kept = _kept(P, root)
    precision = G.sum(axis=0)
    weighted = (kept @ h[:, :, None])[:, :, 0]

    def moved(without: Floats, of: Floats) -> Floats:
        """Return the difference of the means, with these sums of G and of (I − P S) h."""
        mu = np.linalg.pinv(without, hermitian=True) @ of
        change: Floats = second.mean - first.mean + mu[after] - mu[before]
        return change

    shift = float(moved(precision, weighted.sum(axis=0))[0])
    others = np.array([moved(precision - one, weighted.sum(axis=0) - each) for one, each in zip(G, weighted, strict=True)])
    apart = np.array([-1.0, 1.0, 0.0, 0.0])
    error = float(np.sqrt(apart @ np.linalg.pinv(precision) @ apart))
    reach = float(t_ppf((1 + LEVEL) / 2, n - 1)) * error
    said = Together(
        origin,
        target,
        float(rho),
        float(rhos[inside[0]]) if inside.size else float(rho),
        float(rhos[inside[-1]]) if inside.size else float(rho),
        p_person,
        shift,
        error,
        shift - reach,
        shift + reach,
        2 * float(stdtr(n - 1, -abs(shift) / error)),
        float(np.linalg.norm(root[1] - root[0])),
        float(0.5 * chdtrc(3, loss) + 0.5 * chdtrc(4, loss)),
    )
    return said, others


def _root(z: Floats, rho: float | None) -> Floats:
    """Return L from its entries: those of the first row, of the second (none where everybody changes alike), and of the
    others."""
    root = np.zeros((4, 4))
    root[0, 0] = z[0]
    rest = z[1:]
    if rho is None:
        root[1, 0] = z[0]
    else:
        root[1, :2] = z[1] * np.array([rho, np.sqrt(1 - rho**2)])
        rest = z[2:]
    root[2, :3], root[3] = rest[:3], rest[3:]
    return root


def _kept(P: Floats, root: Floats) -> tuple[Floats, Floats]:
    """Return G_i `(n,4,4)` and `I − P_i S_i`; Σ may be singular."""
    kept = np.linalg.inv(np.eye(4) + P @ root @ root.T).astype(np.float64)
    G: Floats = kept @ P
    return G, kept


def _best(P: Floats, h: Floats, start: Floats, rho: float | None) -> tuple[float, Floats]:
    """Return the largest restricted log-likelihood at a correlation, or where everybody changes alike, and where it is."""

    def loss(z: Floats) -> tuple[float, Floats]:
        root = _root(z, rho)
        G, kept = _kept(P, root)
        precision = G.sum(axis=0) + 1e-9 * np.eye(4)
        inverse = np.linalg.inv(precision)
        mu = inverse @ (kept @ h[:, :, None]).sum(axis=0)[:, 0]
        rest = h - P @ mu
        r = (kept @ rest[:, :, None])[:, :, 0]
        S = root @ root.T @ kept
        logs = np.linalg.slogdet(kept)[1]
        value = 0.5 * logs.sum() + 0.5 * np.einsum("ni,nij,nj->", rest, S, rest) + (h @ mu).sum()
        value -= 0.5 * np.einsum("i,nij,j->", mu, P, mu) + 0.5 * np.linalg.slogdet(precision)[1]
        slope = r.T @ r - G.sum(axis=0) + np.einsum("nij,jk,nkl->il", G, inverse, G)
        entries = slope @ root
        if rho is None:
            moved = np.concatenate([[entries[0, 0] + entries[1, 0]], entries[2, :3], entries[3]])
        else:
            second = entries[1, 0] * rho + entries[1, 1] * np.sqrt(1 - rho**2)
            moved = np.concatenate([[entries[0, 0], second], entries[2, :3], entries[3]])
        return -float(value), -moved

    sizes = 1 if rho is None else 2  # standard deviations of logit discounts: a sign would be that of ρ
    bounds = [(0.0, None)] * sizes + [(None, None)] * (len(start) - sizes)
    end = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-8})
    return -float(end.fun), end.x
