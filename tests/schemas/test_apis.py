"""The APIs and the columns of `responses`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from random import Random
from types import ModuleType
from typing import Any

import msgspec
import pytest

from group_coordinator.coordinator.group import turn
from group_coordinator.schemas import messages
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import APIS, HeartbeatResponse


def _turn_of(columns: list[str], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`coordinator.group.turn`, imported when `responses` has these columns."""
    row = msgspec.defstruct("Response", [(name, Any, None) for name in columns], frozen=True)
    with monkeypatch.context() as patched:
        patched.setattr(messages, "Response", row)
        spec = importlib.util.spec_from_file_location("turn_of_other_columns", turn.__file__)
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
    for api in APIS:
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
