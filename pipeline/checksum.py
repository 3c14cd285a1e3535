"""Delta's version checksum file, `<version>.crc`, for commits of ours.

delta-rs writes none. Without it Spark reads protocol and metadata back out of the log by a query of
its own whenever the table has a new version: 110 to 170 ms of every batch that has requests. With it
the newest file answers, in a few ms. A missing file costs that time and nothing else, so failing to
write one is no failure. Only on local disks: elsewhere the file would have to be written atomically
by other means, and latency is not counted in milliseconds.
"""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

log = logging.getLogger(__name__)


class ChecksumWriter:
    """Writes the checksum file of the version that a handle has just committed.

    Source: Delta's PROTOCOL.md, "Version Checksum File".
    """

    def __init__(self, handle: DeltaTable) -> None:
        url = urlparse(handle.table_uri)
        self._handle = handle
        self._folder: Path | None = None
        if url.scheme in ("", "file"):
            self._folder = Path(unquote(url.path)) / "_delta_log"
        self._version = -1
        self._bytes = 0
        self._files = 0

    def write(self) -> None:
        """Write the file for the handle's present version."""
        if self._folder is None or self._handle.version() == self._version:
            return
        try:
            self._count()
            self._put()
        except OSError as error:
            log.warning("no checksum for %s: %s", self._handle.table_uri, error)
            self._folder = None

    def _count(self) -> None:
        """Bring the number of files and bytes up to the handle's version."""
        version = self._handle.version()
        if version == self._version + 1:
            for line in self._log_file(version, "json").read_bytes().splitlines():
                action = _decode_action(line)
                if action.remove is not None:
                    break
                if action.add is not None:
                    self._files += 1
                    self._bytes += action.add.size
            else:
                self._version = version
                return
        files = pa.table(self._handle.get_add_actions(flatten=True))
        self._files = files.num_rows
        self._bytes = sum(files.column("size_bytes").to_pylist())
        self._version = version

    def _put(self) -> None:
        metadata, protocol = self._handle.metadata(), self._handle.protocol()
        checksum = {
            "tableSizeBytes": self._bytes,
            "numFiles": self._files,
            "numMetadata": 1,
            "numProtocol": 1,
            "metadata": {
                "id": str(metadata.id),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": self._handle.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
                "configuration": metadata.configuration,
                "createdTime": metadata.created_time,
            },
            "protocol": {
                "minReaderVersion": protocol.min_reader_version,
                "minWriterVersion": protocol.min_writer_version,
            },
        }
        if protocol.reader_features or protocol.writer_features:
            # A table with features is not one that we made; its checksum holds more than this.
            return
        target = self._log_file(self._version, "crc")
        # Readers list the folder: nothing there may look like a log file before it is whole.
        partial = target.with_name(f".{uuid.uuid4().hex}.tmp")
        partial.write_bytes(msgspec.json.encode(checksum))
        os.replace(partial, target)

    def _log_file(self, version: int, suffix: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{version:020}.{suffix}"


class _Add(msgspec.Struct):
    size: int


class _Action(msgspec.Struct):
    add: _Add | None = None
    remove: msgspec.Raw | None = None


_decode_action = msgspec.json.Decoder(_Action).decode
