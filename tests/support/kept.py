"""Reports that are kept in the project, each with the command and the machine of its run.

A folder `results` has one file for each trial or benchmark. The pages in its parent folder are
rendered from them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import clock_ms
from group_coordinator.pipeline.errors import Failure
from tests.support.host import Host, this_host

HERE = Path(__file__).parent
# Files that `--record` itself writes do not change the product.
_MEASURED = (":(top)", ":(top,exclude)*.md", ":(top,exclude)tests/*/results/*")

_ABSOLUTE = re.compile(r"(?<=[ =])/\S+")
R = TypeVar("R")


class Kept(Struct, Generic[R]):
    """A report and its origin. `ended` is the minute (UTC) at which it was kept.

    `commit` is the commit of the run. It ends with "-dirty" if there were uncommitted changes,
    other than of pages and results. `note` is what a reader must know about this run in addition to
    its report.
    """

    command: str
    ended: str
    commit: str
    host: Host
    report: R
    note: str = ""

    def head(self) -> Iterator[str]:
        """Return the paragraphs before a report's figures: command, time, commit and machine."""
        host = self.host
        versions = ", ".join(
            f"{name} {host.packages[name]}" for name in ("pyspark", "deltalake", "duckdb")
        )
        # `tests.figures` finds a figure's date and commit by this form.
        yield (
            f"`{self.command}`, ended {self.ended} UTC, commit {self.commit}, on {host.machine()}, "
            f"load {host.load:.1f} when it began; Python {host.python}, {versions}.\n"
        )
        if self.note:
            yield f"{self.note}\n"


def keep(results: Path, name: str, command: str, report: Struct, note: str = "") -> None:
    """Keep a report in a folder of results; it replaces the previous one.

    Absolute paths of the command are replaced by FOLDER, because they are specific to one machine.
    Raises Failure if there is no commit for the report.
    """
    ended = datetime.fromtimestamp(clock_ms() / 1000, UTC)
    kept = Kept(
        command=_ABSOLUTE.sub("FOLDER", command),
        ended=f"{ended:%Y-%m-%d %H:%M}",
        commit=_commit(),
        host=this_host(),
        report=report,
        note=note,
    )
    results.mkdir(exist_ok=True)
    (results / f"{name}.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"
    )


def read(results: Path, name: str, report: type[R]) -> Kept[R] | None:
    """Return the kept report of a trial or benchmark, None if there is none."""
    file = results / f"{name}.json"
    if not file.exists():
        return None
    return msgspec.json.decode(file.read_bytes(), type=Kept[report])  # type: ignore[valid-type]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of a page."""
    lines = [f"| {' | '.join(str(cell) for cell in line)} |" for line in (columns, *rows)]
    lines.insert(1, "|" + "---|" * len(columns))
    return "\n".join(lines)


def _commit() -> str:
    head = _git("rev-parse", "--short=7", "HEAD")
    if head.returncode:
        raise Failure(f"a report is kept in a clone only: {head.stderr.strip()}")
    dirty = _git("diff", "--quiet", "HEAD", "--", *_MEASURED).returncode
    return head.stdout.strip() + ("-dirty" if dirty else "")


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=False)
