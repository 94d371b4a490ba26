"""Bootstrap: the spread of the estimate over tables that might have been logged instead.

* *parametric*: in each state where an expert decided n times, n new decisions are drawn from the fitted policy; right where the
  model is, and cheap, because the states visited stay as they are.
* *episodes*: each expert's episodes are drawn with replacement; right even where the decisions of one episode depend on each
  other in ways that the model does not have. Needs the table, because a problem holds only counts.

Each sample is fitted again from the estimate, in parallel; sample i uses the i-th child of the seed, so the number
of processes does not change the answer. Fits that did not finish are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, Seed, as_count, as_level, as_seed, renamed
from multihorizon.choice.tabular import Likelihood, draw_decisions
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.parallel import Progress, in_parallel, silent
from multihorizon.problem import Problem, require_counts
from multihorizon.result import Result
from multihorizon.solution import Solution

Kind = Literal["parametric", "episodes"]


@dataclass(frozen=True, eq=False)
class Bootstrap(Result):
    """Discounts `(B,K)` and rewards `(B,d)` of the samples whose fit finished, and how many did not."""

    _drawn: ClassVar[tuple[str, ...]] = ("expert", "discount", "low", "high")

    kind: Kind
    experts: tuple[str, ...]
    discounts: Floats
    rewards: Floats
    failed: int

    @property
    def standard_errors(self) -> Floats:
        """Standard deviation of each discount `(K,)`."""
        deviations: Floats = self.discounts.std(axis=0, ddof=1)
        return deviations

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Percentile intervals `(K,2)` of the discounts."""
        tails = [(1 - as_level(level)) / 2, (1 + level) / 2]
        return np.quantile(self.discounts, tails, axis=0).T

    def sentences(self) -> str:
        """How many tables were drawn and how."""
        drawn = "decisions were drawn from the fit" if self.kind == "parametric" else "episodes were drawn with replacement"
        first = f"In {len(self.discounts)} tables {drawn}; {self.failed} further fits did not finish."
        return f"{first} From low to high are 95 % of the discounts."

    def to_frame(self) -> pd.DataFrame:
        """One row per expert: mean and standard error of the discount, and the ends of the 95 % percentile interval."""
        low, high = self.confidence_intervals().T
        columns = {"discount": self.discounts.mean(axis=0), "standard_error": self.standard_errors, "low": low, "high": high}
        return pd.DataFrame({"expert": self.experts, **columns})


@renamed(samples="draws")
def bootstrap(
    solution: Solution,
    draws: int = 200,
    kind: Kind = "parametric",
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    *,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Bootstrap:
    """Fit `draws` tables drawn around a maximum-likelihood solution.

    Args:
        solution: of `MaximumLikelihood`, with its problem.
        draws: how many tables.
        kind: "parametric" or "episodes".
        demonstrations: for "episodes" the table the problem was made of, or one for each task; by default the problem's own.
        seed: same seed, same answer.
        jobs: processes; −1 for all cores. The digits do not depend on it.
        progress: called as samples finish.

    Returns:
        The discounts `(draws,K)` and rewards of all fits that finished, with standard errors and percentile intervals
        (`multihorizon.questions.bootstrap.Bootstrap`).

    Raises:
        ValueError: for solutions of other solvers, and where fewer than two fits finished.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.mce_experts(), episodes=100, seed=0)
        >>> problem = mh.Problem(d.mdp, table)
        >>> solution = mh.solve(problem, mh.MaximumLikelihood(1.0))
        >>> mh.bootstrap(solution, draws=5).discounts.shape
        (5, 3)
    """
    as_count(draws, "draws", least=2)
    point = resume(solution)
    model = point.likelihood
    if kind not in ("parametric", "episodes"):
        raise ValueError(f'kind must be "parametric" or "episodes", received {kind!r}')
    tables = None if kind == "parametric" else tables_of(model.problem, demonstrations)
    seeds = np.random.SeedSequence(as_seed(seed)).spawn(draws)
    # Forty tasks are enough for many processes, and few enough that starting one costs little.
    chunks = [[seeds[i] for i in chunk] for chunk in np.array_split(np.arange(draws), min(draws, 40))]
    found: list[Floats | None] = []
    for part in in_parallel(partial(_refit, model, point.x, tables), chunks, jobs):
        found += part
        progress(len(found) / draws, f"bootstrap {len(found)} of {draws}")
    kept = np.array([x for x in found if x is not None])
    if len(kept) < 2:
        raise ValueError(f"fewer than two of {draws} bootstrap fits finished: the problem is too close to not being identified")
    discounts = np.array([model.discounts(x) for x in kept])
    return Bootstrap(kind, solution.experts, discounts, kept[:, : model.n_reward], draws - len(kept))


def _refit(
    likelihood: Likelihood, x: Floats, tables: list[Demonstrations] | None, seeds: Sequence[np.random.SeedSequence]
) -> list[Floats | None]:
    """The parameters of the refitted samples, None where a fit did not finish."""
    point = likelihood.at(x)
    assert point is not None
    found: list[Floats | None] = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        counts = draw_decisions(point, rng) if tables is None else _draw_episodes(likelihood.problem, tables, rng)
        start = likelihood.with_counts(counts).at(x, point)
        end = None if start is None else climb(start)
        found.append(end.point.x if end is not None and end.finished else None)
    return found


def _draw_episodes(problem: Problem, tables: list[Demonstrations], rng: np.random.Generator) -> list[Floats]:
    """The counts of tables in which each expert's episodes are drawn with replacement."""
    counts: list[Floats] = []
    for table in tables:
        owners = table.by_episode.expert
        times = np.zeros(owners.size)
        for expert in range(len(table.experts)):
            own = np.flatnonzero(owners == expert)
            times[own] = rng.multinomial(own.size, np.full(own.size, 1 / own.size)) if own.size else 0
        counts += list(table.counts_of_episodes(problem.experts[len(counts)].mdp, times))
    return counts


def tables_of(
    problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None = None, all_experts: bool = True
) -> list[Demonstrations]:
    """List the tables that a problem was made of, one for each task in the order they were joined.

    By default they are those that the problem remembers. `all_experts` says that the problem must have all experts of the
    tables, and not only some.

    Raises:
        ValueError: for tables with other experts or other decisions than the problem's, and where none are remembered.
    """
    if demonstrations is None and not problem.tables:
        raise ValueError("this needs the tables the problem was made of, and it remembers none: give them as demonstrations")
    given = problem.tables if demonstrations is None else demonstrations
    tables = [given] if isinstance(given, Demonstrations) else list(given)
    everybody = set(problem.names)
    kept = [np.array([all_experts or name in everybody for name in table.experts]) for table in tables]
    counts: list[Floats] = []
    for table, own_experts in zip(tables, kept, strict=True):
        if len(counts) < len(problem.experts) and own_experts.any():
            counts += list(table.counts(problem.experts[len(counts)].mdp)[own_experts])
    own = [require_counts(expert) for expert in problem.experts]
    if sum(map(np.sum, kept)) != len(own) or not all(map(np.array_equal, counts, own)):
        raise ValueError("demonstrations must be the tables the problem was made of, one for each task in order")
    return tables
