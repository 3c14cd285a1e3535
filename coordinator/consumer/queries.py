"""Read-only requests to the coordinator, retried with backoff: OffsetFetch and DescribeGroups.

Source: Kafka's ConsumerCoordinator (fetchCommittedOffsets, OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from group_coordinator.coordinator.consumer.calls import Operation, PendingCall, PendingCalls
from group_coordinator.coordinator.consumer.consumer_errors import (
    ON_FETCHED_PARTITION,
    ON_QUERY,
    ConsumerError,
    Reaction,
    RetriableError,
    disconnected_error,
    error_name,
    fatal_error,
    retriable_error,
)
from group_coordinator.coordinator.consumer.consumer_settings import ConsumerSettings
from group_coordinator.coordinator.consumer.coordinator_requests import (
    CoordinatorLookup,
    InFlightRequests,
)
from group_coordinator.coordinator.consumer.protocol import TopicPartition
from group_coordinator.coordinator.consumer.subscription_state import OffsetAndMetadata
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    Response,
)

T = TypeVar("T")
# Committed offsets; None for a partition without one.
Committed = dict[TopicPartition, "OffsetAndMetadata | None"]
_OFFSET_FETCH = "offset_fetch"


class Queries:
    """The sender of read-only requests."""

    def __init__(
        self,
        settings: ConsumerSettings,
        requests: InFlightRequests,
        lookup: CoordinatorLookup,
        calls: PendingCalls,
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._lookup = lookup
        self._calls = calls

    def fetch_committed_offsets(
        self, now: int, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> Operation[Committed]:
        """Fetch the group's committed offsets of these partitions; return the operation.

        Retriable failures are retried for `timeout_ms`, None for no limit.
        """
        requested = tuple(sorted(set(partitions)))
        if requested:
            what = f"fetching the committed offsets of group {self._settings.group_id!r}"
            read = partial(_read, self._settings)
            return self.send(now, _OFFSET_FETCH, _request(requested), read, what, timeout_ms)
        operation: Operation[Committed] = Operation()
        operation.succeed({})
        return operation

    def send(
        self,
        now: int,
        api: str,
        body: Struct,
        read: Callable[[Any], T],
        what: str,
        timeout_ms: int | None = None,
    ) -> Operation[T]:
        """Send a request; return its operation, which has the result of `read` as its value.

        Retriable failures are retried for `timeout_ms`, None for no limit. `read` is called with
        the body of an answer with code NONE, and may raise ConsumerError; the request is retried if
        that is retriable. `what` names the query in error messages.
        """
        operation: Operation[T] = Operation()

        def on_answer(at: int, response: Response | None) -> None:
            code = ErrorCode.NONE if response is None else response.error_code
            try:
                value = self._value(api, response, read)
            except ConsumerError as error:
                self._calls.failed(at, call, error)
            else:
                self._calls.end(call)
                operation.succeed(value)
            if ON_QUERY.get(code) is Reaction.FIND_COORDINATOR:
                self._lookup.mark_unknown(at, f"{api} answered {error_name(code)}")

        call = PendingCall(
            what,
            lambda at: self._requests.send(at, api, body, on_answer),
            lambda _, error: operation.fail(error),
            None if timeout_ms is None else now + timeout_ms,
            retries=True,
            now=now,
        )
        self._calls.start(now, call)
        return operation

    def _value(self, api: str, response: Response | None, read: Callable[[Any], T]) -> T:
        if response is None:
            raise disconnected_error(api)
        code, body = response.error_code, getattr(response, api)
        if code == ErrorCode.NONE and body is not None:
            return read(body)
        if ON_QUERY.get(code) in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            raise retriable_error(api, code)
        raise fatal_error(api, code, self._settings, response.error_message)


def _read(settings: ConsumerSettings, body: OffsetFetchResponse) -> Committed:
    """Return the committed offsets of an answer.

    Raises ConsumerError for a partition's error code, RetriableError if offsets are not stable yet.
    """
    unstable = False
    for topic in body.topics:
        for partition in topic.partitions:
            code = partition.error_code
            if ON_FETCHED_PARTITION.get(code) is Reaction.RETRY:
                unstable = True
            elif code != ErrorCode.NONE:
                where = f"{topic.name}-{partition.partition_index}"
                raise fatal_error(_OFFSET_FETCH, code, settings, where)
    if unstable:
        raise RetriableError(
            f"{_OFFSET_FETCH}: offsets are not stable yet", ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    return _committed(body)


def _request(partitions: tuple[TopicPartition, ...]) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return OffsetFetchRequest(
        tuple(OffsetFetchTopic(name, tuple(ps)) for name, ps in topics.items()),
        require_stable=True,
    )


def _committed(body: OffsetFetchResponse) -> Committed:
    return {
        TopicPartition(topic.name, p.partition_index): None
        if p.committed_offset < 0
        else OffsetAndMetadata(p.committed_offset, p.metadata, p.committed_leader_epoch)
        for topic in body.topics
        for p in topic.partitions
    }
