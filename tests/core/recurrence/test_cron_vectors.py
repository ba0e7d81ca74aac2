"""Cron against recorded cases: ordinary ones, clock changes, mistakes, sparse dates."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from timewright.core.moments import format_instant
from timewright.core.recurrence.cron import Cron
from timewright.errors import InvalidCron

DATA = Path(__file__).parents[1] / "data" / "cron"


def recorded(name: str, part: str = "cases") -> list[Any]:
    cases = json.loads((DATA / name).read_text(encoding="utf-8"))[part]
    return [pytest.param(case, id=case["id"]) for case in cases]


def following(cron: Cron, after: str, count: int) -> list[str]:
    found: list[str] = []
    moment: datetime | None = datetime.fromisoformat(after)
    while len(found) < count and moment is not None:
        moment = cron.next_after(moment)
        if moment is not None:
            found.append(format_instant(moment))
    return found


@pytest.mark.parametrize("case", recorded("cron_basic.json"))
def test_common_expressions_fire_where_three_libraries_agree(case: dict[str, Any]) -> None:
    cron = Cron(case["expr"], case["tz"])
    assert following(cron, case["after"], len(case["next"])) == case["next"]


@pytest.mark.parametrize("case", recorded("cron_basic.json"))
def test_previous_walks_back_where_they_agree(case: dict[str, Any]) -> None:
    cron = Cron(case["expr"], case["tz"])
    moment = datetime.fromisoformat(case["after"])
    for expected in case["prev"]:
        found = cron.previous_before(moment)
        assert found is not None
        assert format_instant(found) == expected
        moment = found


@pytest.mark.parametrize("case", recorded("cron_dst.json"))
def test_clock_changes_follow_the_policy(case: dict[str, Any]) -> None:
    for policy, expected in case["expected"].items():
        cron = Cron(case["expr"], case["tz"], policy)
        assert following(cron, case["after"], case["n"]) == expected, policy


@pytest.mark.parametrize("case", recorded("sparse_and_edge.json"))
def test_sparse_dates_are_found_and_impossible_ones_refused(case: dict[str, Any]) -> None:
    if case["never"]:
        with pytest.raises(InvalidCron, match="never fires"):
            Cron(case["expr"], case["tz"])
    else:
        assert following(Cron(case["expr"], case["tz"]), case["after"], case["n"]) == case["expected"]


@pytest.mark.parametrize("case", recorded("cron_invalid.json", "invalid"))
def test_a_mistake_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidCron):
        Cron(case["expr"])


@pytest.mark.parametrize("case", recorded("cron_invalid.json", "controversial"))
def test_where_other_libraries_disagree_our_grammar_decides(case: dict[str, Any]) -> None:
    key = "report" if "H" in case["expr"] else None
    if case["recommend"] == "reject":
        with pytest.raises(InvalidCron):
            Cron(case["expr"], key=key)
    else:
        assert bool(Cron(case["expr"], key=key).warnings()) or case["recommend"] == "accept"
