"""What an installation holds, and by which names: one package, whose folders lie beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import group_coordinator
from group_coordinator.pipeline import client, spark

TOP = Path(__file__).parent.parent
FOLDERS = ("pipeline", "coordinator", "schemas", "conf")
_SECOND = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(FOLDERS)})(?=[.\s])", re.M)


def test_the_import_name_leads_to_each_folder() -> None:
    package = TOP / ".src" / "group_coordinator"
    links = {each.name: each.resolve() for each in package.iterdir() if each.is_symlink()}
    assert links == {name: TOP / name for name in FOLDERS}


def test_nothing_is_imported_by_a_second_name() -> None:
    """In a clone `import pipeline` works, and makes every class a second time."""
    modules = [each for top in (*FOLDERS, "tests") for each in (TOP / top).rglob("*.py")]
    found = [each for each in modules if _SECOND.search(each.read_text("utf-8"))]
    assert found == []


def test_each_public_name_is_there() -> None:
    for name in group_coordinator.__all__:
        assert getattr(group_coordinator, name).__module__.startswith("group_coordinator.")
    with pytest.raises(AttributeError, match="no attribute 'GroupMembers'"):
        group_coordinator.GroupMembers  # noqa: B018
    assert {*group_coordinator.__all__} == {*client.__all__, *spark.__all__}


def test_a_folder_with_modules_is_a_package() -> None:
    for top in FOLDERS:
        for module in (TOP / top).rglob("*.py"):
            assert (module.parent / "__init__.py").is_file(), module.parent
