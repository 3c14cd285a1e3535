"""The benchmark of the producer, small: its figures are there, and are of what they say."""

from __future__ import annotations

import json

import pytest

from group_coordinator.pipeline.bench.producer import MEMBERS, bench_producer
from group_coordinator.pipeline.cli.bench import show
from group_coordinator.pipeline.errors import Failure


@pytest.mark.slow
def test_each_linger_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    figures = bench_producer(0.5, said.append, lingers=(0, 200), flat_out=2_000)
    assert said[0] == "linger.ms = 0: 0.5 s paced, 2,000 requests flat out"
    assert figures.paced_per_second == MEMBERS
    none, long = figures.lingers
    assert [none.linger_ms, long.linger_ms] == [0, 200]
    for each in figures.lingers:
        assert 0 < each.ack_p50_ms <= each.ack_p99_ms
        assert each.requests_per_commit * each.commits_per_second == pytest.approx(MEMBERS)
        assert each.ratio == pytest.approx(each.floor_per_second / each.flat_out_per_second)
    show(figures, json=True)
    printed = json.loads(capsys.readouterr().out)
    assert [each["linger_ms"] for each in printed["lingers"]] == [0, 200]
    show(figures, json=False)
    assert "linger.ms" in capsys.readouterr().out


def test_too_short_a_run_is_refused() -> None:
    with pytest.raises(Failure, match=r"0\.1 s are too short"):
        bench_producer(0.1, lambda _text: None)
