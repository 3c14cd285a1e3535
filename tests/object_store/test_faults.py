"""Stores that answer late, refuse, or execute requests without a response: nothing is lost.

The servers are in `tests.object_store.servers`. A proxy in front of them makes the faults.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta import bucket, object_store
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.delta.bucket import StoreError, StoreRefusal
from group_coordinator.pipeline.delta.checkpoint import checkpoint
from group_coordinator.pipeline.delta.data_file import data_files
from group_coordinator.pipeline.delta.followed import TableTail
from group_coordinator.pipeline.delta.log_trim import trim_log
from group_coordinator.pipeline.delta.object_store import ObjectStore
from group_coordinator.pipeline.delta.storage import Outcome
from group_coordinator.pipeline.delta.store_check import (
    ClockSkew,
    UnfitStore,
    check_clock,
    check_store,
)
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.table_files import TableFiles
from tests.object_store.proxy import (
    CONFLICT,
    FAIL_AFTER,
    HANG,
    IGNORE_CONDITION,
    LOSE_ANSWER,
    PASS,
    REFUSE,
    Asked,
)
from tests.object_store.server import Server

pytestmark = pytest.mark.long


@pytest.fixture
def uri(root: str) -> str:
    DeltaTable.create(root, pa.schema([("n", pa.int64())]))
    return root


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def rows(uri: str) -> list[int]:
    return sorted(DeltaTable(uri).to_pyarrow_table().column("n").to_pylist())


def is_commit(asked: Asked) -> bool:
    return asked.verb == "PUT" and asked.key.endswith(".json")


def is_file(asked: Asked) -> bool:
    return asked.verb == "PUT" and asked.key.endswith(".parquet")


def once(fault: str, which: Callable[[Asked], bool]) -> Callable[[Asked], str]:
    """Return the fault for the first request of the kind, and none for all others."""
    left = [fault]
    return lambda asked: left.pop() if left and which(asked) else PASS


def now_and_then(fault: str, share: float) -> Callable[[Asked], str]:
    chance = random.Random(7)
    return lambda _asked: fault if chance.random() < share else PASS


def test_only_one_of_many_creates_a_key(uri):
    folder = ObjectStore(uri)
    for number in range(20):
        won: list[int] = []

        def create(me: int, key: str, won: list[int] = won) -> None:
            if folder.create(key, str(me).encode()).outcome is Outcome.MADE:
                won.append(me)

        threads = [threading.Thread(target=create, args=(me, f"key-{number}")) for me in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert folder.read(f"key-{number}") == str(won[0]).encode()


def test_an_append_is_two_puts_and_a_look_one_get(proxy, uri):
    appender = Appender(uri)
    appender.append(numbers(0))
    tail = TableTail(open_files(uri), 1, ["n"])
    assert tail.poll() is None
    with proxy.counting() as counted:
        for number in range(10):
            assert appender.append(numbers(number))
    assert counted == {"PUT": 20}
    with proxy.counting() as counted:
        assert tail.poll().column("n").to_pylist() == list(range(10))
        for _ in range(10):
            assert tail.poll() is None
    # A reader that found many commits in a row requests half as many more at once.
    assert counted == {"GET": 10 + 10 + 5 + 10}, "commits, files, and what is not there yet"
    appender.append(numbers(10))
    with proxy.counting() as counted:
        assert tail.poll().column("n").to_pylist() == [10]
    assert counted == {"GET": 1 + 1 + 1}


@pytest.mark.parametrize("fault", [LOSE_ANSWER, FAIL_AFTER, REFUSE, CONFLICT])
@pytest.mark.parametrize("what", ["commit", "file"])
def test_an_append_whose_request_fails_once_is_there_once(proxy, uri, fault, what):
    appender = Appender(uri)
    appender.append(numbers(0), "query", 0)
    proxy.fault = once(
        fault, lambda asked: asked.verb == "PUT" and is_commit(asked) == (what == "commit")
    )
    assert appender.append(numbers(1), "query", 1)
    assert appender.append(numbers(2), "query", 2)
    assert not appender.append(numbers(2), "query", 2)
    assert rows(uri) == [0, 1, 2]
    assert open_delta(uri).version() == 3


def test_a_commit_whose_answer_hangs_is_repeated_and_found(proxy, uri, monkeypatch):
    monkeypatch.setitem(bucket.CLIENT, "timeout", timedelta(seconds=1))
    bucket.bucket_of.cache_clear()
    appender = Appender(uri)
    proxy.fault = once(HANG, is_commit)
    assert appender.append(numbers(1))
    assert rows(uri) == [1]
    assert open_delta(uri).version() == 1


def test_a_store_that_answers_nothing_any_more_is_an_error_and_the_rows_are_written_later(
    proxy, uri, monkeypatch
):
    monkeypatch.setitem(bucket.CLIENT, "timeout", timedelta(seconds=1))
    monkeypatch.setitem(bucket.RETRY, "max_retries", 1)
    monkeypatch.setattr(object_store, "RETRY_BUDGET_S", 1.0)
    bucket.bucket_of.cache_clear()
    appender = Appender(uri)
    appender.append(numbers(0), "query", 0)
    proxy.fault = lambda _asked: HANG
    with pytest.raises(StoreError):
        appender.append(numbers(1), "query", 1)
    proxy.fault = lambda _asked: PASS
    assert appender.append(numbers(1), "query", 1)
    assert rows(uri) == [0, 1]


@pytest.mark.parametrize("fault", [REFUSE, LOSE_ANSWER, FAIL_AFTER])
def test_of_many_appends_beside_each_other_none_is_lost_or_doubled(proxy, uri, fault):
    """Three writers, a tail and a rewrite run while a tenth of all requests fails."""
    proxy.fault = now_and_then(fault, 0.1)
    acknowledged: list[int] = []
    tail = TableTail(open_files(uri), 0, ["n"])

    def write(first: int) -> None:
        appender = persistent(Appender, uri)
        for number in range(first, first + 20):
            # Rows that were not acknowledged are written again, under the same name.
            persistent(appender.append, numbers(number), f"writer-{first}", number)
            acknowledged.append(number)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while any(thread.is_alive() for thread in threads):
        seen += polled(tail)
    for thread in threads:
        thread.join()
    proxy.fault = lambda _asked: PASS
    seen += polled(tail)
    assert rows(uri) == sorted(acknowledged)
    assert len(acknowledged) == 60
    assert sorted(seen) == rows(uri)


def test_files_are_rewritten_beside_appends(proxy, uri, tmp_path):
    proxy.fault = now_and_then(LOSE_ANSWER, 0.1)
    appender = persistent(Appender, uri)
    for number in range(10):
        persistent(appender.append, numbers(number), "query", number)
    files = persistent(TableFiles, persistent(open_delta, uri), tmp_path)
    removed = persistent(data_files, files.handle)[:5]
    persistent(appender.append, numbers(10), "query", 10)
    proxy.fault = lambda asked: LOSE_ANSWER if is_commit(asked) and chance() < 0.5 else PASS
    chance = random.Random(3).random
    files.rewrite(removed, [])
    proxy.fault = lambda _asked: PASS
    assert rows(uri) == [5, 6, 7, 8, 9, 10]


def test_what_is_not_there_is_deleted_like_what_is(uri):
    folder = ObjectStore(uri)
    folder.write("a", b"1")
    folder.write("c", b"1")
    folder.delete(["a", "b", "c"])
    assert [each.path for each in folder.list() if "/" not in each.path] == []


def test_of_an_empty_object_nothing_is_read(uri):
    folder = ObjectStore(uri)
    folder.write("empty", b"")
    assert folder.read_first("empty") == (b"", 0)
    assert folder.read("empty") == b""
    with pytest.raises(FileNotFoundError):
        folder.read_first("none")


def test_a_store_that_ignores_the_condition_is_refused(proxy, root):
    check_store.cache_clear()
    proxy.fault = lambda _asked: IGNORE_CONDITION
    with pytest.raises(UnfitStore, match="two writers would overwrite each other's commits"):
        check_store(root)
    proxy.fault = lambda _asked: PASS
    with proxy.counting() as counted:
        check_store(root)
    assert counted == {"PUT": 2, "DELETE": 1}
    assert ObjectStore(root).list() == []


# The server of GCS knows no keys, and reports a missing bucket as a missing object.
@pytest.mark.parametrize("server", ["s3", "adls"], indirect=True)
def test_a_wrong_key_is_said_to_be_one(proxy, server, root, monkeypatch):
    for name, value in server.wrong_key().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreRefusal, match=r"403 Forbidden, [A-Za-z]+: .*[Ss]ignature") as refused:
        ObjectStore(root).read("anything")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("server", ["s3", "adls"], indirect=True)
def test_a_bucket_that_is_not_there_is_no_empty_one(proxy, server: Server):
    with pytest.raises(StoreRefusal, match=r"404 .*(NoSuchBucket|ContainerNotFound)"):
        ObjectStore(server.uri("t", bucket="nobucket")).read("anything")


def test_a_store_that_is_silent_for_a_while_is_asked_until_it_answers(
    proxy, uri, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setitem(bucket.RETRY, "max_retries", 1)
    bucket.bucket_of.cache_clear()
    appender = Appender(uri)
    appender.append(numbers(0), "query", 0)
    refusals = 30
    left = [REFUSE] * refusals
    proxy.fault = lambda _asked: left.pop() if left else PASS
    assert appender.append(numbers(1), "query", 1)
    assert not left
    assert rows(uri) == [0, 1]
    said = [each.getMessage() for each in caplog.records if "the store" in each.getMessage()]
    assert len(said) == 2
    assert "requests are retried for up to 45 s: PUT " in said[0]
    assert "the store responds again after" in said[1]


def test_a_store_that_never_answered_is_not_waited_for(proxy, root, monkeypatch):
    monkeypatch.setitem(bucket.RETRY, "max_retries", 1)
    bucket.bucket_of.cache_clear()
    proxy.fault = lambda _asked: REFUSE
    with proxy.counting() as counted, pytest.raises(StoreError, match="503 Service Unavailable"):
        ObjectStore(root).read("anything")
    assert counted == {"GET": 2}


def test_a_consumed_log_is_trimmed_and_its_table_read_on(proxy, uri, request):
    appender = Appender(uri)
    for number in range(6):
        appender.append(numbers(number))
    checkpoint(uri, 6, {}, cleans_up=False)
    with proxy.counting() as counted:
        assert trim_log(uri, 4, grace_s=-1) == 4
    # GCS deletes one object at a time.
    deletions = 4 if "gcs" in request.node.callspec.id else 1
    assert counted == {"GET": 1, "HEAD": 1, "LIST": 1, "DELETE": deletions}
    assert rows(uri) == list(range(6))
    appender.append(numbers(6))
    assert rows(uri) == list(range(7))


def test_a_machine_s_clock_is_compared_with_the_store_s(uri):
    check_clock(uri)
    ahead = clock_ms() + 3_600_000

    class Ahead:
        def wall_ms(self) -> int:
            return ahead

        def monotonic_s(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            raise NotImplementedError

    with clock.use(Ahead()), pytest.raises(ClockSkew, match="ahead of that of the store"):
        check_clock(uri)


def persistent(do: Callable[..., object], *arguments: object):  # type: ignore[no-untyped-def]
    """Repeat it while the store fails, as any caller of an append may."""
    for _ in range(50):
        try:
            return do(*arguments)
        except OSError:
            continue
    return partial(do, *arguments)()


def polled(tail: TableTail) -> list[int]:
    found = persistent(tail.poll)
    return [] if found is None else found.column("n").to_pylist()
