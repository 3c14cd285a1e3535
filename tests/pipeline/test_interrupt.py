"""Ctrl-C ends a statement of DuckDB as it ends Python's own code."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from pipeline.delta.engine import Engine
from pipeline.interrupt import duckdb_interrupted

ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b"


def test_an_engine_s_statement_is_ended(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Engine(1 << 26, 1, tmp_path) as engine:
            assert engine.run("SELECT 1") == [(1,)]
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            engine.run(ENDLESS)

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_another_error_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="out of luck"), duckdb_interrupted():
        raise RuntimeError("out of luck")
