"""A client of the fork server. Spark starts it instead of Python.

    python -IS python_shim.py SOCKET PYTHON -m MODULE [ARGUMENT ...]

It sends its arguments, environment and standard streams to the fork server
(`pipeline.session.fork_server`), which forks a process for the work. It forwards SIGTERM to that
process, waits for its end, and exits with its status. If no server listens, it executes PYTHON
instead. To start quickly, it imports only small modules of the standard library.
"""

import marshal
import os
import signal
import socket
import sys

# The options that the server supports: a module, or a program.
_RUN = (["-m"], ["-c"])


def main(address: str, python: str, arguments: list[str]) -> int:
    """Run the command in a fork of the server; return the exit status of the forked process."""
    if arguments[:1] not in _RUN:
        # Another release of Spark may start Python with options that the server does not support.
        os.execv(python, [python, *arguments])
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            os.execv(python, [python, *arguments])
        _rename()
        # Block SIGTERM until the id of the forked process is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        task = marshal.dumps((os.getcwd(), arguments, dict(os.environ)))
        try:
            socket.send_fds(server, [len(task).to_bytes(4, "big")], [0, 1, 2])
            server.sendall(task)
            forked = server.recv(4, socket.MSG_WAITALL)
        except OSError:
            forked = b""
        if len(forked) < 4:
            # The server ended before it forked.
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
        # The forked process has just ended, and its status is about to arrive.
        return


def _rename() -> None:
    """Set a process name that differs from the name of Spark's workers."""
    try:
        with open("/proc/self/comm", "w") as name:
            name.write("spark-shim")
    except OSError:
        # Systems without /proc have no such names.
        return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
