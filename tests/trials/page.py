"""The page `tests/trials/README.md`, rendered from the recorded reports."""

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
# Trials

Six trials look for broken promises, longer than a test may take. Two simulate the system and its
gateways in simulated time, by seeds. One kills coordinators on Spark under live clients. One writes
malformed requests. One compares responses with those of a real Kafka broker. One breaks the product
and expects a test to fail. A short run of each trial is a test.

This page has the figures of the last long run of each trial. `--record` stores a trial's report in
`tests/trials/results` and renders the page; `python -m tests.trials page` only renders it. A trial
that SIGINT or SIGTERM interrupts reports what it has done. `python -m tests.figures` counts the
commits since each run that changed the product.
"""

_SIMULATED = """\
Nodes and clients run in simulated time, with simulated clocks, on real Delta tables in memory. The
state machine, the source, the sink, ownership and upkeep are the product's code. Only Spark's
micro-batches are simulated, by an implementation of `pipeline/node/stream_engine.py`. The checks
run at every commit. The same seed gives the same run. A run that breaks a promise is shrunk to the
faults that it needs.

A run draws its faults from its seed:

* A commit fails, succeeds although an error is reported, or is overtaken by other commits.
* A read fails once or repeatedly: EIO, EMFILE, a short read, or a missing folder. A failed read in
  a batch or in a node's main thread may end that node, which is then restarted. Clients, leases and
  upkeep must survive it.
* Up to two processes at once are killed or paused, between any two steps. A batch is paused until
  another node has taken over, and then continues.
* A streaming checkpoint is lost, or replaced by an older copy.
* `requests` or `topics` is deleted and created again, replaced by an older copy, or renamed and
  renamed back. Members may expire while `requests` is missing. A process that is notified of a
  replaced table restarts, as the message tells its operator; requests lost with the table are no
  longer expected to be answered.
* A clock is set back or forward, partitions move, and upkeep runs."""
SIMULATED_PROMISES = {
    promises.ANSWERED_ONCE: (
        "At the end each request has exactly one response, and no response is without a request. "
        "A request that is repeated after the deduplication window, or to another coordinator, may "
        "be decided again."
    ),
    promises.COMMITTED: (
        "A fetch returns the newest offset of the log, or one that its own batch wrote. At the "
        "end, SQL over the offsets topic returns the same."
    ),
    promises.RECORD_FIRST: (
        "A commit or sync has a response without an error only after its record is in the log."
    ),
    promises.RECORDED_ONCE: (
        "While a recorded request has no response, no second batch records it again."
    ),
    promises.OFFSETS_RISE: (
        "A record's log offset is above those of all earlier records of its partition."
    ),
    promises.GENERATIONS_RISE: (
        "No record and no join response has a generation below the newest recorded one."
    ),
    promises.SESSIONS: (
        "A member expires only after its session timeout without a request, and with no heartbeat "
        "unread."
    ),
    promises.ONE_OWNER: (
        "Only the owner of a partition writes records, responses and events of its groups."
    ),
    promises.SAME_AGAIN: (
        "A batch that was interrupted after a write has the same output for each group when it is "
        "run again."
    ),
    promises.ONE_MEMBER: (
        "No two consumers are assigned the same partition in a generation of their group."
    ),
    promises.FENCED: (
        "No record, event or response of a node's epoch follows a later epoch of that node in a "
        "table's log. The trial fails if too few writes were fenced."
    ),
    promises.GENERATION_FENCED: (
        "A commit with a generation that ended before its batch is refused. The trial fails if too "
        "few were."
    ),
    promises.REPLACED: (
        "5 s after `requests` was replaced, no process that followed the old table runs. No "
        "process writes into a table that it has not opened, or answers requests of a later table. "
        "An offset is deleted only by a request, or because its topic was deleted."
    ),
    promises.ANSWERED_SOON: (
        "After the last fault no request waits longer than "
        f"{LONGEST_WAIT_MS / 1000:.0f} s of simulated time."
    ),
    NO_BUG: (
        "No handler fails, and a node ends only by an expected error. Any other error ends the "
        "run, unless a read of that batch had failed. This is not counted."
    ),
}
_TORTURED = """\
Coordinators on Spark share a root on a separate disk, under live committers and group members.
Upkeep runs every few seconds. A supervisor restarts coordinators that ended. Faults come at random:

* SIGKILL ends the driver's Python, the JVM, a Python worker, or all processes of a coordinator.
* Some coordinators lose their streaming checkpoint before a start, or get an older copy of it.
* SIGSTOP pauses one or two coordinators for longer than their lease.
* SIGTERM ends a coordinator, which must hand over its partitions.
* Partitions move, and other programs append requests with delta-rs.
* The table of ACLs is deleted and created again.
* The disk is full for some seconds.
* For some seconds up to a fifth of the reads fail in all Python processes of the coordinators: EIO,
  EMFILE, or a missing folder, in Python, Arrow or delta-rs.

The trial fails if a coordinator ends without a fault, if a SIGTERM ends with an error, or if five
or more pauses fenced no coordinator. It omits Spark's `INSERT`, because Spark's commits are not
safe on a local disk (`pipeline/spark/README.md`)."""
_MALFORMED = """\
The trial writes files of requests that no client of this project writes: random bytes, other
Parquet types, missing and extra columns, numbers and times at every limit, metadata of ten
megabytes, 100,000 partitions in a commit. Requests of a healthy group are among them. The stream's
source, function and sink process them without Spark, and restart halfway without a streaming
checkpoint."""
_COMPARED = """\
The clients of a group send the same random requests to a real broker and to this coordinator: joins
of dynamic and static members, syncs, heartbeats, commits, fetches, leaves, descriptions and
deletions, in every version that a gateway supports. Ids, generations, protocols, sessions and
partitions are valid, stale or wrong. Requests are sent one at a time, while other joins and syncs
are parked.

kafka-python encodes the requests and decodes both responses. The gateway's code encodes this
coordinator's responses, and the state machine decides them without Spark. Each side assigns its own
member ids. Error messages and throttle times are not compared, lists are compared as sets, and no
timer expires. A difference that a row of `coordinator/DIFFERENCES.md` explains is counted for that
row."""
_MUTATED = """\
The trial breaks one line of the product at a time, in a copy of the checkout, and runs the tests
named for it; one must fail. All of these tests pass on the unbroken product. The mutants are in
`tests/trials/mutants/table`. A test checks that each can still be applied."""


class Promise(NamedTuple):
    """A promise, its check, and the number of checks."""

    name: str
    explained: str
    checked: str


def render() -> str:
    """Return the page, rendered from the recorded reports."""
    parts = (_simulate(), _gateways(), _torture(), _malformed(), _broker(), _mutants(), _own())
    return "\n".join([_INTRODUCTION, *chain.from_iterable(parts)])


def write_page() -> Path:
    """Write the page and return its path."""
    PAGE.write_text(render(), "utf-8")
    return PAGE


def _simulate() -> Iterator[str]:
    kept = read(RESULTS, "simulate", Report)
    yield from _head("Simulation", _SIMULATED, kept)
    if kept is not None:
        yield from _simulated(kept.report, SIMULATED_PROMISES)
    yield from _faults(
        found.SIMULATION,
        "Bugs found by the simulation, or by its tests with the fix reverted "
        "(`tests/trials/test_simulation.py`):",
    )


def _gateways() -> Iterator[str]:
    kept = read(RESULTS, "gateways", GatewaysReport)
    yield from _head("Simulation of gateways", gateways.INTRODUCTION, kept)
    if kept is not None:
        yield from _simulated(kept.report, gateways.EXPLAINED)
    yield from _faults(found.GATEWAYS, "Bugs found:")


def _simulated(report: Report | GatewaysReport, promises: Mapping[str, str]) -> Iterator[str]:
    if report.interrupted:
        yield _paragraph(
            f"The run was interrupted: the figures are of the {report.runs:,} runs that ended."
        )
    yield from _table(("figure", "value"), report.figures())
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
        yield from _table(("figure", "value"), report.rows())
        yield from _promises(_torture_promises(report))
    yield from _faults(found.TORTURE, "Bugs found:")


def _torture_promises(report: TortureReport) -> list[Promise]:
    each_time = f"{report.checks:,} times"
    return [
        Promise(
            "each request is answered exactly once",
            "All requests in the table, including those of other programs.",
            f"{report.requests:,} requests",
        ),
        Promise(
            "an acknowledged commit is a record, written once and before its answer",
            "In the order of commits in the tables' logs.",
            f"{report.acknowledged:,} acknowledgements",
        ),
        Promise(
            "a fetch returns what the offsets topic replays to, and no less than was acknowledged",
            "Checked while the clients are idle; nor is it more than was requested.",
            f"all groups, {each_time}",
        ),
        Promise(
            "log offsets rise; generations and committed offsets never fall",
            "All records, in the order of their commits.",
            f"{report.records:,} records",
        ),
        Promise(
            "only a partition's owner writes its records",
            "By the ownership log and the transaction identifier of each commit.",
            f"{report.records:,} records",
        ),
        Promise(
            "no member expires within its session after a request",
            "Except while the disk was full, because clients could not write requests.",
            f"{report.expired:,} expirations",
        ),
        Promise(
            "no coordinator ends by itself",
            "A coordinator without a fault since its start keeps running.",
            f"{report.starts:,} starts",
        ),
    ]


def _malformed() -> Iterator[str]:
    kept = read(RESULTS, "malformed", MalformedReport)
    yield from _head("Malformed requests", _MALFORMED, kept)
    if kept is not None:
        report = kept.report
        yield from _table(("figure", "value"), report.rows())
        yield from _promises(
            [
                Promise(
                    "each event is answered once or set aside",
                    "An event with a group and a request id gets one response, any other a row of "
                    "`rejected_requests`. A parked join or sync gets its response when its timer "
                    "expires.",
                    f"{report.events:,} events",
                ),
                Promise(
                    "nothing stops",
                    "No batch and no handler fails, also when a restart reads all events again.",
                    f"{report.batches:,} batches",
                ),
                Promise(
                    "others do not suffer",
                    "A healthy group's requests in the same commits get correct responses.",
                    f"{report.healthy:,} requests",
                ),
                Promise(
                    "the tables can be read",
                    "Every SQL view can be read completely.",
                    "once, at the end",
                ),
            ]
        )
    yield from _faults(
        found.MALFORMED,
        "Bugs found, with the events of this trial:",
    )


def _broker() -> Iterator[str]:
    kept = read(RESULTS, "broker", BrokerReport)
    yield from _head("Comparison with a Kafka broker", _COMPARED, kept)
    if kept is None:
        return
    yield from _table(("figure", "value"), kept.report.rows())
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
    yield from _table(("figure", "value"), report.rows())
    for fault in report.unproven():
        yield _paragraph(f"**Not found: {fault}**")
    yield from _table(
        ("promise", "file", "detected by", "s"),
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
    yield "Equivalent mutants, which no test can detect:\n"
    yield from _table(
        ("promise", "file", "why"),
        [(e.promise, f"`{e.file}`", e.why) for e in report.verdicts if e.outcome == EQUIVALENT],
    )


def _own() -> Iterator[str]:
    yield "## Bugs of the trials\n"
    yield from _faults(found.OWN, "Reported as broken promises, but caused by the trial:")


# --- parts ----------------------------------------------------------------------------------------


def _head(title: str, what: str, kept: Kept[Any] | None) -> Iterator[str]:
    yield f"## {title}\n"
    yield _paragraph(what)
    if kept is None:
        yield _paragraph("No run is kept.")
        return
    yield from kept.head()


def _promises(promises: Iterator[Promise] | Sequence[Promise]) -> Iterator[str]:
    yield "Promises:\n"
    yield from _table(("promise", "check", "checked"), list(promises))


def _faults(faults: Sequence[Found], title: str) -> Iterator[str]:
    yield f"{title}\n"
    yield from _table(("fixed by", "bug", "symptom"), faults)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"{markdown(columns, rows)}\n"


def _paragraph(text: str) -> str:
    return f"{text}\n"
