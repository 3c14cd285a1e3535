"""What one root takes, measured small, and what many members take on paper."""

from __future__ import annotations

import time

import pytest

from group_coordinator.pipeline.bench.limits import write
from group_coordinator.pipeline.bench.size import Measured, bench_size, size
from group_coordinator.pipeline.tables.store import ensure_table, open_table
from group_coordinator.schemas.tables import REQUESTS


def test_a_writer_commits_until_its_time_is_over(root: str) -> None:
    ensure_table(root, REQUESTS)
    assert write(root, time.time() - 60, 0.05, 3)[0] == 1
    done, cpu = write(root, time.time(), 0.05, 3)
    assert done > 0
    assert cpu > 0
    assert open_table(root, REQUESTS).version() == 1 + done
    assert open_table(root, REQUESTS).to_pyarrow_table().num_rows == 3 * (1 + done)


def test_members_are_shared_out_to_roots_that_were_seen_to_do_it() -> None:
    seen = Measured({3.0: 1_000, 30.0: 4_000}, 2.0, 2.0, 3.0, 10.0)
    found = size(2_500, 3.0, 0.5, seen)
    assert (found.roots, found.cores, found.per_second) == (3, 6.0, 2_500 / 3)
    assert size(4_001, 30.0, 0.5, seen).roots == 2
    # Each of the three commits and answers twice a second.
    assert found.commits == 12
    assert found.puts_usd == pytest.approx(3 * 2 * 5 * 2_592 * 0.005)
    assert found.gets_usd == pytest.approx(3 * 2 * 10 * 2_592 * 0.0004)
    report = bench_size(1_000_000)
    assert [each.per_second for each in report.sizes[::2]] == [1e6 / 3, 1e6 / 30]
    slow, fast = report.sizes[1], report.sizes[0]
    assert slow.puts_usd == pytest.approx(fast.puts_usd / 10)
