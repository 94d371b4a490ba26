"""Draw the charts of the pages: timings from `benchmarks/RESULTS.md`, shapes of discounting, power, and the pictures of cards.

Run: python docs/draw_charts.py
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import gaussian_kde

import multihorizon as mh
from multihorizon.report.plots import best_walk

sys.path.insert(0, str(Path(__file__).parent))
from charts import COLOURS, Chart, Scale

RESULTS = Path(__file__).parent.parent / "benchmarks" / "RESULTS.md"
BLUE, ORANGE, PURPLE, GREEN = COLOURS


def rows(title: str) -> list[dict[str, str]]:
    """The rows of the table under a heading of the results."""
    section = RESULTS.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def number(cell: str) -> float:
    """A cell as a number."""
    return float(cell.replace(",", ""))


def planning() -> None:
    """Softmax planning against value iteration, by discount factor."""
    chart = Chart(
        640, 320, "Softmax planning with 90,000 states: seconds by discount factor; see the table"
    )
    across = Scale(0.5, 1, 80, 480, (0.5, 0.8, 0.9, 0.95, 0.99))
    up = Scale(0.02, 5, 260, 20, (0.05, 0.1, 0.5, 1, 5), log=True)
    chart.axes(across, up, "discount factor γ", "seconds")
    table = [row for row in rows("Soft planning") if row["states"] == "90,000"]
    for column, colour, dash, words in (
        ("soft_plan, s", BLUE, "", "soft_plan"),
        ("value iteration, s", ORANGE, "6 4", "value iteration"),
    ):
        chosen = [row for row in table if row["task"] == "random"]
        places = [(across(number(row["discount"])), up(number(row[column]))) for row in chosen]
        chart.line(places, colour, dash=dash)
        for (x, y), row in zip(places, chosen, strict=True):
            chart.dot(x, y, colour, says=f"{words}, γ = {row['discount']}: {row[column]} s")
        chart.text(places[-1][0] + 10, places[-1][1] + 4, words, more=f"fill:{colour}")
    chart.write("performance-planning")


def recovery() -> None:
    """Exact recovery and the forward plans that made the policies, by states."""
    chart = Chart(640, 320, "Exact recovery of three experts: seconds by number of states")
    across = Scale(8e3, 1.3e6, 80, 480, (10_000, 40_000, 250_000, 1_000_000), log=True)
    up = Scale(0.03, 12, 260, 20, (0.05, 0.1, 0.5, 1, 5, 10), log=True)
    chart.axes(across, up, "states", "seconds")
    for column, colour, dash, words in (
        ("ClosedForm, s", BLUE, "", "ClosedForm"),
        ("forward plans, s", ORANGE, "6 4", "three forward plans"),
    ):
        table = rows("Exact recovery")
        places = [(across(number(row["states"])), up(number(row[column]))) for row in table]
        chart.line(places, colour, dash=dash)
        for (x, y), row in zip(places, table, strict=True):
            chart.dot(x, y, colour, says=f"{words}, {row['states']} states: {row[column]} s")
        shift = -6 if colour == BLUE else 12
        chart.text(places[-1][0] + 8, places[-1][1] + shift, words, more=f"fill:{colour}")
    chart.write("performance-recovery")


def peers() -> None:
    """Fits at a known discount factor, beside econirl."""
    chart = Chart(640, 290, "Seconds of a fit at a known discount factor, multihorizon and econirl")
    across = Scale(0.01, 100, 150, 610, (0.01, 0.1, 1, 10, 100), log=True)
    for tick in across.ticks:
        chart.line([(across(tick), 30), (across(tick), 240)], "currentColor", 0.5, opacity=0.25)
        chart.text(across(tick), 258, f"{tick:g}", "middle")
    chart.text(380, 282, "seconds", "middle")
    table = [row for row in rows("Fits at a known discount") if row["peer"].startswith("econirl")]
    labels = list(dict.fromkeys(f"{row['task']}, {row['states']} states" for row in table))
    for place, label in enumerate(labels):
        y = 60 + 50 * place
        chart.text(140, y + 4, label, "end")
        mine = [row for row in table if f"{row['task']}, {row['states']} states" == label]
        chart.dot(
            across(number(mine[0]["fit, s"])),
            y,
            BLUE,
            6,
            says=f"multihorizon: {mine[0]['fit, s']} s",
        )
        for row in mine:
            own = row["peer"].endswith("own")
            chart.dot(
                across(number(row["without compiling, s"])),
                y,
                ORANGE,
                6,
                hollow=not own,
                says=f"{row['peer']}: {row['without compiling, s']} s",
            )
    for x, colour, hollow, words in (
        (150, BLUE, False, "multihorizon"),
        (280, ORANGE, False, "econirl, its settings"),
        (450, ORANGE, True, "econirl, looser"),
    ):
        chart.dot(x, 14, colour, 5, hollow)
        chart.text(x + 10, 18, words)
    chart.write("performance-peers")


def shapes() -> None:
    """The weights of five families of discounting."""
    chart = Chart(
        640, 320, "The weight of a reward by the steps until it is paid, for five families"
    )
    across, up = (
        Scale(1, 8, 80, 470, tuple(range(1, 9))),
        Scale(0, 1, 260, 20, (0, 0.25, 0.5, 0.75, 1)),
    )
    chart.axes(across, up, "steps from now, t", "weight d(t)")
    steps = np.arange(1, 9)
    weights: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "exponential, γ = 0.8": lambda t: 0.8 ** (t - 1),
        "hyperbolic, κ = 0.5": lambda t: 1 / (1 + 0.5 * (t - 1)),
        "quasi-hyperbolic": lambda t: np.where(t == 1, 1, 0.6 * 0.92 ** (t - 1)),
        "depth 4": lambda t: np.where(t <= 4, 1.0, 0),
    }
    ends = (-14, 18, 2, 0)
    for (words, weight), colour, dash, shift in zip(
        weights.items(), COLOURS, ("", "7 4", "2 3", "10 3 2 3"), ends, strict=True
    ):
        values = weight(steps)
        chart.line(
            [(across(t), up(v)) for t, v in zip(steps, values, strict=True)], colour, dash=dash
        )
        for t, v in zip(steps, values, strict=True):
            chart.dot(across(t), up(v), colour, 3, says=f"{words}, t = {t}: {v:.2f}")
        chart.text(across(8) + 10, up(values[-1]) + 4 + shift, words, more=f"fill:{colour}")
    chart.write("lookahead")


def power() -> None:
    """Power of the study of the tutorial, as on the page on designs."""
    chart = Chart(640, 240, "Power by design: the numbers are in the table below")
    across = Scale(0, 100, 300, 600, (0, 20, 40, 60, 80, 100))
    studies = (
        ("40 participants × 150, no effect", 0, 3),
        ("40 × 150, effect 0.4", 13, 6),
        ("40 × 150, effect 0.8", 47, 9),
        ("40 × 300, effect 0.8", 70, 8),
        ("80 × 150, effect 0.8", 77, 8),
    )
    for tick in across.ticks:
        chart.line([(across(tick), 10), (across(tick), 190)], "currentColor", 0.5, opacity=0.25)
        chart.text(across(tick), 207, f"{tick:g}", "middle")
    chart.text(450, 230, "power, % (± standard error)", "middle")
    chart.line([(across(80), 10), (across(80), 190)], ORANGE, 1.5, "5 4")
    for place, (words, value, error) in enumerate(studies):
        y = 28 + 36 * place
        chart.text(290, y + 4, words, "end")
        chart.line(
            [(across(max(0, value - error)), y), (across(min(100, value + error)), y)], BLUE, 2
        )
        chart.dot(across(value), y, BLUE, 5, says=f"{value} ± {error}%")
    chart.write("design-power")


def ground(chart: Chart, walk: list[int], x0: float, y0: float, size: float, colour: str) -> None:
    """A map of the meadow with one walk."""
    meadow = mh.domains.meadow()
    assert meadow.mdp.grid_shape is not None
    _, width = meadow.mdp.grid_shape
    kinds = {6.0: "snack", 40.0: "feast", -3.0: "mud", -0.5: "grass"}
    fills = {"snack": "#efe39a", "feast": "#f6d55c", "mud": "#b08d6a", "grass": "#cfdcc0"}
    for cell, reward in enumerate(meadow.reward.tolist()):
        x, y = x0 + size * (cell % width), y0 + size * (cell // width)
        kind = kinds[reward]
        chart.bar(
            x, y, size - 1, size - 1, fills[kind], kind, 0.55 if kind in ("grass", "mud") else 1
        )
    places = [
        (x0 + size * (cell % width + 0.5), y0 + size * (cell // width + 0.5)) for cell in walk
    ]
    chart.line(places, colour, 3.5)
    chart.dot(*places[0], colour, size / 6)
    (x1, y1), (x2, y2) = places[-2:]
    across, along = (x2 - x1) / size, (y2 - y1) / size
    tip = [(x2 + 0.3 * size * across, y2 + 0.3 * size * along)]
    side = [
        (
            x2 - 0.25 * size * across - s * 0.3 * size * along,
            y2 - 0.25 * size * along + s * 0.3 * size * across,
        )
        for s in (1, -1)
    ]
    corners = " ".join(f"{x:g},{y:g}" for x, y in [*tip, *side])
    chart.parts.append(f'<polygon points="{corners}" fill="{colour}"/>')


def change() -> None:
    """Ann before and after, as on the page on counterfactuals, and small for the cards."""
    meadow = mh.domains.meadow()
    start = meadow.mdp.state_names.index("B3")
    before, after = (
        best_walk(meadow.mdp, meadow.reward, discount, start) for discount in (0.5, 0.8)
    )
    chart = Chart(
        640,
        210,
        "Ann's best walk leads to the snack at a discount factor of 0.5, and to the feast at 0.8",
    )
    chart.text(10, 18, "Ann, γ = 0.5: 2.7% of walks reach the feast")
    ground(chart, before, 10, 30, 33, BLUE)
    chart.text(335, 18, "Ann, if γ were 0.8: 65%")
    ground(chart, after, 335, 30, 33, ORANGE)
    chart.write("what-if")
    small = Chart(300, 170, "A walk before and after a change")
    ground(small, before, 6, 4, 16, BLUE)
    small.text(156, 50, "before")
    ground(small, after, 6, 88, 16, ORANGE)
    small.text(156, 134, "after")
    small.write("card-what-if")


def cards() -> None:
    """The pictures of the cards on the front page and of the tutorials."""
    people = mh.domains.space_adventure(mini_blocks=60).persons(40, group_difference=0.8)
    chart = Chart(300, 170, "Discount factors of two groups of simulated participants")
    across = Scale(0, 1, 20, 280, (0, 0.5, 1))
    for place, (group, colour) in enumerate((("control", ORANGE), ("training", BLUE))):
        values = people.discounts[(people.frame["group"] == group).to_numpy()]
        base = 66 + 66 * place
        grid = np.linspace(0, 1, 60)
        height = gaussian_kde(values)(grid)
        curve = [
            (across(x), round(base - 38 * h / height.max(), 1))
            for x, h in zip(grid, height, strict=True)
        ]
        places = " ".join(f"{x:g},{y:g}" for x, y in [(across(0), base), *curve, (across(1), base)])
        chart.parts.append(f'<polygon points="{places}" fill="{colour}" opacity="0.35"/>')
        for value in values:
            chart.dot(across(value), base + 8, colour, 2.5, says=f"{group}: {value:.2f}")
        chart.text(20, base - 22, group, more=f"fill:{colour}")
    chart.line([(20, 150), (280, 150)], "currentColor", 1, opacity=0.6)
    for tick in across.ticks:
        chart.text(across(tick), 165, f"{tick:g}", "middle")
    chart.write("card-groups")

    chart = Chart(300, 170, "Two curves of equations cross at the true pair of discount factors")
    box = [(40, 10), (40, 140), (280, 140), (280, 10), (40, 10)]
    chart.line(box, "currentColor", 1, opacity=0.6)
    x = np.linspace(0, 1, 40)
    chart.line(
        [(round(40 + 240 * a, 1), round(140 - 130 * (0.9 - 0.75 * a**2), 1)) for a in x], BLUE
    )
    chart.line(
        [(round(40 + 240 * a, 1), round(140 - 130 * (0.15 + 0.7 * a**0.7), 1)) for a in x],
        ORANGE,
        dash="6 4",
    )
    root = x[np.argmin(abs(0.9 - 0.75 * x**2 - 0.15 - 0.7 * x**0.7))]
    chart.dot(
        round(40 + 240 * root, 1),
        round(140 - 130 * (0.9 - 0.75 * root**2), 1),
        PURPLE,
        7,
        says="identified",
    )
    chart.text(160, 162, "γ of the first expert", "middle")
    chart.text(24, 75, "γ of the second", "middle", turn=-90)
    chart.write("card-identification")

    chart = Chart(300, 170, "Probabilities that two of six experts share a goal: two clusters")
    names = ("ann", "cem", "eva", "ben", "dia", "fay")
    for i, one in enumerate(names):
        chart.text(68, 27 + 24 * i, one, "end")
        for j, other in enumerate(names):
            same = (i < 3) == (j < 3)
            chart.bar(
                76 + 30 * j,
                12 + 24 * i,
                28,
                22,
                (BLUE if i < 3 else ORANGE) if same else "currentColor",
                f"{one} and {other}",
                0.9 if same else 0.1,
            )
    chart.write("card-goals")

    chart = Chart(300, 170, "The map of FrozenLake: start, ice, holes and goal")
    for cell, letter in enumerate("SFFFFHFHFFFHHFFG"):
        x, y = 70 + 40 * (cell % 4), 6 + 40 * (cell // 4)
        chart.bar(x, y, 38, 38, {"H": "#4a5a6a", "G": "#f6d55c"}.get(letter, "#bcd6e8"), letter)
        if letter != "F":
            chart.text(
                x + 19,
                y + 24,
                letter,
                "middle",
                more="fill:#fff" if letter == "H" else "fill:#111",
            )
    chart.write("card-lake")


if __name__ == "__main__":
    planning()
    recovery()
    peers()
    shapes()
    power()
    change()
    cards()
