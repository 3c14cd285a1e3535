"""The help of the command and of each group of verbs: every verb with its whole first sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    import typer


class WholeHelp(TyperGroup):
    """Lists its verbs under their `rich_help_panel`, which is what one wants to do.

    Typer's own list cuts a sentence at the end of a line. Its rich one knows panels, but draws
    boxes, and takes what is in brackets for markup.
    """

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the verbs, panel by panel, in the order in which they were made."""
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
