"""The pictures of pipeline/ui/README.md, made by `python -m tests.pictures`; not in the wheel.

`history` fills a root with 40 minutes of a small shop's groups, on a virtual clock and with the
machine that decides in Spark. `__main__` serves its pages and takes the pictures with Chromium.
"""
