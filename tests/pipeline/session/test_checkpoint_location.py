"""Where a root's streaming checkpoints lie, and which jars Spark is given for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from group_coordinator.pipeline.session.checkpoint_location import (
    checkpoint_location,
    hadoop_uri,
    store_packages,
)
from group_coordinator.pipeline.session.jars import PACKAGES
from group_coordinator.pipeline.session.spark_settings import packages, spark_settings
from group_coordinator.pipeline.settings import CoordinatorSettings, Settings

BESIDE = Settings()


def given(location: str) -> Settings:
    return Settings(coordinator=CoordinatorSettings(checkpoint_location=location))


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_beside_the_tables_on_a_local_disk():
    assert checkpoint_location(BESIDE, "/data/groups/", "local[*]") == "/data/groups/_checkpoints"


def test_on_this_machine_s_disk_for_tables_in_a_store(state):
    first = Path(checkpoint_location(BESIDE, "s3a://bucket/groups", "local[*]"))
    assert first.parent == state / "group-coordinator"
    assert checkpoint_location(BESIDE, "s3a://bucket/groups/", "local[2]") == str(first)
    assert checkpoint_location(BESIDE, "s3a://bucket/others", "local[*]") != str(first)


def test_without_a_state_home_below_the_user_s_own(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = checkpoint_location(BESIDE, "s3a://bucket/groups", "local[*]")
    assert found.startswith(f"{tmp_path}/.local/state/group-coordinator/")


def test_in_the_store_where_executors_on_other_machines_must_reach_it():
    found = checkpoint_location(BESIDE, "s3://bucket/groups", "spark://master:7077")
    assert found == "s3a://bucket/groups/_checkpoints", "Hadoop's name for S3"


def test_where_the_settings_say_a_folder_for_each_root():
    first = checkpoint_location(given("hdfs://name/streams/"), "s3a://bucket/a", "yarn")
    other = checkpoint_location(given("hdfs://name/streams/"), "s3a://bucket/b", "yarn")
    assert first.startswith("hdfs://name/streams/") and other.startswith("hdfs://name/streams/")
    assert first != other


@pytest.mark.parametrize(
    ("location", "artifact"),
    [
        ("s3a://bucket/x", "org.apache.hadoop:hadoop-aws:"),
        ("abfss://container@account.dfs.core.windows.net/x", "org.apache.hadoop:hadoop-azure:"),
        ("gs://bucket/x", "com.google.cloud.bigdataoss:gcs-connector:"),
    ],
)
def test_the_jars_of_a_store_are_asked_for_where_spark_writes_to_it(location, artifact):
    (package,) = store_packages(location)
    assert package.startswith(artifact)
    wanted = spark_settings(BESIDE, location)
    assert wanted[PACKAGES] == f"{packages()},{package}"
    assert "spark.sql.streaming.checkpointFileManagerClass" not in wanted


def test_the_jars_are_those_of_the_spark_that_spark_submit_runs(monkeypatch, tmp_path):
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "hadoop-client-api-3.9.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    # pyspark itself is an archive then.
    monkeypatch.setattr("pyspark.__file__", str(tmp_path / "pyspark.zip" / "__init__.py"))
    assert store_packages("s3://bucket/x") == ["org.apache.hadoop:hadoop-aws:3.9.1"]


def test_hadoop_is_told_of_the_s3_server_that_the_environment_names(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:7070")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    wanted = spark_settings(BESIDE, "s3a://bucket/x")
    assert wanted["spark.hadoop.fs.s3a.endpoint"] == "http://store:7070"
    assert wanted["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    assert wanted["spark.hadoop.fs.s3a.path.style.access"] == "true"
    theirs = Settings(spark={"spark.hadoop.fs.s3a.endpoint": "https://other"})
    assert spark_settings(theirs, "s3a://bucket/x")["spark.hadoop.fs.s3a.endpoint"].endswith(
        "other"
    )


@pytest.mark.parametrize("location", ["/data/groups", "gs://bucket/x"])
def test_other_stores_are_told_nothing_of_it(monkeypatch, location):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store:7070")
    assert not [key for key in spark_settings(BESIDE, location) if "s3a" in key]


def test_spark_needs_no_jars_of_a_store_that_only_the_tables_are_in():
    location = checkpoint_location(BESIDE, "s3a://bucket/groups", "local[*]")
    assert spark_settings(BESIDE, location)[PACKAGES] == packages()


def test_a_path_is_a_folder_of_the_machine_for_spark_too_where_a_cluster_has_an_hdfs(
    monkeypatch, tmp_path
):
    """To Hadoop a path without a scheme is one of fs.defaultFS."""
    assert hadoop_uri("/data/groups/_checkpoints") == "file:///data/groups/_checkpoints"
    monkeypatch.chdir(tmp_path)
    assert hadoop_uri("groups") == f"file://{tmp_path}/groups"
    for uri in ("file:///data", "hdfs://name/x", "s3a://bucket/x"):
        assert hadoop_uri(uri) == uri
