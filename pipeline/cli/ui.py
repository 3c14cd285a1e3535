"""The verbs `sql`, `ui`, `report` and `watch`: they show what the tables have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.cli.options import Root, print_progress
from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_result
from group_coordinator.pipeline.errors import Failure


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


def ui(
    root: Root,
    listen: Annotated[
        str, typer.Option("--listen", help="HOST:PORT to listen on; port 0 takes a free port.")
    ] = "127.0.0.1:8080",
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Allow resets of offsets, after a preview.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="An accepted name in a Host header; may be repeated."),
    ] = None,
) -> None:
    """Show groups, lag, rebalances and changes as pages for a browser; read only by default."""
    with _extra():
        from group_coordinator.pipeline.ui.server import serve
    from group_coordinator.pipeline.cli.gateway import read_address

    serve(
        root,
        read_address(listen),
        allow_changes=allow_changes,
        names=host or (),
        say=print_progress,
    )


def report(
    group: str,
    root: Root,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; default: standard output.")
    ] = None,
) -> None:
    """Write a group's page as one self-contained HTML file."""
    with _extra():
        from group_coordinator.pipeline.ui.pages import write_report
    text = write_report(root, group)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text, "utf-8")
        print_progress(f"report of group {group!r} written to {out}")


def watch(
    root: Root,
    group: Annotated[str | None, typer.Argument(help="Only this group, in detail.")] = None,
    every: Annotated[
        float, typer.Option("--every", min=0.5, help="Seconds between two reads.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the groups once, and end.")] = False,
) -> None:
    """Show the groups, or one group, in the terminal until Ctrl-C."""
    from group_coordinator.pipeline.ui.watch import watch as run

    run(root, group, every, once)


@contextmanager
def _extra() -> Iterator[None]:
    """Raise Failure, with the command to install it, if a package of the extra `ui` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "jinja2"):
            raise
        from group_coordinator.pipeline.extras import install_hint

        raise Failure(f"the pages need the package {error.name}: {install_hint('ui')}") from error
