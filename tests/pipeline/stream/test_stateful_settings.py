"""The settings of a batch reach the machine in the workers, and only where they changed."""

from __future__ import annotations

from pathlib import Path
from queue import Queue

import msgspec
import pytest

from group_coordinator.coordinator.group.batch import BatchResult, BatchSettings, GroupOutput
from group_coordinator.pipeline.stream import stateful
from group_coordinator.pipeline.stream.pinned_settings import PinnedSettings
from group_coordinator.pipeline.stream.stateful import SETTINGS_PROPERTY, GroupFunction, answer
from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.topic_catalogue import alter_topic, create_topic
from group_coordinator.schemas.messages import RejectedRequest
from group_coordinator.schemas.rows import Catalogue
from tests.pipeline.rows import heartbeat
from tests.pipeline.streams import outputs_of, packed_requests

WAIT_S = 120.0


class Telling:
    """A machine that tells every group which topics it knows, and keeps nothing."""

    def __init__(self) -> None:
        self.told: list[Catalogue | None] = []

    def set_settings(self, settings: BatchSettings) -> None:
        self.told.append(settings.topics)

    def process(self, _group_id, _state, events: list[str], now: int) -> BatchResult:
        topics = msgspec.json.encode([told and told.partitions for told in self.told[-1:]]).decode()
        rejected = [RejectedRequest(now, topics, event) for event in events]
        return BatchResult(None, None, GroupOutput([], [], [], rejected))


def test_a_machine_is_told_of_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Telling()
    function = GroupFunction(lambda: machine)
    for topics in (None, "null", "null", '[{"t":2},{}]', '[{"t":2},{}]', '[{"t":3},{"u":9}]'):
        pinned = None if topics is None else f'{{"topics":{topics}}}'
        monkeypatch.setattr(stateful, "_settings_of_batch", lambda pinned=pinned: pinned)
        assert function._machine() is machine
    assert machine.told == [None, Catalogue({"t": 2}), Catalogue({"t": 3}, {"u": 9})]


@pytest.mark.spark
def test_a_batch_s_catalogue_reaches_the_workers(spark, root: str, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "_checkpoints" / "query")
    pinned = PinnedSettings(root, checkpoint, BatchSettings())
    told: Queue[set[str]] = Queue()

    def write(frame, batch_id: int) -> None:
        context = frame.sparkSession.sparkContext
        context.setLocalProperty(SETTINGS_PROPERTY, pinned.of_batch(batch_id))
        outputs = outputs_of(frame)
        if outputs:
            told.put({each.reason for output in outputs for each in output.rejected})

    requests = RequestLog(root)
    events = packed_requests(spark, root, tmp_path)
    stream = answer(events, Telling).writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", checkpoint).start()
    try:
        for number, expected in enumerate(("[null]", '[{"orders":1}]', '[{"orders":2}]')):
            requests.append([heartbeat(f"{number}/{group}", f"g{group}") for group in range(8)])
            assert told.get(timeout=WAIT_S) == {expected}
            change = create_topic if number == 0 else alter_topic
            change(root, "orders", number + 1)
    finally:
        query.stop()
