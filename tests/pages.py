"""The project's pages: their links, and their code blocks, run in an empty folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from group_coordinator.pipeline.settings import load_settings
from group_coordinator.pipeline.tables.store import ensure_tables
from tests.ends import check_end
from tests.pipeline.gateway.running import coordinator, gateway
from tests.users import make_own_folders
from tests.waiting import wait_until

TOP = Path(__file__).parent.parent
ROOMS = (".github", "conf", "coordinator", "pipeline", "schemas", "tests")
PAGES = sorted(
    [TOP / "README.md", *(page for room in ROOMS for page in (TOP / room).rglob("*.md"))]
)
# The locations in the pages. They are replaced when a page is run.
DATA, ADDRESS = "/data/", "localhost:9092"
_FENCE = re.compile(r" *```(\w*)$")
_NOT_RUN = re.compile(r" *<!-- (?:not run: \S.*|test command) -->$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# More than any line here takes, s.
_LIMIT_S = 180


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its fence, from 1. A comment says why it is not run."""

    line: int
    language: str
    text: str
    is_run: bool


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = []
    begun, language, before, is_run = 0, "", "", True
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and not begun:
            begun, language, inside = number, fence[1], []
            is_run = _NOT_RUN.match(before) is None
        elif fence:
            found.append(Block(begun, language, "\n".join(inside), is_run))
            begun = 0
        elif begun:
            inside.append(line)
        before = line
    return found


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    fenced = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
    return fenced.sub("", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading."""
    broken = []
    for link in _LINK.findall(prose(text)):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = page.parent / name if name else page
        there = text if target == page else target.read_text("utf-8") if anchor else ""
        if not target.exists() or (anchor and anchor not in anchors(there)):
            broken.append(link)
    return broken


class Reader(contextlib.ExitStack):
    """A runner of the blocks of one page in order, in a separate folder.

    `run` starts a coordinator without Spark, and a gateway for `--gateway`. With `spark` it runs
    the command itself. A line that ends with & keeps running until the end.
    """

    def __init__(self, folder: Path, spark: bool = False) -> None:
        super().__init__()
        self._folder, self._spark = folder, spark
        self._user = folder / "user"
        make_own_folders(self._user)
        self._address = ADDRESS
        self._names: dict[str, Any] = {}
        self._said = ""

    def take(self, block: Block) -> None:
        """Run a block; compare one without a language with the output of the block before it."""
        text = self._as_here(block.text)
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(text, f"<line {block.line}>", "exec"), self._names)
            self._said = out.getvalue()
        elif block.language == "toml":
            path = self._user / "settings.toml"
            path.write_text(text, "utf-8")
            load_settings(path)
        elif block.language == "sh":
            commands = [line for line in text.splitlines() if not self._starts(line)]
            self._said = self._shell("\n".join(commands))
        else:
            assert block.language == "", f"nothing runs {block.language}"
            printed = [" ".join(line.split()) for line in self._said.splitlines()]
            for line in text.splitlines():
                begun = " ".join(line.split())
                assert any(each.startswith(begun) for each in printed), (line, self._said)

    def _as_here(self, text: str) -> str:
        return text.replace(DATA, f"{self._folder}/").replace(ADDRESS, self._address)

    def _starts(self, line: str) -> bool:
        """Start the coordinator if the line is its command; return whether it is."""
        match = re.match(r"group-coordinator run --root (\S+)(.*) &$", line)
        if match is None:
            return False
        root = match[1]
        if self._spark:
            self._address = f"localhost:{free_port()}"
            self._run(line.removesuffix(" &").replace(ADDRESS, self._address))
            return True
        ensure_tables(root)
        self.enter_context(coordinator(root))
        if "--gateway" in match[2]:
            broker = self.enter_context(gateway(root))
            self._address = f"{broker.host}:{broker.port}"
        return True

    def _run(self, command: str) -> None:
        log = self._folder / "run.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command.split(), cwd=self._user, env=self._environment(), stdout=out, stderr=out
            )

        def end() -> None:
            process.terminate()
            check_end(process.wait(_LIMIT_S), log)

        self.callback(end)
        wait_until(log.read_text, lambda: re.search("^ready$", log.read_text(), re.M), _LIMIT_S)

    def _shell(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", self._as_here(commands)],
            cwd=self._user,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_LIMIT_S,
        )
        check_end(done.returncode, done.stdout)
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Return the user's environment, with the command of this one, and wide tables."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "COLUMNS": "250"}


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def read(page: Path, folder: Path, spark: bool = False) -> Iterator[Block]:
    """Run the blocks of a page one after the other; yield each before it is run."""
    with Reader(folder, spark) as reader:
        for block in blocks(page.read_text("utf-8")):
            if block.is_run:
                yield block
                reader.take(block)
