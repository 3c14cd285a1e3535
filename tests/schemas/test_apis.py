"""The table of APIs agrees with columns and handlers, and a new API needs only a row of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from random import Random
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pytest
from msgspec import Struct

from group_coordinator.coordinator.group import decision
from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.coordinator import HANDLERS
from group_coordinator.coordinator.group.decision import Decision
from group_coordinator.coordinator.group.dedup import MAX_RECENT
from group_coordinator.coordinator.group.group_snapshot import decode
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.pipeline.gateway.apis import APIS as SERVED
from group_coordinator.pipeline.stream.waiting import least_linger
from group_coordinator.schemas import decoding, messages
from group_coordinator.schemas.acls import AclBinding, AclOperation
from group_coordinator.schemas.apis import APIS, DECIDED, DecidedApi, LingerMultiple
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.kafka.schema import schema
from group_coordinator.schemas.messages import HeartbeatResponse

# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("column_of", ["request", "response"])
def test_each_decided_api_has_its_two_columns(column_of: str) -> None:
    row = messages.RequestEvent if column_of == "request" else messages.Response
    hints = get_type_hints(row)
    columns = {name: get_args(hints[name])[0] for name in hints if _is_body(hints[name])}
    assert columns == {name: getattr(api, column_of) for name, api in DECIDED.items()}
    assert list(columns) == list(DECIDED)


def _is_body(hint: Any) -> bool:
    return any(isinstance(each, type) and issubclass(each, Struct) for each in get_args(hint))


def test_each_decided_api_has_one_handler() -> None:
    # FindCoordinator is decided without a group.
    assert {*HANDLERS, "find_coordinator"} == set(DECIDED)
    assert "find_coordinator" not in HANDLERS


def test_keys_and_operations_are_kafka_s() -> None:
    assert len({api.key for api in APIS.values()}) == len(APIS)
    assert set(SERVED) == {api.key for api in APIS.values() if api.versions}
    assert {schema(api.request).api_key for api in SERVED.values()} == set(SERVED)
    assert {api.operation for api in DECIDED.values()} <= set(AclOperation.__members__)


# --- the columns ----------------------------------------------------------------------------------


def _turn_of(columns: list[str], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return `coordinator.group.decision`, imported when `responses` has these columns."""
    row = msgspec.defstruct("Response", [(name, Any, None) for name in columns], frozen=True)
    with monkeypatch.context() as patched:
        patched.setattr(messages, "Response", row)
        spec = importlib.util.spec_from_file_location(
            "decision_of_other_columns", decision.__file__
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def _orders() -> Iterator[list[str]]:
    now = list(messages.Response.__struct_fields__)
    for place in range(len(now) + 1):
        yield [*now[:place], "added", *now[place:]]
    for seed in range(10):
        yield Random(seed).sample(now, len(now))


@pytest.mark.parametrize("columns", list(_orders()))
def test_an_answer_stands_in_the_column_of_its_api(
    columns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _turn_of(columns, monkeypatch)
    for api in DECIDED:
        body = HeartbeatResponse()
        answer = module.make_response("r", "g", api, ErrorCode.NOT_COORDINATOR, 5, body, "why")
        said = {
            "request_id": "r",
            "group_id": "g",
            "api": api,
            "error_code": 16,
            "error": "NOT_COORDINATOR",
            "error_message": "why",
            "responded_at": 5,
            api: body,
        }
        assert msgspec.structs.asdict(answer) == dict.fromkeys(columns) | said


# --- one more API ---------------------------------------------------------------------------------


class CountMembersRequest(Struct, frozen=True):
    least: int


class CountMembersResponse(Struct, frozen=True):
    count: int = -1


class RequestEvent(messages.RequestEvent, frozen=True, omit_defaults=True, gc=False):
    count_members: CountMembersRequest | None = None


class Response(messages.Response, frozen=True, omit_defaults=True, gc=False):
    count_members: CountMembersResponse | None = None


ROW = DecidedApi(
    "count_members",
    9_999,
    newest=2,
    operation="ALTER",
    request=CountMembersRequest,
    response=CountMembersResponse,
    needs_group_id=True,
    linger=LingerMultiple.COMMITS,
)
COUNTED: list[str] = []


def count_members(
    decision: Decision, event: messages.RequestEvent, body: CountMembersRequest
) -> None:
    COUNTED.append(event.request_id)
    members = 0 if decision.group is None else len(decision.group.members)
    decision.answer(event, ErrorCode.NONE, CountMembersResponse(max(members, body.least)))


Register = Callable[[DecidedApi], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Return a function that adds an API: its Structs with columns, its handler and its row."""

    def add(row: DecidedApi) -> None:
        monkeypatch.setattr(decoding, "_decode_event", msgspec.json.Decoder(RequestEvent).decode)
        monkeypatch.setattr(decision, "Response", Response)
        monkeypatch.setitem(HANDLERS, row.name, count_members)
        monkeypatch.setitem(DECIDED, row.name, row)

    COUNTED.clear()
    return add


class Machine:
    """A coordinator with an ACL, and one group's state."""

    def __init__(self, operation: str) -> None:
        acl = AclBinding("GROUP", "", "PREFIXED", "User:*", "*", operation, "ALLOW")
        self._machine = BatchMachine(BatchSettings(acls=(acl,)))
        self.state: bytes | None = None

    def ask(self, *ids: str, group: str = "g", **more: Any) -> list[Any]:
        texts = [
            msgspec.json.encode(
                {"request_id": each, "group_id": group, "api": ROW.name, ROW.name: {"least": 7}}
                | more
            ).decode()
            for each in ids
        ]
        result = self._machine.process(group, self.state, texts, 1_000)
        self.state = result.state
        return [] if result.output is None else result.output.responses


def test_an_api_is_its_structs_its_handler_and_its_row(register: Register) -> None:
    assert Machine("ALTER").ask("r")[0].error_code == ErrorCode.INVALID_REQUEST
    register(ROW)
    (answer,) = Machine("ALTER").ask("r")
    assert answer == Response(
        "r", "g", ROW.name, 0, "NONE", None, 1_000, count_members=CountMembersResponse(7)
    )
    assert COUNTED == ["r"]


def test_a_new_api_is_authorized(register: Register) -> None:
    register(ROW)
    (denied,) = Machine("READ").ask("r")
    assert denied.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert denied.error_message == "User:ANONYMOUS has no ALTER on group 'g'"
    assert denied.count_members == CountMembersResponse()
    assert COUNTED == []


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_new_api_is_deduplicated(register: Register, repeatable: bool) -> None:
    register(msgspec.structs.replace(ROW, is_repeatable=repeatable))
    machine = Machine("ALTER")
    assert len(machine.ask("r", "r")) == 1
    assert machine.ask("r") == []
    # The last requests of all kinds are remembered, and for longer those that must not be repeated.
    later = [f"r{n}" for n in range(MAX_RECENT)]
    assert len(machine.ask(*later)) == len(later)
    assert len(machine.ask("r")) == repeatable
    assert COUNTED.count("r") == 1 + repeatable
    assert decode(machine.state).window.count == (0 if repeatable else len(later) + 1)


def test_a_new_api_is_checked_and_waited_for_as_its_row_says(register: Register) -> None:
    register(ROW)
    (nobody_s,) = Machine("ALTER").ask("r", group="")
    assert nobody_s.error_code == ErrorCode.INVALID_GROUP_ID
    (too_new,) = Machine("ALTER").ask("r", api_version=3)
    assert too_new.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert too_new.error_message == "api_version 3 of count_members is outside 0..2"
    assert Machine("ALTER").ask("r", api_version=2)[0].error_code == 0
    assert least_linger(pa.table({"api": ["heartbeat", ROW.name]})) is LingerMultiple.COMMITS
