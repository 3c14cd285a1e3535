"""A secret that survives restarts, and that all gateways with the same file of users share."""

from __future__ import annotations

import secrets
from pathlib import Path

from group_coordinator.pipeline.tables import create_private, read_private

_BYTES = 32


def secret_beside(path: Path) -> bytes:
    """Return the secret in the file `.NAME.secret` of the folder of `path`; create it if missing.

    Only the owner of the file can read it. Raises OSError, also for a secret that is too short.
    """
    path = path.resolve()
    kept = path.with_name(f".{path.name}.secret")
    if not kept.exists():
        create_private(kept, secrets.token_bytes(_BYTES))
    found = read_private(kept)
    if len(found) < _BYTES:
        raise OSError(f"{kept} has {len(found)} bytes: it is no secret")
    return found
