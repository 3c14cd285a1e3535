"""The controlled shutdown: a node that is asked to end first gives its partitions away.

A node that is to end moves its partitions as any others are moved (`pipeline.node.node`): it
decides until the nodes that take over have read ahead. If it just stopped, the others would begin
to read what their claims need only then. The groups would wait for that, seconds where much is
kept.

The node stops as before if nobody else is there to take over, if it takes too long, or if its query
ends meanwhile, as it does where a supervisor tells Spark's Python workers to end as well. What the
node still has is taken over once it has said that it stopped. A node that is killed in between is
dead once its lease has ended, whatever it has said.

Source: Kafka's controlled shutdown (KIP-631, BrokerHeartbeat's WantShutDown).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta.failures import STORE_FAILS

if TYPE_CHECKING:
    from group_coordinator.pipeline.node.node import CoordinatorNode

log = logging.getLogger(__name__)


class HandOver:
    """Gives what a node owns to others, by the node's ticks, for at most `timeout_s`."""

    def __init__(self, node: CoordinatorNode, timeout_s: float) -> None:
        self._node = node
        self._began = monotonic()
        self._timeout_s = timeout_s
        self._is_said = False

    def go_on(self) -> bool:
        """Do what there is to do now; True: call it again after the node's `pause_s`.

        False: the node is to be stopped. An error is logged, and the node is stopped all the same.
        """
        node = self._node
        if node.serving is None or not node.to_hand_over() or self._timeout_s <= 0:
            return False
        try:
            if not self._is_said:
                count = node.to_hand_over()
                log.info("%d partitions are handed over before the stop", count)
                node.hand_over()
                self._is_said = True
            node.tick()
        except STORE_FAILS as error:
            log.warning("others take over after the stop, not before: %s", error)
            return False
        took_s, left = monotonic() - self._began, node.to_hand_over()
        if not left:
            log.info("no partition is left to hand over after %.1f s", took_s)
        elif took_s >= self._timeout_s:
            log.warning("%d partitions were not handed over in %.1f s", left, took_s)
        return left > 0 and took_s < self._timeout_s
