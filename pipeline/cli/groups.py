"""The verbs `groups`: they list, describe and delete consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from group_coordinator.pipeline.cli.options import (
    AllGroups,
    Execute,
    GroupNames,
    GroupOption,
    Root,
    Timeout,
)
from group_coordinator.pipeline.cli.printing import (
    Column,
    Format,
    OutputFormat,
    plural,
    print_note,
    print_structs,
    print_table,
)
from group_coordinator.pipeline.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.admin.descriptions import GroupSummary, MemberSummary

groups_app = typer.Typer(help="List, describe and delete consumer groups.", no_args_is_help=True)

# Kafka's group states and types. Unknown: the group's type is not supported by this release.
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "Unknown")
TYPES = ("classic", "consumer")
# The columns of a table, and the values of a row.
_Layout = tuple[list[Column], Callable[[Any], list[Any]]]


@groups_app.command("list")
def groups_list(
    root: Root,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only these states; separated by commas, or repeated."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="classic or consumer (KIP-848); there are no groups of type consumer."
        ),
    ] = None,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """List every group with its state, and its numbers of members and offsets."""
    states = _choices(state, STATES, "state")
    types = _choices(type_, TYPES, "type")
    from group_coordinator.pipeline.admin.descriptions import ListedGroup, list_groups
    from group_coordinator.pipeline.monitor.catalog import Catalog

    catalog = Catalog(root)
    found = list_groups(catalog, states)
    if types:
        found = [each for each in found if each.type.lower() in types]
    columns = [
        Column("GROUP", 25, "group_id"),
        Column("TYPE", 10, "type"),
        Column("STATE", 20, "state"),
        Column("PROTOCOL", 15, "protocol"),
        Column("GENERATION", 10, "generation"),
        Column("#MEMBERS", 8, "num_members"),
        Column("#OFFSETS", 8, "num_offsets"),
        Column("SINCE", 23, "since"),
        Column("REASON", 15, "reason"),
    ]
    print_structs(format_, ListedGroup, found, columns)


@groups_app.command("describe")
def groups_describe(
    root: Root,
    groups: GroupNames = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show committed offsets and lag (default).")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="Show the members.")] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the states and the coordinators.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Also show leader epochs, assignments and generations."),
    ] = False,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Show the committed offsets and the lag of groups, their members, or their states."""
    if offsets + members + state > 1:
        raise typer.BadParameter("at most one of --offsets, --members and --state")
    named = named_groups(groups, group, all_groups)
    from group_coordinator.pipeline.admin import descriptions
    from group_coordinator.pipeline.admin.plans import check_groups, group_states
    from group_coordinator.pipeline.monitor.catalog import Catalog

    catalog = Catalog(root)
    states = check_groups(catalog, named, root) if named else group_states(catalog, [])
    chosen = sorted(states)
    if members:
        kind: type[Any] = descriptions.MemberSummary
        rows: list[Any] = descriptions.member_summaries(catalog, chosen)
        columns, cells = _member_columns(rows, verbose)
    elif state:
        kind = descriptions.GroupSummary
        rows = descriptions.group_summaries(catalog, chosen)
        columns, cells = _state_columns(verbose)
    else:
        kind = descriptions.PartitionLag
        rows = descriptions.partition_lags(catalog, chosen)
        columns, cells = _lag_columns(verbose)
    if format_ is not OutputFormat.TABLE:
        print_structs(format_, kind, rows)
        return
    of_group: dict[str, list[Any]] = {group_id: [] for group_id in chosen}
    for row in rows:
        of_group[row.group_id].append(cells(row))
    for number, (group_id, mine) in enumerate(of_group.items()):
        if number:
            typer.echo()
        print_table(columns, mine)
        if states[group_id] in ("Empty", "Dead"):
            print_note(f"Consumer group {group_id!r} has no active members.")
        elif states[group_id] != "Stable":
            print_note(f"Warning: Consumer group {group_id!r} is rebalancing.")
    if not members and not state:
        unindexed = descriptions.unindexed_topics(catalog.query, {row.topic for row in rows})
        for topic, since in unindexed.items():
            print_note(
                f"the table of topic {topic!r} has rows since {since:%Y-%m-%d %H:%M:%S} UTC that "
                "are not indexed: LOG-END-OFFSET and LAG do not include them. "
                f"`topics index {topic}` indexes them"
            )


@groups_app.command("delete")
def groups_delete(
    root: Root,
    groups: GroupNames = None,
    group: GroupOption = None,
    all_groups: AllGroups = False,
    execute: Execute = False,
    timeout: Timeout = 30_000,
    format_: Format = OutputFormat.TABLE,
) -> None:
    """Delete Empty groups and their offsets, through the running coordinator."""
    named = named_groups(groups, group, all_groups)
    from group_coordinator.pipeline.admin.changes import delete_groups
    from group_coordinator.pipeline.admin.descriptions import ListedGroup, list_groups
    from group_coordinator.pipeline.monitor.catalog import Catalog

    every = list_groups(Catalog(root))
    known = {each.group_id for each in every}
    errors = [f"there is no group {each!r} under {root}" for each in named if each not in known]
    chosen = [each for each in every if not named or each.group_id in named]
    columns = [
        Column("GROUP", 25, "group_id"),
        Column("STATE", 20, "state"),
        Column("#OFFSETS", 8, "num_offsets"),
    ]
    print_structs(format_, ListedGroup, chosen, columns)
    if execute:
        outcomes = delete_groups(root, [each.group_id for each in chosen], timeout / 1000)
        refused = [each.error for each in outcomes if each.error is not None]
        print_note(f"{plural(len(outcomes) - len(refused), 'group')} deleted")
        errors += refused
    elif chosen:
        print_note("nothing was deleted: add --execute to delete the groups")
    if errors:
        raise Failure("; ".join(errors))


@groups_app.command("validate-regex")
def groups_validate_regex(
    regex: Annotated[str, typer.Argument(help="A regular expression over topics' names.")],
) -> None:
    """Check that a regular expression has RE2's syntax, which Kafka's brokers use."""
    import duckdb

    # DuckDB uses RE2 itself.
    try:
        duckdb.execute("SELECT regexp_matches('', ?)", [regex]).fetchall()
    except duckdb.Error as error:
        why = str(error).partition(": ")[2]
        raise Failure(f"the regular expression `{regex}` is invalid: {why}") from error
    typer.echo(f"The regular expression `{regex}` is valid.")


def named_groups(
    words: Sequence[str] | None, options: Sequence[str] | None, all_groups: bool
) -> list[str]:
    """Return the groups that a command names, as arguments or by --group; none for --all-groups."""
    named = list(dict.fromkeys([*(words or ()), *(options or ())]))
    if all_groups == bool(named):
        raise typer.BadParameter("name the groups, or give --all-groups")
    return named


def _choices(given: Sequence[str] | None, known: Sequence[str], what: str) -> list[str]:
    words = [word.strip().lower() for text in given or () for word in text.split(",")]
    for word in words:
        if word not in {each.lower() for each in known}:
            raise typer.BadParameter(f"{word!r} is not a group {what}: use {', '.join(known)}")
    return words


# --- Kafka's columns ------------------------------------------------------------------------------


def _lag_columns(verbose: bool) -> _Layout:
    fields = [
        ("GROUP", 15, "group_id"),
        ("TOPIC", 15, "topic"),
        ("PARTITION", 10, "partition"),
        *([("LEADER-EPOCH", 15, "leader_epoch")] if verbose else []),
        ("CURRENT-OFFSET", 15, "committed_offset"),
        ("LOG-END-OFFSET", 15, "log_end_offset"),
        ("LAG", 15, "lag"),
        ("CONSUMER-ID", 15, "member_id"),
        ("HOST", 15, "client_host"),
        ("CLIENT-ID", 0, "client_id"),
    ]
    return _layout(fields)


def _member_columns(members: Sequence[MemberSummary], verbose: bool) -> _Layout:
    fields = [
        ("GROUP", 15, "group_id"),
        ("CONSUMER-ID", 15, "member_id"),
        *(
            [("GROUP-INSTANCE-ID", 17, "group_instance_id")]
            if any(each.group_instance_id for each in members)
            else []
        ),
        ("HOST", 15, "client_host"),
        ("CLIENT-ID", 15, "client_id"),
        ("#PARTITIONS", 15, "num_partitions"),
    ]
    if not verbose:
        return _layout(fields)
    columns, cells = _layout([*fields, ("CURRENT-EPOCH", 15, ""), ("CURRENT-ASSIGNMENT", 20, "")])
    columns += [Column("TARGET-EPOCH"), Column("TARGET-ASSIGNMENT", 20)]
    # Epochs and targets exist only in KIP-848's groups. The columns are printed empty for scripts
    # that count columns.
    return columns, lambda row: [*cells(row)[:-2], None, _assigned(row), None, None]


def _assigned(member: MemberSummary) -> str | None:
    """Return a member's assignment in the format of Kafka's tool: `TOPIC:0,2;TOPIC:1`."""
    if member.assignment is None:
        return None
    topics = ((each["topic"], sorted(each["partitions"])) for each in member.assignment)
    return ";".join(sorted(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics))


def _state_columns(verbose: bool) -> _Layout:
    columns, _ = _layout(
        [
            ("GROUP", 15, ""),
            ("COORDINATOR (ID)", 25, ""),
            ("ASSIGNMENT-STRATEGY", 20, ""),
            ("STATE", 20, ""),
            *([("GROUP-EPOCH", 15, ""), ("TARGET-ASSIGNMENT-EPOCH", 25, "")] if verbose else []),
            ("#MEMBERS", 0, ""),
        ]
    )

    def cells(each: GroupSummary) -> list[Any]:
        where = None if each.node_id is None else f"{each.host}:{each.port}  ({each.node_id})"
        epochs = [None, None] if verbose else []
        strategy = each.protocol
        return [each.group_id, where, strategy, each.state, *epochs, each.num_members]

    return columns, cells


def _layout(fields: Sequence[tuple[str, int, str]]) -> _Layout:
    columns = [Column(name, width) for name, width, _ in fields]
    # As in Kafka's tool, a member without an instance id has an empty cell.
    blank = {"group_instance_id": ""}

    def cells(row: Any) -> list[Any]:
        values = ((field, getattr(row, field, None)) for _, _, field in fields)
        return [blank.get(field) if value is None else value for field, value in values]

    return columns, cells
