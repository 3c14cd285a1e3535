"""An event loop in simulated time: a thread of a process, and the worker threads of its executor.

Callbacks run as steps of the loop's actor, one round at a time. A call in an executor runs as a
step of another actor of the process. So the loop continues while a thread waits for a file, and the
seed decides how threads overlap. Tasks and futures have numbers as hashes, so the iteration order
of a set does not depend on memory addresses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import TYPE_CHECKING, Any

from group_coordinator.pipeline.gateway.polling import SingleFlight
from tests.trials.simulation.world import NO_BUG, Actor, Process, Stopped, Violation, World

if TYPE_CHECKING:
    from random import Random

    from tests.trials.gateways.network import End

# How many threads asyncio's own executor has.
_DEFAULT_THREADS = 4
# The longest delay before a thread begins a call, ms.
_SOON_MS = 0.5
# A minimum delay, so that the time of the world advances.
_LEAST_MS = 0.01


class _Future(asyncio.Future[Any]):
    def __init__(self, number: int, loop: Any) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    def __init__(self, number: int, coroutine: Any, loop: Any, name: str | None) -> None:
        self._number = number
        super().__init__(coroutine, loop=loop, name=name)

    def __hash__(self) -> int:
        return self._number


class _Pool:
    """The threads of an executor; calls wait until one is free."""

    def __init__(self, loop: SimulatedLoop, name: str, size: int) -> None:
        self._loop = loop
        self._free = [Actor(loop.actor.process, f"{name} {number}") for number in range(size)]
        self._waiting: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()

    def submit(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        done = self._loop.create_future()
        self._waiting.append((work, done))
        if self._free:
            self._begin(self._free.pop(0))
        return done

    def _begin(self, actor: Actor) -> None:
        self._loop.world.later(
            self._loop.chance.uniform(0, _SOON_MS), actor, lambda: self._run(actor)
        )

    def _run(self, actor: Actor) -> None:
        while self._waiting:
            work, done = self._waiting.popleft()
            # As in a thread pool, a call that was cancelled before it began is skipped.
            if done.cancelled():
                continue
            try:
                found, error = work(), None
            except Exception as raised:
                found, error = None, raised
            self._loop.call_soon_threadsafe(_settle, done, found, error)
            if self._waiting:
                self._begin(actor)
                return
        self._free.append(actor)


def _settle(done: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(found)
    else:
        done.set_exception(error)


class SimulatedLoop:
    """The event loop of a process of the world, with the methods of asyncio's that gateways use."""

    def __init__(self, world: World, process: Process, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self.actor = Actor(process, "loop")
        # As asyncio takes it.
        self._self: Any = self
        self._ready: deque[asyncio.Handle] = deque()
        self._is_awake = False
        self._numbers = count()
        self._pools: dict[ThreadPoolExecutor | None, _Pool] = {}
        self._tasks: dict[int, _Task] = {}

    # --- callbacks ------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """`asyncio.loop.call_soon`."""
        handle = asyncio.Handle(callback, args, self._self, context)
        self._ready.append(handle)
        if not self._is_awake:
            self._is_awake = True
            self.world.later(0.0, self.actor, self._turn)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """`asyncio.loop.call_soon_threadsafe`."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """`asyncio.loop.call_later`."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """`asyncio.loop.call_at`."""
        timer = asyncio.TimerHandle(when, callback, args, self._self, context)
        wait_ms = (when - self.time()) * 1000 / (1 + self.actor.process.clock.drift)
        self.world.later(max(_LEAST_MS, wait_ms), self.actor, lambda: self._due(timer))
        return timer

    def post(self, delay_ms: float, callback: Callable[[], object]) -> None:
        """Schedule a callback after a delay of true time; callers outside the loop may use it."""
        handle = asyncio.Handle(callback, (), self._self)
        self.world.later(delay_ms, self.actor, lambda: self._due(handle))

    def _due(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self._ready.append(handle)
            self._turn()

    def _turn(self) -> None:
        """Run the callbacks that are ready."""
        self._is_awake = False
        asyncio._set_running_loop(self._self)
        try:
            for _ in range(len(self._ready)):
                handle: Any = self._ready.popleft()
                if not handle.cancelled():
                    handle._context.run(handle._callback, *handle._args)
                self.world.check_alive()
        finally:
            asyncio._set_running_loop(None)
        if self._ready and not self._is_awake:
            self._is_awake = True
            self.world.later(0.0, self.actor, self._turn)

    # --- tasks, futures and threads -------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """`asyncio.loop.create_future`."""
        return _Future(next(self._numbers), self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """`asyncio.loop.create_task`."""
        assert context is None
        number = next(self._numbers)
        task = self._tasks[number] = _Task(number, coro, self, name)
        task.add_done_callback(lambda _: self._ended(number))
        return task

    def _ended(self, number: int) -> None:
        task = self._tasks.pop(number)
        error = None if task.cancelled() else task.exception()
        # The callers of a shared computation get its outcome.
        is_shared = getattr(task.get_coro(), "__qualname__", "").startswith(SingleFlight.__name__)
        if error is not None and not is_shared and not isinstance(error, (Stopped, Violation)):
            name = self.actor.process.name
            self.world.violate(NO_BUG, f"a task of {name} ended by {error!r}: {task!r}")

    def run_in_executor(
        self, executor: ThreadPoolExecutor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """`asyncio.loop.run_in_executor`."""
        pool = self._pools.get(executor)
        if pool is None:
            name = "common" if executor is None else str(executor._thread_name_prefix)
            size = _DEFAULT_THREADS if executor is None else executor._max_workers
            pool = self._pools[executor] = _Pool(self, name, size)
        return pool.submit(lambda: func(*args))

    async def connect_accepted_socket(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], sock: End, **_options: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """`asyncio.loop.connect_accepted_socket`, of a socket of the world."""
        protocol = protocol_factory()
        sock.begin(protocol)
        return sock, protocol

    def close(self) -> None:
        """Cancel all pending tasks and callbacks without running them."""
        task: Any
        for task in list(self._tasks.values()):
            task._log_destroy_pending = False
            # The clean-up of a task needs a running loop, so it has no effect.
            with suppress(RuntimeError):
                task.get_coro().close()

    # --- what asyncio asks ----------------------------------------------------------------------

    def time(self) -> float:
        """Return the monotonic clock of the process, s."""
        return self.actor.process.clock.monotonic_s(self.world.now)

    def get_debug(self) -> bool:
        """`asyncio.loop.get_debug`."""
        return False

    def is_running(self) -> bool:
        """`asyncio.loop.is_running`."""
        return True

    def is_closed(self) -> bool:
        """`asyncio.loop.is_closed`."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when it is due."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run on an unhandled error (`asyncio.loop.call_exception_handler`)."""
        error = context.get("exception")
        if error is not None and self.actor.alive and not isinstance(error, (Stopped, Violation)):
            self.world.violate(NO_BUG, f"{context.get('message')}: {error!r}")
