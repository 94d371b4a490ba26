"""How work is carried out: its progress, its processes, here or on a cluster, and the memory it needs.

*Progress.* A solver calls `progress(share, message)`; the caller decides whether and how to show it.

*Processes.* The digits of results do not depend on who did what. Three rules ensure this. Callers always cut the work into the
same tasks. A task keeps nothing of the tasks before it. Each task uses one thread of linear algebra, because sums taken in
another order end in other digits.

By default tasks run on joblib's processes. Inside `with cluster(address)` all of them run on a Dask cluster instead. What tasks
share travels to each worker once, and each task then costs its item and its result. In both cases the tasks of a worker that dies
are done again by others.

*Memory.* Work that needs more than is left is refused before it begins. On Linux the least counts of what the machine has to give
(`MemAvailable`), and of what is left of the limits of a container (cgroup) and of the process (`RLIMIT_AS`). Elsewhere it is the
memory of the machine, and where not even that is known, nothing is refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pickle import PickleBuffer, loads
from threading import RLock
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky.cloudpickle_wrapper import dumps  # functions that no module holds can be pickled with it
from threadpoolctl import ThreadpoolController

from multihorizon.checks import as_jobs

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Called with the share of the work that is done, in [0,1], and a few words on where it stands.
Progress = Callable[[float, str], None]


def silent(share: float, message: str) -> None:
    """Show nothing."""


def part_of(progress: Progress, low: float, high: float) -> Progress:
    """Return the progress of a part of the work: its shares from 0 to 1 are shares of the whole from `low` to `high`.

    It never runs backwards: a part that begins again, as an optimiser with another start does, waits until it is further.
    """
    if progress is silent:
        return silent
    furthest = 0.0

    def report(share: float, message: str) -> None:
        nonlocal furthest
        furthest = min(1.0, max(furthest, share))
        progress(low + (high - low) * furthest, message)

    return report


@dataclass(frozen=True)
class Run:
    """How work is carried out: what travels through every analysis together.

    Public functions take `seed`, `jobs` and `progress` apart and make a run of them; all that they call takes the run.

    Attributes:
        seed: fixes all randomness.
        jobs: processes that share the work; the digits do not depend on it.
        progress: called with the share of the work that is done and where it stands.

    Example:
        >>> run = Run(progress=lambda share, message: print(f"{share:.2f} {message}"))
        >>> fit, check = run.parts(3, 1)
        >>> fit.progress(1.0, "fitted")
        0.75 fitted
        >>> for word, part in check.over(["a", "b"]):
        ...     part.progress(0.0, word)
        0.75 a
        0.88 b
    """

    seed: int = 0
    jobs: int = 1
    progress: Progress = silent

    def part(self, low: float, high: float) -> Run:
        """Return the run of a part of the work: its shares from 0 to 1 are shares of the whole from `low` to `high`."""
        return replace(self, progress=part_of(self.progress, low, high))

    def parts(self, *weights: float) -> list[Run]:
        """Return the runs of all parts of the work, one after the other, whose shares of it are in proportion to `weights`."""
        ends = np.cumsum([0.0, *weights]) / sum(weights)
        return [self.part(low, high) for low, high in pairwise(ends.tolist())]

    def over(self, items: Sequence[Item]) -> Iterator[tuple[Item, Run]]:
        """Yield each item with the run of its part of the work; all parts have the same share."""
        for number, item in enumerate(items):
            yield item, self.part(number / len(items), (number + 1) / len(items))


#: The client of the cluster that work goes to, if any.
_clients: list[Any] = []
#: A worker of a cluster may have several threads, and what tasks share is not made for that.
_one_task = RLock()


def n_workers(jobs: int) -> int:
    """Count the tasks that run at a time: the processes asked for, or the workers of the cluster."""
    if _clients:
        return max(1, len(_clients[-1].nthreads()))
    return int(cpu_count()) if as_jobs(jobs) == -1 else jobs


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Let a Dask cluster do all work that is spread over processes while the block runs; `jobs` has no meaning then.

    Args:
        address: of the scheduler, such as "tcp://192.0.2.1:8786". None changes nothing.

    Returns:
        A context: what runs in parallel inside it runs on the cluster.

    Raises:
        ValueError: if nothing answers there, if the cluster has no workers, or without the extra `cluster`.

    Example:
        >>> with cluster(None):
        ...     list(in_parallel(abs, [-1, -2], jobs=1))
        [1, 2]
    """
    if address is None:
        yield
        return
    client = _connect(address)
    _clients.append(client)
    try:
        yield
    finally:
        _clients.remove(client)
        client.close()


def in_parallel(task: Callable[[Item], Result], items: Sequence[Item], jobs: int, retries: int = 3) -> Iterator[Result]:
    """Yield the results of `task` in the order of `items`, each as soon as it and those before it are done.

    Work is begun again after workers died, so many times. A task that kills every worker is given up.
    """
    as_jobs(jobs)
    done = failures = 0
    while done < len(items):
        some = _on_cluster(task, items[done:]) if _clients else _here(task, items[done:], jobs)
        try:
            for result in some:
                done += 1
                yield result
        except WorkersDiedError as error:
            failures += 1
            if failures > retries:
                often = f"{failures} time{'s' if failures > 1 else ''}"
                raise OSError(f"workers died {often} during this work, perhaps of too little memory: {error}") from error


class WorkersDiedError(Exception):
    """Workers died, and the tasks they were working on with them."""


def _here(task: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> Iterator[Result]:
    if jobs == 1 or len(items) == 1:
        yield from (_on_one_thread(task, item) for item in items)
        return
    packed: Callable[[Item], Result] = _Packed(task)
    results = Parallel(n_jobs=jobs, return_as="generator")(delayed(_on_one_thread)(packed, item) for item in items)
    try:
        # Not `yield from`, which would close `results` before the lines below can.
        for result in results:  # noqa: UP028
            yield result
    except BrokenProcessPool as error:
        raise WorkersDiedError(str(error)) from error
    except GeneratorExit:  # the caller needs no more results; joblib would warn of the tasks that are left
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()
        raise


class _Packed:
    """A task that a process of this machine unpacks once, however many items it gets.

    It is pickled once, into bytes, with its large arrays beside it. Joblib puts arrays of more than a megabyte into a file that
    all processes read.
    """

    def __init__(self, task: Callable[[Any], Any]) -> None:
        self.large: list[Any] = []
        self.bytes = np.frombuffer(dumps(task, protocol=5, buffer_callback=self._is_small), np.uint8)
        self.key = uuid4().hex

    def _is_small(self, buffer: PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), np.uint8)
        small = raw.nbytes < 1 << 20
        self.large += [] if small else [raw]
        return small

    def __call__(self, item: Any) -> Any:
        if self.key not in _unpacked:
            _unpacked.clear()
            _unpacked[self.key] = loads(self.bytes.data, buffers=self.large)
        return _unpacked[self.key](item)


#: The task that this process unpacked last.
_unpacked: dict[str, Callable[[Any], Any]] = {}


def _on_cluster(task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    try:
        yield from _from_cluster(_clients[-1], task, items)
    except Exception as error:
        if isinstance(error, WorkersDiedError) or type(error).__module__.partition(".")[0] != "distributed":
            raise
        raise OSError(
            f"the cluster at {_clients[-1].scheduler.address} does not answer any more: has its scheduler ended?"
        ) from error


def _from_cluster(client: Any, task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    shared = _sent(client, task)
    with warnings.catch_warnings():  # of large items, though each travels once
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        futures = [client.submit(_on_one_thread, shared, item, pure=False) for item in items]
    try:
        for future in futures:
            _wait(client, future)
            died = ("KilledWorker", "FutureCancelledError", "CancelledError", "CommClosedError")
            if future.status == "cancelled" or (future.status == "error" and type(future.exception()).__name__ in died):
                raise WorkersDiedError("a worker of the cluster died with what it held")
            yield future.result()
    finally:
        client.cancel(futures)


def _sent(client: Any, task: Any, patience: float = 5.0) -> Any:
    """Send a shared task to all workers; to send it to a worker that has just died or just begun may fail, or never end.

    So what takes longer than `patience` seconds is sent again as well, each time after twice as long, and what arrives first is
    taken.
    """
    workers = set(client.nthreads())
    threads = ThreadPoolExecutor(8)
    sent = [threads.submit(client.scatter, task, broadcast=True, hash=False)]
    last = time.monotonic()
    try:
        while not (arrived := [one for one in sent if one.done()]):
            time.sleep(0.01)
            if set(client.nthreads()) != workers:
                raise WorkersDiedError("a worker of the cluster died while work was sent to it")
            if time.monotonic() - last > patience and len(sent) < 8:
                sent.append(threads.submit(client.scatter, task, broadcast=True, hash=False))
                patience *= 2
                last = time.monotonic()
        return arrived[0].result()
    except (KeyError, OSError) as error:  # of the scheduler, and of a connection
        time.sleep(1.0)
        raise WorkersDiedError("a worker of the cluster died while work was sent to it") from error
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _wait(client: Any, future: Any) -> None:
    """Wait until a task is done, as long as the cluster has workers or gets one within half a minute."""
    alone_since: float | None = None
    while not future.done():
        try:
            future.exception(timeout=1.0)
        except TimeoutError:
            now = time.monotonic()
            alone_since = None if client.nthreads() else alone_since or now
            if alone_since is not None and now - alone_since > 30:
                raise OSError(f"the cluster at {client.scheduler.address} has no workers any more") from None


def _connect(address: str) -> Any:
    try:
        distributed: Any = import_module("distributed")  # an extra, and it takes a second to load
    except ImportError as error:
        raise ValueError("a cluster needs Dask: pip install 'multihorizon[cluster]', here and on its workers") from error

    seconds = limits().answer_seconds

    async def identity() -> dict[str, Any]:
        async with distributed.rpc(address, timeout=seconds) as scheduler:
            return await asyncio.wait_for(scheduler.identity(), seconds)

    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.ERROR)  # its messages about workers that die are no news here
    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook's own event loop may run in this one
            identified = thread.submit(asyncio.run, identity()).result()
    except Exception as error:  # what a foreign server answers raises many kinds
        expected = "must be the address of a Dask scheduler such as tcp://host:8786"
        raise ValueError(f"the cluster {expected}, got {address!r}: none answers there") from error
    if not identified.get("workers"):
        raise ValueError(f"the cluster at {address} must have workers, got none: start some with `dask worker`")
    return distributed.Client(address, timeout=seconds, set_as_default=False)


def _on_one_thread(task: Callable[[Item], Result], item: Item) -> Result:
    with _one_task, _threads(len(sys.modules)).limit(limits=1):
        return task(item)


@lru_cache(maxsize=1)
def _threads(modules: int) -> ThreadpoolController:
    """Return the control over the threads of the loaded libraries; finding these is slow, so only new imports repeat it."""
    return ThreadpoolController()


@dataclass(frozen=True)
class Limits:
    """Sizes beyond which work is done in another way, or is refused.

    Attributes:
        memory: bytes that may be taken, where more are free.
        alone: with more experts than this a population is all that is fitted: each one's own fit, intervals and tests would take
            hours, and nobody reads a list of thousands.
        joint: from this many experts on, those who share no parameter are fitted one by one: then their common grid costs less
            than it saves, in tasks of every size.
        block: numbers of soft values of the experts that are taken together.
        cells: people and conditions of a population that are taken together.
        deviating_rewards: personal deviations from more rewards are estimated only where they are asked for by number.
        dense_rewards, dense_parameters: with more, nothing of size p×p is formed: an information matrix costs the cube of them.
        product_rewards: with more rewards, climbs take products with the curvature in place of its matrix, where sparse factors
            stay small; `benchmarks/fits.py --roads` measures both.
        steps: steps after which the climb of a likelihood is stopped, if it is not stopped earlier.
        hopeless: a partition into goals that is estimated so far below the best, with a millionth of its weight, is not fitted.
        minutes: work that will take longer is announced.
        answer_seconds: how long a cluster may take to answer.
    """

    memory: float = float("inf")
    alone: int = 2000
    joint: int = 8
    block: int = 8_000_000
    cells: int = 1024
    deviating_rewards: int = 100
    dense_rewards: int = 700
    dense_parameters: int = 3000
    product_rewards: int = 300
    steps: int = 1000
    hopeless: float = 15.0
    minutes: float = 5.0
    answer_seconds: float = 5.0


_USUAL = Limits()
_limits: ContextVar[Limits] = ContextVar("limits", default=_USUAL)


def limits() -> Limits:
    """Return the limits that hold here."""
    return _limits.get()


@contextmanager
def limited(**changes: Any) -> Iterator[Limits]:
    """Change some limits within a block, for this process.

    Example:
        >>> with limited(alone=50):
        ...     limits().alone
        50
        >>> limits().alone
        2000
    """
    before = _limits.set(replace(limits(), **changes))
    try:
        yield limits()
    finally:
        _limits.reset(before)


def free_bytes() -> float:
    """Return the memory that this process may still take; infinite where that is not known."""
    return min(_of_machine(), _of_container(), _of_process(), limits().memory)


def require_memory(size: float, what: str, instead: str) -> None:
    """Raise where work needs more bytes than are free; `what` names the work, `instead` an alternative."""
    free = free_bytes()
    if size > free:
        raise ValueError(f"{what} would take about {_shown(size)} of memory, and {_shown(free)} are free: {instead}")


def _shown(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size < 1e10 else f"{size / 1e9:,.0f} GB"


def _of_machine() -> float:
    available = _numbers(Path("/proc/meminfo")).get("MemAvailable")
    if available is not None:
        return 1024.0 * available
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _of_container() -> float:
    folder = Path("/sys/fs/cgroup")
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):  # there is none, or it says "max"
        return float("inf")


def _of_process() -> float:
    if sys.platform == "win32":
        return float("inf")
    import resource  # noqa: PLC0415  Windows has none

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    taken = _numbers(Path("/proc/self/status")).get("VmSize")
    return float("inf") if limit == resource.RLIM_INFINITY or taken is None else limit - 1024.0 * taken


def _numbers(path: Path) -> dict[str, float]:
    """Read the first number of each line that begins with a name and a colon."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    parts = (line.split() for line in lines)
    return {part[0].removesuffix(":"): float(part[1]) for part in parts if len(part) > 1 and part[1].isdigit()}
