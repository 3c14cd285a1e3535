"""Whose an event is, and by what it is known when it comes again.

Where requests are signed, this comes before anything is remembered or decided. Whoever may append
rows can guess an id or copy one.
"""

from __future__ import annotations

from typing import NamedTuple

from group_coordinator.coordinator.group.dedup import digest, marks_of
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.schemas.decoding import Malformed
from group_coordinator.schemas.messages import RequestEvent


class Arrived(NamedTuple):
    """An event that can be answered: `marks` as in `dedup.marks_of`.

    `signer` and `problem` are as in `signatures.Judged`.
    """

    request_id: str
    event: RequestEvent | Malformed
    marks: tuple[int, ...]
    signer: str | None = None
    problem: str | None = None

    def may_be_copied(self, now: int) -> bool:
        """Whether the event may be a copy: ids count that are older than the window, then.

        An unsigned event may be a copy, and a signed one once its deadline is over. Older ids count
        because a join may wait for longer than the window.
        """
        deadline = self.event.deadline if isinstance(self.event, RequestEvent) else None
        return self.signer is None or (deadline is not None and now > deadline)


def arrived(
    request_id: str, event: RequestEvent | Malformed, signatures: Signatures | None
) -> Arrived:
    """Find out whose an event is; `signatures` None: nothing is signed."""
    if signatures is None:
        return Arrived(request_id, event, marks_of(request_id, None, None))
    signer = problem = None
    if isinstance(event, RequestEvent):
        signer, problem = signatures.judge(event)
    marks = marks_of(request_id, signer, signatures.names)
    return Arrived(request_id, event, marks, signer, problem)


def parked_marks(group: Group | None) -> set[int]:
    """The marks of the requests that wait in a group, however long they have been waiting."""
    members = () if group is None else group.members.values()
    return {
        digest(parked.request_id)
        for member in members
        for parked in (member.awaiting_join, member.awaiting_sync)
        if parked is not None
    }
