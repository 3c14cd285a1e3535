"""Groups without pandas: what goes back to the JVM is what Spark's own way sends it."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Queue
from typing import Any

import msgspec
import pyarrow as pa
import pyspark
import pytest

from group_coordinator.coordinator.group.batch import BatchResult, GroupOutput
from group_coordinator.pipeline.session import arrow_groups
from group_coordinator.pipeline.session.arrow_groups import (
    ArrowGroupState,
    Properties,
    UnknownFormat,
    answer_batches,
    unpickle,
)
from group_coordinator.pipeline.session.start import SessionStart
from group_coordinator.pipeline.settings import Settings
from group_coordinator.pipeline.stream.packed_events import KEY_WIDTH, STREAM_COLUMNS
from group_coordinator.pipeline.stream.stateful import STATE_SCHEMA, GroupFunction, answer
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.schemas.messages import RejectedRequest
from tests.pipeline.group_stream import (
    NOW,
    OF_ITS_OWN,
    UNTOUCHED,
    Group,
    from_jvm,
    pickled_row,
    serializer,
    through_arrow,
    through_pandas,
)
from tests.pipeline.rows import heartbeat
from tests.pipeline.streams import outputs_of, packed_requests

WAIT_S = 120.0
WAYS = (through_pandas, through_arrow)


class Counting:
    """A machine that keeps what each group has sent, until it says "forget".

    It repeats all it has, and asks to be called again in a while if the last event says so.
    """

    def __init__(self, wait_ms: int = 500) -> None:
        self._wait_ms = wait_ms

    def process(self, group_id, state, events: list[str], now: int) -> BatchResult:
        kept = msgspec.msgpack.decode(state) if state else []
        if (not events and not kept) or events == ["look"]:
            return BatchResult(state, None, None, changed=False)
        kept += events or ["timer"]
        told = GroupOutput([], [], [], [RejectedRequest(now, str(group_id), " ".join(kept))])
        if "forget" in events:
            return BatchResult(None, None, told)
        again = now + self._wait_ms if kept[-1] == "wait" else None
        return BatchResult(msgspec.msgpack.encode(kept), again, told if len(kept) % 4 else None)

    def set_settings(self, settings) -> None:
        pass


@pytest.fixture(autouse=True)
def _unfrozen(monkeypatch):
    monkeypatch.setattr(gc, "freeze", lambda: None)
    # Over all that this process has loaded it would take most of the time of these tests.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    # As before: other tests' streams go Spark's way.
    serializer = arrow_groups.serializer()
    monkeypatch.setattr(serializer, "load_stream", arrow_groups._load_as_spark_does())


def packed(*texts: str) -> list[str]:
    return [f"{number:0{KEY_WIDTH}}{text}" for number, text in enumerate(texts)]


def kept(*texts: str) -> bytes:
    return msgspec.msgpack.encode(list(texts))


GROUPS = [
    Group("new", packed("a")),
    Group("two", packed("a", "b")),
    Group("known", packed("b"), kept("a")),
    Group("waiting", packed("wait"), kept("a")),
    Group("silent", packed("a", "b", "c", "d")),
    Group("forgotten", packed("forget"), kept("a")),
    Group("never kept", packed("forget")),
    Group("looked at", packed("look"), kept("a")),
    Group(None, packed("x")),
    Group("", packed("y")),
    Group("großer Gruß", packed("ä")),
    Group("many", packed(*(f"{number:03}" for number in range(25)))),
    Group("last", packed("z"), kept(*map(str, range(500)))),
]
TIMED_OUT = [
    Group("fires", [], kept("a"), timed_out=True),
    Group("fires silently", [], kept("a", "b", "c"), timed_out=True),
    Group("fires and waits", [], kept("wait"), timed_out=True),
    Group("fires for nothing", [], None, timed_out=True),
]


@pytest.mark.skipif(not OF_ITS_OWN, reason="Spark's own way cannot be called without Spark")
@pytest.mark.parametrize("rows_a_batch", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("groups", [GROUPS, TIMED_OUT, GROUPS[:1], GROUPS[7:8]])
def test_the_jvm_is_told_the_same(groups: list[Group], rows_a_batch: int):
    sparks, ours = (
        way(GroupFunction(Counting), from_jvm(groups, rows_a_batch), rows_a_batch) for way in WAYS
    )
    assert ours.outputs == sparks.outputs
    for group, (properties, value, old) in sparks.states.items():
        if UNTOUCHED.items() <= properties.items():
            assert group not in ours.states, "the JVM would write nothing"
        else:
            theirs = {key: each for key, each in properties.items() if key != "optionalValue"}
            assert ours.states.pop(group) == (theirs, value, old)
    assert not ours.states


def test_the_cases_above_are_all_the_ways_a_call_ends():
    said = through_arrow(GroupFunction(Counting), from_jvm(GROUPS))
    assert len(said.outputs) == len(GROUPS) - 2, "one is silent, one was looked at"
    states = {key: properties for key, (properties, _, _) in said.states.items()}
    assert states["'forgotten'"]["removed"]
    assert states["'waiting'"]["timeoutTimestamp"] == NOW + 499
    assert states["'known'"]["timeoutTimestamp"] == -1
    assert pickle.loads(said.states["'known'"][1]) == (kept("a", "b"),)
    assert not {"'never kept'", "'looked at'"} & set(states)


def test_where_nothing_is_said_nothing_is_sent():
    said = through_arrow(GroupFunction(Counting), from_jvm([Group("g", packed("look"), kept("a"))]))
    assert said == ([], {})


def test_unpickled_in_a_worker_the_function_has_the_next_stream_and_no_other():
    pickle.loads(pickle.dumps(GroupFunction(Counting, arrow=True)))
    assert serializer().load_stream(from_jvm(GROUPS)) == ()
    assert count(serializer().load_stream(from_jvm(GROUPS))) == len(GROUPS), "Spark's groups"
    pickle.loads(pickle.dumps(GroupFunction(Counting, arrow=False)))
    assert count(serializer().load_stream(from_jvm(GROUPS))) == len(GROUPS)


def test_another_spark_s_groups_go_its_own_way(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    pickle.loads(pickle.dumps(GroupFunction(Counting, arrow=True)))
    assert count(serializer().load_stream(from_jvm(GROUPS))) == len(GROUPS)


def count(loaded: Iterable[Any]) -> int:
    """How many groups Spark has loaded: one by one, or in batches with a row for each."""
    if OF_ITS_OWN:
        return len(list(loaded))
    states = (batch.column("__state") for batch in loaded)
    return sum(len(state) - state.null_count for state in states)


def test_a_machine_that_fails_fails_the_task_before_anything_is_sent():
    def fail(*_args: object) -> bytes:
        raise LookupError("no such group")

    with pytest.raises(LookupError, match="no such group"):
        list(answer_batches(pa.ipc.open_stream(from_jvm(GROUPS)), fail, STREAM_COLUMNS))


def test_other_columns_than_ours_name_the_setting():
    batch = pa.record_batch([pa.array(["g"]), pa.array([None])], ["group_id", "__state"])
    with pytest.raises(UnknownFormat, match=f"set {arrow_groups.SETTING} to false"):
        list(answer_batches([batch], lambda *_args: None, STREAM_COLUMNS))


EVERY_BYTE = bytes(range(256)) * 3


@pytest.mark.parametrize("value", [b"s", EVERY_BYTE, pickled_row(EVERY_BYTE)])
def test_a_state_is_read_without_unpickling_its_row(value: bytes, monkeypatch):
    row = pickled_row(value)
    assert pickle.loads(row)[0] == value
    monkeypatch.setattr(arrow_groups, "pickle", None)
    assert unpickle(row) == value


def test_a_row_pickled_otherwise_is_read_too():
    assert unpickle(pickle.dumps((EVERY_BYTE,))) == EVERY_BYTE


@pytest.mark.spark
def test_so_the_jvm_pickles_a_row(spark):
    row = spark.createDataFrame([(EVERY_BYTE,)], STATE_SCHEMA)._jdf.first()
    pickled = spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.toPyRow(row)
    assert bytes(pickled) == pickled_row(EVERY_BYTE)


def test_a_timer_needs_a_state_and_a_time():
    state = ArrowGroupState(Properties(False, NOW, b"", b""), b"key", None)
    with pytest.raises(
        ValueError, match="a timer needs an updated state and a positive duration, not "
    ):
        state.setTimeoutDuration(5)
    state.update((b"s",))
    with pytest.raises(ValueError, match="a positive duration, not 0 ms"):
        state.setTimeoutDuration(0)


@pytest.fixture
def ask(spark, root: str, tmp_path, request) -> Iterator[Callable[..., dict[str, str]]]:
    """Have requests answered by Counting in one batch; return what each group repeats."""
    spark.conf.set(arrow_groups.SETTING, request.param)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 3)
    told: Queue[dict[str, str]] = Queue()

    def write(frame, _batch_id: int) -> None:
        outputs = outputs_of(frame)
        if outputs:
            told.put({each.reason: each.event for output in outputs for each in output.rejected})

    requests = RequestLog(root)
    events = packed_requests(spark, root, tmp_path)
    stream = answer(events, partial(CountingIds, 1500)).writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", str(tmp_path / "query")).start()

    def ask_once(*asked: tuple[str, str]) -> dict[str, str]:
        if asked:
            requests.append([heartbeat(text, group) for text, group in asked])
        return told.get(timeout=WAIT_S)

    yield ask_once
    query.stop()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.unset(arrow_groups.SETTING)


class CountingIds(Counting):
    """Counting by the requests' ids."""

    def process(self, group_id, state, events: list[str], now: int) -> BatchResult:
        ids = [msgspec.json.decode(event)["request_id"] for event in events]
        return super().process(group_id, state, ids, now)


@pytest.mark.spark
@pytest.mark.parametrize("ask", ["true", "false"], indirect=True)
def test_on_spark_state_timers_and_groups_longer_than_a_batch(ask):
    many = [(f"{number:02}", "long") for number in range(9)]
    long = " ".join(text for text, _ in many)
    assert ask(("a", "g1"), ("b", "g2"), *many) == {"g1": "a", "g2": "b", "long": long}
    assert ask(("c", "g1"), ("forget", "g2")) == {"g1": "a c", "g2": "b forget"}
    assert ask(("d", "g2"), ("wait", "long")) == {"g2": "d", "long": f"{long} wait"}
    assert ask() == {"long": f"{long} wait timer"}, "the timer fires, and once"
    assert ask(("e", "g1")) == {"g1": "a c e"}


@pytest.mark.spark
def test_a_session_that_runs_takes_the_setting_up(spark, root):
    for value in ("false", "true"):
        SessionStart(Settings(spark={arrow_groups.SETTING: value}), root).finish()
        assert spark.conf.get(arrow_groups.SETTING) == value
