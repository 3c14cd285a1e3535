"""Kafka's console consumer and producer, which are Java's clients, at a gateway."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kafka.admin import KafkaAdminClient

from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.topics import create_log_topic, create_table_topic
from tests.ends import check_end
from tests.pipeline.gateway.kafka_tools.running import (
    command,
    environment,
    process,
)
from tests.pipeline.gateway.running import coordinator, gateway
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROWS, COMMITS, PARTITIONS = 100_000, 20, 6
_PLACE = re.compile(r"^Partition:(\d+)\tOffset:(\d+)\t(.*)\n", re.MULTILINE)
_WAIT_S = 120.0


@pytest.fixture(scope="module")
def root(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("console"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    return root


@pytest.fixture(scope="module")
def broker(root: str) -> Iterator[Broker]:
    with coordinator(root), gateway(root) as running:
        yield running


def rows(commit: int) -> pa.Table:
    size = ROWS // COMMITS
    numbers = range(commit * size, (commit + 1) * size)
    return pa.table({"id": pa.array(numbers, pa.int64()), "key": [f"k{n % 997}" for n in numbers]})


def until(there: Callable[[], bool]) -> None:
    wait_until("it is there", there, _WAIT_S)


def places(file: Path) -> list[tuple[int, int]]:
    """The partition and offset of each record that a consumer has printed."""
    found = _PLACE.findall(file.read_text()) if file.exists() else []
    return [(int(partition), int(offset)) for partition, offset, _ in found]


class Consumers:
    """Console consumers of one topic in one group, each of which prints into a file of its own."""

    def __init__(
        self, stack: ExitStack, libs: Path, broker: Broker, folder: Path, topic: str, *settings: str
    ) -> None:
        self._stack, self._libs, self._folder = stack, libs, folder
        self._line = [
            *("--bootstrap-server", f"{broker.host}:{broker.port}", "--topic", topic),
            *("--group", topic, "--from-beginning"),
            *("--property", "print.partition=true", "--property", "print.offset=true"),
        ]
        self._settings = ["session.timeout.ms=6000", "heartbeat.interval.ms=1000", *settings]
        self.processes: list[Any] = []

    def add(self, *settings: str, words: tuple[str, ...] = ()) -> int:
        """Start one more; its number."""
        properties = [*self._settings, *settings]
        number = len(self.processes)
        out = self._stack.enter_context((self._folder / str(number)).open("wb"))
        running = process(
            self._libs,
            "kafka-console-consumer.sh",
            *self._line,
            *words,
            *(word for each in properties for word in ("--consumer-property", each)),
            stdin=DEVNULL,
            stdout=out,
        )
        self.processes.append(self._stack.enter_context(running))
        return number

    def printed(self, number: int) -> list[tuple[int, int]]:
        """The partition and offset of each record that one has printed."""
        return places(self._folder / str(number))

    def all_printed(self) -> list[tuple[int, int]]:
        """The same of all."""
        return [each for number in range(len(self.processes)) for each in self.printed(number)]

    def end(self) -> None:
        """End those that run as a user does, by a signal: they commit, and leave the group."""
        for each in self.processes:
            each.terminate()
        for each in self.processes:
            each.wait(_WAIT_S)


def lags(libs: Path, broker: Broker, group: str, *words: str) -> dict[str, str]:
    """Run kafka-consumer-groups.sh; by partition, the last of the words that are numbers."""
    address = ("--bootstrap-server", f"{broker.host}:{broker.port}")
    done = subprocess.run(
        command(libs, "kafka-consumer-groups.sh", *address, "--group", group, *words),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(f"{group} ")]
    return {row[2]: row[5] if len(row) > 5 else row[3] for row in rows}


def members(broker: Broker, group: str) -> list[str]:
    """The members of a stable group."""
    admin = KafkaAdminClient(bootstrap_servers=f"{broker.host}:{broker.port}")
    found = admin.describe_groups([group])[group]
    admin.close()
    return [each["member_id"] for each in found["members"] if found["group_state"] == "Stable"]


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_three_consumers_of_a_table_of_which_one_is_killed_and_one_added(
    libs: Path, broker: Broker, root: str, tmp_path: Path, assignor: str, is_static: bool
) -> None:
    topic = f"{assignor}-{is_static}"
    table = str(tmp_path / "rows")
    write_deltalake(table, rows(0))
    create_table_topic(root, topic, PARTITIONS, table, key="key", value="id")
    strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
    with ExitStack() as stack:
        consumers = Consumers(stack, libs, broker, tmp_path, topic, strategy)

        def add(name: str) -> int:
            return consumers.add(*([f"group.instance.id={name}"] if is_static else []))

        commit = 1

        def goes_on(number: int) -> None:
            """The table grows until this consumer has printed more than it has now."""
            nonlocal commit
            before = len(consumers.printed(number))
            while len(consumers.printed(number)) == before:
                assert commit < COMMITS, "there are no rows left to wait with"
                write_deltalake(table, rows(commit), mode="append")
                commit += 1
                time.sleep(2)

        for number in [add(name) for name in ("a", "b", "c")]:
            goes_on(number)
        consumers.processes[0].kill()
        goes_on(add("d"))
        for last in range(commit, COMMITS):
            write_deltalake(table, rows(last), mode="append")
        until(lambda: len({*consumers.all_printed()}) == ROWS)
        # Some may be printed twice: what the killed one had not committed, and, as Kafka's
        # cooperative consumers read on while they join, what others read between commit and revoke.
        found = {*consumers.all_printed()}
        for partition in range(PARTITIONS):
            offsets = sorted(offset for number, offset in found if number == partition)
            assert offsets == list(range(len(offsets)))
        consumers.end()


def test_a_group_that_is_reset_is_given_every_row_again(
    libs: Path, broker: Broker, root: str, tmp_path: Path
) -> None:
    table = str(tmp_path / "rows")
    write_deltalake(table, rows(0))
    size = ROWS // COMMITS
    create_table_topic(root, "again", PARTITIONS, table, key="key", value="id")
    with ExitStack() as stack:
        consumers = Consumers(stack, libs, broker, tmp_path, "again")
        for _ in range(2):
            number = consumers.add(words=("--max-messages", str(size)))
            check_end(consumers.processes[number].wait(_WAIT_S))
            assert len({*consumers.printed(number)}) == size
            assert set(lags(libs, broker, "again", "--describe").values()) == {"0"}
            reset = ("--reset-offsets", "--all-topics", "--to-earliest", "--execute")
            assert set(lags(libs, broker, "again", *reset).values()) == {"0"}
            lag = lags(libs, broker, "again", "--describe").values()
            assert sum(map(int, lag)) == size


def test_a_static_member_that_comes_back_in_time_is_not_rebalanced(
    libs: Path, broker: Broker, root: str, tmp_path: Path
) -> None:
    table = str(tmp_path / "rows")
    write_deltalake(table, rows(0))
    create_table_topic(root, "static", PARTITIONS, table, key="key", value="id")

    def generation() -> int:
        found = Catalog(root).query("SELECT generation FROM groups WHERE group_id = 'static'")
        return int(found.rows[0][0])

    with ExitStack() as stack:
        consumers = Consumers(stack, libs, broker, tmp_path, "static", "session.timeout.ms=60000")
        for name in ("a", "b"):
            consumers.add(f"group.instance.id={name}")
        size = ROWS // COMMITS
        until(lambda: len({*consumers.all_printed()}) == size)
        until(lambda: len(members(broker, "static")) == 2)
        before, stays = generation(), len(consumers.printed(1))
        consumers.processes[0].kill()
        back = consumers.add("group.instance.id=a")
        write_deltalake(table, rows(1), mode="append")
        until(lambda: len({*consumers.all_printed()}) == 2 * size)
        assert generation() == before
        own = {partition for partition, _ in consumers.printed(back)}
        others = {partition for partition, _ in consumers.printed(1)[stays:]}
        assert (own & others, len(own | others)) == (set(), PARTITIONS)


def test_what_the_producer_sends_the_consumer_prints(
    libs: Path, broker: Broker, root: str, tmp_path: Path
) -> None:
    create_log_topic(root, "lines", 3)
    address = ["--bootstrap-server", f"{broker.host}:{broker.port}", "--topic", "lines"]
    lines = [f"k{number % 7}:line {number}" for number in range(2_000)]
    parsing = ["--property", "parse.key=true", "--property", "key.separator=:"]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with process(
            libs,
            "kafka-console-producer.sh",
            *address,
            *parsing,
            *("--compression-codec", codec),
            stdin=PIPE,
        ) as producer:
            producer.communicate("".join(f"{line}\n" for line in lines).encode())
            check_end(producer.returncode)
    file = tmp_path / "printed"
    with (
        file.open("wb") as out,
        process(
            libs,
            "kafka-console-consumer.sh",
            *address,
            "--from-beginning",
            *("--property", "print.key=true", "--property", "key.separator=:"),
            *("--max-messages", str(5 * len(lines)), "--timeout-ms", "60000"),
            stdin=DEVNULL,
            stdout=out,
        ) as consumer,
    ):
        check_end(consumer.wait(_WAIT_S))
    assert sorted(file.read_text().splitlines()) == sorted(5 * lines)


def test_what_is_produced_to_a_table_is_refused(
    libs: Path, broker: Broker, root: str, tmp_path: Path
) -> None:
    table = str(tmp_path / "given")
    write_deltalake(table, rows(0))
    create_table_topic(root, "given", 1, table, key="key")
    with process(
        libs,
        "kafka-console-producer.sh",
        *("--bootstrap-server", f"{broker.host}:{broker.port}", "--topic", "given"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
    ) as producer:
        out, err = producer.communicate(b"a line\n")
    assert b"PolicyViolationException" in out + err
