"""What an analysis found: the answer to one question, the reasons in words, and the numbers that they follow from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

#: Good news, news to be careful with, and bad news.
Kind = Literal["good", "caution", "bad"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes:
        question: in plain words, with a question mark.
        answer: a word or two.
        reasons: a sentence or two.
        kind: whether that is good news.
        numbers: the result that the words follow from, such as a test; None where there is none.
        content: its part of `result.json`.
    """

    question: str
    answer: str
    reasons: str
    kind: Kind
    numbers: Any = None
    content: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, str]:
        """Return the words, as they stand in files."""
        return {"question": self.question, "answer": self.answer, "reasons": self.reasons, "kind": self.kind}
