"""What may be decompressed: within a budget, whatever bytes say; Snappy's frames and blocks."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.pipeline.gateway.compression import (
    Budget,
    Oversized,
    Undecodable,
    decompress,
)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MOST_BYTES = 1_000
HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
BLOCKS = st.lists(st.binary(max_size=60), min_size=1, max_size=5)


def block(content: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(content, asbytes=True)
    return packed


def frame(blocks: Sequence[bytes]) -> bytes:
    """A frame of snappy-java's."""
    packed = map(block, blocks)
    return HEAD + b"".join(struct.pack(">i", len(each)) + each for each in packed)


def taken(data: bytes, most_bytes: int = MOST_BYTES) -> bytes:
    return decompress(SNAPPY, memoryview(data), Budget(most_bytes))


@given(BLOCKS)
def test_a_frame_is_its_blocks_and_a_block_needs_no_frame(blocks: list[bytes]) -> None:
    content = b"".join(blocks)
    assert taken(frame(blocks), len(content)) == taken(block(content), len(content)) == content


@given(BLOCKS)
def test_what_is_larger_than_it_may_be_is_refused(blocks: list[bytes]) -> None:
    content = b"".join([*blocks, b"x"])
    for data in (frame([*blocks, b"x"]), block(content)):
        with pytest.raises(Oversized):
            taken(data, len(content) - 1)


@given(BLOCKS, st.data())
def test_a_frame_that_is_cut_off_has_whole_blocks_or_is_refused(
    blocks: list[bytes], data: st.DataObject
) -> None:
    whole = frame(blocks)
    size = data.draw(st.integers(0, len(whole) - 1))
    ends = {len(frame(blocks[:count])): b"".join(blocks[:count]) for count in range(len(blocks))}
    if size in ends:
        assert taken(whole[:size]) == ends[size]
    else:
        with pytest.raises(Undecodable):
            taken(whole[:size])


@pytest.mark.parametrize("size", [8, 15])
def test_a_frame_whose_head_is_cut_off_is_not_an_empty_one(size: int) -> None:
    with pytest.raises(Undecodable, match="its head is cut off"):
        taken(frame([b"content"])[:size])


@given(st.binary(max_size=40), st.booleans())
def test_any_other_bytes_are_refused_in_one_way(content: bytes, is_framed: bool) -> None:
    try:
        found = taken(HEAD + content if is_framed else content)
    except (Undecodable, Oversized):
        return
    assert len(found) <= MOST_BYTES


# --- a budget ---------------------------------------------------------------------------------

BUDGET = 50 << 20
# Each says that it becomes as much as may be, and has one byte.
LIES = {
    "snappy": (SNAPPY, b"\x80\x80\x80\x19\0a"),
    "xerial": (SNAPPY, HEAD + struct.pack(">i", 6) + b"\x80\x80\x80\x19\0a"),
    "lz4": (
        LZ4,
        b"\x04\x22\x4d\x18\x68\x70" + struct.pack("<QB", BUDGET, 0xAB) + b"\1\0\0\x80a\0\0\0\0",
    ),
    "zstd": (ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", BUDGET) + b"\x09\0\0a"),
}


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Check that no more of Python's memory is taken at once while the block runs, bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LIES)
def test_a_size_that_is_a_lie_is_not_allocated(name: str) -> None:
    codec, data = LIES[name]
    with at_most(2 << 20), pytest.raises(Undecodable):
        decompress(codec, memoryview(data), Budget(BUDGET))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_no_more_is_decompressed_than_is_taken(codec: int) -> None:
    content = bytes(20 << 20)
    names = {SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
    packed = (
        gzip.compress(content)
        if codec == GZIP
        else pa.Codec(names[codec]).compress(content, asbytes=True)
    )
    assert decompress(codec, memoryview(packed), Budget(len(content))) == content
    with at_most(6 << 20), pytest.raises(Oversized):
        decompress(codec, memoryview(packed), Budget(2 << 20))


def test_blocks_share_what_a_frame_may_become() -> None:
    blocks = [bytes(1 << 20)] * 5
    with at_most(6 << 20), pytest.raises(Oversized):
        taken(frame(blocks), 2 << 20)
