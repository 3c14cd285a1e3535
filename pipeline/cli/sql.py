"""`sql`: a query over a root's tables and views."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.options import Root


def sql(
    query: Annotated[str, typer.Argument(help="A query over the tables and views.")],
    root: Root,
    format_: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Query the tables and views of a root by SQL."""
    from pipeline.cli.show import Format, show
    from pipeline.monitor.catalog import Catalog

    try:
        chosen = Format(format_)
    except ValueError as error:
        raise typer.BadParameter(f"{format_!r} is none of table, csv, json") from error
    show(Catalog(root).query(query), chosen)
