"""The controlled shutdown: a node that is asked to end first hands its partitions over.

The partitions move as in any other move (`pipeline.node.node`): the node decides for them until the
next owners have read ahead. Without the hand-over, the other nodes would begin to read only after
the stop. The groups would wait for that, for seconds if there is much data.

The node stops without completing the hand-over in three cases: no other node can take over, the
timeout has passed, or its query ends. The query ends if a supervisor signals Spark's Python workers
as well. The remaining partitions are taken over after the node has recorded its stop. A node that
is killed before that counts as dead when its lease has ended.

Source: Kafka's controlled shutdown (KIP-631, BrokerHeartbeat's WantShutDown).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import STORE_FAILS

if TYPE_CHECKING:
    from group_coordinator.pipeline.node.node import CoordinatorNode

log = logging.getLogger(__name__)


class HandOver:
    """The hand-over of a node's partitions by its ticks, for at most `timeout_s`."""

    def __init__(self, node: CoordinatorNode, timeout_s: float) -> None:
        self._node = node
        self._began = monotonic()
        self._timeout_s = timeout_s
        self._is_said = False

    def go_on(self) -> bool:
        """Do the next step; return True if there is more to do after the node's `pause_s`.

        False: the node must be stopped now. An error is logged and also returns False.
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
