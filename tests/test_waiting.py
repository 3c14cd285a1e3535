"""`wait_until` reports the missing condition, and looks no longer than it must."""

from __future__ import annotations

import pytest

from tests.waiting import wait_until


def test_what_holds_is_returned_at_the_first_look_at_which_it_does() -> None:
    looks = iter([0, [], "there", "too late"])
    done: list[str] = []
    found = wait_until("it", lambda: next(looks), meanwhile=lambda: done.append("w"), every_s=0)
    assert found == "there"
    assert done == ["w", "w"]


@pytest.mark.parametrize("what", ["no answer", lambda: "no answer"])
def test_what_does_not_come_to_pass_is_named(what: object) -> None:
    looked: list[None] = []
    with pytest.raises(AssertionError, match="not within 0 s: no answer"):
        wait_until(what, lambda: looked.append(None), limit_s=0)
    assert looked
