"""The packages below the nodes import neither Spark nor pandas: verbs and clients start without."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import importlib, json, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{module.name}")
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    "package",
    [
        "pipeline.client",
        "pipeline.delta",
        "pipeline.monitor",
        "pipeline.tables",
        "pipeline.topics",
        "pipeline.upkeep",
    ],
)
def test_no_module_imports_spark_or_pandas(package: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, package], capture_output=True, text=True, check=True
    )
    loaded = json.loads(ended.stdout)
    assert any(name.startswith(f"{package}.") for name in loaded)
    assert not {"pyspark", "pandas", "delta", "py4j"} & set(loaded)


def test_opening_a_table_for_appends_does_not_import_pandas_either(tmp_path) -> None:
    program = (
        "import sys, deltalake, pyarrow\n"
        "from pipeline.delta.open import open_appender\n"
        "deltalake.DeltaTable.create(sys.argv[1], pyarrow.schema([('n', pyarrow.int64())]))\n"
        "open_appender(sys.argv[1]).append(None, 'application', 1)\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_reading_who_owns_what_does_not_import_pandas_either(root) -> None:
    program = (
        "import sys\n"
        "from pipeline.ownership.decision_log import DecisionLog\n"
        "DecisionLog(sys.argv[1]).events()\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, root], check=True)
