"""Names of the promises that the trial checks at every commit and response, for its report."""

from __future__ import annotations

from tests.trials.simulation.world import NO_BUG

DENSE = "offsets of a partition are dense, and each is given once"
ONCE = "what an idempotent producer sends is in a topic once, and in its order"
ACKNOWLEDGED = "an acknowledged record is in the table, where the answer says"
READ_IN_ORDER = "a consumer reads every record once and in order"
ENDS = "an end that was told is one that the log has, and is not taken back"
DENIED = "what is denied is never done, and what is allowed never denied"
DELETED = "nothing is appended to a topic after its deletion"
KEPT = "nothing is removed that is not past its retention, and a log start lies behind it"
GROWN = "partitions of a topic are added where they are told, and none is taken back"
IDS = "a producer id is given once"
ANSWERED_SOON = "once faults end every request is answered within a bound"
# The check of each promise.
EXPLAINED = {
    DENSE: (
        "The records of a commit have the next offsets. At the end the table, read by delta-rs and "
        "Arrow alone, has each offset once."
    ),
    ONCE: (
        "A record that an idempotent producer resends is not written again, nor after a later one."
    ),
    ACKNOWLEDGED: (
        "The records are at the offset of the response, at once and at the end. A batch that "
        "follows its predecessors is not refused for its sequence."
    ),
    READ_IN_ORDER: (
        "A fetch returns the log from its offset on; at the end consumers have read all of it. A "
        "position is reset only if its topic was created again. The log of a user's table is its "
        "rows in the order of commits, partitioned as by kafka-python."
    ),
    ENDS: (
        "ListOffsets returns no less than was acknowledged or returned before the request, by any "
        "gateway, and no more than the log has."
    ),
    DENIED: (
        "A record is written or returned only if an ACL allowed it between request and response, "
        "or in the 10 s before: a gateway that cannot read the ACLs uses its cached ones for 10 s. "
        "The same holds for denials. Nothing is allowed after 10 s without a table of ACLs. The "
        "ACLs of a replaced table are used for at most 5 s, unless a gateway is paused or a read "
        "fails."
    ),
    DELETED: (
        "A table has no commit of records after the mark that its topic is deleted, nor does one "
        "that was created again in its folder."
    ),
    KEPT: (
        "Retention removes whole files from the start of a partition, once the newest record of a "
        "file is older than `retention.ms` by upkeep's clock. No gateway returns a log start, or "
        "refuses an offset, beyond what retention removed or VACUUM deleted."
    ),
    GROWN: (
        "The catalogue has the partitions that CreatePartitions acknowledged. On one connection "
        "Metadata never returns fewer than before; no gateway returns more than exist."
    ),
    IDS: "By any gateway, also after crashes.",
    ANSWERED_SOON: (
        "From 5 s after the last fault no request waits longer than 3 s, and within 30 s all "
        "records are written and read."
    ),
    NO_BUG: "No gateway ends by, or logs, an unexpected error. This is not counted.",
}
PROMISES = frozenset(EXPLAINED)
INTRODUCTION = """\
Two gateways and their clients run in simulated time on real Delta tables in memory. An event loop
in simulated time runs all of a gateway's code, from the bytes of a connection to commits. Sockets,
threads and the client of coordinators are simulated; requests of groups are omitted.

Idempotent and other producers write to topics. Meanwhile one topic is deleted and created again,
and another gets more partitions. Consumers read from any gateway, some again from the first offset.
ACLs are granted and revoked, and a client without permissions sends requests. A user's table grows,
is optimized and vacuumed, and both gateways index it. Upkeep applies retention, packs the topics'
tables and vacuums them, as if hours had passed.

The faults are those of the simulation above: failing, unconfirmed and delayed commits, failing
reads, set clocks, and gateways that are killed, stopped or paused between any two steps. A folder
or commit is missing for one read at a time, because a gateway reads twice before it reports a
sequence as out of order. Tables are replaced:

* `acls` or `gateways` is deleted and created again, replaced by an older copy, or renamed and
  renamed back. After a replacement of `gateways` both gateways restart, as the message in their
  logs tells an operator.
* `topics`, `topic_tables`, `topic_index` or a topic's table is renamed and renamed back.
* A topic's table is deleted and created again. The topic is unavailable until an operator deletes
  it and creates it again, as the message tells."""
