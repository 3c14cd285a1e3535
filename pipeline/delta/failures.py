"""What reading or changing a table may end in."""

from __future__ import annotations

from deltalake.exceptions import DeltaError

from group_coordinator.pipeline.errors import Failure

# A store that fails, delta-rs that cannot, and what a person is told of.
STORE_FAILS = (DeltaError, OSError, Failure)
