"""A verb that starts no Spark loads neither Spark nor pandas, whatever it calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.tables.request_log import RequestLog
from pipeline.tables.store import ensure_tables
from pipeline.tables.topics import create_topic
from tests.pipeline.rows import heartbeat

# Runs the command as the console script does, then tells which modules it loaded.
_RUN = """
import json, sys
from pipeline.cli.main import main
try:
    main()
finally:
    print(json.dumps([name for name in ("pyspark", "py4j", "pandas") if name in sys.modules]))
"""

VERBS = [
    ["groups", "list"],
    ["partitions", "list"],
    ["offsets", "show", "g"],
    ["topics", "list"],
    ["topics", "create", "u", "--partitions", "2"],
    ["sql", "SELECT count(*) FROM requests"],
    ["compact"],
    ["retain"],
    ["repair"],
    ["records", "export"],
]
ROOTLESS = [["simulate", "SCENARIO"], ["worker", "--help"]]


@pytest.fixture(scope="module")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("root"))
    ensure_tables(root)
    create_topic(root, "t", 4)
    RequestLog(root).append([heartbeat("a")])
    return root


def loaded_by(arguments: list[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
def test_a_verb_over_a_root_loads_no_spark(verb: list[str], small_root: str) -> None:
    assert loaded_by([*verb, "--root", small_root]) == []


@pytest.mark.parametrize("verb", ROOTLESS, ids=lambda verb: verb[0])
def test_a_verb_without_a_root_loads_no_spark(verb: list[str], tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.jsonl"
    scenario.write_text('{"request_id": "a", "group_id": "g", "api": "describe_groups"}\n')
    assert loaded_by([str(scenario) if word == "SCENARIO" else word for word in verb]) == []


def test_pyarrow_would_load_pandas() -> None:
    """Otherwise the tests above would hold whatever the command did about it."""
    code = "import sys, pyarrow; pyarrow.array(['a']); sys.exit('pandas' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
