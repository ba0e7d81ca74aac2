"""The oracle and the engine agree on recurrence rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.recurrence.rrule_strategies import ANCHORS, rules
from timewright.core.moments import to_micros
from timewright.core.recurrence.rrule import Rrule
from timewright.errors import InvalidInput
from timewright.verification.oracle.instant_sets import parse_trigger

MOST = 20


@given(
    rules(),
    ANCHORS,
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.sampled_from(["vixie", "match", "skip_once"]),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
@example("FREQ=DAILY;BYHOUR=2,3;BYMINUTE=30;COUNT=5", datetime(2026, 3, 28), "Europe/Berlin", "vixie", False)
@example("FREQ=DAILY;BYHOUR=1,2;BYMINUTE=30;COUNT=5", datetime(2026, 10, 24), "Europe/Berlin", "match", False)
def test_the_oracle_and_the_engine_agree_on_rules(
    rule: str, anchor: datetime, zone: str, dst: str, clamped: bool
) -> None:
    if clamped and "FREQ=MONTHLY" in rule:
        rule = f"{rule};SKIP=BACKWARD"
    try:
        ours = Rrule(rule, zone, dst, anchor.replace(tzinfo=UTC))  # type: ignore[arg-type]
    except InvalidInput:
        return
    scan = parse_trigger(msgspec.to_builtins(ours))
    since = anchor.replace(tzinfo=UTC) - timedelta(seconds=1)
    until = since + timedelta(days=500)
    expected = [to_micros(at) for at in ours.between(since, until, MOST)]
    assert scan.between(to_micros(since), to_micros(until), limit=MOST - 1) == expected
    for at in expected[:3]:
        assert scan.has(at)
        assert not scan.has(at + 1)
        assert scan.first_after(at - 1, until=at) == at
