"""A coordinator of some offsets partitions ignores groups of other partitions."""

from __future__ import annotations

import json

import msgspec

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchResult, BatchSettings
from group_coordinator.coordinator.group.control import UNLOAD_EVENT, WAKE_EVENT, remember_event
from group_coordinator.coordinator.group.dedup import digest_bytes
from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.coordinator.group.partition import partition_for
from tests.context import GROUP_ID, KAFKA_TEST_SETTINGS

CONFIG = parse_config(KAFKA_TEST_SETTINGS)
MINE = partition_for(GROUP_ID, CONFIG.offsets_topic_num_partitions)


def machine(claims: dict[int, int]) -> BatchMachine:
    return BatchMachine(BatchSettings(config=CONFIG, claims=claims))


def commit(request_id: str, offset: int, group_id: str = GROUP_ID) -> str:
    topic = {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}
    body = {"generation_id": -1, "member_id": "", "topics": [topic]}
    return json.dumps(
        {"request_id": request_id, "group_id": group_id, "api": "offset_commit"}
        | {"offset_commit": body}
    )


def committed(result: BatchResult) -> int:
    group = decode(result.state).group
    assert group is not None
    return group.offsets["t"][0].offset


def test_a_request_of_another_s_partition_is_left_alone():
    theirs = machine({MINE + 1: 0})
    assert theirs.process(GROUP_ID, None, [commit("r", 1)], 10) == BatchResult(None, None, None)


def test_exactly_one_coordinator_rejects_an_event_that_names_no_group():
    assert machine({0: 0}).process(None, None, ["{}"], 10).output is not None
    assert machine({1: 0}).process(None, None, ["{}"], 10).output is None


def test_what_was_kept_from_before_the_claim_is_void():
    before = machine({MINE: 4}).process(GROUP_ID, None, [commit("r", 1)], 5).state
    fetch = {"request_id": "f", "group_id": GROUP_ID, "api": "offset_fetch", "offset_fetch": {}}
    for claim, topics in ((4, 1), (7, 0)):
        # Whatever the clocks say: the batch is before the one that was decided under the old claim.
        result = machine({MINE: claim}).process(GROUP_ID, before, [json.dumps(fetch)], 3)
        assert result.output is not None
        body = result.output.responses[0].offset_fetch
        assert body is not None and len(body.topics) == topics


def test_what_was_answered_before_the_claim_is_not_decided_again():
    told = remember_event(digest_bytes("r") + digest_bytes("another"))
    began = machine({MINE: 4}).process(GROUP_ID, None, [told, commit("r", 1)], 5)
    assert began.output is None
    again = machine({MINE: 4}).process(GROUP_ID, began.state, [commit("r", 1)], 60_004)
    assert again.output is None, "nor in a later batch of the window"
    after = machine({MINE: 4}).process(GROUP_ID, began.state, [commit("r", 1)], 60_005)
    assert committed(after) == 1


def test_what_was_answered_is_learnt_beside_the_group_itself():
    before = machine({MINE: 3}).process(GROUP_ID, None, [commit("r", 7)], 5)
    assert before.output is not None
    (record,) = [r for r in before.output.records if r.offset_commit is not None]
    load = '{"control":"load","records":[' + msgspec.json.encode(record).decode() + "]}"
    for controls in ([load, remember_event(digest_bytes("r"))], sorted([WAKE_EVENT, load])):
        result = machine({MINE: 4}).process(GROUP_ID, None, controls, 5)
        assert committed(result) == 7


def parked_join() -> str:
    protocol = {"name": "range", "metadata": ""}
    body = {
        "session_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    event = {"request_id": "j", "group_id": GROUP_ID, "api": "join_group", "api_version": 3}
    return json.dumps(event | {"join_group": body})


def parked(claim: int) -> tuple[BatchSettings, bytes]:
    """Return a group with a parked request, under a claim."""
    slow = msgspec.structs.replace(CONFIG, group_initial_rebalance_delay_ms=3_000)
    settings = BatchSettings(config=slow, claims={MINE: claim})
    result = BatchMachine(settings).process(GROUP_ID, None, [parked_join()], 5)
    assert result.output is None or not result.output.responses
    assert result.state is not None
    return settings, result.state


def test_whoever_waits_in_a_group_that_is_given_up_is_told_so():
    settings, state = parked(4)
    giving_up = msgspec.structs.replace(settings, claims={}, unloading={MINE: 4})
    result = BatchMachine(giving_up).process(GROUP_ID, state, [UNLOAD_EVENT], 9)
    assert result.output is not None
    (answer,) = result.output.responses
    assert (answer.request_id, answer.error) == ("j", "NOT_COORDINATOR")
    assert [event.event for event in result.output.events][-1] == "unloaded"


def test_of_a_group_that_is_another_s_nothing_is_said():
    """Its new coordinator may have answered the parked requests."""
    settings, state = parked(4)
    for unloading, events in (({}, [UNLOAD_EVENT]), ({MINE: 9}, [UNLOAD_EVENT]), ({MINE: 4}, [])):
        other = msgspec.structs.replace(settings, claims={}, unloading=unloading)
        silence = BatchResult(None, None, None)
        assert BatchMachine(other).process(GROUP_ID, state, events, 9) == silence


def test_an_event_that_only_wakes_the_stream_changes_nothing():
    mine = machine({MINE: 0})
    assert mine.process(GROUP_ID, None, [WAKE_EVENT], 5) == BatchResult(None, None, None)
    state = mine.process(GROUP_ID, None, [commit("r", 1)], 5).state
    result = mine.process(GROUP_ID, state, [WAKE_EVENT], 6)
    assert committed(result) == 1
    assert result.output is None
