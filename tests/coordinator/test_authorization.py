"""ACLs: authorization as by Kafka's StandardAuthorizer, and the permissions of groups' requests."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.coordinator.authorization import Authorizer, super_users_of
from group_coordinator.coordinator.config import parse_config
from group_coordinator.coordinator.group.batch import BatchSettings
from group_coordinator.coordinator.group.machine import BatchMachine
from group_coordinator.schemas.acls import AclBinding, AclFilter, problem_of
from group_coordinator.schemas.apis import DECIDED
from group_coordinator.schemas.errors import ErrorCode
from group_coordinator.schemas.messages import Response
from tests.examples import examples

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"


def acl(
    who: str,
    operation: str,
    name: str,
    kind: str = "TOPIC",
    pattern: str = "LITERAL",
    permission: str = "ALLOW",
    host: str = "*",
) -> AclBinding:
    return AclBinding(kind, name, pattern, who, host, operation, permission)


def may(acls: list[AclBinding], operation: str, name: str, who: str = ALICE, **more: Any) -> bool:
    return Authorizer(acls, **more).allows(who, HOST, operation, "TOPIC", name)


def test_what_no_acl_allows_is_denied() -> None:
    assert not may([], "READ", "t")
    assert may([acl(ALICE, "READ", "t")], "READ", "t")
    assert not may([acl(ALICE, "READ", "t")], "READ", "t", BOB)
    assert not may([acl(ALICE, "READ", "t")], "WRITE", "t")
    assert not may([acl(ALICE, "READ", "t")], "READ", "u")
    assert not may([acl(ALICE, "READ", "t", kind="GROUP")], "READ", "t")
    assert not may([acl("Group:alice", "READ", "t")], "READ", "t")


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
    ],
)
def test_hosts_are_compared_as_addresses(host: str, client: str) -> None:
    denied = acl(ALICE, "READ", "t", host=host, permission="DENY")
    decide = Authorizer([acl(ALICE, "READ", "t"), denied])
    assert not decide.allows(ALICE, client, "READ", "TOPIC", "t")
    assert decide.allows(ALICE, "2001:db8::2", "READ", "TOPIC", "t")
    alone = Authorizer([acl(ALICE, "READ", "t", host=host)])
    assert alone.allows_any(ALICE, client, "READ", "TOPIC")
    assert not alone.allows_any(ALICE, "::2", "READ", "TOPIC")
    assert AclFilter(host=client).matches(denied)
    assert not AclFilter(host="::2").matches(denied)


NAMES = st.text("ab", min_size=1, max_size=3)
BINDINGS = st.builds(
    AclBinding,
    resource_type=st.sampled_from(["TOPIC", "GROUP"]),
    resource_name=NAMES | st.just("*"),
    pattern_type=st.sampled_from(["LITERAL", "PREFIXED"]),
    principal=st.sampled_from([ALICE, BOB, "User:*"]),
    host=st.sampled_from([HOST, "10.0.0.2", "*"]),
    operation=st.sampled_from(["READ", "WRITE", "DESCRIBE", "ALL", "ALTER_CONFIGS"]),
    permission=st.sampled_from(["ALLOW", "ALLOW", "DENY"]),
)
# Names that patterns could distinguish: `c` is in no ACL, and "*" as a prefix is a letter.
ALL_NAMES = ["".join(each) for n in range(1, 5) for each in itertools.product("abc*", repeat=n)]


def covers(one: AclBinding, name: str) -> bool:
    if one.pattern_type == "PREFIXED":
        return name.startswith(one.resource_name)
    return one.resource_name in (name, "*")


def decided(acls: list[AclBinding], operation: str, name: str) -> bool:
    """Return Kafka's decision for Alice and a topic (StandardAuthorizerData, KIP-11, KIP-290)."""
    implying = {"DESCRIBE": {"READ", "WRITE"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}
    mine = [
        each
        for each in acls
        if each.resource_type == "TOPIC"
        and covers(each, name)
        and each.principal in (ALICE, "User:*")
        and each.host in (HOST, "*")
    ]
    wanted = {operation, "ALL"}
    if any(each.permission == "DENY" and each.operation in wanted for each in mine):
        return False
    wanted |= implying.get(operation, set())
    return any(each.permission == "ALLOW" and each.operation in wanted for each in mine)


OPERATIONS = st.sampled_from(["READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"])


@examples(200)
@given(st.lists(BINDINGS, max_size=8), OPERATIONS, NAMES)
def test_whatever_acls_there_are_a_topic_is_decided_by_those_that_cover_it(
    acls: list[AclBinding], operation: str, name: str
) -> None:
    authorizer = Authorizer(acls)
    expected = decided(acls, operation, name)
    assert authorizer.allows(ALICE, HOST, operation, "TOPIC", name) is expected
    assert authorizer.allows(ALICE, HOST, operation, "TOPIC", name) is expected, "as remembered"
    anything = any(decided(acls, operation, each) for each in ALL_NAMES)
    assert authorizer.allows_any(ALICE, HOST, operation, "TOPIC") is anything


@given(BINDINGS, NAMES)
def test_a_filter_that_matches_finds_the_acls_that_cover_a_name(acl: AclBinding, name: str) -> None:
    found = AclFilter(resource_name=name, pattern_type="MATCH").matches(acl)
    assert found is covers(acl, name)
    exact = AclFilter(resource_name=name, pattern_type=acl.pattern_type).matches(acl)
    assert exact is (acl.resource_name == name)


def test_everybody_and_every_name_are_stars() -> None:
    assert may([acl("User:*", "READ", "t")], "READ", "t", BOB)
    assert may([acl(ALICE, "READ", "*")], "READ", "anything")
    assert not may([acl("*", "READ", "t")], "READ", "t"), "a star alone is no principal"


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("orders-", "orders-1", True),
        ("orders-", "orders-", True),
        ("orders-", "orders", False),
        ("orders-", "my-orders-1", False),
        ("o", "orders", True),
        ("*", "orders", False),
        ("*", "*s", True),
    ],
)
def test_a_prefix_is_no_pattern_with_stars(pattern: str, name: str, matches: bool) -> None:
    assert may([acl(ALICE, "READ", pattern, pattern="PREFIXED")], "READ", name) is matches


def test_a_host_is_the_client_s_or_a_star() -> None:
    assert may([acl(ALICE, "READ", "t", host=HOST)], "READ", "t")
    assert not may([acl(ALICE, "READ", "t", host="10.0.0.2")], "READ", "t")


@pytest.mark.parametrize(
    ("allowed", "implied"),
    [
        ("READ", {"DESCRIBE"}),
        ("WRITE", {"DESCRIBE"}),
        ("DELETE", {"DESCRIBE"}),
        ("ALTER", {"DESCRIBE"}),
        ("ALTER_CONFIGS", {"DESCRIBE_CONFIGS"}),
        ("DESCRIBE", set()),
        ("CREATE", set()),
    ],
)
def test_some_operations_imply_another_one(allowed: str, implied: set[str]) -> None:
    every = {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS"}
    acls = [acl(ALICE, allowed, "t")]
    assert {each for each in every if may(acls, each, "t")} == ({allowed} & every) | implied
    denials = [acl(ALICE, "ALL", "t"), acl(ALICE, allowed, "t", permission="DENY")]
    assert {each for each in every if not may(denials, each, "t")} == {allowed} & every


@pytest.mark.parametrize("pattern", [("t", "LITERAL"), ("*", "LITERAL"), ("t", "PREFIXED")])
def test_a_denial_wins_whatever_else_allows(pattern: tuple[str, str]) -> None:
    name, kind = pattern
    allowing = [acl(ALICE, "ALL", "t"), acl("User:*", "READ", "*"), acl(ALICE, "READ", "t")]
    denial = acl(ALICE, "READ", name, pattern=kind, permission="DENY")
    assert may(allowing, "READ", "t")
    assert not may([*allowing, denial], "READ", "t")
    assert may([*allowing, denial], "READ", "t", BOB)
    everything = acl("User:*", "ALL", name, pattern=kind, permission="DENY")
    assert not may([*allowing, everything], "READ", "t", BOB)


def test_super_users_may_do_everything() -> None:
    denial = [acl("User:*", "ALL", "*", permission="DENY")]
    assert super_users_of("User:alice; User:CN=x,OU=y;") == (ALICE, "User:CN=x,OU=y")
    assert may(denial, "WRITE", "t", super_users=[ALICE])
    assert not may(denial, "WRITE", "t", BOB, super_users=[ALICE])


def test_a_resource_without_acls_may_be_everybody_s() -> None:
    acls = [acl(BOB, "READ", "t"), acl(BOB, "READ", "pre", pattern="PREFIXED")]
    everyone = {"allow_everyone_if_no_acl_found": True}
    assert may(acls, "READ", "u", **everyone)
    assert not may(acls, "READ", "t", **everyone)
    assert not may(acls, "READ", "prefix", **everyone)


def test_a_decision_is_the_same_the_second_time() -> None:
    authorizer = Authorizer([acl(ALICE, "READ", "t")])
    answers = [authorizer.allows(who, HOST, "READ", "TOPIC", "t") for who in (ALICE, BOB) * 2]
    assert answers == [True, False] * 2


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(ALICE, "WRITE", "t")], True),
        ([acl(ALICE, "WRITE", "t", pattern="PREFIXED")], True),
        ([acl(ALICE, "READ", "t")], False),
        ([acl(BOB, "WRITE", "t")], False),
        ([acl(ALICE, "WRITE", "t"), acl(ALICE, "WRITE", "t", permission="DENY")], False),
        ([acl(ALICE, "WRITE", "t"), acl(ALICE, "ALL", "*", permission="DENY")], False),
        ([acl(ALICE, "WRITE", "*"), acl(ALICE, "ALL", "t", permission="DENY")], True),
        (
            [
                acl(ALICE, "WRITE", "team-a-", pattern="PREFIXED"),
                acl(ALICE, "WRITE", "team-", pattern="PREFIXED", permission="DENY"),
            ],
            False,
        ),
        (
            [
                acl(ALICE, "WRITE", "team-", pattern="PREFIXED"),
                acl(ALICE, "WRITE", "team-a-", pattern="PREFIXED", permission="DENY"),
            ],
            True,
        ),
    ],
)
def test_something_of_a_type_is_allowed_where_no_denial_covers_it(
    acls: list[AclBinding], allowed: bool
) -> None:
    assert Authorizer(acls).allows_any(ALICE, HOST, "WRITE", "TOPIC") is allowed


# --- filters and faults -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), {"t", "*", "pre"}),
        (AclFilter(resource_type="GROUP"), set()),
        (AclFilter(resource_name="t"), {"t"}),
        (AclFilter(resource_name="t", pattern_type="PREFIXED"), set()),
        (AclFilter(resource_name="prefix", pattern_type="MATCH"), {"*", "pre"}),
        (AclFilter(resource_name="t", pattern_type="MATCH"), {"t", "*"}),
        (AclFilter(pattern_type="LITERAL"), {"t", "*"}),
        (AclFilter(principal=BOB), {"pre"}),
        (AclFilter(operation="WRITE"), {"*"}),
        (AclFilter(permission="DENY"), {"*"}),
        (AclFilter(host="h"), {"t"}),
    ],
)
def test_a_filter_finds_acls(wanted: AclFilter, found: set[str]) -> None:
    acls = [
        acl(ALICE, "READ", "t", host="h"),
        acl(ALICE, "WRITE", "*", permission="DENY"),
        acl(BOB, "READ", "pre", pattern="PREFIXED"),
    ]
    assert {each.resource_name for each in acls if wanted.matches(each)} == found


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"resource_type": "ANY"}, "resource type"),
        ({"pattern_type": "MATCH"}, "pattern type"),
        ({"operation": "ANY"}, "operation type"),
        ({"permission": "UNKNOWN"}, "permission type"),
        ({"resource_name": ""}, "not be empty"),
        ({"resource_type": "CLUSTER"}, "kafka-cluster"),
        ({"principal": "alice"}, "no colon"),
        ({"principal": "User:"}, "principal"),
        ({"host": ""}, "host"),
    ],
)
def test_an_acl_that_cannot_be_is_named(fault: dict[str, str], message: str) -> None:
    good = acl(ALICE, "READ", "t")
    assert problem_of(good) is None
    assert message in str(problem_of(msgspec.structs.replace(good, **fault)))


# --- the coordinator ----------------------------------------------------------------------------

GROUP = "g"
BODIES: dict[str, Any] = {
    "find_coordinator": {},
    "join_group": {
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
    },
    "sync_group": {"generation_id": 1, "member_id": "m"},
    "heartbeat": {"generation_id": 1, "member_id": "m"},
    "leave_group": {"members": [{"member_id": "m"}]},
    "offset_commit": {
        "topics": [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 7}]}
            for name in ("mine", "theirs")
        ]
    },
    "offset_fetch": {
        "topics": [{"name": name, "partition_indexes": [0]} for name in ("mine", "theirs")]
    },
    "describe_groups": {},
    "delete_groups": {},
    "offset_delete": {"topics": [{"name": name, "partitions": [0]} for name in ("mine", "theirs")]},
}


class Deciding:
    """A coordinator with ACLs, and one group's state from request to request."""

    def __init__(self, *acls: AclBinding, super_users: str = "") -> None:
        config = parse_config({"super.users": super_users})
        self.machine = BatchMachine(BatchSettings(config=config, acls=acls))
        self.state: bytes | None = None
        self.asked = 0

    def ask(self, api: str, who: str | None = ALICE, body: Any = None, **more: Any) -> Response:
        self.asked += 1
        event = {
            "request_id": f"r{self.asked}",
            "group_id": GROUP,
            "api": api,
            "principal": who,
            "client_host": f"/{HOST}",
            api: BODIES[api] if body is None else body,
            **more,
        }
        text = msgspec.json.encode({k: v for k, v in event.items() if v is not None}).decode()
        result = self.machine.process(GROUP, self.state, [text], 1_000 * self.asked)
        self.state = result.state
        assert result.output is not None
        (response,) = result.output.responses
        return response


def group(operation: str, who: str = ALICE) -> AclBinding:
    return acl(who, operation, GROUP, kind="GROUP")


def codes(response: Response) -> list[int]:
    body = getattr(response, response.api)
    return [each.error_code for topic in body.topics for each in topic.partitions]


DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("api", DECIDED)
def test_each_api_needs_its_operation_on_the_group(api: str) -> None:
    needed = DECIDED[api].operation
    for allowed in ("READ", "WRITE", "DELETE", "DESCRIBE", "CREATE"):
        answer = Deciding(group(allowed)).ask(api)
        enough = allowed == needed or (needed == "DESCRIBE" and allowed != "CREATE")
        denied = answer.error_code == DENIED
        assert denied is not enough, allowed
    refused = Deciding().ask(api)
    assert refused.error_code == DENIED
    assert refused.error_message == f"User:alice has no {needed} on group 'g'"


def test_who_is_refused_leaves_no_group_behind() -> None:
    deciding = Deciding(group("DESCRIBE"))
    assert deciding.ask("join_group").error_code == DENIED
    assert deciding.ask("offset_commit").error_code == DENIED
    assert deciding.ask("describe_groups").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_who_says_no_name_is_anonymous() -> None:
    assert Deciding(group("READ")).ask("heartbeat", None).error_code == DENIED
    deciding = Deciding(group("READ", "User:ANONYMOUS"))
    assert deciding.ask("heartbeat", None).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_without_acls_everybody_may_and_with_none_left_nobody() -> None:
    free = BatchMachine(BatchSettings())
    assert free.coordinator.authorizer is None
    assert Deciding().ask("describe_groups").error_code == DENIED
    free_user = Deciding(super_users=ALICE).ask("describe_groups")
    assert free_user.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_commit_needs_to_read_each_topic() -> None:
    deciding = Deciding(group("READ"), acl(ALICE, "READ", "mine"))
    answer = deciding.ask("offset_commit")
    assert codes(answer) == [0, TOPIC_DENIED]
    none = Deciding(group("READ"), acl(ALICE, "DESCRIBE", "mine"))
    assert codes(none.ask("offset_commit")) == [TOPIC_DENIED, TOPIC_DENIED]
    assert none.ask("describe_groups").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_whether_a_denied_topic_exists_is_not_told() -> None:
    deciding = Deciding(group("READ"), acl(ALICE, "READ", "mine"))
    settings = msgspec.structs.replace(deciding.machine.settings)
    deciding.machine.set_settings(settings)
    deciding.machine.coordinator.topics = {"mine": 1}
    assert codes(deciding.ask("offset_commit")) == [0, TOPIC_DENIED]


def test_a_fetch_shows_the_offsets_of_topics_that_may_be_described() -> None:
    deciding = Deciding(
        group("READ", "User:*"), acl(ALICE, "DESCRIBE", "mine"), acl(BOB, "READ", "*")
    )
    assert codes(deciding.ask("offset_commit", BOB)) == [0, 0]
    named = deciding.ask("offset_fetch")
    assert codes(named) == [0, TOPIC_DENIED]
    assert named.offset_fetch is not None
    mine, theirs = (topic.partitions[0] for topic in named.offset_fetch.topics)
    assert (mine.committed_offset, theirs.committed_offset, theirs.metadata) == (7, -1, "")
    everything = deciding.ask("offset_fetch", body={"topics": None})
    assert everything.offset_fetch is not None
    assert [topic.name for topic in everything.offset_fetch.topics] == ["mine"]


def test_a_deletion_of_offsets_needs_to_read_each_topic() -> None:
    acls = (group("READ", BOB), acl(BOB, "READ", "*"), group("DELETE"))
    deciding = Deciding(*acls, acl(ALICE, "READ", "mine"))
    deciding.ask("offset_commit", BOB)
    assert codes(deciding.ask("offset_delete")) == [0, TOPIC_DENIED]
    assert codes(deciding.ask("offset_fetch", BOB)) == [0, 0]
    nothing = Deciding(*acls)
    answer = nothing.ask("offset_delete")
    assert (answer.error_code, codes(answer)) == (0, [TOPIC_DENIED, TOPIC_DENIED])


def test_a_host_is_that_of_the_request() -> None:
    deciding = Deciding(acl(ALICE, "READ", GROUP, kind="GROUP", host=HOST))
    assert deciding.ask("heartbeat").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert deciding.ask("heartbeat", client_host="/10.0.0.9").error_code == DENIED
