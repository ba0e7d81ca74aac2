"""Simulations that still violate an invariant: open defects, each with what is known about it.

They are compared exactly. A defect that is repaired, or that breaks something else, fails the test until its
line here is changed. The list may only shrink.
"""

from __future__ import annotations

# (seed, hours, is dense) -> the violated invariant and the cause.
OPEN_DEFECTS: dict[tuple[int, float, bool], tuple[str, str]] = {
    (10040, 12.0, False): ("I8", "skip ahead by hand, then a hint, then an edit: the cursor falls"),
    (3, 2.0, True): ("I3", "a run that ends a failure streak after an edit: an instant has no row"),
}
