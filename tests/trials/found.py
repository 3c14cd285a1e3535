"""The faults that the trials found: what was wrong, and how a run showed it."""

from __future__ import annotations

from typing import NamedTuple


class Found(NamedTuple):
    """A fault: the commit that mended it, what was wrong, and how it showed."""

    commit: str
    wrong: str
    showed: str


SIMULATION = (
    Found(
        "1fd34b2",
        "The first batch after a start or a claim took in the bootstrap alone, so timers came "
        "before requests that had waited.",
        "A member with a session of 3 s expired 9.8 s after a heartbeat that nobody had read.",
    ),
    Found(
        "db147ac",
        "A first batch that was cut off began again at version 0 of the log of requests.",
        "Requests were answered twice. Torture found it: the simulated Spark had remembered where"
        " the first batch begins, which Spark's log of offsets does not. Now it asks as Spark "
        "does.",
    ),
    Found(
        "c7a8aff",
        "A stream that lagged decided again what the former owner of a claimed partition had "
        "answered.",
        "Requests were answered twice, and an acknowledged commit was undone.",
    ),
    Found(
        "a26028d",
        "Claims and starts were told apart by times: after a step back of the clock a batch took a "
        "group for another coordinator's.",
        "Requests got no answer.",
    ),
    Found(
        "37a90e5",
        "An append whose outcome was unknown deleted its file, although its commit stood.",
        "The table could not be read any more, and the node ended.",
    ),
    Found(
        "0b2f8b6",
        "A group remembered 1,024 request ids, however short the time.",
        "A commit that its producer repeated after 1,200 others was answered twice, and set the "
        "offset back.",
    ),
    Found(
        "8587726",
        "A batch that was run again was decided by the settings of the new run.",
        "It contradicted the records that its first run had written.",
    ),
    Found(
        "87e5029",
        "A node that had started again, and whose query had not begun yet, said that it had read "
        "all requests; others then trimmed the log that its next batch was to read.",
        "Found while two runs were traced whose query ended because the log no longer had what "
        "its next batch read. Whether it is why they did is not known: they could not be repeated "
        "(244352a, below).",
    ),
    Found(
        "52f4e41",
        "A writer that stood still between its look at the log and its commit, while the log was "
        "cleaned up beyond it, created a commit that no reader sees, and took it for written. So "
        "would a slow INSERT of another engine: its commit is brought to the log's end (5d8ab98).",
        "45 requests of one append never got an answer.",
    ),
    Found(
        "74c239d",
        "Compaction had moved the record of a request that still waited for its answer, so a "
        "take-over decided the request again: the earlier of two commits set back the offset of "
        "the later one.",
        "1 of 58 runs: a request was recorded again before its answer.",
    ),
    Found(
        "3f11b3c3",
        "A stream that began afresh skipped the requests that an earlier one had skipped, up to a "
        "version of `requests`: in a table that was deleted and made again these are others.",
        "Of 76 commits to the new table, those of seven partitions were not answered: a member "
        "expired 2.9 s after a heartbeat that nobody had read.",
    ),
)
GATEWAYS = (
    Found(
        "4c6b12b",
        "Definitions of topics that were away for one read were taken for none.",
        "A gateway that was starting refused every batch: the topic had no table for its records. "
        "Consumers were given none, without an error, until the catalogue changed.",
    ),
    Found(
        "4c6b12b",
        "A catalogue that was away was taken for one without topics: upkeep would have deleted the "
        "tables of all topics that were an hour old.",
        "Found by reading, after the fault before.",
    ),
    Found(
        "f504ce8",
        "A gateway knew a topic's partitions and its table by two looks.",
        "A producer to a topic that was being deleted was told for good that it has no table.",
    ),
    Found(
        "2210da6",
        "A look for another gateway's records that failed was taken for one that found none.",
        "ListOffsets told 281 as the end of a partition that had 327 records, all acknowledged.",
    ),
    Found(
        "6fc14de",
        "Retention removed a file with the state of idempotent producers that could still send "
        "again, so a batch was written twice.",
        "Seed 11: an idempotent batch was in its partition twice.",
    ),
    Found(
        "f11523c",
        "Two who made a topic at once, and one after a maker that was killed, left two definitions "
        "of one time: gateways took either one's table.",
        "A consumer was given 41 records that no commit of the topic's table had.",
    ),
    Found(
        "aa45efd",
        "A read that failed just after a topic was changed closed the connection of whoever had "
        "asked for the change; one that failed while groups were listed did so, too.",
        "The connection of 10.0.0.1 is closed: Input/output error.",
    ),
    Found(
        "9754bff",
        "A commit whose creation was said to have failed, and of which a part was read then, was "
        "taken for another writer's: its writer deleted the file that it names.",
        "No gateway could start any more, for the table of gateways could not be read.",
    ),
)
TORTURE = (
    Found(
        "db147ac",
        "A first batch that was cut off began again at version 0 of the log of requests.",
        "A node that was killed in its first batch ended by itself at its next start: version 0 of "
        "the log was gone. Where it is not gone yet, requests are answered twice.",
    ),
)
MALFORMED = (
    Found(
        "163059a",
        "A file whose columns had other types than the contract's ended the stream.",
        "One `request_id` that was a dictionary of bytes, or a `sent_at` that was a text, failed "
        "the batch, and failed it again at every restart.",
    ),
    Found(
        "e948d7e",
        "A retention or a commit timestamp near 2^63 made an expiry that no row or timer can hold.",
        "The batch failed, and failed again at every restart.",
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
        "The simulation took a member's silence from two readings of a clock that may be set back.",
        'A member that expired in time was told of as expired "-77531 ms after it was heard of".',
    ),
    Found(
        "d04330d",
        "The simulation took a join that is answered with the present generation for one that "
        "renews a session.",
        "A static member that expired in time was told of as expired too early.",
    ),
    Found(
        "ab2e864",
        "Torture started six coordinators on two cores and called a first batch of 61 s one that "
        "hangs.",
        "A coordinator ended to which nothing had been done.",
    ),
    Found(
        "421db94",
        "Torture filled the disk for more than a minute, because others gave room back meanwhile.",
        "A coordinator that was started in that minute ended, and was not excused.",
    ),
    Found(
        "244352a",
        "The simulation trimmed logs by the real age of their files, so a run that took long was "
        "another run.",
        "Two runs of 51 ended by an error that their seeds did not bring again.",
    ),
    Found(
        "244352a",
        "The simulation did not know that a start may find its folder taken by the next start of "
        "its node, which has fenced it.",
        "One run of 51 told of a query that ended without its folder.",
    ),
    Found(
        "72521d5",
        "The simulation deleted files that a writer was still to commit, as if a write could take "
        "longer than files are kept, and did not know a reader that lagged further than that.",
        "One run of 16 told of a query whose next batch could not be read.",
    ),
    Found(
        "52f4e41",
        "A start whose folder the next start had taken went on with the streaming checkpoint in "
        "it, or was taken for one whose files are lost.",
        "Seven runs of 115 told of a file that was gone, or of a batch that decided otherwise.",
    ),
    Found(
        "52f4e41",
        "Of a batch that answers a join and then ends its generation, the simulation took the "
        "answer for the later of the two, because records are written first.",
        "One run of 115 told of a generation that fell.",
    ),
    Found(
        "52f4e41",
        "A clock that was set back and then forward shortened a session by what it was set "
        "forward, and the simulation took that for the coordinator's doing.",
        "One run of 115 told of a member that expired 146 ms too early.",
    ),
    Found(
        "977b82e",
        "The simulation of gateways wanted batches acknowledged in their order. One that stood, "
        "though it had failed, was acknowledged after those behind it, by its repeat.",
        "guarded-0 6 is at 107, before the one before it.",
    ),
    Found(
        "6e27cb7",
        "A gateway that stopped ended its connections in the order in which they lay in memory, so "
        "a run with a stop was another run.",
        "Three runs of one seed side by side had two digests.",
    ),
    Found(
        "7234c95",
        "Who stood still by two faults at once met the second one even if all was quiet by then.",
        "A deletion was carried out after the last look: two consumers had not read all.",
    ),
    Found(
        "7234c95",
        "The simulation of gateways wanted a batch accepted that was sent to a topic before it was "
        "made anew. One sent behind it may be the first of the new topic, as in Kafka.",
        "producer-1 530 was refused: sequence 183 came where 266 was to come.",
    ),
    Found(
        "adb14e0",
        "The simulation of gateways held the end of a topic that was made anew against what it had "
        "been before.",
        "The end of fleeting-2 is told as 0, not 289 to 289.",
    ),
    Found(
        "aa45efd",
        "A thread of the simulation waited for a lock of the machine's that another one had, which "
        "stood still, and so did everybody.",
        "One run of 20 did not end.",
    ),
)
