"""Listeners of a gateway, each with a name, a security protocol and its addresses.

A client receives the addresses of the gateways for the listener on which it connected. So a client
that uses TLS is never sent to a listener without TLS.

Source: Apache Kafka, ListenerName, Endpoint, SecurityProtocol; listeners, advertised.listeners,
listener.security.protocol.map (KIP-103).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ALL_ADDRESSES = ("0.0.0.0", "::")
_LISTENER = re.compile(r"([\w.-]+)://(?:\[([^\]]+)\]|([^:/\[\]]+)):([0-9]{1,5})")


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
    def asks_who(self) -> bool:
        """Return whether clients must authenticate."""
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Return whether the listener uses TLS."""
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
        raise ValueError("advertised.listeners: they are to have the names of listeners")
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
            raise ValueError(f"{setting}: there are two of the name {name}")
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
