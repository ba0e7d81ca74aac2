"""Schedules that stand in relation to others: those that follow, those that need, those that spend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from timewright.core.costs import Cost
from timewright.testing.world.chance import Chance

if TYPE_CHECKING:
    from timewright.testing.world.workload import Scenario

Drawn = tuple[str, dict[str, Any]]

CALLS, TOKENS, PROVIDER = "calls", "tokens", "llm"
ESTIMATE = 300
# Whoever is followed ends often, so that there is something to follow.
SOURCE = "source"
SHORT_LEASE = {"length": "30s", "time_limit": "60s", "grace": "2s"}


def linked(plain: Scenario, *, often: bool) -> Scenario:
    """The same world with schedules that follow, need, and spend."""
    chance = Chance(plain.seed, "linked")
    every = ("2m", "3m") if often else ("20m", "30m", "1h")
    sources = [_source(chance, n, every=every) for n in range(2)]
    followers = [_follower(chance, n) for n in range(2)]
    needy = [_needy(chance, n, every=every) for n in range(2)]
    spending = [(namespace, _spending(chance, draft)) for namespace, draft in plain.schedules]
    return replace(
        plain,
        schedules=(*spending, *sources, *followers, *needy),
        budgets=tuple((namespace, *budget(chance, name)) for namespace in _SPENDERS for name in _UNITS),
    )


_SPENDERS = ("default", "acme")
_UNITS = {CALLS: "requests", TOKENS: "tokens"}


def budget(chance: Chance, name: str) -> tuple[str, dict[str, Any]]:
    """A budget that is often used up, and begins anew before long."""
    limit = chance.choice((2, 5, 12)) * (1 if name == CALLS else ESTIMATE)
    return name, {"unit": _UNITS[name], "limit": limit, "period": chance.choice(("15m", "1h"))}


def cost_of(chance: Chance) -> Cost | None:
    """What an attempt says it cost: nothing, less than was expected, or more."""
    return Cost(tokens=chance.randrange(3 * ESTIMATE)) if chance.maybe(0.6) else None


def follow_of(chance: Chance) -> dict[str, Any]:
    """Whom a schedule runs after, and after which end."""
    return {
        "schedule": f"{SOURCE}-{chance.randrange(2)}",
        "on": chance.choice(("success", "success", "failure", "end")),
        "delay": chance.choice(("0s", "0s", "20s", "2m")),
    }


def need_of(chance: Chance) -> dict[str, Any]:
    """What a schedule needs before it starts."""
    return {
        "schedule": f"{SOURCE}-{chance.randrange(2)}",
        "within": chance.choice(("1m", "2m", "30m")),
        "on": chance.choice(("success", "success", "end")),
        "wait": chance.choice(("0s", "1m", "10m")),
        "else": chance.choice(("skip", "run", "park")),
    }


def _source(chance: Chance, number: int, *, every: tuple[str, ...]) -> Drawn:
    draft = {"name": f"{SOURCE}-{number}", "every": chance.choice(every), "note": "is followed"}
    overlap = chance.choice(("skip", "allow"))
    return "default", {**draft, "overlap": overlap, "lease": SHORT_LEASE, "retry": {"max_attempts": 2}}


def _follower(chance: Chance, number: int) -> Drawn:
    overlap = chance.choice(("skip", "queue", "replace", "allow"))
    draft: dict[str, Any] = {"name": f"follower-{number}", "after": follow_of(chance), "note": "follows"}
    if chance.maybe(0.3):
        draft["catch_up"] = "none"
    if chance.maybe(0.3):
        draft["jitter"] = "20s"
    if number and chance.maybe(0.5):
        draft["max_runs"] = 3
    return "default", {**draft, "overlap": overlap, "lease": SHORT_LEASE}


def _needy(chance: Chance, number: int, *, every: tuple[str, ...]) -> Drawn:
    needs = [need_of(chance) for _ in range(chance.choice((1, 1, 2)))]
    overlap = chance.choice(("skip", "queue", "allow"))
    draft = {"name": f"needy-{number}", "every": chance.choice(every), "overlap": overlap, "note": "needs"}
    return "default", {**draft, "needs": needs, "lease": SHORT_LEASE}


def _spending(chance: Chance, draft: dict[str, Any]) -> dict[str, Any]:
    """The same schedule, perhaps under a budget or with a provider."""
    draw = chance.random()
    if draft.get("every") in ("1s", "30s"):
        # Whoever waits for its budget is overlapped every second: thousands of rows that say the same.
        return draft
    if draw < 0.15:
        return {**draft, "budgets": [CALLS]}
    if draw < 0.35:
        named = [TOKENS] if draw < 0.3 else [TOKENS, CALLS]
        estimate = {"estimate": {"tokens": ESTIMATE}} if chance.maybe(0.7) else {}
        return {**draft, "budgets": named, **estimate}
    return {**draft, "provider": PROVIDER} if draw < 0.5 else draft
