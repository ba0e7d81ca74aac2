"""Traces: one span per attempt, whose context travels to the target."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from timewright.core.run.run import Failed, Outcome, Released, Succeeded, TimedOut
from timewright.core.target import Http, Note
from timewright.errors import MissingExtra
from timewright.ports import Launch
from timewright.targets.context import RunInfo
from timewright.targets.http.request import first_hop, prepare_request
from timewright.targets.outcomes import FINISHED_WORK
from timewright.targets.processes.child import run_environment
from timewright.telemetry.tracing import Tracing, new_tracing
from timewright.testing.bench import DEFAULT_START

TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Answers:
    """A target that returns a given outcome at once."""

    def __init__(self, outcome: Outcome | Exception) -> None:
        self.outcome = outcome
        self.launched: list[Launch] = []

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> Any:
        self.launched.append(launch)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        done(self.outcome)
        return FINISHED_WORK

    def close(self, *, grace: timedelta) -> None:
        """Nothing to close."""


def launch(**fields: Any) -> Launch:
    given: dict[str, Any] = {
        "run_id": "run_1",
        "namespace": "default",
        "schedule_id": "sch_1",
        "schedule_name": "report",
        "target": Note(text="x"),
        "given_key": "k",
        "fence": 2,
        "attempt": 1,
        "planned_at": DEFAULT_START,
        "fire_at": DEFAULT_START,
        "time_limit": timedelta(minutes=5),
        "grace": timedelta(seconds=5),
        **fields,
    }
    return Launch(**given)


def traced(outcome: Outcome | Exception) -> tuple[Answers, list[Outcome], ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    got: list[Outcome] = []
    target = Answers(outcome)
    around = Tracing(provider.get_tracer("t")).wrap_target("note", target)
    if isinstance(outcome, Exception):
        with pytest.raises(type(outcome)):
            around.launch(launch(), got.append)
    else:
        around.launch(launch(), got.append)
    (span,) = exporter.get_finished_spans()
    return target, got, span


def test_an_attempt_is_one_span_that_knows_its_run() -> None:
    target, got, span = traced(Succeeded(result=1))
    assert got == [Succeeded(result=1)]
    assert span.name == "note report"
    told = dict(span.attributes or {})
    assert told["timewright.run_id"] == "run_1"
    assert (told["timewright.fence"], told["timewright.outcome"]) == (2, "succeeded")
    assert told["timewright.planned_at"] == "2026-03-10T12:00:00Z"
    assert span.status.status_code is StatusCode.OK
    context = span.get_span_context()
    assert context is not None
    sent = target.launched[0].traceparent
    assert TRACEPARENT.fullmatch(sent)
    assert f"{context.trace_id:032x}-{context.span_id:016x}" in sent


@pytest.mark.parametrize(
    ("outcome", "status", "said"),
    [
        (Failed(error="502 Bad Gateway"), StatusCode.ERROR, "502 Bad Gateway"),
        (TimedOut(), StatusCode.ERROR, "time limit reached"),
        (Released(reason="stopping"), StatusCode.UNSET, None),
        (OSError("no such thing"), StatusCode.ERROR, "OSError: no such thing"),
    ],
)
def test_a_span_has_the_outcome_of_the_attempt(
    outcome: Outcome | Exception, status: StatusCode, said: str | None
) -> None:
    _, _, span = traced(outcome)
    assert (span.status.status_code, span.status.description) == (status, said)


def test_the_context_travels_as_a_header_a_variable_and_a_field() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    told = launch(traceparent=parent, target=Http(url="https://example.com/"))
    assert isinstance(told.target, Http)

    class Nothing:
        def fill(self, value: str) -> str:
            return value

    revealed: Any = Nothing()
    hop = first_hop(prepare_request(told.target), told, revealed=revealed, agent="t", sign=lambda _body: {})
    assert hop.headers["traceparent"] == parent
    assert run_environment(RunInfo.from_launch(told))["TRACEPARENT"] == parent
    assert RunInfo.from_launch(told).traceparent == parent


def test_without_tracing_nothing_of_it_travels() -> None:
    told = launch()
    assert "TRACEPARENT" not in run_environment(RunInfo.from_launch(told))


def test_without_the_extra_it_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra) as refusal:
        new_tracing(version="0")
    assert refusal.value.fix == 'pip install "timewright[otel]"'


def test_a_provider_of_our_own_is_closed_with_us() -> None:
    tracing = new_tracing(version="0")
    assert tracing._own is not None
    assert tracing._own.resource.attributes["service.name"] == "timewright"
    tracing.close()
