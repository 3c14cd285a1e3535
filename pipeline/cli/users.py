"""The verbs `users`: they manage the file of users that may log in to a gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_rows

users_app = typer.Typer(help="Say who may log in to a gateway.", no_args_is_help=True)

File = Annotated[Path, typer.Option("--file", help="The file of users (the setting users.file).")]


@users_app.command("add")
def users_add(
    name: str,
    file: File,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", help="SCRAM-SHA-256, SCRAM-SHA-512; both by default."),
    ] = None,
    iterations: Annotated[
        int, typer.Option("--iterations", help="4096 to 16384: more make guessing slower.")
    ] = 4096,
) -> None:
    """Add a user, or change a user's password. It is read from a prompt or standard input."""
    from group_coordinator.pipeline.gateway.security.users import (
        UsersError,
        add_user,
        new_credential,
    )
    from group_coordinator.pipeline.gateway_settings import HASHES

    wanted = mechanism or list(HASHES)
    for each in wanted:
        if each not in HASHES:
            raise UsersError(f"{each!r} is none of {', '.join(HASHES)}")
    password = _password(name)
    add_user(file, [new_credential(name, password, each, iterations) for each in wanted])
    typer.echo(f"user {name!r} may log in by PLAIN, {', '.join(wanted)}")


def _password(name: str) -> str:
    """Read the password from a prompt or standard input.

    It is not an argument, because all users of the machine can read the arguments of a running
    command.
    """
    if sys.stdin.isatty():
        return str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\n")


@users_app.command("list")
def users_list(file: File, format_: Format = OutputFormat.TABLE) -> None:
    """List every user, and the mechanisms for its login."""
    from group_coordinator.pipeline.gateway.security.users import read_users

    found: dict[str, list[str]] = {}
    for each in read_users(file):
        found.setdefault(each.user, ["PLAIN"]).append(each.mechanism)
    rows: list[tuple[str, str | list[str]]] = [(name, found[name]) for name in sorted(found)]
    if format_ is OutputFormat.TABLE:
        rows = [(name, ", ".join(found[name])) for name, _ in rows]
    print_rows(format_, ("user", "mechanisms"), rows)


@users_app.command("remove")
def users_remove(name: str, file: File) -> None:
    """Remove a user. The user cannot log in again; open connections stay until they end."""
    from group_coordinator.pipeline.gateway.security.users import remove_user

    remove_user(file, name)
    typer.echo(f"user {name!r} removed")
