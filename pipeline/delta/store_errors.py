"""What the client of a store says of a request that failed: which error that is, and its one line.

The client's message has the request, the answer's status and its body, which is XML for S3 and
Azure; or, without an answer, the causes as Rust prints them. Who reads the line wants to know what
the store said, which the client's own first line leaves out.
"""

from __future__ import annotations

import re

from msgspec import Struct
from obstore.exceptions import AlreadyExistsError

from group_coordinator.pipeline.errors import first_line

_ANSWERED = re.compile(
    r"Error performing (?P<verb>[A-Z]+) (?P<uri>\S+) in .*?"
    r"status code: (?P<status>\d+) (?P<reason>[^:\n]*):(?P<body>.*?)(?:\n\nDebug source|\Z)",
    re.DOTALL,
)
_UNANSWERED = re.compile(
    r"Error performing (?P<verb>[A-Z]+) (?P<uri>\S+) in "
    r"(?P<took>\d+(?:\.\d)?)[\d.]*(?P<unit>[^\d\s,]+)"
    r"(?:, after (?P<again>\d+) retries[^\n]*?)?\s+- HTTP error: (?P<what>[^\n]+)"
)
# The causes that the client prints, the last of which is the first to have happened.
_CAUSE = re.compile(r'(?:message|error): "([^"\n]+)"')
_TIMEOUT, _TIMED_OUT = "kind: Timeout", "it took too long"
_NO_HTTP = "builder error"
# Codes by which stores say that an object is not there. Every other code of a 404 is of something
# else that is not there, such as the bucket.
_NO_OBJECT = ("", "NoSuchKey", "BlobNotFound", "PathNotFound", "ResourceNotFound")
# S3's answers to a conditional PUT while another one of the same key is under way, which may fail:
# nothing is there yet, and the PUT is to be repeated.
_UNDER_WAY = ("ConditionalRequestConflict", "OperationAborted")
# Refused today, and perhaps no longer in a moment.
_PASSING = ("408", "409", "412", "416", "429")


class StoreError(OSError):
    """A request to an object store that failed, or whose outcome is not known.

    `status` is that of the store's answer, such as "503"; empty without an answer.
    """

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class StoreRefusal(PermissionError):
    """A request that the store refuses, and would refuse again; it has not done it.

    The keys are wrong or not allowed to, the clock is, or there is no such bucket.
    """


class _Answer(Struct, frozen=True):
    """A store's answer: its status, and the code and the text of its body, which may be empty."""

    request: str
    status: str
    reason: str
    code: str
    text: str

    def line(self) -> str:
        """All of it on one line."""
        named = ", ".join(filter(None, (f"{self.status} {self.reason}".strip(), self.code)))
        return f"{self.request}: {named}{f': {self.text}' if self.text else ''}"


def meant(error: Exception, path: str) -> OSError:
    """Return the error to raise in place of one that the client has raised for a path."""
    message = str(error)
    answer = _answer(message)
    if answer is None:
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(f"{path} is not there")
        if isinstance(error, AlreadyExistsError):
            return FileExistsError(f"{path} is there: {first_line(error)}")
        return StoreError(_unanswered(message) or first_line(error))
    if answer.status == "404" and answer.code in _NO_OBJECT:
        return FileNotFoundError(answer.line())
    if isinstance(error, AlreadyExistsError) and answer.code not in _UNDER_WAY:
        return FileExistsError(f"{path} is there: {answer.line()}")
    if answer.status.startswith("4") and answer.status not in _PASSING:
        return StoreRefusal(answer.line())
    return StoreError(answer.line(), answer.status)


def _answer(message: str) -> _Answer | None:
    found = _ANSWERED.search(message)
    if found is None:
        return None
    body = found["body"]
    # Azure says in a detail of its own what is wrong with a signature or a date.
    texts = [_element(body, name) for name in ("Message", "AuthenticationErrorDetail")]
    code = _element(body, "Code")
    if not code and not body.lstrip().startswith("<"):
        texts = [" ".join(body.split())[:300]]
    text = " ".join(filter(None, texts))
    return _Answer(_request(found), found["status"], found["reason"], code, text)


def _request(found: re.Match[str]) -> str:
    # What follows the path may be a signature.
    return f"{found['verb']} {found['uri'].partition('?')[0]}"


def _element(body: str, name: str) -> str:
    found = re.search(rf"<{name}>(.*?)(?:\s+RequestId:.*?)?</{name}>", body, re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def _unanswered(message: str) -> str | None:
    found = _UNANSWERED.search(message)
    if found is None:
        return None
    request = _request(found)
    if found["what"] == _NO_HTTP and found["uri"].startswith("http:"):
        cloud = "AZURE" if "MicrosoftAzure" in message else "AWS"
        return f"{request}: a store is asked without TLS only if {cloud}_ALLOW_HTTP=true says so"
    causes = _CAUSE.findall(message)
    why = causes[-1] if causes else _TIMED_OUT if _TIMEOUT in message else found["what"]
    again = f", asked {int(found['again']) + 1} times" if found["again"] else ""
    return f"{request}: no answer in {found['took']} {found['unit']}{again}: {why}"
