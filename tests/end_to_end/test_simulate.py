"""The simulator does exactly what section 4 of the contract says."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.coordinator import HANDLERS
from group_coordinator.coordinator.group.partition import partition_for
from group_coordinator.pipeline.replay.simulator import Simulator, simulate
from tests.ends import check_end


def run(*entries: Any, **settings: Any) -> list[dict[str, Any]]:
    """Run the entries (objects, or raw text), and return all output lines."""
    text = "\n".join(e if isinstance(e, str) else json.dumps(e) for e in entries)
    out = io.BytesIO()
    config = parse_config({"group.initial.rebalance.delay.ms": 0, **settings})
    simulate(io.BytesIO(text.encode()), out, config)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def request(request_id: str, api: str, body: Any = None, **fields: Any) -> dict[str, Any]:
    return {"request_id": request_id, "group_id": "g", "api": api, api: body or {}, **fields}


def join(request_id: str, member_id: str = "", **fields: Any) -> dict[str, Any]:
    body = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
    }
    return request(request_id, "join_group", body, **{"api_version": 3, **fields})


def responses(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output["response"] for output in outputs if "response" in output]


def records(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output["record"] for output in outputs if "record" in output]


def test_every_line_gets_its_outputs_and_then_its_ack() -> None:
    outputs = run(join("r1"), {"advance_to_ms": 5}, request("r2", "describe_groups"))
    kinds = [next(key for key in output if key != "at_ms") for output in outputs]
    assert kinds == ["record", "response", "ack", "ack", "response", "ack"]
    assert [output["ack"] for output in outputs if "ack" in output] == [1, 2, 3]


def test_the_clock_starts_at_zero_and_stands_still_without_at_ms() -> None:
    outputs = run(join("r1"), join("r2", at_ms=40), request("r3", "describe_groups"))
    assert next(output["at_ms"] for output in outputs if "at_ms" in output) == 0
    assert outputs[-2]["at_ms"] == 40


def test_timers_fire_at_exactly_their_own_deadlines_and_in_order() -> None:
    outputs = run(join("a"), {"advance_to_ms": 60_000})
    member = responses(outputs)[0]["join_group"]["member_id"]
    emptied = [(o["at_ms"], o["record"]["reason"]) for o in outputs if "record" in o][-1]
    assert emptied == (
        10_000,
        f"group emptied: member {member}: session of 10000 ms expired without a heartbeat",
    )


def test_a_time_before_the_present_is_a_bad_line() -> None:
    outputs = run({"advance_to_ms": 10}, {"advance_to_ms": 9}, join("r1", at_ms=3))
    assert [output["error"] for output in outputs if "error" in output] == [
        "line 2: time 9 ms is before the present, 10 ms",
        "line 3: time 3 ms is before the present, 10 ms",
    ]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "line 1: "),
        ("[]", "a JSON object"),
        ('{"what": 1}', "neither a request nor a control: what"),
        ('{"advance_to_ms": "soon"}', "advance_to_ms"),
        ('{"advance_to_ms": -1}', "advance_to_ms"),
        ('{"load": 3}', "load"),
        ('{"load": [{"record_type": "offset_commit"}]}', "group_id"),
        ('{"unload": 3}', "unload"),
        ('{"partition": 50, "status": "owned"}', "0 to 49"),
        ('{"partition": 1, "status": "mine"}', "owned, loading, not_owned"),
        ('{"config": {"group.max.sise": 3}}', "did you mean 'group.max.size'"),
        ('{"config": {"group.max.size": 0}}', "group.max.size"),
        ('{"request": 3}', "request"),
        ('{"api": "heartbeat"}', "no request_id"),
        ('{"request_id": "x", "api": "heartbeat"}', "no group_id"),
    ],
)
def test_a_bad_line_is_named_and_the_run_goes_on(line: str, word: str) -> None:
    outputs = run(line, request("r1", "describe_groups"))
    assert outputs[0]["error"].startswith("line 1: ")
    assert word in outputs[0]["error"]
    assert outputs[1] == {"ack": 1}
    assert responses(outputs)[0]["error"] == "GROUP_ID_NOT_FOUND"


def test_a_malformed_request_is_answered_with_what_was_wrong() -> None:
    outputs = run(
        {"request_id": "r1", "group_id": "g", "api": "heartbeat"},
        request("r2", "heartbeat", {"member_id": "m"}),
    )
    assert [(r["error_code"], r["error"]) for r in responses(outputs)] == [
        (42, "INVALID_REQUEST"),
        (42, "INVALID_REQUEST"),
    ]
    assert "no heartbeat body" in responses(outputs)[0]["error_message"]
    assert "generation_id" in responses(outputs)[1]["error_message"]


def test_lines_of_a_trace_that_ask_nothing_only_get_their_ack() -> None:
    trace = [{"trace": "t"}, {"at_ms": 1, "response": {}}, {"at_ms": 2, "note": {}}]
    assert run(*trace) == [{"ack": 1}, {"ack": 2}, {"ack": 3}]


def test_a_trace_s_request_is_taken_with_its_time() -> None:
    outputs = run({"at_ms": 7, "request": join("r1")})
    assert {output["at_ms"] for output in outputs if "at_ms" in output} == {7}


def test_a_request_id_is_answered_once() -> None:
    commit = {"topics": [{"name": "t", "partitions": [_offset(1)]}], "generation_id": -1}
    outputs = run(request("r1", "offset_commit", commit), request("r1", "offset_commit", commit))
    assert len(responses(outputs)) == len(records(outputs)) == 1


def _offset(offset: int) -> dict[str, Any]:
    return {"partition_index": 0, "committed_offset": offset}


def test_the_initial_delay_is_zero_unless_set() -> None:
    assert responses(run(join("r1")))[0]["error_code"] == 0
    delayed = run({"config": {"group.initial.rebalance.delay.ms": 3000}}, join("r1"))
    assert responses(delayed) == []


def test_settings_go_before_the_first_request() -> None:
    outputs = run(join("r1"), {"config": {"group.max.size": 3}})
    assert "before the first request" in outputs[-2]["error"]


def test_what_is_parked_at_the_end_stays_unanswered() -> None:
    outputs = run(join("a"), join("b"))
    assert [r["request_id"] for r in responses(outputs)] == ["a"]


def test_a_partition_that_loads_or_is_not_owned() -> None:
    partition = partition_for("g", 50)
    outputs = run(
        {"partition": partition, "status": "loading"},
        join("r1"),
        {"partition": partition, "status": "not_owned"},
        join("r2"),
        request("r3", "find_coordinator", {"key_type": 0}),
        {"partition": partition, "status": "owned"},
        join("r4"),
        request("r5", "find_coordinator", {"key_type": 0}),
    )
    errors = [(r["request_id"], r["error"]) for r in responses(outputs)]
    assert errors == [
        ("r1", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("r2", "NOT_COORDINATOR"),
        ("r3", "COORDINATOR_NOT_AVAILABLE"),
        ("r4", "NONE"),
        ("r5", "NONE"),
    ]
    assert responses(outputs)[-1]["find_coordinator"]["partition"] == partition


def test_a_group_unloaded_and_loaded_again_is_what_it_was() -> None:
    first = run(join("r1"))
    member = responses(first)[0]["join_group"]["member_id"]
    sync = {"generation_id": 1, "member_id": member, "assignments": []}
    outputs = run(join("r1"), request("r2", "sync_group", sync, api_version=3))
    stored = records(outputs)
    assert stored[-1]["reason"] == "leader synced"
    loaded = run(
        {"load": stored},
        request("r3", "heartbeat", {"generation_id": 1, "member_id": member}),
        request("r4", "describe_groups"),
        {"unload": "g"},
        request("r5", "describe_groups", api_version=5),
    )
    beat, described, gone = responses(loaded)
    assert beat["error_code"] == 0
    assert described["describe_groups"]["state"] == "Stable"
    assert gone["describe_groups"]["state"] == "Dead"


def test_unloading_answers_who_waits() -> None:
    outputs = run(join("a"), join("b"), {"unload": "g"})
    assert [(r["request_id"], r["error"]) for r in responses(outputs)] == [
        ("a", "NONE"),
        ("b", "NOT_COORDINATOR"),
    ]


def test_loading_passes_over_tombstones_of_unknown_types() -> None:
    unknown = {"record_type": "share_group", "group_id": "g", "log_offset": 1}
    offset = {
        "record_type": "offset_commit",
        "group_id": "g",
        "topic": "t",
        "topic_partition": 0,
        "log_offset": 2,
        "offset_commit": {
            "offset": 5,
            "leader_epoch": -1,
            "metadata": "",
            "commit_timestamp": 0,
            "expire_timestamp": -1,
        },
    }
    outputs = run({"load": [offset, unknown]}, request("r1", "offset_fetch", {"topics": None}))
    (topic,) = responses(outputs)[0]["offset_fetch"]["topics"]
    assert topic["partitions"][0]["committed_offset"] == 5


def test_cleanup_expires_at_the_present_time_and_only_then() -> None:
    commit = {"topics": [{"name": "t", "partitions": [_offset(1)]}], "generation_id": -1}
    week = 7 * 24 * 3_600_000
    outputs = run(
        request("r1", "offset_commit", commit),
        {"advance_to_ms": week - 1},
        {"cleanup": True},
        {"advance_to_ms": week},
        {"cleanup": True},
    )
    tombstones = [o for o in outputs if "record" in o and o["record"]["offset_commit"] is None]
    assert [(o["at_ms"], o["record"]["reason"]) for o in tombstones] == [(week, "offsets expired")]


def test_log_offsets_rise_within_a_partition() -> None:
    commit = {"topics": [{"name": "t", "partitions": [_offset(1)]}], "generation_id": -1}
    outputs = run(*(request(f"r{n}", "offset_commit", commit) for n in range(3)))
    assert [record["log_offset"] for record in records(outputs)] == [0, 1, 2]


def test_a_handler_s_bug_costs_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(HANDLERS, "heartbeat", broken)
    simulator = Simulator(parse_config({"group.initial.rebalance.delay.ms": 0}))
    feed = [join("r1"), request("r2", "heartbeat", {"generation_id": 1, "member_id": "m"})]
    outputs = [o for entry in feed for o in simulator.feed(json.dumps(entry).encode())]
    assert [o["response"].error for o in outputs if "response" in o] == [
        "NONE",
        "UNKNOWN_SERVER_ERROR",
    ]


def test_a_driver_holds_a_conversation_over_a_pipe(tmp_path: Path) -> None:
    """Each line is answered before the next one is written: no buffer holds it back."""
    config = tmp_path / "c.toml"
    config.write_text('[group]\n"group.initial.rebalance.delay.ms" = 5\n')
    command = [sys.executable, "-m", "group_coordinator", "simulate", "--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = []
        for entry in (join("r1"), {"advance_to_ms": 5}):
            process.stdin.write(json.dumps(entry).encode() + b"\n")
            process.stdin.flush()
            while "ack" not in (output := json.loads(process.stdout.readline())):
                said.append(output)
        process.stdin.close()
        check_end(process.wait(30))
    assert [(o["at_ms"], o["response"]["error"]) for o in said if "response" in o] == [(5, "NONE")]


def test_a_file_is_read_as_standard_input_is(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.jsonl"
    scenario.write_text(json.dumps(join("r1")) + "\n")
    command = [sys.executable, "-m", "group_coordinator", "simulate", str(scenario)]
    out = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert json.loads(out.splitlines()[-1]) == {"ack": 1}
