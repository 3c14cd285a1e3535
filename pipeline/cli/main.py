"""The command `group-coordinator`; `python -m pipeline` is the same.

Exits 0 on success, 1 on a failure that it names in one line, 2 on a wrong call. Each verb, or group
of verbs, is a module of this package.
"""

from __future__ import annotations

import sys

import typer

from pipeline.cli.acls import acls_app
from pipeline.cli.bench import bench_app
from pipeline.cli.demo import demo
from pipeline.cli.gateway import gateway
from pipeline.cli.groups import groups_app
from pipeline.cli.keys import keys_app
from pipeline.cli.metrics import metrics
from pipeline.cli.offsets import offsets_app
from pipeline.cli.package import package
from pipeline.cli.partitions import partitions_app
from pipeline.cli.records import records_app
from pipeline.cli.run import run
from pipeline.cli.simulate import simulate
from pipeline.cli.sql import sql
from pipeline.cli.topics import topics_app
from pipeline.cli.trial import trial_app
from pipeline.cli.ui import report, ui, watch
from pipeline.cli.upkeep import compact, repair, retain
from pipeline.cli.users import users_app
from pipeline.cli.without_pandas import hide_pandas
from pipeline.cli.worker import worker
from pipeline.errors import Failure, WrongCall

app = typer.Typer(
    name="group-coordinator",
    help="Kafka's consumer-group coordination for the lakehouse, on Spark and Delta.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verb in (
    run,
    package,
    gateway,
    metrics,
    demo,
    simulate,
    worker,
    compact,
    retain,
    repair,
    sql,
    ui,
    report,
    watch,
):
    app.command()(verb)
app.add_typer(groups_app, name="groups")
app.add_typer(offsets_app, name="offsets")
app.add_typer(partitions_app, name="partitions")
app.add_typer(topics_app, name="topics")
app.add_typer(acls_app, name="acls")
app.add_typer(keys_app, name="keys")
app.add_typer(users_app, name="users")
app.add_typer(records_app, name="records")
app.add_typer(bench_app, name="bench")
app.add_typer(trial_app, name="trial")

# These verbs start Spark, or import what runs in it, and both need pandas.
_WITH_SPARK = {"run", "package", "demo", "bench", "trial"}


def main() -> None:
    """Run the command line."""
    if not _WITH_SPARK.intersection(sys.argv[1:2]):
        hide_pandas()

    from deltalake.exceptions import DeltaError

    from coordinator.config import ConfigError
    from coordinator.consumer.errors import ConsumerError

    try:
        app()
    except WrongCall as error:
        typer.echo(f"group-coordinator: {error}", err=True)
        sys.exit(2)
    except (Failure, ConfigError, ConsumerError, DeltaError, OSError) as error:
        sys.exit(f"group-coordinator: {error}")
