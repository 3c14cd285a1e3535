"""Python source that is written line by line, and made a function of a message."""

from __future__ import annotations

from typing import Any

from group_coordinator.schemas.kafka.schema import schema


class Source:
    """The lines of a function; `names` are the values that they name."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._names = dict(names)
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text)

    def variable(self) -> str:
        """Return a name that nothing else has."""
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: Any) -> str:
        """Return an expression of a value."""
        if value is None or isinstance(value, bool | int | str | bytes | tuple):
            return repr(value)
        for name, known in self._names.items():
            if known is value:
                return name
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, name: str, title: str) -> Any:
        """Compile the lines, and return the function `name` that they define."""
        names = dict(self._names)
        exec(compile("\n".join(self.lines), f"<{title}>", "exec"), names)
        return names[name]


class Compiler:
    """Has what is compiled of a message in one version, by a reader's or a writer's steps."""

    def __init__(self, message: str, version: int, names: dict[str, Any]) -> None:
        self._message = message
        self._version = version
        self._flexible = schema(message).is_flexible(version)
        self._source = Source(names)
        # The fields of one size that are still to be unpacked, or packed, in one step: the variable
        # or the expression of each, and its format.
        self._run: list[tuple[str, str]] = []
