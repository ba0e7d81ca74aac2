"""Calendars from iCalendar files."""

from __future__ import annotations

import json
from pathlib import Path

from tests.interfaces.terminal import invoke
from tests.operations.harness import OperationsHarness

TEXT = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//x//x//EN
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:20261224
SUMMARY:Closed
END:VEVENT
END:VCALENDAR
"""


def test_a_calendar_is_read_from_a_file_or_from_its_text(tmp_path: Path) -> None:
    file = tmp_path / "team.ics"
    file.write_text(TEXT)
    for given in (str(file), TEXT):
        said = invoke(OperationsHarness(), "calendar", "put", "team", "--ical", given, "-o", "json")
        assert said.code == 0
        assert json.loads(said.out)["calendar"]["names"] == {"2026-12-24": "Closed"}


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    said = invoke(OperationsHarness(), "calendar", "put", "team", "--ical", str(tmp_path / "none.ics"))
    assert said.code != 0
    assert "none.ics" in said.err
