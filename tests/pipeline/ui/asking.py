"""A browser without a screen: pages asked of an application in the process."""

from __future__ import annotations

import html
import re
from typing import Any

from starlette.testclient import TestClient

from group_coordinator.pipeline.ui.app import Access, make_app
from group_coordinator.pipeline.ui.root_snapshot import SnapshotCache

ADDRESS = "http://127.0.0.1:8080"
KEY = "the-key"


def browser(root: str, access: Access | None = None, **options: Any) -> TestClient:
    """A browser at the pages of a root; a page that fails raises its error."""
    held = SnapshotCache(root, options.pop("refresh_s", 60.0))
    return TestClient(make_app(held, access, **options), base_url=ADDRESS)


def changing(root: str, **options: Any) -> TestClient:
    """A browser that has opened the link with the key."""
    client = browser(root, Access(KEY), **options)
    assert client.get("/", params={"key": KEY}).status_code == 200
    return client


def rows_of(page: str, name: str = "Groups") -> list[list[str]]:
    """The cells of each row of a table's body, by the name of the region around it."""
    region = page.partition(f'role="region" aria-label="{name}"')[2]
    body = region.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [[text(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)] for row in rows]


def text(markup: str) -> str:
    """What a reader sees of some markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", markup)).split())


def links(page: str, start: str) -> list[str]:
    """The addresses on a page that begin so."""
    found = re.findall(r'href="([^"]*)"', page)
    return [link for link in map(html.unescape, found) if link.startswith(start)]
