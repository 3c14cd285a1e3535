"""Authorization by Kafka's ACLs. Pure: the ACLs are arguments.

A DENY takes precedence over every ALLOW; an operation that no ACL allows is denied. ALLOW of Read,
Write, Delete or Alter implies Describe, and ALLOW of AlterConfigs implies DescribeConfigs; a DENY
implies nothing. Super users may perform every operation.

Source: Apache Kafka, StandardAuthorizerData; KIP-11, KIP-290.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from group_coordinator.schemas.acls import (
    ANONYMOUS,
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    AclBinding,
    host_text,
)
from group_coordinator.schemas.apis import DECIDED

if TYPE_CHECKING:
    from group_coordinator.schemas.messages import RequestEvent

TOPIC, GROUP, CLUSTER = "TOPIC", "GROUP", "CLUSTER"
READ, WRITE, CREATE, DELETE, ALTER = "READ", "WRITE", "CREATE", "DELETE", "ALTER"
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"
_ALL, _ALLOW, _DENY = "ALL", "ALLOW", "DENY"
_LITERAL, _PREFIXED = "LITERAL", "PREFIXED"

# Operation -> the operations that imply it when they are allowed.
_IMPLIED_BY = {
    DESCRIBE: (_ALL, DESCRIBE, READ, WRITE, DELETE, ALTER),
    DESCRIBE_CONFIGS: (_ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS),
}
# The most cached decisions; the cache is cleared when it is full.
_MOST_REMEMBERED = 100_000


class Authorizer:
    """Decisions on operations by a fixed set of ACLs; immutable except for a cache of decisions."""

    def __init__(
        self,
        acls: Iterable[AclBinding],
        super_users: Collection[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._without_acls = allow_everyone_if_no_acl_found
        self._by_type: dict[str, list[AclBinding]] = {}
        self._by_name: dict[tuple[str, str, str], list[AclBinding]] = {}
        self._prefix_lengths: dict[str, set[int]] = {}
        for given in acls:
            acl = structs.replace(given, host=host_text(given.host))
            name = acl.resource_name
            self._by_type.setdefault(acl.resource_type, []).append(acl)
            self._by_name.setdefault((acl.resource_type, acl.pattern_type, name), []).append(acl)
            if acl.pattern_type == _PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, set()).add(len(name))
        self._remembered: dict[tuple[str, str, str, str, str], bool] = {}

    def allows(
        self, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        """Whether a principal may perform an operation on a resource from a host."""
        question = (principal, host, operation, resource_type, name)
        answer = self._remembered.get(question)
        if answer is None:
            answer = self._decide(*question)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[question] = answer
        return answer

    def allows_any(self, principal: str, host: str, operation: str, resource_type: str) -> bool:
        """Whether the principal may perform an operation on some resource of a type.

        The resource need not exist. Source: Authorizer.authorizeByResourceType.
        """
        if principal in self._super_users:
            return True
        if self._without_acls and resource_type not in self._by_type:
            return True
        host = host_text(host)
        mine = [
            acl
            for acl in self._by_type.get(resource_type, ())
            if _concerns(acl, principal, host, operation)
        ]
        denied = [acl for acl in mine if acl.permission == _DENY]
        return any(
            not any(_covers(denial, acl) for denial in denied)
            for acl in mine
            if acl.permission == _ALLOW
        )

    def allows_event(self, event: RequestEvent) -> bool:
        """Whether the sender of a request may perform its operation on its group."""
        return self.allows(*_sender(event), DECIDED[event.api].operation, GROUP, event.group_id)

    def allows_topic(self, event: RequestEvent, operation: str, topic: str) -> bool:
        """Whether the sender of a request may perform an operation on a topic."""
        return self.allows(*_sender(event), operation, TOPIC, topic)

    def _decide(
        self, principal: str, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        found = allowed = False
        host = host_text(host)
        for acl in self._about(resource_type, name):
            found = True
            if _concerns(acl, principal, host, operation):
                if acl.permission == _DENY:
                    return False
                allowed = True
        return allowed or (self._without_acls and not found)

    def _about(self, resource_type: str, name: str) -> Iterator[AclBinding]:
        by_name = self._by_name
        yield from by_name.get((resource_type, _LITERAL, name), ())
        if name != ANY_NAME:
            yield from by_name.get((resource_type, _LITERAL, ANY_NAME), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from by_name.get((resource_type, _PREFIXED, name[:length]), ())


def _concerns(acl: AclBinding, principal: str, host: str, operation: str) -> bool:
    if acl.principal not in (principal, ANY_PRINCIPAL) or acl.host not in (host, ANY_HOST):
        return False
    if acl.permission == _ALLOW:
        return acl.operation in _IMPLIED_BY.get(operation, (_ALL, operation))
    return acl.operation in (_ALL, operation)


def _covers(acl: AclBinding, other: AclBinding) -> bool:
    """Whether this ACL's pattern matches every name that the other's pattern matches."""
    if acl.pattern_type == _PREFIXED:
        return other.resource_name.startswith(acl.resource_name) and (
            other.pattern_type == _PREFIXED or other.resource_name != ANY_NAME
        )
    if acl.resource_name == ANY_NAME:
        return True
    return other.pattern_type == _LITERAL and other.resource_name == acl.resource_name


def denial_of(event: RequestEvent) -> str:
    """Return the error message of a denied request, with its principal, operation and group."""
    needed = DECIDED[event.api].operation
    return f"{event.principal or ANONYMOUS} has no {needed} on group {event.group_id!r}"


def _sender(event: RequestEvent) -> tuple[str, str]:
    return event.principal or ANONYMOUS, host_of(event.client_host)


def host_of(client_host: str | None) -> str:
    """Return a client's host as ACLs write it: without Kafka's slash before the address."""
    return "" if client_host is None else client_host.removeprefix("/")


def super_users_of(setting: str) -> tuple[str, ...]:
    """Split Kafka's setting super.users, principals separated by semicolons."""
    return tuple(user.strip() for user in setting.split(";") if user.strip())
