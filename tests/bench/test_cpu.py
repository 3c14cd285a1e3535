"""Tests of the CPU of a coordinator's processes, as the benchmarks count it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.bench.cpu import Cpu, CpuCounter, cpu_s

# Starts a process that works, says so, and waits; its own thread of a compiler's name works, too.
PARENT = """
import subprocess, sys, threading, time
from pathlib import Path

def work(seconds):
    began = time.thread_time()
    while time.thread_time() < began + seconds:
        pass

def compile():
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("C2 CompilerThread0")
    work(0.3)
    compiled.set()
    threading.Event().wait()

sys.stdin.readline()
compiled = threading.Event()
threading.Thread(target=compile, daemon=True).start()
compiled.wait()
child = subprocess.Popen([sys.executable, "-c", "import time\\nbegan = time.process_time()\\n"
    "while time.process_time() < began + 0.5: pass\\nprint(1, flush=True)\\ntime.sleep(60)"])
sys.stdin.readline()
child.kill()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        yield it


def test_the_cpu_of_a_process_and_of_what_it_starts_is_counted(parent) -> None:
    counter = CpuCounter([parent.pid])
    parent.stdin.write("go on\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "1\n"
    found = counter.used()
    # Besides, both load Python.
    assert 0.8 <= found.total_s < 5
    assert 0.25 <= found.compiling_s <= 0.5
    parent.stdin.write("end\n")


def test_what_was_used_before_does_not_count(parent) -> None:
    parent.stdin.write("go on\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "1\n"
    counter = CpuCounter([parent.pid])
    time.sleep(0.1)
    assert counter.used().total_s < 0.3
    assert counter.used().compiling_s == 0
    assert cpu_s(parent.pid) >= 0.3
    parent.stdin.write("end\n")


def test_a_process_that_has_ended_is_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        counter = CpuCounter([ended.pid])
        ended.wait()
    assert counter.used() == Cpu(0.0, 0.0)
