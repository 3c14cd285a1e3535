"""The state of a group that Spark's state store keeps between batches, encoded as one value.

The first byte is a version, and the rest is MessagePack. Fields are positional: a new field goes to
the end and has a default, so that older states of the version can be read. A release with another
version cannot read them: it loads the groups from their records when it starts
(`pipeline.node.resumption`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from group_coordinator.coordinator.group.classic_group import ClassicGroup
from group_coordinator.coordinator.group.dedup import RecentRequests, RequestWindow
from group_coordinator.coordinator.group.log_time import LogTime
from group_coordinator.schemas.decoding import DECODE_ERRORS

# Version 1 stored each offset by itself, version 2 stores runs (`coordinator.group.offsets`).
VERSION = 2


_WAY_OUT = (
    "delete the node's folder in _checkpoints under the root; "
    "the next start restores the groups from the tables"
)


class UnknownSnapshot(ValueError):
    """Error for a state that this release cannot read: damaged, or of another version."""


class GroupSnapshot(Struct, array_like=True):
    """A group, and the state that its coordinator keeps with it. Times in ms.

    `touched_at` is the time of the batch that wrote the state. `held_back_at` is the time at which
    due timers were first held back because the coordinator had been silent. `cleanup_at` is the
    time of the next cleanup of expired offsets. `recent` and `window` are the deduplication window.
    `topics_seen_at` is the time of the newest topic deletion that is applied to the group, None if
    unknown. The state was written under the claim of `claim_epoch`, after the start of
    `start_epoch`. `log_time` replaces the coordinator's clock while that is earlier than the
    group's log. States of earlier releases lack the last five fields.
    """

    group: ClassicGroup | None = None
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
        """Whether the state was written under this claim, or under an unknown one."""
        return self.claim_epoch is None or self.claim_epoch == claim_epoch


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(GroupSnapshot)


def encode(snapshot: GroupSnapshot) -> bytes:
    """Encode a snapshot; pack the group's new offsets first."""
    if snapshot.group is not None:
        snapshot.group.offsets.pack()
    buffer = bytearray((VERSION,))
    _encoder.encode_into(snapshot, buffer, 1)
    return bytes(buffer)


def decode(state: bytes | None) -> GroupSnapshot:
    """Decode a snapshot; None gives an empty one. Raises UnknownSnapshot."""
    if state is None:
        return GroupSnapshot()
    if not state or state[0] != VERSION:
        found = state[0] if state else None
        raise UnknownSnapshot(
            f"group state has version {found}, this release reads version {VERSION}: {_WAY_OUT}"
        )
    try:
        return _decoder.decode(memoryview(state)[1:])
    except DECODE_ERRORS as error:
        raise UnknownSnapshot(f"group state cannot be read, {error}: {_WAY_OUT}") from error
