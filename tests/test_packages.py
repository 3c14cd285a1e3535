"""What an installation holds: every package is shipped, or is on the list of those that are not."""

from __future__ import annotations

import tomllib
from pathlib import Path

TOP = Path(__file__).parent.parent
# With all packages below them. Run from a clone: who runs a coordinator or joins a group has no use
# for them.
NOT_SHIPPED = ("pipeline.bench", "pipeline.trials")


def test_every_package_is_shipped_or_named_as_not_shipped() -> None:
    shipped = set(
        tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    )
    present = {
        ".".join(init.parent.relative_to(TOP).parts)
        for top in ("schemas", "coordinator", "pipeline", "conf")
        for init in (TOP / top).rglob("__init__.py")
    }
    kept = {
        name for name in present if f"{name}.".startswith(tuple(f"{top}." for top in NOT_SHIPPED))
    }
    assert kept >= set(NOT_SHIPPED)
    assert shipped == present - kept


def test_a_folder_with_modules_is_a_package() -> None:
    for top in ("schemas", "coordinator", "pipeline"):
        for module in (TOP / top).rglob("*.py"):
            assert (module.parent / "__init__.py").is_file(), module.parent
