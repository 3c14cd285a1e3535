"""Checks that memory is freed without the garbage collector."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keeps_at_most(size: int) -> Iterator[None]:
    """Check that at most `size` bytes of the block's allocations remain allocated.

    The garbage collector is disabled meanwhile, so a reference cycle counts as allocated.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left <= size, f"{left} bytes are kept"
