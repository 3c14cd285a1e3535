"""The messages of `groups describe` around its table, in the words of kafka-consumer-groups.sh."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app

GOLDEN = str(Path(__file__).parents[2] / "golden" / "0.1.0" / "root")


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("stable", ""),
        ("emptied", "Consumer group 'emptied' has no active members.\n"),
        ("preparing", "Warning: Consumer group 'preparing' is rebalancing.\n"),
    ],
)
def test_a_group_that_does_not_work_just_now(group: str, said: str) -> None:
    done = CliRunner().invoke(make_app(), ["groups", "describe", group, "--root", GOLDEN])
    assert done.exit_code == 0
    assert done.stderr == said
