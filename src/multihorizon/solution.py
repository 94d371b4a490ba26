"""What a solver found: the answer, its status, and the evidence for both.

A solution is a value: it can be printed, saved as JSON and handed on. Everything that is an array with a meaning of its own
has a field; what only one solver has to say (an Ω set, a Farkas ray, singular values) goes into its `evidence`, a dataclass of
plain numbers, strings, lists and dicts.

There is one class of evidence per kind of solver. It stands beside its solver and registers itself with the solver's name, so
that a file with such evidence is read as it was written. The same holds for a solver of your own: derive its evidence from
`Evidence` with `solvers=("YourSolver",)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, Self, TypedDict, get_args, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from multihorizon.checks import Floats, as_level, as_shape, first_few, read_only
from multihorizon.estimate import (
    Estimate,
    Exact,
    ExpertValues,
    IntervalSource,
    NormalEstimate,
    SavedIntervals,
    StandardErrors,
)
from multihorizon.files import as_declared, read_json, read_numbers, write_json
from multihorizon.horizon import Horizon, step_discounts_of
from multihorizon.mdp import steps_left
from multihorizon.planning.plan import check_policy, plan, soft_plan, weighted_plan
from multihorizon.problem import AnyProblem, Expert, Problem, require_finite
from multihorizon.result import Result, draw_rows, package_version
from multihorizon.words import LEVEL, Table, decimals, in_words, p_text, percent

#: What exact identities of policies and tests of goals rest on.
SOFT_ALONE = "soft values and neither lapses nor stickiness"


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence(Mapping[str, Any]):
    """What a solver says about its answer: fields, which can also be read by name as in a dict (`evidence["order"]`).

    `other` holds what has no field: the evidence of your own solver or search, or of another version. A field that is None by
    default and was not given does not count as there (`in`, `get`, iteration).

    Example:
        >>> Evidence(other={"draws": 1000})["draws"]
        1000
    """

    other: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Of fields that are declared loosely, what a file must hold.
    _schema: ClassVar[dict[str, Any]] = {}
    #: The lengths of lists: "experts", "reward", or the name of another field.
    _lengths: ClassVar[dict[str, str]] = {}
    #: The classes of evidence by the names of their solvers, the first that fits first.
    kinds: ClassVar[dict[str, list[type[Evidence]]]] = {}
    #: An entry that a dict must have to be of this kind, where a solver has several kinds.
    told_by: ClassVar[str] = ""

    def __init_subclass__(cls, solvers: tuple[str, ...] = (), **more: Any) -> None:
        """Register the class with the names of its solvers."""
        super().__init_subclass__(**more)
        for name in solvers:
            Evidence.kinds.setdefault(name, []).insert(0, cls)

    def lookahead_weights(self) -> list[list[float]]:
        """Return the look-ahead weights of each expert where they are not those of a discount factor."""
        return []

    def lookahead_parameters(self) -> dict[str, Floats]:
        """Return the parameters `(K,)` of a look-ahead that is not exponential, by name."""
        return {}

    def ambiguity(self, solver: str, needs_reward: bool) -> str:
        """Say why other answers explain the experts as well, or other rewards where it matters; empty where they do not."""
        return ""

    def summary_facts(self) -> dict[str, Any]:
        """Return what a summary says beside solver and status."""
        return {}

    def expert_tables(self, solution: Any) -> list[Table]:
        """Return the tables of experts or groups of a solution with this evidence; none for its discount factors."""
        return []

    def draw_experts(self, ax: Any, solution: Any) -> bool:
        """Draw what those tables say, and say whether anything was drawn."""
        return False

    def picture_rows(self, experts: int) -> float:
        """Return how high a picture of so many experts is, in rows."""
        return experts

    @classmethod
    def of(cls, solution: Any) -> Self:
        """Return the evidence of a solution, which must be of this kind."""
        if not isinstance(solution.evidence, cls):
            raise ValueError(f"this needs a solution with {cls.__name__}, got one of {solution.solver}")
        return solution.evidence

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Return evidence from a dict. A field that it lacks is None, and what has no field goes to `other`.

        Raises:
            ValueError: where a field is not what it is declared to be.
        """
        declared = {name: _declared(content.get(name), kind, name) for name, kind in cls._kinds().items()}
        return cls(**declared, other={name: value for name, value in content.items() if name not in declared})

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        """Return what each field must be."""
        hints = get_type_hints(cls)
        return {f.name: cls._schema.get(f.name, hints[f.name]) for f in fields(cls) if f.name != "other"}

    def lacking(self) -> list[str]:
        """Return the fields that are None and may not be, as in a file of another version."""
        hints = get_type_hints(type(self))
        return [
            f.name for f in fields(self) if f.name != "other" and getattr(self, f.name) is None and not _may_lack(hints[f.name])
        ]

    def require_lengths(self, sizes: Mapping[str, int]) -> None:
        """Raise unless lists are as long as there are experts and parameters of the reward (`sizes`), or as other fields."""
        for name, of in self._lengths.items():
            value = getattr(self, name)
            other = sizes.get(of, getattr(self, of, None))
            size = other if isinstance(other, int) else 0 if other is None else len(other)
            for part in value.values() if isinstance(value, Mapping) else () if value is None else (value,):
                if len(part) != size:
                    raise ValueError(f"{name} of the solution must have {size} entries, got {len(part)}")
        for part in vars(self).values():
            if isinstance(part, Evidence):
                part.require_lengths(sizes)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name) if name != "other" and name in self.__dataclass_fields__ else self.other[name]

    def __contains__(self, name: object) -> bool:
        return any(name == other for other in self)

    def __iter__(self) -> Iterator[str]:
        for f in fields(self):
            if f.name != "other" and not (f.default is None and getattr(self, f.name) is None):
                yield f.name
        yield from self.other

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of that name, or the default where it is not there."""
        return self[name] if name in self else default  # noqa: SIM401


def _may_lack(kind: Any) -> bool:
    return kind is Any or type(None) in get_args(kind)


def _declared(value: Any, kind: Any, name: str) -> Any:
    """Return a value from a dict as its field declares it: evidence of its own class, or checked as it is."""
    if value is None:
        return None
    inner = next((k for k in (kind, *get_args(kind)) if isinstance(k, type) and hasattr(k, "read")), None)
    if inner is None:
        as_declared(value, kind, name)
        return value
    if isinstance(value, inner):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, got {value!r}"[:160])
    return inner.read(value)


@dataclass(frozen=True, eq=False, kw_only=True)
class DecisionEvidence(Evidence):
    """What every fit to decisions says: their log-likelihood and their number."""

    log_likelihood: float
    decisions: float

    def summary_facts(self) -> dict[str, Any]:
        """Return how many decisions there are, and how likely they are."""
        return {"decisions": self.decisions, "log-likelihood": self.log_likelihood}


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscountEvidence(DecisionEvidence):
    """What a fit of one discount per expert says, for listed states and for vectors.

    Attributes:
        identified: by expert, whether the decisions identify the discount.
        unidentified_directions: of the reward.
        temperature_spread: the spread of log temperatures between experts, None where none was estimated.
        equal_temperatures_p: the p-value of one temperature for all, None where it was not tested.
        steps: of the climb.
        starts: what each climb reached.
    """

    identified: list[bool]
    unidentified_directions: int
    temperature_spread: float | None
    equal_temperatures_p: float | None
    steps: int
    starts: list[dict[str, Any]]

    _lengths: ClassVar[dict[str, str]] = {"identified": "experts"}

    def summary_facts(self) -> dict[str, Any]:
        """Return the same, and the test of one temperature for all."""
        test = {} if self.equal_temperatures_p is None else {"one temperature for all, p": p_text(self.equal_temperatures_p, "")}
        return super().summary_facts() | test


class IfShared(TypedDict):
    """What one reward for all would give."""

    discounts: Floats
    standard_errors: Floats
    log_likelihood: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Deviations:
    """How far the goals of people are from the one they nearly share: person k's reward is `θ + δ_k`, `δ_k ~ N(0, τ²W)`.

    Attributes:
        spread: τ, in units of reward; 0 where the decisions do not contradict one reward for all.
        estimated: the most likely τ, also where it is not taken.
        interval: the ends of the 95% CI of τ.
        p_shared: the p-value of τ = 0; NaN where τ was given.
        share_of_range: τ as a share of the range of the shared reward, and the ends of its interval.
        choices_moved: how many choices in a hundred deviations of that size move, and the ends of that interval.
        values, errors: each person's deviation `(K,d)` from the shared reward, and its posterior standard deviation.
        if_shared: "discounts", "standard_errors" `(K,)` and "log_likelihood" of one reward for all, which is τ = 0.
        given: whether τ was given and not estimated.
    """

    spread: float
    estimated: float
    interval: Floats
    p_shared: float
    share_of_range: Floats
    choices_moved: Floats
    values: Floats
    errors: Floats
    if_shared: dict[str, Any]
    given: bool

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Return deviations from a dict, as files have them; raises ValueError where they are something else."""
        kinds = {**get_type_hints(cls), "if_shared": IfShared}
        if content.keys() != kinds.keys():
            raise ValueError(f"deviations must have the entries {', '.join(kinds)}, got {', '.join(map(str, content))}")
        for name, kind in kinds.items():
            as_declared(content[name], kind, f"deviations: {name}")
        return cls(**content)

    def __post_init__(self) -> None:
        """Lists and null, as files have them, become arrays and NaN."""
        for name in ("interval", "share_of_range", "choices_moved", "values", "errors"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        for name in ("spread", "estimated", "p_shared"):
            object.__setattr__(self, name, float(np.array(getattr(self, name), dtype=np.float64)))
        shared: dict[str, Any] = {name: np.array(value, dtype=np.float64) for name, value in self.if_shared.items()}
        object.__setattr__(self, "if_shared", shared | {"log_likelihood": float(shared["log_likelihood"])})


#: The classes of solvers that have solved something, by name.
SOLVERS: dict[str, type] = {}


def solver_class(name: str) -> type | None:
    """Return the class of a solver, or of one of its parts, by its name: of this library, or one that has solved something."""
    library = import_module("multihorizon")
    if name in library.__all__ and isinstance(public := getattr(library, name), type):
        return public
    return SOLVERS.get(name)


def read_evidence(solver: str, content: Mapping[str, Any]) -> Evidence:
    """Return the evidence of that solver from a dict, as files and solvers of your own have it."""
    solver_class(solver)  # its module declares its evidence
    kinds = [kind for kind in Evidence.kinds.get(solver, ()) if not kind.told_by or content.get(kind.told_by) is not None]
    return (kinds or [Evidence])[0].read(content)


class Status(StrEnum):
    """How a solve ended; `Solution.message` says it in a sentence with the figures.

    Example:
        >>> Status("converged") == Status.CONVERGED
        True
    """

    OPTIMAL = "optimal"
    CONVERGED = "converged"
    NOT_CONVERGED = "not converged"
    INDISTINGUISHABLE = "indistinguishable"
    INFEASIBLE = "infeasible"
    NOT_IDENTIFIED = "not identified"


@dataclass(frozen=True, eq=False)
class Trace:
    """Evaluations of an outer search in order: discounts `(n,K)`, objective values `(n,)`, seconds since the start `(n,)`.

    A value is −inf where the discounts are infeasible, and NaN where it could not be computed.
    """

    discounts: Floats
    values: Floats
    seconds: Floats

    def __post_init__(self) -> None:
        if self.discounts.ndim != 2 or not len(self.discounts) == len(self.values) == len(self.seconds):
            shapes = ", ".join(str(array.shape) for array in (self.discounts, self.values, self.seconds))
            raise ValueError(f"a trace must have arrays (n,K), (n,) and (n,), got {shapes}")

    @property
    def best(self) -> Floats:
        """Return the best value after each evaluation."""
        return np.fmax.accumulate(self.values)

    @property
    def best_discounts(self) -> Floats:
        """Return the discounts `(K,)` with the best value."""
        best: Floats = self.discounts[int(np.argmax(np.where(np.isnan(self.values), -np.inf, self.values)))]
        return best

    def __len__(self) -> int:
        return self.values.size


@dataclass(frozen=True, eq=False)
class Solution(Result):
    """The shared reward and each expert's discount factor.

    `reward` is `(S,)` paid on arrival, or `(d,)` weights of the problem's features. `temperature` is None for experts who
    choose the best action, else the entropy weight `(K,)`. `residual` is recomputed from the answer; each solver's docstring
    says of which equation. `evidence` has fields by kind of solver; a dict becomes `Evidence`. The arrays cannot be written to.
    `problem` is kept in memory and not saved. `interval_source` is what the solver leaves with it: an `Estimate`, or anything
    that gives intervals; of a solution read from a file, the intervals that were saved. Where a solver gives standard errors
    alone, intervals follow from these. `estimate` is the answer with its uncertainty in each case. `task_horizon` is that of a
    problem that is not at hand.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> s = mh.solve(mh.Problem(d.mdp, d.soft_experts()), mh.ClosedForm())
        >>> str(s.status), s.discounts.round(3).tolist()
        ('optimal', [0.0, 0.2, 0.52])
    """

    solver: str
    status: Status
    message: str
    experts: tuple[str, ...]
    discounts: Floats
    reward: Floats
    objective: float
    residual: float
    temperature: Floats | None = None
    trace: Trace | None = None
    standard_errors: Floats | None = None
    evidence: Evidence = field(default_factory=Evidence)
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float = 0.0
    problem: AnyProblem | None = None
    interval_source: IntervalSource | None = None
    task_horizon: Horizon | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in self.experts):
            raise ValueError(f"experts of the solution must be names, got {self.experts[:5]}")
        limits = {"discounts": 1.0, "temperature": np.inf, "standard_errors": np.inf}
        for name, high in limits.items():
            values = getattr(self, name)
            if values is not None or name == "discounts":
                as_shape(np.asarray(values), (len(self.experts),), f"{name} of the solution")
                outside = (values < 0) | (values > high)  # NaN stands for what is not known
                if outside.any():
                    expected = f"from 0 to {high:g}" if np.isfinite(high) else "at least 0"
                    raise ValueError(f"{name} of the solution must be {expected}, got {values[outside][0]:g}")
        if np.ndim(self.reward) != 1:
            raise ValueError(f"reward of the solution must have one axis, got shape {np.shape(self.reward)}")
        if self.problem is not None and self.problem.names != self.experts:
            raise ValueError(
                f"problem must be that of the experts {first_few(self.experts)}, got {first_few(self.problem.names)}"
            )
        # a reward that is known for pairs has no parameters, whatever the problem it was fitted to had
        if self.problem is not None and self.reward.size and self.problem.n_parameters not in (0, self.reward.size):
            raise ValueError(f"reward of the solution must have {self.problem.n_parameters} entries, got {self.reward.size}")
        if not isinstance(self.evidence, Evidence):
            object.__setattr__(self, "evidence", read_evidence(self.solver, self.evidence))
        if isinstance(deviations := self.evidence.get("deviations"), Deviations):
            as_shape(deviations.values, (len(self.experts), self.reward.size), "deviations of the solution")
        for name in ("discounts", "reward", "temperature", "standard_errors"):
            array = getattr(self, name)
            object.__setattr__(self, name, None if array is None else read_only(array))
        alone = not hasattr(solver_class(self.solver), "estimate_of")
        if self.interval_source is None and self.standard_errors is not None and alone:
            object.__setattr__(self, "interval_source", StandardErrors(self.discounts, self.standard_errors))

    @classmethod
    def of(
        cls,
        solver: str,
        problem: AnyProblem,
        estimate: Estimate,
        status: Status,
        words: Sequence[str],
        *,
        objective: float,
        residual: float,
        evidence: Evidence,
        standard_errors: Floats | None = None,
    ) -> Solution:
        """Return the solution of an estimate, whose answer it is; `words` are the sentences of the message."""
        answer = estimate.answer
        return cls(
            solver=solver,
            status=status,
            message=" ".join(words),
            experts=problem.names,
            discounts=answer.discounts,
            reward=answer.reward,
            objective=objective,
            residual=residual,
            temperature=answer.temperatures,
            standard_errors=standard_errors,
            problem=problem,
            interval_source=estimate,
            evidence=evidence,
        )

    @property
    def horizon(self) -> Horizon:
        """Return how far ahead discount factors look in the task; of a solution without a problem, as it was saved."""
        return (self.task_horizon or Horizon()) if self.problem is None else self.problem.horizon

    @property
    def personal_rewards(self) -> Floats:
        """Return each expert's reward `(K,d)`: the shared one, and what the expert deviates from it where goals are nearly
        shared.
        """
        deviations = self.evidence.get("deviations")
        shape = (len(self.experts), self.reward.size)
        return (
            read_only(self.reward + deviations.values)
            if isinstance(deviations, Deviations)
            else np.broadcast_to(self.reward, shape)
        )

    def policies(self) -> list[Floats]:
        """Return the policy `(S,A)` of each expert of the problem under the answer: optimal, or soft-optimal at a temperature.

        Lapses are part of it. Where choices depend on the last action, it is the policy of first decisions.
        """
        problem = self.require_problem()
        if not (np.isfinite(self.discounts).all() or self.evidence.lookahead_weights()) or not np.isfinite(self.reward).all():
            raise ValueError(f"this solution has no answer to plan with: its status is {self.status}")
        rewards = self.personal_rewards
        owners = zip(problem.experts, problem.owner, strict=True)
        seen = ((expert.at(float(self.discounts[owner])), owner) for expert, owner in owners)
        return [self._policy(expert, owner, expert.expected_reward(rewards[owner])) for expert, owner in seen]

    def _policy(self, expert: Expert, owner: int, reward: Floats) -> Floats:
        discount = float(self.discounts[owner])
        if self.evidence.lookahead_weights() and self.temperature is not None:
            weights = self.evidence.lookahead_weights()[owner]
            left = steps_left(expert.mdp)
            steps, temperature = step_discounts_of(weights)[:, None], self.temperature[owner : owner + 1]
            log = weighted_plan(expert.mdp, reward.T.ravel(), steps, temperature)[1][0, :, :, 0]
            # In states from which a plan needs weights that are not known, so is the policy.
            reached = np.ones(len(reward), dtype=np.bool_) if left is None else left <= len(weights)
            return np.where(reached[:, None], np.exp(log.T), np.nan)
        if self.temperature is None:
            return plan(expert.mdp, reward, discount).policy
        planner = self.evidence.get("planner") or {"value": "soft", "lapse": None}
        heat, own = float(self.temperature[owner]), self.options.get("planner")
        if callable(own):
            policy = check_policy(expert.mdp, own(expert.mdp, reward, discount, heat), "the planner's policy")
        else:
            policy = soft_plan(expert.mdp, reward, discount, heat, planner["value"]).policy
        lapse = planner["lapse"]["estimate"] if planner["lapse"] else 0.0
        mixed: Floats = (1 - lapse) * policy + lapse * expert.mdp.available / expert.mdp.available.sum(axis=1, keepdims=True)
        return mixed

    @cached_property
    def estimate(self) -> Estimate:
        """Return the answer with its uncertainty: as the solver left it, or of a solution read from a file made anew with its
        problem.

        An answer of a solver that has no error is `Exact`.
        """
        left = self.interval_source
        if isinstance(left, Estimate) and left.belongs_to(self.problem):
            return left
        if (make := getattr(solver_class(self.solver), "estimate_of", None)) is not None:
            made: Estimate = make(self)
            return made
        answers, rewards = (self.evidence.ambiguity(self.solver, needs) for needs in (False, True))
        return Exact(self.answer, self.solver, answers, rewards, "" if self.standard_errors is None else " of the reward")

    @property
    def answer(self) -> ExpertValues:
        """Return what the solution says of the experts."""
        parameters = () if self.problem is None else tuple(self.problem.parameter_names)
        return ExpertValues(self.experts, self.reward, self.discounts, self.temperature, parameters)

    def solver_used(self, *kinds: type) -> Any:
        """Return the solver with its options, which must be of one of these kinds where some are given.

        Raises:
            ValueError: for another kind, for a solver that is not of this library and has solved nothing in this session, and for
                options that are none of the solver's, as in a file that was edited.
        """
        kind = solver_class(self.solver)
        if kinds and (kind is None or not issubclass(kind, kinds)):
            wanted = " or ".join(each.__name__ for each in kinds)
            why = getattr(kind, "not_apart", "its answer is not that of a likelihood of decisions")
            raise ValueError(f"this needs a solution of {wanted}, got one of {self.solver}: {why}")
        if kind is None:
            raise ValueError(f"{self.solver} is not a solver of this library: solve with it once before its options can be read")
        try:
            names = getattr(kind, "renamed", {})  # of options; saved results may have older ones
            return kind(**{names.get(name, name): _option(value) for name, value in self.options.items()})
        except TypeError as error:
            raise ValueError(f"the options of the solution are none of {self.solver}: {error}") from error

    @property
    def is_soft(self) -> bool:
        """Return whether choices are those of soft values alone: without other values, lapses or stickiness."""
        return self.evidence.get("planner") is None

    def require_soft(self, what: str) -> None:
        """Raise unless choices are those of soft values alone, which `what` needs."""
        if not self.is_soft:
            raise ValueError(f"{what} needs a fit with {SOFT_ALONE}, got one with others")

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Return intervals `(K,2)` of the discounts: profile-likelihood intervals of `MaximumLikelihood`, else what the solver
        offers.

        An interval ends at 0 or 1 where the data do not contradict it; a discount factor that is not identified has NaN.

        Raises:
            ValueError: for other solvers, or for a level that a solution read from a file was not saved with.
        """
        return (self.estimate if self.interval_source is None else self.interval_source).at(level)

    def sentences(self) -> str:
        """Solver, status and message; what is not identified; and of more than 60 experts the quartiles."""
        lines = [f"{self.solver}: {self.status}. {self.message}"]
        if not self._identified.all():
            lines.append(
                f"Not identified: the discounts of {in_words([*np.array(self.experts, dtype=object)[~self._identified]])}."
            )
        if open_ := self.evidence.get("unidentified_directions"):
            lines.append(f"Of the reward {open_:,} {'direction is' if open_ == 1 else 'directions are'} not identified.")
        for name, values in (self.evidence.lookahead_parameters() or {"discount": self.discounts}).items():
            if len(self.experts) > 60 and not np.isnan(values).all():
                low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75])
                lines.append(f"Quartiles of {name}: {decimals(low, 4)}, {decimals(middle, 4)}, {decimals(high, 4)}.")
        return "\n".join(lines)

    @property
    def _identified(self) -> NDArray[np.bool_]:
        """Of whom the discount is identified `(K,)`, as far as the solver says."""
        said = self.evidence.get("identified")
        return np.ones(len(self.experts), dtype=np.bool_) if said is None else np.array(said, dtype=np.bool_)

    def _level(self, compute: bool) -> float | None:
        """Return the level of the intervals that are shown: 95%, or another that is known; None where there are none."""
        if self.interval_source is None:
            return None
        levels = self.interval_source.computed
        can = compute and not isinstance(self.interval_source, SavedIntervals)
        return LEVEL if can or LEVEL in levels else max(levels, default=None)

    def _facts(self) -> dict[str, Any]:
        head = {"solver": self.solver, "status": str(self.status), "experts": len(self.experts)}
        return head | self.evidence.summary_facts() | {"parameters of the reward": self.reward.size, "residual": self.residual}

    def _tables(self, compute: bool) -> list[Table]:
        """Of a population the groups, of others the experts; then the reward. A discount that is not identified is a dash."""
        tables = self.evidence.expert_tables(self)
        if not tables:
            level = self._level(compute)
            frame = self.to_frame(level)
            ahead = [name for name in ("horizon", "half_life") if name in frame]
            order = ("expert", "discount", "standard_error", "discount_low", "discount_high", *ahead, "temperature")
            frame = frame[[name for name in order if name in frame]]
            frame.loc[~self._identified, ["discount", *ahead]] = np.nan
            caption = "discounts" if level is None else f"discounts, with {percent(level)} CIs"
            tables = [Table(frame, caption, ("discount", *(() if level is None else ("discount_low", "discount_high"))))]
        errors = self.evidence.get("reward_standard_errors")
        if self.problem is None or (errors is not None and not any(errors)):  # the whole reward was given
            return tables
        reward = self.reward_frame()
        if errors is not None and len(errors) == len(reward):
            reward["standard_error"] = read_numbers(errors)
        return [*tables, Table(reward, "reward", ("reward",))]

    def _height(self) -> float:
        rows = self.evidence.picture_rows(len(self.experts)) if self.evidence.expert_tables(self) else len(self.experts)
        return 2.4 if rows > 200 else min(0.7 + 0.2 * rows, 9.0)

    def _draw(self, ax: Any) -> None:
        """Draw each discount with its interval, or what the evidence has to draw of groups."""
        if self.evidence.draw_experts(ax, self):
            return
        first = self._tables(compute=True)[0]
        draw_rows(ax, first.frame, first.frame.columns[0], *(first.drawn or first.frame.columns[1:2]))
        ax.set_xlim(*((-0.02, 1.02) if first.drawn else (None, None)))

    def __repr__(self) -> str:
        return f"Solution({self.solver}, {self.status}, experts {first_few(self.experts)})"

    def to_frame(self, level: float | None = None) -> pd.DataFrame:
        """Return one row per expert: the discount factor and the effective planning horizon (`Horizon`), the temperature and the
        standard error where there are any, the parameters of another look-ahead, and with a level the ends of the confidence
        interval. What is not known is NaN.
        """
        ahead = self.horizon
        gammas = self.discounts.tolist()
        columns: dict[str, Any] = {"expert": self.experts, "discount": self.discounts}
        columns["horizon"] = [ahead(gamma) for gamma in gammas]
        if ahead.timed:
            columns["half_life"] = [ahead.half_life(gamma) for gamma in gammas]
        columns |= {
            "standard_error": self.standard_errors,
            "temperature": self.temperature,
            **self.evidence.lookahead_parameters(),
        }
        if level is not None:
            columns["discount_low"], columns["discount_high"] = self.confidence_intervals(level).T
        return pd.DataFrame({name: values for name, values in columns.items() if values is not None})

    def to_trials(self) -> pd.DataFrame:
        """Return one row per decision, by expert, episode and step, with what the fitted model says of it: for regressions of EEG
        and fMRI signals, response times and pupils.

        Columns beside `expert`, `episode`, `step`, `state` and `action`: the `probability` of the choice, given the last action
        where choices are sticky; its `surprise` −log p; the `entropy` of the choice in nats; the `value` of the state and the
        action value `q`; the `advantage` of the action over the mean of the choice; the `reward` got; the
        `prediction_error`, reward + γ V(next state) − V(state), missing where the next state is not known; and the
        `discount_gradient` d log p / dγ. Decisions that the fit did not count are left out. A planner of your own says policies
        alone, without values. `Population` says it at the shrunken discount factor of each person under each condition.

        Raises:
            ValueError: for a solution without decisions or without discounts, and for tables that are too large to be listed.

        Example:
            >>> import multihorizon as mh
            >>> d = mh.domains.big_small()
            >>> problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100))
            >>> s = mh.solve(problem, mh.MaximumLikelihood(starts=1))
            >>> bool(abs(s.to_trials().surprise.sum() + s.objective) < 1e-8)
            True
        """
        problem = self.require_answer()
        if (
            without := next((e.name for e in problem.exemplars if e.counts is None), None)
        ) is not None or self.temperature is None:
            given = "none" if without is None else f"expert {without} without"
            raise ValueError(f"trials need decisions and the probabilities of choices, got {given}")
        population = self.evidence.get("population")
        if population is not None and population.types is not None:
            raise ValueError("trials need one policy for each person, got people who are each of one of a few types")
        made, estimates = import_module("multihorizon.choice.trials"), import_module("multihorizon.likelihood.estimates")
        cells, discounts, temperatures = pd.DataFrame({"expert": self.experts}), self.discounts, self.temperature
        if population is not None and population.cells is not None:
            cells = pd.DataFrame({name: population.cells[name] for name in ("expert", *population.conditions)})
            discounts, temperatures = population.cells["discount"], np.exp(population.cells["log_temperature"])
        frame: pd.DataFrame = made.trials(
            problem, estimates.choosing_of(self), cells, discounts, temperatures, self.personal_rewards
        )
        fitted = float(self.evidence.get("decisions", len(frame)))  # of people fitted one by one, of those who have an answer
        if len(frame) < fitted or (len(frame) > fitted and not any(self.evidence.get("reasons") or ())):
            raise ValueError(
                f"trials need the tables of the {fitted:,.0f} decisions that were fitted, got tables "
                f"with {len(frame):,} decisions of these experts"
            )
        return frame

    def reward_frame(self) -> pd.DataFrame:
        """Return one row per state, or per feature where rewards are tied, or per basis function: its name and its reward."""
        problem = self.problem or self.require_problem()
        return pd.DataFrame({"parameter": problem.parameter_names, "reward": self.reward})

    def require_answer(self) -> Problem:
        """Return the problem of a solution with a reward and a discount factor for every expert, which can be planned with.

        Raises:
            ValueError: for a solution without, and for one without its problem.
        """
        if self.evidence.lookahead_weights():
            raise ValueError(f"this needs a solution with discounts: {self.evidence['no_discount']}")
        problem = self.require_problem()
        if self.status in (Status.NOT_CONVERGED, Status.INFEASIBLE):
            raise ValueError(f"this needs a solution that can be used, got one that is {self.status}")
        if not np.isfinite(self.reward).all() or not np.isfinite(self.discounts).all():
            raise ValueError("this needs a solution with a reward and a discount for every expert, got one without")
        return problem

    def require_problem(self) -> Problem:
        """Return the finite problem this solves; a solution read from a file needs it handed back."""
        if self.problem is None:
            raise ValueError("this solution was read from a file: hand its problem to Solution.from_json(path, problem=…)")
        return require_finite(self.problem)

    def to_json(self, path: str | Path) -> None:
        """Write everything but the problem, with version, seed and options; what is not known is null."""
        apart = ("problem", "trace", "interval_source", "task_horizon")
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        content["trace"] = None if self.trace is None else vars(self.trace)
        content["confidence_intervals"] = None if self.interval_source is None else dict(self.interval_source.computed)
        if isinstance(left := self.interval_source, NormalEstimate):  # others are made anew by their solvers
            kept = {"covariance": left.errors, "open_directions": left.open_, "largest_discount": left.largest}
            content["estimate"] = kept
        content["horizon"] = {"longest": self.horizon.longest, "unit": self.horizon.unit}
        content["version"] = package_version()
        content["options"] = {
            name: value.__qualname__ if isinstance(value, FunctionType) else value for name, value in self.options.items()
        }
        write_json(path, content)

    @classmethod
    def from_json(cls, path: str | Path, problem: AnyProblem | None = None) -> Solution:
        """Read what `to_json` wrote; hand the problem in to use `policies()`."""
        content = read_json(path, "a saved solution")
        missing = {f.name for f in fields(cls)} - {"problem", "interval_source", "task_horizon"} - set(content)
        if missing:
            raise ValueError(f"{path} is not a saved solution: it lacks {', '.join(sorted(missing))}")
        try:
            saved = _fields_from(content)
            paid = saved["options"].get("known_reward")
            if paid is not None and isinstance(problem, Problem) and all(one.known_reward is None for one in problem.exemplars):
                problem = import_module("multihorizon.choice.settings").with_known_reward(problem, paid)[0]
            fitted = saved["evidence"].get("transitions")
            if problem is not None and fitted:
                problem = require_finite(problem).with_transitions([read_numbers(data) for data in fitted])
            solution = cls(**saved, problem=problem)
            solution.evidence.require_lengths({"experts": len(solution.experts), "reward": solution.reward.size})
            return solution
        except ValueError as error:
            raise ValueError(f"{path} is not a saved solution: {error}") from error


class _SavedTrace(TypedDict):
    discounts: Floats
    values: Floats
    seconds: Floats


class _SavedHorizon(TypedDict):
    longest: float
    unit: str | None


class _SavedEstimate(TypedDict):
    covariance: Floats
    open_directions: Floats | None
    largest_discount: float


def _option(value: Any) -> Any:
    """Return an option as the solver takes it: a part of a solver is saved as a mapping with the name of its class."""
    kind = solver_class(value["kind"]) if isinstance(value, Mapping) and isinstance(value.get("kind"), str) else None
    return value if kind is None else kind(**{name: _option(part) for name, part in value.items() if name != "kind"})


def _fields_from(content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a solution from what a file holds; ValueError where that is something else."""
    # Version 0.2 saved no horizon.
    kinds = {
        **dict.fromkeys(("solver", "status", "message", "version"), str),
        **dict.fromkeys(("objective", "residual", "seconds"), float),
        **dict.fromkeys(("discounts", "reward"), Floats),
        **dict.fromkeys(("temperature", "standard_errors"), Floats | None),
        "experts": list[str],
        "options": dict[str, Any],
        "evidence": dict[str, Any],
        "seed": int,
        "trace": _SavedTrace | None,
        "confidence_intervals": dict[str, Floats] | None,
        "horizon": _SavedHorizon | None,
        "estimate": _SavedEstimate | None,
    }
    for name, value in content.items():
        if name not in kinds:
            raise ValueError(f"it has an entry {name!r}, which no solution has")
        as_declared(value, kinds[name], name)
    entries = {
        key: value for key, value in content.items() if key not in ("version", "confidence_intervals", "horizon", "estimate")
    }
    for name in ("discounts", "reward", "temperature", "standard_errors"):
        entries[name] = None if entries[name] is None else read_numbers(entries[name])
    for name in ("objective", "residual", "seconds"):
        entries[name] = float(read_numbers(entries[name]))
    if entries["trace"] is not None:
        entries["trace"] = Trace(**{name: read_numbers(entries["trace"][name]) for name in ("discounts", "values", "seconds")})
    kind = solver_class(content["solver"])
    saved = content.get("confidence_intervals")
    task = content.get("horizon")
    experts = tuple(content["experts"])
    levels = {as_level(float(level)): read_numbers(ends) for level, ends in (saved or {}).items()}
    for level, ends in levels.items():
        as_shape(ends, (len(experts), 2), f"confidence intervals at the level {level:g}")
    intervals: IntervalSource | None = None if saved is None else SavedIntervals(levels)
    if not levels and kind is not None and not hasattr(kind, "estimate_of"):  # those of its standard errors, where it has some
        intervals = None
    if (kept := content.get("estimate")) is not None:
        open_ = None if kept["open_directions"] is None else read_numbers(kept["open_directions"])
        answer = ExpertValues(experts, entries["reward"], entries["discounts"], entries["temperature"])
        largest = float(kept["largest_discount"])
        intervals = NormalEstimate(answer, read_numbers(kept["covariance"]), open_, largest, computed=levels)
    if task is not None:
        longest = float(read_numbers(task["longest"]))
        if not longest > 0:
            raise ValueError(f"horizon must have a longest episode above 0, got {longest:g}")
        entries["task_horizon"] = Horizon(longest, task["unit"])
    evidence = read_evidence(content["solver"], content["evidence"])
    return entries | {"interval_source": intervals, "status": Status(entries["status"]), "experts": experts, "evidence": evidence}
