"""The brokers that Kafka's tools are run against, a real one and a gateway, with the same topics.

`orders` has 10, 5 and no records in its three partitions, `returns` has 3 in its one. The records
of a partition are a second apart from `FIRST_MS` on. With `secure` a broker serves USERS only, and
each may what ACLs allow; `ADMIN` may everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.gateway.users import add_user, new_credential
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.topics import create_table_topic
from tests.pipeline.gateway.running import coordinator, gateway
from tests.support.broker import HOST, broker

FIRST_MS = 1_700_000_000_000
COUNTS = {"orders": (10, 5, 0), "returns": (3,)}
ADMIN = "admin"
# Each one's password is the name.
USERS = (ADMIN, "alice", "mallory")
_SUPER_USERS = f"User:{ADMIN}"
# Records of that age would be deleted by the first check of the retention.
_SETTINGS = {"log.initial.task.delay.ms": 86_400_000}
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SECURE = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{_LOGIN_MODULE} username="{ADMIN}" password="{ADMIN}" '
        + " ".join(f'user_{name}="{name}"' for name in USERS)
        + ";"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller's listener knows no users.
    "super.users": f"{_SUPER_USERS};User:ANONYMOUS",
}


def login(name: str, password: str) -> str:
    """The properties by which a Java client is a user of a secure broker."""
    return (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={_LOGIN_MODULE} username="{name}" password="{password}";\n'
    )


@contextmanager
def real(libs: Path, secure: bool = False) -> Iterator[str]:
    """A real broker's address, while the block runs."""
    with broker(libs, {**_SETTINGS, **(_SECURE if secure else {})}) as running:
        address = f"{HOST}:{running.port}"
        client: dict[str, str] = {"bootstrap_servers": address}
        if secure:
            client |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": ADMIN,
                "sasl_plain_password": ADMIN,
            }
        admin = KafkaAdminClient(**client)
        admin.create_topics([NewTopic(name, len(counts), 1) for name, counts in COUNTS.items()])
        admin.close()
        producer = KafkaProducer(**client)
        for name, counts in COUNTS.items():
            for number, count in enumerate(counts):
                for each in range(count):
                    at = FIRST_MS + 1_000 * each
                    value = str(each).encode()
                    producer.send(name, value, partition=number, timestamp_ms=at)
        producer.close()
        yield address


@contextmanager
def ours(root: str, folder: Path, secure: bool = False) -> Iterator[str]:
    """The address of a gateway of an empty root, while the block runs; each topic is a table."""
    for name, counts in COUNTS.items():
        rows = [(number, each) for number, count in enumerate(counts) for each in range(count)]
        columns = {
            "partition": [number for number, _ in rows],
            "at": [FIRST_MS + 1_000 * each for _, each in rows],
            "value": [str(each) for _, each in rows],
        }
        table = str(folder / name)
        write_deltalake(table, pa.table(columns))
        create_table_topic(
            root,
            name,
            len(counts),
            table,
            partition="partition",
            timestamp="at",
            value="value",
        )
    settings = GatewaySettings()
    if secure:
        users = folder / "users"
        add_user(users, [new_credential(name, name, "SCRAM-SHA-256") for name in USERS])
        settings = GatewaySettings(users_file=str(users))
    group = parse_config({"super.users": _SUPER_USERS})
    with (
        coordinator(root, super_users=_SUPER_USERS),
        gateway(root, settings=settings, group=group) as running,
    ):
        yield f"{running.host}:{running.port}"
