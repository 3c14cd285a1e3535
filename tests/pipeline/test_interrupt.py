"""SIGTERM and SIGINT end a waiting thread at any step, and a statement of DuckDB."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from group_coordinator.pipeline.delta.table_files import Engine
from group_coordinator.pipeline.interrupt import SignalEvent, duckdb_interrupted
from tests.ends import check_end

ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b"


def test_an_engine_s_statement_is_ended(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Engine(1 << 26, 1, tmp_path) as engine:
            assert engine.run("SELECT 1") == [(1,)]
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            engine.run(ENDLESS)

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="out of luck"), duckdb_interrupted():
        raise RuntimeError("out of luck")


# A thread waits for one event after the other, and a handler sets the current one five thousand
# times a second. With threading.Event the process ends within a second, in the handler.
WAITS = """
import signal, time
from group_coordinator.pipeline.interrupt import SignalEvent

event, handled = SignalEvent(), 0

def handle(*_):
    global handled
    handled += 1
    event.set()

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
until = time.monotonic() + 2
while time.monotonic() < until or handled < 1000:
    event.wait(0.00001)
    event = SignalEvent()
signal.setitimer(signal.ITIMER_REAL, 0)
print("went on")
"""


def test_a_handler_may_set_it_at_any_step_of_the_thread_that_waits() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=False
    )
    check_end(run.returncode, run.stderr)
    assert run.stdout == "went on\n"


def test_everybody_who_waits_goes_on_and_who_comes_later_does_not_wait() -> None:
    event = SignalEvent()
    assert not event.wait(0)
    waiting = [threading.Thread(target=event.wait, args=(3_600,), daemon=True) for _ in range(3)]
    for each in waiting:
        each.start()
    event.set()
    for each in waiting:
        each.join(60)
    assert not any(each.is_alive() for each in waiting)
    assert event.wait(3_600)
    assert event.is_set()


# The signal's C handler runs in the thread that receives the signal, and wakes no other thread.
ASIDE = """
import signal, threading, time
from group_coordinator.pipeline.interrupt import SignalEvent

event, aside = SignalEvent(), threading.Event()
signal.signal(signal.SIGTERM, lambda *_: event.set())
other = threading.Thread(target=aside.wait, daemon=True)
other.start()
def end():
    time.sleep(0.2)
    signal.pthread_kill(other.ident, signal.SIGTERM)
threading.Thread(target=end, daemon=True).start()
print(event.wait())
"""


def test_a_signal_that_another_thread_is_given_is_heard() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASIDE], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "True\n"
