"""Options that several verbs share, and their progress output."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.logs import LogFormat


def _expanded(root: str) -> str:
    """Replace a leading `~` by the home folder: shells do not do it in `--root=~/groups`."""
    return os.path.expanduser(root)


def _checked_release(root: str) -> str:
    from group_coordinator.pipeline.tables import check_release

    root = _expanded(root)
    check_release(root)
    return root


_ROOT = "The folder or URI of the tables."
Root = Annotated[str, typer.Option("--root", help=_ROOT, callback=_expanded)]
# The root of verbs that write, or that serve written tables. Verbs that only query the views need
# no check, because `Catalog` refuses tables of a later release.
OwnRoot = Annotated[str, typer.Option("--root", help=_ROOT, callback=_checked_release)]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file that overrides settings of conf/coordinator.toml."),
]
LogForm = Annotated[
    LogFormat, typer.Option("--log-format", help="Text lines for people, or JSON Lines.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print all log records, also Spark's warnings.")
]
GroupNames = Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...")]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", help="As GROUP; may be repeated.")
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every group of the root.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Only this topic, or TOPIC:0,2 for some partitions; repeatable."),
]
AllTopics = Annotated[
    bool,
    typer.Option("--all-topics", help="All topics with committed offsets, as without --topic."),
]
Execute = Annotated[
    bool,
    typer.Option("--execute/--dry-run", help="Make the changes; without it, only show them."),
]
Timeout = Annotated[
    int, typer.Option("--timeout", min=1, help="The time for the coordinator to answer, ms.")
]
Json = Annotated[bool, typer.Option("--json", help="Report as JSON Lines.")]


def print_progress(text: str) -> None:
    """Print the progress of a long run, on standard error."""
    typer.echo(text, err=True)
