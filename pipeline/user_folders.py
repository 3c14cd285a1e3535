"""Folders of the user for files that belong to the machine, not to the root.

Source: the XDG Base Directory Specification.
"""

from __future__ import annotations

import os
from pathlib import Path

_NAME = "group-coordinator"


def state_folder() -> Path:
    """Return the folder of logs and checkpoints, in `$XDG_STATE_HOME` or `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / _NAME


def cache_folder() -> Path:
    """Return the folder of files that can be recreated, in `$XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _NAME
