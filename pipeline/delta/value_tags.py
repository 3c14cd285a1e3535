"""Tags of a file that name the values of a column: who wants other values need not open the file.

Delta's statistics tell the least and the greatest value, which says nothing of what lies between.
An add action may have tags, names and texts that a reader may ignore. Opening a Parquet file of ten
rows takes 2.5 ms of CPU and its tag 0.1, so of several readers that share a table's rows by such a
column, each pays for the files that have rows of its own. Source: Delta's PROTOCOL.md, "Add File".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

# More values than these are not named: a commit stays about as long as it is.
MOST_VALUES = 16
MOST_CHARS = 2_000

_PREFIX = "group-coordinator.values."
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str | None]).decode


def value_tags(rows: pa.Table, column: str) -> dict[str, str]:
    """Return the tag that names all values of a column of strings, null among them.

    There is none if the values are more, or longer, than is worth their room in the commit.
    """
    values = rows.column(column).unique()
    if not 0 < len(values) <= MOST_VALUES:
        return {}
    text = _encode(values.to_pylist()).decode()
    return {_PREFIX + column: text} if len(text) <= MOST_CHARS else {}


def tagged_values(tags: Mapping[str, str | None] | None, column: str) -> list[str | None] | None:
    """Return the values that a file's tag names; None if it has no such tag, or none that says so.

    A tag of another writer that cannot be read is no reason to pass the file over.
    """
    text = (tags or {}).get(_PREFIX + column)
    if text is None:
        return None
    try:
        return _decode(text) or None
    except msgspec.MsgspecError:
        return None
