"""The folders of the user's own in which a process keeps what belongs to the machine, not the root.

Source: the XDG Base Directory Specification.
"""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "group-coordinator"


def state_folder() -> Path:
    """Where logs and streaming checkpoints go: below `$XDG_STATE_HOME`, or `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / _NAME


def cache_folder() -> Path:
    """Where what can be made again goes: below `$XDG_CACHE_HOME`, or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _NAME
