"""The servers that represent S3, ADLS and GCS. They do not belong to this project.

* S3: versitygw, a server in Go over a folder.
* ADLS: Azurite, Microsoft's own emulator of Azure's Blob service.
* GCS: fake-gcs-server, in Go. It lacks the PUT of the XML API with which the client creates
  objects. So a PUT is translated into an upload of the JSON API, which supports the same condition.
"""

from __future__ import annotations

import base64
import datetime
import email.utils
import hashlib
import hmac
import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import quote, unquote

import obstore
from obstore.store import S3Store

from tests.object_store.server import BUCKET, Server, go_program, npm_program

_KEY, _SECRET = "tests", "tests-secret"
_REGION = "us-east-1"
# Azurite's fixed account and key.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_AZURE_VERSION = "2021-08-06"


class Versitygw(Server):
    """S3."""

    def _command(self, folder: Path) -> list[str]:
        module = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
        program = go_program("VERSITYGW", "versitygw", module)
        return [program, "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", str(folder)]

    def _its_environment(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}

    def _make_bucket(self) -> None:
        bucket = S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key_id=_KEY,
            secret_access_key=_SECRET,
            region=_REGION,
            client_options={"allow_http": True},
        )
        link = obstore.sign(bucket, "PUT", "", datetime.timedelta(seconds=60))
        _ask("PUT", link)

    def environment(self, port: int) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": _REGION,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        return f"s3a://{bucket}/{path}"

    def wrong_key(self) -> dict[str, str]:
        return {"AWS_SECRET_ACCESS_KEY": "wrong"}


class Azurite(Server):
    """ADLS."""

    def _command(self, _folder: Path) -> list[str]:
        program = npm_program("AZURITE_BLOB", "azurite-blob", "azurite@3.35.0")
        listen = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        alone = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        return [program, *listen, *alone, "--inMemoryPersistence"]

    def _make_bucket(self) -> None:
        date = email.utils.formatdate(usegmt=True)
        signed = (
            "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_AZURE_VERSION}\n"
            f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
        )
        key = base64.b64decode(_ACCOUNT_KEY)
        signature = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
        _ask(
            "PUT",
            f"http://127.0.0.1:{self.port}/{_ACCOUNT}/{BUCKET}?restype=container",
            {
                "x-ms-date": date,
                "x-ms-version": _AZURE_VERSION,
                "Authorization": f"SharedKey {_ACCOUNT}:{signature}",
            },
        )

    def environment(self, port: int) -> dict[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY,
        }

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        return f"abfss://{bucket}@{_ACCOUNT}.dfs.core.windows.net/{path}"

    def wrong_key(self) -> dict[str, str]:
        return {"AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY.replace("E", "F", 1)}


class FakeGcs(Server):
    """GCS."""

    def _command(self, _folder: Path) -> list[str]:
        module = "github.com/fsouza/fake-gcs-server@v1.56.1"
        program = go_program("FAKE_GCS_SERVER", "fake-gcs-server", module)
        listen = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        return [program, *listen, "-backend", "memory", "-log-level", "error"]

    def _make_bucket(self) -> None:
        _ask(
            "POST",
            f"http://127.0.0.1:{self.port}/storage/v1/b?project=tests",
            {"Content-Type": "application/json"},
            json.dumps({"name": BUCKET}).encode(),
        )

    def environment(self, port: int) -> dict[str, str]:
        account = {
            "gcs_base_url": f"http://127.0.0.1:{port}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account)}

    def uri(self, path: str, bucket: str = BUCKET) -> str:
        return f"gs://{bucket}/{path}"

    def wrong_key(self) -> dict[str, str]:
        return {}

    def translated(self, head: bytes) -> bytes:
        put = re.match(rb"PUT /([^/ ]+)/(\S+) HTTP", head)
        # The server answers XML only if it is addressed by its configured name.
        if put is None:
            return re.sub(rb"(?i)\r\nhost: [^\r]*", b"\r\nHost: storage.googleapis.com", head)
        condition = re.search(rb"(?i)x-goog-if-generation-match: *(\d+)", head)
        name = quote(unquote(put[2].decode()), safe="").encode()
        target = b"/upload/storage/v1/b/" + put[1] + b"/o?uploadType=media&name=" + name
        if condition is not None:
            target += b"&ifGenerationMatch=" + condition[1]
        return b"POST " + target + b" HTTP" + head[put.end() :]

    def answered(self, head: bytes, answer: bytes) -> bytes:
        if not head.startswith(b"PUT ") or not answer.startswith(b"HTTP/1.1 200"):
            return answer
        line, _, rest = answer.partition(b"\r\n")
        made = json.loads(answer.partition(b"\r\n\r\n")[2])
        known = f'ETag: "{made["etag"]}"\r\nx-goog-generation: {made["generation"]}\r\n'
        return line + b"\r\n" + known.encode() + rest


def _ask(
    method: str, uri: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> None:
    request = urllib.request.Request(uri, body, headers or {}, method=method)
    urllib.request.urlopen(request).close()


SERVERS: dict[str, type[Server]] = {"s3": Versitygw, "adls": Azurite, "gcs": FakeGcs}
