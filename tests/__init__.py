"""The tests. A failed assert in a helper shows its values, as one in a test does."""

import pkgutil
import sys

# Programs that tests start are also modules of this package. They need not load pytest.
if "pytest" in sys.modules:
    # Registered before the modules are imported. pytest itself registers only tests and conftest.
    modules = {f"{__name__}.{each.name}" for each in pkgutil.iter_modules(__path__)}
    sys.modules["pytest"].register_assert_rewrite(*modules - {f"{__name__}.conftest"})
