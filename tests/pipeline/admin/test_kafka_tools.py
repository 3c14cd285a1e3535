"""The verbs compared with the recorded output of kafka-consumer-groups.sh 4.1.0 on a real broker.

Each recorded command line is run as a verb on a root with the same topics and groups. Tables must
be equal line by line, or column by column if the verb has more columns. Plans and exported files
must be equal too. If Kafka's tool fails, the verb must fail too, although Kafka's tool mostly exits
with 0 then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from group_coordinator.coordinator.consumer.protocol import (
    Assignment,
    TopicPartition,
    encode_assignment,
)
from group_coordinator.pipeline.cli.main import make_app
from group_coordinator.schemas.records import (
    GROUP_METADATA,
    CoordinatorRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from tests.pipeline.admin.kafka_root import commit, make_root
from tests.pipeline.gateway.kafka_tools.recording import RECORDED, Told, read
from tests.pipeline.offsets_log import Log
from tests.pipeline.offsets_log import commit as commit_record
from tests.pipeline.small import SmallCoordinator

pytestmark = pytest.mark.full

ACTIONS = {
    "--list": ["groups", "list"],
    "--describe": ["groups", "describe"],
    "--delete": ["groups", "delete", "--execute"],
    "--reset-offsets": ["offsets", "reset"],
    "--delete-offsets": ["offsets", "delete", "--execute"],
    "--validate-regex": ["groups", "validate-regex"],
}
# So many lines of the story take few seconds; `long` tells it to its end.
SHORT = 42
# Where ours answers otherwise, and why.
DIFFERENT = {
    "--reset-offsets --group done --topic orders --by-duration P36500D": "Kafka asks for a time "
    "before 1970 and fails; ours goes to the first record",
    "--reset-offsets --group fresh --all-topics --to-latest": "Kafka plans nothing and is content; "
    "ours says that there is nothing to reset",
    "--delete-offsets --group done --topic orders": "Kafka says Successful of offsets that are not "
    "there; ours names them",
    "--delete-offsets --group done --topic nothing-has-this-name": "Kafka exits with 0",
    "--delete-offsets --group done --topic orders:0 --topic nothing-has-this-name": "as before",
}


class Beside:
    """Runs recorded command lines on a root, and remembers what differed."""

    def __init__(self, root: str, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.compared = 0

    def play(self, told: Sequence[Told]) -> None:
        """Run each command line, and repeat the actions between them."""
        for each in told:
            if each.script == "kafka-consumer-groups.sh":
                self.compare(each)
            elif not each.script:
                self.give(each.words[0])

    def give(self, text: str) -> None:
        if found := re.fullmatch(
            r"the group (\w+) has committed \(?([\d, ]+)\)? of (\w+),.*", text
        ):
            group_id, offsets, topic = found.groups()
            commit(self.root, group_id, topic, *map(int, offsets.split(", ")))
        elif found := re.fullmatch(r"the file FOLDER/([\w.]+) says '(.*)'", text):
            name, content = found.groups()
            (self.folder / name).write_text(content.replace("\\n", "\n"))

    def run(self, words: Sequence[str], *more: str) -> Result:
        command = [word.replace("FOLDER", str(self.folder)) for word in words]
        return CliRunner().invoke(make_app(), [*command, "--root", self.root, *more])

    def compare(self, told: Told) -> None:
        action, *words = told.words[2:]
        if words[-1:] in (["--state"], ["--type"]) and action == "--list":
            words.pop()  # ours shows both, asked or not
        if words[:1] == ["--type"] and words[1:2] != ["classic"] and words[1:2] != ["consumer"]:
            words = words[1:]
        ours = [*ACTIONS[action], *words]
        more = (
            ["--format", "json"] if action == "--reset-offsets" and "--export" not in words else []
        )
        done = self.run(ours, *more)
        asked = " ".join(word for word in told.words[2:] if word not in ("--execute", "--dry-run"))
        if asked in DIFFERENT:
            return
        failed = "Error: " in told.printed.out or told.printed.status != 0
        assert (done.exit_code != 0) == failed, (asked, done.output, done.exception)
        self.compared += 1
        if failed:
            return
        if action == "--list":
            assert _listed(done.stdout) >= _listed(told.printed.out, told), asked
        elif action == "--describe":
            assert _lines(done.stdout) == _without_broker(told.printed.out), asked
        elif action == "--reset-offsets" and "--export" in words:
            assert sorted(_lines(done.stdout)) == sorted(_exported(told.printed.out)), asked
        elif action == "--reset-offsets":
            assert sorted(_planned(done.stdout)) == sorted(_rows(told.printed.out)), asked


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _without_broker(text: str) -> list[str]:
    """Return Kafka's lines as the verbs print them: no negative lag, and no coordinator."""
    lines = []
    for line in _lines(text):
        line = re.sub(r"127\.0\.0\.1:99999  \(0\) ", "-".ljust(21), line)
        lines.append(re.sub(r" -1( +)(?=\S+-0000)", r" 0 \1", line))
    return lines


def _exported(text: str) -> list[str]:
    return [line for line in _lines(text) if line.count(",") in (2, 3)]


def _rows(text: str) -> list[tuple[str, ...]]:
    """Return the rows of a table that ends with the column NEW-OFFSET."""
    lines = _lines(text)
    heading = next(n for n, line in enumerate(lines) if line.startswith("GROUP "))
    return [tuple(line.split()) for line in lines[heading + 1 :]]


def _planned(text: str) -> list[tuple[str, ...]]:
    plans = [json.loads(line) for line in text.splitlines()]
    names = ("group_id", "topic", "partition", "new_offset")
    return [tuple(str(plan[name]) for name in names) for plan in plans]


def _listed(text: str, kafkas: Told | None = None) -> set[tuple[str, ...]]:
    """The groups of a list: of Kafka's with the columns that it has, of ours with all of those."""
    lines = [line.split() for line in _lines(text)]
    if kafkas is not None and not {"--state", "--type"} & set(kafkas.words):
        return {("GROUP", *line) for line in lines}
    names = lines[0]
    found = set()
    for line in lines[1:]:
        cells = dict(zip(names, line, strict=False))
        found |= {("GROUP", cells["GROUP"])} if kafkas is None else set()
        found |= {
            (name, cells["GROUP"], cells[name]) for name in ("TYPE", "STATE") if name in cells
        }
    return found


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    root = make_root(tmp_path)
    coordinator = SmallCoordinator(root)
    yield Beside(root, tmp_path)
    coordinator.stop()


STORY = read(RECORDED / "groups_without_members.jsonl")
# From here on Kafka remembers a group that has lost its last offset, until the broker restarts.
# Here nothing is left of such a group; what the story tells of another one is compared.
FORGOTTEN = next(n for n, each in enumerate(STORY) if "nobody" in each.words[3:] and n > 100)


def test_groups_without_members(beside: Beside) -> None:
    asks = [each for each in STORY[:45] if each.script and "--execute" not in each.words]
    beside.play([each for each in STORY[:16] if not each.script] + asks[9::3])
    assert beside.compared > 8


@pytest.mark.long
def test_groups_without_members_to_the_end(beside: Beside) -> None:
    beside.play(STORY[:FORGOTTEN])
    beside.play([each for each in STORY[FORGOTTEN:] if "other" in each.words])
    assert beside.compared > 110


def test_groups_with_members(tmp_path: Path) -> None:
    """The same members and assignments, as records."""
    root = make_root(tmp_path)
    no_uuid = "00000000-0000-0000-0000-000000000000"
    held = {"first": [2], "second": [0, 1]}
    members = tuple(
        MemberMetadata(
            f"{instance or client}-{no_uuid}",
            instance,
            client,
            "/127.0.0.1",
            *(300_000, 45_000, b""),
            encode_assignment(
                Assignment(tuple(TopicPartition("orders", each) for each in held[client]))
            ),
        )
        for client, instance in (("first", None), ("second", "instance-2"))
    )
    live = GroupMetadataValue("consumer", 1, "range", members[0].member_id, 5, members)
    Log(root).append(
        *(commit_record("live", 1, 5, ("orders", number)) for number in range(3)),
        commit_record("done", 1, 5, ("returns", 0)),
        CoordinatorRecord(1, GROUP_METADATA, "live", 5, group_metadata=live),
    )
    beside = Beside(root, tmp_path)
    story = read(RECORDED / "groups_with_members.jsonl")
    reads = [each for each in story[:24] if {"--describe", "--list"} & set(each.words)]
    beside.play([each for each in reads if "--all-groups" not in each.words])
    assert beside.compared == len([each for each in reads if "--all-groups" not in each.words])


# What Kafka refuses and ours does: without a topic it is about all topics, and of --execute and
# --dry-run the last one counts.
ACCEPTED = (
    "--reset-offsets --group done --to-earliest",
    "--delete-offsets --group done",
    "--reset-offsets --group done --topic orders --to-earliest --execute --dry-run",
)


def test_what_kafka_refuses_is_refused(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    Log(root).append(commit_record("done", 1, 5, ("orders", 0)))
    beside = Beside(root, tmp_path)
    refused = 0
    for each in read(RECORDED / "group_errors.jsonl"):
        action, *words = each.words[2:] or [""]
        asked = " ".join(each.words[2:])
        if each.printed.status and action in ACTIONS and not asked.startswith(ACCEPTED):
            done = beside.run([*ACTIONS[action], *words])
            assert done.exit_code != 0, (asked, done.output)
            refused += 1
    assert refused > 20


def test_a_regular_expression_is_re2s(tmp_path: Path) -> None:
    story = read(RECORDED / "group_errors.jsonl")
    regexes = [e for e in story if e.words[2:3] == ("--validate-regex",) and len(e.words) == 4]
    assert len(regexes) == 3
    for each in regexes:
        done = CliRunner().invoke(make_app(), ["groups", "validate-regex", each.words[3]])
        assert (done.exit_code == 0) == ("is valid" in each.printed.out)
