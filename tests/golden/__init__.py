"""Roots that released coordinators wrote, kept as files: every later release must read them.

`tests/golden/RELEASE/root` is a root with its streaming checkpoint, which a coordinator of that
release wrote on Spark; `tests/golden/RELEASE/record.json` says what must come out of it
(`tests.golden.record`). `python -m tests.golden.write` writes those of the present release, once
for each release; the folders of earlier releases stay as they are.
"""
