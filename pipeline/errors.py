"""Failures that a person can act on."""

from __future__ import annotations


class Failure(RuntimeError):
    """Something that stops a command; its one-line message says what, and what to do about it."""


def first_line(error: Exception) -> str:
    """Return what an error says first; delta-rs appends a stack."""
    return (str(error).splitlines() or [type(error).__name__])[0]
