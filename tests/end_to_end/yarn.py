"""YARN on this machine, from Hadoop's own jars: a ResourceManager, two NodeManagers and an HDFS.

The four run in one JVM, which ends with this process. Drivers and executors in YARN's containers
are separate processes, as on any cluster.

The nodes' Python is the one with which the tests' environment was created. As on a cluster, it
lacks the packages that the project needs.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from group_coordinator.pipeline.session.java import find_java
from group_coordinator.pipeline.user_folders import cache_folder
from tests.end_to_end.submitting import LIMIT_S, SPARK_HOME, Submitting
from tests.support.ivy import Module, fetch_jars, spark_jars
from tests.waiting import wait_until

_HADOOP = "org.apache.hadoop"
# A ResourceManager's certificates, which the jar of the small cluster omits.
_BOUNCY_CASTLE = Module("org.bouncycastle", "bcpkix-jdk18on", "1.82")
# The time in which a killed container may end by itself, ms. YARN's default is 250.
_GRACE_MS = 30_000
_NODES = ("node-1", "node-2")
_SETTINGS = {
    "yarn.resourcemanager.hostname": "127.0.0.1",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": "2048",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    # A driver and an executor.
    "yarn.nodemanager.resource.memory-mb": "2560",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # Otherwise a node with a disk that is nine tenths full is excluded.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.sleep-delay-before-sigkill.ms": str(_GRACE_MS),
    # The output of a container stays, for the test to read.
    "yarn.nodemanager.delete.debug-delay-sec": "3600",
}


def find_jars() -> list[Path]:
    """Return the jars of Hadoop's small cluster, of the release that Spark has.

    They are fetched once. Raises JarsNotFetched.
    """
    java = find_java()
    assert java is not None, "there is no Java"
    (api,) = spark_jars().glob("hadoop-client-api-*.jar")
    release = api.stem.rpartition("-")[2]
    # Spark has its dependencies.
    cluster = Module(_HADOOP, "hadoop-client-minicluster", release, alone=True)
    folder = cache_folder() / f"hadoop-minicluster-{release}"
    fetch_jars(java, [cluster, _BOUNCY_CASTLE], folder)
    return sorted(folder.glob("*.jar"))


class Container(NamedTuple):
    """A running container: its id and the process id of its JVM."""

    name: str
    pid: int
    is_executor: bool


class Yarn(Submitting):
    """A cluster under a folder; `hdfs` is the URI of its HDFS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.resolve())
        self.hdfs = ""
        self._jvm: Any = None
        self._client: Any = None
        self._gateway: Any = None
        self._process: Any = None

    def begin(self) -> None:
        """Start all services, and wait until the ResourceManager knows both nodes."""
        self._write_python()
        self._start_jvm(find_jars())
        java = self._jvm.org.apache.hadoop
        configuration = java.conf.Configuration()
        builder = java.hdfs.MiniDFSCluster.Builder(
            configuration, self._jvm.java.io.File(str(self.folder / "hdfs"))
        )
        self.hdfs = str(builder.numDataNodes(1).build().getURI().toString())
        for key, value in {**_SETTINGS, **_addresses(), "fs.defaultFS": self.hdfs}.items():
            configuration.set(key, value)
        # Two nodes in one JVM would otherwise have metrics with the same names.
        java.metrics2.lib.DefaultMetricsSystem.setMiniClusterMode(True)
        manager = java.yarn.server.resourcemanager.ResourceManager()
        _run(manager, java.yarn.conf.YarnConfiguration(configuration))
        for name in _NODES:
            theirs = java.yarn.conf.YarnConfiguration(configuration)
            for key, value in self._of_node(name).items():
                theirs.set(key, value)
            _run(java.yarn.server.nodemanager.NodeManager(), theirs)
        scheduler = manager.getResourceScheduler()
        wait_until("two nodes", lambda: scheduler.getNumClusterNodes() == 2, LIMIT_S)
        self._client = java.yarn.client.api.YarnClient.createYarnClient()
        _run(self._client, configuration)
        self._write_configuration(configuration)

    def _start_jvm(self, jars: list[Path]) -> None:
        (py4j,) = spark_jars().glob("py4j-*.jar")
        with (self.folder / "cluster.log").open("w") as log:
            port, self._process = launch_gateway(
                jarpath=str(py4j),
                classpath=os.pathsep.join([*map(str, jars), f"{spark_jars()}/*"]),
                javaopts=["-Xmx512m", "-XX:+UseSerialGC"],
                java_path=find_java(),
                redirect_stderr=log,
                die_on_exit=True,
                cwd=str(self.folder),
                return_proc=True,
            )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self._jvm = self._gateway.jvm

    def _of_node(self, name: str) -> dict[str, str]:
        addresses = ("address", "localizer.address", "webapp.address", "collector-service.address")
        return {
            "yarn.nodemanager.hostname": "127.0.0.1",
            **{f"yarn.nodemanager.{each}": _free_address() for each in addresses},
            "yarn.nodemanager.local-dirs": str(self.folder / name / "local"),
            "yarn.nodemanager.log-dirs": str(self.folder / name / "logs"),
        }

    def _write_python(self) -> None:
        """Write the nodes' Python, of the driver's release, because Spark refuses another one.

        Spark passes the driver's PYTHONPATH to the nodes. On other machines its folders do not
        exist. Here they do, so Python in a container keeps only the container's paths.
        """
        self.python.write_text(
            "#!/bin/sh\n"
            f'case "$PWD" in {self.folder}/node-*)\n'
            "    PYTHONPATH=$(echo \"$PYTHONPATH\" | tr : '\\n' | "
            'grep -e "^[^/]" -e "^$PWD/" | paste -sd : -)\n'
            "    export PYTHONPATH;;\n"
            "esac\n"
            f'exec {sys._base_executable} "$@"\n'  # type: ignore[attr-defined]
        )
        self.python.chmod(0o755)

    def _write_configuration(self, configuration: Any) -> None:
        """Write an administrator's files: Hadoop's configuration, and Spark's jars on each node.

        Without these jars, each submit packs and uploads the jars of the user's Spark.
        """
        folder = self.folder / "hadoop"
        folder.mkdir()
        wanted = {**_SETTINGS, "fs.defaultFS": self.hdfs}
        for key in _ADDRESSES:
            wanted[key] = configuration.get(key)
        properties = "".join(
            f"<property><name>{key}</name><value>{value}</value></property>\n"
            for key, value in wanted.items()
        )
        text = f"<configuration>\n{properties}</configuration>\n"
        (folder / "core-site.xml").write_text(text)
        (folder / "yarn-site.xml").write_text(text)
        jars = f"spark.yarn.jars local:{SPARK_HOME}/jars/*\n"
        (folder / "spark-defaults.conf").write_text(jars)

    def submit(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start spark-submit as the page on clusters does; its output goes to `NAME.log`."""
        conf = str(self.folder / "hadoop")
        given = {"HADOOP_CONF_DIR": conf, "SPARK_CONF_DIR": conf}
        return self.submit_to("yarn", name, arguments, given)

    def wait_ready(self, name: str, container: str | None = None) -> None:
        """Wait until a submitted job answers requests. Raises AssertionError if it ends before.

        `container` is the driver's, if that is in one.
        """
        said = None if container is None else functools.partial(self.said, container)
        self.until_said(name, "ready", "\nready", said, 600)

    def application(self, name: str) -> str:
        """Return the id of the submitted application, once YARN has it."""
        self.until_said(name, "submitted", "Submitted application application_")
        found = re.search(r"Submitted application (application_\w+)", self.text(name))
        assert found is not None
        return found[1]

    def said(self, container: str) -> str:
        """Return the output and log of the Python of a driver in a container."""
        files = self.folder.glob(f"node-*/logs/*/{container}/stdout")
        return "".join(file.read_text("utf-8", "replace") for file in files)

    def containers(self) -> list[Container]:
        """Return the running containers of all applications."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                here = Path(os.readlink(entry / "cwd"))
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = here.is_relative_to(self.folder) and here.name.startswith("container_")
            if ours and words[0].endswith(b"/java"):
                is_executor = any(b"ExecutorBackend" in word for word in words)
                found.append(Container(here.name, int(entry.name), is_executor))
        return found

    def kill_application(self, name: str) -> None:
        """Kill an application as `yarn application -kill` does."""
        identity = self._jvm.org.apache.hadoop.yarn.api.records.ApplicationId.fromString(name)
        self._client.killApplication(identity)

    def stop(self) -> None:
        """Kill all remaining processes, each by its process id."""
        self.kill_all()
        if self._gateway is not None:
            # First, because it would start the containers again.
            self._gateway.shutdown()
            self._process.kill()
            # A thread of Py4J reads and closes its output.
            self._process.stdin.close()
            self._process.wait()
        for container in self.containers():
            os.kill(container.pid, signal.SIGKILL)


_ADDRESSES = (
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
)


def _addresses() -> dict[str, str]:
    return {key: _free_address() for key in _ADDRESSES}


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def _run(service: Any, configuration: Any) -> None:
    """Start one of YARN's services."""
    service.init(configuration)
    service.start()
