"""Repair of a root's tables: torn tables become readable, and altered tables become plain.

A power cut may leave a table torn. The rows of torn commits are lost: they may have been
acknowledged, and a streaming checkpoint may count their batch as written. `log.flush.enable`
prevents this for batches. The repair of an altered table loses no rows
(`pipeline.delta.feature_removal`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from group_coordinator.pipeline.delta import (
    STORE_FAILS,
    asked_features,
    find_torn,
    is_table,
    local_folder,
    make_plain,
    mend,
)
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.tables import table_uri
from group_coordinator.pipeline.topics import read_definitions
from group_coordinator.schemas.tables import ON_DEMAND, TABLES

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Torn

# The columns that all releases require, by table.
_REQUIRED = {table.name: tuple(table.required) for table in (*TABLES.values(), *ON_DEMAND)}


class RepairResult(Struct, frozen=True):
    """The faults of one table.

    `torn` lists its torn commits and Delta checkpoints, `asks_for` the table features that it needs
    beyond plain files. `mended`: whether the repair was executed. `failure` says why it was not.
    """

    table: str
    torn: list[Torn]
    mended: bool
    failure: str | None = None
    asks_for: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the result as lines of text: one for each torn file, and one for the features."""
        if self.failure is not None:
            return [self.failure]
        done = "voided" if self.mended else "to be voided"
        lines = [f"{self.table}: {each.line()}: {done}" for each in self.torn]
        if self.asks_for:
            done = "plain again" if self.mended else "to be made plain"
            lines.append(f"{self.table}: asks for {', '.join(self.asks_for)}: {done}")
        return lines


def repair(root: str, execute: bool = False) -> list[RepairResult]:
    """Find the torn and altered tables of a root; with `execute`, repair them.

    Returns a result for each table with a fault; one that cannot be repaired has a failure. No
    process may use the root meanwhile. In an object store no table can be torn, and tables of
    topics are not checked there. Raises OSError if a file cannot be read.
    """
    folder = local_folder(root)
    if folder is None:
        uris = {each.name: table_uri(root, each) for each in (*TABLES.values(), *ON_DEMAND)}
        found = {name: uri for name, uri in uris.items() if is_table(uri)}
    else:
        logs = [*folder.glob("*/_delta_log"), *folder.glob("*/*/_delta_log")]
        tables = sorted(log.parent for log in logs)
        found = {str(each.relative_to(folder)): str(each) for each in tables}
    names = {each.name for each in (*TABLES.values(), *ON_DEMAND)}
    others = {name: uri for name, uri in found.items() if name not in names}
    foreign = {} if folder is None or not others else _users_tables(root, others)
    results = (_repair_table(name, uri, execute, foreign.get(name)) for name, uri in found.items())
    return [each for each in results if each is not None]


def _users_tables(root: str, found: dict[str, str]) -> dict[str, str]:
    """Return the tables that must not be changed, with the reason: users' tables that are topics.

    If the definitions of topics cannot be read, returns all tables in `found`.
    """
    try:
        defined = read_definitions(root)
    except STORE_FAILS as error:
        why = f"whose table it is cannot be read ({first_line(error)}): run `repair` once more"
        return dict.fromkeys(found, why)
    tables = (local_folder(each.table) for each in defined if each.config is None)
    users = {os.path.realpath(each) for each in tables if each is not None}
    return {
        name: "it is a user's table, which `repair` does not change: void the commit by its engine"
        for name, uri in found.items()
        if os.path.realpath(local_folder(uri) or uri) in users
    }


def _repair_table(
    name: str, uri: str, execute: bool, why_left: str | None = None
) -> RepairResult | None:
    """Return the faults of a table, None if it has none; with `why_left` change nothing."""
    folder = local_folder(uri)
    torn = [] if folder is None else find_torn(folder)
    result = RepairResult(name, torn, mended=False)
    if why_left is not None:
        if not torn:
            return None
        told = "; ".join(each.line() for each in torn)
        return structs.replace(result, failure=f"{name}: {told}: {why_left}")
    try:
        if folder is not None and torn and execute:
            result = structs.replace(result, torn=mend(folder, torn))
        # The log of a torn table cannot be read, so its features are unknown.
        asks_for = () if torn and not execute else asked_features(uri)
        if asks_for and execute:
            make_plain(uri, _REQUIRED.get(uri.rstrip("/").rpartition("/")[2], ()))
    except Failure as error:
        return structs.replace(result, failure=str(error))
    if not torn and not asks_for:
        return None
    return structs.replace(result, mended=execute, asks_for=asks_for)
