"""The machine that figures are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.host import this_host

PRINTED = """\
NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx64m
openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6)
"""


def test_java_s_version_is_told_and_not_the_options_that_it_picks_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options name folders of the machine, and short-lived JVMs are given some."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{PRINTED}END\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert this_host().java == 'openjdk version "17.0.15" 2025-04-15'


def test_a_test_that_is_not_of_spark_starts_no_jvm() -> None:
    assert this_host().java == "no version"
