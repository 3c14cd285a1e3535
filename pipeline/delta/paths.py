"""Paths of files in a table's log."""

from __future__ import annotations

import re

# The reason for which a file is not read.
OUTSIDE = "it lies outside of its table's folder"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def is_outside(path: str) -> bool:
    """Return whether a percent-decoded path of a log may name a file outside the table's folder.

    That is an absolute path, a URI, or any path with a part `..`, wherever it leads; no engine
    writes one. Symbolic links are followed, as in Spark and delta-rs, because creating one requires
    an account on the machine.
    """
    return (
        path.startswith("/")
        or _URI.match(path) is not None
        or ".." in path.split("/")
        or "\0" in path
    )
