"""What ACLs allow to unmodified clients through the gateway, and what those learn that may not."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from deltalake import write_deltalake
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as Kind
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from kafka.protocol.admin.groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse
from typer.testing import CliRunner

from group_coordinator.coordinator.authorization import Authorizer
from group_coordinator.coordinator.config import parse_config
from group_coordinator.pipeline.cli.acls import acls_app
from group_coordinator.pipeline.gateway.brokers import Broker
from group_coordinator.pipeline.gateway.users import add_user, new_credential
from group_coordinator.pipeline.gateway_settings import GatewaySettings
from group_coordinator.pipeline.tables.acl_table import read_acls
from group_coordinator.pipeline.tables.store import read_table
from group_coordinator.pipeline.tables.topic_catalogue import create_topic
from group_coordinator.pipeline.topics import create_table_topic
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import HeartbeatRequest, RequestEvent
from group_coordinator.schemas.tables import REQUESTS
from tests.pipeline.asking import ask
from tests.pipeline.gateway.running import coordinator, gateway
from tests.pipeline.gateway.security.test_clients import authenticate, handshake
from tests.pipeline.gateway.test_server import Client, connected
from tests.pipeline.gateway.test_tables import rows

ADMIN, ALICE, MALLORY = "admin", "alice", "mallory"
# What alice may, in the words of kafka-acls.sh; mallory may nothing.
ALLOWED = (
    "--allow-principal User:alice --consumer --topic orders --group billing",
    "--allow-principal User:alice --operation Create --topic al --resource-pattern-type prefixed",
    "--allow-principal User:alice --operation Describe --topic al --resource-pattern-type prefixed",
    "--allow-principal User:alice --operation Describe --topic wished",
    "--allow-principal User:mallory --operation Describe --topic seen",
)


def acls(root: str, verb: str, *words: str) -> str:
    done = CliRunner().invoke(acls_app, [verb, *words, "--root", root])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def root_of(empty_root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("acls"))
    shutil.copytree(empty_root, root, dirs_exist_ok=True)
    table = str(tmp_path_factory.mktemp("tables") / "orders")
    write_deltalake(table, rows(0, 30))
    create_table_topic(root, "orders", 2, table, key="name")
    for name in ("secret", "seen"):
        create_topic(root, name, 1)
    for line in ALLOWED:
        acls(root, "add", "--yes", *line.split())
    return root


@pytest.fixture(scope="module")
def broker(root_of: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    users = tmp_path_factory.mktemp("users") / "users"
    add_user(
        users, [new_credential(name, name, "SCRAM-SHA-256") for name in (ADMIN, ALICE, MALLORY)]
    )
    settings = GatewaySettings(users_file=str(users), auto_create_topics_enable=True)
    group = parse_config({"super.users": "User:admin"})
    with coordinator(root_of), gateway(root_of, settings=settings, group=group) as running:
        yield running


def as_user(broker: Broker, name: str, **more: Any) -> dict[str, Any]:
    settings = {each.replace("_", "."): value for each, value in more.items()}
    return {
        "bootstrap.servers": f"{broker.host}:{broker.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": name,
        **settings,
    }


def code_of(future: Any) -> int:
    try:
        future.result(30)
    except confluent_kafka.KafkaException as error:
        return int(error.args[0].code())
    return 0


@pytest.mark.slow
def test_who_may_read_consumes(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        as_user(broker, ALICE, group_id="billing", auto_offset_reset="earliest")
    )
    consumer.subscribe(["orders"])
    found = 0
    while found < 30:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found += 1
    consumer.commit(asynchronous=False)
    consumer.close()


def test_who_may_not_read_a_group_cannot_join_it(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(as_user(broker, MALLORY, group_id="billing"))
    consumer.subscribe(["seen"])
    message = consumer.poll(30)
    assert message is not None
    assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


@contextmanager
def raw(broker: Broker, name: str) -> Iterator[Client]:
    """A connection that sends what no client library would: whatever Metadata said."""
    with connected(broker) as client:
        assert handshake(client).error_code == 0
        assert authenticate(client, f"\0{name}\0{name}".encode()).error_code == 0
        yield client


@pytest.mark.parametrize("topic", ["orders", "secret", "there-is-no-such-topic"])
def test_neither_offsets_nor_records_are_for_who_may_not_have_them(
    broker: Broker, topic: str
) -> None:
    offset = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1
    )
    offsets = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[offset])],
    )
    with raw(broker, MALLORY) as client:
        listed = client.ask(offsets, ListOffsetsResponse, 7).topics[0].partitions[0]
        fetched = client.ask(fetch(topic), FetchResponse, 11).responses[0].partitions[0]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (listed.error_code, listed.offset, listed.timestamp) == (denied, -1, -1)
    assert (fetched.error_code, fetched.high_watermark, fetched.log_start_offset) == (
        denied,
        -1,
        -1,
    )
    assert not fetched.records


def test_to_describe_a_topic_is_not_to_read_it(broker: Broker) -> None:
    with raw(broker, MALLORY) as client:
        fetched = client.ask(fetch("seen"), FetchResponse, 11).responses[0].partitions[0]
    assert fetched.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    consumer = confluent_kafka.Consumer(as_user(broker, MALLORY, group_id="x"))
    seen = confluent_kafka.TopicPartition("seen", 0)
    assert consumer.get_watermark_offsets(seen, timeout=30) == (0, 0)
    consumer.close()


def fetch(topic: str) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        log_start_offset=-1,
        partition_max_bytes=1_000_000,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=30_000,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )


def test_a_commit_is_denied_topic_by_topic(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(as_user(broker, ALICE, group_id="billing"))
    secret = confluent_kafka.TopicPartition("secret", 0, 1)
    with pytest.raises(confluent_kafka.KafkaException) as failed:
        consumer.commit(offsets=[secret], asynchronous=False)
    assert failed.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    (found,) = consumer.committed([secret], timeout=30)
    assert found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_what_may_not_be_described_is_not_listed(broker: Broker) -> None:
    listed = {
        name: set(AdminClient(as_user(broker, name)).list_topics(timeout=30).topics)
        for name in (ADMIN, ALICE, MALLORY)
    }
    assert listed == {
        ADMIN: {"orders", "secret", "seen"},
        ALICE: {"orders"},
        MALLORY: {"seen"},
    }


@pytest.mark.parametrize("topic", ["secret", "there-is-no-such-topic"])
def test_whether_a_topic_exists_is_not_told(broker: Broker, topic: str) -> None:
    found = AdminClient(as_user(broker, MALLORY)).list_topics(topic, timeout=30).topics[topic]
    assert found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert not found.partitions


def test_groups_are_listed_and_described_to_who_may_describe_them(broker: Broker) -> None:
    consumer = confluent_kafka.Consumer(as_user(broker, ALICE, group_id="billing"))
    # The group's beginning: whoever consumes as the group reads everything all the same.
    offset = confluent_kafka.TopicPartition("orders", 0, 0)
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()
    assert groups(broker, ADMIN) >= groups(broker, ALICE) == {"billing"}
    assert groups(broker, MALLORY) == set()
    mallory, alice = (AdminClient(as_user(broker, name)) for name in (MALLORY, ALICE))
    described = mallory.describe_consumer_groups(["billing"])
    assert code_of(described["billing"]) == KafkaError.GROUP_AUTHORIZATION_FAILED
    deleted = alice.delete_consumer_groups(["billing"])
    assert code_of(deleted["billing"]) == KafkaError.GROUP_AUTHORIZATION_FAILED


def groups(broker: Broker, name: str) -> set[str]:
    admin = AdminClient(as_user(broker, name))
    found = admin.list_consumer_groups().result(30)
    assert not found.errors
    return {each.group_id for each in found.valid}


def test_changes_of_the_catalogue_need_their_operations(broker: Broker) -> None:
    admin = AdminClient(as_user(broker, ALICE))
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    made = admin.create_topics([NewTopic("bobs", 1, 1), NewTopic("alice-1", 1, 1)])
    assert {name: code_of(future) for name, future in made.items()} == {
        "bobs": denied,
        "alice-1": 0,
    }
    for name in ("alice-1", "secret", "there-is-no-such-topic"):
        assert code_of(admin.delete_topics([name])[name]) == denied
        assert code_of(admin.create_partitions([NewPartitions(name, 9)])[name]) == denied
    all_powerful = AdminClient(as_user(broker, ADMIN))
    assert code_of(all_powerful.delete_topics(["alice-1"])["alice-1"]) == 0


def test_a_change_is_denied_in_words_of_kafka(broker: Broker) -> None:
    """kafka-topics.sh prints them; no word stands for the sentence that clients have themselves."""
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="seen", count=9, assignments=None)
    made = CreateTopicsRequest.CreatableTopic(
        name="bobs", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    deleted = DeleteTopicsRequest.DeleteTopicState(name="seen", topic_id=UUID(int=0))
    more = {"timeout_ms": 30_000}
    with raw(broker, MALLORY) as client:
        requests: list[tuple[Any, Any, int, str]] = [
            (CreatePartitionsRequest, CreatePartitionsResponse, 3, "results"),
            (CreateTopicsRequest, CreateTopicsResponse, 7, "topics"),
            (DeleteTopicsRequest, DeleteTopicsResponse, 6, "responses"),
        ]
        words = []
        for (asked, told, version, field), topic in zip(
            requests, (grown, made, deleted), strict=True
        ):
            answer = client.ask(asked(topics=[topic], **more), told, version)
            (result,) = getattr(answer, field)
            words.append(result.error_message)
    assert words == [None, "Authorization failed.", "Topic authorization failed."]


def test_a_topic_is_created_by_being_asked_for_only_for_who_may_create_it(broker: Broker) -> None:
    names = ("al-asked", "wished", "not-even-described")
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=True,
    )
    with raw(broker, ALICE) as client:
        answer = client.ask(request, MetadataResponse, 8)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [each.error_code for each in answer.topics] == [0, denied, denied]
    admin = AdminClient(as_user(broker, ADMIN))
    assert {*names} & admin.list_topics(timeout=30).topics.keys() == {"al-asked"}
    assert code_of(admin.delete_topics(["al-asked"])["al-asked"]) == 0


def test_an_idempotent_producer_needs_to_write_something(broker: Broker) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
    )
    codes = {}
    for name in (MALLORY, ADMIN):
        with raw(broker, name) as client:
            codes[name] = client.ask(request, InitProducerIdResponse, 4).error_code
    assert codes == {MALLORY: ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ADMIN: 0}


@pytest.mark.parametrize(("kind", "name"), [(2, "orders"), (2, "there-is-none"), (4, "0")])
def test_configs_are_for_who_may_describe_them(broker: Broker, kind: int, name: str) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=False, include_documentation=False
    )
    with raw(broker, MALLORY) as client:
        (found,) = client.ask(request, DescribeConfigsResponse, 4).results
    topic, cluster = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (found.error_code, found.configs) == (topic if kind == 2 else cluster, [])


def test_to_produce_needs_to_write(broker: Broker) -> None:
    codes: list[int] = []
    producer = confluent_kafka.Producer(as_user(broker, MALLORY))
    producer.produce("seen", b"x", on_delivery=lambda error, _: codes.append(error.code()))
    producer.flush(30)
    assert codes == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_groups_that_may_not_be_named_leave_no_rows(broker: Broker, root_of: str) -> None:
    names = [f"guessed-{number}" for number in range(500)]
    request = DescribeGroupsRequest(groups=names, include_authorized_operations=False)
    with raw(broker, MALLORY) as client:
        found = client.ask(request, DescribeGroupsResponse, 5).groups
    denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert [(each.group_id, each.error_code) for each in found] == [
        (name, denied) for name in names
    ]
    ask(root_of, RequestEvent("after", "billing", "heartbeat", heartbeat=HeartbeatRequest(1, "m")))
    rows = read_table(root_of, REQUESTS).column("group_id").to_pylist()
    assert "billing" in rows
    assert not {*names} & {*rows}


# --- ACLs, by clients ---------------------------------------------------------------------------


BINDING = AclBinding(
    ResourceType.GROUP,
    "nightly-",
    ResourcePatternType.PREFIXED,
    "User:eve",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
ALL_OF_EVE = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    "User:eve",
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def test_acls_are_created_described_and_deleted_by_librdkafka(broker: Broker, root_of: str) -> None:
    admin = AdminClient(as_user(broker, ADMIN))
    assert code_of(admin.create_acls([BINDING])[BINDING]) == 0
    assert admin.describe_acls(ALL_OF_EVE).result(30) == [BINDING]
    assert "User:eve" in {each.principal for each in read_acls(root_of) or ()}
    assert admin.delete_acls([ALL_OF_EVE])[ALL_OF_EVE].result(30) == [BINDING]
    assert admin.describe_acls(ALL_OF_EVE).result(30) == []


def test_kafka_python_sees_the_same_acls(broker: Broker, kafka_python: ExitStack) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=f"{broker.host}:{broker.port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=ADMIN,
        sasl_plain_password=ADMIN,
    )
    kafka_python.enter_context(closing(admin))
    wanted = ACLFilter(
        principal="User:mallory",
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(Kind.ANY, None, ACLResourcePatternType.ANY),
    )
    found, _ = admin.describe_acls(wanted)
    assert [each.resource_pattern.resource_name for each in found] == ["seen"]


def test_who_may_not_alter_the_cluster_changes_no_acls(broker: Broker) -> None:
    admin = AdminClient(as_user(broker, ALICE))
    denied = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert code_of(admin.create_acls([BINDING])[BINDING]) == denied
    assert code_of(admin.delete_acls([ALL_OF_EVE])[ALL_OF_EVE]) == denied


def test_who_may_not_describe_the_cluster_is_told_of_no_acls(broker: Broker) -> None:
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    with raw(broker, ALICE) as client:
        answer = client.ask(everything, DescribeAclsResponse, 3)
    assert (answer.error_code, answer.resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_an_event_that_was_written_without_the_gateway_obeys_too(
    broker: Broker, root_of: str
) -> None:
    def heartbeat(principal: str | None) -> int:
        body = HeartbeatRequest(1, "nobody")
        event = RequestEvent(
            f"direct-{principal}", "billing", "heartbeat", principal=principal, heartbeat=body
        )
        return ask(root_of, event).error_code

    assert heartbeat(None) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert heartbeat("User:mallory") == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert heartbeat("User:alice") == ErrorCode.UNKNOWN_MEMBER_ID


# --- the command --------------------------------------------------------------------------------


def test_acls_are_added_listed_and_removed_in_kafka_s_words(root: str) -> None:
    assert "there are no ACLs" in acls(root, "list")
    acls(root, "add", "--yes", *ALLOWED[0].split())
    acls(root, "add", *["--deny-principal", "User:*", "--deny-host", "10.0.0.9", "--cluster"])
    assert acls(root, "list") == (
        "Current ACLs for resource `ResourcePattern(resourceType=CLUSTER, name=kafka-cluster, "
        "patternType=LITERAL)`:\n"
        " \t(principal=User:*, host=10.0.0.9, operation=ALL, permissionType=DENY)\n\n"
        "Current ACLs for resource `ResourcePattern(resourceType=GROUP, name=billing, "
        "patternType=LITERAL)`:\n"
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)\n\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, "
        "patternType=LITERAL)`:\n"
        " \t(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW)\n"
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)\n\n"
    )
    assert '"operation":"READ"' in acls(root, "list", "--group", "billing", "--format", "json")
    acls(root, "remove", *f"{ALLOWED[0]} --force".split())
    assert "alice" not in acls(root, "list")
    acls(root, "remove", "--cluster", "--force")
    assert read_acls(root) == ()


def test_before_the_first_acl_it_is_asked_and_said_how_to_go_back(root: str) -> None:
    add = ["add", *ALLOWED[0].split(), "--root", root]
    asked = CliRunner().invoke(acls_app, add, "n\n")
    assert (asked.exit_code, read_acls(root)) == (1, None)
    assert "denied to all users but super.users, also after all ACLs are removed" in asked.stderr
    assert CliRunner().invoke(acls_app, add, "").exit_code == 1, "nobody is there to be asked"
    assert CliRunner().invoke(acls_app, add, "y\n").exit_code == 0
    assert len(read_acls(root) or ()) == 3
    assert acls(root, "add", "--allow-principal", "User:bob", "--topic", "t").count("denied") == 0
    words = shlex.split(asked.stderr.partition("group-coordinator acls ")[2].splitlines()[0])
    opened = CliRunner().invoke(acls_app, words)
    assert opened.exit_code == 0, opened.output
    may = Authorizer(read_acls(root) or ()).allows
    for kind, name in (("TOPIC", "x"), ("GROUP", "y"), ("CLUSTER", "kafka-cluster")):
        assert may("User:anybody", "::1", "ALTER", kind, name)


@pytest.mark.parametrize("super_users", ["", "User:ANONYMOUS"])
def test_the_first_acl_is_made_by_a_super_user(root: str, super_users: str) -> None:
    """Whoever may do everything while there is none would lock all others out."""
    group = parse_config({"super.users": super_users})
    with coordinator(root), gateway(root, group=group) as running:
        admin = AdminClient({"bootstrap.servers": f"{running.host}:{running.port}"})
        code = code_of(admin.create_acls([BINDING])[BINDING])
    assert code == (0 if super_users else KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    assert (read_acls(root) is None) == (not super_users)


@pytest.mark.parametrize(
    "words",
    [
        "--topic t --operation Read",
        "--allow-principal User:a --operation Read",
        "--allow-principal User:a --topic t --operation Reed",
    ],
)
def test_an_acl_that_says_too_little_is_not_added(root: str, words: str) -> None:
    assert CliRunner().invoke(acls_app, ["add", *words.split(), "--root", root]).exit_code == 2
    assert read_acls(root) is None
