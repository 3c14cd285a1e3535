"""What verbs share: options, and ways to print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

if TYPE_CHECKING:
    from pipeline.tables.sql import Result

Root = Annotated[str, typer.Option("--root", help="The folder or URI under which the tables lie.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file whose settings go over conf/coordinator.toml."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON Lines.")]


def progress(text: str) -> None:
    """Say how far a long run is, on standard error."""
    typer.echo(text, err=True)


def encoded(result: Any) -> str:
    """A result as a line of JSON."""
    return msgspec.json.encode(result).decode()


def show_query(root: str, query: str, json: bool, *parameters: Any) -> Result:
    """Print what a query over the root gives, and return it."""
    from pipeline.cli.show import Format, show
    from pipeline.tables.sql import Catalog

    result = Catalog(root).query(query, list(parameters))
    show(result, Format.JSON if json else Format.TABLE)
    return result
