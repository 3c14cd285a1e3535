"""Guards for Spark releases that have changed a private API (PRIVATE.md lists all uses).

No check can show in advance whether a release starts its JVM and its Python processes like an
earlier one. So a release that is not `is_known_spark` starts both in its default way. All other
private APIs are tried (`unless_missing`): if one is missing, its use is skipped, and a warning
names the cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyspark
from py4j.protocol import Py4JError

# The releases of Spark on which the tests have run (`.ci/spark RELEASE`).
KNOWN_SPARK = ("4.2.", "4.3.")
# The errors of Python and py4j for a name that is missing or has changed.
_MISSING = (AttributeError, ImportError, TypeError, Py4JError)

log = logging.getLogger(__name__)


def is_known_spark() -> bool:
    """Return whether the installed Spark is one of the releases `KNOWN_SPARK`."""
    return pyspark.__version__.startswith(KNOWN_SPARK)


def say_if_unknown() -> None:
    """Log a warning with the cost if the installed Spark is not a known release."""
    if not is_known_spark():
        log.warning(
            "Spark %s was not tested with this release, only %s: it starts in Spark's default way,"
            " which takes some seconds longer, and the JVM's output goes to the terminal",
            pyspark.__version__,
            " and ".join(each.rstrip(".") for each in KNOWN_SPARK),
        )


@contextmanager
def unless_missing(cost: str) -> Iterator[None]:
    """Suppress errors of the block that show a missing API, and log a warning with `cost`."""
    try:
        yield
    except _MISSING as missing:
        reason = str(missing).partition("\n")[0]
        log.warning("%s: Spark %s lacks a private API (%s)", cost, pyspark.__version__, reason)


def replace_method(owner: object, method: str, by: Callable[..., object]) -> None:
    """Replace a method of one of Spark's classes or objects."""
    # setattr, because mypy rejects an assignment to a method.
    setattr(owner, method, by)
