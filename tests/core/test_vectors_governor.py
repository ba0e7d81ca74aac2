"""The recorded answers of the adaptive scheduler's governor, asked of ours with the adaptive preset."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.core.endpoints import endpoint
from tests.core.seed_cases import Case, check, every_case, load, refusal_in, spelled
from timewright.core.governor import plan_next
from timewright.core.moments import parse_instant
from timewright.errors import InvalidInput


def answer(case: Case) -> dict[str, Any]:
    now: datetime = parse_instant(case.input["now"])
    try:
        schedule, standing = endpoint(case.input["endpoint"], now=now)
    except InvalidInput as refusal:
        return refusal_in(refusal)
    decision = plan_next(schedule, standing, now=now)
    assert decision == plan_next(schedule, standing, now=now)
    return {"next_run_at": spelled(decision.at), "source": decision.source.value}


@every_case("cronicorn_governor")
def test_the_governor_answers_as_recorded(case: Case) -> None:
    given = answer(case)
    check(case, given)


def test_every_operation_of_the_suite_is_asked() -> None:
    assert {case.op for case in load("cronicorn_governor")} == {"plan_next_run"}
