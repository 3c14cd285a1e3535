"""10,000 requests from Spark, while other clients and the upkeep write to the same tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from group_coordinator.pipeline.client import GroupMember, RequestProducer
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.settings import UpkeepSettings
from group_coordinator.pipeline.tables.request_log import open_requests
from group_coordinator.pipeline.tables.store import open_table, table_uri
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.upkeep.retention import retain
from group_coordinator.schemas.messages import OffsetFetchRequest, RequestEvent
from group_coordinator.schemas.tables import REQUESTS, RESPONSES
from tests.ends import check_end
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.spark.stream_job import ROWS
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUESTS_IN_ALL = 10_000
FILES = 40
KILLS = 10
WAIT_S = 1_200.0
BROKER = {"group.initial.rebalance.delay.ms": 0}
TOP = Path(__file__).parents[3]


@contextmanager
def load(root: str) -> Iterator[Callable[[], None]]:
    """Let a coordinator decide, and three members, a producer and the packing of files write.

    Yields a function that raises the error of a thread that has failed.
    """
    create_topic(root, "t", 3)
    stopping = threading.Event()
    failed: list[BaseException] = []

    def member() -> None:
        with GroupMember(root, "members", ["t"]) as joined:
            while not stopping.is_set():
                for partition, position in joined.poll_positions(100).items():
                    joined.commit({partition: position})

    def producer() -> None:
        with RequestProducer(root) as requests:
            for number in range(10**9):
                if stopping.wait(0.05):
                    return
                event = RequestEvent(
                    f"other-{number}",
                    f"g{number % 50}",
                    "offset_fetch",
                    offset_fetch=OffsetFetchRequest(),
                )
                requests.send(event).result()

    def upkeep() -> None:
        while not stopping.wait(5.0):
            for result in retain(root, UpkeepSettings(), clock_ms()):
                assert not result.failure, result

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        return run

    def check() -> None:
        if failed:
            raise failed[0]

    coordinator = SmallCoordinator(root, BROKER)
    works = [member, member, member, producer, upkeep]
    threads = [threading.Thread(target=guarded(work)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield check
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        coordinator.stop()
    check()


def row(number: int) -> dict[str, str]:
    """Return a request: each group commits an offset a hundred times."""
    partition = {"partition_index": number % 3, "committed_offset": number}
    body = {"topics": [{"name": "t", "partitions": [partition]}]}
    return {
        "request_id": f"r{number}",
        "group_id": f"spark-{number % 100}",
        "api": "offset_commit",
        "body": json.dumps(body),
    }


def check_answered(root: str, check: Callable[[], None]) -> None:
    """Wait until each request has its only answer, and is a row of `requests` once."""

    def counted(table: object) -> Counter[str]:
        rows = open_table(root, table).to_pyarrow_table(columns=["request_id"])  # type: ignore[arg-type]
        ids = rows.column("request_id").to_pylist()
        return Counter(each for each in ids if each.startswith("r"))

    expected = Counter(f"r{number}" for number in range(REQUESTS_IN_ALL))
    wait_until(
        "all answers",
        lambda: len(counted(RESPONSES)) >= REQUESTS_IN_ALL,
        WAIT_S,
        meanwhile=check,
        every_s=1.0,
    )
    assert counted(REQUESTS) == expected
    answers = open_table(root, RESPONSES).to_pyarrow_table(columns=["request_id", "error"])
    errors = Counter(each["error"] for each in answers.to_pylist() if each["request_id"][0] == "r")
    assert errors == {"NONE": REQUESTS_IN_ALL}


def write_batch(session: SparkSession, root: str) -> float:
    """Write all requests by one DataFrame; return the time it took, s."""
    rows = [row(number) for number in range(REQUESTS_IN_ALL)]
    frame = session.createDataFrame(rows, ROWS).repartition(4)
    begun = time.monotonic()
    writing = frame.write.format("group_coordinator").option("root", root)
    writing.mode("append").save()
    return time.monotonic() - begun


def make_source(source: Path) -> None:
    """Write all requests to the files of a stream's source."""
    source.mkdir()
    each = REQUESTS_IN_ALL // FILES
    for number in range(FILES):
        rows = [json.dumps(row(number * each + place)) for place in range(each)]
        (source / f"{number:03}.json").write_text("\n".join(rows))


def run_stream(folder: Path, root: str, kills: int, check: Callable[[], None]) -> int:
    """Run the job until all is written; kill it after every third of its commits.

    Returns how many batches were run again although they were written.
    """
    checkpoint = folder / "checkpoint"
    arguments = [str(folder / "source"), root, str(checkpoint)]
    requests = open_requests(table_uri(root, REQUESTS))
    # A shared session has set its Python, which needs that session.
    environment = {name: os.environ[name] for name in os.environ if name != "PYSPARK_PYTHON"}
    written_again = 0

    def last_batch() -> int:
        version = requests.versions(["job"])["job"]
        return -1 if version is None else version

    for attempt in range(kills + 1):
        log = folder / f"job-{attempt}.log"
        with log.open("wb") as out:
            job = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.spark.stream_job", *arguments],
                cwd=TOP,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = last_batch() + 3 if attempt < kills else FILES
        wait_until(
            f"batch {end} of the job",
            lambda job=job, end=end: job.poll() is not None or last_batch() >= end,
            WAIT_S,
            meanwhile=check,
            every_s=0.002,
        )
        if attempt == kills:
            check_end(job.wait(), log.read_text()[-3_000:])
            break
        os.killpg(job.pid, signal.SIGKILL)
        check_end(job.wait(), log.read_text()[-3_000:], -signal.SIGKILL)
        done = [int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")]
        written_again += last_batch() > max(done, default=-1)
    return written_again
