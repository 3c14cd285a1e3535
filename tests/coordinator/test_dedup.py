"""The requests that a group remembers: all of a window for some APIs, the last ones for others."""

from __future__ import annotations

from sys import byteorder

from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.group.dedup import (
    RecentRequests,
    RequestWindow,
    dedup_keys,
    digest,
)

WINDOW_MS = 60_000
MAX_IDS = 1_024
IDS = st.lists(st.integers(0, 2**64 - 1), max_size=20)


def remember(recent: RecentRequests, now: int, *digests: int) -> None:
    recent.remember(list(digests), now, WINDOW_MS, MAX_IDS)


# --- every request of a window --------------------------------------------------------------------


def test_a_window_forgets_nothing_early_whatever_the_rate() -> None:
    window = RequestWindow()
    for now in range(0, WINDOW_MS, 150):
        window.remember(range(now * 20, (now + 150) * 20), now, WINDOW_MS)
    assert window.count == 20 * WINDOW_MS
    assert all(window.holds_any((each,)) for each in range(0, 20 * WINDOW_MS, 997))
    assert not window.holds_any((20 * WINDOW_MS,))


def test_a_window_of_small_batches_is_few_runs() -> None:
    window = RequestWindow()
    for now in range(0, 3 * WINDOW_MS, 150):
        window.remember([now], now, WINDOW_MS)
        assert len(window.runs) <= 9 + 6


def test_a_window_lasts_as_long_as_it_is_and_an_eighth_more_at_most() -> None:
    window = RequestWindow()
    seen_until = {}
    for now in range(0, 3 * WINDOW_MS, 150):
        window.remember([now], now, WINDOW_MS)
        seen_until.update(
            {each: now for each in range(0, now + 1, 1_500) if window.holds_any((each,))}
        )
    lasted = [seen_until[each] - each for each in range(0, WINDOW_MS, 1_500)]
    assert min(lasted) >= WINDOW_MS - 150
    assert max(lasted) <= WINDOW_MS * 9 // 8


def test_a_window_whose_clock_goes_back_forgets_nothing_early() -> None:
    window = RequestWindow()
    window.remember([1], 7_000, WINDOW_MS)
    window.remember([2], 1_000, WINDOW_MS)
    window.forget(WINDOW_MS + 999, WINDOW_MS)
    assert window.holds_any((1,))
    assert window.holds_any((2,))
    window.forget(WINDOW_MS + 1_000, WINDOW_MS)
    assert window.count == 0


def test_a_clock_that_was_a_day_ahead_keeps_nothing_for_a_day() -> None:
    window, recent = RequestWindow(), RecentRequests()
    for now, each in ((86_400_000, 1), (0, 2)):
        window.remember([each], now, WINDOW_MS)
        remember(recent, now, each)
    assert (window.count, recent.count) == (2, 2)
    window.forget(WINDOW_MS, WINDOW_MS)
    recent.forget(WINDOW_MS, WINDOW_MS)
    assert (window.count, recent.count) == (0, 0)


def test_a_window_of_no_time_remembers_nothing() -> None:
    window = RequestWindow()
    window.remember([1], 5, 0)
    assert (window.count, window.newest) == (0, None)


@given(st.lists(IDS, max_size=20), IDS)
def test_a_window_has_what_was_put_into_it(batches: list[list[int]], others: list[int]) -> None:
    window = RequestWindow()
    for now, digests in enumerate(batches):
        window.remember(digests, now, WINDOW_MS)
    known = {each for digests in batches for each in digests}
    assert all(window.holds_any((each,)) for each in known)
    assert [window.holds_any((each,)) for each in others] == [each in known for each in others]
    assert window.newest == max((now for now, ids in enumerate(batches) if ids), default=None)


# --- the last requests ----------------------------------------------------------------------------


def test_many_small_batches_are_few_chunks() -> None:
    recent = RecentRequests()
    for now in range(0, 3 * WINDOW_MS, 150):
        remember(recent, now, now)
        assert len(recent.runs) <= 9


def test_a_digest_is_remembered_for_the_window_at_least_and_an_eighth_more_at_most() -> None:
    recent = RecentRequests()
    seen_until = {}
    for now in range(0, 3 * WINDOW_MS, 150):
        remember(recent, now, now)
        for each in recent.repeats(list(range(0, now + 1, 150))):
            seen_until[each] = now
    lasted = [seen_until[each] - each for each in range(0, WINDOW_MS, 150)]
    assert min(lasted) >= WINDOW_MS - 150
    assert max(lasted) <= WINDOW_MS * 9 // 8


def test_a_clock_that_goes_back_forgets_nothing_early() -> None:
    recent = RecentRequests()
    remember(recent, 7_000, 1)
    remember(recent, 1_000, 2)
    remember(recent, WINDOW_MS + 999)
    assert recent.repeats([1, 2]) == {1, 2}
    remember(recent, WINDOW_MS + 1_000)
    assert recent.repeats([1, 2]) == set()


def test_what_lies_across_two_digests_is_not_remembered() -> None:
    recent = RecentRequests()
    one, two, three = (bytes(range(at, at + 8)) for at in (0, 8, 16))
    numbers = [int.from_bytes(each, byteorder) for each in (one, two, three)]
    across = int.from_bytes((one + two)[3:11], byteorder)
    remember(recent, 0, *numbers)
    assert recent.repeats([across]) == set()
    remember(recent, 0, across)
    assert recent.repeats([across]) == {across}


@given(IDS, IDS)
def test_repeats_are_what_is_in_both(known: list[int], asked: list[int]) -> None:
    recent = RecentRequests()
    remember(recent, 0, *known)
    asked += known[::2]
    assert recent.repeats(asked) == set(known) & set(asked)
    assert recent.count == len(known)


def test_a_digest_is_eight_bytes_of_any_text() -> None:
    found = {digest(text) for text in ("", "a", "b", "\ud800", "ä" * 300)}
    assert len(found) == 5
    assert all(0 <= each < 2**64 for each in found)


@given(st.text(max_size=20))
def test_an_id_has_a_digest_for_each_signer_and_one_for_nobody(request_id: str) -> None:
    signers = ("", "a", "b", "nobody")
    assert dedup_keys(request_id, None, None) == (digest(request_id),)
    unsigned, any_signer, *by_signer = dedup_keys(request_id, None, signers)
    assert any_signer == digest(request_id)
    assert [dedup_keys(request_id, each, signers) for each in signers] == [
        (key, any_signer) for key in by_signer
    ]
    assert len({unsigned, any_signer, *by_signer}) == 2 + len(signers)
    assert all(0 <= key < 2**64 for key in (unsigned, *by_signer))
