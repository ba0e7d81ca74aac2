"""Simulations that still violate an invariant: open defects, each with what is known about it.

They are compared exactly. A defect that is repaired, or that breaks something else, fails the test until its
line here is changed. The list may only shrink.
"""

from __future__ import annotations

# (seed, hours, is dense) -> the violated invariant and the cause.
OPEN_DEFECTS: dict[tuple[int, float, bool], tuple[str, str]] = {
    (10040, 12.0, False): ("I8", "skip ahead by hand, then a hint, then an edit: the cursor falls"),
    (10046, 12.0, False): ("I3", "jitter to both sides under an interval hint: a trigger instant has no row"),
    (10154, 12.0, False): ("I3", "an interval hint during a pause: an instant of the pause has no row"),
    (11, 2.0, True): ("I3", "an interval hint during a pause: instants of the pause have no row"),
    (3, 2.0, True): ("I3", "a run that ends a failure streak after an edit: an instant has no row"),
}
