"""Roots that released coordinators wrote, kept as files: all later releases must read them.

`tests/golden/RELEASE/root` is a root with its streaming checkpoint, written by a coordinator of
that release on Spark. `tests/golden/RELEASE/record.json` has the expected results
(`tests.golden.record`). `python -m tests.golden.write` writes those of the present release, once
for each release. The folders of earlier releases never change.
"""
