"""The demo: recorded traffic of real clients, replayed against a live coordinator.

The coordinator is a normal one in a separate process. The demo appends to the table `requests`, and
prints what it reads from the tables that the coordinator writes.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from group_coordinator.pipeline.delta import TableTail, follow
from group_coordinator.pipeline.interrupt import interrupts_deferred
from group_coordinator.pipeline.monitor.catalog import Catalog
from group_coordinator.pipeline.node.process import CoordinatorProcess
from group_coordinator.pipeline.replay.trace import TOPICS, load_trace, trace_names
from group_coordinator.pipeline.replay.trace_replay import TraceReplay, to_answers
from group_coordinator.pipeline.tables import RequestLog, create_topic, ensure_tables, table_uri
from group_coordinator.pipeline.terminal import grid, open_console
from group_coordinator.schemas.tables import GROUP_EVENTS, OFFSETS_TOPIC, RESPONSES

# The broker of the recordings had these settings.
_CONFIG = """\
[group]
"group.initial.rebalance.delay.ms" = 0
"""
_TICK_S = 0.02
_TIME_LIMIT_S = 150.0
_PROGRESS_EVERY_S = 5.0
# The trace and the groups on which a non-verbose demo reports, and its word for each group event.
_REPORTED_TRACE = "b-kafka-python-three-range"
_REPORTED_GROUP = "orders-b-"
_STORY = {"member_joined": "joined", "member_left": "left", "member_expired": "expired"}
# The random part of a member id, which follows the client id.
_UUID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A line of the coordinator's log: date, time, level, message.
_STEP = re.compile(r"\S+ \S+ (?:INFO|WARNING) (.*)")
# The prefix of groups of real clients. A test driver, which sent requests that real clients do not
# send, used the other groups.
_CLIENTS = "orders-"
# Group events that the verbose demo prints besides transitions; the table has all of them.
_SHOWN = {"member_joined", "member_left", "member_expired", "member_fenced", "leader_elected"}

GROUPS_SQL = """\
SELECT group_id, state, protocol_type, generation, num_members, num_offsets, since
FROM groups ORDER BY group_id"""
OFFSETS_SQL = """\
SELECT group_id, topic, count(*) AS partitions, sum(committed_offset) AS offsets,
       max(committed_at) AS last_commit
FROM committed_offsets GROUP BY ALL ORDER BY ALL"""
REBALANCES_SQL = """\
SELECT group_id, started_at, ms, generation, reason FROM rebalances
WHERE group_id LIKE 'orders-%' ORDER BY started_at LIMIT 12"""


class Demo:
    """One run of the demo, with its tables below the folder `root`.

    With `verbose` it prints the events of all groups of real clients. `names` are the traces to
    replay; None: all.
    """

    def __init__(
        self,
        root: Path,
        console: Console,
        verbose: bool = False,
        names: Sequence[str] | None = None,
    ) -> None:
        self._verbose = verbose
        self._steps = 0
        self._root = str(root / "root")
        self._config = root / "demo.toml"
        self._log = root / "coordinator.log"
        self._console = console
        self._replays = [TraceReplay(load_trace(name)) for name in names or trace_names()]
        self._by_name = {replay.trace.name: replay for replay in self._replays}
        self._states: dict[str, list[Any]] = {}
        self._commits: dict[str, int] = {}
        self._expired = 0
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def run(self) -> bool:
        """Start a coordinator, replay the traces, and stop it.

        Returns whether every request that the broker answered was answered here.
        """
        console = self._console
        self.prepare()
        coordinator: CoordinatorProcess | None = None
        try:
            with interrupts_deferred():
                coordinator = CoordinatorProcess(self._root, self._config, self._log)
            console.print("A coordinator starts: a JVM, Spark in it, and its first micro-batch.")
            with console.status("starting the coordinator (the first start downloads its jars)"):
                seconds = coordinator.await_ready(self._print_steps)
            console.print(f"coordinator ready after {seconds:.1f} s")
            return self.replay_traces(coordinator.check)
        finally:
            if coordinator is not None:
                coordinator.stop()

    def prepare(self) -> None:
        """Print which traces will be replayed, and create the tables and topics."""
        console = self._console
        total = sum(replay.total for replay in self._replays)
        brokers = {replay.trace.broker for replay in self._replays}
        console.print(
            f"[bold]{len(self._replays)} recorded conversations, {total} requests of real clients "
            f"to {', '.join(sorted(brokers))}[/]; now the same clients talk to a coordinator "
            "on Spark and Delta."
        )
        for replay in self._replays:
            if self._verbose or replay.trace.name == _REPORTED_TRACE:
                console.print(f"  {replay.trace.name}: {replay.trace.what}", style="dim")
        self._config.write_text(_CONFIG)
        ensure_tables(self._root)
        # The broker of the recordings had these topics, and answered error code 3 for others.
        for topic, partitions in TOPICS.items():
            create_topic(self._root, topic, partitions)

    def replay_traces(self, check: Callable[[], None]) -> bool:
        """Replay the traces in real time and print the results.

        Returns whether all expected answers arrived. The coordinator must be ready; `check` raises
        if its process has ended.
        """
        tails = (
            follow(table_uri(self._root, RESPONSES), RESPONSES.schema.names),
            follow(table_uri(self._root, GROUP_EVENTS), GROUP_EVENTS.schema.names),
            follow(table_uri(self._root, OFFSETS_TOPIC), ["group_id", "record_type"]),
        )
        self._play(check, tails)
        return self._conclude()

    def _print_steps(self, seconds: float) -> None:
        lines = self._log.read_text("utf-8", "replace").splitlines()[1:]
        for line in lines[self._steps :]:
            step = _STEP.match(line)
            if step is not None:
                self._console.print(f"{seconds:6.1f} s  {step[1]}", markup=False, style="dim")
        self._steps = len(lines)

    # --- the conversations ----------------------------------------------------------------------

    def _play(
        self, check: Callable[[], None], tails: tuple[TableTail, TableTail, TableTail]
    ) -> None:
        requests = RequestLog(self._root)
        began = time.monotonic()
        spoke = began
        expected = sum(replay.expected for replay in self._replays)
        task = self._progress.add_task("answers", total=expected)
        with self._display():
            while not all(replay.done for replay in self._replays):
                elapsed = time.monotonic() - began
                if elapsed > _TIME_LIMIT_S:
                    break
                check()
                due = [r for replay in self._replays for r in replay.due(int(elapsed * 1000))]
                if due:
                    requests.append(due)
                self._read_tables(tails, elapsed)
                self._progress.update(task, completed=self._answered)
                if self._prints_progress and elapsed - spoke + began > _PROGRESS_EVERY_S:
                    spoke = time.monotonic()
                    self._console.print(f"{elapsed:6.1f} s  {self._answered} of {expected} answers")
                time.sleep(_TICK_S)
            self._read_tables(tails, time.monotonic() - began)
            self._progress.update(task, completed=self._answered)

    @property
    def _prints_progress(self) -> bool:
        """Whether progress is printed as lines; on a terminal, a bar shows it."""
        return self._verbose and not self._console.is_terminal

    @property
    def _answered(self) -> int:
        return sum(replay.answered for replay in self._replays)

    def _read_tables(self, tails: tuple[TableTail, TableTail, TableTail], elapsed: float) -> None:
        responses, events, records = (_rows(tail) for tail in tails)
        for answer in to_answers(responses):
            name = answer["request_id"].partition("/")[0]
            if name in self._by_name:
                self._by_name[name].on_response(answer)
        for event in events:
            for replay in self._replays:
                replay.on_event(event)
            self._print_event(event, elapsed)
        for record in records:
            if record["record_type"] == "offset_commit":
                group = record["group_id"]
                self._commits[group] = self._commits.get(group, 0) + 1

    def _print_event(self, event: dict[str, Any], elapsed: float) -> None:
        group, name = event["group_id"], event["event"]
        if name == "member_expired":
            self._expired += 1
        if name == "transition":
            self._states[group] = [event["to_state"], event["generation"]]
        what = self._words(event)
        if what is None:
            return
        style = {"member_expired": "red", "transition": "cyan"}.get(name, "")
        self._console.print(
            f"{elapsed:6.1f} s  {what}",
            style=style,
            markup=False,
            no_wrap=True,
            overflow="ellipsis",
        )

    def _words(self, event: dict[str, Any]) -> str | None:
        group, name = event["group_id"], event["event"]
        if not self._verbose:
            if not group.startswith(_REPORTED_GROUP) or name not in _STORY:
                return None
            who, why = _UUID.sub("", event["member_id"]), event["reason"]
            return f"{group}  generation {event['generation']}  {who} {_STORY[name]}: {why}"
        if not group.startswith(_CLIENTS):
            return None
        what = f"{event['from_state']} -> {event['to_state']}"
        if name != "transition":
            if name not in _SHOWN:
                return None
            what = f"{name}  {event['member_id']}"
        return f"{group}  generation {event['generation']}  {what}: {event['reason']}"

    @contextmanager
    def _display(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with Live(get_renderable=self._screen, console=self._console, refresh_per_second=4):
            yield

    def _screen(self) -> Group:
        rows = [
            [group, *state, self._commits.get(group, 0)]
            for group, state in sorted(self._states.items())
            if group.startswith(_CLIENTS)
        ]
        return Group(
            grid(["group", "state", "generation", "offsets written"], rows), self._progress
        )

    # --- the result -----------------------------------------------------------------------------

    def _conclude(self) -> bool:
        console = self._console
        catalog = Catalog(self._root)
        told = (GROUPS_SQL, OFFSETS_SQL, REBALANCES_SQL) if self._verbose else (OFFSETS_SQL,)
        for sql in told:
            result = catalog.query(sql)
            console.print(f"\n[bold]sql>[/] {sql}", highlight=False)
            console.print(grid(result.columns, result.rows))
        for replay in self._replays:
            replay.compare()
        expected = sum(replay.expected for replay in self._replays)
        equal = sum(replay.equal for replay in self._replays)
        for replay in self._replays:
            for recorded, live in replay.different:
                console.print(f"{replay.trace.name}: {difference(recorded, live)}", style="yellow")
        console.print(
            f"\n[bold]{equal} of {expected} answers equal the real broker's[/]; "
            f"{self._answered} answered, {self._expired} members expired."
        )
        return self._answered == expected


def _rows(tail: TableTail) -> list[dict[str, Any]]:
    rows = tail.poll()
    return [] if rows is None else rows.to_pylist()


def difference(recorded: dict[str, Any], live: dict[str, Any]) -> str:
    """Return one line that describes how an answer differs from the broker's."""
    api = recorded["api"]
    head = f"{recorded['request_id']} {api}"
    if recorded["error"] != live["error"]:
        return f"{head}: the broker answered {recorded['error']}, the coordinator {live['error']}"
    theirs, ours = recorded[api], live[api]
    fields = [key for key in theirs if theirs[key] != ours.get(key)]
    return f"{head}: differs in {', '.join(fields)}"


def run_demo(keep: Path | None = None, verbose: bool = False) -> bool:
    """Run the demo in a temporary folder, or in the folder `keep`, which is not deleted.

    Returns whether all expected answers arrived.
    """
    console = open_console()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        return Demo(keep, console, verbose).run()
    folder = Path(tempfile.mkdtemp(prefix="group-coordinator-demo-"))
    try:
        return Demo(folder, console, verbose).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
