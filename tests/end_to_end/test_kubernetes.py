"""The requests of the documented spark-submit to Kubernetes: the driver's pod and its properties.

There is no cluster and no pod, only an API server that records the requests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from group_coordinator.pipeline.session.spark_settings import packages
from tests.end_to_end.submitting import SPARK_HOME, is_ours
from tests.ends import check_end

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


class ApiServer:
    """A server that reports each object as created, and keeps it in `made`, by its kind."""

    def __init__(self) -> None:
        made: dict[str, Any] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                content = self.rfile.read(size)
                one = msgspec.json.decode(content)
                made[one["kind"]] = one
                one["metadata"] |= {"uid": one["kind"], "resourceVersion": "1"}
                answer = msgspec.json.encode(one)
                self.send_response(201)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_PATCH = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self.made = made
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    yield server
    server.stop()


def test_the_driver_s_pod_has_the_archive_and_the_image_s_python_not_the_submitter_s(
    api: ApiServer, tmp_path: Path
) -> None:
    archive = "https://store/group-coordinator.tar.gz#group-coordinator"
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", f"k8s://{api.url}", "--deploy-mode", "cluster"),
        *("--conf", "spark.kubernetes.container.image=IMAGE"),
        *("--conf", "spark.pyspark.driver.python=python3"),
        *("--conf", "spark.kubernetes.driverEnv.PYTHONPATH=group-coordinator"),
        *("--packages", packages(), "--archives", archive),
        *("--conf", "spark.executorEnv.PYTHONPATH=group-coordinator"),
        # It would wait for a pod that never runs.
        *("--conf", "spark.kubernetes.submission.waitAppCompletion=false"),
        *("https://store/job.py", "--root", "s3a://bucket/groups"),
    ]
    kept = {key: value for key, value in os.environ.items() if not is_ours(key)}
    given = {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "KUBECONFIG": str(tmp_path / "none"),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": "python3",
    }
    done = subprocess.run(
        command, env={**kept, **given}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    check_end(done.returncode, done.stderr[-2_000:])

    (driver,) = api.made["Pod"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in driver["env"]}
    assert environment["PYSPARK_DRIVER_PYTHON"] == "python3"
    assert environment["PYSPARK_PYTHON"] == "python3"
    assert environment["PYTHONPATH"] == "group-coordinator"
    assert driver["image"] == "IMAGE"
    assert driver["args"][-3:] == ["https://store/job.py", "--root", "s3a://bucket/groups"]
    # In the format of Java's properties.
    properties = api.made["ConfigMap"]["data"]["spark.properties"].replace("\\", "").splitlines()
    assert f"spark.archives={archive}" in properties
    assert "spark.executorEnv.PYTHONPATH=group-coordinator" in properties
    assert f"spark.jars.packages={packages()}" in properties
