"""Settings of upkeep: the section [upkeep]. Kafka's settings keep their names."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from group_coordinator.coordinator.config import KafkaSettings, NonNegativeLong, PositiveLong

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# A pending request or a slow reader may still need rows younger than an hour.
Retention = Annotated[int, Meta(ge=HOUR_MS)]


class UpkeepSettings(KafkaSettings, frozen=True, kw_only=True):
    """The section [upkeep]; conf/coordinator.toml describes each setting. Times in ms."""

    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: PositiveLong = 60_000
    log_cleaner_threads: PositiveLong = 1
    log_cleaner_memory: Annotated[int, Meta(ge=64 << 20)] = field(
        name="log.cleaner.dedupe.buffer.size", default=512 << 20
    )
    min_cleanable_dirty_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    min_compaction_lag_ms: NonNegativeLong = 0
    delete_retention_ms: NonNegativeLong = DAY_MS
    offsets_history_retention_ms: NonNegativeLong = field(
        name="offsets_history.retention.ms", default=7 * DAY_MS
    )
    retain_interval_ms: PositiveLong = HOUR_MS
    log_retention_check_interval_ms: PositiveLong = 300_000
    requests_retention_ms: Retention = 7 * DAY_MS
    responses_retention_ms: Retention = 9 * DAY_MS
    group_events_retention_ms: Retention = field(
        name="group_events.retention.ms", default=30 * DAY_MS
    )
    vacuum_retention_ms: Retention = HOUR_MS

    @property
    def vacuum_retention_hours(self) -> int:
        """Return `vacuum_retention_ms` in hours, rounded up: Delta's VACUUM takes whole hours."""
        return -(-self.vacuum_retention_ms // HOUR_MS)

    def __post_init__(self) -> None:
        # Retention deletes whole files, and a file holds up to a day of rows. The clocks of a
        # client and a coordinator may differ by another day. If an answer were deleted before its
        # request, a coordinator that starts without its streaming checkpoint would answer it again.
        if self.responses_retention_ms < self.requests_retention_ms + 2 * DAY_MS:
            raise ValueError(
                "responses.retention.ms must be at least two days more than requests.retention.ms"
            )
