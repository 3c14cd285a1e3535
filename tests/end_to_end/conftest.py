"""The cluster that the tests of faults pass on to each other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.cluster import Cluster

DISK_BYTES = 128 * 1024 * 1024


@pytest.fixture(scope="package")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | str]:
    """Yield a separate disk, small enough to be filled; or the reason why there is none."""
    folder = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        yield f"there is no mount: {error}"
        return
    if done.returncode:
        yield f"only root may mount: {done.stderr.strip()}"
        return
    yield folder
    # Lazily: a process with an open file there must not make the test's end fail.
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="package")
def handed_on(small_disk: Path | str) -> Iterator[list[Cluster]]:
    """Yield the cluster of the last test, if there is one; it ends before its disk does."""
    kept: list[Cluster] = []
    yield kept
    for cluster in kept:
        try:
            cluster.stop()
        finally:
            cluster.kill()


@pytest.fixture
def cluster(
    handed_on: list[Cluster], small_disk: Path | str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Yield a cluster with one coordinator, of any node, and groups that are Stable."""
    if handed_on:
        found = handed_on.pop()
    else:
        folder = tmp_path_factory.mktemp("cluster")
        found = Cluster(small_disk if isinstance(small_disk, Path) else folder, folder)
        try:
            found.begin()
        except BaseException:
            found.kill()
            raise
    yield from hand_on(found, handed_on)


@pytest.fixture
def new_cluster(
    handed_on: list[Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Yield a cluster that was not started yet and has no jars: Spark must fetch them."""
    for before in handed_on:
        before.stop()
        before.kill()
    handed_on.clear()
    folder = tmp_path_factory.mktemp("cluster")
    yield from hand_on(Cluster(folder, folder, folder / "ivy"), handed_on)


def hand_on(cluster: Cluster, handed_on: list[Cluster]) -> Iterator[Cluster]:
    """Lend a cluster to a test, and keep it if the test leaves it intact."""
    cluster.sound = False
    yield cluster
    if cluster.sound:
        handed_on.append(cluster)
    else:
        cluster.kill()
