"""Processes that are asked for as Python's, and are forks of one that has imported already."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_coordinator.pipeline.session import fork_server
from group_coordinator.pipeline.session.fork_server import ForkServer
from group_coordinator.pipeline.stream import WORKER_IMPORTS
from tests.ends import check_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    made = ForkServer({}, ["colorsys", "no_such_module"])
    yield made
    made.end()


def ask(server: ForkServer, *arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    command = [server.python, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload,no-any-return]


def test_what_the_server_has_imported_is_there(server: ForkServer) -> None:
    assert ask(server, "-c", "import sys; print('colorsys' in sys.modules)").stdout == "True\n"


def test_a_process_has_the_streams_folder_and_environment_of_who_asks(
    server: ForkServer, tmp_path: Path
) -> None:
    (tmp_path / "asked_for.py").write_text(
        "import os, sys\n"
        "assert __name__ == '__main__'\n"
        "print(os.getcwd(), sys.argv[1:], os.environ, sys.stdin.read())\n"
        "sys.exit('to standard error')\n"
    )
    environment = {"ONLY": "this", "PYTHONPATH": str(tmp_path)}
    done = ask(server, "-m", "asked_for", "a", "b", cwd=tmp_path, env=environment, input="x")
    assert f"{tmp_path} ['a', 'b']" in done.stdout
    assert "'ONLY': 'this'" in done.stdout and "HOME" not in done.stdout
    assert done.stdout.endswith(" x\n")
    check_end(done.returncode, done.stderr, 1)


def test_a_status_is_told(server: ForkServer) -> None:
    check_end(ask(server, "-c", "raise SystemExit(7)").returncode, expected=7)


def test_an_error_goes_to_who_asks(server: ForkServer) -> None:
    done = ask(server, "-c", "1 / 0")
    check_end(done.returncode, done.stderr, 1)
    assert "ZeroDivisionError" in done.stderr


def test_a_process_that_is_killed_is_no_success(server: ForkServer) -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    check_end(ask(server, "-c", program).returncode, expected=1)


def test_sigterm_is_passed_on(server: ForkServer) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('runs', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([server.python, "-c", program], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        check_end(process.wait(), expected=3)


def test_it_has_one_thread_with_all_that_a_query_imports() -> None:
    server = ForkServer({"OMP_NUM_THREADS": "1"}, [*fork_server._SPARKS, *WORKER_IMPORTS])
    program = """
import os, sys
print(os.listdir(f"/proc/{os.getppid()}/task") == [str(os.getppid())], "deltalake" in sys.modules)
"""
    done = ask(server, "-c", program)
    server.end()
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_server_that_has_another_thread_forks_nothing_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ForkServer({}, ["threaded"])
    done = ask(server, "-c", "import sys; print('threaded' in sys.modules)")
    server.end()
    check_end(done.returncode, done.stderr)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert (
        "fork server: no fork is safe, because it has threads (fork-server): "
        in capfd.readouterr().err
    )


def test_without_a_server_python_itself_is_started() -> None:
    server = ForkServer({}, ["colorsys"])
    script = Path(server.python)
    stayed = script.read_text()
    server.end()
    assert not script.parent.exists()
    script.parent.mkdir()
    script.write_text(stayed)
    script.chmod(0o700)
    done = ask(server, "-c", "import sys; print('colorsys' in sys.modules, sys.executable)")
    shutil.rmtree(script.parent)
    assert done.stdout == f"False {sys.executable}\n"


def test_what_the_server_does_not_know_python_does(server: ForkServer) -> None:
    done = ask(server, "-u", "-c", "import sys; print('colorsys' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert ask(server, "--version").stdout == f"Python {sys.version.split()[0]}\n"


def test_its_name_is_the_one_by_which_workers_are_found(server: ForkServer) -> None:
    parent = ask(server, "-c", "import os; print(os.getppid())").stdout
    assert Path(f"/proc/{int(parent)}/comm").read_text().strip() == fork_server.NAME
    assert int(parent) != os.getpid()
