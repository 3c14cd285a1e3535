"""The settings of each batch: a batch that is run again is decided by the same settings.

Settings, claims, the catalogue of topics and the ACLs are part of a batch's input, as its requests
and its time are. A batch that was cut off is run again after a restart, and what its first run has
written stays. If the second run decided by other settings, it could contradict the first: a commit
could be in the offsets topic and be answered 3, UNKNOWN_TOPIC_OR_PARTITION.

They are pinned in a table beside the streaming checkpoint, before any batch is decided by them: a
row for each run of the query, and one for each batch from which on a run knows another catalogue or
other ACLs.
The offset of a batch, which Spark logs before the batch runs, names the run that planned the batch
(`pipeline.stream.offset`). So a batch that another run had planned takes what that run had pinned
for it; all others take what is so now.

The partitions that a run decides for may change while it runs (`change`). The settings then name
all claims before the stream reads what changes, and are pinned from the next batch on. A partition
that is given up stays claimed until a batch no longer selects its requests, as the batch's offset
says: in that batch it is unloaded, and from then on nothing is decided for it.

The driver looks at the catalogue and the ACLs once a batch, before the batch's one action, and
hands the settings to the tasks as a local property of their job (`pipeline.stream.stateful`). The
workers read nothing, so all of them have the same. They could not read the catalogue's rows up to
the batch's time instead: a row gets its time before it is committed, from another machine's clock,
so a second run could see a row that the first could not. A change of the catalogue is no control
event for each group, as a load is, because it would wake every group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.pipeline.delta.appender import Appender, raise_epoch
from group_coordinator.pipeline.delta.identity import TableReplacedError
from group_coordinator.pipeline.delta.parquet_file import read_rows
from group_coordinator.pipeline.delta.patience import Patience
from group_coordinator.pipeline.delta.table import open_delta
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.tables.acls import AclWatcher
from group_coordinator.pipeline.tables.store import Looks, ensure_table, table_uri
from group_coordinator.pipeline.tables.topic_watcher import TopicWatcher
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.catalogue import Catalogue
from group_coordinator.schemas.messages import Int64
from group_coordinator.schemas.rows import TableRows
from group_coordinator.schemas.tables import from_arrow, table_of, to_arrow

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta.epoch import Epoch
    from group_coordinator.pipeline.stream.offset import Planned, Selection

log = logging.getLogger(__name__)

# The transaction of the table whose version is the number of the newest run.
_RUNS = "runs"

# What a run looks for: the catalogue of topics, and the ACLs.
_Known = tuple[Catalogue | None, tuple[AclBinding, ...] | None]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BatchSettings).decode


class Pin(Struct, frozen=True):
    """The settings, as JSON, by which a run decides its batches from this one on."""

    run: Int64
    batch_id: Int64
    settings: str


class KeysGone(Failure):
    """A batch cannot be run again: the keys of requests are not those that it was decided by."""


class PinsGone(Failure):
    """A batch cannot be run again: the table no longer has the settings that it was decided by."""

    def __init__(self, uri: str, batch_id: int) -> None:
        super().__init__(
            f"{uri} does not have the settings that batch {batch_id} was decided by, as after a "
            f"restore: delete {uri.rpartition('/')[0]} and start again; the tables bring the "
            "groups back"
        )


class PinnedSettings:
    """The settings of each batch of one run of a query; `run` is the run's number.

    They are in a table beside `checkpoint`, which need not be there itself.
    `settings` are what the run decides by, but for the catalogue of topics and the ACLs, which are
    looked for here. `planned` is the last batch that the streaming checkpoint had planned before
    this run, and `offset_of_batch` returns where a batch that is planned ends, as Spark's log of
    offsets has it. One thread may change the settings while another one asks for them. Raises
    FencedError as every writer of a node does, CommitTimeoutError, KeysGone and PinsGone.
    """

    def __init__(
        self,
        root: str,
        checkpoint: str,
        settings: BatchSettings,
        planned: Planned | None = None,
        epoch: Epoch | None = None,
        offset_of_batch: Callable[[int], str] | None = None,
    ) -> None:
        folder, _, name = checkpoint.rstrip("/").rpartition("/")
        self._table = table_of(TableRows(f"{name}-pins", Pin))
        self._uri = table_uri(folder, self._table)
        ensure_table(folder, self._table)
        if epoch is not None:
            raise_epoch(self._uri, epoch)
        self._appender = Appender(self._uri, epoch)
        self._planned = planned
        self._offset_of_batch = offset_of_batch
        self._next: BatchSettings | None = None
        self._looks = Looks(root)
        self._watcher = TopicWatcher(root)
        self._acls = AclWatcher(root)
        self._settings = settings
        self._encoded: tuple[_Known, str] | None = None
        self._text = self._present()
        self.run = self._begin()

    def of_batch(self, batch_id: int) -> str:
        """Return the settings of a batch, as JSON."""
        if self._planned is not None and batch_id <= self._planned.batch_id:
            return self._of_planned(batch_id, self._planned)
        changed = self._next
        if changed is not None:
            self._decide_by(replace(changed, keys=self._settings.keys))
        self._decide_by(self._in_force(batch_id))
        text = self._present()
        if text != self._text:
            self._text = text
            # A pin that equals the one before says nothing new.
            pin = partial(self._appender.append, self._pin(self.run, batch_id))
            self._patience().until_done(f"pin what batch {batch_id} is decided by", pin)
        if changed is not None and self._next is changed:
            self._next = None
        return text

    def change(self, settings: BatchSettings) -> None:
        """Decide by these settings from the next batch on; `keys` stay as they are.

        A partition that is in `claims` and in `unloading` is decided for until a batch no longer
        selects its requests.
        """
        self._next = settings

    def is_changed(self) -> bool:
        """Whether the settings of the last `change` are pinned."""
        return self._next is None

    def _in_force(self, batch_id: int) -> BatchSettings:
        """The settings, less the claims that the batch no longer selects."""
        settings = self._settings
        if not (settings.claims or {}).keys() & settings.unloading.keys():
            return settings
        assert self._offset_of_batch is not None
        offset = offset_of(self._offset_of_batch(batch_id))
        return settings if offset is None else _still_selected(settings, offset.selection)

    def _decide_by(self, settings: BatchSettings) -> None:
        if settings is not self._settings:
            self._settings, self._encoded = settings, None

    def _present(self) -> str:
        if self._encoded is not None and not self._looks.is_due():
            return self._encoded[1]
        known = self._look()
        # Not encoded for every batch, as that takes long with many ACLs.
        if self._encoded is None or known != self._encoded[0]:
            settings = replace(self._settings, topics=known[0], acls=known[1])
            self._encoded = known, _encode(settings).decode()
        return self._encoded[1]

    def _look(self) -> _Known:
        """The topics and the ACLs of now; a look that fails is made again within the batch.

        Without the ACLs nothing can be decided. Raises CommitTimeoutError.
        """
        return self._patience().until_done("look at topics and ACLs", self._look_once)

    def _look_once(self) -> _Known:
        _poll(self._watcher)
        _poll(self._acls)
        return self._watcher.catalogue, self._acls.acls

    def _patience(self) -> Patience:
        return Patience(self._settings.config.offsets_commit_timeout_ms)

    def _begin(self) -> int:
        """Pin the settings of a new run; return its number."""
        # A table that was set back may lack the run that planned the last batch: to have its number
        # would be to decide the batch again by other settings.
        planned = None if self._planned is None else offset_of(self._planned.offset)
        before = -1 if planned is None else planned.run
        while True:
            run = max(self._appender.last_version(_RUNS), before) + 1
            # From before the first batch, which may have a pin of its own.
            if self._appender.append(self._pin(run, -1), _RUNS, run):
                return run

    def _pin(self, run: int, batch_id: int) -> object:
        return to_arrow(self._table, [Pin(run, batch_id, self._text)])

    def _of_planned(self, batch_id: int, planned: Planned) -> str:
        """What the run that planned a batch had pinned for it, without what was lost since.

        A partition that another coordinator has had since is not decided for: it has answered the
        batch's requests.
        """
        offset = offset_of(planned.offset)
        pins = from_arrow(Pin, read_rows(open_delta(self._uri)))
        mine = [
            pin
            for pin in pins
            if offset is not None and pin.run == offset.run and pin.batch_id <= batch_id
        ]
        if not mine:
            raise PinsGone(self._uri, batch_id)
        pinned = _decode(max(mine, key=lambda pin: pin.batch_id).settings)
        assert offset is not None  # there is no pin of such a batch
        pinned = _still_selected(pinned, offset.selection)
        _check_keys(pinned, self._settings)
        return _encode(_still_held(pinned, self._settings)).decode()


def _poll(watcher: TopicWatcher | AclWatcher) -> None:
    """Look for changes; a table that was replaced is read anew, before anything is decided."""
    try:
        watcher.poll()
    except TableReplacedError as error:
        log.warning("%s. It is read anew", error)
        watcher.poll()


def _still_selected(settings: BatchSettings, selection: Selection) -> BatchSettings:
    """The settings without claims that are being given up and whose requests are not selected."""
    if settings.claims is None:
        return settings
    claims = {
        partition: epoch
        for partition, epoch in settings.claims.items()
        if partition not in settings.unloading or selection.has(partition)
    }
    return settings if claims == settings.claims else replace(settings, claims=claims)


def _check_keys(pinned: BatchSettings, now: BatchSettings) -> None:
    """Raise KeysGone unless the keys by which a batch's principals are believed are there."""
    there = now.keys or {}
    gone = [name for name, mark in (pinned.keys or {}).items() if there.get(name) != mark]
    if gone:
        raise KeysGone(
            f"the key {gone[0]!r} of requests was changed or removed before a batch that knew it "
            "was finished: put it back into requests.keys.file, start, and then change it"
        )


def _still_held(pinned: BatchSettings, now: BatchSettings) -> BatchSettings:
    """The pinned settings with those claims only that hold by now."""
    if pinned.claims is None or now.claims is None:
        return pinned
    # What is being given up is released only after the batches that were planned before.
    held = {**now.claims, **now.unloading}.items()
    return replace(
        pinned,
        claims=dict(pinned.claims.items() & held),
        unloading=dict(pinned.unloading.items() & held),
    )
