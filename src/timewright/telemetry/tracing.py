"""One span for each attempt; its context travels to the target as `traceparent`."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from timewright.core.moments import format_instant
from timewright.core.run.run import Failed, Outcome, Succeeded, TimedOut
from timewright.errors import MissingExtra
from timewright.ports import Launch, RunHandle, Target

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer


class Tracing:
    """The tracer: the application's own provider, or one of ours that exports over OTLP."""

    def __init__(self, tracer: Tracer, *, own: TracerProvider | None = None) -> None:
        self._tracer = tracer
        self._own = own

    def wrap_target(self, kind: str, target: Target) -> Target:
        """Wrap a target in a span for each attempt."""
        return TracedTarget(kind, target, tracer=self._tracer)

    def close(self) -> None:
        """Flush our own provider; the application's provider is left alone."""
        if self._own is not None:
            self._own.shutdown()


class TracedTarget:
    """A target whose every attempt is a span."""

    def __init__(self, kind: str, target: Target, *, tracer: Tracer) -> None:
        self._kind = kind
        self._target = target
        self._tracer = tracer

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start a span, launch with its context, and end the span with the outcome."""
        span = self._tracer.start_span(
            f"{self._kind} {launch.schedule_name}".strip(), attributes=_attributes(self._kind, launch)
        )

        def ended(outcome: Outcome) -> None:
            _end(span, outcome)
            done(outcome)

        try:
            return self._target.launch(replace(launch, traceparent=_traceparent(span)), ended)
        except Exception as error:
            _end(span, Failed(error=f"{type(error).__name__}: {error}"))
            raise

    def close(self, *, grace: timedelta) -> None:
        """Close the wrapped target."""
        self._target.close(grace=grace)


def new_tracing(*, version: str) -> Tracing:
    """Use the process's tracer provider, or configure one from the `OTEL_…` environment variables."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as missing:
        raise MissingExtra(
            "OpenTelemetry is not installed",
            field="trace",
            rule="traces need the OpenTelemetry SDK",
            fix='pip install "timewright[otel]"',
        ) from missing
    given = trace.get_tracer_provider()
    if not isinstance(given, trace.ProxyTracerProvider):
        return Tracing(given.get_tracer("timewright", version))
    named = os.environ.get("OTEL_SERVICE_NAME") or "timewright"
    own = TracerProvider(resource=Resource.create({"service.name": named}))
    own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(own.get_tracer("timewright", version), own=own)


def _attributes(kind: str, launch: Launch) -> dict[str, str | int]:
    return {
        "timewright.target": kind,
        "timewright.namespace": launch.namespace,
        "timewright.schedule": launch.schedule_name,
        "timewright.schedule_id": launch.schedule_id,
        "timewright.run_id": launch.run_id,
        "timewright.fence": launch.fence,
        "timewright.attempt": launch.attempt,
        "timewright.planned_at": format_instant(launch.planned_at),
        "timewright.source": launch.source,
    }


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _end(span: Span, outcome: Outcome) -> None:
    from opentelemetry.trace import StatusCode

    word = str(type(outcome).__struct_config__.tag)
    span.set_attribute("timewright.outcome", word)
    if isinstance(outcome, Succeeded):
        span.set_status(StatusCode.OK)
    elif isinstance(outcome, Failed | TimedOut):
        span.set_status(
            StatusCode.ERROR, outcome.error if isinstance(outcome, Failed) else "time limit reached"
        )
    span.end()
