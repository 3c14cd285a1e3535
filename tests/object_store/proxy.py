"""A proxy in front of a store's server that counts requests, delays them, and breaks some.

Run as a program it delays requests, and prints them when it is stopped:

    python -m tests.object_store.proxy --to 127.0.0.1:7070 --listen 127.0.0.1:7071 --delay-ms 20
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote

_END = b"\r\n\r\n"
_CREATED = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nx-goog-generation: 1\r\nContent-Length: 0\r\n\r\n'
_LONGEST_HEAD = 1 << 20
_VERSION = re.compile(r"\d{20}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


@dataclass(frozen=True)
class Asked:
    """A request: its verb, S3's name for it, the key with its bucket, and the client."""

    verb: str
    key: str
    agent: str
    at: float = field(default_factory=time.monotonic)

    @property
    def who(self) -> str:
        """The client program: "delta-rs", "python" (this project's own requests) or "jvm"."""
        if "java" in self.agent.lower():
            return "jvm"
        return self.agent.split()[0][:20] if self.agent else "?"

    @property
    def shape(self) -> str:
        """The key without its version and random names, which differ in each request."""
        return _UUID.sub("ID", _VERSION.sub("N", self.key))


# The faults of a request, instead of passing it on; see `Proxy.fault`.
PASS, REFUSE, LOSE_ANSWER, FAIL_AFTER, HANG = "pass", "503", "lose answer", "500 after", "hang"
CONFLICT, IGNORE_CONDITION = "409", "ignore condition"


class Proxy:
    """A proxy that passes requests on to the server at `to`, in a thread; it listens on `port`.

    `delay_s` is added to each request. `fault` chooses the fault of each request:

    * PASS: none.
    * REFUSE: 503 SlowDown without asking the server.
    * CONFLICT: 409, as from S3 during another conditional PUT of the key.
    * LOSE_ANSWER: the server is asked, and the connection closed without a response.
    * FAIL_AFTER: the server is asked, and the response is 500.
    * HANG: the server is asked, and nothing is answered until the proxy ends.
    * IGNORE_CONDITION: a PUT that the server refuses because of an existing object succeeds, as
      with a store that does not know the condition.

    `translate` receives the head of each request, and returns the server's head. `answered`
    receives that head and the server's response, and returns the response that is passed on.
    """

    def __init__(self, to: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self.asked: list[Asked] = []
        self.delay_s = 0.0
        self.fault: Callable[[Asked], str] = lambda _asked: PASS
        self._to = to
        self.translate: Callable[[bytes], bytes] = lambda head: head
        self.answered: Callable[[bytes, bytes], bytes] = lambda _head, answer: answer
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._clients: set[asyncio.StreamWriter] = set()
        self._ending = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="s3-proxy", daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, host, port, limit=_LONGEST_HEAD), self._loop
        )
        self._server = starting.result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """Count the requests within the block, by verb; the counter is filled at its end."""
        counted: Counter[str] = Counter()
        before = len(self.asked)
        yield counted
        counted.update(asked.verb for asked in self.asked[before:])

    async def _end(self) -> None:
        self._server.close()
        self._ending.set()
        for writer in [*self._clients, *(writer for _, writer in self._idle)]:
            writer.transport.abort()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        if others:
            await asyncio.wait(others, timeout=5)
        # Transports close in the loop's next rounds.
        await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._pass_on(reader, writer):
                    pass
        finally:
            self._clients.discard(writer)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(_END)
        body = await reader.readexactly(_length(head))
        asked = _asked(head, body)
        self.asked.append(asked)
        fault = self.fault(asked)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if fault == REFUSE:
            writer.write(_error(503, "SlowDown"))
            await writer.drain()
            return True
        if fault == CONFLICT:
            writer.write(_error(409, "ConditionalRequestConflict"))
            await writer.drain()
            return True
        answer = await self._ask(self.translate(head) + body, head.startswith(b"HEAD "))
        answer = self.answered(head, answer)
        if fault == IGNORE_CONDITION and answer[9:12] in (b"409", b"412"):
            answer = (
                b'HTTP/1.1 200 OK\r\nETag: "1"\r\nx-goog-generation: 1\r\nContent-Length: 0\r\n\r\n'
            )
        if fault == HANG:
            await self._ending.wait()
            return False
        if fault == LOSE_ANSWER:
            writer.transport.abort()
            return False
        writer.write(_error(500, "InternalError") if fault == FAIL_AFTER else answer)
        await writer.drain()
        return True

    async def _ask(self, request: bytes, is_head: bool) -> bytes:
        while True:
            kept = bool(self._idle)
            reader, writer = (
                self._idle.pop()
                if kept
                else await asyncio.open_connection(*self._to, limit=_LONGEST_HEAD)
            )
            try:
                writer.write(request)
                head = await reader.readuntil(_END)
                while head.startswith(b"HTTP/1.1 100"):
                    head = await reader.readuntil(_END)
                body = b"" if is_head or b" 204 " in head[:14] else await _body(reader, head)
            except (ConnectionError, asyncio.IncompleteReadError):
                writer.close()
                if not kept:
                    raise
                # The server had closed an idle connection.
                continue
            self._idle.append((reader, writer))
            return head + body


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"transfer-encoding: chunked" not in head.lower():
        return await reader.readexactly(_length(head))
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(line, 16) + 2)
        body += line + chunk
        if int(line, 16) == 0:
            return body


def _header(head: bytes, name: str) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return ""


def _length(head: bytes) -> int:
    return int(_header(head, "content-length") or 0)


def _asked(head: bytes, body: bytes) -> Asked:
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    path, _, query = target.partition("?")
    verb = method
    if method == "GET" and any(sign in query for sign in ("list-type", "prefix=", "comp=list")):
        verb = "LIST"
        prefix = re.search(r"prefix=([^&]*)", query)
        path += "/" + (unquote(prefix[1]) if prefix else "")
    elif method == "POST" and (query.startswith("delete") or "comp=batch" in query):
        verb = "DELETE"
    return Asked(verb, unquote(path), _header(head, "user-agent"))


def _error(status: int, code: str) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told to</Message></Error>"
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def report(asked: list[Asked], seconds: float) -> str:
    """Return a table of the requests of this many seconds, the most frequent first."""
    counted = Counter((each.who, each.verb, each.shape) for each in asked)
    lines = [f"{len(asked)} requests in {seconds:.1f} s: {len(asked) / seconds:.2f} a second"]
    lines += [
        f"{number / seconds:8.2f}/s {number:6d}  {who:9} {verb:6} {shape}"
        for (who, verb, shape), number in counted.most_common(40)
    ]
    return "\n".join(lines)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    """Run a proxy until SIGINT or SIGTERM; SIGUSR1 prints the requests since the last print."""
    parser = argparse.ArgumentParser(prog="proxy")
    parser.add_argument("--to", type=_address, required=True)
    parser.add_argument("--listen", type=_address, required=True)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    stop = threading.Event()
    ask = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: ask.set())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Proxy(options.to, *options.listen) as proxy:
        proxy.delay_s = options.delay_ms / 1000
        began = time.monotonic()
        while not stop.wait(0.2):
            if ask.is_set():
                ask.clear()
                found, proxy.asked = proxy.asked, []
                print(report(found, time.monotonic() - began), flush=True)
                began = time.monotonic()
        print(report(proxy.asked, time.monotonic() - began), flush=True)


if __name__ == "__main__":
    main()
