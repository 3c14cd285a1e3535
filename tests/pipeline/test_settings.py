"""Settings: a user's file overrides defaults, mistakes are named, and one page describes all."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from group_coordinator.coordinator.config import names_of
from group_coordinator.pipeline.session.spark_settings import spark_settings
from group_coordinator.pipeline.settings import (
    CoordinatorSettings,
    Settings,
    SettingsError,
    load_settings,
    read_user_file,
)
from group_coordinator.pipeline.topics import TopicConfig
from tests.pages import TOP

PAGE = TOP / "conf" / "coordinator.toml"


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_the_page_has_every_setting_with_its_default() -> None:
    assert read_user_file(PAGE) == msgspec.to_builtins(Settings())
    assert load_settings(PAGE) == load_settings() == Settings()


def test_the_page_says_something_of_every_setting() -> None:
    """One comment may cover several settings below it."""
    for above, line in pairwise(PAGE.read_text("utf-8").splitlines()):
        if " = " in line and not line.startswith("#"):
            assert above.startswith("#") or " = " in above, line


def test_the_page_names_no_setting_that_there_is_not() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    known = {name for section in msgspec.to_builtins(Settings()).values() for name in section}
    known |= {*names_of(TopicConfig), "spark.driver.memory", "defaults.conf"}
    comments = "\n".join(line for line in lines if line.startswith("#"))
    assert set(re.findall(r"[a-z_]+(?:\.[a-z_]+)+", comments)) - known == set()


def test_a_file_overrides_single_keys_bare_or_quoted(tmp_path):
    text = """
        [coordinator]
        trigger.interval.ms = 250
        "node.id" = 7
        [group]
        group.initial.rebalance.delay.ms = 0
        [spark]
        spark.ui.enabled = true
        """
    settings = load_settings(write(tmp_path, text))
    assert settings.coordinator.trigger_interval_ms == 250
    assert settings.coordinator.node_id == 7
    assert settings.coordinator.state_store == "rocksdb"
    assert settings.group.group_initial_rebalance_delay_ms == 0
    assert settings.spark == {"spark.ui.enabled": "true"}


def test_a_value_may_be_text_in_every_section(tmp_path):
    text = """
        [coordinator]
        trigger.interval.ms = "250"
        [group]
        group.max.size = "7"
        [gateway]
        max.connections = "3"
        [upkeep]
        min.cleanable.dirty.ratio = "0.25"
        log.cleaner.enable = "false"
        """
    settings = load_settings(write(tmp_path, text))
    assert settings.group.group_max_size == 7
    assert settings.gateway.max_connections == 3
    assert settings.coordinator.trigger_interval_ms == 250
    assert settings.upkeep.min_cleanable_dirty_ratio == 0.25
    assert settings.upkeep.log_cleaner_enable is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[coordinator]\ntriger.interval.ms = 1", "did you mean 'trigger.interval.ms'"),
        ("[coordinator]\nqwertz = 1", r"^\[coordinator\] unknown setting 'qwertz'$"),
        ("[coordinator]\nstate.store = 'disk'", r"Invalid enum value 'disk' .*state.store"),
        ("[coordinator]\ntrigger.interval.ms = 0", "trigger.interval.ms"),
        ("[groups]\na = 1", r"unknown section \[groups\]; did you mean 'group'"),
        ("group = 1", "the key 'group' is outside of a section"),
        ("[group", "is not TOML"),
    ],
)
def test_a_mistake_is_named(tmp_path, text, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(write(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.toml: No such file"):
        load_settings(tmp_path / "nowhere.toml")


def test_spark_settings_come_from_the_file_then_ours_then_the_users():
    settings = Settings(
        coordinator=CoordinatorSettings(state_store="memory", shuffle_partitions=3),
        spark={"spark.ui.enabled": "true"},
    )
    wanted = spark_settings(settings, "/somewhere")
    assert wanted["spark.sql.shuffle.partitions"] == "3"
    assert wanted["spark.sql.streaming.stateStore.providerClass"].endswith(
        "HDFSBackedStateStoreProvider"
    )
    assert wanted["spark.ui.enabled"] == "true"
    assert "FileSystemBased" in wanted["spark.sql.streaming.checkpointFileManagerClass"]


def test_the_local_checkpoint_manager_is_for_local_roots_only():
    wanted = spark_settings(Settings(), "s3://bucket/root")
    assert "spark.sql.streaming.checkpointFileManagerClass" not in wanted


def test_a_gateway_s_address_is_the_coordinator_s_unless_it_has_one_of_its_own() -> None:
    def address(settings: Settings) -> tuple[str, int]:
        return settings.coordinator.advertised_host, settings.coordinator.advertised_port

    assert address(Settings().with_advertised_address("kafka.example", 19_092)) == (
        "kafka.example",
        19_092,
    )
    assert address(Settings().with_advertised_address("kafka.example", 0)) == ("localhost", 9092)
    own = Settings(coordinator=CoordinatorSettings(advertised_host="other.example"))
    assert address(own.with_advertised_address("kafka.example", 19_092)) == ("other.example", 9092)
