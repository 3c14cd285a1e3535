"""The pages in a real browser: a server in a thread, and Chromium without a screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from group_coordinator.pipeline.ui.app import Access, make_app
from group_coordinator.pipeline.ui.root_snapshot import SnapshotCache
from tests.waiting import wait_until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@contextmanager
def served(root: str, access: Access | None = None) -> Iterator[str]:
    """The address of a server of a root's pages, in a thread."""
    config = uvicorn.Config(
        make_app(SnapshotCache(root), access), port=0, log_config=None, lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run)
    thread.start()
    wait_until("the server starts", lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def opened_chromium(*arguments: str) -> Iterator[Any]:
    """A browser with further arguments of its command line."""
    options = ChromeOptions()
    options.binary_location = CHROMIUM or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1280,900", *arguments):
        options.add_argument(argument)
    browser = Chrome(options=options, service=ChromeService(DRIVER))
    try:
        yield browser
    finally:
        browser.quit()
