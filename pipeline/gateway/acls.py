"""The ACLs that a gateway decides by, read beside the event loop.

Requests of a group are decided where the coordinator decides them, by the same ACLs and the same
`coordinator.authorization`. What a gateway answers by itself, it decides here: what topics there
are, their records, and changes of the catalogue and of the ACLs.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from group_coordinator.coordinator.authorization import Authorizer, super_users_of
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta.failures import STORE_FAILS
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.brokers import LEASE_S
from group_coordinator.pipeline.gateway.looking import keep_looking
from group_coordinator.pipeline.gateway.single_flight import SingleFlight
from group_coordinator.pipeline.tables.acls import AclWatcher

if TYPE_CHECKING:
    from group_coordinator.coordinator.config import GroupCoordinatorConfig
    from group_coordinator.schemas.acls import AclBinding

log = logging.getLogger(__name__)

# How often a change is looked for, s.
_LOOK_EVERY_S = 0.25


class AclsUnknown(Failure):
    """Which ACLs are in force is not known; the message says since when."""


class Acls:
    """The ACLs of a root; `authorizer` decides by them, None allows everything to everybody.

    Raises DeltaError, OSError and Failure if they cannot be read: a gateway that does not know them
    must not begin to serve. Later those that were read hold for `LEASE_S` after the last good look.
    After that nothing is known, and at once where there may be a first ACL that was not read, or
    where the table was made anew. Then no request is allowed, since an unread ACL may forbid it,
    and none is denied, because clients take a denial for final.
    """

    def __init__(self, root: str, config: GroupCoordinatorConfig) -> None:
        self._watcher = AclWatcher(root)
        self._config = config
        # Of its own: behind clients' requests a look could last longer than the ACLs are known.
        self._thread = ThreadPoolExecutor(1, "acls")
        self._looks = SingleFlight(self._look)
        self._super_users = frozenset(super_users_of(config.super_users))
        # When a look began that went well, and whether one failed since then before any had found
        # ACLs, or because the table is another one.
        self._known_at = monotonic()
        self._may_have_others = False
        self.authorizer: Authorizer | None = None
        self.acls: tuple[AclBinding, ...] | None = None
        self._take(self._watcher.poll())

    @property
    def is_known(self) -> bool:
        """Whether the ACLs in force are those that were read, and nothing hides others."""
        return not self._may_have_others and monotonic() - self._known_at <= LEASE_S

    def may_begin(self, principal: str) -> bool:
        """Whether a principal may make the first ACL, which denies all else to all others."""
        return self.authorizer is not None or principal in self._super_users

    def check(self, principal: str) -> None:
        """Raise AclsUnknown if what a principal may do is not known. Super users may do all."""
        if self.is_known or principal in self._super_users:
            return
        seconds = monotonic() - self._known_at
        raise AclsUnknown(f"the ACLs could not be read for {seconds:.0f} s: nobody is let in")

    async def follow(self) -> None:
        """Look for changes until cancelled."""
        await keep_looking(
            self.look,
            _LOOK_EVERY_S,
            lambda error: log.warning("the ACLs cannot be read: %s", error),
        )

    async def look(self) -> None:
        """Look for changes once. Raises DeltaError, OSError and Failure."""
        await self._looks.result()

    async def close(self) -> None:
        """End the thread, and the looks."""
        await self._looks.close()
        self._thread.shutdown()

    async def _look(self) -> None:
        began = monotonic()
        poll = self._watcher.poll
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, poll)
        except STORE_FAILS:
            self._may_have_others = self.acls is None or self._watcher.is_replaced
            raise
        self._known_at, self._may_have_others = began, False
        self._take(found)

    def _take(self, acls: tuple[AclBinding, ...] | None) -> None:
        if acls is None or acls is self.acls:
            return
        self.acls = acls
        config = self._config
        self.authorizer = Authorizer(
            acls, super_users_of(config.super_users), config.allow_everyone_if_no_acl_found
        )
