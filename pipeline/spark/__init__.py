"""What a user's own Spark job calls: the views of a root, and its queries as consumer groups.

The only package beside the stream, the job and what measures them that imports Spark.
"""

from group_coordinator.pipeline.spark.progress_commits import ProgressCommits
from group_coordinator.pipeline.spark.views import register_views

__all__ = ["ProgressCommits", "register_views"]
