"""If requests are signed, an id belongs to its signer: no other row replaces the request."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.coordinator.group.control import remember_event
from group_coordinator.coordinator.group.dedup import digest, digest_bytes
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.signatures import ANYBODY, RequestKey, Signatures, signed
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import RequestEvent
from tests.coordinator.test_batch import GROUP_ID, Stream, codes, commit, committed, join, sync

GATEWAY = RequestKey("g", ANYBODY, b"g" * 32)
BOB = RequestKey("b", "User:bob", b"b" * 32)
WINDOW_MS = 1_000
UNBELIEVED = int(ErrorCode.SASL_AUTHENTICATION_FAILED)


class Signed(Stream):
    """A group's stream at a coordinator that has keys."""

    def __init__(self, settings: dict[str, Any] | None = None, **fields: Any) -> None:
        keys = Signatures([GATEWAY, BOB]).fingerprints
        super().__init__(settings, keys=keys, dedup_window_ms=WINDOW_MS, **fields)

    def batch(self, now: int, *events: str) -> GroupOutput:
        machine = BatchMachine(self.settings, [GATEWAY, BOB])
        result = machine.process(GROUP_ID, self.state, list(events), now)
        self.state = result.state
        return result.output or GroupOutput([], [], [], [])


def by(key: RequestKey, text: str, principal: str | None = "User:alice", **fields: Any) -> str:
    """Return a signed row."""
    event = msgspec.json.decode(text, type=RequestEvent)
    event = signed(replace(event, principal=principal, **fields), key)
    return msgspec.json.encode(event).decode()


def unsigned(text: str) -> str:
    return text


def badly_signed(text: str) -> str:
    row = json.loads(by(GATEWAY, text))
    row["signature"] = row["signature"][:-1] + "x"
    return json.dumps(row)


def of_bob(text: str) -> str:
    return by(BOB, text, principal=None)


OTHERS = [unsigned, badly_signed, of_bob]


@pytest.mark.parametrize("forged", OTHERS)
@pytest.mark.parametrize("now", [0, 1], ids=["in its batch", "before its batch"])
def test_a_guessed_id_displaces_no_signed_request(forged: Any, now: int) -> None:
    """Otherwise the signed commit is not decided, and its member gets the other response."""
    stream = Signed()
    rows = [forged(commit("r", 1)), by(GATEWAY, commit("r", 5))]
    answers = [
        each for at, row in enumerate(rows) for each in stream.batch(at * now, row).responses
    ]
    assert len(answers) == 2
    assert committed(stream.group) == 5


def test_nor_within_one_batch() -> None:
    stream = Signed()
    output = stream.batch(0, badly_signed(commit("r", 1)), by(GATEWAY, commit("r", 5)))
    assert len(output.responses) == 2
    assert committed(stream.group) == 5


@pytest.mark.parametrize("forged", [unsigned, badly_signed])
@pytest.mark.parametrize("together", [True, False])
def test_a_copied_id_is_not_answered(forged: Any, together: bool) -> None:
    """A client that waits for the response to the signed request would take this one."""
    stream = Signed()
    rows = [by(GATEWAY, commit("r", 5)), forged(commit("r", 1))]
    if together:
        assert codes(stream.batch(0, *rows)) == {"r": 0}
    else:
        assert codes(stream.batch(0, rows[0])) == {"r": 0}
        assert stream.batch(1, rows[1]) == GroupOutput([], [], [], [])
    assert committed(stream.group) == 5


def test_nor_is_that_of_a_request_that_is_parked_for_longer_than_the_window() -> None:
    stream = Signed()
    member = next(iter(stream.batch(0, by(GATEWAY, join("j"))).responses)).join_group
    assert member is not None
    stream.batch(1, by(GATEWAY, sync("s", member.member_id)))
    # The first member does not join again: the second one waits for it.
    assert stream.batch(2, by(GATEWAY, join("parked"))).responses == []
    stream.batch(2 * WINDOW_MS, by(GATEWAY, commit("later", 5)))
    refused = join("parked", session_timeout_ms=1)
    assert stream.batch(3 * WINDOW_MS, unsigned(refused)).responses == []
    (answer,) = stream.batch(3 * WINDOW_MS, unsigned(join("other", session_timeout_ms=1))).responses
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_copy_of_a_join_that_is_still_parked_is_not_answered() -> None:
    """The client would take REQUEST_TIMED_OUT for the response to its join, and join again."""
    stream = Signed()
    member = next(iter(stream.batch(0, by(GATEWAY, join("j"))).responses)).join_group
    assert member is not None
    stream.batch(1, by(GATEWAY, sync("s", member.member_id)))
    parked = by(GATEWAY, join("parked"), deadline=WINDOW_MS)
    assert stream.batch(2, parked).responses == []
    stream.batch(2 * WINDOW_MS, by(GATEWAY, commit("later", 5)))
    assert stream.batch(3 * WINDOW_MS, parked).responses == []


def test_a_signed_request_that_comes_again_is_known() -> None:
    stream = Signed()
    row = by(GATEWAY, commit("r", 5))
    assert codes(stream.batch(0, row, row)) == {"r": 0}
    stream.batch(1, by(GATEWAY, commit("s", 6)))
    assert stream.batch(2, row) == GroupOutput([], [], [], [])
    assert committed(stream.group) == 6
    assert stream.batch(3, unsigned(commit("u", 7)), unsigned(commit("u", 7))).responses != []
    assert stream.batch(4, unsigned(commit("u", 7))) == GroupOutput([], [], [], [])


@pytest.mark.parametrize("row", [by(GATEWAY, commit("r", 5)), unsigned(commit("r", 5))])
def test_what_was_answered_before_a_take_over_is_known(row: str) -> None:
    """`responses` has only ids, as have the states of earlier releases."""
    stream = Signed()
    remembered = remember_event(digest_bytes("r"))
    assert stream.batch(0, remembered, row) == GroupOutput([], [], [], [])


def test_without_keys_an_id_is_remembered_as_it_always_was() -> None:
    stream = Stream()
    stream.batch(0, commit("r", 5))
    assert stream.snapshot.window.holds_any((digest("r"),))
    assert stream.snapshot.recent.repeats([digest("r")]) == {digest("r")}


# --- the capacity of the window -------------------------------------------------------------------

ACL = AclBinding("GROUP", GROUP_ID, "LITERAL", "User:alice", "*", "READ", "ALLOW")
OF_TOPIC = AclBinding("TOPIC", "*", "LITERAL", "User:alice", "*", "READ", "ALLOW")


@pytest.mark.parametrize("forged", [unsigned, badly_signed])
def test_what_is_refused_takes_no_room_of_the_window(forged: Any) -> None:
    """Three such rows filled it, and all commits of the group were refused until it was over."""
    stream = Signed(dedup_max_ids=3, acls=(ACL, OF_TOPIC))
    answers = stream.batch(0, *(forged(commit(f"f{n}", 1)) for n in range(9))).responses
    assert len(answers) == 9
    assert codes(stream.batch(1, by(GATEWAY, commit("r", 5)))) == {"r": 0}
    assert committed(stream.group) == 5
    # Nor is it answered twice.
    assert stream.batch(2, forged(commit("f0", 1))) == GroupOutput([], [], [], [])


# --- a row that is written again ------------------------------------------------------------------


def test_a_signed_deadline_bounds_for_how_long_a_row_can_be_written_again() -> None:
    stream = Signed()
    row = by(GATEWAY, commit("r", 5), deadline=WINDOW_MS)
    assert codes(stream.batch(0, row)) == {"r": 0}
    stream.batch(1, by(GATEWAY, commit("s", 6)))
    # Before its deadline it is remembered; when it is forgotten, it is too late.
    assert stream.batch(WINDOW_MS - 1, row) == GroupOutput([], [], [], [])
    (late,) = stream.batch(2 * WINDOW_MS, row).responses
    assert late.offset_commit is not None
    (topic,) = late.offset_commit.topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.REQUEST_TIMED_OUT]
    assert committed(stream.group) == 6
