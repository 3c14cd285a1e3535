"""What verbs share: their options, and how they print a result and their progress."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from pipeline.logs import LogFormat

Root = Annotated[str, typer.Option("--root", help="The folder or URI under which the tables lie.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file whose settings go over conf/coordinator.toml."),
]
LogForm = Annotated[
    LogFormat, typer.Option("--log-format", help="Lines for people, or a JSON object a line.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print all that is logged, Spark's warnings included.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON Lines.")]


def progress(text: str) -> None:
    """Print how far a long run is, on standard error."""
    typer.echo(text, err=True)


def encoded(result: Any) -> str:
    """A result as one line of JSON."""
    return msgspec.json.encode(result).decode()
