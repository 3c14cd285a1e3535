"""Produce (API key 0): refused for every topic, because their records are the rows of tables.

librdkafka fetches from no broker that does not offer Produce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from pipeline.gateway.api import Api
from pipeline.gateway.fields import InvalidFrame
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from pipeline.gateway.call import Call

_Topic = ProduceResponse.TopicProduceResponse
_NONE = -1


async def _answer(call: Call, request: ProduceRequest) -> ProduceResponse:
    if request.acks == 0:
        # As Kafka does: a client that waits for no answer hears of an error by the connection.
        raise InvalidFrame("records were produced with acks=0 to a topic that takes none")
    return ProduceResponse(
        responses=[
            _Topic(
                name=topic.name,
                partition_responses=[
                    _refused(call, topic.name, each.index) for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _refused(call: Call, topic: str, partition: int) -> Any:
    code, why = ErrorCode.POLICY_VIOLATION, f"topic {topic!r} takes no records: write to its table"
    if not 0 <= partition < call.services.topics.counts().get(topic, 0):
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}"
    return _Topic.PartitionProduceResponse(
        index=partition,
        error_code=int(code),
        base_offset=_NONE,
        log_append_time_ms=_NONE,
        log_start_offset=_NONE,
        record_errors=[],
        error_message=why,
    )


API = Api(ProduceRequest, 3, 12, _answer)
