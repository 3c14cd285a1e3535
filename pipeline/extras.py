"""Installation hint for a missing extra of the package.

No package index has this project, so `pip install NAME[EXTRA]` finds nothing. The hint names the
packages that the extra requires, which works inside and outside a clone.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

PROJECT = "lakehouse-group-coordinator"


def install_hint(extra: str) -> str:
    """Return the command that installs the requirements of an extra, or a hint if it is unknown."""
    try:
        asked_for = requires(PROJECT) or ()
    except PackageNotFoundError:
        # The package was imported from a folder, not installed.
        return f"install the extra `{extra}` of {PROJECT}"
    wanted = []
    for text in asked_for:
        one = Requirement(text)
        if one.marker is not None and one.marker.evaluate({"extra": extra}):
            wanted.append(f"'{one.name}{one.specifier}'")
    return f"pip install {' '.join(sorted(wanted))}"
