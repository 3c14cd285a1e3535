"""Kafka's own jars: its broker and command line tools, for benchmarks and comparing tests.

The jars do not belong to this project. They are fetched only into a folder that the user names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.session.java import find_java
from tests.support.ivy import JarsNotFetched, Module, fetch_jars

VERSION = "4.1.0"
# kafka_2.13 has the broker and the tool that formats its storage, kafka-tools the programs of the
# scripts in Kafka's `bin`. Each names its dependencies, except for the logging binding.
_KAFKA = "org.apache.kafka"
_MODULES = (
    Module(_KAFKA, "kafka_2.13", VERSION),
    Module(_KAFKA, "kafka-tools", VERSION),
    Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
ADVICE = (
    f"no Kafka {VERSION} beside it: name a folder with its jars by --kafka-libs; "
    "an empty folder is filled"
)


class KafkaMissing(Failure):
    """Error if Kafka's jars, or Java, are missing and cannot be fetched; it names the attempts."""


def java() -> str:
    """Return the path of the Java that Spark would start. Raises KafkaMissing."""
    found = find_java()
    if found is None:
        raise KafkaMissing("Kafka needs Java 17 or newer: install a JDK and set JAVA_HOME to it")
    return found


def kafka_libs(folder: Path, say: Callable[[str], None]) -> Path:
    """Return the folder, after fetching Kafka's jars into it if they are missing.

    Raises KafkaMissing if they cannot be fetched.
    """
    if any(not (folder / each.jar).is_file() for each in _MODULES):
        say(f"fetching Kafka {VERSION} into {folder}")
    try:
        fetch_jars(java(), _MODULES, folder)
    except JarsNotFetched as error:
        raise KafkaMissing(f"Kafka {VERSION} could not be fetched into {folder}: {error}") from None
    return folder
