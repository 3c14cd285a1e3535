"""`python -m pipeline` is `group-coordinator`."""

from pipeline.cli.main import main

main()
