"""The session of one client: its principal, and its requests, each answered by its API."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.gateway.apis.discovery import supported_versions
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
    from group_coordinator.pipeline.gateway.api import ApiHandler
    from group_coordinator.pipeline.gateway.pending_request import PendingRequest
    from group_coordinator.pipeline.gateway.request_context import Services
    from group_coordinator.pipeline.gateway.users import Users


class _DecodedRequest(NamedTuple):
    """A decoded request. `body` is None for an ApiVersions request of an unsupported version."""

    header: RequestHeader
    api: ApiHandler
    body: Any


class Session:
    """The requests of one connection to a listener. With `users`, the client must authenticate.

    `client_host` is the client's address. `largest_frame` is the limit of a frame, bytes, which is
    small until the client is authenticated.
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
    def must_authenticate(self) -> bool:
        """Whether the client must still authenticate."""
        return self._authenticator is not None

    def start(self, request: PendingRequest, sent_after: int) -> None:
        """Start to answer a request. Raises InvalidFrame.

        Its frame was sent after `sent_after`, ms of `clock.since_boot_ms`.
        """
        frame = request.frame
        if self._authenticator is not None:
            request.run(partial(self._authenticate, self._authenticator, frame))
        elif len(frame) <= FREE_BYTES:
            self._handle(_decode(frame), request, sent_after)
        else:
            owner = Owner(self._principal, self._client_host)
            decode = partial(self._services.threads.run, owner, partial(_decode, frame))
            handle = partial(self._handle, request=request, sent_after=sent_after, in_thread=True)
            request.decode_in_thread(decode, handle)

    def _handle(
        self,
        decoded: _DecodedRequest,
        request: PendingRequest,
        sent_after: int,
        in_thread: bool = False,
    ) -> None:
        header, api, body = decoded
        if body is None:
            request.run(partial(self._versions, decoded))
            return
        call = RequestContext(
            self._services,
            header.version,
            header.client_id,
            self._client_host,
            self._principal,
            sent_after,
            self._listener,
        )
        request.handle(api, call, header.correlation_id, body, in_thread)

    async def _authenticate(self, authenticator: Authenticator, frame: bytes) -> bytes:
        if authenticator.takes_bare_tokens:
            response = await authenticator.answer_token(frame)
        else:
            check_allowed(frame)
            decoded = _decode(frame)
            if decoded.header.api_key == API_VERSIONS:
                if decoded.body is not None:
                    authenticator.allow_versions()
                return await self._versions(decoded)
            response = await authenticator.answer(decoded.header, decoded.api, decoded.body)
        if authenticator.principal is not None:
            self._principal, self._authenticator = authenticator.principal, None
            self.largest_frame = self._services.settings.socket_request_max_bytes
        return response

    async def _versions(self, decoded: _DecodedRequest) -> bytes:
        """Answer an ApiVersions request before authentication, or of an unsupported version."""
        header, api, body = decoded
        if body is None:
            response = supported_versions(ErrorCode.UNSUPPORTED_VERSION)
            return response_frame(header.correlation_id, api, response, 0)
        response = supported_versions(ErrorCode.NONE)
        return response_frame(header.correlation_id, api, response, header.version)


def _decode(frame: bytes) -> _DecodedRequest:
    """Decode a request. Raises InvalidFrame if it is invalid, or its API is not served."""
    header = read_header(frame, _is_flexible)
    api = APIS.get(header.api_key)
    if api is None:
        raise InvalidFrame(f"API key {header.api_key} is not served")
    lowest, highest = api.row.lowest, api.row.highest
    if lowest <= header.version <= highest:
        return _DecodedRequest(header, api, read_body(api, header.version, frame, header.body_at))
    if header.api_key == API_VERSIONS:
        return _DecodedRequest(header, api, None)
    raise InvalidFrame(
        f"{api.name} of version {header.version} is not served: {lowest} to {highest} are"
    )


def _is_flexible(api_key: int, version: int) -> bool:
    api = APIS.get(api_key)
    return api is not None and api.is_flexible(version)
