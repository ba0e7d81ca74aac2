"""A token budget after an outage: missed runs are caught up over days, and none fails."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from timewright.core.budgets.budgets import Budget, Unit
from timewright.core.budgets.costs import Cost
from timewright.core.policies.policies import CatchUp, Overlap, Retry
from timewright.core.recurrence.triggers import Every
from timewright.ledger.budgets.budget_records import set_budget
from timewright.ledger.replan import Actor
from timewright.operations import OperationContext, operations
from timewright.testing.bench import Bench
from timewright.testing.targets import fail, succeed

MORNING = datetime(2026, 3, 10, 6, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
A_DAY = 40 * 1000


def test_a_hundred_runs_missed_in_an_outage_are_caught_up_within_a_daily_budget_of_tokens() -> None:
    bench = Bench(start=MORNING, capacity=8)
    budget = Budget(name="inference", namespace="default", unit=Unit.TOKENS, limit=A_DAY)
    bench.store.write(lambda tx: set_budget(tx, budget, by=Actor(), now=bench.now))
    bench.schedule(
        "summaries",
        Every(QUARTER),
        catch_up=CatchUp.ALL,
        catch_up_window=None,
        overlap=Overlap.ALLOW,
        max_runs=100,
        budgets=("inference",),
        provider="model",
        estimate=Cost(tokens=1500),
        retry=Retry(max_attempts=2),
    )
    limited = fail("HTTP 429 Too Many Requests", not_before=MORNING + timedelta(hours=27))
    bench.target.script("summaries", limited, succeed(cost=Cost(tokens=1000)))
    bench.clock.advance(25 * timedelta(hours=1))  # an outage of a day
    bench.advance(minutes=1)
    context = OperationContext(store=bench.store, ids=bench.ids, notify=bench.loop.notify_observers)

    # The first result closed the provider: runs in flight continue, all others are deferred.
    waiting = [run for run in bench.runs("summaries") if run.reason.startswith("provider: model:")]
    assert waiting
    assert {run.fire_at for run in waiting} == {MORNING + timedelta(hours=27)}
    told = operations["run explain"](context, {"run": waiting[0].id})
    assert "for provider model: closed until 2026-03-11T09:00:00Z" in " ".join(told["because"])

    bench.advance(hours=2, minutes=59)
    waiting = [run for run in bench.runs("summaries") if run.reason.startswith("budget: inference:")]
    assert {run.fire_at for run in waiting} == {datetime(2026, 3, 12, tzinfo=UTC)}
    assert {run.attempts for run in waiting} == {0}
    kept = operations["budget get"](context, {"budget": "inference"})
    assert kept["waiting"] == len(waiting)
    assert int(kept["used"]) <= A_DAY

    bench.advance(days=3)
    runs = bench.runs("summaries")
    assert Counter(run.state.value for run in runs) == {"succeeded": 100}
    usage = operations["budget usage"](context, {"budget": "inference"})
    spent = [int(row["used"]) for row in usage["periods"]]
    assert len(spent) == 3
    assert max(spent) <= A_DAY
    # Every success cost 1000 tokens, the one rejected attempt its estimate.
    assert sum(spent) == 100 * 1000 + 1500
    days = Counter(run.finished_at.date() for run in runs if run.finished_at is not None)
    assert len(days) == 3
