"""Failures that a user can act on."""

from __future__ import annotations

import os
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class Failure(RuntimeError):
    """A failure that ends a command; its one-line message names the problem and the remedy."""


class UsageError(Failure):
    """An invalid call, refused before any work has begun: the exit status is 2."""


class CannotListen(UsageError):
    """A server cannot listen on an address: it is in use, or not of this machine.

    `error` is the operating system's error.
    """

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"cannot listen on {address(host, port)}: {os_error_text(error)}")


def address(host: str, port: int) -> str:
    """Return `HOST:PORT`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def os_error_text(error: OSError) -> str:
    """Return the operating system's description without errno: `Permission denied`."""
    # Error numbers of the resolver are negative. asyncio repeats the address in `strerror`.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def in_words(error: Exception) -> str:
    """Format an error for users: the file's name, without errno."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {os_error_text(error)}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; delta-rs appends a stack trace."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def without_traceback(error: E) -> E:
    """Remove an error's traceback, cause and context, so that it may be stored.

    A traceback keeps its frames' local variables alive. If one of them refers to the error, only
    the garbage collector frees them.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error
