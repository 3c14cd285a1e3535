"""The file of users: one credential for each user and SCRAM mechanism.

A line is a JSON object with a salt, a number of iterations, and two keys that are derived from the
password. The keys are not enough to log in, but allow guessing passwords offline, so the file is
created readable for its owner only. PLAIN checks passwords with the same keys.

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
from group_coordinator.pipeline.gateway_settings import HASHES
from group_coordinator.pipeline.tables import (
    changing,
    create_private,
    read_private,
    write_private,
)
from group_coordinator.schemas.decoding import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

# The fewest and most iterations that Kafka accepts.
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16_384
_ITERATIONS = f"iterations go from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
_SALT_BYTES = 24
# How many correct passwords are cached.
_MOST_CACHED = 10_000
# How long the users that were read last stay valid while the file cannot be read, s. ACLs have the
# same limit.
STALE_LIMIT_S = 10.0


class UsersError(Failure):
    """Error for a file of users that cannot be read, and for an invalid or unknown user."""


class Credential(Struct, frozen=True, kw_only=True):
    """A salt and keys to check one user's password in one mechanism (RFC 5802)."""

    user: str
    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def has_password(self, password: str) -> bool:
        """Return whether this is the password. By design, the check takes milliseconds."""
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
    return _derive(user, password, mechanism, secrets.token_bytes(_SALT_BYTES), iterations)


def _derive(user: str, password: str, mechanism: str, salt: bytes, iterations: int) -> Credential:
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
    """Return the hash of `data` with the mechanism's hash function."""
    return hashlib.new(HASHES[mechanism], data).digest()


def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.pbkdf2_hmac(HASHES[mechanism], secret, salt, iterations)


def _hmac(mechanism: str, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, HASHES[mechanism])


class Users:
    """The users of a file, which is read again whenever it was written.

    For an unknown user, made-up credentials are returned that no password matches, so that clients
    cannot enumerate the users. They are derived from a secret in the folder of the file, so they
    are the same after a restart, and at each gateway that reads this file.

    One thread checks passwords, one at a time for each client address; a check takes milliseconds.
    So a flood of wrong passwords delays log-ins from other addresses only by one check for each
    address of the flood. Correct passwords are cached as an HMAC with a key of this process, so
    that thousands of connections can log in again at once.
    """

    def __init__(self, path: str | Path) -> None:
        """Read the file. Raises UsersError."""
        self._path = Path(path)
        # The time of the first failed read since the last successful one, s of `monotonic`.
        self._unread_since: float | None = None
        self._file_stamp = self._stamp()
        self._credentials = _by_user(read_users(self._path))
        self._secret = secrets.token_bytes(32)
        self._fake_secret = self._secret
        try:
            self._fake_secret = secret_for(self._path)
        except OSError as error:
            log.warning(
                "no secret can be stored beside %s, so clients can find out which users exist: the "
                "salts of other names change at a restart: %s",
                self._path,
                error,
            )
        self._checking = ThreadPoolExecutor(1, "passwords")
        self._correct: set[bytes] = set()
        # A lock for each client address with a check that runs or waits.
        self._checks = WeakValueDictionary[str, asyncio.Lock]()

    def credential(self, user: str, mechanism: str) -> Credential:
        """Return the user's credential for a SCRAM mechanism. Raises UsersError."""
        self._reload()
        found = self._credentials.get((user, mechanism))
        return self._fake_credential(user, mechanism) if found is None else found

    def any_credential(self, user: str) -> Credential:
        """Return the user's credential for any mechanism. Raises UsersError."""
        self._reload()
        for mechanism in HASHES:
            found = self._credentials.get((user, mechanism))
            if found is not None:
                return found
        return self._fake_credential(user, next(iter(HASHES)))

    async def has_password(self, user: str, password: str, host: str) -> bool:
        """Return whether this is the user's password. Raises UsersError.

        `host` is the address of the client that sent it.
        """
        credential = self.any_credential(user)
        text = b"\0".join((credential.stored_key, password.encode("utf-8", "surrogatepass")))
        mark = hmac.digest(self._secret, text, "sha256")
        if mark in self._correct:
            return True
        check = self._checks.setdefault(host, asyncio.Lock())
        async with check:
            loop = asyncio.get_running_loop()
            is_correct = await loop.run_in_executor(
                self._checking, credential.has_password, password
            )
        if is_correct:
            if len(self._correct) >= _MOST_CACHED:
                self._correct.clear()
            self._correct.add(mark)
        return is_correct

    def _fake_credential(self, user: str, mechanism: str) -> Credential:
        def made(what: str) -> bytes:
            text = f"{what} {mechanism} {user}".encode("utf-8", "surrogatepass")
            return hmac.digest(self._fake_secret, text, "sha512")

        size = hashlib.new(HASHES[mechanism]).digest_size
        present = self._credentials.values()
        usual = (each.iterations for each in present if each.mechanism == mechanism)
        return Credential(
            user=user,
            mechanism=mechanism,
            salt=made("salt")[:_SALT_BYTES],
            iterations=next(usual, LEAST_ITERATIONS),
            stored_key=made("stored")[:size],
            server_key=made("server")[:size],
        )

    def _reload(self) -> None:
        """Read the file again if it was written. Raises UsersError.

        If it cannot be read, the previous users stay valid for `STALE_LIMIT_S`. For that time, a
        removed user can still log in.
        """
        try:
            stamp = self._stamp()
            if stamp != self._file_stamp:
                self._credentials = _by_user(read_users(self._path))
        except UsersError as error:
            now = monotonic()
            since = self._unread_since = self._unread_since or now
            if now - since > STALE_LIMIT_S:
                raise
            log.warning(
                "%s; the users that were read before stay valid for %g s", error, STALE_LIMIT_S
            )
            return
        self._file_stamp, self._unread_since = stamp, None

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise UsersError(f"the users' file {self._path}: {error.strerror}") from error
        return found.st_mtime_ns, found.st_size, found.st_ino


def _by_user(credentials: Iterable[Credential]) -> dict[tuple[str, str], Credential]:
    return {(each.user, each.mechanism): each for each in credentials}


# --- the file -------------------------------------------------------------------------------------


def read_users(path: Path) -> list[Credential]:
    """Return the credentials in a file of users. Raises UsersError, which names an invalid line."""
    try:
        lines = read_private(path).splitlines()
    except OSError as error:
        raise UsersError(f"the users' file {path}: {error.strerror}") from error
    return [_read_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read_line(path: Path, number: int, line: bytes) -> Credential:
    try:
        read = msgspec.json.decode(line, type=Credential)
    except DECODE_ERRORS as error:
        raise UsersError(f"line {number} of {path} is no user: {error}") from error
    if read.mechanism not in HASHES:
        raise UsersError(f"line {number} of {path} is no user: {read.mechanism}")
    if not LEAST_ITERATIONS <= read.iterations <= MOST_ITERATIONS:
        raise UsersError(f"line {number} of {path}: {_ITERATIONS}, not {read.iterations}")
    return read


def add_user(path: Path, credentials: Iterable[Credential]) -> None:
    """Write credentials to a file of users, and replace older ones of the same user and mechanism.

    A missing file is created. Raises UsersError.
    """
    with changing(path):
        present = _by_user(read_users(path)) if path.exists() else {}
        _write(path, {**present, **_by_user(credentials)}.values())


def remove_user(path: Path, user: str) -> None:
    """Remove a user from the file. Raises UsersError if the file does not have it."""
    with changing(path):
        present = read_users(path)
        kept = [each for each in present if each.user != user]
        if len(kept) == len(present):
            raise UsersError(f"there is no user {user!r} in {path}")
        _write(path, kept)


def _write(path: Path, credentials: Iterable[Credential]) -> None:
    write_private(path, map(msgspec.json.encode, credentials))


# --- the secret for made-up credentials -----------------------------------------------------------


_SECRET_BYTES = 32


def secret_for(path: Path) -> bytes:
    """Return the secret in the file `.NAME.secret` of the folder of `path`; create it if missing.

    Only the owner of the file can read it. Raises OSError, also for a secret that is too short.
    """
    path = path.resolve()
    kept = path.with_name(f".{path.name}.secret")
    if not kept.exists():
        create_private(kept, secrets.token_bytes(_SECRET_BYTES))
    found = read_private(kept)
    if len(found) < _SECRET_BYTES:
        raise OSError(f"{kept} has {len(found)} bytes: it is no secret")
    return found
