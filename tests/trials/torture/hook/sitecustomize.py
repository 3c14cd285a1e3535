"""Hook that makes reads of a coordinator's Python processes fail while the torture requests it.

Python imports this module at its start if this folder is on PYTHONPATH: in the driver, and in the
processes that Spark starts. The product does not know it. The variable TORTURE_READS names a file.
While this file exists, reads below the root in its first line fail at random; its second line is
the share of failing reads. An audit hook sees reads by Python; reads by Arrow and delta-rs are
patched. The kind of each failed read is appended as a line to the file with the suffix `FAILED`.
"""

from __future__ import annotations

import errno
import importlib
import importlib.abc
import importlib.util
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

VARIABLE = "TORTURE_READS"
FAILED = ".failed"
SHORT = "short read"
KINDS = {"EIO": errno.EIO, "EMFILE": errno.EMFILE, "folder away": errno.ENOENT, SHORT: errno.EIO}
# The interval at which the file is read, s.
_LOOK_S = 0.05


class Reads:
    """The reads of this process."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._looked_at = -_LOOK_S
        self._root, self._share = "", 0.0
        self._is_looking = False

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of Python's audit hooks."""
        if event in ("os.listdir", "os.scandir") or (
            event == "open" and arguments[2] & os.O_ACCMODE == os.O_RDONLY
        ):
            self.read(arguments[0])

    def read(self, path: object) -> None:
        """Take note of a read; raises OSError if it is to fail."""
        if self._is_looking:
            return
        self._is_looking = True
        try:
            self._look()
            # An open table of delta-rs has a URL.
            text = str(path).removeprefix("file://")
            if not self._root or not text.startswith(self._root) or random.random() > self._share:
                return
            kind = random.choice(list(KINDS))
            with open(self._file + FAILED, "a") as failed:
                failed.write(f"{kind}\n")
            raise OSError(KINDS[kind], os.strerror(KINDS[kind]), text)
        finally:
            self._is_looking = False

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        try:
            with open(self._file) as said:
                root, share = said.read().split("\n")
            self._root, self._share = root, float(share)
        except (OSError, ValueError):
            self._root = ""


_READER = "group_coordinator.pipeline.delta.store_files"
_DATASETS = "group_coordinator.pipeline.delta.data_file"


class _Files:
    """An Arrow file system that reports each opened file as a read."""

    def __init__(self, files: Any, uri: str, reads: Reads) -> None:
        self._files, self._uri, self._reads = files, uri, reads

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        # Spark's workers get one by pickle, and have a hook of their own.
        return _open_files, (self._uri,)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name not in ("open_input_file", "open_input_stream"):
            return found

        def opened(path: str) -> Any:
            self._reads.read(f"{self._uri}/{path}")
            return found(path)

        return opened


def _open_files(uri: str) -> Any:
    return importlib.import_module(_READER).open_files(uri)


class _Patching(importlib.abc.MetaPathFinder):
    """A finder that patches modules when they are imported, before other modules can use them."""

    def __init__(self, patches: dict[str, Callable[[Any], None]]) -> None:
        self._patches = patches

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: Any = None) -> Any:
        patch = self._patches.pop(fullname, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install(reads: Reads) -> None:
    """Report all reads of this process to `reads`."""

    def patch_deltalake(module: Any) -> None:
        class Table(module.DeltaTable):  # type: ignore[misc]
            def __init__(self, table_uri: Any, *rest: Any, **options: Any) -> None:
                reads.read(table_uri)
                super().__init__(table_uri, *rest, **options)

            def update_incremental(self) -> None:
                reads.read(self.table_uri)
                super().update_incremental()

            def to_pyarrow_dataset(self, *rest: Any, **options: Any) -> Any:
                reads.read(self.table_uri)
                return super().to_pyarrow_dataset(*rest, **options)

        module.DeltaTable = Table

    originals = []

    def patch_reader(module: Any) -> None:
        originals.append(module.open_files)
        module.open_files = lambda uri: _Files(originals[0](uri), uri, reads)

    def patch_datasets(module: Any) -> None:
        # A dataset's files are opened in Arrow, which takes no other file systems than its own.
        module.open_files = originals[0]

    patches: dict[str, Callable[[Any], None]] = {
        "deltalake": patch_deltalake,
        _READER: patch_reader,
        _DATASETS: patch_datasets,
    }
    sys.meta_path.insert(0, _Patching(patches))
    sys.addaudithook(reads.heard)


if VARIABLE in os.environ:
    install(Reads(os.environ[VARIABLE]))
