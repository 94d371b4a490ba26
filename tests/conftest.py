"""What tests share: repeatable examples of hypothesis without deadlines, one browser, and the files of a small study."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from browser import MISSING, Tab, browser
from fitting import NAMES
from hypothesis import settings

import multihorizon as mh

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def running_browser() -> Iterator[Tab]:
    """Headless Chromium, started once."""
    if MISSING:
        pytest.skip(MISSING)
    with browser() as tab:
        yield tab


@pytest.fixture
def tab(running_browser: Tab) -> Tab:
    """A tab of the browser, as a reader with light colours has it."""
    running_browser.media("light")
    return running_browser


@pytest.fixture(scope="session")
def grid_walks() -> pd.DataFrame:
    """Decisions of three experts on the grid of the paper."""
    d = mh.domains.big_small()
    return mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 300, seed=0, names=NAMES).to_frame()


@pytest.fixture(scope="session")
def grid_folder(tmp_path_factory: pytest.TempPathFactory, grid_walks: pd.DataFrame) -> Path:
    """The decisions, the transitions in two formats, and features that tie the rewards."""
    folder = tmp_path_factory.mktemp("inputs")
    grid_walks.to_csv(folder / "demos.csv", index=False)
    mdp = mh.domains.big_small().mdp
    mdp.to_npz(folder / "mdp.npz")
    rows = [
        (mdp.state_names[row % 18], mdp.action_names[row // 18], mdp.state_names[column], value)
        for row, column, value in zip(*mdp.stacked.tocoo().coords, mdp.stacked.tocoo().data, strict=True)
    ]
    pd.DataFrame(rows, columns=["state", "action", "next_state", "probability"]).to_csv(folder / "mdp.csv", index=False)
    reward = mh.domains.big_small().reward
    pd.DataFrame({"state": range(18), "big": reward == 20, "small": reward == 2, "step": reward == -2}).astype(int).to_csv(
        folder / "features.csv", index=False
    )
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples in docstrings that fit functions or whole studies take seconds."""
    for item in items:
        if item.nodeid.startswith(
            (
                "src/multihorizon/likelihood/sieve.py",
                "src/multihorizon/questions/study.py",
                "src/multihorizon/questions/carrying_over.py",
            )
        ):
            item.add_marker(pytest.mark.slow)
