"""The DuckDB by which a node finds what the tables hold for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from group_coordinator.pipeline.delta.engine import Engine
from group_coordinator.pipeline.session.scratch import ScratchFolder

# A bucket of the offsets topic's records takes a quarter of it (`pipeline.node.load_events`).
_MEMORY = 1 << 30


@contextlib.contextmanager
def open_engine(beside_batches: bool = False) -> Iterator[Engine]:
    """A DuckDB for a bootstrap, over a folder of its own to spill to.

    `beside_batches` leaves the other cores to the batches of a query that runs.
    """
    threads = 1 if beside_batches else os.cpu_count() or 1
    scratch = ScratchFolder()
    with contextlib.ExitStack() as opened:
        opened.callback(scratch.delete)
        engine = opened.enter_context(Engine(_MEMORY, threads, scratch.path))
        # Nothing here has an order, and row groups can be bounded in bytes only without one.
        engine.run("SET preserve_insertion_order = false")
        yield engine
