"""`python -m group_coordinator`: the command."""

from group_coordinator.pipeline.cli.main import main

if __name__ == "__main__":
    main()
