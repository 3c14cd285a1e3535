"""Snappy's frames: blocks in any number, and nothing else that bytes may be breaks the caller."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_coordinator.pipeline.gateway.compression import Undecodable, decompress

SNAPPY = 2
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
    return decompress(SNAPPY, memoryview(data), most_bytes)


@given(BLOCKS)
def test_a_frame_is_its_blocks_and_a_block_needs_no_frame(blocks: list[bytes]) -> None:
    content = b"".join(blocks)
    assert taken(frame(blocks), len(content)) == taken(block(content), len(content)) == content


@given(BLOCKS)
def test_what_is_larger_than_it_may_be_is_refused(blocks: list[bytes]) -> None:
    content = b"".join([*blocks, b"x"])
    for data in (frame([*blocks, b"x"]), block(content)):
        with pytest.raises(Undecodable, match="it has more than"):
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
    except Undecodable:
        return
    assert len(found) <= MOST_BYTES
