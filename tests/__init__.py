"""The tests. An assert in a helper says its values, as one in a test does."""

import pkgutil
import sys

# Programs that tests start are modules of this package too, and need not load pytest.
if "pytest" in sys.modules:
    # Before any of them is imported; pytest does so by itself for modules of tests and conftest.
    modules = {f"{__name__}.{each.name}" for each in pkgutil.iter_modules(__path__)}
    sys.modules["pytest"].register_assert_rewrite(*modules - {f"{__name__}.conftest"})
