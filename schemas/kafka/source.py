"""Generation of Python source, and its compilation to a function for one message version."""

from __future__ import annotations

from typing import Any

from group_coordinator.schemas.kafka.schema import schema


class Source:
    """The source lines of a function; `names` are its global names."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.depth = 0
        self._names = dict(names)
        self._count = 0

    def line(self, text: str) -> None:
        """Append a line at the current indentation."""
        self.lines.append("    " * self.depth + text)

    def variable(self) -> str:
        """Return a new variable name."""
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: Any) -> str:
        """Return an expression for a value: a literal, or the name of a global."""
        if value is None or isinstance(value, bool | int | str | bytes | tuple):
            return repr(value)
        for name, known in self._names.items():
            if known is value:
                return name
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def function(self, name: str, title: str) -> Any:
        """Compile the lines and return the function `name` that they define."""
        names = dict(self._names)
        exec(compile("\n".join(self.lines), f"<{title}>", "exec"), names)
        return names[name]


class Compiler:
    """Base of the compilers of readers and writers: one message in one version."""

    def __init__(self, message: str, version: int, names: dict[str, Any]) -> None:
        self._message = message
        self._version = version
        self._flexible = schema(message).is_flexible(version)
        self._source = Source(names)
        # Adjacent fixed-size fields that are not packed or unpacked yet: the variable or expression
        # of each, and its `struct` format.
        self._run: list[tuple[str, str]] = []
