"""All benchmarks, one after the other, and one page with what they found.

Each runs as a command of its own, so that none has another's JVM or memory beside it, and so that
the commands on the page are those that were run. A full run takes an hour and a quarter, and
wants the machine for itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pipeline.bench.aims import Aim, aims_of
from pipeline.bench.host import Host, this_host
from pipeline.bench.page import render
from pipeline.bench.plans import PLANS, Plan
from pipeline.errors import Failure


class Section(Struct):
    """One benchmark of a run: its report, or why there is none."""

    command: str
    what: str
    seconds: float
    report: Any
    aims: list[Aim]
    failure: str | None = None


class Everything(Struct):
    """One run of all."""

    host: Host
    quick: bool
    sections: list[Section]


def bench_all(
    page: Path,
    quick: bool,
    say: Callable[[str], None],
    libs: Path | None = None,
    plans: Sequence[Plan] = PLANS,
) -> Everything:
    """Run every plan and write the page, anew after each; `say` hears of progress.

    A benchmark that fails does not keep the next ones from running. `libs` is the folder of Kafka's
    jars. Raises OSError if the page cannot be written.
    """
    run = Everything(this_host(), quick, [])
    page.write_text(render(run), "utf-8")
    for number, plan in enumerate(plans):
        say(f"{number + 1} of {len(plans)}: {' '.join(plan.command(quick))}")
        run.sections.append(_section(plan, quick, say, libs))
        page.write_text(render(run), "utf-8")
    return run


def failed(run: Everything) -> list[str]:
    """The commands that failed."""
    return [section.command for section in run.sections if section.failure is not None]


def _section(plan: Plan, quick: bool, say: Callable[[str], None], libs: Path | None) -> Section:
    words = plan.command(quick)
    began = time.monotonic()
    section = Section(" ".join(["group-coordinator", *words]), plan.what(), 0.0, None, [])
    try:
        output = _run([*words, "--json"], say, libs)
        section.report = msgspec.json.decode(output, type=plan.report)
        section.aims = aims_of(section.report)
    except Failure as error:
        section.failure = str(error)
    section.seconds = time.monotonic() - began
    return section


def _run(words: list[str], say: Callable[[str], None], libs: Path | None) -> str:
    """The last line that a command prints; what it says on standard error goes to `say`."""
    environment = dict(os.environ)
    if libs is not None:
        environment["GROUP_COORDINATOR_KAFKA_LIBS"] = str(libs)
    last = ""
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(
            [sys.executable, "-m", "pipeline", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                last = line.strip() or last
                say(line.rstrip())
        if process.returncode:
            raise Failure(last or f"exit status {process.returncode}")
        output.seek(0)
        return (output.read().splitlines() or [""])[-1]
