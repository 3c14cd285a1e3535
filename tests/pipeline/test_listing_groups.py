"""Groups are listed by state and type, also groups with records of unknown kinds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.schemas.records import CoordinatorRecord
from tests.pipeline.gateway.listing import listed
from tests.pipeline.offsets_log import Log, commit

NOW = 1_700_000_000_000
LATER = {"known": ("Empty", "classic"), "later": ("Unknown", "unknown")}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, empty_root: Path) -> str:
    """Return a root with a group of each kind."""
    path = tmp_path_factory.mktemp("listed") / "root"
    shutil.copytree(empty_root, path)
    unknown = CoordinatorRecord(0, "kind 5", "later", NOW, log_offset=1, key=b"\0\5", value=b"")
    known = msgspec.structs.replace(commit("known", 7, NOW), partition=0, log_offset=0)
    Log(str(path)).append_rows([known, unknown])
    return str(path)


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), LATER),
        (("unknown",), (), {"later": LATER["later"]}),
        ((), ("Classic",), {"known": LATER["known"]}),
        ((), ("unknown",), {"later": LATER["later"]}),
        ((), ("consumer",), {}),
    ],
)
def test_a_client_is_told_states_and_types(
    root: str, states: Any, types: Any, expected: dict[str, tuple[str, str]]
) -> None:
    answer = listed(root, states, types)
    found = {each.group_id: (each.group_state, each.group_type) for each in answer.groups}
    assert found == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["known", "later"]),
        (("--state", "unknown"), ["later"]),
        (("--type", "classic"), ["known"]),
        (("--type", "consumer"), []),
    ],
)
def test_a_command_lists_by_state_and_type(
    root: str, options: tuple[str, ...], expected: list[str]
) -> None:
    line = ["groups", "list", "--format", "json", "--root", root, *options]
    done = CliRunner().invoke(make_app(), line)
    assert done.exit_code == 0, done.output
    assert [msgspec.json.decode(each)["group_id"] for each in done.stdout.splitlines()] == expected
