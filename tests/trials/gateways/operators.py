"""Operators by way of a gateway: topics that are made anew or that grow, ACLs that change.

And somebody who may do nothing, and tries.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

from group_coordinator.schemas.acls import ANONYMOUS, AclOperation
from group_coordinator.schemas.errors import ErrorCode
from tests.trials.gateways.connection import Client, Lost
from tests.trials.gateways.promises import DELETED, DENIED, GROWN

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage

    from tests.trials.gateways.ledger import Ledger

_CREATE_VERSION = 4
_DELETE_VERSION = 3
_ACLS_VERSION = 2
_PARTITIONS_VERSION = 1
_TOPIC_TYPE, _LITERAL, _ALLOW = 2, 3, 3
_DENIALS = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


class TopicAdmin:
    """Deletes a topic and makes it anew, again and again; in the end it is there."""

    def __init__(
        self, client: Client, ledger: Ledger, topic: str, partitions: int, every_s: float
    ) -> None:
        self.client = client
        self.is_quiet = False
        self._ledger = ledger
        self._topic = topic
        self._partitions = partitions
        self._every_s = every_s

    async def run(self) -> None:
        """Change the topic until all is quiet."""
        chance = self.client.chance
        await self._create()
        while not self.is_quiet:
            await asyncio.sleep(chance.uniform(0.2, 1.8) * self._every_s)
            if not self.is_quiet:
                await self._delete()
                await asyncio.sleep(chance.uniform(0.0, 0.5))
                await self._create()
        # A deletion that nobody waits for any more may have been carried out.
        await self.client.calm.settled()
        await self._create()

    async def _create(self) -> None:
        request = creation(self._topic, self._partitions)
        wanted = {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        while await self._code_of(request, _CREATE_VERSION, CreateTopicsResponse) not in wanted:
            await asyncio.sleep(0.1)
        self.client.world.count("topics created")

    async def _delete(self) -> None:
        world = self.client.world
        before = list(self._ledger.logs.get(self._topic, ()))
        request = DeleteTopicsRequest(topic_names=[self._topic], timeout_ms=2_000)
        wanted = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        while await self._code_of(request, _DELETE_VERSION, DeleteTopicsResponse) not in wanted:
            await asyncio.sleep(0.1)
        world.count("topics deleted")
        world.check(DELETED)
        for log in before:
            if not log.is_deleted:
                world.violate(DELETED, f"{log.table} is not marked, though its topic was deleted")

    async def _code_of(self, request: ApiMessage, version: int, response: Any) -> ErrorCode | None:
        try:
            answer = await self.client.ask(request, version, response)
        except Lost:
            return None
        results = answer.topics if response is CreateTopicsResponse else answer.responses
        code = ErrorCode(results[0].error_code)
        self.client.world.count(f"topic changes: {code.name}")
        return code


class PartitionAdmin:
    """Gives a topic more partitions, one at a time, while others produce to it and read it."""

    def __init__(
        self, client: Client, ledger: Ledger, topic: str, most: int, every_s: float
    ) -> None:
        self.client = client
        self.is_quiet = False
        self._ledger = ledger
        self._topic = topic
        self._most = most
        self._every_s = every_s

    async def run(self) -> None:
        """Add partitions until all is quiet, or there are enough."""
        world = self.client.world
        while not self.is_quiet and self._ledger.counts[self._topic] < self._most:
            await asyncio.sleep(self.client.chance.uniform(0.2, 1.8) * self._every_s)
            wanted = self._ledger.counts[self._topic] + 1
            code = await self._grow(wanted)
            if code is ErrorCode.NONE:
                world.count("partitions added")
                world.check(GROWN)
                if self._ledger.counts[self._topic] < wanted:
                    world.violate(GROWN, f"{self._topic} was said to have {wanted} partitions")

    async def _grow(self, count: int) -> ErrorCode | None:
        of = CreatePartitionsRequest.CreatePartitionsTopic(
            name=self._topic, count=count, assignments=None
        )
        request = CreatePartitionsRequest(topics=[of], timeout_ms=2_000, validate_only=False)
        try:
            answer = await self.client.ask(request, _PARTITIONS_VERSION, CreatePartitionsResponse)
        except Lost:
            return None
        code = ErrorCode(answer.results[0].error_code)
        self.client.world.count(f"partition changes: {code.name}")
        return code


class AclAdmin:
    """Allows hosts what they do with a topic, and takes it back; in the end it is allowed."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        topic: str,
        users: list[tuple[str, str]],
        every_s: float,
    ) -> None:
        self.client = client
        self.is_quiet = False
        self._ledger = ledger
        self._topic = topic
        self._users = users
        self._every_s = every_s

    async def run(self) -> None:
        """Change the ACLs until all is quiet."""
        chance = self.client.chance
        for host, operation in self._users:
            await self._set(host, operation, True)
        while not self.is_quiet:
            await asyncio.sleep(chance.uniform(0.2, 1.8) * self._every_s)
            host, operation = chance.choice(self._users)
            allowed = self._ledger.acls.is_allowed(host, operation, self._topic)
            await self._set(host, operation, not allowed)
        # A change that nobody waits for any more may have been carried out.
        await self.client.calm.settled()
        for host, operation in self._users:
            await self._set(host, operation, True)

    async def _set(self, host: str, operation: str, allowed: bool) -> None:
        world, begun = self.client.world, self.client.world.now
        request, response = removal(host, operation, self._topic), DeleteAclsResponse
        if allowed:
            request, response = permission(host, operation, self._topic), CreateAclsResponse
        while not await self._is_done(request, response):
            await asyncio.sleep(0.1)
        world.count("ACLs changed")
        world.check(DENIED)
        if not self._ledger.acls.held(host, operation, self._topic, allowed, begun):
            world.violate(DENIED, f"that {host} may {operation}: {allowed} is told, and not so")

    async def _is_done(self, request: ApiMessage, response: Any) -> bool:
        try:
            answer = await self.client.ask(request, _ACLS_VERSION, response)
        except Lost:
            return False
        results = answer.results if response is CreateAclsResponse else answer.filter_results
        code = ErrorCode(results[0].error_code)
        self.client.world.count(f"ACL changes: {code.name}")
        return code is ErrorCode.NONE


class Intruder:
    """May do nothing: tries to change topics and ACLs. The ledger would see it done."""

    def __init__(self, client: Client, spared: str, intruded: str) -> None:
        self.client = client
        self.is_quiet = False
        self._requests = [
            (creation(intruded, 1), _CREATE_VERSION, CreateTopicsResponse),
            (
                DeleteTopicsRequest(topic_names=[spared], timeout_ms=2_000),
                _DELETE_VERSION,
                DeleteTopicsResponse,
            ),
            (permission(client.host, "ALL", intruded), _ACLS_VERSION, CreateAclsResponse),
        ]

    async def run(self) -> None:
        """Try until all is quiet."""
        world = self.client.world
        for number in count():
            if self.is_quiet:
                return
            request, version, response = self._requests[number % len(self._requests)]
            try:
                answer = await self.client.ask(request, version, response)
            except Lost:
                await asyncio.sleep(0.1)
                continue
            results = next(
                found
                for name in ("topics", "responses", "results")
                if (found := getattr(answer, name, None))
            )
            code = ErrorCode(results[0].error_code)
            world.check(DENIED)
            if code not in _DENIALS:
                world.violate(DENIED, f"somebody who may do nothing is answered {code.name}")
            await asyncio.sleep(self.client.chance.uniform(0.1, 1.0))


def creation(topic: str, partitions: int) -> ApiMessage:
    """A request for a new topic."""
    of = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[of], timeout_ms=2_000, validate_only=False)


def permission(host: str, operation: str, topic: str) -> ApiMessage:
    """A request for an ACL by which anonymous clients of a host may do something to a topic."""
    of = CreateAclsRequest.AclCreation(
        resource_type=_TOPIC_TYPE,
        resource_name=topic,
        resource_pattern_type=_LITERAL,
        principal=ANONYMOUS,
        host=host,
        operation=int(AclOperation[operation]),
        permission_type=_ALLOW,
    )
    return CreateAclsRequest(creations=[of])


def removal(host: str, operation: str, topic: str) -> ApiMessage:
    """A request to remove that ACL."""
    of = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=_TOPIC_TYPE,
        resource_name_filter=topic,
        pattern_type_filter=_LITERAL,
        principal_filter=ANONYMOUS,
        host_filter=host,
        operation=int(AclOperation[operation]),
        permission_type=_ALLOW,
    )
    return DeleteAclsRequest(filters=[of])
