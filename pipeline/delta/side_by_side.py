"""Requests to a store side by side: each takes tens of milliseconds, nearly all of it waiting."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from group_coordinator.pipeline import background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# How many requests are under way at once. An answer of a small file's whole content waits in
# memory, so of larger files each holds `object_store.FIRST_BYTES`.
AT_ONCE = 16


def side_by_side(
    work: Callable[[_Item], _Result], items: Iterable[_Item], most: int = AT_ONCE
) -> Iterator[_Result]:
    """Yield what `work` makes of each item, in the items' order; up to `most` are under way.

    What it raises is raised in the item's turn; later items are then left alone, but for those
    that are under way, whose end is awaited.
    """
    under_way: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(most, "side-by-side") as pool:
        try:
            for item in items:
                under_way.append(background.submit(pool, partial(work, item)))
                if len(under_way) == most:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()
