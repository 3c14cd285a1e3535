"""The settings of a producer of records: Kafka's names and meanings, for Delta tables as logs."""

from __future__ import annotations

from group_coordinator.coordinator.config import KafkaSettings, NonNegativeLong, PositiveLong


class RecordProducerSettings(KafkaSettings, frozen=True, kw_only=True):
    """How records are gathered and sent. Times in ms, sizes in bytes (`accumulator.record_size`).

    * `batch.size`: a batch of so much is written at once (Kafka: 16384; here a commit costs as much
      as ten thousand records, and a commit has whatever waits).
    * `linger.ms`: how long a batch waits for more records (Kafka: 5). Each commit costs the topic's
      readers a file for each partition.
    * `buffer.memory`: what waits or is being written at most; beyond it `send` blocks.
    * `max.block.ms`: how long `send` blocks at most, also until the topic can be read.
    * `max.request.size`: the largest record. A topic's `max.message.bytes` may ask for less.
    * `delivery.timeout.ms`: how long after `send` a record is given up.
    * `retries`, `retry.backoff.ms`, `retry.backoff.max.ms`: how often a failed commit is tried
      again, and after how long; the wait doubles each time, give or take a fifth.
    * `enable.idempotence`: what was written already, and was not known to be, is not written again.
    * `principal`: by whose ACLs the producer writes; `super.users` and
      `allow.everyone.if.no.acl.found` as the coordinator has them.
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
