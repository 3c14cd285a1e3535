"""Hub: the client, the heartbeat thread and the catalogue that a process's consumers share.

There is one hub per root, or per client that a user passes in. The first consumer with a group
starts its client and threads. Consumers without a group use only the catalogue.
"""

from __future__ import annotations

import logging
import math
import threading
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake.exceptions import DeltaError

from group_coordinator.pipeline import background
from group_coordinator.pipeline.client.member_driver import MemberDriver, now_ms
from group_coordinator.pipeline.client.request_client import RequestClient
from group_coordinator.pipeline.tables import TopicWatcher

if TYPE_CHECKING:
    from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings

log = logging.getLogger(__name__)

# The interval of polls of the catalogue, s. A poll without changes is one attempt to open a file.
CATALOGUE_INTERVAL_S = 1.0
_UNREADABLE = (OSError, DeltaError, pa.ArrowException)


class MemberHub:
    """The client, threads and catalogue that the consumers of one root or client share."""

    def __init__(self, root: str, client: RequestClient | None) -> None:
        self._root = root
        self._given_client = client
        self._own_client: RequestClient | None = None
        self._threads: list[background.BackgroundThread] = []
        self._watcher = TopicWatcher(root)
        self._catalogue_lock = threading.Lock()
        self._drivers: tuple[MemberDriver, ...] = ()
        self._wake = threading.Condition(threading.Lock())
        # When the heartbeat thread wakes up by itself, ms.
        self._sleeps_until = 0.0
        self._stopped = threading.Event()
        self.users = 0
        self.guard = background.ProcessGuard("root's client")
        self.refresh_topics()

    def start(self) -> None:
        """Start the client and the threads, unless they are running. Raises NoTables."""
        if self._threads:
            return
        client = self._given_client
        if client is None:
            client = self._own_client = RequestClient(self._root)
        self._threads = [
            background.start("heartbeats", partial(self._send_heartbeats, client), self._stop),
            background.start("topics", self._poll_catalogue, self._stop),
        ]

    def close(self) -> None:
        """Stop the threads, and the client unless the user passed it in."""
        self._stop()
        for thread in self._threads:
            thread.join()
        if self._own_client is not None:
            self._own_client.close()

    def _stop(self) -> None:
        self._stopped.set()
        with self._wake:
            self._wake.notify()

    # --- members --------------------------------------------------------------------------------

    def add(self, settings: ConsumerSettings) -> MemberDriver:
        """Create the driver of a new consumer."""
        driver = MemberDriver(settings, self._wake_if_due, self._root)
        with self._wake:
            self._drivers = (*self._drivers, driver)
        return driver

    def remove(self, driver: MemberDriver) -> None:
        """Remove a consumer's driver, and cancel its requests."""
        with self._wake:
            self._drivers = tuple(other for other in self._drivers if other is not driver)
        driver.stop()

    # --- topics ---------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, int] | None:
        """Each topic's number of partitions as last read; None while there is no catalogue."""
        return self._watcher.counts

    def refresh_topics(self) -> None:
        """Read the catalogue's changes, and pass its topics to all consumers."""
        with self._catalogue_lock:
            counts = self._watcher.poll()
            if counts is not None:
                for driver in self._drivers:
                    driver.update_topics(counts)

    def update_topics_of(self, driver: MemberDriver, fallback: dict[str, int]) -> None:
        """Pass one consumer the topics of the catalogue, or `fallback` if there is none."""
        with self._catalogue_lock:
            counts = self._watcher.counts
            driver.update_topics(fallback if counts is None else counts)

    def _poll_catalogue(self) -> None:
        while not self._stopped.wait(CATALOGUE_INTERVAL_S):
            try:
                self.refresh_topics()
            except _UNREADABLE as error:
                log.warning("topics of %s: %s", self._root, error)

    # --- heartbeats -----------------------------------------------------------------------------

    def _wake_if_due(self, driver: MemberDriver) -> None:
        """Wake the heartbeat thread if the member has work before the thread wakes by itself."""
        with self._wake:
            if driver.is_due(self._sleeps_until - 1):
                self._wake.notify()

    def _send_heartbeats(self, client: RequestClient) -> None:
        while True:
            with self._wake:
                while not self._stopped.is_set() and not (due := self._due()):
                    self._sleep()
                if self._stopped.is_set():
                    return
            for driver in due:
                driver.send_due(client.send)

    def _due(self) -> list[MemberDriver]:
        now = now_ms()
        return [driver for driver in self._drivers if driver.is_due(now)]

    def _sleep(self) -> None:
        times = [due for driver in self._drivers if (due := driver.due) is not None]
        self._sleeps_until = min(times, default=math.inf)
        left = max(0, self._sleeps_until - now_ms()) / 1000
        self._wake.wait(None if math.isinf(left) else left)


# --- one for each root --------------------------------------------------------------------------

_hubs: dict[object, MemberHub] = {}
_hubs_lock = threading.Lock()


def acquire(root: str, client: RequestClient | None, *, needs_coordinator: bool) -> MemberHub:
    """Return the hub of a root, or of a user's client, creating it if missing.

    `needs_coordinator`: the consumer has a group, and so sends requests. Only then NoTables is
    raised.
    """
    key: object = root if client is None else client
    with _hubs_lock:
        hub = _hubs.get(key) or MemberHub(root, client)
        hub.guard.check()
        if needs_coordinator:
            hub.start()
        _hubs[key] = hub
        hub.users += 1
    return hub


def release(hub: MemberHub) -> None:
    """Release a hub; the release by its last consumer closes it."""
    with _hubs_lock:
        hub.users -= 1
        if hub.users:
            return
        for key in [key for key, other in _hubs.items() if other is hub]:
            del _hubs[key]
    hub.close()
