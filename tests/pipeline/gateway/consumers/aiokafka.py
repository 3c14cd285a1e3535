"""A consumer of aiokafka's."""

from __future__ import annotations

import asyncio

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.pipeline.gateway.consumers.lines import HEARTBEAT_MS, SESSION_MS, arguments, write

ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


async def consume(address: str, strategy: str, instance: str | None) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
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
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=200, max_records=500)
        for records in found.values():
            write((each.partition, each.offset, each.value) for each in records)
        try:
            if found:
                await consumer.commit()
        except aiokafka.errors.KafkaError:
            continue


if __name__ == "__main__":
    asyncio.run(consume(*arguments()))
