"""ACLs on the wire: the codes of the names in `schemas.acls`, and filters."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from group_coordinator.schemas.acls import (
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from enum import IntEnum

log = logging.getLogger(__name__)


def told(error: Exception) -> str:
    """Log a failure, and return the message for the client, which does not name the tables."""
    log.warning("the ACLs cannot be read or changed: %s", error)
    return "the ACLs cannot be read or changed at present"


def name_of(kind: type[IntEnum], code: int) -> str:
    """Return the name of a code; UNKNOWN for a code that a later Kafka may have added."""
    try:
        return kind(code).name
    except ValueError:
        return "UNKNOWN"


def code_of(kind: type[IntEnum], name: str) -> int:
    """Return the code of a name; that of UNKNOWN for a name that another release wrote."""
    return int(kind.__members__.get(name, kind(0)))


def filter_of(asked: Any) -> AclFilter:
    """Return the filter of a DescribeAcls request, or of one entry of a DeleteAcls request."""
    return AclFilter(
        resource_type=name_of(ResourceType, asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=name_of(PatternType, asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=name_of(AclOperation, asked.operation),
        permission=name_of(Permission, asked.permission_type),
    )
