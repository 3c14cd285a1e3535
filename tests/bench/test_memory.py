"""Tests of the peaks of memory of a process and its children."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.memory import Memory, forget_peaks, peaks_of

MB = 1 << 20
# A program that allocates and frees memory on command.
HOG = """
import mmap, sys
for line in sys.stdin:
    with mmap.mmap(-1, int(line)) as taken:
        for at in range(0, len(taken), mmap.PAGESIZE):
            taken[at] = 1
    print("done", flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells of peaks")
def test_a_peak_is_seen_when_it_is_over_and_then_forgotten() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as hog:
        assert hog.stdin is not None
        assert hog.stdout is not None

        def take(size: int) -> int:
            print(size, file=hog.stdin, flush=True)
            assert hog.stdout.readline() == "done\n"
            return peaks_of(hog.pid).driver

        least = take(1)
        assert take(64 * MB) >= least + 60 * MB
        assert take(1) >= least + 60 * MB
        forget_peaks(hog.pid)
        assert take(1) < least + 30 * MB
        hog.stdin.close()
    assert peaks_of(hog.pid) == Memory(0, 0, 0)


def test_who_has_ended_has_no_peaks() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    forget_peaks(ended.pid)
    assert peaks_of(ended.pid) == Memory(0, 0, 0)
