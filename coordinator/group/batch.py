"""One group in one micro-batch: decide all its requests, then fire every timer that is due.

Pure and repeatable: the same state, events and time give the same bytes. Kafka does not have these
rules; the stream needs them:

* The signer is checked first. A row with a missing or wrong signature never replaces a signed
  request, and takes no room in the deduplication window.
* A repeated request_id is decided and answered once within `request.dedup.window.ms`. A group
  remembers at most `request.dedup.max.ids` requests of this window. A further request is answered
  COORDINATOR_NOT_AVAILABLE, because a forgotten request could be repeated and set an offset back.
  At a take-over a group loads the ids of recently answered requests, and remembers them for one
  more window.
* A request with records in the log is answered from them and not decided again
  (`coordinator.group.recorded`).
* A malformed event is answered with the reason, or rejected if it has no request id.
* A bug in a handler affects one request only: the request is answered UNKNOWN_SERVER_ERROR, the
  group is restored, and the traceback goes to the audit log.
* When a topic is deleted from the catalogue, its offsets are deleted before the group's next
  requests are decided.
* Clocks may differ and may be set back, so times never order the actions of two processes: epochs
  order starts and claims (`coordinator.group.machine`). If the clock is set back, timers move back
  with it. At a take-over a group's time continues from the newest time in its log
  (`coordinator.group.log_time`).
* Members are not removed because the coordinator was silent. Requests come before timers, and after
  a restart every timer restarts. Timers that are long overdue are held back for one batch, so that
  waiting heartbeats are decided first.
"""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.classic_group import ClassicGroup
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
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.dedup import (
    MAX_RECENT,
    IdentifiedEvent,
    digests_of,
    identify,
    parked_dedup_keys,
)
from group_coordinator.coordinator.group.group_snapshot import GroupSnapshot, decode, encode
from group_coordinator.coordinator.group.offset_deletion import (
    cleanup,
    delete_offsets,
    deleted_since,
    next_expiry,
)
from group_coordinator.coordinator.group.recorded import answer_recorded
from group_coordinator.coordinator.group.timers import next_deadline, restart_timers, shift_timers
from group_coordinator.coordinator.signatures import Signatures
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.decoding import Malformed, decode_request
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from group_coordinator.schemas.messages import (
    RejectedRequest,
    RequestEvent,
    Response,
)
from group_coordinator.schemas.records import CoordinatorRecord, GroupEvent
from group_coordinator.schemas.rows import Catalogue

# Member ids are uuid5 of the request id in this namespace: a replayed batch assigns the same ids.
MEMBER_ID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://kafka.apache.org/protocol#member_id")
# Delay before timers are retried after a timer handler failed, ms.
_FAILED_TIMER_RETRY_MS = 60_000
_WINDOW_FULL = (
    "the group has had request.dedup.max.ids requests within request.dedup.window.ms; send it again"
)
# The epoch of a coordinator that owns all partitions without claims; lower than every other epoch.
NO_EPOCH = -1


class BatchSettings(Struct, frozen=True):
    """The settings of a coordinator's decisions. Times in ms.

    `start_epoch` is the epoch in which the process started. A timer that is more than
    `silence_tolerance_ms` overdue means that the coordinator was silent. `topics` is the catalogue.
    `claims` maps each owned offsets partition to the epoch of its claim; None: the coordinator owns
    all partitions without claims. `unloading` is the same map for the partitions that it releases.
    `acls` None: no ACL was ever added, and every operation is allowed. `keys` maps the names of the
    keys that may sign requests to their fingerprints, without secrets; None: a principal is
    accepted without a signature.
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

    The stream sets the last three fields (`pipeline.stream.stateful`). `batch_ms` is the batch's
    time. `timer` is the group's key if the batch set or removed its timer; `wake_ms` is then the
    time of the group's next call (absolute ms), None if no call is due.
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

    `state` None: delete the stored state; `changed` False: keep it unchanged. `deadline` is the
    time (absolute ms) at which the group must be processed even without a request, None for never.
    `output` None: the group has no output.
    """

    state: bytes | None
    deadline: int | None
    output: GroupOutput | None
    changed: bool = True


def new_member_uuid(request_id: str) -> str:
    """Return the unique part of the member id that is assigned to a request."""
    return str(uuid.uuid5(MEMBER_ID_NAMESPACE, request_id))


def answer_malformed(event: Malformed, request_id: str, group_id: str, now: int) -> Response:
    """Return the answer to a malformed event."""
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
    """One group while a batch is processed; `snapshot` was decoded from `state`."""

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
        # Records that are already in the log for requests of this batch, by request id.
        self._recorded: dict[str, list[CoordinatorRecord]] = {}
        # The group's earliest timer after `run_timers`.
        self._next_deadline: int | None = None
        snapshot.recent.forget(now, self.settings.dedup_window_ms)
        snapshot.window.forget(now, self.settings.dedup_window_ms)
        self._begin_decision(snapshot.group, state)

    # --- decisions ------------------------------------------------------------------------------

    def _begin_decision(self, group: ClassicGroup | None, state: bytes | None = None) -> None:
        """Begin a decision. If a handler fails, the group is restored from `_restore_point`.

        `state`, if given, is the encoded form of `group`. `_decided` lists the requests of this
        decision, and the answers to events that were not decided.
        """
        self.decision = self.coordinator.begin_decision(self.group_id, group, self.now)
        if state is None and group is not None:
            state = encode(GroupSnapshot(group))
        self._restore_point = state
        self._decided: list[RequestEvent | Response] = []

    def _end_decision(self) -> None:
        output, decision = self.output, self.decision
        output.responses += decision.responses
        output.records += decision.records
        output.events += decision.events

    def _begin_new_decision(self) -> None:
        self._end_decision()
        self._begin_decision(self.decision.group)

    def _undo_last(self) -> Decision:
        """Restore the group, and repeat the decisions before the request that failed."""
        self.decision = self.coordinator.begin_decision(
            self.group_id, decode(self._restore_point).group, self.now
        )
        for decided in self._decided:
            if isinstance(decided, Response):
                self.decision.responses.append(decided)
            else:
                self.coordinator.decide(self.decision, decided)
        return self.decision

    # --- requests -------------------------------------------------------------------------------

    def resume(self) -> None:
        """Restart all timers if the coordinator's process is new.

        If its clock was set back, move the deadlines back by as much.
        """
        snapshot, group = self.snapshot, self.decision.group
        set_back_ms = snapshot.touched_at - self.now
        is_new_start = snapshot.start_epoch < self.settings.start_epoch
        snapshot.start_epoch = self.settings.start_epoch
        if group is None or not (is_new_start or set_back_ms > 0):
            return
        if set_back_ms > 0:
            shift_timers(group, -set_back_ms)
        if is_new_start:
            restart_timers(group, self.now)
        self._begin_decision(group)

    def execute_controls(self, controls: list[Control]) -> None:
        """Execute control events: load or unload the group, or remember answered requests."""
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
                self.coordinator.load(self.decision, records)
                # Without a cleanup time an idle group would never be called again.
                self.snapshot.cleanup_at = self._next_cleanup()
                if problems:
                    skipped = f"{len(problems)} rows of the offsets topic were skipped"
                    self.decision.note("loaded", f"{skipped}; the first: {problems[0]}")
            self._begin_new_decision()

    def unload(self) -> None:
        """Unload the group, if it exists."""
        if self.decision.group is not None:
            self.coordinator.unload(self.decision)

    def follow_catalogue(self) -> None:
        """Delete the offsets of topics deleted since the group's last decision."""
        catalogue = self.settings.topics
        seen_at = self.snapshot.topics_seen_at
        deleted_at = 0 if catalogue is None else catalogue.deleted_at
        if seen_at is not None and seen_at >= deleted_at:
            return
        self.snapshot.topics_seen_at = deleted_at
        if catalogue is not None and self.decision.group is not None:
            delete_offsets(self.decision, deleted_since(catalogue, seen_at))
            self._begin_new_decision()

    def decide_requests(self, events: list[str]) -> None:
        """Decide the requests, each request id once."""
        if not events:
            return
        settings, recent, window = self.settings, self.snapshot.recent, self.snapshot.window
        room = settings.dedup_max_ids - window.count
        requests = self._decode(events)
        seen = recent.repeats([key for request in requests for key in request.dedup_keys])
        if self._signatures is not None and any(
            request.may_be_copied(self.now) for request in requests
        ):
            seen |= parked_dedup_keys(self.decision.group)
        fresh: list[int] = []
        kept: list[int] = []
        refused = 0
        for request in requests:
            event, dedup_keys, problem = request.event, request.dedup_keys, request.problem
            if not seen.isdisjoint(dedup_keys):
                continue
            key = dedup_keys[0]
            seen.add(key)
            if isinstance(event, Malformed):
                self._answer(answer_malformed(event, request.request_id, self.group_id, self.now))
            elif problem is not None:
                self._refuse(event, ErrorCode.SASL_AUTHENTICATION_FAILED, problem)
            elif DECIDED[event.api].is_repeatable or self._is_denied(event):
                # Deciding such a request twice changes nothing.
                self._decide(event)
            elif window.holds_any(dedup_keys):
                continue
            elif event.request_id in self._recorded:
                kept.append(key)
                self._decide(event, self._recorded[event.request_id])
            elif len(kept) < room:
                kept.append(key)
                self._decide(event)
            else:
                refused += 1
                self._refuse(event, ErrorCode.COORDINATOR_NOT_AVAILABLE, _WINDOW_FULL)
            fresh.append(key)
        if kept:
            window.remember(kept, self.now, settings.dedup_window_ms)
        recent.remember(fresh, self.now, settings.dedup_window_ms, MAX_RECENT)
        if refused:
            self.decision.request_id = None
            self.decision.note("requests_refused", f"{refused} requests: {_WINDOW_FULL}")

    def _is_denied(self, event: RequestEvent) -> bool:
        authorizer = self.coordinator.authorizer
        return authorizer is not None and not authorizer.allows_event(event)

    def _decode(self, events: list[str]) -> list[IdentifiedEvent]:
        """Return the events that can be answered; reject all other events."""
        requests = []
        for text in events:
            event = decode_request(text)
            if event.request_id is not None:
                requests.append(identify(event.request_id, event, self._signatures))
                continue
            reason = "no request_id"
            if isinstance(event, Malformed):
                reason = f"{reason}: {event.message}"
            self.output.rejected.append(RejectedRequest(self.now, reason, text))
        return requests

    def _answer(self, answer: Response) -> None:
        self.decision.responses.append(answer)
        self._decided.append(answer)

    def _refuse(self, event: RequestEvent, code: ErrorCode, why: str) -> None:
        self.decision.request_id = event.request_id
        refuse_because(self.decision, event, code, why)
        self._answer(self.decision.responses.pop())

    def _decide(self, event: RequestEvent, records: Sequence[CoordinatorRecord] = ()) -> None:
        """Decide a request, or answer it from its records if they are in the log."""
        try:
            if records and answer_recorded(self.decision, event, records):
                self._decided.append(self.decision.responses[-1])
                return
            if records:
                # `answer_recorded` may have created the group: `_undo_last` must restore it too.
                self._begin_new_decision()
            self.coordinator.decide(self.decision, event)
        # An exception of a handler is a bug, and must not stop the requests of other groups.
        except Exception:
            reason = traceback.format_exc()
            decision = self._undo_last()
            decision.request_id = event.request_id
            refuse(decision, event, ErrorCode.UNKNOWN_SERVER_ERROR)
            decision.note("handler_failed", f"{event.api}: {reason}")
            self._begin_new_decision()
        else:
            self._decided.append(event)

    # --- timers ---------------------------------------------------------------------------------

    def run_timers(self) -> None:
        """Fire every due timer; hold timers back for one batch if the coordinator was silent."""
        snapshot = self.snapshot
        group = self.decision.group
        due = self._next_deadline = None if group is None else next_deadline(group)
        if due is None or due > self.now:
            snapshot.held_back_at = None
        elif self._was_silent(due):
            snapshot.held_back_at = self.now
        else:
            snapshot.held_back_at = None
            self._fire_all()
            group = self.decision.group
            self._next_deadline = None if group is None else next_deadline(group)
        self._clean_up()

    def _was_silent(self, due: int) -> bool:
        late = self.now - due > self.settings.silence_tolerance_ms
        held_back_at = self.snapshot.held_back_at
        return late and (held_back_at is None or held_back_at == self.now)

    def _fire_all(self) -> None:
        self._begin_new_decision()
        fired = 0
        try:
            for _ in self.coordinator.fire_due(self.decision):
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
        """Run the cleanup if it is due; after a change, schedule it within one check interval."""
        due = self.snapshot.cleanup_at
        group = self.decision.group
        if group is None:
            due = None
        elif due is not None and due <= self.now:
            due = self._expire_offsets()
        elif self.decision.records or self.output.records or group.is_vacant:
            due = self._after_interval if due is None else min(due, self._after_interval)
        self.snapshot.cleanup_at = due

    @property
    def _after_interval(self) -> int:
        return self.now + self.settings.config.offsets_retention_check_interval_ms

    def _expire_offsets(self) -> int | None:
        self._begin_new_decision()
        try:
            cleanup(self.decision)
        # As for requests and timers: a bug must not stop other groups.
        except Exception:
            reason = traceback.format_exc()
            self._undo_last().note("handler_failed", f"cleanup: {reason}")
            return self._after_interval
        return self._next_cleanup()

    def _next_cleanup(self) -> int | None:
        """Return the time of the next cleanup with work to do, at least one check interval away."""
        group = self.decision.group
        if group is None:
            return None
        if group.is_vacant:
            # Just loaded, or the log refused its tombstone.
            return self._after_interval
        expires = next_expiry(group, self.settings.config)
        return None if expires is None else max(expires, self._after_interval)

    # --- result ---------------------------------------------------------------------------------

    def result(self) -> BatchResult:
        """End the last decision; return the group's new state, deadline and output."""
        self._end_decision()
        snapshot, output = self.snapshot, self.output
        snapshot.group = self.decision.group
        snapshot.touched_at = self.now
        has_output = output.responses or output.records or output.events or output.rejected
        if snapshot.group is None:
            times = [t for t in (snapshot.recent.newest, snapshot.window.newest) if t is not None]
            if not times:
                return BatchResult(None, None, output if has_output else None)
            deadline: int | None = max(times) + self.settings.dedup_window_ms
        else:
            deadline = self._deadline
        return BatchResult(encode(snapshot), deadline, output if has_output else None)

    @property
    def _deadline(self) -> int | None:
        # The cleanup changes no timer, so the deadline is that of `run_timers`.
        deadline, cleanup_at = self._next_deadline, self.snapshot.cleanup_at
        if deadline is None or cleanup_at is None:
            return cleanup_at if deadline is None else deadline
        return min(deadline, cleanup_at)
