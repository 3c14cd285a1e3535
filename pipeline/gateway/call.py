"""One request of a client: whose it is, and how it is carried to the coordinator."""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any

from coordinator.authorization import host_of
from pipeline.gateway.room import Room
from schemas.messages import RequestEvent, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.gateway.acls import Acls
    from pipeline.gateway.brokers import Brokers
    from pipeline.gateway.coordinator_link import CoordinatorLink
    from pipeline.gateway.producing import Producing
    from pipeline.gateway.settings import GatewaySettings
    from pipeline.gateway.topics import Topics


class Services:
    """What the APIs of a gateway answer from. `brokers` is there once the gateway listens.

    `versions` are those that the gateway speaks of each API, by the API's key.
    """

    brokers: Brokers

    def __init__(
        self,
        root: str,
        link: CoordinatorLink,
        topics: Topics,
        producing: Producing,
        acls: Acls,
        cluster_id: str,
        versions: Mapping[int, range],
        settings: GatewaySettings,
    ) -> None:
        self.root = root
        self.link = link
        self.topics = topics
        self.producing = producing
        self.acls = acls
        self.cluster_id = cluster_id
        self.versions = versions
        self.settings = settings
        # The requests in flight that are counted.
        self.in_flight = Room(settings.queued_max_requests)
        self._prefix = f"gateway-{uuid.uuid4()}-"
        self._numbers = itertools.count()

    def new_request_id(self) -> str:
        """An id that no other request has, of this gateway or of another one."""
        return f"{self._prefix}{next(self._numbers)}"


class Call:
    """A request's header and sender; `services` is what it is answered from.

    `taken_in` is to be called once nothing that the client sends later can overtake the request.
    """

    __slots__ = ("client_host", "client_id", "principal", "services", "taken_in", "version")
    taken_in: Callable[[], None]

    def __init__(
        self,
        services: Services,
        version: int,
        client_id: str | None,
        client_host: str,
        principal: str,
    ) -> None:
        self.services = services
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
        self.principal = principal

    def may(self, operation: str, resource_type: str, name: str) -> bool:
        """Whether the client may do something to a resource (`coordinator.authorization`)."""
        authorizer = self.services.acls.authorizer
        return authorizer is None or authorizer.allows(
            self.principal, host_of(self.client_host), operation, resource_type, name
        )

    def may_any(self, operation: str, resource_type: str) -> bool:
        """Whether the client may do something to at least one resource of a type."""
        authorizer = self.services.acls.authorizer
        return authorizer is None or authorizer.allows_any(
            self.principal, host_of(self.client_host), operation, resource_type
        )

    async def ask(self, api: str, group_id: str, body: Any) -> Response:
        """Have the coordinator decide a request of a group; see `CoordinatorLink.answer`."""
        return await self.services.link.answer(self.event(api, group_id, body))

    def event(self, api: str, group_id: str, body: Any) -> RequestEvent:
        """A request of a group as the coordinator is asked it, under an id of its own."""
        return RequestEvent(
            request_id=self.services.new_request_id(),
            group_id=group_id,
            api=api,
            api_version=self.version,
            client_id=self.client_id,
            client_host=self.client_host,
            principal=self.principal,
            **{api: body},
        )
