"""A stub of a coordinator: its child, like a JVM, writes after the end of the process."""

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
