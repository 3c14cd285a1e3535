"""Kafka's own jars, for the benches that run a broker beside the coordinator.

The jars are no part of this project. They are fetched only into a folder that the user names, by
the Ivy that comes with Spark, from the repositories that Spark fetches Delta's jars from.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyspark

from pipeline.errors import Failure
from pipeline.host import find_java

VERSION = "4.1.0"
# kafka_2.13 has the broker and the tool that formats its storage, and names their dependencies.
_MODULE = ("org.apache.kafka", "kafka_2.13", VERSION)
BROKER_JAR = f"kafka_2.13-{VERSION}.jar"
ADVICE = (
    f"no Kafka {VERSION} beside it: name a folder with its jars by --kafka-libs; "
    "an empty folder is filled"
)


class KafkaMissing(Failure):
    """Kafka's jars, or Java, are missing and cannot be fetched; the message says what was tried."""


def java() -> str:
    """The path of the Java that Spark would start. Raises KafkaMissing."""
    found = find_java()
    if found is None:
        raise KafkaMissing("Kafka needs Java 17 or newer: install a JDK and set JAVA_HOME to it")
    return found


def kafka_libs(folder: Path, say: Callable[[str], None]) -> Path:
    """Return the folder, after Kafka's jars are fetched into it unless the broker's is there.

    Raises KafkaMissing if they cannot be fetched.
    """
    if (folder / BROKER_JAR).is_file():
        return folder
    say(f"fetching Kafka {VERSION} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise KafkaMissing(f"this PySpark comes without Ivy: put Kafka's jars into {folder}")
    command = [
        *(java(), "-jar", str(ivy), "-warn", "-cache", str(folder / "ivy")),
        *("-dependency", *_MODULE, "-confs", "default"),
        *("-retrieve", str(folder / "[artifact]-[revision].[ext]")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (folder / BROKER_JAR).is_file():
        last = "; ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        raise KafkaMissing(f"Kafka {VERSION} could not be fetched into {folder}: {last}")
    shutil.rmtree(folder / "ivy")
    return folder
