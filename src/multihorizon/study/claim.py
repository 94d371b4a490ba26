"""A claim of the paper beside our number, and the words for how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from multihorizon.study.settings import Floats

REPRODUCED, IN_PART, NOT = "reproduced", "in part", "not reproduced"
#: The verdict where a quick run measures too little to judge a claim.
NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we get, the verdict, and why."""

    topic: str
    claim: str
    ours: str
    verdict: str
    reason: str


def graded(holds: Sequence[bool]) -> str:
    """The verdict on a claim with several parts, of which some hold."""
    return REPRODUCED if all(holds) else IN_PART if any(holds) else NOT


def numbers(values: Sequence[float] | Floats, digits: int = 2) -> str:
    """Numbers for people: "0.10, 0.45, 0.90"."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


def listed(names: Sequence[str]) -> str:
    """Names for people: "toy", "toy and cliff", "toy, big-small and cliff", or "none"."""
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"
