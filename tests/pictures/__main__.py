"""Takes the pictures of pipeline/ui/README.md, with Chromium and its driver installed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.clock import clock_ms
from tests.pictures.history import VirtualClock, write_history
from tests.pipeline.ui.chromium import opened_chromium, served

FOLDER = Path(__file__).absolute().parents[2] / "pipeline" / "ui"
_WIDTH = 1280
# The visible part of a page, px; the group's page continues below.
_HEIGHTS = {"groups.png": 760, "group.png": 1680}


def take(browser: Any, address: str, name: str) -> None:
    """Take the picture of a page."""
    metrics = {
        "width": _WIDTH,
        "height": _HEIGHTS[name],
        "deviceScaleFactor": 1,
        "mobile": False,
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(address)
    (FOLDER / name).write_bytes(browser.get_screenshot_as_png())


def main() -> None:
    """Make the history, serve its pages, and take both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        # The pages name the root as it is given: not by a path of this machine.
        os.chdir(folder)
        root, now = "groups", clock_ms()
        write_history(root, now)
        # The pages show the end of the history.
        bars = "--hide-scrollbars"
        with (
            clock.use(VirtualClock(now)),
            served(root) as address,
            opened_chromium(bars) as browser,
        ):
            take(browser, address, "groups.png")
            take(browser, f"{address}/group?id=billing", "group.png")


if __name__ == "__main__":
    main()
