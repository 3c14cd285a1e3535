"""Settings of the request producer: Kafka's names and meanings, with a Delta table as the log."""

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
    """Settings of batching, retries and identity. Times in ms, sizes in bytes of encoded requests.

    * `batch.size`: the maximum size of one commit (Kafka: 16384). A commit of many requests costs
      about as much as a commit of one. A larger request is committed alone.
    * `linger.ms`: how long a batch waits for more requests (Kafka: 5). For a `RequestClient` it is
      the longest wait, because answers can end it. A shorter linger makes more, smaller files,
      which cost the coordinator's micro-batch more time than the linger saves.
    * `buffer.memory`: the maximum size of all requests that wait or are in flight. Beyond it `send`
      blocks, for at most `max.block.ms`.
    * `max.in.flight.requests.per.connection`: the maximum number of commits in flight (Kafka: 5).
      Commits to one Delta table are serial: two commits write their files in parallel, and then
      compete for the version. On a local disk, two write fewer requests per second than one, in
      more files.
    * `delivery.timeout.ms`: how long after `send` a request is given up.
    * `principal`: the principal of requests that name no principal.
    * `request.key.file`: the file with the key that signs the requests (`keys add`).
    * `retries`: how often a failed commit is retried.
    * `retry.backoff.ms`, `retry.backoff.max.ms`: the first and the longest backoff. It doubles with
      each retry, with a jitter of 20 %.
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
    """Parse settings with Kafka's names. Raises SettingsError, which names the invalid one."""
    try:
        return typed(ProducerSettings, values)
    except ConfigError as error:
        raise SettingsError(f"the producer: {error}") from error
