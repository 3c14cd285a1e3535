"""OffsetFetch (API key 9): of one group, and from version 8 on of any number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka.protocol.consumer.group import OffsetFetchRequest

from group_coordinator.pipeline.gateway.api import Api, Codec
from group_coordinator.pipeline.gateway.each_group import ask_each
from group_coordinator.pipeline.gateway.fields import FlexibleReader, FlexibleWriter, Reader, Writer
from group_coordinator.schemas import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from group_coordinator.pipeline.gateway.call import Call

_FLEXIBLE = 6
# From this version on topics may be null: all that the group has offsets of.
_WITH_ALL_TOPICS = 2
# From this version on an answer has a code for the whole group.
_WITH_CODE = 2
_WITH_THROTTLE = 3
_WITH_EPOCH = 5
_WITH_STABLE = 7
# From this version on a request names any number of groups (KIP-709).
_MANY_GROUPS = 8
# From this version on a group's request names a member, which classic groups do not check.
_WITH_MEMBER = 9
_NO_THROTTLE = 0
_NO_OFFSET = -1
_NO_EPOCH = -1


class OffsetFetch(NamedTuple):
    """What the coordinator is asked of one group."""

    group_id: str
    body: messages.OffsetFetchRequest


class Fetched(NamedTuple):
    """What one group is answered."""

    group_id: str
    topics: Sequence[messages.OffsetFetchTopicResult]
    error_code: int


async def _answer(call: Call, request: Sequence[OffsetFetch]) -> list[Fetched]:
    def respond(answers: Sequence[messages.Response]) -> list[Fetched]:
        return [_fetched(call, *each) for each in zip(request, answers, strict=True)]

    return await ask_each(call, "offset_fetch", request, call.ask, respond)


def _fetched(call: Call, group: OffsetFetch, decided: messages.Response) -> Fetched:
    topics: Sequence[messages.OffsetFetchTopicResult] = ()
    if decided.error_code and call.version < _WITH_CODE:
        topics = _all_failed(group.body.topics or (), decided.error_code)
    elif decided.offset_fetch is not None:
        topics = decided.offset_fetch.topics
    return Fetched(group.group_id, topics, decided.error_code)


def _all_failed(
    topics: Sequence[messages.OffsetFetchTopic], code: int
) -> list[messages.OffsetFetchTopicResult]:
    return [
        messages.OffsetFetchTopicResult(
            topic.name,
            tuple(
                messages.OffsetFetchPartition(each, _NO_OFFSET, None, "", code)
                for each in topic.partition_indexes
            ),
        )
        for topic in topics
    ]


# --- the request --------------------------------------------------------------------------------


def _read(frame: bytes, at: int, version: int) -> tuple[Sequence[OffsetFetch], int]:
    fields = FlexibleReader(frame, at) if version >= _FLEXIBLE else Reader(frame, at)

    def topic() -> messages.OffsetFetchTopic:
        found = messages.OffsetFetchTopic(fields.text(), fields.items(fields.int32))
        fields.end_struct()
        return found

    def group() -> tuple[str, tuple[messages.OffsetFetchTopic, ...] | None]:
        group_id = fields.text()
        if version >= _WITH_MEMBER:
            fields.nullable_text()
            fields.int32()
        nullable = version >= _WITH_ALL_TOPICS
        topics = fields.nullable_items(topic) if nullable else fields.items(topic)
        if version >= _MANY_GROUPS:
            fields.end_struct()
        return group_id, topics

    groups = fields.items(group) if version >= _MANY_GROUPS else (group(),)
    require_stable = version >= _WITH_STABLE and fields.int8() != 0
    fields.end_struct()
    wanted = tuple(
        OffsetFetch(group_id, messages.OffsetFetchRequest(topics, require_stable))
        for group_id, topics in groups
    )
    return wanted, fields.at


# --- the response -------------------------------------------------------------------------------


def _write(groups: Sequence[Fetched], version: int) -> bytes:
    fields = FlexibleWriter() if version >= _FLEXIBLE else Writer()

    def partition(found: messages.OffsetFetchPartition) -> None:
        fields.int32(found.partition_index)
        fields.int64(found.committed_offset)
        if version >= _WITH_EPOCH:
            epoch = found.committed_leader_epoch
            fields.int32(_NO_EPOCH if epoch is None else epoch)
        fields.text(found.metadata)
        fields.int16(found.error_code)
        fields.end_struct()

    def topic(found: messages.OffsetFetchTopicResult) -> None:
        fields.text(found.name)
        fields.items(found.partitions, partition)
        fields.end_struct()

    def group(found: Fetched) -> None:
        fields.text(found.group_id)
        fields.items(found.topics, topic)
        fields.int16(found.error_code)
        fields.end_struct()

    if version >= _WITH_THROTTLE:
        fields.int32(_NO_THROTTLE)
    if version >= _MANY_GROUPS:
        fields.items(groups, group)
    else:
        (only,) = groups
        fields.items(only.topics, topic)
        if version >= _WITH_CODE:
            fields.int16(only.error_code)
    fields.end_struct()
    return bytes(fields)


API = Api(OffsetFetchRequest, _answer, Codec(_read, _write), takes_room=True, aside=True)
