"""What Kafka's tools printed, in a form in which two runs can be compared, and its file.

A line of the file is a JSON object: either `given`, what was done to the broker meanwhile, or
`script`, `args`, `exit`, `stdout` and `stderr` of a tool. The text is exact, but for what no two
runs have in common. That has its width still, because columns are as wide as what they hold: digits
of member ids and of times in logs are 0, the port is 99999, and the folder of files is `FOLDER`.
Client ids that a tool numbers have the number 0. The frames of stack traces are left out, and so is
the list of all options behind an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

RECORDED = Path(__file__).parent / "recorded"
FOLDER = "FOLDER"
_PORT = re.compile(r"127\.0\.0\.1:\d{5}\b")
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_LOG_TIME = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]", re.MULTILINE)
_TOPIC_ID = re.compile(r"(?<=TopicId: )[\w-]{22}\b")
_CLIENT = re.compile(r"clientId=adminclient-\d+")
# The order in which the tools name these is that of a hash set.
_NAMES = re.compile(
    r"(?<=Valid states are: ).*|(?<=following scenarios: \[).*(?=\]$)"
    r"|(?<=only supports operations \[).*(?=\]$)",
    re.MULTILINE,
)
# How a broker's Java objects are written, in the message of an authorization that failed.
_REQUEST = re.compile(r"Request Request\(.*\) needs ")
_FRAMES = re.compile(r"^\tat .*\n|^\t\.\.\. \d+ more\n", re.MULTILINE)
_OPTIONS = re.compile(r"^Option +Description.*", re.MULTILINE | re.DOTALL)


class Printed(NamedTuple):
    """What a tool printed, and the status that it ended with."""

    status: int
    out: str
    err: str


class Told(NamedTuple):
    """Something that happened: a tool was run, or, without a script, what `words` says was done."""

    script: str
    words: tuple[str, ...]
    printed: Printed

    @property
    def question(self) -> str:
        """The command line."""
        return " ".join([self.script, *self.words])


def given(text: str) -> Told:
    """What was done to the broker between two runs of tools."""
    return Told("", (text,), Printed(0, "", ""))


def plain(text: str, folder: Path) -> str:
    """A text without what no two runs have in common."""
    text = text.replace(str(folder), FOLDER)
    text = _PORT.sub("127.0.0.1:99999", text)
    for pattern in (_UUID, _LOG_TIME):
        text = pattern.sub(lambda found: re.sub(r"[0-9a-f]", "0", found[0]), text)
    text = _CLIENT.sub("clientId=adminclient-0", text)
    text = _REQUEST.sub("Request Request(...) needs ", text)
    text = _NAMES.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)
    text = _TOPIC_ID.sub("A" * 22, text)
    return _OPTIONS.sub("OPTIONS\n", _FRAMES.sub("", text))


def write(told: Sequence[Told], file: Path) -> None:
    """Keep what was told."""
    file.parent.mkdir(exist_ok=True)
    lines = (json.dumps(_line(each), ensure_ascii=False) for each in told)
    file.write_text("".join(f"{line}\n" for line in lines))


def read(file: Path) -> list[Told]:
    """What was kept."""
    return [_told(json.loads(line)) for line in file.read_text().splitlines()]


def _line(told: Told) -> dict[str, object]:
    if not told.script:
        return {"given": told.words[0]}
    status, out, err = told.printed
    return {
        "script": told.script,
        "args": list(told.words),
        "exit": status,
        "stdout": out,
        "stderr": err,
    }


def _told(line: dict[str, str]) -> Told:
    if "given" in line:
        return given(line["given"])
    printed = Printed(int(line["exit"]), line["stdout"], line["stderr"])
    return Told(line["script"], tuple(line["args"]), printed)
