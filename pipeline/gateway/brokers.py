"""The gateways of a root, which are the brokers of the cluster that a client sees."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID
from zlib import crc32

from pipeline.delta.table import open_delta
from pipeline.tables.store import table_uri
from schemas.tables import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Sequence


class Broker(NamedTuple):
    """A gateway as clients reach it."""

    node_id: int
    host: str
    port: int


class Brokers:
    """The gateways that are alive, this one among them, in the order of their ids."""

    own: Broker

    def alive(self) -> Sequence[Broker]:
        """The gateways that clients may be sent to."""
        return [self.own]

    def serving(self, key: str) -> Broker:
        """The gateway that a group's members, or a partition's consumers, are sent to."""
        alive = self.alive()
        return alive[crc32(key.encode()) % len(alive)]


def cluster_id(root: str) -> str:
    """The id of a root's cluster, in the form of Kafka's: that of its `requests` table."""
    table_id = open_delta(table_uri(root, REQUESTS)).metadata().id
    return urlsafe_b64encode(UUID(str(table_id)).bytes).decode().rstrip("=")
