"""`sql`: a query over a root's tables and views."""

from __future__ import annotations

from typing import Annotated

import typer

from group_coordinator.pipeline.cli.options import Root


def sql(
    query: Annotated[str, typer.Argument(help="A query over the tables and views.")],
    root: Root,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Read the tables as they were: at a time (UTC if it has no zone), or the one "
            "table of the query at a version.",
        ),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Query the tables and views of a root by SQL."""
    from group_coordinator.pipeline.cli.show import Format, show
    from group_coordinator.pipeline.monitor.as_of import read_as_of
    from group_coordinator.pipeline.monitor.catalog import Catalog

    try:
        chosen = Format(format_)
    except ValueError as error:
        raise typer.BadParameter(f"{format_!r} is none of table, csv, json") from error
    moment = None if as_of is None else read_as_of(as_of)
    show(Catalog(root, moment).query(query), chosen)
