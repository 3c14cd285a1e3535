"""The verb `package`: it writes the files that a cluster needs of this project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def package(
    out: Annotated[Path, typer.Option("--out", help="The folder to write into.")] = Path("dist"),
    root: Annotated[
        str, typer.Option("--root", help="The root that the printed command is to be for.")
    ] = "ROOT",
) -> None:
    """Write the files that spark-submit ships to a cluster: an archive of packages, and job.py.

    The printed command names the jars that Spark needs. If the root is in an object store, it also
    names the store's jars.
    """
    from group_coordinator.pipeline.node.needed import ARCHIVE_FOLDER
    from group_coordinator.pipeline.node.packaging import write_package
    from group_coordinator.pipeline.session.checkpoint_location import store_packages
    from group_coordinator.pipeline.session.spark_settings import packages

    done = write_package(out, lambda line: typer.echo(line, err=True))
    size = done.archive.stat().st_size
    typer.echo(f"{done.archive}: {len(done.packages)} packages, {size / 1e6:.0f} MB")
    typer.echo("")
    typer.echo("PYSPARK_DRIVER_PYTHON=$(command -v python) PYSPARK_PYTHON=python3 \\")
    typer.echo("spark-submit --master MASTER \\")
    typer.echo(f"    --packages {','.join([packages(), *store_packages(root)])} \\")
    typer.echo(f"    --archives {done.archive}#{ARCHIVE_FOLDER} \\")
    typer.echo(f"    --conf spark.executorEnv.PYTHONPATH={ARCHIVE_FOLDER} \\")
    typer.echo(f"    {done.job} --root {root}")
