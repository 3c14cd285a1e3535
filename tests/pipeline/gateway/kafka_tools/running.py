"""Kafka's own clients and tools, from the jars of its release, as processes.

`GROUP_COORDINATOR_KAFKA_LIBS` names the folder of the jars; an empty one is filled.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ends import check_runs
from tests.pipeline.gateway.kafka_tools.recording import Printed
from tests.support.kafka_libs import java, kafka_libs

_VARIABLE = "GROUP_COORDINATOR_KAFKA_LIBS"
# The class that each script in Kafka's `bin` starts.
SCRIPTS = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
_FOLDER = Path(__file__).parent
_JVM = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
    *("-Duser.timezone=UTC", "-Duser.language=en"),
    f"-Dlog4j2.configurationFile={_FOLDER / 'log4j2.properties'}",
]


def jars() -> Path:
    """The folder of Kafka's jars, which are fetched if it is empty; fails a test without it."""
    if _VARIABLE not in os.environ:
        pytest.fail(f"needs Kafka's jars: {_VARIABLE} must name a folder for them", pytrace=False)
    return kafka_libs(Path(os.environ[_VARIABLE]), print)


def command(libs: Path, script: str, *arguments: str) -> list[str]:
    """The command that a script of Kafka's `bin` runs."""
    return [java(), *_JVM, "-cp", f"{libs}/*", SCRIPTS[script], *arguments]


def environment() -> dict[str, str]:
    """This process's, without what it has for the JVMs of Spark."""
    return {key: value for key, value in os.environ.items() if key != "JDK_JAVA_OPTIONS"}


@contextmanager
def process(libs: Path, script: str, *arguments: str, **streams: Any) -> Iterator[Any]:
    """A script of Kafka's `bin` as a process, killed when the block ends if it is still there."""
    with subprocess.Popen(
        command(libs, script, *arguments), env=environment(), **streams
    ) as running:
        try:
            yield running
        finally:
            running.kill()


class Tools:
    """Runs tools one after the other in one JVM; see Tools.java."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, script: str, *arguments: str, reads: str = "") -> Printed:
        """Run a script of Kafka's `bin` with arguments, and with what it is to read."""
        sending, receiving = self._process.stdin, self._process.stdout
        assert sending is not None
        assert receiving is not None
        asked = [SCRIPTS[script], reads.replace("\n", "\x1f"), *arguments]
        sending.write("\t".join(asked).encode() + b"\n")
        sending.flush()
        told = receiving.readline().split()
        if not told:
            check_runs(self._process.wait(10))
        status, out, err = (int(each) for each in told)
        return Printed(status, receiving.read(out).decode(), receiving.read(err).decode())


@contextmanager
def tools(libs: Path) -> Iterator[Tools]:
    """A JVM that runs tools while the block runs."""
    with subprocess.Popen(
        [java(), *_JVM, "-cp", f"{libs}/*", str(_FOLDER / "Tools.java")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        try:
            yield Tools(process)
        finally:
            process.kill()
