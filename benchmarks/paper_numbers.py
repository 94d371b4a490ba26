"""Do the pages quote the paper's numbers as the paper prints them? Each is looked up in the paper's LaTeX, given as an argument.

    python benchmarks/paper_numbers.py PATH_TO_TEX

Three things are checked, and the exit code says whether all hold:

* the printed figures in `multihorizon.paper.study`, against the tables, figures and sentences they come from;
* the equation numbers that docs/paper/index.md gives, by counting the equations of the LaTeX: each row has words of its own;
* the paper's side of docs/paper/results.md and the numbers in docs/paper/index.md that are said to be printed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from multihorizon.paper.study import PRINTED

PAGES = Path(__file__).parent.parent / "docs" / "paper"
#: Of each equation that the index lists: its number and a label in the LaTeX.
EQUATIONS = {
    1: "eqn:opt_pi_standard",
    2: "eqn:opt_pi_soft",
    3: "eqn:lp_irl_single",
    4: "eqn:naive_lp_irl_multi_gamma",
    5: "eqn:multi_gamma_cvx_irl",
    6: "eqn:omega_k",
    7: "eqn:upper_level_obj",
    8: "eqn:mce_irl_single",
    9: "eqn:ml_irl_single",
    10: "eqn:mce_irl_multi",
    11: "eqn:ml_irl_multi",
    12: "eqn:mce_inner",
    13: "apdx_eqn:omega_k",
    14: "eqn:apdx_multi_gamma_irl",
    15: "eqn:multi_gamma_cvx_irl_step_1",
    16: "eqn:multi_gamma_cvx_irl_step_1_dual",
    17: "eqn:opt_z",
    18: "apdx_eqn:mce_irl_multi",
    19: "apdx_eqn:ml_irl_multi",
    20: "apdx:grad_mu",
    21: "apdx_dqn:lagrangian_dual_2",
    22: "apdx_eqn:v_soft",
    23: "apdx_eqn:pi_q_v",
    24: "apdx_eqn:l_grad",
    25: "apdx_eqn:mce_irl_multi_inner",
    26: "apdx_eqn:always_more_optimal",
    27: "eqn:eval_gen",
}
DISPLAYS, INNER = "equation|align|gather", "cases|bmatrix|matrix|array|tabular|split|aligned"
TOKEN = re.compile(
    rf"\\begin{{(subequations|{DISPLAYS})}}|\\end{{(subequations|{DISPLAYS})}}|\\begin{{({INNER})}}|\\end{{({INNER})}}"
    r"|\\label{([^}]*)}|\\nonumber|\\notag|\\\\"
)
STATEMENT = re.compile(r"\\(begin|end){(theorem|proposition|corollary|assumption)}|\\label{([^}]*)}")
NUMBER = re.compile(r"\d*\.\d+|\d+")


def numbered(text: str) -> dict[str, int]:
    """The number of each label of an equation: one for a display or a line of it, one for all of `subequations`."""
    numbers: dict[str, int] = {}
    last, display, depth, together, counts = 0, "", 0, False, True
    for token in TOKEN.finditer(text):
        begin, end, deeper, higher, label = token.groups()
        depth += bool(deeper) - bool(higher)
        line_ends = token[0] == r"\\" and depth == 0 and display in ("align", "gather")
        if begin == "subequations":
            last, together = last + 1, True
        elif end == "subequations":
            together = False
        elif begin:
            display, counts = begin, True
        elif label and (display or together):
            numbers[label] = last + (not together)
        elif token[0] in (r"\nonumber", r"\notag"):
            counts = False
        elif end or line_ends:
            last += counts and not together
            counts = True
            display = "" if end else display
    return numbers


def statements(text: str) -> dict[str, int]:
    """The number of each label of a theorem, proposition, corollary or assumption of the main text."""
    numbers: dict[str, int] = {}
    counts: dict[str, int] = {}
    inside = ""
    for token in STATEMENT.finditer(text[: text.index(r"\appendix")]):
        action, kind, label = token.groups()
        if action == "begin":
            inside, counts[kind] = kind, counts.get(kind, 0) + 1
        elif action == "end":
            inside = ""
        elif label and inside:
            numbers[f"{inside} {label}"] = counts[inside]
    return numbers


def plain(text: str) -> str:
    """LaTeX without comments, fonts and spaces, so that what is printed can be looked up."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    text = re.sub(r"\\(tilde|displaystyle|color{\w+}|texttt|times|ldots)|[{}$]", "", text.replace("{[}", "[").replace("{]}", "]"))
    return re.sub(r"\s+|\\ |\\,", "", text)


def printed_figures() -> Iterator[tuple[str, str]]:
    """Each printed figure of the settings: where it comes from, and the words of the LaTeX, without spaces."""
    rows = {name: [] for name in ("MPLP", "MPMCE")}
    for name, row in rows.items():
        for domain, digits in PRINTED.error_digits[name].items():
            mean, std = (f"{value:.{digits}f}" for value in PRINTED.generalization[name][domain])
            row.append(rf"{mean}\pm{std}")
        yield f"errors of {name}", f"{name}-IRL&" + "&".join(row)
    naive = [f"{value:.3f}" for value in PRINTED.generalization["NaiveLP"]["toy"]]
    yield "error of the naive extension", rf"ageneralizationerror(Eq.~\refeqn:eval_gen)of{naive[0]}\pm{naive[1]}"
    tied = ",".join(f"{gamma:g}" for gamma in PRINTED.discounts["NaiveLP"]["toy"])
    yield "discounts of the naive extension", rf"\Gamma=\{tied}(theorange"
    low, high = PRINTED.toy_breakpoints
    yield "breakpoints", rf"\gamma_0\approx{low:.3f},\gamma_1\approx{high:.3f}"
    yield "share of two experts", rf"\sim{PRINTED.two_expert_share:.0%}".replace("%", r"\%")
    yield "iterations of MPLP", f"MPLP-IRLconvergestotheglobalmaximumwithin{PRINTED.converged_after}iterations"
    yield "iterations of MPMCE", f"MPMCE-IRLconvergeswithin{PRINTED.mpmce_converged_after}iterations"
    yield "step of the grid", f"withanintervalof{PRINTED.grid_step:g}"
    text = ",".join(f"{gamma:g}" for gamma in PRINTED.text_discounts)
    yield "true discounts of big-small, text", rf"\Gamma^*=\{text}"
    for name, states in (("MPLP", (1, 2)), ("MPMCE", (0, 1, 2, 3))):
        for state in states:
            yield f"toy reward of {name} at s{state}", f"+{PRINTED.toy_rewards[name][state]:g}"


def table_of_discounts(text: str) -> list[tuple[tuple[float, ...], float, float, float]]:
    """The rows of the table of true and learned discounts: the interval, and the three discounts."""
    start = text.index(r"\begin{tabular}{|l|l|l|l|l|}")
    rows = []
    for line in text[start : text.index(r"\end{tabular}", start)].splitlines():
        cells = line.replace("{[}", "[").replace("{]}", "]").split("&")
        if len(cells) == 5 and "pi" in cells[1]:
            values = [[float(x) for x in NUMBER.findall(re.sub(r"pi\^?\*?_\d", "", cell))] for cell in cells[1:]]
            rows.append((tuple(values[0]), values[1][0], values[2][0], values[3][0]))
    return rows


def differences(text: str) -> Iterator[tuple[str, bool]]:
    """Every check, in words, and whether it holds."""
    looked_up, numbers, named = plain(text), numbered(re.sub(r"(?<!\\)%.*", "", text)), statements(text)
    for name, words in printed_figures():
        yield f"{name}: {words}", words in looked_up
    table = table_of_discounts(text)
    for place, domain in enumerate(("toy", "big-small", "cliff")):
        for k, (interval, mplp, true, mpmce) in enumerate(table[3 * place : 3 * place + 3]):
            yield f"interval {k + 1} of {domain}: {PRINTED.intervals[domain][k]}", interval == PRINTED.intervals[domain][k]
            yield f"MPLP discount {k + 1} of {domain}: {mplp}", mplp == PRINTED.discounts["MPLP"][domain][k]
            yield f"MPMCE discount {k + 1} of {domain}: {mpmce}", mpmce == PRINTED.discounts["MPMCE"][domain][k]
            if domain == "big-small":
                yield f"true discount {k + 1} of {domain} in the table: {true}", true == PRINTED.table_discounts[k]
    for number, label in EQUATIONS.items():
        yield f"Eq. {number} is {label}", numbers.get(label) == number
    yield f"the last equation is {max(EQUATIONS)}", max(numbers.values()) == max(EQUATIONS)
    labels = {"thm:lp": 1, "thm:strong_duality": 2, "prop:ml_irl": 1, "prop:id": 2, "cor:mce_feasibility": 1, "assump_1": 1}
    for label, number in labels.items():
        yield f"statement {number} is {label}", [n for name, n in named.items() if name.endswith(" " + label)] == [number]
    yield from pages(numbers)


def pages(numbers: dict[str, int]) -> Iterator[tuple[str, bool]]:
    """What docs/paper says of the paper's numbers."""
    index, results = ((PAGES / name).read_text(encoding="utf-8") for name in ("index.md", "results.md"))
    listed = [row.split("|")[1] for row in index.splitlines() if row.startswith("| Eq.") or "Eq. 6" in row[:12]]
    covered = []
    for cell in listed:
        ends = [int(x) for x in re.findall(r"\d+", re.sub(r"(Theorem|Algorithm) \d", "", cell))]
        covered += range(ends[0], ends[1] + 1) if " to " in cell else ends
    yield f"the index lists each equation once: {covered}", sorted(covered) == sorted(set(numbers.values()))
    for page, text in (("index.md", index), ("results.md", results)):
        cited = {int(n) for ends in re.findall(r"Eq\. (\d+)(?:(?:, | to )(\d+))?", text) for n in ends if n}
        yield f"{page} cites equations that there are: {sorted(cited)}", cited <= set(numbers.values())
    for quoted in (
        "3.4, 4.2, 3.1, 9.7 at .53, .82, .98",
        "0.0 ± 0.0",
        "The text has .1 for the first expert of big-small, the table 0",
    ):
        yield f"index.md says {quoted}", quoted in index
    known = known_numbers()
    for line in results.splitlines():
        if line.startswith("* Paper: "):
            words = re.sub(r"r\(s\d\)|s\d|\d+ ±|Assumption \d|logit", lambda m: m[0] if "±" in m[0] else "", line)
            for number in NUMBER.findall(words):
                yield f"results.md, paper's side: {number} in “{line[9:60]}…”", float(number) in known
    anchors = {slug(heading) for heading in re.findall(r"^#+ (.*)$", results, re.MULTILINE)}
    for anchor in re.findall(r"results\.md#([^)]+)\)", index):
        yield f"index.md links to results.md#{anchor}", anchor in anchors


def slug(heading: str) -> str:
    """The anchor of a heading: lower case, without punctuation, words joined by hyphens."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")


def known_numbers() -> set[float]:
    """All printed figures as numbers, and those of the sentences: three experts' crossings, the order of the first two."""
    nested = [PRINTED.generalization, PRINTED.discounts, PRINTED.toy_rewards]
    flat: list[float] = [0.5, *PRINTED.toy_breakpoints, *PRINTED.text_discounts, *PRINTED.table_discounts, PRINTED.grid_step]
    flat += [PRINTED.converged_after, PRINTED.mpmce_converged_after, 100 * PRINTED.two_expert_share]
    for part in nested:
        for value in part.values():
            flat += [x for each in (value.values() if isinstance(value, dict) else [value]) for x in each]
    return {float(x) for x in flat}


def main() -> int:
    """Print what differs and how many were checked."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    checks = list(differences(text[text.index(r"\begin{document}") :]))
    wrong = [words for words, holds in checks if not holds]
    for words in wrong:
        print("differs:", words)
    print(f"{len(checks)} checked, {len(wrong)} differ.")
    return bool(wrong)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
