"""The packages below the nodes import neither Spark nor pandas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest

import group_coordinator
from group_coordinator.coordinator.ownership import STARTED
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
from group_coordinator.schemas.records import CoordinatorEvent
from tests.ends import check_end
from tests.roots import make_tables

PACKAGES = [
    "group_coordinator.pipeline.client",
    "group_coordinator.pipeline.delta",
    "group_coordinator.pipeline.tables",
    "group_coordinator.pipeline.topics",
    "group_coordinator.pipeline.upkeep",
]
IMPORT_ALL = """
import importlib, pkgutil
package = importlib.import_module(argument)
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{module.name}")
"""
APPEND = """
from group_coordinator.pipeline.delta.appender import Appender
deltalake.DeltaTable.create(argument, pyarrow.schema([("n", pyarrow.int64())]))
Appender(argument).append(None, "application", 1)
"""
READ_DECISIONS = """
from group_coordinator.pipeline.ownership.decision_log import DecisionLog
assert 1 in DecisionLog(argument).read().nodes
"""
# Run each program in a separate process, which first loads the modules that all would load. It
# reports its modules of the project and its heavy modules at the end.
_RUN = """
import json, os, sys, traceback
import deltalake, duckdb, msgspec, pyarrow, pyarrow.compute, pyarrow.parquet
HEAVY = {"pyspark", "pandas", "delta", "py4j"}
assert not HEAVY & sys.modules.keys()
assert not [name for name in sys.modules if name.startswith("group_coordinator")]
for program, argument in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        continue
    try:
        exec(program, {"deltalake": deltalake, "pyarrow": pyarrow, "argument": argument})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    ours = [name for name in sys.modules if name.startswith("group_coordinator.pipeline.")]
    print(json.dumps([ours, sorted(HEAVY & sys.modules.keys())]), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the modules that each package, and each of the other programs, has loaded."""
    folder = tmp_path_factory.mktemp("light")
    root = str(folder / "root")
    make_tables(root)
    decisions = DecisionLog(root)
    decisions.decide(decisions.read(), [CoordinatorEvent(1, -1, STARTED, 1)])
    programs = {
        **{package: (IMPORT_ALL, package) for package in PACKAGES},
        "append": (APPEND, str(folder / "table")),
        "read decisions": (READ_DECISIONS, root),
    }
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(list(programs.values()))],
        capture_output=True,
        text=True,
        timeout=240,
    )
    check_end(ended.returncode, ended.stderr)
    return dict(zip(programs, map(json.loads, ended.stdout.splitlines()), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_spark_or_pandas(package: str, loaded: dict[str, Any]) -> None:
    ours, heavy = loaded[package]
    assert any(name.startswith(f"{package}.") for name in ours)
    assert heavy == []


def test_opening_a_table_for_appends_does_not_import_pandas_either(loaded: dict[str, Any]) -> None:
    ours, heavy = loaded["append"]
    assert "group_coordinator.pipeline.delta.appender" in ours
    assert heavy == []


def test_reading_who_owns_what_does_not_import_pandas_either(loaded: dict[str, Any]) -> None:
    ours, heavy = loaded["read decisions"]
    assert "group_coordinator.pipeline.ownership.decision_log" in ours
    assert heavy == []


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that runs Python as if the extra `coordinator` were not installed."""
    packages = tmp_path_factory.mktemp("packages")
    for each in Path(pytest.__file__).parents[1].iterdir():
        if not each.name.startswith(("pyspark", "delta_spark", "delta", "pandas", "py4j")):
            (packages / each.name).symlink_to(each)
    (packages / "deltalake").symlink_to(Path(deltalake.__file__).parent)
    ours = Path(group_coordinator.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(ours)])}

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-S", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        check_end(done.returncode, done.stderr, code)
        return done

    return run


@pytest.mark.full
@pytest.mark.parametrize(
    "verb",
    [
        ["topics", "create", "t", "--partitions", "3"],
        ["groups", "list"],
        ["sql", "SELECT * FROM groups"],
        ["compact"],
        ["gateway", "--listen", "127.0.0.1:0", "--until-eof"],
        ["metrics", "--listen", "127.0.0.1:0", "--until-eof"],
    ],
    ids=" ".join,
)
def test_a_verb_needs_no_package_of_a_coordinator(
    light: Callable[..., Any], root: str, verb: list[str]
) -> None:
    light("-m", "group_coordinator", *verb, "--root", root)


@pytest.mark.full
def test_a_member_needs_no_package_of_a_coordinator(light: Callable[..., Any], root: str) -> None:
    program = """
import sys
from group_coordinator.pipeline.client import GroupMember
with GroupMember(sys.argv[1], "g", {"t": 3}) as member:
    member.poll(0)
    member.close(0)
print([name for name in ("pyspark", "pandas") if name in sys.modules])
"""
    assert light("-c", program, root).stdout == "[]\n"


@pytest.mark.full
@pytest.mark.parametrize("verb", ["run", "demo", "package"])
def test_without_spark_a_line_says_what_to_install(light: Callable[..., Any], verb: str) -> None:
    said = light("-m", "group_coordinator", verb, "--root", "r", code=1).stderr
    assert said == (
        f"group-coordinator: {verb} needs pyspark, delta, pandas: "
        "pip install 'delta-spark==4.4.0' 'pandas<3,>=2.2' 'pyspark~=4.2.0'\n"
    )
