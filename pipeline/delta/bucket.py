"""A bucket of an object store: its client, its availability, and the client's errors.

The client's message has the request and the response, with XML as body for S3 and Azure; without a
response, the causes as Rust prints them. The error raised here has the store's reason on one line.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import Failure, first_line

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Client

log = logging.getLogger(__name__)

# The library's own retries: 2 to 3 s in total if each attempt is refused at once.
RETRY: RetryConfig = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
CLIENT: ClientConfig = {
    "timeout": timedelta(seconds=20),
    "connect_timeout": timedelta(seconds=5),
}
# The HTTP status for a range that the object does not have.
EMPTY_RANGE = "416"
# The retry budget (s) for a store that has answered before, including the library's own retries. It
# is less than a coordinator's `progress.timeout.ms`. A store that never answered is not retried:
# its host name may be mistyped.
RETRY_BUDGET_S = 45.0

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
# The causes that the client prints. The last one is the root cause.
_CAUSE = re.compile(r'(?:message|error): "([^"\n]+)"')
_TIMEOUT, _TIMED_OUT = "kind: Timeout", "the request timed out"
_NO_HTTP = "builder error"
# Error codes for a missing object. With another code, a 404 means that something else is missing,
# such as the bucket.
_NO_OBJECT = ("", "NoSuchKey", "BlobNotFound", "PathNotFound", "ResourceNotFound")
# S3's codes for a conditional PUT during another PUT of the same key. The other one may still fail,
# so this one must be retried.
_UNDER_WAY = ("ConditionalRequestConflict", "OperationAborted")
# HTTP 4xx statuses that may be transient.
_PASSING = ("408", "409", "412", "416", "429")


class StoreError(OSError):
    """A request to an object store that failed, or has an unknown outcome.

    `status` is the HTTP status, such as "503"; empty without a response.
    """

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class StoreRefusal(PermissionError):
    """A request that the store did not execute and would refuse again.

    Causes: wrong credentials, missing permissions, a wrong clock, or a missing bucket.
    """


class _Answer(Struct, frozen=True):
    """A store's response: status, and the code and text of its body, which may be empty."""

    request: str
    status: str
    reason: str
    code: str
    text: str

    def line(self) -> str:
        """Return the response on one line."""
        named = ", ".join(filter(None, (f"{self.status} {self.reason}".strip(), self.code)))
        return f"{self.request}: {named}{f': {self.text}' if self.text else ''}"


class Bucket:
    """A bucket or container with its client; it knows whether the store answers."""

    def __init__(self, store: Client) -> None:
        self.store = store
        self.has_answered = False
        self._silent_since: float | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def asked(self, path: str) -> Iterator[None]:
        """Convert the client's errors of a request for a path to those of `ObjectStore`.

        Logs when the store stops answering, and when it answers again.
        """
        try:
            yield
        except (BaseError, FileNotFoundError, ValueError) as error:
            meaning = meant(error, path)
            if isinstance(meaning, StoreError) and meaning.status != EMPTY_RANGE:
                self._has_failed(meaning)
            else:
                self._answers()
            raise meaning from error
        self._answers()

    def _has_failed(self, error: StoreError) -> None:
        with self._lock:
            is_first = self.has_answered and self._silent_since is None
            if is_first:
                self._silent_since = monotonic()
        if is_first:
            log.warning("requests are retried for up to %.0f s: %s", RETRY_BUDGET_S, error)

    def _answers(self) -> None:
        self.has_answered = True
        if self._silent_since is None:
            return
        with self._lock:
            since, self._silent_since = self._silent_since, None
        if since is not None:
            log.info("the store responds again after %.1f s", monotonic() - since)


@functools.lru_cache(maxsize=64)
def bucket_of(uri: str) -> Bucket:
    """Return the bucket of a URI; one for the process."""
    try:
        if uri == "file://":
            return Bucket(LocalStore())
        client: ClientConfig = {**CLIENT, "allow_http": _allows_http(uri)}
        return Bucket(from_url(uri, retry_config=RETRY, client_options=client))
    except (BaseError, ValueError) as error:
        raise Failure(f"the store {uri} cannot be used: {first_line(error)}") from error


def _allows_http(uri: str) -> bool:
    """Return whether requests may go without TLS, as in delta-rs. For GCS the key file decides."""
    scheme = urlparse(uri).scheme
    if scheme == "gs":
        return True
    cloud = "AWS" if scheme in ("s3", "s3a") else "AZURE"
    return os.environ.get(f"{cloud}_ALLOW_HTTP", "").lower() in ("true", "1")


# --- what errors mean -----------------------------------------------------------------------------


def meant(error: Exception, path: str) -> OSError:
    """Return the OSError for a client's error of a request for a path."""
    message = str(error)
    answer = _answer(message)
    if answer is None:
        if isinstance(error, FileNotFoundError):
            return FileNotFoundError(f"{path} does not exist")
        if isinstance(error, AlreadyExistsError):
            return FileExistsError(f"{path} exists: {first_line(error)}")
        return StoreError(_unanswered(message) or first_line(error))
    if answer.status == "404" and answer.code in _NO_OBJECT:
        return FileNotFoundError(answer.line())
    if isinstance(error, AlreadyExistsError) and answer.code not in _UNDER_WAY:
        return FileExistsError(f"{path} exists: {answer.line()}")
    if answer.status.startswith("4") and answer.status not in _PASSING:
        return StoreRefusal(answer.line())
    return StoreError(answer.line(), answer.status)


def _answer(message: str) -> _Answer | None:
    found = _ANSWERED.search(message)
    if found is None:
        return None
    body = found["body"]
    # Azure describes a wrong signature or date in AuthenticationErrorDetail.
    texts = [_element(body, name) for name in ("Message", "AuthenticationErrorDetail")]
    code = _element(body, "Code")
    if not code and not body.lstrip().startswith("<"):
        texts = [" ".join(body.split())[:300]]
    text = " ".join(filter(None, texts))
    return _Answer(_request(found), found["status"], found["reason"], code, text)


def _request(found: re.Match[str]) -> str:
    # The query may have a signature.
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
        return f"{request}: an endpoint without TLS requires {cloud}_ALLOW_HTTP=true"
    causes = _CAUSE.findall(message)
    why = causes[-1] if causes else _TIMED_OUT if _TIMEOUT in message else found["what"]
    attempts = f" ({int(found['again']) + 1} attempts)" if found["again"] else ""
    return f"{request}: no response in {found['took']} {found['unit']}{attempts}: {why}"
