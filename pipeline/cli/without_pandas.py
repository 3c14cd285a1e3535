"""Verbs that start no Spark do not load pandas either.

pyarrow imports pandas, wherever it is installed, as it makes its first array of Python's objects:
`topics create` took 1.80 s of CPU with pandas, and 0.90 s without. A coordinator's environment has
it, for Spark; one without the extra `coordinator` has not.
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
