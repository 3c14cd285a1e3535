"""Identification of an event: its signer, and its keys in the deduplication window.

Where requests are signed, events are identified before anything is remembered or decided, because
any process that may append rows can guess or copy a request id.
"""

from __future__ import annotations

from typing import NamedTuple

from group_coordinator.coordinator.group.dedup import dedup_keys, digest
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.schemas.decoding import Malformed
from group_coordinator.schemas.messages import RequestEvent


class IdentifiedEvent(NamedTuple):
    """An event that can be answered, with its deduplication keys (`dedup.dedup_keys`).

    `signer` and `problem` are as in `signatures.Judged`.
    """

    request_id: str
    event: RequestEvent | Malformed
    dedup_keys: tuple[int, ...]
    signer: str | None = None
    problem: str | None = None

    def may_be_copied(self, now: int) -> bool:
        """Whether the event may be a copy of an earlier one.

        That is the case if it is unsigned, or if its deadline has passed. Such an event is also
        compared with parked requests, because a join may be parked for longer than the window.
        """
        deadline = self.event.deadline if isinstance(self.event, RequestEvent) else None
        return self.signer is None or (deadline is not None and now > deadline)


def identify(
    request_id: str, event: RequestEvent | Malformed, signatures: Signatures | None
) -> IdentifiedEvent:
    """Find the signer and the deduplication keys of an event.

    `signatures` None: requests are not signed.
    """
    if signatures is None:
        return IdentifiedEvent(request_id, event, dedup_keys(request_id, None, None))
    signer = problem = None
    if isinstance(event, RequestEvent):
        signer, problem = signatures.judge(event)
    keys = dedup_keys(request_id, signer, signatures.names)
    return IdentifiedEvent(request_id, event, keys, signer, problem)


def parked_dedup_keys(group: Group | None) -> set[int]:
    """Return the keys of a group's parked requests, however long they have been parked."""
    members = () if group is None else group.members.values()
    return {
        digest(parked.request_id)
        for member in members
        for parked in (member.awaiting_join, member.awaiting_sync)
        if parked is not None
    }
