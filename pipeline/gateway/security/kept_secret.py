"""A secret that is the same after a restart, and for all gateways that read one file of users."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

_BYTES = 32


def secret_beside(path: Path) -> bytes:
    """Return the secret that is kept beside a file, as `.NAME.secret`; it is made if there is none.

    It is its owner's alone. Raises OSError.
    """
    path = path.resolve()
    kept = path.with_name(f".{path.name}.secret")
    if not kept.exists():
        _make(kept)
    found = kept.read_bytes()
    if len(found) < _BYTES:
        raise OSError(f"{kept} has {len(found)} bytes: it is no secret")
    return found


def _make(kept: Path) -> None:
    """Make the file whole; that of another process, which was faster, stays."""
    # mkstemp makes a file that its owner alone can read.
    handle, name = tempfile.mkstemp(dir=kept.parent, prefix=kept.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(name, kept)
    finally:
        Path(name).unlink()
