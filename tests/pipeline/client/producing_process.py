"""A process that produces numbered records until it is killed, or has sent so many.

It prints the number of each record that was acknowledged, as it is acknowledged.
"""

from __future__ import annotations

import sys

from group_coordinator import Producer, RecordMetadata

PARTITIONS = 2


def main(root: str, name: str, most: int) -> None:
    """Send `NAME-NUMBER` to the partitions in turn, a few records at a time."""

    def tell(number: int, where: RecordMetadata | None, error: BaseException | None) -> None:
        if where is None:
            raise SystemExit(f"record {number} is not written: {error}")
        sys.stdout.write(f"{number} {where.partition} {where.offset}\n")

    with Producer(root, linger_ms=1, batch_size=1_000) as producer:
        for number in range(most):
            producer.send(
                "t",
                f"{name}-{number}".encode(),
                partition=number % PARTITIONS,
                on_delivery=lambda *told, number=number: tell(number, *told),
            )
            if number % 5 == 4:
                producer.flush()
                sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
