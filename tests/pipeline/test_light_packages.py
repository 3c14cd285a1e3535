"""The packages below the nodes import neither Spark nor pandas: verbs and clients start without."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from coordinator.ownership import STARTED
from pipeline.ownership.decision_log import DecisionLog
from schemas.records import CoordinatorEvent
from tests.ends import check_end
from tests.roots import make_tables

PACKAGES = [
    "pipeline.client",
    "pipeline.delta",
    "pipeline.tables",
    "pipeline.topics",
    "pipeline.upkeep",
]
IMPORT_ALL = """
import importlib, pkgutil
package = importlib.import_module(argument)
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{module.name}")
"""
APPEND = """
from pipeline.delta.open import open_appender
deltalake.DeltaTable.create(argument, pyarrow.schema([("n", pyarrow.int64())]))
open_appender(argument).append(None, "application", 1)
"""
READ_DECISIONS = """
from pipeline.ownership.decision_log import DecisionLog
assert 1 in DecisionLog(argument).read().nodes
"""
# Runs each program in a process of its own, which begins with what all of them would load first,
# and tells which modules of the project and which of the heavy ones it has in the end.
_RUN = """
import json, os, sys, traceback
import deltalake, duckdb, msgspec, pyarrow, pyarrow.compute, pyarrow.parquet
HEAVY = {"pyspark", "pandas", "delta", "py4j"}
assert not HEAVY & sys.modules.keys()
assert not [name for name in sys.modules if name.startswith("pipeline")]
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
    ours = [name for name in sys.modules if name.startswith("pipeline.")]
    print(json.dumps([ours, sorted(HEAVY & sys.modules.keys())]), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each package, and each of the other programs, has loaded."""
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


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_spark_or_pandas(package: str, loaded: dict[str, Any]) -> None:
    ours, heavy = loaded[package]
    assert any(name.startswith(f"{package}.") for name in ours)
    assert heavy == []


def test_opening_a_table_for_appends_does_not_import_pandas_either(loaded: dict[str, Any]) -> None:
    ours, heavy = loaded["append"]
    assert "pipeline.delta.open" in ours
    assert heavy == []


def test_reading_who_owns_what_does_not_import_pandas_either(loaded: dict[str, Any]) -> None:
    ours, heavy = loaded["read decisions"]
    assert "pipeline.ownership.decision_log" in ours
    assert heavy == []
