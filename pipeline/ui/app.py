"""The pages, by address."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from group_coordinator.pipeline.admin.plans import GroupPlan
from group_coordinator.pipeline.errors import Failure, first_line
from group_coordinator.pipeline.monitor.catalog import QueryError
from group_coordinator.pipeline.ui.audit import DID, KINDS, AuditFilter, list_changes
from group_coordinator.pipeline.ui.group import PARTITIONS, read_group
from group_coordinator.pipeline.ui.groups import GroupFilter, list_groups
from group_coordinator.pipeline.ui.guard import Guard
from group_coordinator.pipeline.ui.pages import STATIC, render, static_file, static_url, url
from group_coordinator.pipeline.ui.previews import Previews, carry_out_preview
from group_coordinator.pipeline.ui.request import follow_request
from group_coordinator.pipeline.ui.resets import (
    AIM_EXAMPLES,
    AIM_WORDS,
    ResetForm,
    undo_plan,
    undo_words,
)
from group_coordinator.pipeline.ui.snapshot import HeldSnapshot, RootSnapshot

T = TypeVar("T")

TIMEOUT_S = 30.0
# The most bytes of a form: a button sends a token, and nothing else.
_MOST_BODY = 4096
_YEAR_S = 365 * 86400


class Access(Struct, frozen=True):
    """Who may change something through the pages: whoever has opened the link with `key`.

    `key` None: nobody. The key keeps other users of the machine, who reach a loopback port as well,
    from changing what they may not write. `cookie` has the port in its name: browsers send cookies
    to every port of a host.
    """

    key: str | None = None
    cookie: str = "group-coordinator-key"

    def allows(self, request: Request) -> bool:
        """Whether the browser has the key."""
        given = request.cookies.get(self.cookie, "")
        return self.is_key(given)

    def is_key(self, given: str) -> bool:
        """Whether this is the key."""
        return self.key is not None and secrets.compare_digest(given.encode(), self.key.encode())


class Pages:
    """The application's pages for one root."""

    def __init__(self, held: HeldSnapshot, access: Access, timeout_s: float) -> None:
        self._held = held
        self._access = access
        self._timeout_s = timeout_s
        self._previews = Previews()

    def routes(self) -> list[Route]:
        """Every address."""
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
        """The list of groups; with a key in the address, the browser is given the key first."""
        if "key" in request.query_params:
            return self._let_in(request)
        wanted = GroupFilter.parse(request.query_params)
        listed = self._read(lambda snapshot: list_groups(snapshot, wanted))
        return self._page(request, "groups.html", list=listed)

    def group(self, request: Request) -> Response:
        """One group."""
        group_id = request.query_params.get("id", "")
        found = self._read(lambda snapshot: read_group(snapshot, group_id))
        if not found.is_known:
            return self._missing(request, f"There is no group “{group_id}”.")
        return self._page(request, "group.html", group=found, listed=PARTITIONS)

    def request(self, request: Request) -> Response:
        """A request's way."""
        request_id = request.query_params.get("id", "")
        way = self._read(lambda snapshot: follow_request(snapshot, request_id))
        if not way.is_known:
            return self._missing(
                request,
                f"No table knows the request “{request_id}”. Requests and answers are kept for a "
                "while only: see the retention settings of the coordinator.",
            )
        return self._page(request, "request.html", way=way)

    def changes(self, request: Request) -> Response:
        """Who changed what."""
        wanted = AuditFilter.parse(request.query_params)
        shown = self._read(lambda snapshot: list_changes(snapshot, wanted))
        return self._page(request, "changes.html", shown=shown, kinds=list(KINDS), did=DID)

    def snapshot(self, request: Request) -> Response:  # noqa: ARG002
        """Which snapshot pages are made of now; asked for by `live.js`."""
        held = self._held.current()
        return JSONResponse({"number": held.number, "problem": self._held.problem})

    def static(self, request: Request) -> Response:
        """A file of ours."""
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
        """The form of a reset, and below it the preview once an aim was chosen."""
        form = ResetForm.parse(request.query_params)
        make = partial(form.plan, self._held.root) if form.is_complete else None
        what = form.in_words() if form.is_complete else ""
        values = {"form": form, "aims": AIM_WORDS, "examples": AIM_EXAMPLES}
        return self._preview(request, "reset.html", make, what, **values)

    def undo(self, request: Request) -> Response:
        """The preview of an undo of the group's last reset, or of a return to a time."""
        to = request.query_params.get("to", "").strip()
        make = partial(undo_plan, self._held.root, to=to)
        return self._preview(request, "undo.html", make, undo_words(to), to=to)

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
        """Carry out the preview whose token was sent."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                return Response("The request is too large.\n", 413)
        token = dict(parse_qsl(body.decode("latin-1"))).get("token", "")
        return await run_in_threadpool(self._apply, request, token)

    def _apply(self, request: Request, token: str) -> Response:
        if (refused := self._refusal(request)) is not None:
            return refused
        plan, problem = None, None
        try:
            plan = self._previews.take(token)
            carry_out_preview(self._held.root, plan, self._timeout_s)
        except Failure as error:
            problem = str(error)
        if plan is not None and problem is None:
            self._held.renewed()
        status = 200 if problem is None else 409
        return self._page(request, "applied.html", status, plan=plan, problem=problem)

    # --- what pages share -------------------------------------------------------------------------

    def _read(self, read: Callable[[RootSnapshot], T]) -> T:
        """Read from the snapshot; from a new one if a table was rewritten under this one."""
        try:
            return read(self._held.current())
        except QueryError:
            return read(self._held.renewed())

    def _let_in(self, request: Request) -> Response:
        answer = RedirectResponse("/", 303)
        # Another key, in a link from somewhere else, does not replace the right one.
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
        """The page in the place of one that cannot be made now."""
        return HTMLResponse(
            render("failed.html", root=self._held.root, text=first_line(error)), 503
        )

    def _page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        held = self._held.current()
        text = render(
            template,
            root=self._held.root,
            snapshot=held,
            problem_reading=self._held.problem,
            path=request.url.path,
            may_change=self._access.allows(request),
            **values,
        )
        return HTMLResponse(text, status)


async def _gone(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return Response(status_code=400)


def make_app(
    held: HeldSnapshot,
    access: Access | None = None,
    names: Iterable[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> Guard:
    """The application for a root; `names` are further names that it answers under.

    `timeout_s`: how long the coordinator may take to decide a change.
    """
    pages = Pages(held, access or Access(), timeout_s)
    app = Starlette(
        routes=pages.routes(),
        exception_handlers={Failure: pages.failed, ClientDisconnect: _gone},
    )
    return Guard(app, names)


def entrance(address: str, key: str | None) -> str:
    """The link to open: with the key, if changes are allowed."""
    return f"http://{address}{url('/', key=key)}"
