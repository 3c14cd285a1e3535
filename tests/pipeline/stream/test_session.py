"""The release of Delta is written down once, and whoever starts Spark is told the same packages."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from pipeline.settings import Settings
from pipeline.stream.session import PACKAGES, packages, read_defaults, spark_settings

REPOSITORY = Path(__file__).parents[3]


def test_the_jar_is_of_the_release_that_pyproject_asks_for():
    asked = (REPOSITORY / "pyproject.toml").read_text()
    (release,) = re.findall(r'"delta-spark==([\d.]+)"', asked)
    spark = ".".join(pyspark.__version__.split(".")[:2])
    assert packages().startswith(f"io.delta:delta-spark_{spark}_2.13:{release},")


def test_delta_s_own_helper_names_the_same_jar():
    builder = configure_spark_with_delta_pip(SparkSession.Builder())
    delta, _, _ = packages().partition(",")
    assert builder._options == {PACKAGES: delta}


def test_readme_tells_spark_submit_the_same_packages():
    readme = (REPOSITORY / "README.md").read_text()
    assert re.findall(r"spark-submit --packages (\S+)", readme) == [packages()]


def test_no_second_place_names_a_release():
    assert PACKAGES not in read_defaults()
    assert spark_settings(Settings(), "/somewhere")[PACKAGES] == packages()


def test_a_user_s_packages_replace_them():
    wanted = spark_settings(Settings(spark={PACKAGES: "a:b:1"}), "/somewhere")
    assert wanted[PACKAGES] == "a:b:1"
