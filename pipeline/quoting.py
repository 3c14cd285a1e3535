"""Texts of others on a terminal and in a log: what is not to be seen is written out."""

from __future__ import annotations

# Of a name that a client chose, a line of the log has so many characters.
_NAME_CHARACTERS = 60


def quoted_name(name: str) -> str:
    """Return a name that a client chose, in quotes and cut, as a line of the log has it."""
    return repr(name if len(name) <= _NAME_CHARACTERS else f"{name[:_NAME_CHARACTERS]}...")


def quoted(text: str) -> str:
    """Return a text on one line, with what is not to be seen as Python writes it: `\\n`, `\\x1b`.

    An escape character would drive the terminal, and a line's end begin a row that is none.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )


def quoted_lines(text: str) -> str:
    """Return a text of several lines, each of them quoted."""
    return "\n".join(quoted(line) for line in text.split("\n"))
