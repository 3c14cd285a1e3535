"""What an administrator asks of groups and topics by Kafka's tools, whatever broker answers.

The same stories are told to a gateway and to a real broker; both have the topics of `brokers`.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.pipeline.gateway.kafka_tools.brokers import ADMIN, COUNTS, FIRST_MS, USERS, login
from tests.pipeline.gateway.kafka_tools.recording import FOLDER, Printed, Told, given, plain
from tests.pipeline.gateway.kafka_tools.running import Tools
from tests.waiting import wait_until

ORDERS = [TopicPartition("orders", number) for number in range(len(COUNTS["orders"]))]
_WAIT_S = 60
RETURNS = [TopicPartition("returns", 0)]


class Teller:
    """Asks one broker, and keeps what was printed; `folder` is for files of the tools."""

    def __init__(self, tools: Tools, address: str, folder: Path) -> None:
        self._tools, self._folder = tools, folder
        self.address = address
        self.told: list[Told] = []

    def run(self, script: str, *words: str, reads: str = "") -> str:
        """Run a script with arguments, and with what it is to read; what it printed."""
        if reads:
            self.given(f"the next reads {reads!r}")
        actual = (word.replace(FOLDER, str(self._folder)) for word in words)
        status, out, err = self._tools.run(script, *actual, reads=reads)
        printed = Printed(status, plain(out, self._folder), plain(err, self._folder))
        kept = tuple(plain(word, self._folder) for word in words)
        self.told.append(Told(script, kept, printed))
        return out

    def ask(self, script: str, line: str) -> str:
        """Run a script with the words of a line as arguments; what it printed."""
        return self.run(script, "--bootstrap-server", self.address, *shlex.split(line))

    def groups(self, *lines: str) -> None:
        """Run kafka-consumer-groups.sh once for each line."""
        for line in lines:
            self.ask("kafka-consumer-groups.sh", line)

    def topics(self, *lines: str) -> None:
        """Run kafka-topics.sh once for each line."""
        for line in lines:
            self.ask("kafka-topics.sh", line)

    def offsets(self, *lines: str) -> None:
        """Run kafka-get-offsets.sh once for each line."""
        for line in lines:
            self.ask("kafka-get-offsets.sh", line)

    def acls(self, *lines: str, user: str = ADMIN) -> None:
        """Run kafka-acls.sh once for each line, as a user."""
        for line in lines:
            self.ask("kafka-acls.sh", f"--command-config {FOLDER}/{user} {line}")

    def given(self, text: str) -> None:
        """Keep what was done to the broker."""
        self.told.append(given(text))

    def file(self, name: str, text: str) -> None:
        """Write a file that a tool is told to read."""
        (self._folder / name).write_text(text)
        self.given(f"the file {FOLDER}/{name} says {text!r}")


def the_topics(teller: Teller) -> None:
    """Say which topics there are."""
    for name, counts in COUNTS.items():
        numbers = ", ".join(map(str, counts))
        teller.given(
            f"the partitions of the topic {name} have {numbers} records, "
            f"a second apart from {FIRST_MS} ms on"
        )


def of_offsets(teller: Teller) -> None:
    """kafka-get-offsets.sh, with each time and each way to name partitions."""
    the_topics(teller)
    teller.offsets("--topic orders")
    for moment in (
        "-1 -2 -3 -4 -5 latest earliest max-timestamp earliest-local latest-tiered "
        f"{FIRST_MS} {FIRST_MS + 3_500} {FIRST_MS + 8_000} {FIRST_MS + 3_600_000} soon"
    ).split():
        teller.offsets(f"--topic orders --time {moment}")
    teller.offsets(
        "--topic orders --partitions 0,2",
        "--topic ord.* --partitions 1 --exclude-internal-topics",
        "--topic-partitions orders:1",
        "--topic-partitions orders:0-2",
        "--topic-partitions orders:1-",
        "--topic-partitions orders:-1",
        "--topic-partitions no.*,:0-1 --exclude-internal-topics",
        "--topic nothing-has-this-name",
        "--topic orders --partitions 7",
    )


def of_topics(teller: Teller) -> None:
    """kafka-topics.sh, from the creation of a topic to its end."""
    the_topics(teller)
    teller.topics(
        "--list --exclude-internal",
        "--describe --topic orders",
        "--create --topic made --partitions 2 --replication-factor 1",
        "--create --topic made --partitions 2",
        "--create --topic made --partitions 2 --if-not-exists",
        "--create --topic plain",
        "--create --topic no/name",
        "--create --topic with.dots_and_underscores --partitions 1",
        "--create --topic nothing --partitions 0",
        "--list --exclude-internal",
        "--list --topic ma.*",
        "--describe --topic made",
        "--describe --exclude-internal",
        "--describe --topic made --unavailable-partitions",
        "--describe --topic made --under-replicated-partitions",
        "--alter --topic made --partitions 5",
        "--alter --topic made --partitions 5",
        "--alter --topic made --partitions 3",
        "--alter --topic nothing-has-this-name --partitions 3",
        "--alter --topic nothing-has-this-name --partitions 3 --if-exists",
        "--describe --topic made",
        "--describe --topic nothing-has-this-name",
        "--describe --topic nothing-has-this-name --if-exists",
        "--delete --topic made",
        "--delete --topic made",
        "--delete --topic made --if-exists",
        "--delete --topic plain",
        "--delete --topic with.dots_and_underscores",
    )
    wait_for_topics(teller.address, set(COUNTS))
    teller.topics("--list --exclude-internal")


GROUPS = {"done": (4, 5, 0), "other": (1, 1, 0)}


def of_groups_without_members(teller: Teller) -> None:
    """kafka-consumer-groups.sh and groups that have offsets and no members."""
    the_topics(teller)
    teller.groups("--list", "--list --state", "--describe --all-groups")
    for group, offsets in GROUPS.items():
        teller.given(f"the group {group} has committed {offsets} of orders, and has no member")
        commit(teller.address, group, dict(zip(ORDERS, offsets, strict=True)))
    teller.given("the group done has committed 1 of returns, too")
    commit(teller.address, "done", dict(zip(RETURNS, (1,), strict=True)))
    teller.groups(
        "--list",
        "--list --state",
        "--list --state Empty",
        "--list --state stable,empty",
        "--list --state Stable",
        "--list --type",
        "--list --type classic",
        "--list --type consumer",
        "--list --type classic --state",
        "--list --type classic --state Empty",
        "--describe --group done",
        "--describe --group done --offsets",
        "--describe --group done --offsets --verbose",
        "--describe --group done --members",
        "--describe --group done --members --verbose",
        "--describe --group done --state",
        "--describe --group done --state --verbose",
        "--describe --group done --group other",
        "--describe --group done --group other --state",
        "--describe --group done --group nobody",
        "--describe --all-groups",
        "--describe --all-groups --offsets --verbose",
        "--describe --all-groups --state",
        "--describe --all-groups --members",
        "--describe --group nobody",
        "--describe --group nobody --offsets",
        "--describe --group nobody --offsets --verbose",
        "--describe --group nobody --members",
        "--describe --group nobody --state",
        "--describe --group nobody --timeout 10000",
    )
    resets(teller)
    deletions(teller)


def resets(teller: Teller) -> None:
    """`--reset-offsets` of the groups of GROUPS, in every way."""
    reset = "--reset-offsets --group done"
    teller.groups(
        *(
            f"{reset} {scope} --to-earliest --dry-run"
            for scope in (
                "--all-topics",
                "--topic orders",
                "--topic orders:0,1",
                "--topic orders:0,2 --topic returns",
                "--topic orders:2",
            )
        )
    )
    teller.groups(
        f"{reset} --topic orders --to-earliest",
        f"{reset} --topic orders --to-earliest --export",
    )
    plan = teller.ask("kafka-consumer-groups.sh", f"{reset} --all-topics --to-current --export")
    teller.file("plan.csv", plan)
    teller.file("short.csv", "orders,0,1\norders,1,99\n")
    teller.file("groups.csv", "done,orders,0,3\nother,orders,1,2\n")
    whats = ("--dry-run", "--export --dry-run", "--execute")
    for how in (
        "--to-earliest",
        "--to-latest",
        "--to-current",
        "--to-offset 2",
        "--to-offset 1000",
        "--shift-by -2",
        "--shift-by 1",
        "--shift-by -1000",
        "--to-datetime 2023-11-14T22:13:23.500",
        "--to-datetime 2023-11-14T22:13:23.500Z",
        "--to-datetime 2023-11-15T00:13:24.000+02:00",
        "--to-datetime 2099-01-01T00:00:00.000",
        "--by-duration PT0S",
        "--by-duration P3650D",
        f"--from-file {FOLDER}/plan.csv",
        f"--from-file {FOLDER}/short.csv",
    ):
        scope = "" if "--from-file" in how else "--topic orders "
        teller.groups(*(f"{reset} {scope}{how} {what}" for what in whats))
        teller.groups("--describe --group done")
    teller.groups(
        f"{reset} --topic orders --by-duration P36500D --dry-run",
        f"--reset-offsets --group done --group other --from-file {FOLDER}/groups.csv --dry-run",
        f"--reset-offsets --group done --group other --from-file {FOLDER}/groups.csv --execute",
        "--reset-offsets --all-groups --all-topics --to-earliest --dry-run",
        "--reset-offsets --all-groups --all-topics --to-earliest --export",
        "--reset-offsets --group done --group other --all-topics --to-current --export",
        "--reset-offsets --all-groups --topic orders:1 --to-latest --execute",
        "--describe --all-groups",
        "--reset-offsets --group fresh --topic orders --to-latest --dry-run",
        "--reset-offsets --group fresh --topic orders --to-current --dry-run",
        "--reset-offsets --group fresh --all-topics --to-latest --dry-run",
        "--reset-offsets --group fresh --topic orders --to-latest --execute",
        "--reset-offsets --group fresh --topic nothing-has-this-name --to-latest --execute",
        "--describe --group fresh",
    )


def deletions(teller: Teller) -> None:
    """`--delete-offsets` and `--delete` of the groups of GROUPS, and of others."""
    teller.groups(
        "--delete-offsets --group done --topic orders:1",
        "--describe --group done",
        "--delete-offsets --group done --topic orders --topic returns",
        "--delete-offsets --group done --topic orders",
        "--delete-offsets --group done --topic nothing-has-this-name",
        "--delete-offsets --group done --topic orders:9",
        "--delete-offsets --group done --topic orders:0 --topic nothing-has-this-name",
        "--delete-offsets --group nobody --topic orders",
        "--describe --group done",
        "--describe --group done --state",
        "--delete --group other",
        "--delete --group other",
        "--describe --group other",
        "--describe --group other --state",
        "--delete --group nobody --group fresh",
        "--list --type classic,consumer",
        "--delete --all-groups --timeout 10000",
        "--list",
        "--delete --all-groups",
    )


def of_groups_with_members(teller: Teller) -> None:
    """kafka-consumer-groups.sh and a group with two members, one of them static: `live`."""
    the_topics(teller)
    teller.given(
        "the group live has two members of the subscription orders, first and the static second; "
        "they share its three partitions by the range assignor, and have committed 1 of each"
    )
    teller.given("the group done has committed 1 of returns, and has no member")
    commit(teller.address, "done", dict(zip(RETURNS, (1,), strict=True)))
    with members(teller.address, "live"):
        teller.groups(
            "--list",
            "--list --state",
            "--list --state Stable",
            "--list --type --state",
            "--list --type classic --state stable,empty",
            "--describe --group live",
            "--describe --group live --offsets",
            "--describe --group live --offsets --verbose",
            "--describe --group live --members",
            "--describe --group live --members --verbose",
            "--describe --group live --state",
            "--describe --group live --state --verbose",
            "--describe --group live --group done",
            "--describe --all-groups",
            "--describe --all-groups --members",
            "--describe --all-groups --members --verbose",
            "--describe --all-groups --state",
            "--reset-offsets --group live --topic orders --to-earliest --dry-run",
            "--reset-offsets --group live --topic orders --to-earliest --execute",
            "--reset-offsets --group live --topic orders --to-earliest --export",
            "--reset-offsets --group live --group done --all-topics --to-earliest --execute",
            "--reset-offsets --all-groups --all-topics --to-earliest --dry-run",
            "--delete-offsets --group live --topic orders",
            "--delete-offsets --group live --topic orders:0,1",
            "--delete-offsets --group live --topic returns",
            "--delete --group live",
            "--delete --group live --group done",
        )
    teller.given("one member of live has left it, the static one was removed")
    teller.groups(
        "--list --state",
        "--describe --group live",
        "--describe --group live --members",
        "--describe --group live --state",
    )
    teller.given("two members join the group live again, where both are assigned before")
    with rebalancing(teller.address, "live"):
        teller.given("a third member joins live, and the others do not poll: it is rebalancing")
        teller.groups(
            "--list --state",
            "--list --state PreparingRebalance",
            "--describe --group live",
            "--describe --group live --members --verbose",
            "--describe --group live --state",
            "--reset-offsets --group live --topic orders --to-earliest --dry-run",
            "--delete --group live",
        )
    teller.given("all members of live have left it")
    teller.groups("--delete --all-groups", "--list")


def of_errors(teller: Teller) -> None:
    """kafka-consumer-groups.sh, asked what it refuses before it asks a broker, or asks in vain."""
    teller.given("there is no group")
    group = "--group done --topic orders"
    for line in (
        "",
        "--list --bootstrap-server",
        "--nonsense",
        "--list",
    ):
        teller.run("kafka-consumer-groups.sh", *line.split())
    teller.groups(
        "--help",
        "--version",
        "--list --describe",
        "--list --group done",
        "--list --state nonsense",
        "--list --type nonsense",
        "--describe",
        "--describe --group",
        "--describe --group done --all-groups",
        "--describe --group done --members --offsets",
        "--describe --group done --state --members",
        "--describe --group done --state Stable",
        "--describe --group done --topic orders",
        "--describe --group done --timeout soon",
        "--delete",
        "--delete --group done --all-groups",
        "--delete --group done --topic orders",
        "--delete --group done --dry-run",
        "--delete-offsets",
        "--delete-offsets --group done",
        "--delete-offsets --topic orders",
        "--delete-offsets --group done --all-topics",
        "--delete-offsets --group done --topic orders --execute",
        "--reset-offsets",
        "--reset-offsets --topic orders --to-earliest",
        "--reset-offsets --group done --to-earliest",
        "--reset-offsets --group done --to-earliest --execute",
        "--reset-offsets --group done --topic orders",
        "--reset-offsets --group done --topic orders --execute",
        "--reset-offsets --group done --topic orders --all-topics --to-earliest",
        "--reset-offsets --group done --all-groups --topic orders --to-earliest",
        *(
            f"--reset-offsets {group} {how} --dry-run"
            for how in (
                "--to-earliest --to-latest",
                "--to-earliest --execute",
                "--to-offset",
                "--to-offset many",
                "--to-offset -1",
                "--shift-by far",
                "--to-datetime yesterday",
                "--to-datetime 2023-11-14",
                "--by-duration tomorrow",
                "--by-duration 5m",
                f"--from-file {FOLDER}/nothing.csv",
            )
        ),
        "--reset-offsets --group done --topic orders:x --to-earliest --dry-run",
        "--reset-offsets --group done --topic orders: --to-earliest --dry-run",
        "--reset-offsets --group done --members --topic orders --to-earliest --dry-run",
        "--validate-regex ab.*",
        "--validate-regex [",
        "--validate-regex 'ab(?!c)'",
        "--validate-regex ab.* --list",
        "--validate-regex ab.* --group done",
        "--describe --group ''",
        "--delete --group ''",
        "--reset-offsets --group '' --topic orders --to-earliest --execute",
    )
    teller.file("wrong.csv", "orders,0\n")
    teller.groups(f"--reset-offsets --group done --from-file {FOLDER}/wrong.csv --dry-run")
    teller.file("text.csv", "orders,zero,1\n")
    teller.groups(f"--reset-offsets --group done --from-file {FOLDER}/text.csv --dry-run")


def of_acls(teller: Teller) -> None:
    """kafka-acls.sh, and what others print who may or may not; the broker is a secure one."""
    the_topics(teller)
    teller.given(f"the users are {', '.join(USERS)}; {ADMIN} is a super user")
    for name in USERS:
        teller.file(name, login(name, name))
    teller.file("stranger", login("stranger", "guess"))
    additions(teller)
    authentication_lines(teller)
    removals(teller)


def additions(teller: Teller) -> None:
    """`--add` and `--list`, in each form."""
    alice, mallory = "--allow-principal User:alice", "--allow-principal User:mallory"
    teller.acls(
        "--list",
        f"--add {alice} --consumer --topic orders --group billing",
        f"--add {alice} --consumer --topic orders --group billing",
        f"--add {alice} --producer --topic al --resource-pattern-type prefixed",
        f"--add {alice} --producer --idempotent --topic returns",
        f"--add {alice} --operation Describe --operation Delete --group night",
        f"--add {alice} --operation Describe --cluster",
        f"--add {alice} --operation Describe --transactional-id tx",
        "--add --allow-principal User:* --operation Read --group shared- "
        "--resource-pattern-type prefixed",
        f"--add {mallory} --operation Read --operation Describe --topic *",
        "--add --deny-principal User:mallory --operation Read --topic orders",
        f"--add {mallory} --allow-host 127.0.0.1 --operation Read --group billing",
        "--add --deny-principal User:mallory --deny-host 10.0.0.1 --operation Read --group night",
        f"--add {alice} {mallory} --operation DescribeConfigs --topic orders --topic returns",
        "--list",
        "--list --topic orders",
        "--list --topic orders --group billing",
        "--list --group billing",
        "--list --cluster",
        "--list --transactional-id tx",
        "--list --topic al",
        "--list --topic al --resource-pattern-type prefixed",
        "--list --topic alice --resource-pattern-type match",
        "--list --topic * --resource-pattern-type any",
        "--list --topic orders --resource-pattern-type any",
        "--list --principal User:alice",
        "--list --principal User:alice --principal User:mallory --topic orders",
        "--list --principal User:nobody",
    )
    teller.acls(
        "",
        "--add --topic orders",
        f"--add {alice}",
        f"--add {alice} --topic orders --operation Nonsense",
        f"--add {alice} --group billing --operation Write",
        f"--add {alice} --topic orders --resource-pattern-type any",
        "--add --allow-principal alice --topic orders",
        f"--add {alice} --allow-host 127.0.0.1 --deny-host 127.0.0.1 --operation Alter --cluster",
        f"--add {alice} --consumer --topic orders",
        f"--add {alice} --producer --group billing",
        "--add --list",
        "--remove --topic orders --producer --operation Read",
    )
    teller.acls("--list", f"--add {alice} --topic orders", user="mallory")
    teller.acls("--list", user="stranger")


def authentication_lines(teller: Teller) -> None:
    """What clients print who may, and who may not."""

    def ask(user: str, script: str, line: str, option: str = "--command-config") -> None:
        teller.ask(script, f"{option} {FOLDER}/{user} {line}")

    def consume(user: str, group: str, topic: str, count: int) -> None:
        line = f"--topic {topic} --group {group} --from-beginning --timeout-ms 20000"
        script = "kafka-console-consumer.sh"
        ask(user, script, f"{line} --max-messages {count}", "--consumer.config")

    def produce(user: str, topic: str) -> None:
        words = ("--producer.config", f"{FOLDER}/{user}", "--topic", topic)
        address = ("--bootstrap-server", teller.address)
        teller.run("kafka-console-producer.sh", *address, *words, reads="a line\n")

    consume("mallory", "billing", "orders", 1)
    consume("alice", "billing", "orders", 15)
    consume("alice", "shared-1", "orders", 15)
    consume("alice", "other", "orders", 1)
    consume("alice", "billing", "returns", 1)
    consume("mallory", "billing", "returns", 3)
    consume("stranger", "billing", "orders", 1)
    for user in ("alice", "mallory"):
        for line in (
            "--list --exclude-internal",
            "--create --topic al-made --partitions 1",
            "--create --topic made --partitions 1",
            "--describe --topic orders",
            "--describe --topic secret",
            "--alter --topic orders --partitions 4",
            "--delete --topic returns",
        ):
            if user == "alice" or "create" not in line:
                ask(user, "kafka-topics.sh", line)
    produce("alice", "al-made")
    produce("alice", "secret")
    for user in ("alice", "mallory"):
        for line in (
            "--list",
            "--list --state",
            "--describe --group billing",
            "--describe --group other",
            "--describe --group billing --state",
            "--describe --all-groups",
            "--reset-offsets --group billing --topic orders --to-earliest --execute",
            "--reset-offsets --group other --topic orders --to-earliest --execute",
            "--delete-offsets --group billing --topic orders",
            "--delete --group billing",
            "--delete --group night",
        ):
            ask(user, "kafka-consumer-groups.sh", line)
        ask(user, "kafka-get-offsets.sh", "--topic orders")
        ask(user, "kafka-get-offsets.sh", "--topic secret")
    ask("stranger", "kafka-topics.sh", "--list")
    ask("stranger", "kafka-consumer-groups.sh", "--list")
    teller.given(f"{ADMIN} deletes what was made")
    ask(ADMIN, "kafka-topics.sh", "--delete --topic al-made")
    ask(ADMIN, "kafka-consumer-groups.sh", "--delete --all-groups")


def removals(teller: Teller) -> None:
    """`--remove`, in each form."""
    alice = "--allow-principal User:alice"
    teller.acls(
        f"--remove {alice} --operation Describe --cluster --force",
        f"--remove {alice} --operation Describe --cluster --force",
        f"--remove {alice} --consumer --topic orders --group billing --force",
        "--list --topic orders --group billing",
        "--remove --deny-principal User:mallory --operation Read --topic orders --force",
        "--remove --topic returns --force",
        "--remove --topic al --force",
        "--remove --topic alice --resource-pattern-type match --force",
        "--remove --group * --resource-pattern-type any --force",
        "--remove --transactional-id tx --force",
        "--list",
        "--remove --topic orders --force",
        "--remove --force",
        "--list",
    )


STORIES: Mapping[str, Callable[[Teller], None]] = {
    "groups_without_members": of_groups_without_members,
    "groups_with_members": of_groups_with_members,
    "group_errors": of_errors,
    "get_offsets": of_offsets,
    "topics": of_topics,
}
# Told to a broker that serves users only.
SECURE_STORIES: Mapping[str, Callable[[Teller], None]] = {"acls": of_acls}


def commit(address: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for a group, as an administrator does."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=group)
    consumer.assign(list(offsets))
    consumer.commit({place: OffsetAndMetadata(each, "", -1) for place, each in offsets.items()})
    consumer.close()


def consumer(address: str, group: str, name: str, instance: str | None = None) -> KafkaConsumer:
    """A consumer of `orders` that commits when it is told to."""
    return KafkaConsumer(
        "orders",
        bootstrap_servers=address,
        group_id=group,
        client_id=name,
        group_instance_id=instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=500,
        session_timeout_ms=10_000,
    )


class Polling:
    """Consumers that are polled, each in a thread, until `stop`; they are members until `close`.

    Each commits 1 for the partitions that it is given.
    """

    def __init__(self, *consumers: KafkaConsumer) -> None:
        self._consumers = consumers
        self._stopping = threading.Event()
        self.committed: set[TopicPartition] = set()
        self._threads = [threading.Thread(target=self._poll, args=[each]) for each in consumers]
        for thread in self._threads:
            thread.start()

    def _poll(self, consumer: KafkaConsumer) -> None:
        while not self._stopping.is_set():
            # kafka-python drops a join that ends between two polls, and begins it anew.
            consumer.poll(timeout_ms=1_000)
            given = consumer.assignment()
            if not given <= self.committed:
                with suppress(KafkaError):
                    consumer.commit({place: OffsetAndMetadata(1, "", -1) for place in given})
                    self.committed |= given

    def stop(self) -> None:
        """Poll no more."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Leave the group."""
        self.stop()
        for each in self._consumers:
            each.close()


@contextmanager
def members(address: str, group: str) -> Iterator[Polling]:
    """Two members of a group that share `orders`, and have committed, while the block runs.

    The static one, which does not leave as it goes, is removed by an administrator.
    """
    polling = Polling(
        consumer(address, group, "first"), consumer(address, group, "second", "instance-2")
    )
    try:
        wait_for(address, group, "Stable", 2, polling)
        yield polling
    finally:
        polling.close()
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.remove_group_members(group, [MemberToRemove(group_instance_id="instance-2")])
    admin.close()


@contextmanager
def rebalancing(address: str, group: str) -> Iterator[None]:
    """A third member waits, while the block runs, for two that do not join again."""
    two = Polling(consumer(address, group, "first"), consumer(address, group, "second"))
    try:
        wait_for(address, group, "Stable", 2, two)
    finally:
        two.stop()
    third = Polling(consumer(address, group, "third"))
    try:
        wait_for(address, group, "PreparingRebalance", 3)
        yield
    finally:
        # The third one's join is answered when the others have left.
        two.close()
        third.close()


def wait_for_topics(address: str, names: set[str]) -> None:
    """Wait until a broker has no other topics: Kafka's shows one for a moment after its end."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    wait_until(
        lambda: f"{names}, not {admin.list_topics()}",
        lambda: {name for name in admin.list_topics() if not name.startswith("__")} == names,
        _WAIT_S,
    )
    admin.close()


def wait_for(
    address: str, group: str, state: str, count: int, polling: Polling | None = None
) -> None:
    """Wait until a group is in a state with so many members, and all partitions are committed."""
    admin = KafkaAdminClient(bootstrap_servers=address)

    def is_so() -> bool:
        found = admin.describe_groups([group])[group]
        return (found["group_state"], len(found["members"])) == (state, count) and (
            polling is None or polling.committed >= set(ORDERS)
        )

    wait_until(f"{group} is {state} with {count} members", is_so, _WAIT_S)
    admin.close()
