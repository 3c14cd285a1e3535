"""What a start does that is asked to end in its middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from pipeline.node import job
from pipeline.session.jvm_log import JvmLog


@pytest.fixture
def stop() -> Iterator[job._Stop]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    made = job._Stop(JvmLog())
    made.on_signals()
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_is_given_up_at_once(stop: job._Stop, number: int) -> None:
    with pytest.raises(job._Asked):
        os.kill(os.getpid(), number)


def test_but_an_import_is_not_cut_off(stop: job._Stop) -> None:
    seen = []

    def start() -> None:
        with stop.held():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            seen.append("imported")

    with pytest.raises(job._Asked):
        start()
    assert seen == ["imported"]


def test_nothing_is_given_up_that_nobody_asks_to_end(stop: job._Stop) -> None:
    with stop.held():
        pass
    assert not stop.asked.is_set()
