"""The table of groups in a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from group_coordinator.pipeline.admin.plans import UnknownGroup
from group_coordinator.pipeline.clock import monotonic, sleep
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.quoting import quoted
from group_coordinator.pipeline.terminal import open_console
from group_coordinator.pipeline.ui.formats import (
    UNKNOWN,
    ago,
    duration,
    milliseconds,
    number,
    spans,
    tone,
    utc,
)
from group_coordinator.pipeline.ui.group import GroupPage, read_group
from group_coordinator.pipeline.ui.groups import GroupFilter, GroupList, list_groups
from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

_STYLES = {"ok": "green", "warn": "yellow", "bad": "red", "mute": "dim"}
# Screen lines that are not rows of the table: title, header, borders, the line below.
_FRAME = 9
_MOST_WITHOUT_TERMINAL = 100


def watch(root: str, group_id: str | None, every_s: float, once: bool) -> None:
    """Show the groups of a root, or one of them, until Ctrl-C; with `once` print them once.

    The worst groups come first. While the tables cannot be read, the last output stays, with the
    reason below it. Raises NoRoot and UnknownGroup at the start.
    """
    console = open_console()
    shown = _read_screen(root, group_id, console, 1)
    if once:
        console.print(shown)
        return
    with Live(shown, console=console, auto_refresh=False, screen=console.is_terminal) as live:
        try:
            _refresh_until_interrupted(root, group_id, every_s, console, live, shown)
        except KeyboardInterrupt:
            return


def _refresh_until_interrupted(
    root: str,
    group_id: str | None,
    every_s: float,
    console: Console,
    live: Live,
    shown: RenderableType,
) -> None:
    count = 1
    while True:
        began = monotonic()
        sleep(every_s)
        count += 1
        try:
            shown = _read_screen(root, group_id, console, count)
            live.update(shown, refresh=True)
        except STORE_FAILS as error:
            live.update(Group(shown, Text(quoted(first_line(error)), "red")), refresh=True)
        # Sleep as long as a slow reading took, so that a large root is read half of the time.
        sleep(max(0.0, monotonic() - began - 2 * every_s))


def _read_screen(root: str, group_id: str | None, console: Console, count: int) -> RenderableType:
    snapshot = RootSnapshot(root, count)
    if group_id is None:
        most = console.height - _FRAME if console.is_terminal else _MOST_WITHOUT_TERMINAL
        return groups_table(snapshot, list_groups(snapshot, GroupFilter(sort="worst")), most)
    found = read_group(snapshot, group_id)
    if not found.is_known:
        raise UnknownGroup(f"there is no group {group_id!r} under {root}")
    return group_tables(snapshot, found)


def groups_table(snapshot: RootSnapshot, listed: GroupList, most: int) -> RenderableType:
    """Return a table of the first `most` listed groups."""
    title = Text.assemble(
        (f"{number(listed.total)} groups", "bold"),
        *(
            (f"   {number(count)} {verdict}", _STYLES[tone(verdict)])
            for verdict, count in listed.verdicts.items()
        ),
        (f"   {utc(snapshot.at)} UTC", "dim"),
    )
    table = _table("group", "state", "verdict", "lag>", "behind by>", "members>", "last change")
    for row in listed.rows[: max(1, most)]:
        table.add_row(
            Text(quoted(row["group_id"])),
            _toned(row["state"]),
            _toned(row["verdict"]),
            number(row["lag"]),
            duration(row["lag_seconds"]),
            number(row["num_members"]),
            Text(
                quoted(f"{ago(row['since'], snapshot.at_ms)}  {row['reason'] or ''}"),
                no_wrap=True,
                overflow="ellipsis",
            ),
        )
    rest = listed.total - min(len(listed.rows), max(1, most))
    below = Text(f"and {number(rest)} more" if rest > 0 else "", "dim")
    return Group(title, table, below)


def group_tables(snapshot: RootSnapshot, group: GroupPage) -> RenderableType:
    """Return a group's state, its members, its partitions and its latest chapters."""
    head = group.head
    parts: list[RenderableType] = [
        Text.assemble((quoted(group.group_id), "bold"), (f"   {utc(snapshot.at)} UTC", "dim"))
    ]
    if head is None:
        parts.append(Text("this group does not exist any more", "yellow"))
    else:
        parts.append(
            Text.assemble(
                _toned(head["state"]),
                "  ",
                _toned(head["verdict"]),
                f"  generation {head['generation']}, {number(head['num_members'])} members, "
                f"lag {number(head['lag'])}, behind by {duration(head['lag_seconds'])}",
            )
        )
    members = _table("client", "member", "host", "holds")
    for member in group.members:
        holds = member.holds or {}
        held = ", ".join(f"{topic} {spans(numbers)}" for topic, numbers in holds.items())
        told = (member.client_id, member.member_id, member.client_host, held)
        members.add_row(*(Text(quoted(each)) for each in told))
    lags = _table("topic", "partition>", "committed>", "end>", "lag>", "behind by>", "verdict")
    for each in group.partitions:
        lags.add_row(
            Text(quoted(each.topic)),
            str(each.partition),
            number(each.committed_offset),
            number(each.log_end_offset),
            number(each.lag),
            duration(each.lag_seconds),
            _toned(each.verdict),
        )
    parts += [table for table in (members, lags) if table.row_count]
    parts += [Text(quoted(line)) for line in _chapters(group)]
    return Group(*parts)


def _chapters(group: GroupPage) -> Iterable[str]:
    for chapter in group.chapters[:5]:
        took = f" in {milliseconds(chapter.ms)}" if chapter.ms is not None else ""
        what = f"generation {chapter.generation}{took}" if chapter.is_rebalance else "before"
        yield f"{utc(chapter.began_at)}  {what}  {chapter.reason or ''}"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        right = name.endswith(">")
        table.add_column(name.rstrip(">"), justify="right" if right else "left", overflow="fold")
    return table


def _toned(name: str | None) -> Text:
    return Text(quoted(name or UNKNOWN), _STYLES[tone(name)])
