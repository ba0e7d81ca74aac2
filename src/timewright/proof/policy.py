"""What a schedule says, read from its body anew: every default is written here a second time."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from timewright.proof.rows import Plain
from timewright.proof.spans import DAY, MINUTE, SECOND, instant, share, span

REFUND_CAP = 10


class Backoff(Struct, frozen=True, kw_only=True):
    """How long a run waits after its n-th failure."""

    kind: str = "exponential"
    base: int = SECOND
    factor: float = 2.0
    cap: int = MINUTE
    steps: tuple[int, ...] = ()
    jitter: float = 0.0

    def after(self, failures: int, *, run_id: str) -> int:
        """The wait in microseconds; its jitter is a hash of the run and the number, and only adds."""
        if self.kind == "exponential":
            wait = min(self.base / 1000 * self.factor ** min(failures - 1, 64), self.cap / 1000)
            wait = int(wait + 0.5) * 1000
        else:
            wait = self.steps[min(failures, len(self.steps)) - 1]
        return (
            int(wait * (1 + self.jitter * share("backoff", run_id, str(failures)))) if self.jitter else wait
        )


class Budget(Struct, frozen=True, kw_only=True):
    """How often a run is tried, how long it waits in between, what becomes of it, how long a lease is."""

    max_attempts: int = 3
    backoff: Backoff = Backoff()
    parks: bool = False
    at_most_once: bool = False
    lease: int = 300 * SECOND
    time_limit: int = 300 * SECOND
    lease_grace: int = 10 * SECOND


class Policy(Struct, frozen=True, kw_only=True):
    """One revision of a schedule, as far as the checker needs it."""

    schedule_id: str
    created_at: int
    trigger: Plain
    start_at: int | None = None
    end_at: int | None = None
    max_runs: int | None = None
    calendar: Plain | None = None
    from_now: bool = False
    catch_up: str = "last"
    catch_up_limit: int = 100
    catch_up_window: int | None = DAY
    grace: int = MINUTE
    overlap: str = "skip"
    jitter: int = 0
    early: int = 0
    stable: bool = False
    cadence: str = "none"
    adaptive: bool = False
    clamp_min: int = 0
    clamp_max: int = 0
    target: Plain = {}
    budget: Budget = Budget()

    @property
    def governed(self) -> bool:
        """Whether something besides the trigger may decide: hints, clamps, cadence, the runs themselves."""
        return bool(
            self.from_now
            or self.adaptive
            or self.clamp_min
            or self.clamp_max
            or self.cadence != "none"
            or self.trigger.get("kind") in ("after", "manual")
        )

    @property
    def rolls(self) -> bool:
        """Whether calendars move its occurrences."""
        return self.calendar is not None and self.calendar.get("roll", "skip") != "skip"


def policy_of(schedule_id: str, body: Plain) -> Policy | None:
    """Read a body; nothing if it cannot be understood."""
    try:
        return _policy(schedule_id, body)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def backoff_of(body: Plain) -> Backoff:
    """Read a backoff."""
    kind = body.get("kind", "exponential")
    jitter = float(body.get("jitter", 0.0))
    if kind == "ladder":
        usual = ["PT30S", "PT60S", "PT300S", "PT900S", "PT3600S"]
        return Backoff(kind=kind, steps=tuple(span(step) for step in body.get("steps", usual)), jitter=jitter)
    if kind == "constant":
        return Backoff(kind=kind, steps=(span(body.get("wait"), SECOND),), jitter=jitter)
    return Backoff(
        base=span(body.get("base"), SECOND),
        factor=float(body.get("factor", 2.0)),
        cap=span(body.get("cap"), MINUTE),
        jitter=jitter,
    )


def queue_budget(body: Plain) -> Budget:
    """The budget of a queue's entries; what is not said is the cautious default."""
    return Budget(
        max_attempts=int(body.get("max_attempts", 3)),
        backoff=backoff_of(body.get("backoff", {})),
        parks=body.get("exhausted", "park") == "park",
        lease=span(body.get("lease"), 300 * SECOND),
    )


def _policy(schedule_id: str, body: Plain) -> Policy:
    clamp: Plain = body.get("clamp", {})
    jitter = span(body.get("jitter"))
    return Policy(
        schedule_id=schedule_id,
        created_at=instant(body["created_at"]),
        trigger=body["trigger"],
        start_at=_at(body.get("start_at")),
        end_at=_at(body.get("end_at")),
        max_runs=body.get("max_runs"),
        calendar=body.get("calendar"),
        from_now=body.get("align") == "now" and body["trigger"]["kind"] == "every",
        catch_up=body.get("catch_up", "last"),
        catch_up_limit=body.get("catch_up_limit", 100),
        catch_up_window=_window(body),
        grace=span(body.get("grace"), MINUTE),
        overlap=body.get("overlap", "skip"),
        jitter=jitter,
        early=jitter if body.get("jitter_side") == "both" else 0,
        stable=body.get("offset") == "stable",
        cadence=body.get("cadence", {}).get("kind", "none"),
        adaptive=bool(body.get("adaptive", False)),
        clamp_min=span(clamp.get("min")),
        clamp_max=span(clamp.get("max")),
        target=body.get("target", {}),
        budget=_budget(body),
    )


def _budget(body: Plain) -> Budget:
    retry: Plain = body.get("retry", {})
    lease: Plain = body.get("lease", {})
    return Budget(
        max_attempts=int(retry.get("max_attempts", 3)),
        backoff=backoff_of(retry.get("backoff", {})),
        parks=retry.get("exhausted", "fail") == "park",
        at_most_once=body.get("delivery") == "at_most_once",
        lease=span(lease.get("length"), 300 * SECOND),
        time_limit=span(lease.get("time_limit"), 300 * SECOND),
        lease_grace=span(lease.get("grace"), 10 * SECOND),
    )


def _window(body: Plain) -> int | None:
    """How old a missed occurrence may be; said to be nothing it is unlimited, not said it is a day."""
    if "catch_up_window" not in body:
        return DAY
    return span(body["catch_up_window"]) if body["catch_up_window"] is not None else None


def _at(text: Any) -> int | None:
    return instant(text) if text is not None else None
