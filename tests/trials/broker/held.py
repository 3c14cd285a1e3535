"""A conversation with both sides, which compares each of their responses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from group_coordinator.pipeline.replay.trace import Json, canonical
from group_coordinator.schemas.errors import ERROR_NAMES, ErrorCode
from tests.trials.broker.choices import (
    LEADER,
    UNRECORDED,
    Past,
    another_leader,
    is_unrecorded,
    never_answered,
)
from tests.trials.broker.conversation import Conversation
from tests.trials.broker.exchange import Draft, Name, Names, decoded
from tests.trials.broker.report import BrokerReport, Difference
from tests.trials.broker.sides import Ours, Side

_NAMED = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
# Requests of a conversation.
_LEAST, _MOST = 10, 60


class Held:
    """A conversation with both sides, until its end or its first difference."""

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
        self._past = Past()
        # Whether the comparison ended, because the sides have different leaders.
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
            if (differs := self._compare(place, draft, answered)) is not None:
                return Difference(self._seed, told, *differs, self._before)
            if place in self._ours.waiting:
                time.sleep(self._pause_s)
            self._before.append(told)
        if not self._is_over and (places := self._side.unasked()):
            told = f"{places} wait"
            return Difference(self._seed, told, "no answer", "an answer", self._before)
        return None

    def _compare(
        self, place: int, sent: Draft, answered: list[tuple[int, Draft, bytes]]
    ) -> tuple[str, str] | None:
        """Compare the responses after `sent`; return the first difference, ours and theirs."""
        pairs = []
        for where, draft, body in answered:
            mine = decoded(draft, body)
            lacks = never_answered(self._past, draft, sent, mine) if where != place else None
            reply = self._side.answer(where, draft, lacks is not None)
            if reply is None:
                if lacks is None:
                    return str(mine), "no answer"
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
        if another_leader(self._past, draft, named, theirs):
            self._count(LEADER)
            self._is_over = True
        elif is_unrecorded(self._past, draft, mine, other):
            self._count(UNRECORDED)
        elif canonical(named) != canonical(theirs):
            return str(named), str(theirs)
        else:
            self._report.equal += 1
            self._past.hear(draft, named)
            if draft.api == "JoinGroup":
                order = {each["member_id"]: at for at, each in enumerate(mine["members"])}
                other["members"].sort(key=lambda each: order[self._names.of(each["member_id"])])
            self._talk.take(where, draft, mine, other)
        return None

    def _count(self, choice: str) -> None:
        self._report.choices[choice] += 1


def _codes(draft: Draft, answer: Json) -> Iterator[str]:
    """Yield the error codes of a response, with its API."""
    for code in set(_error_codes(answer)):
        yield f"{draft.api} {ERROR_NAMES.get(code, str(code))}"


def _error_codes(value: object) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "error_code":
                yield each
            else:
                yield from _error_codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _error_codes(each)
