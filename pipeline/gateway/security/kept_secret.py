"""A secret that is the same after a restart, and for all gateways that read one file of users."""

from __future__ import annotations

import secrets
from pathlib import Path

from group_coordinator.pipeline.tables.private_file import create_private, read_private

_BYTES = 32


def secret_beside(path: Path) -> bytes:
    """Return the secret that is kept beside a file, as `.NAME.secret`; it is made if there is none.

    It is its owner's alone. Raises OSError.
    """
    path = path.resolve()
    kept = path.with_name(f".{path.name}.secret")
    if not kept.exists():
        create_private(kept, secrets.token_bytes(_BYTES))
    found = read_private(kept)
    if len(found) < _BYTES:
        raise OSError(f"{kept} has {len(found)} bytes: it is no secret")
    return found
