"""One group in one micro-batch: all its requests, then every timer that is due.

Pure and repeatable: the same state, events and time give the same bytes. The rules kept here are
the stream's, not Kafka's:

* Whose a request is comes first: a row that is not signed as it should be takes no other's place,
  nor any room among the requests that are remembered.
* A repeated request_id is decided and answered once within `request.dedup.window.ms`. A group
  remembers at most `request.dedup.max.ids` requests of this window; a further one is answered
  COORDINATOR_NOT_AVAILABLE, since to forget one would let a repeated commit set an offset back.
* At a take-over a group learns which requests were answered lately, and remembers them for one
  more window.
* A request whose records stand is answered by them and not decided
  (`coordinator.group.recorded`).
* A malformed event is answered with what was wrong, or rejected if it names nobody to answer.
* A bug in a handler affects one request only: the request is answered UNKNOWN_SERVER_ERROR, the
  group stays as it was before, and the traceback goes to the audit log.
* The offsets of a topic that was deleted from the catalogue are deleted before the group's next
  requests are decided.
* Clocks may differ and may be set back, so no time orders what two processes did: epochs order
  starts and claims (`coordinator.group.machine`), and the timers are set back with the clock. At a
  take-over a group's time goes on from the newest one of its log (`coordinator.group.log_time`).
* Members are not removed for the coordinator's own silence. Requests come before timers. After a
  restart every timer starts afresh. Timers that are long overdue are held back for one batch, in
  which heartbeats that were already waiting arrive.
"""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.control import (
    Control,
    Load,
    Recorded,
    Remember,
    Wake,
    readable_records,
)
from group_coordinator.coordinator.group.coordinator import (
    GroupCoordinator,
    Node,
    refuse,
    refuse_because,
)
from group_coordinator.coordinator.group.dedup import MAX_RECENT, digests_of
from group_coordinator.coordinator.group.expiry import cleanup, next_expiry
from group_coordinator.coordinator.group.group import Group
from group_coordinator.coordinator.group.origin import Arrived, arrived, parked_marks
from group_coordinator.coordinator.group.recorded import answer_recorded
from group_coordinator.coordinator.group.snapshot import GroupSnapshot, decode, encode
from group_coordinator.coordinator.group.timers import next_deadline, restart_timers, shift_timers
from group_coordinator.coordinator.group.topic_deletion import delete_offsets, deleted_since
from group_coordinator.coordinator.group.turn import Turn
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.catalogue import Catalogue
from group_coordinator.schemas.decoding import Malformed, decode_request
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import (
    RejectedRequest,
    RequestEvent,
    Response,
)
from group_coordinator.schemas.records import CoordinatorRecord, GroupEvent

# Member ids are uuid5 of the request in this namespace: a replayed batch hands out the same ids.
MEMBER_ID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://kafka.apache.org/protocol#member_id")
# A timer that fails is tried again after this long, ms.
_FAILED_TIMER_RETRY_MS = 60_000
_NO_ROOM = (
    "the group has had request.dedup.max.ids requests within request.dedup.window.ms; send it again"
)
# The epoch of a coordinator that owns all partitions without claims; it is below every other.
NO_EPOCH = -1


class BatchSettings(Struct, frozen=True):
    """The settings by which a coordinator decides. Times in ms.

    `start_epoch` is the epoch of the coordinator's start. A timer that is later than
    `silence_tolerance_ms` means that the coordinator was silent. `topics` is the catalogue.
    `claims` maps each offsets partition that the coordinator owns to the epoch of its claim; None:
    it owns all of them without claims. `unloading` maps those that it is giving up likewise. `acls`
    are those in force; None: there never was one, and everything is allowed to everybody.
    `keys` are the names and fingerprints of the keys that may sign requests; None: a request's
    principal is believed without a signature. The secrets are no part of the settings.
    """

    config: GroupCoordinatorConfig = GroupCoordinatorConfig()
    node: Node = Node(0, "localhost", 9092)
    start_epoch: int = NO_EPOCH
    dedup_window_ms: int = 60_000
    dedup_max_ids: int = 131_072
    silence_tolerance_ms: int = 2_000
    topics: Catalogue | None = None
    claims: dict[int, int] | None = None
    unloading: dict[int, int] = {}
    acls: tuple[AclBinding, ...] | None = None
    keys: dict[str, str] | None = None


class GroupOutput(Struct, array_like=True):
    """The output of one group in one batch. Its records must be visible before its responses.

    The stream adds the last three fields (`pipeline.stream.stateful`). `batch_ms` is the batch's
    time. `timer` stands for the group if the batch has set or removed its timer, and then `wake_ms`
    is when the group is to be called again, absolute ms, None if it need not be.
    """

    responses: list[Response]
    records: list[CoordinatorRecord]
    events: list[GroupEvent]
    rejected: list[RejectedRequest]
    batch_ms: int | None = None
    wake_ms: int | None = None
    timer: bytes | None = None


class BatchResult(Struct):
    """The group after a batch.

    `state` None: delete the stored state; `changed` False: leave it as it is. `deadline` is when
    the group must be processed again even without a request, absolute ms, None for never. `output`
    None: the group has none.
    """

    state: bytes | None
    deadline: int | None
    output: GroupOutput | None
    changed: bool = True


def new_member_uuid(request_id: str) -> str:
    """The unique part of the member id that a request is given."""
    return str(uuid.uuid5(MEMBER_ID_NAMESPACE, request_id))


def answer_malformed(event: Malformed, request_id: str, group_id: str, now: int) -> Response:
    """The answer to an event that is no request: what was wrong with it."""
    return Response(
        request_id=request_id,
        group_id=group_id,
        api=event.api,
        error_code=int(event.error_code),
        error=ERROR_NAMES[event.error_code],
        error_message=event.message,
        responded_at=now,
    )


class GroupBatch:
    """One group in one batch, while it is processed; `snapshot` was decoded from `state`."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        settings: BatchSettings,
        signatures: Signatures | None,
        group_id: str,
        state: bytes | None,
        snapshot: GroupSnapshot,
        now: int,
    ) -> None:
        self.coordinator = coordinator
        self.settings = settings
        self._signatures = signatures
        self.group_id = group_id
        self.snapshot = snapshot
        self.now = now
        self.output = GroupOutput([], [], [], [])
        # The records that stand of requests of this batch, by request id.
        self._recorded: dict[str, list[CoordinatorRecord]] = {}
        snapshot.recent.forget(now, self.settings.dedup_window_ms)
        snapshot.window.forget(now, self.settings.dedup_window_ms)
        self._begin_turn(snapshot.group, state)

    # --- turns ----------------------------------------------------------------------------------

    def _begin_turn(self, group: Group | None, state: bytes | None = None) -> None:
        """Begin a turn. If a handler fails, the group is restored from `_safe`.

        `state`, if given, holds the group as it is now. `_decided` are the requests decided in this
        turn, and the answers to events that were not decided.
        """
        self.turn = self.coordinator.turn(self.group_id, group, self.now)
        # Not encoded where `state` will do: only a handler with a bug would need it.
        self._safe = encode(GroupSnapshot(group)) if state is None and group is not None else state
        self._decided: list[RequestEvent | Response] = []

    def _end_turn(self) -> None:
        output, turn = self.output, self.turn
        output.responses += turn.responses
        output.records += turn.records
        output.events += turn.events

    def _begin_new_turn(self) -> None:
        self._end_turn()
        self._begin_turn(self.turn.group)

    def _undo_last(self) -> Turn:
        """Restore the group, and decide again what was decided before the request that failed."""
        self.turn = self.coordinator.turn(self.group_id, decode(self._safe).group, self.now)
        for decided in self._decided:
            if isinstance(decided, Response):
                self.turn.responses.append(decided)
            else:
                self.coordinator.decide(self.turn, decided)
        return self.turn

    # --- requests -------------------------------------------------------------------------------

    def resume(self) -> None:
        """Start timers afresh after a start of the coordinator; set them back with the clock."""
        snapshot, group = self.snapshot, self.turn.group
        set_back_ms = snapshot.touched_at - self.now
        is_new_start = snapshot.start_epoch < self.settings.start_epoch
        snapshot.start_epoch = self.settings.start_epoch
        if group is None or not (is_new_start or set_back_ms > 0):
            return
        if set_back_ms > 0:
            shift_timers(group, -set_back_ms)
        if is_new_start:
            restart_timers(group, self.now)
        self._begin_turn(group)

    def take_over(self, controls: list[Control]) -> None:
        """Carry out control events: load the group, give it up, or learn what was decided of it."""
        for control in controls:
            if isinstance(control, Wake):
                continue
            if isinstance(control, Remember):
                digests = digests_of(control.digests)
                self.snapshot.window.remember(digests, self.now, self.settings.dedup_window_ms)
                continue
            if isinstance(control, Recorded):
                request_id = decode_request(bytes(control.request)).request_id
                if request_id is not None:
                    self._recorded[request_id], _ = readable_records(control.records)
                continue
            self.unload()
            self.snapshot.topics_seen_at = None
            if isinstance(control, Load):
                records, problems = readable_records(control.records)
                self.coordinator.load(self.turn, records)
                # An idle group is called for its cleanup, or never again.
                self.snapshot.cleanup_at = self._next_cleanup()
                if problems:
                    skipped = f"{len(problems)} rows of the offsets topic were skipped"
                    self.turn.note("loaded", f"{skipped}; the first: {problems[0]}")
            self._begin_new_turn()

    def unload(self) -> None:
        """Give the group up, if there is one."""
        if self.turn.group is not None:
            self.coordinator.unload(self.turn)

    def follow_catalogue(self) -> None:
        """Delete the offsets of topics that were deleted since the group was last decided."""
        catalogue = self.settings.topics
        seen_at = self.snapshot.topics_seen_at
        deleted_at = 0 if catalogue is None else catalogue.deleted_at
        if seen_at is not None and seen_at >= deleted_at:
            return
        self.snapshot.topics_seen_at = deleted_at
        if catalogue is not None and self.turn.group is not None:
            delete_offsets(self.turn, deleted_since(catalogue, seen_at))
            self._begin_new_turn()

    def take(self, events: list[str]) -> None:
        """Decide the requests, each request id once."""
        if not events:
            return
        settings, recent, window = self.settings, self.snapshot.recent, self.snapshot.window
        room = settings.dedup_max_ids - window.count
        requests = self._decode(events)
        done = recent.repeats([mark for request in requests for mark in request.marks])
        if self._signatures is not None and any(each.may_be_copied(self.now) for each in requests):
            done |= parked_marks(self.turn.group)
        fresh: list[int] = []
        kept: list[int] = []
        refused = 0
        for request_id, event, marks, _, problem in requests:
            mark = marks[0]
            if not done.isdisjoint(marks):
                continue
            done.add(mark)
            if isinstance(event, Malformed):
                self._answer(answer_malformed(event, request_id, self.group_id, self.now))
            elif problem is not None:
                self._answer_instead(event, ErrorCode.SASL_AUTHENTICATION_FAILED, problem)
            elif self._changes_nothing(event):
                self._decide(event)
            elif any(each in window for each in marks):
                continue
            elif request_id in self._recorded:
                kept.append(mark)
                self._decide(event, self._recorded[request_id])
            elif len(kept) < room:
                kept.append(mark)
                self._decide(event)
            else:
                refused += 1
                self._answer_instead(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_ROOM)
            fresh.append(mark)
        window.remember(kept, self.now, settings.dedup_window_ms)
        recent.remember(fresh, self.now, settings.dedup_window_ms, MAX_RECENT)
        if refused:
            self.turn.request_id = None
            self.turn.note("requests_refused", f"{refused} requests: {_NO_ROOM}")

    def _changes_nothing(self, event: RequestEvent) -> bool:
        """Whether a second decision of a request changes nothing, as of one that is denied."""
        if DECIDED[event.api].is_repeatable:
            return True
        authorizer = self.coordinator.authorizer
        return authorizer is not None and not authorizer.allows_event(event)

    def _decode(self, events: list[str]) -> list[Arrived]:
        """The events that can be answered; the others are rejected."""
        requests = []
        for text in events:
            event = decode_request(text)
            if event.request_id is not None:
                requests.append(arrived(event.request_id, event, self._signatures))
                continue
            reason = "no request_id"
            if isinstance(event, Malformed):
                reason = f"{reason}: {event.message}"
            self.output.rejected.append(RejectedRequest(self.now, reason, text))
        return requests

    def _answer(self, answer: Response) -> None:
        """Answer an event that is not decided."""
        self.turn.responses.append(answer)
        self._decided.append(answer)

    def _answer_instead(self, event: RequestEvent, code: ErrorCode, why: str) -> None:
        """Answer a request that is not to be decided."""
        self.turn.request_id = event.request_id
        refuse_because(self.turn, event, code, why)
        self._answer(self.turn.responses.pop())

    def _decide(self, event: RequestEvent, records: Sequence[CoordinatorRecord] = ()) -> None:
        """Decide a request, or answer it by its records if they stand."""
        try:
            if records and answer_recorded(self.turn, event, records):
                self._decided.append(self.turn.responses[-1])
                return
            if records:
                # The group may have been made just now: `_undo_last` is to have it too.
                self._begin_new_turn()
            self.coordinator.decide(self.turn, event)
        # An exception of a handler is a bug, and must not stop the requests of other groups.
        except Exception:
            reason = traceback.format_exc()
            turn = self._undo_last()
            turn.request_id = event.request_id
            refuse(turn, event, ErrorCode.UNKNOWN_SERVER_ERROR)
            turn.note("handler_failed", f"{event.api}: {reason}")
            self._begin_new_turn()
        else:
            self._decided.append(event)

    # --- timers ---------------------------------------------------------------------------------

    def run_timers(self) -> None:
        """Fire every timer that is due, unless the coordinator itself was silent."""
        snapshot = self.snapshot
        group = self.turn.group
        due = None if group is None else next_deadline(group)
        if due is None or due > self.now:
            snapshot.held_back_at = None
        elif self._was_silent(due):
            snapshot.held_back_at = self.now
        else:
            snapshot.held_back_at = None
            self._fire_all()
        self._clean_up()

    def _was_silent(self, due: int) -> bool:
        late = self.now - due > self.settings.silence_tolerance_ms
        held_back_at = self.snapshot.held_back_at
        return late and (held_back_at is None or held_back_at == self.now)

    def _fire_all(self) -> None:
        self._begin_new_turn()
        fired = 0
        try:
            for _ in self.coordinator.fire_due(self.turn):
                fired += 1
        # As for requests, a bug in one group's timer must not stop other groups.
        except Exception:
            reason = traceback.format_exc()
            restored = self._undo_last()
            for _ in islice(self.coordinator.fire_due(restored), fired):
                pass
            if restored.group is not None:
                restart_timers(restored.group, self.now + _FAILED_TIMER_RETRY_MS)
            restored.note("handler_failed", f"timer: {reason}")

    def _clean_up(self) -> None:
        """Run the cleanup if it is due; after a change, have it run within one check interval."""
        due = self.snapshot.cleanup_at
        group = self.turn.group
        if group is None:
            due = None
        elif due is not None and due <= self.now:
            due = self._expire_offsets()
        elif self.turn.records or self.output.records or group.is_vacant:
            due = self._after_interval if due is None else min(due, self._after_interval)
        self.snapshot.cleanup_at = due

    @property
    def _after_interval(self) -> int:
        return self.now + self.settings.config.offsets_retention_check_interval_ms

    def _expire_offsets(self) -> int | None:
        """Run the cleanup; returns when to run it next, None for never."""
        self._begin_new_turn()
        try:
            cleanup(self.turn)
        # As for requests and timers.
        except Exception:
            reason = traceback.format_exc()
            self._undo_last().note("handler_failed", f"cleanup: {reason}")
            return self._after_interval
        return self._next_cleanup()

    def _next_cleanup(self) -> int | None:
        """When the cleanup has something to do, at the earliest after one interval; None: never."""
        group = self.turn.group
        if group is None:
            return None
        if group.is_vacant:
            # Just loaded, or the log did not take its tombstone.
            return self._after_interval
        expires = next_expiry(group, self.settings.config)
        return None if expires is None else max(expires, self._after_interval)

    # --- result ---------------------------------------------------------------------------------

    def result(self) -> BatchResult:
        """End the last turn; returns the group's new state, deadline and output."""
        self._end_turn()
        snapshot, output = self.snapshot, self.output
        snapshot.group = self.turn.group
        snapshot.touched_at = self.now
        said = output.responses or output.records or output.events or output.rejected
        if snapshot.group is None:
            times = [t for t in (snapshot.recent.newest, snapshot.window.newest) if t is not None]
            if not times:
                return BatchResult(None, None, output if said else None)
            deadline: int | None = max(times) + self.settings.dedup_window_ms
        else:
            deadline = self._deadline(snapshot.group)
        return BatchResult(encode(snapshot), deadline, output if said else None)

    def _deadline(self, group: Group) -> int | None:
        times = [t for t in (next_deadline(group), self.snapshot.cleanup_at) if t is not None]
        return min(times, default=None)
