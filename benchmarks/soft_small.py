"""Times of ClosedForm and MCE on small problems, medians over repeats, with their accuracy.

Run: python benchmarks/soft_small.py
"""

import time
from collections.abc import Callable

import numpy as np

import multihorizon as mh


def median(work: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def closed_form() -> None:
    for domain in (mh.domains.big_small(), mh.domains.cliff()):
        experts = domain.soft_experts()
        for members in ((0, 1, 2), (0, 1), (0, 2), (1, 2)):
            problem = mh.Problem(domain.mdp, [experts[i] for i in members])
            found = mh.solve(problem, mh.ClosedForm())
            error = np.abs(found.discounts - np.array(domain.soft_discounts)[list(members)]).max()
            milliseconds = median(lambda problem=problem: mh.solve(problem, mh.ClosedForm()))
            reward = np.abs(found.reward - domain.reward).max()
            print(f"ClosedForm {domain.name:9} experts {members}: {milliseconds:6.1f} ms, Γ {error:.0e}, reward {reward:.0e}")


def mce() -> None:
    reward = np.random.default_rng(0).normal(size=25)
    for name, terminal in (("terminal corner", [(4, 4)]), ("no terminal state", [])):
        mdp = mh.domains.gridworld(5, 5, slip=0.1, terminal=np.array(terminal, dtype=int).reshape(-1, 2))
        for gamma in (0.3, 0.6, 0.9, 0.95):
            problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy])
            found = mh.solve(problem, mh.MCE(discount=gamma))
            milliseconds = median(lambda problem=problem, gamma=gamma: mh.solve(problem, mh.MCE(discount=gamma)))
            print(f"MCE 5×5 slip grid, {name}, discount {gamma}: {milliseconds:6.1f} ms, dual gradient {found.residual:.0e}")


if __name__ == "__main__":
    closed_form()
    mce()
