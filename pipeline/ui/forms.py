"""The query of a page's address: what a form reads of it, and how a link writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, structs

_MOST_DIGITS = 9


def text(query: Mapping[str, str], name: str) -> str:
    """What was typed, without blanks around it."""
    return query.get(name, "").strip()


def choice(query: Mapping[str, str], name: str, known: Collection[str], default: str = "") -> str:
    """What was chosen; the default for what there is not to choose from."""
    chosen = query.get(name, default)
    return chosen if chosen in known else default


def page_number(query: Mapping[str, str]) -> int:
    """Which page is wanted, from 1; the first for what is no number."""
    number = query.get("page", "1")
    return max(1, int(number)) if number.isdecimal() and len(number) <= _MOST_DIGITS else 1


def query_of(form: Struct) -> dict[str, str]:
    """The query of an address for a form: its fields that are not at their defaults."""
    fields, defaults = structs.asdict(form), structs.asdict(type(form)())
    return {name: str(value) for name, value in fields.items() if value != defaults[name]}
