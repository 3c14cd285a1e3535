"""The load of `bench produce`, small: each way has written every record once."""

from __future__ import annotations

import pytest

from tests.bench.produce import DELTA, GATEWAY, SEND, TABLE, Load, bench_produce


@pytest.mark.full
def test_each_way_writes_all_its_records() -> None:
    said: list[str] = []
    load = Load(records=300, sizes=[100], partitions=[3], processes=[2])
    report = bench_produce(load, said.append)
    assert [each.way for each in report.rows()] == [SEND, TABLE, DELTA, GATEWAY]
    assert said[1] == "send_table: 100 B, 3 partitions, 2 processes"
    for each in report.rows():
        assert each.per_s > 0 and each.commits >= 1
        assert 3 <= each.files <= 3 * each.commits
    words = [aim.words()[0] for aim in report.aims()]
    assert words == [
        "send_table over delta-rs, 100 B, 3 partitions, 2 processes >= 0.80",
        "send over the gateway, 100 B, 3 partitions, 2 processes >= 1",
    ]
