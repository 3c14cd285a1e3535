"""The tests. An assert in a helper says its values, as one in a test does."""

import pkgutil

import pytest

# Before any of them is imported; pytest does so by itself for modules of tests and conftest only.
_MODULES = {f"{__name__}.{each.name}" for each in pkgutil.iter_modules(__path__)}
pytest.register_assert_rewrite(*_MODULES - {f"{__name__}.conftest"})
