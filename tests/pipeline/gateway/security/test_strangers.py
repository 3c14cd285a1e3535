"""What clients that have not said who they are can take of a gateway: next to nothing."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.request
from asyncio import sslproto
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import takewhile
from pathlib import Path
from subprocess import PIPE, STDOUT
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.group import HeartbeatResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from group_coordinator.pipeline.gateway import connection, receiving, server
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.refusals import RefusalCounts
from group_coordinator.pipeline.gateway.session import Session
from group_coordinator.pipeline.gateway.users import (
    Credential,
    Users,
    add_user,
    new_credential,
)
from group_coordinator.pipeline.gateway_settings import MECHANISMS, GatewaySettings
from group_coordinator.schemas.errors import ErrorCode
from tests.ends import check_end
from tests.pipeline.gateway.raw import Client, heartbeat
from tests.pipeline.gateway.running import coordinator, gateway, gateways
from tests.waiting import LIMIT_S, wait_until

OTHER = "127.0.0.2"


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    """The test's connections, which end with it."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def connect(clients: ExitStack) -> Callable[..., Client]:
    def connect(broker: Broker, host: str = "127.0.0.1") -> Client:
        made = socket.create_connection((broker.host, broker.port), 30, source_address=(host, 0))
        client = Client(made)
        clients.callback(lambda: client.socket.close())
        return client

    return connect


@pytest.fixture
def users(tmp_path: Path) -> str:
    """A file of users, of which alice is one."""
    path = tmp_path / "users"
    add_user(path, [new_credential("alice", "wonder", MECHANISMS[1])])
    return str(path)


def with_tls(certificate: Path, **settings: Any) -> GatewaySettings:
    return GatewaySettings(
        ssl_certificate_location=str(certificate),
        ssl_key_location=str(certificate.with_name("key.pem")),
        **settings,
    )


def over_tls(client: Client, certificate: Path) -> Client:
    context = ssl.create_default_context(cafile=certificate)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def is_served(client: Client) -> bool:
    return bool(client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0)


def is_open(client: Client) -> bool:
    client.socket.settimeout(0)
    try:
        return client.socket.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def try_password(client: Client, password: bytes) -> None:
    """Send a password by PLAIN; the answer is to be received."""
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + password), 2)


def is_let_in(client: Client) -> bool:
    return bool(client.receive(SaslAuthenticateResponse, 2)[1].error_code == 0)


def log_in(client: Client) -> None:
    try_password(client, b"wonder")
    assert is_let_in(client)


# --- how many -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_who_is_silent_counts_from_the_moment_it_is_accepted(
    root: str, connect: Callable[..., Client], certificate: Path, tls: bool
) -> None:
    """Over TLS it does before the handshake, which a stranger need not begin."""
    most = {"max_connections": 20}
    settings = with_tls(certificate, **most) if tls else GatewaySettings(**most)
    with gateway(root, settings=settings) as broker:
        strangers = [connect(broker) for _ in range(60)]

        def held() -> list[Client]:
            return [each for each in strangers if is_open(each)]

        wait_until(lambda: f"20, not {len(held())}", lambda: len(held()) == 20)
        for each in held():
            each.socket.close()

        def serves() -> bool:
            with suppress(OSError, AssertionError):
                client = connect(broker)
                served = is_served(over_tls(client, certificate) if tls else client)
                client.socket.close()
                return served
            return False

        wait_until("their places", serves)


@pytest.mark.parametrize("tls", [False, True])
def test_one_address_does_not_take_the_places_of_others(
    root: str, connect: Callable[..., Client], certificate: Path, tls: bool
) -> None:
    most = {"max_connections": 20, "max_connections_per_ip": 5}
    settings = with_tls(certificate, **most) if tls else GatewaySettings(**most)
    with gateway(root, settings=settings) as broker:
        strangers = [connect(broker) for _ in range(60)]
        wait_until("5 places", lambda: sum(is_open(each) for each in strangers) == 5)
        client = connect(broker, OTHER)
        assert is_served(over_tls(client, certificate) if tls else client)
        client.socket.close()


def test_descriptors_are_kept_for_the_gateway_s_own_files(
    root: str,
    connect: Callable[..., Client],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(server, "_open_files", lambda: 210)
    with gateway(root, settings=with_tls(certificate)) as broker:
        strangers = [connect(broker) for _ in range(60)]
        wait_until("10 places", lambda: sum(is_open(each) for each in strangers) == 10)
    assert (
        "gateway: at most 10 connections: max.connections is 100000, the limit on open files 210, "
        "of which 200 are reserved for the gateway itself"
    ) in caplog.messages
    # Strangers write no log of any length.
    assert sum("is refused" in line for line in caplog.messages) == 10


def test_who_is_silent_has_no_buffers_for_tls(
    root: str,
    connect: Callable[..., Client],
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[sslproto.SSLProtocol] = []
    make = sslproto.SSLProtocol.__init__

    def counted(self: sslproto.SSLProtocol, *args: Any, **options: Any) -> None:
        made.append(self)
        make(self, *args, **options)

    monkeypatch.setattr(sslproto.SSLProtocol, "__init__", counted)
    with gateway(root, settings=with_tls(certificate)) as broker:
        for _ in range(20):
            connect(broker)
        client = over_tls(connect(broker), certificate)
        assert is_served(client)
        assert len(made) == 1
        client.socket.close()


# --- how long -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("says", ["nothing", "a byte", "versions"])
def test_who_does_not_log_in_is_closed_at_the_deadline(
    root: str,
    connect: Callable[..., Client],
    certificate: Path,
    users: str,
    monkeypatch: pytest.MonkeyPatch,
    tls: bool,
    says: str,
) -> None:
    monkeypatch.setattr(connection, "AUTHENTICATION_LIMIT_S", 0.5)
    monkeypatch.setattr(server, "AUTHENTICATION_LIMIT_S", 0.5)
    settings = GatewaySettings(users_file=users)
    if tls:
        settings = with_tls(certificate, users_file=users)
    with gateway(root, settings=settings) as broker:
        client = connect(broker)
        if says == "a byte":
            client.socket.sendall(b"\x16" if tls else b"\0")
        if says == "versions":
            client = over_tls(client, certificate) if tls else client
            with suppress(OSError, AssertionError):
                is_served(client)
        with suppress(ConnectionError):
            assert client.is_closed()


def test_a_flood_of_wrong_passwords_costs_who_sends_it(
    root: str, connect: Callable[..., Client], users: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next log-in from elsewhere was behind all of them: 2,000 were a wait of 2.5 s."""
    asked: list[str] = []
    checked: list[str] = []
    all_have_asked = threading.Event()
    ask, check = Users.has_password, Credential.has_password

    def count(self: Users, user: str, password: str, host: str) -> Any:
        asked.append(password)
        return ask(self, user, password, host)

    def wait_for_all(self: Credential, password: str) -> bool:
        assert all_have_asked.wait(LIMIT_S)
        checked.append(password)
        return check(self, password)

    monkeypatch.setattr(Users, "has_password", count)
    monkeypatch.setattr(Credential, "has_password", wait_for_all)
    with gateway(root, settings=GatewaySettings(users_file=users)) as broker:
        flood = [connect(broker, OTHER) for _ in range(30)]
        for each in flood:
            try_password(each, b"wrong")
        wait_until("the flood", lambda: len(asked) == 30)
        client = connect(broker)
        try_password(client, b"wonder")
        wait_until("a user", lambda: len(asked) == 31)
        all_have_asked.set()
        assert is_let_in(client)
        assert not any(is_let_in(each) for each in flood)
    assert checked.index("wonder") == 1


def test_wrong_passwords_are_counted_where_prometheus_looks(
    root: str, connect: Callable[..., Client], users: str, tmp_path: Path
) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(f'[gateway]\nusers.file = "{users}"\n')
    at, options = ["--root", root, "--listen", "127.0.0.1:0"], ["--config", str(config)]
    command = [sys.executable, "-m", "group_coordinator", "gateway", *at, *options]
    with subprocess.Popen(
        [*command, "--metrics", "127.0.0.1:0"], stdout=PIPE, stderr=STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = "".join(
                takewhile(lambda line: "clients authenticate" not in line, process.stdout)
            )
            (told,) = re.findall(r"http://127\.0\.0\.1:\d+/metrics", said)
            (port,) = re.findall(r"at 127\.0\.0\.1:(\d+) serves", said)
            client = connect(Broker(0, "127.0.0.1", int(port)))
            try_password(client, b"wrong")
            assert not is_let_in(client)
            with urllib.request.urlopen(told) as answer:
                text = answer.read().decode()
        finally:
            process.terminate()
            said += process.stdout.read()
    check_end(process.returncode, said)
    assert re.findall(r"^group_coordinator_gateway_refusals_total.*$", text, re.M) == [
        'group_coordinator_gateway_refusals_total{api="sasl_authenticate",'
        'error="SASL_AUTHENTICATION_FAILED"} 1.0'
    ]


# --- how much -------------------------------------------------------------------------------------


def test_only_who_has_logged_in_may_send_large_frames(users: str) -> None:
    settings = GatewaySettings(users_file=users)
    services: Any = SimpleNamespace(settings=settings, refused=RefusalCounts())
    stranger = Session(services, "l", Users(Path(users)), "10.0.0.1")
    anybody = Session(services, "l", None, "10.0.0.1")
    assert (stranger.must_authenticate, stranger.largest_frame) == (True, 65_536)
    assert anybody.largest_frame == settings.socket_request_max_bytes > 65_536


def test_a_stranger_s_frame_is_no_longer_than_64_kb_and_takes_no_room(
    root: str, connect: Callable[..., Client], users: str
) -> None:
    settings = GatewaySettings(
        users_file=users, sasl_server_max_receive_size=524_288, queued_max_request_bytes=100_000
    )
    assert settings.sasl_server_max_receive_size == 65_536
    with coordinator(root), gateway(root, settings=settings) as broker:
        too_long = connect(broker)
        too_long.socket.sendall(struct.pack(">ih", 65_537, 36))
        assert too_long.is_closed()
        for _ in range(20):
            connect(broker).socket.sendall(struct.pack(">ih", 65_536, 36) + bytes(60_000))
        client = connect(broker)
        log_in(client)
        large = struct.pack(">ihhih", 100_000, 18, 0, 7, -1) + bytes(100_000 - 10)
        client.socket.sendall(large)
        assert client.receive(ApiVersionsResponse, 0)[0] == 7


def test_what_a_stranger_may_not_ask_is_refused_unread(
    root: str, connect: Callable[..., Client], users: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with gateway(root, settings=GatewaySettings(users_file=users)) as broker:
        client = connect(broker)
        # It is no Metadata request: were it read, the log would say so.
        client.socket.sendall(struct.pack(">ihhih", 60_000, 3, 4, 1, -1) + b"\x7f" * 59_990)
        assert client.is_closed()
    (line,) = [each for each in caplog.messages if "is closed" in each]
    assert line.endswith("API key 3 came before authentication was done")


# --- who needs not log in -------------------------------------------------------------------------


def test_who_announces_frames_and_sends_none_takes_no_room_of_other_addresses(
    root: str, connect: Callable[..., Client]
) -> None:
    with gateway(root, settings=GatewaySettings(queued_max_request_bytes=400_000)) as broker:
        for _ in range(20):
            connect(broker).socket.sendall(struct.pack(">ih", 90_000, 18))
        client = connect(broker, OTHER)
        client.socket.sendall(struct.pack(">ihhih", 90_000, 18, 0, 7, -1) + bytes(90_000 - 10))
        assert client.receive(ApiVersionsResponse, 0)[0] == 7


def test_who_announces_a_frame_and_sends_none_is_closed(
    root: str, connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "FRAME_LIMIT_S", 0.3)
    with gateway(root, settings=GatewaySettings(queued_max_request_bytes=100_000)) as broker:
        strangers = [connect(broker) for _ in range(3)]
        for each in strangers:
            each.socket.sendall(struct.pack(">ih", 90_000, 18))
        client = connect(broker)
        client.socket.sendall(struct.pack(">ihhih", 90_000, 18, 0, 7, -1) + bytes(90_000 - 10))
        for each in strangers:
            assert each.is_closed()
        assert client.receive(ApiVersionsResponse, 0)[0] == 7


def test_a_tls_client_on_a_listener_without_tls_is_told_to_the_log(
    root: str,
    connect: Callable[..., Client],
    certificate: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with gateway(root) as broker:
        client = connect(broker)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            over_tls(client, certificate)
    (line,) = [each for each in caplog.messages if "is closed" in each]
    # The hello has random bytes. With an apostrophe among them, repr uses double quotes.
    assert re.search(r"a TLS hello came to a listener without TLS: b['\"]\\x16\\x03\\x01", line)


def test_each_listener_asks_what_its_protocol_says(
    root: str, connect: Callable[..., Client], certificate: Path, users: str
) -> None:
    """One inside for everybody without TLS, and one outside for users over TLS."""
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"
    settings = with_tls(certificate, users_file=users, listeners=listeners)
    with coordinator(root), gateways(root, settings=settings) as brokers:
        inside, outside = (brokers.own_by_listener[name] for name in ("PLAINTEXT", "SASL_SSL"))
        assert beats(connect(inside))
        stranger = connect(outside)
        stranger.send(heartbeat(), 4)
        assert not is_answered(stranger)
        user = over_tls(connect(outside), certificate)
        log_in(user)
        assert beats(user)
        user.socket.close()


def beats(client: Client) -> bool:
    answer = client.ask(heartbeat(), HeartbeatResponse, 4)
    return bool(answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID)


def is_answered(client: Client) -> bool:
    with suppress(ConnectionError):
        return client.socket.recv(1) != b""
    return False
