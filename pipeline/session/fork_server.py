"""A fork server for Spark's Python processes, which has imported their modules.

A query starts five Python processes and their workers in sequence, while the JVM waits. Each would
import Spark's worker, pandas, Arrow and this package, a large part of the CPU time of a start. The
fork server imports them once, while the JVM starts, and forks each process. Instead of Python,
Spark starts the script `ForkServer.python`. It runs `pipeline.session.python_shim`, which starts
Python itself if the server has ended.

The server has one thread, because a lock that another thread holds during a fork would stay locked
in the child. It imports modules without calling their functions, so that delta-rs's runtime and
Arrow's thread pools start in the forks. If it finds another thread after the imports, it prints an
error and ends.

The server listens in a folder that only this user can enter, and ends at the end of its standard
input, thus with the driver.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import marshal
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from group_coordinator.pipeline.session.driver_jvm import ignore_interrupts
from group_coordinator.pipeline.session.scratch import ScratchFolder

# Modules that the Python processes of a query import. The modules that they run are not listed
# (`pyspark.daemon`, and `python_streaming_source_runner` for the source of a stream), because runpy
# warns if such a module has been imported.
_SPARKS = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.datasource",
)
# The server's process name.
NAME = "fork-server"
_STREAMS = 3
# Options of jemalloc in Arrow and delta-rs. Without its threads it purges memory during calls.
_ALLOCATORS = ("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF")
_NO_THREAD = "background_thread:false"


class ForkServer:
    """A server that has imported `modules`; `python` is the script that Spark starts for Python.

    `environment` has the values of variables for all forks that the C library and Python read only
    at their start, thus once, in the server. Modules that cannot be imported are skipped. Raises
    OSError if the server or the script cannot be started.
    """

    def __init__(self, environment: Mapping[str, str], modules: Iterable[str]) -> None:
        self._folder = ScratchFolder()
        folder = str(self._folder.path)
        address = f"{folder}/socket"
        # A client that connects before the imports are done waits for them.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), folder, *modules],
                stdin=subprocess.PIPE,
                env={**os.environ, **environment, **_without_threads()},
                pass_fds=[listener.fileno()],
                preexec_fn=ignore_interrupts,
            )
        shim = Path(__file__).with_name("python_shim.py")
        command = [sys.executable, "-IS", str(shim), address, sys.executable]
        script = Path(folder) / "python"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o700)
        if not os.access(script, os.X_OK):
            self.end()
            raise OSError(f"{folder} is on a disk that does not allow to start programs")
        self.python = str(script)

    def end(self) -> None:
        """End the server; its forks keep running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.delete()


def _without_threads() -> dict[str, str]:
    """Return the environment variables that disable the threads of the allocators."""
    before = {name: os.environ.get(name) for name in _ALLOCATORS}
    return {
        name: f"{value},{_NO_THREAD}" if value else _NO_THREAD for name, value in before.items()
    }


@functools.cache
def begin(environment: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> ForkServer:
    """Return this process's server, and start it if there is none. It ends with this process.

    `environment` has the variables that Spark adds for its Python processes. `modules` are the
    imports of the session's functions, in addition to Spark's modules.
    """
    # Spark's defaults: a worker has one core, and hash values are equal in all processes.
    spark = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    server = ForkServer({**spark, **dict(environment)}, (*_SPARKS, *modules))
    atexit.register(server.end)
    return server


def main(fd: int, folder: str, modules: Iterable[str]) -> None:
    """Fork a process for each client that connects, until the end of standard input."""
    _rename(NAME)
    with socket.socket(fileno=fd) as listener:
        for name in modules:
            # Other releases of Spark may lack the module.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if others := _other_threads():
            print(
                f"fork server: no fork is safe, because it has threads ({', '.join(others)}): each "
                "Python process of Spark imports its modules itself",
                file=sys.stderr,
            )
            shutil.rmtree(folder, ignore_errors=True)
            return
        # Spark collects garbage after each task. Frozen objects are skipped, also in the forks, so
        # their memory pages are not written and stay shared.
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        poll = select.poll()
        poll.register(sys.stdin, select.POLLIN)
        poll.register(listener, select.POLLIN)
        while sys.stdin.fileno() not in dict(poll.poll()):
            asker, _ = listener.accept()
            with asker:
                if os.fork() == 0:
                    listener.close()
                    _become(asker)
    shutil.rmtree(folder, ignore_errors=True)


def _other_threads() -> list[str]:
    """Return the names of all threads except the main one, with native threads of libraries."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    return [(task / "comm").read_text().strip() for task in tasks]


def _become(asker: socket.socket) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        arguments = _take_over(asker)
        asker.sendall(os.getpid().to_bytes(4, "big"))
        status = _run(*arguments)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        asker.sendall(bytes([status]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _take_over(asker: socket.socket) -> list[str]:
    """Take over the client's standard streams, folder and environment; return its arguments."""
    size, fds, _, _ = socket.recv_fds(asker, 4, _STREAMS)
    task = b""
    while len(task) < int.from_bytes(size, "big"):
        task += asker.recv(1 << 16)
    folder, arguments, environment = marshal.loads(task)
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    known = set(sys.path)
    added = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [each for each in added if each and each not in known]
    _rename("python")
    return [str(each) for each in arguments]


def _run(option: str, what: str, *arguments: str) -> int:
    """Run a module or a program like Python's -m and -c; return the exit status.

    Raises ValueError for other options.
    """
    try:
        if option == "-m":
            sys.argv = [what, *arguments]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif option == "-c":
            sys.argv = ["-c", *arguments]
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        else:
            raise ValueError(f"Spark starts Python by {option!r}, and not by -m or -c")
    except SystemExit as end:
        return end.code % 256 if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _rename(name: str) -> None:
    """Set the name of this process, as tools like ps show it."""
    Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
