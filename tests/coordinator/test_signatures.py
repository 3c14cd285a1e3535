"""A principal is believed only with a signature, if a coordinator has keys."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.signatures import (
    ANYBODY,
    RequestKey,
    Signatures,
    signed,
    signed_content,
)
from group_coordinator.schemas import messages as m
from group_coordinator.schemas.errors import ErrorCode

ALICE = RequestKey("a", "User:alice", b"a" * 32)
BOB = RequestKey("b", "User:bob", b"b" * 32)
GATEWAY = RequestKey("g", ANYBODY, b"g" * 32)
KEYS = (ALICE, BOB, GATEWAY)
EVENT = m.RequestEvent(
    "r",
    "group",
    "offset_commit",
    client_host="/10.0.0.1",
    sent_at=7,
    offset_commit=m.OffsetCommitRequest(
        member_id="m", topics=(m.OffsetCommitTopic("t", (m.OffsetCommitPartition(0, 5),)),)
    ),
)


def problem(event: m.RequestEvent, *keys: RequestKey) -> str | None:
    return Signatures(keys or KEYS).verify(event).problem


def test_what_claims_nothing_needs_no_signature() -> None:
    assert problem(EVENT) is None
    assert problem(replace(EVENT, principal="User:ANONYMOUS")) is None


def test_a_claim_is_signed_by_a_key_of_its_own_or_of_a_gateway() -> None:
    assert signed(EVENT, ALICE).principal == "User:alice"
    assert problem(signed(EVENT, ALICE)) is None
    assert problem(signed(replace(EVENT, principal="User:eve"), GATEWAY)) is None
    assert "is not signed" in str(problem(replace(EVENT, principal="User:alice")))
    others = signed(replace(EVENT, principal="User:alice"), BOB)
    assert "not by a key of User:alice" in str(problem(others))
    assert "not by a key" in str(problem(signed(EVENT, ALICE), BOB))
    same_name = RequestKey("a", "User:alice", b"x" * 32)
    assert "is wrong" in str(problem(signed(EVENT, same_name)))


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":", "a:00", "nobody:00", "a:\u00e9", "a:" + "0" * 64]
)
def test_a_signature_that_is_none_is_wrong(text: str) -> None:
    assert problem(replace(EVENT, principal="User:alice", signature=text)) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"request_id": "s"},
        {"group_id": "other"},
        {"api_version": 3},
        {"client_host": "/10.0.0.2"},
        {"client_id": "c"},
        {"principal": "User:bob"},
        {"deadline": 9},
        {"offset_commit": replace(EVENT.offset_commit, member_id="n")},  # type: ignore[type-var]
    ],
)
def test_nothing_of_a_signed_request_can_be_changed(change: dict[str, Any]) -> None:
    assert problem(replace(signed(EVENT, ALICE), **change)) is not None


def test_the_producer_s_clock_is_not_signed() -> None:
    assert problem(replace(signed(EVENT, ALICE), sent_at=8)) is None


def test_what_is_signed_is_what_the_readme_says() -> None:
    assert signed_content(signed(EVENT, ALICE)) == (
        b'{"api":"offset_commit","client_host":"/10.0.0.1","group_id":"group","offset_commit":'
        b'{"member_id":"m","topics":[{"name":"t","partitions":[{"committed_offset":5,'
        b'"partition_index":0}]}]},"principal":"User:alice","request_id":"r"}'
    )


def ask(machine: BatchMachine, event: m.RequestEvent) -> m.Response:
    text = msgspec.json.encode(event).decode()
    output = machine.process("group", None, [text], 1_000).output
    assert output is not None
    (response,) = output.responses
    return response


def test_a_claim_that_is_not_believed_is_refused_with_its_reason() -> None:
    settings = BatchSettings(keys=Signatures(KEYS).fingerprints)
    # Workers unpickle the factory of the machine.
    machine = pickle.loads(pickle.dumps(partial(BatchMachine, settings, KEYS)))()
    assert ask(machine, signed(EVENT, ALICE)).error_code == 0
    assert ask(machine, EVENT).error_code == 0
    refused = ask(machine, replace(EVENT, principal="User:alice"))
    assert refused.error_message == "the request says that it is of User:alice and is not signed"
    assert refused.offset_commit is not None
    codes = [p.error_code for topic in refused.offset_commit.topics for p in topic.partitions]
    assert codes == [ErrorCode.SASL_AUTHENTICATION_FAILED]


def test_only_the_keys_that_a_batch_knows_count() -> None:
    settings = BatchSettings(keys=Signatures([ALICE]).fingerprints)
    machine = BatchMachine(settings, KEYS)
    assert ask(machine, signed(EVENT, ALICE)).error_code == 0
    assert ask(machine, signed(EVENT, BOB)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert ask(BatchMachine(BatchSettings(), KEYS), signed(EVENT, BOB)).error_code == 0
    other = RequestKey("a", "User:alice", b"x" * 32)
    refused = ask(BatchMachine(settings, [other]), signed(EVENT, other))
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_fingerprint_tells_keys_apart_and_no_secret() -> None:
    marks = {key.fingerprint for key in (*KEYS, RequestKey("a", "User:alice", b"x" * 32))}
    assert len(marks) == 4
    assert "aaaa" not in repr(ALICE)
    assert b"a" * 8 not in msgspec.json.encode(BatchSettings(keys=Signatures(KEYS).fingerprints))
