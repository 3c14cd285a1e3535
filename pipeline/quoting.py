"""Texts of others on a terminal: what is not to be seen is written out."""

from __future__ import annotations


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
