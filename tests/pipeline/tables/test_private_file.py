"""Files of users and of keys: two commands at once lose nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.gateway import users
from group_coordinator.pipeline.gateway.users import (
    add_user,
    new_credential,
    read_users,
    remove_user,
)
from group_coordinator.pipeline.tables import request_keys
from group_coordinator.pipeline.tables.request_keys import add_key, new_key, read_keys, remove_key


def add_u(path: Path, name: str) -> None:
    add_user(path, [new_credential(name, "secret", "SCRAM-SHA-256")])


def add_k(path: Path, name: str) -> None:
    add_key(path, new_key(name, "User:a"))


def names_u(path: Path) -> set[str]:
    return {each.user for each in read_users(path)}


def names_k(path: Path) -> set[str]:
    return {each.name for each in read_keys(path)}


@pytest.mark.parametrize(
    ("module", "add", "remove", "names"),
    [(users, add_u, remove_user, names_u), (request_keys, add_k, remove_key, names_k)],
)
def test_two_commands_at_once_lose_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    add: Callable[[Path, str], None],
    remove: Callable[[Path, str], None],
    names: Callable[[Path], set[str]],
) -> None:
    """The second one comes when the first has read the file, and not written it."""
    path = tmp_path / "file"
    for name in ("a", "b"):
        add(path, name)
    write = module._write  # type: ignore[attr-defined]
    others: list[threading.Thread] = []

    def slow(*given: object) -> None:
        if not others:
            others.append(threading.Thread(target=remove, args=(path, "b")))
            others[0].start()
            # As long as the second one takes, or longer, if nothing keeps it from going on.
            others[0].join(0.5)
        write(*given)

    monkeypatch.setattr(module, "_write", slow)
    add(path, "c")
    others[0].join()
    assert names(path) == {"a", "c"}


def test_a_lock_of_who_was_killed_is_nobodys(tmp_path: Path) -> None:
    """The lock is the system's, not the file's."""
    path = tmp_path / "file"
    add_k(path, "a")
    assert [each.name for each in tmp_path.iterdir() if each != path] == [".file.lock"]
    assert (tmp_path / ".file.lock").stat().st_mode & 0o077 == 0
    add_k(path, "b")
    assert names_k(path) == {"a", "b"}


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.parametrize(("add", "names"), [(add_u, names_u), (add_k, names_k)])
def test_a_file_that_others_can_write_to_is_refused(
    tmp_path: Path, add: Callable[[Path, str], None], names: Callable[[Path], set[str]], mode: int
) -> None:
    path = tmp_path / "file"
    add(path, "a")
    path.chmod(mode)
    with pytest.raises(Failure, match=rf"other users can write to it \(mode {mode:04o}\)"):
        names(path)


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 1), (0o604, 1)])
@pytest.mark.parametrize(("add", "names"), [(add_u, names_u), (add_k, names_k)])
def test_of_a_file_that_others_can_read_the_log_says_so(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    add: Callable[[Path, str], None],
    names: Callable[[Path], set[str]],
    mode: int,
    warnings: int,
) -> None:
    path = tmp_path / "file"
    add(path, "a")
    path.chmod(mode)
    assert names(path) == {"a"}
    assert len(caplog.messages) == warnings
    assert all(f"(mode {mode:04o})" in text for text in caplog.messages)
