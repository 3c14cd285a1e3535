"""`topics`: the catalogue of topics."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.cli.options import Json, Root

topics_app = typer.Typer(help="The catalogue of topics.", no_args_is_help=True)


Partitions = Annotated[int, typer.Option("--partitions", help="How many partitions it has.")]


@topics_app.command("create")
def topics_create(name: str, root: Root, partitions: Partitions) -> None:
    """Create a topic; the first one makes the catalogue, outside of which no topic is taken."""
    from pipeline.tables.topics import create_topic

    create_topic(root, name, partitions)
    typer.echo(f"topic {name!r} created with {_counted(partitions)}")


@topics_app.command("alter")
def topics_alter(name: str, root: Root, partitions: Partitions) -> None:
    """Give a topic more partitions."""
    from pipeline.tables.topics import alter_topic

    alter_topic(root, name, partitions)
    typer.echo(f"topic {name!r} has {_counted(partitions)}")


@topics_app.command("list")
def topics_list(root: Root, json: Json = False) -> None:
    """Every topic of the catalogue and its number of partitions."""
    from pipeline.cli.show import show_query
    from pipeline.tables.topics import has_catalogue

    show_query(root, "SELECT * FROM topics ORDER BY topic", json)
    if not has_catalogue(root):
        typer.echo("there is no catalogue: every topic is taken", err=True)


@topics_app.command("delete")
def topics_delete(name: str, root: Root) -> None:
    """Delete a topic, and through the coordinator the offsets that groups committed for it."""
    from pipeline.client.admin import delete_topic

    groups = delete_topic(root, name)
    offsets = f"; the coordinator deletes its offsets of {groups} groups" if groups else ""
    typer.echo(f"topic {name!r} deleted{offsets}")


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'' if partitions == 1 else 's'}"
