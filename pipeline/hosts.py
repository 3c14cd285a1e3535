"""Hosts and addresses, and the host names that a server accepts."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit


def is_address(name: str) -> bool:
    """Return whether the name is an IP address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Return whether a server on this address can be reached from this machine only."""
    return name == "localhost" or (is_address(name) and ip_address(name).is_loopback)


def local_host_names() -> set[str]:
    """Return the names of this machine, as it knows them."""
    return {socket.gethostname(), socket.getfqdn()}


class HostNames:
    """The host names that a server accepts: `localhost`, any address, and the given names.

    Another name may belong to a site that resolves its name to this machine (DNS rebinding). Its
    pages could then read, through a browser, data that only this machine or its network may read.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in names} | {"localhost"}

    def accepts(self, header: str) -> bool:
        """Return whether requests with this Host header are accepted."""
        try:
            name = urlsplit(f"//{header}").hostname
        except ValueError:
            return False
        # A browser sends no user name in a Host header.
        if not name or "@" in header:
            return False
        # DNS rebinding needs a name, so an address is safe.
        return name.rstrip(".") in self._names or is_address(name)
