"""Incidents open once, repeat at most daily and close once, whatever fails and however often it flaps."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import Any

import pytest

from tests.conformance.support.databases import Database
from tests.ledger.alerts.alert_kit import (
    count_statements,
    deliveries,
    incidents,
    pass_minutes,
    told,
)
from timewright.access.credentials import Key, put_key
from timewright.core.alerts.incidents import decide_incidents
from timewright.core.finding import command_line
from timewright.core.moments import DAY, HOUR, MINUTE, format_instant
from timewright.core.run.needs import LeaseOffer, Offer
from timewright.core.target import Handoff
from timewright.errors import NotFound
from timewright.ledger.alerts import incidents as incident_pass
from timewright.ledger.alerts.incidents import check_incidents
from timewright.ledger.lease import lease_ready
from timewright.ledger.pauses import pause_for_clock
from timewright.ledger.records.instances import InstanceRecord, offer_id, record_heartbeat, record_offer
from timewright.ports import Transaction
from timewright.ports.store import ClockDoubt
from timewright.stores.statements import POSTGRES, SQLITE, load_statements
from timewright.testing.bench import Bench
from timewright.testing.clock import ManualClock
from timewright.testing.targets import fail, hang, succeed


@pytest.fixture
def bench(database: Database, clock: ManualClock) -> Bench:
    return Bench(store=database.open(), clock=clock)


def test_a_job_that_fails_all_night_is_told_once_repeated_daily_and_ended_once(
    database: Database, clock: ManualClock
) -> None:
    first = Bench(store=database.open(), clock=clock, name="first")
    first.call("channel create", channel="ops", to="https://example.com/hook")
    first.schedule("nightly", "every 1h", retry=1)
    benches = [first]
    outcomes = [fail(f"boom {n}") for n in range(26)] + [succeed()]
    for hour, outcome in enumerate(outcomes):
        if hour % 5 == 4:
            # The engine is killed: nothing is closed, and another process goes on with the store.
            benches.append(Bench(store=database.open(), clock=clock, name=f"engine-{hour}"))
        benches[-1].target.script("nightly", outcome)
        for _ in range(6):
            benches[-1].advance(minutes=10)
    pass_minutes(benches[-1], 30)
    assert told(*benches) == [("opened", "failed"), ("repeated", "failed"), ("closed", "failed")]
    (one,) = incidents(first, closed=True)
    assert (one["schedule"], one["repeats"], one["error"]) == ("nightly", 1, "boom 24")
    assert "succeeded at" in one["ended_by"]
    assert [run.payload["message"]["type"] for run in deliveries(first)] == [
        "incident-opened",
        "incident-repeated",
        "incident-closed",
    ]


def test_the_message_has_schedule_reason_error_link_and_command(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook", link="https://tw.example.com")
    bench.schedule("job", "every 1h", retry=1, alerts={"failed": 2})
    bench.target.script("job", fail("another error"), fail("disk full"))
    pass_minutes(bench, 130)
    (run,) = deliveries(bench)
    message = run.payload["message"]
    first, _ = bench.runs("job")
    assert first.finished_at is not None
    assert message["at"] == format_instant(first.finished_at), "since the first failure, not the last"
    assert (message["schedule"], message["reason"], message["error"]) == ("job", "failed", "disk full")
    assert message["link"] == f"https://tw.example.com/#/runs/{message['run']}"
    assert message["remedy"] == "timewright explain job"
    assert bench.runs("job")[-1].id == message["run"]


def test_a_command_in_a_message_is_one_command_whatever_the_schedule_is_called(bench: Bench) -> None:
    bench.call(
        "channel create", channel="ops", to="https://example.com/hook", events=["incident", "run-failed"]
    )
    bench.schedule("job; touch made", "every 1h", retry=1)
    bench.target.script("job; touch made", fail("no"))
    pass_minutes(bench, 70)
    commands = {run.payload["message"]["remedy"] for run in deliveries(bench)}
    assert "timewright explain 'job; touch made'" in commands
    assert [one for one in commands if len(shlex.split(one)) != 3 and " run explain " not in one] == []


def test_a_command_in_a_message_names_the_namespace() -> None:
    assert command_line("explain", "job", namespace="team b") == "timewright explain job --namespace 'team b'"


def test_a_key_that_is_replaced_opens_no_incident(bench: Bench) -> None:
    now = bench.clock.now()

    def keep(tx: Transaction) -> None:
        for prefix, name, ends in (("a", "ci", HOUR), ("b", "ci", 90 * DAY), ("c", "lone key", HOUR)):
            key = Key(
                prefix=prefix,
                name=name,
                secret_key_id="",
                digest="",
                scopes=("read",),
                namespaces=("default",),
                created_at=now,
                expires_at=now + ends,
            )
            put_key(tx, key, replaces=0, now=now)

    bench.store.write(keep)
    pass_minutes(bench, 2)
    (found,) = incidents(bench)
    assert found["sentence"].startswith("the key lone key expires in")
    assert found["remedy"] == "timewright key rotate 'lone key' --overlap 1d"


def test_the_run_that_failed_and_the_one_that_ended_it_are_found_behind_many_skipped_ones(
    bench: Bench,
) -> None:
    bench.schedule("job", "every 1m", retry=1)
    bench.target.script("job", fail("disk full"), succeed(after="9m30s"), hang())
    bench.advance(minutes=10)
    (one,) = incidents(bench)
    failed = bench.runs("job")[0]
    assert (one["error"], one["run"]) == ("disk full", failed.id)
    pass_minutes(bench, 20)
    (one,) = incidents(bench, closed=True)
    assert "succeeded at" in one["ended_by"]


def test_two_instances_open_an_incident_once(database: Database, clock: ManualClock) -> None:
    one = Bench(store=database.open(), clock=clock, name="one")
    other = Bench(store=database.open(), clock=clock, name="other")
    one.schedule("job", "every 1h", retry=1)
    for bench in (one, other):
        bench.target.script("job", fail("boom"))
    for _ in range(26):
        one.advance(minutes=5)
        other.tick()
    assert told(one, other) == [("opened", "failed")]


def test_a_finding_that_comes_and_goes_is_one_incident(bench: Bench) -> None:
    bench.schedule("job", "every 4m", retry=1)
    bench.target.script("job", *[fail("boom"), succeed()] * 30)
    pass_minutes(bench, 200)
    assert told(bench) == [("opened", "failed")]
    (one,) = incidents(bench)
    assert one["flaps"] > 5


def test_a_finding_that_returns_after_its_end_must_stay_away_longer(bench: Bench) -> None:
    bench.schedule("job", "every 1h", retry=1)
    bench.target.script("job", *[fail("boom"), succeed()] * 12)
    pass_minutes(bench, 20 * 60)
    assert told(bench) == [("opened", "failed"), ("closed", "failed"), ("opened", "failed")]


def test_a_threshold_of_a_schedule_wins_over_group_namespace_and_installation(bench: Bench) -> None:
    bench.schedule("strict", "every 1h", retry=1, group="g", alerts={"failed": 1})
    bench.schedule("grouped", "every 1h", retry=1, group="g")
    bench.schedule("plain", "every 1h", retry=1)
    bench.schedule("quiet", "every 1h", retry=1, alerts=False)
    for name in ("strict", "grouped", "plain", "quiet"):
        bench.target.script(name, fail("boom"))
    bench.call("alert set", installation=True, failed=9)
    bench.call("alert set", failed=3)
    bench.call("alert set", group="g", failed=2)
    seen = []
    for _ in range(4):
        pass_minutes(bench, 60)
        seen.append(sorted(one["schedule"] for one in incidents(bench)))
    pass_minutes(bench, 10)
    assert seen == [[], ["strict"], ["grouped", "strict"], ["grouped", "plain", "strict"]]


def test_an_acknowledged_incident_is_not_repeated_and_its_end_is_told(bench: Bench) -> None:
    bench.schedule("job", "every 12h", retry=1)
    bench.target.script("job", *[fail("boom")] * 4, succeed())
    pass_minutes(bench, 13 * 60)
    (one,) = incidents(bench)
    after = bench.call("incident acknowledge", incident=one["id"], reason="on it")
    assert after["acknowledged_by"] == "local"
    pass_minutes(bench, 50 * 60)
    assert told(bench) == [("opened", "failed"), ("closed", "failed")]


def test_a_snoozed_incident_is_repeated_after_its_snooze(bench: Bench) -> None:
    bench.schedule("job", "every 12h", retry=1)
    bench.target.script("job", fail("boom"))
    pass_minutes(bench, 13 * 60)
    (one,) = incidents(bench)
    bench.call("incident snooze", incident=one["id"], length="30h")
    pass_minutes(bench, 29 * 60)
    assert told(bench) == [("opened", "failed")]
    pass_minutes(bench, 2 * 60)
    assert told(bench) == [("opened", "failed"), ("repeated", "failed")]


def test_a_closed_incident_cannot_be_acknowledged(bench: Bench) -> None:
    with pytest.raises(NotFound, match="no open incident"):
        bench.call("incident acknowledge", incident="inc_none")


def test_a_run_that_is_ready_and_not_started_is_an_incident(database: Database, clock: ManualClock) -> None:
    full = Bench(store=database.open(), clock=clock, capacity=1)
    full.schedule("long", "every 1d", lease={"length": "1h", "time_limit": "1h"})
    full.target.script("long", hang())
    full.schedule("short", "every 1d")
    full.call("schedule run", schedule="long")
    full.tick()
    full.call("schedule run", schedule="short")
    pass_minutes(full, 7)
    assert told(full) == [("opened", "no_instance")]


def test_a_parked_queue_entry_is_an_incident_of_its_queue(bench: Bench) -> None:
    bench.call("queue add", queue="mail", payload=1)
    bench.advance(hours=3)
    for _ in range(3):
        (lease,) = bench.call("queue lease", queue="mail")["leases"]
        parked_at = format_instant(bench.now)
        bench.call("queue release", run=lease["run"], fence=lease["fence"], failed=True, error="no")
        bench.advance(minutes=2)
    assert ("opened", "parked") in told(bench)
    (one,) = [one for one in incidents(bench) if one["kind"] == "parked"]
    assert one["since"] == parked_at
    assert (one["subject"], one["remedy"]) == ("queue mail", f"timewright run reset {one['run']}")


def test_a_failure_that_parks_its_run_is_told_once(bench: Bench) -> None:
    bench.call("alert set", group="reports", parked=True)
    bench.schedule("nightly", "every 1d", retry=1, exhausted="park", group="reports")
    bench.target.script("nightly", fail("disk full"))
    bench.advance(days=1)
    pass_minutes(bench, 3)
    assert [(one["kind"], one["error"]) for one in incidents(bench)] == [("parked", "disk full")]


def test_a_group_that_wants_no_message_about_parked_runs_gets_none(bench: Bench) -> None:
    bench.call("alert set", group="reports", parked=False, failed=5)
    bench.schedule("nightly", "every 1d", retry=1, exhausted="park", group="reports")
    bench.target.script("nightly", fail("disk full"))
    bench.advance(days=1)
    pass_minutes(bench, 3)
    assert incidents(bench) == []


def test_an_old_queue_entry_is_an_incident(bench: Bench) -> None:
    bench.call("queue add", queue="mail", payload=1)
    pass_minutes(bench, 62)
    assert told(bench) == [("opened", "queue_age")]
    bench.call("queue drain", queue="mail")
    pass_minutes(bench, 12)
    assert told(bench) == [("opened", "queue_age"), ("closed", "queue_age")]


def test_missed_occurrences_are_an_incident(bench: Bench) -> None:
    bench.schedule("job", "every 10m", catch_up="none")
    bench.tick()
    bench.clock.advance(hours=3)
    pass_minutes(bench, 2)
    assert told(bench) == [("opened", "missed")]
    (one,) = incidents(bench)
    assert "missed 17 occurrences" in one["sentence"]
    pass_minutes(bench, 75)
    assert told(bench)[-1] == ("closed", "missed")


def test_many_incidents_of_one_moment_are_one_message(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    for number in range(8):
        bench.schedule(f"job-{number}", "every 1h", retry=1)
        bench.target.script(f"job-{number}", fail("boom"))
    pass_minutes(bench, 62)
    (run,) = deliveries(bench)
    assert (run.payload["message"]["count"], len(run.payload["message"]["others"])) == (8, 8)
    assert len(incidents(bench)) == 8


def test_the_default_rules_cost_one_query_a_minute_with_10_and_with_1000_schedules(
    database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store=database.open(), clock=clock)
    asked: list[Counter[str]] = []
    for numbers in (range(10), range(10, 1000)):
        schedules = [
            {"name": f"job-{n}", "trigger": {"every": "1d"}, "target": {"call": "job"}} for n in numbers
        ]
        bench.call("schedule put-many", schedules=schedules)
        pass_minutes(bench, 2)
        with monkeypatch.context() as patched:
            names = count_statements(patched)
            pass_minutes(bench, 10)
            asked.append(Counter(names))
    few, many = asked
    assert few == many
    assert (few["claim_alert_check"], few["alert_rows"]) == (10, 10)
    assert not few.keys() & {"recent_runs", "get_schedules", "find_runs", "list_incidents"}


def test_the_query_for_incidents_reads_every_large_table_by_an_index(
    database: Database, clock: ManualClock
) -> None:
    bench = Bench(store=database.open(), clock=clock)
    schedules = [
        {"name": f"job-{n}", "trigger": {"every": "1m"}, "target": {"call": "job"}} for n in range(1000)
    ]
    bench.call("schedule put-many", schedules=schedules)
    pass_minutes(bench, 1)
    if database.kind == "sqlite":
        sql = re.sub(r":\w+", "5", load_statements(SQLITE)["alert_rows"].sql)
        steps = [str(row[3]) for row in database.sql(f"EXPLAIN QUERY PLAN {sql}")]
        read = [step for step in steps if re.search(r"\b(runs|schedules|incidents|objects|pauses)\b", step)]
        unindexed = [step for step in read if "USING" not in step]
    else:
        database.sql("ANALYZE")
        sql = re.sub(r"%\(\w+\)s", "5", load_statements(POSTGRES)["alert_rows"].sql)
        steps = [str(row[0]) for row in database.sql(f"EXPLAIN {sql}")]
        read = [step for step in steps if re.search(r"Scan.* on (runs|schedules)\b", step)]
        unindexed = [step for step in read if "Seq Scan" in step]
    assert len(read) >= 9
    assert unindexed == []


def test_a_foreign_job_is_handed_over_and_never_leased_by_an_engine(bench: Bench) -> None:
    bench.schedule("foreign", "every 1h", target=Handoff(), expect={"within": "10m"})
    pass_minutes(bench, 62)
    assert [run.state.value for run in bench.runs("foreign")] == ["ready"]


@pytest.mark.parametrize("scope", ["installation", "namespace"])
def test_messages_are_sent_while_work_is_paused(bench: Bench, scope: str) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    bench.schedule("job", "every 1h", retry=1)
    bench.target.script("job", fail("disk full", after=2 * MINUTE))
    bench.advance(hours=1)
    bench.call("pause", scope=scope, name="default" if scope == "namespace" else "")
    bench.call("schedule run", schedule="job", force=True)
    pass_minutes(bench, 5)
    assert [(run.payload["message"]["kind"], run.state.value) for run in deliveries(bench)] == [
        ("failed", "succeeded")
    ]
    assert [run.state.value for run in bench.runs("job")] == ["failed", "ready"]
    assert bench.call("verify")["violations"] == []


def test_a_message_that_failed_is_sent_again_while_the_installation_is_paused(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    bench.target.script("", fail("no route"), succeed())
    bench.call("pause")
    bench.call("channel test", channel="ops")
    pass_minutes(bench, 1)
    (run,) = deliveries(bench)
    assert (run.state.value, run.fence) == ("succeeded", 2)


def test_runs_that_wait_for_the_end_of_a_pause_are_neither_late_nor_without_an_instance(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    bench.schedule("job", "every 1h", catch_up="all")
    bench.call("queue add", queue="mail", payload=1)
    bench.call("pause")
    bench.call("schedule run", schedule="job")
    pass_minutes(bench, 200)
    assert told(bench) == []
    bench.call("resume")
    assert bench.call("verify")["violations"] == []
    pass_minutes(bench, 2)
    # The entry of the queue waits for a worker now.
    assert told(bench) == [("opened", "queue_age")]


def test_a_paused_channel_keeps_its_messages(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    bench.call("pause", scope="queue", name="channel.ops")
    bench.call("channel test", channel="ops")
    pass_minutes(bench, 2)
    assert [run.state.value for run in deliveries(bench)] == ["ready"]
    bench.call("resume", scope="queue", name="channel.ops")
    pass_minutes(bench, 1)
    assert [run.state.value for run in deliveries(bench)] == ["succeeded"]


def test_a_clock_that_stepped_is_told_although_its_doubt_pauses_all_work(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    doubt = ClockDoubt(reading=bench.now + 3 * DAY, expected=bench.now, since=bench.now)
    pause_for_clock(bench.store, doubt, ids=bench.ids, now=bench.now)
    check_incidents(bench.store, ids=bench.ids, now=bench.now)
    leased = lease_ready(
        bench.store, ids=bench.ids, holder="w", capacity=5, now=bench.now, offer=LeaseOffer()
    ).leases
    assert [one.run.payload["message"]["kind"] for one in leased] == ["clock_stepped"]
    assert "timewright clock accept" in leased[0].run.payload["message"]["remedy"]


def test_a_reminder_is_sent_to_its_channel_once(bench: Bench) -> None:
    bench.call("channel create", channel="ops", to="https://example.com/hook")
    bench.call("reminder set", text="renew the certificate", after="5m", channel="ops")
    pass_minutes(bench, 10)
    (run,) = deliveries(bench)
    assert run.payload["message"]["sentence"] == "renew the certificate"
    with pytest.raises(NotFound, match="channel"):
        bench.call("reminder set", text="x", after="5m", channel="nobody")


def test_a_channel_gets_the_facts_it_asks_for_and_a_run_never_depends_on_it(bench: Bench) -> None:
    bench.call("channel create", channel="all", to="https://example.com/hook", events=["run-failed"])
    bench.call("channel create", channel="none", to="https://example.com/x", events=["run-parked"])
    bench.schedule("job", "every 1h", retry=1)
    bench.target.script("job", fail("boom"), succeed())
    pass_minutes(bench, 130)
    assert [run.payload["message"]["error"] for run in deliveries(bench, "all")] == ["boom"]
    assert deliveries(bench, "none") == []
    assert [run.state.value for run in bench.runs("job")] == ["failed", "succeeded"]


def _forgetful(alerts: Any, *, incidents: Any, **rest: Any) -> Any:
    """A mutant that does not know what is open."""
    return decide_incidents(alerts, incidents={}, **rest)


def test_an_incident_that_is_opened_twice_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_pass, "decide_incidents", _forgetful)
    bench.schedule("job", "every 1h", retry=1)
    bench.target.script("job", fail("boom"))
    with pytest.raises(Exception, match=r"(?i)unique"):
        pass_minutes(bench, 70)


def test_verify_covers_incidents(bench: Bench) -> None:
    bench.schedule("job", "every 1h", retry=1)
    bench.target.script("job", fail("boom"), succeed(), fail("boom"))
    pass_minutes(bench, 200)
    (found,) = [one for one in bench.call("verify")["promises"] if one["promise"] == "I48"]
    assert (found["checked"] > 0, found["broken"]) == (True, 0)


def missing(bench: Bench, *instances: tuple[str, int, Offer, str]) -> list[str]:
    """Which instances are reported as gone: each sent one heartbeat, at its minute, from its host."""
    start = bench.clock.now()

    def send(tx: Transaction) -> None:
        for name, minute, offer, host in instances:
            at = start + minute * MINUTE
            one = InstanceRecord(
                id=name, host=host, version="1", started_at=at, capacity=1, offer=offer_id(offer)
            )
            record_heartbeat(tx, one, now=at)
            record_offer(tx, offer, now=at)

    bench.store.write(send)
    bench.clock.advance(minutes=max(minute for _, minute, _, _ in instances))
    pass_minutes(bench, 4)
    found = [one["subject"] for one in incidents(bench) if one["kind"] == "instance_gone"]
    return sorted(found)


WEB, MAIL = Offer(functions=("a", "b")), Offer(functions=("mail",))


@pytest.mark.parametrize(
    ("later", "gone"),
    [
        (("new", 1, WEB, "h"), ["new"]),
        (("new", 1, Offer(functions=("b", "c")), "h"), ["new"]),
        (("new", 1, MAIL, "h"), ["new", "old"]),
        (("new", 1, Offer(functions=("a", "b"), queues=("q",)), "h"), ["new", "old"]),
        (("new", 1, WEB, "other"), ["new", "old"]),
        (("new", 0, WEB, "h"), ["new", "old"]),
    ],
    ids=["same", "new version", "another program", "another queue", "another host", "beside it"],
)
def test_only_the_same_program_on_the_same_host_replaces_an_instance_that_is_gone(
    bench: Bench, later: tuple[str, int, Offer, str], gone: list[str]
) -> None:
    assert missing(bench, ("old", 0, WEB, "h"), later) == gone


def test_one_instance_replaces_one(bench: Bench) -> None:
    old = [(name, 0, WEB, "h") for name in ("a", "b")]
    assert missing(bench, *old, ("c", 1, WEB, "h"), ("d", 2, MAIL, "h")) == ["b", "c", "d"]
