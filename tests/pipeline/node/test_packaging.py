"""What a cluster is given: an archive that Python imports from, and a job that looks first."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from typer.testing import CliRunner

from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.pipeline.extras import PROJECT
from group_coordinator.pipeline.node import needed, packaging
from group_coordinator.pipeline.node.packaging import NotInstalled, write_package
from tests.ends import check_end


@pytest.fixture
def of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment of one package: all of them are 190 MB."""
    monkeypatch.setattr(packaging, "distributions", lambda: [distribution("msgspec")])


@pytest.mark.slow
@pytest.mark.usefixtures("of_one")
def test_python_imports_the_project_and_its_packages_from_the_archive(tmp_path: Path) -> None:
    told: list[str] = []
    done = write_package(tmp_path / "out", told.append)
    assert told == [f"1 of 1: {done.packages[0]}"]
    unpacked = tmp_path / "unpacked"
    with tarfile.open(done.archive) as tar:
        names = tar.getnames()
        tar.extractall(unpacked, filter="data")
    assert not [name for name in names if "__pycache__" in name or ".." in name]
    code = (
        "import msgspec, group_coordinator.schemas.messages, group_coordinator.conf;"
        "import group_coordinator.coordinator.group.batch, group_coordinator.pipeline as pipeline;"
        "print(msgspec.__file__, pipeline.__file__)"
    )
    # -S: no package of this environment.
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert [Path(each).relative_to(unpacked).parts[0] for each in shown.stdout.split()] == [
        "msgspec",
        "group_coordinator",
    ]


@pytest.mark.usefixtures("of_one")
def test_the_command_for_a_root_in_a_store_asks_for_the_jars_of_the_store(tmp_path: Path) -> None:
    def printed(*root: str) -> str:
        return CliRunner().invoke(make_app(), ["package", "--out", str(tmp_path), *root]).output

    assert "hadoop-aws" not in printed()
    asked = printed("--root", "s3a://bucket/groups")
    assert ",org.apache.hadoop:hadoop-aws:" in asked
    assert "--root s3a://bucket/groups" in asked


@pytest.mark.usefixtures("of_one")
def test_an_archive_that_could_not_be_finished_leaves_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_package(tmp_path).archive.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(packaging, "own_files", full)
    with pytest.raises(OSError, match="no space left"):
        write_package(tmp_path)
    assert (tmp_path / "group-coordinator.tar.gz").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "group-coordinator.tar.gz",
        "job.py",
    ]


@pytest.mark.usefixtures("of_one")
def test_the_archive_lists_the_licences_of_what_it_hands_on(tmp_path: Path) -> None:
    with tarfile.open(write_package(tmp_path).archive) as tar:
        listed = tar.extractfile("LICENSES.txt")
        assert listed is not None
        lines = listed.read().decode().splitlines()
    assert lines == [f"msgspec {distribution('msgspec').version}: BSD-3-Clause"]


def test_nothing_is_handed_on_under_a_licence_that_binds_whoever_hands_it_on() -> None:
    licences = [packaging.licence_line(one) for one in packaging.distributions()]
    assert len(licences) > 20
    assert not [line for line in licences if "GPL" in line or "not stated" in line]


def test_the_project_depends_on_what_is_packed_and_spark_brings_its_own() -> None:
    found = {one.metadata["Name"].lower() for one in packaging.distributions()}
    assert {"deltalake", "duckdb", "msgspec", "pandas", "pyarrow"} <= found
    # arro3-core is a package of deltalake's; pytest is for those who work on the project.
    assert "arro3-core" in found
    assert not {"pyspark", "py4j", "pytest"} & found


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "PROJECT", "no-such-package")
    with pytest.raises(NotInstalled, match="no-such-package is not installed in this environment"):
        packaging.distributions()


def test_the_job_names_all_that_a_drivers_python_lacks_in_one_line(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(packaging.job_text())
    ended = subprocess.run(
        [sys.executable, "-S", str(job), "--root", "r"], capture_output=True, text=True, env={}
    )
    check_end(ended.returncode, ended.stderr, 1)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("group-coordinator: the driver's Python 3.")
    assert f"has no {', '.join(needed.NEEDED)}. Submit with PYSPARK_DRIVER_PYTHON" in line


def test_nothing_is_missing_here() -> None:
    assert needed.missing_modules() is None
    assert "has no no_such_module" in str(needed.missing_modules(["sys", "no_such_module"]))


def test_what_is_looked_for_is_in_the_archive_or_is_spark_s() -> None:
    """The look would else refuse every start on a cluster, for a package that nobody needs."""
    packed = {PROJECT, *(each.name for each in packaging.distributions())}
    of_module = packages_distributions()
    looked_for = {name: {*of_module[name]} & packed for name in needed.NEEDED}
    assert [name for name, found in looked_for.items() if not found] == []
