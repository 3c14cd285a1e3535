"""`groups`: consumer groups."""

from __future__ import annotations

import typer

from pipeline.cli.options import Json, Root
from pipeline.errors import Failure

groups_app = typer.Typer(help="Consumer groups.", no_args_is_help=True)


@groups_app.command("list")
def groups_list(root: Root, json: Json = False) -> None:
    """Every group, its state and its numbers."""
    from pipeline.cli.show import show_query

    show_query(
        root,
        "SELECT group_id, state, protocol_type, protocol, generation, num_members, num_offsets, "
        "since, reason FROM groups ORDER BY group_id",
        json,
    )


@groups_app.command("describe")
def groups_describe(group: str, root: Root, json: Json = False) -> None:
    """One group: its state and the members of its last stored generation."""
    from pipeline.cli.show import show_query

    found = show_query(root, "SELECT * FROM groups WHERE group_id = ?", json, group)
    if not found.rows:
        raise Failure(f"there is no group {group!r} under {root}")
    show_query(root, "SELECT * EXCLUDE group_id FROM group_members WHERE group_id = ?", json, group)


@groups_app.command("delete")
def groups_delete(group: str, root: Root) -> None:
    """Delete an Empty group and its offsets, through the running coordinator."""
    from pipeline.admin.changes import delete_group

    delete_group(root, group)
    typer.echo(f"group {group!r} deleted")
