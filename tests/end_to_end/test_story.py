"""A deployment from start to end, through public entry points only.

The job is packaged and started by spark-submit, and a gateway in a separate process. A Kafka client
and a Spark session use it. It is killed, loses its checkpoint, and is started again.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable

from group_coordinator import register_data_source, register_views
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node.packaging import write_package
from group_coordinator.pipeline.session.spark_settings import packages
from tests.end_to_end.submitting import SPARK_HOME, Submitting, shipped
from tests.ends import check_end
from tests.frames import assert_alike, assert_same_rows
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

RECORDS = 300
PARTITIONS = 3
WAIT_S = 420.0
# Each view takes Spark half a second or more. The full tier compares all of them.
VIEWS = ("groups", "committed_offsets", "rebalances", "changes_without_member")
COMMAND = str(Path(sys.executable).with_name("group-coordinator"))
REQUEST = """
    SELECT 'from-spark' AS request_id, 'nightly' AS group_id, 'offset_commit' AS api,
        '{"topics": [{"name": "clicks", "partitions": [
            {"partition_index": 1, "committed_offset": 7}]}]}' AS body
"""


class Deployment(Submitting):
    """The coordinator, started as the page on clusters says, and a gateway."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.root = folder / "root"
        self.python = Path(sys.executable)
        self._package = write_package(folder / "dist")
        self._starts = 0

    def start_coordinator(self) -> str:
        """Start spark-submit, wait until the coordinator is ready, and return the job's name."""
        self._starts += 1
        name = f"start-{self._starts}"
        job = [*shipped(self._package), "--packages", packages(), str(self._package.job)]
        home = {"SPARK_HOME": str(SPARK_HOME)}
        self.submit_to("local[2]", name, (*job, "--root", str(self.root)), home)
        self.until_said(name, "ready", "\nready", limit_s=WAIT_S)
        return name

    def start_gateway(self) -> str:
        """Start a gateway at a free port, and return its address."""
        command = [COMMAND, "gateway", "--root", str(self.root), "--listen", "127.0.0.1:0"]
        self.start("gateway", command, {})
        self.until_said("gateway", "listening", "127.0.0.1:")
        found = re.search(r"127\.0\.0\.1:\d+", self.text("gateway"))
        assert found is not None
        return found[0]

    def end(self, name: str, status: int) -> None:
        """Send SIGTERM to a process, and wait until it has ended."""
        child = self._children.pop(name)
        os.kill(child.pid, signal.SIGTERM)
        check_end(child.wait(120), self.text(name)[-2_000:], status)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployed = Deployment(tmp_path / "deployed")
    yield deployed
    deployed.kill_all()


def produce(address: str, first: int, count: int) -> None:
    """Produce records with consecutive numbers as values, and wait for all acknowledgements."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": address})
    for number in range(first, first + count):
        producer.produce(
            "clicks",
            key=str(number),
            value=str(number),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failures == []


def consume(address: str, count: int) -> tuple[set[int], dict[int, int]]:
    """Consume this many records as a member of `billing`; return them and the committed offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["clicks"])
    numbers: list[int] = []

    def has_all() -> bool:
        for message in consumer.consume(count, timeout=1.0):
            assert message.error() is None, message.error()
            numbers.append(int(message.value()))
        return len(numbers) >= count

    try:
        wait_until(lambda: f"{len(numbers)} of {count} records", has_all, WAIT_S)
        consumer.commit(asynchronous=False)
        partitions = [TopicPartition("clicks", number) for number in range(PARTITIONS)]
        committed = {each.partition: each.offset for each in consumer.committed(partitions, 60)}
    finally:
        consumer.close()
    assert len(numbers) == len(set(numbers)), "a record was consumed twice"
    return set(numbers), committed


def responses(root: Path, request_id: str) -> list[str]:
    rows = DeltaTable(str(root / "responses")).to_pyarrow_table().to_pylist()
    return [row["error_code"] for row in rows if row["request_id"] == request_id]


def check_spark_reads_what_python_reads(spark: SparkSession, root: Path) -> None:
    """Compare all tables of the root, and some views, as read by Spark and by Python."""
    tables = sorted(log.parent for log in root.glob("*/_delta_log"))
    assert len(tables) >= 9
    for table in tables:
        read = spark.read.format("delta").load(str(table))
        assert_same_rows(read, DeltaTable(str(table)).to_pyarrow_table(), ignore_nullable=True)
    register_views(spark, str(root), names=VIEWS)
    catalog = Catalog(str(root))
    for view in VIEWS:
        rows = catalog.arrow(f"FROM {view}")
        assert rows.num_rows, view
        assert_alike(spark.table(view), rows)
    catalog.close()


def test_a_deployment_is_used_killed_and_read(
    deployment: Deployment, light_spark: SparkSession
) -> None:
    root = deployment.root
    killed = deployment.start_coordinator()
    create = [COMMAND, "topics", "create", "clicks", "--partitions", str(PARTITIONS)]
    creating = deployment.start("create", [*create, "--root", str(root)], {})
    check_end(creating.wait(60), deployment.text("create"))
    address = deployment.start_gateway()

    produce(address, 0, RECORDS)
    first, committed = consume(address, RECORDS)
    assert first == set(range(RECORDS))
    assert sum(committed.values()) == RECORDS

    register_data_source(light_spark)
    requests = light_spark.sql(REQUEST).write.format("group_coordinator")
    requests.option("root", str(root)).mode("append").save()
    wait_until("an answer to Spark", lambda: responses(root, "from-spark") == [0], WAIT_S)

    deployment.kill(killed)
    shutil.rmtree(root / "_checkpoints")
    restarted = deployment.start_coordinator()
    produce(address, RECORDS, RECORDS)
    second, committed = consume(address, RECORDS)
    assert second == set(range(RECORDS, 2 * RECORDS)), "the group continues where it committed"
    assert sum(committed.values()) == 2 * RECORDS

    deployment.end("gateway", 0)
    # 143 is Java's exit status after SIGTERM, also after an orderly shutdown.
    deployment.end(restarted, 143)
    assert responses(root, "from-spark") == [0], "it is answered once"
    check_spark_reads_what_python_reads(light_spark, root)
