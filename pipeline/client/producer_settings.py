"""The settings of the producer: Kafka's names and meanings, for a Delta table as the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, field

from group_coordinator.coordinator.config import (
    ConfigError,
    KafkaSettings,
    NonNegativeLong,
    PositiveLong,
    typed,
)
from group_coordinator.pipeline.settings import SettingsError

_MOST = 2**31 - 1


class ProducerSettings(KafkaSettings, frozen=True, kw_only=True):
    """How requests are gathered and sent. Times in ms, sizes in bytes of the encoded requests.

    * `batch.size`: the most bytes of one commit (Kafka: 16384; here a commit of many requests costs
      about as much as a commit of one). A larger request is a commit of its own.
    * `linger.ms`: how long a batch waits for more requests (Kafka: 5); for a `RequestClient`, which
      hears of answers, the most that it waits. Answers come sooner with fewer, larger files: a
      shorter wait costs the coordinator's micro-batch more, by the number of files, than it saves.
    * `buffer.memory`: the most bytes that wait or are being written; beyond it `send` blocks.
    * `max.block.ms`: how long `send` blocks at most.
    * `max.in.flight.requests.per.connection`: commits in flight at once (Kafka: 5). Commits to one
      Delta table are serial: a second one only writes its file meanwhile, and then the two race. On
      a local disk two write fewer requests a second than one does, in more files.
    * `delivery.timeout.ms`: how long after `send` a request is given up.
    * `principal`: who the requests say they are of, if they do not say so themselves.
    * `request.key.file`: the file with the key by which they are signed (`keys add`).
    * `retries`, `retry.backoff.ms`, `retry.backoff.max.ms`: how often a failed commit is retried,
      and after how long; the wait doubles each time, give or take a fifth.
    """

    batch_size: PositiveLong = 1 << 20
    linger_ms: NonNegativeLong = 50
    buffer_memory: PositiveLong = 32 << 20
    max_block_ms: NonNegativeLong = 60_000
    max_in_flight: Annotated[int, Meta(ge=1, le=64)] = field(
        name="max.in.flight.requests.per.connection", default=1
    )
    delivery_timeout_ms: PositiveLong = 120_000
    retries: NonNegativeLong = _MOST
    retry_backoff_ms: NonNegativeLong = 100
    retry_backoff_max_ms: NonNegativeLong = 1_000
    principal: str | None = None
    request_key_file: str = ""

    def __post_init__(self) -> None:
        if self.delivery_timeout_ms <= self.linger_ms:
            raise ValueError("delivery.timeout.ms must be more than linger.ms")


def parse_producer(values: Mapping[str, Any]) -> ProducerSettings:
    """Type settings under Kafka's names; raises SettingsError that names the one at fault."""
    try:
        return typed(ProducerSettings, values)
    except ConfigError as error:
        raise SettingsError(f"the producer: {error}") from error
