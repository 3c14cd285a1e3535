"""The help of the command and of its groups of verbs: it lists verbs with their first sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    import typer


class WholeHelp(TyperGroup):
    """A group of verbs that lists them under their `rich_help_panel`, a heading for a task.

    Typer's plain list cuts a sentence at the end of a line. Its rich list has panels, but draws
    boxes, and interprets brackets as markup.
    """

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the verbs by panel, in the order of their creation."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            panel = getattr(command, "rich_help_panel", None)
            rows = panels.setdefault(panel if isinstance(panel, str) else "Commands", [])
            rows.append((name, _first_paragraph(command.help or "")))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())
