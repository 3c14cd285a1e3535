"""The templates with their filters and functions, and a group's page as a self-contained file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from group_coordinator.pipeline.admin.plans import UnknownGroup
from group_coordinator.pipeline.ui.audit import KIND_WORDS
from group_coordinator.pipeline.ui.formats import (
    VERDICTS,
    ago,
    brief,
    clip,
    duration,
    iso,
    milliseconds,
    number,
    spans,
    tone,
    utc,
    width,
)
from group_coordinator.pipeline.ui.group import read_group
from group_coordinator.pipeline.ui.root_snapshot import RootSnapshot

STATIC = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


@cache
def static_file(name: str) -> bytes:
    """Return the bytes of a file of `STATIC`."""
    return (
        resources.files("group_coordinator.pipeline.ui")
        .joinpath("static")
        .joinpath(name)
        .read_bytes()
    )


@cache
def static_url(name: str) -> str:
    """Return the URL of a static file, with a hash of its content, so that caches may keep it."""
    return f"/static/{name}?v={hashlib.sha256(static_file(name)).hexdigest()[:12]}"


@cache
def environment() -> Environment:
    """Return the Jinja2 environment, which escapes all values and raises for undefined names."""
    made = Environment(
        loader=PackageLoader("group_coordinator.pipeline.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        num=number,
        utc=utc,
        iso=iso,
        ago=ago,
        span=duration,
        ms=milliseconds,
        tone=tone,
        parts=spans,
        clip=clip,
        width=width,
    )
    made.globals.update(
        url=url,
        static=static_url,
        brief=brief,
        kind_words=KIND_WORDS,
        verdict_words=VERDICTS,
    )
    return made


def render(template: str, **values: Any) -> str:
    """Return a template's page as HTML."""
    return environment().get_template(template).render(**values)


def url(path: str, **query: Any) -> str:
    """Return a path with a query; parameters that are None or empty are omitted."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def write_report(root: str, group_id: str) -> str:
    """Return a group's page as HTML with an inline style sheet, without scripts.

    Its Content-Security-Policy allows only this style sheet. Raises NoRoot and UnknownGroup.
    """
    snapshot = RootSnapshot(root, 1)
    group = read_group(snapshot, group_id)
    if not group.is_known:
        raise UnknownGroup(f"there is no group {group_id!r} under {root}")
    style = static_file("style.css").decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return render(
        "report.html",
        root=root,
        snapshot=snapshot,
        group=group,
        style=style,
        style_hash=digest,
    )
