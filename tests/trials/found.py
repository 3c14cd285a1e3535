"""Bugs that the trials found, each with its symptom."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    """A bug: the commit that fixed it, the bug, and its symptom."""

    commit: str
    wrong: str
    showed: str


SIMULATION = (
    Found(
        "1fd34b2",
        "The first batch after a start or claim contained only the bootstrap, so timers expired "
        "before waiting requests were read.",
        "A member with a session of 3 s expired 9.8 s after an unread heartbeat.",
    ),
    Found(
        "db147ac",
        "An interrupted first batch restarted at version 0 of the log of requests.",
        "Requests were answered twice. Torture found it: the simulated Spark had stored the first "
        "batch's start, which Spark's offset log does not. Now the simulation behaves as Spark.",
    ),
    Found(
        "c7a8aff",
        "A lagging stream decided again requests that the former owner of a claimed partition had "
        "answered.",
        "Requests were answered twice, and an acknowledged commit was undone.",
    ),
    Found(
        "a26028d",
        "Claims and starts were ordered by times. After a clock stepped back, a batch took a group "
        "for another coordinator's.",
        "Requests got no response.",
    ),
    Found(
        "37a90e5",
        "An append with an unknown outcome deleted its file, although its commit had succeeded.",
        "The table became unreadable, and the node ended.",
    ),
    Found(
        "0b2f8b6",
        "A group remembered 1,024 request ids, whatever the deduplication window.",
        "A commit that its producer repeated after 1,200 others was answered twice, and set the "
        "offset back.",
    ),
    Found(
        "8587726",
        "A batch that was run again used the settings of the new run.",
        "It contradicted the records of its first run.",
    ),
    Found(
        "87e5029",
        "A restarted node without a running query reported that it had read all requests. Other "
        "nodes then trimmed the log that its next batch needed.",
        "Found while tracing two runs with a query that ended at a trimmed log. They could "
        "not be repeated (244352a, below), so the cause is not certain.",
    ),
    Found(
        "52f4e41",
        "A writer paused between reading the log and its commit, while the log was cleaned up "
        "beyond that version. It created a commit that no reader sees. A slow INSERT of another "
        "engine would do the same: its commit is moved to the log's end (5d8ab98).",
        "45 requests of one append never got a response.",
    ),
    Found(
        "74c239d",
        "Compaction had moved the record of a request without a response, so a take-over decided "
        "it again. The earlier of two commits replaced the later one's offset.",
        "1 of 58 runs: a request was recorded again before its response.",
    ),
    Found(
        "3f11b3c3",
        "A new stream skipped requests up to the version of `requests` that an earlier stream had "
        "skipped, although the table had been deleted and created again.",
        "Of 76 commits to the new table, those of seven partitions got no response; a member "
        "expired 2.9 s after an unread heartbeat.",
    ),
)
GATEWAYS = (
    Found(
        "4c6b12b",
        "Topic definitions that were missing in one read were treated as deleted.",
        "A starting gateway refused every batch, because the topic had no table. Consumers got no "
        "records and no error until the catalogue changed.",
    ),
    Found(
        "4c6b12b",
        "A catalogue that was missing in one read was treated as empty. Upkeep would have deleted "
        "the tables of all topics older than an hour.",
        "Found by review after the previous bug.",
    ),
    Found(
        "f504ce8",
        "A gateway read a topic's partitions and its table separately.",
        "A producer to a topic under deletion got the final error that the topic has no table.",
    ),
    Found(
        "2210da6",
        "A failed read of another gateway's records was treated as finding none.",
        "ListOffsets returned 281 as the end of a partition with 327 acknowledged records.",
    ),
    Found(
        "6fc14de",
        "Retention removed a file with the state of idempotent producers that could still resend.",
        "Seed 11: an idempotent batch was in its partition twice.",
    ),
    Found(
        "f11523c",
        "Two concurrent creations of a topic, or one after a killed creator, left two definitions "
        "of the same time. Gateways used the table of either.",
        "A consumer got 41 records that no commit of the topic's table had.",
    ),
    Found(
        "aa45efd",
        "A read that failed just after a topic was changed, or while groups were listed, closed "
        "the connection of the client.",
        "The connection of 10.0.0.1 is closed: Input/output error.",
    ),
    Found(
        "9754bff",
        "A commit was created despite an error, and then read in part. It was attributed to "
        "another writer, and its writer deleted the file that it names.",
        "No gateway could start, because the table of gateways was unreadable.",
    ),
    Found(
        "21bf8581",
        "After an older copy of the table of gateways was put back, blocks of producer ids were "
        "given a second time.",
        "Found by review, before tables were replaced at random.",
    ),
    Found(
        "c05be776",
        "A gateway that started after a topic's table had been deleted and created again served "
        "the new table.",
        "Found by review, before tables were replaced at random: offsets began again at 0.",
    ),
    Found(
        "634127c1",
        "For up to a second, a missing folder of a topic's table was read as a log without new "
        "commits.",
        "ListOffsets returned 655 as the end of a partition with 704 acknowledged records.",
    ),
)
TORTURE = (
    Found(
        "db147ac",
        "An interrupted first batch restarted at version 0 of the log of requests.",
        "A node killed in its first batch failed at its next start, because version 0 of the log "
        "was trimmed. Where it still exists, requests are answered twice.",
    ),
)
MALFORMED = (
    Found(
        "163059a",
        "A file with other column types than the contract's ended the stream.",
        "A `request_id` of dictionary-encoded bytes, or a `sent_at` of text, failed the batch, and "
        "again at every restart.",
    ),
    Found(
        "e948d7e",
        "A retention or commit timestamp near 2^63 gave an expiry that no row or timer can store.",
        "The batch failed, and again at every restart.",
    ),
    Found(
        "9c45051",
        "A commit timestamp beyond every date failed the SQL views.",
        "One such commit made the views of all groups unreadable.",
    ),
    Found(
        "0a89cbd",
        "Rows of a file with string views could not be read a second time.",
        "A start without a streaming checkpoint failed.",
    ),
)
OWN = (
    Found(
        "9825f6d",
        "The simulation computed a member's silence from two readings of a clock that may be set "
        "back.",
        'A member was reported as expired "-77531 ms after it was heard of".',
    ),
    Found(
        "d04330d",
        "The simulation treated every join answered with the current generation as renewing the "
        "session.",
        "A static member was reported as expired too early.",
    ),
    Found(
        "ab2e864",
        "Torture started six coordinators on two cores, and its limit for a hanging first batch "
        "was too short.",
        "A coordinator without a fault ended, after a first batch of 61 s.",
    ),
    Found(
        "421db94",
        "Torture filled the disk for over a minute, because other processes freed space meanwhile.",
        "A coordinator that started in that minute ended, and the trial reported it.",
    ),
    Found(
        "244352a",
        "The simulation trimmed logs by the real age of their files, so a slow run differed from a "
        "fast one.",
        "Two runs of 51 ended by an error that their seeds did not reproduce.",
    ),
    Found(
        "244352a",
        "The simulation did not expect that the next start of a node, which fences the previous "
        "one, takes over its folder.",
        "One run of 51 reported a query that ended without its folder.",
    ),
    Found(
        "72521d5",
        "The simulation deleted files before their writer committed them, as if a write outlasted "
        "the retention of files. It also did not expect a reader to lag that far.",
        "One run of 16 reported a query that could not read its next batch.",
    ),
    Found(
        "52f4e41",
        "After the next start had taken over a start's folder, that start continued with the "
        "streaming checkpoint in it, or was treated as one that lost its files.",
        "Seven runs of 115 reported a missing file, or a batch with other decisions.",
    ),
    Found(
        "52f4e41",
        "When a batch answers a join and then ends its generation, the simulation ordered the "
        "response last, because records are written first.",
        "One run of 115 reported a generation that fell.",
    ),
    Found(
        "52f4e41",
        "A clock that was set back and then forward shortened a session, and the simulation blamed "
        "the coordinator.",
        "One run of 115 reported a member that expired 146 ms too early.",
    ),
    Found(
        "977b82e",
        "The simulation of gateways required acknowledgements in the order of batches. A batch "
        "that was written despite an error is acknowledged by its retry, after later batches.",
        "guarded-0 6 is at 107, before the one before it.",
    ),
    Found(
        "6e27cb7",
        "A stopping gateway closed its connections in the order of memory addresses, so runs of "
        "one seed differed.",
        "Three parallel runs of one seed had two digests.",
    ),
    Found(
        "7234c95",
        "A process paused by two faults at once met the second after the last fault had ended.",
        "A deletion ran after the final check: two consumers had not read everything.",
    ),
    Found(
        "7234c95",
        "The simulation of gateways required that a batch sent before its topic was created again "
        "is accepted. As in Kafka, a later batch may be the first of the new topic.",
        "producer-1 530 was refused: sequence 183 came where 266 was to come.",
    ),
    Found(
        "adb14e0",
        "The simulation of gateways compared the end of a recreated topic with its previous end.",
        "ListOffsets returned 0 as the end of fleeting-2, not 289.",
    ),
    Found(
        "aa45efd",
        "A simulated thread waited for a real lock that a paused thread held.",
        "One run of 20 did not end.",
    ),
)
