"""A root's metrics for Prometheus, read from its tables when a scrape asks for them.

metrics.toml defines the metrics of groups and topics. Of more than `max_groups` groups, only those
with the greatest lag have series, and `left_out` counts the others. The numbers of groups and
offsets always include all groups.
"""

from __future__ import annotations

import logging
import threading
import tomllib
from importlib import resources
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from group_coordinator.pipeline import background
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import STORE_FAILS, open_delta, to_table
from group_coordinator.pipeline.errors import first_line
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.monitor.traffic import BATCH_BOUNDS_S, Traffic
from group_coordinator.pipeline.tables import has_table, table_uri
from group_coordinator.schemas.tables import ON_DEMAND, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

# kafka-lag-exporter's name of the label for the cluster.
CLUSTER = "cluster_name"
# The views that each reading materializes, in this order, with the rows and columns that it keeps;
# after `left_out`, only of the chosen groups.
_OF_CHOSEN_GROUPS = "SEMI JOIN chosen USING (group_id)"
MATERIALIZED = (
    (
        "committed_offsets",
        'SELECT group_id, topic, "partition", committed_offset, committed_at '
        "FROM committed_offsets",
    ),
    ("groups", "FROM groups"),
    ("group_counts", "FROM group_counts"),
    ("topic_ends", "FROM topic_ends"),
    (
        "lag",
        'SELECT group_id, topic, "partition", committed_offset, lag, lag_seconds FROM lag',
    ),
    ("group_lag", "FROM group_lag"),
    (
        "chosen",
        "SELECT group_id FROM groups LEFT JOIN group_lag USING (group_id) "
        "ORDER BY lag DESC NULLS LAST, group_id LIMIT {max_groups}",
    ),
    (
        "left_out",
        "SELECT (SELECT count(*) FROM groups) - (SELECT count(*) FROM chosen) AS group_count",
    ),
    *(
        (name, f"FROM {name} {_OF_CHOSEN_GROUPS}")
        for name in ("groups", "group_lag", "lag", "stored_groups")
    ),
    (
        "group_members",
        "SELECT group_id, generation, member_id, client_id, client_host, assignment "
        "FROM group_members",
    ),
    ("owned_lag", "FROM owned_lag"),
)
# The most groups with series. A group with ten partitions has some fifty series.
MAX_GROUPS = 1_000
# The age at which a reading is replaced by the next scrape, s.
LEAST_AGE_S = 5.0
# The longest wait of a scrape for a reading, s. Prometheus times out after 10 s by default.
LONGEST_WAIT_S = 8.0


class Gauge(Struct, frozen=True):
    """A metric: each label, and the value, is a column of the view or another SQL expression.

    Each row of the view is a series, unless its value is null. A null label becomes "". The label
    `CLUSTER` comes from no view and is the same in all series.
    """

    name: str
    help: str
    labels: dict[str, str]
    view: str
    value: str

    @property
    def sql(self) -> str:
        """The query that selects the labels, in their order, and then the value."""
        columns = [column for name, column in self.labels.items() if name != CLUSTER]
        return (
            f"SELECT {', '.join([*columns, self.value])} FROM {self.view} "
            f"WHERE {self.value} IS NOT NULL"
        )


def _read_gauges() -> tuple[Gauge, ...]:
    text = resources.files(__package__).joinpath("metrics.toml").read_text("utf-8")
    document = tomllib.loads(text)
    return tuple(
        Gauge(name, help_text, document["labels"][labels], view, value)
        for exporter in document["metrics"].values()
        for name, labels, view, value, help_text in exporter
    )


GAUGES = _read_gauges()


class MetricsSettings(Struct, frozen=True):
    """Settings of the exporter; `cluster_name` is kafka-lag-exporter's label."""

    cluster_name: str
    max_groups: int = MAX_GROUPS


class RootMetrics(Collector):
    """A collector that reads the tables in a background thread, one reading at a time.

    A scrape starts a reading if none runs and the last successful one is older than `LEAST_AGE_S`.
    After `LONGEST_WAIT_S` it returns the previous reading or, without one, only the exporter's own
    metrics. So any number of scrapers, and a reading of any length, cost one thread.
    """

    def __init__(self, root: str, settings: MetricsSettings) -> None:
        self._root = root
        self._settings = settings
        self._traffic = Traffic(root)
        self._lock = threading.Lock()
        # Set when the current reading has ended; None if no reading runs.
        self._reading: threading.Event | None = None
        self._read: list[Metric] = []
        self._read_at_s: float | None = None
        self._took_s = 0.0
        self._is_up = False
        self._problem = ""

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names of the metrics are known only after a reading."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, after a new reading unless the last one is recent enough."""
        with self._lock:
            age_s = None if self._read_at_s is None else monotonic() - self._read_at_s
            if self._reading is None and (age_s is None or age_s >= LEAST_AGE_S):
                self._reading = threading.Event()
                if not background.run("metrics", self._refresh):
                    self._end_reading(is_up=False)
            reading = self._reading
        if reading is not None:
            reading.wait(LONGEST_WAIT_S)
        with self._lock:
            yield from self._read
            yield from self._exporter_metrics()

    def _refresh(self) -> None:
        began_s = monotonic()
        try:
            read = list(self._read_all())
        except STORE_FAILS as error:
            if str(error) != self._problem:
                log.warning("metrics: the tables cannot be read: %s", first_line(error))
            with self._lock:
                self._problem = str(error)
                self._end_reading(is_up=False)
            return
        except BaseException:
            with self._lock:
                self._end_reading(is_up=False)
            raise
        with self._lock:
            self._read, self._read_at_s = read, monotonic()
            self._took_s = self._read_at_s - began_s
            self._problem = ""
            self._end_reading(is_up=True)

    def _end_reading(self, is_up: bool) -> None:
        """Note the end of the reading. The caller must hold the lock."""
        assert self._reading is not None
        self._reading.set()
        self._reading, self._is_up = None, is_up

    def _exporter_metrics(self) -> Iterator[Metric]:
        yield _gauge(
            "kminion_exporter_up", "1 if the tables could be read, else 0.", float(self._is_up)
        )
        took = GaugeMetricFamily(
            "kafka_consumergroup_poll_time_ms",
            "How long it took to read the tables, ms.",
            labels=[CLUSTER],
        )
        took.add_metric([self._settings.cluster_name], self._took_s * 1000)
        yield took
        if self._read_at_s is not None:
            yield _gauge(
                "group_coordinator_metrics_age_seconds",
                "How long ago the tables were read.",
                monotonic() - self._read_at_s,
            )

    # --- reading ----------------------------------------------------------------------------------

    def _read_all(self) -> Iterator[Metric]:
        self._traffic.poll()
        catalog = Catalog(self._root)
        for name, sql in MATERIALIZED:
            catalog.materialize(name, sql.format(max_groups=self._settings.max_groups))
        for each in GAUGES:
            yield _family(catalog, each, self._settings.cluster_name)
        yield from self._traffic_metrics(catalog)
        yield from self._table_metrics()

    def _traffic_metrics(self, catalog: Catalog) -> Iterator[Metric]:
        traffic = self._traffic
        answers = CounterMetricFamily(
            "group_coordinator_answers",
            "Requests that coordinators answered.",
            labels=["api", "error"],
        )
        for (api, error), count in sorted(traffic.answers.items()):
            answers.add_metric([api, error], count)
        yield answers
        yield CounterMetricFamily(
            "group_coordinator_rebalances", "Rebalances that began.", value=traffic.rebalances
        )
        commits = CounterMetricFamily(
            "kminion_kafka_consumer_group_offset_commits",
            "Offsets that the group has committed.",
            labels=["group_id"],
        )
        for (group_id,) in catalog.query("SELECT group_id FROM chosen").rows:
            commits.add_metric([group_id], traffic.commits[group_id])
        yield commits
        bounds = [*map(str, BATCH_BOUNDS_S), "+Inf"]
        batches = HistogramMetricFamily(
            "group_coordinator_batch_seconds",
            "From a batch's decisions to the commit of its answers.",
        )
        batches.add_metric(
            [], list(zip(bounds, accumulate(traffic.batches), strict=True)), traffic.batch_seconds
        )
        yield batches

    def _table_metrics(self) -> Iterator[Metric]:
        families = [
            GaugeMetricFamily(f"group_coordinator_table_{what}", text, labels=["table"])
            for what, text in (
                ("files", "Files of the table's newest version."),
                ("bytes", "Bytes of the files of the table's newest version."),
                ("version", "The table's newest version."),
            )
        ]
        for table in (*TABLES.values(), *ON_DEMAND):
            if has_table(self._root, table):
                handle = open_delta(table_uri(self._root, table))
                files = to_table(handle.get_add_actions())
                size = sum(files.column("size_bytes").to_pylist())
                values = (files.num_rows, size, handle.version())
                for family, value in zip(families, values, strict=True):
                    family.add_metric([table.name], value)
        yield from families


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _family(catalog: Catalog, gauge: Gauge, cluster_name: str) -> Metric:
    common = [cluster_name] if CLUSTER in gauge.labels else []
    family = GaugeMetricFamily(gauge.name, gauge.help, labels=list(gauge.labels))
    for *labels, value in catalog.query(gauge.sql).rows:
        family.add_metric([*common, *("" if each is None else str(each) for each in labels)], value)
    return family
