"""Periodic polling for changes of a table."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta import STORE_FAILS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def keep_looking(
    look: Callable[[], Awaitable[None]], every_s: float, complain: Callable[[Exception], None]
) -> None:
    """Call `look` every `every_s` seconds until cancelled, also after a failure.

    `complain` is called with a failure, but not again while the same failure repeats.
    """
    told = None
    while True:
        await asyncio.sleep(every_s)
        try:
            await look()
            told = None
        except STORE_FAILS as error:
            if told != str(error):
                complain(error)
            told = str(error)
