"""The file of users: for each user and SCRAM mechanism what a server needs to check a password.

A line is a JSON object. It holds a salt, a number of iterations, and the two keys of RFC 5802 that
are derived from the password; nobody can log in with what the file holds, but passwords can be
guessed with it, so it is made readable for its owner alone. PLAIN checks its passwords by the same
keys.

Source: RFC 5802, section 3; Apache Kafka, ScramFormatter and ScramCredential.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from group_coordinator.pipeline.clock import monotonic
from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway.security.kept_secret import secret_beside
from group_coordinator.pipeline.gateway_settings import HASHES
from group_coordinator.pipeline.tables.private_file import changing, read_private, write_private
from group_coordinator.schemas.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

# The fewest and most iterations that Kafka takes.
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16_384
_ITERATIONS = f"iterations go from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
_SALT_BYTES = 24
# Right passwords that are remembered.
_MOST_REMEMBERED = 10_000
# How long users stay whose file cannot be read, s, as ACLs do.
KEPT_S = 10.0


class UsersError(Failure):
    """The file of users cannot be read, or a user cannot be as asked for."""


class Credential(Struct, frozen=True, kw_only=True):
    """What a server keeps of one user's password for one mechanism (RFC 5802)."""

    user: str
    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def has_password(self, password: str) -> bool:
        """Whether this is the password; takes milliseconds, by design."""
        salted = _salted(self.mechanism, password, self.salt, self.iterations)
        key = _hmac(self.mechanism, salted, b"Client Key")
        return hmac.compare_digest(hash_of(self.mechanism, key), self.stored_key)


def new_credential(
    user: str, password: str, mechanism: str, iterations: int = LEAST_ITERATIONS
) -> Credential:
    """Derive a credential from a password, with a new salt. Raises UsersError."""
    if not user or "\n" in user:
        raise UsersError("a user's name cannot be empty, nor have line breaks")
    if not password:
        raise UsersError("a password cannot be empty")
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise UsersError(_ITERATIONS)
    return _derived(user, password, mechanism, secrets.token_bytes(_SALT_BYTES), iterations)


def _derived(user: str, password: str, mechanism: str, salt: bytes, iterations: int) -> Credential:
    salted = _salted(mechanism, password, salt, iterations)
    return Credential(
        user=user,
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=hash_of(mechanism, _hmac(mechanism, salted, b"Client Key")),
        server_key=_hmac(mechanism, salted, b"Server Key"),
    )


def hash_of(mechanism: str, data: bytes) -> bytes:
    """The mechanism's hash of some bytes."""
    return hashlib.new(HASHES[mechanism], data).digest()


def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.pbkdf2_hmac(HASHES[mechanism], secret, salt, iterations)


def _hmac(mechanism: str, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, HASHES[mechanism])


class Users:
    """The users of a file, read again whenever the file was written.

    Who is not in the file has made-up credentials, which no password fits: a stranger cannot find
    out who is a user. They are the same ones each time, after a restart and at each gateway that
    reads this file: a secret is kept beside it.

    One thread checks passwords, each for milliseconds, and of each client address one at a time: a
    flood of wrong ones delays log-ins from its own address, and all other log-ins by one check for
    each address that it comes from. A right one is remembered, by an HMAC of a key that only this
    process has: when thousands of connections of some users come back at once, they do not wait for
    each other.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises UsersError for a file that cannot be read, or is no file of users."""
        self._path = Path(path)
        # Since when the file cannot be read.
        self._unread_since: float | None = None
        self._seen = self._stamp()
        self._credentials = _by_user(read_users(self._path))
        self._secret = secrets.token_bytes(32)
        self._kept_secret = self._secret
        try:
            self._kept_secret = secret_beside(self._path)
        except OSError as error:
            log.warning(
                "no secret can be kept beside %s, so strangers can tell who is a user by the salts "
                "before and after a restart: %s",
                self._path,
                error,
            )
        self._checking = ThreadPoolExecutor(1, "passwords")
        self._right: set[bytes] = set()
        # Of each client address from which passwords are checked or wait.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    def credential(self, user: str, mechanism: str) -> Credential:
        """What a password of the user is checked by in a SCRAM mechanism. Raises UsersError."""
        self._look()
        found = self._credentials.get((user, mechanism))
        return self._made_up(user, mechanism) if found is None else found

    def any_credential(self, user: str) -> Credential:
        """What a password is checked by where the mechanism does not matter. Raises UsersError."""
        self._look()
        for mechanism in HASHES:
            found = self._credentials.get((user, mechanism))
            if found is not None:
                return found
        return self._made_up(user, next(iter(HASHES)))

    async def has_password(self, user: str, password: str, host: str) -> bool:
        """Whether this is the user's password, as a client from `host` says. Raises UsersError."""
        credential = self.any_credential(user)
        text = b"\0".join((credential.stored_key, password.encode("utf-8", "surrogatepass")))
        mark = hmac.digest(self._secret, text, "sha256")
        if mark in self._right:
            return True
        turn = self._turns.setdefault(host, asyncio.Lock())
        async with turn:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._checking, credential.has_password, password)
        if right:
            if len(self._right) >= _MOST_REMEMBERED:
                self._right.clear()
            self._right.add(mark)
        return right

    def _made_up(self, user: str, mechanism: str) -> Credential:
        def made(what: str) -> bytes:
            text = f"{what} {mechanism} {user}".encode("utf-8", "surrogatepass")
            return hmac.digest(self._kept_secret, text, "sha512")

        size = hashlib.new(HASHES[mechanism]).digest_size
        return Credential(
            user=user,
            mechanism=mechanism,
            salt=made("salt")[:_SALT_BYTES],
            iterations=self._usual_iterations(mechanism),
            stored_key=made("stored")[:size],
            server_key=made("server")[:size],
        )

    def _usual_iterations(self, mechanism: str) -> int:
        all_of = self._credentials.values()
        found = (each.iterations for each in all_of if each.mechanism == mechanism)
        return next(found, LEAST_ITERATIONS)

    def _look(self) -> None:
        """Read the file again if it was written. Raises UsersError.

        While it cannot be read, its users stay for `KEPT_S`: who was taken out of it meanwhile is
        let in no longer than that.
        """
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._credentials = _by_user(read_users(self._path))
        except UsersError as error:
            now = monotonic()
            since = self._unread_since = self._unread_since or now
            if now - since > KEPT_S:
                raise
            log.warning("%s; the users stay those that were read before", error)
            return
        self._seen, self._unread_since = stamp, None

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise UsersError(f"the users' file {self._path}: {error.strerror}") from error
        return found.st_mtime_ns, found.st_size, found.st_ino


def _by_user(credentials: Iterable[Credential]) -> dict[tuple[str, str], Credential]:
    return {(each.user, each.mechanism): each for each in credentials}


# --- the file -----------------------------------------------------------------------------------


def read_users(path: Path) -> list[Credential]:
    """Read a file of users. Raises UsersError, which names the line that is none."""
    try:
        lines = read_private(path).splitlines()
    except OSError as error:
        raise UsersError(f"the users' file {path}: {error.strerror}") from error
    return [_read_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read_line(path: Path, number: int, line: bytes) -> Credential:
    try:
        read = msgspec.json.decode(line, type=Credential)
    except UNREADABLE as error:
        raise UsersError(f"line {number} of {path} is no user: {error}") from error
    if read.mechanism not in HASHES:
        raise UsersError(f"line {number} of {path} is no user: {read.mechanism}")
    if not LEAST_ITERATIONS <= read.iterations <= MOST_ITERATIONS:
        raise UsersError(f"line {number} of {path}: {_ITERATIONS}, not {read.iterations}")
    return read


def add_user(path: Path, credentials: Iterable[Credential]) -> None:
    """Write credentials into a file of users, in place of older ones; makes the file."""
    with changing(path):
        present = _by_user(read_users(path)) if path.exists() else {}
        _write(path, {**present, **_by_user(credentials)}.values())


def remove_user(path: Path, user: str) -> None:
    """Take a user out of the file. Raises UsersError if it is not in it."""
    with changing(path):
        present = read_users(path)
        kept = [each for each in present if each.user != user]
        if len(kept) == len(present):
            raise UsersError(f"there is no user {user!r} in {path}")
        _write(path, kept)


def _write(path: Path, credentials: Iterable[Credential]) -> None:
    write_private(path, map(msgspec.json.encode, credentials))
