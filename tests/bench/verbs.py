"""Time of a command's whole process, compared with an idle Python and with Kafka's own tool.

The groups have all their offsets in a log that was never compacted, the most that a command reads
for this number of offsets. The tool, kafka-consumer-groups.sh, queries a real broker on this
machine with the same number of groups and offsets. The fastest run counts, because the others
waited for the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetCommitResponse
from msgspec import Struct

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.tables.store import ensure_tables, table_uri
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    CoordinatorRecord,
    GroupMetadataValue,
    OffsetCommitValue,
)
from group_coordinator.schemas.tables import OFFSETS_TOPIC, to_arrow
from tests.bench.offsets_log import group_names, write_log
from tests.bench.report import Aim, Column, Report
from tests.support.broker import HOST, Broker, broker
from tests.support.kafka_libs import ADVICE, java, kafka_libs
from tests.support.wire import Connection, await_coordinator, frame

# The bounds of the issue of a fast command line, s: of up to 1,000 groups, and of 100,000.
_FEW_GROUPS, _FEW_S, _MANY_S = 1_000, 0.5, 1.5
_PASS = "python -c pass"
# A group without members, so its offsets can be reset.
_IDLE = "idle"
_TOPIC = "t-0"
_COMMIT_VERSION = 7
# Requests that a connection has on their way.
_AT_ONCE = 100
# How long a broker may take to know a topic, s.
_KNOWN_S = 30.0
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class VerbFigures(Struct, frozen=True):
    """A command: its fastest run and its slowest, and the CPU time of the cheapest, s.

    `kafka_s` is the fastest run of kafka-consumer-groups.sh for the same command; 0 if the tool has
    no such command, or was not run.
    """

    command: Annotated[str, Column("command")]
    best_s: Annotated[float, Column("s", ".2f", bar="fastest")]
    worst_s: Annotated[float, Column("slowest s", ".2f")]
    cpu_s: Annotated[float, Column("CPU s", ".2f")]
    kafka_s: Annotated[float, Column("kafka-consumer-groups.sh s", ".2f", absent=0)]


class VerbsReport(Report):
    """The figures of one run: Python alone, then each verb."""

    groups: int
    offsets: int
    figures: list[VerbFigures]

    def title(self) -> str:
        """Return the description of the data that the commands read."""
        return f"{self.groups:,} groups, {self.offsets:,} committed offsets"

    def rows(self) -> Sequence[VerbFigures]:
        """Python, and each verb."""
        return self.figures

    def aims(self) -> list[Aim]:
        """Each verb keeps to the bound for so many groups."""
        bound = _FEW_S if self.groups <= _FEW_GROUPS else _MANY_S
        slowest = max(each.best_s for each in self.figures if each.command != _PASS)
        return [Aim("the slowest verb", "s", bound, slowest)]


class _Times:
    """The runs of one command."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.walls: list[float] = []
        self.cpus: list[float] = []

    def run(self) -> None:
        before, began = os.times(), time.monotonic()
        done = subprocess.run(self._command, capture_output=True, text=True, check=False)
        wall, after = time.monotonic() - began, os.times()
        if done.returncode:
            raise Failure(f"{' '.join(self._command)}: {done.stderr.strip()}")
        self.walls.append(wall)
        self.cpus.append(
            after.children_user
            - before.children_user
            + after.children_system
            - before.children_system
        )


def bench_verbs(
    groups: int = 1_000,
    partitions: int = 10,
    runs: int = 5,
    libs: Path | None = None,
    say: Callable[[str], None] = print,
) -> VerbsReport:
    """Run the verbs in turn on a root of so many groups; `libs` is the folder of Kafka's jars.

    Raises Failure if a verb fails.
    """
    one = group_names(groups)[-1]
    # Each command, and the equivalent one of Kafka's tool.
    verbs = {
        "groups list": "--list --state --type",
        f"groups describe {one}": f"--describe --group {one}",
        f"groups describe {one} --members": f"--describe --group {one} --members",
        f"groups describe {one} --state": f"--describe --group {one} --state",
        f"offsets show {one}": "",
        f"offsets reset {_IDLE} --to-offset 5": (
            f"--reset-offsets --group {_IDLE} --all-topics --to-offset 5"
        ),
        "topics list": "",
        "partitions list": "",
    }
    theirs: dict[str, _Times] = {}
    if libs is None:
        say(ADVICE)
    else:
        theirs = _kafka(kafka_libs(libs, say), groups, partitions, verbs, runs, say)
    with tempfile.TemporaryDirectory(prefix="bench-verbs-") as root:
        say(f"making {groups:,} groups")
        ensure_tables(root)
        # Of ten commits seven are of different partitions.
        offsets = write_log(root, groups * (1 + -(-partitions * 10 // 7)), groups, clock_ms())
        _write_idle(root)
        ours = {_PASS: _Times([sys.executable, "-c", "pass"])}
        for verb in verbs:
            words = [*verb.split(), "--root", root]
            ours[verb] = _Times([sys.executable, "-m", "group_coordinator", *words])
        _run_all("run", ours.values(), runs, say)
    figures = [
        VerbFigures(
            verb,
            min(times.walls),
            max(times.walls),
            min(times.cpus),
            min(theirs[verb].walls) if verb in theirs else 0.0,
        )
        for verb, times in ours.items()
    ]
    return VerbsReport(groups, offsets, figures)


def _run_all(what: str, commands: Iterable[_Times], runs: int, say: Callable[[str], None]) -> None:
    commands = list(commands)
    for number in range(runs):
        say(f"{what} {number + 1} of {runs}")
        for times in commands:
            times.run()


def _write_idle(root: str) -> None:
    """Append the group without members, with an offset."""
    number = partition_for(_IDLE, GroupCoordinatorConfig().offsets_topic_num_partitions)
    now = clock_ms()
    emptied = GroupMetadataValue("consumer", 1, None, None, now, ())
    given = [
        CoordinatorRecord(number, GROUP_METADATA, _IDLE, now, group_metadata=emptied),
        CoordinatorRecord(
            number, OFFSET_COMMIT, _IDLE, now, None, _TOPIC, 0, OffsetCommitValue(3, -1, "", now)
        ),
    ]
    columns = {"segment": pa.array([0, 0]), "log_offset": pa.array([1 << 40, 1 + (1 << 40)])}
    Appender(table_uri(root, OFFSETS_TOPIC)).append(to_arrow(OFFSETS_TOPIC, given, columns))


# --- Kafka's own tool -----------------------------------------------------------------------------


def _kafka(
    libs: Path,
    groups: int,
    partitions: int,
    verbs: Mapping[str, str],
    runs: int,
    say: Callable[[str], None],
) -> dict[str, _Times]:
    """Time the tool on a broker with the same groups."""
    with broker(libs) as node:
        await_coordinator(node, _IDLE)
        where = f"{HOST}:{node.port}"
        admin = KafkaAdminClient(bootstrap_servers=where)
        admin.create_topics([NewTopic(_TOPIC, partitions, 1)])
        admin.close()
        say(f"making {groups:,} groups in Kafka")
        _commit(node, [*group_names(groups), _IDLE], partitions)
        tool = [java(), "-Xmx512m", "-cp", f"{libs}/*", _TOOL, "--bootstrap-server", where]
        found = {verb: _Times([*tool, *words.split()]) for verb, words in verbs.items() if words}
        _run_all("Kafka's run", found.values(), runs, say)
    return found


def _commit(node: Broker, names: Sequence[str], partitions: int) -> None:
    """Commit an offset of each partition for each group, as a consumer without a group would.

    A topic that was just created may be unknown to the broker for a moment.
    """
    connection = Connection(node)
    limit = time.monotonic() + _KNOWN_S
    try:
        while _errors(connection, names[:1], partitions) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            if time.monotonic() > limit:
                raise Failure("the broker does not know the topic that it has created")
            time.sleep(0.1)
        for first in range(0, len(names), _AT_ONCE):
            errors = _errors(connection, names[first : first + _AT_ONCE], partitions)
            if errors != {ErrorCode.NONE}:
                raise Failure(f"the broker refused a commit: {errors}")
    finally:
        connection.close()


def _errors(connection: Connection, names: Sequence[str], partitions: int) -> set[int]:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    numbers = [
        topic.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=5, committed_metadata=""
        )
        for number in range(partitions)
    ]
    for name in names:
        request = OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic(name=_TOPIC, partitions=numbers)],
        )
        connection.send(frame(request, _COMMIT_VERSION, "bench"))
    errors: set[int] = set()
    answered = 0
    while answered < len(names):
        for answer in connection.receive():
            response = OffsetCommitResponse.decode(answer, version=_COMMIT_VERSION, header=True)
            errors |= {each.error_code for told in response.topics for each in told.partitions}
            answered += 1
    return errors
