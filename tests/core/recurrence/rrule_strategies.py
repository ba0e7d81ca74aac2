"""Hypothesis strategies for recurrence rules and their anchors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hypothesis import strategies as st

NUMBERS = st.integers(1, 4)
MONTHS = st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True)
MONTH_DAYS = st.lists(
    st.sampled_from([1, 2, 15, 28, 29, 30, 31, -1, -2, -31]), min_size=1, max_size=3, unique=True
)
WEEKDAYS = st.lists(
    st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"]), min_size=1, max_size=3, unique=True
)
NTH = st.lists(
    st.sampled_from(["1MO", "2TU", "5FR", "-1SU", "-2WE", "3TH"]), min_size=1, max_size=2, unique=True
)


def listed(values: Sequence[object]) -> str:
    return ",".join(map(str, values))


@st.composite
def rules(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(NUMBERS)}"]
    if draw(st.booleans()):
        parts.append(f"BYMONTH={listed(draw(MONTHS))}")
    if frequency != "WEEKLY" and draw(st.booleans()):
        parts.append(f"BYMONTHDAY={listed(draw(MONTH_DAYS))}")
    if draw(st.booleans()):
        counted = frequency in ("MONTHLY", "YEARLY") and draw(st.booleans())
        parts.append(f"BYDAY={listed(draw(NTH if counted else WEEKDAYS))}")
    if draw(st.booleans()):
        parts.append(f"BYHOUR={listed(draw(st.lists(st.integers(0, 23), min_size=1, max_size=2)))}")
        parts.append("BYMINUTE=0,30")
    elif frequency in ("MONTHLY", "YEARLY") and len(parts) > 2 and draw(st.booleans()):
        parts.append(
            f"BYSETPOS={listed(draw(st.lists(st.sampled_from([1, 2, -1, -3]), min_size=1, max_size=2)))}"
        )
    end = draw(st.sampled_from(["", "COUNT", "UNTIL"]))
    if end:
        parts.append(f"COUNT={draw(st.integers(1, 40))}" if end == "COUNT" else "UNTIL=20300615T120000Z")
    if draw(st.booleans()):
        parts.append(f"WKST={draw(st.sampled_from(['SU', 'MO', 'WE']))}")
    return ";".join(parts)


ANCHORS = st.datetimes(datetime(2020, 1, 1), datetime(2029, 12, 31)).map(lambda at: at.replace(microsecond=0))
