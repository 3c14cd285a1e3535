"""Kafka's own command line tools print about a gateway what they print about a real broker.

What they print about a real broker was recorded by `kafka_tools.record`; where a gateway differs,
`kafka_tools.otherwise` says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipeline.gateway.kafka_tools.brokers import ours, real
from tests.pipeline.gateway.kafka_tools.otherwise import of_a_gateway
from tests.pipeline.gateway.kafka_tools.recording import RECORDED, Told, read
from tests.pipeline.gateway.kafka_tools.running import Tools, tools
from tests.pipeline.gateway.kafka_tools.story import SECURE_STORIES, STORIES, Teller

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def jvm(libs: Path) -> Iterator[Tools]:
    with tools(libs) as running:
        yield running


@pytest.fixture(scope="module", params=[False, True], ids=["open", "secure"])
def secure(request: pytest.FixtureRequest) -> bool:
    """Whether the broker serves users only, and each may what ACLs allow."""
    return bool(request.param)


@pytest.fixture(scope="module")
def address(
    secure: bool, empty_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A gateway's."""
    root = str(tmp_path_factory.mktemp("gateway"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    with ours(root, tmp_path_factory.mktemp("tables"), secure) as address:
        yield address


@pytest.fixture(scope="module")
def kafka(secure: bool, libs: Path) -> Iterator[str]:
    """A real broker's address."""
    with real(libs, secure) as address:
        yield address


def tell_all(
    jvm: Tools, address: str, secure: bool, folder: Path, of_broker: Callable[[Told], Told]
) -> None:
    """Tell a broker its stories; fails with what is printed otherwise than `of_broker` expects."""
    differ = []
    for name, story in (SECURE_STORIES if secure else STORIES).items():
        teller = Teller(jvm, address, folder)
        story(teller)
        expected = [of_broker(each) for each in read(RECORDED / f"{name}.jsonl")]
        for want, got in zip(expected, teller.told, strict=True):
            if lines(want) != lines(got):
                differ.append(
                    f"{want.question}\n--- expected\n{text(want)}\n--- found\n{text(got)}"
                )
    assert not differ, "\n=== ".join([f"{len(differ)} differ", *differ])


def lines(told: Told) -> list[str]:
    """What was printed; the order of groups, of members and of ACLs is that of a hash map.

    In front of the first ACL there is a blank.
    """
    return sorted(line.removeprefix(" ") for line in text(told).splitlines())


def text(told: Told) -> str:
    return f"{told.printed.out}{told.printed.err}status {told.printed.status}"


def test_a_gateway_is_told_of_as_kafka_is(
    jvm: Tools, address: str, secure: bool, tmp_path: Path
) -> None:
    tell_all(jvm, address, secure, tmp_path, of_a_gateway)


def test_kafka_is_told_of_as_was_recorded(
    jvm: Tools, kafka: str, secure: bool, tmp_path: Path
) -> None:
    tell_all(jvm, kafka, secure, tmp_path, lambda told: told)
