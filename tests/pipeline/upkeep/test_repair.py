"""A root after a loss of power: no coordinator starts, `repair` tells and mends, then one does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.delta import torn as torn_files
from group_coordinator.pipeline.delta.log import commit_path
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.sink import Sink
from group_coordinator.pipeline.tables.store import TornRoot, ensure_tables
from group_coordinator.pipeline.upkeep.repair import repair
from tests.pipeline.rows import commit_record, counts, output
from tests.pipeline.topics.tables import append, define


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torn_files, "CONFIRM_S", 0.0)


@pytest.fixture
def torn(root: str) -> str:
    """A root of which the last batch, of two, is torn in two tables."""
    sink = Sink(root, CoordinatorSettings())
    for batch in range(2):
        sink.write([output(2, [commit_record(0, batch)], 1)], "query", batch)
    commit_path(Path(root, "responses", "_delta_log"), 2).write_bytes(b"")
    files = sorted(Path(root, "offsets_topic").glob("*/*.parquet"), key=os.path.getmtime)
    files[-1].write_bytes(b"")
    return root


def command(root: str, *options: str) -> Any:
    return CliRunner().invoke(make_app(), ["repair", "--root", root, *options])


def test_no_coordinator_starts_and_the_verb_is_named(torn: str) -> None:
    told = r"responses has torn files.*commit 2: .*empty.*`group-coordinator repair --root"
    with pytest.raises(TornRoot, match=told):
        ensure_tables(torn)


def test_without_execute_it_is_only_told(torn: str) -> None:
    told = command(torn)
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert lines[0].startswith("offsets_topic: commit 2: segment=0/part-")
    assert lines[1] == "responses: commit 2: its file is empty or truncated: to be voided"
    assert "--execute" in told.output
    assert len(repair(torn)) == 2


def test_after_it_a_coordinator_writes_the_batch_again(torn: str) -> None:
    assert command(torn, "--execute").exit_code == 0
    ensure_tables(torn)
    assert counts(torn) == {
        "offsets_topic": 1,
        "group_events": 2,
        "rejected_requests": 0,
        "responses": 2,
    }
    # Its streaming checkpoint had planned the batch, and the start runs it again.
    again = Sink(torn, CoordinatorSettings(), planned=1)
    again.write([output(2, [commit_record(0, 1)], 1)], "query", 1)
    assert counts(torn)["offsets_topic"] == 2
    assert counts(torn)["group_events"] == 2, "this table has the batch: it is not written twice"
    assert counts(torn)["responses"] == 4
    assert "is torn or altered" in command(torn).output


def test_a_table_that_lost_its_description_is_left_alone_by_name(torn: str) -> None:
    commit_path(Path(torn, "responses", "_delta_log"), 0).write_bytes(b"")
    refused = command(torn, "--execute")
    assert "is lost: move its folder away" in refused.output
    assert str(refused.exception) == "these tables could not be repaired: responses"
    assert [result.table for result in repair(torn)] == ["responses"]


def test_a_user_s_table_is_named_and_never_changed(root: str) -> None:
    table = Path(root, "mine")
    append(str(table), range(3))
    define(root, str(table))
    commit = commit_path(table / "_delta_log", 1)
    commit.write_text(json.dumps({"add": {"path": "s3://other/file", "size": 1}}))
    before = commit.read_bytes()
    (found,) = repair(root, execute=True)
    assert (found.table, found.mended) == ("mine", False)
    assert "lies outside of the table: it is a user's table" in str(found.failure)
    assert commit.read_bytes() == before
