"""Entry point: `python -m group_coordinator.pipeline` runs `group-coordinator`."""

from group_coordinator.pipeline.cli.main import main

main()
