"""Invariants of incidents: each opens once and closes once."""

from __future__ import annotations

import itertools
from collections import defaultdict

from timewright.verification.checker import Coverage, Violations, invariant
from timewright.verification.oracle.times import format_instant
from timewright.verification.rows import IncidentRow
from timewright.verification.view import HistoryView


@invariant("I48", "an incident opens once", unit="incidents")
def an_incident_opens_once(view: HistoryView, coverage: Coverage) -> Violations:
    """A finding has at most one open incident at any time, and none ends before it begins."""
    by_key: defaultdict[tuple[str, str, str], list[IncidentRow]] = defaultdict(list)
    for one in view.history.incidents:
        by_key[one.namespace, one.kind, one.subject].append(one)
    coverage.count = len(view.history.incidents)
    for (_, kind, subject), incidents in sorted(by_key.items()):
        incidents.sort(key=lambda one: (one.opened_at, one.id))
        for one in incidents:
            if one.closed_at is not None and one.closed_at < one.opened_at:
                yield f"{one.id} closed before it opened at {format_instant(one.opened_at)}", (one,)
        for before, after in itertools.pairwise(incidents):
            if before.closed_at is None or before.closed_at > after.opened_at:
                at = format_instant(after.opened_at)
                yield f"{kind} of {subject} was opened again at {at} while {before.id} was open", (after,)
