"""What an API of the gateway is: its messages, the versions it speaks, and who answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafka.protocol.api_message import ApiMessage

    from pipeline.gateway.call import Call


class Api(NamedTuple):
    """One API in the versions `lowest` to `highest`.

    `answer` gets the call and its request, and returns the response; None where the client waits
    for none.
    """

    request: type[ApiMessage]
    lowest: int
    highest: int
    answer: Callable[[Call, Any], Awaitable[ApiMessage | None]]

    @property
    def key(self) -> int:
        """Kafka's number of the API."""
        return int(self.request.API_KEY)

    def is_flexible(self, version: int) -> bool:
        """Whether this version has tagged fields, and compact texts and lists (KIP-482)."""
        return bool(self.request.flexible_version_q(version))
