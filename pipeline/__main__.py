"""`python -m group_coordinator.pipeline` is `group-coordinator`."""

from group_coordinator.pipeline.cli.main import main

main()
