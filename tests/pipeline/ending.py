"""Programs that end during their work, and close nothing.

    python -m tests.pipeline.ending KIND ROOT COUNT

Each is forked from this process, which has imported everything, and ends as a Python program. A
program that needs no coordinator uses a copy of ROOT: ROOT-0, and so on. A line for each has its
exit code as in `subprocess`, and the threads that Python knew at the end.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

if __name__ == "__main__":
    # Registered before all others, so called after them.
    _told, _tell = os.pipe()
    os.set_blocking(_told, False)
    _parent = os.getpid()

    def _tell_threads() -> None:
        if os.getpid() != _parent:
            names = [one.name for one in threading.enumerate()]
            os.write(_tell, ", ".join(sorted(names)).encode())

    atexit.register(_tell_threads)

import shutil
from collections.abc import Callable
from pathlib import Path

# pyarrow imports it with the first table, which would take longer than the rest of each program.
import pandas  # noqa: F401

from group_coordinator.pipeline.client import (
    GroupMember,
    ProducerSettings,
    RequestClient,
    RequestProducer,
)
from group_coordinator.pipeline.delta.checkpoint import CHECKPOINT_EVERY
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent

REQUESTS = 1_000


def heartbeat(number: int) -> RequestEvent:
    """Return a request that no program has sent before."""
    return RequestEvent(
        f"{os.getpid()}-{number}", "g", "heartbeat", heartbeat=HeartbeatRequest(0, "m")
    )


def in_checkpoint(root: str) -> None:
    """Write until a checkpoint of `requests` begins."""
    producer = RequestProducer(root, ProducerSettings(linger_ms=0))
    log = Path(root) / "requests" / "_delta_log"
    for number in range(CHECKPOINT_EVERY):
        producer.send(heartbeat(number)).result()
        if any(log.glob(f"*{CHECKPOINT_EVERY}.json")):
            return
    raise AssertionError("no checkpoint was due")


def unwritten(root: str) -> None:
    """Send requests, and wait for nothing."""
    client = RequestClient(root, ProducerSettings(linger_ms=50))
    for number in range(REQUESTS):
        client.send(heartbeat(number))


def reading(root: str) -> None:
    """Read a topic's records: the reader reads ahead of the returned records."""
    member = GroupMember(root, f"g{os.getpid()}", {"t": 6}, max_poll_records=1)
    while not member.poll(30):
        continue


def failing(root: str) -> None:
    """Read a topic's records, and fail."""
    reading(root)
    raise ValueError("a program has faults")


def joining(root: str) -> None:
    """Join a group."""
    member = GroupMember(root, f"g{os.getpid()}", {"t": 6})
    member.poll(0)


KINDS: dict[str, Callable[[str], None]] = {
    one.__name__: one for one in (in_checkpoint, unwritten, reading, failing, joining)
}
_ON_COPIES = {"in_checkpoint", "unwritten"}


def main(kind: str, root: str, count: int) -> None:
    """Run this many programs, one after another."""
    for number in range(count):
        place = f"{root}-{number}" if kind in _ON_COPIES else root
        if place != root:
            shutil.copytree(root, place)
        child = os.fork()
        if not child:
            KINDS[kind](place)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), _heard(), flush=True)


def _heard() -> str:
    try:
        return os.read(_told, 1 << 16).decode()
    except BlockingIOError:
        return "(it did not come so far)"


if __name__ == "__main__":
    _, kind, root, count = sys.argv
    main(kind, root, int(count))
