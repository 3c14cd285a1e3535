"""Packages in a user's own folder with the names of this project's folders."""

from __future__ import annotations

from pathlib import Path


def make_own_folders(folder: Path) -> None:
    """Make packages in a user's folder with the names of this project's folders.

    A program that is started in `folder` imports these packages by the names. They fail, so that a
    program that takes them for this project's is detected.
    """
    for name in ("pipeline", "coordinator", "schemas", "conf"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text('raise ImportError("the user\'s own")\n')
