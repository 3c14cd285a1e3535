"""All settings: the defaults, and a user's file that overrides single keys.

A section is a Struct: [group] has Kafka's broker settings (`coordinator.config`), [coordinator] the
settings that only this project has. [upkeep] sets compaction and retention, [gateway] the gateways
(`pipeline.gateway_settings`). [spark] has Spark settings, which override conf/spark-defaults.conf.

conf/coordinator.toml describes each setting; only a test reads it, to compare it with the Structs.
A key may be written bare, `trigger.interval.ms = 500`, or quoted: TOML reads a bare key as nested
tables, and `flatten` joins them again.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from group_coordinator.coordinator.config import (
    ConfigError,
    GroupCoordinatorConfig,
    KafkaSettings,
    NonNegativeLong,
    PositiveLong,
    nearest,
    typed,
)
from group_coordinator.pipeline.errors import UsageError
from group_coordinator.pipeline.gateway_settings import GatewaySettings

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# A pending request or a slow reader may still need rows younger than an hour.
Retention = Annotated[int, Meta(ge=HOUR_MS)]
Port = Annotated[int, Meta(ge=0, le=65_535)]


class SettingsError(UsageError):
    """An unknown setting or an invalid value; the message names it."""


class CoordinatorSettings(KafkaSettings, frozen=True, kw_only=True):
    """The section [coordinator]; conf/coordinator.toml describes each setting. Times in ms."""

    node_id: NonNegativeLong = 1
    advertised_host: str = "localhost"
    advertised_port: Port = 9092
    lease_ms: Annotated[int, Meta(ge=1000)] = 10_000
    controlled_shutdown_timeout_ms: NonNegativeLong = 8_000
    progress_timeout_ms: PositiveLong = 60_000
    trigger_interval_ms: PositiveLong = 500
    trigger_max_interval_ms: PositiveLong = 10_000
    trigger_linger_ms: NonNegativeLong = 100
    timer_tolerance_ms: NonNegativeLong = 2_000
    max_files_per_trigger: PositiveLong = 10_000
    max_bytes_per_trigger: PositiveLong = 33_554_432
    max_request_size: PositiveLong = 16_777_216
    checkpoint_location: str = ""
    shuffle_partitions: NonNegativeLong = 0
    state_store: Literal["rocksdb", "memory"] = "rocksdb"
    segment_bytes: PositiveLong = 104_857_600
    segment_ms: PositiveLong = 604_800_000
    log_flush_enable: bool = False
    requests_keys_file: str = ""
    request_dedup_window_ms: NonNegativeLong = 60_000
    request_dedup_max_ids: PositiveLong = 131_072

    @property
    def longest_trigger_ms(self) -> int:
        """The longest time that a batch waits for requests or timers, ms."""
        return max(self.trigger_interval_ms, self.trigger_max_interval_ms)


class UpkeepSettings(KafkaSettings, frozen=True, kw_only=True):
    """The section [upkeep]; conf/coordinator.toml describes each setting. Times in ms.

    Kafka's settings keep their names.
    """

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
        """`vacuum_retention_ms` in hours, rounded up, because Delta's VACUUM takes whole hours."""
        return -(-self.vacuum_retention_ms // HOUR_MS)

    def __post_init__(self) -> None:
        # Retention deletes whole files of up to a day of rows, and clocks may differ by another
        # day. If an answer were deleted before its request, a coordinator without its streaming
        # checkpoint would answer the request again.
        if self.responses_retention_ms < self.requests_retention_ms + 2 * DAY_MS:
            raise ValueError(
                "responses.retention.ms must be at least two days more than requests.retention.ms"
            )


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, with a field for each section."""

    coordinator: CoordinatorSettings = CoordinatorSettings()
    group: GroupCoordinatorConfig = GroupCoordinatorConfig()
    gateway: GatewaySettings = GatewaySettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    spark: dict[str, str] = {}

    def with_node_id(self, node_id: int | None) -> Settings:
        """Return these settings with another node.id; None changes nothing."""
        if node_id is None:
            return self
        return self._with(node_id=node_id)

    def with_advertised_address(self, host: str, port: int) -> Settings:
        """Return these settings with an advertised address, unless one is configured.

        Port 0 changes nothing, because the port is not known yet.
        """
        ours, default = self.coordinator, CoordinatorSettings()
        own = (ours.advertised_host, ours.advertised_port)
        if port == 0 or own != (default.advertised_host, default.advertised_port):
            return self
        return self._with(advertised_host=host, advertised_port=port)

    def _with(self, **ours: Any) -> Settings:
        return msgspec.structs.replace(
            self, coordinator=msgspec.structs.replace(self.coordinator, **ours)
        )


# The type of each section.
SECTIONS = {each.name: each.type for each in msgspec.structs.fields(Settings)}


def load_settings(path: str | Path | None = None) -> Settings:
    """Return the defaults, overridden by the file `path`.

    Raises SettingsError for a file that cannot be read or is not TOML, and for an unknown section,
    an unknown key, or an invalid value.
    """
    return Settings() if path is None else to_settings(read_user_file(path))


def read_user_file(path: str | Path) -> dict[str, dict[str, Any]]:
    """Read the sections of a user's file, each flattened. Raises SettingsError."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read settings from {path}: {error.strerror}") from error
    return read_sections(text, str(path))


def to_settings(sections: dict[str, dict[str, Any]]) -> Settings:
    """Convert flattened sections to settings. Raises SettingsError with the section and key."""
    return Settings(**{name: _typed(name, values) for name, values in sections.items()})


def _typed(section: str, values: dict[str, Any]) -> Any:
    if section == "spark":
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in values.items()
        }
    try:
        return typed(SECTIONS[section], values)
    except ConfigError as error:
        raise SettingsError(f"[{section}] {error}") from error


def read_sections(text: str, origin: str) -> dict[str, dict[str, Any]]:
    """Read the sections of a TOML text, each flattened. Raises SettingsError with `origin`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{origin} is not TOML: {error}") from error
    for name, content in document.items():
        if name not in SECTIONS:
            raise SettingsError(f"{origin}: unknown section [{name}]{nearest(name, SECTIONS)}")
        if not isinstance(content, dict):
            raise SettingsError(f"{origin}: the key {name!r} is outside of a section")
    return {name: flatten(document.get(name, {})) for name in SECTIONS}


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables; the keys are joined with dots."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
