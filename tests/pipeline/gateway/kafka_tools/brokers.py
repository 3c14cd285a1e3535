"""The brokers that Kafka's tools are run against, a real one and a gateway, with the same topics.

`orders` has 10, 5 and no records in its three partitions, `returns` has 3 in its one. The records
of a partition are a second apart from `FIRST_MS` on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from pipeline.bench.broker import HOST, broker
from pipeline.topics import create_table_topic
from tests.pipeline.gateway.running import coordinator, gateway

FIRST_MS = 1_700_000_000_000
# Records of that age would be deleted by the first check of the retention.
_SETTINGS = {"log.initial.task.delay.ms": 86_400_000}
COUNTS = {"orders": (10, 5, 0), "returns": (3,)}


@contextmanager
def real(libs: Path) -> Iterator[str]:
    """A real broker's address, while the block runs."""
    with broker(libs, _SETTINGS) as running:
        address = f"{HOST}:{running.port}"
        admin = KafkaAdminClient(bootstrap_servers=address)
        admin.create_topics([NewTopic(name, len(counts), 1) for name, counts in COUNTS.items()])
        admin.close()
        producer = KafkaProducer(bootstrap_servers=address)
        for name, counts in COUNTS.items():
            for number, count in enumerate(counts):
                for each in range(count):
                    at = FIRST_MS + 1_000 * each
                    producer.send(name, b"x", partition=number, timestamp_ms=at)
        producer.close()
        yield address


@contextmanager
def ours(root: str, tables: Path) -> Iterator[str]:
    """The address of a gateway of an empty root, while the block runs; each topic is a table."""
    for name, counts in COUNTS.items():
        rows = [(number, each) for number, count in enumerate(counts) for each in range(count)]
        columns = {
            "partition": [number for number, _ in rows],
            "at": [FIRST_MS + 1_000 * each for _, each in rows],
        }
        table = str(tables / name)
        write_deltalake(table, pa.table(columns))
        create_table_topic(root, name, len(counts), table, partition="partition", timestamp="at")
    with coordinator(root), gateway(root) as running:
        yield f"{running.host}:{running.port}"
