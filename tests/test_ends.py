"""The message of a failing test: a helper's values, a call's error, a process's signal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from group_coordinator.schemas.errors import ErrorCode
from tests.context import Context
from tests.ends import check_end, check_runs, how_it_ended


def test_an_assert_in_a_helper_says_its_values() -> None:
    parked = Context().join()
    with pytest.raises(AssertionError, match="assert 0 == 1"):
        assert parked.response


def test_a_call_says_its_api_and_its_error_s_name() -> None:
    ctx = Context()
    call = ctx.heartbeat("nobody", 1)
    assert call.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert repr(call) == "Call(request-1: heartbeat, UNKNOWN_MEMBER_ID)"
    assert repr(ctx.join()) == "Call(request-2: join_group, parked)"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "status 0"),
        (1, "status 1"),
        (143, "status 143 (SIGTERM)"),
        (-11, "signal 11 (SIGSEGV)"),
        (-64, "signal 64 (SIGRTMAX)"),
        (255, "status 255"),
        (None, "it runs"),
    ],
)
def test_an_end_is_said_in_words(status: int | None, words: str) -> None:
    assert how_it_ended(status) == words


def test_who_checks_an_end_reads_the_signal_s_name_and_what_was_said(tmp_path: Path) -> None:
    said = tmp_path / "log"
    said.write_text("its last words")
    with subprocess.Popen(["sleep", "60"]) as process:
        check_runs(process.poll())
        with pytest.raises(AssertionError, match="it runs, not status 0"):
            check_end(process.poll())
        process.kill()
    by_a_signal = r"signal 9 \(SIGKILL\)"
    with pytest.raises(AssertionError, match=f"{by_a_signal}, not status 0: its last words"):
        check_end(process.returncode, said)
    with pytest.raises(AssertionError, match=f"{by_a_signal}: its last words"):
        check_runs(process.returncode, said)
    check_end(process.returncode, expected=-signal.SIGKILL)
