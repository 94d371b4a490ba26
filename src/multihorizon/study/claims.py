"""The paper's claims beside our numbers: each verdict follows from the numbers of this run by a rule that is stated with it."""

from __future__ import annotations

from typing import Any

from multihorizon.study.claim import Claim
from multihorizon.study.claims_learned import learned_claims
from multihorizon.study.claims_theory import theory_claims, toy_claims


def all_claims(data: dict[str, Any]) -> list[Claim]:
    """Every claim of the paper that the study measures, in the paper's order."""
    return [*toy_claims(data), *learned_claims(data), *theory_claims(data)]
