"""This project's threads end before the interpreter, whatever the program did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from group_coordinator.pipeline import background
from group_coordinator.pipeline.background import CannotStart
from tests.ends import check_end

LIMIT_S = 30


def run_program(text: str, code: int = 0) -> list[str]:
    """Return the output of a program that ends with this exit code."""
    begin = "import threading, time\nfrom group_coordinator.pipeline import background\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + text], capture_output=True, text=True, timeout=LIMIT_S
    )
    check_end(done.returncode, done.stderr, code)
    return done.stdout.splitlines()


def test_work_that_a_daemon_has_begun_is_done_before_the_process_ends() -> None:
    program = """
def begin():
    background.run("work", lambda: (time.sleep(0.3), print("done")))
thread = threading.Thread(target=begin, daemon=True)
thread.start()
thread.join()
"""
    assert run_program(program) == ["done"]


def test_a_thread_that_nobody_stops_is_told_to_end_and_awaited() -> None:
    program = """
told = threading.Event()
def work():
    told.wait()
    time.sleep(0.3)
    print("ended")
background.start("worker", work, told.set)
raise ValueError("a fault")
"""
    assert run_program(program, code=1) == ["ended"]


def test_what_repeats_does_not_keep_the_process_from_ending() -> None:
    assert run_program('background.repeat("work", 3_600, print)') == []


def test_a_stop_that_fails_does_not_keep_others_from_being_told() -> None:
    program = """
told = threading.Event()
def fail():
    told.set()
    raise ValueError("a fault")
background.start("first", told.wait, fail)
other = threading.Event()
background.start("second", lambda: (other.wait(), print("ended")), other.set)
"""
    assert run_program(program) == ["ended"]


def test_threads_of_the_users_may_use_ours_after_the_main_thread_has_ended() -> None:
    program = """
told = threading.Event()
background.start("ours", told.wait, told.set)
def user():
    threading.main_thread().join()
    print(told.is_set(), background.run("checkpoint", print))
threading.Thread(target=user).start()
"""
    assert run_program(program) == ["False False"]


def test_what_a_library_takes_down_at_the_end_outlives_the_threads_that_use_it() -> None:
    program = """
import atexit
background.start("first", lambda: None, lambda: None).join()
atexit.register(print, "the library ends")
told = threading.Event()
background.start("second", lambda: (told.wait(), print("the thread ends")), told.set)
"""
    assert run_program(program) == ["the thread ends", "the library ends"]


def test_no_thread_is_started_once_the_process_ends() -> None:
    program = """
import atexit
def late():
    try:
        background.start("late", print, print)
    except background.CannotStart as error:
        print(error)
atexit.register(late)
background.start("worker", lambda: None, lambda: None)
"""
    assert run_program(program) == ["cannot start a thread for late: the process is exiting"]


def test_ctrl_c_ends_a_process_that_waits_for_a_thread() -> None:
    program = """
import os, signal
def work():
    threading.main_thread().join()
    while True:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
background.start("worker", work, lambda: None)
print("begun")
"""
    assert run_program(program, code=-signal.SIGINT) == ["begun"]


def test_a_forked_process_waits_for_none_of_its_parents_threads() -> None:
    program = """
import os, sys
told = threading.Event()
background.start("worker", told.wait, lambda: (print("told", flush=True), told.set()))
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1], flush=True)
"""
    assert run_program(program) == ["0", "told"]


def test_a_pool_that_takes_nothing_more_leaves_its_work_to_who_asks() -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def user():
    threading.main_thread().join()
    print(background.submit(pool, lambda: 7).result())
    print(type(background.submit(pool, lambda: 1 / 0).exception()).__name__)
threading.Thread(target=user).start()
"""
    assert run_program(program) == ["7", "ZeroDivisionError"]


def test_a_pool_does_the_work_while_it_can() -> None:
    with ThreadPoolExecutor(1, "a-pool") as pool:
        name = background.submit(pool, lambda: threading.current_thread().name).result()
    assert name.startswith("a-pool")


def test_work_for_which_there_is_no_thread_is_not_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert not background.run("checkpoint", print)
    assert caplog.messages == [
        "checkpoint: cannot start a thread for checkpoint: can't start new thread"
    ]
    with pytest.raises(CannotStart, match="can't start new thread"):
        background.start("reader", print, print)


def test_the_end_of_an_input_is_heard_once_it_is_there() -> None:
    reads, writes = os.pipe()
    ended = threading.Event()
    worker = background.run_at_eof(reads, "input", ended.set)
    os.write(writes, b"something")
    assert not ended.wait(0.05)
    os.close(writes)
    assert ended.wait(LIMIT_S)
    assert worker.has_ended(LIMIT_S)
    os.close(reads)


def test_who_waits_for_an_input_can_be_stopped() -> None:
    reads, writes = os.pipe()
    ended = threading.Event()
    worker = background.run_at_eof(reads, "input", ended.set)
    worker.stop()
    assert worker.has_ended(LIMIT_S)
    worker.stop()
    assert not ended.is_set()
    os.close(reads)
    os.close(writes)


def test_what_repeats_ends_with_the_work_that_is_under_way() -> None:
    began, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(LIMIT_S)
        time.sleep(0.01)
        done.set()

    repeating = background.repeat("work", 0.001, work)
    assert began.wait(LIMIT_S)
    go_on.set()
    repeating.stop()
    assert done.is_set()
