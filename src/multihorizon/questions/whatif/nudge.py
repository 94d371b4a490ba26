"""The smallest change that works: how much must be paid so that a person does something.

*Which bonus, and which probability.* A bonus b is paid besides the reward, for an action a in a state s, or at each arrival in s.
Asked for is the smallest b ≥ 0 with which the person chooses a in s, or ever reaches s from the first state, with the chance c.
Plans with a bonus are those of `whatif`: of a solution with its reward, of policies by the identity there, without any.

*How the probability responds.* With `m = ∂V/∂b`, the discounted number of times that the person will be paid,

    ∂Q/∂b = u + γTm,    m = (I − γP)⁻¹ Σ_a π u,    ∂ log π/∂b = (∂Q/∂b − m)/λ,

u what a bonus of 1 adds to the reward. *An action.* Let p be its chance in s, and x and y the discounted returns to s,
`E γ^(time until then)`, after any choice and after the other choices. Then

    ∂ logit p/∂b = (1 − y) / {λ (1 − x)}  ≥  (1 − γ)/λ,

so that p rises, and every chance below 1 is reached by a finite bonus if γ < 1. *A state.* The chance h to reach it changes by
`(I − P)⁻¹ Σ_a π (∂ log π/∂b) (Th)` on the way there. It need not rise: whoever discounts prefers what is paid soon to what is
paid surely, and a larger bonus may mean a quick way that often fails.

*The search.* The bonus doubles from a sixteenth of the temperature until the chance is reached, and Newton's method on the logit,
kept between the ends that are known, finds it. Found is only what is planned to have the chance c to 1e-10. The chance is then
planned at bonuses between 0 and twice the one that was found, the *response curve*; if it is reached earlier there, the search
goes on there. Whether the chance was seen to fall is said.

*No bonus is enough* where the chance stays below c however large b is. As b grows, V becomes `bM + w`, with M the most that can
be had of a bonus of 1. Only actions that attain M are left, and among them the plan for the reward decides. Where the chance
under this plan is below c, and the response never fell, b is infinite. A search that ends otherwise has found nothing, and says
why.

*How sure.* The same draws from the estimate as in `whatif`; the bonus that each needs is found, and the interval are quantiles.
Where no bonus is enough in so many draws that the upper quantile is infinite, the interval is one-sided, and their share is said.

*For how many it is enough.* A bonus is enough for a share q of K people where at least qK of them need no more: the smallest such
one is no. ⌈qK⌉ of their bonuses in order, of the estimate and of each draw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import logit

from multihorizon.checks import Bools, Floats, Ints, Seed, as_count, as_jobs, as_level, as_seed, first_few, place_of
from multihorizon.estimate import Draws, interval_ends
from multihorizon.exact.identify import Identification
from multihorizon.mdp import MDP, steps_into
from multihorizon.parallel import Progress, Run, in_parallel, silent
from multihorizon.planning.plan import plan
from multihorizon.problem import Problem, refuse_beliefs
from multihorizon.questions.whatif.change import (
    Change,
    Known,
    are_policies,
    as_reward,
    each_or_nan,
    expected_rewards,
    explaining,
    is_timed,
    planned_or_nan,
    plans_at_once,
    read_change,
    read_source,
    seen,
)
from multihorizon.questions.whatif.predict import BOUNDED, IDENTIFIED, NOT_BOUNDED, TRIED, Outcomes, Sample, sample_of
from multihorizon.result import COLOURS, Result, literal
from multihorizon.solution import Solution
from multihorizon.words import decimals, from_to, in_words, interval_text, percent, significant

#: The shares of people for whom a bonus is to be enough, and what they are called.
SHARES = {0.5: "half", 0.9: "90%"}
#: The words for what was found.
FOUND, ALREADY, INFINITE, NOT_FOUND = "found", "already", "infinite", "not found"


def _amount(bonus: float) -> str:
    """Return a bonus with three digits, and with thousands separators where it is large."""
    return decimals(float(significant(bonus)), 0) if bonus >= 1000 else significant(bonus)


@dataclass(frozen=True, eq=False)
class Nudge(Result):
    """The smallest bonus with which each expert does something with a given chance.

    Attributes:
        experts: their names `(K,)`.
        state, action: what is paid for; without an action (""), each arrival in the state.
        chance: the chance that is asked for.
        discounts: of the experts `(K,)`.
        before: the chances `(K,)` without a bonus.
        bonus: the smallest bonuses `(K,)`; infinite where none is enough, NaN where none was found.
        low, high: the ends of their intervals or bounds `(K,)`; NaN where there are none. An infinite upper end is none at all:
            the interval is one-sided.
        none_enough: the shares `(K,)` of draws from the estimate in which no bonus below 10⁷ temperatures is enough; NaN without
            draws.
        status: of each expert "identified", "bounded" (attained: at least this wide) or "not bounded", as in `Prediction`.
        answers: of each expert "found", "already" (the bonus is 0), "infinite" or "not found".
        reasons: why a bonus is infinite or was not found; else empty.
        rising: whether the chance rose with the bonus wherever it was planned `(K,)`.
        steps: the fewest steps from a first state to the state; −1 if there is no way.
        weight: what a bonus of 1 is worth to each expert when it is that many steps away `(K,)`.
        curves: one row per expert and bonus: the chance.
        enough: one row per group and share of its people: how many they are, and the smallest bonus that is enough for the share,
            with its interval; NaN where it is not known. The first group is everyone (""). Empty where there is one expert, and
            where bonuses cannot be compared.
        unit: what a bonus of 1 means.
        comparable: whether the bonuses of different experts are on one scale.
        level: of the intervals.
        remarks: what else there is to know.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("expert", "bonus", "low", "high")
    _shown: ClassVar[tuple[str, ...]] = ("expert", "discount", "before", "bonus", "low", "high", "status", "answer")

    experts: tuple[str, ...]
    state: str
    action: str
    chance: float
    discounts: Floats
    before: Floats
    bonus: Floats
    low: Floats
    high: Floats
    none_enough: Floats
    status: tuple[str, ...]
    answers: tuple[str, ...]
    reasons: tuple[str, ...]
    rising: Bools
    steps: int
    weight: Floats
    curves: pd.DataFrame
    enough: pd.DataFrame
    unit: str
    comparable: bool
    level: float
    remarks: tuple[str, ...]

    def sentences(self) -> str:
        """Of each expert the bonus, and who responds to what is near and who to what is far."""
        lines = []
        for k, name in enumerate(self.experts[: 5 if len(self.experts) > 60 else None]):
            lines.append(f"  {name} (discount {significant(self.discounts[k], 3)}): {self._in_words(k)}")
        if len(self.experts) > 60:
            lines.append(f"  and {len(self.experts) - 5:,} more")
        return "\n".join([self.headline(), *lines, *self._enough_for(), *self.notes()])

    def headline(self) -> str:
        """Return who needs which bonus; of more than six experts, for how many it is known and what half of them need."""
        what = f"choose {self.action} in {self.state}" if self.action else f"reach {self.state}"
        to = f"to {what} with a probability of {percent(self.chance)}"
        if len(self.experts) > 6:
            needed = self.bonus[~np.isnan(self.bonus)]
            if 2 * needed.size <= len(self.experts):
                return f"Which bonus {len(self.experts):,} people need {to} is not known for most of them."
            half = float(np.sort(needed)[(len(self.experts) + 1) // 2 - 1])
            if np.isinf(half):
                return f"For half of {len(self.experts):,} people no bonus is enough {to}."
            bonus = f"a bonus of at most {_amount(half)}" if half else "no bonus"
            most = self.enough[(self.enough["group"] == "") & (self.enough["share"] > 0.5)]
            others = f"; {self._for_share(most)}" if most["bonus"].notna().any() else ""
            return f"Half of {len(self.experts):,} people need {bonus} {to}{others}."
        by_answer = list(zip(self.experts, self.answers, strict=True))
        free, never, lost = ([name for name, one in by_answer if one == kind] for kind in (ALREADY, INFINITE, NOT_FOUND))
        parts = [self._needs(k) for k, answer in enumerate(self.answers) if answer == FOUND]
        if parts:
            parts[0] += f" {to}"
        elif free:
            parts, free = [f"{in_words(free)} {'needs' if len(free) == 1 else 'need'} no bonus {to}"], []
        if free:
            parts.append(f"{in_words(free)} {'needs' if len(free) == 1 else 'need'} none")
        if never:
            parts.append(f"no bonus is enough for {in_words(never)}{'' if parts else f' {to}'}")
        if lost:
            parts.append(f"none was found for {in_words(lost)}")
        return re.sub(r"^no(?=ne | bonus )", "No", "; ".join(parts)) + "."

    def _needs(self, k: int) -> str:
        """Return the bonus that an expert needs with its interval, or the interval alone where it is wide."""
        if self.status[k] == NOT_BOUNDED:
            return f"{self.experts[k]} needs a bonus of unknown size"
        low, high = float(self.low[k]), float(self.high[k])
        ends = interval_text(low, high, _amount) if low < high else ""
        if ends and high > 4 * low:
            return f"{self.experts[k]} needs a bonus of {ends}"
        return f"{self.experts[k]} needs a bonus of {_amount(float(self.bonus[k]))}{f' ({ends})' if ends else ''}"

    def notes(self) -> list[str]:
        """Return who responds to what is near and who to what is far, what a bonus of 1 means, and the remarks."""
        return [*self._near_and_far(), self.unit, *self.remarks]

    def _enough_for(self) -> list[str]:
        """Return the bonuses that are enough for half of the people and for most of them, of the first groups."""
        lines = []
        for group in dict.fromkeys(self.enough["group"].tolist()):
            rows = self.enough[self.enough["group"] == group]
            parts = [self._for_share(rows[rows["share"] == share]) for share in SHARES]
            lines.append(f"{group or 'Everyone'}: {in_words(parts)}.")
        return lines[:5] if len(self.experts) >= 5 else []

    def _for_share(self, row: pd.DataFrame) -> str:
        """Return which bonus is enough for a share of a group, by a row of `enough`."""
        share, bonus, low, high = (float(row[name].iloc[0]) for name in ("share", "bonus", "low", "high"))
        if np.isnan(bonus):
            return f"what is enough for {SHARES[share]} is not known"
        amount = _amount(bonus) if np.isfinite(bonus) else "no bonus"
        ends = f" ({interval_text(low, high, _amount)})" if low < high and np.isfinite(bonus) else ""
        return f"{amount}{ends} is enough for {SHARES[share]}"

    def _in_words(self, k: int) -> str:
        if self.answers[k] == ALREADY:
            text = f"none is needed: {percent(float(self.before[k]))} without"
        elif self.answers[k] == FOUND:
            text = f"{significant(self.bonus[k], 4)}, {percent(float(self.before[k]))} without"
        else:
            text = f"{'no bonus is enough' if self.answers[k] == INFINITE else 'none was found'}: {self.reasons[k]}"
            if not np.isfinite(self.low[k]):
                return text
        if self.status[k] == NOT_BOUNDED:
            return f"{text} ({NOT_BOUNDED})"
        if np.isnan(self.low[k]) or self.low[k] == self.high[k]:
            return text
        ends = interval_text(float(self.low[k]), float(self.high[k]), lambda end: significant(end, 4))
        return f"{text} ({ends})"

    def _near_and_far(self) -> list[str]:
        ordered = ~np.isnan(self.bonus) & (np.array(self.status, dtype=object) == IDENTIFIED)  # others may be in any order
        places = np.flatnonzero(ordered & np.isfinite(self.bonus))
        lines = []
        if self.comparable and places.size > 1 and np.ptp(self.bonus[places]) > 0:
            least = [self.experts[k] for k in places[self.bonus[places] == self.bonus[places].min()]]
            need = "needs" if len(least) == 1 else "need"
            most = self.experts[places[int(np.argmax(self.bonus[places]))]]
            lines.append(f"{in_words(least)} {need} {'least' if self.bonus[places].min() > 0 else 'nothing'}, {most} most.")
        if (
            self.comparable
            and ordered.sum() >= 10
            and np.ptp(self.discounts[ordered]) > 0
            and np.unique(self.bonus[ordered]).size > 1
        ):
            ranks = [pd.Series(values[ordered]).rank() for values in (self.discounts, self.bonus)]
            tie = float(np.corrcoef(ranks)[0, 1])
            lines.append(f"Who looks farther ahead needs {'less' if tie < 0 else 'more'} (rank correlation {decimals(tie, 2)}).")
        if not self.action and self.steps > 1:
            ends = sorted({int(np.argmin(self.weight)), int(np.argmax(self.weight))}, key=lambda k: self.weight[k])
            parts = [f"{significant(self.weight[k], 2)} to {self.experts[k]}" for k in ends]
            lines.append(f"It is at least {self.steps} steps away: from there, a bonus of 1 is worth {in_words(parts)}.")
        return lines

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert: discount, chance before, smallest bonus, interval, how often none is enough, weight and
        answer."""
        return pd.DataFrame(
            {
                "expert": np.array(self.experts, dtype=object),
                "discount": self.discounts,
                "before": self.before,
                "bonus": self.bonus,
                "low": self.low,
                "high": self.high,
                "none_enough": self.none_enough,
                "weight": self.weight,
                "status": np.array(self.status, dtype=object),
                "answer": np.array(self.answers, dtype=object),
                "reason": np.array(self.reasons, dtype=object),
            }
        )

    def _height(self) -> float:
        return 2.6

    def _draw(self, ax: Any) -> None:
        """The response curves, chance against bonus, with the bonus that each expert needs.

        Of more experts than there are colours all curves are grey, and none is named.
        """
        many = len(self.experts) > len(COLOURS)
        for k, (name, rows) in enumerate(self.curves.groupby("expert", sort=False)):
            look = {"color": "0.6", "linewidth": 0.6} if many else {"color": COLOURS[k], "label": literal(str(name))}
            ax.plot(rows["bonus"].to_numpy(float), rows["chance"].to_numpy(float), **look)
            place = self.experts.index(str(name))
            if np.isfinite(self.bonus[place]) and not many:
                chance = max(self.chance, float(self.before[place]))
                ax.plot([self.bonus[place]], [chance], "o", color=look["color"])
                if np.isfinite(self.low[place]):  # a one-sided interval goes on to where the curve ends
                    high = min(self.high[place], max(rows["bonus"].max(), 2 * self.low[place]))
                    ax.hlines(chance, self.low[place], high, color=look["color"], linewidth=2)
        ax.axhline(self.chance, color="0.3", linewidth=0.8, linestyle=":")
        ax.set_ylim(-0.02, 1.02)
        ax.set_xlabel("bonus" if self.comparable else "bonus, in temperatures of each expert")
        what = f"choose {self.action} in {self.state}" if self.action else f"reach {self.state}"
        ax.set_ylabel(literal(f"probability to {what}"))
        if not many:
            ax.legend()

    def _content(self) -> dict[str, Any]:
        rows = self.to_frame().drop(columns="expert").assign(rising=self.rising).to_dict("records")
        curves = {
            str(name): {"bonus": part["bonus"].tolist(), "chance": part["chance"].tolist()}
            for name, part in self.curves.groupby("expert", sort=False)
        }
        return {
            "state": self.state,
            "action": self.action,
            "chance": self.chance,
            "experts": dict(zip(self.experts, rows, strict=True)),
            "steps": self.steps,
            "curves": curves,
            "enough": self.enough.to_dict("records"),
            "unit": self.unit,
            "comparable": self.comparable,
            "level": self.level,
            "remarks": list(self.remarks),
        }


def nudge(
    source: Solution | Identification | Problem,
    *,
    state: object,
    action: object = None,
    chance: float = 0.5,
    initial: ArrayLike | Mapping[str, float] | None = None,
    discount: float | Mapping[str, float] | None = None,
    persons: Literal["each", "groups"] = "each",
    groups: Mapping[str, str] | None = None,
    level: float = 0.95,
    draws: int = 200,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Nudge:
    """Return each expert's minimum bonus for a probability of doing something, and the response of the probability to bonuses.

    With an action it is paid for each choice of it in the state, and the probability is that of choosing it there. Without one it
    is paid at each arrival in the state, and the probability is that of ever reaching it from the first state.

    Args:
        source: as in `predict`: a `Solution` with a reward and discount factors; an `Identification`; or a `Problem` of policies,
            which are enough: the reward need not be known.
        state: the label of a state.
        action: the label of an action that can be taken there.
        chance: the probability to reach, between 0 and 1.
        initial: other probabilities of the first state, from which the state is to be reached, as in `predict`.
        discount: of the experts, for a `Problem` of policies whose discounts are not identified.
        persons: of a `Population`, "each" of its people, or a typical and a new person of each of its "groups".
        groups: the group of each expert, by name: of each group it is said which bonus is enough for half of its people and for
            90%. By default those of a `Population`.
        level: of the intervals.
        draws: from the estimate, of which intervals are quantiles.
        seed: of the draws.
        jobs: processes, among which experts are shared out.
        progress: called with the share that is done.

    Returns:
        By expert, the smallest bonus with its interval, and what else it changes (`multihorizon.questions.whatif.nudge.Nudge`).

    Raises:
        ValueError: where state or action are not in the task or the source cannot answer, in one sentence.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> problem = Problem(d.mdp, d.soft_experts(), names=["near", "middle", "far"])
        >>> found = nudge(problem, state="4", action="right", chance=0.9)
        >>> found.answers
        ('found', 'found', 'found')
    """
    as_level(level)
    as_count(draws, "draws", least=20)
    run = Run(as_seed(seed), as_jobs(jobs), progress)
    asked = _as_chance(chance)
    if isinstance(source, Solution):
        source.require_soft("nudge")
    people = read_source(source, discount, persons)
    refuse_beliefs([people.task], "nudge")
    if discount is not None and not are_policies(source):
        raise ValueError("discount is for a Problem of policies: the experts of a solution or an identification have theirs")
    if people.temperature is None:
        raise ValueError("nudge needs experts who choose with probabilities, got a solution whose experts take the best action")
    if action is not None and initial is not None:
        raise ValueError("initial is for a state to be reached: an action is chosen in its state, wherever a person comes from")
    change = read_change(people.task.mdp, people.names, initial=initial)
    members = _members(people, persons, groups)
    mdp = change.mdp
    place = place_of(state, mdp.state_names, "state", "state")
    move = None if action is None else place_of(action, mdp.action_names, "action", "action")
    if move is not None and not mdp.live[place, move]:
        raise ValueError(f"action must be one that can be taken in state {mdp.state_names[place]}, got {mdp.action_names[move]}")
    spot = _Spot(place, move)
    outcomes = Outcomes(change.task, [spot.state], False, False)
    sample: Sample | None = None
    closed = True
    remarks = []
    if people.theta is not None:
        sample, closed, why = sample_of(people, change, draws, run)
        remarks += [why] if why else list(sample.remarks if sample is not None else ())
    elif people.identified is not None and not people.identified.all():
        remarks.append(TRIED)
    tried = explaining(people, None) if people.policies is not None else None
    work = _Search(people, change, spot, asked, level, sample, tried, outcomes)
    answers = []
    for one in in_parallel(partial(_Search.expert, work), range(len(people.names)), run.jobs):
        answers.append(one)
        run.progress(len(answers) / len(people.names), f"{len(answers):,} of {len(people.names):,} experts")
    status = [one.status if closed else NOT_BOUNDED for one in answers]
    remarks += _remarks(people, status if sample is not None else [], answers)
    steps = _fewest_steps(change.mdp, spot.state)
    discounts = people.discounts if tried is None else tried[0][0]  # of a set, the member that was planned with
    paid_after = 0 if action is not None else max(steps - 1, 0)
    return Nudge(
        experts=people.names,
        state=change.mdp.state_names[spot.state],
        action="" if spot.action is None else change.mdp.action_names[spot.action],
        chance=asked,
        discounts=discounts,
        before=np.array([one.before for one in answers]),
        bonus=np.array([one.bonus for one in answers]),
        low=np.array([one.low for one in answers]),
        high=np.array([one.high for one in answers]),
        none_enough=np.array([one.none_enough for one in answers]),
        status=tuple(status),
        answers=tuple(one.answer for one in answers),
        reasons=tuple(one.reason for one in answers),
        rising=np.array([one.rising for one in answers]),
        steps=steps,
        weight=discounts**paid_after if steps >= 0 else np.zeros(len(people.names)),
        curves=pd.DataFrame(
            {
                "expert": np.repeat(np.array(people.names, dtype=object), [one.curve.shape[1] for one in answers]),
                "bonus": np.concatenate([one.curve[0] for one in answers]),
                "chance": np.concatenate([one.curve[1] for one in answers]),
            }
        ),
        enough=_enough(answers, members if people.comparable else {}, level),
        unit=people.unit,
        comparable=people.comparable,
        level=level,
        remarks=tuple(remarks),
    )


def _members(people: Known, persons: str, groups: Mapping[str, str] | None) -> dict[str, Ints]:
    """Return the places of everyone, and of the people of each group; nothing where the experts are not participants."""
    own = dict(groups or {})
    unknown = next((name for name in own if name not in people.names), None)
    if unknown is not None:
        raise ValueError(f"groups must name experts, got {unknown!r}, and the fit has {first_few(people.names)}")
    if persons == "groups" or len(people.names) < 2:
        if own:
            raise ValueError('groups are of each person: leave them out with persons="groups", and where there is one expert')
        return {}
    if groups is None and isinstance(people.source, Solution) and people.source.estimate.population is not None:
        found = people.source.estimate.population.groups
        own = {} if len(set(found)) == 1 else dict(zip(people.names, map(str, found), strict=True))
    whose = np.array([own.get(name, "") for name in people.names], dtype=object)
    apart = {name: np.flatnonzero(whose == name) for name in dict.fromkeys(own.values())}
    return {"": np.arange(whose.size), **apart}


def _enough(answers: list[_Found], members: dict[str, Ints], level: float) -> pd.DataFrame:
    """Return the smallest bonus that is enough for each share of each group."""
    bonus = np.array([one.bonus for one in answers])
    size = max(one.needed.size for one in answers)
    if size:  # of draws; what is not bounded may be anything in each
        lows = np.stack([one.needed if one.needed.size else np.full(size, np.nan) for one in answers], axis=1)
        highs = lows
    else:
        lows, highs = (np.array([[getattr(one, end) for one in answers]]) for end in ("low", "high"))
    rows = []
    for name, places in members.items():
        for share in SHARES:
            place = int(np.ceil(share * places.size - 1e-9)) - 1
            point, other, low, high = (
                np.sort(np.where(np.isnan(values), least, values)[:, places], axis=1)[:, place]
                for values, least in ((bonus[None], np.inf), (bonus[None], 0.0), (lows, 0.0), (highs, np.inf))
            )
            point = np.where(np.isinf(point) & np.isfinite(other), np.nan, point)
            ends = float(interval_ends(low, level, 0, (0.0, np.inf))[0]), float(interval_ends(high, level, 0, (0.0, np.inf))[1])
            rows.append((name, places.size, share, float(point[0]), *((np.nan, np.nan) if ends == (0.0, np.inf) else ends)))
    return pd.DataFrame(rows, columns=["group", "persons", "share", "bonus", "low", "high"])


class _Spot(NamedTuple):
    """What is paid for: arrival in a state, or an action in it."""

    state: int
    action: int | None


def _as_chance(chance: object) -> float:
    if isinstance(chance, bool) or not isinstance(chance, int | float | np.number) or not 0 < float(chance) < 1:
        raise ValueError(f"chance must be a number between 0 and 1, got {chance!r}")
    return float(chance)


def _fewest_steps(mdp: MDP, state: int) -> int:
    """From a first state to this one; −1 where there is no way."""
    moves = sp.csr_array(mdp.under(mdp.available / 1.0))
    here = mdp.initial > 0
    following = steps_into(moves, np.arange(mdp.n_states) == state)
    at = np.flatnonzero(here & (following >= 0))
    for steps in range(mdp.n_states):
        if (at == state).any():
            return steps
        at = np.unique(following[at])
    return -1


def _remarks(people: Known, status: list[str], answers: list[_Found]) -> list[str]:
    """Return what there is to say of several experts."""
    lines = []
    lost = [name for name, word in zip(people.names, status, strict=bool(status)) if word == NOT_BOUNDED]
    if lost:
        lines.append(f"The decisions do not show which bonus {in_words(lost)} would need.")
    unplanned = max(one.unplanned for one in answers)
    if unplanned:
        lines.append(
            f"In up to {unplanned} of the draws from the estimate the probability without a bonus is not known, because episodes "
            "last for millions of steps or values are infinite. The intervals cover whatever bonus is needed there."
        )
    shares = np.array([one.none_enough for one in answers])
    some = np.flatnonzero(shares > 0)
    if some.size:
        often = from_to([percent(share) for share in (shares[some].min(), shares[some].max())])
        who = in_words([people.names[k] for k in some])
        lines.append(f"In {often} of the draws from the estimate no bonus is enough for {who}.")
    one_sided = [name for name, one in zip(people.names, answers, strict=True) if np.isfinite(one.low) and np.isinf(one.high)]
    if one_sided:
        lines.append(f"The interval of {in_words(one_sided)} is one-sided: it has no upper end.")
    falling = [name for name, one in zip(people.names, answers, strict=True) if not one.rising]
    if falling:
        lines.append(
            f"Over some ranges of the bonus the probability of {in_words(falling)} falls: an early payment is preferred to a "
            "certain one. The bonus is the smallest one on the response curve."
        )
    return lines


# One expert.


class _Found(NamedTuple):
    """What was found of one expert; the curve `(2,G)` holds bonuses and chances; `unplanned` counts draws without a plan.

    `none_enough` is the share of draws in which no bonus is, and `needed` the bonus in each draw.
    """

    before: float
    bonus: float
    low: float
    high: float
    status: str
    answer: str
    reason: str
    rising: bool
    curve: Floats
    unplanned: int = 0
    none_enough: float = np.nan
    needed: Floats = np.zeros(0)


@dataclass(frozen=True, eq=False)
class _Search:
    """The question, asked of one expert after the other; of policies `tried` are the discounts and temperatures `(M,K)`."""

    known: Known
    change: Change
    spot: _Spot
    asked: float
    level: float
    sample: Sample | None
    tried: tuple[Floats, Floats] | None
    outcomes: Outcomes

    def response(self, task: MDP, reward: Floats, gamma: Floats, lam: Floats) -> _Response:
        """Return the response in a task; where moves take time, plans are made in it, and it is the whole task that goes on."""
        whole = task if task.origin is None else task.origin
        outcomes = self.outcomes if whole is self.change.task else Outcomes(whole, [self.spot.state], False, False)
        return _Response(task, self.spot, reward, gamma, lam, outcomes)

    def expert(self, k: int) -> _Found:
        """Return the bonus of one expert, its curve and its interval."""
        people = self.known
        assert people.temperature is not None
        if people.policies is not None:
            assert self.tried is not None
            gamma, lam = (each[:, k] for each in self.tried)
            task, reward = as_reward(self.change.task, people.task.mdp, people.policies[k], lam)
            response = self.response(task, reward, gamma, lam)
        else:
            theta = people.thetas if people.own is None else people.own[:, k]
            gamma, lam = people.discounts[k : k + 1], people.temperature[k : k + 1]
            there = seen(people, self.change, float(gamma[0]))
            response = self.response(there[1].task, expected_rewards(*there, theta)[1], gamma, lam)
        result = self.point(response)
        if people.policies is not None:
            assert people.identified is not None
            if people.identified[k]:
                return result._replace(low=result.bonus, high=result.bonus)
            others = response.needed(self.asked, np.arange(1, response.gamma.size), result.bonus, result.rising)
            ends = np.append(others, np.nan_to_num(result.bonus, nan=np.inf))
            return result._replace(low=float(ends.min()), high=float(ends.max()), status=BOUNDED)
        if self.sample is None:
            return result
        if self.open(k, result, self.sample):
            return result._replace(status=NOT_BOUNDED)
        needed = np.concatenate(
            [
                one.needed(self.asked, np.arange(one.gamma.size), result.bonus, result.rising)
                for one in self.drawn(self.sample.draws, k)
            ]
        )
        low, high = interval_ends(needed, self.level, 0, (0.0, np.inf))
        lost, never = int(np.isnan(needed).sum()), float(np.isinf(needed).mean())
        result = result._replace(unplanned=lost, none_enough=never, needed=needed)
        if low == 0 and np.isinf(high):
            return result._replace(status=NOT_BOUNDED)
        return result._replace(low=float(low), high=float(high))

    def point(self, response: _Response) -> _Found:
        """Return the answer at the first column of a response, with its curve."""
        lam, before = float(response.lam[0]), float(response.at(np.zeros(1), np.zeros(1, dtype=np.int64))[0][0])
        bonus, answer, reason, rising = 0.0, ALREADY, "", True
        if np.isnan(before):
            bonus = np.nan
            answer = NOT_FOUND
            reason = response.unplanned()
        elif before < self.asked:
            if response.most() < self.asked:
                bonus = np.inf
                answer = INFINITE
                reason = response.why_not_more()
            else:
                bonus, rising, reason = response.first(self.asked)
                answer = FOUND if np.isfinite(bonus) else INFINITE if np.isinf(bonus) else NOT_FOUND
        top = 2 * bonus if 0 < bonus < np.inf else 10 * lam
        size = 41 if response.task.n_states <= 2000 else 11  # beyond, plans take a second each
        grid = np.linspace(0.0, top, size)
        chances, slopes = response.at(grid, np.zeros(size, dtype=np.int64))
        rising = rising and not (slopes < -1e-9 / lam).any()
        early = np.flatnonzero((grid < bonus) & (chances > self.asked + 1e-9))
        if answer == FOUND and early.size:
            bonus = response.between(self.asked, grid[early[0] - 1], grid[early[0]])
        return _Found(before, bonus, np.nan, np.nan, IDENTIFIED, answer, reason, rising, np.stack([grid, chances]))

    def drawn(self, drawn: Draws, k: int) -> list[_Response]:
        """Return the responses of drawn parameters: one of all, or one of each drawn task."""
        people, change = self.known, self.change
        timed = is_timed(people, change)
        theta = drawn.reward_of(k)
        if drawn.tasks is None and not timed:
            after = expected_rewards(people, change, theta)[1]
            return [self.response(change.task, after, drawn.discounts[k], drawn.temperatures[k])]
        result = []
        for i, (gamma, lam) in enumerate(zip(drawn.discounts[k], drawn.temperatures[k], strict=True)):
            here, there = people, change
            paid = theta if theta.ndim == 1 else theta[:, i]
            if drawn.tasks is not None:
                mdp = drawn.tasks[i].starting(change.initial)
                here, there = replace(people, task=replace(people.task, mdp=mdp)), replace(change, mdp=mdp)
                paid = drawn.rewards_in(i) if drawn.deviations is None else drawn.rewards_in(i)[:, k]
            here, there = seen(here, there, float(gamma))
            reward = expected_rewards(here, there, paid)[1]
            result.append(self.response(there.mdp, reward, np.array([gamma]), np.array([lam])))
        return result

    def open(self, k: int, answer: _Found, sample: Sample) -> bool:
        """Return whether the chance with this bonus moves with what the decisions do not show."""
        if sample.lost[k]:
            return True
        if sample.pairs is None:
            return False
        bonus = answer.bonus if np.isfinite(answer.bonus) else 0.0
        parts = [
            one.at(np.full(one.gamma.size, bonus), np.arange(one.gamma.size))[0] for one in self.drawn(sample.pairs.draws, k)
        ]
        chances = np.concatenate(parts)
        return not (np.abs(chances[1::2] - chances[::2]).max() <= 2e-5 * sample.pairs.step)


class _Response:
    """How the chance responds to the bonus, for n parameters: rewards `(A·S,)` or `(A·S,n)`, γ and λ `(n,)`."""

    def __init__(self, task: MDP, spot: _Spot, reward: Floats, gamma: Floats, lam: Floats, outcomes: Outcomes) -> None:
        self.task, self.spot, self.gamma, self.lam = task, spot, gamma, lam
        self.reward = reward.reshape(reward.shape[0], -1)
        unit = np.zeros((task.n_states, task.n_actions))
        if spot.action is None:
            unit = np.where(task.live, task.expect((np.arange(task.n_states) == spot.state) / 1.0), 0.0)
        else:
            unit[spot.state, spot.action] = 1.0
        self.unit = np.ascontiguousarray(unit.T)
        self.outcomes = outcomes
        self.engine = outcomes.engine if task.origin is None else outcomes.engine.of(task)

    def at(self, bonus: Floats, columns: Ints) -> tuple[Floats, Floats]:
        """Return the chances `(m,)` at these bonuses of these parameters, and their slopes; NaN where a value is infinite."""
        chance, slope = np.full(bonus.size, np.nan), np.full(bonus.size, np.nan)
        size = plans_at_once(self.task)
        for low in range(0, bonus.size, size):
            part = columns[low : low + size]
            pay = self.unit.reshape(-1, 1) * bonus[low : low + size]
            reward = self.reward[:, part if self.reward.shape[1] > 1 else np.zeros(part.size, dtype=np.int64)] + pay
            policies = planned_or_nan(self.task, reward, self.gamma[part], self.lam[part])
            there = np.flatnonzero(~np.isnan(policies[:, 0, 0]))
            if there.size:
                ask = partial(self._chances, policies[there], self.gamma[part[there]], self.lam[part[there]])
                chance[low + there], slope[low + there] = each_or_nan(ask, np.arange(there.size), (2,))
        return chance, slope

    def _chances(self, policies: Floats, gamma: Floats, lam: Floats, which: Ints) -> Floats:
        """Return the chances and slopes `(2,m)` of some of the policies `(n,S,A)`."""
        task = self.task
        (s, a) = self.spot
        policy = policies[which].transpose(2, 1, 0)
        gamma, lam = gamma[which], lam[which]
        unit = self.unit[:, :, None]
        paid = self.engine.resolvents(policy, gamma).solve((policy * unit).sum(axis=0)[:, :, None])[:, :, 0]
        worth = unit + gamma * (task.stacked @ paid).reshape(policy.shape)
        if a is not None:
            chance = policy[a, s]
            slope = (policy[:, s] * (worth[a, s] - worth[:, s])).sum(axis=0) * chance / lam
            return np.stack([chance, slope])
        policy = np.where(self.outcomes.reached[None, :, None], policy, 0.0)
        later, among, solves = self.outcomes.reach(policy, s, self.outcomes.toward[0])
        onward = later.copy()
        onward[s] = 1.0
        moved = policy * (worth - paid) / lam * (self.outcomes.task.stacked @ onward).reshape(policy.shape)
        change = solves.solve(np.where(among[:, None], moved.sum(axis=0), 0.0)[:, :, None])[:, :, 0]
        change[s] = 0.0
        return np.stack([task.initial @ later + task.initial[s], task.initial @ change])

    def most(self) -> float:
        """Return a chance that no bonus exceeds."""
        state, action = self.spot
        if action is not None:
            return float(self.task.live[state, action])
        return float(self.task.initial[self.outcomes.toward[0]].sum())

    def why_not_more(self) -> str:
        """Return why no bonus brings a larger chance than that."""
        if self.spot.action is not None:
            return "it is never chosen there, and no bonus brings back a choice of probability 0"
        if self.most() == 0:
            return "there is no way to it from the first state"
        return f"from other first states there is no way to it, and {percent(self.most())} begin where there is one"

    def first(self, asked: float) -> tuple[float, bool, str]:
        """Return the smallest bonus of the first parameters, whether the chance rose on the way there, and what is wrong with
        it."""
        zero = np.zeros(1, dtype=np.int64)
        lam = float(self.lam[0])
        low = 0.0
        high = lam / 16
        rising = True
        best = 0.0
        while True:
            chance, slope = (float(part[0]) for part in self.at(np.array([high]), zero))
            rising = rising and not slope < -1e-9 / lam
            best = max(best, chance)
            if not chance < asked:
                break
            if high > 1e7 * lam:  # beyond, differences of values lose the digits that choices need
                return self._never(asked, rising, best, high)
            low = high
            high = 2 * high
        bonus = self.between(asked, low, high)
        if np.isfinite(bonus):
            return bonus, rising, ""
        return np.nan, rising, f"before the probability is reached, {self.unplanned()}"

    def unplanned(self) -> str:
        """Return why a chance is not known."""
        if self.gamma[0] == 1:
            return "to be paid for ever is worth more than any end, and there is no plan"
        return "it takes millions of steps until the state or an end is reached, and rounding would decide the probability"

    def between(self, asked: float, low: float, high: float) -> float:
        """Return the bonus between one at which the chance is too low and one at which it is not; NaN where there is none."""
        return float(self._refined(asked, np.zeros(1, dtype=np.int64), np.array([low]), np.array([high]), np.array([high]))[0])

    def needed(self, asked: float, columns: Ints, guess: float, rising: bool) -> Floats:
        """Return the bonuses of some parameters, near that of a neighbour.

        They are infinite where none is found below 10⁷ temperatures, and NaN where the chance without one is not known.
        """
        if not columns.size:
            return np.zeros(0)
        lam = self.lam[columns]
        start = np.full(columns.size, guess) if rising and 0 < guess < np.inf else lam / 16
        before = self.at(np.zeros(columns.size), columns)[0]
        none = ~(before < asked)
        result = np.where(np.isnan(before), np.nan, 0.0)
        if self.most() < asked:
            result[~none] = np.inf
            return result
        going = np.flatnonzero(~none)
        low = np.zeros(going.size)
        high = np.full(going.size, np.inf)
        refined = self._refined(asked, columns[going], low, high, start[going], doubling=not rising)
        result[going] = np.where(np.isnan(refined), np.inf, refined)
        return result

    def _refined(self, asked: float, columns: Ints, low: Floats, high: Floats, start: Floats, doubling: bool = False) -> Floats:
        """Return Newton's method on the logit between ends `(m,)`, of which upper ones may be infinite; NaN where it finds
        nothing.

        With `doubling`, bonuses double until the chance is reached, so that no smaller one is passed over.
        """
        low = low.copy()
        high = high.copy()
        bonus = start.copy()
        lam = self.lam[columns]
        result = np.full(columns.size, np.nan)
        going = np.arange(columns.size)
        for step in range(200):
            chance, slope = self.at(bonus[going], columns[going])
            close = low[going] >= (1 - 4 * np.finfo(np.float64).eps) * high[going]
            here = np.abs(chance - asked) <= np.where(close, 1e-9, 1e-10)
            result[going[here]] = bonus[going[here]]
            below = chance < asked
            low[going[below]], high[going[~below]] = bonus[going[below]], bonus[going[~below]]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = bonus[going] - (logit(chance) - logit(asked)) * chance * (1 - chance) / slope
            within = ~here & ~close & (low[going] < 1e7 * lam[going])
            going, newton = going[within], newton[within]
            if not going.size:
                break
            open_ = np.isinf(high[going])
            # where the end is not known, Newton's step may be wild; later, halving ends what Newton does not
            most = np.where(open_, (2 if doubling else 8) * np.maximum(low[going], lam[going] / 16), high[going])
            inside = (newton > low[going]) & (newton < most) & ~(open_ & doubling) & (step < 40)
            halves = np.where(open_, most, (low[going] + np.minimum(high[going], most)) / 2)
            bonus[going] = np.where(inside, newton, halves)
        return result

    def _never(self, asked: float, rising: bool, best: float, tried: float) -> tuple[float, bool, str]:
        """Return what is said where no bonus up to `tried` is enough: the chance as the bonus grows decides."""
        limit = self._limit()
        if limit is not None and limit < asked and rising:
            return np.inf, rising, f"however large it is, the probability is never above {percent(max(limit, best))}"
        if limit is not None and limit < asked:
            return (
                np.nan,
                rising,
                f"the highest probability of those tried is {percent(best)}, and ever larger bonuses lead to {percent(limit)}",
            )
        why = f"with {significant(tried, 2)} the probability is {percent(best)}, and plans for larger ones lose their digits"
        return np.nan, rising, why

    def _limit(self) -> float | None:
        """Return the chance to reach the state as the bonus grows beyond all bounds; None where that is not known."""
        s = self.spot.state
        gamma = self.gamma[:1]
        lam = self.lam[:1]
        if self.spot.action is not None:
            return None
        try:
            q = plan(self.task, self.unit.T, float(gamma[0])).q
        except ValueError:  # the bonus can be had again and again without end
            return None
        best = q.max(axis=1)
        among = self.outcomes.toward[0] & self.outcomes.reached
        among[s] = False
        if gamma[0] > 0 and (best[among] < 1e-9 * best.max()).any():  # too small to tell which actions attain it
            return None
        restricted = self.task.without((q < best[:, None] * (1 - 1e-9)) & self.task.live)
        policies = planned_or_nan(restricted, self.reward[:, :1], gamma, lam)
        if np.isnan(policies).any():
            return None
        later = self.outcomes.reach(np.where(self.outcomes.reached[None, :, None], policies.transpose(2, 1, 0), 0.0), s, among)[0]
        return float(self.task.initial @ later[:, 0] + self.task.initial[s])
