"""Prometheus metrics of the requests that a gateway refused itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from group_coordinator.pipeline.gateway.refusals import RefusalCounts


class RefusalMetrics(Collector):
    """One counter, labelled by API and error, but not by names that clients choose."""

    def __init__(self, refused: RefusalCounts) -> None:
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        """Yield the counter."""
        family = CounterMetricFamily(
            "group_coordinator_gateway_refusals",
            "Requests that this gateway refused by itself since its start: they leave no rows.",
            labels=["api", "error"],
        )
        for labels, count in sorted(self._refused.counts().items()):
            family.add_metric(labels, count)
        yield family
