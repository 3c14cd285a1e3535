"""ACLs on the wire: numbers for the names of `schemas.acls`, and filters."""

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
    """What a client is told of a failure: nothing of where the tables are. The log has the rest."""
    log.warning("the ACLs cannot be read or changed: %s", error)
    return "the ACLs cannot be read or changed at present"


def name_of(kind: type[IntEnum], code: int) -> str:
    """The name of a number; UNKNOWN for one that Kafka may have got since."""
    try:
        return kind(code).name
    except ValueError:
        return "UNKNOWN"


def code_of(kind: type[IntEnum], name: str) -> int:
    """The number of a name; that of UNKNOWN for one that another release wrote."""
    return int(kind.__members__.get(name, kind(0)))


def filter_of(asked: Any) -> AclFilter:
    """The filter of a DescribeAcls, or one of a DeleteAcls."""
    return AclFilter(
        resource_type=name_of(ResourceType, asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=name_of(PatternType, asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=name_of(AclOperation, asked.operation),
        permission=name_of(Permission, asked.permission_type),
    )
