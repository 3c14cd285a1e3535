"""The server's guard: DNS rebinding, forms of other sites, and the resources of a page."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from group_coordinator.pipeline.hosts import is_loopback
from group_coordinator.pipeline.ui.app import POLICY, Access
from tests.pipeline.ui.asking import KEY, browser


@pytest.fixture(scope="module")
def client(empty_root) -> TestClient:
    return browser(str(empty_root), Access(KEY), names={"Groups.Example"})


@pytest.mark.parametrize("address", ["/", "/nowhere", "/static/style.css", "/snapshot", "/group"])
def test_every_answer_forbids_what_is_not_ours(client: TestClient, address: str) -> None:
    headers = client.get(address).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1:8080", "[::1]:8080", "GROUPS.example:80"]
)
def test_names_that_are_ours_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "",
        "localhost.evil.example",
        "[",
        "127.0.0.1.x",
        "evil@127.0.0.1",
    ],
)
def test_other_names_are_not(client: TestClient, host: str) -> None:
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "Groups" not in answer.text


@pytest.mark.parametrize(
    "origin",
    [None, "null", "http://evil.example", "http://localhost:8080", "http://127.0.0.1:9999", "["],
)
def test_another_site_changes_nothing(client: TestClient, origin: str | None) -> None:
    headers = {"cookie": f"{Access(KEY).cookie}={KEY}"}
    if origin is not None:
        headers["origin"] = origin
    answer = client.post("/group/apply", headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_no_other_method_does_anything(client: TestClient, method: str) -> None:
    assert client.request(method, "/group/apply").status_code in (403, 405)


def test_pages_are_not_kept_and_files_of_a_release_are(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-store"
    style = page.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert "immutable" in client.get(style).headers["cache-control"]
    assert client.get("/static/style.css").headers["cache-control"] == "no-cache"


def test_only_files_that_are_listed_are_served(client: TestClient) -> None:
    for name in ("..%2fapp.py", "%2e%2e/app.py", "app.py", "style.css%00"):
        assert client.get(f"/static/{name}").status_code == 404


def test_a_body_has_a_bound(client: TestClient) -> None:
    answer = client.post(
        "/group/apply", content=b"x" * 100_000, headers={"origin": str(client.base_url)}
    )
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("name", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("x", False)],
)
def test_which_addresses_are_reached_from_this_machine_only(name: str, expected: bool) -> None:
    assert is_loopback(name) is expected
