"""A coordinator's Spark needs no Delta, whose release is written down once."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from group_coordinator.pipeline.session.jars import EXCLUDES, PACKAGES
from group_coordinator.pipeline.session.spark_settings import (
    packages,
    read_defaults,
    spark_settings,
)
from group_coordinator.pipeline.session.start import SessionStart
from group_coordinator.pipeline.settings import Settings

REPOSITORY = Path(__file__).parents[3]
LATE = "spark.storage.blockManagerHeartbeatTimeoutMs"


def test_the_jar_is_of_the_release_that_pyproject_asks_for():
    asked = (REPOSITORY / "pyproject.toml").read_text()
    (release,) = re.findall(r'"delta-spark==([\d.]+)"', asked)
    spark = ".".join(pyspark.__version__.split(".")[:2])
    assert packages(delta=True).startswith(f"io.delta:delta-spark_{spark}_2.13:{release},")


def test_delta_s_own_helper_names_the_same_jar():
    builder = configure_spark_with_delta_pip(SparkSession.Builder())
    delta, _, files = packages(delta=True).partition(",")
    assert builder._options == {PACKAGES: delta}
    assert files == packages()


def test_the_page_on_clusters_tells_spark_submit_the_same_packages():
    page = (REPOSITORY / "pipeline/node/CLUSTERS.md").read_text()
    assert re.findall(r"--packages (\S+)", page) == [packages()]


def test_no_second_place_names_a_release():
    assert PACKAGES not in read_defaults()
    assert spark_settings(Settings(), "/somewhere")[PACKAGES] == packages()
    assert spark_settings(Settings(), "/somewhere", True)[PACKAGES] == packages(delta=True)


def test_a_coordinator_s_spark_knows_nothing_of_delta():
    """Its jars would cost each start time, and a machine without them the network."""
    wanted = spark_settings(Settings(), "/somewhere")
    assert not [each for each in wanted.items() if "delta" in " ".join(each).lower()]


@pytest.mark.parametrize(
    ("master", "theirs", "timeout"),
    [
        ("local[2]", {}, "3650d"),
        ("local[2]", {LATE: "1d"}, "1d"),
        ("spark://host:7077", {}, None),
    ],
)
def test_a_driver_that_stood_still_has_not_lost_itself_as_its_executor(
    monkeypatch: pytest.MonkeyPatch, master: str, theirs: dict[str, str], timeout: str | None
):
    """An executor on another machine may be lost, and a cluster's driver has to notice that."""
    active = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: active)
    begun = SessionStart(Settings(spark=theirs), "/somewhere")
    assert begun._wanted.get(LATE) == timeout


def test_no_setting_lets_spark_replace_a_commit():
    assert not [
        key for key in spark_settings(Settings(), "/somewhere", True) if "logstore" in key.lower()
    ]


def test_a_user_s_packages_come_beside_them():
    wanted = spark_settings(Settings(spark={PACKAGES: "a:b:1, c:d:2"}), "/somewhere")
    assert wanted[PACKAGES] == f"{packages()},a:b:1,c:d:2"


def test_another_release_that_a_user_asks_for_is_taken():
    delta, _, files = packages(delta=True).partition(",")
    theirs = f"{delta.rpartition(':')[0]}:9.9.9"
    wanted = spark_settings(Settings(spark={PACKAGES: theirs}), "/somewhere", delta=True)
    assert wanted[PACKAGES] == f"{theirs},{files}"


def test_what_a_user_asks_for_is_not_excluded():
    ours = spark_settings(Settings(), "/somewhere")[EXCLUDES].split(",")
    asked = {PACKAGES: "org.apache.parquet:parquet-avro:1.17.0,org.apache.hadoop:hadoop-aws:3.5.0"}
    left = spark_settings(Settings(spark=asked), "/somewhere")[EXCLUDES].split(",")
    assert set(ours) - set(left) == {"org.apache.parquet:*"}
    mine = {**asked, EXCLUDES: "all:*"}
    assert spark_settings(Settings(spark=mine), "/somewhere")[EXCLUDES] == "all:*"


def test_a_socket_s_path_fits_where_temporary_files_lie_deep():
    """As in a container of YARN: 107 bytes is the longest path of a socket."""
    wanted = spark_settings(Settings(), "/somewhere")
    folder = wanted["spark.python.unix.domain.socket.dir"]
    assert len(f"{folder}/.{uuid.uuid4()}.sock") <= 107
    # A folder that everybody may write to; only its owner may use a socket (umask 022 or stricter).
    assert os.access(folder, os.W_OK)
