"""Listeners, each with a name: how they are set, and which gateways their clients are told of."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka.protocol.admin import DescribeClusterRequest, DescribeClusterResponse
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from group_coordinator.pipeline.cli.gateway import authentication_lines
from group_coordinator.pipeline.cli.gateway import read_listeners as of_command
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.errors import CannotListen, UsageError
from group_coordinator.pipeline.gateway.brokers import Broker, Brokers
from group_coordinator.pipeline.gateway_settings import (
    Endpoint,
    GatewaySettings,
    Listener,
    read_listeners,
)
from group_coordinator.pipeline.settings import SettingsError, to_settings
from group_coordinator.pipeline.tables.store import read_table, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.schemas.rows import GatewayEvent, GatewayListener
from group_coordinator.schemas.tables import GATEWAYS, from_arrow, to_arrow
from tests.pipeline.gateway.raw import Client, connected
from tests.pipeline.gateway.running import coordinator, gateway, gateways

PROTOCOLS = GatewaySettings().listener_security_protocol_map
BOTH = "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
MAP = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


# --- settings -------------------------------------------------------------------------------------


def test_listeners_have_names_protocols_and_addresses() -> None:
    listeners = " plaintext://0.0.0.0:9092 , Out.side-1://[::1]:9093"
    advertised = "PLAINTEXT://kafka.inside:9092,OUT.SIDE-1://kafka.example:19093"
    assert read_listeners(listeners, advertised, "plaintext:plaintext,OUT.SIDE-1:sasl_ssl") == (
        Listener(
            "PLAINTEXT", "PLAINTEXT", Endpoint("0.0.0.0", 9092), Endpoint("kafka.inside", 9092)
        ),
        Listener("OUT.SIDE-1", "SASL_SSL", Endpoint("::1", 9093), Endpoint("kafka.example", 19093)),
    )
    assert read_listeners("", "", PROTOCOLS) == ()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listeners": "localhost:9092"}, "listeners: 'localhost:9092' is not NAME://HOST:PORT"),
        ({"listeners": "SSL://:9092"}, "listeners: 'SSL://:9092' is not"),
        ({"listeners": "SSL://h:99999"}, "listeners: 'SSL://h:99999' is not"),
        ({"listeners": "SSL://h:1,ssl://h:2"}, "listeners: the name SSL is used twice"),
        ({"listeners": "MINE://h:1"}, "MINE has no protocol in listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "clients of PLAINTEXT cannot connect to 0.0.0.0"),
        ({"listeners": "SSL://h:1"}, "listeners: SSL needs ssl.certificate.location"),
        ({"listeners": "SASL_PLAINTEXT://h:1"}, "listeners: SASL_PLAINTEXT needs users.file"),
        (
            {"advertised.listeners": "SSL://h:1"},
            "advertised.listeners: the names must be those of listeners",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised.listeners": "SSL://h:1"},
            "advertised.listeners: the names must be those of listeners",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "users.file": "users"},
            "users.file is set, but no listener has a security protocol that uses it",
        ),
        ({"listener.security.protocol.map": "A:TLS"}, "'A:TLS' is not NAME:PROTOCOL"),
    ],
)
def test_what_cannot_be_is_named(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        to_settings({"gateway": settings})
    assert why in str(refused.value)


def test_without_listeners_there_is_the_one_of_the_command() -> None:
    only, users = GatewaySettings(), GatewaySettings(users_file="users")
    assert of_command(only, None, None) == (
        Listener("PLAINTEXT", "PLAINTEXT", Endpoint("127.0.0.1", 9092)),
    )
    assert of_command(users, "0.0.0.0:1", "h:2") == (
        Listener("SASL_PLAINTEXT", "SASL_PLAINTEXT", Endpoint("0.0.0.0", 1), Endpoint("h", 2)),
    )


@pytest.mark.parametrize("options", [("localhost:1", None), (None, "localhost:1")])
def test_where_to_listen_is_said_once(options: tuple[str | None, str | None]) -> None:
    named = GatewaySettings(listeners="PLAINTEXT://localhost:9092")
    assert len(of_command(named, None, None)) == 1
    with pytest.raises(UsageError, match="cannot be used with the setting listeners"):
        of_command(named, *options)


@pytest.mark.parametrize(
    ("settings", "at", "warning"),
    [
        ({}, "127.0.0.1", None),
        (
            {},
            "kafka.example",
            "kafka.example IS NOT A LOOPBACK ADDRESS AND PLAINTEXT HAS NO AUTHENTICATION",
        ),
        (
            {"users_file": "u"},
            "127.0.0.1",
            "without TLS the mechanism PLAIN sends passwords in clear text",
        ),
        ({"users_file": "u", "sasl_enabled_mechanisms": "SCRAM-SHA-256"}, "kafka.example", None),
        (
            {
                "users_file": "u",
                "ssl_certificate_location": "certificate",
                "ssl_key_location": "key",
            },
            "kafka.example",
            None,
        ),
    ],
)
def test_what_is_open_is_told_at_the_start(
    settings: dict[str, str], at: str, warning: str | None
) -> None:
    one = GatewaySettings(**settings)
    lines = authentication_lines(one, one.single_listener((at, 9092)))
    warned = [line for level, line in lines if level == logging.WARNING]
    assert len(warned) == (warning is not None)
    assert all(str(warning) in line for line in warned)


# --- whom clients are told of ---------------------------------------------------------------------


def told(client: Client) -> set[Broker]:
    """All that a client is told of gateways, by each of the APIs that tell of them."""
    metadata = client.ask(
        MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse, 4
    )
    found = {Broker(each.node_id, each.host, each.port) for each in metadata.brokers}
    nodes = {each.node_id for each in found}
    assert metadata.controller_id in nodes
    assert {each.leader_id for topic in metadata.topics for each in topic.partitions} <= nodes
    cluster = client.ask(DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse, 1)
    assert cluster.controller_id in nodes
    assert {Broker(each.broker_id, each.host, each.port) for each in cluster.brokers} == found
    for number in range(20):
        asked = FindCoordinatorRequest(key=f"g{number}", key_type=0)
        answer = client.ask(asked, FindCoordinatorResponse, 1)
        assert Broker(answer.node_id, answer.host, answer.port) in found
    return found


def told_at(broker: Broker) -> set[Broker]:
    with connected(broker) as client:
        return told(client)


@contextmanager
def looking(root: str) -> Iterator[None]:
    create_topic(root, "orders", 8)
    with coordinator(root):
        yield


def test_a_client_is_told_the_addresses_of_the_listener_by_which_it_came(root: str) -> None:
    two = GatewaySettings(listeners=BOTH, listener_security_protocol_map=MAP)
    with looking(root), gateways(root, settings=two) as first, gateways(root, settings=two) as last:
        first.refresh()
        for name in ("INSIDE", "OUTSIDE"):
            wanted = {first.own_by_listener[name], last.own_by_listener[name]}
            for each in wanted:
                assert told_at(each) == wanted
        assert len({each.port for at in (first, last) for each in at.own_by_listener.values()}) == 4


def test_a_client_is_told_the_advertised_address(root: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    named = GatewaySettings(
        listeners=f"INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:{port}",
        advertised_listeners="INSIDE://127.0.0.1:7,OUTSIDE://kafka.example:19092",
        listener_security_protocol_map=MAP,
    )
    with looking(root), gateways(root, settings=named):
        assert told_at(Broker(0, "127.0.0.1", port)) == {Broker(0, "kafka.example", 19092)}


def test_who_cannot_listen_at_all_addresses_listens_at_none(root: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:{taken.getsockname()[1]}"
        named = GatewaySettings(listeners=where, listener_security_protocol_map=MAP)
        with (
            pytest.raises(CannotListen, match="cannot listen on"),
            gateways(root, settings=named),
        ):
            pass
    # A socket that was left open is told of when it is collected, and a warning is a failure.
    gc.collect()


def test_gateways_of_other_listeners_are_not_told(root: str) -> None:
    """As one with TLS and one without it: their clients cannot connect to each other's."""
    other = GatewaySettings(
        listeners="OTHER://127.0.0.1:0", listener_security_protocol_map="OTHER:PLAINTEXT"
    )
    with looking(root), gateway(root) as plain, gateways(root, settings=other) as others:
        assert told_at(plain) == {plain}
        assert told_at(others.own) == {others.own}
        assert plain.node_id != others.own.node_id


# --- the table ------------------------------------------------------------------------------------


def test_a_row_has_the_addresses_of_all_listeners(root: str) -> None:
    brokers = Brokers(root, {"INSIDE": ("a", 1), "OUTSIDE": ("b", 2)})
    (event,) = from_arrow(GatewayEvent, read_table(root, GATEWAYS))
    assert (event.host, event.port) == ("a", 1)
    assert event.listeners == (
        GatewayListener("INSIDE", "a", 1),
        GatewayListener("OUTSIDE", "b", 2),
    )
    assert brokers.own_by_listener == {"INSIDE": Broker(0, "a", 1), "OUTSIDE": Broker(0, "b", 2)}
    again = Brokers(root, {"ELSE": ("a", 1)})
    brokers.stop()
    assert again.own == Broker(0, "a", 1)


def test_a_gateway_of_an_earlier_release_is_told_to_all(root: str) -> None:
    """Its rows say nothing of listeners, and the table had no such column."""
    old = GATEWAYS.schema.remove(GATEWAYS.schema.get_field_index("listeners"))
    DeltaTable.create(table_uri(root, GATEWAYS), old)
    row = to_arrow(GATEWAYS, [GatewayEvent(0, 0, "old", 1, False, 1_000)])
    assert Appender(table_uri(root, GATEWAYS)).append(row.select(old.names), "gateways", 0)
    brokers = Brokers(root, {"INSIDE": ("a", 1), "OUTSIDE": ("b", 2)})
    assert brokers.alive("INSIDE") == [Broker(0, "old", 1), Broker(1, "a", 1)]
    assert brokers.alive("OUTSIDE") == [Broker(0, "old", 1), Broker(1, "b", 2)]
