"""The commits of a table from a version on, and the files that they added, on any store.

In a store each commit and each file is a request, nearly all of which is waiting. So they are asked
for side by side: each commit's files as soon as the commit is there, and while that one is read the
next ones. How many there are is known to who reads up to a version. Who reads to the end of the log
asks for one commit behind it, and for more only after several were there: to ask for what is not
there costs as much.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from pyarrow.fs import FileSystem

from group_coordinator.pipeline import background
from group_coordinator.pipeline.delta.commit import parse_commit
from group_coordinator.pipeline.delta.commit_reader import read_commit
from group_coordinator.pipeline.delta.side_by_side import AT_ONCE
from group_coordinator.pipeline.delta.store_files import is_in_store

# Which row groups of a file are wanted, by its commit's version and its tags; None: the tags do not
# say, so that all are.
Wanted = Callable[[int, "Mapping[str, str | None] | None"], "Sequence[bool] | None"]

# The files of a commit are asked for before their turn if they take up to this size, bytes: they
# wait in memory.
_SMALL_BYTES = 1 << 20


class NewFile(NamedTuple):
    """A file that a commit added: which of its row groups are wanted, None for all; and `open`.

    `open` may be called once, and raises FileNotFoundError if the file is gone.
    """

    path: str
    wanted: Sequence[bool] | None
    open: Callable[[], pa.NativeFile]


def new_files(
    files: FileSystem, version: int, wanted: Wanted | None, last: int | None = None
) -> Iterator[list[NewFile]]:
    """Yield the wanted files of each commit from `version` on, as far as there are commits.

    A commit that removes files is a rewrite and has none; so has one without a wanted row group.
    `last`, if it is known, is a version that is there and behind which nothing is asked for.
    """
    read = functools.partial(_read, files, wanted)
    found: list[NewFile] | None = None
    if not is_in_store(files):
        while (found := read(version)) is not None:
            yield found
            version += 1
        return
    asking: deque[Future[list[NewFile] | None]] = deque()
    ask_next, count = version, 0
    while True:
        # Of what is known to be there as many as may be under way, and otherwise at least one.
        most = max(1, count // 2) if last is None else last + 1 - ask_next + len(asking)
        while len(asking) < min(AT_ONCE, most):
            asking.append(background.submit(_beside(), functools.partial(read, ask_next)))
            ask_next += 1
        if found is not None:
            yield found
        found = asking.popleft().result() if asking else None
        if found is None:
            return
        count += 1


def _read(files: FileSystem, wanted: Wanted | None, version: int) -> list[NewFile] | None:
    content = read_commit(files, version)
    if content is None:
        return None
    actions = parse_commit(content)
    if any(action.remove is not None for action in actions):
        return []
    adds = [action.add for action in actions if action.add is not None]
    flags = [None if wanted is None else wanted(version, add.tags) for add in adds]
    if all(each is not None and not any(each) for each in flags):
        return []
    sizes = [_SMALL_BYTES if add.size is None else add.size for add in adds]
    is_ahead = is_in_store(files) and sum(sizes) <= _SMALL_BYTES
    return [
        NewFile(add.file, each, _opener(files, add.file, is_ahead))
        for add, each in zip(adds, flags, strict=True)
    ]


def _opener(files: FileSystem, path: str, is_ahead: bool) -> Callable[[], pa.NativeFile]:
    opener: Callable[[], pa.NativeFile] = functools.partial(files.open_input_file, path)
    if is_ahead:
        return background.submit(_beside(), opener).result
    return opener


@functools.lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """The threads that ask, for all readers of the process."""
    return ThreadPoolExecutor(AT_ONCE, "read-ahead")
