"""Schedules created by agents need approval, have an end, and are not duplicated."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.harness import OperationsHarness
from timewright.core.run.run import Outcome, Succeeded
from timewright.errors import Conflict, Forbidden, NotAllowed, OverQuota
from timewright.operations.access.authentication import ROLES, Caller, context_for
from timewright.ports import Launch


@pytest.fixture(params=["sqlite", "postgres"])
def guarded(request: pytest.FixtureRequest) -> OperationsHarness:
    """A harness in a namespace that requires approval of agents' schedules, on each store."""
    if request.param == "sqlite":
        guarded = OperationsHarness().in_namespace("guarded")
    else:
        shared_harness: OperationsHarness = request.getfixturevalue("empty_postgres_harness")
        guarded = shared_harness.in_namespace(f"guarded-{abs(hash(request.node.name)) % 10**9}")
    guarded.ask("namespace create", name=guarded.context.namespace, agent_approval=True)
    return guarded


@pytest.fixture
def harness() -> OperationsHarness:
    """An empty harness whose namespace has no rules for agents."""
    return OperationsHarness()


def agent(harness: OperationsHarness) -> OperationsHarness:
    """Return a harness whose caller is an agent with the role editor."""
    other = harness.in_namespace(harness.context.namespace)
    caller = Caller(actor="bot", origin="agent", scopes=ROLES["editor"])
    other.context = context_for(other.context, caller, harness.context.namespace)
    return other


def make(harness: OperationsHarness, name: str = "poll", **fields: Any) -> dict[str, Any]:
    return harness.ask("schedule create", {"name": name, "every": "5m", "call": name, **fields})


def runs(harness: OperationsHarness, name: str = "poll") -> list[Any]:
    return list(harness.ask("run list", schedule=name)["runs"])


def test_an_approval_request_shows_the_whole_target_the_budgets_and_five_occurrences(
    guarded: OperationsHarness,
) -> None:
    guarded.ask("budget set", budget="tokens", unit="tokens", limit=1000)
    request = {"method": "POST", "url": "https://example.com/wipe", "body": {"all": True}}
    agent(guarded).ask(
        "schedule create", {"name": "wipe", "every": "5m", "http": request, "budgets": ["tokens"]}
    )
    (pending,) = guarded.ask("approval list")["approvals"]
    assert (pending["target"]["url"], pending["target"]["body"]) == (request["url"], request["body"])
    assert pending["budgets"] == ["tokens"]
    assert len(pending["next"]) == 5
    assert pending["next"][0] == pending["first_at"]
    guarded.ask("approval approve", schedule="wipe")
    planned = guarded.ask("schedule next", schedule="wipe", count=5)["next"]
    assert [one["planned_at"] for one in planned] == pending["next"]


def test_an_agents_schedule_does_not_run_before_a_person_approves_it(guarded: OperationsHarness) -> None:
    made = make(agent(guarded))
    assert made["progress"]["state"] == "pending_approval"
    assert made["progress"]["next_at"] is None
    guarded.advance(minutes=30)
    assert runs(guarded) == []
    (pending,) = guarded.ask("approval list")["approvals"]
    assert (pending["name"], pending["created_by"], pending["trigger"]) == ("poll", "bot", "every 5m")
    approved = guarded.ask("approval approve", schedule="poll", reason="fine")
    assert approved["progress"]["state"] == "active"
    assert approved["progress"]["next_at"] == pending["first_at"]
    guarded.advance(minutes=6)
    (run,) = runs(guarded)
    assert run["planned_at"] == pending["first_at"], "what it missed while it waited is not made up for"
    assert guarded.ask("approval list")["approvals"] == []


def test_a_persons_schedule_needs_no_approval(guarded: OperationsHarness) -> None:
    assert make(guarded)["progress"]["state"] == "active"


def test_a_rejected_schedule_is_archived_with_the_reason_and_its_name_is_free(
    guarded: OperationsHarness,
) -> None:
    make(agent(guarded))
    gone = guarded.ask("approval reject", schedule="poll", reason="not needed")
    assert (gone["progress"]["state"], gone["progress"]["reason"]) == ("archived", "not needed")
    guarded.advance(minutes=30)
    assert runs(guarded) == []
    make(guarded)


def test_an_agent_cannot_approve(guarded: OperationsHarness) -> None:
    make(agent(guarded))
    for verb in ("approve", "reject"):
        with pytest.raises(Forbidden):
            agent(guarded).ask(f"approval {verb}", schedule="poll")
    assert len(guarded.ask("approval list")["approvals"]) == 1


def harness_with_tests(started: list[Launch]) -> OperationsHarness:
    """A namespace that requires approval, with `schedule test`: what it starts is added to the list."""

    def trial(launch: Launch, on_start: Any = None) -> Outcome:
        started.append(launch)
        return Succeeded()

    harness = OperationsHarness()
    harness.context = type(harness.context)(
        store=harness.store, ids=harness.bench.ids, notify=harness.facts.extend, run_target_test=trial
    )
    harness.ask("namespace create", name="default", agent_approval=True)
    return harness


@pytest.mark.parametrize("removal", ["approval reject", "schedule archive", "schedule delete"])
def test_a_removed_schedule_that_nobody_approved_cannot_be_tested(removal: str) -> None:
    started: list[Launch] = []
    harness = harness_with_tests(started)
    make(agent(harness))
    who = harness if removal == "approval reject" else agent(harness)
    who.ask(removal, schedule="poll")
    with pytest.raises(NotAllowed, match="is archived"):
        agent(harness).ask("schedule test", schedule="poll")
    assert started == []


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("schedule run", {}),
        ("schedule run", {"force": True}),
        ("schedule resume", {}),
        ("schedule pause", {}),
        ("schedule backfill", {"since": "2026-03-09T00:00:00Z"}),
        ("schedule skip", {}),
        ("schedule move", {"to": "2026-03-11T00:00:00Z"}),
        ("schedule test", {}),
        ("hint once", {"at": "2036-03-11T00:00:00Z"}),
    ],
)
def test_no_operation_bypasses_the_approval(operation: str, fields: dict[str, Any]) -> None:
    started: list[Launch] = []
    harness = harness_with_tests(started)
    make(agent(harness), adaptive=True)
    for who in (agent(harness), harness):
        with pytest.raises((NotAllowed, Forbidden)):
            who.ask(operation, fields, schedule="poll")
    harness.advance(hours=1)
    assert runs(harness) == []
    assert started == []


def test_an_agent_may_edit_a_pending_schedule_but_not_an_approved_one(guarded: OperationsHarness) -> None:
    bot = agent(guarded)
    make(bot)
    bot.ask("schedule update", schedule="poll", call="better")
    guarded.ask("approval approve", schedule="poll")
    for operation, fields in (
        ("schedule update", {"schedule": "poll", "call": "worse"}),
        ("schedule put", {"name": "poll", "every": "5m", "call": "worse"}),
        ("schedule restore", {"schedule": "poll", "to": 1}),
    ):
        with pytest.raises(NotAllowed):
            bot.ask(operation, fields)
    assert guarded.ask("schedule get", schedule="poll")["schedule"]["target"]["name"] == "better"
    assert bot.ask("schedule put", name="poll", every="5m", call="better")["change"] == "unchanged"


def test_a_one_time_schedule_whose_time_passed_while_pending_is_finished(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_approval=True)
    agent(harness).ask("schedule create", name="once", once="2026-03-10T12:10:00Z", call="x")
    harness.advance(hours=1)
    assert harness.ask("approval approve", schedule="once")["progress"]["state"] == "finished"
    harness.advance(hours=1)
    assert runs(harness, "once") == []


def test_a_delay_that_passed_while_pending_starts_at_once(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_approval=True)
    agent(harness).ask("schedule create", name="after", after="10m", call="x")
    harness.advance(hours=1)
    harness.ask("approval approve", schedule="after")
    harness.advance(minutes=11)
    assert len(runs(harness, "after")) == 2


def test_a_too_frequent_schedule_is_rejected_although_it_would_be_pending(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_approval=True)
    with pytest.raises(OverQuota):
        make(agent(harness), every="2s")


def test_an_agents_schedule_gets_an_end(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_longest_life="7d")
    bot = agent(harness)
    assert make(bot)["schedule"]["end_at"] == "2026-03-17T12:00:00Z"
    assert make(bot, "short", end_at="2026-03-12T00:00:00Z")["schedule"]["end_at"] == "2026-03-12T00:00:00Z"
    with pytest.raises(OverQuota) as error:
        make(bot, "long", end_at="2027-01-01T00:00:00Z")
    assert error.value.field == "end_at"
    assert make(harness, "mine")["schedule"]["end_at"] is None
    again = {"name": "poll", "every": "5m", "call": "poll"}
    harness.sleep(days=1)
    assert bot.ask("schedule put", again)["change"] == "unchanged"


def test_an_agent_cannot_remove_the_end_by_an_edit(harness: OperationsHarness) -> None:
    harness.ask("namespace create", name="default", agent_longest_life="7d")
    bot = agent(harness)
    make(bot)
    make(harness, "mine")
    harness.sleep(days=1)
    assert bot.ask("schedule update", schedule="poll", end_at=None)["schedule"]["end_at"] is not None
    with pytest.raises(OverQuota):
        bot.ask("schedule update", schedule="poll", end_at="2027-01-01T00:00:00Z")
    later = bot.ask("schedule update", schedule="poll", end_at="2026-03-18T00:00:00Z")
    assert later["schedule"]["end_at"] == "2026-03-18T00:00:00Z"
    assert bot.ask("schedule update", schedule="mine", overlap="queue")["schedule"]["end_at"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"every": "5m", "call": "sync"},
        {"cron": "0 9 * * *", "zone": "Europe/Berlin", "call": "sync"},
        {"cron": "0 9 * * *", "http": "POST https://example.com/sync"},
        {"trigger": [{"every": "5m"}, {"cron": "0 9 * * *"}], "call": "sync"},
    ],
)
def test_a_duplicate_is_rejected_with_the_name_of_the_other_schedule(
    harness: OperationsHarness, fields: dict[str, Any]
) -> None:
    bot = agent(harness)
    harness.ask("schedule create", {"name": "first", **fields})
    harness.sleep(minutes=3)
    for operation in ("schedule create", "schedule put"):
        with pytest.raises(Conflict) as error:
            bot.ask(operation, {"name": "second", **fields})
        assert error.value.value == "first"
    when = {name: value for name, value in fields.items() if name not in ("call", "http")}
    bot.ask("schedule create", {"name": "other", **when, "note": "something else"})
    forced = bot.ask("schedule create", {"name": "second", **fields, "force": True})
    assert forced["schedule"]["name"] == "second"


def test_a_finished_schedule_is_no_duplicate_and_a_person_may_create_duplicates(
    harness: OperationsHarness,
) -> None:
    bot = agent(harness)
    make(bot, "first", call="sync")
    harness.ask("schedule archive", schedule="first")
    with pytest.raises(NotAllowed, match="removed first"):
        make(bot, "second", call="sync")
    harness.sleep(days=30, seconds=1)
    make(bot, "second", call="sync")
    make(harness, "third", call="sync")
    with pytest.raises(Conflict):
        make(bot, "fourth", call="sync")


def test_a_duplicate_reminder_of_an_agent_is_rejected(harness: OperationsHarness) -> None:
    bot = agent(harness)
    bot.ask("reminder set", text="stretch", every="2h")
    with pytest.raises(Conflict):
        bot.ask("reminder set", text="stretch", every="2h")
    assert bot.ask("reminder set", text="stretch", every="2h", force=True)["name"] == "stretch-2"
