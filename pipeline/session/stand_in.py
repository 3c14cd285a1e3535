"""Stands in for a Python that Spark starts: the fork server does the work in another process.

    python -IS stand_in.py SOCKET PYTHON -m MODULE [ARGUMENT ...]

It hands its arguments, environment and standard streams to `pipeline.session.fork_server` and lives
as long as the process that the server forks: it passes SIGTERM on, and ends with that process's
status. Where no server listens, PYTHON itself takes the place of this process. `socket` is all that
is imported beside built-in modules, so that this process takes little time.
"""

import marshal
import os
import signal
import socket
import sys

# What the server does: a module, or a program.
_RUN = (["-m"], ["-c"])


def main(address: str, python: str, arguments: list[str]) -> int:
    """Return the status with which the process has ended that the server forked."""
    if arguments[:1] not in _RUN:
        # Another release of Spark may start Python in a way that the server does not know.
        os.execv(python, [python, *arguments])
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            os.execv(python, [python, *arguments])
        _rename()
        # A signal that comes before it is known to whom waits until it is.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        task = marshal.dumps((os.getcwd(), arguments, dict(os.environ)))
        try:
            socket.send_fds(server, [len(task).to_bytes(4, "big")], [0, 1, 2])
            server.sendall(task)
            forked = server.recv(4, socket.MSG_WAITALL)
        except OSError:
            forked = b""
        if len(forked) < 4:
            # The server has ended before it forked.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            os.execv(python, [python, *arguments])
        signal.signal(signal.SIGTERM, lambda number, _: _pass_on(number, forked))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        status = server.recv(1)
    return status[0] if status else 1


def _pass_on(number: int, forked: bytes) -> None:
    try:
        os.kill(int.from_bytes(forked, "big"), number)
    except ProcessLookupError:
        # It has just ended, which this process is about to be told.
        return


def _rename() -> None:
    """Take a name of its own in the list of processes: this is none of Spark's workers."""
    try:
        with open("/proc/self/comm", "w") as name:
            name.write("stand-in")
    except OSError:
        # A system without /proc has no such names.
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
