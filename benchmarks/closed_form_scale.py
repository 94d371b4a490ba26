"""ClosedForm on slip grids of growing size against the forward plans of its experts: time, growth, memory and accuracy.

Each size runs in a process of its own, so that the peak memory is that size's. Three experts, discounts 0.3, 0.6 and 0.9. Seconds
are of the processor; the exponent is that of their growth from the size before. Time in the kernel is what the system needs to
hand out memory: with MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ set to more than there is, glibc keeps what was freed, and
hardly any of that time is left.

Run: python benchmarks/closed_form_scale.py [50 100 200 500 1000]
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np
from rows import shown

import multihorizon as mh

DISCOUNTS = (0.3, 0.6, 0.9)


def measure(side: int) -> dict[str, object]:
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(side // 2, side // 2)])
    reward = np.random.default_rng(0).normal(size=mdp.n_states)
    mh.identify(mh.Problem(mh.domains.cliff().mdp, mh.domains.cliff().soft_experts()))  # loads what is imported on first use
    begun = time.process_time()
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS]
    planned = time.process_time() - begun
    problem = mh.Problem(mdp, policies)
    begun, kernel = time.process_time(), _usage().ru_stime
    found = mh.solve(problem, mh.ClosedForm())
    seconds, kernel = time.process_time() - begun, _usage().ru_stime - kernel
    return {
        "states": mdp.n_states,
        "forward plans, s": planned,
        "ClosedForm, s": seconds,
        "in the kernel, s": kernel,
        "ratio": seconds / planned,
        "exponent": None,
        "memory, GB": _usage().ru_maxrss / 1024**2,
        "error in Γ": float(np.abs(found.discounts - DISCOUNTS).max()),
        "error in r": float(np.abs(found.reward - reward).max()),
        "status": str(found.status),
    }


def _usage() -> resource.struct_rusage:
    return resource.getrusage(resource.RUSAGE_SELF)


def grow(sides: list[int]) -> list[dict[str, object]]:
    """One row per size; a size that fails says so in its status."""
    rows: list[dict[str, object]] = []
    for side in sides:
        run = subprocess.run([sys.executable, __file__, "--one", str(side)], capture_output=True, text=True, check=False)
        if run.returncode:
            reason = run.stderr.strip().splitlines()[-1] if run.stderr else "killed"
            rows.append({"states": side**2, "status": f"failed: {reason}"})
            continue
        row = json.loads(run.stdout.splitlines()[-1])
        if rows and "ClosedForm, s" in rows[-1]:
            size, before = (np.log(row[name] / rows[-1][name]) for name in ("states", "ClosedForm, s"))
            row["exponent"] = float(before / size)
        rows.append(row)
    return rows


if __name__ == "__main__":
    if "--one" in sys.argv:
        print(json.dumps(measure(int(sys.argv[-1]))))
    else:
        for row in grow([int(arg) for arg in sys.argv[1:]] or [50, 100, 200, 500, 1000]):
            print(shown(row))
