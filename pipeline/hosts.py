"""Hosts and addresses, and under which names a server answers."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit


def is_address(name: str) -> bool:
    """Whether it is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether a server that listens there is reached from this machine only."""
    return name == "localhost" or (is_address(name) and ip_address(name).is_loopback)


def own_names() -> set[str]:
    """The names that this machine has for itself."""
    return {socket.gethostname(), socket.getfqdn()}


class HostNames:
    """The names in a Host header that a server answers: loopback's, addresses, and those given.

    Any other is of a site that had its own name point at this machine (DNS rebinding), to have a
    browser read what only this machine, or its network, may.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in names} | {"localhost"}

    def has(self, header: str) -> bool:
        """Whether a Host header is answered."""
        try:
            name = urlsplit(f"//{header}").hostname
        except ValueError:
            return False
        # A browser puts no user before the name.
        if not name or "@" in header:
            return False
        # An address is nobody's name, so no name server can have sent the browser here.
        return name.rstrip(".") in self._names or is_address(name)
