"""Principals, resources and access control lists, by Kafka's names.

Source: Apache Kafka, org.apache.kafka.common.acl and .resource.
"""

from __future__ import annotations

# Who asks without having said who it is.
ANONYMOUS = "User:ANONYMOUS"
