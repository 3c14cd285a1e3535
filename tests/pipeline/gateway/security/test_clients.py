"""Unmodified clients log in over plain sockets and over TLS, and wrong passwords get nowhere."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition
from kafka.protocol.consumer.group import HeartbeatRequest, HeartbeatResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from group_coordinator.pipeline.gateway.acceptor import CertificateError, server_context
from group_coordinator.pipeline.gateway.users import add_user, new_credential
from group_coordinator.pipeline.gateway_settings import MECHANISMS, GatewaySettings
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.schemas.errors import ErrorCode
from tests.pipeline.gateway.raw import Client
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until


class Secured(NamedTuple):
    root: str
    plain: str
    tls: str
    certificate: str


@pytest.fixture(scope="module")
def secured(
    empty_root: Path, certificate: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Two gateways of a root: one without TLS and one with it, both for users only.

    A client that was told of the other one could not connect to it.
    """
    folder = tmp_path_factory.mktemp("secured")
    root, users = str(folder / "root"), folder / "users"
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    create_topic(root, "orders", 4)
    both = [new_credential("alice", "wonder", each) for each in MECHANISMS[1:]]
    add_user(users, both)
    plain = GatewaySettings(users_file=str(users))
    tls = GatewaySettings(
        users_file=str(users),
        ssl_certificate_location=str(certificate),
        ssl_key_location=str(certificate.with_name("key.pem")),
    )
    with (
        coordinator(root),
        gateway(root, settings=plain) as first,
        gateway(root, settings=tls) as second,
    ):
        yield Secured(
            root,
            f"{first.host}:{first.port}",
            f"{second.host}:{second.port}",
            str(certificate),
        )


PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
# Each mechanism on one of the two.
LOG_INS = list(zip(MECHANISMS, (*PROTOCOLS[::-1], PROTOCOLS[1]), strict=True))


def address(secured: Secured, protocol: str) -> str:
    return secured.tls if protocol == "SASL_SSL" else secured.plain


@pytest.mark.parametrize(("mechanism", "protocol"), LOG_INS)
def test_kafka_python_logs_in(
    secured: Secured, mechanism: str, protocol: str, kafka_python: ExitStack
) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=address(secured, protocol),
        security_protocol=protocol,
        ssl_cafile=secured.certificate,
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password="wonder",
        group_id="kp",
    )
    kafka_python.enter_context(closing(consumer))
    assert consumer.partitions_for_topic("orders") == {0, 1, 2, 3}
    assert consumer.committed(TopicPartition("orders", 0)) is None


@pytest.mark.parametrize(("mechanism", "protocol"), LOG_INS)
def test_librdkafka_logs_in(secured: Secured, mechanism: str, protocol: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address(secured, protocol),
            "security.protocol": protocol,
            "ssl.ca.location": secured.certificate,
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "wonder",
            "group.id": f"rd-{mechanism}",
        }
    )
    first = confluent_kafka.TopicPartition("orders", 0, 5)
    consumer.commit(offsets=[first], asynchronous=False)
    assert consumer.committed([first], timeout=30)[0].offset == 5
    consumer.close()


@pytest.mark.parametrize(("mechanism", "protocol"), LOG_INS)
def test_aiokafka_logs_in(secured: Secured, mechanism: str, protocol: str) -> None:
    async def topics() -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address(secured, protocol),
            security_protocol=protocol,
            ssl_context=ssl.create_default_context(cafile=secured.certificate),
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password="wonder",
        )
        await consumer.start()
        try:
            return await consumer.topics()
        finally:
            await consumer.stop()

    assert asyncio.run(topics()) == {"orders"}


def test_a_wrong_password_is_told_to_the_client(secured: Secured) -> None:
    found: list[Any] = []
    client = AdminClient(
        {
            "bootstrap.servers": secured.tls,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": secured.certificate,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "wrong",
            "error_cb": found.append,
        }
    )
    refused = confluent_kafka.KafkaError._AUTHENTICATION
    wait_until(
        lambda: f"a refusal, but {found}",
        lambda: refused in [each.code() for each in found],
        meanwhile=lambda: client.poll(1),
    )


def test_the_principal_stands_in_the_request_s_row(secured: Secured) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": secured.plain,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wonder",
            "group.id": "of-alice",
        }
    )
    consumer.committed([confluent_kafka.TopicPartition("orders", 0)], timeout=30)
    consumer.close()
    rows = DeltaTable(f"{secured.root}/requests").to_pyarrow_table().to_pylist()
    mine = {row["principal"] for row in rows if row["group_id"] == "of-alice"}
    assert mine == {"User:alice"}


def test_no_password_stands_in_a_table(secured: Secured) -> None:
    test_librdkafka_logs_in(secured, "PLAIN", "SASL_PLAINTEXT")
    tables = [each.parent for each in Path(secured.root).rglob("_delta_log")]
    rows = {each.name: str(DeltaTable(each).to_pyarrow_table().to_pylist()) for each in tables}
    assert "User:alice" in rows["requests"]
    assert [name for name, text in rows.items() if "wonder" in text] == []


# --- the order of requests ----------------------------------------------------------------------


@pytest.fixture
def client(secured: Secured) -> Iterator[Client]:
    host, port = secured.plain.split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        yield Client(connection)


def versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def handshake(client: Client, version: int = 1, mechanism: str = "PLAIN") -> Any:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)


def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return client.ask(request, SaslAuthenticateResponse, version)


@pytest.mark.parametrize("version", range(3))
def test_a_client_that_has_logged_in_is_served(client: Client, version: int) -> None:
    assert client.ask(versions(), ApiVersionsResponse, 3).error_code == 0
    assert handshake(client).error_code == 0
    assert authenticate(client, b"\0alice\0wonder", version).error_code == 0
    answer = client.ask(heartbeat(), HeartbeatResponse, 4)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client, b"").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_after_a_handshake_of_version_0_tokens_come_bare(client: Client) -> None:
    assert handshake(client, version=0).error_code == 0
    token = b"\0alice\0wonder"
    client.socket.sendall(struct.pack(">i", len(token)) + token)
    assert client._exactly(4) == struct.pack(">i", 0)
    assert client.ask(heartbeat(), HeartbeatResponse, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_another_request_before_the_log_in_closes_the_connection(client: Client) -> None:
    client.send(heartbeat(), 4)
    assert client.is_closed()


def test_another_request_between_handshake_and_token_closes_it_too(client: Client) -> None:
    handshake(client)
    client.send(heartbeat(), 4)
    assert client.is_closed()


@pytest.mark.parametrize("first", ["versions", "handshake"])
def test_versions_are_asked_once_and_first(client: Client, first: str) -> None:
    if first == "versions":
        client.ask(versions(), ApiVersionsResponse, 3)
    else:
        handshake(client)
    client.send(versions(), 3)
    assert client.is_closed()


def test_a_version_of_api_versions_that_is_not_known_may_be_asked_again(client: Client) -> None:
    request = versions()
    request.API_VERSION = 3
    request.with_header(correlation_id=1, client_id="raw")
    frame = bytearray(request.encode(header=True, framed=True))
    frame[6:8] = struct.pack(">h", 99)
    client.socket.sendall(frame)
    client.sent = 1
    assert client.receive(ApiVersionsResponse, 0)[1].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.ask(versions(), ApiVersionsResponse, 3).error_code == 0


def test_a_token_before_the_handshake_closes_the_connection(client: Client) -> None:
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), 2)
    assert client.is_closed()


def test_an_unknown_mechanism_is_answered_with_those_that_there_are(client: Client) -> None:
    answer = handshake(client, mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert tuple(answer.mechanisms) == MECHANISMS
    assert client.is_closed()


@pytest.mark.parametrize("version", [0, 1])
def test_a_wrong_password_is_answered_and_the_connection_closed(
    client: Client, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    why = "Authentication failed: Invalid username or password"
    caplog.set_level(logging.INFO)
    handshake(client, version)
    if version:
        answer = authenticate(client, b"\0alice\0wrong")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == why
    else:
        client.socket.sendall(struct.pack(">i", 12) + b"\0alice\0wrong")
    assert client.is_closed()
    assert f"{why} (user 'alice')" in caplog.text


def test_a_stranger_may_send_small_frames_only(client: Client) -> None:
    client.socket.sendall(struct.pack(">i", 600_000))
    assert client.is_closed()


def test_a_client_without_tls_disturbs_nobody(secured: Secured, kafka_python: ExitStack) -> None:
    host, port = secured.tls.split(":")
    with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
        raw = Client(connection)
        raw.send(versions(), 3)
        assert raw.is_closed()
    test_kafka_python_logs_in(secured, "PLAIN", "SASL_SSL", kafka_python)


def test_a_certificate_that_cannot_be_used_is_named(certificate: Path, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"nowhere\.pem"):
        server_context(str(tmp_path / "nowhere.pem"), str(certificate))
    with pytest.raises(CertificateError, match=r"certificate\.pem"):
        server_context(str(certificate), str(certificate))
