"""Starting on a release of Spark that lacks something which Spark does not publish.

Spark may change, in any release, what it does not publish. Two guards keep a coordinator starting:

* `is_known_spark`: nothing tells in advance whether a release still starts its JVM and its Python
  processes as an earlier one did. On a release that nobody has tried, Spark does both its own way.
* `unless_missing`: everything else is tried. What is missing is left out, and one warning says what
  that costs.

`PRIVATE.md`, beside this module, lists what is used, its guard, what happens without it, and the
test that shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pyspark
from py4j.protocol import Py4JError

# The releases of Spark that the tests have run on (`.ci/spark RELEASE`).
KNOWN_SPARK = ("4.2.", "4.3.")
# How Python, and py4j, say that a name is not there or is something else now.
_MISSING = (AttributeError, ImportError, TypeError, Py4JError)

log = logging.getLogger(__name__)


def is_known_spark() -> bool:
    """Whether this Spark is of the releases `KNOWN_SPARK`."""
    return pyspark.__version__.startswith(KNOWN_SPARK)


def say_if_unknown() -> None:
    """Warn if this Spark is of another release, of what that costs."""
    if not is_known_spark():
        log.warning(
            "Spark %s was not tried with this release, only %s: it starts in its own way,"
            " which takes some seconds longer, and what its JVM writes goes to the terminal",
            pyspark.__version__,
            " and ".join(each.rstrip(".") for each in KNOWN_SPARK),
        )


@contextmanager
def unless_missing(cost: str) -> Iterator[None]:
    """Go on after the block if this Spark lacks what the block uses; warn of the `cost`."""
    try:
        yield
    except _MISSING as missing:
        reason = str(missing).partition("\n")[0]
        log.warning("%s: Spark %s lacks something (%s)", cost, pyspark.__version__, reason)
