"""One test of all choices at once, and what it could have seen.

Tests of single states see what is wrong in one place. What is a little wrong everywhere, they miss. Here N are the choices taken,
E those expected, each `(R,)`, one row for each expert, state and action, and four numbers look at their differences:

* *each expert's choices*: Pearson's `Σ (N − E)² / max(E, 1)` over all rows;
* *choices of all together*: the same of the sums over experts, which is larger where all depart in the same direction;
* *lapses*: the score `Σ u (N − E)` of choices at random. With a share ε of lapses, choices have the probabilities
  `(1 − ε) π + ε/A`, and `u = (1/A − π) / ((1 − ε) π + ε/A)`, here at ε = 0.05, is the slope of their logarithm in ε. Against
  lapses no test has more power;
* *present bias*: the size of the score of a factor β, the same for all, by which everything but the immediate reward counts less
  or more than γ says. There u is the discounted value after the choice, over the temperature, less its mean in the state.
  Hyperbolic planners have β below 1, to first order.

*Level.* Parameters were fitted to the same choices, so these numbers have no standard distribution. With J `(R,p)` the slopes of
log π in the parameters, P what is known of these besides (logged moves, penalties, how persons vary in a population), and
`H = Jᵀ diag(E) J + P`, draws e of choices less E move the parameters by `H⁻¹ (Jᵀ e + m)`, m drawn from `N(0, P)`. What is left,

    r = e − diag(E) J H⁻¹ (Jᵀ e + m),

is what N − E is like if the model is right, to first order. Choices are drawn in the states in which they were made. Each number
is taken in its standard deviations from its mean over the draws. The statistic is the largest of them, and its p-value the share
of draws with a larger one.

*Power.* Where a share ε of choices are lapses, the choices are `n ((1 − ε) π + ε/A)` on average in a state with n decisions. The
model is fitted to these, with log π linear in its parameters, and what is left of them, summed with the weights u, is by how much
the score moves. With c the standard deviations that the score exceeds where the statistic does so in 5 % of draws, ε is detected
with a probability of 80 % or more where that is `c + 0.84` of the score's standard deviations there. The smallest such ε is
reported; for present bias it is `|1 − β|`, with choices in proportion to `π exp(−ε u)`. What one reward, discount and temperature
can imitate, no such test can see. Then hardly anything is left, and ε is large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from multihorizon.checks import TINY, Bools, Floats, Ints, Sparse
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import DENSE_PARAMETERS
from multihorizon.choice.tabular import Point
from multihorizon.words import LEVEL, p_text, percent

#: What the three numbers look at.
LOOKS = ("each expert's choices", "choices of all together", "lapses", "present bias")
#: Of more choices in states, of all experts, draws take too long.
MOST_ROWS = 200_000


class OverallTest(NamedTuple):
    """Whether all choices together differ from the model.

    `statistic` is by how many standard deviations they do, where they do so most, which is in `where`; the smallest `p_value`
    that can be is 0.001. `lapses` is the smallest share of choices at random that would be detected with a probability of 80 %,
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
class Choices:
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
    def of(cls, point: Point) -> Choices | None:
        """Those of a fit; None where there are too many parameters or choices."""
        model = point.likelihood
        k, d = model.n_experts, model.n_reward
        deviations = point.likelihood.precision if isinstance(point, NearPoint) else np.zeros(0)
        near = deviations.size > 0
        if model.is_large or model.size + near * k * d > DENSE_PARAMETERS:
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
            for i, (owner, own) in enumerate(zip(batch.owners.tolist(), columns, strict=True)):
                here = np.flatnonzero(many & (batch.visits[state, i] > 0))
                here = here[np.argsort(state[here], kind="stable")]
                place = rows[here]
                visits = batch.visits[state[here], i]
                theta = own[own < d]
                places = np.concatenate([own, model.size + owner * d + theta]) if near else own
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
        free, resting = ~model.fixed, (point.x <= model.lower) | (point.x >= model.upper)
        known = sp.csr_array(prior)
        if near:
            known = sp.csr_array(sp.block_diag([prior, *[np.diag(deviations)] * k]))
            free, resting = np.concatenate([free, np.tile(free[:d], k)]), np.append(resting, np.zeros(k * d, dtype=np.bool_))
        kept = np.flatnonzero(free)
        return cls(taken, expected, case, together, stacked[:, kept], known[kept][:, kept], resting[kept], later)


def overall_words(test: OverallTest, begin: bool = True) -> str:
    """The test in a sentence, and in another what it would have detected; the first may go on from another."""
    first = "All" if begin else "all"
    if test.reason:
        return f"Whether all choices together differ from the model was not tested: {test.reason}."
    differ = test.p_value <= 1 - LEVEL
    most = f", most in {test.where}" if differ else ""
    how = f"{'more' if differ else 'no more'} than chance (p {p_text(test.p_value)}{most})"
    more = f"{first} choices together differ from the model by {how}."
    return more if differ else f"{more} {detectable_words(test)}"


def detectable_words(test: OverallTest) -> str:
    """What the test would have detected with a probability of 80 %, and what it may miss."""
    lapses = f"if {percent(test.lapses)} or more were made at random" if np.isfinite(test.lapses) else ""
    bias = f"if all that is later counted {percent(test.present_bias)} less than a discount says" if test.present_bias < 1 else ""
    seen = " or ".join(text for text in (lapses, bias) if text)
    words = (
        f"With these decisions the test would see it four times in five {seen}."
        if seen
        else ("With these decisions the test would not even see many choices at random.")
    )
    return f"{words} It may miss planners of another kind, such as hyperbolic ones, and wrong beliefs."


def overall_test(choices: Choices | None, seed: int = 0) -> OverallTest:
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
        """The numbers `(k,4)` of differences `(R,k)`, or `(k,3)` without present bias."""
        apart = (r**2 / np.maximum(E, 1.0)[:, None]).sum(axis=0)
        together = ((pool @ r) ** 2 / np.maximum(expected_together, 1.0)[:, None]).sum(axis=0)
        return np.stack([apart, together, lapse @ r, *([] if biased is None else [np.abs(biased @ r)])], axis=1)

    def left(e: Floats, m: Floats) -> Floats:
        return np.asarray(e - rows @ (inverse @ (back @ e + m)))

    rng = np.random.default_rng(seed)
    found = [numbers((choices.taken - E)[:, None])]
    for total in (199, 999):  # more draws only where the first make the model doubtful
        while (done := sum(map(len, found)) - 1) < total:
            times = min(total - done, max(1, 20_000_000 // (10 * E.size)))
            e = _drawn(policy, visits, starts, sizes, rng, times) - E[:, None]
            found.append(numbers(left(e, root @ rng.normal(size=(len(root), times)))))
        drawn = np.concatenate(found)
        centre, deviation = drawn[1:].mean(axis=0), np.maximum(drawn[1:].std(axis=0), TINY)
        scaled = (drawn - centre) / deviation
        largest = scaled.max(axis=1)
        p_value = (1 + int((largest[1:] >= largest[0] - 1e-9).sum())) / (1 + total)
        if p_value > 0.1:
            break
    beyond = float(np.quantile(largest[1:], 0.95))
    fit = _Imitation(policy, n, starts, sizes, J, prior)

    def detected(alternative: Callable[[float], Floats], weights: Callable[[Floats], Floats], critical: float) -> float:
        """The smallest departure that is detected with a probability of 80 %."""

        def seen(size: float) -> bool:
            other = alternative(size)
            imitated, left = fit.to(other)
            u = weights(imitated)
            return float(u @ (n * (other - imitated))) >= (critical + float(ndtri(0.8))) * left(u)

        low, high = 0.0, 0.01  # of very many lapses the model makes choices at random, and then sees nothing
        while not seen(high):
            low, high = high, 1.5 * high
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
    return OverallTest(float(largest[0]), p_value, LOOKS[int(scaled[0].argmax())], lapses, bias)


class _Imitation:
    """The model as it imitates other choices: log π moves linearly with the parameters, from the fit."""

    def __init__(self, policy: Floats, n: Floats, starts: Ints, sizes: Ints, slopes: Sparse, prior: Floats) -> None:
        self.policy, self.n, self.starts, self.sizes, self.prior = policy, n, starts, sizes, prior
        self.slopes, self.back = slopes, sp.csr_array(slopes.T)
        self.cases = sp.csr_array((np.ones(n.size), np.arange(n.size), np.append(starts, n.size)), (starts.size, n.size))

    def tilted(self, logs: Floats) -> Floats:
        """The probabilities `(R,)` with these numbers added to their logarithms."""
        odds = self.policy * np.exp(logs - np.repeat(np.maximum.reduceat(logs, self.starts), self.sizes))
        shares: Floats = odds / np.repeat(np.add.reduceat(odds, self.starts), self.sizes)
        return shares

    def information(self, policy: Floats) -> Floats:
        """Of choices with these probabilities, about the parameters, with what is known of them besides."""
        weighted = sp.csr_array(sp.diags_array(self.n * policy) @ self.slopes)
        sums = sp.csr_array(self.cases @ weighted)
        between = sp.csr_array(sums.T) @ sp.diags_array(1 / self.n[self.starts]) @ sums
        found: Floats = (self.back @ weighted - between).toarray() + self.prior
        return found

    def to(self, other: Floats) -> tuple[Floats, Callable[[Floats], float]]:
        """The model's probabilities when it is fitted to others, and what gives the standard deviation of a score there."""
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
    """The inverse in the directions that are determined, of the parameters that are free; 0 elsewhere."""
    found, here = np.zeros_like(curvature), np.ix_(free, free)
    size = np.sqrt(np.maximum(np.diag(curvature[here]), TINY))
    values, vectors = np.linalg.eigh(curvature[here] / np.outer(size, size))
    kept = values > 1e-10 * max(float(values.max(initial=0.0)), TINY)
    found[here] = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / np.outer(size, size)
    return found


def _drawn(policy: Floats, visits: Floats, starts: Ints, sizes: Ints, rng: np.random.Generator, times: int) -> Floats:
    """Choices `(R,times)` of each case, drawn so many times."""
    found = np.zeros((policy.size, times))
    for size in np.unique(sizes).tolist():
        cases = np.flatnonzero(sizes == size)
        rows = starts[cases][:, None] + np.arange(size)
        chances = policy[rows] / policy[rows].sum(axis=1, keepdims=True)
        drawn = rng.multinomial(np.round(visits[cases]).astype(np.int64), chances, size=(times, cases.size))
        found[rows] = drawn.transpose(1, 2, 0)
    return found
