"""The world of a simulation: processes, their threads as actors, and one queue of steps in time.

A step runs to its end before the next one begins, except where the code under test waits (it
sleeps, or it touches a file of a table): there other actors may take their steps, and then the
first one goes on. So two threads or two processes overlap at exactly the points that matter, in an
order that the seed alone decides.
"""

from __future__ import annotations

import hashlib
import heapq
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
# How many steps may overlap by chance: each is one that lets those above it go first. A step that
# waits lets others go first however many there are, or what it waits for would never come.
MOST_OVERLAPPING = 4
# A step whose actor is still in an earlier one is looked at again after this long, ms.
_BUSY_RETRY_MS = 5.0


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
    """A process on a machine. `clock` is the machine's; a dead process does nothing more."""

    def __init__(self, name: str, clock: MachineClock) -> None:
        self.name = name
        self.clock = clock
        self.alive = True

    def kill(self) -> None:
        """End the process at once, as `kill -9` does."""
        self.alive = False


class Actor:
    """A thread of a process: it takes one step at a time."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.stopped = False
        self.busy = False

    @property
    def alive(self) -> bool:
        """Whether the actor may go on."""
        return self.process.alive and not self.stopped


class World:
    """The queue of steps, the true time (ms since the world began), and what was seen so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.current: Actor | None = None
        self.broken: Broken | None = None
        self.checks: dict[str, int] = {}
        self.story: list[str] = []
        self.counts: dict[str, int] = {}
        self._digest = hashlib.sha256()
        self._queue: list[tuple[float, int, Actor, Step]] = []
        self._numbers = count()
        self._depth = 0

    # --- chance, and what is told ---------------------------------------------------------------

    def rng(self, name: str) -> Random:
        """A source of chance of its own for each name, so that one actor's draws move nobody's."""
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
        """Count a look at whether a promise is kept."""
        self.checks[promise] = self.checks.get(promise, 0) + 1

    def violate(self, promise: str, text: str) -> None:
        """End the run: a promise was broken."""
        self.tell(f"BROKEN: {text}")
        self.broken = Broken(promise, text)
        raise Violation(text)

    # --- steps ------------------------------------------------------------------------------------

    def later(self, delay_ms: float, actor: Actor, step: Step) -> None:
        """Have an actor take a step after a while of true time."""
        at = self.now + max(0.0, delay_ms)
        heapq.heappush(self._queue, (at, next(self._numbers), actor, step))

    def run_until(self, limit: float) -> None:
        """Take all steps up to a true time."""
        while self._queue and self._queue[0][0] <= limit:
            at, number, actor, step = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            if not actor.alive:
                continue
            if actor.busy:
                heapq.heappush(self._queue, (self.now + _BUSY_RETRY_MS, number, actor, step))
                continue
            self._take(actor, step)
        self.now = max(self.now, limit)

    def _take(self, actor: Actor, step: Step) -> None:
        before, self.current = self.current, actor
        actor.busy = True
        self._depth += 1
        try:
            step()
        except Stopped:
            if actor.alive:
                raise
        # What the code under test lets through to its thread's end is a fault of its own.
        except Exception as error:
            self.tell(traceback.format_exc())
            self.violate(NO_BUG, f"{actor.name} of {actor.process.name} ended by {error!r}")
        finally:
            self._depth -= 1
            actor.busy = False
            self.current = before

    def sleep(self, seconds: float) -> None:
        """Let time pass for the actor that asks; the others go on meanwhile."""
        self.run_until(self.now + seconds * 1000)
        self.check_alive()

    @property
    def may_overlap(self) -> bool:
        """Whether another step may be let go first by chance."""
        return self._depth < MOST_OVERLAPPING

    def check_alive(self) -> None:
        """Raise Stopped if the current actor was stopped while others took their steps.

        Raises Violation once there is one: nothing more is done then.
        """
        if self.broken is not None:
            raise Violation(self.broken.text)
        if self.current is not None and not self.current.alive:
            raise Stopped
