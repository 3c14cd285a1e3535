"""Verbs that start no Spark do not load pandas either.

pyarrow imports pandas, where it is installed, as it makes its first array of Python's objects, and
the import takes as long as a short verb. Only a coordinator's environment has pandas, for Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("verbs that start no Spark do not load pandas", name=name)


def hide_pandas() -> None:
    """Let pyarrow and deltalake find no pandas in this process from now on."""
    # Not `sys.modules["pandas"] = None`: pyarrow takes the None for the module.
    sys.meta_path.insert(0, _NoPandas())
