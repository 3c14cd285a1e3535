"""Read-only requests to the coordinator, retried with backoff until they are answered.

Source: Kafka's ConsumerCoordinator (fetchCommittedOffsets, OffsetFetchResponseHandler).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from group_coordinator.coordinator.consumer.calls import Call, Calls, Operation
from group_coordinator.coordinator.consumer.errors import (
    ConsumerError,
    disconnected,
    fatal,
    name_of,
    passing,
)
from group_coordinator.coordinator.consumer.lookup import CoordinatorLookup
from group_coordinator.coordinator.consumer.reactions import ON_QUERY, Reaction
from group_coordinator.coordinator.consumer.requests import Requests
from group_coordinator.coordinator.consumer.settings import ConsumerSettings
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import Response

T = TypeVar("T")


class Queries:
    """The sender of read-only requests."""

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

    def ask(
        self,
        now: int,
        api: str,
        body: Struct,
        read: Callable[[Any], T],
        what: str,
        timeout_ms: int | None = None,
    ) -> Operation[T]:
        """Send a request; return its operation. The value is the result of `read`.

        Retriable failures are retried for `timeout_ms`, None for no limit. `read` is called with
        the body of an answer with code NONE. It raises ConsumerError for other errors, and the
        request is retried if that is retriable. `what` names the query in error messages.
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
                self._lookup.mark_unknown(at, f"{api} answered {name_of(code)}")

        call = Call(
            what,
            lambda at: self._requests.send(at, api, body, on_answer),
            lambda _, error: operation.fail(error),
            None if timeout_ms is None else now + timeout_ms,
            tries_again=True,
            now=now,
        )
        self._calls.start(now, call)
        return operation

    def _value(self, api: str, response: Response | None, read: Callable[[Any], T]) -> T:
        if response is None:
            raise disconnected(api)
        code, body = response.error_code, getattr(response, api)
        if code == ErrorCode.NONE and body is not None:
            return read(body)
        if ON_QUERY.get(code) in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            raise passing(api, code)
        raise fatal(api, code, self._settings, response.error_message)
