"""What fails for a cause that may pass is done again for a while; what would fail again is not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.delta.appender import Epoch, FencedError
from group_coordinator.pipeline.delta.bucket import StoreError, StoreRefusal
from group_coordinator.pipeline.delta.protocol import UnsupportedTable
from group_coordinator.pipeline.delta.retry_budget import CommitTimeoutError, RetryBudget
from group_coordinator.pipeline.delta.storage import CommitStateUnknown, NotFlushed
from group_coordinator.pipeline.delta.writer import AppendConflict
from tests.pipeline.node.looks import Clock


def failed(number: int, file: str = "f") -> OSError:
    """What the operating system raises, of the class that goes with the number."""
    return OSError(number, os.strerror(number), file)


class Step:
    """Fails once with each of the errors, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.attempts = 0

    def __call__(self) -> str:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def time_of_day() -> Iterator[Clock]:
    time = Clock()
    with clock.use(time):
        yield time


PASSING = [
    failed(errno.EMFILE),
    failed(errno.ENOSPC),
    failed(errno.EDQUOT),
    failed(errno.EIO),
    failed(errno.ENOENT),
    StoreError("PUT: 503 Slow Down", "503"),
    CommitStateUnknown("no answer"),
    AppendConflict("20 appends lost"),
    CommitFailedError("a concurrent transaction deleted data this operation read"),
    DeltaError("Generic S3 error: 500 Internal Server Error"),
    pa.ArrowInvalid("Could not open Parquet input source: the file is too short"),
]
LASTING = [
    failed(errno.EACCES),
    failed(errno.EPERM),
    failed(errno.EROFS),
    StoreRefusal("PUT: 403 Forbidden"),
    FencedError("responses", Epoch(1, 2), 3),
    NotFlushed("version 7 may not survive a power loss"),
    UnsupportedTable("responses", ("columnMapping",)),
    SchemaMismatchError("no column n"),
    KeyError("a bug"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_done_again(error: Exception) -> None:
    step = Step(error)
    assert RetryBudget(5_000).run("write", step) == "done"
    assert step.attempts == 2


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_would_fail_again_is_raised_at_once(error: Exception) -> None:
    step = Step(error)
    with pytest.raises(type(error)) as raised:
        RetryBudget(5_000).run("write", step)
    assert raised.value is error
    assert step.attempts == 1


def test_each_cause_is_told_once_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    RetryBudget(60_000).run("write records", Step())
    errors = [failed(errno.EMFILE, f"file-{n}") for n in range(3)]
    step = Step(*errors, failed(errno.ENOSPC), *(StoreError("503", "503") for _ in range(2)))
    RetryBudget(60_000).run("write responses", step)
    assert [each.getMessage() for each in caplog.records] == [
        "could not write responses, retrying: [Errno 24] Too many open files: 'file-0'",
        "could not write responses, retrying: [Errno 28] No space left on device: 'f'",
        "could not write responses, retrying: 503",
        "write responses: succeeded in attempt 7",
    ]


def test_it_ends_after_the_time_and_says_why(time_of_day: Clock) -> None:
    began = time_of_day.now_s
    step = Step(*(failed(errno.ENOSPC) for _ in range(1_000)))
    why = (
        r"write responses within 5000 ms \(offsets.commit.timeout.ms\): .* No space left on device"
    )
    with pytest.raises(CommitTimeoutError, match=why):
        RetryBudget(5_000).run("write responses", step)
    assert 5.0 <= time_of_day.now_s - began <= 5.25, "the longest pause between attempts"
    assert step.attempts < 100


def test_the_time_is_that_of_all_steps_and_begins_with_the_first_failure(
    time_of_day: Clock,
) -> None:
    budget = RetryBudget(5_000)
    time_of_day.now_s += 100
    assert not budget.has_failed
    budget.run("write records", Step(failed(errno.EIO)))
    assert budget.has_failed
    time_of_day.now_s += 5
    with pytest.raises(CommitTimeoutError):
        budget.run("write responses", Step(failed(errno.EIO)))
