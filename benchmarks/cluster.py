"""A bootstrap on two Dask workers against one process, and once more with a worker killed in the middle.

    python benchmarks/cluster.py [--samples 200]

Scheduler, workers and the one process are programs with sessions of their own, so that a busy machine treats them alike. Seconds
are of the clock, the best of two runs for each; what they load is loaded before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fits import grid
from rows import shown

import multihorizon as mh
from multihorizon.parallel import Progress, silent

PORT = 18786
ADDRESS = f"tcp://127.0.0.1:{PORT}"


def start(*command: str) -> subprocess.Popen[str]:
    python = [sys.executable, *command]
    return subprocess.Popen(python, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@contextmanager
def cluster() -> Iterator[list[subprocess.Popen[str]]]:
    """A scheduler and two workers of one thread, which have loaded the library."""
    scheduler = start("-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-dashboard")
    worker = ("-m", "distributed.cli.dask_worker", ADDRESS, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    workers = [start(*worker) for _ in range(2)]
    try:
        for _ in range(60):
            with suppress(ValueError), mh.cluster(ADDRESS):
                break
            time.sleep(1)
        time.sleep(5)
        yield workers
    finally:
        for program in (*workers, scheduler):
            program.kill()
            program.wait()


def spread(solution: mh.Solution, samples: int, progress: Progress = silent) -> tuple[float, list[list[float]]]:
    begun = time.perf_counter()
    found = mh.bootstrap(solution, samples, jobs=1, progress=progress)
    return time.perf_counter() - begun, found.discounts.tolist()


def solved() -> mh.Solution:
    return mh.solve(grid(20, 3, 500, 10), mh.MaximumLikelihood())


def compare(samples: int) -> list[dict[str, object]]:
    """One row each for one process, two workers, and two workers of which one dies."""
    alone, digits = json.loads(start(__file__, "--one", "--samples", str(samples)).communicate()[0].splitlines()[-1])
    solution = solved()
    with cluster() as workers, mh.cluster(ADDRESS):
        spread(solution, 8)
        both, there = min(spread(solution, samples) for _ in range(2))

        def kill_one(share: float, message: str) -> None:
            if share > 0.2:
                workers[0].kill()

        bereft, again = spread(solution, samples, kill_one)
    return [
        {"workers": "one process", "clock, s": alone, "times as fast": 1.0, "same digits": True},
        {"workers": "two Dask workers", "clock, s": both, "times as fast": alone / both, "same digits": there == digits},
        {"workers": "two, one killed", "clock, s": bereft, "times as fast": alone / bereft, "same digits": again == digits},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--one", action="store_true", help="only the one process")
    options = parser.parse_args()
    if options.one:
        solution = solved()
        spread(solution, 8)
        print(json.dumps(min(spread(solution, options.samples) for _ in range(2))))
        return
    for row in compare(options.samples):
        print(shown(row))


if __name__ == "__main__":
    main()
