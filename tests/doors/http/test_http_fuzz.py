"""The whole API under generated requests: two namespaces, four roles, and whatever the description allows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks

from tests.operations.house import House, furnished
from timewright.doors.http.app import HttpDoor
from timewright.operations import operations
from timewright.operations.access import ROLES
from timewright.operations.subjects import subject_of

CHECKS: list[Callable[..., Any]] = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
LOCAL = {"host": "localhost"}
# They answer for as long as someone listens, or are not for programs.
LEFT_OUT = {"/api/v1/events"}
HARD = settings(
    max_examples=5, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@cache
def street() -> tuple[House, HttpDoor, dict[tuple[str, str], str]]:
    """A house with two namespaces, its door, and a key of every role for each namespace."""
    house = furnished()
    house.elsewhere("team-b").ask("schedule create", name="theirs", every="1h", note="theirs")
    house.ask("namespace set", name="default", requests_per_minute=1_000_000, triggers_per_minute=1_000_000)
    house.elsewhere("team-b").ask("namespace create", name="team-b", requests_per_minute=1_000_000)
    tokens: dict[tuple[str, str], str] = {
        (role, namespace): house.ask("key create", key=f"{role}-{namespace}", role=role, within=[namespace])[
            "token"
        ]
        for role in ROLES
        for namespace in ("default", "team-b")
    }
    return house, HttpDoor(house.context), tokens


@cache
def described() -> Any:
    _, door, tokens = street()
    headers = {**LOCAL, "authorization": f"Bearer {tokens['viewer', 'default']}"}
    return schemathesis.openapi.from_asgi("/openapi.json", door, headers=headers)


def known_subjects() -> dict[str, list[str]]:
    """Names and ids that examples speak of, by the field they stand in."""
    found: dict[str, list[str]] = {}
    for one in operations:
        subject = subject_of(one)
        for example in one.examples if subject is not None else ():
            if isinstance(example.get(subject.field), str):  # type: ignore[union-attr]
                found.setdefault(subject.field, []).append(example[subject.field])  # type: ignore[union-attr]
    return found


def test_no_request_breaks_anything_and_every_answer_is_as_described() -> None:
    house, _, tokens = street()
    known = known_subjects()
    hidden = {"default": ids_in(house, "team-b"), "team-b": ids_in(house, "default")}
    for found in described().get_all_operations():
        operation = found.ok()
        if operation.path in LEFT_OUT:
            continue

        @HARD
        @given(case=operation.as_strategy(), who=st.sampled_from(sorted(tokens)), data=st.data())
        def holds(case: Any, who: tuple[str, str], data: st.DataObject) -> None:
            case.headers = {
                name: text for name, text in (case.headers or {}).items() if "namespace" not in name.lower()
            }
            for field in case.path_parameters or {}:
                if known.get(field) and data.draw(st.booleans()):
                    case.path_parameters[field] = data.draw(st.sampled_from(known[field]))
            answer = case.call(headers={**LOCAL, "authorization": f"Bearer {tokens[who]}"})
            case.validate_response(answer, checks=CHECKS)
            assert not [one for one in hidden[who[1]] if one in answer.text], "an id of another namespace"

        holds()


def ids_in(house: House, namespace: str) -> list[str]:
    rows = house.elsewhere(namespace).ask("schedule list", limit=1000)["schedules"]
    return [row["id"] for row in rows]


def test_no_generated_request_is_answered_to_a_stranger() -> None:
    for found in described().get_all_operations():
        operation = found.ok()
        if operation.path in LEFT_OUT | {"/healthz"}:
            continue

        @settings(HARD, max_examples=1)
        @given(case=operation.as_strategy())
        def holds(case: Any) -> None:
            case.headers, case.cookies = {}, {}
            assert case.call(headers=LOCAL).status_code in (400, 401, 414, 429)

        holds()
