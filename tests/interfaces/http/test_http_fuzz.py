"""Generated requests for the whole API: two namespaces, four roles.

TIMEWRIGHT_FULL=1 generates ten times as many for each operation, and new ones in every run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks

from tests.operations.harness import OperationsHarness, sample_harness
from timewright.interfaces.http.app import HttpApp
from timewright.operations import operations
from timewright.operations.access.authentication import ROLES
from timewright.operations.registry import subject_of

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
FULL = bool(os.environ.get("TIMEWRIGHT_FULL"))
HARD = settings(
    max_examples=50 if FULL else 5,
    deadline=None,
    database=None,
    derandomize=not FULL,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@cache
def fuzz_app() -> tuple[OperationsHarness, HttpApp, dict[tuple[str, str], str]]:
    """Return a harness with two namespaces, the app, and a key per role and namespace."""
    harness = sample_harness()
    harness.in_namespace("team-b").ask("schedule create", name="theirs", every="1h", note="theirs")
    harness.ask("namespace set", name="default", requests_per_minute=1_000_000, triggers_per_minute=1_000_000)
    harness.in_namespace("team-b").ask("namespace create", name="team-b", requests_per_minute=1_000_000)
    tokens: dict[tuple[str, str], str] = {
        (role, namespace): harness.ask(
            "key create", key=f"{role}-{namespace}", role=role, within=[namespace]
        )["token"]
        for role in ROLES
        for namespace in ("default", "team-b")
    }
    return harness, HttpApp(harness.context), tokens


@cache
def described() -> Any:
    _, app, tokens = fuzz_app()
    headers = {**LOCAL, "authorization": f"Bearer {tokens['viewer', 'default']}"}
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers=headers)


def known_subjects() -> dict[str, list[str]]:
    """Return the names and ids in the examples by field."""
    found: dict[str, list[str]] = {}
    for one in operations:
        subject = subject_of(one)
        for example in one.examples if subject is not None else ():
            if isinstance(example.get(subject.field), str):  # type: ignore[union-attr]
                found.setdefault(subject.field, []).append(example[subject.field])  # type: ignore[union-attr]
    return found


@pytest.mark.timeout(3600 if FULL else 300)
def test_generated_requests_get_answers_that_match_the_description() -> None:
    harness, _, tokens = fuzz_app()
    known = known_subjects()
    hidden = {"default": ids_in(harness, "team-b"), "team-b": ids_in(harness, "default")}
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


def ids_in(harness: OperationsHarness, namespace: str) -> list[str]:
    rows = harness.in_namespace(namespace).ask("schedule list", limit=1000)["schedules"]
    return [row["id"] for row in rows]


def test_no_generated_request_works_without_authentication() -> None:
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
