"""The verbs `offsets`: they show and change committed offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from group_coordinator.pipeline.cli.groups import named_groups
from group_coordinator.pipeline.cli.options import (
    AllGroups,
    AllTopics,
    Execute,
    GroupNames,
    GroupOption,
    Root,
    Timeout,
    Topics,
)
from group_coordinator.pipeline.cli.printing import (
    Column,
    Format,
    OutputFormat,
    plural,
    print_note,
    print_result,
    print_rows,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.admin.plans import GroupPlan

offsets_app = typer.Typer(
    help="Show committed offsets, reset them, and undo a reset.", no_args_is_help=True
)

_TIME = "YYYY-MM-DDTHH:MM:SS.sss, of UTC unless it ends with Z or +01:00."


@offsets_app.command("reset")
def offsets_reset(
    root: Root,
    groups: GroupNames = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    topic: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool,
        typer.Option("--to-current", help="To the current offsets, which are committed again."),
    ] = False,
    to_offset: Annotated[int | None, typer.Option(help="To this offset, at least 0.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Forward by this number of records; back if it is negative.")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(help=f"To the first record of this time or later: {_TIME}")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="To the first record of this long ago or later, as PT1H30M.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(help="To the offsets of a file that --export printed.")
    ] = None,
    execute: Execute = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print TOPIC,PARTITION,OFFSET lines for --from-file.")
    ] = False,
    timeout: Timeout = 30_000,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Reset the committed offsets of inactive groups, through the running coordinator."""
    named = named_groups(groups, group, all_groups)
    given = {
        "to-earliest": to_earliest or None,
        "to-latest": to_latest or None,
        "to-current": to_current or None,
        "to-offset": to_offset,
        "shift-by": shift_by,
        "to-datetime": to_datetime,
        "by-duration": by_duration,
        "from-file": from_file,
    }
    aims = [(name, str(value)) for name, value in given.items() if value is not None]
    if len(aims) != 1:
        raise typer.BadParameter(f"give exactly one of {', '.join(f'--{name}' for name in given)}")
    if all_topics and topic:
        raise typer.BadParameter("give either --topic or --all-topics")
    from group_coordinator.pipeline.admin.reset import (
        export_offsets,
        parse_offsets,
        parse_scenario,
        plan_offsets,
        plan_resets,
    )

    ((aim, value),) = aims
    if from_file is not None:
        if topic:
            raise typer.BadParameter("--from-file names the topics: leave out --topic")
        plans = plan_offsets(root, parse_offsets(from_file.read_text(), named))
    else:
        plans = plan_resets(root, named, topic or [], parse_scenario(aim, value))
    if export:
        typer.echo(export_offsets(plans, with_group=len(plans) > 1), nl=False)
    _change(root, plans, execute, format_, timeout, shown=not export)


@offsets_app.command("undo")
def offsets_undo(
    group: str,
    root: Root,
    to: Annotated[
        str | None, typer.Option("--to", help=f"Back to the offsets of this time: {_TIME}")
    ] = None,
    execute: Execute = False,
    timeout: Timeout = 30_000,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Restore a group's offsets before its last reset, deletion or undo, or at a given time."""
    from group_coordinator.pipeline.admin.history import plan_return, plan_undo
    from group_coordinator.pipeline.admin.reset import parse_time

    plan = plan_undo(root, group) if to is None else plan_return(root, group, parse_time(to))
    _change(root, [plan], execute, format_, timeout)


@offsets_app.command("clone")
def offsets_clone(
    group: str,
    root: Root,
    to: Annotated[str, typer.Option("--to", help="The group that gets the offsets.")],
    topic: Topics = None,
    execute: Execute = False,
    timeout: Timeout = 30_000,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Copy a group's committed offsets to another group, which may be new."""
    from group_coordinator.pipeline.admin.history import plan_clone

    _change(root, [plan_clone(root, group, to, topic or [])], execute, format_, timeout)


@offsets_app.command("delete")
def offsets_delete(
    root: Root,
    groups: GroupNames = None,
    group: GroupOption = None,
    topic: Topics = None,
    execute: Execute = False,
    timeout: Timeout = 30_000,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Delete committed offsets of topics that no member consumes."""
    from group_coordinator.pipeline.admin.history import plan_deletions

    plans = plan_deletions(root, named_groups(groups, group, False), topic or [])
    _change(root, plans, execute, format_, timeout)


@offsets_app.command("diff")
def offsets_diff(
    group: str,
    root: Root,
    from_: Annotated[str, typer.Option("--from", help=f"The earlier time: {_TIME}")],
    to: Annotated[str | None, typer.Option("--to", help="The later time; default: now.")] = None,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Show a group's committed offsets at two times, and the difference."""
    from group_coordinator.pipeline.admin.history import differences
    from group_coordinator.pipeline.admin.reset import parse_time
    from group_coordinator.pipeline.clock import clock_ms

    later = clock_ms() if to is None else parse_time(to)
    found = differences(root, group, parse_time(from_), later)
    columns = [
        Column("TOPIC"),
        Column("PARTITION", 10),
        Column("FROM-OFFSET"),
        Column("TO-OFFSET"),
        Column("MOVED"),
    ]
    rows = [(e.topic, e.partition, e.earlier, e.later, e.moved) for e in found]
    names = ("topic", "partition", "from_offset", "to_offset", "moved")
    print_rows(format_, names, rows, columns)


@offsets_app.command("show")
def offsets_show(group: str, root: Root, format_: Format = OutputFormat.TABLE) -> None:
    """Show the committed offsets of one group, with their metadata and the reason of the commit."""
    from group_coordinator.pipeline.admin.plans import check_groups
    from group_coordinator.pipeline.monitor.catalog import Catalog

    catalog = Catalog(root)
    check_groups(catalog, [group], root)
    found = catalog.query(
        'SELECT topic, "partition", committed_offset, metadata, committed_at, expires_at, reason '
        'FROM committed_offsets WHERE group_id = ? ORDER BY topic, "partition"',
        [group],
    )
    print_result(format_, found)


def _change(
    root: str,
    plans: Sequence[GroupPlan],
    execute: bool,
    format_: OutputFormat,
    timeout_ms: int,
    shown: bool = True,
) -> None:
    if shown:
        _show(plans, format_)
    for plan in plans:
        for note in plan.notes:
            print_note(f"group {plan.group_id!r}: {note}")
    errors = [f"group {p.group_id!r}: {p.problem}" for p in plans if p.problem is not None]
    possible = [plan for plan in plans if plan.changes]
    count = sum(len(plan.changes) for plan in possible)
    if execute and possible:
        from group_coordinator.pipeline.admin.changes import execute_plans

        outcomes = execute_plans(root, possible, timeout_ms / 1000)
        refused = [each.error for each in outcomes if each.error is not None]
        if len(refused) < len(possible):
            done = len(possible) - len(refused)
            offsets = f"{plural(count, 'offset')} of " if not refused else ""
            print_note(f"{offsets}{plural(done, 'group')} changed")
        errors += refused
    elif possible:
        print_note("nothing was changed: add --execute to change the offsets")
    elif not errors:
        print_note("there is nothing to change")
    if errors:
        raise Failure("; ".join(errors))


def _show(plans: Sequence[GroupPlan], format_: OutputFormat) -> None:
    rows = [
        (plan.group_id, each.topic, each.partition, each.current, each.wanted)
        for plan in plans
        for each in plan.changes
    ]
    columns = [
        Column("GROUP"),
        Column("TOPIC"),
        Column("PARTITION", 10),
        Column("CURRENT-OFFSET"),
        Column("NEW-OFFSET"),
    ]
    if rows:
        names = ("group_id", "topic", "partition", "committed_offset", "new_offset")
        print_rows(format_, names, rows, columns)
