"""Whoever may enter one namespace reads no number of another, whatever else a line says."""

from __future__ import annotations

import pytest

from timewright.doors.http.walls import numbers_within


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("# HELP runs Runs by namespace", True),
        ("up 1", True),
        ('runs{state="ok"} 3', True),
        ('runs{namespace="mine",state="ok"} 3', True),
        ('runs{namespace="theirs",state="ok"} 3', False),
        ('runs{host="a}b",namespace="theirs"} 3', False),
        ('runs{host="a{b",namespace="theirs"} 3', False),
        ('runs{host="x,namespace=\\"mine\\"",namespace="theirs"} 3', False),
    ],
)
def test_a_line_is_seen_by_those_who_may_enter_its_namespace(line: str, *, seen: bool) -> None:
    assert numbers_within(f"{line}\n", {"mine"}.__contains__) == (f"{line}\n" if seen else "")
