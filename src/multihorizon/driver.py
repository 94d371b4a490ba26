"""From tables to a problem, from a problem and a solver to a solution; and outer searches over the discounts Γ ∈ [0,1]^K.

`build_problem` checks that tables and transitions agree, estimates what is missing, and says what was assumed. A search serves
solvers whose problem is easy once Γ is fixed. It maximises `objective(Γ)`, which is −inf where Γ is infeasible and NaN where the
value could not be computed. It returns every evaluation in order, the best of them, and what it has to say about how it ended.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np

from multihorizon.checks import Floats, Seed, as_count, as_frame, as_jobs, as_positive, as_seed, first_few, is_frame, look_alikes
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.dynamics import (
    describe_belief,
    describe_durations,
    describe_estimate,
    estimate_mdp,
    in_one_unit,
    observed_durations,
    require_agreement,
    require_ends,
)
from multihorizon.mdp import MDP, refuse_durations
from multihorizon.parallel import Progress, in_parallel, part_of, silent
from multihorizon.problem import AnyProblem, Problem, SampledProblem, require_finite
from multihorizon.solution import SOLVERS, Solution, Trace
from multihorizon.words import significant


def as_tables(tables: Any) -> list[Demonstrations]:
    """Return the tables of decisions: one or several, of which each may be a data frame."""
    listed = []
    for table in tables if isinstance(tables, list | tuple) else [tables]:
        if not isinstance(table, Demonstrations) and not is_frame(table):
            raise ValueError(
                "tables must be a data frame or Demonstrations, or a list with one of these for each task, got "
                f"{type(table).__name__}: Demonstrations.from_files reads files"
            )
        listed.append(table if isinstance(table, Demonstrations) else Demonstrations.from_frame(table))
    if not listed:
        raise ValueError("tables must hold at least one table, got none")
    return listed


def as_mdps(mdps: Any) -> list[MDP] | None:
    """Return the transitions of the tables, if they are given."""
    given = list(mdps) if isinstance(mdps, list | tuple) else None if mdps is None else [mdps]
    if not all(isinstance(mdp, MDP) for mdp in given or ()):
        raise ValueError(f"mdps must be an MDP, or a list with one for each table, got {type(mdps).__name__}")
    return given


def build_problem(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any = None,
    smoothing: float | None = None,
    estimate_rest: bool = False,
    believed: bool = False,
) -> tuple[Problem, list[str]]:
    """Return one problem from one or several tables with their transitions, and remarks on what was assumed.

    Args:
        tables: one for each task.
        mdps: their transitions in the same order, checked against the tables; None estimates them.
        features: None, or a function of an MDP that gives a matrix of features and their names: `(S,d)` earned on arrival, or
            `(A·S,d)` in rows a·S + s for decisions.
        smoothing: of estimated transitions.
        estimate_rest: whether `mdps` hold only some actions of some states, and the others are estimated.
        believed: whether `mdps` are what people believe, which is what they plan with: where moves led may contradict them.
    """
    tasks, remarks = _tasks(tables, mdps, features, smoothing, estimate_rest, believed)
    problems = [
        Problem(mdp, table, feature_names=names, **{_of_features(mdp, matrix): matrix}) for table, mdp, matrix, names in tasks
    ]
    return (problems[0] if len(problems) == 1 else Problem.join(*problems)), remarks


def _of_features(mdp: MDP, matrix: Any) -> str:
    """Return the name of a matrix of features: earned on arrival with a row for each state, or for each action and state."""
    return "arrival_features" if matrix is not None and matrix.shape[0] == mdp.n_states else "features"


def _tasks(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any,
    smoothing: float | None,
    estimate_rest: bool,
    believed: bool,
) -> tuple[list[tuple[Demonstrations, MDP, Any, Any]], list[str]]:
    """Return each table with its MDP, the matrix of features and their names, and remarks on what was assumed."""
    labels = [pair for t in tables for pair in (("expert", t.experts), ("state", t.states), ("action", t.actions))]
    remarks = [remark for what, names in labels if (remark := look_alikes(names, what))]
    tables = in_one_unit(tables)
    if mdps is not None and len(mdps) != len(tables):
        raise ValueError(f"there must be one file of transitions for each table, got {len(mdps)} for {len(tables)}")
    if features is not None and not callable(features):
        raise ValueError(f"features must be a function that gives a matrix and names for an MDP, got {type(features).__name__}")
    if mdps is None and estimate_rest:
        raise ValueError("estimate_rest must come with mdps to start from, got none: leave it out")
    if believed and mdps is None:
        raise ValueError("believed must come with the transitions that people believe in, got none")
    estimated = mdps is None or estimate_rest
    if mdps is None or estimate_rest:
        started: Sequence[MDP | None] = mdps or [None] * len(tables)
        mdps = [estimate_mdp(table, smoothing, rows) for table, rows in zip(tables, started, strict=True)]
        for table, mdp in zip(tables, mdps, strict=True):
            require_ends(table, mdp)
            remarks += describe_estimate(mdp, smoothing, table)
    tasks = []
    for table, given in zip(tables, mdps, strict=True):
        mdp = given
        if table.times is not None and not estimated:
            if mdp.durations is not None:
                raise ValueError(
                    "how long moves take must be said by the transitions or by time stamps, got both: leave out time="
                )
            mdp = mdp.lasting(observed_durations(table, mdp, smoothing))
        remarks += describe_belief(table, mdp) if believed else require_agreement(table, mdp)
        remarks += describe_durations(table, mdp)
        tasks.append((table, mdp, *((None, None) if features is None else features(mdp))))
    return tasks, remarks


@runtime_checkable
class Solver(Protocol):
    """What `mh.solve` asks of a solver: one method. The solvers of this library are frozen dataclasses of their options.

    A solver for logged steps says so with `takes = SampledProblem`. One in whose tasks moves may take time says so with
    `takes_durations = True`.

    Example:
        >>> import multihorizon as mh
        >>> isinstance(mh.MPLP(), Solver)
        True
    """

    def solve(self, problem: Any, seed: int = 0, progress: Progress = silent) -> Solution:
        """Solve the problem.

        Args:
            problem: a `Problem`, or what `takes` says.
            seed: fixes all randomness.
            progress: to be called with the share of the work done and a message.

        Returns:
            The solution. `mh.solve` adds the options, the seed, the time and the problem.
        """
        ...


def solve(problem: AnyProblem, solver: Solver, *, seed: Seed = 0, progress: Progress = silent) -> Solution:
    """Infer the shared reward and the experts' discount factors.

    Args:
        problem: a `Problem`, or a `SampledProblem` for `SieveLikelihood`.
        solver: one of the solver dataclasses, holding its options.
        seed: a whole number that fixes all randomness, or a NumPy generator; the same seed gives the same answer.
        progress: called with the share of work done and a message.

    Returns:
        The solution, with solver, options, seed and time recorded. Infeasible, not identified and not converged are statuses.

    Raises:
        ValueError: for a problem that the solver does not take, and for a solver of your own that returns no `Solution`.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> solve(mh.Problem(d.mdp, d.soft_experts()), mh.ClosedForm()).discounts.round(3).tolist()
        [0.0, 0.2, 0.52]
    """
    if not isinstance(problem, AnyProblem):
        raise ValueError(f"problem must be a Problem, got {type(problem).__name__}")
    if isinstance(solver, type) or not hasattr(solver, "solve"):
        raise ValueError(f"solver must be a solver such as MPLP(), got {solver!r}")
    options = _options(solver)
    seed = as_seed(seed)
    name = type(solver).__name__
    takes = getattr(solver, "takes", Problem)
    if takes is not SampledProblem:
        mdps = require_finite(problem).mdps
        if not getattr(solver, "takes_durations", False):
            refuse_durations(mdps, name)
    elif not isinstance(problem, takes):
        raise ValueError(f"{name} needs a problem of logged steps: make one with SampledProblem(Steps.from_frame(…))")
    try:
        signature(solver.solve).bind(problem, seed, progress)
    except TypeError as error:
        raise ValueError(f"{name}.solve must take a problem, a seed and a progress function: {error}") from None
    SOLVERS[name] = type(solver)
    start = time.perf_counter()
    solution = solver.solve(problem, seed, part_of(progress, 0.0, 1.0))
    if not isinstance(solution, Solution):
        raise ValueError(f"{name}.solve must return a Solution, got {type(solution).__name__}")
    if solution.problem is None and solution.experts != problem.names:
        expected = first_few(problem.names)
        raise ValueError(f"{name}.solve must return a Solution of the experts {expected}, got {first_few(solution.experts)}")
    return replace(
        solution,
        problem=problem if solution.problem is None else solution.problem,
        options=options,
        seed=seed,
        seconds=time.perf_counter() - start,
        experts=(solution.problem or problem).names,
    )


def _options(solver: Solver) -> dict[str, Any]:
    """Return the solver's options by name, a nested search with the name of its class, a data frame as lists by column, numbers
    of pairs by the first of each.
    """
    if not is_dataclass(solver) or isinstance(solver, type):
        return {}
    options: dict[str, Any] = {}
    for name in (each.name for each in fields(solver)):
        value = getattr(solver, name)
        if value is None or isinstance(value, str | int | float):
            options[name] = value
        elif is_dataclass(value) and not isinstance(value, type):
            options[name] = {"kind": type(value).__name__, **asdict(value)}
        elif is_frame(value):
            options[name] = as_frame(value, name).to_dict("list")
        elif isinstance(value, dict) and value and all(isinstance(key, tuple) and len(key) == 2 for key in value):
            options[name] = {first: {} for first, _ in value}  # files have no pairs for names
            for (first, second), number in value.items():
                options[name][first][second] = number
        elif hasattr(value, "get_params"):  # an estimator of scikit-learn
            options[name] = str(value)
        else:
            options[name] = copy.deepcopy(value)
    return options


Objective = Callable[[Floats], float]


@dataclass(frozen=True, eq=False)
class SearchResult:
    """What a search found: the `trace` of its evaluations, the `best` discounts `(K,)`, and `evidence` of how it ended.

    `evidence` joins the evidence of the solution. `converged` is False where the search stopped before it was done.
    `failures` counts what could not be computed beside the evaluations in the trace.
    """

    trace: Trace
    evidence: dict[str, Any] = field(default_factory=dict)
    converged: bool = True
    failures: int = 0

    @property
    def best(self) -> Floats:
        """Return the discounts with the largest value."""
        return self.trace.best_discounts

    @property
    def n_failed(self) -> int:
        """Return how much of what the search asked for could not be computed."""
        return int(np.isnan(self.trace.values).sum()) + self.failures


class EvaluationLog:
    """The evaluations of a search in order, with the seconds since its start; its trace when the search has ended."""

    def __init__(self) -> None:
        self.discounts: list[Floats] = []
        self.values: list[float] = []
        self.seconds: list[float] = []
        self._begun = time.perf_counter()

    def add(self, discounts: Floats, value: float) -> None:
        """Write down one evaluation."""
        self.discounts.append(discounts)
        self.values.append(value)
        self.seconds.append(time.perf_counter() - self._begun)

    @property
    def best(self) -> float:
        """Return the largest value so far."""
        return float(np.fmax.reduce(self.values))

    def trace(self) -> Trace:
        """Return everything that was evaluated."""
        return Trace(np.array(self.discounts), np.array(self.values), np.array(self.seconds))


@runtime_checkable
class Search(Protocol):
    """What `MPLP`, `NaiveLP`, `MPMCE` and `MPML` ask of the search over discount factors: one method.

    Example:
        >>> import multihorizon as mh
        >>> isinstance(mh.Grid(0.1), Search)
        True
    """

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> SearchResult:
        """Maximise `objective` over [0,1]^n_experts.

        Args:
            objective: a function of discount factors `(K,)`; −inf where they are infeasible, NaN where it is not known.
            n_experts: K.
            seed: fixes all randomness.
            progress: to be called with the share of the work done and a message.

        Returns:
            All evaluations in order (`multihorizon.driver.SearchResult`).
        """
        ...


def check_search(value: Any) -> None:
    """Raise on what is no outer search."""
    if isinstance(value, type) or not hasattr(value, "run"):
        raise ValueError(f"search must be a search such as SequentialLP() or Grid(step=0.05), got {value!r}")


@dataclass(frozen=True)
class Grid:
    """Every point of a regular grid with spacing `step`, ends included, on `jobs` processes (−1: all cores).

    The step must divide 1: a grid that ends at 1 has no other spacing.

    Example:
        >>> Grid(0.25).axis().tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    step: float = 0.01
    jobs: int = 1

    def __post_init__(self) -> None:
        intervals = 1 / as_positive(self.step, "step")
        if abs(intervals - round(intervals)) > 1e-9 * intervals:
            near = 1 / max(1, round(intervals))
            raise ValueError(f"step must divide 1, as {significant(near, 6)} does, got {self.step}")
        as_jobs(self.jobs)

    def axis(self) -> Floats:
        """Return the grid's discount factors on one axis."""
        return np.linspace(0.0, 1.0, round(1 / self.step) + 1)

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> SearchResult:
        """Evaluate all points, in chunks because starting a task takes time; the grid uses no randomness."""
        axis = self.axis()
        if n_experts * np.log(axis.size) > np.log(20_000_000):  # their coordinates alone fill gigabytes
            raise ValueError(
                f"step must be larger for {n_experts} experts: {self.step} asks for {axis.size}^{n_experts} evaluations"
            )
        points = np.stack(np.meshgrid(*n_experts * [axis], indexing="ij"), axis=-1).reshape(-1, n_experts)
        chunks = np.array_split(points, max(1, min(200, len(points) // 20)))
        start = time.perf_counter()
        values: list[Floats] = []
        seconds: list[Floats] = []
        for done, part in enumerate(in_parallel(partial(_evaluate, objective), chunks, self.jobs), start=1):
            values.append(part)
            seconds.append(np.full(part.size, time.perf_counter() - start))
            progress(done / len(chunks), f"grid: best {significant(np.fmax.reduce(np.concatenate(values)), 6)}")
        return SearchResult(Trace(points, np.concatenate(values), np.concatenate(seconds)))


@dataclass(frozen=True)
class Bayesian:
    """Bayesian optimisation (the paper's Algorithms 1 and 2): a Gaussian process on the objective, `initial` uniform points,
    then the maximiser of the acquisition function until `max_evaluations` are spent. It needs the package
    `bayesian-optimization`.

    Example:
        >>> Bayesian(max_evaluations=20).initial
        10
    """

    max_evaluations: int = 100
    initial: int = 10

    def __post_init__(self) -> None:
        as_count(self.initial, "initial")
        as_count(self.max_evaluations, "max_evaluations", least=self.initial)

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> SearchResult:
        """Evaluate one point after the other; the same seed gives the same points.

        The Gaussian process takes finite values only: an infeasible or unknown point counts as the worst feasible one so far.
        Until there is a feasible point, such points wait, because no value for them is known.
        """
        try:  # imported here because it takes most of a second, and few need it
            from bayes_opt import BayesianOptimization, acquisition  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ValueError("a Bayesian search needs the package bayesian-optimization") from error
        names = [f"discount{i:03d}" for i in range(n_experts)]
        optimizer = BayesianOptimization(
            f=None,
            pbounds=dict.fromkeys(names, (0.0, 1.0)),
            acquisition_function=acquisition.ExpectedImprovement(xi=0.0),
            random_state=seed % 2**32,
            verbose=0,
            allow_duplicate_points=True,
        )
        uniform = np.random.default_rng(seed).uniform(size=(self.initial, n_experts))
        log = EvaluationLog()
        waiting = []
        for number in range(self.max_evaluations):
            if number < self.initial:
                point = uniform[number]
            else:
                suggested = optimizer.suggest()
                point = np.array([suggested[name] for name in names], dtype=np.float64)
            log.add(point, float(objective(point)))
            waiting.append((point, log.values[-1]))
            finite = [value for value in log.values if np.isfinite(value)]
            for tried, value in waiting if finite else ():
                target = value if np.isfinite(value) else min(finite)
                optimizer.register(params=dict(zip(names, tried.tolist(), strict=True)), target=target)
            waiting = [] if finite else waiting
            progress((number + 1) / self.max_evaluations, f"Bayesian: best {significant(log.best, 6)}")
        return SearchResult(log.trace())


def _evaluate(objective: Objective, points: Floats) -> Floats:
    """Return the values at some points. An objective that learns from its evaluations starts from a copy, as in a process of its
    own.
    """
    fresh = copy.copy(objective)
    return np.array([fresh(point) for point in points])
