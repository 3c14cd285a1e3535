"""A coordinator without Spark: the real machine and the real sink, in a thread, for small tests."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import msgspec
import pyarrow as pa

from coordinator.group.batch import BatchMachine, BatchSettings
from pipeline.replay import to_json
from pipeline.settings import CoordinatorSettings
from pipeline.sink import Sink
from pipeline.tail import follow
from pipeline.topics import TopicWatcher
from schemas.tables import REQUESTS


class SmallCoordinator:
    """Answers what is appended to `requests` of a root, from its start until `stop`."""

    def __init__(self, root: str) -> None:
        self._tail = follow(root, REQUESTS, REQUESTS.schema.names)
        self._sink = Sink(root, CoordinatorSettings())
        self._machine = BatchMachine(BatchSettings())
        self._topics = TopicWatcher(root)
        self._states: dict[str | None, bytes | None] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        batch = 0
        while not self._stopping.wait(0.01):
            rows = self._tail.poll()
            if rows is not None:
                self._answer(rows, batch)
                batch += 1

    def _answer(self, rows: pa.Table, batch: int) -> None:
        now = time.time_ns() // 1_000_000
        events: dict[str | None, list[str]] = defaultdict(list)
        for row in rows.to_pylist():
            present = {key: value for key, value in to_json(row).items() if value is not None}
            present.pop("sent_at", None)
            events[row["group_id"]].append(msgspec.json.encode(present).decode())
        outputs = []
        self._topics.poll()
        self._machine.coordinator.topics = self._topics.counts
        for group_id, texts in events.items():
            result = self._machine.process(group_id, self._states.get(group_id), texts, now)
            self._states[group_id] = result.state
            if result.output is not None:
                outputs.append(result.output)
        self._sink.write(outputs, "small", batch)
