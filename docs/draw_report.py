"""Draw the pictures of reports, as Chromium shows them: its first page, the slider over the discount, and the same persons under
two conditions.

Run: python docs/draw_report.py
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd
from scipy.special import expit, logit

import multihorizon as mh
from multihorizon.cli import app as program
from multihorizon.report.fit_page import fit_page

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from browser import browser

DOCS = Path(__file__).parent


def main() -> None:
    """Write `images/front-light.png` and `front-dark.png`, `report.png` and `conditions.png`."""
    front_page()
    slider()
    conditions()


def front_page() -> None:
    """The first page of the demo's report, in light and in dark."""
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        program(["demo", "--out", folder], standalone_mode=False)
        for scheme in ("light", "dark"):
            tab.media(scheme)
            tab.open(Path(folder) / "report.html", 1000, 640)
            tab.picture(DOCS / "images" / f"front-{scheme}.png", whole=False)


def slider() -> None:
    """The best actions at a discount, in the meadow."""
    meadow = mh.domains.meadow()
    walks = mh.Demonstrations.simulate(
        meadow.mdp, meadow.soft_experts(), 300, names=["Ann", "Ben", "Cleo"]
    )
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        page = Path(folder) / "report.html"
        fit_page(mh.analyse([walks], [meadow.mdp], quick=True), {}).write(page)
        tab.media("light")
        tab.open(page, 860, 670)
        tab.click(".explorer button.after")
        tab.run("document.querySelector('.explorer').scrollIntoView()")
        tab.picture(DOCS / "images" / "report.png", whole=False)


def conditions() -> None:
    """The people of the tutorial, without noise and with it."""
    task = mh.domains.space_adventure(mini_blocks=60)
    people = task.persons(40, group_difference=0.8)
    noisy = task.persons(
        40, seed=7, discounts=expit(logit(people.discounts) - 1), temperatures=people.temperatures
    )
    tables = {"low": people.demonstrations.to_frame(), "high": noisy.demonstrations.to_frame()}
    both = pd.concat(
        [
            frame.assign(noise=noise, episode=frame["episode"] + noise)
            for noise, frame in tables.items()
        ]
    )
    found = mh.analyse(
        [mh.Demonstrations.from_frame(both, conditions=["noise"])],
        [task.mdp],
        population=mh.Population("~ noise", reference={"noise": "low"}),
        known_reward=lambda mdp: task.reward,
        quick=True,
    )
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        page = Path(folder) / "report.html"
        fit_page(found, {}).write(page)
        tab.media("light")
        tab.open(page, 980, 470)
        tab.run("document.querySelectorAll('.controls').forEach((e) => e.remove())")
        tab.run("document.querySelector('.mark.person').closest('.beside').scrollIntoView()")
        tab.picture(DOCS / "images" / "conditions.png", whole=False)


if __name__ == "__main__":
    main()
