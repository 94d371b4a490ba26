"""The inference problem: experts who act for one reward, each with a discount of their own, in one task or in several.

A task is an MDP. Most problems have one; where the experts of one task cannot be told apart, the same experts in a variant of
it (other transitions, the same reward) often can. `Problem.join` puts such problems together: an expert of the same name in two
tasks is one person with one discount, and states of the same name share their reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import as_floats, as_names
from multihorizon.experts import Expert, read_expert
from multihorizon.mdp import MDP
from multihorizon.tables.demonstrations import Demonstrations


class Problem:
    """An MDP, its experts, and how the reward is parametrised.

    Args:
        mdp: the decision process.
        experts: one entry an expert, each a policy `(S,A)`, actions `(S,)`, action sets bool `(S,A)`, or `Demonstrations`,
            which bring all their experts. A bare `Demonstrations` will do.
        names: the experts' names; by default "0", "1", …, and the table's own for demonstrations.
        features: `(A·S,d)` array or sparse matrix F; the expected immediate reward of row `a·S + s` is `F θ`. By default
            the reward is one number a state, paid on arrival: `F = T_A`.
        feature_names: labels of the d features; by default "feature 0", …

    Attributes:
        experts: one `Expert` for each expert and task, `(n,)`.
        owner: which of the K distinct `names` each of `experts` is, `(n,)`; 0, 1, … where there is one task.
        parameter_names: labels of the reward parameters: the states, or the features.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> Problem(d.mdp, d.mce_experts()).n_experts
        3
    """

    def __init__(
        self,
        mdp: MDP,
        experts: Any,
        *,
        names: Sequence[Any] | None = None,
        features: Any = None,
        feature_names: Sequence[Any] | None = None,
    ) -> None:
        if not isinstance(experts, Iterable | Demonstrations):
            raise ValueError(f"experts must be a list of expert data or Demonstrations, received {type(experts).__name__}")
        entries = [experts] if isinstance(experts, Demonstrations) else list(experts)
        found = [expert for position, entry in enumerate(entries) for expert in _read(mdp, entry, position)]
        if not found:
            raise ValueError("experts must hold at least one expert, received none")
        matrix = None if features is None else _check_features(mdp, features)
        self.names = as_names(names if names is not None else [e.name for e in found], len(found), "names of the experts")
        self.experts = tuple(replace(expert, name=n, features=matrix) for expert, n in zip(found, self.names, strict=True))
        self.owner = tuple(range(len(found)))
        self.parameter_names = _parameter_names(mdp, matrix, feature_names)

    @classmethod
    def join(cls, *problems: Problem) -> Problem:
        """One problem of several tasks with one reward.

        Experts of one name are one person with one discount. Without features, states of one name have one reward; with
        features, all tasks must have the same ones.
        """
        if not problems:
            raise ValueError("join must be given at least one problem, received none")
        joined = cls.__new__(cls)
        joined.names = tuple(dict.fromkeys(name for problem in problems for name in problem.names))
        joined.parameter_names = _joint_parameters(problems)
        column = {name: i for i, name in enumerate(joined.parameter_names)}
        joined.experts = tuple(
            replace(expert, features=_widen(expert, [column[name] for name in problem.parameter_names], len(column)))
            for problem in problems
            for expert in problem.experts
        )
        joined.owner = tuple(joined.names.index(expert.name) for expert in joined.experts)
        return joined

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
        """The one MDP of the problem; raises where there are several tasks."""
        mdp = self.experts[0].mdp
        if any(expert.mdp is not mdp for expert in self.experts):
            raise ValueError("this needs a problem with one task, received one that joins several MDPs")
        return mdp

    @property
    def tabular(self) -> bool:
        """Whether the reward is simply one number a state of one MDP, paid on arrival."""
        return all(expert.features is None for expert in self.experts)

    def __repr__(self) -> str:
        return f"Problem({self.experts[0].mdp!r}, experts {', '.join(self.names)})"


def _read(mdp: MDP, entry: Any, position: int) -> Iterable[Expert]:
    if isinstance(entry, Expert):
        return [entry]
    if isinstance(entry, Demonstrations):
        return [
            Expert(name, mdp, "demonstrations", counts=counts)
            for name, counts in zip(entry.experts, entry.counts(mdp), strict=True)
        ]
    return [read_expert(mdp, entry, str(position))]


def _check_features(mdp: MDP, features: Any) -> Any:
    rows = mdp.n_actions * mdp.n_states
    matrix = sp.csr_array(features) if sp.issparse(features) else as_floats(features, "features")
    if matrix.ndim != 2 or matrix.shape[0] != rows:
        raise ValueError(f"features must have shape ({rows}, d), one row for each action and state, received {matrix.shape}")
    if sp.issparse(matrix) and not np.isfinite(matrix.data).all():
        raise ValueError("features must be finite, received a NaN or infinity")
    live = (mdp.available & ~mdp.terminal[:, None]).T.ravel()
    return sp.csr_array(sp.diags_array(live / 1.0) @ sp.csr_array(matrix))


def _parameter_names(mdp: MDP, features: Any, feature_names: Sequence[Any] | None) -> tuple[str, ...]:
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


def _widen(expert: Expert, columns: list[int], width: int) -> Any:
    """The expert's feature matrix with its columns moved to their places among the joint parameters."""
    matrix = sp.csr_array(expert.feature_matrix)
    placed = sp.csr_array((matrix.data, np.array(columns)[matrix.indices], matrix.indptr), shape=(matrix.shape[0], width))
    placed.sort_indices()
    return placed
