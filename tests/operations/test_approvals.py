"""What agents schedule: a person looks first, it ends, and it is not made twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.house import House
from timewright.core.run import Outcome, Succeeded
from timewright.errors import Conflict, Forbidden, NotAllowed, OverQuota
from timewright.operations.access import ROLES, Caller, acting
from timewright.ports import Launch


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> House:
    """A namespace of its own on each store, in which a person approves what agents schedule."""
    if request.param == "sqlite":
        house = House().elsewhere("guarded")
    else:
        street: House = request.getfixturevalue("postgres_street")
        house = street.elsewhere(f"guarded-{abs(hash(request.node.name)) % 10**9}")
    house.ask("namespace create", name=house.context.namespace, agent_approval=True)
    return house


@pytest.fixture
def house() -> House:
    """An empty house whose namespace asks nothing of agents yet."""
    return House()


def agent(house: House) -> House:
    """The same house, asked by an agent with an editor's key."""
    other = house.elsewhere(house.context.namespace)
    caller = Caller(actor="bot", origin="agent", scopes=ROLES["editor"])
    other.context = acting(other.context, caller, house.context.namespace)
    return other


def make(house: House, name: str = "poll", **fields: Any) -> dict[str, Any]:
    return house.ask("schedule create", {"name": name, "every": "5m", "call": name, **fields})


def runs(house: House, name: str = "poll") -> list[Any]:
    return list(house.ask("run list", schedule=name)["runs"])


def test_what_an_agent_schedules_never_runs_before_a_person_approved_it(place: House) -> None:
    made = make(agent(place))
    assert made["standing"]["state"] == "pending_approval"
    assert made["standing"]["next_at"] is None
    place.advance(minutes=30)
    assert runs(place) == []
    (pending,) = place.ask("approval list")["approvals"]
    assert (pending["name"], pending["created_by"], pending["trigger"]) == ("poll", "bot", "every 5m")
    approved = place.ask("approval approve", schedule="poll", reason="fine")
    assert approved["standing"]["state"] == "active"
    assert approved["standing"]["next_at"] == pending["first_at"]
    place.advance(minutes=6)
    (run,) = runs(place)
    assert run["planned_at"] == pending["first_at"], "what it missed while it waited is not made up for"
    assert place.ask("approval list")["approvals"] == []


def test_what_a_person_schedules_waits_for_nobody(place: House) -> None:
    assert make(place)["standing"]["state"] == "active"


def test_a_rejected_schedule_is_archived_with_the_reason_and_its_name_is_free(place: House) -> None:
    make(agent(place))
    gone = place.ask("approval reject", schedule="poll", reason="not needed")
    assert (gone["standing"]["state"], gone["standing"]["reason"]) == ("archived", "not needed")
    place.advance(minutes=30)
    assert runs(place) == []
    make(place)


def test_an_agent_approves_nothing(place: House) -> None:
    make(agent(place))
    for verb in ("approve", "reject"):
        with pytest.raises(Forbidden):
            agent(place).ask(f"approval {verb}", schedule="poll")
    assert len(place.ask("approval list")["approvals"]) == 1


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
def test_there_is_no_way_around_the_approval(operation: str, fields: dict[str, Any]) -> None:
    started: list[Launch] = []

    def trial(launch: Launch) -> Outcome:
        started.append(launch)
        return Succeeded()

    house = House()
    house.context = type(house.context)(
        store=house.store, ids=house.bench.ids, tell=house.told.extend, trial=trial
    )
    house.ask("namespace create", name="default", agent_approval=True)
    make(agent(house), adaptive=True)
    for who in (agent(house), house):
        with pytest.raises(NotAllowed):
            who.ask(operation, fields, schedule="poll")
    house.advance(hours=1)
    assert runs(house) == []
    assert started == []


def test_an_agent_may_edit_what_waits_and_not_what_was_approved(place: House) -> None:
    bot = agent(place)
    make(bot)
    bot.ask("schedule update", schedule="poll", call="better")
    place.ask("approval approve", schedule="poll")
    for operation, fields in (
        ("schedule update", {"schedule": "poll", "call": "worse"}),
        ("schedule put", {"name": "poll", "every": "5m", "call": "worse"}),
        ("schedule restore", {"schedule": "poll", "to": 1}),
    ):
        with pytest.raises(NotAllowed):
            bot.ask(operation, fields)
    assert place.ask("schedule get", schedule="poll")["schedule"]["target"]["name"] == "better"
    assert bot.ask("schedule put", name="poll", every="5m", call="better")["change"] == "unchanged"


def test_a_one_time_schedule_whose_time_passed_while_it_waited_is_over(house: House) -> None:
    house.ask("namespace create", name="default", agent_approval=True)
    agent(house).ask("schedule create", name="once", once="2026-03-10T12:10:00Z", call="x")
    house.advance(hours=1)
    assert house.ask("approval approve", schedule="once")["standing"]["state"] == "finished"
    house.advance(hours=1)
    assert runs(house, "once") == []


def test_a_delay_that_passed_while_it_waited_begins_at_once(house: House) -> None:
    house.ask("namespace create", name="default", agent_approval=True)
    agent(house).ask("schedule create", name="after", after="10m", call="x")
    house.advance(hours=1)
    house.ask("approval approve", schedule="after")
    house.advance(minutes=11)
    assert len(runs(house, "after")) == 2


def test_a_crowded_schedule_is_refused_although_it_would_wait(house: House) -> None:
    house.ask("namespace create", name="default", agent_approval=True)
    with pytest.raises(OverQuota):
        make(agent(house), every="2s")


def test_what_an_agent_schedules_ends_by_itself(house: House) -> None:
    house.ask("namespace create", name="default", agent_longest_life="7d")
    bot = agent(house)
    assert make(bot)["schedule"]["end_at"] == "2026-03-17T12:00:00Z"
    assert make(bot, "short", end_at="2026-03-12T00:00:00Z")["schedule"]["end_at"] == "2026-03-12T00:00:00Z"
    with pytest.raises(OverQuota) as refusal:
        make(bot, "long", end_at="2027-01-01T00:00:00Z")
    assert refusal.value.field == "end_at"
    assert make(house, "mine")["schedule"]["end_at"] is None
    again = {"name": "poll", "every": "5m", "call": "poll"}
    house.sleep(days=1)
    assert bot.ask("schedule put", again)["change"] == "unchanged"


def test_an_agent_cannot_take_the_end_away_by_an_edit(house: House) -> None:
    house.ask("namespace create", name="default", agent_longest_life="7d")
    bot = agent(house)
    make(bot)
    make(house, "mine")
    house.sleep(days=1)
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
def test_the_same_work_at_the_same_times_is_refused_with_the_one_that_does_it(
    house: House, fields: dict[str, Any]
) -> None:
    bot = agent(house)
    house.ask("schedule create", {"name": "first", **fields})
    house.sleep(minutes=3)
    for operation in ("schedule create", "schedule put"):
        with pytest.raises(Conflict) as refusal:
            bot.ask(operation, {"name": "second", **fields})
        assert refusal.value.value == "first"
    when = {name: value for name, value in fields.items() if name not in ("call", "http")}
    bot.ask("schedule create", {"name": "other", **when, "note": "something else"})
    forced = bot.ask("schedule create", {"name": "second", **fields, "force": True})
    assert forced["schedule"]["name"] == "second"


def test_what_is_over_is_no_twin_and_a_person_may_have_two(house: House) -> None:
    bot = agent(house)
    make(bot, "first", call="sync")
    house.ask("schedule archive", schedule="first")
    make(bot, "second", call="sync")
    make(house, "third", call="sync")
    with pytest.raises(Conflict):
        make(bot, "fourth", call="sync")


def test_an_agent_is_told_that_a_reminder_is_set_already(house: House) -> None:
    bot = agent(house)
    bot.ask("reminder set", text="stretch", every="2h")
    with pytest.raises(Conflict):
        bot.ask("reminder set", text="stretch", every="2h")
    assert bot.ask("reminder set", text="stretch", every="2h", force=True)["name"] == "stretch-2"
