"""`offsets`: committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.options import Json, Root

if TYPE_CHECKING:
    from pipeline.admin.changes import Change

offsets_app = typer.Typer(help="Committed offsets.", no_args_is_help=True)


Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")
]


Execute = Annotated[
    bool, typer.Option("--execute", help="Do it; without this, only show what would change.")
]


@offsets_app.command("reset")
def offsets_reset(
    group: str,
    root: Root,
    topic: Topics = None,
    to_offset: Annotated[int | None, typer.Option(help="The offset to go to.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="How many offsets to go on, or back.")
    ] = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Put an Empty group's committed offsets elsewhere, through the running coordinator."""
    from pipeline.admin.changes import plan_reset

    _change(root, group, plan_reset(root, group, topic or [], to_offset, shift_by), execute, json)


@offsets_app.command("undo")
def offsets_undo(group: str, root: Root, execute: Execute = False, json: Json = False) -> None:
    """Put the committed offsets back to what they were before the last reset."""
    from pipeline.admin.changes import plan_undo

    _change(root, group, plan_undo(root, group), execute, json)


@offsets_app.command("delete")
def offsets_delete(
    group: str, root: Root, topic: Topics = None, execute: Execute = False, json: Json = False
) -> None:
    """Delete committed offsets of topics that no member consumes."""
    from pipeline.admin.changes import plan_deletion

    _change(root, group, plan_deletion(root, group, topic or []), execute, json)


def _change(root: str, group: str, changes: list[Change], execute: bool, json: bool) -> None:
    from pipeline.admin.changes import carry_out
    from pipeline.cli.show import Format, show
    from pipeline.monitor.catalog import Result

    rows = [(c.topic, c.partition, c.current, c.wanted) for c in changes]
    result = Result(["topic", "partition", "current", "wanted"], rows)
    show(result, Format.JSON if json else Format.TABLE)
    if execute and changes:
        carry_out(root, group, changes)
        typer.echo(f"{len(changes)} offsets of group {group!r} changed", err=True)
    elif changes:
        typer.echo("nothing was changed: add --execute to do it", err=True)


@offsets_app.command("show")
def offsets_show(group: str, root: Root, json: Json = False) -> None:
    """The committed offsets of one group."""
    from pipeline.cli.show import show_query

    show_query(
        root,
        'SELECT topic, "partition", committed_offset, metadata, committed_at, expires_at, reason '
        'FROM committed_offsets WHERE group_id = ? ORDER BY topic, "partition"',
        json,
        group,
    )
