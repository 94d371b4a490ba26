"""The paper's claims beside our numbers: each verdict follows from the numbers of this run by one rule.

A printed figure is the same as ours if

* it was measured on random tasks or found by a search: it lies among the middle 95% of ours, over drawings or seeds;
* it was read off a grid: ours lies within half of the grid's step;
* it is anything else: ours has its printed digits, so lies within half of the last one.

Where a claim has several figures, all of them make "reproduced", some "in part", and the distance of the others is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.paper.study import CHOSEN, PAPER_NAMES, PRINTED, Data
from multihorizon.words import decimals, from_to, power_of_ten, significant

REPRODUCED, IN_PART, NOT = "reproduced", "in part", "not reproduced"
#: The verdict where a quick run measures too little to judge a claim.
NOT_TESTED = "not tested"
#: Half of the last digit of a discount printed with two decimals.
HALF_DISCOUNT = 0.005


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we get, the verdict, and why."""

    topic: str
    claim: str
    ours: str
    verdict: str
    reason: str


def graded(holds: Sequence[bool]) -> str:
    """Return the verdict on a claim with several parts, of which some hold."""
    return REPRODUCED if all(holds) else IN_PART if any(holds) else NOT


def numbers(values: Sequence[float] | Floats, digits: int = 2) -> str:
    """Return numbers for people: "0.10, 0.45, 0.90"."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


def listed(names: Sequence[str]) -> str:
    """Return names for people: "toy", "toy and cliff", "toy, big-small and cliff", or "none"."""
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def by_domain(rows: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    """Return what was found on each domain: "toy: …; cliff: …"."""
    return "; ".join(f"{name}: {text(row)}" for name, row in rows.items())


def all_claims(data: Data) -> list[Claim]:
    """Return every claim of the paper that the study measures, in the paper's order."""
    return [
        _breakpoints(data),
        _crossings(data),
        *(_order(data, name) for name in ("MPLP", "MPMCE, threshold", "MPMCE, per expert")),
        *(_discounts(data, name) for name in ("MPLP", "MPMCE, threshold")),
        _larger_set(data),
        *(_errors(data, name) for name in ("MPLP", "MPMCE, threshold")),
        _conventions(data),
        _printed_rewards(data),
        _naive(data),
        _structure(data),
        _printed_answer(data),
        _text_and_table(),
        _bayesian(data),
        _within_50(data),
        _grid(data),
        _two_experts(data),
        _duality(data),
        _likelihood(data),
        _gap(data),
    ]


def distance(row: Data, domain: str) -> float:
    """Return how far the learned discounts of MPMCE are from the printed ones, at most."""
    return float(np.abs(np.array(row["discounts"]) - PRINTED.discounts["MPMCE"][domain]).max())


def outside(values: Sequence[float], ours: Sequence[Sequence[float]] | Floats, half: float) -> list[float]:
    """Return how far each printed number is outside the spread of ours `(n,K)`; 0 where it is inside, to its printed digits."""
    columns = np.transpose(ours)
    ends = [
        (0.0 if usual(v, list(c), half) else min(abs(v - c.min()), abs(v - c.max())))
        for v, c in zip(values, columns, strict=True)
    ]
    return [float(end) for end in ends]


def _order(data: Data, name: str) -> Claim:
    learned = {domain: rows[name] for domain, rows in data["learned"].items()}
    reason = "Strictly increasing with the true discounts counts as the order."
    if name == "MPMCE, threshold":
        parts = []
        for domain, rows in data["thresholds"].items():
            ended = [row for row in rows if row["status"] == "converged"]
            right = [row["threshold"] for row in ended if row["ordered"]]
            text = f"{domain}: right at {len(right)} of {len(rows)} thresholds" + (f", up to {max(right):g}" if right else "")
            parts.append(text + (f", and no maximum found at {len(rows) - len(ended)}" if len(ended) < len(rows) else ""))
        reason += f" One threshold, {CHOSEN.threshold:g}, for all domains. {'; '.join(parts)}."
    verdict = graded([row["ordered"] for row in learned.values()])
    if name == "MPLP":
        reason += " It is no property of the method: on other tasks a proved optimum can reverse two experts."
    fewest = min(len(row["trace"]["best"]) for row in learned.values())
    if name == "MPMCE, per expert" and fewest < PRINTED.mpmce_converged_after:
        verdict = NOT_TESTED
        reason = f"{reason} {fewest} evaluations say nothing of {PRINTED.mpmce_converged_after}."
    return Claim(
        f"Order of discounts, {name}",
        "The learned discounts have the order of the true ones on all three domains.",
        by_domain(learned, lambda row: numbers(row["discounts"])),
        verdict,
        reason,
    )


def _discounts(data: Data, name: str) -> Claim:
    """Return each printed discount comes from a search: it is judged by where it lies among ours."""
    printed = PAPER_NAMES[name]
    theirs = PRINTED.discounts[printed]
    learned = {domain: rows[name]["discounts"] for domain, rows in data["learned"].items()}
    evaluations = len(next(iter(data["convergence"].values()))["Bayesian"]["trace"]["best"])
    if printed == "MPLP":
        tested = evaluations >= PRINTED.converged_after
        too_little = f"{evaluations} evaluations"
        spread = {domain: np.array([row["discounts"] for row in rows["MPLP"]]) for domain, rows in data["seeds"].items()}
        count = len(next(iter(spread.values())))
        rule = f"those of Bayesian optimisation, the paper's search, from {count} seeds"
    else:
        spread = {domain: np.array([row["discounts"] for row in rows]) for domain, rows in data["thresholds"].items()}
        tested = min(len(rows) for rows in spread.values()) > 1
        too_little = "One threshold"
        rule = f"ours at the {len(next(iter(data['thresholds'].values())))} thresholds tried, because the paper prints none"
    off = {domain: outside(theirs[domain], spread[domain], HALF_DISCOUNT) for domain in learned}
    ranges = by_domain(
        spread,
        lambda rows: ", ".join(from_to([decimals(c.min(), 2), decimals(c.max(), 2)]) for c in rows.T),
    )
    reason = f"Each printed discount is judged by where it lies among {rule}: {ranges}. Outside by: {by_domain(off, numbers)}."
    if printed == "MPMCE":
        nearest = {d: min((distance(row, d), row["threshold"]) for row in rows) for d, rows in data["thresholds"].items()}
        reason += f" All three at one threshold: nearest {by_domain(nearest, _at_threshold)}."
    if not tested:
        reason += f" {too_little}: too little to judge by."
    return Claim(
        f"Learned discounts, {name}",
        by_domain(theirs, numbers),
        by_domain(learned, numbers),
        graded([value == 0 for values in off.values() for value in values]) if tested else NOT_TESTED,
        reason,
    )


def _best(rows: Data) -> float:
    return float(rows["SequentialLP"]["objective"])


def _larger_set(data: Data) -> Claim:
    """Return the paper's remark that the set that passes is larger than the exact one, where maxima were found."""
    finished = {domain: [row for row in rows if row["status"] == "converged"] for domain, rows in data["thresholds"].items()}
    ends = {domain: (rows[0], rows[-1]) for domain, rows in finished.items() if len(rows) > 1}
    return Claim(
        "Threshold of MPMCE",
        "More discounts pass than explain the experts, because features are matched only within some threshold.",
        by_domain(ends, lambda rows: ", ".join(f"{numbers(row['discounts'])} at {row['threshold']:g}" for row in rows)),
        graded([last["objective"] > first["objective"] for first, last in ends.values()]) if ends else NOT_TESTED,
        "More entropy at a larger threshold counts as a larger set; thresholds at which no maximum was found are left out. The "
        "entropy grows with the discounts, so it pulls them up. Domains with one such threshold are not compared.",
    )


def place_among(value: float, ours: Sequence[float], half: float) -> float:
    """Return the share of our numbers below a printed one, half of those among them that have its digits: within `half` of the
    last.
    """
    values = np.array(ours)
    same = np.abs(values - value) <= half + 1e-12
    return float(np.mean((values < value) & ~same) + same.mean() / 2)


def usual(value: float, ours: Sequence[float], half: float) -> bool:
    """Say whether a printed number could be one of ours: it lies among the middle 95% of them."""
    return 0.025 <= place_among(value, ours, half) <= 0.975


def _places(name: str, domain: str, drawn: Data) -> dict[str, float]:
    """Return where the printed mean and standard deviation lie among ours, over drawings of the tasks."""
    half = 0.5 * 10.0 ** -PRINTED.error_digits[name][domain]
    printed = dict(zip(("mean", "std"), PRINTED.generalization[name][domain], strict=True))
    return {key: place_among(value, drawn[key], half) for key, value in printed.items()}


def _among(places: Mapping[str, float]) -> bool:
    """Say whether both lie among the middle 95%."""
    return all(0.025 <= place <= 0.975 for place in places.values())


def _mean_and_spread(row: Mapping[str, float]) -> str:
    return f"{decimals(row['mean'], 2)} and {decimals(row['std'], 2)}"


def _error_words(row: Mapping[str, float]) -> str:
    absolute = f"absolute {decimals(row['absolute mean'], 3)}, median {decimals(row['median'], 3)}"
    return f"{decimals(row['mean'], 3)} ± {decimals(row['std'], 3)} ({absolute})"


def _at_threshold(nearest: tuple[float, float]) -> str:
    apart, threshold = nearest
    return f"at {significant(threshold, 6)}, with {decimals(apart, 2)}"


def printed_error(name: str, domain: str) -> str:
    """Return a generalization error with the paper's digits."""
    digits = PRINTED.error_digits[name][domain]
    return " ± ".join(decimals(value, digits) for value in PRINTED.generalization[name][domain])


def spread_of(drawn: Data) -> str:
    """Return the least and the largest of our means over the drawings."""
    return f"{decimals(np.min(drawn['mean']), 3)} to {decimals(np.max(drawn['mean']), 3)}"


#: What is said with every claim that is judged over drawings.
SHARES = "share of ours below the printed mean and standard deviation"


def _errors(data: Data, name: str) -> Claim:
    """Judge a printed mean: it is the same result on other random tasks if it lies among ours over many drawings of the tasks."""
    errors = {domain: rows[name] for domain, rows in data["generalization"].items()}
    printed = PAPER_NAMES[name]
    places = {d: _places(printed, d, row["over seeds"]) for d, row in errors.items()}
    drawings = len(next(iter(errors.values()))["over seeds"]["mean"])
    return Claim(
        f"Generalization error, {name}",
        "; ".join(f"{d}: {printed_error(printed, d)}" for d in errors),
        by_domain(errors, _error_words)
        + f", over {next(iter(errors.values()))['tasks']} tasks; means of {drawings} drawings "
        + by_domain(errors, lambda row: spread_of(row["over seeds"])),
        graded([_among(place) for place in places.values()]),
        f"Judged among the middle 95% of ours over {drawings} drawings of the tasks; the {SHARES}: "
        + by_domain(places, _mean_and_spread)
        + ". Eq. 27 counts losses as gains where the optimum is worth less than 0, and explodes where it is near 0, so the "
        "median says more than the mean.",
    )


def _conventions(data: Data) -> Claim:
    """Return the cliff's printed 0.0 ± 0.0 by every reading of Eq. 27 that was tried."""
    rows = data["conventions"]
    half = 0.5 * 10.0 ** -PRINTED.error_digits["MPLP"]["cliff"]
    same = {name: all(abs(value) <= half for row in each.values() for value in row.values()) for name, each in rows.items()}
    pairs = {
        name: " and ".join(f"{decimals(row['mean'], 2)} ± {decimals(row['std'], 2)}" for row in each.values())
        for name, each in rows.items()
    }
    reached = [name for name, holds in same.items() if holds]
    return Claim(
        "The cliff's errors",
        f"{printed_error('MPLP', 'cliff')} for MPLP and {printed_error('MPMCE', 'cliff')} for MPMCE.",
        "; ".join(f"{name}: {pair}" for name, pair in pairs.items()) + " (MPLP and MPMCE)",
        REPRODUCED if reached else NOT,
        f"Judged by the printed digits, so within {half:g}, for mean and standard deviation. Of {len(rows)} conventions "
        f"{'only ' + listed(reached) + ' gives' if reached else 'none gives'} them.",
    )


def _naive(data: Data) -> Claim:
    row, error = data["learned"]["toy"]["NaiveLP"], data["generalization"]["toy"]["NaiveLP"]
    reward = np.array(row["reward"])
    tied = sorted(row["discounts"])[1] > 1 - 1e-6
    goal = reward[3] > 0 and np.abs(reward[:3]).max() <= 1e-6 * reward[3]
    places = _places("NaiveLP", "toy", error["over seeds"])
    return Claim(
        "Naive extension",
        f"It gives the discounts {numbers(PRINTED.discounts['NaiveLP']['toy'], 0)}, a reward on the goal alone "
        f"({numbers(PRINTED.toy_rewards['NaiveLP'], 0)}), and a generalization error of {printed_error('NaiveLP', 'toy')}.",
        f"discounts {numbers(row['discounts'])}, reward {numbers(reward)}, error {decimals(error['mean'], 3)} ± "
        f"{decimals(error['std'], 3)}",
        graded([bool(tied), bool(goal), _among(places)]),
        ("Two experts share the discount 1 and cannot be distinguished, as the paper says. " if tied else "")
        + f"Discounts and reward are judged exactly, the error among the middle 95% of ours over drawings; the {SHARES}: "
        f"{_mean_and_spread(places)}.",
    )


def _printed_rewards(data: Data) -> Claim:
    """Return the toy's errors again, with the rewards that the paper prints instead of ours."""
    drawn = data["toy"]["printed rewards"]
    places = {name: _places(name, "toy", rows) for name, rows in drawn.items()}
    return Claim(
        "Generalization error of the printed toy rewards",
        "; ".join(f"{name}: {printed_error(name, 'toy')}" for name in drawn),
        "means " + by_domain(drawn, spread_of),
        graded([_among(place) for place in places.values()]),
        f"Judged among the middle 95% of ours over {len(next(iter(drawn.values()))['mean'])} drawings; the {SHARES}: "
        + by_domain(places, _mean_and_spread)
        + ".",
    )


def _structure(data: Data) -> Claim:
    """Return the paper's remark on the toy's learned rewards."""
    learned = {name: data["learned"]["toy"][name]["reward"] for name in ("MPLP", "MPMCE, threshold")}
    printed = PRINTED.toy_rewards["MPMCE"]
    return Claim(
        "Structure of the toy reward",
        "Both algorithms learn r(s2) > r(s1).",
        "; ".join(
            f"{name}: r(s1) = {decimals(reward[1], 2)}, r(s2) = {decimals(reward[2], 2)}" for name, reward in learned.items()
        ),
        graded([reward[2] > reward[1] for reward in learned.values()]),
        f"The paper's own figure of MPMCE contradicts it: {printed[1]} at s1, {printed[2]} at s2.",
    )


def _printed_answer(data: Data) -> Claim:
    """Return whether the printed reward and discounts of MPMCE give the toy's experts back."""
    rows = data["toy"]["printed answer"]
    off = np.abs(np.array(rows["experts"]) - np.array(rows["planned"])).max(axis=1)
    same = [bool(apart <= most) for apart, most in zip(off, rows["rounding"], strict=True)]
    return Claim(
        "Printed answer of MPMCE on the toy",
        f"The reward {numbers(PRINTED.toy_rewards['MPMCE'], 1)} at {numbers(PRINTED.discounts['MPMCE']['toy'])} explains the "
        "experts.",
        f"in s0 the first does {numbers(rows['planned'][0], 3)} instead of {numbers(rows['experts'][0], 3)}; "
        f"the experts' probabilities are off by {numbers(off, 3)}",
        graded(same),
        f"Judged by the printed digits: within half of the last one, the probabilities move by {numbers(rows['rounding'], 3)} at "
        "most. The paper may have had other experts, or its search had not ended.",
    )


def _text_and_table() -> Claim:
    text, table = PRINTED.text_discounts, PRINTED.table_discounts
    apart = [first for first, second in zip(text, table, strict=True) if abs(first - second) > HALF_DISCOUNT]
    return Claim(
        "True discounts of big-small",
        f"The text has {numbers(text)}, the table {numbers(table)}.",
        f"we use {numbers(text)}",
        graded([first not in apart for first in text]),
        f"Judged by the printed digits: {len(apart)} of {len(text)} differ.",
    )


def _within_50(data: Data) -> Claim:
    """Return the remark on the convergence of MPMCE, by the printed rule and by the one that tells right discounts from wrong
    ones.
    """
    wanted = PRINTED.mpmce_converged_after
    mismatched = {domain: (rows["MPMCE, summed gap"], rows["MPMCE, per expert"]) for domain, rows in data["learned"].items()}
    evaluations = min(len(row["trace"]["best"]) for rows in mismatched.values() for row in rows)
    reached = {}
    for domain, (summed, _) in mismatched.items():
        above = np.nonzero(np.array(summed["trace"]["best"], dtype=np.float64) >= data["convergence"][domain]["true entropy"])[0]
        reached[domain] = f"at evaluation {above[0] + 1}" if above.size else f"not in {evaluations}"
    holds = [text.startswith("at") for text in reached.values()]
    matched = [each["status"] == "converged" for _, each in mismatched.values()]
    return Claim(
        "Convergence, MPMCE",
        f"Bayesian optimisation reaches the objective at the true reward and discounts within {wanted} iterations.",
        f"printed rule, {by_domain(reached, str)}; rule per expert, after {evaluations} evaluations: "
        + by_domain(mismatched, lambda rows: f"relative mismatch {power_of_ten(rows[1]['residual'])}"),
        graded([*holds, *matched]) if evaluations >= wanted or all(holds + matched) else NOT_TESTED,
        "Judged twice: the entropy at the truth is reached under the printed rule, and each expert is matched under the rule per "
        "expert, as far as the solver's own tolerance. By the printed rule every discount passes, so the first says little."
        + ("" if evaluations >= wanted else f" {evaluations} evaluations say nothing of {wanted}."),
    )


def _bayesian(data: Data) -> Claim:
    """Compare the best of the search with what the paper compares it with: the best point of a grid of step 0.01."""
    part = data["seeds"]
    wanted = PRINTED.converged_after
    evaluations = len(next(iter(data["convergence"].values()))["Bayesian"]["trace"]["best"])
    ours = {
        d: [data["convergence"][d]["Bayesian"]["objective"], *(row["objective"] for row in rows["MPLP"])]
        for d, rows in part.items()
    }
    shares = {d: np.array(values) / _best(data["convergence"][d]) for d, values in ours.items()}
    grid = {d: rows["paper's grid"] / _best(data["convergence"][d]) for d, rows in part.items()}
    reached = [bool(value >= rows["paper's grid"]) for d, rows in part.items() for value in ours[d]]
    tested = evaluations >= wanted or all(reached)
    return Claim(
        "Convergence",
        f"Bayesian optimisation reaches the global maximum of MPLP within {wanted} iterations.",
        f"after {evaluations} evaluations, share of the optimum over {len(next(iter(ours.values())))} seeds: "
        + by_domain(shares, lambda values: from_to([f"{values.min():.1%}", f"{values.max():.1%}"])),
        graded(reached) if tested else NOT_TESTED,
        f"Judged as in the paper, by the best point of a grid of step {PRINTED.grid_step}: it has "
        + by_domain(grid, "{:.1%}".format)
        + f" of the optimum, which comes from sequential linear programming. {sum(reached)} of {len(reached)} searches reach it."
        + ("" if tested else f" {evaluations} evaluations say nothing of {wanted}."),
    )


def _breakpoints(data: Data) -> Claim:
    breakpoints = data["toy"]["breakpoints"]
    close = len(breakpoints) == 2 and np.abs(np.array(breakpoints) - PRINTED.toy_breakpoints).max() <= 0.0005
    return Claim(
        "Toy domain",
        f"The optimal policy changes at discounts near {numbers(PRINTED.toy_breakpoints, 3)}.",
        numbers(breakpoints, 6),
        REPRODUCED if close else NOT,
        "Our breakpoints are exact. Judged by the printed digits, three decimals.",
    )


def _crossings(data: Data) -> Claim:
    crossings = data["toy"]["crossings"]
    breakpoints = np.array(data["toy"]["breakpoints"])
    inside = [0 < gamma < 1 for gamma in crossings.values()]
    below = [pair for pair, gamma in crossings.items() if not (np.abs(breakpoints - gamma) < 1e-6).any()]
    return Claim(
        "Assumption 1",
        "On the toy only three sets of discounts violate Assumption 1: where two of the three value curves cross.",
        "; ".join(f"{pair} at {decimals(gamma, 6)}" for pair, gamma in crossings.items()),
        graded(inside),
        f"Each pair of policies ties at one discount. Where {listed(below)} tie, the third policy is better." if below else "",
    )


def _grid(data: Data) -> Claim:
    grids = {name: grid for name, grid in data["identifiability"]["grids"].items() if name in data["learned"]}
    alone = [
        len(grid["feasible"]) == 1 and np.abs(np.array(grid["feasible"][0]) - grid["true"]).max() <= grid["step"] / 2
        for grid in grids.values()
    ]
    step = next(iter(grids.values()))["step"]
    toy_set = data["identifiability"]["sets"]["terminal"]
    verdict = IN_PART if all(alone) and toy_set["status"] == "set" else graded(alone)
    # What holds between the points of a grid, which can miss answers.
    unique = [name for name, rows in data["learned"].items() if rows["ClosedForm"]["status"] == "optimal"]
    reason = f"The equations of the experts have one solution on {listed(unique)}: there it is true between the points too."
    if toy_set["status"] == "set":
        ordered = [(np.diff(member["discounts"]) > 0).all() for member in toy_set["members"]]
        reason += (
            f" On the toy a set of dimension {toy_set['dimension']} of discounts explains the experts exactly, and the points of "
            f"a grid miss nearly all of it. The {len(ordered)} members found are {'all' if all(ordered) else 'not all'} in the "
            "true order."
        )
    return Claim(
        "Identifiability",
        f"On a grid of step {PRINTED.grid_step} only the true discounts of three experts have a reward that explains them.",
        f"step {step}: " + by_domain(grids, lambda grid: f"{len(grid['feasible'])} of {grid['points']:,} points"),
        verdict if step <= PRINTED.grid_step else NOT_TESTED,
        reason,
    )


def _two_experts(data: Data) -> Claim:
    """Judge the printed share for both endings, over drawings of the tasks."""
    pairs = data["identifiability"]["two experts"]
    share = PRINTED.two_expert_share
    places = {ending: place_among(share, row["shares over seeds"], HALF_DISCOUNT) for ending, row in pairs.items()}
    drawings = {ending: np.percentile(row["shares over seeds"], (2.5, 97.5)) for ending, row in pairs.items()}
    return Claim(
        "Two toy experts",
        f"Every pair of distinct discounts has a reward, and about {share:.0%} of them have an error above 0.5.",
        by_domain(pairs, "{0[feasible share off the diagonal]:.0%} feasible, {0[share above 0.5]:.0%} above 0.5".format),
        graded(
            [
                all(row["feasible share off the diagonal"] == 1 for row in pairs.values()),
                *(0.025 <= place <= 0.975 for place in places.values()),
            ]
        ),
        "Judged for both endings among the middle 95% of ours over "
        f"{len(next(iter(pairs.values()))['shares over seeds'])} drawings of the tasks, "
        + by_domain(drawings, "{0[0]:.0%} to {0[1]:.0%}".format)
        + f"; share of ours below the printed one: {by_domain(places, lambda place: decimals(place, 2))}.",
    )


def _duality(data: Data) -> Claim:
    chains = data["theory"]["chain"]
    slack = 1e-6
    holds = [row["dual"] >= row["primal"] - slack and row["primal"] >= row["likelihood"] - slack for row in chains.values()]
    return Claim(
        "Theorem 2",
        "G* ≥ H* ≥ −L*.",
        by_domain(chains, lambda row: " ≥ ".join(decimals(row[side], 3) for side in ("dual", "primal", "likelihood"))),
        graded(holds),
        "The discounts are taken from a short list and the true ones. Every value is attained by some reward. G* is at least "
        + by_domain(chains, lambda row: decimals(row["dual_bound"], 3))
        + ", and H* is at most "
        + by_domain(chains, lambda row: decimals(row["entropy"], 3))
        + " over all of these discounts: with one reward for all experts, strong duality fails. With multipliers of its own for "
        "each expert, as Eq. 10 has them, the dual comes down to that entropy.",
    )


def _likelihood(data: Data) -> Claim:
    slopes = data["theory"]["slopes"]
    plain = max(float(np.abs(row["plain"]).max()) for row in slopes.values())
    smallest = min(float(np.abs(row["discounted"]).min()) for row in slopes.values())
    rising = [min(row["discounted"]) > 0 for row in slopes.values()]
    holds = smallest > 1e-6 and plain < 1e-5
    sign = (
        "positive, as printed" if all(rising) else "the opposite of the printed one" if not any(rising) else "not the same on all"
    )
    return Claim(
        "Proposition 1",
        "The experts are no maximum of the discounted likelihood: its derivative in logit γ is positive there.",
        by_domain(slopes, lambda row: numbers(row["discounted"], 3)),
        REPRODUCED if holds and all(rising) else IN_PART if holds else NOT,
        f"The derivative is {significant(smallest, 2)} or more in size, that of the plain one at most {plain:.0e}. "
        f"The sign is {sign}: "
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
        f"while some expert's features are off by {significant(min(wrong), 2)} or more at every wrong Γ",
        NOT if max(gaps) <= CHOSEN.epsilon else IN_PART,
        "With one shared reward, the optimality of the dual says that the mismatches sum to 0, whatever Γ. The printed rule "
        f"therefore accepts every Γ and maximises the entropy alone: its discounts are {'; '.join(map(numbers, summed))}. The "
        "threshold of the paper's discussion, applied to each expert, is what tells.",
    )
