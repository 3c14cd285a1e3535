"""What an extra of the package brings, for who lacks it.

No index has this project, so `pip install NAME[EXTRA]` finds nothing: the packages are named that
the extra asks for, which works in a clone and outside of it.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

PROJECT = "lakehouse-group-coordinator"


def how_to_install(extra: str) -> str:
    """The command that installs what an extra asks for, if it is known here."""
    try:
        asked_for = requires(PROJECT) or ()
    except PackageNotFoundError:
        # Imported from a folder, and never installed.
        return f"install the extra `{extra}` of {PROJECT}"
    wanted = []
    for text in asked_for:
        one = Requirement(text)
        if one.marker is not None and one.marker.evaluate({"extra": extra}):
            wanted.append(f"'{one.name}{one.specifier}'")
    return f"pip install {' '.join(sorted(wanted))}"
