"""The content of an installation and its import names: one package for all folders."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import group_coordinator
from group_coordinator.pipeline import client, spark
from tests.ends import check_end
from tests.users import make_own_folders

TOP = Path(__file__).parent.parent
FOLDERS = ("pipeline", "coordinator", "schemas", "conf")
_SECOND = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(FOLDERS)})(?=[.\s])", re.M)


def test_the_import_name_leads_to_each_folder() -> None:
    package = TOP / ".src" / "group_coordinator"
    links = {each.name: each.resolve() for each in package.iterdir() if each.is_symlink()}
    assert links == {name: TOP / name for name in FOLDERS}


def test_nothing_is_imported_by_a_second_name() -> None:
    """`import pipeline` would work in a clone, and create each class a second time."""
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


@pytest.mark.full
def test_a_user_s_own_folders_of_the_same_names_are_in_nobody_s_way(tmp_path: Path) -> None:
    """The command, an import and mypy work in a folder with another package `pipeline`."""
    make_own_folders(tmp_path)
    program = tmp_path / "joins.py"
    program.write_text(
        "from group_coordinator import GroupMember\n\n"
        "def joined(member: GroupMember) -> int:\n"
        "    return member.assignment\n"
    )
    for command, said, code in [
        (["-m", "group_coordinator", "--version"], "group-coordinator ", 0),
        ([str(program)], "", 0),
        (["-m", "mypy", "--strict", str(program)], "Found 1 error in 1 file", 1),
    ]:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        check_end(done.returncode, done.stdout + done.stderr, code)
        assert said in done.stdout
