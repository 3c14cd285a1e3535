"""The page of options is correct: each row of its tables is run."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline import cli
from group_coordinator.pipeline.cli.main import make_app
from tests.pipeline.admin.kafka_root import make_root
from tests.pipeline.offsets_log import Log
from tests.pipeline.offsets_log import commit as commit_record

PAGE = Path(cli.__file__).parent / "KAFKA_CONSUMER_GROUPS.md"
KAFKAS, OURS = (
    [line for line in table.splitlines() if line.startswith("| `")]
    for table in PAGE.read_text().split("What none of Kafka's tools has:")
)
# Options of Kafka's tool that are about the connection, or its help.
ELSEWHERE = {"--bootstrap-server", "--command-config", "--help", "--dry-run"}


# The groups of verbs, each made once.
app_of = functools.cache(make_app)


def commands(line: str, column: int) -> list[str]:
    return re.findall(r"`([^`]*)`", line.split(" | ")[column])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The groups `done` and `other`, which have committed, long ago."""
    folder = tmp_path_factory.mktemp("page")
    root = make_root(folder)
    offsets = [(("orders", 0), 4), (("orders", 1), 5), (("orders", 2), 0), (("returns", 0), 1)]
    Log(root).append(
        *(commit_record("done", offset, 5, at) for at, offset in offsets),
        commit_record("other", 1, 5, ("orders", 0)),
    )
    (folder / "plan.csv").write_text("orders,0,4\n")
    return root


@pytest.mark.parametrize(
    "command",
    [each for line in KAFKAS for each in commands(line, 1)]
    + [each for line in OURS for each in commands(line, 0)],
)
def test_each_command_of_the_page_is_one(root: str, command: str) -> None:
    words = command.replace("plan.csv", str(Path(root).parent / "plan.csv")).split()
    # Here no coordinator runs: plans are made, and not carried out.
    words = [word for word in words if word != "--execute"]
    if words[0] in ("groups", "offsets") and words[1] != "validate-regex":
        words += ["--root", root]
    done = CliRunner().invoke(app_of(words[0]), words)
    if words[:3] == ["offsets", "undo", "done"]:
        assert "no change by an operator to undo" in str(done.exception) or done.exit_code == 0
    else:
        assert done.exit_code == 0, (command, done.output, done.exception)


def test_every_option_of_kafkas_tool_is_on_the_page() -> None:
    known = {
        *("--list", "--describe", "--delete", "--delete-offsets", "--reset-offsets"),
        *("--group", "--all-groups", "--topic", "--all-topics", "--state", "--type", "--members"),
        *("--offsets", "--verbose", "--timeout", "--execute", "--export", "--validate-regex"),
        *("--to-earliest", "--to-latest", "--to-offset", "--to-current", "--to-datetime"),
        *("--shift-by", "--by-duration", "--from-file", "--version"),
    }
    shown = {word for line in KAFKAS for each in commands(line, 0) for word in each.split()}
    assert known <= shown
    assert not known & ELSEWHERE
