"""The verbs `keys`: they manage the keys that sign requests and so prove their principals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from group_coordinator.pipeline.cli.printing import Format, OutputFormat, print_rows

keys_app = typer.Typer(
    help="Make and remove the keys by which requests are signed.", no_args_is_help=True
)

File = Annotated[
    Path, typer.Option("--file", help="The coordinator's file (the setting requests.keys.file).")
]


@keys_app.command("add")
def keys_add(
    name: str,
    file: File,
    principal: Annotated[
        str, typer.Option("--principal", help="Whose requests it signs; `*` for a gateway's key.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="A new file with the key alone, for who is to sign by it.")
    ],
) -> None:
    """Create a key. A coordinator accepts it from its next start."""
    from group_coordinator.pipeline.tables.request_keys import KeysError, add_key, new_key

    if out.exists():
        raise KeysError(f"{out} is there already")
    key = new_key(name, principal)
    add_key(file, key)
    add_key(out, key)
    typer.echo(f"key {name!r} signs the requests of {principal}; it is in {file} and {out}")


@keys_app.command("list")
def keys_list(file: File, format_: Format = OutputFormat.TABLE) -> None:
    """List every key's name, and the principal of the requests that it signs."""
    from group_coordinator.pipeline.tables.request_keys import read_keys

    rows = [(key.name, key.principal) for key in read_keys(file)]
    print_rows(format_, ("name", "principal"), rows)


@keys_app.command("remove")
def keys_remove(name: str, file: File) -> None:
    """Remove a key. A coordinator accepts it until its next start."""
    from group_coordinator.pipeline.tables.request_keys import remove_key

    remove_key(file, name)
    typer.echo(f"key {name!r} removed")
