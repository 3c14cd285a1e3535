"""The exceptions that a msgspec decoder raises for bytes that it cannot decode."""

import msgspec

# Bad JSON or a bad field, bad UTF-8, nesting too deep for the stack.
UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
