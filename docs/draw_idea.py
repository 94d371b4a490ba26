"""Draw the picture at the top of the README: three walkers who want the same things, and where each of them goes.

Run: python docs/draw_idea.py [docs/images/idea.png]
"""

import sys

import multihorizon as mh
from multihorizon.report.plots import best_walk, plot_walks, save

TITLES = (
    "Ann looks 2 steps ahead\nand takes the snack",
    "Ben looks 5 steps ahead\nand wades through the mud",
    "Cleo looks 33 steps ahead\nand walks around it",
)


def main(path: str) -> None:
    """Draw the three maps of the meadow."""
    meadow = mh.domains.meadow()
    start = meadow.mdp.state_names.index("B3")
    walks = [best_walk(meadow.mdp, meadow.reward, discount, start) for discount in meadow.lp_discounts]
    save(plot_walks(meadow.mdp, meadow.reward, walks, TITLES, "The same wishes, different horizons, different paths"), path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs/images/idea.png")
