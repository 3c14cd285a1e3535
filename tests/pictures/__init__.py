"""The pictures of pipeline/ui/README.md, made by `python -m tests.pictures`; not in the wheel.

`history` fills a root with what a small shop's groups did in the last 40 minutes, on a virtual
clock and by the machine that decides in Spark; `__main__` serves its pages and takes the pictures
with Chromium.
"""
