"""Labels of experts, states and actions: their order, and the name that a label stands for.

Two tables mean the same state only where they write the same label. No label is ever taken for another: where one is unknown,
the message says which name comes closest.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches

import numpy as np

from multihorizon.checks import Ints

#: Longer numbers sort as text: Python turns no text of thousands of digits into a number.
LONGEST_NUMBER = 300
#: Near misses in spelling are looked for among at most this many names; comparing takes time for each.
COMPARED_NAMES = 2000
#: Groups of names that look alike are listed up to this many.
LISTED_GROUPS = 5
#: What a spreadsheet takes for the beginning of a formula.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Labels in their order: whole numbers as numbers, then text as text."""
    return tuple(sorted(names, key=label_order))


def positions(labels: Sequence[str], names: Sequence[str], what: str, place: Callable[[int], str] | None = None) -> Ints:
    """The index of each label among `names`.

    Args:
        labels: what to look up.
        names: where to look.
        what: "state" or "action", for the message.
        place: tells where the label of a position was read, for the message.

    Raises:
        ValueError: for the first label that is no name, with the name that comes closest.
    """
    index = {name: i for i, name in enumerate(names)}
    unknown = next((i for i, one in enumerate(labels) if one not in index), None)
    if unknown is not None:
        where = "" if place is None else f"{place(unknown)}: "
        close = closest(labels[unknown], names)
        hint = (
            f". Did you mean {_told_apart(close, labels[unknown])}? Names must agree letter by letter"
            if close
            else f". Correct the name, or add this {what} to the transitions"
        )
        raise ValueError(
            f"{where}{what} {labels[unknown]!r} must be one of the {len(names)} {what}s of the transitions "
            f"({', '.join(names[:5])}{', …' if len(names) > 5 else ''}){hint}"
        )
    return np.array([index[one] for one in labels], dtype=np.int64)


def look_alikes(names: Sequence[str], what: str) -> str | None:
    """A sentence on names that differ only in capitals or blanks; None where there are none.

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
    listed = "; ".join(alike[:LISTED_GROUPS]) + (f"; and {len(alike) - LISTED_GROUPS} more" if len(alike) > LISTED_GROUPS else "")
    return (
        f"Some {what}s differ only in capitals or blanks and count as different: {listed}. If they mean the same, "
        "write them alike in the table."
    )


def spreadsheet_safe(text: str) -> str:
    """The label with ' before it where a spreadsheet would run it as a formula; `from_spreadsheet` takes it away again."""
    return f"'{text}" if FORMULA.match(text) and not _is_number(text) else text


def from_spreadsheet(text: str) -> str:
    """The label that `spreadsheet_safe` wrote."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


def visible(text: str) -> str:
    """The text with control characters written out, so that a terminal shows them instead of obeying them."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if _commands(c) else c for c in text)


def _commands(character: str) -> bool:
    """Whether a character commands the terminal: controls except line breaks and tabs, changes of direction, broken pairs."""
    kind = unicodedata.category(character)
    return (kind == "Cc" and character not in "\n\t") or kind == "Cs" or unicodedata.bidirectional(character) in _DIRECTIONS


_DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def label_order(name: str) -> tuple[int, int, str]:
    """What labels are sorted by: whole numbers as numbers, then text as text."""
    whole = name.removeprefix("-").isdecimal() and len(name) <= LONGEST_NUMBER
    return (0, int(name), name) if whole else (1, 0, name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def closest(label: str, names: Sequence[str]) -> str | None:
    """The one name that differs from the label only in case, blanks or the text before its number; else one spelt alike."""
    for form in (_without_case, _number_in):
        wanted = form(label)
        same = [name for name in names if wanted and form(name) == wanted]
        if len(same) == 1:
            return same[0]
    near = get_close_matches(label, names[:COMPARED_NAMES], n=1, cutoff=0.75)
    return near[0] if near else None


def _told_apart(name: str, label: str) -> str:
    """The name; with foreign letters written out where they may look the same as those of the label."""
    return repr(name) if name.isascii() == label.isascii() else f"{name!r} (in letters {name!a}, not {label!a})"


def _without_case(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _number_in(name: str) -> str:
    digits = re.findall(r"\d+", name)
    return digits[0].lstrip("0") or "0" if len(digits) == 1 else ""
