"""A verb that starts no Spark loads neither Spark nor pandas, whatever it calls.

Verbs about groups load even less: see `test_light_verbs`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from group_coordinator.pipeline.tables.request_log import RequestLog
from group_coordinator.pipeline.tables.store import ensure_tables
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from tests.ends import check_end
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.rows import heartbeat

# Run each command as the console script does, then report its loaded modules. Each command has a
# separate process, which begins with modules that many commands load.
_RUN = """
import json, os, sys, traceback
import deltalake, duckdb, pyarrow, pyarrow.compute, pyarrow.parquet
import group_coordinator.pipeline.client, group_coordinator.pipeline.records
import group_coordinator.pipeline.upkeep.compaction, group_coordinator.pipeline.upkeep.retention
from group_coordinator.pipeline.cli.main import main
HEAVY = ("pyspark", "py4j", "pandas")
assert not sys.modules.keys() & HEAVY
for number, arguments in enumerate(json.loads(sys.argv[1])):
    sys.stdout.flush()
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    sys.argv[1:] = arguments
    ended = "by itself"
    try:
        main()
    except SystemExit as end:
        ended = end.code
    except BaseException:
        ended = traceback.format_exc()
    loaded = [name for name in HEAVY if name in sys.modules]
    print("\\n" + json.dumps({"verb": number, "ended": ended, "loaded": loaded}), flush=True)
    os._exit(0)
"""

VERBS = [
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
def ends(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """How each verb ended, and what it had loaded then."""
    folder = tmp_path_factory.mktemp("verbs")
    root = str(folder / "root")
    ensure_tables(root)
    create_topic(root, "t", 4)
    RequestLog(root).append([heartbeat("a")])
    Log(root).append(commit("g", 3, 5))
    scenario = folder / "scenario.jsonl"
    scenario.write_text('{"request_id": "a", "group_id": "g", "api": "describe_groups"}\n')
    commands = [[*verb, "--root", root] for verb in VERBS]
    for verb in ROOTLESS:
        commands.append([str(scenario) if word == "SCENARIO" else word for word in verb])
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    check_end(done.returncode, done.stderr)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"verb": ')]
    assert [one["verb"] for one in said] == list(range(len(commands)))
    return said


@pytest.mark.full
@pytest.mark.parametrize(
    "number",
    range(len(VERBS + ROOTLESS)),
    ids=[" ".join(verb[:2]) for verb in VERBS + ROOTLESS],
)
def test_a_verb_loads_no_spark(number: int, ends: list[dict[str, Any]]) -> None:
    assert ends[number]["ended"] in (0, "by itself")
    assert ends[number]["loaded"] == []


@pytest.mark.full
def test_pyarrow_would_load_pandas() -> None:
    """Otherwise the tests above would hold whatever the command did about it."""
    code = "import sys, pyarrow; pyarrow.array(['a']); sys.exit('pandas' not in sys.modules)"
    check_end(subprocess.run([sys.executable, "-c", code], timeout=120).returncode)
