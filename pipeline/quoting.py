"""Quoting of external text for terminals and logs: unprintable characters are escaped."""

from __future__ import annotations

# The longest name from a client in a log line, characters.
_NAME_CHARACTERS = 60
# The longest other external text, and the longest line, characters.
_TEXT_CHARACTERS, _LINE_CHARACTERS = 200, 4_000


def quoted_name(name: str) -> str:
    """Return a name that a client chose, in quotes and truncated, for a log line."""
    return repr(name if len(name) <= _NAME_CHARACTERS else f"{name[:_NAME_CHARACTERS]}...")


def quoted(text: str) -> str:
    """Return a text on one line, with Python's escapes for unprintable characters: `\\n`, `\\x1b`.

    An escape character could control the terminal, and a line break could forge a log line.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )


def quoted_text(text: object) -> str:
    """Return a text that may be external, escaped and truncated to 200 characters."""
    return _cut(str(text), _TEXT_CHARACTERS)


def quoted_line(text: str) -> str:
    """Return a log line, escaped and truncated to 4,000 characters."""
    return _cut(text, _LINE_CHARACTERS)


def _cut(text: str, most: int) -> str:
    # Truncated first, because escaping megabytes takes seconds.
    found = quoted(text[: most + 1])
    return found if len(found) <= most else f"{found[: most - 3]}..."


def quoted_lines(text: str) -> str:
    """Return a text of several lines, each of them escaped."""
    return "\n".join(quoted(line) for line in text.split("\n"))
