"""The API for a user's Spark job: views, requests, and streaming queries as consumer groups.

Besides this package, only `stream`, `session` and `node` import Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from group_coordinator.pipeline.spark.data_source import register_data_source
    from group_coordinator.pipeline.spark.progress_commits import ProgressCommits
    from group_coordinator.pipeline.spark.views import register_views

__all__ = ["ProgressCommits", "register_data_source", "register_views"]

# A module is imported at the first use of its name: a worker of a data source needs few of them.
_MODULES = {
    "ProgressCommits": "progress_commits",
    "register_data_source": "data_source",
    "register_views": "views",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
