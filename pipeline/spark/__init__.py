"""The API for a user's Spark job: the views of a root, and streaming queries as consumer groups.

Besides this package, only `stream`, `session` and `node` import Spark.
"""

from group_coordinator.pipeline.spark.progress_commits import ProgressCommits
from group_coordinator.pipeline.spark.views import register_views

__all__ = ["ProgressCommits", "register_views"]
