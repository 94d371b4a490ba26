"""Draw three walkers who want the same things, and where each of them goes: for the README, and for the site's front page.

Run: python docs/draw_idea.py [docs/images/idea.png]. The front page has the same maps as drawings that follow its colours; the
build of the site makes them (`front_page`).
"""

import sys
from itertools import pairwise

import multihorizon as mh
from multihorizon.report.plots import best_walk, plot_walks, save

TITLES = (
    "Ann (effective horizon 2 steps)\ntakes the snack",
    "Ben (5 steps)\nwades through the mud to the feast",
    "Cleo (33 steps)\nwalks around it",
)
#: What a cell is called in the style sheet, by its reward.
GROUND = {6.0: "snack", 40.0: "feast", -3.0: "mud", -0.5: "grass"}


def walks() -> list[list[int]]:
    """The best walk of each walker from the cell B3."""
    meadow = mh.domains.meadow()
    start = meadow.mdp.state_names.index("B3")
    return [
        best_walk(meadow.mdp, meadow.reward, discount, start) for discount in meadow.hard_discounts
    ]


def front_page() -> str:
    """The three maps as HTML, each with its words below."""
    figures = [
        _figure(number, walk, title)
        for number, (walk, title) in enumerate(zip(walks(), TITLES, strict=True), start=1)
    ]
    return f'<div class="walkers">\n{"".join(figures)}</div>\n'


def _figure(number: int, walk: list[int], title: str) -> str:
    """One map: cells of 30 by 30, what they pay where it is much, and the walk from its dot to its arrow."""
    meadow = mh.domains.meadow()
    assert meadow.mdp.grid_shape is not None
    height, width = meadow.mdp.grid_shape
    name, rest = title.split(" ", 1)
    parts = [
        f'<svg viewBox="0 0 {30 * width} {30 * height}" role="img" aria-label="{title.replace(chr(10), " ")}">'
    ]
    for cell, reward in enumerate(meadow.reward.tolist()):
        x, y = 30 * (cell % width), 30 * (cell // width)
        parts.append(
            f'<rect class="{GROUND[reward]}" x="{x + 0.5}" y="{y + 0.5}" width="29" height="29"/>'
        )
        if GROUND[reward] != "grass" and cell not in walk[:-1]:
            text = f"{reward:+g}".replace("-", "−")
            parts.append(f'<text class="{GROUND[reward]}" x="{x + 15}" y="{y + 19}">{text}</text>')
    points = [(30 * (cell % width) + 15, 30 * (cell // width) + 15) for cell in walk]
    (x0, y0), (x1, y1) = points[-2:]
    points[-1] = (x0 + 0.3 * (x1 - x0), y0 + 0.3 * (y1 - y0))  # the arrow ends before the number
    assert all(a != b for a, b in pairwise(points))
    drawn = " ".join(f"{x:g},{y:g}" for x, y in points)
    tip = f'<marker id="tip{number}" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="3.5" markerHeight="3.5" orient="auto">'
    parts.append(f'<defs>{tip}<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>')
    parts.append(f'<polyline points="{drawn}" marker-end="url(#tip{number})"/>')
    parts.append(f'<circle cx="{points[0][0]}" cy="{points[0][1]}" r="5"/></svg>')
    words = rest.replace("\n", " ")
    return f'<figure class="walker w{number}">{"".join(parts)}<figcaption><b>{name}</b> {words}.</figcaption></figure>\n'


def main(path: str) -> None:
    """Draw the three maps of the meadow for the README."""
    meadow = mh.domains.meadow()
    save(
        plot_walks(
            meadow.mdp,
            meadow.reward,
            walks(),
            TITLES,
            "One reward, three discount factors, three paths",
        ),
        path,
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs/images/idea.png")
