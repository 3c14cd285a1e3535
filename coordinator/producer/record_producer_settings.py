"""The settings of a record producer, with Kafka's names, for topics that are Delta tables."""

from __future__ import annotations

from group_coordinator.coordinator.config import KafkaSettings, NonNegativeLong, PositiveLong


class RecordProducerSettings(KafkaSettings, frozen=True, kw_only=True):
    """Settings of one record producer. Times in ms, sizes in bytes as `record_size` counts them.

    * `batch.size`: Kafka's default is 16384. This one is larger because a commit costs as much as
      ten thousand records.
    * `linger.ms`: Kafka's default is 5. This one is longer because each commit adds a file per
      partition that the topic's readers must open.
    * `buffer.memory`: the limit on records that wait or are in flight. At the limit `send` blocks.
    * `max.block.ms`: the longest time for which `send` blocks, for memory or for a topic that
      cannot be read.
    * `max.request.size`: the largest record. A topic's `max.message.bytes` may be lower.
    * `delivery.timeout.ms`: the time after which an unwritten batch fails, from the `send` of its
      first record.
    * `retries`, `retry.backoff.ms`, `retry.backoff.max.ms`: the retries of a failed commit. The
      backoff doubles with each one, with 20% jitter.
    * `enable.idempotence`: whether the topic's log deduplicates a retry after an unknown outcome.
    * `principal`: the principal that ACLs must allow to write. Set `super.users` and
      `allow.everyone.if.no.acl.found` as for the coordinator.
    """

    batch_size: PositiveLong = 1 << 20
    linger_ms: NonNegativeLong = 50
    buffer_memory: PositiveLong = 64 << 20
    max_block_ms: NonNegativeLong = 60_000
    max_request_size: PositiveLong = 1 << 20
    delivery_timeout_ms: PositiveLong = 120_000
    retries: NonNegativeLong = 2**31 - 1
    retry_backoff_ms: NonNegativeLong = 100
    retry_backoff_max_ms: NonNegativeLong = 1_000
    enable_idempotence: bool = True
    principal: str | None = None
    super_users: str = ""
    allow_everyone_if_no_acl_found: bool = False

    def __post_init__(self) -> None:
        if self.delivery_timeout_ms <= self.linger_ms:
            raise ValueError("delivery.timeout.ms must be more than linger.ms")
