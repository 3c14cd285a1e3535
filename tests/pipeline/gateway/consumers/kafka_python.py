"""A consumer of kafka-python's."""

from __future__ import annotations

from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError, RebalanceInProgressError

from tests.pipeline.gateway.consumers.lines import HEARTBEAT_MS, SESSION_MS, arguments, write

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


def consume(address: str, strategy: str, instance: str | None) -> None:
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=address,
        group_id="g",
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[ASSIGNORS[strategy]],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while True:
        found = consumer.poll(timeout_ms=200)
        for records in found.values():
            write((each.partition, each.offset, each.value) for each in records)
        try:
            if found:
                consumer.commit()
        except (CommitFailedError, RebalanceInProgressError):
            continue


if __name__ == "__main__":
    consume(*arguments())
