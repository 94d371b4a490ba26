"""`multihorizon reproduce --domain`: the paper's questions on a domain that a reader brings."""

import pytest
from typer.testing import CliRunner

from multihorizon.cli import app

DOMAIN = """
import numpy as np
import multihorizon as mh
from multihorizon.domains import Domain

def line():
    \"\"\"Five places in a row; a small reward is near, a large one far.\"\"\"
    moves = np.zeros((2, 6, 6))
    for s in range(1, 5):
        moves[0, s, s - 1] += 0.9
        moves[1, s, s + 1] += 0.9
        moves[:, s, s] += 0.1
    mdp = mh.MDP(moves, terminal=[0, 5])
    return Domain("line", mdp, np.array([2.0, -1, -1, -1, -1, 10]), (0.1, 0.9), (0.1, 0.9), lambda rng: mdp)

number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_own_line.py").write_text(DOMAIN, encoding="utf-8")
    return tmp_path


def test_a_domain_of_ones_own_gets_verdicts_and_a_page(folder) -> None:
    found = CliRunner().invoke(app, ["reproduce", "--domain", "my_own_line:line", "--out", "study", "--quick"])
    assert found.exit_code == 0, found.output
    page, text = ((folder / "study" / name).read_text(encoding="utf-8") for name in ("report.html", "paper.md"))
    assert page.index("Verdicts") < page.index("What each algorithm learns on line")
    for topic in ("Order of discounts, MPLP", "Order of discounts, MPMCE", "Identifiability"):
        assert f"## {topic}: " in text


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("line", "MODULE:NAME"), ("my_own_line:none", "cannot be loaded"), ("my_own_line:number", "must be a Domain")],
)
def test_what_is_no_domain_is_told_so(folder, name, sentence) -> None:
    found = CliRunner().invoke(app, ["reproduce", "--domain", name, "--out", "study"])
    assert found.exit_code != 0
    assert sentence in " ".join(found.output.split())
