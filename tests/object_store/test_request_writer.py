"""Requests that Spark's tasks write to a store are committed once, whatever the store responds."""

from __future__ import annotations

import pytest

from group_coordinator.pipeline.spark.request_writer import LostCheckpoint
from group_coordinator.pipeline.tables.request_log import RequestLog
from tests.object_store.proxy import FAIL_AFTER, LOSE_ANSWER, REFUSE, Proxy
from tests.object_store.test_faults import is_commit, once
from tests.pipeline.rows import heartbeat
from tests.pipeline.spark.tasks import batch_writer, commits, fetch, ids, stream_writer, written
from tests.roots import make_tables

pytestmark = pytest.mark.long


def run_batch(root: str, number: int, *names: str) -> None:
    messages = written(stream_writer(root), [fetch(name) for name in names], batch=number)
    stream_writer(root).commit(messages, number)


@pytest.mark.parametrize("fault", [LOSE_ANSWER, FAIL_AFTER, REFUSE])
def test_a_write_is_committed_once_whatever_the_response_of_its_commit_is(
    root: str, proxy: Proxy, fault: str
) -> None:
    make_tables(root)
    writer = batch_writer(root)
    messages = written(writer, [fetch("a")], [fetch("b")])
    RequestLog(root).append([heartbeat("other")])
    proxy.fault = once(fault, is_commit)
    writer.commit(messages)
    assert ids(root) == ["other", "a", "b"]
    assert commits(root) == 2


@pytest.mark.parametrize("fault", [LOSE_ANSWER, FAIL_AFTER])
def test_a_stream_s_batch_is_committed_once_and_one_of_a_lost_checkpoint_is_refused(
    root: str, proxy: Proxy, fault: str
) -> None:
    make_tables(root)
    run_batch(root, 0, "a")
    proxy.fault = once(fault, is_commit)
    run_batch(root, 1, "b")
    run_batch(root, 1, "b")
    assert ids(root) == ["a", "b"]
    with pytest.raises(LostCheckpoint):
        run_batch(root, 0, "a")
