"""Failures that a person can act on."""

from __future__ import annotations


class Failure(RuntimeError):
    """Something that stops a command; its one-line message says what, and what to do about it."""
