"""The load-test page in a real browser, before an engine of known pace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import CHROMIUM, Browser
from tests.emulators.streaming import Engine


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser for all tests; each loads the page anew."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def engine() -> Iterator[Engine]:
    """Return an engine that streams."""
    with Engine() as made:
        yield made


@pytest.fixture
def page(browser: Browser, engine: Engine) -> Browser:
    """Return the browser with the page just loaded, and nothing to complain about at the end."""
    browser.complaints.clear()
    browser.open(engine.url)
    return browser
