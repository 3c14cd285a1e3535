"""The world of a simulation: processes, their threads as actors, and one queue of steps in time.

A step runs to its end before the next one begins, unless the code under test waits: it sleeps, or
accesses a file of a table. Then other actors may take steps before the waiting one continues. So
threads and processes overlap at exactly the points that matter, in an order that only the seed
decides. A waiting step keeps its own thread; only one thread runs at a time.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
import traceback
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tests.trials.simulation.clocks import MachineClock

Step = Callable[[], None]

NO_BUG = "nothing fails but what a fault makes fail"
# The number of steps that may overlap by chance. A waiting step lets others go first without this
# limit, because one of them may end its wait.
MOST_OVERLAPPING = 4
# The interval after which a step of a busy actor is tried again, ms.
_BUSY_RETRY_MS = 5.0
# The threads of a paused process continue one after the other, within this time, ms.
_WAKING_MS = 300.0


class Stopped(BaseException):
    """The actor's process was killed, or the actor was stopped: it does nothing more.

    Not an Exception: no handler of the code under test may take it for a failure that it survives.
    """


class Violation(BaseException):
    """A promise was broken; the run ends here."""


class Broken(Struct, frozen=True):
    """A promise that was broken, and how."""

    promise: str
    text: str


class Process:
    """A process on a machine. `clock` is the machine's; a dead process takes no more steps.

    Until `still_until`, true ms, all of its threads are paused; its clock continues.
    """

    def __init__(self, name: str, clock: MachineClock) -> None:
        self.name = name
        self.clock = clock
        self.alive = True
        self.still_until = 0.0

    def kill(self) -> None:
        """End the process at once, as `kill -9` does."""
        self.alive = False


class Actor:
    """A thread of a process: it takes one step at a time. `failed_reads` are counted."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.stopped = False
        self.busy = False
        self.failed_reads = 0

    @property
    def alive(self) -> bool:
        """Whether the actor may take steps."""
        return self.process.alive and not self.stopped


class _Waiting:
    """A step that waits, in its thread."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self._told = threading.Semaphore(0)

    def wait(self) -> None:
        """Return once `wake` was called."""
        self._told.acquire()

    def wake(self) -> None:
        """Continue the thread in place of the calling thread."""
        self._told.release()


class _Worker:
    """A thread that takes steps whenever it is woken, for as long as `take_steps` returns True."""

    def __init__(self, take_steps: Callable[[_Worker], bool]) -> None:
        self._take_steps = take_steps
        self._told = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def wake(self) -> None:
        """Let it take steps in place of the calling thread."""
        self._told.release()

    def _run(self) -> None:
        self._told.acquire()
        while self._take_steps(self):
            self._told.acquire()


class World:
    """The queue of steps, the true time (ms since the world began), and the observations so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.current: Actor | None = None
        self.broken: Broken | None = None
        self.checks: dict[str, int] = {}
        self.story: list[str] = []
        self.counts: dict[str, int] = {}
        self._digest = hashlib.sha256()
        self._queue: list[tuple[float, int, Actor, Step | _Waiting]] = []
        self._numbers = count()
        self._depth = 0
        # The number of unfinished steps of paused processes.
        self._still = 0
        self._waking = self.rng("waking")
        self._limit = 0.0
        self._idle: list[_Worker] = []
        self._reached = threading.Semaphore(0)
        self._failure: BaseException | None = None
        self._is_closed = False

    # --- random numbers and the log -------------------------------------------------------------

    def rng(self, name: str) -> Random:
        """Return a random generator for a name, so that actors' draws are independent."""
        return Random(f"{self.seed}/{name}")

    def tell(self, text: str) -> None:
        """Add a line to the story of the run."""
        actor = "" if self.current is None else f"{self.current.process.name}: "
        self.story.append(f"{self.now / 1000:9.3f} s  {actor}{text}")

    def count(self, what: str, by: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] = self.counts.get(what, 0) + by

    def note(self, *parts: object) -> None:
        """Take a decision or an answer into the run's digest."""
        self._digest.update("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"))
        self._digest.update(b"\x1e")

    @property
    def digest(self) -> str:
        """The digest of all decisions and answers so far."""
        return self._digest.hexdigest()[:16]

    def check(self, promise: str) -> None:
        """Count a check of a promise."""
        self.checks[promise] = self.checks.get(promise, 0) + 1

    def violate(self, promise: str, text: str) -> None:
        """End the run: a promise was broken."""
        self.tell(f"BROKEN: {text}")
        self.broken = Broken(promise, text)
        raise Violation(text)

    # --- steps ------------------------------------------------------------------------------------

    def later(self, delay_ms: float, actor: Actor, step: Step) -> None:
        """Schedule a step of an actor after a delay of true time."""
        at = self.now + max(0.0, delay_ms)
        heapq.heappush(self._queue, (at, next(self._numbers), actor, step))

    def run_until(self, limit: float) -> None:
        """Take all steps up to a true time; not for a step, which sleeps. Raises Violation."""
        self._limit = limit
        self._hand_over()
        self._reached.acquire()
        if self._failure is not None:
            raise self._failure
        self.now = max(self.now, limit)

    def _hand_over(self) -> None:
        """Let an idle thread take the next steps."""
        (self._idle.pop() if self._idle else _Worker(self._take_steps)).wake()

    def _take_steps(self, worker: _Worker) -> bool:
        """Take steps until another thread does; False if there will be no more of them."""
        while not self._is_closed:
            if self._failure is not None or not self._queue or self._queue[0][0] > self._limit:
                self._idle.append(worker)
                self._reached.release()
                return True
            at, number, actor, step = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            if isinstance(step, _Waiting):
                self._idle.append(worker)
                step.wake()
                return True
            if not actor.alive:
                continue
            if actor.process.still_until > self.now:
                wakes_at = actor.process.still_until + self._waking.uniform(0, _WAKING_MS)
                heapq.heappush(self._queue, (wakes_at, number, actor, step))
                continue
            if actor.busy:
                heapq.heappush(self._queue, (self.now + _BUSY_RETRY_MS, number, actor, step))
                continue
            try:
                self._take(actor, step)
            # The thread that runs the world raises the error.
            except BaseException as error:
                self._failure = error
        return False

    def _wait(self, until: float) -> None:
        """Let other actors take steps until a true time, and then continue this step."""
        actor, waiting = self.current, _Waiting()
        assert actor is not None
        heapq.heappush(self._queue, (until, next(self._numbers), actor, waiting))
        self.current = None
        self._hand_over()
        waiting.wait()
        self.current = actor

    def close(self) -> None:
        """End all threads; a step under way does nothing more."""
        self._is_closed = True
        for _, _, _, step in self._queue:
            if isinstance(step, _Waiting):
                step.wake()
                step.thread.join()
        for worker in self._idle:
            worker.wake()
            worker.thread.join()

    def _take(self, actor: Actor, step: Step) -> None:
        self.current = actor
        actor.busy = True
        self._depth += 1
        try:
            step()
        except Stopped:
            if actor.alive and not self._is_closed:
                raise
        # An uncaught error of the code under test ends its thread, which is a bug.
        except Exception as error:
            if self._is_closed:
                return
            self.tell(traceback.format_exc())
            self.violate(NO_BUG, f"{actor.name} of {actor.process.name} ended by {error!r}")
        finally:
            self._depth -= 1
            actor.busy = False
            self.current = None

    def sleep(self, seconds: float) -> None:
        """Let time pass for the calling actor; other actors continue meanwhile."""
        until = self.now + seconds * 1000
        if self.current is None:
            self.run_until(until)
            return
        process = self.current.process
        while True:
            self._wait(until)
            self.check_alive()
            if process.still_until <= self.now:
                return
            until = process.still_until

    def stand_still(self, process: Process, ms: float) -> None:
        """Pause all threads of a process, including the current step if it belongs to the process.

        Raises Stopped as `check_alive` does.
        """
        process.still_until = max(process.still_until, self.now + ms)
        if self.current is None or self.current.process is not process:
            return
        self._still += 1
        try:
            self.sleep(0.0)
        finally:
            self._still -= 1

    @property
    def may_overlap(self) -> bool:
        """Whether another step may be let go first by chance."""
        return self._depth - self._still < MOST_OVERLAPPING

    def check_alive(self) -> None:
        """Raise Stopped if the current actor was stopped during other actors' steps.

        Raises Violation after a violation, because then the run ends.
        """
        if self._is_closed:
            raise Stopped
        if self.broken is not None:
            raise Violation(self.broken.text)
        if self.current is not None and not self.current.alive:
            raise Stopped


class Lock:
    """A replacement of `threading.Lock` if its owner may wait; other actors continue meanwhile."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_held = False

    def __enter__(self) -> None:
        """Wait until the lock is free, and take it."""
        while self._is_held:
            self._world.sleep(_BUSY_RETRY_MS / 1000)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._is_held = False
