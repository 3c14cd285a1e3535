"""The page of figures, `tests/trials/README.md`, rendered from the reports that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.kept import Kept, markdown, read
from tests.trials import found
from tests.trials.broker.report import BrokerReport
from tests.trials.found import Found
from tests.trials.gateways import promises as gateways
from tests.trials.gateways.trial import GatewaysReport
from tests.trials.malformed.trial import MalformedReport
from tests.trials.mutants.trial import EQUIVALENT, KILLED, MutantsReport
from tests.trials.simulation import promises
from tests.trials.simulation.checks import LONGEST_WAIT_MS
from tests.trials.simulation.trial import Report
from tests.trials.simulation.world import NO_BUG
from tests.trials.torture.run import TortureReport

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
RESULTS = HERE / "results"

_INTRODUCTION = """\
# What the promises survive

Four trials look for a broken promise: a simulation of the whole system by seeds, one of gateways,
coordinators on Spark that are killed under live clients, and malformed requests by the million. A
fifth asks a real Kafka broker and this coordinator the same, and a sixth breaks the product itself,
and looks for a test that notices. A short run of each is a test.
This page has the figures of the last long run of each. A command's `--record` keeps its report in
`tests/trials/results` and renders the page anew; `python -m tests.trials page` renders it alone. A
trial that is interrupted (SIGINT or SIGTERM) reports on what it has done until then, and so does
this page. `python -m tests.figures` tells how many commits have changed the product since each run.
"""

_SIMULATED = """\
Nodes, clients and their clocks run in simulated time on real Delta tables in memory, and so does
the code that is tested: the state machine, the source, the sink, ownership and upkeep. Only
Spark's micro-batches are simulated, behind the interface by which a node knows its engine. A run
draws faults from its seed: a commit fails, stands although it was said to fail, or lets others
come first; a read fails (EIO, EMFILE, a short read, a folder that is away), whoever opens the file
and once or many times in a row; a process is killed, or stands still, between any two steps, two at
a time; a batch stands still until others have taken over, and goes on; a streaming checkpoint is
lost, or an older copy of it is put back; `requests` or `topics` is deleted and made again, set back
to an older copy, or renamed away and back; a clock is set back or forward; partitions move; upkeep
runs in between. While `requests` is away members may expire, for no heartbeat can be written or
read. Who is told that its table was replaced starts again, as the message says: requests
that were lost with their table are asked no more. Every commit is held
against what was promised the moment it stands. A run that breaks a promise is shrunk to the faults
that it takes. The same seed is the same run. A read that fails in a batch or in a node's main
thread may end that node, which is started again; clients, leases and upkeep go on."""
SIMULATED_PROMISES = {
    promises.ANSWERED_ONCE: (
        "Once all is quiet no request is without an answer or has two, and nothing is answered "
        "that nobody asked. A repetition may be decided again after the dedup window, or by "
        "another coordinator."
    ),
    promises.COMMITTED: (
        "A fetch returns the newest offset of the log, or one that its own batch wrote; in the "
        "end SQL over the offsets topic returns the same."
    ),
    promises.RECORD_FIRST: (
        "A commit or a sync is answered without an error only when its record stands."
    ),
    promises.RECORDED_ONCE: (
        "No second batch writes a record of a request that has one and waits for its answer."
    ),
    promises.OFFSETS_RISE: (
        "A record's log offset is above those of all records before it in its partition."
    ),
    promises.GENERATIONS_RISE: (
        "No record and no answered join has a generation below the newest that is recorded."
    ),
    promises.SESSIONS: (
        "A member expires only when its session has passed since it was heard of, and no "
        "heartbeat of it waits."
    ),
    promises.ONE_OWNER: (
        "Only the owner of a partition writes records, answers and events of the partition's "
        "groups."
    ),
    promises.SAME_AGAIN: (
        "A batch that was cut off after it had written something gives its groups the same outputs."
    ),
    promises.ONE_MEMBER: (
        "No two consumers are assigned a partition in one generation of their group."
    ),
    promises.FENCED: (
        "No record, event or answer of a node's start stands behind a later epoch of that node in "
        "the same table's log. A trial fails in which too few were refused to show it."
    ),
    promises.GENERATION_FENCED: (
        "A member's commit of a generation that was over before its batch is refused. A trial "
        "fails in which there were too few."
    ),
    promises.REPLACED: (
        "5 s after `requests` was replaced no process runs that had followed it, nobody writes "
        "into a table that it had not opened, and who began with one answers nothing of the next. "
        "An offset is deleted only by a request, or if its topic was deleted by somebody."
    ),
    promises.ANSWERED_SOON: (
        "Once the last fault has ended no request waits for longer than "
        f"{LONGEST_WAIT_MS / 1000:.0f} s of simulated time."
    ),
    NO_BUG: (
        "No handler fails, and a node ends only by an error that it has a name for. Any other "
        "error ends the run, unless a read of that batch had failed; so there is no count."
    ),
}
_TORTURED = """\
Coordinators on Spark share a root on a disk of their own, under live committers and group
members. At random instants the driver's Python, the JVM, a Python worker or all processes of one
of them are killed (SIGKILL), some lose their streaming checkpoint before they start again or find
an older copy of it in its place, one stands still (SIGSTOP) for longer than its lease, or two at a
time, one is told to end (SIGTERM) and hands its partitions over, partitions move, other programs
append requests with delta-rs, the table of ACLs is deleted and made again, the disk is full for
seconds, and for seconds up to a fifth of the reads in all Python processes of the coordinators fail
(EIO, EMFILE, a folder that is away; by Python, Arrow or delta-rs). Upkeep runs beside it every few
seconds. Spark's own `INSERT` is not part of it, because Spark's commits are not
safe on a local disk (see pipeline/spark/README.md). A supervisor starts again what ended; a
coordinator that ends although nothing was done to it fails the trial, and so does one that was told
to end and fails, and a trial of five pauses or more that fenced nobody."""
_MALFORMED = """\
Files of requests that no client of this project would write, and a healthy group among them:
random bytes, other Parquet types, missing and extra columns, numbers and times at every edge, ten
megabytes of metadata, 100,000 partitions in one commit. The stream's own source, function and
sink answer them, without Spark around them, and half-way start anew without a streaming
checkpoint."""
_COMPARED = """\
The clients of a group ask a real broker and this coordinator the same, by chance: joins of dynamic
and of static members, syncs, heartbeats, commits, fetches, leaves, descriptions and deletions, in
every version that a gateway speaks; with ids, generations, protocols, sessions and partitions that
are right, old or wrong; one after the other while other joins and syncs wait. kafka-python writes
the requests and reads both answers. Ours is written by the gateway's own code and decided by the
state machine, without Spark. Member ids are those that each side made; messages for people and
throttle times are not compared, and lists count as sets. No timer is ever due. Answers that differ
by a row of coordinator/DIFFERENCES.md are counted by that row."""
_MUTATED = """\
The product is written wrong in one place after the other, in a copy of the checkout, and a test
that is named for the place must fail. With nothing broken all of these tests pass.
`tests/trials/mutants/table` says what is changed, and that it can be changed is a test."""


class Promise(NamedTuple):
    """A promise, what is looked at, and how often it was."""

    name: str
    explained: str
    checked: str


def render() -> str:
    """The page, from the reports that are kept."""
    parts = (_simulate(), _gateways(), _torture(), _malformed(), _broker(), _mutants(), _own())
    return "\n".join([_INTRODUCTION, *chain.from_iterable(parts)])


def write_page() -> Path:
    """Write the page; returns its file."""
    PAGE.write_text(render(), "utf-8")
    return PAGE


def _simulate() -> Iterator[str]:
    kept = read(RESULTS, "simulate", Report)
    yield from _head("Simulation", _SIMULATED, kept)
    if kept is not None:
        yield from _simulated(kept.report, SIMULATED_PROMISES)
    yield from _faults(
        found.SIMULATION,
        "Found by it on the way, or by its tests when the mend is taken out "
        "(`tests/trials/test_simulation.py`):",
    )


def _gateways() -> Iterator[str]:
    kept = read(RESULTS, "gateways", GatewaysReport)
    yield from _head("Simulation of gateways", gateways.INTRODUCTION, kept)
    if kept is not None:
        yield from _simulated(kept.report, gateways.EXPLAINED)
    yield from _faults(found.GATEWAYS, "Found by it on the way:")


def _simulated(report: Report | GatewaysReport, promises: Mapping[str, str]) -> Iterator[str]:
    if report.interrupted:
        yield _paragraph(
            f"The run was interrupted: the figures are of the {report.runs:,} runs that ended."
        )
    yield from _table(("what", "how many"), report.figures())
    yield from _promises(
        Promise(name, explained, f"{report.checks[name]:,}" if name in report.checks else "")
        for name, explained in promises.items()
    )
    for finding in report.findings:
        yield _paragraph(f"**Broken: {finding.promise}.** {finding.text}. `{finding.again}`")


def _torture() -> Iterator[str]:
    kept = read(RESULTS, "torture", TortureReport)
    yield from _head("Torture", _TORTURED, kept)
    if kept is not None:
        report = kept.report
        if report.interrupted:
            kills = sum(report.kills.values())
            yield _paragraph(
                f"The run was interrupted: after {kills} kills the promises were checked once more."
            )
        yield from _table(("what", "how many"), report.rows())
        yield from _promises(_torture_promises(report))
    yield from _faults(found.TORTURE, "Found on the way:")


def _torture_promises(report: TortureReport) -> list[Promise]:
    each_time = f"{report.checks:,} times"
    return [
        Promise(
            "each request is answered exactly once",
            "Of all requests in the table, those of other programs among them.",
            f"{report.requests:,} requests",
        ),
        Promise(
            "an acknowledged commit is a record, written once and before its answer",
            "By the commits of the tables' logs.",
            f"{report.acknowledged:,} acknowledgements",
        ),
        Promise(
            "a fetch returns what the offsets topic replays to, and no less than was acknowledged",
            "And no more than was asked for, while the clients rest.",
            f"all groups, {each_time}",
        ),
        Promise(
            "log offsets rise; generations and committed offsets never fall",
            "By the records in the order of their commits.",
            f"{report.records:,} records",
        ),
        Promise(
            "only a partition's owner writes its records",
            "By the decisions about owners and the transaction of each commit.",
            f"{report.records:,} records",
        ),
        Promise(
            "no member expires within its session after a request",
            "Unless the disk was full, so that nobody could write the request.",
            f"{report.expired:,} expirations",
        ),
        Promise(
            "no coordinator ends by itself",
            "One to which nothing was done since its start.",
            f"{report.starts:,} starts",
        ),
    ]


def _malformed() -> Iterator[str]:
    kept = read(RESULTS, "malformed", MalformedReport)
    yield from _head("Malformed requests", _MALFORMED, kept)
    if kept is not None:
        report = kept.report
        yield from _table(("what", "how many"), report.rows())
        yield from _promises(
            [
                Promise(
                    "each event is answered once or set aside",
                    "What names a group and a request gets one answer, the rest a row of "
                    "`rejected_requests`; a join or sync that may wait is answered when its timer"
                    " is due.",
                    f"{report.events:,} events",
                ),
                Promise(
                    "nothing stops",
                    "No batch and no handler fails, and a start reads all of it again.",
                    f"{report.batches:,} batches",
                ),
                Promise(
                    "others do not suffer",
                    "A healthy group's requests lie in the same commits and are answered right.",
                    f"{report.healthy:,} requests",
                ),
                Promise(
                    "the tables can be read",
                    "Every SQL view is read to its end.",
                    "once, in the end",
                ),
            ]
        )
    yield from _faults(
        found.MALFORMED,
        "Found on the way, with the kinds of events that the trial is made of:",
    )


def _broker() -> Iterator[str]:
    kept = read(RESULTS, "broker", BrokerReport)
    yield from _head("Beside a real broker", _COMPARED, kept)
    if kept is None:
        return
    yield from _table(("what", "how many"), kept.report.rows())
    for difference in kept.report.different:
        yield _paragraph(f"**Different: conversation {difference.seed}**")


def _mutants() -> Iterator[str]:
    kept = read(RESULTS, "mutants", MutantsReport)
    yield from _head("Mutants", _MUTATED, kept)
    if kept is None:
        return
    report = kept.report
    if report.interrupted:
        yield _paragraph(f"The run was interrupted after {len(report.verdicts)} mutants.")
    yield from _table(("what", "how many"), report.rows())
    for fault in report.unproven():
        yield _paragraph(f"**Not found: {fault}**")
    yield from _table(
        ("promise", "file", "found by", "s"),
        [
            (
                each.promise,
                f"`{each.file}`",
                ", ".join(f"`{t}`" for t in each.tests),
                f"{each.seconds:.1f}",
            )
            for each in report.verdicts
            if each.outcome == KILLED
        ],
    )
    yield "Nobody can tell these from the product:\n"
    yield from _table(
        ("promise", "file", "why"),
        [(e.promise, f"`{e.file}`", e.why) for e in report.verdicts if e.outcome == EQUIVALENT],
    )


def _own() -> Iterator[str]:
    yield "## The trials' own faults\n"
    yield from _faults(found.OWN, "Told of as a broken promise, and none of the coordinator's:")


# --- parts ----------------------------------------------------------------------------------------


def _head(title: str, what: str, kept: Kept[Any] | None) -> Iterator[str]:
    yield f"## {title}\n"
    yield _paragraph(what)
    if kept is None:
        yield _paragraph("No run is kept.")
        return
    yield from kept.head()


def _promises(promises: Iterator[Promise] | Sequence[Promise]) -> Iterator[str]:
    yield "What it checked, and how often:\n"
    yield from _table(("promise", "what is looked at", "checked"), list(promises))


def _faults(faults: Sequence[Found], title: str) -> Iterator[str]:
    yield f"{title}\n"
    yield from _table(("mended by", "what was wrong", "how it showed"), faults)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"{markdown(columns, rows)}\n"


def _paragraph(text: str) -> str:
    return f"{text}\n"
