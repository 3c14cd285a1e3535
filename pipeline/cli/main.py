"""The command `group-coordinator`; `python -m group_coordinator` is the same.

The exit status is 0 on success, 1 on a failure with a message of one line, 2 on invalid arguments.
Only the module of the called verb is imported, so that it starts fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup

from group_coordinator.pipeline.errors import Failure, UsageError, in_words
from group_coordinator.pipeline.logs import LogFormat, ProcessLog
from group_coordinator.pipeline.quoting import quoted_lines

# The verbs, and the groups of verbs, by task.
_PANELS = {
    "Try it": ("demo", "simulate"),
    "Run": ("run", "gateway", "metrics", "ui", "worker", "package"),
    "Ask and change": (
        "sql",
        "watch",
        "report",
        "groups",
        "offsets",
        "topics",
        "nodes",
        "partitions",
    ),
    "Look after the tables": ("compact", "retain", "repair", "records"),
    "Say who may do what": ("acls", "users", "keys"),
}
_GROUPS = {"groups", "offsets", "partitions", "topics", "acls", "keys", "users", "records"}
# The modules of verbs and groups of verbs that have no module of their name.
_MODULES = {
    "compact": "upkeep",
    "demo": "replay",
    "keys": "credentials",
    "metrics": "gateway",
    "nodes": "partitions",
    "package": "run",
    "records": "upkeep",
    "repair": "upkeep",
    "report": "ui",
    "retain": "upkeep",
    "simulate": "replay",
    "sql": "ui",
    "users": "credentials",
    "watch": "ui",
}
# Verbs that start Spark, or package code that runs in it.
_WITH_SPARK = {"run", "package", "demo"}
# The packages that the extra `coordinator` installs.
_COORDINATOR_PACKAGES = ("pyspark", "delta", "pandas")
# Exceptions that end a command with one line, besides this project's failures. If a module is not
# loaded, its exception cannot have been raised, so the check imports none.
_FAILURES = (
    ("deltalake.exceptions", "DeltaError"),
    ("group_coordinator.coordinator.config", "ConfigError"),
    ("group_coordinator.coordinator.consumer.consumer_errors", "ConsumerError"),
)


class VerbGroup(TyperGroup):
    """A group of verbs that lists them under their `rich_help_panel`, a heading for a task.

    Typer's plain list cuts long sentences. Its rich list draws boxes and reads brackets as markup.
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
            rows.append((name, " ".join((command.help or "").partition("\n\n")[0].split())))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def make_app(verb: str | None = None) -> typer.Typer:
    """Return the command with one verb, or with all verbs if there is no such verb."""
    known = {name for names in _PANELS.values() for name in names}
    made = typer.Typer(
        name="group-coordinator",
        cls=VerbGroup,
        help="Kafka's consumer-group coordination for the lakehouse, on Spark and Delta.",
        no_args_is_help=True,
        # Completion increases the import time of Typer by half.
        add_completion=verb not in known,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    made.callback()(_options)
    chosen = {verb} if verb in known else known
    for panel, names in _PANELS.items():
        for name in filter(chosen.__contains__, names):
            module = _MODULES.get(name, name)
            if name in _GROUPS:
                group = _attribute(module, f"{name}_app")
                made.add_typer(group, name=name, cls=VerbGroup, rich_help_panel=panel)
            else:
                made.command(rich_help_panel=panel)(_attribute(module, name))
    return made


def _attribute(module: str, name: str) -> Any:
    return getattr(import_module(f"group_coordinator.pipeline.cli.{module}"), name)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from group_coordinator.pipeline.extras import PROJECT

        typer.echo(f"group-coordinator {version(PROJECT)}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Kafka's consumer-group coordination for the lakehouse, on Spark and Delta."""


def check_spark(verb: str) -> None:
    """Raise Failure if a package that the verb needs for Spark is not installed."""
    missing = [name for name in _COORDINATOR_PACKAGES if find_spec(name) is None]
    if missing:
        from group_coordinator.pipeline.extras import install_hint

        raise Failure(f"{verb} needs {', '.join(missing)}: {install_hint('coordinator')}")


class _PandasBlocker(MetaPathFinder):
    """An import hook that refuses pandas.

    pyarrow imports pandas, if installed, with its first array from Python objects. That takes as
    long as a short verb. Only a coordinator's environment has pandas, for Spark.
    """

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("verbs that start no Spark do not load pandas", name=name)


def hide_pandas() -> None:
    """Hide pandas from pyarrow and deltalake in this process from now on."""
    # `sys.modules["pandas"] = None` does not work: pyarrow uses the None as the module.
    sys.meta_path.insert(0, _PandasBlocker())


def main() -> None:
    """Run the command line."""
    verb = next(iter(sys.argv[1:2]), None)
    if verb not in _WITH_SPARK:
        hide_pandas()
    try:
        if verb in _WITH_SPARK:
            check_spark(verb)
        make_app(verb)()
    except UsageError as error:
        typer.echo(f"group-coordinator: {quoted_lines(str(error))}", err=True)
        sys.exit(2)
    except Exception as error:
        imported = [
            getattr(sys.modules[name], kind) for name, kind in _FAILURES if name in sys.modules
        ]
        is_bug = not isinstance(error, (Failure, OSError, *imported))
        log = ProcessLog.current
        if log is not None and log.form is LogFormat.JSON:
            # With --log-format json a failure is a JSON object, too.
            told = f"{type(error).__name__}: {error}" if is_bug else in_words(error)
            log.fail(told, bug=error if is_bug else None)
            sys.exit(1)
        if is_bug:
            raise
        sys.exit(f"group-coordinator: {quoted_lines(in_words(error))}")
