"""The pages as a Starlette application, with a route for each address, and its guard."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from group_coordinator.pipeline.admin.plans import GroupPlan
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.hosts import HostNames
from group_coordinator.pipeline.monitor.catalog import QueryError
from group_coordinator.pipeline.ui.audit import DID, KINDS, AuditFilter, list_changes
from group_coordinator.pipeline.ui.group import PARTITIONS, read_group
from group_coordinator.pipeline.ui.groups import GroupFilter, list_groups
from group_coordinator.pipeline.ui.pages import STATIC, render, static_file, static_url, url
from group_coordinator.pipeline.ui.previews import (
    SCENARIO_EXAMPLES,
    SCENARIO_LABELS,
    Previews,
    ResetForm,
    execute_preview,
    undo_description,
    undo_plan,
)
from group_coordinator.pipeline.ui.request import trace_request
from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot, SnapshotCache

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")

TIMEOUT_S = 30.0
# The most bytes of a form. A button sends only a token.
_MAX_BODY_BYTES = 4096
_YEAR_S = 365 * 86400


class Access(Struct, frozen=True):
    """The permission to make changes through the pages; the link with `key` grants it.

    Without a `key` no browser may make changes. The key excludes other users of the machine, which
    can also connect to a loopback port. The name `cookie` has the port, because browsers send
    cookies to all ports of a host.
    """

    key: str | None = None
    cookie: str = "group-coordinator-key"

    def allows(self, request: Request) -> bool:
        """Return whether the browser's cookie has the key."""
        given = request.cookies.get(self.cookie, "")
        return self.is_key(given)

    def is_key(self, given: str) -> bool:
        """Return whether `given` is the key, compared in constant time."""
        return self.key is not None and secrets.compare_digest(given.encode(), self.key.encode())


class PageHandlers:
    """The request handlers of the pages for one root."""

    def __init__(self, snapshots: SnapshotCache, access: Access, timeout_s: float) -> None:
        self._snapshots = snapshots
        self._access = access
        self._timeout_s = timeout_s
        self._previews = Previews()

    def routes(self) -> list[Route]:
        """Return the routes of all pages."""
        return [
            Route("/", self.groups),
            Route("/group", self.group),
            Route("/group/reset", self.reset),
            Route("/group/undo", self.undo),
            Route("/group/apply", self.apply, methods=["POST"]),
            Route("/request", self.request),
            Route("/changes", self.changes),
            Route("/snapshot", self.snapshot),
            Route("/static/{name}", self.static),
        ]

    # --- reading ----------------------------------------------------------------------------------

    def groups(self, request: Request) -> Response:
        """Show the list of groups. A key in the URL is first stored in a cookie by a redirect."""
        if "key" in request.query_params:
            return self._store_key(request)
        wanted = GroupFilter.parse(request.query_params)
        listed = self._read(lambda snapshot: list_groups(snapshot, wanted))
        return self._page(request, "groups.html", list=listed)

    def group(self, request: Request) -> Response:
        """Show one group."""
        group_id = request.query_params.get("id", "")
        found = self._read(lambda snapshot: read_group(snapshot, group_id))
        if not found.is_known:
            return self._missing(request, f"There is no group “{group_id}”.")
        return self._page(request, "group.html", group=found, listed=PARTITIONS)

    def request(self, request: Request) -> Response:
        """Show a request with its records, events and response."""
        request_id = request.query_params.get("id", "")
        trace = self._read(lambda snapshot: trace_request(snapshot, request_id))
        if not trace.is_known:
            return self._missing(
                request,
                f"No table has the request “{request_id}”. Requests and responses are kept for a "
                "limited time: see the retention settings of the coordinator.",
            )
        return self._page(request, "request.html", trace=trace)

    def changes(self, request: Request) -> Response:
        """Show the requests that changed offsets or groups, with their senders."""
        wanted = AuditFilter.parse(request.query_params)
        shown = self._read(lambda snapshot: list_changes(snapshot, wanted))
        return self._page(request, "changes.html", shown=shown, kinds=list(KINDS), did=DID)

    def snapshot(self, request: Request) -> Response:  # noqa: ARG002
        """Return the number of the current snapshot as JSON; `live.js` polls it."""
        snapshot = self._snapshots.current()
        return JSONResponse({"number": snapshot.number, "problem": self._snapshots.problem})

    def static(self, request: Request) -> Response:
        """Return a static file of this package."""
        name = request.path_params["name"]
        if name not in STATIC:
            return self._missing(request, "There is no such file.")
        kept = request.url.query == static_url(name).partition("?")[2]
        caching = f"public, max-age={_YEAR_S}, immutable" if kept else "no-cache"
        return Response(
            static_file(name), media_type=STATIC[name], headers={"cache-control": caching}
        )

    # --- changing ---------------------------------------------------------------------------------

    def reset(self, request: Request) -> Response:
        """Show the form of a reset, and below it the preview once the form is complete."""
        form = ResetForm.parse(request.query_params)
        make = partial(form.plan, self._snapshots.root) if form.is_complete else None
        what = form.description() if form.is_complete else ""
        values = {"form": form, "aims": SCENARIO_LABELS, "examples": SCENARIO_EXAMPLES}
        return self._preview(request, "reset.html", make, what, **values)

    def undo(self, request: Request) -> Response:
        """Show the preview of an undo of the last operator's change, or of a return to a time."""
        to = request.query_params.get("to", "").strip()
        make = partial(undo_plan, self._snapshots.root, to=to)
        return self._preview(request, "undo.html", make, undo_description(to), to=to)

    def _preview(
        self,
        request: Request,
        template: str,
        make: Callable[[str], GroupPlan] | None,
        what: str,
        **values: Any,
    ) -> Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        group_id = request.query_params.get("id", "")
        found = self._read(lambda snapshot: read_group(snapshot, group_id))
        if found.head is None:
            return self._missing(request, f"There is no group “{group_id}”.")
        plan, problem = None, None
        if make is not None:
            try:
                plan = self._previews.keep(what, make(group_id))
            except Failure as error:
                problem = str(error)
        return self._page(request, template, group=found, plan=plan, problem=problem, **values)

    async def apply(self, request: Request) -> Response:
        """Carry out the preview with the token in the form."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                return Response("The request is too large.\n", 413)
        token = dict(parse_qsl(body.decode("latin-1"))).get("token", "")
        return await run_in_threadpool(self._apply, request, token)

    def _apply(self, request: Request, token: str) -> Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        plan, problem = None, None
        try:
            plan = self._previews.take(token)
            execute_preview(self._snapshots.root, plan, self._timeout_s)
        except Failure as error:
            problem = str(error)
        if plan is not None and problem is None:
            self._snapshots.refreshed()
        status = 200 if problem is None else 409
        return self._page(request, "applied.html", status, plan=plan, problem=problem)

    # --- what pages share -------------------------------------------------------------------------

    def _read(self, read: Callable[[RootSnapshot], T]) -> T:
        """Read from the snapshot; if files were deleted since, read from a new one."""
        try:
            return read(self._snapshots.current())
        except QueryError:
            return read(self._snapshots.refreshed())

    def _store_key(self, request: Request) -> Response:
        answer = RedirectResponse("/", 303)
        # A wrong key, from a link of another site, does not replace the right one.
        if self._access.is_key(request.query_params["key"]):
            answer.set_cookie(
                self._access.cookie,
                request.query_params["key"],
                httponly=True,
                samesite="strict",
            )
        return answer

    def _refusal(self, request: Request) -> Response | None:
        if self._access.allows(request):
            return None
        if self._access.key is None:
            why = "This server only reads. Start it with --allow-changes to change offsets here."
        else:
            why = "Open the link that the server printed at its start to change offsets here."
        return self._page(request, "message.html", 403, title="Not allowed", text=why)

    def _missing(self, request: Request, text: str) -> Response:
        return self._page(request, "message.html", 404, title="Not found", text=text)

    def failed(self, request: Request, error: Exception) -> Response:  # noqa: ARG002
        """Return the error page, with status 503."""
        return HTMLResponse(
            render("failed.html", root=self._snapshots.root, text=first_line(error)), 503
        )

    def _page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        snapshot = self._snapshots.current()
        text = render(
            template,
            root=self._snapshots.root,
            snapshot=snapshot,
            problem_reading=self._snapshots.problem,
            path=request.url.path,
            may_change=self._access.allows(request),
            **values,
        )
        return HTMLResponse(text, status)


async def _client_disconnected(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return Response(status_code=400)


def make_app(
    snapshots: SnapshotCache,
    access: Access | None = None,
    names: Iterable[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> Guard:
    """Return the application for a root; `names` are additional names allowed in a Host header.

    `timeout_s` is the time in which the coordinator must answer a change.
    """
    pages = PageHandlers(snapshots, access or Access(), timeout_s)
    app = Starlette(
        routes=pages.routes(),
        exception_handlers={Failure: pages.failed, ClientDisconnect: _client_disconnected},
    )
    return Guard(app, names)


def entry_url(address: str, key: str | None) -> str:
    """Return the link to the pages, with the key if changes are allowed."""
    return f"http://{address}{url('/', key=key)}"


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
    """An ASGI wrapper that checks each request, and adds security headers to each response.

    * DNS rebinding: a page of another site can make its name point to this machine, and sends that
      name in the Host header. The server answers only loopback names, IP addresses and the names of
      `--host`.
    * CSRF: a form of another site sends that site's Origin. The server rejects a POST with another
      Origin, or without one.
    * Script injection: templates escape names, and the Content-Security-Policy allows only scripts
      and styles from files of this server.
    """

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
