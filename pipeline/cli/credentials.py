"""The verbs `users` and `keys`: they manage the files of credentials.

A gateway authenticates clients by the file of users. Gateways and clients sign requests with keys,
which prove the requests' principals to a coordinator.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_rows

users_app = typer.Typer(help="Manage the users that may log in to a gateway.", no_args_is_help=True)

UsersFile = Annotated[
    Path, typer.Option("--file", help="The file of users (the setting users.file).")
]


@users_app.command("add")
def users_add(
    name: str,
    file: UsersFile,
    mechanism: Annotated[
        list[str] | None,
        typer.Option("--mechanism", help="SCRAM-SHA-256, SCRAM-SHA-512; both by default."),
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", help="SCRAM iterations, 4096 to 16384: more make guessing slower."
        ),
    ] = 4096,
) -> None:
    """Add a user, or change a user's password. It is read from a prompt or standard input."""
    from group_coordinator.pipeline.gateway.users import (
        UsersError,
        add_user,
        new_credential,
    )
    from group_coordinator.pipeline.gateway_settings import HASHES

    wanted = mechanism or list(HASHES)
    for each in wanted:
        if each not in HASHES:
            raise UsersError(f"unknown mechanism {each!r}: use {', '.join(HASHES)}")
    password = _password(name)
    add_user(file, [new_credential(name, password, each, iterations) for each in wanted])
    typer.echo(f"user {name!r} may log in by PLAIN, {', '.join(wanted)}")


def _password(name: str) -> str:
    """Read the password from a prompt or standard input.

    All users of a machine can read a running command's arguments, so it is not an argument.
    """
    if sys.stdin.isatty():
        return str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\n")


@users_app.command("list")
def users_list(file: UsersFile, format_: Format = OutputFormat.TABLE) -> None:
    """List every user, and the mechanisms for its login."""
    from group_coordinator.pipeline.gateway.users import read_users

    found: dict[str, list[str]] = {}
    for each in read_users(file):
        found.setdefault(each.user, ["PLAIN"]).append(each.mechanism)
    rows: list[tuple[str, str | list[str]]] = [(name, found[name]) for name in sorted(found)]
    if format_ is OutputFormat.TABLE:
        rows = [(name, ", ".join(found[name])) for name, _ in rows]
    print_rows(format_, ("user", "mechanisms"), rows)


@users_app.command("remove")
def users_remove(name: str, file: UsersFile) -> None:
    """Remove a user. The user cannot log in again; open connections stay until they end."""
    from group_coordinator.pipeline.gateway.users import remove_user

    remove_user(file, name)
    typer.echo(f"user {name!r} removed")


keys_app = typer.Typer(help="Manage the keys that sign requests.", no_args_is_help=True)

KeysFile = Annotated[
    Path, typer.Option("--file", help="The coordinator's file (the setting requests.keys.file).")
]


@keys_app.command("add")
def keys_add(
    name: str,
    file: KeysFile,
    principal: Annotated[
        str,
        typer.Option(
            "--principal", help="The principal whose requests it signs; `*` for a gateway."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", help="A new file with only this key, for the process that signs."),
    ],
) -> None:
    """Create a key. A coordinator accepts it from its next start."""
    from group_coordinator.pipeline.tables import KeysError, add_key, new_key

    if out.exists():
        raise KeysError(f"{out} exists already: name a new file")
    key = new_key(name, principal)
    add_key(file, key)
    add_key(out, key)
    typer.echo(f"key {name!r} signs the requests of {principal}; it is in {file} and {out}")


@keys_app.command("list")
def keys_list(file: KeysFile, format_: Format = OutputFormat.TABLE) -> None:
    """List every key's name, and the principal of the requests that it signs."""
    from group_coordinator.pipeline.tables import read_keys

    rows = [(key.name, key.principal) for key in read_keys(file)]
    print_rows(format_, ("name", "principal"), rows)


@keys_app.command("remove")
def keys_remove(name: str, file: KeysFile) -> None:
    """Remove a key. A coordinator accepts it until its next start."""
    from group_coordinator.pipeline.tables import remove_key

    remove_key(file, name)
    typer.echo(f"key {name!r} removed")
