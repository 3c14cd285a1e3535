"""What `run` refuses, in one line and with status 2, before it starts anything; so do servers."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path

import pytest

from group_coordinator.pipeline.cli.main import main
from group_coordinator.pipeline.errors import CannotListen


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run with options; return the one line that says why not."""

    def run(*options: str, settings: str = "", root: Path = tmp_path) -> str:
        config = tmp_path / "my.toml"
        config.write_text(settings)
        command = ["group-coordinator", "run", "--root", str(root), "--config", str(config)]
        monkeypatch.setattr(sys, "argv", [*command, *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert not (root / "_logs").exists(), "nothing was begun"
        return line.removeprefix("group-coordinator: ")

    return run


@pytest.mark.parametrize("listen", ["localhost:990000", "localhost", ":9092", "localhost:-1"])
def test_an_address_that_is_none(refused, listen: str) -> None:
    line = f"{listen!r} is not HOST:PORT with a port from 0 to 65535"
    assert refused("--gateway", listen) == line


def test_an_address_that_another_process_has(refused) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        line = f"cannot listen on {listen}: Address already in use"
        assert refused("--gateway", listen) == line


@pytest.mark.parametrize("verb", ["gateway", "ui", "metrics"])
def test_a_server_says_of_such_an_address_what_run_says(
    verb: str, root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ["group-coordinator", verb, "--root", root, "--listen", listen]
        monkeypatch.setattr(sys, "argv", command)
        monkeypatch.setattr("group_coordinator.pipeline.cli.main.hide_pandas", lambda: None)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    line = f"group-coordinator: cannot listen on {listen}: Address already in use\n"
    assert capsys.readouterr().err == line


def test_an_address_that_was_taken_meanwhile_is_told_of_in_the_same_words() -> None:
    """The address is in the message of asyncio, too."""
    error = OSError(errno.EADDRINUSE, "error while attempting to bind on address ('::1', 1): ...")
    told = "cannot listen on [::1]:1: Address already in use"
    assert str(CannotListen("::1", 1, error)) == told


def test_an_address_that_is_given_twice(refused) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    line = f"--gateway and --metrics cannot both listen at {listen}"
    assert refused("--gateway", listen, "--metrics", listen) == line


def test_clients_cannot_be_told_to_use_all_addresses(refused) -> None:
    line = "clients cannot connect to 0.0.0.0:0, all addresses: add --advertise HOST:PORT"
    assert refused("--gateway", "0.0.0.0:0") == line


def test_nobody_is_told_of_a_gateway_that_is_none(refused) -> None:
    line = "--advertise needs a gateway: add --gateway HOST:PORT"
    assert refused("--advertise", "kafka.example:9092") == line


def test_a_host_that_nobody_knows(refused) -> None:
    assert refused("--gateway", "no host:9092").startswith("cannot listen on no host:9092")


def test_a_root_that_is_a_file(refused, tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.touch()
    assert refused(root=root) == f"the root {root} is not a folder"


def test_a_root_in_a_folder_that_is_not_there(refused, tmp_path: Path) -> None:
    root = tmp_path / "typo" / "root"
    assert refused(root=root) == (
        f"the root {root} cannot be created: the folder {root.parent} does not exist"
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            "[coordinator]\nlaese.ms = 1",
            "[coordinator] unknown setting 'laese.ms'; did you mean 'lease.ms'?",
        ),
        (
            "[group]\ngroup.max.sise = 1",
            "[group] unknown setting 'group.max.sise'; did you mean 'group.max.size'?",
        ),
        ("[groups]\na = 1", "unknown section [groups]; did you mean 'group'?"),
        ("[coordinator]\nlease.ms = -1", "[coordinator] Expected `int` >= 1000 - at `$.lease.ms`"),
        ("[upkeep]\nretain.interval.ms = -1", "`int` >= 1 - at `$.retain.interval.ms`"),
        ("[coordinator]\nadvertised.port = 990000", "<= 65535 - at `$.advertised.port`"),
        (
            "[gateway]\nmax.conections = 1",
            "[gateway] unknown setting 'max.conections'; did you mean 'max.connections'?",
        ),
        ("a b", "is not TOML"),
    ],
)
def test_a_setting_that_is_none(refused, settings: str, line: str) -> None:
    assert line in refused(settings=settings)


def test_a_gateway_beside_it_has_one_listener(refused) -> None:
    named = '[gateway]\nlisteners = "PLAINTEXT://localhost:0"'
    line = "--gateway has one listener: run the verb `gateway` for the listeners of [gateway]"
    assert refused("--gateway", "localhost:0", settings=named) == line
