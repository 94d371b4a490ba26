"""Draw the picture of a report in the how-to: the slider over the discount, as Chromium shows it.

Run: python docs/draw_report.py
"""

import sys
import tempfile
from pathlib import Path

import multihorizon as mh
from multihorizon.report.fit_page import fit_page

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from browser import browser

DOCS = Path(__file__).parent


def main() -> None:
    """Write `images/report.png`."""
    meadow = mh.domains.meadow()
    walks = mh.Demonstrations.simulate(meadow.mdp, meadow.mce_experts(), 300, names=["Ann", "Ben", "Cleo"])
    with tempfile.TemporaryDirectory() as folder, browser() as tab:
        page = Path(folder) / "report.html"
        fit_page(mh.analyse([walks], [meadow.mdp], quick=True), {}).write(page)
        tab.media("light")
        tab.open(page, 860, 670)
        tab.click(".explorer button.after")
        tab.run("document.querySelector('.explorer').scrollIntoView()")
        tab.picture(DOCS / "images" / "report.png", whole=False)


if __name__ == "__main__":
    main()
