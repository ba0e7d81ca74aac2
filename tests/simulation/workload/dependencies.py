"""Schedules that depend on others: followers, schedules with needs, and schedules with budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tests.simulation.model.seeded_random import SeededRandom
from timewright.core.budgets.costs import Cost

if TYPE_CHECKING:
    from tests.simulation.workload.scenarios import Scenario

DrawnSchedule = tuple[str, dict[str, Any]]

CALLS, TOKENS, PROVIDER = "calls", "tokens", "llm"
ESTIMATE = 300
# Upstream schedules end often, so that there is much to follow.
SOURCE = "source"
SHORT_LEASE = {"length": "30s", "time_limit": "60s", "grace": "2s"}


def with_dependencies(base: Scenario, *, often: bool) -> Scenario:
    """The same scenario with followers, needs and budgets."""
    rng = SeededRandom(base.seed, "linked")
    every = ("2m", "3m") if often else ("20m", "30m", "1h")
    sources = [_source(rng, n, every=every) for n in range(2)]
    followers = [_follower(rng, n) for n in range(2)]
    needy = [_needy(rng, n, every=every) for n in range(2)]
    spending = [(namespace, _spending(rng, draft)) for namespace, draft in base.schedules]
    return replace(
        base,
        schedules=(*spending, *sources, *followers, *needy),
        budgets=tuple((namespace, *draw_budget(rng, name)) for namespace in _SPENDERS for name in _UNITS),
    )


_SPENDERS = ("default", "acme")
_UNITS = {CALLS: "requests", TOKENS: "tokens"}


def draw_budget(rng: SeededRandom, name: str) -> tuple[str, dict[str, Any]]:
    """A budget that is often used up and soon renewed."""
    limit = rng.choice((2, 5, 12)) * (1 if name == CALLS else ESTIMATE)
    return name, {"unit": _UNITS[name], "limit": limit, "period": rng.choice(("15m", "1h"))}


def draw_cost(rng: SeededRandom) -> Cost | None:
    """The reported cost of an attempt: none, less than estimated, or more."""
    return Cost(tokens=rng.randrange(3 * ESTIMATE)) if rng.happens(0.6) else None


def draw_follow(rng: SeededRandom) -> dict[str, Any]:
    """The upstream schedule and kind of end of a follower."""
    return {
        "schedule": f"{SOURCE}-{rng.randrange(2)}",
        "on": rng.choice(("success", "success", "failure", "end")),
        "delay": rng.choice(("0s", "0s", "20s", "2m")),
    }


def draw_need(rng: SeededRandom) -> dict[str, Any]:
    """One need of a schedule."""
    return {
        "schedule": f"{SOURCE}-{rng.randrange(2)}",
        "within": rng.choice(("1m", "2m", "30m")),
        "on": rng.choice(("success", "success", "end")),
        "wait": rng.choice(("0s", "1m", "10m")),
        "else": rng.choice(("skip", "run", "park")),
    }


def _source(rng: SeededRandom, number: int, *, every: tuple[str, ...]) -> DrawnSchedule:
    draft = {"name": f"{SOURCE}-{number}", "every": rng.choice(every), "note": "is followed"}
    overlap = rng.choice(("skip", "allow"))
    return "default", {**draft, "overlap": overlap, "lease": SHORT_LEASE, "retry": {"max_attempts": 2}}


def _follower(rng: SeededRandom, number: int) -> DrawnSchedule:
    overlap = rng.choice(("skip", "queue", "replace", "allow"))
    draft: dict[str, Any] = {"name": f"follower-{number}", "after": draw_follow(rng), "note": "follows"}
    if rng.happens(0.3):
        draft["catch_up"] = "none"
    if rng.happens(0.3):
        draft["jitter"] = "20s"
    if number and rng.happens(0.5):
        draft["max_runs"] = 3
    return "default", {**draft, "overlap": overlap, "lease": SHORT_LEASE}


def _needy(rng: SeededRandom, number: int, *, every: tuple[str, ...]) -> DrawnSchedule:
    needs = [draw_need(rng) for _ in range(rng.choice((1, 1, 2)))]
    overlap = rng.choice(("skip", "queue", "allow"))
    draft = {"name": f"needy-{number}", "every": rng.choice(every), "overlap": overlap, "note": "needs"}
    return "default", {**draft, "needs": needs, "lease": SHORT_LEASE}


def _spending(rng: SeededRandom, draft: dict[str, Any]) -> dict[str, Any]:
    """The same schedule, perhaps with a budget or a provider."""
    draw = rng.random()
    if draft.get("every") in ("1s", "30s"):
        # A run that waits for its budget would be overlapped every second, giving thousands of equal rows.
        return draft
    if draw < 0.15:
        return {**draft, "budgets": [CALLS]}
    if draw < 0.35:
        named = [TOKENS] if draw < 0.3 else [TOKENS, CALLS]
        estimate = {"estimate": {"tokens": ESTIMATE}} if rng.happens(0.7) else {}
        return {**draft, "budgets": named, **estimate}
    return {**draft, "provider": PROVIDER} if draw < 0.5 else draft
