"""The parsing of a URL's query into form fields, and the query of a link."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, structs

_MOST_DIGITS = 9


def text(query: Mapping[str, str], name: str) -> str:
    """Return a text field, without leading and trailing blanks."""
    return query.get(name, "").strip()


def choice(query: Mapping[str, str], name: str, known: Collection[str], default: str = "") -> str:
    """Return a chosen value; the default if it is not in `known`."""
    chosen = query.get(name, default)
    return chosen if chosen in known else default


def page_number(query: Mapping[str, str]) -> int:
    """Return the page number, from 1; the first page for an invalid number."""
    number = query.get("page", "1")
    return max(1, int(number)) if number.isdecimal() and len(number) <= _MOST_DIGITS else 1


def query_of(form: Struct) -> dict[str, str]:
    """Return the query of a URL for a form, with the fields that differ from their defaults."""
    fields, defaults = structs.asdict(form), structs.asdict(type(form)())
    return {name: str(value) for name, value in fields.items() if value != defaults[name]}
