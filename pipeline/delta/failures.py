"""The errors of reading or changing a table. A process that only queries DuckDB imports this."""

from __future__ import annotations

from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.errors import Failure

# Errors of delta-rs, of the store, and of this project.
STORE_FAILS = (DeltaError, OSError, Failure)
