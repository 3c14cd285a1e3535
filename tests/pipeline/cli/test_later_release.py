"""A root that a later release keeps to itself is refused by name, before anything is begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.node.preflight import check_start
from group_coordinator.pipeline.tables.columns import LaterRelease
from group_coordinator.pipeline.tables.format import FORMAT_PROPERTY
from tests.roots import make_tables


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a root with another format of `group_events`: no verb below reads that table."""
    root = tmp_path_factory.mktemp("later")
    make_tables(str(root))
    table = DeltaTable(str(root / "group_events"))
    table.alter.set_table_properties({FORMAT_PROPERTY: "2"}, raise_if_not_exists=False)
    return str(root)


def files(root: str) -> list[Path]:
    return sorted(Path(root).rglob("*"))


def test_run_refuses_it_before_spark_starts(later: str) -> None:
    with pytest.raises(LaterRelease, match=r"group_events table at .* has format 2"):
        check_start(later)


@pytest.mark.parametrize(
    "verb",
    [
        "gateway --listen 127.0.0.1:0",
        "metrics --listen 127.0.0.1:0",
        "worker --group g --topic t --once",
        "compact",
        "retain",
        "repair",
        "topics create t --partitions 1",
        "acls list",
        "records export FILE",
    ],
)
def test_what_writes_or_serves_refuses_it(later: str, verb: str) -> None:
    before = files(later)
    done = CliRunner().invoke(make_app(), [*verb.split(), "--root", later])
    assert isinstance(done.exception, LaterRelease)
    assert "Use that release or a later one with this root" in str(done.exception)
    assert files(later) == before
