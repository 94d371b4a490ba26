"""How much memory is left, so that work that needs more can be refused before it begins.

On Linux that is the smallest of what the machine has to give (`MemAvailable`), what is left of the limit of a container
(cgroup), and what is left of the limit of the process (`RLIMIT_AS`). Elsewhere it is the memory of the machine, and where not
even that is known, nothing is refused.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def free_bytes() -> float:
    """Return the memory that this process may still take; infinite where that is not known."""
    return min(_of_machine(), _of_container(), _of_process())


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
