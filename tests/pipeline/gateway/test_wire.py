"""Frames that nobody should send: each is read, or is no frame; nothing else comes of it."""

from __future__ import annotations

import random
import resource

import pytest

from group_coordinator.pipeline.gateway.apis import APIS
from group_coordinator.pipeline.gateway.wire import InvalidFrame, frame_size, read_body, read_header

# Bytes of which lengths, counts and ends are made.
_EDGES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF)
_KEPT = 40


class Frames:
    """Random bodies, and mutations of those that could be read."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._read: dict[tuple[int, int], list[bytes]] = {}

    def body(self, key: int, version: int) -> bytes:
        chance = self._chance
        known = self._read.get((key, version))
        if known is None or chance.random() < 0.3:
            return bytes(self._byte() for _ in range(chance.randint(0, 60)))
        body = bytearray(chance.choice(known))
        for _ in range(chance.randint(1, 4) if body else 0):
            body[chance.randrange(len(body))] = self._byte()
        cut = chance.randrange(len(body) + 1) if chance.random() < 0.3 else len(body)
        return bytes(body[:cut])

    def keep(self, key: int, version: int, body: bytes) -> None:
        kept = self._read.setdefault((key, version), [])
        if len(kept) < _KEPT:
            kept.append(body)

    def version(self, lowest: int, highest: int) -> int:
        return self._chance.randint(lowest, highest)

    def _byte(self) -> int:
        chance = self._chance
        return chance.choice(_EDGES) if chance.random() < 0.8 else chance.randrange(256)


@pytest.mark.parametrize("count", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_body_is_read_or_is_none(count: int) -> None:
    frames, read, torn = Frames(count), 0, 0
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    apis = list(APIS.items())
    for number in range(count):
        key, api = apis[number % len(apis)]
        version = frames.version(api.row.lowest, api.row.highest)
        body = frames.body(key, version)
        try:
            read_body(api, version, body, 0)
        except InvalidFrame:
            torn += 1
        else:
            read += 1
            frames.keep(key, version, body)
    assert min(read, torn) > count // 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200_000


def test_a_header_is_read_or_is_none() -> None:
    frames = Frames(1)
    for _ in range(10_000):
        frame = frames.body(0, 0)
        try:
            header = read_header(frame, lambda key, version: (key + version) % 2 == 0)
        except InvalidFrame:
            continue
        assert 10 <= header.body_at <= len(frame)
        frames.keep(0, 0, frame)


def test_a_size_is_known_with_its_fourth_byte() -> None:
    assert frame_size(bytearray(b"\0\0\0")) is None
    assert frame_size(bytearray(b"\0\0\1\2")) == 258
    assert frame_size(bytearray(b"\xff\xff\xff\xff more")) == -1
