"""The inference problem: experts who act for one reward, each with a discount of their own, in one task or in several.

A task is an MDP. Most problems have one; where the experts of one task cannot be told apart, the same experts in a variant of
it (other transitions, the same reward) often can. `Problem.join` puts such problems together: an expert of the same name in two
tasks is one person with one discount, and states of the same name share their reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import Floats, Sparse, as_floats, as_names
from multihorizon.experts import Expert, read_expert
from multihorizon.mdp import MDP
from multihorizon.tables.demonstrations import Demonstrations

#: What a problem takes for one expert, or, as `Demonstrations`, for several.
ExpertData = ArrayLike | Expert | Demonstrations


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem:
    """An MDP, its experts, and how the reward is parametrised. A problem is never changed; `with_experts` makes another one.

    Args:
        mdp: the decision process.
        experts: one entry per expert, each a policy `(S,A)`, actions `(S,)`, action sets bool `(S,A)`, an `Expert` in this
            MDP, or `Demonstrations`, which bring all their experts. A bare `Demonstrations` will do.
        names: the experts' names; by default "0", "1", …, and the table's own for demonstrations.
        features: `(A·S,d)` array or sparse matrix F; the expected immediate reward of row `a·S + s` is `F θ`. By default
            the reward is one number per state, paid on arrival: `F = T_A`.
        feature_names: labels of the d features; by default "feature 0", …
        arrival_features: instead of `features`, `(S,d)`: what each state has of each feature, earned on arrival there.

    Attributes:
        experts: one `Expert` for each expert and task, `(n,)`.
        parameter_names: labels of the reward parameters: the states, or the features.

    Raises:
        ValueError: on malformed data, and for an `Expert` who acts in another MDP or was read with features that are not given.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> Problem(d.mdp, d.mce_experts()).n_experts
        3
    """

    experts: tuple[Expert, ...]
    parameter_names: tuple[str, ...]

    def __init__(
        self,
        mdp: MDP,
        experts: Demonstrations | Iterable[ExpertData],
        *,
        names: Sequence[object] | None = None,
        features: ArrayLike | Sparse | None = None,
        feature_names: Sequence[object] | None = None,
        arrival_features: ArrayLike | Sparse | None = None,
    ) -> None:
        if not isinstance(experts, Iterable | Demonstrations):
            raise ValueError(f"experts must be a list of expert data or Demonstrations, received {type(experts).__name__}")
        entries = [experts] if isinstance(experts, Demonstrations) else list(experts)
        found = [expert for position, entry in enumerate(entries) for expert in _read(mdp, entry, position)]
        arrival = None if arrival_features is None else _check_arrival(mdp, arrival_features, features)
        given = features if arrival is None else mdp.stacked @ arrival
        matrix = None if given is None else _check_features(mdp, given)
        if matrix is None:
            _refuse_lost_features(found)
        labels = as_names(names if names is not None else [e.name for e in found], len(found), "names of the experts")
        named = [replace(expert, name=name, features=matrix, arrival=arrival) for expert, name in zip(found, labels, strict=True)]
        self._fill(named, _parameter_names(mdp, matrix, feature_names))

    def _fill(self, experts: Iterable[Expert], parameter_names: tuple[str, ...]) -> None:
        object.__setattr__(self, "experts", tuple(experts))
        object.__setattr__(self, "parameter_names", parameter_names)
        if not self.experts:
            raise ValueError("experts must hold at least one expert, received none")

    @classmethod
    def _of(cls, experts: Iterable[Expert], parameter_names: tuple[str, ...]) -> Problem:
        """A problem of experts that have been read already."""
        made = cls.__new__(cls)
        made._fill(experts, parameter_names)
        return made

    def with_experts(self, experts: Iterable[Expert], parameter_names: tuple[str, ...] | None = None) -> Problem:
        """The same reward parameters with other experts: some of its own, or its own with other data (`dataclasses.replace`).

        `parameter_names` names the features of the new experts, if they have other features.

        Example:
            >>> from multihorizon.domains import cliff
            >>> problem = Problem(cliff().mdp, cliff().mce_experts(), names=["near", "middle", "far"])
            >>> problem.with_experts(problem.experts[1:]).names
            ('middle', 'far')
        """
        changed = self._of(experts, self.parameter_names if parameter_names is None else parameter_names)
        for expert in changed.experts:
            if expert.feature_matrix.shape[1] != changed.n_parameters:
                raise ValueError(
                    f"expert {expert.name} must have the problem's {changed.n_parameters} reward parameters, "
                    f"received {expert.feature_matrix.shape[1]}"
                )
        return changed

    @classmethod
    def join(cls, *problems: Problem) -> Problem:
        """One problem of several tasks with one reward.

        Experts with the same name are one person with one discount. Without features, states with the same name have one reward;
        with features, all tasks must have the same features.
        """
        if not problems:
            raise ValueError("join must be given at least one problem, received none")
        parameter_names = _joint_parameters(problems)
        column = {name: i for i, name in enumerate(parameter_names)}
        widened = (
            _widened(expert, [column[name] for name in problem.parameter_names], len(column))
            for problem in problems
            for expert in problem.experts
        )
        return cls._of(widened, parameter_names)

    def in_tasks(self, change: Callable[[MDP], MDP]) -> Problem:
        """The same experts in changed tasks: rewards that are paid on arrival follow the transitions."""
        tasks = {id(mdp): change(mdp) for mdp in {id(expert.mdp): expert.mdp for expert in self.experts}.values()}
        if all(tasks[id(expert.mdp)] is expert.mdp for expert in self.experts):
            return self
        experts = []
        for expert in self.experts:
            mdp = tasks[id(expert.mdp)]
            features = expert.features if expert.arrival is None else sp.csr_array(mdp.stacked @ expert.arrival)
            experts.append(replace(expert, mdp=mdp, features=features))
        return self.with_experts(experts)

    def with_transitions(self, fitted: Sequence[Floats]) -> Problem:
        """The same problem with fitted probabilities in place of estimated ones: the entries of each estimated task in turn."""
        estimated = [mdp for mdp in {id(e.mdp): e.mdp for e in self.experts}.values() if mdp.sample_sizes is not None]
        if [mdp.stacked.nnz for mdp in estimated] != [data.size for data in fitted]:
            raise ValueError("the problem must have the estimated transitions that were fitted, received others")
        entries = {id(mdp): data for mdp, data in zip(estimated, fitted, strict=True)}
        return self.in_tasks(lambda mdp: mdp.with_probabilities(entries[id(mdp)]) if id(mdp) in entries else mdp)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The distinct names of the experts `(K,)`, in order of appearance."""
        return tuple(dict.fromkeys(expert.name for expert in self.experts))

    @cached_property
    def owner(self) -> tuple[int, ...]:
        """Which of the K distinct `names` each of `experts` is, `(n,)`; 0, 1, … where there is one task."""
        number = {name: k for k, name in enumerate(self.names)}
        return tuple(number[expert.name] for expert in self.experts)

    @property
    def n_experts(self) -> int:
        """K, the number of distinct experts and so of discounts."""
        return len(self.names)

    @property
    def n_parameters(self) -> int:
        """d, the length of the reward: the number of states, or of features."""
        return len(self.parameter_names)

    @property
    def mdp(self) -> MDP:
        """The one MDP of the problem; raises ValueError where there are several tasks."""
        mdp = self.experts[0].mdp
        if any(expert.mdp is not mdp for expert in self.experts):
            raise ValueError("this needs a problem with one task, received one that joins several MDPs")
        return mdp

    @property
    def tabular(self) -> bool:
        """Whether the reward is simply one number per state of one MDP, paid on arrival."""
        return all(expert.features is None for expert in self.experts)

    def __repr__(self) -> str:
        return f"Problem({self.experts[0].mdp!r}, experts {', '.join(self.names)})"


def _read(mdp: MDP, entry: ExpertData, position: int) -> Iterable[Expert]:
    if isinstance(entry, Expert):
        if entry.mdp is not mdp:
            raise ValueError(
                f"expert {entry.name} must act in the problem's own MDP, received one of {entry.mdp!r}: "
                "hand its data over for this MDP, or put the two tasks together with Problem.join"
            )
        return [entry]
    if isinstance(entry, Demonstrations):
        return [
            Expert(name, mdp, "demonstrations", counts=counts)
            for name, counts in zip(entry.experts, entry.counts(mdp), strict=True)
        ]
    return [read_expert(mdp, entry, str(position))]


def _refuse_lost_features(experts: Sequence[Expert]) -> None:
    """Raise where experts of another problem bring features: the names of these are not known."""
    for expert in experts:
        if expert.features is not None:
            raise ValueError(
                f"expert {expert.name} was read with {expert.features.shape[1]} features, received none for this problem: "
                "give features and feature_names, or use with_experts of the problem the expert comes from"
            )


def _check_arrival(mdp: MDP, arrival: ArrayLike | Sparse, features: ArrayLike | Sparse | None) -> Sparse:
    if features is not None:
        raise ValueError("features must be given for rows of states and actions or on arrival, received both")
    matrix = _check_finite(arrival, "arrival_features")
    if matrix.ndim != 2 or matrix.shape[0] != mdp.n_states:
        raise ValueError(f"arrival_features must have shape ({mdp.n_states}, d), one row per state, received {matrix.shape}")
    return sp.csr_array(matrix)


def _check_finite(matrix: ArrayLike | Sparse, name: str) -> Floats | Sparse:
    """Read an array or a sparse matrix without NaN or infinity."""
    if not sp.issparse(matrix):
        return as_floats(matrix, name)
    sparse = sp.csr_array(matrix)
    if not np.isfinite(sparse.data).all():
        raise ValueError(f"{name} must be finite, received a NaN or infinity")
    return sparse


def _check_features(mdp: MDP, features: ArrayLike | Sparse) -> Sparse:
    rows = mdp.n_actions * mdp.n_states
    matrix = _check_finite(features, "features")
    if matrix.ndim != 2 or matrix.shape[0] != rows:
        raise ValueError(f"features must have shape ({rows}, d), one row for each action and state, received {matrix.shape}")
    live = mdp.live.T.ravel()
    return sp.csr_array(sp.diags_array(live / 1.0) @ sp.csr_array(matrix))


def _parameter_names(mdp: MDP, features: Sparse | None, feature_names: Sequence[object] | None) -> tuple[str, ...]:
    if features is None:
        if feature_names is not None:
            raise ValueError("feature_names must come with features, received none")
        return mdp.state_names
    default = [f"feature {i}" for i in range(features.shape[1])]
    return as_names(feature_names if feature_names is not None else default, features.shape[1], "feature_names")


def _joint_parameters(problems: Sequence[Problem]) -> tuple[str, ...]:
    """The union of state labels in order of appearance, or the features all problems share."""
    if all(problem.tabular for problem in problems):
        return tuple(dict.fromkeys(name for problem in problems for name in problem.parameter_names))
    first = problems[0].parameter_names
    for number, problem in enumerate(problems):
        if problem.tabular or problem.parameter_names != first:
            raise ValueError(f"problem {number} must have the same features as the first, received {problem.parameter_names[:5]}")
    return first


def _widened(expert: Expert, columns: list[int], width: int) -> Expert:
    """The expert with the columns of all features moved to their places among the joint parameters."""
    arrival = expert.arrival_features
    return replace(
        expert,
        features=_placed(expert.feature_matrix, columns, width),
        arrival=None if arrival is None else _placed(arrival, columns, width),
    )


def _placed(features: Sparse, columns: list[int], width: int) -> Sparse:
    matrix = sp.csr_array(features)
    placed = sp.csr_array((matrix.data, np.array(columns)[matrix.indices], matrix.indptr), shape=(matrix.shape[0], width))
    placed.sort_indices()
    return placed
