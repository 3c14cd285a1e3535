"""The Python processes that Spark starts, forked from one that has imported what they need.

A query starts five Python processes and their workers one after the other. Each would import
Spark's worker, pandas, Arrow and this package anew, a large part of a start's CPU time, while the
JVM waits. The fork server imports all of it once, beside the start of the JVM, and each further
process is a fork of it. Spark is to start `ForkServer.python` instead of Python: a script that runs
`pipeline.session.stand_in`. If the server has ended, the script starts Python.

The server has one thread: a lock that another one holds while the process forks would stay locked
in the fork for ever. It imports, and calls nothing of what it imports: delta-rs's runtime and
Arrow's pools begin in the forks, and the threads by which their allocators tidy up are switched
off. A server that has another thread all the same says so and ends.

It listens in a folder that only this user can enter, and ends with its input, which is when the
driver ends. If both are killed, a later start deletes the folder (`pipeline.session.scratch`).
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

# What the Python processes of a query import. Not the modules that they run (`pyspark.daemon`, and
# of a stream's source `python_streaming_source_runner`): Python warns of a module that is to be run
# and has been imported.
_SPARKS = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.datasource",
)
# The server's name in the list of processes.
NAME = "fork-server"
_STREAMS = 3
# jemalloc's threads in Arrow and in delta-rs; without them it tidies up as it is called.
_ALLOCATORS = ("JE_ARROW_MALLOC_CONF", "_RJEM_MALLOC_CONF")
_NO_THREAD = "background_thread:false"


class ForkServer:
    """A server that has imported `modules`; `python` is the script that stands in for Python.

    What the C library and Python read as they start is read once, in the server: `environment` is
    what is to be so in all forks. Modules that cannot be imported are left to the forks. Raises
    OSError where no server, or no script, can be started.
    """

    def __init__(self, environment: Mapping[str, str], modules: Iterable[str]) -> None:
        self._folder = ScratchFolder()
        folder = str(self._folder.path)
        address = f"{folder}/socket"
        # Who comes before the imports are done waits for them, and does not import for itself.
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
        stand_in = Path(__file__).with_name("stand_in.py")
        command = [sys.executable, "-IS", str(stand_in), address, sys.executable]
        script = Path(folder) / "python"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o700)
        if not os.access(script, os.X_OK):
            self.end()
            raise OSError(f"{folder} is on a disk from which no program can be started")
        self.python = str(script)

    def end(self) -> None:
        """End the server; its forks go on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.delete()


def _without_threads() -> dict[str, str]:
    """What the allocators read as they are loaded; the last of two values of an option holds."""
    before = {name: os.environ.get(name) for name in _ALLOCATORS}
    return {
        name: f"{value},{_NO_THREAD}" if value else _NO_THREAD for name, value in before.items()
    }


@functools.cache
def begin(environment: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> ForkServer:
    """Start this process's server, if it has none; it ends with this process.

    `environment` is what Spark sets for its Python processes beside the driver's own environment,
    and `modules` what the session's functions import in them beside Spark's own modules.
    """
    # As Spark sets them, where the user does not: a worker has one core, and hashes are the same.
    spark = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
    server = ForkServer({**spark, **dict(environment)}, (*_SPARKS, *modules))
    atexit.register(server.end)
    return server


def main(fd: int, folder: str, modules: Iterable[str]) -> None:
    """Fork a process for each that asks, until the input ends."""
    _rename(NAME)
    with socket.socket(fileno=fd) as listener:
        for name in modules:
            # Another release of Spark may not have it.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if others := _other_threads():
            print(
                f"fork server: has threads ({', '.join(others)}), so that no fork is safe: each "
                "Python process of Spark imports for itself",
                file=sys.stderr,
            )
            shutil.rmtree(folder, ignore_errors=True)
            return
        # Spark collects garbage after each task: frozen objects are left out, also in the forks,
        # and a page of memory that is not written to stays shared.
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
    """The names of this process's threads but the main one, those of libraries among them."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    return [(task / "comm").read_text().strip() for task in tasks]


def _become(asker: socket.socket) -> NoReturn:
    """Be the process that was asked for."""
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
    """Take the asker's streams, folder and environment; return its arguments."""
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
    """Run a module or a program, as Python does by -m and -c; return the status."""
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
    """Give this process a name in the list of processes, by which its work is known."""
    Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
