"""One client's session: who it is, and its requests, each answered by its API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.gateway.apis import APIS
from pipeline.gateway.apis.api_versions import unsupported
from pipeline.gateway.call import Call
from pipeline.gateway.fields import InvalidFrame
from pipeline.gateway.security.authenticator import Authenticator
from pipeline.gateway.wire import (
    API_VERSIONS,
    RequestHeader,
    read_body,
    read_header,
    response_frame,
)
from schemas.acls import ANONYMOUS

if TYPE_CHECKING:
    from pipeline.gateway.api import Api
    from pipeline.gateway.call import Services
    from pipeline.gateway.security.users import Users


class _Request(NamedTuple):
    """A request; `body` None: an ApiVersions of a version that is not known here."""

    header: RequestHeader
    api: Api
    body: Any


class Session:
    """The requests of one connection. With `users` a client has to be one of them."""

    def __init__(self, services: Services, users: Users | None) -> None:
        self._services = services
        self._settings = settings = services.settings
        self._authenticator: Authenticator | None = None
        self._principal = ANONYMOUS
        if users is not None:
            self._authenticator = Authenticator(users, settings.mechanisms)

    @property
    def largest_frame(self) -> int:
        """The largest frame that is read now, bytes: strangers may send small ones only."""
        if self._authenticator is not None:
            return self._settings.sasl_server_max_receive_size
        return self._settings.socket_request_max_bytes

    async def answer(self, frame: bytes, host: str) -> bytes | None:
        """Answer one frame; None where its client waits for no answer. Raises InvalidFrame."""
        authenticator = self._authenticator
        if authenticator is None:
            return await self._answer(_read(frame), host)
        if authenticator.takes_bare_tokens:
            answer = await authenticator.answer_token(frame)
        else:
            request = _read(frame)
            if request.header.api_key == API_VERSIONS:
                if request.body is not None:
                    authenticator.allow_versions()
                return await self._answer(request, host)
            answer = await authenticator.answer(request.header, request.api, request.body)
        if authenticator.principal is not None:
            self._principal, self._authenticator = authenticator.principal, None
        return answer

    async def _answer(self, request: _Request, host: str) -> bytes | None:
        header = request.header
        if request.body is None:
            return response_frame(header.correlation_id, request.api, unsupported(APIS.values()), 0)
        call = Call(self._services, header.version, header.client_id, f"/{host}", self._principal)
        if request.api.parks:
            response = await request.api.answer(call, request.body)
        else:
            async with self._services.queue:
                response = await request.api.answer(call, request.body)
        if response is None:
            return None
        return response_frame(header.correlation_id, request.api, response, header.version)


def _read(frame: bytes) -> _Request:
    """Read a request. Raises InvalidFrame for one that is not served."""
    header = read_header(frame, _is_flexible)
    api = APIS.get(header.api_key)
    if api is None:
        raise InvalidFrame(f"API key {header.api_key} is not served")
    if api.lowest <= header.version <= api.highest:
        return _Request(header, api, read_body(api, header.version, frame, header.body_at))
    if header.api_key == API_VERSIONS:
        return _Request(header, api, None)
    raise InvalidFrame(
        f"{api.name} of version {header.version} is not served: {api.lowest} to {api.highest} are"
    )


def _is_flexible(api_key: int, version: int) -> bool:
    api = APIS.get(api_key)
    return api is not None and api.lowest <= version <= api.highest and api.is_flexible(version)
