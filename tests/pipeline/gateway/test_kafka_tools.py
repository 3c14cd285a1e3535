"""What Kafka's own command line tools print about a real broker.

It was recorded by `kafka_tools.record`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.pipeline.gateway.kafka_tools.brokers import real
from tests.pipeline.gateway.kafka_tools.recording import RECORDED, Told, read
from tests.pipeline.gateway.kafka_tools.running import Tools, needs_kafka, tools
from tests.pipeline.gateway.kafka_tools.story import STORIES, Teller

pytestmark = [needs_kafka, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def jvm(libs: Path) -> Iterator[Tools]:
    with tools(libs) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(libs: Path) -> Iterator[str]:
    """A real broker's address."""
    with real(libs) as address:
        yield address


def told(jvm: Tools, address: str, folder: Path, story: str) -> list[Told]:
    """A story, told to a broker."""
    teller = Teller(jvm, address, folder)
    STORIES[story](teller)
    return teller.told


def differences(expected: Sequence[Told], found: Sequence[Told]) -> list[str]:
    """What was printed otherwise; the order of groups and of members is that of a hash map."""
    return [
        f"=== {want.question}\n--- Kafka\n{text(want)}\n--- found\n{text(got)}"
        for want, got in zip(expected, found, strict=True)
        if sorted(text(want).splitlines()) != sorted(text(got).splitlines())
    ]


def text(told: Told) -> str:
    return f"{told.printed.out}{told.printed.err}status {told.printed.status}"


@pytest.mark.parametrize("story", STORIES)
def test_kafka_prints_what_was_recorded(jvm: Tools, kafka: str, tmp_path: Path, story: str) -> None:
    expected = read(RECORDED / f"{story}.jsonl")
    differ = differences(expected, told(jvm, kafka, tmp_path, story))
    assert not differ, "\n".join([f"{len(differ)} of {len(expected)} differ", *differ])
