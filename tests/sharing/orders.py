"""A program that writes a table of orders, and appends as many for each line of its input."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from deltalake import write_deltalake


def main(table: str, count: int) -> None:
    first = 0
    while True:
        ids = range(first, first + count)
        rows = pa.table({"id": list(ids), "customer": [f"c{number % 100}" for number in ids]})
        write_deltalake(table, rows, mode="append")
        first += count
        print(json.dumps({"rows": count, "seconds": 0.0}), flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
