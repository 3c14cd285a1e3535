"""A coordinator without Spark: the real machine and the real sink, in a thread, for small tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.signatures import RequestKey, Signatures
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.followed import follow
from group_coordinator.pipeline.replay.trace_replay import to_json
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.acl_table import AclWatcher
from group_coordinator.pipeline.tables.store import table_uri
from group_coordinator.pipeline.tables.topic_catalogue import TopicWatcher
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.decided import Groups

# A look without news takes 0.02 ms of CPU; a member's first poll waits for four responses in turn.
_POLL_S = 0.003


class SmallCoordinator:
    """A coordinator that answers the requests of a root, from its start until `stop`.

    `settings` are Kafka's broker settings, under their names. With `keys`, principals need
    signatures.
    """

    def __init__(
        self,
        root: str,
        settings: Mapping[str, Any] | None = None,
        keys: Sequence[RequestKey] | None = None,
    ) -> None:
        self._tail = follow(table_uri(root, REQUESTS), REQUESTS.schema.names)
        self._sink = Sink(root, CoordinatorSettings())
        marks = None if keys is None else Signatures(keys).fingerprints
        batch = BatchSettings(config=parse_config(dict(settings or {})), keys=marks)
        self._machine = BatchMachine(batch, keys or ())
        self._topics = TopicWatcher(root)
        self._acls = AclWatcher(root)
        self._groups = Groups(self._machine)
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._awake.set()
        self._thread = threading.Thread(target=self._run, name="small-coordinator")
        self._thread.start()

    def pause(self) -> None:
        """Decide nothing from now on, like a coordinator that restarts."""
        self._awake.clear()

    def resume(self) -> None:
        self._awake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._awake.set()
        self._thread.join()

    def _run(self) -> None:
        batch = 0
        while not self._stopping.wait(_POLL_S):
            self._awake.wait()
            rows = self._tail.poll()
            now = clock_ms()
            events = self._groups.due(now)
            for row in [] if rows is None else rows.to_pylist():
                present = {key: value for key, value in to_json(row).items() if value is not None}
                present.pop("sent_at", None)
                text = msgspec.json.encode(present).decode()
                events.setdefault(row["group_id"], []).append(text)
            if events:
                self._answer(events, now, batch)
                batch += 1

    def _answer(self, events: dict[str | None, list[str]], now: int, batch: int) -> None:
        self._topics.poll()
        self._machine.set_topics(self._topics.catalogue)
        acls = self._acls.poll()
        if acls is not self._machine.settings.acls:
            self._machine.set_acls(acls)
        self._sink.write(self._groups.decide(events, now), "small", batch)
