"""The file of keys, and who signs by one of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from kafka.protocol.consumer.group import HeartbeatResponse
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.credentials import keys_app
from group_coordinator.pipeline.client import ProducerSettings, RequestClient
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.tables.request_keys import (
    KeysError,
    add_key,
    new_key,
    read_key,
    read_keys,
)
from group_coordinator.pipeline.tables.request_signer import KEY_FILE, PRINCIPAL
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent
from tests.pipeline.asking import ask
from tests.pipeline.gateway.running import coordinator, gateway
from tests.pipeline.gateway.test_server import Client, connected
from tests.pipeline.gateway.test_server import heartbeat as heartbeat_frame


def keys(*words: str) -> str:
    done = CliRunner().invoke(keys_app, [*words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The coordinator's file of keys, and a file for each of those that sign."""
    for name, principal in (("alice", "User:alice"), ("gateway", "*")):
        file, out = (str(tmp_path / each) for each in ("keys", name))
        keys("add", name, "--principal", principal, "--file", file, "--out", out)
    return tmp_path


def test_keys_are_made_listed_and_removed_by_the_command(folder: Path) -> None:
    file = str(folder / "keys")
    csv = "name,principal\nalice,User:alice\ngateway,*\n"
    assert keys("list", "--file", file, "--format", "csv") == csv
    assert read_key(folder / "alice") in read_keys(file)
    assert (folder / "alice").stat().st_mode & 0o077 == 0
    keys("remove", "alice", "--file", file)
    assert keys("list", "--file", file) == "name    principal\ngateway *\n"


def test_what_is_no_file_of_keys_is_named_without_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(0o600)
    path.write_bytes(b'{"name":"a","principal":"User:a","secret":"topsecret!"}')
    with pytest.raises(KeysError, match=r"line 1 of .* is not a valid key$"):
        read_keys(path)
    path.write_bytes(msgspec.json.encode({"name": "a", "principal": "*", "secret": b"short"}))
    with pytest.raises(KeysError, match="shorter than 16 bytes"):
        read_keys(path)
    with pytest.raises(KeysError, match="No such file"):
        read_keys(tmp_path / "nowhere")
    with pytest.raises(KeysError, match="TYPE:NAME"):
        new_key("a", "alice")
    twice = tmp_path / "twice"
    add_key(twice, new_key("a", "User:a"))
    with pytest.raises(KeysError, match="remove it first"):
        add_key(twice, new_key("a", "User:a"))
    add_key(twice, new_key("b", "User:a"))
    with pytest.raises(KeysError, match="2 keys"):
        read_key(twice)


def heartbeat(request_id: str, principal: str | None = None) -> RequestEvent:
    body = HeartbeatRequest(1, "nobody")
    return RequestEvent(request_id, "g", "heartbeat", principal=principal, heartbeat=body)


def test_requests_are_believed_by_their_signatures_through_the_tables(
    folder: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing = ProducerSettings(linger_ms=0, request_key_file=str(folder / "alice"))
    with coordinator(root, read_keys(folder / "keys")):
        with RequestClient(root, signing) as client:
            mine = client.ask(heartbeat("1"))
            others = client.ask(heartbeat("2", "User:bob"))
        assert mine.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert others.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        # The command's requests are of whom the environment names.
        assert ask(root, heartbeat("3")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        monkeypatch.setenv(PRINCIPAL, "User:alice")
        assert ask(root, heartbeat("4")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        monkeypatch.setenv(KEY_FILE, str(folder / "alice"))
        assert ask(root, heartbeat("5")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_gateway_vouches_for_its_clients(
    folder: Path, empty_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "root")
    shutil.copytree(empty_root, root)
    # Whoever started the gateway: its clients are not that one.
    monkeypatch.setenv(PRINCIPAL, "User:alice")
    settings = GatewaySettings(request_key_file=str(folder / "gateway"))
    with (
        coordinator(root, read_keys(folder / "keys")),
        gateway(root, settings=settings) as broker,
        connected(broker) as client,
    ):
        assert beat(client) == ErrorCode.UNKNOWN_MEMBER_ID


def beat(client: Client) -> int:
    return int(client.ask(heartbeat_frame(), HeartbeatResponse, 4).error_code)
