"""Which study to run? The candidates that say most about how far people look ahead, and how often to use each of them.

*Information.* A person k who is given candidate j once is expected to decide `n_jk(s)` times in state s. With J the derivative of
the action values in all parameters, the Fisher information of these decisions is

    M_jk = Σ_s n_jk(s) J(s)ᵀ (diag π − ππᵀ) J(s).

In a study each person is given candidate j `N_j` times. It has `M(N) = M₀ + Σ_j N_j Σ_k m_k M_jk`, where m_k people are like k,
and M₀ is what is known besides: the spread between people, a penalty, or decisions that were logged already. Targets are the
discounts. Rewards, temperatures and what is each person's own are accounted for by the Schur complement

    S(N) = M_tt − M_tr M_rr^{-1} M_rt = min_A A M(N) Aᵀ,      attained at A = (I, −M_tr M_rr^{-1}).

S is a concave function of N, and so is `log det S`. Its derivative along candidate j is `tr(S^{-1} A M_j Aᵀ)`.

*Targets.* After `MaximumLikelihood` the targets are the discounts of its people; the best shares do not depend on the scale on
which discounts are measured. After `Population` the target is the effect of a covariate on the logit of the discount, or the mean
logit. Then people are the nodes of a quadrature for each pattern of covariates. A person's own logit γ and log λ are accounted
for too; in M₀ they have the inverse Σ^{-1} of their covariance.

*One guess is not enough.* What is maximised is the mean of `log det S` over draws from what the pilot leaves open: its maximum,
and normal draws around it (rewards, logit γ, log λ) with the covariance of the fit and a weak prior. Draws come in pairs of
opposite sign along the principal directions of the covariance, so that they do not depend on how experts and states are listed.

*The proof.* Shares of the budget are found by `numerics.allocation`. No other way of sharing needs fewer episodes by more than
the gap, on average over the draws. Rounding to whole episodes may cost a little more, which is stated.

*Variety.* The best shares are often those of one or two candidates. People who are given the same start again and again learn it
or tire of it, of which the model knows nothing, and nothing is seen of where the model may be wrong. So beside the best study
stands a spread-out one, which gives half of the budget as the best study and half evenly, and what that costs.

*How many more?* Where a width is asked for, M₀ holds the information of the fit. The norm `(Σ_k v_k^β)^{1/β}` of the variances v
is convex in N. With β = 16 it is nearly the largest of them. For each budget it is made as small as possible, and the smallest
budget is found with which no interval is wider than asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import nctdtr, ndtr, ndtri, stdtrit

from multihorizon.checks import TINY, Floats, Frame, Ints, Seed, as_count, as_level, as_positive, as_seed, first_few
from multihorizon.choice.model import Likelihood
from multihorizon.choice.plans import Plans
from multihorizon.choice.settings import Settings, with_known_reward
from multihorizon.mdp import MDP
from multihorizon.numerics.allocation import Allocation, Worth, allocate, evenly, whole
from multihorizon.numerics.spectrum import spectrum
from multihorizon.parallel import Progress, Run, silent
from multihorizon.population.covariates import least_persons
from multihorizon.problem import refuse_beliefs
from multihorizon.questions.schedule import MOST_TIMES, Layout, Pilot, Schedule, in_tasks, read_pilot
from multihorizon.result import COLOURS, Result, literal, package_version
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, Role, Table, count, decimals, percent, shortened, significant


def design(
    tasks: MDP | Sequence[MDP] | None,
    guess: Solution | Sequence[Solution],
    candidates: Schedule | Frame | str | Path | None = None,
    *,
    persons: int | None = None,
    episodes: float | None = None,
    decisions: float | None = None,
    budget: float | None = None,
    width: float | None = None,
    difference: float | None = None,
    term: str | None = None,
    features: Sequence[Any] | None = None,
    length: int | None = None,
    level: float = 0.95,
    draws: int = 16,
    seed: Seed = 0,
    progress: Progress = silent,
) -> Design:
    """Return the study that says most about discount factors for what each person can be asked to do.

    Args:
        tasks: the task, or several; None: those of the guess.
        guess: what is expected: a solution of `MaximumLikelihood` or `Population`, such as that of a pilot study, or of any
            solver that gives discounts, a reward and temperatures. Several solutions of the same experts are equally likely.
        candidates: what a person can be given: a table (see `Schedule.read`), its file, or a `Schedule`. By default one episode
            from each state in which episodes may begin, or from each in which there is a choice, where they begin in one.
        persons: how many take part; by default as many as those of the guess.
        episodes, decisions, budget: what each person may be asked for at most: a number of episodes, the expected number of
            decisions, or the sum of the column `cost` of the candidates. By default as many decisions as those of the guess made
            on average.
        width: in place of these, how wide the widest interval of a discount may be: how many further episodes of the people of
            the guess does that take?
        difference: a difference of logit discounts, between groups or between two people, to say the power for.
        term: for a `Population` with several covariates, the term whose effect is the target.
        features: for tasks that the reward of the guess does not describe, their features `(A·S,d)`.
        length: how many decisions an episode of a task without an end may have, where candidates do not say it; by default as
            many as those of the guess had on average, if its table is known. In tasks with an end, and otherwise, it is 200.
        level: of the intervals that are to be below `width`.
        draws: how many draws represent the uncertainty of the guess; 1 takes the guess as it is.
        seed: same seed, same answer.
        progress: called with the share of the work that is done.

    Returns:
        Candidates, the share of the budget of each, and expected standard errors (`multihorizon.questions.design.Design`).

    Raises:
        ValueError: for candidates that cannot tell a discount, for a budget that is too small or too large for them, and for
            options that contradict each other.

    Example:
        >>> from multihorizon import Demonstrations, MaximumLikelihood, Problem, domains, solve
        >>> d = domains.cliff()
        >>> table = Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100)
        >>> pilot = solve(Problem(d.mdp, table), MaximumLikelihood(1.0, starts=1))
        >>> found = design(d.mdp, pilot, episodes=1000)
        >>> found.gap < 0.01, int(found.times.sum())
        (True, 1000)
    """
    given = {"episodes": episodes, "decisions": decisions, "budget": budget, "width": width}
    asked = [name for name, value in given.items() if value is not None]
    if len(asked) > 1:
        raise ValueError(f"the size of a study must be given once, got {' and '.join(asked)}")
    for name, value in {**given, "difference": difference}.items():
        if value is not None:
            as_positive(value, name)
        if value is not None and name != "difference" and value > MOST_TIMES:
            raise ValueError(f"{name} must be at most {MOST_TIMES:,} for each person, got {value:,.10g}")
    as_count(draws, "draws")
    if draws > 1000:
        raise ValueError(f"draws must be at most 1,000, got {draws:,}")
    run = Run(as_seed(seed), progress=progress)
    as_level(level)
    if length is not None:
        as_count(length, "length")
    if not isinstance(guess, Solution | Sequence):
        raise ValueError(f"the guess must be a solution, or several of them, got {type(guess).__name__}")
    guesses = [guess] if isinstance(guess, Solution) else list(guess)
    pilot = read_pilot(guesses, persons, term, width is not None, draws, run, difference)
    refuse_beliefs(pilot.problem.exemplars, "design")
    if pilot.targets == ("Intercept",) and difference is not None:
        raise ValueError("a difference needs the effect of a covariate as the target, got the intercept")
    asked_tasks: Any = pilot.tasks if tasks is None else tasks
    given_tasks = list(asked_tasks) if isinstance(asked_tasks, Sequence) else [asked_tasks]
    if not all(isinstance(mdp, MDP) for mdp in given_tasks):
        raise ValueError(f"tasks must be an MDP, or several of them, got {type(asked_tasks).__name__}")
    mdps = [mdp.as_known() for mdp in given_tasks]
    if isinstance(candidates, Schedule):
        offered = candidates if tasks is None else replace(candidates, tasks=tuple(mdps))
    else:
        rounds = length or _mean_length(guesses[0]) or Schedule.usual_length
        longest = [Schedule.usual_length if mdp.terminal.any() else rounds for mdp in mdps]
        offered = Schedule.of_starts(mdps, longest) if candidates is None else Schedule.read(candidates, mdps, longest)
    if features is not None:
        offered = replace(offered, features=tuple(features))
    if len(offered.candidates) > 2000:
        raise ValueError(f"there must be at most 2,000 candidates, got {len(offered.candidates):,}")
    unit, size = (asked[0], float(given[asked[0]] or 0.0)) if asked else ("decisions", pilot.decisions)
    if not size:
        raise ValueError("the guess has no decisions to take the size of the study from: give episodes, decisions or a budget")
    drawn = list(_information(pilot, offered, run.part(0.0, 0.4)))
    remarks = list(pilot.remarks)
    criterion = "all"
    if width is not None:
        unit, criterion = "episodes", "widest"
    cost = _costs(offered, unit, drawn[0].decisions)
    if width is None:  # what is larger than the whole study cannot be in it
        fits = cost <= size * (1 + 1e-9)
        if not fits.any():
            cheapest = f"costs {significant(cost.min())}" if unit == "budget" else f"takes {significant(cost.min())} {unit}"
            raise ValueError(
                f"the smallest candidate {cheapest}, and each person may be asked for {significant(size)}: "
                f"ask for more, or offer {'cheaper' if unit == 'budget' else 'shorter'} candidates"
            )
        if not fits.all():
            names = [candidate.name for candidate, one in zip(offered.candidates, fits, strict=True) if not one]
            remarks.append(f"Left out, because they are larger than the whole study: {first_few(names)}.")
            kept = tuple(candidate for candidate, one in zip(offered.candidates, fits, strict=True) if one)
            offered = replace(offered, candidates=kept, times=offered.times[fits])
            cost = cost[fits]
            drawn = list(_information(pilot, offered, run.part(0.0, 0.4)))
    _require_told(drawn[0], pilot)
    visits = drawn[0].decisions
    most = np.array([candidate.most for candidate in offered.candidates])
    if width is not None:
        size, allocation = _smallest_budget(drawn, cost, most, width, level, run.part(0.4, 0.9))
    else:
        allocation = _share_out(drawn, cost, most, size, criterion, run.part(0.4, 0.9))
    run.progress(0.9, "rounding to whole episodes")
    target = partial(_mean_local, drawn, criterion, False)
    numbers = size * allocation.weights / cost
    times = whole(target, numbers, cost, most, size)
    if width is not None:
        times = _until_narrow(drawn, times, most, width, level)
        size = float(cost @ times)
    even = evenly(most, size, cost)
    chosen = times.astype(np.float64)
    spread = _spread_out(even, numbers, cost, most, size, target(even))
    best, rounded = (-np.inf if (local := target(at)) is None else local.value for at in (numbers, chosen))
    k = len(pilot.targets)
    covariances = [drawn[0].covariance(at) for at in (chosen, even, spread.astype(np.float64))]
    errors = [np.sqrt(np.diag(covariance)) for covariance in covariances]
    there = drawn[0]
    if pilot.differing is not None:
        there = next(_information(replace(pilot, draws=[pilot.differing]), offered, Run()))
    powers = [np.nan if difference is None else _power(pilot, there.covariance(at), difference) for at in (chosen, even)]
    remarks += [*_cautions(pilot, errors[0], powers[0], difference), *([] if pilot.of_population else _left_open(guesses[0]))]
    if unit != "budget" and any(candidate.cost is not None for candidate in offered.candidates):
        remarks.append(f"The costs of candidates were not used, because {unit} were asked for.")
    if offered.unused:
        remarks.append(f"Columns of the candidates that were not used: {', '.join(offered.unused)}.")
    if any(mdp.is_estimated for mdp in pilot.problem.mdps):
        remarks.append("Transitions were estimated; the design takes them for known.")
    if len(drawn) < len(pilot.draws):
        remarks.append(f"Of {len(pilot.draws)} draws {len(drawn)} were used: the others tell nothing, or do not fit into memory.")
    return Design(
        candidates=tuple(candidate.name for candidate in offered.candidates),
        weights=allocation.weights,
        times=times,
        targets=pilot.targets,
        expected_standard_errors=errors[0],
        uniform_standard_errors=errors[1],
        uniform_times=even,
        spread_times=spread,
        spread_standard_errors=errors[2],
        gap=allocation.gap,
        status=Status.OPTIMAL if allocation.finished else Status.NOT_CONVERGED,
        rounding_loss=max(0.0, size / float(cost @ numbers) - 1 if width is not None else -float(np.expm1((rounded - best) / k))),
        saving=np.nan if width is not None else _times_as_large(pilot, target, even, rounded),
        persons=pilot.persons,
        unit=unit,
        size=size,
        decisions=float(visits @ times),
        width=np.nan if width is None else float(width),
        widths=np.zeros(0) if pilot.fitted is None else 2 * _quantile(level) * errors[0],
        before=np.zeros(0) if pilot.fitted is None else 2 * _quantile(level) * np.sqrt(np.diag(pilot.fitted)),
        difference=np.nan if difference is None else float(difference),
        power=powers[0],
        uniform_power=powers[1],
        sizes=_sizes(pilot, drawn[0], there, chosen, most, float(visits @ times), difference),
        scale="logit" if pilot.of_population else "discount",
        draws=len(drawn),
        remarks=tuple(remarks),
        seed=run.seed,
        schedule=replace(offered, times=times),
    )


def _mean_length(guess: Solution) -> int | None:
    """Return how many decisions the episodes of a guess had on average, rounded up; None where its table is not known."""
    lengths = [table.by_episode.length for table in ([] if guess.problem is None else guess.problem.tables)]
    return int(np.ceil(np.concatenate(lengths).mean())) if lengths else None


def _spread_out(even: Floats, numbers: Floats, cost: Floats, most: Floats, size: float, at: Worth | None) -> Ints:
    """Return half of the budget evenly, half as the best study gives it, in whole numbers; the rest to what says most for its
    cost."""
    wanted = np.minimum((even + numbers) / 2, most)
    times = np.floor(wanted + 1e-9)
    left = size - float(cost @ times)
    worth = np.zeros(cost.size) if at is None else at.gradient / cost
    for j in np.lexsort((-worth, -np.round(wanted - times, 9))).tolist():
        if cost[j] <= left * (1 + 1e-9) and times[j] < most[j]:
            times[j] += 1
            left -= cost[j]
    return times.astype(np.int64)


def _times_as_large(pilot: Pilot, target: Callable[[Floats], Worth | None], even: Floats, value: float) -> float:
    """Return how many times as large the uniform study must be for the same information; for a population, with as many more
    people."""

    def short(size: float) -> float:
        local = target(size * even)
        return np.inf if local is None else value - local.value

    if pilot.of_population:  # information is proportional to the number of people, and not to that of episodes
        return float(np.exp(short(1.0)))
    low, high = 1e-3, 1e3
    while high > 1.0005 * low and np.isfinite(value):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high if np.isfinite(value) else np.nan


def _cautions(pilot: Pilot, errors: Floats, power: float, difference: float | None) -> list[str]:
    """Return what must be said of a study that would not tell."""
    cautions = []
    worse = [name for name, error in zip(pilot.targets, errors, strict=True) if error > np.sqrt(1 / 12)]
    if not pilot.of_population and worse:
        cautions.append(
            f"This study would not tell the discount of {first_few(worse)}: the expected standard error is larger than that of "
            "one picked at random between 0 and 1."
        )
    if difference is not None and np.isnan(power):
        cautions.append("Power cannot be computed: it needs two discounts that are neither 0 nor 1.")
    return cautions


def _left_open(guess: Solution) -> list[str]:
    """Return whose discounts the guess leaves open, as far as its intervals are computed, in words."""
    ends = {} if guess.interval_source is None else guess.interval_source.computed
    widths = np.ptp(ends[LEVEL], axis=1) if LEVEL in ends else np.zeros(len(guess.experts))
    names = [name for name, width in zip(guess.experts, widths, strict=True) if width > VAGUE_WIDTH]
    if not names:
        return []
    return [
        f"The guess leaves the discount of {first_few(names)} open: the 95% CI covers half of the range, or more. "
        "Expected errors take its estimates for the truth. Where all have one discount, none of this task alone would show it."
    ]


def _quantile(level: float) -> float:
    return float(ndtri(0.5 + level / 2))


def _power(pilot: Pilot, covariance: Floats, difference: float) -> float:
    """Return the chance to see a difference of logit discounts: of the effect, or between two people, in the median of all
    pairs.

    `covariance` is that of the targets; for a population, where the effect is the difference, and tested by Student's t.
    """
    error = float(np.sqrt(covariance[0, 0]))
    if not pilot.of_population:
        gamma = pilot.draws[0].discounts[pilot.told_of]
        slope = gamma * (1 - gamma)
        inside = np.flatnonzero(slope > 1e-3)
        if inside.size < 2:
            return np.nan
        logits = covariance[np.ix_(inside, inside)] / np.outer(slope[inside], slope[inside])
        squares = np.diag(logits)[:, None] + np.diag(logits) - 2 * logits
        error = float(np.median(np.sqrt(np.maximum(squares, 0.0))[np.triu_indices(inside.size, 1)]))
    z = difference / max(error, TINY)
    if not pilot.of_population:
        return float(ndtr(z - _quantile(0.95)) + ndtr(-z - _quantile(0.95)))
    limit = float(stdtrit(pilot.degrees, 0.975))
    return float(1 - nctdtr(pilot.degrees, z, limit) + nctdtr(pilot.degrees, z, -limit)) if z < 30 else 1.0


def _sizes(
    pilot: Pilot, here: Information, there: Information, times: Floats, most: Floats, decisions: float, difference: float | None
) -> pd.DataFrame:
    """Return what studies of other sizes can be expected to show, with the same shares: half and twice as much of each.

    Sizes that candidates do not allow are left out. `there` is what candidates say where the effect is the difference.
    """
    rows = []
    terms = pilot.persons - pilot.degrees
    for people in (0.5, 1.0, 2.0) if pilot.of_population else (1.0,):
        persons = round(people * pilot.persons)
        if persons < least_persons(terms) and pilot.of_population:
            continue
        # Everything but what is a person's own is shared.
        like = pilot.persons / persons
        of_these = replace(pilot, persons=persons, degrees=persons - terms)
        for share in (0.5, 1.0, 2.0):
            if (share * times > most).any():
                continue
            each = share * decisions
            error = np.sqrt(np.diag(like * here.covariance(share * times)).max())
            power = np.nan if difference is None else _power(of_these, like * there.covariance(share * times), difference)
            row = {"persons": persons, "decisions": each, "in_all": persons * each, "largest_standard_error": float(error)}
            rows.append(row | {"power": power})
    return pd.DataFrame(rows)


def _costs(offered: Schedule, what: str, visits: Floats) -> Floats:
    """Return what each candidate costs once, in the unit of the budget."""
    if what == "budget":
        lacking = next((candidate.name for candidate in offered.candidates if candidate.cost is None), None)
        if lacking is not None:
            raise ValueError(f"a budget needs the cost of every candidate, got none for {lacking}: add a column cost")
        return np.array([float(candidate.cost or 0.0) for candidate in offered.candidates])
    if what == "decisions":
        return visits
    return np.array([float(len(candidate.starts)) for candidate in offered.candidates])


@dataclass(frozen=True, eq=False)
class Information:
    """What candidates say if people are as one draw has it.

    Attributes:
        pieces: M_jk of each candidate and kind of person, in rewards, discount and log-temperature `(J,n,q,q)`.
        decisions: how many decisions a person is expected to make if given each candidate once `(J,)`.
        layout: which parameters are whose; of all but the targets, only directions that some candidate tells.
        reference: the largest variance if all candidates are given once, in which "widest" is measured; NaN if it is infinite.
    """

    pieces: Floats
    decisions: Floats
    layout: Layout
    reference: float = np.nan

    def told(self) -> Information | None:
        """Return the same in directions that some candidate tells; None where a target is not told by all of them together."""
        layout, t = self.layout, self.layout.targets
        matrix = self.matrix(np.ones(len(self.pieces)))
        spread = spectrum(matrix[t:, t:], tol=1e-11)
        turn = np.zeros((len(matrix), t + spread.rank))
        turn[:t, :t], turn[t:, t:] = np.eye(t), spread.vectors[:, spread.kept] / spread.scale[:, None]
        made = replace(self, layout=replace(layout, maps=layout.maps @ turn, prior=turn.T @ layout.prior @ turn))
        split = made.split(np.ones(len(self.pieces)))
        sizes = np.sqrt(np.maximum(np.diag(matrix)[:t], TINY))
        if split is None or not np.linalg.eigvalsh(split[0] / np.outer(sizes, sizes))[0] > 1e-10:
            return None
        return replace(made, reference=float(np.diag(np.linalg.inv(split[0])).max()))

    def matrix(self, numbers: Floats) -> Floats:
        """Return M `(z,z)` for numbers of times `(J,)`."""
        layout = self.layout
        size = self.layout.maps.shape[2]
        half = (np.tensordot(numbers, self.pieces, 1)[layout.kind] @ layout.maps) * layout.weight[:, None, None]
        return layout.prior + layout.maps.reshape(-1, size).T @ half.reshape(-1, size)

    def split(self, numbers: Floats) -> tuple[Floats, Floats, Floats] | None:
        """Return S, A and a root of `M_rr` for numbers of times `(J,)`; None where something is not told."""
        t = self.layout.targets
        # A billionth of everything keeps what only unused candidates tell from being singular.
        matrix = self.matrix(numbers + 1e-9 * max(float(numbers.max()), 1e-9))
        scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
        matrix = matrix / np.outer(scale, scale)
        try:
            root = np.linalg.cholesky(matrix[t:, t:])
        except np.linalg.LinAlgError:
            return None
        solved = np.linalg.solve(root, matrix[t:, :t])
        left = (matrix[:t, :t] - solved.T @ solved) * np.outer(scale[:t], scale[:t])
        regress = -np.linalg.solve(root.T, solved).T * np.outer(scale[:t], 1 / scale[t:])
        return left, np.concatenate([np.eye(t), regress], axis=1), root * scale[t:, None]

    def covariance(self, numbers: Floats) -> Floats:
        """Return the covariance of the targets; infinite where something is not told."""
        parts = self.split(numbers)
        if parts is None or not np.linalg.eigvalsh(parts[0])[0] > 0:
            return np.full((self.layout.targets,) * 2, np.inf)
        return np.asarray(np.linalg.inv(parts[0]), dtype=np.float64)

    def local(self, numbers: Floats, criterion: str, curved: bool = True) -> Worth | None:
        """Return the criterion, "all" (`log det S`) or "widest" (the norm of the variances), for numbers of times `(J,)`.

        Its curvature is computed if asked for.
        """
        pieces = self.split(numbers)
        if pieces is None:
            return None
        left, regress, root = pieces
        values = np.linalg.eigvalsh(left)
        if not values[0] > 1e-14 * values[-1]:
            return None
        inverse = np.linalg.inv(left)
        layout = self.layout
        t = self.layout.targets
        norm = np.zeros((0, t))
        if criterion == "all":
            value = float(np.log(values).sum())
            gradient = inverse
            bend = 1.0
        else:
            beta = 16.0
            v = np.diag(inverse)
            largest = float(v.max())
            size = largest * float(((v / largest) ** beta).sum()) ** (1 / beta)
            shares = (v / size) ** (beta - 1) / self.reference
            value = -size / self.reference
            gradient = (inverse * shares) @ inverse
            bend = 2.0
            matrix = (beta - 1) / size * (np.diag((v / size) ** (beta - 2)) - np.outer(v / size, v / size) ** (beta - 1))
            w, q = np.linalg.eigh(matrix / self.reference)
            norm = np.sqrt(np.maximum(w, 0.0))[:, None] * q.T
        toward = np.einsum("tz,eqz->etq", regress, layout.maps, optimize=True)
        if not curved:
            by_kind = np.zeros(self.pieces.shape[1:])
            np.add.at(by_kind, layout.kind, layout.weight[:, None, None] * (toward.transpose(0, 2, 1) @ gradient @ toward))
            return Worth(value, self.pieces.reshape(len(self.pieces), -1) @ by_kind.ravel(), np.zeros((0, 0)))
        moved = (toward @ self.pieces[:, layout.kind]) * layout.weight[:, None, None]  # (J,E,t,q)
        across = np.einsum("jetq,euq->jtu", moved, toward, optimize=True)
        j, e, _, q = moved.shape
        rest = np.linalg.solve(root, layout.maps[:, :, t:].transpose(2, 0, 1).reshape(len(root), e * q))
        beside = moved.transpose(0, 2, 1, 3).reshape(j * t, e * q) @ rest.T
        slope = np.einsum("tu,jtu->j", gradient, across)
        w, vectors = np.linalg.eigh(gradient)
        half = (vectors * np.sqrt(np.maximum(w, 0.0))).T
        parts = [
            np.sqrt(bend) * (half @ across @ np.linalg.cholesky(inverse)).reshape(j, -1),
            np.sqrt(2.0) * (half @ beside.reshape(j, t, len(root))).reshape(j, t * len(root)),
            -np.einsum("at,jtt->ja", norm, inverse @ across @ inverse),
        ]
        features = np.concatenate(parts, axis=1)
        return Worth(value, slope, features @ features.T)


def _mean_local(drawn: Sequence[Information], criterion: str, curved: bool, numbers: Floats) -> Worth | None:
    """Return the mean of the criterion over draws."""
    worths = []
    for one in drawn:
        local = one.local(numbers, criterion, curved)
        if local is None:
            return None
        worths.append(local)
    return Worth(
        float(np.mean([local.value for local in worths])),
        np.mean([local.gradient for local in worths], axis=0),
        np.mean([local.curvature for local in worths], axis=0),
    )


def _information(pilot: Pilot, offered: Schedule, run: Run) -> Iterator[Information]:
    """Yield what candidates say, draw by draw; draws in which a target is not told at all are left out, but for the first."""
    paid, reward = with_known_reward(
        in_tasks(pilot.problem, offered.tasks, offered.features, pilot.known_reward), pilot.known_reward
    )
    n = paid.n_experts
    model = Likelihood(paid, Settings(temperatures=np.full(n, np.nan), reward=reward))
    q = (paid.n_parameters if reward is None else 0) + 2
    j = len(offered.candidates)
    affordable = int(3e8 / (j * n * q * q))  # numbers in all
    if not affordable:
        raise ValueError(
            f"{j:,} candidates with {q - 2:,} rewards are more than a design can weigh: "
            "offer fewer candidates, or tie the rewards of similar states together with features"
        )
    for i, draw in enumerate(pilot.draws[:affordable]):
        run.progress(i / len(pilot.draws), f"what {count(j, 'candidate')} say, draw {i + 1} of {len(pilot.draws)}")
        theta = draw.rewards if np.ptp(draw.rewards, axis=0).any() else draw.rewards[0]
        x = np.concatenate([draw.rewards[0][: model.n_reward], draw.discounts, np.log(draw.temperatures)])
        plans = model.plans(model.in_tasks(x), x, theta, None)
        if plans is None and i == 0:  # other draws may be left out
            raise ValueError("the values of the task must be finite under the guess, got infinite ones")
        if plans is not None:
            pieces = np.zeros((j, n, q, q))
            decisions = np.zeros((j, n))
            layout = pilot.layout(draw)
            for plan in plans:
                _add_pieces(offered, plan, pieces, decisions)
            like = np.bincount(layout.kind, layout.weight, minlength=n)
            made = Information(pieces, decisions @ like / like.sum(), layout)
            estimable = made.told()
            if estimable is not None or i == 0:
                yield made if estimable is None else estimable


def _add_pieces(offered: Schedule, plan: Plans, pieces: Floats, decisions: Floats) -> None:
    """Add what candidates of one task say of the people of one batch."""
    batch = plan.persons
    mdp = batch.mdp
    rows = batch.visited_rows
    q = pieces.shape[2]
    scores = plan.scores(rows)[0]
    states = rows % mdp.n_states
    places = [*batch.features.used.tolist(), q - 2, q - 1]
    for i, owner in enumerate(batch.owners.tolist()):
        policy = plan.policy[:, :, i]
        visits = offered.visits(batch.task, policy.T)
        decisions[:, owner] += visits.sum(axis=1)
        weighted = scores[:, i] * np.sqrt(policy.reshape(-1)[rows])[:, None]
        by_row = visits[:, states]
        for column, place in enumerate(places):
            pieces[:, owner, place, places] += (by_row * weighted[:, column]) @ weighted


def _require_told(first: Information, pilot: Pilot) -> None:
    """Raise where all candidates together leave a target open."""
    if not np.isnan(first.reference):
        return
    parts = first.split(np.ones(len(first.pieces)))
    worst = pilot.targets[0 if parts is None else int(np.argmin(np.diag(parts[0])))]
    what = f"the effect {worst}" if pilot.of_population else f"the discount of {worst}"
    raise ValueError(
        f"the candidates must be able to tell discounts, but with any number of them {what} stays open: "
        "offer other candidates, or say more about the reward (features, a known reward)"
    )


def _share_out(
    drawn: Sequence[Information],
    cost: Floats,
    most: Floats,
    size: float,
    criterion: str,
    run: Run,
    start: Floats | None = None,
) -> Allocation:
    """Return the best shares of a budget."""
    if float((most * cost).sum()) < size:
        held = float((most * cost).sum())
        raise ValueError(
            f"the candidates allow at most {significant(held, 10)} for each person, as often as each may be used (column most), "
            f"got {significant(size, 10)}"
        )

    def at(shares: Floats) -> Worth | None:
        local = _mean_local(drawn, criterion, True, size * shares / cost)
        if local is None:
            return None
        by = size / cost
        return Worth(local.value, local.gradient * by, local.curvature * np.outer(by, by))

    return allocate(at, np.minimum(most * cost / size, 2.0), 0.005, start, run.progress)


def _widest(information: Information, numbers: Floats, level: float) -> float:
    return float(2 * _quantile(level) * np.sqrt(np.diag(information.covariance(numbers)).max()))


def _smallest_budget(
    drawn: Sequence[Information], cost: Floats, most: Floats, width: float, level: float, run: Run
) -> tuple[float, Allocation]:
    """Return the smallest budget, and its best shares, with which no interval is wider than asked for if the guess is right."""
    here = drawn[0]
    nothing = np.zeros(cost.size)
    if _widest(here, nothing, level) <= width:
        raise ValueError(
            f"no interval is expected to be wider than {width:g} now (the widest is "
            f"{significant(_widest(here, nothing, level))}): "
            "no further episodes are needed"
        )
    limit = min(float((most * cost).sum()), float(MOST_TIMES))
    low = 0.0
    high = float(cost.mean())
    allocation, tried = None, 0
    while True:
        high = min(high, limit)
        allocation = _share_out(drawn, cost, most, high, "widest", Run(), None if allocation is None else allocation.weights)
        tried += 1
        run.progress(min(0.5, tried / 20), f"{decimals(high, 0)} further episodes")
        if _widest(here, high * allocation.weights / cost, level) <= width:
            break
        if high >= limit:
            raise ValueError(
                f"the candidates cannot bring the widest interval below {width:g} with {limit:,.10g} further episodes of each "
                f"person: {significant(_widest(here, high * allocation.weights / cost, level))} is the least"
            )
        low = high
        high = 4 * high
    best = allocation
    while high > 1.003 * low and high - low > 0.5 * float(cost.min()):
        middle = float(np.sqrt(max(low, 0.05 * high) * high))
        allocation = _share_out(drawn, cost, most, middle, "widest", Run(), best.weights)
        run.progress(0.5 + 0.5 * low / high, f"{decimals(middle, 0)} further episodes")
        if _widest(here, middle * allocation.weights / cost, level) <= width:
            high, best = middle, allocation
        else:
            low = middle
    return high, best


def _until_narrow(drawn: Sequence[Information], times: Ints, most: Floats, width: float, level: float) -> Ints:
    """Return as few more whole episodes as bring the widest interval below the width after rounding."""
    times = times.copy()
    while _widest(drawn[0], times.astype(np.float64), level) > width:
        local = drawn[0].local(np.maximum(times, 1e-6), "widest", curved=False)
        if local is None or not (times < most).any():
            break
        times[int(np.argmax(np.where(times < most, local.gradient, -np.inf)))] += 1
    return times


@dataclass(frozen=True, eq=False)
class Design(Result):
    """Which study to run.

    Attributes:
        candidates: their names `(J,)`.
        weights: the best share of the budget for each `(J,)`; they sum to 1.
        times: how often each person is given each candidate `(J,)`, in whole numbers.
        targets: what is to be told: people, whose discounts it is, or the term of a population.
        expected_standard_errors, uniform_standard_errors: of each target after this study, and after one of the same size that
            gives all candidates equally often; of discounts or, for a population, of the effect on their logit (`scale`).
        uniform_times: how often the uniform study gives each candidate `(J,)`.
        spread_times, spread_standard_errors: how often the spread-out study does, half of whose budget is that of the uniform
            one, in whole numbers, and what it can be expected to show.
        gap: no other way of sharing does as well with a budget that is smaller by a larger share than this, on average over the
            draws.
        status: "optimal" where the gap is below half a percent.
        rounding_loss: what whole numbers lose of the information per target, as a share; for a width, of further episodes.
        saving: how many times as large the uniform study must be for the same information (for a population: how many times as
            many people it needs); NaN where a width was asked for.
        persons, unit, size, decisions: how many people take part, what each is asked for at most, in which unit, and how many
            decisions that is expected to be.
        width, widths, before: where a width was asked for, it, the expected width of each interval, and the width now.
        difference, power, uniform_power: a difference of logit discounts, and the chance to see it.
        sizes: what studies of other sizes can be expected to show, with the same shares.
        draws: how many draws stand for what the guess leaves open.
        remarks: what was assumed.
        schedule: the study as `simulate_study` takes it, to check it by simulation.
    """

    candidates: tuple[str, ...]
    weights: Floats
    times: Ints
    targets: tuple[str, ...]
    expected_standard_errors: Floats
    uniform_standard_errors: Floats
    uniform_times: Floats
    spread_times: Ints
    spread_standard_errors: Floats
    gap: float
    status: Status
    rounding_loss: float
    saving: float
    persons: int
    unit: str
    size: float
    decisions: float
    width: float
    widths: Floats
    before: Floats
    difference: float
    power: float
    uniform_power: float
    sizes: pd.DataFrame
    scale: str
    draws: int
    remarks: tuple[str, ...]
    seed: int
    schedule: Schedule

    @property
    def hardly_matters(self) -> bool:
        """Return whether the uniform study is about as good."""
        return 0.95 <= self.saving < 1.05

    @property
    def most_alike(self) -> tuple[int, int]:
        """Return how many of the episodes of a person are those of one candidate, at most, and how many there are."""
        episodes = self.times * np.array([len(c.starts) for c in self.schedule.candidates])
        return int(episodes.max()), int(episodes.sum())

    @property
    def one_sided(self) -> bool:
        """Return whether most episodes are those of one candidate, though there are others."""
        largest, episodes = self.most_alike
        return len(self.candidates) > 1 and largest > 1 and 2 * largest > episodes

    def headline(self) -> str:
        """Return the power of the study, or what it brings and how exact that is."""
        first = self.sentences().splitlines()
        return first[0] if np.isfinite(self.power) else " ".join(first[: 1 if np.isfinite(self.width) else 2])

    def _power_in_words(self) -> str:
        """Return the power of the study, and which of the other sizes is the smallest with 80% power."""
        of = f"a difference of {self.difference:g} in logit discounts{'' if self.scale == 'logit' else ' between two experts'}"
        power, uniform = percent(self.power), percent(self.uniform_power)
        each = f"{count(self.persons, 'participant')} with about {decimals(self.decisions, 0)} decisions each"
        text = f"{each} give {power} power to detect {of} ({uniform} with all candidates used equally often)"
        enough = self.sizes[self.sizes["power"] >= 0.8].sort_values("in_all", kind="stable")
        if self.power >= 0.8 or not len(enough):
            return f"{text}."
        persons, decisions, power = enough.iloc[0][["persons", "decisions", "power"]]
        return f"{text}; {persons:,.0f} with about {decimals(decisions, 0)} decisions each give {percent(power)}."

    def sentences(self) -> str:
        """Return what to run, and what it can be expected to show."""
        used = int((self.times > 0).sum())
        people, offered = count(self.persons, "person"), count(len(self.candidates), "candidate")
        largest, episodes = self.most_alike
        about = f"about {count(round(self.decisions), 'decision')}"
        errors = self.expected_standard_errors
        worst = int(np.argmax(errors))
        words = []
        if np.isfinite(self.width):
            words.append(
                f"{count(episodes, 'further episode')} of each person, {about}, from {used} of {offered}, "
                f"bring the widest interval to {significant(self.widths.max())}; it is about "
                f"{significant(self.before.max())} now."
            )
        else:
            words.append(f"Give each of {people} {count(episodes, 'episode')}, {about}, from {used} of {offered}.")
            of = f"the discount of {self.targets[worst]}"
            if self.scale == "logit":
                mean = self.targets[0] == "Intercept"
                of = "the mean logit of the discount" if mean else f"the effect of {self.targets[0]} on the logit of the discount"
            kind = "largest expected" if len(errors) > 1 else "expected"
            words.append(
                f"The {kind} standard error, of {of}, is {significant(errors[worst])}, against "
                f"{significant(self.uniform_standard_errors[worst])} "
                "if all candidates are used equally often."
            )
            if np.any(errors > 1.005 * self.uniform_standard_errors):
                words.append("Some errors are larger than there, because what counts is the information about all together.")
            more = "people" if self.scale == "logit" else "episodes"
            if self.hardly_matters:
                words.append(
                    f"The design hardly matters: for the same information, the uniform study needs "
                    f"{decimals(self.saving, 2)} times as "
                    f"many {more}. Choose episodes for other reasons, such as variety."
                )
            elif self.saving >= 1.05:
                words.append(
                    f"For the same information, the uniform study needs {decimals(self.saving, 2)} times as many {more}."
                )
            elif self.saving < 0.95:
                words.append(
                    "Whole episodes cannot come near the best shares in so small a study: fractions of all candidates, which "
                    "nobody can be given, would say more. Ask for more, or offer smaller candidates."
                )
        if np.isfinite(self.power):
            words.insert(0, self._power_in_words())
        if self.one_sided:
            words.append(
                f"{largest:,} of {episodes:,} episodes are of one kind. People learn such an episode or tire of it, which the "
                "model knows nothing of, and where the model is wrong elsewhere would not be seen."
            )
        if self.one_sided or self.hardly_matters:
            more = self.spread_standard_errors.max() / errors.max() - 1
            words.append(
                "A spread-out study, half of which is uniform (column spread_times), has a largest expected standard error of "
                f"{significant(self.spread_standard_errors.max())}, {significant(100 * abs(more), 2)}% "
                f"{'more' if more >= 0 else 'less'}: prefer it "
                "where that is little."
            )
        draws = f"on average over {self.draws} draws of what the pilot leaves open" if self.draws > 1 else "if the pilot is right"
        goal = "variances as small" if np.isfinite(self.width) else "the same information"
        least = f"{decimals(100 - 100 * self.gap, 2)}%"
        words.append(f"Any other way to share out the episodes needs at least {least} as many for {goal}, {draws}.")
        if self.rounding_loss > 5e-4 and not np.isfinite(self.width):
            words.append(f"Rounding to whole numbers loses {significant(100 * self.rounding_loss, 2)}% of the information.")
        if self.status != Status.OPTIMAL:
            words.append("The search ended early: the gap is what could be proved.")
        return "\n".join([*words, *self.remarks])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per candidate: how often each person is given it, its share of the budget, and what it begins with."""
        rows = self.schedule.candidates
        return pd.DataFrame(
            {
                "candidate": list(self.candidates),
                "times": self.times,
                "weight": self.weights,
                "uniform_times": self.uniform_times,
                "spread_times": self.spread_times,
                "task": [c.task + 1 for c in rows],
                "episodes": [len(c.starts) for c in rows],
            }
        )

    def errors_frame(self) -> pd.DataFrame:
        """Return one row per target: the expected standard error, and that of the uniform study."""
        kind = "expert" if self.scale == "discount" else "term"
        columns: dict[str, Any] = {kind: list(self.targets), "expected_standard_error": self.expected_standard_errors}
        columns["uniform_standard_error"] = self.uniform_standard_errors
        columns["spread_standard_error"] = self.spread_standard_errors
        if self.widths.size:
            columns |= {"width_now": self.before, "expected_width": self.widths}
        return pd.DataFrame(columns)

    def _tables(self, compute: bool) -> list[Table]:
        frame = self.to_frame()
        used = frame[frame["times"] > 0].sort_values("times", ascending=False, kind="stable").reset_index(drop=True)
        headings = {"weight": "best share before rounding", "episodes": "episodes each time"}
        given = used[["candidate", "times", "weight", "episodes"]]
        roles = dict[str, Role](weight="chance")
        tables = [Table(given, "What each person is given", roles=roles, headings=headings)]
        tables.append(Table(self.errors_frame(), "Expected standard errors"))
        sizes = self.sizes if np.isfinite(self.difference) else self.sizes.drop(columns="power")
        headings, roles = (
            {"decisions": "decisions of each", "in_all": "decisions in all"},
            {"decisions": "count", "in_all": "count"},
        )
        return [*tables, Table(sizes, "Studies of other sizes, with the same shares", roles=roles, headings=headings)]

    def _facts(self) -> dict[str, Any]:
        return {"persons": self.persons, f"{self.unit} per person": self.size, "gap": self.gap, "status": str(self.status)}

    def _content(self) -> dict[str, Any]:
        content = super()._content()
        content |= {
            "summary": self.sentences(),
            "schedule": self.schedule.to_frame().to_dict("list"),
            "version": package_version(),
        }
        return content

    def _height(self) -> float:
        return min(0.9 + 0.2 * min(int((self.times > 0).sum()), 25), 6.0)

    def _draw(self, ax: Any) -> None:
        """Draw how often each candidate is used, beside the uniform study; of many, the 25 that are used most."""
        order = np.argsort(-self.times, kind="stable")[: min(25, int((self.times > 0).sum()))]
        rows = np.arange(order.size)
        ax.barh(rows, self.times[order], color=COLOURS[0])
        ax.plot(self.uniform_times[order], rows, "|", color="0.1", markersize=8)
        ax.set_yticks(rows, [literal(shortened(self.candidates[j], 28)) for j in order])
        ax.set_ylim(order.size - 0.5, -0.5)
        ax.set_xlabel("times per person (mark: if all were used equally often)")
