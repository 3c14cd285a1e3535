"""The command `group-coordinator`; `python -m pipeline` is the same.

Exits 0 on success, 1 on a failure that it names in one line, 2 on a wrong call.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="group-coordinator",
    help="Kafka's consumer-group coordination for the lakehouse, on Spark and Delta.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file whose settings go over conf/coordinator.toml."),
]


@app.command()
def simulate(
    file: Annotated[
        Path | None, typer.Argument(help="A scenario, one JSON object a line; default: stdin.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Drive the coordinator's own state machine on a virtual clock, without Spark."""
    from coordinator.config import parse_config
    from pipeline.settings import read_user_file
    from pipeline.simulate import simulate as run_scenario

    settings = {"group.initial.rebalance.delay.ms": 0}
    if config is not None:
        settings |= read_user_file(config)["group"]
    parsed = parse_config(settings)
    if file is None:
        run_scenario(sys.stdin.buffer, sys.stdout.buffer, parsed)
    else:
        with file.open("rb") as lines:
            run_scenario(lines, sys.stdout.buffer, parsed)


def main() -> None:
    """Run the command line; failures that a person can act on end in one line and exit 1."""
    from coordinator.config import ConfigError
    from pipeline.settings import SettingsError

    try:
        app()
    except (ConfigError, SettingsError, OSError) as error:
        sys.exit(f"group-coordinator: {error}")


if __name__ == "__main__":
    main()
