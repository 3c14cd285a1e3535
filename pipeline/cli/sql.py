"""The verb `sql`: it queries a root's tables and views."""

from __future__ import annotations

from typing import Annotated

import typer

from group_coordinator.pipeline.cli.options import Root
from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_result


def sql(
    query: Annotated[str, typer.Argument(help="A query over the tables and views.")],
    root: Root,
    as_of: Annotated[
        str | None,
        typer.Option(
            help="Read the tables as of a time (UTC if it has no zone), or the only table of the "
            "query at a version.",
        ),
    ] = None,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Query the tables and views of a root with SQL."""
    from group_coordinator.pipeline.monitor.as_of import read_as_of
    from group_coordinator.pipeline.monitor.catalog import Catalog

    moment = None if as_of is None else read_as_of(as_of)
    print_result(format_, Catalog(root, moment).query(query))
