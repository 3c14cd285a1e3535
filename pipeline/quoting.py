"""Texts of others on a terminal and in a log: what is not to be seen is written out."""

from __future__ import annotations

# Of a name that a client chose, a line of the log has so many characters.
_NAME_CHARACTERS = 60
# Of any other text from outside, and of a line as a whole.
_TEXT_CHARACTERS, _LINE_CHARACTERS = 200, 4_000


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


def quoted_text(text: object) -> str:
    """Return a text that may have come from outside, quoted and cut to 200 characters."""
    return _cut(str(text), _TEXT_CHARACTERS)


def quoted_line(text: str) -> str:
    """Return a line of the log, quoted and cut to 4,000 characters, whatever its values hold."""
    return _cut(text, _LINE_CHARACTERS)


def _cut(text: str, most: int) -> str:
    # Cut first: to quote megabytes takes seconds.
    found = quoted(text[: most + 1])
    return found if len(found) <= most else f"{found[: most - 3]}..."


def quoted_lines(text: str) -> str:
    """Return a text of several lines, each of them quoted."""
    return "\n".join(quoted(line) for line in text.split("\n"))
