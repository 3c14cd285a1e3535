"""The checks of each request, and the security headers of each response.

* DNS rebinding: a page of another site can make its name point to this machine, and sends that name
  in the Host header. The server answers only loopback names, IP addresses and the names of
  `--host`.
* CSRF: a form of another site sends that site's Origin. The server rejects a POST with another
  Origin, or without one.
* Script injection: templates escape names, and the Content-Security-Policy allows only scripts and
  styles from files of this server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from group_coordinator.pipeline.hosts import HostNames

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With `no-referrer`, browsers would send `Origin: null` for forms of this site.
    "referrer-policy": "same-origin",
}
_READS = ("GET", "HEAD")


class Guard:
    """An ASGI wrapper that rejects requests by the rules above and adds the headers."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = HostNames(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refused = self._refusal(scope["method"], Headers(scope=scope))
        answer = self._app if refused is None else refused
        await answer(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        host = headers.get("host", "")
        if not self._names.accepts(host):
            return PlainTextResponse(
                "This server does not accept the name in the Host header. "
                "Start it with --host NAME to accept the name.\n",
                421,
            )
        ours = (f"http://{host}", f"https://{host}")
        if method not in _READS and headers.get("origin") not in ours:
            return PlainTextResponse("The request comes from another site.\n", 403)
        return None
