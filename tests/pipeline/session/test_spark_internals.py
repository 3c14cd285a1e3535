"""What is private to Spark is used in one module."""

from __future__ import annotations

import re
from pathlib import Path

import pipeline
from pipeline.session import spark_internals

_PRIVATE = re.compile(
    r"\._(jvm|jsc|jdf|jsparkSession|jconf|gateway)\b"
    r"|\bpyspark\.(serializers|worker|sql\.pandas|daemon)\b"
)


def test_no_other_module_reaches_for_it():
    modules = Path(pipeline.__file__).parent.rglob("*.py")
    found = {path for path in modules if _PRIVATE.search(path.read_text("utf-8"))}
    assert found == {Path(spark_internals.__file__)}
