"""The DuckDB engine that a node uses to search the tables."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from group_coordinator.pipeline.delta import Engine
from group_coordinator.pipeline.session.scratch import ScratchFolder

# The memory limit, bytes. A bucket of the offsets topic's records takes a quarter of it
# (`pipeline.node.load_events`).
_MEMORY = 1 << 30


@contextlib.contextmanager
def open_engine(beside_batches: bool = False) -> Iterator[Engine]:
    """Yield a DuckDB engine for a bootstrap, which spills to a temporary folder.

    `beside_batches` uses one core and leaves the others to the batches of a running query.
    """
    threads = 1 if beside_batches else os.cpu_count() or 1
    scratch = ScratchFolder()
    with contextlib.ExitStack() as opened:
        opened.callback(scratch.delete)
        engine = opened.enter_context(Engine(_MEMORY, threads, scratch.path))
        # No query here needs an order, and DuckDB can limit row groups in bytes only without one.
        engine.run("SET preserve_insertion_order = false")
        yield engine
