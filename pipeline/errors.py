"""Failures that a user can act on."""

from __future__ import annotations

import os
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class Failure(RuntimeError):
    """Ends a command; its one-line message says what is wrong, and what to do about it."""


class WrongCall(Failure):
    """What was asked for cannot be done, and nothing was begun: the exit status is 2."""


class CannotListen(WrongCall):
    """An address that a server cannot take: another process has it, or it is none of this machine.

    `error` is what was raised by whoever tried.
    """

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"nobody can listen at {address(host, port)}: {of_system(error)}")


def address(host: str, port: int) -> str:
    """HOST:PORT; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def of_system(error: OSError) -> str:
    """Return what went wrong in the system's words, without its number: `Permission denied`."""
    # A resolver's own numbers are negative; asyncio puts the address into the text once more.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def in_words(error: Exception) -> str:
    """Return what an error says to people: of a file its name, and no number of the system's."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {of_system(error)}"


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; delta-rs appends a stack trace."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def bare(error: E) -> E:
    """Return an error that may be stored: without its traceback, cause and context.

    A traceback keeps the local variables of its frames alive. If one of them leads back to the
    error, only the garbage collector frees them.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error
