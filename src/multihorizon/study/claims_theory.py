"""What the paper says about identifiability and duality, beside our numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.study.claim import IN_PART, NOT, NOT_TESTED, REPRODUCED, Claim, graded, listed, numbers
from multihorizon.study.paper import GRID_STEP, TOY_BREAKPOINTS, TWO_EXPERT_SHARE

Data = dict[str, Any]
#: A sum of mismatches below this is zero to the accuracy of the inner problem.
ZERO_GAP = 1e-3


def toy_claims(data: Data) -> list[Claim]:
    """Where the toy's optimal policy changes, and where Assumption 1 fails."""
    return [_breakpoints(data), _crossings(data)]


def theory_claims(data: Data) -> list[Claim]:
    """Identifiability on a grid, two experts, Theorem 2, Proposition 1 and the duality gap."""
    return [_grid(data), _two_experts(data), _duality(data), _likelihood(data), _gap(data)]


def _breakpoints(data: Data) -> Claim:
    found = data["toy"]["breakpoints"]
    close = len(found) == 2 and np.abs(np.array(found) - TOY_BREAKPOINTS).max() < 1e-3
    return Claim(
        "Toy domain",
        f"The optimal policy changes at discounts near {numbers(TOY_BREAKPOINTS, 3)}.",
        numbers(found, 6),
        REPRODUCED if close else NOT,
        "Our breakpoints are exact. Within 0.001 of the printed ones counts as the same.",
    )


def _crossings(data: Data) -> Claim:
    found, breakpoints = data["toy"]["crossings"], np.array(data["toy"]["breakpoints"])
    inside = [0 < gamma < 1 for gamma in found.values()]
    below = [pair for pair, gamma in found.items() if not (np.abs(breakpoints - gamma) < 1e-6).any()]
    return Claim(
        "Assumption 1",
        "On the toy only three sets of discounts violate Assumption 1: where two of the three value curves cross.",
        "; ".join(f"{pair} at {gamma:.6f}" for pair, gamma in found.items()),
        graded(inside),
        f"Each pair of policies ties at one discount. Where {listed(below)} tie, the third policy is better." if below else "",
    )


def _grid(data: Data) -> Claim:
    grids = {name: grid for name, grid in data["identifiability"]["grids"].items() if name in data["learned"]}
    alone = [
        len(grid["feasible"]) == 1 and np.abs(np.array(grid["feasible"][0]) - grid["true"]).max() < 1e-9
        for grid in grids.values()
    ]
    step = next(iter(grids.values()))["step"]
    toy_set = data["identifiability"]["sets"]["terminal"]
    verdict = IN_PART if all(alone) and toy_set["status"] == "set" else graded(alone)
    return Claim(
        "Identifiability",
        f"On a grid of step {GRID_STEP} only the true discounts of three experts have a reward that explains them.",
        f"step {step}: "
        + "; ".join(f"{name}: {len(grid['feasible'])} of {grid['points']:,} points" for name, grid in grids.items()),
        verdict if step <= GRID_STEP else NOT_TESTED,
        _between_points(data, toy_set),
    )


def _between_points(data: Data, toy_set: Data) -> str:
    """What holds between the points of a grid, which can miss answers."""
    unique = [name for name, rows in data["learned"].items() if rows["ClosedForm"]["status"] == "optimal"]
    text = f"The equations of the experts have one solution on {listed(unique)}: there it is true between the points too."
    if toy_set["status"] != "set":
        return text
    members = [member["discounts"] for member in toy_set["members"]]
    ordered = all((np.diff(member) > 0).all() for member in members)
    return (
        f"{text} On the toy a set of dimension {toy_set['dimension']} of discounts explains the experts exactly, and the points "
        f"of a grid miss nearly all of it. The {len(members)} members found are {'all' if ordered else 'not all'} in the true "
        "order."
    )


def _two_experts(data: Data) -> Claim:
    found = data["identifiability"]["two experts"]
    close = [float((np.abs(np.array(row["percentiles"]) - 0.5) <= 0.1).mean()) for row in found.values()]
    return Claim(
        "Two toy experts",
        f"Every pair of distinct discounts has a reward, and about {TWO_EXPERT_SHARE:.0%} of them have an error above 0.5.",
        "; ".join(
            f"{ending}: {row['feasible share off the diagonal']:.0%} feasible, {row['share above 0.5']:.0%} above 0.5"
            for ending, row in found.items()
        ),
        graded(
            [
                all(row["feasible share off the diagonal"] == 1 for row in found.values()),
                any(abs(row["share above 0.5"] - TWO_EXPERT_SHARE) <= 0.15 for row in found.values()),
            ]
        ),
        f"A share within 0.15 of the printed one counts as the same: {min(close):.0%} of the errors or more lie between 0.4 and "
        "0.6, so the share moves with the random tasks.",
    )


def _duality(data: Data) -> Claim:
    found = data["theory"]["chain"]
    slack = 1e-6
    holds = [row["dual"] >= row["primal"] - slack and row["primal"] >= row["likelihood"] - slack for row in found.values()]
    return Claim(
        "Theorem 2",
        "G* ≥ H* ≥ −L*: strong duality fails when the discounts are unknown.",
        "; ".join(f"{d}: {row['dual']:.3f} ≥ {row['primal']:.3f} ≥ {row['likelihood']:.3f}" for d, row in found.items()),
        graded(holds),
        "The discounts are taken from a short list and the true ones. Every value is attained by some reward.",
    )


def _likelihood(data: Data) -> Claim:
    found = data["theory"]["slopes"]
    plain = max(float(np.abs(row["plain"]).max()) for row in found.values())
    smallest = min(float(np.abs(row["discounted"]).min()) for row in found.values())
    rising = [min(row["discounted"]) > 0 for row in found.values()]
    holds = smallest > 1e-6 and plain < 1e-5
    sign = (
        "positive, as printed" if all(rising) else "the opposite of the printed one" if not any(rising) else "not the same on all"
    )
    return Claim(
        "Proposition 1",
        "The experts are no maximum of the discounted likelihood: its derivative in logit γ is positive there.",
        "; ".join(f"{d}: {numbers(row['discounted'], 3)}" for d, row in found.items()),
        REPRODUCED if holds and all(rising) else IN_PART if holds else NOT,
        f"The derivative is {smallest:.2g} or more in size, that of the plain one at most {plain:.0e}. The sign is {sign}: "
        "at the experts the discounted likelihood is minus their discounted entropy, which grows with γ.",
    )


def _gap(data: Data) -> Claim:
    gaps = [abs(row["gap"]) for rows in data["theory"]["gap"].values() for row in rows]
    wrong = [max(row["mismatch"]) for rows in data["theory"]["gap"].values() for row in rows[1:]]
    summed = [row["MPMCE, summed gap"]["discounts"] for row in data["learned"].values()]
    return Claim(
        "Duality gap of Algorithm 2",
        "The summed duality gap tells discounts that have a feasible reward from those that have none.",
        f"at {len(gaps)} Γ, true, reversed and random, the summed gap is at most {max(gaps):.0e}, "
        f"while some expert's features are off by {min(wrong):.2g} or more at every wrong Γ",
        NOT if max(gaps) < ZERO_GAP else IN_PART,
        "With one shared reward, the optimality of the dual says that the mismatches sum to 0, whatever Γ. The printed rule "
        f"therefore accepts every Γ and maximises the entropy alone: its discounts are {'; '.join(map(numbers, summed))}. The "
        "threshold of the paper's discussion, applied to each expert, is what tells.",
    )
