"""What lies in a user's own folder, beside the programs that use this project."""

from __future__ import annotations

from pathlib import Path


def make_own_folders(folder: Path) -> None:
    """Make packages of the user's by the names of this project's own folders.

    A program that is started in `folder` imports them by these names. They fail, so that whoever
    takes them for ours is found.
    """
    for name in ("pipeline", "coordinator", "schemas", "conf"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text('raise ImportError("the user\'s own")\n')
