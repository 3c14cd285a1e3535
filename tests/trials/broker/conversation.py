"""Random requests of the clients of one group: valid, late, wrong and concurrent.

No timer expires: sessions and rebalances may take minutes, and a conversation takes less than a
second. So the order of responses follows from the requests alone.
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec import Struct

from group_coordinator.coordinator.consumer.protocol import Subscription, encode_subscription
from group_coordinator.pipeline.replay.trace import Json
from group_coordinator.schemas.errors import ErrorCode
from tests.trials.broker.exchange import HANDLERS, Draft, Name, same

_NOBODY = same("nobody")
_NO_NAME = same("")
_SESSIONS = (60_000, 300_000)
_BAD_SESSIONS = (0, 5_999, 1_800_001)
_LATE = (-1, 0, 1, 2_147_483_647)
_PLACES = 4
_LONG = "m" * 4_097
_WEIGHTS = {
    "JoinGroup": 30,
    "SyncGroup": 22,
    "Heartbeat": 12,
    "OffsetCommit": 14,
    "OffsetFetch": 8,
    "LeaveGroup": 6,
    "DescribeGroups": 6,
    "OffsetDelete": 3,
    "DeleteGroups": 2,
}


class _Client(Struct):
    """A client and its state after its last response."""

    place: int
    name: Name = _NO_NAME
    instance: str | None = None
    generation: int = -1
    protocol: str | None = None
    members: list[Name] = []


class Conversation:
    """The requests to one group: `next` draws a request, and `take` receives its responses."""

    def __init__(self, random: Random, group_id: str) -> None:
        self._random = random
        self.group_id = group_id
        count = random.randint(1, _PLACES)
        self._clients = [
            _Client(place, instance=random.choice([None, None, f"i{place}", "i0"]))
            for place in range(count)
        ]
        self._type = random.choice(["consumer"] * 12 + ["connect"] * 3 + [""])
        # In one order for all, so that there are never as many votes for either: Kafka does not say
        # which one wins then.
        self._protocols = random.sample(["range", "roundrobin"], k=2)
        self._old: list[Name] = [_NOBODY]

    def next(self, waiting: set[int]) -> tuple[int, Draft] | None:
        """Return a request and its place, one without a parked request; None if there is none."""
        idle = [client for client in self._clients if client.place not in waiting]
        if not idle:
            return None
        client = self._random.choice(idle)
        (api,) = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        # A client without a generation mostly joins.
        if client.generation < 0 and self._chance(0.5):
            api = "JoinGroup"
        row = HANDLERS[api].row
        # Some codes are of the newest version alone.
        version = row.versions[-1] if self._chance(0.2) else self._random.choice(row.versions)
        return client.place, Draft(api, version, getattr(self, f"_{row.name}")(client, version))

    def take(self, place: int, draft: Draft, ours: Json, theirs: Json) -> None:
        """Take the responses of both sides; they differ in the ids that the sides assigned."""
        client = self._clients[place]
        code = ours.get("error_code", 0)
        if draft.api == "JoinGroup" and code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            if client.name != _NO_NAME:
                self._old.append(client.name)
            client.name = Name(ours["member_id"], theirs["member_id"])
            if code == ErrorCode.NONE:
                client.generation = ours["generation_id"]
                client.protocol = ours["protocol_name"]
                pairs = zip(ours["members"], theirs["members"], strict=False)
                client.members = [
                    Name(mine["member_id"], other["member_id"]) for mine, other in pairs
                ]
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            if self._chance(0.7):
                client.name, client.generation = _NO_NAME, -1
        elif draft.api == "LeaveGroup" and code == ErrorCode.NONE and self._chance(0.7):
            self._old.append(client.name)
            client.name, client.generation = _NO_NAME, -1

    # --- random fields ----------------------------------------------------------------------------

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _who(self, client: _Client) -> Name:
        others = [each.name for each in self._clients]
        return client.name if self._chance(0.88) else self._random.choice([*others, *self._old])

    def _group(self) -> str:
        return self.group_id if self._chance(0.9) else f"{self.group_id}-none"

    def _generation(self, client: _Client) -> int:
        if self._chance(0.85):
            return client.generation
        return self._random.choice([client.generation - 1, client.generation + 1, *_LATE])

    def _instance(self, client: _Client) -> str | None:
        return client.instance if self._chance(0.92) else self._random.choice([None, "i0", "i9"])

    def _join_group(self, client: _Client, version: int) -> Json:
        subscription = encode_subscription(Subscription(self._topics()))
        names = self._protocols if self._chance(0.6) else self._protocols[:1]
        if self._chance(0.08):
            names = self._random.choice([[], ["x"], self._protocols[1:]])
        fields: Json = {
            "group_id": self.group_id if self._chance(0.99) else "",
            "session_timeout_ms": self._random.choice(
                _SESSIONS if self._chance(0.96) else _BAD_SESSIONS
            ),
            "rebalance_timeout_ms": self._random.choice(_SESSIONS),
            "member_id": self._who(client),
            "protocol_type": self._type if self._chance(0.96) else "other",
            "protocols": [
                {"name": name, "metadata": subscription if self._chance(0.9) else b"\0\1?"}
                for name in names
            ],
        }
        if version >= 5:
            fields["group_instance_id"] = self._instance(client)
        return fields

    def _sync_group(self, client: _Client, version: int) -> Json:
        named = client.members if self._chance(0.9) else [*client.members, *self._old]
        fields: Json = {
            "group_id": self.group_id,
            "generation_id": self._generation(client),
            "member_id": self._who(client),
            "assignments": [
                {"member_id": name, "assignment": bytes(self._random.choices(range(256), k=5))}
                for name in named
                if self._chance(0.95)
            ],
        }
        if version >= 3:
            fields["group_instance_id"] = self._instance(client)
        if version >= 5:
            known = self._chance(0.9)
            fields["protocol_type"] = self._type if known else self._random.choice([None, "other"])
            known = self._chance(0.9)
            fields["protocol_name"] = (
                client.protocol if known else self._random.choice([None, "other"])
            )
        return fields

    def _heartbeat(self, client: _Client, version: int) -> Json:
        fields: Json = {
            "group_id": self.group_id,
            "generation_id": self._generation(client),
            "member_id": self._who(client),
        }
        if version >= 3:
            fields["group_instance_id"] = self._instance(client)
        return fields

    def _leave_group(self, client: _Client, version: int) -> Json:
        if version < 3:
            return {"group_id": self.group_id, "member_id": self._who(client)}
        leaving = [
            {"member_id": self._who(client), "group_instance_id": self._instance(client)}
            for _ in range(self._random.choice([1, 1, 1, 2, 3, 0]))
        ]
        return {"group_id": self.group_id, "members": leaving}

    def _offset_commit(self, client: _Client, version: int) -> Json:
        is_simple = self._chance(0.25)
        fields: Json = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": -1 if is_simple else self._generation(client),
            "member_id": _NO_NAME if is_simple else self._who(client),
            "topics": [
                {"name": topic, "partitions": [self._committed(each, version) for each in indexes]}
                for topic, indexes in self._partitions()
            ],
        }
        if version >= 7:
            fields["group_instance_id"] = None if is_simple else self._instance(client)
        return fields

    def _committed(self, index: int, version: int) -> Json:
        metadata = self._random.choice(["", "", "m", None]) if self._chance(0.95) else _LONG
        fields: Json = {
            "partition_index": index,
            "committed_offset": self._random.randrange(100),
            "committed_metadata": metadata,
        }
        if version >= 6:
            fields["committed_leader_epoch"] = self._random.choice([-1, 0, 3])
        return fields

    def _offset_fetch(self, _client: _Client, version: int) -> Json:
        topics: Any = [
            {"name": topic, "partition_indexes": indexes} for topic, indexes in self._partitions()
        ]
        if version >= 2 and self._chance(0.4):
            topics = None
        fields: Json
        if version >= 8:
            fields = {"groups": [{"group_id": self.group_id, "topics": topics}]}
        else:
            fields = {"group_id": self.group_id, "topics": topics}
        return fields

    def _describe_groups(self, _client: _Client, _version: int) -> Json:
        return {"groups": [self._group()]}

    def _delete_groups(self, _client: _Client, _version: int) -> Json:
        return {"groups_names": [self._group()]}

    def _offset_delete(self, _client: _Client, _version: int) -> Json:
        return {
            "group_id": self._group(),
            "topics": [
                {"name": topic, "partitions": [{"partition_index": each} for each in indexes]}
                for topic, indexes in self._partitions()
            ],
        }

    def _topics(self) -> tuple[str, ...]:
        return tuple(self._random.choice([["t0"], ["t1"], ["t0", "t1"], []]))

    def _partitions(self) -> list[tuple[str, list[int]]]:
        topics = self._random.choice([["t0"], ["t0"], ["t1"], ["t0", "t1"], ["none"]])
        return [(each, self._random.sample([0, 1, 2, 3, 9], k=2)) for each in topics]
