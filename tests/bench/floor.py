"""The floor that answers are measured against: the same job, with a function that decides nothing.

python -m tests.bench.floor --root ROOT --config FILE
"""

from __future__ import annotations

import argparse
import sys

from group_coordinator.pipeline.node.job import run
from group_coordinator.pipeline.settings import load_settings
from tests.support.empty import EmptyMachine

MODULE = "tests.bench.floor"


def main() -> int:
    """Run a coordinator with a machine that answers every request without an error."""
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("--root", required=True)
    parser.add_argument("--config")
    options = parser.parse_args()
    return run(options.root, load_settings(options.config), make_machine=EmptyMachine)


if __name__ == "__main__":
    sys.exit(main())
