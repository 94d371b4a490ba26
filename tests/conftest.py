"""Shared settings: hypothesis draws the same examples on every machine, and slow machines fail no deadline; and one browser."""

from collections.abc import Iterator

import pytest
from browser import MISSING, Tab, browser
from hypothesis import settings

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
