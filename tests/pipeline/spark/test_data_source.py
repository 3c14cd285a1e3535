"""Spark writes requests through the data source: a coordinator answers each of them once."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

from group_coordinator import register_data_source
from group_coordinator.pipeline.monitor.catalog import Catalog
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.spark.stream_job import ROWS
from tests.pipeline.spark.tasks import commits, files, ids
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "pipeline/spark/README.md"


@pytest.fixture
def coordinator(root: str) -> Iterator[SmallCoordinator]:
    coordinator = SmallCoordinator(root)
    yield coordinator
    coordinator.stop()


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register_data_source(spark)
    return spark


def answers(root: str) -> list[tuple[Any, ...]]:
    return Catalog(root).query("SELECT request_id, error FROM responses ORDER BY ALL").rows


def save(rows: DataFrame, root: str, **options: str) -> None:
    writing = rows.write.format("group_coordinator").option("root", root)
    writing.options(**options).mode("append").save()


def fetches(session: SparkSession, count: int, api: str = "'offset_fetch'") -> DataFrame:
    """Return rows that read the offsets of many groups, in four partitions."""
    rows = session.range(0, count, 1, 4)
    return rows.selectExpr(
        "'r' || id AS request_id", "'g' || id % 10 AS group_id", f"{api} AS api", "'{}' AS body"
    )


def drain(rows: DataFrame, root: str, checkpoint: Path) -> None:
    """Write all that a stream has now, and wait for its end."""
    writing = rows.writeStream.format("group_coordinator").option("root", root)
    writing = writing.option("txnAppId", "job").option("checkpointLocation", str(checkpoint))
    writing.trigger(availableNow=True).start().awaitTermination()


def add_file(folder: Path, *names: str) -> None:
    """Add a file to the source of a stream, with a request for each id."""
    folder.mkdir(exist_ok=True)
    rows = [
        {"request_id": name, "group_id": "g", "api": "offset_fetch", "body": "{}"} for name in names
    ]
    file = folder / f"{len(list(folder.iterdir()))}.json"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.usefixtures("coordinator")
def test_the_page_s_request_and_those_of_four_tasks_are_answered_once(
    session: SparkSession, root: str
) -> None:
    blocks = re.findall(r"```python\n([^`]*register_data_source[^`]*)```", PAGE.read_text())
    exec(blocks[0].replace("/data/groups", root), {"spark": session})
    assert commits(root) == 1
    save(fetches(session, 100), root)
    assert commits(root) == 2
    assert files(root) == 5
    wait_until("101 answers", lambda: len(answers(root)) >= 101)
    expected = [("orders-to-7", "NONE"), *((f"r{number}", "NONE") for number in range(100))]
    assert answers(root) == sorted(expected)


def test_a_session_that_is_not_the_active_one_writes(spark: SparkSession, root: str) -> None:
    active, other = spark.newSession(), spark.newSession()
    # `createDataFrame` makes its session the active one.
    active.createDataFrame([(1,)], "n int")
    try:
        for session in (other, spark.newSession()):
            register_data_source(session)
            save(fetches(session, 3), root)
        assert type(spark).getActiveSession() == active
    finally:
        spark.createDataFrame([(1,)], "n int")
    assert commits(root) == 2


def test_a_batch_that_is_run_again_is_written_once_and_one_of_a_lost_checkpoint_is_refused(
    session: SparkSession, root: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    add_file(source, "a", "b")
    rows = session.readStream.schema(ROWS).json(str(source))
    drain(rows, root, checkpoint)
    # As if the driver was killed after its commit, and before Spark wrote that the batch is done.
    for done in (checkpoint / "commits").glob("*0*"):
        done.unlink()
    add_file(source, "c")
    drain(rows, root, checkpoint)
    assert sorted(ids(root)) == ["a", "b", "c"]
    assert files(root) == commits(root) == 2
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="streaming checkpoint was lost"):
        drain(rows, root, checkpoint)
    assert files(root) == commits(root) == 2


@pytest.mark.full
def test_an_invalid_row_of_one_task_fails_the_write(session: SparkSession, root: str) -> None:
    rows = fetches(session, 100, "IF(id = 7, 'offset_fetchh', 'offset_fetch')")
    with pytest.raises(PySparkException, match="request 'r7': column api: unknown api"):
        save(rows, root)
    # A task that Spark has cancelled may leave its file, which VACUUM deletes.
    assert commits(root) == 0


@pytest.mark.full
def test_wrong_columns_and_modes_are_refused_before_a_task_starts(
    session: SparkSession, root: str
) -> None:
    rows = fetches(session, 1, "raise_error('a task started')")
    with pytest.raises(AnalysisException, match="column grp is unknown"):
        save(rows.withColumnRenamed("group_id", "grp"), root)
    with pytest.raises(AnalysisException, match="only appended"):
        rows.write.format("group_coordinator").option("root", root).mode("overwrite").save()
    with pytest.raises(AnalysisException, match=r"(?i)append"):
        rows.write.format("group_coordinator").option("root", root).save()


@pytest.mark.full
@pytest.mark.usefixtures("coordinator")
def test_a_struct_column_and_made_ids_are_answered(session: SparkSession, root: str) -> None:
    rows = session.range(0, 20, 1, 2).selectExpr(
        "'g' AS group_id",
        "'offset_commit' AS api",
        """named_struct('topics', array(named_struct('name', 't', 'partitions', array(named_struct(
            'partition_index', int(id), 'committed_offset', id))))) AS offset_commit""",
    )
    save(rows, root, requestIdPrefix="job")
    wait_until("20 answers", lambda: len(answers(root)) >= 20)
    expected = [(f"job-{task}-{row}", "NONE") for task in range(2) for row in range(10)]
    assert answers(root) == sorted(expected)
    offsets = Catalog(root).query("SELECT sum(committed_offset) FROM committed_offsets").rows
    assert offsets == [(sum(range(20)),)]
