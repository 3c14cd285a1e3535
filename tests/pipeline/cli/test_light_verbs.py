"""A verb that reads imports what it reads with, and none of what others need.

Modules are counted and not seconds, which depend on the machine; `bench verbs` measures those.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.offsets_log import Log, commit

# What a verb would wait for in vain: Arrow and delta-rs, clients, Kafka's protocol, terminals'
# tables, other verbs.
OTHERS = (
    "deltalake",
    "kafka",
    "numpy",
    "obstore",
    "pandas",
    "pipeline.bench",
    "pipeline.cli.acls",
    "pipeline.cli.run",
    "pipeline.client",
    "pipeline.gateway",
    "pipeline.topics",
    "pyarrow",
    "pyspark",
    "rich",
)
_RUN = """
import json, sys
from pipeline.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("\\n" + json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    "verb",
    [
        "groups list",
        "groups describe g",
        "groups describe --all-groups --members",
        "groups describe g --state",
        "groups delete g",
        "offsets reset g --to-offset 1",
        "offsets delete g",
        "offsets diff g --from 1970-01-01T00:00:00",
    ],
)
def test_a_verb_of_groups_imports_little(tmp_path: Path, verb: str) -> None:
    root = str(tmp_path)
    Log(root).append(commit("g", 3, 5))
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *verb.split(), "--root", root],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    modules = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in OTHERS if name in modules] == []
    assert len(modules) < 800
