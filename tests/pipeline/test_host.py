"""The machine that figures are of."""

from __future__ import annotations

import pytest

from pipeline.host import this_host


def test_java_s_version_is_told_and_not_the_options_that_it_picks_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Options name folders of the machine, and short-lived JVMs are given some."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xmx64m")
    java = this_host().java
    assert "Picked up" not in java
    assert ' version "' in java
