"""What a decoder of msgspec raises on bytes that are not what it reads."""

import msgspec

# Bad JSON or a bad field, bad UTF-8, nesting too deep for the stack.
UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
