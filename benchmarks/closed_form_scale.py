"""Time, memory and accuracy of ClosedForm on slip grids of growing size, with the growth exponent of the CPU time between sizes.

Each size runs in a process of its own, so that the peak memory is that size's. Three experts, discounts 0.3, 0.6 and 0.9.

Run: python benchmarks/closed_form_scale.py [50 100 200 500 1000]
"""

import resource
import subprocess
import sys
import time

import numpy as np

import multihorizon as mh

DISCOUNTS = (0.3, 0.6, 0.9)


def measure(side: int) -> str:
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(side // 2, side // 2)])
    reward = np.random.default_rng(0).normal(size=mdp.n_states)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS])
    mh.identify(mh.Problem(mh.domains.cliff().mdp, mh.domains.cliff().mce_experts()))  # loads what is imported on first use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    start, cpu = time.perf_counter(), time.process_time()
    found = mh.solve(problem, mh.ClosedForm())
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    gamma, error = np.abs(found.discounts - DISCOUNTS).max(), np.abs(found.reward - reward).max()
    return f"{side} {seconds:.4f} {cpu:.4f} {before:.2f} {peak:.2f} {gamma:.1e} {error:.1e} {found.status}"


def main(sides: list[int]) -> None:
    print("  side    states   seconds       CPU  exponent   peak GB (before)   error in Γ   error in r   status")
    last: tuple[int, float] | None = None
    for side in sides:
        run = subprocess.run([sys.executable, __file__, "--one", str(side)], capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{side:6d}  failed: {run.stderr.strip().splitlines()[-1] if run.stderr else 'killed'}")
            continue
        _, seconds, cpu, before, peak, gamma, error, status = run.stdout.split(maxsplit=7)
        exponent = "" if last is None else f"{np.log(float(cpu) / last[1]) / np.log(side**2 / last[0] ** 2):.2f}"
        print(
            f"{side:6d}  {side**2:8d}  {float(seconds):8.2f}  {float(cpu):8.2f}  {exponent:>8}   {peak:>7} ({before})   "
            f"{gamma:>10}   {error:>10}   {status.strip()}",
            flush=True,
        )
        last = side, float(cpu)


if __name__ == "__main__":
    if "--one" in sys.argv:
        print(measure(int(sys.argv[-1])))
    else:
        main([int(arg) for arg in sys.argv[1:]] or [50, 100, 200, 500, 1000])
