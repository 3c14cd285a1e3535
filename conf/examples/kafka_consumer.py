"""A consumer written with confluent-kafka alone, without code of this project.

    python -m group_coordinator.conf.examples.kafka_consumer BOOTSTRAP GROUP TOPIC

where `group-coordinator gateway` serves BOOTSTRAP, and TOPIC is a Delta table.

Each line on stdout has the partitions that were assigned or revoked, or the consumed records.
"""

from __future__ import annotations

import json
import select
import signal
import sys
from typing import Any

from confluent_kafka import Consumer, TopicPartition


def print_line(**line: Any) -> None:
    """Write a JSON object."""
    print(json.dumps(line), flush=True)


def main(bootstrap: str, group: str, topic: str) -> None:
    """Consume until SIGTERM, or until stdin has input or ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )

    stopping = False

    def printer(event: str) -> Any:
        def on_change(_: Consumer, partitions: list[TopicPartition]) -> None:
            print_line(event=event, partitions=sorted(each.partition for each in partitions))

        return on_change

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer.subscribe([topic], on_assign=printer("assigned"), on_revoke=printer("revoked"))
    while not stopping and not select.select([sys.stdin], [], [], 0)[0]:
        records = [
            [
                message.partition(),
                message.offset(),
                (message.key() or b"").decode(),
                (message.value() or b"").decode(),
            ]
            for message in consumer.consume(1_000, 0.5)
            if message.error() is None
        ]
        if records:
            print_line(records=records)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
