"""`gateway`: Kafka's protocol over TCP."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from pipeline.cli.options import Root, progress

Listen = Annotated[
    str,
    typer.Option("--listen", help="HOST:PORT to listen on; other hosts reach 0.0.0.0 only."),
]
Advertise = Annotated[
    str | None,
    typer.Option("--advertise", help="HOST:PORT that clients are told, if another one."),
]


def gateway(
    root: Root,
    listen: Listen = "127.0.0.1:9092",
    advertise: Advertise = None,
    broker_id: Annotated[
        int, typer.Option("--broker-id", min=0, help="Which of several gateways of the root it is.")
    ] = 0,
) -> None:
    """Serve unmodified Kafka clients: their requests go to the coordinator of the root."""
    asyncio.run(_serve(root, _address(listen), _address(advertise), broker_id))


async def _serve(
    root: str,
    listen: tuple[str, int] | None,
    advertise: tuple[str, int] | None,
    broker_id: int,
) -> None:
    from pipeline.gateway.server import running_gateway

    assert listen is not None
    asked_to_stop = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, asked_to_stop.set)
    async with running_gateway(root, listen, advertise, broker_id) as broker:
        progress(f"gateway: broker {broker.node_id} at {broker.host}:{broker.port} serves {root}")
        await asked_to_stop.wait()
        progress("gateway: stopping; what is in flight is answered first")
    progress("gateway: stopped")


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)
