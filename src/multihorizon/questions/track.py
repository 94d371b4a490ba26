"""One person as decisions arrive: what each decision says of how far this person looks ahead.

*Model.* A study (`Population`) has found the reward θ, which people share, and how `η = (logit γ, log λ)` differs between
people. Of somebody new with covariates x it says, before the first decision,

    η = μ + L z,    μ = (x'b, x'c),    L Lᵀ = Σ + diag(x' Cov(b) x, x' Cov(c) x),    Σ that of the conditions at hand,

z₁ and z₂ by Student's t with the study's ν = n − p degrees of freedom, because effects and spread were estimated. So the first
interval of γ is that of `Population.predict`. Below 8 degrees ν is 8 and L larger, so that the interval stays: the tails of fewer
degrees say that people may be anywhere. The reward is taken as found. A decision for action a in state s multiplies the density
by π_η(a|s).

*Nodes.* On a lattice of η with spacings of powers of two the policies are planned once, and `log π` is kept in a table with one
row for each state and available action. A decision adds one row to the logarithms of the nodes' weights: nothing is planned, and
the sum does not depend on the order. Sums over the lattice (the trapezoid rule) are the integrals. Where the spacing is at most
0.75 standard deviations of a normal posterior, they are exact to far more digits than anybody needs.

*The error is measured.* Even and odd nodes are two lattices of twice the spacing. Where their means of logit γ or of log λ are
more than 0.001 standard deviations apart, or there is weight at the edge of the lattice, nodes are placed anew from the stored
counts: around the posterior, and at half the spacing. That update plans, and takes as long as the first. A person's
posterior narrows with the root of the number of decisions, so it happens a few times at most. Lattices have common places, and
trackers that need the same one share its table.

*Quantiles.* The logarithm of the density of logit γ is the cubic spline through its values at the nodes.

*Effective number of decisions* (Kish, 1965): `(Σ v)²/Σ v²`, v the Fisher information on logit γ of a decision in that state,
averaged over the people of the study. Decisions in which all horizons do the same do not count.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.interpolate import CubicSpline
from scipy.special import expit

from multihorizon.checks import Floats, Frame, Ints, as_frame, first_few, is_frame, label
from multihorizon.choice.plans import Episodic
from multihorizon.choice.settings import with_known_reward
from multihorizon.choice.surfaces import REACH, Tables
from multihorizon.horizon import Horizon
from multihorizon.likelihood.estimates import choosing_of
from multihorizon.numerics.distributions import normal_nodes, t_ppf
from multihorizon.population.covariates import Covariates
from multihorizon.population.findings import PopulationEvidence, PopulationFindings
from multihorizon.population.solver import covariance_at, remembered
from multihorizon.result import COLOURS, Result
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, Table, decimals, percent, significant


@dataclass(frozen=True)
class TrackedPerson(Result):
    """What is known of one person after so many decisions. Intervals hold 95% of the posterior.

    Attributes:
        decisions: how many were seen.
        effective_decisions: how many equally telling decisions they are worth; those that all horizons make alike are worth none.
        discount, discount_error, discount_interval: the mean of γ, its standard deviation, and its interval.
        horizon, horizon_interval: the effective planning horizon (`Horizon`) of `discount`, and that of its interval.
        temperature, temperature_interval: the exponential of the mean of log λ, and the interval of λ.
        logit_discount, logit_discount_error: the mean and the standard deviation of logit γ.
        log_temperature, log_temperature_error: those of log λ.
        error: how much every other node changes these means, in standard deviations; all nodes together are much more exact.
        placed: whether the last decision led to new nodes, and so took longer.
        discounts, below: some discounts in rising order, and the probability that γ is below each.
        ahead: how far ahead discounts look in the task, and in which unit.
    """

    decisions: int
    effective_decisions: float
    discount: float
    discount_error: float
    discount_interval: tuple[float, float]
    horizon: float
    horizon_interval: tuple[float, float]
    temperature: float
    temperature_interval: tuple[float, float]
    logit_discount: float
    logit_discount_error: float
    log_temperature: float
    log_temperature_error: float
    error: float
    placed: bool
    discounts: Floats = field(repr=False, compare=False)
    below: Floats = field(repr=False, compare=False)
    ahead: Horizon = field(default_factory=Horizon, repr=False)

    def exceeds(self, discount: float) -> float:
        """Return the probability that the person's discount is above this one."""
        return float(1 - np.interp(discount, self.discounts, self.below, left=0.0, right=1.0))

    def sentences(self) -> str:
        """Return what is known, in two sentences; a third where nodes are too coarse."""
        (low, high), (cold, hot) = self.discount_interval, self.temperature_interval
        number = "1 decision" if self.decisions == 1 else f"{self.decisions} decisions"
        after = f"After {number}, worth {decimals(self.effective_decisions, 1)} equally telling ones,"
        words = [
            f"{after if self.decisions else 'Before any decision'} the discount is {decimals(self.discount, 3)} "
            f"(95% CI {decimals(low, 3)} to {decimals(high, 3)}): an effective planning horizon of "
            f"{self.ahead.text(self.discount)} ({self.ahead.interval(low, high)}).",
            f"The temperature is {significant(self.temperature)} ({significant(cold)} to {significant(hot)}).",
        ]
        if self.error > Look.allowed / 2:
            words.append(
                f"The nodes are too coarse: every other node moves a mean by {significant(self.error, 2)} standard deviations."
            )
        return "\n".join(words)

    def to_frame(self) -> pd.DataFrame:
        """Return one row each for the discount, the horizon and the temperature: the estimate and its interval."""
        rows = [
            ("discount", self.discount, *self.discount_interval),
            ("horizon", self.horizon, *self.horizon_interval),
            ("temperature", self.temperature, *self.temperature_interval),
        ]
        return pd.DataFrame(rows, columns=["quantity", "estimate", "low", "high"])

    def _tables(self, compute: bool) -> list[Table]:
        return [Table(self.to_frame(), f"with {percent(LEVEL)} CIs", ("estimate", "low", "high"), bars=False)]

    def _height(self) -> float:
        return 2.2

    def _draw(self, ax: Any) -> None:
        """Draw how likely discounts are, with the interval."""
        edges = np.linspace(0.0, 1.0, 101)
        shares = np.diff(np.interp(edges, self.discounts, self.below, left=0.0, right=1.0))
        ax.stairs(100 * shares, edges, fill=True, color=COLOURS[0], alpha=0.4)
        ax.axvline(self.discount, color=COLOURS[0])
        for end in self.discount_interval:
            ax.axvline(end, color="0.6", linewidth=1)
        ax.set(xlabel="discount", ylabel="probability in %", xlim=(0, 1), title=f"decisions: {self.decisions}")


@dataclass(frozen=True)
class Lattice:
    """Nodes `(first + i) 2^-level` of logit γ and of log λ, `size` of each."""

    levels: tuple[int, int]
    first: tuple[int, int]
    size: tuple[int, int]

    @classmethod
    def over(cls, levels: tuple[int, int], low: Floats, high: Floats) -> Lattice:
        """Return the nodes of a box. It begins and ends at multiples of four nodes, so that many boxes are the same."""
        steps = 4 * 2.0 ** -np.array(levels)
        first = np.floor(low / steps).astype(int)
        last = np.ceil(high / steps).astype(int)
        starts = (4 * first).tolist()
        sizes = (4 * np.maximum(last - first, 1) + 1).tolist()
        return cls(levels, (starts[0], starts[1]), (sizes[0], sizes[1]))

    @property
    def count(self) -> int:
        """Return how many nodes there are."""
        return self.size[0] * self.size[1]

    def nodes(self, axis: int) -> Floats:
        """Return the values along one axis."""
        nodes: Floats = self.first[axis] + np.arange(self.size[axis], dtype=np.float64)
        return nodes * 2.0 ** -self.levels[axis]


class Window:
    """A lattice with its table `(rows,nx·ny)` of log π, and the spline matrices `(m,nx)` and `(m',ny)` of its axes."""

    def __init__(self, lattice: Lattice, table: Floats) -> None:
        self.lattice, self.table = lattice, table
        self.nodes = lattice.nodes(0), lattice.nodes(1)
        self.fine = [np.linspace(nodes[0], nodes[-1], 16 * (nodes.size - 1) + 1) for nodes in self.nodes]
        self.splines = [CubicSpline(n, np.eye(n.size))(fine) for n, fine in zip(self.nodes, self.fine, strict=True)]

    def cumulated(self, axis: int, density: Floats) -> Floats:
        """Return the probability `(m,)` to lie below each of the `fine` places, from the density at the nodes."""
        log = np.log(np.maximum(density, 1e-300))
        at = np.exp(self.splines[axis] @ (log - log.max()))
        total = np.concatenate([[0.0], np.cumsum(at[1:] + at[:-1])])
        shares: Floats = total / total[-1]
        return shares


@dataclass(frozen=True, eq=False)
class Prior:
    """The prior of η: mean `(2,)`, scale S `(2,2)`, and degrees of freedom; normal where these are infinite."""

    mean: Floats
    scale: Floats
    degrees: float

    def log(self, lattice: Lattice) -> Floats:
        """Return its logarithm `(nx,ny)` but for a constant."""
        root = np.linalg.cholesky(self.scale)
        x, y = (lattice.nodes(axis) - self.mean[axis] for axis in (0, 1))
        first = x[:, None] / root[0, 0]
        squares = first**2, ((y - root[1, 0] * first) / root[1, 1]) ** 2
        log_density: Floats = squares[0] + squares[1]
        if np.isfinite(self.degrees):
            log_density = (self.degrees + 1) * (np.log1p(squares[0] / self.degrees) + np.log1p(squares[1] / self.degrees))
        return -0.5 * log_density

    @cached_property
    def deviations(self) -> Floats:
        """Return the scales of logit γ and log λ `(2,)`."""
        return np.sqrt(np.diag(self.scale))

    def first_lattice(self, most: int) -> Lattice:
        """Return where the prior is not negligible, with a spacing of 0.2 to 0.4 deviations, or more where nodes would be too
        many."""
        far = (6.2 + 24 / self.degrees) * self.deviations
        levels = np.ceil(-np.log2(0.4 * self.deviations)).astype(int).tolist()
        while True:
            lattice = Lattice.over((levels[0], levels[1]), self.mean - far, self.mean + far)
            if lattice.count <= most:
                return lattice
            levels[int(np.argmax(lattice.size))] -= 1


@dataclass(frozen=True, eq=False)
class Look:
    """A posterior on the nodes of a window: for each axis the share of the weight `(n,)` on each line of nodes, its mean and its
    standard deviation, and how far the means of even and of odd lines are apart, in standard deviations.
    """

    shares: tuple[Floats, Floats]
    mean: tuple[float, float]
    deviation: tuple[float, float]
    apart: tuple[float, float]

    @classmethod
    def at(cls, window: Window, log: Floats) -> Look:
        """Return the posterior where the logarithms of the nodes' weights are these `(nx,ny)`."""
        weights = np.exp(log - log.max())
        weights /= weights.sum()
        shares = weights.sum(axis=1), weights.sum(axis=0)
        moments = [_moments(nodes, share) for nodes, share in zip(window.nodes, shares, strict=True)]
        means, deviations, aparts = zip(*moments, strict=True)
        return cls(shares, means, deviations, aparts)

    #: The most that a mean may move, in standard deviations, where every other node is left out.
    allowed: ClassVar = 0.001

    def better(self, window: Window, most: int) -> Lattice | None:
        """Return where the nodes should be; None where they are well placed, or better ones would be more than `most`."""
        coarse = [apart > self.allowed for apart in self.apart]
        cut = [(share[0] > 1e-5, share[-1] > 1e-5) for share in self.shares]  # a line at the edge has next to no weight
        if not any(coarse) and not any(map(any, cut)):
            return None
        low = np.zeros(2)
        high = np.zeros(2)
        moves = [0, 0]
        for axis, share in enumerate(self.shares):
            nodes = window.nodes[axis]
            kept = np.flatnonzero(share > 1e-9)
            more = nodes[-1] - nodes[0]
            low[axis] = nodes[0] - more if cut[axis][0] else nodes[max(kept[0] - 1, 0)]
            high[axis] = nodes[-1] + more if cut[axis][1] else nodes[min(kept[-1] + 1, nodes.size - 1)]
            # first find where the weight is, and then look more closely
            moves[axis] = -int(nodes.size > 64) if any(cut[axis]) else int(coarse[axis])
        (i, j) = window.lattice.levels
        worse = int(self.apart[1] > self.apart[0])
        none = [min(move, 0) for move in moves]
        one = [moves[0], none[1]] if worse == 0 else [none[0], moves[1]]
        for i_more, j_more in (moves, one, none, [-1, -1]):  # the first that has not too many nodes
            lattice = Lattice.over((i + i_more, j + j_more), low, high)
            if lattice.count <= most and (max(i_more, j_more) > 0 or any(map(any, cut))):
                return lattice
        return None


def _moments(nodes: Floats, share: Floats) -> tuple[float, float, float]:
    """Return mean and standard deviation, and how far the means of even and of odd nodes are apart, in standard deviations."""
    mean, spacing = float(share @ nodes), float(nodes[1] - nodes[0])
    deviation = float(np.sqrt(share @ (nodes - mean) ** 2))
    even, odd = share[::2], share[1::2]
    if min(even.sum(), odd.sum()) < 1e-3 or deviation < 0.1 * spacing:  # all weight is on one node: nothing can be said
        return mean, max(deviation, 0.1 * spacing), np.inf
    away = np.clip((nodes - mean) / deviation, -4.0, 4.0)  # of long tails both have a part, and it does not matter which
    return mean, deviation, float(abs((even @ away[::2]) / even.sum() - (odd @ away[1::2]) / odd.sum()))


class Tracking:
    """What trackers of one study share: the task, the population, and the tables of policies."""

    def __init__(self, solution: Any, most: int | None = None) -> None:
        people = isinstance(solution, Solution) and solution.evidence.get("population") is not None
        if not people or solution.status != Status.CONVERGED:
            what = f"{solution.solver}: {solution.status}" if isinstance(solution, Solution) else type(solution).__name__
            raise ValueError(f"track must be given a converged solution of Population, got {what}")
        problem = solution.require_problem()
        if (near := solution.evidence.get("deviations")) is not None and near.spread:
            raise ValueError("track follows people who share one reward, got deviations from it: fit with deviations 0")
        population = PopulationEvidence.of(solution).population
        covariates = _covariates(solution, population)
        groups = [c for c in covariates.formula.columns if not covariates.formula.is_number(covariates.frame[c])]
        nobody = np.zeros(0, dtype=np.int64)
        #: The design, with one row for each combination of groups in place of very many people.
        self.covariates = replace(
            covariates,
            frame=covariates.frame.drop_duplicates(groups) if groups else covariates.frame.head(1),
            matrix=covariates.matrix.mean(axis=0, keepdims=True),
            names=(),
            left_out={},
            owner=nobody,
            cell=nobody,
            groups=nobody,
            person_groups=nobody.astype(object),
            random=covariates.random.mean(axis=0, keepdims=True),
            typical=np.zeros((0, 0)),
            typical_random=np.zeros((0, 0)),
        )
        self.effects, self.covariance, self.errors = population.effects.T, population.between, population.effect_covariances
        self.degrees = float(population.degrees)
        self.largest = population.largest_discount
        self.reward = solution.reward
        self.choosing = choosing_of(solution)
        if self.choosing.habits is not None and self.choosing.habits.stickiness:
            raise ValueError("a person is followed by policies of states, got a population whose choices follow the last action")
        self.ahead = solution.horizon
        # of the task alone, with the reward that was known; a person may decide in states where nobody of the study did
        tasks = with_known_reward(problem, solution.options.get("known_reward"))[0].tasks
        self.tasks = [replace(task, counts=sp.csr_array(task.mdp.live.T.reshape(1, -1) / 1.0)) for task in tasks]
        self._prepare()
        if most is not None:
            self.most = most

    def _prepare(self) -> None:
        self.tables = Tables(self.tasks, self.largest, self.reward, np.zeros(0, dtype=np.int64), choosing=self.choosing)
        self.states = [{name: i for i, name in enumerate(task.mdp.state_names)} for task in self.tasks]
        self.actions = [{name: i for i, name in enumerate(task.mdp.action_names)} for task in self.tasks]
        self.rows: list[Ints] = []  # the row of the tables of each action and state, −1 where there is none
        first = 0
        for planner in self.tables.planners:
            rows = np.full(planner.mdp.n_actions * planner.mdp.n_states, -1)
            rows[planner.visited_rows] = first + np.arange(planner.visited_rows.size)
            first += planner.visited_rows.size
            self.rows.append(rows.reshape(planner.mdp.n_actions, planner.mdp.n_states))
        #: The tables that trackers have, and the last ones that were asked for: the next person may be much like the last.
        self.windows: WeakValueDictionary[Lattice, Window] = WeakValueDictionary()
        self.recent: deque[Window] = deque(maxlen=4)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what is made again: the tables, and where a decision stands in them."""
        made = ("tables", "states", "actions", "rows", "windows", "recent")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    @cached_property
    def most(self) -> int:
        """Return how many nodes there may be: tables have up to ten million numbers, and tasks with cycles take long to plan."""
        slow = sum(p.mdp.n_states for p in self.tables.planners if not isinstance(p.engine, Episodic))
        return max(1000, min(10_000_000 // max(self.tables.rows, 1), max(4000, 400_000 // max(slow, 10))))

    def window(self, lattice: Lattice) -> Window:
        """Return the table of a lattice, planned unless somebody has it already."""
        window = self.windows.get(lattice)
        if window is None:
            x, y = lattice.nodes(0), lattice.nodes(1)
            eta = np.stack([np.repeat(x, y.size), np.tile(y, x.size)], axis=1)
            window = self.windows[lattice] = Window(lattice, self.policies(eta))
        if window not in self.recent:
            self.recent.append(window)
        return window

    def policies(self, eta: Floats) -> Floats:
        """Return log π `(rows,K)` at η `(K,2)`."""
        log = self.tables.exact(np.clip(eta, -REACH, REACH))
        if not np.isfinite(log.max(axis=0)).all():
            raise ValueError("the soft values of the task must be finite: check rewards and transitions")
        return log

    def row(self, state: object, action: object, task: Any) -> int:
        """Return the row of the tables of a decision."""
        number = len(self.tasks)
        if task is None and number > 1:
            raise ValueError(f"task must say in which of the {number} tasks the person decided, 0 to {number - 1}, got none")
        place = 0 if task is None else task
        if not isinstance(place, int | np.integer) or not 0 <= place < number:
            raise ValueError(f"task must be a whole number from 0 to {number - 1}, got {task!r}")
        mdp = self.tasks[place].mdp
        s, a = (
            _known(of[place], value, what)
            for of, value, what in ((self.states, state, "state"), (self.actions, action, "action"))
        )
        row = int(self.rows[place][a, s])
        if row < 0:
            if mdp.terminal[s]:
                raise ValueError(f"a decision must be made in a state that goes on, got {mdp.state_names[s]}, which is terminal")
            free = first_few([name for name, able in zip(mdp.action_names, mdp.available[s], strict=True) if able])
            raise ValueError(f"action must be available in state {mdp.state_names[s]} ({free}), got {mdp.action_names[a]}")
        return row

    def prior(self, person: Mapping[str, Any] | pd.Series[Any] | Frame | None) -> Prior:
        """Return what the study says of somebody with these covariates."""
        columns = self.covariates.formula.columns
        if person is None and columns:
            raise ValueError(f"person must have a value for {', '.join(columns)}, as the study compares people by it, got none")
        frame = pd.DataFrame(index=[0]) if person is None else _one_row(person)
        rows, random = self.covariates.rows_of(frame)
        return self._prior(rows[0], random, errors=True)

    def _prior(self, row: Floats, random: Floats, errors: bool) -> Prior:
        """Return what the study says of somebody with this row of X and of Z `(1,q)`, with or without the errors of its
        estimates."""
        spread = covariance_at(random, self.covariance)[0]
        if not errors:
            return Prior(self.effects @ row, spread, np.inf)
        scale = spread + np.diag([row @ each @ row for each in self.errors])
        degrees = max(self.degrees, 8.0)
        return Prior(self.effects @ row, scale * (t_ppf(0.975, self.degrees) / t_ppf(0.975, degrees)) ** 2, degrees)

    @cached_property
    def information(self) -> Floats:
        """Return v `(rows,)`: the Fisher information on logit γ of a decision in the state of each row, averaged over the
        study.
        """
        prior = self._prior(self.covariates.matrix.mean(axis=0), self.covariates.random, errors=False)
        (nodes, weights) = normal_nodes(7, 7)
        step = 1e-3
        eta = prior.mean + nodes @ np.linalg.cholesky(prior.scale).T
        less, here, more = (self.policies(eta + np.array([move, 0.0])) for move in (-step, 0.0, step))
        squares = np.exp(here) * ((more - less) / (2 * step)) ** 2
        information: Floats = self.tables.same_state @ (squares @ weights)
        return information


def _known(places: Mapping[str, int], value: object, what: str) -> int:
    """Return the number of a state or action."""
    place = places.get(value) if isinstance(value, str) else None
    place = places.get(label(value, what)) if place is None else place
    if place is None:
        raise ValueError(f"{what} must be one of the task's ({first_few(list(places))}), got {label(value, what)}")
    return place


def _one_row(person: Mapping[str, Any] | pd.Series[Any] | Frame) -> pd.DataFrame:
    """Return the covariates of one person as a table."""
    if is_frame(person):
        frame = as_frame(person, "person")
        if len(frame) != 1:
            raise ValueError(f"person must have one row, got {len(frame)}")
        return frame
    if not isinstance(person, Mapping | pd.Series):
        raise ValueError(f"person must map covariates to values, got {type(person).__name__}")
    return pd.DataFrame({str(column): [value] for column, value in person.items()})


def _covariates(solution: Solution, findings: PopulationFindings) -> Covariates:
    """Return the design of the study, as the solution remembers it."""
    formula, reference = solution.options.get("formula", "~ 1"), solution.options.get("reference")
    covariates = remembered(solution, formula, reference=reference)
    if covariates.terms != tuple(findings.discount):
        raise ValueError(
            f"the formula {formula!r} must give the study's terms {first_few(list(findings.discount))}, got "
            f"{first_few(covariates.terms)}: name the groups to compare with as Population(reference=…)"
        )
    return covariates


class Tracker:
    """One person, decision by decision; made by `track`.

    A tracker remembers how often each action was chosen in each state, and no more. Where it cannot use what it is given it
    raises, and stays as it was. Copies and the trackers of other people share its tables of policies. Trackers can be pickled;
    those that are pickled together go on sharing. Tables are not pickled, but planned again.
    """

    def __init__(self, shared: Tracking, prior: Prior) -> None:
        self._shared = shared
        self._prior = prior
        self._counts = Counter[int]()
        self._worth = np.zeros(3)  # Σ 1, Σ v and Σ v² over decisions
        lattice = prior.first_lattice(shared.most)
        self._window = shared.window(lattice)
        self._log = prior.log(lattice)
        self._add(Counter())

    def update(self, state: object, action: object, task: int | None = None) -> TrackedPerson:
        """Add a decision, and say what is known of the person then.

        Args:
            state, action: their names in the task.
            task: the number of the task, in the order in which tasks were joined; not needed where there is one.

        Raises:
            ValueError: for a state, action or task that there is not, a terminal state, or an action that is not available.
        """
        return self._add(Counter([self._shared.row(state, action, task)]))

    def update_many(self, decisions: Iterable[Any]) -> TrackedPerson:
        """Add decisions, each a state and an action, and a task where there are several: all, or none where one is wrong."""
        rows = []
        for decision in decisions:
            if not isinstance(decision, tuple | list) or len(decision) not in (2, 3):
                raise ValueError(f"a decision must be a state and an action, and a task if there are several, got {decision!r}")
            rows.append(self._shared.row(decision[0], decision[1], decision[2] if len(decision) == 3 else None))
        return self._add(Counter(rows))

    def take_back(self, state: object, action: object, task: int | None = None) -> TrackedPerson:
        """Remove a decision: one that was recorded by mistake, or one that is too old to count."""
        row = self._shared.row(state, action, task)
        if not self._counts[row]:
            raise ValueError(f"only a decision of this person can be taken back, got {action} in state {state}")
        return self._add(Counter({row: -1}))

    @property
    def now(self) -> TrackedPerson:
        """Return what is known of the person."""
        window, look = self._window, self._look
        number, worth, squares = self._worth.tolist()
        below = [window.cumulated(axis, look.shares[axis]) for axis in (0, 1)]
        (low, high), (cold, hot) = (
            np.interp([0.025, 0.975], cumulated, fine) for cumulated, fine in zip(below, window.fine, strict=True)
        )
        largest, ahead = self._shared.largest, self._shared.ahead
        gammas = largest * expit(window.nodes[0])
        discount = float(look.shares[0] @ gammas)
        ends = float(largest * expit(low)), float(largest * expit(high))
        return TrackedPerson(
            decisions=round(number),
            effective_decisions=worth**2 / squares if number and squares > 0 else 0.0,
            discount=discount,
            discount_error=float(np.sqrt(look.shares[0] @ (gammas - discount) ** 2)),
            discount_interval=ends,
            horizon=ahead(discount),
            horizon_interval=(ahead(ends[0]), ahead(ends[1])),
            temperature=float(np.exp(look.mean[1])),
            temperature_interval=(float(np.exp(cold)), float(np.exp(hot))),
            logit_discount=look.mean[0],
            logit_discount_error=look.deviation[0],
            log_temperature=look.mean[1],
            log_temperature_error=look.deviation[1],
            error=max(look.apart) / 2,
            placed=self._placed,
            discounts=largest * expit(window.fine[0]),
            below=below[0],
            ahead=ahead,
        )

    def fork(self) -> Tracker:
        """Return a copy that goes its own way."""
        other = copy.copy(self)
        other._counts = self._counts.copy()
        return other

    def another(self, person: Mapping[str, Any] | pd.Series[Any] | Frame | None = None) -> Tracker:
        """Return a tracker of somebody else, without decisions, that shares the tables; `person` is as in `track`."""
        return Tracker(self._shared, self._shared.prior(person))

    def _add(self, changes: Counter[int]) -> TrackedPerson:
        """Take over changes of the counts, on other nodes where these are not well placed any more."""
        window = self._window
        log = self._log
        placed = False
        for row in sorted(changes):
            log = log + changes[row] * window.table[row].reshape(log.shape)
        look = Look.at(window, log)
        for _ in range(20):  # more than enough: at each round nodes are twice as dense or reach twice as far
            lattice = look.better(window, self._shared.most)
            if lattice is None:
                break
            window = self._shared.window(lattice)
            placed = True
            log = self._prior.log(lattice)
            counts = self._counts.copy()
            counts.update(changes)
            for row in sorted(counts):
                log = log + counts[row] * window.table[row].reshape(log.shape)
            look = Look.at(window, log)
        self._window, self._log, self._look, self._placed = window, log, look, placed
        for row, times in changes.items():
            self._counts[row] += times
            self._worth = self._worth + times * self._shared.information[row] ** np.arange(3)
        return self.now

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the table."""
        return {**vars(self), "_window": self._window.lattice}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._window = self._shared.window(state["_window"])

    def __repr__(self) -> str:
        return f"Tracker({self.now.decisions} decisions, discount {decimals(self.now.discount, 3)})"


def track(solution: Solution, person: Mapping[str, Any] | pd.Series[Any] | Frame | None = None) -> Tracker:
    """Follow one new person as decisions arrive.

    What a study says of people like them comes first, and each decision adds to it. The first call plans; a decision then takes
    less than a millisecond, but for a few after which nodes are placed anew.

    Args:
        solution: a converged solution of `Population`, with its problem.
        person: the person's covariates, and the conditions the person is followed under, as a mapping or a row of a data frame;
            not needed where the formula has none.

    Returns:
        The tracker. `update` adds a decision and returns a `TrackedPerson`. `another` makes the tracker of another person.

    Raises:
        ValueError: for other solutions, a missing covariate, or a group that did not occur in the study.

    Example:
        >>> from multihorizon import Demonstrations, Population, Problem, domains, soft_plan, solve
        >>> d = domains.cliff()
        >>> policies = [soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.3, 0.4, 0.5, 0.6, 0.7)]
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, policies, episodes=50))
        >>> tracker = track(solve(problem, Population("~ 1", known_reward=d.reward)))
        >>> tracker.update("4", "right").decisions
        1
    """
    shared = Tracking(solution)
    return Tracker(shared, shared.prior(person))
