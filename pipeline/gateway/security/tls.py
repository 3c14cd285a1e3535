"""TLS on the gateway's listener."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    import socket


class CertificateError(Failure):
    """Error for a certificate or key that cannot be used; the message names the files."""


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or later. Raises CertificateError.

    `certificate` is the PEM file of the certificate chain, and `key` that of its key. Clients need
    no certificates, because SASL authenticates them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"cannot serve TLS with certificate {certificate} and key {key}: {error}"
        ) from error
    return context


async def client_speaks(accepted: socket.socket) -> None:
    """Wait until the socket of a client is readable, without reading from it.

    asyncio allocates large buffers for TLS, and a silent client must not cost that memory.
    """
    loop = asyncio.get_running_loop()
    spoke = asyncio.Event()
    loop.add_reader(accepted, spoke.set)
    try:
        await spoke.wait()
    finally:
        loop.remove_reader(accepted)
