"""What Kafka's tools print about a gateway otherwise than about a real broker, and why.

CLIENTS.md beside the gateway says the same for users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.pipeline.gateway.kafka_tools.recording import Printed, Told

_GROUPS = "kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:99999"
_NOT_FOUND = "org.apache.kafka.common.errors.GroupIdNotFoundException: Group  not found.\n"
# There are no topic ids and no eligible leader replicas (KIP-966), and min.insync.replicas means
# nothing where every commit is one of a Delta table.
_TOPICS = {
    "\tTopicId: AAAAAAAAAAAAAAAAAAAAAA": "",
    "min.insync.replicas=1": "",
    "Elr: \tLastKnownElr: ": "Elr: N/A\tLastKnownElr: N/A",
}
_NEEDS = re.compile(r"Request Request\(\.\.\.\) needs \w+ permission\.")
_PRINTED: Mapping[str, Printed] = {
    # ListGroups is answered from tables. Of a group without members nothing is stored when its
    # last offset has been deleted; a broker keeps it in memory until it looks for expired offsets.
    f"{_GROUPS} --list --type classic,consumer": Printed(
        0, "GROUP                     TYPE                \n", ""
    ),
    f"{_GROUPS} --delete --all-groups --timeout 10000": Printed(
        0, "Deletion of requested consumer groups () was successful.\n", ""
    ),
    # ConsumerGroupDescribe (KIP-848) refuses an empty id, which DescribeGroups does not.
    f"{_GROUPS} --describe --group ": Printed(
        0,
        f"\nError: Executing consumer group command failed due to {_NOT_FOUND}",
        f"java.util.concurrent.ExecutionException: {_NOT_FOUND}Caused by: {_NOT_FOUND}",
    ),
    f"{_GROUPS} --reset-offsets --group  --topic orders --to-earliest --execute": Printed(
        0,
        f"\n{'GROUP':31}{'TOPIC':31}PARTITION  NEW-OFFSET     \n"
        + "".join(f"{'':31}{'orders':31}{number:<11}{0:<15}\n" for number in range(3)),
        "",
    ),
}


def of_a_gateway(told: Told) -> Told:
    """What is printed about a gateway where `told` is printed about a real broker."""
    printed = _PRINTED.get(told.question, told.printed)
    # A broker's message tells of its Java objects.
    out = _NEEDS.sub("Cluster authorization failed.", printed.out)
    printed = printed._replace(out=out)
    if told.script == "kafka-topics.sh":
        out = printed.out
        for theirs, ours in _TOPICS.items():
            out = out.replace(theirs, ours)
        printed = printed._replace(out=out)
    return told._replace(printed=printed)
