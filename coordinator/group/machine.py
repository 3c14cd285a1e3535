"""The decisions for all groups of a stream, one group of one batch at a time.

Pure and repeatable: the same settings, state, events and time give the same bytes. Requests to
groups of offsets partitions that this coordinator does not own are ignored. A state from an earlier
claim of the partition is discarded, because another coordinator may have decided for the group
since.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from group_coordinator.coordinator.authorization import Authorizer, super_users_of
from group_coordinator.coordinator.group.batch import (
    NO_EPOCH,
    BatchResult,
    BatchSettings,
    GroupBatch,
    GroupOutput,
    new_member_uuid,
)
from group_coordinator.coordinator.group.control import (
    PREFIX,
    UNLOAD_EVENT,
    Control,
    Load,
    Remember,
    decode_control,
    request_of,
)
from group_coordinator.coordinator.group.coordinator import GroupCoordinator
from group_coordinator.coordinator.group.group_snapshot import GroupSnapshot, decode
from group_coordinator.coordinator.group.log_time import log_time
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.coordinator.signatures import RequestKey, Signatures
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.decoding import refusal
from group_coordinator.schemas.messages import RejectedRequest
from group_coordinator.schemas.rows import Catalogue


class BatchMachine:
    """The decisions for one group of one batch at a time; it keeps settings, but no group.

    `keys` are the request keys with their secrets; only those that `settings.keys` lists with the
    same fingerprint are used.
    """

    def __init__(
        self, settings: BatchSettings | None = None, keys: Iterable[RequestKey] = ()
    ) -> None:
        self._keys = Signatures(keys)
        self.set_settings(settings or BatchSettings())

    def set_settings(self, settings: BatchSettings) -> None:
        """Replace the settings."""
        self.settings = settings
        self.coordinator = GroupCoordinator(
            settings.config,
            new_id=new_member_uuid,
            owner_of=lambda _partition: settings.node,
        )
        self._signatures = None if settings.keys is None else self._keys.matching(settings.keys)
        self.set_topics(settings.topics)
        self.set_acls(settings.acls)

    def process(
        self, group_id: str | None, state: bytes | None, events: list[str], now: int
    ) -> BatchResult:
        """Decide a group's requests (JSON texts, in order) and due timers at batch time `now`, ms.

        Raises UnknownSnapshot if this release cannot read `state`. Events never raise an error.
        """
        claim = self._claim_of(group_id)
        if claim is None:
            return self._drop_state(group_id, state, events, now)
        if group_id is None:
            return _reject_all(events, now)
        snapshot = decode(state)
        if not snapshot.is_under(claim):
            state, snapshot = None, GroupSnapshot()
        snapshot.claim_epoch = claim
        # As `is_control`, without a call for each event.
        controls = [decode_control(text) for text in events if text.startswith(PREFIX)]
        time = _time_of(snapshot, controls, now)
        batch = self._batch(group_id, state, snapshot, time)
        batch.resume()
        if controls:
            batch.execute_controls(controls)
            events = [request for text in events if (request := request_of(text)) is not None]
        batch.follow_catalogue()
        batch.decide_requests(events)
        batch.run_timers()
        result = batch.result()
        if snapshot.log_time is not None and result.deadline is not None:
            result.deadline = snapshot.log_time.clock_at(result.deadline)
        return result

    def set_topics(self, catalogue: Catalogue | None) -> None:
        """Replace the catalogue; None accepts every topic."""
        self.settings = replace(self.settings, topics=catalogue)
        self.coordinator.topics = None if catalogue is None else catalogue.partitions

    def set_acls(self, acls: tuple[AclBinding, ...] | None) -> None:
        """Replace the ACLs; None allows every operation."""
        self.settings = replace(self.settings, acls=acls)
        config = self.settings.config
        self.coordinator.authorizer = None
        if acls is not None:
            self.coordinator.authorizer = Authorizer(
                acls, super_users_of(config.super_users), config.allow_everyone_if_no_acl_found
            )

    def _batch(
        self, group_id: str, state: bytes | None, snapshot: GroupSnapshot, time: int
    ) -> GroupBatch:
        return GroupBatch(
            self.coordinator, self.settings, self._signatures, group_id, state, snapshot, time
        )

    def _claim_of(self, group_id: str | None) -> int | None:
        """Return the epoch of this coordinator's claim of the group's partition, None without."""
        claims = self.settings.claims
        return NO_EPOCH if claims is None else claims.get(self._partition_of(group_id))

    def _partition_of(self, group_id: str | None) -> int:
        # An event without a group id must be rejected exactly once: by the owner of partition 0.
        partitions = self.settings.config.offsets_topic_num_partitions
        return 0 if group_id is None else partition_for(group_id, partitions)

    def _drop_state(
        self, group_id: str | None, state: bytes | None, events: list[str], now: int
    ) -> BatchResult:
        """Delete the state of a group if this coordinator does not own its partition.

        Parked requests are answered only if the group is unloaded while the coordinator still owns
        the partition: otherwise another coordinator may have answered them.
        """
        if group_id is None or state is None or UNLOAD_EVENT not in events:
            return BatchResult(None, None, None)
        claim = self.settings.unloading.get(self._partition_of(group_id))
        snapshot = decode(state)
        if claim is None or not snapshot.is_under(claim):
            return BatchResult(None, None, None)
        time = _time_of(snapshot, [], now)
        batch = self._batch(group_id, state, snapshot, time)
        batch.unload()
        return batch.result()


def _time_of(snapshot: GroupSnapshot, controls: list[Control], now: int) -> int:
    """Return the group's time in a batch at time `now` (ms); update the snapshot's log time."""
    if snapshot.log_time is None and not controls:
        return now
    time = now if snapshot.log_time is None else snapshot.log_time.at(now)
    if time == now:
        snapshot.log_time = None
    log_times = [event.log_ms for event in controls if isinstance(event, (Load, Remember))]
    newest = max((log_ms for log_ms in log_times if log_ms is not None), default=time)
    if newest > time:
        snapshot.log_time = log_time(newest, now) or snapshot.log_time
    return now if snapshot.log_time is None else snapshot.log_time.at(now)


def _reject_all(events: list[str], now: int) -> BatchResult:
    rejected = []
    for text in events:
        why = refusal(text)
        reason = "no group_id" if why is None else f"no group_id: {why}"
        rejected.append(RejectedRequest(now, reason, text))
    output = GroupOutput([], [], [], rejected) if rejected else None
    return BatchResult(None, None, output)
