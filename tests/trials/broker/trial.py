"""The trial: conversations by seeds, with a broker and with this coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from group_coordinator.pipeline.errors import Failure
from tests.support.broker import HOST, Broker, broker
from tests.support.kafka_libs import kafka_libs
from tests.support.peer import NOT_YET
from tests.support.wire import await_coordinator
from tests.trials.broker.choices import CHOICES
from tests.trials.broker.exchange import Draft, decoded
from tests.trials.broker.held import Held
from tests.trials.broker.report import BrokerReport, Difference
from tests.trials.broker.sides import TOPICS, Side, Theirs

_PROGRESS_S = 10.0
# How long a request that is not answered at once has to arrive before the next one is sent.
_PAUSE_S = 0.02
_SLOWLY = 25
_LOADED_S = 60.0
# One partition to be loaded.
_SETTINGS = {"offsets.topic.num.partitions": 1}


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
    """Hold conversations, each with a new side made by `theirs`.

    After a parked request the next one is sent `pause_s` later. A conversation with a difference is
    held once more, slowly.
    """
    began = told = time.monotonic()
    report = BrokerReport(seed, 0, 0, 0, {}, dict.fromkeys(CHOICES, 0), 0.0, [])
    again = 0
    while report.answers < answers or not report.conversations:
        number = seed + report.conversations
        if _hold(theirs(), f"g-{number}", number, report, pause_s) is not None:
            # A request may have been overtaken by the next one.
            again += 1
            slowly = _hold(theirs(), f"g-{number}-slowly", number, report, _SLOWLY * pause_s)
            if slowly is not None:
                report.different.append(slowly)
        report.conversations += 1
        if time.monotonic() - told > _PROGRESS_S:
            told = time.monotonic()
            say(f"{report.answers:,} answers, {len(report.different)} of them different")
    report.held_again = again
    report.seconds = time.monotonic() - began
    return report


def _hold(
    side: Side, group_id: str, seed: int, report: BrokerReport, pause_s: float
) -> Difference | None:
    try:
        return Held(group_id, seed, side, report, pause_s).run()
    finally:
        side.close()


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
