"""What all clients share: their settings, and how they write what they have worked on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

SESSION_MS = 1_000
HEARTBEAT_MS = 200


def write(records: Iterable[tuple[int, int, bytes]]) -> None:
    lines = [
        f"{partition} {offset} {json.loads(value)['n']}" for partition, offset, value in records
    ]
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def arguments() -> tuple[str, str, str | None]:
    """The gateway's address, the assignor and the group.instance.id that the process was given."""
    address, strategy, instance = json.loads(sys.argv[1])
    return address, strategy, instance
