"""What stores answered, as their client tells it, and what becomes of it: an error and one line."""

from __future__ import annotations

import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError

from group_coordinator.pipeline.delta.bucket import StoreError, StoreRefusal, meant

PATH = "requests/_delta_log/7.json"
DEBUG = '\n\nDebug source:\nGeneric {\n    store: "S3",\n}'


def answered(status: str, body: str, verb: str = "GET", again: str = "") -> str:
    """A message of the client's about an answer."""
    return (
        f"Generic S3 error: Error performing {verb} http://127.0.0.1:9/bucket/7.json?sig=secret "
        f"in 2.25ms{again} - Server returned non-2xx status code: {status}: {body}{DEBUG}"
    )


def xml(code: str, text: str) -> str:
    return f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{text}</Message></Error>'


def unanswered(what: str, causes: str) -> str:
    return (
        "Generic S3 error: Error performing GET http://127.0.0.1:9/bucket/7.json in 2.05s, after 8 "
        f"retries, max_retries: 8, retry_timeout: 15s  - HTTP error: {what}\n\n{causes}"
    )


REFUSED = """Debug source:
        source: hyper_util::client::legacy::Error(Connect, ConnectError("tcp connect error",
            Os { code: 111, kind: ConnectionRefused, message: "Connection refused", }"""


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (
            PermissionDeniedError(
                answered("403 Forbidden", xml("SignatureDoesNotMatch", "Check your key."))
            ),
            StoreRefusal,
            "GET http://127.0.0.1:9/bucket/7.json: 403 Forbidden, SignatureDoesNotMatch: "
            "Check your key.",
        ),
        (
            # Azure says on further lines when, and of what request.
            PermissionDeniedError(
                answered(
                    "403 Forbidden",
                    "<Error>\n<Code>AuthenticationFailed</Code>\n<Message>Server failed.\n"
                    "RequestId:325124ca\nTime:2026-11-23T08:39:20Z</Message>"
                    "<AuthenticationErrorDetail>Date header too old</AuthenticationErrorDetail>",
                )
            ),
            StoreRefusal,
            "GET http://127.0.0.1:9/bucket/7.json: 403 Forbidden, AuthenticationFailed: "
            "Server failed. Date header too old",
        ),
        (
            BaseError(answered("400 Bad Request", xml("ExpiredToken", "It has expired."))),
            StoreRefusal,
            "GET http://127.0.0.1:9/bucket/7.json: 400 Bad Request, ExpiredToken: It has expired.",
        ),
        (
            FileNotFoundError(answered("404 Not Found", xml("NoSuchBucket", "No such bucket."))),
            StoreRefusal,
            "GET http://127.0.0.1:9/bucket/7.json: 404 Not Found, NoSuchBucket: No such bucket.",
        ),
        (
            FileNotFoundError(answered("404 Not Found", xml("NoSuchKey", "No such key."))),
            FileNotFoundError,
            "GET http://127.0.0.1:9/bucket/7.json: 404 Not Found, NoSuchKey: No such key.",
        ),
        (
            FileNotFoundError(answered("404 Not Found", "", "HEAD")),
            FileNotFoundError,
            "HEAD http://127.0.0.1:9/bucket/7.json: 404 Not Found",
        ),
        (
            AlreadyExistsError(
                answered("412 Precondition Failed", xml("PreconditionFailed", "It is."), "PUT")
            ),
            FileExistsError,
            f"{PATH} exists: PUT http://127.0.0.1:9/bucket/7.json: 412 Precondition Failed, "
            "PreconditionFailed: It is.",
        ),
        (
            # Another PUT is under way, and may fail: nothing is there yet.
            AlreadyExistsError(
                answered("409 Conflict", xml("ConditionalRequestConflict", "Again."), "PUT")
            ),
            StoreError,
            "PUT http://127.0.0.1:9/bucket/7.json: 409 Conflict, ConditionalRequestConflict: "
            "Again.",
        ),
        (
            BaseError(
                answered(
                    "503 Service Unavailable",
                    xml("SlowDown", "Slow down."),
                    again=", after 8 retries, max_retries: 8, retry_timeout: 15s ",
                )
            ),
            StoreError,
            "GET http://127.0.0.1:9/bucket/7.json: 503 Service Unavailable, SlowDown: Slow down.",
        ),
        (
            BaseError(unanswered("error sending request", REFUSED)),
            StoreError,
            "GET http://127.0.0.1:9/bucket/7.json: no response in 2.0 s (9 attempts): "
            "Connection refused",
        ),
        (
            BaseError(unanswered("builder error", "Debug source: BadScheme")),
            StoreError,
            "GET http://127.0.0.1:9/bucket/7.json: an endpoint without TLS requires "
            "AWS_ALLOW_HTTP=true",
        ),
        (BaseError("of another kind\n\nDebug"), StoreError, "of another kind"),
    ],
)
def test_an_error_says_what_the_store_said(error, kind, line):
    made = meant(error, PATH)
    assert (type(made), str(made)) == (kind, line)


def test_a_store_s_error_has_its_status():
    error = meant(BaseError(answered("416 Range Not Satisfiable", xml("InvalidRange", ""))), PATH)
    assert isinstance(error, StoreError)
    assert error.status == "416"
