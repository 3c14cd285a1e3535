"""Pinned settings: a repeated batch is decided by the same settings as the first time.

An interrupted batch is repeated after a restart, and the rows that it has already written remain.
With other settings, claims, topics or ACLs, the repetition could contradict them: an offset that is
committed already could be answered 3, UNKNOWN_TOPIC_OR_PARTITION.

Settings are pinned: they are written to a table next to the streaming checkpoint before a batch is
decided by them. The table has a row for each run of the query, and one for each batch with which a
run begins to use changed settings, topics or ACLs. A batch's offset names the run that planned it
(`pipeline.stream.offset`); a batch of an earlier run uses that run's settings.

When the node's offsets partitions change (`change`), the settings name all claims before the stream
reads the change. A partition that is being released stays claimed until a batch's offset no longer
selects it; that batch unloads its groups.

The driver reads topics and ACLs before the batch's one action, and passes the settings to the tasks
as a local property of their job (`pipeline.stream.stateful`). Workers could not read the catalogue
as of the batch's time: a row gets its time, from another machine's clock, before it is committed,
so a repeated batch could see more rows. A changed catalogue is not a control event, because that
would wake every group.
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
from group_coordinator.pipeline.delta import (
    Appender,
    RetryBudget,
    TableReplacedError,
    open_delta,
    raise_epoch,
    read_rows,
)
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.stream.offset import offset_of
from group_coordinator.pipeline.tables import (
    AclWatcher,
    Looks,
    TopicWatcher,
    ensure_table,
    table_uri,
)
from group_coordinator.schemas.acls import AclBinding
from group_coordinator.schemas.messages import Int64
from group_coordinator.schemas.rows import Catalogue, TableRows
from group_coordinator.schemas.tables import from_arrow, table_of, to_arrow

if TYPE_CHECKING:
    from group_coordinator.pipeline.delta import Epoch
    from group_coordinator.pipeline.stream.offset import Planned, Selection

log = logging.getLogger(__name__)

# The application id of the Delta transaction that has the number of the newest run as version.
_RUNS = "runs"

# The settings that a run reads from tables: topics and ACLs.
_Known = tuple[Catalogue | None, tuple[AclBinding, ...] | None]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BatchSettings).decode


class Pin(Struct, frozen=True):
    """A row of the table of pinned settings: those, as JSON, that a run uses from a batch on."""

    run: Int64
    batch_id: Int64
    settings: str


class KeysGone(Failure):
    """A batch cannot be repeated: a key that verified its requests was changed or removed."""


class PinsGone(Failure):
    """A batch cannot be repeated: the table no longer has the settings that decided it."""

    def __init__(self, uri: str, batch_id: int) -> None:
        super().__init__(
            f"{uri} does not have the settings that batch {batch_id} was decided by, as after a "
            f"restore: delete {uri.rpartition('/')[0]} and start again; the groups "
            "are then loaded from the tables"
        )


class PinnedSettings:
    """The settings of each batch of one run of the query; `run` is the run's number.

    They are in a table next to `checkpoint`, which need not exist. `settings` apply to the whole
    run, except for topics and ACLs, which this class reads. `planned` is the newest batch planned
    before this run. `offset_of_batch` returns the end of a planned batch from Spark's log of
    offsets. One thread may change the settings while another reads them. Raises FencedError,
    CommitTimeoutError, KeysGone and PinsGone.
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
        """Return the settings of a batch, as JSON; pin them first if they have changed."""
        if self._planned is not None and batch_id <= self._planned.batch_id:
            return self._of_planned(batch_id, self._planned)
        changed = self._next
        if changed is not None:
            self._decide_by(replace(changed, keys=self._settings.keys))
        self._decide_by(self._in_force(batch_id))
        text = self._present()
        if text != self._text:
            self._text = text
            pin = partial(self._appender.append, self._pin(self.run, batch_id))
            self._retry_budget().run(f"pin what batch {batch_id} is decided by", pin)
        if changed is not None and self._next is changed:
            self._next = None
        return text

    def change(self, settings: BatchSettings) -> None:
        """Use these settings from the next batch on, except for `keys`, which stay the same.

        A partition in both `claims` and `unloading` is decided for until a batch no longer selects
        it.
        """
        self._next = settings

    def is_changed(self) -> bool:
        """Whether the settings of the last `change` are pinned."""
        return self._next is None

    def _in_force(self, batch_id: int) -> BatchSettings:
        """Return the settings without the claims that the batch no longer selects."""
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
        # Not encoded for every batch, because encoding many ACLs takes long.
        if self._encoded is None or known != self._encoded[0]:
            settings = replace(self._settings, topics=known[0], acls=known[1])
            self._encoded = known, _encode(settings).decode()
        return self._encoded[1]

    def _look(self) -> _Known:
        """Return the current topics and ACLs, which every decision needs; retry a failed read.

        Raises CommitTimeoutError.
        """
        return self._retry_budget().run("look at topics and ACLs", self._look_once)

    def _look_once(self) -> _Known:
        _poll(self._watcher)
        _poll(self._acls)
        return self._watcher.catalogue, self._acls.acls

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(self._settings.config.offsets_commit_timeout_ms)

    def _begin(self) -> int:
        # A restored table may lack the run that planned the last batch. If this run took its
        # number, it would repeat that batch with other settings.
        planned = None if self._planned is None else offset_of(self._planned.offset)
        before = -1 if planned is None else planned.run
        while True:
            run = max(self._appender.last_version(_RUNS), before) + 1
            # -1 comes before the first batch, which may have a pin too.
            if self._appender.append(self._pin(run, -1), _RUNS, run):
                return run

    def _pin(self, run: int, batch_id: int) -> object:
        return to_arrow(self._table, [Pin(run, batch_id, self._text)])

    def _of_planned(self, batch_id: int, planned: Planned) -> str:
        """Return the settings that were pinned for a planned batch, without claims lost since.

        The new owner of a lost partition has already answered its requests in this batch, so they
        are not decided again.
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
    """Poll for changes; read a replaced table again before any request is decided."""
    try:
        watcher.poll()
    except TableReplacedError as error:
        log.warning("%s. It is read again", error)
        watcher.poll()


def _still_selected(settings: BatchSettings, selection: Selection) -> BatchSettings:
    """Return the settings without the claims of released partitions that a batch does not read."""
    if settings.claims is None:
        return settings
    claims = {
        partition: epoch
        for partition, epoch in settings.claims.items()
        if partition not in settings.unloading or selection.has(partition)
    }
    return settings if claims == settings.claims else replace(settings, claims=claims)


def _check_keys(pinned: BatchSettings, now: BatchSettings) -> None:
    """Raise KeysGone unless the keys that verified a batch's principals are still there."""
    there = now.keys or {}
    gone = [name for name, mark in (pinned.keys or {}).items() if there.get(name) != mark]
    if gone:
        raise KeysGone(
            f"the key {gone[0]!r} of requests was changed or removed before a batch that was "
            "verified with it was finished: restore it in requests.keys.file, start, and then "
            "change it"
        )


def _still_held(pinned: BatchSettings, now: BatchSettings) -> BatchSettings:
    """Return the pinned settings with only the claims that this node still has."""
    if pinned.claims is None or now.claims is None:
        return pinned
    # A partition is released only after all batches that were planned before.
    held = {**now.claims, **now.unloading}.items()
    return replace(
        pinned,
        claims=dict(pinned.claims.items() & held),
        unloading=dict(pinned.unloading.items() & held),
    )
