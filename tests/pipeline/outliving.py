"""Stands for a coordinator: its child, as the JVM is, writes on when the process itself is gone."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    _, root = sys.argv[1:]
    endless = f"while :; do echo >> {root}/written; done"
    with subprocess.Popen(["sh", "-c", endless], stdin=subprocess.DEVNULL):
        while not (Path(root) / "written").exists():
            time.sleep(0.01)
        print("ready", flush=True)
        time.sleep(600)
