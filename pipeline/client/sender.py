"""Who a program says it is in its requests, and how it proves that.

What the settings do not say, the environment does: the command, members and workers of one program
are then all of one principal.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from group_coordinator.coordinator.signatures import signed
from group_coordinator.pipeline.tables.request_keys import read_key

if TYPE_CHECKING:
    from group_coordinator.schemas.messages import RequestEvent

PRINCIPAL = "GROUP_COORDINATOR_PRINCIPAL"
KEY_FILE = "GROUP_COORDINATOR_KEY_FILE"


class Sender:
    """Writes a principal into requests that have none, and signs all. Raises KeysError."""

    def __init__(self, principal: str | None, key_file: str) -> None:
        key_file = key_file or os.environ.get(KEY_FILE, "")
        self._principal = principal or os.environ.get(PRINCIPAL)
        self._key = read_key(key_file) if key_file else None

    @property
    def signs(self) -> bool:
        """Whether requests are signed."""
        return self._key is not None

    def stamped(self, event: RequestEvent) -> RequestEvent:
        """The request as it is to be written."""
        if event.principal is None and self._principal is not None:
            event = replace(event, principal=self._principal)
        return event if self._key is None else signed(event, self._key)
