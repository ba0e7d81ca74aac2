"""What tests of schedules read from a bench: instants, outcomes of occurrences, and alarms of verify."""

from __future__ import annotations

from datetime import UTC, datetime

from timewright.testing.bench import Bench


def at(clock: str) -> datetime:
    """An instant of the day on which a bench begins (at 12:00)."""
    return datetime.fromisoformat(f"2026-03-10T{clock}").replace(tzinfo=UTC)


def minutes(first: int, last: int, *, step: int = 1) -> list[datetime]:
    """The minutes after 12:00, the last one included."""
    return [at(f"{12 + minute // 60:02}:{minute % 60:02}:00") for minute in range(first, last + 1, step)]


def outcomes(bench: Bench, name: str = "j") -> list[tuple[datetime, str]]:
    """What has a row, and what became of it: the reason if it was skipped, else the state."""
    return [
        (run.planned_at, str(run.reason) if run.state == "skipped" else str(run.state))
        for run in bench.runs(name)
    ]


def alarms(bench: Bench) -> list[str]:
    """What `verify` calls broken."""
    return [f"{found['promise']} {found['message']}" for found in bench.call("verify")["violations"]]


def skipped_at_ten_past() -> Bench:
    """A schedule for every ten minutes whose next instant, 12:10, was just skipped by hand."""
    bench = Bench()
    bench.call("schedule create", name="j", note="x", every="10m")
    bench.advance("1m")
    bench.call("schedule skip", schedule="j")
    return bench
