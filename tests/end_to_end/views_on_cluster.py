"""A user's job on a cluster of two executors reads a root's views, with the rows of DuckDB."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node.packaging import write_package
from group_coordinator.pipeline.session.checkpoint_location import store_packages, store_settings
from group_coordinator.pipeline.session.spark_settings import DELTA, packages
from tests.end_to_end import views_job
from tests.end_to_end.standalone import Standalone
from tests.end_to_end.submitting import shipped
from tests.ends import check_end

_LIMIT_S = 900.0


def check_views_on_cluster(root: str, folder: Path) -> dict[str, int]:
    """Submit the job, compare its rows with DuckDB's, and return each view's number of rows."""
    told = folder / "told.json"
    jars = ",".join([packages(delta=True), *store_packages(root)])
    settings = {**DELTA, **store_settings(root)}
    # The executors lack this package: it is shipped to them, as the page on clusters says.
    options = ["--packages", jars, *shipped(write_package(folder / "package"))]
    for name, value in settings.items():
        options += ["--conf", f"{name}={value}"]
    standalone = Standalone(folder)
    try:
        standalone.begin()
        job = standalone.submit("views", *options, views_job.__file__, root, str(told))
        check_end(job.wait(_LIMIT_S), standalone.text("views")[-4_000:])
        log = standalone.text("master")
        assert log.count("Launching executor") >= 2
    finally:
        standalone.stop()
    found = json.loads(told.read_text())
    assert found["at"] == standalone.url
    with closing(Catalog(root)) as catalog:
        counts = {
            name: catalog.query(f"SELECT count(*) FROM {name}").rows[0][0]
            for name in catalog.names()
        }
        assert found["counts"] == counts
        for name, query in views_job.ROWS.items():
            rows = [list(row) for row in catalog.query(query.format("")).rows]
            assert found["rows"][name] == sorted(rows, key=repr), name
        ((as_of,),) = catalog.query(views_job.AS_OF.format("")).rows
        assert found["as_of"] == as_of
    return counts
