"""Settings of the gateway: the section [gateway], with its listeners. Kafka's names are kept.

A listener has a name, a security protocol and its addresses. A client receives the gateways'
addresses for its own listener, so a client that uses TLS is never sent to one without TLS. Source:
Apache Kafka, ListenerName, Endpoint, SecurityProtocol; listeners, advertised.listeners,
listener.security.protocol.map (KIP-103).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from msgspec import Meta
from msgspec.structs import force_setattr

from group_coordinator.coordinator.config import (
    KafkaSettings,
    NonNegativeLong,
    Positive,
    PositiveLong,
)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ALL_ADDRESSES = ("0.0.0.0", "::")
_LISTENER = re.compile(r"([\w.-]+)://(?:\[([^\]]+)\]|([^:/\[\]]+)):([0-9]{1,5})")
# SASL mechanisms: PLAIN, and the SCRAM mechanisms with their hash functions.
PLAIN = "PLAIN"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *HASHES)
# The largest frame that needs no reservation in the shared memory pool, bytes.
FREE_BYTES = 65_536


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class Listener(NamedTuple):
    """A listener; if `advertised` is None, clients receive `address`."""

    name: str
    protocol: str
    address: Endpoint
    advertised: Endpoint | None = None

    @property
    def requires_authentication(self) -> bool:
        """Whether clients must authenticate."""
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether the listener uses TLS."""
        return self.protocol.endswith("SSL")

    def __str__(self) -> str:
        return self.name if self.name == self.protocol else f"{self.name} ({self.protocol})"


def read_listeners(listeners: str, advertised: str, protocols: str) -> tuple[Listener, ...]:
    """Parse the three settings. Raises ValueError, which names the setting."""
    at = _endpoints("listeners", listeners)
    told = _endpoints("advertised.listeners", advertised)
    protocol_of = _protocols(protocols)
    for name in at:
        if name not in protocol_of:
            raise ValueError(f"listeners: {name} has no protocol in listener.security.protocol.map")
    if told and told.keys() != at.keys():
        raise ValueError("advertised.listeners: the names must be those of listeners")
    for name, (host, _) in (told or at).items():
        if host in ALL_ADDRESSES:
            raise ValueError(
                f"advertised.listeners: clients of {name} cannot connect to {host}, all addresses"
            )
    return tuple(
        Listener(name, protocol_of[name], address, told.get(name)) for name, address in at.items()
    )


def _endpoints(setting: str, text: str) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for each in _items(text):
        read = _LISTENER.fullmatch(each)
        if read is None or int(read[4]) > 65_535:
            raise ValueError(f"{setting}: {each!r} is not NAME://HOST:PORT")
        name = read[1].upper()
        if name in found:
            raise ValueError(f"{setting}: the name {name} is used twice")
        found[name] = Endpoint(read[2] or read[3], int(read[4]))
    return found


def _protocols(text: str) -> Mapping[str, str]:
    found = {}
    for each in _items(text):
        name, _, protocol = (part.strip().upper() for part in each.partition(":"))
        if protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise ValueError(
                f"listener.security.protocol.map: {each!r} is not NAME:PROTOCOL, one of {known}"
            )
        found[name] = protocol
    return found


def _items(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


class Tls(NamedTuple):
    """The PEM files of a certificate (chain) and of its key."""

    certificate: str
    key: str


class GatewaySettings(KafkaSettings, frozen=True, kw_only=True):
    """The section [gateway]; conf/coordinator.toml describes each setting. Times in ms.

    An empty path means that there is no such file.
    """

    listeners: str = ""
    advertised_listeners: str = ""
    listener_security_protocol_map: str = ",".join(f"{each}:{each}" for each in PROTOCOLS)
    max_connections: PositiveLong = 100_000
    max_connections_per_ip: PositiveLong = 2**31 - 1
    socket_request_max_bytes: Positive = 104_857_600
    queued_max_requests: PositiveLong = 32_768
    queued_max_request_bytes: PositiveLong = 268_435_456
    fetch_max_bytes: Annotated[int, Meta(ge=1024)] = 57_671_680
    connections_max_idle_ms: PositiveLong = 600_000
    auto_create_topics_enable: bool = False
    num_partitions: PositiveLong = 1
    linger_ms: NonNegativeLong = 100
    produce_linger_ms: NonNegativeLong = 5
    users_file: str = ""
    sasl_enabled_mechanisms: str = ",".join(MECHANISMS)
    sasl_server_max_receive_size: PositiveLong = FREE_BYTES
    request_key_file: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""

    def __post_init__(self) -> None:
        received = min(self.sasl_server_max_receive_size, FREE_BYTES)
        force_setattr(self, "sasl_server_max_receive_size", received)
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                known = ", ".join(MECHANISMS)
                raise ValueError(
                    f"sasl.enabled.mechanisms: {mechanism!r} is not known; known: {known}"
                )
        if bool(self.ssl_certificate_location) != bool(self.ssl_key_location):
            raise ValueError("ssl.certificate.location and ssl.key.location must be set together")
        self._check_listeners()

    def _check_listeners(self) -> None:
        named = self.configured_listeners
        if self.advertised_listeners and not named:
            raise ValueError("advertised.listeners is set, but listeners is not")
        for setting, given, wanted in (
            (
                "users.file",
                self.users_file,
                [each for each in named if each.requires_authentication],
            ),
            ("ssl.certificate.location", self.tls, [each for each in named if each.has_tls]),
        ):
            if wanted and not given:
                raise ValueError(f"listeners: {wanted[0]} needs {setting}")
            # The operator wants a protected listener, so an unprotected one would be a mistake.
            if named and given and not wanted:
                raise ValueError(
                    f"{setting} is set, but no listener has a security protocol that uses it"
                )

    @property
    def configured_listeners(self) -> tuple[Listener, ...]:
        """The configured listeners; without any, `single_listener` is used."""
        return read_listeners(
            self.listeners, self.advertised_listeners, self.listener_security_protocol_map
        )

    def single_listener(
        self, address: tuple[str, int], advertised: tuple[str, int] | None = None
    ) -> Listener:
        """Return the only listener, which is named after its protocol."""
        endpoint = None if advertised is None else Endpoint(*advertised)
        return Listener(self.protocol, self.protocol, Endpoint(*address), endpoint)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that clients may use."""
        return tuple(each.strip() for each in self.sasl_enabled_mechanisms.split(","))

    @property
    def tls(self) -> Tls | None:
        """The certificate and key of TLS listeners; None if none is configured."""
        if not self.ssl_certificate_location:
            return None
        return Tls(self.ssl_certificate_location, self.ssl_key_location)

    @property
    def protocol(self) -> str:
        """The `security.protocol` of the only listener."""
        kinds = {
            (False, False): "PLAINTEXT",
            (False, True): "SSL",
            (True, False): "SASL_PLAINTEXT",
            (True, True): "SASL_SSL",
        }
        return kinds[bool(self.users_file), self.tls is not None]
