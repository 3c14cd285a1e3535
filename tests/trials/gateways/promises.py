"""The promises that are held against every commit and answer, as reports and the page have them."""

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
# What is looked at for each of them.
EXPLAINED = {
    DENSE: (
        "Each commit's records have the offsets that come next; in the end the table, read by "
        "delta-rs and Arrow alone, has every offset once."
    ),
    ONCE: (
        "A record that a producer with an id repeats is not in the table again, nor behind a later "
        "one."
    ),
    ACKNOWLEDGED: (
        "The records stand at the offset that the answer says when it comes, and in the end. A "
        "batch that follows those before it is not refused for its sequence."
    ),
    READ_IN_ORDER: (
        "A fetch returns what the log has from its offset on; in the end consumers have read all "
        "of it. A position is given up only if its topic was made anew. Of a user's table the log "
        "is its rows in the order of its commits, placed by kafka-python's partitioner."
    ),
    ENDS: (
        "ListOffsets tells no less than was acknowledged or told before it was asked, by any "
        "gateway, and no more than there is."
    ),
    DENIED: (
        "A record is written, or given, only if an ACL allowed it at some time since it was asked "
        "for, or in the 10 s before, for which a gateway may go on by ACLs that it cannot read. "
        "And the other way round. Of a table that was replaced the former ACLs are obeyed for 5 s, "
        "unless a gateway stands still or cannot read. What no table tells for 10 s is not done."
    ),
    DELETED: "A table has no commit of records behind the mark that its topic is deleted.",
    KEPT: (
        "Records are removed by whole files, the first of a partition, once the newest of a file "
        "is past `retention.ms` by upkeep's clock. No gateway tells a log start, or refuses an "
        "offset, behind which there is more than was removed, or deleted by VACUUM."
    ),
    GROWN: (
        "The catalogue has what CreatePartitions has acknowledged. By one connection Metadata "
        "never tells fewer partitions than before; no gateway tells more than there are."
    ),
    IDS: "By any gateway, over crashes.",
    ANSWERED_SOON: (
        "5 s after the last fault no client of a request waits in vain for 3 s, and in 30 s all is "
        "written and read."
    ),
    NO_BUG: (
        "Nothing of a gateway ends by an error, or tells the log of one, that has no name. There "
        "is no count."
    ),
}
PROMISES = frozenset(EXPLAINED)
INTRODUCTION = """\
Two gateways and their clients run in simulated time on real Delta tables in memory: all of a
gateway's own code, from the bytes of a connection to commits, in an event loop that simulated time
drives. Simulated are sockets, threads, and whoever asks coordinators; requests of groups are not
part of it. Idempotent and other producers write to topics, one of which is deleted and made anew
while they do, and another given more partitions; consumers read by any gateway, some again from the
first offset; ACLs are given and taken back; somebody who may do nothing tries; a user's table
grows, is optimized and vacuumed, and both gateways index it. Upkeep removes what is past its
retention, packs the topics' own tables, and vacuums them, as if hours had passed. The faults are
those of the simulation above: commits that fail, stand although they are said to have failed, or
come late; reads that fail; gateways that are killed, stopped or stand still between any two steps;
clocks that are set. A test of its own deletes `acls` and makes it again. A folder or commit that
is away by a read that fails is so for one read: a gateway looks twice before it tells a producer
that its sequence does not follow."""
