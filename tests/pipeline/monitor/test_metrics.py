"""The metrics of a root: those of other exporters, by names and labels, and the project's own."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from http.client import HTTPConnection
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from group_coordinator.pipeline.delta.appender import Appender
from group_coordinator.pipeline.monitor import metrics
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.metrics import (
    CLUSTER,
    GAUGES,
    MATERIALIZED,
    MetricsSettings,
    RootMetrics,
)
from group_coordinator.pipeline.monitor.serving import serving_metrics
from group_coordinator.schemas.messages import Response
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    CoordinatorRecord,
    GroupEvent,
    GroupMetadataValue,
    MemberMetadata,
)
from group_coordinator.schemas.tables import GROUP_EVENTS, RESPONSES, to_arrow, to_events
from tests.ends import check_end
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.topics.logs import appender, batch, make

pytestmark = pytest.mark.slow

# From kminion's docs/metrics.md and prometheus/exporter.go, of those that are exported here.
KMINION = {
    "kminion_kafka_consumer_group_info": "group_id protocol protocol_type state coordinator_id",
    "kminion_kafka_consumer_group_members": "group_id",
    "kminion_kafka_consumer_group_empty_members": "group_id",
    "kminion_kafka_consumer_group_topic_members": "group_id topic_name",
    "kminion_kafka_consumer_group_topic_assigned_partitions": "group_id topic_name",
    "kminion_kafka_consumer_group_topic_offset_sum": "group_id topic_name",
    "kminion_kafka_consumer_group_topic_partition_lag": "group_id topic_name partition_id",
    "kminion_kafka_consumer_group_topic_lag": "group_id topic_name",
    "kminion_kafka_topic_info": "topic_name partition_count replication_factor cleanup_policy",
    "kminion_kafka_topic_partition_low_water_mark": "topic_name partition_id",
    "kminion_kafka_topic_partition_high_water_mark": "topic_name partition_id",
    "kminion_kafka_topic_low_water_mark_sum": "topic_name",
    "kminion_kafka_topic_high_water_mark_sum": "topic_name",
    "kminion_kafka_consumer_group_offset_commits_total": "group_id",
    "kminion_exporter_up": "",
}
_OWNED = "cluster_name group topic partition member_host consumer_id client_id"
# From kafka-lag-exporter's Metrics.scala: all of them.
LAG_EXPORTER = {
    "kafka_partition_latest_offset": "cluster_name topic partition",
    "kafka_partition_earliest_offset": "cluster_name topic partition",
    "kafka_consumergroup_group_offset": _OWNED,
    "kafka_consumergroup_group_lag": _OWNED,
    "kafka_consumergroup_group_lag_seconds": _OWNED,
    "kafka_consumergroup_group_max_lag": "cluster_name group",
    "kafka_consumergroup_group_max_lag_seconds": "cluster_name group",
    "kafka_consumergroup_group_sum_lag": "cluster_name group",
    "kafka_consumergroup_group_topic_sum_lag": "cluster_name group topic",
    "kafka_consumergroup_poll_time_ms": "cluster_name",
}
# GroupCoordinatorMetrics.java through the JMX exporter's kafka-2_0_0.yml.
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_num"
_KINDS = ("groups", "offsets", *(f"groups{s}" for s in ("stable", "empty", "dead")))
KAFKA = {
    f"{_MANAGER}{kind}": ""
    for kind in (*_KINDS, "groupspreparingrebalance", "groupscompletingrebalance")
}

Samples = dict[str, dict[tuple[str, ...], float]]


def write(root: str) -> Log:
    """Create group `g` with two members, one without a partition, and a lag of 2 records."""
    topic = make(root, 2)
    appender(topic).append([batch(0, "a", "b", "c"), batch(1, "d")])
    log = Log(root)
    assignments = [
        encode_assignment(Assignment((TopicPartition("t", 0), TopicPartition("t", 1)))),
        b"",
    ]
    members = tuple(
        MemberMetadata(f"m{n}", None, f"c{n}", "/h", 1, 2, b"s", assignment)
        for n, assignment in enumerate(assignments)
    )
    value = GroupMetadataValue("consumer", 3, "range", "m0", 1, members)
    log.append(CoordinatorRecord(0, GROUP_METADATA, "g", 1, group_metadata=value))
    log.append(commit("g", 1, 2_000, ("t", 0)), commit("g", 1, 2_000, ("t", 1)))
    return log


@pytest.fixture
def log(root: str) -> Log:
    return write(root)


@pytest.fixture(scope="module")
def told(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Metric]:
    """Return the metrics of a root without later appends."""
    root = tmp_path_factory.mktemp("told") / "root"
    shutil.copytree(empty_root, root)
    return list(of(write(str(root)).root).collect())


def exported(collector: RootMetrics | list[Metric]) -> Samples:
    found: Samples = {}
    families = collector.collect() if isinstance(collector, RootMetrics) else collector
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def of(root: str, **settings: Any) -> RootMetrics:
    return RootMetrics(root, MetricsSettings("here", **settings))


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape reads the tables, however long that takes."""
    monkeypatch.setattr(metrics, "LEAST_AGE_S", 0.0)
    monkeypatch.setattr(metrics, "LONGEST_WAIT_S", 3_600.0)


@pytest.mark.full
def test_metrics_have_the_names_and_labels_of_the_exporters_they_are_known_from(
    told: list[Metric],
) -> None:
    labels = {sample.name: " ".join(sample.labels) for family in told for sample in family.samples}
    wanted = {**KMINION, **LAG_EXPORTER, **KAFKA}
    assert {name: labels.get(name) for name in wanted} == wanted


def test_lag_members_and_ends_are_exported(told: list[Metric]) -> None:
    found = exported(told)
    lag = found["kafka_consumergroup_group_lag"]
    assert lag["here", "g", "t", "0", "/h", "m0", "c0"] == 2
    assert found["kminion_kafka_consumer_group_topic_lag"] == {("g", "t"): 2}
    assert found["kminion_kafka_consumer_group_members"] == {("g",): 2}
    assert found["kminion_kafka_consumer_group_empty_members"] == {("g",): 1}
    assert found["kminion_kafka_consumer_group_topic_assigned_partitions"] == {("g", "t"): 2}
    assert found["kminion_kafka_topic_high_water_mark_sum"] == {("t",): 4}
    assert found[f"{_MANAGER}offsets"] == {(): 2}
    assert found["kminion_exporter_up"] == {(): 1}


@pytest.mark.full
@pytest.mark.parametrize("name", ["groups", "lag", "it's", "topics lag verdicts"])
def test_a_root_may_have_any_name_that_of_a_view_too(log: Log, name: str) -> None:
    found = exported(RootMetrics(log.root, MetricsSettings(name)))
    assert found["kminion_exporter_up"] == {(): 1}
    assert found["kafka_consumergroup_group_sum_lag"] == {(name, "g"): 2}


@pytest.mark.full
def test_of_many_groups_those_that_are_furthest_behind_have_series(log: Log) -> None:
    log.append(commit("behind", 0, 2_000), commit("further", 0, 2_000, ("t", 0)))
    log.append(commit("further", 0, 2_000, ("t", 1)))
    found = exported(of(log.root, max_groups=1))
    assert found["kafka_consumergroup_group_sum_lag"] == {("here", "further"): 4}
    assert found["group_coordinator_groups_left_out"] == {(): 2}
    assert found[f"{_MANAGER}groups"] == {(): 3}


@pytest.mark.full
@pytest.mark.usefixtures("unhurried")
def test_answers_errors_rebalances_and_commits_are_counted_from_the_first_scrape_on(
    log: Log,
) -> None:
    collector = of(log.root)
    exported(collector)
    answers = [Response(f"r{n}", "g", "heartbeat", 0, "NONE", responded_at=1) for n in range(3)]
    answers.append(Response("r3", "g", "join_group", 25, "UNKNOWN_MEMBER_ID", responded_at=1))
    Appender(f"{log.root}/responses").append(to_arrow(RESPONSES, answers))
    event = GroupEvent(5, "g", "transition", "Stable", "PreparingRebalance", 3)
    Appender(f"{log.root}/{GROUP_EVENTS.name}").append(to_events([event]))
    log.append(commit("g", 2, 3_000), commit("g", None, 3_000, ("t", 1)))
    found = exported(collector)
    assert found["group_coordinator_answers_total"] == {
        ("heartbeat", "NONE"): 3,
        ("join_group", "UNKNOWN_MEMBER_ID"): 1,
    }
    assert found["group_coordinator_rebalances_total"] == {(): 1}
    assert found["kminion_kafka_consumer_group_offset_commits_total"] == {("g",): 1}
    assert found["group_coordinator_batch_seconds_count"] == {(): 1}
    assert exported(collector)["group_coordinator_rebalances_total"] == {(): 1}


@pytest.mark.usefixtures("unhurried")
def test_while_the_tables_cannot_be_read_the_exporter_is_down_and_tells_what_it_knew(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector = of(log.root)
    exported(collector)

    def fail(_root: str) -> None:
        raise OSError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(metrics, "Catalog", fail)
        for _ in range(3):
            found = exported(collector)
            assert found["kminion_exporter_up"] == {(): 0}
            assert found["kminion_kafka_consumer_group_topic_lag"] == {("g", "t"): 2}
    assert [record.message for record in caplog.records] == [
        "metrics: the tables cannot be read: the store is away"
    ]
    assert exported(collector)["kminion_exporter_up"] == {(): 1}


def test_a_root_without_tables_is_down(tmp_path: Path) -> None:
    found = exported(of(str(tmp_path / "nothing")))
    assert found["kminion_exporter_up"] == {(): 0}
    assert f"{_MANAGER}groups" not in found


@pytest.mark.full
@pytest.mark.usefixtures("unhurried")
def test_a_reading_that_takes_long_holds_no_scrape_and_is_not_begun_twice(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = of(log.root)
    exported(collector)
    begun, go_on = [], threading.Event()
    catalog = metrics.Catalog

    def slow(root: str) -> Any:
        begun.append(root)
        assert go_on.wait(60)
        return catalog(root)

    monkeypatch.setattr(metrics, "Catalog", slow)
    monkeypatch.setattr(metrics, "LONGEST_WAIT_S", 0.01)
    for _ in range(3):
        assert exported(collector)["kminion_kafka_consumer_group_topic_lag"] == {("g", "t"): 2}
    assert len(begun) == 1
    go_on.set()


def test_prometheus_reads_what_is_served(log: Log) -> None:
    served = serving_metrics(of(log.root), "127.0.0.1", 0)
    with served as port, urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {gauge.name for gauge in GAUGES} <= names


@pytest.mark.full
def test_a_metric_is_a_column_of_a_view_and_so_are_its_labels(empty_root: Path) -> None:
    catalog = Catalog(str(empty_root))
    for name, sql in MATERIALIZED:
        catalog.materialize(name, sql.format(max_groups=10))
    assert {each.view for each in GAUGES} <= {*catalog.names(), "left_out"}
    for each in GAUGES:
        labels = [name for name in each.labels if name != CLUSTER]
        assert len(catalog.query(each.sql).columns) == len(labels) + 1, each.name


@pytest.mark.full
@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        ("/metrics", "127.0.0.1:1", 200),
        ("/metrics?name[]=nothing", "localhost", 200),
        ("/metrics", socket.gethostname(), 200),
        ("/metrics", "Metrics.example.", 200),
        ("/metrics", "evil.example", 421),
        ("/metrics", "", 421),
        ("/", "localhost", 404),
        ("/metrics/../x", "localhost", 404),
        ("/favicon.ico", "localhost", 404),
    ],
)
def test_metrics_are_served_at_one_path_and_under_known_names(
    log: Log, path: str, name: str, status: int
) -> None:
    with serving_metrics(of(log.root), "127.0.0.1", 0, ["metrics.example"]) as port:
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", path, headers={"Host": name})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
    assert answer.status == status
    assert (b"kminion" in text) == (path == "/metrics" and status == 200)


@pytest.mark.full
def test_a_server_that_is_told_to_stop_says_nothing_of_its_input(log: Log) -> None:
    """It waits for the end of its input, which `run` holds open, and a signal ends it first."""
    command = [
        sys.executable,
        "-m",
        "group_coordinator",
        "metrics",
        "--root",
        log.root,
        "--until-eof",
    ]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], **pipes) as process:
        assert process.stderr is not None
        assert "serves the metrics of" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == ""
        check_end(process.wait())


def test_the_dashboard_asks_only_for_what_is_exported(told: list[Metric]) -> None:
    dashboard = json.loads(
        resources.files("group_coordinator.conf").joinpath("grafana-dashboard.json").read_text()
    )
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in dashboard["templating"]["list"]]
    names = {
        name
        for text in asked
        for name in re.findall(r"\b(?:kafka|kminion|group_coordinator)_\w+", text)
    }
    known = {
        name
        for family in told
        for name in (family.name, f"{family.name}_total", *(s.name for s in family.samples))
    }
    assert len(names) > 15
    assert names - known == set()
