"""Budgets and providers: which runs are leased or deferred, and what is charged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ledger.ledger_kit import ADA, NOON, LedgerHarness, LossyStore, at, kinds
from timewright.core.budgets.budgets import Budget, BudgetUsage, Charge, Unit
from timewright.core.budgets.costs import Cost, to_millionths
from timewright.core.moments import DAY, HOUR, MINUTE, to_micros
from timewright.core.policies.policies import Overlap, Retry
from timewright.core.recurrence.triggers import Every, Manual
from timewright.core.run.leasing import WaitReason
from timewright.core.run.run import Failed, Lost, Released, Run, RunState, Succeeded
from timewright.core.schedule.schedule import Schedule
from timewright.core.target import Call, Http
from timewright.errors import InvalidInput, NotAllowed, NotFound
from timewright.ids import TimedIds
from timewright.ledger.budgets.budget_records import close_provider, delete_budget, open_provider, set_budget
from timewright.ledger.lease import plan_queue
from timewright.operations.context import OperationContext
from timewright.operations.health.verify import read_history
from timewright.ports import StoredObject
from timewright.ports.objects import UsageByPeriod
from timewright.verification import check

MIDNIGHT = datetime(2026, 3, 11, tzinfo=UTC)
CROWD = 24


@pytest.fixture(autouse=True)
def adds_up(bench: LedgerHarness) -> Iterator[None]:
    """After every test: each account is the sum of its charges, and each charge belongs to a lease."""
    yield
    context = OperationContext(store=bench.store, ids=TimedIds(), notify=lambda facts: None)
    history = read_history(context, all_namespaces=True)
    assert check(history, now=to_micros(bench.now), only=["I42"]).violations == ()


def budget(
    bench: LedgerHarness, name: str = "day", unit: Unit = Unit.REQUESTS, limit: int = 2, **fields: Any
) -> Budget:
    """Set a budget of the default namespace."""
    made = Budget(name=name, namespace="default", unit=unit, limit=limit, **fields)
    bench.store.write(lambda tx: set_budget(tx, made, by=ADA, now=bench.now))
    return made


def by_hand(bench: LedgerHarness, name: str = "job", many: int = 1, **fields: Any) -> list[Run]:
    """Create `count` runs of a schedule with overlap `allow`."""
    schedule = bench.schedule(name, Manual(), overlap=Overlap.ALLOW, **fields)
    return [bench.run_now(schedule) for _ in range(many)]


def account(bench: LedgerHarness, one: Budget) -> BudgetUsage:
    place = (one.account_name, one.period_at(bench.now).start)
    return bench.store.read(lambda tx: tx.get_accounts([place]))[place]


def charges(bench: LedgerHarness, *runs: Run) -> list[Charge]:
    found = bench.store.read(lambda tx: tx.get_run_rows(Charge, [run.id for run in runs]))
    return [one for of_run in found.values() for one in of_run]


def close(bench: LedgerHarness, until: datetime, provider: str = "openai") -> None:
    bench.store.write(lambda tx: close_provider(tx, "default", provider, until=until, by=ADA, now=bench.now))


def test_a_run_over_budget_is_deferred_to_the_next_period_without_an_attempt(
    bench: LedgerHarness,
) -> None:
    day = budget(bench, limit=2)
    runs = by_hand(bench, many=3, budgets=("day",))
    found = bench.leased()
    assert [lease.run.id for lease in found.leases] == [run.id for run in runs[:2]]
    assert "RunDeferred" in kinds(found.facts)
    waits = bench.run(runs[2])
    assert (waits.state, waits.fire_at, waits.attempts, waits.fence) == (RunState.READY, MIDNIGHT, 0, 0)
    assert waits.reason == "budget: day: 2 requests used or held of 2 requests; the next day begins then"
    assert account(bench, day) == BudgetUsage(2, 0)
    assert bench.lease() == []
    bench.clock.advance(MIDNIGHT - bench.now)
    (last,) = bench.lease()
    assert (last.id, last.reason) == (runs[2].id, "")
    assert account(bench, day) == BudgetUsage(1, 0)


def test_a_raised_budget_releases_deferred_runs_at_once(bench: LedgerHarness) -> None:
    budget(bench, limit=1)
    runs = by_hand(bench, many=3, budgets=("day",))
    assert len(bench.lease()) == 1
    budget(bench, limit=2)
    assert [run.id for run in bench.lease()] == [runs[1].id]
    assert bench.run(runs[2]).fire_at == MIDNIGHT


def test_a_deleted_budget_defers_no_run_and_a_used_one_cannot_be_deleted(bench: LedgerHarness) -> None:
    one = budget(bench, limit=0, owner="ann")
    schedule = bench.schedule("job", Manual(), created_by="ann", budgets=("day",))
    run = bench.run_now(schedule)
    assert bench.lease() == []
    with pytest.raises(NotAllowed) as refusal:
        bench.store.write(lambda tx: delete_budget(tx, one, by=ADA, now=bench.now))
    assert "job" in refusal.value.message
    bench.revise(Schedule(**{**_fields(schedule), "budgets": ()}))
    assert bench.lease() == []
    bench.store.write(lambda tx: delete_budget(tx, one, by=ADA, now=bench.now))
    assert [leased.id for leased in bench.lease()] == [run.id]
    assert charges(bench, run) == []


def test_a_schedule_cannot_name_an_unknown_budget(bench: LedgerHarness) -> None:
    budget(bench, "real")
    with pytest.raises(NotFound) as refusal:
        bench.schedule("job", budgets=("unreal",))
    assert (refusal.value.field, refusal.value.fix) == ("budgets", "use one of real")
    budget(bench, "tokens", Unit.TOKENS, 100)
    with pytest.raises(InvalidInput) as refused:
        bench.schedule("job", budgets=("tokens",), estimate=Cost(tokens=101))
    assert refused.value.field == "estimate"
    kept = bench.schedule("job", budgets=("tokens",), estimate=Cost(tokens=100))
    with pytest.raises(NotFound):
        bench.revise(Schedule(**{**_fields(kept), "budgets": ("unreal",)}))


def test_a_reported_cost_replaces_the_held_estimate(bench: LedgerHarness) -> None:
    tokens = budget(bench, "tokens", Unit.TOKENS, 1000)
    money = budget(bench, "money", Unit.MONEY, to_millionths("1.00"), currency="EUR")
    estimate = Cost(tokens=400, money="0.40")
    runs = by_hand(bench, many=3, budgets=("tokens", "money"), estimate=estimate)
    held = bench.lease()
    assert [run.id for run in held] == [run.id for run in runs[:2]]
    assert (account(bench, tokens), account(bench, money)) == (BudgetUsage(0, 800), BudgetUsage(0, 800_000))
    bench.settle(held[0], outcome=Succeeded(cost=Cost(tokens=90, money="0.05", currency="EUR")))
    assert (account(bench, tokens), account(bench, money)) == (
        BudgetUsage(90, 400),
        BudgetUsage(50_000, 400_000),
    )
    (attempt,) = bench.attempts(held[0])
    assert attempt.cost == Cost(tokens=90, money="0.05", currency="EUR")
    bench.settle(held[1])
    assert account(bench, tokens) == BudgetUsage(490, 0)
    assert [c.used for c in charges(bench, held[1])] == [400_000, 400]


def test_without_an_estimate_a_run_starts_while_anything_is_left(bench: LedgerHarness) -> None:
    tokens = budget(bench, "tokens", Unit.TOKENS, 100)
    runs = by_hand(bench, many=3, budgets=("tokens",))
    bench.settle(*bench.lease(1), outcome=Succeeded(cost=Cost(tokens=99)))
    bench.settle(*bench.lease(1), outcome=Succeeded(cost=Cost(tokens=500)))
    assert bench.lease() == []
    assert account(bench, tokens) == BudgetUsage(599, 0)
    assert "599 tokens used or held of 100 tokens" in bench.run(runs[2]).reason


def test_every_attempt_counts_as_a_request_and_a_lost_one_costs_its_estimate(bench: LedgerHarness) -> None:
    requests, tokens = budget(bench, limit=10), budget(bench, "tokens", Unit.TOKENS, 1000)
    (run,) = by_hand(bench, budgets=("day", "tokens"), estimate=Cost(tokens=10), retry=Retry(max_attempts=3))
    bench.settle(*bench.lease(), outcome=Lost())
    bench.move_to(2)
    bench.settle(*bench.lease(), outcome=Failed(error="no", cost=Cost(tokens=3)))
    bench.move_to(4)
    bench.settle(*bench.lease(), outcome=Released())
    assert (account(bench, requests), account(bench, tokens)) == (BudgetUsage(3, 0), BudgetUsage(13, 0))
    assert {(c.fence, c.budget, c.used) for c in charges(bench, run)} == {
        (fence, name, used)
        for fence, taken in ((1, 10), (2, 3), (3, 0))
        for name, used in (("default/day", 1), ("default/tokens", taken))
    }


def test_a_stale_answer_charges_nothing_and_the_same_answer_twice_is_charged_once(
    bench: LedgerHarness,
) -> None:
    tokens = budget(bench, "tokens", Unit.TOKENS, 1000)
    by_hand(bench, budgets=("tokens",), estimate=Cost(tokens=10), retry=Retry(max_attempts=3))
    (first,) = bench.lease()
    bench.move_to(6)
    bench.reclaim()
    late = bench.settle(first, outcome=Succeeded(cost=Cost(tokens=700)))
    assert late.stale == (first.id,)
    assert account(bench, tokens) == BudgetUsage(10, 0)
    bench.move_to(8)
    (second,) = bench.lease()
    for _ in range(2):
        bench.settle(second, outcome=Succeeded(cost=Cost(tokens=30)))
    assert account(bench, tokens) == BudgetUsage(40, 0)


def test_a_commit_with_unknown_outcome_is_charged_once(unsure: tuple[LedgerHarness, LossyStore]) -> None:
    bench, store = unsure
    requests, tokens = budget(bench), budget(bench, "tokens", Unit.TOKENS, 1000)
    by_hand(bench, budgets=("day", "tokens"), estimate=Cost(tokens=10))
    store.break_next(True)
    (run,) = bench.lease()
    assert (account(bench, requests), account(bench, tokens)) == (BudgetUsage(1, 0), BudgetUsage(0, 10))
    store.break_next(True)
    bench.settle(run, outcome=Succeeded(cost=Cost(tokens=30)))
    assert (account(bench, requests), account(bench, tokens)) == (BudgetUsage(1, 0), BudgetUsage(30, 0))


@pytest.mark.parametrize(
    ("covers", "fits"),
    [
        ({"owner": "ann"}, {"ann-http", "ann-call"}),
        ({"host": "api.example.com"}, {"ann-http", "bob-http"}),
        ({"function": "sum"}, {"ann-call"}),
        ({"queue": "mail"}, {"queued"}),
        ({"provider": "openai"}, {"bob-http"}),
        ({"owner": "ann", "host": "api.example.com"}, {"ann-http"}),
        ({"owner": "ada", "queue": "mail"}, {"queued"}),
        ({}, set()),
    ],
)
def test_a_budget_applies_to_runs_that_match_all_of_its_scope(
    bench: LedgerHarness, covers: dict[str, Any], fits: set[str]
) -> None:
    budget(bench, limit=0, **covers)
    http = Http(url="https://API.example.com:8443/v1")
    runs = {
        "ann-http": by_hand(bench, "a", created_by="ann", target=http)[0],
        "bob-http": by_hand(bench, "b", created_by="bob", target=http, provider="openai")[0],
        "ann-call": by_hand(bench, "c", created_by="ann", target=Call(name="sum"))[0],
        "queued": bench.enqueue(1)[0],
    }
    bench.lease()
    bench.lease(handoff=True)
    waits = {name for name, run in runs.items() if bench.run(run).reason.startswith("budget: day:")}
    assert waits == fits
    assert all(bench.run(run).state is RunState.LEASED for name, run in runs.items() if name not in fits)


def test_a_budget_of_another_namespace_does_not_apply(bench: LedgerHarness) -> None:
    budget(bench, limit=0, owner="ann")
    elsewhere = bench.schedule("job", Manual(), created_by="ann", namespace="other")
    assert bench.lease() == []
    bench.run_now(elsewhere)
    assert len(bench.lease()) == 1


def test_runs_behind_a_deferred_run_continue(bench: LedgerHarness) -> None:
    budget(bench, limit=0)
    by_hand(bench, "poor", many=12, budgets=("day",), priority=0)
    rich = by_hand(bench, "rich", many=2)
    assert [run.id for run in bench.lease(2)] == [run.id for run in rich]


def test_an_occurrence_under_a_budget_is_never_started_past_it(bench: LedgerHarness) -> None:
    """Runs under a budget are not inserted already leased."""
    from timewright.ledger.admission_batch import LocalCapacity

    budget(bench, limit=1)
    schedule = bench.schedule("job", Every(MINUTE), overlap=Overlap.ALLOW, budgets=("day",))
    bench.move_to(1)
    for minute in (1, 2):
        bench.move_to(minute)
        assert bench.admit(local_capacity=LocalCapacity(holder="worker", free_slots=10)).leased == ()
    assert len(bench.lease()) == 1
    assert [run.state.value for run in bench.runs(schedule)] == ["leased", "ready"]


def test_a_plan_names_runs_that_wait_for_a_budget(bench: LedgerHarness) -> None:
    one = budget(bench, limit=0, queue="mail")
    (run,) = bench.enqueue(1)

    def waiting() -> list[tuple[str, WaitReason, str, datetime | None]]:
        plan, _ = plan_queue(bench.store, namespace="default", queue="mail", now=bench.now)
        assert plan.leases == ()
        return [(w.run_id, w.reason, w.blocked_by, w.until) for w in plan.waiting]

    expected = [(run.id, WaitReason.BUDGET, "day", MIDNIGHT)]
    assert waiting() == expected
    assert bench.lease(handoff=True) == []
    assert waiting() == expected
    assert account(bench, one) == BudgetUsage()


def test_a_deadline_ends_a_run_that_waited_too_long_for_its_budget(bench: LedgerHarness) -> None:
    budget(bench, limit=0, period="1h")
    (run,) = by_hand(bench, budgets=("day",), deadline=30 * MINUTE)
    assert bench.lease() == []
    bench.clock.advance(HOUR)
    assert bench.lease() == []
    assert (bench.run(run).state, bench.run(run).reason) == (RunState.SKIPPED, "deadline")


def test_a_changed_period_counts_the_charges_since_its_start(bench: LedgerHarness) -> None:
    hour = budget(bench, limit=10, period="hour")
    runs = by_hand(bench, many=5, budgets=("day",))
    bench.lease(3)
    bench.clock.advance(HOUR)
    bench.lease(1)
    assert account(bench, hour) == BudgetUsage(1, 0)
    day = budget(bench, limit=4)
    assert account(bench, day) == BudgetUsage(4, 0)
    assert bench.lease() == []
    assert bench.run(runs[4]).fire_at == MIDNIGHT
    with pytest.raises(NotAllowed):
        budget(bench, "day", Unit.TOKENS, 10)


def test_a_run_that_started_before_its_budget_is_charged_when_it_reports(bench: LedgerHarness) -> None:
    (run,) = by_hand(bench, created_by="ann")
    (held,) = bench.lease()
    tokens = budget(bench, "tokens", Unit.TOKENS, 100, owner="ann")
    bench.settle(held, outcome=Succeeded(cost=Cost(tokens=60)))
    assert account(bench, tokens) == BudgetUsage(60, 0)
    assert [(c.fence, c.used, c.open) for c in charges(bench, run)] == [(1, 60, False)]


def test_a_run_is_charged_to_the_period_in_which_it_started(bench: LedgerHarness) -> None:
    tokens = budget(bench, "tokens", Unit.TOKENS, 100)
    by_hand(bench, budgets=("tokens",), estimate=Cost(tokens=50))
    bench.clock.advance(MIDNIGHT - bench.now - MINUTE)
    (run,) = bench.lease()
    bench.clock.advance(2 * MINUTE)
    bench.settle(run, outcome=Succeeded(cost=Cost(tokens=70)))
    assert account(bench, tokens) == BudgetUsage()
    accounts = bench.store.read(lambda tx: tx.select(UsageByPeriod(tokens.account_name, limit=5)))
    assert accounts == [(MIDNIGHT - DAY, BudgetUsage(70, 0))]


def test_a_closed_provider_defers_all_runs_that_name_it(bench: LedgerHarness) -> None:
    close(bench, at(90))
    named = bench.schedule("named", Every(MINUTE), provider="openai")
    other = bench.schedule("other", Every(MINUTE), provider="else")
    bench.move_to(1)
    bench.admit()
    assert [run.schedule_id for run in bench.lease()] == [other.id]
    (waits,) = bench.runs(named)
    assert (waits.fire_at, waits.attempts) == (at(90), 0)
    assert waits.reason == "provider: openai: closed until 2026-03-10T13:30:00Z: because"
    assert "provider openai is closed until 2026-03-10T13:30:00Z" in waits.trail[-1].why
    bench.move_to(89)
    assert [run.id for run in bench.lease()] == []
    bench.move_to(90)
    assert [run.id for run in bench.lease()] == [waits.id]


def test_a_provider_that_opens_again_lets_all_start_at_once(bench: LedgerHarness) -> None:
    close(bench, at(90))
    runs = by_hand(bench, many=2, provider="openai")
    assert bench.lease() == []
    fact = bench.store.write(lambda tx: open_provider(tx, "default", "openai", by=ADA, now=bench.now))
    assert kinds([fact]) == ["ProviderOpened"]
    assert {run.id for run in bench.lease()} == {run.id for run in runs}


def test_a_result_with_a_retry_time_closes_its_provider_for_all_runs(bench: LedgerHarness) -> None:
    (asks,) = by_hand(bench, "asks", provider="openai", retry=Retry(max_attempts=3))
    (held,) = bench.lease()
    (waits,) = by_hand(bench, "waits", provider="openai")
    (free,) = by_hand(bench, "free")
    told = bench.settle(held, outcome=Failed(error="HTTP 429 Too Many Requests", not_before=at(30)))
    assert "ProviderClosed" in kinds(told.facts)
    assert [run.id for run in bench.lease()] == [free.id]
    assert bench.run(waits).fire_at == bench.run(asks).fire_at == at(30)
    assert "HTTP 429" in bench.run(waits).reason
    bench.move_to(30)
    assert {run.id for run in bench.lease()} == {asks.id, waits.id}


def test_a_provider_is_never_closed_for_longer_than_a_retry_may_wait_nor_for_less_than_before(
    bench: LedgerHarness,
) -> None:
    close(bench, at(60))
    (waits,) = by_hand(bench, "waits", provider="openai")
    assert bench.lease() == []
    bench.move_to(61)
    (held,) = bench.lease()
    close(bench, at(120))
    bench.settle(held, outcome=Failed(error="HTTP 503", not_before=at(100)))
    bench.move_to(101)
    assert bench.lease() == []
    assert bench.run(waits).fire_at == at(120)
    bench.move_to(120)
    (held,) = bench.lease()
    bench.settle(held, outcome=Failed(error="HTTP 503", not_before=NOON + 400 * DAY))
    (later,) = by_hand(bench, "later", provider="openai")
    assert bench.lease() == []
    assert bench.run(later).fire_at == at(120) + DAY


def test_runs_under_an_unreadable_budget_wait_with_a_reason(bench: LedgerHarness) -> None:
    budget(bench, limit=10)
    (run,) = by_hand(bench, budgets=("day",))
    (free,) = by_hand(bench, "free")

    def damage(body: bytes) -> None:
        row = StoredObject(
            kind="budget", namespace="default", name="day", revision=9, body=body, at=bench.now
        )

        bench.store.write(lambda tx: tx.put_objects([row]))

    damage(b'{"name": "day", "unit": "smiles"}')
    assert [leased.id for leased in bench.lease()] == [free.id]
    assert bench.run(run).reason == "budget: day: it cannot be read, so its limit is unknown"
    assert bench.run(run).fire_at == at(1)
    damage(b"[]")
    (all_of_them,) = by_hand(bench, "another")
    assert bench.lease() == []
    assert bench.run(all_of_them).reason.startswith("budget: day: it cannot be read")
    budget(bench, limit=10)
    assert {leased.id for leased in bench.lease()} == {run.id, all_of_them.id}


def test_two_instances_know_a_new_budget_at_once(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    other = another("other")
    runs = by_hand(bench, many=3)
    assert len(other.lease(1)) == 1
    budget(bench, limit=1, function="nobody")
    budget(bench, "all", limit=0, owner="")
    schedule = bench.schedule("later", Manual(), budgets=("all",))
    bench.run_now(schedule)
    assert {run.id for run in other.lease()} == {run.id for run in runs[1:]}


def test_however_many_lease_at_once_no_more_requests_are_made_than_the_budget_has(
    bench: LedgerHarness, another: Callable[[str], LedgerHarness]
) -> None:
    one = budget(bench, limit=CROWD // 2)
    by_hand(bench, many=CROWD, budgets=("day",))
    benches = [another(f"worker-{n}") for n in range(4)]
    leased: list[Run] = []
    errors: list[BaseException] = []

    def take(mine: LedgerHarness) -> None:
        try:
            for _ in range(4):
                leased.extend(mine.lease(3))
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in benches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(leased) == len({run.id for run in leased}) == CROWD // 2
    assert account(bench, one) == BudgetUsage(CROWD // 2, 0)


def _fields(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in schedule.__struct_fields__}
