"""Java is looked for before Spark starts, and named when it will not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.session.java import JavaMissing, check_java, java_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not understood", None),
    ],
)
def test_versions_are_read_as_java_prints_them(text, version):
    assert java_version(text) == version


def fake_java(home: Path, version: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_an_old_java_is_refused(tmp_path, monkeypatch):
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"is Java 11: install a JDK or JRE 17"):
        check_java()


def test_a_new_java_is_taken(tmp_path, monkeypatch):
    fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check_java()


def test_no_java_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaMissing, match="found none: install"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="found none: install"):
        check_java()
