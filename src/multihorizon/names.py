"""From labels to places: which state, action or expert a name stands for, and which name was meant where there is none."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from multihorizon.checks import Floats, Ints, as_floats, first_few, label


def positions(labels: Sequence[str], names: Sequence[str], what: str, place: Callable[[int], str] | None = None) -> Ints:
    """Return the index of each label among `names`.

    Raises:
        ValueError: for the first label that is no name, with the name that comes closest. It calls the label `what`, "state" or
            "action", and says where it was read, if `place` does.
    """
    index = {name: i for i, name in enumerate(names)}
    unknown = next((i for i, one in enumerate(labels) if one not in index), None)
    if unknown is not None:
        where = "" if place is None else f"{place(unknown)}: "
        close = closest(labels[unknown], names)
        hint = f". Correct the name, or add this {what} to the transitions"
        if close:
            # Foreign letters may look the same as those of the label: then both are written out.
            alike = close.isascii() == labels[unknown].isascii()
            meant = repr(close) if alike else f"{close!r} (in letters {close!a}, not {labels[unknown]!a})"
            hint = f". Did you mean {meant}? Names must agree letter by letter"
        raise ValueError(
            f"{where}{what} {labels[unknown]!r} must be one of the {len(names)} {what}s of the transitions "
            f"({', '.join(names[:5])}{', …' if len(names) > 5 else ''}){hint}"
        )
    return np.array([index[one] for one in labels], dtype=np.int64)


def place_of(given: object, names: Sequence[str], what: str, kind: str) -> int:
    """Return the place of one label, as people write it, among `names`.

    Args:
        given: the label; 3, 3.0 and "3" are one.
        names: the labels there are.
        what: the argument that gives it, for the message.
        kind: what the names are of, such as "state".

    Raises:
        ValueError: for a label that is no name, with the name that comes closest.

    Example:
        >>> place_of(2.0, ["1", "2"], "states", "state")
        1
    """
    name = label(given, f"each {kind} of {what}")
    if name in names:
        return names.index(name)
    close = closest(name, names)
    hint = "" if close is None else f". Did you mean {close!r}?"
    raise ValueError(f"{what} must name {kind}s among {first_few(names)}, received {name!r}{hint}")


def numbers_of(
    given: Mapping[Any, Any],
    names: Sequence[str],
    what: str,
    kind: str,
    read: Callable[[Any, str], Any] = as_floats,
) -> Floats:
    """Return the number that a mapping gives for each name `(n,)`, NaN where it gives none; `read` checks each number.

    Raises:
        ValueError: for a key that is no name, and for a value that is no finite number.
    """
    index = {name: i for i, name in enumerate(names)}
    numbers = np.full(len(names), np.nan)
    for key, value in given.items():
        name = label(key, f"each {kind} of {what}")
        at = index[name] if name in index else place_of(name, names, what, kind)
        numbers[at] = float(read(value, f"{what} of {name}"))
    return numbers


def closest(label: str, names: Sequence[str]) -> str | None:
    """Return the one name that differs from the label in case, blanks or the text before its number; else one spelt alike."""
    for form in (_without_case, _number_in):
        wanted = form(label)
        same = [name for name in names if wanted and form(name) == wanted]
        if len(same) == 1:
            return same[0]
    # Near misses in spelling are looked for among at most this many names; comparing takes time for each.
    compared_names = 2000
    near = get_close_matches(label, names[:compared_names], n=1, cutoff=0.75)
    return near[0] if near else None


def look_alikes(names: Sequence[str], what: str) -> str | None:
    """Return a sentence on names that differ only in capitals or blanks; None where there are none.

    Example:
        >>> look_alikes(["Drug", "drug", "wait"], "action")[:88]
        "Some actions differ only in capitals or blanks and count as different: 'Drug' and 'drug'"
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_without_case(name), []).append(name)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return None
    # Groups of names that look alike are listed up to this many.
    listed_groups = 5
    listed = "; ".join(alike[:listed_groups]) + (f"; and {len(alike) - listed_groups} more" if len(alike) > listed_groups else "")
    return (
        f"Some {what}s differ only in capitals or blanks and count as different: {listed}. If they mean the same, "
        "write them alike in the table."
    )


def _without_case(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _number_in(name: str) -> str:
    digits = re.findall(r"\d+", name)
    return digits[0].lstrip("0") or "0" if len(digits) == 1 else ""
