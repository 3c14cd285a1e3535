"""Reports of trials that are kept in the project, each with the command and the machine of its run.

`tests/trials/results` has one file for each trial; `tests.trials.page` renders them.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from tests.support.host import Host, this_host

HERE = Path(__file__).parent
RESULTS = HERE / "results"

R = TypeVar("R")


class Kept(Struct, Generic[R]):
    """A report, and what made it. `ended` is the minute (UTC) at which it was kept.

    `commit` is what the trial ran from; with "-dirty" there were changes beside it. `note` is what
    a reader must know of this run beyond its report.
    """

    command: str
    ended: str
    commit: str
    host: Host
    report: R
    note: str = ""


def keep(
    name: str, command: str, report: Struct, commit: str | None = None, note: str = ""
) -> Path:
    """Keep a trial's report in place of the one before; returns its file.

    `commit` is by default that of the folder this runs in. Raises Failure if there is none.
    """
    ended = datetime.fromtimestamp(clock_ms() / 1000, UTC)
    kept = Kept(
        command=command,
        ended=f"{ended:%Y-%m-%d %H:%M}",
        commit=_commit() if commit is None else commit,
        host=this_host(),
        report=report,
        note=note,
    )
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    return file


def read(name: str, report: type[R]) -> Kept[R] | None:
    """Return the kept report of a trial, None if there is none."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        return None
    return msgspec.json.decode(file.read_bytes(), type=Kept[report])  # type: ignore[valid-type]


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude=*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise Failure(f"a report is kept in a clone only: {answer.stderr.strip()}")
    return answer.stdout.strip()
