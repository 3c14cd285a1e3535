"""PLAIN and SCRAM prove who a client is, and the file of users lets nobody in by itself."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from group_coordinator.pipeline import clock
from group_coordinator.pipeline.cli.credentials import users_app
from group_coordinator.pipeline.gateway import authenticator
from group_coordinator.pipeline.gateway.authenticator import (
    AuthenticationFailed,
    Authenticator,
    Plain,
    Scram,
    begin,
)
from group_coordinator.pipeline.gateway.refusals import RefusalCounts
from group_coordinator.pipeline.gateway.users import (
    STALE_LIMIT_S,
    Credential,
    Users,
    UsersError,
    _derive,
    add_user,
    hash_of,
    new_credential,
    read_users,
    remove_user,
)
from group_coordinator.pipeline.gateway.wire import InvalidFrame
from group_coordinator.pipeline.gateway_settings import HASHES
from group_coordinator.pipeline.tables import private_file
from group_coordinator.pipeline.tables.private_file import create_private
from tests.clocks import AheadClocks
from tests.examples import texts

# Client addresses.
HERE, OTHER, THIRD = "10.0.0.1", "10.0.0.2", "10.0.0.3"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    add_user(path, [new_credential("alice", "wonder", "SCRAM-SHA-256")])
    return path


def ask(mechanism: Plain | Scram, *tokens: str) -> list[bytes]:
    async def all_of_them() -> list[bytes]:
        return [await mechanism.answer(token.encode()) for token in tokens]

    return asyncio.run(all_of_them())


def test_the_exchange_of_rfc_7677_is_answered_as_there(path: Path) -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    add_user(path, [_derive("user", "pencil", "SCRAM-SHA-256", salt, 4096)])
    scram = Scram("SCRAM-SHA-256", Users(path), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first, last = ask(
        scram,
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    )
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.user == "user"


class OneUser:
    """A credential for whoever asks, of the fewest iterations that there can be."""

    def __init__(self, mechanism: str, password: str) -> None:
        self.salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), b"salt", 1)
        self.mechanism = mechanism
        self.asked: list[str] = []

    def credential(self, user: str, mechanism: str) -> Credential:
        assert mechanism == self.mechanism
        self.asked.append(user)
        return Credential(
            user=user,
            mechanism=mechanism,
            salt=b"salt",
            iterations=1,
            stored_key=hash_of(mechanism, self.key("Client Key")),
            server_key=self.key("Server Key"),
        )

    def key(self, name: str) -> bytes:
        return hmac.digest(self.salted, name.encode(), HASHES[self.mechanism])

    def proof(self, exchange: str) -> str:
        """What a client that has the password proves it by (RFC 5802, section 3)."""
        key = self.key("Client Key")
        signed = self.signed(hash_of(self.mechanism, key), exchange)
        return b64encode(bytes(a ^ b for a, b in zip(key, signed, strict=True))).decode()

    def signed(self, key: bytes, exchange: str) -> bytes:
        return hmac.digest(key, exchange.encode(), HASHES[self.mechanism])


NONCES = st.text("abcXYZ019+/-", min_size=1, max_size=9)


@given(
    st.sampled_from(sorted(HASHES)), texts(max_size=9), texts(max_size=9), texts(max_size=9), NONCES
)
def test_whoever_has_the_password_is_let_in_and_nobody_else(
    mechanism: str, user: str, password: str, tried: str, nonce: str
) -> None:
    here, there = OneUser(mechanism, password), OneUser(mechanism, tried)
    scram = Scram(mechanism, cast(Users, here), "SERVER")
    bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    (challenge,) = ask(scram, f"n,,{bare}")
    assert here.asked == [user]
    final = f"c=biws,r={nonce}SERVER"
    exchange = f"{bare},{challenge.decode()},{final}"
    token = f"{final},p={there.proof(exchange)}"
    if tried != password:
        with pytest.raises(AuthenticationFailed):
            ask(scram, token)
        assert scram.user is None
    else:
        (last,) = ask(scram, token)
        assert last == b"v=" + b64encode(here.signed(here.key("Server Key"), exchange))
        assert scram.user == user


def test_a_proof_is_of_the_nonces_of_its_own_exchange() -> None:
    here = OneUser("SCRAM-SHA-256", "pencil")
    for nonce in ("abc", "abcSERVE", "abcSERVERS", "SERVER"):
        scram = Scram("SCRAM-SHA-256", cast(Users, here), "SERVER")
        (challenge,) = ask(scram, "n,,n=user,r=abc")
        final = f"c=biws,r={nonce}"
        proof = here.proof(f"n=user,r=abc,{challenge.decode()},{final}")
        with pytest.raises(AuthenticationFailed):
            ask(scram, f"{final},p={proof}")


PIECES = ["n", "y", ",", "=", "n=user", "r=", "a=", "p=", "c=biws", "abc", "SERVER", "\0", "é", "A"]
TOKENS = st.lists(st.sampled_from(PIECES), max_size=9).map(lambda each: "".join(each).encode())


@given(st.lists(TOKENS | st.binary(max_size=20), min_size=1, max_size=3))
def test_whatever_a_client_sends_is_answered_or_refused_and_lets_nobody_in(
    tokens: list[bytes],
) -> None:
    scram = Scram("SCRAM-SHA-256", cast(Users, OneUser("SCRAM-SHA-256", "pencil")), "SERVER")
    for token in tokens:
        # Any other exception would be a stack trace.
        with suppress(AuthenticationFailed):
            asyncio.run(scram.answer(token))
    assert scram.user is None


FIRST = "n,,n=user,r=abc"


@pytest.mark.parametrize(
    "tokens",
    [
        [""],
        ["n,,n=user"],
        ["n,,n=user,r="],
        ["n,,r=abc,n=user"],
        ["p=tls-unique,,n=user,r=abc"],
        ["n,a=other,n=user,r=abc"],
        [FIRST, ""],
        [FIRST, "c=biws,r=abc,p=AAAA"],
        [FIRST, "c=biws,r=abcSERVER,p=!!"],
        [FIRST, "c=biws,r=abcSERVER,p=AAAA"],
        [FIRST, "c=biws,r=abcSERVER,p=" + "A" * 43 + "="],
        [FIRST, "c=eSws,r=abcSERVER,p=" + "A" * 43 + "="],
        [FIRST, "c=biws,r=abcSERVER"],
        [FIRST, FIRST],
    ],
)
def test_a_token_that_proves_nothing_fails(path: Path, tokens: list[str]) -> None:
    scram = Scram("SCRAM-SHA-256", Users(path), "SERVER")
    with pytest.raises(AuthenticationFailed):
        ask(scram, *tokens)
    assert scram.user is None


@pytest.mark.parametrize(
    ("token", "user"),
    [
        ("\0alice\0wonder", "alice"),
        ("alice\0alice\0wonder", "alice"),
        ("bob\0alice\0wonder", None),
        ("\0alice\0wrong", None),
        ("\0alice\0", None),
        ("\0\0", None),
        ("\0nobody\0wonder", None),
        ("alice wonder", None),
        ("\0alice\0wonder\0", None),
    ],
)
def test_plain_takes_the_password_and_nothing_else(
    path: Path, token: str, user: str | None
) -> None:
    plain = Plain(Users(path), HERE)
    if user is None:
        with pytest.raises(AuthenticationFailed):
            ask(plain, token)
    else:
        assert ask(plain, token) == [b""]
    assert plain.user == user


def test_a_stranger_is_challenged_like_a_user_and_always_in_the_same_way(path: Path) -> None:
    users = Users(path)
    first = [ask(Scram("SCRAM-SHA-512", users, "S"), f"n,,n={n},r=c")[0] for n in ("x", "x", "y")]
    assert first[0] == first[1] != first[2]
    assert all(each.startswith(b"r=cS,s=") and each.endswith(b",i=4096") for each in first)


def challenged(users: Users) -> bytes:
    return ask(Scram("SCRAM-SHA-256", users, "S"), "n,,n=nobody,r=c")[0]


def test_so_it_is_after_a_restart_and_by_another_gateway(path: Path) -> None:
    """A user's salt was the same after a restart, and nobody else's."""
    first = challenged(Users(path))
    assert challenged(Users(path)) == first
    kept = path.with_name(".users.secret")
    assert kept.stat().st_mode & 0o077 == 0
    assert [*path.parent.glob(f"{kept.name}*")] == [kept]
    kept.unlink()
    assert challenged(Users(path)) != first


def test_of_two_gateways_that_begin_at_once_one_makes_the_secret(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: list[bytes] = []
    link = os.link

    def slower(source: str, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        other.append(challenged(Users(path)))
        link(source, target)

    monkeypatch.setattr(os, "link", slower)
    assert challenged(Users(path)) == other[0]


@pytest.mark.parametrize("what", ["read-only", "torn"])
def test_where_no_secret_can_be_kept_users_log_in_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    def fails(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    if what == "torn":
        create_private(path.with_name(".users.secret"), b"short")
    else:
        monkeypatch.setattr(private_file.tempfile, "mkstemp", fails)
    users = Users(path)
    assert ask(Plain(users, HERE), "\0alice\0wonder") == [b""]
    assert challenged(users) == challenged(users)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("no secret can be stored beside")


@pytest.mark.parametrize(
    ("name", "told"),
    [("alice", "'alice'"), ("al\nice", "'al\\nice'"), ("x" * 9_000, f"'{'x' * 60}...'")],
)
def test_the_log_names_who_was_not_let_in(path: Path, name: str, told: str) -> None:
    users = Users(path)
    proof = b64encode(b"x" * 32).decode()
    tokens = {
        "PLAIN": [f"\0{name}\0wrong"],
        "SCRAM-SHA-256": [f"n,,n={name},r=c", f"c=biws,r=cS,p={proof}"],
    }
    for mechanism, sent in tokens.items():
        exchange = Plain(users, HERE) if mechanism == "PLAIN" else Scram(mechanism, users, "S")
        with pytest.raises(AuthenticationFailed) as failed:
            ask(exchange, *sent)
        assert failed.value.logged == f"{failed.value} (user {told})"
        assert told not in str(failed.value)


def test_a_stranger_s_iterations_are_those_of_the_users(path: Path) -> None:
    add_user(path, [new_credential("alice", "wonder", "SCRAM-SHA-256", 8192)])
    (first,) = ask(Scram("SCRAM-SHA-256", Users(path), "S"), "n,,n=nobody,r=c")
    assert first.endswith(b",i=8192")


def test_a_right_password_is_derived_once_and_a_wrong_one_each_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived: list[str] = []
    check = Credential.has_password

    def count(credential: Credential, password: str) -> bool:
        derived.append(password)
        return check(credential, password)

    monkeypatch.setattr(Credential, "has_password", count)
    users = Users(path)
    for password in ("wonder", "wonder", "wrong", "wrong", "wonder"):
        assert asyncio.run(users.has_password("alice", password, HERE)) is (password == "wonder")
    assert derived == ["wonder", "wrong", "wrong"]
    add_user(path, [new_credential("alice", "changed", "SCRAM-SHA-256")])
    assert not asyncio.run(users.has_password("alice", "wonder", HERE))


def test_a_name_may_have_commas_and_equals_signs(path: Path) -> None:
    add_user(path, [new_credential("a,b=c", "x", "SCRAM-SHA-256")])
    seen = ask(Scram("SCRAM-SHA-256", Users(path), "S"), "n,,n=a=2Cb=3Dc,r=c")[0]
    credential = Users(path).credential("a,b=c", "SCRAM-SHA-256")
    assert b64decode(seen.split(b"s=")[1].split(b",")[0]) == credential.salt


def test_a_log_in_waits_for_one_wrong_password_of_each_other_address(path: Path) -> None:
    """It waited for all that others tried, 1.3 ms each."""

    async def story() -> tuple[list[bool], list[bool]]:
        users = Users(path)
        tries = [
            asyncio.ensure_future(users.has_password("alice", f"wrong {number}", host))
            for number in range(100)
            for host in (OTHER, THIRD)
        ]
        await asyncio.sleep(0)
        assert await users.has_password("alice", "wonder", HERE)
        before = [each.done() for each in tries]
        return before, await asyncio.gather(*tries)

    before, found = asyncio.run(story())
    # Of each address one was at work or waited; one more may have been done since.
    assert sum(before) <= 4
    assert found == [False] * 200


def test_nobody_waits_for_a_client_that_has_left(path: Path) -> None:
    async def story() -> None:
        users = Users(path)
        tries = [
            asyncio.ensure_future(users.has_password("alice", f"wrong {number}", HERE))
            for number in range(100)
        ]
        await asyncio.sleep(0)
        for each in tries:
            each.cancel()
        assert await users.has_password("alice", "wonder", HERE)
        assert all(each.cancelled() for each in tries)

    asyncio.run(story())


def test_the_file_holds_no_password_and_is_its_owner_s(path: Path) -> None:
    assert b"wonder" not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    again = new_credential("alice", "wonder", "SCRAM-SHA-256")
    assert read_users(path)[0].stored_key != again.stored_key, "salts differ"


def test_a_change_of_the_file_counts_from_the_next_log_in(path: Path) -> None:
    users = Users(path)
    add_user(path, [new_credential("bob", "builder", "SCRAM-SHA-512")])
    assert ask(Plain(users, HERE), "\0bob\0builder") == [b""]
    remove_user(path, "bob")
    with pytest.raises(AuthenticationFailed):
        ask(Plain(users, HERE), "\0bob\0builder")
    with pytest.raises(UsersError, match="no user 'bob'"):
        remove_user(path, "bob")


def test_while_the_file_is_torn_its_users_stay(path: Path) -> None:
    users = Users(path)
    path.write_bytes(path.read_bytes()[:40])
    assert ask(Plain(users, HERE), "\0alice\0wonder") == [b""]
    with pytest.raises(UsersError, match=r"line 1 of .* is no user"):
        Users(path)
    path.unlink()
    assert ask(Plain(users, HERE), "\0alice\0wonder") == [b""]
    with pytest.raises(UsersError, match="No such file"):
        Users(path)


def ends_connection(users: Users, mechanism: str, token: str) -> bool:
    """Whether a log-in ends the connection, without an answer that a client takes for final."""

    async def log_in() -> None:
        authenticator = Authenticator(users, [mechanism], HERE, RefusalCounts())
        authenticator._exchange = begin(mechanism, users, HERE)
        await authenticator.answer_token(token.encode())

    with pytest.raises(InvalidFrame, match="No such file"):
        asyncio.run(log_in())
    return True


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_passwords_are_counted(
    path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "_FAILED_DELAY_S", 0)
    refused = RefusalCounts()
    proof = b64encode(b"x" * 32).decode()
    tokens = {
        "PLAIN": ["\0alice\0wrong"],
        "SCRAM-SHA-256": ["n,,n=alice,r=c", f"c=biws,r=cS,p={proof}"],
    }[mechanism]

    async def log_in() -> None:
        asked = Authenticator(Users(path), [mechanism], HERE, refused)
        asked._exchange = begin(mechanism, asked._users, HERE)
        for token in tokens:
            await asked.answer_token(token.encode())

    with pytest.raises(InvalidFrame):
        asyncio.run(log_in())
    assert refused.counts() == {("sasl_authenticate", "SASL_AUTHENTICATION_FAILED"): 1}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_nobody_is_let_in_once_the_file_could_not_be_read_for_some_time(
    path: Path, mechanism: str
) -> None:
    first = {"PLAIN": "\0alice\0wonder", "SCRAM-SHA-256": "n,,n=alice,r=nonce"}[mechanism]
    users, clocks, away = Users(path), AheadClocks(), path.with_suffix(".away")

    def log_in() -> list[bytes]:
        return ask(begin(mechanism, users, HERE), first)  # type: ignore[arg-type]

    with clock.use(clocks):
        clocks.monotonic_ahead_s = 3_600
        path.rename(away)
        assert log_in(), "that nobody asked for an hour counts for nothing"
        clocks.monotonic_ahead_s += STALE_LIMIT_S - 1
        assert log_in()
        clocks.monotonic_ahead_s += 2
        with pytest.raises(UsersError, match="No such file"):
            log_in()
        assert ends_connection(users, mechanism, first)
        away.rename(path)
        assert log_in()
        path.rename(away)
        assert log_in(), "the time begins anew"


def test_users_are_added_listed_and_removed_by_the_command(tmp_path: Path) -> None:
    def run(*arguments: str, typed: str = "") -> str:
        done = CliRunner().invoke(users_app, [*arguments, "--file", str(tmp_path / "users")], typed)
        assert done.exit_code == 0, done.output
        return done.output

    run("add", "alice", typed="wonder\n")
    run("add", "bob", "--mechanism", "SCRAM-SHA-512", typed="builder\n")
    assert run("list", "--format", "csv") == (
        'user,mechanisms\nalice,"[""PLAIN"",""SCRAM-SHA-256"",""SCRAM-SHA-512""]"\n'
        'bob,"[""PLAIN"",""SCRAM-SHA-512""]"\n'
    )
    assert ask(begin("PLAIN", Users(tmp_path / "users"), HERE), "\0alice\0wonder") == [b""]  # type: ignore[arg-type]
    run("add", "alice", typed="changed\n")
    with pytest.raises(AuthenticationFailed):
        ask(Plain(Users(tmp_path / "users"), HERE), "\0alice\0wonder")
    run("remove", "alice")
    assert run("list") == "user mechanisms\nbob  PLAIN, SCRAM-SHA-512\n"


@pytest.mark.parametrize("iterations", [1, 4095, 16_385])
def test_a_line_with_too_few_or_too_many_iterations_is_refused(path: Path, iterations: int) -> None:
    line = msgspec.to_builtins(new_credential("eve", "x", "SCRAM-SHA-256"))
    path.write_bytes(msgspec.json.encode({**line, "iterations": iterations}))
    with pytest.raises(UsersError, match=rf"line 1 of .*: iterations go .*, not {iterations}$"):
        read_users(path)


def test_a_line_of_another_release_is_named(path: Path) -> None:
    line = msgspec.to_builtins(new_credential("eve", "x", "SCRAM-SHA-256"))
    path.write_bytes(msgspec.json.encode({**line, "mechanism": "MD5"}))
    with pytest.raises(UsersError, match="MD5"):
        read_users(path)
    assert msgspec.convert(line, Credential).user == "eve"
