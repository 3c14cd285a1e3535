"""Malformed requests, by the thousand: each is answered once or set aside, and nothing stops.

The trial itself raises TrialFailed for the first promise that is broken.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.trials.malformed.debts import Debts, TrialFailed
from tests.trials.malformed.files import MalformedFiles, Owed
from tests.trials.malformed.healthy import GROUP, HealthyGroup
from tests.trials.malformed.trial import MalformedReport, run_malformed

pytestmark = pytest.mark.full

LONG = 1_000_000


def run(events: int) -> MalformedReport:
    report = run_malformed(events, 1, print)
    print(report.rows())
    assert report.events >= events
    assert report.answered + report.rejected + report.repeats == report.events
    assert report.healthy > 0
    # The requests are not malformed in one way alone.
    assert {"NONE", "INVALID_REQUEST", "UNKNOWN_MEMBER_ID", "OFFSET_METADATA_TOO_LARGE"} <= set(
        report.errors
    )
    return report


def test_six_thousand_malformed_requests() -> None:
    run(6_000)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_a_million_malformed_requests_take_little_more_memory_than_a_tenth_of_them() -> None:
    """The groups' states are in this process, and a restart reads all tables once."""
    report = run(LONG)
    assert report.peak_memory < 1.6 * report.early_memory


def test_the_requests_follow_from_the_seed() -> None:
    first, again, other = (MalformedFiles(Random(seed)) for seed in (1, 1, 2))
    files = [[each.file(20) for _ in range(10)] for each in (first, again, other)]
    owed = [[one for _, one in made] for made in files]
    assert owed[0] == owed[1] != owed[2]
    assert [rows.schema for rows, _ in files[0]] == [rows.schema for rows, _ in files[1]]


# --- the trial would notice -----------------------------------------------------------------------

ANSWER = {"group_id": "g", "request_id": "r", "error_code": 0}


def test_an_answer_too_many_fails_the_trial() -> None:
    debts = Debts()
    debts.add(Owed({("g", "r"): "heartbeat"}))
    debts.answer(ANSWER)
    debts.check()
    with pytest.raises(TrialFailed, match="nobody is owed, or a second one: 'g', 'r'"):
        debts.answer(ANSWER)


def test_an_answer_too_few_fails_the_trial_unless_it_may_wait() -> None:
    debts = Debts()
    debts.add(Owed({("g", "r"): "join_group"}))
    debts.check()
    debts.add(Owed({("g", "q"): "heartbeat"}))
    with pytest.raises(TrialFailed, match="1 requests were not answered, such as 'g', 'q'"):
        debts.check()


def test_an_event_that_is_neither_answered_nor_rejected_fails_the_trial() -> None:
    debts = Debts()
    debts.add(Owed({}, rejected=2))
    debts.reject(1)
    with pytest.raises(TrialFailed, match="1 more events were to be rejected"):
        debts.check()


def test_a_healthy_group_that_goes_unanswered_fails_the_trial() -> None:
    healthy = HealthyGroup()
    (join,) = healthy.requests(5)
    answer = {"group_id": GROUP, "request_id": join.request_id, "error_code": 25}
    with pytest.raises(TrialFailed, match="the healthy group asked"):
        healthy.check()
    healthy.answer(answer)
    with pytest.raises(TrialFailed, match="join_group-1 was answered"):
        healthy.check()
