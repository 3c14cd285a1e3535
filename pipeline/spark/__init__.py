"""The API for a user's Spark job: views, requests, and streaming queries as consumer groups.

Besides this package, only `stream`, `session` and `node` import Spark.
"""

from group_coordinator.pipeline.spark.data_source import register_data_source
from group_coordinator.pipeline.spark.progress_commits import ProgressCommits
from group_coordinator.pipeline.spark.views import register_views

__all__ = ["ProgressCommits", "register_data_source", "register_views"]
