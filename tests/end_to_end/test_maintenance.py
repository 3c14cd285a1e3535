"""Administrators maintain each table of a root while its coordinator and its gateway run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import write_deltalake

from group_coordinator.pipeline.tables.acl_table import add_acls
from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.pipeline.topics import create_log_topic, create_table_topic
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
    RequestEvent,
)
from group_coordinator.schemas.tables import ACLS, ON_DEMAND, TABLES
from tests.end_to_end.maintenance import by_delta_rs, by_spark
from tests.end_to_end.test_story import produce
from tests.ends import check_end, check_runs
from tests.pipeline.asking import ask
from tests.pipeline.gateway.running import gateway
from tests.support.process import KillableCoordinator
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1_800)]

ALLOWED = [
    AclBinding(kind, "*", "LITERAL", "User:ANONYMOUS", "*", "ALL", "ALLOW")
    for kind in ("TOPIC", "GROUP")
]


def commit(root: str, number: int) -> None:
    """Commit an offset by a row of `requests`, and wait until it is acknowledged."""
    partition = OffsetCommitPartition(0, number)
    body = OffsetCommitRequest(topics=(OffsetCommitTopic("clicks", (partition,)),))
    request = RequestEvent(f"commit {number}", "g", "offset_commit", offset_commit=body)
    answer = ask(root, request, LIMIT_S).offset_commit
    assert answer is not None
    assert [each.error_code for topic in answer.topics for each in topic.partitions] == [0]


def last_of(address: str, topic: str) -> bytes:
    """Fetch the last record of partition 0 of a topic, and return its value."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=LIMIT_S)
        consumer.assign([TopicPartition(topic, 0, end - 1)])
        message = consumer.poll(LIMIT_S)
        assert message is not None and message.error() is None
        return message.value()
    finally:
        consumer.close()


def tables_of(root: str, users: Path) -> dict[str, Path]:
    """Return all tables of a root, with its topic's own table, and the user's table, by name."""
    named = {each.name: Path(table_uri(root, each)) for each in (*TABLES.values(), *ON_DEMAND)}
    (own,) = Path(root, "topic_records").glob("clicks-*")
    present = {name: path for name, path in named.items() if (path / "_delta_log").exists()}
    assert ACLS.name in present
    return {**present, "a topic's own table": own, "a user's table": users}


@pytest.mark.parametrize("engine", ["delta-rs", "Spark"])
def test_maintenance_of_every_table_stops_neither_the_coordinator_nor_the_gateway(
    light_spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    root, users = str(tmp_path / "root"), tmp_path / "users"
    ensure_tables(root)
    numbers = pa.array(range(10), pa.int64())
    write_deltalake(str(users), pa.table({"id": numbers, "name": [f"n{n}" for n in range(10)]}))
    create_log_topic(root, "clicks", 1)
    create_table_topic(root, "users", 1, str(users), key="name")
    add_acls(root, ALLOWED)
    light_spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # VACUUM would list the folders of a table by 10,000 tasks.
    light_spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")
    operations = by_delta_rs() if engine == "delta-rs" else by_spark(light_spark)
    coordinator = KillableCoordinator(root, None, tmp_path / "coordinator.log")
    try:
        coordinator.await_ready()
        with gateway(root) as broker:
            address = f"{broker.host}:{broker.port}"
            number = 0
            produce(address, number, 1)
            for operation, run in operations.items():
                for name, table in tables_of(root, users).items():
                    number += 1
                    print(f"{operation}: {name}", flush=True)
                    run(table)
                    commit(root, number)
                    produce(address, number, 1)
                    assert last_of(address, "clicks") == str(number).encode()
                    assert last_of(address, "users")
                    check_runs(coordinator.process.poll(), coordinator.log_path)
        check_end(coordinator.stop(), coordinator.log_path)
    finally:
        coordinator.kill()
