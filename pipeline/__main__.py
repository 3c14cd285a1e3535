"""`python -m pipeline` is `group-coordinator`."""

from pipeline.cli import main

main()
