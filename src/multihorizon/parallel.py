"""Work spread over processes, with results whose digits do not depend on the number of processes.

Three rules ensure this. Callers always cut the work into the same tasks. A task keeps nothing of the tasks before it. Each task
uses one thread of linear algebra, because sums taken in another order end in other digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")


def as_jobs(value: Any) -> int:
    """Read a number of processes: a whole number of at least 1, or −1 for all cores."""
    if isinstance(value, bool) or not isinstance(value, int) or value == 0 or value < -1:
        raise ValueError(f"jobs must be a whole number of at least 1, or -1 for all cores, received {value!r}")
    return value


def in_parallel(task: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> Iterator[Result]:
    """The results of `task` in the order of `items`, each as soon as it and those before it are done."""
    pool = Parallel(n_jobs=as_jobs(jobs) if len(items) > 1 else 1, return_as="generator")
    results: Iterator[Result] = pool(delayed(_on_one_thread)(task, item) for item in items)
    return results


def _on_one_thread(task: Callable[[Item], Result], item: Item) -> Result:
    with threadpool_limits(limits=1):
        return task(item)
