"""Under which transaction identifiers nodes say that they are alive."""

from __future__ import annotations


def lease_app_id(node_id: int) -> str:
    """The transaction whose version is when a node last said that it is alive, ms."""
    return f"coordinator-lease-{node_id}"
