"""A batch that is run again is decided by what it was decided by before."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from group_coordinator.coordinator.config import GroupCoordinatorConfig
from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.coordinator import Node
from group_coordinator.pipeline.delta import identity
from group_coordinator.pipeline.delta.appender import Epoch, FencedError
from group_coordinator.pipeline.delta.commit import Commit
from group_coordinator.pipeline.delta.log import Log
from group_coordinator.pipeline.delta.storage import CommitStateUnknown
from group_coordinator.pipeline.stream.offset import Offset, Planned, Position, Selection
from group_coordinator.pipeline.stream.pinned_settings import KeysGone, PinnedSettings, PinsGone
from group_coordinator.pipeline.tables.acl_table import add_acls, remove_acls
from group_coordinator.pipeline.tables.topic_catalogue import (
    alter_topic,
    create_topic,
    delete_topic,
)
from group_coordinator.schemas.acls import AclBinding, AclFilter
from group_coordinator.schemas.rows import Catalogue
from tests.support.failing_reads import TOO_MANY_FILES, failing_reads

OURS = BatchSettings(
    config=GroupCoordinatorConfig(group_max_size=7),
    node=Node(3, "h", 9092),
    dedup_window_ms=9,
    claims={0: 4, 3: 5},
    unloading={6: 5, 7: 5},
)

ALLOWED = AclBinding("GROUP", "g", "LITERAL", "User:alice", "*", "READ", "ALLOW")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "_checkpoints" / "query")


def planned(run: PinnedSettings, batch_id: int) -> Planned:
    """What Spark's log of offsets has of a batch that a run planned."""
    offset = Offset(Position(0), Position(0), run.run, Selection())
    return Planned(batch_id, msgspec.json.encode(offset).decode())


def of(pinned: PinnedSettings, batch_id: int) -> BatchSettings:
    return msgspec.json.decode(pinned.of_batch(batch_id), type=BatchSettings)


def test_a_batch_is_decided_by_all_of_its_settings(root: str, checkpoint: str) -> None:
    assert of(PinnedSettings(root, checkpoint, OURS), 0) == OURS


def test_pins_that_were_set_back_decide_no_batch_by_other_settings(
    root: str, checkpoint: str
) -> None:
    """Nor does a second start, whose run would have the number that is missing."""
    first = PinnedSettings(root, checkpoint, OURS)
    last = planned(PinnedSettings(root, checkpoint, OURS), 7)
    shutil.rmtree(f"{checkpoint}-pins")
    for run in (first.run + 2, first.run + 3):
        again = PinnedSettings(root, checkpoint, OURS, last)
        assert again.run == run
        with pytest.raises(PinsGone, match=f"delete {Path(checkpoint).parent} and start again"):
            again.of_batch(7)


def test_a_batch_that_is_run_again_has_the_settings_of_its_run(root: str, checkpoint: str) -> None:
    first = PinnedSettings(root, checkpoint, OURS)
    first.of_batch(7)
    changed = msgspec.structs.replace(OURS, config=GroupCoordinatorConfig(), dedup_window_ms=1)
    second = PinnedSettings(root, checkpoint, changed, planned(first, 7))
    assert of(second, 7) == OURS
    assert of(second, 8) == changed
    # The second run planned batch 8 and was cut off, too.
    third = PinnedSettings(root, checkpoint, OURS, planned(second, 8))
    assert of(third, 8) == changed
    assert of(third, 9) == OURS


def test_a_batch_that_was_planned_and_never_decided_has_its_settings(
    root: str, checkpoint: str
) -> None:
    first = PinnedSettings(root, checkpoint, OURS)
    # Killed between the plan of batch 0 and its first look at the settings.
    later = msgspec.structs.replace(OURS, dedup_window_ms=1)
    assert of(PinnedSettings(root, checkpoint, later, planned(first, 0)), 0) == OURS


def test_a_batch_that_is_run_again_decides_nothing_for_what_was_lost_since(
    root: str, checkpoint: str
) -> None:
    first = PinnedSettings(root, checkpoint, OURS)
    again = msgspec.structs.replace(OURS, claims={3: 9, 6: 9}, unloading={0: 4, 7: 5})
    second = PinnedSettings(root, checkpoint, again, planned(first, 5))
    assert of(second, 5).claims == {0: 4}, "partition 3 was another's between the claims 5 and 9"
    assert of(second, 5).unloading == {7: 5}
    assert of(second, 6) == again


def test_a_change_is_in_force_from_the_next_batch_on(root: str, checkpoint: str) -> None:
    running = PinnedSettings(root, checkpoint, OURS)
    assert of(running, 0) == OURS
    gained = msgspec.structs.replace(OURS, claims={0: 4, 3: 5, 1: 9})
    running.change(gained)
    assert not running.is_changed(), "what is written for it now may not be read yet"
    assert of(running, 1) == gained
    assert running.is_changed()
    for batch, settings in ((0, OURS), (1, gained), (2, gained)):
        assert of(PinnedSettings(root, checkpoint, gained, planned(running, batch)), batch) == (
            msgspec.structs.replace(settings)
        )


def test_a_partition_is_decided_for_until_a_batch_reads_no_more_requests_of_it(
    root: str, checkpoint: str
) -> None:
    selected = {1: Selection((0, 3), 8), 2: Selection((0,), 8), 3: Selection((0,), 8)}

    def offset(batch: int) -> str:
        at = Offset(Position(0), Position(0), 0, selected[batch])
        return msgspec.json.encode(at).decode()

    running = PinnedSettings(root, checkpoint, OURS, offset_of_batch=offset)
    of(running, 0)
    running.change(msgspec.structs.replace(OURS, unloading={3: 5}))
    assert of(running, 1).claims == {0: 4, 3: 5}
    # Killed in batch 2: before it had asked for its settings, and after that.
    later = msgspec.structs.replace(OURS, claims={0: 4}, unloading={3: 5})
    for _ in range(2):
        again = PinnedSettings(root, checkpoint, later, Planned(2, offset(2)))
        assert (of(again, 2).claims, of(again, 2).unloading) == ({0: 4}, {3: 5})
        again = PinnedSettings(root, checkpoint, later, Planned(1, offset(1)))
        assert of(again, 1).claims == {0: 4, 3: 5}
        assert (of(running, 2).claims, of(running, 2).unloading) == ({0: 4}, {3: 5})
    assert of(running, 3).claims == {0: 4}


def test_a_batch_that_is_run_again_knows_the_same_topics(root: str, checkpoint: str) -> None:
    create_topic(root, "orders", 6)
    running = PinnedSettings(root, checkpoint, OURS)
    assert of(running, 0).topics == Catalogue({"orders": 6})
    alter_topic(root, "orders", 8)
    assert of(running, 1).topics == Catalogue({"orders": 8})
    assert of(running, 2).topics == Catalogue({"orders": 8})
    create_topic(root, "clicks", 1)
    for batch, orders in ((0, 6), (1, 8), (2, 8)):
        restarted = PinnedSettings(root, checkpoint, OURS, planned(running, batch))
        assert of(restarted, batch).topics == Catalogue({"orders": orders})
        assert of(restarted, batch + 1).topics == Catalogue({"clicks": 1, "orders": 8})


def test_a_deletion_is_part_of_a_batch_s_catalogue(root: str, checkpoint: str) -> None:
    create_topic(root, "orders", 6)
    running = PinnedSettings(root, checkpoint, OURS)
    running.of_batch(0)
    delete_topic(root, "orders")
    create_topic(root, "orders", 6)
    topics = of(running, 1).topics
    assert topics is not None
    assert (topics.partitions, list(topics.deleted)) == ({"orders": 6}, ["orders"])
    restarted = PinnedSettings(root, checkpoint, OURS, planned(running, 0))
    assert of(restarted, 0).topics == Catalogue({"orders": 6})


def test_that_there_was_no_catalogue_is_kept_too(root: str, checkpoint: str) -> None:
    running = PinnedSettings(root, checkpoint, OURS)
    assert of(running, 0).topics is None
    create_topic(root, "orders", 6)
    assert of(PinnedSettings(root, checkpoint, OURS, planned(running, 0)), 0).topics is None


def test_only_changes_are_written(root: str, checkpoint: str) -> None:
    running = PinnedSettings(root, checkpoint, OURS)
    before = DeltaTable(f"{checkpoint}-pins").version()
    for batch in range(5):
        running.of_batch(batch)
    assert DeltaTable(f"{checkpoint}-pins").version() == before


def test_an_earlier_start_pins_nothing_more(root: str, checkpoint: str) -> None:
    zombie = PinnedSettings(root, checkpoint, OURS, epoch=Epoch(1, 4))
    PinnedSettings(root, checkpoint, OURS, epoch=Epoch(1, 5))
    create_topic(root, "orders", 6)
    with pytest.raises(FencedError):
        zombie.of_batch(0)
    with pytest.raises(FencedError):
        PinnedSettings(root, checkpoint, OURS, epoch=Epoch(1, 4))


def test_a_batch_that_is_run_again_is_decided_by_the_same_acls(root: str, checkpoint: str) -> None:
    running = PinnedSettings(root, checkpoint, OURS)
    assert of(running, 0).acls is None
    add_acls(root, [ALLOWED])
    assert of(running, 1).acls == (ALLOWED,)
    remove_acls(root, [AclFilter()])
    assert of(running, 2).acls == ()
    for batch, acls in ((0, None), (1, (ALLOWED,)), (2, ())):
        restarted = PinnedSettings(root, checkpoint, OURS, planned(running, batch))
        assert of(restarted, batch).acls == acls
        assert of(restarted, batch + 1).acls == ()


def test_a_batch_is_decided_by_acls_and_topics_that_were_made_anew(
    root: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "CHECK_S", 0.0)
    add_acls(root, [ALLOWED])
    create_topic(root, "old", 1)
    running = PinnedSettings(root, checkpoint, OURS)
    assert of(running, 0).acls == (ALLOWED,)
    for table in ("acls", "topics"):
        shutil.rmtree(Path(root, table))
    denied = msgspec.structs.replace(ALLOWED, permission="DENY")
    add_acls(root, [denied], anew=True)
    create_topic(root, "new", 2)
    now = of(running, 1)
    assert now.acls == (denied,)
    assert now.topics is not None
    assert now.topics.partitions == {"new": 2}


def test_a_look_that_fails_is_made_again_within_the_batch(
    root: str, checkpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    add_acls(root, [ALLOWED])
    create_topic(root, "orders", 6)
    for table in ("acls", "topics"):
        for fails in (1, 2, 3):
            with failing_reads(f"{root}/{table}", fails, TOO_MANY_FILES) as reads:
                settings = of(PinnedSettings(root, checkpoint, OURS), 0)
            assert reads.has_failed
            assert settings.acls == (ALLOWED,)
            assert settings.topics is not None
    assert "could not look at topics and ACLs, retrying: [Errno 24] Too many" in caplog.text


@pytest.mark.parametrize("stands", [True, False])
def test_a_pin_that_fails_is_tried_again_within_the_batch(
    root: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch, stands: bool
) -> None:
    running = PinnedSettings(root, checkpoint, OURS)
    create_topic(root, "orders", 6)
    create = Log.create

    def fail(self: Log, commit: Commit, version: int) -> None:
        monkeypatch.setattr(Log, "create", create)
        if stands:
            create(self, commit, version)
        raise CommitStateUnknown("no answer")

    monkeypatch.setattr(Log, "create", fail)
    pinned = of(running, 3)
    assert pinned.topics is not None
    delete_topic(root, "orders")
    assert of(PinnedSettings(root, checkpoint, OURS, planned(running, 3)), 3) == pinned


def test_a_batch_is_not_run_again_without_the_keys_that_it_was_decided_by(
    root: str, checkpoint: str
) -> None:
    with_keys = msgspec.structs.replace(OURS, keys={"a": "1", "b": "2"})
    running = PinnedSettings(root, checkpoint, with_keys)
    more = msgspec.structs.replace(OURS, keys={"a": "1", "b": "2", "c": "3"})
    added = PinnedSettings(root, checkpoint, more, planned(running, 0))
    assert (of(added, 0), of(added, 1)) == (with_keys, more)
    for keys in ({"a": "1"}, {"a": "1", "b": "changed"}, None):
        changed = msgspec.structs.replace(OURS, keys=keys)
        restarted = PinnedSettings(root, checkpoint, changed, planned(running, 0))
        with pytest.raises(KeysGone, match=r"the key '[ab]' of requests was"):
            restarted.of_batch(0)
        assert of(restarted, 1).keys == keys
