"""I/O: Spark, Delta tables, processes and clocks. The package `coordinator` makes the decisions.

Imports between the packages point one way: the contract "Imports within pipeline point one way" in
pyproject.toml lists the packages from top to bottom. All packages may import the modules of this
folder, such as `clock`, `errors`, `settings` and `terminal`. Programs import only
`group_coordinator`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str, /, **modules: str) -> Callable[[str], Any]:
    """Return a `__getattr__` of a package that imports a module when one of its names is used.

    `modules` are the package's modules, with the names that it exports, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module}"), name)

    return find
