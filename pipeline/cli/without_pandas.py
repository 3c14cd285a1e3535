"""Faster imports for verbs that start no Spark: pandas is not loaded.

pyarrow imports pandas, if installed, when it creates its first array from Python objects. The
import takes as long as a short verb. Only a coordinator's environment has pandas, for Spark.
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
    """Hide pandas from pyarrow and deltalake in this process from now on."""
    # `sys.modules["pandas"] = None` does not work: pyarrow uses the None as the module.
    sys.meta_path.insert(0, _NoPandas())
