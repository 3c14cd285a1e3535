"""Operators that change topics and ACLs by a gateway, and an intruder without permissions.

Topics are created again or grow, and ACLs are granted and revoked.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING

from group_coordinator.schemas.errors import ErrorCode
from tests.trials.gateways.changes import Change, creation, deletion, growth, permission, removal
from tests.trials.gateways.connection import Client, Lost
from tests.trials.gateways.promises import DELETED, DENIED, GROWN

if TYPE_CHECKING:
    from tests.trials.gateways.ledger import Ledger

_DENIALS = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
_AGAIN_S = 0.1


class Operator:
    """Changes something by way of a gateway, until all is quiet."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_quiet = False

    async def run(self) -> None:
        """Run the operator."""
        raise NotImplementedError

    async def pause(self, every_s: float) -> None:
        """Wait until the next change; the average interval is `every_s`."""
        await asyncio.sleep(self.client.chance.uniform(0.2, 1.8) * every_s)

    async def ask(self, change: Change) -> ErrorCode | None:
        """Ask once; return the code of the answer, None if it is lost."""
        try:
            answer = await self.client.ask(change.request, change.version, change.response)
        except Lost:
            return None
        code = ErrorCode(getattr(answer, change.results)[0].error_code)
        self.client.world.count(f"{type(change.request).__name__}: {code.name}")
        return code

    async def see_done(self, change: Change, done: ErrorCode = ErrorCode.NONE) -> None:
        """Repeat a change until it succeeds, or fails with `done` because it was made before."""
        while await self.ask(change) not in (ErrorCode.NONE, done):
            await asyncio.sleep(_AGAIN_S)


class TopicAdmin(Operator):
    """An operator that repeatedly deletes and creates a topic; at the end it exists."""

    def __init__(
        self, client: Client, ledger: Ledger, topic: str, partitions: int, every_s: float
    ) -> None:
        super().__init__(client)
        self._ledger = ledger
        self._topic = topic
        self._partitions = partitions
        self._every_s = every_s

    async def run(self) -> None:
        """Change the topic until all is quiet."""
        await self._create()
        while not self.is_quiet:
            await self.pause(self._every_s)
            if not self.is_quiet:
                await self._delete()
                await asyncio.sleep(self.client.chance.uniform(0.0, 0.5))
                await self._create()
        # A deletion may be executed after its client's timeout.
        await self.client.calm.settled()
        if self._ledger.logs[self._topic][-1].is_replaced:
            # As the message of the gateway advises.
            await self._delete()
        await self._create()

    async def _create(self) -> None:
        change = creation(self._topic, self._partitions)
        await self.see_done(change, ErrorCode.TOPIC_ALREADY_EXISTS)
        self.client.world.count("topics created")

    async def _delete(self) -> None:
        world = self.client.world
        before = list(self._ledger.logs.get(self._topic, ()))
        await self.see_done(deletion(self._topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        world.count("topics deleted")
        world.check(DELETED)
        for log in before:
            if not (log.is_deleted or log.is_replaced):
                world.violate(DELETED, f"{log.table} is not marked, though its topic was deleted")


class PartitionAdmin(Operator):
    """An operator that adds partitions to a topic while clients produce and consume."""

    def __init__(
        self, client: Client, ledger: Ledger, topic: str, most: int, every_s: float
    ) -> None:
        super().__init__(client)
        self._ledger = ledger
        self._topic = topic
        self._most = most
        self._every_s = every_s

    async def run(self) -> None:
        """Add partitions until all is quiet, or there are enough."""
        world = self.client.world
        while not self.is_quiet and self._ledger.counts[self._topic] < self._most:
            await self.pause(self._every_s)
            wanted = self._ledger.counts[self._topic] + 1
            if await self.ask(growth(self._topic, wanted)) is ErrorCode.NONE:
                world.count("partitions added")
                world.check(GROWN)
                if self._ledger.counts[self._topic] < wanted:
                    world.violate(GROWN, f"{self._topic} was said to have {wanted} partitions")


class AclAdmin(Operator):
    """An operator that grants and revokes permissions on a topic; at the end they are granted."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        topic: str,
        users: list[tuple[str, str]],
        every_s: float,
    ) -> None:
        super().__init__(client)
        self._ledger = ledger
        self._topic = topic
        self._users = users
        self._every_s = every_s

    async def run(self) -> None:
        """Change the ACLs until all is quiet."""
        for host, operation in self._users:
            await self._set(host, operation, True)
        while not self.is_quiet:
            await self.pause(self._every_s)
            host, operation = self.client.chance.choice(self._users)
            allowed = self._ledger.acls.is_allowed(host, operation, self._topic)
            await self._set(host, operation, not allowed)
        # A change may be executed after its client's timeout.
        await self.client.calm.settled()
        for host, operation in self._users:
            await self._set(host, operation, True)

    async def _set(self, host: str, operation: str, allowed: bool) -> None:
        world, begun = self.client.world, self.client.world.now
        await self.see_done((permission if allowed else removal)(host, operation, self._topic))
        world.count("ACLs changed")
        world.check(DENIED)
        if not self._ledger.acls.held(host, operation, self._topic, allowed, begun):
            world.violate(DENIED, f"that {host} may {operation}: {allowed} is told, and not so")


class Intruder(Operator):
    """May do nothing: tries to change topics and ACLs. The ledger would see it done."""

    def __init__(self, client: Client, spared: str, intruded: str) -> None:
        super().__init__(client)
        self._changes = [
            creation(intruded, 1),
            deletion(spared),
            permission(client.host, "ALL", intruded),
        ]

    async def run(self) -> None:
        """Try until all is quiet."""
        world = self.client.world
        for change in cycle(self._changes):
            if self.is_quiet:
                return
            code = await self.ask(change)
            if code is None:
                await asyncio.sleep(_AGAIN_S)
                continue
            world.check(DENIED)
            if code not in _DENIALS:
                world.violate(DENIED, f"somebody who may do nothing is answered {code.name}")
            await asyncio.sleep(self.client.chance.uniform(0.1, 1.0))
