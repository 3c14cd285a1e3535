"""Streams of a root's requests, as in a coordinator's query, and their outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from group_coordinator.coordinator.group.batch import GroupOutput
from group_coordinator.pipeline.node.bootstrap import prepare_bootstrap
from group_coordinator.pipeline.settings import CoordinatorSettings
from group_coordinator.pipeline.stream.event_source import read_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def packed_requests(spark: SparkSession, root: str, folder: Path) -> DataFrame:
    """Return the stream of a node that owns all partitions; its bootstrap is in a folder."""
    bootstrap = prepare_bootstrap(root, str(folder / "bootstrap"))
    return read_events(spark, root, CoordinatorSettings(), bootstrap, bootstrap.version + 1)


def outputs_of(answered: DataFrame) -> list[GroupOutput]:
    """Return the outputs of the groups of a batch."""
    blobs = answered.toArrow().column(0).to_pylist()
    return [msgspec.msgpack.decode(blob, type=GroupOutput) for blob in blobs]
