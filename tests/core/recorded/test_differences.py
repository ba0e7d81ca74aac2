"""Every difference from the recorded systems is listed in the test data and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from tests.core.recorded.recorded_cases import SUITES, differences, load

PAGE = Path(__file__).resolve().parents[3] / "docs" / "differences.md"
CASE = re.compile(r"\b(?:cw|gov|life|halo|halot|rt|s4)-\d{3}\b")


def all_cases() -> list[str]:
    return [case.id for suite in SUITES for case in load(suite)]


def test_no_case_is_recorded_twice_and_none_is_left_out() -> None:
    assert len(all_cases()) == len(set(all_cases())) == 199


def test_every_difference_is_of_a_recorded_case_and_has_a_reason() -> None:
    assert set(differences()) <= set(all_cases())
    assert all(row["why"].endswith(".") for row in differences().values())


def test_every_difference_is_documented() -> None:
    named = set(CASE.findall(PAGE.read_text(encoding="utf-8")))
    assert set(differences()) <= named
    assert named <= set(all_cases())
