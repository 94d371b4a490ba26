"""A bootstrap on two Dask workers against one process, and once more with a worker killed in the middle.

    python benchmarks/cluster.py [--samples 200]

"Faster" compares seconds of the clock, which mean something only on a machine that does nothing else. "Faster by processor"
compares the processor seconds of the one process with those of the busier worker. The workers have loaded the library before.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

import numpy as np
from distributed import Client, LocalCluster
from fits import grid

import multihorizon as mh
from multihorizon.progress import Progress, silent


def same(one: mh.Bootstrap, other: mh.Bootstrap) -> bool:
    return np.array_equal(one.discounts, other.discounts) and np.array_equal(one.rewards, other.rewards)


def compare(samples: int) -> list[dict[str, object]]:
    """One row each for one process, two workers, and two workers of which one dies."""
    solution = mh.solve(grid(20, 3, 500, 10), mh.MaximumLikelihood())
    begun, used = time.perf_counter(), time.process_time()
    here = mh.bootstrap(solution, samples, jobs=1)
    alone, used = time.perf_counter() - begun, time.process_time() - used
    rows: list[dict[str, object]] = [{"workers": "one process", "clock, s": alone, "busier worker, s": used, "same digits": True}]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as workers,
        Client(workers.scheduler_address, set_as_default=False) as client,
        mh.cluster(workers.scheduler_address),
    ):
        killed: list[int] = []

        def kill_one(share: float, message: str) -> None:
            if share > 0.2 and not killed:
                killed.append(next(iter(workers.workers.values())).process.process.pid)
                os.kill(killed[0], signal.SIGKILL)

        def run(progress: Progress = silent) -> tuple[float, float, mh.Bootstrap]:
            before, begun = client.run(time.process_time), time.perf_counter()
            found = mh.bootstrap(solution, samples, progress=progress)
            seconds, after = time.perf_counter() - begun, client.run(time.process_time)
            return seconds, max(spent - before.get(worker, 0.0) for worker, spent in after.items()), found

        mh.bootstrap(solution, 4)
        for name, progress in (("two Dask workers", silent), ("two, one killed", kill_one)):
            seconds, busier, found = run(progress)
            rows.append({"workers": name, "clock, s": seconds, "busier worker, s": busier, "same digits": same(here, found)})
            if progress is silent:
                rows[-1] |= {"faster": alone / seconds, "faster by processor": used / busier}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    for row in compare(parser.parse_args().samples):
        print(", ".join(f"{name} {f'{value:.3g}' if isinstance(value, float) else value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
