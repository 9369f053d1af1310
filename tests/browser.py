"""Looks at a page in the machine's Chromium: what it looks like, and what is wrong with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PROBE = Path(__file__).with_suffix(".js")


@dataclass(frozen=True)
class Seen:
    """A page as it was seen; all but the screenshot should be empty."""

    screenshot: Path  # PNG of the whole page
    console: tuple[str, ...]  # errors and warnings
    requests: tuple[str, ...]  # of anything but the file itself
    overflow: int  # px by which the page is wider than the window
    cut: tuple[str, ...]  # texts that leave their picture or their box
    overlapping: tuple[str, ...]  # pairs of texts that lie over each other
    faint: tuple[str, ...]  # texts of a contrast below WCAG's AA: 4.5, large ones 3

    def must_be_fine(self) -> None:
        """Nothing is wrong with it."""
        wrong = {name: value for name, value in vars(self).items() if value and name != "screenshot"}
        assert not wrong, f"{self.screenshot}: {wrong}"


class Chromium:
    """A running headless Chromium."""

    def __init__(self, browser, folder: Path):
        self.browser, self.folder = browser, folder

    def look(self, page: Path, scheme: Literal["light", "dark"] = "light", width: int = 1000) -> Seen:
        """Open a file in a window of `width` px and go through what there is to see."""
        console, requests = [], []
        opened = self.browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        try:
            opened.on("console", lambda m: m.type in ("error", "warning") and console.append(m.text))
            opened.on("pageerror", lambda error: console.append(str(error)))
            opened.on("request", lambda request: requests.append(request.url))
            opened.goto(page.as_uri())
            height = opened.evaluate("document.documentElement.scrollHeight")
            opened.set_viewport_size({"width": width, "height": min(height, 16_000)})
            found = opened.evaluate(PROBE.read_text(encoding="utf-8"))
            screenshot = self.folder / f"{page.stem}_{scheme}_{width}.png"
            opened.screenshot(path=screenshot, full_page=True)
        finally:
            opened.close()
        return Seen(
            screenshot,
            tuple(console),
            tuple(url for url in requests if url != page.as_uri()),
            found["overflow"],
            *(tuple(found[what]) for what in ("cut", "overlapping", "faint")),
        )


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The machine's Chromium; tests that ask for it are skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("needs Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield Chromium(browser, tmp_path_factory.mktemp("screenshots"))
        browser.close()
