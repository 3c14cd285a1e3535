"""TLS on the gateway's listener."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    import socket


class CertificateError(Failure):
    """A certificate or its key cannot be used; the message names the file."""


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """TLS 1.2 or later with a certificate (chain) and its key, PEM files. Raises CertificateError.

    Clients are not asked for certificates: SASL says who they are.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password, though an empty one: OpenSSL would ask for an encrypted key's on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"cannot serve TLS with certificate {certificate} and key {key}: {error}"
        ) from error
    return context


async def client_speaks(accepted: socket.socket) -> None:
    """Wait until a client has sent something, which is left to be read.

    asyncio makes large buffers for TLS, and a silent client must not take them.
    """
    loop = asyncio.get_running_loop()
    spoke = asyncio.Event()
    loop.add_reader(accepted, spoke.set)
    try:
        await spoke.wait()
    finally:
        loop.remove_reader(accepted)
