"""The state of a group that the state store keeps between batches, as one value.

The first byte is a version, and the rest is MessagePack. Fields are positional: a new field goes to
the end and has a default, so that older states of the version can be read. A release with another
version reads none of them: its start loads the groups from their records
(`pipeline.node.resumption`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from group_coordinator.coordinator.group.dedup import RecentRequests, RequestWindow
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.log_time import LogTime
from group_coordinator.schemas.unreadable import UNREADABLE

# Version 1 kept each committed offset by itself, where 2 has runs (`coordinator.group.offsets`).
VERSION = 2


_WAY_OUT = "delete the node's folder in _checkpoints under the root: the tables bring groups back"


class UnknownSnapshot(ValueError):
    """A state that cannot be read: its bytes are damaged, as a start has checked its version."""


class GroupSnapshot(Struct, array_like=True):
    """A group, and what its coordinator remembers with it. Times in ms.

    `touched_at` is the time of the batch that wrote the state. `held_back_at` is when due timers
    were first held back because the coordinator itself had been silent. `cleanup_at` is when the
    next cleanup looks for expired offsets. `recent` and `window` are the requests seen lately.
    `topics_seen_at` is the time of the newest deletion of a topic that the group was decided under,
    None if unknown. `claim_epoch` is the epoch of the claim under which the state was written,
    `start_epoch` that of the coordinator's start. `log_time` is what the group is decided by while
    the coordinator's clock is behind its log, and all times of the group are by it. States of
    earlier releases lack the last five.
    """

    group: Group | None = None
    recent: RecentRequests = field(default_factory=RecentRequests)
    touched_at: int = 0
    held_back_at: int | None = None
    cleanup_at: int | None = None
    window: RequestWindow = field(default_factory=RequestWindow)
    topics_seen_at: int | None = None
    claim_epoch: int | None = None
    start_epoch: int = -1
    log_time: LogTime | None = None

    def is_under(self, claim_epoch: int) -> bool:
        """Whether the state was written under this claim; yes if it does not say which."""
        return self.claim_epoch is None or self.claim_epoch == claim_epoch


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(GroupSnapshot)


def encode(snapshot: GroupSnapshot) -> bytes:
    """Return the snapshot as bytes."""
    if snapshot.group is not None:
        snapshot.group.offsets.pack()
    buffer = bytearray((VERSION,))
    _encoder.encode_into(snapshot, buffer, 1)
    return bytes(buffer)


def decode(state: bytes | None) -> GroupSnapshot:
    """Read a snapshot, an empty one from None. Raises UnknownSnapshot."""
    if state is None:
        return GroupSnapshot()
    if not state or state[0] != VERSION:
        found = state[0] if state else None
        raise UnknownSnapshot(
            f"group state has version {found}, this release reads version {VERSION}: {_WAY_OUT}"
        )
    try:
        return _decoder.decode(memoryview(state)[1:])
    except UNREADABLE as error:
        raise UnknownSnapshot(f"group state cannot be read, {error}: {_WAY_OUT}") from error
