"""What a solver says about its answer beside the answer: evidence, in fields and by name.

There is one class of evidence per kind of solver. It stands beside its solver and registers itself with the solver's name, so
that a file with such evidence is read as it was written. The same holds for a solver of your own: derive its evidence from
`Evidence` with `solvers=("YourSolver",)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, ClassVar, Self, TypedDict, get_args, get_type_hints

from multihorizon.checks import Floats
from multihorizon.files import as_declared, read_numbers
from multihorizon.tables import Table
from multihorizon.words import p_text


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence(Mapping[str, Any]):
    """What a solver says about its answer: fields, which can also be read by name as in a dict (`evidence["order"]`).

    `other` holds what has no field: the evidence of your own solver or search, or of another version. A field that is None by
    default and was not given does not count as there (`in`, `get`, iteration).
    """

    other: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Of fields that are declared loosely, what a file must hold.
    _schema: ClassVar[dict[str, Any]] = {}
    #: The lengths of lists: "experts", "reward", or the name of another field.
    _lengths: ClassVar[dict[str, str]] = {}
    #: The classes of evidence by the names of their solvers, the first that fits first.
    kinds: ClassVar[dict[str, list[type[Evidence]]]] = {}

    def __init_subclass__(cls, solvers: tuple[str, ...] = (), **more: Any) -> None:
        """Register the class with the names of its solvers."""
        super().__init_subclass__(**more)
        for name in solvers:
            Evidence.kinds.setdefault(name, []).insert(0, cls)

    @classmethod
    def fits(cls, content: Mapping[str, Any]) -> bool:
        """Say whether a dict holds evidence of this kind, where a solver has several kinds."""
        return True

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
        """Return the tables of experts or groups of a solution with this evidence; none for its discounts."""
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
            raise ValueError(f"this needs a solution with {cls.__name__}, received one of {solution.solver}")
        return solution.evidence

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Evidence from a dict. A field that it lacks is None, and what has no field goes to `other`.

        Raises:
            ValueError: where a field is not what it is declared to be.
        """
        known = {name: _declared(content.get(name), kind, name) for name, kind in cls._kinds().items()}
        return cls(**known, other={name: value for name, value in content.items() if name not in known})

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        """What each field must be."""
        hints = get_type_hints(cls)
        return {f.name: cls._schema.get(f.name, hints[f.name]) for f in fields(cls) if f.name != "other"}

    def lacking(self) -> list[str]:
        """The fields that are None and may not be, as in a file of another version."""
        hints = get_type_hints(type(self))
        return [
            f.name for f in fields(self) if f.name != "other" and getattr(self, f.name) is None and not _may_lack(hints[f.name])
        ]

    def require_lengths(self, sizes: Mapping[str, int]) -> None:
        """Raise unless lists are as long as there are experts and parameters of the reward (`sizes`), or as other fields."""
        for name, of in self._lengths.items():
            value, other = getattr(self, name), sizes.get(of, getattr(self, of, None))
            size = other if isinstance(other, int) else 0 if other is None else len(other)
            for part in value.values() if isinstance(value, Mapping) else () if value is None else (value,):
                if len(part) != size:
                    raise ValueError(f"{name} of the solution must have {size} entries, received {len(part)}")
        for part in vars(self).values():
            if isinstance(part, Evidence):
                part.require_lengths(sizes)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name) if name != "other" and name in self.__dataclass_fields__ else self.other[name]

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def __iter__(self) -> Iterator[str]:
        for f in fields(self):
            if f.name != "other" and not (f.default is None and getattr(self, f.name) is None):
                yield f.name
        yield from self.other

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of that name, or the default where it is not there."""
        return self[name] if name in self else default  # noqa: SIM401


def _may_lack(kind: Any) -> bool:
    return kind is Any or type(None) in get_args(kind)


def _declared(value: Any, kind: Any, name: str) -> Any:
    """A value from a dict as its field declares it: evidence of its own class, or checked as it is."""
    if value is None:
        return None
    inner = next((k for k in (kind, *get_args(kind)) if isinstance(k, type) and hasattr(k, "read")), None)
    if inner is None:
        as_declared(value, kind, name)
        return value
    if isinstance(value, inner):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, received {value!r}"[:160])
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
    """How far the goals of persons are from the one they nearly share: person k's reward is `θ + δ_k`, `δ_k ~ N(0, τ²W)`.

    Attributes:
        spread: τ, in units of reward; 0 where the decisions do not contradict one reward for all.
        estimated: the most likely τ, also where it is not taken.
        interval: the ends of the 95 % interval of τ.
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
        """Deviations from a dict, as files have them; raises ValueError where they are something else."""
        kinds = {**get_type_hints(cls), "if_shared": IfShared}
        if content.keys() != kinds.keys():
            raise ValueError(f"deviations must have the entries {', '.join(kinds)}, received {', '.join(map(str, content))}")
        for name, kind in kinds.items():
            as_declared(content[name], kind, f"deviations: {name}")
        return cls(**content)

    def __post_init__(self) -> None:
        """Lists and null, as files have them, become arrays and NaN."""
        for name in ("interval", "share_of_range", "choices_moved", "values", "errors"):
            object.__setattr__(self, name, read_numbers(getattr(self, name)))
        for name in ("spread", "estimated", "p_shared"):
            object.__setattr__(self, name, float(read_numbers(getattr(self, name))))
        shared = {name: read_numbers(value) for name, value in self.if_shared.items()}
        object.__setattr__(self, "if_shared", shared | {"log_likelihood": float(shared["log_likelihood"])})


#: The classes of solvers that have solved something.
_SOLVERS: dict[str, type] = {}


def register_solver(kind: type) -> None:
    """Remember the class of a solver by its name."""
    _SOLVERS[kind.__name__] = kind


def solver_class(name: str) -> type | None:
    """Return the class of a solver, or of one of its parts, by its name: of this library, or one that has solved something."""
    library = import_module("multihorizon")
    if name in library.__all__ and isinstance(public := getattr(library, name), type):
        return public
    return _SOLVERS.get(name)


def read_evidence(solver: str, content: Mapping[str, Any]) -> Evidence:
    """Return the evidence of that solver from a dict, as files and solvers of your own have it."""
    solver_class(solver)  # its module declares its evidence
    return next((kind for kind in Evidence.kinds.get(solver, ()) if kind.fits(content)), Evidence).read(content)
