"""What a number of members takes on paper: roots, cores, and requests to an object store.

A root has a gateway, which commits once in `linger_s`, and a node, which answers in as many
micro-batches; a tenant's members are on one root. No root has more members than one was seen to
hold at that interval of heartbeats (`Measured`). `pipeline/bench/LIMITS.md` says why it is roots
that are added, and not nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Struct, field

from group_coordinator.pipeline.bench.report import Column, Report

MEMBERS = 1_000_000
LINGERS_S = (0.1, 1.0)
# The list price of S3 for 1,000 PUTs and for 1,000 GETs, USD, and a month of 30 days.
PUT_USD, GET_USD = 0.005, 0.0004
_MONTH_S = 30 * 86_400
# The most members that one root was seen to hold, by the interval of their heartbeats, s.
HELD = {3.0: 60_000, 30.0: 300_000}


class Measured(Struct, frozen=True):
    """What one root was seen to do.

    `held` members were on `cores`, with a gateway, a node and the clients beside them, by the
    interval of their heartbeats, s (`bench held`). The others are requests to an object store, as
    the README counts them.
    """

    held: Mapping[float, int] = field(default_factory=lambda: HELD)
    cores: float = 2.0
    puts_of_commit: float = 2.0
    puts_of_batch: float = 2.1
    gets_of_batch: float = 6.1


class Size(Struct, frozen=True):
    """What so many members take. Commits and requests to the store are those of all roots."""

    heartbeat_s: Annotated[float, Column("heartbeat s", "g")]
    linger_s: Annotated[float, Column("linger s", "g")]
    per_second: Annotated[float, Column("requests/s", ",.0f")]
    roots: Annotated[int, Column("roots", ",.0f")]
    cores: Annotated[float, Column("cores", ",.0f")]
    commits: Annotated[float, Column("commits/s", ",.0f")]
    puts_usd: Annotated[float, Column("PUTs, USD a month", ",.0f")]
    gets_usd: Annotated[float, Column("GETs", ",.0f")]


class SizeReport(Report):
    """So many members, by the interval of their heartbeats and the gateways' linger."""

    members: int
    sizes: list[Size]

    def title(self) -> str:
        """How many members."""
        return f"{self.members:,} members"

    def rows(self) -> list[Size]:
        """All sizes."""
        return self.sizes


def bench_size(
    members: int = MEMBERS,
    lingers_s: Sequence[float] = LINGERS_S,
    seen: Measured | None = None,
) -> SizeReport:
    """Work out each interval of heartbeats that was measured with each linger, s."""
    seen = seen or Measured()
    found = [
        size(members, heartbeat_s, linger_s, seen)
        for heartbeat_s in seen.held
        for linger_s in lingers_s
    ]
    return SizeReport(members, found)


def size(members: int, heartbeat_s: float, linger_s: float, seen: Measured) -> Size:
    """Share members out to as many roots as it takes."""
    roots = math.ceil(members / seen.held[heartbeat_s])
    each = roots / linger_s
    puts = each * (seen.puts_of_commit + seen.puts_of_batch)
    return Size(
        heartbeat_s,
        linger_s,
        members / heartbeat_s,
        roots,
        roots * seen.cores,
        2 * each,
        puts * _MONTH_S / 1000 * PUT_USD,
        each * seen.gets_of_batch * _MONTH_S / 1000 * GET_USD,
    )
