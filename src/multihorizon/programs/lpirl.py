"""LP-IRL of Ng and Russell: one known discount (the paper's Eq. 3).

    max_θ  Σ_s min_{a ∉ π(s)} margin(s, a) − λ‖θ‖₁     s.t.   margin ≥ 0,  |θ| ≤ r_max

The minimum over actions is one variable a state, bounded by each of its margins. Among the optima the one with the least ‖θ‖₁ is
returned. Several experts are taken to share the discount.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import as_discount
from multihorizon.problem import Problem
from multihorizon.programs.inner import Inner
from multihorizon.programs.lp_answer import answer
from multihorizon.programs.margins import build_margins
from multihorizon.programs.options import check_bound, check_l1
from multihorizon.progress import Progress, silent
from multihorizon.solution import Solution, Status


@dataclass(frozen=True)
class LPIRL:
    """The reward that maximises the sum over states of the margin of the expert's action, at a known `discount`.

    `l1` is the weight λ of ‖θ‖₁, `reward_bound` the bound r_max. `Solution.residual` is the larger of the worst violated row and
    the difference between the program's objective and the one recomputed by policy evaluation.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()[:1]), LPIRL(discount=0.3, reward_bound=10))
        >>> s.status.value, s.evidence["reproduced"]
        ('optimal', {'0': True})
    """

    discount: float
    l1: float = 0.0
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        as_discount(self.discount)
        check_l1(self.l1)
        check_bound(self.reward_bound)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """One linear program and a second one for the least norm; nothing is random."""
        inner = Inner(build_margins(problem), "sum", float(self.l1), float(self.reward_bound))
        point = inner.at(np.full(problem.n_experts, float(self.discount)))
        if point.result is not None:
            point = inner.least(point)
        progress(1.0, f"LP-IRL: {point.objective:.6g}")
        return answer("LPIRL", inner, point, None, {}, Status.OPTIMAL)
