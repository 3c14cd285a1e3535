"""OffsetFetch: what the group has committed for partitions.

Source: Kafka's ConsumerCoordinator (fetchCommittedOffsets, OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from group_coordinator.coordinator.consumer.calls import Call, Calls, Operation
from group_coordinator.coordinator.consumer.errors import (
    ConsumerError,
    RetriableError,
    disconnected,
    fatal,
    name_of,
    passing,
)
from group_coordinator.coordinator.consumer.lookup import CoordinatorLookup
from group_coordinator.coordinator.consumer.positions import OffsetAndMetadata
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.reactions import (
    ON_FETCHED_PARTITION,
    ON_OFFSET_FETCH,
    Reaction,
)
from group_coordinator.coordinator.consumer.requests import Requests
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    Response,
)

# None where nothing is committed.
Committed = dict[TopicPartition, "OffsetAndMetadata | None"]
_API = "offset_fetch"


class OffsetFetches:
    """The fetches of committed offsets that have not ended."""

    def __init__(
        self,
        settings: ConsumerSettings,
        requests: Requests,
        lookup: CoordinatorLookup,
        calls: Calls,
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._lookup = lookup
        self._calls = calls

    def fetch(
        self, now: int, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> Operation[Committed]:
        """Fetch committed offsets, retrying until `timeout_ms` is over; None for no limit."""
        operation: Operation[Committed] = Operation()
        wanted = tuple(sorted(set(partitions)))
        if not wanted:
            operation.succeed({})
            return operation
        call: Call

        def attempt(at: int) -> None:
            handler = partial(self._on_answer, call, operation)
            self._requests.send(at, _API, _request(wanted), handler)

        call = Call(
            f"fetching the committed offsets of group {self._settings.group_id!r}",
            attempt,
            lambda _, error: operation.fail(error),
            None if timeout_ms is None else now + timeout_ms,
            tries_again=True,
            now=now,
        )
        self._calls.start(now, call)
        return operation

    def _on_answer(
        self, call: Call, operation: Operation[Committed], now: int, response: Response | None
    ) -> None:
        error = self._error(response)
        if error is not None:
            self._calls.failed(now, call, error)
        elif response is not None and response.offset_fetch is not None:
            self._calls.end(call)
            operation.succeed(_committed(response.offset_fetch))
        code = ErrorCode.NONE if response is None else response.error_code
        if ON_OFFSET_FETCH.get(code) is Reaction.FIND_COORDINATOR:
            self._lookup.mark_unknown(now, f"{_API} answered {name_of(code)}")

    def _error(self, response: Response | None) -> ConsumerError | None:
        if response is None:
            return disconnected(_API)
        code = response.error_code
        if code != ErrorCode.NONE or response.offset_fetch is None:
            if ON_OFFSET_FETCH.get(code) in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
                return passing(_API, code)
            return fatal(_API, code, self._settings, response.error_message)
        unstable = False
        for topic in response.offset_fetch.topics:
            for partition in topic.partitions:
                code = partition.error_code
                if ON_FETCHED_PARTITION.get(code) is Reaction.RETRY:
                    unstable = True
                elif code != ErrorCode.NONE:
                    where = f"{topic.name}-{partition.partition_index}"
                    return fatal(_API, code, self._settings, where)
        if unstable:
            return RetriableError(
                f"{_API}: offsets are not stable yet", ErrorCode.UNSTABLE_OFFSET_COMMIT
            )
        return None


def _request(partitions: tuple[TopicPartition, ...]) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    asked = tuple(OffsetFetchTopic(name, tuple(ps)) for name, ps in topics.items())
    return OffsetFetchRequest(asked, require_stable=True)


def _committed(body: OffsetFetchResponse) -> Committed:
    return {
        TopicPartition(topic.name, p.partition_index): None
        if p.committed_offset < 0
        else OffsetAndMetadata(p.committed_offset, p.metadata, p.committed_leader_epoch)
        for topic in body.topics
        for p in topic.partitions
    }
