"""The ACLs that a gateway decides by, read beside the event loop.

Requests of a group are decided where the coordinator decides them, by the same ACLs and the same
`coordinator.authorization`. What a gateway answers by itself, it decides here: what topics there
are, their records, and changes of the catalogue and of the ACLs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from group_coordinator.coordinator.authorization import Authorizer, super_users_of
from group_coordinator.pipeline.gateway.looking import keep_looking
from group_coordinator.pipeline.tables.acls import AclWatcher

if TYPE_CHECKING:
    from group_coordinator.coordinator.config import GroupCoordinatorConfig
    from group_coordinator.schemas.acls import AclBinding

log = logging.getLogger(__name__)

# How often a change is looked for, s.
_LOOK_EVERY_S = 0.25


class Acls:
    """The ACLs of a root; `authorizer` decides by them, None allows everything to everybody.

    Raises DeltaError, OSError and Failure if they cannot be read: a gateway that does not know them
    must not begin to serve. Later, while they cannot be read, those that were read stay.
    """

    def __init__(self, root: str, config: GroupCoordinatorConfig) -> None:
        self._watcher = AclWatcher(root)
        self._config = config
        self._look = asyncio.Lock()
        self.authorizer: Authorizer | None = None
        self.acls: tuple[AclBinding, ...] | None = None
        self._take(self._watcher.poll())

    async def follow(self) -> None:
        """Look for changes until cancelled."""
        await keep_looking(
            self.look,
            _LOOK_EVERY_S,
            lambda error: log.warning("the ACLs cannot be read, and stay as they were: %s", error),
        )

    async def look(self) -> None:
        """Look for changes once. Raises DeltaError, OSError and Failure."""
        async with self._look:
            self._take(await asyncio.to_thread(self._watcher.poll))

    def _take(self, acls: tuple[AclBinding, ...] | None) -> None:
        if acls is None or acls is self.acls:
            return
        self.acls = acls
        config = self._config
        self.authorizer = Authorizer(
            acls, super_users_of(config.super_users), config.allow_everyone_if_no_acl_found
        )
