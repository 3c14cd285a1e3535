"""A real Kafka broker on this machine: one node with its own controller, in a temporary folder."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from group_coordinator.pipeline.errors import Failure
from group_coordinator.pipeline.node.process import end
from tests.support.kafka_libs import java

HOST = "127.0.0.1"
_STOP_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 120.0
_HEAP = "-Xmx1g"
_PROPERTIES = """\
process.roles=broker,controller
node.id=0
controller.quorum.voters=0@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


class Broker:
    """A broker from the jars in `libs`, running from construction until `stop`.

    `settings` are added to the properties of a single broker on this machine. Raises Failure, with
    the end of its log, if it does not start.
    """

    def __init__(self, libs: Path, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="group-coordinator-kafka-"))
        self._log = self._folder / "log"
        self.port, controller_port = _free_ports(2)
        properties = self._folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                host=HOST, port=self.port, controller_port=controller_port, folder=self._folder
            )
            + "".join(f"{key}={value}\n" for key, value in settings.items())
        )
        classpath = [java(), _HEAP, "-cp", f"{libs}/*"]
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Joined by "=", because an id that begins with "-" would be parsed as an option.
        named = f"--cluster-id={cluster}"
        storage = ["kafka.tools.StorageTool", "format", named, "-c", str(properties)]
        with self._log.open("ab") as log:
            subprocess.run([*classpath, *storage], stdout=log, stderr=log, check=False)
            self._process = subprocess.Popen(
                [*classpath, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._await()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._process.pid

    def _await(self) -> None:
        """Wait until it accepts connections."""
        limit = time.monotonic() + _READY_TIMEOUT_S
        while True:
            if self._process.poll() is not None or time.monotonic() > limit:
                last = "; ".join(self._log.read_text(errors="replace").strip().splitlines()[-5:])
                raise Failure(f"the broker did not come up: {last or 'it said nothing'}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
            time.sleep(0.1)

    def stop(self) -> None:
        """End the broker, and delete its folder."""
        end(self._process, _STOP_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def broker(libs: Path, settings: Mapping[str, object] = MappingProxyType({})) -> Iterator[Broker]:
    """Run a broker during the block."""
    running = Broker(libs, settings)
    try:
        yield running
    finally:
        running.stop()


def _free_ports(count: int) -> list[int]:
    """Return free ports."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
