"""Reads fail in a process that the torture has started, and only while it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from group_coordinator.pipeline.tables.store import ensure_table, table_uri
from group_coordinator.schemas.tables import RESPONSES
from tests.trials.torture.reads import hooked

pytestmark = pytest.mark.full

# Reads of each library, also in Spark's workers, and the number of failures.
READER = """
import pickle, sys
import deltalake
from group_coordinator.pipeline.delta.data_file import dataset_of
from group_coordinator.pipeline.delta.identity import read_commit
from group_coordinator.pipeline.delta.store_files import open_files
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.delta.log import open_log

def by_arrow(): assert read_commit(open_files(uri), 0) is not None
def by_a_worker(): assert read_commit(pickle.loads(pickle.dumps(open_files(uri))), 0) is not None
def by_delta_rs(): open_delta(uri)
def by_a_dataset():
    handle = object.__new__(deltalake.DeltaTable)
    vars(handle).update(vars(opened))
    dataset_of(handle).to_table()
def by_python(): assert open_log(uri).next_commit(-1) is not None

uri = sys.argv[1]
opened = deltalake.table.DeltaTable(uri)
for read in (by_arrow, by_a_worker, by_delta_rs, by_a_dataset, by_python):
    failed = 0
    for _ in range(50):
        try:
            read()
        except (OSError, AssertionError):
            failed += 1
    print(failed)
"""


@pytest.mark.parametrize(("share", "failed"), [(1.0, ["50"] * 5), (None, ["0"] * 5)])
def test_reads_of_every_library_fail_while_it_is_said(
    root: str, tmp_path: Path, share: float | None, failed: list[str]
) -> None:
    ensure_table(root, RESPONSES)
    with hooked(tmp_path / "reads", root) as reads:
        reads.begin(1.0 if share is None else share)
        if share is None:
            reads.end()
        command = [sys.executable, "-c", READER, table_uri(root, RESPONSES)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == failed
    counts = reads.counts()
    assert sum(counts.values()) >= (250 if share else 0)
    assert bool(counts) is (share is not None)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"] * 5, "without the hook nothing fails"
