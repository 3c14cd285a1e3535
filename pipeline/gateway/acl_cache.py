"""The ACLs that a gateway enforces, read in a thread outside the event loop.

The gateway authorizes requests that it answers itself: topics, records, and changes of topics and
ACLs. The coordinator authorizes requests of groups, by the same ACLs and rules
(`coordinator.authorization`).
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from group_coordinator.coordinator.authorization import Authorizer, super_users_of
from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.delta import STORE_FAILS
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.brokers import LEASE_S
from group_coordinator.pipeline.gateway.polling import SingleFlight, poll_forever
from group_coordinator.pipeline.tables import AclWatcher

if TYPE_CHECKING:
    from group_coordinator.coordinator.config import GroupCoordinatorConfig
    from group_coordinator.schemas.acls import AclBinding

log = logging.getLogger(__name__)

# The time between two polls of the ACL table, s.
_POLL_EVERY_S = 0.25


class AclsUnknown(Failure):
    """Error while the ACLs in force are not known; the message says for how many seconds."""


class AclCache:
    """The ACLs of a root. `authorizer` applies them; it is None if the root has no ACLs.

    The ACLs stay valid for `LEASE_S` after the last successful poll. They become unknown at once if
    the table was replaced, or if a poll fails while the root has no ACLs. Unknown ACLs neither
    allow nor deny a request: an unread ACL may deny it, and clients treat a denial as final.

    Raises DeltaError, OSError and Failure if the ACLs cannot be read at first.
    """

    def __init__(self, root: str, config: GroupCoordinatorConfig) -> None:
        self._watcher = AclWatcher(root)
        self._config = config
        # A separate thread: after queued client requests, a poll could end after `LEASE_S`.
        self._thread = ThreadPoolExecutor(1, "acls")
        self._polls = SingleFlight(self._poll)
        self._super_users = frozenset(super_users_of(config.super_users))
        # The start of the last successful poll. `_may_have_changed`: whether a later poll failed
        # before any ACLs were found, or because the table was replaced.
        self._known_at = monotonic()
        self._may_have_changed = False
        self.authorizer: Authorizer | None = None
        self.acls: tuple[AclBinding, ...] | None = None
        self._apply(self._watcher.poll())

    @property
    def is_known(self) -> bool:
        """Whether the ACLs that were read last are known to be in force."""
        return not self._may_have_changed and monotonic() - self._known_at <= LEASE_S

    def may_create_first(self, principal: str) -> bool:
        """Return whether the root has ACLs already, or the principal is a super user.

        Only a super user may create the first ACL, because all that no ACL allows is denied from
        then on.
        """
        return self.authorizer is not None or principal in self._super_users

    def check(self, principal: str) -> None:
        """Raise AclsUnknown if the ACLs are not known. A super user is never refused."""
        if self.is_known or principal in self._super_users:
            return
        seconds = monotonic() - self._known_at
        raise AclsUnknown(
            f"the ACLs could not be read for {seconds:.0f} s: only super users are authorized"
        )

    async def follow(self) -> None:
        """Poll for changes until cancelled."""
        await poll_forever(self.poll, _POLL_EVERY_S, log, "the ACLs")

    async def poll(self) -> None:
        """Poll for changes once. Raises DeltaError, OSError and Failure."""
        await self._polls.result()

    async def close(self) -> None:
        """Cancel the polls and end the thread."""
        await self._polls.close()
        self._thread.shutdown()

    async def _poll(self) -> None:
        began = monotonic()
        poll = self._watcher.poll
        try:
            acls = await asyncio.get_running_loop().run_in_executor(self._thread, poll)
        except STORE_FAILS:
            self._may_have_changed = self.acls is None or self._watcher.is_replaced
            raise
        self._known_at, self._may_have_changed = began, False
        self._apply(acls)

    def _apply(self, acls: tuple[AclBinding, ...] | None) -> None:
        if acls is None or acls is self.acls:
            return
        self.acls = acls
        config = self._config
        self.authorizer = Authorizer(
            acls, super_users_of(config.super_users), config.allow_everyone_if_no_acl_found
        )
