"""The interfaces of `pipeline.delta` and `pipeline.tables`: names that are imported lazily."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = ["group_coordinator.pipeline.delta", "group_coordinator.pipeline.tables"]


def tree_of(package: ModuleType) -> ast.Module:
    assert package.__file__ is not None
    return ast.parse(Path(package.__file__).read_text())


def lazy_names(package: ModuleType) -> dict[str, set[str]]:
    """Return the names that the package passes to `lazy_names`, by modules."""
    (call,) = (
        node
        for node in ast.walk(tree_of(package))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names"
    )
    return {str(each.arg): set(ast.literal_eval(each.value).split()) for each in call.keywords}


def names_for_type_checkers(package: ModuleType) -> dict[str, set[str]]:
    """Return the names that the `if TYPE_CHECKING` block of the package imports, by modules."""
    blocks = [node for node in tree_of(package).body if isinstance(node, ast.If)]
    return {
        str(statement.module).rpartition(".")[2]: {name.name for name in statement.names}
        for statement in blocks[0].body
        if isinstance(statement, ast.ImportFrom)
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_each_name_of_an_interface_is_the_one_that_type_checkers_see(name: str) -> None:
    package = import_module(name)
    names = lazy_names(package)
    assert names == names_for_type_checkers(package)
    for module, exported in names.items():
        for each in exported:
            assert getattr(package, each) is getattr(import_module(f"{name}.{module}"), each)


@pytest.mark.parametrize("name", PACKAGES)
def test_no_name_of_an_interface_is_a_module_that_would_hide_it(name: str) -> None:
    package = import_module(name)
    modules = {path.stem for path in Path(package.__path__[0]).glob("*.py")}
    assert modules & set().union(*lazy_names(package).values()) == set()


@pytest.mark.parametrize("name", PACKAGES)
def test_unknown_name_of_an_interface_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        import_module(name).missing  # noqa: B018


def test_importing_an_interface_imports_none_of_its_modules() -> None:
    program = (
        "import sys, importlib\n"
        f"for name in {PACKAGES}: importlib.import_module(name)\n"
        "ours = [name for name in sys.modules if name.startswith('group_coordinator.')]\n"
        "print(sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == f"{sorted(['group_coordinator.pipeline', *PACKAGES])}\n"
