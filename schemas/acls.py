"""Principals, resources and access control lists, by Kafka's names and numbers.

Source: Apache Kafka, org.apache.kafka.common.acl and .resource; KIP-11, KIP-290 (prefixes).
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv6Address

from msgspec import Struct

# The principal of a client that has not authenticated.
ANONYMOUS = "User:ANONYMOUS"
# Wildcards for an ACL's principal, host and literal resource name.
ANY_PRINCIPAL = "User:*"
ANY_HOST = "*"
ANY_NAME = "*"
# The only resource of the type CLUSTER.
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """The type of an ACL's resource; ANY only in filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL's name matches resources; ANY and MATCH only in filters.

    MATCH selects every ACL that applies to the named resource.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operation of an ACL; ANY only in filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies; ANY only in filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(Struct, frozen=True, order=True, array_like=True):
    """One ACL: it allows or denies an operation on a resource pattern to a principal and host.

    Types, operation and permission are member names of the enumerations in this module.
    """

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


def host_text(host: str) -> str:
    """Normalize a host, so that all spellings of an IPv6 address are equal; names are unchanged.

    A server that listens for both families sees an IPv4 client as IPv6: `::ffff:10.0.0.1`.
    """
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


class AclFilter(Struct, frozen=True):
    """A filter of ACLs; null and ANY match everything. Source: Kafka's AclBindingFilter."""

    resource_type: str = ResourceType.ANY.name
    resource_name: str | None = None
    pattern_type: str = PatternType.ANY.name
    principal: str | None = None
    host: str | None = None
    operation: str = AclOperation.ANY.name
    permission: str = Permission.ANY.name

    def matches(self, acl: AclBinding) -> bool:
        """Whether the filter matches the ACL."""
        return (
            self.resource_type in ("ANY", acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and (self.host is None or host_text(self.host) == host_text(acl.host))
            and self.operation in ("ANY", acl.operation)
            and self.permission in ("ANY", acl.permission)
        )

    def _matches_name(self, acl: AclBinding) -> bool:
        name = self.resource_name
        if self.pattern_type == "MATCH":
            if name is None:
                return True
            if acl.pattern_type == "PREFIXED":
                return name.startswith(acl.resource_name)
            return acl.resource_name in (name, ANY_NAME)
        return self.pattern_type in ("ANY", acl.pattern_type) and name in (None, acl.resource_name)


def problem_of(acl: AclBinding) -> str | None:
    """Return why the ACL is invalid, None if valid. Source: AclControlManager.validate."""
    if acl.resource_type not in _REAL_RESOURCES:
        return f"Invalid resource type {acl.resource_type}"
    if acl.pattern_type not in ("LITERAL", "PREFIXED"):
        return f"Invalid pattern type {acl.pattern_type}"
    if acl.operation not in _REAL_OPERATIONS:
        return f"Invalid operation type {acl.operation}"
    if acl.permission not in ("ALLOW", "DENY"):
        return f"Invalid permission type {acl.permission}"
    if not acl.resource_name:
        return "Resource name should not be empty"
    if acl.resource_type == "CLUSTER" and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return None if acl.host else "The host should not be empty"


_REAL_RESOURCES = frozenset(kind.name for kind in ResourceType if kind > ResourceType.ANY)
_REAL_OPERATIONS = frozenset(
    operation.name for operation in AclOperation if operation > AclOperation.ANY
)
