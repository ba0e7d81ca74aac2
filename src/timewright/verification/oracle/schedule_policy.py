"""Parse a schedule's policy from its body, independent of the engine; every default is repeated here."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from timewright.verification.oracle.times import (
    DAY,
    MINUTE,
    SECOND,
    hash_fraction,
    parse_duration,
    parse_instant,
)
from timewright.verification.rows import JsonObject

MAX_REFUNDS = 10


class BackoffPolicy(Struct, frozen=True, kw_only=True):
    """How long a run waits after its n-th failure."""

    kind: str = "exponential"
    base: int = SECOND
    factor: float = 2.0
    cap: int = MINUTE
    steps: tuple[int, ...] = ()
    jitter: float = 0.0

    def after(self, failures: int, *, run_id: str) -> int:
        """The wait in microseconds; its jitter is a hash of the run and the failure count, and only adds."""
        if self.kind == "exponential":
            wait = min(self.base / 1000 * self.factor ** min(failures - 1, 64), self.cap / 1000)
            wait = int(wait + 0.5) * 1000
        else:
            wait = self.steps[min(failures, len(self.steps)) - 1]
        return (
            int(wait * (1 + self.jitter * hash_fraction("backoff", run_id, str(failures))))
            if self.jitter
            else wait
        )


class RetryBudget(Struct, frozen=True, kw_only=True):
    """Attempts, losses, backoff, what follows exhaustion, and the lease terms of a run."""

    max_attempts: int = 1
    max_losses: int = 3
    losses_are_attempts: bool = False
    backoff: BackoffPolicy = BackoffPolicy()
    parks_when_exhausted: bool = False
    at_most_once: bool = False
    lease: int = MINUTE
    time_limit: int | None = None
    lease_grace: int = 10 * SECOND


class SchedulePolicy(Struct, frozen=True, kw_only=True):
    """One revision of a schedule, with the fields that the checker needs."""

    schedule_id: str
    created_at: int
    trigger: JsonObject
    start_at: int | None = None
    end_at: int | None = None
    max_runs: int | None = None
    calendar: JsonObject | None = None
    aligned_to_now: bool = False
    catch_up: str = "last"
    catch_up_limit: int = 100
    catch_up_window: int | None = DAY
    grace: int = MINUTE
    deadline: int | None = None
    overlap: str = "skip"
    jitter: int = 0
    early_jitter: int = 0
    stable_offset: bool = False
    cadence: str = "none"
    cadence_steps: tuple[int, ...] = (0,)
    cadence_doublings: int = 0
    adaptive: bool = False
    clamp_min: int = 0
    clamp_max: int = 0
    ends_at_change: bool = False
    target: JsonObject = {}
    retry_budget: RetryBudget = RetryBudget()

    @property
    def is_governed(self) -> bool:
        """Whether hints, clamps, cadence or the runs themselves may also decide instants."""
        return bool(
            self.aligned_to_now
            or self.adaptive
            or self.clamp_min
            or self.clamp_max
            or self.cadence != "none"
            or self.trigger.get("kind") in ("after", "manual")
        )

    @property
    def follows_trigger(self) -> bool:
        """Whether the trigger's instants are occurrences, except while a hint or a cadence replaces them."""
        return not self.aligned_to_now and self.trigger.get("kind") not in ("after", "manual")

    @property
    def has_bounds(self) -> bool:
        """Whether its occurrences begin, end or are counted, or calendars leave some out."""
        limits = (self.start_at, self.end_at, self.max_runs, self.calendar)
        return any(limit is not None for limit in limits)

    @property
    def rolls_by_calendar(self) -> bool:
        """Whether calendars move excluded occurrences instead of skipping them."""
        return self.calendar is not None and self.calendar.get("roll", "skip") != "skip"


def parse_policy(schedule_id: str, body: JsonObject) -> SchedulePolicy | None:
    """Parse a body; return None if it cannot be read."""
    try:
        return _policy(schedule_id, body)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def parse_backoff(body: JsonObject) -> BackoffPolicy:
    """Parse a backoff."""
    kind = body.get("kind", "exponential")
    jitter = float(body.get("jitter", 0.0))
    if kind == "ladder":
        usual = ["PT30S", "PT60S", "PT300S", "PT900S", "PT3600S"]
        return BackoffPolicy(
            kind=kind, steps=tuple(parse_duration(step) for step in body.get("steps", usual)), jitter=jitter
        )
    if kind == "constant":
        return BackoffPolicy(kind=kind, steps=(parse_duration(body.get("wait"), SECOND),), jitter=jitter)
    return BackoffPolicy(
        base=parse_duration(body.get("base"), SECOND),
        factor=float(body.get("factor", 2.0)),
        cap=parse_duration(body.get("cap"), MINUTE),
        jitter=jitter,
    )


def parse_queue_budget(body: JsonObject) -> RetryBudget:
    """The retry budget of a queue's entries, with the defaults of a queue."""
    return RetryBudget(
        max_attempts=int(body.get("max_attempts", 3)),
        backoff=parse_backoff(body.get("backoff", {})),
        losses_are_attempts=True,
        parks_when_exhausted=body.get("exhausted", "park") == "park",
        lease=parse_duration(body.get("lease"), 300 * SECOND),
    )


def _policy(schedule_id: str, body: JsonObject) -> SchedulePolicy:
    clamp: JsonObject = body.get("clamp", {})
    jitter = parse_duration(body.get("jitter"))
    return SchedulePolicy(
        schedule_id=schedule_id,
        created_at=parse_instant(body["created_at"]),
        trigger=body["trigger"],
        start_at=_at(body.get("start_at")),
        end_at=_at(body.get("end_at")),
        max_runs=body.get("max_runs"),
        calendar=body.get("calendar"),
        aligned_to_now=body.get("align") == "now" and body["trigger"]["kind"] == "every",
        catch_up=body.get("catch_up", "last"),
        deadline=parse_duration(body["deadline"]) if body.get("deadline") else None,
        catch_up_limit=body.get("catch_up_limit", 100),
        catch_up_window=_window(body),
        grace=parse_duration(body.get("grace"), MINUTE),
        overlap=body.get("overlap", "skip"),
        jitter=jitter,
        early_jitter=jitter if body.get("jitter_side") == "both" else 0,
        stable_offset=body.get("offset") == "stable",
        **_cadence(body.get("cadence", {})),
        adaptive=bool(body.get("adaptive", False)),
        clamp_min=parse_duration(clamp.get("min")),
        clamp_max=parse_duration(clamp.get("max")),
        ends_at_change=bool((body.get("watch") or {}).get("once")),
        target=body.get("target", {}),
        retry_budget=_budget(body),
    )


def _cadence(body: JsonObject) -> dict[str, Any]:
    kind, backoff = body.get("kind", "none"), parse_backoff(body)
    if kind == "ladder":
        steps = tuple(int(step * (1 + backoff.jitter)) for step in backoff.steps)
        return {"cadence": kind, "cadence_steps": steps}
    return {"cadence": kind, "cadence_doublings": body.get("doublings", 5) if kind == "stretch" else 0}


def _budget(body: JsonObject) -> RetryBudget:
    retry: JsonObject = body.get("retry", {})
    lease: JsonObject = body.get("lease", {})
    return RetryBudget(
        max_attempts=int(retry.get("max_attempts", 1)),
        max_losses=int(retry.get("max_losses", 3)),
        losses_are_attempts=bool(retry.get("losses_are_attempts", False)),
        backoff=parse_backoff(retry.get("backoff", {})),
        parks_when_exhausted=retry.get("exhausted", "fail") == "park",
        at_most_once=body.get("delivery") == "at_most_once",
        lease=parse_duration(lease.get("length"), MINUTE),
        time_limit=parse_duration(limit) if (limit := lease.get("time_limit")) is not None else None,
        lease_grace=parse_duration(lease.get("grace"), 10 * SECOND),
    )


def _window(body: JsonObject) -> int | None:
    """How old a missed occurrence may be: null means unlimited, absent means a day."""
    if "catch_up_window" not in body:
        return DAY
    return parse_duration(body["catch_up_window"]) if body["catch_up_window"] is not None else None


def _at(text: Any) -> int | None:
    return parse_instant(text) if text is not None else None
