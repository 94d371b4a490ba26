"""The naive extension of LP-IRL to several experts with unknown discounts (the paper's Eq. 4): a baseline that fails.

    max_Γ max_θ  Σ_k Σ_s min_{a ∉ π_k(s)} margin(s, a, k) − λ‖θ‖₁     s.t.   margin ≥ 0,  |θ| ≤ r_max

Nothing in it asks that the experts differ under the answer: on the toy domain two of them end at discount 1, where no reward
tells them apart, and the reward is on the goal alone. The status of the solution says so and names the pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multihorizon.problem import Problem
from multihorizon.programs.inner import Inner
from multihorizon.programs.lp_answer import answer, run_search
from multihorizon.programs.margins import build_margins
from multihorizon.programs.options import check_bound, check_l1
from multihorizon.programs.sequential import SequentialLP
from multihorizon.progress import Progress, silent
from multihorizon.search import Search, check_search
from multihorizon.solution import Solution, Status


@dataclass(frozen=True)
class NaiveLP:
    """The sum of margins over experts and states, with discounts found by `search`; options as in `MPLP`.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()), NaiveLP(reward_bound=10))
        >>> s.status.value, s.discounts.round(3).tolist()
        ('indistinguishable', [0.0, 1.0, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)

    def __post_init__(self) -> None:
        check_l1(self.l1)
        check_bound(self.reward_bound)
        check_search(self.search)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discounts; `seed` fixes the search's starts."""
        inner = Inner(build_margins(problem), "sum", float(self.l1), float(self.reward_bound))
        point, trace, said = run_search(inner, self.search, seed, progress)
        return answer("NaiveLP", inner, point, trace, said, Status.CONVERGED)
