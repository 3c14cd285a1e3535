"""The session of one client: its principal, and its requests, each answered by its API."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from group_coordinator.pipeline.gateway.answering import Answering, ReadAside, tell
from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.gateway.apis.api_versions import supported
from group_coordinator.pipeline.gateway.authenticator import Authenticator, check_allowed
from group_coordinator.pipeline.gateway.fair_threads import Owner
from group_coordinator.pipeline.gateway.request_context import RequestContext
from group_coordinator.pipeline.gateway.wire import (
    API_VERSIONS,
    InvalidFrame,
    RequestHeader,
    read_body,
    read_header,
    response_frame,
)
from group_coordinator.pipeline.gateway_settings import FREE_BYTES
from group_coordinator.schemas.acls import ANONYMOUS
from group_coordinator.schemas.errors import ErrorCode

if TYPE_CHECKING:
    from group_coordinator.pipeline.gateway.answering import Client, Running
    from group_coordinator.pipeline.gateway.api import ApiHandler
    from group_coordinator.pipeline.gateway.request_context import Services
    from group_coordinator.pipeline.gateway.security.users import Users


class _Request(NamedTuple):
    """A decoded request. `body` is None for an ApiVersions request of an unsupported version."""

    header: RequestHeader
    api: ApiHandler
    body: Any


class Session:
    """The requests of one connection to a listener. With `users`, the client must authenticate.

    `client_host` is the client's address. `largest_frame` is the current limit of a frame, bytes.
    It is small until the client is authenticated.
    """

    def __init__(
        self,
        services: Services,
        listener: str,
        users: Users | None,
        client_host: str,
    ) -> None:
        self._services = services
        self._listener = listener
        settings = services.settings
        self._authenticator: Authenticator | None = None
        self._principal = ANONYMOUS
        self._client_host = f"/{client_host}"
        self.largest_frame = settings.socket_request_max_bytes
        if users is not None:
            self._authenticator = Authenticator(
                users, settings.mechanisms, client_host, services.refused
            )
            self.largest_frame = settings.sasl_server_max_receive_size

    @property
    def is_stranger(self) -> bool:
        """Whether the client must still authenticate."""
        return self._authenticator is not None

    def begin(self, frame: bytes, sent_after: int, client: Client) -> Running:
        """Start to answer a frame; the result goes to `client`. Raises InvalidFrame.

        The frame was sent after `sent_after`, ms of `clock.since_boot_ms`.
        """
        if self._authenticator is not None:
            answer = partial(self._authenticate, self._authenticator, frame)
            return asyncio.ensure_future(tell(answer, client))
        if len(frame) <= FREE_BYTES:
            return self._begin(_read(frame), sent_after, client)
        begin = partial(self._begin, sent_after=sent_after, client=client, aside=True)
        owner = Owner(self._principal, self._client_host)
        read = partial(self._services.threads.run, owner, partial(_read, frame))
        return ReadAside(read, begin, client)

    def _begin(
        self, request: _Request, sent_after: int, client: Client, aside: bool = False
    ) -> Running:
        if request.body is None:
            return asyncio.ensure_future(tell(partial(self._versions, request), client))
        call = self._call(request, sent_after)
        number = request.header.correlation_id
        return Answering(request.api, call, number, request.body, client, aside)

    async def _authenticate(self, authenticator: Authenticator, frame: bytes) -> bytes:
        if authenticator.takes_bare_tokens:
            answer = await authenticator.answer_token(frame)
        else:
            check_allowed(frame)
            request = _read(frame)
            if request.header.api_key == API_VERSIONS:
                if request.body is not None:
                    authenticator.allow_versions()
                return await self._versions(request)
            answer = await authenticator.answer(request.header, request.api, request.body)
        if authenticator.principal is not None:
            self._principal, self._authenticator = authenticator.principal, None
            self.largest_frame = self._services.settings.socket_request_max_bytes
        return answer

    async def _versions(self, request: _Request) -> bytes:
        """Answer an ApiVersions request before authentication, or of an unsupported version."""
        header, api, body = request
        known = body is not None
        response = supported(ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION)
        return response_frame(header.correlation_id, api, response, header.version if known else 0)

    def _call(self, request: _Request, sent_after: int) -> RequestContext:
        header = request.header
        return RequestContext(
            self._services,
            header.version,
            header.client_id,
            self._client_host,
            self._principal,
            sent_after,
            self._listener,
        )


def _read(frame: bytes) -> _Request:
    """Decode a request. Raises InvalidFrame if it is invalid, or its API is not served."""
    header = read_header(frame, _is_flexible)
    api = APIS.get(header.api_key)
    if api is None:
        raise InvalidFrame(f"API key {header.api_key} is not served")
    lowest, highest = api.row.lowest, api.row.highest
    if lowest <= header.version <= highest:
        return _Request(header, api, read_body(api, header.version, frame, header.body_at))
    if header.api_key == API_VERSIONS:
        return _Request(header, api, None)
    raise InvalidFrame(
        f"{api.name} of version {header.version} is not served: {lowest} to {highest} are"
    )


def _is_flexible(api_key: int, version: int) -> bool:
    api = APIS.get(api_key)
    return api is not None and api.is_flexible(version)
