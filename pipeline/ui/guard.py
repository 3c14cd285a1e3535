"""What every request must show before a page is made, and what every answer forbids a browser.

* A page of another site whose name was made to point at this machine (DNS rebinding) sends its own
  name in the Host header. Only loopback names, addresses and names given by `--host` are answered.
* A form of another site (CSRF) sends its own Origin. A POST whose Origin is not this site's is
  refused, one without an Origin too.
* Whatever a group is called, it cannot become a script: templates escape, and the
  Content-Security-Policy allows scripts and styles of this server's own files only.
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
    # Not `no-referrer`: with it browsers send `Origin: null` with the site's own forms.
    "referrer-policy": "same-origin",
}
_READS = ("GET", "HEAD")


class Guard:
    """Wraps an application: refuses what the rules above refuse, and adds the headers."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = HostNames(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
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
        if not self._names.has(host):
            return PlainTextResponse(
                "This server does not answer under the name in the Host header. "
                "Give the name by --host when you start it.\n",
                421,
            )
        ours = (f"http://{host}", f"https://{host}")
        if method not in _READS and headers.get("origin") not in ours:
            return PlainTextResponse("The request comes from another site.\n", 403)
        return None
