"""Principal and signature of a program's requests.

The environment supplies what the settings lack, so that the command, the members and the workers of
a program can share one principal.
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


class RequestSigner:
    """A sender that adds a principal to requests without one, and signs all if it has a key.

    Raises KeysError.
    """

    def __init__(self, principal: str | None, key_file: str) -> None:
        key_file = key_file or os.environ.get(KEY_FILE, "")
        self._principal = principal or os.environ.get(PRINCIPAL)
        self._key = read_key(key_file) if key_file else None

    @property
    def signs(self) -> bool:
        """Whether requests are signed."""
        return self._key is not None

    def sign(self, event: RequestEvent) -> RequestEvent:
        """Return the request with its principal and signature, as it will be written."""
        if event.principal is None and self._principal is not None:
            event = replace(event, principal=self._principal)
        return event if self._key is None else signed(event, self._key)
