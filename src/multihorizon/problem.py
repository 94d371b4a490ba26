"""The inference problem: an MDP and the experts who act in it for one reward, each with a discount of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, as_floats, as_names
from multihorizon.demonstrations import Demonstrations
from multihorizon.experts import Expert, read_expert
from multihorizon.mdp import MDP


class Problem:
    """An MDP, its experts, and how the reward is parametrised.

    Args:
        mdp: the decision process.
        experts: one entry an expert, each a policy `(S,A)`, actions `(S,)`, action sets bool `(S,A)`, or `Demonstrations`,
            which bring all their experts. A bare `Demonstrations` will do.
        names: the experts' names; by default "0", "1", …, and the table's own for demonstrations.
        features: `(A·S,d)` array or sparse matrix F; the expected immediate reward of row `a·S + s` is `F θ`. By default
            the reward is one number a state, paid on arrival: `F = T_A`.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> Problem(d.mdp, d.mce_experts()).n_experts
        3
    """

    def __init__(self, mdp: MDP, experts: Any, *, names: Sequence[Any] | None = None, features: Any = None) -> None:
        entries = [experts] if isinstance(experts, Demonstrations) else list(experts)
        found = [expert for position, entry in enumerate(entries) for expert in _read(mdp, entry, position)]
        if not found:
            raise ValueError("experts must hold at least one expert, received none")
        labels = as_names(names if names is not None else [e.name for e in found], len(found), "names of the experts")
        self.mdp = mdp
        self.experts = tuple(replace(expert, name=label) for expert, label in zip(found, labels, strict=True))
        self.features = None if features is None else _check_features(mdp, features)

    @property
    def n_experts(self) -> int:
        """K."""
        return len(self.experts)

    @property
    def names(self) -> tuple[str, ...]:
        """The experts' names, in order."""
        return tuple(expert.name for expert in self.experts)

    @property
    def n_parameters(self) -> int:
        """Length of the reward: the number of states, or of features."""
        return self.mdp.n_states if self.features is None else int(self.features.shape[1])

    @property
    def feature_matrix(self) -> Any:
        """F `(A·S,d)`: the features, or the stacked transitions where the reward is paid on arrival."""
        return self.mdp.stacked if self.features is None else self.features

    def expected_reward(self, parameters: Floats) -> Floats:
        """The expected immediate reward `(S,A)` of reward parameters `(d,)`."""
        product: Floats = self.feature_matrix @ parameters
        return product.reshape(self.mdp.n_actions, self.mdp.n_states).T

    def __repr__(self) -> str:
        return f"Problem({self.mdp!r}, experts {', '.join(self.names)})"


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
