"""Reading the topics of a consumer's metadata."""

from __future__ import annotations

import pytest

from group_coordinator.coordinator.group.classic_group import subscribed_topics
from tests.context import subscription


def test_the_topics_of_all_members_are_one_sorted_list() -> None:
    blobs = [subscription("foo", "bar"), subscription("bar", "baz"), subscription()]
    assert subscribed_topics(blobs) == ["bar", "baz", "foo"]


def test_nobody_subscribes_to_nothing() -> None:
    assert subscribed_topics([]) == []


@pytest.mark.parametrize(
    "blob",
    [
        # version 1, the topic t4, null user data, no owned partitions: of a real client
        pytest.param(
            b"\x00\x01\x00\x00\x00\x01\x00\x02t4\xff\xff\xff\xff\x00\x00\x00\x00", id="v1"
        ),
        # version 0 ends with the user data
        pytest.param(b"\x00\x00\x00\x00\x00\x01\x00\x02t4\xff\xff\xff\xff", id="v0"),
        pytest.param(subscription("t4", user_data=b"a sticky assignment"), id="user-data"),
        pytest.param(subscription("t4", version=3) + b"generation and rack", id="v3"),
        pytest.param(subscription("t4", version=999) + b"whatever comes", id="from-the-future"),
        # Kafka ignores the version, and reads only the fields of version 0
        pytest.param(subscription("t4", version=-1), id="negative-version"),
    ],
)
def test_every_version_begins_with_what_version_0_has(blob: bytes) -> None:
    assert subscribed_topics([blob]) == ["t4"]


def test_names_are_utf_8_and_what_is_not_is_replaced() -> None:
    assert subscribed_topics([subscription("größe")]) == ["größe"]
    broken = b"\x00\x00\x00\x00\x00\x01\x00\x02\xffx\xff\xff\xff\xff"
    assert subscribed_topics([broken]) == ["\ufffdx"]


@pytest.mark.parametrize(
    "blob",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00", id="half-a-version"),
        pytest.param(b"\xff\xff", id="a-version-alone"),
        pytest.param(b"\x00\x00\x00\x00\x00", id="half-a-count"),
        pytest.param(b"\x00\x00\xff\xff\xff\xff", id="no-list"),
        pytest.param(b"\x00\x00\x00\x00\x00\x02\x00\x02t4\xff\xff\xff\xff", id="one-topic-too-few"),
        pytest.param(b"\x00\x00\x7f\xff\xff\xff\x00\x02t4", id="an-absurd-count"),
        pytest.param(b"\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff", id="a-null-name"),
        pytest.param(b"\x00\x00\x00\x00\x00\x01\x00\x09t4", id="a-name-past-the-end"),
        pytest.param(b"\x00\x00\x00\x00\x00\x01\x00\x02t4", id="no-user-data"),
        pytest.param(b"\x00\x00\x00\x00\x00\x01\x00\x02t4\x00\x00\x00\x05ab", id="user-data-cut"),
    ],
)
def test_one_that_cannot_be_read_makes_the_whole_unknown(blob: bytes) -> None:
    assert subscribed_topics([blob]) is None
    assert subscribed_topics([subscription("foo"), blob]) is None
