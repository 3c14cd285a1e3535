"""Pinned settings: a batch that is run again is decided by the same settings.

Settings, claims, the catalogue of topics and the ACLs are part of a batch's input, as its requests
and its time are. An interrupted batch is run again after a restart, and the rows that its first run
has written remain. If the second run used other settings, it could contradict the first. A commit
could be in the offsets topic and be answered 3, UNKNOWN_TOPIC_OR_PARTITION.

Settings are pinned in a table next to the streaming checkpoint, before any batch is decided by
them. The table has a row for each run of the query. It has another row for each batch with which a
run begins to use a changed catalogue or changed ACLs. The offset of a batch, which Spark logs
before the batch runs, names the run that planned the batch (`pipeline.stream.offset`). A batch that
another run planned uses the settings that the other run pinned for it. All other batches use the
current settings.

The partitions of a run may change while it runs (`change`). The settings then name all claims
before the stream reads the change, and are pinned from the next batch on. A partition that is
released stays claimed until a batch no longer selects its requests, as the batch's offset says.
That batch unloads it, and from then on its requests are not decided.

The driver reads the catalogue and the ACLs once a batch, before the batch's one action. It passes
the settings to the tasks as a local property of their job (`pipeline.stream.stateful`). The workers
read nothing, so all of them have the same settings. They could not read the catalogue's rows up to
the batch's time instead: a row gets its time before it is committed, from another machine's clock.
So a second run could see a row that the first could not. A change of the catalogue is not a control
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
    from group_coordinator.pipeline.stream.offset import Planned
    from group_coordinator.pipeline.stream.selection import Selection

log = logging.getLogger(__name__)

# The application id of the transaction that has the number of the newest run as its version.
_RUNS = "runs"

# The settings that a run reads from tables: the catalogue of topics, and the ACLs.
_Known = tuple[Catalogue | None, tuple[AclBinding, ...] | None]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BatchSettings).decode


class Pin(Struct, frozen=True):
    """The settings, as JSON, that a run uses from this batch on."""

    run: Int64
    batch_id: Int64
    settings: str


class KeysGone(Failure):
    """A batch cannot be run again: a key that verified its requests was changed or removed."""


class PinsGone(Failure):
    """A batch cannot be run again: the table no longer has the settings that it was decided by."""

    def __init__(self, uri: str, batch_id: int) -> None:
        super().__init__(
            f"{uri} does not have the settings that batch {batch_id} was decided by, as after a "
            f"restore: delete {uri.rpartition('/')[0]} and start again; the groups "
            "are then loaded from the tables"
        )


class PinnedSettings:
    """The settings of each batch of one run of a query; `run` is the run's number.

    They are in a table next to `checkpoint`, which need not exist. `settings` are those of the run,
    except the catalogue of topics and the ACLs, which this class reads. `planned` is the newest
    batch that the streaming checkpoint had planned before this run. `offset_of_batch` returns the
    end of a planned batch, from Spark's log of offsets. One thread may change the settings while
    another one reads them. Raises FencedError as every writer of a node does, CommitTimeoutError,
    KeysGone and PinsGone.
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
            # A pin that equals the previous one adds nothing.
            pin = partial(self._appender.append, self._pin(self.run, batch_id))
            self._retry_budget().run(f"pin what batch {batch_id} is decided by", pin)
        if changed is not None and self._next is changed:
            self._next = None
        return text

    def change(self, settings: BatchSettings) -> None:
        """Use these settings from the next batch on, except for `keys`, which stay the same.

        A partition that is unloading may still be in `claims`. Its requests are then decided until
        a batch no longer reads them.
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
        """Return the current topics and ACLs; retry a failed read within the batch.

        No request can be decided without the ACLs. Raises CommitTimeoutError.
        """
        return self._retry_budget().run("look at topics and ACLs", self._look_once)

    def _look_once(self) -> _Known:
        _poll(self._watcher)
        _poll(self._acls)
        return self._watcher.catalogue, self._acls.acls

    def _retry_budget(self) -> RetryBudget:
        return RetryBudget(self._settings.config.offsets_commit_timeout_ms)

    def _begin(self) -> int:
        """Pin the settings of a new run; return its number."""
        # A restored table may lack the run that planned the last batch. With the same number, this
        # run would decide that batch again by other settings.
        planned = None if self._planned is None else offset_of(self._planned.offset)
        before = -1 if planned is None else planned.run
        while True:
            run = max(self._appender.last_version(_RUNS), before) + 1
            # -1 is before the first batch, which may have a pin as well.
            if self._appender.append(self._pin(run, -1), _RUNS, run):
                return run

    def _pin(self, run: int, batch_id: int) -> object:
        return to_arrow(self._table, [Pin(run, batch_id, self._text)])

    def _of_planned(self, batch_id: int, planned: Planned) -> str:
        """Return the settings that the planning run pinned for a batch, without claims lost since.

        Another coordinator that has owned a partition since has answered the batch's requests of
        it. So they are not decided again.
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
    """Poll for changes; read a replaced table again, before any request is decided."""
    try:
        watcher.poll()
    except TableReplacedError as error:
        log.warning("%s. It is read again", error)
        watcher.poll()


def _still_selected(settings: BatchSettings, selection: Selection) -> BatchSettings:
    """Return the settings without claims that are being released and no longer selected."""
    if settings.claims is None:
        return settings
    claims = {
        partition: epoch
        for partition, epoch in settings.claims.items()
        if partition not in settings.unloading or selection.has(partition)
    }
    return settings if claims == settings.claims else replace(settings, claims=claims)


def _check_keys(pinned: BatchSettings, now: BatchSettings) -> None:
    """Raise KeysGone unless the keys that verify a batch's principals are present."""
    there = now.keys or {}
    gone = [name for name, mark in (pinned.keys or {}).items() if there.get(name) != mark]
    if gone:
        raise KeysGone(
            f"the key {gone[0]!r} of requests was changed or removed before a batch that was "
            "verified with it was finished: restore it in requests.keys.file, start, and then "
            "change it"
        )


def _still_held(pinned: BatchSettings, now: BatchSettings) -> BatchSettings:
    """Return the pinned settings with only the claims that still hold."""
    if pinned.claims is None or now.claims is None:
        return pinned
    # A partition is released only after the batches that were planned before.
    held = {**now.claims, **now.unloading}.items()
    return replace(
        pinned,
        claims=dict(pinned.claims.items() & held),
        unloading=dict(pinned.unloading.items() & held),
    )
