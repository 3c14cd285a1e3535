"""Record what Kafka's tools print about a real broker, whose jars are in a folder.

python -m tests.pipeline.gateway.kafka_tools.record FOLDER [STORY...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.pipeline.gateway.kafka_tools.brokers import real
from tests.pipeline.gateway.kafka_tools.recording import RECORDED, write
from tests.pipeline.gateway.kafka_tools.running import tools
from tests.pipeline.gateway.kafka_tools.story import SECURE_STORIES, STORIES, Teller
from tests.support.kafka_libs import kafka_libs


def main(folder: str, *names: str) -> None:
    """Tell the stories of these names, or all, to a real broker, and keep what was printed."""
    libs = kafka_libs(Path(folder), print)
    for stories, secure in ((STORIES, False), (SECURE_STORIES, True)):
        wanted = {name: stories[name] for name in names or stories if name in stories}
        if wanted:
            with real(libs, secure) as address, tools(libs) as jvm:
                for name, story in wanted.items():
                    with tempfile.TemporaryDirectory() as files:
                        teller = Teller(jvm, address, Path(files))
                        story(teller)
                    write(teller.told, RECORDED / f"{name}.jsonl")


if __name__ == "__main__":
    main(*sys.argv[1:])
