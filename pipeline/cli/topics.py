"""The verbs `topics`: they manage the catalogue of topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from group_coordinator.pipeline.cli.options import OwnRoot, Root
from group_coordinator.pipeline.cli.printing import (
    Column,
    Format,
    OutputFormat,
    print_note,
    print_result,
    print_table,
)
from group_coordinator.pipeline.errors import Failure

topics_app = typer.Typer(help="Create, change, describe and delete topics.", no_args_is_help=True)


Partitions = Annotated[int, typer.Option("--partitions", help="The number of partitions.")]


@topics_app.command("create")
def topics_create(
    name: str,
    root: OwnRoot,
    partitions: Partitions,
    table: Annotated[
        str | None,
        typer.Option(
            "--table", help="The folder or URI of a Delta table whose rows are the records."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The column of a record's key.")] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", help="Instead of --key: the column with a row's partition."),
    ] = None,
    value: Annotated[
        str, typer.Option("--value", help="A record's value: `json` is the row, or a column.")
    ] = "json",
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp", help="The column of a record's time; default: the time of its commit."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="NAME=VALUE, such as retention.ms=3600000; repeatable."),
    ] = None,
    create_root: Annotated[
        bool, typer.Option("--create-root", help="Create the root if it does not exist.")
    ] = False,
) -> None:
    """Create a topic. The first one creates the catalogue; other topics' commits are then refused.

    Clients produce to the topic through a gateway. Its records are rows of a new Delta table under
    the root. With --table the rows of your Delta table are its records instead.
    """
    from group_coordinator.pipeline.tables import has_root
    from group_coordinator.pipeline.topics import create_log_topic, create_table_topic

    if not create_root and not has_root(root):
        raise Failure(f"there is no root {root}; --create-root creates it")
    if table is None:
        if key or partition or timestamp or value != "json":
            raise typer.BadParameter("--key, --partition, --value and --timestamp need --table")
        topic = create_log_topic(root, name, partitions, _configs(config))
        where = f"; its records are rows of {root.rstrip('/')}/{topic.table}"
    else:
        if config:
            raise typer.BadParameter("--config is for a topic without --table")
        create_table_topic(
            root,
            name,
            partitions,
            table,
            key=key,
            partition=partition,
            value=None if value == "json" else value,
            timestamp=timestamp,
        )
        _index(root, name)
        where = ""
    typer.echo(f"topic {name!r} created with {_counted(partitions)}{where}")


def _configs(given: list[str] | None) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"--config {text!r} is not NAME=VALUE")
        found[name] = value
    return found


@topics_app.command("index")
def topics_index(name: str, root: OwnRoot) -> None:
    """Index new rows of a topic's table. Readers of the topic do so themselves."""
    _index(root, name)


@topics_app.command("reindex")
def topics_reindex(name: str, root: OwnRoot) -> None:
    """Restart a topic with its table's present rows, at offsets after all previous ones.

    Use it for a table with deleted or changed rows, or with a log that was cleaned up before it was
    indexed. Until the restart, the topic ends before the change or the missing commit. Afterwards
    groups read all rows of the table.
    """
    from group_coordinator.pipeline.topics import TableTopics

    topics = TableTopics(root, [name])
    topics.catch_up()
    topics.reindex(name)
    _index(root, name)


def _index(root: str, name: str) -> None:
    from group_coordinator.pipeline.topics import TableTopics

    topics = TableTopics(root, [name])
    topics.catch_up()
    topics.check_follows(name)
    count = sum(
        topics.log_end(name, number) - topics.log_start(name, number)
        for number in range(topics.topics()[name])
    )
    typer.echo(f"topic {name!r} has {count} records of its table")


@topics_app.command("alter")
def topics_alter(name: str, root: OwnRoot, partitions: Partitions) -> None:
    """Increase the number of partitions of a topic."""
    from group_coordinator.pipeline.tables import alter_topic

    alter_topic(root, name, partitions)
    typer.echo(f"topic {name!r} has {_counted(partitions)}")


_TOPICS = """
SELECT topic, partitions, changed_at, table_location AS "table", key_column, partition_column,
       value_column, timestamp_column, config, topic_id
FROM topics ORDER BY topic
"""


@topics_app.command("list")
def topics_list(root: Root, format_: Format = OutputFormat.TABLE) -> None:
    """List every topic of the catalogue, its number of partitions, and its table if it has one."""
    from group_coordinator.pipeline.monitor.catalog import LOGS, Catalog

    catalog = Catalog(root)
    rows = catalog.query(_TOPICS)
    print_result(format_, rows)
    if not catalog.has_table(LOGS["topics"]):
        typer.echo("there is no catalogue of topics: every topic name is accepted", err=True)


# The log start and end of each partition, which are known only for topics with tables.
_PARTITIONS = """
SELECT topic, "partition", log_start_offset, log_end_offset, newest_record_at, unindexed_since
FROM (
    SELECT topic, CAST(unnest(generate_series(0, partitions - 1)) AS INTEGER) AS "partition"
    FROM topics WHERE topic = ?
) LEFT JOIN topic_ends USING (topic, "partition")
ORDER BY "partition"
"""
# The use of a topic's columns, if the topic is a user's table.
_COLUMNS = {
    "key_column": "key",
    "partition_column": "partition",
    "value_column": "value",
    "timestamp_column": "timestamp",
}


@topics_app.command("describe")
def topics_describe(name: str, root: Root, format_: Format = OutputFormat.TABLE) -> None:
    """Show a topic's partitions with log start and log end, and the table of its records."""
    from group_coordinator.pipeline.monitor.catalog import Catalog

    catalog = Catalog(root)
    found = catalog.query("SELECT * FROM topics WHERE topic = ?", [name]).as_dicts()
    if not found:
        raise Failure(f"there is no topic {name!r} in the catalogue of {root}")
    result = catalog.query(_PARTITIONS, [name])
    if format_ is OutputFormat.TABLE:
        columns = [Column(each.upper().replace("_", "-")) for each in result.columns]
        print_table(columns, result.rows)
    else:
        print_result(format_, result)
    for line in _topic_notes(found[0]):
        print_note(line)


def _topic_notes(topic: dict[str, Any]) -> list[str]:
    if topic["table_location"] is None:
        return ["it has no table, so its end offsets are unknown"]
    records = f"its records are the rows of {topic['table_location']}"
    if topic["config"] is not None:
        return [records, f"its configs: {topic['config']}"]
    of = [f"its {what} is the column {topic[c]!r}" for c, what in _COLUMNS.items() if topic[c]]
    return [records, *of]


@topics_app.command("delete")
def topics_delete(name: str, root: OwnRoot) -> None:
    """Delete a topic, and through the coordinator the offsets that groups committed for it."""
    from group_coordinator.pipeline.admin.changes import delete_topic

    groups = delete_topic(root, name)
    offsets = f"; the coordinator deletes its offsets of {groups} groups" if groups else ""
    typer.echo(f"topic {name!r} deleted{offsets}")


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
