"""Looking for changes of a table again and again, beside the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from group_coordinator.pipeline.delta.failures import STORE_FAILS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def keep_looking(
    look: Callable[[], Awaitable[None]], every_s: float, complain: Callable[[Exception], None]
) -> None:
    """Look every so many seconds until cancelled; a look that fails is made again.

    `complain` hears of a failure once, however often it comes again.
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
