"""Recorded cases of the adaptive scheduler's governor, run against ours with the adaptive preset."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.core.recorded.endpoints import endpoint
from tests.core.recorded.recorded_cases import Case, check, error_answer, every_case, format_ms_instant, load
from timewright.core.moments import parse_instant
from timewright.core.schedule.governor import plan_next
from timewright.errors import InvalidInput


def answer(case: Case) -> dict[str, Any]:
    now: datetime = parse_instant(case.input["now"])
    try:
        schedule, progress = endpoint(case.input["endpoint"], now=now)
    except InvalidInput as refusal:
        return error_answer(refusal)
    decision = plan_next(schedule, progress, now=now)
    assert decision == plan_next(schedule, progress, now=now)
    return {"next_run_at": format_ms_instant(decision.at), "source": decision.source.value}


@every_case("cronicorn_governor")
def test_the_governor_answers_as_recorded(case: Case) -> None:
    given = answer(case)
    check(case, given)


def test_every_operation_of_the_suite_is_tested() -> None:
    assert {case.op for case in load("cronicorn_governor")} == {"plan_next_run"}
