"""Control events: a group is loaded from its records, or unloaded, before its requests."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchResult, BatchSettings
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.schemas.records import CoordinatorRecord
from tests.context import GROUP_ID, KAFKA_TEST_SETTINGS, Context

MACHINE = BatchMachine(BatchSettings(config=parse_config(KAFKA_TEST_SETTINGS)))


def load(*records: Any) -> str:
    rows = b",".join(
        record.encode() if isinstance(record, str) else msgspec.json.encode(record)
        for record in records
    )
    return f'{{"control":"load","records":[{rows.decode()}]}}'


UNLOAD = '{"control":"unload"}'


def heartbeat(request_id: str, member_id: str, generation: int) -> str:
    body = {"generation_id": generation, "member_id": member_id}
    event = {"request_id": request_id, "group_id": GROUP_ID, "api": "heartbeat", "heartbeat": body}
    return json.dumps(event)


def process(state: bytes | None, now: int, *events: str) -> BatchResult:
    return MACHINE.process(GROUP_ID, state, list(events), now)


def answers(result: BatchResult) -> dict[str, str]:
    assert result.output is not None
    return {response.request_id: response.error for response in result.output.responses}


def test_a_group_is_loaded_before_the_requests_of_its_batch() -> None:
    ctx = Context()
    leader, _ = ctx.stable_pair()
    result = process(None, 1_000, load(*ctx.log), heartbeat("r1", leader.member_id, 1))
    assert answers(result) == {"r1": "NONE"}
    assert result.deadline == 1_500, "a fresh session for everybody, from the load on"


def test_what_was_committed_is_there_again() -> None:
    ctx = Context()
    ctx.commit({("t", 0): 5})
    fetch = {"request_id": "f", "group_id": GROUP_ID, "api": "offset_fetch", "offset_fetch": {}}
    result = process(None, 0, load(*ctx.log), json.dumps(fetch))
    assert result.output is not None
    (topic,) = result.output.responses[0].offset_fetch.topics  # type: ignore[union-attr]
    assert topic.partitions[0].committed_offset == 5


def test_rows_that_cannot_be_read_are_counted_and_named_and_stop_nothing() -> None:
    ctx = Context()
    ctx.commit({("t", 0): 5})
    corrupt = '{"partition":"zero"}'
    result = process(None, 0, load("7", *ctx.log, corrupt))
    assert result.output is not None
    reasons = [event.reason for event in result.output.events]
    assert reasons == [
        "Empty with 0 members from the offsets topic",
        "2 rows of the offsets topic were skipped; the first: Expected `object`, got `int`",
    ]
    assert result.state is not None


def test_a_group_given_up_is_forgotten_and_who_waits_is_told() -> None:
    join = {
        "session_timeout_ms": 500,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
    }
    event = {"request_id": "j", "group_id": GROUP_ID, "api": "join_group", "api_version": 3}
    parked = process(None, 0, json.dumps({**event, "join_group": join}))
    given_up = process(parked.state, 10, UNLOAD)
    assert answers(given_up) == {"j": "NOT_COORDINATOR"}
    assert given_up.output is not None
    assert given_up.output.events[-1].event == "unloaded"
    later = process(given_up.state, 20, heartbeat("h", "anybody", 1))
    assert answers(later) == {"h": "UNKNOWN_MEMBER_ID"}


def test_a_group_that_is_loaded_over_answers_who_waited_first() -> None:
    ctx = Context()
    leader, follower = ctx.stable_pair()
    loaded = process(None, 0, load(*ctx.log))
    join = {
        "session_timeout_ms": 500,
        "member_id": leader.member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
    }
    event = {"request_id": "j", "group_id": GROUP_ID, "api": "join_group", "api_version": 3}
    parked = process(loaded.state, 10, json.dumps({**event, "join_group": join}))
    assert parked.output is not None
    assert not parked.output.responses
    again = process(parked.state, 20, load(*ctx.log), heartbeat("h", follower.member_id, 1))
    assert answers(again) == {"j": "NOT_COORDINATOR", "h": "NONE"}


def test_a_group_of_an_unknown_kind_is_refused_in_every_later_batch_until_it_is_loaded_anew() -> (
    None
):
    ctx = Context()
    ctx.commit({("t", 0): 5})
    unknown = CoordinatorRecord(0, "share_group", GROUP_ID, 0, 9, value=b"")
    loaded = process(None, 0, load(*ctx.log, unknown))
    assert loaded.deadline is None, "nothing of it expires"
    later = process(loaded.state, 10**12, heartbeat("h", "m", 1))
    assert answers(later) == {"h": "UNKNOWN_MEMBER_ID"}
    assert later.output is not None
    assert "share_group" in str(later.output.responses[0].error_message)
    assert later.output.records == []
    given_up = process(later.state, 10**12, UNLOAD)
    assert given_up.output is not None
    assert given_up.output.records == []
    fetch = {"request_id": "f", "group_id": GROUP_ID, "api": "offset_fetch", "offset_fetch": {}}
    again = process(given_up.state, 10**12, load(*ctx.log), json.dumps(fetch))
    assert answers(again) == {"f": "NONE"}


def test_a_load_run_twice_gives_the_same_bytes() -> None:
    ctx = Context()
    ctx.stable_pair()
    assert process(None, 7, load(*ctx.log)) == process(None, 7, load(*ctx.log))
