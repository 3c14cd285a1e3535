"""Failures that a user can act on."""

from __future__ import annotations


class Failure(RuntimeError):
    """Ends a command; its one-line message says what is wrong, and what to do about it."""


class WrongCall(Failure):
    """What was asked for cannot be done, and nothing was begun: the exit status is 2."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; delta-rs appends a stack trace."""
    return (str(error).splitlines() or [type(error).__name__])[0]
