"""Makes an archive as `pipeline.node.archive_maker` does, by a coordinator that is never ready."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from group_coordinator.pipeline.node.archive_maker import main


def record(folder: Path, _options: str) -> None:
    (folder / "recording").touch()
    while True:
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], record)
