"""Rows on standard output: whole for programs, safe and within the terminal for people."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from group_coordinator.pipeline.cli import printing, upkeep
from group_coordinator.pipeline.cli.printing import (
    Column,
    OutputFormat,
    print_note,
    print_result,
    print_rows,
    print_structs,
    print_table,
)
from group_coordinator.pipeline.monitor.catalog import Result
from group_coordinator.pipeline.quoting import quoted
from group_coordinator.pipeline.records.record_file import Tally

HOSTILE = "a\x1b[31m\r\nb\x9b2J\u202ec"
LONG = "consumer-1-" + "0123456789abcdef" * 16
TABLE, JSON, CSV = OutputFormat.TABLE, OutputFormat.JSON, OutputFormat.CSV


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(printing, "sys", SimpleNamespace(stdout=made))
    monkeypatch.setenv("COLUMNS", "80")
    return made


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    made = io.StringIO()
    monkeypatch.setattr(printing, "sys", SimpleNamespace(stdout=made))
    return made


# --- for programs ---------------------------------------------------------------------------------

ROW = [
    "g",
    7,
    None,
    1.5,
    True,
    datetime(2026, 11, 22, 12),
    [{"topic": "t", "at": datetime(1, 1, 1)}],
]
NAMES = list("abcdefg")


def test_json_has_every_value_whole_and_times_of_utc(pipe: io.StringIO) -> None:
    print_rows(JSON, NAMES, [ROW])
    assert json.loads(pipe.getvalue()) == {
        **dict(zip("abcde", ROW[:5], strict=True)),
        "f": "2026-11-22T12:00:00Z",
        "g": [{"topic": "t", "at": "0001-01-01T00:00:00Z"}],
    }


def test_csv_has_the_same(pipe: io.StringIO) -> None:
    print_rows(CSV, NAMES, [ROW])
    names, values = csv.reader(io.StringIO(pipe.getvalue()))
    assert names == NAMES
    nested = '[{"topic":"t","at":"0001-01-01T00:00:00Z"}]'
    assert values == ["g", "7", "", "1.5", "true", "2026-11-22T12:00:00Z", nested]


def test_numbers_of_more_than_64_bits_are_texts(pipe: io.StringIO) -> None:
    print_rows(JSON, ["sum"], [[2**70]])
    assert json.loads(pipe.getvalue()) == {"sum": str(2**70)}


@pytest.mark.parametrize("format_", [JSON, CSV])
def test_a_long_name_is_never_cut_for_programs(format_: OutputFormat, terminal: Terminal) -> None:
    print_rows(format_, ["member_id"], [[LONG]])
    assert LONG in terminal.getvalue()


@given(st.text())
def test_what_programs_read_is_what_was_there(text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for format_ in (JSON, CSV):
            pipe = io.StringIO(newline="")
            patched.setattr(printing, "sys", SimpleNamespace(stdout=pipe))
            print_rows(format_, ["a"], [[text]])
            if format_ is JSON:
                assert json.loads(pipe.getvalue()) == {"a": text}
            else:
                assert list(csv.reader(io.StringIO(pipe.getvalue(), newline="")))[1:] == [[text]]


# --- for people -----------------------------------------------------------------------------------


def is_safe(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.parametrize("format_", OutputFormat)
def test_no_control_byte_reaches_a_terminal(format_: OutputFormat, terminal: Terminal) -> None:
    print_rows(format_, [HOSTILE], [[HOSTILE], [[{HOSTILE: HOSTILE}]]])
    assert is_safe(terminal.getvalue())
    assert len(terminal.getvalue().splitlines()) == (2 if format_ is JSON else 3)


def test_a_table_of_structs_has_the_columns_that_are_chosen(pipe: io.StringIO) -> None:
    class Shown(Struct):
        group_id: str
        lag: int
        state: str

    columns = [Column("STATE", 8, "state"), Column("GROUP", 5, "group_id")]
    print_structs(TABLE, Shown, [Shown("g", 7, "Stable")], columns)
    print_structs(CSV, Shown, [Shown("g", 7, "Stable")], columns)
    assert pipe.getvalue() == "STATE    GROUP\nStable   g\ngroup_id,lag,state\ng,7,Stable\n"


def test_no_control_byte_reaches_a_table_in_a_pipe_either(
    pipe: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    print_result(TABLE, Result([HOSTILE], [(HOSTILE,)]))
    print_note(f"group {HOSTILE}")
    assert is_safe(pipe.getvalue() + capsys.readouterr().err)


def test_no_control_byte_reaches_what_is_said_of_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    upkeep._show_tally("exported", Tally(named=[HOSTILE]), json=True)
    said = capsys.readouterr()
    assert json.loads(said.out)["named"] == [HOSTILE]
    assert is_safe(said.out + said.err)


@given(st.text())
def test_what_is_quoted_can_be_seen_and_what_can_be_seen_is_left_alone(text: str) -> None:
    assert quoted(text).isprintable()
    assert not text.isprintable() or quoted(text) == text


def test_a_long_name_is_cut_in_a_terminal(terminal: Terminal) -> None:
    print_table([Column("GROUP"), Column("CONSUMER-ID"), Column("LAG")], [["g", LONG, 17]])
    heading, line = terminal.getvalue().splitlines()
    assert len(line) <= 80
    assert "consumer-1-0123" in line
    assert line.split()[-1] == "17"
    assert heading.index("LAG") == line.index("17")


def test_a_long_name_is_whole_in_a_pipe(pipe: io.StringIO) -> None:
    print_table([Column("CONSUMER-ID")], [[LONG]])
    assert pipe.getvalue() == f"CONSUMER-ID\n{LONG}\n"


def asked(rows: int, columns: int, value: Any) -> Result:
    return Result([f"column_{n}" for n in range(columns)], [(value,) * columns] * rows)


def test_a_name_of_many_kb_widens_only_its_own_row(pipe: io.StringIO) -> None:
    names = ["x" * 30_000, *map(str, range(25))]
    print_table([Column("GROUP", 25), Column("STATE", 20)], [(name, "Empty") for name in names])
    heading, longest, *others = pipe.getvalue().splitlines()
    assert longest == "x" * 30_000 + " Empty"
    assert {line.index("Empty") for line in others} == {heading.index("STATE")} == {101}


def test_rows_that_are_too_wide_for_any_cut_stand_upright(terminal: Terminal) -> None:
    print_result(TABLE, asked(2, 12, [{"topic": "t", "partitions": [0, 1]}]))
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "--- row 1"
    assert lines[1] == 'column_0   [{"topic":"t","partitions":[0,1]}]'
    assert lines[13] == "--- row 2"


def test_rows_that_fit_when_they_are_cut_lie(terminal: Terminal) -> None:
    print_result(TABLE, asked(2, 5, "x" * 40))
    assert [len(line) <= 80 for line in terminal.getvalue().splitlines()] == [True] * 3


def test_a_query_without_rows_has_its_heading(pipe: io.StringIO) -> None:
    print_result(TABLE, asked(0, 2, None))
    assert pipe.getvalue() == "column_0 column_1\n"
