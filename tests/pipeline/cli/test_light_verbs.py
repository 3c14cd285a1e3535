"""A verb that only reads imports its own dependencies, and not those of other verbs.

Modules are counted and not seconds, which depend on the machine: `tests.bench verbs` measures
those.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.ends import check_end
from tests.pipeline.offsets_log import Log, commit

# What a verb would wait for in vain: Arrow and delta-rs, clients, Kafka's protocol, terminals'
# tables, other verbs, a second library of types.
OTHERS = (
    "deltalake",
    "kafka",
    "numpy",
    "obstore",
    "pandas",
    "tests.bench",
    "group_coordinator.pipeline.cli.acls",
    "group_coordinator.pipeline.cli.run",
    "group_coordinator.pipeline.client",
    "group_coordinator.pipeline.gateway",
    "group_coordinator.pipeline.topics",
    "py4j",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
)
# Run each command in a separate process, which begins with the modules that all of them use.
_RUN = """
import json, os, sys
import duckdb, typer
assert not [name for name in sys.modules if name.startswith("group_coordinator")]
for verb in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, verb
        continue
    from group_coordinator.pipeline.cli.main import main
    sys.argv[1:] = verb
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    print("\\n" + json.dumps(sorted(sys.modules)), flush=True)
    os._exit(0)
"""
VERBS = [
    "groups list",
    "groups describe g",
    "groups describe --all-groups --members",
    "groups describe g --state",
    "groups delete g",
    "offsets reset g --to-offset 1",
    "offsets delete g",
    "offsets diff g --from 1970-01-01T00:00:00",
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The modules that each verb has loaded in the end."""
    root = str(tmp_path_factory.mktemp("root"))
    Log(root).append(commit("g", 3, 5))
    commands = [[*verb.split(), "--root", root] for verb in VERBS]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    check_end(done.returncode, done.stderr)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    return dict(zip(VERBS, said, strict=True))


@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_groups_imports_little(verb: str, loaded: dict[str, list[str]]) -> None:
    modules = loaded[verb]
    assert "group_coordinator.pipeline.cli.main" in modules
    assert [name for name in OTHERS if name in modules] == []
    assert len(modules) < 800


@pytest.mark.full
def test_what_lists_partitions_and_nodes_imports_neither_arrow_nor_delta_rs() -> None:
    code = (
        "import sys, group_coordinator.pipeline.ownership.partitions\n"
        "sys.exit(' '.join({'deltalake', 'pyarrow'} & sys.modules.keys()) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    check_end(done.returncode, done.stderr)
