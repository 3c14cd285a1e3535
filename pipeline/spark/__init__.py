"""The API for a user's Spark job: views, requests, and streaming queries as consumer groups.

Besides this package, only `stream`, `session` and `node` import Spark.
"""

from typing import TYPE_CHECKING

from group_coordinator.pipeline import lazy_names

if TYPE_CHECKING:
    from group_coordinator.pipeline.spark.data_source import register_data_source
    from group_coordinator.pipeline.spark.progress_commits import ProgressCommits
    from group_coordinator.pipeline.spark.views import register_views

__all__ = ["ProgressCommits", "register_data_source", "register_views"]

if not TYPE_CHECKING:
    # A module is imported when its name is first used: a worker of a data source needs few of them.
    __getattr__ = lazy_names(
        __name__,
        data_source="register_data_source",
        progress_commits="ProgressCommits",
        views="register_views",
    )
