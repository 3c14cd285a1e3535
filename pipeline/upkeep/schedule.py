"""Scheduled upkeep in the process of a coordinator: compaction and retention in one thread."""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING

from group_coordinator.pipeline import background
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.upkeep.compaction import compact
from group_coordinator.pipeline.upkeep.retention import retain
from group_coordinator.pipeline.upkeep.topic_retention import retain_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from group_coordinator.pipeline.settings import UpkeepSettings

log = logging.getLogger(__name__)

_NICENESS = 10


class UpkeepStopped(Failure):
    """Upkeep was asked to stop. The next run continues from the last commit."""


class Upkeep:
    """A scheduler of compaction and retention, each at its own interval, in one thread.

    A failed task is logged, and retried after its interval. A task first runs one interval after
    the start, so that a restarted coordinator reads the requests that arrived meanwhile before
    their files are packed.
    """

    def __init__(self, root: str, settings: UpkeepSettings, clock: Callable[[], int]) -> None:
        self._root = root
        self._settings = settings
        self._clock = clock
        self._stopping = threading.Event()
        self._thread: background.BackgroundThread | None = None
        self._tasks: dict[str, tuple[int, Callable[[], None]]] = {
            "compaction": (settings.log_cleaner_backoff_ms, self._compact),
            "retention": (settings.retain_interval_ms, self._retain),
            "retention of topics": (
                settings.log_retention_check_interval_ms,
                self._retain_topics,
            ),
        }
        if not settings.log_cleaner_enable:
            del self._tasks["compaction"]
        start_ms = clock()
        self._due = {name: start_ms + interval for name, (interval, _) in self._tasks.items()}

    def run_due(self, now_ms: int) -> list[str]:
        """Start the due tasks and return their names; start none while a run is in progress."""
        if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
            return []
        names = [name for name, due_ms in self._due.items() if due_ms <= now_ms]
        if names:
            work = partial(self._work, names)
            self._thread = background.start("upkeep", work, self._stopping.set)
        return names

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the run in progress, at most `timeout_s`; return whether it has ended."""
        return self._thread is None or self._thread.has_ended(timeout_s)

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Start no further run, and stop the current one at its next step.

        Returns whether it ended within `timeout_s`.
        """
        self._stopping.set()
        return self.wait(timeout_s)

    def _work(self, names: list[str]) -> None:
        _lower_priority()
        for name in names:
            interval, task = self._tasks[name]
            try:
                task()
            except UpkeepStopped:
                return
            except STORE_FAILS as error:
                text = first_line(error)
                log.warning(
                    "%s failed; the next attempt is in %d s: %s", name, interval // 1000, text
                )
            except Exception:
                # A failure of upkeep must not end the coordinator.
                log.exception("%s failed; the next attempt is in %d s", name, interval // 1000)
            self._due[name] = self._clock() + interval

    def _compact(self) -> None:
        result = compact(self._root, self._settings, self._clock(), self._say)
        log.log(logging.DEBUG if result.skipped else logging.INFO, "%s", result.line())

    def _retain(self) -> None:
        results = retain(self._root, self._settings, self._clock(), self._say)
        results += retain_topics(self._root, self._settings, self._clock(), self._say)
        for result in results:
            log.log(logging.WARNING if result.failure else logging.INFO, "%s", result.line())

    def _retain_topics(self) -> None:
        now_ms = self._clock()
        for result in retain_topics(self._root, self._settings, now_ms, self._say, thorough=False):
            log.log(logging.WARNING if result.failure else logging.INFO, "%s", result.line())

    def _say(self, text: str) -> None:
        if self._stopping.is_set():
            raise UpkeepStopped("upkeep was stopped")
        log.debug("%s", text)


def _lower_priority() -> None:
    """Give this thread a low priority, if the system has priorities of threads, as Linux does."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    except (AttributeError, OSError) as error:
        log.debug("upkeep runs at the process's priority: %s", error)
