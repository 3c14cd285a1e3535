"""The trial: conversations by seeds, each answer of the broker's held against ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from kafka.admin import KafkaAdminClient, NewTopic
from msgspec import Struct

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.replay.trace import Json, canonical
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from tests.support.broker import HOST, Broker, broker
from tests.support.kafka_libs import kafka_libs
from tests.support.peer import NOT_YET
from tests.support.wire import await_coordinator
from tests.trials.broker.choices import (
    CHOICES,
    LEADER,
    UNRECORDED,
    another_leader,
    is_unrecorded,
    never_answered,
)
from tests.trials.broker.conversation import Conversation
from tests.trials.broker.exchange import Draft, Name, Names, decoded
from tests.trials.broker.sides import TOPICS, Ours, Side, Theirs

_NAMED = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
# Requests of a conversation.
_LEAST, _MOST = 10, 60
_PROGRESS_S = 10.0
# How long a request that is not answered at once has to arrive before the next one is sent.
_PAUSE_S = 0.02
_SLOWLY = 25
_LOADED_S = 60.0
# One partition to be loaded.
_SETTINGS = {"offsets.topic.num.partitions": 1}


class Difference(Struct):
    """An answer of the broker's that is not ours, the requests before it, and its seed."""

    seed: int
    request: str
    ours: str
    theirs: str
    before: list[str]

    def lines(self) -> list[str]:
        """The conversation until then."""
        return [
            f"conversation {self.seed}:",
            *(f"  {each}" for each in self.before),
            f"  {self.request}",
            f"    ours    {self.ours}",
            f"    broker  {self.theirs}",
        ]


class BrokerReport(Struct):
    """The figures of a trial; `codes` counts the broker's answers by API and error.

    `choices` counts what differs by a row of the page of differences.
    """

    seed: int
    conversations: int
    answers: int
    equal: int
    codes: dict[str, int]
    choices: dict[str, int]
    seconds: float
    different: list[Difference]

    def rows(self) -> list[tuple[str, str]]:
        """What was asked and answered, a figure each."""
        choices = [(f"by choice: {name}", f"{count:,}") for name, count in self.choices.items()]
        codes = [(f"answers: {name}", f"{count:,}") for name, count in sorted(self.codes.items())]
        return [
            ("conversations", f"{self.conversations:,}"),
            ("answers that were compared", f"{self.answers:,}"),
            ("equal", f"{self.equal:,}"),
            ("different", f"{len(self.different):,}"),
            *choices,
            ("seconds", f"{self.seconds:.0f}"),
            *codes,
        ]


def run_broker(
    libs: Path, answers: int, seed: int, say: Callable[[str], None] = lambda _text: None
) -> BrokerReport:
    """Hold conversations with a broker of the jars in `libs` until so many answers are compared.

    Raises KafkaMissing, and Failure if the broker does not come up.
    """
    with _running(kafka_libs(libs, say)) as running:
        return compare(lambda: Theirs(running), answers, seed, say)


def compare(
    theirs: Callable[[], Side],
    answers: int,
    seed: int,
    say: Callable[[str], None] = lambda _text: None,
    pause_s: float = _PAUSE_S,
) -> BrokerReport:
    """Hold conversations with what `theirs` makes, a new one for each.

    After a request that waits the next one is sent `pause_s` later; where answers differ, the
    conversation is held once more, slowly.
    """
    began = told = time.monotonic()
    report = BrokerReport(seed, 0, 0, 0, {}, dict.fromkeys(CHOICES, 0), 0.0, [])
    while report.answers < answers or not report.conversations:
        number = seed + report.conversations
        # Held once more, slowly, if it differs: a request may have been overtaken by the next one.
        for group_id, pause in (
            (f"g-{number}", pause_s),
            (f"g-{number}-slowly", _SLOWLY * pause_s),
        ):
            side = theirs()
            try:
                difference = _Held(group_id, number, side, report, pause).run()
            finally:
                side.close()
            if difference is None:
                break
        if difference is not None:
            report.different.append(difference)
        report.conversations += 1
        if time.monotonic() - told > _PROGRESS_S:
            told = time.monotonic()
            say(f"{report.answers:,} answers, {len(report.different)} of them different")
    report.seconds = time.monotonic() - began
    return report


class _Held:
    """One conversation that is held with both sides, until its end or its first difference."""

    def __init__(
        self,
        group_id: str,
        seed: int,
        side: Side,
        report: BrokerReport,
        pause_s: float,
    ) -> None:
        self._seed = seed
        self._side = side
        self._report = report
        self._pause_s = pause_s
        self._ours, self._names = Ours(), Names()
        self._talk = Conversation(Random(seed), group_id)
        self._before: list[str] = []
        self._leader: str | None = None
        # Whether nothing can be said any more: each side has another leader.
        self._is_over = False

    def run(self) -> Difference | None:
        """Hold it; return the first difference."""
        for _ in range(Random(self._seed).randint(_LEAST, _MOST)):
            drawn = self._talk.next(self._ours.waiting)
            if drawn is None or self._is_over:
                break
            place, draft = drawn
            told = f"client {place}: {draft.api} {draft.version} {draft.fields}"
            answered = self._ours.send(place, draft)
            self._side.send(place, draft)
            if (differs := self._compare(place, answered)) is not None:
                return Difference(self._seed, told, *differs, self._before)
            if place in self._ours.waiting:
                time.sleep(self._pause_s)
            self._before.append(told)
        if not self._is_over and (places := self._side.unasked()):
            told = f"{places} wait"
            return Difference(self._seed, told, "no answer", "an answer", self._before)
        return None

    def _compare(
        self, place: int, answered: list[tuple[int, Draft, bytes]]
    ) -> tuple[str, str] | None:
        """Compare what a request in `place` has answered; return what differs, ours and theirs."""
        pairs = []
        for where, draft, body in answered:
            mine = decoded(draft, body)
            lacks = never_answered(draft, mine) if where != place else None
            reply = self._side.answer(where, draft, lacks is not None)
            if reply is None and lacks is None:
                return str(mine), "no answer"
            if reply is None:
                self._count(lacks)
                continue
            other = decoded(draft, reply)
            # Before anything is compared: one answer may name the member that another one is for.
            if draft.api == "JoinGroup" and mine["error_code"] in _NAMED:
                self._names.learn(Name(mine["member_id"], other["member_id"]))
            pairs.append((where, draft, mine, other))
        for pair in pairs:
            if (differs := self._compare_one(*pair)) is not None:
                return differs
        return None

    def _compare_one(
        self, where: int, draft: Draft, mine: Json, other: Json
    ) -> tuple[str, str] | None:
        self._report.answers += 1
        for name in _codes(draft, other):
            self._report.codes[name] = self._report.codes.get(name, 0) + 1
        named, theirs = self._names.of(mine), self._names.of(other)
        if another_leader(draft, named, theirs, self._leader):
            self._count(LEADER)
            self._is_over = True
        elif is_unrecorded(draft, mine, other):
            self._count(UNRECORDED)
        elif canonical(named) != canonical(theirs):
            return str(named), str(theirs)
        else:
            self._report.equal += 1
            if draft.api == "JoinGroup":
                self._leader = named["leader"] or self._leader
                order = {each["member_id"]: at for at, each in enumerate(mine["members"])}
                other["members"].sort(key=lambda each: order[self._names.of(each["member_id"])])
            self._talk.take(where, draft, mine, other)
        return None

    def _count(self, choice: str | None) -> None:
        assert choice is not None
        self._report.choices[choice] += 1


def _codes(draft: Draft, answer: Json) -> Iterator[str]:
    """The error codes of an answer, each by its API."""
    found = {code for name, code in _pairs(answer) if name == "error_code"}
    for code in found:
        yield f"{draft.api} {ERROR_NAMES.get(code, str(code))}"


def _pairs(value: object) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, int):
                yield name, each
            yield from _pairs(each)
    elif isinstance(value, list):
        for each in value:
            yield from _pairs(each)


@contextmanager
def _running(libs: Path) -> Iterator[Broker]:
    with broker(libs, _SETTINGS) as running:
        admin = KafkaAdminClient(bootstrap_servers=f"{HOST}:{running.port}")
        admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
        admin.close()
        await_coordinator(running, "g")
        _await_loaded(Theirs(running))
        yield running


def _await_loaded(theirs: Theirs) -> None:
    """Wait until groups are answered. Raises Failure if they never are."""
    draft = Draft("Heartbeat", 3, {"group_id": "g", "generation_id": 1, "member_id": "nobody"})
    until = time.monotonic() + _LOADED_S
    while time.monotonic() < until:
        theirs.send(0, draft)
        answer = theirs.answer(0, draft)
        if answer is not None and decoded(draft, answer)["error_code"] not in NOT_YET:
            theirs.close()
            return
        time.sleep(0.1)
    raise Failure("the broker coordinates no group")
